"""Jobs of any number of ranks, annotated by nothing but what libraries do.

`torchrun --nproc-per-node 4 tests/gpu/jobs.py CASE` runs one for a profiler, `... CASE fixed` its form without the
fault. `... --time FOLDER CASE...` measures both forms without a profiler, into its times.json. `... --trace FOLDER
CASE...` records the faulty forms with torch.profiler, a trace per rank. `... --rates FILE` measures collectives as
nccl-tests does. Without GPUs, all is small and runs on the CPU. If JOBS_LOCK names a file, jobs that start at the same
time use the GPUs one after another.
"""

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile

from tests.planted.store import keep

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
HAS_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if HAS_GPU else torch.device("cpu")
WIDTH, HEAD, LAYERS, TOKENS = (2048, 64, 8, 1024) if HAS_GPU else (64, 16, 2, 16)
STEPS, WARM_UP, TRIALS = (12, 4, 3) if HAS_GPU else (3, 2, 2)
# between trials: GPUs that were busy for seconds are slowed down by their power limit, or that of their machine
REST_S = 0.5 if HAS_GPU else 0.0
RATES_MIB = (64, 256, 1024, 4096) if HAS_GPU else (1,)

Step = Callable[[int], None]


class Block(torch.nn.Module):
    """A layer of a transformer; its products have names by which tensor parallelism finds them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.q, self.k, self.v = (torch.nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = torch.nn.Linear(width, width, bias=False)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        y = self.norm1(x)
        # a rank of a tensor-parallel group has some of the heads
        q, k, v = (part(y).unflatten(-1, (-1, HEAD)).transpose(1, 2) for part in (self.q, self.k, self.v))
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


def transformer(width: int = WIDTH, layers: int = LAYERS) -> Any:
    torch.manual_seed(0)
    with DEVICE:
        return torch.nn.Sequential(*(Block(width) for _ in range(layers)))


def batch_of(rows: int, tokens: int = TOKENS, width: int = WIDTH) -> Any:
    return torch.randn(rows, tokens, width, device=DEVICE)


def adam(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def autocast() -> Any:
    return torch.autocast(DEVICE.type, torch.bfloat16)


def update(model: Any, optimizer: Any, batch: Any) -> None:
    with autocast():
        loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def data_parallel(rows: int, *, prepares: Callable[[], None] | None = None) -> Step:
    """Return a step of DistributedDataParallel; `prepares` is what this rank does on the CPU before each."""
    model = DistributedDataParallel(transformer(), gradient_as_bucket_view=True)
    optimizer, batch = adam(model), batch_of(rows)

    def step(_: int) -> None:
        if prepares:
            prepares()
        update(model, optimizer, batch)

    return step


def augment() -> None:
    """Augment images on the CPU, as a rank does that has no cache of them."""
    images = np.random.default_rng(0).random((64, 3, 224, 224) if HAS_GPU else (2, 3, 32, 32), dtype=np.float32)
    (images[:, :, ::-1] - images.mean()).clip(0, 1)


def one_rank_augments(bad: bool) -> Step:
    return data_parallel(6, prepares=augment if bad and RANK == WORLD - 1 else None)


def one_rank_has_more(bad: bool) -> Step:
    """One rank gets twice as many rows; the fixed form deals the same number of them out evenly."""
    fair = 8
    few, many = fair - 2, fair - 2 + 2 * WORLD
    return data_parallel((many if RANK == WORLD // 2 else few) if bad else fair)


def lengths_differ(bad: bool) -> Step:
    """Sequences of random lengths; the fixed form gives all ranks the same length in each step."""
    model = DistributedDataParallel(transformer())
    optimizer = adam(model)
    parts = torch.randint(1, 9, (64, WORLD), generator=torch.Generator().manual_seed(1))
    if not bad:
        # long and short ones come in turn, as from a sampler that groups by length and shuffles the groups
        parts = (
            parts.flatten()
            .sort()
            .values.view(64, WORLD)[torch.randperm(64, generator=torch.Generator().manual_seed(2))]
        )
    batches = [batch_of(8, TOKENS * part // 4) for part in range(1, 9)]

    def step(number: int) -> None:
        batch = batches[parts[number % 64, RANK] - 1]
        update(model, optimizer, batch)

    return step


def reduced_after_backward(bad: bool) -> Step:
    """Gradients are averaged after the backward pass, in one tensor; the fixed form is DistributedDataParallel."""
    if not bad:
        return data_parallel(2)
    model = transformer()
    optimizer, batch = adam(model), batch_of(2)

    def average() -> None:
        gradients = [parameter.grad for parameter in model.parameters()]
        flat = torch._utils._flatten_dense_tensors(gradients)
        dist.all_reduce(flat)
        flat /= WORLD
        for gradient, part in zip(gradients, torch._utils._unflatten_dense_tensors(flat, gradients), strict=True):
            gradient.copy_(part)

    def step(_: int) -> None:
        with autocast():
            loss = model(batch).square().mean()
        loss.backward()
        average()
        optimizer.step()
        optimizer.zero_grad()

    return step


def accumulated(bad: bool) -> Step:
    """Four small batches a step, whose gradients are reduced each time; the fixed form reduces them once."""
    model = DistributedDataParallel(transformer())
    optimizer, batches = adam(model), [batch_of(4) for _ in range(4)]

    def step(_: int) -> None:
        for number, batch in enumerate(batches):
            with nullcontext() if bad or number == 3 else model.no_sync():
                with autocast():
                    loss = model(batch).square().mean() / 4
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def sharded(rows: int, *, by_layer: bool = True, gathers_again: bool = True, logs: bool = False) -> Step:
    """Return a step of FSDP.

    by_layer: a layer's parameters are gathered while the one before runs, not all of them before the first.
    gathers_again: parameters are gathered for the backward pass, too. logs: the norm of each layer's result goes to the
    host.
    """
    width = 2 * WIDTH
    model = transformer(width, LAYERS // 2)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for layer in model if by_layer else ():
        fully_shard(layer, mp_policy=policy, reshard_after_forward=gathers_again)
    fully_shard(model, mp_policy=policy)
    optimizer, batch = adam(model), batch_of(rows, width=width)
    norms: list[float] = []
    for layer in model if logs else ():
        layer.register_forward_hook(lambda _module, _inputs, result: norms.append(result.detach().norm().item()))

    def step(_: int) -> None:
        model(batch).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def tensor_and_data_parallel(bad: bool) -> Step:
    """Pairs of ranks share each layer, and the second pair gets twice as many rows as the first."""
    mesh = init_device_mesh(DEVICE.type, (WORLD // 2, 2), mesh_dim_names=("data", "tensor"))
    model = transformer()
    columns = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    for layer in model:
        parallelize_module(layer, mesh["tensor"], {**columns, "out": RowwiseParallel(), "down": RowwiseParallel()})
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    optimizer = adam(model)
    batch = batch_of((40 if mesh.get_local_rank("data") else 20) if bad else 30)

    def step(_: int) -> None:
        update(model, optimizer, batch)

    return step


def pipeline(layers: list[int], microbatches: int, schedule: Any) -> Step:
    """Return a step of a pipeline whose stages have these numbers of layers."""
    stage = PipelineStage(transformer(layers=layers[RANK]), RANK, WORLD, DEVICE)
    optimizer, rows = adam(stage.submod), 32
    runs = schedule(stage, microbatches, loss_fn=lambda output, target: (output - target).square().mean())
    inputs = (batch_of(rows),) if RANK == 0 else ()
    target = {"target": batch_of(rows)} if RANK == WORLD - 1 else {}

    def step(_: int) -> None:
        with autocast():
            runs.step(*inputs, **target)
        optimizer.step()
        optimizer.zero_grad()

    return step


def uneven_stages(bad: bool) -> Step:
    """The last but one stage has three times as many layers as the others; the fixed form has as many in each."""
    few = LAYERS // 4 or 1
    layers = [few] * WORLD
    if bad:
        layers[-2] *= 3
    else:
        layers = [few * (WORLD + 2) // WORLD] * WORLD
    return pipeline(layers, 8, Schedule1F1B)


def few_microbatches(bad: bool) -> Step:
    return pipeline([LAYERS // 4 or 1] * WORLD, WORLD if bad else 4 * WORLD, ScheduleGPipe)


class Exchange(torch.autograd.Function):
    """Sends rows to all ranks, and their gradients back, as libraries of experts do."""

    @staticmethod
    def forward(context: Any, rows: Any, given: list[int], got: list[int]) -> Any:
        context.sizes = given, got
        result = rows.new_empty(sum(got), rows.shape[1])
        dist.all_to_all_single(result, rows.contiguous(), got, given)
        return result

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        given, got = context.sizes
        return Exchange.apply(gradients[0], got, given), None, None


class Experts(torch.nn.Module):
    """A layer with an expert per rank. The router prefers the last expert by `bias`."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.router = torch.nn.Linear(WIDTH, WORLD, bias=False)
        self.expert = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )
        self.register_buffer("bias", torch.tensor([0.0] * (WORLD - 1) + [bias]))

    def forward(self, x: Any) -> Any:
        rows = x.flatten(0, 1)
        chosen = (self.router(rows) + self.bias).softmax(-1)
        weight, expert = chosen.max(-1)
        order = expert.argsort()
        given = expert.bincount(minlength=WORLD)
        got = torch.empty_like(given)
        dist.all_to_all_single(got, given)
        sizes = torch.stack([given, got]).tolist()
        result = Exchange.apply(self.expert(Exchange.apply(rows[order], *sizes)), *sizes[::-1])
        return x + torch.zeros_like(rows).index_copy(0, order, result.to(rows.dtype)).mul(weight[:, None]).view_as(x)


def uneven_experts(bad: bool) -> Step:
    torch.manual_seed(RANK)
    with DEVICE:
        model = torch.nn.Sequential(*(Experts(2.0 if bad else 0.0) for _ in range(4)))
    optimizer, batch = adam(model), batch_of(16)

    def step(_: int) -> None:
        update(model, optimizer, batch)

    return step


@dataclass(frozen=True)
class Job:
    """A program: gets whether to be bad and returns a function that does one step, given its number."""

    make: Callable[[bool], Step]
    is_healthy: bool = False


JOBS = {
    "ddp": Job(lambda _: data_parallel(8), is_healthy=True),
    "fsdp": Job(lambda _: sharded(8), is_healthy=True),
    "one_rank_augments": Job(one_rank_augments),
    "one_rank_has_more": Job(one_rank_has_more),
    "lengths_differ": Job(lengths_differ),
    "reduced_after_backward": Job(reduced_after_backward),
    "accumulated": Job(accumulated),
    "fsdp_whole": Job(lambda bad: sharded(2, by_layer=not bad, gathers_again=False)),
    "fsdp_logs": Job(lambda bad: sharded(2, logs=bad)),
    "tensor_and_data": Job(tensor_and_data_parallel),
    "uneven_stages": Job(uneven_stages),
    "few_microbatches": Job(few_microbatches),
    "uneven_experts": Job(uneven_experts),
}


def run(step: Step, steps: int, first: int = 0) -> float:
    """Return the milliseconds that a step took."""
    together()
    started = time.perf_counter()
    for number in range(first, first + steps):
        step(number)
    together()
    return (time.perf_counter() - started) / steps * 1e3


def together() -> None:
    for _ in range(2):
        if HAS_GPU:
            torch.cuda.synchronize()
        dist.barrier()


def time_jobs(folder: str, *names: str) -> None:
    """Write the milliseconds of a step in each trial of both forms, which take turns."""
    for name in names:
        job = JOBS[name]
        forms = {form: job.make(form == "bad") for form in (("bad",) if job.is_healthy else ("bad", "fixed"))}
        trials: dict[str, list[float]] = {form: [] for form in forms}
        for _ in range(TRIALS):
            for form, step in forms.items():
                time.sleep(REST_S)
                run(step, WARM_UP)
                trials[form].append(round(run(step, STEPS, WARM_UP), 4))
        del forms, step
        if HAS_GPU:
            torch.cuda.empty_cache()
        if RANK == 0:
            print(name, trials, file=sys.stderr, flush=True)
            keep({name: trials}, Path(folder))


def trace_jobs(folder: str, *names: str) -> None:
    """Write a trace of torch.profiler per rank, NAME.RANK.json.gz, of some steps after the warm-up."""
    for name in names:
        step = JOBS[name].make(True)
        run(step, WARM_UP)
        with profile(record_shapes=True) as profiler:
            run(step, 5, WARM_UP)
        profiler.export_chrome_trace(f"{folder}/{name}.{RANK}.json.gz")
        del step
        if HAS_GPU:
            torch.cuda.empty_cache()


def rates(target: str) -> None:
    """Write the bus bandwidth of collectives in GB/s, as nccl-tests defines and measures it: the mean of many calls."""
    shares = {
        "all_reduce": (2 * (WORLD - 1) / WORLD, lambda full, _: dist.all_reduce(full)),
        "all_gather": ((WORLD - 1) / WORLD, dist.all_gather_into_tensor),
        "reduce_scatter": ((WORLD - 1) / WORLD, lambda full, part: dist.reduce_scatter_tensor(part, full)),
        "all_to_all": ((WORLD - 1) / WORLD, lambda full, _: dist.all_to_all_single(torch.empty_like(full), full)),
    }
    rates_by_size: dict[str, dict[int, float]] = {name: {} for name in shares}
    for name, (share, collective) in shares.items():
        for mib in RATES_MIB:
            full = torch.ones(mib * 2**18, device=DEVICE)
            part = full[: len(full) // WORLD].clone()
            rates_by_size[name][mib] = round(mib * 2**20 * share / mean_ms(partial(collective, full, part)) / 1e6, 2)
    if RANK == 0:
        Path(target).write_text(json.dumps(rates_by_size))


@contextmanager
def turn() -> Iterator[None]:
    """Wait until no other job uses the GPUs; the other ranks wait for the first in their first collective."""
    if RANK or "JOBS_LOCK" not in os.environ:
        yield
        return
    with Path(os.environ["JOBS_LOCK"]).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def mean_ms(call: Callable[[], Any], calls: int = 20) -> float:
    """Return the milliseconds of a call on the GPU, on average over many; on the CPU, as the clock says."""
    run(lambda _: call(), 5)
    if not HAS_GPU:
        return run(lambda _: call(), calls)
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    for _ in range(calls):
        call()
    ended.record()
    together()
    return float(begun.elapsed_time(ended)) / calls


def main(case: str, *words: str) -> None:
    with turn():
        run_all(case, *words)


def run_all(case: str, *words: str) -> None:
    if HAS_GPU:
        torch.cuda.set_device(DEVICE)
        dist.init_process_group("nccl", device_id=DEVICE)
    else:
        dist.init_process_group("gloo")
    if case == "--time":
        time_jobs(*words)
    elif case == "--trace":
        trace_jobs(*words)
    elif case == "--rates":
        rates(*words)
    else:
        step = JOBS[case].make(words[:1] != ("fixed",))
        for number in range(int(words[1]) if len(words) > 1 else WARM_UP + STEPS):
            step(number)
        together()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
