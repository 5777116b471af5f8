"""Copies between host and GPU: from pageable memory, in many small pieces, and for nothing."""

from collections import deque
from typing import Any

import nvtx
import torch

from tests.planted.cases import Step
from tests.planted.programs.parts import GPU, mlp, training


def pageable(bad: bool) -> Step:
    train = training(2048, 8192, 4)
    host = torch.randn(8192, 2048)
    return blocking(train, host) if bad else prefetched(train, host.pin_memory())


def blocking(train: Any, host: Any) -> Step:
    def step(_: int) -> None:
        with nvtx.annotate("step"):
            with nvtx.annotate("load"):
                batch = host.to(GPU)
            train(batch.bfloat16())

    return step


def prefetched(train: Any, host: Any) -> Step:
    """Copy the next batch on a stream of its own while this one is computed."""
    copies = torch.cuda.Stream()
    ready = deque([host.to(GPU)])

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            compute = torch.cuda.current_stream()
            compute.wait_stream(copies)
            batch = ready.popleft()
            batch.record_stream(compute)
            with torch.cuda.stream(copies), nvtx.annotate("load"):
                ready.append(host.to(GPU, non_blocking=True))
            train(batch.bfloat16())

    return step


def pageable_images(bad: bool) -> Step:
    torch.manual_seed(0)
    nn = torch.nn
    convolutions = (nn.Conv2d(3, 64, 7, stride=4), nn.ReLU(), nn.Conv2d(64, 128, 3, stride=2), nn.ReLU())
    model = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).to(GPU).half()
    model.requires_grad_(requires_grad=False)
    host = torch.randint(0, 256, (128, 3, 224, 224), dtype=torch.uint8)
    if not bad:
        host = host.pin_memory()

    def step(_: int) -> None:
        model(host.to(GPU, non_blocking=True).half().div_(255))

    return step


def small_copies(bad: bool) -> Step:
    train = training(1024, 300, 4)
    host = torch.randn(300, 1024).pin_memory()
    rows = list(host.unbind())

    def step(number: int) -> None:
        with nvtx.annotate(f"step {number}"):
            with nvtx.annotate("inputs"):
                if bad:
                    batch = torch.stack([row.to(GPU, non_blocking=True) for row in rows])
                else:
                    batch = host.to(GPU, non_blocking=True)
            train(batch.bfloat16())

    return step


def copies_to_host(bad: bool) -> Step:
    model = mlp(2048, 6).requires_grad_(requires_grad=False)
    batch = torch.randn(8192, 2048, device=GPU, dtype=torch.bfloat16)
    kept: deque[Any] = deque(maxlen=2)

    def step(_: int) -> None:
        with torch.cuda.nvtx.range("evaluate"):
            activations = model(batch)
            with torch.cuda.nvtx.range("collect"):
                kept.append(activations.cpu() if bad else activations.mean())

    return step
