"""Geometry of bar charts and dot plots: positions in percent of the plot, and the text next to them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nightsight.render.figure.plot import MIX_COLORS, Dot
from nightsight.render.table.view import Floats
from nightsight.units import Scale, format_value, scale_for

_LEAST_NAMED: Final = 1.0  # percent
_LEAST_WIDTH: Final = 0.1  # percent: a value above zero must stay visible


@dataclass(frozen=True)
class Bar:
    """One bar from the left edge; `series` selects its color, `label` names it for screen readers."""

    series: str
    label: str
    value: str
    width: float
    note: str = ""


@dataclass(frozen=True)
class Group:
    """The bars of one item, for example of one device."""

    label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Chart:
    """Groups of horizontal bars on a common scale from zero; `note` prevents a likely misreading.

    kind: CSS classes: `code` if labels are names from a program, `sums` if groups have bars of several kinds.
    """

    title: str
    groups: tuple[Group, ...]
    note: str = ""
    has_track: bool = False
    kind: str = ""


@dataclass(frozen=True)
class DotPlot:
    """One dot per trial, in the order they ran; `median` is the place of the median line, in percent from the top."""

    title: str
    dots: tuple[Dot, ...]
    median: float
    low: str
    high: str


@dataclass(frozen=True)
class Segment:
    """A part of a stacked bar, in percent from the left; a part too small to label has an empty `text`."""

    series: str
    text: str
    x: float
    width: float


@dataclass(frozen=True)
class Stack:
    """One stacked bar; `summary` lists its parts in words."""

    label: str
    segments: tuple[Segment, ...]
    summary: str


@dataclass(frozen=True)
class Mix:
    """Stacked bars of shares, at most 100 % wide; each kind of part has the same color in all of them."""

    title: str
    stacks: tuple[Stack, ...]
    note: str = ""


def stacks(labels: Sequence[str], shares: Mapping[str, Floats]) -> tuple[Stack, ...]:
    """Return one bar per label; its parts are in the order of `shares` (percent, by kind of part).

    The MIX_COLORS kinds with the largest sums have their own colors; all others share one.
    """
    known = {kind: np.nan_to_num(values, posinf=0.0, neginf=0.0).clip(0, 100) for kind, values in shares.items()}
    ranks = sorted(known, key=lambda kind: -float(known[kind].sum()))
    series = {kind: f"mix-{rank}" for rank, kind in enumerate(ranks[:MIX_COLORS], start=1)}
    return tuple(
        _stack(label, {kind: float(values[place]) for kind, values in known.items()}, series)
        for place, label in enumerate(labels)
    )


def _stack(label: str, parts: Mapping[str, float], series: Mapping[str, str]) -> Stack:
    segments, end = [], 0.0
    for kind, part in parts.items():
        # shares can add up to slightly more than 100 %
        extent = min(part, 100.0 - end)
        if extent > 0:
            text = f"{kind} {format_value(part, 'part_pct')}" if part >= _LEAST_NAMED else ""
            segments.append(Segment(series.get(kind, "others"), text, _round(end), _round(extent)))
            end += extent
    return Stack(label, tuple(segments), ", ".join(segment.text for segment in segments if segment.text))


def trials(title: str, values: Sequence[float]) -> DotPlot:
    """Return a dot plot of `values` (ns), scaled from the lowest to the highest."""
    low, high = min(values), max(values)
    scale = scale_for("ns", values)
    heights = [_height(value, low, high) for value in values]
    steps = max(len(values) - 1, 1)
    # margins of 2 %, so that the first and last dots are not cut
    dots = tuple(Dot(_round(2 + 96 * place / steps), height) for place, height in enumerate(heights))
    median = _height(statistics.median(values), low, high)
    return DotPlot(title, dots, median, scale.with_unit(low), scale.with_unit(high))


def width(value: float, largest: float) -> float:
    """Return the length of a bar in percent; any value above zero stays visible."""
    if not largest or not math.isfinite(value) or value <= 0:
        return 0.0
    return _round(max(100.0 * value / largest, _LEAST_WIDTH))


def share(value: float, total: float) -> str:
    """Format `value` as a percentage of `total`; "" if the total is 0."""
    return Scale(1, "%", 1).with_unit(100.0 * value / total) if total else ""


def _height(value: float, low: float, high: float) -> float:
    """Return the distance from the top in percent, within a margin."""
    return _round(90.0 - 80.0 * (value - low) / (high - low)) if high > low else 50.0


def _round(value: float) -> float:
    return round(value, 2)
