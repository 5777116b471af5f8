"""Runs a command and leaves no process behind when the command ends, or when nightsight ends or is killed.

Started by its path, so it may import only the standard library. Its standard input is a socket to nightsight: it writes
the process id of the command there once, or the negative error number if the command cannot be started. When the other
end closes, as it does if nightsight is killed, it kills everything that still runs.

Processes that detach from the command (daemons, new sessions, a changed environment) become children of this process
when their parent ends, because it is a subreaper.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_LIFELINE: Final = 0
_SET_PDEATHSIG: Final = 1
_SET_CHILD_SUBREAPER: Final = 36


def main(command: Sequence[str]) -> int:
    """Run the command and return its exit status, 128 + n for signal n."""
    prctl, guard = ctypes.CDLL(None).prctl, os.getpid()
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # These signals go to our process group and are meant for the command. Handle them instead of ignoring them: the
    # command would inherit that they are ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)

    def die_with_the_guard() -> None:
        prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:
            os._exit(128 + signal.SIGKILL)

    try:
        # preexec_fn is safe: there is no other thread yet
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_the_guard)  # noqa: PLW1509
    except OSError as error:
        os.write(_LIFELINE, str(-(error.errno or 1)).encode())
        return 1
    threading.Thread(target=_watch_the_lifeline, daemon=True).start()
    with suppress(OSError):
        os.write(_LIFELINE, str(process.pid).encode())
    ended_pid = 0
    while ended_pid != process.pid:
        ended_pid, status = os.wait()
    _kill_children()
    process.returncode = os.waitstatus_to_exitcode(status)
    return 128 - process.returncode if process.returncode < 0 else process.returncode


def _watch_the_lifeline() -> None:
    with suppress(OSError):
        os.read(_LIFELINE, 1)
    _kill_children()


def _kill_children() -> None:
    # Repeat, since the children of a killed process become ours; not forever, since a process may be unkillable.
    for _ in range(100):
        children = _children()
        if not children:
            return
        for pid in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _children() -> list[int]:
    """List the children of this process that have not ended."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # the program name may contain anything, so skip to the last parenthesis
            state, parent = stat.read_bytes().rpartition(b")")[2].split()[:2]
            if int(parent) == os.getpid() and state != b"Z":
                children.append(int(stat.parent.name))
    return children


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
