"""Build the key figures at the top of a report: each number with its label and a short note for context."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.kernel_labels import label_of
from nightsight.events.peaks import LIMITED_PCT, MEMORIES
from nightsight.events.window import MEASURED_RANGE
from nightsight.model.report import Report
from nightsight.render.summary import Numbers, benchmark_doubts
from nightsight.render.table.replayed import LATENCIES
from nightsight.render.table.view import floats
from nightsight.render.verdict import each_of
from nightsight.results.categories import COMMUNICATES_PCT, COMMUNICATION, COMPUTE, GRAPHS, UNSEEN
from nightsight.results.ncu import NCU_KERNELS, NCU_LIMITS
from nightsight.results.program import MEMORY_USAGE
from nightsight.results.steps import OPERATORS, STEP_SPLIT, WHOLE_STEP
from nightsight.texts import excerpt, middle_cut, printable
from nightsight.units import Scale, counted, format_value, scale_for

_FIRST: Final = 4
_NAME_LENGTH: Final = 44
_WINDOWS: Final = {
    MEASURED_RANGE: "the range “measure”",
    "first to last GPU operation": "first to last GPU operation, including setup",
}


@dataclass(frozen=True)
class Figure:
    """A formatted number with its label, and a note for context."""

    label: str
    value: str
    note: str = ""


def first_figures(run: Numbers, report: Report) -> tuple[Figure, ...]:
    """Return the four figures of the first screen of a report without a split of GPU time, the most important first."""
    if len(report.rows(NCU_LIMITS)):
        figures: Iterator[Figure] = _single_kernels(report)
    else:
        is_known = run.step_ns or run.window_ns or run.profiled_step_ns
        of_window = _one_step(run) if is_known else _recording_length(report)
        # figures of a step are more useful than a sum over the whole recording
        operators = tuple(_in_operators(report.rows(STEP_SPLIT))) or _operator_time(run)
        figures = chain(of_window, operators, _top_operator(run), _memory_use(report))
    return tuple(figures)[:_FIRST]


def _one_step(run: Numbers) -> Iterator[Figure]:
    window = "" if run.window_ns is None else format_value(run.window_ns, "window_ns")
    if run.step_ns is not None:
        note = f"without the profiler, median of {counted(run.trials, 'trial')}"
        yield Figure("Step", format_value(run.step_ns, "step_ns"), note)
    elif run.profiled_step_ns is not None:
        # the window also has the time between the steps, so it is not their sum
        note = _join(_of_steps(run), window and f"window {window}")
        yield Figure("Step, profiled", format_value(run.profiled_step_ns, "step_ns"), note)
    elif window:
        yield Figure("Window", window, _window_note(run))


def _recording_length(report: Report) -> Iterator[Figure]:
    """Yield the length of a recording without work on a GPU."""
    if (view := report.chosen_window) and view.end_ns > view.start_ns:
        yield Figure("Recorded", format_value(float(view.end_ns - view.start_ns), "time_ns"))


def _memory_use(report: Report) -> Iterator[Figure]:
    usage = report.rows(MEMORY_USAGE)
    if len(usage):
        largest = usage.iloc[int(floats(usage["peak_bytes"]).argmax())].to_dict()
        note = f"{counted(float(largest['allocations']), 'allocation')}, {printable(largest['kind'])}"
        yield Figure("Most memory", format_value(float(largest["peak_bytes"]), "peak_bytes"), note)


def _idle(idle_ns: float | None, unseen_ns: float | None) -> str:
    unknown = f", {UNSEEN} {format_value(unseen_ns, 'unseen_ns')}" if unseen_ns else ""
    return f"idle {format_value(idle_ns, 'idle_ns')}{unknown}"


def _single_kernels(report: Report) -> Iterator[Figure]:
    """Yield the figures of kernels that ncu replayed, without a timeline."""
    kernels, limits = report.rows(NCU_KERNELS), report.rows(NCU_LIMITS)
    are_coalescing_known = {"launch", "excessive_pct"} <= set(kernels) and "launch" in limits
    excessive = limits["launch"].map(kernels.set_index("launch")["excessive_pct"]) if are_coalescing_known else np.nan
    limits = limits.assign(excessive_pct=excessive)
    times = floats(limits["replay_ns"])
    total = float(np.nansum(times))
    yield Figure("Replayed kernels", f"{len(limits):,}", f"{format_value(total, 'replay_ns')} in all")
    if not total > 0:
        return
    largest = limits.iloc[int(np.nanargmax(times))].to_dict()
    share = format_value(100 * float(largest["replay_ns"]) / total, "share_pct")
    yield Figure("Largest kernel", share, f"of their time: {label_of(str(largest['name']), _NAME_LENGTH)}")
    if pd.notna(largest["used_pct"]):
        unit, used = printable(largest["unit"]), format_value(float(largest["used_pct"]), "used_pct")
        if largest["used_pct"] >= LIMITED_PCT:
            yield Figure("It is limited by", unit, f"used at {used}")
        else:
            yield Figure("It is limited by", LATENCIES, f"most used: {unit}, {used}")
        yield _shorter(largest)


def _shorter(limits: dict[Any, Any]) -> Figure:
    """Return how much shorter a launch could be with the change its metrics suggest, else up to the unit's peak."""
    label = "It could be shorter by"
    if pd.notna(limits["gain_pct"]):
        # the first metric is the reason, and the others support it
        reason = middle_cut(printable(limits["reason"]).partition(", ")[0], _NAME_LENGTH)
        return Figure(label, format_value(float(limits["gain_pct"]), "gain_pct"), reason)
    headroom = format_value(float(limits["left_pct"]), "left_pct")
    if limits["unit"] in MEMORIES and pd.isna(limits["excessive_pct"]):
        # uncoalesced accesses keep a cache busy with data nobody reads
        unit = printable(limits["unit"])
        return Figure("Below the peak by", headroom, f"of {unit}; whether its traffic is needed was not measured")
    return Figure(label, f"at most {headroom}", "distance of that unit from its peak")


def key_figures(run: Numbers, shares: "pd.Series[float]") -> tuple[Figure, ...]:
    """Return the key figures: of the GPU if it did any work, else of the CPU. shares: of the time, by category."""
    has_gpu = bool(run.busy_pct_by_device)
    work = chain(_computing(shares), _gpu(run)) if has_gpu else chain(_operator_time(run), _top_operator(run))
    return (*_window(run), *work, *_launches(run), *_step_figures(run))


def _window(run: Numbers) -> Iterator[Figure]:
    if run.window_ns is not None:
        yield Figure("Window", format_value(run.window_ns, "window_ns"), _window_note(run))


def _window_note(run: Numbers) -> str:
    note = _WINDOWS.get(run.window, printable(run.window) if run.window else "")
    return _join(note, printable(run.repeated) if run.repeated else "")


def _computing(shares: "pd.Series[float]") -> Iterator[Figure]:
    """Yield how long GPUs compute, if they communicate much, which is mostly waiting."""
    if shares.get(COMMUNICATION, 0.0) >= COMMUNICATES_PCT:
        computing = float(shares.reindex([COMPUTE, GRAPHS]).sum())
        note = f"of the time; only communicating {format_value(float(shares[COMMUNICATION]), 'share_pct')}"
        yield Figure("GPU computing", format_value(computing, "share_pct"), note)


def _gpu(run: Numbers) -> Iterator[Figure]:
    devices = run.busy_pct_by_device
    over = f"sum over {len(devices)} {each_of(run)}" if len(devices) > 1 else ""
    idle = _idle(run.idle_ns, run.unseen_ns)
    mean = f"mean of {len(devices)} {each_of(run)}, {_span(devices, 'busy_pct')}; {idle} on average"
    yield Figure("GPU busy", format_value(run.busy_pct, "busy_pct"), mean if over else idle)
    kernels = _join(counted(run.kernels or 0, "kernel"), over)
    yield Figure("Kernel time", format_value(run.kernel_ns, "kernel_ns"), kernels + _top_kernel(run))
    yield from _memory(run, over)
    if run.graph_launches:
        graphs = _join(counted(run.graph_launches, "graph run"), over)
        yield Figure("CUDA graph time", format_value(run.graph_ns, "graph_ns"), graphs)


def _top_kernel(run: Numbers) -> str:
    if run.top_kernel_pct is None:
        return ""
    return f"; {format_value(run.top_kernel_pct, 'time_pct')} in {label_of(run.top_kernel, _NAME_LENGTH)}"


def _memory(run: Numbers, over: str) -> Iterator[Figure]:
    """Yield one figure for copies, with memsets in its note; for memsets if there are no copies."""
    sets, set_time = counted(run.sets or 0, "set"), format_value(run.set_ns, "set_ns")
    if run.copies:
        size = "" if run.copied_bytes is None else f"{format_value(run.copied_bytes, 'copied_bytes')} in "
        copied = f"{size}{counted(run.copies, 'copy')}"
        memsets = f"; {sets} took {set_time}" if run.sets else ""
        yield Figure("Copy time", format_value(run.copy_ns, "copy_ns"), _join(copied, over) + memsets)
    elif run.sets:
        yield Figure("Set time", set_time, _join(sets, over))


def _in_operators(steps: pd.DataFrame) -> Iterator[Figure]:
    """Yield the share of a step on the CPU that is in operators."""
    means = dict(zip(steps["category"].astype("str"), floats(steps["avg_ns"]), strict=True)) if len(steps) else {}
    if means.get(WHOLE_STEP) and OPERATORS in means:
        share = format_value(100 * means[OPERATORS] / means[WHOLE_STEP], "share_pct")
        yield Figure("In operators", share, "of a step, on any thread")


def _operator_time(run: Numbers) -> Iterator[Figure]:
    if run.operators:
        note = f"{counted(run.operator_calls or 0, 'call')} of {counted(run.operators, 'operator')}"
        # as in torch, operators are counted in the whole recording
        note += ", in the whole recording" if run.repeated else ""
        yield Figure("Operator time", format_value(run.operator_ns, "own_ns"), note)


def _top_operator(run: Numbers) -> Iterator[Figure]:
    if run.top_operator_pct is not None:
        name = excerpt(run.top_operator, _NAME_LENGTH)
        yield Figure("Top operator", format_value(run.top_operator_pct, "own_pct"), f"of operator time: {name}")


def _launches(run: Numbers) -> Iterator[Figure]:
    if not run.launches:
        return
    medians = run.launch_api_med_ns
    several = ", by device" if len(set(medians)) > 1 else ""
    api_time = f"API median {_span(medians, 'launch_api_med_ns')}{several}"
    api_time = api_time if medians else "their API time was not recorded"
    if run.launch_idle_pct is None:
        yield Figure("Launches", f"{run.launches:,.0f}", api_time)
        return
    waits = format_value(run.launch_idle_pct, "launch_idle_pct")
    note = f"{_of_waits(run, waits)}; {counted(run.launches, 'launch')}, {api_time}"
    yield Figure("GPU waits for launches", waits, note)


def _of_waits(run: Numbers, waits: str) -> str:
    """Qualify the share: its range over the devices, and its value without slow first launches.

    The advice on launches uses these: it looks at the worst device and ignores first launches.
    """
    devices = run.launch_idle_pct_by_device
    span = f"mean of {len(devices)} {each_of(run)}, {_span(devices, 'launch_idle_pct')}" if len(devices) > 1 else ""
    steady = format_value(run.steady_launch_idle_pct, "launch_idle_pct")
    has_slow = run.steady_launch_idle_pct is not None and steady != waits
    return _join("of the window", span, f"{steady} without slow first launches" if has_slow else "")


def _step_figures(run: Numbers) -> Iterator[Figure]:
    if run.step_ns is not None and run.step_mean_ns is not None:
        scale = scale_for("ns", [run.step_ns])
        spread = f"mean {scale.with_unit(run.step_mean_ns)}, std dev {scale.with_unit(run.step_stddev_ns)}"
        trials = f"{counted(run.trials, 'trial')} of {counted(run.steps_per_trial, 'step')}"
        rate = Scale(1, "", 1).with_unit(1e9 / run.step_ns)
        yield Figure("Steps per second, unprofiled", rate, f"median of {trials}")
        doubts = " and ".join(benchmark_doubts(run))
        yield Figure(
            "Step, unprofiled", scale.with_unit(run.step_ns), f"{spread}; unreliable: {doubts}" if doubts else spread
        )
    if run.profiled_step_ns is not None:
        ratio = f"{run.profiled_step_ns / run.step_ns:.1f}× unprofiled" if run.step_ns else ""
        yield Figure("Step, profiled", format_value(run.profiled_step_ns, "step_ns"), _join(ratio, _of_steps(run)))


def _of_steps(run: Numbers) -> str:
    """Return how many steps the profiled median covers, and how much they differ."""
    return _join(f"median of {counted(run.profiled_steps or 0, 'step')}", run.step_span, run.mean_step)


def _span(values: tuple[float, ...], column: str) -> str:
    """Format the range of some values, as a single value if both ends read the same; "" for none."""
    ends = dict.fromkeys(format_value(value, column) for value in (min(values), max(values))) if values else ()
    return " to ".join(ends)


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
