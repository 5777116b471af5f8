"""Compilations of torch.compile: why each was needed, and how long the GPU was idle meanwhile."""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.timeline import Timeline, busy_spans
from nightsight.intervals import Ints, covered, union_of
from nightsight.results.program import COMPILATIONS
from nightsight.tables import aggregate

_KEYS: Final = ["function", "reason", "fix", "graph_break"]


def compilations(timeline: Timeline) -> Table:
    """Return one row per function and reason, the longest time first; only what began in the window."""
    table, window = timeline.profile.table("compilations"), timeline.window
    table = table[window.contains(table["start_ns"])]
    start, end = (table[name].to_numpy() for name in ("start_ns", "end_ns"))
    steps = window.repetitions
    step: Ints = np.searchsorted(steps, start, side="right") - 1
    frame = pd.DataFrame(
        {
            **{name: table[name].astype("str") for name in _KEYS},
            "time": end - start,
            "idle": end - start - covered(union_of(busy_spans(timeline).values()), start, end),
            "step": pd.Series(step, table.index).where(step >= 0),
        }
    )
    by_reason = aggregate(
        frame.groupby(_KEYS, observed=True),
        compilations=("time", "size"),
        total_ns=("time", "sum"),
        idle_ns=("idle", "sum"),
        steps=("step", "nunique"),
    ).reset_index()
    by_reason = by_reason.assign(of_steps=len(steps)).sort_values(
        ["total_ns", *_KEYS], ascending=[False, *[True] * len(_KEYS)]
    )
    by_reason = by_reason.rename(columns={"function": "name"}).reset_index(drop=True)
    return Table(by_reason[list(COMPILATIONS.column_names)])


ANALYSES: Final = (Analysis(COMPILATIONS, compilations),)
