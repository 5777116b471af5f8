"""How much longer a step can have become, where its median says little because the host was disturbed.

A disturbance makes steps longer, never shorter, and it hits some runs harder than others. So two more estimates help.
The fastest step of a run, in the runs that were disturbed least, is what a step takes if nothing gets in its way. And a
host that is slower as a whole is also slower in the calls that launch the work: the time of such a call tells how fast
the host was, and medians are compared at equal speed (analysis of covariance).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final, NamedTuple

import numpy as np
from scipy.special import stdtrit

from nightsight.compare.statistics import LEAST_RUNS, Floats
from nightsight.model.compare import STEP, Measures

MEDIANS: Final = "by its medians"
FASTEST: Final = "by its fastest steps"
EQUAL_HOST: Final = "at equal speed of the host"
ESTIMATES: Final = 3.0
"""How many estimates there are to choose from: these three."""
# with this many runs or more, only this share of them counts: the least disturbed
_MANY: Final = 5
_UNDISTURBED: Final = 0.6
# medians of runs differ by at least this part of what the steps within a run differ by
_OF_SPREAD: Final = 0.5
# a host that takes twice as long for its calls does not take more than about three times as long for a step
_STEEPEST: Final = 1.5
_STEADIEST: Final = 1e-4
_ALPHA: Final = 0.05


class Estimate(NamedTuple):
    """A change as the log of a ratio, its standard error, and the degrees of freedom of that. how: in words."""

    mean: float
    error: float
    freedom: float
    how: str = ""

    @property
    def margin(self) -> float:
        """How far the true change can be above the mean, or below it, in all but 1 case of 20."""
        return float(stdtrit(self.freedom, 1 - _ALPHA)) * self.error

    @property
    def low(self) -> float:
        """The smallest change that the estimate leaves possible."""
        return self.mean - self.margin


@dataclass(frozen=True)
class Evidence:
    """Evidence on the time of a step in addition to the medians.

    middle: the change of the median run. floor: the least that runs differ by. at_equal_host: None if unknown.
    is_slower: launches of the candidate took longer than chance explains, so the candidate may have slowed its host.
    is_paired: whether the runs were made in turns.
    """

    middle: float
    floor: float
    fastest: Estimate
    at_equal_host: Estimate | None
    is_slower: bool
    is_paired: bool

    def best(self, medians: Estimate, same: float) -> Estimate:
        """Return the estimate to believe: the most precise one that can be trusted.

        The medians are what the question is about, so they will do if they are precise enough to tell whether a step
        became longer by `same`. If not, and one estimate shows that it did, no other one can say that it did not.
        """
        if medians.margin <= same / 2:
            return medians
        adjusted = self.at_equal_host
        every = [medians, self.fastest, *([adjusted] if adjusted else [])]
        trusted = [each for each in every if each.low > same]
        if not trusted:
            trusted = [medians]
            # fast steps say nothing about slow ones, so the medians must not have grown either
            if min(self.middle, adjusted.mean if adjusted else self.middle) <= same:
                trusted.append(self.fastest)
            if adjusted and not self.is_slower:
                trusted.append(adjusted)
        # not by what it says: that would favour the one that is wrong by chance
        return min(trusted, key=lambda each: each.margin)

    def contradicting(self, medians: Estimate, best: Estimate, same: float, least: float) -> str:
        """Return which estimate does not see a change by more than `least` in the direction of `best`; "" if all do.

        Noise seldom moves all of them. Medians that are precise enough need no agreement, except if the host can have
        been slower for one side as a whole: in turns, that cannot be by chance.
        """
        seen = {EQUAL_HOST: self.at_equal_host.mean} if self.at_equal_host else {}
        if medians.margin > same / 2:
            # a single wild run moves all means, but not the median run
            seen |= {MEDIANS: self.middle, FASTEST: self.fastest.mean}
        elif self.is_paired:
            seen = {}
        sign = 1 if best.mean > 0 else -1
        return next((how for how, moved in seen.items() if sign * moved <= least), "")


def evidence(  # noqa: PLR0913 (what is known of one comparison)
    runs: Sequence[Measures], metric: str, before: Floats, after: Floats, *, same_launches: bool, is_paired: bool
) -> Evidence | None:
    """Return what the runs tell about a step's time; None if a run does not know it.

    `before` and `after` are the logs of the medians. The time of a launch tells how fast the host was only if both
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
    return Evidence(middle, floor, _undisturbed(*fastest), adjusted, is_slower, is_paired)


def _difference(before: Floats, after: Floats) -> Estimate:
    """Compare two samples that have the same variance."""
    freedom = len(before) + len(after) - 2
    variance = _squares(before, before) + _squares(after, after)
    scale = 1 / len(before) + 1 / len(after)
    return Estimate(_moved(before, after), _error(variance / freedom, scale), freedom)


def _undisturbed(before: Floats, after: Floats) -> Estimate:
    """Compare the runs of both sides that were disturbed least: means without the largest values (Yuen 1974)."""
    parts = [_lowest(before), _lowest(after)]
    freedom = sum(count for _, _, count in parts) - 2
    error = sqrt(max(sum(variance for _, variance, _ in parts), _STEADIEST**2))
    return Estimate(parts[1][0] - parts[0][0], error, freedom, FASTEST)


def _lowest(values: Floats) -> tuple[float, float, int]:
    """Return the mean of the lowest values, its variance, and their number."""
    ordered, size = np.sort(values), len(values)
    kept = ceil(_UNDISTURBED * size) if size >= _MANY else size
    # those that were left out count as much as the largest that is left
    cut = np.minimum(ordered, ordered[kept - 1])
    return float(ordered[:kept].mean()), _squares(cut, cut) / (kept * (kept - 1)), kept


def _at_equal_host(before: Floats, after: Floats, speed_before: Floats, speed_after: Floats) -> Estimate | None:
    """Compare the medians as they would be if calls took equally long on both sides; None if all runs were alike."""
    freedom = len(before) + len(after) - 3
    own = _squares(speed_before, speed_before) + _squares(speed_after, speed_after)
    shared = _squares(speed_before, before) + _squares(speed_after, after)
    squares = _squares(before, before) + _squares(after, after)
    if own <= 0:
        return None
    slope = min(max(shared / own, 0.0), _STEEPEST)
    apart = _moved(speed_before, speed_after)
    left = squares - 2 * slope * shared + slope**2 * own
    error = _error(left / freedom, 1 / len(before) + 1 / len(after) + apart**2 / own)
    return Estimate(_moved(before, after) - slope * apart, error, freedom, EQUAL_HOST)


def _moved(before: Floats, after: Floats) -> float:
    return float(after.mean() - before.mean())


def _squares(some: Floats, others: Floats) -> float:
    return float(((some - some.mean()) * (others - others.mean())).sum())


def _error(variance: float, scale: float) -> float:
    return sqrt(max(variance, _STEADIEST**2) * scale)
