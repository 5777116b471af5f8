"""Which NVTX range each GPU operation belongs to, and what ranges cost on the CPU and on the GPU.

An operation belongs to the innermost range open on the launching thread when it was launched, else to the innermost
open in the process: PyTorch launches its backward pass from another thread than the one that opened the range.
"""

from typing import Final

import numpy as np
import pandas as pd

from pipeline.analyze.analysis import Analysis, Table
from pipeline.analyze.launch import launch_calls
from pipeline.intervals import Ints, innermost, outer
from pipeline.model import Profile
from pipeline.tables import ancestors, duration, nest, summarize

_KEYS: Final = ["process", "correlation"]


def range_time(profile: Profile) -> Table:
    """One row per path of ranges; GPU columns include the ranges inside."""
    ranges = nested(profile.table("ranges"))
    paths = summarize(ranges.assign(length=duration(ranges)), ["path"], "length").set_index("path")
    columns = {
        "total": "cpu_total_ns",
        "med": "cpu_med_ns",
        "min": "cpu_min_ns",
        "max": "cpu_max_ns",
        "count": "instances",
    }
    table = paths.rename(columns=columns)[["instances", "cpu_total_ns", "cpu_med_ns", "cpu_min_ns", "cpu_max_ns"]]
    first = ranges.groupby("path", sort=False)
    table = table.join(first.agg(style=("style", "first"), level=("level", "first"), start=("start_ns", "min")))
    notes: tuple[str, ...] = ()
    if {"kernels", "memory_ops", "api_calls"} <= profile.tables.keys():
        owned, notes = _gpu_work(profile, ranges)
        table = table.join(owned, how="left")
        table[list(owned.columns)] = table[list(owned.columns)].fillna(0).astype("int64")
    table = table.sort_values(["start", "level"]).drop(columns="start").reset_index()
    return Table(table, notes)


def nested(ranges: pd.DataFrame) -> pd.DataFrame:
    """Nest ranges and add their level and their path: the names from the root, `step / forward`."""
    ranges = nest(ranges)
    domain, name = ranges["domain"].astype("str"), ranges["name"].astype("str")
    names = (domain + ":" + name).where(domain != "", name).to_numpy(dtype=object)
    path, level = names.copy(), np.zeros(len(ranges), dtype=np.int64)
    for rows, above in ancestors(ranges["parent"].to_numpy()):
        path[rows] = names[above] + " / " + path[rows]
        level[rows] += 1
    return ranges.assign(level=level, path=path)


def owners(ranges: pd.DataFrame, launched: pd.DataFrame) -> pd.DataFrame:
    """Return for each launch (process, thread, time_ns) its range's row in `ranges`, and how it was found.

    way: "thread", "process" or "none".
    """
    by_thread = _innermost_by(ranges, launched, "thread")
    by_process = _innermost_by(ranges, launched, "process")
    way = np.where(by_thread >= 0, "thread", np.where(by_process >= 0, "process", "none"))
    return pd.DataFrame({"range": np.where(by_thread >= 0, by_thread, by_process), "way": way}, index=launched.index)


def _innermost_by(ranges: pd.DataFrame, launched: pd.DataFrame, key: str) -> Ints:
    """Row of the innermost range open at `time_ns` among those with the same `key`, or -1."""
    found = np.full(len(launched), -1, dtype=np.int64)
    groups = launched.reset_index(drop=True).groupby(key).indices
    for value, group in ranges.groupby(key):
        rows = groups.get(value)
        if rows is None:
            continue
        spans = group.sort_values(["start_ns", "end_ns"], ascending=[True, False], kind="stable")
        start, end = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
        local = innermost(start, end, outer(end), launched["time_ns"].to_numpy(dtype=np.int64)[rows])
        found[rows] = np.where(local >= 0, spans.index.to_numpy()[local], -1)
    return found


def _gpu_work(profile: Profile, ranges: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """GPU operations and their time per path, inner ranges included, and a note on coverage."""
    operations = _launched_operations(profile)
    found = operations[operations["thread"].notna()]
    owned = found.join(owners(ranges, found))
    row = owned["range"].to_numpy(dtype=np.int64)
    sums: dict[str, Ints] = {}
    for table, (count, time) in _COLUMNS.items():
        mine = (owned["kind"] == table).to_numpy() & (row >= 0)
        if mine.any() or table != "graph_launches":
            sums[count] = _with_enclosing(ranges, row[mine], np.ones(mine.sum(), dtype=np.int64))
            sums[time] = _with_enclosing(ranges, row[mine], owned["length"].to_numpy(dtype=np.int64)[mine])
    per_path = pd.DataFrame({**sums, "path": ranges["path"]}).groupby("path").sum()
    return per_path, (_coverage(owned, len(operations)),)


_COLUMNS: Final = {
    "kernels": ("kernels", "kernel_ns"),
    "memory_ops": ("copies", "copy_ns"),
    "graph_launches": ("graph_launches", "graph_ns"),
}


def _with_enclosing(ranges: pd.DataFrame, row: Ints, amount: Ints) -> Ints:
    """Sum `amount` per range and add what its inner ranges own."""
    own = np.zeros(len(ranges), dtype=np.int64)
    np.add.at(own, row, amount)
    total = own.copy()
    for rows, above in ancestors(ranges["parent"].to_numpy()):
        np.add.at(total, above, own[rows])
    return total


def _launched_operations(profile: Profile) -> pd.DataFrame:
    """GPU operations with thread and time of the call that launched them; NA where none was recorded."""
    columns = ["start_ns", "end_ns", *_KEYS]
    frames = [profile.tables[name][columns].assign(kind=name) for name in _COLUMNS if name in profile.tables]
    operations = pd.concat(frames, ignore_index=True)
    joined = operations.merge(launch_calls(profile), on=_KEYS, how="left", validate="m:1")
    return joined.assign(length=duration(joined)).rename(columns={"api_start_ns": "time_ns"})


def _coverage(owned: pd.DataFrame, total: int) -> str:
    way = owned["way"].value_counts()
    thread, process = int(way.get("thread", 0)), int(way.get("process", 0))
    return (
        f"{thread + process:,} of {total:,} GPU operations were launched inside a range: {thread:,} on the range's own "
        f"thread, {process:,} on another thread of the process (PyTorch's backward pass)."
    )


ANALYSES: Final = (
    Analysis(
        "nvtx_ranges",
        "NVTX ranges",
        "CPU: from the start to the end of the range. Kernels and copies: those launched inside it, inner ranges "
        "included; an operation belongs to the innermost range open on the launching thread, else to the innermost "
        "open in the process at that time. Times are sums, so they may exceed the range's own.",
        ("ranges",),
        range_time,
    ),
)
