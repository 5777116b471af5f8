"""Splits the time of each device by category: what ran, what was hidden behind it, and why the device was idle.

Categories take their time from the window one after the other, each only what earlier ones left, so the parts add up
to exactly the window.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.categories import Activity, Categories, call_causes, operation_categories
from nightsight.events.steps import device_steps
from nightsight.events.timeline import Timeline, busy_spans, by_device, function_names, of_capture, operation_column
from nightsight.events.unseen import graph_captures, unseen
from nightsight.events.window import START_UP
from nightsight.intervals import (
    NO_SPANS,
    NOTHING,
    Flags,
    Ints,
    Spans,
    clipped_union,
    covered,
    explained,
    gaps,
    in_order,
    length,
    separate,
    touches,
    union,
    without,
)
from nightsight.model.report import Profile
from nightsight.results.categories import BUSY, CAPTURE, DEPENDENCY, IDLE, LAUNCH, UNKNOWN, UNSEEN, group_of
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.system.parallel import memoize
from nightsight.tables import NULLABLE, compact, positions
from nightsight.units import format_value

# on an idle H200 a kernel starts 2 to 4 µs after its call; slow hosts need a few times as long
LATENCY_NS: Final = 10_000
# to compare the clocks of two GPUs: fewer launches prove nothing, and latency also depends on the place in the machine
_LEAST_LAUNCHES: Final = 10
_LEAST_OFFSET_NS: Final = 2_000
_MOST_FUNCTIONS: Final = 3


class CauseCalls(NamedTuple):
    """CUDA calls by the idle category they cause: `cause` is a position in IDLE, `name` one in `names`; times in ns.

    `rows`: those of each process and cause that take any time.
    """

    start: Ints
    end: Ints
    process: Ints
    thread: Ints
    cause: Categories
    name: Ints
    names: "pd.Index[Any]"
    rows: dict[tuple[int, int], Ints]


class Kinds(NamedTuple):
    """For every operation its category, as a position in BUSY, and its process."""

    kind: Ints
    process: Ints


class Gaps(NamedTuple):
    """Idle pieces of a device, each with the operation that ends it, and its call.

    Without such a call (-1), the call has length 0 at the end of the piece and thread -1; `is_lost` says that it was
    not recorded. `is_launch` marks pieces that end with a kernel or graph whose call is known; `late` is the latest
    time until which the launch can have been under way.
    """

    start: Ints
    end: Ints
    process: Ints
    operation: Ints
    call: Ints
    thread: Ints
    call_start: Ints
    call_end: Ints
    call_name: Ints
    is_lost: Flags
    is_launch: Flags
    late: Ints


class Latency(NamedTuple):
    """Launch latency on an idle GPU, from the start of the call to the start of the work: median, 95th percentile."""

    med_ns: float
    p95_ns: float


class _CauseLayer(NamedTuple):
    """Spans in any order that may explain idle time, and the functions (as in Calls) that cause them."""

    start: Ints
    end: Ints
    name: Ints


class SplitPart(NamedTuple):
    """The share of one category: its time, time hidden behind earlier categories, and time by function, in ns.

    by_step: its time in each of the device's steps.
    """

    category: str
    time_ns: int
    hidden_ns: int
    by_function: Ints
    by_step: Ints


@dataclass(frozen=True, eq=False)
class Waits:
    """The causes of a device's idle time: disjoint spans, in no order, each in one idle piece.

    `cause`: a position in IDLE, 8 bits wide. Of each piece, `begin`: its start; `process`: the process of the operation
    that ends it; `operation`: this operation, -1 for none; `call`, `thread`: the call that launched it (a row in
    api_calls), and its thread, -1 without a call.
    """

    start: Ints
    end: Ints
    cause: Categories
    begin: Ints
    process: Ints
    operation: Ints
    call: Ints
    thread: Ints

    @cached_property
    def piece(self) -> Ints:
        """The number of the idle piece of each span."""
        return np.searchsorted(self.begin, self.start, side="right") - 1


class Split(NamedTuple):
    """The time of a device by category, the starts and ends of its steps in ns, and the causes of its idle time.

    waits: None for a window that is combined from others.
    """

    parts: list[SplitPart]
    steps: tuple[Ints, Ints]
    waits: Waits | None = None


_EVENTS: Final = ("kernels", "memory_ops", "graph_launches", "api_calls", "ranges", "cpu_ops")


@memoize
def time_split(timeline: Timeline) -> Table:
    """Return one row per device and category that has any time; the rows of a device add up to the window."""
    calls, window_ns = causing_calls(timeline), timeline.window.length_ns
    rows = [
        {"device": device, **_row(part, calls, window_ns)}
        for device, split in device_splits(timeline).items()
        for part in split.parts
    ]
    notes = [*clock_notes(timeline)]
    if notes:
        notes.append(
            'For these GPUs, "launch" lasts until their own 95th percentile of launch latency, not for 10 µs after the '
            "call."
        )
    table = pd.DataFrame(rows, columns=TIME_SPLIT.column_names)
    return Table(table.astype({"hidden_ns": NULLABLE}), tuple(notes))


@memoize
def device_splits(timeline: Timeline) -> dict[int, Split]:
    """Return for each device the categories that have any time, and its steps."""
    # nothing may run during the start-up, but all GPUs wait for it
    is_start = timeline.window.name == START_UP
    devices = list(by_device(timeline)) if is_start else devices_at_work(timeline).tolist()
    split = _split_pieces if timeline.pieces else _split_device
    return {device: split(timeline, device) for device in devices}


def _split_device(timeline: Timeline, device: int) -> Split:
    calls, kinds, steps = causing_calls(timeline), operation_kinds(timeline), device_steps(timeline, device)
    parts, idle = _split_busy(timeline, kinds, steps, device=device)
    gaps = _find_gaps(timeline, kinds, calls, device=device, idle=idle)
    layers = []
    # one layer after the other: all of them take much memory
    for category, spans, by_function in cause_layers(gaps, calls, *_outside_calls(timeline, device)):
        parts.append(SplitPart(category, length(spans), 0, by_function, covered(spans, *steps)))
        layers.append((category, spans))
    return Split(list(_merge_parts(parts)), steps, _as_waits(gaps, layers))


def _split_pieces(timeline: Timeline, device: int) -> Split:
    """Add up the splits of the pieces of the window: the category of an instant does not depend on the window."""
    parts = []
    for sign, piece in timeline.pieces:
        split = device_splits(piece).get(device) or _split_device(piece, device)
        parts += [
            SplitPart(part.category, sign * part.time_ns, sign * part.hidden_ns, sign * part.by_function, NOTHING)
            for part in split.parts
        ]
    return Split(list(_merge_parts(parts)), NO_SPANS)


def find_waits(timeline: Timeline, *, device: int, idle: Spans) -> Waits:
    """Return the cause of each instant of the idle pieces of a device."""
    calls = causing_calls(timeline)
    gaps = _find_gaps(timeline, operation_kinds(timeline), calls, device=device, idle=idle)
    layers = cause_layers(gaps, calls, *_outside_calls(timeline, device))
    return _as_waits(gaps, [(category, spans) for category, spans, _ in layers])


def _as_waits(gaps: Gaps, layers: Sequence[tuple[str, Spans]]) -> Waits:
    start, end = (np.concatenate([NOTHING, *(spans[side] for _, spans in layers)]) for side in (0, 1))
    causes, counts = [IDLE.index(category) for category, _ in layers], [len(spans[0]) for _, spans in layers]
    cause = np.repeat(np.array(causes, dtype=np.int8), counts)
    processes, threads = compact(gaps.process), compact(gaps.thread)
    return Waits(start, end, cause, gaps.start, processes, gaps.operation, gaps.call, threads)


def window_waits(timeline: Timeline, *, device: int) -> Waits:
    """Return the cause of each instant of the window in which nothing ran on a device."""
    split = device_splits(timeline).get(device)
    if split is not None and split.waits is not None:
        return split.waits
    idle = gaps(busy_spans(timeline)[device], timeline.window.bounds)
    return find_waits(timeline, device=device, idle=idle)


def idle_causes(timeline: Timeline, *, device: int, piece: Ints) -> Ints:
    """Return the ns of idle pieces of a device by category: a row per piece, columns as in IDLE.

    piece: their positions among the pieces of the window in which nothing ran on the device, in ascending order.
    """
    found_waits = window_waits(timeline, device=device)
    is_chosen = np.zeros(len(found_waits.begin), dtype=bool)
    is_chosen[piece] = True
    rows = np.flatnonzero(is_chosen[found_waits.piece])
    place = np.searchsorted(piece, found_waits.piece[rows])
    times = np.zeros((len(piece), len(IDLE)), dtype=np.int64)
    np.add.at(times, (place, found_waits.cause[rows]), (found_waits.end - found_waits.start)[rows])
    return times


def activities(profile: Profile) -> dict[int, Activity]:
    """Return, for each device of a capture, the category of every instant from the first event to the last.

    The parts of *Where the time went* are the sums of these in the window.
    """
    timeline = Timeline.of(profile)
    if (bounds := profile.bounds(_EVENTS)) is None:
        return {}
    return {device: _activity(timeline, device, bounds) for device in by_device(timeline)}


def _activity(timeline: Timeline, device: int, bounds: tuple[int, int]) -> Activity:
    operations, kind, of_device = timeline.operations, operation_kinds(timeline).kind, by_device(timeline)[device]
    unassigned: Spans = (np.array([bounds[0]]), np.array([bounds[1]]))
    pieces = []
    for position in range(len(BUSY)):
        rows = of_device[kind[of_device] == position]
        spans = clipped_union(operations.start[rows], operations.end[rows], bounds)
        visible, unassigned = separate(unassigned, spans)
        pieces.append((visible[0], np.full(len(visible[0]), position, dtype=np.int8)))
    # the causes in the window are known
    outside = find_waits(timeline, device=device, idle=without(unassigned, timeline.window.spans))
    both = (window_waits(timeline, device=device), outside)
    pieces += [(waits.start, np.int8(len(BUSY)) + waits.cause) for waits in both]
    start, category = map(np.concatenate, zip(*pieces, strict=True))
    del pieces
    order = np.argsort(start, kind="stable")
    start, category = start[order], category[order]
    changes = np.diff(category, prepend=-1) != 0
    return Activity(np.append(start[changes], bounds[1]), category[changes])


def devices_at_work(timeline: Timeline) -> Ints:
    """Return the numbers of the devices on which anything ran in the window."""
    return np.array([device for device, spans in busy_spans(timeline).items() if len(spans[0])], dtype=np.int64)


def clock_notes(timeline: Timeline) -> tuple[str, ...]:
    """Return a note if the clocks of GPUs seem to be offset against each other."""
    offset = _offset_clocks(timeline)
    if not offset:
        return ()
    first, *_, last = sorted(offset, key=lambda device: offset[device].med_ns)
    medians = (f"{format_value(offset[device].med_ns, 'med_ns')} on GPU {device}" for device in (first, last))
    return (
        "Launch latency differs between GPUs by more than it varies on each of them (median "
        f"{' and '.join(medians)}): their clocks may be offset against each other, so do not compare these GPUs.",
    )


@memoize
def _offset_clocks(timeline: Timeline) -> dict[int, Latency]:
    """Return the GPUs whose median launch latency differs from another GPU's by more than either of them varies."""
    latencies, devices = [], devices_at_work(timeline)
    if len(devices) < 2:
        return {}
    for device in devices:
        idle = without(timeline.window.spans, busy_spans(timeline)[int(device)])
        kinds, calls = operation_kinds(timeline), causing_calls(timeline)
        endings = _end_operations(timeline, kinds, calls, device=device, idle=idle)
        # if the GPU was already idle when the call began, its work waited for nothing: this is pure latency
        is_pure = endings.is_launch & (endings.call_start >= endings.start)
        if is_pure.sum() >= _LEAST_LAUNCHES:
            latencies.append([device, *np.percentile((endings.end - endings.call_start)[is_pure], [5, 50, 95])])
    device, low, middle, high = np.array(latencies).reshape(-1, 4).T
    spread = np.maximum(high - low, _LEAST_OFFSET_NS)
    # compare every GPU with every other one
    is_apart = (np.abs(middle[:, None] - middle) > np.maximum(spread[:, None], spread)).any(axis=1)
    numbers = (column[is_apart].tolist() for column in (device, middle, high))
    return {int(one): Latency(median, most) for one, median, most in zip(*numbers, strict=True)}


@of_capture
def causing_calls(timeline: Timeline) -> CauseCalls:
    """Return all CUDA calls with the idle category they cause; none if the API was not traced."""
    table = timeline.profile.recorded("api_calls")
    names = function_names(timeline)
    cause = call_causes(timeline.profile)
    start, end, process, thread = (table[column].to_numpy() for column in ("start_ns", "end_ns", "process", "thread"))
    rows: dict[tuple[int, int], Ints] = {}
    for key, calls_of_process in positions(process).items():
        long_calls = calls_of_process[end[calls_of_process] > start[calls_of_process]]
        causes = cause[long_calls]
        rows |= {(key, position): long_calls[causes == position] for position in range(len(IDLE))}
    return CauseCalls(start, end, process, thread, cause, names.codes, names.categories, rows)


@of_capture
def operation_kinds(timeline: Timeline) -> Kinds:
    """Return the category and the process of every operation."""
    return Kinds(operation_categories(timeline.profile), operation_column(timeline, "process"))


def _split_busy(timeline: Timeline, kinds: Kinds, steps: Spans, *, device: int) -> tuple[list[SplitPart], Spans]:
    """Return the busy parts of the window, and the spans in which nothing ran."""
    operations, bounds, unassigned = timeline.operations, timeline.window.bounds, timeline.window.spans
    parts = []
    of_device = by_device(timeline)[device]
    start, end, kind = operations.start[of_device], operations.end[of_device], kinds.kind[of_device]
    for position, category in enumerate(BUSY):
        has_category = kind == position
        spans = clipped_union(start[has_category], end[has_category], bounds)
        visible, unassigned = separate(unassigned, spans)
        time = length(visible)
        # the rest of the category's own time ran behind earlier categories
        parts.append(SplitPart(category, time, length(spans) - time, NOTHING, covered(visible, *steps)))
    return parts, unassigned


def _find_gaps(timeline: Timeline, kinds: Kinds, calls: CauseCalls, *, device: int, idle: Spans) -> Gaps:
    """Find the operation that ends each idle piece; `late` allows for the offset of the device's clock."""
    endings, offset = _end_operations(timeline, kinds, calls, device=device, idle=idle), _offset_clocks(timeline)
    if device not in offset:
        return endings
    latest = endings.call_start + round(offset[device].p95_ns)
    return endings._replace(late=np.maximum(endings.call_end, latest))


def _end_operations(timeline: Timeline, kinds: Kinds, calls: CauseCalls, *, device: int, idle: Spans) -> Gaps:
    """Find the operation that ends each idle piece: the next to start, even if after the window."""
    operations, (start, end), of_device = timeline.operations, idle, _in_order(timeline)[device]
    following = np.searchsorted(operations.start[of_device], end, side="left")
    ends = following < len(of_device)
    ending = of_device[np.minimum(following, len(of_device) - 1)]
    call = np.where(ends, operations.call[ending], -1)
    call_end = _look_up(calls.end, call, end)
    return Gaps(
        start,
        end,
        kinds.process[ending],
        np.where(ends, ending, -1),
        call,
        _look_up(calls.thread, call, -1),
        _look_up(calls.start, call, end),
        call_end,
        _look_up(calls.name, call, 0),
        ends & (call < 0) & timeline.is_launched[ending],
        (call >= 0) & (operations.start[ending] == end) & ~operations.of("memory_ops")[ending],
        call_end + LATENCY_NS,
    )


@of_capture
def _in_order(timeline: Timeline) -> dict[int, Ints]:
    """Return the operations of each device, in order of start; of those that start together, by their calls."""
    operations, calls, latest = timeline.operations, causing_calls(timeline), np.iinfo(np.int64).max
    ordered = {}
    for device, of_device in by_device(timeline).items():
        times = (_look_up(times, operations.call[of_device], latest) for times in (calls.start, calls.end))
        ordered[device] = of_device[in_order(operations.start[of_device], *times)]
    return ordered


def _look_up(values: Ints, call: Ints, default: Ints | int) -> Ints:
    """Look up the value of each call; `default` without a call (-1)."""
    has_call = call >= 0
    if has_call.all():
        return values[call]
    result = np.broadcast_to(np.asarray(default, dtype=np.int64), call.shape).copy()
    result[has_call] = values[call[has_call]]
    return result


def _outside_calls(timeline: Timeline, device: int) -> tuple[Spans, Mapping[int, Spans]]:
    """Return when the activity of a device is unknown, and the graph captures of each process."""
    hidden = unseen(timeline.profile).get(device)
    return NO_SPANS if hidden is None else hidden.spans, graph_captures(timeline.profile)


def cause_layers(
    gaps: Gaps, calls: CauseCalls, hidden: Spans, captures: Mapping[int, Spans]
) -> Iterator[tuple[str, Spans, Ints]]:
    """Assign the idle pieces to one category after the other: yield category, spans, and its time by function in ns.

    Only calls of the process whose operation ends a piece can explain that piece. Functions that run at the same time
    can add up to more than the spans. hidden: when the activity of the device is unknown. captures: by process.
    """
    for process, own in positions(gaps.process).items():
        of_process = gaps if len(own) == len(gaps.process) else Gaps._make(column[own] for column in gaps)
        unassigned: Spans = (of_process.start, of_process.end)
        for category in IDLE[:-1]:
            layer = _CauseLayer(*hidden, NOTHING)
            if category != UNSEEN:
                layer = _cause_layer(category, of_process, calls, process=process)
            if category == CAPTURE:
                layer = _with_captures(layer, captures.get(process))
            # of calls, few can explain what is left
            if len(layer.name) > len(unassigned[0]):
                touching = np.flatnonzero(touches(unassigned, layer.start, layer.end))
                layer = _CauseLayer(*(column[touching] for column in layer))
            spans = union(layer.start, layer.end)
            if len(spans[0]):
                pieces, rest, place = explained(unassigned, spans)
                yield category, pieces, _by_function(layer, spans, unassigned, pieces, place)
                unassigned = rest
        # host code: the rest
        yield IDLE[-1], unassigned, NOTHING


def _by_function(layer: _CauseLayer, spans: Spans, unassigned: Spans, pieces: Spans, place: Ints) -> Ints:
    """Return the ns of each function in idle time that was unassigned before.

    pieces: those of it that a layer explains. place: the position in `spans`, the union of the layer, of each.
    """
    if not len(layer.name):
        return NOTHING
    if spans[0] is layer.start:
        # their union is the calls themselves, one at a time: each piece belongs to one of them
        name, times = layer.name[place], pieces[1] - pieces[0]
    else:
        name, times = layer.name, covered(unassigned, layer.start, layer.end)
    return np.bincount(name, times).astype(np.int64)


def _cause_layer(category: str, gaps: Gaps, calls: CauseCalls, *, process: int) -> _CauseLayer:
    """Return the spans that explain idle time by `category`."""
    if category == LAUNCH:
        start, end = np.maximum(gaps.start, gaps.call_start), np.minimum(gaps.end, gaps.late)
        return _CauseLayer(*(column[end > start] for column in (start, end, gaps.call_name)))
    if category == DEPENDENCY:
        queued = gaps.late < gaps.end
        return _CauseLayer(np.maximum(gaps.start, gaps.late)[queued], gaps.end[queued], NOTHING)
    if category == UNKNOWN:
        # a process without any recorded call was not traced
        lost = gaps.is_lost | ((process, 0) not in calls.rows)
        return _CauseLayer(gaps.start[lost], gaps.end[lost], NOTHING)
    rows = calls.rows.get((process, IDLE.index(category)), NOTHING)
    return _CauseLayer(calls.start[rows], calls.end[rows], calls.name[rows])


def _with_captures(layer: _CauseLayer, spans: Spans | None) -> _CauseLayer:
    """Add the time between the begin and the end of stream captures to that of the calls."""
    if spans is None or not len(spans[0]):
        return layer
    # time outside of calls has no function, so none of the layer gets one
    return _CauseLayer(np.append(layer.start, spans[0]), np.append(layer.end, spans[1]), NOTHING)


def _merge_parts(parts: list[SplitPart]) -> Iterator[SplitPart]:
    """Add up the parts of all processes per category, and leave out categories without time."""
    for category in (*BUSY, *IDLE):
        of_category = [part for part in parts if part.category == category]
        time, hidden = sum(part.time_ns for part in of_category), sum(part.hidden_ns for part in of_category)
        by_function = np.zeros(max((len(part.by_function) for part in of_category), default=0), dtype=np.int64)
        for part in of_category:
            by_function[: len(part.by_function)] += part.by_function
        if time or hidden:
            yield SplitPart(category, time, hidden, by_function, np.sum([part.by_step for part in of_category], axis=0))


def _row(part: SplitPart, calls: CauseCalls, window_ns: int) -> dict[str, object]:
    functions = np.flatnonzero(part.by_function > 0)
    by_function = dict(zip(calls.names[functions], part.by_function[functions].tolist(), strict=True))
    largest = sorted(by_function, key=lambda name: (-by_function[name], name))[:_MOST_FUNCTIONS]
    return {
        "group": group_of(part.category),
        "category": part.category,
        "time_ns": part.time_ns,
        "share_pct": 100.0 * part.time_ns / window_ns,
        "hidden_ns": part.hidden_ns if part.category in BUSY else None,
        "functions": ", ".join(largest),
    }


ANALYSES: Final = (Analysis(TIME_SPLIT, time_split),)
