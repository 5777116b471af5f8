"""Keeps a profiler from seeing any processes but those of the program.

nsys writes the environment of every process that it can see into the .nsys-rep, including that of the shell or the CI
job (seen with 2025.3.1, despite --inherit-environment=false and a clean environment of its own). In a separate PID
namespace it sees no other processes.

Process numbers go on from a different one in each namespace. nsys names folders under /tmp by them: of two in
namespaces that both begin at 1, at the same time, one or both record no CUDA at all (seen with 2025.3.1).
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_UNSHARE: Final = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
# works for ordinary users if user namespaces are allowed; the capability is for the number below
_AS_USER: Final = ("unshare", "--user", "--map-current-user", "--keep-caps", *_UNSHARE[1:])
_WITHOUT_CAPABILITIES: Final = ("setpriv", "--ambient-caps=-all", "--inh-caps=-all")
# the file is missing in kernels without checkpoints: numbers then begin at 1
_NUMBERED: Final = '(echo "$0" >/proc/sys/kernel/ns_last_pid) 2>/dev/null; exec "$@"'
_MOST_PROCESSES: Final = Path("/proc/sys/kernel/pid_max")
# neighbours are this far apart; a prime, so that no two numbers fall together
_APART: Final = 1009


def isolation() -> tuple[str, ...]:
    """Return the prefix that runs a command in its own PID namespace; () if the system forbids that."""
    numbered = ("sh", "-c", _NUMBERED, str(_first_number(os.getpid())))
    prefixes = (_UNSHARE + numbered, _AS_USER + numbered + _WITHOUT_CAPABILITIES)
    return next((prefix for prefix in prefixes if _works(prefix)), ())


def inside(prefix: Sequence[str], pid: int, command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that runs `command` in the namespace of the program that `prefix` started as process `pid`.

    () if that program is not running.
    """
    if not prefix:
        return tuple(command)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if not children:
        return ()
    user = ("--user", "--preserve-credentials") if "--user" in prefix else ()
    return ("nsenter", "--target", children[0], "--pid", "--mount", *user, *command)


def _first_number(pid: int) -> int:
    """Return the number after which processes are numbered in the namespace that process `pid` makes."""
    span = int(_MOST_PROCESSES.read_text()) // 2
    return span // 2 + pid * _APART % span


def _works(prefix: Sequence[str]) -> bool:
    try:
        done = subprocess.run([*prefix, "true"], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
