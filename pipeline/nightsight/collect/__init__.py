"""Collectors: run a program under a profiler and leave a Capture. Which one, if none is asked for, is decided here."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from nightsight.collect.ncu import collect_ncu
from nightsight.collect.nsys import collect_nsys, required_nsys
from nightsight.collect.recordings import RECORDINGS
from nightsight.collect.tools import find_nsys, has_gpu
from nightsight.collect.torch import collect_torch, refuse_command
from nightsight.collect.workloads import Program, Request
from nightsight.errors import UsageError
from nightsight.model import Capture, Finding

__all__ = ["COLLECTORS", "RECORDINGS", "Choice", "choose_collector"]

Choice = Literal["auto", "nsys", "ncu", "torch"]
COLLECTORS: Final[Mapping[str, Callable[[Program, Request], Capture]]] = {
    "nsys": collect_nsys,
    "ncu": collect_ncu,
    "torch": collect_torch,
}


def choose_collector(
    asked: Choice, program: Program, *, nsys: Path | None = None, recordings: Sequence[str] = ()
) -> tuple[str, Finding | None]:
    """Choose a collector by name; a finding tells the reader of the report when it is not the one hoped for.

    "auto" is nsys where there is an nsys and a GPU, or when the program is a command, which only nsys can profile.
    UsageError if `recordings` are wanted and it is not nsys.
    """
    if asked == "torch":
        refuse_command(program)
        _refuse_recordings(recordings, "it was asked for with --collector torch")
        return "torch", None
    if asked == "ncu":
        _refuse_recordings(recordings, "ncu was asked for with --collector ncu")
        return "ncu", None
    if asked == "nsys" or program.kind == "command":
        required_nsys(nsys)
        return "nsys", None
    found, gpu = find_nsys(nsys), has_gpu()
    if found and gpu:
        return "nsys", None
    finding = _without_nsys() if gpu else _without_gpu()
    _refuse_recordings(recordings, "there is no nsys on this machine" if gpu else "there is no GPU on this machine")
    return "torch", finding


def _refuse_recordings(recordings: Sequence[str], reason: str) -> None:
    if recordings:
        options = ", ".join(f"--{name}" for name in recordings)
        raise UsageError(
            f"{options}: only nsys records this, and it is not used here: {reason}",
            "Leave the option out, or use --collector nsys.",
        )


def _without_nsys() -> Finding:
    return Finding(
        "collector_fallback",
        "warning",
        "Collected with torch.profiler: there is no nsys on this machine",
        "torch.profiler sees the process that runs torch. Not in this report: GPU work of other processes, CUDA calls "
        "and NVTX ranges of code outside torch, synchronizations as nsys records them.",
        "Install Nsight Systems (`nightsight doctor` says how), or name it with --nsys, and run again.",
    )


def _without_gpu() -> Finding:
    return Finding(
        "collector_fallback",
        "warning",
        "Collected with torch.profiler on the CPU: there is no GPU on this machine",
        "What is shown are torch's operators and the program's ranges as the CPU ran them. Not in this report: GPU "
        "kernels, copies, CUDA calls and launch overhead.",
        "Run it on a machine with an NVIDIA GPU and nsys to see the GPU's work.",
    )
