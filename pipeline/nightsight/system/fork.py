"""Computes values in a copy of this process, since Python code gains nothing from threads.

A copy starts within a few milliseconds, with everything that this process has loaded and read.
"""

import os
import pickle
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any, Final

_END: Final = Struct("q")
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


def running() -> int:
    """Return how many threads of all processes run or wait for a core now, this one included; 0 if unknown."""
    try:
        return int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 0


def compute_in_fork(*computations: Callable[[], object]) -> tuple[Callable[[], Any], ...]:
    """Start computations, one after another, in a copy of this process; return functions that return their values.

    Values are pickled, and each is available while the copy computes the next. The functions compute the values that a
    failed copy lacks. Return none if this process may not be copied, or if no core is idle: the copy and its original
    would take turns, and copying takes a tenth of the time of a small report.
    """
    if sys.platform != "linux" or not _allowed[0] or running() >= (os.cpu_count() or 1):
        return ()
    # the copy must not wait for a reader, as it would with values in the pipe, which only tells where each ends
    values = os.memfd_create("values")
    reading, writing = os.pipe()
    # the only other thread draws progress, and the copy neither prints nor shares a lock with it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        # neither exit handlers nor the buffers of the original may run or be written twice
        with suppress(BaseException), os.fdopen(values, "wb") as file:
            os.close(reading)
            for compute in computations:
                pickle.dump(compute(), file, pickle.HIGHEST_PROTOCOL)
                file.flush()
                os.write(writing, _END.pack(file.tell()))
            os._exit(0)
        os._exit(1)
    os.close(writing)
    received = _received(child, reading, values, computations)
    computed = list[Any]()

    def value(place: int) -> Any:  # noqa: ANN401 (what the computation returns)
        while len(computed) <= place:
            computed.append(next(received))
        if len(computed) == len(computations):
            received.close()
        return computed[place]

    return tuple(partial(value, place) for place in range(len(computations)))


def _received(
    child: int, reading: int, values: int, computations: Sequence[Callable[[], object]]
) -> Generator[object, None, None]:
    """Yield the value of each computation: from the copy, or computed here if the copy died before."""
    try:
        with os.fdopen(reading, "rb") as ends, os.fdopen(values, "rb") as file:
            begin = 0
            for compute in computations:
                if sent := ends.read(_END.size):
                    (end,) = _END.unpack(sent)
                    # both processes share one position in the file
                    yield pickle.loads(os.pread(file.fileno(), end - begin, begin))  # noqa: S301 (our process wrote it)
                    begin = end
                else:
                    yield compute()
    finally:
        os.waitpid(child, 0)
