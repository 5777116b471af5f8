"""Declare columns, needs and groups that several results share."""

from collections.abc import Iterator
from typing import Final

from nightsight.results.entry import NUMBER, TEXT, WHOLE, Column

OUTLIER: Final = 1.5
"""A repetition that takes more than this many times the median is an outlier."""

GPU: Final = "GPU"
LAUNCHES: Final = "Launches"
NCU: Final = "Nsight Compute"
PROGRAM: Final = "Program"

OPERATION_TABLES: Final = ("kernels", "memory_ops")
LAUNCH_TABLES: Final = ("kernels", "memory_ops", "api_calls")
REPLAY_TABLES: Final = ("profiled_launches", "kernel_metrics")

DEVICE: Final = Column("device", WHOLE, "number of the GPU in the machine", is_plain=True)
DEVICE_OR_CPU: Final = Column("device", WHOLE, "number of the GPU in the machine; none for the CPU")
PID: Final = Column("pid", WHOLE, "process ID", is_plain=True)
CALLS: Final = Column("calls", WHOLE, "number of calls", is_plain=True)
COUNT: Final = Column("count", WHOLE, "how many", is_plain=True)
INSTANCES: Final = Column("instances", WHOLE, "number of instances", is_plain=True)
FUNCTION: Final = Column("name", TEXT, "the CUDA function", is_plain=True)
RANGE_PATH: Final = Column(
    "path", TEXT, "the NVTX ranges around the call, outermost first, joined by ` / `; `(no range)` if there are none"
)
LAUNCH_NUMBER: Final = Column("launch", WHOLE, "number of the replayed launch, in replay order")
KERNEL_OF: Final = Column("name", TEXT, "the kernel", is_plain=True)
STEPS_WITH: Final = (
    Column(
        "steps", WHOLE, "number of repetitions of the range around it, in the same process, that contain such a call"
    ),
    Column("of_steps", WHOLE, "number of all repetitions of that range in the process"),
)


def times(of: str) -> Iterator[Column]:
    """Yield the statistics columns of `nsys stats` for durations."""
    yield Column("time_pct", NUMBER, f"share of the total time of all {of}, not of wall time")
    yield Column("total_ns", WHOLE, "sum", is_plain=True)
    yield Column("calls" if "calls" in of else "instances", WHOLE, f"number of {of}", is_plain=True)
    yield Column("avg_ns", NUMBER, "mean", is_plain=True)
    yield Column("med_ns", NUMBER, "median", is_plain=True)
    yield Column("min_ns", WHOLE, "shortest", is_plain=True)
    yield Column("max_ns", WHOLE, "longest", is_plain=True)
    yield Column("stddev_ns", NUMBER, "sample standard deviation", is_plain=True)


def classes(of: str) -> tuple[Column, ...]:
    """Return the columns of a histogram."""
    return (
        DEVICE,
        Column("figure", TEXT, "the quantity measured"),
        Column("from_ns", WHOLE, "lower edge of the bin, inclusive"),
        Column("below_ns", WHOLE, "upper edge, exclusive"),
        COUNT,
        Column("total_ns", WHOLE, "their total time"),
        Column("med_ns", NUMBER, f"median of all {of}; the same in each row"),
        Column("p95_ns", NUMBER, f"95th percentile of all {of}; the same in each row"),
    )
