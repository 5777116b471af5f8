"""`make simulate`: how often a comparison is wrong, in worlds of made-up noise. docs/statistics.md has the figures.

A world is a program of 400 kernels, run in turns (ABBA) on two sides. Its noise: each kernel's own, with a coefficient
of variation around 0.6 % and a long tail; one of the GPU's clock, shared by all kernels and similar from run to run; a
drift of 1 % during the session; and single kernels of single runs that are slower for no reason.

A second table is about gates, in worlds where the CPU sets the pace. The speed of the host differs from run to run, and
some runs are disturbed as well. Both make steps and launches longer, but a disturbance spares the fastest steps.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nightsight.compare import Settings, compare
from nightsight.model.compare import MEASURES, Comparison, Measures, Pace
from nightsight.model.report import Environment
from tests.gpu.trials import gated

KERNELS = 400
SEED = 20261122
CHANGED = 20
CALM_PCT, FOUND_PCT = 3.0, {3: 70.0, 5: 85.0}
GREEN_PCT, WRONG_PCT, RED_PCT, MISSED_PCT = {5: 90.0}, 2.0, 95.0, 1.0


@dataclass(frozen=True)
class Noise:
    """The noise of a world: relative sizes, and the chance of an outlier."""

    kernel: float = 0.006
    tail: float = 0.7
    clock: float = 0.003
    memory: float = 0.7
    drift: float = 0.01
    outliers: float = 0.008
    outlier: float = 0.06


@dataclass(frozen=True)
class Outcome:
    """What was found in worlds of one kind, in percent.

    wrong: worlds in which a kernel was flagged that had not changed; gate: worlds with a verdict of regressed or
    improved; found: changed kernels that were flagged; false: flagged kernels that had not changed.
    """

    wrong_pct: float
    gate_pct: float
    found_pct: float
    false_pct: float


def world(
    random: np.random.Generator,
    runs: int,
    *,
    slower: float = 0.0,
    changed: int = 0,
    interleaved: bool = True,
    noise: Noise,
) -> tuple[list[Measures], list[Measures], set[str]]:
    """Return the runs of both sides, and the names of the kernels that are slower by a factor."""
    base = random.lognormal(10.0, 1.0, KERNELS)
    large = np.flatnonzero(base > 1e-3 * base.sum())
    chosen = random.choice(large, changed, replace=False)
    factor = np.ones(KERNELS)
    factor[chosen] += slower
    own = noise.kernel * random.lognormal(0.0, noise.tail, KERNELS)
    order = ("ABBA" * runs)[: 2 * runs] if interleaved else "A" * runs + "B" * runs
    clock = 0.0
    sides: dict[str, list[Measures]] = {"A": [], "B": []}
    for place, side in enumerate(order):
        clock = noise.memory * clock + random.normal(0.0, noise.clock * np.sqrt(1 - noise.memory**2))
        common = 1 + clock + noise.drift * place / len(order)
        strays = random.random(KERNELS) < noise.outliers
        times = base * common * (1 + random.normal(0.0, 1.0, KERNELS) * own)
        times *= 1 + strays * random.exponential(noise.outlier, KERNELS)
        sides[side].append(_run(times * (factor if side == "B" else 1.0), place, side))
    return sides["A"], sides["B"], {f"kernel_{place}" for place in chosen}


def _run(times: np.ndarray, place: int, side: str) -> Measures:
    kernels = pd.DataFrame({"kind": "kernel", "name": [f"kernel_{number}" for number in range(len(times))]})
    kernels = kernels.assign(count=1.0, value=times, spread=times, place="")
    total = times.sum()
    gate = pd.DataFrame({"kind": "gate", "name": ["step_ns", "kernel_ns"], "value": [1.05 * total, total], "place": ""})
    table = pd.concat([gate, kernels], ignore_index=True).reindex(columns=list(MEASURES))
    environment = Environment(collector="nsys")
    return Measures("run", "simulated", table, environment, repetitions=100, series="s", side=side, order=place)


@dataclass(frozen=True)
class Host:
    """The noise of a host: relative sizes, and how often a run is disturbed."""

    speed: float = 0.06
    own: float = 0.012
    launch: float = 0.012
    disturbed: float = 0.15
    by: float = 0.1
    spread: float = 0.1


def hosted(random: np.random.Generator, *, slower: float, copies: float, host: Host, place: int, side: str) -> Measures:
    """Return a run whose step of 2 ms takes as long as the CPU needs, with a time of its kernels that is steady."""
    speed = np.exp(random.normal(0.0, host.speed))
    calm = 2e6 * speed * (1 + slower) * np.exp(random.normal(0.0, host.own))
    disturbed = 1 + (random.random() < host.disturbed) * random.exponential(host.by)
    step = calm * disturbed
    kernels = 8e5 * np.exp(random.normal(0.0, 0.001))
    values = {"step_ns": step, "kernel_ns": kernels, "launches": 50.0, "device_to_host_copies": copies}
    table = pd.DataFrame({"kind": "gate", "name": list(values), "value": list(values.values()), "place": ""})
    return Measures(
        "run",
        "simulated",
        table.reindex(columns=list(MEASURES)),
        Environment(collector="nsys"),
        repetitions=100,
        series="s",
        side=side,
        order=place,
        pace={"step_ns": Pace(0.9 * calm / step * np.exp(random.normal(0.0, host.own)), host.spread)},
        launch_call_ns=7e3 * speed * disturbed * np.exp(random.normal(0.0, host.launch)),
    )


def gates(
    runs: int, worlds: int, *, slower: float = 0.0, copies: float = 0.0, interleaved: bool = True, seed: int = SEED
) -> Counter[str]:
    """Return what gates decide in worlds where the CPU sets the pace."""
    made = []
    for number in range(worlds):
        random = np.random.default_rng([seed, runs, int(1000 * slower), int(copies), int(interleaved), number])
        order = ("ABBA" * runs)[: 2 * runs] if interleaved else "A" * runs + "B" * runs
        sides: dict[str, list[Measures]] = {"A": [], "B": []}
        for place, side in enumerate(order):
            is_changed = side == "B"
            run = hosted(
                random, slower=slower * is_changed, copies=copies * is_changed, host=Host(), place=place, side=side
            )
            sides[side].append(run)
        made.append(compare(sides["A"], sides["B"], settings=Settings()))
    return gated(made)


def flagged(comparison: Comparison) -> set[str]:
    """Return the kernels that were found to have changed."""
    changes = comparison.changes
    is_change = (changes["kind"] == "kernel") & changes["verdict"].isin(["regressed", "improved"])
    return set(changes.loc[is_change, "name"])


def simulate(
    runs: int,
    worlds: int,
    *,
    slower: float = 0.0,
    interleaved: bool = True,
    noise: Noise | None = None,
    seed: int = SEED,
) -> Outcome:
    """Compare the two sides of many worlds; with `slower`, 20 kernels of the candidate are slower."""
    wrong = gate = right = flags = 0
    for number in range(worlds):
        random = np.random.default_rng([seed, runs, int(1000 * slower), int(interleaved), number])
        changed = CHANGED if slower else 0
        before, after, names = world(
            random, runs, slower=slower, changed=changed, interleaved=interleaved, noise=noise or Noise()
        )
        comparison = compare(before, after, settings=Settings())
        hits = flagged(comparison)
        wrong += bool(hits - names)
        gate += comparison.verdict in ("regressed", "improved")
        right += len(hits & names)
        flags += len(hits)
    share = 100 / worlds
    found_pct = right * share / CHANGED if slower else 0.0
    return Outcome(wrong * share, gate * share, found_pct, 100 * (flags - right) / max(flags, 1))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=300)
    options = parser.parse_args(arguments)
    print(f"{options.worlds} worlds of {KERNELS} kernels, seed {SEED}; {CHANGED} kernels are slower.\n")
    print("| runs a side | order | slower by | unchanged, flagged | gate says changed | changes found | false |")
    print("|---|---|---|---|---|---|---|")
    missed, began = False, time.perf_counter()
    cases = [(runs, 0.0, True) for runs in (3, 5, 10)] + [(runs, 0.0, False) for runs in (3, 5, 10)]
    cases += [(runs, slower, True) for runs in (3, 5, 10) for slower in (0.03, 0.05, 0.1)]
    for runs, slower, interleaved in cases:
        out = simulate(runs, options.worlds, slower=slower, interleaved=interleaved)
        how = "in turns" if interleaved else "one side after the other"
        flags = f" | {out.found_pct:.0f} % | {out.false_pct:.1f} % |" if slower else f"{out.wrong_pct:.1f} %"
        shown = f" | {out.gate_pct:.1f} %{flags}" if slower else f"{flags} | {out.gate_pct:.1f} % | | |"
        print(f"| {runs} | {how} | {100 * slower:g} % | {shown}", flush=True)
        is_noisy = not slower and interleaved and out.wrong_pct > CALM_PCT
        missed |= is_noisy or (slower == 0.05 and out.found_pct < FOUND_PCT.get(runs, 0.0))
    print("\n| runs a side | order | the CPU is slower by | copies more | green | inconclusive | red | improved |")
    print("|---|---|---|---|---|---|---|---|")
    for runs, slower, copies, interleaved in (
        *((runs, 0.0, 0.0, interleaved) for runs in (3, 5, 10) for interleaved in (True, False)),
        *((runs, slower, 0.0, True) for runs in (3, 5, 10) for slower in (0.03, 0.07, 0.1)),
        *((runs, 0.0, 1.0, True) for runs in (3, 5)),
    ):
        decided = gates(runs, options.worlds, slower=slower, copies=copies, interleaved=interleaved)
        green, open_, red, better = (
            100 * decided[name] / options.worlds for name in ("green", "open", "red", "better")
        )
        how = "in turns" if interleaved else "one side after the other"
        shown = " | ".join(f"{share:.1f} %" for share in (green, open_, red, better))
        print(f"| {runs} | {how} | {100 * slower:g} % | {copies:g} | {shown} |", flush=True)
        missed |= not slower and not copies and (green < GREEN_PCT.get(runs, 0.0) or red + better > WRONG_PCT)
        missed |= bool(copies) and red < RED_PCT
        missed |= slower >= 0.1 and green > MISSED_PCT
    print(f"\n{time.perf_counter() - began:.0f} s")
    if missed:
        raise SystemExit("a goal was missed")


if __name__ == "__main__":
    main()
