"""Histories to test with: `nights(...)` makes the measures of a workload, night by night."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.history import HistoryRow, HistoryRows, row_of
from nightsight.model.compare import MEASURES, Measures
from nightsight.model.report import Conditions, Environment

FIRST: Final = dt.datetime(2026, 9, 1, 2, tzinfo=dt.UTC)
STEP: Final = 10e6
KERNELS: Final = ("gemm<float>(float*, int)", "reduce(float*)")


def measures(
    values: Mapping[str, float],
    *,
    workload: str = "mlp",
    night: int = 0,
    commit: str | None = None,
    kernels: Mapping[str, float] | None = None,
    conditions: tuple[Conditions, ...] = (),
    **environment: str,
) -> Measures:
    """Return what a run measured: gate metrics and kernels."""
    rows = [("gate", name, np.nan, value, np.nan, "") for name, value in values.items()]
    rows += [("kernel", name, 10.0, value, value / 10, "") for name, value in (kernels or {}).items()]
    time = FIRST + dt.timedelta(days=night)
    facts = {"gpu": "NVIDIA H200", "driver": "580.95.05", "cuda": "13.0", "collector": "nsys", **environment}
    return Measures(
        source=f"run{night}",
        workload=workload,
        table=pd.DataFrame(rows, columns=MEASURES),
        environment=Environment(**facts, commit=f"{night:07x}" * 4 if commit is None else commit),
        conditions=conditions,
        started=f"{time:%Y-%m-%dT%H:%M:%S}",
    )


def row(*runs: Measures, link: str = "") -> HistoryRow:
    return row_of(runs, link=link, now=FIRST)


def nights(
    count: int, factor: Callable[[int], float] = lambda _: 1.0, *, noise: float = 0.003, seed: int = 1, **facts: Any
) -> list[HistoryRow]:
    """Return a row of three runs for each night; the step and the first kernel take `factor(night)` times as long."""
    random = np.random.default_rng(seed)
    rows = []
    for night in range(count):
        runs = []
        for _ in range(3):
            step, *times = np.exp(random.normal(0, noise, 1 + len(KERNELS)))
            values = {"step_ns": STEP * factor(night) * step, "launches": 120.0}
            sizes = (0.5 * STEP * factor(night) * times[0], 0.3 * STEP * times[1])
            given = {name: each(night) if callable(each) else each for name, each in facts.items()}
            runs.append(measures(values, night=night, kernels=dict(zip(KERNELS, sizes, strict=True)), **given))
        rows.append(row(*runs))
    return rows


def of(*rows: Sequence[HistoryRow]) -> HistoryRows:
    return HistoryRows(tuple(sorted((row for each in rows for row in each), key=lambda row: row.time)))


def step_at(night: int, factor: float) -> Callable[[int], float]:
    return lambda at: factor if at >= night else 1.0
