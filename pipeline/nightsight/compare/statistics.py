"""Whether many measures changed, from few runs a side: moderated t tests of log ratios against a minimum effect.

Runs are the replicates. Three to five of them tell little about the noise of one kernel, but hundreds of kernels tell
how noisy kernels are: each variance is drawn towards what is usual in its class (empirical Bayes; Smyth 2004). The null
hypothesis is a change of at most the minimum effect, not of exactly nothing (TREAT; McCarthy and Smyth 2009), so that
a shift of some per mille, which every process has, is none.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.special import comb, digamma, polygamma, stdtr, stdtrit

Floats = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

LEAST_RUNS: Final = 3
"""Runs a side below which nothing is tested."""
LEAST_OF_CLASS: Final = 20
"""Measures below which a class says nothing about usual variances."""
_SURE: Final = 1e6
_TRIED: Final = (*range(LEAST_RUNS, 16), 20, 25, 30, 40, 50, 75, 100)


@dataclass(frozen=True, eq=False)
class Effects:
    """Estimates by measure, in logs of ratios: NaN where there are too few runs.

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
        """Return how likely such an effect is if the true one is at most `least` in either direction."""
        size = np.abs(self.mean)
        beyond, before = ((size + shift) / self.error for shift in (-least, least))
        return np.minimum(stdtr(self.freedom, -beyond) + stdtr(self.freedom, -before), 1.0)

    def interval(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """Return the confidence interval of the effect."""
        half = stdtrit(self.freedom, 0.5 + level / 2) * self.error
        return self.mean - half, self.mean + half

    def needed_runs(self, least: float, same: float | Floats, level: Floats) -> Floats:
        """Return how many runs a side would settle it, if the effect is as estimated; NaN if more than 100.

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
    """Estimate the change of each measure: a row of logs per measure, a column per run; NaN for what was not measured.

    `floor`: the least standard deviation of a run, by measure, such as that of the clock. With `is_paired`, columns of
    the two sides belong together. `classes`: which measures are alike in noise, all if None.
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
            variance[of_class], prior[of_class] = _moderated(variance[of_class], freedom[of_class])
        known = np.where(is_enough, mean, np.nan)
        return Effects(known, np.sqrt(variance * scale), freedom + prior, np.sqrt(variance), prior, is_paired)


def _moments(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return of each row how many values there are, their mean, and their squared distances from it, added up."""
    known = np.isfinite(values)
    count = known.sum(axis=1).astype(np.float64)
    mean = np.where(known, values, 0.0).sum(axis=1) / count
    return count, mean, np.where(known, (values - mean[:, None]) ** 2, 0.0).sum(axis=1)


def _moderated(variance: Floats, freedom: Floats) -> tuple[Floats, float]:
    """Draw variances towards the usual one; return them and the degrees of freedom that this adds (0: too few)."""
    known = np.isfinite(variance) & (freedom > 0)
    if np.count_nonzero(known) < LEAST_OF_CLASS:
        return variance, 0.0
    half = freedom[known] / 2
    logs = np.log(variance[known]) - digamma(half) + np.log(half)
    # how much the true variances differ
    excess = float(logs.var(ddof=1) - polygamma(1, half).mean())
    if excess <= 0:
        return np.where(known, np.exp(logs.mean()), variance), _SURE
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


def of_one_side(few: Floats, many: Floats, of: tuple[int, int], alpha: float) -> tuple[Flags, Flags]:
    """Return what only the candidate has, and what only the baseline has, of things that `few` and `many` runs have.

    A side has what all of its runs have, or most of them and more than chance puts on one side (Fisher's exact test,
    in both directions). Where things come and go by themselves, chance puts some on one side. How many, those tell
    that as many runs have, and both sides do. What chance would explain more than `alpha` of is not said.
    """
    every = sum(of)
    numbers = np.arange(every + 1)
    of_both = np.bincount((few + many)[(few > 0) & (many > 0)].astype(np.int64), minlength=every + 1)
    chances = [comb(side, numbers) / comb(every, numbers) for side in of]
    # runs could have been dealt to the sides in any order
    dealt = of_both / np.maximum(1 - chances[0] - chances[1], 1e-9)
    sides, levels = [], []
    for own, other, side, chance in zip((few, many), (many, few), of, chances, strict=True):
        is_most = (numbers == side) | ((2 * numbers > side) & (numbers < side) & (2 * chance <= alpha))
        # one or two runs against several tell nothing of what comes and goes
        is_most &= side >= min(LEAST_RUNS, max(of))
        is_alone = (own > 0) & (other == 0) & is_most[own.astype(np.int64)]
        found = np.bincount(own[is_alone].astype(np.int64), minlength=every + 1)
        levels.append(np.array([chance, chance * dealt, found])[:, is_most])
        sides.append((is_alone, chance[own.astype(np.int64)]))
    rarity, expected, count = np.concatenate(levels, axis=1)
    limits = np.unique(rarity)
    is_rarer = rarity <= limits[:, None]
    limit = limits[(is_rarer * expected).sum(axis=1) <= alpha * (is_rarer * count).sum(axis=1)].max(initial=0.0)
    is_old, is_new = (is_alone & (chance <= limit) for is_alone, chance in sides)
    return is_new, is_old


def holm(p: Floats) -> Floats:
    """Adjust p values so that any false alarm among them is as rare as one of a single test; NaN stays."""
    adjusted, known = p.copy(), np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1.0)
    return adjusted


def benjamini_hochberg(p: Floats) -> Floats:
    """Adjust p values so that few of those below a level are false alarms; NaN stays."""
    adjusted, known = p.copy(), np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(-p[known], kind="stable")]
    adjusted[order] = np.minimum.accumulate(p[order] * len(order) / np.arange(len(order), 0, -1))
    return adjusted
