"""The geometry of repetitions: a strip per repeated range and process with each instance's time, outliers named."""

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
_Side = tuple[str, int]  # anchor and down of a ring

_PATHS: Final = 3
_PANELS: Final = 8
_NUMBERS: Final = ("number", "time_ns", "gpu_busy_ns")
_OUTLIER: Final = 1.5  # times the median, as in the table
_BEYOND: Final = 4.0  # times the median: what takes longer would press all others to the ground
_HEADROOM: Final = 0.2
_RINGS: Final = 12
_NAMED: Final = 5
_HOVERED: Final = 100
_DENSE: Final = 150
_TICKS: Final = 6
# percent of the plot from where on a name stands to the left of its ring, if there is nothing in its way
_TURN: Final = 55.0
_NARROW: Final = (210.0, 96.0)  # pixels of a plot on a narrow screen
_LETTER: Final = 6.5  # pixels of a letter
_BESIDE: Final = (-9, 18)  # pixels from the middle of a ring to the line of a name above or below it
_RADIUS: Final = 7.0  # pixels of a ring
_HALF_LINE: Final = 5.0
# percent of the plot around a name that no other name may have
_ROOM: Final = (24.0, 14.0)


@dataclass(frozen=True)
class Ring:
    """An outlier; `text` names it, `anchor` is the side of the text that is there, `is_beyond` says it is off scale.

    down: pixels from the middle to the line that the text stands on. is_further: too long for a narrow plot.
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
    """Where the pointer gets the numbers of one instance, in percent from the left."""

    x: float
    width: float
    title: str


@dataclass(frozen=True)
class Strip:
    """One path in one process: `time` and `busy` are dots as SVG paths on the GRID.

    median: in percent from the top. is_dense: the dots would touch one another.
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
    """Strips with a scale each."""

    title: str
    strips: tuple[Strip, ...]
    has_busy: bool
    notes: tuple[str, ...]
    grid: int = GRID


def strips(frame: Frame, medians: Frame) -> tuple[Strips, ...]:
    """Draw iteration_times, a strip per path and process; nothing for a table without rows, or that lacks a column.

    medians: range_iterations, of all instances; without it the median is that of the rows.
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
    return (Strips("Time of each instance, in the order they began", drawn, has_busy, notes),)


def _known(frame: Frame) -> Frame:
    """Return the instances with a time, those of a path and process one after the other in the order of the table."""
    numbers = {name: measured(frame[name]) for name in _NUMBERS}
    known = pd.DataFrame({**numbers, "path": _texts(frame, "path"), "pid": _texts(frame, "pid")})
    known = known.dropna(subset=["number", "time_ns"])
    known = known[(known["number"] >= 0) & (known["time_ns"] >= 0)]
    place = known.groupby(["path", "pid"], sort=False).ngroup()
    return known.assign(place=place).sort_values(["place", "number"], kind="stable")


def _texts(frame: Frame, column: str) -> list[str]:
    """Return a column as texts, empty ones if the table lacks it: one of an earlier version has no process."""
    return frame[column].astype("str").tolist() if column in frame else [""] * len(frame)


def _is(frame: Frame, series: tuple[str, str]) -> "pd.Series[bool]":
    """Tell which rows are of a path in a process."""
    return (frame["path"] == series[0]) & (frame["pid"] == series[1])


def _strip(label: str, rows: Frame, medians: Frame) -> Strip:
    time, busy = rows["time_ns"].to_numpy(), rows["gpu_busy_ns"].to_numpy()
    count, median = _statistics(rows, medians)
    limit = _BEYOND * median if median > 0 else float(time.max())
    highest = max(time[time <= limit].max(initial=0.0), np.nan_to_num(busy[busy <= limit]).max(initial=0.0))
    # names of what is beyond stand at the upper edge: room for them above the dots
    top, levels = level_ticks(float(highest) * (1.0 + _HEADROOM * bool((time > limit).any())), unit="ns")
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
    """Return how many instances there are, those that are not drawn included, and their median time."""
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
        texts.append(f"GPU busy {format_value(float(np.nanmedian(busy)), 'time_ns')} of each (median)")
    return ", ".join(texts)


def _dots(across: Floats, down: Floats) -> str:
    """Draw points without length: their line caps are what is seen."""
    known = np.isfinite(across) & np.isfinite(down)
    places = (np.rint(GRID / 100.0 * values[known]).astype(int).tolist() for values in (across, down))
    return "".join(f"M{x} {y}h0" for x, y in zip(*places, strict=True))


def _rings(rows: Frame, across: Floats, down: Floats, *, median: float, top: float) -> Iterator[Ring]:
    """Ring the outliers, the slowest first; of too many to tell apart, those that have room for a name."""
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
    others = dots if is_dense else [_dot(across, down, place) for place in range(len(rows))]
    free = _narrow_side(dots[0], sides[0], len(texts[0]), others) if dots else None
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
    """Return where a name stands: beside its ring, or above where dots of the same height would run through it."""
    return "end" if at.x > _TURN else "start", -7 if is_dense and at.y > _ROOM[1] else 4


def _narrow_side(at: Dot, usual: _Side, letters: int, others: Sequence[Dot]) -> _Side | None:
    """Choose a place where a name lies on no other dot and within a narrow plot, so in a wide one too; None if none."""
    width, height = _NARROW
    flipped = "start" if usual[0] == "end" else "end"
    x, y, length = at.x / 100 * width, at.y / 100 * height, _LETTER * letters
    dots = [(dot.x / 100 * width, dot.y / 100 * height) for dot in others if dot != at]
    places = [usual, (flipped, usual[1])] + [(anchor, down) for down in _BESIDE for anchor in (usual[0], flipped)]
    for anchor, down in places:
        left = x + 10 if anchor == "start" else x - 10 - length
        line = y + down - 4
        is_inside = left >= 0 and left + length <= width + 10 and -7 <= line <= height
        if is_inside and not any(_is_on(dot, left, left + length, line) for dot in dots):
            return anchor, down
    return None


def _is_on(dot: tuple[float, float], left: float, right: float, line: float) -> bool:
    """Tell whether a dot, or the ring around it, touches a text."""
    return left - _RADIUS < dot[0] < right + _RADIUS and abs(dot[1] - line) < _RADIUS + _HALF_LINE


def _named(dots: list[Dot], anchors: list[str]) -> set[int]:
    """Choose those whose name touches no other ring's name, nor one of the rings if these are few."""
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
    yield "The line is the median; rings are outliers of more than 1.5 times that. Each strip has a scale of its own."
    if beyond:
        yield f"Triangles at the upper edge take more than {_BEYOND:.0f} times the median, beyond the scale."
    if left_out:
        yield f"{left_out:,} more, of other processes or ranges, are in report.json (iteration_times) only."
