"""Bar charts, with text next to each bar, and dot plots of trials."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from nightsight.intervals import Floats
from nightsight.render.figure.axes import Tick
from nightsight.render.figure.plot import MIX_COLORS, Circle, Dot, LegendEntry, Line, Picture, Plot, Rect
from nightsight.render.table.view import floats, share_of
from nightsight.units import in_text, scale_for

_LEAST_NAMED: Final = 1.0  # percent
_LEAST_WIDTH: Final = 0.1  # percent: a value above zero must stay visible
_KINDS_OF_WORK: Final = {
    "busy_ns": ("busy", "Busy"),
    "kernel_ns": ("kernel", "Kernels, sum"),
    "copy_ns": ("copy", "Copies, sum"),
    "set_ns": ("set", "Sets, sum"),
    "graph_ns": ("graph", "CUDA graphs, sum"),
}


@dataclass(frozen=True)
class Bar:
    """A bar; its text is next to it (`value`, and `note`) or below it (`parts`). `summary` describes it in words."""

    summary: str
    marks: tuple[Rect, ...]
    label: str = ""
    value: str = ""
    note: str = ""
    parts: tuple[LegendEntry, ...] = ()


@dataclass(frozen=True)
class Group:
    """The bars of one item, for example of one device."""

    label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, kw_only=True)
class BarChart(Picture):
    """Groups of horizontal bars on a common scale from zero."""

    layout: ClassVar = "bars"
    groups: tuple[Group, ...]


@dataclass(frozen=True, kw_only=True)
class Strip(Picture):
    """A plot with its highest and lowest value."""

    layout: ClassVar = "strip"
    plot: Plot


def gpu_time_bars(frame: pd.DataFrame, called: Callable[[object], str]) -> BarChart:
    """Return the bars of gpu_time: per device, the busy time of the window, and the sum of each kind of work."""
    # busy and kernels are always shown, other kinds only if a device executed some
    present = [column for column in _KINDS_OF_WORK if column in frame and floats(frame[column]).any()]
    columns = list(dict.fromkeys(("busy_ns", "kernel_ns", *present)))
    window, *times = (float(np.nan_to_num(floats(frame[column])).max()) for column in ("window_ns", *columns))
    largest = max(window, *times)
    groups = tuple(
        Group(called(row["device"]), tuple(_time_bar(row, column, largest) for column in columns))
        for row in frame.to_dict("records")
    )
    full = f"{in_text(largest, 'window_ns')}, {'the window' if largest == window else 'the largest sum'}"
    note = (
        f"Full width: {full}. Only time inside the window counts; percentages are of the window. Busy counts "
        "overlapping operations once. A sum counts every operation in full, so sums of several streams can exceed busy."
    )
    return BarChart(look="sums", title="Busy time, and sums by kind", groups=groups, notes=(note,))


def _time_bar(row: Mapping[Any, Any], column: str, largest: float) -> Bar:
    """Return the bar of one time of a device, on a track as long as the largest one."""
    time, window = (0.0 if pd.isna(row[name]) else float(row[name]) for name in (column, "window_ns"))
    series, label = _KINDS_OF_WORK[column]
    value = in_text(time, column)
    note = share_of(time, window) if window else ""
    is_drawn = largest > 0 and math.isfinite(time) and time > 0
    width = round(max(100.0 * time / largest, _LEAST_WIDTH), 2) if is_drawn else 0.0
    marks = (Rect("track", y=20, height=60), Rect(f"series-{series}", width=width, y=20, height=60))
    return Bar(f"{label}: {value}{note and ', ' + note}", marks, label, value, note)


def stacks(labels: Sequence[str], shares: Mapping[str, Floats]) -> tuple[Group, ...]:
    """Return one stacked bar per label that has parts; they are in the order of `shares` (percent, by kind of part).

    The MIX_COLORS kinds with the largest sums have their own colors; all others share one.
    """
    percents = {kind: np.nan_to_num(values, posinf=0.0, neginf=0.0).clip(0, 100) for kind, values in shares.items()}
    kinds = sorted(percents, key=lambda kind: -float(percents[kind].sum()))
    looks = dict.fromkeys(kinds, "series-others")
    looks |= {kind: f"series-mix-{rank}" for rank, kind in enumerate(kinds[:MIX_COLORS], start=1)}
    bars = [
        _stack({kind: float(values[row]) for kind, values in percents.items()}, looks) for row in range(len(labels))
    ]
    return tuple(Group(label, (bar,)) for label, bar in zip(labels, bars, strict=True) if len(bar.marks) > 1)


def _stack(percents: Mapping[str, float], looks: Mapping[str, str]) -> Bar:
    extents = list(_extents(percents))
    marks = (Rect(looks[kind], round(begin, 2), round(extent, 2), y=10, height=80) for kind, begin, extent in extents)
    keys = tuple(
        LegendEntry(f"{kind} {in_text(percents[kind], 'part_pct')}", looks[kind])
        for kind, _, _ in extents
        if percents[kind] >= _LEAST_NAMED
    )
    return Bar(", ".join(key.label for key in keys), (Rect("track", y=10, height=80), *marks), parts=keys)


def _extents(percents: Mapping[str, float]) -> Iterator[tuple[str, float, float]]:
    """Yield begin and width of each kind that has a width."""
    end = 0.0
    for kind, percent in percents.items():
        # shares can add up to slightly more than 100 %
        extent = min(percent, 100.0 - end)
        if extent > 0:
            yield kind, end, extent
            end += extent


def trials(title: str, values: Sequence[float]) -> Strip:
    """Return a dot plot of `values` (ns) in the order they ran, scaled from the lowest to the highest."""
    low, high = min(values), max(values)

    def height(value: float) -> float:
        """Return the distance from the top in percent, within a margin."""
        return round(90.0 - 80.0 * (value - low) / (high - low), 2) if high > low else 50.0

    # margins of 2 %, so that the first and last dots are not cut
    steps = max(len(values) - 1, 1)
    dots = [Dot(round(2 + 96 * number / steps, 2), height(value)) for number, value in enumerate(values)]
    median = height(statistics.median(values))
    line = Line("median", Dot(0, median), Dot(100, median))
    scale = scale_for("ns", values)
    ends = (Tick(0, scale.with_unit(high)), Tick(100, scale.with_unit(low)))
    summary = f"{len(values)} trials from {ends[1].text} to {ends[0].text}"
    return Strip(
        look="trials",
        title=title,
        plot=Plot(summary, (line, *(Circle("series-cpu", dot, 4) for dot in dots)), ends),
        notes=("Trials in the order they ran; the line is the median. The scale does not start at zero.",),
    )
