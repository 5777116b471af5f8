"""`profile` measures a program without the profiler too, and keeps that beside the capture, where `report` finds it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nightsight.collect.workloads import Measured, OnlyTimed
from nightsight.errors import WorkloadError
from nightsight.model.report import Benchmark, Capture, Report
from nightsight.results.causes import PROFILER_COST, REPLAY
from nightsight.workflows import profile

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
    said = run("profile", "--collector", "nsys", "--no-ncu", "--time-steps", script(_STEPS)).stderr
    (folder,) = (path for path in (tmp_path / "reports" / "train").iterdir() if path.name != "latest")
    assert "a typical cost of the profiler is assumed: nvidia-smi is not on PATH" in said
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


def test_step_times_of_a_workload_that_was_stopped_while_it_was_timed_are_a_report(
    *, run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stopped(*_: object) -> Capture:
        failed = WorkloadError("mlp was interrupted after 3 s; nothing was captured")
        raise OnlyTimed(failed, Measured(Benchmark((2e6, 3e6, 4e6), 20), {"dim": "64"}))

    monkeypatch.setattr(profile, "COLLECTORS", {"torch": stopped})
    said = run("profile", "--stats", "true", "mlp", expect=1).stderr
    (folder,) = (path for path in (tmp_path / "reports" / "mlp").iterdir() if path.name != "latest")
    assert "mlp: step without a profiler 3.000 ms\nError: Nothing was profiled: the report has only step times." in said
    assert f"Error: mlp was interrupted after 3 s; the report has only step times: reports/mlp/{folder.name}" in said
    report = Report.from_json((folder / "report.json").read_bytes())
    assert (report.benchmark, report.parameters) == (Benchmark((2e6, 3e6, 4e6), 20), {"dim": "64"})
    assert "nothing was profiled" in (folder / "report.html").read_text()
    assert json.loads((folder / "run.json").read_text())["failed"] is True


def test_a_program_without_ranges_is_said_to_be_untimed(
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
