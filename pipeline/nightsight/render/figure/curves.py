"""The geometry of charts over time: step curves per device over common axes, their round ticks, and what they say."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.render.figure.axes import Tick, level_ticks, percent, round_steps, step_scale
from nightsight.render.figure.bars import Dot
from nightsight.render.table.view import Floats, floats, short_text
from nightsight.results import Entry
from nightsight.units import scale_for

GRID: Final = 1000
"""Paths are drawn on a grid of this many steps each way: whole numbers, and a resolution of 0.1 %."""
PANELS: Final = 16
_TIMES: Final = 5
_HIGHEST: Final = 1e18  # beyond all that is counted; sums and products of it stay finite


@dataclass(frozen=True)
class Kind:
    """What to draw of a result that has a column `device`: a step at each `time` (ns), from there on at `levels`.

    levels: columns of one `unit`, the highest first, each with its name in the legend. full: the top of the axis, 0
    for the highest level.
    """

    source: Entry
    title: str
    time: str
    levels: tuple[tuple[str, str], ...]
    unit: str
    series: str
    full: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """One device's curves as SVG paths on the GRID, in the order of the legend; `summary` says the same in words."""

    label: str
    remark: str
    summary: str
    paths: tuple[str, ...]
    peak: Dot | None


@dataclass(frozen=True)
class TimeChart:
    """Panels over the same axes. `window`: where that begins and how wide it is (percent), None where it is all."""

    title: str
    series: str
    legend: tuple[str, ...]
    panels: tuple[Panel, ...]
    levels: tuple[Tick, ...]
    times: tuple[Tick, ...]
    window: tuple[float, float] | None
    notes: tuple[str, ...]
    grid: int = GRID


@dataclass(frozen=True)
class _Axes:
    """Time from `begin` to `end` and levels from 0 to `top`, with what their values are written at."""

    begin: float
    end: float
    top: float
    unit: str

    @property
    def length(self) -> float:
        return self.end - self.begin

    def across(self, time: Floats) -> Floats:
        """Return the distance from the left, 0 to 1."""
        return ((time - self.begin) / self.length).clip(0, 1)

    def down(self, level: Floats) -> Floats:
        """Return the distance from the top, 0 to 1."""
        return 1 - (level / self.top).clip(0, 1)

    def time_text(self, time: float) -> str:
        return scale_for("ns", [self.length]).with_unit(time) if time else "0"

    def level_text(self, level: float) -> str:
        return scale_for(self.unit, [level]).with_unit(level)


def over_time(kind: Kind, frame: pd.DataFrame, *, window_ns: float) -> tuple[TimeChart, ...]:
    """Draw a table over the window and whatever it has before and after; nothing for one that has nothing to draw."""
    known, window_ns = _known(kind, frame), max(window_ns, 0.0)
    if known.empty:
        return ()
    axes, levels = _axes(kind, known, window_ns)
    devices = list(known.groupby("device", sort=True))
    panels = tuple(
        _panel(kind, rows, axes, label=short_text(f"Device {device}") if len(devices) > 1 else "")
        for device, rows in devices[:PANELS]
    )
    window = _stretch(axes, window_ns)
    return (
        TimeChart(
            kind.title,
            kind.series,
            tuple(name for _, name in kind.levels if name),
            panels,
            levels,
            tuple(_times(axes)),
            window,
            tuple(_notes(kind, len(devices), outside=window is not None)),
        ),
    )


def _known(kind: Kind, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the finite rows in order of time, no level below 0; none for a table that lacks a column."""
    columns = [column for column, _ in kind.levels]
    if not {"device", kind.time, *columns} <= set(frame.columns):
        return pd.DataFrame()
    values = {column: floats(frame[column]) for column in (kind.time, *columns)}
    known = pd.DataFrame({**values, "device": frame["device"].to_numpy()}).replace([np.inf, -np.inf], np.nan).dropna()
    known[columns] = known[columns].clip(0, _HIGHEST)
    return known.sort_values(kind.time, kind="stable")


def _axes(kind: Kind, known: pd.DataFrame, window_ns: float) -> tuple[_Axes, tuple[Tick, ...]]:
    """Choose the axes, and the round levels from the top down to 0."""
    time = known[kind.time]
    highest = kind.full or float(known[[column for column, _ in kind.levels]].to_numpy().max())
    top, levels = level_ticks(highest, unit=kind.unit)
    begin, end = min(float(time.min()), 0.0), max(float(time.max()), window_ns)
    return _Axes(begin, max(end, begin + 1), top, kind.unit), levels


def _times(axes: _Axes) -> Iterator[Tick]:
    """Return the round times within the axis; the last one has the unit."""
    step = next(step for step in round_steps(axes.length) if axes.length / step <= _TIMES)
    scale = step_scale("ns", axes.length, step)
    first, last = math.ceil(axes.begin / step), math.floor(axes.end / step)
    for place in range(first, last + 1):
        text = scale.with_unit(place * step) if place == last else scale.format(place * step)
        yield Tick(percent((place * step - axes.begin) / axes.length), text)


def _panel(kind: Kind, rows: pd.DataFrame, axes: _Axes, *, label: str) -> Panel:
    time, *curves = (rows[column].to_numpy() for column in (kind.time, *(column for column, _ in kind.levels)))
    across, down = axes.across(time), [axes.down(curve) for curve in curves]
    upper, lower = curves[0], curves[-1]
    place = int(upper.argmax())
    low, high = (axes.level_text(value) for value in (lower.min(), upper.max()))
    is_flat = low == high
    remark = f"{high} throughout" if is_flat else f"maximum {high} at {axes.time_text(time[place])}"
    between = remark if is_flat else f"between {low} and {high}, the {remark}"
    span = f"from {axes.time_text(axes.begin)} to {axes.time_text(axes.end)}"
    peak = Dot(percent(across[place]), percent(down[0][place]))
    return Panel(
        label,
        remark,
        f"{kind.title}{label and ', ' + label}, {span}: {between}",
        tuple(_path(across, distance) for distance in down),
        None if is_flat else peak,
    )


def _path(across: Floats, down: Floats) -> str:
    """Draw a step curve from the base line up and back down to it.

    Of the steps that fall on the same place of the grid the highest and the last remain, so no maximum is lost.
    """
    column, row = (np.rint(GRID * share).astype(int) for share in (across, down))
    first = np.flatnonzero(np.diff(column, prepend=-1))
    peak, last = np.minimum.reduceat(row, first), row[np.append(first[1:], len(row)) - 1]
    changes = np.diff(last, prepend=-1).astype(bool) | (peak != last)
    moves = [
        f"H{x}V{top}V{y}" if top != y else f"H{x}V{y}"
        for x, top, y in zip(column[first][changes], peak[changes], last[changes], strict=True)
    ]
    begin = column[0]
    return f"M{begin} {GRID}{''.join(moves).removeprefix(f'H{begin}')}H{GRID}V{GRID}"


def _stretch(axes: _Axes, window_ns: float) -> tuple[float, float] | None:
    """Return where the window is, unless there is none or nothing beside it."""
    begin, end = axes.across(np.array([0.0, window_ns]))
    return None if not window_ns or end - begin > 0.999 else (percent(begin), percent(end - begin))


def _notes(kind: Kind, devices: int, *, outside: bool) -> Iterator[str]:
    if kind.note:
        yield kind.note
    if outside:
        yield "Shaded: the window; time 0 is its start."
    if devices > PANELS:
        yield f"The first {PANELS} of {devices:,} devices. The JSON and CSV forms of this report have all of them."
