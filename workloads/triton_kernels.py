"""The Triton kernels of the workloads. Importing this needs Triton; TRITON_INTERPRET=1 runs the kernels on a CPU."""

import torch
import triton
import triton.language as tl

_ELEMENTS = 1024
LONGEST_ROW = 1 << 16
"""A row of a softmax stays in the registers of one block: more would spill into slow memory."""


@triton.jit
def _add_kernel(left, right, total, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    # 64 bits, because 2**31 elements and more are not too many for a GPU
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(total + at, tl.load(left + at, mask=inside) + tl.load(right + at, mask=inside), mask=inside)


@triton.jit
def _gelu_kernel(rows, result, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(rows + at, mask=inside)
    # (1 + tanh(z)) / 2 is the sigmoid of 2z, and does not lose the small values that 1 + tanh(z) cancels
    tl.store(result + at, x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)), mask=inside)


@triton.jit
def _softmax_kernel(rows, result, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    column = tl.arange(0, BLOCK)
    inside = column < columns
    at = tl.program_id(0).to(tl.int64) * columns + column
    # values outside the row must neither be its maximum nor add to its sum
    x = tl.load(rows + at, mask=inside, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(result + at, powers / tl.sum(powers, axis=0), mask=inside)


@triton.jit
def _scale_kernel(rows, result, count, FACTOR: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(result + at, tl.load(rows + at, mask=inside) * FACTOR, mask=inside)


def add(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Add two contiguous tensors of the same size."""
    total = torch.empty_like(left)
    _add_kernel[_blocks(left)](left, right, total, left.numel(), BLOCK=_ELEMENTS)
    return total


def gelu(rows: torch.Tensor) -> torch.Tensor:
    """Compute the GELU, in its form with tanh, of a contiguous tensor."""
    result = torch.empty_like(rows)
    _gelu_kernel[_blocks(rows)](rows, result, rows.numel(), BLOCK=_ELEMENTS)
    return result


def softmax(rows: torch.Tensor) -> torch.Tensor:
    """Compute the softmax of each row of a contiguous matrix, a block per row."""
    count, columns = rows.shape
    result = torch.empty_like(rows)
    block = triton.next_power_of_2(columns)
    warps = min(32, max(4, block // 512))
    _softmax_kernel[(count,)](rows, result, columns, BLOCK=block, num_warps=warps)
    return result


def scale(rows: torch.Tensor, factor: float) -> torch.Tensor:
    """Multiply a contiguous tensor by a factor that is part of the kernel: each factor is compiled separately."""
    result = torch.empty_like(rows)
    _scale_kernel[_blocks(rows)](rows, result, rows.numel(), FACTOR=factor, BLOCK=_ELEMENTS)
    return result


def _blocks(tensor: torch.Tensor) -> tuple[int]:
    return (triton.cdiv(tensor.numel(), _ELEMENTS),)
