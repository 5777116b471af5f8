"""Runs a command without leaving processes behind: when it ends, at a time limit, on Ctrl-C, or if we are killed.

guard.py starts each command and ensures this. A command that must be stopped gets time to save its files, but only
while it is saving.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nightsight.collect import guard
from nightsight.collect.output import LoggedOutput
from nightsight.collect.tools import start_error

Listener = Callable[[str], bool]
"""Takes new output of a process; returns True when the process can be stopped."""
Watcher = Callable[["RunningCommand"], bool]
"""Checks a process every _POLL_S; returns True when it can be stopped."""
# limit for all saving; nsys may take minutes to write a large report
SAVE_S = 120.0
# time to start saving, or to end: Python handles a signal only when a call into a library returns
_REACT_S = 15.0
_TERMINATE_S = 5.0
# time for the guard to kill the remaining processes
_KILL_S = 5.0
_POLL_S = 0.2
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_PROGRESS: Final = re.compile(r"(\[\d+/\d+\] \[[^\]]*\] [^\[\r\n]*?\.nsys-rep|Processing \d+ events: \[[^\]]*\])")
_TAIL_BYTES: Final = 1 << 17


@dataclass(frozen=True)
class Outcome:
    """How a process ended. `status` is as in a shell: 128 + n for signal n.

    `satisfied`: a listener or a watcher stopped it.
    """

    status: int
    timed_out: bool
    interrupted: bool
    seconds: float
    limit_s: float
    satisfied: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with status 0, or was stopped by a listener or a watcher."""
        return self.satisfied or (self.status == 0 and not self.stopped)

    @property
    def stopped(self) -> bool:
        """Whether it was stopped by the time limit or by Ctrl-C."""
        return self.timed_out or self.interrupted

    @property
    def ending(self) -> str:
        """How it ended, to complete a sentence: "ended with exit status 3"."""
        if self.interrupted:
            return f"was interrupted after {self.seconds:.3g} s"
        if self.timed_out:
            return f"was stopped after {self.limit_s:.4g} s"
        try:
            return f"was terminated by {signal.Signals(self.status - 128).name} (exit status {self.status})"
        except ValueError:
            return f"ended with exit status {self.status}"


@dataclass(frozen=True)
class Child:
    """A command to start, its environment, and its working directory (None: ours).

    `ask_to_end` returns, for its process id, a command that asks it to end; it then has `patience_s` to do so. `saving`
    is a regular expression: while it matches the latest output, the command is saving its files. `watch` is called
    repeatedly while it runs, and can stop it.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    ask_to_end: Callable[[int], Sequence[str]] = lambda _: ()
    patience_s: float = 0.0
    saving: str = ""
    folder: Path | None = None
    watch: Watcher = lambda _: False


class RunningCommand:
    """A running command, started by the guard `process`; `pid` is the command's process id, 0 if the guard did not say.

    is_interrupted: Ctrl-C came while it was started; the first wait for its end raises KeyboardInterrupt.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.pid, self.is_interrupted, self._guard = 0, False, process

    @property
    def status(self) -> int | None:
        """The exit status as in a shell; None while it runs."""
        code = self._guard.poll()
        return code if code is None or code >= 0 else 128 - code

    def ends(self, within_s: float) -> bool:
        """Wait for the end; return whether it came in time."""
        if self.is_interrupted:
            self.is_interrupted = False
            raise KeyboardInterrupt
        try:
            self._guard.wait(max(within_s, 0.0))
        except subprocess.TimeoutExpired:
            return False
        return True

    def signal(self, number: int) -> None:
        """Signal its process group."""
        os.killpg(self._guard.pid, number)


def run_logged(
    child: Child, *, log: Path, timeout_s: float, verbose: bool = False, listen: Listener | None = None
) -> Outcome:
    """Run a child in its own session with all output in `log`, and leave none of its processes behind.

    At the time limit or on Ctrl-C, the child is asked to end if possible; then its process group gets SIGINT and time
    to save files, then SIGTERM, then SIGKILL. A second Ctrl-C kills it at once. `verbose` copies the output to stderr;
    `listen` gets it as it comes, and can stop the child in the same way. ToolError if the child cannot be started,
    CaptureError if the log cannot be written.
    """
    listeners = ([_to_stderr] if verbose else []) + ([listen] if listen else [])
    timed_out = interrupted = satisfied = False
    started, status = time.monotonic(), None
    with LoggedOutput(log, has_listeners=bool(listeners)) as output:
        try:
            with _start(child, output) as running:
                try:
                    satisfied = _wait(running, output, timeout_s=timeout_s, listeners=listeners, watch=child.watch)
                    timed_out = not satisfied and running.status is None
                except KeyboardInterrupt:
                    interrupted = True
                if running.status is None:
                    _stop(running, child, output, log=log)
            status = running.status
        except KeyboardInterrupt:
            # it came while the child was started, or again while its last processes were killed
            interrupted = True
    # leaving _start killed the rest; if it still runs, report it as killed
    status = 128 + signal.SIGKILL if status is None else status
    return Outcome(status, timed_out, interrupted, time.monotonic() - started, timeout_s, satisfied)


def last_lines(log: Path, count: int = 15) -> str:
    """Return the last lines of a log, without blank lines, progress bars and terminal codes; "" if there is no log."""
    plain = _PROGRESS.sub("\n", _tail(log).replace("\r", "\n"))
    lines = [_ESCAPES.sub("", line).rstrip() for line in plain.split("\n")]
    return "\n".join([line for line in lines if line][-count:])


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


@contextmanager
def _start(child: Child, output: LoggedOutput) -> Iterator[RunningCommand]:
    """Start a child; on exit, kill its remaining processes."""
    own_end, guard_end = socket.socketpair()
    with own_end, guard_end:
        command = (sys.executable, "-I", "-S", guard.__file__, *child.command)
        try:
            process = subprocess.Popen(
                command,
                stdin=guard_end.fileno(),
                stdout=output.writer,
                stderr=subprocess.STDOUT,
                env=dict(child.environment),
                cwd=child.folder,
                start_new_session=True,
            )
        except OSError as error:
            raise start_error(sys.executable, error) from error
        guard_end.close()
        running = RunningCommand(process)
        try:
            try:
                own_end.recv(32, socket.MSG_PEEK)
            except KeyboardInterrupt:
                # the command may run already, and then gets its time to save; the guard answers soon
                running.is_interrupted = True
            answer = own_end.recv(32)
            if answer:
                running.pid = int(answer)
            else:
                # the guard was killed, perhaps by the command, before it could answer: it has a status, but no command
                running.ends(_KILL_S)
            if running.pid < 0:
                raise start_error(child.command[0], OSError(-running.pid, os.strerror(-running.pid)))
            yield running
        finally:
            own_end.close()
            running.ends(_KILL_S)


def _wait(
    running: RunningCommand, output: LoggedOutput, *, timeout_s: float, listeners: Sequence[Listener], watch: Watcher
) -> bool:
    """Wait for the end of the command or of its time; return whether a listener or watcher asked to stop it."""
    deadline = time.monotonic() + timeout_s
    has_ended = False
    while not has_ended and (left_s := deadline - time.monotonic()) > 0:
        has_ended = running.ends(min(left_s, _POLL_S))
        if has_ended:
            output.finish()
        text = output.new_text()
        # call all listeners, even after one asks to stop
        requests = [listener(text) for listener in listeners if text]
        if not has_ended and (any(requests) or watch(running)):
            return True
    return False


def _to_stderr(text: str) -> bool:
    sys.stderr.write(text)
    sys.stderr.flush()
    return False


def _stop(running: RunningCommand, child: Child, output: LoggedOutput, *, log: Path) -> None:
    saved_by = time.monotonic() + SAVE_S
    try:
        is_saved = _ask_to_end(running, child, output)
        running.ends(child.patience_s)
        for number, react_s in ((signal.SIGINT, _REACT_S), (signal.SIGTERM, _TERMINATE_S)):
            if running.status is not None:
                return
            running.signal(number)
            react_by = time.monotonic() + react_s
            while not running.ends(_POLL_S):
                # while it is saving, wait until saved_by; otherwise saved_by * False is 0
                is_saving = not is_saved and _saves(child, log)
                if time.monotonic() > max(react_by, saved_by * is_saving):
                    break
    except KeyboardInterrupt:
        pass  # the second Ctrl-C: stop waiting


def _ask_to_end(running: RunningCommand, child: Child, output: LoggedOutput) -> bool:
    """Ask a child to end, if possible; return whether that succeeded."""
    command = child.ask_to_end(running.pid)
    if not command:
        return False
    with _start(replace(child, command=command), output) as request:
        request.ends(SAVE_S)
    return request.status == 0


def _saves(child: Child, log: Path) -> bool:
    return bool(child.saving and re.search(child.saving, _tail(log)))
