"""What nsys records only when asked to: with which options, and in which words it refuses."""

import re
from collections.abc import Sequence
from typing import Final

from nightsight.collect.tools import ALLOW_COUNTERS
from nightsight.model import Finding

RECORDINGS: Final = ("gpu-metrics", "python-backtrace", "memory-usage")
_REMEDIES: Final = (
    ("ERR_NVGPUCTRPERM|Insufficient privilege", f"This user may not read the GPU's counters. {ALLOW_COUNTERS}"),
    ("Already under profiling", "Another program reads the GPU's counters. For DCGM: `dcgmi profile --pause`."),
    ("Illegal --gpu-metrics-devices?", "nsys cannot sample this GPU: leave out --gpu-metrics."),
)
_UNSAMPLED: Final = re.compile("CPU IP/backtrace sampling not supported|backtraces will not be collected")


def recording_options(wanted: Sequence[str], *, known: str) -> list[str]:
    """Return the options of `nsys profile` that record what is wanted; `known` is its --help, "" if it has none."""
    sample = "process-tree" if "python-backtrace" in wanted else "none"
    devices = "device" if known and "--gpu-metrics-devices" not in known else "devices"
    options = {
        "gpu-metrics": [f"--gpu-metrics-{devices}=all"],
        # Of calls that take at least 1000 ns. Stacks of launches would slow down what is to be measured.
        "python-backtrace": ["--python-backtrace=cuda", "--cudabacktrace=memory:1000,sync:1000"],
        "memory-usage": ["--cuda-memory-usage=true"],
    }
    # without samples of the CPU nsys takes no stacks
    return [f"--sample={sample}", *(option for name in wanted for option in options[name])]


def remedy_for(said: str) -> str:
    """Return what helps when nsys did not start with these words; "" if nothing is known to."""
    return next((remedy for words, remedy in _REMEDIES if re.search(words, said)), "")


def unrecorded(wanted: Sequence[str], said: str) -> tuple[Finding, ...]:
    """Return a finding for what was wanted and, by nsys's first words, is left out of a capture that it does make."""
    if "python-backtrace" not in wanted or not _UNSAMPLED.search(said):
        return ()
    finding = Finding(
        "no_stacks",
        "warning",
        "No stacks were recorded",
        "--python-backtrace needs samples of the CPU, and nsys cannot take them here.",
        "`nsys status --environment` names the cause. As a rule: `sysctl kernel.perf_event_paranoid=2`, and for a "
        "container --cap-add=SYS_ADMIN.",
    )
    return (finding,)
