"""`profile` measures a program without the profiler too, and keeps that beside the capture, where `report` finds it."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from nightsight.cli import main
from nightsight.collect.workloads import Measured, OnlyTimed, Program, Request, Span
from nightsight.errors import WorkloadError
from nightsight.events.window import Window
from nightsight.model.report import Benchmark, Capture, Report
from nightsight.results.causes import PROFILER_COST, REPLAY
from nightsight.runs.layout import Turn
from nightsight.workflows import profile
from nightsight.workflows.profile import Plan
from tests.timeline import draw

_STEPS = """
import time, nvtx
for i in range(5):
    with nvtx.annotate(f"iteration {i}"):
        time.sleep(0.002)
"""


def replayed(path: Path) -> dict[Any, Any]:
    rows: dict[Any, Any] = Report.from_json(path.read_bytes()).rows(REPLAY).iloc[0].to_dict()
    return rows


@pytest.mark.nightly
def test_time_steps_stands_beside_the_prediction_and_stays_with_the_capture(
    *, run: Any, script: Callable[..., Path], fake_nsys: Callable[..., Path], tmp_path: Path
) -> None:
    fake_nsys(export="train/train.sqlite.xz")
    stderr = run("profile", "--collector", "nsys", "--no-ncu", "--time-steps", script(_STEPS)).stderr
    (folder,) = (path for path in (tmp_path / "reports" / "train").iterdir() if path.name != "latest")
    assert "a typical overhead of the profiler is assumed: nvidia-smi is not on PATH" in stderr
    rows = replayed(folder / "report.json")
    assert 2e6 <= rows["timed_ns"] < 1e9
    assert rows["predicted_ns"] < rows["replayed_ns"]
    assert json.loads((folder / "run.json").read_text())["stages_s"]["times"] > 0
    kept = json.loads((folder / "capture" / "train.unprofiled.json").read_text())
    assert [row["path"] for row in kept["timed_ranges"]] == ["iteration #"]
    run("report", folder / "capture" / "train.sqlite", "-o", tmp_path / "again.json")
    assert replayed(tmp_path / "again.json")["timed_ns"] == rows["timed_ns"]
    run("report", folder / "capture" / "train.nsys-rep", "-o", tmp_path / "exported.json")
    assert replayed(tmp_path / "exported.json")["timed_ns"] == rows["timed_ns"]
    # elsewhere, only the capture is known
    (tmp_path / "alone.sqlite").write_bytes((folder / "capture" / "train.sqlite").read_bytes())
    run("report", tmp_path / "alone.sqlite", "-o", tmp_path / "alone.json")
    assert pd.isna(replayed(tmp_path / "alone.json")["timed_ns"])
    notes = " ".join(Report.from_json((folder / "report.json").read_bytes()).result(PROFILER_COST.name).notes)
    assert "timed in a run without it" in notes
    assert "timed in a run without it" in (folder / "report.html").read_text()


@pytest.fixture
def usual(
    script: Callable[..., Path], fake_nsys: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[str, Report, dict[str, Any]]]:
    """Profile a program as usual; return its stderr, the report, and what is known about the run."""
    fake_nsys(export="train/train.sqlite.xz")
    monkeypatch.chdir(tmp_path)

    def invoke(code: str, *options: str) -> tuple[str, Report, dict[str, Any]]:
        words = ["profile", "--collector", "nsys", "--no-ncu", "--no-calibrate", *options, str(script(code))]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
        (folder,) = (path for path in (tmp_path / "reports" / "train").iterdir() if path.name != "latest")
        report = Report.from_json((folder / "report.json").read_bytes())
        return result.stderr, report, json.loads((folder / "run.json").read_text())

    return invoke


@pytest.mark.usefixtures("without_pages")
def test_the_steps_of_a_quick_script_are_timed_without_being_asked(usual: Any) -> None:
    stderr, report, run_facts = usual(_STEPS)
    stages = [
        stderr.index(stage) for stage in ("reading train", "timing train without a profiler", "looking for causes")
    ]
    assert stages == sorted(stages)
    assert run_facts["stages_s"]["times"] > 0
    assert 2e6 <= report.rows(REPLAY)["timed_ns"].iloc[0] < 1e9
    assert "steps_not_timed" not in {finding.rule for finding in report.findings}


@pytest.mark.usefixtures("without_pages")
def test_a_program_that_cannot_run_twice_has_a_finding(usual: Any) -> None:
    _, report, run_facts = usual("open('out', 'x').close()")
    (finding,) = (finding for finding in report.findings if finding.rule == "steps_not_timed")
    assert finding.severity == "info"
    assert finding.detail.startswith("In a run without the profiler, train ended with exit status 1. ")
    assert not run_facts["failed"]


@pytest.mark.usefixtures("without_pages")
@pytest.mark.parametrize("option", ["--time-steps", "--quiet"])
def test_that_other_ranges_were_timed_is_reported_if_it_was_asked_for(usual: Any, option: str) -> None:
    findings = [
        each for each in usual(_STEPS.replace("iteration", "request"), option)[1].findings if "timed" in each.rule
    ]
    reason = "consists of repetitions of iteration #, which the run without the profiler does not show"
    assert [reason in each.detail for each in findings] == [True] * (option == "--time-steps")


@pytest.mark.usefixtures("without_pages")
def test_steps_are_not_timed_if_that_is_turned_off(usual: Any) -> None:
    stderr, _, run_facts = usual("open('out', 'x').close()", "--no-time-steps")
    assert "without a profiler" not in stderr
    assert "times" not in run_facts["stages_s"]


PLAN = Plan(Program("train", "script", (sys.executable, "train.py")), "nsys", Path("reports"))
NAMED, UNNAMED = (draw(f"{nvtx}\ncpu   {'LL..' * 30}\ns7    {'.aa.' * 30}") for nvtx in (f"nvtx  {'[s ]' * 30}", ""))


def timing(
    plan: Plan = PLAN,
    request: Request = Request(),  # noqa: B008
    profiled: Any = NAMED,
    **facts: Any,
) -> tuple[float, float] | None:
    """Return how long the run without a profiler may take, and after how many seconds of steps it ends (0: whole)."""
    capture = Capture("train", "nsys", (Path("train.sqlite"),), stages_s={"profile": 10.0})
    chosen = profile._timing(plan, request, replace(capture, **facts), profiled)
    return chosen and (chosen[0].timeout_s, chosen[1].seconds if chosen[1] else 0.0)


@pytest.mark.parametrize(
    ("stages_s", "timeout_s", "expected_s"),
    [
        ({"profile": 10.0}, 3600.0, (50.0, 0.0)),
        ({"profile": 59.0, "export": 1.0}, 3600.0, (148.0, 0.0)),
        # half of the time until then
        ({"profile": 100.0, "export": 110.0}, 3600.0, (230.0, 0.0)),
        ({"profile": 100.0, "export": 90.0}, 3600.0, (230.0, 15.0)),
        ({"profile": 1000.0}, 1100.0, (100.0, 15.0)),
        ({"profile": 1000.0}, 1050.0, None),
        ({"profile": 10.0, "export": 5.0}, 40.0, (25.0, 0.0)),
        ({"profile": 10.0, "export": 5.0}, 20.0, None),
    ],
)
def test_the_run_without_a_profiler_is_short(
    stages_s: dict[str, float], timeout_s: float, expected_s: tuple[float, float] | None
) -> None:
    messages: list[str] = []
    request = Request(timeout_s=timeout_s, progress=lambda text, **_: messages.append(text))
    assert timing(request=request, stages_s=stages_s) == expected_s
    left_s = timeout_s - sum(stages_s.values())
    assert messages == (
        [] if expected_s else [f"not timing train without a profiler: {left_s:.0f} s of --timeout are left"]
    )
    asked = replace(request, time_steps=True)
    assert timing(request=asked, stages_s=stages_s) == (left_s, 0.0)


def test_a_long_run_has_enough_steps_if_they_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    window = Window(0, 60_000_000_000, "loop", family="s", steps={1: np.arange(30) * 2_000_000_000})
    monkeypatch.setattr(profile, "chosen_window", lambda _: window)
    assert timing(stages_s={"profile": 100.0}) == pytest.approx((230.0, 60.0))
    assert timing(stages_s={"profile": 61.0}) == pytest.approx((152.0, 60.0))


@pytest.mark.usefixtures("without_pages")
def test_a_program_that_takes_long_ends_after_some_steps(
    usual: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in {"_QUICK_S": 0.01, "_QUICK_SHARE": 0.0, "_STEPS_S": 0.2, "_STEPS": 0}.items():
        monkeypatch.setattr(profile, name, seconds)
    long = _STEPS.replace("range(5)", "range(500)")
    stderr, report, run_facts = usual(f"{long}\nopen('ended', 'a').write('once ')")
    assert "timing train without a profiler: 0 s of its steps" in stderr
    assert report.rows(REPLAY)["timed_ns"].iloc[0] > 0
    assert run_facts["stages_s"]["times"] > 0
    assert (tmp_path / "ended").read_text() == "once "


@pytest.mark.parametrize(
    "given",
    [
        {"plan": replace(PLAN, attach=(Path("results.json"),))},
        {"plan": replace(PLAN, turn=Turn("series", order=1))},
        {"plan": replace(PLAN, program=Program("bench", "command", ("/bin/true",)))},
        {"plan": replace(PLAN, program=Program("mlp", "workload", (sys.executable, "mlp")))},
        {"request": Request(part=Span(1.0))},
        {"profiled": draw("cpu   LL..\ns7    .aa.")},
    ],
)
def test_what_may_do_harm_or_shows_no_steps_is_timed_only_if_asked_for(given: dict[str, Any]) -> None:
    assert timing(**given) is None
    request = replace(given.pop("request", Request()), time_steps=True)
    assert timing(**given, request=request) == (3590, 0)


@pytest.mark.parametrize(
    ("family", "has_names"),
    [("s", True), ("step (ends with AdamW.step)", True), ("the same 2 launches", False), ("jit_step", False)],
)
def test_loops_are_timed_where_the_repetitions_have_no_names_outside_the_profiler(
    family: str, *, has_names: bool
) -> None:
    assert timing(profiled=UNNAMED) == timing(profiled=NAMED)
    assert profile._has_names(NAMED, family) is has_names


def test_a_rank_of_a_job_is_timed_only_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert timing() is None
    assert timing(request=Request(time_steps=True))


@pytest.mark.parametrize(
    "given",
    [
        {"request": Request(time_steps=False)},
        {"collector": "ncu"},
        {"failure": "train ended with exit status 1"},
        {"benchmark": Benchmark((2e6,), 20)},
    ],
)
def test_what_cannot_be_timed_or_was_is_not_timed(given: dict[str, Any]) -> None:
    assert timing(**{"request": Request(time_steps=True), **given}) is None


def test_step_times_of_a_workload_that_was_stopped_while_it_was_timed_are_a_report(
    *, run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stopped(*_: object) -> Capture:
        failed = WorkloadError("mlp was interrupted after 3 s; nothing was captured")
        raise OnlyTimed(failed, Measured(Benchmark((2e6, 3e6, 4e6), 20), {"dim": "64"}))

    monkeypatch.setattr(profile, "COLLECTORS", {"torch": stopped})
    stderr = run("profile", "--stats", "true", "mlp", expect=1).stderr
    (folder,) = (path for path in (tmp_path / "reports" / "mlp").iterdir() if path.name != "latest")
    assert (
        "mlp: step without a profiler 3.000 ms\nError: Nothing was profiled: the report has only step times." in stderr
    )
    assert f"Error: mlp was interrupted after 3 s; the report has only step times: reports/mlp/{folder.name}" in stderr
    report = Report.from_json((folder / "report.json").read_bytes())
    assert (report.benchmark, report.parameters) == (Benchmark((2e6, 3e6, 4e6), 20), {"dim": "64"})
    assert "nothing was profiled" in (folder / "report.html").read_text()
    assert json.loads((folder / "run.json").read_text())["failed"] is True


def test_a_program_without_ranges_is_reported_as_untimed(
    *, run: Any, script: Callable[..., Path], fake_nsys: Callable[..., Path], tmp_path: Path
) -> None:
    fake_nsys()
    run("profile", "--collector", "nsys", "--no-ncu", "--no-calibrate", "--time-steps", script())
    (folder,) = (path for path in (tmp_path / "reports" / "train").iterdir() if path.name != "latest")
    report = Report.from_json((folder / "report.json").read_bytes())
    assert "steps_not_timed" in {finding.rule for finding in report.findings}
    assert not list((folder / "capture").glob("*.unprofiled.json"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--collector", "torch", "--calibrate"], "--calibrate has no effect with --collector torch"),
        (["--collector", "ncu", "--no-calibrate"], "--calibrate has no effect with --collector ncu"),
        (["--collector", "ncu", "--time-steps"], "--time-steps has no effect with --collector ncu"),
    ],
)
def test_options_without_effect_are_refused(
    run: Any, script: Callable[..., Path], options: list[str], reason: str
) -> None:
    assert reason in run("profile", *options, script(), expect=2).output
