"""Compare the results of two forms of a program: its losses, or the outputs of its models.

The tolerance is the larger of two values: a multiple of the difference between unchanged runs, and a bound for the
declared change of numerics (the order of operations, or the number type). Both grow with the steps, because training
amplifies differences. Once unchanged runs diverge, their values can no longer be compared. A commit with different
results is a regression, however fast it is.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Final

import numpy as np

from nightsight.intervals import Floats
from nightsight.model.compare import Comparison
from nightsight.model.prove import DIFFERENT, EQUAL, UNKNOWN, WITHIN, Agreement
from nightsight.results.switches import NONE, PRECISION, ROUNDING

Runs = Sequence[Sequence[Sequence[float]]]
"""The values of the processes of several runs."""

# relative differences that a change of numerics may cause in the first step, and the steps after which they double
_BOUNDS: Final = {NONE: 1e-6, ROUNDING: 2e-3, PRECISION: 2e-2}
_DOUBLED_AFTER: Final = 20
# a tolerance is this many times the difference of unchanged runs
_OF_NOISE: Final = 3.0
# larger differences are not allowed, however long a program trains
_MOST_ALLOWED: Final = 0.1
# values of unchanged runs that differ by more cannot be compared; the values before them can if each series has this
# many of them, and this share
_MOST_NOISE: Final = 0.05
_LEAST_VALUES: Final = 3
_LEAST_SHARE: Final = 0.1
# later values must have the same order of magnitude
_SAME_MAGNITUDE: Final = 0.9
# values smaller than this share of the median of their series are compared with that
_LEAST: Final = 1e-3


def compare_outcomes(unchanged: Runs, changed: Runs, numerics: str) -> Agreement:
    """Return whether the results of changed runs agree with those of the first unchanged run.

    The other unchanged runs only show how much such runs differ. They may include runs with perturbed weights.
    """
    base, other = [_joined(run) for run in unchanged], [_joined(run) for run in changed]
    if doubt := _doubt(base, other):
        return doubt
    # each process begins at its first step
    lengths = [len(values) for values in unchanged[0]]
    steps = np.concatenate([np.arange(length) for length in lengths])
    noise = np.zeros(len(steps))
    for number, values in enumerate(base):
        for earlier in base[:number]:
            noise = np.maximum(noise, _difference(earlier, values, lengths))
    noise = np.concatenate([np.maximum.accumulate(part) for part in _series(noise, lengths)])
    is_sure = noise <= _MOST_NOISE
    sure = [int(part.sum()) for part in _series(is_sure, lengths)]
    least = [min(length, max(_LEAST_VALUES, ceil(_LEAST_SHARE * length))) for length in lengths]
    if any(count < needed for count, needed in zip(sure, least, strict=True)):
        return Agreement(UNKNOWN, f"unchanged runs differ by {_percent(float(noise.max()))}", 100 * float(noise.max()))
    allowed = np.maximum(_BOUNDS[numerics] * (1 + steps / _DOUBLED_AFTER), _OF_NOISE * noise)
    allowed = np.minimum(allowed, np.where(is_sure, _MOST_ALLOWED, _SAME_MAGNITUDE))
    differences = [_difference(base[0], values, lengths) for values in other]
    worst = max(float(np.nanmax(difference[is_sure], initial=0.0)) for difference in differences)
    for values, difference in zip(other, differences, strict=True):
        is_off = ~np.isfinite(values) | (difference > allowed)
        if is_off.any():
            first = int(is_off.argmax())
            what = f"{values[first]:.4g} against {base[0][first]:.4g}"
            return Agreement(DIFFERENT, f"different since value {first + 1} of {len(steps):,}: {what}", 100 * worst)
    what = f"{sum(sure):,} values" if sum(sure) > 1 else "1 value"
    if not is_sure.all():
        what = f"the first {what}, since unchanged runs diverge after them,"
    if worst <= _BOUNDS[NONE]:
        return Agreement(EQUAL, what, 100 * worst)
    against = f", unchanged runs by {_percent(float(noise.max()))}" if len(base) > 1 else ""
    return Agreement(WITHIN, f"{what} differ by {_percent(worst)}{against}", 100 * worst)


def with_results(comparison: Comparison, results: Agreement) -> Comparison:
    """Return a comparison of commits with the agreement of their results: if they differ, the gate fails."""
    if results.verdict != DIFFERENT:
        text = {UNKNOWN: "were not compared", EQUAL: "are equal", WITHIN: "agree"}[results.verdict]
        return replace(comparison, notes=(*comparison.notes, f"Results {text}: {results.detail}."))
    verb = "" if results.detail.startswith(DIFFERENT) else "differ: "
    text = f"results {verb}{results.detail} of the baseline"
    speed = "Faster but wrong" if comparison.verdict == "improved" else "Wrong"
    decision, size = comparison.decision, comparison.decision.line.rpartition(", on ")[2]
    broken = (text, *decision.broken)
    return replace(
        comparison,
        sentence=f"{speed}: {text}. {comparison.sentence}",
        decision=replace(decision, status=1, line=f"regression: {'; '.join(broken)}, on {size}", broken=broken),
    )


def _doubt(base: Sequence[Floats], other: Sequence[Floats]) -> Agreement | None:
    """Return why the values cannot be compared one by one; None if they can."""
    if not base or not other or not len(base[0]):
        return Agreement(UNKNOWN, "no loss and no output of a model was seen")
    if len({len(values) for values in base}) > 1:
        return Agreement(UNKNOWN, "unchanged runs have different numbers of values")
    if any(len(values) != len(base[0]) for values in other):
        return Agreement(DIFFERENT, f"{len(other[0]):,} values instead of {len(base[0]):,}")
    if not all(np.isfinite(values).all() for values in base):
        return Agreement(UNKNOWN, "the unchanged program has values that are not finite")
    return None


def _joined(run: Sequence[Sequence[float]]) -> Floats:
    """Return the values of all processes of a run, one after the other."""
    return np.concatenate([np.empty(0), *(np.asarray(values, dtype=np.float64) for values in run)])


def _series(values: "np.ndarray[Any, Any]", lengths: Sequence[int]) -> "list[np.ndarray[Any, Any]]":
    """Return the parts of each series: losses, or norms, of a process."""
    return np.split(values, np.cumsum(lengths)[:-1])


def _difference(first: Floats, second: Floats, lengths: Sequence[int]) -> Floats:
    """Return the relative differences of the values of several series."""
    largest = np.maximum(np.abs(first), np.abs(second))
    typical = [np.nanmedian(part) or np.nanmax(part) for part in _series(np.abs(first), lengths)]
    scale = np.maximum(largest, _LEAST * np.repeat(typical, lengths))
    # the difference of infinite values is NaN
    with np.errstate(invalid="ignore"):
        difference: Floats = np.abs(first - second) / np.where(scale > 0, scale, 1.0)
    return difference


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
