"""Runs code that must first be loaded or compiled, twice: cold start and steady state.

Each step is cold, not only the first: it takes a kernel that was not loaded, and compiles code that no cache holds.
"""

import argparse
import itertools
import random
from collections.abc import Callable

import torch

from workloads.runner import CannotRun, Step, WorkloadParser, annotate, note, positive, require_memory, run
from workloads.variants import compiling, require_torch_compile, triton_kernels

_UNARY = (
    "acos acosh asin asinh atan atanh ceil cos cosh erf erfc erfinv exp exp2 expm1 floor frac log log10 log1p log2 "
    "logit neg reciprocal round rsqrt sgn sigmoid sign sin sinh sqrt square tan tanh trunc"
)
"""Functions of torch whose kernels are compiled in advance, each a separate kernel."""

Part = Callable[[torch.Tensor], Step]


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument("--size", type=positive, default=1 << 20, help="elements (default: %(default)s)")
    parser.add_argument(
        "--part", choices=("lazy", "triton", "compile", "all"), default="all", help="what to do (default: %(default)s)"
    )
    # compiling takes seconds, in each step
    parser.set_defaults(iterations=3, warmup=1, trials=3)
    run(parser, prepare, on_cpu={"iterations": 2})


def prepare(options: argparse.Namespace) -> Step:
    """Return a step that does each part cold, and once more."""
    require_memory(4 * 3 * options.size, options.device)
    rows = torch.randn(options.size, device=options.device)
    parts = []
    for name, part in {"lazy": _loading, "triton": _triton, "compile": _compile}.items():
        if options.part not in (name, "all"):
            continue
        try:
            parts.append(part(rows))
        except CannotRun as reason:
            if options.part != "all":
                raise CannotRun(f"--part {name}: {reason}") from reason
            note(options, f"{name}: left out, since {reason}")

    def step() -> None:
        for part in parts:
            part()

    return step


def _loading(rows: torch.Tensor) -> Step:
    """Call a function for the first time: CUDA loads its kernel then, unless CUDA_MODULE_LOADING is EAGER."""
    names = itertools.cycle(_UNARY.split())

    def step() -> None:
        function = getattr(torch, next(names))
        _twice("lazy loading", lambda: function(rows))

    return step


def _triton(rows: torch.Tensor) -> Step:
    """Call a kernel with a factor that is part of its code."""
    kernels = triton_kernels(rows.device.type)

    def step() -> None:
        factor = _never_seen()
        _twice("triton", lambda: kernels.scale(rows, factor))

    return step


def _compile(rows: torch.Tensor) -> Step:
    """Let torch.compile work on a function whose constant is part of the generated code."""
    require_torch_compile(rows.device.type)

    def step() -> None:
        factor = _never_seen()
        # without this, torch.compile would treat the factor as a variable, and not compile again
        torch.compiler.reset()
        function = torch.compile(lambda x: torch.tanh(x * factor) + factor)
        with compiling():
            _twice("compile", lambda: function(rows))

    return step


def _twice(name: str, work: Callable[[], object]) -> None:
    for state in ("cold", "steady"):
        with annotate(f"{name} {state}"):
            work()


def _never_seen() -> float:
    """Return a number that no earlier run used, whatever the seed, because caches of compilers outlive the process."""
    return random.SystemRandom().uniform(1, 2)


if __name__ == "__main__":
    main()
