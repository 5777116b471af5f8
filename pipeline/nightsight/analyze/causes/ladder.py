"""How a replayed step divides: what each GPU computes, copies and communicates, and what it waits for.

The definitions are those of *Where the time went*, with the times of a replay instead of those of the capture.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from nightsight.analyze.causes.graph import Graph
from nightsight.analyze.causes.model import BYPASS, CALL, LAUNCH, NEVER, OTHER, STREAM, Model
from nightsight.analyze.causes.scene import Edit
from nightsight.analyze.split import LATENCY_NS, CauseCalls, Gaps, Kinds, cause_layers, operation_kinds
from nightsight.events.timeline import Timeline
from nightsight.intervals import Floats, Ints, Spans, clipped_union, length, separate
from nightsight.results.categories import BUSY, COMPUTE, IDLE
from nightsight.tables import positions

_NONE: Final = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Replay:
    """A replay after some edits: the lags of all edges, the times of all events, and the length of a step, in ns."""

    lag: Floats
    times: Floats
    length_ns: float
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, eq=False)
class _Replayed:
    """When calls and operations run in a replay, in whole ns. operation: their positions in the graph."""

    calls: CauseCalls
    operation: Ints
    start: Ints
    end: Ints
    bounds: tuple[int, int]


def split_step(timeline: Timeline, model: Model, replay: Replay) -> dict[str, float]:
    """Return the time of each category in a replayed step, the mean of all GPUs; they add up to its length."""
    replayed, kinds, work = _replayed(model, replay), operation_kinds(timeline), model.graph.work
    rows_of = positions(work.device[replayed.operation])
    splits = [_split_device(model.graph, kinds, replayed, rows) for rows in rows_of.values()]
    whole_ns = replayed.bounds[1] - replayed.bounds[0]
    # as in the split of a window, GPUs without work do not count
    splits = [parts for parts in splits if any(category in parts for category in BUSY)]
    if not splits or whole_ns <= 0:
        return {COMPUTE: replay.length_ns}
    scale = replay.length_ns / whole_ns / len(splits)
    sums = {category: sum(parts.get(category, 0) for parts in splits) for category in (*BUSY, *IDLE)}
    return {category: scale * time for category, time in sums.items() if time}


def _replayed(model: Model, replay: Replay) -> _Replayed:
    calls, work = model.graph.calls, model.graph.work
    event, count = model.event, 2 * len(calls)
    begin, end, _ = (float(value) for value in model.measured_span(replay.times))
    times = np.rint(np.append(replay.times, 0.0)).astype(np.int64)
    call_start, call_end = times[event[:count:2]], times[event[1:count:2]]
    # a process has calls of each cause, though maybe none that is replayed and takes any time
    takes_time = model.has(CALL) & (event[:count:2] >= 0) & (call_end > call_start)
    rows = {
        (process, cause): of_process[takes_time[of_process] & (calls.cause[of_process] == cause)]
        for process, of_process in positions(calls.process).items()
        for cause in range(len(IDLE))
    }
    causes = (calls.cause.astype(np.int8), calls.name, calls.names)
    own_calls = CauseCalls(call_start, call_end, calls.process, calls.thread, *causes, rows)
    ends = times[event[count : count + len(work)]]
    starts = np.minimum(_starts(model, replay, ends), ends)
    operation = np.flatnonzero((event[count : count + len(work)] >= 0) & (ends > starts))
    bounds = (round(begin), round(end))
    return _Replayed(own_calls, operation, starts[operation], ends[operation], bounds)


def _starts(model: Model, replay: Replay, ends: Ints) -> Ints:
    """Return when operations start: their lengths before their ends, or for collectives, as soon as they can."""
    work, earlier_ns = model.graph.work, _earlier_ns(model, replay.edits)
    # only what makes all reasons of an operation earlier makes it shorter
    shorter_ns, ready_ns = np.full(len(work), np.inf), np.full(len(work), -np.inf)
    for kind in (LAUNCH, STREAM, OTHER, BYPASS):
        edges = model.edges[kind][:-1]
        rows = np.flatnonzero(edges >= 0)
        rows = rows[replay.lag[edges[rows]] > NEVER / 2]
        edge = edges[rows]
        origin = np.where(model.source[edge] >= 0, replay.times[model.source[edge]], 0.0)
        ready_ns[rows] = np.maximum(ready_ns[rows], origin + replay.lag[edge])
        shorter_ns[rows] = np.minimum(shorter_ns[rows], earlier_ns[edge])
    length_ns = np.maximum(work.end - work.start - np.where(np.isinf(shorter_ns), 0.0, shorter_ns), 0)
    is_collective = (work.group >= 0) & np.isfinite(ready_ns)
    return np.rint(np.where(is_collective, ready_ns, ends - length_ns)).astype(np.int64)


def _earlier_ns(model: Model, edits: tuple[Edit, ...]) -> Floats:
    """Return by how much edits shorten the operation that each edge leads to.

    Other changes of lags are of latencies. A copy that leaves its stream follows its launch alone.
    """
    earlier_ns = np.zeros(len(model.lag))
    for change in chain.from_iterable(edits):
        if change.how in ("earlier", "shorter"):
            is_latency = (change.how == "shorter") & (model.kind[change.edges] != LAUNCH)
            earlier_ns[change.edges] += np.where(is_latency, 0.0, change.value)
    return earlier_ns


def _split_device(graph: Graph, kinds: Kinds, replayed: _Replayed, rows: Ints) -> Mapping[str, int]:
    """Return the time of each category on a device within the bounds; `rows`: its operations."""
    unassigned: Spans = (np.array([replayed.bounds[0]]), np.array([replayed.bounds[1]]))
    start, end, parts = replayed.start[rows], replayed.end[rows], {}
    kind = kinds.kind[graph.work.operation[replayed.operation[rows]]]
    for position, category in enumerate(BUSY):
        spans = clipped_union(start[kind == position], end[kind == position], replayed.bounds)
        visible, unassigned = separate(unassigned, spans)
        parts[category] = length(visible)
    gaps = _gaps(graph, kinds, replayed, rows[np.argsort(start, kind="stable")], unassigned)
    for category, spans, _ in cause_layers(gaps, replayed.calls, (_NONE, _NONE), {}):
        parts[category] = parts.get(category, 0) + length(spans)
    return {category: time for category, time in parts.items() if time}


def _gaps(graph: Graph, kinds: Kinds, replayed: _Replayed, rows: Ints, idle: Spans) -> Gaps:
    """Return the idle pieces of a device, each with the call of the operation that ends it; `rows`: by start."""
    work, calls = graph.work, replayed.calls
    following = np.searchsorted(replayed.start[rows], idle[1], side="left")
    has_next = following < len(rows)
    operation = replayed.operation[rows[np.minimum(following, len(rows) - 1)]]
    call = np.where(has_next, work.call[operation], -1)
    # what was launched before the stretch was launched long ago
    early = np.where(has_next & work.is_recorded[operation], idle[0] - LATENCY_NS, idle[1])
    call_start, call_end = (
        np.where(call >= 0, np.append(of_calls, 0)[call], early) for of_calls in (calls.start, calls.end)
    )
    return Gaps(
        *idle,
        kinds.process[work.operation[operation]],
        np.where(has_next, operation, -1),
        call,
        np.where(call >= 0, np.append(calls.thread, -1)[call], -1),
        call_start,
        call_end,
        np.where(call >= 0, np.append(calls.name, 0)[call], 0),
        has_next & ~work.is_recorded[operation],
        has_next,
        call_end + LATENCY_NS,
    )
