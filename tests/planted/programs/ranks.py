"""Two ranks under torchrun, a GPU each: exposed communication, and a rank that the other waits for."""

import os
from typing import Any

import nvtx
import torch
import torch.distributed as dist

from tests.planted.cases import Step
from tests.planted.programs.parts import GPU, mlp, work

RANK = int(os.environ.get("RANK", "0"))


def data_parallel(rows: int, dim: int = 4096, layers: int = 6) -> Any:
    """Return a step of training whose gradients are reduced in buckets during the backward pass."""
    model = torch.nn.parallel.DistributedDataParallel(mlp(dim, layers), device_ids=[RANK])
    return trained(model, rows, dim)


def trained(model: Any, rows: int, dim: int, *, reduces: bool = False) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(rows, dim, device=GPU, dtype=torch.bfloat16)

    def train() -> None:
        with nvtx.annotate("forward"):
            loss = model(batch).float().square().mean()
        with nvtx.annotate("backward"):
            loss.backward()
        if reduces:
            with nvtx.annotate("gradients"):
                gradients = [parameter.grad for parameter in model.parameters()]
                flat = torch.cat([gradient.flatten() for gradient in gradients])
                dist.all_reduce(flat, op=dist.ReduceOp.AVG)
                parts = flat.split([gradient.numel() for gradient in gradients])
                torch._foreach_copy_([gradient.flatten() for gradient in gradients], list(parts))
        with nvtx.annotate("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return train


def exposed_communication(bad: bool) -> Step:
    train = trained(mlp(4096, 6), 3072, 4096, reduces=True) if bad else data_parallel(3072)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            train()

    return step


def small_gradients(bad: bool) -> Step:
    """Let the gradients of 200 small parameters be reduced one by one; fixed: as one tensor."""
    model = mlp(256, 100)
    batch = torch.randn(1024, 256, device=GPU, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            model(batch).float().square().mean().backward()
            gradients = [parameter.grad for parameter in model.parameters()]
            with nvtx.annotate("gradients"):
                tensors = gradients if bad else [torch.nn.utils.parameters_to_vector(gradients)]
                for tensor in tensors:
                    dist.all_reduce(tensor)
                    tensor.div_(dist.get_world_size())
                if not bad:
                    torch.nn.utils.vector_to_parameters(tensors[0], gradients)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step


def straggler(bad: bool) -> Step:
    train = data_parallel((12288 if RANK == 1 else 4096) if bad else 8192)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            train()

    return step


def straggler_host(bad: bool) -> Step:
    train = data_parallel(3072)

    def step(number: int) -> None:
        with nvtx.annotate(f"step {number}"):
            with nvtx.annotate("load"):
                if bad and RANK == 1:
                    work(0.006)
            train()

    return step


def overlapped(_: bool) -> Step:
    train = data_parallel(16384)

    def step(_: int) -> None:
        with nvtx.annotate("step"):
            train()

    return step
