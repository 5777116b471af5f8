"""The commands of `history`, from captures to pages and other tools."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightsight.history import append, read_rows
from nightsight.model.report import Report
from tests.nights import measures, nights, row, step_at
from tests.reports import unpacked

SLOWER = step_at(20, 1.05)
CaptureFile = Callable[[str], Path]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    for each in (*nights(30, SLOWER), *nights(30, workload="matmul", seed=4)):
        append(str(folder), each)
    return folder


@pytest.fixture
def place(kept: Path, tmp_path: Path) -> str:
    return str(shutil.copytree(kept, tmp_path / "reports" / "history"))


def run_folder(root: Path, run: Any, capture: Path, name: str) -> Path:
    """Make the folder of a run from a capture."""
    folder = root / "mlp" / name
    folder.mkdir(parents=True)
    run("report", capture, "-o", folder / "report.json")
    (folder / "report.html").touch()
    (folder / "run.json").write_text("{}")
    return folder


def test_runs_become_a_history(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    place = tmp_path / "nights"
    folder = run_folder(tmp_path / "reports", run, capture_file("mlp"), "20261120-111931")
    assert run("history", "add", folder, "--history", place).stdout.startswith("added: ")
    assert run("history", "add", folder / "report.json", "--history", place).stdout.startswith("already there: ")
    (kept,) = read_rows(str(place)).rows
    assert kept.link == "mlp/20261120-111931"
    assert {"step_ns", "kernel_ns", "launches"} <= kept.values["gate"].keys()
    assert 1 < len(kept.values["kernel"]) <= 50
    assert (place / ".gitattributes").read_text() == "*.jsonl merge=union\n"
    text = "".join(path.read_text() for path in place.rglob("*.jsonl"))
    assert str(tmp_path) not in text
    # the same under a name of its own is another series
    run("history", "add", folder, "--history", place, "--name", "mlp-large")
    assert {row.workload for row in read_rows(str(place)).rows} == {kept.workload, "mlp-large"}


def test_a_name_is_for_one_workload(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    done = run("history", "add", capture_file("mlp"), capture_file("gelu"), "--name", "x", "--history", "h", expect=2)
    assert "--name is for one workload, but the runs have 2" in done.output
    assert "--workload" in done.output
    assert not (tmp_path / "h").exists()


def test_captures_that_do_not_say_of_what_they_are_can_be_named(
    run: Any, capture_file: CaptureFile, tmp_path: Path
) -> None:
    nights = [tmp_path / f"night{number}.sqlite" for number in (1, 2)]
    for path in nights:
        shutil.copy(capture_file("graph"), path)
    place = tmp_path / "h"
    done = run("history", "add", *nights, "--workload", "train", "--history", place)
    assert {line.split(" on ")[0] for line in done.stdout.splitlines()} <= {"added: train", "already there: train"}
    run("history", "add", *nights, "--workload", "train", "--name", "train-large", "--history", place)
    assert {row.workload for row in read_rows(str(place)).rows} == {"train", "train-large"}


def test_what_was_proven_is_part_of_a_night(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    place, folder = tmp_path / "nights", run_folder(tmp_path, run, capture_file("mlp"), "20261120-111931")
    report = Report.from_json((folder / "report.json").read_bytes())
    proven = "proven with tf32: \N{MINUS SIGN}51 %"
    findings = tuple(replace(each, proof=proven) for each in report.findings)
    assert findings
    (folder / "report.json").write_text(replace(report, findings=findings).to_json())
    run("history", "add", folder, "--history", place)
    (line, _) = run("history", "show", "--history", place).output.splitlines()[-2:]
    assert line.endswith(f", {proven}")
    (track,) = json.loads(run("history", "show", "--history", place, "--format", "json").output)["tracks"]
    assert track["proof"] == proven
    run("history", "report", "--history", place, "-o", tmp_path / "trends.html")
    assert proven in (tmp_path / "trends.html").read_text()


def test_a_capture_is_named_by_its_file_and_a_link_is_kept(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    link = "https://ci.example.com/artifacts/1"
    done = run("history", "add", capture_file("mlp"), "--history", tmp_path / "h", "--link", link)
    assert re.match(r"added: mlp on NVIDIA H200, 2026-\d\d-\d\dT\S+Z, 1 run\n$", done.stdout)
    assert read_rows(str(tmp_path / "h")).rows[0].link == link


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        (["add"], "Missing argument 'RUN...'", 2),
        (["add", "nothing"], "does not exist", 2),
        (["add", ".", "--link", "javascript:alert(1)"], "is not an http(s) address", 2),
        (["add", "."], "is not the folder of a run", 2),
        (["show", "--history", "none"], "there is no history in none", 3),
        (["report", "--history", "none"], "there is no history in none", 3),
        (["export", "--history", "none"], "Missing option '--format'", 2),
        (["report", "--repository", "git@host:x"], "is not an http(s) address", 2),
    ],
)
def test_a_wrong_request_is_one_line(arguments: list[str], message: str, status: int, run: Any) -> None:
    done = run("history", *arguments, expect=status)
    assert message in done.output
    assert "Traceback" not in done.output


def test_show_says_what_changed_and_where_each_workload_stands(run: Any, place: str) -> None:
    lines = run("history", "show", "--history", place, "--canary", "matmul").output.splitlines()
    assert lines[0].startswith("confirmed  2026-09-21  mlp: step slower since 2026-09-21")
    assert "The canary did not move, so the code changed." in lines[0]
    assert lines[1].startswith("matmul on NVIDIA H200 (driver 580, CUDA 13.0, nsys): 30 nights, last 2026-09-30, step ")
    assert lines[-1].startswith("Rule: PELT")


def test_show_writes_json_for_programs(run: Any, place: str) -> None:
    document = json.loads(run("history", "show", "mlp", "--history", place, "--format", "json").output)
    (event,) = document["events"]
    facts = ("state", "direction", "cause", "before", "time", "machine", "workloads", "first_commit")
    assert [event[name] for name in facts] == [
        "confirmed",
        "slower",
        "unknown",
        "2026-09-20T02:00:00Z",
        "2026-09-21T02:00:00Z",
        "NVIDIA H200",
        ["mlp"],
        "0000013" * 4,
    ]
    assert event["id"] == event["ids"][0]
    assert document["complete"] is False
    (track,) = document["tracks"]
    assert (track["machine"], track["tested_since"]) == ("NVIDIA H200", "2026-09-01T02:00:00Z")
    assert json.loads(run("history", "show", "--history", place, "--format", "json").output)["complete"] is True
    assert event["changes"][0]["name"] == "step_ns"
    assert [track["workload"] for track in document["tracks"]] == ["mlp"]


def test_a_workload_that_is_not_there_is_one_line(run: Any, place: str) -> None:
    done = run("history", "show", "gelu", "--history", place, expect=3)
    assert "the history has no workload 'gelu'" in done.stderr
    assert "It has: matmul, mlp." in done.stderr


def test_an_accepted_change_is_in_the_settings(
    run: Any, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[[accepted]]\nname = "step_ns"\nworkload = "mlp"\nreason = "checks the loss"\ndate = 2026-10-01\n'
    (tmp_path / "nightsight.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    lines = run("history", "show", "--history", place).output.splitlines()
    assert lines[0].startswith("accepted ")
    assert lines[0].endswith("Accepted: checks the loss.")


def test_a_history_that_was_cut_is_read_and_reported(run: Any, place: str, tmp_path: Path) -> None:
    path = next((Path(place) / "mlp").glob("*.jsonl"))
    path.write_bytes(path.read_bytes()[:-30])
    done = run("history", "report", "--history", place, "-o", tmp_path / "trend.html")
    assert re.search(r"Warning: mlp/nvidia-h200-\w+\.jsonl, line 30 was skipped: not JSON", done.stderr)
    assert "line 30 was skipped" in (tmp_path / "trend.html").read_text()


def test_the_page_links_only_to_reports_that_are_there(run: Any, place: str, tmp_path: Path) -> None:
    page = tmp_path / "reports" / "history.html"
    for name in ("1", "2"):
        append(place, row(measures({"step_ns": 1e6}, night=30 + int(name)), link=f"mlp/{name}"))
    (tmp_path / "reports/mlp/1").mkdir(parents=True)
    (tmp_path / "reports/mlp/1/report.html").touch()
    run("history", "report", "--history", place, "-o", page)
    assert set(re.findall(r'"(mlp/[^"]*)"', unpacked(page.read_text()))) == {"mlp/1/report.html"}
    run("history", "report", "--history", place, "-o", page, "--reports", "https://example.com/nights/")
    links = set(re.findall(r'"(https://example.com[^"]*)"', unpacked(page.read_text())))
    assert links == {f"https://example.com/nights/mlp/{name}/report.html" for name in "12"}


def test_no_history_yet_makes_a_page_that_says_so(run: Any, tmp_path: Path) -> None:
    (tmp_path / "h").mkdir()
    run("history", "report", "--history", tmp_path / "h", "-o", tmp_path / "t.html")
    assert "Begin it with: nightsight history add RUN" in (tmp_path / "t.html").read_text()
    assert run("history", "show", "--history", tmp_path / "h").output.startswith("The history is empty.")


def test_openmetrics_has_each_night_with_its_time(run: Any, place: str) -> None:
    lines = run("history", "export", "--history", place, "--format", "openmetrics").output.splitlines()
    assert lines[:2] == ["# TYPE nightsight_time_seconds gauge", "# UNIT nightsight_time_seconds seconds"]
    assert lines[-1] == "# EOF"
    sample = re.compile(r'(nightsight_\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)+)\} ([\d.e+-]+) (\d+)$')
    matches = [sample.match(line) for line in lines if not line.startswith("#")]
    assert all(matches)
    assert len(matches) == 2 * 30 * 4
    steps = [match for match in matches if match and 'workload="mlp"' in match[2] and 'name="step_ns"' in match[2]]
    assert float(steps[0][3]) == pytest.approx(0.01, rel=0.02)
    assert [int(match[4]) for match in steps] == sorted(int(match[4]) for match in steps)


def test_otava_gets_a_table_for_each_track_and_their_names(run: Any, place: str, tmp_path: Path) -> None:
    folder = tmp_path / "otava"
    done = run("history", "export", "--history", place, "--format", "otava-csv", "-o", folder)
    assert done.output == f"export: {folder}\n"
    header, first, *others = csv.reader((folder / "track-2.csv").read_text().splitlines())
    assert header[:4] == ["time", "commit", "step_ns", "launches"]
    assert (first[0], len(others)) == ("2026-09-01T02:00:00Z", 29)
    assert all(float(cell) > 0 for line in (first, *others) for cell in line[2:])
    yaml = (folder / "otava.yaml").read_text()
    assert '  "mlp, NVIDIA H200, driver 580, CUDA 13.0, nsys":\n    type: csv\n    file: track-2.csv\n' in yaml
    assert '      "step_ns": {column: "step_ns", direction: -1}' in yaml
