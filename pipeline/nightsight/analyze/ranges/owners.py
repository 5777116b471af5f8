"""Assigns GPU operations to NVTX ranges, and measures the CPU and GPU time of ranges.

An operation belongs to the innermost range open on the launching thread at launch, else to the innermost range open in
the process: PyTorch launches its backward pass from a thread that did not open the range.
"""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.ranges.graphs import kernels_without_ranges
from nightsight.events.ranges import (
    DEEPER,
    DEEPEST,
    is_deeper,
    nested_ranges,
    owners_in_graphs,
    range_labels,
    ranges_at,
    recorded_ranges,
)
from nightsight.events.timeline import Timeline, begun, of_capture
from nightsight.events.unseen import unseen_by
from nightsight.intervals import Flags, Ints, covered, grouped_busy
from nightsight.model.report import Finding
from nightsight.results.ranges import NVTX_RANGES, RANGE_COVERAGE
from nightsight.tables import ANNOTATION, aggregate, ancestors, duration, summarize
from nightsight.texts import middle_cut, some_of
from nightsight.units import counted

_TIMES: Final = {"kernels": "kernel_ns", "copies": "copy_ns", "sets": "set_ns", "graph_launches": "graph_ns"}
_ALWAYS: Final = ("kernels", "copies")
_NAMED: Final = 3
_LONGEST: Final = 48
_ANNOTATED: Final = "User ranges"


def range_time(timeline: Timeline) -> Table:
    """Return one row per range path and process: CPU and GPU time in ns, including the ranges inside.

    GPU columns are left out if GPU work or API calls were not traced.
    """
    profile = timeline.profile
    all_ranges = nested_ranges(timeline.profile)
    # a range that encloses the window began before it
    starts = np.maximum(all_ranges["start_ns"], np.minimum(timeline.window.start_ns, all_ranges["end_ns"] - 1))
    is_in_window = begun(timeline, starts)
    ranges, keys = all_ranges[is_in_window], ["path", "pid"]
    first = ranges.groupby(keys, observed=True)
    # in the replay of a graph, a range takes no CPU time
    recorded = ranges[~ranges["in_graph"]]
    times = summarize(recorded.assign(length=duration(recorded)), keys, "length").set_index(keys)
    paths = first.size().to_frame("count").join(times.drop(columns="count")).fillna(0).astype(times.dtypes.to_dict())
    columns = {"count": "instances"} | {name: f"cpu_{name}_ns" for name in ("total", "med", "min", "max")}
    table = paths[list(columns)].rename(columns=columns)
    table = table.join(aggregate(first, style=("style", "first"), level=("level", "first"), start=("start_ns", "min")))
    notes = range_notes(timeline)
    if {"kernels", "memory_ops", "api_calls"} <= profile.tables.keys():
        work = range_work(timeline)[is_in_window].assign(**ranges[keys]).groupby(keys, observed=True).sum()
        table, notes = table.join(work), (_coverage(timeline), *notes)
    table = table.sort_values(["pid", "start", "level"]).drop(columns="start").reset_index()
    # torch.profiler records record_function, which is not NVTX
    title = _ANNOTATED if (ranges["style"] == ANNOTATION).any() else ""
    return Table(table.astype({"path": "str"}), notes, title)


def range_coverage(timeline: Timeline) -> Table:
    """Return one row: the number of GPU operations that belong to a range, via thread or process, or to none.

    Without rows if the capture has no GPU operations or no ranges.
    """
    counts = _ways(timeline)
    total, attributed = counts["operations"], counts["on_thread"] + counts["in_process"]
    share = 100.0 * attributed / total if total else None
    table = pd.DataFrame([{**counts, "attributed": attributed, "coverage_pct": share}])
    return Table(table[: int(total > 0 and len(timeline.profile.table("ranges")) > 0)])


def _ways(timeline: Timeline) -> dict[str, int]:
    """Count GPU operations: all, those of ranges via the thread or the process, and those without a range."""
    row, by_thread = _launching_owners(timeline)
    launching = timeline.operations.call[timeline.is_launched]
    call = launching[launching >= 0]
    on_thread, attributed = int(by_thread[call].sum()), int((row[call] >= 0).sum())
    return {
        "operations": len(launching),
        "on_thread": on_thread,
        "in_process": attributed - on_thread,
        "outside": len(call) - attributed,
        "without_call": len(launching) - len(call),
    }


def _coverage(timeline: Timeline) -> str:
    ways = _ways(timeline)
    return (
        f"{ways['on_thread'] + ways['in_process']:,} of {ways['operations']:,} GPU operations were launched inside a "
        f"range: {ways['on_thread']:,} on the range's own thread, {ways['in_process']:,} on another thread of the "
        "process (PyTorch's backward pass)."
    )


def open_ranges(timeline: Timeline) -> tuple[Finding, ...]:
    """Return a finding if ranges never ended: their ends in the report are assumed."""
    ranges = recorded_ranges(timeline.profile)
    names = _labels(ranges[ranges["is_open"]])
    if not names:
        return ()
    texts = some_of([f"`{middle_cut(name, _LONGEST)}`" for name in dict.fromkeys(names)], _NAMED)
    one = len(names) == 1
    finding = Finding(
        "open_ranges",
        "warning",
        f"{counted(len(names), 'NVTX range was', 'NVTX ranges were')} never ended",
        f"{texts}: the capture holds only {'its' if one else 'their'} start. "
        f"{'It is' if one else 'They are'} shown as lasting to the last event recorded, and GPU work launched until "
        f"then is counted as {'its own' if one else 'theirs'}, unless a range inside has it.",
        "End every range that the program begins. A range that was open when the program or the capture stopped has no "
        "end: its time runs until then.",
    )
    return (finding,)


def range_notes(timeline: Timeline) -> tuple[str, ...]:
    """Return the notes below tables of ranges: how many ranges never ended, and how many are too deep for a row."""
    ranges = recorded_ranges(timeline.profile)
    count, deeper = int(ranges["is_open"].sum()), int(is_deeper(ranges).sum())
    notes = []
    if count:
        ranges_are = counted(count, "range was never ended and is", "ranges were never ended and are")
        notes.append(f"{ranges_are} counted up to the last event recorded.")
    if deeper:
        notes.append(
            f"{counted(deeper, 'range lies', 'ranges lie')} more than {DEEPEST} levels deep; all are in the rows "
            f"`{DEEPER}`. There each has only the GPU work that no range inside it has, and CPU time counts once per "
            "range."
        )
    if nested_ranges(timeline.profile)["in_graph"].any():
        notes.append(
            "A kernel of a CUDA graph belongs to the range that was open when it was captured, within the range that "
            "launched the graph. There, a range takes no CPU time."
        )
    if len(ranges) and (count := kernels_without_ranges(timeline)):
        kernels_belong = counted(count, "kernel of a CUDA graph belongs", "kernels of CUDA graphs belong")
        notes.append(f"{kernels_belong} to the range that launched the graph: the range of the capture is unknown.")
    return tuple(notes)


def _labels(ranges: pd.DataFrame) -> list[str]:
    """Return the labels of ranges in order of their start."""
    codes, names = range_labels(ranges.sort_values("start_ns", kind="stable"))
    return list(names[codes])


@of_capture
def _launching_owners(timeline: Timeline) -> tuple[Ints, Flags]:
    """Return what `owners_of` does for every row of api_calls that launched an operation, -1 and False for others."""
    calls = len(timeline.profile.table("api_calls"))
    row, on_thread, launching = np.full(calls, -1, dtype=np.int64), *np.zeros((2, calls), dtype=bool)
    launching[timeline.operations.call[timeline.operations.call >= 0]] = True
    call = np.flatnonzero(launching)
    row[call], on_thread[call] = owners_of(timeline, call)
    return row, on_thread


def owners_of(timeline: Timeline, call: Ints) -> tuple[Ints, Flags]:
    """Return the range of calls (rows of api_calls), as a row in `nested_ranges` or -1, and whether via the thread.

    It is the innermost range open on the call's thread when the call began, else the innermost open in its process.
    """
    calls = timeline.profile.table("api_calls")
    thread, process, time = (calls[name].to_numpy()[call] for name in ("thread", "process", "start_ns"))
    return owners_at(timeline, thread, process, time)


def owners_at(timeline: Timeline, thread: Ints, process: Ints, time: Ints) -> tuple[Ints, Flags]:
    """Return the range of threads at times, as a row in `nested_ranges` or -1, and whether it is via the thread.

    It is the innermost range open on the thread, else the innermost open in its process.
    """
    return ranges_at(timeline.profile, thread, process, time)


@of_capture
def operation_owners(timeline: Timeline) -> Ints:
    """Return the range of each GPU operation, as a row in `nested_ranges` or -1.

    It is that of its call; for a kernel of a CUDA graph, the range in its replay that was open when it was captured.
    """
    call, in_graph = timeline.operations.call, owners_in_graphs(timeline.profile)
    if not (call >= 0).any():
        return np.full(len(call), -1, dtype=np.int64)
    of_call = np.where(call >= 0, np.append(_launching_owners(timeline)[0], -1)[call], -1)
    return np.where(in_graph >= 0, in_graph, of_call)


@of_capture
def range_work(timeline: Timeline) -> pd.DataFrame:
    """Return the GPU work of each row of `nested_ranges`, including inner ranges: counts and times in ns, by kind.

    `gpu_busy_ns` counts overlaps on a device once and adds up devices. Needs the tables of GPU work and api_calls.
    """
    ranges, operations = nested_ranges(timeline.profile), timeline.operations
    row = operation_owners(timeline)
    has_range = row >= 0
    length = operations.end - operations.start
    sums: dict[str, Ints] = {}
    for kind, is_kind in _kinds(timeline).items():
        is_owned = is_kind & has_range
        if kind in _ALWAYS or is_owned.any():
            sums[kind] = _with_enclosing(ranges, row[is_owned])
            sums[_TIMES[kind]] = _with_enclosing(ranges, row[is_owned], length[is_owned])
    sums |= _gpu_spans(timeline, ranges, np.flatnonzero(has_range), row[has_range])
    return pd.DataFrame(sums)


def _gpu_spans(timeline: Timeline, ranges: pd.DataFrame, operation: Ints, row: Ints) -> dict[str, Ints]:
    """Return per range, including inner ranges: launches, and GPU busy and idle time from first to last operation.

    Devices are added up: their times do not merge. Unknown time is neither busy nor idle.
    """
    operations = timeline.operations
    device, devices = pd.factorize(operations.device[operation])
    # ranges of a device mostly follow one another in time, so that groups need no further sorting
    order = np.lexsort((operations.start[operation], device))
    operation, row, device = operation[order], row[order], device[order]
    start, end = operations.start[operation], operations.end[operation]
    totals = np.zeros((2, len(devices) * len(ranges)), dtype=np.int64)
    unknown = [unseen_by(timeline.profile, np.array([gpu])) for gpu in devices.tolist()]
    first, has_unknown = np.full(totals.shape[1], np.iinfo(np.int64).max), any(len(spans[0]) for spans in unknown)
    level, parent = (ranges[name].to_numpy() for name in ("level", "parent"))
    # one pass per level, from the inside out: each operation counts for its range, then moves up to the parent
    for depth in range(int(level.max(initial=0)), -1, -1):
        is_level = level[row] == depth
        group = device[is_level] * len(ranges) + row[is_level]
        totals += grouped_busy(group, start[is_level], end[is_level], totals.shape[1])
        if has_unknown:
            np.minimum.at(first, group, start[is_level])
        row = np.where(is_level & (parent[row] >= 0), parent[row], row)
    busy, extent = totals.reshape(2, len(devices), len(ranges))
    idle = extent - busy
    for begin, length, own, hidden in zip(first.reshape(extent.shape), extent, idle, unknown, strict=True):
        nonempty = np.flatnonzero(length)
        own[nonempty] -= covered(hidden, begin[nonempty], begin[nonempty] + length[nonempty]) if len(hidden[0]) else 0
    of_call = _launching_owners(timeline)[0]
    # a graph launch has many operations and one call
    launching = np.zeros(len(of_call), dtype=bool)
    call = operations.call[operation]
    launching[call[call >= 0]] = True
    launches = _with_enclosing(ranges, of_call[launching & (of_call >= 0)])
    return {"launches": launches, "gpu_busy_ns": busy.sum(axis=0), "gpu_idle_ns": idle.sum(axis=0)}


def _kinds(timeline: Timeline) -> dict[str, Flags]:
    operations = timeline.operations
    is_set = timeline.is_set
    return {
        "kernels": operations.of("kernels"),
        "copies": operations.of("memory_ops") & ~is_set,
        "sets": is_set,
        "graph_launches": operations.of("graph_launches"),
    }


def _with_enclosing(ranges: pd.DataFrame, row: Ints, amount: Ints | None = None) -> Ints:
    """Return per range the sum of `amount`, or the count of rows, including its inner ranges."""
    # bincount returns integers without weights; float sums of ns stay exact
    own = np.bincount(row, amount, len(ranges)).astype(np.float64)
    total = own.copy()
    for rows, above in ancestors(ranges["parent"].to_numpy()):
        total += np.bincount(above, own[rows], len(ranges))
    return total.astype(np.int64)


ANALYSES: Final = (
    Analysis(NVTX_RANGES, range_time),
    Analysis(RANGE_COVERAGE, range_coverage),
)
