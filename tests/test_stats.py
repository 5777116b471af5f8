"""`nightsight stats` beyond what the oracle shows: arguments, NVIDIA's rules on drawn captures, several reports."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nightsight.errors import CaptureError, MissingTable, UsageError
from nightsight.model.report import Profile
from nightsight.read.nsys.tables import read_nsys
from nightsight.stats import REPORTS, Selection, events, stats_table, stats_texts, write_stats
from nightsight.tables import TABLES, conform, empty
from nightsight.workflows.stats import print_stats
from tests.timeline import PROCESS, draw


def changed(profile: Profile, table: str, **columns: Any) -> Profile:
    frame = profile.table(table).assign(**columns)
    return Profile({**profile.tables, table: conform(table, frame)})


def added(profile: Profile, table: str, rows: list[dict[str, Any]]) -> Profile:
    return Profile({**profile.tables, table: conform(table, pd.DataFrame(rows))})


def test_an_unknown_report_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown report 'kernels'") as caught:
        stats_table(Profile({}), "kernels")
    assert "cuda_gpu_kern_sum" in caught.value.hint


@pytest.mark.parametrize(
    "report", ["cuda_gpu_kern_sum:rows=3", "nvtx_kern_sum:nvtx-name", "nvtx_sum:base", "um_sum:rows"]
)
def test_an_argument_the_report_does_not_take_is_an_error(report: str) -> None:
    with pytest.raises(UsageError, match="does not take the argument"):
        stats_table(Profile({}), report)


def test_rows_must_be_a_number() -> None:
    with pytest.raises(UsageError, match="rows must be a number, got 'many'"):
        stats_table(Profile({}), "um_sum:rows=many")


@pytest.mark.parametrize("name", REPORTS)
def test_a_missing_table_is_an_error_and_an_empty_one_a_header(name: str) -> None:
    with pytest.raises(MissingTable):
        stats_table(Profile({}), name)
    table = stats_table(Profile({table: empty(table) for table in TABLES}), name)
    # the totals of unified memory are one row of whatever was found
    assert write_stats(table, "csv").splitlines()[1:] == ([",,0,,,"] if name == "um_total_sum" else [])


def test_kernels_go_by_the_name_that_is_asked_for() -> None:
    profile = changed(draw("s7  aa.b"), "kernels", short_name=["s", "s"], mangled_name=["_Zy", "_Zx"])
    names = {
        argument: stats_table(profile, f"cuda_gpu_kern_sum{argument}")["Name"].tolist()
        for argument in ("", ":base", ":mangled", ":mangled:base")
    }
    assert names == {"": ["a", "b"], ":base": ["s"], ":mangled": ["_Zy", "_Zx"], ":mangled:base": ["s"]}


def test_without_mangled_names_the_demangled_ones_stand_in() -> None:
    assert stats_table(draw("s7  aa.b"), "cuda_gpu_kern_sum:mangled")["Name"].tolist() == ["a", "b"]


def test_nvtx_name_puts_the_innermost_range_before_the_kernel() -> None:
    profile = draw(
        """
        nvtx  [outer                 ]
        nvtx  ...[inner]
        cpu   .L....L....L............L
        s7    ..a....a....a............a
        """
    )
    table = stats_table(profile, "cuda_gpu_kern_sum:nvtx-name")
    assert dict(zip(table["Name"], table["Instances"], strict=True)) == {"a": 1, "inner/a": 1, "outer/a": 2}
    assert stats_table(profile, "cuda_gpu_trace:nvtx-name")["Name"].tolist() == ["outer/a", "inner/a", "outer/a", "a"]


def test_of_equal_totals_the_fewer_instances_come_first_then_the_name() -> None:
    table = stats_table(draw("s7  a.a.bb.dd.cc"), "cuda_gpu_kern_sum")
    assert table["Name"].tolist() == ["b", "c", "d", "a"]


def test_kernels_of_other_shapes_stand_apart_and_their_numbers_decide_the_order() -> None:
    profile = changed(draw("s7  a.a.a"), "kernels", grid_x=[128, 9, 9])
    table = stats_table(profile, "cuda_gpu_kern_gb_sum")
    assert table["GridXYZ"].tolist() == ["   9    1    1", " 128    1    1"]
    same = changed(draw("s7  a.a"), "kernels", grid_x=[128, 9])
    assert stats_table(same, "cuda_gpu_kern_gb_sum")["GridXYZ"].tolist() == ["   9    1    1", " 128    1    1"]


def test_a_kernel_without_its_call_vanishes_from_kern_exec_as_it_does_in_nsys() -> None:
    profile = draw("cpu  LL......\ns7   ..aa.bb.")
    unlaunched = changed(profile, "kernels", correlation=[1000, None])
    assert stats_table(unlaunched, "cuda_kern_exec_sum")["Kernel Name"].tolist() == ["a"]
    assert stats_table(unlaunched, "cuda_kern_exec_trace")["Kernel Name"].tolist() == ["a"]


def test_equal_correlation_ids_of_two_processes_stay_apart() -> None:
    profile = draw("cpu  L.L.....\ns7   ..aa.bb.")
    other = changed(profile, "api_calls", process=[PROCESS, PROCESS << 1], correlation=7)
    shared = changed(other, "kernels", process=[PROCESS, PROCESS << 1], correlation=7)
    trace = stats_table(shared, "cuda_kern_exec_trace")
    assert (trace["Kernel Name"].tolist(), trace["API Start_ns"].tolist()) == (["a", "b"], [0, 2000])


def test_a_kernel_that_starts_inside_its_call_has_no_queue() -> None:
    (row,) = stats_table(draw("cpu  LLLL.\ns7   ..aaa"), "cuda_kern_exec_trace").to_dict("records")
    assert (row["API Dur_ns"], row["Kernel Dur_ns"], row["Total Dur_ns"]) == (4000, 3000, 5000)
    assert pd.isna(row["Queue Start_ns"])
    assert pd.isna(row["Queue Dur_ns"])


def test_throughput_has_nvidias_whole_number_of_durations_in_a_second() -> None:
    profile = changed(draw("s7  HHHDDD"), "memory_ops", end_ns=[3000, 3000], bytes=[10**6, 10**6])
    trace = stats_table(profile, "cuda_gpu_trace")
    # 1 s holds 3 us 333,333 times, not 333,333.33; what took no time has no throughput
    assert trace["Throughput_bytes_per_s"].tolist()[0] == 333_333 * 10**6
    assert pd.isna(trace["Throughput_bytes_per_s"].tolist()[1])


def test_a_set_has_one_kind_of_memory_and_the_default_stream_no_number() -> None:
    (row,) = stats_table(draw("s0  M"), "cuda_gpu_trace").to_dict("records")
    assert (row["SrcMemKd"], row["DstMemKd"], row["Name"]) == ("Device", "", "[CUDA memset]")
    assert pd.isna(row["Strm"])


def test_calls_are_traced_with_their_threads() -> None:
    profile = changed(draw("cpu    L..S\ncpu:8  .L"), "api_calls", status=[0, 2, 0])
    named = added(profile, "threads", [{"thread": PROCESS | 7, "name": "main", "priority": 20}])
    trace = stats_table(named, "cuda_api_trace")
    assert trace["Start_ns"].tolist() == [0, 1000, 3000]
    assert trace["Result"].tolist() == [0, 0, 2]
    assert write_stats(trace, "csv").splitlines()[1:3] == [
        "0,1000,cudaLaunchKernel,0,1000,5,7,20,main",
        "1000,1000,cudaLaunchKernel,0,1002,5,8,,",
    ]


def test_an_operation_launched_from_another_thread_is_in_no_projection_as_in_nsys() -> None:
    profile = draw("nvtx   [step       ]\ncpu:8  ..L..........\ns7     ....aaa......")
    assert stats_table(profile, "nvtx_gpu_proj_sum").empty
    (row,) = stats_table(profile, "nvtx_kern_sum").to_dict("records")
    assert pd.isna(row["NVTX Range"])
    assert (row["TID"], row["NVTX Inst"], row["Kern Inst"]) == (8, 0, 1)


def test_a_range_that_ends_on_another_thread_has_no_projection() -> None:
    profile = draw("nvtx  [step       ]\ncpu   ..L..........\ns7    ....aaa......")
    moved = changed(profile, "ranges", end_thread=PROCESS | 9, style="StartEnd")
    assert len(stats_table(profile, "nvtx_gpu_proj_sum")) == 1
    assert stats_table(moved, "nvtx_gpu_proj_sum").empty
    assert stats_table(moved, "nvtx_startend_sum")["Range"].tolist() == [":step"]
    assert stats_table(moved, "nvtx_pushpop_sum").empty


def test_projection_runs_from_the_first_to_the_last_operation() -> None:
    profile = draw("nvtx  [step           ]\ncpu   .L...L...........\ns7    ...aa...bbb......")
    (row,) = stats_table(profile, "nvtx_gpu_proj_sum").to_dict("records")
    assert (row["Total Proj Time_ns"], row["Total GPU Ops"], row["Total Range Time_ns"]) == (8000, 2, 17_000)


def test_a_kernel_counts_in_every_range_around_its_launch_and_twice_in_two_of_one_name() -> None:
    profile = draw("nvtx  [a                 ]\nnvtx  ..[a    ]\ncpu   ....L..............\ns7    .....xxx...........")
    (row,) = stats_table(profile, "nvtx_kern_sum").to_dict("records")
    assert (row["NVTX Inst"], row["Kern Inst"], row["Total Time_ns"]) == (2, 1, 6000)


def test_the_parent_of_overlapping_ranges_is_the_shortest_around() -> None:
    profile = draw("nvtx  [long                 ]\nnvtx  .[short       ]\nnvtx  .....[in ]")
    trace = stats_table(profile, "nvtx_pushpop_trace").set_index("Name")
    assert trace["RangeStack"].tolist() == [":1", ":1:2", ":1:2:3"]
    crossing = changed(profile, "ranges", end_ns=[11_000, 60_000, 9_000])
    stacks = stats_table(crossing, "nvtx_pushpop_trace").set_index("Name")["RangeStack"]
    assert stacks.to_dict() == {":long": ":1", ":short": ":2", ":in": ":1:3"}


@pytest.mark.parametrize("report", ["nvtx_pushpop_trace", "nvtx_gpu_proj_trace", "nvtx_kern_sum"])
def test_tables_that_would_be_endless_are_refused(report: str, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = draw("\n".join([*["nvtx  [a                 ]"] * 30, "cpu   ....L......", "s7    .....xxx..."]))
    assert len(stats_table(profile, report))
    # 30 ranges have 900 pairs, and 30 with the launch in them
    monkeypatch.setattr(events, "_MOST_PAIRS", 899)
    with pytest.raises(CaptureError, match="ranges are nested too deeply for this table"):
        stats_table(profile, report)
    assert len(stats_table(profile, "nvtx_sum")) == 1


def test_of_two_equal_ranges_the_first_is_the_parent() -> None:
    profile = changed(draw("nvtx  [one ]\nnvtx  [two ]"), "ranges", end_ns=6000)
    trace = stats_table(profile, "nvtx_pushpop_trace")
    assert trace["NameTree"].tolist() == [":one", "--:two"]
    assert trace["NumChild"].tolist() == [1, 0]


def test_unified_memory_is_listed_by_throughput_then_by_who_faulted() -> None:
    copies = changed(
        draw("s0  H.D"),
        "memory_ops",
        operation=["Unified Host-to-Device", "Unified Device-to-Host"],
        address=[0x2000, 0x1000],
        bytes=[2_000_000, 1_000_000],
    )
    fault = {"time_ns": 1, "process": 1, "address": 0x4000, "instruction": "main", "source_file": ""}
    faults = added(copies, "cpu_page_faults", [fault, fault])
    gpu = {"start_ns": 1, "end_ns": 2, "process": 1, "device": 0, "address": 0x3000, "faults": 5}
    profile = added(faults, "gpu_page_faults", [gpu])
    assert write_stats(stats_table(profile, "um_sum"), "csv").splitlines()[1:] == [
        "0x2000,2.000,,,,2000000.000",
        "0x1000,,1.000,,,1000000.000",
        "0x4000,,,2,,",
        "0x3000,,,,5,",
    ]
    assert len(stats_table(profile, "um_sum:rows=1")) == 1
    assert write_stats(stats_table(profile, "um_total_sum"), "csv").splitlines()[1] == "2.000,1.000,2,5,0x1000,0x4000"


def test_several_reports_of_one_call_have_nsyss_file_names() -> None:
    profile = draw("nvtx  [step]......\ncpu   .L..........\ns7    ..a.........")
    reports = ("cuda_gpu_kern_sum:nvtx-name:base", "nvtx_sum")
    plain = {ending: text for _, ending, text in stats_texts(profile, Selection(reports))}
    assert list(plain) == ["_cuda_gpu_kern_sum_nvtx-name_base.csv", "_nvtx_sum.csv"]
    filtered = Selection(reports, "json", filter_nvtx="step/0")
    assert [ending for _, ending, _ in stats_texts(profile, filtered)] == [
        "_cuda_gpu_kern_sum_nvtx=step-0_nvtx-name_base.json",
        "_nvtx_sum_nvtx=step-0.json",
    ]
    (timed,) = stats_texts(profile, Selection(["nvtx_sum"], "table", filter_time="1us/9us"))
    assert timed[1] == "_nvtx_sum_start=1000_end=9000.txt"
    ((_, from_there, _),) = stats_texts(profile, Selection(["nvtx_sum"], filter_time="1us/"))
    assert from_there == "_nvtx_sum_start=1000_end=9223372036854775807.csv"


def test_a_range_goes_before_a_time_as_in_nsyss_file_name() -> None:
    profile = draw("nvtx  [step]......\ns7    ..a......b")
    both = Selection(["cuda_gpu_kern_sum"], filter_time="7us/", filter_nvtx="step")
    ((_, ending, text),) = stats_texts(profile, both)
    assert ending == "_cuda_gpu_kern_sum_nvtx=step.csv"
    assert text.splitlines()[1].endswith(",a")


def test_a_file_name_has_no_slash_of_a_range() -> None:
    ranges = draw("nvtx  [step]").table("ranges").assign(name="a/b")
    profile = Profile({"ranges": conform("ranges", ranges)})
    ((_, ending, _),) = stats_texts(profile, Selection(["nvtx_sum"], filter_nvtx=r"a\/b/0"))
    assert ending == "_nvtx_sum_nvtx=a--b-0.csv"


@pytest.mark.parametrize(("kernel", "queued"), [("..aa", 1), (".aaa", 0), ("...a", 1)])
def test_a_queue_of_no_time_counts_and_a_negative_one_does_not(kernel: str, queued: int) -> None:
    profile = draw(f"cpu  LL\ns7   {kernel}")
    (row,) = stats_table(profile, "cuda_kern_exec_sum").to_dict("records")
    assert (row["Count"], row["QCount"]) == (1, queued)
    assert stats_table(profile, "cuda_kern_exec_trace")["Queue Dur_ns"].notna().sum() == queued


def test_tables_go_to_files_named_as_asked_or_after_the_capture(
    tmp_path: Path, capture_file: Callable[[str], Path]
) -> None:
    capture = tmp_path / "run.1.sqlite"
    shutil.copy(capture_file("unified_memory"), capture)
    selection = Selection(["um_total_sum", "cuda_api_sum"])

    def written(output: str) -> list[str]:
        return [text for _, text in print_stats(read_nsys(capture), selection, path=capture, output=output)]

    prefix = tmp_path / "new" / "x.y"
    assert written(str(prefix)) == [f"table: {prefix}_{report}.csv\n" for report in selection.reports]
    assert written(".") == [f"table: {tmp_path}/run.1_{report}.csv\n" for report in selection.reports]
    printed = written("-")
    assert printed == [Path(f"{prefix}_{report}.csv").read_text() for report in selection.reports]
    for output in ("@grep x", ""):
        with pytest.raises(UsageError, match="invalid output prefix"):
            written(output)


def test_a_bad_report_among_good_ones_is_found_before_any_is_made() -> None:
    with pytest.raises(UsageError, match="unknown report"):
        next(stats_texts(draw("s7  a"), Selection(["cuda_gpu_kern_sum", "nonsense"])))
