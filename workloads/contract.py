"""The contract between workloads and nightsight: shared options, one-line refusals, and the file of the benchmark.

It needs no torch, so that native programs need none either. Workloads in torch have all of it from `workloads.runner`.
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

_ON_CPU: Mapping[str, int | str] = {"trials": 3, "time_limit": "20"}
_ONLY_OF_TIMING = ("time_limit",)
_LARGEST_SEED = (1 << 64) - 1
_ERROR = re.compile(r"error:|^\s*fatal\b|\bfatal +:|: No such file or directory$")


class CannotRun(Exception):
    """The machine cannot do what the options request. The message is one line; the program ends with status 2."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its kind if it has none."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)


def compiler_error(output: str) -> str:
    """Return the first compiler error in the output of a build, which begins with commands; "" without one."""
    return next((line.strip() for line in output.splitlines() if _ERROR.search(line)), "")


def positive(text: str) -> int:
    """Parse a whole number of at least 1, as the `type` of an option."""
    return _at_least(1, text)


def natural(text: str) -> int:
    """Parse a whole number of at least 0, as the `type` of an option."""
    return _at_least(0, text)


def at_most(most: int, parse: Callable[[str], int]) -> Callable[[str], int]:
    """Return the `type` of an option with numbers up to `most`, the limit of any machine."""

    def number(text: str) -> int:
        value = parse(text)
        if value > most:
            raise argparse.ArgumentTypeError(f"{value} is more than {most}")
        return value

    return number


def seconds(text: str) -> float:
    """Parse a time above 0, as the `type` of an option."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a time above 0")
    return value


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
        shared.add_argument(
            "--trials", type=positive, default=7, help="trials of a benchmark (default: %(default)s, 3 on a CPU)"
        )
        shared.add_argument(
            "--time-limit",
            type=seconds,
            default=60.0,
            metavar="SECONDS",
            help="make no more trials after this time (default: 60, 20 on a CPU)",
        )
        shared.add_argument(
            "--benchmark", type=_output_path, metavar="OUT.json", help="time the steps without a profiler"
        )

    def error(self, message: str) -> NoReturn:
        """End the program with status 2 and one line."""
        self.exit(2, f"{self.prog}: error: {message} (see --help)\n")

    def read(self, on_cpu: Mapping[str, int | str], *, has_cuda: bool) -> argparse.Namespace:
        """Parse the command line, with the defaults in `on_cpu` on a CPU. `device` is then "cuda" or "cpu"."""
        options = self.parse_args()
        if options.device == "cuda" and not has_cuda:
            self.error("torch finds no CUDA device on this machine; use --device cpu")
        device = "cpu" if options.device == "cpu" or not has_cuda else "cuda"
        if device == "cpu":
            self.set_defaults(**{**_ON_CPU, **on_cpu})
            options = self.parse_args()
        options.device = device
        return options

    def parameters(self, options: argparse.Namespace) -> dict[str, str]:
        """Return the options that are numbers or choices. Other text and paths may be private and are left out."""
        values = vars(options)
        choices = {action.dest for action in self._actions if action.choices}
        reported = {name: value for name, value in values.items() if name not in _ONLY_OF_TIMING}
        return {name: _text(value) for name, value in reported.items() if name in choices or _is_number(value)}


def note(options: argparse.Namespace, text: str) -> None:
    """Print what this run skips although another machine could do it. The report shows it, too."""
    print(text, flush=True)
    vars(options).setdefault("notes", []).append(text)


def write_benchmark(
    options: argparse.Namespace,
    parameters: Mapping[str, str],
    step_ns: Sequence[float],
    facts: Mapping[str, str],
    serving: Mapping[str, float] | None = None,
) -> None:
    """Write the file of --benchmark, which appears whole or not at all, and print its figures.

    `serving`: throughput and latencies, by the names of `vllm bench serve`.
    """
    document = {
        "step_ns": list(step_ns),
        "steps_per_trial": options.iterations,
        "parameters": dict(parameters),
        "facts": dict(facts),
        **({"serving": dict(serving)} if serving else {}),
        **({"notes": options.notes} if "notes" in options else {}),
    }
    aside = options.benchmark.with_name(f".{options.benchmark.name}")
    aside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    aside.replace(options.benchmark)
    deviation = statistics.stdev(step_ns) if len(step_ns) > 1 else 0.0
    trials = f"{len(step_ns)} trial{'s' * (len(step_ns) != 1)}"
    print(
        f"step: mean {statistics.mean(step_ns) / 1e6:.4g} ms, median {statistics.median(step_ns) / 1e6:.4g} ms, "
        f"standard deviation {deviation / 1e6:.2g} ms ({trials} of {options.iterations} steps)"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, tuple) and all(map(_is_number, value)))


def _text(value: object) -> str:
    return ",".join(map(_text, value)) if isinstance(value, tuple) else str(value)


def _output_path(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is not a file in a folder that exists")
    return path


def _at_least(least: int, text: str) -> int:
    number = int(text)
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} is less than {least}")
    return number
