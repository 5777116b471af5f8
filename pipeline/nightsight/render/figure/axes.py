"""Axes: round tick values, decades, and positions of values, in percent of the plot."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.render.table.view import Floats, floats
from nightsight.units import Scale, scale_for

Frame = pd.DataFrame

HIGHEST: Final = 1e18
"""Above any measured time (ns) or size (bytes); sums and products of it stay finite."""

_LOWEST: Final = 1e-9
LEVELS: Final = 3
_ROUND: Final = (1.0, 2.0, 2.5, 4.0, 5.0)
_LEAST: Final = 1.0  # decade: values of nearly one size must not be spread over the whole plot
_ZERO: Final = 0.2  # decades to the left of a logarithmic axis, reserved for zeros
_ROOM: Final = 12.0  # percent of the plot that the text of the zero tick needs
_TICKS: Final = 7
_STEPS: Final = 6
_TIMES: Final = 5
_LAST: Final = 97.0  # percent: a centered text further right would be cut
_NARROW: Final = 2.1  # pixels per percent of the plot on a narrow screen
_LETTER: Final = 7.0  # pixels: maximum width of a letter on an axis
# (maximum number of decades, factors of each decade that have a tick)
_FINE: Final = ((1.7, (1, 2, 5)), (2.7, (1, 3)))


@dataclass(frozen=True)
class Tick:
    """A round value on an axis; `place` is in percent from the left or from the top.

    is_spare: a narrow plot leaves the tick out.
    """

    place: float
    text: str
    is_spare: bool = False

    @property
    def classes(self) -> str:
        """CSS classes: `last` if centered text would be cut at the edge, `spare` if narrow screens leave it out."""
        return " ".join(["last"] * (self.place > _LAST) + ["spare"] * self.is_spare)


@dataclass(frozen=True)
class LogAxis:
    """A logarithmic axis: `low` and `high` are base-10 logarithms; `zero` labels a place for zeros, "" for none.

    is_fine: a short axis has ticks between its decades too.
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
        # the tolerance keeps ticks at the ends despite rounding errors
        values = [value for value in self._values() if self.low - 1e-9 <= math.log10(value) <= self.high + 1e-9]
        places = self.places(np.array(values, dtype=np.float64)).tolist()
        ticks = tuple(Tick(place, round_text(value, self.unit)) for place, value in zip(places, values, strict=True))
        if not self.zero:
            return ticks
        # drop ticks whose text would touch that of zero
        return (Tick(self.zero_width / 2, self.zero), *(tick for tick in ticks if tick.place > _ROOM))

    @property
    def zero_width(self) -> float:
        """The width of the place for zeros, in percent from the left."""
        return round(100.0 * (self.low - self._begin) / 2 / (self.high - self._begin), 2)

    @property
    def _begin(self) -> float:
        return self.low - (_ZERO if self.zero else 0.0)

    def _values(self) -> Iterator[float]:
        extent = self.high - self.low
        factors = next((factors for most, factors in _FINE if self.is_fine and extent <= most), (1,))
        every = max(math.ceil(extent / _TICKS), 1)
        for decade in range(math.floor(self.low), math.ceil(self.high) + 1, every):
            yield from (factor * 10.0**decade for factor in factors)


def log_axis(values: Floats, *, unit: str, zero: str = "", margin: float = 0.0) -> LogAxis:
    """Return the axis for all values above 0, with `margin` decades on both sides, at least one decade long."""
    known = np.maximum(values[(values > 0) & np.isfinite(values)], _LOWEST)
    low, high = (float(np.log10(known.min())), float(np.log10(known.max()))) if len(known) else (0.0, 0.0)
    # widen both ends equally
    missing = max(_LEAST - (high - low), 2 * margin) / 2
    return LogAxis(low - missing, high + missing, unit, zero)


def upward(ticks: Sequence[Tick]) -> tuple[Tick, ...]:
    """Return the ticks of a vertical axis, whose places count from the top."""
    return tuple(replace(tick, place=round(100.0 - tick.place, 2)) for tick in ticks)


def spaced(ticks: Sequence[Tick]) -> tuple[Tick, ...]:
    """Mark every second tick as spare if their texts would touch, or nearly, on a narrow screen."""
    widths = [_LETTER * (len(tick.text) + 1) / _NARROW for tick in ticks]
    # two centered texts touch if their ticks are closer than the mean of their widths
    is_dense = any(
        other.place - one.place < (width + other_width) / 2
        for (one, width), (other, other_width) in pairwise(zip(ticks, widths, strict=True))
    )
    return tuple(replace(tick, is_spare=is_dense and place % 2 == 1) for place, tick in enumerate(ticks))


def round_text(value: float, unit: str) -> str:
    """Format a round value with its unit, without trailing zeros."""
    scale = scale_for(unit, [value])
    return f"{value / scale.divisor:,.10g} {scale.symbol}".strip()


def round_levels(highest: float) -> tuple[float, int]:
    """Return the round step and the number of steps that leave the least empty space above `highest`."""
    # the number of steps that each round step would need
    counts = {step: math.ceil(highest / step) for step in round_steps(highest)}
    fit = [(step, count) for step, count in counts.items() if 1 < count <= LEVELS]
    return min(fit, key=lambda pair: (pair[0] * pair[1], pair[1]), default=(1.0, 1))


def round_steps(extent: float) -> list[float]:
    """Return round integers from about a tenth of `extent` up to `extent`, in ascending order."""
    power = 10.0 ** math.floor(math.log10(extent))
    steps = (factor * power / scale for scale in (10, 1) for factor in _ROUND)
    return [step for step in steps if step >= 1 and step == int(step)]


def step_scale(unit: str, extent: float, step: float) -> Scale:
    """Return the scale for values up to `extent`, with as many decimals as multiples of `step` need."""
    scale = scale_for(unit, [extent])
    written = step / scale.divisor
    decimals = next((digits for digits in range(3) if math.isclose(round(written, digits), written)), 3)
    return replace(scale, decimals=decimals)


def level_ticks(highest: float, *, unit: str) -> tuple[float, tuple[Tick, ...]]:
    """Return the top value of an axis from 0 that includes `highest`, and its ticks from the top down."""
    step, count = round_levels(max(highest, 1.0))
    scale = step_scale(unit, step * count, step)
    places = range(count, -1, -1)
    texts = [scale.with_unit(place * step) if place else "0" for place in places]
    ticks = (Tick(percent(1 - place / count), text) for place, text in zip(places, texts, strict=True))
    return step * count, tuple(ticks)


def measured(column: "pd.Series[Any]") -> Floats:
    """Return a column as floats clipped to +-HIGHEST, NaN for missing or infinite values."""
    values = floats(column)
    return np.where(np.isfinite(values), np.clip(values, -HIGHEST, HIGHEST), np.nan)


def drawable(frame: Frame, numbers: Iterable[str], others: Iterable[str] = ()) -> Frame:
    """Return the rows that have all of these numbers, measured, and other columns as they are.

    There are none if the table lacks a column.
    """
    columns = [*numbers, *others]
    if not set(columns) <= set(frame.columns):
        return pd.DataFrame(columns=columns, dtype="float64")
    kept = {name: frame[name].to_numpy(dtype=object) for name in others}
    table = pd.DataFrame({**{name: measured(frame[name]) for name in numbers}, **kept})
    return table.dropna(subset=list(numbers))


def percent(share: float) -> float:
    """Convert a share (0 to 1) to percent of the plot."""
    return round(100.0 * float(share), 2)


def step_ticks(count: float, first: float = 0) -> Iterator[Tick]:
    """Yield ticks at the middles of round step numbers, for steps side by side: `#0`, `#20`.

    first: the number of the leftmost one.
    """
    last = count - 1
    step = next((step for step in round_steps(max(last, 1)) if last / step <= _STEPS), max(last, 1))
    scale = step_scale("", max(first + last, 1), step)
    for number in np.arange(step * np.ceil(first / step), first + count, step):
        yield Tick(percent((number - first + 0.5) / count), f"#{scale.format(float(number))}")


def time_ticks(begin: float, end: float) -> Iterator[Tick]:
    """Yield ticks at round times in ns; only the last one has the unit."""
    length = end - begin
    step = next(step for step in round_steps(length) if length / step <= _TIMES)
    scale = step_scale("ns", length, step)
    first, last = math.ceil(begin / step), math.floor(end / step)
    for place in range(first, last + 1):
        text = scale.with_unit(place * step) if place == last else scale.format(place * step)
        yield Tick(percent((place * step - begin) / length), text)
