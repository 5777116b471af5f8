"""Comparisons to render: of recorded captures with invented noise, and of names that try to break out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.compare import Settings, compare, measures
from nightsight.model.compare import CHANGES, MEASURES, Comparison, Decision, Difference, Measures
from nightsight.model.report import Conditions, Environment, Report
from tests.reports import HOSTILE

CAUSES: Final = ("rule", "name", "baseline_gain_pct", "candidate_gain_pct", "verdict", "title")
_NOISE: Final = 0.004
_NAN: Final = float("nan")


def runs(report: Report, side: str, *, count: int = 5, commit: str = "a1b2c3d", **fields: Any) -> tuple[Measures, ...]:
    """Return runs that measured a report, each with its own noise."""
    table, noise = measures(report).table, np.random.default_rng(len(side))
    made = []
    for order in range(count):
        factors = np.exp(noise.normal(0, _NOISE, len(table)))
        condition = Conditions(0, 1980.0, 1965.0, 2619.0, 44.0 + order, 512.0, samples=40, clock_policy="default")
        made.append(
            Measures(
                source=f"2026112{order}-0{order}0000",
                workload=report.title,
                table=table.assign(value=table["value"] * factors),
                environment=replace(report.environment, commit=commit),
                conditions=(condition,),
                window="steady part",
                family="step #",
                repetitions=20,
                started=f"2026-11-22T0{order}:00:00Z",
                series="ab",
                side=side,
                order=2 * order + (side == "candidate"),
                **fields,
            )
        )
    return tuple(made)


def changed(run: Measures, factors: Mapping[str, float], *, without: Sequence[str] = (), new: str = "") -> Measures:
    """Return a run in which some measures took longer, some are gone and one is new."""
    table = run.table[~run.table["name"].isin(without)]
    table = table.assign(value=table["value"] * table["name"].map(factors).fillna(1.0))
    if new:
        row = pd.DataFrame([{"kind": "kernel", "name": new, "count": 3.0, "value": 90_000.0}], columns=list(MEASURES))
        table = pd.concat([table, row], ignore_index=True)
    return replace(run, table=table)


def compared(baseline: Sequence[Measures], candidate: Sequence[Measures], **fields: Any) -> Comparison:
    """Compare two sides of runs."""
    return replace(compare(baseline, candidate, settings=Settings()), **fields)


def train_comparison(report: Report, **fields: Any) -> Comparison:
    """Compare a recorded run with one in which a kernel is slower, one is gone, one is new and the host is slower."""
    table = measures(report).table
    names = table.loc[table["kind"] == "kernel", "name"].tolist()
    factors = {
        names[0]: 1.3,
        names[1]: 0.9,
        "step_ns": 1.08,
        "unprofiled_step_ns": 1.09,
        "compute": 1.11,
        "host code": 1.4,
        "kernel_ns": 1.11,
    }
    new = "void at::native::vectorized_elementwise_kernel<4, gelu_functor<float>>(int, float*)"
    candidate = [
        changed(run, factors, without=names[2:3], new=new) for run in runs(report, "candidate", commit="f6e5d4c")
    ]
    rows = [
        ("sync", "loss.item", 0.0, 6.4, "added", "The CPU waits for the GPU in every step, in `loss.item`"),
        ("many_small_copies", "", 3.1, 0.0, "removed", "Many small copies from the host"),
    ]
    given: dict[str, Any] = {
        "causes": pd.DataFrame(rows, columns=list(CAUSES)),
        "differences": (
            Difference("driver", "570.86", "575.10", ("kernel", "step_ns")),
            Difference("GPU clocks of a run", "1980 MHz", "1965 MHz"),
        ),
        "sentence": "A wait for the GPU in every step appeared, in loss.item: a step takes 8.0 % longer [+7.5, +8.6].",
        "noise": "A/A: 0 of 14 comparisons of this workload on this machine were flagged in the last 30 nights.",
        "notes": ("The first pair was dropped: a run was throttled (SwPowerCap).",),
    }
    compared_ = compared(runs(report, "baseline"), candidate, **{**given, **fields})
    names_ = compared_.changes["name"]
    compared_.changes.loc[names_ == new, "note"] = f"fused from {names[2]}"
    return compared_


def hostile_comparison(names: Sequence[str] = HOSTILE, *, count: int = 3) -> Comparison:
    """Put hostile texts wherever a comparison can hold one."""
    kinds = ("gate", "kernel", "family", "range", "operator", "copy", "api")
    rows = [
        (
            kind,
            name,
            1e6 + place,
            2e6,
            100.0,
            90.0,
            110.0,
            110.0,
            name,
            0.01,
            False,
            verdict,
            _NAN,
            1.0,
            2.0,
            1e6,
            0.0,
            name,
        )
        for place, name in enumerate(names)
        for kind in kinds
        for verdict in ("regressed", "unchanged", "added")
    ]
    causes = pd.DataFrame([(name, name, 1.0, 2.0, "added", name) for name in names], columns=list(CAUSES))
    text = names[0] if names else ""
    environment = Environment(**dict.fromkeys(("gpu", "collector", "cpu", "driver", "commit", "cuda"), text))
    table = pd.DataFrame(columns=list(MEASURES))
    run = Measures(text, text, table, environment, {text: text}, window=text, started=text, family=text, repetitions=2)
    return Comparison(
        workload=text,
        baseline=(run,) * count,
        candidate=(replace(run, conditions=(Conditions(0, 1.0, throttled=(text,), mig=text, clock_policy=text),)),),
        changes=pd.DataFrame(rows, columns=list(CHANGES)),
        causes=causes,
        differences=tuple(Difference(name, name, name, (name, "kernel")) for name in names),
        verdict="regressed",
        sentence=" ".join(names),
        decision=Decision(1, text, tuple(names), tuple(names)),
        noise=text,
        notes=tuple(names),
    )
