"""Locates CUDA calls in the program: the path of the range around each, the same for all repetitions of the range."""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.ranges.owners import owners_of
from nightsight.events.ranges import nested_ranges, without_numbers
from nightsight.events.timeline import Timeline, function_names
from nightsight.intervals import Ints
from nightsight.tables import categorical, nest, nullable_integers

OUTSIDE: Final = "(no range)"
"""The path of calls outside all ranges, and of all calls if ranges were not traced."""
NOT_RECORDED: Final = "(not recorded)"
"""The function of GPU work whose call was not recorded."""


def call_names(timeline: Timeline, call: Ints) -> "pd.Categorical[Any]":
    """Return the function of each call (a row in api_calls) without its version; NOT_RECORDED for -1."""
    names = function_names(timeline)
    values = np.append(names.categories.to_numpy(dtype=object), NOT_RECORDED)
    return categorical(values, np.where(call >= 0, np.append(names.codes, 0)[call], len(names.categories)))


def call_paths(timeline: Timeline, call: Ints) -> "pd.Categorical[Any]":
    """Return the path of the range that each call was made in; OUTSIDE if there is none, and for -1.

    The range is the one that owns the call's GPU work (see `owners_of`). Ranges whose names differ only by a number
    are repetitions of one: `iteration 7` becomes `iteration #`.
    """
    paths, row = nested_ranges(timeline.profile)["path"].cat, owner_rows(timeline, call)
    codes = np.where(row >= 0, np.append(paths.codes, 0)[row], len(paths.categories))
    values = without_numbers(paths.categories).to_numpy(dtype=object)
    return categorical(np.append(values, OUTSIDE), codes)


def call_pids(timeline: Timeline, call: Ints) -> "pd.Series[Any]":
    """Return the process ID of each call (a row in api_calls), missing for -1."""
    pids = timeline.profile.recorded("api_calls")["pid"].to_numpy(dtype=np.float64)
    return nullable_integers(np.append(pids, np.nan)[call])


def owner_rows(timeline: Timeline, call: Ints) -> Ints:
    """Return the row in `nested_ranges` of the range that each call was made in, -1 for none."""
    row, with_call = np.full(len(call), -1, dtype=np.int64), np.flatnonzero(call >= 0)
    if len(with_call):
        row[with_call] = owners_of(timeline, call[with_call])[0]
    return row


def outermost(timeline: Timeline, call: Ints) -> Ints:
    """Return `call` without those made inside another of them on the same thread: driver calls in runtime calls."""
    calls = timeline.profile.table("api_calls")[["thread", "start_ns", "end_ns", "layer", "name"]].iloc[call]
    # of two calls with the same times, the runtime's is the outer one: `nest` keeps this order
    calls = calls.assign(call=call).sort_values(["layer", "name"], ascending=[False, True], kind="stable")
    spans = nest(calls)
    return np.sort(spans["call"].to_numpy()[spans["parent"].to_numpy() < 0])
