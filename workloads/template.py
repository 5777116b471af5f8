"""Multiplies matrices. Put your own work into `prepare`.

python my_workload.py --steps 50                  # as it is
nightsight profile my_workload.py -- --steps 50   # under nsys and ncu, or torch.profiler

The report is about the range `measure`, and each `step` in it is a repetition: keep both names.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.profiler import record_function

CUDA = torch.cuda.is_available()


def prepare(options: argparse.Namespace) -> Callable[[], object]:
    """Create what a step needs, and return the step: it is called once for each repetition."""
    matrix = torch.randn(options.dim, options.dim, device="cuda" if CUDA else "cpu")

    def step() -> None:
        # add ranges inside the step to see how long each part takes
        with annotate("matmul"):
            product = matrix @ matrix
        with annotate("sum"):
            product.sum()

    return step


def main() -> None:
    """Warm up, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="measured steps (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=5, help="steps before them (default: %(default)s)")
    parser.add_argument("--dim", type=int, default=1024, help="rows and columns (default: %(default)s)")
    options = parser.parse_args()

    step = prepare(options)
    # the first steps are slow: kernels are loaded and compiled, memory is allocated
    with annotate("warmup"):
        for _ in range(options.warmup):
            step()
        synchronize()
    # for `nightsight profile --capture-range cudaProfilerApi`, which records what is between start and stop
    if CUDA:
        torch.cuda.profiler.start()
    begin = time.perf_counter()
    with annotate("measure"):
        for _ in range(options.steps):
            with annotate("step"):
                step()
        synchronize()
    if CUDA:
        torch.cuda.profiler.stop()
    print(f"{options.steps} steps of {(time.perf_counter() - begin) / max(options.steps, 1) * 1e3:.4g} ms")


@contextmanager
def annotate(name: str) -> Iterator[None]:
    """Name the enclosed work for nsys and ncu, which see ranges of NVTX, and for torch.profiler."""
    if CUDA:
        torch.cuda.nvtx.range_push(name)
    try:
        with record_function(name):
            yield
    finally:
        if CUDA:
            torch.cuda.nvtx.range_pop()


def synchronize() -> None:
    """Wait for the GPU, so that a range ends when its work does."""
    if CUDA:
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
