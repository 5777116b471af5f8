"""Stretches of which a capture does not tell what the GPU did are unknown: not idle, and no advice rests on them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.causes.path import path_table
from nightsight.analyze.causes.simulation import simulate
from nightsight.analyze.facts import trust
from nightsight.analyze.gpu_time import gpu_time
from nightsight.analyze.ranges.owners import range_work
from nightsight.analyze.split import time_split
from nightsight.analyze.step_split import step_split
from nightsight.analyze.syncs import synchronizations
from nightsight.events.launches import launching_calls
from nightsight.events.timeline import Timeline
from nightsight.events.unseen import REASONS, graph_captures, pauses, silences, unseen
from nightsight.events.window import WHOLE, chosen_window
from nightsight.intervals import length, shared, union
from nightsight.model.report import Profile, Report
from nightsight.render.summary import numbers
from nightsight.render.verdict import verdict
from nightsight.results.categories import CAPTURE, UNSEEN
from nightsight.results.causes import WHAT_IF
from nightsight.results.steps import WHOLE_STEP
from nightsight.tables import conform
from tests.recorded import Recorded
from tests.timeline import draw, side_by_side

MS = 1_000
"""In characters of a drawn timeline."""


def reasons(profile: Profile) -> list[tuple[str, int]]:
    """Return why it is not known what the one GPU did, and for how many µs, in order of time."""
    (unseen_times,) = unseen(profile).values()
    times = (unseen_times.end - unseen_times.start) // 1_000
    return [(REASONS[reason], time) for reason, time in zip(unseen_times.reason.tolist(), times.tolist(), strict=True)]


def rules_of(profile: Profile) -> list[str]:
    return [finding.rule for finding in trust(Timeline(profile))]


def verdict_text(report: Report) -> str:
    return verdict(report, numbers(report)).text


# -- work from before, and after --------------------------------------------------------------------------------------


def test_a_first_operation_that_begins_long_after_its_launch_follows_work_from_before_the_recording() -> None:
    profile = draw(f"nvtx  [step]\ncpu   .LL...\ns7    {'.' * 2 * MS}aaabbb")
    assert reasons(profile) == [("work from before the recording", 2 * MS)]


@pytest.mark.parametrize(
    "picture",
    [
        # it begins at once; the GPU was idle when it was launched, since a wait had returned; and nothing was traced
        f"cpu  {'.' * 2 * MS}LL\ns7   {'.' * 2 * MS}.aaabbb",
        f"cpu  S.LL\ns7   {'.' * 2 * MS}aaabbb",
        f"cpu  ....\ns7   {'.' * 2 * MS}aaabbb",
    ],
)
def test_else_nothing_is_known_of_work_from_before(picture: str) -> None:
    assert reasons(draw(picture)) == []


def test_an_operation_that_waited_for_another_gpu_of_its_process_follows_no_work_from_before() -> None:
    profile = draw(f"cpu    LL{'.' * 5 * MS}\ns7     ..{'a' * 4 * MS}\ns8:1   ..{'.' * 4 * MS}.bbb")
    assert not any(len(unseen_times.start) for unseen_times in unseen(profile).values())


def test_steps_are_those_whose_work_is_in_the_window() -> None:
    # the host is four steps ahead, and the GPU still has 20 ms of work from before
    work = "".join("ab"[number % 2] * 4_900 + "." * 100 for number in range(12))
    picture = (
        f"nvtx  {('[step' + ' ' * 4_994 + ']') * 12}\ncpu   {('L' + '.' * 4_999) * 12}\ns7    {'.' * 20 * MS}{work}"
    )
    timeline = Timeline(draw(picture))
    assert timeline.window.start_ns == 20 * MS * 1_000
    assert len(timeline.window.repetitions) == 12
    steps = step_split(timeline).frame
    assert steps.loc[steps["category"] == WHOLE_STEP, "med_ns"].tolist() == [5_000_000]
    # one GPU that does nothing in the window takes nothing from what is known of the other
    step = "L." + "." * 500
    picture = f"nvtx  {('[step' + ' ' * 496 + ']') * 10}\ncpu   {step * 10}L\ns7    {('.a' + '.' * 500) * 10}"
    other = draw(f"{picture}\ns8:1  {'.' * (len(step) * 10 + 2 * MS)}a")
    assert reasons(replace(other, tables={**other.tables, "kernels": other.table("kernels").iloc[:10]})) == []
    assert rules_of(other) == []
    assert simulate(Timeline(other)).doubt == ""


def test_a_single_launch_of_very_many_may_have_failed() -> None:
    many = 600
    profile = draw(f"cpu  {'L.' * many}L{'.' * 3 * MS}S\ns7   .{'a.' * many}")
    assert reasons(profile) == []


def test_launches_without_work_at_the_end_gave_work_that_ran_after_the_recording() -> None:
    profile = draw(f"cpu  L.L.L{'.' * 3 * MS}S\ns7   .a.b")
    assert reasons(profile) == [("work that ended after the recording", 3 * MS + 2)]
    # the third launch was recorded into a graph
    calls = profile.table("api_calls")
    captured = pd.concat(
        [
            calls,
            calls.iloc[[0, 0]].assign(
                name=["cudaStreamBeginCapture", "cudaStreamEndCapture"],
                start_ns=[3_500, 6_000],
                end_ns=[3_600, 6_100],
                correlation=[2000, 2001],
            ),
        ],
        ignore_index=True,
    ).astype({"name": "category"})
    assert reasons(Profile({**profile.tables, "api_calls": captured})) == []


def test_the_window_leaves_out_what_is_not_in_the_capture(recorded: Recorded) -> None:
    profile = recorded.profile("24_async_step.json")
    window = chosen_window(profile)
    kernels = profile.table("kernels")
    assert (window.start_ns, window.end_ns) == (kernels["start_ns"].min(), kernels["end_ns"].max())
    report = recorded.report("24_async_step.json")
    assert verdict_text(report).startswith(
        "GPU 99.4 % busy. Causes could not be checked: no CUDA call was made in this window"
    )


# -- waits ------------------------------------------------------------------------------------------------------------


def test_a_wait_that_returns_long_after_the_last_operation_waited_for_something_else() -> None:
    profile = draw(f"cpu  L.{'S' * 3 * MS}..L.\ns7   .aa{'.' * 3 * MS}..b")
    assert reasons(profile) == [("work that is not in the capture, although a call waited for it", 3 * MS - 1)]


@pytest.mark.parametrize(
    "picture",
    [
        # it returns soon; it waits for what is recorded; the other GPU of the process is still at work
        f"cpu  L.{'S' * 900}..L.\ns7   .aa{'.' * 900}..b",
        f"cpu  L.{'S' * 3 * MS}..L.\ns7   .{'a' * 3 * MS}...b",
        f"cpu    LL.{'S' * 3 * MS}\ns7     .aa\ns8:1   .{'b' * 3 * MS}",
    ],
)
def test_else_a_wait_is_idle_time(picture: str) -> None:
    profile = draw(picture)
    assert not any(len(unseen_times.start) for unseen_times in unseen(profile).values())


def test_a_clock_of_the_gpu_that_is_behind_hides_nothing() -> None:
    step = f"L.L.{'S' * 6 * MS}{'.' * 6 * MS}"
    work = f".....{'a' * 3 * MS}.{'b' * 2_990}"
    profile = draw(f"cpu   {step * 8}\ns7    {work.ljust(len(step), '.') * 8}")
    kernels = profile.table("kernels")
    late = kernels.assign(**{name: kernels[name] - 1_500_000 for name in ("start_ns", "end_ns")})
    assert reasons(Profile({**profile.tables, "kernels": late})) == []


def test_no_other_table_calls_idle_what_is_not_known(recorded: Recorded) -> None:
    profile = replace(recorded.profile("08_while_node.json"), window=WHOLE)
    timeline = Timeline(profile)
    idle = int(gpu_time(timeline).frame["idle_ns"].sum())
    waits = synchronizations(timeline).frame
    assert waits[["idle_ns", "lost_ns"]].sum().max() <= idle
    ranges = range_work(timeline)
    assert ranges["gpu_idle_ns"].max() <= idle


def test_work_that_was_waited_for_is_not_called_idle(recorded: Recorded) -> None:
    report = recorded.report("08_while_node.json")
    assert verdict_text(report).startswith(
        "GPU at least 2.0 % busy. Causes could not be checked: GPU activity is missing from the capture for 97 %"
    )
    (finding,) = (finding for finding in report.findings if finding.rule == "unseen_work")
    assert finding.title == "What the GPU did in 97.3 % of the window is not in the capture"
    row = report.result("gpu_time").rows.iloc[0]
    assert row["busy_ns"] + row["idle_ns"] + row["unseen_ns"] == row["window_ns"]
    assert row["unseen_ns"] > 0.97 * row["window_ns"]
    path = path_table(Timeline(recorded.profile("08_while_node.json"))).frame
    assert path.iloc[0]["cause"] == UNSEEN


def test_a_loop_on_the_device_that_is_recorded_is_of_the_graph_that_holds_it(recorded: Recorded) -> None:
    # an H100 with driver 580: the kernels of a while node are in the capture, without an id of their own
    for name in ("h100_loop_kineto.json", "h100_loop_node"):
        profile = recorded.profile(name)
        operations = Timeline(profile).operations
        assert len(operations.call) == 1_020
        assert (operations.call >= 0).all()
        assert len(np.unique(operations.launch)) == 20
        assert len(chosen_window(profile).repetitions) == 20
        assert not rules_of(profile)


def test_a_wait_for_a_stream_waits_for_the_loop_that_its_graph_runs_on_another_one(recorded: Recorded) -> None:
    for name in ("h100_loop_kineto.json", "h100_loop_node"):
        cause = recorded.report(name).rows(WHAT_IF).iloc[0]
        # 8 blocks on 132 SMs, in each step
        assert (cause["rule"], round(cause["gain_pct"], -1)) == ("small_grid", 90)


def test_kernels_of_a_loop_belong_to_the_graph_that_runs_not_to_one_that_waits() -> None:
    profile = draw("cpu  G.G.G\ns7   ......a.ccc...a.ccc...a.ccc")
    calls, kernels = profile.table("api_calls")["correlation"].tolist(), profile.table("kernels")
    numbers = [calls[0], 0, calls[1], 0, calls[2], 0]
    renumbered = Profile({**profile.tables, "kernels": conform("kernels", kernels.assign(correlation=numbers))})
    assert launching_calls(renumbered).tolist() == [0, 0, 1, 1, 2, 2]


# -- operations without times -----------------------------------------------------------------------------------------


def test_an_operation_whose_times_are_not_known_ran_between_its_launch_and_the_next() -> None:
    profile = draw("cpu  L.L.L....\ns7   .a.bbbb..c")
    kernels = profile.table("kernels")
    untimed = conform("untimed", kernels.iloc[[1]].assign(start_ns=None))
    untimed_profile = Profile(
        {**profile.tables, "kernels": kernels.iloc[[0, 2]].reset_index(drop=True), "untimed": untimed}
    )
    # from its launch to the next kernel on its stream
    assert reasons(untimed_profile) == [("operations whose times are not known", 7)]
    # one that says when it began ran from then on
    begun = Profile({**untimed_profile.tables, "untimed": conform("untimed", kernels.iloc[[1]].assign(start_ns=5_000))})
    assert reasons(begun) == [("operations whose times are not known", 4)]


def test_kernels_without_times_leave_no_idle_time_to_save(recorded: Recorded) -> None:
    profile = recorded.profile("15_kernel_times_zero")
    assert len(profile.table("untimed")) == 3
    assert len(profile.table("kernels")) == 47
    report = recorded.report("15_kernel_times_zero")
    assert [finding.rule for finding in report.findings if finding.severity == "advice"] == []
    rules = [finding.rule for finding in report.findings]
    assert "damaged_events" in rules
    assert not {"early_work", "lost_events"} & set(rules)
    assert verdict_text(report).startswith("GPU at least 93.8 % busy.")


def test_one_kernel_that_outlasts_those_after_it_is_left_out(recorded: Recorded) -> None:
    report = recorded.report("01_overflow_same_stream.json")
    assert report.result("cuda_gpu_kern_sum").rows["max_ns"].max() == 200_000
    (finding,) = (finding for finding in report.findings if finding.rule == "impossible_times")
    assert finding.title == "1 of 200 GPU operations has impossible times"
    (busy,) = report.result("gpu_time").rows["busy_pct"]
    assert 96 <= busy <= 97


# -- pauses -----------------------------------------------------------------------------------------------------------


def test_ids_that_go_on_counting_tell_a_pause() -> None:
    profile = draw(f"cpu  L.{'.' * 5 * MS}L\ns7   .a{'.' * 5 * MS}.c")
    assert pauses(profile) == {}
    calls = profile.table("api_calls")
    later = calls.assign(correlation=calls["correlation"].where(calls["start_ns"] < 10_000, 90_000))
    kernels = profile.table("kernels")
    kernels = kernels.assign(correlation=kernels["correlation"].where(kernels["start_ns"] < 10_000, 90_000))
    paused = Profile({**profile.tables, "api_calls": later, "kernels": kernels})
    ((start, end),) = pauses(paused).values()
    assert (start.tolist(), end.tolist()) == ([1_000], [(5 * MS + 2) * 1_000])
    assert reasons(paused) == [("the recording was paused", 5 * MS)]
    assert rules_of(paused) == ["unseen_work", "paused"]


def test_a_pause_is_in_no_step_and_rests_no_advice(recorded: Recorded) -> None:
    profile, report = recorded.profile("h100_toggle_both.json"), recorded.report("h100_toggle_both.json")
    assert silences(profile) == {}
    ((start, end),) = pauses(profile).values()
    assert 5e8 < end[0] - start[0] < 5.1e8
    window = chosen_window(profile)
    assert (len(window.repetitions), window.end_ns <= start[0] or window.start_ns >= end[0]) == (10, True)
    assert verdict_text(report).startswith("GPU 87.6 % busy.")
    assert "CUDA calls were not recorded for 506.9 ms" in [finding.title for finding in report.findings]
    assert 600_000 < (numbers(report).profiled_step_ns or 0) < 700_000


def test_of_one_silent_stretch_that_is_most_of_the_loop_nothing_is_concluded(recorded: Recorded) -> None:
    # the program slept once: its ids do not say so, and a trace of a pause could look the same
    profile, report = recorded.profile("h100_toggle_sleep.json"), recorded.report("h100_toggle_sleep.json")
    assert len(silences(profile)) == 1
    (finding,) = (finding for finding in report.findings if finding.rule == "paused")
    assert (finding.severity, finding.title) == ("warning", "Nothing was recorded for 500.2 ms")
    assert "host_code" not in [finding.rule for finding in report.findings]


def test_a_stretch_that_comes_back_is_host_code() -> None:
    step = f"L.{'.' * 30}"
    profile = draw(f"nvtx  {('[step' + ' ' * 26 + ']') * 20}\ncpu   {step * 20}\ns7    {('.a' + '.' * 30) * 20}")
    assert (silences(profile), pauses(profile)) == ({}, {})


def in_steps(count: int, *, every: int = 1, missing: int = 5_000, ranges: bool = False) -> Profile:
    """Draw steps with 3 ms between two launches, in which ids are missing in every so many steps.

    ranges: around each launch, and within the 3 ms, is a range of the same name.
    """
    one = f"L.{'.' * 3 * MS}L.."
    inner = "[w]" if ranges else ""
    step = f"[step{inner}{' ' * 500}{inner}".ljust(len(one) - 4 if ranges else len(one) - 1)
    profile = draw(f"nvtx  {(step + inner + ']') * count}\ncpu   {one * count}\ns7    {f'.a{one[2:-3]}.a.' * count}")
    if ranges:
        spans = profile.table("ranges")
        # the first launch of a step is in its first inner range
        first = (spans["name"] == "w") & (spans["start_ns"] % (len(one) * 1_000) < 10_000)
        spans.loc[first, "start_ns"] -= spans.loc[first, "start_ns"] % (len(one) * 1_000)
        profile = Profile({**profile.tables, "ranges": spans})

    def number(table: pd.DataFrame) -> pd.DataFrame:
        place = table["correlation"].astype("int64") - 1_000
        gaps = (place // 2 + 1) // every - (place % 2 == 0) * ((place // 2 + 1) % every == 0)
        return table.assign(correlation=place + 1 + missing * gaps)

    return Profile({**profile.tables, **{name: number(profile.table(name)) for name in ("api_calls", "kernels")}})


def test_pauses_in_all_steps_take_no_time_of_a_step() -> None:
    timeline = Timeline(in_steps(6, ranges=True))
    assert len(timeline.window.repetitions) == 6
    steps = step_split(timeline).frame
    (whole,) = steps.loc[steps["category"] == WHOLE_STEP, "med_ns"]
    assert whole < 20_000
    assert simulate(timeline).doubt.startswith("GPU activity is missing from the capture")


@pytest.mark.parametrize("every", [1, 4])
def test_host_code_that_makes_many_calls_which_no_profiler_records_is_host_code(every: int) -> None:
    # cudaGetDevice, cudaGetLastError, cudaEventCreate: Kineto leaves them out, and each takes an id
    profile = in_steps(16, every=every)
    assert pauses(profile) == {}
    timeline = Timeline(profile)
    steps = step_split(timeline).frame
    assert steps.loc[steps["category"] == WHOLE_STEP, "med_ns"].tolist() == [3_005_000]
    assert [gain.remedy.rule for gain in simulate(timeline).gains] == ["host_code"]


# -- captures of graphs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["25_graph_capture.json", "h100_capture.json"])
def test_a_graph_capture_is_not_execution(recorded: Recorded, name: str) -> None:
    report = recorded.report(name)
    assert [finding.rule for finding in report.findings if finding.severity == "advice"] == []
    assert "graph_capture" in [finding.rule for finding in report.findings]
    assert f"Largest wait: {CAPTURE}" in verdict_text(report)
    assert "captures CUDA graphs, which runs nothing" in verdict_text(report)


def test_captures_are_from_their_begin_to_their_end() -> None:
    profile = draw("cpu  E.L..E.L.E\ns7   .........ab")
    names = [
        "cudaStreamBeginCapture",
        "cudaLaunchKernel",
        "cudaStreamEndCapture",
        "cudaLaunchKernel",
        "cudaEventRecord",
    ]
    calls = profile.table("api_calls").assign(name=names).astype({"name": "category"})
    ((start, end),) = graph_captures(Profile({**profile.tables, "api_calls": calls})).values()
    assert (start.tolist(), end.tolist()) == ([0], [6_000])


def test_no_remedy_shortens_a_capture() -> None:
    # host code that lasts 300 of 400 µs of each step, all but a little of it within a capture
    step = f"E{'.' * 300}E..LS...{'.' * 90}"
    work = f"{'.' * 304}aa{'.' * (len(step) - 306)}"
    profile = draw(f"nvtx  {('[step' + ' ' * (len(step) - 6) + ']') * 5}\ncpu   {step * 5}\ns7    {work * 5}")
    without = simulate(Timeline(profile))
    names = ["cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaLaunchKernel", "cudaStreamSynchronize"] * 5
    calls = profile.table("api_calls").assign(name=names).astype({"name": "category"})
    within = simulate(Timeline(Profile({**profile.tables, "api_calls": calls})))
    gains = [
        sum(gain.gain_ns for gain in simulation.gains if gain.remedy.rule == "host_code")
        for simulation in (without, within)
    ]
    assert gains[0] > 290_000
    assert gains[1] < 110_000


def test_a_capture_by_one_process_says_nothing_of_another() -> None:
    # the critical path ends with our last kernel
    pause, capture, short = "." * 4 * MS, "." * 3 * MS, "." * 900
    ours = draw(f"cpu   {('L.' + pause) * 8}L\ns7    {('.a' + pause) * 8}.a")
    theirs = draw(f"cpu   {('E' + capture + 'E.L.' + short) * 8}\ns7    {(capture + '....a' + short) * 8}")
    names = ["cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaLaunchKernel"] * 8
    calls = theirs.table("api_calls").assign(name=names).astype({"name": "category"})
    captures = Profile({**theirs.tables, "api_calls": calls})
    alone, both = (
        path_table(Timeline(replace(profile, window=WHOLE))).frame.set_index("cause")["time_ns"].to_dict()
        for profile in (ours, side_by_side(ours, captures))
    )
    assert both == alone
    assert CAPTURE in path_table(Timeline(replace(captures, window=WHOLE))).frame["cause"].tolist()


# -- laws -------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from("LS.."), st.integers(1, 3)), min_size=1, max_size=8),
    st.lists(st.tuples(st.sampled_from("ab.."), st.integers(1, 3)), min_size=1, max_size=8),
)
def test_busy_idle_and_unknown_time_add_up(host: list[tuple[str, int]], work: list[tuple[str, int]]) -> None:
    cpu, gpu = ("".join(letter * often for letter, often in track) for track in (host, work))
    drawn = draw(f"cpu  {cpu}\ns7   {gpu}")
    # each character is 2 ms: what is shorter than that is never unknown
    tables = {
        name: table.assign(**{column: table[column] * 2 * MS for column in ("start_ns", "end_ns") if column in table})
        for name, table in drawn.tables.items()
    }
    profile = Profile(tables, window=WHOLE)
    timeline = Timeline(profile)
    for _, row in gpu_time(timeline).frame.iterrows():
        assert row["busy_ns"] + row["idle_ns"] + row.get("unseen_ns", 0) == row["window_ns"]
    split = time_split(timeline).frame
    assert split["time_ns"].sum() == timeline.window.length_ns * split["device"].nunique()
    for unseen_times in unseen(profile).values():
        operations = timeline.operations
        assert not length(shared(union(operations.start, operations.end), unseen_times.spans))
        assert (unseen_times.start < unseen_times.end).all()
        assert (unseen_times.start[1:] >= unseen_times.end[:-1]).all()


def test_what_if_has_no_gain_of_a_part_that_is_not_known(recorded: Recorded) -> None:
    rows = recorded.report("08_while_node.json").result(WHAT_IF.name).rows
    assert rows["gain_pct"].isna().all()
