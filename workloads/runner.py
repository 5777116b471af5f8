"""Runs a workload: the shared options, the ranges around its steps, and the output of each mode.

A plain run is meant for a profiler: it calls `cudaProfilerStart` before the range `measure` and `cudaProfilerStop`
after it. `--benchmark` times the steps without a profiler.
"""

import argparse
import importlib
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import inf
from pathlib import Path
from types import ModuleType

import torch
from torch.profiler import record_function

from workloads.contract import (
    CannotRun,
    WorkloadParser,
    at_most,
    first_line,
    natural,
    note,
    positive,
    sizes,
    write_benchmark,
)

try:
    import nvtx
except ImportError:
    nvtx = None

__all__ = [
    "CannotRun",
    "Step",
    "WorkloadParser",
    "annotate",
    "at_most",
    "first_line",
    "forked",
    "natural",
    "needed",
    "note",
    "positive",
    "require_memory",
    "run",
    "sizes",
    "start_range",
]

Step = Callable[[], None]
_INTERRUPTED = 130
_LARGEST_SHOWN = 10**300
"""More bytes than this cannot be a float."""


@contextmanager
def annotate(name: str, domain: str | None = None) -> Iterator[None]:
    """Name the enclosed work (NVTX, in its own domain if one is given); traced.py turns that into an annotation."""
    with nvtx.annotate(name, domain=domain) if nvtx else record_function(name):
        yield


def start_range(name: str, domain: str | None = None) -> Step:
    """Start an NVTX range that may overlap others, and return the function that ends it, on any thread."""
    if nvtx is None:
        return lambda: None
    started = nvtx.start_range(name, domain=domain)
    return lambda: nvtx.end_range(started)


@contextmanager
def forked(streams: Sequence[torch.cuda.Stream]) -> Iterator[None]:
    """Let streams begin after the work of the current stream, which waits for them afterwards."""
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    yield
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)


def needed(module: str, package: str) -> ModuleType:
    """Import a module that only some implementations need; CannotRun if its package is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise CannotRun(f"the package {package} is not installed for {sys.executable}") from error
    except Exception as error:  # a package that does not fit another (Numba and a later NumPy) fails in its own way
        raise CannotRun(f"the package {package} cannot be imported: {first_line(error)}") from error


def require_memory(needed_bytes: int, device: str) -> None:
    """Raise CannotRun for sizes that do not fit, before they exhaust the machine."""
    free_bytes = torch.cuda.mem_get_info()[0] if device == "cuda" else _available_bytes()
    if needed_bytes > free_bytes:
        needed_gb, free_gb = (min(size, _LARGEST_SHOWN) / 1e9 for size in (needed_bytes, free_bytes))
        raise CannotRun(f"these sizes need {needed_gb:.4g} GB, and {free_gb:.4g} GB of memory are free")


def run(
    parser: WorkloadParser,
    prepare: Callable[[argparse.Namespace], Step],
    *,
    on_cpu: Mapping[str, int | str] | None = None,
    serving: Callable[[argparse.Namespace], Mapping[str, float]] | None = None,
) -> None:
    """Run the step that `prepare` creates from the options, in the mode given on the command line.

    `on_cpu` holds the defaults that differ on a CPU. `serving` returns, after the steps of a benchmark, what it adds to
    the step times: throughput and latencies, by the names of `vllm bench serve`.
    """
    options = parser.read(on_cpu or {}, has_cuda=torch.cuda.is_available())
    torch.manual_seed(options.seed)
    with _explaining(parser):
        step = prepare(options)
        if options.benchmark:
            _benchmark(step, options, parser.parameters(options), serving)
        else:
            _run_for_profiler(step, options)


@contextmanager
def _explaining(parser: WorkloadParser) -> Iterator[None]:
    """Report a CannotRun in one line, with status 2 like for an invalid option: retrying cannot help."""
    try:
        yield
    except CannotRun as reason:
        parser.error(str(reason))
    except RuntimeError as error:
        if not isinstance(error, torch.cuda.OutOfMemoryError) and "DefaultCPUAllocator" not in str(error):
            raise
        parser.error("the memory is not enough for these sizes; ask for less")


def _run_for_profiler(step: Step, options: argparse.Namespace) -> None:
    if nvtx is None:
        print("the nvtx package is not installed: nsys and ncu will see no ranges", file=sys.stderr)
    with annotate("warmup"):
        _repeat(step, options.warmup, options.device)
    with _watched(options.device), annotate("measure"):
        for _ in range(options.iterations):
            with annotate("step"):
                step()
        _synchronize(options.device)
    print(f"{options.iterations} steps on {_device_name(options.device)}")


def _benchmark(
    step: Step,
    options: argparse.Namespace,
    parameters: dict[str, str],
    serving: Callable[[argparse.Namespace], Mapping[str, float]] | None,
) -> None:
    step_ns: list[float] = []
    try:
        for trial_ns in _trials(step, options):
            step_ns.append(trial_ns / options.iterations)  # noqa: PERF401 (an interrupt leaves those until then)
        write_benchmark(options, parameters, step_ns, _facts(options.device), serving(options) if serving else None)
    except KeyboardInterrupt:
        # keep the measurements, even if some are missing
        if step_ns:
            write_benchmark(options, parameters, step_ns, _facts(options.device))
        sys.exit(_INTERRUPTED)


def _trials(step: Step, options: argparse.Namespace) -> Iterator[int]:
    """Warm up, and yield the time of each trial, until the time limit.

    One trial is always made. If its steps would take longer than the limit, `options.iterations` becomes as many as
    there was time for.
    """
    _repeat(step, options.warmup, options.device)
    deadline = time.perf_counter_ns() + 1e9 * options.time_limit
    for trial in range(options.trials):
        start = time.perf_counter_ns()
        options.iterations = _repeat(step, options.iterations, options.device, inf if trial else deadline)
        now = time.perf_counter_ns()
        yield now - start
        if now + (now - start) > deadline:
            return


def _repeat(step: Step, count: int, device: str, deadline_ns: float = inf) -> int:
    """Run a step `count` times or until the deadline, but at least once; return the number of runs."""
    done = 0
    while done < count and (not done or time.perf_counter_ns() < deadline_ns):
        step()
        done += 1
    _synchronize(device)
    return done


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _watched(device: str) -> AbstractContextManager[None]:
    """Start a profiler that waits for cudaProfilerStart (nsys --capture-range, ncu --profile-from-start off)."""
    watched: AbstractContextManager[None] = torch.cuda.profiler.profile() if device == "cuda" else nullcontext()
    return watched


def _available_bytes() -> int:
    """Return the free memory without swapping; if unknown, a number so large that no size is refused."""
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return int(found[1]) * 1024 if found else sys.maxsize


def _facts(device: str) -> dict[str, str]:
    return {
        "device": device,
        "device_name": _device_name(device),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda or "",
        "python": platform.python_version(),
    }


def _device_name(device: str) -> str:
    return str(torch.cuda.get_device_name()) if device == "cuda" else platform.processor() or platform.machine()
