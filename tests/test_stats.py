"""`nightsight stats` beyond what the oracle shows: digits, faults, other formats, NVIDIA's rules on drawn captures."""

import json
from decimal import Decimal

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import MissingTable, UsageError
from pipeline.model import Profile
from pipeline.stats import REPORTS, stats_table, write_stats
from pipeline.tables import TABLES, conform, empty
from tests.timeline import PROCESS, draw


def test_an_unknown_report_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown report 'kernels'") as caught:
        stats_table(Profile({}), "kernels")
    assert "cuda_gpu_kern_sum" in caught.value.hint


@pytest.mark.parametrize("name", REPORTS)
def test_a_missing_table_is_an_error_and_an_empty_one_a_header(name: str) -> None:
    with pytest.raises(MissingTable):
        stats_table(Profile({}), name)
    table = stats_table(Profile({table: empty(table) for table in TABLES}), name)
    assert write_stats(table, "csv").count("\n") == 1
    assert json.loads(write_stats(table, "json")) == []
    assert len(write_stats(table, "table").splitlines()) == 2


def test_a_kernel_without_its_call_vanishes_from_kern_exec_as_it_does_in_nsys() -> None:
    table = stats_table(draw("cpu  LL......\ns7   ..aa.bb."), "cuda_kern_exec_sum")
    assert table["Kernel Name"].tolist() == ["a"]


def test_an_operation_launched_from_another_thread_is_in_no_projection_as_in_nsys() -> None:
    profile = draw("nvtx   [step       ]\ncpu:8  ..L..........\ns7     ....aaa......")
    assert stats_table(profile, "nvtx_gpu_proj_sum").empty


def test_a_range_that_ends_on_another_thread_has_no_projection() -> None:
    profile = draw("nvtx  [step       ]\ncpu   ..L..........\ns7    ....aaa......")
    ranges = profile.table("ranges").assign(end_thread=PROCESS | 9, style="StartEnd")
    moved = Profile({**profile.tables, "ranges": conform("ranges", ranges)})
    assert len(stats_table(profile, "nvtx_gpu_proj_sum")) == 1
    assert stats_table(moved, "nvtx_gpu_proj_sum").empty
    assert stats_table(moved, "nvtx_sum")["Style"].tolist() == ["StartEnd"]


def test_projection_runs_from_the_first_to_the_last_operation() -> None:
    profile = draw("nvtx  [step           ]\ncpu   .L...L...........\ns7    ...aa...bbb......")
    (row,) = stats_table(profile, "nvtx_gpu_proj_sum").to_dict("records")
    assert (row["Total Proj Time_ns"], row["Total GPU Ops"], row["Total Range Time_ns"]) == (8000, 2, 17_000)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=9))
def test_averages_round_half_away_from_zero_as_sqlite_does(durations: list[int]) -> None:
    frame = draw("s7  a").table("kernels")
    kernels = pd.concat([frame.assign(end_ns=frame["start_ns"] + duration) for duration in durations])
    text = write_stats(stats_table(Profile({"kernels": conform("kernels", kernels)}), "cuda_gpu_kern_sum"), "csv")
    shown = Decimal(text.splitlines()[1].split(",")[3])
    assert abs(shown - Decimal(sum(durations)) / len(durations)) <= Decimal("0.0502")


def test_table_and_json_hold_what_csv_holds() -> None:
    table = stats_table(draw("s7  aaa.bb"), "cuda_gpu_kern_sum")
    (header, rule, first, second) = write_stats(table, "table").splitlines()
    assert header.split()[:2] == ["Time", "(%)"]
    assert set(rule) == {"-", " "}
    assert first.split()[:3] == ["60.0", "3000", "1"]
    assert second.split()[-1] == "b"
    assert json.loads(write_stats(table, "json"))[1]["Name"] == "b"
