"""NVIDIA's reports of kernel launches: total time (T), time in the call (A), in the queue after it (Q), executing (K).

Kernels whose call was not recorded are missing here, as in NVIDIA's reports.
"""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.stats.events import StatsEvents
from nightsight.stats.summary import api_names, dimensions, group_by, rounded_once, statistics
from nightsight.tables import NULLABLE, Frame, duration

_STATISTICS: Final = {"avg": "Avg", "med": "Med", "min": "Min", "max": "Max", "stddev": "StdDev"}
_KEYS: Final = ["PID", "TID", "DevId", "API Name", "Kernel Name"]


def cuda_kern_exec_sum(events: StatsEvents) -> Frame:
    """Launch and execution times by thread, device, call and kernel; negative queue times do not count."""
    launched = _launched(events).rename(columns={"API Function": "API Name"})
    queue = launched["kernel_start"] - launched["api_end"]
    times = {
        "T": np.maximum(launched["kernel_end"], launched["api_end"]) - launched["api_start"],
        "A": launched["api_end"] - launched["api_start"],
        "Q": queue.where(queue >= 0),
        "K": launched["kernel_end"] - launched["kernel_start"],
    }
    groups = group_by([launched[key] for key in _KEYS])
    table = launched[_KEYS].take(groups.first).reset_index(drop=True)
    for letter, values in times.items():
        of_phase = statistics(values, groups)
        table[{"T": "Count", "Q": "QCount"}.get(letter, "")] = of_phase["count"]
        table[[f"{letter}{theirs}_ns" for theirs in _STATISTICS.values()]] = of_phase[list(_STATISTICS)]
    phases = [f"{letter}{name}_ns" for letter in times for name in _STATISTICS.values()]
    table = table[["PID", "TID", "DevId", "Count", "QCount", *phases, "API Name", "Kernel Name"]]
    # NVIDIA sorts by the printed (rounded) average
    printed = table["TAvg_ns"].map(rounded_once).astype("float64")
    return table.iloc[(-printed.to_numpy()).argsort(kind="stable")]


def cuda_kern_exec_trace(events: StatsEvents) -> Frame:
    """Every launch, in order of its call."""
    launched = _launched(events)
    queue = launched["kernel_start"] - launched["api_end"]
    kernels = events.table("kernels").take(events.joins.kernel_launches[0])
    table = pd.DataFrame(
        {
            "API Start_ns": launched["api_start"],
            "API Dur_ns": launched["api_end"] - launched["api_start"],
            "Queue Start_ns": launched["api_end"].astype(NULLABLE).where(queue >= 0),
            "Queue Dur_ns": queue.astype(NULLABLE).where(queue >= 0),
            "Kernel Start_ns": launched["kernel_start"],
            "Kernel Dur_ns": duration(kernels).to_numpy(),
            "Total Dur_ns": np.maximum(launched["kernel_end"], launched["api_end"]) - launched["api_start"],
            **launched[["PID", "TID", "DevId", "API Function"]],
            "GridXYZ": dimensions(kernels, "grid"),
            "BlockXYZ": dimensions(kernels, "block"),
            "Kernel Name": launched["Kernel Name"],
        }
    )
    return table.sort_values("API Start_ns", kind="stable", ignore_index=True)


def _launched(events: StatsEvents) -> Frame:
    """Return one row per kernel and launching call, in the order of the kernels."""
    kernel, call = events.joins.kernel_launches
    kernels, calls = events.table("kernels"), events.table("api_calls")
    columns = {
        "kernel_start": kernels["start_ns"].take(kernel),
        "kernel_end": kernels["end_ns"].take(kernel),
        "api_start": calls["start_ns"].take(call),
        "api_end": calls["end_ns"].take(call),
        "PID": calls["pid"].take(call),
        "TID": calls["tid"].take(call),
        "DevId": kernels["ordinal"].take(kernel),
        "API Function": api_names(calls["name"]).take(call),
        "Kernel Name": events.kernel_names.take(kernel),
    }
    return pd.DataFrame({name: column.reset_index(drop=True) for name, column in columns.items()})
