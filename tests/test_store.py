"""The layout of reports/."""

import datetime as dt
import json
import os
from pathlib import Path

import pytest

from nightsight.errors import CaptureError
from nightsight.runs.layout import new_run, publish, runs, write_file

NOON = dt.datetime(2026, 11, 20, 12, 0, 0, tzinfo=dt.UTC)


def test_runs_of_the_same_second_do_not_collide(tmp_path: Path) -> None:
    folders = [new_run(tmp_path, "mlp", started=NOON).folder.name for _ in range(3)]
    assert folders == ["20261120-120000", "20261120-120000-2", "20261120-120000-3"]


def test_publish_moves_latest(tmp_path: Path) -> None:
    for _ in range(2):
        run = new_run(tmp_path, "mlp", started=NOON)
        publish(run, {"report.html": b"page", "run.json": json.dumps({"n": 1}).encode()})
    latest = tmp_path / "mlp" / "latest"
    assert os.readlink(latest) == "20261120-120000-2"  # noqa: PTH115 relative, so that the folder can be moved
    assert (latest / "report.html").read_bytes() == b"page"
    assert [folder.name for folder, _ in runs(tmp_path)] == ["20261120-120000-2", "20261120-120000"]


def test_damaged_run_json_is_passed_over(tmp_path: Path) -> None:
    for name, text in (("a", "{"), ("b", "[]"), ("c", '{"n": 1}')):
        write_file(tmp_path / "mlp" / name / "run.json", text.encode())
    assert [document for _, document in runs(tmp_path)] == [{"n": 1}]


def test_a_file_that_cannot_be_written_leaves_the_earlier_one_and_nothing_aside(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_file(path, b"first")
    with pytest.raises(CaptureError, match="cannot write"):
        write_file(path / "below", b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_an_error_and_leaves_nothing() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with pytest.raises(CaptureError, match=r"cannot write /dev/full/x"):
        write_file(Path("/dev/full/x"), b"text")


def test_new_files_have_the_usual_permissions(tmp_path: Path) -> None:
    write_file(tmp_path / "file", b"")
    (tmp_path / "plain").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_place_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "reports").touch()
    with pytest.raises(CaptureError, match="cannot write"):
        new_run(tmp_path / "reports", "mlp", started=NOON)
