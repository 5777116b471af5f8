"""More launches than the CPU can make in the time that the GPU needs for them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import nvtx
import torch

from tests.planted.cases import Step
from tests.planted.programs.parts import GPU, training


def graphed(body: Callable[[], Any]) -> Callable[[], None]:
    """Record a function as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            body()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    replay: Callable[[], None] = graph.replay
    return replay


def tiny_kernels(bad: bool) -> Step:
    start = torch.randn(1024, device=GPU)

    def body() -> None:
        values = start
        for _ in range(150):
            values = torch.sin(values) + 0.1

    run = body if bad else graphed(body)
    return lambda _: run()


def default_stream(bad: bool) -> Step:
    """Let two threads compute at the same time; a cumulative sum of few rows has few blocks."""
    streams = [torch.cuda.default_stream() if bad else torch.cuda.Stream() for _ in range(2)]
    batches = [torch.randn(16, 1 << 17, device=GPU) for _ in streams]
    threads = ThreadPoolExecutor(len(streams))
    torch.cuda.synchronize()

    def compute(stream: Any, values: Any) -> None:
        with torch.cuda.stream(stream):
            for _ in range(20):
                values = values.cumsum(1)
        stream.synchronize()

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            list(threads.map(compute, streams, batches))

    return step


def decode(bad: bool) -> Step:
    torch.manual_seed(0)
    nn = torch.nn
    layers = [
        nn.Sequential(nn.LayerNorm(768), nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768))
        .to(GPU, torch.bfloat16)
        .requires_grad_(requires_grad=False)
        for _ in range(12)
    ]
    token = torch.randn(1, 768, device=GPU, dtype=torch.bfloat16)

    def body() -> None:
        values = token
        for layer in layers:
            values = values + layer(values)

    run = body if bad else graphed(body)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            for _ in range(4):
                with nvtx.annotate("decode"):
                    run()

    return step


def optimizer(bad: bool) -> Step:
    train = training(2048, 4096, 2)
    parameters = [torch.randn(128, 128, device=GPU).requires_grad_() for _ in range(100)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    how = {"foreach": False} if bad else {"fused": True}
    updates = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, weight_decay=1e-2, **how)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            train()
            with nvtx.annotate("optimizer"):
                updates.step()

    return step
