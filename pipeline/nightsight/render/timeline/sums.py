"""Sums of all events in equal time bins: the page computes statistics from them where it lacks exact events."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.intervals import Flags, Ints, covered, union
from nightsight.render.timeline.columns import Columns, columns
from nightsight.render.timeline.rows import TimelineEvents

MOST_BINS: Final = 4096
DOUBLINGS: Final = 8
# at least two bins remain after all doublings of the width
_LEAST_BINS: Final = 2 << DOUBLINGS
# limit for dense arrays of sums; above it, only sums that are not 0 are stored
_MOST_SUMS: Final = 1 << 21
# (doublings of the bin width, names per section and bin), the most detailed first
_FINENESS: Final = (
    *((0, 64), (1, 64), (1, 24), (2, 24), (2, 8), (3, 8), (4, 8), (5, 8), (6, 8), (6, 3), (7, 3)),
    (DOUBLINGS, 3),
)
# data larger than this many times the room will not fit even compressed
_DENSEST: Final = 4
# minimum uncompressed size of a cell or crossing event
_ENTRY_BYTES: Final = 3
# compressed size of a section's description
_SECTION_BYTES: Final = 20
Section = tuple[str, str]


@dataclass(frozen=True)
class Slots:
    """The names in each section that have separate sums. `count`: number of names that share a slot."""

    section: Ints
    name: Ints
    count: Ints


@dataclass(frozen=True)
class Cells:
    """Events by slot and bin of their start, sorted by both: their number and total duration (ns)."""

    slot: Ints
    bin: Ints
    count: Ints
    time: Ints


@dataclass(frozen=True)
class Crossings:
    """The events that extend over a bin edge, sorted by (row, start)."""

    row: Ints
    start: Ints
    end: Ints
    slot: Ints


@dataclass(frozen=True)
class Overlaps:
    """Per section and bin, only if above 0: the total event time in the bin minus the time in which any event runs."""

    section: Ints
    bin: Ints
    time: Ints


@dataclass(frozen=True)
class Sums:
    """All events by time bin; bin 0 starts at `begin_ns`. `sections` are (group, kind) of rows."""

    begin_ns: int
    width_ns: int
    bins: int
    sections: tuple[Section, ...]
    slots: Slots
    cells: Cells
    crossings: Crossings
    overlaps: Overlaps

    def coarser(self, doublings: int) -> "Sums":
        """Return the same sums with bins that are 2 ** `doublings` times as wide."""
        cells, overlaps, width = self.cells, self.overlaps, self.width_ns << doublings
        bins = ((self.bins - 1) >> doublings) + 1
        key, (time,) = _sum_by_key(overlaps.section * bins + (overlaps.bin >> doublings), overlaps.time)
        return replace(
            self,
            width_ns=width,
            bins=bins,
            cells=_cells(cells.slot, cells.bin >> doublings, bins, cells),
            crossings=_crossings(self.crossings, self.begin_ns, width),
            overlaps=Overlaps(key // bins, key % bins, time),
        )

    def with_names(self, most: float) -> "Sums":
        """Return the same sums with fewer names: beyond about `most` per bin, the names of a section are merged.

        Names with the most time per bin in which they occur are kept; the merged ones come last.
        """
        slots, new = _merge_slots(self.slots, self.cells, most * self.bins)
        cells, crossings = self.cells, self.crossings
        return replace(
            self,
            slots=slots,
            cells=_cells(new[cells.slot], cells.bin, self.bins, cells),
            crossings=replace(crossings, slot=new[crossings.slot]),
        )

    @cached_property
    def columns(self) -> Columns:
        """The packed columns; slots must be sorted (`with_names`).

        A place combines the owner (slot, row or section) and the bin or edge in one number. Places are ascending, so
        their differences are packed.
        """
        cells, crossings, overlaps = self.cells, self.crossings, self.overlaps
        edge = (crossings.start - self.begin_ns) // self.width_ns + 1
        return columns(
            {
                "name": self.slots.name,
                "cell": _increments(cells.slot * self.bins + cells.bin),
                "events": cells.count,
                "time": cells.time,
                "crossing": _increments(crossings.row * self.bins + edge),
                "slot": crossings.slot,
                "remainder": crossings.end - self.begin_ns - edge * self.width_ns,
                "overlap": _increments(overlaps.section * self.bins + overlaps.bin),
                "surplus": overlaps.time,
            }
        )

    @property
    def size(self) -> int:
        """The approximate size with the header, in bytes, compressed."""
        return self.columns.size + _SECTION_BYTES * len(self.sections)

    def header(self, at: int) -> dict[str, Any]:
        """Return the JSON description of the sums, whose columns start at byte `at` of the binary."""
        ends = np.searchsorted(self.slots.section, np.arange(len(self.sections)), side="right")
        columns = (np.diff(ends, prepend=0), self.slots.count[ends - 1])
        sections = [
            {"group": group, "kind": kind, "slots": count, "others": 0 if last == 1 else last}
            for (group, kind), count, last in zip(self.sections, *(column.tolist() for column in columns), strict=True)
        ]
        scale = {"from_ns": self.begin_ns, "width_ns": self.width_ns, "bins": self.bins}
        return {**scale, "sections": sections, **self.columns.header(at)}


def fitting(sums: Sums | None, room: float) -> Sums | None:
    """Return sums with bins as narrow, and names as many, as fit `room` bytes, compressed; None if nothing fits."""
    if sums is None:
        return None
    done = 0
    for doublings, names in _FINENESS:
        sums = sums.coarser(doublings - done).with_names(names)
        done = doublings
        if _ENTRY_BYTES * (len(sums.cells.bin) + len(sums.crossings.row)) <= _DENSEST * room and sums.size <= room:
            return sums
    return None


def _increments(places: Ints) -> Ints:
    return np.diff(places, prepend=0)


def sums_of(events: TimelineEvents, *, span_ns: int, origin_ns: int) -> Sums | None:
    """Sum up all events, with a bin edge at the origin; None if there are too many sections."""
    sections, section = _sections(events)
    most = min(MOST_BINS, _MOST_SUMS // len(sections))
    if most < _LEAST_BINS:
        return None
    begin, width = scale(span_ns, origin_ns, most)
    bins = (span_ns - begin) // width + 1
    slot, slots = _slots(events, section)
    place = events.start - begin
    place //= width
    crossings = _crossings(_last_of_bins(events, place, slot), begin, width)
    cells = _first_cells(slot, place, bins, events.end - events.start)
    # large arrays, not needed any more: lower the peak memory
    del slot, place
    sums = Sums(begin, width, bins, sections, slots, cells, crossings, _NO_OVERLAPS)
    return replace(sums, overlaps=_overlaps(events, section, sums))


_NO_OVERLAPS: Final = Overlaps(*np.empty((3, 0), dtype=np.int64))


def _sections(events: TimelineEvents) -> tuple[tuple[Section, ...], Ints]:
    """Return the sections in order of their first rows, and the section of each row."""
    keys = [(row.group, row.kind) for row in events.rows]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    return tuple(places), np.array([places[key] for key in keys], dtype=np.int64)


def scale(span_ns: int, origin_ns: int, most: int) -> tuple[int, int]:
    """Return the begin and the width of the bins; the width is a round number of ns, and the origin is a bin edge."""
    # the first bin can start before the capture, so that the origin stays an edge when bins are doubled
    least = span_ns // (most - (1 << DOUBLINGS) - 2) + 1
    unit = 10 ** (len(str(least)) - 1)
    width = next(step * unit for step in (1, 2, 4, 5, 8, 10) if step * unit >= least)
    return origin_ns - -(-origin_ns // (width << DOUBLINGS)) * (width << DOUBLINGS), width


def _slots(events: TimelineEvents, section: Ints) -> tuple[Ints, Slots]:
    """Give each name of a section a slot; return the slot of each event, and the slots."""
    name = np.array(events.labels.places, dtype=np.int64)
    names = int(name.max()) + 1
    pair = np.repeat(section * names, np.diff(events.bounds))
    pair += name[events.label]
    slot, pairs = pd.factorize(pair)
    return slot, Slots(pairs // names, pairs % names, np.ones(len(pairs), dtype=np.int64))


def _last_of_bins(events: TimelineEvents, place: Ints, slot: Ints) -> Crossings:
    """Return the events that can extend over an edge: per row, only the last to start in each bin."""
    ends = np.union1d(np.flatnonzero(place[1:] != place[:-1]), events.bounds[1:] - 1)
    # empty rows at the start have no last event
    last = ends[ends >= 0]
    row = np.searchsorted(events.bounds, last, side="right") - 1
    return Crossings(row, events.start[last], events.end[last], slot[last])


def _crossings(crossings: Crossings, begin_ns: int, width_ns: int) -> Crossings:
    """Return the events that extend over an edge of bins of this width."""
    next_edge = begin_ns + ((crossings.start - begin_ns) // width_ns + 1) * width_ns
    reach: Flags = crossings.end > next_edge
    return Crossings(crossings.row[reach], crossings.start[reach], crossings.end[reach], crossings.slot[reach])


def _first_cells(slot: Ints, place: Ints, bins: int, time: Ints) -> Cells:
    key = slot * bins
    key += place
    # a dense array would be too large: renumber the keys that occur
    if (int(slot.max()) + 1) * bins > _MOST_SUMS:
        key, keys = pd.factorize(key)
    else:
        keys = np.arange(int(key.max()) + 1)
    count = np.bincount(key)
    used = np.flatnonzero(count)
    cells = Cells(keys[used] // bins, keys[used] % bins, count[used], _sums(key, time)[used])
    return _cells(cells.slot, cells.bin, bins, cells)


def _cells(slot: Ints, place: Ints, bins: int, cells: Cells) -> Cells:
    """Return the cells at their new places; cells that share a place are added up."""
    key, (count, time) = _sum_by_key(slot * bins + place, cells.count, cells.time)
    return Cells(key // bins, key % bins, count, time)


def _sum_by_key(key: Ints, *values: Ints) -> tuple[Ints, list[Ints]]:
    """Add up the values of each key; return the sorted keys and their sums."""
    if not len(key):
        return key, list(values)
    # keys are often sorted already
    if (key[1:] < key[:-1]).any():
        order = np.argsort(key, kind="stable")
        key, values = key[order], tuple(value[order] for value in values)
    first = np.flatnonzero(np.diff(key, prepend=-1))
    return key[first], [np.add.reduceat(value, first) for value in values]


def _merge_slots(slots: Slots, cells: Cells, most: float) -> tuple[Slots, Ints]:
    """Sort the slots of each section and merge those beyond `most` cells; return the slots, and the new one of each."""
    size = np.bincount(cells.slot)
    # time per cell: the value of a name for its bytes
    density = np.bincount(cells.slot, cells.time) / size
    is_several = slots.count > 1
    order = np.lexsort((slots.name, -density, is_several, slots.section))
    section = slots.section[order]
    first = np.searchsorted(section, section)
    # a slot itself takes about as much space as one more cell
    size = size[order] + 1
    filled = np.cumsum(size)
    filled -= filled[first] - size[first]
    is_apart = (filled <= most) & ~is_several[order]
    # a new group starts with each section, and after each slot that stays separate
    begins = first == np.arange(len(first))
    begins[1:] |= is_apart[:-1]
    new = np.empty(len(order), dtype=np.int64)
    new[order] = np.cumsum(begins) - 1
    count = np.add.reduceat(slots.count[order], np.flatnonzero(begins))
    return Slots(section[begins], slots.name[order][begins], count), new


def _overlaps(events: TimelineEvents, section: Ints, sums: Sums) -> Overlaps:
    """Return total event time minus union time per bin, for sections of several rows: one row never overlaps itself."""
    time = _time_inside(section, sums)
    edges = sums.begin_ns + np.arange(sums.bins + 1) * sums.width_ns
    # the number of rows of each section
    rows = np.bincount(section, minlength=len(sums.sections))
    for number in np.flatnonzero(rows > 1).tolist():
        spans = [slice(*events.bounds[row : row + 2]) for row in np.flatnonzero(section == number).tolist()]
        start, end = (np.concatenate([times[span] for span in spans]) for times in (events.start, events.end))
        time[number] -= covered(union(start, end), edges[:-1], edges[1:])
    time[rows <= 1] = 0
    of, place = np.nonzero(time)
    return Overlaps(of, place, time[of, place])


def _time_inside(section: Ints, sums: Sums) -> Ints:
    """Return for each section and bin the total time of events inside the bin."""
    shape, width = (len(sums.sections), sums.bins), sums.width_ns
    cells, crossings = sums.cells, sums.crossings
    of = section[crossings.row]
    start, end = crossings.start - sums.begin_ns, crossings.end - sums.begin_ns
    first, last = start // width, (end - 1) // width

    def placed(place: Ints, time: Ints) -> Ints:
        return _grid(of, place, time, shape)

    # a cell counts a crossing event in its first bin with its full length: move the rest to the later bins
    time = _grid(sums.slots.section[cells.slot], cells.bin, cells.time, shape)
    time -= placed(first, end - (first + 1) * width)
    time += placed(last, end - last * width)
    # bins between the first and the last are filled completely: a running sum adds their width
    whole_bin = np.full(len(of), width)
    time += np.cumsum(placed(first + 1, whole_bin) - placed(last, whole_bin), axis=1)
    return time


def _grid(row: Ints, column: Ints, value: Ints, shape: tuple[int, int]) -> Ints:
    rows, columns = shape
    return _sums(row * columns + column, value, rows * columns).reshape(shape)


def _sums(key: Ints, value: Ints, least: int = 0) -> Ints:
    return np.bincount(key, value, least).astype(np.int64)
