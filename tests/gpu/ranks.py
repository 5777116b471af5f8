"""Ranks with a known story: `torchrun --nproc-per-node 2 tests/gpu/ranks.py CASE [bad|fixed]` runs one for a profiler.

`... tests/gpu/ranks.py --time FOLDER CASE...` measures both forms of programs without a profiler, into its times.json.

With fewer GPUs than ranks, ranks share one. NCCL refuses that within one host, so each rank then says that it is on a
host of its own, and they talk through sockets. What NCCL launches and says is real; its rates are not those of a link.
Ranks that share a GPU take turns of some milliseconds, unless NVIDIA's MPS gives each a part of it:

    export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/mps CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50
    mkdir -p /tmp/mps && nvidia-cuda-mps-control -d
"""

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import nvtx
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from tests.planted.store import keep

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SHARES_GPU = torch.cuda.device_count() < WORLD
LAYERS = 8
# on a GPU of its own, a rank has gradients that take NVLink some of the time of a step
WIDTH, ROWS = (1024, 2048) if SHARES_GPU else (4096, 128)
# the gradients of two layers
BUCKET_MIB = 2 * WIDTH * (WIDTH + 1) * 4 / 2**20
STEPS, WARM_UP, TRIALS = 20, 5, 3
# between trials: GPUs that were busy for seconds are slowed down by their power limit, or that of their machine
REST_S = 1.0

Step = Callable[[int], None]


def joined() -> None:
    """Join the other ranks, on the GPU of this one."""
    gpus = torch.cuda.device_count()
    torch.cuda.set_device(RANK % gpus)
    if SHARES_GPU:
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


def trained(*rows: int, overlaps: bool = True, load: float = 0.0, extra: int = 0) -> Step:
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


def grid(*, slow: bool) -> Step:
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


def late(*, bad: bool) -> Step:
    """Return a step of training that one rank begins three seconds after the others."""
    if bad and RANK == 1:
        with nvtx.annotate("read the dataset"):
            time.sleep(3)
    return trained(ROWS)


def accumulated(*, reduces_each: bool) -> Step:
    """Return a step of four small batches: gradients are reduced after each, or only after the last."""
    network = torch.nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=BUCKET_MIB)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    batches = [torch.randn(4 * ROWS, WIDTH, device="cuda") for _ in range(4)]

    def step(number: int) -> None:
        with nvtx.annotate(f"step {number}"):
            for batch in batches:
                is_last = batch is batches[-1]
                with nvtx.annotate("batch"), nullcontext() if reduces_each or is_last else network.no_sync():
                    network(batch).square().mean().backward()
            with nvtx.annotate("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

    return step


def checkpointed(*, saves: bool) -> Step:
    """Return a step of training after which, each fifth time, the first rank saves a layer while the others go on."""
    train = trained(16 * ROWS)
    layer = torch.nn.Linear(WIDTH, WIDTH).cuda()

    def step(number: int) -> None:
        train(number)
        if saves and RANK == 0 and number % 5 == 0:
            with nvtx.annotate("checkpoint"):
                torch.save({name: value.cpu() for name, value in layer.state_dict().items()}, io.BytesIO())

    return step


def staged(*, layers: tuple[int, ...]) -> Step:
    """Return a step of a pipeline: each rank has some layers; forward with all microbatches, then backward."""
    torch.manual_seed(RANK)
    stage = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers[RANK]))).cuda()
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3)
    inputs = torch.randn(8 * ROWS, WIDTH, device="cuda")
    is_first, is_last = RANK == 0, RANK == WORLD - 1

    def step(number: int) -> None:
        kept = []
        with nvtx.annotate(f"step {number}"):
            for _ in range(8):
                received = inputs.clone() if is_first else torch.empty_like(inputs)
                if not is_first:
                    dist.recv(received, RANK - 1)
                with nvtx.annotate("forward"):
                    result = stage(received.requires_grad_())
                if not is_last:
                    dist.send(result.detach(), RANK + 1)
                kept.append((received, result))
            for received, result in kept:
                gradient = torch.empty_like(result)
                if not is_last:
                    dist.recv(gradient, RANK + 1)
                with nvtx.annotate("backward"):
                    result.backward(result.detach() if is_last else gradient)
                if not is_first:
                    dist.send(received.grad, RANK - 1)
            with nvtx.annotate("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

    return step


def experts(*, share: float) -> Step:
    """Return a step of two layers whose tokens go to the expert of a rank and come back; the last gets `share`."""
    tokens = torch.randn(16 * ROWS, WIDTH, device="cuda")
    last = int(share * len(tokens))
    given = [(len(tokens) - last) // (WORLD - 1)] * (WORLD - 1) + [last]
    got = [given[RANK]] * WORLD
    expert = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
    ).cuda()

    def step(number: int) -> None:
        with torch.no_grad(), nvtx.annotate(f"step {number}"):
            for _ in range(2):
                with nvtx.annotate("dispatch"):
                    mine = torch.empty(sum(got), WIDTH, device="cuda")
                    dist.all_to_all_single(mine, tokens, got, given)
                with nvtx.annotate("expert"):
                    result = expert(mine)
                with nvtx.annotate("combine"):
                    dist.all_to_all_single(torch.empty_like(tokens), result, given, got)

    return step


def sharded(*, again: bool) -> Step:
    """Return a step of training with sharded parameters, which are gathered for the forward pass, and maybe `again`."""
    network = model()
    for layer in network:
        fully_shard(layer, reshard_after_forward=again)
    fully_shard(network, reshard_after_forward=again)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    batch = torch.randn(8 * ROWS, WIDTH, device="cuda")

    def step(number: int) -> None:
        with nvtx.annotate(f"step {number}"):
            with nvtx.annotate("forward"):
                loss = network(batch).square().mean()
            with nvtx.annotate("backward"):
                loss.backward()
            with nvtx.annotate("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

    return step


IS_SECOND = RANK == 1
CASES: dict[str, Callable[[bool], Step]] = {
    "overlapped": lambda _: trained(32 * ROWS),
    "exposed": lambda bad: trained(32 * ROWS, overlaps=not bad),
    "straggler_host": lambda bad: trained(ROWS, load=0.03 if bad and IS_SECOND else 0.0),
    "straggler_compute": lambda bad: trained(ROWS * (48 if IS_SECOND else 16) if bad else ROWS * 32),
    # each time another one
    "unequal_batches": lambda bad: (
        trained(*(ROWS * (16 + 32 * ((turn + RANK) % 2)) for turn in (0, 1))) if bad else trained(32 * ROWS)
    ),
    "accumulated": lambda bad: accumulated(reduces_each=bad),
    "checkpointed": lambda bad: checkpointed(saves=bad),
    "staged": lambda bad: staged(layers=(2, 6) if bad else (4, 4)),
    "experts": lambda bad: experts(share=0.75 if bad else 1 / WORLD),
    "sharded": lambda bad: sharded(again=bad),
    "late_joiner": lambda bad: late(bad=bad),
    "mismatch": lambda bad: trained(ROWS, extra=int(bad and RANK == 0)),
    "grid": lambda bad: grid(slow=bad),
}


def run(step: Step, steps: int, numbers: Iterator[int]) -> float:
    """Return the milliseconds that a step took."""
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(steps):
        step(next(numbers))
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / steps * 1e3


def time_cases(folder: str, *names: str) -> None:
    """Write the milliseconds of a step in each trial of both forms, which take turns."""
    for name in names:
        forms = {form: (CASES[name](form == "bad"), count()) for form in ("bad", "fixed")}
        trials: dict[str, list[float]] = {form: [] for form in forms}
        for _ in range(TRIALS):
            for form, (step, numbers) in forms.items():
                time.sleep(REST_S)
                run(step, WARM_UP, numbers)
                trials[form].append(round(run(step, STEPS, numbers), 4))
        del forms, step
        torch.cuda.empty_cache()
        if RANK == 0:
            print(name, trials, file=sys.stderr, flush=True)
            keep({name: trials}, Path(folder))


def main(case: str, *words: str) -> None:
    joined()
    torch.set_float32_matmul_precision("high")
    if case == "--time":
        time_cases(*words)
    else:
        step = CASES[case](words[:1] != ("fixed",))
        for number in range(WARM_UP + STEPS):
            step(number)
        torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
