"""Tests of many measures with few runs: against formulas written down another way, and against made-up worlds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma, polygamma
from scipy.stats import false_discovery_control, t

from nightsight.compare import Settings, compare
from nightsight.compare.statistics import benjamini_hochberg, effects, holm, one_sided
from nightsight.intervals import Floats
from tests.measured import run, side
from tests.properties import examples
from tests.simulate import simulate

NOTHING = np.zeros(400)


def noisy(seed: int, runs: int, *, kernels: int = 400, spread: float = 0.6) -> tuple[Floats, Floats]:
    random = np.random.default_rng(seed)
    own = 0.005 * random.lognormal(0, spread, (kernels, 1))
    return random.normal(0, own, (kernels, runs)), random.normal(0, own, (kernels, runs))


def treat(differences: Floats, least: float) -> Floats:
    """The method as its papers give it, for pairs: p values that are not adjusted."""
    runs = differences.shape[1]
    freedom = runs - 1
    mean, variance = differences.mean(1), differences.var(1, ddof=1)
    logs = np.log(variance) - digamma(freedom / 2) + np.log(freedom / 2)
    excess = logs.var(ddof=1) - polygamma(1, freedom / 2)
    # trigamma falls, so halving the bracket finds where it is as large as that
    low, high = 1e-6, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if polygamma(1, middle) > excess else (low, middle)
    prior = 2 * low
    usual = np.exp(logs.mean() + digamma(prior / 2) - np.log(prior / 2))
    posterior = (prior * usual + freedom * variance) / (prior + freedom)
    error, size = np.sqrt(posterior / runs), np.abs(mean)
    p = t.sf((size - least) / error, prior + freedom) + t.sf((size + least) / error, prior + freedom)
    smallest: Floats = np.minimum(p, 1.0)
    return smallest


@pytest.mark.parametrize("runs", [3, 5, 10])
def test_p_values_are_those_of_the_papers(runs: int) -> None:
    before, after = noisy(1, runs)
    after[:20] += 0.05
    estimates = effects(before, after, NOTHING, is_paired=True)
    assert estimates.p_values(0.01) == pytest.approx(treat(after - before, 0.01), rel=1e-6)


def test_without_pairs_it_is_the_test_of_two_samples_with_one_variance() -> None:
    before, after = noisy(2, 5, kernels=4)
    estimates = effects(before, after, NOTHING[:4], is_paired=False)
    pooled = (before.var(1, ddof=1) + after.var(1, ddof=1)) / 2
    assert estimates.mean == pytest.approx(after.mean(1) - before.mean(1))
    assert estimates.error == pytest.approx(np.sqrt(pooled * 2 / 5))
    assert estimates.freedom.tolist() == [8.0] * 4


def test_few_measures_lend_one_another_nothing() -> None:
    assert effects(*noisy(3, 3, kernels=19), NOTHING[:19], is_paired=True).prior.max() == 0
    assert effects(*noisy(3, 3, kernels=20), NOTHING[:20], is_paired=True).prior.min() > 0


def test_measures_of_equal_noise_share_one_variance() -> None:
    estimates = effects(*noisy(4, 3, spread=0.0), NOTHING, is_paired=True)
    assert estimates.prior.min() > 50
    assert estimates.error.max() < 1.3 * estimates.error.min()


def test_a_side_with_fewer_than_three_values_is_not_tested() -> None:
    before, after = noisy(5, 4)
    before[0, 1:3] = np.nan
    after[1, :] = np.nan
    before[2, 0] = np.nan
    for is_paired in (True, False):
        tested = np.isfinite(effects(before, after, NOTHING, is_paired=is_paired).p_values(0.01))
        assert tested[:3].tolist() == [False, False, True]


def test_no_measure_is_steadier_than_its_clock() -> None:
    flat = np.zeros((1, 3))
    estimates = effects(flat, flat, np.array([0.01]), is_paired=False)
    assert estimates.error == pytest.approx(0.01 * np.sqrt(2 / 3))


def test_more_runs_settle_what_few_leave_open() -> None:
    before, after = noisy(6, 3)
    after[:10] += 0.03
    few = effects(before, after, NOTHING, is_paired=True)
    needed = few.needed_runs(0.01, 0.03, np.full(400, 0.001))
    assert np.nanmin(needed) >= 3
    assert np.nanmedian(needed[:10]) > np.nanmedian(needed[10:])


def test_holm_multiplies_the_smallest_by_all_and_the_largest_by_one() -> None:
    p = np.array([0.01, 0.04, np.nan, 0.03, 0.005])
    assert holm(p) == pytest.approx([0.03, 0.06, np.nan, 0.06, 0.02], nan_ok=True)


def test_benjamini_hochberg_divides_by_the_rank() -> None:
    p = np.array([0.01, 0.04, np.nan, 0.03, 0.005])
    assert benjamini_hochberg(p) == pytest.approx([0.02, 0.04, np.nan, 0.04, 0.02], nan_ok=True)


@pytest.mark.parametrize("runs", [3, 5, 10])
@pytest.mark.parametrize("groups", [5, 50, 200])
def test_what_comes_and_goes_by_itself_is_rarely_reported_for_one_side(runs: int, groups: int) -> None:
    drawn, alarms, worlds = np.random.default_rng(7), 0, 400
    for _ in range(worlds):
        chance = drawn.uniform(0.05, 0.4, groups)
        few, many = (drawn.binomial(runs, chance).astype(np.float64) for _ in range(2))
        added, removed = one_sided(few, many, (runs, runs), 0.05)
        alarms += bool((added | removed).any())
    assert alarms <= 0.07 * worlds


@pytest.mark.parametrize(("few", "many"), [(3, 3), (5, 5), (1, 1), (3, 5)])
def test_what_all_runs_of_a_side_have_is_of_that_side(few: int, many: int) -> None:
    having = np.array([0.0, 0, few, few, 1]), np.array([many, many, 0.0, many, 1])
    added, removed = one_sided(*having, (few, many), 0.05)
    assert added.tolist() == [True, True, False, False, False]
    assert removed.tolist() == [False, False, True, False, False]


def test_one_run_against_several_tells_nothing_of_what_comes_and_goes() -> None:
    having = np.array([1.0, 0, 0]), np.array([0.0, 9, 1])
    assert not np.any(one_sided(*having, (1, 9), 0.05)[1])
    assert one_sided(*having, (1, 9), 0.05)[0].tolist() == [False, True, False]


def test_a_kernel_of_few_runs_is_of_no_side() -> None:
    added, removed = one_sided(np.zeros(3), np.array([2.0, 1, 4]), (5, 5), 0.05)
    assert added.tolist() == [False, False, True]
    assert not removed.any()


def test_a_new_kernel_is_found_where_host_calls_come_and_go() -> None:
    # calls in one of ten runs, or in nearly all, are no reason to doubt a kernel that all of a side have
    few, many = np.array([1.0, 0, 5, 4, 0]), np.array([0.0, 1, 4, 5, 5])
    added, _ = one_sided(few, many, (5, 5), 0.05)
    assert added.tolist() == [False, False, False, False, True]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
@examples(50)
def test_benjamini_hochberg_is_that_of_scipy(p: list[float]) -> None:
    assert benjamini_hochberg(np.array(p)) == pytest.approx(false_discovery_control(p), abs=1e-12)


TIMES = st.floats(1e3, 1e9)


@given(st.lists(TIMES, min_size=1, max_size=5), st.lists(TIMES, min_size=1, max_size=5))
@examples(50)
def test_swapping_the_sides_swaps_the_verdict(few: list[float], many: list[float]) -> None:
    swapped = {"regressed": "improved", "improved": "regressed"}
    there = compare(side(few), side(many), settings=Settings()).changes.iloc[0]
    back = compare(side(many), side(few), settings=Settings()).changes.iloc[0]
    assert back["verdict"] == swapped.get(there["verdict"], there["verdict"])
    if np.isfinite(there["p"]):
        assert back["p"] == pytest.approx(there["p"], abs=1e-9)
        assert (1 + back["change_pct"] / 100) * (1 + there["change_pct"] / 100) == pytest.approx(1)


@given(st.lists(TIMES, min_size=1, max_size=5), st.integers(1, 2))
@examples(50)
def test_one_or_two_runs_a_side_are_never_significant(values: list[float], few: int) -> None:
    slower = [10 * max(values) + value for value in values]
    comparison = compare(side(values[:few]), side(slower), settings=Settings())
    assert comparison.verdict == "inconclusive"
    row = comparison.changes.iloc[0]
    assert (row["verdict"], row["needed_runs"]) == ("inconclusive", 3)
    assert np.isnan(row[["p", "low_pct", "high_pct"]].astype("float64")).all()
    assert row["change_pct"] > 100


@given(st.lists(TIMES, min_size=3, max_size=6), st.floats(1e-3, 1e3))
@examples(50)
def test_the_unit_does_not_matter(values: list[float], factor: float) -> None:
    after = [value * 1.02 for value in values]
    small, large = (
        compare(side([x * scale for x in values]), side([x * scale for x in after]), settings=Settings(least_ns=0))
        for scale in (1.0, factor)
    )
    assert large.changes["p"].iloc[0] == pytest.approx(small.changes["p"].iloc[0], abs=1e-9)


def test_a_side_compared_with_itself_is_unchanged() -> None:
    runs = [run({"step_ns": 1e6 + 100 * place}, {"a": (2, 4e5), "b": (3, 6e5)}) for place in range(5)]
    comparison = compare(runs, runs, settings=Settings())
    assert set(comparison.changes["verdict"]) == {"unchanged"}
    assert (comparison.verdict, comparison.decision.status) == ("unchanged", 0)


def test_values_that_are_not_numbers_are_left_out() -> None:
    before, after = side([1e6, 1.001e6, 0.999e6, float("nan")]), side([1.1e6, 1.101e6, 1.099e6, float("inf")])
    comparison = compare(before, after, settings=Settings())
    assert comparison.verdict == "regressed"
    assert comparison.changes["change_pct"].iloc[0] == pytest.approx(10, abs=0.1)
    only = compare(side([float("nan")] * 3), side([1e6] * 3), settings=Settings())
    assert only.decision.status == 3


@pytest.mark.parametrize(("runs", "least_pct"), [(3, 70), (5, 85)])
def test_worlds_without_a_change_stay_calm_and_changes_are_found(runs: int, least_pct: float) -> None:
    assert simulate(runs, 15).wrong_pct <= 7  # one of them
    slower = simulate(runs, 8, slower=0.05)
    assert slower.found_pct >= least_pct - 10
    assert slower.false_pct <= 10
