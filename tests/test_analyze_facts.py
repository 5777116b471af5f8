"""What a report says of what can be believed: lost events, calls that are missing, work before its launch."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pytest

from pipeline.analyze.facts import trust
from pipeline.analyze.timeline import Timeline
from pipeline.model import Finding, Profile
from pipeline.read.nsys import read_nsys
from pipeline.tables import conform, empty
from tests.timeline import draw

CaptureFile = Callable[[str], Path]
SAID = "Not all CUDA events might have been collected."
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


def said(tables: Mapping[str, pd.DataFrame], *texts: str) -> dict[str, pd.DataFrame]:
    rows = pd.DataFrame({"time_ns": 1, "severity": "warning", "text": texts})
    return {**tables, "diagnostics": conform("diagnostics", rows)}


@pytest.mark.parametrize("name", ["graph", "graph_node"])
def test_lost_kernels_of_a_program_that_captures_graphs_are_said(capture_file: CaptureFile, name: str) -> None:
    tables = read_nsys(capture_file(name)).tables
    assert rules(tables) == []
    for some in (tables["kernels"].head(100), tables["kernels"].iloc[::2]):
        assert rules({**tables, "kernels": some}) == ["lost_events"]


def test_only_launches_inside_a_stream_capture_need_no_work() -> None:
    # the first launch has its work
    assert rules(capturing("cpu  L.A.L.L.F...\ns7   .a..........")) == []
    (lost,) = findings(capturing("cpu  L.A.L.L.F.L.L\ns7   .a.........."))
    assert "for 2 of 3 launching calls." in lost.detail
    (open_ended,) = findings(capturing("cpu  L.A.L.L\ns7   .a......"))
    assert "for 2 of 3 launching calls." in open_ended.detail


def test_launches_of_other_threads_count_unless_all_of_them_go_into_the_capture() -> None:
    backward = "cpu  L.A.......F\ncpu:8  ...L.L.L...\ns7   .a"
    assert rules(capturing(backward)) == []
    (lost,) = findings(capturing("cpu  L.A.......F\ncpu:8  ...L.L.L...\ns7   .a...b"))
    assert "for 2 of 4 launching calls." in lost.detail
    (after,) = findings(capturing("cpu  L.A.F.......\ncpu:8  .....L.L.L...\ns7   .a"))
    assert "for 3 of 4 launching calls." in after.detail


def test_what_the_profiler_says_is_a_banner_unless_a_capture_range_explains_it() -> None:
    tables = draw("cpu  L.L...\ns7   ..a..b").tables
    (doubt,) = findings(said(tables, SAID))
    assert (doubt.rule, doubt.title) == ("lost_events", "The profiler reports that events may be missing")
    assert findings(said(tables, SAID, "Profiling started due to cudaProfilerStart API invoked.")) == []
    assert findings(said(named(draw("cpu  L.A\ns7   ..a"), cudaMalloc="cuProfilerStart"), SAID)) == []
    (lost,) = findings(said(draw("cpu  L.L...\ns7   ..a").tables, SAID))
    assert lost.title == "The profiler lost events"


@pytest.mark.parametrize("name", ["train", "ddp2", "everything"])
def test_copies_that_vanished_are_said(capture_file: CaptureFile, name: str) -> None:
    tables = read_nsys(capture_file(name)).tables
    (lost,) = findings({**tables, "memory_ops": empty("memory_ops")})
    assert lost.rule == "lost_events"
    assert "copying or setting calls" in lost.detail
    assert "launching" not in lost.detail


def test_copies_into_a_stream_capture_need_no_work() -> None:
    assert rules(capturing("cpu  C.A.C.F.\ns7   .H......")) == []
    (lost,) = findings(capturing("cpu  C.A.C.F.C\ns7   .H......"))
    assert lost.detail.startswith("No GPU work is recorded for 1 of 2 copying or setting calls.")


@pytest.mark.parametrize("rows", [0, 1000])
def test_calls_that_vanished_are_said(capture_file: CaptureFile, rows: int) -> None:
    tables = read_nsys(capture_file("train")).tables
    (lost,) = findings({**tables, "api_calls": tables["api_calls"].head(rows)})
    assert lost.rule == "lost_calls"
    assert f"of {1224 + 92:,} GPU operations" in lost.detail


def test_calls_that_were_not_traced_are_not_said_to_be_lost() -> None:
    tables = draw("cpu  L\ns7   .a").tables
    assert rules({name: table for name, table in tables.items() if name != "api_calls"}) == []


def test_work_of_unknown_calls_is_not_said_to_be_lost(capture_file: CaptureFile) -> None:
    tables = read_nsys(capture_file("train")).tables
    kernels = conform("kernels", tables["kernels"].assign(process=None))
    assert rules({**tables, "kernels": kernels}) == ["lost_calls"]


@pytest.mark.parametrize(("by_ns", "expected"), [(900_000, []), (1_100_000, ["early_work"])])
def test_work_that_starts_before_its_launch_is_said(by_ns: int, expected: list[str]) -> None:
    tables = draw("cpu  LL.LL.\ns7   ..a..b").tables
    calls = tables["api_calls"]
    # the lead is 2 us
    later = calls[["start_ns", "end_ns"]] + [by_ns + 2000] * 2
    found = findings({**tables, "api_calls": calls.assign(**later)})
    assert [finding.rule for finding in found] == expected
    assert all(finding.detail.startswith("2 of 2 start more than 1 ms before") for finding in found)


@pytest.mark.parametrize(("missing", "found"), [(2, []), (3, ["lost_events"])])
def test_two_in_a_hundred_launching_calls_may_lack_their_work(missing: int, found: list[str]) -> None:
    tables = draw(f"cpu  {'L.' * 100}\ns7   {'.a' * 100}").tables
    kept = tables["kernels"].drop(index=range(40, 40 + missing)).reset_index(drop=True)
    assert rules({**tables, "kernels": kept}) == found


@pytest.mark.parametrize(("missing", "found"), [(2, []), (3, ["lost_calls"])])
def test_two_in_a_hundred_kernels_may_lack_their_call(missing: int, found: list[str]) -> None:
    tables = draw(f"cpu  {'L.' * 100}\ns7   {'.a' * 100}").tables
    kept = tables["api_calls"].drop(index=range(40, 40 + missing)).reset_index(drop=True)
    assert rules({**tables, "api_calls": kept}) == found
