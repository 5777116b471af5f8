"""`make profile`: what its variables hold reaches the program word by word, and nothing of it is run on the way."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_cli import FakeNsys

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
HARM = [
    "; touch harm",
    "&& touch harm #",
    "`touch harm`",
    "$(touch harm)",
    "$(shell touch harm)",
    "${shell touch harm}",
    "| touch harm",
    "\n\ttouch harm\n",
    "> harm",
    '"; touch harm; "',
]


@pytest.fixture
def make(fake_nsys: FakeNsys, tmp_path: Path) -> Any:
    """Run `make profile` in an empty folder with a fake nsys; what the program was given is in arguments.json."""
    nsys = fake_nsys()
    shutil.copy(ROOT / "Makefile", tmp_path)
    program = tmp_path / "show.py"
    program.write_text("import json, sys; json.dump(sys.argv[1:], open('arguments.json', 'w'))")

    def run(*, by_environment: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
        usual = {"OPTIONS": f"--collector nsys --no-ncu --nsys {nsys}", "WORKLOAD": "show.py"}
        given = {"PYTHON": sys.executable, **usual, **variables}
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            ["make", "profile", *([] if by_environment else [f"{name}={value}" for name, value in given.items()])],
            cwd=tmp_path,
            env={**environment, **given} if by_environment else environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_installation_says_what_it_takes_and_shows_its_progress(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "progress of $*"\n')
    python.chmod(0o755)
    # a make that is called by another one says where it is
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    done = subprocess.run(
        ["make", ".venv/.ready-dev"], cwd=tmp_path, capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout == "", "it is for the path of the report"
    lines = done.stderr.splitlines()
    assert "about 2 GB" in lines[0]
    assert "PYTHON=python3" in lines[1]
    assert lines[2].startswith("progress of -m pip install")
    assert "--quiet" not in done.stderr


def test_words_of_args_arrive_as_a_shell_would_split_them(make: Any, tmp_path: Path) -> None:
    done = make(ARGS="""--name 'a b' "c d"  e\\ f *.py '' $HOME""")
    assert done.returncode == 0, done.stderr
    words = json.loads((tmp_path / "arguments.json").read_text())
    assert words == ["--name", "a b", "c d", "e f", "*.py", "", "$HOME"]


@pytest.mark.parametrize("by_environment", [False, True])
def test_nothing_in_args_is_run(make: Any, tmp_path: Path, *, by_environment: bool) -> None:
    done = make(ARGS=" ".join(HARM), by_environment=by_environment)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "harm").exists()
    words = json.loads((tmp_path / "arguments.json").read_text())
    assert [words[0], words[-1]] == [";", "; touch harm; "]


@pytest.mark.parametrize("name", ["OPTIONS", "WORKLOAD"])
def test_nothing_in_options_or_workload_is_run(make: Any, tmp_path: Path, name: str) -> None:
    assert make(**{name: " ".join(HARM)}).returncode != 0
    assert not (tmp_path / "harm").exists()


@pytest.mark.nightly
def test_a_workload_of_ones_own_is_known_by_its_name(make: Any, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.nightsight.workloads]\nmine = "show.py"')
    done = make(WORKLOAD="mine", ARGS="--epochs 1")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "arguments.json").read_text()) == ["--epochs", "1"]
    assert (tmp_path / "reports" / "mine" / "latest").exists()


@pytest.mark.nightly
def test_several_words_of_options_are_several_options(make: Any, tmp_path: Path) -> None:
    nsys = tmp_path / "fake" / "nsys"
    done = make(OPTIONS=f"--collector nsys --no-ncu --nsys '{nsys}' --reports 'my reports'")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "my reports" / "index.html").exists()


def test_a_workload_is_no_option(make: Any, tmp_path: Path) -> None:
    done = make(WORKLOAD="--reports=elsewhere", ARGS="show.py")
    assert "WORKLOAD=--reports=elsewhere is an option" in done.stderr
    assert not (tmp_path / "elsewhere").exists()


def test_a_quote_that_is_left_open_is_reported(make: Any) -> None:
    done = make(ARGS="--name 'a b")
    assert "ARGS=--name 'a b: No closing quotation" in done.stderr
    assert "Traceback" not in done.stderr
