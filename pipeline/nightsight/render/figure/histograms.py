"""Histograms: one panel per figure and device, on a common logarithmic time axis."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import LogAxis, finite_rows, level_ticks, log_axis, round_text
from nightsight.render.figure.plot import Dot, Line, Panels, Plot, Rect, Text, grid, with_shared_axis
from nightsight.render.table.view import omission, short_text
from nightsight.results.entry import Entry
from nightsight.tables import Frame
from nightsight.units import counted, in_text, split

MAX_PANELS: Final = 16
_MANY: Final = 4
_LEAST_HEIGHT: Final = 1.5  # percent: a bin that is not empty must stay visible
# percent of the plot: the width of a mark's text, and the range of marks whose texts fit on their outer sides
_TEXT: Final = 20.0
_OUTER: Final = (14.0, 90.0)
_NUMBERS: Final = ("from_ns", "below_ns", "count", "total_ns", "med_ns", "p95_ns")


@dataclass(frozen=True)
class Layer:
    """A panel: the `column` (count or total_ns) of the rows of one `figure`; `noun`: what is counted."""

    figure: str
    column: str
    label: str
    noun: str
    series: str


@dataclass(frozen=True)
class Distribution:
    """How to draw a result that has bins; `note` explains how to read it.

    least: in ns; all shorter bins are merged, and drawn with the zeros to the left of the axis.
    """

    source: Entry
    title: str
    layers: tuple[Layer, ...]
    note: str
    least: float = 0.0


def histograms(kind: Distribution, frame: Frame, called: Callable[[object], str] = gpu_name) -> tuple[Panels, ...]:
    """Return histograms of a table of bins (device, figure, _NUMBERS); () if it has no rows or a column is missing."""
    bins = _bins(frame, kind.least)
    bins = bins[bins["figure"].isin([layer.figure for layer in kind.layers])]
    if bins.empty:
        return ()
    edges = np.concatenate((bins["from_ns"], bins["below_ns"]))
    zero = f"<{round_text(kind.least, 'ns')}" if kind.least else "0"
    axis = log_axis(edges, unit="ns", zero=zero if (bins["from_ns"] <= 0).any() else "")
    devices = list(bins.groupby("device", sort=True))
    # each device takes one panel per layer
    max_devices = max(MAX_PANELS // len(kind.layers), 1)
    plots = [
        _plot(layer, of_layer, axis, device=short_text(called(device)) if len(devices) > 1 else "")
        for device, of_device in devices[:max_devices]
        for layer in kind.layers
        if len(of_layer := of_device[of_device["figure"] == layer.figure])
    ]
    return (
        Panels(
            look="over-time histogram many" if len(plots) > _MANY else "over-time histogram",
            title=kind.title,
            plots=with_shared_axis(plots, axis.ticks()),
            notes=tuple(filter(None, (kind.note, omission(max_devices, len(devices), "devices")))),
        ),
    )


def _bins(frame: Frame, least: float) -> Frame:
    """Return the bins that are not empty, from short to long; those up to `least` are merged into one."""
    bins = finite_rows(frame, _NUMBERS, ("device", "figure")).dropna()
    bins = bins[(bins["count"] > 0) & (bins["below_ns"] > bins["from_ns"])]
    is_short = bins["below_ns"] <= least
    bins = bins.assign(from_ns=bins["from_ns"].mask(is_short, 0.0), below_ns=bins["below_ns"].mask(is_short, least))
    keys = ["from_ns", "below_ns", "device", "figure", "med_ns", "p95_ns"]
    return bins.groupby(keys, as_index=False)[["count", "total_ns"]].sum()


def _plot(layer: Layer, rows: Frame, axis: LogAxis, *, device: str) -> Plot:
    values = rows[layer.column].to_numpy().clip(0)
    top, levels = level_ticks(float(values.max()), unit=split(layer.column)[1])
    heights = np.where(values > 0, np.maximum(100.0 * values / top, _LEAST_HEIGHT), 0.0).round(2)
    left, right = axis.places(rows["from_ns"].to_numpy()), axis.places(rows["below_ns"].to_numpy())
    # the bin that starts at 0 fills the place for zeros
    right = np.where(rows["from_ns"] <= 0, axis.zero_width, right)
    geometry = np.round([left, right - left, 100.0 - heights, heights], 2).T.tolist()
    total = values.sum()
    shares = 100.0 * values / total if total else np.zeros(len(values))
    bins = (
        Rect(f"bin series-{layer.series}", x, width, y, height, _title(row, layer.noun, share))
        for (x, width, y, height), row, share in zip(geometry, rows.to_dict("records"), shares.tolist(), strict=True)
    )
    marks: tuple[Line | Text, ...] = ()
    if layer.column == "count":
        median, high = (float(rows[name].iloc[0]) for name in ("med_ns", "p95_ns"))
        marks = tuple(_marks(median, high, axis))
        remark = (
            f"{counted(values.sum(), layer.noun)}, median {in_text(median, 'med_ns')}, "
            f"95th percentile {in_text(high, 'p95_ns')}"
        )
    else:
        remark = f"{in_text(rows[layer.column].sum(), layer.column)}, {_longest_bins(rows)}"
    label = f"{device}: {layer.label}" if device else layer.label
    return Plot(
        f"{label}: {remark}",
        (*grid(axis.ticks(), levels), *bins, *marks),
        levels,
        label=label,
        remark=remark,
        look="marked" if marks else "",
    )


def _title(row: Mapping[Hashable, float], noun: str, share: float) -> str:
    low, high = (round_text(row[name], "ns") for name in ("from_ns", "below_ns"))
    return (
        f"{low} to {high}: {counted(row['count'], noun)}, {in_text(row['total_ns'], 'total_ns')} "
        f"in total ({in_text(share, 'share_pct')} of all)"
    )


def _longest_bins(rows: Frame) -> str:
    """Return the length above which bins hold half of the total time, in words."""
    # the total time of each bin and all longer ones
    sums = rows["total_ns"].iloc[::-1].cumsum()
    index = sums.index[int((sums >= sums.iloc[-1] / 2).to_numpy().argmax())]
    share = 100.0 * sums[index] / sums.iloc[-1] if sums.iloc[-1] else 0.0
    least = round_text(float(rows.loc[index, "from_ns"]), "ns")
    return f"{in_text(share, 'share_pct')} of it at {least} or longer"


def _marks(median_ns: float, high_ns: float, axis: LogAxis) -> Iterator[Line | Text]:
    """Put the name of the median to the left of its line, that of the 95th percentile to the right."""
    median, high = axis.places(np.array([median_ns, high_ns])).tolist()
    is_inner = median < _OUTER[0], high > _OUTER[1]
    yield Line("mark-of-median", Dot(median, 0), Dot(median, 100))
    yield Line("mark-of-p95", Dot(high, 0), Dot(high, 100))
    names = [
        ("median", median, "start" if is_inner[0] else "end"),
        ("p95", high, "end" if is_inner[1] else "start"),
    ]
    # a name between the lines needs room there; without it, both are on one side of the lines
    if high - median < _TEXT * sum(is_inner):
        names = [("median, p95", high, "start") if is_inner[0] else ("median, p95", median, "end")]
    for name, x, anchor in names:
        yield Text(f"{anchor} above-plot", Dot(x, 0), name, aside=3 if anchor == "start" else -3)
