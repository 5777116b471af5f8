"""What a report says of what can be believed: lost events, calls that are missing, work before its launch."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest

from nightsight.analyze.facts import trust
from nightsight.events.timeline import Timeline
from nightsight.model.report import Finding, Profile
from nightsight.tables import conform, empty
from tests.recorded import Recorded
from tests.timeline import PROCESS, draw

CaptureFile = Callable[[str], Path]
NOT_ALL = "Not all CUDA events might have been collected."
BEGIN, END = "cudaStreamBeginCapture_v10000", "cudaStreamEndCapture_v10000"


def findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    return [finding for finding in trust(Timeline(Profile(tables))) if finding.severity != "info"]


def rules(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    return [finding.rule for finding in findings(tables)]


def named(profile: Profile, **names: str) -> dict[str, pd.DataFrame]:
    """Give calls other names, by the names that they were drawn with."""
    calls = profile.table("api_calls")
    renamed = conform("api_calls", calls.assign(name=calls["name"].astype("str").replace(names)))
    return {**profile.tables, "api_calls": renamed}


def capturing(picture: str) -> dict[str, pd.DataFrame]:
    """Draw the begin of a stream capture as A, its end as F."""
    return named(draw(picture), cudaMalloc=BEGIN, cudaFree=END)


def with_messages(tables: Mapping[str, pd.DataFrame], *texts: str) -> dict[str, pd.DataFrame]:
    rows = pd.DataFrame({"time_ns": 1, "severity": "warning", "text": texts})
    return {**tables, "diagnostics": conform("diagnostics", rows)}


@pytest.mark.parametrize("name", ["graph", "graph_node"])
def test_lost_kernels_of_a_program_that_captures_graphs_are_reported(recorded: Recorded, name: str) -> None:
    tables = recorded.profile(name).tables
    assert rules(tables) == []
    for some in (tables["kernels"].head(100), tables["kernels"].iloc[::2]):
        assert rules({**tables, "kernels": some}) == ["lost_events"]


def test_only_launches_inside_a_stream_capture_need_no_work() -> None:
    # the first launch has its work
    assert rules(capturing("cpu  L.A.L.L.F...\ns7   .a..........")) == []
    (lost,) = findings(capturing("cpu  L.A.L.L.F.L.L\ns7   .a.........."))
    assert "for 2 of 3 launch calls." in lost.detail
    (open_ended,) = findings(capturing("cpu  L.A.L.L\ns7   .a......"))
    assert "for 2 of 3 launch calls." in open_ended.detail


def test_launches_of_other_threads_count_unless_all_of_them_go_into_the_capture() -> None:
    backward = "cpu  L.A.......F\ncpu:8  ...L.L.L...\ns7   .a"
    assert rules(capturing(backward)) == []
    (lost,) = findings(capturing("cpu  L.A.......F\ncpu:8  ...L.L.L...\ns7   .a...b"))
    assert "for 2 of 4 launch calls." in lost.detail
    (after,) = findings(capturing("cpu  L.A.F.......\ncpu:8  .....L.L.L...\ns7   .a"))
    assert "for 3 of 4 launch calls." in after.detail


def test_what_the_profiler_says_is_a_banner_unless_a_capture_range_explains_it() -> None:
    tables = draw("cpu  L.L...\ns7   ..a..b").tables
    (doubt,) = findings(with_messages(tables, NOT_ALL))
    assert (doubt.rule, doubt.title) == ("lost_events", "The profiler reports that events may be missing")
    assert findings(with_messages(tables, NOT_ALL, "Profiling started due to cudaProfilerStart API invoked.")) == []
    assert findings(with_messages(named(draw("cpu  L.A\ns7   ..a"), cudaMalloc="cuProfilerStart"), NOT_ALL)) == []
    (lost,) = findings(with_messages(draw("cpu  L.L...\ns7   ..a").tables, NOT_ALL))
    assert lost.title == "The profiler lost events"


@pytest.mark.parametrize("name", ["train", "ddp2", "everything"])
def test_copies_that_vanished_are_reported(recorded: Recorded, name: str) -> None:
    tables = recorded.profile(name).tables
    (lost,) = findings({**tables, "memory_ops": empty("memory_ops")})
    assert lost.rule == "lost_events"
    assert "copy or memset calls" in lost.detail
    assert "launching" not in lost.detail


def test_copies_into_a_stream_capture_need_no_work() -> None:
    assert rules(capturing("cpu  C.A.C.F.\ns7   .H......")) == []
    (lost,) = findings(capturing("cpu  C.A.C.F.C\ns7   .H......"))
    assert lost.detail.startswith("No GPU work is recorded for 1 of 2 copy or memset calls.")


@pytest.mark.parametrize("rows", [0, 1000])
def test_calls_that_vanished_are_reported(recorded: Recorded, rows: int) -> None:
    tables = recorded.profile("train").tables
    (lost,) = findings({**tables, "api_calls": tables["api_calls"].head(rows)})
    assert lost.rule == "lost_calls"
    assert f"of {1224 + 92:,} GPU operations" in lost.detail


def test_calls_that_were_not_traced_are_not_reported_as_lost() -> None:
    tables = draw("cpu  L\ns7   .a").tables
    assert rules({name: table for name, table in tables.items() if name != "api_calls"}) == []


def test_work_of_unknown_calls_is_not_reported_as_lost(recorded: Recorded) -> None:
    tables = recorded.profile("train").tables
    kernels = conform("kernels", tables["kernels"].assign(process=None))
    assert rules({**tables, "kernels": kernels}) == ["lost_calls"]


@pytest.mark.parametrize(("by_ns", "expected"), [(900_000, []), (1_100_000, ["early_work"])])
def test_work_that_starts_before_its_launch_is_reported(by_ns: int, expected: list[str]) -> None:
    tables = draw("cpu  LL.LL.\ns7   ..a..b").tables
    calls = tables["api_calls"]
    # the lead is 2 us
    later = calls[["start_ns", "end_ns"]] + [by_ns + 2000] * 2
    advice = findings({**tables, "api_calls": calls.assign(**later)})
    assert [finding.rule for finding in advice] == expected
    assert all(finding.detail.startswith("2 of 2 start more than 1 ms before") for finding in advice)


@pytest.mark.parametrize(("missing", "expected"), [(2, []), (3, ["lost_events"])])
def test_two_in_a_hundred_launching_calls_may_lack_their_work(missing: int, expected: list[str]) -> None:
    tables = draw(f"cpu  {'L.' * 100}\ns7   {'.a' * 100}").tables
    kept = tables["kernels"].drop(index=range(40, 40 + missing)).reset_index(drop=True)
    assert rules({**tables, "kernels": kept}) == expected


@pytest.mark.parametrize(("missing", "expected"), [(2, []), (3, ["lost_calls"])])
def test_two_in_a_hundred_kernels_may_lack_their_call(missing: int, expected: list[str]) -> None:
    tables = draw(f"cpu  {'L.' * 100}\ns7   {'.a' * 100}").tables
    kept = tables["api_calls"].drop(index=range(40, 40 + missing)).reset_index(drop=True)
    assert rules({**tables, "api_calls": kept}) == expected


# -- calls without work that lost none --------------------------------------------------------------------------------


def timed(calls: list[tuple[str, int, int]], *, work: Sequence[int], kernels: Sequence[int]) -> dict[str, pd.DataFrame]:
    """Make calls of (name, start, length) with their numbers as ids, and work of these ids: copies or kernels."""
    thread = {"process": PROCESS, "thread": PROCESS | 7, "pid": 5, "tid": 7, "layer": "runtime"}
    rows = [
        {"name": name, "start_ns": start, "end_ns": start + length, "correlation": number, **thread}
        for number, (name, start, length) in enumerate(calls)
    ]
    place = {"process": PROCESS, "device": 0, "context": 1, "stream": 7}
    spans = [
        {"start_ns": calls[at][1] + 2000, "end_ns": calls[at][1] + 3000, "correlation": at, **place}
        for at in (*work, *kernels)
    ]
    made = pd.DataFrame(spans)
    sizes = dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), 1)
    copies = made.head(len(work)).assign(operation="memset", source_kind="", target_kind="Device", bytes=4)
    of_kernels = made.tail(len(kernels)).assign(name="k", short_name="k", **sizes)
    return {
        "api_calls": conform("api_calls", pd.DataFrame(rows)),
        "memory_ops": conform("memory_ops", copies),
        "kernels": conform("kernels", of_kernels),
    }


def loop(*calls: tuple[str, int], times: int) -> list[tuple[str, int, int]]:
    """Repeat calls of (name, length), 10 us apart."""
    return [(name, 10_000 * at, length) for at, (name, length) in enumerate(calls * times)]


SET, COPY, LAUNCH = "cudaMemsetAsync_v3020", "cudaMemcpyAsync_v3020", "cudaLaunchKernel_v7000"


@pytest.mark.parametrize("name", [SET, COPY])
@pytest.mark.parametrize(("length", "expected"), [(260, []), (490, []), (1_400, []), (1_500, ["lost_events"])])
def test_sets_and_copies_of_nothing_return_at_once_and_lost_no_work(
    name: str, length: int, expected: list[str]
) -> None:
    # the sizes of a real trace: 235 of 380 in 0.26 to 0.49 us, those with work in 2.9 us and more
    calls = [*loop((LAUNCH, 5_000), times=100), *loop((name, 2_900), times=145), *loop((name, length), times=235)]
    assert rules(timed(calls, work=range(100, 245), kernels=range(100))) == expected


def test_sets_that_lost_their_work_are_reported_where_sets_of_nothing_are_too() -> None:
    calls = [*loop((LAUNCH, 5_000), times=100), *loop((SET, 2_900), times=145), *loop((SET, 300), times=235)]
    (lost,) = findings(timed(calls, work=range(100, 200), kernels=range(100)))
    assert lost.detail.startswith("No GPU work is recorded for 45 of 145 copy or memset calls.")


def host_to_host(*, lost: Callable[[int], bool] = lambda _: False) -> dict[str, pd.DataFrame]:
    """An optimizer's loop: of 3,660 copying calls 1,800 stay on the host, between launches that have their kernels."""
    step = [(COPY, 4_000), *[(COPY, 3_500), (LAUNCH, 5_000), (SET, 3_000)] * 60, (COPY, 4_000)]
    calls = loop(*step, times=30)
    place = [at % len(step) for at in range(len(calls))]
    on_host = [name == COPY and here not in (0, len(step) - 1) for (name, _, _), here in zip(calls, place, strict=True)]
    kept = [at for at, here in enumerate(on_host) if not here and not lost(at)]
    launching = [at for at in kept if calls[at][0] == LAUNCH]
    return timed(calls, work=[at for at in kept if calls[at][0] != LAUNCH], kernels=launching)


def test_copies_from_host_to_host_in_every_step_lost_no_work() -> None:
    tables = host_to_host()
    assert len(tables["memory_ops"]) == 1_860
    assert rules(tables) == []


@pytest.mark.parametrize(
    "lost",
    [
        lambda at: 2_000 <= at < 3_800,
        lambda at: at >= 3_600,
        lambda at: at < 1_800,
        lambda at: 1_000 <= at < 1_200,
        lambda at: 100 <= at < 700 or 3_000 <= at < 3_600,
    ],
)
def test_stretches_of_lost_events_are_reported_beside_copies_from_host_to_host(lost: Callable[[int], bool]) -> None:
    assert "lost_events" in rules(host_to_host(lost=lost))


def test_copies_that_lack_their_work_in_one_stretch_are_reported_though_every_kernel_is_there() -> None:
    calls = loop((COPY, 4_000), (LAUNCH, 5_000), times=3_660)
    launching = range(1, len(calls), 2)
    assert rules(timed(calls, work=[*range(0, 3_720, 2)], kernels=launching)) == ["lost_events"]
    in_seven = [at for at in range(0, len(calls), 2) if at // 500 % 2]
    assert rules(timed(calls, work=in_seven, kernels=launching)) == ["lost_events"]


def test_what_the_profiler_says_it_lost_is_not_explained_by_copies_on_the_host() -> None:
    (lost,) = findings(with_messages(host_to_host(), NOT_ALL))
    assert lost.title == "The profiler lost events"


def cut(picture: str, *, calls: slice, operations: slice) -> dict[str, pd.DataFrame]:
    """Keep a stretch of a drawn timeline: these of its calls, and these of its kernels."""
    tables = draw(picture).tables
    kept = {"api_calls": calls, "kernels": operations}
    return {**tables, **{name: tables[name].iloc[rows].reset_index(drop=True) for name, rows in kept.items()}}


QUEUED = "cpu  LLLLLLLLLL".replace("L", "L.") + "\ns7   " + "".join(f"....{name}" for name in "abcdefghij")


def test_clean_edges_of_a_cut_capture_are_reported_as_a_cut_and_not_a_loss() -> None:
    tables = cut(QUEUED, calls=slice(2, 10), operations=slice(0, 6))
    (finding,) = trust(Timeline(Profile(tables)))
    assert (finding.rule, finding.severity) == ("cut_capture", "info")
    assert finding.detail.startswith("Its first 2 GPU operations were launched before it begins, and its last 4 calls")


@pytest.mark.parametrize(
    ("calls", "operations", "expected"),
    [
        (slice(0, 10), slice(0, 6), ["lost_events"]),  # a program that was killed
        (slice(2, 10), slice(0, 10), ["lost_calls"]),
        (slice(2, 10), slice(0, 10, 2), ["lost_events", "lost_calls"]),  # not in one stretch
        (slice(2, 9, 2), slice(0, 6), ["lost_events", "lost_calls"]),
    ],
)
def test_edges_that_are_not_clean_on_both_sides_are_a_loss(
    calls: slice, operations: slice, expected: list[str]
) -> None:
    assert rules(cut(QUEUED, calls=calls, operations=operations)) == expected


def test_a_cut_does_not_explain_what_the_profiler_says_it_lost() -> None:
    tables = with_messages(cut(QUEUED, calls=slice(2, 10), operations=slice(0, 6)), NOT_ALL)
    assert rules(tables) == ["lost_events", "lost_calls"]
