"""The fixes that are tried on a program: how each changes the dependencies.

A fix moves host code off a thread, a wait out of a loop, or a copy off its stream. Its gain comes from a replay of the
stretch with this edit (nightsight.analyze.causes.outcome).
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.causes.functions import LINE
from nightsight.analyze.causes.graph import TO_DEVICE, TO_HOST
from nightsight.analyze.causes.kernels import kernel_remedies
from nightsight.analyze.causes.path import HostCode, loads_code
from nightsight.analyze.causes.reductions import unneeded_reductions
from nightsight.analyze.causes.replay import (
    BEGIN,
    CALL,
    ENGINE,
    LAUNCH,
    NEVER,
    OTHER,
    STREAM,
    TRANSFER,
    Floats,
    least,
)
from nightsight.analyze.causes.scene import Change, Edit, Scene
from nightsight.analyze.experts import stretches
from nightsight.analyze.pipelines import chains
from nightsight.analyze.ranges.callers import OUTSIDE
from nightsight.events.communication import are_ranks_known, called_by_rank, communication, ranks_of, stands_for
from nightsight.events.loops import loops_of
from nightsight.events.peaks import published
from nightsight.events.timeline import Timeline, of_capture, operation_column, positions
from nightsight.intervals import Flags, Ints, Spans, covered, union, without
from nightsight.results.categories import ALLOCATION, BLOCKING_COPY, IDLE, MODULE, SYNC
from nightsight.results.rules import KERNEL_WORDS, RULE
from nightsight.tables import empty, integers
from nightsight.units import format_ranks

# Where a constant names no source, it separates the planted programs with a cause from the healthy ones
# (tests/data/planted: an H200, nsys 2025.3), and the figures in docs/causes.md say how well.

# host code between two launches that is no longer than this is the price of launching; longer code does something else
_BETWEEN_LAUNCHES_NS: Final = 100_000
# a higher limit where this many launches occur in each step: there a framework works out what to launch. Outside of
# ranges it may also be anything else
_MUCH: Final = 5
_DISPATCH_NS: Final = 500_000
_ANYWHERE_NS: Final = 200_000
# outside of jax.jit, one operation took 0.26 ms of Python (222 launches a step, an H200 host), and XLA's threads take
# turns: what is host code on one of them is the work of another
_DISPATCH_OF_JAX_NS: Final = 10_000_000
# a program of XLA that launches fewer operations is one operation of JAX (2.2 there)
_OF_A_PROGRAM: Final = 5
# time from one kernel to the next in a CUDA graph, and for its launch, as in the fixed form of `tiny_kernels`;
# the fewest kernels worth launching at once
_GRAPH_HOP_NS: Final = 300
_GRAPH_LAUNCH_NS: Final = 10_000
_GRAPH_LAUNCHES: Final = 50
_ON_GPU_NS: Final = 2_000
# steps change their shapes if more than this share of their kernels does; fewer pairs of steps tell nothing
_OTHER_SHAPES: Final = 0.5
_FEWEST_SHAPES: Final = 4
# share of the Python stack samples, and of the time: above it, threads that launch nothing keep the others from running
# Python. In a single place, it is rather a wait for a queue or a lock
_KEPT: Final = 0.3
_LEAST_KEPT: Final = 0.05
_ONE_PLACE: Final = 0.8
# a thread whose stack stays the same, line by line, for more samples than this waits, and waiting holds no lock: of
# threads that waited, 92 to 100 % of the samples were like the one before, of others at most 73 % (two programs, H100)
_MOST_SAME: Final = 5
# copies of pinned memory reach this share of what the link's generation publishes for one direction
_LINK_SHARE: Final = 0.85
_LINK_GB_PER_S: Final = 25.0
_LARGE_BYTES: Final = 1 << 20
# smaller copies cost their calls, larger ones their bytes; many of them in each step are worth a word
_SMALL_BYTES: Final = 256_000
_MANY_COPIES: Final = 8
# host code before the loading of a module that takes so long has compiled it
_COMPILING_NS: Final = 3_000_000
# frames of torch.compile (Dynamo, Inductor), Triton, CuPy, Numba and JAX while they compile
_COMPILER: Final = r"\((?:convert_frame|compile_fx|codecache|async_compile|compiler)\.py|autotune_to_one_config"
# frames of PyTorch's DataLoader, and those of its workers' start and end
_LOADS_DATA: Final = r"\(dataloader\.py"
_STARTS_WORKERS: Final = r"\b(?:__init__|_shutdown_workers) \(dataloader\.py"
_FEWEST_STARTS: Final = 2
# loads get rare if the second half of the steps has less than this share of the first half's; fewer steps tell nothing
_FADED: Final = 0.5
_FEWEST_TO_FADE: Final = 8
_LOADS_COMPILED: Final = "^cuModuleLoad|^nvrtc|^nvJitLink"
# so does cuDNN; but before the first step, it is how CUDA loads its own libraries
_LOADS_IN_STEPS: Final = f"{_LOADS_COMPILED}|^cuLibraryLoad"
_MOST_PLACES: Final = 6
# so long before a page of managed memory is moved, a processor waits for it already, where faults were not recorded
_SERVED_NS: Final = 20_000
_LEAST_KERNEL_NS: Final = 3_000
# communication that overlaps kernels takes SMs and bandwidth from them, and nothing overlaps the last reduction: only
# this share of it is gained. Over NVLink it was a twentieth between two H100 and a quarter between two H200, over
# sockets more than half. NVLink transfers more bytes per second than any network or PCIe; if neither the bytes nor the
# link is known, the share is between the two
_HIDDEN_BY_NVLINK: Final = 0.15
_HIDDEN: Final = 0.5
_HIDDEN_BY_ANY: Final = 0.3
_NVLINK_GB_PER_S: Final = 80.0
# ranks are uneven if one computes this many times as long as the average
_UNEVEN: Final = 1.05
# share of the waiting time: the same ranks are to blame if making them as fast as the others would remove it. Share of
# the samples in host code: more says what that does
_MOSTLY: Final = 0.5
# ranks are compared in steps that take at least this share of the usual one
_WHOLE: Final = 0.5
_WAYS: Final = {TO_DEVICE: "Host-to-Device", TO_HOST: "Device-to-Host"}


@dataclass(frozen=True, eq=False)
class Remedy:
    """One change of the program: the rule that proposes it, its place, and how it changes the lags of the model.

    `path`, `name`: where, as in the critical path. `cases`: how many calls, pieces of host code or operations it
    concerns per step, and `time_ns`: how long these take. `code`: the host code that it takes off the thread.
    `kernels`: names of those that it is about.
    """

    rule: str
    path: str
    name: str
    cases: float
    time_ns: float
    edit: Edit
    code: HostCode | None = None
    kernels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError if the rule is not declared in `nightsight.results.rules`."""
        if self.rule not in RULE | KERNEL_WORDS:
            raise ValueError(f"{self.rule} is not declared in nightsight.results.rules")


def remedies(scene: Scene) -> list[Remedy]:
    """Return what could be changed, whatever it gains."""
    found = [remedy for propose in PROPOSALS for remedy in propose(scene)]
    return [*found, *_together(found)]


def _together(found: list[Remedy]) -> Iterator[Remedy]:
    """A wait and the host code after it in the same range: the thread does neither in the step."""
    by_place = {(remedy.rule, remedy.path): remedy for remedy in found if remedy.path != OUTSIDE}
    for (rule, path), wait in by_place.items():
        host = by_place.get(("host_code", path))
        if rule == "wait" and host:
            time = wait.time_ns + host.time_ns
            yield Remedy("wait_and_host_code", path, wait.name, wait.cases, time, (*wait.edit, *host.edit), host.code)


# -- the CPU ----------------------------------------------------------------------------------------------------------


def host_code(scene: Scene) -> Iterator[Remedy]:
    """Host code that does more than launch: one remedy per range in which it runs, moved off the thread."""
    found, calls = scene.model, scene.graph.calls
    cut = scene.host_code()
    is_price = scene.gap[cut.piece] <= _price_ns(scene)[cut.row]
    long = ~is_price & (calls.cause[cut.piece] != IDLE.index(MODULE))
    totals = np.bincount(cut.row[long], cut.length[long], len(scene.paths))
    for path in np.argsort(-totals, kind="stable")[:_MOST_PLACES]:
        mine = long & (cut.row == path)
        removed = np.bincount(cut.piece[mine], cut.length[mine], len(calls))
        chosen = np.flatnonzero((found.edges[BEGIN][:-1] >= 0) & (removed > 0))
        if len(chosen):
            edit = (Change(found.of(BEGIN, chosen), "shorter", removed[chosen]),)
            # other threads of the process can have nothing to do meanwhile
            line = calls.line[chosen]
            busiest = chosen[line == np.bincount(line, removed[chosen]).argmax()]
            time = scene.per_step(removed[busiest], busiest)
            alone = scene.only_gpu(chosen, removed[chosen])
            code = HostCode(cut.piece[mine], cut.start[mine], cut.length[mine], cut.row[mine])
            yield Remedy("host_code", str(scene.paths[path]), alone, scene.often(busiest), time, edit, code)


def interpreter(scene: Scene) -> Iterator[Remedy]:
    """Python code of threads that launch nothing runs elsewhere: no thread that launches waits for its turn (GIL).

    Only one thread of a process runs Python at a time. Each sample of it represents the time to the next sample.
    Threads that wait (for a lock, a pipe, a socket) are sampled too, but hold nothing.
    """
    calls, window = scene.graph.calls, scene.timeline.window
    samples = scene.timeline.profile.tables.get("python_samples", empty("python_samples"))
    samples = samples[(samples["start_ns"] >= window.start_ns) & (samples["start_ns"] < window.end_ns)]
    other = _running(samples[~samples["thread"].isin(calls.thread[scene.in_calls])])
    if len(other) < max(_KEPT * len(samples), 1):
        return
    lost = np.zeros(len(calls))
    for process, rows in positions(other["process"].to_numpy()).items():
        mine = scene.in_calls[calls.process[scene.in_calls] == process]
        times = np.sort(other["start_ns"].to_numpy()[rows])
        each_ns = window.length_ns / max(int((samples["process"] == process).sum()), 1)
        during = np.searchsorted(times, calls.start[mine]) - np.searchsorted(times, scene.gap_start[mine])
        lost[mine] = np.minimum(during * each_ns, scene.gap[mine])
    chosen = np.flatnonzero((lost > 0) & (scene.model.edges[BEGIN][:-1] >= 0))
    in_place = np.bincount(scene.path[chosen], lost[chosen], 1)
    if lost.sum() < _LEAST_KEPT * window.length_ns or in_place.max() > _ONE_PLACE * in_place.sum():
        return
    names = other["function"].astype("str").str.replace(LINE, "", regex=True)
    edit = (Change(scene.model.of(BEGIN, chosen), "shorter", lost[chosen]),)
    name = str(names.value_counts().idxmax())
    yield Remedy("interpreter", "", name, scene.often(chosen), scene.per_step(lost[chosen], chosen), edit)


def _running(samples: pd.DataFrame) -> pd.DataFrame:
    """Return the samples of threads that ran: their stack had changed, or was about to."""
    ordered = samples.sort_values(["thread", "start_ns"])
    parts = (ordered["thread"].to_numpy(), *(ordered[name].cat.codes.to_numpy() for name in ("function", "stack")))
    is_new = np.any([np.append(True, part[1:] != part[:-1])[: len(part)] for part in parts], axis=0)
    run = np.cumsum(is_new) - 1
    running: pd.DataFrame = ordered[np.bincount(run)[run] <= _MOST_SAME]
    return running


def graph_launch(scene: Scene) -> Iterator[Remedy]:
    """The launches of a step as one CUDA graph, or as several where a wait comes between: no calls between kernels."""
    found, calls, work = scene.model, scene.graph.calls, scene.graph.work
    is_eager_jax = _is_eager_jax(scene)
    # copies from and to the host, and what waits or allocates, stays outside of graphs. Outside of jax.jit, each
    # operation copies its constants to the GPU
    outside = _does_more(scene) & ~(is_eager_jax & (scene.direction == TO_DEVICE))
    outside |= np.asarray(calls.names.str.contains("GraphLaunch"), dtype=bool)[calls.name]
    plain = scene.in_calls[~outside[scene.in_calls]]
    plain = plain[scene.lead_to(plain)[plain]]
    inside = plain[_price_of_launching(scene)[plain]]
    launched = inside[scene.launching[inside]]
    if len(launched) < max(2 * scene.steps, _GRAPH_LAUNCHES // 2) or _changes_shape(scene, launched):
        return
    operations = np.flatnonzero(np.isin(work.call, launched) & (found.edges[LAUNCH][:-1] >= 0))
    queued = operations[found.edges[STREAM][operations] >= 0]
    starts = np.union1d(scene.first_of_steps(launched), scene.first_after(launched, outside))
    each = _GRAPH_LAUNCH_NS * min(1.0, len(launched) / max(len(starts), 1) / _GRAPH_LAUNCHES)
    edit = (
        Change(found.of(BEGIN, inside), "at most", 0),
        Change(found.of(CALL, plain), "set", 0),
        Change(found.of(LAUNCH, operations), "at most", (scene.lag_between - work.hop_ns)[operations] + _ON_GPU_NS),
        Change(found.of(STREAM, queued), "shorter", np.maximum(work.hop_ns[queued] - _GRAPH_HOP_NS, 0)),
        Change(found.of(BEGIN, starts), "shorter", -each),
    )
    time = scene.per_step((calls.end - calls.start)[inside] + scene.gap[inside], inside)
    most = scene.mostly(launched)
    rule = "not_jitted" if is_eager_jax else "launch_bound"
    yield Remedy(rule, scene.pathname(launched), most, scene.often(launched), time, edit)


def _changes_shape(scene: Scene, launched: Ints) -> bool:
    """Whether most kernels of a step are others, or have other grids, than those of the step before.

    A CUDA graph repeats what it has recorded. Where grids were not read, only names tell.
    """
    work, steps = scene.graph.work, scene.timeline.window.repetitions
    kernels = scene.timeline.profile.tables.get("kernels", empty("kernels"))
    mine = np.flatnonzero(np.isin(work.call, launched) & (work.operation < len(kernels)))
    if not len(mine):
        return False
    # of the busiest process: ranks run the same, in their own order
    process, of_process = np.unique(scene.graph.calls.process[work.call[mine]], return_inverse=True)
    mine = mine[of_process == np.bincount(of_process, minlength=len(process)).argmax()]
    mine = mine[np.lexsort((work.start[mine], work.launched[mine]))]
    shape = kernels["name"].cat.codes.to_numpy(dtype=np.int64)[work.operation[mine]]
    for name in (f"grid_{axis}" for axis in "xyz"):
        if name in kernels.columns:
            shape = shape * 1_000_003 + kernels[name].to_numpy(dtype=np.int64)[work.operation[mine]]
    edges = np.searchsorted(work.launched[mine], steps)
    each = [shape[low:high] for low, high in itertools.pairwise(edges.tolist())]
    if len(each) < _FEWEST_SHAPES:
        return False
    return float(np.median([_differ(one, other) for one, other in itertools.pairwise(each)])) > _OTHER_SHAPES


def _differ(one: Ints, other: Ints) -> float:
    """Return the share of the kernels of two steps that are not in both, whatever their order."""
    distinct, codes = np.unique(np.concatenate([one, other]), return_inverse=True)
    counts = [np.bincount(part, minlength=len(distinct)) for part in (codes[: len(one)], codes[len(one) :])]
    return 1 - int(np.minimum(*counts).sum()) / max(len(one), len(other), 1)


def _does_more(scene: Scene) -> Flags:
    """Return which calls do more than launch or ask: they wait, allocate, load, or copy from or to the host."""
    calls = scene.graph.calls
    flags: Flags = np.isin(calls.cause, [IDLE.index(cause) for cause in (SYNC, ALLOCATION, BLOCKING_COPY, MODULE)])
    return flags | (calls.awaited >= 0) | (scene.direction >= 0)


def _price_ns(scene: Scene) -> Ints:
    """Return for each path of the scene up to which length host code in it is the price of launching."""
    launching = scene.in_calls[scene.launching[scene.in_calls]]
    much = np.bincount(scene.path[launching], minlength=len(scene.paths)) >= _MUCH * scene.steps
    if _is_eager_jax(scene):
        return np.full(len(scene.paths), _DISPATCH_OF_JAX_NS)
    return np.where(much, np.where(scene.paths == OUTSIDE, _ANYWHERE_NS, _DISPATCH_NS), _BETWEEN_LAUNCHES_NS)


def _is_eager_jax(scene: Scene) -> bool:
    """Whether JAX runs operations one by one: XLA marks each program that it runs, and these launch little."""
    ranges, window = scene.timeline.profile.tables.get("ranges", empty("ranges")), scene.timeline.window
    started = ranges[(ranges["start_ns"] >= window.start_ns) & (ranges["start_ns"] < window.end_ns)]
    marked = started["name"][started["domain"] == "TSL"]
    is_program = marked.astype("str").str.startswith("XlaModule:")
    return 0 < int(scene.launching[scene.in_calls].sum()) < _OF_A_PROGRAM * int(is_program.sum())


def _price_of_launching(scene: Scene) -> Flags:
    """Return before which calls host code does nothing else than launch: it is short, or lies in what launches much."""
    cut, price = scene.host_code(), _price_ns(scene)
    longer = np.zeros(len(scene.gap), dtype=bool)
    longer[cut.piece[scene.gap[cut.piece] > price[cut.row]]] = True
    return ~longer


def waits(scene: Scene) -> Iterator[Remedy]:
    """Waits for the GPU, by range: the thread goes on at once. A copy to the host and the wait for it are one."""
    found, calls = scene.model, scene.graph.calls
    waiting = scene.in_calls[calls.awaited[scene.in_calls] >= 0]
    direction = scene.direction[waiting]
    waiting = waiting[(direction == TO_HOST) | ((calls.cause[waiting] == IDLE.index(SYNC)) & (direction < 0))]
    length = calls.end - calls.start
    # a copy is still made: that takes what a launch takes
    shortest = np.minimum(
        np.where(scene.launching, np.maximum(least(calls), scene.cost.recorded_ns), least(calls)), length
    )
    for code, here in positions(scene.path[waiting]).items():
        mine = waiting[here]
        edit = (scene.without_waits(mine), Change(found.of(CALL, mine), "at most", shortest[mine]))
        place, time = str(scene.paths[code]), scene.per_step(length[mine], mine)
        yield Remedy("wait", place, scene.function(mine), scene.often(mine), time, edit)


def allocation(scene: Scene) -> Iterator[Remedy]:
    """No allocation and no free in the loop."""
    yield from _without_calls(scene, "allocation", scene.graph.calls.cause == IDLE.index(ALLOCATION))


def loading(scene: Scene) -> Iterator[Remedy]:
    """Nothing is loaded or compiled any more, nor does host code compile.

    What the steps need less and less often is over once all shapes have occurred: it promises nothing for later steps.
    """
    calls = scene.graph.calls
    loads = (calls.cause == IDLE.index(MODULE)) | loads_code(scene.timeline, scene.graph)
    # libraries load their kernels in other ways, and wait for the disk
    pattern = _LOADS_IN_STEPS if scene.model.steps else _LOADS_COMPILED
    compiled = np.asarray(calls.names.str.contains(pattern), dtype=bool)[calls.name]
    compiles = loads & compiled & (scene.gap > _COMPILING_NS)
    long = scene.in_calls[scene.gap[scene.in_calls] > _COMPILING_NS]
    compiling, samples = _sampled_before(scene, long, _COMPILER)
    compiles[long[compiling > _MOSTLY * samples]] = True
    if not (scene.model.steps and _fades(scene)):
        yield from _without_calls(scene, "compilation" if compiles.any() else "loading", loads, with_gap=compiles)


def workers(scene: Scene) -> Iterator[Remedy]:
    """Worker processes of a DataLoader live on: their start and end, and the wait for their first batch, are gone."""
    long = scene.in_calls[scene.gap[scene.in_calls] > _COMPILING_NS]
    starts, _ = _sampled_before(scene, long, _STARTS_WORKERS)
    loading, samples = _sampled_before(scene, long, _LOADS_DATA)
    mine = long[(starts > 0) & (loading > _MOSTLY * samples)]
    # workers that start once are part of the program's start
    if len(mine) >= _FEWEST_STARTS:
        edit = (Change(scene.model.of(BEGIN, mine), "at most", 0),)
        time = scene.per_step(scene.gap[mine], mine)
        yield Remedy("restarted_workers", scene.pathname(mine), "", scene.often(mine), time, edit)


def _sampled_before(scene: Scene, calling: Ints, stack: str) -> tuple[Ints, Ints]:
    """Return how many samples of Python's stack match in the host code before each call, and how many there are."""
    calls, matching, total = scene.graph.calls, np.zeros_like(calling), np.zeros_like(calling)
    samples = scene.timeline.profile.tables.get("python_samples", empty("python_samples"))
    stacks = samples["stack"].cat
    matches = np.append(np.asarray(stacks.categories.str.contains(stack), dtype=bool), False)[stacks.codes]
    rows = positions(samples["thread"].to_numpy())
    for thread, here in positions(calls.thread[calling]).items():
        mine = rows.get(thread, here[:0])
        times = samples["start_ns"].to_numpy()[mine]
        order = np.argsort(times, kind="stable")
        count = np.append(0, np.cumsum(matches[mine][order]))
        low, high = (np.searchsorted(times[order], edge[calling[here]]) for edge in (scene.gap_start, calls.start))
        matching[here], total[here] = count[high] - count[low], high - low
    return matching, total


def _fades(scene: Scene) -> bool:
    """Whether loads get rare: few or none are in the second half of the steps. All count: a stretch may have few."""
    table = scene.timeline.profile.tables.get("api_calls", empty("api_calls"))
    wanted = np.asarray(table["name"].cat.categories.str.contains(_LOADS_IN_STEPS), dtype=bool)
    times = table["start_ns"].to_numpy()[wanted[table["name"].cat.codes]]
    for loop in loops_of(scene.timeline.profile)[:1]:
        starts = loop.starts[loop.slow :]
        if len(starts) >= _FEWEST_TO_FADE:
            middle = starts[len(starts) // 2]
            early = int(((times >= starts[0]) & (times < middle)).sum())
            return int(((times >= middle) & (times < loop.end_ns)).sum()) < _FADED * early
    return False


def _without_calls(scene: Scene, rule: str, flags: Flags, with_gap: Flags | None = None) -> Iterator[Remedy]:
    """Yield the remedy that these calls are gone, and the host code before those `with_gap`; launches stay, short."""
    found, calls = scene.model, scene.graph.calls
    mine = scene.in_calls[flags[scene.in_calls]]
    before = scene.in_calls[with_gap[scene.in_calls]] if with_gap is not None else mine[:0]
    if not len(mine) and not len(before):
        return
    length = calls.end - calls.start
    left = np.where(scene.launching, least(calls), 0)[mine]
    edit = (
        scene.without_waits(mine),
        Change(found.of(CALL, mine), "at most", left),
        Change(found.of(BEGIN, before), "at most", 0),
    )
    each = np.append(mine, before)
    time = scene.per_step(np.append(length[mine], scene.gap[before]), each)
    yield Remedy(rule, scene.pathname(each), scene.function(each), scene.often(np.unique(each)), time, edit)


# -- copies -----------------------------------------------------------------------------------------------------------


def large_copies(scene: Scene) -> Iterator[Remedy]:
    """Copies between host and device, by direction and kind of memory: pinned, and on a separate stream."""
    work = scene.graph.work
    mine, size, pageable = _copies(scene)
    large = size >= _SMALL_BYTES
    rate = link_rate(scene.timeline)
    for code, here in positions((work.direction[mine] * 2 + pageable)[large]).items():
        chosen = mine[large][here]
        new = np.minimum(size[large][here] / rate, scene.length[chosen])
        way, is_pageable = divmod(code, 2)
        rule = "copies_to_host" if way == TO_HOST else "pageable_copy" if is_pageable else "exposed_copy"
        calling = work.call[chosen]
        path, time = scene.pathname(calling), scene.per_step(scene.length[chosen], calling)
        yield Remedy(rule, path, _WAYS[way], scene.often(calling), time, _off_stream(scene, chosen, new))


def _copies(scene: Scene) -> tuple[Ints, Floats, Flags]:
    """Return the replayed copies between host and device, their bytes, and if the host's memory is pageable."""
    table, work = scene.timeline.profile.tables.get("memory_ops"), scene.graph.work
    mine = np.flatnonzero((work.direction >= 0) & (work.call >= 0) & (scene.model.edges[LAUNCH][:-1] >= 0))
    if table is None or not len(mine):
        return mine[:0], np.empty(0), np.empty(0, dtype=bool)
    rows = table.iloc[work.operation[mine] - _kernels(scene)]
    pageable = (rows["source_kind"] == "Pageable") | (rows["target_kind"] == "Pageable")
    return mine, rows["bytes"].to_numpy(dtype=np.float64, na_value=0.0), pageable.to_numpy()


def _off_stream(scene: Scene, chosen: Ints, new: Floats) -> Edit:
    """Return the edit that puts copies on a separate stream, in order, with new lengths, and waits for none."""
    found, calls, work = scene.model, scene.graph.calls, scene.graph.work
    ends = found.target[found.edges[LAUNCH][chosen]]
    leaving = np.flatnonzero(np.isin(found.source, ends) & np.isin(found.kind, (STREAM, OTHER)))
    calling = np.unique(work.call[chosen])
    engine = chosen[found.edges[ENGINE][chosen] >= 0]
    after = new[found.edges[ENGINE][chosen] >= 0] + work.hop_ns[engine]
    shorter: Floats = scene.length[chosen] - new + np.maximum(work.latency_ns[chosen] - scene.cost.recorded_ns, 0)
    return (
        *_leaving(scene, leaving, ends),
        Change(np.concatenate([found.of(STREAM, chosen), found.of(OTHER, chosen)]), "set", NEVER),
        Change(found.of(LAUNCH, chosen), "shorter", shorter),
        Change(found.of(ENGINE, engine), "set", after),
        scene.without_waits(np.flatnonzero(np.isin(calls.awaited, chosen))),
        Change(found.of(CALL, calling), "at most", scene.cost.recorded_ns),
    )


def _leaving(scene: Scene, edges: Ints, ends: Ints) -> Edit:
    """Return the edit that nothing follows these ends (`edges`): what did follows what was before on its stream."""
    around = scene.model.around(edges, ends)
    return (Change(edges, "set", NEVER), Change(around, "set", scene.lag_between[scene.model.item[around]]))


def small_copies(scene: Scene) -> Iterator[Remedy]:
    """Many small copies of a step as one: the calls of all but the first are gone, and the waits between them."""
    found, calls, work = scene.model, scene.graph.calls, scene.graph.work
    mine, size, _ = _copies(scene)
    mine = mine[size < _SMALL_BYTES]
    for code, here in positions(scene.path[work.call[mine]] * 2 + work.direction[mine]).items():
        calling = np.unique(work.call[mine[here]])
        if len(calling) < _MANY_COPIES * scene.steps:
            continue
        first = scene.first_of_steps(calling)
        joined = mine[here][~np.isin(work.call[mine[here]], first)]
        gone = np.union1d(np.setdiff1d(calling, first), scene.between(calling, first))
        path, way = divmod(code, 2)
        edit = (
            scene.without_waits(gone),
            Change(found.of(CALL, gone), "set", 0),
            Change(found.of(BEGIN, gone[scene.gap[gone] <= _BETWEEN_LAUNCHES_NS]), "at most", 0),
            *_shorter(scene, joined, scene.length[joined], with_way=np.ones(len(joined), dtype=bool)),
        )
        time = scene.per_step((calls.end - calls.start)[gone] + scene.gap[gone], gone)
        cases = scene.often(calling)
        yield Remedy("many_small_copies", str(scene.paths[path]), _WAYS[way], cases, time, edit)


def _shorter(scene: Scene, operations: Ints, by: Ints | Floats, *, with_way: Flags) -> Edit:
    """Return the edit that operations are shorter, and that those `with_way` need no time on the way to the GPU."""
    found, work = scene.model, scene.graph.work
    changes = []
    for kind, way in ((LAUNCH, work.latency_ns), (STREAM, work.hop_ns), (OTHER, work.hop_ns)):
        known = found.edges[kind][operations] >= 0
        mine = operations[known]
        changes.append(Change(found.of(kind, mine), "earlier", by[known] + way[mine] * with_way[known]))
    place = np.full(len(work), -1, dtype=np.int64)
    place[operations] = np.arange(len(operations))
    around = found.bypasses[place[found.item[found.bypasses]] >= 0]
    mine = place[found.item[around]]
    sooner = by[mine] + work.hop_ns[operations[mine]] * with_way[mine]
    return (*changes, Change(around, "earlier", sooner))


@of_capture
def link_rate(timeline: Timeline) -> float:
    """Return the rate of copies of pinned memory in bytes per ns: as measured, else as published for the GPU's link."""
    table = timeline.profile.tables.get("memory_ops")
    if table is not None:
        pinned = (table["source_kind"] == "Pinned") | (table["target_kind"] == "Pinned")
        large = table[pinned & (table["bytes"].fillna(0) >= _LARGE_BYTES)]
        if len(large):
            times = (large["end_ns"] - large["start_ns"]).clip(lower=1)
            return float((large["bytes"].astype("float64") / times).median())
    devices = timeline.profile.tables.get("devices")
    names = devices["name"].astype("str") if devices is not None else ()
    # both directions are published together
    rates = [rate / 2 * _LINK_SHARE for name in names if (rate := published(name).pcie_gb_per_s)]
    return rates[0] if rates else _LINK_GB_PER_S


def migration(scene: Scene) -> Iterator[Remedy]:
    """Pages of managed memory are moved before they are needed, at the rate of the link; no processor waits for one."""
    found, calls, work = scene.model, scene.graph.calls, scene.graph.work
    kernels = np.flatnonzero((work.operation < _kernels(scene)) & (found.edges[LAUNCH][:-1] >= 0))
    stalled, held = np.zeros(len(work)), np.zeros(len(calls))
    for device, waited in _waits_for_pages(scene.timeline, "Unified Host-to-Device", "device"):
        mine = kernels[work.device[kernels] == device]
        most = np.maximum(scene.length[mine] - _LEAST_KERNEL_NS, 0)
        stalled[mine] = np.minimum(waited(work.start[mine], work.end[mine]), most)
    for process, waited in _waits_for_pages(scene.timeline, "Unified Device-to-Host", "process"):
        mine = scene.in_calls[calls.process[scene.in_calls] == process]
        held[mine] = waited(scene.gap_start[mine], calls.start[mine])
    slow, late = np.flatnonzero(stalled), np.flatnonzero(held)
    if not len(slow) and not len(late):
        return
    edit = (
        *_shorter(scene, slow, stalled[slow], with_way=np.zeros(len(slow), dtype=bool)),
        Change(found.of(BEGIN, late), "shorter", held[late]),
    )
    calling = np.append(work.call[slow], late)
    time = scene.per_step(np.append(stalled[slow], held[late]), calling)
    yield Remedy("migration", scene.pathname(calling[calling >= 0]), "", scene.often(calling), time, edit)


def _kernels(scene: Scene) -> int:
    """Return the number of kernels in the capture: operations begin with them."""
    return int(scene.timeline.operations.of("kernels").sum())


def _waits_for_pages(
    timeline: Timeline, operation: str, by: str
) -> Iterator[tuple[int, Callable[[Ints, Ints], Floats]]]:
    """Yield for each device or process what tells how long pages were moved and faults on them served between times.

    Less what moving these bytes takes at the link's rate: that is still to be done.
    """
    table, faults = (timeline.profile.tables.get(name, empty(name)) for name in ("memory_ops", "gpu_page_faults"))
    rate = link_rate(timeline)
    moves = table[table["operation"] == operation]
    for key, here in positions(integers(moves[by])).items():
        some = moves.iloc[here].sort_values("start_ns")
        start, end = (some[name].to_numpy() for name in ("start_ns", "end_ns"))
        least = np.concatenate(([0], np.cumsum(some["bytes"].to_numpy(dtype=np.float64, na_value=0.0) / rate)))
        served = faults[faults[by] == key]
        spans = union(np.append(start - _SERVED_NS, served["start_ns"]), np.append(end, served["end_ns"]))

        def waited(low: Ints, high: Ints, start: Ints = start, least: Floats = least, spans: Spans = spans) -> Floats:
            new = least[np.searchsorted(start, high)] - least[np.searchsorted(start, low)]
            return np.asarray(np.maximum(covered(spans, low, high) - new, 0))

        yield key, waited


# -- ranks ------------------------------------------------------------------------------------------------------------


def hidden_communication(scene: Scene) -> Iterator[Remedy]:
    """Communication hidden behind what does not need it: nothing else waits for more than a part of it.

    Without the other ranks, a collective may be all waiting, which nothing hides.
    """
    found, work = scene.model, scene.graph.work
    calls = communication(scene.timeline)
    own = calls["operation"][(calls["group_size"] == 1).fillna(value=False)]
    mine = np.flatnonzero(work.communicates & (found.edges[LAUNCH][:-1] >= 0))
    # a collective can outlast the stretch
    mine = mine[np.where(work.group[mine] < 0, np.isin(work.operation[mine], own), found.edges[TRANSFER][mine] >= 0)]
    if not len(mine):
        return
    alone, grouped = mine[work.group[mine] < 0], mine[work.group[mine] >= 0]
    ends = found.target[np.concatenate([found.of(LAUNCH, alone), found.of(TRANSFER, grouped)])]
    # what communicates still follows what communicated before
    arrivals = found.source[found.kind == TRANSFER]
    leaving = np.isin(found.source, ends) & np.isin(found.kind, (STREAM, OTHER))
    leaving &= ~np.isin(found.target, np.append(ends, arrivals))
    leads = np.flatnonzero(leaving)
    can_hide = pd.Series(_can_hide(scene, np.append(alone, grouped), found.source[leads], ends), index=ends)
    hidden = np.asarray(can_hide[~can_hide.index.duplicated()][found.source[leads]], dtype=np.float64)
    around = found.around(leads, np.append(ends, arrivals))
    edit = (Change(leads, "earlier", hidden), Change(around, "set", scene.lag_between[found.item[around]]))
    calling = work.call[mine]
    time = scene.per_step(scene.length[mine], calling)
    yield Remedy("exposed_communication", "", "", scene.often(calling), time, edit)


def repeated_reduction(scene: Scene) -> Iterator[Remedy]:
    """Gradients are reduced once for each update, not in each backward pass; ranks still meet where they did."""
    gone, passes = unneeded_reductions(scene)
    if not passes:
        return
    edit = (Change(scene.model.of(TRANSFER, gone), "set", 0),)
    calling = scene.graph.work.call[gone]
    time = scene.per_step(scene.length[gone], calling)
    yield Remedy("repeated_reduction", "", f"{passes:,} backward passes", scene.often(calling), time, edit)


def _can_hide(scene: Scene, mine: Ints, sources: Ints, ends: Ints) -> Floats:
    """Return for each of these communication operations how much earlier its dependents can begin, in ns.

    ends: their events. sources: those for which other work waits. Consecutive communication without other work in
    between is hidden together, by at most the time of the other work before it that ran alone.
    """
    work, allowed, share = scene.graph.work, np.zeros(len(mine)), _hidden_share(scene, mine)
    for device, rows in positions(work.device[mine]).items():
        here = rows[np.argsort(work.end[mine[rows]], kind="stable")]
        others = np.flatnonzero((work.device == device) & ~work.communicates)
        busy = union(work.start[others], work.end[others])
        spans = union(work.start[mine[here]], work.end[mine[here]])
        end, is_last = work.end[mine[here]], np.isin(ends[here], sources)
        # what is hidden together has one share
        run: Ints = np.cumsum(is_last) - is_last
        length = scene.length[mine[here]]
        begun = np.append(scene.timeline.window.start_ns, end[is_last])[run]
        together = np.bincount(run, share[here] * length) / np.maximum(np.bincount(run, length), 1)
        alone = covered(without(spans, busy), begun, end)
        others = covered(without(busy, spans), begun, end)
        allowed[here] = np.minimum(together[run] * np.maximum(alone, length), others)
    return allowed


def _hidden_share(scene: Scene, mine: Ints) -> Floats:
    """Return which share of each of these operations, which communicate, other work can hide."""
    work, calls = scene.graph.work, communication(scene.timeline)
    # a rank that receives gives nothing
    either = calls.set_index("operation")[["bytes", "received_bytes"]].astype("float64").max(axis=1)
    given = either.reindex(work.operation[mine]).to_numpy()
    length = pd.Series(work.end[mine] - work.start[mine])
    # the shortest of a collective waits the least for other ranks
    least = length.groupby(np.where(work.group[mine] >= 0, work.group[mine], -2 - mine)).transform("min").to_numpy()
    gb_per_s = given / np.maximum(least, 1)
    share = np.where(gb_per_s > _NVLINK_GB_PER_S, _HIDDEN_BY_NVLINK, _HIDDEN)
    return np.where(np.isnan(gb_per_s), _HIDDEN_BY_ANY, share)


@dataclass(frozen=True)
class _Spent:
    """What ranks compute that meet: operations (`mine`), with their step and device (positions), and `spent`, in ns.

    stage: of each device in its pipeline, counted from 1; 0 for those in none.
    """

    mine: Ints
    step: Ints
    device: Ints
    devices: Ints
    spent: Floats
    stage: Ints


def _spent(scene: Scene) -> _Spent | None:
    """Return how long the ranks that wait for each other compute in each step; None if there are no two.

    Neither if only some of them have steps: what the others do in one is not known.
    """
    found, work = scene.model, scene.graph.work
    replayed = found.edges[LAUNCH][:-1] >= 0
    ranks = pd.unique(work.device[(work.group >= 0) & replayed])
    if len(ranks) < 2:
        return None
    mine = np.flatnonzero(~work.communicates & replayed & np.isin(work.device, ranks) & (_stretch(scene) < 0))
    (step, steps), (device, devices) = (pd.factorize(of[mine]) for of in (_steps(scene), work.device))
    if len(devices) < 2:
        return None
    process = operation_column(scene.timeline, "process")[work.operation[mine]]
    if (begun := scene.timeline.window.steps) and not np.isin(process, list(begun)).all():
        return None
    spent = _sums(step, device, scene.length[mine], (len(steps), len(devices)))
    # a rank that was not recorded in a step, or had died, tells nothing of the others
    spent[(spent == 0).any(axis=1)] = 0
    stage = np.zeros(len(devices), dtype=np.int64)
    for chain in chains(scene.timeline):
        # without some of its stages, what is even is not known
        if np.isin(chain, devices).all():
            stage[[int(np.flatnonzero(devices == one)[0]) for one in chain]] = 1 + np.arange(len(chain))
    return _Spent(mine, step, device, devices, spent, stage)


def straggler(scene: Scene) -> Iterator[Remedy]:
    """A rank that computes longer than the others, which wait for it in collectives: the same for all, in each step.

    Ranks of a pipeline are compared with those of the same stage.
    """
    if (all_of := _spent(scene)) is None:
        return
    spent, devices = all_of.spent, all_of.devices
    even, most = np.zeros_like(spent), np.zeros_like(spent)
    for columns in positions(all_of.stage).values():
        weights = stands_for(scene.timeline, devices[columns])
        even[:, columns] = np.average(spent[:, columns], axis=1, weights=weights)[:, None]
        most[:, columns] = spent[:, columns].max(axis=1)[:, None]
    if not most.sum() or most.sum() < _UNEVEN * even.sum():
        return
    yield _evened(scene, all_of, even, "straggler", _slow(scene, devices, spent, even) or _ANOTHER)


def uneven_stages(scene: Scene) -> Iterator[Remedy]:
    """A stage of a pipeline that computes longer than the others: the same for all, over all steps."""
    if (all_of := _spent(scene)) is None or not (inside := all_of.stage > 0).any():
        return
    each = pd.Series(all_of.spent.sum(axis=0)[inside]).groupby(all_of.stage[inside]).mean()
    if each.max() < _UNEVEN * each.mean():
        return
    factor = np.ones(len(all_of.devices))
    factor[inside] = each.mean() / np.maximum(each.reindex(all_of.stage[inside]).to_numpy(), 1)
    slow = int(np.flatnonzero(all_of.stage == each.idxmax())[0])
    name = called_by_rank(scene.timeline, int(all_of.devices[slow]))
    yield _evened(scene, all_of, all_of.spent * factor, "uneven_stages", name)


def uneven_experts(scene: Scene) -> Iterator[Remedy]:
    """A rank whose experts compute longer than the others between two all-to-alls: the same for all, each time."""
    work = scene.graph.work
    if not work.communicates.any():
        return
    stretch = _stretch(scene)
    mine = np.flatnonzero((stretch >= 0) & ~work.communicates & (scene.model.edges[LAUNCH][:-1] >= 0))
    (step, keys), (device, devices) = (pd.factorize(of[mine]) for of in (stretch, work.device))
    if len(devices) < 2:
        return
    spent = _sums(step, device, scene.length[mine], (len(keys), len(devices)))
    # devices of other communicators compute at other times; in a large job, some represent the others
    of_key = stretches(scene.timeline).groupby("key")["device"].agg(list)
    members = np.array([np.isin(devices, of_key[key]) for key in keys.tolist()])
    weights = members * stands_for(scene.timeline, devices)
    even = (weights * spent).sum(axis=1, keepdims=True) / np.maximum(weights.sum(axis=1, keepdims=True), 1)
    most = spent.max(axis=1)
    if most.sum() < _UNEVEN * even.sum():
        return
    name = _slow(scene, devices, spent, even) or _ANOTHER_TIME
    all_of = _Spent(mine, step, device, devices, spent, np.zeros(len(devices), dtype=np.int64))
    yield _evened(scene, all_of, np.broadcast_to(even, spent.shape), "uneven_experts", name)


_ANOTHER_TIME: Final = "Each time a different rank"


def _slow(scene: Scene, devices: Ints, spent: Floats, even: Floats) -> str:
    """Name the ranks that others wait for in all steps, "" if they take turns.

    spent, even: how long each device computes in each step, and would if all were even.
    """
    known = spent > 0
    # a step of which the window has only a part says little, and its shares vary the most
    total = even.sum(axis=1)
    whole = total >= _WHOLE * np.median(total[known.any(axis=1)])
    rows, columns = known.any(axis=1) & whole, known.any(axis=0)
    relative = np.where(known, spent / np.maximum(even, 1), np.nan)[np.ix_(rows, columns)]
    devices, mean = devices[columns], np.nanmean(relative, axis=0)
    slow = mean > (np.nanmax(mean) + np.nanmin(mean)) / 2
    if not slow.any():
        return ""
    as_others = np.where(slow, relative * np.nanmean(mean[~slow]) / mean, relative)
    waited, left = (float((np.nanmax(each, axis=1) - np.nanmean(each, axis=1)).sum()) for each in (relative, as_others))
    if waited - left < _MOSTLY * waited:
        return ""
    numbers = sorted(ranks_of(scene.timeline, devices[slow]).tolist())
    if len(numbers) == 1:
        return called_by_rank(scene.timeline, int(devices[slow][0]))
    if not are_ranks_known(scene.timeline):
        return f"Each of {len(numbers)} GPUs"
    in_a_row = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
    named = f"ranks {numbers[0]} to {numbers[-1]}" if in_a_row else format_ranks(numbers).lower()
    return f"Each of {named}"


def _sums(row: Ints, column: Ints, values: Ints, shape: tuple[int, int]) -> Floats:
    """Return the sums of values by row and column."""
    sums: Floats = np.zeros(shape)
    np.add.at(sums, (row, column), values)
    return sums


def _stretch(scene: Scene) -> Ints:
    """Return between which two all-to-alls of experts each operation begins: a number, -1 for none."""
    work, told, found = scene.graph.work, stretches(scene.timeline), np.full(len(scene.graph.work), -1, dtype=np.int64)
    for device, rows in positions(told["device"].to_numpy()).items():
        start, end, key = (told[name].to_numpy()[rows] for name in ("start_ns", "end_ns", "key"))
        order = np.argsort(start, kind="stable")
        mine = np.flatnonzero(work.device == device)
        place = order[np.searchsorted(start[order], work.start[mine], side="right") - 1]
        inside = (work.start[mine] >= start[place]) & (work.start[mine] < end[place])
        found[mine] = np.where(inside, key[place], -1)
    return found


def _evened(scene: Scene, all_of: _Spent, even: Floats, rule: str, name: str) -> Remedy:
    """Return the remedy that each device computes for as long as `even` says, in each step."""
    mine, count = all_of.mine, len(all_of.devices)
    # in steps in which ranks are not compared, each is as uneven as in the others
    known = all_of.spent > 0
    usual = 1 - (even * known).sum(axis=0) / np.maximum(all_of.spent.sum(axis=0), 1)
    share = np.where(known, 1 - even / np.maximum(all_of.spent, 1), usual)[all_of.step, all_of.device]
    edit = _shorter(scene, mine, scene.length[mine] * share, with_way=np.zeros(len(mine), dtype=bool))
    longest = float(all_of.spent.max(axis=1).sum())
    return Remedy(rule, "", name, len(mine) / count / scene.steps, longest / scene.steps, edit)


_ANOTHER: Final = "In each step a different rank"


def _steps(scene: Scene) -> Ints:
    """Return the number of the step that each operation was launched in, by its process; 0 if nothing repeats."""
    calls, work = scene.graph.calls, scene.graph.work
    number, window = np.zeros(len(work), dtype=np.int64), scene.timeline.window
    process = np.where(work.call >= 0, np.append(calls.process, -1)[work.call], -1)
    for key, first in window.first_steps.items():
        mine = process == key
        number[mine] = np.searchsorted(window.steps[key], work.launched[mine], side="right") + first
    return number


# -- kernels ----------------------------------------------------------------------------------------------------------


def kernels(scene: Scene) -> Iterator[Remedy]:
    """What is known of kernels (nightsight.analyze.causes.kernels): others in their place, or fewer."""
    found, work, asks = scene.model, scene.graph.work, ~_does_more(scene)
    for proposal in kernel_remedies(scene.timeline, scene.timeline.window.repetitions):
        mine = scene.place[proposal.operations]
        # without recorded calls, operations still follow each other
        kept = (mine >= 0) & ((found.edges[LAUNCH][mine] >= 0) | (found.edges[STREAM][mine] >= 0))
        mine, removed = mine[kept], proposal.removed[kept]
        gone = work.call[mine[removed]]
        gone = gone[gone >= 0]
        # with a launch goes what leads to it: the host code that decides what to launch, and calls that only ask
        led = np.union1d(gone, scene.in_calls[(scene.lead_to(gone) & asks)[scene.in_calls]])
        edit = (
            *_shorter(scene, mine, scene.length[mine] - proposal.new_ns[kept], with_way=removed),
            Change(found.of(CALL, led), "set", 0),
            Change(found.of(BEGIN, led[scene.gap[led] <= _BETWEEN_LAUNCHES_NS]), "at most", 0),
        )
        calling = work.call[mine]
        time = scene.per_step(scene.length[mine], calling)
        yield Remedy(proposal.rule, "", proposal.place, scene.often(calling), time, edit, kernels=proposal.kernels)


PROPOSALS: Final = (
    host_code,
    interpreter,
    graph_launch,
    waits,
    allocation,
    loading,
    workers,
    large_copies,
    small_copies,
    migration,
    hidden_communication,
    repeated_reduction,
    straggler,
    uneven_stages,
    uneven_experts,
    kernels,
)
"""What is tried. Each returns remedies whose edits the replay judges."""
