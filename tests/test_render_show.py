"""`nightsight show`: its answers about causes, tables, kernels and ranges, and what it says to wrong names."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightsight.errors import UsageError
from nightsight.model.report import Report, names_of
from nightsight.render.brief import brief, identified, render_brief
from nightsight.render.show import Choice, shown, shown_json
from tests.recorded import DATA, Recorded
from tests.reports import hostile_report, small_report
from tests.test_cli import USAGE, CaptureFile, error_lines
from tests.test_render_brief import CONTROLS, advice, report_of


@pytest.fixture
def trained(recorded: Recorded) -> Report:
    return recorded.report("train")


def lines_of(report: Report, name: str = "", **choice: Any) -> list[str]:
    return list(shown(report, name, Choice(**choice)))


def document_of(report: Report, name: str = "", **choice: Any) -> dict[str, Any]:
    written = shown_json(report, name, Choice(**choice))
    assert written.count("\n") == 1
    document: dict[str, Any] = json.loads(written)
    assert document["format"] == 1
    return document


def refusal(report: Report, name: str, **choice: Any) -> tuple[str, str]:
    with pytest.raises(UsageError) as caught:
        lines_of(report, name, **choice)
    return caught.value.message, caught.value.hint


def test_without_a_name_it_is_the_brief_and_all_names(trained: Report) -> None:
    text = "\n".join(lines_of(trained))
    assert text.startswith(render_brief(trained).decode())
    assert f"causes: {', '.join(identified(trained))}" in text
    assert all(f"  {result.name} " in text for result in trained.results if len(result.rows))


def test_a_cause_has_its_evidence_and_kernels_in_full(trained: Report) -> None:
    finding = identified(trained)["tensor_cores"]
    lines = lines_of(trained, "tensor_cores")
    assert lines[0].startswith("tensor_cores: −20 %, ")
    assert {f"evidence: {text}" for text in finding.evidence} <= {*lines}
    assert {f"kernel: {name}" for name in finding.kernels} <= {*lines}
    assert f"why: {finding.detail}" in lines


def test_a_table_has_its_definition_and_its_first_rows(trained: Report) -> None:
    result = trained.result("cuda_gpu_kern_sum")
    lines = lines_of(trained, "cuda_gpu_kern_sum", top=3)
    assert lines[:2] == [f"{result.name}: {result.title}", result.help]
    assert "  total_ns: sum" in lines
    body = lines[lines.index("") + 1 :]
    assert body[0].split()[:2] == ["time_pct", "total_ns"]
    assert body[4] == f"… {len(result.rows) - 3} more rows: --top {len(result.rows)}"


def test_columns_and_rows_are_chosen(trained: Report) -> None:
    rows = trained.result("cuda_gpu_kern_sum").rows
    lines = lines_of(trained, "cuda_gpu_kern_sum", columns=("instances", "total_ns"), where=("total_ns>1e6",), top=99)
    body = lines[lines.index("") + 1 :]
    assert body[0].split() == ["instances", "total_ns"]
    assert [int(line.split()[0]) for line in body[1:]] == rows[rows["total_ns"] > 1e6]["instances"].tolist()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("instances=114", lambda rows: rows["instances"] == 114),
        ("instances != 114", lambda rows: rows["instances"] != 114),
        ("avg_ns<=5000", lambda rows: rows["avg_ns"] <= 5000),
        ("name~REDUCE", lambda rows: rows["name"].str.lower().str.contains("reduce")),
    ],
)
def test_a_condition_is_about_raw_values(trained: Report, condition: str, expected: Any) -> None:
    rows = trained.result("cuda_gpu_kern_sum").rows
    lines = lines_of(trained, "cuda_gpu_kern_sum", where=(condition,), columns=("instances",), top=99)
    assert [int(line) for line in lines[lines.index("") + 2 :]] == rows[expected(rows)]["instances"].tolist()


def test_a_kernel_is_shown_in_all_tables_that_have_it(trained: Report) -> None:
    name = str(trained.result("cuda_gpu_kern_sum").rows["name"].iloc[0])
    lines = lines_of(trained, name)
    assert f"name: {name}" in lines
    assert "causes: tensor_cores" in lines
    titles = {line.split(":")[0] for line in lines}
    assert {"cuda_gpu_kern_sum", "launch_overhead", "range_kernels"} <= titles
    # by the name that tables have
    label = lines[0].removeprefix("kernel: ")
    assert lines_of(trained, label) == lines


def test_each_kernel_that_a_brief_names_is_found(trained: Report, tmp_path: Path) -> None:
    for report in (trained, report_of(DATA / "real" / "spectra_plans.sqlite.xz", tmp_path)):
        kernels = [kernel for cause in brief(report).causes for kernel in cause.kernels]
        assert kernels
        for kernel in kernels:
            assert lines_of(report, kernel)[0] == f"kernel: {kernel}"


def test_a_range_has_its_causes_and_rows(trained: Report) -> None:
    lines = lines_of(trained, "forward")
    assert lines[0].startswith("range")
    assert any(line.startswith("nvtx_ranges: ") for line in lines)


def test_the_slowest_steps_come_first(trained: Report) -> None:
    lines = lines_of(trained, "steps", slowest=3, columns=("slowest",))
    steps = trained.result("step_times").rows.nlargest(3, "slowest_ns")["slowest"]
    assert [int(line) for line in lines[lines.index("") + 2 :]] == steps.tolist()
    assert "--slowest is for steps" in refusal(trained, "nvtx_ranges", slowest=3)[0]


def test_a_table_with_the_name_of_a_cause_is_shown_too(trained: Report) -> None:
    report = replace(trained, findings=(advice("launch_bound"),))
    assert lines_of(report, "launch_bound")[0] == "launch_bound"
    assert lines_of(report, "launch_bound")[-1].endswith(" table:launch_bound")
    assert lines_of(report, "table:launch_bound")[0] == "launch_bound: Launch bound"


def test_json_has_the_same_with_raw_values_and_full_names(trained: Report) -> None:
    whole = document_of(trained)
    assert whole["kind"] == "report"
    assert whole["brief"]["causes"][0]["id"] == whole["causes"][0] == "tensor_cores"
    assert [each["name"] for each in [*whole["tables"], *whole["missing"]]].count("cuda_gpu_kern_sum") == 1
    result = trained.result("cuda_gpu_kern_sum")
    rows = result.rows[result.rows["total_ns"] > 1e6]
    table = document_of(trained, "cuda_gpu_kern_sum", top=2, columns=("name", "total_ns"), where=("total_ns>1e6",))
    assert table["table"] == {
        "columns": ["name", "total_ns"],
        "rows": rows[["name", "total_ns"]].head(2).values.tolist(),
    }
    assert (table["more_rows"], table["meanings"]["total_ns"]) == (len(rows) - 2, "sum")
    finding = identified(trained)["tensor_cores"]
    cause = document_of(trained, "tensor_cores")
    assert (cause["kind"], cause["why"], cause["evidence"]) == ("cause", finding.detail, [*finding.evidence])
    assert cause["kernels"] == [*finding.kernels]
    kernel = document_of(trained, finding.kernels[0])
    assert (kernel["kind"], kernel["names"]) == ("kernel", [finding.kernels[0]])
    assert [f"{each['name']}: {each['title']}" for each in kernel["tables"]] == [
        line for line in lines_of(trained, finding.kernels[0]) if line.split(":")[0] in names_of(trained.results)
    ]
    forward = document_of(trained, "iteration # / forward")
    assert (forward["kind"], forward["causes"]) == ("range", ["tensor_cores"])
    missing = trained.result(whole["missing"][0]["name"])
    assert document_of(trained, missing.name)["unavailable"] == missing.unavailable


@pytest.mark.parametrize("report", [hostile_report(), small_report(results=(), findings=())])
def test_everything_of_any_report_is_json(report: Report) -> None:
    infinite = replace(report, findings=(*report.findings, advice("wait", gain_pct=float("inf"))))
    for name in ["", *identified(infinite), *(result.name for result in report.results)]:
        document_of(infinite, name)


def test_similar_names_are_suggested(trained: Report) -> None:
    assert "Did you mean tensor_cores" in refusal(trained, "tensor_core")[1]
    assert "Did you mean nvtx_ranges" in refusal(trained, "nvtx_rangs")[1]
    message, hint = refusal(trained, "nvtx_ranges", columns=("pth",))
    assert message == "nvtx_ranges has no column pth"
    assert hint.startswith("Did you mean path? Columns: path, ")
    assert "has no column totl_ns" in refusal(trained, "cuda_gpu_kern_sum", where=("totl_ns>1",))[0]
    message, hint = refusal(trained, "forward", columns=("totl_ns",))
    assert message == "no table of this report has a column totl_ns"
    assert hint.startswith("Did you mean total_ns")
    assert "is not a condition" in refusal(trained, "cuda_gpu_kern_sum", where=("total_ns",))[0]
    assert "compares text" in refusal(trained, "cuda_gpu_kern_sum", where=("name>a",))[0]


@pytest.mark.parametrize("report", [small_report(), hostile_report(), small_report(results=(), findings=())])
def test_everything_of_any_report_is_shown_on_lines_of_its_own(report: Report) -> None:
    names = ["", *identified(report), *(result.name for result in report.results)]
    for name in names:
        assert not any(CONTROLS.search(line) or "\n" in line for line in lines_of(report, name))


def test_a_kept_report_is_read_and_a_capture_analyzed(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    kept = tmp_path / "run" / "report.json"
    run("report", capture_file("train"), "-o", kept)
    (kept.parent / "capture").mkdir()
    # not a capture: it is not read
    (kept.parent / "capture" / "train.sqlite").write_text("x")
    shown_lines = run("show", kept.parent, "tensor_cores").stdout
    assert shown_lines.startswith("tensor_cores: −20 %, ")
    assert run("show", capture_file("train"), "tensor_cores").stdout == shown_lines
    assert json.loads(run("show", kept, "tensor_cores", "--format", "json").stdout)["id"] == "tensor_cores"
    error, hint = error_lines(run("show", kept, "tensor_core", expect=USAGE))
    assert error.startswith("tensor_core is not a cause")
    assert "Did you mean tensor_cores?" in hint
