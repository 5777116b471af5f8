"""Values computed in a copy of the process: they arrive, whatever becomes of the copy."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from nightsight.render import FORMATS
from nightsight.system import fork
from nightsight.system.fork import compute_in_fork, fork_allowed, running
from nightsight.workflows.opening import Reading, open_file

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot copy processes")


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(fork, "running", lambda: 1)


def test_values_are_computed_once_in_another_process() -> None:
    with fork_allowed():
        first, second = compute_in_fork(lambda: (os.getpid(), pd.DataFrame({"a": [1, 2]})), os.getpid)
    # in any order
    assert second() == first()[0] != os.getpid()
    assert first()[1] is first()[1]
    assert first()[1]["a"].tolist() == [1, 2]


def test_a_value_can_be_had_before_the_next_is_computed(tmp_path: Path) -> None:
    had = tmp_path / "had"

    def wait() -> int:
        while not had.exists():
            time.sleep(0.001)
        return 2

    with fork_allowed():
        first, second = compute_in_fork(lambda: "x" * 1_000_000, wait)
    assert len(first()) == 1_000_000
    had.touch()
    assert second() == 2


@pytest.mark.parametrize("end", [lambda: os._exit(3), lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: 1 / 0])
def test_a_copy_that_dies_costs_only_time(end: Callable[[], object]) -> None:
    original = os.getpid()

    def compute() -> int:
        if os.getpid() != original:
            end()
        return 7

    with fork_allowed():
        before, value, after = compute_in_fork(os.getpid, compute, os.getpid)
    assert before() != original
    assert value() == 7
    assert after() == original


def test_only_commands_copy_their_process() -> None:
    assert compute_in_fork(lambda: 7) == ()
    with fork_allowed():
        pass
    assert compute_in_fork(lambda: 7) == ()


def test_nothing_is_copied_while_others_use_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork, "running", lambda: 2)
    with fork_allowed():
        assert compute_in_fork(lambda: 7) == ()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
def test_at_least_this_process_runs() -> None:
    assert running() >= 1


@pytest.mark.parametrize("style", ["html", "json", "markdown"])
def test_a_report_is_the_same_with_and_without_a_copy(
    style: str, capture_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rendered() -> dict[str, bytes]:
        form = FORMATS[style]
        return form.render(open_file(capture_file("train"), form, Reading(None, 1 << 30, lambda *_, **__: None)))

    copies = list[int]()
    original = os.fork

    def counted() -> int:
        copies.append(1)
        return original()

    monkeypatch.setattr(os, "fork", counted)
    alone = rendered()
    with fork_allowed():
        assert rendered() == alone
    # one reads, the other analyzes
    assert copies == [1, 1]
