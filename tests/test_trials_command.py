"""The commands `ab` and `bisect`: what they print, write and exit with."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.repositories import SMALL, committed, program
from tests.test_cli import FakeNsys, error_lines

COULD_NOT, USAGE = 3, 2


@pytest.fixture
def fake(fake_nsys: FakeNsys, without_pages: None) -> Path:
    return fake_nsys(export=SMALL)


def test_ab_writes_the_comparison_and_a_gate_has_its_status(run: Any, fake: Path, tmp_path: Path) -> None:
    committed(tmp_path, {"train.py": program(fake, 1.0), ".gitignore": "fake/\nreports/\nout/\n"}, "base")
    committed(tmp_path, {"train.py": program(fake, 1.2)}, "slower")
    options = ("--collector", "nsys", "--names", "off", "--pairs", "3", "train.py")
    result = run("ab", "--base", "HEAD~1", "--head", "HEAD", "--gate", "-o", "out", *options, expect=1)
    assert result.stdout.splitlines()[-1] == "comparison: out/comparison.html"
    assert {"comparison.html", "comparison.md", "comparison.json"} <= {path.name for path in Path("out").iterdir()}
    assert json.loads(Path("out/comparison.json").read_text())["verdict"] == "regressed"
    assert str(tmp_path) not in Path("out/comparison.html").read_text()
    # the noise is told in later comparisons; without --gate, the status says that it went well
    brief = run("ab", "--base", "HEAD~1", "--aa", "--format", "brief", *options, "--pairs", "1")
    assert brief.stdout.splitlines()[1].startswith("verdict: ")
    assert "comparison: " not in brief.stdout
    assert brief.stderr.splitlines()[-1].endswith("/comparison.html")
    folders = [path.parent for path in Path("reports/train").glob("2*/run.json")]
    sides = {side: [f for f in folders if json.loads((f / "run.json").read_text())["side"] == side] for side in SIDES}
    words = [word for side in SIDES for folder in sides[side][:3] for word in (f"--{side}", folder)]
    assert "1 comparison of unchanged code on this machine" in run("compare", *words, "--format", "json").stdout


SIDES = ("baseline", "candidate")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ab", "--base", "HEAD", "train.py"), "Name the commit to judge with --head"),
        (("ab", "--base", "HEAD", "--head", "HEAD", "--aa", "train.py"), "Name the commit to judge with --head"),
        (("ab", "--base", "HEAD", "--head", "HEAD", "--strict", "train.py"), "--strict needs --gate."),
        (("ab", "--base", "HEAD", "--head", "HEAD"), "Name a workload or script"),
        (("ab", "--base", "HEAD", "--head", "HEAD", "--pairs", "0", "train.py"), "0 is not in the range"),
        (("bisect", "--good", "HEAD", "--bad", "HEAD"), "Name a workload or script"),
        (("bisect", "--good", "HEAD", "--bad", "HEAD", "--pairs", "2", "train.py"), "2 is not in the range"),
    ],
)
def test_requests_that_mean_nothing_are_refused(run: Any, words: tuple[str, ...], message: str) -> None:
    assert message in run(*words, expect=USAGE).output


@pytest.mark.parametrize("command", [("ab", "--base", "x", "--head", "y"), ("bisect", "--good", "x", "--bad", "y")])
def test_a_folder_without_a_repository_could_not_be_measured(run: Any, script: Any, command: tuple[str, ...]) -> None:
    error, hint = error_lines(run(*command, script(), expect=COULD_NOT))
    assert error == "this folder is not in a git repository"
    assert hint


@pytest.mark.parametrize(
    "command", [("ab", "--base", "HEAD", "--head", "HEAD"), ("bisect", "--good", "x", "--bad", "y")]
)
def test_a_mistake_in_the_settings_is_reported_before_anything_runs(
    run: Any, fake: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    committed(tmp_path, {"train.py": program(fake, 1.0)}, "base")
    (tmp_path / "nightsight.toml").write_text('[gate]\nleast_pct = "abc"', encoding="utf-8")
    error, _ = error_lines(run(*command, "train.py", expect=USAGE))
    assert error.endswith("gate.least_pct is not a number of at least 0")
    assert not (tmp_path / "reports").exists()


def test_a_ref_that_does_not_exist_could_not_be_measured(run: Any, fake: Path, tmp_path: Path) -> None:
    committed(tmp_path, {"train.py": ""}, "base")
    error, hint = error_lines(run("ab", "--base", "main~9", "--head", "HEAD", "train.py", expect=COULD_NOT))
    assert error == "this repository has no commit 'main~9'"
    assert "fetch-depth: 0" in hint
