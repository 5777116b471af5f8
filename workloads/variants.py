"""Runs one operation in several implementations, each checked against float64 and in its own range."""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from workloads.contract import compiler_error
from workloads.runner import CannotRun, Step, WorkloadParser, annotate, first_line, needed, note

Function = Callable[..., torch.Tensor]
Builder = Callable[[str], Function]
"""Creates an implementation for "cuda" or "cpu", or raises CannotRun."""

_CHECKED_ELEMENTS = 1 << 24
"""The number of elements to compare at a time: in float64, a large result and its inputs would not fit."""


@dataclass(frozen=True)
class Exact:
    """The expected result of an operation. Its first dimension is that of the inputs, whose rows are independent.

    `scale` returns what errors are relative to, from the exact result and the inputs. The result itself is unsuitable
    if it is a small difference of large numbers.
    """

    result: Function
    scale: Function
    tolerance: float = 1e-5


def add_implementations(parser: WorkloadParser, names: Mapping[str, Builder]) -> None:
    """Add the option --impl."""
    parser.add_argument(
        "--impl",
        choices=(*names, "all"),
        default="all",
        help="implementation; all: each that can run here, in its own range (default: %(default)s)",
    )


def prepare_variants(
    options: argparse.Namespace, builders: Mapping[str, Builder], inputs: tuple[torch.Tensor, ...], exact: Exact
) -> Step:
    """Build and check the implementations of --impl; return a step that runs each in a range of its name."""
    functions = {}
    for name in builders if options.impl == "all" else (options.impl,):
        try:
            function = builders[name](options.device)
            with compiling():
                result = function(*inputs)
        except CannotRun as reason:
            if options.impl != "all":
                raise CannotRun(f"--impl {name}: {reason}") from reason
            note(options, f"{name}: left out, since {reason}")
            continue
        error = largest_relative_error(result, exact, inputs)
        if error > exact.tolerance:
            sys.exit(f"{name} is wrong: its largest relative error is {error:.2g}, more than {exact.tolerance:.2g}")
        print(f"{name}: largest relative error {error:.2g}")
        functions[name] = function

    def step() -> None:
        for name, function in functions.items():
            with annotate(name):
                function(*inputs)

    return step


def largest_relative_error(result: torch.Tensor, exact: Exact, inputs: tuple[torch.Tensor, ...]) -> float:
    """Return the error of a result; infinite if it contains NaN."""
    rows = max(1, _CHECKED_ELEMENTS // max(1, result[0].numel()))
    worst = 0.0
    for part, *parts in zip(result.split(rows), *(tensor.split(rows) for tensor in inputs), strict=True):
        doubles = [tensor.double() for tensor in parts]
        wanted = exact.result(*doubles)
        scale = exact.scale(wanted, *doubles).clamp_min(torch.finfo(torch.float32).tiny)
        errors = (part.double() - wanted).abs() / scale
        worst = max(worst, errors.nan_to_num(nan=torch.inf).max().item())
    return worst


def eager(function: Function) -> Builder:
    """Return a builder of what runs everywhere."""
    return lambda _device: function


def compiled(function: Function) -> Builder:
    """Return a builder of a function that torch.compile makes faster."""

    def build(device: str) -> Function:
        require_torch_compile(device)
        fast: Function = torch.compile(function)
        return fast

    return build


def require_torch_compile(device: str) -> None:
    """Raise CannotRun where torch.compile has nothing to generate code with."""
    if device == "cuda":
        needed("triton", "triton")
    elif not _has_cpp_compiler():
        raise CannotRun("torch.compile needs a C++ compiler on a CPU, and none was found")


@contextmanager
def compiling() -> Iterator[None]:
    """Report in one line why torch.compile failed, which happens at the first call of its function."""
    try:
        yield
    # looked up only when something was raised: the import takes a second
    except torch._dynamo.exc.TorchDynamoException as error:
        raise CannotRun(f"torch.compile failed: {first_line(error)}") from error


def triton_kernels(device: str) -> ModuleType:
    """Return our Triton kernels; CannotRun where Triton cannot run them."""
    if device != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise CannotRun("Triton needs a GPU, or TRITON_INTERPRET=1, which runs its kernels on a CPU")
    return needed("workloads.triton_kernels", "triton")


def cuda_extension(device: str, build: Callable[[ModuleType], ModuleType]) -> ModuleType:
    """Return what `build` makes with torch.utils.cpp_extension; CannotRun where a CUDA compiler or a GPU is missing."""
    if device != "cuda":
        raise CannotRun("CUDA C++ needs a GPU")
    extension = needed("torch.utils.cpp_extension", "setuptools")
    home = extension.CUDA_HOME
    if home is None or not (Path(home) / "bin" / "nvcc").is_file():
        raise CannotRun("nvcc was not found: install the CUDA toolkit, or set CUDA_HOME")
    if not extension.is_ninja_available():
        raise CannotRun(f"ninja was not found: install the package ninja for {sys.executable}")
    if not _has_cpp_compiler():
        raise CannotRun("nvcc needs a C++ compiler, and none was found")
    try:
        return build(extension)
    except (RuntimeError, OSError, ImportError) as error:
        reason = compiler_error(str(error)) or first_line(error)
        raise CannotRun(f"the CUDA extension could not be built: {reason}") from error


def _has_cpp_compiler() -> bool:
    return any(shutil.which(name) for name in (os.environ.get("CXX") or "c++", "g++", "clang++"))
