"""The few numbers that sum up a run, for the key figures and the index of runs."""

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.engine import ENGINE_STEP
from nightsight.events.window import MEASURED_RANGE
from nightsight.intervals import Floats
from nightsight.model.report import Benchmark, Report
from nightsight.render.table.view import floats
from nightsight.results.causes import REPLAY
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.gpu_time import GPU_TIME
from nightsight.results.launches import LAUNCH_BOUND
from nightsight.results.operators import CPU_OPS
from nightsight.results.ranges import NVTX_RANGES
from nightsight.results.ranks import RANKS
from nightsight.results.serving import FAILED_REQUESTS, SERVING
from nightsight.results.steps import STEP_SPLIT, WHOLE_STEP
from nightsight.texts import printable
from nightsight.units import format_value

_STEP: Final = f"{MEASURED_RANGE} / step"
# profiling never speeds a program up: if a profiled step is below this share of an unprofiled one, the two differ
_FASTER: Final = 0.9
# a mean that differs by this factor from the median is that of steps some of which take much longer
_FAR: Final = 1.25
# standard deviation over mean
_UNSTEADY: Final = 0.1
# of figures of a serving benchmark
_TIMES: Final = {"med_ns": "median", "p99_ns": "p99", "p95_ns": "p95", "p90_ns": "p90", "avg_ns": "mean"}


@dataclass(frozen=True)
class Numbers:
    """The numbers of one run; None, "" or () means not measured.

    GPU numbers cover the window; `repeated` says what it consists of, if that repeats. `busy_pct`, `idle_ns`,
    `unseen_ns`, `launch_idle_pct` (the GPU waits while a launch is in progress) and `steady_launch_idle_pct` (the same
    without the extra time of first launches) are means over the devices. Counts and other times are sums over the
    devices; `launch_api_med_ns` has one median per device. `top_*_pct` is the share of the time of all kernels, or of
    all operators. `step_ns` is the median over the unprofiled trials, `profiled_step_ns` over the steps of the window,
    whose mean is `profiled_mean_ns`, and the shortest and the longest `profiled_span_ns`; of several devices, means.
    `ranks`: of a job of which the report holds only some, how many it has. `shared_gpus`: how many GPUs the devices
    are, if ranks share them.
    """

    window: str = ""
    repeated: str = ""
    window_ns: float | None = None
    busy_pct: float | None = None
    idle_ns: float | None = None
    unseen_ns: float | None = None
    busy_pct_by_device: tuple[float, ...] = ()
    kernels: float | None = None
    kernel_ns: float | None = None
    copies: float | None = None
    copy_ns: float | None = None
    copied_bytes: float | None = None
    sets: float | None = None
    set_ns: float | None = None
    graph_launches: float | None = None
    graph_ns: float | None = None
    launches: float | None = None
    launch_api_med_ns: tuple[float, ...] = ()
    launch_idle_pct: float | None = None
    launch_idle_pct_by_device: tuple[float, ...] = ()
    steady_launch_idle_pct: float | None = None
    top_kernel: str = ""
    top_kernel_pct: float | None = None
    operators: int | None = None
    operator_calls: float | None = None
    operator_ns: float | None = None
    top_operator: str = ""
    top_operator_pct: float | None = None
    step_ns: float | None = None
    step_mean_ns: float | None = None
    step_stddev_ns: float | None = None
    trials: int = 0
    steps_per_trial: int = 0
    profiled_step_ns: float | None = None
    profiled_mean_ns: float | None = None
    profiled_steps: float | None = None
    profiled_span_ns: tuple[float, ...] = ()
    ranks: int | None = None
    shared_gpus: int | None = None

    @property
    def mean_step(self) -> str:
        """The mean of the profiled steps if it is far from their median: `9.26 ms on average`; "" if it is close."""
        if not self.profiled_mean_ns or not self.profiled_step_ns:
            return ""
        is_far = not 1 / _FAR <= self.profiled_mean_ns / self.profiled_step_ns <= _FAR
        return f"{format_value(self.profiled_mean_ns, 'step_ns')} on average" if is_far else ""

    @property
    def step_span(self) -> str:
        """The shortest and the longest of the profiled steps: `2.05 to 2.31 ms`; "" if they read the same."""
        ends = [format_value(value, "step_ns") for value in self.profiled_span_ns]
        if len(set(ends)) < 2:
            return ""
        (low, unit), (high, other) = (text.split(" ", 1) for text in ends)
        return f"{low} to {high} {unit}" if unit == other else " to ".join(ends)


def numbers(report: Report) -> Numbers:
    """Collect the numbers of a run from its report."""
    ranges, devices = report.rows(NVTX_RANGES), report.rows(GPU_TIME)
    summary = _with_ranges(Numbers(), ranges)
    if len(devices):
        summary = _with_devices(summary, devices)
        summary = _with_kernels(summary, report.rows(CUDA_GPU_KERN_SUM))
        summary = replace(summary, shared_gpus=_shared_gpus(report))
        summary = _with_waits(summary, report.rows(LAUNCH_BOUND))
    summary = _with_steps(summary, report.rows(STEP_SPLIT))
    chosen = report.chosen_window
    if chosen is not None and chosen.repetitions:
        summary = replace(summary, repeated=f"{chosen.repetitions:,} × {chosen.family}")
    summary = _with_operators(summary, report.rows(CPU_OPS))
    ranks = report.rows(RANKS)
    if "like_rank" in ranks and 0 < ranks["like_rank"].nunique() < ranks["rank"].nunique():
        summary = replace(summary, ranks=ranks["rank"].nunique())
    # the benchmark of a server times bursts of requests
    is_of_engine = chosen is not None and chosen.family.endswith(ENGINE_STEP)
    return _with_trials(summary, report.benchmark) if report.benchmark and not is_of_engine else summary


def _shared_gpus(report: Report) -> int | None:
    """Return the number of GPUs behind the devices of a report; None if each is a separate GPU."""
    used = set(floats(report.rows(GPU_TIME)["device"]).tolist())
    again = sum(max(len(used.intersection(group)) - 1, 0) for group in report.shared)
    return len(used) - again if again else None


def facts(report: Report, run: Numbers) -> Iterator[str]:
    """Yield the GPU, the repetitions or the window, and the step time."""
    if report.environment.gpu:
        yield printable(report.environment.gpu)
    step = "" if run.profiled_step_ns is None else f" of {format_value(run.profiled_step_ns, 'step_ns')}"
    if run.repeated:
        spread = ", ".join(filter(None, [run.step_span, run.mean_step])) if step else ""
        yield f"{printable(run.repeated)}{step}{f' ({spread})' if spread else ''}"
    elif run.window_ns is not None:
        yield f"window {format_value(run.window_ns, 'window_ns')}"
    # that of a benchmark, or of the run without the profiler
    timed_ns = floats(report.rows(REPLAY).get("timed_ns", pd.Series(dtype="float64")))[:1]
    step_ns = run.step_ns if run.step_ns is not None else next(iter(timed_ns.tolist()), math.nan)
    if math.isfinite(step_ns):
        yield f"step without a profiler {format_value(step_ns, 'step_ns')}"


def serving_sentences(report: Report) -> Iterator[str]:
    """Yield a sentence about each benchmark of an inference engine: throughput, then latencies."""
    rows = report.rows(SERVING)
    if not {"metric", "measured", "source"} <= set(rows):
        return
    for (source, measured), figures in rows.groupby(["source", "measured"], sort=False):
        parts = [text for row in figures.to_dict("records") if (text := _figure(row))]
        if parts:
            yield f"{printable(source)} ({printable(measured)}): {'; '.join(parts)}."


def _figure(row: Mapping[Any, Any]) -> str:
    """Return a figure in words, "" if it does not belong on the first screen."""
    metric, values = printable(row["metric"]), {name: value for name, value in row.items() if not pd.isna(value)}
    if metric == FAILED_REQUESTS:
        return f"{metric}: {format_value(float(values['count']), 'count')}" if values.get("count") else ""
    if "rate_per_s" in values:
        return f"{metric} {format_value(float(values['rate_per_s']), 'rate_per_s')}"
    times = [f"{word} {format_value(float(values[name]), name)}" for name, word in _TIMES.items() if name in values]
    return f"{metric}: {', '.join(times[:2])}" if times else ""


def benchmark_doubts(run: Numbers) -> tuple[str, ...]:
    """Return the reasons to distrust the unprofiled step times; none if they are plausible."""
    doubts = []
    if run.step_ns and run.profiled_step_ns is not None and run.profiled_step_ns < _FASTER * run.step_ns:
        ratio = f"{run.profiled_step_ns / run.step_ns:.2f}"
        doubts.append(f"a step took {ratio} times as long with the profiler as without it")
    if run.step_mean_ns and run.step_stddev_ns is not None and run.step_stddev_ns > _UNSTEADY * run.step_mean_ns:
        share = format_value(100 * run.step_stddev_ns / run.step_mean_ns, "share_pct")
        doubts.append(f"the standard deviation of the trials is {share} of their mean")
    return tuple(doubts)


def _with_ranges(summary: Numbers, ranges: pd.DataFrame) -> Numbers:
    """Add the window and the steps that our runner marks; they need not contain any GPU work."""
    paths = ranges["path"].astype("str") if "path" in ranges else pd.Series(dtype="str")
    measured, steps = ranges[paths == MEASURED_RANGE], _sum(ranges[paths == _STEP], "instances")
    medians = _finite_values(ranges[paths == _STEP], "cpu_med_ns")
    if not len(measured):
        return summary
    window, total = float(_finite_values(measured, "cpu_max_ns").max(initial=0.0)), _sum(measured, "cpu_total_ns")
    step = float(medians[0]) if len(medians) == 1 else total / steps if total and steps else None
    return replace(summary, window=MEASURED_RANGE, window_ns=window, profiled_step_ns=step, profiled_steps=steps)


def _with_devices(summary: Numbers, devices: pd.DataFrame) -> Numbers:
    # if a number is missing for one device, its sum over all devices is unknown
    sums = {name: _sum(devices, name) for name in _SUMMED if name in devices and devices[name].notna().all()}
    busy, idle, unknown = (_finite_values(devices, name) for name in ("busy_pct", "idle_ns", "unseen_ns"))
    return replace(
        summary,
        window=str(devices["window"].iloc[0]) if "window" in devices else "",
        window_ns=float(_finite_values(devices, "window_ns").max(initial=0.0)),
        busy_pct=float(busy.mean()) if len(busy) else None,
        idle_ns=float(idle.mean()) if len(idle) else None,
        unseen_ns=float(unknown.mean()) if len(unknown) else None,
        busy_pct_by_device=tuple(busy.tolist()),
        launch_api_med_ns=tuple(_finite_values(devices, "launch_api_med_ns").tolist()),
        **sums,  # type: ignore[arg-type]
    )


def _with_waits(summary: Numbers, bound: pd.DataFrame) -> Numbers:
    waits, first = _finite_values(bound, "launch_idle_pct"), _finite_values(bound, "first_launch_idle_ns")
    if not len(waits):
        return summary
    mean = float(waits.mean())
    # the extra time of first launches is in ns: convert it to percent of the window
    steady = mean - 100.0 * float(first.mean()) / summary.window_ns if len(first) and summary.window_ns else None
    return replace(
        summary,
        launch_idle_pct=mean,
        launch_idle_pct_by_device=tuple(waits.tolist()),
        steady_launch_idle_pct=steady,
    )


_SUMMED: Final = (
    "kernels",
    "kernel_ns",
    "copies",
    "copy_ns",
    "copied_bytes",
    "sets",
    "set_ns",
    "graph_launches",
    "graph_ns",
    "launches",
)


def _with_steps(summary: Numbers, steps: pd.DataFrame) -> Numbers:
    """Add the median and the mean of the window's repetitions, and the shortest and the longest of them."""
    if "category" not in steps:
        return summary
    whole = steps[steps["category"] == WHOLE_STEP]
    columns = ("med_ns", "steps", "avg_ns", "min_ns", "max_ns")
    times, counts, means, least, most = (_finite_values(whole, name) for name in columns)
    if not len(times) or not len(counts):
        return summary
    span = (float(least.mean()), float(most.mean())) if len(least) and len(most) else ()
    return replace(
        summary,
        profiled_step_ns=float(times.mean()),
        profiled_mean_ns=float(means.mean()) if len(means) else None,
        profiled_steps=float(counts.max()),
        profiled_span_ns=span,
    )


def _with_kernels(summary: Numbers, kernels: pd.DataFrame) -> Numbers:
    if not len(kernels):
        return summary
    top = kernels.iloc[0]
    return replace(summary, top_kernel=str(top["name"]), top_kernel_pct=float(top["time_pct"]))


def _with_operators(summary: Numbers, operators: pd.DataFrame) -> Numbers:
    if not len(operators):
        return summary
    top = operators.iloc[0]
    return replace(
        summary,
        operators=len(operators),
        operator_calls=_sum(operators, "calls"),
        operator_ns=_sum(operators, "own_ns"),
        top_operator=str(top["name"]),
        top_operator_pct=float(top["own_pct"]),
    )


def _with_trials(summary: Numbers, benchmark: Benchmark) -> Numbers:
    times = benchmark.step_ns
    if not times or not statistics.fmean(times) > 0:
        return summary
    return replace(
        summary,
        step_ns=statistics.median(times),
        step_mean_ns=statistics.fmean(times),
        step_stddev_ns=statistics.stdev(times) if len(times) > 1 else None,
        trials=len(times),
        steps_per_trial=benchmark.steps_per_trial,
    )


def _sum(frame: pd.DataFrame, column: str) -> float | None:
    # None instead of 0 if nothing is known
    values = _finite_values(frame, column)
    return float(values.sum()) if len(values) else None


def _finite_values(frame: pd.DataFrame, column: str) -> Floats:
    """Return the finite values of a column; empty if the report lacks the column."""
    values = floats(frame[column]) if column in frame else np.empty(0)
    return values[np.isfinite(values)]
