"""Collects with torch.profiler, which runs inside the program: this needs a Python program with torch installed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from nightsight.captures import TRACE
from nightsight.collect.compilations import compile_log
from nightsight.collect.interpreter import install_hint
from nightsight.collect.process import Child, run_logged
from nightsight.collect.tools import ask_python, refuse_lost_folder
from nightsight.collect.tracing import FEATURES, TraceFacts
from nightsight.collect.workloads import (
    PACKAGE,
    PROGRAM_OUTPUT,
    OnlyTimed,
    Program,
    Request,
    child_environment,
    delete_old,
    environment_of,
    partial_capture,
    program_failure,
    run_benchmark,
)
from nightsight.errors import CaptureError, ToolError
from nightsight.model.report import Capture
from nightsight.system.installing import Place

# what workloads/traced.py prints
_SAVING: Final = "nightsight: saving the trace"
_DAMAGED: Final = (OSError, ValueError, KeyError, TypeError)
# reads torch's features without importing it, which takes seconds
_PROBE: Final = f"""
import importlib.metadata, importlib.util, json, os, platform, sys
spec = importlib.util.find_spec("torch")
folder = os.path.dirname(spec.origin or "") if spec else ""
def has(path, word):
    try:
        with open(os.path.join(folder, path), encoding="utf-8") as file:
            return word in file.read()
    except OSError:
        return False
print(json.dumps({{
    "place": [sys.prefix, sys.base_prefix, importlib.util.find_spec("pip") is not None],
    "torch": importlib.metadata.version("torch") if spec else "",
    "python": platform.python_version(),
    "features": [option for option, needed in {FEATURES!r}.items() if has(*needed)],
}}))
"""


def collect_torch(program: Program, request: Request) -> Capture:
    """Run a workload or script under torch.profiler; a program that fails half way leaves a partial capture.

    Of several traces, the report covers the last of `files`. Raise ToolError if torch cannot be used or lacks a
    requested feature; WorkloadError if the program fails before it writes a trace; CaptureError if it writes none
    otherwise.
    """
    refuse_command(program)
    tracing = request.tracing
    trace, facts = request.captures / f"{program.name}{TRACE}", request.logs / "steps.json"
    log = request.logs / PROGRAM_OUTPUT
    python = _interpreter(program, child_environment(request))
    tracing.refuse_unknown(python.torch, python.features)
    measured = run_benchmark(program, request)
    delete_old(trace, facts, *request.captures.glob(f"{program.name}.*{TRACE}"))
    started = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    request.progress(f"profiling {program.name} with torch.profiler")
    outcome = run_logged(
        Child(
            _tracing_command(program, request, trace, facts),
            {**child_environment(request), **compile_log(request)},
            saving=_SAVING,
        ),
        log=log,
        timeout_s=request.timeout_s - measured.seconds,
        verbose=request.verbose,
    )
    result = _written_files(trace, facts)
    files = [path for name, _ in result.traces if (path := trace.with_name(name)).is_file() and path.stat().st_size]
    if not files:
        refuse_lost_folder(trace.parent)
        if outcome.stopped and measured.benchmark:
            raise OnlyTimed(program_failure(program, outcome, log), measured)
        if not outcome.ok:
            raise program_failure(program, outcome, log)
        if tracing.schedule and result.is_known:
            result.refuse_empty(program.name, tracing.schedule)
        raise CaptureError(f"{program.name} ran, but torch.profiler wrote no trace", f"Its output: {log}")
    if result.steps:
        request.progress(f"{program.name} ran {result.steps_text}")
    failure, findings = partial_capture(program, outcome)
    return Capture(
        workload=program.name,
        collector="torch",
        files=tuple(sorted(files, key=lambda path: path.name == result.chosen)),
        environment=replace(
            environment_of("torch", python.torch, {"torch": python.torch, "python": python.version, **measured.facts}),
            captured_utc=started,
        ),
        parameters={**measured.parameters, **tracing.parameters},
        benchmark=measured.benchmark,
        findings=(*measured.findings, *findings, *result.findings(tracing)),
        stages_s={**measured.stages_s, "profile": outcome.seconds},
        failure=failure,
        serving=measured.serving,
    )


def refuse_command(program: Program) -> None:
    """Raise ToolError if the program is not a Python script or workload."""
    if not program.is_for_torch:
        raise ToolError(
            f"--collector torch cannot profile {program.name}: it is not a Python program",
            "If it runs a script, name the script. Or use --collector nsys, which can profile any program.",
        )


def _tracing_command(program: Program, request: Request, trace: Path, facts: Path) -> tuple[str, ...]:
    python, script, *arguments = program.command
    is_workload = program.kind == "workload"
    return (
        *(python, str(PACKAGE / "traced.py"), "--out", str(trace), "--facts", str(facts)),
        *request.tracing.arguments("step" if is_workload else ""),
        *("--", str(Path(script) / "__main__.py") if is_workload else script, *arguments),
    )


def _written_files(trace: Path, facts: Path) -> TraceFacts:
    """Return the output of the program; without its facts, only its traces."""
    try:
        document: dict[str, Any] = json.loads(facts.read_bytes())
        return TraceFacts.of_facts(document)
    except _DAMAGED:
        names = [
            path.name for path in (trace, *sorted(trace.parent.glob(f"{trace.name.removesuffix(TRACE)}.*{TRACE}")))
        ]
        return TraceFacts(tuple((name, 0) for name in names), is_known=False)


@dataclass(frozen=True)
class _TorchPython:
    """The versions of a Python and of its torch, and which of FEATURES that has."""

    torch: str
    version: str
    features: tuple[str, ...]


def _interpreter(program: Program, environment: Mapping[str, str]) -> _TorchPython:
    """Return the versions in the program's Python; raise ToolError if torch is not installed."""
    python = program.command[0]
    facts: dict[str, Any] = json.loads(ask_python(python, _PROBE, environment=environment))
    if not facts["torch"]:
        raise ToolError(f"torch is not installed in {python}", install_hint("torch", Place(python, *facts["place"])))
    return _TorchPython(facts["torch"], facts["python"], tuple(facts["features"]))
