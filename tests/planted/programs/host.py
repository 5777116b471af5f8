"""Host code that keeps the GPU waiting: in a range, between ranges, and in other threads."""

import queue
import threading
import time
from typing import Any

import numpy as np
import nvtx
import torch

from tests.planted.cases import Step
from tests.planted.programs.parts import GPU, mlp, training, work


def sorted_numbers(generator: Any) -> Any:
    """Stand for the work of a data loader; other threads can run meanwhile."""
    values = generator.standard_normal(150_000)
    values.sort()
    return values


def host_load(bad: bool) -> Step:
    train, generator = training(2048, 4096, 4), np.random.default_rng(0)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            if bad:
                with nvtx.annotate("load"):
                    sorted_numbers(generator)
            train()

    return step


def host_middle(bad: bool) -> Step:
    model = mlp(2048, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(4096, 2048, device=GPU, dtype=torch.bfloat16)

    def step(number: int) -> None:
        with torch.cuda.nvtx.range(f"step {number}"):
            loss = model(batch).float().square().mean()
            if bad:
                work(0.0025)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step


def host_queue(bad: bool) -> Step:
    train = training(2048, 4096, 4)
    batches: queue.Queue[Any] = queue.Queue(maxsize=1)

    def produce(seed: int) -> None:
        generator = np.random.default_rng(seed)
        while True:
            with nvtx.annotate("prepare"):
                batch = sorted_numbers(generator)
            batches.put(batch)

    for seed in range(1 if bad else 6):
        threading.Thread(target=produce, args=(seed,), daemon=True).start()

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            with nvtx.annotate("next batch"):
                batches.get()
            train()

    return step


def host_lock(bad: bool) -> Step:
    model = mlp(2048, 4)
    batch = torch.randn(4096, 2048, device=GPU, dtype=torch.bfloat16)
    lock, ours = threading.Lock(), threading.Lock()

    def flush() -> None:
        while True:
            with lock:
                time.sleep(0.003)
            time.sleep(0.0005)

    threading.Thread(target=flush, daemon=True).start()

    def step(_: int) -> None:
        model(batch).float().square().mean().backward()
        model.zero_grad(set_to_none=True)
        with lock if bad else ours:
            pass

    return step


def host_hooks(bad: bool) -> Step:
    model = mlp(2048, 6)
    batch = torch.randn(4096, 2048, device=GPU, dtype=torch.bfloat16)
    if bad:
        for parameter in model.parameters():
            parameter.register_hook(lambda _: work(0.0003))

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            with nvtx.annotate("forward"):
                loss = model(batch).float().square().mean()
            with nvtx.annotate("backward"):
                loss.backward()
            model.zero_grad(set_to_none=True)

    return step


def periodic_idle(bad: bool) -> Step:
    def check() -> None:
        with nvtx.annotate("check"):
            torch.cuda.current_stream().synchronize()
            work(0.0002)

    train = training(4096, 4096, 4, between=check if bad else lambda: None)

    def step(number: int) -> None:
        with nvtx.annotate(f"step {number}"):
            train()

    return step
