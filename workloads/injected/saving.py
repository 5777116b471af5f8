"""Make a profiler save its buffers before the process ends in a way that the profiler does not notice.

CUPTI keeps the records of GPU work in buffers. They are lost if the process calls `os._exit`, or shuts CUDA down itself
when it exits. nsys saves them when the program calls cuProfilerStop. A program that is replaced by another (exec) still
loses them (nsys 2025.3 on an H100). Loaded by path into any program, whose Python may be older than ours.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from contextlib import suppress
from functools import wraps
from typing import Any, NoReturn

_DRIVER = "libcuda.so.1"


def start() -> None:
    """Save before this process ends, normally or by `os._exit`."""
    # a fork can use CUDA only if its parent has not used it
    could_use = {os.getpid(): True}
    if hasattr(os, "register_at_fork"):
        before = [True]

        def forking() -> None:
            before[0] = _driver() is None

        os.register_at_fork(before=forking, after_in_child=lambda: could_use.update({os.getpid(): before[0]}))

    def save() -> None:
        with suppress(Exception):
            driver = _driver() if could_use.get(os.getpid()) else None
            if driver is not None:
                driver.cuProfilerStop()

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


def _driver() -> Any:  # noqa: ANN401
    """Return the CUDA driver library if the process has loaded it."""
    try:
        return ctypes.CDLL(_DRIVER, mode=os.RTLD_NOLOAD)
    except OSError:
        return None
