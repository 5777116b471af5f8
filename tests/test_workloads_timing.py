"""How long a workload is timed without a profiler: until its time limit, and an interrupt keeps what was measured."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workloads.contract import WorkloadParser

pytest.importorskip("torch")


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Time steps of a second each by a clock that only they move; return what was written."""
    from workloads import runner  # noqa: PLC0415 (it needs torch)

    def run(*options: str, interrupted_at: int = -1, status: int = 0) -> dict[str, Any]:
        now_s = 0

        def step() -> None:
            nonlocal now_s
            now_s += 1
            if now_s == interrupted_at:
                raise KeyboardInterrupt

        out = tmp_path / "bench.json"
        monkeypatch.setattr(time, "perf_counter_ns", lambda: now_s * 1_000_000_000)
        monkeypatch.setattr(sys, "argv", ["own", "--device", "cpu", "--benchmark", str(out), *options])
        if status:
            with pytest.raises(SystemExit) as ended:
                runner.run(WorkloadParser(""), lambda _: step)
            assert ended.value.code == status
        else:
            runner.run(WorkloadParser(""), lambda _: step)
        document: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
        return document

    return run


@pytest.mark.parametrize(
    ("options", "trials", "steps"),
    [
        # 5 of warm-up do not count; 20 are not done before the limit of 20, and 20 more would not be
        ((), 1, 20),
        (("--iterations", "5"), 3, 5),
        (("--iterations", "5", "--trials", "7"), 4, 5),
        (("--time-limit", "1e6", "--trials", "7"), 7, 20),
        (("--time-limit", "7"), 1, 7),
        (("--time-limit", "0.1"), 1, 1),
    ],
)
def test_trials_end_at_the_time_limit(
    timed: Callable[..., dict[str, Any]], options: tuple[str, ...], trials: int, steps: int
) -> None:
    figures = timed(*options)
    assert figures["step_ns"] == [1e9] * trials
    assert figures["steps_per_trial"] == steps
    assert "time_limit" not in figures["parameters"]


def test_an_interrupt_keeps_the_trials_until_then(timed: Callable[..., dict[str, Any]]) -> None:
    assert timed("--iterations", "5", interrupted_at=9, status=130) == {}, "in the first trial"
    figures = timed("--iterations", "5", interrupted_at=18, status=130)
    assert figures["step_ns"] == [1e9] * 2
