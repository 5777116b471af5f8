"""How a profiler is kept from seeing other processes than the program's.

nsys writes the environment of every process that it can look at into the .nsys-rep (seen with 2025.3.1, in spite of
--inherit-environment=false and of a clean environment of its own): that of the shell, and so of the CI job, too. In a
PID namespace of its own there is nobody else to look at.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_UNSHARE: Final = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
# what an ordinary user may do where user namespaces are allowed
_AS_USER: Final = ("unshare", "--user", "--map-current-user", *_UNSHARE[1:])


def isolation() -> tuple[str, ...]:
    """Return what to put before a command to run it in a PID namespace of its own; () where the system forbids it."""
    return next((prefix for prefix in (_UNSHARE, _AS_USER) if _works(prefix)), ())


def inside(prefix: Sequence[str], pid: int, command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that runs `command` beside the program that `prefix` started as process `pid`."""
    if not prefix:
        return tuple(command)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if not children:
        return ()
    user = ("--user", "--preserve-credentials") if "--user" in prefix else ()
    return ("nsenter", "--target", children[0], "--pid", "--mount", *user, *command)


def _works(prefix: Sequence[str]) -> bool:
    try:
        done = subprocess.run([*prefix, "true"], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
