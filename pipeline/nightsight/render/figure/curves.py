"""Charts over time: one panel of step curves per device, on common axes with round ticks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.intervals import Floats
from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import Tick, finite_rows, level_ticks, percent, time_ticks
from nightsight.render.figure.plot import (
    GRID,
    Circle,
    Dot,
    LegendEntry,
    Mark,
    Panels,
    Path,
    Plot,
    Rect,
    grid,
    with_shared_axis,
)
from nightsight.render.table.view import omission, short_text
from nightsight.results.entry import Entry
from nightsight.units import scale_for

MAX_PANELS: Final = 16
_MANY: Final = 2
_CPU: Final = "CPU"


@dataclass(frozen=True)
class CurveKind:
    """How to draw a result with a column `device`: at each `time` (ns) the curves step to the values in `levels`.

    levels: (column, name in the legend) of one `unit`, the highest curve first. full: the top of the axis, 0 for the
    highest value.
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
class _Axes:
    """Time from `begin` to `end` (ns), and values from 0 to `top` with the ticks `levels`."""

    begin: float
    end: float
    top: float
    levels: tuple[Tick, ...]

    def across(self, time: Floats) -> Floats:
        """Return the distance from the left, 0 to 1."""
        return ((time - self.begin) / (self.end - self.begin)).clip(0, 1)

    def down(self, level: Floats) -> Floats:
        """Return the distance from the top, 0 to 1."""
        return 1 - (level / self.top).clip(0, 1)

    def time_text(self, time: float) -> str:
        return scale_for("ns", [self.end - self.begin]).with_unit(time) if time else "0"


def over_time(
    kind: CurveKind, frame: pd.DataFrame, *, window_ns: float, called: Callable[[object], str] = gpu_name
) -> tuple[Panels, ...]:
    """Return the chart of a table, including values outside the window; () if there is nothing to draw."""
    columns = [column for column, _ in kind.levels]
    rows = finite_rows(frame, (kind.time, *columns), ("device",)).sort_values(kind.time, kind="stable")
    if rows.empty:
        return ()
    rows[columns] = rows[columns].clip(0)
    top, levels = level_ticks(kind.full or float(rows[columns].to_numpy().max()), unit=kind.unit)
    window_ns, time = max(window_ns, 0.0), rows[kind.time]
    begin, end = min(float(time.min()), 0.0), max(float(time.max()), window_ns)
    # at least 1 ns long, so that shares of the length are defined
    axes = _Axes(begin, max(end, begin + 1), top, levels)
    times = tuple(time_ticks(axes.begin, axes.end))
    left, right = axes.across(np.array([0.0, window_ns]))
    has_shade = window_ns > 0 and right - left <= 0.999
    shade = (Rect("window", percent(left), percent(right - left)),) if has_shade else ()
    background = (*shade, *grid(times, axes.levels))
    devices = list(rows.groupby("device", sort=True, dropna=False))
    names = [short_text(called(device)) if pd.notna(device) else _CPU for device, _ in devices]
    plots = [
        _plot(kind, rows, axes, background, label=name if len(devices) > 1 or name == _CPU else "")
        for name, (_, rows) in zip(names, devices[:MAX_PANELS], strict=False)
    ]
    legend = [name for _, name in kind.levels if name]
    window_note = "Shaded: the window; time 0 is its start." if has_shade else ""
    return (
        Panels(
            look="over-time many" if len(plots) > _MANY else "over-time",
            title=kind.title,
            keys=tuple(LegendEntry(name, look) for name, look in zip(legend, _looks(kind, len(legend)), strict=True)),
            plots=with_shared_axis(plots, times),
            notes=tuple(filter(None, (kind.note, window_note, omission(MAX_PANELS, len(devices), "devices")))),
        ),
    )


def _looks(kind: CurveKind, count: int) -> list[str]:
    """Return the looks of curves, the highest one first."""
    return [f"curve curve-{rank} series-{kind.series}" for rank in range(count, 0, -1)]


def _plot(kind: CurveKind, rows: pd.DataFrame, axes: _Axes, background: tuple[Mark, ...], *, label: str) -> Plot:
    curves = [rows[column].to_numpy() for column, _ in kind.levels]
    time = rows[kind.time].to_numpy()
    across, down = axes.across(time), [axes.down(curve) for curve in curves]
    highest = int(curves[0].argmax())
    # compare texts, not values: a curve whose printed values are equal is called constant
    low, high = (scale_for(kind.unit, [value]).with_unit(value) for value in (curves[-1].min(), curves[0].max()))
    is_flat = low == high
    remark = f"{high} throughout" if is_flat else f"maximum {high} at {axes.time_text(time[highest])}"
    extent = remark if is_flat else f"between {low} and {high}, {remark}"
    span = f"from {axes.time_text(axes.begin)} to {axes.time_text(axes.end)}"
    paths = (Path(look, _path(across, curve)) for look, curve in zip(_looks(kind, len(down)), down, strict=True))
    peak = Circle(f"series-{kind.series}", Dot(percent(across[highest]), percent(down[0][highest])), 2.5)
    return Plot(
        f"{kind.title}{label and ', ' + label}, {span}: {extent}",
        (*background, *paths) if is_flat else (*background, *paths, peak),
        axes.levels,
        label=label,
        remark=remark,
    )


def _path(across: Floats, down: Floats) -> str:
    """Return the SVG path of a step curve that starts and ends on the base line.

    Of several steps in one column of the grid, it has the highest and the last, so no maximum is lost.
    """
    column, row = (np.rint(GRID * share).astype(int) for share in (across, down))
    first = np.flatnonzero(np.diff(column, prepend=-1))
    # rows count from the top, so the minimum is the highest point of a column
    peak, last = np.minimum.reduceat(row, first), row[np.append(first[1:], len(row)) - 1]
    changes = np.diff(last, prepend=-1).astype(bool) | (peak != last)
    moves = [
        f"H{x}V{top}V{y}" if top != y else f"H{x}V{y}"
        for x, top, y in zip(column[first][changes], peak[changes], last[changes], strict=True)
    ]
    begin = column[0]
    return f"M{begin} {GRID}{''.join(moves).removeprefix(f'H{begin}')}H{GRID}V{GRID}"
