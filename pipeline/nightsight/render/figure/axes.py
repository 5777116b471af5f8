"""Axes: round levels, decades, and where values are on them, in percent of the plot."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.render.table.view import Floats, floats
from nightsight.units import Scale, scale_for

HIGHEST: Final = 1e18
"""Beyond all that is measured in ns or bytes; sums and products of it stay finite."""

_LOWEST: Final = 1e-9
LEVELS: Final = 3
_ROUND: Final = (1.0, 2.0, 2.5, 4.0, 5.0)
_LEAST: Final = 1.0  # decade: what is all of one size is not drawn larger than life
_ZERO: Final = 0.2  # decades to the left of a logarithmic axis where zeros have their place
_ROOM: Final = 12.0  # percent of the plot
_TICKS: Final = 7
_LAST: Final = 97.0  # percent
_NARROW: Final = 2.1  # pixels that a percent of the plot has on a narrow screen
_LETTER: Final = 7.0  # pixels at most, of a text on an axis
# up to so many decades, these of each have a tick
_FINE: Final = ((1.7, (1, 2, 5)), (2.7, (1, 3)))


@dataclass(frozen=True)
class Tick:
    """A round value on an axis, in percent from the left or from the top.

    is_spare: a narrow plot has no room for it.
    """

    place: float
    text: str
    is_spare: bool = False

    @property
    def classes(self) -> str:
        """What the style needs to know: no room for half of the text beyond it, or for any on a narrow screen."""
        return " ".join(["last"] * (self.place > _LAST) + ["spare"] * self.is_spare)


@dataclass(frozen=True)
class LogAxis:
    """Logarithms (base 10) from `low` to `high` of values of one unit; with a `zero`, zeros stand under it before."""

    low: float
    high: float
    unit: str
    zero: str = ""

    def places(self, values: Floats) -> Floats:
        """Return the distance from the left in percent; what is not more than 0 is where zeros are."""
        logs = np.log10(np.where(values > 0, values, 1.0))
        logs = np.where(values > 0, np.clip(logs, self.low, self.high), self._begin)
        return np.round(100.0 * (logs - self._begin) / (self.high - self._begin), 2)

    def ticks(self) -> tuple[Tick, ...]:
        """Return round values, each with its unit, from left to right."""
        values = [value for value in self._values() if self.low - 1e-9 <= math.log10(value) <= self.high + 1e-9]
        places = self.places(np.array(values, dtype=np.float64)).tolist()
        ticks = tuple(Tick(place, round_text(value, self.unit)) for place, value in zip(places, values, strict=True))
        if not self.zero:
            return ticks
        # no tick's text may touch that of zero
        return (Tick(self.zero_width / 2, self.zero), *(tick for tick in ticks if tick.place > _ROOM))

    @property
    def zero_width(self) -> float:
        """How wide the place of zeros is, from the left."""
        return round(100.0 * (self.low - self._begin) / 2 / (self.high - self._begin), 2)

    @property
    def _begin(self) -> float:
        return self.low - (_ZERO if self.zero else 0.0)

    def _values(self) -> Iterator[float]:
        extent = self.high - self.low
        factors = next((factors for most, factors in _FINE if extent <= most), (1,))
        every = max(math.ceil(extent / _TICKS), 1)
        for decade in range(math.floor(self.low), math.ceil(self.high) + 1, every):
            yield from (factor * 10.0**decade for factor in factors)


def log_axis(values: Floats, *, unit: str, zero: str = "", margin: float = 0.0) -> LogAxis:
    """Return the axis that holds all values above 0, `margin` decades wider on both sides, one decade at least."""
    known = np.maximum(values[(values > 0) & np.isfinite(values)], _LOWEST)
    low, high = (float(np.log10(known.min())), float(np.log10(known.max()))) if len(known) else (0.0, 0.0)
    missing = max(_LEAST - (high - low), 2 * margin) / 2
    return LogAxis(low - missing, high + missing, unit, zero)


def spaced(ticks: Sequence[Tick]) -> tuple[Tick, ...]:
    """Mark every second tick as spare if their texts would nearly touch on a narrow screen."""
    widths = [_LETTER * (len(tick.text) + 1) / _NARROW for tick in ticks]
    is_dense = any(
        other.place - one.place < (width + other_width) / 2
        for (one, width), (other, other_width) in pairwise(zip(ticks, widths, strict=True))
    )
    return tuple(replace(tick, is_spare=is_dense and place % 2 == 1) for place, tick in enumerate(ticks))


def round_text(value: float, unit: str) -> str:
    """Write a round value with its unit and without decimals that say nothing."""
    scale = scale_for(unit, [value])
    return f"{value / scale.divisor:,.10g} {scale.symbol}".strip()


def round_levels(highest: float) -> tuple[float, int]:
    """Return the round step, and how many of them, that leave the least room above the highest level."""
    counts = {step: math.ceil(highest / step) for step in round_steps(highest)}
    fit = [(step, count) for step, count in counts.items() if 1 < count <= LEVELS]
    return min(fit, key=lambda pair: (pair[0] * pair[1], pair[1]), default=(1.0, 1))


def round_steps(extent: float) -> list[float]:
    """Return round whole numbers from about a tenth of `extent` up to it, in order."""
    power = 10.0 ** math.floor(math.log10(extent))
    steps = (factor * power / scale for scale in (10, 1) for factor in _ROUND)
    return [step for step in steps if step >= 1 and step == int(step)]


def step_scale(unit: str, extent: float, step: float) -> Scale:
    """Return the scale for values up to `extent`, with the decimals that multiples of `step` need."""
    scale = scale_for(unit, [extent])
    written = step / scale.divisor
    decimals = next((digits for digits in range(3) if math.isclose(round(written, digits), written)), 3)
    return replace(scale, decimals=decimals)


def level_ticks(highest: float, *, unit: str) -> tuple[float, tuple[Tick, ...]]:
    """Return the top of an axis from 0 that holds `highest`, and its round levels from the top down."""
    step, count = round_levels(max(highest, 1.0))
    scale = step_scale(unit, step * count, step)
    places = range(count, -1, -1)
    texts = [scale.with_unit(place * step) if place else "0" for place in places]
    ticks = (Tick(percent(1 - place / count), text) for place, text in zip(places, texts, strict=True))
    return step * count, tuple(ticks)


def measured(column: "pd.Series[Any]") -> Floats:
    """Return a column as floats no larger than what can be measured, NaN for what is not there or not finite."""
    values = floats(column)
    return np.where(np.isfinite(values), np.clip(values, -HIGHEST, HIGHEST), np.nan)


def percent(share: float) -> float:
    """Write a share of 1 as a place on the plot."""
    return round(100.0 * float(share), 2)
