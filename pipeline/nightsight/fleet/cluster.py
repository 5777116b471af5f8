"""Runs one function on many inputs on Dask: on workers that are started here, or on a cluster that is there.

Workers that are started here listen on 127.0.0.1 only, with certificates that live as long as they do: otherwise anyone
on this machine could run code as this user. Each works on one input at a time, so that the memory of a worker is that
of one input, and an input that kills its worker three times is to blame for it.
"""

import gc
import logging
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nightsight.errors import CaptureError, PipelineError, ToolError, UsageError
from nightsight.progress import Progress
from nightsight.system.installing import EXTRAS, for_nightsight
from nightsight.system.scratch import scratch

if TYPE_CHECKING:
    from distributed import Client

LOCAL: Final = "local"
_LOOPBACK: Final = "127.0.0.1"
_MOST_MEMORY: Final = 1_500_000_000
_LEAST_MEMORY: Final = 300_000_000
# the share of the memory that workers may have together
_OF_MEMORY: Final = 0.8
_ANSWER_S: Final = "10s"
_SETTINGS: Final[Mapping[str, Any]] = {
    # whoever waits for a worker that dies did not kill it
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.allowed-failures": 2,
    # no pages: they would tell any user of this machine what runs
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.memory.target": 0.6,
    "distributed.worker.memory.spill": 0.7,
    # a worker that pauses may never go on: memory that Python does not release counts too
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.nanny.pre-spawn-environ": {
        # freed memory is used again, and given back when an input is done (`alone`): a quarter less CPU time
        "MALLOC_TRIM_THRESHOLD_": 2**31 - 1,
        "MALLOC_MMAP_MAX_": 0,
        "MALLOC_ARENA_MAX": 1,
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "OMP_NUM_THREADS": 1,
        "MKL_NUM_THREADS": 1,
        "OPENBLAS_NUM_THREADS": 1,
    },
    # nobody looks at what they measure of themselves all the time
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
}


@dataclass(frozen=True)
class Cluster:
    """Where to work: the address of a scheduler, or `local` with a number of workers and their memory.

    workers: 0 for as many as there are cores. memory: as people write it, such as 2GB; "" for 1.5 GB, or less if the
    machine has less.
    """

    scheduler: str = LOCAL
    workers: int = 0
    memory: str = ""


@dataclass(frozen=True)
class Done:
    """What became of an input: what the function returned, or why it could not."""

    key: str
    value: Any = None
    reason: str = ""


def done(
    function: Callable[..., Any], inputs: Mapping[str, Sequence[Any]], cluster: Cluster, progress: Progress
) -> Generator[Done]:
    """Apply a function to inputs by their keys, in this order; yield what became of each, as soon as that is known.

    ToolError if there is no such cluster, or it goes away.
    """
    with _client(cluster, len(inputs), progress) as client:
        columns = zip(*inputs.values(), strict=True)
        # impure: a run that is repeated must not get what an earlier one left on a cluster
        futures = client.map(function, *map(list, columns), pure=False)
        yield from _gathered(client, dict(zip(futures, inputs, strict=True)))


def _gathered(client: "Client", names: "dict[Any, str]") -> Iterator[Done]:
    from distributed import as_completed  # noqa: PLC0415 (optional)

    # the futures in `names` would keep every result
    waiting = as_completed(list(names), loop=client.loop)
    for future in waiting:
        key = names.pop(future)
        if future.status == "cancelled" or client.status != "running":
            raise ToolError("the scheduler went away", "What was read is kept: run the same command again.")
        error = future.exception() if future.status == "error" else None
        yield Done(key, reason=_reason(error)) if error else Done(key, _result(future))
        future.release()


def _result(future: Any) -> Any:  # noqa: ANN401 (dask's)
    try:
        return future.result()
    except CancelledError:
        raise ToolError("the scheduler went away", "What was read is kept: run the same command again.") from None


def _reason(error: BaseException) -> str:
    """Return in one line why an input failed; raise what is not its fault."""
    from distributed import KilledWorker  # noqa: PLC0415 (optional)

    if isinstance(error, CaptureError | UsageError | ToolError):
        return error.message
    if isinstance(error, PipelineError):
        raise error
    if isinstance(error, KilledWorker):
        return "each worker that read it died: it may need more memory"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("nightsight"):
        raise ToolError("nightsight is not installed on the workers of the cluster", "Install this version there.")
    if isinstance(error, MemoryError):
        return "it does not fit into the memory of a worker"
    return reason(error)


def reason(error: BaseException) -> str:
    """Return in one line what a bug says."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


@contextmanager
def _client(cluster: Cluster, count: int, progress: Progress) -> "Iterator[Client]":
    try:
        import dask  # noqa: PLC0415 (optional)
        import distributed  # noqa: PLC0415 (optional)
    except ImportError:
        raise ToolError("`fleet` needs dask and distributed", for_nightsight(*EXTRAS["fleet"])) from None
    with ExitStack() as stack:
        if cluster.scheduler == LOCAL:
            stack.enter_context(dask.config.set(_SETTINGS))
            local = stack.enter_context(_workers(cluster, count, progress))
            yield stack.enter_context(distributed.Client(local, set_as_default=False))
            return
        progress(f"connecting to {cluster.scheduler}")
        with _silent():
            try:
                client = distributed.Client(cluster.scheduler, timeout=_ANSWER_S, set_as_default=False)
            # its loop may not start in time on a busy machine, which it asserts
            except (OSError, TimeoutError, ValueError, TypeError, RuntimeError, AssertionError) as error:
                reason = str(error).splitlines()[0] if isinstance(error, ValueError | TypeError) else "no answer"
                raise ToolError(
                    f"there is no Dask scheduler at {cluster.scheduler}: {reason}",
                    "Start one with `dask scheduler`, or leave out --scheduler to work on this machine.",
                ) from None
            with client:
                if not client.scheduler_info()["workers"]:
                    progress("the cluster has no workers yet: waiting for one")
                yield client


@contextmanager
def _workers(cluster: Cluster, count: int, progress: Progress) -> Iterator[Any]:
    """Start workers on this machine, as many as have something to do."""
    import dask  # noqa: PLC0415 (optional)
    from dask.system import CPU_COUNT  # noqa: PLC0415 (optional)
    from dask.utils import parse_bytes  # noqa: PLC0415 (optional)
    from distributed import LocalCluster  # noqa: PLC0415 (optional)
    from distributed.system import MEMORY_LIMIT  # noqa: PLC0415 (optional)

    workers = max(min(cluster.workers or CPU_COUNT, count), 1)
    memory = min(_MOST_MEMORY, int(_OF_MEMORY * MEMORY_LIMIT / workers))
    if cluster.memory:
        try:
            memory = parse_bytes(cluster.memory)
        except ValueError:
            raise UsageError(f"{cluster.memory!r} is not a memory size", "Write it like 2GB or 900MB.") from None
        if memory < _LEAST_MEMORY:
            raise UsageError(f"{cluster.memory} is too little memory for a worker", "It needs at least 300 MB.")
    progress(f"starting {workers} worker{'s' * (workers > 1)}")
    # also the folder of the scheduler, which it would otherwise create next to ours
    with scratch() as folder, dask.config.set({"temporary-directory": str(folder)}), _silent():
        with _deaf_children():
            local = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=memory,
                host=_LOOPBACK,
                dashboard_address=f"{_LOOPBACK}:0",
                scheduler_kwargs={"dashboard": False},
                worker_dashboard_address=None,
                security=_certificates(),
                silence_logs=logging.CRITICAL,
            )
        with local:
            yield local


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Let processes that are started meanwhile ignore Ctrl-C, which a terminal sends them too: they are ended in order.

    Only the main thread can say so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _certificates() -> Any:  # noqa: ANN401 (dask's)
    from distributed.security import Security  # noqa: PLC0415 (optional)

    try:
        return Security.temporary()
    except ImportError:
        raise ToolError("`fleet` needs cryptography", for_nightsight(*EXTRAS["fleet"])) from None


@contextmanager
def _silent() -> Iterator[None]:
    """Keep the logs of Dask to itself: what went wrong is told by what becomes of each input."""
    # each has its own level
    known = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in ("distributed", "tornado")]
    loggers = [logging.getLogger(name) for name in known]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def alone() -> Iterator[None]:
    """Give memory back when an input is done: on a worker, what is kept of one would be missing for the next.

    Collecting garbage meanwhile takes a fifth of the time, and one input leaves little.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        with suppress(ImportError, OSError, AttributeError):
            import ctypes  # noqa: PLC0415 (on workers only)

            ctypes.CDLL(None).malloc_trim(0)
