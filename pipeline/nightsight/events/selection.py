"""Parses parts of a capture on the command line: spans of time and ranges, in the syntax of nsys."""

import math
import re
from typing import Final

import pandas as pd

from nightsight.errors import UsageError

TIME_HINT: Final = "Use START/END in ns or with units: 1.5s/2s, 300ms/, /1m30s"
RANGE_HINT: Final = "Use NAME[@DOMAIN][/FIRST:LAST], counted from 0, with \\@ and \\/ inside names."
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
_RANGE: Final = re.compile(
    r"(?P<name>(?:\\.|[^@\\])*?)(?:@(?P<domain>(?:\\.|[^\\])*?))?(?:(?<!\\)/(?P<first>\d+)(?::(?P<last>\d+))?)?"
)
_MOST_NAMED: Final = 8


def span_of(text: str) -> tuple[int | None, int | None]:
    """Parse `[START]/[END]` like nsys: times in ns, None for a bound that is left out; UsageError if it is invalid."""
    start, slash, end = text.partition("/")
    if not slash or not start + end:
        raise UsageError(f"{text!r} is not a span of time", TIME_HINT)
    low, high = (_nanoseconds(part, text) if part else None for part in (start, end))
    return low, high


def as_span(text: str) -> tuple[int | None, int | None] | None:
    """Parse a span of time; None if the text does not look like one, so that it names a range."""
    start, slash, end = text.partition("/")
    if not slash or not start + end or not all(_is_time(part) for part in (start, end) if part):
        return None
    return span_of(text)


def as_range(text: str) -> tuple[str, str, int | None, int | None]:
    """Parse `NAME[@DOMAIN][/FIRST[:LAST]]`: name, domain, and the numbers or None; a backslash escapes @ and /.

    UsageError if it is invalid.
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a valid range", RANGE_HINT)
    name, domain = (re.sub(r"\\(.)", r"\1", match[part] or "") for part in ("name", "domain"))
    first, last = (int(match[part]) if match[part] else None for part in ("first", "last"))
    return name, domain, first, last


def instances(ranges: pd.DataFrame, name: "str | pd.Index[str]", domain: str) -> pd.DataFrame:
    """Return the ranges with a name, or one of several, in order of their start; "" is the default domain."""
    is_named = ranges["name"] == name if isinstance(name, str) else ranges["name"].isin(name)
    of_domain: pd.DataFrame = ranges[is_named & (ranges["domain"] == domain)].sort_values("start_ns", kind="stable")
    return of_domain


def known_ranges(ranges: pd.DataFrame) -> str:
    """Return a hint that lists the first ranges of a capture."""
    distinct = ranges[["name", "domain"]].drop_duplicates().head(_MOST_NAMED).astype("str")
    names = [f"{name}@{domain}" if domain else name for name, domain in distinct.itertuples(index=False)]
    return f"Ranges of this capture: {', '.join(names)}" if names else "This capture has no ranges."


def _is_time(text: str) -> bool:
    return bool(_TIME.fullmatch(text)) and all(unit in _UNITS_NS for _, unit in re.findall(_PART, text))


def _nanoseconds(text: str, whole: str) -> int:
    if not _TIME.fullmatch(text):
        raise UsageError(f"{whole!r} is not a span of time", TIME_HINT)
    total = 0
    for number, unit in re.findall(_PART, text):
        if unit not in _UNITS_NS:
            raise UsageError(f"{whole!r} has an unknown unit {unit!r}", TIME_HINT)
        size = _UNITS_NS[unit]
        if number.lstrip("+-").isdigit():
            total += int(number) * size
        elif math.isinf(time := float(number) * size):
            raise UsageError(f"{whole!r} is not a span of time", TIME_HINT)
        else:
            total += round(time)
    return total
