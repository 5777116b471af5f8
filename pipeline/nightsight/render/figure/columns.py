"""Geometry of step columns: one stacked column per repetition, outliers marked, many repetitions put together."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import Tick, level_ticks, measured, percent, step_ticks
from nightsight.render.figure.plot import GRID
from nightsight.render.figure.shares import CAUSE_COLORS
from nightsight.render.table.view import Floats, counted
from nightsight.results.categories import IDLE
from nightsight.results.columns import OUTLIER
from nightsight.results.steps import OPERATORS, STEP_CATEGORIES
from nightsight.units import format_value

Frame = pd.DataFrame

_SLOWEST: Final = ("slowest", "slowest_ns", "slowest_start_ns")
_NEEDED: Final = ("device", "number", "steps", "start_ns", "time_ns", "outliers", *_SLOWEST)
_PANELS: Final = 8
_BEYOND: Final = 3.0  # times the median: a longer step would flatten all others
_NAMED: Final = 5
_GAP: Final = 0.15  # of a column
_SEEN: Final = 0.005  # of the scale: what is lower in all columns needs no key
# how many categories a column tells; less where many columns would take the room of the timeline
_SAID: Final = 6
_SAID_BY_MANY: Final = 3
_MANY: Final = 4


@dataclass(frozen=True)
class Layer:
    """The part of all columns that is one category: a path on the GRID."""

    label: str
    series: str
    is_idle: bool
    path: str


@dataclass(frozen=True)
class Column:
    """One step, or several: in percent from the left, its idle part in percent from the top, and its span in ns.

    mark: "" for none, "outlier", or "beyond" if it is longer than the scale. slowest: the span of the slowest of
    several, which `mark` is about.
    """

    x: float
    width: float
    top: float
    idle: float
    title: str
    span: str
    mark: str
    mark_y: float
    slowest: str

    @property
    def middle(self) -> float:
        """Where a mark stands, in percent from the left."""
        return round(self.x + self.width / 2, 2)


@dataclass(frozen=True)
class Panel:
    """The steps of one device; `median` in percent from the top."""

    label: str
    remark: str
    summary: str
    layers: tuple[Layer, ...]
    columns: tuple[Column, ...]
    median: float
    levels: tuple[Tick, ...]
    numbers: tuple[Tick, ...]


@dataclass(frozen=True)
class StepColumns:
    """The steps of all devices on one scale; `keys`: label, series and whether it is idle time, as in the split."""

    title: str
    panels: tuple[Panel, ...]
    keys: tuple[tuple[str, str, bool], ...]
    notes: tuple[str, ...]
    grid: int = GRID


@dataclass(frozen=True)
class _Scale:
    """The median of a device, and what all have: the highest value, its ticks, how many categories a column tells."""

    median: float
    top: float
    levels: tuple[Tick, ...]
    said: int


def step_columns(frame: Frame, medians: Frame, called: Callable[[object], str] = gpu_name) -> tuple[StepColumns, ...]:
    """Return the columns of step_times; none if there are no steps or a column lacks.

    medians: the rows of step_split about whole steps: the median of all, where columns are means of several.
    """
    if not set(_NEEDED) <= set(frame.columns):
        return ()
    numbers = {name: measured(frame[name]) for name in frame.columns if name != "device"}
    known = pd.DataFrame({**numbers, "device": _named(frame)})
    known = known.dropna(subset=list(_NEEDED))
    # what the program calls its steps; only where they stand is counted in the window
    known = known.assign(left_out=(known["of_program"] - known["number"]).fillna(0) if "of_program" in known else 0)
    known = known[(known["time_ns"] > 0) & (known["steps"] > 0) & (known["number"] >= 0)]
    devices = [(str(device), rows) for device, rows in known.groupby("device", sort=False)]
    if not devices:
        return ()
    present = {
        category: name
        for category, name in STEP_CATEGORIES.items()
        if name in known and np.nan_to_num(known[name]).any()
    }
    if not present:
        return ()
    middles = {device: _median(rows, medians, device) for device, rows in devices}
    highest = max(_highest(rows, middles[device]) for device, rows in devices[:_PANELS])
    top, levels = level_ticks(highest, unit="ns")
    said = _SAID if len(devices) <= _MANY else _SAID_BY_MANY
    panels = tuple(
        _panel(rows, present, _Scale(middles[device], top, levels, said), called(device) if len(devices) > 1 else "")
        for device, rows in devices[:_PANELS]
    )
    seen = [category for category, name in present.items() if np.nanmax(known[name]) >= _SEEN * top]
    keys = tuple((category, CAUSE_COLORS[category], category in IDLE) for category in seen)
    parts = _PARTS if devices[0][0] else _PARTS_OF_CPU if OPERATORS in present else _NO_PARTS
    notes = tuple(_notes(known, len(devices), panels, parts))
    return (StepColumns("Each step, and where its time went", panels, keys, notes),)


def _named(frame: Frame) -> "pd.Series[str]":
    """Return the devices as texts, "" for the CPU."""
    named: pd.Series[str] = frame["device"].astype("str").fillna("")
    return named


def _median(rows: Frame, medians: Frame, device: str) -> float:
    if {"device", "med_ns"} <= set(medians.columns):
        found = measured(medians.loc[_named(medians) == device, "med_ns"])
        if len(found) and found[0] > 0:
            return float(found[0])
    return float(np.median(rows["time_ns"]))


def _highest(rows: Frame, median: float) -> float:
    """Return what the scale must hold: all but steps that are far beyond the usual."""
    tops = np.maximum(rows["time_ns"], rows["slowest_ns"])
    return float(tops[tops <= _BEYOND * median].max()) if (tops <= _BEYOND * median).any() else median


def _panel(rows: Frame, present: Mapping[str, str], scale: _Scale, label: str) -> Panel:
    median, top = scale.median, scale.top
    number, steps = rows["number"].to_numpy(), rows["steps"].to_numpy()
    count = float((number + steps).max())
    left, right = 100.0 * number / count, 100.0 * (number + steps) / count
    gap = _GAP * (right - left)
    left, right = left + gap / 2, right - gap / 2
    layers, low = [], np.zeros(len(rows))
    busy = np.zeros(len(rows))
    for category, name in present.items():
        high = low + np.nan_to_num(rows[name].to_numpy())
        path = _bars(left, right, low / top, high / top)
        layers.append(Layer(category, CAUSE_COLORS[category], category in IDLE, path))
        low = high
        busy = high if category not in IDLE else busy
    outliers = int(rows["outliers"].sum())
    remark = f"{counted(float(steps.sum()), 'step')}, median {format_value(median, 'time_ns')}"
    said = ", ".join(_outliers(rows, median)) or "none"
    summary = f"{label and label + ', '}{remark}; outliers: {said}"
    columns = tuple(_columns(rows, present, (left, right), (busy / top, low / top), scale))
    more = f"; {counted(outliers, 'outlier')}: {said}" if outliers else ""
    return Panel(
        label,
        remark + more,
        summary,
        tuple(layers),
        columns,
        percent(1 - median / top),
        scale.levels,
        tuple(step_ticks(count, float(rows["left_out"].iloc[0]))),
    )


def _bars(left: Floats, right: Floats, low: Floats, high: Floats) -> str:
    """Return a path of upright bars on the GRID; what is above the scale is cut."""
    x, far = (np.rint(GRID / 100.0 * values).astype(int) for values in (left, right))
    up, down = (np.rint(GRID * (1 - np.clip(values, 0, 1))).astype(int) for values in (high, low))
    drawn = zip(x.tolist(), np.maximum(far - x, 1).tolist(), up.tolist(), (down - up).tolist(), strict=True)
    return "".join(f"M{at} {begin}h{width}v{height}h-{width}z" for at, width, begin, height in drawn if height > 0)


def _columns(
    rows: Frame, present: Mapping[str, str], edges: tuple[Floats, Floats], sums: tuple[Floats, Floats], scale: _Scale
) -> Iterator[Column]:
    """Yield the columns. edges: left and right, in percent. sums: busy and total time, as shares of the scale."""
    (left, right), (busy, total), top = edges, sums, scale.top
    for place, row in enumerate(rows.to_dict("records")):
        is_one, is_slow = row["steps"] == 1, row["outliers"] > 0
        tall = max(row["slowest_ns"], row["time_ns"])
        mark = "" if not is_slow else "beyond" if tall > top else "outlier"
        span = (row["start_ns"], row["start_ns"] + row["time_ns"] * row["steps"])
        slowest = (row["slowest_start_ns"], row["slowest_start_ns"] + row["slowest_ns"])
        yield Column(
            round(float(left[place]), 2),
            round(float(right[place] - left[place]), 2),
            percent(1 - min(float(total[place]), 1.0)),
            percent(min(float(total[place]), 1.0) - min(float(busy[place]), 1.0)),
            _title(row, present, scale),
            "{:.0f} {:.0f}".format(*(slowest if is_slow and not is_one else span)),
            mark,
            percent(1 - min(tall / top, 1.0)),
            "" if is_one else "{:.0f} {:.0f}".format(*slowest),
        )


def _title(row: dict[Any, Any], present: Mapping[str, str], scale: _Scale) -> str:
    spent = {category: row[name] for category, name in present.items() if row[name] > 0}
    largest = sorted(spent, key=lambda category: -spent[category])[: scale.said]
    parts = ", ".join(f"{category} {format_value(spent[category], 'time_ns')}" for category in largest)
    first = row["number"] + row["left_out"]
    last = first + row["steps"] - 1
    named = f"#{first:,.0f}" if row["steps"] == 1 else f"#{first:,.0f} to #{last:,.0f}, mean"
    title = f"{named}: {format_value(row['time_ns'], 'time_ns')} ({parts})"
    if row["outliers"] and scale.median > 0:
        slow = f"{row['slowest_ns'] / scale.median:,.1f} times the median"
        most = f"slowest #{row['slowest'] + row['left_out']:,.0f}: {format_value(row['slowest_ns'], 'time_ns')}"
        title += f"; {slow}" if row["steps"] == 1 else f"; {most}, {slow}"
    return title


def _outliers(rows: Frame, median: float) -> Iterator[str]:
    """Yield the slowest outliers: `#0 (12.5×)`."""
    slow = rows[rows["outliers"] > 0].sort_values("slowest_ns", ascending=False, kind="stable")
    for row in slow.head(_NAMED).to_dict("records"):
        yield f"#{row['slowest'] + row['left_out']:,.0f} ({row['slowest_ns'] / median:,.1f}×)"
    if (more := int(rows["outliers"].sum()) - min(len(slow), _NAMED)) > 0:
        yield f"{more:,} more"


_PARTS: Final = "Solid: busy. Hatched: idle, by cause."
_PARTS_OF_CPU: Final = "Solid: in operators, on any thread. Hatched: outside."
_NO_PARTS: Final = "Hatched: all of a step, as no operators were recorded."


def _notes(known: Frame, devices: int, panels: tuple[Panel, ...], parts: str) -> Iterator[str]:
    most = int(known["steps"].max())
    yield f"{parts} The line is the median of all steps."
    if most > 1:
        yield f"Each column is the mean of up to {most:,} steps that follow one another; marks are of the slowest."
    if any(column.mark for panel in panels for column in panel.columns):
        yield f"Marks: steps that take more than {OUTLIER} times the median."
    if any(column.mark == "beyond" for panel in panels for column in panel.columns):
        yield f"Marks at the top edge are beyond the scale, which ends at {_BEYOND:.0f} times the median at most."
    if devices > len(panels):
        yield f"The first {len(panels)} of {devices} devices; report.json (step_times) has them all."
