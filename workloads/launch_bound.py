"""Launches many tiny kernels in a row, each finished before the next can be launched; also as one CUDA graph."""

import argparse

import torch

from workloads.runner import CannotRun, Step, WorkloadParser, annotate, positive, run


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument("--kernels", type=positive, default=2000, help="kernels per step (default: %(default)s)")
    parser.add_argument("--graph", action="store_true", help="do the same work again, as one CUDA graph")
    run(parser, prepare)


def prepare(options: argparse.Namespace) -> Step:
    """Create a tensor with one element, and return a step that adds to it many times."""
    counter = torch.zeros(1, device=options.device)

    def add() -> None:
        for _ in range(options.kernels):
            counter.add_(1)

    graph = _recorded(add, options.device) if options.graph else None

    def step() -> None:
        with annotate("launches"):
            add()
        if graph:
            with annotate("graph"):
                graph.replay()

    return step


def _recorded(work: Step, device: str) -> torch.cuda.CUDAGraph:
    """Run the work once, because a graph cannot record first calls, then record it as a graph."""
    if device != "cuda":
        raise CannotRun("a CUDA graph needs a GPU")
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


if __name__ == "__main__":
    main()
