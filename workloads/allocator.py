"""Allocates and frees buffers: from torch's caching allocator, and from the driver because the cache is emptied."""

import argparse

import torch

from workloads.runner import Step, WorkloadParser, annotate, note, positive, require_memory, run

MIB = 1 << 20


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument("--buffers", type=positive, default=16, help="buffers per step (default: %(default)s)")
    parser.add_argument(
        "--size", type=positive, default=64, help="size of a buffer in MiB (default: %(default)s, 1 on a CPU)"
    )
    run(parser, prepare, on_cpu={"size": 1})


def prepare(options: argparse.Namespace) -> Step:
    """Return a step that uses fresh buffers, twice: with a cache, and with one that is emptied after each buffer."""
    on_gpu = options.device == "cuda"
    if not on_gpu:
        note(options, "without a GPU, both ranges allocate from the host, which has no cache to empty")
    require_memory(options.size * MIB, options.device)

    def use() -> None:
        # freed at once, because nothing refers to it
        torch.empty(options.size * MIB, dtype=torch.uint8, device=options.device).zero_()

    def step() -> None:
        with annotate("caching allocator"):
            for _ in range(options.buffers):
                use()
        with annotate("empty_cache"):
            for _ in range(options.buffers):
                use()
                if on_gpu:
                    torch.cuda.empty_cache()

    return step


if __name__ == "__main__":
    main()
