"""A report.json that was damaged or written by something else: a report is made of it, or it is refused in words."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from math import inf, nan
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.errors import CaptureError, PipelineError
from nightsight.model.report import Finding, Report
from nightsight.render import FORMATS, Source
from nightsight.render.page.html import render_html
from nightsight.render.page.page import page
from nightsight.render.table.layouts import refuse_incomplete
from nightsight.workflows.analysis import build_report
from tests.properties import examples
from tests.recorded import Recorded
from tests.reports import result, small_report

Path_ = tuple[str | int, ...]
NUMBERS = ("<NaN>", "<Infinity>", "<-Infinity>", "<1e400>", f"<{10**30}>", "<7>", "<-1.5>")
VALUES = st.sampled_from([None, "", "x", [], ["x"], {}, {"x": 1}, True, *NUMBERS])


@pytest.fixture(scope="module")
def documents(recorded: Recorded) -> list[dict[str, Any]]:
    """Reports that have a row or two of all results between them."""
    replays = recorded.profile("lines.ncu-rep")
    profiles = [recorded.profile(name) for name in ("train", "unified_memory", "python_names")]
    reports = [build_report(profile.joined(replays), "damaged") for profile in profiles]
    return [json.loads(_cut(report).to_json()) for report in (*reports, small_report())]


def _cut(report: Report) -> Report:
    tables = (each.rows.head(2) if each.table is not None else None for each in report.results)
    results = zip(report.results, tables, strict=True)
    return replace(report, results=tuple(replace(each, table=table) for each, table in results))


def places(node: Any, path: Path_ = ()) -> Iterator[Path_]:
    yield path
    inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in inside:
        yield from places(value, (*path, key))


def with_value(document: Any, path: Path_, value: Any) -> str:
    """Write the document with another value at a place; numbers that JSON does not have as Python writes them."""
    whole = {"": copy.deepcopy(document)}
    parent: Any = whole
    for key in ("", *path)[:-1]:
        parent = parent[key]
    parent[("", *path)[-1]] = value
    text = json.dumps(whole[""])
    for number in NUMBERS:
        text = text.replace(f'"{number}"', number.strip("<>"))
    return text


def made_or_refused(text: str, *forms: str) -> bool:
    """Whether a report's page and these forms are made, or it is refused; anything else is raised."""
    try:
        report = Report.from_json(text)
        refuse_incomplete(report)
    except PipelineError as error:
        assert error.message.startswith(("not a nightsight report.json: ", "unsupported format version"))
        assert error.hint
        return False
    page(report)
    for form in forms:
        FORMATS[form].render(Source(report))
    return True


@pytest.mark.nightly
@examples(50)
@given(data=st.data())
def test_any_node_of_a_report_can_be_another_value(documents: list[dict[str, Any]], data: st.DataObject) -> None:
    document = data.draw(st.sampled_from(documents))
    path = data.draw(st.sampled_from(list(places(document))))
    made_or_refused(with_value(document, path, data.draw(VALUES)), "html", "json", "csv")


@pytest.mark.nightly
def test_every_column_that_a_page_takes_is_asked_for_when_the_report_is_read(documents: list[dict[str, Any]]) -> None:
    names = ("gpu_time", "ncu_roofs")
    refused = 0
    for document in documents:
        for each in document["results"]:
            if each["table"] is None or not each["table"]["rows"]:
                continue
            others = [other for other in document["results"] if other["name"] in names and other is not each]
            alone = {**document, "results": [each, *others]}
            for place in range(len(each["table"]["columns"])):
                path = ("results", 0, "table", "columns", place)
                refused += not made_or_refused(with_value(alone, path, "renamed"))
    assert refused > 40


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("results", 0, "name"), 7, "name of item 1 of results of the report is not a string"),
        (("results", 0, "notes"), "x", "notes of 'gpu_time' is not a list"),
        (("results", 0, "table", "rows", 0, 3), "x", "column busy_ns of table of 'gpu_time': expected numbers"),
        (("results", 0, "more"), 1, "'gpu_time' has unknown fields: more"),
        (("findings", 0, "severity"), "fatal", "severity of item 1 of findings of the report is not one of error, "),
        (("stages_s", "profile"), True, "'profile' of stages_s of the report is not a number"),
        (("environment",), [], "environment of the report is not an object"),
        (("title",), None, "title of the report is not a string"),
    ],
)
def test_a_type_that_is_another_is_reported_with_its_place(path: Path_, value: Any, reason: str) -> None:
    document = json.loads(small_report().to_json())
    with pytest.raises(CaptureError) as caught:
        Report.from_json(with_value(document, path, value))
    assert caught.value.message.startswith(f"not a nightsight report.json: {reason}")


def test_a_column_that_a_page_takes_and_that_is_not_there_is_named() -> None:
    table = small_report().result("launch_overhead").rows.drop(columns="device")
    with pytest.raises(CaptureError, match=r"the result launch_overhead lacks .*device"):
        refuse_incomplete(small_report(results=(result("launch_overhead", table),)))


def test_infinite_numbers_of_our_own_are_missing_in_the_file() -> None:
    table = pd.DataFrame({"name": ["a", "b", "c"], "busy_ns": [inf, -inf, nan], "mixed": pd.Series([1, inf, "x"])})
    finding = Finding("rule", "advice", "t", "d", gain_ns=5, gain_pct=inf)
    text = small_report(results=(result("r", table),), findings=(finding,)).to_json()
    document = json.loads(text, parse_constant=pytest.fail)
    assert document["results"][0]["table"]["rows"] == [["a", None, 1], ["b", None, None], ["c", None, "x"]]
    assert document["findings"][0]["gain_pct"] is None
    assert made_or_refused(text.replace('"x"', "2"), *FORMATS.keys() - {"perfetto", "speedscope", "parquet"})


def test_a_report_without_what_was_added_since_is_rendered(recorded: Recorded) -> None:
    document = json.loads(recorded.report("train").to_json())
    document["results"] = [result for result in document["results"] if result["name"] != "fix_ladder"]
    (gains,) = (result["table"] for result in document["results"] if result["name"] == "what_if")
    place = gains["columns"].index("counted_pct")
    del gains["columns"][place]
    for row in gains["rows"]:
        del row[place]
    report = Report.from_json(json.dumps(document))
    refuse_incomplete(report)
    assert page(report).windows.windows[0].ladder is None
    assert "FP32 math runs without tensor cores" in render_html(report)
