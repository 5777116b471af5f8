"""Causes inside and between kernels: no fusion, no tensor cores, too few blocks, scattered reads, one stream."""

from typing import Any

import nvtx
import torch
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.planted.cases import Step
from tests.planted.programs.parts import GPU, training


def gelu(bad: bool) -> Step:
    values = torch.randn(1 << 26, device=GPU)

    def by_hand(x: Any) -> Any:
        return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))

    def step(_: int) -> None:
        with nvtx.annotate("gelu"):
            by_hand(values) if bad else torch.nn.functional.gelu(values, approximate="tanh")

    return step


def layer_norm(bad: bool) -> Step:
    values = torch.randn(16384, 4096, device=GPU)
    weight, bias = torch.randn(4096, device=GPU), torch.randn(4096, device=GPU)

    def by_hand() -> None:
        centered = values - values.mean(-1, keepdim=True)
        variance = (centered * centered).mean(-1, keepdim=True)
        _ = centered * torch.rsqrt(variance + 1e-5) * weight + bias

    def step(_: int) -> None:
        by_hand() if bad else torch.nn.functional.layer_norm(values, (4096,), weight, bias)

    return step


def matmul_fp32(bad: bool) -> Step:
    train = training(4096, 4096, 2, torch.float32)

    def step(_: int) -> None:
        torch.backends.cuda.matmul.allow_tf32 = not bad
        with nvtx.annotate("step"):
            train()

    return step


def block_fp32(bad: bool) -> Step:
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True).to(GPU)
    batch = torch.randn(8, 512, 1024, device=GPU)

    def step(_: int) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        with nvtx.annotate("step"), torch.autocast("cuda", torch.bfloat16, enabled=not bad):
            with nvtx.annotate("block"):
                loss = block(batch).float().square().mean()
            loss.backward()
            block.zero_grad(set_to_none=True)

    return step


def flash_attention(bad: bool) -> Step:
    torch.manual_seed(0)
    heads, size, tokens = 16, 128, 4096
    joined = torch.nn.Linear(heads * size, 3 * heads * size, device=GPU, dtype=torch.bfloat16)
    batch = torch.randn(2, tokens, heads * size, device=GPU, dtype=torch.bfloat16)
    backend = SDPBackend.FLASH_ATTENTION if bad else SDPBackend.CUDNN_ATTENTION

    def step(_: int) -> None:
        with nvtx.annotate("step"), sdpa_kernel(backend):
            parts = joined(batch).view(2, tokens, heads, 3 * size).transpose(1, 2).chunk(3, dim=-1)
            attended = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            attended.float().square().mean().backward()
            joined.zero_grad(set_to_none=True)

    return step


@triton.jit
def iterate(values: tl.tensor, rounds: tl.tensor, size: tl.constexpr) -> None:
    offsets = tl.program_id(0) * size + tl.arange(0, size)
    x = tl.load(values + offsets)
    for _ in range(rounds):
        x = x * 0.999 + 0.001
    tl.store(values + offsets, x)


def one_stream(bad: bool) -> Step:
    chains = [torch.randn(40 * 1024, device=GPU) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in chains]

    def step(_: int) -> None:
        main = torch.cuda.current_stream()
        with nvtx.annotate("step"):
            for values, own in zip(chains, streams, strict=True):
                stream = main if bad else own
                stream.wait_stream(main)
                with torch.cuda.stream(stream), nvtx.annotate("chain"):
                    for _ in range(20):
                        iterate[(40,)](values, 20_000, 1024)
            for stream in streams:
                main.wait_stream(stream)

    return step


@triton.jit
def block_sums(values: tl.tensor, sums: tl.tensor, each: tl.tensor, size: tl.constexpr) -> None:
    first = tl.program_id(0) * each
    total = tl.zeros((size,), dtype=tl.float32)
    for start in range(0, each, size):
        total += tl.load(values + first + start + tl.arange(0, size))
    tl.store(sums + tl.program_id(0), tl.sum(total))


def small_grid(bad: bool) -> Step:
    size, blocks = 1 << 25, 16 if bad else 2048
    values, sums = torch.randn(size, device=GPU), torch.empty(blocks, device=GPU)

    def step(_: int) -> None:
        for _ in range(3):
            block_sums[(blocks,)](values, sums, size // blocks, 1024)

    return step


@triton.jit
def double(source: tl.tensor, target: tl.tensor, rows: tl.tensor, columns: tl.tensor, size: tl.constexpr) -> None:
    offsets = tl.program_id(0) * size + tl.arange(0, size)
    place = (offsets % rows) * columns + offsets // rows
    tl.store(target + offsets, 2 * tl.load(source + place))


def uncoalesced(bad: bool) -> Step:
    size = 1 << 26
    source, target = torch.randn(size, device=GPU), torch.empty(size, device=GPU)
    # with one column, the place of a value is its number
    rows = 8192 if bad else size

    def step(_: int) -> None:
        for _ in range(4):
            double[(size // 1024,)](source, target, rows, size // rows, 1024)

    return step
