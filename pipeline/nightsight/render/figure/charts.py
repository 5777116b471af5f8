"""Selects the pictures of each result, and writes their titles, labels and notes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from nightsight.events.kernel_labels import KernelLabels
from nightsight.model.report import Report
from nightsight.render.figure.bars import BarChart, gpu_time_bars, stacks
from nightsight.render.figure.columns import step_columns
from nightsight.render.figure.curves import CurveKind, over_time
from nightsight.render.figure.flames import flames
from nightsight.render.figure.heat import heat, heats_of_parts
from nightsight.render.figure.histograms import Distribution, Layer, histograms
from nightsight.render.figure.icicle import icicles
from nightsight.render.figure.plot import Panels, Picture
from nightsight.render.figure.rooflines import OF_OPERATORS, rooflines
from nightsight.render.figure.scatter import copy_rates
from nightsight.render.figure.shares import path_whole
from nightsight.render.summary import numbers
from nightsight.render.table.replayed import BRIEF, by_kind, by_reason
from nightsight.render.table.view import floats, short_text
from nightsight.results.entry import Entry
from nightsight.results.gpu import COPY_SIZES, CUDA_GPU_KERN_SUM, GPU_PEAKS, GPU_UTILIZATION, IDLE_STACKS
from nightsight.results.gpu_time import CRITICAL_PATH, GPU_TIME
from nightsight.results.launches import IN_FLIGHT, KERNEL_DURATIONS, LAUNCH_BOUND, LAUNCH_LATENCIES, LAUNCH_PHASES
from nightsight.results.ncu import NCU_INSTRUCTIONS, NCU_ROOFLINE, NCU_ROOFS, NCU_STALLS
from nightsight.results.operator_roofline import OPERATOR_ROOFLINE, OPERATOR_ROOFS
from nightsight.results.program import MEMORY_OVER_TIME, MEMORY_USAGE
from nightsight.results.ranks import RANK_STEPS, RANKS
from nightsight.results.steps import STEP_PARTS, STEP_SPLIT, STEP_TIMES, WHOLE_STEP
from nightsight.tables import Frame
from nightsight.units import heading

_MAX_KERNELS: Final = 12

_BUSY_SHARE: Final = CurveKind(
    source=GPU_UTILIZATION,
    title="Busy share over time, in equal intervals of the window",
    time="from_ns",
    levels=(("busy_pct", ""),),
    unit="pct",
    series="busy",
    full=100.0,
)
_IN_FLIGHT: Final = CurveKind(
    source=IN_FLIGHT,
    title="Operations in flight",
    time="time_ns",
    levels=(("in_flight_max", "maximum"), ("in_flight_avg", "mean")),
    unit="",
    series="api",
    note="Maximum and mean in equal intervals of the window. At zero, the GPU waits for the CPU.",
)
_MEMORY: Final = CurveKind(
    source=MEMORY_OVER_TIME,
    title="Memory allocated",
    time="time_ns",
    levels=(("bytes", ""),),
    unit="bytes",
    series="bytes",
)
DURATIONS: Final = Distribution(
    source=KERNEL_DURATIONS,
    title="Kernel durations",
    layers=(
        Layer("kernel duration", "count", "Kernels", "kernel", "kernel"),
        Layer("kernel duration", "total_ns", "Total time", "kernel", "kernel"),
    ),
    note="Ten bins per decade of duration. Top: number of kernels in each. Bottom: their total time.",
)
LATENCIES: Final = Distribution(
    source=LAUNCH_LATENCIES,
    title="Launch times",
    layers=(
        Layer("API time", "count", "API time: CPU time in the launch call", "launch", "api"),
        Layer("launch latency", "count", "Launch latency, if the stream was empty", "launch", "set"),
    ),
    note="Number of launches by duration, first and steady launches together; ten bins per decade.",
    least=100.0,
)


@dataclass(frozen=True)
class Pictures:
    """The pictures of a section: above the table, folded next to it, and below it."""

    above: tuple[Picture, ...] = ()
    folded: tuple[Picture, ...] = ()
    below: tuple[Panels, ...] = ()


def pictures_of(name: str, report: Report, labels: KernelLabels) -> Pictures:
    """Return the pictures of a result, if it has any; `labels` are those of the kernels on the page."""
    return _PICTURES[name](_ChartInput(report, labels)) if name in _PICTURES else Pictures()


@dataclass(frozen=True)
class _ChartInput:
    """The input of all pictures."""

    report: Report
    labels: KernelLabels

    def rows(self, entry: Entry) -> Frame:
        return self.report.rows(entry)

    def curves(self, kind: CurveKind) -> tuple[Panels, ...]:
        rows, window_ns = self.rows(kind.source), numbers(self.report).window_ns or 0.0
        return over_time(kind, rows, window_ns=window_ns, called=self.report.called) if len(rows) else ()

    def histograms(self, kind: Distribution) -> tuple[Panels, ...]:
        return histograms(kind, self.rows(kind.source), self.report.called)


def _step_panels(source: _ChartInput) -> tuple[Panels, ...]:
    split = source.rows(STEP_SPLIT)
    medians = split[split["category"] == WHOLE_STEP] if "category" in split else split
    return step_columns(source.rows(STEP_TIMES), medians, source.report.called)


def _mix(
    source: _ChartInput, entry: Entry, arrange: Callable[[Frame], Frame], *, title: str, note: str
) -> tuple[BarChart, ...]:
    """Stack the percentage columns of replayed kernels, in the order of the table."""
    frame = source.rows(entry)
    labels = [source.labels.short(name, BRIEF) for name in frame["name"].astype("str")]
    frame = arrange(frame.assign(name=pd.Series(labels, frame.index, dtype="str"))).head(_MAX_KERNELS)
    shares = {short_text(heading(column)): floats(frame[column]) for column in frame.columns if column.endswith("_pct")}
    groups = stacks(frame["name"].tolist(), shares)
    return (BarChart(look="mix", title=title, groups=groups, notes=(note,)),) if groups else ()


def _operator_rooflines(source: _ChartInput) -> tuple[Picture, ...]:
    """Return the rooflines of operators, numbered by their rows."""
    frame = source.rows(OPERATOR_ROOFLINE)
    operators = zip(frame["name"].astype("str"), frame["shapes"].astype("str"), strict=True)
    points = frame.rename(columns={"work_flop_per_s": "flop_per_s", "work_flop_per_byte": "flop_per_byte"}).assign(
        name=[f"{number}. {name} {shapes}" for number, (name, shapes) in enumerate(operators, start=1)],
        kind=frame["kind"].astype("str").replace("", "not known"),
        peak_pct=frame["compute_pct"],
    )
    return rooflines(points, source.rows(OPERATOR_ROOFS), short_text, OF_OPERATORS)


_PICTURES: Final[Mapping[str, Callable[[_ChartInput], Pictures]]] = {
    GPU_TIME.name: lambda source: Pictures(
        (gpu_time_bars(source.rows(GPU_TIME), source.report.called), *source.curves(_BUSY_SHARE))
    ),
    CRITICAL_PATH.name: lambda source: Pictures(path_whole(source.rows(CRITICAL_PATH))),
    STEP_SPLIT.name: lambda source: Pictures(_step_panels(source)),
    RANKS.name: lambda source: Pictures(
        heat(source.rows(RANK_STEPS), source.rows(STEP_TIMES)),
        folded=heats_of_parts(source.rows(STEP_TIMES), source.rows(RANKS)),
    ),
    STEP_PARTS.name: lambda source: Pictures(
        icicles(source.rows(STEP_PARTS), source.labels.short, source.report.called)
    ),
    IDLE_STACKS.name: lambda source: Pictures(flames(source.rows(IDLE_STACKS), source.report.called)),
    CUDA_GPU_KERN_SUM.name: lambda source: Pictures(below=source.histograms(DURATIONS)),
    COPY_SIZES.name: lambda source: Pictures(copy_rates(source.rows(COPY_SIZES), source.rows(GPU_PEAKS))),
    LAUNCH_PHASES.name: lambda source: Pictures(below=source.histograms(LATENCIES)),
    LAUNCH_BOUND.name: lambda source: Pictures(source.curves(_IN_FLIGHT)),
    NCU_ROOFLINE.name: lambda source: Pictures(
        rooflines(source.rows(NCU_ROOFLINE), source.rows(NCU_ROOFS), source.labels.short)
    ),
    NCU_STALLS.name: lambda source: Pictures(
        _mix(
            source,
            NCU_STALLS,
            by_reason,
            title="Why warps did not issue an instruction",
            note="The five largest reasons per kernel; reasons below 1 % have no label.",
        )
    ),
    NCU_INSTRUCTIONS.name: lambda source: Pictures(
        _mix(
            source,
            NCU_INSTRUCTIONS,
            by_kind,
            title="Instructions executed by warps",
            note="Kinds below 1 % have no label.",
        )
    ),
    MEMORY_USAGE.name: lambda source: Pictures(source.curves(_MEMORY)),
    OPERATOR_ROOFLINE.name: lambda source: Pictures(_operator_rooflines(source)),
}
