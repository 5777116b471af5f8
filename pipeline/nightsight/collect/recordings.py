"""Optional recordings of nsys: their options, and the messages with which nsys rejects them."""

import re
from collections.abc import Sequence
from typing import Final

from nightsight.collect.tools import ALLOW_COUNTERS
from nightsight.model.report import Finding

RECORDINGS: Final = ("gpu-metrics", "python-backtrace", "memory-usage", "page-faults")
_REMEDIES: Final = (
    ("ERR_NVGPUCTRPERM|Insufficient privilege", f"This user may not read the GPU's counters. {ALLOW_COUNTERS}"),
    ("Already under profiling", "Another program reads the GPU's counters. For DCGM: `dcgmi profile --pause`."),
    ("Illegal --gpu-metrics-devices?", "nsys cannot sample this GPU: omit --gpu-metrics."),
)
_UNSAMPLED: Final = re.compile("CPU IP/backtrace sampling not supported|backtraces will not be collected")


def recording_options(recordings: Sequence[str], *, help_text: str) -> list[str]:
    """Return the options of `nsys profile` for the wanted recordings; `help_text` is its --help text, "" if unknown."""
    sample = "process-tree" if "python-backtrace" in recordings else "none"
    devices = "device" if help_text and "--gpu-metrics-devices" not in help_text else "devices"
    options = {
        "gpu-metrics": [f"--gpu-metrics-{devices}=all"],
        # for calls of at least 1000 ns; not for launches, whose stacks would slow down the measured program
        "python-backtrace": ["--python-backtrace=cuda", "--cudabacktrace=memory:1000,sync:1000"],
        "memory-usage": ["--cuda-memory-usage=true"],
        "page-faults": ["--cuda-um-cpu-page-faults=true", "--cuda-um-gpu-page-faults=true"],
    }
    # nsys records no stacks without CPU sampling
    return [f"--sample={sample}", *(option for name in recordings for option in options[name])]


def remedy_for(output: str) -> str:
    """Return what to do if nsys failed to start with this output; "" if unknown."""
    return next((remedy for words, remedy in _REMEDIES if re.search(words, output)), "")


def missing_recordings(recordings: Sequence[str], output: str) -> tuple[Finding, ...]:
    """Return a finding for wanted recordings that nsys, by its first output `output`, leaves out of the capture."""
    if "python-backtrace" not in recordings or not _UNSAMPLED.search(output):
        return ()
    finding = Finding(
        "no_stacks",
        "warning",
        "No stacks were recorded",
        "--python-backtrace needs CPU sampling, which nsys cannot do on this machine.",
        "`nsys status --environment` shows the cause. The usual fix: `sysctl kernel.perf_event_paranoid=2`, and for a "
        "container --cap-add=SYS_ADMIN.",
    )
    return (finding,)
