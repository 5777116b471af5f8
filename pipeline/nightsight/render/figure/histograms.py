"""Histograms: one panel per figure and device, on a common logarithmic time axis."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import LogAxis, drawable, level_ticks, log_axis, round_text
from nightsight.render.figure.plot import Dot, Line, Panels, Plot, Rect, Text, above_one_axis, first_of, grid
from nightsight.render.table.view import counted, short_text
from nightsight.results.entry import Entry
from nightsight.units import format_value, split

Frame = pd.DataFrame

PANELS: Final = 16
_MANY: Final = 4
_LEAST_HEIGHT: Final = 1.5  # percent: a bin that is not empty must stay visible
_MARKS: Final = (("med_ns", "median"), ("p95_ns", "p95"))
# percent of the plot: the width of a mark's text, and from where on the text moves to the other side of its line
_TEXT: Final = 20.0
_TURN: Final = (14.0, 90.0)
_NUMBERS: Final = ("from_ns", "below_ns", "count", "total_ns", "med_ns", "p95_ns")


@dataclass(frozen=True)
class Layer:
    """A panel: the `column` (count or total_ns) of the rows of one `figure`, and the noun of what is counted."""

    figure: str
    column: str
    label: str
    noun: str
    series: str


@dataclass(frozen=True)
class Distribution:
    """What to draw of a result that has bins; `note` explains how to read it.

    least: in ns; everything shorter is one bin, drawn to the left of the axis with the zeros.
    """

    source: Entry
    title: str
    layers: tuple[Layer, ...]
    note: str
    least: float = 0.0


def histograms(kind: Distribution, frame: Frame, called: Callable[[object], str] = gpu_name) -> tuple[Panels, ...]:
    """Return histograms of a table of bins (device, figure, _NUMBERS); empty if it has no rows or lacks a column."""
    known = _known(frame, kind.least)
    known = known[known["figure"].isin([layer.figure for layer in kind.layers])]
    if known.empty:
        return ()
    edges = np.concatenate((known["from_ns"], known["below_ns"]))
    zero = f"<{round_text(kind.least, 'ns')}" if kind.least else "0"
    axis = log_axis(edges, unit="ns", zero=zero if (known["from_ns"] <= 0).any() else "")
    devices = list(known.groupby("device", sort=True))
    # each device takes one panel per layer
    shown = max(PANELS // len(kind.layers), 1)
    plots = [
        _plot(layer, mine, axis, device=short_text(called(device)) if len(devices) > 1 else "")
        for device, rows in devices[:shown]
        for layer in kind.layers
        if len(mine := rows[rows["figure"] == layer.figure])
    ]
    return (
        Panels(
            look="over-time histogram many" if len(plots) > _MANY else "over-time histogram",
            title=kind.title,
            plots=above_one_axis(plots, axis.ticks()),
            notes=(kind.note, *first_of(shown, len(devices))),
        ),
    )


def _known(frame: Frame, least: float) -> Frame:
    """Return the bins that are not empty, from short to long; those up to `least` are merged into one."""
    known = drawable(frame, _NUMBERS, ("device", "figure")).dropna()
    known = known[(known["count"] > 0) & (known["below_ns"] > known["from_ns"])]
    is_short = known["below_ns"] <= least
    known = known.assign(from_ns=known["from_ns"].mask(is_short, 0.0), below_ns=known["below_ns"].mask(is_short, least))
    keys = ["from_ns", "below_ns", "device", "figure", "med_ns", "p95_ns"]
    return known.groupby(keys, as_index=False)[["count", "total_ns"]].sum()


def _plot(layer: Layer, rows: Frame, axis: LogAxis, *, device: str) -> Plot:
    values = rows[layer.column].to_numpy().clip(0)
    top, levels = level_ticks(float(values.max()), unit=split(layer.column)[1])
    heights = np.where(values > 0, np.maximum(100.0 * values / top, _LEAST_HEIGHT), 0.0).round(2)
    left, right = axis.places(rows["from_ns"].to_numpy()), axis.places(rows["below_ns"].to_numpy())
    # the bin that starts at 0 fills the place for zeros
    right = np.where(rows["from_ns"] <= 0, axis.zero_width, right)
    spans = np.round([left, right - left, 100.0 - heights, heights], 2).T.tolist()
    bins = (
        Rect(f"bin series-{layer.series}", x, width, y, height, title)
        for (x, width, y, height), title in zip(spans, _titles(layer, rows), strict=True)
    )
    remark = _remark(layer, rows)
    label = f"{device}: {layer.label}" if device else layer.label
    marks = tuple(_marks(rows, axis)) if layer.column == "count" else ()
    drawn = (*grid(axis.ticks(), levels), *bins, *marks)
    return Plot(f"{label}: {remark}", drawn, levels, label=label, remark=remark, look="marked" if marks else "")


def _titles(layer: Layer, rows: Frame) -> Iterator[str]:
    total = rows[["count", "total_ns"]].sum()
    for row in rows.to_dict("records"):
        low, high = (round_text(row[name], "ns") for name in ("from_ns", "below_ns"))
        share = 100.0 * row[layer.column] / total[layer.column] if total[layer.column] else 0.0
        yield (
            f"{low} to {high}: {counted(row['count'], layer.noun)}, {format_value(row['total_ns'], 'total_ns')} "
            f"in total ({format_value(share, 'share_pct')} of all)"
        )


def _remark(layer: Layer, rows: Frame) -> str:
    if layer.column != "count":
        return f"{format_value(rows[layer.column].sum(), layer.column)}, {_longest(rows)}"
    median, high = (format_value(float(rows[name].iloc[0]), name) for name, _ in _MARKS)
    return f"{counted(rows['count'].sum(), layer.noun)}, median {median}, 95th percentile {high}"


def _longest(rows: Frame) -> str:
    """Return the length from which the bins hold half of the total time, in words."""
    # the total time of each bin and all longer ones
    longer = rows["total_ns"].iloc[::-1].cumsum()
    at = longer.index[int((longer >= longer.iloc[-1] / 2).to_numpy().argmax())]
    share = 100.0 * longer[at] / longer.iloc[-1] if longer.iloc[-1] else 0.0
    least = round_text(float(rows.loc[at, "from_ns"]), "ns")
    return f"{format_value(share, 'share_pct')} of it at {least} or longer"


def _marks(rows: Frame, axis: LogAxis) -> Iterator[Line | Text]:
    """Put the name of the median to the left of its line, that of the 95th percentile to the right, if they fit."""
    first = rows.iloc[0]
    median, high = (float(place) for place in axis.places(first[[name for name, _ in _MARKS]].to_numpy(dtype=float)))
    turned = median < _TURN[0], high > _TURN[1]
    # a name that turned inwards needs room between the lines; without it, one name moves to row 1
    row = int(high - median < _TEXT * sum(turned))
    yield from _mark(_MARKS[0][1], median, "start" if turned[0] else "end", 0)
    yield from _mark(_MARKS[1][1], high, "end" if turned[1] else "start", row)


def _mark(name: str, x: float, anchor: str, row: int) -> tuple[Line, Text]:
    line = Line(f"mark-of-{name}", Dot(x, 0), Dot(x, 100))
    return line, Text(f"{anchor} row-{row}", Dot(x, 0), name, aside=3 if anchor == "start" else -3)
