"""Nsight Compute: which launches it replays, how it is ended with what is done, and the ways in which it fails."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pipeline.collect.process import GRACE_S, Child, Outcome, run_logged
from pipeline.collect.replay import Replay
from pipeline.collect.tools import (
    ALLOW_COUNTERS,
    NCU_PLACES,
    ask,
    find_ncu,
    may_read_counters,
    refuse_full_disk,
    tool_version,
)
from pipeline.collect.workloads import Program, Request, captured_by, child_environment, described, fresh
from pipeline.errors import ToolError
from pipeline.model import Capture, Finding

_DONE: Final = re.compile(r"==PROF== Profiling .*? - \d+ passes|==PROF== Profiling .*?\d+ pass(?:es)?$", re.MULTILINE)
_SAID: Final = re.compile(r"^==(?:ERROR|WARNING)== *(.*)$", re.MULTILINE)
_AVAILABLE: Final = re.compile(r"^\d+\. (.+)$", re.MULTILINE)
_NEAREST: Final = 8
# words of ncu; what has happened; what to do
_FAILURES: Final = (
    ("ERR_NVGPUCTRPERM", "This user may not read the GPU's performance counters", ALLOW_COUNTERS),
    (
        "driver resource was unavailable|DriverResourceUnavailable|already under profiling",
        "Another profiler holds the GPU's counters",
        "End it (nsys --gpu-metrics, another ncu), or pause DCGM: dcgmi profile --pause",
    ),
    ("did not match any section|Failed to find metric|is not a valid set", "ncu knows no such section or metric", ""),
    ("LibraryNotLoaded", "ncu cannot load the driver's libraries here", "gVisor and the like forbid it; see the log."),
)


@dataclass(frozen=True)
class Replayed:
    """What came of it: the report, None if there is none, and what went wrong or was cut short as findings."""

    report: Path | None
    version: str
    seconds: float
    findings: tuple[Finding, ...]


def collect_ncu(program: Program, request: Request) -> Capture:
    """Run a program under ncu alone; ToolError when it leaves no report."""
    replay = request.replay or Replay()
    started = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    replayed = replay_kernels(program, request, replay)
    if replayed.report is None:
        (problem,) = replayed.findings
        raise ToolError(f"{problem.title}: {problem.detail}", problem.remedy)
    return Capture(
        workload=program.name,
        collector="ncu",
        files=(replayed.report,),
        environment=replace(described("ncu", replayed.version, {}), captured_utc=started),
        parameters=replay.described,
        findings=replayed.findings,
        stages_s={"replay": replayed.seconds},
    )


def replay_kernels(program: Program, request: Request, replay: Replay) -> Replayed:
    """Run a program under ncu; a failure is a finding, as what else was captured stands without it."""
    tool = find_ncu(request.ncu)
    if tool is None:
        hint = f"Looked at --ncu, $NCU, PATH and /{', /'.join(NCU_PLACES)}."
        return _nothing("ncu was not found", f"{hint} Install Nsight Compute, or leave it out: --no-ncu.")
    if not may_read_counters():
        return _nothing("This user may not read the GPU's performance counters", ALLOW_COUNTERS)
    try:
        version = tool_version(tool)
    except ToolError as error:
        return _nothing(error.message, error.hint)
    report, log = request.captures / f"{program.name}.ncu-rep", request.logs / "ncu.log"
    fresh(report)
    child = _child(tool, program, request, replay, report=report)
    counter = _Counter(request.progress, replay)
    limit = min(replay.budget_s, request.timeout_s)
    outcome = run_logged(child, log=log, timeout_s=limit, verbose=request.verbose, listen=counter.hear)
    return _outcome(outcome, counter, replay, report=report, version=version)


class _Counter:
    """Counts the launches that ncu says it has replayed, and says how many are left."""

    def __init__(self, progress: Callable[[str], None], replay: Replay) -> None:
        self._progress, self._expected, self._most = progress, replay.expected, replay.most
        self.said, self.done = "", 0
        self._started = 0.0

    def hear(self, text: str) -> bool:
        """Take in what ncu and the program print; say whether that was enough."""
        self.said += text
        if not self._started and "==PROF== Profiling" in self.said:
            self._started = time.monotonic()
        done = len(_DONE.findall(self.said))
        if done > self.done:
            self.done = done
            self._tell()
        return 0 < self._most <= done

    def _tell(self) -> None:
        done = self.done
        left = max(self._expected - done, 0) * (time.monotonic() - self._started) / done
        of = f" of {self._expected}" if self._expected else ""
        about = f", about {left:.0f} s left" if left else ""
        self._progress(f"replaying kernels with ncu: {done}{of} done{about}")


def _child(ncu: Path, program: Program, request: Request, replay: Replay, *, report: Path) -> Child:
    known = _known_options(ncu)
    options = [
        *replay.collected,
        *("--clock-control", replay.clock_control, "--cache-control", replay.cache_control),
        *("--replay-mode", replay.replay_mode, "--graph-profiling", replay.graph_profiling),
        *("--filter-mode", "per-launch-config", "--launch-count", str(replay.launches)),
        *(["--launch-skip", str(replay.skip)] if replay.skip else []),
        *_kernel_filter(replay),
        *("--nvtx", *(["--nvtx-push-pop-scope", "process"] if "--nvtx-push-pop-scope" in known else [])),
        *(["--nvtx-include", f"{_quoted(replay.nvtx_range)}/"] if replay.nvtx_range else []),
        *(["--profile-from-start", "off"] if captured_by(program, request) == "cudaProfilerApi" else []),
        *("--target-processes", "all", "--force-overwrite", "-o", str(report.with_suffix(""))),
    ]
    environment = child_environment(request, needs_workloads=program.kind == "workload")
    # a signal to ncu alone: it ends the program and keeps what is done
    command = (str(ncu), *options, *program.command)
    return Child(command, environment, lambda pid: ("kill", "-TERM", str(pid)), patience_s=GRACE_S)


def _kernel_filter(replay: Replay) -> Sequence[str]:
    if replay.names:
        names = "|".join(re.escape(name) for name in replay.names)
        return ("--kernel-name-base", replay.base, "--kernel-name", f"regex:^({names})$")
    # communicating kernels wait for their peers, which are not replayed at the same time
    return ("--kernel-name", f"regex:^(?!.*([nN][cC][cC][lL]|nvshmem)).*({replay.pattern or '.'})")


def _quoted(name: str) -> str:
    """Escape what has a meaning in an NVTX filter of ncu."""
    return re.sub(r"([@,\[\]/*+\\])", r"\\\1", name)


def _known_options(ncu: Path) -> str:
    try:
        return ask([str(ncu), "--help"])
    except ToolError:
        return ""


def _outcome(outcome: Outcome, counter: _Counter, replay: Replay, *, report: Path, version: str) -> Replayed:
    there = report.is_file() and report.stat().st_size > 0
    if not there:
        refuse_full_disk(report.parent)
        finding = _failed(outcome, counter.said, replay)
        return Replayed(None, version, outcome.seconds, (finding,))
    findings = []
    if outcome.timed_out:
        findings.append(_cut_short(counter.done, replay))
    elif not outcome.ok:
        findings.append(_broke_off(outcome, counter))
    return Replayed(report, version, outcome.seconds, tuple(findings))


def _nothing(title: str, remedy: str) -> Replayed:
    return Replayed(None, "", 0.0, (Finding("no_kernel_metrics", "info", title, _NO_METRICS, remedy),))


def _failed(outcome: Outcome, said: str, replay: Replay) -> Finding:
    """Word the finding for a run that left no report."""
    words = [line for line in _SAID.findall(said) if line]
    if "No kernels were profiled" in said:
        available = ", ".join(_AVAILABLE.findall(said)[:_NEAREST])
        what = replay.pattern or ", ".join(replay.names) or "any kernel"
        there = f"Kernels of the program: {available}." if available else "The program launched none while it was on."
        title = "No kernel was replayed"
        detail = f"ncu found none that matches {what}{f' in the range {replay.nvtx_range}' * bool(replay.nvtx_range)}."
        return Finding("no_kernel_metrics", "warning", title, f"{detail} {there}", "Choose others: --ncu-kernel REGEX.")
    for pattern, title, remedy in _FAILURES:
        if re.search(pattern, said):
            return Finding("no_kernel_metrics", "warning", title, _without_paths(words), remedy)
    if outcome.timed_out:
        title = f"ncu replayed nothing within {outcome.limit_s:.4g} s"
        return Finding("no_kernel_metrics", "warning", title, _NO_METRICS, "Allow it more time: --ncu-budget SECONDS.")
    title = f"The program under ncu {outcome.ending}, and nothing was replayed"
    return Finding("no_kernel_metrics", "warning", title, _without_paths(words), "See ncu.log among the logs.")


def _cut_short(done: int, replay: Replay) -> Finding:
    of = f" of {replay.expected}" if replay.expected else ""
    return Finding(
        "replay_cut_short",
        "info",
        f"{done}{of} chosen launches were replayed within {replay.budget_s:.4g} s",
        "The others have no figures of ncu.",
        "Allow it more time: --ncu-budget SECONDS; or collect less: --ncu-set basic.",
    )


def _broke_off(outcome: Outcome, counter: _Counter) -> Finding:
    return Finding(
        "replay_failed",
        "warning",
        f"The program under ncu {outcome.ending}",
        f"{counter.done} launches were replayed before. {_without_paths(_SAID.findall(counter.said))}",
        "See ncu.log among the logs of this run.",
    )


def _without_paths(lines: Sequence[str]) -> str:
    return " ".join(re.sub(r"\S*/\S*", "<…>", line) for line in lines[-3:])


_NO_METRICS: Final = "So it is not known why each kernel takes the time that it takes."
