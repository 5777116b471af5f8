"""The layers a timeline can be drawn from: all events at some resolution, those of a stretch of time, merged blocks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np

from nightsight.intervals import Flags, Ints
from nightsight.render.timeline.encode import Deflated, deflated, foretold
from nightsight.render.timeline.parts import Parts, Spans, encode_spans
from nightsight.render.timeline.rows import Events

# a block is drawn to this share of the stretch it was merged from
_SHARE: Final = 32
_SAMPLED: Final = 150_000
_LEAST: Final = 256


@dataclass(frozen=True)
class Layer:
    """What is drawn of the time from `begin_ns` to `end_ns`: written in quanta, and merged in stretches of `merge_ns`.

    merge_ns: 0 where every event is drawn by itself.
    """

    quantum_ns: int
    begin_ns: int
    end_ns: int
    parts: Parts
    merge_ns: int = 0

    @cached_property
    def body(self) -> Deflated:
        """The binary of the layer."""
        return deflated(b"".join(self.parts.pieces))

    def header(self) -> dict[str, Any]:
        """Describe the layer."""
        return {
            "quantum_ns": self.quantum_ns,
            "from_ns": self.begin_ns,
            "to_ns": self.end_ns,
            "is_merged": bool(self.merge_ns),
            "merge_ns": self.merge_ns,
        }


def whole(events: Events, span_ns: int, *, quantum_ns: int) -> Layer:
    """Draw all events, times rounded to the quantum."""
    return Layer(quantum_ns, 0, span_ns, encode_spans(_rounded(_linked(events), quantum_ns)))


def stretch(events: Events, begin_ns: int, end_ns: int) -> Layer:
    """Draw the events that have any time from `begin_ns` to `end_ns`, exactly."""
    chosen = inside(events, begin_ns, end_ns)
    return Layer(1, begin_ns, end_ns, encode_spans(_linked(chosen, begin_ns)))


def merged(events: Events, span_ns: int, *, merge_ns: int) -> Layer:
    """Draw as one what is shorter than `merge_ns` and begins in the same stretch of that length (see `_blocks`)."""
    quantum_ns = max(merge_ns // _SHARE, 1)
    return Layer(quantum_ns, 0, span_ns, encode_spans(_rounded(_blocks(events, merge_ns), quantum_ns)), merge_ns)


def inside(events: Events, begin_ns: int, end_ns: int) -> Events:
    """Return the events that have any time from `begin_ns` to `end_ns`; without length, that begin there."""
    spans = zip(*_edges(events, begin_ns, end_ns), strict=True)
    return _only(events, np.concatenate([np.empty(0, np.int64), *(np.arange(low, high) for low, high in spans)]))


def count_inside(events: Events, begin_ns: int, end_ns: int) -> int:
    """Return how many these are."""
    low, high = _edges(events, begin_ns, end_ns)
    return sum(high) - sum(low)


def _edges(events: Events, begin_ns: int, end_ns: int) -> tuple[list[int], list[int]]:
    """Return for each row the first event in a stretch of time, and the first one after it."""
    low, high = [], []
    for first, last in pairwise(events.bounds.tolist()):
        start, end = events.start[first:last], events.end[first:last]
        before = min(np.searchsorted(end, begin_ns, side="right"), np.searchsorted(start, begin_ns, side="left"))
        low.append(first + int(before))
        high.append(first + int(max(np.searchsorted(start, end_ns, side="left"), before)))
    return low, high


def _only(events: Events, chosen: Ints) -> Events:
    """Keep the events at rising positions, and what launched them if that is kept."""
    new = np.full(len(events.start) + 1, -1, dtype=np.int64)
    new[chosen] = np.arange(len(chosen))
    return replace(
        events,
        bounds=np.searchsorted(chosen, events.bounds),
        start=events.start[chosen],
        end=events.end[chosen],
        label=events.label[chosen],
        launch=new[events.launch[chosen]],
    )


def _linked(events: Events, origin_ns: int = 0) -> Spans:
    """Return each event with the row and the position there of the call that launched it."""
    known = np.flatnonzero(events.launch >= 0)
    launch = events.launch[known]
    caller, call = np.full(len(events.start), -1), np.zeros(len(events.start), dtype=np.int64)
    caller[known] = events.row[launch]
    call[known] = launch - events.bounds[caller[known]]
    # copies take memory
    start, end = (times - origin_ns if origin_ns else times for times in (events.start, events.end))
    return Spans(events.bounds, start, end, events.label, caller, call)


def _rounded(spans: Spans, quantum_ns: int) -> Spans:
    """Round starts and ends to the quantum, which keeps them in order."""
    if quantum_ns == 1:
        return spans
    half = quantum_ns // 2
    return replace(spans, start=(spans.start + half) // quantum_ns, end=(spans.end + half) // quantum_ns)


def _blocks(events: Events, merge_ns: int) -> Spans:
    """Merge events of a row that are shorter than `merge_ns` and begin in the same stretch of that length.

    A block begins where its first event does, is as long as they are together, and has the label of the longest.
    """
    length = events.end - events.start
    first = np.flatnonzero(_begins_block(events, length, merge_ns))
    nothing = np.full(len(first), -1, dtype=np.int64)
    begin = events.start[first]
    count = np.diff(np.append(first, len(length)))
    together = np.add.reduceat(length, first)
    label = events.label[_longest(length, first, count)]
    bounds = np.searchsorted(first, events.bounds)
    return Spans(bounds, begin, begin + together, label, nothing, np.zeros_like(first), count)


def _longest(length: Ints, first: Ints, count: Ints) -> Ints:
    """Return the position of the first of the longest events of each block."""
    longest = np.repeat(np.maximum.reduceat(length, first), count)
    found = np.flatnonzero(length == longest)
    block = np.repeat(np.arange(len(first)), count)[found]
    firsts: Ints = found[np.diff(block, prepend=-1) != 0]
    return firsts


def _begins_block(events: Events, length: Ints, merge_ns: int) -> Flags:
    is_long = length >= merge_ns
    flags: Flags = (np.diff(events.start // merge_ns, prepend=-1) != 0) | is_long
    flags[1:] |= is_long[:-1]
    flags[events.bounds[:-1][np.diff(events.bounds) > 0]] = True
    return flags


class Sample:
    """A piece of each row, by which the compressed size of a layer is foretold without making it."""

    def __init__(self, events: Events) -> None:
        count = np.diff(events.bounds)
        share = _SAMPLED * count // max(int(count.sum()), 1)
        taken = np.minimum(count, np.maximum(share, _LEAST))
        begin = events.bounds[:-1] + (count - taken) // 2
        position = np.repeat(begin - np.cumsum(taken) + taken, taken) + np.arange(int(taken.sum()))
        self._weight = count / np.maximum(taken, 1)
        self._calls = _linked(events)
        self._events = replace(
            events,
            bounds=np.append(0, np.cumsum(taken)),
            start=events.start[position],
            end=events.end[position],
            label=events.label[position],
            launch=np.full(len(position), -1, dtype=np.int64),
        )
        self._position = position

    @cached_property
    def _spans(self) -> Spans:
        all_, here = self._calls, self._position
        links = {"caller": all_.caller[here], "call": all_.call[here]}
        return replace(_linked(self._events), **links)

    @cached_property
    def exact_size(self) -> float:
        """About how many bytes all events take, compressed, if they are exact."""
        return self.size(1)

    def size(self, quantum_ns: int) -> float:
        """Return about how many bytes all events take, compressed."""
        return self._compressed(encode_spans(_rounded(self._spans, quantum_ns)))

    def merged_size(self, merge_ns: int) -> float:
        """Return about how many bytes all blocks take, compressed."""
        return self._compressed(encode_spans(_rounded(_blocks(self._events, merge_ns), max(merge_ns // _SHARE, 1))))

    def _compressed(self, parts: Parts) -> float:
        size = 0.0
        for factor, streams in zip(self._weight, parts.rows, strict=True):
            *grows, medians = streams
            size += sum(foretold(stream, factor) for stream in grows) + len(medians)
        return size


def finest(fits: Callable[[int], bool], least: int, most: int) -> int:
    """Return about the least number from `least` to `most` that fits, by halving ratios; `most` if none does."""
    while most > least * 1.05 and most - least > 1:
        middle = int((least * most) ** 0.5)
        middle = min(max(middle, least + 1), most - 1)
        if fits(middle):
            most = middle
        else:
            least = middle
    return most
