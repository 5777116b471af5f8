"""Collecting with a fake nsys: what it is told, what is kept of its run, and each way in which it fails."""

import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nightsight.collect import Choice, choose_collector, process
from nightsight.collect.nsys import collect_nsys, export_sqlite
from nightsight.collect.tracing import Tracing
from nightsight.collect.workloads import Program, Request
from nightsight.errors import CaptureError, ToolError, UsageError, WorkloadError
from tests.conftest import is_alive
from tests.progress import progress_into
from tests.recorded import DATA

OK = Program("tiny", "command", ("/bin/sh", "-c", "echo hello"))
WORKLOAD = Program("mlp", "workload", ("python3", "-m", "workloads.mlp"))
FAILS = Program("tiny", "command", ("/bin/sh", "-c", "echo the cause; exit 3"))


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    # The percent sign is one that nsys would take for a pattern.
    return Request(captures=tmp_path / "100%q" / "captures", logs=tmp_path / "logs", timeout_s=20)


@pytest.fixture
def workload(tmp_path: Path) -> Callable[..., Program]:
    """Make a workload that times itself as ours do, and calls cudaProfilerStart if it is told to."""
    text = """
import json, os, sys
if "--benchmark" in sys.argv:
    facts = {"device": "cuda", "device_name": "NVIDIA H200", "torch": "2.11.0", "cuda": "13.0", "python": "3.12.3"}
    document = {"step_ns": [5.0, 7.0], "steps_per_trial": 2, "parameters": {"dim": "64"}, "facts": facts}
    open(sys.argv[-1], "w").write(json.dumps(document))
elif "--start" in sys.argv:
    open(os.environ["FAKE_PROFILER_START"], "w").close()
"""
    path = tmp_path / "workload.py"
    path.write_text(text)
    return lambda *arguments: Program("tiny", "workload", (sys.executable, str(path), *arguments))


def recorded_environment(report: Path) -> dict[str, str]:
    """Return the environment that the fake nsys had, which it writes after the recorded report."""
    content = report.read_bytes()[(DATA / "nsys" / "mlp" / "mlp.nsys-rep").stat().st_size :]
    environment: dict[str, str] = json.loads(content)
    return environment


def kernels(database: Path) -> int:
    connection = sqlite3.connect(database)
    (count,) = connection.execute("select count(*) from CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    connection.close()
    return int(count)


def test_a_program_leaves_a_report_and_its_export(fake_nsys: Callable[..., Path], request_: Request) -> None:
    fake_nsys()
    messages: list[str] = []
    capture = collect_nsys(OK, replace(request_, progress=progress_into(messages)))
    report, database = capture.files
    assert [path.name for path in capture.files] == ["tiny.nsys-rep", "tiny.sqlite"]
    assert report.read_bytes().startswith((DATA / "nsys" / "mlp" / "mlp.nsys-rep").read_bytes())
    assert kernels(database) > 0
    assert sorted(path.name for path in request_.captures.iterdir()) == ["tiny.nsys-rep", "tiny.sqlite"]
    assert (capture.workload, capture.collector, capture.failure, capture.findings) == ("tiny", "nsys", "", ())
    assert (capture.environment.collector, capture.environment.collector_version) == ("nsys", "2025.3.1.0")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", capture.environment.captured_utc)
    assert list(capture.stages_s) == ["profile", "export"]
    assert messages == ["profiling tiny with nsys", "exporting tiny.nsys-rep"]
    assert "hello" in (request_.logs / "profile.log").read_text()


@pytest.mark.parametrize(("behavior", "has_payloads"), [("ok", True), ("old", False), ("no help", False)])
def test_payloads_are_exported_if_nsys_can(
    fake_nsys: Callable[..., Path], request_: Request, behavior: str, has_payloads: bool
) -> None:
    program = fake_nsys(behavior)
    assert collect_nsys(OK, request_).failure == ""
    assert ("--include-json" in program.with_name("exported").read_text().split()) == has_payloads


@pytest.mark.parametrize("behavior", ["ok", "old", "no help"])
def test_no_variable_of_the_caller_is_recorded(
    fake_nsys: Callable[..., Path], request_: Request, monkeypatch: pytest.MonkeyPatch, behavior: str
) -> None:
    fake_nsys(behavior)
    monkeypatch.setenv("CI_JOB_PASS", "hush")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.setenv("HF_HOME", "/models")
    program = Program("tiny", "command", ("/bin/sh", "-c", "env"))
    capture = collect_nsys(program, replace(request_, keep_env=("HF_*",)))
    recorded = recorded_environment(capture.files[0])
    assert "CI_JOB_PASS" not in recorded
    assert (recorded["NCCL_DEBUG"], recorded["HF_HOME"]) == ("WARN", "/models")
    program_saw = (request_.logs / "profile.log").read_text().split("\n")
    assert "NCCL_DEBUG=WARN" in program_saw
    assert "hush" not in "".join(program_saw)


@pytest.mark.parametrize(("value", "is_inherited"), [("a=b c", True), ("max:128,gc:0.8", False), ("", False)])
def test_values_that_env_var_cannot_hold_reach_the_program_all_the_same(
    *,
    fake_nsys: Callable[..., Path],
    request_: Request,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    is_inherited: bool,
) -> None:
    fake_nsys()
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", value)
    show = "echo [$PYTORCH_CUDA_ALLOC_CONF]; tr '\\0' ' ' < /proc/$PPID/cmdline"
    collect_nsys(Program("tiny", "command", ("/bin/sh", "-c", show)), request_)
    log = (request_.logs / "profile.log").read_text()
    assert f"[{value}]" in log
    assert ("--inherit-environment=false" in log) is is_inherited
    assert all(f" {option} " in log for option in ("--sample=none", "--cpuctxsw=none"))


def test_a_workload_is_timed_and_captured_from_its_own_start(
    *, gpu: None, fake_nsys: Callable[..., Path], request_: Request, workload: Callable[..., Program]
) -> None:
    fake_nsys()
    capture = collect_nsys(workload("--start"), request_)
    assert capture.benchmark is not None
    assert capture.benchmark.step_ns == (5.0, 7.0)
    assert capture.parameters == {"dim": "64"}
    environment = capture.environment
    assert (environment.gpu, environment.torch, environment.cuda) == ("NVIDIA H200", "2.11.0", "13.0")
    assert list(capture.stages_s) == ["benchmark", "profile", "export"]


def test_a_workload_that_never_starts_the_profiler(
    *, gpu: None, fake_nsys: Callable[..., Path], request_: Request, workload: Callable[..., Program]
) -> None:
    fake_nsys()
    with pytest.raises(CaptureError, match=r"capture range \(cudaProfilerApi\) never started") as raised:
        collect_nsys(workload(), request_)
    assert "--capture-range none" in raised.value.hint
    assert collect_nsys(workload(), replace(request_, capture_range="none")).failure == ""


@pytest.mark.parametrize("arguments", [["--device", "cpu"], ["--device=cpu"]])
def test_a_workload_on_the_cpu_is_captured_whole(
    *,
    gpu: None,
    fake_nsys: Callable[..., Path],
    request_: Request,
    workload: Callable[..., Program],
    arguments: list[str],
) -> None:
    fake_nsys()
    assert collect_nsys(workload(*arguments), request_).failure == ""


def test_without_a_gpu_a_workload_is_captured_whole(
    fake_nsys: Callable[..., Path], request_: Request, workload: Callable[..., Program]
) -> None:
    fake_nsys()
    assert collect_nsys(workload(), request_).failure == ""


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("echo /home/me; exit 3", "tiny ended with exit status 3"),
        ("kill -ABRT $$", "tiny was terminated by SIGABRT (exit status 134)"),
    ],
)
def test_a_program_that_fails_half_way_leaves_a_partial_capture(
    fake_nsys: Callable[..., Path], request_: Request, script: str, failure: str
) -> None:
    fake_nsys()
    capture = collect_nsys(Program("tiny", "command", ("/bin/sh", "-c", script)), request_)
    assert capture.failure == failure
    assert all(path.stat().st_size for path in capture.files)
    (finding,) = capture.findings
    assert (finding.rule, finding.severity) == ("partial_capture", "error")
    assert failure in finding.detail
    assert "/" not in repr(finding)


def test_a_program_that_fails_before_anything_is_captured(fake_nsys: Callable[..., Path], request_: Request) -> None:
    fake_nsys()
    with pytest.raises(WorkloadError, match="tiny ended with exit status 3; nothing was captured") as raised:
        collect_nsys(FAILS, replace(request_, capture_range="cudaProfilerApi"))
    assert "the cause" in raised.value.hint
    assert str(request_.logs / "profile.log") in raised.value.hint


def test_at_the_time_limit_what_was_captured_is_kept(fake_nsys: Callable[..., Path], request_: Request) -> None:
    fake_nsys()
    program = Program("tiny", "command", ("/bin/sleep", "60"))
    capture = collect_nsys(program, replace(request_, timeout_s=1))
    assert capture.failure == "tiny was stopped after 1 s"
    assert capture.findings[0].remedy == "Run it again with more time (--timeout)."
    assert kernels(capture.files[1]) > 0


def test_at_the_time_limit_nothing_was_captured(fake_nsys: Callable[..., Path], request_: Request) -> None:
    fake_nsys()
    program = Program("tiny", "command", ("/bin/sleep", "60"))
    with pytest.raises(WorkloadError, match="tiny was stopped after 1 s; nothing was captured") as raised:
        collect_nsys(program, replace(request_, timeout_s=1, capture_range="cudaProfilerApi"))
    assert "more time" in raised.value.hint


def test_an_interrupt_keeps_what_was_captured(
    fake_nsys: Callable[..., Path], request_: Request, interrupt: Callable[..., None], tmp_path: Path
) -> None:
    fake_nsys()
    interrupt(tmp_path / "ready")
    program = Program("tiny", "command", ("/bin/sh", "-c", f"touch {tmp_path}/ready; sleep 60"))
    capture = collect_nsys(program, request_)
    assert capture.failure.startswith("tiny was interrupted after ")
    assert kernels(capture.files[1]) > 0


def test_an_nsys_that_writes_its_report_after_the_end_of_the_program_has_the_time_to(
    fake_nsys: Callable[..., Path], request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nsys("slow")
    monkeypatch.setattr(process, "_REACT_S", 0.5)
    monkeypatch.setattr(process, "_TERMINATE_S", 0.5)
    capture = collect_nsys(Program("tiny", "command", ("/bin/sleep", "60")), replace(request_, timeout_s=1))
    assert kernels(capture.files[1]) > 0


def test_a_program_that_ignores_signals_is_not_waited_for_when_nsys_has_saved(
    fake_nsys: Callable[..., Path], request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nsys()
    monkeypatch.setattr(process, "_REACT_S", 0.5)
    monkeypatch.setattr(process, "_TERMINATE_S", 0.5)
    program = Program("tiny", "command", ("/bin/sh", "-c", "trap '' INT TERM; while :; do sleep 1; done"))
    capture = collect_nsys(program, replace(request_, timeout_s=1))
    assert kernels(capture.files[1]) > 0
    assert capture.stages_s["profile"] < 15


@pytest.mark.usefixtures("no_namespaces")
def test_an_nsys_that_hangs_is_killed_with_its_program(
    fake_nsys: Callable[..., Path], request_: Request, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_nsys("hang")
    monkeypatch.setattr(process, "_REACT_S", 0.3)
    monkeypatch.setattr(process, "_TERMINATE_S", 0.3)
    program = Program("tiny", "command", ("/bin/sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"))
    with pytest.raises(WorkloadError, match="was stopped after 1 s"):
        collect_nsys(program, replace(request_, timeout_s=1))
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_in_a_namespace_too_nothing_is_left_of_one_that_hangs(
    fake_nsys: Callable[..., Path], request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nsys("hang")
    monkeypatch.setattr(process, "_REACT_S", 0.3)
    monkeypatch.setattr(process, "_TERMINATE_S", 0.3)
    program = Program("tiny", "command", ("/bin/sleep", f"61.{os.getpid()}"))
    with pytest.raises(WorkloadError, match="was stopped after 1 s"):
        collect_nsys(program, replace(request_, timeout_s=1))
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(f"61.{os.getpid()}".encode() in command for command in running)


@pytest.mark.usefixtures("no_namespaces")
def test_without_namespaces_what_was_captured_is_kept_as_well(
    fake_nsys: Callable[..., Path], request_: Request
) -> None:
    fake_nsys()
    capture = collect_nsys(Program("tiny", "command", ("/bin/sleep", "60")), replace(request_, timeout_s=1))
    assert kernels(capture.files[1]) > 0


@pytest.mark.usefixtures("no_namespaces")
def test_the_agent_of_nsys_is_not_left_behind(fake_nsys: Callable[..., Path], request_: Request) -> None:
    agent = fake_nsys("leftover").with_name("agent")
    assert collect_nsys(OK, request_).failure == ""
    assert not is_alive(int(agent.read_text()))


def test_without_libdw_the_cause_and_the_recording_are_named(fake_nsys: Callable[..., Path], request_: Request) -> None:
    fake_nsys("importer")
    with pytest.raises(ToolError, match="could not write a report") as raised:
        collect_nsys(OK, request_)
    recording = request_.captures / "tiny.qdstrm"
    assert recording.exists()
    assert str(recording) in raised.value.hint
    assert "apt-get install libdw1" in raised.value.hint


def test_an_option_that_nsys_does_not_know(fake_nsys: Callable[..., Path], request_: Request) -> None:
    fake_nsys()
    with pytest.raises(ToolError, match="did not start tiny: unrecognized option '--no-such-option'") as raised:
        collect_nsys(OK, replace(request_, nsys_arguments=("--no-such-option=1",)))
    assert "nsys profile --help" in raised.value.hint


def test_a_stale_report_is_never_taken_for_a_new_one(fake_nsys: Callable[..., Path], request_: Request) -> None:
    fake_nsys()
    first = collect_nsys(OK, request_)
    with pytest.raises(CaptureError, match="never started"):
        collect_nsys(OK, replace(request_, capture_range="cudaProfilerApi"))
    assert not any(path.exists() for path in first.files)


@pytest.mark.parametrize(
    ("behavior", "program", "error", "message"),
    [
        ("damaged", OK, ToolError, "cannot export tiny.nsys-rep: nsys export ended with exit status 1"),
        ("damaged", FAILS, WorkloadError, "tiny ended with exit status 3, and the capture cannot be read"),
        ("silent export", OK, ToolError, "cannot export tiny.nsys-rep: nsys wrote nothing"),
    ],
)
def test_an_export_that_fails_leaves_no_database(
    *,
    fake_nsys: Callable[..., Path],
    request_: Request,
    behavior: str,
    program: Program,
    error: type[Exception],
    message: str,
) -> None:
    fake_nsys(behavior)
    with pytest.raises(error, match=message):
        collect_nsys(program, request_)
    assert [path.name for path in request_.captures.iterdir()] == ["tiny.nsys-rep"]


def test_the_message_of_nsys_about_a_failed_export_is_shown(fake_nsys: Callable[..., Path], tmp_path: Path) -> None:
    report = tmp_path / "x.nsys-rep"
    report.write_bytes(b"not a report")
    with pytest.raises(ToolError) as raised:
        export_sqlite(report, tmp_path / "x.sqlite", nsys=fake_nsys(), log=tmp_path / "log")
    assert "Failed to load report file" in raised.value.hint


def test_an_export_to_where_it_cannot_be_written(fake_nsys: Callable[..., Path], tmp_path: Path) -> None:
    report = DATA / "nsys" / "mlp" / "mlp.nsys-rep"
    (tmp_path / "x.sqlite").mkdir()
    with pytest.raises(CaptureError, match=f"cannot write to {tmp_path}: Is a directory"):
        export_sqlite(report, tmp_path / "x.sqlite", nsys=fake_nsys(), log=tmp_path / "log")


def test_no_report_although_all_was_to_be_captured(fake_nsys: Callable[..., Path], request_: Request) -> None:
    fake_nsys("no report")
    with pytest.raises(CaptureError, match="tiny ran, but nsys wrote no report") as raised:
        collect_nsys(OK, request_)
    assert "No reports were generated" in raised.value.hint


def test_a_folder_that_cannot_be_written_is_named(fake_nsys: Callable[..., Path], request_: Request) -> None:
    fake_nsys()
    request_.captures.parent.mkdir()
    request_.captures.touch()
    with pytest.raises(CaptureError, match=f"cannot write to {request_.captures}: File exists"):
        collect_nsys(OK, request_)


def test_without_nsys_it_says_where_it_looked_and_what_else_works(request_: Request) -> None:
    with pytest.raises(ToolError, match="nsys was not found") as raised:
        collect_nsys(WORKLOAD, request_)
    for word in ("$NSYS", "/opt/nvidia/nsight-systems", "apt-get install", "--collector torch"):
        assert word in raised.value.hint


def test_auto_is_nsys_with_a_gpu_and_an_nsys(gpu: None, fake_nsys: Callable[..., Path]) -> None:
    fake_nsys()
    assert choose_collector("auto", WORKLOAD) == ("nsys", None)


def test_auto_without_nsys_is_torch_and_says_what_is_missing(gpu: None) -> None:
    name, finding = choose_collector("auto", WORKLOAD)
    assert name == "torch"
    assert finding is not None
    assert (finding.rule, finding.severity) == ("collector_fallback", "warning")
    assert "no nsys" in finding.title
    assert "other processes" in finding.detail


def test_auto_without_a_gpu_is_torch_and_says_what_is_missing(fake_nsys: Callable[..., Path]) -> None:
    fake_nsys()
    name, finding = choose_collector("auto", WORKLOAD)
    assert name == "torch"
    assert finding is not None
    assert "no GPU" in finding.title
    assert "launch overhead" in finding.detail


def test_a_command_needs_nsys_but_no_gpu(fake_nsys: Callable[..., Path]) -> None:
    with pytest.raises(ToolError, match="nsys was not found") as raised:
        choose_collector("auto", OK)
    assert "--collector torch" not in raised.value.hint, "which cannot profile it"
    assert choose_collector("auto", OK, nsys=fake_nsys()) == ("nsys", None)


@pytest.mark.parametrize("collector", ["auto", "nsys", "ncu", "torch"])
def test_a_native_workload_without_a_gpu_is_an_error(collector: Choice, fake_nsys: Callable[..., Path]) -> None:
    fake_nsys()
    native = Program("unified_memory", "workload", ("python3", "-m", "workloads.unified_memory"), is_native=True)
    with pytest.raises(ToolError, match="unified_memory needs an NVIDIA GPU, and this machine has none"):
        choose_collector(collector, native)


def test_what_is_asked_for_is_taken(fake_nsys: Callable[..., Path]) -> None:
    with pytest.raises(ToolError, match="nsys was not found"):
        choose_collector("nsys", WORKLOAD)
    fake_nsys()
    assert choose_collector("nsys", WORKLOAD) == ("nsys", None)
    assert choose_collector("torch", WORKLOAD) == ("torch", None)


def test_who_has_no_nsys_is_not_advised_to_use_it(gpu: None) -> None:
    with pytest.raises(UsageError, match="this machine has no nsys") as raised:
        choose_collector("auto", WORKLOAD, recordings=["gpu-metrics"])
    assert raised.value.hint == "Omit the option, or install nsys (nightsight doctor says how)."


def test_what_only_torch_can_record_needs_torch(gpu: None, fake_nsys: Callable[..., Path]) -> None:
    wanted = Tracing(recorded=("stack",))
    assert choose_collector("auto", WORKLOAD, tracing=wanted)[0] == "torch"
    fake_nsys()
    assert choose_collector("torch", WORKLOAD, tracing=wanted) == ("torch", None)
    for program in (WORKLOAD, OK):
        with pytest.raises(UsageError, match=r"--step-range need torch\.profiler") as raised:
            choose_collector("auto", program, tracing=wanted)
        assert ("--collector torch" in raised.value.hint) == program.is_for_torch
