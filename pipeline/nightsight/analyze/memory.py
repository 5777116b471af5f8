"""Analyzes memory allocations, migrations and page faults of unified memory, and counters of the GPU."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.loops import loops_of
from nightsight.events.ranges import LEAST
from nightsight.events.timeline import Timeline
from nightsight.results.program import GPU_METRICS, MEMORY_OVER_TIME, MEMORY_USAGE, RANGE_COUNTERS, UNIFIED_MEMORY
from nightsight.tables import HOST_MEMORY, NULLABLE, ON_DEVICE, aggregate, duration, memory_levels
from nightsight.units import format_value

# of the time axis; each keeps two points, the highest and the last
_PIECES: Final = 250
_UNIFIED: Final = "Unified"
_GPU_FAULTS: Final = "GPU page faults"
_CPU_FAULTS: Final = "CPU page faults"
_EARLIER: Final = (
    "More was freed than allocated: the capture began after the program had allocated memory. Peak and end are "
    "counted from the lowest level, so the true values are at least as high."
)


def memory_usage(timeline: Timeline) -> Table:
    """Return one row per device and kind of memory: peak and final level, allocations and frees, in bytes."""
    events = timeline.profile.table("memory_usage")
    freed = ~events["is_allocation"]
    events = events.assign(allocated=events["bytes"].mask(freed, 0), freed=events["bytes"].where(freed, 0))
    keys = ["device", "kind"]
    grouped = events.groupby(keys, observed=True)
    table = aggregate(
        grouped,
        allocations=("is_allocation", "sum"),
        events=("is_allocation", "size"),
        allocated_bytes=("allocated", "sum"),
        freed_bytes=("freed", "sum"),
    ).reset_index()
    table = table.assign(frees=table["events"] - table["allocations"])
    levels = memory_levels(events, keys).groupby(keys, observed=True)
    extremes = aggregate(levels, peak_bytes=("bytes", "max"), end_bytes=("bytes", "last"), earlier=("earlier", "first"))
    table = table.merge(extremes.reset_index(), on=keys, how="left", validate="1:1")
    columns = ["device", "kind", "peak_bytes", "end_bytes", "allocations", "allocated_bytes", "frees", "freed_bytes"]
    # if the profiler records levels, the level before the capture is known
    is_told = events["level_bytes"].notna().any()
    notes = (_EARLIER,) if (table["earlier"] > 0).any() and not is_told else ()
    table = table.assign(device=_gpu_numbers(table["device"]))
    return Table(table[columns], (*notes, *_kept_memory(timeline, events), *_reserved_memory(events)))


def _gpu_numbers(device: "pd.Series[int]") -> "pd.Series[Any]":
    """Return the numbers of GPUs; the CPU has none."""
    return device.astype(NULLABLE).where(device >= 0) if (device < 0).any() else device


def _kept_memory(timeline: Timeline, events: pd.DataFrame) -> Iterator[str]:
    """Yield, for each device, the memory that each step of the program's loop keeps, if any."""
    for loop in loops_of(timeline.profile)[:1]:
        starts = loop.starts[loop.slow :]
        for device, of_device in memory_levels(events[events["process"] == loop.process], ["device"]).groupby("device"):
            before = np.searchsorted(of_device["start_ns"], starts) - 1
            level = np.where(before >= 0, of_device["bytes"].to_numpy()[before], of_device["earlier"].iloc[0])
            grown = np.diff(level)
            if len(grown) >= LEAST - 1 and (grown > 0).all():
                size, whose = format_value(float(np.median(grown)), "kept_bytes"), _device_name(int(str(device)))
                yield (
                    f"Each repetition of '{loop.family}' leaves {size} more allocated on {whose} (median of "
                    f"{len(grown)}): what a step allocates and never frees adds up."
                )


def _device_name(device: int) -> str:
    return f"device {device}" if device >= 0 else "the CPU"


def _reserved_memory(events: pd.DataFrame) -> Iterator[str]:
    """Yield, for each device, the memory that PyTorch had reserved."""
    most_reserved = events[events["device"] >= 0].groupby("device")["reserved_bytes"].max()
    for device, most in most_reserved.dropna().items():
        size = format_value(float(most), "reserved_bytes")
        yield f"PyTorch had reserved at most {size} of device {device}; tensors get their memory from that."


def memory_over_time(timeline: Timeline) -> Table:
    """Return the memory allocated on each device in order of time: at most 500 rows per device, with the peak.

    Includes the memory that PyTorch had reserved, if the profiler records it.
    """
    events = timeline.profile.table("memory_usage")
    levels = memory_levels(events[events["kind"].isin([*ON_DEVICE, HOST_MEMORY])], ["device"])
    begin = levels.groupby("device")["start_ns"].transform("min")
    length = levels.groupby("device")["start_ns"].transform("max") - begin + 1
    reserved = events.dropna(subset=["reserved_bytes"]).groupby(["device", "start_ns"])["reserved_bytes"].last()
    levels = levels.join(reserved, on=["device", "start_ns"])
    levels = levels.assign(piece=(levels["start_ns"] - begin) * _PIECES // length)
    pieces = levels.groupby(["device", "piece"])["bytes"]
    rows = np.union1d(pieces.idxmax(), levels.index[~levels.duplicated(["device", "piece"], keep="last")])
    extremes = levels.loc[rows]
    time_ns = extremes["start_ns"] - timeline.window.start_ns
    extremes = extremes.assign(time_ns=time_ns, device=_gpu_numbers(extremes["device"]))
    columns = ["device", "time_ns", "bytes", *(["reserved_bytes"] if len(reserved) else [])]
    return Table(extremes[columns].reset_index(drop=True))


def unified_memory(timeline: Timeline) -> Table:
    """Return one row per process, device and event: migrations by direction, GPU page faults, CPU page faults."""
    profile = timeline.profile
    gpu_faults, cpu_faults = (profile.recorded(name) for name in ("gpu_page_faults", "cpu_page_faults"))
    operations = profile.table("memory_ops")
    migrations = operations[operations["operation"].astype("str").str.startswith(_UNIFIED)]
    parts = [
        migrations.assign(event=migrations["operation"].astype("str"), count=1, time=duration(migrations)),
        gpu_faults.assign(event=_GPU_FAULTS, count=gpu_faults["faults"], bytes=0, time=duration(gpu_faults)),
        # a CPU page fault is an instant and has no device
        cpu_faults.assign(event=_CPU_FAULTS, count=1, bytes=0, time=0, device=-1),
    ]
    columns = {"process": "int64", "device": "int64", "event": "str"}
    sums = {"count": "int64", "bytes": "int64", "time": "int64"}
    if not any(map(len, parts)):
        return Table(UNIFIED_MEMORY.empty())
    events = pd.concat([part[[*columns, *sums]].fillna({"process": 0}).astype(columns | sums) for part in parts])
    table = events.groupby(list(columns), as_index=False)[list(sums)].sum()
    is_fault = table["event"].isin([_GPU_FAULTS, _CPU_FAULTS])
    numbers = table[["device", "bytes", "time"]].astype(NULLABLE)
    table = table.assign(
        # nsys's global process id has the pid in these bits
        pid=table["process"].to_numpy() >> 24 & 0xFFFFFF,
        device=numbers["device"].where(table["device"] >= 0),
        total_bytes=numbers["bytes"].mask(is_fault),
        total_ns=numbers["time"].mask(table["event"] == _CPU_FAULTS),
        rate_bytes_per_s=(table["bytes"] * 1e9 / table["time"].where(table["time"] > 0)).mask(is_fault),
    )
    return Table(table[["pid", "device", "event", "count", "total_bytes", "total_ns", "rate_bytes_per_s"]])


def gpu_metrics(timeline: Timeline) -> Table:
    """Return one row per device and metric: mean, maximum and number of its samples in the window."""
    samples, window = timeline.profile.table("gpu_metrics"), timeline.window
    samples = samples[samples["start_ns"].between(window.start_ns, window.end_ns)]
    grouped = samples.groupby(["device", "metric"], observed=True)["value"]
    table = grouped.agg(samples="size", mean="mean", max="max").reset_index()
    return Table(table[["device", "metric", "mean", "max", "samples"]])


def range_counters(timeline: Timeline) -> Table:
    """Return one row per device, name and metric: the number of kernels or ranges, and their values."""
    counters = timeline.profile.table("range_counters")
    grouped = counters.groupby(["device", "metric", "name"], observed=True)["value"]
    table = grouped.agg(ranges="size", mean="mean", min="min", max="max").reset_index()
    return Table(table[list(RANGE_COUNTERS.column_names)])


ANALYSES: Final = (
    Analysis(MEMORY_USAGE, memory_usage),
    Analysis(MEMORY_OVER_TIME, memory_over_time),
    Analysis(UNIFIED_MEMORY, unified_memory, "memory_ops"),
    Analysis(GPU_METRICS, gpu_metrics),
    Analysis(RANGE_COUNTERS, range_counters),
)
