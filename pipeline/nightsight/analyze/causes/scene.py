"""The input of remedies: the replayed stretch, its events with their places, and edits of its lags."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
import pandas as pd

from nightsight.analyze.causes.cost import cost_of
from nightsight.analyze.causes.model import AWAIT, BEGIN, CALL, NEVER, Model, build_model
from nightsight.analyze.causes.path import HostCode, cut_at_ranges
from nightsight.analyze.ranges.callers import OUTSIDE
from nightsight.analyze.ranges.owners import owners_at
from nightsight.events.communication import called_by_rank
from nightsight.events.compiled import needed_captures
from nightsight.events.loops import is_of_library
from nightsight.events.ranges import general_paths, nested_ranges
from nightsight.events.timeline import Timeline
from nightsight.events.unseen import pauses
from nightsight.intervals import Flags, Floats, Ints, covered, union_of
from nightsight.tables import nearest, positions

# `stored: a to b`: with a and with b, the first findings of the stored captures are the same (docs/causes.md)

# a process with this share of the time of all processes is the dominant one; ranges with a smaller share of the calls
# do not count for the path that calls share: in `optimizer` (tests/data/planted), one has between 2.5 and 5 % (stored:
# 0.4 to 0.9, up to 0.1)
_NEARLY_ALL: Final = 0.8
_FEW_CALLS: Final = 0.05


@dataclass(frozen=True, eq=False)
class Change:
    """New lags for some edges of a model, in ns: these values, at most these values, or less by these values.

    "shorter" makes no lag negative; "earlier" may, since it moves the event that the edge leads to. "scaled": the share
    of the lag that is left.
    """

    edges: Ints
    how: Literal["set", "at most", "shorter", "earlier", "scaled"]
    value: Floats | Ints | float


Edit = tuple[Change, ...]
"""The changes of one remedy, in order."""


class Scene:
    """A replayed stretch with the range of each call, and other facts that several remedies need.

    `in_calls`: the replayed calls. `path`: the range of each call, a position in `paths`. `gap`: the host code before
    each call in ns, from `gap_start`. `place`: the position of each operation of the timeline in the graph, -1 for
    none. `direction`: of the copy that a call submits, -1 for none. `length`: of each operation in ns.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.model: Model = build_model(timeline)
        self.graph = self.model.graph
        calls, work = self.graph.calls, self.graph.work
        self.in_calls = np.flatnonzero(self.model.has(CALL))
        self.steps = max(self.model.steps, 1)
        rows, _ = owners_at(timeline, calls.thread, calls.process, calls.start)
        ranges = nested_ranges(timeline.profile)["path"].cat
        codes, self.paths = pd.factorize(np.append(general_paths(timeline.profile).to_numpy(dtype=object), OUTSIDE))
        # the last entry is for calls outside of all ranges
        self._path_of_row = np.append(codes[ranges.codes.to_numpy(dtype=np.int64)], codes[-1])
        self.path = self._path_of_row[rows]
        self.length = work.end - work.start
        self.place = np.full(len(timeline.operations.kind), -1, dtype=np.int64)
        self.place[work.operation] = np.arange(len(work))
        self.direction = np.full(len(calls), -1, dtype=np.int64)
        copies = np.flatnonzero((work.direction >= 0) & (work.call >= 0))
        self.direction[work.call[copies]] = work.direction[copies]
        # the lag of an edge from one operation to the next
        self.lag_between = np.where(work.group >= 0, 0, self.length) + work.hop_ns
        self.launching = np.zeros(len(calls), dtype=bool)
        self.launching[work.call[work.call >= 0]] = True
        self.cost = cost_of(timeline, calls, self.launching)
        before = np.where(calls.before >= 0, np.append(calls.end, 0)[calls.before], timeline.window.start_ns)
        self.gap_start = np.minimum(before + calls.rank_wait_ns, calls.start)
        self.gap = calls.start - self.gap_start
        # by line of execution and time
        self._order = self.in_calls[np.lexsort((calls.start[self.in_calls], calls.line[self.in_calls]))]

    def apply(self, edit: Edit, lag: Floats) -> Floats:
        """Return the lags after an edit. Graph captures and pauses of the recording keep their length."""
        edited = lag.copy()
        for change in edit:
            values = edited[change.edges]
            if change.how == "set":
                values[:] = change.value
            elif change.how == "at most":
                values = np.minimum(values, change.value)
            elif change.how == "earlier":
                values = values - change.value
            elif change.how == "scaled":
                values = np.where(values > 0, change.value * values, values)
            else:
                values = np.maximum(values - change.value, np.minimum(values, 0))
            edited[change.edges] = values
        return np.maximum(edited, np.minimum(self._least_lag, lag))

    @cached_property
    def _least_lag(self) -> Floats:
        """The least lag of each edge in ns: no remedy removes a graph capture or a pause of the recording."""
        calls, least = self.graph.calls, np.full(len(self.model.lag), NEVER)
        captures, recording_pauses = needed_captures(self.timeline), pauses(self.timeline.profile)
        for process in captures.keys() | recording_pauses.keys():
            spans = union_of(spans[process] for spans in (captures, recording_pauses) if process in spans)
            of_process = self.in_calls[calls.process[self.in_calls] == process]
            for kind, since, until in ((BEGIN, self.gap_start, calls.start), (CALL, calls.start, calls.end)):
                edges, time = self.model.edges[kind][of_process], covered(spans, since[of_process], until[of_process])
                is_inside = (edges >= 0) & (time > 0)
                least[edges[is_inside]] = np.maximum(least[edges[is_inside]], time[is_inside])
        return least

    @cached_property
    def host_code(self) -> HostCode:
        """The host code before replayed calls, cut at ranges; `piece`: the call, `row`: its range in `paths`."""
        calls, replayed = self.graph.calls, self.in_calls
        columns = (calls.thread, calls.process, self.gap_start, calls.start)
        cut = cut_at_ranges(self.timeline, *(column[replayed] for column in columns))
        return HostCode(replayed[cut.piece], cut.start, cut.length, self._path_of_row[cut.row])

    @cached_property
    def program_path(self) -> Ints:
        """For each of `paths`: itself, or that of the nearest range around it if its innermost range is a library's."""
        ranges = nested_ranges(self.timeline.profile)
        is_foreign = is_of_library(ranges)
        around = nearest(ranges["parent"].to_numpy(), is_foreign)
        own = np.arange(len(self.paths))
        own[self._path_of_row[:-1][is_foreign]] = self._path_of_row[around[is_foreign]]
        return own

    def per_step(self, times: Ints | Floats, calling: Ints) -> float:
        """Return the sum of the times of these calls per step, of the process with the largest sum.

        Unknown calls (-1) count as those of one process.
        """
        process = np.where(calling >= 0, np.append(self.graph.calls.process, -1)[calling], -1)
        sums = np.bincount(pd.factorize(process)[0], times)
        return float(sums.max(initial=0)) / self.steps

    def share_of_steps(self, times: Ints | Floats, calling: Ints) -> float:
        """Return the share of the steps that have nearly all of the times of these calls; 1 if all have a part.

        Events at regular distances count by these distances: a window cuts off a part of the last one.
        """
        if not self.model.steps or not len(calling) or not times.sum() > 0:
            return 1.0
        sums = np.bincount(self.step_of(calling), times)
        events = np.flatnonzero(sums >= sums.max() / 2)
        if sums[events].sum() < _NEARLY_ALL * sums.sum():
            return 1.0
        distances = np.unique(np.diff(events))
        return 1 / int(distances[0]) if len(distances) == 1 else min(len(events) / self.steps, 1.0)

    def step_of(self, calling: Ints) -> Ints:
        """Return the step of each call in its process, counted from 1; 0 before the first one, and for no call (-1)."""
        calls, window = self.graph.calls, self.timeline.window
        step = np.zeros(len(calling), dtype=np.int64)
        for process, rows in positions(np.where(calling >= 0, np.append(calls.process, -1)[calling], -1)).items():
            starts = window.steps.get(process, window.repetitions)
            step[rows] = np.searchsorted(starts, np.append(calls.start, 0)[calling[rows]], side="right")
        return step

    def cases(self, calling: Ints) -> float:
        """Return the number of these calls per step, of the process with the most."""
        return self.per_step(np.ones(len(calling)), calling)

    def shared_path(self, calling: Ints) -> str:
        """Return the longest range path that nearly all of these calls share; "" for none."""
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

    def main_range(self, calling: Ints) -> str:
        """Return the outermost range of more than half of these calls if they share no path; "" for none."""
        if self.shared_path(calling):
            return ""
        outermost = [str(path).partition(" / ")[0] for path in self.paths]
        counts = pd.Series(np.bincount(self.path[calling], minlength=len(outermost))).groupby(outermost).sum()
        most = str(counts.idxmax())
        return most if most != OUTSIDE and 2 * counts.max() > counts.sum() else ""

    def main_function(self, calling: Ints) -> str:
        """Return the function with most of the time of these calls."""
        calls = self.graph.calls
        time_ns = np.bincount(calls.name[calling], (calls.end - calls.start)[calling])
        return str(calls.names[int(time_ns.argmax())])

    def dominant_rank(self, calling: Ints, times: Ints | Floats) -> str:
        """Return the rank or GPU whose process has nearly all of the time before these calls; "" for one process."""
        calls, work = self.graph.calls, self.graph.work
        launched = np.flatnonzero(work.call >= 0)
        processes, first = np.unique(calls.process[work.call[launched]], return_index=True)
        time_ns = np.array([times[calls.process[calling] == process].sum() for process in processes])
        if len(processes) < 2 or time_ns.max() < _NEARLY_ALL * times.sum():
            return ""
        return called_by_rank(self.timeline, int(work.device[launched[first[time_ns.argmax()]]]))

    def first_of_steps(self, calling: Ints) -> Ints:
        """Return the first of the calls in each step, on each line; the first of all if there are no steps."""
        calls, starts = self.graph.calls, self.timeline.window.repetitions
        order = calling[np.argsort(calls.start[calling], kind="stable")]
        keys = np.searchsorted(starts, calls.start[order], side="right") * (1 << 20) + calls.line[order]
        return np.asarray(order[np.unique(keys, return_index=True)[1]])

    def first_after(self, calling: Ints, others: Flags) -> Ints:
        """Return those of the calls that are the first on their line after one of `others`."""
        order = self._order
        last = np.maximum.accumulate(np.where(others[order], np.arange(len(order)), -1))
        is_chosen = np.isin(order, calling)
        return np.asarray(order[is_chosen][np.unique(last[is_chosen], return_index=True)[1]])

    def leads_to(self, calling: Ints) -> Flags:
        """Return which calls lead to one of these: their next launch on the line, or the call itself, is one."""
        order = self._order
        launch = np.where(self.launching[order], np.arange(len(order)), len(order))
        next_launch = np.minimum.accumulate(launch[::-1])[::-1]
        leads = np.zeros(len(self.graph.calls), dtype=bool)
        leads[order] = np.append(np.isin(order, calling), False)[next_launch]
        return leads

    @cached_property
    def computes(self) -> Flags:
        """Which calls launch a kernel or a CUDA graph: copies and sets do not count."""
        work, operations = self.graph.work, self.timeline.operations
        is_work = (operations.of("kernels") | operations.of("graph_launches"))[work.operation]
        flags = np.zeros(len(self.graph.calls), dtype=bool)
        flags[work.call[(work.call >= 0) & is_work]] = True
        return flags

    def between_launches(self, calling: Ints) -> Ints:
        """Return the calls on the lines of these between the launches before and after each; no launch is included."""
        order = self._order
        # a line begins another stretch, and so does what follows a launch
        line = self.graph.calls.line[order]
        begins = np.append(True, self.computes[order][:-1] | (line[1:] != line[:-1]))[: len(order)]
        stretch = np.cumsum(begins)
        chosen = np.isin(stretch, stretch[np.isin(order, calling)]) & ~self.computes[order]
        return np.asarray(order[chosen])

    def previous(self, calling: Ints) -> Ints:
        """Return the call before each of these on its line; -1 for none."""
        order, line = self._order, self.graph.calls.line
        before = np.full(len(self.graph.calls), -1, dtype=np.int64)
        before[order[1:]] = np.where(line[order[1:]] == line[order[:-1]], order[:-1], -1)
        return np.asarray(before[calling])

    def around(self, launches: Flags) -> tuple[Flags, Flags]:
        """Return whether the last launch before each call on its line is one of these, and the next one or the call.

        Copies and sets do not count as launches: a value that the CPU waits for is copied.
        """
        calls, order, is_launch = self.graph.calls, self._order, self.computes[self._order]
        place, line = np.arange(len(order)), calls.line[order]
        before = np.append(-1, np.maximum.accumulate(np.where(is_launch, place, -1)))[: len(order)]
        after = np.minimum.accumulate(np.where(is_launch, place, len(order))[::-1])[::-1]
        both_flags = np.zeros(len(calls), dtype=bool), np.zeros(len(calls), dtype=bool)
        for flags, neighbor in zip(both_flags, (before, after), strict=True):
            linked = np.flatnonzero((neighbor >= 0) & (neighbor < len(order)))
            linked = linked[line[neighbor[linked]] == line[linked]]
            flags[order[linked]] = launches[order[neighbor[linked]]]
        return both_flags

    def calls_between(self, calling: Ints, first: Ints, passed: Flags) -> Ints:
        """Return the calls between two of these in a step, if all launches between the two are `passed`.

        first: the first call of each step. passed: flags of calls.
        """
        order = self._order
        is_chosen, firsts, place = np.isin(order, calling), np.isin(order, first), np.arange(len(order))
        is_edge = (self.launching & ~passed)[order] | is_chosen
        last = np.maximum.accumulate(np.where(is_edge, place, -1))
        next_place = np.minimum.accumulate(np.where(is_edge, place, len(order))[::-1])[::-1]
        is_inside = ~is_edge & (last >= 0) & (next_place < len(order))
        next_edge = np.minimum(next_place, len(order) - 1)
        return np.asarray(order[is_inside & is_chosen[last] & is_chosen[next_edge] & ~firsts[next_edge]])

    def without_waits(self, calling: Ints) -> Change:
        """Return the change that removes the waits of these calls."""
        return Change(self.model.edges_of(AWAIT, calling), "set", NEVER)
