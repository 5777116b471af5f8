"""Sums the time of each device in the report's window: busy and idle time, and time per kind of operation."""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.launches import GPU_TABLES
from nightsight.events.timeline import Timeline, busy_spans, by_device
from nightsight.events.unseen import unseen
from nightsight.intervals import Ints, length, shared
from nightsight.results.gpu_time import GPU_TIME


def gpu_time(timeline: Timeline) -> Table:
    """Return one row per device: the window, busy and idle time, and sums per kind of operation, clipped to it."""
    operations, window = timeline.operations, timeline.window
    start, end = (np.clip(times, window.start_ns, window.end_ns) for times in (operations.start, operations.end))
    inside = (operations.start < window.end_ns) & (operations.end > window.start_ns)
    rows = []
    for device, of_device in by_device(timeline).items():
        rows_of_device = of_device[inside[of_device]]
        if not len(rows_of_device):
            continue
        covered = length(busy_spans(timeline)[int(device)])
        rows.append(
            {
                "device": device,
                **_busy_columns(timeline, device, covered),
                **_sums_by_kind(timeline, rows_of_device, end - start),
                **_launch_columns(timeline, device),
            }
        )
    notes: tuple[str, ...] = ()
    if operations.of("graph_launches").any():
        notes = ("CUDA graphs were traced as a whole: the kernels inside them are in no kernel table.",)
    table = pd.DataFrame(rows, columns=GPU_TIME.column_names)
    return Table(table if table["unseen_ns"].any() else table.drop(columns="unseen_ns"), notes)


def _busy_columns(timeline: Timeline, device: int, covered: int) -> dict[str, object]:
    window, unknown = timeline.window, unseen(timeline.profile)[device].spans
    hidden = length(shared(window.spans, unknown))
    return {
        "window": window.name,
        "window_ns": window.length_ns,
        "busy_ns": covered,
        "idle_ns": window.length_ns - covered - hidden,
        "unseen_ns": hidden,
        "busy_pct": 100.0 * covered / window.length_ns if window.length_ns else 0.0,
    }


def _sums_by_kind(timeline: Timeline, operations: Ints, length: Ints) -> dict[str, object]:
    kind, is_set = timeline.operations.kind[operations], timeline.is_set[operations]
    kernels, memory, graphs = (kind == position for position in range(len(GPU_TABLES)))
    kinds = {
        ("kernels", "kernel_ns"): kernels,
        ("copies", "copy_ns"): memory & ~is_set,
        ("sets", "set_ns"): is_set,
        ("graph_launches", "graph_ns"): graphs,
    }
    sums: dict[str, object] = {}
    for (count, time), is_kind in kinds.items():
        sums |= {count: int(is_kind.sum()), time: int(length[operations[is_kind]].sum())}
    # operations are in the order of their tables, memory_ops after kernels
    rows = operations[memory & ~is_set] - np.count_nonzero(timeline.operations.of("kernels"))
    size = timeline.profile.table("memory_ops")["bytes"].iloc[rows]
    # one unknown size makes the sum unknown
    return sums | {"copied_bytes": None if size.hasnans else int(size.sum())}


def _launch_columns(timeline: Timeline, device: int) -> dict[str, object]:
    """Return the launches whose work began in the window, and the median CPU time of their calls in ns."""
    window, launches = timeline.window, timeline.launches
    of_device = np.flatnonzero(launches["device"].to_numpy() == device)
    starts = launches["start_ns"].to_numpy()[of_device]
    calls = launches["call"].to_numpy()[of_device[window.contains(starts)]]
    call = calls[calls >= 0]
    if not len(call):
        return {"launches": len(calls), "launch_api_med_ns": None}
    start, end = timeline.call_times
    return {"launches": len(calls), "launch_api_med_ns": float(np.median(end[call] - start[call]))}


ANALYSES: Final = (Analysis(GPU_TIME, gpu_time),)
