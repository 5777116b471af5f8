"""Records part of a run with nsys: a time span, or the time in which a client loads a server.

`nsys profile --start-later=true` runs the program without recording, `nsys start --session` starts to record, and `nsys
stop --session` stops and writes the report. The program then continues. With nsys's own --duration it does not: nsys
either ends the program or, with --kill=none, ends itself and leaves the program behind.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final, Protocol

from nightsight.collect.isolation import inside, isolation
from nightsight.collect.process import SAVE_S, Child, Outcome, RunningCommand, last_lines, run_logged
from nightsight.collect.ready import START_PROFILE, STOP_PROFILE, Readiness, switch_profiler
from nightsight.collect.workloads import (
    Load,
    Program,
    Request,
    Span,
    child_environment,
    partial_capture,
    program_failure,
)
from nightsight.errors import CaptureError, PipelineError, ToolError, WorkloadError
from nightsight.model.report import Finding

_BEGIN_S: Final = 60.0
_APPEARS_S: Final = 5.0
_AGAIN_S: Final = 0.2
_NO_SESSION: Final = "no active sessions"
# a client that lost its server needs time to notice that and to write its results
_GRACE_S = 5.0
_KILLED: Final = 128 + 9
Judgement = tuple[str, tuple[Finding, ...]]
"""The failure and the findings of a capture."""


@dataclass
class Session:
    """A session of nsys. namespace: the prefix that creates its namespace; is_later: `begin` starts the recording."""

    nsys: Path
    request: Request
    namespace: tuple[str, ...]
    is_later: bool
    name: str
    has_begun: bool = False
    is_saved: bool = False

    @property
    def options(self) -> list[str]:
        """The options of `nsys profile` for it."""
        return [f"--session-new={self.name}", *(["--start-later=true"] if self.is_later else [])]

    def begin(self, running: RunningCommand) -> None:
        """Start recording, unless the program has ended; raise ToolError if nsys fails to."""
        log = self.request.logs / "start.log"
        outcome = self._run(("start",), running, log, _BEGIN_S)
        # on a busy machine, the session may appear late
        deadline_s = time.monotonic() + _APPEARS_S
        while outcome and not outcome.ok and _NO_SESSION in last_lines(log) and time.monotonic() < deadline_s:
            if running.ends(_AGAIN_S):
                break
            outcome = self._run(("start",), running, log, _BEGIN_S)
        if outcome and not outcome.ok and not running.ends(1.0):
            output = last_lines(log) or "nothing"
            raise ToolError(f"nsys could not start recording: nsys start {outcome.ending}", f"nsys said:\n{output}")
        self.has_begun = outcome is not None and outcome.ok

    def save(self, running: RunningCommand) -> None:
        """Stop recording, and wait until the report is written; the program continues."""
        outcome = self._run(("stop",), running, self.request.logs / "stop.log", SAVE_S)
        self.is_saved = outcome is not None and outcome.ok

    def stop_command(self, pid: int) -> Sequence[str]:
        """Return the command that stops recording before the program is stopped; () if there is nothing to save.

        On a signal, nsys ends the program before its buffers are saved, and the report has no kernels.
        """
        return self._inside(pid, "stop") if self.has_begun and not self.is_saved else ()

    def _run(self, words: tuple[str, ...], running: RunningCommand, log: Path, limit_s: float) -> Outcome | None:
        command = self._inside(running.pid, *words)
        if not command:
            return None
        outcome = run_logged(Child(command, child_environment(self.request)), log=log, timeout_s=limit_s)
        if outcome.interrupted:
            raise KeyboardInterrupt
        return outcome

    def _inside(self, pid: int, *words: str) -> tuple[str, ...]:
        try:
            return inside(self.namespace, pid, (str(self.nsys), *words, f"--session={self.name}"))
        except OSError:
            # the program has just ended
            return ()


def new_session(nsys: Path, request: Request, folder: Path) -> Session:
    """Return a new session for a run; nsys keeps its temporary files in the folder."""
    is_later = request.part is not None
    name = f"nightsight{uuid.uuid4().hex[:12]}"
    namespace = isolation(folder) if request.isolate else ()
    return Session(nsys, request, namespace, is_later, name, has_begun=not is_later)


class Recorder(Protocol):
    """Starts and stops the recording of a run, and judges the result."""

    def listen(self, text: str) -> bool:
        """Take new output of the program; return whether it can be ended."""

    def watch(self, running: RunningCommand) -> bool:
        """Start or stop recording if it is time; return whether the program can be ended."""

    def not_started_error(self, outcome: Outcome, log: Path) -> PipelineError:
        """Return the error for a run in which recording never started."""

    def judge(self, outcome: Outcome) -> Judgement:
        """Return findings about the capture."""


def recorder_of(program: Program, request: Request, session: Session) -> Recorder | None:
    """Return the recorder for part of a run; None for a whole run. Raise UsageError if a server runs already."""
    if isinstance(request.part, Span):
        return _SpanRecorder(program, request.part, session)
    if isinstance(request.part, Load):
        return _LoadRecorder(program, request.part, session)
    return None


class _SpanRecorder:
    """Records a span of a run; the program continues to its end, because it may write its results there."""

    def __init__(self, program: Program, span: Span, session: Session) -> None:
        self._program, self._span, self._session = program, span, session
        self._length_s = inf if span.duration_s is None else span.duration_s
        self._run_began = self._began = time.monotonic()
        self._is_over = False

    def listen(self, _: str) -> bool:
        return False

    def watch(self, running: RunningCommand) -> bool:
        session, now = self._session, time.monotonic()
        if not session.has_begun and now - self._run_began >= self._span.delay_s:
            session.begin(running)
            self._began = time.monotonic()
        elif session.has_begun and not self._is_over and now - self._began >= self._length_s:
            # do not retry: at the end of the program, the remaining events are saved
            self._is_over = True
            session.save(running)
        return False

    def not_started_error(self, outcome: Outcome, log: Path) -> PipelineError:
        if not outcome.ok:
            return program_failure(self._program, outcome, log)
        return CaptureError(
            f"nothing was captured: {self._program.name} ended after {outcome.seconds:.3g} s, before the delay of "
            f"{self._span.delay_s:g} s",
            "Use a shorter --delay.",
        )

    def judge(self, outcome: Outcome) -> Judgement:
        # the span is whole, however the program was ended
        if not self._session.is_saved:
            return partial_capture(self._program, outcome)
        if outcome.ok or outcome.stopped:
            return "", ()
        failure = f"{self._program.name} {outcome.ending}"
        detail = f"{failure}, after the recorded span. The capture has the whole span."
        return failure, (Finding("failed_later", "warning", "The program failed after the recorded span", detail),)


class _LoadRecorder:
    """Records a server while a client loads it, then ends the server."""

    def __init__(self, program: Program, load: Load, session: Session) -> None:
        self._program, self._load, self._session = program, load, session
        self._request = session.request
        self._ready = Readiness(load.ready)
        self._ready.refuse_another()
        self._began = self._last_seen = time.monotonic()
        self._client: Outcome | None = None
        self._is_late = self._died = self._is_whole = False
        self._profiler_problem = ""

    def listen(self, text: str) -> bool:
        self._ready.hear(text)
        return False

    def watch(self, running: RunningCommand) -> bool:
        if not self._ready.now():
            self._is_late = time.monotonic() - self._began >= self._load.ready_within_s
            return self._is_late
        self._session.begin(running)
        if not self._session.has_begun:
            return False
        client, request = self._load.client, self._request
        self._switch_profiler(START_PROFILE)
        self._last_seen = time.monotonic()
        request.progress(f"profiling {self._program.name} while {client.name} loads it")
        self._client = run_logged(
            Child(client.command, child_environment(request), watch=lambda _: self._is_gone(running)),
            log=request.logs / "client.log",
            timeout_s=max(request.timeout_s - (time.monotonic() - self._began), 1.0),
            verbose=request.verbose,
        )
        if self._client.interrupted:
            raise KeyboardInterrupt
        # a client may stop the server when it is done
        has_ended = self._has_ended(running)
        self._died = has_ended and (self._client.satisfied or not self._client.ok)
        if not has_ended:
            self._switch_profiler(STOP_PROFILE)
            self._session.save(running)
        self._is_whole = has_ended or self._session.is_saved
        return True

    def _switch_profiler(self, to: str) -> None:
        """Start or stop the server's own profiler, if that is asked for."""
        if url := self._load.start_profile:
            problem = switch_profiler(f"{url.removesuffix(START_PROFILE)}{to}")
            lost = "; steps of the engine may have no names in this capture" * (to == START_PROFILE)
            self._profiler_problem = self._profiler_problem or (f"{to}: {problem}{lost}" if problem else "")

    def _is_gone(self, server: RunningCommand) -> bool:
        """Whether the server ended long ago, so that the client will probably not end by itself."""
        if server.status is None:
            self._last_seen = time.monotonic()
        return time.monotonic() - self._last_seen > _GRACE_S

    def _has_ended(self, server: RunningCommand) -> bool:
        """Whether the server ended. nsys outlives it until the report is written, and must not be disturbed."""
        deadline = time.monotonic() + SAVE_S
        while server.status is None and not self._ready.is_there() and time.monotonic() < deadline:
            server.ends(0.2)
        return server.status is not None

    def not_started_error(self, outcome: Outcome, log: Path) -> PipelineError:
        name, output = self._program.name, last_lines(log)
        words = f"Its last lines:\n{output}\n" if output else "It printed nothing.\n"
        if self._is_late:
            return WorkloadError(
                f"the server {name} was not ready after {self._load.ready_within_s:g} s (--ready {self._load.ready}); "
                "nothing was captured",
                f"{words}Allow more time with --ready-timeout, or use another --ready. Its output: {log}",
            )
        message = f"the server {name} {outcome.ending} before it was ready; nothing was captured"
        return WorkloadError(message, f"{words}{log}")

    def judge(self, outcome: Outcome) -> Judgement:
        if self._died:
            failure = f"the server {self._program.name} {outcome.ending} while the client was loading it"
            detail = f"{failure[0].upper()}{failure[1:]}. The capture ends there."
            return failure, (Finding("server_ended", "error", "The server ended too early", detail, _SEE_SERVER),)
        if self._client is None or self._client.interrupted:
            return partial_capture(self._program, outcome)
        findings = []
        if self._profiler_problem:
            what = "The server's own profiler did not work"
            findings.append(Finding("server_profiler", "warning", what, f"{self._profiler_problem}.", _PROFILER_FIX))
        if outcome.status == _KILLED:
            detail = f"{self._program.name} ignored SIGINT and SIGTERM, and was killed. The capture was saved before."
            findings.append(Finding("server_killed", "warning", "The server ignored SIGINT and SIGTERM", detail))
        if not self._is_whole:
            detail = "`nsys stop` failed, so the last GPU work may be missing."
            findings.append(Finding("not_stopped", "warning", "The recording may be incomplete", detail, _SEE_STOP))
        if self._client.ok:
            return "", tuple(findings)
        failure = f"the client {self._load.client.name} {self._client.ending}"
        detail = f"{failure[0].upper()}{failure[1:]}. The capture shows the server until then."
        failed = Finding("client_failed", "error", "The client that loaded the server failed", detail, _SEE_CLIENT)
        return failure, (failed, *findings)


_SEE_SERVER: Final = "See profile.log in the logs of this run."
_SEE_CLIENT: Final = "See client.log in the logs of this run."
_PROFILER_FIX: Final = (
    "See profile.log in the logs of this run. vLLM has this endpoint only with `--profiler-config.profiler cuda`."
)
_SEE_STOP: Final = "See stop.log in the logs of this run."
