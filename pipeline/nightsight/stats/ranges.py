"""NVIDIA's reports of NVTX ranges: their CPU time, and the GPU work launched inside them on the same thread."""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.intervals import Ints
from nightsight.stats.events import StatsEvents, full_names, nested
from nightsight.stats.summary import distinct_counts, group_by, statistics, time_table
from nightsight.tables import NULLABLE, PUSH_POP, START_END, Frame, duration

_PROJECTION: Final = {
    "total": "Total Proj Time_ns",
    "cpu": "Total Range Time_ns",
    "count": "Range Instances",
    "avg": "Proj Avg_ns",
    "med": "Proj Med_ns",
    "min": "Proj Min_ns",
    "max": "Proj Max_ns",
    "stddev": "Proj StdDev_ns",
    "operations": "Total GPU Ops",
    "avg_operations": "Avg GPU Ops",
    "avg_level": "Avg Range Lvl",
    "avg_children": "Avg Num Child",
}
_PLACE: Final = {
    "level": "Lvl",
    "children": "NumChild",
    "number": "RangeId",
    "parent_number": "ParentId",
    "path": "RangeStack",
}
_KERNELS: Final = {
    "total": "Total Time_ns",
    "avg": "Avg_ns",
    "med": "Med_ns",
    "min": "Min_ns",
    "max": "Max_ns",
    "stddev": "StdDev_ns",
}


def nvtx_sum(events: StatsEvents) -> Frame:
    """CPU time of ranges by name and style; the time of nested ranges also counts in their parents."""
    ranges = events.table("ranges")
    table = time_table(duration(ranges), {"Range": pd.Series(full_names(ranges)), "Style": ranges["style"]})
    return table[[*table.columns.drop(["Range", "Style"]), "Style", "Range"]]


def nvtx_pushpop_sum(events: StatsEvents) -> Frame:
    """CPU time of push/pop ranges by name."""
    return _of_style(events, PUSH_POP)


def nvtx_startend_sum(events: StatsEvents) -> Frame:
    """CPU time of start/end ranges by name."""
    return _of_style(events, START_END)


def nvtx_pushpop_trace(events: StatsEvents) -> Frame:
    """Every push/pop range in order of start time, with its place in the stack of its thread."""
    ranges = events.table("ranges")
    ranges = nested(ranges[ranges["style"] == PUSH_POP])
    length = duration(ranges)
    of_children = length.groupby(ranges["parent"]).sum().reindex(ranges.index, fill_value=0)
    ranges = ranges.assign(children=_children(ranges))
    names = ranges["range"].astype("str")
    level = ranges["level"].to_numpy()
    dashes = np.array(["--" * depth for depth in range(int(level.max(initial=0)) + 1)], dtype=object)
    table = pd.DataFrame(
        {
            "Start_ns": ranges["start_ns"],
            "End_ns": ranges["end_ns"],
            "Duration_ns": length,
            "DurChild_ns": of_children,
            "DurNonChild_ns": length - of_children,
            "Name": names,
            "PID": ranges["pid"],
            "TID": ranges["tid"],
            **_place(ranges, ranges),
            "NameTree": pd.Series(dashes[level], dtype="str") + names,
        }
    )
    return table.sort_values(["Start_ns", "Duration_ns"], kind="stable", ignore_index=True)


def nvtx_gpu_proj_sum(events: StatsEvents) -> Frame:
    """Ranges projected onto the GPU: from the first to the last GPU operation launched inside on the same thread."""
    ranges = _projected(events)
    groups = group_by([ranges["range"], ranges["style"]])
    table = statistics(ranges["projected"], groups)
    table["cpu"] = statistics(duration(ranges), groups)["total"]
    for column in ("operations", "level", "children"):
        of_column = statistics(ranges[column], groups)
        table[f"avg_{column}"], table[column] = of_column["avg"], of_column["total"]
    names = ranges[["range", "style"]].take(groups.first).reset_index(drop=True).set_axis(["Range", "Style"], axis=1)
    table = pd.concat([names, table[list(_PROJECTION)].rename(columns=_PROJECTION)], axis=1)
    return table.sort_values("Total Proj Time_ns", ascending=False, kind="stable", ignore_index=True)


def nvtx_gpu_proj_trace(events: StatsEvents) -> Frame:
    """Every range that launched GPU work, projected onto the GPU; sorted by RangeId (NVIDIA's help says otherwise)."""
    ranges = _projected(events).sort_values("number", kind="stable")
    return pd.DataFrame(
        {
            "Name": ranges["range"],
            "Projected Start_ns": ranges["projected_start"],
            "Projected Duration_ns": ranges["projected"],
            "Orig Start_ns": ranges["start_ns"],
            "Orig Duration_ns": duration(ranges),
            "Style": ranges["style"],
            "PID": ranges["pid"],
            "TID": ranges["tid"],
            "NumGPUOps": ranges["operations"],
            **_place(ranges, events.joins.ranges),
        }
    )


def nvtx_kern_sum(events: StatsEvents) -> Frame:
    """Kernel time by range and kernel; each kernel counts in every range around its launch on the same thread.

    Kernels launched outside all ranges, or without a recorded call, appear under the empty range.
    """
    kernel, call, span = _kernels_in_ranges(events)
    ranges, calls = events.joins.ranges, events.table("api_calls")
    keys = {
        "PID": _take(calls["pid"], call),
        "TID": _take(calls["tid"], call),
        "NVTX Range": _take(ranges["range"], span),
        "Style": _take(ranges["style"], span),
        "Kernel Name": events.kernel_names.take(kernel).reset_index(drop=True),
    }
    groups = group_by(list(keys.values()))
    table = statistics(duration(events.table("kernels")).take(kernel), groups)[list(_KERNELS)].rename(columns=_KERNELS)
    counts = {"NVTX Inst": distinct_counts(groups.codes, span), "Kern Inst": distinct_counts(groups.codes, kernel)}
    table = table.assign(**counts, **{name: key.take(groups.first).array for name, key in keys.items()})
    order = group_by([table[name] for name in ("NVTX Range", "PID", "TID")]).codes
    table = table.assign(order=order).sort_values(["order", "Total Time_ns"], ascending=[True, False], kind="stable")
    keys_first = ["NVTX Range", "Style", "PID", "TID", "NVTX Inst", "Kern Inst"]
    return table[[*keys_first, *_KERNELS.values(), "Kernel Name"]]


def _of_style(events: StatsEvents, style: str) -> Frame:
    ranges = events.table("ranges")
    ranges = ranges[ranges["style"] == style].reset_index(drop=True)
    return time_table(duration(ranges), {"Range": pd.Series(full_names(ranges))})


def _projected(events: StatsEvents) -> Frame:
    """Return the ranges that launched GPU work, with the time span and the number of operations of that work."""
    joins = events.joins
    span, launch = joins.launches_in_ranges
    operations = joins.operations.take(joins.launches[0][launch])
    by_range = operations[["start_ns", "end_ns"]].groupby(span)
    start = by_range["start_ns"].min()
    count = distinct_counts(span, operations["correlation"].to_numpy(dtype=np.int64))
    projected = joins.ranges.take(start.index.to_numpy())
    return projected.assign(
        projected_start=start,
        projected=by_range["end_ns"].max() - start,
        operations=count[projected.index],
        children=_children(projected),
    )


def _children(ranges: Frame) -> "pd.Series[Any]":
    """Return the number of children of each range, by its row; 0 if it has none."""
    return ranges["parent"].value_counts().reindex(ranges.index, fill_value=0)


def _place(ranges: Frame, among: Frame) -> dict[str, Any]:
    """Return the columns that give the place of `ranges` in the range stack; `among` has all rows they refer to."""
    number = among["number"].astype(NULLABLE)
    parents = pd.concat([number, pd.Series([None], dtype=NULLABLE)]).take(ranges["parent"]).array
    columns = ranges.assign(parent_number=parents, path=_paths(among)[ranges.index])
    return {theirs: columns[ours] for ours, theirs in _PLACE.items()}


def _paths(ranges: Frame) -> "np.ndarray[Any, Any]":
    """Return the path of each range: `:3:7` for range 7 inside range 3."""
    number = (":" + ranges["number"].astype("str")).to_numpy(dtype=object)
    path, parent, level = number.copy(), ranges["parent"].to_numpy(), ranges["level"].to_numpy()
    for depth in range(1, int(level.max(initial=0)) + 1):
        rows = np.flatnonzero(level == depth)
        path[rows] = path[parent[rows]] + number[rows]
    return path


def _kernels_in_ranges(events: StatsEvents) -> tuple[Ints, Ints, Ints]:
    """Return rows (kernel, call, range) for every kernel and each range around its launch; -1 if there is none."""
    kernel, call = events.joins.kernel_launches
    span, launch = events.joins.launches_in_ranges
    of_kernel = launch < len(kernel)
    span, launch = span[of_kernel], launch[of_kernel]
    outside = _complement(launch, len(kernel))
    unlaunched = _complement(kernel, len(events.table("kernels")))
    return (
        np.concatenate([kernel[launch], kernel[outside], unlaunched]),
        np.concatenate([call[launch], call[outside], np.full(len(unlaunched), -1)]),
        np.concatenate([span, np.full(len(outside) + len(unlaunched), -1)]),
    )


def _complement(rows: Ints, count: int) -> Ints:
    """Return the numbers from 0 to `count` - 1 that are not in `rows`."""
    is_other = np.ones(count, dtype=bool)
    is_other[rows] = False
    return np.flatnonzero(is_other)


def _take(column: "pd.Series[Any]", rows: Ints) -> "pd.Series[Any]":
    """Take rows of a column as a categorical, missing where the row is -1."""
    texts = column.astype("category").cat
    codes = np.append(texts.codes.to_numpy(), -1)[rows]
    return pd.Series(pd.Categorical.from_codes(codes, categories=texts.categories))
