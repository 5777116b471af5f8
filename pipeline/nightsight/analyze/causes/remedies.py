"""What would each remedy gain: the dependencies changed as the remedy would change them, and replayed.

A remedy edits the lags of the model: it takes host code off a thread, a wait out of a loop, a copy off its stream. Its
gain is how much shorter a step gets, in the program without the profiler, whose own cost is taken off first.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.causes.graph import TO_DEVICE, TO_HOST, Graph
from nightsight.analyze.causes.kernels import kernel_remedies
from nightsight.analyze.causes.path import HostCode, cut_at_ranges, loads_code
from nightsight.analyze.causes.replay import (
    AWAIT,
    BEGIN,
    BYPASS,
    CALL,
    ENGINE,
    LAUNCH,
    NEVER,
    OTHER,
    STREAM,
    TRANSFER,
    Floats,
    Model,
    least,
    model,
)
from nightsight.analyze.causes.stretches import replayed
from nightsight.analyze.ranges.callers import OUTSIDE
from nightsight.analyze.ranges.owners import owners_at
from nightsight.events.ranges import nested_ranges, without_numbers
from nightsight.events.timeline import Timeline, positions
from nightsight.intervals import Flags, Ints
from nightsight.parallel import once
from nightsight.peaks import published
from nightsight.results import ALLOCATION, BLOCKING_COPY, IDLE, MODULE, REPLAY, SYNC, WHAT_IF
from nightsight.tables import NULLABLE

# nsys makes each call that gives work to the GPU longer, and the host code after it: together by about this many times
# the median of the recorded length of such calls (an H200 host, nsys 2025.3, ten programs: 0.8 to 1.9), and other calls
# of at least a microsecond by this share of that
_COST_OF_CALL: Final = 1.3
_COST_OF_OTHERS: Final = 0.4
_LAUNCH_NS: Final = 5_000
_COUNTS_NS: Final = 1_000
_SHORTEST_CALL_NS: Final = 1_500
# host code between two launches that is no longer than this is the price of launching; longer code does something else
_BETWEEN_LAUNCHES_NS: Final = 100_000
# what a CUDA graph takes from one kernel to the next, and for its launch; it is worth launching so many kernels at once
_GRAPH_HOP_NS: Final = 300
_GRAPH_LAUNCH_NS: Final = 10_000
_GRAPH_LAUNCHES: Final = 50
_ON_GPU_NS: Final = 2_000
# copies of pinned memory reach this share of what the link's generation publishes for one direction
_LINK_SHARE: Final = 0.85
_LINK_GB_PER_S: Final = 25.0
_SMALL_BYTES: Final = 256_000
_MANY_COPIES: Final = 8
_COMPILING_NS: Final = 3_000_000
_MOST_PLACES: Final = 6
_LEAST_SHARE: Final = 0.005
_LEAST_OF_SEQUENCE: Final = 0.02
_MOST_IN_SEQUENCE: Final = 4
# a wait and host code count as one cause if together they gain so many times as much as the better one alone
_TOGETHER: Final = 1.2
MOST_UNEXPLAINED: Final = 0.1
"""No gain is promised if the replay of the unchanged window differs by more than this share from what was measured."""

Edit = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class Remedy:
    """One change of the program: the rule that proposes it, its place, and how it changes the lags of the model.

    `path`, `name`: where, as in the critical path. `items`: how many calls or operations it concerns, per step.
    """

    rule: str
    path: str
    name: str
    items: float
    edit: Edit
    amount_ns: float


class Scene:
    """What remedies look at: the model of a window, with the range of each call and the kind of each operation."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.model: Model = model(timeline)
        self.graph: Graph = self.model.graph
        calls, work = self.graph.calls, self.graph.work
        self.in_calls = np.flatnonzero(self.model.edges[CALL][:-1] >= 0)
        self.steps = max(self.model.steps, 1)
        rows, _ = owners_at(timeline, calls.thread, calls.process, calls.start)
        ranges = nested_ranges(timeline.profile)["path"].cat
        self.texts = np.append(without_numbers(ranges.categories).to_numpy(dtype=object), OUTSIDE)
        self.codes, self.paths = pd.factorize(self.texts)
        self.row_codes = np.append(self.codes[ranges.codes.to_numpy(dtype=np.int64)], self.codes[-1])
        self.path = self.row_codes[rows]
        self.length = work.end - work.start
        # of the copy between host and device that a call begins
        self.direction = np.full(len(calls), -1, dtype=np.int64)
        copying = np.flatnonzero((work.direction >= 0) & (work.call >= 0))
        self.direction[work.call[copying]] = work.direction[copying]
        # what a lag from one operation to the next adds up to
        self.rest = np.where(work.group >= 0, 0, self.length) + work.hop_ns
        self.launching = np.zeros(len(calls), dtype=bool)
        self.launching[work.call[work.call >= 0]] = True
        plain = np.flatnonzero(self.launching & (calls.awaited < 0))
        self.launch_ns = float(np.median((calls.end - calls.start)[plain])) if len(plain) else _LAUNCH_NS
        before = np.where(calls.before >= 0, np.append(calls.end, 0)[calls.before], timeline.window.start_ns)
        self.gap_start = np.minimum(before, calls.start)
        self.gap = calls.start - self.gap_start

    def cut(self) -> HostCode:
        """Return the host code before each call of the stretch, cut at ranges; `piece` is the call."""
        calls, mine = self.graph.calls, self.in_calls
        cut = cut_at_ranges(
            self.timeline, calls.thread[mine], calls.process[mine], self.gap_start[mine], calls.start[mine]
        )
        return HostCode(mine[cut.piece], cut.length, cut.row)


def unprofiled(scene: Scene) -> Edit:
    """Return the edit that takes the profiler's own cost off: half off each call, half off the host code after it."""
    found, calls, work = scene.model, scene.graph.calls, scene.graph.work
    length = calls.end - calls.start
    of_launch = _COST_OF_CALL * scene.launch_ns
    of_others = np.where(length >= _COUNTS_NS, _COST_OF_OTHERS * of_launch, 0)
    cost = np.where(scene.launching, of_launch, of_others) / 2
    mine = scene.in_calls
    # its work arrives earlier by as much as the call gets shorter
    shorter = length - np.maximum(length - cost, np.minimum(length, _SHORTEST_CALL_NS))
    following = np.flatnonzero((calls.before >= 0) & (found.edges[BEGIN][:-1] >= 0))
    edges = found.edges[BEGIN][following]
    after = cost[calls.before[following]]

    def edit(lag: Floats) -> Floats:
        lag = lag.copy()
        lag[edges] = np.maximum(lag[edges] - after, np.minimum(lag[edges], 0))
        own = found.edges[CALL][mine]
        lag[own] = np.maximum(lag[own] - shorter[mine], 0)
        operations = np.flatnonzero((work.call >= 0) & (found.edges[LAUNCH][:-1] >= 0))
        lag[found.edges[LAUNCH][operations]] -= np.minimum(shorter[work.call[operations]], work.latency_ns[operations])
        return lag

    return edit


def remedies(scene: Scene) -> list[Remedy]:
    """Return what could be changed, whatever it gains."""
    proposals = (
        host_code,
        graph_launch,
        waits,
        copies,
        small_copies,
        allocation,
        loading,
        communication,
        straggler,
        kernels,
    )
    found = [remedy for propose in proposals for remedy in propose(scene)]
    return [*found, *_together(found)]


def _together(found: list[Remedy]) -> Iterator[Remedy]:
    """A wait and the host code after it in the same range: the thread does neither in the step."""
    by_place = {(remedy.rule, remedy.path): remedy for remedy in found if remedy.path != OUTSIDE}
    for (rule, path), wait in by_place.items():
        host = by_place.get(("host_code", path))
        if rule == "wait" and host:

            def edit(lag: Floats, first: Edit = wait.edit, then: Edit = host.edit) -> Floats:
                return then(first(lag))

            yield Remedy("wait_and_host_code", path, wait.name, wait.items, edit, wait.amount_ns + host.amount_ns)


# -- the CPU ----------------------------------------------------------------------------------------------------------


def host_code(scene: Scene) -> Iterator[Remedy]:
    """Host code that does more than launch: one remedy per range in which it runs, moved off the thread."""
    found, calls = scene.model, scene.graph.calls
    cut = scene.cut()
    long = (scene.gap[cut.piece] > _BETWEEN_LAUNCHES_NS) & (calls.cause[cut.piece] != IDLE.index(MODULE))
    codes = scene.row_codes[cut.row]
    totals = np.bincount(codes[long], cut.length[long], len(scene.paths))
    for code in np.argsort(-totals, kind="stable")[:_MOST_PLACES]:
        if totals[code] <= 0:
            continue
        mine = long & (codes == code)
        removed = np.bincount(cut.piece[mine], cut.length[mine], len(calls))
        edges = found.edges[BEGIN][:-1]
        chosen = np.flatnonzero((edges >= 0) & (removed > 0))

        def edit(lag: Floats, edges: Ints = edges[chosen], removed: Floats = removed[chosen]) -> Floats:
            lag = lag.copy()
            lag[edges] = np.maximum(lag[edges] - removed, np.minimum(lag[edges], 0))
            return lag

        count = len(chosen) / scene.steps
        yield Remedy("host_code", str(scene.paths[code]), "", count, edit, float(totals[code]) / scene.steps)


def graph_launch(scene: Scene) -> Iterator[Remedy]:
    """The launches of a step as one CUDA graph, or as several where a wait comes between: no calls between kernels."""
    found, calls, work = scene.model, scene.graph.calls, scene.graph.work
    mine = scene.in_calls
    # copies from and to the host, and what waits or allocates, stays outside of graphs
    outside = np.isin(calls.cause, [IDLE.index(cause) for cause in (SYNC, ALLOCATION, BLOCKING_COPY, MODULE)])
    outside |= (calls.awaited >= 0) | (scene.direction >= 0)
    plain = mine[~outside[mine]]
    plain = plain[_leads_to(scene, plain)]
    inside = plain[scene.gap[plain] <= _BETWEEN_LAUNCHES_NS]
    launched = inside[scene.launching[inside]]
    if len(launched) < 2 * scene.steps:
        return
    operations = np.flatnonzero(np.isin(work.call, launched) & (found.edges[LAUNCH][:-1] >= 0))
    amount = float((calls.end - calls.start)[inside].sum() + scene.gap[inside].sum()) / scene.steps
    starts = found.of(BEGIN, np.union1d(_first_of_steps(scene, launched), _first_after(scene, launched, outside)))
    each = _GRAPH_LAUNCH_NS * min(1.0, len(launched) / max(len(starts), 1) / _GRAPH_LAUNCHES)

    def edit(lag: Floats) -> Floats:
        lag = lag.copy()
        lag[found.of(BEGIN, inside)] = np.minimum(lag[found.of(BEGIN, inside)], 0)
        lag[found.of(CALL, plain)] = 0
        edges = found.edges[LAUNCH][operations]
        lag[edges] = np.minimum(lag[edges], scene.rest[operations] - work.hop_ns[operations] + _ON_GPU_NS)
        queued = operations[found.edges[STREAM][operations] >= 0]
        lag[found.edges[STREAM][queued]] += np.minimum(_GRAPH_HOP_NS - work.hop_ns[queued], 0)
        lag[starts] += each
        return lag

    yield Remedy("launch_bound", _common_path(scene, launched), "", len(launched) / scene.steps, edit, amount)


def waits(scene: Scene) -> Iterator[Remedy]:
    """Waits for the GPU, by range: the thread goes on at once. A copy to the host and the wait for it are one."""
    found, calls = scene.model, scene.graph.calls
    waiting = scene.in_calls[calls.awaited[scene.in_calls] >= 0]
    direction = scene.direction[waiting]
    waiting = waiting[(direction == TO_HOST) | ((calls.cause[waiting] == IDLE.index(SYNC)) & (direction < 0))]
    shortest = least(calls.name, calls.end - calls.start)
    for code, here in positions(scene.path[waiting]).items():
        calling = waiting[here]
        spent = float((calls.end - calls.start)[calling].sum()) / scene.steps

        def edit(lag: Floats, calling: Ints = calling) -> Floats:
            lag = lag.copy()
            lag[found.of(AWAIT, calling)] = NEVER
            edges = found.edges[CALL][calling]
            lag[edges] = np.minimum(lag[edges], shortest[calling])
            return lag

        names = pd.Series(calls.names[calls.name[calling]]).mode()
        yield Remedy("wait", str(scene.paths[code]), str(names[0]), len(calling) / scene.steps, edit, spent)


def allocation(scene: Scene) -> Iterator[Remedy]:
    """No allocation and no free in the loop."""
    yield from _without_calls(scene, "allocation", scene.graph.calls.cause == IDLE.index(ALLOCATION))


def loading(scene: Scene) -> Iterator[Remedy]:
    """Nothing is loaded or compiled any more; host code just before the loading of a module compiled it."""
    calls = scene.graph.calls
    loads = (calls.cause == IDLE.index(MODULE)) | loads_code(scene.timeline, scene.graph)
    compiles = loads & (scene.gap > _COMPILING_NS)
    yield from _without_calls(scene, "compilation" if compiles.any() else "loading", loads, gaps=compiles)


def _without_calls(scene: Scene, rule: str, flags: Flags, gaps: Flags | None = None) -> Iterator[Remedy]:
    """Yield the remedy that these calls, and the host code before those with `gaps`, are gone."""
    found, calls = scene.model, scene.graph.calls
    mine = scene.in_calls[flags[scene.in_calls]]
    if not len(mine):
        return
    before = mine[gaps[mine]] if gaps is not None else mine[:0]
    kept = np.where(scene.launching, least(calls.name, calls.end - calls.start), 0)
    spent = float((calls.end - calls.start)[mine].sum() + scene.gap[before].sum()) / scene.steps

    def edit(lag: Floats) -> Floats:
        lag = lag.copy()
        lag[found.of(AWAIT, mine)] = NEVER
        edges = found.edges[CALL][mine]
        lag[edges] = np.minimum(lag[edges], kept[mine])
        lag[found.of(BEGIN, before)] = np.minimum(lag[found.of(BEGIN, before)], 0)
        return lag

    names = pd.Series(calls.names[calls.name[mine]]).mode()
    yield Remedy(rule, _common_path(scene, mine), str(names[0]), len(mine) / scene.steps, edit, spent)


# -- copies -----------------------------------------------------------------------------------------------------------


def copies(scene: Scene) -> Iterator[Remedy]:
    """Copies between host and device, by direction and kind of memory: pinned, and on a stream of their own."""
    found, calls, work = scene.model, scene.graph.calls, scene.graph.work
    table = scene.timeline.profile.tables.get("memory_ops")
    if table is None or not len(table):
        return
    offset = int(scene.timeline.operations.of("kernels").sum())
    mine = np.flatnonzero((work.direction >= 0) & (found.edges[LAUNCH][:-1] >= 0))
    rows = work.operation[mine] - offset
    size = table["bytes"].to_numpy(dtype=np.float64, na_value=0.0)[rows]
    pageable = ((table["source_kind"] == "Pageable") | (table["target_kind"] == "Pageable")).to_numpy()[rows]
    shortest = scene.launch_ns
    rate = link_rate(scene.timeline)
    for code, here in positions(work.direction[mine] * 2 + pageable).items():
        chosen = mine[here][size[here] >= _SMALL_BYTES]
        if not len(chosen):
            continue
        new = np.minimum(size[here][size[here] >= _SMALL_BYTES] / rate, scene.length[chosen])
        rule = "pageable_copy" if code % 2 else "exposed_copy"
        if code // 2 != TO_DEVICE:
            rule = "copies_to_host"
        edit = _off_stream(scene, chosen, new, shortest)
        path = _common_path(scene, work.call[chosen])
        name = "Host-to-Device" if code // 2 == TO_DEVICE else "Device-to-Host"
        yield Remedy(rule, path, name, len(chosen) / scene.steps, edit, float(scene.length[chosen].sum()) / scene.steps)


def _off_stream(scene: Scene, chosen: Ints, new: Floats, shortest: float) -> Edit:
    """Return the edit that puts copies on a stream of their own, in order, with new lengths, and waits for none."""
    found, calls, work = scene.model, scene.graph.calls, scene.graph.work
    shorter = scene.length[chosen] - new
    events = found.target[found.edges[LAUNCH][chosen]]
    leaving = np.flatnonzero(np.isin(found.source, events) & np.isin(found.kind, (STREAM, OTHER)))
    around = _around(scene, found.item[leaving])
    calling = np.unique(work.call[chosen])
    waiting = np.flatnonzero(np.isin(calls.awaited, chosen))

    def edit(lag: Floats) -> Floats:
        lag = lag.copy()
        lag[leaving] = NEVER
        lag[around] = scene.rest[found.item[around]]
        lag[found.of(STREAM, chosen)] = NEVER
        lag[found.of(OTHER, chosen)] = NEVER
        edges = found.edges[LAUNCH][chosen]
        lag[edges] -= shorter + np.maximum(work.latency_ns[chosen] - shortest, 0)
        engine = found.edges[ENGINE][chosen]
        known = engine >= 0
        lag[engine[known]] = new[known] + work.hop_ns[chosen[known]]
        lag[found.of(AWAIT, waiting)] = NEVER
        edges = found.edges[CALL][calling]
        edges = edges[edges >= 0]
        lag[edges] = np.minimum(lag[edges], shortest)
        return lag

    return edit


def small_copies(scene: Scene) -> Iterator[Remedy]:
    """Many small copies of a step as one: the calls of all but the first are gone."""
    found, calls, work = scene.model, scene.graph.calls, scene.graph.work
    table = scene.timeline.profile.tables.get("memory_ops")
    if table is None or not len(table):
        return
    offset = int(scene.timeline.operations.of("kernels").sum())
    mine = np.flatnonzero((work.direction >= 0) & (found.edges[LAUNCH][:-1] >= 0) & (work.call >= 0))
    size = table["bytes"].to_numpy(dtype=np.float64, na_value=0.0)[work.operation[mine] - offset]
    mine = mine[size < _SMALL_BYTES]
    for code, here in positions(scene.path[work.call[mine]] * 2 + work.direction[mine]).items():
        chosen = mine[here]
        calling = np.unique(work.call[chosen])
        if len(calling) < _MANY_COPIES * scene.steps:
            continue
        kept = _first_of_steps(scene, calling)
        operations = chosen[np.isin(work.call[chosen], np.setdiff1d(calling, kept))]
        # the waits between them are gone, too
        gone = np.union1d(np.setdiff1d(calling, kept), _between(scene, calling, kept))
        spent = float((calls.end - calls.start)[gone].sum() + scene.gap[gone].sum()) / scene.steps
        between = gone[scene.gap[gone] <= _BETWEEN_LAUNCHES_NS]

        def edit(lag: Floats, gone: Ints = gone, between: Ints = between, operations: Ints = operations) -> Floats:
            lag = lag.copy()
            lag[found.of(AWAIT, gone)] = NEVER
            lag[found.of(CALL, gone)] = 0
            lag[found.of(BEGIN, between)] = np.minimum(lag[found.of(BEGIN, between)], 0)
            for kind in (LAUNCH, STREAM, OTHER):
                edges = found.edges[kind][operations]
                known = edges >= 0
                lag[edges[known]] -= scene.length[operations[known]]
                if kind == LAUNCH:
                    lag[edges[known]] -= work.latency_ns[operations[known]]
                else:
                    lag[edges[known]] -= work.hop_ns[operations[known]]
            return lag

        name = "Host-to-Device" if code % 2 == TO_DEVICE else "Device-to-Host"
        path = str(scene.paths[code // 2])
        yield Remedy("many_small_copies", path, name, len(calling) / scene.steps, edit, spent)


def link_rate(timeline: Timeline) -> float:
    """Return the rate of copies of pinned memory in bytes per ns: what the capture shows, else what the link should do."""
    table, rates = timeline.profile.tables["memory_ops"], [0.0]
    pinned = table[((table["source_kind"] == "Pinned") | (table["target_kind"] == "Pinned")) & table["bytes"].notna()]
    large = pinned[pinned["bytes"] >= (1 << 20)]
    if len(large):
        rates.append(float((large["bytes"] / (large["end_ns"] - large["start_ns"]).clip(lower=1)).median()))
    devices = timeline.profile.tables.get("devices")
    names = list(devices["name"].astype("str")) if devices is not None else []
    peaks = [peak for name in names if (peak := published(name).pcie_gb_per_s)]
    rates.append(peaks[0] / 2 * _LINK_SHARE if peaks else _LINK_GB_PER_S)
    return rates[1] if len(large) else max(rates)


# -- ranks ------------------------------------------------------------------------------------------------------------


def communication(scene: Scene) -> Iterator[Remedy]:
    """Communication hidden behind what does not need it: nothing else waits for it."""
    found, work = scene.model, scene.graph.work
    mine = np.flatnonzero(work.communicates & (found.edges[LAUNCH][:-1] >= 0))
    if not len(mine):
        return
    ends = _ends(scene, mine)
    targets = np.isin(found.target, ends)
    leaving = np.flatnonzero(np.isin(found.source, ends) & np.isin(found.kind, (STREAM, OTHER)) & ~targets)
    arrivals = np.unique(found.source[np.isin(found.kind, (TRANSFER,))])
    leaving = leaving[~np.isin(found.target[leaving], arrivals)]
    around = _around(scene, found.item[leaving])

    def edit(lag: Floats) -> Floats:
        lag = lag.copy()
        lag[leaving] = NEVER
        lag[around] = scene.rest[found.item[around]]
        return lag

    spent = float(scene.length[mine].sum()) / scene.steps / max(len(pd.unique(work.device[mine])), 1)
    devices = max(len(pd.unique(work.device[mine])), 1)
    yield Remedy("exposed_communication", "", "", len(mine) / scene.steps / devices, edit, spent)


def straggler(scene: Scene) -> Iterator[Remedy]:
    """One rank that comes last to the collectives: as early as the others."""
    found, work = scene.model, scene.graph.work
    mine = np.flatnonzero(work.group >= 0)
    if not len(mine):
        return
    devices = pd.unique(work.device[mine])
    table = pd.DataFrame({"group": work.group[mine], "device": work.device[mine], "start": work.start[mine]})
    starts = table.pivot_table(index="group", columns="device", values="start", aggfunc="max").dropna()
    if not len(starts) or len(devices) < 2:
        return
    values = starts.to_numpy(dtype=np.float64)
    ordered = np.sort(values, axis=1)
    late = pd.Series(starts.columns.to_numpy()[values.argmax(axis=1)])
    behind = np.clip(values.max(axis=1) - ordered[:, -2], 0, None)
    total = pd.Series(behind).groupby(late.to_numpy()).sum()
    device = int(total.idxmax())
    if total[device] < 0.7 * total.sum():
        return
    chosen = mine[work.device[mine] == device]
    lateness = pd.Series(np.where(late == device, behind, 0.0), index=starts.index)
    earlier = lateness.reindex(work.group[chosen]).fillna(0.0).to_numpy()

    def edit(lag: Floats) -> Floats:
        lag = lag.copy()
        for kind in (LAUNCH, STREAM, OTHER):
            edges = found.edges[kind][chosen]
            known = edges >= 0
            lag[edges[known]] -= earlier[known]
        return lag

    spent = float(total[device]) / scene.steps
    yield Remedy("straggler", "", f"GPU {device}", len(chosen) / scene.steps, edit, spent)


# -- kernels ----------------------------------------------------------------------------------------------------------


def kernels(scene: Scene) -> Iterator[Remedy]:
    """What is known of kernels (nightsight.analyze.causes.kernels): others in their place, or fewer."""
    found, work = scene.model, scene.graph.work
    place = np.full(len(scene.timeline.operations.kind) + 1, -1, dtype=np.int64)
    place[work.operation] = np.arange(len(work))
    for proposal in kernel_remedies(scene.timeline, scene.timeline.window.repetitions):
        mine = place[proposal.operations]
        kept = (mine >= 0) & (found.edges[LAUNCH][mine] >= 0)
        mine, new, removed = mine[kept], proposal.new_ns[kept], proposal.removed[kept]
        gone = work.call[mine[removed]]
        gone = gone[gone >= 0]
        between = gone[scene.gap[gone] <= _BETWEEN_LAUNCHES_NS]
        shorter = (scene.length[mine] - new).astype(np.float64)

        def edit(
            lag: Floats,
            mine: Ints = mine,
            removed: Flags = removed,
            gone: Ints = gone,
            between: Ints = between,
            shorter: Floats = shorter,
        ) -> Floats:
            lag = lag.copy()
            for kind in (LAUNCH, STREAM, OTHER, BYPASS):
                edges = found.edges[kind][mine]
                known = edges >= 0
                lag[edges[known]] -= shorter[known]
                if kind == STREAM:
                    # what is not launched leaves no gap, either
                    queued = known & removed
                    lag[edges[queued]] -= work.hop_ns[mine[queued]]
            lag[found.of(CALL, gone)] = 0
            lag[found.of(BEGIN, between)] = np.minimum(lag[found.of(BEGIN, between)], 0)
            return lag

        spent = float(scene.length[mine].sum()) / scene.steps
        yield Remedy(proposal.rule, "", proposal.place, len(mine) / scene.steps, edit, spent)


# -- shared -----------------------------------------------------------------------------------------------------------


def _ends(scene: Scene, operations: Ints) -> Ints:
    """Return the events that are the ends of operations."""
    found = scene.model
    edges = np.concatenate(
        [found.of(TRANSFER, operations[scene.graph.work.group[operations] >= 0])]
        + [found.of(kind, operations[scene.graph.work.group[operations] < 0]) for kind in (LAUNCH, STREAM)]
    )
    return np.unique(found.target[edges])


def _around(scene: Scene, operations: Ints) -> Ints:
    """Return the edges by which operations follow what was before a copy or collective that leaves their stream."""
    return scene.model.of(BYPASS, np.unique(operations))


def _first_of_steps(scene: Scene, calling: Ints) -> Ints:
    """Return the first of the calls in each step; the first of all if there are no steps."""
    calls = scene.graph.calls
    starts = scene.timeline.window.repetitions
    order = calling[np.argsort(calls.start[calling], kind="stable")]
    keys = np.searchsorted(starts, calls.start[order], side="right") * (1 << 20) + calls.line[order]
    return order[np.unique(keys, return_index=True)[1]]


def _between(scene: Scene, calling: Ints, first: Ints) -> Ints:
    """Return the calls that launch nothing between those of one step, `first` being the first of each."""
    calls = scene.graph.calls
    order = scene.in_calls[np.lexsort((calls.start[scene.in_calls], calls.line[scene.in_calls]))]
    is_mine, is_first = np.isin(order, calling), np.isin(order, first)
    launches = scene.launching[order] | is_mine
    place = np.arange(len(order))
    last = np.maximum.accumulate(np.where(launches, place, -1))
    after = len(order) - 1 - np.maximum.accumulate(np.where(launches[::-1], place, -1))[::-1]
    inner = ~launches & (last >= 0) & (after < len(order))
    following = np.minimum(after, len(order) - 1)
    return np.asarray(order[inner & is_mine[last] & is_mine[following] & ~is_first[following]])


def _leads_to(scene: Scene, calling: Ints) -> Flags:
    """Return which of the calls launch, or come before one of the others that does, with no other launch between."""
    calls = scene.graph.calls
    order = scene.in_calls[np.lexsort((calls.start[scene.in_calls], calls.line[scene.in_calls]))]
    place = np.where(scene.launching[order], np.arange(len(order)), len(order))
    following = np.minimum.accumulate(place[::-1])[::-1]
    launches = np.append(np.isin(order, calling), False)[following]
    leads = np.zeros(len(calls), dtype=bool)
    leads[order] = launches
    return leads[calling]


def _first_after(scene: Scene, calling: Ints, others: Flags) -> Ints:
    """Return those of the calls that are the first on their line after one of the `others`."""
    calls = scene.graph.calls
    order = scene.in_calls[np.lexsort((calls.start[scene.in_calls], calls.line[scene.in_calls]))]
    last = np.maximum.accumulate(np.where(others[order], np.arange(len(order)), -1))
    is_mine = np.isin(order, calling)
    return np.asarray(order[is_mine][np.unique(last[is_mine], return_index=True)[1]])


def _common_path(scene: Scene, calling: Ints) -> str:
    """Return the path that all these calls share: whole, or as far as it goes; "" if they share none."""
    names = [str(path).split(" / ") for path in scene.paths[pd.unique(scene.path[calling[calling >= 0]])]]
    if not names:
        return ""
    shared: list[str] = []
    for parts in zip(*names, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return " / ".join(shared)


# -- gains ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Gain:
    """What a remedy gains per step, alone, in ns. `order`: its place in the best sequence from 1, 0 if not in it.

    `after_ns`: the length of a step after this and all before it in the sequence.
    """

    remedy: Remedy
    gain_ns: float
    order: int = 0
    after_ns: float = 0.0


@dataclass(frozen=True, eq=False)
class Outcome:
    """The replay of a window: a step as measured, as replayed, as predicted without the profiler; times in ns."""

    scene: Scene
    measured_ns: float
    replayed_ns: float
    unprofiled_ns: float
    gains: tuple[Gain, ...]

    @property
    def unexplained(self) -> float:
        """By how much the replay differs from what was measured, relative to that."""
        return self.replayed_ns / self.measured_ns - 1 if self.measured_ns > 0 else 0.0

    @property
    def is_trusted(self) -> bool:
        """Whether gains can be promised."""
        return self.measured_ns > 0 and abs(self.unexplained) <= MOST_UNEXPLAINED


@once
def outcome(timeline: Timeline) -> Outcome:
    """Replay the window as it was, without the profiler, and with each remedy; the largest gain first."""
    scene = Scene(replayed(timeline))
    found = scene.model
    if not len(found.first):
        return Outcome(scene, 0.0, 0.0, 0.0, ())
    base = unprofiled(scene)(found.lag)
    known = remedies(scene)
    lengths = _replayed(found, [found.lag, base, *(remedy.edit(base) for remedy in known)])
    pairs = zip(known, lengths[2:], strict=True)
    gains = sorted((Gain(remedy, float(max(lengths[1] - length, 0.0))) for remedy, length in pairs), key=_by_gain)
    measured = float(found.lengths(found.measured[:, None])[0])
    kept = _distinct(tuple(gain for gain in gains if gain.gain_ns > _LEAST_SHARE * lengths[1]))
    return Outcome(scene, measured, float(lengths[0]), float(lengths[1]), _best_sequence(scene, base, kept))


def _distinct(gains: tuple[Gain, ...]) -> tuple[Gain, ...]:
    """Leave out remedies of a wait together with host code that gain hardly more than one of the two alone."""
    alone: dict[str, float] = {}
    for gain in gains:
        if gain.remedy.rule in ("wait", "host_code"):
            alone[gain.remedy.path] = max(alone.get(gain.remedy.path, 0.0), gain.gain_ns)
    return tuple(
        gain
        for gain in gains
        if gain.remedy.rule != "wait_and_host_code" or gain.gain_ns > _TOGETHER * alone.get(gain.remedy.path, 0.0)
    )


def _by_gain(gain: Gain) -> float:
    return -gain.gain_ns


def _replayed(found: Model, lags: list[Floats]) -> Floats:
    return found.lengths(found.replay(np.stack(lags, axis=1)))


def _best_sequence(scene: Scene, base: Floats, gains: tuple[Gain, ...]) -> tuple[Gain, ...]:
    """Take the remedy that gains the most, then the one that gains the most of what is left, and so on."""
    lag, left, ordered = base, float(_replayed(scene.model, [base])[0]), dict.fromkeys(range(len(gains)), (0, 0.0))
    whole, open_ = left, set(range(len(gains)))
    for order in range(1, _MOST_IN_SEQUENCE + 1):
        tried = sorted(open_)
        if not tried:
            break
        edits = [gains[place].remedy.edit(lag) for place in tried]
        lengths = _replayed(scene.model, edits)
        best = int(np.argmin(lengths))
        if left - lengths[best] < _LEAST_OF_SEQUENCE * whole:
            break
        lag, left = edits[best], float(lengths[best])
        ordered[tried[best]] = (order, left)
        open_.discard(tried[best])
    return tuple(replace(gain, order=ordered[place][0], after_ns=ordered[place][1]) for place, gain in enumerate(gains))


def what_if(timeline: Timeline) -> Table:
    """Return one row per remedy that gains anything, the largest gain first."""
    found = outcome(timeline)
    rows = [
        {
            "rule": gain.remedy.rule,
            "path": gain.remedy.path,
            "name": gain.remedy.name,
            "cases": gain.remedy.items,
            "time_ns": gain.remedy.amount_ns,
            "gain_ns": gain.gain_ns if found.is_trusted else None,
            "gain_pct": 100 * gain.gain_ns / found.unprofiled_ns if found.is_trusted else None,
            "order": gain.order or None,
            "after_ns": gain.after_ns if gain.order else None,
        }
        for gain in found.gains
    ]
    table = pd.DataFrame(rows, columns=WHAT_IF.column_names)
    numbers = dict.fromkeys(("cases", "time_ns", "gain_ns", "gain_pct", "after_ns"), "float64")
    texts = dict.fromkeys(("rule", "path", "name"), "str")
    notes = () if found.is_trusted else (_NOT_TRUSTED.format(100 * abs(found.unexplained)),)
    return Table(table.astype({**numbers, **texts, "order": NULLABLE}), notes)


def replay(timeline: Timeline) -> Table:
    """Return one row: how the replay compares with what was measured; without rows if there is nothing to replay."""
    found = outcome(timeline)
    row = {
        "repetitions": found.scene.model.steps,
        "events": len(found.scene.model.first),
        "measured_ns": found.measured_ns,
        "replayed_ns": found.replayed_ns,
        "unexplained_pct": 100 * found.unexplained,
        "call_cost_ns": _COST_OF_CALL * found.scene.launch_ns,
        "unprofiled_ns": found.unprofiled_ns,
    }
    return Table(pd.DataFrame([row], columns=REPLAY.column_names)[: int(found.measured_ns > 0)])


_NOT_TRUSTED: Final = (
    "The replay of the unchanged window differs from what was measured by {:.0f} %, so no gain is promised: something "
    "that the capture does not show holds up the program."
)

ANALYSES: Final = (Analysis(REPLAY, replay), Analysis(WHAT_IF, what_if))
