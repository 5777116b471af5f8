"""Geometry of strips: the time of each instance of a repeated range, one strip per range and process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.render.figure.axes import Tick, level_ticks, measured, percent, round_steps, step_scale
from nightsight.render.figure.bars import Dot
from nightsight.render.figure.curves import GRID
from nightsight.render.table.view import Floats, counted, short_text
from nightsight.units import format_value

Frame = pd.DataFrame
_Side = tuple[str, int]  # text anchor of a ring's name, and pixels from the middle down to its base line

_PATHS: Final = 3
_PANELS: Final = 8
_NUMBERS: Final = ("number", "time_ns", "gpu_busy_ns")
_OUTLIER: Final = 1.5  # times the median, as in the table
_BEYOND: Final = 4.0  # times the median: a longer instance would flatten all others
_HEADROOM: Final = 0.2
_RINGS: Final = 12
_NAMED: Final = 5
_HOVERED: Final = 100
_DENSE: Final = 150
_TICKS: Final = 6
# percent of the plot from which on a name goes to the left of its ring, if nothing is in the way
_TURN: Final = 55.0
_NARROW: Final = (210.0, 96.0)  # plot size in pixels on a narrow screen
_LETTER: Final = 6.5  # width of a letter in pixels
_BESIDE: Final = (-9, 18)  # pixels from the middle of a ring to the base line of a name above or below it
_RADIUS: Final = 7.0  # radius of a ring in pixels
_HALF_LINE: Final = 5.0
# percent of the plot around a name that must stay free of other names
_ROOM: Final = (24.0, 14.0)


@dataclass(frozen=True)
class Ring:
    """An outlier; `text` names it, `anchor` is the text anchor, `is_beyond` means off scale.

    down: pixels from the middle down to the base line of the text. is_further: narrow plots leave the text out.
    """

    at: Dot
    title: str
    text: str
    anchor: str
    down: int
    is_beyond: bool
    is_further: bool


@dataclass(frozen=True)
class Instance:
    """The hover area with the numbers of one instance, in percent from the left."""

    x: float
    width: float
    title: str


@dataclass(frozen=True)
class Strip:
    """One range path in one process: `time` and `busy` are dots as SVG paths on the GRID.

    median: in percent from the top. is_dense: so many dots that they touch.
    """

    label: str
    remark: str
    summary: str
    time: str
    busy: str
    median: float
    is_dense: bool
    rings: tuple[Ring, ...]
    instances: tuple[Instance, ...]
    levels: tuple[Tick, ...]
    numbers: tuple[Tick, ...]


@dataclass(frozen=True)
class Strips:
    """All strips; each has its own scale."""

    title: str
    strips: tuple[Strip, ...]
    has_busy: bool
    notes: tuple[str, ...]
    grid: int = GRID


def strips(frame: Frame, medians: Frame) -> tuple[Strips, ...]:
    """Return a strip per path and process of iteration_times; empty if it has no rows or lacks a column.

    medians: range_iterations, with the medians of all instances; without it the median is that of the rows.
    """
    known = _known(frame) if {"path", *_NUMBERS} <= set(frame.columns) else Frame()
    if known.empty:
        return ()
    known = known[known["path"].isin(known["path"].unique()[:_PATHS])]
    medians = medians.assign(path=_texts(medians, "path"), pid=_texts(medians, "pid"))
    series = list(dict.fromkeys(zip(known["path"], known["pid"], strict=True)))
    has_processes = known["pid"].nunique() > 1
    drawn = tuple(
        _strip(
            f"{one[0]}, process {one[1]}" if has_processes else one[0],
            known[_is(known, one)],
            medians[_is(medians, one)],
        )
        for one in series[:_PANELS]
    )
    is_beyond = any(ring.is_beyond for strip in drawn for ring in strip.rings)
    has_busy = any(strip.busy for strip in drawn)
    notes = tuple(_notes(beyond=is_beyond, left_out=len(series) - len(drawn)))
    return (Strips("Time of each instance, in the order they started", drawn, has_busy, notes),)


def _known(frame: Frame) -> Frame:
    """Return the instances with a time, grouped by path and process in the order of the table."""
    numbers = {name: measured(frame[name]) for name in _NUMBERS}
    known = pd.DataFrame({**numbers, "path": _texts(frame, "path"), "pid": _texts(frame, "pid")})
    known = known.dropna(subset=["number", "time_ns"])
    known = known[(known["number"] >= 0) & (known["time_ns"] >= 0)]
    place = known.groupby(["path", "pid"], sort=False).ngroup()
    return known.assign(place=place).sort_values(["place", "number"], kind="stable")


def _texts(frame: Frame, column: str) -> list[str]:
    """Return a column as texts, all empty if it is missing: tables of earlier versions have no process."""
    return frame[column].astype("str").tolist() if column in frame else [""] * len(frame)


def _is(frame: Frame, series: tuple[str, str]) -> "pd.Series[bool]":
    """Flag the rows of one path in one process."""
    return (frame["path"] == series[0]) & (frame["pid"] == series[1])


def _strip(label: str, rows: Frame, medians: Frame) -> Strip:
    time, busy = rows["time_ns"].to_numpy(), rows["gpu_busy_ns"].to_numpy()
    count, median = _statistics(rows, medians)
    # with a median of 0, nothing is off the scale
    limit = _BEYOND * median if median > 0 else float(time.max())
    highest = max(time[time <= limit].max(initial=0.0), np.nan_to_num(busy[busy <= limit]).max(initial=0.0))
    # names of instances beyond the scale are at the top edge: leave room for them above the dots
    top, levels = level_ticks(float(highest) * (1.0 + _HEADROOM * bool((time > limit).any())), unit="ns")
    # + 0.5: the middle of the slot of an instance
    across = 100.0 * (rows["number"].to_numpy() + 0.5) / count
    down, busy_down = (100.0 * (1 - np.clip(values / top, 0, 1)) for values in (time, busy))
    remark = _remark(count, median, busy)
    return Strip(
        short_text(label),
        remark,
        f"{short_text(label)}: {remark}, longest {format_value(float(time.max()), 'time_ns')}",
        _dots(across[time <= top], down[time <= top]),
        _dots(across[busy <= top], busy_down[busy <= top]),
        percent(1 - min(median / top, 1.0)),
        len(rows) > _DENSE,
        tuple(_rings(rows, across, down, median=median, top=top)),
        tuple(_instances(rows, across, count)) if len(rows) <= _HOVERED else (),
        levels,
        tuple(_numbers(count)),
    )


def _statistics(rows: Frame, medians: Frame) -> tuple[int, float]:
    """Return the number of all instances, drawn or not, and their median time (ns)."""
    most, median = int(rows["number"].max()) + 1, float(rows["time_ns"].median())
    if not len(medians) or not {"instances", "med_ns"} <= set(medians.columns):
        return most, median
    counts, known = (measured(medians[name]) for name in ("instances", "med_ns"))
    if not (counts[0] > 0 and known[0] >= 0):
        return most, median
    return max(int(counts[0]), most), float(known[0])


def _remark(count: int, median: float, busy: Floats) -> str:
    texts = [counted(count, "instance"), f"median {format_value(median, 'time_ns')}"]
    if np.isfinite(busy).any():
        texts.append(f"median GPU busy time {format_value(float(np.nanmedian(busy)), 'time_ns')}")
    return ", ".join(texts)


def _dots(across: Floats, down: Floats) -> str:
    """Return a path of zero-length lines: only their round caps are visible, as dots."""
    known = np.isfinite(across) & np.isfinite(down)
    places = (np.rint(GRID / 100.0 * values[known]).astype(int).tolist() for values in (across, down))
    return "".join(f"M{x} {y}h0" for x, y in zip(*places, strict=True))


def _rings(rows: Frame, across: Floats, down: Floats, *, median: float, top: float) -> Iterator[Ring]:
    """Yield rings around the outliers, the slowest first; with too many outliers, only those whose name fits."""
    time, number = rows["time_ns"].to_numpy(), rows["number"].tolist()
    slow = np.flatnonzero(time > _OUTLIER * median) if median > 0 else np.empty(0, dtype=np.int64)
    slow = slow[np.argsort(-time[slow], kind="stable")]
    is_dense = len(rows) > _DENSE
    dots = [_dot(across, down, place) for place in slow.tolist()]
    texts = [
        f"#{number[place]:.0f}: {format_value(value, 'time_ns')} ({value / median:,.1f}×)"
        for place, value in zip(slow, time[slow].tolist(), strict=True)
    ]
    sides = [_side(at, is_dense=is_dense) for at in dots]
    # in dense strips a name cannot avoid all dots, so it only avoids outliers
    others = dots if is_dense else [_dot(across, down, place) for place in range(len(rows))]
    free = _narrow_side(dots[0], sides[0], len(texts[0]), others) if dots else None
    # only the slowest outlier is named on narrow screens, so only its name must fit there
    sides[:1] = [free] if free else sides[:1]
    named = _named(dots, [anchor for anchor, _ in sides])
    for position, (place, at) in enumerate(zip(slow, dots, strict=True)):
        if position in named or len(slow) <= _RINGS:
            text, is_further = texts[position], position > 0 or free is None
            name = text if position in named else ""
            yield Ring(at, text, name, *sides[position], bool(time[place] > top), is_further)


def _dot(across: Floats, down: Floats, place: int) -> Dot:
    return Dot(round(float(across[place]), 2), round(float(down[place]), 2))


def _side(at: Dot, *, is_dense: bool) -> _Side:
    """Return the place of a name: next to its ring, or slightly above if a row of dots would run through it."""
    return "end" if at.x > _TURN else "start", -7 if is_dense and at.y > _ROOM[1] else 4


def _narrow_side(at: Dot, usual: _Side, letters: int, others: Sequence[Dot]) -> _Side | None:
    """Choose a place where a name covers no dot and fits a narrow plot (then it fits a wide one too); None if none."""
    width, height = _NARROW
    flipped = "start" if usual[0] == "end" else "end"
    x, y, length = at.x / 100 * width, at.y / 100 * height, _LETTER * letters
    dots = [(dot.x / 100 * width, dot.y / 100 * height) for dot in others if dot != at]
    places = [usual, (flipped, usual[1])] + [(anchor, down) for down in _BESIDE for anchor in (usual[0], flipped)]
    for anchor, down in places:
        left = x + 10 if anchor == "start" else x - 10 - length
        # the vertical middle of the text
        line = y + down - 4
        is_inside = left >= 0 and left + length <= width + 10 and -7 <= line <= height
        if is_inside and not any(_is_on(dot, left, left + length, line) for dot in dots):
            return anchor, down
    return None


def _is_on(dot: tuple[float, float], left: float, right: float, line: float) -> bool:
    """Whether a dot, or the ring around it, touches a text."""
    return left - _RADIUS < dot[0] < right + _RADIUS and abs(dot[1] - line) < _RADIUS + _HALF_LINE


def _named(dots: list[Dot], anchors: list[str]) -> set[int]:
    """Choose the rings to name: names must not touch each other, nor cover other rings if these are few."""
    taken: list[tuple[float, float]] = []
    named: set[int] = set()
    for position, (at, anchor) in enumerate(zip(dots, anchors, strict=True)):
        left = at.x if anchor == "start" else at.x - _ROOM[0]
        others = [dot for dot in dots if dot != at and len(dots) <= _RINGS]
        is_hidden = any(left < dot.x < left + _ROOM[0] and abs(dot.y - at.y) < _ROOM[1] for dot in others)
        is_free = all(abs(left - x) > _ROOM[0] or abs(at.y - y) > _ROOM[1] for x, y in taken)
        if is_free and (not is_hidden or not named) and len(named) < _NAMED:
            named.add(position)
            taken.append((left, at.y))
    return named


def _instances(rows: Frame, across: Floats, count: int) -> Iterator[Instance]:
    width = 100.0 / count
    for x, row in zip(across, rows.to_dict("records"), strict=True):
        busy = f", GPU busy {format_value(row['gpu_busy_ns'], 'time_ns')}" if pd.notna(row["gpu_busy_ns"]) else ""
        title = f"#{row['number']:.0f}: {format_value(row['time_ns'], 'time_ns')}{busy}"
        yield Instance(round(float(x) - width / 2, 2), round(width, 2), title)


def _numbers(count: int) -> Iterator[Tick]:
    last = count - 1
    step = next((step for step in round_steps(max(last, 1)) if last / step <= _TICKS), max(last, 1))
    scale = step_scale("", max(last, 1), step)
    for number in np.arange(0, count, step):
        yield Tick(percent((number + 0.5) / count), f"#{scale.format(float(number))}")


def _notes(*, beyond: bool, left_out: int) -> Iterator[str]:
    yield "The line is the median; rings mark outliers above 1.5 times the median. Each strip has its own scale."
    if beyond:
        yield f"Triangles at the top edge are off the scale: more than {_BEYOND:.0f} times the median."
    if left_out:
        yield f"{left_out:,} more strips, of other processes or ranges, are only in report.json (iteration_times)."
