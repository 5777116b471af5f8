"""Where the time of each device went: what ran, what that hid, and why nothing ran for the rest.

The split takes layers off the window, one after the other: each gets what those before it left, so the parts add up
to the window exactly.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.copies import is_pageable
from nightsight.events.kernel_names import communicates
from nightsight.events.names import api_names
from nightsight.events.timeline import Timeline, busy_spans, operation_column
from nightsight.intervals import Flags, Ints, Spans, covered, inside, length, touches, union, without
from nightsight.parallel import once
from nightsight.results import (
    ALLOCATION,
    BLOCKING_COPY,
    BUSY,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    DEPENDENCY,
    GRAPHS,
    IDLE,
    LAUNCH,
    MODULE,
    OTHER_CALL,
    SYNC,
    TIME_SPLIT,
    UNKNOWN,
)
from nightsight.tables import NULLABLE, empty, renamed
from nightsight.units import format_value

# the first that matches a name counts
_CALLS: Final = {
    MODULE: "^nvrtc|^nvJitLink|^cu(?:da)?(?:Module(?!GetLoadingMode)|Library|Link|FuncLoad)|^cuKernelGetFunction",
    ALLOCATION: "^cuda(?:Malloc|Free|HostAlloc|HostRegister|HostUnregister|MemPool)"
    "|^cuMem(?!cpy|set|Prefetch|Advise|GetInfo|Range)",
    BLOCKING_COPY: "^cu(?:da)?Memcpy(?!.*Async)",
    SYNC: "^cu(?:da)?[A-Z].*Synchronize",
}
# on an idle H200 a kernel starts 2 to 4 µs after its call; slow hosts take a few times that
_LATENCY_NS: Final = 10_000
# of two GPUs: fewer launches tell nothing, and less than that their places in the machine explain
_LEAST_LAUNCHES: Final = 10
_LEAST_OFFSET_NS: Final = 2_000
_MOST_FUNCTIONS: Final = 3


class Calls(NamedTuple):
    """CUDA calls by what they make a GPU wait for: `cause` is a position in IDLE, `name` one in `names`."""

    start: Ints
    end: Ints
    process: Ints
    cause: np.ndarray[Any, np.dtype[np.int8]]
    name: Ints
    names: "pd.Index[Any]"


class _Facts(NamedTuple):
    """What the split knows of every operation: its position in BUSY, and its process."""

    kind: Ints
    process: Ints


class _Gaps(NamedTuple):
    """Idle pieces of a device, each with the call that launched the operation which ends it.

    Where there is none, the call is empty and at the end of the gap; `is_lost` says that it was not recorded.
    `is_launch` marks pieces that a kernel or a graph ends whose call is known; `late` is until when the launch can have
    been under way.
    """

    start: Ints
    end: Ints
    process: Ints
    call_start: Ints
    call_end: Ints
    call_name: Ints
    is_lost: Flags
    is_launch: Flags
    late: Ints


class Latency(NamedTuple):
    """How long after the start of their call launches on an idle GPU start, in ns: median and 95th percentile."""

    med_ns: float
    p95_ns: float


class _Layer(NamedTuple):
    """Spans in any order that may explain idle time, and the functions (as in Calls) that stand behind them."""

    start: Ints
    end: Ints
    name: Ints


class _Part(NamedTuple):
    """What one layer got: time, time that layers before it hid, and time by function."""

    category: str
    time_ns: int
    hidden_ns: int
    by_function: Ints


_NONE: Final = np.empty(0, dtype=np.int64)


@once
def time_split(timeline: Timeline) -> Table:
    """One row per device and category that has any time; the rows of a device add up to the window."""
    calls, facts, window_ns = causing_calls(timeline), _facts(timeline), timeline.window.length_ns
    rows = []
    for device in devices_at_work(timeline):
        parts, idle = _busy(timeline, facts, device=device)
        parts += _idle(_gaps(timeline, facts, calls, device=device, idle=idle), calls)
        rows += [{"device": device, **_row(part, calls, window_ns)} for part in _added(parts)]
    notes = [*clock_notes(timeline)]
    if notes:
        notes.append(
            "There launch lasts until the GPU's own 95th percentile of launch latency, not for 10 µs after the call."
        )
    table = pd.DataFrame(rows, columns=TIME_SPLIT.column_names)
    return Table(table.astype({"hidden_ns": NULLABLE}), tuple(notes))


def idle_causes(timeline: Timeline, *, device: int, idle: Spans) -> Ints:
    """Return how much of each idle piece of a device is due to each cause: rows are pieces, columns as in IDLE."""
    calls = causing_calls(timeline)
    gaps = _gaps(timeline, _facts(timeline), calls, device=device, idle=idle)
    found = np.zeros((len(idle[0]), len(IDLE)), dtype=np.int64)
    for category, rest, left, _ in _layers(gaps, calls):
        found[:, IDLE.index(category)] += covered(rest, *idle) - covered(left, *idle)
    return found


def devices_at_work(timeline: Timeline) -> Ints:
    """Return the devices on which anything ran in the window."""
    return np.array([device for device, spans in busy_spans(timeline).items() if len(spans[0])], dtype=np.int64)


def clock_notes(timeline: Timeline) -> tuple[str, ...]:
    """Say that clocks of GPUs seem to be offset against one another."""
    offset = _offset_clocks(timeline)
    if not offset:
        return ()
    first, *_, last = sorted(offset, key=lambda device: offset[device].med_ns)
    medians = (f"{format_value(offset[device].med_ns, 'med_ns')} on GPU {device}" for device in (first, last))
    return (
        "Launch latency differs between GPUs by more than it varies on each of them (median "
        f"{' and '.join(medians)}): their clocks may be offset against each other, so these GPUs do not compare.",
    )


@once
def _offset_clocks(timeline: Timeline) -> dict[int, Latency]:
    """Return the GPUs whose launch latency is further from that of another one than either spreads."""
    whole: Spans = (np.array([timeline.window.start_ns]), np.array([timeline.window.end_ns]))
    known, devices = [], devices_at_work(timeline)
    if len(devices) < 2:
        return {}
    for device in devices:
        idle = without(whole, busy_spans(timeline)[int(device)])
        found = _endings(timeline, _facts(timeline), causing_calls(timeline), device=device, idle=idle)
        # what was called while the GPU idled waited for nothing on it
        chosen = found.is_launch & (found.call_start >= found.start)
        if chosen.sum() >= _LEAST_LAUNCHES:
            known.append([device, *np.percentile((found.end - found.call_start)[chosen], [5, 50, 95])])
    device, low, middle, high = np.array(known).reshape(-1, 4).T
    spread = np.maximum(high - low, _LEAST_OFFSET_NS)
    is_apart = (np.abs(middle[:, None] - middle) > np.maximum(spread[:, None], spread)).any(axis=1)
    numbers = (column[is_apart].tolist() for column in (device, middle, high))
    return {int(one): Latency(median, most) for one, median, most in zip(*numbers, strict=True)}


@once
def causing_calls(timeline: Timeline) -> Calls:
    """Return the CUDA calls by what they make a GPU wait for; none where the API was not traced."""
    table = timeline.profile.tables.get("api_calls", empty("api_calls"))
    names = renamed(table["name"], api_names)
    causes = np.full(len(names.categories), IDLE.index(OTHER_CALL), dtype=np.int8)
    for cause, pattern in reversed(_CALLS.items()):
        causes[np.asarray(names.categories.str.contains(pattern), dtype=bool)] = IDLE.index(cause)
    cause = causes[names.codes]
    cause[_pageable(timeline)] = IDLE.index(BLOCKING_COPY)
    start, end, process = (table[column].to_numpy() for column in ("start_ns", "end_ns", "process"))
    return Calls(start, end, process, cause, names.codes, names.categories)


def _pageable(timeline: Timeline) -> Ints:
    """The calls that copy from or to pageable memory: they block whatever they are named."""
    copies = timeline.profile.table("memory_ops")
    call = timeline.operations.call[timeline.operations.of("memory_ops")][is_pageable(copies)]
    return call[call >= 0]


@once
def _facts(timeline: Timeline) -> _Facts:
    operations, profile = timeline.operations, timeline.profile
    kind = np.array([BUSY.index(category) for category in (COMPUTE, COPIES, GRAPHS)])[operations.kind]
    names = profile.table("kernels")["name"].cat
    collective = np.array([communicates(name) for name in names.categories], dtype=bool)
    kind[operations.of("kernels")] += collective[names.codes] * (BUSY.index(COMMUNICATION) - BUSY.index(COMPUTE))
    copies, memory = np.flatnonzero(operations.of("memory_ops")), profile.table("memory_ops")["operation"]
    kind[copies[memory == "Peer-to-Peer"]] = BUSY.index(COMMUNICATION)
    return _Facts(kind, operation_column(timeline, "process"))


def _busy(timeline: Timeline, facts: _Facts, *, device: int) -> tuple[list[_Part], Spans]:
    """What ran, and the time in which nothing did."""
    operations, window = timeline.operations, timeline.window
    bounds = (window.start_ns, window.end_ns)
    rest: Spans = (np.array([window.start_ns]), np.array([window.end_ns]))
    parts = []
    for position, category in enumerate(BUSY):
        mine = (operations.device == device) & (facts.kind == position)
        spans = inside(operations.start[mine], operations.end[mine], bounds)
        left = without(rest, spans)
        time = length(rest) - length(left)
        parts.append(_Part(category, time, length(spans) - time, _NONE))
        rest = left
    return parts, rest


def _gaps(timeline: Timeline, facts: _Facts, calls: Calls, *, device: int, idle: Spans) -> _Gaps:
    """Find what ends each idle piece, and until when its launch was under way by the clock of that device."""
    found, offset = _endings(timeline, facts, calls, device=device, idle=idle), _offset_clocks(timeline)
    if device not in offset:
        return found
    latest = found.call_start + round(offset[device].p95_ns)
    return found._replace(late=np.maximum(found.call_end, latest))


def _endings(timeline: Timeline, facts: _Facts, calls: Calls, *, device: int, idle: Spans) -> _Gaps:
    """Find what ends each idle piece: the next operation to start, be it after the window."""
    operations, (start, end) = timeline.operations, idle
    here = np.flatnonzero(operations.device == device)
    latest = np.iinfo(np.int64).max
    call_start, call_end = (_of_calls(times, operations.call[here], latest) for times in calls[:2])
    here = here[np.lexsort((call_end, call_start, operations.start[here]))]
    found = np.searchsorted(operations.start[here], end, side="left")
    ends = found < len(here)
    ending = here[np.minimum(found, len(here) - 1)]
    call = np.where(ends, operations.call[ending], -1)
    call_end = _of_calls(calls.end, call, end)
    return _Gaps(
        start,
        end,
        facts.process[ending],
        _of_calls(calls.start, call, end),
        call_end,
        _of_calls(calls.name, call, 0),
        ends & (call < 0) & timeline.is_launched[ending],
        (call >= 0) & (operations.start[ending] == end) & ~operations.of("memory_ops")[ending],
        call_end + _LATENCY_NS,
    )


def _of_calls(values: Ints, call: Ints, otherwise: Ints | int) -> Ints:
    """Look up a value of each call; `otherwise` where there is no call."""
    known = call >= 0
    if known.all():
        return values[call]
    found = np.broadcast_to(np.asarray(otherwise, dtype=np.int64), call.shape).copy()
    found[known] = values[call[known]]
    return found


def _idle(gaps: _Gaps, calls: Calls) -> Iterator[_Part]:
    """Divide idle pieces by cause."""
    for category, rest, left, by_function in _layers(gaps, calls):
        yield _Part(category, length(rest) - length(left), 0, by_function)


def _layers(gaps: _Gaps, calls: Calls) -> Iterator[tuple[str, Spans, Spans, Ints]]:
    """Take the causes off idle pieces: each with what was there before, what it left, and the time of each function.

    Only calls of the process that ends a piece can explain it.
    """
    for process in np.unique(gaps.process):
        here = gaps.process == process
        mine = gaps if here.all() else _Gaps(*(column[here] for column in gaps))
        rest: Spans = (mine.start, mine.end)
        for category in IDLE[:-1]:
            left, by_function = _take(rest, _layer(category, mine, calls, process=process))
            yield category, rest, left, by_function
            rest = left
        yield IDLE[-1], rest, (_NONE, _NONE), _NONE


def _take(rest: Spans, layer: _Layer) -> tuple[Spans, Ints]:
    """Take a layer off; return what is left, and the time of each function in what was there before.

    Functions that run at the same time have more together than their layer.
    """
    if not len(layer.name):
        return without(rest, union(layer.start, layer.end)), _NONE
    touching = touches(rest, layer.start, layer.end)
    start, end = layer.start[touching], layer.end[touching]
    by_function = np.bincount(layer.name[touching], covered(rest, start, end)).astype(np.int64)
    return without(rest, union(start, end)), by_function


def _layer(category: str, gaps: _Gaps, calls: Calls, *, process: int) -> _Layer:
    """The spans that explain idle time by `category`."""
    if category == LAUNCH:
        start, end = np.maximum(gaps.start, gaps.call_start), np.minimum(gaps.end, gaps.late)
        return _Layer(*(column[end > start] for column in (start, end, gaps.call_name)))
    if category == DEPENDENCY:
        queued = gaps.late < gaps.end
        return _Layer(np.maximum(gaps.start, gaps.late)[queued], gaps.end[queued], _NONE)
    if category == UNKNOWN:
        lost = gaps.is_lost | (not (calls.process == process).any())
        return _Layer(gaps.start[lost], gaps.end[lost], _NONE)
    chosen = (calls.cause == IDLE.index(category)) & (calls.process == process) & (calls.end > calls.start)
    return _Layer(calls.start[chosen], calls.end[chosen], calls.name[chosen])


def _added(parts: list[_Part]) -> Iterator[_Part]:
    """Add up the parts of several processes, and leave out categories without time."""
    for category in (*BUSY, *IDLE):
        mine = [part for part in parts if part.category == category]
        time, hidden = sum(part.time_ns for part in mine), sum(part.hidden_ns for part in mine)
        by_function = np.zeros(max((len(part.by_function) for part in mine), default=0), dtype=np.int64)
        for part in mine:
            by_function[: len(part.by_function)] += part.by_function
        if time or hidden:
            yield _Part(category, time, hidden, by_function)


def _row(part: _Part, calls: Calls, window_ns: int) -> dict[str, object]:
    by_function = pd.Series(part.by_function, index=calls.names[: len(part.by_function)])
    largest = by_function[by_function > 0].rename_axis("name").reset_index(name="time")
    largest = largest.sort_values(["time", "name"], ascending=[False, True]).head(_MOST_FUNCTIONS)
    is_busy = part.category in BUSY
    return {
        "group": "busy" if is_busy else "idle",
        "category": part.category,
        "time_ns": part.time_ns,
        "share_pct": 100.0 * part.time_ns / window_ns,
        "hidden_ns": part.hidden_ns if is_busy else None,
        "functions": ", ".join(largest["name"]),
    }


ANALYSES: Final = (Analysis(TIME_SPLIT, time_split),)
