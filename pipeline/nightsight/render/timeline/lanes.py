"""Assigns timeline events to the rows of their owner (a stream or thread), so that no two events of a row overlap.

Times are doubled in this module, so that a zero-length event can lie between two events that touch.
"""

import numpy as np

from nightsight.intervals import NOTHING, Flags, Ints
from nightsight.render.lanes import crossing_lanes, free_lanes, separate_groups


def separate_lanes(group: Ints, start: Ints, end: Ints) -> Ints:
    """Assign events, sorted by (group, start, shortest first), to lanes; events that overlap nothing are on lane 0."""
    lane = np.zeros(len(start), dtype=np.int64)
    overlapping = _with(group, _overlapping(group, start, end))
    if len(overlapping):
        # a zero-length event takes the half step before a longer event with the same start
        begin, stop = (
            2 * start[overlapping] + (end[overlapping] > start[overlapping]),
            np.maximum(2 * end[overlapping], 2 * start[overlapping] + 1),
        )
        order = np.lexsort((stop, begin, group[overlapping]))
        lane[overlapping[order]] = free_lanes(*separate_groups(group[overlapping][order], begin[order], stop[order]))
    return lane


def nested_lanes(group: Ints, start: Ints, end: Ints) -> Ints:
    """Assign events, sorted by (group, start, longest first), to lanes by nesting depth.

    Events that cross others (start inside and end outside of one) go on further lanes below all nested ones.
    """
    lane = _levels(group, start, end)
    # depth alone is right unless events cross: only those groups are laid out again
    crossed = _with(group, _overlapping_on_lanes(group, lane, start, end))
    if len(crossed):
        lane[crossed] = _crossing_lanes(group[crossed], start[crossed], end[crossed])
    return lane


def _crossing_lanes(group: Ints, start: Ints, end: Ints) -> Ints:
    crossing = crossing_lanes(*separate_groups(group, start, end))
    nests = crossing == 0
    lane = np.zeros(len(start), dtype=np.int64)
    lane[nests] = _levels(group[nests], start[nests], end[nests])
    first = np.flatnonzero(np.diff(group, prepend=group[0] - 1))
    deepest = np.repeat(np.maximum.reduceat(lane, first), np.diff(np.append(first, len(group))))
    # crossing events go below the deepest nested lane of their group
    return np.where(nests, lane, deepest + crossing)


def _levels(group: Ints, start: Ints, end: Ints) -> Ints:
    """Return how many earlier events of the group are still open when each event starts."""
    level = np.zeros(len(start), dtype=np.int64)
    clustered = np.flatnonzero(_shares_time(group, start, end))
    if len(clustered):
        long = end[clustered] > start[clustered]
        # a zero-length event ends half a step after its start
        begin, stop = separate_groups(group[clustered], 2 * start[clustered], 2 * end[clustered] + ~long)
        level[clustered] = np.arange(len(clustered)) - np.searchsorted(
            np.sort(stop, kind="stable"), begin, side="right"
        )
    return level


def _shares_time(group: Ints, start: Ints, end: Ints) -> Flags:
    """Flag the events of clusters: those that share time with another event of their group, directly or in a chain."""
    if not _overlapping(group, start, end).any():
        return np.zeros(len(start), dtype=bool)
    begin, stop = separate_groups(group, start, end)
    begins = np.append(True, begin[1:] >= np.maximum.accumulate(stop)[:-1])
    flags: Flags = ~(begins & np.append(begins[1:], True))
    return flags


def _overlapping(group: Ints, start: Ints, end: Ints) -> Flags:
    """Flag the events that start before the previous event of their group has ended, or together with it."""
    flags = np.zeros(len(start), dtype=bool)
    flags[1:] = ((start[1:] < end[:-1]) | (start[1:] == start[:-1])) & (group[1:] == group[:-1])
    return flags


def _overlapping_on_lanes(group: Ints, lane: Ints, start: Ints, end: Ints) -> Flags:
    if not lane.any():
        return np.zeros(len(start), dtype=bool)
    order = np.lexsort((lane, group))
    place = (group * (int(lane.max()) + 1) + lane)[order]
    flags = np.zeros(len(start), dtype=bool)
    flags[order[1:]] = (start[order[1:]] < end[order[:-1]]) & (place[1:] == place[:-1])
    return flags


def _with(group: Ints, flags: Flags) -> Ints:
    """Return the positions of all events of the groups that contain a flagged event."""
    if not flags.any():
        return NOTHING
    chosen = np.zeros(int(group[-1]) + 1, dtype=bool)
    chosen[group[flags]] = True
    return np.flatnonzero(chosen[group])
