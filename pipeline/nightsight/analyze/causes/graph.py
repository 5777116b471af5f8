"""What each CUDA call and each GPU operation in the window waited for: the dependencies that a replay follows.

There are two kinds of nodes: calls, in the order of their threads, and operations, in the order of their streams. The
edges are read from the capture; none is the delay of a single event:

- A call starts after the previous call of its thread and the host code between. Threads that take turns count as one
  line of execution (PyTorch's backward pass runs on another thread while the main thread is silent).
- An operation starts after its launch, the previous operation on its stream, and the events that its stream awaits. If
  none of these explains a late start, but another operation of the GPU ended just before it, the operation follows that
  one: it held the hardware, or an event that was not recorded.
- A call that waits returns after the operation that it waits for.
- A collective kernel transfers data once the last rank's kernel has started, and ends for all ranks together.
"""

from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.copies import waiting_calls
from nightsight.analyze.split import causing_calls
from nightsight.events.communication import communicating, communication, without_lone
from nightsight.events.meetings import meetings
from nightsight.events.timeline import Timeline, distinct, function_names, of_capture, operation_column
from nightsight.events.unseen import unseen
from nightsight.events.window import Window
from nightsight.intervals import Codes, Flags, Ints, covered
from nightsight.results.categories import ALLOCATION, BLOCKING_COPY, IDLE, SYNC
from nightsight.system.parallel import memoize
from nightsight.tables import are_named, positions

# The latencies below are medians of the planted programs (tests/data/planted: an H200, nsys 2025.3). They apply only
# where a capture has too few samples. `stored: a to b`: with a and with b, the first findings of the stored captures
# are the same (docs/causes.md)


# defaults: from the start of a call to its operation, from one operation to the next on a busy stream, and from the end
# of an operation to the return of a call that waits for it
_LATENCY_NS: Final = 8_000
HOP_NS: Final = 1_000
# longer delays are not latencies: something else held the operation up (stored: 25 to 100 µs)
_MOST_LATENCY_NS: Final = 50_000
# after a longer delay, the operation did not wait for the previous one (stored: 10 to 40 µs)
_MOST_HOP_NS: Final = 20_000
_RETURN_NS: Final = 4_000
# a start that is later than its dependencies explain by more than this needs another one (stored: 1.5 to 6 µs)
_LATE_NS: Final = 3_000
# an operation that ended at most this long before such a start is assumed to be the dependency (stored: 3 to 12 µs)
_HANDED_ON_NS: Final = 6_000
# threads take turns if at most this share of the switches between them happens while a call of the other still runs
# (stored: 0.025 to 0.1)
_OVERLAPPING: Final = 0.05
# launches block when about a thousand operations are queued (tests/program.py has such a queue); a call this many times
# longer than usual may have blocked, with at least _QUEUED in the queue (stored: 100 to 400)
_BLOCKED: Final = 10
_BLOCKED_NS: Final = 30_000
_QUEUED: Final = 200
_NO_WAITS: Final = "Query|Create|Destroy|Register|^cudaMalloc$|^cuMemAlloc$"
# fewer samples say nothing about typical times
_FEWEST_SAMPLES: Final = 5
# the number of the legacy default stream of a context, in nsys as in CUPTI
_DEFAULT_STREAM: Final = 7
TO_DEVICE: Final = 0
TO_HOST: Final = 1
_DIRECTIONS: Final = {"Host-to-Device": TO_DEVICE, "Device-to-Host": TO_HOST}
# instead of an operation: the call had none to wait for
_NO_WORK: Final = -2
_NONE: Final = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class CallNodes:
    """The outermost CUDA calls of the window, by thread and time; times in ns.

    `row`: in api_calls. `line`: the line of execution (one thread, or several that take turns). `before`: the previous
    call on the line, -1 for the first. `waits_for`: the operation that the call waits for, -1 for none. `own_wait`:
    instead of the work of other threads on the default stream, the last operation of its line there; -1 for calls that
    would wait for the same without these threads. `work_ns`: its length without the wait. `rank_wait_ns`: the first
    part of the time before it, in which the thread waited in a collective call for another rank; the rest is host code.
    `cause`: a position in IDLE.
    """

    row: Ints
    start: Ints
    end: Ints
    process: Ints
    thread: Ints
    line: Ints
    before: Ints
    waits_for: Ints
    own_wait: Ints
    work_ns: Ints
    rank_wait_ns: Ints
    cause: Ints
    name: Ints
    names: "pd.Index[str]"

    def __len__(self) -> int:
        """The number of calls."""
        return len(self.row)

    def named(self, words: str) -> Flags:
        """Return which calls have a name that contains a pattern."""
        return np.asarray(self.names.str.contains(words), dtype=bool)[self.name]


@dataclass(frozen=True, eq=False, kw_only=True)
class OperationNodes:
    """The GPU operations in the window and those that its calls launch, by stream and time; times in ns.

    `operation`: the position in Timeline.operations. `call`: the launching call, a position in CallNodes, -1 if it is
    outside the window. `launch_ns`: the start of its call, even before the window, or its own start if the call is not
    recorded (`is_recorded`). `previous`: the previous operation on its stream, `dependency`: another operation that it
    waits for; -1 for none. `is_shared`: another thread launched the previous operation on the default stream, and
    `own_previous` is the last one of its line of execution there, -1 for none. `group`: collectives with the same
    number transfer together; -1 for all else. `direction`: TO_DEVICE or TO_HOST for copies between host and device, -1
    for all else. `is_peer_copy`: a copy between GPUs.
    `can_leave`: a remedy can move it off its stream: copies (not within a GPU) and communication. `latency_ns`,
    `hop_ns`: the typical time from the start of its call, and from the end of an operation that it waits for, to its
    start. `unseen_ns`: the time after `previous` in which the GPU may have done work that the capture lacks.
    """

    operation: Ints
    start: Ints
    end: Ints
    device: Ints
    call: Ints
    launch_ns: Ints
    is_recorded: Flags
    previous: Ints
    is_shared: Flags
    own_previous: Ints
    dependency: Ints
    group: Ints
    direction: Ints
    is_communication: Flags
    is_peer_copy: Flags
    can_leave: Flags
    latency_ns: Ints
    hop_ns: Ints
    unseen_ns: Ints

    def __len__(self) -> int:
        """The number of operations."""
        return len(self.operation)


@dataclass(frozen=True, eq=False)
class Graph:
    """The dependencies of a window. `meetings`: calls that waited for another rank, and the first call of that rank."""

    calls: CallNodes
    work: OperationNodes
    meetings: tuple[Ints, Ints]


@memoize
def build_graph(timeline: Timeline) -> Graph:
    """Build the dependencies in the window; without calls if they were not traced."""
    calls, node_of_row = _call_nodes(timeline)
    work = _operation_nodes(timeline, calls, node_of_row)
    calls, work = _add_own(timeline, _add_waits(timeline, calls, work), work)
    calls, pairs = _add_meetings(timeline, calls)
    return Graph(calls, _add_dependencies(timeline, calls, work), pairs)


@dataclass(frozen=True, eq=False)
class _OperationFacts:
    """Facts of all operations of a capture, see `OperationNodes`. `kind`: equal for those that behave alike."""

    process: Ints
    stream: Ints
    kind: Ints
    direction: Ints
    is_communication: Flags
    is_peer_copy: Flags


@of_capture
def _operation_facts(timeline: Timeline) -> _OperationFacts:
    operations, copies = timeline.operations, timeline.profile.recorded("memory_ops")
    count = len(operations.kind)
    process = operation_column(timeline, "process") if count else _NONE
    stream = (pd.factorize(process)[0].astype(np.int64) << 40) + (operations.device.astype(np.int64) << 33)
    kind, direction = operations.in_graph.astype(np.int64), np.full(count, -1, dtype=np.int64)
    is_peer_copy = np.zeros(count, dtype=bool)
    if len(copies):
        is_memory_op = operations.of("memory_ops")
        names = copies["operation"].cat
        kinds = names.codes.astype("int64") * 64 + copies["source_kind"].cat.codes.astype("int64") * 8
        kind[is_memory_op] = 2 + (kinds + copies["target_kind"].cat.codes).to_numpy()
        direction_of = np.array([_DIRECTIONS.get(name, -1) for name in names.categories])
        direction[is_memory_op] = direction_of[names.codes]
        is_peer_copy[is_memory_op] = copies["operation"] == "Peer-to-Peer"
    return _OperationFacts(process, stream + operations.stream, kind, direction, communicating(timeline), is_peer_copy)


# -- calls ------------------------------------------------------------------------------------------------------------


class _ByTime(NamedTuple):
    """Spans in order of start: their positions (None if they are in order), their starts, and the longest length.

    A capture has many short windows to look at: each takes a search instead of a comparison with all spans.
    """

    order: Codes | None
    start: Ints
    longest_ns: int

    @classmethod
    def of(cls, start: Ints, end: Ints) -> "_ByTime":
        longest_ns = int((end - start).max(initial=0))
        if (start[1:] >= start[:-1]).all():
            return cls(None, start, longest_ns)
        order = np.argsort(start, kind="stable").astype(np.int32)
        return cls(order, start[order], longest_ns)

    def near(self, window: Window) -> Ints:
        """Return the positions, in ascending order, of all spans that overlap a window, and of some before it."""
        first, last = np.searchsorted(self.start, (window.start_ns - self.longest_ns, window.end_ns))
        return np.arange(first, last) if self.order is None else np.sort(self.order[first:last]).astype(np.int64)


@of_capture
def _calls_by_time(timeline: Timeline) -> _ByTime:
    return _ByTime.of(*timeline.call_times)


@of_capture
def _operations_by_time(timeline: Timeline) -> _ByTime:
    return _ByTime.of(timeline.operations.start, timeline.operations.end)


@of_capture
def _operations_by_call(timeline: Timeline) -> tuple[Codes, Ints]:
    """Return all operations in order of their calls, and these calls."""
    order = np.argsort(timeline.operations.call, kind="stable").astype(np.int32)
    return order, timeline.operations.call[order]


class _NodeOfRow(NamedTuple):
    """Rows of api_calls in the window, in order, and the position of the outermost call of each."""

    row: Ints
    node: Ints

    def of(self, row: Ints) -> Ints:
        """Return the position of the outermost call of some rows; -1 outside of the window."""
        place = np.searchsorted(self.row, row)
        return np.where(np.append(self.row, -1)[place] == row, np.append(self.node, -1)[place], -1)


def _call_nodes(timeline: Timeline) -> tuple[CallNodes, _NodeOfRow]:
    """Return the calls of the window, and which of them each row of api_calls belongs to."""
    table, window = timeline.profile.recorded("api_calls"), timeline.window
    if not len(table):
        empty_columns = dict.fromkeys((column.name for column in fields(CallNodes) if column.name != "names"), _NONE)
        return CallNodes(**empty_columns, names=pd.Index([], dtype="str")), _NodeOfRow(_NONE, _NONE)
    causes, thread = causing_calls(timeline), table["thread"].to_numpy()
    start, end, process = causes.start, causes.end, causes.process
    in_window = _calls_by_time(timeline).near(window)
    in_window = in_window[end[in_window] > window.start_ns]
    node = np.empty(len(in_window), dtype=np.int64)
    parts, count = [], 0
    for places in positions(thread[in_window]).values():
        of_thread, place = in_window[places], places
        if not (start[of_thread][1:] > start[of_thread][:-1]).all():
            place = places[np.lexsort((-end[of_thread], start[of_thread]))]
            of_thread = in_window[place]
        reach = np.maximum.accumulate(end[of_thread])
        is_outermost = np.append(True, end[of_thread][1:] > reach[:-1])
        # a nested call counts as its outermost call
        node[place] = count + np.cumsum(is_outermost) - 1
        parts.append(of_thread[is_outermost])
        count += len(parts[-1])
    row = np.concatenate(parts) if parts else _NONE
    start, end, process, thread = start[row], end[row], process[row], thread[row]
    line = _execution_lines(start, end, process, thread, launches=_launches_work(timeline)[row])
    nodes = CallNodes(
        row=row,
        start=start,
        end=end,
        process=process,
        thread=thread,
        line=line,
        before=_link_first_calls(_preceding_calls(start, end, thread, line), start, end, process),
        waits_for=np.full(len(row), -1, dtype=np.int64),
        own_wait=np.full(len(row), -1, dtype=np.int64),
        work_ns=end - start,
        rank_wait_ns=np.zeros(len(row), dtype=np.int64),
        cause=causes.cause[row].astype(np.int64),
        name=causes.name[row].astype(np.int64),
        names=causes.names,
    )
    return nodes, _NodeOfRow(in_window, node)


@of_capture
def _launches_work(timeline: Timeline) -> Flags:
    """Return which rows of api_calls launch an operation; the last entry is for operations without a call."""
    launches = np.zeros(len(timeline.profile.table("api_calls")) + 1, dtype=bool)
    launches[timeline.operations.call] = True
    return launches


def _execution_lines(start: Ints, end: Ints, process: Ints, thread: Ints, *, launches: Flags) -> Ints:
    """Number the lines of execution: groups of threads of a process of which only one at a time makes calls.

    Threads that launch nothing (NCCL's watchdog polls events) have separate lines.
    """
    codes, threads = pd.factorize(thread)
    line = np.arange(len(threads))
    is_active = np.bincount(codes, launches, len(threads)) > 0
    for of_process in positions(process).values():
        launching_calls = of_process[is_active[codes[of_process]]]
        order = launching_calls[np.argsort(start[launching_calls], kind="stable")]
        code = codes[order]
        switch = np.flatnonzero(code[1:] != code[:-1])
        pair = np.minimum(code[switch], code[switch + 1]) * len(threads) + np.maximum(code[switch], code[switch + 1])
        overlaps = start[order[switch + 1]] < end[order[switch]]
        for key, switches in positions(pair).items():
            first, second = divmod(key, len(threads))
            if overlaps[switches].mean() > _OVERLAPPING:
                continue
            # calls of other threads may be between them
            of_pair = order[(code == first) | (code == second)]
            change = np.flatnonzero(codes[of_pair[1:]] != codes[of_pair[:-1]])
            if (start[of_pair[change + 1]] < end[of_pair[change]]).mean() <= _OVERLAPPING:
                line[line == line[second]] = line[first]
    return line[codes]


def _previous_of(key: Ints) -> Ints:
    """Return the position before each, -1 for the first with each key; equal keys follow one another."""
    previous = np.arange(-1, len(key) - 1)
    previous[np.append(True, key[1:] != key[:-1])[: len(key)]] = -1
    return previous


def _preceding_calls(start: Ints, end: Ints, thread: Ints, line: Ints) -> Ints:
    """Return for each call the previous one on its line: the last to return before it starts."""
    on_thread = _previous_of(thread)
    if len(pd.unique(line)) == len(pd.unique(thread)):
        return on_thread
    order = np.lexsort((start, line))
    before = np.append(-1, order[:-1])
    is_first = np.append(True, line[order[1:]] != line[order[:-1]])
    is_late = end[before] > start[order]
    on_line = np.where(is_first | is_late, on_thread[order], before)
    result = np.empty_like(on_thread)
    result[order] = on_line
    return result


def _link_first_calls(before: Ints, start: Ints, end: Ints, process: Ints) -> Ints:
    """Let the first call of each line follow the last call of its process to return before it: that woke its thread."""
    before = before.copy()
    for of_process in positions(process).values():
        first_calls = of_process[before[of_process] < 0]
        by_end = of_process[np.argsort(end[of_process], kind="stable")]
        # a call may take no time, but never follows itself
        place = np.searchsorted(end[by_end], start[first_calls]) - 1
        before[first_calls] = np.where(place >= 0, by_end[np.maximum(place, 0)], -1)
    return before


# -- operations -------------------------------------------------------------------------------------------------------


def _operation_nodes(timeline: Timeline, calls: CallNodes, node_of_row: _NodeOfRow) -> OperationNodes:
    """Return the operations that run in the window, and those that its calls launch."""
    operations, window, facts = timeline.operations, timeline.window, _operation_facts(timeline)
    running = _operations_by_time(timeline).near(window)
    operation = running[operations.end[running] > window.start_ns]
    if len(node_of_row.row):
        order, rows = _operations_by_call(timeline)
        low, high = np.searchsorted(rows, (node_of_row.row[0], node_of_row.row[-1] + 1))
        is_of_node = node_of_row.of(rows[low:high]) >= 0
        operation = distinct(np.concatenate([operation, order[low:high][is_of_node]]))
    # migrations of managed memory have no dependencies: the kernels that they hold up are longer
    operation = operation[timeline.is_launched[operation]]
    stream = facts.stream[operation]
    start = operations.start[operation]
    order = np.lexsort((start, stream)) if len(pd.unique(stream)) > 1 else np.argsort(start, kind="stable")
    operation, stream = operation[order], stream[order]
    start, end = operations.start[operation], operations.end[operation]
    call_row = operations.call[operation]
    call = node_of_row.of(call_row)
    call_starts = timeline.profile.recorded("api_calls")["start_ns"].to_numpy()
    launch_ns, has_call = start.copy(), call_row >= 0
    launch_ns[has_call] = call_starts[call_row[has_call]]
    # a copy staged through a driver buffer counts as done when its call returns
    call_end = np.where(call >= 0, np.append(calls.end, 0)[call], 0)
    end = np.where(_runs_in_call(calls, start, call) & (end >= call_end), call_end - 1, end)
    previous = _previous_of(stream)
    # overlapping nodes of a graph on a stream do not wait for each other. Other kernels do: with programmatic dependent
    # launch, a kernel starts while the previous one ends, and waits for it in its code
    overlaps = (previous >= 0) & (end[previous] > start + _LATE_NS)
    previous[overlaps & (operations.in_graph[operation] | (end < end[previous]))] = -1
    is_communication, direction = facts.is_communication[operation], facts.direction[operation]
    is_peer_copy = facts.is_peer_copy[operation]
    group = np.full(len(operation), -1, dtype=np.int64)
    group[is_communication] = _number_collectives(timeline, operation[is_communication])
    zeros, unknown = np.zeros(len(operation), dtype=np.int64), np.full(len(operation), -1, dtype=np.int64)
    work = OperationNodes(
        operation=operation,
        start=start,
        end=end,
        device=operations.device[operation],
        call=call,
        launch_ns=launch_ns,
        is_recorded=call_row >= 0,
        previous=previous,
        is_shared=np.zeros(len(operation), dtype=bool),
        own_previous=unknown,
        dependency=unknown,
        group=group,
        direction=direction,
        is_communication=is_communication,
        is_peer_copy=is_peer_copy,
        can_leave=is_communication | is_peer_copy | (direction >= 0),
        latency_ns=zeros,
        hop_ns=zeros,
        unseen_ns=zeros,
    )
    latency_ns, hop_ns = (measure(calls, work, facts.kind[operation]) for measure in (_launch_latency, _stream_hop))
    return replace(work, latency_ns=latency_ns, hop_ns=hop_ns, unseen_ns=_unseen_before(timeline, work))


def _unseen_before(timeline: Timeline, work: OperationNodes) -> Ints:
    """Return how long the capture may lack GPU work between each operation and the previous one on its stream."""
    unseen_ns = np.zeros(len(work), dtype=np.int64)
    for gpu, unseen_spans in unseen(timeline.profile).items():
        if len(unseen_spans.start):
            of_gpu = np.flatnonzero((work.device == gpu) & (work.previous >= 0))
            previous_end = np.minimum(work.end[work.previous[of_gpu]], work.start[of_gpu])
            unseen_ns[of_gpu] = covered(unseen_spans.spans, previous_end, work.start[of_gpu])
    return unseen_ns


def _launch_latency(calls: CallNodes, work: OperationNodes, kind: Ints) -> Ints:
    """Return the time from the start of its call to each operation if its stream is idle.

    It is the length of the call, which is work, plus the typical time after its end. Blocking copies run during their
    calls: for them, the whole time is the typical one.
    """
    if not len(calls):
        return np.full(len(work), _LATENCY_NS, dtype=np.int64)
    call, start = work.call, work.start
    call_start, call_end = (np.where(call >= 0, times[call], 0) for times in (calls.start, calls.end))
    previous_end = np.where(work.previous >= 0, work.end[work.previous], 0)
    is_sample = (call >= 0) & (previous_end < call_start) & (start >= call_start)
    is_sample[1:] &= call[1:] != call[:-1]
    in_call = _runs_in_call(calls, start, call)
    # a blocking copy that waited for another one in its direction is not a sample
    is_sample &= ~in_call | (_engine_busy_until(work) < call_start)
    since = np.where(in_call, call_start, call_end)
    name = np.where(call >= 0, calls.name[call], len(calls.names))
    keys = (kind * (len(calls.names) + 1) + name) * 2 + in_call
    is_sample &= in_call | (start - since < _MOST_LATENCY_NS)
    # blocking copies have separate typical times; without samples, work starts at the end of a long call
    default = np.maximum(_LATENCY_NS - (since - call_start), 0)
    blocking, others = (_medians(keys, start - since, is_sample & group, default) for group in (in_call, ~in_call))
    typical = np.where(in_call, blocking, others)
    return np.where(call >= 0, np.maximum(typical + since - call_start, 0), 0)


def _runs_in_call(calls: CallNodes, start: Ints, call: Ints) -> Flags:
    """Return which operations are blocking copies: they run during their call, which returns when they are done."""
    is_blocking, call_end = np.append(calls.cause == IDLE.index(BLOCKING_COPY), False), np.append(calls.end, 0)
    return np.asarray(is_blocking[call] & (start < call_end[call]), dtype=bool)


def _engine_busy_until(work: OperationNodes) -> Ints:
    """Return until when earlier copies in its direction kept the copy engine busy, for each copy; 0 for all else."""
    busy_until = np.zeros(len(work), dtype=np.int64)
    copies = np.flatnonzero(work.direction >= 0)
    for rows in positions(work.device[copies] * 8 + work.direction[copies]).values():
        engine = copies[rows[np.argsort(work.start[copies[rows]], kind="stable")]]
        busy_until[engine[1:]] = np.maximum.accumulate(work.end[engine])[:-1]
    return busy_until


def _stream_hop(calls: CallNodes, work: OperationNodes, kind: Ints) -> Ints:
    """Return the typical time from the end of the previous operation on the stream to each one that is queued."""
    previous_end = np.where(work.previous >= 0, np.append(work.end, 0)[work.previous], 0)
    call_start, call_end = (
        np.where(work.call >= 0, np.append(time, 0)[work.call], 0) for time in (calls.start, calls.end)
    )
    # a blocking copy is handed to the GPU only after the work that it waits for
    in_call = _runs_in_call(calls, work.start, work.call)
    is_queued = np.where(in_call, call_start < previous_end, call_end + _LATE_NS < previous_end)
    is_queued &= (work.previous >= 0) & (work.start >= previous_end - _LATE_NS)
    is_queued &= work.start < previous_end + _MOST_HOP_NS
    keys = kind * (int(kind.max(initial=0)) + 1) + np.where(work.previous >= 0, np.append(kind, 0)[work.previous], 0)
    since = work.start - previous_end
    blocking, others = (_medians(keys, since, is_queued & group, HOP_NS) for group in (in_call, ~in_call))
    # an operation that starts before the previous one ends does so whenever it is launched in time
    is_early = (work.previous >= 0) & (work.start < previous_end - _LATE_NS)
    return np.select([is_early, in_call], [since, blocking], others)


def _medians(keys: Ints, values: Ints, is_sample: Flags, default: Ints | int) -> Ints:
    """Return for each entry the median sample with its key, or of all samples if its key has few of them."""
    codes, kinds = pd.factorize(keys)
    samples = values[is_sample]
    if len(samples) < _FEWEST_SAMPLES:
        return np.broadcast_to(np.asarray(default, dtype=np.int64), values.shape)
    median = np.full(len(kinds), int(np.median(samples)), dtype=np.int64)
    for code, rows in positions(codes[is_sample]).items():
        if len(rows) >= _FEWEST_SAMPLES:
            median[code] = int(np.median(samples[rows]))
    return np.asarray(median[codes], dtype=np.int64)


def _number_collectives(timeline: Timeline, operation: Ints) -> Ints:
    """Return the number of the collective of each of these operations; -1 for those without a partner among them."""
    if not len(operation):
        return operation
    table = communication(timeline)
    of_operation = np.full(len(timeline.operations.kind), -1, dtype=np.int64)
    of_operation[table["operation"].to_numpy()] = table["collective"].to_numpy()
    group = of_operation[operation]
    # a small message is sent ahead: its kernel ends before the last one starts, so it did not wait
    start, end = timeline.operations.start[operation], timeline.operations.end[operation]
    group = np.where(end > pd.Series(start).groupby(group).transform("max").to_numpy(), group, -1)
    return without_lone(group)


# -- waits ------------------------------------------------------------------------------------------------------------


def _add_meetings(timeline: Timeline, calls: CallNodes) -> tuple[CallNodes, tuple[Ints, Ints]]:
    """Find the calls before which a thread waited for another rank, and the call that shows its arrival."""
    calls_of, rank_wait_ns, pairs = positions(calls.thread), calls.rank_wait_ns.copy(), list[tuple[int, int]]()

    def following(thread: int, time: int) -> int:
        """Return the first call of a thread at or after a time, -1 for none."""
        of_thread = calls_of.get(thread, _NONE)
        place = int(np.searchsorted(calls.start[of_thread], time))
        return int(of_thread[place]) if place < len(of_thread) else -1

    window, table = timeline.window, meetings(timeline)
    gap_start = np.where(calls.before >= 0, np.append(calls.end, 0)[calls.before], window.start_ns)
    # NCCL continues in a new thread, which has made no call yet
    is_new = np.append(calls.thread, -1)[calls.before] != calls.thread
    table = table[(table["met_ns"] >= window.start_ns) & (table["met_ns"] < window.end_ns)]
    for process, thread, begin, last, time in zip(*(table[name].tolist() for name in table), strict=True):
        first_of_last = following(last, time)
        if first_of_last < 0:
            continue
        is_waiting = (calls.process == process) & ((calls.thread == thread) | is_new)
        for call in np.flatnonzero(is_waiting & (gap_start <= time) & (calls.start >= time)).tolist():
            rank_wait_ns[call] = max(time - max(int(gap_start[call]), begin), 0)
            # after the meeting, any of the ranks may make the first call
            later_call = following(int(calls.thread[call]), int(calls.start[first_of_last]))
            pairs.extend([(later_call, first_of_last)] if later_call >= 0 else [])
    after, first = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return replace(calls, rank_wait_ns=rank_wait_ns), (after, first)


def _add_waits(timeline: Timeline, calls: CallNodes, work: OperationNodes) -> CallNodes:
    """Find the operation that each waiting call waits for, and how long the call takes without the wait."""
    if not len(calls) or not len(work):
        return calls
    waits_for = np.full(len(calls), -1, dtype=np.int64)
    can_wait = np.array([cause in (SYNC, ALLOCATION, BLOCKING_COPY) for cause in IDLE])
    is_waiting_row = _is_waiting_row(timeline)
    is_wait = can_wait[calls.cause] | is_waiting_row[calls.row]
    # queries and allocations on the GPU do not wait
    is_wait &= ~calls.named(_NO_WAITS)
    length = calls.end - calls.start
    typical_ns = _medians(calls.name, length, np.ones(len(calls), dtype=bool), length)
    is_blocked = ~is_wait & (length > np.maximum(_BLOCKED * typical_ns, _BLOCKED_NS))
    process = _operation_facts(timeline).process[work.operation]
    for key, of_process in positions(calls.process).items():
        work_here = np.flatnonzero(process == key)
        if len(work_here):
            callers = of_process[is_wait[of_process]]
            waits_for[callers] = _guess_waits(calls, work, callers, work_here)
            callers = of_process[is_blocked[of_process]]
            waits_for[callers] = _full_queue_waits(calls, work, callers, work_here)
    known_waits = _stream_waits(timeline, calls, work)
    blocking_copies = np.flatnonzero(_runs_in_call(calls, work.start, work.call))
    known_waits[work.call[blocking_copies]] = blocking_copies
    # a stream without work is not waited for, unless its work is missing from the capture
    guesses = np.where((known_waits == _NO_WORK) & (work.end[waits_for] <= calls.start), -1, waits_for)
    waits_for = np.where(known_waits >= 0, known_waits, guesses)
    release_ns = np.where(waits_for >= 0, work.end[waits_for], 0)
    is_held = (waits_for >= 0) & (release_ns > calls.start)
    return_ns = calls.end - release_ns
    work_ns = np.where(is_held, np.maximum(return_ns, 0), length)
    # syncs take a typical time to return from a wait; frees, allocations and copies do their own work after it
    is_sync = is_held & (calls.cause == IDLE.index(SYNC))
    work_ns = np.where(is_sync, _medians(calls.name, return_ns, is_sync, _RETURN_NS), work_ns)
    return replace(calls, waits_for=waits_for, work_ns=work_ns)


@of_capture
def _is_waiting_row(timeline: Timeline) -> Flags:
    """Return which rows of api_calls wait for their own copy or memset."""
    is_waiting = np.zeros(len(timeline.profile.table("api_calls")), dtype=bool)
    if "memory_ops" in timeline.profile.tables:
        is_waiting[waiting_calls(timeline)] = True
    return is_waiting


def _guess_waits(calls: CallNodes, work: OperationNodes, callers: Ints, candidates: Ints) -> Ints:
    """Return the operation that each waiting call waits for: the last to end of those launched before it.

    If that operation outlasts the call, return the last one to end during the call instead; -1 if there is none.
    """
    start, end = calls.start[callers], calls.end[callers]
    launch_ns = work.launch_ns[candidates]
    order = np.argsort(launch_ns, kind="stable")
    end_by_launch = work.end[candidates[order]]
    reach = np.maximum.accumulate(end_by_launch)
    # the position of the running maximum
    last_to_end = np.maximum.accumulate(np.where(end_by_launch == reach, np.arange(len(end_by_launch)), 0))
    count = np.searchsorted(launch_ns[order], start, side="right")
    latest = np.where(count > 0, candidates[order[last_to_end[np.maximum(count - 1, 0)]]], -1)
    too_late = (latest >= 0) & (work.end[latest] > end)
    by_end = candidates[np.argsort(work.end[candidates], kind="stable")]
    place = np.searchsorted(work.end[by_end], end, side="right") - 1
    nearest = by_end[np.maximum(place, 0)]
    is_held = (place >= 0) & (work.end[nearest] > start) & (work.launch_ns[nearest] <= start)
    return np.where(too_late, np.where(is_held, nearest, -1), latest)


def _full_queue_waits(calls: CallNodes, work: OperationNodes, callers: Ints, candidates: Ints) -> Ints:
    """Return the operation whose end made room for a launch in a full queue; -1 if the queue was not full."""
    by_end = candidates[np.argsort(work.end[candidates], kind="stable")]
    launch_ns = np.sort(work.launch_ns[candidates])
    start, ends = calls.start[callers], work.end[by_end]
    queue_length = np.searchsorted(launch_ns, start) - np.searchsorted(ends, start)
    place = np.searchsorted(ends, calls.end[callers], side="right") - 1
    nearest = by_end[np.maximum(place, 0)]
    is_held = (place >= 0) & (queue_length >= _QUEUED) & (work.end[nearest] > start)
    return np.where(is_held, nearest, -1)


def _stream_waits(timeline: Timeline, calls: CallNodes, work: OperationNodes) -> Ints:
    """Return the last operation on the stream of each cudaStreamSynchronize; -1 if unknown, _NO_WORK for none."""
    waits_for = np.full(len(calls), -1, dtype=np.int64)
    rows, streams = _waits_for_streams(timeline)
    callers = np.flatnonzero(np.isin(calls.row, rows))
    if not len(callers):
        return waits_for
    launches = _launch_order(timeline, work)
    process, stream = calls.process[callers], streams[np.searchsorted(rows, calls.row[callers])]
    for key, of_process in positions(process).items():
        for stream_id, of_stream in positions(stream[of_process]).items():
            operations, launch_ns = launches.get((key, stream_id), (_NONE, _NONE))
            call = callers[of_process[of_stream]]
            last = np.searchsorted(launch_ns, calls.start[call]) - 1
            waits_for[call] = np.where(last >= 0, np.append(operations, -1)[last], _NO_WORK)
    waiting = np.flatnonzero(waits_for >= 0)
    last = _last_of_launch(work, waits_for[waiting])
    waits_for[waiting] = np.where(work.end[last] <= calls.end[waiting], last, waits_for[waiting])
    # a call does not wait for an operation that outlasts it
    waits_for[waiting[work.end[waits_for[waiting]] > calls.end[waiting]]] = -1
    return waits_for


def _last_of_launch(work: OperationNodes, operations: Ints) -> Ints:
    """Return for each operation the one of its launch that ends last.

    Branches and conditional bodies of a graph run on other streams than its first kernel.
    """
    launch = work.call[operations]
    rows = np.flatnonzero((work.call >= 0) & np.isin(work.call, launch))
    rows = rows[np.lexsort((work.end[rows], work.call[rows]))]
    place = np.searchsorted(work.call[rows], launch, side="right") - 1
    return np.where(launch >= 0, np.append(rows, -1)[place], operations)


@of_capture
def _waits_for_streams(timeline: Timeline) -> tuple[Ints, Ints]:
    """Return the rows of api_calls that are a cudaStreamSynchronize of a known stream, in order, and their streams."""
    waits, table = timeline.profile.recorded("syncs"), timeline.profile.recorded("api_calls")
    is_wait, by_id = are_named(table["name"], "StreamSynchronize"), ["process", "correlation"]
    calling = table.loc[is_wait, by_id].assign(row=np.flatnonzero(is_wait))
    pairs = calling.merge(waits.loc[waits["event"].isna(), [*by_id, "stream"]].drop_duplicates(by_id), on=by_id)
    pairs = pairs.sort_values("row")
    return pairs["row"].to_numpy(), pairs["stream"].to_numpy(dtype=np.int64)


def _add_own(timeline: Timeline, calls: CallNodes, work: OperationNodes) -> tuple[CallNodes, OperationNodes]:
    """Find what work of the default stream follows, and calls wait for, if each line of execution had its own stream.

    Lines of execution launch at the same time, so they do not need each other's work.
    """
    on_default = (timeline.operations.stream[work.operation] == _DEFAULT_STREAM) & (work.call >= 0)
    line = np.where(on_default, np.append(calls.line, -1)[work.call], -1)
    is_first = work.previous < 0
    other_line = line != np.where(is_first, -1, np.append(line, -1)[work.previous])
    is_shared = on_default & ~is_first & other_line & (np.append(line, -1)[work.previous] >= 0)
    if not is_shared.any():
        return calls, work
    stream = np.cumsum(is_first)
    rows = np.flatnonzero(on_default)
    # of one line on one stream, in order
    rows = rows[np.lexsort((rows, line[rows], stream[rows]))]
    follows = (stream[rows[1:]] == stream[rows[:-1]]) & (line[rows[1:]] == line[rows[:-1]])
    own_previous = np.full(len(work), -1, dtype=np.int64)
    own_previous[rows[1:][follows]] = rows[:-1][follows]
    return (
        replace(calls, own_wait=_own_waits(calls, work, line)),
        replace(work, is_shared=is_shared, own_previous=np.where(is_shared, own_previous, -1)),
    )


def _own_waits(calls: CallNodes, work: OperationNodes, line: Ints) -> Ints:
    """Return `own_wait` of each call; line: that of each operation on the default stream, -1 for others."""
    own_wait = np.full(len(calls), -1, dtype=np.int64)
    awaited = np.where(calls.waits_for >= 0, np.append(line, -1)[calls.waits_for], -1)
    callers = np.flatnonzero((awaited >= 0) & (awaited != calls.line) & calls.named("StreamSynchronize"))
    for key, of_line in positions(calls.line[callers]).items():
        own = np.flatnonzero(line == key)
        own = own[np.argsort(work.launch_ns[own], kind="stable")]
        waiting = callers[of_line]
        last = np.searchsorted(work.launch_ns[own], calls.start[waiting]) - 1
        own_wait[waiting] = np.where(last >= 0, np.append(own, -1)[last], -1)
    return own_wait


# -- dependencies between streams -------------------------------------------------------------------------------------


def _add_dependencies(timeline: Timeline, calls: CallNodes, work: OperationNodes) -> OperationNodes:
    """Find the dependencies of operations other than their launch and their stream."""
    if not len(work):
        return work
    after_call = np.where(work.call >= 0, np.append(calls.start, 0)[work.call] + work.latency_ns, 0)
    after_previous = np.where(work.previous >= 0, work.end[work.previous] + work.hop_ns + work.unseen_ns, 0)
    explained_ns = np.maximum(after_call, after_previous)
    dependency = _event_dependencies(timeline, calls, work)
    after_dependency = np.where(dependency >= 0, work.end[dependency] + work.hop_ns, 0)
    dependency = np.where((dependency >= 0) & (work.end[dependency] <= work.start + _LATE_NS), dependency, -1)
    is_late = (work.start > np.maximum(explained_ns, after_dependency) + _LATE_NS) & (explained_ns > 0)
    for of_device in positions(work.device).values():
        unexplained = of_device[is_late[of_device]]
        if not len(unexplained):
            continue
        by_end = of_device[np.argsort(work.end[of_device], kind="stable")]
        place = np.searchsorted(work.end[by_end], work.start[unexplained] + 500, side="right") - 1
        # a short operation may have ended by then, but does not wait for itself
        place -= by_end[place] == unexplained
        nearest = by_end[np.maximum(place, 0)]
        fits = (place >= 0) & (work.start[unexplained] - work.end[nearest] <= _HANDED_ON_NS)
        fits &= nearest != work.previous[unexplained]
        dependency[unexplained] = np.where(fits, nearest, dependency[unexplained])
    return replace(work, dependency=dependency)


def _event_dependencies(timeline: Timeline, calls: CallNodes, work: OperationNodes) -> Ints:
    """Return for each operation the last one before an event that its stream waits for; -1 for none."""
    dependency = np.full(len(work), -1, dtype=np.int64)
    if not len(calls):
        return dependency
    pairs = _events_and_waits(timeline)
    if pairs is None:
        return _assumed_dependencies(timeline, work)
    if not len(pairs):
        return dependency
    launches = _launch_order(timeline, work)
    for (process, stream, source), of_streams in pairs.groupby(["process", "stream", "stream_recorded"], sort=False):
        waiting_operations, waiting_launch_ns = launches.get((process, stream), (_NONE, _NONE))
        source_operations, source_launch_ns = launches.get((process, source), (_NONE, _NONE))
        first_after = np.searchsorted(waiting_launch_ns, of_streams["waits_at"].to_numpy())
        last_before = np.searchsorted(source_launch_ns, of_streams["recorded_at"].to_numpy()) - 1
        has_both = (first_after < len(waiting_operations)) & (last_before >= 0)
        _depend(dependency, work, waiting_operations[first_after[has_both]], source_operations[last_before[has_both]])
    return dependency


@of_capture
def _events_and_waits(timeline: Timeline) -> pd.DataFrame | None:
    """Return the waits of streams for events: process, stream, stream_recorded, and the ns waits_at and recorded_at.

    None if the capture does not say which event a call is about.
    """
    records, waits = (timeline.profile.tables.get(name) for name in ("event_records", "syncs"))
    if records is None or waits is None or not len(records):
        return None
    waiting, recording = _event_calls(timeline)
    waits = waits[waits["event"].notna() & waits["correlation"].notna()]
    keys, by_id = ["process", "event", "record"], ["process", "correlation"]
    pairs = waits[[*keys, "stream", "correlation"]].merge(waiting, on=by_id)
    recorded_events = records.merge(recording, on=by_id).drop_duplicates(keys)
    return pairs.merge(recorded_events[[*keys, "stream", "recorded_at"]], on=keys, suffixes=("", "_recorded"))


@of_capture
def _event_calls(timeline: Timeline) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the calls of cudaStreamWaitEvent and cudaEventRecord: process, correlation, thread, and their start.

    The start is `waits_at` and `recorded_at`, in ns.
    """
    table = timeline.profile.recorded("api_calls")
    names = function_names(timeline)
    waiting, recording = (
        table.loc[
            np.asarray(names.categories.str.contains(function), dtype=bool)[names.codes],
            ["process", "correlation", "thread", "start_ns"],
        ].rename(columns={"start_ns": column})
        for function, column in (("StreamWaitEvent", "waits_at"), ("EventRecord", "recorded_at"))
    )
    return waiting, recording


def _assumed_dependencies(timeline: Timeline, work: OperationNodes) -> Ints:
    """Return the dependencies of `_event_dependencies` for a capture that does not say which event a call is about.

    What a thread launches next after cudaStreamWaitEvent is assumed to follow what it launched last before its last
    cudaEventRecord, if the capture does not show otherwise. A dependency too many only makes a gain smaller.
    """
    dependency = np.full(len(work), -1, dtype=np.int64)
    table, (waiting, recording) = timeline.profile.tables["api_calls"], _event_calls(timeline)
    rows = np.flatnonzero(work.is_recorded)
    thread = table["thread"].to_numpy()[timeline.operations.call[work.operation[rows]]]
    stream = timeline.operations.stream[work.operation]
    records = positions(recording["thread"].to_numpy())
    launches = positions(thread)
    for caller, of_thread in positions(waiting["thread"].to_numpy()).items():
        if caller not in records or caller not in launches:
            continue
        launched = rows[launches[caller]]
        launched = launched[np.argsort(work.launch_ns[launched], kind="stable")]
        waits_at = waiting["waits_at"].to_numpy()[of_thread]
        recorded_at = np.sort(recording["recorded_at"].to_numpy()[records[caller]])
        record = np.searchsorted(recorded_at, waits_at) - 1
        first_after = np.searchsorted(work.launch_ns[launched], waits_at)
        last_before = np.searchsorted(work.launch_ns[launched], recorded_at[record]) - 1
        has_both = (record >= 0) & (first_after < len(launched)) & (last_before >= 0)
        target, reason = launched[first_after[has_both]], launched[last_before[has_both]]
        fits = (stream[target] != stream[reason]) & (work.end[reason] <= work.start[target] + _LATE_NS)
        _depend(dependency, work, target[fits], reason[fits])
    return dependency


def _depend(dependency: Ints, work: OperationNodes, target: Ints, reason: Ints) -> None:
    """Let each target depend on the last to end of its reasons and of what it depended on."""
    order = np.argsort(work.end[reason], kind="stable")
    target, reason = target[order], reason[order]
    is_later = work.end[reason] > np.where(dependency[target] >= 0, work.end[dependency[target]], -1)
    dependency[target[is_later]] = reason[is_later]


def _launch_order(timeline: Timeline, work: OperationNodes) -> dict[Hashable, tuple[Ints, Ints]]:
    """Return the operations of each process and stream in launch order, and the times of their launches."""
    launches: dict[Hashable, tuple[Ints, Ints]] = {}
    recorded_rows = np.flatnonzero(work.is_recorded)
    launch_ns = work.launch_ns[recorded_rows]
    process = _operation_facts(timeline).process[work.operation[recorded_rows]]
    stream = timeline.operations.stream[work.operation[recorded_rows]]
    for key, of_process in positions(process).items():
        for stream_id, of_stream in positions(stream[of_process]).items():
            order = of_process[of_stream][np.argsort(launch_ns[of_process[of_stream]], kind="stable")]
            launches[key, stream_id] = (recorded_rows[order], launch_ns[order])
    return launches
