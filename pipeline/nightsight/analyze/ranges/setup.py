"""Setup calls that should come before the window: module loading, compilation, allocation and free."""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.ranges.callers import call_names, call_paths, outermost
from nightsight.analyze.ranges.steps import step_columns
from nightsight.analyze.split import causing_calls
from nightsight.events.timeline import Timeline
from nightsight.results.categories import ALLOCATION, IDLE, MODULE
from nightsight.results.program import SETUP_CALLS
from nightsight.tables import aggregate

_KEYS: Final = ["kind", "name", "path", "pid"]


def setup_calls(timeline: Timeline) -> Table:
    """Return the setup calls that began in the window: one row per kind, function, range path and process; ns."""
    calls = causing_calls(timeline)
    causes = np.array([IDLE.index(MODULE), IDLE.index(ALLOCATION)])
    is_in_window = timeline.window.contains(calls.start)
    call = outermost(timeline, np.flatnonzero(np.isin(calls.cause, causes) & is_in_window))
    frame = pd.DataFrame(
        {
            "kind": pd.Categorical(np.array(IDLE)[calls.cause[call]]),
            "name": call_names(timeline, call),
            "path": call_paths(timeline, call),
            "pid": timeline.profile.table("api_calls")["pid"].to_numpy()[call],
            "cpu": calls.end[call] - calls.start[call],
            **step_columns(timeline, call),
        }
    )
    table = aggregate(
        frame.groupby(_KEYS, observed=True),
        calls=("cpu", "size"),
        total_ns=("cpu", "sum"),
        max_ns=("cpu", "max"),
        steps=("step", "nunique"),
        of_steps=("of_steps", "max"),
    ).reset_index()
    table = table.sort_values(["total_ns", *_KEYS], ascending=[False, *([True] * len(_KEYS))], ignore_index=True)
    return Table(table[["calls", "total_ns", "max_ns", "steps", "of_steps", *_KEYS]].astype({"path": "str"}))


ANALYSES: Final = (Analysis(SETUP_CALLS, setup_calls),)
