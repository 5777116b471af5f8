"""Advice from ncu's replays: weighed by what their kernels take of the window, bounded by what limits them."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.events.timeline import Timeline
from nightsight.model.report import Finding
from tests.properties import examples
from tests.replays import alone, joined, launch, rule
from tests.reports import advised, analyzed
from tests.timeline import draw

# kernels from beginning to end, launched ahead: nothing else to advise
BUSY = "cpu  L..L..\ns7   aaaaaaaabb"


_SOL = "avg.pct_of_peak_sustained_elapsed"
SM, MEMORY = f"sm__throughput.{_SOL}", f"gpu__compute_memory_throughput.{_SOL}"
DRAM, L2, TENSOR = f"gpu__dram_throughput.{_SOL}", f"lts__throughput.{_SOL}", f"sm__pipe_tensor_cycles_active.{_SOL}"


def findings(timeline: Timeline) -> list[Finding]:
    return [finding for finding in advised(timeline) if finding.rule.startswith("ncu_")]


def test_the_gain_is_the_estimate_times_the_time_of_the_kernel() -> None:
    (finding,) = findings(joined(draw(BUSY), launch("a", rules=[rule("UncoalescedGlobalAccess", 50)])))
    assert finding == Finding(
        "ncu_uncoalesced_global_access",
        "advice",
        "Accesses to global memory are not coalesced: a",
        "The kernel waits on the caches, which move more data than it needs.",
        'See "Hottest lines" for the place in the kernel; "Warp stalls" and "Nsight Compute rules" for details.',
        (
            "a, grid 1, 1, 1, block 1, 1, 1, 1 ×: 8.00 µs in the window",
            "At most 50.0 % of that (ncu estimates 50.0 %)",
        ),
        gain_ns=4000,
        gain_pct=40,
        source="ncu_rules",
        kernels=("a",),
    )


def test_no_estimate_saves_more_than_the_kernel_takes() -> None:
    (finding,) = findings(joined(draw(BUSY), launch("b", rules=[rule("CPIStall", 350)])))
    assert finding.gain_ns == 2000


def test_three_percent_of_the_window_are_enough_to_speak_of() -> None:
    (finding,) = findings(joined(draw(BUSY), launch("b", rules=[rule("CPIStall", 15)])))
    assert finding.gain_pct == 3.0
    assert findings(joined(draw(BUSY), launch("b", rules=[rule("CPIStall", 14)]))) == []


@pytest.mark.parametrize(
    ("name", "used", "gain_ns"),
    [
        # nothing above what the busiest unit has left
        ("CPIStall", {SM: 70.0, MEMORY: 20.0}, 2400),
        ("FPInstructions", {SM: 94.0, MEMORY: 20.0}, 480),
        ("SharedMemoryConflicts", {SM: 10.0, MEMORY: 94.0, DRAM: 20.0}, 480),
        # a kernel at the peak of a unit waits for that unit
        ("CPIStall", {SM: 85.0, MEMORY: 20.0}, None),
        ("AchievedOccupancy", {MEMORY: 88.0, DRAM: 88.0, SM: 5.0}, None),
        # what a rule is about is not what the kernel waits for
        ("MemoryCacheAccessPattern", {SM: 87.6, MEMORY: 63.0}, None),
        ("UncoalescedGlobalAccess", {SM: 94.4, TENSOR: 94.4, MEMORY: 72.5}, None),
        ("FPInstructions", {SM: 30.0, MEMORY: 90.0}, None),
        # coalesced accesses take from the caches, not from DRAM
        ("UncoalescedGlobalAccess", {MEMORY: 92.0, L2: 92.0, DRAM: 22.0, SM: 19.0}, 4000),
        ("UncoalescedGlobalAccess", {MEMORY: 92.0, L2: 80.0, DRAM: 92.0, SM: 19.0}, 640),
    ],
)
def test_no_estimate_gains_more_than_the_limiting_unit_has_left(
    name: str, used: Mapping[str, float], gain_ns: int | None
) -> None:
    advice = findings(joined(draw(BUSY), launch("a", used, rules=[rule(name, 50)])))
    assert [finding.gain_ns for finding in advice] == ([] if gain_ns is None else [gain_ns])


def test_a_finding_says_what_bounds_it() -> None:
    (finding,) = findings(joined(draw(BUSY), launch("a", {SM: 70.0}, rules=[rule("CPIStall", 50)])))
    assert finding.evidence[1] == "At most 30.0 % of that, the rest of the SMs (ncu estimates 50.0 %)"


def test_what_the_figures_tell_goes_before_the_rules_of_ncu() -> None:
    far = {MEMORY: 92.0, L2: 92.0, "memory_l2_theoretical_sectors_global": 400.0}
    far |= {"memory_l2_theoretical_sectors_global_ideal": 100.0}
    timeline = joined(draw(BUSY), launch("a", far, rules=[rule("MemoryCacheAccessPattern", 90)]))
    advice = [finding for finding in advised(timeline) if finding.source.startswith("ncu_")]
    assert [(finding.rule, finding.gain_ns) for finding in advice] == [("uncoalesced", 6000)]
    assert advice[0].title == "Neighboring threads access distant memory: a"
    assert advice[0].evidence[1] == "75 % of the sectors are needless: at most 75.0 % of that"


def test_ncu_is_not_quoted() -> None:
    (finding,) = findings(joined(draw(BUSY), launch("a", rules=[rule("CPIStall", 50, message="Buy more GPUs")])))
    assert "Buy" not in str(finding)
    assert "CPIStall title" not in str(finding)


def test_time_of_another_grid_is_not_claimed() -> None:
    assert findings(joined(draw(BUSY), launch("a", grid=2, rules=[rule("CPIStall", 50)]))) == []


def test_replays_in_several_ranges_are_weighed_by_the_time_in_these() -> None:
    drawn = draw("nvtx  [x   ][y   ]\ncpu   L.....L......\ns7    .aaaa..aa")
    launches = [launch("a", range_path=path, rules=[rule("CPIStall", 50)]) for path in "yx"]
    (finding,) = findings(joined(drawn, *launches))
    assert finding.gain_ns == 2000


def test_each_kernel_is_reported_once_by_its_best_estimate() -> None:
    rules = [rule("CPIStall", 30), rule("SharedMemoryConflicts", 60), rule("New", 5)]
    first, second = findings(
        joined(draw(BUSY), launch("b", rules=rules), launch("a", rules=rules[:1]), launch("a", rules=rules))
    )
    assert (first.rule, first.gain_ns) == ("ncu_shared_memory_conflicts", 4800)
    assert (second.title, second.gain_ns) == ("Shared memory has bank conflicts: b", 1200)


@pytest.mark.parametrize(
    "estimate",
    [
        rule("CPIStall", 90, speedup_kind="local"),
        rule("CPIStall", None),
        rule("MemoryL2Compression", 90),
        rule("CPIStall", 1),
    ],
)
def test_estimates_that_promise_no_time_are_no_advice(estimate: Any) -> None:
    assert findings(joined(draw(BUSY), launch("a", rules=[estimate]))) == []


def test_without_a_timeline_or_a_match_nothing_can_be_weighed() -> None:
    assert findings(alone(launch("a", rules=[rule()]))) == []
    assert findings(joined(draw(BUSY), launch("x", rules=[rule()]))) == []


@pytest.mark.parametrize(
    ("peak", "reason"),
    [
        ({SM: 92.0, TENSOR: 92.0}, "only less work for it helps"),
        ({MEMORY: 92.0, DRAM: 92.0}, "only less traffic helps"),
    ],
)
def test_a_dominant_kernel_at_the_peak_is_a_note_that_promises_nothing(peak: Mapping[str, float], reason: str) -> None:
    timed = {**peak, "gpu__time_duration.sum": 8_000.0}
    for timeline in (joined(draw(BUSY), launch("a", peak)), alone(launch("a", timed))):
        (finding,) = [each for each in advised(timeline) if each.rule == "at_roof"]
        assert (finding.severity, finding.gain_ns, finding.gain_pct) == ("info", None, None)
        assert f"92 % of {'DRAM' if DRAM in peak else 'the tensor pipe'}, where {reason}: a" in finding.detail
    # `b` takes a fifth of the window
    assert "at_roof" not in {each.rule for each in advised(joined(draw(BUSY), launch("b", peak)))}


def test_five_kernels_are_enough() -> None:
    launches = [launch(name, rules=[rule("CPIStall")]) for name in "abcdefg"]
    advice = findings(joined(draw("s7   aabbccddeeffgg"), *launches))
    assert len(advice) == 5


def test_gpus_that_work_side_by_side_are_not_added_up() -> None:
    (finding,) = findings(joined(draw("s7    aaaaaaaa\ns7:1  aaaa...."), launch("a", rules=[rule("CPIStall", 50)])))
    assert finding.gain_ns == 4000


def test_rules_without_words_of_ours_stay_in_their_table() -> None:
    assert findings(joined(draw(BUSY), launch("a", rules=[rule("SOLNewRule", 50)]))) == []


@examples(40)
@given(
    st.lists(st.tuples(st.sampled_from("abx"), st.floats(0, 100)), max_size=6),
    st.text("ab.", max_size=30),
    st.text("a.", max_size=30),
)
def test_no_gain_exceeds_the_time_of_the_kernel_or_the_window(estimates: Any, first: str, second: str) -> None:
    launches = [launch(name, rules=[rule("CPIStall", speedup)]) for name, speedup in estimates]
    timeline = joined(draw(f"s7   .{first}\ns8   .{second}"), *launches)
    window = timeline.window.length_ns
    advice = findings(timeline)
    assert len({finding.title for finding in advice}) == len(advice)
    for finding in advice:
        assert finding.gain_ns is not None
        assert finding.gain_pct is not None
        assert 0 < finding.gain_ns <= window
        assert finding.gain_pct == pytest.approx(100 * finding.gain_ns / window)


def test_a_verdict_is_in_the_table_of_rules_and_is_no_advice() -> None:
    message = "The kernel is utilizing greater than 80.0% of the available compute or memory performance of the device"
    verdicts = [rule("SOLBottleneck", None, kind="info", message=message), rule("CPIStall", 50, kind="info")]
    timeline = joined(draw(BUSY), launch("a", rules=verdicts))
    rules = analyzed(timeline.profile, "ncu_rules")
    assert message in rules.rows["message"].tolist()
    assert findings(timeline) == []
