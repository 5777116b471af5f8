"""Algorithms on half-open time spans [start, end), all vectorised: unions, enclosing spans, contained events."""

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
Spans = tuple[Ints, Ints]
"""Starts and ends of disjoint spans in order of time, none of them empty."""


def union(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Merge overlapping or touching spans; return disjoint ones in order of time."""
    if not len(start):
        return start, end
    if not (start[1:] >= start[:-1]).all():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    last = np.concatenate((first[1:] - 1, [len(start) - 1]))
    return start[first], reach[last]


def busy(start: Ints, end: Ints, window: tuple[int, int]) -> int:
    """Return how much of `window` is covered by at least one span."""
    return length(inside(start, end, window))


def outer(end: Ints) -> Ints:
    """For spans sorted by (start, longest first), return the position of the tightest earlier span that outlasts each.

    In nested spans that is the parent; -1 where there is none. Each round lets a span jump over the one it
    looked at and all that this one has already jumped over, so the rounds grow with the logarithm of the count.
    """
    position = np.arange(-1, len(end) - 1, dtype=np.int64)
    while True:
        short = (position >= 0) & (end[position] < end)
        if not short.any():
            return position
        position[short] = position[position[short]]


def innermost(start: Ints, end: Ints, parent: Ints, time: Ints) -> Ints:
    """Return for each time the position of the latest-started span that is open then, or -1.

    Spans sorted by (start, longest first), `parent` from `outer`.
    """
    if not len(start):
        return np.full(len(time), -1, dtype=np.int64)
    found = np.searchsorted(start, time, side="right") - 1
    while True:
        closed = (found >= 0) & (end[found] <= time)
        if not closed.any():
            return found
        found[closed] = parent[found[closed]]


def contained(start: Ints, end: Ints, inner_start: Ints, inner_end: Ints) -> tuple[Ints, Ints]:
    """Return every pair (span, inner event) where the event lies wholly inside; inner events sorted by start."""
    low = np.searchsorted(inner_start, start, side="left")
    high = np.searchsorted(inner_start, end, side="right")
    count = np.maximum(high - low, 0)
    span = np.repeat(np.arange(len(start)), count)
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    event = low[span] + offset
    inside = inner_end[event] <= end[span]
    return span[inside], event[inside]


def inside(start: Ints, end: Ints, window: tuple[int, int]) -> Spans:
    """Return the parts of `window` that are covered by at least one span."""
    low, high = np.clip(start, *window), np.clip(end, *window)
    return union(low[high > low], high[high > low])


def gaps(spans: Spans, window: tuple[int, int]) -> Spans:
    """Return what `spans` leave of a window."""
    low = np.concatenate(([window[0]], np.clip(spans[1], *window)))
    high = np.concatenate((np.clip(spans[0], *window), [window[1]]))
    return low[high > low], high[high > low]


def shared(first: Spans, second: Spans) -> Spans:
    """Return the time that is in both; touching pieces of it stay apart."""
    if len(first[0]) > len(second[0]):
        first, second = second, first
    low = np.searchsorted(second[1], first[0], side="right")
    count = np.searchsorted(second[0], first[1], side="left") - low
    piece = np.repeat(np.arange(len(count)), count)
    other = np.arange(len(piece)) - np.repeat(np.cumsum(count) - count - low, count)
    return np.maximum(first[0][piece], second[0][other]), np.minimum(first[1][piece], second[1][other])


def without(first: Spans, second: Spans) -> Spans:
    """Return the time that is in `first` and not in `second`."""
    if not len(first[0]) or not len(second[0]):
        return first
    return shared(first, gaps(second, (int(first[0][0]), int(first[1][-1]))))


def length(spans: Spans) -> int:
    """Return how long they are together."""
    return int((spans[1] - spans[0]).sum())


def covered(spans: Spans, start: Ints, end: Ints) -> Ints:
    """Return how much of each [start, end) lies in `spans`."""
    before = np.concatenate(([0], np.cumsum(spans[1] - spans[0])))
    edge = np.concatenate(([np.iinfo(np.int64).min], spans[1]))

    def elapsed(time: Ints) -> Ints:
        begun = np.searchsorted(spans[0], time, side="right")
        return before[begun] - np.maximum(edge[begun], time) + time

    return elapsed(end) - elapsed(start)


def grouped_busy(group: Ints, start: Ints, end: Ints, count: int) -> tuple[Ints, Ints]:
    """Return, for groups 0 to count - 1, the length of the union of their spans, and from first start to last end."""
    order = np.lexsort((start, group)) if (start[1:] < start[:-1]).any() else np.argsort(group, kind="stable")
    group, start, end = group[order], start[order], end[order]
    if not len(group):
        return np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    first = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    extent = np.maximum.reduceat(end, first) - start[first]
    # laid one after the other, groups neither overlap nor touch, and one running maximum serves them all
    base = np.cumsum(extent + 1) - (extent + 1)
    shift = np.repeat(base - start[first], np.diff(np.append(first, len(group))))
    merged = union(start + shift, end + shift)
    owner = np.searchsorted(base, merged[0], side="right") - 1
    busy_ns = np.bincount(group[first][owner], merged[1] - merged[0], count)
    return busy_ns.astype(np.int64), np.bincount(group[first], extent, count).astype(np.int64)


def depth(start: Ints, end: Ints, time: Ints) -> Ints:
    """Return how many spans are open at each time; `start` and `end` each sorted by itself."""
    return np.searchsorted(start, time, side="right") - np.searchsorted(end, time, side="right")


def open_time(start: Ints, end: Ints, time: Ints) -> Ints:
    """Return the time that all spans together have been open before each time; sorted as for `depth`."""

    def passed(edges: Ints) -> Ints:
        sums = np.concatenate(([0], np.cumsum(edges)))
        begun = np.searchsorted(edges, time, side="right")
        return begun * time - sums[begun]

    # these sums may wrap around; their difference is right all the same
    return passed(start) - passed(end)
