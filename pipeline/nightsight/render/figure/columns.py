"""Step columns: one stacked column per repetition, outliers marked, many repetitions put together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import Tick, level_ticks, measured, percent, step_ticks
from nightsight.render.figure.plot import GRID, Dot, Line, Panels, Part, Path, Plot, Point, grid
from nightsight.render.figure.shares import CAUSE_COLORS, keys_of
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
# SVG paths of marks, in pixels around the top of a column
_OUTLIER: Final = "M0 -2L4 -9H-4z"
_BEYOND_SCALE: Final = "M0 0L5 8H-5z"


@dataclass(frozen=True)
class _Scale:
    """The median of a device, and what all have: the highest value, its ticks, how many categories a column tells."""

    median: float
    top: float
    levels: tuple[Tick, ...]
    said: int


def step_columns(frame: Frame, medians: Frame, called: Callable[[object], str] = gpu_name) -> tuple[Panels, ...]:
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
    plots = tuple(
        _plot(rows, present, _Scale(middles[device], top, levels, said), called(device) if len(devices) > 1 else "")
        for device, rows in devices[:_PANELS]
    )
    seen = [category for category, name in present.items() if np.nanmax(known[name]) >= _SEEN * top]
    parts = _PARTS if devices[0][0] else _PARTS_OF_CPU if OPERATORS in present else _NO_PARTS
    return (
        Panels(
            look="over-time steps-in-columns many" if len(plots) > 1 else "over-time steps-in-columns",
            title="Each step, and where its time went",
            keys=keys_of(seen),
            plots=plots,
            notes=tuple(_notes(known, len(devices), plots, parts)),
        ),
    )


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


def _plot(rows: Frame, present: Mapping[str, str], scale: _Scale, label: str) -> Plot:
    median, top = scale.median, scale.top
    number, steps = rows["number"].to_numpy(), rows["steps"].to_numpy()
    count = float((number + steps).max())
    left, right = 100.0 * number / count, 100.0 * (number + steps) / count
    gap = _GAP * (right - left)
    left, right = left + gap / 2, right - gap / 2
    paths, low = [], np.zeros(len(rows))
    busy = np.zeros(len(rows))
    for category, name in present.items():
        high = low + np.nan_to_num(rows[name].to_numpy())
        paths.append(Path(f"series-{CAUSE_COLORS[category]}", _bars(left, right, low / top, high / top)))
        low = high
        busy = high if category not in IDLE else busy
    outliers = int(rows["outliers"].sum())
    remark = f"{counted(float(steps.sum()), 'step')}, median {format_value(median, 'time_ns')}"
    said = ", ".join(_outliers(rows, median)) or "none"
    summary = f"{label and label + ', '}{remark}; outliers: {said}"
    more = f"; {counted(outliers, 'outlier')}: {said}" if outliers else ""
    height = percent(1 - median / top)
    marks = (
        *grid((), scale.levels),
        *paths,
        *_columns(rows, present, (left, right), (busy / top, low / top), scale),
        Line("median", Dot(0, height), Dot(100, height)),
        *_marked(rows, (left + right) / 2, top),
    )
    numbers = tuple(step_ticks(count, float(rows["left_out"].iloc[0])))
    return Plot(summary, marks, scale.levels, numbers, label, remark + more, "step-columns")


def _bars(left: Floats, right: Floats, low: Floats, high: Floats) -> str:
    """Return a path of upright bars on the GRID; what is above the scale is cut."""
    x, far = (np.rint(GRID / 100.0 * values).astype(int) for values in (left, right))
    up, down = (np.rint(GRID * (1 - np.clip(values, 0, 1))).astype(int) for values in (high, low))
    drawn = zip(x.tolist(), np.maximum(far - x, 1).tolist(), up.tolist(), (down - up).tolist(), strict=True)
    return "".join(f"M{at} {begin}h{width}v{height}h-{width}z" for at, width, begin, height in drawn if height > 0)


def _columns(
    rows: Frame, present: Mapping[str, str], edges: tuple[Floats, Floats], sums: tuple[Floats, Floats], scale: _Scale
) -> Iterator[Part]:
    """Yield the columns. edges: left and right, in percent. sums: busy and total time, as shares of the scale."""
    (left, right), (busy, total) = edges, (np.minimum(each, 1.0) for each in sums)
    for place, row in enumerate(rows.to_dict("records")):
        idle = percent(total[place] - busy[place])
        yield Part(
            "hit",
            round(float(left[place]), 2),
            round(float(right[place] - left[place]), 2),
            _title(row, present, scale),
            "{:.0f} {:.0f}".format(*_span(row)),
            (percent(1 - total[place]), idle) if idle else None,
        )


def _span(row: dict[Any, Any]) -> tuple[float, float]:
    """Return begin and end of a step; of several, those of the slowest if there is an outlier."""
    if row["outliers"] > 0 and row["steps"] > 1:
        return row["slowest_start_ns"], row["slowest_start_ns"] + row["slowest_ns"]
    return row["start_ns"], row["start_ns"] + row["time_ns"] * row["steps"]


def _marked(rows: Frame, middle: Floats, top: float) -> Iterator[Point]:
    """Yield marks of the columns with outliers. middle: in percent."""
    tall = np.maximum(rows["slowest_ns"].to_numpy(), rows["time_ns"].to_numpy())
    for place in np.flatnonzero(rows["outliers"] > 0).tolist():
        at = Dot(round(float(middle[place]), 2), percent(1 - min(tall[place] / top, 1.0)))
        yield Point("outlier", at, _BEYOND_SCALE if tall[place] > top else _OUTLIER)


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


def _notes(known: Frame, devices: int, plots: Sequence[Plot], parts: str) -> Iterator[str]:
    shapes = {mark.shape for plot in plots for mark in plot.of(Point)}
    most = int(known["steps"].max())
    yield f"{parts} The line is the median of all steps."
    if most > 1:
        yield f"Each column is the mean of up to {most:,} steps that follow one another; marks are of the slowest."
    if shapes:
        yield f"Marks: steps that take more than {OUTLIER} times the median."
    if _BEYOND_SCALE in shapes:
        yield f"Marks at the top edge are beyond the scale, which ends at {_BEYOND:.0f} times the median at most."
    if devices > len(plots):
        yield f"The first {len(plots)} of {devices} devices; report.json (step_times) has them all."
