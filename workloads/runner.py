"""Runs a workload: the shared options, the ranges around its steps, and the output of each mode.

A plain run is meant for a profiler: it calls `cudaProfilerStart` before the range `measure` and `cudaProfilerStop`
after it. `--benchmark` times the steps without a profiler. `--torch-trace` records them with torch.profiler.
"""

import argparse
import importlib
import json
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import torch
from torch.profiler import profile, record_function, schedule

from workloads.traced import activities, export_trace, output_path, saving_afterwards

try:
    import nvtx
except ImportError:
    nvtx = None

Step = Callable[[], None]
_LARGEST_SEED = (1 << 64) - 1
_LARGEST_SHOWN = 10**300
"""More bytes than this cannot be a float."""


class CannotRun(Exception):
    """What the options ask for is not possible on this machine. Says so in one line, which `run` shows."""


@contextmanager
def annotate(name: str, domain: str | None = None) -> Iterator[None]:
    """Name the enclosed work, for nsys and ncu (NVTX, in its own domain if one is given) and for torch.profiler."""
    with nvtx.annotate(name, domain=domain) if nvtx else nullcontext(), record_function(name):
        yield


def start_range(name: str, domain: str | None = None) -> Step:
    """Start an NVTX range that may overlap others, and return the function that ends it, on any thread."""
    if nvtx is None:
        return lambda: None
    started = nvtx.start_range(name, domain=domain)
    return lambda: nvtx.end_range(started)


@contextmanager
def forked(streams: Sequence[torch.cuda.Stream]) -> Iterator[None]:
    """Let streams begin when what the current one was given is done, and let it wait for them afterwards."""
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
        raise CannotRun(f"the package {package} is not installed: pip install {package}") from error
    except Exception as error:  # a package that does not fit another (Numba and a later NumPy) fails in its own way
        raise CannotRun(f"the package {package} cannot be imported: {first_line(error)}") from error


def require_memory(needed_bytes: int, device: str) -> None:
    """Raise CannotRun before the machine is brought to its knees by sizes that cannot fit."""
    free_bytes = torch.cuda.mem_get_info()[0] if device == "cuda" else _available_bytes()
    if needed_bytes > free_bytes:
        needed_gb, free_gb = (min(size, _LARGEST_SHOWN) / 1e9 for size in (needed_bytes, free_bytes))
        raise CannotRun(f"these sizes need {needed_gb:.4g} GB, and {free_gb:.4g} GB of memory are free")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its kind if it has none."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)


def positive(text: str) -> int:
    """Parse a whole number of at least 1, as the `type` of an option."""
    return _at_least(1, text)


def natural(text: str) -> int:
    """Parse a whole number of at least 0, as the `type` of an option."""
    return _at_least(0, text)


def at_most(most: int, parse: Callable[[str], int]) -> Callable[[str], int]:
    """Return the `type` of an option whose numbers beyond `most` no machine could use."""

    def number(text: str) -> int:
        value = parse(text)
        if value > most:
            raise argparse.ArgumentTypeError(f"{value} is more than {most}")
        return value

    return number


def sizes(text: str) -> tuple[int, ...]:
    """Parse comma-separated whole numbers of at least 1, as the `type` of an option."""
    return tuple(positive(part) for part in text.split(","))


class WorkloadParser(argparse.ArgumentParser):
    """A parser with the shared options. An invalid option ends the program with status 2 and one line."""

    def __init__(self, summary: str | None) -> None:
        super().__init__(prog=Path(sys.argv[0]).stem, description=summary)
        shared = self.add_argument_group("options of every workload")
        shared.add_argument("--iterations", type=positive, default=20, help="measured steps (default: %(default)s)")
        shared.add_argument(
            "--warmup", type=natural, default=5, help="warm-up steps before them (default: %(default)s)"
        )
        shared.add_argument(
            "--seed",
            type=at_most(_LARGEST_SEED, natural),
            default=0,
            help="seed of the random numbers (default: %(default)s)",
        )
        devices = ("auto", "cuda", "cpu")
        shared.add_argument("--device", choices=devices, default="auto", help="device to run on (default: %(default)s)")
        shared.add_argument("--trials", type=positive, default=7, help="trials of a benchmark (default: %(default)s)")
        mode = shared.add_mutually_exclusive_group()
        mode.add_argument("--benchmark", type=output_path, metavar="OUT.json", help="time the steps without a profiler")
        mode.add_argument("--torch-trace", type=output_path, metavar="OUT.json.gz", help="record with torch.profiler")

    def error(self, message: str) -> NoReturn:
        """End the program with status 2 and one line."""
        self.exit(2, f"{self.prog}: error: {message} (see --help)\n")

    def read(self, on_cpu: Mapping[str, int | str]) -> argparse.Namespace:
        """Parse the command line, with the defaults in `on_cpu` on a CPU. `device` is then "cuda" or "cpu"."""
        options = self.parse_args()
        has_cuda = torch.cuda.is_available()
        if options.device == "cuda" and not has_cuda:
            self.error("torch finds no CUDA device on this machine; use --device cpu")
        device = "cpu" if options.device == "cpu" or not has_cuda else "cuda"
        if device == "cpu":
            self.set_defaults(**on_cpu)
            options = self.parse_args()
        options.device = device
        return options

    def parameters(self, options: argparse.Namespace) -> dict[str, str]:
        """Return the options that are numbers or choices. Other text and paths may be private and are left out."""
        values = vars(options)
        choices = {action.dest for action in self._actions if action.choices}
        return {name: _text(value) for name, value in values.items() if name in choices or _is_number(value)}


def run(
    parser: WorkloadParser,
    prepare: Callable[[argparse.Namespace], Step],
    *,
    on_cpu: Mapping[str, int | str] | None = None,
) -> None:
    """Run the step that `prepare` creates from the options, in the mode given on the command line.

    `on_cpu` holds the defaults that differ on a CPU.
    """
    options = parser.read(on_cpu or {})
    torch.manual_seed(options.seed)
    with _explaining(parser):
        step = prepare(options)
        if options.benchmark:
            _benchmark(step, options, parser.parameters(options))
        elif options.torch_trace:
            _trace(step, options)
        else:
            _run_for_profiler(step, options)


@contextmanager
def _explaining(parser: WorkloadParser) -> Iterator[None]:
    """Turn what the machine cannot do into one line and status 2, as for an invalid option: trying again is no use."""
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


def _benchmark(step: Step, options: argparse.Namespace, parameters: dict[str, str]) -> None:
    _repeat(step, options.warmup, options.device)
    step_ns = [_trial_ns(step, options) / options.iterations for _ in range(options.trials)]
    document = {
        "step_ns": step_ns,
        "steps_per_trial": options.iterations,
        "parameters": parameters,
        "facts": _facts(options.device),
    }
    aside = options.benchmark.with_name(f".{options.benchmark.name}")
    aside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    aside.replace(options.benchmark)
    deviation = statistics.stdev(step_ns) if len(step_ns) > 1 else 0.0
    print(
        f"step: mean {statistics.mean(step_ns) / 1e6:.4g} ms, median {statistics.median(step_ns) / 1e6:.4g} ms, "
        f"standard deviation {deviation / 1e6:.2g} ms ({options.trials} trials of {options.iterations} steps)"
    )


def _trace(step: Step, options: argparse.Namespace) -> None:
    with profile(
        activities=activities(options.device),
        schedule=schedule(wait=1, warmup=1, active=options.iterations, repeat=1),
        # also called when a step raises: what was recorded until then is worth keeping
        on_trace_ready=lambda profiler: export_trace(profiler, options.torch_trace),
    ) as profiler:
        # its own range around each step would begin in one of our ranges and end in another
        profiler.record_steps = False
        _repeat(step, options.warmup, options.device)
        profiler.step()
        _repeat(step, 1, options.device)
        profiler.step()
        with saving_afterwards(), annotate("measure"):
            for index in range(options.iterations):
                if index:
                    profiler.step()
                with annotate("step"):
                    step()
            _synchronize(options.device)
        profiler.step()


def _trial_ns(step: Step, options: argparse.Namespace) -> int:
    start = time.perf_counter_ns()
    _repeat(step, options.iterations, options.device)
    return time.perf_counter_ns() - start


def _repeat(step: Step, count: int, device: str) -> None:
    for _ in range(count):
        step()
    _synchronize(device)


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _watched(device: str) -> AbstractContextManager[None]:
    """Start a profiler that waits for cudaProfilerStart (nsys --capture-range, ncu --profile-from-start off)."""
    watched: AbstractContextManager[None] = torch.cuda.profiler.profile() if device == "cuda" else nullcontext()
    return watched


def _available_bytes() -> int:
    """Return what programs can still have without swapping; where the system does not say, no size is refused."""
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


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, tuple) and all(map(_is_number, value)))


def _text(value: object) -> str:
    return ",".join(map(_text, value)) if isinstance(value, tuple) else str(value)


def _at_least(least: int, text: str) -> int:
    number = int(text)
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} is less than {least}")
    return number
