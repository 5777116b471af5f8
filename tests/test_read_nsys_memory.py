"""The nsys tables of samples and stacks."""

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nightsight.model.report import Profile
from nightsight.read.nsys.tables import read_nsys
from tests.recorded import Recorded

CaptureFile = Callable[[str], Path]
METRICS = (
    "CREATE TABLE GPU_METRICS (rawTimestamp INTEGER, timestamp INTEGER, typeId INTEGER, metricId INTEGER, "
    "value INTEGER)",
    # two GPUs whose sources number their metrics differently
    "INSERT INTO GPU_METRICS VALUES (1, 10, 72057594037928192, 1, 90), (2, 20, 72057594037928193, 1, 1980000000), "
    "(3, 30, 72057594037928193, 2, 5)",
)
NAMES = (
    "CREATE TABLE TARGET_INFO_GPU_METRICS (sourceId INTEGER, sourceName TEXT, typeId INTEGER, typeName TEXT, "
    "metricId INTEGER, metricName TEXT)",
    "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (0, '', 72057594037928192, '', 1, 'SMs Active [Throughput %]'), "
    "(0, '', 72057594037928193, '', 1, 'GPC Clock Frequency [MHz]')",
)
STACKS = (
    "CREATE TABLE CUDA_CALLCHAINS (id INTEGER, symbol INTEGER, module INTEGER, unresolved INTEGER, "
    "originalIP INTEGER, stackDepth INTEGER)",
    "INSERT INTO StringIds VALUES (900001, '0x7f33df71556e'), (900002, 'cudaStreamSynchronize'), "
    "(900003, 'at::native::item(at::Tensor const&)'), (900004, 'step (train.py:12)'), (900005, '/home/me/train.py:7'), "
    "(900006, '/opt/libcupti.so.13.0'), (900007, '/opt/libcudart.so.13'), (900008, '/opt/libtorch_cuda.so'), "
    "(900009, '/home/me/train.py')",
    # stacks as nsys 2025.3 writes them, numbered from 0: inside CUDA, in torch, and with a frame of Python
    "INSERT INTO CUDA_CALLCHAINS VALUES (0, 900001, 900006, 1, 0, 0), (0, 900002, 900007, NULL, 0, 1), "
    "(0, 900001, 900008, 1, 0, 2), (0, 900003, 900008, NULL, 0, 3), (1, 900003, 900008, NULL, 0, 2), "
    "(1, 900004, 900009, NULL, 0, 7), (1, 900003, 900009, NULL, 0, 8), (2, 900005, 900008, NULL, 0, 0)",
    "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET callchainId = NULL",
    "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET callchainId = 0 WHERE rowid = 4",
    "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET callchainId = 1 WHERE rowid = 1",
    "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET callchainId = 2 WHERE rowid = 2",
    "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET callchainId = 3 WHERE rowid = 3",
)


@pytest.fixture
def edited(capture_file: CaptureFile, tmp_path: Path) -> Callable[..., Profile]:
    """Run SQL statements on a copy of a real export, and read it."""

    def edit(*statements: str) -> Profile:
        target = tmp_path / "edited.sqlite"
        shutil.copy(capture_file("train"), target)
        connection = sqlite3.connect(target)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
        return read_nsys(target)

    return edit


def test_memory_usage_of_a_real_capture(recorded: Recorded) -> None:
    table = recorded.profile("train").table("memory_usage")
    assert len(table) == 862
    assert table["is_allocation"].all()
    assert table["kind"].value_counts().to_dict() == {"Device Static": 821, "Device": 40, "Pinned": 1}


def test_deallocations_are_distinguished(edited: Callable[..., Profile]) -> None:
    profile = edited("UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET memoryOperationType = 1 WHERE rowid <= 2")
    assert profile.table("memory_usage")["is_allocation"].tolist()[:3] == [False, False, True]


def test_impossible_times_are_left_out_and_reported(edited: Callable[..., Profile]) -> None:
    profile = edited("UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET start = 9223372036854775807 WHERE rowid = 1")
    assert len(profile.table("memory_usage")) == 861
    (finding,) = profile.findings
    assert "1 of 862 rows of CUDA_GPU_MEMORY_USAGE_EVENTS" in finding.title


def test_metrics_have_the_name_and_the_gpu_of_their_source(edited: Callable[..., Profile]) -> None:
    table = edited(*METRICS, *NAMES).table("gpu_metrics")
    assert table[["start_ns", "device", "metric", "value"]].to_numpy().tolist() == [
        [10, 0, "SMs Active [Throughput %]", 90],
        [20, 1, "GPC Clock Frequency [MHz]", 1980],
        [30, 1, "metric 2", 5],
    ]


def sampled(*names: str, values: Sequence[int]) -> tuple[str, ...]:
    """Statements that write a sample of each metric, all of one GPU."""
    rows = enumerate(zip(names, values, strict=True))
    return (
        METRICS[0],
        NAMES[0],
        *(
            statement
            for number, (name, value) in rows
            for statement in (
                f"INSERT INTO GPU_METRICS VALUES (1, 10, 72057594037928192, {number}, {value})",
                f"INSERT INTO TARGET_INFO_GPU_METRICS VALUES (0, '', 72057594037928192, '', {number}, '{name}')",
            )
        ),
    )


@pytest.mark.parametrize(
    ("name", "stored", "shown"),
    [
        ("GPC Clock Frequency [MHz]", 1_979_721_250, 1979.72125),
        ("SYS Clock Frequency [MHz]", 1_665_080_000, 1665.08),
        ("GPC Clock Frequency [MHz]", 2_549_300_000 - (1 << 32), 2549.3),  # 32 bits with a sign
        ("PCIe Read Bandwidth [GB/s]", 25_000_000_000, 25.0),
        ("Compute Warps in Flight [Avg Warps per Cycle]", 96, 48.0),
        ("CS Register Allocation [Avg Registers per SM]", 120_000, 60_000.0),
        ("SMs Active [Throughput %]", 100, 100.0),
        ("L2 Hit Rate [Ratio %]", 71, 71.0),
        ("PCIe Read Requests to BAR1 [Requests]", 12_345, 12_345.0),
        ("Sync Copy Engine Active [Cycles Active]", -3, -3.0),
        ("Something else", 7, 7.0),
    ],
)
def test_metrics_are_in_the_unit_of_their_name(
    edited: Callable[..., Profile], name: str, stored: int, shown: float
) -> None:
    (value,) = edited(*sampled(name, values=[stored])).table("gpu_metrics")["value"]
    assert value == pytest.approx(shown)


def test_warps_of_sets_that_count_those_of_one_multiprocessor_are_not_halved(edited: Callable[..., Profile]) -> None:
    names = ("Compute Warps in Flight [Avg Warps per Cycle]", "Sync Copy Engine Active [Workloads]")
    assert edited(*sampled(*names, values=[20, 1])).table("gpu_metrics")["value"].tolist() == [20, 1]


def test_sums_of_warps_over_the_cycles_of_a_sample_are_left_out(edited: Callable[..., Profile]) -> None:
    names = [f"Compute Warps in Flight [{unit}]" for unit in ("Avg", "Avg Warps per Cycle", "Throughput %")]
    table = edited(*sampled(*names, "Unallocated Warps in Active SMs [Avg]", values=[1_672_318, 16, 12, 9]))
    assert table.table("gpu_metrics")["metric"].tolist() == names[1:]


def test_metrics_without_a_table_of_names_are_numbers(edited: Callable[..., Profile]) -> None:
    assert edited(*METRICS).table("gpu_metrics")["metric"].tolist() == ["metric 1", "metric 1", "metric 2"]


def test_of_a_stack_the_innermost_frame_of_the_program_is_taken_without_paths(edited: Callable[..., Profile]) -> None:
    profile = edited(*STACKS)
    frames, calls = profile.table("call_frames"), profile.table("api_calls")
    assert frames["frame"].tolist() == ["step (train.py:12)", "<…>", "at::native::item(at::Tensor const&)"]
    called = calls[["thread", "start_ns"]].iloc[[0, 1, 3]]
    assert frames[["thread", "start_ns"]].to_numpy().tolist() == called.to_numpy().tolist()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE META_DATA_EXPORT SET value = '3.8.4' WHERE name = 'EXPORT_SCHEMA_VERSION'",
        "DROP TABLE META_DATA_EXPORT",
        "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME",
    ],
)
def test_stacks_that_belong_to_no_known_call_are_not_used(edited: Callable[..., Profile], statement: str) -> None:
    assert edited(*STACKS, statement).table("call_frames").empty


@pytest.mark.parametrize(
    ("table", "option"),
    [
        ("memory_usage", "--cuda-memory-usage=true"),
        ("gpu_metrics", "--gpu-metrics-devices"),
        ("call_frames", "--python-backtrace"),
    ],
)
def test_what_was_not_recorded_is_missing_with_the_option_that_records_it(
    recorded: Recorded, table: str, option: str
) -> None:
    assert option in recorded.profile("gelu").missing[table]
