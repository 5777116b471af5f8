"""`bisect`: the first commit that changed a metric, found by git in a worktree of its own."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.collect.workloads import Request
from nightsight.collect.worktrees import ProgramRequest, find_checkout, worktrees
from nightsight.compare import Settings, compare
from nightsight.errors import NotMeasured, UsageError
from nightsight.model.compare import Comparison
from nightsight.workflows.bisect import (
    BAD,
    GOOD,
    SKIP,
    FirstBad,
    _first_bad,
    _StepInput,
    choose_metric,
    find_first_bad,
    judge,
    measure_ends,
)
from nightsight.workflows.trials import BASELINE, CANDIDATE, Trial
from tests.measured import run
from tests.repositories import SMALL, committed, git, program
from tests.test_cli import FakeNsys

Find = Callable[..., FirstBad]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def trial(tmp_path: Path, fake_nsys: FakeNsys, without_pages: None) -> Trial:
    fake_nsys(export=SMALL)
    request = Request(nsys=tmp_path / "fake" / "nsys", calibrate=False, names=())
    return Trial(ProgramRequest("train.py", (), sys.executable), tmp_path / "reports", request, "nsys")


@pytest.fixture
def find(trial: Trial) -> Find:
    """Look for a commit; the repository is afterwards as it was."""

    def look(good: str, bad: str, metric: str = "") -> FirstBad:
        before = state()
        try:
            return find_first_bad(trial, (good, bad), metric, 3, settings=lambda _: Settings())
        finally:
            assert state() == before

    def state() -> tuple[str, ...]:
        commands = (
            ("status", "--porcelain", "--branch"),
            ("worktree", "list"),
            ("for-each-ref",),
            ("rev-parse", "HEAD"),
        )
        return tuple(git(Path.cwd(), *words) for words in commands)

    return look


@pytest.mark.nightly
def test_the_first_bad_commit_is_found_and_others_are_skipped(repository: Path, find: Find, tmp_path: Path) -> None:
    fake = tmp_path / "fake" / "nsys"
    texts = [program(fake, 1.0), program(fake, 1.1), "raise SystemExit(1)", program(fake, 1.1, before="import json")]
    commits = [committed(repository, {"train.py": text}, f"commit {place}") for place, text in enumerate(texts)]
    (repository / "untracked").write_text("mine")
    first_bad = find(commits[0], "HEAD")
    assert (first_bad.commit, first_bad.subject) == (commits[1][:12], "commit 1")
    assert first_bad.metric in {"step_ns", "kernel_ns"}
    assert "%)" in first_bad.sentence
    assert (repository / "untracked").read_text() == "mine"
    # the ends are kept, the steps are not
    assert len(list((tmp_path / "reports/train").glob("2*"))) == 6


# what it finds, `test_what_cannot_be_halved_is_reported` finds too
@pytest.mark.nightly
def test_ends_that_do_not_differ_are_not_reproduced(repository: Path, find: Find, tmp_path: Path) -> None:
    fake = tmp_path / "fake" / "nsys"
    for place in range(3):
        committed(repository, {"train.py": program(fake, 1.0, before=f"# {place}")}, f"commit {place}")
    with pytest.raises(NotMeasured) as caught:
        find("HEAD~2", "HEAD")
    assert caught.value.message.startswith("not reproduced: HEAD~2 and HEAD do not differ: ")
    assert "step_ns" in caught.value.message


def test_commits_that_cannot_be_measured_can_hide_the_first_bad_one(repository: Path, trial: Trial) -> None:
    good, _, bad = (committed(repository, {"train.py": f"raise SystemExit({place})"}, "commit") for place in range(3))
    checkout = find_checkout()
    with worktrees(checkout, {BASELINE: good, CANDIDATE: bad}, python=trial.program.python) as sides:
        state = _StepInput(trial, checkout, sides[BASELINE], sides[CANDIDATE], "step_ns", 0.1, pairs=3)
        with pytest.raises(NotMeasured) as caught:
            _first_bad(state, good, bad)
    assert caught.value.message == "commits that could not be measured hide the first bad one"


def test_a_metric_that_does_not_exist_is_refused_before_anything_runs(repository: Path, find: Find) -> None:
    committed(repository, {"train.py": ""}, "base")
    with pytest.raises(UsageError, match="unknown metric 'speed'") as caught:
        find("HEAD", "HEAD", "speed")
    assert "step_ns" in caught.value.hint


def ends(before: float, after: float) -> Comparison:
    sides = [[run({"step_ns": 1e6, "copies": value}) for _ in range(3)] for value in (before, after)]
    return compare(*sides, settings=Settings())


@pytest.mark.parametrize(
    ("before", "after", "metric", "message"),
    [
        (0.0, 3.0, "copies", "copies is 0 at good, so no ratio can tell good from bad commits"),
        (3.0, 0.0, "copies", "copies is 0 at bad, so no ratio can tell good from bad commits"),
        (0.0, 0.0, "copies", "not reproduced: good and bad do not differ: copies is 0 (unchanged)"),
        (3.0, 3.0, "launches", "launches was not measured in these runs"),
        (3.0, 3.0, "", "not reproduced: good and bad do not differ: step_ns +0.00 % (unchanged)"),
    ],
)
def test_what_cannot_be_halved_is_reported(before: float, after: float, metric: str, message: str) -> None:
    with pytest.raises(NotMeasured) as caught:
        choose_metric(ends(before, after), Settings(), metric, ("good", "bad"))
    assert caught.value.message == message
    assert caught.value.hint


QUIET, NOISY = (30.0, 27.0, 72.0, 30.0, 33.0, 65.0), (0.09, 27.0, 72.0, 30.0, 0.1, 65.0)


@pytest.mark.parametrize(
    ("before", "after", "pairs", "metric"),
    [(QUIET, 360.0, 3, "step_ns"), (NOISY, 360.0, 6, "step_ns"), (NOISY, 31.0, 6, ""), ((30.0,) * 6, 30.0, 3, "")],
)
def test_twice_as_many_pairs_settle_what_the_first_leave_open(
    before: tuple[float, ...], after: float, pairs: int, metric: str
) -> None:
    """Runs of a good commit took from 0.1 to 72 ms, those of the bad one 360."""
    runs: Any = SimpleNamespace(workload="mlp", measured={"baseline": [], "candidate": []})

    def measure_pairs(*_: object, pairs: int) -> None:
        for order in range(len(runs.measured["baseline"]), pairs):
            for number, (side, step) in enumerate((("baseline", before[order]), ("candidate", after + order / 100))):
                place: dict[str, Any] = {"series": "s", "side": side, "order": 2 * order + number}
                runs.measured[side].append(run({"step_ns": 1e6 * step}, **place))

    runs.measure_pairs = lambda *sides: measure_pairs(pairs=sides[-1])
    sides: Any = {"baseline": None, "candidate": None}
    chosen, comparison = measure_ends(runs, sides, 3, "", settings=lambda _: Settings())
    assert len(comparison.baseline) == pairs
    if metric:
        assert choose_metric(comparison, chosen, "", ("good", "bad")) == metric
        return
    with pytest.raises(NotMeasured) as caught:
        choose_metric(comparison, chosen, "", ("good", "bad"))
    is_open = before is NOISY
    assert ("it is unknown whether good and bad differ" in caught.value.message) == is_open
    assert ("good and bad do not differ" in caught.value.message) != is_open
    assert caught.value.hint


def test_a_time_is_looked_at_before_a_count() -> None:
    sides = [[run({"step_ns": step, "launches": 40.0 * step / 1e6}) for _ in range(3)] for step in (1e6, 1.2e6)]
    assert choose_metric(compare(*sides, settings=Settings()), Settings(), "", ("good", "bad")) == "step_ns"
    counts = [[run({"step_ns": 1e6, "launches": launches}) for _ in range(3)] for launches in (40.0, 50.0)]
    assert choose_metric(compare(*counts, settings=Settings()), Settings(), "", ("good", "bad")) == "launches"


def test_the_checkout_as_it_is_has_no_history(repository: Path, find: Find) -> None:
    committed(repository, {"train.py": ""}, "base")
    with pytest.raises(UsageError, match="bisect needs two commits"):
        find("HEAD", ".")


# -- what a step says -------------------------------------------------------------------------------------------------


def judge_commit(effect: float, ratios: Callable[[int], list[float]]) -> tuple[int, int]:
    asked = []

    def measure(number: int) -> list[float]:
        asked.append(number)
        return ratios(number)

    state: Any = SimpleNamespace(effect=effect, pairs=3, metric="step_ns")
    return judge(state, measure)[0], asked[-1]


@given(st.floats(0.01, 1), st.floats(-1, 2), st.booleans())
def test_a_commit_is_bad_beyond_half_of_the_effect(effect: float, place: float, is_faster: bool) -> None:
    sign = -1 if is_faster else 1
    if abs(place - 0.5) > 0.1:
        noise = [0.0, 0.001 * effect, -0.001 * effect] * 2
        status, _ = judge_commit(
            sign * effect, lambda number: [sign * effect * place + error for error in noise[:number]]
        )
        assert status == (BAD if place > 0.5 else GOOD)


def test_twice_as_many_pairs_decide_what_three_do_not() -> None:
    wide = [0.0, 0.1, 0.2]
    assert judge_commit(0.1, lambda number: wide if number == 3 else [0.1] * 6) == (BAD, 6)
    assert judge_commit(0.1, lambda _: wide) == (SKIP, 6)
    assert judge_commit(0.1, lambda _: [0.1, 0.1001, 0.1002]) == (BAD, 3)


def test_a_metric_that_is_gone_cannot_be_judged() -> None:
    with pytest.raises(NotMeasured):
        judge_commit(math.log(2), lambda _: [])
