"""The programs that can be profiled (workloads, scripts, commands), and the step times that workloads report."""

import ast
import json
import math
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

from nightsight.collect.own import OwnWorkload, own_workloads
from nightsight.collect.process import Child, Outcome, last_lines, run_logged
from nightsight.collect.replay import Replay
from nightsight.collect.tools import allowed_environment, commit, has_gpu, writable_folder, write_error
from nightsight.collect.tracing import WHOLE_RUN, Tracing
from nightsight.collect.variables import is_secret_name, is_secret_value
from nightsight.errors import CaptureError, UsageError, WorkloadError
from nightsight.model.history import digest
from nightsight.model.report import ARGUMENTS, Benchmark, Capture, Environment, Finding
from nightsight.progress import Progress, silent
from nightsight.system.shipped import shipped
from nightsight.texts import did_you_mean, without_private

PACKAGE: Final = shipped("workloads")
PROGRAM_OUTPUT: Final = "profile.log"
"""The output of the profiled program, in the folder for logs."""
Kind = Literal["workload", "script", "command"]
_LONGEST_NAME: Final = 48
_USAGE: Final = 2
_DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError)


@dataclass(frozen=True)
class Workload:
    """An entry of workloads/registry.toml, shown by `nightsight workloads` and run by `profile NAME`."""

    name: str
    module: str
    summary: str
    options: str
    is_native: bool = False
    recordings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """A program to profile. `name` is safe as a folder name and in a report; `command` includes its arguments.

    The command of a workload or script starts with the Python that runs it. `recordings`: what nsys records by default.
    `arguments`: the arguments as given; in `command`, they may name files of one commit.
    """

    name: str
    kind: Kind
    command: tuple[str, ...]
    is_native: bool = False
    recordings: tuple[str, ...] = ()
    arguments: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_for_torch(self) -> bool:
        """Whether torch.profiler can see it: it is a Python program, as are all workloads that are not native."""
        return self.kind != "command" and not self.is_native


@dataclass(frozen=True)
class Span:
    """A part of a program's run, in seconds: its start and duration (None: to the end)."""

    delay_s: float = 0.0
    duration_s: float | None = None


@dataclass(frozen=True)
class Load:
    """A client that loads a server, how to tell that the server is ready, and how long to wait for that.

    start_profile: the URL with which the server's own profiler is started, "" for none; it ends in `start_profile`.
    """

    client: Program
    ready: str
    ready_within_s: float
    start_profile: str = ""


@dataclass(frozen=True)
class Request:
    """How to collect a program, for any collector.

    `keep_env`: variables that the program may see in addition to the allow-list. Only for nsys: `nsys`, `trace`,
    `capture_range` (None: depends on the kind of program), `recordings` (from RECORDINGS), `names` (from NAMES; None:
    what costs little; (): nothing is loaded into the program), `isolate` (whether nsys gets its own PID namespace) and
    `nsys_arguments`. Only for ncu: `ncu` and `replay` (None: no replay). Only for torch: `tracing`. `calibrate`:
    whether to measure the overhead of nsys per call (None: if unknown for this machine). `time_steps`: whether to time
    the steps without a profiler (None: if that is likely to work, and not for long). `part`: what nsys records instead
    of the whole run: a time span, or the time in which a client loads the server.
    """

    captures: Path = Path("capture")
    logs: Path = Path("log")
    timeout_s: float = 3600.0
    keep_env: tuple[str, ...] = ()
    progress: Progress = silent
    verbose: bool = False
    nsys: Path | None = None
    trace: str = "cuda,nvtx"
    capture_range: str | None = None
    recordings: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None
    isolate: bool = True
    nsys_arguments: tuple[str, ...] = ()
    ncu: Path | None = None
    replay: Replay | None = None
    calibrate: bool | None = None
    time_steps: bool | None = None
    part: Span | Load | None = None
    tracing: Tracing = WHOLE_RUN


@dataclass(frozen=True)
class Measured:
    """The result of a run without a profiler: step times, the parameters that it used, and facts about the machine.

    `serving`: figures of workloads that answer requests, unchecked.
    """

    benchmark: Benchmark | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    stages_s: Mapping[str, float] = field(default_factory=dict)
    serving: Mapping[str, object] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The duration of the run, which is subtracted from the time limit of the profiled run."""
        return sum(self.stages_s.values())


class OnlyTimed(WorkloadError):
    """The program was stopped before anything was captured, but some of its steps were timed."""

    def __init__(self, failed: WorkloadError, measured: Measured) -> None:
        super().__init__(failed.message, failed.hint)
        self.measured = measured

    def capture(self, program: Program, collector: str) -> Capture:
        """Return a capture without files, only with step times."""
        failure = self.message.partition(";")[0]
        finding = Finding(
            "nothing_profiled",
            "error",
            "Nothing was profiled: the report has only step times",
            f"{failure}. The step times were measured before, without a profiler.",
            "Run it again to its end. Fewer --trials shorten the timing.",
        )
        measured = self.measured
        return Capture(
            program.name,
            collector,
            (),
            environment=environment_of(collector, "", measured.facts),
            parameters=measured.parameters,
            benchmark=measured.benchmark,
            findings=(finding,),
            stages_s=measured.stages_s,
            failure=failure,
        )


def registered_workloads() -> tuple[Workload, ...]:
    """Return the workloads in the order of the registry."""
    tables = tomllib.loads((PACKAGE / "registry.toml").read_text(encoding="utf-8"))
    return tuple(
        Workload(
            name,
            table["module"],
            table["summary"],
            table["options"],
            is_native=table.get("native", False),
            recordings=tuple(table.get("recordings", ())),
        )
        for name, table in tables.items()
    )


def resolve(
    target: str | None, arguments: Sequence[str], *, python: str = sys.executable, folder: Path | None = None
) -> Program:
    """Return the program for a command line: the name of a workload, a .py script or another executable file.

    Without a target, the arguments are the whole command. `folder`: the user's workloads, instead of those in
    pyproject.toml. Raise UsageError if the program does not exist.
    """
    if folder and (target is None or target.endswith(".py") or os.sep in target):
        raise UsageError(f"--workloads has no effect on {target or 'a command'}: name a workload from that folder")
    if target is None:
        return _command(arguments)
    path = Path(target)
    if path.suffix == ".py":
        return _script(path, arguments, python)
    own = {workload.name: workload for workload in own_workloads(folder)}
    if target in own:
        return _own_program(own[target], arguments, python)
    for workload in registered_workloads():
        if workload.name == target:
            # run by path: with the parent folder on sys.path, this Python could import modules not meant for it
            command = (python, str(PACKAGE), workload.module, *arguments)
            return Program(target, "workload", command, workload.is_native, workload.recordings)
    if path.is_file() or os.sep in target:
        return _command((str(path.absolute()), *arguments))
    raise _unknown_workload(target, own)


def target_of(command: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the workload or script of a command, None for another program, and the arguments."""
    first, *rest = command
    names = {workload.name for workload in registered_workloads()} | {workload.name for workload in own_workloads()}
    return (first, rest) if first.endswith(".py") or first in names else (None, list(command))


def modules_of(target: str | None, folder: Path | None = None, *, is_traced: bool) -> set[str]:
    """Return the modules that a target of `resolve` needs, as far as known without running it.

    Built-in workloads need torch; a script needs what it always imports, and torch if torch.profiler traces it. A
    command brings its own Python.
    """
    if target is None:
        return set()
    scripts = {} if target.endswith(".py") else {own.name: own.script for own in own_workloads(folder)}
    if target.endswith(".py") or target in scripts:
        return _imported_modules(scripts.get(target, Path(target))) | ({"torch"} if is_traced else set())
    return {"torch" for workload in registered_workloads() if workload.name == target and not workload.is_native}


def safe_name(text: str) -> str:
    """Turn a path into a short name that is safe as a folder and in HTML: ASCII letters, digits, `_` and `-`."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", Path(text).name)[:_LONGEST_NAME].strip("-_") or "program"


def arguments_of(program: Program, request: Request) -> dict[str, str]:
    """Return a parameter that differs if the arguments of a program do, without revealing them.

    Workloads report their parameters themselves. With 16 bits, many arguments share each digest. Possible passwords and
    tokens are still omitted, and so are folders, which differ between machines.
    """
    if program.kind == "workload":
        return {}
    client = request.part.client.arguments if isinstance(request.part, Load) else ()
    options = ["", *program.arguments, "", *client]
    words = [_portable_part(option, word) for option, word in pairwise(options)]
    return {ARGUMENTS: f"digest {digest(json.dumps(words), 4)}" if any(words) else "none"}


def _portable_part(before: str, word: str) -> str:
    """Return the part of an argument that is portable and not secret; `before`: the argument before it."""
    name, is_given, value = word.rpartition("=")
    if not is_given and before.startswith("-"):
        name = before
    # --max-tokens 64 is not a secret
    if is_secret_value(value) or (is_secret_name(name) and not re.fullmatch(r"[\d.,e+-]*", value)):
        return name if is_given else ""
    if not value.startswith(os.sep):
        return word
    portable = "" if Path(value).is_relative_to(tempfile.gettempdir()) else Path(value).name
    return f"{name}={portable}" if is_given else portable


def child_environment(request: Request) -> dict[str, str]:
    """Return the environment of the program: only the allowed variables."""
    return allowed_environment(request.keep_env)


def capture_range_of(program: Program, request: Request) -> str:
    """Return the requested capture range, otherwise cudaProfilerApi for built-in workloads on a GPU, otherwise none."""
    if request.part:
        return "none"
    on_cpu = re.search(r"--device[ =]cpu\b", " ".join(program.command))
    return request.capture_range or (
        "cudaProfilerApi" if program.kind == "workload" and has_gpu() and not on_cpu else "none"
    )


def run_benchmark(program: Program, request: Request) -> Measured:
    """Time a workload without a profiler; other programs are not timed. A failure becomes a finding.

    Raise WorkloadError if the workload is stopped or rejects its options, as OnlyTimed if it left step times.
    """
    if program.kind != "workload":
        return Measured()
    request.progress(f"timing {program.name} without a profiler")
    answer, log = request.logs / "benchmark.json", request.logs / "benchmark.log"
    delete_old(answer)
    outcome = run_logged(
        Child((*program.command, "--benchmark", str(answer)), child_environment(request)),
        log=log,
        timeout_s=request.timeout_s,
        verbose=request.verbose,
    )
    stages = {"benchmark": outcome.seconds}
    # a time limit or invalid options would also stop the profiled run
    if outcome.stopped or outcome.status == _USAGE:
        with suppress(CaptureError):
            measured = replace(read_benchmark(answer), stages_s=stages)
            raise OnlyTimed(program_failure(program, outcome, log), measured)
        raise program_failure(program, outcome, log)
    if not outcome.ok:
        return Measured(findings=(_NOT_TIMED.filled(reason=f"{program.name} {outcome.ending}"),), stages_s=stages)
    try:
        return replace(read_benchmark(answer), stages_s=stages)
    except CaptureError as error:
        return Measured(findings=(_NOT_TIMED.filled(reason=error.message),), stages_s=stages)


def read_benchmark(path: Path) -> Measured:
    """Read the JSON that a workload's --benchmark writes; CaptureError for anything else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        step_ns = tuple(float(value) for value in document["step_ns"])
        if not step_ns or not all(math.isfinite(value) and value > 0 for value in step_ns):
            raise ValueError("step times must be positive")
        benchmark = Benchmark(step_ns, int(document["steps_per_trial"]))
        facts, serving = _texts(document["facts"]), dict(document.get("serving", {}))
        findings = _skipped_work([str(note) for note in document.get("notes", [])])
        return Measured(benchmark, _texts(document["parameters"]), facts, findings, serving=serving)
    except OSError as error:
        raise CaptureError("the workload wrote no benchmark", "Does it support --benchmark?") from error
    except _DAMAGED as error:
        raise CaptureError("the workload's benchmark cannot be read", f"{path}: {error}") from error


def environment_of(collector: str, version: str, facts: Mapping[str, str]) -> Environment:
    """Return the collector and facts about its machine; the reader of the capture adds those in the file."""
    return Environment(
        collector=collector,
        collector_version=version,
        gpu=facts.get("device_name", "") if facts.get("device") == "cuda" else "",
        cuda=facts.get("cuda", ""),
        python=facts.get("python", ""),
        torch=facts.get("torch", ""),
        commit=commit(),
    )


def delete_old(*paths: Path) -> None:
    """Delete old files of these names, so that files found later are new; CaptureError if that fails."""
    for path in paths:
        writable_folder(path.parent)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise write_error(path.parent, error) from error


def program_failure(program: Program, outcome: Outcome, log: Path) -> WorkloadError:
    """Return the error for a program that failed or was stopped before anything was captured."""
    output = last_lines(log)
    words = f"Its last lines:\n{output}\n" if output else "It printed nothing.\n"
    alone = "Run it without nightsight. If it works alone, try --names off, then --no-isolate. "
    advice = "Allow more time (--timeout), or do less work. " if outcome.timed_out else alone
    return WorkloadError(f"{program.name} {outcome.ending}; nothing was captured", f"{words}{advice}Its output: {log}")


def partial_capture(program: Program, outcome: Outcome) -> tuple[str, tuple[Finding, ...]]:
    """Return the `failure` and the finding of a capture whose program failed or was stopped; otherwise "" and ()."""
    if outcome.ok:
        return "", ()
    failure = f"{program.name} {outcome.ending}"
    finding = Finding(
        "partial_capture",
        "error",
        "The capture covers only part of the run",
        f"{failure}. The capture ends there: sums and averages differ from those of a whole run.",
        "Run it again with more time (--timeout)." if outcome.timed_out else "Run it again to its end.",
    )
    return failure, (finding,)


def _texts(document: Mapping[str, object]) -> dict[str, str]:
    return {str(name): str(value) for name, value in document.items() if value is not None}


_NOT_TIMED: Final = Finding(
    "benchmark_failed",
    "warning",
    "No step times without a profiler",
    "{reason}. The report cannot show how much the profiler slowed the program down.",
    "See benchmark.log in the logs of this run.",
)


def _skipped_work(notes: Sequence[str]) -> tuple[Finding, ...]:
    """Return a finding with what a workload skipped, without file names, which compiler messages contain."""
    if not notes:
        return ()
    text = without_private("; ".join(notes))
    return (Finding("left_out", "warning", "The workload skipped some work", f"{text[:1].upper()}{text[1:]}."),)


def _script(path: Path, arguments: Sequence[str], python: str) -> Program:
    if not path.is_file():
        raise UsageError(f"script {path} does not exist", f"Looked in {Path.cwd()}. Check the path.")
    # absolute, because Python would read a name that starts with a dash as an option
    command = (python, str(path.absolute()), *arguments)
    return Program(_own_name(path.stem), "script", command, arguments=tuple(arguments))


def _imported_modules(script: Path) -> set[str]:
    """Return the modules that a script imports at top level, outside `try` and `if`; none if it cannot be read."""
    try:
        statements = ast.parse(script.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names = [alias.name for node in statements if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in statements if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names}


def _own_program(workload: OwnWorkload, arguments: Sequence[str], python: str) -> Program:
    every = (*workload.arguments, *arguments)
    return Program(_own_name(workload.name), "script", (python, str(workload.script), *every), arguments=every)


def _command(arguments: Sequence[str]) -> Program:
    if not arguments:
        raise UsageError("there is nothing to run", "Name a workload or script, or give a command after `--`.")
    first, *further = arguments
    path = shutil.which(first)
    if path is None:
        reason = "is not an executable file" if Path(first).exists() else "was not found"
        raise UsageError(f"{first} {reason}", "Give its path, add its folder to PATH, or make it executable: chmod +x")
    executable = str(Path(path).absolute())
    if re.fullmatch(_PYTHON, Path(first).name) and further and further[0].endswith(".py"):
        return _script(Path(further[0]), further[1:], executable)
    return Program(
        _own_name(_started_by(arguments) or first), "command", (executable, *further), arguments=tuple(further)
    )


def _started_by(command: Sequence[str]) -> str:
    """Return the name of the Python script or module that a command starts, such as that of torchrun; "" for none."""
    is_python = re.fullmatch(_PYTHON, Path(command[0]).name)
    for before, word in pairwise(command):
        if re.fullmatch(r"[^-\s]\S*\.py", word):
            return Path(word).stem
        if is_python and before == "-m" and not word.startswith(_STARTS_SCRIPTS):
            return word.rpartition(".")[2]
    return ""


_PYTHON: Final = r"python[\d.]*"
# modules that start a script
_STARTS_SCRIPTS: Final = ("torch.distributed.", "accelerate.", "deepspeed.")


def _own_name(text: str) -> str:
    """Return a name for a program that differs from the names of workloads and of the sample."""
    name = safe_name(text)
    reserved = {"sample", *(workload.name for workload in registered_workloads())}
    return f"{name}_file" if name in reserved else name


def _unknown_workload(target: str, own: Collection[str]) -> UsageError:
    names = list(dict.fromkeys((*own, *(workload.name for workload in registered_workloads()))))
    listed = f"{did_you_mean(target, names, most=3)}Workloads: {', '.join(names)}."
    return UsageError(
        f"unknown workload {target!r}", f"{listed} For other programs, give a path, or a command after `--`."
    )
