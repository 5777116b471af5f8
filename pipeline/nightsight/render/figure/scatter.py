"""The plot of copies: rate by size, both in decades, with the peak bandwidths as lines."""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np

from nightsight.render.figure.axes import LogAxis, finite_floats, finite_rows, log_axis, vertical
from nightsight.render.figure.plot import Dot, LegendEntry, Line, LogPlane, Plane, Plot, Point, Text, grid, marker
from nightsight.render.table.view import short_text
from nightsight.tables import Frame, aggregate
from nightsight.units import counted, format_value

_NUMBERS: Final = {"count": "count", "total_bytes": "total", "total_ns": "time", "rate_bytes_per_s": "rate"}
_MARGIN: Final = 0.15  # decades
_LABEL_HEIGHT: Final = 7.0  # percent
# the link or memory that limits a copy: column of gpu_peaks, the share of the peak that one copy can use, and its name
_LINK: Final = ("host_link_bytes_per_s", 1.0, "Link to the host, one way")
_PEER: Final = ("nvlink_bytes_per_s", 1.0, "NVLink, one way")
# a copy inside the device reads and writes every byte, so it gets half of the bandwidth
_MEMORY: Final = ("memory_bytes_per_s", 0.5, "Device memory, read and write")
_LIMITS: Final[Mapping[str, tuple[str, float, str]]] = {
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

    The result is () if a column is missing or fewer than two classes have both: the table contains all information of
    a single mark.

    peaks: gpu_peaks, which may be empty.
    """
    classes = _classes(frame)
    if len(classes) < 2:
        return ()
    levels = _levels(classes, peaks)
    sizes = log_axis(classes["size"].to_numpy(), unit="bytes", margin=_MARGIN)
    rates = log_axis(np.array([*classes["rate"], *levels.values()]), unit="bytes_per_s", margin=_MARGIN)
    keys = {kind: marker(short_text(kind), number) for number, kind in enumerate(dict.fromkeys(classes["kind"]))}
    points = [_point(row, keys[row["kind"]], LogPlane(sizes, rates)) for row in classes.to_dict("records")]
    lines = (Line(f"{a.look} pair", a.at, b.at) for a, b in pairwise(points) if a.look == b.look)
    across, up = sizes.ticks(), vertical(rates.ticks())
    kinds = aggregate(classes.groupby("kind", sort=False), count=("count", "sum"), highest=("rate", "max"))
    texts = [
        f"{short_text(str(kind))}: {counted(count, 'copy')}, {format_value(highest, 'rate_bytes_per_s')} at most"
        for kind, count, highest in kinds.itertuples()
    ]
    notes = (
        "Each marker represents all copies of one kind and size class (sizes double per class), at their mean "
        "size and at total bytes divided by total time. Latency limits small copies, not bandwidth.",
        "" if levels else "No peaks are drawn because none are known for this GPU.",
    )
    return (
        Plane(
            look="roofline of-rates",
            title="Rate of copies by size",
            keys=tuple(keys.values()),
            plot=Plot(
                "; ".join([*texts, *levels]), (*grid(across, up), *_roofs(levels, rates), *lines, *points), up, across
            ),
            across="Copy size",
            notes=tuple(filter(None, notes)),
        ),
    )


def _classes(frame: Frame) -> Frame:
    """Return the rows that a logarithmic axis can show: kind, operation, count, mean size (bytes), time (ns), rate."""
    rows = finite_rows(frame, _NUMBERS, ("operation", "host_kind"))
    rows = rows[rows["count"] > 0].rename(columns=_NUMBERS)
    host, operation = rows["host_kind"].astype("str"), rows["operation"].astype("str")
    kind = operation.where(host == "", operation + ", " + host.str.lower())
    rows = rows.assign(kind=kind, operation=operation, size=rows["total"] / rows["count"])
    rows = rows[(rows["size"] > 0) & (rows["rate"] > 0)]
    return rows.sort_values(["kind", "size"], kind="stable", ignore_index=True)


def _levels(classes: Frame, peaks: Frame) -> dict[str, float]:
    """Return the peak bandwidths (bytes/s) that limit these copies, by label, the lowest first; GPUs can differ."""
    levels = {}
    for column, share, name in dict.fromkeys(_LIMITS[name] for name in classes["operation"] if name in _LIMITS):
        peak = np.unique(finite_floats(peaks[column])) if column in peaks else np.empty(0)
        for rate in share * peak[peak > 0]:
            levels[f"{name}: {format_value(rate, column)}"] = float(rate)
    return dict(sorted(levels.items(), key=lambda level: level[1]))


def _point(row: Mapping[Any, Any], key: LegendEntry, plane: LogPlane) -> Point:
    size = f"{format_value(row['size'], 'size_bytes')}{' on average' if row['count'] > 1 else ''}"
    sums = f"{format_value(row['total'], 'total_bytes')} in {format_value(row['time'], 'time_ns')}"
    rate = format_value(row["rate"], "rate_bytes_per_s")
    title = f"{key.label}: {counted(row['count'], 'copy')} of {size}, {rate}; {sums}"
    return Point(key.look, plane.dot(math.log10(row["size"]), math.log10(row["rate"])), key.shape, title)


def _roofs(levels: Mapping[str, float], rates: LogAxis) -> Iterator[Line | Text]:
    """Yield a line for each level; its label goes over it, or under it if it would cross the line above."""
    heights = [round(100.0 - place, 2) for place in rates.places(np.array(list(levels.values()))).tolist()]
    # levels are ascending, so the next line is the one above
    for label, height, above in zip(levels, heights, [*heights[1:], -math.inf], strict=False):
        side = "under" if height - above < _LABEL_HEIGHT else "over"
        yield Line("roof", Dot(0, height), Dot(100, height))
        yield Text(f"of-roof {side} start", Dot(0.5, height), label)
