"""Geometry of a comparison's pictures: intervals around zero, and the two columns of a step, in percent of the plot."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nightsight.events.launches import GPU_TABLES
from nightsight.intervals import Spans, union
from nightsight.intervals import length as length_of
from nightsight.model.compare import Comparison
from nightsight.model.report import Profile
from nightsight.render.compare.words import (
    CHANGED,
    ChangeText,
    Names,
    change_texts,
    gates,
    most_of,
    number,
    parts,
    rows_of,
)
from nightsight.render.figure.axes import Tick, percent, round_steps, round_text, step_scale
from nightsight.render.figure.plot import GRID
from nightsight.render.figure.shares import CAUSE_COLORS
from nightsight.results.categories import BUSY
from nightsight.units import format_value, scale_for

# percent: a larger change would flatten all others, so it becomes an arrow at the edge
_BEYOND: Final = 40.0
_ROUND: Final = (1.0, 2.0, 4.0, 5.0, 10.0, 20.0, 40.0)
_EDGE: Final = 2.0  # percent of the plot left free on both sides
_TICKS: Final = 6


@dataclass(frozen=True)
class IntervalBar:
    """A change and its interval in percent from the left; `low` and `high` are None if unknown.

    is_before, is_after: the interval extends beyond the plot on that side.
    """

    change: ChangeText
    middle: float | None
    low: float | None
    high: float | None
    is_before: bool
    is_after: bool
    summary: str


@dataclass(frozen=True)
class Forest:
    """The gate metrics as intervals around zero; `least` and `same` are bands in percent from the left."""

    bars: tuple[IntervalBar, ...]
    zero: float
    least: tuple[float, float]
    same: tuple[float, float]
    ticks: tuple[Tick, ...]
    note: str


def forest(comparison: Comparison, names: Names) -> Forest | None:
    """Return the intervals of the gate metrics; None if there are no metrics."""
    rows = gates(comparison)
    if rows.empty:
        return None
    most = min(max(most_of(rows), 1.2 * comparison.same_pct), _BEYOND)
    end = next(value for value in _ROUND if value >= most)

    def place(value: float) -> float:
        return percent(0.5 + (0.5 - _EDGE / 100) * max(-1.0, min(value / end, 1.0)))

    changes = change_texts(rows, names)
    bars = tuple(_bar(change, row, place, end) for change, row in zip(changes, rows.to_dict("records"), strict=True))
    ticks = tuple(
        Tick(place(value), f"{'+' if value > 0 else ''}{round_text(value, 'pct')}" if value else "0")
        for value in (-end, -end / 2, 0.0, end / 2, end)
    )
    least, same = ((place(-each), place(each)) for each in (comparison.least_pct, comparison.same_pct))
    note = (
        "Dots: median of the candidate against that of the baseline; lines: 90 % intervals. Dark band: changes of up "
        f"to {comparison.least_pct:g} %, which no test looks for. Light band: an interval inside it shows that nothing "
        f"changed (±{comparison.same_pct:g} %)."
    )
    return Forest(bars, place(0.0), least, same, ticks, note)


def _bar(
    change: ChangeText, row: Mapping[Hashable, object], place: Callable[[float], float], end: float
) -> IntervalBar:
    middle, low, high = (number(row[name]) for name in ("change_pct", "low_pct", "high_pct"))

    has_interval = math.isfinite(low) and math.isfinite(high)
    summary = f"{change.name}: {change.whole}, {change.verdict}"
    return IntervalBar(
        change,
        place(middle) if math.isfinite(middle) else None,
        place(low) if has_interval else None,
        place(high) if has_interval else None,
        (low if has_interval else middle) < -end,
        (high if has_interval else middle) > end,
        summary,
    )


@dataclass(frozen=True)
class StepPart:
    """A part of a step on both sides: its places in the columns, in percent from the top (top, height).

    ribbon: SVG path from one to the other. bar: its difference around the middle, in percent (left, width).
    """

    change: ChangeText
    series: str
    is_busy: bool
    before: tuple[float, float]
    after: tuple[float, float]
    ribbon: str
    is_changed: bool
    bar: tuple[float, float]


@dataclass(frozen=True)
class StepColumns:
    """One step of each side as a column of its parts; both have one scale. sums: of the parts, and their difference."""

    parts: tuple[StepPart, ...]
    sums: tuple[str, str, str]
    before: str
    after: str
    difference: str


def columns(comparison: Comparison, names: Names) -> StepColumns | None:
    """Return the columns of a step; None if its parts are unknown."""
    rows = parts(comparison)
    before, after = (rows[side].fillna(0.0).clip(lower=0.0).astype("float64") for side in ("baseline", "candidate"))
    total, candidate_total = float(before.sum()), float(after.sum())
    highest = max(total, candidate_total)
    if not highest > 0 or not math.isfinite(highest):
        return None
    changes = change_texts(rows, names)
    largest = float((after - before).abs().max())
    step_parts = []
    at, to = 100.0, 100.0
    for change, row, one, two in zip(changes, rows.to_dict("records"), before, after, strict=True):
        heights = (100.0 * one / highest, 100.0 * two / highest)
        at, to = at - heights[0], to - heights[1]
        ends = [round(value, 2) for value in (at, to, to + heights[1], at + heights[0])]
        extent = 50.0 * (two - one) / largest if largest else 0.0
        step_parts.append(
            StepPart(
                change,
                CAUSE_COLORS.get(str(row["name"]), "others"),
                row["name"] in BUSY,
                (round(max(at, 0.0), 2), round(heights[0], 2)),
                (round(max(to, 0.0), 2), round(heights[1], 2)),
                f"M0 {ends[0]}L100 {ends[1]}V{ends[2]}L0 {ends[3]}Z",
                change.verdict in CHANGED,
                (round(50.0 + min(extent, 0.0), 2), round(abs(extent), 2)),
            )
        )
    sums = _sides(total, candidate_total)
    whole = _steps(comparison) or sums
    return StepColumns(tuple(step_parts), sums, *whole)


def _steps(comparison: Comparison) -> tuple[str, str, str] | None:
    """Return the time of a step on both sides and the difference, if all of them are known."""
    rows = rows_of(comparison, "gate")
    step = rows[rows["name"] == "step_ns"].head(1)
    times = [number(step[side].iloc[0]) for side in ("baseline", "candidate")] if len(step) else []
    return _sides(*times) if times and all(map(math.isfinite, times)) else None


def _sides(before: float, after: float) -> tuple[str, str, str]:
    scale = scale_for("ns", [before, after])
    sign = "+" if after > before else ""
    return scale.with_unit(before), scale.with_unit(after), f"{sign}{scale.with_unit(after - before)}"


@dataclass(frozen=True)
class Lane:
    """What a GPU ran in a step: `kernels` and `copies` are SVG paths on the GRID, one unit high; `end`: of the step."""

    label: str
    kernels: str
    copies: str
    end: float
    summary: str


@dataclass(frozen=True)
class Lanes:
    """One step of each side on one time axis, a lane for each GPU."""

    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    grid: int = GRID


def lanes(sides: Sequence[tuple[str, Profile, int]]) -> Lanes:
    """Return the lanes of steps that begin at 0; a side is its title, its events, and its length in ns."""
    most = max((length for _, _, length in sides), default=1)
    of_gpus = [
        _lane(title, profile, device, (length, most)) for title, profile, length in sides for device in _gpus(profile)
    ]
    steps = round_steps(float(most)) if most >= 10 else []
    step = next((each for each in steps if most / each <= _TICKS), float(most))
    scale = step_scale("ns", float(most), float(step))
    ticks = (
        Tick(percent(place * step / most), scale.with_unit(place * step)) for place in range(int(most // step) + 1)
    )
    return Lanes(tuple(of_gpus), tuple(ticks))


def _gpus(profile: Profile) -> list[int]:
    numbers = [profile.tables[name]["device"] for name in GPU_TABLES if name in profile.tables]
    return np.unique(np.concatenate(numbers)).tolist() if numbers else []


def _lane(title: str, profile: Profile, device: int, lengths: tuple[int, int]) -> Lane:
    length, most = lengths
    copies = _spans(profile, ("memory_ops",), device)
    kernels = _spans(profile, ("kernels", "graph_launches"), device)
    busy = length_of(union(*(np.concatenate(ends) for ends in zip(kernels, copies, strict=True))))
    share = format_value(100.0 * busy / length, "busy_pct")
    label = f"{title}, GPU {device}"
    return Lane(
        label,
        _path(kernels, most),
        _path(copies, most),
        percent(length / most),
        f"{label}: {format_value(float(length), 'step_ns')}, busy {share}",
    )


def _spans(profile: Profile, names: Sequence[str], device: int) -> Spans:
    """Return the union of a GPU's operations from some tables, in ns."""
    tables = [profile.tables[name] for name in names if name in profile.tables]
    of_device = [table[table["device"] == device] for table in tables]
    start, end = (
        np.concatenate([np.empty(0, dtype=np.int64), *(table[name].to_numpy(dtype=np.int64) for table in of_device)])
        for name in ("start_ns", "end_ns")
    )
    return union(start, end)


def _path(spans: Spans, most: int) -> str:
    """Return spans as boxes on the GRID, each at least one unit long."""
    start, end = (np.rint(GRID * each / most).astype(np.int64) for each in spans)
    start, end = union(start, np.maximum(end, start + 1))
    return "".join(f"M{one} 0H{two}V1H{one}Z" for one, two in zip(start.tolist(), end.tolist(), strict=True))
