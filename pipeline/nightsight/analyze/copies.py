"""Analyzes copies and memsets: their rates compared with the peak of the link, their sizes, and waits of the CPU."""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.ranges.callers import call_names, call_paths, call_pids
from nightsight.events.categories import is_pageable
from nightsight.events.peaks import Peaks, published
from nightsight.events.timeline import Timeline, begun, of_window
from nightsight.intervals import Flags, Ints, covered, union
from nightsight.results.gpu import COPY_SIZES, GPU_PEAKS, MEMORY_OPERATIONS, SLOW_COPIES
from nightsight.tables import aggregate, are_named, categorical, duration, nullable_integers, time_summary, total

_KINDS: Final = ["operation", "source_kind", "target_kind"]
# the column of `_peaks` that bounds the rate of each kind of operation
_CROSSED: Final = {
    "memory_bytes_per_s": ("Device-to-Device", "memset"),
    "nvlink_bytes_per_s": ("Peer-to-Peer",),
    "host_link_bytes_per_s": (
        "Host-to-Device",
        "Device-to-Host",
        "Unified Host-to-Device",
        "Unified Device-to-Host",
        "Host-to-Array",
        "Array-to-Host",
    ),
}
_OF_DEVICE: Final = ("Device", "Device Static", "Array")
# managed memory may be on either side of the link, so the peak of its copies is not known
_MANAGED: Final = ("Managed", "Managed Static")
_HOST: Final = ("Pageable", "Pinned")
# published link rates are the sum of both directions, in GB/s
_ONE_WAY: Final = 0.5e9
# match names with or without version (cuMemcpyHtoD_v2); calls that touch no host memory return at once anyway
_BLOCKING: Final = r"^(?:cu(?:da)?|hip)Mem(?:cpy|set)(?!.*Async)"
_BLOCKING_COPY: Final = r"^(?:cu(?:da)?|hip)Memcpy(?!.*Async)"
_WITHOUT_HOST: Final = ("Device-to-Device", "Peer-to-Peer")


def memory_operations(timeline: Timeline) -> Table:
    """Return one row per direction and pair of memory kinds: time, size, rate, and rate in percent of the peak."""
    operations = of_window(timeline, "memory_ops")
    times = time_summary(operations, _KINDS)
    by_kinds = operations.groupby(_KINDS, observed=True)
    sizes = aggregate(by_kinds, avg_bytes=("bytes", "mean"), max_bytes=("bytes", "max")).reset_index()
    table = times.merge(sizes, on=_KINDS, how="left", validate="1:1")
    # one unknown size makes the sum unknown; `summarize` would skip it
    sums = total(operations["bytes"], [operations[name] for name in _KINDS]).rename("total_bytes").reset_index()
    table = table.merge(sums, on=_KINDS, how="left", validate="1:1")
    table = table.merge(_time_at_peak(timeline), on=_KINDS, how="left", validate="1:1")
    busy_ns = table["total_ns"].where(table["total_ns"] > 0)
    table = table.assign(rate_bytes_per_s=_rate(table), peak_pct=100.0 * table["at_peak"] / busy_ns)
    columns = [*_KINDS, "count", "time_pct", "total_ns", "avg_ns", "med_ns", "max_ns"]
    return Table(table[[*columns, "total_bytes", "avg_bytes", "max_bytes", "rate_bytes_per_s", "peak_pct"]])


def gpu_peaks(timeline: Timeline) -> Table:
    """Return one row per GPU with the peaks that rates are compared with; links in one direction."""
    return Table(_peaks(timeline.profile.table("devices")))


def copy_sizes(timeline: Timeline) -> Table:
    """Return one row per direction, kind of host memory and size bin; each bin is twice as wide as the one before."""
    operations = of_window(timeline, "memory_ops")
    unsized = int((operations["bytes"].isna() & (operations["operation"] != "memset")).sum())
    operations = operations[operations["bytes"].notna()]
    # frexp's exponent p means 2^(p-1) <= size < 2^p; exact, because floats round only from 2^53 on
    power = np.frexp(operations["bytes"].to_numpy(dtype=np.float64))[1].astype(np.int64)
    frame = pd.DataFrame(
        {
            "operation": operations["operation"].to_numpy(),
            "host_kind": _host_kinds(operations),
            "power": power,
            "bytes": operations["bytes"].to_numpy(dtype=np.int64),
            "length": duration(operations).to_numpy(),
        }
    )
    grouped = frame[(operations["operation"] != "memset").to_numpy()].groupby(list(frame)[:3], observed=True)
    table = aggregate(
        grouped, count=("bytes", "size"), total_bytes=("bytes", "sum"), total_ns=("length", "sum")
    ).reset_index()
    power = table["power"].to_numpy(dtype=np.int64)
    table = table.assign(
        from_bytes=np.where(power > 0, 1 << np.maximum(power - 1, 0), 0),
        below_bytes=1 << power,
        rate_bytes_per_s=_rate(table),
    )
    columns = ["operation", "host_kind", "from_bytes", "below_bytes", "count", "total_bytes", "total_ns"]
    notes = (f"Copies whose size is not known: {unsized:,}. They are in no bin.",) if unsized else ()
    return Table(table[[*columns, "rate_bytes_per_s"]], notes)


def _rate(table: pd.DataFrame) -> "pd.Series[float]":
    """Return bytes per second, missing where the size or the time is not known."""
    return table["total_bytes"].astype("float64") * 1e9 / table["total_ns"].where(table["total_ns"] > 0)


def slow_copies(timeline: Timeline) -> Table:
    """Return copies of pageable memory and operations of blocking calls: one row per combination of `keys`.

    Times are in ns. A copy whose call was not recorded has no CPU time.
    """
    operations = timeline.profile.table("memory_ops")
    positions = np.flatnonzero(timeline.operations.of("memory_ops"))
    is_slow = is_pageable(operations) | _is_waited_for(timeline, timeline.operations.call[positions])
    slow = np.flatnonzero(is_slow & begun(timeline, operations["start_ns"]))
    slow_rows, call = operations.iloc[slow], timeline.operations.call[positions[slow]]
    keys = {
        "path": call_paths(timeline, call),
        "name": call_names(timeline, call),
        "operation": slow_rows["operation"].to_numpy(),
        "host_kind": _host_kinds(slow_rows),
        "device": timeline.operations.device[positions[slow]],
        "pid": call_pids(timeline, call),
    }
    frame = pd.DataFrame(keys).assign(call=call, bytes=slow_rows["bytes"].array, copy=duration(slow_rows).to_numpy())
    start, end = (np.append(times, 0)[call] for times in timeline.call_times)
    # a call can copy in several pieces: count its CPU time once
    is_first = ~frame.duplicated([*keys, "call"]) & (call >= 0)
    frame = frame.assign(cpu=np.where(is_first, end - start, 0), exposed=_exposed(timeline, positions[slow]))
    grouped = frame.groupby(list(keys), observed=True, dropna=False)
    table = aggregate(
        grouped, count=("bytes", "size"), copy_ns=("copy", "sum"), cpu_ns=("cpu", "sum"), exposed_ns=("exposed", "sum")
    )
    table.insert(1, "total_bytes", total(frame["bytes"], [frame[name] for name in keys]))
    table = table.reset_index()
    order = ["cpu_ns", "copy_ns", *keys]
    table = table.sort_values(order, ascending=[False, False, *([True] * len(keys))], ignore_index=True)
    columns = [name for name in table if name != "pid"]
    return Table(table[[*columns, "pid"]].astype({"path": "str"}), _unknown(int((call < 0).sum()), len(call)))


def _exposed(timeline: Timeline, position: Ints) -> Ints:
    """Return for each operation the ns of the window from its call to its end in which its device ran no kernel.

    If the spans of several operations overlap, the common time goes to the first.
    """
    operations, window = timeline.operations, timeline.window
    call, end = operations.call[position], operations.end[position]
    start = np.where(call >= 0, np.append(timeline.call_times[0], 0)[call], operations.start[position])
    exposed = np.zeros(len(position), dtype=np.int64)
    for device in np.unique(operations.device[position]):
        rows = np.flatnonzero(operations.device[position] == device)
        rows = rows[np.argsort(start[rows], kind="stable")]
        # how far the spans before each one reach: only what lies beyond is its own
        reached = np.concatenate(([window.start_ns], np.maximum.accumulate(end[rows])[:-1]))
        low, high = np.clip((np.maximum(start[rows], reached), end[rows]), window.start_ns, window.end_ns)
        kernels = (operations.device == device) & ~operations.of("memory_ops")
        computing = union(operations.start[kernels], operations.end[kernels])
        # spans that lie wholly within earlier ones have length 0
        low = np.minimum(low, high)
        exposed[rows] = high - low - covered(computing, low, high)
    return exposed


def waiting_calls(timeline: Timeline) -> Ints:
    """Return the rows of api_calls that return only when a copy or memset is done.

    These are blocking calls, and asynchronous copies to pageable host memory.
    """
    operations, names = timeline.profile.table("memory_ops"), timeline.profile.table("api_calls")["name"]
    call = timeline.operations.call[timeline.operations.of("memory_ops")]
    # a blocking copy call without a recorded copy counts too: it may have waited; memsets mostly do not wait
    copies = np.setdiff1d(np.flatnonzero(are_named(names, _BLOCKING_COPY)), call[_within_gpus(operations)])
    to_host = is_pageable(operations) & operations["operation"].isin(["Device-to-Host", "Array-to-Host"]).to_numpy()
    of_operations = call[(to_host | _is_waited_for(timeline, call)) & (call >= 0)]
    return np.union1d(copies, of_operations)


def _is_waited_for(timeline: Timeline, call: Ints) -> Flags:
    """Return which memory_ops their call waits for, by its name; `call` is the call of every row."""
    is_blocking = are_named(timeline.profile.table("api_calls")["name"], _BLOCKING)
    # an unknown call, -1, finds the appended False
    flags: Flags = np.append(is_blocking, False)[call]
    return flags & ~_within_gpus(timeline.profile.table("memory_ops"))


def _within_gpus(operations: pd.DataFrame) -> Flags:
    """Return which operations use only GPU memory: copies within and between GPUs, and memsets there."""
    on_gpu = (operations["operation"] == "memset") & ~operations["target_kind"].isin([*_HOST, *_MANAGED])
    flags: Flags = (operations["operation"].isin(_WITHOUT_HOST) | on_gpu).to_numpy(dtype=bool)
    return flags


def _host_kinds(operations: pd.DataFrame) -> "pd.Categorical[Any]":
    """Return the kind of host memory of each operation; empty if no host memory is involved."""
    source, target = operations["source_kind"].cat, operations["target_kind"].cat
    values = np.concatenate([source.categories, target.categories, [""]])
    is_host = np.isin(values, _HOST)
    # the source decides if both sides are host memory
    first = source.codes.to_numpy(dtype=np.int64)
    second = target.codes.to_numpy(dtype=np.int64) + len(source.categories)
    return categorical(values, np.select([is_host[first], is_host[second]], [first, second], len(values) - 1))


def _peaks(devices: pd.DataFrame) -> pd.DataFrame:
    """Return the peaks of each device: memory and L2 as the driver reports, else as published; links as published."""
    devices = devices.drop_duplicates("device").sort_values("device", ignore_index=True)
    models = [published(name) for name in devices["name"].astype("str")]
    *numbers, source = Peaks._fields
    facts = pd.DataFrame(models, columns=Peaks._fields).astype(dict.fromkeys(numbers, np.float64))
    memory, l2 = (
        devices[name].to_numpy(dtype=np.float64, na_value=np.nan)
        for name in ("memory_bandwidth_bytes_per_s", "l2_bytes")
    )
    return devices[["device", "name"]].assign(
        memory_bytes_per_s=np.where(memory > 0, memory, facts["memory_gb_per_s"] * 1e9),
        pcie_generation=nullable_integers(facts["pcie_generation"].to_numpy()),
        host_link_bytes_per_s=facts["pcie_gb_per_s"] * _ONE_WAY,
        nvlink_bytes_per_s=facts["nvlink_gb_per_s"] * _ONE_WAY,
        l2_bytes=nullable_integers(np.where(l2 > 0, l2, facts["l2_mib"] * 2**20)),
        source=facts[source].astype("str"),
    )


def _time_at_peak(timeline: Timeline) -> pd.DataFrame:
    """Return the time of each kind of operation at the peak rate of its link or memory, in ns (`at_peak`).

    Missing if a size or a peak is unknown.
    """
    operations, devices = timeline.profile.table("memory_ops"), timeline.profile.recorded("devices")
    copies = operations.assign(device=timeline.operations.device[timeline.operations.of("memory_ops")])
    copies = copies[begun(timeline, copies["start_ns"])]
    copies = total(copies["bytes"], [copies[name] for name in (*_KINDS, "device")]).reset_index()
    table = copies.merge(_peaks(devices), on="device", how="left", validate="m:1")
    operation, target = table["operation"].astype("str"), table["target_kind"]
    peak = np.select([operation.isin(kinds) for kinds in _CROSSED.values()], [table[name] for name in _CROSSED], np.nan)
    is_uncertain = (operation == "memset") & ~target.isin(_OF_DEVICE) | target.isin(_MANAGED)
    is_uncertain |= table["source_kind"].isin(_MANAGED)
    # a copy within a device moves each byte twice: it reads and writes the same memory
    passes = np.where(operation == "Device-to-Device", 2, 1)
    # infinity marks unknown parts, because a sum skips NaN; a sum with an unknown part is unknown
    size = table["bytes"].to_numpy(dtype=np.float64, na_value=np.nan)
    parts = table.assign(at_peak=pd.Series(size * passes * 1e9 / peak).mask(is_uncertain).fillna(np.inf))
    sums = parts.groupby(_KINDS, observed=True)["at_peak"].sum()
    return sums.where(np.isfinite(sums)).reset_index()


def _unknown(count: int, total: int) -> tuple[str, ...]:
    if not count:
        return ()
    return (f"{count:,} of {total:,} such operations have no recorded API call; their CPU time is not counted.",)


ANALYSES: Final = (
    Analysis(MEMORY_OPERATIONS, memory_operations, "memory_ops"),
    Analysis(COPY_SIZES, copy_sizes, "memory_ops"),
    Analysis(SLOW_COPIES, slow_copies, "memory_ops"),
    Analysis(GPU_PEAKS, gpu_peaks),
)
