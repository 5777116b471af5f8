"""Measures the overhead of nsys per CUDA call of each kind, with a small program timed without and with nsys.

The overhead depends on the machine and on what nsys records, hardly on the program, so it is measured once and kept in
the user's cache. The file name is a hash of the CPU and GPU models, the versions of driver and nsys, and its options;
the file itself holds only times.
"""

import hashlib
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from nightsight.captures import NSYS_EXPORT, NSYS_REPORT
from nightsight.collect.interpreter import interpreter
from nightsight.collect.nsys import export_sqlite, record, required_nsys
from nightsight.collect.process import Child, run_logged
from nightsight.collect.tools import ask, read_system, tool_version
from nightsight.collect.workloads import PACKAGE, Program, Request, child_environment
from nightsight.errors import CaptureError, PipelineError, ToolError
from nightsight.events.names import CALL_KINDS, LAUNCHES, api_names, call_kinds
from nightsight.progress import silent
from nightsight.runs.unprofiled import from_text, to_text
from nightsight.system.scratch import scratch
from nightsight.tables import conform

_PROGRAM: Final = PACKAGE / "calibration.py"
_NAME: Final = "profiler_costs"
_LIMIT_S: Final = 120.0
_NO_CUDA: Final = 3
# calls of one kind that the program makes together
_CALLS: Final[Mapping[str, int]] = {"allocation": 2}
# plausible cost of a launch; other values mean that the measurement was disturbed
_LEAST_NS: Final = 200.0
_MOST_NS: Final = 100_000.0
_CALL_TIMES: Final = """
    SELECT value AS name, end - start AS ns FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON nameId = StringIds.id
"""


@dataclass(frozen=True)
class Calibration:
    """The table `profiler_costs` of this machine. If unknown, it has no rows and `reason` says why."""

    costs: pd.DataFrame
    reason: str = ""
    seconds: float = 0.0


def calibration_of(program: Program, request: Request) -> Calibration:
    """Return the overhead of nsys per call on this machine, from the cache or measured with the program's Python.

    Never raises: without a result, typical costs are assumed.
    """
    if request.calibrate is False:
        return _unknown("--no-calibrate was given")
    try:
        nsys = required_nsys(request.nsys)
        cached = _cache(_identity(nsys, request))
        if cached and not request.calibrate and (cached_costs := _read(cached)) is not None:
            return Calibration(cached_costs)
        request.progress("measuring nsys overhead per CUDA call (once per machine)")
        measured = _measure(nsys, _python(program), request)
    except PipelineError as error:
        return _unknown(error.message)
    if cached and len(measured.costs):
        # without a writable cache, each run measures again
        with suppress(OSError):
            cached.parent.mkdir(parents=True, exist_ok=True)
            aside = cached.with_name(f".{cached.name}.{os.getpid()}")
            aside.write_text(to_text({_NAME: measured.costs}), encoding="utf-8")
            aside.replace(cached)
    return measured


def costs_of(plain: Mapping[str, float], traced: Mapping[str, float], recorded: Mapping[str, float]) -> pd.DataFrame:
    """Return the table `profiler_costs`: the time that nsys adds per call, and the duration that it records.

    The kind `host` makes no calls: it scales the times without nsys to the host's speed in the other run. Raise
    ToolError for implausible times.
    """
    speed = traced["host"] / plain["host"] if plain.get("host", 0) > 0 and traced.get("host", 0) > 0 else 1.0
    rows = [
        (kind, max((traced[kind] - speed * plain[kind]) / _CALLS.get(kind, 1), 0.0), float(recorded[kind]))
        for kind in CALL_KINDS
        if kind in plain and kind in traced and kind in recorded
    ]
    costs = conform(_NAME, pd.DataFrame(rows, columns=["kind", "added_ns", "recorded_ns"]))
    launches = costs[costs["kind"] == LAUNCHES]
    likely = launches["added_ns"].between(_LEAST_NS, _MOST_NS) & launches["recorded_ns"].between(_LEAST_NS, _MOST_NS)
    if not likely.any():
        raise ToolError("call times without and with nsys are implausible: other work disturbed the measurement")
    return costs


def _measure(nsys: Path, python: str, request: Request) -> Calibration:
    logs = request.logs / "calibration"
    remaining = replace(
        request,
        logs=logs,
        capture_range="none",
        part=None,
        names=(),
        timeout_s=min(_LIMIT_S, request.timeout_s),
        progress=silent,
        verbose=False,
    )
    with scratch() as folder:
        plain, traced, report = (folder / name for name in ("plain.json", "traced.json", f"calibration{NSYS_REPORT}"))
        command = (python, str(_PROGRAM), str(plain))
        untraced = run_logged(
            Child(command, child_environment(remaining)), log=logs / "plain.log", timeout_s=remaining.timeout_s
        )
        if untraced.interrupted:
            raise KeyboardInterrupt
        if untraced.status == _NO_CUDA or not untraced.ok:
            reason = "has no torch with CUDA" if untraced.status in (1, _NO_CUDA) else untraced.ending
            return _unknown(f"the Python for the measurement {reason}", untraced.seconds)
        watched = Program("calibration", "script", (python, str(_PROGRAM), str(traced)))
        outcome = record(nsys, watched, remaining, report=report).outcome
        if outcome.interrupted:
            raise KeyboardInterrupt
        database = report.with_suffix(NSYS_EXPORT)
        export_sqlite(report, database, nsys=nsys, log=logs / "export.log")
        costs = costs_of(_times(plain), _times(traced), _recorded_durations(database))
    return Calibration(costs, seconds=untraced.seconds + outcome.seconds)


def _times(path: Path) -> dict[str, float]:
    try:
        document: Any = json.loads(path.read_bytes())
        return {str(kind): float(ns) for kind, ns in document["call_ns"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolError("the measuring program wrote no times") from error


def _recorded_durations(database: Path) -> dict[str, float]:
    """Return the median recorded duration of calls of each kind, in ns."""
    try:
        with closing(sqlite3.connect(database)) as connection:
            calls = pd.DataFrame(connection.execute(_CALL_TIMES).fetchall(), columns=["name", "ns"])
    except sqlite3.Error as error:
        raise ToolError("nsys recorded no CUDA calls") from error
    kinds = call_kinds(api_names(pd.Index(calls["name"], dtype="str")))
    medians = calls["ns"].groupby(kinds.to_numpy()).median()
    return {str(kind): float(ns) for kind, ns in medians.items()}


def _python(program: Program) -> str:
    """Return the Python of a program: the one in its command, otherwise the one that runs scripts."""
    first = program.command[0]
    is_python = program.kind != "command" or re.fullmatch(r"python[\d.]*", Path(first).name)
    return first if is_python else interpreter(needs=lambda: ("torch",)).path


def _identity(nsys: Path, request: Request) -> list[object]:
    """Return the facts that determine the overhead; ToolError if the GPU is unknown."""
    nvidia_smi = shutil.which("nvidia-smi")
    if nvidia_smi is None:
        raise ToolError("nvidia-smi is not on PATH, so the GPU model is unknown")
    gpus = ask([nvidia_smi, "--query-gpu=name,driver_version", "--format=csv,noheader"]).splitlines()
    cpu = re.search(r"^model name\s*:\s*(.*)$", read_system("proc/cpuinfo"), re.MULTILINE)
    options = [request.trace, sorted(request.recordings), list(request.nsys_arguments)]
    return [_VERSION, cpu[1] if cpu else "", sorted(set(gpus)), tool_version(nsys), *options]


def _cache(identity: list[object]) -> Path | None:
    """Return the cache file for this machine; None if the user has no cache folder."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    return base / "nightsight" / f"profiler-cost-{key}.json"


def _read(path: Path) -> pd.DataFrame | None:
    """Return the costs in the cache; None if missing or damaged."""
    try:
        return from_text(path.read_bytes()).get(_NAME)
    except (OSError, CaptureError):
        return None


def _unknown(reason: str, seconds: float = 0.0) -> Calibration:
    return Calibration(_NOTHING, reason, seconds)


_VERSION: Final = 1
_NOTHING: Final = conform(_NAME, pd.DataFrame(columns=["kind", "added_ns", "recorded_ns"]))
