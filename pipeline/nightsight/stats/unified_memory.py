"""NVIDIA's reports of unified memory: migrations between host and device, and page faults."""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.stats.events import StatsEvents
from nightsight.stats.summary import throughput
from nightsight.tables import NULLABLE, Frame, duration

_TO_HOST: Final = "Unified Device-to-Host"
_TO_DEVICE: Final = "Unified Host-to-Device"


def um_sum(events: StatsEvents) -> Frame:
    """Bytes moved and page faults by virtual address, highest throughput first; ten rows by default.

    The throughput is NVIDIA's: bytes times the integer quotient of one second and their duration.
    """
    to_host, to_device = (_migrations(events, operation) for operation in (_TO_HOST, _TO_DEVICE))
    sums = {
        "CPU Page Faults": events.table("cpu_page_faults").groupby("address").size(),
        " GPU Page Faults": events.table("gpu_page_faults").groupby("address")["faults"].sum(),
        "DtoH Migration size_bytes": to_host.groupby("address")["bytes"].sum(),
        "HtoD Migration size_bytes": to_device.groupby("address")["bytes"].sum(),
    }
    # NVIDIA's order for equal throughputs: addresses with CPU faults, with only GPU faults, without faults
    addresses = pd.unique(np.concatenate([by_address.index.to_numpy(dtype=np.int64) for by_address in sums.values()]))
    table = pd.DataFrame({name: column.astype(NULLABLE).reindex(addresses) for name, column in sums.items()})
    migrations = pd.concat([to_host, to_device])
    total = migrations.assign(duration=duration(migrations)).groupby("address")[["bytes", "duration"]].sum()
    rates = throughput(total["bytes"], total["duration"])
    table = table.assign(throughput=rates.reindex(addresses), address=_hexadecimal(addresses))
    table = table.sort_values("throughput", ascending=False, na_position="last", kind="stable", ignore_index=True)
    names = {"address": "Virtual Address", "throughput": "Migration Throughput_bytes_per_s"}
    order = ["address", *reversed(list(sums)[2:]), *list(sums)[:2], "throughput"]
    return table[order].rename(columns=names).head(events.options.rows)


def um_total_sum(events: StatsEvents) -> Frame:
    """Bytes moved, page faults and the range of addresses, over the whole capture."""
    to_device, to_host = (_migrations(events, operation) for operation in (_TO_DEVICE, _TO_HOST))
    by_cpu, by_gpu = events.table("cpu_page_faults"), events.table("gpu_page_faults")
    addresses = [frame["address"] for frame in (by_cpu, by_gpu, to_device, to_host)]
    # as in NVIDIA's report, there is no minimum or maximum address if one of the four has no rows
    lowest, highest = [""], [""]
    if all(map(len, addresses)):
        lowest = _hexadecimal([min(column.min() for column in addresses)])
        highest = _hexadecimal([max(column.max() for column in addresses)])
    columns = {
        "Total HtoD Migration Size_bytes": _sum(to_device["bytes"]),
        "Total DtoH Migration Size_bytes": _sum(to_host["bytes"]),
        "Total CPU Page Faults": [len(by_cpu)],
        "Total GPU PageFaults": _sum(by_gpu["faults"]),
        "Minimum Virtual Address": lowest,
        "Maximum Virtual Address": highest,
    }
    return pd.DataFrame(columns)


def um_cpu_page_faults_sum(events: StatsEvents) -> Frame:
    """CPU page faults by instruction, most frequent first."""
    keys = {"instruction": "CPU Instruction Address", "source_file": "Source File", "source_line": "Source Line"}
    faults = events.table("cpu_page_faults")
    table = faults.groupby(list(keys), observed=True, dropna=False).size().reset_index(name="CPU Page Faults")
    table = table.rename(columns=keys)[["CPU Page Faults", *keys.values()]]
    return table.sort_values("CPU Page Faults", ascending=False, kind="stable", ignore_index=True)


def _migrations(events: StatsEvents, operation: str) -> Frame:
    memory = events.table("memory_ops")
    return memory[memory["operation"] == operation]


def _sum(values: "pd.Series[Any]") -> "pd.Series[Any]":
    """Sum like SQLite: the sum of no values is NULL."""
    return pd.Series([values.sum() if len(values) else None], dtype=NULLABLE)


def _hexadecimal(addresses: Any) -> list[str]:  # noqa: ANN401 (any sequence of whole numbers)
    return [f"0x{int(address) & (1 << 64) - 1:X}" for address in addresses]
