"""Runs calls in processes, as a `concurrent.futures.Executor`. If a process dies, only its call fails.

Python's own pool breaks as a whole if one of its processes dies. Here each process has its own pipe.
"""

import gc
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from threading import Lock, Semaphore
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from nightsight.system.parallel import use_one_thread

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_LOOK_S: Final = 0.1
_CGROUP: Final = Path("/sys/fs/cgroup")
_MEMORY: Final = ("memory.max", "memory.high", "memory/memory.limit_in_bytes")
# read by libraries when they are loaded
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
# M_TRIM_THRESHOLD, M_MMAP_MAX and M_ARENA_MAX of glibc: freed memory is reused, and returned when a call ends
# (`as_worker`), which takes a quarter less CPU time
_MALLOC: Final = ((-1, 2**31 - 1), (-4, 0), (-8, 1))

_MAIN: Final = Lock()

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")
_Answer = tuple[Any, Exception | None]


class ProcessDied(Exception):
    """The process of a call died, or was killed because it exceeded its memory limit."""


class Processes(Executor):
    """Runs each call in one of `count` processes, which start on demand.

    most_bytes: the memory limit of a process on Linux; it is killed if it exceeds that. 0: no limit. A call whose
    process dies or runs out of memory is retried once, alone, so that it can use all memory.
    """

    def __init__(self, count: int, most_bytes: int = 0) -> None:
        self._count, self._most_bytes = count, most_bytes
        self._threads = ThreadPoolExecutor(count)
        self._turn, self._alone, self._lock = Semaphore(count), Lock(), Lock()
        self._all, self._idle = list[_Process](), list[_Process]()
        self._is_over = False

    def submit(
        self, function: Callable[_Arguments, _Value], /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> Future[_Value]:
        """Run calls in the order of submission. Errors are those of the function, `ProcessDied` or MemoryError."""
        return self._threads.submit(self._run, partial(function, *args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:  # noqa: ARG002
        """Kill all processes at once, because nobody waits for them."""
        with self._lock:
            self._is_over = True
        for process in self._all:
            process.kill()
        self._threads.shutdown(wait, cancel_futures=True)
        for process in self._all:
            process.end()

    def _run(self, call: Callable[[], _Value]) -> _Value:
        with self._turn, suppress(ProcessDied, MemoryError):
            return self._try(call)
        with self._alone, ExitStack() as turns:
            for _ in range(self._count):
                turns.enter_context(self._turn)
            return self._try(call)

    def _try(self, call: Callable[[], _Value]) -> _Value:
        process = self._process()
        value, error = process.call(call)
        if isinstance(error, ProcessDied | MemoryError):
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
    """A process that runs one call after the other."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        # forks of a process with threads can hang
        context = get_context("spawn")
        self._pipe, other_end = context.Pipe()
        self._process = context.Process(target=_work, args=(other_end,), daemon=True)
        with _blocking_interrupts(), _without_main():
            self._process.start()
        other_end.close()

    def call(self, call: Callable[[], object]) -> _Answer:
        """Run a call; return its value, or its error."""
        try:
            self._pipe.send(call)
            while not self._pipe.poll(_LOOK_S if self._most_bytes else None):
                if self._bytes() > self._most_bytes:
                    return None, ProcessDied()
            answer: _Answer = self._pipe.recv()
        except (EOFError, OSError):
            return None, ProcessDied()
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
        """Return its memory in bytes; 0 if unknown."""
        with suppress(OSError):
            pages = Path(f"/proc/{self._process.pid}/statm").read_text(encoding="ascii").split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")
        return 0


def _work(pipe: "Connection") -> None:
    """Run the calls that come through a pipe, until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(_ENVIRONMENT)
    for setting in _MALLOC:
        _call_glibc("mallopt", *setting)
    with suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(_answer(pipe.recv_bytes()))


def _answer(call: bytes) -> bytes:
    try:
        return pickle.dumps((pickle.loads(call)(), None))  # noqa: S301 (from the process that started this one)
    except Exception as error:  # noqa: BLE001 (any error is reported)
        # a traceback cannot be sent
        error.add_note("".join(traceback.format_exception(error)))
        return pickle.dumps((None, error))


def _call_glibc(function: str, *arguments: int) -> None:
    """Call a function of glibc, if this process uses glibc."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # noqa: PLC0415 (only in workers)

        getattr(ctypes.CDLL(None), function)(*arguments)


@contextmanager
def as_worker() -> Iterator[None]:
    """Work as one of many processes: in one thread, and return memory at the end, because others need it.

    Garbage is collected only at the end: collecting takes a fifth of the time, and one input leaves little garbage.
    Text consists of Python's strings, as in commands (`prepare_libraries`).
    """
    import pandas as pd  # noqa: PLC0415 (only in workers)

    use_one_thread()
    gc.disable()
    try:
        with pd.option_context("mode.string_storage", "python"):
            yield
    finally:
        gc.enable()
        gc.collect()
        _call_glibc("malloc_trim", 0)


@contextmanager
def _blocking_interrupts() -> Iterator[None]:
    """Block Ctrl-C for processes started here, to which a terminal also sends it, until they ignore it themselves."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Let processes that are started here not import the main module: a script would run again in each of them."""
    with _MAIN:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def cores() -> int:
    """Return the number of cores that this process may use, also in a container."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        # "max" means that there is no limit
        with suppress(OSError, ValueError):
            quota, period = map(int, " ".join((_CGROUP / name).read_text(encoding="ascii") for name in names).split())
            count = min(count, ceil(quota / period)) if quota > 0 else count
    return count


def memory_of_machine() -> int:
    """Return the memory of this machine, or of the container of this process, in bytes; 0 if unknown."""
    limits = []
    with suppress(AttributeError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for name in _MEMORY:
        # "max" means that there is no limit
        with suppress(OSError, ValueError):
            limits.append(int((_CGROUP / name).read_text(encoding="ascii")))
    return min(limits, default=0)
