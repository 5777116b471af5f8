"""Replay a window from its dependencies: compute when each event happens, unchanged and with each change.

Start times follow from the dependencies and a few typical latencies. Only work keeps its measured length: host code
between calls, calls without their waits, and operations. The replay therefore differs from the measurement by what the
model does not explain. All changes are replayed at once: one row per event, one column per change.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.causes.graph import CallNodes, Graph, OperationNodes, build_graph
from nightsight.events.timeline import Timeline, positions
from nightsight.events.window import Window
from nightsight.intervals import Flags, Ints
from nightsight.results.categories import IDLE, SYNC
from nightsight.system.parallel import memoize

FEWEST: Final = 3

# kinds of edges; `item` is a call for the first three, an operation for the others
BEGIN: Final = 0  # host code before a call
CALL: Final = 1  # the call itself, without waiting
AWAIT: Final = 2  # from the end of the operation that a call waits for to the return of the call
LAUNCH: Final = 3
STREAM: Final = 4
OTHER: Final = 5
TRANSFER: Final = 6  # from the last rank's arrival to the end of a collective
ENGINE: Final = 7  # from one copy to the next in its direction: binds only copies that a change moves off their streams
BYPASS: Final = 8  # past a copy or a collective to the operation before it: binds if a change moves that one elsewhere
MEET: Final = 9  # from the first call of the last rank to a call of a rank that waited for it
NEVER: Final = -1e18
"""The lag of an edge that does not bind."""

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Model:
    """The events of a stretch in order, and what each of them follows.

    An event is the start or end of a call, or the end of an operation. Edge i means that event `target[i]` is at least
    `lag[i]` ns after event `source[i]`; a source of -1 is the start of the stretch. `kind` and `item` identify the
    edge. `measured_ns`: the time of each event in the capture. `first`: the first edge of each event. `step`: the
    repetition of each event, -1 for none. `steps`: the number of repetitions, 0 if they are too few to measure one.
    `after_ns`: from the last event to the end of the stretch.
    """

    graph: Graph
    measured_ns: Floats
    source: Ints
    target: Ints
    lag: Floats
    kind: Ints
    item: Ints
    first: Ints
    step: Ints
    steps: int
    after_ns: float

    @cached_property
    def edges(self) -> dict[int, Ints]:
        """The last edge of each item, by kind; -1 if it has none. BYPASS is left out: an item can have several."""
        sizes = {kind: len(self.graph.calls) if kind <= AWAIT else len(self.graph.work) for kind in range(BYPASS)}
        by_kind = {kind: np.full(size + 1, -1, dtype=np.int64) for kind, size in sizes.items()}
        for kind, edges in by_kind.items():
            of_kind = np.flatnonzero((self.kind == kind) & (self.item >= 0))
            edges[self.item[of_kind]] = of_kind
        return by_kind

    @cached_property
    def bypasses(self) -> Ints:
        """All edges of kind BYPASS."""
        return np.flatnonzero(self.kind == BYPASS)

    @cached_property
    def chains(self) -> list[tuple[int, int]]:
        """All events, as the first and the end of chains: each event but the first follows only the one before it.

        Most events of a program are in long chains, whose times are sums.
        """
        follows = (np.diff(self.first, append=len(self.source)) == 1) & (self.source[self.first] >= 0)
        follows &= self.source[self.first] == np.arange(len(self.first)) - 1
        heads = np.flatnonzero(~follows).tolist()
        return list(pairwise([*heads, len(self.first)]))

    def has(self, kind: int) -> Flags:
        """Return which calls or operations have an edge of this kind."""
        return self.edges[kind][:-1] >= 0

    def edges_of(self, kind: int, items: Ints) -> Ints:
        """Return the edges of this kind of these calls or operations."""
        edges = self.edges[kind][items]
        return edges[edges >= 0]

    def bypasses_around(self, removed: Ints, leaving: Ints) -> Ints:
        """Return the BYPASS edges that bind when the edges `removed`, from the events `leaving`, no longer do.

        The next operation on a stream then follows the nearest earlier one that stays. Raise ValueError if there is
        such an operation but graph.py has no bypass to it: the next operation would follow nothing.
        """
        items = np.unique(self.item[removed])
        ways = self.bypasses[np.isin(self.item[self.bypasses], items)]
        before = self.graph.work.previous
        following = self.item[removed[self.kind[removed] == STREAM]]
        following = following[before[before[following]] >= 0]
        if len(following) and not np.any([way[following] >= 0 for way in self.graph.work.bypass], axis=0).all():
            raise ValueError("graph.py has no bypass of an operation that is moved off its stream")
        ways = ways[~np.isin(self.source[ways], leaving) & ~np.isin(self.target[ways], leaving)]
        # events are ordered by time: the last source of an item is the nearest
        order = ways[np.lexsort((self.source[ways], self.item[ways]))]
        nearest: Ints = order[np.append(self.item[order][1:] != self.item[order][:-1], True)[: len(order)]]
        return nearest

    def replay(self, lags: Floats) -> Floats:
        """Return the time of each event in ns from the start of the stretch, one column per column of `lags`."""
        times = lags[self.first]
        source, edges = self.source.tolist(), [*self.first.tolist(), len(self.source)]
        for head, end in self.chains:
            row, low = times[head], edges[head]
            if source[low] >= 0:
                row += times[source[low]]
            for edge in range(low + 1, edges[head + 1]):
                origin = source[edge]
                np.maximum(row, times[origin] + lags[edge] if origin >= 0 else lags[edge], out=row)
            if end > head + 1:
                np.add.accumulate(times[head:end], axis=0, out=times[head:end])
        return times

    def lengths(self, times: Floats) -> Floats:
        """Return the length of a step in ns, per column; of the whole stretch if it has no steps."""
        if not self.steps:
            return np.asarray(times.max(axis=0) + self.after_ns)
        # measured from the end of the first step, which may have waited for earlier work
        first, last = int(self.step[self.step >= 0].min()), int(self.step.max())
        begin, end = (times[self.step == step].max(axis=0) for step in (first, last))
        # a change can let the last step end before the first
        return np.asarray(np.maximum(end - begin, 0) / (last - first))

    def floor(self, lags: Floats) -> Floats:
        """Return a lower bound of `lengths` in ns, per column of `lags`: the work of the busiest stream."""
        edges, stream, hop_ns, steps = self._stream_work
        if not len(edges):
            return np.zeros(lags.shape[1])
        # an operation that starts before the previous one ends counts for less than its length
        sums = pd.DataFrame(np.maximum(lags[edges] - hop_ns[:, None], 0)).groupby(stream).sum()
        return np.asarray(sums.max(axis=0) / steps, dtype=np.float64)

    @cached_property
    def _stream_work(self) -> tuple[Ints, Ints, Ints, int]:
        """The edges between operations of a stream, the stream and the hop in ns of each, and the number of steps.

        Only those of whole steps: in a replay of few steps, work can move into the others.
        """
        edges, work, steps = np.flatnonzero(self.kind == STREAM), self.graph.work, 1
        if len(edges) and self.steps:
            low, high = int(self.step[self.step >= 0].min()), int(self.step.max())
            step = self.step[self.target[edges]]
            edges, steps = edges[(step > low) & (step < high)], high - low - 1
        item = self.item[edges]
        # operations that follow each other on a stream share a number
        stream: Ints = np.cumsum(work.previous < 0)
        return edges, stream[item], np.maximum(work.hop_ns[item], 0), steps


class _EdgeList(NamedTuple):
    """Edges with source, target, lag in ns, kind and item (see Model)."""

    source: Ints
    target: Ints
    lag: Floats
    kind: Ints
    item: Ints

    def select(self, chosen: Flags | Ints) -> "_EdgeList":
        """Return the chosen edges."""
        source, target, kind, item = (values[chosen] for values in (self.source, self.target, self.kind, self.item))
        return _EdgeList(source, target, self.lag[chosen], kind, item)

    def add_fixed(self, events: Ints, times: Floats) -> "_EdgeList":
        """Return these edges and others that keep `events` at fixed times."""
        missing = np.full(len(events), -1)
        kind = np.concatenate([self.kind, np.full(len(events), BEGIN)])
        source, item = (np.concatenate([values, missing]) for values in (self.source, self.item))
        return _EdgeList(source, np.append(self.target, events), np.append(self.lag, times), kind, item)


@memoize
def build_model(timeline: Timeline) -> Model:
    """Build the model of the window of the timeline."""
    graph, window = build_graph(timeline), timeline.window
    groups = np.unique(graph.work.group[graph.work.group >= 0])
    time = _event_times(graph, groups)
    order = np.flatnonzero((time >= window.start_ns) & (time <= window.end_ns))
    # a call can return at the very end of the operation that it waits for
    order = order[np.lexsort((order < 2 * len(graph.calls), time[order]))]
    # the last entry is for the source -1
    rank = np.full(len(time) + 1, -1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    edges = _list_edges(graph, groups, window)
    edges = edges.select(rank[edges.target] >= 0)
    # events before the stretch are not replayed: they keep their times
    fixed_ns = np.append(time - window.start_ns, 0)[edges.source]
    source, target = rank[edges.source], rank[edges.target]
    edges = edges._replace(source=source, target=target, lag=edges.lag + np.where(source < 0, fixed_ns, 0))
    edges = edges.select(edges.source < edges.target)
    # so do events that follow nothing known
    is_explained = np.zeros(len(order), dtype=bool)
    is_explained[edges.target] = True
    measured_ns = (time[order] - window.start_ns).astype(np.float64)
    edges = edges.add_fixed(np.flatnonzero(~is_explained), measured_ns[~is_explained])
    edges = edges.select(np.argsort(edges.target, kind="stable"))
    first = np.searchsorted(edges.target, np.arange(len(order)))
    step = _event_steps(graph, groups, window)[order]
    # a repetition may have neither calls nor work
    distinct_steps = len(np.unique(step[step >= 0]))
    steps = len(window.repetitions) if distinct_steps >= FEWEST else 0
    after_ns = max(window.length_ns - float(measured_ns.max(initial=0)), 0.0)
    return Model(graph, measured_ns, *edges, first, step, steps, after_ns)


def _event_times(graph: Graph, groups: Ints) -> Ints:
    """Return the time of each event: starts and ends of calls, ends of operations, last arrivals at collectives."""
    calls, work = graph.calls, graph.work
    arrivals = np.full(len(groups), np.iinfo(np.int64).min)
    is_grouped = work.group >= 0
    np.maximum.at(arrivals, np.searchsorted(groups, work.group[is_grouped]), work.start[is_grouped])
    return np.concatenate([np.stack([calls.start, calls.end], axis=1).ravel(), work.end, arrivals])


def _event_steps(graph: Graph, groups: Ints, window: Window) -> Ints:
    """Return the repetition of each event, -1 for none: an operation belongs to the repetition of its call.

    Threads that launch nothing belong to none, since they may poll at any time (NCCL's watchdog). Neither do
    repetitions whose work ends after the window: their length is unknown.
    """
    calls, work = graph.calls, graph.work
    step = np.full(len(calls) + 1, -1, dtype=np.int64)
    is_launching = np.isin(calls.line, calls.line[work.call[work.call >= 0]])
    for process, first in window.first_steps.items():
        of_process = np.flatnonzero((calls.process == process) & is_launching)
        step[of_process] = np.searchsorted(window.steps[process], calls.start[of_process], side="right") - 1
        step[of_process] += first * (step[of_process] >= 0)
    step = np.minimum(step, max(map(len, window.steps.values()), default=0) - 1)
    unfinished = np.unique(step[work.call[work.end > window.end_ns]])
    step = np.where(np.isin(step, unfinished), -1, step)
    return np.concatenate([np.repeat(step[:-1], 2), step[work.call], np.full(len(groups), -1)])


def _list_edges(graph: Graph, groups: Ints, window: Window) -> _EdgeList:
    """Return all edges; events are numbered as in `_event_times`."""
    later_calls, first_calls = graph.meetings
    start = graph.calls.start
    lag = start[later_calls] - start[first_calls]
    meeting_edges = (MEET, 2 * first_calls, 2 * later_calls, lag, np.full(len(later_calls), -1))
    parts = [
        meeting_edges,
        *_call_edges(graph.calls, graph.work, window),
        *_operation_edges(graph.calls, graph.work, groups, window),
    ]
    source, target, lag, item = (np.concatenate([part[place] for part in parts]) for place in (1, 2, 3, 4))
    kind = np.concatenate([np.full(len(part[4]), part[0], dtype=np.int64) for part in parts])
    return _EdgeList(source, target, lag.astype(np.float64), kind, item)


_EdgesOfKind = tuple[int, Ints, Ints, Ints, Ints]
"""Edges of one kind: the kind, sources, targets, lags and items."""


def _call_edges(calls: CallNodes, work: OperationNodes, window: Window) -> Iterator[_EdgesOfKind]:
    call, length = np.arange(len(calls)), calls.end - calls.start
    has_previous = calls.before >= 0
    previous_end = np.where(has_previous, np.append(calls.end, 0)[calls.before], window.start_ns)
    gap = calls.start - previous_end - calls.rank_wait_ns
    yield BEGIN, np.where(has_previous, 2 * calls.before + 1, -1), 2 * call, gap, call
    is_held = (calls.waits_for >= 0) & (np.append(work.end, 0)[calls.waits_for] > calls.start)
    shortest_ns, is_sync = unblocked_ns(calls), calls.cause == IDLE.index(SYNC)
    own_ns = np.where(is_held & is_sync, shortest_ns, calls.work_ns)
    yield CALL, 2 * call, 2 * call + 1, np.minimum(own_ns, length), call
    waiting_calls = np.flatnonzero(calls.waits_for >= 0)
    # a wait for work that was already done may block after a change
    return_ns = np.where(is_held, calls.work_ns, np.where(is_sync, shortest_ns, 0))[waiting_calls]
    yield AWAIT, 2 * len(calls) + calls.waits_for[waiting_calls], 2 * waiting_calls + 1, return_ns, waiting_calls


def _operation_edges(calls: CallNodes, work: OperationNodes, groups: Ints, window: Window) -> Iterator[_EdgesOfKind]:
    first, length = 2 * len(calls), work.end - work.start
    is_grouped, group = work.group >= 0, np.searchsorted(groups, work.group)
    # edges to a member of a collective lead to the last arrival instead, and that leads to the ends
    goal = first + np.where(is_grouped, len(work) + group, np.arange(len(work)))
    rest_ns = np.where(is_grouped, 0, length)
    rows = np.flatnonzero(work.call >= 0)
    yield LAUNCH, 2 * work.call[rows], goal[rows], (work.latency_ns + rest_ns)[rows], rows
    queue_ns = work.hop_ns + work.unseen_ns
    for kind, reasons, lag_ns in ((STREAM, work.previous, queue_ns), (OTHER, work.dependency, work.hop_ns)):
        rows = np.flatnonzero(reasons >= 0)
        yield kind, first + reasons[rows], goal[rows], (lag_ns + rest_ns)[rows], rows
    rows = np.flatnonzero(is_grouped)
    transfer_ns = np.full(len(groups), np.iinfo(np.int64).max)
    np.minimum.at(transfer_ns, group[rows], length[rows])
    yield TRANSFER, goal[rows], first + rows, transfer_ns[group[rows]], rows
    for before in work.bypass:
        rows = np.flatnonzero(before >= 0)
        yield BYPASS, first + before[rows], goal[rows], np.full(len(rows), NEVER), rows
    copies = np.flatnonzero(work.direction >= 0)
    engine = work.device[copies] * 8 + work.direction[copies]
    order = np.lexsort((work.start[copies], engine))
    is_same_engine = engine[order][1:] == engine[order][:-1]
    rows, before = copies[order][1:][is_same_engine], copies[order][:-1][is_same_engine]
    yield ENGINE, first + before, first + rows, np.full(len(rows), NEVER), rows
    rows = np.flatnonzero((work.call < 0) & (work.previous < 0) & (work.dependency < 0) & ~is_grouped)
    yield LAUNCH, np.full(len(rows), -1), first + rows, work.end[rows] - window.start_ns, rows


@memoize
def unblocked_ns(calls: CallNodes) -> Ints:
    """Return how long each call takes if it need not wait: the tenth percentile of its function.

    For calls that waited, only the time after the wait counts: if all calls of a function wait, none is short.
    """
    percentile = np.zeros(int(calls.name.max(initial=-1)) + 1, dtype=np.int64)
    for key, rows in positions(calls.name).items():
        percentile[key] = int(np.quantile(calls.work_ns[rows], 0.1))
    return np.asarray(np.minimum(percentile[calls.name], calls.end - calls.start), dtype=np.int64)
