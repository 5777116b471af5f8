"""The critical path: the chain of events that the end of the window waited for, back to its start.

Every nanosecond of the window belongs to one piece of the path, so the pieces add up to the window.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.causes.functions import Code, function_in
from nightsight.analyze.causes.graph import Graph, OperationNodes, build_graph
from nightsight.analyze.causes.stretches import path_stretches
from nightsight.analyze.ranges.callers import OUTSIDE
from nightsight.analyze.ranges.owners import owners_at
from nightsight.analyze.split import causing_calls
from nightsight.events.names import GRAPH
from nightsight.events.ranges import general_paths, nested_ranges
from nightsight.events.timeline import Timeline, distinct, of_capture, operation_column
from nightsight.events.unseen import graph_captures, unseen_by
from nightsight.intervals import Flags, Ints, covered, cut, scaled, shared, union_of, without
from nightsight.results.categories import (
    CAPTURE,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    DEPENDENCY,
    GRAPHS,
    HOST,
    IDLE,
    LAUNCH,
    MODULE,
    OTHER_CALL,
    UNKNOWN,
    UNSEEN,
)
from nightsight.results.gpu_time import CRITICAL_PATH, PATH_CAUSES
from nightsight.system.parallel import memoize
from nightsight.tables import NULLABLE, aggregate, integers, positions

# `stored: a to b`: with a and with b, the first findings of the stored captures are the same (docs/causes.md)

# the first launch of a kernel has loaded its code if it takes this many times longer than the median call, and at least
# this long (stored: 5 to 20, 50 to 200 µs)
_LOADING: Final = 10
_LOADING_NS: Final = 100_000
# host code with a smaller share of the window is not named
_NAMED_SHARE: Final = 0.01


@dataclass(frozen=True, eq=False)
class Pieces:
    """The pieces of the critical path, the last first; times in ns. They are contiguous and add up to the window.

    `cause`: a position in PATH_CAUSES. `name`: a position in `piece_names`. `thread` and `process`: of the call or the
    host code, -1 for GPU work. `lookup_ns`: when to look up the range; -1 for host code, which can be in several.
    """

    start: Ints
    end: Ints
    cause: Ints
    name: Ints
    thread: Ints
    process: Ints
    lookup_ns: Ints


@memoize
def critical_path(timeline: Timeline) -> Pieces:
    """Return the pieces of the critical path of the window."""
    graph, window = build_graph(timeline), timeline.window
    calls, work = graph.calls, graph.work
    reason, work_start = _event_reasons(graph)
    times = np.concatenate([np.stack([calls.start, calls.end], axis=1).ravel(), work.end])
    chain = _trace_back(reason, times, _last_event(graph, times, window.end_ns), window.start_ns)
    # each piece starts at the event that its own event waited for; the time after the last event is host code
    events = np.append(-1, chain[:-1])
    next_start = np.minimum.accumulate(np.append(window.end_ns, times[chain[:-1]]))
    start = np.maximum(np.append(next_start[1:], window.start_ns), window.start_ns)
    end = np.maximum(next_start, window.start_ns)
    first = 2 * len(calls)
    operation = np.where(events >= first, events - first, -1)
    call = np.where((events >= 0) & (events < first), events // 2, -1)
    cause = np.full(len(events), PATH_CAUSES.index(HOST), dtype=np.int64)
    call_ends = np.flatnonzero((call >= 0) & (events % 2 == 1))
    cause[call_ends] = _call_causes(timeline, graph)[call[call_ends]]
    operations = np.flatnonzero(operation >= 0)
    cause[operations] = _operation_causes(timeline, work)[operation[operations]]
    # before it starts, an operation is on its way to the GPU, or waits there
    work_start_of = np.append(work_start, 0)[operation]
    is_late = np.flatnonzero((operation >= 0) & (work_start_of > start) & (work_start_of < end))
    by_call = (chain[is_late] >= 0) & (chain[is_late] < first)
    on_way, unknown, on_gpu = (PATH_CAUSES.index(cause) for cause in (LAUNCH, UNKNOWN, DEPENDENCY))
    wait_cause = np.select([by_call, chain[is_late] < 0], [on_way, unknown], on_gpu)
    launch = np.where(by_call, chain[is_late] // 2, -1)
    waits = (start[is_late].copy(), work_start_of[is_late], wait_cause, launch, np.full(len(is_late), -1))
    start[is_late] = work_start_of[is_late]
    # host code belongs to the next call, at the end of the window to the last call
    call[0] = next(iter(call[call >= 0]), -1)
    columns = zip((start, end, cause, call, operation), waits, strict=True)
    whole = tuple(np.concatenate(both) for both in columns)
    return _make_pieces(timeline, graph, _mark_unseen(timeline, graph, whole))


def _trace_back(reason: Ints, times: Ints, last: int, until: int) -> Ints:
    """Return the chain of events from `last`, each followed by its reason, to the first at or before a time.

    The chain ends with -1 if the reason of an event is unknown. Reasons are partly guesses, and clocks differ: if they
    form a cycle, the chain continues with the latest event before it.
    """
    # most events follow the one before them in the list: such a run is taken at once
    follows = (reason == np.arange(-1, len(reason) - 1)) & (np.append(until, times[:-1])[: len(times)] > until)
    first_of_run = np.maximum.accumulate(np.where(follows, 0, np.arange(len(reason))))
    # memory views, because indexing a numpy array takes three times as long
    reasons, when, firsts, node, chain = reason.data, times.data, first_of_run.data, last, list[Ints]()
    seen, earliest, by_time = bytearray(len(reason)), np.iinfo(np.int64).max, np.empty(0, dtype=np.int64)
    while node >= 0 and when[node] > until:
        if seen[node]:
            by_time = by_time if len(by_time) else np.argsort(times, kind="stable")
            earlier = int(np.searchsorted(times[by_time], earliest))
            node = int(by_time[earlier - 1]) if earlier else -1
            continue
        # the run ends where the chain has been
        first = max(firsts[node], seen.rfind(1, firsts[node], node) + 1)
        seen[first : node + 1] = b"\1" * (node + 1 - first)
        earliest = min(earliest, int(times[first : node + 1].min()))
        chain.append(np.arange(node, first - 1, -1))
        node = reasons[first]
    return np.concatenate([*chain, np.array([node], dtype=np.int64)])


def _mark_unseen(timeline: Timeline, graph: Graph, columns: tuple[Ints, ...]) -> tuple[Ints, ...]:
    """Mark the parts of pieces without GPU work in which the GPU was not recorded, or graphs were captured.

    Each process marks only its own pieces.
    """
    profile, window = timeline.profile, timeline.window
    bounds = np.array([window.start_ns]), np.array([window.end_ns])
    captures = graph_captures(profile)
    if not len(unseen_by(profile, timeline.operations.device)[0]) and not captures:
        return columns
    owner = np.where(columns[3] >= 0, np.append(graph.calls.process, -1)[columns[3]], -1)
    launcher, parts = operation_column(timeline, "process"), []
    for process in distinct(owner):
        is_own = (owner == process) & (columns[1] > columns[0])
        pieces = tuple(column[is_own] for column in columns)
        # pieces without a call may belong to any process
        may_own = launcher == process if process >= 0 else np.ones(len(launcher), dtype=bool)
        hidden = unseen_by(profile, timeline.operations.device[may_own])
        captured = union_of(spans for capturing, spans in captures.items() if process in (capturing, -1))
        for spans, cause in ((hidden, UNSEEN), (without(captured, hidden), CAPTURE)):
            inside = shared(bounds, spans)
            if not len(inside[0]):
                continue
            order = np.argsort(pieces[0], kind="stable")
            start, end, piece = cut((pieces[0][order], pieces[1][order]), np.concatenate(inside))
            _, _, causes, call, operation = (column[order][piece] for column in pieces)
            is_affected = (covered(inside, start, end) > 0) & (operation < 0)
            pieces = start, end, np.where(is_affected, PATH_CAUSES.index(cause), causes), call, operation
        parts.append(pieces)
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _make_pieces(timeline: Timeline, graph: Graph, columns: tuple[Ints, ...]) -> Pieces:
    """Return the pieces that take time, in order, with names and threads, from start, end, cause, call, operation."""
    start, end, cause, call, operation = columns
    order = np.flatnonzero(end > start)
    order = order[np.argsort(-start[order], kind="stable")]
    start, end, cause, call, operation = (values[order] for values in (start, end, cause, call, operation))
    calls = graph.calls
    functions, families = _piece_name_codes(timeline)
    is_call = (call >= 0) & (cause != PATH_CAUSES.index(HOST))
    name = np.full(len(order), len(piece_names(timeline)) - 1)
    name[operation >= 0] = families[graph.work.operation[operation[operation >= 0]]]
    name[is_call] = functions[calls.name[call[is_call]]]
    thread, process = (np.where(call >= 0, np.append(values, -1)[call], -1) for values in (calls.thread, calls.process))
    lookup_ns = np.where(is_call, np.append(calls.start, -1)[call], -1)
    return Pieces(start, end, cause, name, thread, process, lookup_ns)


def _event_reasons(graph: Graph) -> tuple[Ints, Ints]:
    """Return the event that each event waited for last, -1 for none, and when each operation started its work.

    Events: the starts and ends of calls, alternating, then the ends of operations.
    """
    calls, work = graph.calls, graph.work
    count = len(calls)
    reason = np.empty(2 * count + len(work), dtype=np.int64)
    reason[0 : 2 * count : 2] = np.where(calls.before >= 0, 2 * calls.before + 1, -1)
    is_held = (calls.waits_for >= 0) & (np.append(work.end, 0)[calls.waits_for] > calls.start)
    reason[1 : 2 * count : 2] = np.where(is_held, 2 * count + calls.waits_for, 2 * np.arange(count))
    never = np.iinfo(np.int64).min
    after_call = np.where(work.call >= 0, np.append(calls.start, 0)[work.call] + work.latency_ns, never)
    after_previous, after_dependency = (
        np.where(other >= 0, np.append(work.end, 0)[other] + work.hop_ns, never)
        for other in (work.previous, work.dependency)
    )
    operation_before = np.where(after_previous >= after_dependency, work.previous, work.dependency)
    ready = np.maximum(after_previous, after_dependency)
    own_reason = np.where(operation_before >= 0, 2 * count + operation_before, -1)
    own_reason = np.where(after_call > ready, 2 * work.call, own_reason)
    work_start = work.start.copy()
    members = np.flatnonzero(work.group >= 0)
    if len(members):
        # a collective transfers once its last rank arrives, and waits for what that rank waited for
        order = members[np.lexsort((work.start[members], work.group[members]))]
        is_last = np.append(work.group[order][1:] != work.group[order][:-1], True)
        final = order[is_last]
        place = np.searchsorted(work.group[final], work.group[members])
        own_reason[members], work_start[members] = own_reason[final[place]], work.start[final[place]]
    reason[2 * count :] = own_reason
    return reason, work_start


def _last_event(graph: Graph, times: Ints, until: int) -> int:
    """Return the last event of the window: an operation that runs beyond its end, else the last event in it."""
    calls, work = graph.calls, graph.work
    beyond = np.flatnonzero((work.start < until) & (work.end > until))
    if len(beyond):
        return 2 * len(calls) + int(beyond[np.argmax(work.end[beyond])])
    inside = np.flatnonzero(times <= until)
    return int(inside[np.argmax(times[inside])]) if len(inside) else -1


def _call_causes(timeline: Timeline, graph: Graph) -> Ints:
    """Return the cause of the time of each call."""
    calls, work = graph.calls, graph.work
    to_cause = np.array([PATH_CAUSES.index(cause) if cause in PATH_CAUSES else -1 for cause in IDLE])
    cause = to_cause[calls.cause]
    is_launch = np.zeros(len(calls), dtype=bool)
    is_launch[work.call[work.call >= 0]] = True
    other = PATH_CAUSES.index(OTHER_CALL)
    cause = np.where(is_launch & (cause == other), PATH_CAUSES.index(LAUNCH), cause)
    return np.where(loads_code(timeline, graph), PATH_CAUSES.index(MODULE), cause)


def loads_code(timeline: Timeline, graph: Graph) -> Flags:
    """Return the calls that launch a kernel for the first time and take so long that they must load its code."""
    calls, work = graph.calls, graph.work
    loads = np.zeros(len(calls), dtype=bool)
    if not len(calls) or not len(work):
        return loads
    first_calls = work.call[_is_first_run(timeline)[work.operation] & (work.call >= 0)]
    length = calls.end - calls.start
    median_ns = np.zeros(len(calls.names), dtype=np.int64)
    for key in pd.unique(calls.name[first_calls]):
        median_ns[key] = int(np.median(length[calls.name == key]))
    is_long = length[first_calls] > np.maximum(_LOADING * median_ns[calls.name[first_calls]], _LOADING_NS)
    loads[first_calls] = is_long & (calls.waits_for[first_calls] < 0)
    return loads


@of_capture
def _is_first_run(timeline: Timeline) -> Flags:
    """Return which operations are the first run of their kernel by their process in the capture."""
    return first_runs(timeline, integers(timeline.profile.recorded("kernels")["name"].cat.codes))


def first_runs(timeline: Timeline, kind: Ints) -> Flags:
    """Return which operations are the first of their kind by their process; kind: of each kernel."""
    is_first = np.zeros(len(timeline.operations.kind), dtype=bool)
    kernels = timeline.profile.recorded("kernels")
    order = np.argsort(kernels["start_ns"].to_numpy(), kind="stable")
    runs = pd.DataFrame({"process": kernels["process"].to_numpy()[order], "kind": kind[order]})
    is_first[order[~runs.duplicated().to_numpy()]] = True
    return is_first


def _operation_causes(timeline: Timeline, work: OperationNodes) -> Ints:
    """Return the cause of the time of each operation."""
    by_kind = np.array([PATH_CAUSES.index(cause) for cause in (COMPUTE, COPIES, GRAPHS)])
    cause = by_kind[timeline.operations.kind[work.operation]]
    return np.where(work.is_communication | work.is_peer_copy, PATH_CAUSES.index(COMMUNICATION), cause)


# -- places -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HostCode:
    """Host code cut where ranges start and end: the piece of each part, its start and length in ns, and its range.

    `row`: in `nested_ranges`, -1 outside of all ranges.
    """

    piece: Ints
    start: Ints
    length: Ints
    row: Ints


def cut_at_ranges(timeline: Timeline, thread: Ints, process: Ints, start: Ints, end: Ints) -> HostCode:
    """Cut stretches of host code where ranges of their process start and end."""
    ranges = nested_ranges(timeline.profile)
    bounds = np.concatenate([ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()])
    of_process = np.tile(ranges["process"].to_numpy(), 2)
    edges = {key: distinct(bounds[rows]) for key, rows in positions(of_process).items()}
    low, high = np.zeros((2, len(start)), dtype=np.int64)
    for key, rows in positions(process).items():
        own_bounds = edges.get(key, np.empty(0, dtype=np.int64))
        low[rows] = np.searchsorted(own_bounds, start[rows], side="right")
        high[rows] = np.searchsorted(own_bounds, end[rows], side="left")
    count = np.maximum(high - low, 0) + 1
    piece = np.repeat(np.arange(len(start)), count)
    place = np.arange(len(piece)) - np.repeat(np.cumsum(count) - count, count)
    part_start, part_end = start[piece], end[piece]
    for key, rows in positions(process[piece]).items():
        own_bounds = edges.get(key, np.empty(0, dtype=np.int64))
        if len(own_bounds):
            bound = low[piece[rows]] + place[rows]
            is_inner = place[rows] > 0
            before, after = (own_bounds[np.clip(place, 0, len(own_bounds) - 1)] for place in (bound - 1, bound))
            part_start[rows] = np.where(is_inner, before, part_start[rows])
            is_not_last = place[rows] < count[piece[rows]] - 1
            part_end[rows] = np.where(is_not_last, after, part_end[rows])
    row, _ = owners_at(timeline, thread[piece], process[piece], (part_start + part_end) // 2)
    return HostCode(piece, part_start, part_end - part_start, row)


def path_table(timeline: Timeline) -> Table:
    """Return one row per cause and place of the critical path, the longest first; the rows add up to the window."""
    window, stretches = timeline.window, path_stretches(timeline)
    parts = [vars(critical_path(stretch)).values() for stretch in stretches]
    pieces = Pieces(*(np.concatenate(values) for values in zip(*parts, strict=True)))
    is_host = pieces.cause == PATH_CAUSES.index(HOST)
    host, others = np.flatnonzero(is_host), np.flatnonzero(~is_host)
    on_thread = host[pieces.thread[host] >= 0]
    spans = (pieces.thread, pieces.process, pieces.start, pieces.end)
    host_code = cut_at_ranges(timeline, *(values[on_thread] for values in spans))
    with_call = others[pieces.lookup_ns[others] >= 0]
    lookups = (values[with_call] for values in (pieces.thread, pieces.process, pieces.lookup_ns))
    rows = np.full(len(pieces.cause), -1, dtype=np.int64)
    rows[with_call], _ = owners_at(timeline, *lookups)
    elsewhere = host[pieces.thread[host] < 0]
    piece = np.concatenate([others, elsewhere, on_thread[host_code.piece]])
    row = np.concatenate([rows[others], np.full(len(elsewhere), -1), host_code.row])
    length = np.concatenate([(pieces.end - pieces.start)[np.concatenate([others, elsewhere])], host_code.length])
    ranges = nested_ranges(timeline.profile)["path"].cat
    texts = [*general_paths(timeline.profile), OUTSIDE, ""]
    paths = np.append(ranges.codes.to_numpy(dtype=np.int64), len(texts) - 2)[row]
    is_gpu = pieces.thread[piece] < 0
    keys = {
        "cause": pieces.cause[piece],
        "name": pieces.name[piece],
        "path": pd.factorize(np.array(texts, dtype=object))[0][
            np.where(is_gpu & ~is_host[piece], len(texts) - 1, paths)
        ],
        "thread": pieces.thread[piece],
    }
    table = pd.DataFrame({**keys, "time_ns": length})
    grouped = table.groupby(list(keys), sort=True)
    summed = aggregate(grouped, sum=("time_ns", "sum"), size=("time_ns", "size")).reset_index()
    summed["sum"] = scaled(summed["sum"].to_numpy(), window.length_ns)
    summed = summed.sort_values("sum", ascending=False, kind="stable", ignore_index=True)
    host_pieces = on_thread[host_code.piece]
    code = Code(pieces.thread[host_pieces], host_code.start, host_code.length, pieces.end[host_pieces])
    columns = {
        "cause": np.array(PATH_CAUSES, dtype=object)[summed["cause"]],
        "name": _row_names(timeline, summed, code, keys["path"][-len(host_pieces) :]),
        "path": pd.unique(np.array(texts, dtype=object))[summed["path"]],
        "tid": (summed["thread"].where(summed["thread"] >= 0) % (1 << 24)).astype(NULLABLE),
        "time_ns": summed["sum"],
        "time_pct": 100.0 * summed["sum"] / max(window.length_ns, 1),
        "step_ns": summed["sum"] / max(len(window.repetitions), 1),
        "count": summed["size"],
    }
    frame = pd.DataFrame(columns, columns=CRITICAL_PATH.column_names)
    frame = frame.astype(dict.fromkeys(("cause", "name", "path"), "str"))
    return Table(frame, _stretch_notes(timeline, stretches))


def _row_names(timeline: Timeline, summed: pd.DataFrame, code: Code, path: Ints) -> "np.ndarray[Any, Any]":
    """Return the name of each row: for long host code, the function that runs in it. path: the range of `code`."""
    names = piece_names(timeline)[summed["name"]]
    is_long = (summed["cause"] == PATH_CAUSES.index(HOST)) & (summed["thread"] >= 0)
    is_long &= summed["sum"] >= _NAMED_SHARE * timeline.window.length_ns
    for row in np.flatnonzero(is_long):
        in_row = (path == summed["path"][row]) & (code.thread == summed["thread"][row])
        names[row] = function_in(timeline, code.select(in_row)).name
    return names


def _stretch_notes(timeline: Timeline, stretches: tuple[Timeline, ...]) -> tuple[str, ...]:
    if len(stretches) == 1:
        return ()
    followed_ns = sum(stretch.window.length_ns for stretch in stretches)
    share = 100 * followed_ns / max(timeline.window.length_ns, 1)
    return (
        f"The path was followed through {len(stretches)} stretches spread evenly over the window, {share:.1f} % of it. "
        "Their times are scaled to the whole window; counts are those of the stretches.",
    )


@of_capture
def piece_names(timeline: Timeline) -> "np.ndarray[Any, Any]":
    """Return all names of pieces: kernels, directions of copies, graphs, functions, and no name."""
    tables = timeline.profile.tables
    kernels = [] if "kernels" not in tables else tables["kernels"]["name"].cat.categories.to_list()
    directions = [] if "memory_ops" not in tables else tables["memory_ops"]["operation"].cat.categories.to_list()
    functions = [] if "api_calls" not in tables else causing_calls(timeline).names.to_list()
    return np.array([*kernels, *directions, GRAPH, *functions, ""], dtype=object)


@of_capture
def _piece_name_codes(timeline: Timeline) -> tuple[Ints, Ints]:
    """Return the position in `piece_names` of each function of causing_calls, and of each operation."""
    tables = timeline.profile.tables
    codes, count = [np.empty(0, dtype=np.int64)], 0
    if "kernels" in tables:
        kernels = tables["kernels"]["name"].cat
        codes.append(np.asarray(kernels.codes, dtype=np.int64))
        count = len(kernels.categories)
    if "memory_ops" in tables:
        copies = tables["memory_ops"]["operation"].cat
        codes.append(np.asarray(copies.codes, dtype=np.int64) + count)
        count += len(copies.categories)
    graphs = len(timeline.operations.kind) - sum(len(part) for part in codes)
    codes.append(np.full(graphs, count))
    functions = len(causing_calls(timeline).names) if "api_calls" in tables else 0
    return np.arange(count + 1, count + 1 + functions), np.concatenate(codes)


ANALYSES: Final = (Analysis(CRITICAL_PATH, path_table),)
