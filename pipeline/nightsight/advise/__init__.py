"""Advice on a report: causes of lost time, each with its place, what to do about it, and the gain of doing so.

Causes and gains are those of the replayed remedies (the result `what_if`); symptoms, such as low utilization, gaps or
short kernels, are evidence at most. Remedies of little gain are left out, so a healthy program gets no advice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.advise.kernels import KERNEL_RULES
from nightsight.advise.replays import replay_advice
from nightsight.advise.tables import Tables
from nightsight.events.communication import PAIRWISE
from nightsight.events.kernel_labels import label_of
from nightsight.events.loops import UNNAMED
from nightsight.model.report import Finding, Result, find
from nightsight.results.categories import ALLOCATION, COMMUNICATION, COMPUTE, COPIES, HOST, LAUNCH, MODULE, SYNC
from nightsight.results.causes import RANKED_BY, REPLAY, SIMULATED, WHAT_IF, WORTH_PCT, WORTH_PCT_OF
from nightsight.results.entry import Entry
from nightsight.results.gpu_time import CRITICAL_PATH, GPU_TIME, TIME_SPLIT
from nightsight.results.ncu import NCU_KERNELS, NCU_LIMITS, NCU_RULES
from nightsight.results.program import CUDA_API_SUM
from nightsight.results.ranks import COLLECTIVES, PIPELINE_STAGES, RANKS
from nightsight.units import format_value

__all__ = ["NEEDS", "RULES", "Rule", "advise", "unchecked"]

NEEDS: Final[tuple[Entry, ...]] = (
    WHAT_IF,
    REPLAY,
    CRITICAL_PATH,
    GPU_TIME,
    TIME_SPLIT,
    COLLECTIVES,
    NCU_RULES,
    NCU_KERNELS,
    NCU_LIMITS,
)
"""The results that advice reads."""
_NOT_KEPT_WAITING: Final = (
    "Look at what it waits for: a queue that is filled too slowly wants more workers, a lock wants to be held for less."
)
_OUTSIDE: Final = "outside all NVTX ranges"
_MOST: Final = 8
_MOST_EVIDENCE: Final = 3


@dataclass(frozen=True)
class Rule:
    """What is said about one kind of remedy.

    short: what to do, in a few words. title: the cause, with `{where}`, `{name}`, `{cases}`. causes: of the critical
    path, as evidence. once: the remedy where nothing repeats, if it is another one. of_rank: the title where a rank is
    known that the others wait for. saves: the time is what can be saved; otherwise it is what the cause costs.
    """

    name: str
    short: str
    title: str
    detail: str
    remedy: str
    causes: tuple[str, ...] = ()
    once: str = ""
    of_rank: str = ""
    saves: bool = False

    @property
    def least_pct(self) -> float:
        """The least gain, in percent of a step, that is worth a word."""
        return WORTH_PCT_OF.get(self.name, WORTH_PCT)


def _of_kernels(name: str) -> Rule:
    words = KERNEL_RULES[name]
    title = f"{words.title}: {{name}}"
    return Rule(name, words.short, title, words.detail, words.remedy, saves=True)


_KERNELS: Final = (
    "tensor_cores",
    "fusion",
    "attention",
    "fused_optimizer",
    "fp64",
    "layout",
    "concatenation",
    "small_grid",
)
RULES: Final = (
    Rule(
        "host_code",
        "do it ahead of time, or in another thread",
        "The GPU waits for host code {where}",
        "Nothing is launched while this code runs, and the GPU has nothing left to do.",
        "Do it ahead of time, in another process or thread (DataLoader workers, prefetching). Make faster what has to "
        "run here: no Python loop over elements, fewer and larger operations, torch.compile.",
        (HOST,),
        of_rank="{name} runs host code {where}, and the others wait for it",
    ),
    Rule(
        "interpreter",
        "move it to another process",
        "Python code of another thread keeps the interpreter: `{name}`",
        "Only one thread of a process runs Python at a time (GIL). While that thread does, the one that launches waits "
        "for its turn, again and again, 5 ms or more each time.",
        "Run that code in a process of its own (multiprocessing, a DataLoader worker), do less of it, or leave it to "
        "code that gives the interpreter back meanwhile (NumPy, C++).",
        (HOST,),
    ),
    Rule(
        "wait",
        "do not wait there",
        "The CPU waits for the GPU {where} ({name})",
        "While it waits, its thread launches nothing, so the GPU runs dry until the next launches arrive.",
        "Do not wait in each step: no .item(), .cpu(), print of a tensor or branch on one. Keep values on the GPU, and "
        "fetch them once in many steps, or one step late from pinned memory.",
        (SYNC,),
    ),
    Rule(
        "wait_and_host_code",
        "take the wait or the host code out",
        "The GPU runs dry {where}, which waits for it and then runs host code",
        "The wait keeps the CPU from running ahead, so the GPU has nothing to do during the host code after it.",
        "Take the wait (.item(), .cpu(), synchronize) or the host code out of the step, or do both once in many steps.",
        (SYNC, HOST),
    ),
    Rule(
        "launch_bound",
        "use a CUDA graph",
        "The GPU waits for launches {where}, {cases} {each}{most}",
        "The CPU takes longer to launch this work than the GPU to do it.",
        'Launch the work as a CUDA graph (torch.compile(mode="reduce-overhead"), torch.cuda.graph), or launch less: '
        "fused kernels, fused or foreach optimizers, larger batches. A graph cannot hold a wait for the GPU.",
        (LAUNCH,),
    ),
    Rule(
        "allocation",
        "allocate before the loop",
        "Memory is allocated and freed {where}, {cases} calls {each}, most of their time in {name}",
        "cudaFree waits for the GPU, and cudaMalloc takes long.",
        "Do not call torch.cuda.empty_cache() in a loop, keep PyTorch's caching allocator on, allocate buffers before "
        "the loop, or use cudaMallocAsync.",
        (ALLOCATION,),
    ),
    Rule(
        "loading",
        "load once, before the work",
        "Modules or kernels are loaded {where}, most of the time in {name}",
        "A thread that loads code launches nothing meanwhile.",
        "Load each module once, before the loop; warm up every kernel and shape; CUDA_MODULE_LOADING=EAGER.",
        (MODULE,),
        once="That happens once. If it matters, load fewer modules, or keep the process alive between runs. To see "
        "what follows, choose that part (--window).",
    ),
    Rule(
        "compilation",
        "compile once",
        "Code is compiled {where}, then loaded with {name}",
        "Host code runs until a new module is loaded: a compiler (Triton, NVRTC, torch.compile).",
        "Compile once: no argument that specialises the kernel (tl.constexpr, shapes) may change from step to step; "
        "torch.compile(dynamic=True); torch.backends.cudnn.benchmark = False, or padded lengths; warm up before the "
        "loop.",
        (MODULE, HOST),
        once="That happens once. Keep what was compiled between runs (TRITON_CACHE_DIR, "
        "TORCHINDUCTOR_FX_GRAPH_CACHE=1). To see what follows, choose that part (--window).",
    ),
    Rule(
        "pageable_copy",
        "pin the memory and copy ahead of time",
        "Copies of pageable memory {where} ({name})",
        "Memory that is not pinned goes through a buffer of the driver: the copy is slow, and the call waits for it.",
        "Pin the host's side (DataLoader(pin_memory=True), tensor.pin_memory()), and copy ahead of time on a stream of "
        "its own with non_blocking=True.",
        (COPIES,),
    ),
    Rule(
        "exposed_copy",
        "copy ahead of time, on a stream of its own",
        "Copies {where} ({name}) run while nothing is computed",
        "Copies on the stream of the kernels come before or after them, not beside them.",
        "Copy the next batch on a stream of its own while this one is computed.",
        (COPIES,),
    ),
    Rule(
        "copies_to_host",
        "leave the results on the GPU",
        "Copies to the host {where}",
        "Results leave the GPU in each step, and the thread waits for them.",
        "Reduce them on the GPU and copy less, or copy to pinned memory on a stream of its own and read a step later.",
        (COPIES,),
    ),
    Rule(
        "many_small_copies",
        "copy once for many",
        "{cases} small copies {each} {where} ({name})",
        "Each costs a call, and most a wait; the bytes cost next to nothing.",
        "Put them into one buffer, and copy that once; or build the values on the GPU.",
        (LAUNCH, SYNC),
    ),
    Rule(
        "migration",
        "move the pages ahead of time",
        "Kernels or host code wait for pages of managed memory {where}",
        "What touches a page that is on the other side stops until the driver has moved it.",
        "Move pages before they are needed: cudaMemPrefetchAsync to the GPU before the kernel, and to the host before "
        "the CPU reads. Or keep the data on the GPU (cudaMalloc), and copy between pinned memory and it.",
        (COMPUTE, HOST),
    ),
    Rule(
        "exposed_communication",
        "overlap it with computation",
        "The GPU waits for communication that nothing hides",
        "Kernels wait for a collective although other work could run beside it. Half of its time counts as "
        "hidden then, over NVLink a seventh: the rest is taken from kernels beside it, or has none.",
        "Start collectives as soon as their data is ready, on their own stream: DistributedDataParallel with buckets, "
        "FSDP prefetching, async_op=True.",
        (COMMUNICATION,),
        saves=True,
    ),
    Rule(
        "repeated_reduction",
        "reduce gradients once for each update",
        "Gradients are reduced in each of {name} between two updates",
        "The optimizer uses only their sum, so reducing them in the last one is enough.",
        "Skip it in all others: `no_sync()` of DistributedDataParallel, `set_requires_gradient_sync(False)` of "
        "fully_shard.",
        (COMMUNICATION,),
        saves=True,
    ),
    Rule(
        "straggler",
        "give all ranks the same work",
        "{name} computes longer than the others, which wait for it in collectives",
        "A collective transfers nothing until its last rank has come.",
        "Give all ranks the same work: batches of equal size, sequences sorted by length, layers spread evenly.",
        saves=True,
    ),
    Rule(
        "uneven_stages",
        "split the layers evenly over the stages",
        "{name} is the slowest stage of the pipeline, and the others wait for it",
        "Each microbatch passes through all stages, so the slowest one sets the pace.",
        "Move layers from that stage to the others. The first and the last want fewer: they have the embedding and the "
        "loss, too.",
        saves=True,
    ),
    Rule(
        "uneven_experts",
        "give all experts the same work",
        "{name} has more work for its experts, and the others wait for it in all-to-alls",
        "What experts have calculated is given back when the last rank has come.",
        "Balance the experts: an auxiliary loss or a bias of the router, a capacity for each expert, copies of those "
        "that are chosen often, other experts together on a rank.",
        saves=True,
    ),
    *map(_of_kernels, _KERNELS),
)
"""What advice looks for in the replay."""
_NEEDED: Final = tuple(column.name for column in WHAT_IF.columns if not column.is_optional)
_BY_NAME: Final = {rule.name: rule for rule in RULES}
# remedies of one place that gain the same time twice: the best is said
_SAME_TIME: Final = frozenset(
    ("host_code", "wait", "wait_and_host_code", "copies_to_host", "many_small_copies", "compilation")
)


# of the start-up nothing is worth what a step is worth: what it consists of, and what makes it shorter
_AT_START: Final = "It happens once, and matters only if the program is brief or often started."
_AT_START_OF: Final = {
    "host_code": "It happens once: imports, data and weights that are read, setting up. If it matters, import and read "
    "less, or keep the process alive between runs.",
    "loading": "It happens once. If it matters, load fewer modules, or keep the process alive between runs.",
    "compilation": "It happens once. If it matters, keep what was compiled between runs (TRITON_CACHE_DIR, "
    "TORCHINDUCTOR_FX_GRAPH_CACHE=1).",
}

# it gains more than what comes first, which is told nowhere else
_GRAPH_LATER: Final = "then use a CUDA graph, which cannot hold waits"
_NEARLY_ALL: Final = 0.9
# what names the rank comes first unless something else gains so many times as much
_OF_A_RANK: Final = 1.2


def advise(results: Sequence[Result], *, is_start_up: bool = False) -> tuple[Finding, ...]:
    """Return what is worth changing: first what counts most, then the largest gain first; empty if nothing is wrong.

    is_start_up: the results are of what comes before the loop, so what helps in each step is no advice.
    """
    tables = Tables(results)
    others = ((said, said.gain_pct or 0.0) for said in (*replay_advice(tables), *_late_rank(tables)))
    counted = [*_causes(tables, is_start_up=is_start_up), *others, *_bubbles(tables), *_lone_ranks(tables)]
    if not counted:
        return ()
    first = max(counted, key=lambda pair: pair[1])
    rest = sorted(
        (pair for pair in counted if pair is not first),
        key=lambda pair: -(pair[1] if pair[0].gain_pct is None else pair[0].gain_pct),
    )
    return tuple(said for said, _ in (first, *rest))


def of_whole(findings: Iterable[Finding], start_up: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the advice on a whole run: what nearly all happens before the loop is said as it is of the start-up."""
    early = {(finding.rule, finding.cause): finding.gain_ns or 0 for finding in start_up}
    return tuple(
        _once(finding)
        if early.get((finding.rule, finding.cause), 0) > _NEARLY_ALL * (finding.gain_ns or 0)
        else finding
        for finding in findings
    )


def _once(finding: Finding) -> Finding:
    return replace(finding, remedy=_AT_START_OF.get(finding.rule, _AT_START), action="")


def _late_rank(tables: Tables) -> Iterator[Finding]:
    """Yield a finding if all other ranks once waited for one, for much longer than a step takes."""
    ranks = tables.rows(RANKS, "rank", "step_ns", "late_ns", "late_at_ns")
    ranks = ranks[ranks["late_ns"] >= np.maximum(_LATE_NS, _LATE_STEPS * ranks["step_ns"])]
    for row in ranks.sort_values(["late_ns", "rank"], ascending=[False, True]).head(1).to_dict("records"):
        late, at = (format_value(int(row[name]), name) for name in ("late_ns", "late_at_ns"))
        cause = f"Rank {row['rank']} came late once, and all others waited"
        yield Finding(
            "late_rank",
            "advice",
            f"{cause}: {late}",
            f"It came {at} after the first GPU operation. What it did until then took the whole job so long.",
            "Look at that rank before that time: loading, compiling, a slow disk, a checkpoint that only it writes. Do "
            "it on all ranks at once, or before the others begin.",
            source=RANKS.name,
            cause=cause,
            action="let it begin with the others",
        )


def _lone_ranks(tables: Tables) -> Iterator[tuple[Finding, float]]:
    """Yield a finding if much of the window goes to collectives of ranks that are not all here, and what it counts.

    That is their share of the window in percent: no gain is promised, but it may be all that there is to gain.
    """
    split, calls = (tables.rows(entry, *columns) for entry, columns in _OF_LONE_RANKS)
    share = split["share_pct"].where(split["category"] == COMMUNICATION, 0.0).groupby(split["device"]).sum().mean()
    # what meets has a skew; the transfer is known if all members met, and pairs are only ever two of them
    met = calls["skew_ns"].notna() & (calls["transfer_ns"].notna() | calls["name"].isin(PAIRWISE))
    is_lone = ~met & (calls["group_size"].fillna(2) > 1)
    # of all ranks and steps
    exposed = calls["exposed_ns"] * calls["total_ns"] / (calls["avg_ns"] * calls["calls"])
    share *= exposed.where(is_lone, 0.0).sum() / max(exposed.sum(), 1.0)
    if not share >= _LONE_PCT:
        return
    is_one = split["device"].nunique() == 1
    who, waits = ("This rank spends", "it waits") if is_one else ("These ranks spend", "they wait")
    others = " with missing ranks" * bool(calls["skew_ns"].notna().any())
    yield (
        Finding(
            "lone_rank",
            "advice",
            f"{who} {format_value(float(share), 'share_pct')} of the window in communication{others}: only captures of "
            f"all ranks tell whether {waits} for others or for the link",
            "Communication ends when all have come and the data is there, and the others are not in this capture.",
            "Record all ranks, and give their captures together: nightsight report rank* makes one report of the job, "
            "which names whom the others wait for (docs/ranks.md).",
            source=COLLECTIVES.name,
            action="record all ranks, and report them together (`nightsight report rank*`)",
        ),
        float(share),
    )


_OF_LONE_RANKS: Final = (
    (TIME_SPLIT, ("device", "category", "share_pct")),
    (COLLECTIVES, ("name", "skew_ns", "transfer_ns", "group_size", "exposed_ns", "total_ns", "avg_ns", "calls")),
)
_LONE_PCT: Final = 10.0


def _bubbles(tables: Tables) -> Iterator[tuple[Finding, float]]:
    """Yield a finding if the stages of a pipeline wait for each other, and what it counts, as of `_lone_ranks`.

    That is what twice as many microbatches would save of a step in percent, if that is known.
    """
    stages = tables.rows(PIPELINE_STAGES, *PIPELINE_STAGES.column_names).dropna(subset=["even_pct", "microbatches"])
    mean = stages.groupby("pipeline")["bubble_pct"].mean()
    if not len(mean) or mean.max() < _BUBBLE_PCT:
        return
    mine = stages[stages["pipeline"] == mean.idxmax()]
    count, batches, bubble = len(mine), int(mine["microbatches"].iloc[0]), float(mean.max())
    step, work = float(mine["step_ns"].mean()), mine["work_ns"]
    # the first microbatch passes through all stages, the others follow at the pace of the slowest
    fill = float(work.sum() - work.max()) / batches
    even = f"({count} - 1) / ({batches} + {count} - 1) = {mine['even_pct'].iloc[0]:.0f} %"
    is_explained = bool(abs(fill + float(work.max()) - step) <= _BUBBLE_PCT / 100 * step)
    less = f"{format_value(fill / 2, 'gain_ns')} of the {format_value(step, 'gain_ns')} of a step"
    gain = f" Twice as many, each half as large, would save up to {less}, if kernels are as efficient then."
    cause = "Stages of a pipeline wait for each other"
    said = Finding(
        "pipeline_bubble",
        "advice",
        f"{cause}: {bubble:.0f} % of a step",
        f"A step has {batches:,} {'microbatch' if batches == 1 else 'microbatches'} on {count:,} stages. While the "
        f"pipeline fills and drains, even stages wait, too: {even} of a step.{gain * is_explained}",
        "Split a batch into more microbatches: with 1F1B that takes no more memory. Or give each rank several shorter "
        "stages (interleaved schedule).",
        source=PIPELINE_STAGES.name,
        cause=cause,
        action="use more microbatches",
    )
    yield said, 100 * fill / 2 / step if is_explained else 0.0


# the share of a step from which bubbles are worth a word, and by which a step may differ from what stages explain
_BUBBLE_PCT: Final = 10
_LATE_NS: Final = 1e9
_LATE_STEPS: Final = 20


def unchecked(results: Sequence[Result]) -> dict[str, str]:
    """Return, by name, the rules that could not be checked, each with the reason."""
    simulated = find(results, WHAT_IF.name)
    if simulated is not None and simulated.table is None:
        return dict.fromkeys(_BY_NAME, simulated.unavailable)
    tables = Tables(results)
    replays = tables.rows(REPLAY, "calls", "doubt").to_dict("records")
    if not replays:
        return dict.fromkeys(_BY_NAME, "there is nothing to simulate")
    if doubt := replays[0]["doubt"]:
        return dict.fromkeys(_BY_NAME, doubt)
    why = "no CUDA calls were recorded"
    calls = find(results, CUDA_API_SUM.name)
    if calls is not None and calls.table is not None:
        why = "no CUDA call was made in this window, whose work was launched before"
    found = {} if replays[0]["calls"] else dict.fromkeys(_BY_NAME.keys() - set(_KERNELS), why)
    if not len(tables.rows(NCU_LIMITS)):
        found |= dict.fromkeys(sorted(KERNEL_RULES.keys() - _BY_NAME.keys()), "no kernel was replayed with ncu")
    return found


def _causes(tables: Tables, *, is_start_up: bool) -> Iterator[tuple[Finding, float]]:
    """Yield a finding for each remedy whose gain is worth it, and how it counts for the first place."""
    replays, found = tables.rows(REPLAY, *REPLAY.column_names), tables.rows(WHAT_IF, *_NEEDED)
    found = found[found["gain_pct"].notna() & found["rule"].isin(list(_BY_NAME))]
    if not len(replays):
        return
    whole: dict[Any, Any] = replays.iloc[0].to_dict()
    rules = found["rule"].map(_BY_NAME)
    score = found["gain_pct"] * found["rule"].map(lambda rule: RANKED_BY.get(rule, 1.0)).astype("float64")
    # which rank the others wait for says more than that all wait
    score *= np.where((found["rule"] == "host_code") & (found["name"] != ""), _OF_A_RANK, 1.0)
    worth = found["gain_pct"] >= rules.map(lambda rule: rule.least_pct).astype("float64")
    ranked = found.assign(score=score)[worth].sort_values("score", ascending=False, kind="stable")
    said: set[str] = set()
    listed = 0
    for row in ranked.to_dict("records"):
        if row["rule"] in _SAME_TIME:
            # in the best sequence it gains more than what was said
            if row["path"] in said and not (pd.notna(row["order"]) and row["order"] > 1):
                continue
            said.add(row["path"])
        cause = _finding(row, whole, tables, found if not listed and not is_start_up else found[:0])
        if row["rule"] == "launch_bound" and row["gain_pct"] > ranked["gain_pct"].iloc[0]:
            cause = replace(cause, action=_GRAPH_LATER)
        yield _once(cause) if is_start_up else cause, row["score"]
        listed += 1
        if listed == _MOST:
            return


def _finding(row: dict[Any, Any], whole: dict[Any, Any], tables: Tables, others: pd.DataFrame) -> Finding:
    rule, step = _BY_NAME[row["rule"]], _step(whole)
    before, gain = float(whole["unprofiled_ns"]), float(row["gain_ns"])
    of = f"{format_value(gain, 'gain_ns')} of the {format_value(before, 'gain_ns')} of {step.each}"
    cases = f"{row['cases']:,.0f}" if row["cases"] >= 1 else f"{row['cases']:.1f}"
    texts = {
        "each": step.per,
        "where": _where(row),
        "cases": cases,
        "name": row["name"] or "calls",
        "most": f", most in `{row['name']}`" if row["name"] else "",
    }
    left, error = before - gain, _error_pct(whole, row["gain_pct"]) / 100 * before
    told = "without the profiler" if whole["call_cost_ns"] or pd.notna(whole["timed_ns"]) else "as profiled"
    predicted = (
        f"Fixed, {step.one} takes {format_value(left, 'gain_ns')} ± {format_value(min(error, left), 'gain_ns')} {told}."
    )
    waits = row["waits_in"]
    waiting = (f"Most of it waits in `{waits}`: for another thread, another process or a file.",) if waits else ()
    remedy = rule.remedy if whole["of_repetitions"] or not rule.once else rule.once
    cause = (rule.of_rank if rule.of_rank and row["name"] else rule.title).format(**texts)
    return Finding(
        rule.name,
        "advice",
        f"{cause}: {of} can be saved" if rule.saves else f"{cause}: {of}",
        " ".join((rule.detail, *waiting, predicted, *_sequence(row, others))),
        f"{_NOT_KEPT_WAITING} {remedy}" if waits else remedy,
        tuple(_evidence(rule, row, whole, tables))[:_MOST_EVIDENCE],
        gain_ns=round(gain * max(whole["of_repetitions"], 1)),
        gain_pct=float(row["gain_pct"]),
        source=WHAT_IF.name,
        cause=cause,
        action=rule.short,
        kernels=tuple(filter(None, str(row.get("kernels", "")).split("\n"))),
    )


class _Step(NamedTuple):
    """What gains refer to, in words: a step, a repetition of a loop without names, or the window."""

    each: str
    one: str
    per: str


def _step(whole: Mapping[Any, Any]) -> _Step:
    if not whole["of_repetitions"]:
        return _Step("the window", "the window", "in all")
    name = "repetition" if whole["family"].startswith(UNNAMED) else "step"
    return _Step(f"each {name}", f"a {name}", f"per {name}")


def _where(row: Mapping[Any, Any]) -> str:
    said = place(row["path"], row["function"], row["caller"])
    return said if said == _OUTSIDE else f"in {said}"


def place(path: str, function: str = "", caller: str = "") -> str:
    """Return the innermost range of a path, the function in it and its caller, as they are said in a sentence."""
    name, _, where = function.removesuffix(")").partition(" (") if function.endswith(")") else (function, "", "")
    said = f"`{name}` {'at' if where.startswith('line') else 'in'} {where}" if where else f"`{name}`"
    if path.startswith("("):
        if caller:
            return f"`{name}`{f' ({where})' * bool(where)}, called from `{caller.partition(' (')[0]}`"
        return f"`{function}`" if function else _OUTSIDE
    inner = f"`{path.rsplit(' / ', 1)[-1]}`" if path else "several places"
    said += f", called from `{caller.partition(' (')[0]}`" * bool(caller)
    return f"{inner} ({said})" if function else inner


def _ends(path: str) -> str:
    """Return the innermost ranges of a path."""
    *outer, parent, inner = ("", *path.split(" / "))
    return f"{'… / ' if any(outer) else ''}{parent} / {inner}" if parent else inner


def _error_pct(whole: Mapping[Any, Any], gain_pct: float) -> float:
    """Return how far a gain may be off; both in percent of a step.

    That is what the replay cannot explain, and half of what is taken for the profiler's own cost and not gained.
    """
    cost = 1 - whole["unprofiled_ns"] / whole["replayed_ns"] if whole["replayed_ns"] else 0.0
    return float(abs(whole["unexplained_pct"]) + 50 * max(cost, 0.0) * (1 - gain_pct / 100) + 0.5)


def _sequence(row: dict[Any, Any], others: pd.DataFrame) -> Iterator[str]:
    """Yield what to do after the remedy, if it is the first of the best sequence."""
    following = others[others["order"].fillna(0) > 1].sort_values("order")
    if row["order"] != 1 or following.empty:
        return
    steps = []
    for then in following.to_dict("records"):
        where = f" {_where(then)}" if then["path"] else ""
        steps.append(
            f"{_BY_NAME[then['rule']].short}{where}, which leaves {format_value(float(then['after_ns']), 'gain_ns')}"
        )
    yield f"Next best: {'; then '.join(steps)}."


_CALL: Final = ("call", "calls")
_COPY: Final = ("copy", "copies")
_KERNEL: Final = ("kernel", "kernels")
_THINGS: Final = {
    "host_code": ("piece of host code", "pieces of host code"),
    "interpreter": ("piece of host code", "pieces of host code"),
    "wait": ("wait", "waits"),
    "wait_and_host_code": ("wait with host code", "waits with host code"),
    "launch_bound": ("launch", "launches"),
    "allocation": _CALL,
    "loading": _CALL,
    "compilation": _CALL,
    "pageable_copy": _COPY,
    "exposed_copy": _COPY,
    "copies_to_host": _COPY,
    "many_small_copies": _COPY,
    "exposed_communication": ("collective", "collectives"),
    "repeated_reduction": ("collective", "collectives"),
    **dict.fromkeys(_KERNELS, _KERNEL),
}
"""What the cases of a remedy are, one and several."""


def _evidence(rule: Rule, row: dict[Any, Any], whole: dict[Any, Any], tables: Tables) -> Iterator[str]:
    """Yield sentences with the numbers that support a finding."""
    step = _step(whole)
    amount = format_value(float(row["time_ns"]), "time_ns")
    cases = f"{row['cases']:,.0f}" if row["cases"] >= 100 else f"{row['cases']:.3g}"
    one, many = _THINGS.get(rule.name, ("operation", "operations"))
    where = f"In {row['path']}: " if row["path"] and not row["path"].startswith("(") else ""
    yield f"{where}{cases} {one if cases == '1' else many} {step.per}, together {amount}, as profiled"
    path = tables.rows(CRITICAL_PATH, "cause", "name", "path", "time_pct", "step_ns")
    paths = path["path"].astype("str")
    if row["path"] and HOST in rule.causes:
        path = path[paths == row["path"]]
    elif row["path"]:
        path = path[(paths == row["path"]) | paths.str.startswith(f"{row['path']} / ") | (paths == "")]
    for cause in rule.causes:
        for some in path[path["cause"] == cause].head(1).to_dict("records"):
            name = label_of(some["name"]) if cause in (COMPUTE, COMMUNICATION) else some["name"]
            what = " ".join(part for part in (cause, name) if part)
            where = f" in {_ends(some['path'])}" if some["path"] else ""
            time = format_value(float(some["step_ns"]), "step_ns")
            share = format_value(float(some["time_pct"]), "time_pct")
            yield f"On the critical path: {what}{where}, {time} {step.per}, {share} of the window"
    unexplained = f"{whole['unexplained_pct']:+.1f} %"
    if unexplained not in ("+0.0 %", "-0.0 %"):
        yield SIMULATED.format(one=step.one, difference=unexplained.replace("-", "\N{MINUS SIGN}"))
