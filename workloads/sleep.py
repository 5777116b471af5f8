"""Does nothing on the GPU: the host sleeps."""

import argparse
import time

from workloads.runner import Step, WorkloadParser, annotate, at_most, positive, run

_HOUR_MS = 3_600_000


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument(
        "--ms", type=at_most(_HOUR_MS, positive), default=50, help="milliseconds per step (default: %(default)s)"
    )
    run(parser, prepare)


def prepare(options: argparse.Namespace) -> Step:
    """Return a step that sleeps."""

    def step() -> None:
        with annotate("sleep"):
            time.sleep(options.ms / 1000)

    return step


if __name__ == "__main__":
    main()
