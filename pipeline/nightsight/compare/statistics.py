"""Tests many measures for changes with few runs per side: moderated t tests of log ratios against a minimum effect.

Runs are the replicates. Three to five runs say little about the noise of one kernel, but hundreds of kernels show how
noisy kernels usually are, so each variance is shrunk towards the typical one of its class (empirical Bayes; Smyth
2004). The null hypothesis is a change of at most the minimum effect, not of exactly zero (TREAT; McCarthy and Smyth
2009), so that shifts of a few per mille, which occur between any two processes, do not count.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from scipy.special import comb, digamma, polygamma, stdtr, stdtrit

from nightsight.intervals import Flags, Floats

LEAST_RUNS: Final = 3
"""The least number of runs per side; with fewer, nothing is tested."""
LEAST_OF_CLASS: Final = 20
"""The least number of measures from which the typical variance of a class is estimated."""
_SURE: Final = 1e6
_TRIED: Final = (*range(LEAST_RUNS, 16), 20, 25, 30, 40, 50, 75, 100)


@dataclass(frozen=True, eq=False)
class Effects:
    """Estimates by measure, in logs of ratios; NaN if there are too few runs.

    error: standard error of `mean`; freedom: degrees of freedom of its t; spread: standard deviation of a single
    difference (paired) or run (not paired), prior: the degrees of freedom that its class adds.
    """

    mean: Floats
    error: Floats
    freedom: Floats
    spread: Floats
    prior: Floats
    is_paired: bool

    def p_values(self, least: float) -> Floats:
        """Return the probability of such an effect if the true effect is at most `least` in either direction."""
        size = np.abs(self.mean)
        beyond, before = ((size + shift) / self.error for shift in (-least, least))
        return np.minimum(stdtr(self.freedom, -beyond) + stdtr(self.freedom, -before), 1.0)

    def interval(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """Return the confidence interval of the effect."""
        half = stdtrit(self.freedom, 0.5 + level / 2) * self.error
        return self.mean - half, self.mean + half

    def needed_runs(self, least: float, same: float | Floats, level: Floats) -> Floats:
        """Return the number of runs per side that would settle it, if the effect is as estimated; NaN if above 100.

        `level`: the p value below which a change counts, by measure.
        """
        size, needed = np.abs(self.mean), np.full(len(self.mean), np.nan)
        for runs in reversed(_TRIED):
            freedom = np.maximum(self.prior + (runs - 1 if self.is_paired else 2 * runs - 2), 1.0)
            error = self.spread * np.sqrt((1.0 if self.is_paired else 2.0) / runs)
            is_same = size + stdtrit(freedom, 0.95) * error <= same
            is_change = (size > least) & (stdtr(freedom, (least - size) / error) <= level)
            needed[is_same | is_change] = runs
        return needed


def effects(
    baseline: Floats, candidate: Floats, floor: Floats, *, is_paired: bool, classes: "pd.Series[str] | None" = None
) -> Effects:
    """Estimate the change of each measure, from a row of logs per measure and a column per run, NaN if missing.

    `floor`: the least standard deviation of a run, by measure, such as that of the clock. With `is_paired`, columns of
    the two sides form pairs. `classes`: groups of measures with similar noise; None for one group.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        if is_paired:
            count, mean, squares = _moments(candidate - baseline)
            freedom, scale, least = count - 1, 1 / count, 2 * floor**2
            is_enough = count >= LEAST_RUNS
        else:
            (few, low, below), (many, high, above) = _moments(baseline), _moments(candidate)
            mean, squares = high - low, below + above
            freedom, scale, least = few + many - 2, 1 / few + 1 / many, floor**2
            is_enough = np.minimum(few, many) >= LEAST_RUNS
        variance = np.maximum(squares / freedom, least)
        variance[~is_enough] = np.nan
        codes = pd.factorize(classes)[0] if classes is not None else np.zeros(len(variance), dtype=np.int64)
        prior = np.zeros(len(variance))
        for code in np.unique(codes):
            of_class = codes == code
            variance[of_class], prior[of_class] = _moderate(variance[of_class], freedom[of_class])
        estimates = np.where(is_enough, mean, np.nan)
        return Effects(estimates, np.sqrt(variance * scale), freedom + prior, np.sqrt(variance), prior, is_paired)


def _moments(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the number of values, the mean and the sum of squared deviations of each row."""
    is_known = np.isfinite(values)
    count = is_known.sum(axis=1).astype(np.float64)
    mean = np.where(is_known, values, 0.0).sum(axis=1) / count
    return count, mean, np.where(is_known, (values - mean[:, None]) ** 2, 0.0).sum(axis=1)


def _moderate(variance: Floats, freedom: Floats) -> tuple[Floats, float]:
    """Shrink variances towards the typical one; return them and the additional degrees of freedom (0: too few)."""
    is_known = np.isfinite(variance) & (freedom > 0)
    if np.count_nonzero(is_known) < LEAST_OF_CLASS:
        return variance, 0.0
    half = freedom[is_known] / 2
    logs = np.log(variance[is_known]) - digamma(half) + np.log(half)
    # the variance of the true log variances
    excess = float(logs.var(ddof=1) - polygamma(1, half).mean())
    if excess <= 0:
        return np.where(is_known, np.exp(logs.mean()), variance), _SURE
    prior = 2 * _inverse_trigamma(excess)
    usual = np.exp(logs.mean() + digamma(prior / 2) - np.log(prior / 2))
    return (prior * usual + freedom * variance) / (prior + freedom), prior


def _inverse_trigamma(value: float) -> float:
    """Solve trigamma(x) = value by Newton's method, as limma does."""
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-9 * x:
            break
    return x


def one_sided(few: Floats, many: Floats, of: tuple[int, int], alpha: float) -> tuple[Flags, Flags]:
    """Return the measures that only the candidate has, and those that only the baseline has.

    `few` and `many`: how many runs of baseline and candidate have each measure. A side has a measure if all of its runs
    do, or most of them and more than chance explains (Fisher's exact test, two-sided). Measures that come and go are
    sometimes on one side by chance; how often is estimated from measures that equally many runs of both sides have. A
    result is withheld if chance would explain more than `alpha` of such results.
    """
    total = sum(of)
    numbers = np.arange(total + 1)
    of_both = np.bincount((few + many)[(few > 0) & (many > 0)].astype(np.int64), minlength=total + 1)
    chances = [comb(side, numbers) / comb(total, numbers) for side in of]
    # under the null hypothesis, runs are assigned to the sides at random
    dealt = of_both / np.maximum(1 - chances[0] - chances[1], 1e-9)
    sides, levels = [], []
    for own, other, side, chance in zip((few, many), (many, few), of, chances, strict=True):
        is_most = (numbers == side) | ((2 * numbers > side) & (numbers < side) & (2 * chance <= alpha))
        # one or two runs against several say nothing about measures that come and go
        is_most &= side >= min(LEAST_RUNS, max(of))
        is_alone = (own > 0) & (other == 0) & is_most[own.astype(np.int64)]
        observed = np.bincount(own[is_alone].astype(np.int64), minlength=total + 1)
        levels.append(np.array([chance, chance * dealt, observed])[:, is_most])
        sides.append((is_alone, chance[own.astype(np.int64)]))
    rarity, expected, count = np.concatenate(levels, axis=1)
    limits = np.unique(rarity)
    is_rarer = rarity <= limits[:, None]
    limit = limits[(is_rarer * expected).sum(axis=1) <= alpha * (is_rarer * count).sum(axis=1)].max(initial=0.0)
    is_old, is_new = (is_alone & (chance <= limit) for is_alone, chance in sides)
    return is_new, is_old


def holm(p: Floats) -> Floats:
    """Adjust p values to control the family-wise error rate (Holm); NaN stays NaN."""
    adjusted, is_known = p.copy(), np.flatnonzero(np.isfinite(p))
    order = is_known[np.argsort(p[is_known], kind="stable")]
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1.0)
    return adjusted


def benjamini_hochberg(p: Floats) -> Floats:
    """Adjust p values to control the false discovery rate (Benjamini and Hochberg); NaN stays NaN."""
    adjusted, is_known = p.copy(), np.flatnonzero(np.isfinite(p))
    order = is_known[np.argsort(-p[is_known], kind="stable")]
    adjusted[order] = np.minimum.accumulate(p[order] * len(order) / np.arange(len(order), 0, -1))
    return adjusted
