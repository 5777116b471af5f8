"""Loops of a program as steps: which are, what they are called, and when they are left alone."""

import importlib.util
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

MODULE = Path(__file__).parents[1] / "workloads" / "injected" / "loops.py"
BACK, AHEAD = 10, 90


class Monitoring:
    """What the hook uses of `sys.monitoring`, which Python 3.11 lacks; another tool has the first number."""

    PROFILER_ID, DISABLE = 2, object()

    class events:  # noqa: N801 (as in Python)
        JUMP = 8

    def use_tool_id(self, tool: int, _name: str) -> None:
        if tool == 4:
            raise ValueError

    def register_callback(self, tool: int, event: int, callback: Callable[[CodeType, int, int], Any]) -> None:
        assert (tool, event) == (3, self.events.JUMP)
        self.callback = callback

    def set_events(self, tool: int, events: int) -> None:
        assert (tool, events) == (3, self.events.JUMP)


def loaded() -> Any:
    spec: Any = importlib.util.spec_from_file_location("nightsight_loops", MODULE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Watched:
    """The names that were noted, and whether later iterations of a loop are watched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool = True) -> None:
        self.monitoring, self.names = Monitoring(), list[str]()
        monkeypatch.setattr(sys, "monitoring", self.monitoring, raising=False)

        def note(name: str) -> bool:
            self.names.append(name)
            return goes_on

        loaded().watch(note)

    def jump(self, file: str, target: int = BACK) -> bool:
        code = compile("def step(): pass", file, "exec").co_consts[0]
        return self.monitoring.callback(code, 50, target) is not Monitoring.DISABLE


def test_iterations_of_loops_of_the_program_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    assert all(watched.jump(file, target) for _ in range(5) for file, target in (("a.py", 10), ("a.py", 12)))
    assert len(watched.names) == 10
    assert len({*watched.names}) == 2
    # digits would be taken for numbers of steps, and a name must not say where the program is
    assert all(name.startswith("loop ") and name[5:].isalpha() for name in watched.names)


def test_a_loop_has_the_same_name_in_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Watched(monkeypatch), Watched(monkeypatch)
    for watched in (first, second):
        watched.jump("train.py")
    assert first.names == second.names


@pytest.mark.parametrize(
    "file",
    [
        str(Path(sysconfig.get_path("stdlib")) / "json/decoder.py"),
        str(Path(sysconfig.get_path("purelib")) / "torch/nn/modules/module.py"),
        "/elsewhere/lib/python3.12/site-packages/jax/core.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        str(MODULE.parent / "modules.py"),
        "<frozen importlib._bootstrap>",
    ],
)
def test_loops_of_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    watched = Watched(monkeypatch)
    assert not watched.jump(file)
    assert not watched.names


def test_jumps_ahead_are_not_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    assert not watched.jump("train.py", AHEAD)
    assert not watched.names


def test_a_loop_that_is_not_wanted_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, goes_on=False)
    assert not watched.jump("train.py")


def test_a_loop_of_short_iterations_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now[0])
    watched = Watched(monkeypatch)

    def iterations(file: str, each_ns: int) -> int:
        for number in range(40):
            now[0] += each_ns
            if not watched.jump(file):
                return number + 1
        return 40

    assert iterations("sum.py", 2_000) == 20
    assert iterations("step.py", 300_000) == 40


def test_an_older_python_has_no_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "monitoring", raising=False)
    loaded().watch(lambda _: pytest.fail("nothing can call it"))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs sys.monitoring")
def test_a_real_program(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import json, time\n"
        "def train():\n    for step in range(7):\n        time.sleep(0.001)\n"
        "        [json.dumps([number]) for number in range(50)]\n"
        "train()\n"
    )
    code = (
        "import runpy, sys; from collections import Counter; sys.path.insert(0, sys.argv[1]); import loops\n"
        "found = Counter(); loops.watch(lambda name: not found.update([name]))\n"
        "runpy.run_path('train.py'); print(sorted(found.values()))"
    )
    command = [sys.executable, "-c", code, str(MODULE.parent)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[7, 20]\n"
