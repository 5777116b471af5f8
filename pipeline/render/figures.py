"""The few numbers that say how a run went, each with what it must be read with."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from pipeline.model import Benchmark, Report
from pipeline.render.view import counted, middle_cut, numbers, printable
from pipeline.units import ABSENT, format_value, scale_for

_NAME_LENGTH: Final = 34


@dataclass(frozen=True)
class Figure:
    """A number with its label, and a line on what it means."""

    label: str
    value: str
    note: str = ""


def key_figures(report: Report) -> tuple[Figure, ...]:
    """Return the figures this report has the tables for: of the GPU if it did work, else of the CPU."""
    gpu, operators = rows_of(report, "gpu_time"), rows_of(report, "cpu_ops")
    of_device = _gpu_figures(gpu) if len(gpu) else _cpu_figures(operators, rows_of(report, "nvtx_ranges"))
    of_steps = _step_figures(report.benchmark) if report.benchmark else ()
    return (*of_device, *_launch_figures(rows_of(report, "launch_overhead")), *of_steps)


def rows_of(report: Report, name: str) -> pd.DataFrame:
    """Return the table of a result; an empty one where the report has none."""
    return next((result.rows for result in report.results if result.name == name), pd.DataFrame())


def _gpu_figures(gpu: pd.DataFrame) -> tuple[Figure, ...]:
    devices = len(gpu)
    busy, idle = numbers(gpu["busy_pct"]), numbers(gpu["idle_ns"])
    each = ", ".join(format_value(float(value), "busy_pct") for value in busy[:8])
    over = f"sum over {devices} devices" if devices > 1 else ""
    mean = f"mean of {devices} devices: {each}" if devices > 1 else "of the window, overlaps counted once"
    copied = f"{_total(gpu, 'copied_bytes')} in {counted(_sum(gpu, 'copies'), 'operation')}"
    idle_share = f"{format_value(100 - float(busy.mean()), 'idle_pct')} of the window"
    figures = (
        Figure("Window", _largest(gpu, "window_ns"), "the stretch of time measured"),
        Figure("GPU busy", format_value(float(busy.mean()), "busy_pct"), mean),
        Figure(
            "GPU idle", format_value(float(idle.mean()), "idle_ns"), _joined(idle_share, over and "mean per device")
        ),
        Figure("Kernel time", _total(gpu, "kernel_ns"), _joined(counted(_sum(gpu, "kernels"), "kernel"), over)),
        Figure("Copy time", _total(gpu, "copy_ns"), _joined(copied, over)),
    )
    if not _sum(gpu, "graph_launches"):
        return figures
    graphs = _joined(counted(_sum(gpu, "graph_launches"), "graph run"), over)
    return (*figures, Figure("CUDA graph time", _total(gpu, "graph_ns"), graphs))


def _cpu_figures(operators: pd.DataFrame, ranges: pd.DataFrame) -> tuple[Figure, ...]:
    measured = ranges[ranges["path"].astype("str") == "measure"] if len(ranges) else ranges
    window = (Figure("Window", _largest(measured, "cpu_total_ns"), "the range “measure”"),) if len(measured) else ()
    if not len(operators):
        return window
    top = operators.iloc[0]
    name = middle_cut(printable(str(top["name"])), _NAME_LENGTH)
    note = f"{counted(_sum(operators, 'calls'), 'call')} of {counted(len(operators), 'operator')}"
    return (
        *window,
        Figure("Operator time", _total(operators, "own_ns"), note),
        Figure("Top operator", format_value(float(top["own_pct"]), "own_pct"), name),
    )


def _launch_figures(launches: pd.DataFrame) -> tuple[Figure, ...]:
    if not len(launches):
        return ()
    typical = _typical_call(launches)
    note = f"typical API time {format_value(typical, 'api_ns')} (kernels' medians)"
    return (Figure("Launches", _total(launches, "launches"), note),)


def _typical_call(launches: pd.DataFrame) -> float:
    """Return the median over launches, each taken at the median of its kernel: single launches are not in a report."""
    known = launches.assign(call=numbers(launches["api_med_ns"]), weight=numbers(launches["launches"]))
    known = known[known["call"].notna()].sort_values("call")
    if not len(known):
        return float("nan")
    reached = known["weight"].cumsum().to_numpy() * 2 >= known["weight"].sum()
    return float(known["call"].iloc[int(np.argmax(reached))])


def _step_figures(benchmark: Benchmark) -> tuple[Figure, ...]:
    times = np.array(benchmark.step_ns)
    if not len(times) or not times.mean() > 0:
        return ()
    scale = scale_for("ns", times.tolist())
    mean, median = float(times.mean()), float(np.median(times))
    deviation = scale.with_unit(float(times.std(ddof=1))) if len(times) > 1 else ABSENT
    spread = f"median {scale.with_unit(median)}, std dev {deviation}"
    return (
        Figure("Step, unprofiled", scale.with_unit(mean), f"mean; {spread}"),
        Figure(
            "Iterations",
            format_value(1e9 / mean, "steps_per_s"),
            f"{counted(len(times), 'trial')} of {counted(benchmark.steps_per_trial, 'step')}",
        ),
    )


def _total(frame: pd.DataFrame, column: str) -> str:
    return format_value(_sum(frame, column), column)


def _sum(frame: pd.DataFrame, column: str) -> float:
    return float(np.nansum(numbers(frame[column])))


def _largest(frame: pd.DataFrame, column: str) -> str:
    return format_value(float(np.nanmax(numbers(frame[column]))), column)


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
