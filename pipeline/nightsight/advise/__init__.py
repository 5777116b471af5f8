"""Advice on a report: rules over its results, each with evidence and an upper bound on the gain.

Rules that NVIDIA's nsys has too keep its names. A rule fires only if it could gain a given share of the window, so a
program that keeps its GPU busy gets no advice, however long the window is. Gains overlap, so they do not add up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nightsight.advise import cases
from nightsight.advise.replays import replay_advice
from nightsight.model import Finding, Result
from nightsight.results import (
    CUDA_API_SYNC,
    GPU_GAPS,
    GPU_UTILIZATION,
    LAUNCH_BOUND,
    LAUNCH_OVERHEAD,
    RANGE_COVERAGE,
    SETUP_CALLS,
    SLOW_COPIES,
    TIME_SPLIT,
    Entry,
)

__all__ = ["RULES", "Rule", "advise", "unchecked"]


@dataclass(frozen=True)
class Rule:
    """One rule of advice: the threshold at which it fires, its texts, and the function that looks for cases.

    least_pct: the least gain, in percent of the window, for which it fires. needs: the results that `find` reads; the
    first one lists all cases.
    """

    name: str
    least_pct: float
    title: str
    detail: str
    remedy: str
    needs: tuple[Entry, ...]
    find: Callable[[cases.Tables], cases.Case]

    def apply(self, tables: cases.Tables) -> tuple[Finding, ...]:
        """Return the finding as a tuple; an empty one if the gain is below the threshold."""
        case = self.find(tables)
        evidence = tuple(case.evidence)[: cases.MOST_EVIDENCE]
        source = self.needs[0].name
        advice = Finding(self.name, "advice", self.title, self.detail, self.remedy, evidence, source=source)
        # the gain is not known: the evidence alone decides
        if case.gain_ns is None:
            return (advice,) if evidence else ()
        gain = min(round(case.gain_ns), tables.window_ns)
        share = 100.0 * gain / max(tables.window_ns, 1)
        if not gain or share < self.least_pct:
            return ()
        return (replace(advice, gain_ns=gain, gain_pct=share),)


def advise(results: Sequence[Result]) -> tuple[Finding, ...]:
    """Return the findings of all rules and of ncu's, the largest possible gain first; empty if nothing is wrong."""
    tables = cases.Tables(results)
    found = [*(finding for rule in RULES for finding in rule.apply(tables)), *replay_advice(tables)]
    return tuple(sorted(found, key=lambda finding: -(finding.gain_ns or 0)))


def unchecked(results: Sequence[Result]) -> dict[str, str]:
    """Return, by name, the rules that lack a result they need, each with the reason why it is missing."""
    lacking = {result.name: result.unavailable for result in results if result.table is None}
    reasons = {rule.name: [lacking[need.name] for need in rule.needs if need.name in lacking] for rule in RULES}
    return {name: "; ".join(dict.fromkeys(found)) for name, found in reasons.items() if found}


RULES: Final = (
    Rule(
        "cuda_memcpy_async",
        1.0,
        "Copies of pageable memory are not asynchronous",
        "Host memory that is not pinned goes through a driver buffer: the copy is slower, and the call waits.",
        "Pin the host side: DataLoader(pin_memory=True) or tensor.pin_memory(), then copy with non_blocking=True; in "
        "CUDA, cudaMallocHost.",
        (SLOW_COPIES, CUDA_API_SYNC),
        cases.pageable,
    ),
    Rule(
        "cuda_memcpy_sync",
        1.0,
        "Blocking copies hold up the CPU",
        "cudaMemcpy returns only when the copy is done. Until then its thread launches nothing.",
        "Use cudaMemcpyAsync on a stream, with pinned memory, and wait only where the data is needed.",
        (SLOW_COPIES, CUDA_API_SYNC),
        cases.blocking_copies,
    ),
    Rule(
        "cuda_memset_sync",
        1.0,
        "Blocking memsets of host memory hold up the CPU",
        "cudaMemset of pinned or managed memory returns only when it is done.",
        "Use cudaMemsetAsync, or set host memory on the CPU.",
        (SLOW_COPIES, CUDA_API_SYNC),
        cases.blocking_sets,
    ),
    Rule(
        "cuda_api_sync",
        1.0,
        "The GPU runs dry while the CPU waits for it",
        "A synchronizing call keeps its thread from launching. Once the GPU is done, it idles until new work arrives.",
        "Wait later or not at all: launch the next work first, or wait for an event or a stream, not for the device.",
        (CUDA_API_SYNC,),
        cases.synchronizations,
    ),
    Rule(
        "sync_every_step",
        1.0,
        "Every step waits for the GPU",
        "A call that waits in each repetition of a range keeps the CPU from running ahead, and the GPU idles until the "
        "next launch arrives.",
        "Avoid .item(), .cpu(), printing a tensor or branching on one in every step: collect losses on the GPU and "
        "copy them once in many steps.",
        (CUDA_API_SYNC,),
        cases.waits_in_steps,
    ),
    Rule(
        "gpu_gaps",
        5.0,
        "The GPU has long idle gaps",
        f"Each takes at least {cases.LONG_GAP_PCT:.0f} % of the window.",
        'See "Longest idle gaps" for the cause of each. Host code: prepare data in other processes, or ahead of time.',
        (GPU_GAPS,),
        cases.gaps,
    ),
    Rule(
        "gpu_time_util",
        5.0,
        "The GPU is idle for much of the window",
        f"In these stretches it is busy less than {cases.LOW_UTILIZATION_PCT:.0f} % of the time.",
        'See "Where the time went" for the causes. Host code: spend less CPU time per launch (torch.compile, CUDA '
        "graphs), and load data ahead of time.",
        (TIME_SPLIT, GPU_UTILIZATION),
        cases.utilization,
    ),
    Rule(
        "short_gaps",
        5.0,
        "The GPU idles in many short gaps",
        f"Each takes less than {cases.LONG_GAP_PCT:.0f} % of the window. The cost of waiting calls is not included.",
        'See "Where the time went" for the causes. Host code: do less of it between launches, or ahead of time in '
        "another thread or process. Dependency: overlap independent work on several streams.",
        (TIME_SPLIT, GPU_GAPS, GPU_UTILIZATION, CUDA_API_SYNC),
        cases.short_gaps,
    ),
    Rule(
        "launch_bound",
        5.0,
        "The GPU waits for launches",
        "Nothing is in flight and the next launch is still under way: the CPU does not keep up. The extra time of "
        "first launches is not included: they load code.",
        'Launch less often: CUDA graphs (torch.compile(mode="reduce-overhead")), fused kernels, larger batches.',
        (LAUNCH_BOUND,),
        cases.launches,
    ),
    Rule(
        "many_tiny_kernels",
        5.0,
        "Most kernels take less time than their launch",
        "At least half of the launches are of kernels whose median execution is shorter than their median launch call.",
        "Fuse them (torch.compile, Triton, foreach or fused optimizers), or launch them together as a CUDA graph.",
        (LAUNCH_OVERHEAD, LAUNCH_BOUND, TIME_SPLIT),
        cases.tiny_kernels,
    ),
    Rule(
        "exposed_copies",
        5.0,
        "Copies run while nothing is computed",
        "Copies and memsets run while no kernel runs.",
        "Copy on another stream while the GPU computes (prefetch the next batch), copy less, or keep data on the GPU.",
        (TIME_SPLIT,),
        cases.exposed_copies,
    ),
    Rule(
        "jit_in_measured_range",
        1.0,
        "Kernels are loaded or compiled inside the window",
        "The first launch of a kernel loads its code and may compile it; later launches do not.",
        "Warm up first: run some steps before the measured range or the capture begins.",
        (SETUP_CALLS, LAUNCH_BOUND, TIME_SPLIT),
        cases.loading,
    ),
    Rule(
        "allocation_in_loop",
        1.0,
        "Memory is allocated or freed in every step",
        "cudaMalloc and cudaFree wait for the GPU, or keep it waiting.",
        "Allocate before the loop, use a caching allocator (PyTorch's own; cudaMallocAsync), and do not call "
        "torch.cuda.empty_cache() in a loop.",
        (SETUP_CALLS, CUDA_API_SYNC, TIME_SPLIT),
        cases.allocations,
    ),
    Rule(
        "low_coverage",
        0.0,
        "Much of the GPU work belongs to no range",
        'Ranges show which part of the program launched the work; "NVTX ranges" lacks work outside all ranges.',
        "Put ranges around the rest: torch.cuda.nvtx.range, torch.autograd.profiler.emit_nvtx, or nvtx.annotate.",
        (RANGE_COVERAGE,),
        cases.coverage,
    ),
)
