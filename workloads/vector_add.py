"""Adds two vectors with torch, an extension in CUDA C++, Triton, Numba or CuPy, which all do the same to the GPU."""

import argparse
from pathlib import Path
from types import ModuleType

import torch

from workloads.runner import CannotRun, Step, WorkloadParser, first_line, needed, positive, require_memory, run
from workloads.variants import (
    Builder,
    Exact,
    Function,
    add_implementations,
    cuda_extension,
    eager,
    prepare_variants,
    triton_kernels,
)

_THREADS = 256


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument(
        "--size", type=positive, default=1 << 26, help="elements (default: %(default)s, 1000000 on a CPU)"
    )
    add_implementations(parser, BUILDERS)
    run(parser, prepare, on_cpu={"size": 1_000_000})


def prepare(options: argparse.Namespace) -> Step:
    """Create the vectors, and return a step that adds them."""
    require_memory(4 * 6 * options.size, options.device)
    left = torch.randn(options.size, device=options.device)
    right = torch.randn_like(left)
    return prepare_variants(options, BUILDERS, (left, right), EXACT)


def _extension(device: str) -> Function:
    def build(extension: ModuleType) -> ModuleType:
        built: ModuleType = extension.load(
            name="nightsight_vector_add",
            sources=[str(Path(__file__).with_suffix(".cu"))],
            extra_cuda_cflags=["-O3", "-lineinfo"],
        )
        return built

    function: Function = cuda_extension(device, build).add
    return function


def _triton(device: str) -> Function:
    function: Function = triton_kernels(device).add
    return function


def _numba(device: str) -> Function:
    cuda = needed("numba.cuda", "numba")
    if device != "cuda" or not cuda.is_available():
        raise CannotRun("Numba finds no GPU")

    @cuda.jit
    def kernel(left, right, total):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        at = cuda.grid(1)
        if at < total.size:
            total[at] = left[at] + right[at]

    def add(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        total = torch.empty_like(left)
        # Numba reads tensors through their CUDA array interface. Its default stream is also that of torch
        kernel[(left.numel() + _THREADS - 1) // _THREADS, _THREADS](*map(cuda.as_cuda_array, (left, right, total)))
        return total

    try:
        add(*torch.zeros(2, 1, device=device))
    except Exception as error:  # a Numba that does not fit NumPy is found out when it compiles
        raise CannotRun(f"Numba cannot compile here: {first_line(error)}") from error
    return add


def _cupy(device: str) -> Function:
    cupy = needed("cupy", "cupy")
    try:
        count = cupy.cuda.runtime.getDeviceCount() if device == "cuda" else 0
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise CannotRun(f"CuPy finds no GPU: {first_line(error)}") from error
    if not count:
        raise CannotRun("CuPy finds no GPU")

    def add(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        total = torch.empty_like(left)
        # the arrays are views of the tensors. CuPy's default stream is also that of torch
        cupy.add(cupy.asarray(left), cupy.asarray(right), out=cupy.asarray(total))
        return total

    return add


EXACT = Exact(torch.add, lambda _wanted, left, right: left.abs() + right.abs(), tolerance=1e-6)
BUILDERS: dict[str, Builder] = {
    "torch": eager(torch.add),
    "extension": _extension,
    "triton": _triton,
    "numba": _numba,
    "cupy": _cupy,
}

if __name__ == "__main__":
    main()
