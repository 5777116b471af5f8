"""Algorithms on half-open time spans [start, end), all vectorised: unions, enclosing spans, contained events."""

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]


def union(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Merge overlapping or touching spans; return disjoint ones in order of time."""
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    last = np.concatenate((first[1:] - 1, [len(start) - 1]))
    return start[first], reach[last]


def busy(start: Ints, end: Ints, window: tuple[int, int]) -> int:
    """Return how much of `window` is covered by at least one span."""
    low, high = np.clip(start, *window), np.clip(end, *window)
    merged_start, merged_end = union(low[high > low], high[high > low])
    return int((merged_end - merged_start).sum())


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
