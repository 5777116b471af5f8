"""How much longer a step can have become where the host is disturbed: by its fastest steps, and at equal host."""

from dataclasses import replace

import numpy as np
import pytest

from nightsight.compare import Limit, Settings, compare
from nightsight.compare.steps import EQUAL_HOST, FASTEST, evidence
from nightsight.intervals import Floats
from nightsight.model.compare import Comparison, Measures, Noise, Pace
from tests.measured import run

CALM = 0.01
GATE = {"kernel_ns": 3e5, "launches": 50.0}


def disturbed(floor: float, slower: float, *, call: float = 5000.0, **gate: float) -> Measures:
    """Return a run whose fastest step takes the floor, and whose median step is longer."""
    step = floor * (1 + slower)
    return run({"step_ns": step, **GATE, **gate}, pace={"step_ns": Pace(floor / step, CALM)}, launch_call_ns=call)


def hosted(speeds: Floats, slower: float = 0.0, seed: int = 0, **gate: float) -> list[Measures]:
    """Return runs whose steps and launches take longer on a slower host, and that are `slower` besides."""
    own = np.random.default_rng(seed).normal(0, 0.004, len(speeds))
    return [
        run(
            {"step_ns": 2e6 * speed * (1 + slower) * np.exp(noise), **GATE, **gate},
            pace={"step_ns": Pace(0.9, CALM)},
            launch_call_ns=5000.0 * speed,
        )
        for speed, noise in zip(speeds, own, strict=True)
    ]


def compared(before: list[Measures], after: list[Measures], rules: Settings | None = None) -> Comparison:
    return compare(before, after, settings=rules or Settings())


FLOORS = (1.0e6, 1.002e6, 0.999e6, 1.001e6, 1.0e6)
OFTEN = (0.0, 0.25, 0.01, 0.0, 0.35)
SELDOM = (0.3, 0.0, 0.0, 0.01, 0.0)


def test_the_fastest_steps_bound_a_step_that_is_disturbed_in_some_runs() -> None:
    before, after = ([disturbed(*each) for each in zip(FLOORS, slower, strict=True)] for slower in (SELDOM, OFTEN))
    comparison = compared(before, after)
    row = comparison.changes.set_index("name").loc["step_ns"]
    assert (comparison.verdict, comparison.decision.status, row["most_by"]) == ("unchanged", 0, FASTEST)
    assert 0 < row["most_pct"] < 0.5
    assert row["high_pct"] > 10
    assert comparison.decision.line.startswith("passed: no regression above 5 %: counts equal")
    assert "step time at most +0.1 % by its fastest steps" in comparison.decision.line


@pytest.mark.parametrize(("slower", "status"), [(1.0, 0), (1.01, 0), (1.03, 1), (1.1, 1)])
@pytest.mark.parametrize("green_pct", [5, 15])
def test_what_makes_all_steps_longer_is_found_by_the_fastest(slower: float, status: int, green_pct: float) -> None:
    before = [disturbed(*each) for each in zip(FLOORS, SELDOM, strict=True)]
    after = [disturbed(slower * floor, each) for floor, each in zip(FLOORS, OFTEN, strict=True)]
    comparison = compared(before, after, Settings(green_pct=green_pct))
    assert comparison.decision.status == status
    if status:
        text = f"by its fastest steps {100 * (slower - 1):+.1f} %"
        assert text in comparison.decision.line
        assert text in comparison.sentence


def test_fast_steps_say_nothing_if_most_runs_have_become_longer() -> None:
    before = [disturbed(*each) for each in zip(FLOORS, SELDOM, strict=True)]
    after = [disturbed(*each) for each in zip(FLOORS, (0.1, 0.3, 0.08, 0.25, 0.12), strict=True)]
    assert compared(before, after).decision.status == 4


SLOW_HOSTS = np.array([1.0, 1.12, 0.9, 1.2, 1.05])
FAST_HOSTS = np.array([1.02, 0.92, 1.15, 1.1, 0.98])


@pytest.mark.parametrize(("slower", "status"), [(0.0, 0), (0.01, 0), (0.04, 1), (0.15, 1)])
def test_a_step_of_a_busy_host_is_compared_at_equal_speed(slower: float, status: int) -> None:
    comparison = compared(hosted(FAST_HOSTS), hosted(SLOW_HOSTS, slower, seed=1))
    row = comparison.changes.set_index("name").loc["step_ns"]
    assert (comparison.decision.status, row["most_by"]) == (status, EQUAL_HOST)
    assert row["most_pct"] == pytest.approx(100 * slower, abs=1.5)
    assert ("at equal speed of the host +" in comparison.decision.line) == bool(status)
    assert row["low_pct"] < 0 or slower == 0.15


def test_a_slowdown_that_noise_hides_is_not_green_beyond_what_is_allowed() -> None:
    """At equal speed of the host, steps of a side still differ by 4 %."""
    random = np.random.default_rng(3)
    before, after = hosted(FAST_HOSTS * np.exp(random.normal(0, 0.04, 5))), hosted(SLOW_HOSTS, 0.07, seed=1)
    after = [replace(each, launch_call_ns=5000.0 * speed) for each, speed in zip(after, SLOW_HOSTS, strict=True)]
    before = [replace(each, launch_call_ns=5000.0 * speed) for each, speed in zip(before, FAST_HOSTS, strict=True)]
    comparison = compared(before, after)
    assert comparison.decision.status == 4
    assert "GPU kernel time (13 % of step time) within ±0.0 %" in comparison.decision.line
    assert "it would pass with green_pct = " in comparison.decision.line


def test_a_candidate_that_may_have_slowed_down_its_host_is_not_compared_at_equal_speed() -> None:
    comparison = compared(hosted(FAST_HOSTS), hosted(1.25 * FAST_HOSTS, seed=1))
    assert comparison.decision.status == 4
    assert comparison.changes.set_index("name").loc["step_ns", "most_by"] != EQUAL_HOST


def test_the_time_of_a_launch_tells_nothing_if_others_are_launched() -> None:
    comparison = compared(hosted(FAST_HOSTS), hosted(SLOW_HOSTS, seed=1, launches=20.0))
    assert comparison.changes.set_index("name").loc["step_ns", "most_by"] != EQUAL_HOST
    assert comparison.decision.open == ("step_ns",)


def test_a_single_wild_run_of_three_is_no_regression() -> None:
    """It moves the mean of the medians, the fastest steps, and what an equal host would take; recorded on an H100."""
    before = [disturbed(floor, slower) for floor, slower in ((171.7e3, 0.125), (171.2e3, 0.081), (170.8e3, 0.02))]
    after = [disturbed(floor, slower) for floor, slower in ((169.7e3, 0.028), (234.8e3, 0.194), (171.1e3, 0.019))]
    calls = (7331, 7071, 6843, 5455, 9415, 5388)
    runs = [replace(each, launch_call_ns=float(call)) for each, call in zip([*before, *after], calls, strict=True)]
    comparison = compared(runs[:3], runs[3:])
    row = comparison.changes.set_index("name").loc["step_ns"]
    assert (comparison.decision.status, row["note"]) == (4, "no such change by its medians")
    assert row["p"] < 0.05


def test_what_a_slower_host_explains_is_no_regression() -> None:
    """Three runs of each, of which the first were made while the host was quiet."""
    quiet, busy = np.array([1.0, 1.02, 0.98]), np.array([1.3, 1.33, 1.28])
    comparison = compared(hosted(quiet), hosted(busy, seed=1))
    row = comparison.changes.set_index("name").loc["step_ns"]
    assert (row["verdict"], row["note"]) == ("inconclusive", "no such change at equal speed of the host")
    assert row["low_pct"] > 1
    assert comparison.decision.status == 4
    slower = compared(hosted(quiet), hosted(quiet, 0.3, seed=1))
    assert slower.decision.status == 1


@pytest.mark.parametrize(("order", "status"), [("ABBAAB", 1), ("AAABBB", 4)])
def test_a_host_that_is_slower_for_each_run_of_one_side_is_no_chance_in_turns(order: str, status: int) -> None:
    """Steps and launches take 10 % longer with the candidate; runs of a side are alike."""
    calm = np.array([1.0, 1.012, 0.988])
    sides = [
        [replace(each, series="ab", order=at) for each, at in zip(runs, places, strict=True)]
        for runs, places in (
            (hosted(speeds, seed=seed), [at for at, side in enumerate(order) if side == name])
            for seed, (name, speeds) in enumerate((("A", calm), ("B", 1.1 * calm)))
        )
    ]
    comparison = compared(sides[0], sides[1])
    assert (comparison.is_paired, comparison.decision.status) == (status == 1, status)


def test_at_equal_host_is_the_least_squares_of_side_and_speed() -> None:
    random = np.random.default_rng(5)
    speed = random.normal(0, 0.1, 10)
    step = 0.8 * speed + np.repeat([0.0, 0.02], 5) + random.normal(0, 0.01, 10)
    runs = [run(pace={"step_ns": Pace(0.9, CALM)}, launch_call_ns=float(call)) for call in np.exp(speed)]
    step_evidence = evidence(runs, "step_ns", step[:5], step[5:], same_launches=True, is_paired=False)
    design = np.column_stack([np.ones(10), np.repeat([0.0, 1.0], 5), speed])
    solved, squares, *_ = np.linalg.lstsq(design, step)
    variance = squares[0] / 7 * np.linalg.inv(design.T @ design)[1, 1]
    assert step_evidence
    assert step_evidence.at_equal_host
    assert step_evidence.at_equal_host[:3] == pytest.approx((solved[1], np.sqrt(variance), 7))


def test_steps_that_differ_within_a_run_are_not_known_to_the_permille() -> None:
    """Medians of three runs a side agree by chance: steps of a run differ by 20 %, and the fastest are equal."""
    sides = [
        [replace(each, pace={"step_ns": Pace(0.9 / speed, 0.2)}) for each in hosted(np.full(3, speed))]
        for speed in (1.0, 1.06)
    ]
    row = compared(sides[0], sides[1]).changes.set_index("name").loc["step_ns"]
    assert (row["verdict"], row["most_by"]) == ("inconclusive", "")


def test_no_estimate_makes_green_what_another_shows_to_be_longer() -> None:
    """The fastest steps are 10 % longer; the medians are at equal speed of the host, and more precisely known."""
    before, after = (
        [
            replace(each, pace={"step_ns": Pace(fastest / speed, CALM)})
            for each, speed in zip(hosted(speeds, seed=seed), speeds, strict=True)
        ]
        for seed, (speeds, fastest) in enumerate(((FAST_HOSTS, 0.85), (SLOW_HOSTS, 0.935)))
    )
    comparison = compared(before, after)
    row = comparison.changes.set_index("name").loc["step_ns"]
    assert (comparison.decision.status, row["most_by"]) == (4, FASTEST)
    assert row["note"] == "no such change at equal speed of the host"


def test_what_is_left_possible_follows_from_settings_and_from_the_noise_of_the_workload() -> None:
    allowed = Settings(limits={"kernel_ns": Limit(most_pct=8)}).allowed_pct(Noise("", {"step_ns": 6.0}), 5)
    assert allowed["step_ns"] == pytest.approx(3.6 * 6 / np.sqrt(5))
    assert (allowed["kernel_ns"], allowed["unprofiled_step_ns"]) == (8, 5)
    # calm workloads have the usual bound, and the wildest are not left to themselves
    assert Settings().allowed_pct(Noise("", {"step_ns": 0.1}), 5)["step_ns"] == 5
    assert Settings().allowed_pct(Noise("", {"step_ns": 60.0}), 3)["step_ns"] == 20
    assert Settings(green_pct=2).allowed_pct(Noise("", {"step_ns": 6.0}), 5)["step_ns"] == 2
    before, after = (
        [run({"step_ns": step}) for step in steps] for steps in ((1e6, 1.1e6, 0.96e6), (1.03e6, 1.0e6, 1.05e6))
    )
    noisy = compare(before, after, settings=Settings(), noise=Noise("noise", {"step_ns": 6.0}))
    assert (compared(before, after).decision.status, noisy.decision.status, noisy.noise) == (4, 0, "noise")
    assert "no regression above 12.5 %" in noisy.decision.line
