"""Computes values in a copy of this process, since Python code gains nothing from threads.

A copy starts within a few milliseconds, with everything that this process has loaded and read.
"""

import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Final, TypeVar

_Value = TypeVar("_Value")
_allowed: Final = [False]


@contextmanager
def fork_allowed() -> Iterator[None]:
    """Let `compute_in_fork` copy this process: for commands, whose threads and open files are known."""
    # on macOS, system libraries do not work in a copied process
    _allowed[0] = sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1
    try:
        yield
    finally:
        _allowed[0] = False


def compute_in_fork(compute: Callable[[], _Value]) -> Callable[[], _Value] | None:
    """Start a computation in a copy of this process; return a function that returns its value, which is pickled.

    If the copy fails, the function computes the value itself. None if this process may not be copied.
    """
    if not _allowed[0]:
        return None
    reading, writing = os.pipe()
    # the only other thread draws progress, and the copy neither prints nor shares a lock with it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        # neither exit handlers nor the buffers of the original may run or be written twice
        with suppress(BaseException), os.fdopen(writing, "wb") as pipe:
            pickle.dump(compute(), pipe, pickle.HIGHEST_PROTOCOL)
            pipe.flush()
            os._exit(0)
        os._exit(1)
    os.close(writing)

    @cache
    def value() -> _Value:
        with os.fdopen(reading, "rb") as pipe:
            content = pipe.read()
        _, status = os.waitpid(child, 0)
        received: _Value = compute() if status else pickle.loads(content)  # noqa: S301 (our own process wrote it)
        return received

    return value
