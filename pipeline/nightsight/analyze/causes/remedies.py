"""What would each remedy gain: the dependencies changed as the remedy would change them, and replayed.

A remedy edits the lags of the model: it takes host code off a thread, a wait out of a loop, a copy off its stream. Its
gain is how much shorter a step gets, in the program without the profiler, whose own cost is taken off first.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.causes.graph import TO_DEVICE, Graph
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
from nightsight.analyze.ranges.callers import OUTSIDE
from nightsight.analyze.ranges.owners import owners_at
from nightsight.events.ranges import nested_ranges, without_numbers
from nightsight.events.timeline import Timeline, positions
from nightsight.intervals import Flags, Ints
from nightsight.peaks import published
from nightsight.results import ALLOCATION, BLOCKING_COPY, IDLE, MODULE, SYNC

# what nsys adds to a call that gives work to the GPU, and to any other call of at least a microsecond (an H200 host,
# nsys 2025.3): half of it inside the call, half before the next
LAUNCH_COST_NS: Final = 10_000
CALL_COST_NS: Final = 4_000
_COUNTS_NS: Final = 1_000
_SHORTEST_CALL_NS: Final = 1_500
# host code between two launches that is no longer than this is the price of launching; longer code does something else
_BETWEEN_LAUNCHES_NS: Final = 100_000
# what a CUDA graph takes from one kernel to the next, and for its launch
_GRAPH_HOP_NS: Final = 300
_GRAPH_LAUNCH_NS: Final = 10_000
# copies of pinned memory reach this share of what the link's generation publishes for one direction
_LINK_SHARE: Final = 0.85
_LINK_GB_PER_S: Final = 25.0
_SMALL_BYTES: Final = 256_000
_MANY_COPIES: Final = 8
_COMPILING_NS: Final = 3_000_000
_MOST_PLACES: Final = 6
_LEAST_SHARE: Final = 0.002

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
        # what a lag from one operation to the next adds up to
        self.rest = np.where(work.group >= 0, 0, self.length) + work.hop_ns
        self.launching = np.zeros(len(calls), dtype=bool)
        self.launching[work.call[work.call >= 0]] = True
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
    cost = np.where(scene.launching, LAUNCH_COST_NS, np.where(length >= _COUNTS_NS, CALL_COST_NS, 0)) / 2
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
    proposals = (host_code, graph_launch, waits, copies, small_copies, allocation, loading, communication, straggler)
    return [remedy for propose in proposals for remedy in propose(scene)]


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
    """The launches of a step as one CUDA graph: no calls and no host code between them any more."""
    found, calls, work = scene.model, scene.graph.calls, scene.graph.work
    mine = scene.in_calls
    idle = (IDLE.index(SYNC), IDLE.index(ALLOCATION), IDLE.index(BLOCKING_COPY), IDLE.index(MODULE))
    plain = ~np.isin(calls.cause[mine], idle) & (calls.awaited[mine] < 0)
    inside = mine[plain & (scene.gap[mine] <= _BETWEEN_LAUNCHES_NS)]
    launched = inside[scene.launching[inside]]
    if len(launched) < 2 * scene.steps:
        return
    operations = np.flatnonzero(np.isin(work.call, launched))
    is_graph = np.isin(work.call, inside)
    amount = float((calls.end - calls.start)[inside].sum() + scene.gap[inside].sum()) / scene.steps

    def edit(lag: Floats) -> Floats:
        lag = lag.copy()
        lag[found.of(BEGIN, inside)] = np.minimum(lag[found.of(BEGIN, inside)], 0)
        lag[found.of(CALL, mine[plain])] = 0
        lag[found.of(LAUNCH, operations)] -= work.latency_ns[operations[found.edges[LAUNCH][operations] >= 0]] * 0.8
        edges = found.edges[STREAM][operations]
        chosen = edges >= 0
        hop = work.hop_ns[operations[chosen]]
        lag[edges[chosen]] += np.minimum(_GRAPH_HOP_NS - hop, 0)
        # each step still has one launch
        starts = found.of(BEGIN, _first_of_steps(scene, launched))
        lag[starts] += _GRAPH_LAUNCH_NS
        return lag

    assert is_graph.any()
    yield Remedy("launch_bound", _common_path(scene, launched), "", len(launched) / scene.steps, edit, amount)


def waits(scene: Scene) -> Iterator[Remedy]:
    """Waits for the GPU, by range: the thread goes on at once. A copy to the host and the wait for it are one."""
    found, calls, work = scene.model, scene.graph.calls, scene.graph.work
    waiting = scene.in_calls[calls.awaited[scene.in_calls] >= 0]
    own = np.flatnonzero(work.direction >= 0)
    to_host = np.zeros(len(calls), dtype=bool)
    mine = own[(work.direction[own] != TO_DEVICE) & (work.call[own] >= 0)]
    to_host[work.call[mine]] = True
    from_host = np.zeros(len(calls), dtype=bool)
    mine = own[(work.direction[own] == TO_DEVICE) & (work.call[own] >= 0)]
    from_host[work.call[mine]] = True
    chosen = (calls.cause[waiting] == IDLE.index(SYNC)) | to_host[waiting]
    waiting = waiting[chosen & ~from_host[waiting]]
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
    shortest = _launch_ns(scene)
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
        gone = np.setdiff1d(calling, kept)
        operations = chosen[np.isin(work.call[chosen], gone)]
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


# -- shared -----------------------------------------------------------------------------------------------------------


def _ends(scene: Scene, operations: Ints) -> Ints:
    """Return the events that are the ends of operations."""
    found = scene.model
    edges = np.concatenate([found.of(TRANSFER, operations[scene.graph.work.group[operations] >= 0])] + [
        found.of(kind, operations[scene.graph.work.group[operations] < 0]) for kind in (LAUNCH, STREAM)
    ])
    return np.unique(found.target[edges])


def _around(scene: Scene, operations: Ints) -> Ints:
    """Return the edges by which operations follow what was before a copy or collective that leaves their stream."""
    return scene.model.of(BYPASS, np.unique(operations))


def _launch_ns(scene: Scene) -> float:
    """Return what a launch call takes."""
    calls = scene.graph.calls
    launching = np.flatnonzero(scene.launching & (calls.awaited < 0))
    return float(np.median((calls.end - calls.start)[launching])) if len(launching) else 5_000.0


def _first_of_steps(scene: Scene, calling: Ints) -> Ints:
    """Return the first of the calls in each step; the first of all if there are no steps."""
    calls = scene.graph.calls
    starts = scene.timeline.window.repetitions
    order = calling[np.argsort(calls.start[calling], kind="stable")]
    keys = np.searchsorted(starts, calls.start[order], side="right") * (1 << 20) + calls.line[order]
    return order[np.unique(keys, return_index=True)[1]]


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


@dataclass(frozen=True)
class Gain:
    """What a remedy gains per step, alone, in ns; and in the best sequence: its place from 1 (0: not in it), and the
    step's length after it."""

    remedy: Remedy
    gain_ns: float
    place: int = 0
    after_ns: float = 0.0


def gains(scene: Scene) -> tuple[float, float, list[Gain]]:
    """Return the step as replayed, as it would be without the profiler, and what each remedy gains, the most first."""
    found = scene.model
    base = unprofiled(scene)(found.lag)
    known = remedies(scene)
    lags = np.stack([found.lag, base, *(remedy.edit(base) for remedy in known)], axis=1)
    lengths = found.lengths(found.replay(lags))
    result = [Gain(remedy, float(max(lengths[1] - length, 0.0))) for remedy, length in zip(known, lengths[2:], strict=True)]
    return float(lengths[0]), float(lengths[1]), sorted(result, key=lambda gain: -gain.gain_ns)

