"""Which part of a capture is summed up: `--filter-time` and `--filter-nvtx`, in nsys's own words."""

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
_TIME_HINT: Final = "write START/END in ns or with units: 1.5s/2s, 300ms/, /1m30s"


@dataclass(frozen=True)
class Window:
    """A span of time, its ends included, of all threads or of one; without a bound it reaches as far as int64 does."""

    start_ns: int = -(1 << 63)
    end_ns: int = (1 << 63) - 1
    thread: int | None = None


def time_window(text: str) -> Window:
    """Read `[START]/[END]` as nsys does; UsageError if it is none."""
    start, slash, end = text.partition("/")
    if not slash or not start + end:
        raise UsageError(f"{text!r} is no span of time", _TIME_HINT)
    bounds = {"start_ns": start, "end_ns": end}
    window = Window(**{bound: _nanoseconds(part, text) for bound, part in bounds.items() if part})
    if window.start_ns > window.end_ns:
        raise UsageError(f"{text!r} ends before it starts", _TIME_HINT)
    return window


def range_window(profile: Profile, text: str) -> Window:
    """Return the span of the range `NAME[@DOMAIN][/INDEX]`: the first of that name, or the one at INDEX from 0.

    Without a domain it is one of the default domain; a backslash keeps @ and / as they are. A range of another thread
    than a process's main one is about that thread alone. UsageError if there is no such range.
    """
    found = _NVTX.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no range", "write NAME[@DOMAIN][/INDEX], with \\@ and \\/ inside names")
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
    """Keep what lies in the window at least in part, whole as it is; what has no end is kept wherever it lies.

    Operations of the GPU and page faults belong to no thread.
    """
    tables = {name: _inside(table, window) for name, table in profile.tables.items()}
    if "ranges" in tables:
        tables["ranges"] = _with_known_domains(tables["ranges"], window)
    return replace(profile, tables=tables)


def _with_known_domains(ranges: pd.DataFrame, window: Window) -> pd.DataFrame:
    """Drop the names of domains that were created outside of the window: NVIDIA does not see the rows that do it."""
    known = ranges["domain_start_ns"].between(window.start_ns, window.end_ns).fillna(value=False).to_numpy(dtype=bool)
    names = ranges["domain"].astype("str").where(known, "")
    return ranges.assign(domain=names.astype("category"))


def _inside(table: pd.DataFrame, window: Window) -> pd.DataFrame:
    if "end_ns" not in table:
        return table
    # a range that never ended has no end in the capture, and NVIDIA takes it for a point
    end = table["end_ns"].mask(table["is_open"], table["start_ns"]) if "is_open" in table else table["end_ns"]
    kept = (table["start_ns"] <= window.end_ns) & (end >= window.start_ns)
    if window.thread is not None and "thread" in table:
        kept &= table["thread"] == window.thread
    return table[kept].reset_index(drop=True)


def _nanoseconds(text: str, whole: str) -> int:
    if not _TIME.fullmatch(text):
        raise UsageError(f"{whole!r} is no span of time", _TIME_HINT)
    total = 0
    for number, unit in re.findall(_PART, text):
        if unit not in _UNITS_NS:
            raise UsageError(f"{whole!r} has an unknown unit {unit!r}", _TIME_HINT)
        size = _UNITS_NS[unit]
        total += int(number) * size if number.lstrip("+-").isdigit() else round(float(number) * size)
    return total


def _known(ranges: pd.DataFrame) -> str:
    distinct = ranges[["name", "domain"]].drop_duplicates().head(8).astype("str")
    names = [f"{name}@{domain}" if domain else name for name, domain in distinct.itertuples(index=False)]
    return f"ranges of this capture: {', '.join(names)}" if names else "this capture has no ranges"
