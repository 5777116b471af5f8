"""The layers of a timeline: all events at some resolution, the exact events of one interval, or merged blocks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np

from nightsight.intervals import NOTHING, Codes, Flags, Ints
from nightsight.render.timeline.columns import Columns, columns
from nightsight.render.timeline.rows import TimelineEvents

# times of blocks are rounded to the merge interval divided by this
_SHARE: Final = 32
_SAMPLED: Final = 150_000


@dataclass(frozen=True)
class Spans:
    """The events of one layer, sorted by (row, start), one array entry each; times are quanta since the layer's begin.

    `bounds`: the first event of each row, and the end of the last row. `label`: frequent labels have small numbers.
    `launch`: the index of the call that launched each event, or -1. `count`: how many events each entry represents;
    None if one each. `collective`: the number of the collective of each event, or -1; None if there are none.
    """

    bounds: Ints
    start: Ints
    end: Ints
    label: Codes
    launch: Codes
    count: Ints | None = None
    collective: Ints | None = None

    def columns(self) -> Columns:
        """Pack the events as differences, which are small: times to the previous event of the row, and call indices."""
        before = np.append(0, self.end[:-1])
        # the first event of a row counts from the begin of the layer
        before[self.bounds[:-1][np.diff(self.bounds) > 0]] = 0
        values = {"gap": self.start - before, "duration": self.end - self.start, "label": self.label}
        if self.count is not None:
            values["events"] = self.count
        else:
            is_launched = self.launch >= 0
            values["is_launched"] = is_launched.astype(np.int64)
            values["call"] = np.diff(self.launch[is_launched], prepend=0)
        if self.collective is not None:
            member = np.flatnonzero(self.collective >= 0)
            values["member"] = np.diff(member, prepend=0)
            values["collective"] = np.diff(self.collective[member], prepend=0)
        return columns(values)


@dataclass(frozen=True)
class TimelineLayer:
    """The packed events from `begin_ns` to `end_ns`, rounded to `quantum_ns` and merged in intervals of `merge_ns`.

    counts: the number of entries of each row. merge_ns: 0 if every event is drawn by itself.
    """

    quantum_ns: int
    begin_ns: int
    end_ns: int
    counts: tuple[int, ...]
    columns: Columns
    merge_ns: int = 0

    def header(self, at: int) -> dict[str, Any]:
        """Return the JSON description of the layer, whose columns start at byte `at` of the binary."""
        return {
            "quantum_ns": self.quantum_ns,
            "from_ns": self.begin_ns,
            "to_ns": self.end_ns,
            "is_merged": bool(self.merge_ns),
            "merge_ns": self.merge_ns,
            "counts": self.counts,
            **self.columns.header(at),
        }


def whole(events: TimelineEvents, span_ns: int, *, quantum_ns: int) -> TimelineLayer:
    """Return a layer of all events, with times rounded to the quantum."""
    return _layer(_round_times(_spans(events), quantum_ns), quantum_ns, 0, span_ns)


def stretch(events: TimelineEvents, begin_ns: int, end_ns: int) -> TimelineLayer:
    """Return an exact layer of the events that overlap `begin_ns` to `end_ns`."""
    return _layer(_spans(inside(events, begin_ns, end_ns), begin_ns), 1, begin_ns, end_ns)


def merged(events: TimelineEvents, span_ns: int, *, merge_ns: int) -> TimelineLayer:
    """Return a layer that merges events shorter than `merge_ns` that start in the same interval (see `_blocks`)."""
    quantum_ns = max(merge_ns // _SHARE, 1)
    return _layer(_round_times(_blocks(events, merge_ns), quantum_ns), quantum_ns, 0, span_ns, merge_ns)


def _layer(spans: Spans, quantum_ns: int, begin_ns: int, end_ns: int, merge_ns: int = 0) -> TimelineLayer:
    counts = tuple(np.diff(spans.bounds).tolist())
    return TimelineLayer(quantum_ns, begin_ns, end_ns, counts, spans.columns(), merge_ns)


def inside(events: TimelineEvents, begin_ns: int, end_ns: int) -> TimelineEvents:
    """Return the events that overlap `begin_ns` to `end_ns`; zero-length events count if they start there."""
    spans = zip(*_edges(events, begin_ns, end_ns), strict=True)
    return _only(events, np.concatenate([NOTHING, *(np.arange(low, high) for low, high in spans)]))


def count_inside(events: TimelineEvents, begin_ns: int, end_ns: int) -> int:
    """Return the number of events that `inside` would return."""
    low, high = _edges(events, begin_ns, end_ns)
    return sum(high) - sum(low)


def _edges(events: TimelineEvents, begin_ns: int, end_ns: int) -> tuple[list[int], list[int]]:
    """Return for each row the first event inside an interval, and the first one after it."""
    low, high = [], []
    for first, last in pairwise(events.bounds.tolist()):
        # events of a row do not overlap, so both starts and ends are sorted
        start, end = events.start[first:last], events.end[first:last]
        before = min(np.searchsorted(end, begin_ns, side="right"), np.searchsorted(start, begin_ns, side="left"))
        low.append(first + int(before))
        high.append(first + int(max(np.searchsorted(start, end_ns, side="left"), before)))
    return low, high


def _only(events: TimelineEvents, chosen: Ints) -> TimelineEvents:
    """Keep the events at ascending positions; a `launch` whose call is dropped becomes -1."""
    # the extra last entry maps -1 (not launched) to -1
    new = np.full(len(events.start) + 1, -1, dtype=np.int32)
    new[chosen] = np.arange(len(chosen))
    return replace(
        events,
        bounds=np.searchsorted(chosen, events.bounds),
        start=events.start[chosen],
        end=events.end[chosen],
        label=events.label[chosen],
        launch=new[events.launch[chosen]],
        collective=None if events.collective is None else events.collective[chosen],
    )


def _spans(events: TimelineEvents, origin_ns: int = 0) -> Spans:
    # avoid copies: these arrays can have millions of entries
    start, end = (times - origin_ns if origin_ns else times for times in (events.start, events.end))
    return Spans(events.bounds, start, end, events.label, events.launch, collective=events.collective)


def _round_times(spans: Spans, quantum_ns: int) -> Spans:
    """Round starts and ends to the quantum, both in the same way, so that events stay in order and do not overlap."""
    if quantum_ns == 1:
        return spans
    half = quantum_ns // 2
    return replace(spans, start=(spans.start + half) // quantum_ns, end=(spans.end + half) // quantum_ns)


def _blocks(events: TimelineEvents, merge_ns: int) -> Spans:
    """Merge the events of a row that are shorter than `merge_ns` and start in the same interval of that length.

    A block starts with its first event, lasts as long as all its events added up, and has the label of the longest.
    """
    length = events.end - events.start
    first = np.flatnonzero(_begins_block(events, length, merge_ns))
    nothing = np.full(len(first), -1, dtype=np.int64)
    begin = events.start[first]
    count = np.diff(np.append(first, len(length)))
    total = np.add.reduceat(length, first)
    label = events.label[_longest(length, first, count)]
    bounds = np.searchsorted(first, events.bounds)
    # merged events do not belong to a single collective
    collective = None if events.collective is None else np.where(count == 1, events.collective[first], -1)
    return Spans(bounds, begin, begin + total, label, nothing, count, collective)


def _longest(length: Ints, first: Ints, count: Ints) -> Ints:
    """Return the position of the first of the longest events of each block."""
    block = np.repeat(np.arange(len(first), dtype=np.int32), count)
    positions = np.flatnonzero(length == np.maximum.reduceat(length, first)[block])
    block = block[positions]
    return np.asarray(positions[np.append(True, block[1:] != block[:-1])])


def _begins_block(events: TimelineEvents, length: Ints, merge_ns: int) -> Flags:
    is_long = length >= merge_ns
    flags: Flags = (np.diff(events.start // merge_ns, prepend=-1) != 0) | is_long
    # a long event is a separate entry, so the event after it starts a new block
    flags[1:] |= is_long[:-1]
    # blocks never span rows
    flags[events.bounds[:-1][np.diff(events.bounds) > 0]] = True
    return flags


class RowSample:
    """A sample of each row, which estimates the compressed size of a layer without building it."""

    def __init__(self, events: TimelineEvents) -> None:
        count = np.diff(events.bounds)
        # the same share of each row, rounded up; everything if there are few events
        sampled = -(-count * _SAMPLED // max(int(count.sum()), _SAMPLED))
        # taken from the middle of the row, which is more typical than its start
        begin = events.bounds[:-1] + (count - sampled) // 2
        # the index ranges of all rows in one array, without a loop
        position = np.repeat(begin - np.cumsum(sampled) + sampled, sampled) + np.arange(int(sampled.sum()))
        self._weight = len(events.start) / max(len(position), 1)
        self._events = replace(
            events,
            bounds=np.append(0, np.cumsum(sampled)),
            start=events.start[position],
            end=events.end[position],
            label=events.label[position],
            # indices among all events are fine here: only the differences between them are packed
            launch=events.launch[position],
            collective=None if events.collective is None else events.collective[position],
        )

    @cached_property
    def exact_size(self) -> float:
        """The estimated size of an exact layer of all events, in bytes, compressed."""
        return self.size(1)

    def size(self, quantum_ns: int) -> float:
        """Return the estimated size of a layer of all events, in bytes, compressed."""
        return self._compressed(_round_times(_spans(self._events), quantum_ns))

    def merged_size(self, merge_ns: int) -> float:
        """Return the estimated size of a layer of merged blocks, in bytes, compressed."""
        return self._compressed(_round_times(_blocks(self._events, merge_ns), max(merge_ns // _SHARE, 1)))

    def _compressed(self, spans: Spans) -> float:
        return self._weight * spans.columns().size


def finest(fits: Callable[[int], bool], least: int, most: int) -> int:
    """Return about the smallest number from `least` to `most` that fits, by bisection on a log scale; else `most`."""
    while most > least * 1.05 and most - least > 1:
        middle = int((least * most) ** 0.5)
        middle = min(max(middle, least + 1), most - 1)
        if fits(middle):
            most = middle
        else:
            least = middle
    return most
