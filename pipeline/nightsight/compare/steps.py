"""How much longer a step can have become, where its median says little because the host was disturbed.

What disturbs a host makes steps longer, never shorter, and disturbs some runs more than others. So two estimates say
more than the median. The fastest step of a run, in the runs that were disturbed least, is what a step takes if nothing
is in its way. And where a host was slower as a whole, it was slower in the calls that launch the same work, too: the
time of such a call tells how fast the host was, and medians are compared at equal speed (analysis of covariance).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final, NamedTuple

import numpy as np
from scipy.special import stdtrit

from nightsight.compare.statistics import LEAST_RUNS, Floats
from nightsight.comparison import STEP, Measures

FASTEST: Final = "by its fastest steps"
EQUAL_HOST: Final = "at equal speed of the host"
ESTIMATES: Final = 3.0
"""How many estimates there are to choose from: that of the medians, and these two."""
# of so many runs or more, this share counts that was disturbed least
_MANY: Final = 5
_UNDISTURBED: Final = 0.6
# steps that differ by so much within a run differ by at least a part of it from run to run
_OF_SPREAD: Final = 0.5
# a host that takes twice as long for its calls does not take more than about three times as long for a step
_STEEPEST: Final = 1.5
_STEADIEST: Final = 1e-4
_ALPHA: Final = 0.05


class Estimate(NamedTuple):
    """A change, as the log of a ratio, its standard error, and the degrees of freedom of that. how: in words."""

    mean: float
    error: float
    freedom: float
    how: str = ""

    def most(self, alpha: float) -> float:
        """Return what the change exceeds only in one of 1 / `alpha` cases."""
        return self.mean + float(stdtrit(self.freedom, 1 - alpha)) * self.error


@dataclass(frozen=True)
class Evidence:
    """What runs tell of the time of a step besides their medians.

    middle: the change of the median over the runs. floor: the least that runs differ by. at_equal_host: None if not
    known; is_slower: launches of the candidate took longer than chance explains, so it may be what slowed the host.
    """

    middle: float
    floor: float
    fastest: Estimate
    at_equal_host: Estimate | None
    is_slower: bool

    def best(self, own: Estimate, same: float) -> Estimate:
        """Return the surest estimate that holds: that of the medians (`own`), of the fastest steps, or at equal host.

        The medians are what is asked about, so they will do if they are known to half of `same`. The fastest steps tell
        nothing of the others, so they count only if these have not become longer by more than `same` either.
        """
        if own.most(_ALPHA) - own.mean <= same / 2:
            return own
        adjusted, found = self.at_equal_host, [own]
        if min(self.middle, adjusted.mean if adjusted else self.middle) <= same:
            found.append(self.fastest)
        if adjusted and not self.is_slower:
            found.append(adjusted)
        # by its error alone: to choose by the estimate would favour what is wrong by chance
        return min(found, key=lambda each: each.most(_ALPHA) - each.mean)


def evidence(
    runs: Sequence[Measures], metric: str, before: Floats, after: Floats, *, same_launches: bool
) -> Evidence | None:
    """Return what the runs tell of a step's time, of which `before` and `after` are the logs; None if not all know it.

    The time of a launch tells how fast the host was only if both sides launch the same work.
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
        adjusted, is_slower = _at_equal_host(before, after, *speed), _difference(*speed).most(1 - _ALPHA) > 0
    return Evidence(middle, floor, _undisturbed(*fastest), adjusted, is_slower)


def _difference(before: Floats, after: Floats) -> Estimate:
    """Compare two samples with one variance."""
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
    """Compare the medians as they would be if the calls of both sides took as long; None if too few runs tell."""
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
