"""Calls in processes, as a `concurrent.futures.Executor`: a process that dies takes nothing along but its own call.

Python's own pool breaks as a whole if one of its processes dies. Here each call has a process and a pipe to itself.
"""

import gc
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from threading import Lock, Semaphore
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from nightsight.system.parallel import use_one_thread

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_LOOK_S: Final = 0.1
_CGROUP: Final = Path("/sys/fs/cgroup")
_MEMORY: Final = ("memory.max", "memory.high", "memory/memory.limit_in_bytes")
# what libraries read when they are loaded
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
# of glibc: M_TRIM_THRESHOLD, M_MMAP_MAX and M_ARENA_MAX. Freed memory is used again, and given back when a call ends
# (`as_worker`): a quarter less CPU time
_MALLOC: Final = ((-1, 2**31 - 1), (-4, 0), (-8, 1))

_Given = ParamSpec("_Given")
_Value = TypeVar("_Value")
_Answer = tuple[Any, Exception | None]


class Died(Exception):
    """The process that made a call died, or was ended because it took more memory than it may."""


class Processes(Executor):
    """Makes each call in one of `count` processes, which start when they are needed.

    most_bytes: what a process may take, on Linux; it is ended when it takes more. 0: no limit. A call whose process
    dies, or that has too little memory, is made once more while no other is: then all memory is its own.
    """

    def __init__(self, count: int, most_bytes: int = 0) -> None:
        self._count, self._most_bytes = count, most_bytes
        self._threads = ThreadPoolExecutor(count)
        self._turn, self._alone, self._lock = Semaphore(count), Lock(), Lock()
        self._all, self._idle = list[_Process](), list[_Process]()
        self._is_over = False

    def submit(
        self, function: Callable[_Given, _Value], /, *given: _Given.args, **named: _Given.kwargs
    ) -> Future[_Value]:
        """Make a call, in the order of submission. Its error is that of the function, `Died` or MemoryError."""
        return self._threads.submit(self._made, partial(function, *given, **named))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:  # noqa: ARG002
        """End all processes at once, whatever they do: nobody waits for them any more."""
        with self._lock:
            self._is_over = True
        for process in self._all:
            process.kill()
        self._threads.shutdown(wait, cancel_futures=True)
        for process in self._all:
            process.end()

    def _made(self, call: Callable[[], _Value]) -> _Value:
        with self._turn, suppress(Died, MemoryError):
            return self._tried(call)
        with self._alone, ExitStack() as turns:
            for _ in range(self._count):
                turns.enter_context(self._turn)
            return self._tried(call)

    def _tried(self, call: Callable[[], _Value]) -> _Value:
        process = self._process()
        value, error = process.asked(call)
        if isinstance(error, Died | MemoryError):
            process.end()
        else:
            self._idle.append(process)
        if error:
            raise error
        answer: _Value = value
        return answer

    def _process(self) -> "_Process":
        with self._lock:
            if self._is_over:
                raise CancelledError
            if self._idle:
                return self._idle.pop()
            self._all.append(_Process(self._most_bytes))
            return self._all[-1]


class _Process:
    """A process that makes one call after the other."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        # forks of a process with threads can hang
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        with _deaf_children():
            self._process.start()
        theirs.close()

    def asked(self, call: Callable[[], object]) -> _Answer:
        """Make a call; return its value, or its error."""
        try:
            self._pipe.send(call)
            while not self._pipe.poll(_LOOK_S if self._most_bytes else None):
                if self._bytes() > self._most_bytes:
                    return None, Died()
            answer: _Answer = self._pipe.recv()
        except (EOFError, OSError):
            return None, Died()
        except Exception as error:  # noqa: BLE001 (whatever cannot be sent)
            return None, error
        return answer

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _bytes(self) -> int:
        """Return how much memory it has; 0 where the system does not say."""
        with suppress(OSError):
            pages = Path(f"/proc/{self._process.pid}/statm").read_text(encoding="ascii").split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")
        return 0


def _work(pipe: "Connection") -> None:
    """Make the calls that come through a pipe, until nobody is at its other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(_ENVIRONMENT)
    for setting in _MALLOC:
        _of_glibc("mallopt", *setting)
    with suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(_answered(pipe.recv_bytes()))


def _answered(call: bytes) -> bytes:
    try:
        return pickle.dumps((pickle.loads(call)(), None))  # noqa: S301 (from the process that started this one)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is told)
        # a traceback cannot be sent
        error.add_note("".join(traceback.format_exception(error)))
        return pickle.dumps((None, error))


def _of_glibc(function: str, *given: int) -> None:
    """Call a function of glibc, if this process has that."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # noqa: PLC0415 (only in workers)

        getattr(ctypes.CDLL(None), function)(*given)


@contextmanager
def as_worker() -> Iterator[None]:
    """Work as one process of many: in one thread, and give memory back in the end, as it would be missing elsewhere.

    Collecting garbage meanwhile takes a fifth of the time, and one input leaves little.
    """
    use_one_thread()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        _of_glibc("malloc_trim", 0)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Let processes that are started meanwhile miss Ctrl-C, which a terminal sends them too, until they ignore it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cores() -> int:
    """Return how many cores this process may use at a time, in a container too."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        # "max" means that there is no limit
        with suppress(OSError, ValueError):
            quota, period = map(int, " ".join((_CGROUP / name).read_text(encoding="ascii") for name in names).split())
            count = min(count, ceil(quota / period)) if quota > 0 else count
    return count


def memory_of_machine() -> int:
    """Return how many bytes of memory this machine has, or the container that this process is in; 0 if unknown."""
    limits = []
    with suppress(AttributeError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for name in _MEMORY:
        # "max" means that there is no limit
        with suppress(OSError, ValueError):
            limits.append(int((_CGROUP / name).read_text(encoding="ascii")))
    return min(limits, default=0)
