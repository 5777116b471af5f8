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
from nightsight.render.figure.axes import LogAxis, Tick, upward
from nightsight.render.figure.plot import Dot, Key, Line, LogPlane, Plane, Plot, Point, Text, grid, marker
from nightsight.render.table.replayed import number_of
from nightsight.render.table.view import counted, floats, short_text
from nightsight.units import SCALES, arithmetic, format_value

Frame = pd.DataFrame
_Place = tuple[Dot, float, float]  # a dot, and an offset from it in pixels
_Roof = tuple[Line, Text]

MOST: Final = 40
_CHARTS: Final = 4
_RATE: Final = "flop_per_s"
_INTENSITY: Final = "flop_per_byte"
_MINOR: Final = 0.01  # of a kernel's highest rate: below that, a kind of arithmetic is not drawn
_LEAST, _HIGHEST = 1e-9, 1e21  # below and above anything measured; sums of their logarithms stay small
_SAME: Final = 0.01  # decades: roofs this close look like one line and share a label
_LABEL_HEIGHT: Final = 6.0
_LEAST_HEIGHT: Final = 3.5  # percent: text between two lines that it nearly touches
# where the number of a point can go: offset in pixels, and the text anchor
_SIDES: Final = ((9, 4, "start"), (-9, 4, "end"), (0, -10, "middle"), (0, 18, "middle"))
# plot size in pixels on a wide and on a narrow screen; used to test whether labels would touch
_SIZE: Final = (600, 340)
_NARROW: Final = (210, 336)
_ROOM: Final = (16, 12)
_LETTER: Final = (6.5, 18)  # pixels: width of a letter and height of a line in labels


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


def rooflines(points: Frame, roofs: Frame, short: Callable[[str], str], words: Words = OF_KERNELS) -> tuple[Plane, ...]:
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


def _roofline(points: Frame, roofs: Frame, words: Words) -> Plane:
    largest = points.groupby("name")[_RATE].transform("max")
    major = points[points[_RATE] >= _MINOR * largest]
    shown, minor = major.head(MOST), len(points) - len(major)
    kinds = list(dict.fromkeys(shown["kind"].astype("str")))
    slopes, levels = _slopes(roofs), _levels(roofs, kinds)
    shown = shown.assign(limit=[_limit(row, slopes) for row in shown.to_dict("records")])
    plane = _plane(shown, list(slopes.values()), list(levels))
    keys = {kind: marker(short_text(kind), place) for place, kind in enumerate(kinds)}
    shown = shown.assign(title=[_title(row, words) for row in shown.to_dict("records")])
    hollow, filled = _points(shown, plane, keys, [plane.dot(0, level).y for level in levels])
    # labels should cover neither the points nor their hollow L2 partners
    drawn = [_pixels(mark.at) for mark in (*hollow, *filled) if isinstance(mark, Point)]
    lines = [*_slope_roofs(slopes, levels, plane), *_level_roofs(slopes, levels, plane, drawn)]
    across, up = _bare(plane.across.ticks(), _INTENSITY), _bare(upward(plane.up.ticks()), _RATE)
    marks = (*grid(across, up), *(line for line, _ in lines), *(text for _, text in lines), *hollow, *filled)
    gpu = short_text(str(roofs["gpu"].iloc[0])) if len(roofs) else gpu_name(shown["device"].iloc[0])
    return Plane(
        look="roofline",
        title=gpu,
        keys=tuple(keys.values()),
        plot=Plot(_summary(gpu, shown), marks, up, across),
        across=_symbol(arithmetic(_INTENSITY, kinds)),
        up=_symbol(arithmetic(_RATE, kinds)),
        notes=tuple(_notes(words, minor, len(major), has_l2=bool(hollow))),
    )


def _symbol(unit: str) -> str:
    return SCALES[unit][0][1]


def _bare(ticks: Iterable[Tick], unit: str) -> tuple[Tick, ...]:
    """Return ticks whose unit is at the axis: their texts keep only its prefix."""
    return tuple(replace(tick, text=tick.text.removesuffix(_symbol(unit)).strip()) for tick in ticks)


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

    Labels go on opposite outer sides, so that those of two parallel roofs do not touch.
    """
    ceiling = max(levels, default=plane.up.high)
    for place, (name, slope) in enumerate(slopes.items()):
        begin, end = max(plane.across.low, plane.up.low - slope), min(plane.across.high, ceiling - slope)
        if begin >= end:
            continue
        is_outer = place > 0
        at = begin + (end - begin) * (0.6 if is_outer else 0.3)
        label = f"{short_text(name)}: {format_value(10.0**slope, 'bytes_per_s')}"
        first, last, middle = (plane.dot(x, x + slope) for x in (begin, end, at))
        yield Line("roof", first, last), Text(f"of-roof slope {'end' if is_outer else 'start'}", middle, label)


def _level_roofs(
    slopes: Mapping[str, float],
    levels: Mapping[float, tuple[str, str]],
    plane: LogPlane,
    points: Sequence[tuple[float, float]],
) -> Iterator[_Roof]:
    """Yield the flat roof of each kind, from its ridge with the fastest memory to the right edge.

    Of the places where a label does not cross a neighboring line, the one that covers the fewest points is chosen:
    over its roof, under it, or between it and the next one if these are close.
    """
    fastest = max(slopes.values(), default=math.inf)
    # with sentinels for the neighbors of the lowest and the highest roof
    heights = [100.0, *(plane.dot(0, level).y for level in levels), -100.0]
    for place, (level, (label, amount)) in enumerate(levels.items(), start=1):
        below, height, above = heights[place - 1 : place + 2]
        begin, end = plane.dot(level - fastest, level), plane.dot(plane.across.high, level)
        fits = {
            "over": height - above >= _LABEL_HEIGHT,
            "under": below - height > _LABEL_HEIGHT,
            "between": _LEAST_HEIGHT <= height - above < _LABEL_HEIGHT,
        }
        sides = [side for side, has_room in fits.items() if has_room] or ["over"]
        places = [(end, "end", side) for side in sides] + [(begin, "start", side) for side in sides]
        # in letters; narrow screens leave out the amount, but each letter covers more of the plot
        width = max(len(label) + 2 + len(amount), _SIZE[0] / _NARROW[0] * len(label))
        # min() takes the first of equally good places: they are in order of preference
        at, anchor, side = min(places, key=lambda each: _covered(width, each, points))
        yield Line("roof", begin, end), Text(f"of-roof {side} {anchor}", at, label, more=f": {amount}")


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


def _points(
    points: Frame, plane: LogPlane, keys: Mapping[str, Key], lines: Sequence[float]
) -> tuple[list[Line | Point], list[Point]]:
    """Return the points by L2 bytes, hollow and joined to the others, and these, which have numbers."""
    rows = points.to_dict("records")
    dots = [plane.dot(row["log_flop_per_byte"], row["log_flop_per_s"]) for row in rows]
    others = [plane.dot(row["log_l2_flop_per_byte"], row["log_flop_per_s"]) if _is_there(row) else None for row in rows]
    taken = [(dot, 0.0, 0.0) for dot in (*dots, *others) if dot]
    hollow, filled = list[Line | Point](), list[Point]()
    for row, dot, other in zip(rows, dots, others, strict=True):
        key, title = keys[str(row["kind"])], str(row["title"])
        if other:
            hollow += [Line(f"{key.look} pair", dot, other), Point(f"hollow {key.look}", other, key.shape, title)]
        side = _free_side(dot, taken, lines)
        filled.append(Point(key.look, dot, key.shape, title, number_of(str(row["name"])), side))
    return hollow, filled


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
