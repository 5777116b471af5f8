"""Waiting: which calls wait for the GPU, and how much of that time was lost."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.syncs import os_calls, synchronizations
from nightsight.events.timeline import Timeline, busy_spans
from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.properties import examples
from tests.recorded import Recorded, whole
from tests.timeline import PROCESS, draw, side_by_side

CaptureFile = Callable[[str], Path]


def waits(profile: Profile) -> list[list[object]]:
    """The name, kind, number, time and idle time (both in microseconds) of each row."""
    table = synchronizations(Timeline(profile)).frame
    table[["total_ns", "idle_ns"]] //= 1000
    return list(table[["name", "kind", "calls", "total_ns", "idle_ns"]].to_numpy().tolist())


def test_time_is_lost_where_nothing_runs_while_the_cpu_waits() -> None:
    profile = draw(
        """
        cpu  L.SSSSSSSS
        s7   ....aaa...
        s8   .....bbb..
        """
    )
    assert waits(profile) == [["cudaStreamSynchronize", "explicit", 1, 8, 4]]


def test_work_of_another_process_does_not_hide_a_wait() -> None:
    profile = draw("cpu  L.SSSS\ns7   ...aaa")
    kernels = profile.table("kernels").assign(process=PROCESS * 2)
    foreign = Profile({**profile.tables, "kernels": conform("kernels", kernels)})
    assert waits(foreign) == [["cudaStreamSynchronize", "explicit", 1, 4, 4]]


@pytest.mark.parametrize("name", ["cudaEventSynchronize_v3020", "cuCtxSynchronize", "cudaDeviceSynchronize_v3020"])
def test_a_synchronization_is_named_by_its_call(name: str) -> None:
    profile = draw("cpu  SS")
    calls = conform("api_calls", profile.table("api_calls").assign(name=name))
    renamed = waits(Profile({**profile.tables, "api_calls": calls}))
    assert renamed == [[name.removesuffix("_v3020"), "explicit", 1, 2, 2]]


def test_a_blocking_copy_and_one_to_pageable_memory_wait_without_saying_so() -> None:
    assert waits(draw("cpu  BBBB....CC\ns7   ..HH.....D")) == [
        ["cudaMemcpy", "implicit", 1, 4, 2],
        ["cudaMemcpyAsync", "implicit", 1, 2, 1],
    ]
    assert waits(draw("cpu  CC...\ns7   ..HH.")) == []


def test_a_free_always_synchronizes() -> None:
    assert waits(draw("cpu  L.FFFF\ns7   .aaa..")) == [["cudaFree", "implicit", 1, 4, 2]]


@pytest.mark.parametrize(
    ("picture", "waited"),
    [
        ("cpu  L.AAAA.\ns7   .aaaa..", True),
        # what it found running outlasts it
        ("cpu  L.AAAA.\ns7   .aaaaaa", False),
        # nothing was running
        ("cpu  L..AAAA\ns7   .aa....", False),
        # it had its own work to do for most of the time
        ("cpu  L.AAAAAA\ns7   .aa.....", False),
        # launched before it, though not yet begun
        ("cpu  L.AAAA.\ns7   ...aa..", True),
    ],
)
def test_an_allocation_waits_when_it_returns_with_the_work_before_it(picture: str, *, waited: bool) -> None:
    assert [row[0] for row in waits(draw(picture))] == ["cudaMalloc"] * waited


def test_what_another_thread_launches_meanwhile_does_not_matter_to_an_allocation() -> None:
    profile = draw(
        """
        cpu    L.AAAA...
        cpu:8  ....L....
        s7     .aaaa....
        s8     .....bbbb
        """
    )
    assert [row[0] for row in waits(profile)] == ["cudaMalloc"]


def test_a_driver_call_inside_a_runtime_call_is_not_counted_again() -> None:
    profile = draw("cpu  SSSS")
    outer = profile.table("api_calls")
    inner = outer.assign(name="cuStreamSynchronize", layer="driver", start_ns=1000, end_ns=3000)
    calls = conform("api_calls", pd.concat([inner, outer]))
    both = waits(Profile({**profile.tables, "api_calls": calls}))
    assert both == [["cudaStreamSynchronize", "explicit", 1, 4, 4]]


def test_the_innermost_frame_is_shown_where_stacks_were_recorded() -> None:
    profile = draw("cpu  SS.S.SS")
    assert "frame" not in synchronizations(Timeline(profile)).frame
    calls = profile.table("api_calls").iloc[[2, 0]]
    frames = conform("call_frames", calls.assign(frame=["train.py:12", "train.py:7"]))
    table = synchronizations(Timeline(Profile({**profile.tables, "call_frames": frames}))).frame
    assert dict(zip(table["frame"], table["total_ns"], strict=True)) == {
        "train.py:7": 2000,
        "train.py:12": 2000,
        "": 1000,
    }


def most_idle(timeline: Timeline) -> int:
    """How long the GPU that idled most did so in the window."""
    window = timeline.window.length_ns
    return max((window - int((end - start).sum()) for start, end in busy_spans(timeline).values()), default=0)


def lost(picture: str) -> list[float]:
    """What the waits of each row cost at most, in microseconds."""
    return [float(value) / 1000 for value in synchronizations(Timeline(draw(picture))).frame["lost_ns"]]


@pytest.mark.parametrize(
    ("picture", "cost"),
    [
        # two microseconds idle inside it and six after it, but it lasts only four
        ("cpu  L.SSSS......L\ns7   aaaa........b", 4),
        # it lasts six, but the GPU idles only one before there is work again
        ("cpu  L.SSSSSSL.\ns7   aaaaaaaa.b", 1),
        # nothing runs later in the window
        ("cpu  L.SSSS\ns7   aaaa..", 0),
    ],
)
def test_a_wait_costs_its_own_time_or_the_idle_time_that_it_could_fill(picture: str, cost: float) -> None:
    assert lost(picture) == [cost]


def test_idle_time_is_lost_by_one_wait_only() -> None:
    assert lost("cpu  L.SS.SS.......L\ns7   aa.............b") == [4]
    assert lost("cpu  L.SS.DSS......L\ns7   aa.............b".replace("D", "E")) == [4]


def test_waits_with_no_launch_between_them_are_one_named_by_the_longest() -> None:
    # three waits, ten microseconds in all; then the GPU idles for eleven until the next launch
    table = synchronizations(Timeline(draw("cpu  L.CCCCCCC.C.SS......L\ns7   .aaaaaaaD.D...........b"))).frame
    rows = table[["name", "calls", "lost_ns", "other_waits"]].to_numpy().tolist()
    assert rows == [["cudaMemcpyAsync", 2, 10_000, 2], ["cudaStreamSynchronize", 1, 0, 0]]


def test_a_launch_between_two_waits_parts_them() -> None:
    # what the second wait costs is not the lead of the first
    assert lost("cpu  L.SSSS.LSSS......L\ns7   aaaaaa..bb.........c") == [2 + 3]
    assert lost("cpu  L.SSSS..SSS......L\ns7   aaaaaaaabb.........c") == [7]


def test_launches_of_another_thread_part_the_waits_of_one_that_launches_nothing() -> None:
    picture = "cpu:8  L.......L.........L\ncpu:7  ..SSSS...SSS.......\ns7     aaaaaa...bb........c"
    assert lost(picture) == [3 + 3]
    # one of a thread that launches itself does not
    assert lost(f"{picture.replace('SSSS...SSS', 'SSSS...SSS..L')}d") == [7]


def test_idle_time_that_two_threads_wait_in_is_lost_once() -> None:
    picture = "cpu:7  L.SSSS.......L\ncpu:8  ..FFFF.......L\ns7     aaaa.........bbb"
    assert sum(lost(picture)) == 4


def test_idle_time_of_two_gpus_is_not_added_up() -> None:
    picture = "cpu   LLSSSS..LSSSSSS..L\ns7    aaaa....bbbbbbb...c\ns7:1  dddddddddd........."
    timeline = Timeline(draw(picture))
    assert synchronizations(timeline).frame["lost_ns"].sum() <= most_idle(timeline)


def test_a_gpu_that_another_process_keeps_busy_idles_for_none() -> None:
    profile = draw("cpu  L.SSSS......L\ns7   aaaa........b\ns8   ....xxxxxxxx")
    kernels = profile.table("kernels")
    foreign = kernels["process"].where(kernels["name"] != "x", PROCESS * 2)
    shared = Profile({**profile.tables, "kernels": conform("kernels", kernels.assign(process=foreign))})
    assert synchronizations(Timeline(shared)).frame["lost_ns"].tolist() == [0]


@examples(60)
@given(
    st.lists(st.text("L..SSCBF", max_size=40), min_size=1, max_size=3),
    st.lists(st.text("ab..HD", min_size=1, max_size=60), min_size=1, max_size=3),
)
def test_what_is_lost_is_never_more_than_a_gpu_idles(threads: list[str], gpus: list[str]) -> None:
    calls = [f"cpu:{7 + number}  {track}" for number, track in enumerate(threads)]
    work = [f"s7:{number}  {track}" for number, track in enumerate(gpus)]
    timeline = Timeline(draw("\n".join([*calls, *work])))
    table = synchronizations(timeline).frame
    assert 0 <= table["lost_ns"].sum() <= min(most_idle(timeline), table["total_ns"].sum())


def test_time_outside_of_the_window_is_not_lost() -> None:
    inside = "nvtx  [measure  ]......\ncpu   L.SSS...L..SSSSS\ns7    .a........b.....b"
    assert lost(inside) == [3]


def test_repetitions_of_a_range_with_a_wait_are_counted() -> None:
    picture = "nvtx  [step][step][step][step]\ncpu   .SS...SS....S.........."
    row = synchronizations(Timeline(draw(picture))).frame.iloc[0]
    assert (row["calls"], row["steps"], row["of_steps"]) == (3, 3, 4)
    row = synchronizations(Timeline(draw("nvtx  [step][step]\ncpu   .SS...SS..."))).frame.iloc[0]
    assert (row["steps"], row["of_steps"]) == (0, 0)


def test_two_processes_that_wait_in_each_step_wait_in_all_of_their_steps() -> None:
    one = draw("nvtx  [step][step][step]\ncpu   L.SS..L.SS..L.SS..\ns7    .aa...aa....aa...b")
    table = synchronizations(Timeline(side_by_side(one, one))).frame
    assert table[["pid", "calls", "steps", "of_steps"]].to_numpy().tolist() == [[5, 3, 3, 3], [6, 3, 3, 3]]


# -- real captures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["train", "ddp2", "gelu", "graph", "unified_memory"])
def test_explicit_waits_add_up_to_the_calls_of_a_capture(recorded: Recorded, name: str) -> None:
    profile = recorded.profile(name)
    calls = profile.table("api_calls")
    explicit = calls[calls["name"].astype(str).str.contains("Synchronize")]
    table = synchronizations(Timeline(whole(profile))).frame
    of_kind = table[table["kind"] == "explicit"]
    assert of_kind["calls"].sum() == len(explicit)
    assert of_kind["total_ns"].sum() == (explicit["end_ns"] - explicit["start_ns"]).sum()
    assert (table["idle_ns"] <= table["total_ns"]).all()
    assert (table["idle_ns"] >= 0).all()
    assert (table["lost_ns"] >= 0).all()
    of_process = table.groupby("pid")[["lost_ns", "total_ns"]].sum()
    assert (of_process["lost_ns"] <= of_process["total_ns"]).all()
    assert of_process["lost_ns"].max() <= most_idle(Timeline(whole(profile)))
    assert (table["steps"] <= table["of_steps"]).all()


def test_item_synchronizes_in_every_iteration_of_the_training_loop(recorded: Recorded) -> None:
    table = synchronizations(Timeline(recorded.profile("train"))).frame
    first = table.iloc[0]
    assert (first["name"], first["path"], first["calls"]) == ("cudaStreamSynchronize", "iteration #", 19)


def test_both_processes_wait_and_only_their_own_gpu_counts(recorded: Recorded) -> None:
    table = synchronizations(Timeline(whole(recorded.profile("ddp2")))).frame
    calls = table.groupby("name", observed=True)["calls"].sum()
    assert (calls["cudaEventSynchronize"], calls["cudaDeviceSynchronize"], calls["cudaMemcpyAsync"]) == (160, 4, 6)
    waits = table[table["name"] == "cudaEventSynchronize"]
    assert waits.groupby("pid")["calls"].sum().tolist() == [80, 80]
    assert waits["idle_ns"].sum() == 1_268_324


def test_os_calls_are_summed_by_name(recorded: Recorded) -> None:
    profile = recorded.profile("train")
    events, table = profile.table("os_calls"), os_calls(Timeline(whole(profile))).frame
    assert table["calls"].sum() == len(events)
    assert table["total_ns"].sum() == (events["end_ns"] - events["start_ns"]).sum()
    assert table["name"].iloc[0] == "poll"
