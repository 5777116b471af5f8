"""Charts over time: one panel of step curves per device, on common axes with round ticks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import Tick, drawable, level_ticks, percent, time_ticks
from nightsight.render.figure.plot import (
    GRID,
    Circle,
    Dot,
    Key,
    Mark,
    Panels,
    Path,
    Plot,
    Rect,
    above_one_axis,
    first_of,
    grid,
)
from nightsight.render.table.view import Floats, short_text
from nightsight.results.entry import Entry
from nightsight.units import scale_for

PANELS: Final = 16
_MANY: Final = 2
_CPU: Final = "CPU"


@dataclass(frozen=True)
class Kind:
    """What to draw of a result with a column `device`: at each `time` (ns) the curves step to the values in `levels`.

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
    """Time from `begin` to `end` (ns) and values from 0 to `top` in `unit`, whose ticks are `levels`."""

    begin: float
    end: float
    top: float
    unit: str
    levels: tuple[Tick, ...]

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


def over_time(
    kind: Kind, frame: pd.DataFrame, *, window_ns: float, called: Callable[[object], str] = gpu_name
) -> tuple[Panels, ...]:
    """Return the chart of a table, including what lies outside the window; empty if there is nothing to draw."""
    known, window_ns = _known(kind, frame), max(window_ns, 0.0)
    if known.empty:
        return ()
    axes = _axes(kind, known, window_ns)
    times, window = tuple(time_ticks(axes.begin, axes.end)), _stretch(axes, window_ns)
    behind = (*window, *grid(times, axes.levels))
    devices = list(known.groupby("device", sort=True, dropna=False))
    names = [short_text(called(device)) if pd.notna(device) else _CPU for device, _ in devices]
    plots = [
        _plot(kind, rows, axes, behind, label=name if len(devices) > 1 or name == _CPU else "")
        for name, (_, rows) in zip(names, devices[:PANELS], strict=False)
    ]
    shaded = ["Shaded: the window; time 0 is its start."] if window else []
    legend = [name for _, name in kind.levels if name]
    return (
        Panels(
            look="over-time many" if len(plots) > _MANY else "over-time",
            title=kind.title,
            keys=tuple(Key(name, look) for name, look in zip(legend, _looks(kind, len(legend)), strict=True)),
            plots=above_one_axis(plots, times),
            notes=tuple(filter(None, (kind.note, *shaded, *first_of(PANELS, len(devices))))),
        ),
    )


def _known(kind: Kind, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in order of time, values clipped to 0."""
    columns = [column for column, _ in kind.levels]
    known = drawable(frame, (kind.time, *columns), ("device",))
    known[columns] = known[columns].clip(0)
    return known.sort_values(kind.time, kind="stable")


def _axes(kind: Kind, known: pd.DataFrame, window_ns: float) -> _Axes:
    time = known[kind.time]
    highest = kind.full or float(known[[column for column, _ in kind.levels]].to_numpy().max())
    top, levels = level_ticks(highest, unit=kind.unit)
    begin, end = min(float(time.min()), 0.0), max(float(time.max()), window_ns)
    # at least 1 ns long, so that shares of the length are defined
    return _Axes(begin, max(end, begin + 1), top, kind.unit, levels)


def _looks(kind: Kind, count: int) -> list[str]:
    """Return the looks of curves, the highest one first."""
    return [f"curve curve-{place} series-{kind.series}" for place in range(count, 0, -1)]


def _plot(kind: Kind, rows: pd.DataFrame, axes: _Axes, behind: tuple[Mark, ...], *, label: str) -> Plot:
    time, *curves = (rows[column].to_numpy() for column in (kind.time, *(column for column, _ in kind.levels)))
    across, down = axes.across(time), [axes.down(curve) for curve in curves]
    upper, lower = curves[0], curves[-1]
    place = int(upper.argmax())
    # compare texts, not values: a curve that looks constant as printed is called constant
    low, high = (axes.level_text(value) for value in (lower.min(), upper.max()))
    is_flat = low == high
    remark = f"{high} throughout" if is_flat else f"maximum {high} at {axes.time_text(time[place])}"
    between = remark if is_flat else f"between {low} and {high}, {remark}"
    span = f"from {axes.time_text(axes.begin)} to {axes.time_text(axes.end)}"
    paths = (Path(look, _path(across, each)) for look, each in zip(_looks(kind, len(down)), down, strict=True))
    peak = Circle(f"series-{kind.series}", Dot(percent(across[place]), percent(down[0][place])), 2.5)
    return Plot(
        f"{kind.title}{label and ', ' + label}, {span}: {between}",
        (*behind, *paths) if is_flat else (*behind, *paths, peak),
        axes.levels,
        label=label,
        remark=remark,
    )


def _path(across: Floats, down: Floats) -> str:
    """Return the SVG path of a step curve that starts and ends on the base line.

    Of several steps in one grid column, the highest and the last remain, so no maximum is lost.
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


def _stretch(axes: _Axes, window_ns: float) -> tuple[Rect, ...]:
    """Return the window; nothing if there is none or it fills the plot."""
    begin, end = axes.across(np.array([0.0, window_ns]))
    return () if not window_ns or end - begin > 0.999 else (Rect("window", percent(begin), percent(end - begin)),)
