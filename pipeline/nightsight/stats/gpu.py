"""NVIDIA's reports of GPU work: kernels, copies and memsets, as sums or traces."""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.names import operation_names
from nightsight.stats.events import Events, Frame
from nightsight.stats.summary import (
    api_names,
    changed,
    dimensions,
    group_by,
    joined,
    statistics,
    throughput,
    time_table,
)
from nightsight.tables import NULLABLE, duration

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


def cuda_gpu_kern_sum(events: Events) -> Frame:
    """Kernel time by name."""
    return _by_instances(time_table(duration(events.table("kernels")), {"Name": events.kernel_names}))


def cuda_gpu_kern_gb_sum(events: Events) -> Frame:
    """Kernel time by name, grid and block."""
    kernels = events.table("kernels")
    shapes = {"GridXYZ": dimensions(kernels, "grid"), "BlockXYZ": dimensions(kernels, "block")}
    table = time_table(duration(kernels), {"Name": events.kernel_names, **shapes})
    return _by_instances(_last(table, *shapes, "Name"))


def cuda_gpu_mem_time_sum(events: Events) -> Frame:
    """Time of copies and memsets by direction."""
    memory = events.table("memory_ops")
    return time_table(duration(memory), {"Operation": _operations(memory)}, count="Count")


def cuda_gpu_mem_size_sum(events: Events) -> Frame:
    """Bytes of copies and memsets by direction."""
    memory = events.table("memory_ops")
    operations = _operations(memory)
    groups = group_by([operations])
    table = statistics(memory["bytes"], groups)[list(_SIZES)].rename(columns=_SIZES)
    table = table.assign(Operation=operations.take(groups.first).to_numpy())
    return table.sort_values("Total_bytes", ascending=False, kind="stable", ignore_index=True)


def cuda_gpu_sum(events: Events) -> Frame:
    """Kernels, copies and memsets in one table."""
    return _by_category(_on_gpu(events))


def cuda_api_gpu_sum(events: Events) -> Frame:
    """CUDA calls, kernels, copies and memsets in one table."""
    calls = events.table("api_calls")
    return _by_category([("CUDA_API", api_names(calls["name"]), duration(calls)), *_on_gpu(events)])


def cuda_gpu_trace(events: Events) -> Frame:
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
    rows = [_trace(frame, own, columns).assign(Device=_device(frame, devices)) for frame, own, _ in parts]
    trace = pd.concat(rows, ignore_index=True).assign(Name=joined([names for *_, names in parts]))
    return _last(trace, "Device", "Ctx", "GreenCtx", "Strm", "Name").sort_values("Start_ns", kind="stable")


def _trace(frame: Frame, own: dict[str, "pd.Series[Any]"], columns: list[str]) -> Frame:
    absent = pd.Series(index=frame.index, dtype=NULLABLE)
    start = {"Start_ns": frame["start_ns"], "Duration_ns": duration(frame), "CorrId": frame["correlation"]}
    place = {"Ctx": frame["context"], "GreenCtx": frame["green_context"], "Strm": frame["stream"]}
    known = {name: ids.astype(NULLABLE).where(ids != 0) for name, ids in place.items()}
    texts = dict.fromkeys(("SrcMemKd", "DstMemKd"), "")
    return pd.DataFrame({**start, **{name: own.get(name, texts.get(name, absent)) for name in columns}, **known})


def _device(frame: Frame, devices: Frame | None) -> "pd.Categorical[Any]":
    known = {} if devices is None else dict(zip(devices["device"], devices["name"], strict=True))
    codes, distinct = pd.factorize(frame["ordinal"], sort=True)
    # NVIDIA takes a number within a process for one on the machine
    texts = [f"{known.get(ordinal, '')} ({ordinal})" for ordinal in distinct]
    return pd.Categorical.from_codes(codes, categories=pd.Index(texts, dtype="str"))


def _on_gpu(events: Events) -> list[tuple[str, "pd.Series[Any]", "pd.Series[Any]"]]:
    kernels, memory = events.table("kernels"), events.table("memory_ops")
    return [
        ("CUDA_KERNEL", events.kernel_names, duration(kernels)),
        ("MEMORY_OPER", _operations(memory), duration(memory)),
    ]


def _by_category(parts: list[tuple[str, "pd.Series[Any]", "pd.Series[Any]"]]) -> Frame:
    names = joined([names for _, names, _ in parts])
    durations = pd.concat([durations for *_, durations in parts], ignore_index=True)
    labels = pd.Index([category for category, *_ in parts], dtype="str")
    codes = np.repeat(np.arange(len(parts)), [len(names) for _, names, _ in parts])
    categories = pd.Series(pd.Categorical.from_codes(codes, categories=labels))
    table = time_table(durations, {"Operation": names, "Category": categories})
    return _last(table, "Category", "Operation")


def _operations(memory: Frame) -> "pd.Series[Any]":
    return changed(memory["operation"], lambda texts: pd.Index(operation_names(texts), dtype="str"))


def _by_instances(table: Frame) -> Frame:
    """Sort like NVIDIA's kernel tables: by total time, for equal totals by fewest instances."""
    order = ["Total Time_ns", "Instances"]
    return table.sort_values(order, ascending=[False, True], kind="stable", ignore_index=True)


def _last(table: Frame, *columns: str) -> Frame:
    return table[[*(name for name in table.columns if name not in columns), *columns]]
