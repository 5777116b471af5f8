"""Multiplies two square matrices."""

import argparse

import torch

from workloads.runner import Step, WorkloadParser, annotate, positive, run

# tf32 is a way to multiply float32 matrices, not the type of their elements
TYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "tf32": torch.float32,
}


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument(
        "--dim", type=positive, default=2048, help="rows and columns (default: %(default)s, 512 on a CPU)"
    )
    parser.add_argument("--dtype", choices=TYPES, default="float32", help="data type (default: %(default)s)")
    run(parser, prepare, on_cpu={"dim": 512})


def prepare(options: argparse.Namespace) -> Step:
    """Create the matrices, and return a step that multiplies them."""
    torch.set_float32_matmul_precision("high" if options.dtype == "tf32" else "highest")
    left = torch.randn(options.dim, options.dim, device=options.device, dtype=TYPES[options.dtype])
    right = torch.randn_like(left)
    product = torch.empty_like(left)

    def step() -> None:
        with annotate("matmul"):
            torch.matmul(left, right, out=product)

    return step


if __name__ == "__main__":
    main()
