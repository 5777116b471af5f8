"""Collectors: each runs a program under a profiler and returns a Capture. This module chooses the default one."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from nightsight.collect.ncu import collect_ncu
from nightsight.collect.nsys import collect_nsys, required_nsys
from nightsight.collect.recordings import RECORDINGS
from nightsight.collect.tools import find_nsys, has_gpu
from nightsight.collect.torch import collect_torch, refuse_command
from nightsight.collect.tracing import WHOLE_RUN, Tracing
from nightsight.collect.workloads import Program, Request, modules_of
from nightsight.errors import ToolError, UsageError
from nightsight.model.report import Capture, Finding

__all__ = ["COLLECTORS", "RECORDINGS", "Choice", "choose_collector", "needs_of"]

Choice = Literal["auto", "nsys", "ncu", "torch"]
COLLECTORS: Final[Mapping[str, Callable[[Program, Request], Capture]]] = {
    "nsys": collect_nsys,
    "ncu": collect_ncu,
    "torch": collect_torch,
}


def choose_collector(
    asked: Choice,
    program: Program,
    *,
    nsys: Path | None = None,
    recordings: Sequence[str] = (),
    tracing: Tracing = WHOLE_RUN,
) -> tuple[str, Finding | None]:
    """Return the name of a collector, and a finding for the report if it is only a fallback.

    "auto" is nsys if there is an nsys and a GPU, or if torch.profiler would see nothing of the program. ToolError
    if nsys is required but not found, or if torch.profiler is asked to profile a command; UsageError if `recordings`
    are wanted and the collector is not nsys, or `tracing` and it is not torch.
    """
    if program.kind == "workload" and program.is_native and not has_gpu():
        raise ToolError(
            f"{program.name} needs an NVIDIA GPU, and there is none on this machine",
            "Run it where nvidia-smi lists a GPU, or another workload here: nightsight workloads lists them.",
        )
    if asked == "torch":
        refuse_command(program)
        _refuse_recordings(recordings, "--collector torch was given")
        return "torch", None
    if asked == "ncu":
        _refuse_recordings(recordings, "--collector ncu was given")
        return "ncu", None
    if asked == "nsys" or not program.is_for_torch:
        _refuse_tracing(tracing, program)
        required_nsys(nsys, program)
        return "nsys", None
    found, gpu = find_nsys(nsys), has_gpu()
    if found and gpu:
        _refuse_tracing(tracing, program)
        return "nsys", None
    finding = _without_nsys() if gpu else _without_gpu()
    _refuse_recordings(recordings, "there is no nsys on this machine" if gpu else "there is no GPU on this machine")
    return "torch", finding


def needs_of(asked: Choice, target: str | None, folder: Path | None, nsys: Path | None) -> set[str]:
    """Return the modules that a target of `resolve` and the collector that was asked for need in its Python."""
    is_traced = asked == "torch" or (asked == "auto" and not (find_nsys(nsys) and has_gpu()))
    return modules_of(target, folder, is_traced=is_traced)


def _refuse_recordings(recordings: Sequence[str], reason: str) -> None:
    if recordings:
        options = ", ".join(f"--{name}" for name in recordings)
        instead = " torch.profiler names with --collector torch --record modules,shapes,stack."
        how = "install nsys: nightsight doctor says how" if "no nsys" in reason else "use --collector nsys"
        raise UsageError(
            f"{options}: only nsys can record this, and nsys is not used: {reason}",
            f"Omit the option, or {how}.{instead * ('names' in recordings)}",
        )


def _refuse_tracing(tracing: Tracing, program: Program) -> None:
    if tracing != WHOLE_RUN:
        instead = "Add --collector torch, or omit the options." if program.is_for_torch else "Omit the options."
        raise UsageError(
            "only torch.profiler knows --active, --activities, --record, --skip-range and --step-range; nsys is used",
            instead,
        )


def _without_nsys() -> Finding:
    return Finding(
        "collector_fallback",
        "warning",
        "Collected with torch.profiler: there is no nsys on this machine",
        "torch.profiler sees only the process that runs torch. Not in this report: GPU work of other processes, CUDA "
        "calls and NVTX ranges of code outside torch, and synchronizations as nsys records them.",
        "Install Nsight Systems (`nightsight doctor` says how), or give its path with --nsys, and run again.",
    )


def _without_gpu() -> Finding:
    return Finding(
        "collector_fallback",
        "warning",
        "Collected with torch.profiler on the CPU: there is no GPU on this machine",
        "The report shows torch operators and the program's ranges as they ran on the CPU. Not in this report: GPU "
        "kernels, copies, CUDA calls and launch overhead.",
        "Run the program on a machine with an NVIDIA GPU and nsys to see its GPU work.",
    )
