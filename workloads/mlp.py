"""Trains a multi-layer perceptron: linear layers with GELU, and the mean of the output as the loss."""

import argparse

import torch
from torch import nn

from workloads.runner import Step, WorkloadParser, annotate, positive, require_memory, run

_LEARNING_RATE = 1e-3
_STATES = {"none": 0, "sgd": 0, "adam": 2}
"""Numbers that an optimizer keeps for each parameter."""


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument("--dim", type=positive, default=1024, help="width of each layer (default: %(default)s)")
    parser.add_argument("--layers", type=positive, default=4, help="number of linear layers (default: %(default)s)")
    parser.add_argument("--batch", type=positive, default=256, help="rows in the input (default: %(default)s)")
    parser.add_argument(
        "--steps", dest="iterations", type=positive, default=argparse.SUPPRESS, help="same as --iterations"
    )
    parser.add_argument(
        "--optimizer", choices=_STATES, default="none", help="what updates the parameters (default: %(default)s)"
    )
    parser.add_argument(
        "--print-loss", action="store_true", help="print the loss of each step, for which the host waits for the GPU"
    )
    run(parser, prepare)


def prepare(options: argparse.Namespace) -> Step:
    """Create the model and its input, and return a training step."""
    parameters = options.layers * options.dim * (options.dim + 1)
    # of every layer, two results are kept for the backward pass: that of the product and that of the GELU
    activations = (2 * options.layers + 1) * options.batch * options.dim
    require_memory(4 * ((2 + _STATES[options.optimizer]) * parameters + activations), options.device)
    layers = [layer for _ in range(options.layers) for layer in (nn.Linear(options.dim, options.dim), nn.GELU())]
    model = nn.Sequential(*layers).to(options.device)
    rows = torch.randn(options.batch, options.dim, device=options.device)
    optimizer = _optimizer(options.optimizer, model)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        with annotate("forward"):
            loss = model(rows).mean()
        with annotate("backward"):
            loss.backward()
        if optimizer:
            with annotate("optimizer"):
                optimizer.step()
        if options.print_loss:
            with annotate("print loss"):
                print(f"loss {loss.item():.6f}")

    return step


def _optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer | None:
    match name:
        case "sgd":
            return torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE)
        case "adam":
            return torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE)
        case _:
            return None


if __name__ == "__main__":
    main()
