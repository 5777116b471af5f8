"""What remedies look at, the events of a stretch with their places, and how they change it: edits of its lags."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
import pandas as pd

from nightsight.analyze.causes.cost import cost_of
from nightsight.analyze.causes.path import HostCode, cut_at_ranges
from nightsight.analyze.causes.replay import AWAIT, BEGIN, CALL, NEVER, Floats, Model, model
from nightsight.analyze.ranges.callers import OUTSIDE
from nightsight.analyze.ranges.owners import owners_at
from nightsight.events.communication import called_by_rank
from nightsight.events.ranges import nested_ranges, without_numbers
from nightsight.events.timeline import Timeline
from nightsight.events.unseen import graph_captures, pauses
from nightsight.intervals import Flags, Ints, covered, union_of

# share of the time of all processes that belongs to one process alone
_NEARLY_ALL: Final = 0.8
_FEW_CALLS: Final = 0.05


@dataclass(frozen=True, eq=False)
class Change:
    """Other lags for some edges of a model, in ns: these values, at most these, or shorter by these.

    "shorter" leaves no lag below zero that was not there before; "earlier" may: it moves what it leads to.
    """

    edges: Ints
    how: Literal["set", "at most", "shorter", "earlier"]
    value: Floats | Ints | float


Edit = tuple[Change, ...]
"""The changes of one remedy, one after the other."""


class Scene:
    """A replayed stretch, with the range of each call, and what else several remedies ask for.

    `in_calls`: the calls that are replayed; `path`: the range of each call, a position in `paths`; `gap`: the host
    code before each call in ns, after `gap_start`; `place`: of each operation of the timeline among those of the
    graph, -1 for those that are not; `direction`: of the copy that a call begins, -1 for none; `length`: of each
    operation in ns.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.model: Model = model(timeline)
        self.graph = self.model.graph
        calls, work = self.graph.calls, self.graph.work
        self.in_calls = np.flatnonzero(self.model.edges[CALL][:-1] >= 0)
        self.steps = max(self.model.steps, 1)
        rows, _ = owners_at(timeline, calls.thread, calls.process, calls.start)
        ranges = nested_ranges(timeline.profile)["path"].cat
        codes, self.paths = pd.factorize(np.append(without_numbers(ranges.categories).to_numpy(dtype=object), OUTSIDE))
        # the last one is for what is in no range
        self._path_of_row = np.append(codes[ranges.codes.to_numpy(dtype=np.int64)], codes[-1])
        self.path = self._path_of_row[rows]
        self.length = work.end - work.start
        self.place = np.full(len(timeline.operations.kind), -1, dtype=np.int64)
        self.place[work.operation] = np.arange(len(work))
        self.direction = np.full(len(calls), -1, dtype=np.int64)
        copying = np.flatnonzero((work.direction >= 0) & (work.call >= 0))
        self.direction[work.call[copying]] = work.direction[copying]
        # of an edge from one operation to the next
        self.lag_between = np.where(work.group >= 0, 0, self.length) + work.hop_ns
        self.launching = np.zeros(len(calls), dtype=bool)
        self.launching[work.call[work.call >= 0]] = True
        self.cost = cost_of(timeline, calls, self.launching)
        before = np.where(calls.before >= 0, np.append(calls.end, 0)[calls.before], timeline.window.start_ns)
        self.gap_start = np.minimum(before + calls.held_ns, calls.start)
        self.gap = calls.start - self.gap_start
        # by line of execution and time
        self._order = self.in_calls[np.lexsort((calls.start[self.in_calls], calls.line[self.in_calls]))]

    def applied(self, edit: Edit, lag: Floats) -> Floats:
        """Return the lags after an edit; captures of graphs and pauses of the recording stay as long as they are."""
        new = lag.copy()
        for change in edit:
            now = new[change.edges]
            if change.how == "set":
                now[:] = change.value
            elif change.how == "at most":
                now = np.minimum(now, change.value)
            elif change.how == "earlier":
                now = now - change.value
            else:
                now = np.maximum(now - change.value, np.minimum(now, 0))
            new[change.edges] = now
        return np.maximum(new, np.minimum(self._kept, lag))

    @cached_property
    def _kept(self) -> Floats:
        """The least lag of each edge, in ns: no remedy removes a graph capture, or a pause of the recording."""
        calls, kept = self.graph.calls, np.full(len(self.model.lag), NEVER)
        captures, paused = graph_captures(self.timeline.profile), pauses(self.timeline.profile)
        for process in captures.keys() | paused.keys():
            spans = union_of(known[process] for known in (captures, paused) if process in known)
            mine = self.in_calls[calls.process[self.in_calls] == process]
            for kind, since, until in ((BEGIN, self.gap_start, calls.start), (CALL, calls.start, calls.end)):
                edges, time = self.model.edges[kind][mine], covered(spans, since[mine], until[mine])
                chosen = (edges >= 0) & (time > 0)
                kept[edges[chosen]] = np.maximum(kept[edges[chosen]], time[chosen])
        return kept

    def host_code(self) -> HostCode:
        """Return the host code before each replayed call, cut at ranges: `piece` is the call, `row` one in `paths`."""
        calls, mine = self.graph.calls, self.in_calls
        columns = (calls.thread, calls.process, self.gap_start, calls.start)
        cut = cut_at_ranges(self.timeline, *(column[mine] for column in columns))
        return HostCode(mine[cut.piece], cut.start, cut.length, self._path_of_row[cut.row])

    def per_step(self, times: Ints | Floats, calling: Ints) -> float:
        """Return the sum of the times of these calls per step; of several processes that make them, the largest sum.

        Calls of -1, which are not known, count as those of one process.
        """
        process = np.where(calling >= 0, np.append(self.graph.calls.process, -1)[calling], -1)
        sums = np.bincount(pd.factorize(process)[0], times)
        return float(sums.max(initial=0)) / self.steps

    def often(self, calling: Ints) -> float:
        """Return how many of these calls there are per step, as `per_step` counts."""
        return self.per_step(np.ones(len(calling)), calling)

    def pathname(self, calling: Ints) -> str:
        """Return the range path that these calls share, few excepted: whole, or as far as it goes; "" for none."""
        counts = np.bincount(self.path[calling[calling >= 0]], minlength=len(self.paths))
        names = [str(path).split(" / ") for path in self.paths[counts > _FEW_CALLS * counts.sum()]]
        if not names:
            return ""
        shared: list[str] = []
        for parts in zip(*names, strict=False):
            if len(set(parts)) > 1:
                break
            shared.append(parts[0])
        return " / ".join(shared)

    def mostly(self, calling: Ints) -> str:
        """Return the outermost range in which more than half of these calls are, if they share no path; "" for none."""
        if self.pathname(calling):
            return ""
        outermost = [str(path).partition(" / ")[0] for path in self.paths]
        counts = pd.Series(np.bincount(self.path[calling], minlength=len(outermost))).groupby(outermost).sum()
        most = str(counts.idxmax())
        return most if most != OUTSIDE and 2 * counts.max() > counts.sum() else ""

    def function(self, calling: Ints) -> str:
        """Return the function that most of the time of these calls is spent in."""
        calls = self.graph.calls
        spent = np.bincount(calls.name[calling], (calls.end - calls.start)[calling])
        return str(calls.names[int(spent.argmax())])

    def only_gpu(self, calling: Ints, times: Ints | Floats) -> str:
        """Return the rank or GPU whose process spends nearly all of the times before these calls; "" without others."""
        calls, work = self.graph.calls, self.graph.work
        known = np.flatnonzero(work.call >= 0)
        processes, of = np.unique(calls.process[work.call[known]], return_index=True)
        spent = np.array([times[calls.process[calling] == process].sum() for process in processes])
        if len(processes) < 2 or spent.max() < _NEARLY_ALL * times.sum():
            return ""
        return called_by_rank(self.timeline, int(work.device[known[of[spent.argmax()]]]))

    def first_of_steps(self, calling: Ints) -> Ints:
        """Return the first of the calls in each step, on each line; the first of all if there are no steps."""
        calls, starts = self.graph.calls, self.timeline.window.repetitions
        order = calling[np.argsort(calls.start[calling], kind="stable")]
        keys = np.searchsorted(starts, calls.start[order], side="right") * (1 << 20) + calls.line[order]
        return np.asarray(order[np.unique(keys, return_index=True)[1]])

    def first_after(self, calling: Ints, others: Flags) -> Ints:
        """Return those of the calls that are the first on their line after one of the `others`."""
        order = self._order
        last = np.maximum.accumulate(np.where(others[order], np.arange(len(order)), -1))
        mine = np.isin(order, calling)
        return np.asarray(order[mine][np.unique(last[mine], return_index=True)[1]])

    def lead_to(self, calling: Ints) -> Flags:
        """Return for all calls whether the next on the line that launches, or the call itself, is one of these."""
        order = self._order
        place = np.where(self.launching[order], np.arange(len(order)), len(order))
        following = np.minimum.accumulate(place[::-1])[::-1]
        leads = np.zeros(len(self.graph.calls), dtype=bool)
        leads[order] = np.append(np.isin(order, calling), False)[following]
        return leads

    def between(self, calling: Ints, first: Ints) -> Ints:
        """Return the calls that launch nothing between those of one step, `first` being the first of each."""
        order = self._order
        mine, firsts, place = np.isin(order, calling), np.isin(order, first), np.arange(len(order))
        launches = self.launching[order] | mine
        last = np.maximum.accumulate(np.where(launches, place, -1))
        after = np.minimum.accumulate(np.where(launches, place, len(order))[::-1])[::-1]
        inner = ~launches & (last >= 0) & (after < len(order))
        following = np.minimum(after, len(order) - 1)
        return np.asarray(order[inner & mine[last] & mine[following] & ~firsts[following]])

    def without_waits(self, calling: Ints) -> Change:
        """Return the change that these calls wait for nothing."""
        return Change(self.model.of(AWAIT, calling), "set", NEVER)
