"""The filters `--filter-time` and `--filter-nvtx`, with the syntax and meaning of nsys."""

import math
import re
from dataclasses import dataclass, replace
from typing import Final

import pandas as pd

from nightsight.errors import UsageError
from nightsight.model import Profile

_UNITS_NS: Final = {
    **dict.fromkeys(("", "ns", "nsec"), 1),
    **dict.fromkeys(("us", "usec"), 10**3),
    **dict.fromkeys(("ms", "msec"), 10**6),
    **dict.fromkeys(("s", "sec"), 10**9),
    **dict.fromkeys(("m", "min"), 60 * 10**9),
    **dict.fromkeys(("h", "hour"), 3600 * 10**9),
}
_PART: Final = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)([a-z]*)"
_TIME: Final = re.compile(f"(?:{_PART})+")
_NVTX: Final = re.compile(r"(?P<name>(?:\\.|[^@\\])*?)(?:@(?P<domain>(?:\\.|[^\\])*?))?(?:(?<!\\)/(?P<index>\d+))?")
_TIME_HINT: Final = "Use START/END in ns or with units: 1.5s/2s, 300ms/, /1m30s"


@dataclass(frozen=True)
class Window:
    """A time span in ns, including both ends, of all threads or of one; by default without bounds."""

    start_ns: int = -(1 << 63)
    end_ns: int = (1 << 63) - 1
    thread: int | None = None


def time_window(text: str) -> Window:
    """Parse `[START]/[END]` like nsys; UsageError if it is invalid."""
    start, slash, end = text.partition("/")
    if not slash or not start + end:
        raise UsageError(f"{text!r} is not a span of time", _TIME_HINT)
    bounds = {"start_ns": start, "end_ns": end}
    window = Window(**{bound: _nanoseconds(part, text) for bound, part in bounds.items() if part})
    if window.start_ns > window.end_ns:
        raise UsageError(f"{text!r} ends before it starts", _TIME_HINT)
    return window


def range_window(profile: Profile, text: str) -> Window:
    """Return the span of the range `NAME[@DOMAIN][/INDEX]`: the first of that name, or the one at INDEX, from 0.

    Without DOMAIN, it is in the default domain; a backslash escapes @ and /. If the range is not on the main thread of
    its process, the window covers only its thread. UsageError if there is no such range.
    """
    found = _NVTX.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is not a valid range", "Use NAME[@DOMAIN][/INDEX], with \\@ and \\/ inside names.")
    name, domain = (re.sub(r"\\(.)", r"\1", found[part] or "") for part in ("name", "domain"))
    ranges = profile.table("ranges")
    instances = ranges[(ranges["name"] == name) & (ranges["domain"] == domain)].sort_values("start_ns", kind="stable")
    index = int(found["index"] or 0)
    if index >= len(instances):
        counted = f"only {len(instances)} of them" if len(instances) else "none of that name"
        raise UsageError(f"no range {text!r} in this capture: {counted}", _known(ranges))
    start, end, thread, pid, tid = map(int, instances.iloc[index][["start_ns", "end_ns", "thread", "pid", "tid"]])
    return Window(start, end, None if tid == pid else thread)


def narrowed(profile: Profile, window: Window) -> Profile:
    """Keep the events that overlap the window, in full length; tables without end times are kept whole.

    GPU operations and page faults do not belong to a thread, so a window of one thread keeps those of all.
    """
    tables = {name: _inside(table, window) for name, table in profile.tables.items()}
    if "ranges" in tables:
        tables["ranges"] = _with_known_domains(tables["ranges"], window)
    return replace(profile, tables=tables)


def _with_known_domains(ranges: pd.DataFrame, window: Window) -> pd.DataFrame:
    """Drop the names of domains that were created outside the window: NVIDIA does not see the rows that create them."""
    known = ranges["domain_start_ns"].between(window.start_ns, window.end_ns).fillna(value=False).to_numpy(dtype=bool)
    names = ranges["domain"].astype("str").where(known, "")
    return ranges.assign(domain=names.astype("category"))


def _inside(table: pd.DataFrame, window: Window) -> pd.DataFrame:
    if "end_ns" not in table:
        return table
    # NVIDIA treats a range that never ended as a point
    end = table["end_ns"].mask(table["is_open"], table["start_ns"]) if "is_open" in table else table["end_ns"]
    kept = (table["start_ns"] <= window.end_ns) & (end >= window.start_ns)
    if window.thread is not None and "thread" in table:
        kept &= table["thread"] == window.thread
    return table[kept].reset_index(drop=True)


def _nanoseconds(text: str, whole: str) -> int:
    if not _TIME.fullmatch(text):
        raise UsageError(f"{whole!r} is not a span of time", _TIME_HINT)
    total = 0
    for number, unit in re.findall(_PART, text):
        if unit not in _UNITS_NS:
            raise UsageError(f"{whole!r} has an unknown unit {unit!r}", _TIME_HINT)
        size = _UNITS_NS[unit]
        if number.lstrip("+-").isdigit():
            total += int(number) * size
        elif math.isinf(time := float(number) * size):
            raise UsageError(f"{whole!r} is not a span of time", _TIME_HINT)
        else:
            total += round(time)
    return total


def _known(ranges: pd.DataFrame) -> str:
    distinct = ranges[["name", "domain"]].drop_duplicates().head(8).astype("str")
    names = [f"{name}@{domain}" if domain else name for name, domain in distinct.itertuples(index=False)]
    return f"Ranges of this capture: {', '.join(names)}" if names else "This capture has no ranges."
