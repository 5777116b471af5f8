"""The Triton kernels of the workloads. Importing this needs Triton; TRITON_INTERPRET=1 runs the kernels on a CPU."""

# Triton reads the signatures of kernels, which have no types
# ruff: noqa: ANN001, ANN202, N803

import torch
import triton
import triton.language as tl

_ELEMENTS = 1024
_TOKENS = 128
LONGEST_ROW = 1 << 16
"""A row of a softmax stays in the registers of one block: more would spill into slow memory."""


@triton.jit
def _add_kernel(left, right, total, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    # 64 bits, because 2**31 elements and more are not too many for a GPU
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(total + at, tl.load(left + at, mask=inside) + tl.load(right + at, mask=inside), mask=inside)


@triton.jit
def _gelu_kernel(rows, result, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(rows + at, mask=inside)
    # (1 + tanh(z)) / 2 is the sigmoid of 2z, and does not lose the small values that 1 + tanh(z) cancels
    tl.store(result + at, x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)), mask=inside)


@triton.jit
def _softmax_kernel(rows, result, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    column = tl.arange(0, BLOCK)
    inside = column < columns
    at = tl.program_id(0).to(tl.int64) * columns + column
    # values outside the row must neither be its maximum nor add to its sum
    x = tl.load(rows + at, mask=inside, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(result + at, powers / tl.sum(powers, axis=0), mask=inside)


@triton.jit
def _scale_kernel(rows, result, count, FACTOR: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(result + at, tl.load(rows + at, mask=inside) * FACTOR, mask=inside)


@triton.jit
def _paged_attention_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917
    query,
    keys,
    values,
    blocks,
    positions,
    result,
    most_blocks,
    factor,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
):
    request, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.arange(0, LANES)
    own = (request * HEADS + head) * SIZE + lane
    x = tl.load(query + own, mask=lane < SIZE, other=0.0).to(tl.float32) * factor
    count = tl.load(positions + request) + 1
    highest, total = -float("inf"), 0.0
    mean = tl.zeros([LANES], dtype=tl.float32)
    for first in range(0, count, TOKENS):
        token = first + tl.arange(0, TOKENS)
        seen = token < count
        block = tl.load(blocks + request * most_blocks + token // BLOCK, mask=seen, other=0)
        at = ((block * BLOCK + token % BLOCK) * HEADS + head)[:, None] * SIZE + lane[None, :]
        inside = seen[:, None] & (lane < SIZE)[None, :]
        # both loads at once, for more bytes on the way
        key = tl.load(keys + at, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(values + at, mask=inside, other=0.0).to(tl.float32)
        score = tl.sum(key * x[None, :], axis=1)
        score = tl.where(seen, score, -float("inf"))
        # the sums so far are relative to the highest score so far
        before, highest = highest, tl.maximum(highest, tl.max(score, axis=0))
        power, kept = tl.exp(score - highest), tl.exp(before - highest)
        total = total * kept + tl.sum(power, axis=0)
        mean = mean * kept + tl.sum(power[:, None] * value, axis=0)
    tl.store(result + own, mean / total, mask=lane < SIZE)


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


def paged_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    blocks: torch.Tensor,
    positions: torch.Tensor,
    block: int,
) -> torch.Tensor:
    """Return the attention of the latest token of each request to all of its tokens, (requests, heads, size).

    query: like the result, contiguous. keys, values: (tokens of the cache, heads, size), contiguous. blocks: (requests,
    most blocks of one), each of `block` tokens. positions: how many tokens were before the latest one, (requests,).
    """
    result = torch.empty_like(query)
    requests, heads, size = query.shape
    sizes = {"HEADS": heads, "SIZE": size, "LANES": triton.next_power_of_2(size), "BLOCK": block, "TOKENS": _TOKENS}
    _paged_attention_kernel[(requests, heads)](
        query, keys, values, blocks, positions, result, blocks.shape[1], size**-0.5, **sizes, num_warps=8
    )
    return result


def _blocks(tensor: torch.Tensor) -> tuple[int]:
    return (triton.cdiv(tensor.numel(), _ELEMENTS),)
