"""Which stretch of time a report is about, and what each device did in it."""

from typing import Final

import numpy as np
import pandas as pd

from pipeline.analyze.analysis import Analysis, Table
from pipeline.intervals import busy
from pipeline.model import Profile
from pipeline.tables import duration

GPU_TABLES: Final = ("kernels", "memory_ops", "graph_launches")
MEASURED_RANGE: Final = "measure"


def measured_window(profile: Profile) -> tuple[int, int]:
    """Return the window in ns: our runner's `measure` range if there is one, else first to last GPU operation.

    GPU work that `measure` launched may end after it, so the window reaches to the later of the two. Without any
    GPU work: the span of everything recorded. (0, 0) for an empty capture.
    """
    device = _span(profile, GPU_TABLES)
    ranges = profile.tables.get("ranges")
    if ranges is not None:
        measured = ranges[ranges["name"] == MEASURED_RANGE]
        if len(measured):
            start, end = int(measured["start_ns"].min()), int(measured["end_ns"].max())
            return start, max(end, device[1]) if device[1] > start else end
    return device if device[1] else _span(profile, ("ranges", "cpu_ops", "api_calls"))


def gpu_time(profile: Profile) -> Table:
    """One row per device: the window, how much of it at least one operation ran in, and the sums by kind."""
    window = measured_window(profile)
    parts = [_operations(profile, name) for name in GPU_TABLES if name in profile.tables]
    operations = pd.concat(parts)
    rows = [_device_row(device, group, window) for device, group in operations.groupby("device", sort=True)]
    columns = ["device", "window_ns", "busy_ns", "idle_ns", "busy_pct"]
    columns += ["kernels", "kernel_ns", "copies", "copy_ns", "copied_bytes", "graph_launches", "graph_ns"]
    notes: tuple[str, ...] = ()
    if "graph_launches" in profile.tables and len(profile.tables["graph_launches"]):
        notes = ("CUDA graphs were traced as a whole: the kernels inside them are in no kernel table.",)
    return Table(pd.DataFrame(rows, columns=columns), notes)


def _device_row(device: object, operations: pd.DataFrame, window: tuple[int, int]) -> dict[str, object]:
    length = window[1] - window[0]
    covered = busy(operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy(), window)
    kinds = {kind: operations[operations["kind"] == kind] for kind in GPU_TABLES}
    kernels, copies, graphs = kinds["kernels"], kinds["memory_ops"], kinds["graph_launches"]
    return {
        "device": device,
        "window_ns": length,
        "busy_ns": covered,
        "idle_ns": length - covered,
        "busy_pct": 100.0 * covered / length if length else 0.0,
        "kernels": len(kernels),
        "kernel_ns": int(duration(kernels).sum()),
        "copies": len(copies),
        "copy_ns": int(duration(copies).sum()),
        "copied_bytes": int(copies["bytes"].sum()),
        "graph_launches": len(graphs),
        "graph_ns": int(duration(graphs).sum()),
    }


def _operations(profile: Profile, name: str) -> pd.DataFrame:
    frame = profile.tables[name]
    return frame[["start_ns", "end_ns", "device"]].assign(kind=name, bytes=frame.get("bytes", 0))


def _span(profile: Profile, names: tuple[str, ...]) -> tuple[int, int]:
    frames = [profile.tables[name] for name in names if len(profile.tables.get(name, ()))]
    if not frames:
        return 0, 0
    return int(np.min([frame["start_ns"].min() for frame in frames])), int(
        max(frame["end_ns"].max() for frame in frames)
    )


ANALYSES: Final = (
    Analysis(
        "gpu_time",
        "GPU time",
        "Window: the `measure` range where the workload marks one, else from the first to the last GPU operation. "
        "Busy: the part of it in which at least one kernel, copy, set or graph ran on the device, overlaps counted "
        "once. Idle: the rest. Kernel, copy and graph times are sums over all of the capture, so on several "
        "streams they can exceed busy.",
        ("kernels", "memory_ops"),
        gpu_time,
    ),
)
