"""`make simulate`: how often a comparison is wrong, in worlds of made-up noise. docs/statistics.md has the figures.

A world is a program of 400 kernels, run in turns (ABBA) on two sides. Its noise: each kernel's own, with a coefficient
of variation around 0.6 % and a long tail; one of the GPU's clock, shared by all kernels and similar from run to run; a
drift of 1 % during the session; and single kernels of single runs that are slower for no reason.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nightsight.compare import Settings, compare
from nightsight.comparison import MEASURES, Comparison, Measures
from nightsight.model import Environment

KERNELS = 400
SEED = 20261122
CHANGED = 20
CALM_PCT, FOUND_PCT = 3.0, {3: 70.0, 5: 85.0}


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
    wrong = gate = found = flags = 0
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
        found += len(hits & names)
        flags += len(hits)
    share = 100 / worlds
    found_pct = found * share / CHANGED if slower else 0.0
    return Outcome(wrong * share, gate * share, found_pct, 100 * (flags - found) / max(flags, 1))


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
    print(f"\n{time.perf_counter() - began:.0f} s")
    if missed:
        raise SystemExit("a goal was missed")


if __name__ == "__main__":
    main()
