"""`--attach`: figures of serving benchmarks beside a profile, and never a capture lost for them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nightsight.model.report import Finding, Report
from nightsight.results.serving import SERVING
from tests.test_read_serving import SECRET, VLLM_LATENCY, VLLM_SERVE

Run = Any
WRITING = "import json; json.dump({}, open('results.json', 'w'))"


def report_of(folder: Path, name: str = "train") -> Report:
    (path,) = (path for path in (folder / "reports" / name).glob("2*/report.json"))
    return Report.from_json(path.read_bytes())


def finding(report: Report, rule: str) -> Finding:
    (only,) = (only for only in report.findings if only.rule == rule)
    return only


def shown(report: Report) -> dict[tuple[str, str, str], dict[Any, Any]]:
    rows = report.rows(SERVING).to_dict("records")
    return {(row["metric"], row["measured"], row["source"]): row for row in rows}


def test_what_the_program_wrote_is_in_its_report_and_stays_with_the_capture(
    run: Run, script: Callable[..., Path], fake_nsys: Callable[..., Path], tmp_path: Path
) -> None:
    fake_nsys()
    program = script(WRITING.format(json.dumps(VLLM_SERVE).replace("null", "None")))
    run("profile", "--collector", "nsys", "--no-ncu", "--no-calibrate", "--attach", "results.json", program)
    report = report_of(tmp_path)
    rows = shown(report)
    assert rows["requests", "with the profiler", "vllm bench serve"]["rate_per_s"] == 3.5
    assert rows["time to first token", "with the profiler", "vllm bench serve"]["avg_ns"] == 12.5e6
    assert "answered more slowly" in " ".join(report.result("serving").notes)
    assert not {"old_results", "results_not_attached"} & {finding.rule for finding in report.findings}
    (folder,) = (tmp_path / "reports" / "train").glob("2*")
    for file in ("report.json", "report.html", "run.json", "capture/train.unprofiled.json"):
        assert SECRET not in (folder / file).read_text(encoding="utf-8")
    assert "Serving figures" in (folder / "report.html").read_text(encoding="utf-8")
    # another file joins what is kept, and a second one of the same program is a source of its own
    other = {"output_throughput": 1.5, "total_token_throughput": 2}
    (tmp_path / "other.json").write_text(json.dumps(other))
    (tmp_path / "batch.json").write_text(json.dumps(VLLM_LATENCY))
    attached = [part for name in ("other", "other", "batch") for part in ("--attach", f"{name}.json")]
    run("report", folder / "capture" / "train.sqlite", *attached, "-o", "again.json")
    again = shown(Report.from_json((tmp_path / "again.json").read_bytes()))
    assert again.items() >= {key: again[key] for key in rows}.items()
    assert {source for _, measured, source in again if measured == "unknown run"} == {
        *("vllm bench serve (2)", "vllm bench serve (3)", "vllm bench latency")
    }
    run("report", folder / "capture" / "train.sqlite", "--format", "csv", "-o", "tables", *attached)
    assert "time to first token" in (tmp_path / "tables" / "serving.csv").read_text()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('done')", "No such file or directory. The program did not write it."),
        ("open('results.json', 'w').write('{')", "it is not JSON."),
        ("open('results.json', 'w').write('{\"completed\": NaN}')", "its completed is not a number"),
        ("import os; os.mkdir('results.json')", "it is not a regular file"),
    ],
)
def test_a_file_that_cannot_be_taken_is_a_finding(
    *, code: str, words: str, run: Run, script: Callable[..., Path], fake_nsys: Callable[..., Path], tmp_path: Path
) -> None:
    fake_nsys()
    run("profile", "--collector", "nsys", "--no-ncu", "--no-calibrate", "--attach", "results.json", script(code))
    report = report_of(tmp_path)
    only = finding(report, "results_not_attached")
    assert only.detail.startswith("Cannot attach results.json: ")
    assert words in only.detail
    assert str(tmp_path) not in only.detail
    assert not len(report.rows(SERVING))


def test_a_file_that_was_there_before_is_reported_as_of_another_run(
    run: Run, script: Callable[..., Path], fake_nsys: Callable[..., Path], tmp_path: Path
) -> None:
    fake_nsys()
    (tmp_path / "results.json").write_text(json.dumps(VLLM_SERVE))
    # written in the future, as on a machine whose clock was wrong
    os.utime(tmp_path / "results.json", (4e9, 4e9))
    run("profile", "--collector", "nsys", "--no-ncu", "--no-calibrate", "--attach", "results.json", script())
    report = report_of(tmp_path)
    assert finding(report, "old_results").detail.startswith("results.json existed before")
    assert {measured for _, measured, _ in shown(report)} == {"unknown run"}


def test_the_log_of_an_earlier_run_has_no_figures_of_this_one(
    run: Run, script: Callable[..., Path], fake_nsys: Callable[..., Path], tmp_path: Path
) -> None:
    fake_nsys()
    events = [{"id": "a", "event": event, "time_ns": number} for number, event in enumerate(("received", "last_token"))]
    text = "".join(f"{json.dumps(event)}\n" for event in events)
    (tmp_path / "old.jsonl").write_text(text)
    program = script(f"open('new.jsonl', 'w').write({text!r})")
    for name, measured in (("new", "with the profiler"), ("old", "unknown run")):
        options = ("--collector", "nsys", "--no-ncu", "--no-calibrate", "--attach", f"{name}.jsonl")
        run("profile", *options, "--reports", name, program)
        (file,) = (tmp_path / name / "train").glob("2*/report.json")
        figures = shown(Report.from_json(file.read_bytes()))
        assert {key[1:] for key in figures} == {(measured, "log of requests")}


def test_what_report_cannot_take_is_an_error(run: Run, capture_file: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"mean_ttft_ms": "3"}')
    capture = capture_file("gelu")
    output = run("report", capture, "--attach", "r.json", expect=3).output
    assert "Error: cannot attach r.json: its mean_ttft_ms is not a number of at least 0" in output
    output = run("report", capture, "--attach", "absent.json", expect=3).output
    assert "Error: cannot attach absent.json: No such file or directory" in output
    other = capture_file("graph")
    assert "--attach takes one capture" in run("report", capture, other, "--attach", "r.json", expect=2).output
    run("report", capture, "-o", "made.json")
    assert "figures cannot be added to it" in run("report", "made.json", "--attach", "r.json", expect=2).output
    assert "--attach has no effect with --collector ncu" in (
        run("profile", "--collector", "ncu", "--attach", "r.json", "mlp", expect=2).output
    )


@pytest.mark.parametrize(
    "change",
    [
        {"metric": "happiness"},
        {"measured": "in a dream"},
        {"statistic": "metric"},
        {"statistic": "max_ns"},
    ],
)
def test_an_edited_file_beside_a_capture_adds_no_rows_of_its_own(
    change: dict[str, str], run: Run, capture_file: Callable[[str], Path], tmp_path: Path
) -> None:
    row = {"metric": "requests", "measured": "unknown run", "source": "<b>", "statistic": "count", "value": 3}
    (tmp_path / "g.sqlite").write_bytes(capture_file("gelu").read_bytes())
    rows = [row, {**row, **change}]
    (tmp_path / "g.unprofiled.json").write_text(json.dumps({"unprofiled": 1, "serving_figures": rows}))
    run("report", "g.sqlite", "-o", "g.json")
    report = Report.from_json((tmp_path / "g.json").read_bytes())
    assert report.rows(SERVING).to_dict("records") == [
        {"metric": "requests", "measured": "unknown run", "source": "<b>", "count": 3}
    ]
    run("report", "g.sqlite", "-o", "g.html")
    assert "<b>" not in (tmp_path / "g.html").read_text(encoding="utf-8")
