"""Kernel time by kernel."""

from typing import Final

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.timeline import Timeline
from nightsight.tables import time_summary


def kernel_time(timeline: Timeline) -> Table:
    """One row per demangled kernel name."""
    return Table(time_summary(timeline.profile.table("kernels"), ["name"]).rename(columns={"count": "instances"}))


ANALYSES: Final = (
    Analysis(
        "cuda_gpu_kern_sum",
        "Kernel time",
        "Execution time on the GPU by kernel name. Time %: share of the time of all kernels, not of wall time.",
        ("kernels",),
        kernel_time,
    ),
)
