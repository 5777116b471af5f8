"""The key figures at the top of a report: each number with its label and a short note that puts it in context."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nightsight.events.window import MEASURED_RANGE
from nightsight.render.page.summary import Numbers, benchmark_doubts
from nightsight.render.table.view import counted, middle_cut, printable, short_name
from nightsight.units import Scale, format_value, scale_for

_NAME_LENGTH: Final = 44
_WINDOWS: Final = {
    MEASURED_RANGE: "the range “measure”",
    "first to last GPU operation": "first to last GPU operation, including setup",
}


@dataclass(frozen=True)
class Figure:
    """A formatted number with its label, and a note that puts it in context."""

    label: str
    value: str
    note: str = ""


def key_figures(run: Numbers) -> tuple[Figure, ...]:
    """Return the key figures: of the GPU if it did any work, else of the CPU."""
    has_gpu = bool(run.busy_pct_by_device)
    return (*_window(run), *(_gpu(run) if has_gpu else _cpu(run)), *_launches(run), *_steps(run))


def _window(run: Numbers) -> Iterator[Figure]:
    if run.window_ns is not None:
        note = _WINDOWS.get(run.window, printable(run.window) if run.window else "")
        repeated = printable(run.repeated) if run.repeated else ""
        yield Figure("Window", format_value(run.window_ns, "window_ns"), _joined(note, repeated))


def _gpu(run: Numbers) -> Iterator[Figure]:
    devices = run.busy_pct_by_device
    over = f"sum over {len(devices)} devices" if len(devices) > 1 else ""
    idle = f"idle {format_value(run.idle_ns, 'idle_ns')}"
    mean = f"mean of {len(devices)} devices, {_span(devices, 'busy_pct')}; {idle} on average"
    yield Figure("GPU busy", format_value(run.busy_pct, "busy_pct"), mean if over else idle)
    kernels = _joined(counted(run.kernels or 0, "kernel"), over)
    yield Figure("Kernel time", format_value(run.kernel_ns, "kernel_ns"), kernels + _top_kernel(run))
    yield from _memory(run, over)
    if run.graph_launches:
        graphs = _joined(counted(run.graph_launches, "graph run"), over)
        yield Figure("CUDA graph time", format_value(run.graph_ns, "graph_ns"), graphs)


def _top_kernel(run: Numbers) -> str:
    if run.top_kernel_pct is None:
        return ""
    return f"; {format_value(run.top_kernel_pct, 'time_pct')} in {short_name(run.top_kernel, _NAME_LENGTH)}"


def _memory(run: Numbers, over: str) -> Iterator[Figure]:
    """Yield one figure for copies, with memsets in its note; for memsets if there are no copies."""
    sets, set_time = counted(run.sets or 0, "set"), format_value(run.set_ns, "set_ns")
    if run.copies:
        size = "" if run.copied_bytes is None else f"{format_value(run.copied_bytes, 'copied_bytes')} in "
        copied = f"{size}{counted(run.copies, 'copy')}"
        beside = f"; {sets} took {set_time}" if run.sets else ""
        yield Figure("Copy time", format_value(run.copy_ns, "copy_ns"), _joined(copied, over) + beside)
    elif run.sets:
        yield Figure("Set time", set_time, _joined(sets, over))


def _cpu(run: Numbers) -> Iterator[Figure]:
    if run.top_operator_pct is None:
        return
    note = f"{counted(run.operator_calls or 0, 'call')} of {counted(run.operators or 0, 'operator')}"
    yield Figure("Operator time", format_value(run.operator_ns, "own_ns"), note)
    name = middle_cut(printable(run.top_operator), _NAME_LENGTH)
    yield Figure("Top operator", format_value(run.top_operator_pct, "own_pct"), f"of all operator time: {name}")


def _launches(run: Numbers) -> Iterator[Figure]:
    if not run.launches:
        return
    medians = run.launch_api_med_ns
    several = ", by device" if len(set(medians)) > 1 else ""
    known = f"API median {_span(medians, 'launch_api_med_ns')}{several}"
    known = known if medians else "their API time was not recorded"
    if run.launch_idle_pct is None:
        yield Figure("Launches", f"{run.launches:,.0f}", known)
        return
    waits = format_value(run.launch_idle_pct, "launch_idle_pct")
    note = f"{_of_waits(run, waits)}; {counted(run.launches, 'launch')}, {known}"
    yield Figure("GPU waits for launches", waits, note)


def _of_waits(run: Numbers, waits: str) -> str:
    """Qualify the share: its range over the devices, and its value without slow first launches.

    The advice on launches uses these: it looks at the worst device and ignores first launches.
    """
    devices = run.launch_idle_pct_by_device
    span = f"mean of {len(devices)} devices, {_span(devices, 'launch_idle_pct')}" if len(devices) > 1 else ""
    steady = format_value(run.steady_launch_idle_pct, "launch_idle_pct")
    has_slow = run.steady_launch_idle_pct is not None and steady != waits
    return _joined("of the window", span, f"{steady} without slow first launches" if has_slow else "")


def _steps(run: Numbers) -> Iterator[Figure]:
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
        mean = f"mean of {counted(run.profiled_steps or 0, 'step')}"
        ratio = f"{run.profiled_step_ns / run.step_ns:.1f}× unprofiled" if run.step_ns else ""
        yield Figure("Step, profiled", format_value(run.profiled_step_ns, "step_ns"), _joined(ratio, mean))


def _span(values: tuple[float, ...], column: str) -> str:
    """Format the range of some values, as a single value if both ends read the same; "" for none."""
    ends = dict.fromkeys(format_value(value, column) for value in (min(values), max(values))) if values else ()
    return " to ".join(ends)


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
