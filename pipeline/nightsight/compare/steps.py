"""Bounds the growth of step time if medians are imprecise because the host was disturbed.

A disturbance makes steps longer, never shorter, and affects some runs more than others, so two more estimates help.
The fastest steps of the least disturbed runs show the time of an undisturbed step. And on a host that is slower as a
whole, launch calls are slower too: their time shows the speed of the host, and medians are compared at equal speed
(analysis of covariance).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final, NamedTuple

import numpy as np
from scipy.special import stdtrit

from nightsight.compare.statistics import LEAST_RUNS
from nightsight.intervals import Floats
from nightsight.model.compare import STEP, Measures

MEDIANS: Final = "by its medians"
FASTEST: Final = "by its fastest steps"
EQUAL_HOST: Final = "at equal speed of the host"
ESTIMATES: Final = 3.0
"""The number of estimates to choose from."""
# with at least this many runs, only this share of them counts: the least disturbed
_MANY: Final = 5
_UNDISTURBED: Final = 0.6
# medians of runs differ by at least this share of the spread of steps within a run
_OF_SPREAD: Final = 0.5
# a host that takes twice as long for its calls does not take more than about three times as long for a step
_STEEPEST: Final = 1.5
_STEADIEST: Final = 1e-4
_ALPHA: Final = 0.05


class Estimate(NamedTuple):
    """A change as the log of a ratio, its standard error, and the degrees of freedom. how: the method in words."""

    mean: float
    error: float
    freedom: float
    how: str = ""

    @property
    def margin(self) -> float:
        """The distance from the mean that the true change exceeds, in either direction, in 1 of 20 cases."""
        return float(stdtrit(self.freedom, 1 - _ALPHA)) * self.error

    @property
    def low(self) -> float:
        """The lower bound of the change."""
        return self.mean - self.margin


@dataclass(frozen=True)
class Evidence:
    """Evidence on the time of a step that supplements the medians.

    middle: the change of the median run. floor: the least difference between runs. at_equal_host: None if unknown.
    is_slower: launches of the candidate took longer than chance explains, so the candidate may have slowed its host.
    is_paired: whether the runs of both sides alternated.
    """

    middle: float
    floor: float
    fastest: Estimate
    at_equal_host: Estimate | None
    is_slower: bool
    is_paired: bool

    def best(self, medians: Estimate, same: float) -> Estimate:
        """Return the most precise trustworthy estimate.

        The medians are preferred if they are precise enough to show whether a step became longer by `same`. If not, and
        one estimate shows that it did, no other estimate can refute it.
        """
        if medians.margin <= same / 2:
            return medians
        adjusted = self.at_equal_host
        candidates = [medians, self.fastest, *([adjusted] if adjusted else [])]
        trusted = [estimate for estimate in candidates if estimate.low > same]
        if not trusted:
            trusted = [medians]
            # fast steps say nothing about slow ones, so the medians must not have grown either
            if min(self.middle, adjusted.mean if adjusted else self.middle) <= same:
                trusted.append(self.fastest)
            if adjusted and not self.is_slower:
                trusted.append(adjusted)
        # choosing by value would favor an estimate that is wrong by chance
        return min(trusted, key=lambda estimate: estimate.margin)

    def contradicting(self, medians: Estimate, best: Estimate, same: float, least: float) -> str:
        """Return an estimate that shows no change of more than `least` in the direction of `best`; "" if all do.

        Noise seldom moves all of them. Precise medians need no agreement, unless the host may have been slower for one
        whole side; if runs alternate, that does not happen by chance.
        """
        changes = {EQUAL_HOST: self.at_equal_host.mean} if self.at_equal_host else {}
        if medians.margin > same / 2:
            # a single outlier moves all means, but not the median run
            changes |= {MEDIANS: self.middle, FASTEST: self.fastest.mean}
        elif self.is_paired:
            changes = {}
        sign = 1 if best.mean > 0 else -1
        return next((how for how, change in changes.items() if sign * change <= least), "")


def evidence(
    runs: Sequence[Measures], metric: str, before: Floats, after: Floats, *, same_launches: bool, is_paired: bool
) -> Evidence | None:
    """Return the evidence of the runs on the time of a step; None if a run lacks it.

    `before` and `after` are the logs of the medians. The time of a launch shows the speed of the host only if both
    sides launch the same work.
    """
    if min(len(before), len(after)) < LEAST_RUNS or not all(metric in run.pace for run in runs):
        return None
    shares = np.array([run.pace[metric].fastest for run in runs])
    if not np.isfinite(np.concatenate([before, after])).all() or not (shares > 0).all():
        return None
    fastest = np.split(np.concatenate([before, after]) + np.log(shares), [len(before)])
    middle = float(np.median(after) - np.median(before))
    floor = _OF_SPREAD * float(np.median([run.pace[metric].spread for run in runs]))
    calls = np.array([run.launch_call_ns for run in runs])
    adjusted, is_slower = None, False
    if metric == STEP and same_launches and (calls > 0).all():
        speed = np.split(np.log(calls), [len(before)])
        adjusted, is_slower = _at_equal_host(before, after, *speed), _difference(*speed).low > 0
    return Evidence(middle, floor, _least_disturbed(*fastest), adjusted, is_slower, is_paired)


def _difference(before: Floats, after: Floats) -> Estimate:
    """Compare two samples with equal variances."""
    freedom = len(before) + len(after) - 2
    variance = _sum_of_products(before, before) + _sum_of_products(after, after)
    scale = 1 / len(before) + 1 / len(after)
    return Estimate(_mean_difference(before, after), _error(variance / freedom, scale), freedom)


def _least_disturbed(before: Floats, after: Floats) -> Estimate:
    """Compare the least disturbed runs of both sides: means trimmed at the top (Yuen 1974)."""
    parts = [_lowest(before), _lowest(after)]
    freedom = sum(count for _, _, count in parts) - 2
    error = sqrt(max(sum(variance for _, variance, _ in parts), _STEADIEST**2))
    return Estimate(parts[1][0] - parts[0][0], error, freedom, FASTEST)


def _lowest(values: Floats) -> tuple[float, float, int]:
    """Return the mean of the lowest values, its variance, and their number."""
    ordered, size = np.sort(values), len(values)
    count = ceil(_UNDISTURBED * size) if size >= _MANY else size
    # winsorized: omitted values count as the largest remaining one
    cut = np.minimum(ordered, ordered[count - 1])
    return float(ordered[:count].mean()), _sum_of_products(cut, cut) / (count * (count - 1)), count


def _at_equal_host(before: Floats, after: Floats, speed_before: Floats, speed_after: Floats) -> Estimate | None:
    """Compare the medians, adjusted to equal call times on both sides; None if all runs had equal call times."""
    freedom = len(before) + len(after) - 3
    own = _sum_of_products(speed_before, speed_before) + _sum_of_products(speed_after, speed_after)
    shared = _sum_of_products(speed_before, before) + _sum_of_products(speed_after, after)
    squares = _sum_of_products(before, before) + _sum_of_products(after, after)
    if own <= 0:
        return None
    slope = min(max(shared / own, 0.0), _STEEPEST)
    speed_difference = _mean_difference(speed_before, speed_after)
    residual = squares - 2 * slope * shared + slope**2 * own
    error = _error(residual / freedom, 1 / len(before) + 1 / len(after) + speed_difference**2 / own)
    return Estimate(_mean_difference(before, after) - slope * speed_difference, error, freedom, EQUAL_HOST)


def _mean_difference(before: Floats, after: Floats) -> float:
    return float(after.mean() - before.mean())


def _sum_of_products(first: Floats, second: Floats) -> float:
    return float(((first - first.mean()) * (second - second.mean())).sum())


def _error(variance: float, scale: float) -> float:
    return sqrt(max(variance, _STEADIEST**2) * scale)
