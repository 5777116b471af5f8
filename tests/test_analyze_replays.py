"""Replayed launches joined with the timeline, and what is said of each: made-up reports, and a real one."""

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze import ANALYSES, analyze
from nightsight.analyze.replay.instructions import ncu_instructions
from nightsight.analyze.replay.join import ncu_match, replays
from nightsight.analyze.replay.kernels import ncu_kernels
from nightsight.analyze.replay.rules import ncu_rules
from nightsight.analyze.replay.source import ncu_source
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile, Report
from nightsight.tables import SHAPE, conform
from tests.properties import examples
from tests.recorded import Recorded
from tests.replays import alone, column, joined, launch, replayed, row
from tests.timeline import draw

CYCLES = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
OPCODES = "sass__inst_executed_per_opcode"


@pytest.fixture
def measure(recorded: Recorded) -> Profile:
    return recorded.profile("measure.ncu-rep")


def with_timeline(report: Profile) -> Profile:
    """Add a timeline of the report's kernels as nsys spells them: the n-th ran n times, n microseconds each."""
    launches = report.table("profiled_launches")
    spelled = launches["name"].astype("str").str.replace("<unnamed>", "(anonymous namespace)", regex=False)
    drawn = draw("s7   " + "".join(chr(ord("a") + number) * (number + 1) + "." for number in range(len(launches))))
    kernels = pd.concat([drawn.table("kernels").assign(name=spelled, **launches[SHAPE])], ignore_index=True)
    return Profile({**drawn.tables, "kernels": conform("kernels", kernels), **report.tables})


# -- the join ---------------------------------------------------------------------------------------------------------


def test_a_launch_stands_for_all_kernels_of_its_name_and_size() -> None:
    figures = row(joined(draw("s7   aa.aaaa.bb"), launch("a")))
    assert (figures["launches"], figures["timeline_med_ns"], figures["gpu_total_ns"]) == (2, 3000, 6000)
    assert figures["gpu_pct"] == 75


def test_kernels_of_another_size_are_others() -> None:
    figures = row(joined(draw("s7   aa"), launch("a", grid=2)))
    assert pd.isna(figures["gpu_pct"])
    assert pd.isna(figures["launches"])


def test_only_kernels_that_begin_in_the_window_count() -> None:
    figures = row(joined(draw("nvtx  ....[measure]\ns7    aa...aa..bb.."), launch("a")))
    assert (figures["launches"], figures["gpu_pct"]) == (1, 50)


def test_the_kernel_with_most_time_comes_first_and_one_without_a_match_last() -> None:
    launches = [launch(name, {"gpu__time_duration.sum": time}) for name, time in (("x", 9), ("a", 5), ("b", 1))]
    assert column(joined(draw("s7   aa.bbb"), *launches), "name") == ["b", "a", "x"]


def test_without_a_timeline_the_longest_replay_comes_first() -> None:
    launches = [launch(name, {"gpu__time_duration.sum": time}) for name, time in (("a", 1), ("b", 5))]
    timeline = alone(*launches, launch("c"))
    assert column(timeline, "name") == ["b", "a", "c"]
    assert ncu_kernels(timeline).frame["gpu_pct"].isna().all()
    table = ncu_match(timeline)
    assert table.frame.isna().to_numpy().tolist() == [[False, True, True, True]]
    assert table.notes == ("There is no timeline of kernels and grids to match with.",)


def test_a_timeline_without_grids_is_not_matched() -> None:
    drawn = draw("s7   aa")
    kernels = conform("kernels", drawn.table("kernels"), details=False)
    timeline = joined(Profile({**drawn.tables, "kernels": kernels}), launch("a"))
    assert pd.isna(row(timeline)["gpu_pct"])
    assert "no timeline of kernels and grids" in ncu_match(timeline).notes[0]


def test_times_of_replays_and_of_the_timeline_are_apart() -> None:
    figures = row(joined(draw("s7   aa"), launch("a", {"gpu__time_duration.sum": 77_000})))
    assert (figures["timeline_med_ns"], figures["replay_ns"]) == (2000, 77_000)


def renamed(profile: Profile, **names: str) -> Profile:
    kernels = profile.table("kernels")
    spelled = kernels["name"].astype("str").replace(names)
    return Profile({**profile.tables, "kernels": conform("kernels", kernels.assign(name=spelled))})


@pytest.mark.parametrize(
    ("nsys", "ncu", "is_same"),
    [
        ("void at::(anonymous namespace)::f<int, (int)7>(T1)", "void at::<unnamed>::f<int, 7>(int)", True),
        ("void at::native::f<true>(int)", "native::f<(bool)1>", True),
        ("void at::native::f<true>(int)", "f<(bool)1>", True),
        ("void at::native::f<true>(int)", "other::f<(bool)1>", False),
        ("void at::native::f<true>(int)", "f<(bool)0>", False),
    ],
)
def test_names_match_however_they_are_spelled(nsys: str, ncu: str, *, is_same: bool) -> None:
    figures = row(joined(renamed(draw("s7   aa"), a=nsys), launch(ncu)))
    assert pd.notna(figures["gpu_pct"]) is is_same


def test_a_name_without_namespaces_that_could_mean_two_kernels_means_none() -> None:
    two = renamed(draw("s7   aa.bb"), a="x::f<int>", b="y::f<int>")
    assert pd.isna(row(joined(two, launch("f<int>")))["gpu_pct"])
    assert row(joined(two, launch("y::f<int>")))["gpu_pct"] == 50


def test_one_kernel_on_two_devices_is_one_group_whose_gpus_are_not_added_up() -> None:
    drawn = draw("s7    aaaa....\ns7:1  aaaaaa..")
    table = ncu_kernels(joined(drawn, launch(device=0), launch(device=1))).frame
    assert table["device"].tolist() == [0, 1]
    assert table["gpu_pct"].tolist() == [100, 100]
    assert table["gpu_total_ns"].tolist() == [10_000, 10_000]
    assert table["busiest_gpu_ns"].tolist() == [6000, 6000]
    match = ncu_match(joined(drawn, launch(device=0), launch(device=1))).frame.iloc[0]
    assert (match["matched"], match["coverage_pct"]) == (2, 100)


def test_the_match_counts_a_kernel_once_and_names_what_is_missing() -> None:
    table = ncu_match(joined(draw("s7   aaa.b"), launch("a"), launch("a"), launch("x"), launch("b", grid=9)))
    assert table.frame.to_numpy().tolist() == [[4, 2, 50, 75]]
    assert table.notes == ("Not in the window with this name, grid and block: x; b.",)


def test_ranges_and_graphs_as_a_whole_are_matched_with_no_kernel() -> None:
    table = ncu_match(joined(draw("s7   aabb"), launch("a"), launch("range", kind="range", grid=0)))
    (match,) = table.frame.to_dict("records")
    assert match == {"replayed": 2, "matched": 1, "match_pct": 100.0, "coverage_pct": 50.0}
    assert any("as a whole" in note for note in table.notes)
    alone_ = ncu_match(joined(draw("s7   aabb"), launch("graph", kind="graph", grid=0)))
    assert alone_.frame.to_dict("records") == [
        {"replayed": 1, "matched": None, "match_pct": None, "coverage_pct": None}
    ]
    assert len(alone_.notes) == 1


def test_time_in_graphs_that_were_traced_as_a_whole_is_not_covered() -> None:
    timeline = joined(draw("s7   aaaG"), launch("a"))
    table = ncu_match(timeline)
    assert table.frame["coverage_pct"].tolist() == [75.0]
    assert any("--cuda-graph-trace=node" in note for note in table.notes)


def test_long_lists_of_unmatched_kernels_are_cut() -> None:
    (note,) = ncu_match(joined(draw("s7   a"), *(launch(f"k{number}" + "x" * 200) for number in range(7)))).notes
    assert note.endswith(" and 2 more.")
    assert len(note) < 500


NAMES = st.sampled_from(["a", "b", "c", "x", "ns::a", "other::ns::a"])
LAUNCHES = st.lists(
    st.builds(
        launch,
        NAMES,
        st.dictionaries(st.sampled_from(["gpu__time_duration.sum", "sm__sol_pct"]), st.floats(0, 100)),
        grid=st.integers(1, 2),
        device=st.integers(0, 1),
    ),
    max_size=8,
)


@examples(40)
@given(LAUNCHES, st.text("ab.", max_size=30), st.text("ac.", max_size=30))
def test_joining_adds_no_row_and_shares_stay_within_the_whole(launches: Any, first: str, second: str) -> None:
    timeline = joined(draw(f"s7    .{first}\ns7:1  .{second}"), *launches)
    table = ncu_kernels(timeline).frame
    assert sorted(table["launch"]) == list(range(len(launches)))
    assert (table["gpu_pct"].dropna() <= 100 + 1e-9).all()
    assert (table["busiest_gpu_ns"].dropna() <= table["gpu_total_ns"].dropna()).all()
    for match in ncu_match(timeline).frame.to_dict("records"):
        assert 0 <= match["matched"] <= match["replayed"] == len(launches)
        assert 0 <= match["coverage_pct"] <= 100 + 1e-9


@examples(40)
@given(LAUNCHES, st.permutations(["a", "b", "c"]), st.integers(0, 10**15))
def test_neither_the_order_of_kernels_nor_when_they_ran_changes_anything(
    launches: Any, order: list[str], shift: int
) -> None:
    drawn = draw("s7   aa.b.aaa.cc")
    kernels = drawn.table("kernels")
    kernels = kernels.assign(start_ns=kernels["start_ns"] + shift, end_ns=kernels["end_ns"] + shift)
    kernels = pd.concat([kernels[kernels["name"] == name] for name in order], ignore_index=True)
    moved = Profile({**drawn.tables, "kernels": conform("kernels", kernels)})
    expected = ncu_kernels(joined(drawn, *launches)).frame
    pd.testing.assert_frame_equal(ncu_kernels(joined(moved, *launches)).frame, expected)


# -- all of them ------------------------------------------------------------------------------------------------------


def test_every_result_says_why_it_is_not_there() -> None:
    results = {result.name: result for result in analyze(Timeline(draw("s7   aa"))) if result.name.startswith("ncu_")}
    assert len(results) == 9
    assert all(result.table is None and result.unavailable for result in results.values())


def test_a_report_of_names_alone_gives_every_result() -> None:
    for result in analyze(Timeline(replayed(launch("a"), launch("b")))):
        if result.name.startswith("ncu_"):
            assert result.table is not None


# -- a real report ----------------------------------------------------------------------------------------------------


def test_figures_of_a_real_report(measure: Profile) -> None:
    table = ncu_kernels(Timeline(measure)).frame.set_index("launch")
    matmul, copy = table.loc[2], table.loc[4]
    assert matmul["limiter"] == "registers, shared memory"
    assert matmul["path"] == "measure / matmul"
    assert round(matmul["tensor_pct"], 1) == 90.3
    assert table["tensor_pct"].drop(2).tolist() == [0, 0, 0, 0]
    # what ncu's rule says: 29360128 excessive sectors, 78 % of all
    assert round(copy["excessive_pct"]) == 78
    assert copy["sectors_per_request"] == 32
    assert table[["replay_ns", "registers", "shared_bytes", "waves", "occupancy_pct"]].notna().all(axis=None)


def test_a_real_report_matches_a_timeline_in_the_spelling_of_nsys(measure: Profile) -> None:
    timeline = Timeline(with_timeline(measure))
    table = ncu_kernels(timeline).frame
    assert table["launch"].tolist() == [4, 3, 2, 1, 0]
    assert table["gpu_total_ns"].tolist() == [5000, 4000, 3000, 2000, 1000]
    assert table["gpu_pct"].sum() == pytest.approx(100)
    assert ncu_match(timeline).frame.to_numpy().tolist() == [[5, 5, 100, pytest.approx(100)]]


def test_the_rules_of_a_real_report_are_bounded_by_the_time_of_its_kernels(measure: Profile) -> None:
    timeline = Timeline(with_timeline(measure))
    table = ncu_rules(timeline).frame
    assert table["bound_pct"].dropna().is_monotonic_decreasing
    share = table["launch"].map(replays(timeline).set_index("launch")["gpu_pct"])
    assert (table["bound_pct"].dropna() <= share[table["bound_pct"].notna()]).all()
    assert set(table["speedup_kind"][table["bound_pct"].notna()]) == {"global"}


def test_instructions_of_a_real_report_agree_with_the_categories_of_nvidia(measure: Profile) -> None:
    metrics = measure.table("kernel_metrics")
    theirs = metrics[metrics["metric"] == "sass__inst_executed_per_opcode_category"]
    theirs = theirs[theirs["instance"] != ""].pivot_table("value", "launch", "instance", "sum", observed=True)
    ours = ncu_instructions(Timeline(measure)).frame.set_index("launch").sort_index()
    floating = ours[["fp64_pct", "fp32_pct", "fp16_pct"]].sum(axis=1) * ours["instructions"] / 100
    pd.testing.assert_series_equal(floating, theirs["Floating Point"], check_names=False)
    assert ours["instructions"].tolist() == theirs.sum(axis=1).tolist()


def test_lines_of_a_real_report(recorded: Recorded) -> None:
    table = ncu_source(Timeline(recorded.profile("lines.ncu-rep"))).frame
    first = table[table["launch"] == 2].iloc[0]
    assert (first["file"], first["line"], first["stall"]) == ("lines.cu", 17, "long scoreboard")
    assert first["source"] == "tile[threadIdx.x] = in[(i * 17) % n];"
    assert (table.groupby("launch")["share_pct"].sum() <= 100 + 1e-9).all()


def test_results_of_a_real_report_survive_json(measure: Profile) -> None:
    results = analyze(Timeline(with_timeline(measure)))
    report = Report.from_json(Report("measure", measure.environment, results).to_json())
    for result in results:
        if result.name.startswith("ncu_"):
            assert len(result.rows) > 0
            assert report.result(result.name).rows.shape == result.rows.shape


def test_the_csv_pages_of_a_report_give_the_same_figures(measure: Profile, recorded: Recorded) -> None:
    ours = ncu_kernels(Timeline(measure)).frame
    theirs = ncu_kernels(Timeline(recorded.profile("measure.base.csv"))).frame
    same = ["launch", "grid", "block", "path", "registers", "limiter"]
    pd.testing.assert_frame_equal(theirs[same], ours[same])
    for figure in ("sm_pct", "dram_pct", "l2_hit_pct", "occupancy_pct", "waves", "replay_ns", "sectors_per_request"):
        assert theirs[figure].tolist() == pytest.approx(ours[figure].tolist(), rel=0.01, nan_ok=True)


def test_the_analyses_are_registered_together() -> None:
    names = [analysis.entry.name for analysis in ANALYSES if analysis.entry.name.startswith("ncu_")]
    assert names == [
        *("ncu_match", "ncu_kernels", "ncu_limits", "ncu_rules", "ncu_roofline", "ncu_roofs", "ncu_stalls"),
        *("ncu_instructions", "ncu_source"),
    ]
