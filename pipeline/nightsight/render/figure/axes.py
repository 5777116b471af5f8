"""Axes: round tick values, decades, and positions of values, in percent of the plot."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.intervals import Floats
from nightsight.render.table.view import floats
from nightsight.tables import Frame
from nightsight.units import Scale, scale_for

HIGHEST: Final = 1e18
"""Above any finite_floats time (ns) or size (bytes); sums and products of it stay finite."""

_LOWEST: Final = 1e-9
_ROUND: Final = (1.0, 2.0, 2.5, 4.0, 5.0)
_MIN_DECADES: Final = 1.0  # values of nearly one size must not be spread over the whole plot
_ZERO_DECADES: Final = 0.2  # to the left of a logarithmic axis, reserved for zeros
_ZERO_TEXT: Final = 12.0  # percent of the plot that the text of the zero tick needs
# the maximum number of intervals between the ticks of an axis
_MAX_DECADES: Final = 7
_MAX_LEVELS: Final = 3
_MAX_STEPS: Final = 6
_MAX_TIMES: Final = 5
_LAST: Final = 97.0  # percent: centered text further right would be cut
_NARROW: Final = 2.1  # pixels per percent of the plot on a narrow screen
_LETTER: Final = 7.0  # pixels: maximum width of a letter on an axis
# (maximum number of decades, factors of each decade that have a tick)
_FINE_TICKS: Final = ((1.7, (1, 2, 5)), (2.7, (1, 3)))


@dataclass(frozen=True)
class Tick:
    """A round value on an axis; `place` is in percent from the left or from the top.

    is_spare: a narrow plot omits the text.
    """

    place: float
    text: str
    is_spare: bool = False

    @property
    def classes(self) -> str:
        """CSS classes: `last` if centered text would be cut at the edge, `spare` if narrow screens omit it."""
        return " ".join(["last"] * (self.place > _LAST) + ["spare"] * self.is_spare)


@dataclass(frozen=True)
class LogAxis:
    """A logarithmic axis: `low` and `high` are base-10 logarithms; `zero` labels a place for zeros, "" for none.

    is_fine: a short axis also has ticks between its decades.
    """

    low: float
    high: float
    unit: str
    zero: str = ""
    is_fine: bool = True

    def place(self, log: float) -> float:
        """Return the distance of a logarithm from the left in percent."""
        return percent((min(max(log, self.low), self.high) - self._begin) / (self.high - self._begin))

    def places(self, values: Floats) -> Floats:
        """Return the distances from the left in percent; values of 0 or less go to the place for zeros."""
        logs = np.log10(np.where(values > 0, values, 1.0))
        logs = np.where(values > 0, np.clip(logs, self.low, self.high), self._begin)
        return np.round(100.0 * (logs - self._begin) / (self.high - self._begin), 2)

    def ticks(self) -> tuple[Tick, ...]:
        """Return ticks at round values, each with its unit, from left to right."""
        decades = self.high - self.low
        factors = next((factors for limit, factors in _FINE_TICKS if self.is_fine and decades <= limit), (1,))
        step = max(math.ceil(decades / _MAX_DECADES), 1)
        powers = range(math.floor(self.low), math.ceil(self.high) + 1, step)
        candidates = (factor * 10.0**power for power in powers for factor in factors)
        # the tolerance keeps ticks at the ends despite rounding errors
        values = [value for value in candidates if self.low - 1e-9 <= math.log10(value) <= self.high + 1e-9]
        places = self.places(np.array(values, dtype=np.float64)).tolist()
        ticks = tuple(Tick(place, round_text(value, self.unit)) for place, value in zip(places, values, strict=True))
        if not self.zero:
            return ticks
        # omit ticks whose text would touch that of zero
        return (Tick(self.zero_width / 2, self.zero), *(tick for tick in ticks if tick.place > _ZERO_TEXT))

    @property
    def zero_width(self) -> float:
        """The width of the place for zeros, in percent from the left."""
        return round(100.0 * (self.low - self._begin) / 2 / (self.high - self._begin), 2)

    @property
    def _begin(self) -> float:
        return self.low - (_ZERO_DECADES if self.zero else 0.0)


def log_axis(values: Floats, *, unit: str, zero: str = "", margin: float = 0.0) -> LogAxis:
    """Return the axis for all values above 0, with `margin` decades on both sides, at least one decade long."""
    logs = np.log10(np.maximum(values[(values > 0) & np.isfinite(values)], _LOWEST))
    low, high = (float(logs.min()), float(logs.max())) if len(logs) else (0.0, 0.0)
    # widen both ends equally
    missing = max(_MIN_DECADES - (high - low), 2 * margin) / 2
    return LogAxis(low - missing, high + missing, unit, zero)


def vertical(ticks: Sequence[Tick]) -> tuple[Tick, ...]:
    """Return the ticks of a vertical axis, whose places count from the top."""
    return tuple(replace(tick, place=round(100.0 - tick.place, 2)) for tick in ticks)


def spaced(ticks: Sequence[Tick]) -> tuple[Tick, ...]:
    """Mark every second tick as spare if their texts would touch, or nearly, on a narrow screen."""
    widths = [_LETTER * (len(tick.text) + 1) / _NARROW for tick in ticks]
    # two centered texts touch if their ticks are closer than the mean of their widths
    is_dense = any(
        right.place - left.place < (left_width + right_width) / 2
        for (left, left_width), (right, right_width) in pairwise(zip(ticks, widths, strict=True))
    )
    return tuple(replace(tick, is_spare=is_dense and number % 2 == 1) for number, tick in enumerate(ticks))


def round_text(value: float, unit: str) -> str:
    """Format a round value with its unit, without trailing zeros."""
    scale = scale_for(unit, [value])
    return f"{value / scale.divisor:,.10g} {scale.symbol}".strip()


def round_steps(extent: float) -> list[float]:
    """Return round integers from about a tenth of `extent` up to `extent`, in ascending order."""
    power = 10.0 ** math.floor(math.log10(extent))
    steps = (factor * power / divisor for divisor in (10, 1) for factor in _ROUND)
    return [step for step in steps if step.is_integer() and step >= 1]


def step_scale(unit: str, extent: float, step: float) -> Scale:
    """Return the scale for values up to `extent`, with as many decimals as multiples of `step` need."""
    scale = scale_for(unit, [extent])
    scaled = step / scale.divisor
    decimals = next((digits for digits in range(3) if math.isclose(round(scaled, digits), scaled)), 3)
    return replace(scale, decimals=decimals)


def level_ticks(highest: float, *, unit: str) -> tuple[float, tuple[Tick, ...]]:
    """Return the top value of an axis from 0 that includes `highest`, and its ticks from the top down."""
    highest = max(highest, 1.0)
    levels = [(step, math.ceil(highest / step)) for step in round_steps(highest)]
    fitting = [(step, count) for step, count in levels if 1 < count <= _MAX_LEVELS]
    # the least empty space above the highest value, then the fewest ticks
    step, count = min(fitting, key=lambda level: (level[0] * level[1], level[1]), default=(1.0, 1))
    scale = step_scale(unit, step * count, step)
    ticks = (
        Tick(percent(1 - level / count), scale.with_unit(level * step) if level else "0")
        for level in range(count, -1, -1)
    )
    return step * count, tuple(ticks)


def finite_floats(column: "pd.Series[Any]") -> Floats:
    """Return a column as floats, clipped to ±HIGHEST; NaN for missing and infinite values."""
    values = floats(column)
    return np.where(np.isfinite(values), np.clip(values, -HIGHEST, HIGHEST), np.nan)


def finite_rows(frame: Frame, numbers: Iterable[str], texts: Iterable[str] = ()) -> Frame:
    """Return the rows in which all `numbers` are finite, with the columns `texts` as they are.

    The result is empty if the table lacks a column.
    """
    columns = [*numbers, *texts]
    if not set(columns) <= set(frame.columns):
        return pd.DataFrame(columns=columns, dtype="float64")
    floats_by_name = {name: finite_floats(frame[name]) for name in numbers}
    table = pd.DataFrame({**floats_by_name, **{name: frame[name].to_numpy(dtype=object) for name in texts}})
    return table.dropna(subset=list(floats_by_name))


def percent(share: float) -> float:
    """Convert a share (0 to 1) to percent of the plot."""
    return round(100.0 * float(share), 2)


def step_ticks(count: float, first: float = 0) -> Iterator[Tick]:
    """Yield ticks at the middles of round step numbers, for steps side by side: `#0`, `#20`.

    first: the number of the leftmost step.
    """
    last = count - 1
    step = next((step for step in round_steps(max(last, 1)) if last / step <= _MAX_STEPS), max(last, 1))
    scale = step_scale("", max(first + last, 1), step)
    for number in np.arange(step * np.ceil(first / step), first + count, step):
        yield Tick(percent((number - first + 0.5) / count), f"#{scale.format(float(number))}")


def time_ticks(begin: float, end: float) -> Iterator[Tick]:
    """Yield ticks at round times in ns; only the last one has the unit."""
    length = end - begin
    step = next(step for step in round_steps(length) if length / step <= _MAX_TIMES)
    scale = step_scale("ns", length, step)
    first, last = math.ceil(begin / step), math.floor(end / step)
    for multiple in range(first, last + 1):
        text = (scale.with_unit if multiple == last else scale.format)(multiple * step)
        yield Tick(percent((multiple * step - begin) / length), text)
