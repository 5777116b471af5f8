"""What can be run: the registered workloads, scripts and commands; and what a workload says of its own speed."""

import difflib
import json
import math
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from nightsight.collect.process import Child, Outcome, last_lines, run_logged
from nightsight.collect.replay import Replay
from nightsight.collect.tools import allowed_environment, commit, has_gpu, unwritable, writable_folder
from nightsight.errors import CaptureError, UsageError, WorkloadError
from nightsight.model import Benchmark, Environment, Finding
from nightsight.shipped import shipped

PACKAGE: Final = shipped("workloads")
Kind = Literal["workload", "script", "command"]
_LONGEST_NAME: Final = 48
_USAGE: Final = 2
_DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError)


@dataclass(frozen=True)
class Workload:
    """An entry of workloads/registry.toml: what `nightsight workloads` shows and `profile NAME` runs."""

    name: str
    module: str
    summary: str
    options: str


@dataclass(frozen=True)
class Program:
    """What is profiled. `name` is safe as a folder and in a report; `command` starts it, with its arguments.

    The command of a workload or a script begins with the Python that runs it.
    """

    name: str
    kind: Kind
    command: tuple[str, ...]


@dataclass(frozen=True)
class Request:
    """How a program is to be collected, by whichever collector.

    `keep_env` names variables it may see beyond the allow-list. `nsys`, `trace`, `capture_range` (None: chosen by
    the kind of program), `recordings` (of RECORDINGS) and `nsys_arguments` are for nsys alone; `ncu` and `replay` for
    ncu, which is left out where `replay` is None.
    """

    captures: Path = Path("capture")
    logs: Path = Path("log")
    timeout_s: float = 3600.0
    keep_env: tuple[str, ...] = ()
    progress: Callable[[str], None] = lambda _: None
    verbose: bool = False
    nsys: Path | None = None
    trace: str = "cuda,nvtx"
    capture_range: str | None = None
    recordings: tuple[str, ...] = ()
    nsys_arguments: tuple[str, ...] = ()
    ncu: Path | None = None
    replay: Replay | None = None


@dataclass(frozen=True)
class Measured:
    """What a run without a profiler gave: step times, the parameters it really used, and facts of its machine."""

    benchmark: Benchmark | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    stages_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long it took: so much less time has the profiled run."""
        return sum(self.stages_s.values())


def registered() -> tuple[Workload, ...]:
    """List the workloads of the registry, in its order."""
    tables = tomllib.loads((PACKAGE / "registry.toml").read_text(encoding="utf-8"))
    return tuple(
        Workload(name, table["module"], table["summary"], table.get("options", "")) for name, table in tables.items()
    )


def resolve(target: str | None, arguments: Sequence[str], *, python: str = sys.executable) -> Program:
    """Turn what was typed into a program: a workload's name, a .py script or another executable file.

    Without a target the arguments are the whole command. UsageError when there is no such thing to run.
    """
    if target is None:
        return _command(arguments)
    for workload in registered():
        if workload.name == target:
            # by the path of the package: what lies beside it is not for this Python
            return Program(target, "workload", (python, str(PACKAGE), workload.module, *arguments))
    path = Path(target)
    if path.suffix == ".py":
        return _script(path, arguments, python)
    if path.is_file() or os.sep in target:
        return _command((str(path.absolute()), *arguments))
    raise _unknown(target)


def safe_name(text: str) -> str:
    """Turn a path into a short name, harmless as a folder and in a page: ASCII letters, digits, `_` and `-`."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", Path(text).name)[:_LONGEST_NAME].strip("-_") or "program"


def child_environment(request: Request) -> dict[str, str]:
    """Return the environment of a child: the allowed variables."""
    return allowed_environment(request.keep_env)


def captured_by(program: Program, request: Request) -> str:
    """Return what switches profilers on and off: as asked for, else cudaProfilerApi for our workloads on a GPU."""
    on_cpu = re.search(r"--device[ =]cpu\b", " ".join(program.command))
    return request.capture_range or (
        "cudaProfilerApi" if program.kind == "workload" and has_gpu() and not on_cpu else "none"
    )


def run_benchmark(program: Program, request: Request) -> Measured:
    """Time a workload without a profiler; only our workloads can be. What goes wrong is a finding."""
    if program.kind != "workload":
        return Measured()
    request.progress(f"timing {program.name} without a profiler")
    answer, log = request.logs / "benchmark.json", request.logs / "benchmark.log"
    fresh(answer)
    outcome = run_logged(
        Child((*program.command, "--benchmark", str(answer)), child_environment(request)),
        log=log,
        timeout_s=request.timeout_s,
        verbose=request.verbose,
    )
    # neither the time nor options that it does not accept will be better under a profiler
    if outcome.stopped or outcome.status == _USAGE:
        raise program_failed(program, outcome, log)
    stages = {"benchmark": outcome.seconds}
    if not outcome.ok:
        return Measured(findings=(_not_timed(f"{program.name} {outcome.ending}"),), stages_s=stages)
    try:
        return replace(read_benchmark(answer), stages_s=stages)
    except CaptureError as error:
        return Measured(findings=(_not_timed(error.message),), stages_s=stages)


def read_benchmark(path: Path) -> Measured:
    """Read the JSON that a workload's --benchmark writes; CaptureError for anything else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        step_ns = tuple(float(value) for value in document["step_ns"])
        if not step_ns or not all(math.isfinite(value) and value > 0 for value in step_ns):
            raise ValueError("its step times are not times")
        benchmark = Benchmark(step_ns, int(document["steps_per_trial"]))
        return Measured(benchmark, _texts(document["parameters"]), _texts(document["facts"]))
    except OSError as error:
        raise CaptureError("the workload wrote no benchmark", "Does it know the option --benchmark?") from error
    except _DAMAGED as error:
        raise CaptureError("the workload's benchmark cannot be read", f"{path}: {error}") from error


def described(collector: str, version: str, facts: Mapping[str, str]) -> Environment:
    """Say with what, and on what, something was collected; the reader of the capture adds what its file knows."""
    return Environment(
        collector=collector,
        collector_version=version,
        gpu=facts.get("device_name", "") if facts.get("device") == "cuda" else "",
        cuda=facts.get("cuda", ""),
        python=facts.get("python", ""),
        torch=facts.get("torch", ""),
        commit=commit(),
    )


def fresh(*paths: Path) -> None:
    """Make way for files about to be written, so that what is found afterwards is new; CaptureError if we may not."""
    for path in paths:
        writable_folder(path.parent)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(path.parent, error) from error


def program_failed(program: Program, outcome: Outcome, log: Path) -> WorkloadError:
    """Word the error for a program that failed, or was stopped, before anything of it was captured."""
    said = last_lines(log)
    words = f"Its last lines:\n{said}\n" if said else "It printed nothing.\n"
    advice = "Allow it more time, or make it smaller. " if outcome.timed_out else ""
    return WorkloadError(f"{program.name} {outcome.ending}; nothing was captured", f"{words}{advice}Its output: {log}")


def partial_capture(program: Program, outcome: Outcome) -> tuple[str, tuple[Finding, ...]]:
    """Return the `failure` of a capture whose program did not come to its end, and the finding; neither if it did."""
    if outcome.ok:
        return "", ()
    failure = f"{program.name} {outcome.ending}"
    finding = Finding(
        "partial_capture",
        "error",
        "This is only a part of the program's run",
        f"{failure}. What is shown ends there: its sums and averages are not those of a whole run.",
        "Run it again, with more time." if outcome.timed_out else "Run it again, to its own end.",
    )
    return failure, (finding,)


def _texts(document: Mapping[str, object]) -> dict[str, str]:
    return {str(name): str(value) for name, value in document.items() if value is not None}


def _not_timed(reason: str) -> Finding:
    return Finding(
        "benchmark_failed",
        "warning",
        "There are no step times without a profiler",
        f"{reason}. So it is not known how much slower the profiler made the program.",
        "See benchmark.log among the logs of this run.",
    )


def _script(path: Path, arguments: Sequence[str], python: str) -> Program:
    if not path.is_file():
        raise UsageError(f"there is no script {path}", f"Looked in {Path.cwd()}; check the path.")
    # Absolute, as Python would take a name that begins with a dash for an option.
    return Program(_own_name(path.stem), "script", (python, str(path.absolute()), *arguments))


def _command(arguments: Sequence[str]) -> Program:
    if not arguments:
        raise UsageError("there is nothing to run", "Name a workload or a script, or give a command after `--`.")
    first, *rest = arguments
    found = shutil.which(first)
    if found is None:
        reason = "is not a program that can be run" if Path(first).exists() else "was not found"
        raise UsageError(f"{first} {reason}", "Give its path, put its folder on PATH, or `chmod +x` it.")
    executable = str(Path(found).absolute())
    if re.fullmatch(r"python[\d.]*", Path(first).name) and rest and rest[0].endswith(".py"):
        return _script(Path(rest[0]), rest[1:], executable)
    return Program(_own_name(first), "command", (executable, *rest))


def _own_name(text: str) -> str:
    """Name a program so that its runs do not mix with those of a workload, or with the sample."""
    name = safe_name(text)
    taken = {"sample", *(workload.name for workload in registered())}
    return f"{name}_file" if name in taken else name


def _unknown(target: str) -> UsageError:
    names = [workload.name for workload in registered()]
    near = difflib.get_close_matches(target, names, n=3)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return UsageError(
        f"there is no workload {target!r}",
        f"{meant}Workloads: {', '.join(names)}. For anything else give a path, or a command after `--`.",
    )
