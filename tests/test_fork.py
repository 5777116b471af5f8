"""Values computed in a copy of the process: they arrive, whatever becomes of the copy."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from nightsight.render import FORMATS
from nightsight.system.fork import compute_in_fork, fork_allowed
from nightsight.workflows.opening import Reading, open_file

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot copy processes")


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


def test_a_value_is_computed_once_in_another_process() -> None:
    with fork_allowed():
        value = compute_in_fork(lambda: (os.getpid(), pd.DataFrame({"a": [1, 2]})))
    assert value is not None
    assert value()[0] != os.getpid()
    assert value()[1] is value()[1]
    assert value()[1]["a"].tolist() == [1, 2]


@pytest.mark.parametrize("end", [lambda: os._exit(3), lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: 1 / 0])
def test_a_copy_that_dies_costs_only_time(end: Callable[[], object]) -> None:
    original = os.getpid()

    def compute() -> int:
        if os.getpid() != original:
            end()
        return 7

    with fork_allowed():
        value = compute_in_fork(compute)
    assert value is not None
    assert value() == 7


def test_only_commands_copy_their_process() -> None:
    assert compute_in_fork(lambda: 7) is None
    with fork_allowed():
        pass
    assert compute_in_fork(lambda: 7) is None


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
    assert copies == [1]
