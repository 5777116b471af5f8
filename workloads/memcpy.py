"""Copies between host and device: both directions, pageable and pinned memory, several sizes."""

import argparse
import itertools

import torch

from workloads.runner import Step, WorkloadParser, annotate, positive, run

MIB = 1 << 20


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument(
        "--sizes", type=sizes, default="1,16,64", help="sizes of the copies in MiB (default: %(default)s)"
    )
    run(parser, prepare)


def sizes(text: str) -> tuple[int, ...]:
    """Parse comma-separated whole numbers, as the `type` of an option."""
    return tuple(positive(part) for part in text.split(","))


def prepare(options: argparse.Namespace) -> Step:
    """Create the buffers, and return a step that copies each of them to the device and back."""
    on_gpu = options.device == "cuda"
    if not on_gpu:
        print("without a GPU, these copies are from host to host, and no memory is pinned")
    copies = []
    for size, kind in itertools.product(options.sizes, ("pageable", "pinned")):
        host = torch.zeros(size * MIB, dtype=torch.uint8, pin_memory=on_gpu and kind == "pinned")
        device = torch.empty_like(host, device=options.device)
        copies.append((f"HtoD {kind} {size} MiB", device, host, kind == "pinned"))
        copies.append((f"DtoH {kind} {size} MiB", host, device, kind == "pinned"))

    def step() -> None:
        for name, target, source, pinned in copies:
            with annotate(name):
                # only pinned memory can be copied while the host continues
                target.copy_(source, non_blocking=pinned)

    return step


if __name__ == "__main__":
    main()
