"""Rooflines: axes in decades, the roofs of one GPU, and a point for each kind of arithmetic of a kernel.

Logarithms are base 10.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.peaks import LIMITED_PCT
from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import LogAxis, Tick, vertical
from nightsight.render.figure.plot import Dot, LegendEntry, Line, LogPlane, Plane, Plot, Point, Text, grid, marker
from nightsight.render.table.replayed import number_of
from nightsight.render.table.view import floats, omission, short_text
from nightsight.tables import Frame
from nightsight.units import SCALES, arithmetic, counted, format_value

_Anchor = tuple[Dot, float, float]  # a dot, and an offset from it in pixels
_Roof = tuple[Line, Text]

MAX_POINTS: Final = 40
_MAX_CHARTS: Final = 4
_RATE: Final = "flop_per_s"
_INTENSITY: Final = "flop_per_byte"
_ROOF_COLUMNS: Final = ("device", "gpu", "roof", "bytes_per_s", _RATE)
_MINOR: Final = 0.01  # of a kernel's highest rate: below that, a kind of arithmetic is not drawn
_LOWEST, _HIGHEST = 1e-9, 1e21  # below and above any measured value; sums of their logarithms stay small
_SAME: Final = 0.01  # decades: roofs this close look like one line and share a label
_LABEL_HEIGHT: Final = 6.0
_LEAST_HEIGHT: Final = 3.5  # percent: of text between two lines that it nearly touches
# positions of the number of a point: offset in pixels, and text anchor
_SIDES: Final = ((9, 4, "start"), (-9, 4, "end"), (0, -10, "middle"), (0, 18, "middle"))
# plot size in pixels on a wide and on a narrow screen; used to test whether labels would touch
_WIDE: Final = (600, 340)
_NARROW: Final = (210, 336)
_POINT_SIZE: Final = (16, 12)  # pixels: of a marker and its number
_LETTER: Final = (6.5, 18)  # pixels: width of a letter and height of a line in labels


@dataclass(frozen=True)
class RooflineWords:
    """The texts about the points of a roofline: the kind of bytes, and the note below the plot."""

    per_byte: str
    note: str


OF_KERNELS: Final = RooflineWords(" of DRAM", "Numbers identify the kernels. Filled points: per byte from and to DRAM.")
OF_OPERATORS: Final = RooflineWords(
    "",
    "Numbers are the rows of the table whose operations are counted. "
    "Per byte that an operator has to read and write at least.",
)


def rooflines(
    points: Frame, roofs: Frame, short: Callable[[str], str], words: RooflineWords = OF_KERNELS
) -> tuple[Plane, ...]:
    """Return a roofline per GPU of the points with a rate and bytes; () if there are none or a column is missing.

    short: shortens a name, but not its number. points: name, device, kind, flop_per_s, flop_per_byte,
    l2_flop_per_byte and peak_pct. roofs: device, gpu, roof, bytes_per_s and flop_per_s.
    """
    if not {"name", "device", "kind", _RATE, _INTENSITY} <= set(points.columns):
        return ()
    optional = {name: np.nan for name in ("l2_flop_per_byte", "peak_pct") if name not in points}
    points = points.assign(**optional, label=points["name"].astype("str").map(short))
    logs = {f"log_{name}": _log(points[name]) for name in (_RATE, _INTENSITY, "l2_flop_per_byte")}
    points = points.assign(**logs).dropna(subset=["kind", "log_flop_per_s", "log_flop_per_byte"])
    if not set(_ROOF_COLUMNS) <= set(roofs.columns):
        roofs = Frame(columns=list(_ROOF_COLUMNS))
    groups = list(points.groupby("device", sort=True))[:_MAX_CHARTS]
    return tuple(_roofline(rows, roofs[roofs["device"] == device], words) for device, rows in groups)


def _log(column: "pd.Series[Any]") -> "pd.Series[float]":
    """Return the logarithms of finite values above 0, NaN for all others."""
    values = pd.Series(floats(column), column.index)
    values = values.where((values > 0) & np.isfinite(values)).clip(_LOWEST, _HIGHEST)
    return pd.Series(np.log10(values.to_numpy()), column.index)


def _roofline(points: Frame, roofs: Frame, words: RooflineWords) -> Plane:
    largest = points.groupby("name")[_RATE].transform("max")
    major = points[points[_RATE] >= _MINOR * largest]
    counts = len(points) - len(major), len(major)
    points = major.head(MAX_POINTS)
    kinds = list(dict.fromkeys(points["kind"].astype("str")))
    keys = {kind: marker(short_text(kind), number) for number, kind in enumerate(kinds)}
    slopes, levels = _slopes(roofs), _levels(roofs, kinds)
    plane = _plane(points, list(slopes.values()), list(levels))
    points = points.assign(title=[_title(row, words, slopes) for row in points.to_dict("records")])
    hollow, filled = _points(points, plane, keys, [plane.dot(0, level).y for level in levels])
    # labels should cover neither the points nor their hollow L2 partners
    positions = [_pixels(mark.at) for mark in (*hollow, *filled) if isinstance(mark, Point)]
    lines = [*_slope_roofs(slopes, levels, plane), *_level_roofs(slopes, levels, plane, positions)]
    across, up = _without_unit(plane.across.ticks(), _INTENSITY), _without_unit(vertical(plane.up.ticks()), _RATE)
    marks = (*grid(across, up), *(line for line, _ in lines), *(text for _, text in lines), *hollow, *filled)
    gpu = short_text(str(roofs["gpu"].iloc[0])) if len(roofs) else gpu_name(points["device"].iloc[0])
    unit = arithmetic(_RATE, points["kind"].astype("str"))
    low, high = (format_value(rate, unit) for rate in (points[_RATE].min(), points[_RATE].max()))
    summary = f"Roofline of {gpu}: {counted(len(points), 'point')}, {low} to {high}; see the table for their values"
    return Plane(
        look="roofline",
        title=gpu,
        keys=tuple(keys.values()),
        plot=Plot(summary, marks, up, across),
        across=_symbol(arithmetic(_INTENSITY, kinds)),
        up=_symbol(arithmetic(_RATE, kinds)),
        notes=tuple(_roofline_notes(words, *counts, has_l2=bool(hollow))),
    )


def _symbol(unit: str) -> str:
    return SCALES[unit][0][1]


def _without_unit(ticks: Iterable[Tick], unit: str) -> tuple[Tick, ...]:
    """Return ticks of an axis that shows the unit: their texts have only its prefix."""
    return tuple(replace(tick, text=tick.text.removesuffix(_symbol(unit)).strip()) for tick in ticks)


def _slopes(roofs: Frame) -> dict[str, float]:
    """Return the logarithm of each memory's bandwidth (bytes/s), the slowest memory first."""
    logs = zip(roofs["roof"].astype("str"), _log(roofs["bytes_per_s"]), strict=True)
    return dict(sorted(((name, log) for name, log in logs if math.isfinite(log)), key=lambda pair: pair[1]))


def _levels(roofs: Frame, kinds: Sequence[str]) -> dict[float, tuple[str, str]]:
    """Return the flat roofs of `kinds`: log of the rate to (label, rate), the lowest first; equal roofs are merged."""
    rows = roofs[roofs["roof"].isin(kinds)]
    rows = rows.assign(log=_log(rows[_RATE])).dropna(subset="log").sort_values(["log", "roof"])
    kinds_of_level: dict[float, list[str]] = {}
    levels: dict[float, tuple[str, str]] = {}
    for log, kind, rate in zip(rows["log"], rows["roof"].astype("str"), floats(rows[_RATE]), strict=True):
        # levels are ascending, so only roofs slightly below can be merged with this one
        level = next((level for level in levels if log - level <= _SAME), log)
        merged = kinds_of_level.setdefault(level, [])
        merged.append(short_text(kind))
        levels[level] = (", ".join(merged), format_value(rate, arithmetic(_RATE, merged)))
    return levels


def _plane(points: Frame, slopes: Sequence[float], levels: Sequence[float]) -> LogPlane:
    """Choose whole decades that include all points, all roofs, and the ridge points where roofs meet."""
    # the intensity at which a sloping roof meets a flat one
    ridges = [level - slope for level in levels for slope in slopes]
    across = [*ridges, *points["log_flop_per_byte"], *points["log_l2_flop_per_byte"].dropna()]
    return LogPlane(_decades(across, _INTENSITY), _decades([*levels, *points["log_flop_per_s"]], _RATE))


def _decades(logs: Sequence[float], unit: str) -> LogAxis:
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    return LogAxis(low, max(high, low + 1), unit, is_fine=False)


def _slope_roofs(slopes: Mapping[str, float], levels: Iterable[float], plane: LogPlane) -> Iterator[_Roof]:
    """Yield the sloping roof of each memory, from where it enters the plot to the highest flat roof.

    Labels are on opposite outer sides, so that those of two parallel roofs do not touch.
    """
    ceiling = max(levels, default=plane.up.high)
    for number, (name, slope) in enumerate(slopes.items()):
        begin, end = max(plane.across.low, plane.up.low - slope), min(plane.across.high, ceiling - slope)
        if begin >= end:
            continue
        share, anchor = (0.6, "end") if number > 0 else (0.3, "start")
        label = f"{short_text(name)}: {format_value(10.0**slope, 'bytes_per_s')}"
        first, last, middle = (plane.dot(x, x + slope) for x in (begin, end, begin + (end - begin) * share))
        yield Line("roof", first, last), Text(f"of-roof slope {anchor}", middle, label)


def _level_roofs(
    slopes: Mapping[str, float],
    levels: Mapping[float, tuple[str, str]],
    plane: LogPlane,
    points: Sequence[tuple[float, float]],
) -> Iterator[_Roof]:
    """Yield the flat roof of each kind, from its ridge with the fastest memory to the right edge.

    A label goes where it covers the fewest points without crossing a neighboring line: over its roof, under it, or
    between it and the next one if these are close.
    """
    fastest = max(slopes.values(), default=math.inf)
    # with sentinels for the neighbors of the lowest and the highest roof
    heights = [100.0, *(plane.dot(0, level).y for level in levels), -100.0]
    for number, (level, (label, rate)) in enumerate(levels.items(), start=1):
        below, height, above = heights[number - 1 : number + 2]
        begin, end = plane.dot(level - fastest, level), plane.dot(plane.across.high, level)
        fits = {
            "over": height - above >= _LABEL_HEIGHT,
            "under": below - height > _LABEL_HEIGHT,
            "between": _LEAST_HEIGHT <= height - above < _LABEL_HEIGHT,
        }
        sides = [side for side, has_room in fits.items() if has_room] or ["over"]
        candidates = [(end, "end", side) for side in sides] + [(begin, "start", side) for side in sides]
        # in letters; narrow screens omit the rate, but each letter covers more of the plot
        length = max(len(label) + 2 + len(rate), _WIDE[0] / _NARROW[0] * len(label))
        # in order of preference: min() returns the first of equally good candidates
        at, anchor, side = min(candidates, key=lambda candidate: _covered(length, candidate, points))
        yield Line("roof", begin, end), Text(f"of-roof {side} {anchor}", at, label, more=f": {rate}")


def _covered(letters: float, place: tuple[Dot, str, str], points: Sequence[tuple[float, float]]) -> int:
    """Count the points that a label at `place` (dot, text anchor, side of the line) would cover."""
    at, anchor, side = place
    (x, y), (letter, height), (point_width, point_height) = _pixels(at), _LETTER, _POINT_SIZE
    width = letter * letters
    left, top = (x - width if anchor == "end" else x), (y if side == "under" else y - height)
    return sum(
        left - point_width < across < left + width + point_width
        and top - point_height < down < top + height + point_height
        for across, down in points
    )


def _points(
    points: Frame, plane: LogPlane, keys: Mapping[str, LegendEntry], levels: Sequence[float]
) -> tuple[list[Line | Point], list[Point]]:
    """Return the points by L2 bytes, hollow and joined to the others, and these, which have numbers."""
    rows = points.to_dict("records")
    dots = [plane.dot(row["log_flop_per_byte"], row["log_flop_per_s"]) for row in rows]
    l2_dots = [
        plane.dot(row["log_l2_flop_per_byte"], row["log_flop_per_s"]) if pd.notna(row["log_l2_flop_per_byte"]) else None
        for row in rows
    ]
    occupied = [(dot, 0.0, 0.0) for dot in (*dots, *l2_dots) if dot]
    hollow, filled = list[Line | Point](), list[Point]()
    for row, dot, l2_dot in zip(rows, dots, l2_dots, strict=True):
        key, title = keys[str(row["kind"])], str(row["title"])
        if l2_dot:
            hollow += [Line(f"{key.look} pair", dot, l2_dot), Point(f"hollow {key.look}", l2_dot, key.shape, title)]
        side = _free_side(dot, occupied, levels)
        filled.append(Point(key.look, dot, key.shape, title, number_of(str(row["name"])), side))
    return hollow, filled


def _free_side(dot: Dot, occupied: list[_Anchor], levels: Sequence[float]) -> tuple[int, int, str]:
    """Choose the side where a number touches the fewest points, numbers and flat roofs, and add it to `occupied`.

    A collision counts twice on a wide screen, and once on a narrow one.
    """
    # the approximate center of the text instead of its anchor
    candidates = [(dot, 1.4 * across, down - 4.0) for across, down, _ in _SIDES]
    costs = []
    for candidate in candidates:
        height = _pixels(*candidate)[1]
        is_on_line = any(abs(height - _pixels(Dot(0, level))[1]) < _POINT_SIZE[1] for level in levels)
        costs.append(2 * _touches(candidate, occupied, _WIDE) + _touches(candidate, occupied, _NARROW) + 2 * is_on_line)
    best = costs.index(min(costs))
    occupied.append(candidates[best])
    return _SIDES[best]


def _touches(candidate: _Anchor, occupied: list[_Anchor], size: tuple[int, int]) -> bool:
    (width, height), (x, y) = _POINT_SIZE, _pixels(*candidate, size=size)
    positions = (_pixels(*anchor, size=size) for anchor in occupied)
    return any(abs(x - left) < width / 2 + 4 and abs(y - top) < height / 2 + 4 for left, top in positions)


def _pixels(dot: Dot, across: float = 0.0, down: float = 0.0, *, size: tuple[int, int] = _WIDE) -> tuple[float, float]:
    return dot.x / 100 * size[0] + across, dot.y / 100 * size[1] + down


def _title(row: Mapping[Any, Any], words: RooflineWords, slopes: Mapping[str, float]) -> str:
    per_byte = arithmetic(_INTENSITY, [str(row["kind"])])
    intensity = f"{format_value(row[_INTENSITY], per_byte)}{words.per_byte}"
    if pd.notna(row["log_l2_flop_per_byte"]):
        intensity += f", {format_value(row['l2_flop_per_byte'], per_byte)} of L2"
    peak = f", {format_value(row['peak_pct'], 'peak_pct')} of its roof" if pd.notna(row["peak_pct"]) else ""
    kind = short_text(str(row["kind"]))
    rate = format_value(row[_RATE], arithmetic(_RATE, [kind]))
    return f"{row['label']}, {kind}: {rate}{peak}, {intensity}{_limit(row, slopes)}"


def _limit(row: Mapping[Any, Any], slopes: Mapping[str, float]) -> str:
    """Name the roof nearest to a point; like ncu's rules, a point far below all roofs is limited by latency instead."""
    memories = {"DRAM": row["log_flop_per_byte"], "L2": row["log_l2_flop_per_byte"]}
    shares = {
        # rate / (bandwidth * intensity), computed with logarithms
        memory: 100 * 10 ** (row["log_flop_per_s"] - slopes[memory] - intensity)
        for memory, intensity in memories.items()
        if memory in slopes and pd.notna(intensity)
    }
    if pd.notna(row["peak_pct"]):
        shares[short_text(str(row["kind"]))] = float(row["peak_pct"])
    if not shares:
        return ""
    nearest = max(shares, key=shares.__getitem__)
    share = format_value(shares[nearest], "peak_pct")
    if shares[nearest] >= LIMITED_PCT:
        return f"; limited by {nearest}, {share} of its roof"
    return f"; limited by no roof; the nearest is {nearest} at {share}"


def _roofline_notes(words: RooflineWords, minor: int, major: int, *, has_l2: bool) -> Iterator[str]:
    hollow = " Hollow points, joined to them: per byte from and to L2." if has_l2 else ""
    yield (
        f"{words.note}{hollow} A point near a sloping roof "
        "is limited by that memory, near a flat roof by that arithmetic, and far below both by neither."
    )
    if minor:
        yield f"Not drawn: {counted(minor, 'kind')} of arithmetic below 1 % of the kernel's highest rate."
    if major > MAX_POINTS:
        yield omission(MAX_POINTS, major, "points")
