"""Programs in which nothing is planted: no advice must promise much."""

import nvtx
import torch
import triton
import triton.language as tl

from tests.planted.cases import Step
from tests.planted.programs.copies import prefetched
from tests.planted.programs.launches import graphed
from tests.planted.programs.parts import GPU, training


def matmuls(_: bool) -> Step:
    train = training(8192, 8192, 2)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            train()

    return step


@triton.jit
def scaled_gelu(source: tl.tensor, target: tl.tensor, factor: tl.tensor, size: tl.constexpr) -> None:
    offsets = tl.program_id(0) * size + tl.arange(0, size)
    x = tl.load(source + offsets)
    tl.store(target + offsets, factor * x * tl.sigmoid(1.702 * x))


def fused_kernel(_: bool) -> Step:
    size = 1 << 28
    source, target = torch.randn(size, device=GPU), torch.empty(size, device=GPU)

    def step(_: int) -> None:
        for _ in range(2):
            scaled_gelu[(size // 1024,)](source, target, 0.5, 1024)

    return step


def graph_step(_: bool) -> Step:
    torch.manual_seed(0)
    layers = [torch.randn(2048, 2048, device=GPU, dtype=torch.bfloat16) / 45 for _ in range(16)]
    batch = torch.randn(4096, 2048, device=GPU, dtype=torch.bfloat16)

    def body() -> None:
        values = batch
        for layer in layers:
            values = torch.relu(values @ layer)

    run = graphed(body)

    def step(number: int) -> None:
        with nvtx.annotate(f"step {number}"):
            run()

    return step


def prefetch(_: bool) -> Step:
    return prefetched(training(4096, 8192, 3), torch.randn(8192, 4096).pin_memory())


def transformer(_: bool) -> Step:
    torch.manual_seed(0)
    with GPU:
        layers = [torch.nn.TransformerEncoderLayer(2048, 16, 8192, dropout=0.0, batch_first=True) for _ in range(2)]
    model = torch.nn.Sequential(*layers).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch = torch.randn(8, 1024, 2048, device=GPU, dtype=torch.bfloat16)

    def step(_: int) -> None:
        with torch.cuda.nvtx.range("train"):
            model(batch).float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step
