"""The geometry of distributions: one histogram per figure and device over a common logarithmic axis of time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.render.figure.axes import LogAxis, Tick, level_ticks, log_axis, measured, round_text
from nightsight.render.table.view import counted, short_text
from nightsight.results import Entry
from nightsight.units import format_value, split

Frame = pd.DataFrame

PANELS: Final = 16
_LEAST_HEIGHT: Final = 1.5  # percent: what there is must be seen
_MARKS: Final = (("med_ns", "median"), ("p95_ns", "p95"))
# percent of the plot: what the text of a mark takes, and where it has to turn to the other side
_TEXT: Final = 20.0
_TURN: Final = (14.0, 90.0)
_NUMBERS: Final = ("from_ns", "below_ns", "count", "total_ns", "med_ns", "p95_ns")


@dataclass(frozen=True)
class Layer:
    """A panel: the `column` (count or total_ns) of the rows of one `figure`, and what is counted."""

    figure: str
    column: str
    label: str
    noun: str
    series: str


@dataclass(frozen=True)
class Distribution:
    """What to draw of a result of classes; `note` says what a reader could get wrong.

    least: in ns; what is shorter is one class, which stands before the axis together with zeros.
    """

    source: Entry
    title: str
    layers: tuple[Layer, ...]
    note: str
    least: float = 0.0


@dataclass(frozen=True)
class Bin:
    """One class, in percent from the left and of the height; `title` is its numbers in words."""

    x: float
    width: float
    height: float
    title: str

    @property
    def y(self) -> float:
        """Where its top is, in percent from the top."""
        return round(100.0 - self.height, 2)


@dataclass(frozen=True)
class Mark:
    """A statistic as a line across, and its name beside it; `row` 1 where another name is in the way."""

    name: str
    x: float
    anchor: str
    row: int


@dataclass(frozen=True)
class Panel:
    """One histogram; `summary` says it in words."""

    label: str
    remark: str
    summary: str
    series: str
    bins: tuple[Bin, ...]
    marks: tuple[Mark, ...]
    levels: tuple[Tick, ...]


@dataclass(frozen=True)
class Histogram:
    """Panels over the same axis."""

    title: str
    panels: tuple[Panel, ...]
    times: tuple[Tick, ...]
    notes: tuple[str, ...]


def histograms(kind: Distribution, frame: Frame) -> tuple[Histogram, ...]:
    """Draw a table of classes (device, figure, _NUMBERS); nothing for one without any, or that lacks a column."""
    known = (
        _known(frame, kind.least) if {"device", "figure", *_NUMBERS} <= set(frame.columns) else Frame({"figure": []})
    )
    known = known[known["figure"].isin([layer.figure for layer in kind.layers])]
    if known.empty:
        return ()
    edges = np.concatenate((known["from_ns"], known["below_ns"]))
    zero = f"<{round_text(kind.least, 'ns')}" if kind.least else "0"
    axis = log_axis(edges, unit="ns", zero=zero if (known["from_ns"] <= 0).any() else "")
    devices = list(known.groupby("device", sort=True))
    shown = max(PANELS // len(kind.layers), 1)
    panels = [
        _panel(layer, mine, axis, device=short_text(f"Device {device}") if len(devices) > 1 else "")
        for device, rows in devices[:shown]
        for layer in kind.layers
        if len(mine := rows[rows["figure"] == layer.figure])
    ]
    return (Histogram(kind.title, tuple(panels), axis.ticks(), tuple(_notes(kind.note, shown, len(devices)))),)


def _known(frame: Frame, least: float) -> Frame:
    """Return the classes that have anything, from short to long, those up to `least` as one."""
    numbers = {name: measured(frame[name]) for name in _NUMBERS}
    known = pd.DataFrame({**numbers, "device": frame["device"].to_numpy(), "figure": frame["figure"].astype("str")})
    known = known.dropna()
    known = known[(known["count"] > 0) & (known["below_ns"] > known["from_ns"])]
    is_short = known["below_ns"] <= least
    known = known.assign(from_ns=known["from_ns"].mask(is_short, 0.0), below_ns=known["below_ns"].mask(is_short, least))
    keys = ["from_ns", "below_ns", "device", "figure", "med_ns", "p95_ns"]
    return known.groupby(keys, as_index=False)[["count", "total_ns"]].sum()


def _panel(layer: Layer, rows: Frame, axis: LogAxis, *, device: str) -> Panel:
    values = rows[layer.column].to_numpy().clip(0)
    top, levels = level_ticks(float(values.max()), unit=split(layer.column)[1])
    heights = np.where(values > 0, np.maximum(100.0 * values / top, _LEAST_HEIGHT), 0.0).round(2)
    left, right = axis.places(rows["from_ns"].to_numpy()), axis.places(rows["below_ns"].to_numpy())
    right = np.where(rows["from_ns"] <= 0, axis.zero_width, right)
    spans = zip(left, right - left, heights, _titles(layer, rows), strict=True)
    bins = tuple(Bin(float(x), round(float(width), 2), float(height), title) for x, width, height, title in spans)
    remark = _remark(layer, rows)
    label = f"{device}: {layer.label}" if device else layer.label
    marks = tuple(_marks(rows, axis)) if layer.column == "count" else ()
    return Panel(label, remark, f"{label}: {remark}", layer.series, bins, marks, levels)


def _titles(layer: Layer, rows: Frame) -> Iterator[str]:
    total = rows[["count", "total_ns"]].sum()
    for row in rows.to_dict("records"):
        low, high = (round_text(row[name], "ns") for name in ("from_ns", "below_ns"))
        share = 100.0 * row[layer.column] / total[layer.column] if total[layer.column] else 0.0
        yield (
            f"{low} to {high}: {counted(row['count'], layer.noun)}, {format_value(row['total_ns'], 'total_ns')} "
            f"together ({format_value(share, 'share_pct')} of all)"
        )


def _remark(layer: Layer, rows: Frame) -> str:
    if layer.column != "count":
        return f"{format_value(rows[layer.column].sum(), layer.column)}, {_longest(rows)}"
    median, high = (format_value(float(rows[name].iloc[0]), name) for name, _ in _MARKS)
    return f"{counted(rows['count'].sum(), layer.noun)}, median {median}, 95th percentile {high}"


def _longest(rows: Frame) -> str:
    """Say from which length on the classes hold half of all time."""
    longer = rows["total_ns"].iloc[::-1].cumsum()
    at = longer.index[int((longer >= longer.iloc[-1] / 2).to_numpy().argmax())]
    share = 100.0 * longer[at] / longer.iloc[-1] if longer.iloc[-1] else 0.0
    least = round_text(float(rows.loc[at, "from_ns"]), "ns")
    return f"{format_value(share, 'share_pct')} of it in those of {least} and longer"


def _marks(rows: Frame, axis: LogAxis) -> Iterator[Mark]:
    """Name the median to the left of its line and the 95th percentile to the right, if there is room."""
    first = rows.iloc[0]
    median, high = (float(place) for place in axis.places(first[[name for name, _ in _MARKS]].to_numpy(dtype=float)))
    turned = median < _TURN[0], high > _TURN[1]
    row = int(high - median < _TEXT * sum(turned))
    yield Mark(_MARKS[0][1], median, "start" if turned[0] else "end", 0)
    yield Mark(_MARKS[1][1], high, "end" if turned[1] else "start", row)


def _notes(note: str, shown: int, devices: int) -> Iterator[str]:
    yield note
    if devices > shown:
        yield f"The first {shown} of {devices:,} devices. The JSON and CSV forms of this report have all of them."
