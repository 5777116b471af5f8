"""Where in the program CUDA calls were made: the range around each, repetitions of it taken together."""

from typing import Any, Final

import numpy as np
import pandas as pd

from pipeline.analyze.api import api_name
from pipeline.analyze.ranges import nested, owners, without_numbers
from pipeline.analyze.timeline import Timeline
from pipeline.intervals import Ints
from pipeline.tables import categorical, empty, nest, renamed

OUTSIDE: Final = "(no range)"
"""The path of what was called inside no range, and of everything where ranges were not traced."""
NOT_RECORDED: Final = "(not recorded)"
"""The function of GPU work whose call is not in the capture."""


def call_names(timeline: Timeline, call: Ints) -> "pd.Categorical[Any]":
    """Return the function of each call (a row in api_calls, or -1: NOT_RECORDED), without its version."""
    names = renamed(timeline.profile.table("api_calls")["name"], api_name)
    values = np.append(names.categories.to_numpy(dtype=object), NOT_RECORDED)
    return categorical(values, np.where(call >= 0, np.append(names.codes, 0)[call], len(names.categories)))


def call_paths(timeline: Timeline, call: Ints) -> "pd.Categorical[Any]":
    """Return the path of the range that each call was made in, by the rule that gives GPU work to ranges.

    Ranges that differ only by a number in their name are repetitions of one: `iteration 7` is `iteration #`.
    """
    ranges = timeline.profile.tables.get("ranges", empty("ranges"))
    known = np.flatnonzero(call >= 0)
    if not len(ranges) or not len(known):
        return categorical(np.array([OUTSIDE]), np.zeros(len(call), dtype=np.int64))
    ranges, calls = nested(ranges), timeline.profile.table("api_calls")
    thread, process, start = (calls[column].to_numpy()[call[known]] for column in ("thread", "process", "start_ns"))
    by_thread, by_process = owners(ranges, thread, process, start)
    row = np.full(len(call), -1, dtype=np.int64)
    row[known] = np.where(by_thread >= 0, by_thread, by_process)
    paths = ranges["path"].cat
    codes = np.where(row >= 0, paths.codes.to_numpy()[row], len(paths.categories))
    values = without_numbers(paths.categories).to_numpy(dtype=object)
    return categorical(np.append(values, OUTSIDE), codes)


def outermost(timeline: Timeline, call: Ints) -> Ints:
    """Leave out calls made inside another of `call` on the same thread: the driver's, inside the runtime's."""
    calls = timeline.profile.table("api_calls")[["thread", "start_ns", "end_ns", "layer", "name"]].iloc[call]
    # of two with the same times the runtime's is the outer one
    calls = calls.assign(call=call).sort_values(["layer", "name"], ascending=[False, True], kind="stable")
    spans = nest(calls)
    return np.sort(spans["call"].to_numpy()[spans["parent"].to_numpy() < 0])
