"""Old runs are deleted, and nothing else: no link, no file of others, no run that is being written."""

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import pytest

from nightsight.errors import CaptureError
from nightsight.runs.layout import Run, publish
from nightsight.workflows.prune import PrunedRun, PruneRules, SkipCounts, prune

NOW = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def write_run(reports: Path, started: dt.datetime, *, workload: str = "mlp", size: int = 1000) -> Path:
    """Write a run as `profile` leaves it."""
    run = Run(reports / workload / f"{started:%Y%m%d-%H%M%S}")
    run.captures.mkdir(parents=True)
    run.logs.mkdir()
    (run.captures / "mlp.sqlite").write_bytes(bytes(size))
    (run.logs / "nsys.log").write_bytes(bytes(10))
    files = {"report.html": b"page", "report.json": b"{}", "run.json": json.dumps({"workload": workload}).encode()}
    publish(run, files)
    return run.folder


def pruned(reports: Path, skipped: SkipCounts | None = None, *, is_dry: bool = False, **chosen: Any) -> list[PrunedRun]:
    return list(prune(reports, PruneRules(**chosen), now=NOW, skipped=skipped or SkipCounts(), is_dry=is_dry))


@pytest.fixture
def week(tmp_path: Path) -> list[Path]:
    """Return seven runs of seven days, the newest first."""
    return [write_run(tmp_path, NOW - days * DAY) for days in range(6, -1, -1)][::-1]


def left(week: list[Path]) -> list[int]:
    return [place for place, run in enumerate(week) if run.exists()]


def test_the_newest_runs_stay(week: list[Path], tmp_path: Path) -> None:
    done = pruned(tmp_path, runs=2)
    assert [run.folder for run in done] == week[:1:-1]
    assert left(week) == [0, 1]
    # capture, log, page, report.json, run.json
    assert done[0].freed_bytes == 1000 + 10 + 4 + 2 + len('{"workload": "mlp"}')


def test_both_conditions_have_to_hold(week: list[Path], tmp_path: Path) -> None:
    pruned(tmp_path, runs=6, age=3 * DAY)
    assert left(week) == [0, 1, 2, 3, 4, 5]
    pruned(tmp_path, runs=1, age=3 * DAY)
    assert left(week) == [0, 1, 2, 3]


def test_captures_go_and_reports_stay(week: list[Path], tmp_path: Path) -> None:
    done = pruned(tmp_path, captures=True, runs=1)
    assert left(week) == list(range(7))
    assert {run.names for run in done} == {("capture", "log")}
    assert sorted(path.name for path in week[3].iterdir()) == ["report.html", "report.json", "run.json"]
    assert (week[0] / "capture").exists()
    assert pruned(tmp_path, captures=True, runs=1) == []


def test_nothing_is_deleted_when_asked_what_would_be(week: list[Path], tmp_path: Path) -> None:
    would = pruned(tmp_path, runs=2, is_dry=True)
    assert left(week) == list(range(7))
    assert would == pruned(tmp_path, runs=2)


def test_the_latest_run_stays_unless_asked(week: list[Path], tmp_path: Path) -> None:
    # an older run may be the latest: one that started first and ended last
    publish(Run(week[4]), {})
    pruned(tmp_path, runs=0)
    assert left(week) == [4]
    pruned(tmp_path, runs=0, latest=True)
    assert left(week) == []
    assert not (tmp_path / "mlp").exists()


def test_without_a_link_the_newest_run_is_the_latest(week: list[Path], tmp_path: Path) -> None:
    (tmp_path / "mlp" / "latest").unlink()
    pruned(tmp_path, runs=0)
    assert left(week) == [0]


def test_latest_names_what_is_left(week: list[Path], tmp_path: Path) -> None:
    publish(Run(week[6]), {})
    pruned(tmp_path, age=3 * DAY, latest=True)
    assert left(week) == [0, 1, 2, 3]
    assert os.readlink(tmp_path / "mlp" / "latest") == week[0].name  # noqa: PTH115


def test_what_is_not_a_run_stays(week: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "mlp"
    for name in ("notes", "20250101-000000-copy", "20250101"):
        (folder / name / "capture").mkdir(parents=True)
        (folder / name / "run.json").write_text("{}")
    (folder / "20250101-000001").write_text("a file")
    damaged = folder / "20250101-000002"
    damaged.mkdir()
    (damaged / "run.json").write_text("{")
    (tmp_path / "trend.html").write_text("")
    skipped = SkipCounts()
    pruned(tmp_path, skipped, runs=0, latest=True)
    assert left(week) == []
    assert sorted(path.name for path in folder.iterdir()) == [
        *("20250101", "20250101-000000-copy", "20250101-000001", "20250101-000002", "notes")
    ]
    assert skipped.reasons == {"folders that are not runs": 3, "runs without a valid run.json": 1}


def test_empty_folders_of_others_stay(week: list[Path], tmp_path: Path) -> None:
    (tmp_path / "downloads").mkdir()
    pruned(tmp_path, runs=1)
    assert (tmp_path / "downloads").is_dir()


def test_a_run_that_is_being_written_stays(week: list[Path], tmp_path: Path) -> None:
    being_written = tmp_path / "mlp" / "20250101-000000"
    (being_written / "capture").mkdir(parents=True)
    (being_written / "report.html").write_text("page")
    skipped = SkipCounts()
    pruned(tmp_path, skipped, runs=0, captures=True)
    pruned(tmp_path, skipped, runs=0)
    assert (being_written / "capture").is_dir()
    assert left(week) == [0]
    assert skipped.reasons["runs that are being written, or were interrupted before their report"] == 2


def test_links_are_not_followed(week: list[Path], tmp_path: Path) -> None:
    away = tmp_path / "away"
    kept = write_run(away, NOW - 50 * DAY)
    reports = tmp_path / "reports"
    reports.mkdir()
    (tmp_path / "mlp").rename(reports / "mlp")
    week = [reports / "mlp" / run.name for run in week]
    (reports / "linked").symlink_to(away / "mlp", target_is_directory=True)
    (reports / "mlp" / "20250101-000000").symlink_to(kept, target_is_directory=True)
    (week[5] / "capture" / "out").symlink_to(kept, target_is_directory=True)
    (week[5] / "capture" / "file").symlink_to(kept / "run.json")
    linked = week[6] / "capture"
    for path in linked.iterdir():
        path.unlink()
    linked.rmdir()
    linked.symlink_to(kept / "capture", target_is_directory=True)
    (week[4] / "run.json").unlink()
    (week[4] / "run.json").symlink_to(kept / "run.json")
    before = sorted(path for path in away.rglob("*"))
    done = pruned(reports, runs=1)
    assert sorted(path for path in away.rglob("*")) == before
    assert left(week) == [0, 4, 6]
    assert (reports / "mlp" / "20250101-000000").is_symlink()
    assert linked.is_symlink()
    assert [run.left for run in done if run.left] == [("capture",)]
    # what lies elsewhere is not freed
    assert all(run.freed_bytes < 2000 for run in done)


def test_files_of_others_in_a_run_stay(week: list[Path], tmp_path: Path) -> None:
    (week[6] / "notes.txt").write_text("mine")
    done = pruned(tmp_path, runs=6)
    assert [(run.folder, run.left) for run in done] == [(week[6], ("notes.txt",))]
    assert [path.name for path in week[6].iterdir()] == ["notes.txt"]


def test_shared_files_free_nothing(week: list[Path], tmp_path: Path) -> None:
    (tmp_path / "copy.sqlite").hardlink_to(week[6] / "capture" / "mlp.sqlite")
    (done,) = pruned(tmp_path, runs=6, captures=True)
    assert done.freed_bytes == 10


def test_runs_of_one_second_are_distinguished(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, NOW)]
    for number in (2, 10):
        runs.append(runs[0].with_name(f"{runs[0].name}-{number}"))
        write_run(tmp_path / "aside", NOW).rename(runs[-1])
    (tmp_path / "mlp" / "latest").unlink()
    pruned(tmp_path, runs=1)
    assert [run.exists() for run in runs] == [False, False, True]


def test_a_folder_that_cannot_be_deleted_is_an_error(
    week: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shutil.rmtree", refuse)
    with pytest.raises(CaptureError, match=rf"cannot delete .*{week[6].name}: Permission denied"):
        pruned(tmp_path, runs=1)
    assert (week[6] / "run.json").exists()


def test_two_at_a_time_do_not_mind_one_another(week: list[Path], tmp_path: Path) -> None:
    first, second = (prune(tmp_path, PruneRules(runs=1), now=NOW, skipped=SkipCounts()) for _ in range(2))
    next(first)
    next(second)
    rest = [*first, *second]
    assert left(week) == [0]
    assert len(rest) <= 5


def test_the_command_needs_to_know_which(run: Any, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    assert "Choose runs with" in run("prune", expect=2).output
    for age in ("soon", "30", "-1d", "99999999999w"):
        assert "is not an age such as" in run("prune", "--older-than", age, expect=2).output
    assert "does not exist" in run("prune", "elsewhere", "--keep-runs", 1, expect=2).output


def test_the_command_says_what_it_frees(run: Any, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    for days in range(3):
        write_run(reports, dt.datetime.now(dt.UTC) - (40 - days) * DAY, size=5_000_000)
    output = run("prune", "--older-than", "30d", "--dry-run").output
    assert output.count("would delete: reports/mlp/") == 2
    assert "would free 10.00 MB of 2 runs" in output
    run("prune", "--older-than", "30d")
    assert len(list((reports / "mlp").iterdir())) == 2
    assert (reports / "index.html").exists()
    assert run("prune", "--older-than", "30d").output == (
        "not touched: 1 runs that are the latest of their workload (--latest deletes them too)\nnothing to delete\n"
    )
