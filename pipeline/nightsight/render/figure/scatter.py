"""The copy plot: copy rate by size, both in decades, with the peak bandwidths as lines."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.render.figure.axes import LogAxis, drawable, log_axis, measured, upward
from nightsight.render.figure.plot import Dot, Key, Line, LogPlane, Plane, Plot, Point, Text, grid, marker
from nightsight.render.table.view import Floats, counted, short_text
from nightsight.units import format_value

Frame = pd.DataFrame

_NUMBERS: Final = {"count": "count", "total_bytes": "total", "total_ns": "time", "rate_bytes_per_s": "rate"}
_MARGIN: Final = 0.15  # decades
_LABEL_HEIGHT: Final = 7.0  # percent
# the link or memory that limits a copy: column of gpu_peaks, the share of it that one copy can use, and its name
_LINK: Final = ("host_link_bytes_per_s", 1.0, "Link to the host, one way")
_PEER: Final = ("nvlink_bytes_per_s", 1.0, "NVLink, one way")
# a copy inside the device reads and writes every byte, so it gets half of the bandwidth
_MEMORY: Final = ("memory_bytes_per_s", 0.5, "Device memory, read and write")
_CROSSED: Final[Mapping[str, tuple[str, float, str]]] = {
    "Host-to-Device": _LINK,
    "Device-to-Host": _LINK,
    "Unified Host-to-Device": _LINK,
    "Unified Device-to-Host": _LINK,
    "Host-to-Array": _LINK,
    "Array-to-Host": _LINK,
    "Peer-to-Peer": _PEER,
    "Device-to-Device": _MEMORY,
}


def copy_rates(frame: Frame, peaks: Frame) -> tuple[Plane, ...]:
    """Return a plot of the classes of copy_sizes with a size and a rate; lines join the sizes of one kind.

    It is empty if a column is missing or fewer than two classes have both: the table says all that one mark could.

    peaks: gpu_peaks, which may be empty.
    """
    known = _known(frame)
    if len(known) < 2:
        return ()
    levels = _levels(known, peaks)
    sizes = log_axis(known["size"].to_numpy(), unit="bytes", margin=_MARGIN)
    rates = log_axis(np.array([*known["rate"], *levels.values()]), unit="bytes_per_s", margin=_MARGIN)
    keys = {kind: marker(short_text(kind), place) for place, kind in enumerate(dict.fromkeys(known["kind"]))}
    points = [_point(row, keys[row["kind"]], LogPlane(sizes, rates)) for row in known.to_dict("records")]
    across, up = sizes.ticks(), upward(rates.ticks())
    marks = (*grid(across, up), *_peaks(levels, rates), *_trails(points), *points)
    return (
        Plane(
            look="roofline of-rates",
            title="Rate of copies by size",
            keys=tuple(keys.values()),
            plot=Plot(_summary(known, levels), marks, up, across),
            across="Copy size",
            notes=tuple(_notes(levels)),
        ),
    )


def _known(frame: Frame) -> Frame:
    """Return the rows that a logarithmic axis can show: kind, operation, count, mean size (bytes), time (ns), rate."""
    known = drawable(frame, _NUMBERS, ("operation", "host_kind"))
    known = known[known["count"] > 0].rename(columns=_NUMBERS)
    host, operation = known["host_kind"].astype("str"), known["operation"].astype("str")
    kind = operation.where(host == "", operation + ", " + host.str.lower())
    table = known.assign(kind=kind, operation=operation, size=known["total"] / known["count"])
    table = table[(table["size"] > 0) & (table["rate"] > 0)]
    return table.sort_values(["kind", "size"], kind="stable", ignore_index=True)


def _levels(known: Frame, peaks: Frame) -> dict[str, float]:
    """Return the peak bandwidths (bytes/s) that limit these copies, by label, the lowest first; GPUs can differ."""
    crossed = dict.fromkeys(_CROSSED[name] for name in known["operation"] if name in _CROSSED)
    levels = {}
    for column, part, words in crossed:
        values = np.unique(measured(peaks[column])) if column in peaks else np.empty(0)
        for value in values[(values > 0) & np.isfinite(values)]:
            levels[f"{words}: {format_value(part * value, column)}"] = float(part * value)
    return dict(sorted(levels.items(), key=lambda level: level[1]))


def _point(row: Mapping[Any, Any], key: Key, plane: LogPlane) -> Point:
    size = f"{format_value(row['size'], 'size_bytes')}{' on average' if row['count'] > 1 else ''}"
    sums = f"{format_value(row['total'], 'total_bytes')} in {format_value(row['time'], 'time_ns')}"
    rate = format_value(row["rate"], "rate_bytes_per_s")
    title = f"{key.label}: {counted(row['count'], 'copy')} of {size}, {rate}; {sums}"
    return Point(key.look, plane.dot(math.log10(row["size"]), math.log10(row["rate"])), key.shape, title)


def _trails(points: Sequence[Point]) -> Iterator[Line]:
    for point, following in pairwise(points):
        if point.look == following.look:
            yield Line(f"{point.look} pair", point.at, following.at)


def _peaks(levels: Mapping[str, float], rates: LogAxis) -> Iterator[Line | Text]:
    """Yield the lines; a label goes over its line, or under it if it would cross the line above."""
    heights: Floats = 100.0 - rates.places(np.array(list(levels.values())))
    for place, label in enumerate(levels):
        # the next line is the one above, because levels are ascending
        is_near = place + 1 < len(heights) and heights[place] - heights[place + 1] < _LABEL_HEIGHT
        height = round(float(heights[place]), 2)
        yield Line("roof", Dot(0, height), Dot(100, height))
        yield Text(f"of-roof {'under' if is_near else 'over'} start", Dot(0.5, height), label)


def _summary(known: Frame, levels: Mapping[str, float]) -> str:
    kinds = known.groupby("kind", sort=False).agg(count=("count", "sum"), most=("rate", "max"))
    texts = [
        f"{short_text(str(kind))}: {counted(count, 'copy')}, {format_value(most, 'most_bytes_per_s')} at most"
        for kind, count, most in kinds.itertuples()
    ]
    return "; ".join([*texts, *levels])


def _notes(levels: Mapping[str, float]) -> Iterator[str]:
    yield (
        "Each marker represents all copies of one kind and size class (sizes double per class), at their mean "
        "size and at total bytes divided by total time. Latency limits small copies, not bandwidth."
    )
    if not levels:
        yield "No peaks are drawn because none are known for this GPU."
