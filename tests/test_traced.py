"""Programs under the real torch.profiler: their steps, schedules, ranges and modules, and however they end."""

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


@dataclass(frozen=True)
class Run:
    """How a program ended, its output, the facts that were left, and the events of each trace."""

    status: int
    output: str
    facts: dict[str, Any]
    traces: list[list[dict[str, Any]]]

    def names(self, *kinds: str, trace: int = 0) -> Counter[str]:
        """Count the events of these kinds by name, but for what torch adds to an optimizer's."""
        return Counter(
            event["name"]
            for event in self.traces[trace]
            if event.get("cat") in kinds and event.get("ph") == "X" and "#SGD." not in event["name"]
        )


@pytest.fixture
def run(tmp_path: Path, script: Callable[..., Path], torch_python: str) -> Callable[..., Run]:
    """Run a program under workloads/traced.py."""

    def start(code: str, *options: str) -> Run:
        facts = tmp_path / "facts.json"
        command = [torch_python, ROOT / "workloads/traced.py", "--out", tmp_path / "t.json.gz", "--facts", facts]
        done = subprocess.run(
            [*map(str, command), *options, "--", str(script(code))],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        left = json.loads(facts.read_text())
        files = [tmp_path / name for name, _ in left["traces"]]
        assert sorted(tmp_path.glob("*.gz")) == sorted(files)
        traces = [json.loads(gzip.decompress(file.read_bytes()))["traceEvents"] for file in files]
        return Run(done.returncode, done.stdout + done.stderr, left, traces)

    return start


MODEL = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
x = torch.ones(2, 4)
"""
TRAINING = f"""{MODEL}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    (model(x) + model(x)).sum().backward()
    optimizer.step()
    print("did", step)
"""
INFERENCE = f"""{MODEL}
loss, shift = torch.nn.L1Loss(), torch.nn.ReLU()
for step in range(6):
    loss(model(shift(x)), x)
"""
RIVALS = f"""{MODEL}
first, second = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
for step in range(3):
    for optimizer in (first, second, second):
        model(x).sum().backward()
        optimizer.step()
"""
RANGES = f"""{MODEL}
import nvtx
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    with torch.profiler.record_function(f"train_step {{step}}"):
        with nvtx.annotate("draw", domain="data"):
            x = torch.tanh(x)
        nvtx.push_range("forward")
        y = model(x)
        nvtx.pop_range()
        y.sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("code", "options", "expected"),
    [
        (TRAINING, (), (6, "optimizer", "SGD")),
        (RIVALS, (), (3, "optimizer", "SGD")),
        (INFERENCE, (), (6, "module", "Sequential")),
        (RANGES, (), (6, "range", "train_step")),
        (RANGES, ("--step-range=data:draw",), (6, "range", "data:draw")),
        (RANGES, ("--step-range=absent",), (0, "", "")),
    ],
)
def test_steps_are_found(
    run: Callable[..., Run], code: str, options: tuple[str, ...], expected: tuple[int, str, str]
) -> None:
    done = run(code, *options)
    assert done.status == 0
    assert (done.facts["steps"], done.facts["by"], done.facts["of"]) == expected
    # what ends them is in the trace, unless the program has ranges for them; the first begins with the program
    numbered = [name for name in done.names("user_annotation") if name.startswith("ProfilerStep#")]
    assert len(numbered) == {"optimizer": expected[0], "module": expected[0] - 1}.get(expected[1], 0)


def test_a_schedule_records_its_steps_and_ends_the_program(run: Callable[..., Run]) -> None:
    done = run(TRAINING, "--schedule", "1", "1", "2", "1")
    assert (done.status, done.facts["traces"]) == (0, [["t.json.gz", 2]])
    assert "did 2" in done.output
    assert "did 3" not in done.output
    assert done.names("cpu_op")["aten::addmm"] == 4
    assert done.names("user_annotation") == {"ProfilerStep#2": 1, "ProfilerStep#3": 1}


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [("0 1 2 2", [2, 2]), ("0 0 2 0", [2, 2, 2]), ("1 1 9 1", [4]), ("0 1 3 0", [3, 1]), ("5 2 1 1", [])],
)
def test_each_cycle_leaves_a_trace_and_what_is_left_of_a_short_program_is_kept(
    run: Callable[..., Run], schedule: str, steps: list[int]
) -> None:
    done = run(TRAINING, "--schedule", *schedule.split())
    assert done.status == 0
    assert [count for _, count in done.facts["traces"]] == steps
    assert [done.names("cpu_op", trace=n)["aten::addmm"] for n in range(len(steps))] == [2 * count for count in steps]


def test_nothing_is_recorded_in_a_range_that_is_left_out(run: Callable[..., Run]) -> None:
    done = run(RANGES, "--schedule", "1", "1", "3", "1", "--skip-range", "data:draw", "--skip-range", "absent")
    assert done.facts["skipped"] == {"data:draw": 3, "absent": 0}
    operators = done.names("cpu_op")
    assert operators["aten::tanh"] == 0
    assert operators["aten::addmm"] == 3
    steps = {f"train_step {step}": 1 for step in (2, 3, 4)}
    assert done.names("user_annotation") == {**steps, "data:draw": 3, "forward": 3}


@pytest.mark.nightly
def test_everything_that_can_be_recorded(run: Callable[..., Run]) -> None:
    code = f"""{MODEL}
import threading
model(x)
def work():
    with torch.profiler.record_function("apart"):
        torch.tanh(x)
for target in (work, work, lambda: None):
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
"""
    done = run(code, "--record", "shapes,stack,memory,modules,sync", "--activities", "cpu")
    (product,) = (event for event in done.traces[0] if event["name"] == "aten::addmm")
    assert product["args"]["Input Dims"] == [[4], [2, 4], [4, 4], [], []]
    assert done.names("cpu_op")["aten::tanh"] == 0
    assert (done.facts["threads"], done.facts["ranged"]) == (3, 2)
    kinds = {event.get("cat") for event in done.traces[0]} | {event["name"] for event in done.traces[0]}
    assert {"python_function", "[memory]"} <= kinds
    modules = {name: count for name, count in done.names("cpu_op").items() if name.startswith("nn.Module: ")}
    assert modules == {"nn.Module: Sequential": 1, "nn.Module: Sequential.0": 1, "nn.Module: Sequential.1": 1}
    assert run(code, "--record", "threads").names("cpu_op")["aten::tanh"] == 2


def test_the_program_may_use_the_profiler_itself(run: Callable[..., Run], tmp_path: Path) -> None:
    code = """
import torch
from torch.profiler import ProfilerActivity, profile, schedule
torch.ones(3).tan()
plan = schedule(wait=0, warmup=1, active=2, repeat=1)
def save(own):
    own.export_chrome_trace("o.json")

own = profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=save)
with own:
    for _ in range(4):
        torch.ones(3).sin()
        own.step()
with profile(activities=[ProfilerActivity.CPU]) as last:
    torch.ones(3).cos()
print(len(last.key_averages()), "averages")
"""
    done = run(code, "--record", "shapes")
    assert done.status == 0, done.output
    assert done.output.count("uses torch.profiler itself") == 1
    assert "4 averages" in done.output
    assert done.facts["own_profiler"] is True
    wanted = ["aten::tan", "aten::sin", "aten::cos"]
    assert [[names[name] for name in wanted] for names in (done.names("cpu_op", trace=n) for n in range(3))] == [
        [1, 0, 0],
        [0, 2, 0],
        [0, 0, 1],
    ]
    assert json.loads((tmp_path / "o.json").read_text())["traceEvents"]


def test_forks_end_as_they_would_and_what_ends_at_once_leaves_its_trace(run: Callable[..., Run]) -> None:
    code = """
import os, sys, torch
torch.ones(3).tan()
def fork(end):
    child = os.fork()
    if child == 0:
        torch.ones(3).sin()
        end()
        sys.exit()
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
fork(lambda: None)
fork(lambda: sys.exit(3))
fork(lambda: 1 / 0)
fork(lambda: os._exit(4))
torch.ones(3).cos()
os._exit(5)
"""
    done = run(code)
    assert done.status == 5
    assert [line for line in done.output.splitlines() if line.startswith("status")] == [
        f"status {n}" for n in (0, 3, 1, 4)
    ]
    operators = done.names("cpu_op")
    assert [operators[f"aten::{name}"] for name in ("tan", "sin", "cos")] == [1, 0, 1]


def test_a_program_that_is_compiled_and_one_that_fails_are_as_without_it(run: Callable[..., Run]) -> None:
    code = f"""{MODEL}
import warnings
compiled = torch.compile(model, backend="eager", fullgraph=True)
with warnings.catch_warnings():
    warnings.simplefilter("error", UserWarning)
    for _ in range(3):
        compiled(x)

@torch.jit.script
def scripted(x):
    with torch.autograd.profiler.record_function("scripted"):
        return x + 1

scripted(x)
torch.jit.trace(model, x)(x)
model.training = 5 / 0
"""
    done = run(code, "--record", "modules")
    assert done.status == 1
    assert "ZeroDivisionError" in done.output
    assert (done.facts["steps"], done.facts["by"]) == (3, "module")
    assert done.names("user_annotation")["scripted"] == 1
    assert done.names("cpu_op")["nn.Module: Sequential"] >= 3


def test_cuda_where_there_is_none_is_a_usage_error(run: Callable[..., Run], tmp_path: Path) -> None:
    command = [
        sys.executable,
        ROOT / "workloads/traced.py",
        "--out",
        "t.json.gz",
        "--activities",
        "cuda",
        "--",
        __file__,
    ]
    done = subprocess.run([*map(str, command)], cwd=tmp_path, capture_output=True, text=True, check=False, env={})
    assert done.returncode == 2
    assert "torch finds no CUDA device" in done.stderr
