"""Where a series changes its level: PELT with absolute errors, on logarithms, in units of the series' own noise.

A change needs three nights, better four, and a shift of the median of at least 3 %. That keeps single bad
nights quiet: docs/history.md has the false alarms of this and other rules on simulated series. Without ruptures, the
simple rule of `trends.off_level` stands in.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nightsight import robust
from nightsight.intervals import Floats
from nightsight.model.history import LEAST_PCT, off_level

try:
    import ruptures
    from ruptures.base import BaseCost
except ImportError:
    ruptures, BaseCost = None, object

LEAST_NIGHTS: Final = 4
"""Of a part; three of the four suffice to move its median."""
NIGHTS: Final = 90
"""Only the newest are tested: what was before is how it is."""
SIMPLE: Final = (
    "the simple rule: three nights in a row off by more than 3 % and 3 robust standard deviations; a better one needs "
    "the ruptures package"
)
RULE: Final = "PELT with absolute errors (ruptures): at least three nights, at least 3 %"
_SHIFT: Final = float(np.log1p(LEAST_PCT / 100))
# of the noise of a logarithm: below it, the parts of a series differ by what nobody asks for
_QUIETEST: Final = _SHIFT / 6


def rule() -> str:
    """Say which rule finds the changes here."""
    return RULE if ruptures else SIMPLE


def changes(values: Floats) -> list[list[int]]:
    """Return where the rows of a matrix change their level: for each, the first nights of new levels.

    Rows may lack values (NaN), each its own. Zeros count as a thousandth of the median.
    """
    changes_of_rows: list[list[int]] = [[] for _ in values]
    if values.shape[1] < 2 * LEAST_NIGHTS:
        return changes_of_rows
    first = max(values.shape[1] - NIGHTS, 0)
    recent = values[:, first:]
    logs = _logs(recent)
    is_known = np.isfinite(logs)
    # a level is the median of 4 nights or more, so two of them are at least as low, and of another two as high:
    # series in which no two lows and highs are 3 % apart cannot have changed
    ordered = np.sort(logs, axis=1)
    counts = is_known.sum(axis=1)
    for count in np.unique(counts[counts >= 2 * LEAST_NIGHTS]):
        rows = np.flatnonzero(counts == count)
        rows = rows[ordered[rows, count - 2] - ordered[rows, 1] > _SHIFT]
        if not len(rows):
            continue
        dense = logs[rows][is_known[rows]].reshape(len(rows), count)
        for row, line, places in zip(rows, dense, _change_points(dense), strict=True):
            nights = np.flatnonzero(is_known[row])
            changes_of_rows[row] = [int(nights[place]) + first for place in _far_apart(line, places)]
    return changes_of_rows


def _logs(values: Floats) -> Floats:
    positive = np.where(values > 0, values, np.nan)
    typical = np.zeros(len(values))
    has_values = np.isfinite(positive).any(axis=1)
    typical[has_values] = np.nanmedian(positive[has_values], axis=1)
    floor = np.where(typical > 0, typical, 1.0)[:, None] / 1000
    logs: Floats = np.log(np.maximum(np.where(np.isfinite(values), values, np.nan), floor))
    return logs


def _change_points(logs: Floats) -> list[list[int]]:
    """Return where each row of a matrix without gaps is parted."""
    if ruptures is None:
        return [_simple(line) for line in logs]
    noise = np.maximum(robust.standard_deviation(np.diff(logs, axis=1), axis=1) / np.sqrt(2), _QUIETEST)
    costs = _costs(logs / noise[:, None])
    penalty = 3 * np.log(logs.shape[1])
    return [
        ruptures.Pelt(custom_cost=_Absolute(cost), min_size=LEAST_NIGHTS, jump=1).fit(line).predict(pen=penalty)[:-1]
        for line, cost in zip(logs, costs, strict=True)
    ]


def _costs(scaled: Floats) -> Floats:
    """Return the sum of absolute distances from the median, for each row, start and end: of all rows at once."""
    rows, count = scaled.shape
    costs = np.zeros((rows, count + 1, count + 1))
    for length in range(LEAST_NIGHTS, count + 1):
        windows = np.sort(sliding_window_view(scaled, length, axis=1), axis=2)
        # distances from the median: the upper half less the lower half
        upper, lower = windows[:, :, (length + 1) // 2 :], windows[:, :, : length // 2]
        starts = np.arange(count - length + 1)
        costs[:, starts, starts + length] = upper.sum(axis=2) - lower.sum(axis=2)
    return costs


class _Absolute(BaseCost):  # type: ignore[misc]
    """The cost `l1` of ruptures, looked up."""

    model = "l1"
    min_size = LEAST_NIGHTS

    def __init__(self, costs: Floats) -> None:
        self.costs = costs.tolist()

    def fit(self, signal: Floats) -> "_Absolute":
        self.signal = signal.reshape(-1, 1)
        return self

    def error(self, start: int, end: int) -> Any:  # noqa: ANN401 (ruptures has no types)
        return self.costs[start][end]


def _simple(line: Floats) -> list[int]:
    """Return the newest change by the simple rule."""
    count, _ = off_level(np.exp(line))
    return [len(line) - count] if count >= 3 else []


def _far_apart(line: Floats, places: Sequence[int]) -> list[int]:
    """Drop the smallest shift until all remaining ones are large enough."""
    places_left = [0, *places, len(line)]
    while len(places_left) > 2:
        levels = [float(np.median(line[start:end])) for start, end in pairwise(places_left)]
        shifts = [abs(after - before) for before, after in pairwise(levels)]
        smallest = int(np.argmin(shifts))
        if shifts[smallest] > _SHIFT:
            return [_exact(line, place, *near) for place, near in zip(places_left[1:-1], pairwise(levels), strict=True)]
        places_left.pop(smallest + 1)
    return []


def _exact(line: Floats, place: int, before: float, after: float) -> int:
    """Move a place by the night that a part of at least four had to take from its neighbor."""
    is_new = np.abs(line - after) < np.abs(line - before)
    if not is_new[place]:
        return place + 1
    return place - 1 if is_new[place - 1] else place
