"""Which NVTX range each GPU operation belongs to, and what ranges cost on the CPU and on the GPU.

An operation belongs to the innermost range open on the launching thread when it was launched, else to the innermost
open in the process: PyTorch launches its backward pass from another thread than the one that opened the range.
"""

from typing import Any, Final

import numpy as np
import pandas as pd

from pipeline.analyze.analysis import Analysis, Table
from pipeline.analyze.timeline import Flags, Timeline
from pipeline.intervals import Ints, grouped_busy, innermost, outer
from pipeline.tables import ancestors, duration, nest, summarize

_TIMES: Final = {"kernels": "kernel_ns", "copies": "copy_ns", "sets": "set_ns", "graph_launches": "graph_ns"}
_NUMBER: Final = r"(?<![A-Za-z\d])\d+(?![A-Za-z\d])"
_ALWAYS: Final = ("kernels", "copies")


def range_time(timeline: Timeline) -> Table:
    """One row per path of ranges; GPU columns include the ranges inside."""
    profile = timeline.profile
    ranges = nested(profile.table("ranges"))
    paths = summarize(ranges.assign(length=duration(ranges)), ["path"], "length").set_index("path")
    columns = {"count": "instances"} | {name: f"cpu_{name}_ns" for name in ("total", "med", "min", "max")}
    first = ranges.groupby("path", observed=True)
    table = paths[list(columns)].rename(columns=columns)
    table = table.join(first.agg(style=("style", "first"), level=("level", "first"), start=("start_ns", "min")))
    notes: tuple[str, ...] = ()
    if {"kernels", "memory_ops", "api_calls"} <= profile.tables.keys():
        owned, notes = _gpu_work(timeline, ranges)
        table = table.join(owned)
    table = table.sort_values(["start", "level"]).drop(columns="start").reset_index()
    return Table(table.astype({"path": "str"}), notes)


def nested(ranges: pd.DataFrame) -> pd.DataFrame:
    """Nest ranges and add their path: the names from the root, `step / forward`, as a category."""
    ranges = nest(ranges)
    domain, name = ranges["domain"].astype("str"), ranges["name"].astype("str")
    names = (domain + ":" + name).where(domain != "", name).to_numpy(dtype=object)
    path = names.copy()
    for rows, above in ancestors(ranges["parent"].to_numpy()):
        path[rows] = names[above] + " / " + path[rows]
    return ranges.assign(path=pd.Categorical(path))


def without_numbers(paths: "pd.Index[Any]") -> "pd.Index[Any]":
    """Give repetitions one path: a number that stands by itself becomes `#` (`step 7`, `step_7`; not `h2d`)."""
    return paths.str.replace(_NUMBER, "#", regex=True)


def owners(ranges: pd.DataFrame, thread: Ints, process: Ints, time: Ints) -> tuple[Ints, Ints]:
    """Return for each launch the row in `ranges` (as from `nested`) of the range it belongs to, or -1: two arrays.

    First the innermost range open on its thread at that time, then the innermost open in its process.
    """
    return _innermost_by("thread", ranges, thread, time), _innermost_by("process", ranges, process, time)


def _innermost_by(key: str, ranges: pd.DataFrame, of: Ints, time: Ints) -> Ints:
    found = np.full(len(time), -1, dtype=np.int64)
    spans = ranges.sort_values(["start_ns", "end_ns"], ascending=[True, False], kind="stable")
    groups = spans.groupby(key, sort=False).indices
    for value, rows in groups.items():
        mine = np.flatnonzero(of == value)
        start, end = (spans[name].to_numpy()[rows] for name in ("start_ns", "end_ns"))
        local = innermost(start, end, outer(end), time[mine])
        found[mine] = np.where(local >= 0, spans.index.to_numpy()[rows][local], -1)
    return found


def _gpu_work(timeline: Timeline, ranges: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """GPU operations and their time per path, inner ranges included, and a note on coverage."""
    operations, calls = timeline.operations, timeline.profile.table("api_calls")
    launched = np.flatnonzero(operations.call >= 0)
    call = operations.call[launched]
    thread, process, time = (calls[name].to_numpy()[call] for name in ("thread", "process", "start_ns"))
    by_thread, by_process = owners(ranges, thread, process, time)
    row = np.where(by_thread >= 0, by_thread, by_process)
    length = (operations.end - operations.start)[launched]
    sums: dict[str, Ints] = {}
    for kind, chosen in _kinds(timeline).items():
        mine = chosen[launched] & (row >= 0)
        if kind in _ALWAYS or mine.any():
            sums[kind] = _with_enclosing(ranges, row[mine], np.ones(mine.sum()))
            sums[_TIMES[kind]] = _with_enclosing(ranges, row[mine], length[mine])
    sums |= _gpu_spans(timeline, ranges, launched[row >= 0], row[row >= 0])
    per_path = pd.DataFrame({**sums, "path": ranges["path"]}).groupby("path", observed=True).sum()
    on_thread, elsewhere = int((by_thread >= 0).sum()), int(((by_thread < 0) & (by_process >= 0)).sum())
    return per_path, (_coverage(on_thread, elsewhere, len(operations.call)),)


def _gpu_spans(timeline: Timeline, ranges: pd.DataFrame, chosen: Ints, row: Ints) -> dict[str, Ints]:
    """Per range, inner ranges included: launches, and the GPU's busy and idle time from first to last operation.

    Devices are added up, never merged.
    """
    operations = timeline.operations
    order = np.argsort(operations.start[chosen], kind="stable")
    chosen, owner = chosen[order], row[order]
    row = owner
    start, end = operations.start[chosen], operations.end[chosen]
    devices, device = np.unique(operations.device[chosen], return_inverse=True)
    totals = np.zeros((2, len(ranges) * len(devices)), dtype=np.int64)
    level, parent = (ranges[name].to_numpy() for name in ("level", "parent"))
    # whatever is inside a range has one ancestor on its level: each level takes one pass
    for depth in range(int(level.max(initial=0)), -1, -1):
        here = level[row] == depth
        group = row[here] * len(devices) + device[here]
        totals += grouped_busy(group, start[here], end[here], totals.shape[1])
        row = np.where(here & (parent[row] >= 0), parent[row], row)
    busy, extent = totals.reshape(2, len(ranges), len(devices)).sum(axis=2)
    first = ~pd.Series(operations.launch[chosen]).duplicated().to_numpy()
    launches = _with_enclosing(ranges, owner[first], np.ones(first.sum()))
    return {"launches": launches, "gpu_busy_ns": busy, "gpu_idle_ns": extent - busy}


def _kinds(timeline: Timeline) -> dict[str, Flags]:
    operations = timeline.operations
    is_set = timeline.is_set
    return {
        "kernels": operations.of("kernels"),
        "copies": operations.of("memory_ops") & ~is_set,
        "sets": is_set,
        "graph_launches": operations.of("graph_launches"),
    }


def _with_enclosing(ranges: pd.DataFrame, row: Ints, amount: np.ndarray[Any, Any]) -> Ints:
    """Sum `amount` per range and add what its inner ranges own."""
    # bincount of nothing counts in whole numbers
    own = np.bincount(row, amount, len(ranges)).astype(np.float64)
    total = own.copy()
    for rows, above in ancestors(ranges["parent"].to_numpy()):
        total += np.bincount(above, own[rows], len(ranges))
    return total.astype(np.int64)


def _coverage(thread: int, process: int, total: int) -> str:
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
