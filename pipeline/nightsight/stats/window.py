"""The filters `--filter-time` and `--filter-nvtx`, with the syntax and meaning of nsys."""

from dataclasses import dataclass, replace

import pandas as pd

from nightsight.errors import UsageError
from nightsight.events.selection import TIME_HINT, as_range, instances, known_ranges, span_of
from nightsight.model.report import Profile


@dataclass(frozen=True)
class TimeWindow:
    """A time span in ns, including both ends, of all threads or of one; by default without bounds."""

    start_ns: int = -(1 << 63)
    end_ns: int = (1 << 63) - 1
    thread: int | None = None


def time_window(text: str) -> TimeWindow:
    """Parse `[START]/[END]` like nsys; UsageError if it is invalid."""
    bounds = dict(zip(("start_ns", "end_ns"), span_of(text), strict=True))
    window = TimeWindow(**{bound: time for bound, time in bounds.items() if time is not None})
    if window.start_ns > window.end_ns:
        raise UsageError(f"{text!r} ends before it starts", TIME_HINT)
    return window


def range_window(profile: Profile, text: str) -> TimeWindow:
    """Return the span of the range `NAME[@DOMAIN][/INDEX]`: the first of that name, or the one at INDEX, from 0.

    Without DOMAIN, it is in the default domain; a backslash escapes @ and /. If the range is not on the main thread of
    its process, the window covers only its thread. UsageError if there is no such range.
    """
    name, domain, first, last = as_range(text)
    if last is not None:
        raise UsageError(f"{text!r} is not a valid range", "Use NAME[@DOMAIN][/INDEX], with \\@ and \\/ inside names.")
    ranges = profile.table("ranges")
    matches, index = instances(ranges, name, domain), first or 0
    if index >= len(matches):
        count = f"only {len(matches)} of them" if len(matches) else "none of that name"
        raise UsageError(f"no range {text!r} in this capture: {count}", known_ranges(ranges))
    start, end, thread, pid, tid = map(int, matches.iloc[index][["start_ns", "end_ns", "thread", "pid", "tid"]])
    return TimeWindow(start, end, None if tid == pid else thread)


def narrowed(profile: Profile, window: TimeWindow) -> Profile:
    """Keep the events that overlap the window, in full length; tables without end times are kept whole.

    GPU operations and page faults do not belong to a thread, so a window of one thread keeps those of all.
    """
    tables = {name: _inside(table, window) for name, table in profile.tables.items()}
    if "ranges" in tables:
        ranges = tables["ranges"]
        # NVIDIA does not see the rows that created domains outside the window, so these have no names
        is_created = ranges["domain_start_ns"].between(window.start_ns, window.end_ns).fillna(value=False)
        domain = ranges["domain"].astype("str").where(is_created.to_numpy(dtype=bool), "")
        tables["ranges"] = ranges.assign(domain=domain.astype("category"))
    return replace(profile, tables=tables)


def _inside(table: pd.DataFrame, window: TimeWindow) -> pd.DataFrame:
    if "end_ns" not in table:
        return table
    # NVIDIA treats a range that never ended as a point
    end = table["end_ns"].mask(table["is_open"], table["start_ns"]) if "is_open" in table else table["end_ns"]
    is_inside = (table["start_ns"] <= window.end_ns) & (end >= window.start_ns)
    if window.thread is not None and "thread" in table:
        is_inside &= table["thread"] == window.thread
    return table[is_inside].reset_index(drop=True)
