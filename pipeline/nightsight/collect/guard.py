"""Runs a command and leaves no process of it behind: not at its end, and not when nightsight ends, killed or not.

It is run by its path, with the standard library alone. Its standard input is a socket that nightsight holds: there it
says once the command's process id, or below 0 the error number of a command that cannot be started; and when the other
end closes, which the system does for a nightsight that was killed, it kills all that runs.

Whatever cuts itself off from the command (a daemon, a session or an environment of its own) becomes a child of this
process as soon as its parent is gone.
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
    """Run the command; its exit status is ours, 128 + n for signal n."""
    prctl, guard = ctypes.CDLL(None).prctl, os.getpid()
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # They are sent to our group and meant for the command. A handler, for what is ignored would be ignored there too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)

    def die_with_the_guard() -> None:
        prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:
            os._exit(128 + signal.SIGKILL)

    try:
        # there is no other thread yet
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_the_guard)  # noqa: PLW1509
    except OSError as error:
        os.write(_LIFELINE, str(-(error.errno or 1)).encode())
        return 1
    threading.Thread(target=_watch_the_lifeline, daemon=True).start()
    with suppress(OSError):
        os.write(_LIFELINE, str(process.pid).encode())
    ended = 0
    while ended != process.pid:
        ended, status = os.wait()
    _kill_children()
    process.returncode = os.waitstatus_to_exitcode(status)
    return 128 - process.returncode if process.returncode < 0 else process.returncode


def _watch_the_lifeline() -> None:
    with suppress(OSError):
        os.read(_LIFELINE, 1)
    _kill_children()


def _kill_children() -> None:
    # Again and again, since the children of one that dies become ours. Not for ever, since one may be unkillable.
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
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # the name before the last parenthesis may hold anything
            state, parent = stat.read_bytes().rpartition(b")")[2].split()[:2]
            if int(parent) == os.getpid() and state != b"Z":
                found.append(int(stat.parent.name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
