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
    requested: Choice,
    program: Program,
    *,
    nsys: Path | None = None,
    recordings: Sequence[str] = (),
    tracing: Tracing = WHOLE_RUN,
) -> tuple[str, Finding | None]:
    """Return the name of a collector, and a finding for the report if it is only a fallback.

    "auto" is nsys if the machine has nsys and a GPU, or if torch.profiler cannot see the program. Raise ToolError if
    nsys is required but not found, or if torch.profiler should profile a command; UsageError for `recordings` without
    nsys, or `tracing` without torch.
    """
    if program.kind == "workload" and program.is_native and not has_gpu():
        raise ToolError(
            f"{program.name} needs an NVIDIA GPU, and this machine has none",
            "Run it where nvidia-smi lists a GPU, or run another workload (list: nightsight workloads).",
        )
    if requested == "torch":
        refuse_command(program)
        _refuse_recordings(recordings, "--collector torch was given")
        return "torch", None
    if requested == "ncu":
        _refuse_recordings(recordings, "--collector ncu was given")
        return "ncu", None
    if requested == "nsys" or not program.is_for_torch:
        _refuse_tracing(tracing, program)
        required_nsys(nsys, program)
        return "nsys", None
    nsys_path, gpu = find_nsys(nsys), has_gpu()
    if nsys_path and gpu:
        _refuse_tracing(tracing, program)
        return "nsys", None
    finding = _WITHOUT_NSYS if gpu else _WITHOUT_GPU
    _refuse_recordings(recordings, "this machine has no nsys" if gpu else "this machine has no GPU")
    return "torch", finding


def needs_of(requested: Choice, target: str | None, folder: Path | None, nsys: Path | None) -> set[str]:
    """Return the modules that a target of `resolve` and the requested collector need in the target's Python."""
    is_traced = requested == "torch" or (requested == "auto" and not (find_nsys(nsys) and has_gpu()))
    return modules_of(target, folder, is_traced=is_traced)


def _refuse_recordings(recordings: Sequence[str], reason: str) -> None:
    if recordings:
        options = ", ".join(f"--{name}" for name in recordings)
        instead = " With torch.profiler: --collector torch --record modules,shapes,stack."
        how = "install nsys (nightsight doctor says how)" if "no nsys" in reason else "use --collector nsys"
        raise UsageError(
            f"{options}: only nsys can record this, and nsys is not used: {reason}",
            f"Omit the option, or {how}.{instead * ('names' in recordings)}",
        )


def _refuse_tracing(tracing: Tracing, program: Program) -> None:
    if tracing != WHOLE_RUN:
        instead = "Add --collector torch, or omit the options." if program.is_for_torch else "Omit the options."
        raise UsageError(
            "--active, --activities, --record, --skip-range and --step-range need torch.profiler, but nsys is used",
            instead,
        )


_WITHOUT_NSYS: Final = Finding(
    "collector_fallback",
    "warning",
    "Collected with torch.profiler: this machine has no nsys",
    "torch.profiler sees only the process that runs torch. Missing from this report: GPU work of other processes, CUDA "
    "calls and NVTX ranges of code outside torch, and synchronizations as nsys records them.",
    "Install Nsight Systems (`nightsight doctor` says how) or pass its path with --nsys, then run again.",
)
_WITHOUT_GPU: Final = Finding(
    "collector_fallback",
    "warning",
    "Collected with torch.profiler on the CPU: this machine has no GPU",
    "The report shows torch operators and the program's ranges as they ran on the CPU. Missing from this report: GPU "
    "kernels, copies, CUDA calls and launch overhead.",
    "Run the program on a machine with an NVIDIA GPU and nsys to see its GPU work.",
)
