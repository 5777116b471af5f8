"""How spans that overlap share rows: which lane each one is on. All spans are sorted by their start."""

from typing import Final

import numpy as np

from nightsight.intervals import Flags, Ints, outer

# sums of times beyond this could overflow
_LARGEST: Final = 1 << 61


def apart(group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Shift the times of sorted groups so that they lie one after the other; by rank if they are too long for that."""
    if not len(group):
        return start, end
    first = np.flatnonzero(np.diff(group, prepend=group[0] - 1))
    extent = np.maximum.reduceat(end, first) - start[first] + 2
    if float(extent.sum(dtype=np.float64)) > _LARGEST:
        ranks = np.unique(np.concatenate([start, end]), return_inverse=True)[1].astype(np.int64)
        return apart(group, ranks[: len(start)], ranks[len(start) :])
    shift = np.repeat(np.cumsum(extent) - extent - start[first], np.diff(np.append(first, len(group))))
    return start + shift, end + shift


def crossing_lanes(start: Ints, end: Ints) -> Ints:
    """Put spans, sorted by start, on lanes where they nest: all that cross nothing on lane 0."""
    lane = np.zeros(len(start), dtype=np.int64)
    crossing = _cross_earlier(start, end)
    if crossing.any():
        # turned around in time, the later of two that cross is the earlier
        crossing |= _cross_earlier(-end, -start)
        lane[crossing] = free_lanes(start[crossing], end[crossing])
    return lane


def _cross_earlier(start: Ints, end: Ints) -> Flags:
    """Tell which spans begin inside an earlier one and outlast it: that which ends first of those open then."""
    by_end = np.argsort(end, kind="stable")
    # beyond the last one, a span that is always open
    begun = np.append(start[by_end], -np.iinfo(np.int64).max)
    ended = np.append(end[by_end], np.iinfo(np.int64).max)
    # a span that began too late is passed over, with those that end next and began later still
    following = len(end) - outer(-begun[::-1])[::-1]
    found = np.searchsorted(ended, start, side="right")
    late = np.flatnonzero(begun[found] >= start)
    while len(late):
        found[late] = following[found[late]]
        late = late[begun[found[late]] >= start[late]]
    flags: Flags = ended[found] < end
    return flags


def free_lanes(start: Ints, end: Ints) -> Ints:
    """Put spans, sorted by start, on lanes where none overlap; what overlaps nothing, or takes no time, on lane 0.

    In each heap of overlapping spans, one that finds no lane free opens another; the others take lanes in the order
    in which they became free, so the n-th of them follows the span that is the n-th to end.
    """
    lane = np.zeros(len(start), dtype=np.int64)
    long = np.flatnonzero(end > start)
    if len(long):
        lane[long] = _lanes_in_turn(start[long], end[long])
    return lane


def _lanes_in_turn(start: Ints, end: Ints) -> Ints:
    by_end = np.argsort(end, kind="stable")
    begins_heap = np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1])
    heap = np.cumsum(begins_heap)
    depth = np.arange(1, len(start) + 1) - np.searchsorted(end[by_end], start, side="right")
    # one running maximum serves all heaps, since each begins above the one before
    base = heap * (len(start) + 1)
    deepest = np.maximum.accumulate(base + depth)
    opens = begins_heap | np.append(True, deepest[1:] > deepest[:-1])
    turn = np.cumsum(~opens)
    first = np.flatnonzero(begins_heap)[heap - 1]
    follows = np.where(opens, np.arange(len(start)), by_end[first + turn - turn[first] - 1])
    while (follows[follows] != follows).any():
        follows = follows[follows]
    return depth[follows] - 1
