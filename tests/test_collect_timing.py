"""Times of steps without a profiler: ranges and calls of real programs, and how their times become those of steps."""

import importlib.util
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nightsight.analyze.causes.cost import timed_ns
from nightsight.captures import unprofiled_file
from nightsight.collect.timing import of_benchmark, summarize_ranges, time_ranges
from nightsight.collect.workloads import Program, Request
from nightsight.events.loops import timed_step
from nightsight.events.window import chosen_window
from nightsight.model.report import Benchmark, Profile
from nightsight.runs.unprofiled import from_text, to_text, with_unprofiled
from nightsight.tables import FUNCTION, MODULE, conform
from tests.timeline import draw

HOOK = Path(__file__).parents[1] / "workloads/timed/sitecustomize.py"
Script = Callable[..., Path]


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(captures=tmp_path / "captures", logs=tmp_path / "logs", timeout_s=60, time_steps=True)


def times(code: str, script: Script, request: Request, python: str = sys.executable) -> dict[str, tuple[int, float]]:
    """Run a program and return, by path, how often its ranges began, and the median time between in ms."""
    timed = time_ranges(Program("train", "script", (python, str(script(code)))), request)
    log = (request.logs / "times.log").read_text()
    assert not timed.findings, log
    assert not timed.ranges["on_gpu"].any()
    rows = timed.ranges.astype({"path": "str"}).to_dict("records")
    return {row["path"]: (row["instances"], row["med_ns"] / 1e6) for row in rows}


def test_every_way_to_make_a_range_with_nvtx(script: Script, request_: Request) -> None:
    code = """
import time
import nvtx
from nvtx import annotate

@nvtx.annotate()
def decorated():
    time.sleep(0.001)

nvtx.push_range("run", domain="own")
for i in range(6):
    with annotate(f"step {i}", color="blue"), annotate("inner"):
        decorated()
    time.sleep(0.002)
nvtx.pop_range(domain="own")
for i in range(5):
    nvtx.push_range(message="pushed")
    time.sleep(0.001)
    nvtx.pop_range()
for i in range(4):
    with nvtx.annotate("in a domain", domain="own"):
        time.sleep(0.001)
for i in range(4):
    nvtx.end_range(nvtx.start_range("started"))
    time.sleep(0.001)
for i in range(3):
    decorated()
try:
    with annotate("broken"):
        raise ValueError
except ValueError:
    pass
with annotate("last"):
    pass
"""
    timed = times(code, script, request_)
    assert {path: count for path, (count, _) in timed.items()} == {
        "own:run / step #": 6,
        "pushed": 5,
        "own:in a domain": 4,
        "started": 4,
        "decorated": 3,
    }
    assert timed["own:run / step #"][1] >= 3.0
    # a busy machine sleeps longer, never shorter
    assert timed["pushed"][1] >= 1.0


def test_ranges_of_torch(script: Script, request_: Request, torch_python: str) -> None:
    code = """
import time
import torch
# a build without CUDA refuses: what matters is which functions are called
torch.cuda.nvtx._nvtx = type("Nvtx", (), {"rangePushA": lambda _: 0, "rangePop": lambda: 0, "rangeStartA": lambda _: 1})
for i in range(4):
    torch.cuda.nvtx.range_push(f"step {i}")
    torch.zeros(10).add_(1)
    torch.cuda.nvtx.range_pop()
for i in range(3):
    with torch.cuda.nvtx.range("batch {}", i):
        time.sleep(0.001)
for i in range(3):
    torch.cuda.nvtx.range_start("open")
"""
    assert {path: count for path, (count, _) in times(code, script, request_, torch_python).items()} == {
        "step #": 4,
        "batch #": 3,
        "open": 3,
    }


# a program as people write them; `epoch` and the optimizer in it are what a program with ranges has
_OF_TORCH = """
import time, nvtx, torch
from torch.optim import LBFGS, SGD, Adadelta, Rprop

class Net(torch.nn.Sequential):
    pass

class Wrapping(SGD):
    def step(self, closure=None):
        inner.step()

def loss():
    value = net(x).sum()
    value.backward()
    return value

x, net, other = torch.ones(2, 4), Net(torch.nn.Linear(4, 4), torch.nn.ReLU()), Net(Net(torch.nn.Linear(4, 4)))
sgd, lbfgs, inner, rprop = (kind(net.parameters(), lr=0.01) for kind in (SGD, LBFGS, Adadelta, Rprop))
wrapping = Wrapping(net.parameters(), lr=0.01)
for batch in torch.utils.data.DataLoader(torch.ones(6, 4)):
    net(batch).sum().backward()
    sgd.step()
    time.sleep(0.004)
for _ in range(5):
    lbfgs.step(loss)
    time.sleep(0.002)
for _ in range(4):
    wrapping.step()
    time.sleep(0.002)
with torch.inference_mode():
    for _ in range(7):
        other(x)
        time.sleep(0.002)
for i in range(5):
    with nvtx.annotate(f"epoch {i}"):
        loss()
        rprop.step()
        time.sleep(0.002)
try:
    net("nothing")
except TypeError:
    pass
assert torch.jit.trace(other, x)(x).shape == x.shape
"""


def test_calls_of_torch_in_a_program_without_ranges(script: Script, request_: Request) -> None:
    pytest.importorskip("torch")
    timed = times(_OF_TORCH, script, request_)
    counts = {path: count for path, (count, _) in timed.items()}
    # six batches, what loss() called in the first two steps of LBFGS and in the first two epochs, and the failing call
    assert counts.pop("Net") >= 6 + 2 + 2 + 1
    assert counts.pop("torch.autograd.backward") >= 6 + 2 + 2
    assert counts == {
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 7,
        "step (ends with SGD.step)": 6,
        "step (ends with LBFGS.step)": 5,
        "step (ends with Wrapping.step)": 4,
        "Net_#": 8,
        "epoch #": 5,
        # it is the loop if the epochs are not
        "step (ends with Rprop.step)": 5,
    }
    assert 4 <= timed["step (ends with SGD.step)"][1] < 1000
    assert 2 <= timed["Net_#"][1] < 1000


@pytest.mark.nightly
def test_what_is_compiled_has_no_calls_to_note(script: Script, request_: Request, torch_python: str) -> None:
    code = """
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

@torch.compile(backend="eager", fullgraph=True)
def forward(x):
    return net(x)

@torch.compile(backend="eager")
def step():
    optimizer.step()

whole = torch.compile(net, backend="eager", fullgraph=True)
for _ in range(4):
    forward(torch.ones(4)).sum().backward()
    step()
    whole(torch.ones(4))
"""
    # an optimizer runs outside of what is compiled
    timed = times(code, script, request_)
    assert timed.keys() == {"torch.autograd.backward", "step (ends with SGD.step)", "Sequential"}
    assert {count for count, _ in timed.values()} == {4}


def test_a_program_that_ends_at_once_leaves_its_times(script: Script, request_: Request) -> None:
    code = """
import os, nvtx
for _ in range(4):
    with nvtx.annotate("step"): sum(range(1000))
if os.fork() == 0:
    os._exit(0)
os.wait()
os._exit(0)
"""
    assert times(code, script, request_)["step"][0] == 4


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hook, in this process."""
    spec: Any = importlib.util.spec_from_file_location("hook", HOOK)
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    monkeypatch.setattr(module.atexit, "register", lambda _: None)
    return module


def call(times: Any, name: str, *inner: str) -> None:
    """Call a function that calls others."""
    times.enter(name)
    for each in inner:
        call(times, each)
    times.leave()


def noted(times: Any) -> list[str]:
    return [path for path, *_ in times.began]


def test_calls_inside_calls_that_repeat_are_not_noted(hook: Any, tmp_path: Path) -> None:
    times = hook.Times(str(tmp_path))
    for _ in range(5):
        call(times, "Net", "Loss")
    assert noted(times) == ["Net", "Loss"] * 2 + ["Net"] * 3


def test_the_time_in_calls_and_ranges_is_noted_for_those_that_are(hook: Any, tmp_path: Path) -> None:
    times = hook.Times(str(tmp_path))
    for _ in range(4):
        times.begin("epoch")
        for name in ("Net", "Optimizer.step#Adam.step"):
            times.enter(name)
            time.sleep(0.001)
            times.leave()
        times.end()
    took = {times.began[place][0]: ns for place, ns in times.took_ns.items()}
    assert took.keys() == {"epoch", "Net", "step (ends with Adam.step)"}
    # of different epochs: calls in those that repeat are not noted
    assert min(took["Net"], took["step (ends with Adam.step)"]) >= 1_000_000
    assert took["epoch"] >= 2_000_000
    assert len(times.took_ns) == len(times.began)


def test_ranges_are_as_if_there_were_no_calls_in_or_around_them(hook: Any, tmp_path: Path) -> None:
    times = hook.Times(str(tmp_path))
    for _ in range(5):
        times.enter("Net")
        times.begin("attention")
        call(times, "Loss")
        times.end()
        times.leave()
    assert [path for path in noted(times) if path != "Loss"] == ["Net", "attention"] * 5
    assert noted(times).count("Loss") == 2


def test_an_optimizer_ends_a_step_wherever_it_is(hook: Any, tmp_path: Path) -> None:
    times = hook.Times(str(tmp_path))
    for _ in range(5):
        times.begin("epoch")
        call(times, "Optimizer.step#Outer.step", "Optimizer.step#Adam.step")
        times.end()
    assert noted(times) == ["epoch", "step (ends with Outer.step)"] * 5
    assert all(since_ns < ns for path, _, ns, _, since_ns in times.began if path != "epoch")


def test_calls_that_cost_too_much_are_noted_only_at_first(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "_SPARING", 0.0)
    monkeypatch.setattr(hook, "_FEW", 10)
    times = hook.Times(str(tmp_path))
    for number in range(20):
        call(times, f"layers.{number}")
        if number % 3 == 0:
            call(times, "Net")
    call(times, "Optimizer.step#SGD.step")
    assert noted(times)[:9] == [
        "layers.0",
        "Net",
        "layers.1",
        "layers.2",
        "layers.3",
        "Net",
        "layers.4",
        "layers.5",
        "layers.6",
    ]
    # the most frequent ones are left out after the tenth call
    assert noted(times)[9:] == ["Net"] * 5 + ["step (ends with SGD.step)"]


def test_calls_leave_room_for_steps(hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "_MOST", 20)
    times = hook.Times(str(tmp_path))
    for _ in range(30):
        call(times, "Net")
    for _ in range(30):
        call(times, "Optimizer.step#SGD.step")
    assert (noted(times).count("Net"), len(noted(times))) == (11, 20)


def test_the_slowest_of_the_busiest_processes_counts(script: Script, request_: Request) -> None:
    code = """
import multiprocessing, os, time
import nvtx

def work(sleep_s, count):
    for i in range(count):
        with nvtx.annotate("step"):
            time.sleep(sleep_s)

if __name__ == "__main__":
    with nvtx.annotate("parent"):
        pass
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=work, args=given) for given in ((0.004, 6), (0.001, 6), (0.02, 4))]
    for child in children:
        child.start()
    for child in children:
        child.join()
    # what a fork inherits is not its own
    if os.fork() == 0:
        raise SystemExit
    os.wait()
"""
    timed = times(code, script, request_)
    assert timed.keys() == {"step"}
    count, ms = timed["step"]
    # one with four steps is slower
    assert count == 6
    assert ms >= 4


def test_the_users_own_sitecustomize_and_path_still_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Script, request_: Request
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.was_here = True")
    (own / "mine.py").write_text("STEPS = 3")
    monkeypatch.setenv("PYTHONPATH", str(own))
    code = """
import sys, mine, nvtx
assert sys.was_here
for i in range(mine.STEPS):
    with nvtx.annotate("step"): sum(range(1000))
"""
    assert times(code, script, request_).keys() == {"step"}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            "print('no ranges')",
            "No range, step of an optimizer, call of a PyTorch model or loop of the program repeats often enough",
        ),
        ("import nvtx\nwith nvtx.annotate('once'): pass", "repeats often enough"),
        ("raise SystemExit(3)", "In a run without the profiler, train ended with exit status 3"),
    ],
)
@pytest.mark.parametrize("is_asked", [True, False])
def test_what_was_not_timed_is_a_finding(
    script: Script, request_: Request, code: str, reason: str, *, is_asked: bool
) -> None:
    program = Program("train", "script", (sys.executable, str(script(code))))
    timed = time_ranges(program, replace(request_, time_steps=is_asked or None))
    assert not len(timed.ranges)
    if not is_asked and "repeats" in reason:
        assert not timed.findings
        return
    (finding,) = timed.findings
    assert (finding.severity, finding.rule) == ("warning" if is_asked else "info", "steps_not_timed")
    assert reason in finding.detail


@pytest.mark.parametrize("has_names", [True, False])
def test_loops_are_timed_if_steps_have_no_names(script: Script, request_: Request, *, has_names: bool) -> None:
    code = "import os; raise SystemExit(4 if os.environ.get('NIGHTSIGHT_LOOPS') else 3)"
    program = Program("train", "script", (sys.executable, str(script(code))))
    (finding,) = time_ranges(program, request_, has_names=has_names).findings
    assert f"ended with exit status {3 if has_names else 4}" in finding.detail


def test_a_loop_that_costs_too_much_has_no_times_of_the_start_only(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "_SPARING_LOOPS", 0.0)
    monkeypatch.delitem(sys.modules, "torch.cuda", raising=False)
    monkeypatch.setattr(hook, "_FEW", 10)
    times = hook.Times(str(tmp_path))
    for _ in range(8):
        times.iteration("loop bcd")
    for _ in range(6):
        times.iteration("loop fgh")
    assert times.left_out == {"loop bcd"}
    times.save()
    assert summarize_ranges(tmp_path)["path"].tolist() == ["loop fgh"]


def test_a_program_that_takes_too_long_is_stopped(script: Script, request_: Request) -> None:
    program = Program("train", "script", (sys.executable, str(script("import time; time.sleep(60)"))))
    timed = time_ranges(program, replace(request_, time_steps=None, timeout_s=1.5))
    assert "train was stopped after 1.5 s" in timed.findings[0].detail
    assert timed.seconds < 30


def test_a_command_that_does_not_start_is_a_finding(request_: Request) -> None:
    timed = time_ranges(Program("gone", "command", ("/no/such/program",)), request_)
    assert "Gone could not be started" in timed.findings[0].detail


def began(folder: Path, name: str, rows: list[list[Any]], paths: tuple[str, ...] = ("step",)) -> None:
    """Write the times of a process; rows without a fifth column are not of optimizers, without a sixth are open."""
    whole = [[*row, *(row[2], None)[len(row) - 4 :]] for row in rows]
    (folder / f"{name}.json").write_text(json.dumps({"paths": paths, "began": whole}))


def test_the_gpu_says_how_long_a_step_takes_where_the_cpu_runs_ahead(tmp_path: Path) -> None:
    # before CUDA is set up there is no time on the GPU; a step takes it 50, the CPU 1
    began(tmp_path, "1", [[0, 7, n, None if n < 2 else 50 * n] for n in range(8)])
    (row,) = summarize_ranges(tmp_path).to_dict("records")
    assert row == {"path": "step", "instances": 6, "med_ns": 50.0, "on_gpu": True, "host_ns": None}


def test_the_cpu_is_in_a_range_as_long_as_it_usually_is_after_the_start(tmp_path: Path) -> None:
    # the first step loads kernels; the last has not ended
    took = [*[900] * 3, *[40, 41, 39, 40, 90, 40], None]
    starts = np.cumsum([0, *[1000] * 3, *[50] * 6])
    began(tmp_path, "1", [[0, 7, int(start), None, int(start), ns] for start, ns in zip(starts, took, strict=True)])
    (row,) = summarize_ranges(tmp_path).to_dict("records")
    assert (row["med_ns"], row["host_ns"]) == (50.0, 40)


def test_threads_are_summarized_one_by_one(tmp_path: Path) -> None:
    began(tmp_path, "1", [[0, thread, 100 * n + thread, None] for n in range(5) for thread in (7, 8)])
    assert summarize_ranges(tmp_path)["med_ns"].tolist() == [100.0]


def test_a_step_ends_with_the_last_of_optimizers_that_follow_one_another_at_once(tmp_path: Path) -> None:
    ends = [[0, 7, 100 * n + late, 100 * n + late, 100 * n + late - 19] for n in range(5) for late in (20, 40)]
    began(tmp_path, "1", ends, ("step (ends with Adam.step)",))
    (row,) = summarize_ranges(tmp_path).to_dict("records")
    assert row == {
        "path": "step (ends with Adam.step)",
        "instances": 5,
        "med_ns": 100.0,
        "on_gpu": True,
        "host_ns": None,
    }
    # other calls are left as they are
    began(tmp_path, "1", ends, ("Net",))
    assert summarize_ranges(tmp_path)["instances"].tolist() == [10]


@pytest.mark.parametrize(
    ("name", "style", "path"),
    [
        ("Optimizer.step#AdamW.step", FUNCTION, "step (ends with AdamW.step)"),
        ("GPT2LMHeadModel", MODULE, "GPT2LMHeadModel"),
        ("encoder.layer.7", MODULE, "encoder.layer.#"),
        ("step", "", "run / step"),
    ],
)
def test_the_window_of_a_capture_finds_the_time_of_its_steps(name: str, style: str, path: str) -> None:
    drawn = draw(f"nvtx  {'[o     ]...' * 6}\ncpu   {'LLLLLL.....' * 6}\ns7    {'..aaaaaa...' * 6}")
    ranges = drawn.table("ranges").assign(name=pd.Categorical([name] * 6), style=pd.Categorical([style] * 6))
    table = pd.DataFrame({"path": ["Loss", path], "instances": [40, 6], "med_ns": [1.0, 7.0], "on_gpu": True})
    profile = replace(drawn, tables={**drawn.tables, "ranges": ranges, "timed_ranges": conform("timed_ranges", table)})
    window = chosen_window(profile)
    assert window.family == path.rpartition(" / ")[2]
    assert timed_ns(profile, window) == 7.0


@pytest.mark.parametrize(
    ("loops", "step_ns"),
    [
        # the longest that is not longer than a repetition: the one that contains all of it
        ([("bcd", 33, 0.7), ("fgh", 33, 0.95), ("jkl", 4, 7.0)], 0.95),
        # not one inside of a repetition, nor a few iterations of another part of the program
        ([("bcd", 90, 0.95), ("fgh", 20, 1.05), ("jkl", 33, 0.2), ("lmn", 6, 1.08)], 1.05),
        ([("bcd", 90, 0.95), ("jkl", 33, 0.2), ("lmn", 33, 1.2), ("npq", 6, 0.9)], math.nan),
        ([], math.nan),
    ],
)
def test_iterations_of_a_loop_are_the_repetitions_of_launches(
    loops: list[tuple[str, int, float]], step_ns: float
) -> None:
    drawn = draw(f"cpu   {'LL..' * 30}\ns7    {'.aa.' * 30}")
    window = chosen_window(drawn)
    assert window.family.startswith("the same")
    ns = window.length_ns / len(window.repetitions)
    rows = [(f"loop {name}", count, length * ns, False, None) for name, count, length in loops]
    table = pd.DataFrame(rows, columns=["path", "instances", "med_ns", "on_gpu", "host_ns"])
    profile = replace(drawn, tables={**drawn.tables, "timed_ranges": conform("timed_ranges", table)})
    assert timed_ns(profile, window) == pytest.approx(step_ns * ns, nan_ok=True)


def test_loops_are_not_steps_where_there_are_names() -> None:
    rows = [("loop bcd", 100, 9.0, False, None), ("Net", 10, 2.0, True, None)]
    table = pd.DataFrame(rows, columns=["path", "instances", "med_ns", "on_gpu", "host_ns"])
    assert timed_step(table, "") == ("Net", 2.0)
    path, step_ns = timed_step(table[:1], "")
    assert (path, math.isnan(step_ns)) == ("", True)
    assert timed_step(table, "loop bcd") == ("loop bcd", 9.0)


def test_iterations_in_repeated_calls_and_before_cuda_are_not_noted(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, cuda = hook.Times(str(tmp_path)), SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    assert times.iteration("loop bcd")
    monkeypatch.setattr(cuda, "is_initialized", lambda: True)
    for _ in range(4):
        assert times.iteration("loop bcd")
        times.enter("Net")
        assert times.iteration("loop fgh")
        times.leave()
    # the first calls may contain the loop of the steps
    assert noted(times).count("loop bcd") == 4
    assert noted(times).count("loop fgh") == 2


def test_iterations_that_cost_too_much_are_noted_only_at_first(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "_SPARING_LOOPS", 0.0)
    monkeypatch.delitem(sys.modules, "torch.cuda", raising=False)
    monkeypatch.setattr(hook, "_FEW", 10)
    times = hook.Times(str(tmp_path))
    goes_on = [times.iteration("loop bcd") for _ in range(20)]
    assert goes_on == [True] * 10 + [False] * 10


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", '{"paths": ["a"]}', '{"paths": 3, "began": [[0, 1]]}'),
        '{"paths": ["a"], "began": [[5, 1, 2, 3, 2]]}',
    ],
)
def test_a_damaged_file_counts_for_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "1.json").write_text(content)
    began(tmp_path, "2", [[0, 7, 10 * n, None] for n in range(4)])
    assert summarize_ranges(tmp_path)["instances"].tolist() == [4]


def test_step_times_of_a_workload_are_those_of_its_range() -> None:
    (row,) = of_benchmark(Benchmark((5.0, 9.0, 6.0), 20)).to_dict("records")
    assert row == {"path": "measure / step", "instances": 60, "med_ns": 6.0, "on_gpu": True, "host_ns": None}


# beside a capture


TABLES = {
    "profiler_costs": conform(
        "profiler_costs", pd.DataFrame({"kind": ["launch"], "added_ns": 9.5, "recorded_ns": 6.0})
    ),
    "timed_ranges": conform(
        "timed_ranges", pd.DataFrame({"path": ["schön / step"], "instances": 30, "med_ns": 3.3e6, "on_gpu": True})
    ),
}


@pytest.mark.parametrize("name", ["train.sqlite", "train.nsys-rep", "train.json.gz", "train.json"])
def test_it_is_found_beside_every_file_of_the_capture(tmp_path: Path, name: str) -> None:
    assert unprofiled_file(tmp_path / name) == tmp_path / "train.unprofiled.json"
    (tmp_path / "train.unprofiled.json").write_text(to_text(TABLES), encoding="utf-8")
    profile = with_unprofiled(replace(Profile({}), window="whole"), tmp_path / name)
    assert profile.window == "whole"
    for table, frame in TABLES.items():
        pd.testing.assert_frame_equal(profile.tables[table], frame)


def test_what_is_not_known_is_not_written() -> None:
    text = to_text({"timed_ranges": TABLES["timed_ranges"], "profiler_costs": TABLES["profiler_costs"][:0]})
    assert from_text(text).keys() == {"timed_ranges"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"unprofiled": 2}',
        '{"unprofiled": 1, "profiler_costs": [{"kind": "launch"}]}',
        '{"unprofiled": 1, "profiler_costs": [{"kind": "launch", "added_ns": -1, "recorded_ns": 3}]}',
        '{"unprofiled": 1, "profiler_costs": [{"kind": "launch", "added_ns": "x", "recorded_ns": 3}]}',
        '{"unprofiled": 1, "timed_ranges": 3}',
        '{"unprofiled": 1, "timed_ranges": [{"path": "a", "instances": 3, "med_ns": NaN, "on_gpu": true}]}',
    ],
)
def test_a_damaged_file_beside_a_capture_is_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "train.unprofiled.json").write_text(content)
    assert not with_unprofiled(Profile({}), tmp_path / "train.sqlite").tables
    assert not with_unprofiled(Profile({}), tmp_path / "other.sqlite").tables
