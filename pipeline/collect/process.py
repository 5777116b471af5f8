"""How to run a command so that nothing of it is left: not at its end, not at a time limit, not at Ctrl-C.

nsys keeps the program and an agent in sessions of their own: hence the marker variable, by which every descendant is
found again.
"""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from pipeline.collect.tools import not_started, unwritable, writable_folder

Listener = Callable[[str], bool]
"""Takes what a process prints, and says whether that was enough of it."""
MARKER: Final = "NIGHTSIGHT_RUN"
# After SIGINT nsys still has to write its report, which takes minutes for a large one.
GRACE_S = 60.0
_TERMINATE_S = 5.0
_POLL_S = 0.2
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_PROGRESS: Final = re.compile(r"(\[\d+/\d+\] \[[^\]]*\] [^\[\r\n]*?\.nsys-rep|Processing \d+ events: \[[^\]]*\])")
_TAIL_BYTES: Final = 1 << 17


@dataclass(frozen=True)
class Outcome:
    """How a process ended. `status` is a shell's: 128 + n for signal n; `satisfied`: a listener had heard enough."""

    status: int
    timed_out: bool
    interrupted: bool
    seconds: float
    limit_s: float
    satisfied: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with status 0, or when a listener had heard enough."""
        return self.satisfied or (self.status == 0 and not self.stopped)

    @property
    def stopped(self) -> bool:
        """Whether we ended it."""
        return self.timed_out or self.interrupted

    @property
    def ending(self) -> str:
        """The predicate of a sentence about it: "ended with exit status 3"."""
        if self.interrupted:
            return f"was interrupted after {self.seconds:.3g} s"
        if self.timed_out:
            return f"was stopped after {self.limit_s:.4g} s"
        try:
            return f"was ended by {signal.Signals(self.status - 128).name} (exit status {self.status})"
        except ValueError:
            return f"ended with exit status {self.status}"


@dataclass(frozen=True)
class Child:
    """What is started, with which variables. `ask_to_end` makes, of its process id, a command that ends it politely.

    It then has `patience_s` to do so.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    ask_to_end: Callable[[int], Sequence[str]] = lambda _: ()
    patience_s: float = 0.0


def run_logged(
    child: Child, *, log: Path, timeout_s: float, verbose: bool = False, listen: Listener | None = None
) -> Outcome:
    """Run a child in a session of its own with all its output in `log`, and leave no process of it behind.

    At the time limit, or at Ctrl-C, it is asked to end if it can be, then its group gets SIGINT and time to write its
    files, then SIGTERM, then SIGKILL; a second Ctrl-C kills at once. `verbose` passes the output on to our stderr;
    `listen` gets it as it comes, and ends the child in the same way when it has heard enough.
    """
    marked = replace(child, environment={MARKER: uuid.uuid4().hex, **child.environment})
    listeners = ([_to_stderr] if verbose else []) + ([listen] if listen else [])
    timed_out = interrupted = satisfied = False
    started = time.monotonic()
    try:
        process = _start(marked, log)
        try:
            satisfied = _heard_enough(process, log, timeout_s=timeout_s, listeners=listeners)
            timed_out = not satisfied and process.poll() is None
        except KeyboardInterrupt:
            interrupted = True
        if process.poll() is None:
            _stop(process, marked, log)
    finally:
        _kill_marked(marked.environment[MARKER])
    code = -signal.SIGKILL if process.returncode is None else process.returncode
    seconds = time.monotonic() - started
    return Outcome(128 - code if code < 0 else code, timed_out, interrupted, seconds, timeout_s, satisfied)


def last_lines(log: Path, count: int = 15) -> str:
    """Return the last lines of a log without blank lines, progress bars and terminal codes; "" if there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    plain = _PROGRESS.sub("\n", text.replace("\r", "\n"))
    lines = [_ESCAPES.sub("", line).rstrip() for line in plain.split("\n")]
    return "\n".join([line for line in lines if line][-count:])


def _start(child: Child, log: Path) -> subprocess.Popen[bytes]:
    writable_folder(log.parent)
    try:
        # A file and not a pipe: a grandchild that keeps a pipe open would keep us waiting for its end.
        sink = log.open("wb")
    except OSError as error:
        raise unwritable(log.parent, error) from error
    with sink:
        return _start_into(child, sink)


def _start_into(child: Child, sink: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            child.command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=dict(child.environment),
            start_new_session=True,
        )
    except OSError as error:
        raise not_started(child.command[0], error) from error


def _heard_enough(
    process: subprocess.Popen[bytes], log: Path, *, timeout_s: float, listeners: Sequence[Listener]
) -> bool:
    """Wait for the end of a process or of its time, and say whether a listener had heard enough before."""
    deadline = time.monotonic() + timeout_s
    ended = False
    with log.open("rb") as output:
        while not ended and (left := deadline - time.monotonic()) > 0:
            ended = _ended(process, min(left, _POLL_S))
            said = output.read().decode(errors="replace") if listeners else ""
            if any(listener(said) for listener in listeners if said) and not ended:
                return True
    return False


def _to_stderr(text: str) -> bool:
    sys.stderr.write(text)
    sys.stderr.flush()
    return False


def _ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _stop(process: subprocess.Popen[bytes], child: Child, log: Path) -> None:
    try:
        _ask_to_end(process, child, log)
        _ended(process, child.patience_s)
        for number, grace_s in ((signal.SIGINT, GRACE_S), (signal.SIGTERM, _TERMINATE_S)):
            if process.poll() is not None:
                return
            os.killpg(process.pid, number)
            _ended(process, grace_s)
    except KeyboardInterrupt:
        pass  # the second Ctrl-C: whoever presses it waits for nothing
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        _ended(process, _TERMINATE_S)


def _ask_to_end(process: subprocess.Popen[bytes], child: Child, log: Path) -> None:
    command = child.ask_to_end(process.pid)
    if command:
        with log.open("ab") as sink:
            asking = _start_into(replace(child, command=command), sink)
        if not _ended(asking, GRACE_S):
            os.killpg(asking.pid, signal.SIGKILL)


def _kill_marked(marker: str) -> None:
    # Again and again, since one that is dying may still have forked; and not for ever, since one may be unkillable.
    for _ in range(50):
        survivors = _marked(marker)
        if not survivors:
            return
        for pid in survivors:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def _marked(marker: str) -> list[int]:
    entry = f"{MARKER}={marker}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if entry in environ.read_bytes():
                found.append(int(environ.parent.name))
        except OSError:
            continue
    return found
