"""What a history tells: where series change, what is one event, whose fault it is, and in which state it is."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import ruptures
from hypothesis import given
from hypothesis import strategies as st

from nightsight.history import HistoryRows, levels, trends
from nightsight.history.levels import LEAST_NIGHTS, changes
from nightsight.intervals import Floats
from nightsight.model.compare import AcceptedChange
from nightsight.model.history import off_level
from nightsight.model.report import Conditions
from tests.nights import FIRST, STEP, measures, nights, of, row, step_at

SLOWER = step_at(20, 1.05)


def changes_of(*rows: Any, **options: Any) -> list[tuple[str, str, str]]:
    events = trends(of(*rows), **options).events
    return [(event.state, event.cause, event.main.night.time[:10]) for event in events]


def series(count: int = 90, *, noise: float = 0.003, seed: int = 0) -> Floats:
    return np.exp(np.random.default_rng(seed).normal(0, noise, count))


@pytest.mark.parametrize("noise", [0.001, 0.01])
@pytest.mark.parametrize("size", [1.05, 1.5, 0.94])
def test_a_step_is_found_where_it_is(size: float, noise: float) -> None:
    values = series(60, noise=noise)
    values[40:] *= size
    ((place,),) = changes(values[None])
    assert abs(place - 40) <= 1


@pytest.mark.parametrize("size", [1.02, 0.98, 1.0])
def test_a_small_step_is_none(size: float) -> None:
    values = series(60)
    values[40:] *= size
    assert changes(values[None]) == [[]]


@pytest.mark.parametrize("count", [1, 2])
def test_a_few_bad_nights_are_no_change_of_level(count: int) -> None:
    values = series(60)
    values[30 : 30 + count] *= 1.3
    assert changes(values[None]) == [[]]
    values[-count:] *= 1.3
    assert changes(values[None]) == [[]]


def test_the_step_names_an_event_whatever_else_moved_more_and_wherever_it_stands_in_the_row() -> None:
    def night(number: int) -> Any:
        factor = 1.1 if number >= 20 else 1.0
        values = {"module load and JIT": STEP * factor**2, "kernel_ns": STEP * factor**2, "step_ns": STEP * factor}
        return row(measures(values, night=number))

    (event,) = trends(of([night(number) for number in range(40)])).events
    assert event.main.series.name == "step_ns"
    assert {change.series.label for change in event.changes} == {"step", "kernel", "module load and JIT"}


def test_a_kernel_that_stays_slower_does_not_keep_a_step_from_recovering() -> None:
    def night(number: int) -> Any:
        step = STEP * (1.2 if 20 <= number < 30 else 1.0)
        return row(measures({"step_ns": step}, night=number, kernels={"k": 1e6 * (1.2 if number >= 20 else 1.0)}))

    events = trends(of([night(number) for number in range(45)])).events
    assert [event.state for event in events if event.main.series.name == "step_ns"] == ["recovered"]


def test_three_nights_are_a_change_and_it_is_found_where_it_is() -> None:
    values = series(60)
    values[30:33] *= 1.3
    values[-3:] *= 0.8
    assert changes(values[None]) == [[30, 33, 57]]


def test_slow_drift_is_found_once_it_is_large_enough() -> None:
    ((*places,),) = changes((series(90) * np.linspace(1, 1.10, 90))[None])
    assert 1 <= len(places) <= 3


def test_gaps_shift_nothing_and_zeros_are_values() -> None:
    values = series(60)
    values[40:] *= 1.1
    gaps = values.copy()
    gaps[[3, 20, 41, 50]] = np.nan
    appears = np.where(np.arange(60) < 30, 0.0, 5.0)
    nothing, never = np.zeros(60), np.full(60, np.nan)
    assert changes(np.array([values, gaps, appears, nothing, never])) == [[40], [40], [30], [], []]


def test_only_the_newest_nights_are_tested() -> None:
    values = series(300)
    values[100:] *= 1.1
    values[250:] *= 1.1
    assert changes(values[None]) == [[250]]


@pytest.mark.parametrize("seed", range(5))
def test_the_changes_are_those_of_ruptures_l1(seed: int) -> None:
    random = np.random.default_rng(seed)
    logs = np.cumsum(random.normal(0, 1, (1, 70)) * (random.random((1, 70)) < 0.06) * 0.2) + random.normal(0, 0.02, 70)
    differences = np.diff(logs)
    noise = 1.4826 * np.median(np.abs(differences - np.median(differences))) / np.sqrt(2)
    expected = ruptures.Pelt(model="l1", min_size=LEAST_NIGHTS, jump=1).fit(logs / noise).predict(pen=3 * np.log(70))
    assert levels._change_points(logs[None]) == [expected[:-1]]


@given(st.lists(st.floats(0, 1e12) | st.just(float("nan")), max_size=40))
def test_any_numbers_have_changes_far_enough_apart(values: list[float]) -> None:
    (places,) = changes(np.array([values], dtype=np.float64))
    assert all(0 < place < len(values) for place in places)
    assert all(later - earlier >= LEAST_NIGHTS - 2 for earlier, later in pairwise(places))


def test_without_ruptures_three_nights_in_a_row_are_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "ruptures", None)
    assert "the ruptures package" in trends(HistoryRows(())).rule
    assert changes_of(nights(23, SLOWER)) == [("confirmed", "unknown", "2026-09-21")]
    assert changes_of(nights(22, SLOWER)) == [("suspect", "unknown", "2026-09-21")]


def test_the_simple_rule_says_how_many_are_off_and_by_how_much() -> None:
    assert off_level([10, 10.1, 9.9, 10, 11, 11.2]) == pytest.approx((2, 11), abs=0.2)
    assert off_level([10, 10.1, 9.9, 10, 9.0]) == pytest.approx((1, -10))
    assert off_level([10, 10.1, 9.9, 10, 11, 10]) == (0, 0.0)
    assert off_level([10, 12, 8, 10, 11]) == (0, 0.0)
    assert off_level([10, 20]) == (0, 0.0)


def test_nothing_changed() -> None:
    all_trends = trends(of(nights(30)))
    assert all_trends.events == ()
    (track,) = all_trends.tracks
    assert [(each.kind, each.name) for each in track.series][:2] == [("gate", "step_ns"), ("gate", "launches")]
    assert [night.runs for night in track.nights] == [3] * 30


@pytest.mark.parametrize(
    ("count", "state"), [(21, "suspect"), (22, "suspect"), (23, "confirmed"), (24, "confirmed"), (40, "confirmed")]
)
def test_a_change_is_suspect_and_then_confirmed(count: int, state: str) -> None:
    assert changes_of(nights(count, SLOWER)) == [(state, "unknown", "2026-09-21")]


def test_the_sentence_says_what_changed_since_when_and_which_commits() -> None:
    (event,) = trends(of(nights(30, SLOWER))).events
    assert event.sentence.startswith("mlp: step slower since 2026-09-21, 10.0")
    assert "also 1 kernel, most of all `gemm` (+" in event.sentence
    assert event.sentence.endswith("Commits 0000013000..0000014000.")
    assert [change.series.name for change in event.changes] == ["step_ns", "gemm<float>(float*, int)"]
    assert event.direction == "slower"


def test_a_change_that_was_undone_has_recovered() -> None:
    factor = dict.fromkeys(range(20, 30), 1.05)
    (event,) = trends(of(nights(45, lambda night: factor.get(night, 1.0)))).events
    assert event.state == "recovered"
    assert event.sentence.endswith("It recovered on 2026-10-01.")


def test_a_change_is_accepted_up_to_a_size_by_a_date_and_for_a_workload() -> None:
    rows = nights(30, SLOWER)
    yes = AcceptedChange("step_ns", "checks the loss", "2026-10-01")
    assert changes_of(rows, accepted=[yes])[0][0] == "accepted"
    assert trends(of(rows), accepted=[yes]).events[0].sentence.endswith("Accepted: checks the loss.")
    for no in (
        AcceptedChange("step_ns", "r", "2026-09-20"),
        AcceptedChange("step_ns", "r", "2026-10-01", workload="other"),
        AcceptedChange("step_ns", "r", "2026-10-01", kind="kernel"),
        AcceptedChange("kernel_ns", "r", "2026-10-01"),
        AcceptedChange("step_ns", "r", "2026-10-01", up_to_pct=3.0),
    ):
        assert changes_of(rows, accepted=[no])[0][0] == "confirmed"


def test_workloads_that_move_in_one_night_are_one_event() -> None:
    others = [nights(30, SLOWER, workload=name, seed=seed) for seed, name in enumerate(("mlp", "gelu", "softmax"))]
    (event,) = trends(of(*others)).events
    assert "and 2 more workloads" in event.sentence
    assert len(event.changes) == 6


def test_changes_of_different_nights_and_machines_are_different_events() -> None:
    rows = nights(40, SLOWER)
    later = nights(40, step_at(30, 1.1), workload="gelu")
    elsewhere = nights(40, SLOWER, gpu="NVIDIA H100")
    assert [time for *_, time in changes_of(rows, later, elsewhere)] == ["2026-10-01", "2026-09-21", "2026-09-21"]


def test_a_canary_that_was_not_measured_in_these_nights_says_nothing() -> None:
    canary = [each for place, each in enumerate(nights(30, workload="matmul", seed=3)) if place < 15]
    assert changes_of(nights(30, SLOWER), canary, canaries=["matmul"]) == [("confirmed", "unknown", "2026-09-21")]


def test_a_canary_with_few_nights_still_moved() -> None:
    canary = nights(30, SLOWER, workload="matmul", seed=3)[17:24]
    assert changes_of(nights(30, SLOWER), canary, canaries=["matmul"]) == [("confirmed", "environment", "2026-09-21")]


def test_a_canary_tells_the_machine_from_the_code() -> None:
    steady, moving = (nights(30, factor, workload="matmul", seed=9) for factor in (lambda _: 1.0, SLOWER))
    assert changes_of(nights(30, SLOWER), steady, canaries=["matmul"]) == [("confirmed", "code", "2026-09-21")]
    assert changes_of(nights(30, SLOWER), moving, canaries=["matmul"]) == [("confirmed", "environment", "2026-09-21")]
    other = nights(30, workload="matmul", gpu="NVIDIA H100")
    assert changes_of(nights(30, SLOWER), other, canaries=["matmul"]) == [("confirmed", "unknown", "2026-09-21")]


def test_other_software_or_the_same_commit_is_the_environment() -> None:
    updated = nights(30, SLOWER, torch=lambda night: "2.11" if night >= 20 else "2.10")
    (event,) = trends(of(updated)).events
    assert (event.cause, "Changed on the same night: torch 2.10 → 2.11." in event.sentence) == ("environment", True)
    same = nights(30, SLOWER, commit="a" * 40)
    (event,) = trends(of(same)).events
    assert (event.cause, "The commit is the same before and after (aaaaaaaaaa)" in event.sentence) == (
        "environment",
        True,
    )


def test_a_new_driver_begins_an_epoch_and_is_no_change() -> None:
    rows = nights(40, SLOWER, driver=lambda night: "590.1" if night >= 20 else "580.1")
    all_trends = trends(of(rows))
    assert all_trends.events == ()
    assert [len(track.nights) for track in all_trends.tracks] == [20, 20]
    assert all_trends.tracks[1].key.differences(all_trends.tracks[0].key) == ("driver 580 → 590",)


@pytest.mark.parametrize(("later", "state"), [(0, "confirmed"), (2, "confirmed"), (3, "ended"), (10, "ended")])
def test_a_change_ends_with_its_epoch(later: int, state: str) -> None:
    rows = nights(30 + later, SLOWER, driver=lambda night: "590.1" if night >= 30 else "580.1")
    (event,) = trends(of(rows)).events
    assert event.state == state
    ending = "It never recovered: measured with driver 580 → 590 since 2026-10-01, which began a new epoch."
    assert event.sentence.endswith(ending) == (state == "ended")


def test_in_an_epoch_that_is_over_nothing_is_suspected() -> None:
    def driver(night: int) -> str:
        return "590.1" if night >= 22 else "580.1"

    assert changes_of(nights(24, SLOWER, driver=driver)) == [("suspect", "unknown", "2026-09-21")]
    assert changes_of(nights(25, SLOWER, driver=driver)) == []


@pytest.mark.parametrize("later", [5, 29, 31])
def test_what_is_not_measured_any_more_has_ended_after_a_month(later: int) -> None:
    gone, other = nights(30, SLOWER), nights(30 + later, workload="gelu")
    (event,) = trends(of(gone, other)).events
    assert event.state == ("ended" if later > 30 else "confirmed")
    assert ("It never recovered: not measured since 2026-09-30." in event.sentence) == (later > 30)
    # nobody asks for it after the nights that are tested
    assert trends(of(gone, nights(120, workload="gelu"))).events == ()


def test_two_machines_that_take_turns_end_nothing() -> None:
    rows = nights(40, SLOWER, driver=lambda night: "590.1" if night % 2 else "580.1")
    assert {state for state, *_ in changes_of(rows)} == {"confirmed"}
    elsewhere = [each for each in nights(45, SLOWER, gpu="NVIDIA H100") if each.time > "2026-10-11"]
    assert changes_of(nights(40, SLOWER), elsewhere) == [("confirmed", "unknown", "2026-09-21")]


def test_what_was_accepted_or_recovered_stays_so_when_its_epoch_ends() -> None:
    def driver(night: int) -> str:
        return "590.1" if night >= 40 else "580.1"

    accepted = [AcceptedChange("step_ns", "checks the loss", "2026-10-01")]
    assert changes_of(nights(50, SLOWER, driver=driver), accepted=accepted)[0][0] == "accepted"
    factor = dict.fromkeys(range(20, 30), 1.05)
    assert changes_of(nights(50, lambda night: factor.get(night, 1.0), driver=driver))[0][0] == "recovered"


def test_runs_of_one_night_and_commit_are_one_point() -> None:
    one, two, three = (row(measures({"step_ns": value}, commit="abc1234")) for value in (1e6, 2e6, 9e6))
    (track,) = trends(HistoryRows((one, two, three))).tracks
    assert (len(track.nights), track.nights[0].runs, track.series[0].last) == (1, 3, 2e6)
    dirty = [row(measures({"step_ns": value}, commit="abc1234+")) for value in (1e6, 2e6)]
    assert len(trends(HistoryRows(tuple(dirty))).tracks[0].nights) == 2


def test_disturbed_nights_are_kept_but_not_tested() -> None:
    hot = (Conditions(0, throttled=("HwThermalSlowdown",)),)
    rows = nights(30, SLOWER, conditions=lambda night: hot if night >= 20 else ())
    all_trends = trends(of(rows))
    assert all_trends.events == ()
    assert all_trends.tracks[0].nights[25].flags == ("throttled",)
    assert all_trends.tracks[0].series[0].last > 1.03 * STEP
    calm, slow = (row(measures({"step_ns": size}, conditions=each)) for size, each in ((STEP, ()), (2 * STEP, hot)))
    (again,) = (row(measures({"step_ns": STEP}, commit=calm.commit, conditions=hot, driver="580.2")),)
    (track,) = trends(of([calm, slow, again])).tracks
    assert (track.nights[0].runs, track.nights[0].flags, track.series[0].last) == (1, (), STEP)


def test_kernels_that_take_little_are_not_tested() -> None:
    def with_small(night: int) -> Any:
        small = 0.002 * STEP * (2 if night >= 20 else 1)
        return row(measures({"step_ns": STEP}, night=night, kernels={"big": STEP / 2, "small": small}))

    assert changes_of([with_small(night) for night in range(30)]) == []


def test_new_and_gone_kernels_are_named() -> None:
    def night_of(night: int) -> Any:
        kernels = {"fused": 4e6} if night < 20 else {"one": 3e6, "two": 2e6}
        return row(measures({"step_ns": STEP * (1.1 if night >= 20 else 1)}, night=night, kernels=kernels))

    (event,) = trends(of([night_of(night) for night in range(30)])).events
    assert "2 kernels new, such as `one`." in event.sentence
    assert "1 kernel gone, such as `fused`." in event.sentence


def test_an_event_keeps_an_id_as_nights_and_series_join() -> None:
    events = [trends(of(nights(count, SLOWER))).events[0] for count in (23, 24, 30, 50)]
    assert len({event.id for event in events}) == 1
    both = trends(of(nights(30, SLOWER), nights(30, SLOWER, workload="gelu", seed=5))).events[0]
    assert both.id == events[0].id
    # it is known again if it turns out to be up to three nights earlier or later
    assert len(both.ids) == len(set(both.ids))
    assert set(both.ids) == {trends(of(nights(30, step_at(at, 1.05)))).events[0].id for at in range(17, 24)}


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_a_young_history_says_nothing(count: int) -> None:
    assert changes_of(nights(count)) == []


def test_rows_without_a_time_come_first() -> None:
    timeless = [row(measures({"step_ns": STEP}, commit=""))]
    assert FIRST.year == 2026
    assert len(trends(of(timeless, nights(10))).tracks[0].nights) == 11
