"""Launches many tiny kernels in a row, each finished before the next can be launched."""

import argparse

import torch

from workloads.runner import Step, WorkloadParser, annotate, positive, run


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument("--kernels", type=positive, default=2000, help="kernels per step (default: %(default)s)")
    run(parser, prepare)


def prepare(options: argparse.Namespace) -> Step:
    """Create a tensor with one element, and return a step that adds to it many times."""
    counter = torch.zeros(1, device=options.device)

    def step() -> None:
        with annotate("launches"):
            for _ in range(options.kernels):
                counter.add_(1)

    return step


if __name__ == "__main__":
    main()
