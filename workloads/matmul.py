"""Multiplies square matrices of several sizes and data types, which select different kernels."""

import argparse
from collections.abc import Iterator

import torch

from workloads.runner import Step, WorkloadParser, annotate, require_memory, run, sizes

# tf32 is a way to multiply float32 matrices, not the type of their elements
TYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_SHORT = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument(
        "--dim",
        type=sizes,
        default="128,512,2048,8192",
        help="rows and columns, comma-separated: each size has a range (default: %(default)s; 128,512 on a CPU)",
    )
    parser.add_argument(
        "--dtype",
        type=lambda name: _SHORT.get(name, name),
        choices=(*TYPES, "all"),
        default="float32",
        help="data type; fp32, bf16 and fp16 will do; all: each in turn (default: %(default)s)",
    )
    run(parser, prepare, on_cpu={"dim": "128,512"})


def prepare(options: argparse.Namespace) -> Step:
    """Create the matrices, and return a step that multiplies those of each size and type."""
    types = TYPES if options.dtype == "all" else {options.dtype: TYPES[options.dtype]}
    require_memory(sum(3 * dim**2 * dtype.itemsize for dim in options.dim for dtype in types.values()), options.device)
    products = list(_products(options, types))

    def step() -> None:
        for name, precision, left, right, product in products:
            # of the process, not of a tensor. It is read when the product is launched, and costs no time to set
            torch.set_float32_matmul_precision(precision)
            with annotate(name):
                torch.matmul(left, right, out=product)

    return step


def _products(
    options: argparse.Namespace, types: dict[str, torch.dtype]
) -> Iterator[tuple[str, str, torch.Tensor, torch.Tensor, torch.Tensor]]:
    for name, dtype in types.items():
        for dim in options.dim:
            left = torch.randn(dim, dim, device=options.device, dtype=dtype)
            precision = "high" if name == "tf32" else "highest"
            yield f"matmul {dim} {name}", precision, left, torch.randn_like(left), torch.empty_like(left)


if __name__ == "__main__":
    main()
