"""Bar charts and dot plots: bars with the text next to them, and trials one after another."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from nightsight.render.figure.axes import Tick
from nightsight.render.figure.plot import MIX_COLORS, Circle, Dot, Key, Line, Picture, Plot, Rect
from nightsight.render.table.view import Floats
from nightsight.units import Scale, format_value, scale_for

_LEAST_NAMED: Final = 1.0  # percent
_LEAST_WIDTH: Final = 0.1  # percent: a value above zero must stay visible


@dataclass(frozen=True)
class Bar:
    """One bar; its text is next to it (`value`, and `note`), or below it (`parts`). `summary` says it in words."""

    summary: str
    marks: tuple[Rect, ...]
    label: str = ""
    value: str = ""
    note: str = ""
    parts: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Group:
    """The bars of one item, for example of one device."""

    label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, kw_only=True)
class Bars(Picture):
    """Groups of horizontal bars on a common scale from zero."""

    layout: ClassVar = "bars"
    groups: tuple[Group, ...]


@dataclass(frozen=True, kw_only=True)
class Strip(Picture):
    """A plot with its highest and lowest value."""

    layout: ClassVar = "strip"
    plot: Plot


def bar(series: str, label: str, value: str, width: float, note: str) -> Bar:
    """Return a bar of one value, on the track of the largest one."""
    track = Rect("track", y=20, height=60)
    drawn = Rect(f"series-{series}", width=width, y=20, height=60)
    return Bar(f"{label}: {value}{note and ', ' + note}", (track, drawn), label, value, note)


def stacks(labels: Sequence[str], shares: Mapping[str, Floats]) -> tuple[Group, ...]:
    """Return one stacked bar per label that has parts; they are in the order of `shares` (percent, by kind of part).

    The MIX_COLORS kinds with the largest sums have their own colors; all others share one.
    """
    known = {kind: np.nan_to_num(values, posinf=0.0, neginf=0.0).clip(0, 100) for kind, values in shares.items()}
    ranks = sorted(known, key=lambda kind: -float(known[kind].sum()))
    looks = dict.fromkeys(ranks, "series-others")
    looks |= {kind: f"series-mix-{rank}" for rank, kind in enumerate(ranks[:MIX_COLORS], start=1)}
    bars = (
        _stack({kind: float(values[place]) for kind, values in known.items()}, looks) for place in range(len(labels))
    )
    return tuple(Group(label, (each,)) for label, each in zip(labels, bars, strict=True) if len(each.marks) > 1)


def _stack(parts: Mapping[str, float], looks: Mapping[str, str]) -> Bar:
    extents = list(_extents(parts))
    marks = (Rect(looks[kind], _round(begin), _round(extent), y=10, height=80) for kind, begin, extent in extents)
    keys = tuple(
        Key(f"{kind} {format_value(parts[kind], 'part_pct')}", looks[kind])
        for kind, _, _ in extents
        if parts[kind] >= _LEAST_NAMED
    )
    return Bar(", ".join(key.label for key in keys), (Rect("track", y=10, height=80), *marks), parts=keys)


def _extents(parts: Mapping[str, float]) -> Iterator[tuple[str, float, float]]:
    """Yield begin and width of what there is of each kind."""
    end = 0.0
    for kind, part in parts.items():
        # shares can add up to slightly more than 100 %
        extent = min(part, 100.0 - end)
        if extent > 0:
            yield kind, end, extent
            end += extent


def trials(title: str, values: Sequence[float]) -> Strip:
    """Return a dot plot of `values` (ns) in the order they ran, scaled from the lowest to the highest."""
    low, high = min(values), max(values)
    scale = scale_for("ns", values)
    steps = max(len(values) - 1, 1)
    # margins of 2 %, so that the first and last dots are not cut
    dots = [Dot(_round(2 + 96 * place / steps), _height(value, low, high)) for place, value in enumerate(values)]
    median = _height(statistics.median(values), low, high)
    line = Line("median", Dot(0, median), Dot(100, median))
    ends = (Tick(0, scale.with_unit(high)), Tick(100, scale.with_unit(low)))
    summary = f"{len(values)} trials from {ends[1].text} to {ends[0].text}"
    return Strip(
        look="trials",
        title=title,
        plot=Plot(summary, (line, *(Circle("series-cpu", dot, 4) for dot in dots)), ends),
        notes=("Trials in the order they ran; the line is the median. The scale does not start at zero.",),
    )


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
