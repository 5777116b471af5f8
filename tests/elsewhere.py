"""`python -m tests.elsewhere win32 '[["report", "a.sqlite"]]'`: commands on a machine that is not a Linux one.

Modules and functions that the platform lacks are taken away, and so are /proc, /sys, /dev and glibc; what the libraries
we use do there is their own affair, so they are imported before. Text files have another encoding there: one that is
opened without naming its own is an error.
"""

import ctypes
import json
import multiprocessing.reduction
import os
import signal
import sys
import warnings
from typing import Final

import adbc_driver_sqlite.dbapi
import click
import jinja2
import pandas as pd
import pyarrow.parquet
import rich.console

LIBRARIES: Final = (
    click,
    ctypes,
    multiprocessing.reduction,
    adbc_driver_sqlite.dbapi,
    jinja2,
    pd,
    pyarrow.parquet,
    rich.console,
)
# what macOS lacks, and what Windows lacks besides
MISSING: Final = {
    "darwin": {
        "modules": ("spwd", "ossaudiodev"),
        "os": (
            *("sched_getaffinity", "sched_setaffinity", "pidfd_open", "memfd_create", "eventfd", "splice", "getrandom"),
            *("posix_fadvise", "posix_fallocate", "getresuid", "setresuid", "sched_getscheduler"),
        ),
        "signal": ("SIGPWR", "SIGSTKFLT", "SIGPOLL", "SIGRTMIN", "SIGRTMAX", "sigtimedwait", "sigwaitinfo"),
    },
    "win32": {
        "modules": ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "curses"),
        "os": (
            *("fork", "forkpty", "killpg", "setsid", "setpgid", "getpgid", "getuid", "geteuid", "getgid", "getegid"),
            *("chown", "lchown", "fchown", "mkfifo", "mknod", "nice", "uname", "statvfs", "sysconf", "getloadavg"),
            *("wait", "wait4", "getpriority", "posix_spawn", "openpty", "ctermid", "sync"),
        ),
        "signal": (
            *("SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGSTOP"),
            *("SIGCONT", "SIGTSTP", "SIGWINCH", "alarm", "setitimer", "pthread_sigmask", "pthread_kill", "sigwait"),
        ),
    },
}


def absent(event: str, arguments: tuple[object, ...]) -> None:
    """Answer for folders and libraries that are not there."""
    path = str(arguments[0]) if arguments else ""
    of_linux = path.startswith(("/proc", "/sys/", "/dev/")) and path != os.devnull
    if of_linux and event in ("open", "os.listdir", "os.scandir"):
        raise PermissionError(13, "This is not Linux", path)
    if event == "ctypes.dlopen":
        raise OSError("This is not Linux")
    if sys.platform == "win32" and event in ("os.rename", "os.remove") and is_open(path):
        raise PermissionError(13, "The process cannot access the file because it is being used", path)


def is_open(path: str) -> bool:
    """Whether this process has a file open, which Windows then neither renames nor removes."""
    for number in range(3, 256):
        try:
            if os.path.samestat(os.fstat(number), os.stat(path)):  # noqa: PTH116 (a Path would be asked again)
                return True
        except OSError:
            continue
    return False


def leave_linux(platform: str) -> None:
    """Take away what `platform` lacks."""
    lacking = {
        kind: MISSING["darwin"][kind] + (MISSING["win32"][kind] if platform == "win32" else ())
        for kind in MISSING["darwin"]
    }
    for name in lacking["modules"]:
        sys.modules[name] = None  # type: ignore[assignment]
    for module in (os, signal):
        for name in lacking[module.__name__]:
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = platform
    sys.addaudithook(absent)
    warnings.filterwarnings("error", category=EncodingWarning, module=r"nightsight\b")


if __name__ == "__main__":
    leave_linux(sys.argv[1])
    from nightsight.cli import main

    for command in json.loads(sys.argv[2]):
        status = main(command, prog_name="nightsight", standalone_mode=False)
        if status:
            sys.exit(status)
