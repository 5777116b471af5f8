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
from nightsight.events.timeline import Timeline
from nightsight.events.window import Window
from nightsight.intervals import Flags, Floats, Ints
from nightsight.results.categories import IDLE, SYNC
from nightsight.system.parallel import memoize
from nightsight.tables import positions

FEWEST: Final = 3

# kinds of edges; `item` is a call for the first four, an operation for the others
BEGIN: Final = 0  # host code before a call
CALL: Final = 1  # the call itself, without waiting
AWAIT: Final = 2  # from the end of the operation that a call waits for to the return of the call
AWAIT_OWN: Final = 3  # the same without work of other threads: binds only if a change gives threads their own streams
LAUNCH: Final = 4
STREAM: Final = 5
STREAM_OWN: Final = 6  # from the previous operation of its thread on the default stream: binds only after such a change
OTHER: Final = 7
TRANSFER: Final = 8  # from the last rank's arrival to the end of a collective
ENGINE: Final = 9  # from one copy to the next in its direction: binds only copies that a change moves off their streams
# three kinds lead around a copy or communication that a change can move off its stream, through an event: the time at
# which its stream would be free without it. They follow from STREAM as long as nothing has moved
PASS: Final = 10  # from the operation before it, which is the `item`; removed if that operation moves, too
SKIP: Final = 11  # from the event of the operation before it, which is the `item`, if that can move
BYPASS: Final = 12  # from its event to the next operation on the stream
MEET: Final = 13  # from the first call of the last rank to a call of a rank that waited for it
NEVER: Final = -1e18
"""The lag of an edge that does not bind."""

# instead of an operation: nothing was before on its stream, or something before the stretch; there is no bypass
_NOTHING: Final = -1
_BEFORE_STRETCH: Final = -2
_NO_BYPASS: Final = -3


@dataclass(frozen=True, eq=False)
class Model:
    """The events of a stretch in order, and what each of them follows.

    An event is the start or end of a call, the end of an operation, the last arrival at a collective, or the time at
    which a stream would be free without one of its operations. Edge i means that event `target[i]` is at least `lag[i]`
    ns after event `source[i]`; a source of -1 is the start of the stretch. `kind` and `item` identify the edge.
    `measured_ns`: the time of each event in the capture. `first`: the first edge of each event. `step`: the repetition
    of each event, -1 for none. `steps`: the number of repetitions, 0 if they are too few to measure one. `after_ns`:
    from the last event to the end of the stretch. `event`: the places of the starts and ends of all calls, then of the
    ends of all operations; -1 for those that are not replayed.
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
    event: Ints

    @cached_property
    def edges(self) -> dict[int, Ints]:
        """The last edge of each item, by kind; -1 if it has none. Edges of kind MEET have no item."""
        sizes = {kind: len(self.graph.calls) if kind < LAUNCH else len(self.graph.work) for kind in range(MEET)}
        by_kind = {kind: np.full(size + 1, -1, dtype=np.int64) for kind, size in sizes.items()}
        for kind, edges in by_kind.items():
            of_kind = np.flatnonzero((self.kind == kind) & (self.item >= 0))
            edges[self.item[of_kind]] = of_kind
        return by_kind

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

    def passed_on(self, removed: Ints, leaving: Ints) -> Ints:
        """Return the PASS edges that no longer bind when the edges `removed` do not, as the operations `leaving` leave.

        What followed these on their stream then follows the nearest earlier operation that stays. Raise ValueError if
        the edges around them lead elsewhere: the next operation would start too early or too late.
        """
        work = self.graph.work
        leaves = np.zeros(len(work), dtype=bool)
        leaves[leaving] = True
        following = self.item[removed[self.kind[removed] == STREAM]]
        following = following[~leaves[following]]
        is_wrong = ~work.can_leave[work.previous[following]]
        following = following[~is_wrong & is_bypassed(work)[work.previous[following]]]
        origin = self._bypass_origins(leaves)[following]
        # an operation is next to the one before it on its stream
        chain_start = np.maximum.accumulate(np.where(work.previous < 0, np.arange(len(work)), 0))
        nearest = np.maximum.accumulate(np.where(leaves, -1, np.arange(len(work))))[work.previous[following]]
        nearest = np.where(nearest < chain_start[following], _NOTHING, nearest)
        if is_wrong.any() or ((origin != nearest) & (origin != _BEFORE_STRETCH)).any():
            raise ValueError("an operation moves off its stream without a bypass to the nearest one that stays")
        return self.edges_of(PASS, np.flatnonzero(leaves))

    def _bypass_origins(self, leaves: Flags) -> Ints:
        """Return for each operation the one that it follows by its BYPASS edge if some leave their streams.

        Otherwise _NOTHING if that is the start of the stretch, _BEFORE_STRETCH, or _NO_BYPASS.
        """
        count = len(leaves)
        # of what leads around each operation: the operation before it, or what leads around that one
        before = np.arange(-1, count - 1)
        passes = (self.edges[PASS][before] >= 0) & ~leaves[before]
        skip = self.edges[SKIP][before]
        origin = np.select(
            [self.graph.work.previous < 0, passes, (skip >= 0) & (self.source[skip] < 0)],
            [_NOTHING, before, _BEFORE_STRETCH],
            _NO_BYPASS,
        )
        is_led_on = (origin == _NO_BYPASS) & (skip >= 0)
        origin = origin[np.maximum.accumulate(np.where(is_led_on, 0, np.arange(count)))]
        bypass = self.edges[BYPASS][:-1]
        is_before = (bypass >= 0) & (self.source[bypass] < 0)
        return np.select([bypass < 0, is_before], [_NO_BYPASS, _BEFORE_STRETCH], origin[before])

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
        begin, end, count = self.measured_span(times)
        # a change can let the last step end before the first
        return np.asarray(np.maximum(end - begin, 0) / count)

    def measured_span(self, times: Floats) -> tuple[Floats, Floats, int]:
        """Return when the measured steps begin and end, per column, and their number; of the stretch without steps."""
        if not self.steps:
            end = np.asarray(times.max(axis=0) + self.after_ns)
            return np.zeros_like(end), end, 1
        # measured from the end of the first step, which may have waited for earlier work
        first, last = int(self.step[self.step >= 0].min()), int(self.step.max())
        begin, end = (np.asarray(times[self.step == step].max(axis=0)) for step in (first, last))
        return begin, end, last - first


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
    time = _event_times(graph, groups, window)
    order = np.flatnonzero((time >= window.start_ns) & (time <= window.end_ns))
    # a call can return at the very end of the operation that it waits for
    order = order[np.lexsort((_tie_breaks(graph, groups)[order], order < 2 * len(graph.calls), time[order]))]
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
    event = rank[: 2 * len(graph.calls) + len(graph.work)]
    return Model(graph, measured_ns, *edges, first, step, steps, after_ns, event)


@memoize
def is_bypassed(work: OperationNodes) -> Flags:
    """Return which operations have edges around them: those that can leave, and are followed on their stream.

    Operations that leave in a row have none if, by the clock, what follows one of them ended before what came earlier.
    """
    goal_ns = np.where(work.group >= 0, work.start, work.end)
    can_leave, is_followed = work.can_leave, np.append(work.previous[1:] >= 0, False)[: len(work)]
    is_early = np.append(_free_before(work)[:-1] > goal_ns[1:], False)[: len(work)]
    run = np.cumsum(~(can_leave & (work.previous >= 0) & np.append(False, can_leave[:-1])[: len(work)]))
    is_out_of_order = np.bincount(run, can_leave & is_followed & is_early) > 0
    return np.asarray(can_leave & is_followed & ~is_out_of_order[run])


def _free_before(work: OperationNodes) -> Ints:
    """Return when all operations before each one on its stream had ended; 0 if there are none."""
    ended = pd.Series(work.end).groupby(np.cumsum(work.previous < 0)).cummax().to_numpy()
    return np.where(work.previous >= 0, np.append(ended, 0)[work.previous], 0)


def _tie_breaks(graph: Graph, groups: Ints) -> Ints:
    """Return the order of events at the same time: that of streams, then last arrivals."""
    calls, work = np.arange(2 * len(graph.calls)), np.arange(len(graph.work))
    arrivals = 2 * len(work) + np.arange(len(groups))
    return np.concatenate([calls, 2 * work, arrivals, 2 * np.flatnonzero(is_bypassed(graph.work)) - 1])


def _event_times(graph: Graph, groups: Ints, window: Window) -> Ints:
    """Return the time of each event, in this order.

    Starts and ends of calls, ends of operations, last arrivals at collectives, and when streams would be free without
    each operation that has edges around it.
    """
    calls, work = graph.calls, graph.work
    arrivals = np.full(len(groups), np.iinfo(np.int64).min)
    is_grouped = work.group >= 0
    np.maximum.at(arrivals, np.searchsorted(groups, work.group[is_grouped]), work.start[is_grouped])
    free = np.where(work.previous < 0, window.start_ns, _free_before(work))[is_bypassed(work)]
    return np.concatenate([np.stack([calls.start, calls.end], axis=1).ravel(), work.end, arrivals, free])


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
    others = len(groups) + int(is_bypassed(work).sum())
    return np.concatenate([np.repeat(step[:-1], 2), step[work.call], np.full(others, -1)])


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
    rows = np.flatnonzero(calls.own_wait >= 0)
    yield AWAIT_OWN, 2 * len(calls) + calls.own_wait[rows], 2 * rows + 1, np.full(len(rows), NEVER), rows


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
    rows = np.flatnonzero(work.own_previous >= 0)
    yield STREAM_OWN, first + work.own_previous[rows], goal[rows], np.full(len(rows), NEVER), rows
    rows = np.flatnonzero(is_grouped)
    transfer_ns = np.full(len(groups), np.iinfo(np.int64).max)
    np.minimum.at(transfer_ns, group[rows], length[rows])
    yield TRANSFER, goal[rows], first + rows, transfer_ns[group[rows]], rows
    yield from _edges_around(work, first, goal, work.hop_ns + rest_ns, first + len(work) + len(groups))
    copies = np.flatnonzero(work.direction >= 0)
    engine = work.device[copies] * 8 + work.direction[copies]
    order = np.lexsort((work.start[copies], engine))
    is_same_engine = engine[order][1:] == engine[order][:-1]
    rows, before = copies[order][1:][is_same_engine], copies[order][:-1][is_same_engine]
    yield ENGINE, first + before, first + rows, np.full(len(rows), NEVER), rows
    rows = np.flatnonzero((work.call < 0) & (work.previous < 0) & (work.dependency < 0) & ~is_grouped)
    yield LAUNCH, np.full(len(rows), -1), first + rows, work.end[rows] - window.start_ns, rows


def _edges_around(work: OperationNodes, first: int, goal: Ints, lag: Ints, free: int) -> Iterator[_EdgesOfKind]:
    """Yield the edges around operations that can leave.

    first, free: the first event of operations and of streams that are free. goal, lag: of the edges to each operation.
    """
    bypassed = is_bypassed(work)
    rows = np.flatnonzero(bypassed)
    events = np.full(len(work), -1, dtype=np.int64)
    events[rows] = free + np.arange(len(rows))
    yield BYPASS, events[rows], goal[rows + 1], lag[rows + 1], rows + 1
    rows = rows[work.previous[rows] >= 0]
    before = work.previous[rows]
    yield PASS, first + before, events[rows], np.zeros(len(rows), dtype=np.int64), before
    rows, before = rows[bypassed[before]], before[bypassed[before]]
    yield SKIP, events[before], events[rows], np.zeros(len(rows), dtype=np.int64), before


@memoize
def unblocked_ns(calls: CallNodes) -> Ints:
    """Return how long each call takes if it need not wait: the tenth percentile of its function.

    For calls that waited, only the time after the wait counts: if all calls of a function wait, none is short.
    """
    percentile = np.zeros(int(calls.name.max(initial=-1)) + 1, dtype=np.int64)
    for key, rows in positions(calls.name).items():
        percentile[key] = int(np.quantile(calls.work_ns[rows], 0.1))
    return np.asarray(np.minimum(percentile[calls.name], calls.end - calls.start), dtype=np.int64)
