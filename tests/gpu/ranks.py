"""Ranks with a known story: `torchrun --nproc-per-node 2 tests/gpu/ranks.py CASE [bad|fixed] [--time FILE]`.

With fewer GPUs than ranks, ranks share one. NCCL refuses that within one host, so each rank then says that it is on a
host of its own, and they talk through sockets. What NCCL launches and says is real; its rates are not those of a link.
Ranks that share a GPU take turns of some milliseconds, unless NVIDIA's MPS gives each a part of it:

    export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/mps CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50
    mkdir -p /tmp/mps && nvidia-cuda-mps-control -d
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nvtx
import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
WIDTH, LAYERS, ROWS = 1024, 8, 2048
# the gradients of two layers
BUCKET_MIB = 9
STEPS, WARM_UP = 20, 5


def joined() -> None:
    """Join the other ranks, on the GPU of this one."""
    gpus = torch.cuda.device_count()
    torch.cuda.set_device(RANK % gpus)
    if gpus < WORLD:
        os.environ.update(NCCL_HOSTID=f"host{RANK}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
    dist.init_process_group("nccl", device_id=torch.device("cuda", RANK % gpus))


def work(seconds: float) -> None:
    """Keep the CPU busy."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).cuda()


def trained(*rows: int, overlaps: bool = True, load: float = 0.0, extra: int = 0) -> Callable[[int], None]:
    """Return a step of training: `overlaps` reduces gradients during the backward pass, `load` is seconds on the CPU.

    rows: of the batches, in turn. extra: all-reduces that only this rank calls, in the tenth step.
    """
    network = model()
    if overlaps:
        network = torch.nn.parallel.DistributedDataParallel(network, bucket_cap_mb=BUCKET_MIB)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    batches = [torch.randn(count, WIDTH, device="cuda") for count in rows]

    def step(number: int) -> None:
        with nvtx.annotate(f"step {number}"):
            with nvtx.annotate("load"):
                work(load)
            with nvtx.annotate("forward"):
                loss = network(batches[number % len(batches)]).square().mean()
            with nvtx.annotate("backward"):
                loss.backward()
            if not overlaps:
                with nvtx.annotate("gradients"):
                    for parameter in network.parameters():
                        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
            if number == WARM_UP + 10:
                for _ in range(extra):
                    dist.all_reduce(torch.ones(1000, device="cuda"))
            with nvtx.annotate("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

    return step


def grid(*, slow: bool) -> Callable[[int], None]:
    """Return a step of four ranks in two groups each: one for tensors, one for data. Rank 3 may be slow."""
    rows = [dist.new_group([first, first + 1], group_desc="tensor") for first in (0, 2)]
    columns = [dist.new_group([first, first + 2], group_desc="data") for first in (0, 1)]
    tensor, data = rows[RANK // 2], columns[RANK % 2]
    weight = torch.randn(WIDTH, WIDTH, device="cuda")
    batch = torch.randn(ROWS, WIDTH, device="cuda")

    def step(number: int) -> None:
        with nvtx.annotate(f"step {number}"):
            with nvtx.annotate("load"):
                work(0.08 if slow and RANK == 3 else 0)
            with nvtx.annotate("layers"):
                for _ in range(3):
                    part = batch @ weight
                    dist.all_reduce(part, group=tensor)
            with nvtx.annotate("gradients"):
                dist.all_reduce(weight.clone(), group=data)

    return step


def late(*, bad: bool) -> Callable[[int], None]:
    """Return a step of training that one rank begins three seconds after the others."""
    if bad and RANK == 1:
        with nvtx.annotate("read the dataset"):
            time.sleep(3)
    return trained(ROWS)


IS_SECOND = RANK == 1
CASES: dict[str, Callable[[bool], Callable[[int], None]]] = {
    "overlapped": lambda _: trained(32 * ROWS),
    "exposed": lambda bad: trained(32 * ROWS, overlaps=not bad),
    "straggler_host": lambda bad: trained(ROWS, load=0.03 if bad and IS_SECOND else 0.0),
    "straggler_compute": lambda bad: trained(ROWS * (48 if IS_SECOND else 16) if bad else ROWS * 32),
    # each time another one
    "unequal_batches": lambda bad: (
        trained(*(ROWS * (16 + 32 * ((turn + RANK) % 2)) for turn in (0, 1))) if bad else trained(32 * ROWS)
    ),
    "late_joiner": lambda bad: late(bad=bad),
    "mismatch": lambda bad: trained(ROWS, extra=int(bad and RANK == 0)),
    "grid": lambda bad: grid(slow=bad),
}


def main(case: str, form: str = "bad", *options: str) -> None:
    begun = time.perf_counter()
    joined()
    torch.set_float32_matmul_precision("high")
    is_timed = "--time" in options
    step = CASES[case](form == "bad")
    for number in range(WARM_UP):
        step(number)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for number in range(WARM_UP, WARM_UP + STEPS):
        step(number)
    torch.cuda.synchronize()
    if is_timed and RANK == 0:
        ended = time.perf_counter()
        taken = {"case": case, "form": form, "step_ms": round(1e3 * (ended - started) / STEPS, 3)}
        taken["whole_ms"] = round(1e3 * (ended - begun), 1)
        with Path(options[options.index("--time") + 1]).open("a") as file:
            file.write(json.dumps(taken) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
