"""Geometry of rooflines: axes in decades, the roofs of one GPU, and a point for each kind of arithmetic of a kernel.

Positions are in percent of the plot from the top left; logarithms are base 10.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.peaks import LIMITED_PCT
from nightsight.model.report import gpu_name
from nightsight.render.figure.axes import Tick
from nightsight.render.figure.bars import MIX_COLORS, Dot
from nightsight.render.table.replayed import number_of
from nightsight.render.table.view import counted, floats, short_text
from nightsight.units import SCALES, arithmetic, format_value, scale_for

Frame = pd.DataFrame
_Place = tuple[Dot, float, float]  # a dot, and an offset from it in pixels

MOST: Final = 40
_CHARTS: Final = 4
_TICKS: Final = 7
_RATE: Final = "flop_per_s"
_INTENSITY: Final = "flop_per_byte"
_MINOR: Final = 0.01  # of a kernel's highest rate: below that, a kind of arithmetic is not drawn
_LEAST, _HIGHEST = 1e-9, 1e21  # below and above anything measured; sums of their logarithms stay small
_SAME: Final = 0.01  # decades: roofs this close look like one line and share a label
_LABEL_HEIGHT: Final = 6.0
_LEAST_HEIGHT: Final = 3.5  # percent: text between two lines that it nearly touches
# SVG paths of the markers, in pixels around the point
SHAPES: Final = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "M-4.5-4.5h9v9h-9z",
    "M0-6.5L6.5 0 0 6.5-6.5 0z",
    "M0-6L6 4.5H-6z",
    "M0 6L6-4.5H-6z",
    "M-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
)
# where the number of a point can go: offset in pixels, and the text anchor
_SIDES: Final = ((9, 4, "start"), (-9, 4, "end"), (0, -10, "middle"), (0, 18, "middle"))
# plot size in pixels on a wide and on a narrow screen; used to test whether labels would touch
_SIZE: Final = (600, 340)
_NARROW: Final = (210, 336)
_ROOM: Final = (16, 12)
_LETTER: Final = (6.5, 18)  # pixels: width of a letter and height of a line in labels


@dataclass(frozen=True)
class Key:
    """A legend entry: a kind of arithmetic with the color and the marker of its points."""

    kind: str
    series: str
    shape: str


@dataclass(frozen=True)
class Roof:
    """A straight line with a label at the dot `at`; `anchor` is the text anchor of the label.

    position: of the label: `over` or `under` a flat roof, `between` it and the next one if these are close, `slope` for
    sloping roofs. amount: continues the label on screens that have room for it.
    """

    label: str
    amount: str
    begin: Dot
    end: Dot
    at: Dot
    anchor: str
    position: str


@dataclass(frozen=True)
class Point:
    """One kind of arithmetic of a kernel; `l2` is its position by L2 bytes, `side` the place of its number."""

    key: Key
    number: str
    at: Dot
    l2: Dot | None
    side: tuple[int, int, str]
    title: str


@dataclass(frozen=True)
class Roofline:
    """The plot of one GPU; `summary` describes it in words.

    rate, intensity: the units of `rates`, without a prefix, and of `intensities`.
    """

    title: str
    keys: tuple[Key, ...]
    roofs: tuple[Roof, ...]
    points: tuple[Point, ...]
    rate: str
    intensity: str
    rates: tuple[Tick, ...]
    intensities: tuple[Tick, ...]
    summary: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Words:
    """What a plot says about its points: of which bytes they are, and what stands below it."""

    per_byte: str
    note: str


OF_KERNELS: Final = Words(" of DRAM", "Numbers identify the kernels. Filled points: per byte from and to DRAM.")
OF_OPERATORS: Final = Words(
    "",
    "Numbers are the rows of the table whose operations are counted. "
    "Per byte that an operator has to read and write at least.",
)


@dataclass(frozen=True)
class _Axes:
    """The range shown, as powers of ten: `left` to `right` in FLOP/byte, `bottom` to `top` in FLOP/s."""

    left: int
    right: int
    bottom: int
    top: int

    def dot(self, intensity: float, rate: float) -> Dot:
        x = (intensity - self.left) / (self.right - self.left)
        y = (self.top - rate) / (self.top - self.bottom)
        return Dot(*(round(100.0 * min(max(place, 0.0), 1.0), 2) for place in (x, y)))


def rooflines(
    points: Frame, roofs: Frame, short: Callable[[str], str], words: Words = OF_KERNELS
) -> tuple[Roofline, ...]:
    """Return a roofline per GPU of the points with a rate and bytes; empty if there are none or a column is missing.

    short: shortens a name, whose number it keeps. points: name, device, kind, flop_per_s, flop_per_byte,
    l2_flop_per_byte and peak_pct. roofs: device, gpu, roof, bytes_per_s and flop_per_s.
    """
    known = _known(points)
    if known.empty:
        return ()
    if not {"device", "gpu", "roof", "bytes_per_s", _RATE} <= set(roofs.columns):
        roofs = Frame(columns=["device", "gpu", "roof", "bytes_per_s", _RATE])
    known = known.assign(label=known["name"].astype("str").map(short))
    groups = list(known.groupby("device", sort=True))[:_CHARTS]
    return tuple(_roofline(rows, roofs[roofs["device"] == device], words) for device, rows in groups)


def _known(points: Frame) -> Frame:
    if not {"name", "device", "kind", _RATE, "flop_per_byte"} <= set(points.columns):
        return Frame()
    optional = {name: np.nan for name in ("l2_flop_per_byte", "peak_pct") if name not in points}
    table = points.assign(**optional)
    logs = {f"log_{name}": _log(table[name]) for name in (_RATE, "flop_per_byte", "l2_flop_per_byte")}
    table = table.assign(**logs)
    return table.dropna(subset=["kind", "log_flop_per_s", "log_flop_per_byte"])


def _log(column: "pd.Series[Any]") -> "pd.Series[float]":
    """Return the logarithms of values above 0, NaN for all others."""
    values = pd.Series(floats(column), column.index)
    values = values.where((values > 0) & np.isfinite(values)).clip(_LEAST, _HIGHEST)
    return pd.Series(np.log10(values.to_numpy()), column.index)


def _roofline(points: Frame, roofs: Frame, words: Words) -> Roofline:
    largest = points.groupby("name")[_RATE].transform("max")
    major = points[points[_RATE] >= _MINOR * largest]
    shown, minor = major.head(MOST), len(points) - len(major)
    kinds = list(dict.fromkeys(shown["kind"].astype("str")))
    slopes, levels = _slopes(roofs), _levels(roofs, kinds)
    shown = shown.assign(limit=[_limit(row, slopes) for row in shown.to_dict("records")])
    axes = _axes(shown, list(slopes.values()), list(levels))
    keys = {kind: _key(kind, place) for place, kind in enumerate(kinds)}
    shown = shown.assign(title=[_title(row, words) for row in shown.to_dict("records")])
    drawn = tuple(_points(shown, axes, keys, [axes.dot(axes.right, level).y for level in levels]))
    gpu = short_text(str(roofs["gpu"].iloc[0])) if len(roofs) else gpu_name(shown["device"].iloc[0])
    return Roofline(
        gpu,
        tuple(keys.values()),
        (*_slope_roofs(slopes, levels, axes), *_level_roofs(slopes, levels, axes, drawn)),
        drawn,
        SCALES[arithmetic(_RATE, kinds)][0][1],
        SCALES[arithmetic(_INTENSITY, kinds)][0][1],
        tuple(Tick(axes.dot(0, place).y, _rate_text(place)) for place in _decades(axes.bottom, axes.top)),
        tuple(Tick(axes.dot(place, 0).x, f"{10.0**place:,.10g}") for place in _decades(axes.left, axes.right)),
        _summary(gpu, shown),
        tuple(_notes(words, minor, len(major), has_l2=any(point.l2 for point in drawn))),
    )


def _slopes(roofs: Frame) -> dict[str, float]:
    """Return the logarithm of each memory's bandwidth (bytes/s), the slowest memory first."""
    logs = dict(zip(roofs["roof"].astype("str"), _log(roofs["bytes_per_s"]), strict=True))
    return dict(sorted(((name, log) for name, log in logs.items() if math.isfinite(log)), key=lambda pair: pair[1]))


def _levels(roofs: Frame, kinds: Sequence[str]) -> dict[float, tuple[str, str]]:
    """Return the flat roofs of `kinds`: log of the rate to (label, rate), the lowest first; equal roofs are merged."""
    rows = roofs[roofs["roof"].isin(kinds)]
    rows = rows.assign(log=_log(rows[_RATE])).dropna(subset="log").sort_values(["log", "roof"])
    levels: dict[float, list[str]] = {}
    texts: dict[float, tuple[str, str]] = {}
    for log, kind, rate in zip(rows["log"], rows["roof"].astype("str"), floats(rows[_RATE]), strict=True):
        # levels are ascending, so only roofs slightly below can be merged with this one
        near = next((level for level in levels if log - level <= _SAME), log)
        levels.setdefault(near, []).append(short_text(kind))
        texts[near] = (", ".join(levels[near]), format_value(rate, arithmetic(_RATE, levels[near])))
    return texts


def _axes(points: Frame, slopes: Sequence[float], levels: Sequence[float]) -> _Axes:
    """Choose whole decades that include all points, all roofs, and the ridge points where roofs meet."""
    # the intensity at which a sloping roof meets a flat one
    ridges = [level - slope for level in levels for slope in slopes]
    across = [*ridges, *points["log_flop_per_byte"], *points["log_l2_flop_per_byte"].dropna()]
    up = [*levels, *points["log_flop_per_s"]]
    left, right = math.floor(min(across)), math.ceil(max(across))
    bottom, top = math.floor(min(up)), math.ceil(max(up))
    return _Axes(left, max(right, left + 1), bottom, max(top, bottom + 1))


def _slope_roofs(slopes: Mapping[str, float], levels: Iterable[float], axes: _Axes) -> Iterator[Roof]:
    """Yield the sloping roof of each memory, from where it enters the plot to the highest flat roof.

    Labels go on opposite outer sides, so that those of two parallel roofs do not touch.
    """
    ceiling = max(levels, default=float(axes.top))
    for place, (name, slope) in enumerate(slopes.items()):
        begin, end = max(axes.left, axes.bottom - slope), min(axes.right, ceiling - slope)
        if begin >= end:
            continue
        is_outer = place > 0
        at = begin + (end - begin) * (0.6 if is_outer else 0.3)
        label = f"{short_text(name)}: {format_value(10.0**slope, 'bytes_per_s')}"
        first, last, middle = (axes.dot(x, x + slope) for x in (begin, end, at))
        yield Roof(label, "", first, last, middle, "end" if is_outer else "start", "slope")


def _level_roofs(
    slopes: Mapping[str, float], levels: Mapping[float, tuple[str, str]], axes: _Axes, points: Sequence[Point]
) -> Iterator[Roof]:
    """Yield the flat roof of each kind, from its ridge with the fastest memory to the right edge.

    Of the places where a label does not cross a neighboring line, the one that covers the fewest points is chosen.
    """
    # labels should cover neither the points nor their hollow L2 partners
    dots = [_pixels(dot) for point in points for dot in (point.at, point.l2) if dot]
    fastest = max(slopes.values(), default=math.inf)
    # with sentinels for the neighbors of the lowest and the highest roof
    heights = [100.0, *(axes.dot(axes.right, level).y for level in levels), -100.0]
    for place, (level, (label, amount)) in enumerate(levels.items(), start=1):
        below, height, above = heights[place - 1 : place + 2]
        begin, end = axes.dot(max(level - fastest, axes.left), level), axes.dot(axes.right, level)
        fits = {
            "over": height - above >= _LABEL_HEIGHT,
            "under": below - height > _LABEL_HEIGHT,
            "between": _LEAST_HEIGHT <= height - above < _LABEL_HEIGHT,
        }
        sides = [side for side, has_room in fits.items() if has_room] or ["over"]
        places = [(end, "end", side) for side in sides] + [(begin, "start", side) for side in sides]
        # in letters; narrow screens leave out the amount, but each letter covers more of the plot
        width = max(len(label) + 2 + len(amount), _SIZE[0] / _NARROW[0] * len(label))
        # index() below takes the first of equally good places: they are in order of preference
        covered = [_covered(width, place, dots) for place in places]
        yield Roof(label, amount, begin, end, *places[covered.index(min(covered))])


def _covered(letters: float, place: tuple[Dot, str, str], dots: Sequence[tuple[float, float]]) -> int:
    """Count the points that a label at `place` (dot, text anchor, over or under the line) would cover."""
    at, anchor, position = place
    (x, y), (letter, line) = _pixels(at), _LETTER
    width = letter * letters
    left, top = (x - width if anchor == "end" else x), (y if position == "under" else y - line)
    width_too, height_too = _ROOM
    return sum(
        left - width_too < across < left + width + width_too and top - height_too < down < top + line + height_too
        for across, down in dots
    )


def _key(kind: str, place: int) -> Key:
    series = f"mix-{place % MIX_COLORS + 1}"
    # shapes shift after each round of colors, so that pairs of color and shape do not repeat early
    return Key(short_text(kind), series, SHAPES[(place + place // MIX_COLORS) % len(SHAPES)])


def _points(points: Frame, axes: _Axes, keys: Mapping[str, Key], lines: Sequence[float]) -> Iterator[Point]:
    rows = points.to_dict("records")
    dots = [axes.dot(row["log_flop_per_byte"], row["log_flop_per_s"]) for row in rows]
    others = [axes.dot(row["log_l2_flop_per_byte"], row["log_flop_per_s"]) if _is_there(row) else None for row in rows]
    taken = [(dot, 0.0, 0.0) for dot in (*dots, *others) if dot]
    for row, dot, other in zip(rows, dots, others, strict=True):
        side = _free_side(dot, taken, lines)
        yield Point(keys[str(row["kind"])], number_of(str(row["name"])), dot, other, side, str(row["title"]))


def _is_there(row: Mapping[Any, Any]) -> bool:
    return bool(pd.notna(row["log_l2_flop_per_byte"]))


def _free_side(dot: Dot, taken: list[_Place], lines: Sequence[float]) -> tuple[int, int, str]:
    """Choose the side where a number touches the fewest points, numbers and flat roofs, and add it to `taken`.

    A collision counts twice on a wide screen, and once on a narrow one.
    """
    # the approximate center of the text rather than its anchor
    places = [(dot, 1.4 * across, down - 4.0) for across, down, _ in _SIDES]
    costs = [
        2 * _touches(place, taken, _SIZE) + _touches(place, taken, _NARROW) + 2 * _is_on_line(place, lines)
        for place in places
    ]
    chosen = costs.index(min(costs))
    taken.append(places[chosen])
    return _SIDES[chosen]


def _touches(place: _Place, taken: list[_Place], size: tuple[int, int]) -> bool:
    (width, height), (x, y) = _ROOM, _pixels(*place, size=size)
    others = (_pixels(*other, size=size) for other in taken)
    return any(abs(x - left) < width / 2 + 4 and abs(y - top) < height / 2 + 4 for left, top in others)


def _is_on_line(place: _Place, lines: Sequence[float]) -> bool:
    height = _pixels(*place)[1]
    return any(abs(height - _pixels(Dot(0, line))[1]) < _ROOM[1] for line in lines)


def _pixels(dot: Dot, across: float = 0.0, down: float = 0.0, *, size: tuple[int, int] = _SIZE) -> tuple[float, float]:
    return dot.x / 100 * size[0] + across, dot.y / 100 * size[1] + down


def _title(row: Mapping[Any, Any], words: Words) -> str:
    per_byte = arithmetic(_INTENSITY, [str(row["kind"])])
    intensity = f"{format_value(row[_INTENSITY], per_byte)}{words.per_byte}"
    if _is_there(row):
        intensity += f", {format_value(row['l2_flop_per_byte'], per_byte)} of L2"
    peak = f", {format_value(row['peak_pct'], 'peak_pct')} of its roof" if pd.notna(row["peak_pct"]) else ""
    kind = short_text(str(row["kind"]))
    rate = format_value(row[_RATE], arithmetic(_RATE, [kind]))
    return f"{row['label']}, {kind}: {rate}{peak}, {intensity}{row['limit']}"


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
    nearest = max(shares, key=lambda name: shares[name])
    share = format_value(shares[nearest], "peak_pct")
    if shares[nearest] >= LIMITED_PCT:
        return f"; limited by {nearest}, {share} of its roof"
    return f"; limited by no roof; the nearest is {nearest} at {share}"


def _decades(first: int, last: int) -> range:
    return range(first, last + 1, max(math.ceil((last - first) / _TICKS), 1))


def _rate_text(place: int) -> str:
    """Format a power of ten in FLOP/s as `10 T`."""
    scale = scale_for(_RATE, [10.0**place])
    return f"{10.0**place / scale.divisor:,.10g} {scale.symbol.removesuffix('FLOP/s')}".strip()


def _summary(gpu: str, points: Frame) -> str:
    unit = arithmetic(_RATE, points["kind"].astype("str"))
    low, high = (format_value(rate, unit) for rate in (points[_RATE].min(), points[_RATE].max()))
    return f"Roofline of {gpu}: {counted(len(points), 'point')}, {low} to {high}; see the table for their values"


def _notes(words: Words, minor: int, count: int, *, has_l2: bool) -> Iterator[str]:
    hollow = " Hollow points, joined to them: per byte from and to L2." if has_l2 else ""
    yield (
        f"{words.note}{hollow} A point near a sloping roof "
        "is limited by that memory, near a flat roof by that arithmetic, and far below both by neither."
    )
    if minor:
        yield f"Not drawn: {counted(minor, 'kind')} of arithmetic below 1 % of the kernel's highest rate."
    if count > MOST:
        yield f"The first {MOST} of {count:,} points."
