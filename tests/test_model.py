"""The values between the stages."""

import json
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.errors import CaptureError, MissingTable
from nightsight.model.report import Benchmark, Environment, Finding, Profile, Report, Result
from nightsight.units import split

CELLS = st.one_of(st.none(), st.integers(-(2**60), 2**60))
COLUMNS = st.one_of(
    st.lists(CELLS, min_size=3, max_size=3),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3),
    st.lists(st.text(), min_size=3, max_size=3),
)


def report(table: pd.DataFrame | None, **more: Any) -> Report:
    return Report("mlp", Environment(gpu="NVIDIA H200"), (Result("r", "R", "what", table, notes=("a",)),), **more)


# a column that is named with a unit holds numbers alone
NAMES = st.text(min_size=1).filter(lambda name: not split(name)[1])


@given(st.dictionaries(NAMES, COLUMNS, max_size=4))
def test_json_round_trip(columns: dict[str, list[Any]]) -> None:
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    text = report(frame).to_json()
    assert Report.from_json(text).to_json() == text


def test_json_holds_everything() -> None:
    whole = report(
        None,
        findings=(Finding("rule", "error", "title", "detail"),),
        benchmark=Benchmark((1.5, 2.5), 20),
        parameters={"dim": "1"},
        stages_s={"profile": 1.25},
        generator="nightsight",
    )
    assert Report.from_json(whole.to_json()) == whole


def test_missing_numbers_are_null_and_whole_numbers_stay_whole() -> None:
    frame = pd.DataFrame({"queue_ns": pd.array([1, None], dtype="int64[pyarrow]"), "avg_ns": [0.5, float("nan")]})
    document = json.loads(report(frame).to_json())
    assert document["results"][0]["table"]["rows"] == [[1, 0.5], [None, None]]
    again = Report.from_json(report(frame).to_json()).result("r").rows
    assert again["queue_ns"].tolist()[0] == 1
    assert pd.isna(again["queue_ns"][1])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', '{"format": 1}', '{"format": 1, "results": 5}'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(CaptureError, match=r"report\.json"):
        Report.from_json(text)


def test_a_severity_that_is_none_is_refused() -> None:
    text = report(None, findings=(Finding("rule", "error", "title", "detail"),)).to_json()
    with pytest.raises(CaptureError, match="severity of item 1 of findings of the report is not one of error, warning"):
        Report.from_json(text.replace('"error"', '"fatal"'))


def test_asking_for_a_missing_table_tells_why() -> None:
    with pytest.raises(MissingTable, match="no api calls in this capture: tracing was off"):
        Profile({}, {"api_calls": "tracing was off"}).table("api_calls")
    with pytest.raises(MissingTable, match="does not record"):
        Profile({}).table("kernels")


def test_an_unknown_result_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        report(None).result("other")


def test_numbers_that_json_does_not_have_are_missing() -> None:
    frame = pd.DataFrame({"name": ["a", "b"], "busy_ns": [1.5, 2.5]})
    text = report(frame, benchmark=Benchmark((1.5, 7.25), 20)).to_json()
    again = Report.from_json(text.replace("1.5", "NaN").replace("2.5", "1e999").replace("7.25", "2.0"))
    assert again.benchmark == Benchmark((2.0,), 20)
    assert again.result("r").rows["busy_ns"].isna().all()
    assert "NaN" not in again.to_json()


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (
            {"columns": ["a", "b"], "rows": [[1, 2], [1]]},
            "row 2 of table of 'r' does not have one cell for each of its 2 columns",
        ),
        (
            {"columns": ["a"], "rows": [[[1]]]},
            "column a of table of 'r': expected either numbers or text in all rows",
        ),
        ({"columns": ["a"], "rows": 5}, "rows of table of 'r' is not a list"),
        ({"columns": "ab", "rows": []}, "columns of table of 'r' is not a list"),
    ],
)
def test_a_table_of_another_shape_is_refused(table: dict[str, Any], problem: str) -> None:
    document = json.loads(report(None).to_json())
    document["results"][0]["table"] = table
    with pytest.raises(CaptureError, match=problem):
        Report.from_json(json.dumps(document))
