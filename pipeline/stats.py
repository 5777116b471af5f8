"""The tables of `nsys stats`: NVIDIA's definitions, headers, row order and digits, kept even where ours differ.

Each report is a frame whose columns are NVIDIA's names with our unit suffix; the unit decides header and digits.
docs/stats.md lists the definitions and where NVIDIA's differ from the report's.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

import numpy as np
import pandas as pd

from pipeline.errors import UsageError
from pipeline.intervals import contained
from pipeline.model import Profile
from pipeline.tables import STATISTICS, duration, nest, summarize, time_summary
from pipeline.units import split

Frame = pd.DataFrame

_TIMES: Final = {
    "time_pct": "Time_pct",
    "total_ns": "Total Time_ns",
    "count": "Instances",
    "avg_ns": "Avg_ns",
    "med_ns": "Med_ns",
    "min_ns": "Min_ns",
    "max_ns": "Max_ns",
    "stddev_ns": "StdDev_ns",
}
_UNITS: Final = {"ns": " (ns)", "pct": " (%)", "bytes": " (MB)", "": ""}
_DECIMALS: Final = {"ns": 1, "pct": 1, "": 1, "bytes": 3}


def stats_table(profile: Profile, report: str) -> Frame:
    """Return one report; UsageError if we have none of that name, MissingTable if its events were not captured."""
    if report not in REPORTS:
        raise UsageError(f"unknown report {report!r}", f"known reports: {', '.join(REPORTS)}")
    table = REPORTS[report](profile)
    # NVIDIA's deviation of a single value, or of none, is 0, though its average of none is empty
    deviations = [column for column in table.columns if "StdDev" in column]
    return table.fillna(dict.fromkeys(deviations, 0.0))


def write_stats(table: Frame, style: str) -> str:
    """Write a report as `csv` (NVIDIA's, byte for byte), `table` (aligned text) or `json`."""
    headers = [_header(column) for column in table.columns]
    cells = [[_cell(value, column) for value in table[column]] for column in table.columns]
    rows = [list(row) for row in zip(*cells, strict=True)]
    return _STYLES[style](headers, rows)


def cuda_gpu_kern_sum(profile: Profile) -> Frame:
    """Kernel time by demangled kernel name."""
    return _named(time_summary(profile.table("kernels"), ["name"]), name="Name")


def cuda_api_sum(profile: Profile) -> Frame:
    """CPU time of CUDA runtime and driver calls; a driver call inside a runtime call counts in both."""
    table = time_summary(profile.table("api_calls"), ["name"])
    return _named(table.assign(name=_without_suffix(table["name"])), count="Num Calls", name="Name")


def cuda_gpu_mem_time_sum(profile: Profile) -> Frame:
    """Time of copies and sets by direction."""
    return _named(time_summary(_operations(profile), ["operation"]), count="Count", operation="Operation")


def cuda_gpu_mem_size_sum(profile: Profile) -> Frame:
    """Bytes of copies and sets by direction."""
    table = summarize(_operations(profile), ["operation"], "bytes")
    table = table.sort_values("total", ascending=False, kind="stable", ignore_index=True)
    names = {name: f"{name.capitalize()}_bytes" for name in STATISTICS} | {"count": "Count", "stddev": "StdDev_bytes"}
    order = ["total", "count", "avg", "med", "min", "max", "stddev", "operation"]
    return table[order].rename(columns={**names, "operation": "Operation"})


def cuda_gpu_sum(profile: Profile) -> Frame:
    """Kernels, copies and sets in one table."""
    span = ["start_ns", "end_ns", "operation", "category"]
    kernels = profile.table("kernels").assign(category="CUDA_KERNEL").rename(columns={"name": "operation"})[span]
    memory = _operations(profile).assign(category="MEMORY_OPER")[span]
    both = pd.concat([kernels.astype({"operation": "str"}), memory.astype({"operation": "str"})])
    return _named(time_summary(both, ["operation", "category"]), category="Category", operation="Operation", last=2)


def cuda_kern_exec_sum(profile: Profile) -> Frame:
    """Launch and execution by kernel: T from call to end, A in the call, Q queued after it, K executing.

    Kernels without an API row vanish, as they do in NVIDIA's; Q is only counted where it is not negative.
    """
    launched = _launched(profile)
    api_end = launched["end_ns_api"]
    queue = launched["start_ns"] - api_end
    times = {
        "T": np.maximum(launched["end_ns"], api_end) - launched["start_ns_api"],
        "A": api_end - launched["start_ns_api"],
        "Q": queue.where(queue >= 0),
        "K": duration(launched),
    }
    keys = ["pid", "tid", "device", "api", "kernel"]
    launched = launched.assign(
        api=_without_suffix(launched["name_api"]), kernel=launched["name"].astype("str"), **times
    )
    parts = [summarize(launched, keys, letter).set_index(keys).add_prefix(letter) for letter in times]
    table = pd.concat(parts, axis=1).reset_index()
    table = table.sort_values("Tavg", key=_rounded, ascending=False, kind="stable")
    statistics = {"avg": "Avg", "med": "Med", "min": "Min", "max": "Max", "stddev": "StdDev"}
    columns = {"pid": "PID", "tid": "TID", "device": "DevId", "Tcount": "Count", "Qcount": "QCount"}
    columns |= {f"{letter}{ours}": f"{letter}{theirs}_ns" for letter in times for ours, theirs in statistics.items()}
    columns |= {"api": "API Name", "kernel": "Kernel Name"}
    whole = dict.fromkeys(("QMin_ns", "QMax_ns"), "int64[pyarrow]")
    return table[list(columns)].rename(columns=columns).astype(whole)


def nvtx_sum(profile: Profile) -> Frame:
    """CPU time of ranges by domain and name; time in nested ranges counts in their parents too."""
    ranges = profile.table("ranges").assign(range=_full_name(profile.table("ranges")))
    return _named(time_summary(ranges, ["range", "style"]), style="Style", range="Range", last=2)


def nvtx_gpu_proj_sum(profile: Profile) -> Frame:
    """Ranges projected onto the GPU: from the first to the last GPU operation launched inside, on the same thread."""
    ranges = _nested_ranges(profile)
    projected = _projected(profile, ranges)
    ranges = ranges.join(projected, how="inner")
    children = ranges["parent"].value_counts()
    ranges["children"] = children.reindex(ranges.index).fillna(0)
    keys = ["range", "style"]
    table = summarize(ranges, keys, "projected").set_index(keys)
    grouped = ranges.groupby(keys, observed=True)
    table["cpu"] = grouped["duration"].sum()
    table["operations"] = grouped["operations"].sum()
    for column in ("operations", "level", "children"):
        table[f"avg_{column}"] = grouped[column].mean()
    table = table.reset_index().sort_values("total", ascending=False, kind="stable")
    return table[list(_PROJECTION)].rename(columns=_PROJECTION)


_PROJECTION: Final = {
    "range": "Range",
    "style": "Style",
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

REPORTS: Final[Mapping[str, Callable[[Profile], Frame]]] = {
    function.__name__: function
    for function in (
        cuda_gpu_kern_sum,
        cuda_api_sum,
        cuda_gpu_mem_time_sum,
        cuda_gpu_mem_size_sum,
        cuda_gpu_sum,
        cuda_kern_exec_sum,
        nvtx_sum,
        nvtx_gpu_proj_sum,
    )
}


def _named(table: Frame, *, last: int = 1, **names: str) -> Frame:
    """Give a time summary NVIDIA's column names; of several group columns the style or category comes first."""
    groups = list(table.columns[-last:])[::-1] if last > 1 else list(table.columns[-1:])
    return table[[*_TIMES, *groups]].rename(columns={**_TIMES, **names})


def _operations(profile: Profile) -> Frame:
    memory = profile.table("memory_ops")
    names = memory["operation"].astype("str")
    label = ("[CUDA memcpy " + names + "]").where(names != "memset", "[CUDA memset]")
    return memory.assign(operation=label)


def _without_suffix(names: "pd.Series[Any]") -> "pd.Series[Any]":
    """Strip `_v` and four digits as NVIDIA does; a longer suffix (`_v11060`) stays."""
    return names.astype("str").str.replace(r"_v.{4}$", "", regex=True)


def _launched(profile: Profile) -> Frame:
    """Join kernels with the calls that launched them, by process and correlation."""
    calls = profile.table("api_calls")[["process", "correlation", "pid", "tid", "start_ns", "end_ns", "name"]]
    renamed = calls.rename(columns={name: f"{name}_api" for name in ("start_ns", "end_ns", "name")})
    return profile.table("kernels").merge(renamed, on=["process", "correlation"], how="inner")


def _full_name(ranges: Frame) -> "pd.Series[Any]":
    return ranges["domain"].astype("str") + ":" + ranges["name"].astype("str")


def _nested_ranges(profile: Profile) -> Frame:
    """Ranges that began and ended on one thread, sorted by thread and start, with parent (row or -1) and level.

    A range that never ended is cut at the last event of a range here, not at the last NVTX event of any kind.
    """
    ranges = profile.table("ranges")
    ranges = ranges.assign(range=_full_name(ranges))[ranges["end_thread"].isna()]
    last = max(ranges["start_ns"].max(), ranges["end_ns"][~ranges["is_open"]].max()) if len(ranges) else 0
    ranges["end_ns"] = ranges["end_ns"].mask(ranges["is_open"], last)
    ranges = nest(ranges)
    return ranges.assign(duration=duration(ranges))


def _projected(profile: Profile, ranges: Frame) -> Frame:
    """Per range (by row): projected span in ns and the number of distinct GPU operations launched inside."""
    keys = ["process", "correlation"]
    operations = pd.concat([profile.table(name)[["start_ns", "end_ns", *keys]] for name in ("kernels", "memory_ops")])
    calls = profile.table("api_calls")[["start_ns", "end_ns", "thread", *keys]]
    launched = operations.merge(calls, on=keys, suffixes=("", "_api")).sort_values("start_ns_api", ignore_index=True)
    parts = []
    launches_of = launched.groupby("thread").indices
    for thread, rows in ranges.groupby("thread").indices.items():
        inside = launched.iloc[launches_of.get(thread, [])]
        spans = ranges.iloc[rows]
        bounds = (spans["start_ns"], spans["end_ns"], inside["start_ns_api"], inside["end_ns_api"])
        span, event = contained(*(bound.to_numpy() for bound in bounds))
        parts.append(inside.iloc[event].assign(row=rows[span]))
    if not parts:
        return pd.DataFrame({"projected": [], "operations": []})
    grouped = pd.concat(parts).groupby("row")
    projected = grouped["end_ns"].max() - grouped["start_ns"].min()
    return pd.DataFrame({"projected": projected, "operations": grouped["correlation"].nunique()})


def _header(column: str) -> str:
    stem, unit = split(column)
    return stem + _UNITS[unit]


def _cell(value: Any, column: str) -> str:  # noqa: ANN401 (one cell of any column)
    """Write one value with NVIDIA's digits: whole numbers as they are, others as SQLite's round() does."""
    unit = split(column)[1]
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return ""
    if unit == "bytes":
        return _round_half_up(float(value) / 1e6, 3)
    return str(value) if isinstance(value, int | np.integer) else _round_half_up(float(value), _DECIMALS[unit])


def _round_half_up(value: float, decimals: int) -> str:
    return str(Decimal(value).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP))


def _rounded(values: "pd.Series[Any]") -> "pd.Series[Any]":
    """The values as NVIDIA sorts them: after rounding."""
    return pd.Series([float(_round_half_up(value, 1)) for value in values], index=values.index)


def _as_csv(headers: list[str], rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([headers, *rows])
    return text.getvalue()


def _as_json(headers: list[str], rows: list[list[str]]) -> str:
    records = [dict(zip(headers, row, strict=True)) for row in rows]
    return json.dumps(records, indent=1, ensure_ascii=False) + "\n"


def _as_text(headers: list[str], rows: list[list[str]]) -> str:
    """Align columns: text to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    left = [any(not _is_number(cell) for cell in column) for column in zip(*rows, strict=True)] or [True] * len(headers)
    lines = [headers, ["-" * width for width in widths], *rows]
    return "".join(
        "  ".join(
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(line, widths, left, strict=True)
        ).rstrip()
        + "\n"
        for line in lines
    )


def _is_number(cell: str) -> bool:
    return not cell or cell.replace(".", "", 1).replace("-", "", 1).isdecimal()


_STYLES: Final[Mapping[str, Callable[[list[str], list[list[str]]], str]]] = {
    "csv": _as_csv,
    "table": _as_text,
    "json": _as_json,
}
