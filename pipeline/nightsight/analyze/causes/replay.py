"""Replays a window from its dependencies: when everything would have happened, as it was and with things changed.

A start follows from what it waited for and from a few typical latencies; only work has its measured length: host code
between calls, calls without their waits, and operations. So the replayed length differs from the measured one by what
the model does not explain. All changes are replayed together: a row of times for each event, one column a change.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from nightsight.analyze.causes.graph import Graph, graph
from nightsight.events.timeline import Timeline, Window, positions
from nightsight.intervals import Ints
from nightsight.parallel import once
from nightsight.results import IDLE, SYNC

_FEWEST: Final = 3

# kinds of edges; `item` is the call of the first three and the operation of the others
BEGIN: Final = 0  # host code before a call
CALL: Final = 1  # the call itself, without waiting
AWAIT: Final = 2  # a waited-for operation, to the return of the call
LAUNCH: Final = 3
STREAM: Final = 4
OTHER: Final = 5
TRANSFER: Final = 6  # from the last rank's arrival to the end of a collective
ENGINE: Final = 7  # from one copy to the next in its direction: binds only copies that a change takes off their streams
BYPASS: Final = 8  # from what was before a copy or a collective on the stream: binds if a change takes that one off
NEVER: Final = -1e18
"""The lag of an edge that does not bind."""

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Model:
    """The events of a stretch in order, and what each of them follows.

    An event is the beginning or the end of a call, or the end of an operation. Edge i says: event `target[i]` is not
    before event `source[i]` plus `lag[i]` ns; a source of -1 is the beginning of the stretch. `kind` and `item` say
    what the edge is. `first`: the first edge of each event. `step`: the repetition of each event, -1 outside.
    """

    graph: Graph
    begin_ns: int
    measured: Floats
    source: Ints
    target: Ints
    lag: Floats
    kind: Ints
    item: Ints
    first: Ints
    step: Ints
    steps: int

    @cached_property
    def edges(self) -> dict[int, Ints]:
        """The edge of each kind of each item, -1 where it has none: the last if there are several."""
        sizes = {kind: len(self.graph.calls) if kind <= AWAIT else len(self.graph.work) for kind in range(BYPASS + 1)}
        found = {kind: np.full(size + 1, -1, dtype=np.int64) for kind, size in sizes.items()}
        for kind, edges in found.items():
            mine = np.flatnonzero((self.kind == kind) & (self.item >= 0))
            edges[self.item[mine]] = mine
        return found

    def of(self, kind: int, items: Ints) -> Ints:
        """Return the edges of a kind that these calls or operations have."""
        edges = self.edges[kind][items]
        return edges[edges >= 0]

    def replay(self, lags: Floats) -> Floats:
        """Return the time of each event in ns since the beginning, a column for each column of `lags`."""
        times = np.zeros((len(self.first), lags.shape[1]))
        source, edges = self.source.tolist(), [*self.first.tolist(), len(self.source)]
        for event, (low, high) in enumerate(zip(edges, edges[1:], strict=False)):
            row = times[event]
            for edge in range(low, high):
                origin = source[edge]
                if edge == low:
                    if origin < 0:
                        row[:] = lags[edge]
                    else:
                        np.add(times[origin], lags[edge], out=row)
                else:
                    np.maximum(row, times[origin] + lags[edge] if origin >= 0 else lags[edge], out=row)
        return times

    def lengths(self, times: Floats) -> Floats:
        """Return how long the stretch takes per column: of one step if there are several, otherwise as a whole, in ns."""
        if self.steps < _FEWEST:
            return np.asarray(times.max(axis=0))
        ends = np.full((self.steps, times.shape[1]), -np.inf)
        inside = self.step >= 0
        np.maximum.at(ends, self.step[inside], times[inside])
        # from the end of the first step: it may have had to wait for earlier work
        return np.asarray((ends[-1] - ends[0]) / (self.steps - 1))


@once
def model(timeline: Timeline) -> Model:
    """Return the model of the window of the timeline."""
    found, window = graph(timeline), timeline.window
    work = found.work
    groups = np.unique(work.group[work.group >= 0])
    time = _times(found, groups)
    source, target, lag, kind, item = _edges(found, groups, window)
    low, high, starts = window.start_ns, window.end_ns, window.repetitions
    inside = (time >= low) & (time <= high)
    # an event of which nothing is known keeps its time
    order = np.flatnonzero(inside)
    order = order[np.argsort(time[order], kind="stable")]
    rank = np.full(len(time) + 1, -1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    kept = rank[target] >= 0
    source, target, lag, kind, item = (values[kept] for values in (source, target, lag, kind, item))
    outside = rank[source] < 0
    lag = lag.astype(np.float64) + np.where(outside, np.where(source >= 0, time[source], window.start_ns) - low, 0)
    backwards = ~outside & (rank[source] >= rank[target])
    source, target, lag, kind, item = (
        values[~backwards] for values in (np.where(outside, -1, rank[source]), rank[target], lag, kind, item)
    )
    known = np.zeros(len(order), dtype=bool)
    known[target] = True
    lost = np.flatnonzero(~known)
    source, target = np.append(source, np.full(len(lost), -1)), np.append(target, lost)
    lag = np.append(lag, time[order[lost]] - low)
    kind, item = np.append(kind, np.full(len(lost), BEGIN)), np.append(item, np.full(len(lost), -1))
    by_target = np.argsort(target, kind="stable")
    source, target, lag, kind, item = (values[by_target] for values in (source, target, lag, kind, item))
    step = np.searchsorted(starts, _begun(found, groups)[order], side="right") - 1
    measured = time[order].astype(np.float64) - low
    first = np.searchsorted(target, np.arange(len(order)))
    return Model(found, low, measured, source, target, lag.astype(np.float64), kind, item, first, step, len(starts))


def _times(found: Graph, groups: Ints) -> Ints:
    """Return when each event was: beginnings and ends of calls, ends of operations, last arrivals of collectives."""
    calls, work = found.calls, found.work
    times = np.empty(2 * len(calls) + len(work) + len(groups), dtype=np.int64)
    times[0 : 2 * len(calls) : 2], times[1 : 2 * len(calls) : 2] = calls.start, calls.end
    times[2 * len(calls) : 2 * len(calls) + len(work)] = work.end
    arrivals = np.full(len(groups), np.iinfo(np.int64).min)
    grouped = work.group >= 0
    np.maximum.at(arrivals, np.searchsorted(groups, work.group[grouped]), work.start[grouped])
    times[2 * len(calls) + len(work) :] = arrivals
    return times


def _begun(found: Graph, groups: Ints) -> Ints:
    """Return when the program caused each event: it belongs to the step in which its call began."""
    calls, work = found.calls, found.work
    times = _times(found, groups)
    times[1 : 2 * len(calls) : 2] = calls.start
    ends = slice(2 * len(calls), 2 * len(calls) + len(work))
    times[ends] = np.where(work.call >= 0, np.append(calls.start, 0)[work.call], np.iinfo(np.int64).min)
    return times


def _edges(found: Graph, groups: Ints, window: Window) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return source, target, lag in ns, kind and item of all edges; events are numbered as in `_times`."""
    calls, work = found.calls, found.work
    count = len(calls)
    call, op = np.arange(count), np.arange(len(work))
    parts = []
    before = calls.before
    gap = calls.start - np.where(before >= 0, np.append(calls.end, 0)[before], window.start_ns)
    parts.append((np.where(before >= 0, 2 * before + 1, -1), 2 * call, gap, BEGIN, call))
    held = (calls.awaited >= 0) & (np.append(work.end, 0)[calls.awaited] > calls.start)
    own = np.where(held & (calls.cause == IDLE.index(SYNC)), least(calls.name, calls.end - calls.start), calls.work_ns)
    parts.append((2 * call, 2 * call + 1, np.minimum(own, calls.end - calls.start), CALL, call))
    waits = np.flatnonzero(calls.awaited >= 0)
    returns = np.where(held, calls.work_ns, 0)[waits]
    parts.append((2 * count + calls.awaited[waits], 2 * waits + 1, returns, AWAIT, waits))
    # a member of a collective leads to the arrival, and the arrival to its end
    length = work.end - work.start
    grouped = work.group >= 0
    group = np.searchsorted(groups, work.group)
    goal = np.where(grouped, 2 * count + len(work) + group, 2 * count + op)
    rest = np.where(grouped, 0, length)
    launched = np.flatnonzero(work.call >= 0)
    parts.append((2 * work.call[launched], goal[launched], (work.latency_ns + rest)[launched], LAUNCH, launched))
    for kind, reasons in ((STREAM, work.previous), (OTHER, work.other)):
        some = np.flatnonzero(reasons >= 0)
        parts.append((2 * count + reasons[some], goal[some], (work.hop_ns + rest)[some], kind, some))
    members = np.flatnonzero(grouped)
    transfer = np.full(len(groups), np.iinfo(np.int64).max)
    np.minimum.at(transfer, group[members], length[members])
    parts.append((goal[members], 2 * count + members, transfer[group[members]], TRANSFER, members))
    some = np.flatnonzero(work.bypass >= 0)
    never = np.full(len(some), NEVER)
    parts.append((2 * count + work.bypass[some], goal[some], never, BYPASS, some))
    copies = np.flatnonzero(work.direction >= 0)
    copies = copies[np.lexsort((work.start[copies], work.device[copies] * 8 + work.direction[copies]))]
    engine = work.device[copies] * 8 + work.direction[copies]
    same = np.flatnonzero(engine[1:] == engine[:-1])
    never = np.full(len(same), NEVER)
    parts.append((2 * count + copies[same], 2 * count + copies[same + 1], never, ENGINE, copies[same + 1]))
    roots = np.flatnonzero((work.call < 0) & (work.previous < 0) & (work.other < 0) & ~grouped)
    parts.append((np.full(len(roots), -1), 2 * count + roots, work.end[roots] - window.start_ns, LAUNCH, roots))
    sources, targets, lags, kinds, items = zip(*parts, strict=True)
    kind = np.concatenate([np.full(len(items[i]), kinds[i], dtype=np.int64) for i in range(len(parts))])
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(lags), kind, np.concatenate(items)


def least(name: Ints, length: Ints) -> Ints:
    """Return for each call what such a call takes if it need not wait: the tenth percentile of its name."""
    shortest = np.zeros(int(name.max(initial=-1)) + 1, dtype=np.int64)
    for key, rows in positions(name).items():
        shortest[key] = int(np.quantile(length[rows], 0.1))
    return np.minimum(shortest[name], length)
