"""Replays a window from its dependencies: when everything would have happened, as it was and with things changed.

A start follows from what it waited for and from a few typical latencies; only work has its measured length: host code
between calls, calls without their waits, and operations. So the replayed length differs from the measured one by what
the model does not explain. All changes are replayed together: a row of times for each event, one column a change.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.causes.graph import Calls, Graph, Work, graph
from nightsight.events.timeline import Timeline, positions
from nightsight.events.window import Window
from nightsight.intervals import Flags, Ints
from nightsight.results.categories import IDLE, SYNC
from nightsight.system.parallel import memoize

FEWEST: Final = 3

# kinds of edges; `item` is the call of the first three and the operation of the others
BEGIN: Final = 0  # host code before a call
CALL: Final = 1  # the call itself, without waiting
AWAIT: Final = 2  # a waited-for operation, to the return of the call
LAUNCH: Final = 3
STREAM: Final = 4
OTHER: Final = 5
TRANSFER: Final = 6  # from the last rank's arrival to the end of a collective
ENGINE: Final = 7  # from one copy to the next in its direction: binds only copies that a change takes off their streams
BYPASS: Final = 8  # from what was before a copy or a collective on the stream: binds if a change takes that one off it
MEET: Final = 9  # from the first call of the last rank to one of another rank that it had kept waiting
NEVER: Final = -1e18
"""The lag of an edge that does not bind."""

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Model:
    """The events of a stretch in order, and what each of them follows.

    An event is the beginning or the end of a call, or the end of an operation. Edge i says: event `target[i]` is not
    before event `source[i]` plus `lag[i]` ns; a source of -1 is the beginning of the stretch. `kind` and `item` say
    what the edge is. `first`: the first edge of each event. `step`: the repetition of each event, -1 outside. `steps`:
    the number of repetitions, 0 if they are too few to tell how long one takes. `after_ns`: from the last event to the
    end of the stretch.
    """

    graph: Graph
    measured: Floats
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
        """The edge of each kind but BYPASS of each item, -1 where it has none: the last if there are several."""
        sizes = {kind: len(self.graph.calls) if kind <= AWAIT else len(self.graph.work) for kind in range(BYPASS)}
        found = {kind: np.full(size + 1, -1, dtype=np.int64) for kind, size in sizes.items()}
        for kind, edges in found.items():
            mine = np.flatnonzero((self.kind == kind) & (self.item >= 0))
            edges[self.item[mine]] = mine
        return found

    @cached_property
    def bypasses(self) -> Ints:
        """All edges of BYPASS: an item can have several."""
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

    def of(self, kind: int, items: Ints) -> Ints:
        """Return the edges of a kind that these calls or operations have."""
        edges = self.edges[kind][items]
        return edges[edges >= 0]

    def around(self, taken: Ints, leaving: Ints) -> Ints:
        """Return the edges of BYPASS that bind when what leads from these events to others (edges `taken`) does not.

        What followed an operation on its stream then follows the nearest one before it that stays. ValueError if an
        operation leaves that has no way around it: what came after it would follow nothing.
        """
        items = np.unique(self.item[taken])
        ways = self.bypasses[np.isin(self.item[self.bypasses], items)]
        before = self.graph.work.previous
        following = self.item[taken[self.kind[taken] == STREAM]]
        following = following[before[before[following]] >= 0]
        if len(following) and not np.any([way[following] >= 0 for way in self.graph.work.bypass], axis=0).all():
            raise ValueError("an operation is taken off its stream that graph.py knows no way around")
        ways = ways[~np.isin(self.source[ways], leaving) & ~np.isin(self.target[ways], leaving)]
        # events are in the order of time: of an item, the last source is the nearest
        order = ways[np.lexsort((self.source[ways], self.item[ways]))]
        nearest: Ints = order[np.append(self.item[order][1:] != self.item[order][:-1], True)[: len(order)]]
        return nearest

    def replay(self, lags: Floats) -> Floats:
        """Return the time of each event in ns since the beginning, a column for each column of `lags`."""
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
        """Return how long the stretch takes per column in ns: one step if there are several, otherwise the whole."""
        if not self.steps:
            return np.asarray(times.max(axis=0) + self.after_ns)
        # from the end of the first step: it may have had to wait for earlier work
        first, last = int(self.step[self.step >= 0].min()), int(self.step.max())
        begin, end = (times[self.step == step].max(axis=0) for step in (first, last))
        # a change can let the last step end before the first
        return np.asarray(np.maximum(end - begin, 0) / (last - first))

    def floor(self, lags: Floats) -> Floats:
        """Return what the stretch takes at least, per column of `lags` in ns: the work of the busiest stream.

        Of one step if there are several, of those that are not cut: in a replay of few steps, the work of others hides.
        """
        mine = np.flatnonzero(self.kind == STREAM)
        if not len(mine):
            return np.zeros(lags.shape[1])
        work, item, steps = self.graph.work, self.item[mine], 1
        if self.steps:
            low, high = int(self.step[self.step >= 0].min()), int(self.step.max())
            kept = (self.step[self.target[mine]] > low) & (self.step[self.target[mine]] < high)
            mine, item, steps = mine[kept], item[kept], high - low - 1
        # what follows each other on a stream has a number in common: its first operation
        stream = np.cumsum(work.previous < 0)[item]
        # less than its own time for what begins while the one before it ends
        spent = np.maximum(lags[mine] - np.maximum(work.hop_ns[item], 0)[:, None], 0)
        sums = pd.DataFrame(spent).groupby(stream).sum()
        return np.asarray(sums.max(axis=0) / steps, dtype=np.float64) if len(sums) else np.zeros(lags.shape[1])


class _Edges(NamedTuple):
    """Edges with source, target, lag in ns, kind and item (see Model)."""

    source: Ints
    target: Ints
    lag: Floats
    kind: Ints
    item: Ints

    def of(self, chosen: Flags | Ints) -> "_Edges":
        """Return the chosen edges."""
        source, target, kind, item = (values[chosen] for values in (self.source, self.target, self.kind, self.item))
        return _Edges(source, target, self.lag[chosen], kind, item)

    def with_fixed(self, events: Ints, times: Floats) -> "_Edges":
        """Return these and edges that give events their time, whatever happens before."""
        nothing = np.full(len(events), -1)
        kind = np.concatenate([self.kind, np.full(len(events), BEGIN)])
        source, item = (np.concatenate([values, nothing]) for values in (self.source, self.item))
        return _Edges(source, np.append(self.target, events), np.append(self.lag, times), kind, item)


@memoize
def model(timeline: Timeline) -> Model:
    """Return the model of the window of the timeline."""
    found, window = graph(timeline), timeline.window
    groups = np.unique(found.work.group[found.work.group >= 0])
    time = _times(found, groups)
    order = np.flatnonzero((time >= window.start_ns) & (time <= window.end_ns))
    # a call can return at the very time at which what it waited for ends
    order = order[np.lexsort((order < 2 * len(found.calls), time[order]))]
    # the last entry is for the source -1
    rank = np.full(len(time) + 1, -1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    edges = _edges(found, groups, window)
    edges = edges.of(rank[edges.target] >= 0)
    # what happened before the stretch is not replayed: it keeps its time
    fixed = np.append(time - window.start_ns, 0)[edges.source]
    source, target = rank[edges.source], rank[edges.target]
    edges = edges._replace(source=source, target=target, lag=edges.lag + np.where(source < 0, fixed, 0))
    edges = edges.of(edges.source < edges.target)
    # and so does an event of which it is not known what led to it
    explained = np.zeros(len(order), dtype=bool)
    explained[edges.target] = True
    measured = (time[order] - window.start_ns).astype(np.float64)
    edges = edges.with_fixed(np.flatnonzero(~explained), measured[~explained])
    edges = edges.of(np.argsort(edges.target, kind="stable"))
    first = np.searchsorted(edges.target, np.arange(len(order)))
    step = _steps(found, groups, window)[order]
    # a repetition may have neither calls nor work
    known = len(np.unique(step[step >= 0]))
    steps = len(window.repetitions) if known >= FEWEST else 0
    after = max(window.length_ns - float(measured.max(initial=0)), 0.0)
    return Model(found, measured, *edges, first, step, steps, after)


def _times(found: Graph, groups: Ints) -> Ints:
    """Return when each event was: beginnings and ends of calls, ends of operations, last arrivals of collectives."""
    calls, work = found.calls, found.work
    arrivals = np.full(len(groups), np.iinfo(np.int64).min)
    grouped = work.group >= 0
    np.maximum.at(arrivals, np.searchsorted(groups, work.group[grouped]), work.start[grouped])
    return np.concatenate([np.stack([calls.start, calls.end], axis=1).ravel(), work.end, arrivals])


def _steps(found: Graph, groups: Ints, window: Window) -> Ints:
    """Return the repetition of each event, -1 for none: an operation belongs to that in which its call began.

    Threads that launch nothing belong to none: they may poll at any time (NCCL's watchdog). Neither does what
    is of a repetition whose work ends after the window: nothing tells how long that one takes.
    """
    calls, work = found.calls, found.work
    step = np.full(len(calls) + 1, -1, dtype=np.int64)
    launching = np.isin(calls.line, calls.line[work.call[work.call >= 0]])
    for process, first in window.first_steps.items():
        mine = np.flatnonzero((calls.process == process) & launching)
        step[mine] = np.searchsorted(window.steps[process], calls.start[mine], side="right") - 1
        step[mine] += first * (step[mine] >= 0)
    step = np.minimum(step, max(map(len, window.steps.values()), default=0) - 1)
    cut = np.unique(step[work.call[work.end > window.end_ns]])
    step = np.where(np.isin(step, cut), -1, step)
    return np.concatenate([np.repeat(step[:-1], 2), step[work.call], np.full(len(groups), -1)])


def _edges(found: Graph, groups: Ints, window: Window) -> _Edges:
    """Return all edges; events are numbered as in `_times`."""
    after, first = found.met
    start = found.calls.start
    met = (MEET, 2 * first, 2 * after, start[after] - start[first], np.full(len(after), -1))
    parts = [met, *_of_calls(found.calls, found.work, window), *_of_work(found.calls, found.work, groups, window)]
    source, target, lag, item = (np.concatenate([part[place] for part in parts]) for place in (1, 2, 3, 4))
    kind = np.concatenate([np.full(len(part[4]), part[0], dtype=np.int64) for part in parts])
    return _Edges(source, target, lag.astype(np.float64), kind, item)


_Part = tuple[int, Ints, Ints, Ints, Ints]
"""Edges of one kind: the kind, sources, targets, lags and items."""


def _of_calls(calls: Calls, work: Work, window: Window) -> Iterator[_Part]:
    call, length = np.arange(len(calls)), calls.end - calls.start
    known = calls.before >= 0
    gap = calls.start - np.where(known, np.append(calls.end, 0)[calls.before], window.start_ns) - calls.held_ns
    yield BEGIN, np.where(known, 2 * calls.before + 1, -1), 2 * call, gap, call
    held = (calls.awaited >= 0) & (np.append(work.end, 0)[calls.awaited] > calls.start)
    shortest, is_sync = least(calls), calls.cause == IDLE.index(SYNC)
    own = np.where(held & is_sync, shortest, calls.work_ns)
    yield CALL, 2 * call, 2 * call + 1, np.minimum(own, length), call
    waits = np.flatnonzero(calls.awaited >= 0)
    # a wait for work that was done already may have to wait after a change
    returns = np.where(held, calls.work_ns, np.where(is_sync, shortest, 0))[waits]
    yield AWAIT, 2 * len(calls) + calls.awaited[waits], 2 * waits + 1, returns, waits


def _of_work(calls: Calls, work: Work, groups: Ints, window: Window) -> Iterator[_Part]:
    first, length = 2 * len(calls), work.end - work.start
    grouped, group = work.group >= 0, np.searchsorted(groups, work.group)
    # what leads to a member of a collective leads to the arrival of all, and the arrival to the ends
    goal = first + np.where(grouped, len(work) + group, np.arange(len(work)))
    rest = np.where(grouped, 0, length)
    mine = np.flatnonzero(work.call >= 0)
    yield LAUNCH, 2 * work.call[mine], goal[mine], (work.latency_ns + rest)[mine], mine
    queued = work.hop_ns + work.unseen_ns
    for kind, reasons, after in ((STREAM, work.previous, queued), (OTHER, work.other, work.hop_ns)):
        mine = np.flatnonzero(reasons >= 0)
        yield kind, first + reasons[mine], goal[mine], (after + rest)[mine], mine
    mine = np.flatnonzero(grouped)
    transfer = np.full(len(groups), np.iinfo(np.int64).max)
    np.minimum.at(transfer, group[mine], length[mine])
    yield TRANSFER, goal[mine], first + mine, transfer[group[mine]], mine
    for before in work.bypass:
        mine = np.flatnonzero(before >= 0)
        yield BYPASS, first + before[mine], goal[mine], np.full(len(mine), NEVER), mine
    copies = np.flatnonzero(work.direction >= 0)
    engine = work.device[copies] * 8 + work.direction[copies]
    order = np.lexsort((work.start[copies], engine))
    same = engine[order][1:] == engine[order][:-1]
    mine, before = copies[order][1:][same], copies[order][:-1][same]
    yield ENGINE, first + before, first + mine, np.full(len(mine), NEVER), mine
    mine = np.flatnonzero((work.call < 0) & (work.previous < 0) & (work.other < 0) & ~grouped)
    yield LAUNCH, np.full(len(mine), -1), first + mine, work.end[mine] - window.start_ns, mine


def least(calls: Calls) -> Ints:
    """Return for each call what such a call takes if it need not wait: the tenth percentile of its name.

    Of calls that did wait, what they took after it counts: where all do, none is short.
    """
    shortest = np.zeros(int(calls.name.max(initial=-1)) + 1, dtype=np.int64)
    for key, rows in positions(calls.name).items():
        shortest[key] = int(np.quantile(calls.work_ns[rows], 0.1))
    taken: Ints = np.minimum(shortest[calls.name], calls.end - calls.start)
    return taken
