"""Collects with Nsight Systems: starts it so that its report holds no private data, and explains its failures."""

import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

from nightsight.captures import NSYS_EXPORT, NSYS_RECORDING, NSYS_REPORT
from nightsight.collect.compilations import compile_log
from nightsight.collect.names import Annotation, annotation_of, watching_forks
from nightsight.collect.process import Child, Outcome, last_lines, run_logged
from nightsight.collect.recordings import missing_recordings, recording_options, remedy_for
from nightsight.collect.session import Session, new_session, recorder_of
from nightsight.collect.tools import (
    NSYS_PLACES,
    allowed_environment,
    ask,
    find_nsys,
    refuse_lost_folder,
    tool_version,
    writable_folder,
    write_error,
)
from nightsight.collect.workloads import (
    PROGRAM_OUTPUT,
    Program,
    Request,
    capture_range_of,
    child_environment,
    delete_old,
    environment_of,
    partial_capture,
    program_failure,
    run_benchmark,
)
from nightsight.errors import CaptureError, PipelineError, ToolError, WorkloadError
from nightsight.model.report import Capture, Finding
from nightsight.system.scratch import scratch

# nsys exports a million kernels in seconds: an export that takes an hour hangs
_EXPORT_LIMIT_S: Final = 3600.0
_HEAD_BYTES: Final = 1 << 16
_STARTED_BY: Final = {
    "cudaProfilerApi": "by a call of cudaProfilerStart on a GPU",
    "nvtx": "by the range named with --nsys-arg=--nvtx-capture=NAME",
}
_BREAKS_ENV_VAR: Final = re.compile(r"[,\"'\\\n]|^$")
# nsys is writing its report: from the first of these messages until it prints the file name
_SAVING: Final = r"(?s)(?:Generating |Processing events)(?!.*Generated:)"
_RECORDED: Final = re.compile(r"^(Generated:|Generating |Processing events)", re.MULTILINE)


@dataclass(frozen=True)
class RecordedRun:
    """How a recorded run ended; `failure` and `findings` as in a Capture."""

    outcome: Outcome
    failure: str
    findings: tuple[Finding, ...]


def collect_nsys(program: Program, request: Request) -> Capture:
    """Run a program under nsys and export the recording; a program that fails half way leaves a partial capture.

    ToolError if nsys is missing or fails, WorkloadError if the program fails before anything is captured, CaptureError
    if nsys captures nothing.
    """
    nsys = required_nsys(request.nsys, program)
    version = tool_version(nsys)
    measured = run_benchmark(program, request)
    report = request.captures / f"{program.name}{NSYS_REPORT}"
    database = report.with_suffix(NSYS_EXPORT)
    delete_old(report, report.with_suffix(NSYS_RECORDING), database)
    started = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    remaining = replace(request, timeout_s=request.timeout_s - measured.seconds)
    annotation = annotation_for(nsys, program, request)
    if annotation.description:
        request.progress(f"annotating: {annotation.description}")
    with watching_forks(remaining) as forks:
        run = record(nsys, program, remaining, report=report)
    failure, first_output = run.failure, _first_output(request.logs / PROGRAM_OUTPUT)
    findings = (*run.findings, *forks, *annotation.findings, *missing_recordings(request.recordings, first_output))
    request.progress(f"exporting {report.name}")
    exported_s = _export_part(report, database, nsys=nsys, log=request.logs / "export.log", failure=failure)
    return Capture(
        workload=program.name,
        collector="nsys",
        files=(report, database),
        environment=replace(environment_of("nsys", version, measured.facts), captured_utc=started),
        parameters={**measured.parameters, **({"names": annotation.description} if annotation.description else {})},
        benchmark=measured.benchmark,
        findings=(*measured.findings, *findings),
        stages_s={**measured.stages_s, "profile": run.outcome.seconds, "export": exported_s},
        failure=failure,
        serving=measured.serving,
    )


def required_nsys(explicit: Path | None = None, program: Program | None = None) -> Path:
    """Find nsys, to profile a program or to export a recording; ToolError if there is none."""
    nsys = find_nsys(explicit)
    if nsys is None:
        instead = " Or profile without it: --collector torch." if program and program.is_for_torch else ""
        raise ToolError(
            "nsys was not found",
            f"Searched --nsys, $NSYS, PATH and /{', /'.join(NSYS_PLACES)}. Install it (from NVIDIA's repository: "
            f"apt-get install nsight-systems-cli), or pass its path with --nsys.{instead}",
        )
    return nsys


def export_sqlite(report: Path, target: Path, *, nsys: Path, log: Path) -> None:
    """Export a .nsys-rep as SQLite to `target`, which appears whole or not at all.

    ToolError if nsys fails, CaptureError if `target` cannot be written.
    """
    writable_folder(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".export-") as folder:
        # run in this folder: nsys fails without its working directory, and the program may have deleted ours
        absolute = Path(folder).absolute()
        aside = absolute / f"export{NSYS_EXPORT}"
        options = ("--type", "sqlite", "--force-overwrite=true", *_payload_options(nsys), "-o", str(aside))
        command = (str(nsys.absolute()), "export", *options, str(report.absolute()))
        outcome = run_logged(Child(command, allowed_environment(), folder=absolute), log=log, timeout_s=_EXPORT_LIMIT_S)
        if outcome.interrupted:
            raise KeyboardInterrupt
        if not outcome.ok or not _has_content(aside):
            refuse_lost_folder(target.parent)
            how = "nsys wrote nothing" if outcome.ok else f"nsys export {outcome.ending}"
            hint = f"nsys said:\n{last_lines(log) or 'nothing'}\nTry it by hand: nsys export --type sqlite {report}"
            raise ToolError(f"cannot export {report.name}: {how}", hint)
        try:
            aside.replace(target)
        except OSError as error:
            raise write_error(target.parent, error) from error


def annotation_for(nsys: Path, program: Program, request: Request) -> Annotation:
    """Return how to annotate a program with this nsys; nothing if its trace has no NVTX ranges."""
    if "nvtx" not in request.trace.split(","):
        return Annotation()
    return annotation_of(program, request, help_text=_help_of(nsys, "profile"))


def record(nsys: Path, program: Program, request: Request, *, report: Path) -> RecordedRun:
    """Run a program under nsys, which writes `report`; see `collect_nsys` for what can go wrong."""
    capture_range = capture_range_of(program, request)
    log = request.logs / PROGRAM_OUTPUT
    with scratch() as folder:
        session = new_session(nsys, request, folder)
        recorder = recorder_of(program, request, session)
        request.progress(f"profiling {program.name} with nsys")
        child = _child(program, session, report=report, capture_range=capture_range)
        if recorder:
            child = replace(child, watch=recorder.watch)
        outcome = run_logged(
            child,
            log=log,
            timeout_s=request.timeout_s,
            verbose=request.verbose,
            listen=recorder.listen if recorder else None,
        )
    if recorder and not session.has_begun:
        raise recorder.not_started_error(outcome, log)
    if not _has_content(report):
        refuse_lost_folder(report.parent)
        raise _nothing_captured(program, outcome, report=report, log=log, capture_range=capture_range)
    return RecordedRun(outcome, *(recorder.judge(outcome) if recorder else partial_capture(program, outcome)))


def _child(program: Program, session: Session, *, report: Path, capture_range: str) -> Child:
    nsys, request = session.nsys, session.request
    annotation = annotation_for(nsys, program, request)
    environment = {**child_environment(request), **compile_log(request), **annotation.environment}
    help_text = _help_of(nsys, "profile")
    # in file names, nsys expands patterns that start with %
    options = ["-o", str(report.with_suffix("")).replace("%", "%%"), "--force-overwrite=true"]
    options += [*session.options, f"--trace={request.trace}", "--cpuctxsw=none"]
    options += [*recording_options(request.recordings, help_text=help_text), *annotation.options]
    if capture_range != "none":
        options += [f"--capture-range={capture_range}", "--capture-range-end=stop"]
    options += [*_environment_options(environment, help_text=help_text), *request.nsys_arguments]
    if not session.namespace:
        request.progress("nsys will also record the environment of other processes: do not publish capture/")
    command = (*session.namespace, str(nsys), "profile", *options, *program.command)
    return Child(command, environment, session.stop_command, saving=_SAVING)


def _payload_options(nsys: Path) -> list[str]:
    """Return the option that exports payloads of NVTX, such as sampled stacks of Python, if this nsys has it."""
    return ["--include-json=true"] if "--include-json" in _help_of(nsys, "export") else []


def _help_of(nsys: Path, command: str) -> str:
    """Return the help text of a command of nsys; "" if there is none."""
    try:
        return _help(nsys.absolute(), command, nsys.stat().st_mtime_ns)
    except (ToolError, OSError):
        return ""


@cache
def _help(nsys: Path, command: str, _changed_ns: int) -> str:
    """Return the help, cached for all runs of a series unless another nsys was installed since."""
    return ask([str(nsys), command, "--help"])


def _environment_options(environment: Mapping[str, str], *, help_text: str) -> list[str]:
    """Return the options that keep nsys from adding variables to `environment`, if this nsys has them.

    nsys splits --env-var at commas, and commas cannot be quoted. The caller's variables stay out in any case, because
    nsys itself is started with a clean environment.
    """
    if "--inherit-environment" not in help_text or any(_BREAKS_ENV_VAR.search(value) for value in environment.values()):
        return []
    pairs = ",".join(f"{name}={value}" for name, value in environment.items())
    return ["--inherit-environment=false", f"--env-var={pairs}"]


def _nothing_captured(
    program: Program, outcome: Outcome, *, report: Path, log: Path, capture_range: str
) -> PipelineError:
    recording = report.with_suffix(NSYS_RECORDING)
    if recording.exists():
        return ToolError(
            f"nsys recorded {program.name} but could not write a report: its importer did not start",
            "Usually libdw is missing: `apt-get install libdw1`. Offline, `dpkg -x` the packages libdw1 and libelf1 "
            f"into / and run `ldconfig`. The recording is kept: {recording}. Output of nsys: {log}",
        )
    output = last_lines(log, 1000)
    if not outcome.ok and not outcome.stopped and not _RECORDED.search(output):
        first, *more = output.split("\n")[:10]
        hint = [line for line in (remedy_for(output), *more, f"{log}") if line]
        return ToolError(f"nsys did not start {program.name}: {first or outcome.ending}", "\n".join(hint))
    if not outcome.ok:
        return program_failure(program, outcome, log)
    if capture_range == "none":
        return CaptureError(f"{program.name} ran, but nsys wrote no report", f"nsys said:\n{last_lines(log)}\n{log}")
    return CaptureError(
        f"nothing was captured: the capture range ({capture_range}) never started",
        f"{program.name} ran to its end without starting the range ({_STARTED_BY[capture_range]}). "
        "To capture the whole run: --capture-range none.",
    )


def _export_part(report: Path, target: Path, *, nsys: Path, log: Path, failure: str) -> float:
    """Export and return the seconds it took. If the program had failed, report that rather than a failed export."""
    started = time.monotonic()
    try:
        export_sqlite(report, target, nsys=nsys, log=log)
    except ToolError as error:
        if not failure:
            raise
        raise WorkloadError(f"{failure}, and the capture cannot be read", error.hint) from error
    return time.monotonic() - started


def _first_output(log: Path) -> str:
    try:
        with log.open("rb") as file:
            return file.read(_HEAD_BYTES).decode(errors="replace")
    except OSError:
        # the program may have deleted the log
        return ""


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
