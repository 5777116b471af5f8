"""Waits for the GPU, said and unsaid, after which it has nothing to do until the next launch."""

from typing import Any

import nvtx
import torch

from tests.planted.cases import Step
from tests.planted.programs.parts import GPU, mlp, training


def wait_loss(bad: bool) -> Step:
    train = training(4096, 4096, 4)
    batch = torch.randn(4096, 4096, device=GPU, dtype=torch.bfloat16)
    noise = torch.zeros(4096, device=GPU, dtype=torch.bfloat16)
    losses: list[Any] = []

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            with nvtx.annotate("augment"):
                scale = noise
                for _ in range(40):
                    scale = (scale * 0.99 + 0.01).clamp(-1, 1)
            loss = train(batch * scale)
            with nvtx.annotate("log"):
                losses.append(loss.item() if bad else loss.detach())

    return step


def wait_layers(bad: bool) -> Step:
    layers = list(mlp(4096, 24).requires_grad_(requires_grad=False))
    batch = torch.randn(1024, 4096, device=GPU, dtype=torch.bfloat16)

    def step(_: int) -> None:
        values = batch
        for layer in layers:
            values = layer(values)
            if bad:
                torch.cuda.synchronize()

    return step


def wait_mask(bad: bool) -> Step:
    layers = list(mlp(2048, 12).requires_grad_(requires_grad=False))[::2]
    batch = torch.randn(4096, 2048, device=GPU, dtype=torch.bfloat16)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            values, total = batch, torch.zeros((), device=GPU)
            for layer in layers:
                with nvtx.annotate("block"):
                    values = layer(values)
                    positive = values[:, 0] > 0
                    total += values[:, 1][positive].sum() if bad else (values[:, 1] * positive).sum()

    return step


def masked_loss(bad: bool) -> Step:
    """The loss of a detector: each of eight heads has its own valid boxes."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 8 * 5)).to(GPU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    features, boxes = torch.randn(8192, 256, device=GPU), torch.randn(8192, 8, 4, device=GPU)
    labels = torch.randint(0, 4, (8192, 8), device=GPU)

    def step(_: int) -> None:
        found = model(features).view(8192, 8, 5)
        loss = torch.zeros((), device=GPU)
        for head in range(8):
            valid = labels[:, head] > 0
            if bad:
                error = (found[:, head, :4][valid] - boxes[:, head][valid]).abs().sum(1)
                loss = loss + error.mean()
            else:
                error = (found[:, head, :4] - boxes[:, head]).abs().sum(1)
                loss = loss + torch.where(valid, error, 0).sum() / valid.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def wait_clip(bad: bool) -> Step:
    model = mlp(4096, 8)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    batch = torch.randn(2048, 4096, device=GPU, dtype=torch.bfloat16)

    def step(number: int) -> None:
        with torch.cuda.nvtx.range(f"step {number}"):
            model(batch).float().square().mean().backward()
            with torch.cuda.nvtx.range("clip"):
                for parameter in parameters:
                    norm = torch.linalg.vector_norm(parameter.grad)
                    parameter.grad.mul_(min(1.0, 1.0 / norm.item()) if bad else norm.reciprocal().clamp(max=1.0))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step
