"""`ab`: two commits are measured in turns, each with its own code, and nothing of it stays in the repository."""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.collect.workloads import Request
from nightsight.collect.worktrees import ProgramRequest
from nightsight.compare import Settings, measures
from nightsight.errors import CaptureError, Interrupted, NotMeasured
from nightsight.model.compare import Measures
from nightsight.runs.noise import noise_of
from nightsight.workflows import trials
from nightsight.workflows.profile import Plan
from nightsight.workflows.trials import BASELINE, CANDIDATE, Trial, TrialResult, compare_commits, looks
from tests.progress import progress_into
from tests.repositories import SMALL, committed, git, program
from tests.test_cli import FakeNsys

pytestmark = pytest.mark.usefixtures("remembered_analyses")

Interrupt = Callable[..., None]
Measure = Callable[..., TrialResult]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def measure(tmp_path: Path, fake_nsys: FakeNsys, without_pages: None, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Compare two commits; afterwards nothing is left of it but the runs."""
    # a folder of its own: other tests compare commits at the same time
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    fake_nsys(export=SMALL)

    def run(base: str = "HEAD~1", head: str = "HEAD", pairs: int = 3, **asked: Any) -> TrialResult:
        request = Request(nsys=tmp_path / "fake" / "nsys", progress=progress_into(messages), calibrate=False, names=())
        settings = asked.pop("settings", Settings())
        build = asked.pop("build", "")
        given = replace(ProgramRequest("train.py", (), sys.executable), **asked)
        trial = Trial(given, tmp_path / "reports", request, "nsys", build=build)
        before: tuple[object, ...] = (dict(os.environ), Path.cwd(), [])
        try:
            return compare_commits(trial, base, head, pairs, settings=lambda _: settings)
        finally:
            assert (dict(os.environ), Path.cwd(), list(temporary.glob("nightsight-*"))) == before
            assert len(git(Path.cwd(), "worktree", "list").splitlines()) == 1

    messages: list[str] = []
    run.messages = messages  # type: ignore[attr-defined]
    return run


def gate(trial: TrialResult, name: str) -> "pd.Series[Any]":
    changes = trial.comparison.changes
    return changes[(changes["kind"] == "gate") & (changes["name"] == name)].iloc[0]


@pytest.mark.nightly
def test_a_slower_commit_is_found_by_runs_in_turns(
    repository: Path, measure: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each side is built, imports its own modules, and finds the kernels that the other side has compiled.

    Its modules, though those of the checkout are on the search path, as those of an editable installation are.
    """
    fake, seen = tmp_path / "fake" / "nsys", tmp_path / "seen"
    code = f"""
import model, os
with open({str(seen)!r}, "a") as file:
    print(os.path.dirname(model.__file__), os.environ["TRITON_CACHE_DIR"], file=file)
"""
    texts = [program(fake, factor, before=code) for factor in (1.0, 1.1)]
    committed(repository, {"bench/train.py.in": texts[0], "src/model.py": "", ".gitignore": "*.py[co]"}, "base")
    head = {"bench/train.py.in": texts[1], "src/model.py": "import other", "src/other.py": ""}
    committed(repository, head, "slower")
    monkeypatch.setenv("PYTHONPATH", f"{repository / 'src'}{os.pathsep}/elsewhere")
    trial = measure(pairs=9, target="bench/train.py", build="cp bench/train.py.in bench/train.py")
    row = gate(trial, "step_ns")
    assert row["verdict"] == "regressed"
    assert row["change_pct"] == pytest.approx(10, abs=1)
    assert trial.comparison.decision.status == 1
    assert trial.comparison.is_paired
    # ten times the noise is settled at the first look
    assert "Stopped after 3 of 9 pairs: every deciding metric is settled." in trial.comparison.notes
    runs = [json.loads((folder / "run.json").read_text()) for folder in (*trial.baseline, *trial.candidate)]
    assert {run["series"] for run in runs} == {trial.series}
    assert [run["side"] for run in sorted(runs, key=lambda run: run["order"])] == [
        BASELINE, CANDIDATE, CANDIDATE, BASELINE, BASELINE, CANDIDATE,
    ]  # fmt: skip
    commits = git(repository, "log", "--format=%h", "--abbrev=12").split()
    assert [run["commit"] for run in runs] == [commits[1]] * 3 + [commits[0]] * 3
    # a run of each side comes before, does not count, and leaves nothing; one after finds no losses to compare
    assert len((tmp_path / "fake/runs").read_text()) == 9
    assert not any(path.name.startswith("warm-up") for path in (tmp_path / "reports").iterdir())
    assert not measure.messages[0].startswith("The checkout")  # type: ignore[attr-defined]
    modules, caches = zip(*(line.split() for line in seen.read_text().splitlines()), strict=True)
    assert [modules.count(module) for module in dict.fromkeys(modules)] == [5, 4]
    assert not any(module.startswith(str(repository)) for module in modules)
    assert len(set(caches)) == 1
    assert not (repository / "bench" / "train.py").exists()


@pytest.mark.nightly
def test_a_commit_compared_with_itself_is_the_noise_of_the_machine(
    repository: Path, measure: Measure, tmp_path: Path
) -> None:
    fake = tmp_path / "fake/nsys"
    committed(repository, {"train.py": program(fake, 1.0)}, "base")
    (repository / "train.py").write_text(program(fake, 1.2))
    trial = measure("HEAD", "")
    assert gate(trial, "step_ns")["verdict"] == "unchanged"
    # HEAD is what was committed, and that is said
    assert trial.comparison.notes[-1].startswith("The checkout has changes that are not committed: they were not")
    assert trial.comparison.noise == ""
    (row,) = map(json.loads, (tmp_path / "reports/train/noise.jsonl").read_text().splitlines())
    assert (row["pairs"], row["flagged"]) == (3, 0)
    assert 0 < row["spread_pct"]["step_ns"] < 1
    # a line that was cut, and one of another machine
    with (tmp_path / "reports/train/noise.jsonl").open("a") as file:
        file.write(json.dumps({**row, "machine": "another"}) + '\n{"machine": "')
    again = measure("HEAD", "", 1).comparison.noise
    assert again.startswith("1 comparison of unchanged code on this machine: 0 flagged; pairs differ by (standard")
    assert len((tmp_path / "reports/train/noise.jsonl").read_text().splitlines()) == 4
    measured_noise = noise_of(tmp_path / "reports", "train", row["machine"])
    assert measured_noise.text.startswith("2 comparisons of unchanged code")
    assert measured_noise.spread_pct["step_ns"] == pytest.approx(row["spread_pct"]["step_ns"], rel=0.9)


@pytest.mark.nightly
def test_the_checkout_as_it_is(repository: Path, measure: Measure, tmp_path: Path) -> None:
    fake = tmp_path / "fake/nsys"
    committed(repository, {"train.py": program(fake, 1.0)}, "base")
    (repository / "train.py").write_text(program(fake, 1.2))
    trial = measure("HEAD", ".", 1)
    assert gate(trial, "step_ns")["change_pct"] == pytest.approx(20, abs=1)
    assert not any("not committed" in note for note in trial.comparison.notes)
    assert git(repository, "status", "--porcelain") == "M train.py"


# -- what cannot be measured ------------------------------------------------------------------------------------------


def refused(measure: Measure, *arguments: Any, **asked: Any) -> tuple[str, str]:
    with pytest.raises(NotMeasured) as caught:
        measure(*arguments, **asked)
    assert caught.value.exit_code == 3
    return caught.value.message, caught.value.hint


TRAINING = """import torch
weight = torch.ones(1, requires_grad=True)
for step in range(3):
    (weight * {factor}).sum().backward()
"""


@pytest.mark.parametrize(("factor", "status"), [(2.0, 0), (2.01, 0), (3.0, 1)])
def test_a_commit_that_computes_something_else_is_a_regression(
    factor: float, status: int, repository: Path, measure: Measure, tmp_path: Path, torch_python: str
) -> None:
    committed(repository, {"train.py": TRAINING.format(factor=2.0)}, "base")
    committed(repository, {"train.py": f"{TRAINING.format(factor=factor)}# head\n"}, "head")
    comparison = measure(pairs=1, python=torch_python).comparison
    notes = " ".join(comparison.notes)
    if status:
        assert comparison.decision.status == 1
        assert comparison.decision.line.startswith(
            "regression: results different since value 1 of 3: 3 against 2 of the baseline"
        )
        assert "rong: results different since value 1 of 3" in comparison.sentence
    else:
        assert ("Results are equal: 3 values." in notes) == (factor == 2.0)
        assert ("Results agree: 3 values differ by 0.5 %" in notes) == (factor == 2.01)
    assert not [*(tmp_path / "reports").glob("results-*")]


def test_a_base_that_does_not_build(repository: Path, measure: Measure) -> None:
    committed(repository, {"train.py": ""}, "base")
    committed(repository, {"Makefile": "all:\n\ttrue\n"}, "head")
    message, hint = refused(measure, build="echo compiling; test -f Makefile")
    assert message == "baseline (HEAD~1) does not build: the --build command ended with exit status 1"
    assert hint == "Its last lines:\ncompiling"


def test_a_workload_that_one_side_lacks(repository: Path, measure: Measure) -> None:
    committed(repository, {"README": ""}, "base")
    committed(repository, {"train.py": ""}, "head")
    message, hint = refused(measure)
    assert message == "baseline (HEAD~1) cannot run: script train.py does not exist"
    assert hint.startswith("It is in the checkout, but not in that commit")
    assert refused(measure, target="nothing")[0] == "baseline (HEAD~1) cannot run: unknown workload 'nothing'"


def test_a_script_that_is_not_committed(repository: Path, measure: Measure) -> None:
    committed(repository, {"README": ""}, "base")
    (repository / "train.py").write_text("")
    message, _ = refused(measure, "HEAD", "HEAD", target=str(repository / "train.py"))
    assert message == "train.py is not in baseline (HEAD)"


def test_a_ref_that_does_not_exist(repository: Path, measure: Measure) -> None:
    committed(repository, {"train.py": ""}, "base")
    assert refused(measure, "nowhere")[0] == "this repository has no commit 'nowhere'"
    assert refused(measure, "--help")[0] == "this repository has no commit '--help'"


def test_a_folder_that_is_in_no_repository(
    repository: Path, measure: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(repository, {"train.py": ""}, "base")
    trial = Trial(ProgramRequest("train.py", (), "python3"), tmp_path, Request())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotMeasured, match="this folder is not in a git repository"):
        compare_commits(trial, "HEAD", "HEAD", 1, settings=lambda _: Settings())


def test_a_program_that_fails_on_one_side(repository: Path, measure: Measure, tmp_path: Path) -> None:
    committed(repository, {"train.py": program(tmp_path / "fake/nsys", 1.0)}, "base")
    committed(repository, {"train.py": "raise SystemExit('out of memory')"}, "head")
    message, hint = refused(measure)
    assert message == "candidate (HEAD) could not be measured: train ended with exit status 1"
    # what the hint names is there
    assert "out of memory" in (Path(hint.removeprefix("Its output: ")) / "profile.log").read_text()


def test_a_program_that_did_not_begin_leaves_no_folder(
    repository: Path, measure: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(plan: Plan, request: Request) -> None:
        (plan.reports / "train" / "1" / "log").mkdir(parents=True)
        raise CaptureError("nothing was begun")

    monkeypatch.setattr(trials, "warm_up", refuse)
    committed(repository, {"train.py": ""}, "base")
    message, _ = refused(measure, "HEAD", "HEAD")
    assert message == "baseline (HEAD) could not be measured: nothing was begun"
    assert list((tmp_path / "reports").iterdir()) == []


def test_a_run_of_which_nothing_was_measured(
    repository: Path, measure: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a program without torch under torch.profiler: a gate that measured nothing has not passed."""

    def empty(*report: Any, **place: Any) -> Measures:
        measured = measures(*report, **place)
        return replace(measured, table=measured.table.assign(value=0.0))

    monkeypatch.setattr(trials, "measures", empty)
    committed(repository, {"train.py": program(tmp_path / "fake/nsys", 1.0)}, "base")
    message, _ = refused(measure, "HEAD", "HEAD")
    assert message == "nothing was measured for baseline (HEAD): its report has no step and no GPU work"


@pytest.mark.nightly
def test_an_interrupt_leaves_nothing_behind_but_the_runs(
    repository: Path, measure: Measure, tmp_path: Path, interrupt: Interrupt
) -> None:
    fake = tmp_path / "fake/nsys"
    code = f"""
import pathlib, time
runs = pathlib.Path({str(fake.with_name("runs"))!r})
if runs.exists() and runs.stat().st_size == 3:
    pathlib.Path({str(tmp_path / "third")!r}).touch()
    time.sleep(60)
"""
    committed(repository, {"train.py": program(fake, 1.0, before=code)}, "base")
    interrupt(tmp_path / "third")
    with pytest.raises(Interrupted) as caught:
        measure("HEAD", "HEAD")
    assert caught.value.message == "interrupted after 1 run"
    assert caught.value.hint == f"1 run is complete and kept: {tmp_path / 'reports'}"


# -- when to look -----------------------------------------------------------------------------------------------------


@given(st.integers(1, 100))
def test_all_looks_together_spend_the_error_rate(pairs: int) -> None:
    shares = looks(pairs)
    assert sum(shares.values()) == pytest.approx(1)
    assert list(shares) == sorted(shares)
    assert list(shares)[-1] == pairs
    assert all(share > 0 for share in shares.values())


def test_looks_are_those_of_the_reference() -> None:
    assert {number: round(0.05 * share, 4) for number, share in looks(10).items()} == {3: 0.01, 5: 0.015, 10: 0.025}
