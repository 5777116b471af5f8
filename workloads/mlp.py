"""Trains a multi-layer perceptron: linear layers with GELU, and the mean of the output as the loss."""

import argparse

import torch
from torch import nn

from workloads.runner import Step, WorkloadParser, annotate, positive, run


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument("--dim", type=positive, default=1024, help="width of each layer (default: %(default)s)")
    parser.add_argument("--layers", type=positive, default=4, help="number of linear layers (default: %(default)s)")
    parser.add_argument("--batch", type=positive, default=256, help="rows in the input (default: %(default)s)")
    parser.add_argument(
        "--steps", dest="iterations", type=positive, default=argparse.SUPPRESS, help="same as --iterations"
    )
    run(parser, prepare)


def prepare(options: argparse.Namespace) -> Step:
    """Create the model and its input, and return a training step without the optimizer."""
    layers = [layer for _ in range(options.layers) for layer in (nn.Linear(options.dim, options.dim), nn.GELU())]
    model = nn.Sequential(*layers).to(options.device)
    rows = torch.randn(options.batch, options.dim, device=options.device)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        with annotate("forward"):
            loss = model(rows).mean()
        with annotate("backward"):
            loss.backward()

    return step


if __name__ == "__main__":
    main()
