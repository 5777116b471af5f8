"""Assigns the events of a profile to timeline rows: first GPUs with their streams, then processes with threads."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from nightsight.events.categories import call_causes, operation_categories
from nightsight.events.graph_layers import ON_STREAM, graph_layers
from nightsight.events.launches import GPU_TABLES, launching_calls
from nightsight.intervals import NOTHING, Codes, Flags, Ints
from nightsight.model.report import Profile
from nightsight.render.timeline.labels import EventLabels, concatenate, label_events
from nightsight.render.timeline.lanes import nested_lanes, separate_lanes
from nightsight.render.tracks import LAYERS, MARKS, OS_CALLS, PYTHON, Places
from nightsight.results.categories import BUSY, IDLE, LAUNCH, OTHER_CALL
from nightsight.system.parallel import memoize, thread_map
from nightsight.tables import ANNOTATION, START_END, combinations, integers

RowKind = Literal["layer", "kernel", "fault", "range", "mark", "python", "op", "api", "os"]
MOST_ROWS: Final = 150
_THREAD_BITS: Final = 0xFFFFFF


@dataclass(frozen=True)
class TimelineRow:
    """A row of the timeline: its group, and its label within the group."""

    group: str
    label: str
    kind: RowKind


@dataclass(frozen=True)
class TimelineEvents:
    """The events to draw: one array entry each, sorted by (row, start); no two events of a row overlap.

    Times are the profile's, in ns. `bounds`: the first event of each row, and the end of the last row. `label`: an
    index into `labels`. `launch`: the index here of the call that launched each event, or -1. `total` and `total_rows`
    count all events and rows, drawn or not. `left_out`: sentences on events that are not included. `collective`: the
    number of the collective of each event, or -1; None if there are none.
    """

    rows: tuple[TimelineRow, ...]
    bounds: Ints
    start: Ints
    end: Ints
    label: Codes
    labels: EventLabels
    launch: Codes
    total: int
    total_rows: int
    left_out: tuple[str, ...] = ()
    collective: Ints | None = None

    @cached_property
    def row(self) -> Ints:
        """The row of each event."""
        return np.repeat(np.arange(len(self.rows)), np.diff(self.bounds))


@dataclass(frozen=True)
class _RowSort:
    """One kind of row: the tables of its events, the keys of their owner, and how they are assigned to rows (lanes)."""

    kind: RowKind
    tables: tuple[str, ...]
    keys: tuple[str, ...]
    lanes: Callable[[Ints, Ints, Ints], Ints]
    title: str = ""
    is_start_end: bool = False


_ON_THREAD: Final = ("process", "thread")
_NVTX: Final = "NVTX"
# the label of torch.profiler's ranges from record_function, and of its steps
_ANNOTATIONS: Final = "user ranges"
_SORTS: Final = (
    _RowSort("layer", (LAYERS,), ON_STREAM, nested_lanes),
    _RowSort("kernel", GPU_TABLES, ON_STREAM, separate_lanes),
    _RowSort("fault", ("gpu_page_faults",), ("device",), separate_lanes, "Page faults"),
    _RowSort("range", ("ranges",), ("process",), nested_lanes, "Start/end ranges", is_start_end=True),
    _RowSort("range", ("ranges",), _ON_THREAD, nested_lanes, _NVTX),
    _RowSort("mark", (MARKS,), _ON_THREAD, separate_lanes, "NVTX marks"),
    _RowSort("mark", ("cpu_page_faults",), ("process",), separate_lanes, "CPU page faults"),
    _RowSort("python", (PYTHON,), _ON_THREAD, nested_lanes, "Python"),
    _RowSort("op", ("cpu_ops",), _ON_THREAD, nested_lanes, "operators"),
    _RowSort("api", ("api_calls",), _ON_THREAD, nested_lanes, "CUDA API"),
    _RowSort("os", (OS_CALLS,), _ON_THREAD, nested_lanes, "OS runtime"),
)
OF_GPUS: Final = ("layer", "kernel", "fault")
"""Kinds of rows that belong to a GPU."""
# calls of the operating system are drawn on threads that have events of these tables, from the first event to the last,
# and at most this many of them, or a quarter of these events. Without a limit, they would make the events of large
# captures inexact
_AT_WORK: Final = ("api_calls", "ranges", "cpu_ops")
_MOST_OS_CALLS: Final = 20_000
_OS_CALLS_NS: Final = {
    0: "",
    1_000: " of at least 1 µs",
    10_000: " of at least 10 µs",
    100_000: " of at least 100 µs",
    1_000_000: " of at least 1 ms",
    10_000_000: " of at least 10 ms",
    100_000_000: " of at least 100 ms",
}


@dataclass(frozen=True)
class _LaidEvents:
    """The events of one sort, sorted by (row, start); `owners[owner[row]]` are the keys of a row's owner.

    `source`: the position of each event in the concatenated tables of this sort.
    """

    sort: _RowSort
    start: Ints
    end: Ints
    label: Codes
    source: Ints
    bounds: Ints
    owner: Ints
    lane: Ints
    owners: list[tuple[int, ...]]
    labels: EventLabels

    @cached_property
    def busy(self) -> Ints:
        """The total duration of the events of each row, in ns."""
        return np.add.reduceat(self.end - self.start, self.bounds[:-1]) if len(self.owner) else self.owner


def lay_events(profile: Profile, *, most_rows: int = MOST_ROWS, collective: Ints | None = None) -> TimelineEvents:
    """Assign the events of a profile to rows; if there are more than `most_rows`, keep the busiest rows.

    collective: the collective of each GPU operation, see `TimelineEvents`.
    """
    laid = list(thread_map(lambda sort: _lay(profile, sort), _SORTS, rows=profile.rows))
    places = _Naming(profile, laid)
    chosen = sorted(_busiest(laid, most_rows), key=places.order)
    events, source = _join_rows(profile, laid, chosen, places)
    if collective is None:
        return events
    of_events = np.full(len(source), -1, dtype=np.int64)
    operations = _positions(events.rows, events.bounds, "kernel")
    of_events[operations] = collective[source[operations]]
    return replace(events, collective=of_events)


def merge_events(sides: Sequence[tuple[str, TimelineEvents]]) -> TimelineEvents:
    """Merge the events of several profiles on one time axis: the GPUs of all sides, then the processes of all sides.

    Each side has a title, which precedes the names of its groups.
    """
    events_of_sides = [events for _, events in sides]
    # of each side, the rows of GPUs come first
    gpus = [sum(row.kind in OF_GPUS for row in events.rows) for events in events_of_sides]
    pieces = [(side, 0, gpus[side]) for side in range(len(events_of_sides))]
    pieces += [(side, gpus[side], len(events.rows)) for side, events in enumerate(events_of_sides)]
    spans = [
        (int(events_of_sides[side].bounds[first]), int(events_of_sides[side].bounds[last]))
        for side, first, last in pieces
    ]
    places = np.cumsum([0, *(end - begin for begin, end in spans)])
    labels = np.cumsum([0, *(len(events.labels.names) for events in events_of_sides)])
    # the new position of each event of a side, and one more entry for the launch -1
    new_places = [np.full(len(events.start) + 1, -1, dtype=np.int64) for events in events_of_sides]
    for (side, _, _), (begin, end), place in zip(pieces, spans, places, strict=False):
        new_places[side][begin:end] = np.arange(place, place + end - begin)

    def gathered(values: Sequence[Ints]) -> Ints:
        return np.concatenate(
            [values[side][begin:end] for (side, _, _), (begin, end) in zip(pieces, spans, strict=True)]
        )

    counts = [np.diff(events_of_sides[side].bounds[first : last + 1]) for side, first, last in pieces]
    return TimelineEvents(
        tuple(
            replace(row, group=f"{sides[side][0]}: {row.group}")
            for side, first, last in pieces
            for row in events_of_sides[side].rows[first:last]
        ),
        np.concatenate(([0], np.cumsum(np.concatenate(counts)))).astype(np.int64),
        gathered([events.start for events in events_of_sides]),
        gathered([events.end for events in events_of_sides]),
        gathered([events.label + shift for events, shift in zip(events_of_sides, labels, strict=False)]),
        concatenate(events.labels for events in events_of_sides),
        gathered([new_places[side][events.launch] for side, events in enumerate(events_of_sides)]),
        sum(events.total for events in events_of_sides),
        sum(events.total_rows for events in events_of_sides),
        tuple(dict.fromkeys(sentence for events in events_of_sides for sentence in events.left_out)),
    )


def _lay(profile: Profile, sort: _RowSort) -> _LaidEvents:
    all_frames = [(name, _drawn_events(profile, name)) for name in sort.tables]
    frames = [(name, frame) for name, frame in all_frames if len(frame)]
    rows = [_rows_of_sort(frame, sort) for _, frame in frames]

    def joined(columns: Iterable[Ints]) -> Ints:
        parts = [column if row is None else column[row] for column, row in zip(columns, rows, strict=True)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [NOTHING])

    start, end = (joined(frame[name].to_numpy() for _, frame in frames) for name in ("start_ns", "end_ns"))
    end = np.maximum(start, end)
    codes, labels = _labels(profile, frames)
    group, owners = combinations([joined(integers(frame[key]) for _, frame in frames) for key in sort.keys])
    # separate lanes need short events first, nested lanes long ones
    order = _order(group, start, end if sort.lanes is separate_lanes else -end)
    group, start, end = group[order], start[order], end[order]
    lane = sort.lanes(group, start, end)
    again, owner, lane, bounds = _by_lane(group, lane)
    label = joined(codes)
    order = order[again]
    return _LaidEvents(sort, start[again], end[again], label[order], order, bounds, owner, lane, owners, labels)


def _drawn_events(profile: Profile, name: str) -> pd.DataFrame:
    """Return the events of a table that are drawn."""
    if name == LAYERS:
        return graph_layers(profile)
    frame = profile.recorded(name)
    if name == "cpu_page_faults" and len(frame):
        return frame.assign(start_ns=frame["time_ns"], end_ns=frame["time_ns"])
    return frame[_os_calls(profile)[0]] if name == OS_CALLS and len(frame) else frame


@memoize
def _os_calls(profile: Profile) -> tuple[Flags, tuple[str, ...]]:
    """Return which calls of the operating system are drawn, and a sentence on those that are not.

    Most threads only wait. On the others, short calls are left out if there are too many.
    """
    calls = profile.recorded(OS_CALLS)
    tables = [profile.tables[name] for name in _AT_WORK if name in profile.tables]
    threads = pd.unique(np.concatenate([NOTHING, *(table["thread"] for table in tables)]))
    is_drawn: Flags = calls["thread"].isin(threads).to_numpy() if len(threads) else np.ones(len(calls), dtype=bool)
    if bounds := profile.bounds((*_AT_WORK, *GPU_TABLES)):
        is_drawn = is_drawn & ((calls["start_ns"] >= bounds[0]) & (calls["end_ns"] <= bounds[1])).to_numpy()
    length = (calls["end_ns"] - calls["start_ns"]).to_numpy()
    most = max(_MOST_OS_CALLS, sum(map(len, tables)) // 4)
    least = next((least for least in _OS_CALLS_NS if (is_drawn & (length >= least)).sum() <= most), max(_OS_CALLS_NS))
    is_drawn = is_drawn & (length >= least)
    if is_drawn.all():
        return is_drawn, ()
    which = f"{_OS_CALLS_NS[least]}{' on threads with CUDA calls, ranges or operators' if len(threads) else ''}"
    return is_drawn, (
        f"Of calls of the operating system, only those{which} are drawn, from the first event to the last.",
    )


_Order = Ints | slice
_ALL: Final = slice(None)


def _rows_of_sort(frame: pd.DataFrame, sort: _RowSort) -> Ints | None:
    """Return the rows of a table that belong to this sort; None for all, which avoids a copy."""
    if "style" not in frame:
        return None
    style = frame["style"].cat
    code = style.categories.get_loc(START_END) if START_END in style.categories else -1
    is_start_end = style.codes.to_numpy() == code
    return np.flatnonzero(is_start_end == sort.is_start_end)


def _labels(profile: Profile, frames: Sequence[tuple[str, pd.DataFrame]]) -> tuple[list[Ints], EventLabels]:
    labeled = [label_events(table, frame, _categories(profile, table, len(frame))) for table, frame in frames]
    shift = np.cumsum([0, *(len(labels.names) for _, labels in labeled)])
    # the labels of all tables are concatenated, so each table's label numbers are shifted
    codes = [(code + before).astype(np.int32) for (code, _), before in zip(labeled, shift, strict=False)]
    return codes, concatenate(labels for _, labels in labeled)


def _categories(profile: Profile, table: str, count: int) -> Ints:
    """Return the category of each event of a table: a position in (*BUSY, *IDLE), -1 for none, as for other calls."""
    if table in GPU_TABLES:
        before = sum(len(profile.recorded(name)) for name in GPU_TABLES[: GPU_TABLES.index(table)])
        return operation_categories(profile)[before : before + count]
    if table != "api_calls":
        return np.full(count, -1, dtype=np.int8)
    cause, call = call_causes(profile), launching_calls(profile)
    launches = np.zeros(count, dtype=bool)
    launches[call[call >= 0]] = True
    is_other = cause == IDLE.index(OTHER_CALL)
    category = cause + np.int8(len(BUSY))
    category[launches & is_other] = len(BUSY) + IDLE.index(LAUNCH)
    category[is_other & ~launches] = -1
    return category


def _order(group: Ints, start: Ints, then: Ints) -> Ints:
    """Return the order by (group, start, then); tables are usually sorted by time, which makes this fast."""
    order = np.arange(len(start)) if (start[1:] >= start[:-1]).all() else np.argsort(start, kind="stable")
    if len(group) and group.max() > 0:
        # numpy sorts 16-bit integers with a radix sort
        order = order[np.argsort(_small(group)[order], kind="stable")]
    wrong = (np.diff(start[order]) == 0) & (np.diff(then[order]) < 0) & (np.diff(group[order]) == 0)
    return np.lexsort((then, start, group)) if wrong.any() else order


def _by_lane(group: Ints, lane: Ints) -> tuple[_Order, Ints, Ints, Ints]:
    """Return the order by (group, lane), the group and lane of each row, and the bounds of the rows."""
    again: _Order = _ALL
    if lane.any():
        place = group * (int(lane.max()) + 1) + lane
        again = np.argsort(_small(place), kind="stable")
        group, lane = group[again], lane[again]
    first = np.flatnonzero((np.diff(group, prepend=-1) != 0) | (np.diff(lane, prepend=-1) != 0))
    return again, group[first], lane[first], np.append(first, len(group))


def _small(values: Ints) -> np.ndarray[Any, Any]:
    return values.astype(np.uint16) if values.max() < 1 << 16 else values


_Place = tuple[int, int]
"""A row: the index of its sort, and its index within that sort."""


def _busiest(laid: Sequence[_LaidEvents], most: int) -> list[_Place]:
    """Return the busiest rows; GPU rows get at least half of the places if there are that many."""
    places = [(sort, row) for sort, laid_sort in enumerate(laid) for row in range(len(laid_sort.owner))]
    if len(places) <= most:
        return places
    busy = np.concatenate(
        [_rank(laid_sort, laid) if laid_sort.sort.kind in _BY_THREAD else laid_sort.busy for laid_sort in laid]
    )
    by_time = [places[place] for place in np.argsort(-busy, kind="stable")]
    of_gpus = [place for place in by_time if laid[place[0]].sort.kind in OF_GPUS]
    # a layer without its kernels says little
    of_gpus.sort(key=lambda place: laid[place[0]].sort.kind == "layer")
    of_threads = [place for place in by_time if laid[place[0]].sort.kind not in OF_GPUS]
    # GPU rows also get the places that threads do not need
    for_gpus = max(most - len(of_threads), most // 2)
    return of_gpus[:for_gpus] + of_threads[: most - len(of_gpus[:for_gpus])]


_BY_THREAD: Final = ("mark", "python", "os")


def _rank(ranked: _LaidEvents, laid: Sequence[_LaidEvents]) -> Ints:
    """Return the rank of rows of marks, which have no duration, and of Python and waits, which run nearly all the time.

    The first row of each thread has the rank of the thread's busiest other row; further rows come last. Page faults of
    the CPU do not belong to a thread, and come first.
    """
    busiest: dict[tuple[int, ...], int] = {}
    for other in laid:
        if other.sort.kind not in _BY_THREAD:
            for owner, busy in zip(other.owner.tolist(), other.busy.tolist(), strict=True):
                busiest[other.owners[owner]] = max(busy, busiest.get(other.owners[owner], 0))
    most = max(busiest.values(), default=0)
    of_owner = np.array([busiest.get(owner, most if len(owner) == 1 else 0) for owner in ranked.owners], dtype=np.int64)
    return np.where(ranked.lane == 0, of_owner[ranked.owner], 0)


class _Naming:
    """Names and order of the rows: GPUs before processes; within each, the busiest stream or thread first."""

    def __init__(self, profile: Profile, laid: Sequence[_LaidEvents]) -> None:
        self._places = Places(profile)
        self._laid = laid
        self._busy: dict[tuple[int, ...], int] = {}
        for laid_sort in laid:
            # waits do not show how busy a thread is, Python is always in a function, and layers repeat kernels
            busy = laid_sort.busy * (laid_sort.sort.kind not in ("os", "python", "layer"))
            sums = np.bincount(laid_sort.owner, busy, len(laid_sort.owners)).tolist() if len(laid_sort.owner) else []
            for owner, total in zip(laid_sort.owners, sums, strict=True):
                self._busy[owner] = self._busy.get(owner, 0) + total
        gpus = {owner[:3] for laid_sort in laid if laid_sort.sort.kind == "kernel" for owner in laid_sort.owners}
        self._many_processes = len({process for _, process, _ in gpus}) > 1
        self._many_contexts = len({context for _, _, context in gpus}) > 1
        styles = profile.tables["ranges"]["style"] if "ranges" in profile.tables else pd.Series(dtype="str")
        self._ranges = _ANNOTATIONS if (styles == ANNOTATION).any() else _NVTX

    def _of(self, place: _Place) -> tuple[_RowSort, tuple[int, ...], int]:
        laid_sort = self._laid[place[0]]
        return laid_sort.sort, laid_sort.owners[laid_sort.owner[place[1]]], int(laid_sort.lane[place[1]])

    def order(self, place: _Place) -> tuple[float, ...]:
        """Return the sort key of a row."""
        sort, owner, lane = self._of(place)
        is_of_gpu = sort.kind in OF_GPUS
        where = (0, owner[0]) if is_of_gpu else (1, self._pid(owner[0]))
        # rows without a thread come first in their process, page faults of a GPU come last; then owners by busy
        # time, then kinds of rows
        whose = sort.kind == "fault" if is_of_gpu else len(owner) - len(_ON_THREAD)
        return (*where, *owner[: 0 if is_of_gpu else 1], whose, -self._busy[owner], *owner, place[0], lane)

    def row(self, place: _Place) -> TimelineRow:
        """Return the group and label of a row."""
        sort, owner, lane = self._of(place)
        further = f" ({lane + 1})" if lane else ""
        if sort.kind in ("kernel", "layer"):
            title = f", {self._ranges}" if sort.kind == "layer" else ""
            return TimelineRow(self._places.gpu(owner[0])[1], f"{self._stream(owner)}{title}{further}", sort.kind)
        if sort.kind == "fault":
            return TimelineRow(self._places.gpu(owner[0])[1], f"{sort.title}{further}", sort.kind)
        thread = f"{self._thread(owner)}, " if len(owner) > 1 else ""
        title = self._ranges if sort.title == _NVTX else sort.title
        return TimelineRow(f"Process {self._pid(owner[0])}", f"{thread}{title}{further}", sort.kind)

    def _pid(self, process: int) -> int:
        # a process can have page faults and nothing else
        return self._places.pids.get(process, process)

    def _stream(self, owner: Sequence[int]) -> str:
        _, process, context, stream = owner
        of_process = process in self._places.pids and self._many_processes
        parts = [f"process {self._places.pids[process]}"] if of_process else []
        parts += [f"context {context}"] if self._many_contexts else []
        text = ", ".join([*parts, f"stream {stream}"])
        return text[:1].upper() + text[1:]

    def _thread(self, owner: Sequence[int]) -> str:
        process, thread = owner
        # the low bits of an nsys thread key are the thread id; a Kineto key is the thread id
        tid = thread & _THREAD_BITS
        name = self._places.thread((process, thread, tid), 0).name
        return {"thread": f"Thread {tid}", "main thread": "Main thread"}.get(name, name)


def _join_rows(
    profile: Profile, laid: Sequence[_LaidEvents], chosen: Sequence[_Place], naming: _Naming
) -> tuple[TimelineEvents, Ints]:
    """Return the events of the chosen rows, and the position of each in the tables of its sort."""

    def gather(name: str) -> Ints:
        parts = [getattr(laid[sort], name)[slice(*laid[sort].bounds[row : row + 2])] for sort, row in chosen]
        return np.concatenate(parts or [NOTHING])

    counts = [int(np.diff(laid[sort].bounds[row : row + 2])[0]) for sort, row in chosen]
    rows = tuple(map(naming.row, chosen))
    bounds = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    shift = np.cumsum([0, *(len(laid_sort.labels.names) for laid_sort in laid)])
    # as in `_labels`, now for the labels of all sorts
    label = gather("label") + np.repeat([shift[sort] for sort, _ in chosen], counts).astype(np.int32)
    source = gather("source")
    events = TimelineEvents(
        rows,
        bounds,
        gather("start"),
        gather("end"),
        label,
        concatenate(laid_sort.labels for laid_sort in laid),
        _launches(profile, rows, bounds, source),
        sum(len(laid_sort.start) for laid_sort in laid),
        sum(len(laid_sort.owner) for laid_sort in laid),
        _os_calls(profile)[1],
    )
    return events, source


def _launches(profile: Profile, rows: Sequence[TimelineRow], bounds: Ints, source: Ints) -> Codes:
    """Return the position of the call that launched each event, or the graph of a layer; -1 if none is drawn."""
    calls, operations = _positions(rows, bounds, "api"), _positions(rows, bounds, "kernel")
    calls_of_events = np.full(len(source), -1, dtype=np.int32)
    if len(calls) and len(operations):
        # one extra entry: index -1 represents operations without a call
        place_of_call = np.full(len(profile.table("api_calls")) + 1, -1, dtype=np.int32)
        place_of_call[source[calls]] = calls
        calls_of_events[operations] = place_of_call[launching_calls(profile)[source[operations]]]
        layers = _positions(rows, bounds, "layer")
        if len(layers):
            calls_of_events[layers] = place_of_call[graph_layers(profile)["call"].to_numpy()[source[layers]]]
    return calls_of_events


def _positions(rows: Sequence[TimelineRow], bounds: Ints, kind: RowKind) -> Ints:
    spans: Iterator[Ints] = (np.arange(*bounds[i : i + 2]) for i, row in enumerate(rows) if row.kind == kind)
    return np.concatenate([NOTHING, *spans])
