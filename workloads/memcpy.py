"""Copies between host and device: pageable and pinned memory, blocking or not, and concurrently with kernels."""

import argparse
import itertools
from collections.abc import Callable
from contextlib import nullcontext

import torch

from workloads.runner import Step, WorkloadParser, annotate, forked, note, positive, require_memory, run, sizes

MIB = 1 << 20
_CHUNKS = 8
_FLOAT_BYTES = 4


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument(
        "--sizes",
        type=sizes,
        default="1,16,64",
        help="sizes of the copies in MiB (default: %(default)s; 1,16 on a CPU)",
    )
    parser.add_argument(
        "--mode",
        choices=("sync", "async", "overlap", "all"),
        default="all",
        help="sync: the host waits for each copy; async: it does not, if the memory is pinned; overlap: copies and "
        "kernels of the largest size in chunks, on one stream and on two (default: %(default)s)",
    )
    parser.add_argument(
        "--work",
        type=positive,
        default=40,
        help="kernels for each chunk of overlap (default: %(default)s, 10 on a CPU)",
    )
    run(parser, prepare, on_cpu={"sizes": "1,16", "work": 10})


def prepare(options: argparse.Namespace) -> Step:
    """Create the buffers, and return a step that makes the copies of the mode."""
    if options.device != "cuda":
        note(options, "without a GPU, these copies are from host to host, and no memory is pinned")
    # buffers of two kinds for each of two modes, and the chunks; as many on the host as on the device
    for place in {"cpu", options.device}:
        require_memory(MIB * (4 * sum(options.sizes) + max(options.sizes)), place)
    parts: dict[str, Callable[[], Step]] = {
        "sync": lambda: _copies(options, waits=True),
        "async": lambda: _copies(options, waits=False),
        "overlap": lambda: _overlap(options),
    }
    steps = [part() for mode, part in parts.items() if options.mode in (mode, "all")]

    def step() -> None:
        for part in steps:
            part()

    return step


def _copies(options: argparse.Namespace, *, waits: bool) -> Step:
    """Return a step that copies buffers of each size and kind to the device and back."""
    copies = []
    for size, kind in itertools.product(options.sizes, ("pageable", "pinned")):
        host = torch.zeros(size * MIB, dtype=torch.uint8, pin_memory=options.device == "cuda" and kind == "pinned")
        device = torch.empty_like(host, device=options.device)
        about = f"{kind} {'sync' if waits else 'async'} {size} MiB"
        copies += [(f"HtoD {about}", device, host), (f"DtoH {about}", host, device)]

    def step() -> None:
        for name, target, source in copies:
            with annotate(name):
                # the host waits for copies of pageable memory in any mode: this is what the workload shows
                target.copy_(source, non_blocking=not waits)

    return step


def _overlap(options: argparse.Namespace) -> Step:
    """Return a step that copies chunks to the device, processes them and copies them back, on one and two streams."""
    on_gpu = options.device == "cuda"
    numbers = max(options.sizes) * MIB // _FLOAT_BYTES // _CHUNKS
    hosts = [torch.zeros(numbers, pin_memory=on_gpu) for _ in range(_CHUNKS)]
    devices = [torch.empty_like(host, device=options.device) for host in hosts]
    streams = [torch.cuda.Stream() for _ in range(2)] if on_gpu else []

    def move(host: torch.Tensor, device: torch.Tensor) -> None:
        device.copy_(host, non_blocking=on_gpu)
        for _ in range(options.work):
            device.add_(1)
        host.copy_(device, non_blocking=on_gpu)

    def step() -> None:
        with annotate("one stream"):
            for chunk in zip(hosts, devices, strict=True):
                move(*chunk)
        with annotate("two streams"), forked(streams):
            for index, chunk in enumerate(zip(hosts, devices, strict=True)):
                with torch.cuda.stream(streams[index % 2]) if streams else nullcontext():
                    move(*chunk)

    return step


if __name__ == "__main__":
    main()
