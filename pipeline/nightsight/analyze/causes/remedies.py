"""The fixes to simulate: how each changes the dependencies.

A fix moves host code off a thread, a wait out of a loop, or a copy off its stream. Its gain comes from a replay of the
stretch with this edit (nightsight.analyze.causes.simulation).
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.causes.coalescing import coalescing
from nightsight.analyze.causes.default_stream import shared_default_stream
from nightsight.analyze.causes.functions import LINE
from nightsight.analyze.causes.graph import HOP_NS, TO_DEVICE, TO_HOST
from nightsight.analyze.causes.irregular import irregular_calls
from nightsight.analyze.causes.kernels import kernel_remedies
from nightsight.analyze.causes.model import (
    AWAIT,
    AWAIT_OWN,
    BEGIN,
    BYPASS,
    CALL,
    ENGINE,
    LAUNCH,
    NEVER,
    OTHER,
    STREAM,
    STREAM_OWN,
    TRANSFER,
    unblocked_ns,
)
from nightsight.analyze.causes.path import HostCode, first_runs, loads_code
from nightsight.analyze.causes.reductions import unneeded_reductions
from nightsight.analyze.causes.scene import Change, Edit, Scene
from nightsight.analyze.experts import stretches
from nightsight.analyze.needed_collectives import needed_at_once
from nightsight.analyze.pipelines import chains
from nightsight.analyze.ranges.callers import OUTSIDE
from nightsight.events.communication import are_ranks_known, called_by_rank, communication, ranks_of, ranks_represented
from nightsight.events.compiled import (
    compiling,
    compiling_again,
    is_sole_function,
    obstacles,
    uses_graphs,
    worked,
)
from nightsight.events.engine import KINDS, engine_steps
from nightsight.events.frameworks import JAX, PYTORCH, framework_of
from nightsight.events.kernel_kinds import kind_of
from nightsight.events.loops import UNNAMED, loops_of
from nightsight.events.peaks import published
from nightsight.events.ranges import general_paths, nested_ranges
from nightsight.events.timeline import Timeline, distinct, of_capture, operation_column
from nightsight.events.tuning import is_xla_tuning
from nightsight.intervals import Flags, Floats, Ints, Spans, covered, union, without
from nightsight.results.categories import ALLOCATION, BLOCKING_COPY, HOST, IDLE, MODULE, SYNC
from nightsight.results.rules import KERNEL_WORDS, RULE
from nightsight.results.serving import DECODE
from nightsight.system.parallel import memoize
from nightsight.tables import MODULE as MODULE_CALL
from nightsight.tables import are_named, integers, names_and_grids, positions
from nightsight.units import counted, format_ranks

# `stored: a to b`: with a and with b, the first findings of the stored captures are the same (docs/causes.md)


# between recomputed kernels, host code up to this length belongs to the recomputation: modules, saved tensors (stored:
# 5 to 20 ms)
_RECOMPUTING_NS: Final = 10_000_000
# host code between two launches up to this length only launches; longer code does other work (stored: 50 to 200 µs)
_BETWEEN_LAUNCHES_NS: Final = 100_000
# host code is done at most as fast as by the workers that the remedy of a DataLoader has. Its iterator without workers;
# a process takes this time to receive a tensor from a worker: `pyg_molecules` (tests/real, an H200) 0.5 ms, a program
# of 1 to 24 small tensors on two busy cores 0.25 ms after the first. More tensors are not known to be of one batch
_LOADS_IN_PROCESS: Final = "_SingleProcessDataLoaderIter"
_WORKERS: Final = 8
_RECEIVING_NS: Final = 300_000
_MOST_TENSORS: Final = 16
# what torch.compile leaves of the host code before the launches that remain: without it, operators, modules and
# autograd run there. Training on an H200 (half A of tests/real, 2026-11-28): in `convnext_nchw` 0.5, in
# `llama_checkpointing` at most that, as its GPU is then busy
_COMPILED: Final = 0.5
# the limit is higher where a step has this many launches, since a framework decides there what to launch: `host_hooks`
# of tests/data/planted does other work between 0.5 and 1 ms. Outside of ranges, host code may do anything (stored: 2 to
# 10, from 0.25 ms, 0.1 to 0.4 ms)
_MANY_LAUNCHES: Final = 5
_DISPATCH_NS: Final = 500_000
_OUTSIDE_NS: Final = 200_000
# outside of jax.jit, one operation took 0.26 ms of Python (222 launches per step, an H200 host), and XLA's threads take
# turns: host code on one thread is the work of another
_DISPATCH_OF_JAX_NS: Final = 10_000_000
# launches of one XLA program were 15 µs apart under nsys (an H100)
_BETWEEN_PROGRAMS_NS: Final = 50_000
# an XLA program with fewer launches is one operation of JAX (2.2 launches there)
_EAGER_PROGRAM: Final = 5
# the time from one kernel to the next in a CUDA graph and of its launch, from the fixed form of `tiny_kernels`; the
# fewest kernels worth a graph (stored: 25 to 100)
_GRAPH_HOP_NS: Final = 300
_GRAPH_LAUNCH_NS: Final = 10_000
_GRAPH_LAUNCHES: Final = 50
# an iteration of lax.fori_loop and lax.scan with one kernel took 7 to 9 µs, whatever the kernel, on an H100
# (2026-11-27), and up to 14 µs on the host of an H200 (`jax_loop`, 2026-11-29)
_XLA_LOOP_NS: Final = 10_000
# from the start of a graph to its first kernel (stored: 1 to 4 µs)
_ON_GPU_NS: Final = 2_000
# shapes change if more than this share of the kernels of a step do; fewer steps than this are not enough to tell
# (stored: 0.25 to 0.75, 2 to 8)
_NEW_SHAPES: Final = 0.5
_FEWEST_SHAPES: Final = 4
# above this share of the Python stack samples, and this share of the time, threads that launch nothing hold the GIL; if
# most of the lost time is in one place, the cause is more likely a wait for a queue or a lock (stored: 0.15 to 0.6,
# 0.025 to 0.1, 0.4 to 0.9)
_GIL_SHARE: Final = 0.3
_LEAST_GIL_SHARE: Final = 0.05
_MOST_IN_ONE_PLACE: Final = 0.8
# a thread whose stack stays the same for more samples than this waits, without the GIL: in threads that waited, 92 to
# 100 % of the samples equaled the previous one, in others at most 73 % (two programs, H100)
_MOST_EQUAL_SAMPLES: Final = 5
# copies of pinned memory of at least _LARGE_BYTES reach this share of the published rate of the link in one direction:
# 55 of 64 GB/s in `prefetch` and `pipelined_healthy` (an H200, an H100). _LINK_GB_PER_S: the same of PCIe 4.0, 31.5
# GB/s
_LINK_SHARE: Final = 0.85
_LINK_GB_PER_S: Final = 25.0
_LARGE_BYTES: Final = 1 << 20
# the cost of smaller copies is their calls, of larger ones their bytes; fewer copies per step are not reported (stored:
# 128 to 512 kB, 4 to 16)
_SMALL_BYTES: Final = 256_000
_MANY_COPIES: Final = 8
# a longer elementwise kernel computes more than single elements
_ELEMENT_NS: Final = 10_000
# selections per copy of a loop over elements: an NMS loop has two for its two copies
_SELECTS_IN_LOOP: Final = 0.5
_GATHERS: Final = r"\b(?:vectorized_gather|indexSelect|index_select)"
# a copy of one or a few values: what a program tests or logs (stored: 32 to 128)
_VALUE_BYTES: Final = 64
# what PyTorch launches to index with a boolean mask: it counts the rows, copies their number to the host, waits for it,
# writes their positions, and takes (or puts) the values. The first four kinds are those of these patterns
_MASKS: Final = (
    r"\bat_cuda_detail::cub::.*\bDeviceReduce",
    r"\bat_cuda_detail::cub::.*\bDevice(?:Select|Compact|Scan)|\bwrite_indices\b",
    r"\bindex_kernel_impl\b",
    r"\bindex_put_kernel_impl\b",
)
_REDUCE, _SELECT, _TAKE, _PUT, _COUNT, _WAIT = range(6)
_COUNT_BYTES: Final = 8
# longer host code before the loading of a module has compiled it (stored: 1.5 to 6 ms)
_COMPILING_NS: Final = 3_000_000
# frames of compilers: torch.compile (Dynamo, Inductor, the recording of its CUDA graphs, and its log of them), Triton,
# CuPy, Numba and JAX. PyTorch imports those of torch.compile for its first optimizer: that compiles nothing
_COMPILER: Final = (
    r"(?<!<module> )\((?:convert_frame|compile_fx|codecache|async_compile|compiler)\.py|autotune_to_one_config|"
    r"\brecord_function \(cudagraph_trees\.py|\brecord_compilation_metrics \("
)
# what Triton launches and records before a timed run, and the fewest runs; a run also copies what it overwrites
_FILL: Final = r"FillFunctor<int>"
_RECORDS: Final = "EventRecord"
_LEAST_TUNING_RUNS: Final = 5
_TUNED_LAUNCHES: Final = 8
# steps that compile nothing, to compare others with; these may launch twice as much, as new code can run twice
_FEWEST_CLEAN_STEPS: Final = 2
_SIMILAR: Final = 2.0
# frames of PyTorch's DataLoader, and of the start and end of its workers; some exports lack the files of frames
_LOADS_DATA: Final = r"\(dataloader\.py|\b(?:_get_iterator|_next_data|_shutdown_workers) \(line "
_STARTS_WORKERS: Final = (
    r"\b(?:__init__|_shutdown_workers) \(dataloader\.py|\b(?:_get_iterator|_shutdown_workers) \(line "
)
# workers that start once may be those of the whole run
_FEWEST_STARTS: Final = 2
# frames that read, write, decode or send data; copies of the same size, by their share
_READS_OR_WRITES: Final = (
    r"\(dataloader\.py|\b(?:_?im(?:read|write|save|decode|encode)|_?read\w*|_?write\w*|_?load\w*|_?save\w*|_?open|recv\w*|"
    r"send\w*|dumps?|decode\w*|encode\w*) \("
)
_SAME_SIZE: Final = 0.01
# innermost frames that wait on a socket: of asyncio, servers, ZeroMQ. Workers of a DataLoader answer through one, too
_WAITS_FOR_REQUESTS: Final = (
    r"^(?!.*dataloader\.py).*\b(?:select|poll|accept|recv\w*|readinto|serve_forever|_run_once) "
    r"\((?:selectors|socket|socketserver|ssl|base_events|poll|_poll)\.py[^;]*$"
)
# loads have ended if the second half of the steps has less than this share of those in the first half. Fewer steps show
# no trend; they are mostly the first of a run, so loads for new shapes are assumed to end there (stored: 0.25 to 0.75,
# 4 to 16)
_FADED_SHARE: Final = 0.5
# loads became rarer if they decrease by this many standard deviations: one of seven captures does so by chance
_BY_CHANCE: Final = 1.04
# share of the time of loads that is in steps with new shapes (stored: 0.45 to 0.95)
_NEARLY_ALL_LOADS: Final = 0.9
# an operator is set up in its first call if that call takes this many times longer than usual (stored: 5 to 20)
_SET_UP: Final = 10
_FEWEST_TO_FADE: Final = 8
# the range that PyTorch opens around the call of such a model
_MEASURED_CALL: Final = "DistributedDataParallel.forward"
# calls of a thread that only checks whether work is done, such as NCCL's watchdog
_QUERIES: Final = "Query|ExchangeStreamCaptureMode"
_UNLOADS: Final = "^cu(?:Module|Library)Unload"
_LOADS_COMPILED: Final = "^cuModuleLoad|^nvrtc|^nvJitLink"
# cuDNN loads its kernels this way; before the first step, CUDA loads its libraries this way too
_LOADS_IN_STEPS: Final = f"{_LOADS_COMPILED}|^cuLibraryLoad"
# only limits what is simulated
_MOST_PLACES: Final = 6
# a range with less of the host code between two calls is not worth naming: in `audio_features` of tests/data/real, one
# has between a tenth and a fifth (stored: from 0.05)
_LEAST_OF_HOST_CODE: Final = 0.1
# what a GPU and a CPU wait before pages of managed memory are moved, if faults were not recorded, and the CPU after it,
# while the driver maps the pages: `frames_managed` of tests/data/real (H200) has 70 to 100 µs between moves to the GPU,
# and 50 µs and 0.34 ns per byte between those to the host, little of it the program's own work
_GPU_FAULT_NS: Final = 70_000
_CPU_FAULT_NS: Final = 50_000
_MAPPED_NS_PER_BYTE: Final = 0.25
_PREFETCHES: Final = "^cu(?:da)?MemPrefetch"
# no kernel becomes shorter than this (stored: 1.5 to 6 µs)
_LEAST_KERNEL_NS: Final = 3_000
# overlap gains only this share of communication, which takes SMs and bandwidth from kernels; nothing overlaps the last
# reduction. Over NVLink the share was a twentieth between two H100 and a quarter between two H200, over sockets more
# than half. NVLink is faster than any network or PCIe (stored: 40 to 160 GB/s); if the rate is unknown, the share is
# between the two
_HIDDEN_BY_NVLINK: Final = 0.15
_HIDDEN_BY_NETWORK: Final = 0.5
_HIDDEN_BY_UNKNOWN: Final = 0.3
_NVLINK_GB_PER_S: Final = 80.0
# ranks are uneven if one of them computes this many times longer than the average (stored: 1.025 to 1.1)
_UNEVEN: Final = 1.05
# the same ranks are slow if more than this share of the waiting time disappears when they are as fast as the others.
# Host code compiles or loads data if more than this share of its samples do (stored: 0.25 to 0.75)
_MOSTLY: Final = 0.5
# ranks are compared in steps of at least this share of the median step (stored: 0.25 to 0.75)
_WHOLE_STEP: Final = 0.5
# names of kernels that a finding has
_MOST_KERNELS: Final = 3
_DIRECTION_NAMES: Final = {TO_DEVICE: "Host-to-Device", TO_HOST: "Device-to-Host"}


@dataclass(frozen=True, eq=False)
class Remedy:
    """One change of the program: its rule, its place, and how it edits the lags of the model.

    `path`, `name`: the place, as in the critical path. `cases`: the number of affected calls, pieces of host code or
    operations per step, and `time_ns`: their time. `code`: the host code that it moves off the thread. `kernels`: the
    names of affected kernels. `also`: further paths with a part of this host code. `in_steps`: the share of the steps
    that has nearly all of its time. `launching`: how it also edits the host code of launches that remain.
    """

    rule: str
    path: str
    name: str
    cases: float
    time_ns: float
    edit: Edit
    code: HostCode | None = None
    kernels: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    in_steps: float = 1.0
    launching: Edit = ()

    @property
    def whole_edit(self) -> Edit:
        """All that it edits."""
        return (*self.edit, *self.launching)

    def __post_init__(self) -> None:
        """Raise ValueError if the rule is not declared in `nightsight.results.rules`."""
        if self.rule not in RULE | KERNEL_WORDS:
            raise ValueError(f"{self.rule} is not declared in nightsight.results.rules")


def remedies(scene: Scene) -> list[Remedy]:
    """Return all remedies, regardless of their gain."""
    single = [remedy for propose in PROPOSALS for remedy in propose(scene)]
    moved = list(host_code(scene, _claimed(scene, single)))
    return [*single, *moved, *_joint_remedies([*single, *moved]), *_round_trips(scene, moved)]


def _claimed(scene: Scene, proposed: list[Remedy]) -> Flags:
    """Return the calls before which most of the host code has a separate cause, such as a compiler.

    These calls get no separate `host_code` remedy. Remedies of launches, copies and kernels also shorten host code, but
    as a side effect: only remedies for host code count.
    """
    lag, claimed = scene.model.lag, np.zeros(len(scene.gap), dtype=bool)
    begin_edges = scene.model.edges_of(BEGIN, scene.in_calls)
    calling = scene.model.item[begin_edges]
    separate = [remedy.edit for remedy in proposed if remedy.rule in RULE and HOST in RULE[remedy.rule].causes]
    for edit in (*separate, temporary_costs(scene)):
        removed_ns = (lag - scene.apply(edit, lag))[begin_edges]
        claimed[calling] |= removed_ns > _MOSTLY * scene.gap[calling]
    return claimed


def _joint_remedies(single: list[Remedy]) -> Iterator[Remedy]:
    """Remove a wait together with the host code of the same range."""
    by_place = {(remedy.rule, remedy.path): remedy for remedy in single if remedy.path != OUTSIDE and not remedy.also}
    for (rule, path), wait in by_place.items():
        host = by_place.get(("host_code", path))
        if rule == "wait" and host:
            time = wait.time_ns + host.time_ns
            edit, share = (*wait.edit, *host.edit), max(wait.in_steps, host.in_steps)
            yield Remedy("wait_and_host_code", path, wait.name, wait.cases, time, edit, host.code, in_steps=share)


def _round_trips(scene: Scene, moved: Sequence[Remedy]) -> Iterator[Remedy]:
    """Compute on the GPU what a program copies to the host, computes there in Python, and copies back.

    Nothing records which data are copied, so only copies of the same size count, with only host code in between.
    Who writes results to a file and reads the next inputs has such copies, too. moved: the remedies for host code.
    """
    calls, work = scene.graph.calls, scene.graph.work
    copies, size, _ = _host_copies(scene)
    bytes_of = np.bincount(work.call[copies], size, len(calls))
    rows = scene.in_calls[scene.launching[scene.in_calls]]
    rows = rows[np.lexsort((calls.start[rows], calls.thread[rows]))]
    direction = scene.direction[rows]
    # copies in one direction, one after the other
    run = np.cumsum((np.diff(direction, prepend=-1) != 0) | (np.diff(calls.thread[rows], prepend=-1) != 0))
    of_run = np.bincount(run, bytes_of[rows])
    begins = np.flatnonzero(np.diff(run, prepend=0))
    is_return = (direction[begins] == TO_DEVICE) & (np.append(-1, direction[begins[:-1]]) == TO_HOST)
    is_return[1:] &= calls.thread[rows[begins[1:]]] == calls.thread[rows[begins[:-1]]]
    there, back = (of_run[run[begins] - shift] for shift in (1, 0))
    is_return &= (back >= _LARGE_BYTES) & (np.abs(there - back) <= _SAME_SIZE * back)
    returns = run[begins[is_return]]
    if not len(returns):
        return
    copying = rows[np.isin(run, np.append(returns, returns - 1))]
    there_ns, back_ns = calls.end[rows[begins - 1]][is_return], calls.start[rows[begins]][is_return]
    on_thread = positions(calls.thread[rows[begins[is_return]]])
    for remedy in moved:
        if remedy.code is None:
            continue
        after, moved_ns = np.unique(remedy.code.piece), np.bincount(remedy.code.piece, remedy.code.length, len(calls))
        # the host code between the end of a copy to the host and the start of the copy back
        between = np.zeros(len(after), dtype=bool)
        for thread, of_thread in positions(calls.thread[after]).items():
            trips, start = on_thread.get(thread, returns[:0]), calls.start[after[of_thread]]
            trip = np.searchsorted(there_ns[trips], start, side="right") - 1
            between[of_thread] = (trip >= 0) & (start <= np.append(back_ns[trips], -1)[trip])
        in_files, samples = _samples_before(scene, after[between], _READS_OR_WRITES)
        is_python = samples.any() and in_files.sum() <= _MOSTLY * samples.sum()
        if not is_python or moved_ns[after[between]].sum() <= _MOSTLY * moved_ns.sum():
            continue
        time = remedy.time_ns + scene.per_step(calls.end[copying] - calls.start[copying], copying)
        edit = (*remedy.edit, *_without_work(scene, copying))
        yield replace(remedy, rule="round_trip", time_ns=time, edit=edit)


# -- the CPU ----------------------------------------------------------------------------------------------------------


def host_code(scene: Scene, claimed: Flags) -> Iterator[Remedy]:
    """Move host code that does more than launch off its thread: by range, and all of it between the same two calls.

    claimed: the calls before which most host code has a separate cause.
    """
    calls, pieces = scene.graph.calls, scene.host_code
    is_launching = scene.gap[pieces.piece] <= _most_launch_code_ns(scene)[pieces.row]
    is_launching &= ~_between_parts(scene)[pieces.piece]
    is_long = ~is_launching & (calls.cause[pieces.piece] != IDLE.index(MODULE))
    is_long &= ~np.isin(pieces.piece, _after_idling(scene)) & ~claimed[pieces.piece]
    # a thread that only queries sleeps in between and delays nothing
    is_long &= np.isin(calls.line[pieces.piece], calls.line[~calls.named(_QUERIES)])
    # a program does not change what a library does in its own ranges
    pieces = replace(pieces, row=scene.program_path[pieces.row])
    totals = np.bincount(pieces.row[is_long], pieces.length[is_long], len(scene.paths))
    # the range with most of the host code before each call
    ordered = np.flatnonzero(is_long)[np.argsort(pieces.length[is_long], kind="stable")]
    longest = np.full(len(calls), -1)
    longest[pieces.piece[ordered]] = pieces.row[ordered]
    for path in np.argsort(-totals, kind="stable")[:_MOST_PLACES]:
        in_range = is_long & (pieces.row == path)
        if not in_range.any():
            break
        yield from _move_host_code(scene, pieces, in_range, int(path))
        around = is_long & (longest[pieces.piece] == path)
        of_path = np.bincount(pieces.row[around], pieces.length[around], len(scene.paths))
        also = [row for row in np.argsort(-of_path, kind="stable").tolist() if row != path]
        also = [row for row in also if of_path[row] >= _LEAST_OF_HOST_CODE * of_path.sum()]
        if also and around.any():
            yield from _move_host_code(
                scene, pieces, around, int(path), also=tuple(str(scene.paths[row]) for row in also)
            )


def _between_parts(scene: Scene) -> Flags:
    """Return the calls from a launch of a CUDA graph of torch.compile to the next one, where functions break.

    PyTorch asks the driver some things before each launch. However short, the host code in between would not run if the
    function were one graph.
    """
    calls = scene.graph.calls
    broken = [
        each.process
        for each in obstacles(scene.timeline)
        if not each.skips_graphs and is_sole_function(scene.timeline, each)
    ]
    is_part = calls.named("GraphLaunch") & np.isin(calls.process, np.intersect1d(broken, uses_graphs(scene.timeline)))
    after_part, before_part = scene.around(is_part)
    return after_part & before_part


def _move_host_code(
    scene: Scene, pieces: HostCode, chosen: Flags, path: int, *, also: tuple[str, ...] = ()
) -> Iterator[Remedy]:
    """Move the chosen pieces of host code off their thread; nothing if none of them is simulated."""
    model, calls = scene.model, scene.graph.calls
    removed_ns: Floats = np.bincount(pieces.piece[chosen], pieces.length[chosen], len(calls)).astype(np.float64)
    left_ns = _left_by_workers(scene, removed_ns, receives=_LOADS_IN_PROCESS in str(scene.paths[path]))
    shorter_calls = np.flatnonzero(model.has(BEGIN) & (removed_ns > left_ns))
    if not len(shorter_calls):
        return
    removed_ns -= left_ns
    is_partial = left_ns[shorter_calls] > 0
    partial, whole = shorter_calls[is_partial], shorter_calls[~is_partial]
    edit = (
        Change(model.edges_of(BEGIN, whole), "shorter", removed_ns[whole]),
        # what is left is as much faster without the profiler as the rest
        Change(model.edges_of(BEGIN, partial), "scaled", 1 - removed_ns[partial] / scene.gap[partial]),
    )
    # other threads of the process may be idle meanwhile
    line = calls.line[shorter_calls]
    busiest = shorter_calls[line == np.bincount(line, removed_ns[shorter_calls]).argmax()]
    time = scene.per_step(removed_ns[busiest], busiest)
    rank = scene.dominant_rank(shorter_calls, removed_ns[shorter_calls])
    code = HostCode(*(column[chosen] for column in (pieces.piece, pieces.start, pieces.length, pieces.row)))
    path_name, share = str(scene.paths[path]), scene.share_of_steps(removed_ns[busiest], busiest)
    yield Remedy("host_code", path_name, rank, scene.cases(busiest), time, edit, code, also=also, in_steps=share)


def _left_by_workers(scene: Scene, moved_ns: Floats, *, receives: bool) -> Floats:
    """Return how much of the host code before each call is left if workers do it, in ns.

    Together they must be as fast as the rest of the steps without the profiler. receives: whether a process receives
    tensors from them.
    """
    moved, window, line = np.flatnonzero(moved_ns > 0), scene.timeline.window, scene.graph.calls.line
    total_ns, cost_ns = (
        np.bincount(line[rows], times[rows], line.max(initial=0) + 1)[line[moved]]
        for rows, times in ((moved, moved_ns), (scene.in_calls, scene.cost.by_call))
    )
    others_ns = window.length_ns / max(len(window.repetitions), 1) * scene.steps - total_ns - cost_ns
    left_ns = np.zeros(len(moved_ns))
    left_ns[moved] = moved_ns[moved] * np.maximum(1 / _WORKERS - np.maximum(others_ns, 0) / total_ns, 0.0)
    if receives:
        tensors = scene.in_calls[scene.direction[scene.in_calls] == TO_DEVICE]
        per_batch = min(len(tensors) / max(len(moved), 1), _MOST_TENSORS)
        left_ns = np.maximum(left_ns, max(per_batch, 1.0) * _RECEIVING_NS * (moved_ns > 0))
    return np.minimum(moved_ns, left_ns)


def interpreter(scene: Scene) -> Iterator[Remedy]:
    """Move the Python code of threads that launch nothing to another process, so that no launch waits for the GIL.

    Only one thread of a process runs Python at a time. Each sample represents the time to the next one. Threads that
    wait for a lock, a pipe or a socket are sampled too, but do not hold the GIL.
    """
    calls, window = scene.graph.calls, scene.timeline.window
    samples = scene.timeline.profile.recorded("python_samples")
    samples = samples[(samples["start_ns"] >= window.start_ns) & (samples["start_ns"] < window.end_ns)]
    running = _samples_of_running(samples[~samples["thread"].isin(calls.thread[scene.in_calls])])
    if len(running) < max(_GIL_SHARE * len(samples), 1):
        return
    lost_ns = np.zeros(len(calls))
    for process, rows in positions(running["process"].to_numpy()).items():
        of_process = scene.in_calls[calls.process[scene.in_calls] == process]
        times = np.sort(running["start_ns"].to_numpy()[rows])
        sample_ns = window.length_ns / max(int((samples["process"] == process).sum()), 1)
        count = np.searchsorted(times, calls.start[of_process]) - np.searchsorted(times, scene.gap_start[of_process])
        lost_ns[of_process] = np.minimum(count * sample_ns, scene.gap[of_process])
    delayed = np.flatnonzero((lost_ns > 0) & scene.model.has(BEGIN))
    by_path = np.bincount(scene.path[delayed], lost_ns[delayed], 1)
    if lost_ns.sum() < _LEAST_GIL_SHARE * window.length_ns or by_path.max() > _MOST_IN_ONE_PLACE * by_path.sum():
        return
    names = running["function"].astype("str").str.replace(LINE, "", regex=True)
    edit = (Change(scene.model.edges_of(BEGIN, delayed), "shorter", lost_ns[delayed]),)
    name = str(names.value_counts().idxmax())
    time = scene.per_step(lost_ns[delayed], delayed)
    yield Remedy("interpreter", "", name, scene.cases(delayed), time, edit)


def _samples_of_running(samples: pd.DataFrame) -> pd.DataFrame:
    """Return the samples of running threads: the stack differs from the previous or the next samples."""
    ordered = samples.sort_values(["thread", "start_ns"])
    columns = (ordered["thread"].to_numpy(), *(ordered[name].cat.codes.to_numpy() for name in ("function", "stack")))
    is_new = np.any([np.append(True, part[1:] != part[:-1])[: len(part)] for part in columns], axis=0)
    run = np.cumsum(is_new) - 1
    result: pd.DataFrame = ordered[np.bincount(run)[run] <= _MOST_EQUAL_SAMPLES]
    return result


def graph_launch(scene: Scene) -> Iterator[Remedy]:
    """Launch each step as one CUDA graph, or as several with waits between them.

    Of a loop whose only known period is a single launch, a graph holds many.
    """
    model, calls, work = scene.model, scene.graph.calls, scene.graph.work
    is_eager_jax = _is_eager_jax(scene)
    # host copies, waits and allocations stay outside of graphs. Without jax.jit, each operation copies its constants to
    # the GPU
    is_outside = _does_more_than_launch(scene) & ~(is_eager_jax & (scene.direction == TO_DEVICE))
    is_outside |= calls.named("GraphLaunch")
    is_outside |= _is_around_model(scene)
    plain = scene.in_calls[~is_outside[scene.in_calls]]
    plain = plain[scene.leads_to(plain)[plain]]
    inside = plain[is_launch_code(scene)[plain]]
    launches = inside[scene.launching[inside]]
    is_single = len(launches) < 2 * scene.steps
    if is_single and not scene.timeline.window.family.startswith(UNNAMED):
        return
    if len(launches) < _GRAPH_LAUNCHES // 2 or _changes_shape(scene, launches):
        return
    operations = np.flatnonzero(np.isin(work.call, launches) & model.has(LAUNCH))
    lag = scene.lag_between - work.hop_ns + _ON_GPU_NS
    first = (
        launches[np.argsort(calls.start[launches])][::_GRAPH_LAUNCHES] if is_single else scene.first_of_steps(launches)
    )
    starts = np.union1d(first, scene.first_after(launches, is_outside))
    launch_ns = _GRAPH_LAUNCH_NS * min(1.0, len(launches) / max(len(starts), 1) / _GRAPH_LAUNCHES)
    # JAX has loops of XLA instead, which launch each iteration
    is_xla_loop = is_single and framework_of(scene.timeline.profile) == JAX
    begun = inside[model.has(BEGIN)[inside]]
    host_ns = np.where(scene.launching[begun] & is_xla_loop, _XLA_LOOP_NS, 0)
    edit = (
        Change(model.edges_of(BEGIN, begun), "at most", host_ns),
        Change(model.edges_of(CALL, plain), "set", 0),
        Change(model.edges_of(LAUNCH, operations), "at most", lag[operations]),
        *_shorten_hops(scene, operations, _GRAPH_HOP_NS),
        Change(model.edges_of(BEGIN, starts), "shorter", -launch_ns),
    )
    time = scene.per_step((calls.end - calls.start)[inside] + scene.gap[inside], inside)
    main_range = scene.main_range(launches)
    rule = "not_jitted" if is_eager_jax else "launch_bound"
    yield Remedy(rule, scene.shared_path(launches), main_range, scene.cases(launches), time, edit)


def _is_around_model(scene: Scene) -> Flags:
    """Return which calls are made between the calls of the model, if these are the steps.

    Programs that generate text or serve requests call a model that a graph can hold; the code around it decides what to
    compute next, and so does not change.
    """
    calls, ranges = scene.graph.calls, nested_ranges(scene.timeline.profile)
    paths = general_paths(scene.timeline.profile).str.replace("##", "#")
    is_step = np.asarray(paths == scene.timeline.window.family)[ranges["path"].cat.codes]
    steps = ranges[is_step & (ranges["style"] == MODULE_CALL).to_numpy(dtype=bool)]
    around = np.zeros(len(calls), dtype=bool)
    for process, rows in positions(steps["process"].to_numpy()).items():
        start, end = union(*(steps[name].to_numpy()[rows] for name in ("start_ns", "end_ns")))
        of_process = np.flatnonzero(calls.process == process)
        place = np.searchsorted(start, calls.start[of_process], side="right") - 1
        around[of_process] = (place < 0) | (calls.start[of_process] >= end[place])
    return around


def _changes_shape(scene: Scene, launches: Ints) -> bool:
    """Whether most kernels of a step differ from the previous step in name or grid, so that no graph can repeat them.

    Without grids in the capture, only names count.
    """
    work, steps = scene.graph.work, scene.timeline.window.repetitions
    kernels = scene.timeline.profile.recorded("kernels")
    kernel_rows = np.flatnonzero(np.isin(work.call, launches) & (work.operation < len(kernels)))
    if not len(kernel_rows):
        return False
    # of the busiest process: all ranks run the same kernels, each in its order
    process, of_process = np.unique(scene.graph.calls.process[work.call[kernel_rows]], return_inverse=True)
    kernel_rows = kernel_rows[of_process == np.bincount(of_process, minlength=len(process)).argmax()]
    kernel_rows = kernel_rows[np.lexsort((work.start[kernel_rows], work.launch_ns[kernel_rows]))]
    shape = names_and_grids(kernels)[work.operation[kernel_rows]]
    edges = np.searchsorted(work.launch_ns[kernel_rows], steps)
    shapes = [shape[low:high] for low, high in itertools.pairwise(edges.tolist())]
    if len(shapes) < _FEWEST_SHAPES:
        return False
    return bool(np.median([_difference(*pair) for pair in itertools.pairwise(shapes)]) > _NEW_SHAPES)


def _difference(earlier: Ints, later: Ints) -> float:
    """Return the share of the kernels of two steps that are not in both, in any order."""
    distinct, codes = np.unique(np.concatenate([earlier, later]), return_inverse=True)
    counts = [np.bincount(part, minlength=len(distinct)) for part in (codes[: len(earlier)], codes[len(earlier) :])]
    return 1 - int(np.minimum(*counts).sum()) / max(len(earlier), len(later), 1)


def _does_more_than_launch(scene: Scene) -> Flags:
    """Return which calls do more than launch or query: wait, allocate, load, or copy from or to the host."""
    calls = scene.graph.calls
    is_cause: Flags = np.isin(calls.cause, [IDLE.index(cause) for cause in (SYNC, ALLOCATION, BLOCKING_COPY, MODULE)])
    return is_cause | (calls.waits_for >= 0) | (scene.direction >= 0)


def _most_launch_code_ns(scene: Scene) -> Ints:
    """Return the greatest length of host code that only launches, for each path of the scene."""
    launches = scene.in_calls[scene.launching[scene.in_calls]]
    is_busy = np.bincount(scene.path[launches], minlength=len(scene.paths)) >= _MANY_LAUNCHES * scene.steps
    if _is_eager_jax(scene):
        return np.full(len(scene.paths), _DISPATCH_OF_JAX_NS)
    return np.where(is_busy, np.where(scene.paths == OUTSIDE, _OUTSIDE_NS, _DISPATCH_NS), _BETWEEN_LAUNCHES_NS)


def _is_eager_jax(scene: Scene) -> bool:
    """Whether JAX runs operations one by one: XLA marks each program, and these have few launches.

    Without its marks, launches tell: one program of XLA launches one after the other in a few microseconds.
    """
    if framework_of(scene.timeline.profile) != JAX:
        return False
    launches = scene.in_calls[scene.launching[scene.in_calls]]
    ranges, window = scene.timeline.profile.recorded("ranges"), scene.timeline.window
    if not (ranges["domain"] == "TSL").any():
        distance_ns = np.diff(np.sort(scene.graph.calls.start[launches]))
        return len(distance_ns) > 0 and float(np.median(distance_ns)) > _BETWEEN_PROGRAMS_NS
    started = ranges[(ranges["start_ns"] >= window.start_ns) & (ranges["start_ns"] < window.end_ns)]
    marked = started["name"][started["domain"] == "TSL"]
    is_program = marked.astype("str").str.startswith("XlaModule:")
    return 0 < len(launches) < _EAGER_PROGRAM * int(is_program.sum())


def is_launch_code(scene: Scene) -> Flags:
    """Return the calls whose preceding host code only launches: it is short, or in a range with many launches."""
    pieces, most_ns = scene.host_code, _most_launch_code_ns(scene)
    is_longer = np.zeros(len(scene.gap), dtype=bool)
    is_longer[pieces.piece[scene.gap[pieces.piece] > most_ns[pieces.row]]] = True
    return ~is_longer


def waits(scene: Scene) -> Iterator[Remedy]:
    """Remove waits for the GPU, by range; a copy to the host and the wait for it are one."""
    model, calls, work = scene.model, scene.graph.calls, scene.graph.work
    calling = scene.in_calls[calls.waits_for[scene.in_calls] >= 0]
    calling = np.setdiff1d(calling, np.append(_waits_to_measure(scene), _before_idling(scene)))
    direction = scene.direction[calling]
    calling = calling[(direction == TO_HOST) | ((calls.cause[calling] == IDLE.index(SYNC)) & (direction < 0))]
    length, shortest_ns = calls.end - calls.start, unblocked_ns(calls)
    # a copy is still submitted, which takes as long as a launch; but a single value can be read in a few steps only
    shortest_ns = np.where(scene.launching, np.maximum(shortest_ns, scene.cost.recorded_ns), shortest_ns)
    copies, size, _ = _host_copies(scene)
    values = copies[(size <= _VALUE_BYTES) & np.isin(work.call[copies], calling)]
    shortest_ns[work.call[values]] = 0
    shortest_ns = np.minimum(shortest_ns, length)
    for code, rows in positions(scene.path[calling]).items():
        in_range = calling[rows]
        awaited = np.flatnonzero(np.isin(work.call, in_range) & model.has(STREAM))
        # a copy that does not block is queued like any other operation
        queued, read_rarely = np.setdiff1d(awaited, values), np.intersect1d(awaited, values)
        edit = (
            scene.without_waits(in_range),
            Change(model.edges_of(CALL, in_range), "at most", shortest_ns[in_range]),
            *_shorten_hops(scene, queued, HOP_NS),
            *shorten(scene, read_rarely, scene.length[read_rarely], with_latency=True),
        )
        place, time = str(scene.paths[code]), scene.per_step(length[in_range], in_range)
        function, share = scene.main_function(in_range), scene.share_of_steps(length[in_range], in_range)
        yield Remedy("wait", place, function, scene.cases(in_range), time, edit, in_steps=share)


def masks(scene: Scene) -> Iterator[Remedy]:
    """Compute all rows instead of those that a boolean mask selects: PyTorch counts these first, and waits for it.

    What remains of a selection is one kernel, which indexes. Values that are taken, and put after the next selection,
    are changed and written back: only the second kernel remains.
    """
    calls, work = scene.graph.calls, scene.graph.work
    names = scene.timeline.profile.recorded("kernels")["name"]
    kinds = np.select([are_named(names, pattern) for pattern in _MASKS], np.arange(len(_MASKS)), -1)
    launched = np.flatnonzero((work.call >= 0) & (work.operation < _kernel_count(scene)))
    kind = np.full(len(calls), -1)
    kind[work.call[launched]] = kinds[work.operation[launched]]
    if not (kind == _SELECT).any():
        return
    copies, size, _ = _host_copies(scene)
    counts = copies[(size <= _COUNT_BYTES) & (work.direction[copies] == TO_HOST)]
    kind[work.call[counts]] = _COUNT
    kind[(calls.cause == IDLE.index(SYNC)) & (kind < 0)] = _WAIT
    # in between, calls that launch nothing and wait for nothing do not count
    rows = scene.in_calls[(scene.launching | (kind == _WAIT))[scene.in_calls]]
    rows = rows[np.lexsort((calls.start[rows], calls.line[rows]))]
    row_kind, same_line = kind[rows], np.append(False, np.diff(calls.line[rows]) == 0)
    is_part = np.isin(row_kind, (_REDUCE, _SELECT, _COUNT, _WAIT))
    continues = same_line & np.append(False, is_part[:-1])
    continues &= (row_kind != _REDUCE) | np.append(False, row_kind[:-1] == _REDUCE)
    run = np.cumsum(is_part & ~continues) * is_part
    has_select, has_count = (np.bincount(run, row_kind == each) > 0 for each in (_SELECT, _COUNT))
    is_selection = has_select & has_count & (np.arange(run.max(initial=0) + 1) > 0)
    if not is_selection.any():
        return
    # the kernel after each selection: values that are only taken to be written back later
    selects = is_selection[run]
    after = np.flatnonzero(same_line & np.append(False, selects[:-1]) & ~selects)
    after_kind = row_kind[after]
    is_taken = (after_kind == _TAKE) & np.append(after_kind[1:] == _PUT, False)
    removed = np.append(rows[selects], rows[after[is_taken]])
    edit = _without_work(scene, removed)
    times, selections = (calls.end - calls.start)[removed] + scene.gap[removed], rows[after]
    time, share = scene.per_step(times, removed), scene.share_of_steps(times, removed)
    yield Remedy("masks", scene.shared_path(selections), "", scene.cases(selections), time, edit, in_steps=share)


def default_stream(scene: Scene) -> Iterator[Remedy]:
    """Give each thread that launches on the default stream its own stream; waits for it then wait only for own work."""
    if (shared := shared_default_stream(scene)) is None:
        return
    model, work, calls = scene.model, scene.graph.work, scene.graph.calls
    own = shared.operations[work.own_previous[shared.operations] >= 0]
    own = own[model.has(STREAM_OWN)[own]]
    waits, own_waits = (model.edges[kind][shared.waiting] for kind in (AWAIT, AWAIT_OWN))
    edit = (
        Change(model.edges_of(STREAM, shared.operations), "earlier", shared.earlier_ns),
        # what led around a copy of another thread led to work of a third
        Change(model.edges_of(BYPASS, shared.operations), "set", NEVER),
        Change(model.edges_of(STREAM_OWN, own), "set", scene.lag_between[own]),
        Change(own_waits, "set", model.lag[waits]),
        Change(waits, "set", NEVER),
    )
    calling = work.call[shared.operations]
    count = len(np.unique(calls.thread[calling]))
    time = scene.per_step(shared.earlier_ns, calling)
    path, cases = scene.shared_path(calling), scene.cases(calling)
    yield Remedy("default_stream", path, counted(count, "thread"), cases, time, edit)


def allocation(scene: Scene) -> Iterator[Remedy]:
    """Remove allocations and frees."""
    yield from _remove_calls(scene, "allocation", scene.graph.calls.cause == IDLE.index(ALLOCATION))


def loading(scene: Scene) -> Iterator[Remedy]:
    """Remove the loading and compilation of kernels, with the host code that compiles, unless they are temporary."""
    is_loading, is_compiling = _loads(scene)
    lasts = ~_temporary_loads(scene)
    if (is_compiling & lasts).any():
        tuning = np.union1d(_tuning_runs(scene), _xla_tuning_runs(scene))
        more = (
            *_without_work(scene, tuning),
            *_without_waiting_for_compiler(scene, np.union1d(np.flatnonzero(is_compiling & lasts), tuning)),
            *_as_without_compiler(scene, is_loading, is_compiling & lasts, tuning),
        )
        for remedy in _remove_calls(scene, "compilation", is_loading & lasts, with_gap=is_compiling & lasts):
            yield replace(remedy, edit=(*remedy.edit, *more))
    else:
        loads = scene.in_calls[(is_loading & lasts)[scene.in_calls]]
        # what is unloaded, too, is made again and again
        is_made_anew = scene.graph.calls.named(_UNLOADS)[loads].any()
        for remedy in _remove_calls(scene, "loading", is_loading & lasts):
            if is_made_anew:
                edit = (*remedy.edit, *_without_set_up(scene, loads))
                yield replace(remedy, edit=edit, kernels=_next_kernels(scene, loads))
            else:
                yield remedy


def _without_waiting_for_compiler(scene: Scene, compiling: Ints) -> Edit:
    """Return the edit after which the other threads of a process do not wait while one compiles.

    Threads of XLA copy what a program needs. compiling: the calls that end with the compilation.
    """
    calls, changes = scene.graph.calls, []
    compiling = compiling[np.isin(compiling, scene.in_calls)]
    others = np.setdiff1d(scene.in_calls[scene.gap[scene.in_calls] > _COMPILING_NS], compiling)
    for process, of_process in positions(calls.process[compiling]).items():
        rows = compiling[of_process]
        spans = union(scene.gap_start[rows], calls.end[rows])
        waiting = others[(calls.process[others] == process) & ~np.isin(calls.line[others], calls.line[rows])]
        shared_ns = covered(spans, scene.gap_start[waiting], calls.start[waiting])
        changes.append(Change(scene.model.edges_of(BEGIN, waiting), "shorter", shared_ns))
    return tuple(changes)


def _as_without_compiler(scene: Scene, is_loading: Flags, is_compiling: Flags, tuning: Ints) -> Edit:
    """Return the edit after which the other host code of steps that compile takes as long as in steps that do not.

    What is compiled is slower in its first run, and compilers also run in short pieces of host code. Nothing changes
    unless some steps compile nothing, or in steps that launch much more than these, since they do other work.
    """
    calls, rows = scene.graph.calls, scene.in_calls
    process_step, step = np.unique(np.stack([calls.process[rows], scene.step_of(rows)]), axis=1, return_inverse=True)
    step, count = step.reshape(-1), process_step.shape[1]
    compiles = np.bincount(step, is_compiling[rows], count) > 0
    is_run = ~np.isin(rows, tuning)
    launches = np.bincount(step, scene.launching[rows] & is_run, count)
    is_other = is_run & ~is_compiling[rows] & (calls.cause[rows] != IDLE.index(SYNC))
    length = np.where(is_loading[rows], 0, unblocked_ns(calls)[rows])
    other_ns = np.bincount(step, is_other * (scene.gap[rows] + length), count)
    # what comes before the first step is not one
    clean = ~compiles & (process_step[1] > 0) & (launches > 0)
    if clean.sum() < _FEWEST_CLEAN_STEPS:
        return ()
    share = np.minimum(other_ns[clean].mean() / np.maximum(other_ns, 1), 1)
    is_slower = compiles & (share < 1) & (launches <= _SIMILAR * launches[clean].mean())
    slower = np.flatnonzero((is_other & is_slower[step]) & (scene.model.edges[BEGIN][rows] >= 0))
    chosen, share = rows[slower], share[step[slower]]
    return (
        Change(scene.model.edges_of(BEGIN, chosen), "at most", np.rint(share * scene.gap[chosen]).astype(np.int64)),
        Change(scene.model.edges_of(CALL, chosen), "at most", np.rint(share * length[slower]).astype(np.int64)),
    )


def _tuning_runs(scene: Scene) -> Ints:
    """Return the calls with which Triton times a kernel in several ways; they end with its compilation.

    Before each run it fills a buffer of integers that is larger than the L2 cache, it records events around the run,
    and after the last one it waits for them (`triton.testing.do_bench`).
    """
    calls, work = scene.graph.calls, scene.graph.work
    names = scene.timeline.profile.recorded("kernels")["name"]
    launched = np.flatnonzero((work.call >= 0) & (work.operation < _kernel_count(scene)))
    is_fill = np.zeros(len(calls), dtype=bool)
    is_fill[work.call[launched]] = are_named(names, _FILL)[work.operation[launched]]
    rows = scene.in_calls[np.lexsort((calls.start[scene.in_calls], calls.line[scene.in_calls]))]
    fills, line = np.flatnonzero(is_fill[rows]), calls.line[rows]
    if len(fills) < _LEAST_TUNING_RUNS:
        return rows[:0]
    launches, records, waits = (
        np.flatnonzero(flags[rows])
        for flags in (scene.launching, calls.named(_RECORDS), calls.cause == IDLE.index(SYNC))
    )
    between = np.diff(np.searchsorted(launches, fills)) - 1
    continues = (between <= _TUNED_LAUNCHES) & (np.diff(line[fills]) == 0)
    first = np.flatnonzero(np.append(True, ~continues))
    last = np.append(first[1:], len(fills)) - 1
    begin, end = fills[first], fills[last]
    # each run is between two events
    recorded = np.searchsorted(records, end) - np.searchsorted(records, begin)
    is_tuning = (last - first + 1 >= _LEAST_TUNING_RUNS) & (recorded >= last - first)
    begin, end = begin[is_tuning], end[is_tuning]
    # the times of the events are read after the wait, before anything else is launched
    after = np.searchsorted(line, line[end], side="right")
    wait = np.minimum(np.append(waits, len(rows))[np.searchsorted(waits, end)], after)
    until = np.minimum(np.append(launches, len(rows))[np.searchsorted(launches, wait)], after)
    launched_after = np.searchsorted(launches, wait) - np.searchsorted(launches, end, side="right")
    # a wait that comes later belongs to the program, and so does what it launches before
    until = np.where((wait < after) & (launched_after <= _TUNED_LAUNCHES), until, end + 1)
    inside = np.cumsum(np.bincount(begin, minlength=len(rows) + 1) - np.bincount(until, minlength=len(rows) + 1)) > 0
    return np.asarray(rows[inside[:-1]])


def _xla_tuning_runs(scene: Scene) -> Ints:
    """Return the calls with which threads of XLA's compiler time kernels; they end with its compilation."""
    calls, rows = scene.graph.calls, scene.in_calls
    return np.asarray(rows[is_xla_tuning(scene.timeline.profile, calls.thread[rows], calls.start[rows])])


def _without_work(scene: Scene, calling: Ints) -> Edit:
    """Return the edit that removes calls, the host code that prepares them, what they wait for and what they launch."""
    operations = np.flatnonzero(np.isin(scene.graph.work.call, calling) & scene.model.has(LAUNCH))
    return (
        scene.without_waits(calling),
        *_without_launches(scene, calling),
        *shorten(scene, operations, scene.length[operations], with_latency=True),
    )


def _without_set_up(scene: Scene, loads: Ints) -> Edit:
    """Return the edit that removes what is created and destroyed with modules that come and go: plans, handles.

    It is between the same launches as a load: queries, memory, small copies of tables to the GPU, and the host code of
    the library in between. Waits and results that are read belong to the program.
    """
    calls, work = scene.graph.calls, scene.graph.work
    around = scene.between_launches(loads)
    copies, size, _ = _host_copies(scene)
    tables = copies[(size < _SMALL_BYTES) & (work.direction[copies] == TO_DEVICE) & np.isin(work.call[copies], around)]
    is_other = (calls.cause == IDLE.index(SYNC)) | (scene.direction >= 0) | scene.launching
    is_other[work.call[tables]] = False
    removed = around[~is_other[around]]
    # the launch after them is prepared like others
    launches = scene.in_calls[scene.computes[scene.in_calls]]
    is_after = np.isin(scene.previous(launches), removed)
    usual_ns = int(np.median(scene.gap[launches[~is_after]])) if not is_after.all() else 0
    after = launches[is_after & (scene.gap[launches] <= _BETWEEN_LAUNCHES_NS)]
    return (
        Change(scene.model.edges_of(BEGIN, after), "at most", usual_ns),
        scene.without_waits(removed),
        Change(scene.model.edges_of(CALL, removed), "set", 0),
        Change(scene.model.edges_of(BEGIN, removed[scene.gap[removed] <= _BETWEEN_LAUNCHES_NS]), "at most", 0),
        *shorten(scene, tables, scene.length[tables], with_latency=True),
    )


@memoize
def temporary_costs(scene: Scene) -> Edit:
    """Return the edit that removes temporary costs: loads that become rarer, and waits for measurements."""
    (is_loading, is_compiling), is_temporary = _loads(scene), _temporary_loads(scene)
    removed = _remove_calls(scene, "loading", is_loading & is_temporary, with_gap=is_compiling & is_temporary)
    loads = tuple(change for remedy in removed for change in remedy.edit)
    calls, waiting = scene.graph.calls, _waits_to_measure(scene)
    shortest_ns = np.minimum(unblocked_ns(calls), calls.end - calls.start)[waiting]
    waits = (scene.without_waits(waiting), Change(scene.model.edges_of(CALL, waiting), "at most", shortest_ns))
    return (*loads, *waits) if len(waiting) else loads


@memoize
def _waits_to_measure(scene: Scene) -> Ints:
    """Return the calls in which DistributedDataParallel waits for events of the previous step, to measure their times.

    It does so in the first ten steps, which may be all of a short recording, and then in every hundredth step.
    """
    calls = scene.graph.calls
    is_wait = np.asarray(calls.names == "cudaEventSynchronize")[calls.name]
    is_inside = np.array([str(path).endswith(_MEASURED_CALL) for path in scene.paths])[scene.path]
    return np.asarray(scene.in_calls[(is_wait & is_inside)[scene.in_calls]])


@memoize
def _loads(scene: Scene) -> tuple[Flags, Flags]:
    """Return the calls that load kernels, and those with host code before them that compiles."""
    calls = scene.graph.calls
    is_loading = (calls.cause == IDLE.index(MODULE)) | loads_code(scene.timeline, scene.graph)
    # libraries load their kernels in other ways, and wait for the disk
    pattern = _LOADS_IN_STEPS if scene.model.steps else _LOADS_COMPILED
    is_compiling = is_loading & calls.named(pattern) & (scene.gap > _COMPILING_NS)
    after_gap = scene.in_calls[scene.gap[scene.in_calls] > _COMPILING_NS]
    tuning = _xla_tuning_runs(scene)
    is_compiling[tuning[scene.gap[tuning] > _COMPILING_NS]] = True
    until_loaded = _until_loaded(scene, is_loading & calls.named(_LOADS_COMPILED))
    is_loading, is_compiling = is_loading | until_loaded, is_compiling | _compiles_by_stack(scene) | until_loaded
    in_compiler, after_compiler = _in_compiler(scene, compiling(scene.timeline))
    is_loading, is_compiling = is_loading | in_compiler, is_compiling | after_compiler
    set_up = _operators_set_up(scene.timeline)
    for thread, rows in positions(set_up["thread"].to_numpy()).items():
        spans = union(*(set_up[name].to_numpy()[rows] for name in ("start_ns", "end_ns")))
        of_thread = after_gap[calls.thread[after_gap] == thread]
        inside = covered(spans, scene.gap_start[of_thread], calls.start[of_thread])
        is_compiling[of_thread[inside > _MOSTLY * scene.gap[of_thread]]] = True
    return is_loading, is_compiling


def _until_loaded(scene: Scene, is_loading: Flags) -> Flags:
    """Return the calls from long host code to the last load of code, if the thread launches and waits for nothing.

    XLA releases the CUDA graph of the program before, selects the context, and loads a module for each kernel.
    """
    calls = scene.graph.calls
    rows = scene.in_calls[np.lexsort((calls.start[scene.in_calls], calls.line[scene.in_calls]))]
    is_work = scene.launching | (scene.direction >= 0) | (calls.cause == IDLE.index(SYNC))
    # what a thread does between two pieces of work
    part = np.cumsum(is_work[rows] | np.append(True, np.diff(calls.line[rows]) > 0))
    loads, is_long = is_loading[rows], scene.gap[rows] > _COMPILING_NS
    first_long, last_load = np.full(part.max(initial=0) + 1, len(rows)), np.full(part.max(initial=0) + 1, -1)
    np.minimum.at(first_long, part[is_long], np.flatnonzero(is_long))
    np.maximum.at(last_load, part[loads], np.flatnonzero(loads))
    place = np.arange(len(rows))
    until = np.zeros(len(calls), dtype=bool)
    until[rows] = ~is_work[rows] & (place >= first_long[part]) & (place <= last_load[part])
    return until


def _in_compiler(scene: Scene, working: Mapping[int, Spans]) -> tuple[Flags, Flags]:
    """Return the calls that are mostly in the time in which torch.compile works, and those after host code that is.

    Another thread can compile meanwhile: not if samples of Python's stack show other code.
    """
    calls = scene.graph.calls
    inside, after = np.zeros(len(calls), dtype=bool), np.zeros(len(calls), dtype=bool)
    for process, spans in working.items():
        of_process = scene.in_calls[calls.process[scene.in_calls] == process]
        before, start, end = (times[of_process] for times in (scene.gap_start, calls.start, calls.end))
        inside[of_process] = covered(spans, start, end) > _MOSTLY * (end - start)
        after[of_process] = covered(spans, before, start) > _MOSTLY * (start - before)
    after_gap = np.flatnonzero(after)
    compiler_samples, samples = _samples_before(scene, after_gap, _COMPILER)
    after[after_gap[(samples > 0) & (compiler_samples <= _MOSTLY * samples)]] = False
    return inside, after


@memoize
def _compiles_by_stack(scene: Scene) -> Flags:
    """Return the calls after host code whose stacks are mostly in a compiler.

    Host code without a sample, which is rare, is like that before the other calls of this function in its place.
    """
    calls = scene.graph.calls
    compiles = np.zeros(len(calls), dtype=bool)
    after_gap = scene.in_calls[scene.gap[scene.in_calls] > _COMPILING_NS]
    compiler_samples, samples = _samples_before(scene, after_gap, _COMPILER)
    function_in_place = scene.path[after_gap] * (len(calls.names) + 1) + calls.name[after_gap]
    counts = pd.DataFrame({"compiler": compiler_samples, "all": samples})
    sums = counts.groupby(function_in_place).transform("sum")
    compiler_samples, samples = np.where(samples > 0, counts.T, sums.T)
    compiles[after_gap[compiler_samples > _MOSTLY * samples]] = True
    return compiles


@of_capture
def _operators_set_up(timeline: Timeline) -> pd.DataFrame:
    """Return the rows of `cpu_ops` that are slow the first time with their shapes, if these are fast afterwards.

    In such a call, cuDNN builds a plan or compiles a kernel, which torch.profiler does not record.
    """
    operators, shape = timeline.profile.recorded("cpu_ops"), ["process", "name", "shapes"]
    is_long = (operators["end_ns"] - operators["start_ns"] > _COMPILING_NS).to_numpy()
    if not is_long.any():
        return operators[:0]
    key = operators.groupby(shape, observed=True, sort=False).ngroup().to_numpy()
    calls = operators[np.isin(key, key[is_long]) & (operators["shapes"] != "").to_numpy()].sort_values("start_ns")
    calls = calls.assign(length=calls["end_ns"] - calls["start_ns"])
    by_shape = calls.groupby(shape, observed=True)
    is_slow = (by_shape.cumcount() == 0) & (calls["length"] > _COMPILING_NS)
    is_slow &= _SET_UP * by_shape["length"].transform("median") < calls["length"]
    return calls[is_slow]


@memoize
def _temporary_loads(scene: Scene) -> Flags:
    """Return the temporary loads and compilations, which end once every shape has been seen.

    Loads become rare in the steps of the capture. Or they, or slow first calls of operators, are for new shapes in some
    steps, and get fewer, or there are too few steps to tell. Host code in a compiler may go on, and so may what a
    process does in most steps.
    """
    calls, (is_loading, is_compiling) = scene.graph.calls, _loads(scene)
    again = np.logical_or(*_in_compiler(scene, compiling_again(scene.timeline)))
    first = np.logical_or(*_in_compiler(scene, compiling(scene.timeline))) & ~again
    # what torch.compile does for the first time ends, although its stacks are those of a compiler
    can_end = (is_loading | is_compiling) & (~_compiles_by_stack(scene) | first) & ~again
    if not scene.model.steps or not can_end[scene.in_calls].any():
        return np.zeros(len(calls), dtype=bool)
    early, late, often = _steps_with_loads(scene.timeline)
    can_end &= ~np.isin(calls.process, often)
    loops = loops_of(scene.timeline.profile)
    is_unknown = all(len(loop.starts) - loop.slow < _FEWEST_TO_FADE for loop in loops)
    is_rarer = early - late - 1 > _BY_CHANCE * math.sqrt(early + late)
    ends = is_rarer and late < _FADED_SHARE * early
    ends = ends or ((is_unknown or is_rarer) and _load_for_new_shapes(scene, can_end))
    return can_end if ends else np.zeros_like(can_end)


def workers(scene: Scene) -> Iterator[Remedy]:
    """Keep the worker processes of a DataLoader: remove their start and end, and the wait for their first batch."""
    if len(restarts := _worker_starts(scene)):
        edit = (Change(scene.model.edges_of(BEGIN, restarts), "at most", 0),)
        gap, path, cases = scene.gap[restarts], scene.shared_path(restarts), scene.cases(restarts)
        time, share = scene.per_step(gap, restarts), scene.share_of_steps(gap, restarts)
        yield Remedy("restarted_workers", path, "", cases, time, edit, in_steps=share)


def _worker_starts(scene: Scene) -> Ints:
    """Return the calls before which workers of a DataLoader start or end; none if that happens once, at the start."""
    after_gap = scene.in_calls[scene.gap[scene.in_calls] > _COMPILING_NS]
    start_samples, _ = _samples_before(scene, after_gap, _STARTS_WORKERS)
    loader_samples, samples = _samples_before(scene, after_gap, _LOADS_DATA)
    restarts = after_gap[(start_samples > 0) & (loader_samples > _MOSTLY * samples)]
    return restarts if len(restarts) >= _FEWEST_STARTS else restarts[:0]


@memoize
def request_waits(scene: Scene) -> Ints:
    """Return the calls before which the thread waits for requests: a server without load is idle, not slow."""
    after_gap = scene.in_calls[scene.gap[scene.in_calls] > _COMPILING_NS]
    waiting_samples, samples = _samples_before(scene, after_gap, _WAITS_FOR_REQUESTS)
    return after_gap[(waiting_samples > _MOSTLY * samples) | _is_without_requests(scene, after_gap)]


@memoize
def _after_idling(scene: Scene) -> Ints:
    """Return the calls before which the thread waits for requests, or may do so."""
    # of the whole window: a stretch has too few cases
    is_irregular = np.isin(scene.graph.calls.row[scene.in_calls], irregular_calls(scene.timeline.origin))
    return np.union1d(request_waits(scene), scene.in_calls[is_irregular])


def _before_idling(scene: Scene) -> Ints:
    """Return the calls after the last kernel before a thread waits for requests: these do not come earlier."""
    calls, work = scene.graph.calls, scene.graph.work
    computes = np.zeros(len(calls) + 1, dtype=bool)
    computes[work.call[(work.call >= 0) & (work.operation < _kernel_count(scene))]] = True
    # the last entry is for the first calls, which follow none
    computes[-1] = True
    parts, calling = [], _after_idling(scene)
    while len(calling):
        calling = distinct(calls.before[calling])
        calling = calling[~computes[calling]]
        parts.append(calling)
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _is_without_requests(scene: Scene, calling: Ints) -> Flags:
    """Return before which of these calls an engine has no request: its next step is the first one of new requests.

    What happens in ranges that begin meanwhile, such as tokenization, is work and no waiting.
    """
    calls, steps = scene.graph.calls, engine_steps(scene.timeline.profile)
    is_waiting = np.zeros(len(calling), dtype=bool)
    of_thread = positions(steps["thread"].to_numpy())
    for thread, rows in positions(calls.thread[calling]).items():
        own = steps.iloc[of_thread.get(thread, rows[:0])]
        following = np.searchsorted(own["start_ns"].to_numpy(), scene.gap_start[calling[rows]], side="right")
        is_first, ended = np.append(own["is_first"], False), np.append(0, own["end_ns"])
        is_waiting[rows] = is_first[following] & (calls.start[calling[rows]] > ended[following])
    pieces = scene.host_code
    inside = np.flatnonzero(np.isin(pieces.piece, calling[is_waiting]))
    paths = scene.paths
    around = [
        path == OUTSIDE or str(of_call).startswith(f"{path} / ")
        for path, of_call in zip(paths[pieces.row[inside]], paths[scene.path[pieces.piece[inside]]], strict=True)
    ]
    idle_ns = np.bincount(pieces.piece[inside], pieces.length[inside] * around, len(calls))
    return is_waiting & (idle_ns[calling] > _MOSTLY * scene.gap[calling])


def _samples_before(scene: Scene, calling: Ints, stack: str) -> tuple[Ints, Ints]:
    """Return the Python stack samples in the host code before each call: the number that match, and of all."""
    calls, match_count, sample_count = scene.graph.calls, np.zeros_like(calling), np.zeros_like(calling)
    samples = scene.timeline.profile.recorded("python_samples")
    if not len(samples):
        return match_count, sample_count
    is_match = are_named(samples["stack"], stack)
    rows = positions(samples["thread"].to_numpy())
    for thread, on_thread in positions(calls.thread[calling]).items():
        of_thread = rows.get(thread, on_thread[:0])
        times = samples["start_ns"].to_numpy()[of_thread]
        order = np.argsort(times, kind="stable")
        count = np.append(0, np.cumsum(is_match[of_thread][order]))
        low, high = (np.searchsorted(times[order], edge[calling[on_thread]]) for edge in (scene.gap_start, calls.start))
        match_count[on_thread], sample_count[on_thread] = count[high] - count[low], high - low
    return match_count, sample_count


@of_capture
def _steps_with_loads(timeline: Timeline) -> tuple[int, int, list[int]]:
    """Return the steps with loads, set-up of operators or compilations in the first and second half, of all ranks.

    A stretch may have too few. Third: the processes that load in most steps of the second half. With fewer than
    _FEWEST_TO_FADE steps, there are none of these, and no steps. Of engines, only steps with prompts count: at the end
    of a recording, they become rare, and so do loads for their lengths.
    """
    engines = engine_steps(timeline.profile)
    engines = engines[engines["kind"] != KINDS.index(DECODE)]
    table = timeline.profile.recorded("api_calls")
    calls = table[are_named(table["name"], _LOADS_IN_STEPS)]
    parts = (calls, _operators_set_up(timeline), worked(timeline))
    loads = pd.concat([part[["process", "start_ns"]] for part in parts])
    early, late, often = 0, 0, []
    for loop in loops_of(timeline.profile):
        starts = loop.starts[loop.slow :]
        times = loads["start_ns"].to_numpy()[loads["process"].to_numpy() == loop.process]
        if len(starts) >= _FEWEST_TO_FADE:
            steps = np.unique(np.searchsorted(starts, times[times < loop.end_ns], side="right"))
            count, prompts = len(starts), engines["start_ns"].to_numpy()[engines["process"] == loop.process]
            of_prompts = np.unique(np.searchsorted(starts, prompts, side="right"))
            if len(of_prompts) >= _FEWEST_TO_FADE:
                count = len(of_prompts)
                steps = 1 + np.flatnonzero(np.isin(of_prompts, steps))
            middle = count // 2
            of_half = int((steps > middle).sum())
            often += [loop.process] if of_half > (count - middle) / 2 else []
            late += of_half
            early += int(((steps > 0) & (steps <= middle)).sum())
    return early, late, often


def _load_for_new_shapes(scene: Scene, is_loading: Flags) -> bool:
    """Whether these calls are in at most half of all steps, and nearly all are in steps with new shapes.

    A step with a new length needs kernels for it: cuDNN compiles some, libraries load others. Eventually, every length
    has been seen. Code that is compiled again in each step, or for ever new lengths, is compiled in most steps.
    """
    calls, work, window = scene.graph.calls, scene.graph.work, scene.timeline.window
    new = work.call[_is_new_shape(scene.timeline)[work.operation] & (work.call >= 0)]
    loading, length = scene.in_calls[is_loading[scene.in_calls]], calls.end - calls.start + scene.gap
    loading_steps, new_ns = 0, 0
    for process, starts in window.steps.items():
        of_process = loading[calls.process[loading] == process]
        step = np.searchsorted(starts, calls.start[of_process])
        new_steps = np.searchsorted(starts, calls.start[new[calls.process[new] == process]])
        loading_steps += len(np.unique(step))
        new_ns += int(length[of_process[np.isin(step, new_steps)]].sum())
    is_rare = loading_steps <= sum(map(len, window.steps.values())) / 2
    return is_rare and new_ns > _NEARLY_ALL_LOADS * length[loading].sum()


@of_capture
def _is_new_shape(timeline: Timeline) -> Flags:
    """Return which operations are the first run of their kernel with its grid by their process in the capture."""
    return first_runs(timeline, names_and_grids(timeline.profile.recorded("kernels")))


def _remove_calls(scene: Scene, rule: str, is_removed: Flags, with_gap: Flags | None = None) -> Iterator[Remedy]:
    """Yield the remedy that removes calls, and the host code before those `with_gap`; launches stay, but are short."""
    model, calls = scene.model, scene.graph.calls
    removed = scene.in_calls[is_removed[scene.in_calls]]
    after_gap = scene.in_calls[with_gap[scene.in_calls]] if with_gap is not None else removed[:0]
    if not len(removed) and not len(after_gap):
        return
    length = calls.end - calls.start
    left_ns = np.where(scene.launching, unblocked_ns(calls), 0)[removed]
    edit = (
        scene.without_waits(removed),
        Change(model.edges_of(CALL, removed), "at most", left_ns),
        Change(model.edges_of(BEGIN, after_gap), "at most", 0),
    )
    affected, times = np.append(removed, after_gap), np.append(length[removed], scene.gap[after_gap])
    time, share = scene.per_step(times, affected), scene.share_of_steps(times, affected)
    path, function = scene.shared_path(affected), scene.main_function(affected)
    compiled = _next_kernels(scene, after_gap)
    cases = scene.cases(np.unique(affected))
    yield Remedy(rule, path, function, cases, time, edit, kernels=compiled, in_steps=share)


def _next_kernels(scene: Scene, calling: Ints) -> tuple[str, ...]:
    """Return the kernels that the threads of these calls launch next, those of most calls first."""
    calls, work = scene.graph.calls, scene.graph.work
    launched = np.flatnonzero((work.call >= 0) & (work.operation < _kernel_count(scene)))
    # the first operation of each call
    call, first = np.unique(work.call[launched], return_index=True)
    position = np.searchsorted(call, calling)
    has_next = position < len(call)
    has_next[has_next] = calls.thread[call[position[has_next]]] == calls.thread[calling[has_next]]
    operations = work.operation[launched[first[position[has_next]]]]
    names = scene.timeline.profile.recorded("kernels")["name"].iloc[operations]
    return tuple(names.astype("str").value_counts().index[:_MOST_KERNELS])


# -- copies -----------------------------------------------------------------------------------------------------------


def large_copies(scene: Scene) -> Iterator[Remedy]:
    """Pin the memory of copies between host and device and use a separate stream, by direction and memory kind."""
    work = scene.graph.work
    copies, size, pageable = _host_copies(scene)
    is_large = size >= _SMALL_BYTES
    rate, is_jax = link_rate(scene.timeline), framework_of(scene.timeline.profile) == JAX
    for code, rows in positions((work.direction[copies] * 2 + pageable)[is_large]).items():
        chosen = copies[is_large][rows]
        new_ns = np.minimum(size[is_large][rows] / rate, scene.length[chosen])
        direction, is_pageable = divmod(code, 2)
        rule = "copies_to_host" if direction == TO_HOST else "pageable_copy" if is_pageable else "exposed_copy"
        calling = work.call[chosen]
        path, time = scene.shared_path(calling), scene.per_step(scene.length[chosen], calling)
        # JAX copies from a separate buffer anyway
        change = _pin if rule == "pageable_copy" and not is_jax else _move_off_stream
        edit, share = change(scene, chosen, new_ns), scene.share_of_steps(scene.length[chosen], calling)
        remedy = Remedy(rule, path, _DIRECTION_NAMES[direction], scene.cases(calling), time, edit, in_steps=share)
        yield remedy
        if change is _pin:
            # what to do next: the call of a copy from pageable memory waits for it on any stream
            yield replace(remedy, rule="exposed_copy", edit=_on_separate_stream(scene, chosen, new_ns))


@memoize
def _host_copies(scene: Scene) -> tuple[Ints, Floats, Flags]:
    """Return the replayed copies between host and device, their bytes, and whether the host memory is pageable."""
    table, work = scene.timeline.profile.recorded("memory_ops"), scene.graph.work
    copies = np.flatnonzero((work.direction >= 0) & (work.call >= 0) & scene.model.has(LAUNCH))
    rows = table.iloc[work.operation[copies] - _kernel_count(scene)]
    is_pageable = (rows["source_kind"] == "Pageable") | (rows["target_kind"] == "Pageable")
    return copies, rows["bytes"].to_numpy(dtype=np.float64, na_value=0.0), is_pageable.to_numpy()


def peer_copies(scene: Scene) -> Iterator[Remedy]:
    """Use a separate stream for copies between GPUs; what waits for them by an event or a call still does."""
    model, work = scene.model, scene.graph.work
    size = scene.timeline.profile.recorded("memory_ops")["bytes"]
    copies = np.flatnonzero(work.is_peer_copy & (work.call >= 0) & model.has(LAUNCH))
    rows = work.operation[copies] - _kernel_count(scene)
    copies = copies[size.to_numpy(dtype=np.float64, na_value=0.0)[rows] >= _SMALL_BYTES]
    if not len(copies):
        return
    end_events, calling = model.target[model.edges[LAUNCH][copies]], work.call[copies]
    leaving_edges = np.flatnonzero(np.isin(model.source, end_events) & (model.kind == STREAM))
    edit, time = _detach(scene, leaving_edges, copies), scene.per_step(scene.length[copies], calling)
    yield Remedy("peer_copy", scene.shared_path(calling), "Peer-to-Peer", scene.cases(calling), time, edit)


def _pin(scene: Scene, copies: Ints, new_ns: Floats) -> Edit:
    """Return the edit after which copies take as long as from pinned memory, and no call waits for them."""
    return (
        *shorten(scene, copies, scene.length[copies] - new_ns),
        scene.without_waits(np.flatnonzero(np.isin(scene.graph.calls.waits_for, copies))),
        Change(scene.model.edges_of(CALL, np.unique(scene.graph.work.call[copies])), "at most", scene.cost.recorded_ns),
    )


def _move_off_stream(scene: Scene, copies: Ints, new_ns: Floats) -> Edit:
    """Return the edit that moves copies to a separate stream, with new lengths and without waits for them."""
    model, calls, work = scene.model, scene.graph.calls, scene.graph.work
    calling = np.unique(work.call[copies])
    reduction: Floats = scene.length[copies] - new_ns + np.maximum(work.latency_ns[copies] - scene.cost.recorded_ns, 0)
    return (
        *_on_separate_stream(scene, copies, new_ns),
        Change(model.edges_of(LAUNCH, copies), "shorter", reduction),
        scene.without_waits(np.flatnonzero(np.isin(calls.waits_for, copies))),
        Change(model.edges_of(CALL, calling), "at most", scene.cost.recorded_ns),
    )


def _on_separate_stream(scene: Scene, copies: Ints, new_ns: Floats) -> Edit:
    """Return the edit that moves copies to a separate stream, where they stay in order and have these lengths."""
    model, work = scene.model, scene.graph.work
    end_events = model.target[model.edges[LAUNCH][copies]]
    leaving_edges = np.flatnonzero(np.isin(model.source, end_events) & np.isin(model.kind, (STREAM, OTHER)))
    on_engine = copies[model.edges[ENGINE][copies] >= 0]
    engine_ns = new_ns[model.edges[ENGINE][copies] >= 0] + work.hop_ns[on_engine]
    return (
        *_detach(scene, leaving_edges, copies),
        *(Change(model.edges_of(kind, copies), "set", NEVER) for kind in (STREAM, OTHER, BYPASS)),
        Change(model.edges_of(ENGINE, on_engine), "set", engine_ns),
    )


def _detach(scene: Scene, edges: Ints, operations: Ints) -> Edit:
    """Return the edit that removes `edges` from these operations: the next ones follow earlier ones on the stream."""
    passed = scene.model.passed_on(edges, operations)
    return tuple(Change(removed, "set", NEVER) for removed in (edges, passed))


def _shorten_hops(scene: Scene, operations: Ints, hop_ns: int) -> Edit:
    """Return the edit that lets operations follow others on their streams after at most `hop_ns`."""
    model, reduction_ns = scene.model, np.maximum(scene.graph.work.hop_ns - hop_ns, 0)
    chosen = {kind: operations[model.edges[kind][operations] >= 0] for kind in (STREAM, BYPASS)}
    return tuple(Change(model.edges_of(kind, rows), "shorter", reduction_ns[rows]) for kind, rows in chosen.items())


def small_copies(scene: Scene) -> Iterator[Remedy]:
    """Join the small copies of a step: remove all calls except the first, and the waits between them.

    A loop on the host that reads a value for each element also selects elements on the GPU, and computes with them:
    those launches remain once, for all elements. A loop that selects nothing, such as that of a solver, may need each
    iteration for the next. If only PyTorch reads, numbers of rows that masks select, the cause is `masks`.
    """
    model, calls, work = scene.model, scene.graph.calls, scene.graph.work
    copies, size, _ = _host_copies(scene)
    copies = copies[size < _SMALL_BYTES]
    kernels = scene.timeline.profile.recorded("kernels")["name"]
    is_elementwise = np.array([kind_of(name) == "elementwise" for name in kernels.cat.categories], dtype=bool)
    selects = np.any([are_named(kernels, pattern) for pattern in (*_MASKS, _GATHERS)], axis=0)
    selecting = _launching(scene, selects)
    of_elements = _launching(scene, selects | is_elementwise[kernels.cat.codes.to_numpy()])
    counts_rows, _ = scene.around(_launching(scene, are_named(kernels, _MASKS[_REDUCE])))
    for code, rows in positions(scene.path[work.call[copies]] * 2 + work.direction[copies]).items():
        calling = np.unique(work.call[copies[rows]])
        if len(calling) < _MANY_COPIES * scene.steps:
            continue
        first = scene.first_of_steps(calling)
        path, direction = divmod(code, 2)
        between = scene.calls_between(calling, first, of_elements)
        reads = direction == TO_HOST and (~counts_rows[calling]).sum() >= _MANY_COPIES * scene.steps
        is_loop = bool(reads and selecting[between].sum() >= _SELECTS_IN_LOOP * len(calling))
        between = between if is_loop else scene.calls_between(calling, first, np.zeros_like(of_elements))
        removed = np.union1d(np.setdiff1d(calling, first), between)
        merged = np.flatnonzero(np.isin(work.call, removed) & model.has(LAUNCH))
        edit = (
            scene.without_waits(removed),
            Change(model.edges_of(CALL, removed), "set", 0),
            Change(model.edges_of(BEGIN, removed[scene.gap[removed] <= _BETWEEN_LAUNCHES_NS]), "at most", 0),
            *shorten(scene, merged, scene.length[merged], with_latency=True),
        )
        time = scene.per_step((calls.end - calls.start)[removed] + scene.gap[removed], removed)
        cases = scene.cases(calling)
        name = _DIRECTION_NAMES[direction] + is_loop * ", in a loop with small kernels"
        yield Remedy("many_small_copies", str(scene.paths[path]), name, cases, time, edit)


def _launching(scene: Scene, chosen: Flags) -> Flags:
    """Return which calls launch one short kernel that is `chosen`, and nothing else, as CUDA graphs do."""
    work = scene.graph.work
    launched = np.flatnonzero(work.call >= 0)
    is_chosen = np.append(chosen, False)[np.minimum(work.operation[launched], len(chosen))]
    is_chosen &= scene.length[launched] <= _ELEMENT_NS
    count = len(scene.graph.calls)
    chosen_count, other_count = (np.bincount(work.call[launched], each, count) for each in (is_chosen, ~is_chosen))
    flags: Flags = (chosen_count == 1) & (other_count == 0)
    return flags


def shorten(scene: Scene, operations: Ints, reduction_ns: Ints | Floats, *, with_latency: Flags | bool = False) -> Edit:
    """Return the edit that shortens operations, and removes the latency of those `with_latency`."""
    model, work, changes = scene.model, scene.graph.work, []
    with_latency = np.broadcast_to(with_latency, len(operations))
    for kind in (LAUNCH, STREAM, OTHER, BYPASS):
        latency = work.latency_ns if kind == LAUNCH else work.hop_ns
        has_edge = model.edges[kind][operations] >= 0
        rows = operations[has_edge]
        reduction = reduction_ns[has_edge] + latency[rows] * with_latency[has_edge]
        changes.append(Change(model.edges_of(kind, rows), "earlier", reduction))
    return tuple(changes)


@of_capture
def link_rate(timeline: Timeline) -> float:
    """Return the rate of copies of pinned memory in bytes per ns: measured, or published for the link of the GPU."""
    table = timeline.profile.recorded("memory_ops")
    is_pinned = (table["source_kind"] == "Pinned") | (table["target_kind"] == "Pinned")
    large = table[is_pinned & (table["bytes"].fillna(0) >= _LARGE_BYTES)]
    if len(large):
        times = (large["end_ns"] - large["start_ns"]).clip(lower=1)
        return float((large["bytes"].astype("float64") / times).median())
    names = timeline.profile.recorded("devices")["name"].astype("str")
    # published rates are the sum of both directions
    rates = [rate / 2 * _LINK_SHARE for name in names if (rate := published(name).pcie_gb_per_s)]
    return rates[0] if rates else _LINK_GB_PER_S


def migration(scene: Scene) -> Iterator[Remedy]:
    """Copy what is in pages of managed memory before it is needed, at the rate of the link."""
    model, calls, work = scene.model, scene.graph.calls, scene.graph.work
    kernels = np.flatnonzero((work.operation < _kernel_count(scene)) & model.has(LAUNCH))
    stall_ns, held_ns = np.zeros(len(work)), np.zeros(len(calls))
    for device, wait_between in _page_waits(scene.timeline, "Unified Host-to-Device", "device", _GPU_FAULT_NS):
        affected = kernels[work.device[kernels] == device]
        limit = np.maximum(scene.length[affected] - _LEAST_KERNEL_NS, 0)
        stall_ns[affected] = np.minimum(wait_between(work.start[affected], work.end[affected]), limit)
    for process, wait_between in _page_waits(
        scene.timeline, "Unified Device-to-Host", "process", _CPU_FAULT_NS, _MAPPED_NS_PER_BYTE
    ):
        affected = scene.in_calls[calls.process[scene.in_calls] == process]
        held_ns[affected] = wait_between(scene.gap_start[affected], calls.start[affected])
    stalled, delayed = np.flatnonzero(stall_ns), np.flatnonzero(held_ns)
    if not len(stalled) and not len(delayed):
        return
    edit = (
        *shorten(scene, stalled, stall_ns[stalled]),
        Change(model.edges_of(BEGIN, delayed), "shorter", held_ns[delayed]),
    )
    calling = np.append(work.call[stalled], delayed)
    time = scene.per_step(np.append(stall_ns[stalled], held_ns[delayed]), calling)
    yield Remedy("migration", scene.shared_path(calling[calling >= 0]), "", scene.cases(calling), time, edit)


def _kernel_count(scene: Scene) -> int:
    """Return the number of kernels in the capture, which are the first operations."""
    return int(scene.timeline.operations.of("kernels").sum())


def _page_waits(
    timeline: Timeline, operation: str, column: str, fault_ns: float, mapped_ns_per_byte: float = 0.0
) -> Iterator[tuple[int, Callable[[Ints, Ints], Floats]]]:
    """Yield for each device or process a function that returns its wait for pages between two times.

    The time to move the same bytes at the rate of the link does not count, since that remains.
    """
    table, faults = (timeline.profile.recorded(name) for name in ("memory_ops", "gpu_page_faults"))
    is_move = table["operation"] == operation
    if not is_move.any():
        return
    rate, moves = link_rate(timeline), table[is_move]
    if are_named(timeline.profile.recorded("api_calls")["name"], _PREFETCHES).any():
        # nobody waits before or after what was moved ahead of time
        fault_ns = mapped_ns_per_byte = 0.0
    for key, rows in positions(integers(moves[column])).items():
        of_key = moves.iloc[rows].sort_values("start_ns")
        start, end = (of_key[name].to_numpy() for name in ("start_ns", "end_ns"))
        moved = of_key["bytes"].to_numpy(dtype=np.float64, na_value=0.0)
        transfer_ns = np.concatenate(([0], np.cumsum(moved / rate)))
        key_faults = faults[faults[column] == key]
        before_ns = 0 if len(key_faults) else fault_ns
        spans = union(
            np.append(start - before_ns, key_faults["start_ns"]),
            np.append(end + mapped_ns_per_byte * moved, key_faults["end_ns"]),
        )

        def wait_between(
            low: Ints, high: Ints, start: Ints = start, transfer_ns: Floats = transfer_ns, spans: Spans = spans
        ) -> Floats:
            new = transfer_ns[np.searchsorted(start, high)] - transfer_ns[np.searchsorted(start, low)]
            return np.asarray(np.maximum(covered(spans, low, high) - new, 0))

        yield key, wait_between


# -- ranks ------------------------------------------------------------------------------------------------------------


def hidden_communication(scene: Scene) -> Iterator[Remedy]:
    """Overlap communication with work that does not need it.

    Collectives of unrecorded ranks are left out: they may consist of waiting, which nothing can hide. So are those that
    the next kernel needs.
    """
    model, work = scene.model, scene.graph.work
    calls = communication(scene.timeline)
    single_rank = calls["operation"][(calls["group_size"] == 1).fillna(value=False)]
    operations = np.flatnonzero(work.is_communication & model.has(LAUNCH))
    operations = operations[~np.isin(work.operation[operations], needed_at_once(scene.timeline))]
    # a collective can outlast the stretch
    is_grouped, is_single = work.group[operations] >= 0, np.isin(work.operation[operations], single_rank)
    operations = operations[np.where(is_grouped, model.has(TRANSFER)[operations], is_single)]
    if not len(operations):
        return
    ungrouped, grouped = operations[work.group[operations] < 0], operations[work.group[operations] >= 0]
    end_events = model.target[np.concatenate([model.edges_of(LAUNCH, ungrouped), model.edges_of(TRANSFER, grouped)])]
    # communication still follows earlier communication
    arrivals = model.source[model.kind == TRANSFER]
    is_leaving = np.isin(model.source, end_events) & np.isin(model.kind, (STREAM, OTHER))
    is_leaving &= ~np.isin(model.target, np.append(end_events, arrivals))
    leaving_edges = np.flatnonzero(is_leaving)
    sources = model.source[leaving_edges]
    hideable = pd.Series(_hideable_ns(scene, np.append(ungrouped, grouped), sources, end_events), index=end_events)
    hidden_ns = np.asarray(hideable[~hideable.index.duplicated()][sources], dtype=np.float64)
    passed = model.passed_on(leaving_edges, operations)
    edit = (Change(leaving_edges, "earlier", hidden_ns), Change(passed, "set", NEVER))
    calling = work.call[operations]
    time = scene.per_step(scene.length[operations], calling)
    yield Remedy("exposed_communication", "", "", scene.cases(calling), time, edit)


def repeated_reduction(scene: Scene) -> Iterator[Remedy]:
    """Reduce gradients once per update, not in each backward pass; ranks still meet at the same places.

    Gradients are also copied into and out of the buckets only once, and concurrent kernels run at full speed.
    """
    unneeded = unneeded_reductions(scene)
    if not unneeded.passes:
        return
    work = scene.graph.work
    calling = work.call[unneeded.reductions]
    slowed, slowed_ns = _slowed_by(scene, unneeded.reductions)
    is_left = ~np.isin(slowed, unneeded.copies)
    edit = (
        Change(scene.model.edges_of(TRANSFER, unneeded.reductions), "set", 0),
        *shorten(scene, unneeded.copies, scene.length[unneeded.copies], with_latency=True),
        *shorten(scene, slowed[is_left], slowed_ns[is_left]),
        *_without_launches(scene, np.append(calling, work.call[unneeded.copies])),
    )
    time = scene.per_step(scene.length[unneeded.reductions], calling)
    yield Remedy("repeated_reduction", "", f"{unneeded.passes:,} backward passes", scene.cases(calling), time, edit)


def _slowed_by(scene: Scene, communicating: Ints) -> tuple[Ints, Floats]:
    """Return the kernels that run during these operations, and the time in ns that each takes more than when alone.

    The time alone is the median of kernels with the same name and grid that run without any communication.
    """
    work, kernels = scene.graph.work, scene.timeline.profile.recorded("kernels")
    end = work.start + scene.length
    overlap_ns, any_overlap_ns = np.zeros((2, len(work)), dtype=np.int64)
    for device, rows in positions(work.device).items():
        for share, of_all in ((overlap_ns, communicating), (any_overlap_ns, np.flatnonzero(work.is_communication))):
            chosen = of_all[work.device[of_all] == device]
            share[rows] = covered(union(work.start[chosen], end[chosen]), work.start[rows], end[rows])
    computes = np.flatnonzero(~work.is_communication & (work.operation < len(kernels)) & scene.model.has(LAUNCH))
    alike = names_and_grids(kernels)[work.operation[computes]]
    alone = any_overlap_ns[computes] == 0
    usual = pd.Series(scene.length[computes][alone]).groupby(alike[alone]).median()
    longer_ns = scene.length[computes] - usual.reindex(alike).to_numpy(dtype=np.float64)
    is_slowed = (overlap_ns[computes] > _MOSTLY * scene.length[computes]) & (longer_ns > 0)
    return computes[is_slowed], longer_ns[is_slowed]


def _without_launches(scene: Scene, removed: Ints, most_ns: int = _BETWEEN_LAUNCHES_NS) -> Edit:
    """Return the edit that removes these calls, the queries before them, and the host code that prepares them.

    removed: -1 for operations without a recorded call. most_ns: longer host code stays, as it does other work; if 0,
    only the calls themselves go.
    """
    is_plain, removed = ~_does_more_than_launch(scene), removed[removed >= 0]
    is_plain &= most_ns > 0
    leading = scene.in_calls[(is_plain & scene.leads_to(removed))[scene.in_calls]]
    affected = np.union1d(removed, leading)
    return (
        Change(scene.model.edges_of(CALL, affected), "set", 0),
        Change(scene.model.edges_of(BEGIN, affected[scene.gap[affected] <= most_ns]), "at most", 0),
    )


def small_collectives(scene: Scene) -> Iterator[Remedy]:
    """Join small collectives that follow each other: one waits once for all ranks, and is launched once."""
    if (joined := coalescing(scene)) is None:
        return
    model, work = scene.model, scene.graph.work
    is_grouped = work.group >= 0
    grouped_kept, plain_kept = is_grouped[joined.kept], ~is_grouped[joined.kept]
    kept_transfers = model.edges[TRANSFER][joined.kept[grouped_kept]]
    edit = (
        Change(model.edges_of(TRANSFER, joined.removed), "set", 0),
        *shorten(scene, joined.removed, np.where(is_grouped, 0, scene.length)[joined.removed], with_latency=True),
        Change(kept_transfers, "earlier", -joined.longer_ns[grouped_kept]),
        *shorten(scene, joined.kept[plain_kept], -joined.longer_ns[plain_kept]),
        *_without_launches(scene, work.call[joined.removed]),
    )
    collectives = np.append(joined.removed, joined.kept)
    calling = work.call[collectives]
    time = scene.per_step(scene.length[collectives], calling)
    yield Remedy("small_collectives", scene.shared_path(calling), joined.name, scene.cases(calling), time, edit)


def _hideable_ns(scene: Scene, operations: Ints, sources: Ints, ends: Ints) -> Floats:
    """Return for each of these communication operations how much earlier its dependents can start, in ns.

    ends: the events of the operations. sources: the events that other work waits for. Consecutive communication without
    other work between is hidden as one, by at most the time of other work before it that overlaps no communication.
    """
    work, hideable, share = scene.graph.work, np.zeros(len(operations)), _hidden_share(scene, operations)
    for device, rows in positions(work.device[operations]).items():
        on_device = rows[np.argsort(work.end[operations[rows]], kind="stable")]
        other_work = np.flatnonzero((work.device == device) & ~work.is_communication)
        busy = union(work.start[other_work], work.end[other_work])
        spans = union(work.start[operations[on_device]], work.end[operations[on_device]])
        end, is_last = work.end[operations[on_device]], np.isin(ends[on_device], sources)
        # operations that are hidden as one have one share
        run: Ints = np.cumsum(is_last) - is_last
        length = scene.length[operations[on_device]]
        run_start = np.append(scene.timeline.window.start_ns, end[is_last])[run]
        run_share = np.bincount(run, share[on_device] * length) / np.maximum(np.bincount(run, length), 1)
        exposed = covered(without(spans, busy), run_start, end)
        other_work = covered(without(busy, spans), run_start, end)
        hideable[on_device] = np.minimum(run_share[run] * np.maximum(exposed, length), other_work)
    return hideable


def _hidden_share(scene: Scene, operations: Ints) -> Floats:
    """Return the share of each of these communication operations that other work can hide."""
    work, calls = scene.graph.work, communication(scene.timeline)
    # a rank that only receives has no sent bytes
    sent_or_received = calls.set_index("operation")[["bytes", "received_bytes"]].astype("float64").max(axis=1)
    size = sent_or_received.reindex(work.operation[operations]).to_numpy()
    length = pd.Series(work.end[operations] - work.start[operations])
    # the shortest kernel of a collective waits least for other ranks
    group = np.where(work.group[operations] >= 0, work.group[operations], -2 - operations)
    shortest = length.groupby(group).transform("min").to_numpy()
    gb_per_s = size / np.maximum(shortest, 1)
    share = np.where(gb_per_s > _NVLINK_GB_PER_S, _HIDDEN_BY_NVLINK, _HIDDEN_BY_NETWORK)
    return np.where(np.isnan(gb_per_s), _HIDDEN_BY_UNKNOWN, share)


@dataclass(frozen=True)
class _ComputeTimes:
    """The compute time of ranks that wait for each other, by step or phase and device (`time_ns`), and its operations.

    step, device: of each operation, as positions. stage: of each device in its pipeline, from 1; 0 for none.
    """

    operations: Ints
    step: Ints
    device: Ints
    devices: Ints
    time_ns: Floats
    stage: Ints


def _compute_times(scene: Scene) -> _ComputeTimes | None:
    """Return how long the ranks that wait for each other compute in each step.

    None for fewer than two ranks, or if only some of them have steps.
    """
    work, is_replayed = scene.graph.work, scene.model.has(LAUNCH)
    ranks = pd.unique(work.device[(work.group >= 0) & is_replayed])
    if len(ranks) < 2:
        return None
    computes = ~work.is_communication & np.isin(work.device, ranks) & (_expert_stretch(scene) < 0)
    operations = np.flatnonzero(computes & is_replayed)
    step, steps = pd.factorize(_launch_steps(scene)[operations])
    device, devices = pd.factorize(work.device[operations])
    if len(devices) < 2:
        return None
    process = operation_column(scene.timeline, "process")[work.operation[operations]]
    if (steps_by_process := scene.timeline.window.steps) and not np.isin(process, list(steps_by_process)).all():
        return None
    times = _sum_by(step, device, scene.length[operations], (len(steps), len(devices)))
    # a step that some ranks lack, such as those that died, does not compare ranks
    times[(times == 0).any(axis=1)] = 0
    stage = np.zeros(len(devices), dtype=np.int64)
    for chain in chains(scene.timeline):
        # a pipeline with missing stages cannot be balanced
        if np.isin(chain, devices).all():
            stage[[int(np.flatnonzero(devices == member)[0]) for member in chain]] = 1 + np.arange(len(chain))
    return _ComputeTimes(operations, step, device, devices, times, stage)


def straggler(scene: Scene) -> Iterator[Remedy]:
    """Balance the compute time of ranks in each step, if the others wait for one of them in collectives.

    Ranks of a pipeline are compared with those of the same stage.
    """
    if (compute := _compute_times(scene)) is None:
        return
    times, devices = compute.time_ns, compute.devices
    even, longest = _balanced(scene, compute)
    if not longest.sum() or longest.sum() < _UNEVEN * even.sum():
        return
    name = _slow_ranks(scene, devices, times, even) or _CHANGING_RANK
    if (phases := _between_collectives(scene, compute)) is not None:
        compute, even = phases, _balanced(scene, phases)[0]
    yield _even_out(scene, compute, even, "straggler", name)


def _balanced(scene: Scene, compute: _ComputeTimes) -> tuple[Floats, Floats]:
    """Return the mean and the longest compute time of ranks of the same stage, for each step and device."""
    even, longest = np.zeros_like(compute.time_ns), np.zeros_like(compute.time_ns)
    for columns in positions(compute.stage).values():
        times, weights = compute.time_ns[:, columns], ranks_represented(scene.timeline, compute.devices[columns])
        even[:, columns] = np.average(times, axis=1, weights=weights)[:, None]
        longest[:, columns] = times.max(axis=1)[:, None]
    return even, longest


def _between_collectives(scene: Scene, compute: _ComputeTimes) -> _ComputeTimes | None:
    """Return compute times by phases, from the launch of one collective to the next, instead of steps.

    A rank can be slow in one phase of a step and wait in another. None if the ranks do not all take part in the same
    collectives, or are stages of a pipeline.
    """
    work, launch_ns = scene.graph.work, scene.graph.work.launch_ns
    if (compute.stage > 0).any():
        return None
    phase = np.full(len(compute.operations), -1, dtype=np.int64)
    collectives: Ints | None = None
    for device, number in enumerate(compute.devices.tolist()):
        grouped = np.flatnonzero((work.group >= 0) & (work.device == number))
        grouped = grouped[np.argsort(launch_ns[grouped], kind="stable")]
        if collectives is None:
            collectives = work.group[grouped]
        if not np.array_equal(collectives, work.group[grouped]):
            return None
        rows = np.flatnonzero(compute.device == device)
        phase[rows] = np.searchsorted(launch_ns[grouped], launch_ns[compute.operations[rows]])
    time_ns = _sum_by(
        phase, compute.device, scene.length[compute.operations], (int(phase.max()) + 1, len(compute.devices))
    )
    time_ns[(time_ns == 0).any(axis=1)] = 0
    return replace(compute, step=phase, time_ns=time_ns)


def uneven_stages(scene: Scene) -> Iterator[Remedy]:
    """Balance the compute time of pipeline stages over all steps."""
    if (compute := _compute_times(scene)) is None or not (is_staged := compute.stage > 0).any():
        return
    stage_ns = pd.Series(compute.time_ns.sum(axis=0)[is_staged]).groupby(compute.stage[is_staged]).mean()
    if stage_ns.max() < _UNEVEN * stage_ns.mean():
        return
    factor = np.ones(len(compute.devices))
    factor[is_staged] = stage_ns.mean() / np.maximum(stage_ns.reindex(compute.stage[is_staged]).to_numpy(), 1)
    slow_device = int(np.flatnonzero(compute.stage == stage_ns.idxmax())[0])
    name = called_by_rank(scene.timeline, int(compute.devices[slow_device]))
    yield _even_out(scene, compute, compute.time_ns * factor, "uneven_stages", name)


def uneven_experts(scene: Scene) -> Iterator[Remedy]:
    """Balance the compute time of experts across ranks between each two all-to-alls."""
    work = scene.graph.work
    if not work.is_communication.any():
        return
    stretch = _expert_stretch(scene)
    operations = np.flatnonzero((stretch >= 0) & ~work.is_communication & scene.model.has(LAUNCH))
    step, keys = pd.factorize(stretch[operations])
    device, devices = pd.factorize(work.device[operations])
    if len(devices) < 2:
        return
    times = _sum_by(step, device, scene.length[operations], (len(keys), len(devices)))
    # devices of other communicators compute at other times; in a large job, some ranks represent others
    devices_of = stretches(scene.timeline).groupby("key")["device"].agg(list)
    is_member = np.array([np.isin(devices, devices_of[key]) for key in keys.tolist()])
    weights = is_member * ranks_represented(scene.timeline, devices)
    even = (weights * times).sum(axis=1, keepdims=True) / np.maximum(weights.sum(axis=1, keepdims=True), 1)
    longest = times.max(axis=1)
    if longest.sum() < _UNEVEN * even.sum():
        return
    name = _slow_ranks(scene, devices, times, even) or _CHANGING_EXPERTS
    compute = _ComputeTimes(operations, step, device, devices, times, np.zeros(len(devices), dtype=np.int64))
    yield _even_out(scene, compute, np.broadcast_to(even, times.shape), "uneven_experts", name)


_CHANGING_EXPERTS: Final = "Each time a different rank"


def _slow_ranks(scene: Scene, devices: Ints, times: Floats, even: Floats) -> str:
    """Name the ranks that others wait for in all steps; "" if they take turns.

    times, even: the compute time of each device in each step, as it is and if it were balanced.
    """
    is_known = times > 0
    # steps that are only partly in the window vary the most, and are left out
    total = even.sum(axis=1)
    is_whole = total >= _WHOLE_STEP * np.median(total[is_known.any(axis=1)])
    rows, columns = is_known.any(axis=1) & is_whole, is_known.any(axis=0)
    relative = np.where(is_known, times / np.maximum(even, 1), np.nan)[np.ix_(rows, columns)]
    devices, mean = devices[columns], np.nanmean(relative, axis=0)
    is_slow = mean > (np.nanmax(mean) + np.nanmin(mean)) / 2
    if not is_slow.any():
        return ""
    evened = np.where(is_slow, relative * np.nanmean(mean[~is_slow]) / mean, relative)
    spreads = (np.nanmax(values, axis=1) - np.nanmean(values, axis=1) for values in (relative, evened))
    wait_ns, left_ns = (float(spread.sum()) for spread in spreads)
    if wait_ns - left_ns < _MOSTLY * wait_ns:
        return ""
    numbers = sorted(ranks_of(scene.timeline, devices[is_slow]).tolist())
    if len(numbers) == 1:
        return called_by_rank(scene.timeline, int(devices[is_slow][0]))
    if not are_ranks_known(scene.timeline):
        return f"Each of {len(numbers)} GPUs"
    is_range = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
    names = f"ranks {numbers[0]} to {numbers[-1]}" if is_range else format_ranks(numbers).lower()
    return f"Each of {names}"


def _sum_by(row: Ints, column: Ints, values: Ints, shape: tuple[int, int]) -> Floats:
    """Return the sums of values by row and column."""
    sums: Floats = np.zeros(shape)
    np.add.at(sums, (row, column), values)
    return sums


def _expert_stretch(scene: Scene) -> Ints:
    """Return the number of the expert stretch, between two all-to-alls, in which each operation starts; -1 for none."""
    work, expert_stretches = scene.graph.work, stretches(scene.timeline)
    stretch = np.full(len(work), -1, dtype=np.int64)
    for device, rows in positions(expert_stretches["device"].to_numpy()).items():
        start, end, key = (expert_stretches[name].to_numpy()[rows] for name in ("start_ns", "end_ns", "key"))
        order = np.argsort(start, kind="stable")
        of_device = np.flatnonzero(work.device == device)
        candidate = order[np.searchsorted(start[order], work.start[of_device], side="right") - 1]
        inside = (work.start[of_device] >= start[candidate]) & (work.start[of_device] < end[candidate])
        stretch[of_device] = np.where(inside, key[candidate], -1)
    return stretch


def _even_out(scene: Scene, compute: _ComputeTimes, even: Floats, rule: str, name: str) -> Remedy:
    """Return the remedy that makes each device compute for its time in `even` in each step."""
    operations, count = compute.operations, len(compute.devices)
    # steps in which ranks are not compared are as uneven as the others
    is_known = compute.time_ns > 0
    mean_share = 1 - (even * is_known).sum(axis=0) / np.maximum(compute.time_ns.sum(axis=0), 1)
    share = np.where(is_known, 1 - even / np.maximum(compute.time_ns, 1), mean_share)[compute.step, compute.device]
    edit = shorten(scene, operations, scene.length[operations] * share)
    longest = float(compute.time_ns.max(axis=1).sum())
    return Remedy(rule, "", name, len(operations) / count / scene.steps, longest / scene.steps, edit)


_CHANGING_RANK: Final = "In each step a different rank"


def _launch_steps(scene: Scene) -> Ints:
    """Return the step in which the process of each operation launched it; 0 if there are no steps."""
    calls, work = scene.graph.calls, scene.graph.work
    step, window = np.zeros(len(work), dtype=np.int64), scene.timeline.window
    process = np.where(work.call >= 0, np.append(calls.process, -1)[work.call], -1)
    for key, first in window.first_steps.items():
        of_process = process == key
        step[of_process] = np.searchsorted(window.steps[key], work.launch_ns[of_process], side="right") + first
    return step


# -- kernels ----------------------------------------------------------------------------------------------------------


def kernels(scene: Scene) -> Iterator[Remedy]:
    """Replace or remove kernels (nightsight.analyze.causes.kernels)."""
    model, work, shared = scene.model, scene.graph.work, shared_default_stream(scene)
    for proposal in kernel_remedies(scene.timeline, scene.timeline.window.repetitions):
        operations = scene.place[proposal.operations]
        # without recorded calls, operations still follow each other on their stream
        is_replayed = np.append(model.has(LAUNCH) | model.has(STREAM), False)[operations]
        if proposal.rule == "small_grid" and shared:
            # they run alone because of the stream that threads share
            is_replayed &= ~np.isin(operations, [shared.operations, work.previous[shared.operations]])
            if not is_replayed.any():
                continue
        operations, removed = operations[is_replayed], proposal.removed[is_replayed]
        # only the code that recomputes them runs between recomputed kernels, including hooks of checkpointing; code
        # before a copy may prepare other work
        most_ns = {"recomputation": _RECOMPUTING_NS, "device_copy": 0}.get(proposal.rule, _BETWEEN_LAUNCHES_NS)
        edit = (
            *shorten(scene, operations, scene.length[operations] - proposal.new_ns[is_replayed], with_latency=removed),
            *_without_launches(scene, work.call[operations[removed]], most_ns),
        )
        calling = work.call[operations]
        time = scene.per_step(scene.length[operations], calling)
        yield Remedy(
            proposal.rule,
            "",
            proposal.place,
            scene.cases(calling),
            time,
            edit,
            kernels=proposal.kernels,
            launching=_compiled_launches(scene) if proposal.compiles_model else (),
        )


def _compiled_launches(scene: Scene) -> Edit:
    """Return the edit that launches kernels from code that torch.compile made; nothing for other frameworks.

    It compiles the model, not the optimizer. Nothing if shapes change from step to step: it would compile each.
    """
    if framework_of(scene.timeline.profile) != PYTORCH:
        return ()
    is_inside = ~_does_more_than_launch(scene) & ~_is_around_model(scene)
    is_inside &= np.array(["Optimizer.step" not in str(path) for path in scene.paths])[scene.path]
    launches = scene.in_calls[(is_inside & scene.launching)[scene.in_calls]]
    if _changes_shape(scene, launches):
        return ()
    # and the queries before them
    is_inside &= scene.leads_to(launches) & is_launch_code(scene)
    inside = scene.in_calls[is_inside[scene.in_calls]]
    return (Change(scene.model.edges_of(BEGIN, inside), "scaled", _COMPILED),)


def shared_gpu(scene: Scene) -> Iterator[Remedy]:
    """Give each process its own GPU; while kernels of two processes overlap, each gets half of the GPU."""
    work = scene.graph.work
    operations = np.flatnonzero(scene.model.has(LAUNCH) & ~work.is_communication)
    process = operation_column(scene.timeline, "process")[work.operation]
    overlap_ns = np.zeros(len(work))
    for of_device in positions(work.device).values():
        by_process = positions(process[of_device])
        for rows in by_process.values() if len(by_process) > 1 else ():
            own, others = of_device[rows], np.delete(of_device, rows)
            spans = union(work.start[others], work.end[others])
            overlap_ns[own] = covered(spans, work.start[own], work.end[own])
    shared = operations[overlap_ns[operations] > 0]
    if len(shared):
        edit = shorten(scene, shared, overlap_ns[shared] / 2)
        calling = work.call[shared]
        time = scene.per_step(overlap_ns[shared] / 2, calling)
        yield Remedy("shared_gpu", "", f"{len(np.unique(process[shared]))} processes", scene.cases(calling), time, edit)


PROPOSALS: Final = (
    interpreter,
    graph_launch,
    waits,
    masks,
    default_stream,
    allocation,
    loading,
    workers,
    large_copies,
    peer_copies,
    small_copies,
    migration,
    hidden_communication,
    repeated_reduction,
    small_collectives,
    straggler,
    uneven_stages,
    uneven_experts,
    kernels,
    shared_gpu,
)
"""The functions that propose remedies, all of which are simulated. `host_code` proposes those of the remaining code."""
