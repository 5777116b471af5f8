"""Collecting with torch.profiler: how the program is started, and each way in which that fails."""

import gzip
import importlib.util
import json
import sys
import venv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightsight.collect import COLLECTORS
from nightsight.collect.torch import collect_torch
from nightsight.collect.tracing import Schedule, TraceFacts, Tracing
from nightsight.collect.workloads import Program, Request
from nightsight.errors import CaptureError, ToolError, WorkloadError
from tests.progress import progress_into


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
def workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Program]:
    """Make a workload that writes its benchmark, and is traced by code that has the paths `out` and `facts`."""
    package = tmp_path / "workloads"
    package.mkdir()
    monkeypatch.setattr("nightsight.collect.torch.PACKAGE", package)

    def make(traced: str) -> Program:
        (package / "__main__.py").write_text("""
import json, sys
assert sys.argv[-2] == "--benchmark"
document = {"step_ns": [5.0], "steps_per_trial": 2, "parameters": {"dim": "64"}, "facts": {"device": "cpu"}}
open(sys.argv[-1], "w").write(json.dumps(document))
""")
        (package / "traced.py").write_text(f"""
import json, sys, time
out, facts = sys.argv[2], sys.argv[4]
assert sys.argv[-5:] == ["--", {str(package / "__main__.py")!r}, "workloads.tiny", "--dim", "64"]
def left(traces, **more):
    for name, _ in traces:
        open(out.replace("tiny.json.gz", name), "w").write(name)
    known = {{"steps": 0, "by": "", "of": "", "skipped": {{}}, "own_profiler": False, "threads": 0, "ranged": 0}}
    open(facts, "w").write(json.dumps({{"traces": traces, **known, **more}}))
{traced}
""")
        return Program("tiny", "workload", (sys.executable, str(package), "workloads.tiny", "--dim", "64"))

    return make


def test_a_workload_leaves_its_trace(torch_2_11: None, request_: Request, workload: Callable[..., Program]) -> None:
    messages: list[str] = []
    capture = collect_torch(
        workload("open(out, 'w').write('trace')"), replace(request_, progress=progress_into(messages))
    )
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
    assert messages == ["timing tiny without a profiler", "profiling tiny with torch.profiler"]


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


FIRST, SECOND, BY = "tiny.json.gz", "tiny.2.json.gz", "steps=6, by='module', of='Net'"


def planned(request: Request, *schedule: int, **more: Any) -> Request:
    return replace(request, tracing=Tracing(Schedule(*schedule) if schedule else None, **more))


def test_the_options_reach_the_program_and_the_report(
    torch_2_11: None, request_: Request, workload: Callable[..., Program], tmp_path: Path
) -> None:
    asked = planned(
        request_, 1, 2, 3, 1, activities=("cpu",), recorded=("shapes", "modules"), skipped=("-a b",), step_range=""
    )
    (tmp_path / "site" / "profiler").mkdir()
    (tmp_path / "site" / "profiler" / "profiler.py").write_text("def toggle_collection_dynamic(): ...")
    program = workload("left([('tiny.json.gz', 3)], steps=6, by='range', of='step'); print(json.dumps(sys.argv[5:-5]))")
    capture = collect_torch(program, asked)
    given = json.loads((request_.logs / "profile.log").read_text())
    assert given == [
        *("--schedule", "1", "2", "3", "1", "--activities", "cpu", "--record", "shapes,modules"),
        *("--skip-range=-a b", "--step-range=step"),
    ]
    assert capture.parameters == {
        "dim": "64",
        "schedule": "wait 1, warmup 2, active 3, repeat 1",
        "activities": "cpu",
        "recorded": "shapes, modules",
        "skipped ranges": "-a b",
    }
    (finding,) = capture.findings
    assert (finding.rule, finding.severity) == ("steps_found", "info")
    assert finding.title == "The program ran 6 steps, detected from the range step"


@pytest.mark.parametrize(
    ("left", "chosen", "rules"),
    [
        (f"left([('{FIRST}', 2), ('{SECOND}', 2)], {BY})", SECOND, ["steps_found", "other_cycles"]),
        (f"left([('{FIRST}', 2), ('{SECOND}', 1)], {BY})", FIRST, ["steps_found", "other_cycles"]),
        (f"left([('{FIRST}', 1)], {BY})", FIRST, ["few_steps"]),
        (f"left([('{FIRST}', 1), ('{SECOND}', 0)], own_profiler=True)", SECOND, ["own_profiler"]),
        (f"left([('{FIRST}', 1)], own_profiler=True)", FIRST, ["own_profiler"]),
        (f"left([('{FIRST}', 2)], skipped={{'data': 2}})", FIRST, ["steps_found", "skipped_range"]),
        (f"left([('{FIRST}', 2)], skipped={{'data': 0}})", FIRST, ["steps_found", "skipped_range"]),
        (f"left([('{FIRST}', 2)], threads=3)", FIRST, ["steps_found", "other_threads"]),
        ("open(out, 'w').write('trace'); sys.exit(1)", FIRST, ["partial_capture"]),
        ("open(out, 'w').write('trace'); open(facts, 'w').write('{')", FIRST, []),
    ],
)
def test_the_findings_say_what_was_recorded(
    *,
    torch_2_11: None,
    request_: Request,
    workload: Callable[..., Program],
    left: str,
    chosen: str,
    rules: list[str],
) -> None:
    capture = collect_torch(workload(left), planned(request_, 0, 1, 2, 2))
    assert capture.files[-1].name == chosen
    assert [finding.rule for finding in capture.findings] == rules
    named = [finding.title + finding.detail for finding in capture.findings if finding.rule == "other_cycles"]
    assert all(path.name in text for text in named for path in capture.files)


@pytest.mark.parametrize(
    ("ranged", "recorded", "severities"), [(2, (), ["warning"]), (0, (), ["info"]), (2, ("threads",), [])]
)
def test_threads_that_are_not_recorded_are_reported_and_those_with_ranges_are_a_warning(
    ranged: int, recorded: tuple[str, ...], severities: list[str]
) -> None:
    findings = [*TraceFacts(threads=3, threads_with_ranges=ranged).findings(Tracing(recorded=recorded))]
    assert [finding.severity for finding in findings] == severities
    if findings:
        assert findings[0].title.endswith(": 2 have ranges" if ranged else ": 3 were started")


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("steps=0", "no steps were detected in tiny, so nothing was recorded"),
        (
            "steps=1, by='optimizer', of='SGD'",
            r"tiny has 1 step, detected from calls of SGD.step\(\); --wait 2 --warmup 1 skip the first 3",
        ),
    ],
)
def test_a_schedule_that_recorded_nothing(
    *, torch_2_11: None, request_: Request, workload: Callable[..., Program], facts: str, message: str
) -> None:
    with pytest.raises(CaptureError, match=message):
        collect_torch(workload(f"left([], {facts})"), planned(request_, 2, 1, 2, 1))


@pytest.mark.parametrize(
    ("asked", "option"),
    [
        ({"skipped": ("data",)}, "torch 2.11.0 does not support --skip-range: it has no toggle_collection_dynamic"),
        ({"recorded": ("shapes", "sync")}, "does not support --record sync"),
        ({"recorded": ("threads",)}, "does not support --record threads"),
    ],
)
def test_what_this_torch_lacks_is_refused_before_anything_runs(
    *,
    torch_2_11: None,
    request_: Request,
    workload: Callable[..., Program],
    asked: dict[str, tuple[str, ...]],
    option: str,
) -> None:
    messages: list[str] = []
    with pytest.raises(ToolError, match=option):
        collect_torch(workload("pass"), replace(planned(request_, **asked), progress=progress_into(messages)))
    assert messages == []


def test_a_command_is_not_for_torch(request_: Request) -> None:
    with pytest.raises(ToolError, match="is not a Python program") as raised:
        collect_torch(Program("ls", "command", ("/bin/ls",)), request_)
    assert "--collector nsys" in raised.value.hint


def test_a_python_without_torch(request_: Request, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env/bin/python"
    with pytest.raises(ToolError, match=f"torch is not installed in {python}") as raised:
        collect_torch(Program("tiny", "script", (str(python), "tiny.py")), request_)
    assert f"uv pip install -p {python} torch" in raised.value.hint


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
