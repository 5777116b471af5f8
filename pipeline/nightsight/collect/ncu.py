"""Collects with Nsight Compute: starts the replay, stops it when enough is done, and explains failures."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from nightsight.collect.process import Child, Outcome, last_lines, run_logged
from nightsight.collect.replay import COMMUNICATING, Replay
from nightsight.collect.tools import (
    ALLOW_COUNTERS,
    NCU_PLACES,
    ask,
    find_ncu,
    may_read_counters,
    refuse_lost_folder,
    tool_version,
)
from nightsight.collect.workloads import (
    Program,
    Request,
    capture_range_of,
    child_environment,
    delete_old,
    environment_of,
    partial_capture,
    program_failure,
)
from nightsight.errors import PipelineError, ToolError, UsageError
from nightsight.model.report import Capture, Finding
from nightsight.progress import Progress

# messages of ncu
_STARTED: Final = '==PROF== Profiling "'
_DONE: Final = re.compile(r"100% - \d+ pass(?:es)?$")
_RUN: Final = re.compile(r"==PROF== Profiling .*Application replay pass (\d+)$")
_ERROR: Final = "==ERROR=="
_PROGRAM_FAILED: Final = "The application returned an error code"
_NONE_MATCHED: Final = ("==WARNING== No kernels were profiled", "==WARNING== No ranges were profiled")
_NOTHING_TO_COLLECT: Final = "==WARNING== No metrics to collect found in sections"
_AVAILABLE: Final = re.compile(r"\d+\. (.+)")
_LONGEST_LINE: Final = 1 << 16
_MOST_ERRORS: Final = 100
_NEAREST: Final = 8
# ncu may be in the middle of a long kernel's passes
_PATIENCE_S: Final = 60.0
_NO_METRICS: Final = "The report cannot show what limits each kernel."
_NO_COUNTERS: Final = "This user may not read GPU performance counters"
_SEE_LOG: Final = "See ncu.log in the logs of this run."
# messages after which ncu replays nothing more (a regular expression); what happened; what to do
_FAILURES: Final = (
    ("ERR_NVGPUCTRPERM", _NO_COUNTERS, ALLOW_COUNTERS),
    (
        "driver resource was unavailable|DriverResourceUnavailable|already under profiling",
        "Another profiler uses the GPU's counters",
        "Stop it (nsys --gpu-metrics, another ncu), or pause DCGM: dcgmi profile --pause",
    ),
    (
        f"did not match any|Failed to find metric|is not a valid set|--list-se|{_NOTHING_TO_COLLECT}",
        "ncu does not know the requested set, section or metric",
        "List what is available: ncu --list-sets, --list-sections, --query-metrics. Metrics depend on the GPU.",
    ),
    ("LibraryNotLoaded", "ncu cannot load the driver's libraries", "Sandboxes like gVisor prevent this. " + _SEE_LOG),
)


@dataclass(frozen=True)
class ReplayResult:
    """The result of a replay: the report, or None, and findings for what failed or was cut short.

    `outcome`: how ncu ended, None if it was not started; `broke_off`: the program failed or was interrupted.
    """

    report: Path | None
    version: str
    findings: tuple[Finding, ...]
    outcome: Outcome | None = None
    broke_off: bool = False

    def description(self, replay: Replay) -> dict[str, str]:
        """How the metrics were measured, for the reader of a report; empty without a report."""
        return {**replay.description, "ncu version": self.version} if self.report else {}

    @property
    def seconds(self) -> float:
        """How long the replay took."""
        return self.outcome.seconds if self.outcome else 0.0


def collect_ncu(program: Program, request: Request) -> Capture:
    """Run a program under ncu alone.

    ToolError if ncu leaves no report, WorkloadError if the program fails before that, UsageError if ranges or graphs
    are to be replayed as a whole.
    """
    replay = request.replay or Replay()
    if replay.is_whole:
        raise UsageError(
            "--collector ncu cannot replay whole ranges or graphs: kernels in them may wait for their peers",
            f"Omit --collector ncu. {COMMUNICATING} must not be replayed, and only a timeline shows where they are.",
        )
    started = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    result = replay_kernels(program, request, replay)
    if result.report is None:
        raise _nothing_captured(program, request, result)
    failure, findings = "", result.findings
    if result.broke_off and result.outcome:
        failure, partial = partial_capture(program, result.outcome)
        findings = (*partial, *findings)
    return Capture(
        workload=program.name,
        collector="ncu",
        files=(result.report,),
        environment=replace(environment_of("ncu", result.version, {}), captured_utc=started),
        # without a timeline, we do not know which kernels take most of the time
        parameters=result.description(replace(replay, everything=True)),
        findings=findings,
        stages_s={"replay": result.seconds},
        failure=failure,
    )


def replay_kernels(program: Program, request: Request, replay: Replay) -> ReplayResult:
    """Run a program under ncu. A failure is returned as a finding: other captures are complete without the replay."""
    tool = find_ncu(request.ncu)
    if tool is None:
        hint = f"Searched --ncu, $NCU, PATH and /{', /'.join(NCU_PLACES)}."
        return no_replay("ncu was not found", f"{hint} Install Nsight Compute, or give its path with --ncu.")
    if not may_read_counters():
        return no_replay(_NO_COUNTERS, ALLOW_COUNTERS)
    limit = min(replay.budget_s, request.timeout_s)
    if limit <= 0:
        return no_replay("No time was left to replay kernels", "Allow more time for the whole run: --timeout SECONDS.")
    try:
        version = tool_version(tool)
    except ToolError:
        # not quoted: its message contains paths
        return no_replay("ncu does not run", "Try it by hand: ncu --version. To use another one: --ncu PATH.")
    report, log = request.captures / f"{program.name}.ncu-rep", request.logs / "ncu.log"
    delete_old(report)
    child = _child(tool, program, request, replay, report=report)
    output = _NcuOutput(request.progress, replay)
    outcome = run_logged(child, log=log, timeout_s=limit, verbose=request.verbose, listen=output.listen)
    output.listen("\n")
    if report.is_file() and report.stat().st_size > 0:
        findings = tuple(_incomplete(outcome, output, replay))
        return ReplayResult(report, version, findings, outcome, broke_off=not outcome.ok and not outcome.timed_out)
    refuse_lost_folder(report.parent)
    broke_off = not output.failure and (outcome.interrupted or output.program_failed)
    return ReplayResult(None, version, (_no_report(outcome, output, replay),), outcome, broke_off)


def no_replay(title: str, remedy: str) -> ReplayResult:
    """Return the result of a replay that was not started: a finding with the reason and the remedy."""
    return ReplayResult(None, "", (Finding("no_kernel_metrics", "info", title, _NO_METRICS, remedy),))


class _NcuOutput:
    """Follows the output of ncu: its progress and errors.

    The program's output is mixed in, even within lines of ncu; it is neither kept nor quoted.
    """

    def __init__(self, progress: Progress, replay: Replay) -> None:
        self._progress, self._replay = progress, replay
        self._rest = ""
        self._started = self._ended = self._run = 0
        self.errors: list[str] = []
        self.available: list[str] | None = None

    @property
    def done(self) -> int:
        """The number of replayed launches."""
        return min(self._started, self._ended)

    @property
    def failure(self) -> tuple[str, str, str] | None:
        """The entry of _FAILURES that has occurred, if any."""
        text = "\n".join(self.errors)
        return next((failure for failure in _FAILURES if re.search(failure[0], text)), None)

    @property
    def program_failed(self) -> bool:
        """Whether ncu reported that the program failed."""
        return any(_PROGRAM_FAILED in line for line in self.errors)

    def listen(self, text: str) -> bool:
        """Process new output of ncu and the program; return whether ncu can be stopped."""
        *lines, self._rest = (self._rest + text).split("\n")
        self._rest = self._rest[-_LONGEST_LINE:]
        before = self.done, self._run, self._started > 0
        for line in lines:
            self._take(line.rstrip("\r"))
        if (self.done, self._run, self._started > 0) != before:
            self._report_progress()
        return self.failure is not None or 0 < self._replay.most_launches <= self.done

    def _take(self, line: str) -> None:
        if _STARTED in line:
            self._started += 1
        self._ended += bool(_DONE.search(line))
        run = _RUN.search(line)
        self._run = max(self._run, int(run[1])) if run else self._run
        if line.startswith((_ERROR, _NOTHING_TO_COLLECT)) and len(self.errors) < _MOST_ERRORS:
            self.errors.append(line)
        if line.startswith(_NONE_MATCHED):
            self.available = []
        elif self.available is not None and (kernel := _AVAILABLE.fullmatch(line)):
            self.available.append(kernel[1])

    def _report_progress(self) -> None:
        if not self.done and self._run:
            self._progress(f"replaying kernels with ncu: run {self._run} of the program")
            return
        done, expected = self.done, max(self._replay.expected, self.done if self._replay.expected else 0)
        of = expected or self._replay.most_launches
        chosen = f" of {'' if expected else 'at most '}{of}" if of else ""
        self._progress(f"replaying kernels with ncu: {done}{chosen} done", done=done, of=of)


def _child(ncu: Path, program: Program, request: Request, replay: Replay, *, report: Path) -> Child:
    help_text, has_range = _help_text(ncu), capture_range_of(program, request) == "cudaProfilerApi"
    # in file names, ncu expands patterns that start with %
    target = str(report.with_suffix("")).replace("%", "%%")
    options = ["-o", target, "--force-overwrite", "--target-processes", "all"]
    options += [*replay.collected, *replay.filter_options]
    options += ["--clock-control", replay.clock_control, "--cache-control", replay.cache_control, "--nvtx"]
    if "--nvtx-push-pop-scope" in help_text:
        options += ["--nvtx-push-pop-scope", "process"]
    if "--import-source" in help_text and not replay.is_range:
        options += ["--import-source", "yes"]
    if replay.nvtx_range:
        options += ["--nvtx-include", f"{_quote(replay.nvtx_range)}/"]
    if has_range and not replay.is_range:
        options += ["--profile-from-start", "off"]
    environment = child_environment(request)
    # signal only ncu: it ends the program and keeps its results; in slim containers, only the shell has `kill`
    command = (str(ncu), *options, *program.command)
    return Child(command, environment, lambda pid: ("sh", "-c", f"kill -TERM {pid}"), patience_s=_PATIENCE_S)


def _quote(name: str) -> str:
    """Escape the special characters of an NVTX filter of ncu."""
    return re.sub(r"([@,\[\]/*+\\])", r"\\\1", name)


def _help_text(ncu: Path) -> str:
    try:
        return ask([str(ncu), "--help"])
    except ToolError:
        return ""


def _nothing_captured(program: Program, request: Request, result: ReplayResult) -> PipelineError:
    """Turn the finding of a replay into an error, for runs without other results."""
    log = request.logs / "ncu.log"
    (problem,) = result.findings
    if result.outcome is None:
        return ToolError(problem.title, problem.remedy)
    if result.broke_off:
        return program_failure(program, result.outcome, log)
    lines = last_lines(log)
    return ToolError(f"{problem.title}. {problem.detail}", f"{problem.remedy}\nThe last lines of {log}:\n{lines}")


def _no_report(outcome: Outcome, output: _NcuOutput, replay: Replay) -> Finding:
    """Return the finding for a replay that left no report."""
    if output.failure:
        title, detail, remedy = output.failure[1], _refused_names(output, replay), output.failure[2]
    elif outcome.interrupted:
        title, detail, remedy = f"The replay {outcome.ending}; nothing was replayed", _NO_METRICS, "Run it again."
    elif outcome.timed_out:
        title, detail = f"ncu replayed nothing within {outcome.limit_s:.4g} s", _NO_METRICS
        remedy = _more_time(outcome, replay)
    elif output.program_failed:
        title, remedy = f"The program under ncu {outcome.ending}; nothing was replayed", _SEE_LOG
        detail = "ncu needs GPU memory in addition to the program's, and slows it down. " + _NO_METRICS
    elif output.available is not None:
        what = "range" if replay.is_range else "kernel"
        title, (detail, remedy) = f"No {what} was replayed", _why_none_matched(output.available, replay)
    else:
        title, detail, remedy = f"ncu {outcome.ending}; nothing was replayed", _NO_METRICS, _SEE_LOG
    return Finding("no_kernel_metrics", "warning", title, detail, remedy)


def _refused_names(output: _NcuOutput, replay: Replay) -> str:
    """List what ncu refused to collect. Does not quote ncu, since the program's output may be mixed in."""
    requested = [name for value in replay.collected[1::2] for name in value.split(",")]
    refused = [name for name in requested if any(name in line for line in output.errors)]
    return f"It refused {', '.join(refused)}. {_NO_METRICS}" if refused else _NO_METRICS


def _why_none_matched(available: list[str], replay: Replay) -> tuple[str, str]:
    """Return why nothing matched, with what is available, and what to do."""
    inside = f" in the range {replay.nvtx_range}" * bool(replay.nvtx_range)
    nearest = difflib.get_close_matches(replay.pattern, available, _NEAREST, 0.0) if replay.pattern else available
    there = f" Kernels of the program: {', '.join(nearest[:_NEAREST])}." if available else ""
    if replay.is_range and not replay.nvtx_range:
        remedy = "Name a range: --ncu-range NAME, or call cudaProfilerStart and cudaProfilerStop around it."
        return "ncu found no range: the program marks none.", remedy
    if replay.names:
        detail = f"None of the {len(replay.names)} kernels chosen from the timeline was launched again.{there}"
        return detail, "The program must do the same work in every run. Choose other kernels: --ncu-kernel REGEX."
    if replay.pattern:
        return f"No kernel matches {replay.pattern}{inside}.{there}", "Choose other kernels: --ncu-kernel REGEX."
    if replay.nvtx_range:
        near = difflib.get_close_matches(replay.nvtx_range, replay.ranges, _NEAREST, 0.0)
        ranges = f" Ranges of the program: {', '.join(near)}." if near else ""
        detail = f"ncu found nothing to replay{inside}.{there}{ranges}"
        return detail, "Name a push/pop range of the default domain that is open while kernels are launched."
    remedy = "Does the program call cudaProfilerStart? To replay kernels of the whole run: --capture-range none."
    return f"The program launched no replayable kernel while ncu was profiling.{there}", remedy


def _incomplete(outcome: Outcome, output: _NcuOutput, replay: Replay) -> Iterator[Finding]:
    """Yield findings for what is missing from the report."""
    if outcome.timed_out:
        of = f" of {replay.expected}" if replay.expected else ""
        title = f"{output.done}{of} chosen launches were replayed within {outcome.limit_s:.4g} s"
        remedy = f"{_more_time(outcome, replay)} Or collect less: --ncu-set basic."
        yield Finding("replay_cut_short", "info", title, "The other launches have no ncu metrics.", remedy)
    elif output.failure or not outcome.ok:
        title = output.failure[1] if output.failure else f"The program under ncu {outcome.ending}"
        refused = _refused_names(output, replay) if output.failure else ""
        detail = f"{output.done} launches were replayed first. {refused}".strip()
        yield Finding("replay_failed", "warning", title, detail, output.failure[2] if output.failure else _SEE_LOG)
    elif outcome.satisfied and not replay.names:
        title, detail = f"Only the first {output.done} launches were replayed", "The others have no ncu metrics."
        remedy = "To replay more: --ncu-kernels N; to replay all: --ncu-all."
        yield Finding("replay_cut_short", "info", title, detail, remedy)


def _more_time(outcome: Outcome, replay: Replay) -> str:
    option = "--ncu-budget" if outcome.limit_s == replay.budget_s else "--timeout"
    return f"Allow more time: {option} SECONDS."
