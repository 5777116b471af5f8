"""Kernel time by kernel, and the copies and sets beside it."""

from typing import Final

from pipeline.analyze.analysis import Analysis, Table
from pipeline.analyze.timeline import Timeline
from pipeline.tables import summarize, time_summary


def kernel_time(timeline: Timeline) -> Table:
    """One row per demangled kernel name."""
    return Table(time_summary(timeline.profile.table("kernels"), ["name"]).rename(columns={"count": "instances"}))


def memory_operations(timeline: Timeline) -> Table:
    """One row per direction and pair of memory kinds, with time, size and the rate that follows from both."""
    keys = ["operation", "source_kind", "target_kind"]
    operations = timeline.profile.table("memory_ops")
    times = time_summary(operations, keys)
    sizes = summarize(operations, keys, "bytes").rename(columns={"total": "total_bytes"})
    sizes = sizes.rename(columns={name: f"{name}_bytes" for name in ("avg", "med", "min", "max")})
    table = times.merge(sizes.drop(columns=["count", "stddev"]), on=keys, how="left", validate="1:1")
    rate = table["total_bytes"] * 1e9 / table["total_ns"].where(table["total_ns"] > 0)
    columns = [*keys, "count", "time_pct", "total_ns", "avg_ns", "med_ns", "max_ns"]
    columns += ["total_bytes", "avg_bytes", "max_bytes", "rate_bytes_per_s"]
    return Table(table.assign(rate_bytes_per_s=rate)[columns])


ANALYSES: Final = (
    Analysis(
        "cuda_gpu_kern_sum",
        "Kernel time",
        "Execution time on the GPU by kernel name. Time %: share of the time of all kernels, not of wall time.",
        ("kernels",),
        kernel_time,
    ),
    Analysis(
        "memory_operations",
        "Memory operations",
        "Copies and sets by direction and kind of memory. Pageable host memory is copied through a buffer of the "
        "driver and makes the call wait; pinned memory is not. Rate: bytes over time of the operations themselves.",
        ("memory_ops",),
        memory_operations,
    ),
)
