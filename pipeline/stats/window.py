"""Which part of a capture is summed up: `--filter-time` and `--filter-nvtx`, in nsys's own words."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pandas as pd

from pipeline.errors import UsageError
from pipeline.model import Profile

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
_TIME_HINT: Final = "write START/END in ns or with units (1.5s/2s, 300ms/, /1m30s); a : at an end lets events cross it"


@dataclass(frozen=True)
class Window:
    """A span of time, and whether an event may begin before it or end after it."""

    start_ns: int | None = None
    end_ns: int | None = None
    cross_start: bool = False
    cross_end: bool = False


def time_window(text: str) -> Window:
    """Read `[:][START]/[END][:]` as nsys does; UsageError if it is none."""
    start, slash, end = text.removeprefix(":").removesuffix(":").partition("/")
    if not slash or not start + end:
        raise UsageError(f"{text!r} is no span of time", _TIME_HINT)
    low, high = (_nanoseconds(part, text) if part else None for part in (start, end))
    if low is not None and high is not None and low > high:
        raise UsageError(f"{text!r} ends before it starts", _TIME_HINT)
    return Window(low, high, cross_start=text.startswith(":"), cross_end=text.endswith(":"))


def range_window(profile: Profile, text: str) -> Window:
    """Return the span of the range `NAME[@DOMAIN][/INDEX]`: the first of that name, or the one at INDEX from 0.

    Without a domain it is one of the default domain, `@*` is any; a backslash keeps @ and / as they are. UsageError
    if there is no such range.
    """
    found = _NVTX.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no range", "write NAME[@DOMAIN][/INDEX], with \\@ and \\/ inside names")
    name, domain = (re.sub(r"\\(.)", r"\1", found[part] or "") for part in ("name", "domain"))
    ranges = profile.table("ranges")
    mine = ranges["name"] == name
    if domain != "*":
        mine &= ranges["domain"] == domain
    instances = ranges[mine].sort_values("start_ns", kind="stable")
    index = int(found["index"] or 0)
    if index >= len(instances):
        counted = f"only {len(instances)} of them" if len(instances) else "none of that name"
        raise UsageError(f"no range {text!r} in this capture: {counted}", _known(ranges))
    start, end = instances.iloc[index][["start_ns", "end_ns"]]
    return Window(int(start), int(end))


def narrowed(profile: Profile, window: Window) -> Profile:
    """Keep the events inside the window; one that crosses its edge only if the window says so."""
    return replace(profile, tables={name: _inside(table, window) for name, table in profile.tables.items()})


def _inside(table: pd.DataFrame, window: Window) -> pd.DataFrame:
    times = [column for column in ("time_ns", "start_ns", "end_ns") if column in table]
    if not times:
        return table
    first, last = times[0], times[-1]
    kept = pd.Series(data=True, index=table.index)
    if window.start_ns is not None:
        kept &= table[last if window.cross_start else first] >= window.start_ns
    if window.end_ns is not None:
        kept &= table[first if window.cross_end else last] <= window.end_ns
    return table[kept].reset_index(drop=True)


def _nanoseconds(text: str, whole: str) -> int:
    if not _TIME.fullmatch(text):
        raise UsageError(f"{whole!r} is no span of time", _TIME_HINT)
    return sum(_parts(text, whole))


def _parts(text: str, whole: str) -> Iterator[int]:
    for number, unit in re.findall(_PART, text):
        if unit not in _UNITS_NS:
            raise UsageError(f"{whole!r} has an unknown unit {unit!r}", _TIME_HINT)
        yield int(number) * _UNITS_NS[unit] if number.lstrip("+-").isdigit() else round(float(number) * _UNITS_NS[unit])


def _known(ranges: pd.DataFrame) -> str:
    distinct = ranges[["name", "domain"]].drop_duplicates().head(8).astype("str")
    names = [f"{name}@{domain}" if domain else name for name, domain in distinct.itertuples(index=False)]
    return f"ranges of this capture: {', '.join(names)}" if names else "this capture has no ranges"
