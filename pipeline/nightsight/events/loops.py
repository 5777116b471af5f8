"""The repeated part of a capture: the loop of each process, such as training steps.

It is the outermost family of the program's own repeated ranges (`step 7` is a repetition of `step #`) that covers the
most GPU work. A program without ranges can have some from PyTorch or the profiler: then a step ends with the step of
the optimizer, or begins with the call of a model. A step of JAX is an execution of the compiled program that does most
of the work. Without any ranges, the loop is the period in the order of the kernels that a thread launches.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.events.engine import ENGINE_STEP, starts_with_prompts, with_engine_steps
from nightsight.events.frameworks import JAX, framework_of
from nightsight.events.launches import GPU_TABLES, launch_keys, launching_calls
from nightsight.events.ranges import LEAST, count_instances, nested
from nightsight.events.tuning import is_xla_tuning
from nightsight.intervals import Flags, Ints, Spans, touches, union
from nightsight.model.report import Profile
from nightsight.system.parallel import memoize
from nightsight.tables import FUNCTION, MODULE, aggregate, ancestors, are_named, integers, nest

_NOTHING: Final = np.empty(0, dtype=np.int64)


class Loop(NamedTuple):
    """A loop of one process: when the CPU began each repetition, when the last one and its work ended, and GPU time.

    family: the path of the ranges, with `#` for numbers; if not `is_named`, how many launches repeat. gpu_ns: the time
    of the loop if the capture has no GPU work. slow: how many repetitions at the beginning took much longer.
    waiting: how many at the beginning wait in a call that later ones hardly make, `early_wait`.
    """

    process: int
    family: str
    starts: Ints
    end_ns: int
    gpu_ns: int
    is_named: bool
    slow: int = 0
    waiting: int = 0
    early_wait: str = ""


class LaunchedWork(NamedTuple):
    """GPU operations in the order of GPU_TABLES: their times, and when and where the CPU launched them.

    Without a recorded call, an operation counts as launched at its start, by one separate thread per process.
    """

    start: Ints
    end: Ints
    launch_ns: Ints
    process: Ints
    thread: Ints


@memoize
def loops_of(profile: Profile) -> list[Loop]:
    """Return the loop of each process that has one, the process with the most GPU work first.

    The first method that finds a loop in any process is used for all.
    """
    work, all_ranges = launched_work(profile), with_engine_steps(profile.recorded("ranges"))
    ranges = all_ranges[~is_of_library(all_ranges)]
    is_of_program = _is_of_program(ranges)
    # a benchmark can have a range around all that a server does for a burst of requests
    loops = (
        _range_loops(ranges[ranges["name"] == ENGINE_STEP], work)
        or _range_loops(ranges[is_of_program], work)
        or _optimizer_loops(ranges, work)
        or (_range_loops(ranges, work) if not is_of_program.all() else [])
        or _xla_loops(all_ranges, work)
        or _launch_loops(profile, work)
    )
    syncs = _calls(profile, _SYNCS)
    prompts = starts_with_prompts(profile)
    complete = [_complete(loop, work, syncs, prompts) for loop in loops]
    return sorted(complete, key=lambda loop: (-loop.gpu_ns, loop.process))


def _drop_cut_repetition(work: LaunchedWork, loop: Loop, ends: Ints) -> Loop:
    """Leave out the last repetition if it launches much less than the others, unless its range contains all of it.

    Ranges that mark only a part of a repetition, such as an optimizer's, do not show where the last one ends.
    """
    launch_ns = work.launch_ns[_is_of_process(work, loop.process)]
    launches = launch_ns[(launch_ns >= loop.starts[0]) & (launch_ns < loop.end_ns)]
    step = np.searchsorted(loop.starts, launches, side="right") - 1
    counts = np.bincount(step, minlength=len(loop.starts))
    is_enclosed = len(launches) and (launches < ends[step]).mean() >= _NEARLY_BEST
    if is_enclosed or len(counts) < LEAST or counts[-1] >= _CUT * np.median(counts[:-1]):
        return loop
    return loop._replace(starts=loop.starts[:-1], end_ns=int(loop.starts[-1]))


_CUT: Final = 0.5


def longest_part_without(profile: Profile, loop: Loop, spans: Spans) -> Loop:
    """Return the longest part of a loop whose repetitions touch none of these spans; of equally long parts, the last.

    Returns the whole loop if that part would have fewer than LEAST repetitions.
    """
    ends = np.append(loop.starts[1:], loop.end_ns)
    untouched = np.flatnonzero(~touches(spans, loop.starts, ends))
    parts = np.split(untouched, np.flatnonzero(np.diff(untouched) > 1) + 1)
    longest = max(parts, key=lambda part: (len(part), part[-1:].tolist()))
    if len(longest) < LEAST or len(longest) == len(loop.starts):
        return loop
    part = loop._replace(starts=loop.starts[longest], end_ns=int(ends[int(longest[-1])]))
    return _complete(part, launched_work(profile), _calls(profile, _SYNCS), starts_with_prompts(profile))


def _complete(loop: Loop, work: LaunchedWork, syncs: pd.DataFrame, prompts: Ints) -> Loop:
    """Add when the work of a loop ended, and how many repetitions at its beginning are not like the later ones."""
    waiting, call = _waiting_at_start(loop, work, syncs)
    slow = _slow_count(work, loop, prompts)
    return loop._replace(end_ns=_work_end(work, loop), slow=slow, waiting=waiting, early_wait=call)


def _waiting_at_start(loop: Loop, work: LaunchedWork, syncs: pd.DataFrame) -> tuple[int, str]:
    """Count the repetitions at the start that wait in a call that later ones hardly make; return it, too.

    PyTorch's DistributedDataParallel waits for events of the step before in each of its first ten steps, to measure
    them, and then in each hundredth. At least LEAST repetitions and a quarter of them remain. Only threads that launch
    count.
    """
    count, launching = len(loop.starts), pd.unique(work.thread[_is_of_process(work, loop.process)])
    of_loop = syncs[syncs["start_ns"].between(loop.starts[0], loop.end_ns) & syncs["thread"].isin(launching)]
    best, call = 0, ""
    for name, calls in of_loop[of_loop["process"] == loop.process].groupby("name", observed=True):
        step = np.searchsorted(loop.starts, calls["start_ns"].to_numpy(), side="right") - 1
        waits = np.bincount(step, minlength=count) > 0
        before = np.cumsum(waits)
        until = np.arange(1, count + 1)
        left = count - until
        is_start = waits & (before >= _NEARLY_BEST * until) & (before[-1] - before <= _NOW_AND_THEN * left)
        is_start &= (until >= LEAST) & (left >= max(LEAST, count / 4))
        last = int(until[is_start].max(initial=0))
        if last > best:
            best, call = last, str(name)
    return best, call


# share of the later repetitions that may still wait
_NOW_AND_THEN: Final = 0.05


def _work_end(work: LaunchedWork, loop: Loop) -> int:
    is_own = (work.launch_ns >= loop.starts[0]) & (work.launch_ns < loop.end_ns) & _is_of_process(work, loop.process)
    return int(work.end[is_own].max(initial=loop.end_ns))


def _slow_count(work: LaunchedWork, loop: Loop, prompts: Ints) -> int:
    """Count the repetitions at the start that took much longer than the median; at least two remain.

    On the CPU and on the GPU: slow launches cost nothing while the GPU still has work to do.
    """
    starts, has_prompts = loop.starts, np.isin(loop.starts, prompts)
    # the first operation of each repetition, by its launch
    operations = np.flatnonzero((work.launch_ns >= starts[0]) & _is_of_process(work, loop.process))
    operations = operations[np.argsort(work.launch_ns[operations], kind="stable")]
    first = np.searchsorted(work.launch_ns[operations], starts)
    on_cpu = slow_at_start(starts, has_prompts)
    if (np.diff(np.append(first, len(operations))) == 0).any():
        return on_cpu
    return min(on_cpu, slow_at_start(work.start[operations[first]], has_prompts))


def slow_at_start(starts: Ints, has_prompts: Flags | None = None) -> int:
    """Count the repetitions before the first that does not take much longer than is typical; `starts` of all.

    has_prompts: which are steps of an engine with prompts, long or short: slow ones take longer than all later ones.
    """
    times = np.diff(starts)
    if len(times) < LEAST - 1:
        return 0
    is_longer = np.zeros(len(times), dtype=bool) if has_prompts is None else has_prompts[:-1]
    # only the second half counts: a long warm-up must not affect the typical time
    usual, longer = (part[len(part) // 2 :] for part in (times[~is_longer], times[is_longer]))
    typical = np.full(len(times), np.median(usual) if len(usual) else longer.max())
    typical[is_longer] = longer.max(initial=0)
    is_slow = times > _SLOW_FACTOR * typical
    return min(int(np.argmin(is_slow)) if not is_slow.all() else 0, len(starts) // 2)


_SLOW_FACTOR: Final = 1.5


def is_of_library(ranges: pd.DataFrame) -> Flags:
    """Return which ranges libraries open around their work: they are never the loop of a program."""
    names, domains = (ranges[name].cat for name in ("name", "domain"))
    by_domain = np.asarray(domains.categories.str.fullmatch(_LIBRARY_DOMAIN, case=False), dtype=bool)
    # a truncated export may lack the names of domains
    by_name = np.asarray(names.categories.str.match(_LIBRARY_RANGE), dtype=bool)
    flags: Flags = by_domain[domains.codes] | by_name[names.codes]
    return flags


# domains of CUDA's libraries, RAPIDS, the libraries of JAX, and communication, in the libraries' spelling
_LIBRARY_DOMAIN: Final = (
    r"(?:lib)?(?:CCCL|CUB|Thrust|TSL|XLA|NCCL|NVSHMEM|UCX|MPI|DALI|RAFT|RMM|KvikIO|TensorRT|transformer_?engine|"
    r"nv(?:JPEG\w*|JPEG2000|ImageCodec|COMP|TIFF)|cu(?:BLAS\w*|DNN|FFT\w*|RAND|SOLVER\w*|SPARSE\w*|TENSOR\w*|"
    r"StateVec|Quantum|DF|ML|Graph|Spatial|VS|CIM|OPT|Signal)(?:_python)?)"
)
_LIBRARY_RANGE: Final = r"nccl[A-Z]\w*$|cub::|thrust::|XlaModule:|XlaPass|XlaEmit"
# a path of ranges, "DOMAIN:NAME / ...", that begins with one of a library
LIBRARY_PATH: Final = rf"(?i:{_LIBRARY_DOMAIN}):|{_LIBRARY_RANGE}"


def _is_of_program(ranges: pd.DataFrame) -> Flags:
    """Return which of these ranges the program made, not PyTorch."""
    names, styles = (ranges[name].cat for name in ("name", "style"))
    is_of_torch = np.asarray(names.categories.str.match(_TORCH_RANGE), dtype=bool)[names.codes]
    return ~(is_of_torch | np.isin(styles.categories, (MODULE, FUNCTION))[styles.codes])


# the ranges that PyTorch annotates itself
_TORCH_RANGE: Final = (
    r"Optimizer\.(?:step|zero_grad)#|enumerate\(DataLoader\)#|(?:DistributedDataParallel|FullyShardedDataParallel|FSDP)\b|"
    r"nccl:|Torch-Compiled Region|## Call "
)


def _optimizer_loops(ranges: pd.DataFrame, work: LaunchedWork) -> list[Loop]:
    """Return the steps of each process: each ends with the step of its optimizer, where the next one begins.

    The first step is left out, because its start is unknown.
    """
    steps = nest(ranges[~ranges["is_open"] & ranges["name"].astype("str").str.match(OPTIMIZER_STEP)])
    # an optimizer that wraps another calls its step
    steps = steps[steps["parent"] < 0].sort_values("end_ns")
    loops = []
    for process in np.unique(steps["process"]).tolist():
        of_process = steps[steps["process"] == process]
        # of several optimizers, the last one ends the step
        of_process = of_process[of_process["name"] == of_process["name"].iloc[-1]]
        start, end = (of_process[name].to_numpy() for name in ("start_ns", "end_ns"))
        end = end[ends_a_step(start, end)]
        if len(end) < LEAST:
            continue
        span = pd.DataFrame({"start": end[:1], "end": end[-1:]})
        (gpu_ns,), total = _gpu_time_in(ranges, work, process, span)
        if gpu_ns > _LEAST_SHARE * total:
            family = ENDS_WITH.format(str(of_process["name"].iloc[0]).partition("#")[2])
            loops.append(Loop(process, family, end[:-1], int(end[-1]), int(gpu_ns), is_named=True))
    return loops


def _xla_loops(ranges: pd.DataFrame, work: LaunchedWork) -> list[Loop]:
    """Return for each process the executions of the program of XLA with most of the work: a jitted function of JAX.

    Other programs run between them, and while XLA compiles and tunes, threads launch work that belongs to no step.
    """
    names = ranges["name"].cat.categories.astype("str")
    program = names.str.extract(_XLA_EXECUTION, expand=True)
    label, number = (program[column].fillna("").to_numpy(dtype=object) for column in ("label", "program"))
    is_execution = (label != "")[ranges["name"].cat.codes] & ~ranges["is_open"].to_numpy()
    executions = ranges[is_execution].sort_values("start_ns")
    codes = executions["name"].cat.codes.to_numpy()
    executions = executions.assign(label=label[codes], program=number[codes])
    loops = []
    for process in np.unique(executions["process"]).tolist():
        best: Loop | None = None
        of_process = executions[executions["process"] == process]
        for (name, _), of_program in of_process.groupby(["label", "program"]):
            if len(of_program) < LEAST:
                continue
            instances = one_thread(of_program)
            (start, end), thread = _bounds(instances), instances["thread"].iloc[0]
            is_on_thread = _is_of_process(work, process) & (work.thread == thread)
            is_on_thread &= (work.launch_ns >= start[0]) & (work.launch_ns < end[-1])
            launch_ns, length = work.launch_ns[is_on_thread], (work.end - work.start)[is_on_thread]
            place = np.searchsorted(start, launch_ns, side="right") - 1
            inside = launch_ns < end[place]
            gpu_ns = int(length[inside].sum())
            all_executions = of_process["start_ns"].between(start[0], start[-1]) & (of_process["thread"] == thread)
            is_step = inside.sum() >= _LEAST_OF_PROGRAM * len(start)
            is_step |= len(start) >= _LEAST_OF_EXECUTIONS * all_executions.sum()
            if is_step and gpu_ns >= LEAST_OF_WORK * length.sum() and (best is None or gpu_ns > best.gpu_ns):
                best = Loop(process, str(name), start, int(end[-1]), gpu_ns, is_named=True)
        loops += [best] if best else []
    return loops


# XLA's name of the execution of a compiled program; those that it compiles to tune a kernel have no number
_XLA_EXECUTION: Final = r"^XlaModule:#(?:.*,)?hlo_module=(?P<label>[^,#]+),program_id=(?P<program>\d+)#?$"
# a program that launches fewer operations may be one operation of JAX outside of jit, where a step has many programs
_LEAST_OF_PROGRAM: Final = 5
_LEAST_OF_EXECUTIONS: Final = 1 / 3


def ends_a_step(start: Ints, end: Ints) -> Flags:
    """Return which steps of an optimizer (at least one) end a step of the program: of close ones, the last."""
    between = start[1:] - end[:-1]
    # not only the mean: it is large after a pause, such as a validation, which would hide every step
    usual = min(between.mean(), np.quantile(between, _SHARE_CLOSE, method="lower")) if len(between) else 0
    # with a checkpoint after every fifth step, the steps between are close in comparison, but still whole steps
    closest = min(_LEAST_BETWEEN * usual, _MOST_BETWEEN * np.median(end - start))
    return np.append(between >= closest, True)


def timed_step(table: pd.DataFrame, family: str) -> tuple[str, float]:
    """Return the path of a step in a table `timed_ranges`, and its time in ns; ("", NaN) if it was not timed.

    family: what repeats in the capture. That of torch.profiler exists only under it: then, and if it is "", a step is
    that of the optimizer, or else the outermost range or call with the most time.
    """
    if not family.startswith(LOOP):
        table = table[~table["path"].astype("str").str.startswith(LOOP)]
    paths = table["path"].astype("str")
    rows = table[paths == family]
    if not len(rows) and family:
        # the same range may have another path in the other run
        rows = table[paths.str.rsplit(" / ", n=1).str[-1] == family.rsplit(" / ", 1)[-1]]
    if not len(rows) and family in ("", _STEP_OF_TORCH) and len(table):
        ends_step = paths.str.startswith(ENDS_WITH.partition("{")[0])
        outermost = table[ends_step if ends_step.any() else ~paths.str.contains(" / ", regex=False)]
        rows = outermost.iloc[(outermost["instances"] * outermost["med_ns"]).argsort()[::-1][:1]]
    if not len(rows):
        return "", float("nan")
    row = rows.sort_values("instances", ascending=False, kind="stable").iloc[0]
    return str(row["path"]), float(row["med_ns"])


def timed_loop(table: pd.DataFrame, count: int, length_ns: float) -> tuple[str, float]:
    """Return the loop in a table `timed_ranges` whose iterations are the repetitions of a capture, and its time in ns.

    It is the longest that takes no longer without the profiler, and has as many iterations; fewer are enough, as that
    run may have ended early. ("", NaN) if there is none. count, length_ns: of the repetitions.
    """
    loops = table[table["path"].astype("str").str.startswith(LOOP)]
    share = loops["med_ns"] / max(length_ns, 1.0)
    is_such = share.between(_SHORTEST_TIMED, _LONGEST_TIMED)
    is_such &= loops["instances"].between(min(_FEWEST_ITERATIONS, count / 2), _MOST_ITERATIONS * count + LEAST)
    if not is_such.any():
        return "", float("nan")
    row = loops[is_such].sort_values("med_ns", kind="stable").iloc[-1]
    return str(row["path"]), float(row["med_ns"])


LOOP: Final = "loop "
"""The beginning of the path of a loop of the program in `timed_ranges`; workloads/injected/loops.py has the same."""
# how long an iteration takes without the profiler, as a share: calls cost up to three times as much under it, and two
# runs differ by some percent
_SHORTEST_TIMED: Final = 0.3
_LONGEST_TIMED: Final = 1.1
# the repetitions of a capture can lack the first and last iterations, but not more than that
_MOST_ITERATIONS: Final = 1.25
_FEWEST_ITERATIONS: Final = 10
_STEP_OF_TORCH: Final = "ProfilerStep"
OPTIMIZER_STEP: Final = r"Optimizer\.step#\w+\.step$"
ENDS_WITH: Final = "step (ends with {})"
"""The family of a loop that was found in steps of an optimizer; workloads/timed/sitecustomize.py has the same."""
# share of the usual time between optimizer steps: closer ones belong to one step of the program
_LEAST_BETWEEN: Final = 0.1
# no forward and backward pass fits between close ones: in `saved_often` of tests/real, these take 19 times as long as
# the step of the optimizer
_MOST_BETWEEN: Final = 3.0
# covers up to five optimizers in a step, and pauses as rare as one in ten steps
_SHARE_CLOSE: Final = 0.9


def _range_loops(ranges: pd.DataFrame, work: LaunchedWork) -> list[Loop]:
    """Return for each process the outermost family of repeated ranges that covers the most GPU work."""
    outermost = _outermost(ranges)
    if not len(outermost):
        return []
    keys = ["process", "path"]
    families = outermost.assign(length=outermost["end_ns"] - outermost["start_ns"]).groupby(keys, observed=True)
    spans = aggregate(families, start=("start_ns", "min"), end=("end_ns", "max"), own=("length", "sum")).reset_index()
    loops = []
    for process in np.unique(spans["process"]).tolist():
        candidates = spans[spans["process"] == process]
        gpu_ns, total = _gpu_time_in(ranges, work, process, candidates)
        if gpu_ns.max() <= _LEAST_SHARE * total:
            continue
        # of siblings in a cycle, such as forward and backward, the first one marks where it begins; brief ones,
        # such as separate operators, could be anywhere in it
        is_long = (candidates["own"] >= _LEAST_COVER * (candidates["end"] - candidates["start"])).to_numpy()
        is_good = gpu_ns >= _NEARLY_BEST * gpu_ns.max()
        cycle = candidates[is_good & is_long if (is_good & is_long).any() else is_good].sort_values(["start", "end"])
        path = cycle["path"].iloc[0]
        instances = outermost[(outermost["process"] == process) & (outermost["path"] == path)]
        instances = one_thread(instances).sort_values("start_ns")
        starts = instances["start_ns"].to_numpy()
        # `ProfilerStep#7` is `ProfilerStep##`
        family = str(path).replace("##", "#")
        loop = Loop(process, family, starts, int(cycle["end"].max()), int(gpu_ns.max()), is_named=True)
        loops.append(_drop_cut_repetition(work, loop, instances["end_ns"].to_numpy()))
    return loops


# share of the process's GPU time, or of the time of its ranges: a family that covers less is not the program's loop
_LEAST_SHARE: Final = 0.25
# families that cover this share of the time of the best one belong to the same loop
_NEARLY_BEST: Final = 0.9
_LEAST_COVER: Final = 0.05
_PREPARES: Final = r"(?<![a-z])(?:warm[ _-]?ups?|warming|compil(?:e|ing|ation))(?![a-z])"


def prepares(names: "pd.Series[str]") -> Flags:
    """Return which (categorical) names or paths of ranges contain warm-up or compilation: these do not count."""
    is_named = np.asarray(names.cat.categories.str.contains(_PREPARES, case=False, regex=True), dtype=bool)
    # no name has the code -1
    return np.append(is_named, False)[names.cat.codes]


def _outermost(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the repeated ranges that are in no other repeated range, and are not named warm-up or compile.

    In `path`, `#` replaces numbers. Ranges that never ended do not count: they would enclose all that follows.
    """
    ranges = count_instances(nested(ranges[~ranges["is_open"]]))
    repeated: Flags = (ranges["instances"].to_numpy() >= LEAST) & ~prepares(ranges["path"])
    inner = np.zeros(len(ranges), dtype=bool)
    for rows, above in ancestors(ranges["parent"].to_numpy()):
        inner[rows] |= repeated[above]
    columns = ["process", "thread", "path", "start_ns", "end_ns"]
    outermost: pd.DataFrame = ranges[columns].iloc[np.flatnonzero(repeated & ~inner)]
    return outermost


def one_thread(instances: pd.DataFrame) -> pd.DataFrame:
    """Return the instances of one thread if several run the loop in parallel, each with its own ranges."""
    ordered = instances.sort_values("start_ns")
    threads = ordered["thread"].to_numpy()
    overlaps = (ordered["start_ns"].to_numpy()[1:] < ordered["end_ns"].to_numpy()[:-1]) & (threads[1:] != threads[:-1])
    if overlaps.sum() * 2 < len(instances) - 1:
        return instances
    busiest: Any = instances["thread"].value_counts(sort=True).index[0]
    one: pd.DataFrame = instances[instances["thread"] == busiest]
    return one


def _is_of_process(work: LaunchedWork, process: int) -> Flags:
    """Return which operations a process launched; in old exports, which lack processes, all operations."""
    flags: Flags = (work.process == process) | (work.process < 0)
    return flags


def _gpu_time_in(ranges: pd.DataFrame, work: LaunchedWork, process: int, spans: pd.DataFrame) -> tuple[Ints, int]:
    """Return the GPU time in ns that the process launched in each of `spans`, and in total without warm-up.

    Without GPU work in the capture, these are the lengths of `spans`, and the time of all ranges of the process.
    """
    recorded = ranges[ranges["process"] == process]
    low, high = union(*_bounds(recorded[prepares(recorded["name"]) & ~recorded["is_open"]]))
    preparing = pd.DataFrame({"start": low, "end": high})
    if len(work.start):
        gpu_ns, total = _launched_between(work, process, spans)
        return gpu_ns, total - (int(_launched_between(work, process, preparing)[0].sum()) if len(preparing) else 0)
    length: Ints = (spans["end"] - spans["start"]).to_numpy()
    start, end = _bounds(recorded)
    return length, int(end.max() - start.min() - (high - low).sum())


def _bounds(ranges: pd.DataFrame) -> Spans:
    return ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()


def _launched_between(work: LaunchedWork, process: int, spans: pd.DataFrame) -> tuple[Ints, int]:
    """Return the GPU time in ns that the process launched in each of `spans`, and in total."""
    is_of_process = _is_of_process(work, process)
    launch_ns, length = work.launch_ns[is_of_process], (work.end - work.start)[is_of_process]
    order = np.argsort(launch_ns, kind="stable")
    launch_ns, gpu_ns_before = launch_ns[order], np.concatenate(([0], np.cumsum(length[order])))
    low = np.searchsorted(launch_ns, spans["start"].to_numpy(), side="left")
    high = np.searchsorted(launch_ns, spans["end"].to_numpy(), side="left")
    return gpu_ns_before[high] - gpu_ns_before[low], int(gpu_ns_before[-1])


def _launch_loops(profile: Profile, work: LaunchedWork) -> list[Loop]:
    """Return the loop of each process that repeatedly launches the same kernels in the same order."""
    names, launch, loads = _name_codes(profile), launch_keys(profile)[0], _calls(profile, _LOADS)["start_ns"].to_numpy()
    is_tuning = is_xla_tuning(profile, work.thread, work.launch_ns)
    names = np.where(is_tuning & (names >= 0), _TUNING, names)
    work = work._replace(end=np.where(is_tuning, work.start, work.end))
    syncs, least = _calls(profile, _SYNCS), 0.0 if framework_of(profile) == JAX else _LEAST_OF_ALL

    def loop_in(rows: Ints, process: int) -> Loop | None:
        """Return the loop of these operations: that of the busiest thread that has one; others may only compile."""
        thread_of_row = np.unique(work.thread[rows], return_inverse=True)[1]
        busy_ns = np.bincount(thread_of_row, (work.end - work.start)[rows])
        for thread in np.argsort(-busy_ns, kind="stable")[:_MOST_THREADS].tolist():
            on_thread = rows[thread_of_row == thread]
            on_thread = on_thread[np.lexsort((work.start[on_thread], work.launch_ns[on_thread]))]
            # the kernels of a graph have one launch, represented by the first of them
            on_thread = on_thread[np.append(True, launch[on_thread[1:]] != launch[on_thread[:-1]])]
            launch_ns, caller = work.launch_ns[on_thread], work.thread[on_thread[0]]
            copies = work.launch_ns[(names == _COPY) & (work.process == process) & (work.thread == caller)]
            waits = syncs["start_ns"].to_numpy()[syncs["thread"].to_numpy() == caller]
            follows = [_have_between(launch_ns, np.sort(others)) for others in (copies, waits)]
            marks = follows[0] + 2 * follows[1]
            of_thread = names[on_thread], launch_ns, marks
            loop = _launch_loop(work, process, *of_thread, loads=loads, least=least)
            if loop := loop or _waiting_loop(work, process, *of_thread, loads=loads):
                return loop
        return None

    loops = []
    for process in np.unique(work.process).tolist():
        rows = np.flatnonzero((names >= 0) & (work.process == process))
        loop = loop_in(rows, process)
        if len(loads) and (loop is None or loop.starts[-1] < loads[-1]):
            # what repeats before kernels are loaded may be their tuning
            loop = loop_in(rows[work.launch_ns[rows] > loads[-1]], process) or loop
        loops += [loop] if loop else []
    return loops


_MOST_THREADS: Final = 4


def _have_between(launch_ns: Ints, others: Ints) -> Ints:
    """Return 1 for each launch that has any of `others` between the previous launch and itself, 0 for the rest."""
    return (np.diff(np.searchsorted(others, launch_ns), prepend=0) > 0).astype(np.int64)


def _calls(profile: Profile, pattern: str) -> pd.DataFrame:
    """Return name, process, thread and start of the CUDA calls whose names match, in order."""
    calls = profile.recorded("api_calls")
    chosen = calls[are_named(calls["name"], pattern)]
    return chosen[["name", "process", "thread", "start_ns"]].sort_values("start_ns")


# launches before modules are loaded belong to the start-up, such as tuning of kernels
_LOADS: Final = "^cu(?:Module|Library)Load"
_SYNCS: Final = "Synchronize"


def _launch_loop(
    work: LaunchedWork, process: int, names: Ints, launch_ns: Ints, marks: Ints, *, loads: Ints, least: float
) -> Loop | None:
    """Return the loop of one thread from its launches, in order: a number for the name, and the time.

    marks: a number for what the thread does before each launch, copies and waits, which divide a loop of one kernel.
    loads: when modules were loaded. least: the share of all GPU time that the loop must cover.
    """
    repeated = _period(names, _LEAST_LAUNCHES) or _period_of_long_steps(names, launch_ns)
    if repeated is None:
        return None
    period, first, count = repeated
    divided = _period(marks[first + 1 : first + count], _LEAST_LAUNCHES) if period == 1 else None
    if divided and divided[0] > 1 and divided[2] >= _NEARLY_BEST * count:
        period, start, count = divided
        first += 1 + start
    phase = _phase(launch_ns[first : first + count], period)
    count_of_periods = (count - phase) // period
    launches = launch_ns[first + phase : first + phase + count_of_periods * period]
    starts, end = launches[::period], int(launches[-1]) + 1
    before = int(loads[: np.searchsorted(loads, starts[0])].max(initial=np.iinfo(np.int64).min))
    spans = pd.DataFrame({"start": [starts[0], before], "end": [end, np.iinfo(np.int64).max]})
    (gpu_ns, after_loads), total = _launched_between(work, process, spans)
    if count_of_periods < LEAST - 1 or gpu_ns < max(LEAST_OF_WORK * after_loads, least * total):
        return None
    of_what = f"{UNNAMED} {period:,} launches" if period > 1 else f"{UNNAMED} launch"
    return Loop(process, of_what, starts, end, int(gpu_ns), is_named=False)


def _waiting_loop(
    work: LaunchedWork, process: int, names: Ints, launch_ns: Ints, marks: Ints, *, loads: Ints
) -> Loop | None:
    """Return the loop of a thread whose iterations all wait for the GPU, and that other work interrupts.

    A solver iterates until its residual is small: other numbers of iterations each time, so no long run repeats.
    Without a wait in each, what repeats may be the layers of a model. For the parameters, see `_launch_loop`.
    """
    after_loads = int(np.searchsorted(launch_ns, loads.max(initial=0)))
    names, launch_ns, marks = names[after_loads:], launch_ns[after_loads:], marks[after_loads:]
    if len(names) < _LEAST_LAUNCHES:
        return None
    for distance in _distances(names):
        first, count = _longest_run(names, distance) if distance <= _LONGEST_INTERRUPTED else (0, 0)
        if count + distance < LEAST * distance:
            continue
        phase = first + _phase(launch_ns[first : first + count + distance], distance)
        pattern = names[phase : phase + distance]
        shorter = (each for each in range(1, distance) if distance % each == 0)
        period = next((each for each in shorter if (pattern[each:] == pattern[:-each]).all()), distance)
        places = np.arange(len(names) - period)
        for position in range(period):
            places = places[names[places + position] == pattern[position]]
        places = places[np.append(True, np.diff(places) >= period)[: len(places)]]
        if len(places) * period < _MOST_OF_TIME * len(names) or len(places) < _LEAST_LAUNCHES:
            continue
        # the wait is before the launch after it
        waits = np.append(0, np.cumsum(marks >= _WAITS))
        if (waits[places + period + 1] > waits[places + 1]).mean() < _NEARLY_BEST:
            continue
        ends = launch_ns[places + period - 1] + 1
        spans = pd.DataFrame(
            {"start": np.append(launch_ns[places], launch_ns[0]), "end": np.append(ends, np.iinfo(np.int64).max)}
        )
        gpu_ns, _ = _launched_between(work, process, spans)
        if gpu_ns[:-1].sum() >= LEAST_OF_WORK * gpu_ns[-1]:
            of_what = f"{UNNAMED} {period:,} launches" if period > 1 else f"{UNNAMED} launch"
            return Loop(process, of_what, launch_ns[places], int(ends[-1]), int(gpu_ns[:-1].sum()), is_named=False)
    return None


# of the numbers for what a thread does before a launch: that it waits
_WAITS: Final = 2
_LONGEST_INTERRUPTED: Final = 200
# of the GPU time of the process: a sequence that covers less is not the program's loop
LEAST_OF_WORK: Final = 0.5
# of all of it, if modules were loaded before the sequence; XLA may tune kernels for longer than the program runs
_LEAST_OF_ALL: Final = 0.1
UNNAMED: Final = "the same"
"""The beginning of the family of a loop that was found in launches (`the same 29 launches`)."""


def _name_codes(profile: Profile) -> Ints:
    """Return a number for the name of each operation: _COPY for copies and memsets, one for all whole graphs."""
    kernels = profile.recorded("kernels")["name"].cat.codes.to_numpy().astype(np.int64)
    copies, graphs = (len(profile.recorded(name)) for name in GPU_TABLES[1:])
    most = int(kernels.max(initial=-1)) + 1
    return np.concatenate([kernels, np.full(copies, _COPY), np.full(graphs, most)])


_COPY: Final = -1
_TUNING: Final = -2


def _period(names: Ints, least: int) -> tuple[int, int, int] | None:
    """Return how many launches make up a repetition, the position of the first launch that repeats, and their number.

    The smallest period whose longest run is nearly as long as the longest of any period; None if nothing repeats.
    least: fewer launches prove nothing.
    """
    runs = {period: _longest_run(names, period) for period in _distances(names) if period * LEAST <= len(names)}
    longest = max((count for _, count in runs.values()), default=0)
    for period, (first, count) in sorted(runs.items()):
        repeated = count + period
        if count >= _NEARLY_BEST * longest and repeated >= max(LEAST * period, least):
            return period, first, repeated
    return None


def _distances(names: Ints) -> list[int]:
    """Return the distances between occurrences of the rarest repeated kernels, and sums of them: likely periods."""
    counts = np.bincount(names)
    rare = np.argsort(np.where(counts >= LEAST, counts, len(names) + 1), kind="stable")[:_RAREST]
    distances: list[Ints] = [np.array([1])]
    for name in rare[counts[rare] >= LEAST].tolist():
        differences = np.diff(np.flatnonzero(names == name))
        sums = (np.convolve(differences, np.ones(many, dtype=np.int64), "valid") for many in range(1, _MOST_SUMMED + 1))
        distances += [_most_frequent(values) for values in sums if len(values)]
    return [int(distance) for distance in np.unique(np.concatenate(distances))]


def _period_of_long_steps(names: Ints, launch_ns: Ints) -> tuple[int, int, int] | None:
    """Return the same for fewer launches that take most of the time, such as steps of which each is compiled."""
    for period in _distances(names):
        if period * LEAST <= len(names):
            first, count = _runs(names, period)
            repeated = count + period
            span_ns = launch_ns[np.minimum(first + repeated, len(names)) - 1] - launch_ns[first]
            span_ns[repeated < max(LEAST * period, _LEAST_LONG)] = 0
            longest = int(span_ns.argmax())
            if span_ns[longest] > _MOST_OF_TIME * (launch_ns[-1] - launch_ns[0]):
                return period, int(first[longest]), int(repeated[longest])
    return None


# fewer consecutive launches prove nothing, but fewer are sufficient if they take most of the time
_LEAST_LAUNCHES: Final = 20
_LEAST_LONG: Final = 6
_MOST_OF_TIME: Final = 0.5
_RAREST: Final = 4
_MOST_SUMMED: Final = 4
_MOST_TRIED: Final = 3


def _most_frequent(values: Ints) -> Ints:
    distinct, counts = np.unique(values, return_counts=True)
    return distinct[np.argsort(-counts, kind="stable")[:_MOST_TRIED]]


def _longest_run(names: Ints, period: int) -> tuple[int, int]:
    """Return the start and length of the longest run of launches that occur again `period` launches later."""
    first, count = _runs(names, period)
    longest = int(count.argmax())
    return int(first[longest]), int(count[longest])


def _runs(names: Ints, period: int) -> tuple[Ints, Ints]:
    """Return the start and length of all runs of launches that occur again `period` launches later."""
    breaks = np.flatnonzero(names[period:] != names[:-period])
    edges = np.concatenate(([-1], breaks, [len(names) - period]))
    return edges[:-1] + 1, np.diff(edges) - 1


def _phase(launch_ns: Ints, period: int) -> int:
    """Return the position in the period before which the CPU usually pauses longest: the start of a repetition."""
    periods = len(launch_ns) // period
    pauses = np.diff(launch_ns, prepend=launch_ns[:1])[: periods * period].reshape(periods, period)
    # the first has nothing before it
    return int(np.median(pauses[1:], axis=0).argmax())


def launched_work(profile: Profile) -> LaunchedWork:
    """Return all GPU operations with their launches."""
    tables = [profile.recorded(name) for name in GPU_TABLES]
    start, end = (np.concatenate([table[name].to_numpy(dtype=np.int64) for table in tables]) for name in _TIMES)
    process = np.concatenate([integers(table["process"]) for table in tables])
    call = launching_calls(profile)
    if not (call >= 0).any():
        return LaunchedWork(start, end, start, process, process)
    calls = profile.table("api_calls")
    is_known = call >= 0
    launch_ns = np.where(is_known, calls["start_ns"].to_numpy()[call], start)
    thread = np.where(is_known, calls["thread"].to_numpy()[call], process)
    return LaunchedWork(start, end, launch_ns, process, thread)


_TIMES: Final = ("start_ns", "end_ns")
