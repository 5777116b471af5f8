"""NVIDIA's reports of GPU work: kernels, copies and memsets, as sums or traces."""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.names import operation_names
from nightsight.stats.events import StatsEvents
from nightsight.stats.summary import (
    api_names,
    concatenated,
    dimensions,
    group_by,
    renamed_texts,
    statistics,
    throughput,
    time_table,
)
from nightsight.tables import NULLABLE, Frame, duration

_SIZES: Final = {
    "total": "Total_bytes",
    "count": "Count",
    "avg": "Avg_bytes",
    "med": "Med_bytes",
    "min": "Min_bytes",
    "max": "Max_bytes",
    "stddev": "StdDev_bytes",
}
_KERNEL_COLUMNS: Final = {
    **{f"Grd{axis.upper()}": f"grid_{axis}" for axis in "xyz"},
    **{f"Blk{axis.upper()}": f"block_{axis}" for axis in "xyz"},
    "Reg/Trd": "registers",
    "StcSMem_bytes": "static_shared_bytes",
    "DymSMem_bytes": "dynamic_shared_bytes",
}


def cuda_gpu_kern_sum(events: StatsEvents) -> Frame:
    """Kernel time by name."""
    return _by_instances(time_table(duration(events.table("kernels")), {"Name": events.kernel_names}))


def cuda_gpu_kern_gb_sum(events: StatsEvents) -> Frame:
    """Kernel time by name, grid and block."""
    kernels = events.table("kernels")
    shapes = {"GridXYZ": dimensions(kernels, "grid"), "BlockXYZ": dimensions(kernels, "block")}
    table = time_table(duration(kernels), {"Name": events.kernel_names, **shapes})
    return _by_instances(_with_last(table, *shapes, "Name"))


def cuda_gpu_mem_time_sum(events: StatsEvents) -> Frame:
    """Time of copies and memsets by direction."""
    memory = events.table("memory_ops")
    return time_table(duration(memory), {"Operation": _operations(memory)}, count="Count")


def cuda_gpu_mem_size_sum(events: StatsEvents) -> Frame:
    """Bytes of copies and memsets by direction."""
    memory = events.table("memory_ops")
    operations = _operations(memory)
    groups = group_by([operations])
    table = statistics(memory["bytes"], groups)[list(_SIZES)].rename(columns=_SIZES)
    table = table.assign(Operation=operations.take(groups.first).to_numpy())
    return table.sort_values("Total_bytes", ascending=False, kind="stable", ignore_index=True)


def cuda_gpu_sum(events: StatsEvents) -> Frame:
    """Kernels, copies and memsets in one table."""
    return _by_category(_on_gpu(events))


def cuda_api_gpu_sum(events: StatsEvents) -> Frame:
    """CUDA calls, kernels, copies and memsets in one table."""
    calls = events.table("api_calls")
    return _by_category([("CUDA_API", api_names(calls["name"]), duration(calls)), *_on_gpu(events)])


def cuda_gpu_trace(events: StatsEvents) -> Frame:
    """Every kernel, copy and memset, in order of start time."""
    kernels, memory = events.table("kernels"), events.table("memory_ops")
    is_set = memory["operation"] == "memset"
    of_memory: dict[str, pd.Series[Any]] = {
        "Bytes_bytes": memory["bytes"].astype(NULLABLE),
        "Throughput_bytes_per_s": throughput(memory["bytes"], duration(memory)),
        "SrcMemKd": memory["source_kind"].astype("str").mask(is_set, memory["target_kind"].astype("str")),
        "DstMemKd": memory["target_kind"].astype("str").mask(is_set, ""),
    }
    of_kernels: dict[str, pd.Series[Any]] = {
        ours: kernels[theirs].astype(NULLABLE) for ours, theirs in _KERNEL_COLUMNS.items()
    }
    parts = [(kernels, of_kernels, events.kernel_names), (memory, of_memory, _operations(memory))]
    columns = [*of_kernels, *of_memory]
    devices = events.joins.profile.tables.get("devices")
    rows = [_trace(frame, values, columns).assign(Device=_device(frame, devices)) for frame, values, _ in parts]
    trace = pd.concat(rows, ignore_index=True).assign(Name=concatenated([names for *_, names in parts]))
    return _with_last(trace, "Device", "Ctx", "GreenCtx", "Strm", "Name").sort_values("Start_ns", kind="stable")


def _trace(frame: Frame, values: dict[str, "pd.Series[Any]"], columns: list[str]) -> Frame:
    """Return the rows of operations: their times, `columns` with these values or missing ones, and their place."""
    absent = pd.Series(index=frame.index, dtype=NULLABLE)
    start = {"Start_ns": frame["start_ns"], "Duration_ns": duration(frame), "CorrId": frame["correlation"]}
    ids = {"Ctx": frame["context"], "GreenCtx": frame["green_context"], "Strm": frame["stream"]}
    place = {name: column.astype(NULLABLE).where(column != 0) for name, column in ids.items()}
    texts = dict.fromkeys(("SrcMemKd", "DstMemKd"), "")
    return pd.DataFrame({**start, **{name: values.get(name, texts.get(name, absent)) for name in columns}, **place})


def _device(frame: Frame, devices: Frame | None) -> "pd.Categorical[Any]":
    names = {} if devices is None else dict(zip(devices["device"], devices["name"], strict=True))
    codes, distinct = pd.factorize(frame["ordinal"], sort=True)
    # NVIDIA uses the number within the process as the number on the machine
    texts = [f"{names.get(ordinal, '')} ({ordinal})" for ordinal in distinct]
    return pd.Categorical.from_codes(codes, categories=pd.Index(texts, dtype="str"))


def _on_gpu(events: StatsEvents) -> list[tuple[str, "pd.Series[Any]", "pd.Series[Any]"]]:
    kernels, memory = events.table("kernels"), events.table("memory_ops")
    return [
        ("CUDA_KERNEL", events.kernel_names, duration(kernels)),
        ("MEMORY_OPER", _operations(memory), duration(memory)),
    ]


def _by_category(parts: list[tuple[str, "pd.Series[Any]", "pd.Series[Any]"]]) -> Frame:
    names = concatenated([names for _, names, _ in parts])
    durations = pd.concat([durations for *_, durations in parts], ignore_index=True)
    labels = pd.Index([category for category, *_ in parts], dtype="str")
    codes = np.repeat(np.arange(len(parts)), [len(names) for _, names, _ in parts])
    categories = pd.Series(pd.Categorical.from_codes(codes, categories=labels))
    table = time_table(durations, {"Operation": names, "Category": categories})
    return _with_last(table, "Category", "Operation")


def _operations(memory: Frame) -> "pd.Series[Any]":
    return renamed_texts(memory["operation"], lambda texts: pd.Index(operation_names(texts), dtype="str"))


def _by_instances(table: Frame) -> Frame:
    """Sort like NVIDIA's kernel tables: by total time, for equal totals by fewest instances."""
    keys = ["Total Time_ns", "Instances"]
    return table.sort_values(keys, ascending=[False, True], kind="stable", ignore_index=True)


def _with_last(table: Frame, *columns: str) -> Frame:
    """Move these columns to the end."""
    return table[[*(name for name in table.columns if name not in columns), *columns]]
