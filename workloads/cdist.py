"""Computes the distances between the rows of two matrices: one call of torch, which launches many kernels."""

import argparse

import torch

from workloads.runner import Step, WorkloadParser, annotate, positive, require_memory, run


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument(
        "--dim", type=positive, default=2048, help="rows and columns (default: %(default)s, 256 on a CPU)"
    )
    run(parser, prepare, on_cpu={"dim": 256})


def prepare(options: argparse.Namespace) -> Step:
    """Create the matrices, and return a step that computes the distances."""
    # each matrix also gets two columns, so that one product gives all the squares
    require_memory(4 * 8 * options.dim**2, options.device)
    left = torch.randn(options.dim, options.dim, device=options.device)
    right = torch.randn_like(left)

    def step() -> None:
        with annotate("cdist"):
            torch.cdist(left, right)

    return step


if __name__ == "__main__":
    main()
