"""Assigns overlapping spans, sorted by start, to lanes."""

from typing import Final

import numpy as np

from nightsight.intervals import Flags, Ints, outer, reaching
from nightsight.tables import nearest

# larger sums of times could overflow int64
_LARGEST: Final = 1 << 61


def separate_groups(group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Shift the times of sorted groups so that the groups follow each other without overlap.

    One pass over the shifted times then handles all groups at once. Times become ranks if the sum would overflow.
    """
    if not len(group):
        return start, end
    first = np.flatnonzero(np.diff(group, prepend=group[0] - 1))
    # + 2 leaves a gap, so that spans of two groups do not even touch
    extent = np.maximum.reduceat(end, first) - start[first] + 2
    if float(extent.sum(dtype=np.float64)) > _LARGEST:
        ranks = np.unique(np.concatenate([start, end]), return_inverse=True)[1].astype(np.int64)
        return separate_groups(group, ranks[: len(start)], ranks[len(start) :])
    shift = np.repeat(np.cumsum(extent) - extent - start[first], np.diff(np.append(first, len(group))))
    return start + shift, end + shift


def crossing_lanes(start: Ints, end: Ints) -> Ints:
    """Assign spans, sorted by start, to lanes on which they nest; spans that cross no other are on lane 0."""
    lane = np.zeros(len(start), dtype=np.int64)
    crossing = _cross_earlier(start, end)
    if crossing.any():
        # with time reversed, this flags the other span of each crossing pair
        crossing |= _cross_earlier(-end, -start)
        lane[crossing] = free_lanes(start[crossing], end[crossing])
    return lane


def _cross_earlier(start: Ints, end: Ints) -> Flags:
    """Flag the spans that begin inside an earlier span and outlast it.

    Only the earlier span that is the next to end must be compared with each span.
    """
    by_end = np.argsort(end, kind="stable")
    # a sentinel at the end: a span that is always open, so that all searches succeed
    starts = np.append(start[by_end], -np.iinfo(np.int64).max)
    ends = np.append(end[by_end], np.iinfo(np.int64).max)
    next_to_end = np.searchsorted(ends, start, side="right")
    # skips candidates that began too late: counted from the last to end, these reach less far back
    back = -starts[::-1]
    next_to_end = len(end) - reaching(len(end) - next_to_end, back, 1 - start, outer(back))
    flags: Flags = ends[next_to_end] < end
    return flags


def free_lanes(start: Ints, end: Ints) -> Ints:
    """Assign spans, sorted by start, to lanes without overlap; isolated and zero-length spans are on lane 0.

    Within each cluster of overlapping spans, a span that finds no free lane opens a new one. The others take lanes in
    the order in which these became free, so the n-th of them follows the n-th span to end. This needs no loop.
    """
    lane = np.zeros(len(start), dtype=np.int64)
    # zero-length spans overlap nothing, so they stay on lane 0
    long = np.flatnonzero(end > start)
    if len(long):
        lane[long] = _reused_lanes(start[long], end[long])
    return lane


def _reused_lanes(start: Ints, end: Ints) -> Ints:
    by_end = np.argsort(end, kind="stable")
    begins_cluster = np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1])
    cluster = np.cumsum(begins_cluster)
    # the number of open spans at each start, including the one that starts
    depth = np.arange(1, len(start) + 1) - np.searchsorted(end[by_end], start, side="right")
    # one running maximum serves all clusters, because each cluster's base is above the one before
    base = cluster * (len(start) + 1)
    deepest = np.maximum.accumulate(base + depth)
    # a new maximum of the depth within a cluster: all lanes are in use
    opens = begins_cluster | np.append(True, deepest[1:] > deepest[:-1])
    # the n-th span that reuses a lane takes that of the n-th span to end
    turn = np.cumsum(~opens)
    first = np.flatnonzero(begins_cluster)[cluster - 1]
    follows = np.where(opens, np.arange(len(start)), by_end[first + turn - turn[first] - 1])
    # each span is on the lane that the first of those it follows opened
    return depth[nearest(follows, ~opens)] - 1
