"""The hook that names what a program does: in real programs, on a torch without CUDA, with an NVTX that takes notes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nightsight.collect.names import annotation_of
from nightsight.collect.workloads import Program, Request
from nightsight.read.nsys.names import OF_HOOK

# a torch without CUDA has no NVTX: this one notes what it is told, as soon as torch is imported
NVTX = """
import importlib.abc, json, os, sys, time

class Notes(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "torch.cuda.nvtx":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def change(module):
            load(module)
            ranges, depth = [], [0]
            def push(text):
                ranges.append([depth[0], text])
                depth[0] += 1
                time.sleep({slow})
            def pop():
                depth[0] -= 1
            module.range_push, module.range_pop = push, pop
            module.mark = lambda text: ranges.append([-1, text])
            import atexit
            atexit.register(lambda: open(os.environ["RANGES"], "w").write(json.dumps([ranges, depth[0]])))
        spec.loader.exec_module = change
        return spec

import importlib.util
sys.meta_path.insert(0, Notes())
"""
PROGRAM = """
import torch
model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(2)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(24, 8))
for (batch,) in torch.utils.data.DataLoader(data, batch_size=4):
    model(batch).sum().backward()
    optimizer.step()
print("done")
"""
STEPS = 6


Run = Callable[..., list[list[Any]]]


@pytest.fixture
def run(tmp_path: Path, torch_python: str) -> Run:
    """Run a program with our hook as the collector puts it there; return the ranges that it made: depth and name."""

    def start(
        code: str,
        *names: str,
        nvtx: str | None = NVTX,
        slow: float = 0.0,
        known: str = "",
        python: str = torch_python,
    ) -> list[list[Any]]:
        script, file = tmp_path / "train.py", tmp_path / "ranges.json"
        script.write_text((nvtx or "").replace("{slow}", str(slow)) + code)
        program = Program("train", "script", (python, str(script)))
        environment = annotation_of(program, Request(names=names or None), help_text=known).environment
        done = subprocess.run(
            program.command,
            env={**os.environ, **environment, "RANGES": str(file)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "done", "")
        if nvtx is None:
            return []
        ranges, left_open = json.loads(file.read_text())
        assert left_open == 0
        return [[depth, name] for depth, name in ranges if name != f"{OF_HOOK}cost"]

    return start


def test_every_module_step_and_batch_has_a_range(run: Run) -> None:
    # the hook waits for a real import of torch
    ranges = run(PROGRAM, "modules", python=sys.executable)
    counts = {name: [own for _, own in ranges].count(name) for _, name in ranges}
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    functions = {"Optimizer.step#SGD.step": STEPS, "torch.autograd.backward": STEPS, loader: STEPS + 1}
    modules = {name: count for name, count in counts.items() if name not in functions}
    assert {name: counts.get(name) for name in functions} == functions
    # the model, its two parts, and what they consist of
    assert len(modules) == 7
    assert set(modules.values()) == {STEPS}
    assert all(name.startswith("nn.Module: ") for name in modules)
    assert [depth for depth, name in ranges if name in modules][:7] == [0, 1, 2, 2, 1, 2, 2]


def test_what_pytorch_names_itself_is_not_named_twice(run: Run) -> None:
    ranges = run(PROGRAM, "modules", "shapes", known="--pytorch=")
    names = {name for _, name in ranges if not name.startswith("nn.Module: ")}
    assert names == {"torch.autograd.backward"}


@pytest.mark.nightly
def test_inner_modules_are_left_out_if_they_cost_too_much(run: Run) -> None:
    ranges = run(PROGRAM, slow=0.002)
    (mark,) = [name for depth, name in ranges if depth == -1]
    assert mark.startswith(f"{OF_HOOK}modules, 0 of 3 levels, 0 of 14 calls, ")
    modules = [name for _, name in ranges if name.startswith("nn.Module: ")]
    # three steps are named to find that out
    assert len(modules) == 3 * 7
    assert [name for _, name in ranges].count("Optimizer.step#SGD.step") == STEPS


@pytest.mark.nightly
def test_all_modules_are_named_if_they_cost_little(run: Run) -> None:
    slow = PROGRAM.replace("optimizer.step()", "optimizer.step(); import time; time.sleep(0.1)")
    ranges = run(slow)
    (mark,) = [name for depth, name in ranges if depth == -1]
    assert mark.startswith(f"{OF_HOOK}modules, 3 of 3 levels, 14 of 14 calls, ")
    assert len([name for _, name in ranges if name.startswith("nn.Module: ")]) == STEPS * 7


def test_an_exception_closes_every_range(run: Run) -> None:
    code = """
import torch

class Broken(torch.nn.Module):
    def forward(self, x):
        raise ValueError

class Failing(torch.optim.SGD):
    def step(self, closure=None):
        raise KeyError

broken = torch.nn.Sequential(torch.nn.Linear(2, 2), Broken())
for _ in range(6):
    try:
        broken(torch.ones(2))
    except ValueError:
        pass
    try:
        Failing(broken.parameters(), lr=1).step()
    except KeyError:
        pass
    try:
        torch.ones(2).sum().backward()
    except RuntimeError:
        pass
print("done")
"""
    ranges = run(code, "modules")
    counts = [name for _, name in ranges]
    assert (counts.count("nn.Module: Sequential"), counts.count("Optimizer.step#Failing.step")) == (6, 6)
    assert counts.count("torch.autograd.backward") == 6


@pytest.mark.parametrize("names", [(), ("modules",)])
def test_a_torch_without_nvtx_runs_as_before(run: Run, names: tuple[str, ...]) -> None:
    run(PROGRAM + "\nassert torch.nn.Module.__call__.__name__ != 'called'\n", *names, nvtx=None)


def test_a_program_without_torch_runs_as_before_and_so_does_its_own_sitecustomize(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 'done'\n")
    monkeypatch.setenv("PYTHONPATH", str(own))
    run("print(mine)", nvtx=None)
