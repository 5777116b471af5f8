"""Multiplies matrices on several threads and streams, in NVTX domains, with ranges that overlap and change threads."""

import argparse
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import torch

from workloads.runner import Step, WorkloadParser, annotate, at_most, forked, positive, require_memory, run, start_range

_PRODUCTS = 8
_MOST = 256


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument(
        "--threads", type=at_most(_MOST, positive), default=2, help="threads that launch work (default: %(default)s)"
    )
    parser.add_argument(
        "--streams", type=at_most(_MOST, positive), default=2, help="streams of each thread (default: %(default)s)"
    )
    parser.add_argument(
        "--dim", type=positive, default=512, help="rows and columns of the matrices (default: %(default)s, 64 on a CPU)"
    )
    run(parser, prepare, on_cpu={"dim": 64})


def prepare(options: argparse.Namespace) -> Step:
    """Start the threads, and return a step in which each one submits work to its streams."""
    require_memory(4 * 3 * options.dim**2 * options.threads * options.streams, options.device)
    pool = ThreadPoolExecutor(options.threads, "launcher")
    # a pool gives tasks to any free thread: all wait here, so that each thread gets one
    together = threading.Barrier(options.threads)
    launchers = [_launcher(number, options, together) for number in range(options.threads)]

    def step() -> None:
        # a start/end range of the domain `io`, which another thread ends
        end_batch = start_range("batch", "io")
        with annotate("hand out"):
            tasks = [pool.submit(launcher) for launcher in launchers]
            closing = pool.submit(end_batch)
        with annotate("wait for threads"):
            for task in (*tasks, closing):
                task.result()

    return step


def _launcher(number: int, options: argparse.Namespace, together: threading.Barrier) -> Step:
    """Return what one thread does in a step: products on its own streams and in its own domain."""
    domain = f"thread {number}"
    streams = [torch.cuda.Stream() for _ in range(options.streams)] if options.device == "cuda" else []
    matrices = [
        [torch.randn(options.dim, options.dim, device=options.device) for _ in range(3)] for _ in range(options.streams)
    ]

    def launch() -> None:
        together.wait()
        ends = []
        with annotate("products", domain), forked(streams):
            for index, (left, right, product) in enumerate(matrices):
                # overlapping start/end ranges of one thread: each lasts until all work is submitted
                ends.append(start_range(f"stream {index}", domain))
                with torch.cuda.stream(streams[index]) if streams else nullcontext():
                    for _ in range(_PRODUCTS):
                        torch.matmul(left, right, out=product)
        for end in ends:
            end()

    return launch


if __name__ == "__main__":
    main()
