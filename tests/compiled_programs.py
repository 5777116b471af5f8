"""Runs the compiled planted programs on the CPU, in small and without a compiler of kernels: what Dynamo does stays."""

import sys
from typing import Any

import torch

from tests.planted.programs import parts

STEPS = 4


def main() -> None:
    parts.GPU = torch.device("cpu")
    compiled = torch.compile
    torch.compile = lambda function, mode="", **how: compiled(function, backend="eager", **how)  # noqa: ARG005
    from tests.planted.programs import compiled as programs  # noqa: PLC0415 (after the GPU is replaced)

    programs.LARGE, programs.SMALL = 64, 64
    for name in sys.argv[1:]:
        case, _, form = name.partition(".")
        step: Any = getattr(programs, case)(form == "bad")
        for number in range(STEPS):
            step(number)


if __name__ == "__main__":
    main()
