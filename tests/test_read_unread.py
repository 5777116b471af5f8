"""What is in a file and in no table of the report is named, by what the readers did not ask for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nightsight.read import read
from nightsight.render import FORMATS, Source
from nightsight.workflows.analysis import build_report
from tests.damage import Damage
from tests.kineto import Event, call, kernel, write
from tests.recorded import Recorded

CaptureFile = Callable[[str], Path]


def named(path: Path) -> dict[str, int]:
    report = build_report(read(path), "file")
    rows = report.result("not_shown").rows
    return dict(zip(rows["kind"], rows["events"], strict=True))


def test_stacks_that_nothing_is_made_of_are_named_with_their_number(capture_file: CaptureFile) -> None:
    assert named(capture_file("train")) == {"stack frames of OS runtime calls": 34016}


def test_tables_that_no_reader_knows_are_named_and_lookups_and_empty_ones_are_not(damage: Damage) -> None:
    path = damage(
        "CREATE TABLE COMPOSITE_EVENTS (id INTEGER PRIMARY KEY, start INTEGER)",
        "INSERT INTO COMPOSITE_EVENTS (start) VALUES (1), (2), (3)",
        "CREATE TABLE SCHED_EVENTS (start INTEGER)",
        'CREATE TABLE "OF ""ANOTHER"" KIND" (start INTEGER)',
        'INSERT INTO "OF ""ANOTHER"" KIND" VALUES (1)',
        "CREATE TABLE ENUM_NEW (id INTEGER, name TEXT)",
        "INSERT INTO ENUM_NEW VALUES (1, 'a')",
        "CREATE TABLE TARGET_INFO_NEW (id INTEGER)",
        "INSERT INTO TARGET_INFO_NEW VALUES (1)",
    )
    assert named(path) == {"CPU samples": 3, 'OF "ANOTHER" KIND': 1}


def test_events_of_nvtx_of_a_type_that_is_not_read_are_named(damage: Damage) -> None:
    path = damage("UPDATE NVTX_EVENTS SET eventType = 99 WHERE eventType = 59")
    assert named(path) == {"NVTX events of other types": 2}


def test_nothing_that_a_reader_asks_for_is_named_as_not_shown(capture_file: CaptureFile) -> None:
    assert named(capture_file("gelu")) == {}
    assert named(capture_file("unified_memory")) == {}


def test_kinds_of_a_torch_trace_that_no_reader_asks_for_are_named(tmp_path: Path) -> None:
    arrows: list[Event] = [{"ph": phase, "cat": "fwdbwd", "id": 1, "ts": 1, "pid": 44, "tid": 45} for phase in "sf"]
    flows: list[Event] = [{"ph": phase, "cat": "ac2g", "id": 1, "ts": 1, "pid": 44, "tid": 45} for phase in "sf"]
    others = [kernel(cat="overhead"), kernel(cat="overhead"), kernel(cat="of another kind"), kernel(cat="Trace")]
    assert named(write(tmp_path, kernel(), call(), *arrows, *flows, *others)) == {
        "spans of profiler overhead": 2,
        "of another kind": 1,
    }


def test_events_without_a_category_are_named_and_no_gpu_work_is_not_reported_as_known(tmp_path: Path) -> None:
    operator = call(cat="cpu_op", name="aten::mm", args={"Call stack": "train.py(3): step"})
    of_npu = call(name="MatMulV2", cat=None)
    counter: Event = {"ph": "C", "name": "power", "ts": 1, "pid": 1, "args": {"W": 3}}
    own: Event = {"ph": "i", "name": "Record Window End", "ts": 1, "pid": "", "tid": ""}
    path = write(tmp_path, operator, of_npu, of_npu, counter, own)
    assert named(path) == {
        "events without a category": 2,
        "events without a category (C)": 1,
        "operators with a call stack": 1,
    }
    assert "2 events without a category" in read(path).why_missing("kernels")


@pytest.mark.parametrize("style", ["html", "json"])
def test_a_report_says_once_what_is_in_the_file_and_not_shown(recorded: Recorded, style: str) -> None:
    source = Source(recorded.report("train"), recorded.profile("train"))
    text = FORMATS[style].render(source)[""].decode()
    assert "Recorded but not shown" in text
    assert "stack frames of OS runtime calls" in text
