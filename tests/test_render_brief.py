"""The brief of a report: its size, its numbers, which are those of the report, and how it is printed."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightsight.events.frameworks import CUDA, JAX, PYTORCH
from nightsight.model.report import Finding, Report
from nightsight.read import read
from nightsight.render import FORMATS, Source
from nightsight.render.brief import brief, check_of, identified, render_brief, render_brief_json
from nightsight.render.fit import MOST_BYTES
from nightsight.render.fixes import fixes_of
from nightsight.render.summary import numbers
from nightsight.render.verdict import verdict
from nightsight.results.causes import REPLAY, WHAT_IF
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.runs.unprofiled import with_unprofiled
from nightsight.workflows.analysis import build_report
from tests.documents import check
from tests.recorded import DATA, Recorded, unpacked
from tests.reports import HOSTILE, hostile_report, small_report
from tests.test_cli import CaptureFile

ROOT = Path(__file__).parents[1]
REAL = sorted((DATA / "real").glob("*.xz"))
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def report_of(packed: Path, folder: Path) -> Report:
    stored = packed.with_suffix("")
    return build_report(with_unprofiled(read(unpacked(packed, folder)), stored), stored.stem)


def advice(rule: str, title: str = "Something costs time", **fields: Any) -> Finding:
    return Finding(rule, "advice", title, "", **fields)


# every eighth capture, and all of them at night
@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.nightly] * (number % 8 > 0))
        for number, path in enumerate(REAL)
    ],
)
def test_a_brief_is_short_and_has_the_numbers_of_the_report(packed: Path, tmp_path: Path) -> None:
    report = report_of(packed, tmp_path)
    text, document = render_brief(report).decode(), json.loads(render_brief_json(report))
    assert max(len(text.encode()), len(render_brief_json(report))) <= MOST_BYTES
    run = numbers(report)
    summary = verdict(report, run)
    assert f"verdict: {summary.text}\n" in text
    assert document["verdict"] == summary.text
    assert document.get("profiled_step_ns") == (run.profiled_step_ns and pytest.approx(run.profiled_step_ns, rel=1e-3))
    split = report.rows(TIME_SPLIT)
    for category, share in document["bound"]["shares_pct"].items():
        shares = split[split["category"] == category]["share_pct"]
        assert share == pytest.approx(shares.sum() / split["device"].nunique(), rel=1e-3)
    named, fixes, simulated = identified(report), fixes_of(report), report.rows(WHAT_IF)
    assert [cause["id"] for cause in document["causes"]] == list(named)[: len(document["causes"])]
    for cause in document["causes"]:
        gain_pct = named[cause["id"]].gain_pct
        assert cause.get("gain_pct") == (gain_pct and pytest.approx(gain_pct, rel=1e-3))
        if "step_after_ns" in cause and fixes:
            assert document["step_ns"] == pytest.approx(report.rows(REPLAY)["unprofiled_ns"].iloc[0], rel=1e-3)
            (row,) = simulated[
                (simulated["gain_pct"] == gain_pct) & (simulated["rule"] == named[cause["id"]].rule)
            ].index
            left_ns = document["step_ns"] - simulated["gain_ns"][row]
            assert cause["step_after_ns"] == pytest.approx(left_ns, rel=2e-3, abs=1e-3 * document["step_ns"])
    if summary.step:
        # the step after the first fix is that of the headline
        before, after = document["causes"][0]["step"].split(" → ")
        assert summary.step.endswith(f" then takes {after} instead of {before}.")


def test_the_example_of_the_document_is_current(tmp_path: Path) -> None:
    text = render_brief(report_of(DATA / "real" / "vit_attention.sqlite.xz", tmp_path)).decode()
    check(ROOT / "docs" / "agents.md", f"```text\n{text}```", "tests/data/real/vit_attention")


def test_real_programs_are_told_in_one_screen(recorded: Recorded) -> None:
    lines = render_brief(recorded.report("train")).decode().split("\n")
    assert lines[0] == "train: NVIDIA H200, 19 × iteration # of 3.164 ms (2.974 to 3.367 ms)"
    assert [line.split(":")[0] for line in lines[1:4]] == ["verdict", "window", "bound by"]
    assert next(line for line in lines if re.match(r"\d\. ", line)).startswith("1. tensor_cores: −20 %, ")
    assert "   check: nightsight prove --cause tensor_cores PROGRAM" in lines
    assert lines[-2].endswith("details: nightsight show REPORT tensor_cores")
    assert lines[-1] == ""


@pytest.mark.parametrize(
    "report", [small_report(), hostile_report(), small_report(results=(), findings=()), small_report(title="x" * 9000)]
)
def test_any_report_has_a_short_brief_without_control_characters(report: Report) -> None:
    written = render_brief(report)
    assert len(written) <= MOST_BYTES
    assert not CONTROLS.search(written.decode())
    assert written.endswith(b"\n")
    assert len(render_brief_json(report)) <= MOST_BYTES
    assert json.loads(render_brief_json(report))["format"] == 1


def test_what_is_long_is_left_out_from_the_last_cause_on() -> None:
    code = "\n".join(f"line_{number} = {number}" for number in range(100))
    findings = tuple(advice(rule, code=code, remedy="Fix it.") for rule in ("wait", "fusion", "layout"))
    report = small_report(findings=findings)
    assert all(cause.code == code for cause in brief(report).causes)
    shown = json.loads(render_brief_json(report))
    assert [("code" in cause, cause["id"]) for cause in shown["causes"]] == [
        (True, "wait"),
        (False, "fusion"),
        (False, "layout"),
    ]
    assert shown["is_cut"]
    assert "details with code: nightsight show REPORT wait" in render_brief(report).decode()


def test_hostile_findings_stay_on_their_lines() -> None:
    findings = tuple(advice(text, text, remedy=text, code=text, kernels=(text,), proof=text) for text in HOSTILE)
    for place in range(len(findings)):
        written = render_brief(small_report(findings=findings[place:])).decode()
        assert len(written.encode()) <= MOST_BYTES
        assert not CONTROLS.search(written)


def test_several_findings_of_a_rule_have_numbers() -> None:
    findings = (advice("wait"), advice("fusion"), advice("wait"), replace(advice("wait"), severity="info"))
    assert list(identified(small_report(findings=findings))) == ["wait", "fusion", "wait-2"]


@pytest.mark.parametrize(
    ("rule", "title", "framework", "command"),
    [
        ("tensor_cores", "", PYTORCH, "nightsight prove --cause tensor_cores PROGRAM"),
        ("wait", "The CPU waits (cudaStreamSynchronize)", PYTORCH, "nightsight prove --cause wait PROGRAM"),
        # switches inside a program are for PyTorch; a variable is for any
        ("wait", "The CPU waits (cudaStreamSynchronize)", CUDA, "nightsight ab --base HEAD --head . PROGRAM"),
        ("tensor_cores", "", CUDA, "nightsight prove --cause tensor_cores PROGRAM"),
        ("not_jitted", "", JAX, "nightsight prove --switch jit=MODULE.FUNCTION PROGRAM"),
        ("device_copy", "", PYTORCH, "nightsight ab --base HEAD --head . PROGRAM"),
        ("of another version", "", "", "nightsight ab --base HEAD --head . PROGRAM"),
    ],
)
def test_the_check_is_a_switch_or_a_comparison_after_the_edit(
    rule: str, title: str, framework: str, command: str
) -> None:
    assert check_of(advice(rule, title), framework) == command


def test_a_measured_gain_takes_the_place_of_the_check() -> None:
    report = small_report(findings=(advice("fusion", proof="proven with compile: −30 %"),))
    text = render_brief(report).decode()
    assert "   proof: proven with compile: −30 %" in text
    assert "check" not in text


def test_a_report_as_json_has_its_verdict_and_is_read_without_it(recorded: Recorded) -> None:
    report = recorded.report("train")
    document = json.loads(FORMATS["json"].render(Source(report))[""])
    assert document["verdict"]["text"] == verdict(report, numbers(report)).text
    first, *_ = document["verdict"]["causes"]
    # its kernels have most of their time there
    assert (first["id"], first["place"]) == ("tensor_cores", "iteration # / forward")
    fixes = fixes_of(report)
    simulated = {finding.path: fixes and fixes.about(finding) for finding in report.findings if finding.path}
    assert len(simulated) > 1
    assert all(fix and fix.path == path for path, fix in simulated.items())
    named = [finding["path"] for finding in document["findings"]]
    assert named == [finding.path for finding in report.findings]
    again = Report.from_json(json.dumps(document))
    assert again.to_json() == Report.from_json(report.to_json()).to_json()
    assert render_brief(again) == render_brief(report)


def test_infinite_numbers_are_unknown() -> None:
    report = small_report(findings=(advice("wait", gain_pct=float("inf")),))
    (cause,) = json.loads(render_brief_json(report))["causes"]
    assert "gain_pct" not in cause


def test_a_brief_is_printed_and_replaces_the_first_screen(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    done = run("report", capture_file("train"), "--format", "brief")
    assert done.stdout.startswith("train: NVIDIA H200")
    assert "busy" not in done.stderr
    assert not [*tmp_path.glob("*.report.*")]
    document = json.loads(run("report", capture_file("train"), "--format", "brief.json").stdout)
    assert document["causes"][0]["id"] == "tensor_cores"


def test_a_brief_with_a_name_is_a_file(run: Any, capture_file: CaptureFile, tmp_path: Path) -> None:
    run("report", capture_file("train"), "-o", tmp_path / "train.brief.txt")
    assert (tmp_path / "train.brief.txt").read_text().startswith("train: NVIDIA H200")
    run("report", capture_file("train"), "-o", tmp_path / "train.brief.json")
    assert json.loads((tmp_path / "train.brief.json").read_text())["title"] == "train"


@pytest.mark.parametrize("keep", ["captures", "nothing"])
def test_a_run_prints_its_brief_and_nothing_else(keep: str, run: Any, script: Any, fake_nsys: Any) -> None:
    fake_nsys()
    done = run("profile", "--collector", "nsys", "--keep", keep, "--format", "brief.json", script())
    document = json.loads(done.stdout)
    assert "busy" in document["verdict"]
    assert "busy" not in done.stderr
    assert ("report: " in done.stderr) == (keep == "captures")
