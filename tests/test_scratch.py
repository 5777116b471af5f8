"""Temporary folders: they go in the end, and those of processes that were killed go with the next one."""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from nightsight.system.scratch import scratch

OLD = (1.0, 1.0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    (path / "export.sqlite").write_text("large")
    os.utime(path, OLD)
    return path


def test_it_goes_in_the_end(folder: Path) -> None:
    with scratch() as made:
        (made / "file").touch()
        assert [path.parent for path in folder.glob("*/file")] == [made]
    assert list(folder.iterdir()) == []


def test_what_a_killed_process_left_goes_and_nothing_else(folder: Path) -> None:
    left(folder, "nightsight-scratch-killed")
    at_work, others = left(folder, "nightsight-scratch-at-work"), left(folder, "nightsight-of-somebody-else")
    linked = folder / "nightsight-scratch-link"
    linked.symlink_to(others)
    young = left(folder, "nightsight-scratch-young")
    os.utime(young)
    held = os.open(at_work, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with scratch() as made:
        os.utime(made, OLD)
        with scratch() as second:
            assert {*folder.iterdir()} == {made, second, at_work, others, linked, young}
    os.close(held)
    assert (others / "export.sqlite").exists()
