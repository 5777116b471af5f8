"""Adds two square matrices: one kernel, which the memory limits."""

import argparse

import torch

from workloads.runner import Step, WorkloadParser, annotate, positive, require_memory, run


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument("--dim", type=positive, default=2048, help="rows and columns (default: %(default)s)")
    run(parser, prepare)


def prepare(options: argparse.Namespace) -> Step:
    """Create the matrices, and return a step that adds them."""
    require_memory(4 * 3 * options.dim**2, options.device)
    left = torch.randn(options.dim, options.dim, device=options.device)
    right = torch.randn_like(left)

    def step() -> None:
        with annotate("add"):
            torch.add(left, right)

    return step


if __name__ == "__main__":
    main()
