"""The split of the window: drawn timelines, an independent count of every microsecond, and laws on real captures."""

import re
from collections import Counter
from typing import NamedTuple

import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nightsight.analyze.gpu_time import gpu_time
from nightsight.analyze.launches.figures import launch_phases
from nightsight.analyze.split import time_split
from nightsight.events.timeline import Timeline
from nightsight.intervals import clipped_union, length
from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.recorded import Recorded
from tests.timeline import PROCESS, draw

NSYS = ("train", "ddp2", "gelu", "graph", "graph_node", "unified_memory", "crash", "mlp")
KINETO = ("mini_torch", "cuda_graph")


@pytest.fixture(params=(*NSYS, *KINETO))
def capture(request: pytest.FixtureRequest, recorded: Recorded) -> Profile:
    return recorded.profile(request.param)


def microseconds(picture: Profile | str, *, device: int = 0) -> dict[str, int]:
    table = time_split(Timeline(draw(picture) if isinstance(picture, str) else picture)).frame
    of_device = table[table["device"] == device]
    return dict(zip(of_device["category"], of_device["time_ns"] / 1000, strict=True))


def functions(picture: str, category: str) -> str:
    table = time_split(Timeline(draw(picture))).frame
    return str(table.loc[table["category"] == category, "functions"].item())


def with_tables(profile: Profile, **tables: pd.DataFrame) -> Profile:
    return Profile({**profile.tables, **{name: conform(name, table) for name, table in tables.items()}})


# -- what ran ---------------------------------------------------------------------------------------------------------


def test_what_runs_under_another_kind_is_hidden_and_shown_apart() -> None:
    picture = """
        s7   aaaa........
        s8   ..nnnnnn....
        s9   .HH...HHHHHH
        """
    table = time_split(Timeline(draw(picture))).frame.set_index("category")
    assert table["time_ns"].to_dict() == {"compute": 4000, "communication": 4000, "copies and sets": 4000}
    assert table["hidden_ns"].to_dict() == {"compute": 0, "communication": 2000, "copies and sets": 4000}
    assert table["group"].unique().tolist() == ["busy"]
    assert table["share_pct"].tolist() == pytest.approx([100 / 3] * 3)


def test_copies_to_a_peer_are_communication_and_sets_go_with_copies() -> None:
    assert microseconds("s7   aaPPPMHH") == {"compute": 2, "communication": 3, "copies and sets": 3}


def test_a_category_that_is_hidden_altogether_keeps_its_row() -> None:
    assert microseconds("s7   aaaa\ns8   .nn.") == {"compute": 4, "communication": 0}


def test_graphs_traced_as_a_whole_get_what_the_others_leave() -> None:
    assert microseconds("s7   GGGGGG\ns8   ..aaHH") == {"compute": 2, "copies and sets": 2, "CUDA graphs": 2}


def test_devices_are_split_apart() -> None:
    picture = """
        cpu   L...L......
        s7    .aa........
        s7:1  .....bbbbbb
        """
    assert microseconds(picture) == {"compute": 2, "other CUDA call": 1, "host code": 7}
    assert microseconds(picture, device=1) == {"compute": 6, "launch": 1, "host code": 3}


# -- why nothing ran --------------------------------------------------------------------------------------------------


def test_a_gap_has_several_causes_one_after_the_other() -> None:
    picture = """
        cpu   L..SSSS..AA.LL......
        s7    .aaa............bbbb
        """
    assert microseconds(picture) == {
        "compute": 7,
        "allocation and free": 2,
        "launch": 4,
        "synchronizing call": 3,
        "host code": 3,
    }
    assert functions(picture, "synchronizing call") == "cudaStreamSynchronize"
    assert functions(picture, "launch") == "cudaLaunchKernel"


def test_a_launch_lasts_for_ten_microseconds_after_its_call_and_what_is_left_is_a_dependency() -> None:
    picture = """
        cpu   L.LL.SSSSSSSSSSSSS
        s7    aa..............bb
        """
    assert microseconds(picture) == {"compute": 4, "launch": 12, "dependency": 2}


def test_an_operation_that_waited_in_its_queue_is_a_dependency() -> None:
    picture = """
        cpu   L.L.............
        s7    .aaaaaaaaaaaa.bb
        """
    assert microseconds(picture) == {"compute": 14, "dependency": 1}


def test_a_module_load_inside_a_launching_call_is_named() -> None:
    picture = """
        cpu   L..LLLLLLL...
        cpu   ....JJJJ.....
        s7    .aa........bb
        """
    assert microseconds(picture) == {"compute": 4, "module load and JIT": 4, "launch": 4}
    assert functions(picture, "module load and JIT") == "cuLibraryLoadData"


@pytest.mark.parametrize(("call", "operation"), [("B", "D"), ("B", "P"), ("C", "H")])
def test_a_copy_blocks_by_its_function_or_by_pageable_memory(call: str, operation: str) -> None:
    picture = f"cpu  L..{call * 5}L.\ns7   .aa.{operation * 2}...b"
    assert microseconds(picture)["blocking copy"] == 3
    assert microseconds(picture)["launch"] == 1


def test_a_set_by_an_async_call_blocks_nothing() -> None:
    assert microseconds("cpu  L..CC.\ns7   aaa..M") == {"compute": 3, "copies and sets": 1, "launch": 2}


def test_allocating_and_freeing_are_one_cause_with_both_names() -> None:
    picture = "cpu  LFFFALL.\ns7   a......a"
    assert microseconds(picture) == {"compute": 2, "allocation and free": 4, "launch": 2}
    assert functions(picture, "allocation and free") == "cudaFree, cudaMalloc"


def test_waiting_for_an_event_on_the_gpu_is_not_synchronizing() -> None:
    profile = draw("cpu  LEEEEL.\ns7   a.....a")
    calls = profile.table("api_calls")
    waits = calls.assign(name=calls["name"].astype("str").replace("cudaEventRecord", "cudaStreamWaitEvent_v3020"))
    assert microseconds(with_tables(profile, api_calls=waits)) == {"compute": 2, "launch": 1, "other CUDA call": 4}


def test_calls_of_another_process_explain_nothing() -> None:
    profile = draw("cpu    L........L.\ncpu:8  ..SSSS.....\ns7     .a........b")
    calls = profile.table("api_calls")
    other = calls.assign(process=calls["process"].where(calls["tid"] == 7, PROCESS * 2))
    assert microseconds(profile) == {"compute": 2, "launch": 1, "synchronizing call": 4, "host code": 3}
    assert microseconds(with_tables(profile, api_calls=other)) == {"compute": 2, "launch": 1, "host code": 7}


def test_two_processes_on_one_device_each_explain_the_gaps_before_their_own_work() -> None:
    profile = draw(
        """
        cpu    L......SSSSL..
        cpu:8  .AAAAAL....AA.
        s7     .a.....b....a.
        """
    )
    calls, kernels = profile.table("api_calls"), profile.table("kernels")
    second = kernels["name"] == "b"
    both = with_tables(
        profile,
        api_calls=calls.assign(process=calls["process"].where(calls["tid"] == 7, PROCESS * 2)),
        kernels=kernels.assign(process=kernels["process"].where(~second, PROCESS * 2)),
    )
    # before b the second process allocates and launches; before the last a the first one synchronizes and launches
    assert microseconds(both) == {"compute": 3, "allocation and free": 4, "launch": 2, "synchronizing call": 3}


def test_idle_time_is_unknown_without_api_calls() -> None:
    profile = draw("cpu  L..SSL..\ns7   .aa...bb")
    tables = {name: table for name, table in profile.tables.items() if name != "api_calls"}
    assert microseconds(Profile(tables, {"api_calls": "tracing was off"})) == {"compute": 4, "unknown": 3}


def test_idle_time_before_work_whose_call_was_not_recorded_is_unknown_where_no_call_ran() -> None:
    assert microseconds("cpu  L..SS...\ns7   .aa...bb") == {"compute": 4, "synchronizing call": 2, "unknown": 1}


def test_pages_of_managed_memory_move_without_any_call() -> None:
    profile = draw("cpu  L.......\ns7   .aa...HH")
    moved = profile.table("memory_ops").assign(operation="Unified Host-to-Device", source_kind="Managed")
    split = microseconds(with_tables(profile, memory_ops=moved))
    assert split == {"compute": 2, "copies and sets": 2, "host code": 3}


def test_after_the_last_operation_the_cause_is_what_the_cpu_did() -> None:
    picture = """
        nvtx  [measure    ]
        cpu   L...SSSS.....
        s7    .aaaa........
        """
    assert microseconds(picture) == {"compute": 4, "launch": 1, "synchronizing call": 3, "host code": 5}


def test_work_after_the_window_ends_its_last_gap() -> None:
    picture = """
        nvtx  [measure].....
        cpu   L.....L.......
        s7    .aa.........bb
        """
    assert microseconds(picture) == {"compute": 2, "launch": 1 + 3, "host code": 3}


def test_a_device_without_work_in_the_window_has_no_rows() -> None:
    picture = "nvtx  [measure]...\ns7    .aa.........\ns7:1  ..........bb"
    assert time_split(Timeline(draw(picture))).frame["device"].unique().tolist() == [0]


# -- against a count of every microsecond -----------------------------------------------------------------------------

KINDS = {"compute": "ab", "communication": "nP", "copies and sets": "HDM", "CUDA graphs": "G"}
CAUSES = {
    "module load and JIT": "J",
    "allocation and free": "AF",
    "blocking copy": "B",
    "synchronizing call": "S",
    "other CUDA call": "LCGE",
}


class Event(NamedTuple):
    start: int
    end: int
    letter: str
    row: int


def events(track: str, row: int = 0) -> list[Event]:
    drawn_events = (Event(match.start(), match.end(), match[1], row) for match in re.finditer(r"(\w)\1*", track))
    return list(drawn_events)


def cause(at: int, calls: list[Event], later: list[Event], launched_by: dict[Event, Event]) -> str:
    """Say why nothing runs at a time, by the rules in the analysis's help."""
    pageable = [launched_by[operation] for operation in launched_by if operation.letter in "HD"]
    ending = [operation for operation in later if operation.start == later[0].start]
    launch = min((launched_by[operation] for operation in ending if operation in launched_by), default=None)
    for name, letters in CAUSES.items():
        if name == "synchronizing call" and launch and launch.start <= at:
            return "launch" if at < launch.end + 10 else "dependency"
        running = [call for call in calls if call.start <= at < call.end]
        if any(call.letter in letters or (name == "blocking copy" and call in pageable) for call in running):
            return name
    return "unknown" if not calls or (later and not launch) else "host code"


def count(calls: list[Event], operations: list[Event]) -> Counter[str]:
    counts: Counter[str] = Counter()
    launched_by = dict(zip(operations, (call for call in calls if call.letter in "LCBG"), strict=False))
    for at in range(operations[0].start, max(operation.end for operation in operations)):
        running = {operation.letter for operation in operations if operation.start <= at < operation.end}
        kinds = [kind for kind, letters in KINDS.items() if running & set(letters)]
        later = [operation for operation in operations if operation.start > at]
        counts[kinds[0] if kinds else cause(at, calls, later, launched_by)] += 1
    return counts


@given(
    st.text("..LCSAFJBGE", min_size=1, max_size=40),
    st.lists(st.text("....abnPHDMG", min_size=1, max_size=60), min_size=1, max_size=3),
)
def test_every_microsecond_counts_where_the_rules_put_it(cpu: str, streams: list[str]) -> None:
    operations = sorted(
        (event for row, track in enumerate(streams) for event in events(track, row)),
        key=lambda event: (event.start, event.row),
    )
    assume(operations)
    picture = "\n".join([f"cpu  {cpu}", *(f"s{row}   {track}" for row, track in enumerate(streams))])
    split = microseconds(picture)
    assert {name: time for name, time in split.items() if time} == count(events(cpu), operations)


# -- laws on real captures --------------------------------------------------------------------------------------------


def test_rows_add_up_to_the_window_and_busy_rows_to_busy_time(capture: Profile) -> None:
    timeline = Timeline(capture)
    table, device = time_split(timeline).frame, gpu_time(timeline).frame
    sums = table.pivot_table(index="device", columns="group", values="time_ns", aggfunc="sum", fill_value=0)
    assert table["time_ns"].ge(0).all()
    assert table["hidden_ns"].dropna().ge(0).all()
    assert sums.index.tolist() == device["device"].tolist()
    if len(device):
        assert sums["busy"].tolist() == device["busy_ns"].tolist()
        assert sums["idle"].tolist() == device["idle_ns"].tolist()


def test_hidden_and_visible_communication_are_all_of_it(recorded: Recorded) -> None:
    timeline = Timeline(recorded.profile("ddp2"))
    kernels, window = timeline.profile.table("kernels"), timeline.window
    of_nccl = kernels["name"].astype("str").str.contains("nccl")
    table = time_split(timeline).frame
    for device in (0, 1):
        of_device = kernels[of_nccl & (kernels["device"] == device)]
        row = table[(table["device"] == device) & (table["category"] == "communication")]
        spans = clipped_union(
            of_device["start_ns"].to_numpy(), of_device["end_ns"].to_numpy(), (window.start_ns, window.end_ns)
        )
        assert (row["time_ns"] + row["hidden_ns"]).item() == length(spans) > 0


def test_a_training_capture_is_split_as_its_events_say(recorded: Recorded) -> None:
    table = time_split(Timeline(recorded.profile("mlp"))).frame.set_index("category")
    assert table["time_ns"].idxmax() == "host code"
    assert table.loc["synchronizing call", "functions"] == "cudaDeviceSynchronize"
    assert "module load and JIT" not in table.index


# -- clocks of several GPUs -------------------------------------------------------------------------------------------


def two_gpus(first: list[int], second: list[int]) -> Timeline:
    """Launch on two GPUs in turn, kernels beginning so many microseconds after the start of their call."""
    rows = ["", "", ""]
    for one, other in zip(first, second, strict=True):
        rows[0] += f"{'L':.<{one + 10}}{'L':.<{other + 10}}"
        rows[1] += f"{'.' * one}{'a' * 5}".ljust(one + other + 20, ".")
        rows[2] += f"{'.' * (one + 10 + other)}{'b' * 5}".ljust(one + other + 20, ".")
    return Timeline(draw(f"cpu   {rows[0]}\ns7    {rows[1]}\ns7:1  {rows[2]}"))


def dependency(timeline: Timeline, device: int) -> int:
    split = time_split(timeline).frame
    return int(split["time_ns"][(split["device"] == device) & (split["category"] == "dependency")].sum()) // 1000


def test_where_clocks_of_gpus_are_offset_launch_ends_with_the_latency_of_the_gpu_and_that_is_reported() -> None:
    timeline = two_gpus([14] * 30, [3] * 30)
    assert dependency(timeline, 0) == 0
    for notes in (time_split(timeline).notes, launch_phases(timeline).notes):
        assert "median 3.000 µs on GPU 1 and 14.00 µs on GPU 0" in " ".join(notes)
    # one that takes 40 longer than all others waited for something
    assert dependency(two_gpus([14] * 29 + [54], [3] * 30), 0) == 40


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([4] * 30, [3] * 30),
        # as far apart as they spread
        ([2, 26] * 15, [3] * 30),
        # too few to tell
        ([14] * 9, [3] * 9),
    ],
)
def test_clocks_are_doubted_only_where_gpus_differ_by_more_than_they_spread(
    first: list[int], second: list[int]
) -> None:
    timeline = two_gpus(first, second)  # the window begins with the first kernel
    assert time_split(timeline).notes == ()
    assert dependency(timeline, 0) == sum(max(latency - 11, 0) for latency in first[1:])
