"""Collects with torch.profiler, which runs inside the program: that must be Python, with torch installed."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from nightsight.collect.process import Child, run_logged
from nightsight.collect.tools import ask_python, refuse_lost_folder
from nightsight.collect.workloads import (
    PACKAGE,
    Program,
    Request,
    child_environment,
    described,
    fresh,
    partial_capture,
    program_failed,
    run_benchmark,
)
from nightsight.errors import CaptureError, ToolError
from nightsight.model import Capture

# what workloads/traced.py prints
_SAVING: Final = "nightsight: saving the trace"
# reads the version without importing torch, which takes seconds
_PROBE: Final = """
import importlib.metadata, importlib.util, json, platform
there = importlib.util.find_spec("torch") is not None
print(json.dumps({"torch": importlib.metadata.version("torch") if there else "", "python": platform.python_version()}))
"""


def collect_torch(program: Program, request: Request) -> Capture:
    """Run a workload or script under torch.profiler; a program that fails half way leaves a partial capture.

    ToolError if torch cannot be used, WorkloadError if the program fails before it leaves a trace, CaptureError if it
    leaves none otherwise.
    """
    refuse_command(program)
    trace, log = request.captures / f"{program.name}.json.gz", request.logs / "profile.log"
    facts = _interpreter(program, child_environment(request))
    measured = run_benchmark(program, request)
    fresh(trace)
    started = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    request.progress(f"profiling {program.name} with torch.profiler")
    outcome = run_logged(
        Child(_traced(program, trace), child_environment(request), saving=_SAVING),
        log=log,
        timeout_s=request.timeout_s - measured.seconds,
        verbose=request.verbose,
    )
    if not trace.is_file() or not trace.stat().st_size:
        refuse_lost_folder(trace.parent)
        if not outcome.ok:
            raise program_failed(program, outcome, log)
        raise CaptureError(f"{program.name} ran, but torch.profiler wrote no trace", f"Its output: {log}")
    failure, findings = partial_capture(program, outcome)
    return Capture(
        workload=program.name,
        collector="torch",
        files=(trace,),
        environment=replace(described("torch", facts["torch"], {**facts, **measured.facts}), captured_utc=started),
        parameters=measured.parameters,
        benchmark=measured.benchmark,
        findings=(*measured.findings, *findings),
        stages_s={**measured.stages_s, "profile": outcome.seconds},
        failure=failure,
        serving=measured.serving,
    )


def refuse_command(program: Program) -> None:
    """Raise ToolError if the program is not a Python script or workload."""
    if not program.is_for_torch:
        raise ToolError(
            f"--collector torch cannot profile {program.name}: it is not a program in Python",
            "Name the script that it runs, or use --collector nsys, which can profile any program.",
        )


def _traced(program: Program, trace: Path) -> tuple[str, ...]:
    if program.kind == "workload":
        return (*program.command, "--torch-trace", str(trace))
    python, *script = program.command
    return (python, str(PACKAGE / "traced.py"), "--out", str(trace), "--", *script)


def _interpreter(program: Program, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of the program's Python and torch; ToolError if torch is not installed."""
    python = program.command[0]
    facts: dict[str, str] = json.loads(ask_python(python, _PROBE, environment=environment))
    if not facts["torch"]:
        raise ToolError(
            f"torch is not installed in {python}",
            f"Install it: {python} -m pip install torch. Or activate an environment that has it, or name its Python "
            "with --python.",
        )
    return facts
