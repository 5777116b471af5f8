"""Ours against NVIDIA's: every table that `nsys stats` printed for the shared captures, byte for byte."""

import lzma
from pathlib import Path

import pytest

from nightsight.stats import REPORTS, Selection, stats_table, stats_texts, write_stats
from tests.recorded import Recorded

DATA = Path(__file__).parent / "data" / "nsys"
FILES = {
    (path.parent.parent.name, path.name.split(".")[0].replace("_nvtx-name", ":nvtx-name")): path
    for path in sorted(DATA.glob("*/nsys_stats/*"))
}
SPAN = "2958667446/3176195638"
CALLS_HEADER = "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
# of `everything`: options, what nsys printed with them (the beginning of the lines), and how many lines it were
PRINTED = [
    (
        Selection(["cuda_kern_exec_sum"], timeunit="us"),
        [
            "22,22,0,10,8,75.325,12.222,8.554,619.782,191.417,72.594,9.020,5.230,618.502,191.944,1.569,1.939,0.424,",
            "22,22,0,2,2,25.150,25.150,7.776,42.524,24.570,23.027,23.027,4.890,41.163,25.649,1.355,1.355,0.593,2.118,",
        ],
        None,
    ),
    (
        Selection(["cuda_api_trace"], timeunit="ms"),
        [
            "2946.5700,0.0017,cudaStreamIsCapturing_v10000,0,201,22,22,20,python3",
            "3013.8809,0.0001,cuGetProcAddress_v2,0,654,22,22,20,python3",
            "3013.8966,0.0002,cuGetProcAddress_v2,0,702,22,22,20,python3",
        ],
        None,
    ),
    (
        Selection(["cuda_api_sum"], timeunit="seconds"),
        [
            CALLS_HEADER.replace("(ns)", "(sec)"),
            "39.0,0.1350,15,0.0090,0.0068,0.0009,0.0431,0.0103,cuLibraryLoadData",
            "33.7,0.1167,2,0.0583,0.0583,0.0017,0.1150,0.0802,cudaHostAlloc",
        ],
        None,
    ),
    (
        Selection(["cuda_gpu_mem_size_sum"], "json"),
        ['    "Avg (MB)": 1.398,', '    "Med (MB)": 0.000,', '    "Min (MB)": 0.000,', '    "Max (MB)": 4.194,'],
        None,
    ),
    (Selection(["cuda_gpu_trace"], "json"), ['    "GrdX": "",', '    "Reg/Trd": "",', '    "StcSMem (MB)": "",'], None),
    (
        Selection(["cuda_api_trace"], filter_time=SPAN),
        [
            "2950282200,21079462,cudaMallocManaged,0,230,22,22,20,python3",
            "3172821006,22481,cudaMemcpyAsync,0,1755,22,70,,",
            "3172887816,10568602,cuLibraryLoadData,0,1767,22,70,,",
        ],
        1006,
    ),
    (
        Selection(["cuda_api_sum"], filter_time="0m2s958ms/"),
        [CALLS_HEADER, "59.5,131737881,14,9409848.6,7323846.5,887700,43075126,10557281.0,cuLibraryLoadData"],
        None,
    ),
    (
        Selection(["osrt_sum"], filter_nvtx="graph"),
        [
            CALLS_HEADER,
            "62.4,182834246,1,182834246.0,182834246.0,182834246,182834246,0.0,pthread_cond_wait",
            "37.6,110243338,2,55121669.0,55121669.0,10097870,100145468,63673267.2,poll",
        ],
        3,
    ),
    (
        Selection(["um_cpu_page_faults_sum"], filter_nvtx="graph/0"),
        ["CPU Page Faults,CPU Instruction Address,Source File,Source Line", "96,0x7fd7a39a1efa,,0"],
        2,
    ),
    (
        Selection(["cuda_api_sum"], filter_nvtx="worker"),
        [
            CALLS_HEADER,
            "84.4,7838380,1,7838380.0,7838380.0,7838380,7838380,0.0,cuLibraryLoadData",
            "13.2,1222654,3,407551.3,128733.0,21901,1072020,577920.6,cudaLaunchKernel",
            "0.0,1304,3,434.7,457.0,374,473,53.1,cuKernelGetName",
        ],
        None,
    ),
    (
        Selection(["nvtx_pushpop_sum"], filter_nvtx="step"),
        [
            "49.2,442929382,3,147643127.3,147643238.0,147636017,147650127,7055.7,:step",
            "25.9,233049319,1,233049319.0,233049319.0,233049319,233049319,0.0,:steps",
        ],
        4,
    ),
    (
        Selection(["nvtx_pushpop_sum"], filter_nvtx="backward/1"),
        [
            "99.2,233049319,1,233049319.0,233049319.0,233049319,233049319,0.0,:steps",
            "0.5,1153286,1,1153286.0,1153286.0,1153286,1153286,0.0,:step 1",
            "0.4,828750,1,828750.0,828750.0,828750,828750,0.0,:backward",
        ],
        4,
    ),
]


def test_every_report_has_an_oracle() -> None:
    assert {report.removesuffix(":nvtx-name") for _, report in FILES} == set(REPORTS)
    assert len(FILES) == 98


@pytest.mark.parametrize(("capture", "report"), FILES)
def test_report_equals_nsys_stats(capture: str, report: str, recorded: Recorded) -> None:
    file = FILES[capture, report]
    content = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
    ours = write_stats(stats_table(recorded.profile(capture), report), "csv")
    # NVIDIA leaves quotes inside quoted fields as they are
    assert ours.replace('""', '"').rstrip("\n") == content.decode().rstrip("\n")


@pytest.mark.parametrize(("selection", "lines", "count"), PRINTED, ids=[str(number) for number in range(len(PRINTED))])
def test_options_give_what_nsys_printed_with_them(
    selection: Selection, lines: list[str], count: int | None, recorded: Recorded
) -> None:
    ((_, _, text),) = stats_texts(recorded.profile("everything"), selection)
    ours = text.splitlines()
    assert [line for line in lines if not any(each.startswith(line) for each in ours)] == []
    assert count in (None, len(ours))
