"""The geometry of charts: where bars, ticks and dots go, in percent of the plot, and the text beside them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipeline.render.view import Floats
from pipeline.units import Scale, format_value, scale_for, split

_LEAST_WIDTH: Final = 0.1  # percent: what there is must be seen
_LOG_FROM: Final = 50.0  # ratio of largest to smallest from which a linear scale hides the small ones


@dataclass(frozen=True)
class Bar:
    """One bar from the left edge; `series` picks its colour, `label` says the same in words."""

    series: str
    label: str
    value: str
    width: float
    note: str = ""


@dataclass(frozen=True)
class Group:
    """The bars that belong to one thing."""

    label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Tick:
    """A line across the plot and the value it stands for."""

    position: float
    text: str


@dataclass(frozen=True)
class Chart:
    """Groups of horizontal bars over one common scale; `note` says what a reader could get wrong."""

    title: str
    groups: tuple[Group, ...]
    ticks: tuple[Tick, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()
    note: str = ""
    has_track: bool = False


@dataclass(frozen=True)
class Dot:
    """A point, in percent of width and height from the top left."""

    x: float
    y: float


@dataclass(frozen=True)
class DotPlot:
    """One dot per trial in the order they ran; `mean` is the height of the mean's line."""

    title: str
    dots: tuple[Dot, ...]
    mean: float
    low: str
    high: str


def ranking(title: str, labels: Sequence[str], values: Floats, *, column: str, series: str) -> Chart:
    """Show one bar per label for the first `values`, and the sum of those that have no label as one more."""
    values = np.nan_to_num(values)
    total, others = float(values.sum()), values[len(labels) :]
    bars = [(label, float(value), series) for label, value in zip(labels, values, strict=False)]
    if len(others):
        bars.append((f"{len(others):,} others", float(others.sum()), "others"))
    amounts = [amount for _, amount, _ in bars]
    scale, largest = scale_for(split(column)[1], amounts), max(amounts, default=0.0)
    groups = tuple(
        Group(name, (Bar(kind, name, _text(amount, scale, column), width(amount, largest), share(amount, total)),))
        for name, amount, kind in bars
    )
    return Chart(title, groups)


def _text(value: float, scale: Scale, column: str) -> str:
    """Write a value at the chart's scale, or at its own where that one is too coarse or too fine for it."""
    text = scale.with_unit(value)
    unfit = text.startswith("<") or value >= 1e4 * scale.divisor
    return format_value(value, column) if unfit else text


def compare_phases(title: str, labels: Sequence[str], phases: Sequence[tuple[str, str, Floats]]) -> Chart:
    """Show one group per label with one bar per phase (series, name, values in ns), logarithmic if they span a lot."""
    stacked = np.vstack([values for _, _, values in phases]) if len(labels) else np.zeros((len(phases), 0))
    present = stacked[np.isfinite(stacked) & (stacked > 0)]
    if not len(present):
        return Chart(title, ())
    axis = _axis(float(present.min()), float(present.max()))
    groups = tuple(
        Group(label, tuple(_phase(phase, row, axis) for phase in phases)) for row, label in enumerate(labels)
    )
    note = "Logarithmic scale: each line is ten times the one before it." if axis.is_log else ""
    return Chart(title, groups, axis.ticks(), tuple((series, name) for series, name, _ in phases), note)


def trials(title: str, values: Sequence[float]) -> DotPlot:
    """Place one dot per value (ns) between the lowest and the highest."""
    low, high = min(values), max(values)
    scale = scale_for("ns", values)
    heights = [_height(value, low, high) for value in values]
    steps = max(len(values) - 1, 1)
    dots = tuple(Dot(_round(2 + 96 * place / steps), height) for place, height in enumerate(heights))
    mean = _height(float(np.mean(values)), low, high)
    return DotPlot(title, dots, mean, scale.with_unit(low), scale.with_unit(high))


def width(value: float, largest: float) -> float:
    """Return the length of a bar in percent; what is not zero stays visible."""
    if not largest or not math.isfinite(value) or value <= 0:
        return 0.0
    return _round(max(100.0 * value / largest, _LEAST_WIDTH))


def share(value: float, total: float) -> str:
    """Write `value` as a share of `total`."""
    return Scale(1, "%", 1).with_unit(100.0 * value / total) if total else ""


@dataclass(frozen=True)
class _Axis:
    """A scale from `low` to `high` ns; a logarithmic one runs from decade to decade."""

    low: float
    high: float
    is_log: bool

    def position(self, value: float) -> float:
        """Return where `value` lies, in percent."""
        if not self.is_log:
            return width(value, self.high)
        if not math.isfinite(value) or value <= 0:
            return 0.0
        return _round(max(100.0 * math.log(value / self.low) / math.log(self.high / self.low), _LEAST_WIDTH))

    def ticks(self) -> tuple[Tick, ...]:
        """Return a tick per decade, or none for a linear scale, whose bars carry their values."""
        if not self.is_log:
            return ()
        decades = range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)
        return tuple(
            Tick(self.position(10.0**power) if index else 0.0, _decade(power)) for index, power in enumerate(decades)
        )


def _axis(low: float, high: float) -> _Axis:
    if high / low < _LOG_FROM:
        return _Axis(0.0, high, is_log=False)
    return _Axis(10.0 ** (math.ceil(math.log10(low)) - 1), 10.0 ** math.ceil(math.log10(high)), is_log=True)


def _decade(power: int) -> str:
    scale = scale_for("ns", [10.0**power])
    return f"{10.0**power / scale.divisor:,.0f} {scale.symbol}"


def _phase(phase: tuple[str, str, Floats], row: int, axis: _Axis) -> Bar:
    series, name, values = phase
    value = float(values[row])
    return Bar(series, name, scale_for("ns", [value]).with_unit(value), axis.position(value))


def _height(value: float, low: float, high: float) -> float:
    """Return the distance from the top in percent, within a margin."""
    return _round(90.0 - 80.0 * (value - low) / (high - low)) if high > low else 50.0


def _round(value: float) -> float:
    return round(value, 2)
