"""What launches cost and how far the CPU runs ahead: drawn timelines, brute force, and laws on real captures."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nightsight.analyze.launches.figures import API, LATENCY, POINTS, QUEUE, in_flight, launch_bound, launch_phases
from nightsight.analyze.split import time_split
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.recorded import Recorded
from tests.timeline import PROCESS, draw

NSYS = ("train", "ddp2", "gelu", "graph", "graph_node", "unified_memory", "crash", "mlp")
KINETO = ("mini_torch", "cuda_graph")


@pytest.fixture(params=(*NSYS, *KINETO))
def capture(request: pytest.FixtureRequest, recorded: Recorded) -> Profile:
    return recorded.profile(request.param)


def figures(picture: Profile | str, *, device: int = 0) -> dict[tuple[str, str], tuple[int, int]]:
    """Count and total in microseconds by figure and by first or steady."""
    table = launch_phases(Timeline(draw(picture) if isinstance(picture, str) else picture)).frame
    of_device = table[table["device"] == device]
    rows = of_device[["figure", "launch", "count", "total_ns"]].itertuples(index=False)
    return {(figure, launch): (count, total // 1000) for figure, launch, count, total in rows}


def bound(picture: str, *, device: int = 0) -> dict[str, Any]:
    table = launch_bound(Timeline(draw(picture))).frame
    return dict(table[table["device"] == device].iloc[0])


def with_tables(profile: Profile, **tables: pd.DataFrame) -> Profile:
    return Profile({**profile.tables, **{name: conform(name, table) for name, table in tables.items()}})


# -- the three figures ------------------------------------------------------------------------------------------------


def test_first_and_steady_launches_of_a_kernel_are_apart() -> None:
    picture = """
        cpu   LLLL....LL....L...
        s7    .....a....a......a
        """
    assert figures(picture) == {
        (API, "first"): (1, 4),
        (API, "steady"): (2, 3),
        (LATENCY, "first"): (1, 5),
        (LATENCY, "steady"): (2, 5),
    }


def test_median_percentile_and_most_are_of_single_launches() -> None:
    table = launch_phases(Timeline(draw("cpu  L.LL.LLLLLL\ns7   .a..a......a"))).frame
    steady = table[(table["figure"] == API) & (table["launch"] == "steady")]
    assert steady[["med_ns", "p95_ns", "max_ns"]].to_numpy().tolist() == [[4000, 5800, 6000]]


def test_a_launch_behind_earlier_work_was_queued_and_has_no_latency() -> None:
    picture = """
        cpu   L.L...........L..
        s7    .aaaaaab.........
        s8    ...............c.
        """
    assert figures(picture) == {
        (API, "first"): (3, 3),
        (LATENCY, "first"): (2, 2),
        (QUEUE, "first"): (1, 5),
    }


def test_a_stream_that_empties_as_the_call_begins_was_empty() -> None:
    assert figures("cpu  L.....L...\ns7   .aaaaa..bb")[(LATENCY, "first")] == (2, 3)


def test_an_empty_stream_that_waited_for_another_stream_is_no_latency() -> None:
    picture = "cpu  L.L.......\ns7   .aaaaaa...\ns8   .......bbb"
    assert figures(picture)[(QUEUE, "first")] == (1, 5)
    assert figures(picture)[(LATENCY, "first")] == (1, 1)


def test_work_of_another_stream_that_goes_on_does_not_make_a_launch_wait() -> None:
    picture = "cpu  L.L.......\ns7   .aaaaaaaaa\ns8   .....bb..."
    assert figures(picture)[(LATENCY, "first")] == (2, 4)


def test_a_copy_in_the_stream_is_earlier_work_but_no_launch() -> None:
    assert figures("cpu  C.L.......\ns7   .MMMMMa...") == {(API, "first"): (1, 1), (QUEUE, "first"): (1, 4)}


def test_latency_is_from_the_start_of_the_call_also_where_the_kernel_begins_before_it_returns() -> None:
    picture = "cpu  LLLL.....L.\ns7   ..aaaa....b"
    assert figures(picture)[(LATENCY, "first")] == (2, 2 + 1)
    assert launch_phases(Timeline(draw(picture))).notes == (
        "1 of 2 launches began on the GPU before their call returned.",
    )


def test_a_gpu_whose_clock_is_behind_shows_latencies_below_zero() -> None:
    assert figures("cpu  ...LL...L..\ns7   .aaaa....b.")[(LATENCY, "first")] == (2, -2 + 1)


def test_a_stream_that_empties_while_the_call_runs_was_not_empty() -> None:
    picture = "cpu  LL.LLLLLL\ns7   ..aaaa...bb"
    assert figures(picture) == {(API, "first"): (2, 8), (LATENCY, "first"): (1, 2), (QUEUE, "first"): (1, 6)}


def test_a_kernel_that_begins_before_the_one_before_it_ends_did_not_find_its_stream_empty() -> None:
    # as programmatic dependent launches do: nothing ends between the call and the start
    picture = "cpu  LL.LLLL..\ns7   ..aaaa...\ns7   .....bbb."
    assert figures(picture)[(QUEUE, "first")] == (1, 2)
    assert figures(picture)[(LATENCY, "first")] == (1, 2)


def test_what_ends_on_another_stream_while_the_call_runs_may_have_been_waited_for() -> None:
    picture = "cpu  L.LLLL..\ns7   .aaa....\ns8   ......bb"
    assert figures(picture)[(LATENCY, "first")] == (1, 1)
    assert figures(picture)[(QUEUE, "first")] == (1, 4)


def test_one_graph_launch_is_one_launch_whatever_it_contains() -> None:
    profile = draw("cpu  GG......\ns7   ...aa.bb")
    nodes = profile.table("kernels").assign(correlation=1000, graph_node=[1, 2])
    expected = {(API, "first"): (1, 2), (LATENCY, "first"): (1, 3)}
    assert figures(with_tables(profile, kernels=nodes)) == expected
    assert figures("cpu  GG......\ns7   ...GGGGG") == expected


def test_the_same_stream_number_in_another_process_is_another_stream() -> None:
    profile = draw("cpu    L........\ncpu:8  ..L......\ns7     .aaaaaaaa\ns8     ....b....")
    assert figures(profile)[(LATENCY, "first")] == (2, 3)
    kernels, calls = profile.table("kernels"), profile.table("api_calls")
    second = with_tables(
        profile,
        kernels=kernels.assign(stream=7, process=[PROCESS, PROCESS * 2]),
        api_calls=calls.assign(process=[PROCESS, PROCESS * 2]),
    )
    assert figures(second)[(LATENCY, "first")] == (2, 3)


def test_each_process_and_device_has_first_launches_of_its_own() -> None:
    picture = "cpu   L...L...L..\ns7    .a.......a.\ns7:1  .....a....."
    assert figures(picture)[(API, "first")] == (1, 1)
    assert figures(picture)[(API, "steady")] == (1, 1)
    assert figures(picture, device=1) == {(API, "first"): (1, 1), (LATENCY, "first"): (1, 1)}


def test_only_launches_whose_work_begins_in_the_window_count() -> None:
    picture = """
        nvtx  ......[measure]....
        cpu   L.......L.......L..
        s7    .aa......aa......aa
        """
    assert figures(picture) == {(API, "steady"): (1, 1), (LATENCY, "steady"): (1, 1)}


def test_launches_without_a_recorded_call_are_reported_and_in_no_figure() -> None:
    table = launch_phases(Timeline(draw("cpu  L.....\ns7   .a..b.")))
    assert table.frame["count"].tolist() == [1, 1]
    assert table.notes == ("1 of 2 launches have no recorded API call and are not in these figures.",)


# -- launch bound -----------------------------------------------------------------------------------------------------


def test_idle_time_for_launches_is_that_of_the_split() -> None:
    row = bound("cpu  L..LL..\ns7   .a....a")
    assert (row["launches"], row["launch_idle_ns"]) == (2, 3000)
    assert row["launch_idle_pct"] == pytest.approx(50)


def test_operations_in_flight_are_handed_over_and_not_ended() -> None:
    picture = """
        cpu   L.L.L.....
        s7    .aaabbbccc
        """
    row = bound(picture)
    assert (row["in_flight_max"], row["in_flight_avg"]) == (2, pytest.approx((3 + 4 + 5) / 9))


def test_what_drained_the_queue_is_named_and_catching_up_with_the_cpu_is_not() -> None:
    picture = """
        cpu   L..L.SSSSSS.L..L.
        s7    .a....aaa....a..a
        """
    row = bound(picture)
    assert (row["drained"], row["drained_in_sync"], row["functions"]) == (3, 1, "cudaStreamSynchronize")


def test_a_synchronizing_call_of_another_process_drained_nothing() -> None:
    profile = draw("cpu    L.........L.\ncpu:8  ...SSSSS....\ns7     .aaaa......a")
    calls = profile.table("api_calls")
    other = calls.assign(process=calls["process"].where(calls["tid"] == 7, PROCESS * 2))
    (alone,) = launch_bound(Timeline(with_tables(profile, api_calls=other))).frame["drained_in_sync"]
    (same,) = launch_bound(Timeline(profile)).frame["drained_in_sync"]
    assert (same, alone) == (1, 0)


def test_a_graph_is_in_flight_as_one() -> None:
    profile = draw("cpu  G.......\ns7   ..aa.bbb")
    nodes = profile.table("kernels").assign(correlation=1000, graph_node=[1, 2])
    row = launch_bound(Timeline(with_tables(profile, kernels=nodes))).frame.iloc[0]
    assert (row["launches"], row["in_flight_max"], row["drained"]) == (1, 1, 0)


# -- the series -------------------------------------------------------------------------------------------------------


@given(
    st.text("..LG", min_size=1, max_size=40),
    st.lists(st.text("....abM", min_size=1, max_size=50), min_size=1, max_size=3),
)
def test_the_series_is_the_number_of_operations_in_flight(cpu: str, streams: list[str]) -> None:
    assume(any(letter in track for track in streams for letter in "abM"))
    picture = "\n".join([f"cpu  {cpu}", *(f"s{row}   {track}" for row, track in enumerate(streams))])
    timeline = Timeline(draw(picture))
    operations, window = timeline.operations, timeline.window
    given_up = np.append(timeline.call_times[1], np.iinfo(np.int64).max)[operations.call]
    spans = list(zip(np.minimum(given_up, operations.start), operations.end, strict=True))
    table = in_flight(timeline).frame
    edges = [*(table["time_ns"] + window.start_ns), window.end_ns]
    for row, (low, high) in list(enumerate(pairwise(edges)))[::7]:
        open_ns = sum(max(min(end, high) - max(start, low), 0) for start, end in spans)
        changes = {low, *(start for start, _ in spans if low <= start < high)}
        assert table.at[row, "in_flight_avg"] == pytest.approx(open_ns / (high - low))
        assert table.at[row, "in_flight_max"] == max(sum(s <= time < e for s, e in spans) for time in changes)


def test_the_series_has_at_most_so_many_points_per_device(capture: Profile) -> None:
    timeline = Timeline(capture)
    table, row = in_flight(timeline).frame, launch_bound(timeline).frame
    points = table.groupby("device").size()
    assert points.index.tolist() == row["device"].tolist()
    assert (points == min(POINTS, timeline.window.length_ns)).all()
    peaks = table.groupby("device")["in_flight_max"].max()
    assert peaks.tolist() == row["in_flight_max"].tolist()


# -- laws on real captures --------------------------------------------------------------------------------------------


def test_every_launch_with_a_call_has_an_api_time_and_either_waited_or_did_not(capture: Profile) -> None:
    timeline = Timeline(capture)
    window, launches = timeline.window, timeline.launches
    inside = launches["start_ns"].between(window.start_ns, window.end_ns, inclusive="left")
    with_call = launches[inside & (launches["call"] >= 0)].groupby("device").size()
    counts = launch_phases(timeline).frame.pivot_table(
        index="device", columns="figure", values="count", aggfunc="sum", fill_value=0
    )
    assert with_call.sum() == 0 or counts[API].tolist() == with_call.tolist()
    assert with_call.sum() == 0 or counts[API].equals(counts.drop(columns=API).sum(axis=1))


def test_launch_idle_time_and_the_split_agree(capture: Profile) -> None:
    split = time_split(Timeline(capture)).frame
    launch = split[split["category"] == "launch"]["time_ns"].sum()
    assert launch_bound(Timeline(capture)).frame["launch_idle_ns"].sum() == launch


def test_waiting_for_an_event_of_another_stream_is_not_taken_for_latency(recorded: Recorded) -> None:
    table = launch_phases(Timeline(recorded.profile("ddp2"))).frame
    most = table[table["launch"] == "steady"].groupby("figure")["max_ns"].max()
    assert most[LATENCY] < 20_000
    assert most[QUEUE] > 10_000_000


@pytest.mark.parametrize(("calls", "longer"), [("LLLLL", 3), ("LL...", 0)])
def test_first_launches_cost_what_they_take_longer_than_later_ones(calls: str, longer: int) -> None:
    picture = f"nvtx  [measure       ]\ncpu   {calls}.LL.LL.LL.\ns7    .....aa.aa.aa.aa"
    (first,) = launch_bound(Timeline(draw(picture))).frame["first_launch_idle_ns"]
    assert first == longer * 1000
