"""Computes the softmax of each row of a matrix, in implementations that read memory more or less often."""

import argparse

import torch

from workloads.runner import CannotRun, Step, WorkloadParser, positive, require_memory, run
from workloads.variants import (
    Builder,
    Exact,
    Function,
    add_implementations,
    compiled,
    eager,
    prepare_variants,
    triton_kernels,
)

_COPIES = 6
"""Matrices that exist at once: the input, those of the eager operations, and the float64 check of a part."""


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument(
        "--dim", type=positive, default=16384, help="rows and columns (default: %(default)s, 512 on a CPU)"
    )
    add_implementations(parser, BUILDERS)
    run(parser, prepare, on_cpu={"dim": 512})


def prepare(options: argparse.Namespace) -> Step:
    """Create the matrix, and return a step that computes the softmax of its rows."""
    require_memory(4 * _COPIES * options.dim**2, options.device)
    rows = torch.randn(options.dim, options.dim, device=options.device)
    return prepare_variants(options, BUILDERS, (rows,), EXACT)


def naive(rows: torch.Tensor) -> torch.Tensor:
    """Compute it operation by operation: five kernels, of which four read the whole matrix."""
    powers = torch.exp(rows - rows.max(dim=1, keepdim=True).values)
    return powers / powers.sum(dim=1, keepdim=True)


def fused(rows: torch.Tensor) -> torch.Tensor:
    """Compute it with torch's kernel for it."""
    return torch.softmax(rows, dim=1)


def _triton(device: str) -> Function:
    kernels = triton_kernels(device)

    def softmax(rows: torch.Tensor) -> torch.Tensor:
        if rows.shape[1] > kernels.LONGEST_ROW:
            raise CannotRun(f"rows of the Triton kernel have at most {kernels.LONGEST_ROW} elements")
        result: torch.Tensor = kernels.softmax(rows)
        return result

    return softmax


# an error is relative to the element, or to the mean of its row: the smallest elements vanish in float32
EXACT = Exact(fused, lambda wanted, _rows: wanted.clamp_min(1 / wanted.shape[1]))
BUILDERS: dict[str, Builder] = {
    "naive": eager(naive),
    "torch": eager(fused),
    "triton": _triton,
    "compile": compiled(naive),
}

if __name__ == "__main__":
    main()
