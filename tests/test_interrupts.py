"""An interrupt after the measurement loses nothing: it ends in one line, which names the capture and what reads it."""

import gc
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nightsight.cli import main
from nightsight.read.sqlite import Database
from tests.recorded import DATA
from tests.test_cli import FakeNsys, only_run

REPORT = DATA / "nsys" / "mlp" / "mlp.nsys-rep"


@pytest.fixture
def slow_export(fake_nsys: FakeNsys, tmp_path: Path) -> Path:
    """An nsys that takes a minute for an export."""
    program = tmp_path / "slow" / "nsys"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$1" = export ] && exec sleep 60\nexec {shlex.quote(str(fake_nsys()))} "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def interrupted_at(tmp_path: Path) -> Callable[..., str]:
    """Send a signal to a command when it says that it has come to a stage; return what it says then."""

    def start(stage: str, number: signal.Signals, *arguments: object) -> str:
        command = [sys.executable, "-m", "nightsight", *map(str, arguments)]
        package = str(Path(__file__).parents[1] / "pipeline")
        environment = {**os.environ, "PYTHONPATH": package, "TMPDIR": str(tmp_path / "aside")}
        (tmp_path / "aside").mkdir()
        with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr
            assert any(line.startswith(stage) for line in process.stderr)
            process.send_signal(number)
            stderr = process.stderr.read()
        assert process.returncode == 128 + number
        return stderr

    return start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("stage", "ending"), [("exporting", ".nsys-rep"), ("looking for causes", ".sqlite")])
def test_an_interrupt_after_the_measurement_names_the_capture_and_the_command_that_makes_the_report(
    *,
    script: Any,
    slow_export: Path,
    fake_nsys: FakeNsys,
    interrupted_at: Callable[..., str],
    tmp_path: Path,
    number: signal.Signals,
    stage: str,
    ending: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nsys = slow_export if stage == "exporting" else fake_nsys()
    path = script(name="my train.py")
    stderr = interrupted_at(stage, number, "profile", "--collector", "nsys", "--nsys", nsys, "--no-ncu", path)
    error, hint = stderr.removeprefix("Error: ").rstrip("\n").split("\nHint: Make its report: ")
    folder = only_run(tmp_path, "my_train")
    assert sorted(path.name for path in folder.iterdir()) == ["capture", "log"]
    (kept,) = (folder / "capture").glob(f"*{ending}")
    assert error == f"interrupted before the report was written; the capture is kept: {kept}"
    words = shlex.split(hint)
    assert words[0] == "nightsight"
    assert words[-1] == str(kept)
    # the command works as it was printed, but for the export that takes a minute
    monkeypatch.chdir(tmp_path)
    again = [str(fake_nsys()) if word == str(slow_export) else word for word in words[1:]]
    with pytest.raises(SystemExit, match="0"):
        main(again)
    assert list(tmp_path.glob("*.report.html"))


# subprocess.run leaves a child that an interrupt killed to be reaped later
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_before_anything_was_captured_says_so(script: Any, tmp_path: Path, run: Any) -> None:
    nsys = tmp_path / "nsys"
    nsys.write_text("#!/bin/sh\nkill -INT $PPID; sleep 9\n")
    nsys.chmod(0o755)
    stderr = run("profile", "--collector", "nsys", "--nsys", nsys, script(), expect=130).stderr
    # here, where its warning is ignored: otherwise it fails a later test
    gc.collect()
    assert stderr.endswith("Error: interrupted before anything was captured\n")


@pytest.mark.parametrize("command", [("report",), ("stats", "-r", "nvtx_sum")])
def test_an_interrupt_while_a_capture_is_read_ends_in_one_line(
    slow_export: Path, interrupted_at: Callable[..., str], tmp_path: Path, command: tuple[str, ...]
) -> None:
    shutil.copy(REPORT, tmp_path / "mlp.nsys-rep")
    stderr = interrupted_at("exporting", signal.SIGINT, *command, "--nsys", slow_export, "mlp.nsys-rep")
    assert stderr == "Error: interrupted\n"
    assert not list((tmp_path / "aside").iterdir())


def test_an_interrupt_while_sqlite_reads_is_not_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "slow.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE numbers (n)")
        connection.execute("INSERT INTO numbers VALUES (5000000)")
    connection.close()
    counting = "(WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < n) SELECT MAX(i) FROM c)"
    database = Database(path)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        database.fetch("numbers", {"count": counting})
