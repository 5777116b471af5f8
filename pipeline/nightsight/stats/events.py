"""Joins that several reports share: the calls that launched GPU operations, and the ranges around these calls."""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from nightsight.errors import CaptureError
from nightsight.intervals import Ints, contained
from nightsight.model.report import Profile
from nightsight.system.parallel import memoize
from nightsight.tables import Frame, combined, duration, levels

NameColumn = Literal["name", "short_name", "mangled_name"]

_BOUNDS: Final = ("start_ns", "end_ns")
# more pairs of ranges and events take more than 3 GB and half a minute
_MOST_PAIRS: Final = 60_000_000


@dataclass(frozen=True)
class Options:
    """The arguments of a report: which kernel names, whether to prefix them with their range, how many rows."""

    names: NameColumn = "name"
    nvtx_name: bool = False
    rows: int = 10


class Joins:
    """The joins of one profile, each computed on first use; other threads wait for the result."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    @property
    @memoize
    def operations(self) -> Frame:
        """Kernels, then copies and memsets: times, process and correlation id."""
        columns = ["start_ns", "end_ns", "process", "correlation"]
        return pd.concat([self.profile.table(name)[columns] for name in ("kernels", "memory_ops")], ignore_index=True)

    @property
    @memoize
    def launches(self) -> tuple[Ints, Ints]:
        """Every pair (row of `operations`, row of api_calls) with equal process and correlation id, by operation."""
        return _pairs(self.operations, self.profile.table("api_calls"))

    @property
    @memoize
    def kernel_launches(self) -> tuple[Ints, Ints]:
        """Every pair (row of kernels, row of api_calls) with equal process and correlation id, by kernel."""
        operation, call = self.launches
        is_kernel = operation < len(self.profile.table("kernels"))
        return operation[is_kernel], call[is_kernel]

    @property
    @memoize
    def ranges(self) -> Frame:
        """Ranges that began and ended on one thread, with the columns that `nested` adds."""
        ranges = self.profile.table("ranges")
        return nested(ranges[ranges["end_thread"].isna()])

    @property
    @memoize
    def launches_in_ranges(self) -> tuple[Ints, Ints]:
        """Every pair (row of `ranges`, position in `launches`) whose call lies inside the range on the same thread."""
        calls = self.profile.table("api_calls").take(self.launches[1])
        order = calls["start_ns"].to_numpy().argsort(kind="stable")
        calls = calls[["thread", "start_ns", "end_ns"]].take(order)
        span, event = pairs_inside(self.ranges, calls)
        return span, order[event]

    @property
    @memoize
    def innermost(self) -> Ints:
        """The row in `ranges` of the shortest range around the launch of each kernel, or -1."""
        span, launch = self.launches_in_ranges
        operation = self.launches[0][launch]
        length = duration(self.ranges).to_numpy()[span]
        innermost = np.full(len(self.operations), -1, dtype=np.int64)
        longest_first = np.lexsort((span, -length))
        innermost[operation[longest_first]] = span[longest_first]
        return innermost[: len(self.profile.table("kernels"))]


@dataclass(frozen=True)
class StatsEvents:
    """The events of a capture as one report sees them: the shared joins and its own options."""

    joins: Joins
    options: Options = field(default_factory=Options)

    def table(self, name: str) -> Frame:
        """Return a canonical table; MissingTable with the reason if it was not captured."""
        return self.joins.profile.table(name)

    @property
    def kernel_names(self) -> "pd.Series[Any]":
        """The name of each kernel in the requested form; demangled if that form was not recorded."""
        kernels = self.table("kernels")
        names = kernels[self.options.names]
        if names.isna().all():
            names = kernels["name"]
        return _with_ranges(names, self.joins) if self.options.nvtx_name else names


def nested(ranges: Frame) -> Frame:
    """Sort ranges by start; add `range` (full name), `parent` (row or -1) and `level` to each.

    The parent is the shortest enclosing range on the same thread. A range that never ended is cut at the last start or
    end of a range, not at the last NVTX event of any kind.
    """
    last = max(ranges["start_ns"].max(), ranges["end_ns"][~ranges["is_open"]].max()) if len(ranges) else 0
    end = ranges["end_ns"].mask(ranges["is_open"], last)
    number = ranges["number"].fillna(pd.Series(np.arange(len(ranges)) + 1, index=ranges.index))
    ranges = ranges.assign(end_ns=end, range=full_names(ranges), number=number).sort_values("start_ns", kind="stable")
    ranges = ranges.reset_index(drop=True)
    parent = _parents(ranges)
    return ranges.assign(parent=parent, level=levels(parent))


def pairs_inside(ranges: Frame, events: Frame) -> tuple[Ints, Ints]:
    """Return every pair (row of `ranges`, row of `events`) where the event lies inside the range on its thread.

    `events` must be sorted by start. CaptureError if there are too many pairs: each event counts in all ranges around
    it, so their number grows with the depth of ranges times the number of events.
    """
    rows_of_events = events.groupby("thread").indices
    count = 0
    range_rows, event_rows = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for thread, rows in ranges.groupby("thread").indices.items():
        at_ranges, at_events = (np.asarray(part, dtype=np.int64) for part in (rows, rows_of_events.get(thread, ())))
        start, end = (ranges[bound].to_numpy()[at_ranges] for bound in _BOUNDS)
        event_start, event_end = (events[bound].to_numpy()[at_events] for bound in _BOUNDS)
        first, last = np.searchsorted(event_start, start), np.searchsorted(event_start, end, side="right")
        count += int((last - first).sum())
        if count > _MOST_PAIRS:
            raise CaptureError(
                "ranges are nested too deeply for this table, which counts each event in every range around it",
                "For ranges of any depth: nightsight report",
            )
        span, event = contained(start, end, event_start, event_end)
        range_rows.append(at_ranges[span])
        event_rows.append(at_events[event])
    return np.concatenate(range_rows), np.concatenate(event_rows)


def full_names(ranges: Frame) -> "pd.Categorical[Any]":
    """Return the names of ranges like NVIDIA: `domain:name`, or `:name` in the default domain."""
    return combined([ranges["domain"], ranges["name"]], "{}:{}".format)


def _pairs(operations: Frame, calls: Frame) -> tuple[Ints, Ints]:
    """Join on process and correlation id, either of which may be missing, without copying other columns."""
    rows = [np.flatnonzero(frame["process"].notna() & frame["correlation"].notna()) for frame in (operations, calls)]
    process, correlation = (
        [
            frame[name].to_numpy(dtype=np.int64, na_value=0)[of_frame]
            for frame, of_frame in zip((operations, calls), rows, strict=True)
        ]
        for name in ("process", "correlation")
    )
    # one integer key per (correlation id, process), for operations and calls alike
    codes, distinct = pd.factorize(np.concatenate(process))
    keys = np.concatenate(correlation) * max(len(distinct), 1) + codes
    left, right = np.split(keys, [len(rows[0])])
    order = right.argsort(kind="stable")
    low, high = (np.searchsorted(right[order], left, side=side) for side in ("left", "right"))
    count = high - low
    # repeat each operation for every call with its key
    first = np.repeat(np.cumsum(count) - count, count)
    position = np.repeat(low, count) + np.arange(len(first)) - first
    return np.repeat(rows[0], count), rows[1][order[position]]


def _parents(ranges: Frame) -> Ints:
    """Return for each range the row of the shortest range around it, or -1; of equal ranges, the first is outside.

    Ranges must be sorted by start.
    """
    outer, inner = pairs_inside(ranges, ranges)
    length = duration(ranges).to_numpy()
    is_around = (length[outer] > length[inner]) | ((length[outer] == length[inner]) & (outer < inner))
    outer, inner = outer[is_around], inner[is_around]
    longest_first = np.lexsort((outer, -length[outer]))
    parent = np.full(len(ranges), -1, dtype=np.int64)
    parent[inner[longest_first]] = outer[longest_first]
    return parent


def _with_ranges(names: "pd.Series[Any]", joins: Joins) -> "pd.Series[Any]":
    """Prefix kernel names with the innermost range around their launch, if there is one."""
    row, ranges = joins.innermost, joins.ranges["name"].cat
    # the code after the last range is that of no range
    codes = np.append(ranges.codes.to_numpy(dtype=np.int64), -1)[row]
    prefixes = pd.Series(pd.Categorical.from_codes(codes, ranges.categories + "/"))
    return pd.Series(combined([prefixes, names], "{}{}".format), index=names.index)
