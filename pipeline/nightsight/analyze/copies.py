"""Copies: how fast against the peak of what they cross, how large, and which of them make the CPU wait."""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.ranges.callers import call_names, call_paths
from nightsight.events.timeline import Timeline
from nightsight.intervals import Flags, Ints, covered, union
from nightsight.peaks import Peaks, published
from nightsight.results import COPY_SIZES, GPU_PEAKS, MEMORY_OPERATIONS, SLOW_COPIES
from nightsight.tables import categorical, duration, empty, summarize, time_summary, total, whole

_KINDS: Final = ["operation", "source_kind", "target_kind"]
# what operations cross
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
# it may be on either side of the link
_MANAGED: Final = ("Managed", "Managed Static")
_HOST: Final = ("Pageable", "Pinned")
# links are published with the sum of both directions
_ONE_WAY: Final = 0.5e9
# by name without version; what touches no host memory returns at once whatever it is called
_BLOCKING: Final = r"^cu(?:da)?Mem(?:cpy|set)(?!.*Async)"
_BLOCKING_COPY: Final = r"^cu(?:da)?Memcpy(?!.*Async)"
_WITHOUT_HOST: Final = ("Device-to-Device", "Peer-to-Peer")


def memory_operations(timeline: Timeline) -> Table:
    """One row per direction and pair of memory kinds, with time, size, rate and the share of the peak this is."""
    operations = timeline.profile.table("memory_ops")
    times = time_summary(operations, _KINDS)
    sizes = summarize(operations, _KINDS, "bytes")
    sizes = sizes.rename(columns={name: f"{name}_bytes" for name in ("avg", "med", "min", "max")})
    table = times.merge(sizes.drop(columns=["count", "stddev", "total"]), on=_KINDS, how="left", validate="1:1")
    sums = total(operations["bytes"], [operations[name] for name in _KINDS]).rename("total_bytes").reset_index()
    table = table.merge(sums, on=_KINDS, how="left", validate="1:1")
    table = table.merge(_time_at_peak(timeline), on=_KINDS, how="left", validate="1:1")
    spent = table["total_ns"].where(table["total_ns"] > 0)
    table = table.assign(rate_bytes_per_s=table["total_bytes"] * 1e9 / spent, peak_pct=100.0 * table["at_peak"] / spent)
    columns = [*_KINDS, "count", "time_pct", "total_ns", "avg_ns", "med_ns", "max_ns"]
    return Table(table[[*columns, "total_bytes", "avg_bytes", "max_bytes", "rate_bytes_per_s", "peak_pct"]])


def gpu_peaks(timeline: Timeline) -> Table:
    """One row per GPU with the peaks that rates are compared to, each link in one direction."""
    return Table(_peaks(timeline.profile.table("devices")))


def copy_sizes(timeline: Timeline) -> Table:
    """One row per direction, kind of host memory and size class, the classes doubling from one to the next."""
    operations = timeline.profile.table("memory_ops")
    unsized = int((operations["bytes"].isna() & (operations["operation"] != "memset")).sum())
    operations = operations[operations["bytes"].notna()]
    # exact: sizes are far below 2^53, where floats begin to round
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
    table = grouped.agg(count=("bytes", "size"), total_bytes=("bytes", "sum"), total_ns=("length", "sum")).reset_index()
    power = table["power"].to_numpy(dtype=np.int64)
    spent = table["total_ns"].where(table["total_ns"] > 0)
    table = table.assign(
        from_bytes=np.where(power > 0, 1 << np.maximum(power - 1, 0), 0),
        below_bytes=1 << power,
        rate_bytes_per_s=table["total_bytes"] * 1e9 / spent,
    )
    columns = ["operation", "host_kind", "from_bytes", "below_bytes", "count", "total_bytes", "total_ns"]
    notes = (f"The sizes of {unsized:,} copies are not known; they are in no class.",) if unsized else ()
    return Table(table[[*columns, "rate_bytes_per_s"]], notes)


def slow_copies(timeline: Timeline) -> Table:
    """One row per path, function, operation, host memory, device and process: pageable copies and blocking calls."""
    operations = timeline.profile.table("memory_ops")
    positions = np.flatnonzero(timeline.operations.of("memory_ops"))
    slow = np.flatnonzero(is_pageable(operations) | _is_waited_for(timeline, timeline.operations.call[positions]))
    mine, call = operations.iloc[slow], timeline.operations.call[positions[slow]]
    keys = {
        "path": call_paths(timeline, call),
        "name": call_names(timeline, call),
        "operation": mine["operation"].to_numpy(),
        "host_kind": _host_kinds(mine),
        "device": timeline.operations.device[positions[slow]],
        "pid": _pids(timeline, call),
    }
    frame = pd.DataFrame(keys).assign(call=call, bytes=mine["bytes"].array, copy=duration(mine).to_numpy())
    start, end = (np.append(times, 0)[call] for times in timeline.call_times)
    # a call that copies in several pieces waits once
    counted = ~frame.duplicated([*keys, "call"]) & (call >= 0)
    frame = frame.assign(cpu=np.where(counted, end - start, 0), exposed=_exposed(timeline, positions[slow]))
    grouped = frame.groupby(list(keys), observed=True, dropna=False)
    table = grouped.agg(
        count=("bytes", "size"), copy_ns=("copy", "sum"), cpu_ns=("cpu", "sum"), exposed_ns=("exposed", "sum")
    )
    table.insert(1, "total_bytes", total(frame["bytes"], [frame[name] for name in keys]))
    table = table.reset_index()
    order = ["cpu_ns", "copy_ns", *keys]
    table = table.sort_values(order, ascending=[False, False, *([True] * len(keys))], ignore_index=True)
    columns = [name for name in table if name != "pid"]
    return Table(table[[*columns, "pid"]].astype({"path": "str"}), _unknown(int((call < 0).sum()), len(call)))


def _pids(timeline: Timeline, call: Ints) -> "pd.Series[Any]":
    """Return the process of each call (a row in api_calls, or -1: missing)."""
    pids = timeline.profile.table("api_calls")["pid"].to_numpy(dtype=np.float64)
    return whole(np.append(pids, np.nan)[call])


def _exposed(timeline: Timeline, position: Ints) -> Ints:
    """Return for each operation how much of the window passed without a kernel on its device, from call to end.

    Where several overlap, the first has that time.
    """
    operations, window = timeline.operations, timeline.window
    call, end = operations.call[position], operations.end[position]
    start = np.where(call >= 0, np.append(timeline.call_times[0], 0)[call], operations.start[position])
    exposed = np.zeros(len(position), dtype=np.int64)
    for device in np.unique(operations.device[position]):
        mine = np.flatnonzero(operations.device[position] == device)
        mine = mine[np.argsort(start[mine], kind="stable")]
        reached = np.concatenate(([window.start_ns], np.maximum.accumulate(end[mine])[:-1]))
        low, high = np.clip((np.maximum(start[mine], reached), end[mine]), window.start_ns, window.end_ns)
        kernels = (operations.device == device) & ~operations.of("memory_ops")
        computing = union(operations.start[kernels], operations.end[kernels])
        low = np.minimum(low, high)
        exposed[mine] = high - low - covered(computing, low, high)
    return exposed


def is_pageable(operations: pd.DataFrame) -> Flags:
    """Tell which of some memory_ops copy from or to pageable host memory."""
    flags: Flags = ((operations["source_kind"] == "Pageable") | (operations["target_kind"] == "Pageable")).to_numpy()
    return flags


def waiting_calls(timeline: Timeline) -> Ints:
    """Return the rows in api_calls that return only when a copy or set is done: blocking, or to pageable memory."""
    operations = timeline.profile.table("memory_ops")
    call = timeline.operations.call[timeline.operations.of("memory_ops")]
    # one without a recorded copy may have waited as well; sets mostly do not
    copies = np.setdiff1d(np.flatnonzero(_is_blocking(timeline, _BLOCKING_COPY)), call[_within_gpus(operations)])
    to_host = is_pageable(operations) & operations["operation"].isin(["Device-to-Host", "Array-to-Host"]).to_numpy()
    waited = call[(to_host | _is_waited_for(timeline, call)) & (call >= 0)]
    return np.union1d(copies, waited)


def _is_waited_for(timeline: Timeline, call: Ints) -> Flags:
    """Tell which operations their call waited for because of its name, given the call of every row of memory_ops."""
    flags: Flags = np.append(_is_blocking(timeline, _BLOCKING), False)[call]
    return flags & ~_within_gpus(timeline.profile.table("memory_ops"))


def _is_blocking(timeline: Timeline, pattern: str) -> Flags:
    """Tell which of all calls wait, by their name."""
    names = timeline.profile.table("api_calls")["name"].cat
    flags: Flags = np.asarray(names.categories.str.contains(pattern), dtype=bool)[names.codes]
    return flags


def _within_gpus(operations: pd.DataFrame) -> Flags:
    """Tell which operations touch no memory that the CPU uses: copies between GPUs, and sets of theirs."""
    on_gpu = (operations["operation"] == "memset") & ~operations["target_kind"].isin([*_HOST, *_MANAGED])
    flags: Flags = (operations["operation"].isin(_WITHOUT_HOST) | on_gpu).to_numpy(dtype=bool)
    return flags


def _host_kinds(operations: pd.DataFrame) -> "pd.Categorical[Any]":
    """The kind of host memory of each operation, empty where no host memory takes part."""
    source, target = operations["source_kind"].cat, operations["target_kind"].cat
    values = np.concatenate([source.categories, target.categories, [""]])
    is_host = np.isin(values, _HOST)
    first = source.codes.to_numpy(dtype=np.int64)
    second = target.codes.to_numpy(dtype=np.int64) + len(source.categories)
    return categorical(values, np.select([is_host[first], is_host[second]], [first, second], len(values) - 1))


def _peaks(devices: pd.DataFrame) -> pd.DataFrame:
    """What the driver says of each device's memory, else what is published; of the links, what is published."""
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
        pcie_generation=whole(facts["pcie_generation"].to_numpy()),
        host_link_bytes_per_s=facts["pcie_gb_per_s"] * _ONE_WAY,
        nvlink_bytes_per_s=facts["nvlink_gb_per_s"] * _ONE_WAY,
        l2_bytes=whole(np.where(l2 > 0, l2, facts["l2_mib"] * 2**20)),
        source=facts[source].astype("str"),
    )


def _time_at_peak(timeline: Timeline) -> pd.DataFrame:
    """How long each kind of operation would take at the peak of what it crosses; missing where one is unknown."""
    operations, devices = timeline.profile.table("memory_ops"), timeline.profile.tables.get("devices", empty("devices"))
    moved = operations.assign(device=timeline.operations.device[timeline.operations.of("memory_ops")])
    moved = total(moved["bytes"], [moved[name] for name in (*_KINDS, "device")]).reset_index()
    table = moved.merge(_peaks(devices), on="device", how="left", validate="m:1")
    operation, target = table["operation"].astype("str"), table["target_kind"]
    peak = np.select([operation.isin(some) for some in _CROSSED.values()], [table[name] for name in _CROSSED], np.nan)
    uncertain = (operation == "memset") & ~target.isin(_OF_DEVICE) | target.isin(_MANAGED)
    uncertain |= table["source_kind"].isin(_MANAGED)
    # a copy within a device reads its memory and writes it
    times = np.where(operation == "Device-to-Device", 2, 1)
    # one unknown part makes the sum unknown: NaN would be skipped
    size = table["bytes"].to_numpy(dtype=np.float64, na_value=np.nan)
    parts = table.assign(at_peak=pd.Series(size * times * 1e9 / peak).mask(uncertain).fillna(np.inf))
    sums = parts.groupby(_KINDS, observed=True)["at_peak"].sum()
    return sums.where(np.isfinite(sums)).reset_index()


def _unknown(count: int, total: int) -> tuple[str, ...]:
    if not count:
        return ()
    return (f"{count:,} of {total:,} such copies have no recorded API call; their CPU time is not counted.",)


ANALYSES: Final = (
    Analysis(MEMORY_OPERATIONS, memory_operations),
    Analysis(COPY_SIZES, copy_sizes),
    Analysis(SLOW_COPIES, slow_copies),
    Analysis(GPU_PEAKS, gpu_peaks),
)
