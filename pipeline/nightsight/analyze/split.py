"""Where the time of each device went: what ran, what was hidden behind it, and why the device was idle otherwise.

Categories take their time from the window one after the other. Each gets only what earlier ones left, so the parts add
up to exactly the window.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.categories import Categories, Spent, call_causes, operation_categories
from nightsight.events.names import api_names
from nightsight.events.steps import device_steps
from nightsight.events.timeline import Timeline, busy_spans, by_device, of_capture, operation_column, positions
from nightsight.events.unseen import graph_captures, unseen
from nightsight.events.window import START_UP
from nightsight.intervals import Flags, Ints, Spans, covered, in_order, inside, length, touches, union, without
from nightsight.model.report import Profile
from nightsight.results.categories import BUSY, CAPTURE, DEPENDENCY, IDLE, LAUNCH, UNKNOWN, UNSEEN, group_of
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.system.parallel import once
from nightsight.tables import NULLABLE, empty, renamed
from nightsight.units import format_value

# on an idle H200 a kernel starts 2 to 4 µs after its call; slow hosts need a few times as long
_LATENCY_NS: Final = 10_000
# to compare the clocks of two GPUs: fewer launches prove nothing, and latency also depends on the place in the machine
_LEAST_LAUNCHES: Final = 10
_LEAST_OFFSET_NS: Final = 2_000
_MOST_FUNCTIONS: Final = 3


class Calls(NamedTuple):
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


class _Facts(NamedTuple):
    """For every operation its category, as a position in BUSY, and its process."""

    kind: Ints
    process: Ints


class _Gaps(NamedTuple):
    """Idle pieces of a device, each with the call that launched the operation that ends it.

    Without such a call (-1), the call has length 0 at the end of the piece and thread -1; `is_lost` says that it was
    not recorded. `is_launch` marks pieces that end with a kernel or graph whose call is known; `late` is the latest
    time until which the launch can have been under way.
    """

    start: Ints
    end: Ints
    process: Ints
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


class _Layer(NamedTuple):
    """Spans in any order that may explain idle time, and the functions (as in Calls) that cause them."""

    start: Ints
    end: Ints
    name: Ints


class Part(NamedTuple):
    """The share of one category: its time, time hidden behind earlier categories, and time by function, in ns.

    by_step: its time in each of the device's steps.
    """

    category: str
    time_ns: int
    hidden_ns: int
    by_function: Ints
    by_step: Ints


class Waits(NamedTuple):
    """What a device waited for while it was idle: disjoint spans, in no order, each in one idle piece.

    `piece`: which. `cause`: a position in IDLE, 8 bits wide. For each piece, `process`: that of the operation that ends
    it. `call`, `thread`: the call that launched this operation (a row in api_calls), and its thread; -1 if no call did.
    """

    start: Ints
    end: Ints
    piece: Ints
    cause: Categories
    process: Ints
    call: Ints
    thread: Ints


class Split(NamedTuple):
    """Where the time of a device went, when its steps begin and end, in ns, and what it waited for while it was idle.

    waits: None for a window that is put together from others.
    """

    parts: list[Part]
    steps: tuple[Ints, Ints]
    waits: Waits | None = None


# a category, the idle spans before and after it took its time, and its time by function
_Taken = tuple[str, Spans, Spans, Ints]
_EVENTS: Final = ("kernels", "memory_ops", "graph_launches", "api_calls", "ranges", "cpu_ops")
_NONE: Final = np.empty(0, dtype=np.int64)
_LATEST: Final = np.iinfo(np.int64).max


@once
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


@once
def device_splits(timeline: Timeline) -> dict[int, Split]:
    """Return for each device the categories that have any time, and its steps."""
    # nothing may run during the start-up, but all GPUs wait for it
    is_start = timeline.window.name == START_UP
    devices = list(by_device(timeline)) if is_start else devices_at_work(timeline).tolist()
    split = _of_pieces if timeline.pieces else _of_device
    return {device: split(timeline, device) for device in devices}


def _of_device(timeline: Timeline, device: int) -> Split:
    calls, facts, steps = causing_calls(timeline), _facts(timeline), device_steps(timeline, device)
    parts, idle = _busy(timeline, facts, steps, device=device)
    gaps = _gaps(timeline, facts, calls, device=device, idle=idle)
    found = []
    # one layer after the other: all of them take much memory
    for category, rest, left, by_function in _layers(timeline, gaps, calls, device=device):
        parts.append(Part(category, length(rest) - length(left), 0, by_function, _by_step(rest, left, steps)))
        found.append(_taken(category, rest, left))
    return Split(list(_added(parts)), steps, _explained(gaps, found))


def _of_pieces(timeline: Timeline, device: int) -> Split:
    """Add up what is known of the pieces of the window: the category of an instant does not depend on the window."""
    parts = []
    for sign, piece in timeline.pieces:
        split = device_splits(piece).get(device) or _of_device(piece, device)
        parts += [
            Part(part.category, sign * part.time_ns, sign * part.hidden_ns, sign * part.by_function, _NONE)
            for part in split.parts
        ]
    return Split(list(_added(parts)), (_NONE, _NONE))


def waits(timeline: Timeline, *, device: int, idle: Spans) -> Waits:
    """Return what explains each instant of the idle pieces of a device."""
    calls = causing_calls(timeline)
    gaps = _gaps(timeline, _facts(timeline), calls, device=device, idle=idle)
    layers = _layers(timeline, gaps, calls, device=device)
    return _explained(gaps, [_taken(category, rest, left) for category, rest, left, _ in layers])


def _taken(category: str, rest: Spans, left: Spans) -> tuple[Ints, Ints, Categories]:
    """Return start, end and cause of what a category took."""
    start, end = (_NONE, _NONE) if rest is left else without(rest, left)
    return start, end, np.full(len(start), IDLE.index(category), dtype=np.int8)


def _explained(gaps: _Gaps, found: Sequence[tuple[Ints, Ints, Categories]]) -> Waits:
    start, end, cause = map(np.concatenate, zip(*(found or [(_NONE, _NONE, _NONE.astype(np.int8))]), strict=True))
    piece = np.searchsorted(gaps.start, start, side="right") - 1
    return Waits(start, end, piece, cause, gaps.process, gaps.call, gaps.thread)


def idle_causes(timeline: Timeline, *, device: int, idle: Spans) -> Ints:
    """Return the ns of each idle piece of a device that each category explains: rows are pieces, columns as in IDLE."""
    explained = waits(timeline, device=device, idle=idle)
    found = np.zeros((len(idle[0]), len(IDLE)), dtype=np.int64)
    np.add.at(found, (explained.piece, explained.cause), explained.end - explained.start)
    return found


def spent(profile: Profile) -> dict[int, Spent]:
    """Return for each device of a capture the category of every instant from the first event to the last.

    The parts of *Where the time went* are these, added up in the window.
    """
    timeline = Timeline(profile)
    frames = [profile.tables[name] for name in _EVENTS if len(profile.tables.get(name, ()))]
    if not frames:
        return {}
    bounds = min(int(frame["start_ns"].min()) for frame in frames), max(int(frame["end_ns"].max()) for frame in frames)
    return {device: _spent(timeline, device, bounds) for device in by_device(timeline)}


def _spent(timeline: Timeline, device: int, bounds: tuple[int, int]) -> Spent:
    operations, facts, here = timeline.operations, _facts(timeline), by_device(timeline)[device]
    rest: Spans = (np.array([bounds[0]]), np.array([bounds[1]]))
    found = []
    for position in range(len(BUSY)):
        mine = here[facts.kind[here] == position]
        left = without(rest, inside(operations.start[mine], operations.end[mine], bounds))
        start = without(rest, left)[0]
        found.append((start, np.full(len(start), position, dtype=np.int8)))
        rest = left
    waited = waits(timeline, device=device, idle=rest)
    causes = waited.cause + np.int8(len(BUSY))
    start, category = map(np.concatenate, zip(*found, (waited.start, causes), strict=True))
    order = np.argsort(start, kind="stable")
    start, category = start[order], category[order]
    changes = np.diff(category, prepend=-1) != 0
    return Spent(np.append(start[changes], bounds[1]), category[changes])


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


@once
def _offset_clocks(timeline: Timeline) -> dict[int, Latency]:
    """Return the GPUs whose median launch latency differs from another GPU's by more than either of them varies."""
    whole: Spans = (np.array([timeline.window.start_ns]), np.array([timeline.window.end_ns]))
    known, devices = [], devices_at_work(timeline)
    if len(devices) < 2:
        return {}
    for device in devices:
        idle = without(whole, busy_spans(timeline)[int(device)])
        found = _endings(timeline, _facts(timeline), causing_calls(timeline), device=device, idle=idle)
        # if the GPU was already idle when the call began, its work waited for nothing: this is pure latency
        chosen = found.is_launch & (found.call_start >= found.start)
        if chosen.sum() >= _LEAST_LAUNCHES:
            known.append([device, *np.percentile((found.end - found.call_start)[chosen], [5, 50, 95])])
    device, low, middle, high = np.array(known).reshape(-1, 4).T
    spread = np.maximum(high - low, _LEAST_OFFSET_NS)
    # compare every GPU with every other one
    is_apart = (np.abs(middle[:, None] - middle) > np.maximum(spread[:, None], spread)).any(axis=1)
    numbers = (column[is_apart].tolist() for column in (device, middle, high))
    return {int(one): Latency(median, most) for one, median, most in zip(*numbers, strict=True)}


def busy_categories(timeline: Timeline) -> Ints:
    """Return for every operation its category, as a position in BUSY."""
    return _facts(timeline).kind


@of_capture
def causing_calls(timeline: Timeline) -> Calls:
    """Return all CUDA calls with the idle category they cause; none if the API was not traced."""
    table = timeline.profile.tables.get("api_calls", empty("api_calls"))
    names = renamed(table["name"], api_names)
    cause = call_causes(timeline.profile)
    start, end, process, thread = (table[column].to_numpy() for column in ("start_ns", "end_ns", "process", "thread"))
    rows: dict[tuple[int, int], Ints] = {}
    for key, mine in positions(process).items():
        lasting = mine[end[mine] > start[mine]]
        rows |= {(key, position): lasting[cause[lasting] == position] for position in range(len(IDLE))}
    return Calls(start, end, process, thread, cause, names.codes, names.categories, rows)


@of_capture
def _facts(timeline: Timeline) -> _Facts:
    return _Facts(operation_categories(timeline.profile), operation_column(timeline, "process"))


def _busy(timeline: Timeline, facts: _Facts, steps: Spans, *, device: int) -> tuple[list[Part], Spans]:
    """Return the busy parts of the window, and the spans in which nothing ran."""
    operations, window = timeline.operations, timeline.window
    bounds = (window.start_ns, window.end_ns)
    rest: Spans = (np.array([window.start_ns]), np.array([window.end_ns]))
    parts = []
    here = by_device(timeline)[device]
    start, end, kind = operations.start[here], operations.end[here], facts.kind[here]
    for position, category in enumerate(BUSY):
        mine = kind == position
        spans = inside(start[mine], end[mine], bounds)
        left = without(rest, spans)
        time = length(rest) - length(left)
        # the rest of the category's own time ran behind earlier categories
        parts.append(Part(category, time, length(spans) - time, _NONE, _by_step(rest, left, steps)))
        rest = left
    return parts, rest


def _gaps(timeline: Timeline, facts: _Facts, calls: Calls, *, device: int, idle: Spans) -> _Gaps:
    """Find the operation that ends each idle piece; `late` allows for the offset of the device's clock."""
    found, offset = _endings(timeline, facts, calls, device=device, idle=idle), _offset_clocks(timeline)
    if device not in offset:
        return found
    latest = found.call_start + round(offset[device].p95_ns)
    return found._replace(late=np.maximum(found.call_end, latest))


def _endings(timeline: Timeline, facts: _Facts, calls: Calls, *, device: int, idle: Spans) -> _Gaps:
    """Find the operation that ends each idle piece: the next to start, even if after the window."""
    operations, (start, end), here = timeline.operations, idle, _in_order(timeline)[device]
    found = np.searchsorted(operations.start[here], end, side="left")
    ends = found < len(here)
    ending = here[np.minimum(found, len(here) - 1)]
    call = np.where(ends, operations.call[ending], -1)
    call_end = _of_calls(calls.end, call, end)
    return _Gaps(
        start,
        end,
        facts.process[ending],
        call,
        _of_calls(calls.thread, call, -1),
        _of_calls(calls.start, call, end),
        call_end,
        _of_calls(calls.name, call, 0),
        ends & (call < 0) & timeline.is_launched[ending],
        (call >= 0) & (operations.start[ending] == end) & ~operations.of("memory_ops")[ending],
        call_end + _LATENCY_NS,
    )


@of_capture
def _in_order(timeline: Timeline) -> dict[int, Ints]:
    """Return the operations of each device, in order of start; of those that start together, by their calls."""
    operations, calls, latest = timeline.operations, causing_calls(timeline), np.iinfo(np.int64).max
    ordered = {}
    for device, here in by_device(timeline).items():
        times = (_of_calls(times, operations.call[here], latest) for times in (calls.start, calls.end))
        ordered[device] = here[in_order(operations.start[here], *times)]
    return ordered


def _of_calls(values: Ints, call: Ints, otherwise: Ints | int) -> Ints:
    """Look up the value of each call; `otherwise` for -1, no call."""
    known = call >= 0
    if known.all():
        return values[call]
    found = np.broadcast_to(np.asarray(otherwise, dtype=np.int64), call.shape).copy()
    found[known] = values[call[known]]
    return found


def _by_step(rest: Spans, left: Spans, steps: Spans) -> Ints:
    """Return how much time of each step lies in `rest` but not in `left`, which is a part of it."""
    if rest is left or not len(steps[0]):
        return np.zeros(len(steps[0]), dtype=np.int64)
    return covered(rest, *steps) - covered(left, *steps)


def _layers(timeline: Timeline, gaps: _Gaps, calls: Calls, *, device: int) -> Iterator[_Taken]:
    """Take one category after the other off the idle pieces.

    Yields the category, the spans before and after it, and its time by function in ns. Only calls of the process whose
    operation ends a piece can explain that piece.
    """
    known = unseen(timeline.profile).get(device)
    for process in np.unique(gaps.process):
        here = gaps.process == process
        mine = gaps if here.all() else _Gaps(*(column[here] for column in gaps))
        rest: Spans = (mine.start, mine.end)
        for category in IDLE[:-1]:
            if category == UNSEEN:
                left, by_function = (rest if known is None else without(rest, known.spans)), _NONE
            else:
                layer = _layer(category, mine, calls, process=process)
                if category == CAPTURE:
                    layer = _with_captures(layer, graph_captures(timeline.profile).get(int(process)))
                left, by_function = _take(rest, layer)
            yield category, rest, left, by_function
            rest = left
        # host code: the rest
        yield IDLE[-1], rest, (_NONE, _NONE), _NONE


def _take(rest: Spans, layer: _Layer) -> tuple[Spans, Ints]:
    """Return what a layer leaves of `rest`, and the time of each function in `rest`.

    Functions that run at the same time can add up to more than their layer.
    """
    if not len(layer.name):
        return without(rest, union(layer.start, layer.end)), _NONE
    touching = touches(rest, layer.start, layer.end)
    start, end = layer.start[touching], layer.end[touching]
    by_function = np.bincount(layer.name[touching], covered(rest, start, end)).astype(np.int64)
    return without(rest, union(start, end)), by_function


def _layer(category: str, gaps: _Gaps, calls: Calls, *, process: int) -> _Layer:
    """Return the spans that explain idle time by `category`."""
    if category == LAUNCH:
        start, end = np.maximum(gaps.start, gaps.call_start), np.minimum(gaps.end, gaps.late)
        return _Layer(*(column[end > start] for column in (start, end, gaps.call_name)))
    if category == DEPENDENCY:
        queued = gaps.late < gaps.end
        return _Layer(np.maximum(gaps.start, gaps.late)[queued], gaps.end[queued], _NONE)
    if category == UNKNOWN:
        # a process without any recorded call was not traced
        lost = gaps.is_lost | ((process, 0) not in calls.rows)
        return _Layer(gaps.start[lost], gaps.end[lost], _NONE)
    chosen = calls.rows.get((process, IDLE.index(category)), _NONE)
    return _Layer(calls.start[chosen], calls.end[chosen], calls.name[chosen])


def _with_captures(layer: _Layer, spans: Spans | None) -> _Layer:
    """Add the time between the begin and the end of captures to that of the calls."""
    if spans is None or not len(spans[0]):
        return layer
    # what no call takes has no function, so all of it is without
    return _Layer(np.append(layer.start, spans[0]), np.append(layer.end, spans[1]), _NONE)


def _added(parts: list[Part]) -> Iterator[Part]:
    """Add up the parts of all processes per category, and leave out categories without time."""
    for category in (*BUSY, *IDLE):
        mine = [part for part in parts if part.category == category]
        time, hidden = sum(part.time_ns for part in mine), sum(part.hidden_ns for part in mine)
        by_function = np.zeros(max((len(part.by_function) for part in mine), default=0), dtype=np.int64)
        for part in mine:
            by_function[: len(part.by_function)] += part.by_function
        if time or hidden:
            yield Part(category, time, hidden, by_function, np.sum([part.by_step for part in mine], axis=0))


def _row(part: Part, calls: Calls, window_ns: int) -> dict[str, object]:
    named = np.flatnonzero(part.by_function > 0)
    by_function = dict(zip(calls.names[named], part.by_function[named].tolist(), strict=True))
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
