"""Has a profiler save its buffers before the process ends in a way that the profiler does not notice.

CUPTI keeps the records of GPU work in buffers. They are lost if the process calls `os._exit`, is replaced by another
program, or takes CUDA down itself when it exits, as JAX does. nsys saves them when the program calls cuProfilerStop.
Loaded by path into any program, whose Python may be older than ours.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from contextlib import suppress
from functools import wraps
from typing import Any, Callable  # noqa: UP035 (Python 3.8)

_DRIVER = "libcuda.so.1"
_REPLACING = ("execv", "execve")


def start() -> None:
    """Save before this process ends: normally, by `os._exit`, or by becoming another program."""
    # a fork can use CUDA only if its parent had not begun to
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

    def saving(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*given: Any, **named: Any) -> Any:  # noqa: ANN401
            save()
            return function(*given, **named)

        return called

    for name in ("_exit", *_REPLACING):
        setattr(os, name, saving(getattr(os, name)))
    # these functions run before those of atexit, with which libraries take CUDA down
    first = getattr(threading, "_register_atexit", atexit.register)
    with suppress(RuntimeError):
        first(save)


def _driver() -> Any:  # noqa: ANN401
    """Return CUDA's driver if the process has loaded it."""
    try:
        return ctypes.CDLL(_DRIVER, mode=os.RTLD_NOLOAD)
    except OSError:
        return None
