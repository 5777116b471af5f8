"""The critical path: what the end of the window waited for, and that in turn, back to its beginning.

Every nanosecond of the window belongs to one piece of it, so the pieces add up to the window.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.causes.functions import Code, function_in
from nightsight.analyze.causes.graph import Graph, Work, graph
from nightsight.analyze.causes.stretches import followed
from nightsight.analyze.ranges.callers import OUTSIDE
from nightsight.analyze.ranges.owners import owners_at
from nightsight.analyze.split import causing_calls
from nightsight.events.names import GRAPH
from nightsight.events.ranges import nested_ranges, without_numbers
from nightsight.events.timeline import Timeline, distinct, of_capture, operation_column, positions
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
from nightsight.tables import NULLABLE

# a first launch that takes this many times as long as such a call usually does has loaded code
_LOADING: Final = 10
_LOADING_NS: Final = 100_000
# of the window: what runs in host code that takes less is not looked up
_NAMED_SHARE: Final = 0.01


@dataclass(frozen=True, eq=False)
class Pieces:
    """The pieces of the critical path, the last first; times in ns. They touch, and add up to the window.

    `cause`: a position in PATH_CAUSES; `name`: one in `names_of`. `thread` and `process`: of the call or the host code,
    -1 for GPU work. `asked`: when its range is looked up; host code can be in several, -1.
    """

    start: Ints
    end: Ints
    cause: Ints
    name: Ints
    thread: Ints
    process: Ints
    asked: Ints


@memoize
def critical_path(timeline: Timeline) -> Pieces:
    """Return the pieces of the critical path of the window."""
    found, window = graph(timeline), timeline.window
    calls, work = found.calls, found.work
    reason, begun = _reasons(found)
    times = np.concatenate([np.stack([calls.start, calls.end], axis=1).ravel(), work.end])
    led = _followed(reason, times, _last(found, times, window.end_ns), window.start_ns)
    # each event begins where the one that led to it ends; what follows the last event is host code
    events = np.append(-1, led[:-1])
    until = np.minimum.accumulate(np.append(window.end_ns, times[led[:-1]]))
    start, end = (np.maximum(edge, window.start_ns) for edge in (np.append(until[1:], window.start_ns), until))
    first = 2 * len(calls)
    operation = np.where(events >= first, events - first, -1)
    call = np.where((events >= 0) & (events < first), events // 2, -1)
    cause = np.full(len(events), PATH_CAUSES.index(HOST), dtype=np.int64)
    ends = np.flatnonzero((call >= 0) & (events % 2 == 1))
    cause[ends] = _of_calls(timeline, found)[call[ends]]
    ran = np.flatnonzero(operation >= 0)
    cause[ran] = _of_work(timeline, work)[operation[ran]]
    # an operation that began later than what led to it: until then it was on its way, or waited on the GPU
    began = np.append(begun, 0)[operation]
    late = np.flatnonzero((operation >= 0) & (began > start) & (began < end))
    by_call = (led[late] >= 0) & (led[late] < first)
    ways = [PATH_CAUSES.index(way) for way in (LAUNCH, UNKNOWN, DEPENDENCY)]
    way = np.select([by_call, led[late] < 0], ways[:2], ways[2])
    before = (start[late].copy(), began[late], way, np.where(by_call, led[late] // 2, -1), np.full(len(late), -1))
    start[late] = began[late]
    # host code belongs to the call after it, and at the end of the window to the last call before
    call[0] = next(iter(call[call >= 0]), -1)
    columns = zip((start, end, cause, call, operation), before, strict=True)
    whole = tuple(np.concatenate(both) for both in columns)
    return _pieces(timeline, found, _with_unseen(timeline, found, whole))


def _followed(reason: Ints, times: Ints, last: int, until: int) -> Ints:
    """Return the events starting with the last, each followed by its reason, until the first not after a time.

    -1 if there is none: it is not recorded what led to the one before. That of no event is -1, too.
    Where reasons lead back to an event (they are guesses, and clocks differ), the latest event before goes on.
    """
    # as views of memory: indexing a numpy array takes three times as long
    reasons, when, node, chain = reason.data, times.data, last, list[int]()
    seen, now, by_time = bytearray(len(reason)), np.iinfo(np.int64).max, np.empty(0, dtype=np.int64)
    while node >= 0 and when[node] > until:
        if seen[node]:
            by_time = by_time if len(by_time) else np.argsort(times, kind="stable")
            earlier = int(np.searchsorted(times[by_time], now))
            node = int(by_time[earlier - 1]) if earlier else -1
            continue
        seen[node] = 1
        now = min(now, when[node])
        chain.append(node)
        node = reasons[node]
    return np.array([*chain, node], dtype=np.int64)


def _with_unseen(timeline: Timeline, found: Graph, columns: tuple[Ints, ...]) -> tuple[Ints, ...]:
    """Cut pieces that are not work of the GPU where it is not known what it did, or where graphs were captured.

    What is unknown of a process, or captured by it, says nothing of pieces of another one.
    """
    profile, window = timeline.profile, timeline.window
    bounds = np.array([window.start_ns]), np.array([window.end_ns])
    captures = graph_captures(profile)
    if not len(unseen_by(profile, timeline.operations.device)[0]) and not captures:
        return columns
    owner = np.where(columns[3] >= 0, np.append(found.calls.process, -1)[columns[3]], -1)
    launcher, parts = operation_column(timeline, "process"), []
    for process in distinct(owner):
        here = (owner == process) & (columns[1] > columns[0])
        mine = tuple(column[here] for column in columns)
        # pieces of no call can be of any process
        is_mine = launcher == process if process >= 0 else np.ones(len(launcher), dtype=bool)
        hidden = unseen_by(profile, timeline.operations.device[is_mine])
        captured = union_of(spans for capturing, spans in captures.items() if process in (capturing, -1))
        for spans, cause in ((hidden, UNSEEN), (without(captured, hidden), CAPTURE)):
            inside = shared(bounds, spans)
            if not len(inside[0]):
                continue
            order = np.argsort(mine[0], kind="stable")
            start, end, piece = cut((mine[0][order], mine[1][order]), np.concatenate(inside))
            _, _, causes, call, operation = (column[order][piece] for column in mine)
            changes = (covered(inside, start, end) > 0) & (operation < 0)
            mine = start, end, np.where(changes, PATH_CAUSES.index(cause), causes), call, operation
        parts.append(mine)
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _pieces(timeline: Timeline, found: Graph, columns: tuple[Ints, ...]) -> Pieces:
    """Return the pieces that take any time, in order, with names and threads; start, end, cause, call, operation."""
    start, end, cause, call, operation = columns
    kept = np.flatnonzero(end > start)
    kept = kept[np.argsort(-start[kept], kind="stable")]
    start, end, cause, call, operation = (values[kept] for values in (start, end, cause, call, operation))
    calls = found.calls
    functions, families = _name_codes(timeline)
    is_call = (call >= 0) & (cause != PATH_CAUSES.index(HOST))
    name = np.full(len(kept), len(names_of(timeline)) - 1)
    name[operation >= 0] = families[found.work.operation[operation[operation >= 0]]]
    name[is_call] = functions[calls.name[call[is_call]]]
    thread, process = (np.where(call >= 0, np.append(values, -1)[call], -1) for values in (calls.thread, calls.process))
    asked = np.where(is_call, np.append(calls.start, -1)[call], -1)
    return Pieces(start, end, cause, name, thread, process, asked)


def _reasons(found: Graph) -> tuple[Ints, Ints]:
    """Return for each event the one that it waited for last, -1 for none, and when each operation did its own work.

    Events: the beginnings and ends of calls, alternating, then the ends of operations.
    """
    calls, work = found.calls, found.work
    count = len(calls)
    reason = np.empty(2 * count + len(work), dtype=np.int64)
    reason[0 : 2 * count : 2] = np.where(calls.before >= 0, 2 * calls.before + 1, -1)
    held = (calls.awaited >= 0) & (np.append(work.end, 0)[calls.awaited] > calls.start)
    reason[1 : 2 * count : 2] = np.where(held, 2 * count + calls.awaited, 2 * np.arange(count))
    none = np.iinfo(np.int64).min
    called = np.where(work.call >= 0, np.append(calls.start, 0)[work.call] + work.latency_ns, none)
    queued, told = (
        np.where(other >= 0, np.append(work.end, 0)[other] + work.hop_ns, none) for other in (work.previous, work.other)
    )
    by_work = np.where(queued >= told, work.previous, work.other)
    ready = np.maximum(queued, told)
    own = np.where(called > ready, 2 * work.call, np.where(by_work >= 0, 2 * count + by_work, -1))
    begun = work.start.copy()
    members = np.flatnonzero(work.group >= 0)
    if len(members):
        # a collective goes on when its last rank has come, and that rank came when its own reasons let it
        order = members[np.lexsort((work.start[members], work.group[members]))]
        last = np.append(work.group[order][1:] != work.group[order][:-1], True)
        final = order[last]
        place = np.searchsorted(work.group[final], work.group[members])
        own[members], begun[members] = own[final[place]], work.start[final[place]]
    reason[2 * count :] = own
    return reason, begun


def _last(found: Graph, times: Ints, until: int) -> int:
    """Return the event at the end of the window: an operation that runs beyond it, else the last event in it."""
    calls, work = found.calls, found.work
    beyond = np.flatnonzero((work.start < until) & (work.end > until))
    if len(beyond):
        return 2 * len(calls) + int(beyond[np.argmax(work.end[beyond])])
    inside = np.flatnonzero(times <= until)
    return int(inside[np.argmax(times[inside])]) if len(inside) else -1


def _of_calls(timeline: Timeline, found: Graph) -> Ints:
    """Return the cause that the time of each call itself counts as."""
    calls, work = found.calls, found.work
    to_cause = np.array([PATH_CAUSES.index(cause) if cause in PATH_CAUSES else -1 for cause in IDLE])
    cause = to_cause[calls.cause]
    launches = np.zeros(len(calls), dtype=bool)
    launches[work.call[work.call >= 0]] = True
    other = PATH_CAUSES.index(OTHER_CALL)
    cause = np.where(launches & (cause == other), PATH_CAUSES.index(LAUNCH), cause)
    return np.where(loads_code(timeline, found), PATH_CAUSES.index(MODULE), cause)


def loads_code(timeline: Timeline, found: Graph) -> Flags:
    """Return which calls launch a kernel for the first time and take so long that they must have loaded its code."""
    calls, work = found.calls, found.work
    loads = np.zeros(len(calls), dtype=bool)
    if not len(calls) or not len(work):
        return loads
    mine = work.call[_first_runs(timeline)[work.operation] & (work.call >= 0)]
    length = calls.end - calls.start
    usual = np.zeros(len(calls.names), dtype=np.int64)
    for key in pd.unique(calls.name[mine]):
        usual[key] = int(np.median(length[calls.name == key]))
    long = length[mine] > np.maximum(_LOADING * usual[calls.name[mine]], _LOADING_NS)
    loads[mine] = long & (calls.awaited[mine] < 0)
    return loads


@of_capture
def _first_runs(timeline: Timeline) -> Flags:
    """Return which operations are the first of their kernel in the capture."""
    flags = np.zeros(len(timeline.operations.kind), dtype=bool)
    kernels = timeline.profile.tables.get("kernels")
    if kernels is not None and len(kernels):
        codes, start = kernels["name"].cat.codes.to_numpy(), kernels["start_ns"].to_numpy()
        order = np.argsort(start, kind="stable")
        flags[order[~pd.Series(codes[order]).duplicated().to_numpy()]] = True
    return flags


def _of_work(timeline: Timeline, work: Work) -> Ints:
    """Return the cause that each operation counts as."""
    of_table = np.array([PATH_CAUSES.index(cause) for cause in (COMPUTE, COPIES, GRAPHS)])
    cause = of_table[timeline.operations.kind[work.operation]]
    return np.where(work.communicates | work.between, PATH_CAUSES.index(COMMUNICATION), cause)


# -- places -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HostCode:
    """Host code cut where ranges begin and end: which piece each part is of, its start and length in ns, its range.

    `row`: in `nested_ranges`, -1 outside of all ranges.
    """

    piece: Ints
    start: Ints
    length: Ints
    row: Ints


def cut_at_ranges(timeline: Timeline, thread: Ints, process: Ints, start: Ints, end: Ints) -> HostCode:
    """Cut stretches of host code at the beginnings and ends of the ranges of their process."""
    ranges = nested_ranges(timeline.profile)
    bounds = np.concatenate([ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()])
    of_process = np.tile(ranges["process"].to_numpy(), 2)
    edges = {key: distinct(bounds[mine]) for key, mine in positions(of_process).items()}
    low, high = np.zeros((2, len(start)), dtype=np.int64)
    for key, mine in positions(process).items():
        own = edges.get(key, np.empty(0, dtype=np.int64))
        low[mine] = np.searchsorted(own, start[mine], side="right")
        high[mine] = np.searchsorted(own, end[mine], side="left")
    count = np.maximum(high - low, 0) + 1
    piece = np.repeat(np.arange(len(start)), count)
    place = np.arange(len(piece)) - np.repeat(np.cumsum(count) - count, count)
    since, until = start[piece], end[piece]
    for key, mine in positions(process[piece]).items():
        own = edges.get(key, np.empty(0, dtype=np.int64))
        if len(own):
            at = low[piece[mine]] + place[mine]
            inner = place[mine] > 0
            since[mine] = np.where(inner, own[np.clip(at - 1, 0, len(own) - 1)], since[mine])
            more = place[mine] < count[piece[mine]] - 1
            until[mine] = np.where(more, own[np.clip(at, 0, len(own) - 1)], until[mine])
    row, _ = owners_at(timeline, thread[piece], process[piece], (since + until) // 2)
    return HostCode(piece, since, until - since, row)


def path_table(timeline: Timeline) -> Table:
    """Return one row per cause and place of the critical path, the largest first; the rows add up to the window."""
    window, stretches = timeline.window, followed(timeline)
    parts = [vars(critical_path(stretch)).values() for stretch in stretches]
    pieces = Pieces(*(np.concatenate(values) for values in zip(*parts, strict=True)))
    is_host = pieces.cause == PATH_CAUSES.index(HOST)
    host, others = np.flatnonzero(is_host), np.flatnonzero(~is_host)
    known = host[pieces.thread[host] >= 0]
    code_in = cut_at_ranges(
        timeline, *(values[known] for values in (pieces.thread, pieces.process, pieces.start, pieces.end))
    )
    called = others[pieces.asked[others] >= 0]
    rows = np.full(len(pieces.cause), -1, dtype=np.int64)
    rows[called], _ = owners_at(timeline, pieces.thread[called], pieces.process[called], pieces.asked[called])
    unknown = host[pieces.thread[host] < 0]
    piece = np.concatenate([others, unknown, known[code_in.piece]])
    row = np.concatenate([rows[others], np.full(len(unknown), -1), code_in.row])
    length = np.concatenate([(pieces.end - pieces.start)[np.concatenate([others, unknown])], code_in.length])
    ranges = nested_ranges(timeline.profile)["path"].cat
    texts = [*without_numbers(ranges.categories), OUTSIDE, ""]
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
    summed = table.groupby(list(keys), sort=True)["time_ns"].agg(["sum", "size"]).reset_index()
    summed["sum"] = scaled(summed["sum"].to_numpy(), window.length_ns)
    summed = summed.sort_values("sum", ascending=False, kind="stable", ignore_index=True)
    here = known[code_in.piece]
    code = Code(pieces.thread[here], code_in.start, code_in.length, pieces.end[here])
    shown = {
        "cause": np.array(PATH_CAUSES, dtype=object)[summed["cause"]],
        "name": _names(timeline, summed, code, keys["path"][-len(here) :]),
        "path": pd.unique(np.array(texts, dtype=object))[summed["path"]],
        "tid": (summed["thread"].where(summed["thread"] >= 0) % (1 << 24)).astype(NULLABLE),
        "time_ns": summed["sum"],
        "time_pct": 100.0 * summed["sum"] / max(window.length_ns, 1),
        "step_ns": summed["sum"] / max(len(window.repetitions), 1),
        "count": summed["size"],
    }
    frame = pd.DataFrame(shown, columns=CRITICAL_PATH.column_names).astype(
        dict.fromkeys(("cause", "name", "path"), "str")
    )
    return Table(frame, _notes(timeline, stretches))


def _names(timeline: Timeline, summed: pd.DataFrame, code: Code, path: Ints) -> "np.ndarray[Any, Any]":
    """Return the name of each row; of host code, which is in the ranges `path`, what runs in it if it takes long."""
    names = names_of(timeline)[summed["name"]]
    asked = (summed["cause"] == PATH_CAUSES.index(HOST)) & (summed["thread"] >= 0)
    asked &= summed["sum"] >= _NAMED_SHARE * timeline.window.length_ns
    for row in np.flatnonzero(asked):
        mine = (path == summed["path"][row]) & (code.thread == summed["thread"][row])
        names[row] = function_in(timeline, code.of(mine)).name
    return names


def _notes(timeline: Timeline, stretches: tuple[Timeline, ...]) -> tuple[str, ...]:
    if len(stretches) == 1:
        return ()
    followed_ns = sum(stretch.window.length_ns for stretch in stretches)
    share = 100 * followed_ns / max(timeline.window.length_ns, 1)
    return (
        f"The path was followed through {len(stretches)} stretches spread evenly over the window, {share:.1f} % of it. "
        "Their times are scaled to the whole window; counts are those of the stretches.",
    )


@of_capture
def names_of(timeline: Timeline) -> "np.ndarray[Any, Any]":
    """Return the names of pieces: kernels, directions of copies, graphs, functions, and none."""
    tables = timeline.profile.tables
    kernels = [] if "kernels" not in tables else tables["kernels"]["name"].cat.categories.to_list()
    directions = [] if "memory_ops" not in tables else tables["memory_ops"]["operation"].cat.categories.to_list()
    functions = [] if "api_calls" not in tables else causing_calls(timeline).names.to_list()
    return np.array([*kernels, *directions, GRAPH, *functions, ""], dtype=object)


@of_capture
def _name_codes(timeline: Timeline) -> tuple[Ints, Ints]:
    """Return the position in `names_of` of each function of causing_calls, and of each operation."""
    tables = timeline.profile.tables
    codes, before = [np.empty(0, dtype=np.int64)], 0
    if "kernels" in tables:
        kernels = tables["kernels"]["name"].cat
        codes.append(np.asarray(kernels.codes, dtype=np.int64))
        before = len(kernels.categories)
    if "memory_ops" in tables:
        copies = tables["memory_ops"]["operation"].cat
        codes.append(np.asarray(copies.codes, dtype=np.int64) + before)
        before += len(copies.categories)
    graphs = len(timeline.operations.kind) - sum(len(some) for some in codes)
    codes.append(np.full(graphs, before))
    functions = len(causing_calls(timeline).names) if "api_calls" in tables else 0
    return np.arange(before + 1, before + 1 + functions), np.concatenate(codes)


ANALYSES: Final = (Analysis(CRITICAL_PATH, path_table),)
