"""Pictures of a comparison: intervals around zero, the bars of a step, and its lanes; places are in percent."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nightsight.events.launches import GPU_TABLES
from nightsight.intervals import NOTHING, Spans, union
from nightsight.intervals import length as length_of
from nightsight.model.compare import Comparison
from nightsight.model.report import Profile
from nightsight.render.compare.words import (
    CHANGED,
    ChangeText,
    MeasureNames,
    both_sides,
    change_texts,
    gates,
    number,
    parts,
    rounded,
    rows_of,
)
from nightsight.render.figure.axes import Tick, percent, round_text, time_ticks
from nightsight.render.figure.plot import GRID
from nightsight.render.figure.shares import CAUSE_COLORS
from nightsight.render.table.view import floats
from nightsight.results.categories import BUSY
from nightsight.units import MINUS, format_value, scale_for

# percent: a larger change would flatten all others, so it becomes an arrow at the edge
_BEYOND: Final = 40.0
_ENDS: Final = (1.0, 2.0, 4.0, 5.0, 10.0, 20.0, 40.0)
_MARGIN: Final = 2.0  # percent of the plot on both sides


@dataclass(frozen=True)
class IntervalBar:
    """A change and its interval in percent from the left; None if unknown.

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


def forest(comparison: Comparison, names: MeasureNames) -> Forest | None:
    """Return the intervals of the gate metrics; None if there are no metrics."""
    rows = gates(comparison)
    if rows.empty:
        return None
    bounds = np.abs(np.concatenate([floats(rows[name]) for name in ("low_pct", "high_pct", "change_pct")]))
    extent = max(float(bounds[np.isfinite(bounds)].max(initial=0.0)), 1.2 * comparison.same_pct)
    end = next(value for value in _ENDS if value >= min(extent, _BEYOND))

    def place(value: float) -> float:
        return percent(0.5 + (0.5 - _MARGIN / 100) * max(-1.0, min(value / end, 1.0)))

    changes = change_texts(rows, names)
    bars = tuple(_bar(change, row, place, end) for change, row in zip(changes, rows.to_dict("records"), strict=True))
    ticks = tuple(
        Tick(place(value), f"{'+' if value > 0 else MINUS}{round_text(abs(value), 'pct')}" if value else "0")
        for value in (-end, -end / 2, 0.0, end / 2, end)
    )
    least, same = ((place(-limit), place(limit)) for limit in (comparison.least_pct, comparison.same_pct))
    pairs = "the mean over pairs of runs" if comparison.is_paired else "of the means of all runs"
    note = (
        f"Dots: candidate divided by baseline, {pairs}; lines: 90 % intervals. Dark band: changes of up to "
        f"{comparison.least_pct:g} %, the minimum effect. Light band: an interval inside it shows that nothing changed "
        f"(±{comparison.same_pct:g} %)."
    )
    return Forest(bars, place(0.0), least, same, ticks, note)


def _bar(
    change: ChangeText, row: Mapping[Hashable, object], place: Callable[[float], float], end: float
) -> IntervalBar:
    middle, low, high = (number(row[name]) for name in ("change_pct", "low_pct", "high_pct"))
    has_interval = math.isfinite(low) and math.isfinite(high)
    return IntervalBar(
        change,
        middle=place(middle) if math.isfinite(middle) else None,
        low=place(low) if has_interval else None,
        high=place(high) if has_interval else None,
        is_before=(low if has_interval else middle) < -end,
        is_after=(high if has_interval else middle) > end,
        summary=f"{change.name}: {change.whole}, {change.verdict}",
    )


@dataclass(frozen=True)
class StepPart:
    """A part of a step on both sides: its places in the bars, in percent (left, width).

    bar: the difference around the middle, in percent (left, width).
    """

    change: ChangeText
    series: str
    is_busy: bool
    before: tuple[float, float]
    after: tuple[float, float]
    is_changed: bool
    bar: tuple[float, float]


@dataclass(frozen=True)
class StepBars:
    """A step of each side as a bar of its parts; both have one scale.

    step: the times of a step and their difference. rest: what the parts lack of these; None if they add up.
    """

    parts: tuple[StepPart, ...]
    step: tuple[str, str, str]
    rest: tuple[str, str, str] | None


def step_bars(comparison: Comparison, names: MeasureNames) -> StepBars | None:
    """Return the bars of a step; None if its parts are unknown."""
    rows = parts(comparison)
    before, after = (rows[side].fillna(0.0).clip(lower=0.0).astype("float64") for side in ("baseline", "candidate"))
    sums = float(before.sum()), float(after.sum())
    gate = rows_of(comparison, "gate")
    step = gate.loc[gate["name"] == "step_ns", ["baseline", "candidate"]].head(1).to_numpy(dtype=object)
    steps = [number(time) for time in step.ravel()]
    whole = steps if len(steps) > 0 and all(map(math.isfinite, steps)) else [*sums]
    highest = max(*sums, *whole)
    if not max(sums) > 0 or not math.isfinite(highest):
        return None
    largest = float((after - before).abs().max())
    scale = scale_for("ns", whole)
    step_parts = []
    left, candidate_left = 0.0, 0.0
    changes = change_texts(rows, names, scale=scale)
    for change, name, time, candidate_time in zip(changes, rows["name"].astype("str"), before, after, strict=True):
        width, candidate_width = 100.0 * time / highest, 100.0 * candidate_time / highest
        extent = 50.0 * (candidate_time - time) / largest if largest else 0.0
        step_parts.append(
            StepPart(
                change,
                CAUSE_COLORS.get(name, "others"),
                is_busy=name in BUSY,
                before=(round(left, 2), round(width, 2)),
                after=(round(candidate_left, 2), round(candidate_width, 2)),
                is_changed=change.verdict in CHANGED,
                bar=(round(50.0 + min(extent, 0.0), 2), round(abs(extent), 2)),
            )
        )
        left, candidate_left = left + width, candidate_left + candidate_width
    # of what is printed, so that the column adds up
    rest = [
        rounded(time, scale) - sum(rounded(part, scale) for part in of_side)
        for time, of_side in zip(whole, (before, after), strict=True)
    ]
    is_exact = all(abs(time) < scale.divisor * 10.0**-scale.decimals / 2 for time in rest)
    step_texts, rest_texts = (both_sides(one, other, scale) for one, other in (whole, rest))
    return StepBars(tuple(step_parts), step_texts, None if is_exact else rest_texts)


@dataclass(frozen=True)
class Lane:
    """The operations of a GPU in a step: SVG paths on the GRID, one unit high. end: of the step, in percent."""

    label: str
    kernels: str
    copies: str
    end: float
    summary: str


@dataclass(frozen=True)
class Lanes:
    """A step of each side on one time axis, with a lane for each GPU."""

    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    grid: int = GRID


def lanes(sides: Sequence[tuple[str, Profile, int]]) -> Lanes:
    """Return the lanes of steps that begin at 0; a side is its title, its events, and its length in ns."""
    longest = max((length for _, _, length in sides), default=1)
    lanes = []
    for title, profile, length in sides:
        numbers = [profile.tables[name]["device"] for name in GPU_TABLES if name in profile.tables]
        devices = np.unique(np.concatenate(numbers)).tolist() if numbers else []
        lanes += [_lane(f"{title}, GPU {device}", profile, device, length, longest) for device in devices]
    return Lanes(tuple(lanes), tuple(time_ticks(0, longest)))


def _lane(label: str, profile: Profile, device: int, length: int, longest: int) -> Lane:
    copies = _spans(profile, ("memory_ops",), device)
    kernels = _spans(profile, ("kernels", "graph_launches"), device)
    busy = length_of(union(*(np.concatenate(ends) for ends in zip(kernels, copies, strict=True))))
    share = format_value(100.0 * busy / length, "busy_pct")
    return Lane(
        label,
        kernels=_path(kernels, longest),
        copies=_path(copies, longest),
        end=percent(length / longest),
        summary=f"{label}: {format_value(float(length), 'step_ns')}, busy {share}",
    )


def _spans(profile: Profile, names: Sequence[str], device: int) -> Spans:
    """Return the union of a GPU's operations from some tables, in ns."""
    tables = [profile.tables[name] for name in names if name in profile.tables]
    of_device = [table[table["device"] == device] for table in tables]
    start, end = (
        np.concatenate([NOTHING, *(table[name].to_numpy(dtype=np.int64) for table in of_device)])
        for name in ("start_ns", "end_ns")
    )
    return union(start, end)


def _path(spans: Spans, longest: int) -> str:
    """Return spans as boxes on the GRID, each at least one unit long."""
    start, end = (np.rint(GRID * times / longest).astype(np.int64) for times in spans)
    start, end = union(start, np.maximum(end, start + 1))
    return "".join(f"M{left} 0H{right}V1H{left}Z" for left, right in zip(start.tolist(), end.tolist(), strict=True))
