"""Chooses the level of detail of the timeline: exact if it fits, else rounded or merged, with one exact part."""

from bisect import bisect_left
from collections.abc import Iterator
from math import sqrt
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.ranges import without_numbers
from nightsight.intervals import NOTHING, Ints
from nightsight.render.timeline.activity import Span
from nightsight.render.timeline.labels import OTHERS
from nightsight.render.timeline.layers import RowSample, TimelineLayer, count_inside, finest, merged, stretch, whole
from nightsight.render.timeline.rows import TimelineEvents
from nightsight.render.timeline.sums import Sums
from nightsight.units import scale_for

QUANTA: Final = (32, 100, 250, 1000, 4000)
_LEAST_REPETITIONS: Final = 3
_MOST_REPETITIONS: Final = 5
_CANDIDATES: Final = 8
# at most this share of the room is for the exact part
_SHARE: Final = 1 / 3
_TRIES: Final = 4
# stop trying once this share of the room is used
_ENOUGH: Final = 0.9


def thin(events: TimelineEvents, sample: RowSample, *, span_ns: int, window: Span, room: float) -> list[TimelineLayer]:
    """Return layers that take at most about `room` bytes, compressed: a coarse one of everything, and an exact part.

    `window`: the time of most interest, in ns.
    """
    # the average size of one event in an exact layer
    event_bytes = sample.exact_size / len(events.start)
    detail = _stretch(events, window, room=room * _SHARE, event_bytes=event_bytes)
    room -= sum(layer.columns.size for layer in detail)
    return [_coarse(events, sample, span_ns=span_ns, room=room), *detail]


def sentences(layers: list[TimelineLayer], *, origin_ns: int) -> list[str]:
    """Return sentences on inexact parts; times are relative to the origin, like those in the page's tables."""
    first, *details = layers
    if first.quantum_ns == 1 and not first.merge_ns:
        return []
    exact_layer = "".join(
        f"; exact from {_time(detail.begin_ns - origin_ns)} to {_time(detail.end_ns - origin_ns)}" for detail in details
    )
    if first.merge_ns:
        return [
            f"Shorter events that start in the same {_round(first.merge_ns)} are merged into one block{exact_layer}."
        ]
    return [f"Starts and ends are rounded to {_round(first.quantum_ns)}{exact_layer}."]


def on_statistics(sums: Sums | None, *, has_exact_part: bool) -> str:
    """Return a sentence on the statistics of a selection, for a timeline that does not draw all events exactly."""
    if sums:
        return f"Statistics of a selection cover all events, in steps of {_round(sums.width_ns)}."
    return (
        f"Statistics of a selection are {'available only in the exact part' if has_exact_part else 'not available'} "
        "(page size limit, --max-bytes)."
    )


def _time(time_ns: int) -> str:
    return scale_for("ns", [time_ns]).with_unit(time_ns)


def _round(time_ns: int) -> str:
    scale = scale_for("ns", [time_ns])
    return f"{time_ns / scale.divisor:g} {scale.symbol}"


def _whole(events: TimelineEvents, quantum_ns: int, *, span_ns: int, room: float) -> TimelineLayer | None:
    layer = whole(events, span_ns, quantum_ns=quantum_ns)
    return layer if layer.columns.size <= room else None


def _coarse(events: TimelineEvents, sample: RowSample, *, span_ns: int, room: float) -> TimelineLayer:
    # coarser layers are smaller, so a binary search on the estimated sizes finds where to start
    first = bisect_left(QUANTA, True, key=lambda quantum_ns: sample.size(quantum_ns) <= room)
    for quantum_ns in QUANTA[first:]:
        if layer := _whole(events, quantum_ns, span_ns=span_ns, room=room):
            return layer
    return _blocks(events, sample, span_ns=span_ns, room=room)


def _blocks(events: TimelineEvents, sample: RowSample, *, span_ns: int, room: float) -> TimelineLayer:
    """Return the finest layer of merged blocks that fits.

    The first try follows from the sample, which overestimates the size of blocks that resemble each other. The next
    ones follow from the sizes of the tries so far.
    """
    coarsest = max(span_ns, QUANTA[-1]) + 1
    merge_ns = finest(lambda merge_ns: sample.merged_size(merge_ns) <= room, QUANTA[-1], coarsest)
    tried: dict[int, tuple[float, TimelineLayer]] = {}
    for _ in range(_TRIES):
        merge_ns = _two_digits(merge_ns)
        if merge_ns in tried:
            break
        layer = merged(events, span_ns, merge_ns=merge_ns)
        size = float(layer.columns.size)
        tried[merge_ns] = (size, layer)
        if _ENOUGH * room <= size <= room:
            break
        below = min((length for length, (tried_size, _) in tried.items() if tried_size <= room), default=0)
        above = max((length for length, (tried_size, _) in tried.items() if tried_size > room), default=0)
        # in proportion until the room lies between two sizes; these may be far apart, where many events get as short
        aim = sqrt(below * above) if below and above else merge_ns * size / (room * (1 + _ENOUGH) / 2)
        merge_ns = min(max(round(aim), QUANTA[-1]), coarsest)
    # of the tries that fit, the finest; if none fits, still the finest, and the caller tries with less room
    return min((size > room, length, layer) for length, (size, layer) in tried.items())[2]


def _two_digits(number: int) -> int:
    """Round up to two digits, because the page prints this length."""
    unit: int = 10 ** max(len(str(number)) - 2, 0)
    return -(-number // unit) * unit


def _stretch(events: TimelineEvents, window: Span, *, room: float, event_bytes: float) -> list[TimelineLayer]:
    """Return the exact part: a few repetitions of a range around a typical one, else the middle of the window.

    Ranges are tried in order of their total time; of each, as many repetitions as fit.
    """
    most_events = int(room / event_bytes)
    for start, end in _repeated_ranges(events, window):
        # the repetition of median length
        place = int(np.argsort(end - start, kind="stable")[(len(start) - 1) // 2])
        for more in range(_MOST_REPETITIONS - 1, -1, -1):
            # centered on the typical repetition, shifted inwards at the ends
            first = min(max(place - more // 2, 0), max(len(start) - 1 - more, 0))
            last = min(first + more, len(start) - 1)
            begin, stop = int(start[first]), int(end[last])
            if count_inside(events, begin, stop) > most_events:
                continue
            # the GPU work can end much later than the range, so check again
            stop = _end_of_launched_work(events, begin, stop)
            if count_inside(events, begin, stop) <= most_events:
                return [stretch(events, begin, stop)]
    return _middle(events, window, most_events)


def _middle(events: TimelineEvents, window: Span, most_events: int) -> list[TimelineLayer]:
    """Return an exact layer of as much of the middle of the window as fits; empty if nothing fits."""
    middle = sum(window) // 2
    # bisection on how far to reach from the middle, to about 5 %
    reach, too_far = 0, max(window[1] - window[0], 2)
    while too_far - reach > max(reach // 20, 1):
        half = (reach + too_far) // 2
        if count_inside(events, middle - half, middle + half) <= most_events:
            reach = half
        else:
            too_far = half
    begin, end = max(middle - reach, 0), middle + reach
    return [stretch(events, begin, end)] if reach and count_inside(events, begin, end) else []


def _repeated_ranges(events: TimelineEvents, window: Span) -> Iterator[tuple[Ints, Ints]]:
    """Yield starts and ends of each range that repeats in the window, in descending order of total time."""
    rows = [row for row, row_of_events in enumerate(events.rows) if row_of_events.kind == "range"]
    where = np.concatenate([NOTHING, *(np.arange(*events.bounds[row : row + 2]) for row in rows)])
    # ranges merged into OTHERS are not repetitions of each other
    is_others = np.array([name == OTHERS for name in events.labels.names], dtype=bool)
    within = (events.start[where] >= window[0]) & (events.end[where] <= window[1])
    where = where[within & ~is_others[events.label[where]]]
    code, count = np.unique(_patterns(events, where), return_inverse=True, return_counts=True)[1:]
    total = np.bincount(code, events.end[where] - events.start[where], len(count))
    total[count < _LEAST_REPETITIONS] = 0
    for number in np.argsort(-total, kind="stable")[:_CANDIDATES].tolist():
        if total[number] > 0:
            repetitions = where[code == number]
            yield events.start[repetitions], events.end[repetitions]


def _patterns(events: TimelineEvents, where: Ints) -> Ints:
    """Return a number for each combination of row and name, ignoring digits: `step 1` and `step 2` are the same."""
    of_label, patterns = pd.factorize(without_numbers(pd.Index(events.labels.names)))
    return events.row[where] * len(patterns) + of_label[events.label[where]]


def _end_of_launched_work(events: TimelineEvents, begin: int, end: int) -> int:
    """Return the end of all GPU work launched by calls from `begin` to `end`, at least `end`."""
    launched = np.flatnonzero(events.launch >= 0)
    called = events.start[events.launch[launched]]
    within = launched[(called >= begin) & (called < end)]
    return max(end, int(events.end[within].max(initial=end)))
