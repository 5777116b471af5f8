"""Keeps a profiler from seeing processes outside the program.

nsys writes the environment of every process that it can see into the .nsys-rep, including that of the shell or the CI
job (seen with 2025.3.1, despite --inherit-environment=false and its own clean environment). In a separate PID namespace
it sees no other processes.

nsys names folders under /tmp/nvidia by process id, and ids start at 1 in each namespace: with four runs at a time, 23
of 24 recorded no CUDA at all (2025.3.1). So each namespace has its own /tmp/nvidia; with it, all 24 recorded CUDA.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_UNSHARE: Final = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
# works for ordinary users if user namespaces are allowed; the capability is for the mount below
_AS_USER: Final = ("unshare", "--user", "--map-current-user", "--keep-caps", *_UNSHARE[1:])
_WITHOUT_CAPABILITIES: Final = ("setpriv", "--ambient-caps=-all", "--inh-caps=-all")
# the folder may belong to somebody else: mounting on it needs no more than that it is there
_MOUNTED: Final = '(mkdir -p /tmp/nvidia; mount --bind "$0" /tmp/nvidia) 2>/dev/null; exec "$@"'


def isolation(folder: Path) -> tuple[str, ...]:
    """Return the prefix that runs a command in its own PID namespace; () if the system forbids that.

    folder: is /tmp/nvidia there.
    """
    mounted = ("sh", "-c", _MOUNTED, str(folder))
    prefixes = (_UNSHARE + mounted, _AS_USER + mounted + _WITHOUT_CAPABILITIES)
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


def _works(prefix: Sequence[str]) -> bool:
    try:
        done = subprocess.run([*prefix, "true"], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
