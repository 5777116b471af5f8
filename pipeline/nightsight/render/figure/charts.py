"""Which picture goes with which result, and what its labels say."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.model import Report
from nightsight.render.figure.bars import Bar, Chart, Group, Mix, ranking, share, stacks, width
from nightsight.render.figure.curves import Kind, TimeChart, over_time
from nightsight.render.figure.histograms import Distribution, Histogram, Layer, histograms
from nightsight.render.figure.scatter import Scatter, copy_rates
from nightsight.render.figure.shares import Whole, wholes
from nightsight.render.figure.strips import Strips, strips
from nightsight.render.page.summary import numbers
from nightsight.render.table.replayed import brief, by_kind, by_reason
from nightsight.render.table.view import counted, floats, operation_names, short_name, short_text
from nightsight.units import format_value, heading

Frame = pd.DataFrame
_BARS: Final = 10
_KERNELS: Final = 12


@dataclass(frozen=True)
class Pictures:
    """What a section has beside bars, curves and rooflines, in the order it is shown."""

    wholes: tuple[Whole, ...] = ()
    histograms: tuple[Histogram, ...] = ()
    scatters: tuple[Scatter, ...] = ()
    strips: tuple[Strips, ...] = ()


def charts_of(name: str, frame: Frame) -> tuple[Chart, ...]:
    """Return the charts that go with the table of a result; most have one, some none."""
    return _CHARTS[name](frame) if name in _CHARTS else ()


def curves_of(name: str, report: Report) -> tuple[TimeChart, ...]:
    """Return the charts over time that belong to a result; their points are in results of their own."""
    if name not in CURVES:
        return ()
    kind, window_ns = CURVES[name], numbers(report).window_ns or 0.0
    results = (result for result in report.results if result.name == kind.source)
    return tuple(chart for result in results for chart in over_time(kind, result.rows, window_ns=window_ns))


def pictures_of(name: str, report: Report) -> Pictures:
    """Return the other pictures that belong to a result."""
    return Pictures(
        wholes(report.result(name).rows) if name == "time_split" else (),
        histograms(HISTOGRAMS[name], _rows(report, HISTOGRAMS[name].source)) if name in HISTOGRAMS else (),
        copy_rates(report.result(name).rows, _rows(report, "gpu_peaks")) if name == "copy_sizes" else (),
        strips(_rows(report, ITERATIONS), report.result(name).rows) if name == "range_iterations" else (),
    )


def _rows(report: Report, name: str) -> Frame:
    """Return the table of a result; an empty one where the report has none."""
    return next((result.rows for result in report.results if result.name == name), Frame())


def mixes_of(name: str, frame: Frame) -> tuple[Mix, ...]:
    """Return the stacked bars that go with the table of a result."""
    return _MIXES[name](frame) if name in _MIXES else ()


def _gpu_time(frame: Frame) -> tuple[Chart, ...]:
    """Per device, how much of the window was busy, and the summed times of what ran beside it."""
    present = [column for column in _KINDS if column in frame and floats(frame[column]).any()]
    kinds = {column: _KINDS[column] for column in dict.fromkeys(("busy_ns", "kernel_ns", *present))}
    window = _most(frame, "window_ns")
    largest = max(window, *(_most(frame, column) for column in kinds))
    groups = tuple(
        Group(f"Device {row['device']}", tuple(_gpu_bar(row, column, largest) for column in kinds))
        for row in frame.to_dict("records")
    )
    full = f"{format_value(largest, 'window_ns')}, {'the window' if largest == window else 'the largest sum'}"
    note = (
        f"Full width: {full}. Only what ran inside the window counts, and percentages are of the window. Busy counts "
        "overlaps once; a sum counts every operation, so work on several streams can add up to more than busy."
    )
    return (Chart("Busy time, and sums by kind", groups, note=note, has_track=True),)


_KINDS: Final = {
    "busy_ns": ("busy", "Busy"),
    "kernel_ns": ("kernel", "Kernels, sum"),
    "copy_ns": ("copy", "Copies, sum"),
    "set_ns": ("set", "Sets, sum"),
    "graph_ns": ("graph", "CUDA graphs, sum"),
}


def _gpu_bar(row: Mapping[Hashable, float], column: str, largest: float) -> Bar:
    value, (series, label) = _number(row[column]), _KINDS[column]
    part = share(value, _number(row["window_ns"]))
    return Bar(series, label, format_value(value, column), width(value, largest), part)


def _number(value: float | None) -> float:
    return 0.0 if pd.isna(value) else float(value)


def _most(frame: Frame, column: str) -> float:
    return float(np.nan_to_num(floats(frame[column])).max())


def _ranked(
    title: str, column: str, series: str, *, shorten: Callable[[str], str] = short_text
) -> Callable[[Frame], tuple[Chart, ...]]:
    """Make a chart of one column, its first rows by name, in the order of the table."""

    def chart(frame: Frame) -> tuple[Chart, ...]:
        names = [shorten(name) for name in frame["name"].head(_BARS).astype("str")]
        return (Chart(title, ranking(names, floats(frame[column]), column=column, series=series)),)

    return chart


def _memory(frame: Frame) -> tuple[Chart, ...]:
    named = frame.assign(name=operation_names(frame))
    by_time, by_size = _ranked("Time", "total_ns", "copy"), _ranked("Size", "total_bytes", "bytes")
    return (*by_time(named), *by_size(named))


def _launches(frame: Frame) -> tuple[Chart, ...]:
    """Rank kernels by the CPU's time in their launches; none where no launching call was recorded."""
    total, launches = floats(frame["api_total_ns"]), floats(frame["launches"])
    if not (total > 0).any():
        return ()
    top = frame.head(_BARS)
    names = top["name"].astype("str").map(short_name)
    if frame["device"].nunique() > 1:
        names = names + " (device " + top["device"].astype("str") + ")"
    notes = [
        f"{counted(count, 'launch')}, median {format_value(median, 'api_ns')}"
        for count, median in zip(launches, floats(top["api_med_ns"]), strict=False)
    ]
    notes.append(counted(launches[_BARS:].sum(), "launch"))
    groups = ranking(names.tolist(), total, column="api_total_ns", series="api", notes=notes)
    return (Chart("Total API time of the launches, by kernel", groups),)


def _replayed(frame: Frame) -> tuple[Chart, ...]:
    """Per kernel, how much of the GPU's peaks it reached; no bar for what was not collected."""
    rows = zip(brief(frame["name"]), frame.to_dict("records"), strict=True)
    groups = tuple(
        Group(
            label,
            tuple(
                Bar(series, title, format_value(row[column], column), width(row[column], 100.0))
                for column, (series, title) in _PEAKS.items()
                if pd.notna(row.get(column))
            ),
        )
        for label, row in list(rows)[:_KERNELS]
    )
    note = (
        "Full width: the peak that can be sustained; of occupancy, all warps that a multiprocessor holds. Where "
        "compute and memory are both low, a kernel mostly waits or leaves units without work."
    )
    drawn = tuple(group for group in groups if group.bars)
    return (Chart("Throughput of compute and memory, and achieved occupancy", drawn, note, True),) if drawn else ()


_PEAKS: Final = {
    "sm_pct": ("kernel", "Compute"),
    "memory_pct": ("copy", "Memory"),
    "occupancy_pct": ("api", "Occupancy"),
}


def _stalls(frame: Frame) -> tuple[Mix, ...]:
    note = "The five largest reasons of each kernel; a reason below 1 % is not named."
    return _mix("Reasons why warps did not issue an instruction", by_reason(frame), note)


def _instructions(frame: Frame) -> tuple[Mix, ...]:
    return _mix("Instructions that warps executed", by_kind(frame), "A kind below 1 % is not named.")


def _mix(title: str, frame: Frame, note: str) -> tuple[Mix, ...]:
    """Stack the columns of percentages, in their order."""
    top = frame.head(_KERNELS)
    shares = {short_text(heading(column)): floats(top[column]) for column in top.columns if column.endswith("_pct")}
    drawn = tuple(stack for stack in stacks(brief(top["name"]), shares) if stack.segments)
    return (Mix(title, drawn, note),) if drawn else ()


_MIXES: Final[Mapping[str, Callable[[Frame], tuple[Mix, ...]]]] = {
    "ncu_stalls": _stalls,
    "ncu_instructions": _instructions,
}

_CHARTS: Final[Mapping[str, Callable[[Frame], tuple[Chart, ...]]]] = {
    "gpu_time": _gpu_time,
    "cuda_gpu_kern_sum": _ranked("Total time by kernel", "total_ns", "kernel", shorten=short_name),
    "memory_operations": _memory,
    "launch_overhead": _launches,
    "cuda_api_sum": _ranked("Total time by function", "total_ns", "api"),
    "ncu_kernels": _replayed,
    "cpu_ops": _ranked("Own time by operator", "own_ns", "cpu"),
}

CURVES: Final[Mapping[str, Kind]] = {
    "gpu_time": Kind(
        source="gpu_utilization",
        title="Busy share over time, by equal stretches of the window",
        time="from_ns",
        levels=(("busy_pct", ""),),
        unit="pct",
        series="busy",
        full=100.0,
    ),
    "launch_bound": Kind(
        source="in_flight",
        title="Operations in flight",
        time="time_ns",
        levels=(("in_flight_max", "maximum"), ("in_flight_avg", "mean")),
        unit="",
        series="api",
        note="Maximum and mean of equal stretches of the window. At zero, the GPU waits for the CPU.",
    ),
    "memory_usage": Kind(
        source="memory_over_time",
        title="Memory allocated on the device",
        time="time_ns",
        levels=(("bytes", ""),),
        unit="bytes",
        series="bytes",
    ),
}

HISTOGRAMS: Final[Mapping[str, Distribution]] = {
    "cuda_gpu_kern_sum": Distribution(
        source="kernel_durations",
        title="How long kernels take",
        layers=(
            Layer("kernel duration", "count", "Kernels", "kernel", "kernel"),
            Layer("kernel duration", "total_ns", "Their time together", "kernel", "kernel"),
        ),
        note="Ten classes per decade of duration: above how many kernels each has, below how much time these took.",
    ),
    "launch_phases": Distribution(
        source="launch_latencies",
        title="What launches take",
        layers=(
            Layer("API time", "count", "API time: the CPU in the launch call", "launch", "api"),
            Layer("launch latency", "count", "Launch latency, where the stream was empty", "launch", "set"),
        ),
        note="Number of launches by duration, first and steady ones; ten classes per decade.",
        least=100.0,
    ),
}
ITERATIONS: Final = "iteration_times"
SERIES: Final = (
    *(kind.source for kind in CURVES.values()),
    *(kind.source for kind in HISTOGRAMS.values()),
    ITERATIONS,
)
"""Results that are points of a picture: as tables they say nothing."""
