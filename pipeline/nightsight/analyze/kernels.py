"""Kernel time by kernel."""

from typing import Final

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.timeline import Timeline, of_window
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.tables import time_summary


def kernel_time(timeline: Timeline) -> Table:
    """Return one row per demangled kernel name, with statistics of its duration."""
    return Table(
        time_summary(of_window(timeline, "kernels", ["name"]), ["name"]).rename(columns={"count": "instances"})
    )


ANALYSES: Final = (Analysis(CUDA_GPU_KERN_SUM, kernel_time),)
