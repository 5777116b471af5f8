"""How the table of each result is laid out: what its rows are called, what is left out, and which cells have bars.

Every table whose rows are something in the timeline leads there (`Layout.timeline`). Without it are tables of what the
timeline does not draw (calls of the OS, the profiler's overhead, page faults), of what stands for a whole GPU or is a
statistic over everything (gpu_time, launch_bound, launch_phases), and of facts (devices, peaks, roofs, diagnostics).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pandas as pd

from nightsight.errors import CaptureError
from nightsight.model import MAKE_AGAIN, Report, Result
from nightsight.render.table import replayed
from nightsight.render.table.view import Layout, operation_names, printable, short_name
from nightsight.units import heading

Frame = pd.DataFrame


def layout_of(result: Result) -> Layout:
    """Return the layout of a result; without one of its own its first text column, or else its first, names rows."""
    return _LAYOUTS.get(result.name) or _plain(result)


def refuse_incomplete(report: Report) -> None:
    """Raise CaptureError if a result of a report.json lacks a column that showing it takes."""
    for result in report.results:
        needed = _NEEDED.get(result.name, (layout_of(result).name,)) if len(result.rows) else ()
        if lacking := set(needed) - set(result.rows.columns):
            names = ", ".join(sorted(lacking))
            raise CaptureError(f"not a nightsight report.json: the result {result.name} lacks {names}", MAKE_AGAIN)


def _plain(result: Result) -> Layout:
    columns = list(result.rows.columns) or ["name"]
    name = "name" if "name" in columns else str(columns[0])
    return Layout("rows", heading(name), name)


def _named_operations(frame: Frame) -> Frame:
    """Name each memory operation, in place of what its name is made of."""
    rest = frame.drop(columns=["operation", "source_kind", "target_kind"])
    return rest.assign(name=operation_names(frame))


def _per_device(frame: Frame) -> Frame:
    """Leave out the device where all rows have the same."""
    return frame if frame["device"].nunique() > 1 else frame.drop(columns="device")


def _neighbour(name: str) -> str:
    """Shorten the name of what came before or after a gap."""
    return short_name(name, 48)


def _per_process(frame: Frame) -> Frame:
    """Leave out the process where all rows have the same, and repetitions and other waits where there are none."""
    unused = [name for name in ("steps", "of_steps", "other_waits") if name in frame and not frame[name].any()]
    return frame.drop(columns=[*unused, *(["pid"] if "pid" in frame and frame["pid"].nunique() <= 1 else [])])


def _per_device_and_process(frame: Frame) -> Frame:
    return _per_process(_per_device(frame))


def _devices(frame: Frame) -> Frame:
    """Leave out the window, which is the same for all, and the kinds of work that no device did."""
    unused = [kind for kind in _KINDS_OF_WORK if kind in frame and not frame[kind].any()]
    columns = [name for kind in unused for name in _KINDS_OF_WORK[kind]]
    return frame.drop(columns=[*columns, "window", "window_ns"], errors="ignore")


_KINDS_OF_WORK: Final = {
    "copies": ("copies", "copy_ns", "copied_bytes"),
    "sets": ("sets", "set_ns"),
    "graph_launches": ("graph_launches", "graph_ns"),
}


def _marks(frame: Frame) -> Frame:
    """Name marks as ranges are, with their domain; leave out the category where no mark has one."""
    domain = frame["domain"].astype("str")
    named = frame.assign(name=domain.where(domain == "", domain + ":") + frame["name"].astype("str"))
    return named.drop(columns=["domain", *([] if (frame["category"] != "").any() else ["category"])])


def _tree(frame: Frame) -> Frame:
    """Put every range below the one around it, named by the last part of its path; drop what is the same for all."""
    paths = frame["path"].astype("str").fillna("").tolist()
    places = list(zip(frame["pid"].tolist() if "pid" in frame else [0] * len(frame), paths, strict=True))
    levels = dict(zip(places, frame["level"].fillna(0).tolist(), strict=True))
    around = [_around(place, levels) for place in places]
    names = [path if above is None else path[len(above[1]) + 3 :] for path, above in zip(paths, around, strict=True)]
    idle = ["style"] if frame["style"].nunique() == 1 else []
    if (frame["instances"] == 1).all():
        idle += ["cpu_med_ns", "cpu_min_ns", "cpu_max_ns"]
    rows, depths = _preorder(places, around)
    named = _per_process(frame.assign(name=names).drop(columns=["path", *idle], errors="ignore"))
    return named.iloc[rows].assign(level=depths)


_Place = tuple[object, str]  # process and path of a range


def _around(place: _Place, levels: Mapping[_Place, int]) -> _Place | None:
    """Return what is around a range, the longest path on the level above; a name may itself hold the separator."""
    process, above = place
    while " / " in above:
        above = above.rpartition(" / ")[0]
        if levels.get((process, above)) == levels[place] - 1:
            return process, above
    return None


def _preorder(places: Sequence[_Place], around: Sequence[_Place | None]) -> tuple[list[int], list[int]]:
    """Return the rows, each followed by those inside it, and how deep each of them is."""
    inside: dict[_Place | None, list[int]] = {}
    for row, above in enumerate(around):
        inside.setdefault(above, []).append(row)
    rows, depths = [], []
    waiting = [(row, 0) for row in reversed(inside.pop(None, []))]
    while waiting:
        row, depth = waiting.pop()
        rows.append(row)
        depths.append(depth)
        waiting += [(below, depth + 1) for below in reversed(inside.pop(places[row], []))]
    return rows, depths


_LAYOUTS: Final[Mapping[str, Layout]] = {
    "gpu_time": Layout("devices with GPU work", "Device", "device", prepare=_devices),
    "time_split": Layout(
        *("parts of the window", "Category", "category"),
        bars=("share_pct",),
        prepare=_per_device,
        is_folded=True,
        timeline="functions",
    ),
    "cuda_gpu_kern_sum": Layout("kernels", "Kernel", bars=("time_pct",), shorten=short_name, timeline="kernel"),
    "memory_operations": Layout(
        "copies and sets", "Operation", bars=("time_pct",), prepare=_named_operations, timeline="copy"
    ),
    "copy_sizes": Layout("sizes of copies", "Operation", "operation", timeline="copy"),
    "launch_overhead": Layout(
        "launches", "Kernel", bars=("api_total_ns",), prepare=_per_device, shorten=short_name, timeline="kernel"
    ),
    "launch_phases": Layout("launch figures", "Figure", "figure", prepare=_per_device),
    "launch_bound": Layout("devices with launches", "Device", "device"),
    "gpu_gaps": Layout(
        *("idle gaps", "Cause", "cause"),
        prepare=_per_device,
        timeline="span",
        others={"before": _neighbour, "after": _neighbour},
    ),
    "setup_calls": Layout(
        *("calls that load, compile, allocate or free", "Function"),
        bars=("total_ns",),
        prepare=_per_process,
        timeline="call",
    ),
    "cuda_api_sync": Layout(
        "synchronizing calls", "Function", bars=("total_ns",), prepare=_per_process, timeline="call"
    ),
    "slow_copies": Layout(
        *("copies and sets that make the CPU wait", "Function"),
        bars=("cpu_ns",),
        prepare=_per_device_and_process,
        timeline="call",
    ),
    "range_iterations": Layout(
        "repeated ranges", "Range", "path", bars=("med_ns",), prepare=_per_process, timeline="repetition"
    ),
    "osrt_sum": Layout("OS runtime calls", "Function", bars=("time_pct",)),
    "memory_usage": Layout("kinds of memory", "Kind", "kind", prepare=_per_device, timeline="memory"),
    "unified_memory": Layout("kinds of events", "Event", "event", prepare=_per_process, timeline="copy"),
    "gpu_metrics": Layout("counters", "Metric", "metric", prepare=_per_device, timeline="counter"),
    "ncu_kernels": Layout(
        *("replayed kernels", "Kernel"),
        bars=("gpu_pct",),
        minor=replayed.MINOR,
        prepare=replayed.kernels,
        shorten=replayed.short_numbered,
        numbered="name",
        timeline="replay",
    ),
    "ncu_rules": Layout(
        *("rules", "Rule", "title"),
        full="message",
        bars=("bound_pct",),
        prepare=replayed.rules,
        timeline="replay",
        others={"kernel": replayed.brief_name},
        numbered="kernel",
    ),
    "ncu_roofline": Layout(
        *("kinds of arithmetic", "Kernel"),
        bars=("of_peak_pct",),
        prepare=replayed.points,
        shorten=replayed.short_numbered,
        numbered="name",
        timeline="replay",
    ),
    "ncu_roofs": Layout("roofs", "Roof", "roof", prepare=replayed.roofs),
    "ncu_stalls": Layout(
        *("kernels", "Kernel"),
        prepare=replayed.by_reason,
        shorten=replayed.short_numbered,
        numbered="name",
        is_folded=True,
        timeline="replay",
    ),
    "ncu_instructions": Layout(
        *("kernels", "Kernel"),
        prepare=replayed.by_kind,
        shorten=replayed.short_numbered,
        numbered="name",
        is_folded=True,
        timeline="replay",
    ),
    "ncu_source": Layout(
        *("lines", "Line or instruction", "source"),
        bars=("share_pct",),
        prepare=replayed.hottest,
        timeline="replay",
        others={"kernel": replayed.brief_name},
        numbered="kernel",
    ),
    "ncu_match": Layout("captures", "Launches replayed", "replayed"),
    "nvtx_ranges": Layout("ranges", "Range", bars=("cpu_total_ns", "kernel_ns"), prepare=_tree, timeline="range"),
    "nvtx_marks": Layout("marks", "Mark", prepare=_marks, timeline="mark"),
    "cuda_api_sum": Layout("CUDA calls", "Function", bars=("time_pct",), timeline="call"),
    "cpu_ops": Layout("operators", "Operator", bars=("own_pct",), timeline="operator"),
    "devices": Layout("devices", "Device", "device"),
    "diagnostics": Layout("warnings and errors", "Text", "text", shorten=printable),
    "profiler_overhead": Layout("kinds of overhead", "What", bars=("total_ns",)),
    "not_shown": Layout("events that are not shown", "Events", "kind"),
}

# what sections, pictures and key figures take from their rows and do not do without; of other results the name alone
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu_time": ("device", "window_ns", "busy_ns", "kernel_ns"),
    "time_split": ("category", "device"),
    "cuda_gpu_kern_sum": ("name", "time_pct", "total_ns"),
    "cuda_api_sum": ("name", "total_ns"),
    "cpu_ops": ("name", "own_ns", "own_pct"),
    "memory_operations": ("operation", "source_kind", "target_kind", "total_bytes", "total_ns"),
    "launch_overhead": ("name", "device", "launches", "api_total_ns", "api_med_ns"),
    "launch_phases": ("figure", "device"),
    "gpu_gaps": ("cause", "device"),
    "cuda_api_sync": ("name", "pid"),
    "slow_copies": ("name", "device"),
    "nvtx_ranges": ("path", "level", "instances", "style"),
    "nvtx_marks": ("name", "domain", "category"),
    "memory_usage": ("kind", "device"),
    "unified_memory": ("event", "pid"),
    "gpu_metrics": ("metric", "device"),
    "ncu_rules": ("name", "title", "message", "bound_pct", "speedup_kind", "speedup_pct"),
    "ncu_source": ("name", "file", "line", "pc", "source", "share_pct", "samples", "stall"),
    "ncu_stalls": ("name", "reason", "stall_pct"),
}
