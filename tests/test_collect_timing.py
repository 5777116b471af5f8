"""Times of ranges without a profiler: real ranges of real programs, and how their times become those of steps."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nightsight.captures import unprofiled_file
from nightsight.collect.timing import of_benchmark, summarize_ranges, time_ranges
from nightsight.collect.workloads import Program, Request
from nightsight.model.report import Benchmark, Profile
from nightsight.runs.unprofiled import from_text, to_text, with_unprofiled
from nightsight.tables import conform

Script = Callable[..., Path]


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(captures=tmp_path / "captures", logs=tmp_path / "logs", timeout_s=60)


def times(code: str, script: Script, request: Request) -> dict[str, tuple[int, float]]:
    """Run a program and return, by path, how often its ranges began, and the median time between in ms."""
    timed = time_ranges(Program("train", "script", (sys.executable, str(script(code)))), request)
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
    found = times(code, script, request_)
    assert {path: count for path, (count, _) in found.items()} == {
        "own:run / step #": 6,
        "pushed": 5,
        "own:in a domain": 4,
        "started": 4,
        "decorated": 3,
    }
    assert found["own:run / step #"][1] >= 3.0
    assert 1.0 <= found["pushed"][1] < found["own:run / step #"][1]


def test_ranges_of_torch(script: Script, request_: Request) -> None:
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
    assert {path: count for path, (count, _) in times(code, script, request_).items()} == {
        "step #": 4,
        "batch #": 3,
        "open": 3,
    }


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
    found = times(code, script, request_)
    assert found.keys() == {"step"}
    count, ms = found["step"]
    assert count == 6
    assert 4 <= ms < 20


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
        ("print('no ranges')", "No range repeats often enough"),
        ("import nvtx\nwith nvtx.annotate('once'): pass", "No range repeats often enough"),
        ("raise SystemExit(3)", "ended with exit status 3"),
    ],
)
def test_what_was_not_timed_is_a_finding(script: Script, request_: Request, code: str, reason: str) -> None:
    timed = time_ranges(Program("train", "script", (sys.executable, str(script(code)))), request_)
    (finding,) = timed.findings
    assert (len(timed.ranges), finding.severity, finding.rule) == (0, "warning", "steps_not_timed")
    assert reason in finding.detail


def test_a_command_that_does_not_start_is_a_finding(request_: Request) -> None:
    timed = time_ranges(Program("gone", "command", ("/no/such/program",)), request_)
    assert "Gone could not be started" in timed.findings[0].detail


def began(folder: Path, name: str, rows: list[list[Any]], paths: tuple[str, ...] = ("step",)) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"paths": paths, "began": rows}))


def test_the_gpu_says_how_long_a_step_takes_where_the_cpu_runs_ahead(tmp_path: Path) -> None:
    # before CUDA is set up there is no time on the GPU; a step takes it 50, the CPU 1
    began(tmp_path, "1", [[0, 7, n, None if n < 2 else 50 * n] for n in range(8)])
    (row,) = summarize_ranges(tmp_path).to_dict("records")
    assert row == {"path": "step", "instances": 6, "med_ns": 50.0, "on_gpu": True}


def test_threads_are_summarized_one_by_one(tmp_path: Path) -> None:
    began(tmp_path, "1", [[0, thread, 100 * n + thread, None] for n in range(5) for thread in (7, 8)])
    assert summarize_ranges(tmp_path)["med_ns"].tolist() == [100.0]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"paths": ["a"]}', '{"paths": ["a"], "began": [[5, 1, 2, 3]]}', '{"paths": 3, "began": [[0, 1]]}'],
)
def test_a_damaged_file_counts_for_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "1.json").write_text(content)
    began(tmp_path, "2", [[0, 7, 10 * n, None] for n in range(4)])
    assert summarize_ranges(tmp_path)["instances"].tolist() == [4]


def test_step_times_of_a_workload_are_those_of_its_range() -> None:
    (row,) = of_benchmark(Benchmark((5.0, 9.0, 6.0), 20)).to_dict("records")
    assert row == {"path": "measure / step", "instances": 60, "med_ns": 6.0, "on_gpu": True}


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
