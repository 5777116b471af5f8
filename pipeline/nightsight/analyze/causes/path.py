"""The critical path: what the end of the window waited for, and that in turn, back to its beginning.

Every nanosecond of the window belongs to one piece of it, so the pieces add up to the window.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.causes.graph import Calls, Graph, Work, graph
from nightsight.analyze.ranges.callers import OUTSIDE
from nightsight.analyze.ranges.owners import owners_at
from nightsight.events.kernel_names import base_name, communicates
from nightsight.events.names import GRAPH
from nightsight.events.ranges import nested_ranges, without_numbers
from nightsight.events.timeline import Timeline, positions
from nightsight.intervals import Flags, Ints
from nightsight.parallel import once
from nightsight.results import (
    ALLOCATION,
    BLOCKING_COPY,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    CRITICAL_PATH,
    DEPENDENCY,
    GRAPHS,
    HOST,
    IDLE,
    LAUNCH,
    MODULE,
    OTHER_CALL,
    PATH_CAUSES,
    SYNC,
    UNKNOWN,
)
from nightsight.tables import categorical, renamed

# a first launch that takes this many times as long as such a call usually does has loaded code
_LOADING: Final = 10
_LOADING_NS: Final = 100_000


@dataclass(frozen=True, eq=False)
class Pieces:
    """The pieces of the critical path, the last first; times in ns. They touch, and add up to the window.

    `cause`: a position in PATH_CAUSES. `call`, `operation`: positions in the graph's calls and work, -1 for none. Host
    code belongs to the call after it.
    """

    start: Ints
    end: Ints
    cause: Ints
    call: Ints
    operation: Ints


@once
def critical_path(timeline: Timeline) -> Pieces:
    """Return the pieces of the critical path of the window."""
    found, window = graph(timeline), timeline.window
    calls, work = found.calls, found.work
    count = len(calls)
    times = np.empty(2 * count + len(work), dtype=np.int64)
    times[0 : 2 * count : 2], times[1 : 2 * count : 2], times[2 * count :] = calls.start, calls.end, work.end
    reason, begun = _reasons(found)
    node = _last(found, times, window.end_ns)
    chain: list[int] = []
    step = memoryview(reason)
    while node >= 0 and times[node] > window.start_ns:
        chain.append(node)
        node = step[node]
    path = np.array(chain, dtype=np.int64)
    # what a reason could not have caused, since it came later, is left to the next
    until = np.minimum.accumulate(np.append(window.end_ns, times[path]))
    since = np.append(until[1:], window.start_ns)
    # from the end of the window on: what follows the last event, then each event with what led to it
    start, end = np.clip(since, window.start_ns, None), np.clip(until, window.start_ns, None)
    before = np.append(-1, path)
    is_work = before >= 2 * count
    operation = np.where(is_work, before - 2 * count, -1)
    call = np.where(is_work | (before < 0), -1, before // 2)
    cause = np.full(len(before), PATH_CAUSES.index(HOST), dtype=np.int64)
    ends = ~is_work & (before % 2 == 1) & (before >= 0)
    cause[ends] = _of_calls(timeline, found)[call[ends]]
    cause[is_work] = _of_work(timeline, work)[operation[is_work]]
    if len(path) and node < 0 and len(start):
        # nothing is known of what led to the first event, unless it is a call: then host code did
        cause[-1] = cause[-1] if not is_work[-1] else PATH_CAUSES.index(UNKNOWN)
    # an operation that began later than its reason: until then it was on its way, or waited on the GPU
    split = is_work & (begun[operation] > start) & (begun[operation] < end)
    way = np.flatnonzero(split)
    led = np.append(path, -1)[np.minimum(way, len(path))] if len(path) else way
    by_call = (led >= 0) & (led < 2 * count)
    extra = Pieces(
        start[way],
        begun[operation[way]],
        np.where(by_call, PATH_CAUSES.index(LAUNCH), PATH_CAUSES.index(DEPENDENCY)),
        np.where(by_call, led // 2, -1),
        operation[way],
    )
    start = np.where(split, begun[operation], start)
    first = Pieces(start, end, cause, call, operation)
    joined = Pieces(*(np.concatenate(both) for both in zip(vars(first).values(), vars(extra).values(), strict=True)))
    kept = np.flatnonzero(joined.end > joined.start)
    kept = kept[np.argsort(-joined.start[kept], kind="stable")]
    return Pieces(*(column[kept] for column in vars(joined).values()))


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


@once
def _loading(timeline: Timeline) -> Flags:
    found = graph(timeline)
    calls, work = found.calls, found.work
    loads = np.zeros(len(calls), dtype=bool)
    kernels = timeline.profile.tables.get("kernels")
    if kernels is None or not len(calls) or not len(kernels):
        return loads
    codes = kernels["name"].cat.codes.to_numpy()
    order = np.argsort(timeline.operations.start[: len(kernels)], kind="stable")
    first = np.zeros(len(timeline.operations.kind), dtype=bool)
    first[order[np.unique(codes[order], return_index=True)[1]]] = True
    mine = work.call[first[work.operation] & (work.call >= 0)]
    length = calls.end - calls.start
    usual = np.zeros(len(calls.names), dtype=np.int64)
    for key, rows in positions(calls.name).items():
        usual[key] = int(np.median(length[rows]))
    loads[mine] = (length[mine] > np.maximum(_LOADING * usual[calls.name[mine]], _LOADING_NS)) & (
        calls.awaited[mine] < 0
    )
    return loads


def loads_code(timeline: Timeline, found: Graph) -> Flags:
    """Return which calls launch a kernel for the first time and take so long that they must have loaded its code."""
    return _loading(timeline) if len(found.calls) else np.zeros(0, dtype=bool)


def _of_work(timeline: Timeline, work: Work) -> Ints:
    """Return the cause that each operation counts as."""
    operations = timeline.operations
    of_table = np.array([PATH_CAUSES.index(cause) for cause in (COMPUTE, COPIES, GRAPHS)])
    cause = of_table[operations.kind[work.operation]]
    kernels, copies = (timeline.profile.tables.get(name) for name in ("kernels", "memory_ops"))
    collective = np.zeros(len(operations.kind), dtype=bool)
    if kernels is not None and len(kernels):
        names = kernels["name"].cat
        flags = np.array([communicates(name) for name in names.categories], dtype=bool)
        collective[: len(kernels)] = flags[names.codes]
    if copies is not None and len(copies):
        collective[operations.of("memory_ops")] = (copies["operation"] == "Peer-to-Peer").to_numpy()
    return np.where(collective[work.operation], PATH_CAUSES.index(COMMUNICATION), cause)


# -- places -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HostCode:
    """Host code cut where ranges begin and end: which piece each part is of, its length in ns, and its range.

    `row`: in `nested_ranges`, -1 outside of all ranges.
    """

    piece: Ints
    length: Ints
    row: Ints


def cut_at_ranges(timeline: Timeline, thread: Ints, process: Ints, start: Ints, end: Ints) -> HostCode:
    """Cut stretches of host code at the beginnings and ends of the ranges of their process."""
    ranges = nested_ranges(timeline.profile)
    bounds = np.concatenate([ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()])
    of_process = np.tile(ranges["process"].to_numpy(), 2)
    edges = {key: np.unique(bounds[mine]) for key, mine in positions(of_process).items()}
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
    return HostCode(piece, until - since, row)


def path_table(timeline: Timeline) -> Table:
    """Return one row per cause and place of the critical path, the largest first; the rows add up to the window."""
    pieces, found, window = critical_path(timeline), graph(timeline), timeline.window
    calls = found.calls
    host = pieces.cause == PATH_CAUSES.index(HOST)
    # host code after the last event belongs to the line that made the last call
    caller = _callers(pieces, calls)
    thread, process = np.append(calls.thread, 0)[caller], np.append(calls.process, 0)[caller]
    cut = cut_at_ranges(timeline, thread[host], process[host], pieces.start[host], pieces.end[host])
    others = np.flatnonzero(~host)
    by_call = others[pieces.call[others] >= 0]
    rows = np.full(len(pieces.cause), -1, dtype=np.int64)
    rows[by_call], _ = owners_at(timeline, thread[by_call], process[by_call], calls.start[pieces.call[by_call]])
    ranges = nested_ranges(timeline.profile)["path"].cat
    piece = np.concatenate([others, np.flatnonzero(host)[cut.piece]])
    row = np.concatenate([rows[others], cut.row])
    length = np.concatenate([(pieces.end - pieces.start)[others], cut.length])
    texts = np.append(without_numbers(ranges.categories).to_numpy(dtype=object), OUTSIDE)
    codes = np.append(ranges.codes.to_numpy(dtype=np.int64), len(ranges.categories))[row]
    is_call = (pieces.call[piece] >= 0) | (pieces.cause[piece] == PATH_CAUSES.index(HOST))
    texts, codes = np.append(texts, ""), np.where(is_call, codes, len(texts))
    table = pd.DataFrame(
        {
            "cause": pieces.cause[piece],
            "name": _names(timeline, found, pieces)[piece],
            "path": categorical(texts, codes),
            "thread": np.where(is_call, thread[piece], -1),
            "time_ns": length,
        }
    )
    keys = ["cause", "name", "path", "thread"]
    summed = table.groupby(keys, observed=True, sort=True)["time_ns"].agg(["sum", "size"]).reset_index()
    summed = summed.sort_values("sum", ascending=False, kind="stable", ignore_index=True)
    steps = max(len(window.repetitions), 1)
    tid = summed["thread"].where(summed["thread"] >= 0) % (1 << 24)
    shown = {
        "cause": np.array(PATH_CAUSES, dtype=object)[summed["cause"]],
        "name": summed["name"].astype("str"),
        "path": summed["path"].astype("str"),
        "tid": tid.astype("int64[pyarrow]"),
        "time_ns": summed["sum"],
        "time_pct": 100.0 * summed["sum"] / max(window.length_ns, 1),
        "step_ns": summed["sum"] / steps,
        "count": summed["size"],
    }
    return Table(pd.DataFrame(shown).astype({"cause": "str"})[CRITICAL_PATH.column_names])


def _callers(pieces: Pieces, calls: Calls) -> Ints:
    """Return for each piece the call whose thread it belongs to; pieces without one take that of the piece before."""
    caller = pieces.call.copy()
    # pieces are in reverse order of time: the one before in time is the next
    known = np.flatnonzero(caller >= 0)
    if not len(known):
        return np.full(len(caller), -1 if not len(calls) else 0, dtype=np.int64)
    following = np.minimum(np.searchsorted(known, np.arange(len(caller))), len(known) - 1)
    return np.where(caller >= 0, caller, caller[known[following]])


def _names(timeline: Timeline, found: Graph, pieces: Pieces) -> "np.ndarray[Any, Any]":
    """Return what each piece is called: the family of a kernel, the direction of a copy, the function of a call."""
    tables, operations = timeline.profile.tables, timeline.operations
    kernels, copies = tables["kernels"]["name"].cat, tables["memory_ops"]
    families = renamed(tables["kernels"]["name"], lambda names: names.map(base_name))
    directions = copies["operation"].cat
    values = np.concatenate(
        [families.categories.to_numpy(dtype=object), directions.categories.to_numpy(dtype=object), [GRAPH, ""]]
    )
    graphs = len(operations.kind) - len(kernels.codes) - len(copies)
    codes = np.concatenate(
        [
            families.codes.astype(np.int64),
            directions.codes.to_numpy(dtype=np.int64) + len(families.categories),
            np.full(graphs, len(values) - 2),
            [len(values) - 1],
        ]
    )
    operation = np.append(found.work.operation, len(codes) - 1)[pieces.operation]
    is_work = np.isin(pieces.cause, [PATH_CAUSES.index(cause) for cause in (COMPUTE, COMMUNICATION, COPIES, GRAPHS)])
    names = values[codes[np.where(is_work, operation, len(codes) - 1)]]
    calls = found.calls
    of_calls = np.isin(
        pieces.cause,
        [PATH_CAUSES.index(cause) for cause in (MODULE, ALLOCATION, BLOCKING_COPY, LAUNCH, SYNC, OTHER_CALL)],
    )
    functions = np.append(calls.names.to_numpy(dtype=object), "")
    function = functions[np.append(calls.name, len(functions) - 1)[pieces.call]]
    return np.asarray(np.where(of_calls, function, names), dtype=object)


ANALYSES: Final = (Analysis(CRITICAL_PATH, path_table),)
