"""Counts of a step: what differs between the sides and not within them decides, whatever the noise of the step."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from nightsight.compare import Limit, Settings, compare
from nightsight.model.compare import AcceptedChange, Comparison, Measures
from tests.measured import run

NOISY = (1.0e6, 1.3e6, 0.8e6, 1.1e6, 0.9e6)
COUNTS = {"kernel_ns": 1e6, "launches": 40.0, "memsets": 0.0, "device_to_host_copies": 0.0, "copies": 2.0}


def side(counts: Mapping[str, float], *, steps: Sequence[float] = NOISY, by: Sequence[float] = ()) -> list[Measures]:
    """Return runs of a noisy step; `by` is added to the launches of each."""
    added = by or [0.0] * len(steps)
    return [
        run({"step_ns": step, **COUNTS, **counts, "launches": {**COUNTS, **counts}["launches"] + more})
        for step, more in zip(steps, added, strict=True)
    ]


def compared(before: Sequence[Measures], after: Sequence[Measures], rules: Settings | None = None) -> Comparison:
    return compare(before, after, settings=rules or Settings())


def verdict(comparison: Comparison, name: str) -> tuple[str, bool]:
    row = comparison.changes.set_index("name").loc[name]
    return str(row["verdict"]), bool(row["is_fact"])


def test_a_new_copy_in_each_step_is_a_regression_in_the_noisiest_step() -> None:
    comparison = compared(side({}), side({"device_to_host_copies": 1.0, "copies": 3.0}, steps=NOISY[::-1]))
    assert (comparison.verdict, comparison.decision.status) == ("regressed", 1)
    # the total of all directions is not told as well
    assert comparison.decision.broken == ("Device-to-Host copies per step: 1, none before",)
    assert comparison.sentence == "Device-to-Host copies per step 0 → 1, on 5 + 5 runs."


@pytest.mark.parametrize("runs", [3, 5])
def test_one_launch_more_of_thousands_is_reported_with_its_numbers(runs: int) -> None:
    steps = NOISY[:runs]
    comparison = compared(side({"launches": 5000.0}, steps=steps), side({"launches": 5001.0}, steps=steps))
    assert verdict(comparison, "launches") == ("regressed", True)
    assert comparison.decision.broken == ("launches per step 5,000 → 5,001",)


@pytest.mark.parametrize(("before", "after"), [(40.0, 40.0), (40.0, 40.01), (0.01, 0.0)])
def test_what_a_window_begins_or_ends_with_is_no_difference(before: float, after: float) -> None:
    """Of 100 steps, one of which ends with a synchronization."""
    comparison = compared(side({"launches": before}), side({"launches": after}))
    assert verdict(comparison, "launches") == ("unchanged", True)
    assert "counts equal" in comparison.decision.shown[0]


def test_what_is_rare_is_a_fact_if_it_is_as_rare_in_all_runs() -> None:
    comparison = compared(side({"device_to_host_copies": 0.1}), side({"device_to_host_copies": 0.2}))
    assert comparison.decision.regressed == ("device_to_host_copies",)


def test_a_count_that_differs_within_a_side_is_left_to_statistics() -> None:
    before, after = side({}, by=(0, 1, 2, 1, 0)), side({}, by=(1, 2, 0, 0, 1))
    comparison = compared(before, after)
    assert verdict(comparison, "launches") == ("unchanged", False)
    many = compared(before, side({"launches": 60.0}, by=(1, 2, 0, 0, 1)))
    assert verdict(many, "launches") == ("regressed", False)
    assert many.decision.regressed == ("launches",)
    wild = compared(side({}, by=(0, 9, -9, 3, -4)), side({}, by=(2, 12, -9, 1, -3)))
    assert "counts equal except launches per step, which vary from run to run" in wild.decision.line


def test_few_runs_tell_no_facts() -> None:
    comparison = compared(side({}, steps=NOISY[:2]), side({"device_to_host_copies": 1.0}, steps=NOISY[:2]))
    assert comparison.decision.status == 4
    assert verdict(comparison, "device_to_host_copies") == ("inconclusive", False)


def test_what_an_earlier_report_does_not_know_is_neither_equal_nor_new() -> None:
    before, after = side({}), side({"synchronizing_calls": 1.0})
    comparison = compared(before, after)
    assert verdict(comparison, "synchronizing_calls") == ("inconclusive", False)
    assert comparison.decision.status == 4
    assert "counts equal (" in comparison.decision.line
    tight = (1.0e6, 1.001e6, 0.999e6)
    uncounted = [run({"step_ns": step, "kernel_ns": 1e6}) for step in tight]
    passed = compared(uncounted, side({}, steps=tight)).decision
    assert (passed.status, "; counts unknown, on 3 + 3 runs" in passed.line) == (0, True)


def test_fewer_are_no_regression() -> None:
    tight = (1.0e6, 1.001e6, 0.999e6)
    comparison = compared(side({}, steps=tight), side({"launches": 10.0}, steps=tight))
    assert (comparison.verdict, comparison.decision.status) == ("improved", 0)
    assert comparison.decision.line.startswith(
        "passed: launches per step 40 → 10; no regression above 5 %: other counts equal"
    )


def test_fewer_launches_make_up_for_a_memset_but_not_for_a_copy_to_the_host() -> None:
    """Whatever is fused into fewer kernels may need one more memset."""
    tight = (1.0e6, 1.001e6, 0.999e6)
    fused = {"launches": 30.0, "memsets": 1.0}
    comparison = compared(side({}, steps=tight), side(fused, steps=tight))
    assert (comparison.verdict, comparison.decision.status) == ("improved", 0)
    assert "memsets per step 0 → 1, offset by others" in comparison.decision.shown
    comparison = compared(side({}, steps=tight), side({**fused, "device_to_host_copies": 1.0}, steps=tight))
    assert comparison.decision.regressed == ("device_to_host_copies",)
    comparison = compared(side({}, steps=tight), side({"launches": 39.0, "memsets": 2.0}, steps=tight))
    assert comparison.decision.regressed == ("memsets",)


def test_a_count_that_makes_the_step_faster_is_no_regression() -> None:
    fast = [0.9 * step for step in (1.0e6, 1.001e6, 0.999e6)]
    more = {"launches": 50.0, "device_to_host_copies": 1.0}
    comparison = compared(side({}, steps=(1.0e6, 1.001e6, 0.999e6)), side(more, steps=fast))
    assert (comparison.verdict, comparison.decision.status) == ("improved", 0)


def test_a_count_can_be_accepted_or_allowed() -> None:
    tight = (1.0e6, 1.001e6, 0.999e6)
    sides = side({}, steps=tight), side({"device_to_host_copies": 1.0, "launches": 42.0}, steps=tight)
    assert compared(*sides).decision.regressed == ("launches", "device_to_host_copies")
    accepted = (
        AcceptedChange("copies", "logs the loss", "2026-11-20"),
        AcceptedChange("launches", "an optimizer", "2026-11-20"),
    )
    assert compared(*sides, Settings(accepted=accepted)).decision.status == 0
    assert compared(*sides, Settings(accepted=accepted[1:])).decision.regressed == ("device_to_host_copies",)
    allowed = Settings(limits={"launches": Limit(most_pct=10)}, accepted=accepted[:1])
    assert compared(*sides, allowed).decision.status == 0
    times = Settings(deciding=("step_ns", "kernel_ns"))
    assert compared(*sides, times).decision.status == 0


@pytest.mark.parametrize(
    ("before", "after", "status"), [(4.0e6, 8.0e6, 1), (4.0e6, 4.0e6 + 8, 0), (0.0, 4.0, 0), (0.0, 1e5, 1)]
)
def test_bytes_count_if_they_are_many(before: float, after: float, status: int) -> None:
    tight = (1.0e6, 1.001e6, 0.999e6)
    few, many = (side({"host_to_device_bytes": size}, steps=tight) for size in (before, after))
    assert compared(few, many).decision.status == status


def test_facts_of_other_arguments_are_not_comparable() -> None:
    before, after = side({}), side({"launches": 50.0})
    comparison = compared(
        [replace(each, parameters={"batch": "8"}) for each in before],
        [replace(each, parameters={"batch": "16"}) for each in after],
    )
    assert verdict(comparison, "launches") == ("inconclusive", False)
    assert comparison.decision.status == 4
