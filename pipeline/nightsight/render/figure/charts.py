"""Selects the pictures of each result, and writes their titles, labels and notes."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.kernel_labels import NAME_LENGTH, Labels
from nightsight.model.report import Report
from nightsight.render.figure.bars import Bar, Bars, Group, bar, share, stacks, width
from nightsight.render.figure.columns import step_columns
from nightsight.render.figure.curves import Kind, over_time
from nightsight.render.figure.flames import flames
from nightsight.render.figure.heat import heat, heats_of_parts
from nightsight.render.figure.histograms import Distribution, Layer, histograms
from nightsight.render.figure.icicle import icicles
from nightsight.render.figure.plot import Panels, Picture
from nightsight.render.figure.rooflines import OF_OPERATORS, rooflines
from nightsight.render.figure.scatter import copy_rates
from nightsight.render.figure.shares import path_whole
from nightsight.render.page.summary import numbers
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
from nightsight.units import format_value, heading

Frame = pd.DataFrame
_KERNELS: Final = 12


@dataclass(frozen=True)
class Pictures:
    """The pictures of a section: above the table, folded next to it, and below it."""

    above: tuple[Picture, ...] = ()
    folded: tuple[Picture, ...] = ()
    below: tuple[Panels, ...] = ()


def pictures_of(name: str, report: Report, labels: Labels) -> Pictures:
    """Return the pictures of a result, if it has any; `labels` are those of the kernels on the page."""
    return _PICTURES[name](_Drawn(report, labels)) if name in _PICTURES else Pictures()


@dataclass(frozen=True)
class _Drawn:
    """The input of every picture."""

    report: Report
    labels: Labels

    def rows(self, entry: Entry) -> Frame:
        return self.report.rows(entry)

    def labelled(self, entry: Entry, length: int = NAME_LENGTH) -> Frame:
        """Return a table whose kernel names are replaced by their labels."""
        frame = self.report.rows(entry)
        names = [self.labels.short(text, length) for text in frame["name"].astype("str")]
        return frame.assign(name=pd.Series(names, frame.index, dtype="str"))


def _gpu_time(frame: Frame, called: Callable[[object], str]) -> Bars:
    """Per device: the busy time of the window, and the summed times of each kind of work."""
    # busy and kernels are always shown, other kinds only if some device did them
    present = [column for column in _KINDS if column in frame and floats(frame[column]).any()]
    kinds = {column: _KINDS[column] for column in dict.fromkeys(("busy_ns", "kernel_ns", *present))}
    window = _most(frame, "window_ns")
    largest = max(window, *(_most(frame, column) for column in kinds))
    groups = tuple(
        Group(called(row["device"]), tuple(_gpu_bar(row, column, largest) for column in kinds))
        for row in frame.to_dict("records")
    )
    full = f"{format_value(largest, 'window_ns')}, {'the window' if largest == window else 'the largest sum'}"
    note = (
        f"Full width: {full}. Only time inside the window counts; percentages are of the window. Busy counts "
        "overlapping operations once. A sum counts every operation in full, so sums of several streams can exceed busy."
    )
    return Bars(look="sums", title="Busy time, and sums by kind", groups=groups, notes=(note,))


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
    return bar(series, label, format_value(value, column), width(value, largest), part)


def _number(value: float | None) -> float:
    return 0.0 if pd.isna(value) else float(value)


def _most(frame: Frame, column: str) -> float:
    return float(np.nan_to_num(floats(frame[column])).max())


def _stalls(frame: Frame) -> tuple[Bars, ...]:
    note = "The five largest reasons per kernel; reasons below 1 % have no label."
    return _mix("Why warps did not issue an instruction", by_reason(frame), note)


def _mix(title: str, frame: Frame, note: str) -> tuple[Bars, ...]:
    """Stack the percentage columns, in the order of the table."""
    top = frame.head(_KERNELS)
    shares = {short_text(heading(column)): floats(top[column]) for column in top.columns if column.endswith("_pct")}
    groups = stacks(top["name"].tolist(), shares)
    return (Bars(look="mix", title=title, groups=groups, notes=(note,)),) if groups else ()


def _of_operators(frame: Frame, roofs: Frame) -> tuple[Picture, ...]:
    """Return the roofline of operators, numbered by their rows."""
    described = zip(frame["name"].astype("str"), frame["shapes"].astype("str"), strict=True)
    points = frame.rename(columns={"work_flop_per_s": "flop_per_s", "work_flop_per_byte": "flop_per_byte"}).assign(
        name=[f"{number}. {name} {shapes}" for number, (name, shapes) in enumerate(described, start=1)],
        kind=frame["kind"].astype("str").replace("", "not known"),
        peak_pct=frame["compute_pct"],
    )
    return rooflines(points, roofs, short_text, OF_OPERATORS)


_BUSY_SHARE: Final = Kind(
    source=GPU_UTILIZATION,
    title="Busy share over time, in equal intervals of the window",
    time="from_ns",
    levels=(("busy_pct", ""),),
    unit="pct",
    series="busy",
    full=100.0,
)
_IN_FLIGHT: Final = Kind(
    source=IN_FLIGHT,
    title="Operations in flight",
    time="time_ns",
    levels=(("in_flight_max", "maximum"), ("in_flight_avg", "mean")),
    unit="",
    series="api",
    note="Maximum and mean in equal intervals of the window. At zero, the GPU waits for the CPU.",
)
_MEMORY: Final = Kind(
    source=MEMORY_OVER_TIME,
    title="Memory allocated",
    time="time_ns",
    levels=(("bytes", ""),),
    unit="bytes",
    series="bytes",
)
DURATIONS: Final = Distribution(
    source=KERNEL_DURATIONS,
    title="How long kernels take",
    layers=(
        Layer("kernel duration", "count", "Kernels", "kernel", "kernel"),
        Layer("kernel duration", "total_ns", "Their total time", "kernel", "kernel"),
    ),
    note="Ten bins per decade of duration. Top: number of kernels in each. Bottom: their total time.",
)
LATENCIES: Final = Distribution(
    source=LAUNCH_LATENCIES,
    title="How long launches take",
    layers=(
        Layer("API time", "count", "API time: CPU time in the launch call", "launch", "api"),
        Layer("launch latency", "count", "Launch latency, if the stream was empty", "launch", "set"),
    ),
    note="Number of launches by duration, first and steady launches together; ten bins per decade.",
    least=100.0,
)


def _curves(kind: Kind, report: Report) -> tuple[Panels, ...]:
    rows = report.rows(kind.source)
    window_ns = numbers(report).window_ns or 0.0
    return over_time(kind, rows, window_ns=window_ns, called=report.called) if len(rows) else ()


def _steps(report: Report) -> tuple[Panels, ...]:
    split = report.rows(STEP_SPLIT)
    medians = split[split["category"] == WHOLE_STEP] if "category" in split else split
    return step_columns(report.rows(STEP_TIMES), medians, report.called)


_PICTURES: Final[Mapping[str, Callable[[_Drawn], Pictures]]] = {
    GPU_TIME.name: lambda drawn: Pictures(
        (_gpu_time(drawn.rows(GPU_TIME), drawn.report.called), *_curves(_BUSY_SHARE, drawn.report))
    ),
    CRITICAL_PATH.name: lambda drawn: Pictures(path_whole(drawn.rows(CRITICAL_PATH))),
    STEP_SPLIT.name: lambda drawn: Pictures(_steps(drawn.report)),
    RANKS.name: lambda drawn: Pictures(
        heat(drawn.rows(RANK_STEPS), drawn.rows(STEP_TIMES)),
        folded=heats_of_parts(drawn.rows(STEP_TIMES), drawn.rows(RANKS)),
    ),
    STEP_PARTS.name: lambda drawn: Pictures(icicles(drawn.rows(STEP_PARTS), drawn.labels.short, drawn.report.called)),
    IDLE_STACKS.name: lambda drawn: Pictures(flames(drawn.rows(IDLE_STACKS), drawn.report.called)),
    CUDA_GPU_KERN_SUM.name: lambda drawn: Pictures(
        below=histograms(DURATIONS, drawn.rows(DURATIONS.source), drawn.report.called),
    ),
    COPY_SIZES.name: lambda drawn: Pictures(copy_rates(drawn.rows(COPY_SIZES), drawn.rows(GPU_PEAKS))),
    LAUNCH_PHASES.name: lambda drawn: Pictures(
        below=histograms(LATENCIES, drawn.rows(LATENCIES.source), drawn.report.called)
    ),
    LAUNCH_BOUND.name: lambda drawn: Pictures(_curves(_IN_FLIGHT, drawn.report)),
    NCU_ROOFLINE.name: lambda drawn: Pictures(
        rooflines(drawn.rows(NCU_ROOFLINE), drawn.rows(NCU_ROOFS), drawn.labels.short)
    ),
    NCU_STALLS.name: lambda drawn: Pictures(_stalls(drawn.labelled(NCU_STALLS, BRIEF))),
    NCU_INSTRUCTIONS.name: lambda drawn: Pictures(
        _mix(
            "Instructions executed by warps",
            by_kind(drawn.labelled(NCU_INSTRUCTIONS, BRIEF)),
            "Kinds below 1 % have no label.",
        )
    ),
    MEMORY_USAGE.name: lambda drawn: Pictures(_curves(_MEMORY, drawn.report)),
    OPERATOR_ROOFLINE.name: lambda drawn: Pictures(
        _of_operators(drawn.rows(OPERATOR_ROOFLINE), drawn.rows(OPERATOR_ROOFS))
    ),
}
