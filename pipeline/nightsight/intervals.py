"""Algorithms on half-open time spans [start, end), all vectorised: unions, enclosing spans, contained events.

With ten million spans most of the time goes into fresh memory, so the ones that are used most work in place.
"""

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
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
    first = np.append(True, start[1:] > reach[:-1])
    return (start, reach) if first.all() else (start[first], reach[np.append(first[1:], True)])


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
    start, end = union(start, end)
    chosen = slice(np.searchsorted(end, window[0], side="right"), np.searchsorted(start, window[1], side="left"))
    low, high = np.maximum(start[chosen], window[0]), np.minimum(end[chosen], window[1])
    kept = high > low
    return (low, high) if kept.all() else (low[kept], high[kept])


def gaps(spans: Spans, window: tuple[int, int]) -> Spans:
    """Return what `spans` leave of a window."""
    low = np.concatenate(([window[0]], np.clip(spans[1], *window)))
    high = np.concatenate((np.clip(spans[0], *window), [window[1]]))
    kept = high > low
    return low[kept], high[kept]


def shared(first: Spans, second: Spans) -> Spans:
    """Return the time that is in both; touching pieces of it stay apart."""
    if len(first[0]) > len(second[0]):
        first, second = second, first
    low = np.searchsorted(second[1], first[0], side="right")
    count = np.searchsorted(second[0], first[1], side="left")
    count -= low
    low += count
    low -= np.cumsum(count)
    other = np.repeat(low, count)
    other += np.arange(len(other))
    start, end = (np.repeat(times, count) for times in first)
    np.maximum(start, second[0][other], out=start)
    np.minimum(end, second[1][other], out=end)
    return start, end


def without(first: Spans, second: Spans) -> Spans:
    """Return the time that is in `first` and not in `second`."""
    if not len(first[0]) or not len(second[0]):
        return first
    rest = gaps(second, (int(first[0][0]), int(first[1][-1])))
    return rest if len(first[0]) == 1 else shared(first, rest)


def length(spans: Spans) -> int:
    """Return how long they are together."""
    return int((spans[1] - spans[0]).sum())


def touches(spans: Spans, start: Ints, end: Ints) -> Flags:
    """Tell which [start, end) have any time in common with `spans`."""
    following = np.searchsorted(spans[1], start, side="right")
    flags: Flags = np.append(spans[0], np.iinfo(np.int64).max)[following] < end
    return flags & (start < end)


def covered(spans: Spans, start: Ints, end: Ints) -> Ints:
    """Return how much of each [start, end) lies in `spans`."""
    before = np.concatenate(([0], np.cumsum(spans[1] - spans[0])))
    edge = np.concatenate(([np.iinfo(np.int64).min], spans[1]))

    def elapsed(time: Ints) -> Ints:
        begun = np.searchsorted(spans[0], time, side="right")
        passed, last = before[begun], edge[begun]
        passed -= np.maximum(last, time, out=last)
        passed += time
        return passed

    within: Ints = elapsed(end)
    within -= elapsed(start)
    return within


def grouped_busy(group: Ints, start: Ints, end: Ints, count: int) -> tuple[Ints, Ints]:
    """Return, for groups 0 to count - 1, the length of the union of their spans, and from first start to last end."""
    busy_ns, extent = np.zeros((2, count), dtype=np.int64)
    if not len(group):
        return busy_ns, extent
    if (start[1:] < start[:-1]).any() or (group[1:] < group[:-1]).any():
        order = np.lexsort((start, group))
        group, start, end = group[order], start[order], end[order]
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    own = group[first]
    extent[own] = np.maximum.reduceat(end, first) - start[first]
    # laid one after the other, groups do not overlap, and one running maximum serves them all
    base = np.cumsum(extent[own]) - extent[own]
    shift = np.repeat(base - start[first], np.diff(np.append(first, len(group))))
    start = start + shift
    reach = np.maximum.accumulate(np.add(end, shift, out=shift), out=shift)
    # what each span adds to those before it
    start[1:] = np.maximum(start[1:], reach[:-1])
    busy_ns[own] = np.add.reduceat(reach - start, first)
    return busy_ns, extent


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
