"""Collecting with torch.profiler: how the program is started, and each way in which that fails."""

import gzip
import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nightsight.collect import COLLECTORS
from nightsight.collect.torch import collect_torch
from nightsight.collect.workloads import Program, Request
from nightsight.errors import CaptureError, ToolError, WorkloadError

pytestmark = pytest.mark.slow


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(captures=tmp_path / "captures", logs=tmp_path / "logs", timeout_s=60)


@pytest.fixture
def torch_2_11(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the child's Python find a torch 2.11.0, which it must not import: that would take seconds."""
    folder = tmp_path / "site"
    (folder / "torch-2.11.0.dist-info").mkdir(parents=True)
    (folder / "torch-2.11.0.dist-info" / "METADATA").write_text("Name: torch\nVersion: 2.11.0\n")
    (folder / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.fixture
def workload(tmp_path: Path) -> Callable[..., Program]:
    """Make a workload that writes its benchmark, then runs `traced` with `out` as the path of its trace."""

    def make(traced: str) -> Program:
        path = tmp_path / "workload.py"
        path.write_text(f"""
import json, sys, time
out = sys.argv[-1]
if sys.argv[-2] == "--benchmark":
    document = {{"step_ns": [5.0], "steps_per_trial": 2, "parameters": {{"dim": "64"}}, "facts": {{"device": "cpu"}}}}
    open(out, "w").write(json.dumps(document))
    sys.exit()
assert sys.argv[-2] == "--torch-trace"
{traced}
""")
        return Program("tiny", "workload", (sys.executable, str(path), "--dim", "64"))

    return make


def test_a_workload_leaves_its_trace(torch_2_11: None, request_: Request, workload: Callable[..., Program]) -> None:
    said: list[str] = []
    capture = collect_torch(workload("open(out, 'w').write('trace')"), replace(request_, progress=said.append))
    assert capture.files == (request_.captures / "tiny.json.gz",)
    assert capture.files[0].read_text() == "trace"
    assert (capture.workload, capture.collector, capture.failure, capture.findings) == ("tiny", "torch", "", ())
    environment = capture.environment
    assert (environment.collector, environment.collector_version, environment.torch) == ("torch", "2.11.0", "2.11.0")
    assert environment.python == ".".join(map(str, sys.version_info[:3]))
    assert environment.gpu == ""
    assert capture.benchmark is not None
    assert capture.parameters == {"dim": "64"}
    assert list(capture.stages_s) == ["benchmark", "profile"]
    assert said == ["timing tiny without a profiler", "profiling tiny with torch.profiler"]


def test_a_workload_that_fails_half_way_leaves_a_partial_capture(
    torch_2_11: None, request_: Request, workload: Callable[..., Program]
) -> None:
    capture = collect_torch(workload("open(out, 'w').write('trace'); sys.exit(3)"), request_)
    assert capture.failure == "tiny ended with exit status 3"
    assert [finding.rule for finding in capture.findings] == ["partial_capture"]


def test_at_the_time_limit_the_trace_is_kept(
    torch_2_11: None, request_: Request, workload: Callable[..., Program]
) -> None:
    program = workload("""
try:
    time.sleep(60)
finally:
    open(out, 'w').write('trace')
""")
    capture = collect_torch(program, replace(request_, timeout_s=1))
    assert capture.failure.startswith("tiny was stopped after ")
    assert capture.files[0].read_text() == "trace"


@pytest.mark.parametrize(
    ("traced", "error", "message"),
    [
        ("sys.exit('the cause')", WorkloadError, "tiny ended with exit status 1; nothing was captured"),
        ("open(out, 'w').close(); sys.exit('the cause')", WorkloadError, "nothing was captured"),
        ("pass", CaptureError, "tiny ran, but torch.profiler wrote no trace"),
    ],
)
def test_without_a_trace_there_is_no_capture(
    *,
    torch_2_11: None,
    request_: Request,
    workload: Callable[..., Program],
    traced: str,
    error: type[WorkloadError | CaptureError],
    message: str,
) -> None:
    request_.captures.mkdir()
    (request_.captures / "tiny.json.gz").write_text("of an earlier run")
    with pytest.raises(error, match=message) as raised:
        collect_torch(workload(traced), request_)
    assert ("the cause" in raised.value.hint) is ("the cause" in traced)
    assert str(request_.logs / "profile.log") in raised.value.hint


def test_a_command_is_not_for_torch(request_: Request) -> None:
    with pytest.raises(ToolError, match="is not a program in Python") as raised:
        collect_torch(Program("ls", "command", ("/bin/ls",)), request_)
    assert "--collector nsys" in raised.value.hint


def test_a_python_without_torch(request_: Request, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    with pytest.raises(ToolError, match=f"torch is not installed in {python}") as raised:
        collect_torch(Program("tiny", "script", (str(python), "tiny.py")), request_)
    assert f"{python} -m pip install torch" in raised.value.hint


def test_a_python_that_cannot_be_run(request_: Request) -> None:
    with pytest.raises(ToolError, match="cannot start /no/python"):
        collect_torch(Program("tiny", "script", ("/no/python", "tiny.py")), request_)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_any_script_is_traced_by_the_real_torch(request_: Request, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys, torch; torch.ones(2) + 1; sys.exit(len(sys.argv))")
    capture = COLLECTORS["torch"](Program("train", "script", (sys.executable, str(script), "-v", "--", "x")), request_)
    assert capture.failure == "train ended with exit status 4"
    assert capture.benchmark is None
    trace = json.loads(gzip.decompress(capture.files[0].read_bytes()))
    assert "aten::add" in {event.get("name") for event in trace["traceEvents"]}
