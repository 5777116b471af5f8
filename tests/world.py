"""Jobs of made-up ranks whose story is known: how long each computes in each step before all meet in a collective."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from nightsight.intervals import Ints
from nightsight.job import Part
from nightsight.model import Environment, Profile
from nightsight.tables import START_END, conform

NCCL: Final = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
TRANSFER_NS: Final = 100_000
GAP_NS: Final = 5_000
BYTES: Final = 1 << 20


def world(
    work: Sequence[Sequence[int]],
    *,
    clocks: Sequence[int] | None = None,
    tells_ranks: bool = True,
    tells_calls: bool = True,
    group: str = "7",
) -> list[Part]:
    """Return the capture of each rank; `work[rank][step]` is its compute time in ns, `clocks` what its clock adds."""
    times = np.asarray(work, dtype=np.int64)
    ranks = len(times)
    # all begin a step when the collective before it has ended
    lengths = times.max(axis=0) + TRANSFER_NS + GAP_NS
    begin = 1_000_000 + np.append(0, np.cumsum(lengths)[:-1])
    added = np.zeros(ranks, dtype=np.int64) if clocks is None else np.asarray(clocks, dtype=np.int64)
    parts = []
    for rank in range(ranks):
        profile = _rank(begin + added[rank], times[rank], times.max(axis=0), group if tells_calls else "")
        if tells_ranks:
            told = pd.DataFrame({"process": [1], "rank": [rank], "world_size": [ranks], "source": "torch.profiler"})
            profile = Profile({**profile.tables, "ranks": conform("ranks", told)}, environment=profile.environment)
        parts.append(Part(f"train_rank{rank}", profile))
    return parts


def begun_late(part: Part, late_ns: int) -> Part:
    """Return a rank whose work begins, and so each of its steps, so much later, and ends when it did."""
    kernels = part.profile.table("kernels")
    is_work = (kernels["name"].astype("str") == "work(float*)").to_numpy()
    moved = kernels.assign(start_ns=kernels["start_ns"] + np.where(is_work, late_ns, 0))
    return replace(part, profile=replace(part.profile, tables={**part.profile.tables, "kernels": moved}))


def _rank(begin: Ints, work: Ints, longest: Ints, group: str) -> Profile:
    steps = len(begin)
    start = np.column_stack([begin, begin + work]).ravel()
    end = np.column_stack([begin + work, begin + longest + TRANSFER_NS]).ravel()
    number = np.arange(2 * steps)
    on_stream = {"process": 1, "device": 0, "gpu": 0, "context": 1, "stream": 7, "correlation": number}
    shape = dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), 1)
    name = np.tile(["work(float*)", NCCL], steps)
    kernels = {"start_ns": start, "end_ns": end, **on_stream, **shape, "name": name, "short_name": name}
    # the CPU is ahead: it launches all steps while the first one runs
    ahead = begin[0] - 10_000 + 20_000 * np.arange(steps)
    called = np.column_stack([ahead, ahead + 5_000]).ravel()
    on_thread = {"process": 1, "thread": 11, "pid": 1, "tid": 11}
    calls = {"start_ns": called, "end_ns": called + 1_000, **on_thread, "correlation": number, "layer": "runtime"}
    ranges = {"start_ns": ahead - 1_000, "end_ns": ahead + 15_000, **on_thread, "name": "step"}
    of_torch = {"start_ns": called[1::2] - 200, "end_ns": called[1::2] + 1_200, **on_thread, "name": "allreduce"}
    tables = {
        "kernels": pd.DataFrame(kernels),
        "memory_ops": pd.DataFrame(columns=list(kernels)).assign(operation="", source_kind="", target_kind=""),
        "api_calls": pd.DataFrame(calls).assign(name="cudaLaunchKernel"),
        "ranges": pd.DataFrame(ranges).assign(domain="", style=START_END, is_open=False),
        "devices": pd.DataFrame({"device": [0], "name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"}),
    }
    if group:
        tables["collectives"] = pd.DataFrame(of_torch).assign(bytes=BYTES, group=group, group_size=None, rank=None)
    conformed = {name: conform(name, table) for name, table in tables.items()}
    return Profile(conformed, environment=Environment(collector="torch.profiler", gpu="NVIDIA H100 80GB HBM3"))
