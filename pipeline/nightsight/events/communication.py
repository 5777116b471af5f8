"""Which kernels communicate, for which call, and which of several GPUs are one collective.

Ranks call the collectives of a communicator in the same order, so that the same number in it is the same collective.
Where the capture does not tell the communicator, kernels of one name are matched by their order, or, where ranks have
different numbers of them, those that overlap.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.kernel_names import communicates
from nightsight.events.timeline import Timeline, by_device, of_capture, operation_column, positions
from nightsight.intervals import Flags, Ints, Spans, shared, union
from nightsight.tables import NULLABLE, empty, innermost_of

PAIRWISE: Final = ("send", "recv", "send and recv")
"""What two ranks of a communicator do, whatever the others do."""
# PyTorch's name for what a kernel of NCCL does
_OF_KERNELS: Final = {
    "allreduce": "allreduce",
    "allgather": "allgather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "alltoall": "all_to_all",
    "sendrecv": "send and recv",
    "reduce": "reduce",
}
_KERNEL: Final = re.compile(rf"nccl\w*?kernel\w*?_({'|'.join(_OF_KERNELS)})", re.IGNORECASE)
# a rank may have been recorded from a later collective on: how many later ones to try
_MOST_SHIFTED: Final = 2_000
_AROUND: Final = 3
# calls of a group launch their kernel together, at most this long after
_MOST_GROUPED_NS: Final = 1_000_000
ONE_CLOCK_NS: Final = 50_000
"""Clocks that differ by less are one."""


@of_capture
def communication(timeline: Timeline) -> pd.DataFrame:
    """Return one row per kernel that communicates, by device and the order of their calls.

    Columns: operation (position in Timeline.operations), device, process, start_ns and end_ns on the GPU, called_ns
    (when the CPU launched it, else its start), group (the communicator, "" if unknown), name ("allreduce"), bytes (what
    the rank gives, missing if unknown), group_size, collective (equal for what several devices take part in, -1 for
    what has no partner).
    """
    operations = timeline.operations
    row = np.flatnonzero(communicating(timeline))
    device, start, end, call = (
        values[row] for values in (operations.device, operations.start, operations.end, operations.call)
    )
    names = timeline.profile.table("kernels")["name"].cat if len(row) else None
    known = np.array([_named(name) for name in names.categories] if names is not None else [], dtype=object)
    found = pd.DataFrame(
        {
            "operation": row,
            "device": device,
            "process": operation_column(timeline, "process")[row] if len(row) else row,
            "start_ns": start,
            "end_ns": end,
            "called_ns": np.where(call >= 0, np.append(_call_starts(timeline), 0)[call], start),
            "group": "",
            "name": known[np.asarray(names.codes, dtype=np.int64)[row]] if names is not None else known,
            "bytes": pd.array([None] * len(row), dtype=NULLABLE),
            "group_size": pd.array([None] * len(row), dtype=NULLABLE),
        }
    )
    found = _with_calls(timeline, found, call)
    found = found.sort_values(["device", "called_ns", "start_ns"], kind="stable", ignore_index=True)
    found["collective"] = matched(found)
    return found


def of_all_ranks(timeline: Timeline) -> pd.DataFrame:
    """Return `communication` of all ranks of the job, even where the capture has the events of only some of them."""
    job = timeline.profile.job
    return communication(timeline) if job is None else job.communication


@of_capture
def collective_of_operations(timeline: Timeline) -> Ints:
    """Return for each operation its `collective` in `of_all_ranks`; -1 for what has none."""
    own, collective = communication(timeline), np.full(len(timeline.operations.kind), -1, dtype=np.int64)
    every = of_all_ranks(timeline)
    # of the devices at hand, they are the same rows in the same order
    here = every if len(every) == len(own) else every[every["device"].isin(own["device"].unique())]
    if np.array_equal(here["start_ns"], own["start_ns"]):
        collective[own["operation"].to_numpy()] = here["collective"].to_numpy()
    return collective


@of_capture
def work_beside(timeline: Timeline) -> Mapping[int, Spans]:
    """Return for each device that communicates when other work ran there meanwhile, merged; of all ranks, too."""
    if (job := timeline.profile.job) is not None:
        return job.beside
    operations, found, beside = timeline.operations, communication(timeline), {}
    is_other = ~communicating(timeline)
    for device, mine in positions(found["device"].to_numpy()).items():
        here = by_device(timeline)[device]
        busy = here[is_other[here]]
        spans = union(found["start_ns"].to_numpy()[mine], found["end_ns"].to_numpy()[mine])
        beside[device] = shared(union(operations.start[busy], operations.end[busy]), spans)
    return beside


@of_capture
def communicating(timeline: Timeline) -> Flags:
    """Return which operations are kernels that communicate."""
    flags = np.zeros(len(timeline.operations.kind), dtype=bool)
    kernels = timeline.profile.tables.get("kernels")
    if kernels is not None and len(kernels):
        names = kernels["name"].cat
        known = np.array([communicates(name) for name in names.categories], dtype=bool)
        flags[: len(kernels)] = known[names.codes]
    return flags


def pids(timeline: Timeline) -> Mapping[int, int]:
    """Return the number that the system gave to each process that called CUDA."""
    if (job := timeline.profile.job) is not None:
        return job.pids
    calls = timeline.profile.tables.get("api_calls")
    return {} if calls is None else dict(calls.drop_duplicates("process").set_index("process")["pid"])


def ranks_of(timeline: Timeline, device: Ints) -> Ints:
    """Return the rank that each device works for; the device's own number where the capture does not tell."""
    known = _ranks(timeline)
    return np.asarray(known.reindex(device).to_numpy(), dtype=np.int64) if len(known) else device


def stands_for(timeline: Timeline, device: Ints) -> Ints:
    """Return for how many ranks each device stands, itself among them."""
    if (job := timeline.profile.job) is None:
        return np.ones(len(device), dtype=np.int64)
    shown, count = np.unique(list(job.like.values()), return_counts=True)
    ranks = ranks_of(timeline, device)
    return np.where(np.isin(ranks, shown), count[np.searchsorted(shown, ranks).clip(max=len(shown) - 1)], 1)


def are_ranks_known(timeline: Timeline) -> bool:
    """Whether each device that communicates works for a rank of its own that the capture tells."""
    return len(_ranks(timeline)) > 0


def called_by_rank(timeline: Timeline, device: int) -> str:
    """Name a device after its rank, "Rank 3"; "GPU 3" where the capture does not tell."""
    known = _ranks(timeline)
    return f"Rank {known[device]}" if device in known.index else f"GPU {device}"


@of_capture
def _ranks(timeline: Timeline) -> "pd.Series[int]":
    """Return the rank of each device that communicates; empty unless each has one of its own."""
    used = of_all_ranks(timeline)[["device", "process"]].drop_duplicates()
    told = timeline.profile.tables.get("ranks", empty("ranks"))
    known = used.merge(told, on="process").set_index("device")["rank"].astype("int64")
    is_own = used["device"].is_unique and used["process"].is_unique and known.is_unique and len(known) == len(used)
    return known if is_own else known.iloc[:0]


def _named(name: str) -> str:
    found = _KERNEL.search(name)
    return _OF_KERNELS[found[1].lower()] if found else ""


def _call_starts(timeline: Timeline) -> Ints:
    calls = timeline.profile.tables.get("api_calls")
    return np.empty(0, dtype=np.int64) if calls is None else calls["start_ns"].to_numpy()


def _with_calls(timeline: Timeline, found: pd.DataFrame, call: Ints) -> pd.DataFrame:
    """Add what the program called for each kernel: the call around its launch, else those before it on the thread.

    Calls between ncclGroupStart and ncclGroupEnd launch one kernel at the end, so what they say is put together.
    """
    called = timeline.profile.tables.get("collectives")
    if called is None or not len(called) or not (call >= 0).any():
        return found
    threads = timeline.profile.table("api_calls")["thread"].to_numpy()
    thread = np.where(call >= 0, threads[call], -1)
    launched = found["called_ns"].to_numpy()
    of_kernel = np.where(call >= 0, innermost_of(called, thread, launched), -1)
    # a graph replays what was called when it was recorded
    can_follow = (of_kernel < 0) & ~timeline.operations.in_graph[found["operation"].to_numpy()]
    kernel = np.full(len(called), -1, dtype=np.int64)
    kernel[of_kernel[of_kernel >= 0]] = np.flatnonzero(of_kernel >= 0)
    by_thread = positions(thread[can_follow])
    waiting = np.flatnonzero(can_follow)
    ends = called["end_ns"].to_numpy()
    for key, mine in positions(called["thread"].to_numpy()).items():
        if key in by_thread:
            later = waiting[by_thread[key]]
            later = later[np.argsort(launched[later], kind="stable")]
            alone = mine[kernel[mine] < 0]
            following = np.append(later, -1)[np.searchsorted(launched[later], ends[alone])]
            kernel[alone] = np.where(launched[following] - ends[alone] < _MOST_GROUPED_NS, following, -1)
    texts = called.astype({"group": "str", "ranks": "str", "name": "str"})
    grouped = texts.assign(kernel=kernel)[kernel >= 0].groupby("kernel")
    told = pd.DataFrame(
        {
            # torch gives groups of other ranks the same name
            "group": (
                grouped["group"].first().astype("str") + " " + grouped["ranks"].first().astype("str")
            ).str.strip(),
            "names": grouped["name"].nunique(),
            "name": grouped["name"].first(),
            "bytes": grouped["bytes"].sum(min_count=1),
            "group_size": grouped["group_size"].first(),
        }
    )
    mine = told.index.to_numpy()
    found = found.astype({"group": object, "name": object})
    is_pairs = texts["name"].isin(PAIRWISE).groupby(kernel).all().reindex(mine)
    several = is_pairs.map({True: "send and recv", False: "several"})
    name = told["name"].where(told["names"] == 1, several).where(told["name"] != "", found["name"].iloc[mine])
    for column, values in (("group", told["group"]), ("name", name), ("bytes", told["bytes"])):
        found.loc[mine, column] = values.array
    found.loc[mine, "group_size"] = told["group_size"].array
    return found


def matched(found: pd.DataFrame) -> Ints:
    """Number what several devices take part in: by its place in a known communicator, else by name and time.

    Takes what `communication` returns; -1 for what has no partner.
    """
    collective = np.full(len(found), -1, dtype=np.int64)
    device = found["device"].to_numpy()
    if len(pd.unique(device)) < 2:
        return collective
    # where one device does not tell communicators, names must do for all
    tells = found.assign(told=found["group"] != "").groupby("device")["told"].any()
    group = found["group"] if tells.all() else pd.Series("", index=found.index)
    codes = pd.factorize((group + "\0" + found["name"].where(group == "", "")).to_numpy(dtype=object))[0]
    start, end, pairwise = (found[name].to_numpy() for name in ("start_ns", "end_ns", "name"))
    pairwise, is_known = np.isin(pairwise.astype(str), PAIRWISE), (group != "").to_numpy()
    for mine in positions(codes).values():
        ranks = sorted((mine[rows] for rows in positions(device[mine]).values()), key=len, reverse=True)
        if len(ranks) < 2:
            continue
        is_ordered = bool(is_known[mine[0]]) or _are_together(ranks, start, end)
        if is_ordered and not pairwise[mine].any():
            _by_place(collective, ranks, end)
        else:
            _by_time(collective, ranks, start, end)
    grouped = np.flatnonzero(collective >= 0)
    _, inverse, count = np.unique(collective[grouped], return_inverse=True, return_counts=True)
    collective[grouped[count[inverse] < 2]] = -1
    return collective


def _are_together(ranks: list[Ints], start: Ints, end: Ints) -> bool:
    """Whether as many kernels of each rank end nearly together, taken in their order."""
    first = ranks[0]
    length = np.median(end[first] - start[first])
    return all(len(rank) == len(first) and np.median(np.abs(end[rank] - end[first])) < length for rank in ranks[1:])


def _by_place(collective: Ints, ranks: list[Ints], end: Ints) -> None:
    """Match what ranks call in the same order; one that was recorded later, or not to the end, counts from there."""
    reference = ranks[0]
    collective[reference] = reference
    for rank in ranks[1:]:
        place = np.arange(len(rank)) + _offset(end[reference], end[rank])
        inside = (place >= 0) & (place < len(reference))
        collective[rank[inside]] = reference[place[inside]]


def _offset(many: Ints, few: Ints) -> int:
    """Return how many places after those of `few` the same ends are in `many`: they are near each other."""
    nearest = np.searchsorted((many[1:] + many[:-1]) // 2, few) - np.arange(len(few))
    around = int(np.median(nearest))
    ways = {}
    for offset in range(around - _AROUND, around + _AROUND + 1):
        place = np.arange(len(few)) + offset
        inside = (place >= 0) & (place < len(many))
        if inside.sum() >= len(few) / 2:
            ways[offset] = float(np.median(np.abs(many[place[inside]] - few[inside])))
    return min(ways, key=lambda offset: (ways[offset], abs(offset))) if ways else 0


def _by_time(collective: Ints, ranks: list[Ints], start: Ints, end: Ints) -> None:
    """Match what overlaps and ends nearly together."""
    reference = ranks[0][np.argsort(end[ranks[0]], kind="stable")]
    collective[reference] = reference
    middle = (end[reference][1:] + end[reference][:-1]) // 2
    for members in ranks[1:]:
        nearest = reference[np.searchsorted(middle, end[members])]
        overlaps = (start[members] < end[nearest]) & (start[nearest] < end[members])
        collective[members] = np.where(overlaps, nearest, -1)


def shift_between(reference: pd.DataFrame, other: pd.DataFrame) -> tuple[int, int] | None:
    """Return by how much the clock of `other` is behind that of `reference`, and how far single collectives are off.

    Both as `communication` returns; in ns. None if they have no collective in common: whatever ends
    on one rank ends on the other, so the ends tell.
    """
    is_told = all((frame["group"] != "").any() for frame in (reference, other))
    keys = ["group", "name"] if is_told else ["name"]
    ends: list[dict[Any, Ints]] = [{}, {}]
    for frame, of_frame in zip((reference, other), ends, strict=True):
        for (*key, _), times in frame[~frame["name"].isin(PAIRWISE)].groupby([*keys, "device"])["end_ns"]:
            # of several ranks of a capture one will do
            of_frame[tuple(key)] = max(
                of_frame.get(tuple(key), times.to_numpy()[:0]), np.sort(times.to_numpy()), key=len
            )
    common = [key for key in ends[0] if key in ends[1]]
    if not common:
        return None
    many, few = max(((ends[0][key], ends[1][key]) for key in common), key=lambda pair: min(map(len, pair)))
    # on one clock, ends are near each other as they are, and much nearer than one collective is to the next
    nearest = many[np.clip(np.searchsorted((many[1:] + many[:-1]) // 2, few), 0, len(many) - 1)]
    gap = float(np.median(np.diff(many))) if len(many) > 1 else np.inf
    if np.median(np.abs(nearest - few)) < min(ONE_CLOCK_NS, gap / 4):
        spread, shift = _spread(nearest - few)
        return shift, spread
    if len(many) == len(few) and (same := _spread(many - few))[0] < ONE_CLOCK_NS:
        return same[1], same[0]
    most = min(max(len(many), len(few)) - 1, _MOST_SHIFTED)
    ways = []
    for offset in sorted(range(-most, most + 1), key=abs):
        place = np.arange(len(few)) + offset
        inside = (place >= 0) & (place < len(many))
        if 2 * inside.sum() >= min(len(many), len(few)):
            ways.append(_spread(many[place[inside]] - few[inside]))
    spread, shift = min(ways, key=lambda way: way[0])
    return shift, spread


def _spread(apart: Ints) -> tuple[int, int]:
    """Return how far nine in ten differences are from their median, and that median."""
    middle = int(np.median(apart))
    return int(np.percentile(np.abs(apart - middle), 90)), middle
