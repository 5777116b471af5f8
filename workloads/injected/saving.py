"""Make a profiler save its buffers before the process ends in a way that the profiler does not notice.

CUPTI keeps the records of GPU work in buffers. They are lost if the process calls `os._exit`, or shuts CUDA down itself
when it exits. nsys saves them when the program calls cuProfilerStop. A program that is replaced by another (exec) still
loses them (nsys 2025.3 on an H100), and nsys does not see what a process does after a fork without exec: then it leaves
a file in a folder. Loaded by path into any program, whose Python may be older than ours.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

_DRIVER = "libcuda.so.1"


def start(folder: str = "") -> None:
    """Save before this process ends, normally or by `os._exit`.

    folder: a fork that has used CUDA leaves an empty file in it, named like its process id.
    """
    started = os.getpid()
    # a fork can use CUDA only if its parent has not used it
    could_use = {started: True}
    if hasattr(os, "register_at_fork"):
        before = [True]

        def forking() -> None:
            before[0] = _used_driver() is None

        os.register_at_fork(before=forking, after_in_child=lambda: could_use.update({os.getpid(): before[0]}))

    def save() -> None:
        with suppress(Exception):
            driver = _used_driver() if could_use.get(os.getpid()) else None
            if driver is not None:
                driver.cuProfilerStop()
                if folder and os.getpid() != started:
                    Path(folder, str(os.getpid())).touch()

    leave = os._exit

    @wraps(leave)
    def save_and_leave(status: int) -> NoReturn:
        save()
        leave(status)

    os._exit = save_and_leave
    # these functions run before those of atexit, in which libraries shut CUDA down
    first = getattr(threading, "_register_atexit", atexit.register)
    with suppress(RuntimeError):
        first(save)


def _used_driver() -> Any:  # noqa: ANN401
    """Return the CUDA driver library if the process has initialized it."""
    driver = _driver()
    return None if driver is None or driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) else driver


def _driver() -> Any:  # noqa: ANN401
    """Return the CUDA driver library if the process has loaded it."""
    try:
        return ctypes.CDLL(_DRIVER, mode=os.RTLD_NOLOAD)
    except OSError:
        return None
