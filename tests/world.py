"""Jobs of made-up ranks whose story is known: how long each computes in each step before all meet in a collective.

Or what each computes, sends, receives and calls, one after the other: `played`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.intervals import Ints
from nightsight.job.facts import RankCapture
from nightsight.model.report import Environment, Profile
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
) -> list[RankCapture]:
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
            source = pd.DataFrame({"process": [1], "rank": [rank], "world_size": [ranks], "source": "torch.profiler"})
            profile = Profile({**profile.tables, "ranks": conform("ranks", source)}, environment=profile.environment)
        parts.append(RankCapture(f"train_rank{rank}", profile))
    return parts


def begun_late(part: RankCapture, late_ns: int) -> RankCapture:
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
    on_stream = {"process": 1, "device": 0, "context": 1, "stream": 7, "correlation": number}
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
    return _profile(tables)


def _profile(tables: Mapping[str, pd.DataFrame]) -> Profile:
    conformed = {name: conform(name, table) for name, table in tables.items()}
    return Profile(conformed, environment=Environment(collector="torch.profiler", gpu="NVIDIA H100 80GB HBM3"))


# -- ranks that send and receive --------------------------------------------------------------------------------------

PAIRS: Final = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
LAUNCH_NS: Final = 10_000
HOP_NS: Final = 1_000


@dataclass(frozen=True)
class Op:
    """What a rank does: computes for a time in ns; or sends to ranks and receives from some, in one kernel; or meets.

    meets: the communicator in which all of its ranks meet. gives, gets: bytes of each message or of the collective.
    name: of the collective, as PyTorch calls it.
    """

    work: int = 0
    to: tuple[int, ...] = ()
    of: tuple[int, ...] = ()
    meets: str = ""
    gives: int = BYTES
    gets: int = BYTES
    name: str = "allreduce"
    stream: int = 7


Program = Sequence[Op]
"""The operations of a step."""
_KERNELS: Final = {"allreduce": NCCL, "all_to_all": PAIRS}


def timed(programs: Sequence[Sequence[Program]], *, is_eager: bool = False) -> list[list[list[tuple[int, int]]]]:
    """Return when each operation of each step of each rank begins and ends, in ns.

    A message takes TRANSFER_NS from when both sides are there; so long from the sender alone if it `is_eager`.
    """
    flat = [[op for step in steps for op in step] for steps in programs]
    keys = [_meetings(rank, ops, flat, is_eager=is_eager) for rank, ops in enumerate(flat)]
    begun: list[list[int]] = [[] for _ in flat]
    ended: list[list[int]] = [[] for _ in flat]
    starts: dict[Meeting, int] = {}
    moved = True
    while moved:
        moved = False
        for rank, ops in enumerate(flat):
            while (place := len(ended[rank])) < len(ops):
                sides, others = keys[rank][place]
                if len(begun[rank]) == place:
                    begun[rank].append((ended[rank][-1] if place else 1_000_000) + HOP_NS)
                    starts |= dict.fromkeys(sides, begun[rank][place])
                    moved = True
                if any(other not in starts for other in others):
                    break
                last = max([begun[rank][place], *(starts[other] for other in others)])
                ended[rank].append(last + (ops[place].work or TRANSFER_NS))
                moved = True
    assert all(len(ends) == len(ops) for ends, ops in zip(ended, flat, strict=True)), "they wait for each other forever"
    spans = []
    for steps, begins, ends in zip(programs, begun, ended, strict=True):
        times = iter(zip(begins, ends, strict=True))
        spans.append([[next(times) for _ in step] for step in steps])
    return spans


Meeting = tuple[str, int, int, int]
"""One side of a message, or of a collective: which, between whom, and its number."""


def _meetings(
    rank: int, ops: Sequence[Op], every: Sequence[Sequence[Op]], *, is_eager: bool
) -> list[tuple[list[Meeting], list[Meeting]]]:
    """Return for each operation which sides it is of what meets, and which other sides it waits for."""
    counts, meetings = Counter[tuple[str, int, int]](), []
    for op in ops:
        sends = [("send", rank, to) for to in op.to]
        gets = [("recv", of, rank) for of in op.of]
        sides = [(*side, counts[side]) for side in [*sends, *gets, *[(op.meets, rank, rank)] * bool(op.meets)]]
        others = [("send", of, rank, counts["recv", of, rank]) for of in op.of]
        if not is_eager:
            others += [("recv", rank, to, counts["send", rank, to]) for to in op.to]
        if op.meets:
            members = [other for other, theirs in enumerate(every) if any(one.meets == op.meets for one in theirs)]
            others += [(op.meets, other, other, counts[op.meets, rank, rank]) for other in members]
        counts.update((name, one, other) for name, one, other, _ in sides)
        meetings.append((sides, others))
    return meetings


def played(
    programs: Sequence[Sequence[Program]], *, is_eager: bool = False, tells_calls: bool = True, group: str = "7"
) -> list[RankCapture]:
    """Return the capture of each rank that carries out a program in each step."""
    parts = []
    for rank, (steps, times) in enumerate(zip(programs, timed(programs, is_eager=is_eager), strict=True)):
        spans = np.array([span for step in times for span in step])
        ops = [op for step in steps for op in step]
        # the CPU is ahead
        called = 1_000_000 - LAUNCH_NS + LAUNCH_NS * np.arange(len(ops))
        firsts = np.cumsum([0, *(len(step) for step in steps)])
        on_thread = {"process": 1, "thread": 11, "pid": 1, "tid": 11}
        shape = dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), 1)
        on_stream = {"process": 1, "device": 0, "context": 1, "correlation": np.arange(len(ops))}
        on_stream["stream"] = np.array([op.stream for op in ops])
        name = ["work(float*)" if op.work else _KERNELS[op.name] if op.meets else PAIRS for op in ops]
        kernels = {"start_ns": spans[:, 0], "end_ns": spans[:, 1], **on_stream, **shape, "name": name}
        calls = {"start_ns": called, "end_ns": called + 1_000, **on_thread, "correlation": np.arange(len(ops))}
        begin, end = called[firsts[:-1]], called[firsts[1:] - 1]
        ranges = {"start_ns": begin - 1_000, "end_ns": end + 5_000, **on_thread, "name": "step"}
        messages: list[tuple[Any, ...]] = []
        for op, time in zip(ops, called.tolist(), strict=True):
            pairs = [("send", peer, op.gives, 0) for peer in op.to] + [("recv", peer, 0, op.gets) for peer in op.of]
            for number, (word, peer, gives, gets) in enumerate(pairs):
                # several are told one after the other, before they are launched together
                at = (time - 200, time + 1_200) if len(pairs) == 1 else (time - 900 + 100 * number,) * 2
                messages.append((*at, word, gives, gets, group, len(programs), rank, peer))
            if op.meets:
                messages.append((time - 200, time + 1_200, op.name, op.gives, op.gets, op.meets, None, None, None))
        columns = ["start_ns", "end_ns", "name", "bytes", "received_bytes", "group", "group_size", "rank", "peer"]
        tables = {
            "kernels": pd.DataFrame(kernels).assign(short_name=name),
            "memory_ops": pd.DataFrame(columns=list(kernels)).assign(operation="", source_kind="", target_kind=""),
            "api_calls": pd.DataFrame(calls).assign(name="cudaLaunchKernel", layer="runtime"),
            "ranges": pd.DataFrame(ranges).assign(domain="", style=START_END, is_open=False),
            "devices": pd.DataFrame({"device": [0], "name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"}),
            "ranks": pd.DataFrame(
                {"process": [1], "rank": [rank], "world_size": [len(programs)], "source": "torch.profiler"}
            ),
        }
        if tells_calls:
            tables["collectives"] = pd.DataFrame(messages, columns=columns).assign(**on_thread)
        parts.append(RankCapture(f"train_rank{rank}", _profile(tables)))
    return parts


def all_then_all(stages: Sequence[tuple[int, int]], microbatches: int, *, rest: int = 0) -> list[Program]:
    """Return a step of a pipeline: all microbatches forward, then all backward, then `rest` on each rank.

    stages: how long each computes forward and backward for a microbatch, in ns.
    """
    programs: list[Program] = []
    for stage, (forward, backward) in enumerate(stages):
        before, after = ((stage - 1,) if stage else ()), ((stage + 1,) if stage + 1 < len(stages) else ())
        ops: list[Op] = []
        for source, target, work in ((before, after, forward), (after, before, backward)):
            for _ in range(microbatches):
                ops += [Op(of=source)] * bool(source) + [Op(work=work)] + [Op(to=target)] * bool(target)
        programs.append([*ops, *[Op(work=rest)] * bool(rest)])
    return programs


def in_turns(stages: Sequence[tuple[int, int]], microbatches: int) -> list[Program]:
    """Return a step of a pipeline that begins the backward pass of a microbatch as soon as it can (1F1B).

    What goes to a neighbor, and what comes from it, is one kernel.
    """
    programs: list[Program] = []
    for stage, (forward, backward) in enumerate(stages):
        before, after = ((stage - 1,) if stage else ()), ((stage + 1,) if stage + 1 < len(stages) else ())
        ahead = min(len(stages) - stage - 1, microbatches)
        ops: list[Op] = []

        def exchange(to: tuple[int, ...], of: tuple[int, ...], ops: list[Op] = ops) -> None:
            if to or of:
                ops.append(Op(to=to, of=of))

        for _ in range(ahead):
            exchange((), before)
            ops.append(Op(work=forward))
            exchange(after, ())
        if microbatches > ahead:
            exchange((), before)
        for number in range(microbatches - ahead):
            ops.append(Op(work=forward))
            exchange(after, after)
            ops.append(Op(work=backward))
            exchange(before, before if number + 1 < microbatches - ahead else ())
        for _ in range(ahead):
            exchange((), after)
            ops.append(Op(work=backward))
            exchange(before, ())
        programs.append(ops)
    return programs
