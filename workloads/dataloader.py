"""Trains a small model on data that the host prepares slowly: the GPU starves, until workers and pinned memory help."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from workloads.runner import CannotRun, Step, WorkloadParser, annotate, at_most, natural, positive, require_memory, run

_MOST_WORKERS = 256
_MINUTE_US = 60_000_000
_ENDLESS = 1 << 40
"""Samples in the data set: enough for all steps."""


class Samples(Dataset[torch.Tensor]):
    """Rows that each take the host some time, like decoding a picture."""

    def __init__(self, dim: int, sample_us: int) -> None:
        self._dim = dim
        self._sample_s = sample_us / 1e6

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, index: int) -> torch.Tensor:
        """Keep a core busy: sleeping would not slow down another process on the same core."""
        end = time.perf_counter() + self._sample_s
        row = torch.full((self._dim,), float(index % 7))
        while time.perf_counter() < end:
            row = row.sin()
        return row


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument(
        "--workers",
        type=at_most(_MOST_WORKERS, natural),
        default=0,
        help="processes that prepare data; 0: the main one (default: %(default)s)",
    )
    parser.add_argument("--pin", action="store_true", help="copy batches from pinned memory, without waiting for it")
    parser.add_argument("--batch", type=positive, default=64, help="samples in a batch (default: %(default)s)")
    parser.add_argument("--dim", type=positive, default=1024, help="numbers in a sample (default: %(default)s)")
    parser.add_argument(
        "--sample-us",
        type=at_most(_MINUTE_US, natural),
        default=200,
        help="microseconds to prepare a sample (default: %(default)s)",
    )
    run(parser, prepare)


def prepare(options: argparse.Namespace) -> Step:
    """Create the model and the loader, and return a step that trains on the next batch."""
    if options.pin and options.device != "cuda":
        raise CannotRun("--pin needs a GPU, which copies from pinned memory")
    require_memory(4 * options.dim * (options.dim * 4 + options.batch * 4), options.device)
    require_memory(4 * options.dim * options.batch * (1 + 2 * options.workers), "cpu")
    model = nn.Sequential(nn.Linear(options.dim, options.dim), nn.GELU(), nn.Linear(options.dim, 1)).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(
        Samples(options.dim, options.sample_us),
        batch_size=options.batch,
        num_workers=options.workers,
        pin_memory=options.pin,
        # newer versions of Python start workers in another way, which cannot find the data set of a program run by path
        multiprocessing_context="fork" if options.workers else None,
    )
    batches = iter(loader)

    def step() -> None:
        with annotate("next batch"):
            host = next(batches)
        with annotate("to device"):
            rows = host.to(options.device, non_blocking=options.pin)
        with annotate("train"):
            optimizer.zero_grad(set_to_none=True)
            model(rows).square().mean().backward()
            optimizer.step()

    return step


if __name__ == "__main__":
    main()
