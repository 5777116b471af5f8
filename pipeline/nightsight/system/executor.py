"""Runs a function on many inputs: in processes of this machine, or on an existing Dask cluster.

Each worker works on one input at a time, so that its memory is that of one input, and what kills it is known. A worker
that dies costs only its input, which another one tries once more.
"""

import logging
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from queue import SimpleQueue
from typing import Any, Final

from nightsight.errors import CaptureError, PipelineError, ToolError, UsageError
from nightsight.progress import Progress
from nightsight.system.installing import EXTRAS, for_nightsight
from nightsight.system.processes import ProcessDied, Processes, cores, memory_of_machine
from nightsight.units import counted

LOCAL: Final = "local"
_USUAL_MEMORY: Final = 1_500_000_000
_LEAST_MEMORY: Final = 300_000_000
# the share of the memory that all workers may use together
_OF_MEMORY: Final = 0.8
_SIZE: Final = re.compile(r"(\d+\.?\d*)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_ANSWER_S: Final = "10s"
_MORE_MEMORY: Final = "Give each worker more memory, or use a machine with more."
# the number of pending inputs: more than any cluster has workers
_MOST_ASKED: Final = 1000


@dataclass(frozen=True)
class Cluster:
    """Where to work: the address of a scheduler, or `local` with a number of workers and their memory.

    workers: 0 for as many as there are cores. memory: as people write it, such as 2GB; "" for `most_bytes`, or less if
    the machine has less.
    """

    scheduler: str = LOCAL
    workers: int = 0
    memory: str = ""
    most_bytes: int = _USUAL_MEMORY


class OutOfMemory(CaptureError):
    """The workers that read an input died, or it did not fit into their memory."""


@dataclass(frozen=True)
class Done:
    """The result of an input: the value of the function, or the error that it failed with."""

    key: str
    value: Any = None
    error: PipelineError | None = None


def map_inputs(
    function: Callable[..., Any],
    inputs: Mapping[str, Sequence[Any]],
    cluster: Cluster,
    progress: Progress,
    *,
    in_order: bool = False,
) -> Generator[Done]:
    """Apply a function to inputs by their keys; yield each result as soon as it is known.

    in_order: in the order of the inputs, each as soon as it and all before it are known. ToolError if there is no such
    cluster, or it goes away.
    """
    with executor(cluster, len(inputs), progress) as workers:
        keys, asked, finished = iter(inputs), dict[Future[Any], str](), SimpleQueue[Future[Any]]()
        while True:
            for key in islice(keys, _MOST_ASKED - len(asked)):
                future = workers.submit(function, *inputs[key])
                asked[future] = key
                future.add_done_callback(finished.put)
            if not asked:
                return
            future = next(iter(asked)) if in_order else finished.get()
            error = future.exception()
            key = asked.pop(future)
            yield Done(key, error=_error_of_input(error)) if error else Done(key, future.result())


def _error_of_input(error: BaseException) -> PipelineError:
    """Return why an input failed, in one line; raise errors that it did not cause."""
    if isinstance(error, CaptureError | UsageError | ToolError):
        return error
    if isinstance(error, PipelineError):
        raise error
    # the error of Dask means the same, and exists only with Dask
    if isinstance(error, ProcessDied) or type(error).__name__ == "KilledWorker":
        return OutOfMemory("each worker that read it died: it may need more memory", _MORE_MEMORY)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("nightsight"):
        raise ToolError("nightsight is not installed on the workers of the cluster", "Install this version there.")
    if isinstance(error, MemoryError):
        return OutOfMemory("it does not fit into the memory of a worker", _MORE_MEMORY)
    return CaptureError(reason(error))


def reason(error: BaseException) -> str:
    """Return the text of an unexpected error in one line."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


@contextmanager
def executor(cluster: Cluster, count: int, progress: Progress) -> Iterator[Executor]:
    """Yield the workers for `count` inputs; those of this machine end with the context.

    ToolError if there is no such cluster; UsageError for an amount of memory that is none, or too little.
    """
    if cluster.scheduler != LOCAL:
        with _connected(cluster.scheduler, progress) as dask:
            yield dask
        return
    workers = max(min(cluster.workers or cores(), count), 1)
    memory = min(cluster.most_bytes, int(_OF_MEMORY * memory_of_machine() / workers) or cluster.most_bytes)
    if cluster.memory:
        memory = _bytes(cluster.memory)
    progress(f"starting {counted(workers, 'worker')}")
    with Processes(workers, memory) as processes:
        yield processes


def _bytes(size: str) -> int:
    """Parse a memory size such as 2GB. UsageError if it is invalid, or too little for a worker."""
    read = _SIZE.fullmatch(size.strip())
    if not read:
        raise UsageError(f"{size!r} is not a memory size", "Write it like 2GB or 900MB.")
    number, unit, is_binary = read.groups()
    limit = int(float(number) * (1024 if is_binary else 1000) ** " kmgt".index(unit.lower() or " "))
    if limit < _LEAST_MEMORY:
        raise UsageError(f"{size} is too little memory for a worker", "It needs at least 300 MB.")
    return limit


@contextmanager
def _connected(scheduler: str, progress: Progress) -> Iterator[Executor]:
    try:
        import distributed  # noqa: PLC0415 (optional)
    except ImportError:
        raise ToolError("--scheduler needs dask and distributed", for_nightsight(*EXTRAS["fleet"])) from None
    progress(f"connecting to {scheduler}")
    with _silent():
        try:
            client = distributed.Client(scheduler, timeout=_ANSWER_S, set_as_default=False)
        # its loop may not start in time on a busy machine, which it asserts
        except (OSError, TimeoutError, ValueError, TypeError, RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0] if isinstance(error, ValueError | TypeError) else "no answer"
            raise ToolError(
                f"there is no Dask scheduler at {scheduler}: {reason}",
                "Start one with `dask scheduler`, or leave out --scheduler to work on this machine.",
            ) from None
        with client:
            if not client.scheduler_info()["workers"]:
                progress("the cluster has no workers yet: waiting for one")
            try:
                # impure: a repeated run must not get results that an earlier one left on a cluster
                yield client.get_executor(pure=False)
            except Exception as error:
                if isinstance(error, CancelledError) or client.status != "running":
                    hint = "The summaries so far are kept: run the same command again."
                    raise ToolError("the scheduler went away", hint) from None
                raise


@contextmanager
def _silent() -> Iterator[None]:
    """Silence the logs of Dask: the result of each input reports its errors."""
    # each has its own level
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in ("distributed", "tornado")]
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
