"""Step columns: one stacked column per step, or per group of steps if there are many; outliers are marked."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.intervals import Floats
from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import Tick, finite_floats, level_ticks, percent, step_ticks
from nightsight.render.figure.plot import GRID, Dot, Line, Panels, Part, Path, Plot, Point, grid
from nightsight.render.figure.shares import CAUSE_COLORS, keys_of
from nightsight.render.table.view import omission
from nightsight.results.categories import IDLE
from nightsight.results.columns import OUTLIER
from nightsight.results.steps import OPERATORS, STEP_CATEGORIES
from nightsight.tables import Frame
from nightsight.units import counted, in_text

_SLOWEST: Final = ("slowest", "slowest_ns", "slowest_start_ns")
_NEEDED: Final = ("device", "number", "steps", "start_ns", "time_ns", "outliers", *_SLOWEST)
_MAX_PANELS: Final = 8
_BEYOND: Final = 3.0  # times the median: a longer step would flatten all others
_MAX_NAMED: Final = 5
_GAP: Final = 0.15  # of a column
_VISIBLE: Final = 0.005  # of the scale: a category that is lower in all columns needs no key
# how many categories the title of a column lists; less if the titles of many columns would make the page too large
_LISTED: Final = 6
_LISTED_OF_MANY: Final = 3
_MANY: Final = 4
# SVG paths of marks, in pixels around the top of a column
_OUTLIER: Final = "M0 -2L4 -9H-4z"
_BEYOND_SCALE: Final = "M0 0L5 8H-5z"


@dataclass(frozen=True)
class _ColumnScale:
    """The median of a device, and common to all: the highest value, its ticks, and how many categories titles list."""

    median: float
    top: float
    levels: tuple[Tick, ...]
    listed: int


def step_columns(frame: Frame, medians: Frame, called: Callable[[object], str] = gpu_name) -> tuple[Panels, ...]:
    """Return the columns of step_times; () if there are no steps or a column is missing.

    medians: the rows of step_split about whole steps, with the median of all steps even if columns are means of
    several.
    """
    if not set(_NEEDED) <= set(frame.columns):
        return ()
    numbers = {name: finite_floats(frame[name]) for name in frame.columns if name != "device"}
    rows = pd.DataFrame({**numbers, "device": _device_texts(frame)}).dropna(subset=list(_NEEDED))
    # texts have the program's numbers of steps, positions those in the window
    offset = (rows["of_program"] - rows["number"]).fillna(0) if "of_program" in rows else 0
    rows = rows.assign(offset=offset)[(rows["time_ns"] > 0) & (rows["steps"] > 0) & (rows["number"] >= 0)]
    categories = {
        category: name for category, name in STEP_CATEGORIES.items() if name in rows and np.nan_to_num(rows[name]).any()
    }
    if rows.empty or not categories:
        return ()
    devices = [(str(device), steps) for device, steps in rows.groupby("device", sort=False)]
    panels = [(device, steps, _median(steps, medians, device)) for device, steps in devices[:_MAX_PANELS]]
    top, levels = level_ticks(max(_highest(steps, median) for _, steps, median in panels), unit="ns")
    listed = _LISTED if len(devices) <= _MANY else _LISTED_OF_MANY
    plots = tuple(
        _plot(steps, categories, _ColumnScale(median, top, levels, listed), called(device) if len(devices) > 1 else "")
        for device, steps, median in panels
    )
    visible = {
        category: float(np.nansum(rows[name]))
        for category, name in categories.items()
        if np.nanmax(rows[name]) >= _VISIBLE * top
    }
    return (
        Panels(
            look="over-time steps-in-columns many" if len(plots) > 1 else "over-time steps-in-columns",
            title="Each step, and where its time went",
            keys=keys_of(visible),
            plots=plots,
            notes=tuple(
                _column_notes(
                    rows, len(devices), plots, is_cpu=not devices[0][0], has_operators=OPERATORS in categories
                )
            ),
        ),
    )


def _device_texts(frame: Frame) -> "pd.Series[str]":
    """Return the devices as texts, "" for the CPU."""
    texts: pd.Series[str] = frame["device"].astype("str").fillna("")
    return texts


def _median(steps: Frame, medians: Frame, device: str) -> float:
    if {"device", "med_ns"} <= set(medians.columns):
        values = finite_floats(medians.loc[_device_texts(medians) == device, "med_ns"])
        if len(values) and values[0] > 0:
            return float(values[0])
    return float(np.median(steps["time_ns"]))


def _highest(steps: Frame, median: float) -> float:
    """Return the highest value on the scale: the longest step, except those far beyond the median."""
    tops = np.maximum(steps["time_ns"], steps["slowest_ns"])
    return float(tops[tops <= _BEYOND * median].max()) if (tops <= _BEYOND * median).any() else median


def _plot(rows: Frame, categories: Mapping[str, str], scale: _ColumnScale, label: str) -> Plot:
    median, top = scale.median, scale.top
    number, steps = rows["number"].to_numpy(), rows["steps"].to_numpy()
    count = float((number + steps).max())
    left, right = 100.0 * number / count, 100.0 * (number + steps) / count
    gap = _GAP * (right - left)
    left, right = left + gap / 2, right - gap / 2
    whole = rows[[*categories.values()]].sum(axis=1).to_numpy(dtype=np.float64)
    # the parts of a column beyond the scale stay in proportion: cut off, it would show the first part alone
    scales = np.maximum(whole, top)
    paths, low = [], np.zeros(len(rows))
    for category, name in categories.items():
        high = low + np.nan_to_num(rows[name].to_numpy())
        look = f"series-{CAUSE_COLORS[category]}{' idle' if category in IDLE else ''}"
        paths.append(Path(look, _bars(left, right, low / scales, high / scales)))
        low = high
    outliers = int(rows["outliers"].sum())
    remark = f"{counted(float(steps.sum()), 'step')}, median {in_text(median, 'time_ns')}"
    slowest = ", ".join(_slowest(rows, median)) or "none"
    summary = f"{label and label + ', '}{remark}; outliers: {slowest}"
    if outliers:
        remark += f"; {counted(outliers, 'outlier')}: {slowest}"
    height = percent(1 - median / top)
    marks = (
        *grid((), scale.levels),
        *paths,
        *_column_parts(rows, categories, (left, right), scale),
        Line("median", Dot(0, height), Dot(100, height)),
        *_outlier_marks(rows, (left + right) / 2, top),
    )
    numbers = tuple(step_ticks(count, float(rows["offset"].iloc[0])))
    return Plot(summary, marks, scale.levels, numbers, label, remark, "step-columns")


def _bars(left: Floats, right: Floats, low: Floats, high: Floats) -> str:
    """Return a path of upright bars on the GRID, cut off at the top of the scale."""
    begin, end = (np.rint(GRID / 100.0 * values).astype(int) for values in (left, right))
    upper, lower = (np.rint(GRID * (1 - np.clip(values, 0, 1))).astype(int) for values in (high, low))
    bars = zip(
        begin.tolist(), np.maximum(end - begin, 1).tolist(), upper.tolist(), (lower - upper).tolist(), strict=True
    )
    return "".join(f"M{x} {y}h{width}v{height}h-{width}z" for x, width, y, height in bars if height > 0)


def _column_parts(
    rows: Frame,
    categories: Mapping[str, str],
    edges: tuple[Floats, Floats],
    scale: _ColumnScale,
) -> Iterator[Part]:
    """Yield the columns. edges: left and right, in percent."""
    left, right = edges
    for index, row in enumerate(rows.to_dict("records")):
        yield Part(
            "hit",
            round(float(left[index]), 2),
            round(float(right[index] - left[index]), 2),
            _title(row, categories, scale),
            "{:.0f} {:.0f}".format(*_span(row)),
        )


def _span(row: dict[Any, Any]) -> tuple[float, float]:
    """Return begin and end of a column; of one with outliers, those of its slowest step."""
    if row["outliers"] > 0 and row["steps"] > 1:
        return row["slowest_start_ns"], row["slowest_start_ns"] + row["slowest_ns"]
    return row["start_ns"], row["start_ns"] + row["time_ns"] * row["steps"]


def _outlier_marks(rows: Frame, middle: Floats, top: float) -> Iterator[Point]:
    """Yield marks of the columns with outliers. middle: in percent."""
    heights = np.maximum(rows["slowest_ns"].to_numpy(), rows["time_ns"].to_numpy()) / top
    for index in np.flatnonzero(rows["outliers"] > 0).tolist():
        at = Dot(round(float(middle[index]), 2), percent(1 - min(heights[index], 1.0)))
        yield Point("outlier", at, _BEYOND_SCALE if heights[index] > 1 else _OUTLIER)


def _title(row: dict[Any, Any], categories: Mapping[str, str], scale: _ColumnScale) -> str:
    times = {category: row[name] for category, name in categories.items() if row[name] > 0}
    largest = sorted(times, key=lambda category: -times[category])[: scale.listed]
    parts = ", ".join(f"{category} {in_text(times[category], 'time_ns')}" for category in largest)
    first = row["number"] + row["offset"]
    name = f"#{first:,.0f}" if row["steps"] == 1 else f"#{first:,.0f} to #{first + row['steps'] - 1:,.0f}, mean"
    title = f"{name}: {in_text(row['time_ns'], 'time_ns')} ({parts})"
    if row["outliers"] and scale.median > 0:
        if row["steps"] > 1:
            title += f"; slowest #{row['slowest'] + row['offset']:,.0f}: {in_text(row['slowest_ns'], 'time_ns')}, "
        else:
            title += "; "
        title += f"{row['slowest_ns'] / scale.median:,.1f} times the median"
    return title


def _slowest(rows: Frame, median: float) -> Iterator[str]:
    """Yield the slowest outliers: `#0 (12.5×)`."""
    columns = rows[rows["outliers"] > 0].sort_values("slowest_ns", ascending=False, kind="stable").head(_MAX_NAMED)
    for row in columns.to_dict("records"):
        yield f"#{row['slowest'] + row['offset']:,.0f} ({row['slowest_ns'] / median:,.1f}×)"
    if (more := int(rows["outliers"].sum()) - len(columns)) > 0:
        yield f"{more:,} more"


def _column_notes(
    rows: Frame, devices: int, plots: Sequence[Plot], *, is_cpu: bool, has_operators: bool
) -> Iterator[str]:
    shapes = {mark.shape for plot in plots for mark in plot.of(Point)}
    size = int(rows["steps"].max())
    parts = "Solid: busy. Pale: idle, by cause."
    if is_cpu and has_operators:
        parts = "Solid: in operators, on any thread. Pale: outside."
    elif is_cpu:
        parts = "Pale: all of a step, because no operators were recorded."
    yield f"{parts} The line is the median of all steps."
    if size > 1:
        yield f"Each column is the mean of up to {size:,} consecutive steps; marks are of the slowest."
    if shapes:
        yield f"Marks: steps that take more than {OUTLIER} times the median."
    if _BEYOND_SCALE in shapes:
        yield (
            f"Marks at the top edge are beyond the scale, which ends at {_BEYOND:.0f} times the median at most; the "
            "parts of these columns are in proportion."
        )
    if devices > len(plots):
        yield omission(len(plots), devices, "devices")
