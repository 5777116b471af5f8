"""What is kept of a capture: sums that are those of its report, and nothing that is private."""

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.compare import measures
from nightsight.fleet import pack, summary_of, unpack
from nightsight.model.fleet import TABLES, Summary, conform, empty
from nightsight.model.report import Report
from tests.properties import examples
from tests.recorded import Recorded
from tests.reports import hostile_report, small_report

WHOLE = st.integers(0, 2**62)
TEXTS = st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace").decode())
CELLS = {"text": TEXTS, "whole": WHOLE, "number": st.floats(allow_infinity=False)}


def summarized(report: Report) -> Summary:
    return summary_of(report, measures(report), "c0ffee", asked="auto")


@pytest.mark.parametrize("name", ["train", "mlp", "ddp2", "graph", "mini_torch", "cpu", "lines.ncu-rep"])
def test_a_summary_has_the_sums_of_the_report(name: str, recorded: Recorded) -> None:
    report = recorded.report(name)
    kept = summarized(report)
    facts = kept["captures"].iloc[0]
    devices = next(result.rows for result in report.results if result.name == "gpu_time")
    kernels = next(result.rows for result in report.results if result.name == "cuda_gpu_kern_sum")
    assert facts["gpus"] == len(devices)
    assert facts["gpu_ns"] == (devices["window_ns"].sum() if len(devices) else 0)
    assert kept["split"]["time_ns"].sum() == facts["gpu_ns"]
    assert kept["split"].loc[kept["split"]["group"] == "busy", "time_ns"].sum() == facts["busy_ns"]
    for column in ("total_ns", "instances") if len(kernels) else ():
        assert kept["kernels"][column].sum() == kernels[column].sum()
    assert set(kept["causes"]["rule"]) == {each.rule for each in report.findings if each.severity == "advice"}
    assert {table: list(frame.columns) for table, frame in kept.tables.items()} == {
        table: [column.name for column in columns] for table, columns in TABLES.items()
    }


def test_a_capture_in_which_nothing_repeats_has_no_step() -> None:
    facts = summarized(small_report())["captures"].iloc[0]
    assert (facts["repetitions"], facts["gpu_ns"]) == (0, 1_000_000_000)
    assert pd.isna(facts["step_ns"])
    assert facts["unprofiled_step_ns"] == 1_100_000


def test_a_hostile_report_can_be_kept() -> None:
    hostile = hostile_report()
    kept = summarized(replace(hostile, results=hostile.results[:1]))
    read = unpack(pack(kept))
    assert read is not None
    for name in TABLES:
        pd.testing.assert_frame_equal(read[name], kept[name])


@st.composite
def summaries(draw: st.DrawFn) -> Summary:
    tables = {}
    for name, columns in TABLES.items():
        count = 1 if name == "captures" else draw(st.integers(0, 3))
        cells = {column.name: draw(st.lists(CELLS[column.type], min_size=count, max_size=count)) for column in columns}
        tables[name] = conform(pd.DataFrame(cells), columns) if count else empty(columns)
    return Summary(tables)


@examples(50)
@given(summaries())
def test_a_summary_survives_parquet(kept: Summary) -> None:
    read = unpack(pack(kept))
    assert read is not None
    for name in TABLES:
        pd.testing.assert_frame_equal(read[name], kept[name])
    assert pack(read) == pack(kept)
