"""What each CUDA call and each GPU operation in the window waited for: the dependencies that a replay follows.

Two kinds of nodes: calls, in the order of the thread that made them, and operations, in the order of their streams.
Edges, all read off the capture and none of them a delay of a single event:

- a call begins when the thread has done the host code after its call before. Threads that take turns (PyTorch's
  backward pass runs on another thread, while the main thread is silent) count as one line of execution;
- an operation begins after the call that launched it, after the operation before it on its stream, and after what
  its stream was told to wait for (events). Where none of these explains a late start, but another operation of the GPU
  ended just before it, that one does: it held the hardware, or an event that was not recorded;
- a call that waits returns after the operation that it waited for;
- a collective kernel transfers once the last rank's kernel has begun, and ends for all ranks together.
"""

from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.copies import waiting_calls
from nightsight.analyze.split import causing_calls
from nightsight.events.communication import communicating, communication
from nightsight.events.meetings import meetings
from nightsight.events.names import api_names
from nightsight.events.timeline import Timeline, of_capture, operation_column, positions
from nightsight.events.unseen import unseen
from nightsight.intervals import Flags, Ints, covered
from nightsight.results.categories import ALLOCATION, BLOCKING_COPY, IDLE, SYNC
from nightsight.system.parallel import memoize
from nightsight.tables import empty, renamed

# The latencies below are the medians of the planted programs (tests/data/planted: an H200, nsys 2025.3); they only
# count where a capture has too few samples. Each limit lies between what these programs show for the two cases that it
# tells apart; the figures in docs/causes.md say how well.

# without better knowledge: how long after the beginning of its call an operation starts, how long after the one before
# it on a busy stream, and how long a waiting call takes to return
_LATENCY_NS: Final = 8_000
_HOP_NS: Final = 1_000
# more than that is not a latency: something else held the operation up
_MOST_LATENCY_NS: Final = 50_000
# later than that, an operation waited for something else than the one before it
_MOST_HOP_NS: Final = 20_000
_RETURN_NS: Final = 4_000
# a start that comes later than its known reasons by more than this needs another reason
_LATE_NS: Final = 3_000
# an operation that ended no longer than this before such a start is taken for the reason
_HANDED_ON_NS: Final = 6_000
# threads take turns if at most this share of the switches between them happens while a call of the other still runs
_OVERLAPPING: Final = 0.05
# launches block when a thousand operations are queued; a call this many times as long as usual may have been blocked
_BLOCKED: Final = 10
_BLOCKED_NS: Final = 30_000
_QUEUED: Final = 200
_NO_WAITS: Final = "Query|Create|Destroy|Register|^cudaMalloc$|^cuMemAlloc$"
# fewer samples are not typical of anything
_FEW: Final = 5
TO_DEVICE: Final = 0
TO_HOST: Final = 1
_DIRECTIONS: Final = {"Host-to-Device": TO_DEVICE, "Device-to-Host": TO_HOST}
# in the place of an operation that was waited for: there was none to wait for
_NO_WORK: Final = -2
# how many that stay are looked for between those that are taken off a stream
_MOST_BYPASSED: Final = 8
_NONE: Final = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Calls:
    """The CUDA calls of the window that are not inside another call, by thread and time; times in ns.

    `row`: in api_calls. `line`: the line of execution (one thread, or several that take turns). `before`: the call
    after which the line went on to this one, -1 for the first. `awaited`: the operation that it waited for, -1 if it
    waits for nothing. `work_ns`: its own time, without waiting. `held_ns`: the part of the time before it that was not
    host code: the thread was in a collective call that another rank had not reached. It counts as the first part of
    that time. `cause`: a position in IDLE.
    """

    row: Ints
    start: Ints
    end: Ints
    process: Ints
    thread: Ints
    line: Ints
    before: Ints
    awaited: Ints
    work_ns: Ints
    held_ns: Ints
    cause: Ints
    name: Ints
    names: "pd.Index[str]"

    def __len__(self) -> int:
        """The number of calls."""
        return len(self.row)


@dataclass(frozen=True, eq=False, kw_only=True)
class Work:
    """The GPU operations of the window and those that its calls launched, by stream and time; times in ns.

    `operation`: the position in Timeline.operations. `call`: the launching call, a position in Calls, -1 if it is not
    in the window. `launched`: when its call began, in the window or before it; if that is not recorded (`is_recorded`),
    when the operation itself did. `previous`: the operation before it on its stream, `other`: another one that it had
    to wait for, -1 for none. `group`: collectives with the same number transfer together, -1 for all else. `direction`:
    of a copy between host and device, TO_DEVICE or TO_HOST, -1 for all else. `between`: copies from GPU to GPU.
    `bypass`: if `previous` is such a copy or communicates, what came before it on the stream, each further back: others
    of its kind, the nearest ones, and what was before all of them; -1 for none.
    `latency_ns`, `hop_ns`: how long after its call, and after an operation that it waited for, such an operation
    typically begins. `unseen_ns`: for how long it is not known what the GPU did after `previous`: it may have worked.
    """

    operation: Ints
    start: Ints
    end: Ints
    device: Ints
    call: Ints
    launched: Ints
    is_recorded: Flags
    previous: Ints
    other: Ints
    group: Ints
    direction: Ints
    communicates: Flags
    between: Flags
    bypass: tuple[Ints, ...]
    latency_ns: Ints
    hop_ns: Ints
    unseen_ns: Ints

    def __len__(self) -> int:
        """The number of operations."""
        return len(self.operation)


@dataclass(frozen=True, eq=False)
class Graph:
    """The dependencies of a window. `met`: calls that came after another rank was there, and the first one of that."""

    calls: Calls
    work: Work
    met: tuple[Ints, Ints]


@memoize
def graph(timeline: Timeline) -> Graph:
    """Return what waited for what in the window; without calls if they were not traced."""
    calls, rows = _calls(timeline)
    work = _work(timeline, calls, rows)
    calls = _with_waits(timeline, calls, work)
    calls, met = _with_meetings(timeline, calls)
    return Graph(calls, _with_other(timeline, calls, work), met)


@dataclass(frozen=True, eq=False)
class _Facts:
    """What is known of all operations of a capture, whatever the window: see `Work`, and `kind`: which behave alike."""

    process: Ints
    stream: Ints
    kind: Ints
    direction: Ints
    communicates: Flags
    between: Flags


@of_capture
def _facts(timeline: Timeline) -> _Facts:
    operations, tables = timeline.operations, timeline.profile.tables
    count = len(operations.kind)
    process = operation_column(timeline, "process") if count else _NONE
    stream = (pd.factorize(process)[0].astype(np.int64) << 40) + (operations.device.astype(np.int64) << 33)
    kind, direction = operations.in_graph.astype(np.int64), np.full(count, -1, dtype=np.int64)
    between, copies = np.zeros(count, dtype=bool), tables.get("memory_ops")
    if copies is not None and len(copies):
        here = operations.of("memory_ops")
        ways = copies["operation"].cat
        kinds = ways.codes.astype("int64") * 64 + copies["source_kind"].cat.codes.astype("int64") * 8
        kind[here] = 2 + (kinds + copies["target_kind"].cat.codes).to_numpy()
        known = np.array([_DIRECTIONS.get(name, -1) for name in ways.categories])
        direction[here] = known[ways.codes]
        between[here] = copies["operation"] == "Peer-to-Peer"
    return _Facts(process, stream + operations.stream, kind, direction, communicating(timeline), between)


# -- calls ------------------------------------------------------------------------------------------------------------


def _calls(timeline: Timeline) -> tuple[Calls, Ints]:
    """Return the calls of the window, and for each row of api_calls its position in them, or that of the call around.

    -1 outside of the window.
    """
    table, window = timeline.profile.tables.get("api_calls"), timeline.window
    if table is None or not len(table):
        nothing = dict.fromkeys((column.name for column in fields(Calls) if column.name != "names"), _NONE)
        return Calls(**nothing, names=pd.Index([], dtype="str")), _NONE
    causes, thread = causing_calls(timeline), table["thread"].to_numpy()
    start, end, process = causes.start, causes.end, causes.process
    chosen = np.flatnonzero((end > window.start_ns) & (start < window.end_ns))
    # the last place is for operations without a call
    position = np.full(len(table) + 1, -1, dtype=np.int64)
    parts, first = [], 0
    for rows in positions(thread[chosen]).values():
        mine = chosen[rows]
        if not (start[mine][1:] > start[mine][:-1]).all():
            mine = mine[np.lexsort((-end[mine], start[mine]))]
        reach = np.maximum.accumulate(end[mine])
        outermost = np.append(True, end[mine][1:] > reach[:-1])
        # a call inside another one counts as that one
        position[mine] = first + np.cumsum(outermost) - 1
        parts.append(mine[outermost])
        first += len(parts[-1])
    row = np.concatenate(parts) if parts else _NONE
    start, end, process, thread = start[row], end[row], process[row], thread[row]
    line = _lines(start, end, process, thread, launches=_launching(timeline)[row])
    cause = causes.cause[row].astype(np.int64)
    before = _with_first(_before(start, end, thread, line), start, end, process)
    names = causes.name[row].astype(np.int64)
    found = Calls(
        row=row,
        start=start,
        end=end,
        process=process,
        thread=thread,
        line=line,
        before=before,
        awaited=np.full(len(row), -1, dtype=np.int64),
        work_ns=end - start,
        held_ns=np.zeros(len(row), dtype=np.int64),
        cause=cause,
        name=names,
        names=causes.names,
    )
    return found, position


@of_capture
def _launching(timeline: Timeline) -> Flags:
    """Return which rows of api_calls launch an operation; the last entry is for operations without a call."""
    launches = np.zeros(len(timeline.profile.table("api_calls")) + 1, dtype=bool)
    launches[timeline.operations.call] = True
    return launches


def _lines(start: Ints, end: Ints, process: Ints, thread: Ints, *, launches: Flags) -> Ints:
    """Number the lines of execution: threads of a process of which only one at a time makes calls.

    Threads that launch nothing (NCCL's watchdog polls events) have separate lines.
    """
    codes, threads = pd.factorize(thread)
    line = np.arange(len(threads))
    active = np.bincount(codes, launches, len(threads)) > 0
    for rows in positions(process).values():
        mine = rows[active[codes[rows]]]
        order = mine[np.argsort(start[mine], kind="stable")]
        code = codes[order]
        switch = np.flatnonzero(code[1:] != code[:-1])
        pair = np.minimum(code[switch], code[switch + 1]) * len(threads) + np.maximum(code[switch], code[switch + 1])
        overlaps = start[order[switch + 1]] < end[order[switch]]
        for key, here in positions(pair).items():
            if overlaps[here].mean() <= _OVERLAPPING:
                first, second = divmod(key, len(threads))
                line[line == line[second]] = line[first]
    return line[codes]


def _before(start: Ints, end: Ints, thread: Ints, line: Ints) -> Ints:
    """Return for each call the one after which its line went on: the last to return before it began."""
    own = np.arange(-1, len(start) - 1)
    own[np.append(True, thread[1:] != thread[:-1])[: len(own)]] = -1
    if len(pd.unique(line)) == len(pd.unique(thread)):
        return own
    order = np.lexsort((start, line))
    before = np.append(-1, order[:-1])
    first = np.append(True, line[order[1:]] != line[order[:-1]])
    late = end[before] > start[order]
    ordered = np.where(first | late, own[order], before)
    found = np.empty_like(own)
    found[order] = ordered
    return found


def _with_first(before: Ints, start: Ints, end: Ints, process: Ints) -> Ints:
    """Let the first call of each line follow the last call of its process to return before it: that woke its thread."""
    before = before.copy()
    for mine in positions(process).values():
        first = mine[before[mine] < 0]
        by_end = mine[np.argsort(end[mine], kind="stable")]
        # calls may take no time, and none follows itself
        place = np.searchsorted(end[by_end], start[first]) - 1
        before[first] = np.where(place >= 0, by_end[np.maximum(place, 0)], -1)
    return before


# -- operations -------------------------------------------------------------------------------------------------------


def _work(timeline: Timeline, calls: Calls, index: Ints) -> Work:
    operations, window, facts = timeline.operations, timeline.window, _facts(timeline)
    call = index[operations.call] if len(index) else np.full(len(operations.kind), -1, dtype=np.int64)
    chosen = ((operations.end > window.start_ns) & (operations.start < window.end_ns)) | (call >= 0)
    # migrations of managed memory wait for no one, and no one waits for them: the kernels that they hold up are longer
    where = np.flatnonzero(chosen & timeline.is_launched)
    stream = facts.stream[where]
    start = operations.start[where]
    order = np.lexsort((start, stream)) if len(pd.unique(stream)) > 1 else np.argsort(start, kind="stable")
    where, stream = where[order], stream[order]
    start, end, call, row = operations.start[where], operations.end[where], call[where], operations.call[where]
    begun = timeline.profile.tables.get("api_calls", empty("api_calls"))["start_ns"].to_numpy()
    launched = np.where(row >= 0, np.append(begun, 0)[row], start)
    # a copy that is staged through a driver buffer counts as done when its call returns
    over = np.where(call >= 0, np.append(calls.end, 0)[call], 0)
    end = np.where(_blocks(calls, start, call) & (end >= over), over - 1, end)
    previous = np.arange(-1, len(where) - 1)
    previous[np.append(True, stream[1:] != stream[:-1])[: len(previous)]] = -1
    # nodes of a graph that overlap on a stream do not wait for each other. Others do: a kernel that was launched for it
    # (programmatic dependent launch) begins while the one before it ends, and waits for that in its code
    overlaps = (previous >= 0) & (end[previous] > start + _LATE_NS)
    previous[overlaps & (operations.in_graph[where] | (end < end[previous]))] = -1
    is_communication, direction = facts.communicates[where], facts.direction[where]
    group = np.full(len(where), -1, dtype=np.int64)
    group[is_communication] = _collectives(timeline, where[is_communication])
    nothing, unknown = np.zeros(len(where), dtype=np.int64), np.full(len(where), -1, dtype=np.int64)
    work = Work(
        operation=where,
        start=start,
        end=end,
        device=operations.device[where],
        call=call,
        launched=launched,
        is_recorded=row >= 0,
        previous=previous,
        other=unknown,
        group=group,
        direction=direction,
        communicates=is_communication,
        between=facts.between[where],
        bypass=_bypass(previous, np.where(is_communication, 2, np.where(direction >= 0, 1, 0))),
        latency_ns=nothing,
        hop_ns=nothing,
        unseen_ns=nothing,
    )
    kind = facts.kind[where]
    unknown = _unseen_before(timeline, work)
    return replace(work, latency_ns=_latency(calls, work, kind), hop_ns=_hop(calls, work, kind), unseen_ns=unknown)


def _unseen_before(timeline: Timeline, work: Work) -> Ints:
    """Return for how long it is not known what the GPU did between an operation and the one before it on its stream."""
    found = np.zeros(len(work), dtype=np.int64)
    for gpu, unknown in unseen(timeline.profile).items():
        if len(unknown.start):
            mine = np.flatnonzero((work.device == gpu) & (work.previous >= 0))
            since = np.minimum(work.end[work.previous[mine]], work.start[mine])
            found[mine] = covered(unknown.spans, since, work.start[mine])
    return found


def _bypass(previous: Ints, kind: Ints) -> tuple[Ints, ...]:
    """Return what each operation follows if some are taken off its stream: see `Work`.

    Only those with a kind, 1 or more, can be taken off. In the order of streams, operations of one kind without another
    between them form a run.
    """
    if not (kind > 0).any():
        return ()
    follows = np.append(-1, kind[:-1]) == kind
    follows &= previous >= 0
    run = np.maximum.accumulate(np.where(follows, 0, np.arange(len(kind))))
    can_leave = (previous >= 0) & (kind[previous] > 0)
    steps = [np.where(can_leave, previous[run[previous]], -1)]
    before = np.where(can_leave, previous[previous], -1)
    while (before >= 0).any() and len(steps) <= _MOST_BYPASSED:
        # the first of the run leads to what is before it, which is there already
        is_inside = (before >= 0) & (kind[before] == kind[previous])
        steps.append(np.where(is_inside, before, -1))
        before = np.where(is_inside, previous[before], -1)
    return tuple(steps)


def _latency(calls: Calls, work: Work, kind: Ints) -> Ints:
    """Return how long after the beginning of its call each operation begins when its stream is idle.

    That is the length of the call, which is work, plus the typical time after its end. Blocking copies run during their
    calls: for them, all of it is the typical time.
    """
    if not len(calls):
        return np.full(len(work), _LATENCY_NS, dtype=np.int64)
    call, start = work.call, work.start
    begun, over = (np.where(call >= 0, times[call], 0) for times in (calls.start, calls.end))
    is_free = (call >= 0) & (np.where(work.previous >= 0, work.end[work.previous], 0) < begun) & (start >= begun)
    is_free[1:] &= call[1:] != call[:-1]
    blocks = _blocks(calls, start, call)
    # one that had to wait for another copy in its direction says nothing, either
    is_free &= ~blocks | (_engine_until(work) < begun)
    since = np.where(blocks, begun, over)
    name = np.where(call >= 0, calls.name[call], len(calls.names))
    keys = (kind * (len(calls.names) + 1) + name) * 2 + blocks
    is_free &= blocks | (start - since < _MOST_LATENCY_NS)
    # what is typical of copies that block is not of others; without samples, work comes after the end of a long call
    default = np.maximum(_LATENCY_NS - (since - begun), 0)
    of_blocking, of_others = (_typical(keys, start - since, is_free & some, default) for some in (blocks, ~blocks))
    typical = np.where(blocks, of_blocking, of_others)
    return np.where(call >= 0, np.maximum(typical + since - begun, 0), 0)


def _blocks(calls: Calls, start: Ints, call: Ints) -> Flags:
    """Return which operations are copies that run while their call does: it returns when they are done."""
    blocking, over = np.append(calls.cause == IDLE.index(BLOCKING_COPY), False), np.append(calls.end, 0)
    return np.asarray(blocking[call] & (start < over[call]), dtype=bool)


def _engine_until(work: Work) -> Ints:
    """Return until when the copies before each one kept the engine of their direction busy; 0 for all else."""
    found = np.zeros(len(work), dtype=np.int64)
    copies = np.flatnonzero(work.direction >= 0)
    for mine in positions(work.device[copies] * 8 + work.direction[copies]).values():
        engine = copies[mine[np.argsort(work.start[copies[mine]], kind="stable")]]
        found[engine[1:]] = np.maximum.accumulate(work.end[engine])[:-1]
    return found


def _hop(calls: Calls, work: Work, kind: Ints) -> Ints:
    """Return how long after the operation before it on its stream such an operation begins if it was queued by then."""
    ready = np.where(work.previous >= 0, np.append(work.end, 0)[work.previous], 0)
    launched = np.where(work.call >= 0, np.append(calls.end, 0)[work.call], 0)
    is_queued = (work.previous >= 0) & (launched + _LATE_NS < ready) & (work.start >= ready - _LATE_NS)
    is_queued &= work.start < ready + _MOST_HOP_NS
    keys = kind * (int(kind.max(initial=0)) + 1) + np.where(work.previous >= 0, np.append(kind, 0)[work.previous], 0)
    # one that begins before that one ends does so whenever it is launched in time
    is_early = (work.previous >= 0) & (work.start < ready - _LATE_NS)
    return np.where(is_early, work.start - ready, _typical(keys, work.start - ready, is_queued, _HOP_NS))


def _typical(keys: Ints, values: Ints, chosen: Flags, default: Ints | int) -> Ints:
    """Return for each entry the median of the chosen values with its key; if these are few, that of all chosen."""
    codes, distinct = pd.factorize(keys)
    known = values[chosen]
    if len(known) < _FEW:
        return np.broadcast_to(np.asarray(default, dtype=np.int64), values.shape)
    typical = np.full(len(distinct), int(np.median(known)), dtype=np.int64)
    for code, rows in positions(codes[chosen]).items():
        if len(rows) >= _FEW:
            typical[code] = int(np.median(known[rows]))
    return np.asarray(typical[codes], dtype=np.int64)


def _collectives(timeline: Timeline, where: Ints) -> Ints:
    """Number the collectives among the operations `where`, which communicate; -1 for those without a partner there."""
    found = communication(timeline)
    of_operation = np.full(len(timeline.operations.kind), -1, dtype=np.int64)
    of_operation[found["operation"].to_numpy()] = found["collective"].to_numpy()
    group = of_operation[where]
    # a small message is sent ahead: its kernel ends before the last one begins, and did not wait for it
    start, end = timeline.operations.start[where], timeline.operations.end[where]
    group = np.where(end > pd.Series(start).groupby(group).transform("max").to_numpy(), group, -1)
    # a collective of one rank alone is not a group
    grouped = np.flatnonzero(group >= 0)
    _, inverse, count = np.unique(group[grouped], return_inverse=True, return_counts=True)
    group[grouped[count[inverse] < 2]] = -1
    return group


# -- waits ------------------------------------------------------------------------------------------------------------


def _with_meetings(timeline: Timeline, calls: Calls) -> tuple[Calls, tuple[Ints, Ints]]:
    """Find the calls before which a thread was held until another rank came, and what shows that it had come."""
    threads, held, met = positions(calls.thread), calls.held_ns.copy(), list[tuple[int, int]]()

    def following(thread: int, time: int) -> int:
        """Return the first call of a thread at or after a time, -1 for none."""
        mine = threads.get(thread, _NONE)
        place = int(np.searchsorted(calls.start[mine], time))
        return int(mine[place]) if place < len(mine) else -1

    window, found = timeline.window, meetings(timeline)
    since = np.where(calls.before >= 0, np.append(calls.end, 0)[calls.before], window.start_ns)
    # NCCL continues in its own thread, which has not called anything yet
    is_new = np.append(calls.thread, -1)[calls.before] != calls.thread
    found = found[(found["met_ns"] >= window.start_ns) & (found["met_ns"] < window.end_ns)]
    for process, thread, begin, last, time in zip(*(found[name].tolist() for name in found), strict=True):
        mine = (calls.process == process) & ((calls.thread == thread) | is_new)
        came = following(last, time)
        for call in np.flatnonzero(mine & (since <= time) & (calls.start >= time)).tolist() if came >= 0 else ():
            held[call] = max(time - max(int(since[call]), begin), 0)
            # whose own call is first after they have met, differs
            later = following(int(calls.thread[call]), int(calls.start[came]))
            met.extend([(later, came)] if later >= 0 else [])
    after, first = np.array(met, dtype=np.int64).reshape(-1, 2).T
    return replace(calls, held_ns=held), (after, first)


def _with_waits(timeline: Timeline, calls: Calls, work: Work) -> Calls:
    """Find what each waiting call waited for, and how long it took without the wait."""
    if not len(calls) or not len(work):
        return calls
    awaited = np.full(len(calls), -1, dtype=np.int64)
    can_wait = np.array([cause in (SYNC, ALLOCATION, BLOCKING_COPY) for cause in IDLE])
    waits = _waiting_rows(timeline)
    waiting = can_wait[calls.cause] | waits[calls.row]
    # polling does not wait, and neither does an allocation on the GPU
    waiting &= ~np.asarray(calls.names.str.contains(_NO_WAITS), dtype=bool)[calls.name]
    length = calls.end - calls.start
    typical = _typical(calls.name, length, np.ones(len(calls), dtype=bool), length)
    blocked = ~waiting & (length > np.maximum(_BLOCKED * typical, _BLOCKED_NS))
    process = _facts(timeline).process[work.operation]
    for key, mine in positions(calls.process).items():
        work_here = np.flatnonzero(process == key)
        if len(work_here):
            asking = mine[waiting[mine]]
            awaited[asking] = _awaited(calls, work, asking, work_here)
            asking = mine[blocked[mine]]
            awaited[asking] = _made_room(calls, work, asking, work_here)
    known = _known_waits(timeline, calls, work)
    # a stream without work is not waited for, unless some of it was lost
    guessed = np.where((known == _NO_WORK) & (work.end[awaited] <= calls.start), -1, awaited)
    awaited = np.where(known >= 0, known, guessed)
    released = np.where(awaited >= 0, work.end[awaited], 0)
    was_held = (awaited >= 0) & (released > calls.start)
    after = calls.end - released
    work_ns = np.where(was_held, np.maximum(after, 0), length)
    # the time to return from a wait is typical of its kind; frees, allocations and copies do their own work after it
    is_sync = was_held & (calls.cause == IDLE.index(SYNC))
    work_ns = np.where(is_sync, _typical(calls.name, after, is_sync, _RETURN_NS), work_ns)
    return replace(calls, awaited=awaited, work_ns=work_ns)


@of_capture
def _waiting_rows(timeline: Timeline) -> Flags:
    """Return which rows of api_calls wait for their own copy or memset."""
    flags = np.zeros(len(timeline.profile.table("api_calls")), dtype=bool)
    if "memory_ops" in timeline.profile.tables:
        flags[waiting_calls(timeline)] = True
    return flags


def _awaited(calls: Calls, work: Work, asking: Ints, here: Ints) -> Ints:
    """Return the operation that each waiting call waited for: the last to end of all launched before it.

    If that one outlasts the call, it was not waited for: then it is the last to end during the call. -1 if none did.
    """
    start, end = calls.start[asking], calls.end[asking]
    launched = work.launched[here]
    order = np.argsort(launched, kind="stable")
    done = work.end[here[order]]
    reach = np.maximum.accumulate(done)
    # the position of the running maximum
    last = np.maximum.accumulate(np.where(done == reach, np.arange(len(done)), 0))
    count = np.searchsorted(launched[order], start, side="right")
    latest = np.where(count > 0, here[order[last[np.maximum(count - 1, 0)]]], -1)
    too_late = (latest >= 0) & (work.end[latest] > end)
    by_end = here[np.argsort(work.end[here], kind="stable")]
    place = np.searchsorted(work.end[by_end], end, side="right") - 1
    nearest = by_end[np.maximum(place, 0)]
    held = (place >= 0) & (work.end[nearest] > start) & (work.launched[nearest] <= start)
    return np.where(too_late, np.where(held, nearest, -1), latest)


def _made_room(calls: Calls, work: Work, asking: Ints, here: Ints) -> Ints:
    """Return the operation whose end let a launch go on that found the queue full; -1 if the queue was not full."""
    by_end = here[np.argsort(work.end[here], kind="stable")]
    launched = np.sort(work.launched[here])
    queued = np.searchsorted(launched, calls.start[asking]) - np.searchsorted(work.end[by_end], calls.start[asking])
    place = np.searchsorted(work.end[by_end], calls.end[asking], side="right") - 1
    nearest = by_end[np.maximum(place, 0)]
    held = (place >= 0) & (queued >= _QUEUED) & (work.end[nearest] > calls.start[asking])
    return np.where(held, nearest, -1)


def _known_waits(timeline: Timeline, calls: Calls, work: Work) -> Ints:
    """Return the operation that each call waited for where that is known: its own or its stream's, or _NO_WORK."""
    known = _stream_waits(timeline, calls, work)
    own = np.flatnonzero(_blocks(calls, work.start, work.call))
    known[work.call[own]] = own
    return known


def _stream_waits(timeline: Timeline, calls: Calls, work: Work) -> Ints:
    """Return the last operation on the stream that each call of cudaStreamSynchronize waited for; -1 if not known.

    _NO_WORK if the stream was given nothing before.
    """
    found = np.full(len(calls), -1, dtype=np.int64)
    waits, table = timeline.profile.tables.get("syncs"), timeline.profile.tables.get("api_calls")
    if waits is None or table is None:
        return found
    asking = np.flatnonzero(np.asarray(calls.names.str.contains("StreamSynchronize"), dtype=bool)[calls.name])
    if not len(asking):
        return found
    by_id = ["process", "correlation"]
    calling = table.iloc[calls.row[asking]][by_id].assign(call=asking)
    pairs = calling.merge(waits[waits["event"].isna()][[*by_id, "stream"]].drop_duplicates(by_id), on=by_id)
    lanes = _lanes(timeline, work)
    for lane, some in pairs.groupby(["process", "stream"], sort=False):
        there, launched = lanes.get(lane, (_NONE, _NONE))
        call = some["call"].to_numpy()
        last = np.searchsorted(launched, calls.start[call]) - 1
        found[call] = np.where(last >= 0, np.append(there, -1)[last], _NO_WORK)
    # an operation that outlasts the call is not the one that it waited for
    found[(found >= 0) & (work.end[np.maximum(found, 0)] > calls.end)] = -1
    return found


# -- dependencies between streams -------------------------------------------------------------------------------------


def _with_other(timeline: Timeline, calls: Calls, work: Work) -> Work:
    """Find what operations waited for other than their call and their stream."""
    if not len(work):
        return work
    begun = np.where(work.call >= 0, np.append(calls.start, 0)[work.call] + work.latency_ns, 0)
    ready = np.where(work.previous >= 0, work.end[work.previous] + work.hop_ns + work.unseen_ns, 0)
    known = np.maximum(begun, ready)
    other = _events(timeline, calls, work)
    told = np.where(other >= 0, work.end[other] + work.hop_ns, 0)
    other = np.where((other >= 0) & (work.end[other] <= work.start + _LATE_NS), other, -1)
    late = (work.start > np.maximum(known, told) + _LATE_NS) & (known > 0)
    for here in positions(work.device).values():
        asking = here[late[here]]
        if not len(asking):
            continue
        by_end = here[np.argsort(work.end[here], kind="stable")]
        place = np.searchsorted(work.end[by_end], work.start[asking] + 500, side="right") - 1
        # an operation so short that it has ended by then did not wait for itself
        place -= by_end[place] == asking
        nearest = by_end[np.maximum(place, 0)]
        fits = (place >= 0) & (work.start[asking] - work.end[nearest] <= _HANDED_ON_NS)
        fits &= nearest != work.previous[asking]
        other[asking] = np.where(fits, nearest, other[asking])
    return replace(work, other=other)


def _events(timeline: Timeline, calls: Calls, work: Work) -> Ints:
    """Return for each operation the last one before an event that its stream was told to wait for; -1 for none."""
    found = np.full(len(work), -1, dtype=np.int64)
    tables = timeline.profile.tables
    records, waits, table = (tables.get(name) for name in ("event_records", "syncs", "api_calls"))
    if records is None or waits is None or table is None or not len(calls):
        return found
    waits = waits[waits["event"].notna() & waits["correlation"].notna()]
    keys = ["process", "event", "record"]
    by_id = ["process", "correlation"]
    names = renamed(table["name"], api_names)
    wanted = np.asarray(names.categories.str.contains("StreamWaitEvent"), dtype=bool)[names.codes]
    waiting = table.loc[wanted, [*by_id, "start_ns"]].rename(columns={"start_ns": "waits_at"})
    wanted = np.asarray(names.categories.str.contains("EventRecord"), dtype=bool)[names.codes]
    recording = table.loc[wanted, [*by_id, "start_ns"]].rename(columns={"start_ns": "recorded_at"})
    pairs = waits[[*keys, "stream", "correlation"]].merge(waiting, on=by_id)
    recorded = records.merge(recording, on=by_id).drop_duplicates(keys)
    pairs = pairs.merge(recorded[[*keys, "stream", "recorded_at"]], on=keys, suffixes=("", "_recorded"))
    if not len(pairs):
        return found
    lanes = _lanes(timeline, work)
    for (process, stream, source), some in pairs.groupby(["process", "stream", "stream_recorded"], sort=False):
        waiting_lane, begun = lanes.get((process, stream), (_NONE, _NONE))
        source_lane, recorded_by = lanes.get((process, source), (_NONE, _NONE))
        after = np.searchsorted(begun, some["waits_at"].to_numpy())
        until = np.searchsorted(recorded_by, some["recorded_at"].to_numpy()) - 1
        fits = (after < len(waiting_lane)) & (until >= 0)
        target, reason = waiting_lane[after[fits]], source_lane[until[fits]]
        later = work.end[reason] > np.where(found[target] >= 0, work.end[found[target]], -1)
        found[target[later]] = reason[later]
    return found


def _lanes(timeline: Timeline, work: Work) -> dict[Hashable, tuple[Ints, Ints]]:
    """Return the operations of each process and stream in the order of their launches, and when these began."""
    lanes: dict[Hashable, tuple[Ints, Ints]] = {}
    known = np.flatnonzero(work.is_recorded)
    launched = work.launched[known]
    process = _facts(timeline).process[work.operation[known]]
    stream = timeline.operations.stream[work.operation[known]]
    for key, mine in positions(process).items():
        for lane, here in positions(stream[mine]).items():
            order = mine[here][np.argsort(launched[mine[here]], kind="stable")]
            lanes[key, lane] = (known[order], launched[order])
    return lanes
