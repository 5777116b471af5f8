"""Finds kernels that communicate, the calls that requested them, and which kernels of several GPUs are one collective.

Ranks call the collectives of a communicator in the same order, so equal positions in that order mean the same
collective. If the capture does not identify the communicator, kernels with the same name are matched by their order,
or by overlap if ranks have different numbers of them. A rank receives messages in the order in which they were sent.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.kernel_names import communicates
from nightsight.events.timeline import Timeline, by_device, launch_times, of_capture, operation_column
from nightsight.intervals import NOTHING, Flags, Floats, Ints, Spans, shared, union
from nightsight.tables import NULLABLE, are_named, innermost_of, positions

PAIRWISE: Final = ("send", "recv", "send and recv")
"""Operations between two ranks of a communicator, independent of the other ranks."""
# PyTorch's name for the operation of an NCCL kernel
_KERNEL_OPERATIONS: Final = {
    "allreduce": "allreduce",
    "allgather": "allgather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "alltoall": "all_to_all",
    "sendrecv": "send and recv",
    "reduce": "reduce",
}
_KERNEL: Final = re.compile(rf"nccl\w*?kernel\w*?_({'|'.join(_KERNEL_OPERATIONS)})", re.IGNORECASE)
# the recording of a rank may start at a later collective: the largest offset to try
_MOST_SHIFTED: Final = 2_000
_NEAREST_OFFSETS: Final = 3
# the calls of a group launch one kernel, at most this long after the last call
_MOST_GROUPED_NS: Final = 1_000_000
_CALL_COLUMNS: Final = ("bytes", "received_bytes", "group_size", "place")
# the tolerance for ends of one collective, in ns and as a multiple of the usual one; how many to compare at most
_TOGETHER_NS: Final = 20_000
_LOOSE: Final = 4
_SAMPLED: Final = 64
# share of the longest stream that two captures have in common: shorter streams say nothing about clocks
_LEAST_COMMON: Final = 0.25
_MOST_PAIRS: Final = 16
_FEWEST_CERTAIN: Final = 32
# how close the ends of collectives are once clocks are aligned correctly, and how far apart clocks may be
_FITS_NS: Final = 200_000
_PLAUSIBLE_NS: Final = 1_000_000_000
# how many kernels that end at about the same time to compare on either side
_NEIGHBORS: Final = 4
# a rank that exchanges with this many others at once exchanges with all of them; in a pipeline there are two
_MANY_PEERS: Final = 3
ONE_CLOCK_NS: Final = 50_000
"""Clocks that differ by less count as one."""


@of_capture
def communication(timeline: Timeline) -> pd.DataFrame:
    """Return one row per kernel that communicates, by device and the order of their calls.

    Columns: operation (position in Timeline.operations), device, stream, process, start_ns and end_ns on the GPU,
    called_ns (when the CPU launched it, else its start), group (the communicator, "" if unknown), name, bytes and
    received_bytes (what the rank sends and receives, missing if unknown), group_size, place (of the rank in the group,
    missing if unknown), pairs (its sends and receives, in order, with peer and bytes: ">1:4096 <0:4096"; an unknown
    peer is left out), is_whole (whether all calls of the communicator up to this one were recorded), collective (equal
    for kernels of one collective, -1 for a kernel without a counterpart).
    """
    operations = timeline.operations
    row = np.flatnonzero(communicating(timeline))
    device, start, end, call = (
        values[row] for values in (operations.device, operations.start, operations.end, operations.call)
    )
    names = timeline.profile.table("kernels")["name"].cat if len(row) else None
    kinds = np.array([_collective_name(name) for name in names.categories] if names is not None else [], dtype=object)
    kernels = pd.DataFrame(
        {
            "operation": row,
            "device": device,
            "stream": operations.stream[row],
            "process": operation_column(timeline, "process")[row] if len(row) else row,
            "start_ns": start,
            "end_ns": end,
            "called_ns": launch_times(timeline)[row],
            "group": "",
            "name": kinds[np.asarray(names.codes, dtype=np.int64)[row]] if names is not None else kinds,
            **{name: pd.array([None] * len(row), dtype=NULLABLE) for name in _CALL_COLUMNS},
            "pairs": "",
            "is_whole": False,
        }
    )
    kernels = _add_calls(timeline, kernels, call)
    kernels = kernels.sort_values(["device", "called_ns", "start_ns"], kind="stable", ignore_index=True)
    kernels["collective"] = number_collectives(kernels)
    return kernels


def of_all_ranks(timeline: Timeline) -> pd.DataFrame:
    """Return `communication` of all ranks of the job, even if the capture has the events of only some of them."""
    job = timeline.profile.job
    return communication(timeline) if job is None else job.communication


def kinds_of_calls(kernels: pd.DataFrame) -> "pd.Series[str]":
    """Return a text per device with the distinct names and sizes of its calls: equal for ranks with the same role."""
    texts = kernels["name"].astype("str") + " " + kernels["bytes"].fillna(-1).astype("str")
    return texts.groupby(kernels["device"]).agg(lambda names: " ".join(sorted(set(names))))


@of_capture
def collective_of_operations(timeline: Timeline) -> Ints:
    """Return the `collective` of each operation in `of_all_ranks`; -1 if it has none."""
    own_ranks, collective = communication(timeline), np.full(len(timeline.operations.kind), -1, dtype=np.int64)
    all_ranks = of_all_ranks(timeline)
    # for the devices of this capture, both have the same rows in the same order
    own_rows = all_ranks
    if len(all_ranks) != len(own_ranks):
        own_rows = all_ranks[all_ranks["device"].isin(own_ranks["device"].unique())]
    if np.array_equal(own_rows["start_ns"], own_ranks["start_ns"]):
        collective[own_ranks["operation"].to_numpy()] = own_rows["collective"].to_numpy()
    return collective


@of_capture
def overlapping_work(timeline: Timeline) -> Mapping[int, Spans]:
    """Return, for each communicating device of all ranks, the merged spans in which other work ran at the same time."""
    if (job := timeline.profile.job) is not None:
        return job.overlapping_work
    operations, kernels, overlapping = timeline.operations, communication(timeline), {}
    is_other = ~communicating(timeline)
    for device, rows in positions(kernels["device"].to_numpy()).items():
        of_device = by_device(timeline)[device]
        busy = of_device[is_other[of_device]]
        spans = union(kernels["start_ns"].to_numpy()[rows], kernels["end_ns"].to_numpy()[rows])
        overlapping[device] = shared(union(operations.start[busy], operations.end[busy]), spans)
    return overlapping


@of_capture
def communicating(timeline: Timeline) -> Flags:
    """Return which operations are kernels that communicate."""
    flags = np.zeros(len(timeline.operations.kind), dtype=bool)
    of_kernels = are_named(timeline.profile.recorded("kernels")["name"], communicates)
    flags[: len(of_kernels)] = of_kernels
    return flags


def pids(timeline: Timeline) -> Mapping[int, int]:
    """Return the process ID of each process that called CUDA."""
    if (job := timeline.profile.job) is not None:
        return job.pids
    return dict(timeline.profile.recorded("api_calls").drop_duplicates("process").set_index("process")["pid"])


def ranks_of(timeline: Timeline, device: Ints) -> Ints:
    """Return the rank of each device, or the device number if the capture does not identify ranks."""
    ranks = _rank_by_device(timeline)
    return np.asarray(ranks.reindex(device).to_numpy(), dtype=np.int64) if len(ranks) else device


def ranks_represented(timeline: Timeline, device: Ints) -> Ints:
    """Return how many ranks each device represents, including its own."""
    if (job := timeline.profile.job) is None:
        return np.ones(len(device), dtype=np.int64)
    stand_ins, count = np.unique(list(job.like.values()), return_counts=True)
    ranks = ranks_of(timeline, device)
    return np.where(np.isin(ranks, stand_ins), count[np.searchsorted(stand_ins, ranks).clip(max=len(stand_ins) - 1)], 1)


def are_ranks_known(timeline: Timeline) -> bool:
    """Whether the capture gives each communicating device a distinct rank."""
    return len(_rank_by_device(timeline)) > 0


def called_by_rank(timeline: Timeline, device: int) -> str:
    """Return the label of a device: "Rank 3", or "GPU 3" if the capture does not identify ranks."""
    ranks = _rank_by_device(timeline)
    return f"Rank {ranks[device]}" if device in ranks.index else f"GPU {device}"


@of_capture
def _rank_by_device(timeline: Timeline) -> "pd.Series[int]":
    """Return the rank of each communicating device; empty unless all are different."""
    used = of_all_ranks(timeline)[["device", "process"]].drop_duplicates()
    ranks = timeline.profile.recorded("ranks")
    own_ranks = used.merge(ranks, on="process").set_index("device")["rank"].astype("int64")
    is_own = (
        used["device"].is_unique and used["process"].is_unique and own_ranks.is_unique and len(own_ranks) == len(used)
    )
    return own_ranks if is_own else own_ranks.iloc[:0]


def _collective_name(name: str) -> str:
    match = _KERNEL.search(name)
    return _KERNEL_OPERATIONS[match[1].lower()] if match else ""


def _add_calls(timeline: Timeline, kernels: pd.DataFrame, call: Ints) -> pd.DataFrame:
    """Add the program's call of each kernel: the call around its launch, else the calls before it on the thread.

    Calls between ncclGroupStart and ncclGroupEnd launch one kernel at the end, so their arguments are combined.
    """
    calls = timeline.profile.recorded("collectives")
    if not len(calls) or not (call >= 0).any():
        return kernels
    kernel = _kernels_of(timeline, calls, kernels, call)
    texts = calls.astype({"group": "str", "ranks": "str", "name": "str"})
    grouped = texts.assign(kernel=kernel)[kernel >= 0].groupby("kernel")
    facts = pd.DataFrame(
        {
            # torch gives the same name to groups of different ranks
            "group": (
                grouped["group"].first().astype("str") + " " + grouped["ranks"].first().astype("str")
            ).str.strip(),
            "names": grouped["name"].nunique(),
            "name": grouped["name"].first(),
            "bytes": grouped["bytes"].sum(min_count=1),
            "received_bytes": grouped["received_bytes"].sum(min_count=1),
            "group_size": grouped["group_size"].first(),
            "place": grouped["rank"].first(),
            "is_whole": grouped["is_whole"].first(),
        }
    )
    rows = facts.index.to_numpy()
    kernels = kernels.astype({"group": object, "name": object, "pairs": object})
    is_pairs = texts["name"].isin(PAIRWISE).groupby(kernel).all().reindex(rows)
    several = is_pairs.map({True: "send and recv", False: "several"})
    name = facts["name"].where(facts["names"] == 1, several).where(facts["name"] != "", kernels["name"].iloc[rows])
    pairs = _pair_texts(texts.assign(kernel=kernel)[kernel >= 0]).reindex(rows, fill_value="")
    # an all-to-all can also be requested as one send to and one receive from each rank
    is_all_to_all = is_pairs & (pairs == "")
    facts = facts.assign(name=name.mask(is_all_to_all, "all_to_all"), pairs=pairs)
    for column in ("group", "name", "pairs", "is_whole", *_CALL_COLUMNS):
        kernels.loc[rows, column] = facts[column].array
    return kernels


def _kernels_of(timeline: Timeline, calls: pd.DataFrame, kernels: pd.DataFrame, call: Ints) -> Ints:
    """Return the kernel of each call of a collective, a position in `kernels`; -1 if it launched none."""
    threads = timeline.profile.table("api_calls")["thread"].to_numpy()
    thread = np.where(call >= 0, threads[call], -1)
    launch_ns = kernels["called_ns"].to_numpy()
    of_kernel = np.where(call >= 0, innermost_of(calls, thread, launch_ns), -1)
    # a graph replays calls from the time when it was recorded
    can_follow = (of_kernel < 0) & ~timeline.operations.in_graph[kernels["operation"].to_numpy()]
    kernel = np.full(len(calls), -1, dtype=np.int64)
    kernel[of_kernel[of_kernel >= 0]] = np.flatnonzero(of_kernel >= 0)
    by_thread = positions(thread[can_follow])
    candidates = np.flatnonzero(can_follow)
    ends = calls["end_ns"].to_numpy()
    for key, rows in positions(calls["thread"].to_numpy()).items():
        if key in by_thread:
            later = candidates[by_thread[key]]
            later = later[np.argsort(launch_ns[later], kind="stable")]
            unmatched = rows[kernel[rows] < 0]
            following = np.append(later, -1)[np.searchsorted(launch_ns[later], ends[unmatched])]
            kernel[unmatched] = np.where(launch_ns[following] - ends[unmatched] < _MOST_GROUPED_NS, following, -1)
    return kernel


def _pair_texts(calls: pd.DataFrame) -> "pd.Series[str]":
    """Return the sends and receives of each kernel as text (see `communication`); "" of an all-to-all made of them."""
    pairwise = calls[calls["name"].isin(PAIRWISE)]
    facts = pairwise[["kernel", "name"]].assign(
        **{name: pairwise[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in ("peer", "rank", "group_size")}
    )
    peer_counts = facts[facts["peer"] != facts["rank"]].groupby(["kernel", "name"])["peer"].nunique()
    peers = peer_counts.groupby("kernel").agg(["min", "size"])
    size = facts.groupby("kernel")["group_size"].first().reindex(peers.index)
    # with two ranks, only messages that ranks send to themselves show an all-to-all
    self_messages = facts[facts["peer"] == facts["rank"]]["kernel"].unique()
    fewest_peers = (size - 1).where((size > 2) | peers.index.isin(self_messages))
    fewest_peers = fewest_peers.fillna(_MANY_PEERS).clip(upper=_MANY_PEERS)
    all_to_alls = peers.index[(peers["min"] >= fewest_peers) & (peers["size"] > 1)]
    is_send = (pairwise["name"] == "send").to_numpy()
    payload = pairwise["bytes"].where(is_send, pairwise["received_bytes"])
    peer, size_of = (
        values.astype("Int64").astype("str").replace("<NA>", "").astype("str") for values in (pairwise["peer"], payload)
    )
    sign = pd.Series(np.where(is_send, ">", "<"), index=pairwise.index, dtype="str")
    entries = sign + (peer + ":" + size_of)
    texts: pd.Series[str] = entries.groupby(pairwise["kernel"]).agg(" ".join)
    return texts.mask(texts.index.isin(all_to_alls), "")


def number_collectives(kernels: pd.DataFrame) -> Ints:
    """Number collectives by their position in a known communicator, else by name and time.

    Takes the rows of `communication`; -1 for a kernel without a counterpart. Sends and receives match if each of the
    two kernels waited longer for the other than for any third kernel.
    """
    collective = np.full(len(kernels), -1, dtype=np.int64)
    device = kernels["device"].to_numpy()
    if len(pd.unique(device)) < 2:
        return collective
    # if one device lacks communicators, all devices are matched by names
    has_groups = (kernels["group"] != "").groupby(kernels["device"]).any()
    group = kernels["group"] if has_groups.all() else pd.Series("", index=kernels.index)
    group_codes = pd.factorize((group + "\0" + kernels["name"].where(group == "", "")).to_numpy(dtype=object))[0]
    start, end, stream = (kernels[name].to_numpy() for name in ("start_ns", "end_ns", "stream"))
    pairwise, is_known = kernels["name"].isin(PAIRWISE).to_numpy(), (group != "").to_numpy()
    is_all_to_all = _is_all_to_all(kernels)
    for of_group in positions(group_codes).values():
        of_all_ranks = of_group[~pairwise[of_group] | is_all_to_all[of_group]]
        communicators = (
            [of_all_ranks]
            if is_known[of_group[0]]
            else _probable_communicators(of_all_ranks, device, stream, start, end)
        )
        for communicator in communicators:
            ranks = sorted(
                (communicator[rows] for rows in positions(device[communicator]).values()), key=len, reverse=True
            )
            if len(ranks) < 2:
                continue
            if is_known[of_group[0]] or _have_equal_ends(ranks, start, end):
                _number_by_place(collective, ranks, end, kernels["is_whole"].to_numpy())
            else:
                _number_by_time(collective, ranks, start, end)
    _number_pairs(collective, messages(kernels), start, end)
    return without_lone(collective)


def without_lone(collective: Ints) -> Ints:
    """Return the number of the collective of each operation, -1 where no other operation has the same number."""
    rows = np.flatnonzero(collective >= 0)
    _, inverse, count = np.unique(collective[rows], return_inverse=True, return_counts=True)
    collective[rows[count[inverse] < 2]] = -1
    return collective


def _unknown_pairs(kernels: pd.DataFrame) -> Flags:
    """Return which kernels send and receive without a call that names the peer and the size."""
    return np.asarray((kernels["pairs"] == "") & (kernels["name"] == "send and recv"), dtype=bool)


def _is_all_to_all(kernels: pd.DataFrame) -> Flags:
    """Return which of the unknown pairs belong to an all-to-all: if all of more than two devices end together."""
    is_unknown = _unknown_pairs(kernels)
    unknown = np.flatnonzero(is_unknown)
    start, end, device = (kernels[name].to_numpy() for name in ("start_ns", "end_ns", "device"))
    ranks = [unknown[rows] for rows in positions(device[unknown]).values()]
    return is_unknown & (len(ranks) > 2 and _have_equal_ends(ranks, start, end))


def _number_pairs(collective: Ints, exchanges: pd.DataFrame, start: Ints, end: Ints) -> None:
    """Number kernels that exchange messages and overlap, each with the one that it waited for the longest."""
    one, other = (
        np.concatenate([exchanges[name].to_numpy() for name in names]) for names in (("sent", "got"), ("got", "sent"))
    )
    meets = (start[one] < end[other]) & (start[other] < end[one])
    one, other = one[meets], other[meets]
    order = np.lexsort((-other, start[other], one))
    last = np.append(one[order][1:] != one[order][:-1], True)[: len(order)]
    partner = np.full(len(collective) + 1, -1, dtype=np.int64)
    partner[one[order][last]] = other[order][last]
    mutual = np.flatnonzero((partner >= 0) & (partner[partner] == np.arange(len(partner))))
    collective[mutual] = np.minimum(mutual, partner[mutual])


def messages(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return one row per message from one rank to another, from the rows of `communication`.

    sender, receiver: devices. sent, got: the kernels, positions in `kernels`. bytes: missing if unknown. is_directed:
    false if the capture has no sends and receives; then the device with the lower number counts as the sender.
    """
    pairs = kernels["pairs"].to_numpy(dtype=object)
    rows = np.flatnonzero(pairs != "")
    parts = [_match_undirected(kernels, np.flatnonzero(_unknown_pairs(kernels) & ~_is_all_to_all(kernels)))]
    if len(rows):
        parts.append(_match_directed(kernels, rows))
    matches = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    starts = kernels["start_ns"].to_numpy()
    return matches.iloc[np.argsort(starts[matches["sent"].to_numpy()], kind="stable")].reset_index(drop=True)


def _match_directed(kernels: pd.DataFrame, rows: Ints) -> pd.DataFrame:
    """Match the sends and receives of each pair of ranks in a communicator, in order."""
    entries = kernels["pairs"].iloc[rows].reset_index(drop=True).str.split(" ").explode()
    codes, texts = pd.factorize(entries.to_numpy(dtype=object))
    parsed = pd.Series(texts, dtype="str").str.extract(r"^([<>])(\d*):(\d*)$")
    peer, size = (pd.to_numeric(parsed[column], errors="coerce").to_numpy()[codes] for column in (1, 2))
    is_send, row = (parsed[0] == ">").to_numpy()[codes], rows[entries.index.to_numpy()]
    device, group = kernels["device"].to_numpy()[row], pd.factorize(kernels["group"].to_numpy(dtype=object))[0]
    other = _peers(kernels, group, row, peer)
    is_known = other >= 0
    sender, receiver = np.where(is_send, device, other), np.where(is_send, other, device)
    end, matches = kernels["end_ns"].to_numpy(), list[tuple[Ints, Ints]]()
    keys = pd.MultiIndex.from_arrays([group[row], sender, receiver]).factorize()[0]
    for of_pair in positions(np.where(is_known, keys, -1)).values():
        sends, gets = of_pair[is_known[of_pair] & is_send[of_pair]], of_pair[is_known[of_pair] & ~is_send[of_pair]]
        many, few = (sends, gets) if len(sends) >= len(gets) else (gets, sends)
        if len(few):
            # the recording of one of the two may have started later
            offset = _offset(end[row[many]], end[row[few]]) if len(many) > len(few) else 0
            pair = _shifted(many, few, offset)
            matches.append(pair if many is sends else pair[::-1])
    sends, gets = (
        (np.concatenate([NOTHING, *side]) for side in zip(*matches, strict=True)) if matches else (NOTHING,) * 2
    )
    sizes = pd.array(np.where(np.isnan(size[sends]), size[gets], size[sends]), dtype="Float64")
    return pd.DataFrame(
        {
            "sender": sender[sends],
            "receiver": receiver[sends],
            "sent": row[sends],
            "got": row[gets],
            "bytes": sizes.astype("Int64").astype(NULLABLE),
            "is_directed": True,
        }
    )


def _peers(kernels: pd.DataFrame, group: Ints, row: Ints, peer: Floats) -> Ints:
    """Return the device whose place in the group of each of these kernels is `peer`; -1 if unknown."""
    members = pd.DataFrame({"group": group, "device": kernels["device"].to_numpy()})
    members["place"] = kernels["place"].to_numpy(dtype=np.float64, na_value=np.nan)
    places = members.dropna().drop_duplicates(["group", "place"]).set_index(["group", "place"])["device"]
    other = places.reindex(pd.MultiIndex.from_arrays([group[row], peer])).to_numpy(dtype=np.float64)
    # a group of two has only one other member, unless that member is known not to have been recorded
    is_recorded = np.isin(group[row], places.index.get_level_values("group")) & ~np.isnan(peer)
    ends = members.groupby("group")["device"].agg(["min", "max", "nunique"]).reindex(group[row])
    device = kernels["device"].to_numpy()[row]
    only_other = np.where((ends["nunique"] == 2).to_numpy() & ~is_recorded, ends["min"] + ends["max"] - device, np.nan)
    other = np.where(np.isnan(other), only_other, other)
    return np.where(np.isnan(other) | (other == device), -1, other).astype(np.int64)


def _match_undirected(kernels: pd.DataFrame, rows: Ints) -> pd.DataFrame:
    """Match overlapping kernels of different devices that end nearly together, each closest to the other."""
    device, start, end = (kernels[name].to_numpy() for name in ("device", "start_ns", "end_ns"))
    order = rows[np.lexsort((device[rows], end[rows]))]
    places = np.arange(len(order))
    nearest, distance = np.full(len(order), -1, dtype=np.int64), np.full(len(order), np.iinfo(np.int64).max)
    for step in range(1, min(_NEIGHBORS, len(order) - 1) + 1):
        for first_places, second_places in ((places[:-step], places[step:]), (places[step:], places[:-step])):
            kernel, neighbor = order[first_places], order[second_places]
            difference = np.abs(end[neighbor] - end[kernel])
            better = (start[kernel] < end[neighbor]) & (start[neighbor] < end[kernel])
            better &= device[kernel] != device[neighbor]
            better &= difference < distance[first_places]
            distance[first_places] = np.where(better, difference, distance[first_places])
            nearest[first_places] = np.where(better, second_places, nearest[first_places])
    mutual = np.flatnonzero((nearest >= 0) & (np.append(nearest, -1)[nearest] == places))
    before, after = order[mutual], order[nearest[mutual]]
    first = device[before] < device[after]
    lower, higher = before[first], after[first]
    unknown = pd.array([None] * len(lower), dtype=NULLABLE)
    facts = {"sender": device[lower], "receiver": device[higher], "sent": lower, "got": higher, "bytes": unknown}
    return pd.DataFrame({**facts, "is_directed": False})


def _probable_communicators(kernels: Ints, device: Ints, stream: Ints, start: Ints, end: Ints) -> list[Ints]:
    """Group kernels of one name by their probable communicators, if the capture does not identify these.

    Each communicator has a stream on each of its devices. Streams of different devices whose kernels end together, one
    by one, belong to one communicator. Kernels that match no others form one group.
    """
    ids = pd.MultiIndex.from_arrays([device[kernels], stream[kernels]]).factorize()[0]
    streams = [kernels[rows] for rows in positions(ids).values()]
    device_of = np.array([device[number[0]] for number in streams])
    if len(pd.unique(device_of)) < 3:
        return [kernels]
    near = np.zeros((len(streams), len(streams)), dtype=bool)
    for rows in positions(np.array([len(number) for number in streams])).values():
        near[np.ix_(rows, rows)] = _end_together([streams[row] for row in rows.tolist()], device_of[rows], start, end)
    label = np.arange(len(streams))
    for number in range(len(streams)):
        # all lines near this one, directly or through others, become one communicator
        is_joined = np.isin(label, label[near[number]])
        label[is_joined] = label[is_joined].min(initial=len(streams))
    communicators, unmatched = list[Ints](), list[Ints]()
    for rows in positions(label).values():
        is_one = len(rows) > 1 and len(pd.unique(device_of[rows])) == len(rows)
        (communicators if is_one else unmatched).append(np.concatenate([streams[row] for row in rows.tolist()]))
    return [*communicators, *([np.sort(np.concatenate(unmatched))] if unmatched else [])]


def _end_together(streams: list[Ints], device: Ints, start: Ints, end: Ints) -> Flags:
    """Return which streams with equal numbers of kernels end together; each stream does so with itself."""
    sample = np.unique(np.linspace(0, len(streams[0]) - 1, _SAMPLED).astype(np.int64))
    ends = np.array([end[line[sample]] for line in streams])
    length = np.median(np.array([end[line[sample]] - start[line[sample]] for line in streams]), axis=1)
    distance = np.array([np.median(np.abs(ends - one), axis=1) for one in ends])
    distance[device[:, None] == device] = np.inf
    # clocks of different machines differ by a constant
    most = max(_TOGETHER_NS, _LOOSE * float(np.median(distance.min(axis=1, initial=np.inf))))
    near: Flags = (distance <= most) & (distance < np.minimum(length[:, None], length))
    return near | np.eye(len(streams), dtype=bool)


def _have_equal_ends(ranks: list[Ints], start: Ints, end: Ints) -> bool:
    """Whether all ranks have the same number of kernels, and these end nearly together, one by one."""
    first = ranks[0]
    length = np.median(end[first] - start[first])
    return all(len(rank) == len(first) and np.median(np.abs(end[rank] - end[first])) < length for rank in ranks[1:])


def _number_by_place(collective: Ints, ranks: list[Ints], end: Ints, is_whole: Flags) -> None:
    """Match collectives by their order on each rank; shift a rank whose recording starts later or ends early."""
    reference = ranks[0]
    collective[reference] = reference
    for rank in ranks[1:]:
        are_counted = is_whole[reference].all() and is_whole[rank].all()
        offset = 0 if are_counted else _offset(end[reference], end[rank])
        own_rows, rows = _shifted(reference, rank, offset)
        collective[rows] = own_rows


def _shifted(many: Ints, few: Ints, offset: int) -> tuple[Ints, Ints]:
    """Return the values of both that face each other if those in `few` are shifted by some places."""
    place = np.arange(len(few)) + offset
    inside = (place >= 0) & (place < len(many))
    return many[place[inside]], few[inside]


def _offset(many: Ints, few: Ints) -> int:
    """Return by how many places the ends in `few` must be shifted to match the ends in `many`."""
    nearest = np.searchsorted((many[1:] + many[:-1]) // 2, few) - np.arange(len(few))
    middle = int(np.median(nearest))
    deviations = {}
    for offset in range(middle - _NEAREST_OFFSETS, middle + _NEAREST_OFFSETS + 1):
        one, other = _shifted(many, few, offset)
        if len(one) >= len(few) / 2:
            deviations[offset] = float(np.median(np.abs(one - other)))
    return min(deviations, key=lambda offset: (deviations[offset], abs(offset))) if deviations else 0


def _number_by_time(collective: Ints, ranks: list[Ints], start: Ints, end: Ints) -> None:
    """Match kernels that overlap and end nearly together."""
    reference = ranks[0][np.argsort(end[ranks[0]], kind="stable")]
    collective[reference] = reference
    middle = (end[reference][1:] + end[reference][:-1]) // 2
    for members in ranks[1:]:
        nearest = reference[np.searchsorted(middle, end[members])]
        overlaps = (start[members] < end[nearest]) & (start[nearest] < end[members])
        collective[members] = np.where(overlaps, nearest, -1)


def shift_between(reference: pd.DataFrame, other: pd.DataFrame) -> tuple[int, int] | None:
    """Return by how many ns the clock of `other` is behind `reference`, and the deviation of single collectives.

    Both are the rows of `communication`, by the clocks of their machines as far as known. None if they share no
    collective. A collective ends on all ranks at the same time, so its ends give the difference; without collectives,
    it follows from messages, none of which arrives before it is sent.
    """
    has_groups = all((frame["group"] != "").any() for frame in (reference, other))
    # a stream belongs to one communicator, even if the capture does not identify it
    keys = ["group", "name"] if has_groups else ["name", "stream"]
    ends: list[dict[Any, Ints]] = [{}, {}]
    for frame, of_frame in zip((reference, other), ends, strict=True):
        for (*key, _), times in frame[~frame["name"].isin(PAIRWISE)].groupby([*keys, "device"])["end_ns"]:
            # one of several ranks of a capture is enough
            of_frame[tuple(key)] = max(
                of_frame.get(tuple(key), times.to_numpy()[:0]), np.sort(times.to_numpy()), key=len
            )
    pairs = [
        (own_ends, other_times)
        for key, own_ends in ends[0].items()
        for other_key, other_times in ends[1].items()
        if (key == other_key if has_groups else key[0] == other_key[0])
    ]
    if not pairs:
        return _shift_of_messages(reference, other)
    grouped = (frame[frame["group"] != ""] for frame in (reference, other))
    is_whole = has_groups and all(frame["is_whole"].all() for frame in grouped)
    pairs.sort(key=lambda pair: min(map(len, pair)), reverse=True)
    fewest = _LEAST_COMMON * min(map(len, pairs[0]))
    pairs = pairs[:1] if has_groups else [pair for pair in pairs[:_MOST_PAIRS] if min(map(len, pair)) >= fewest]
    # a fit without a shift comes first: steps are alike, so a shifted one may fit as well
    fitting = (fit for pair in pairs if (fit := _unshifted(*pair)) is not None)
    if (fit := next(fitting, None)) is not None:
        return fit[1], fit[0]
    most_shifted = 0 if is_whole else _MOST_SHIFTED // len(pairs)
    spread, shift = min(_shift(*pair, most_shifted) for pair in pairs)
    # a few collectives on several streams can fit by chance: another rank may be more certain
    is_sure = len(pairs) == 1 or min(map(len, pairs[0])) >= _FEWEST_CERTAIN
    return shift, spread if is_sure else max(spread, ONE_CLOCK_NS)


def _shift_of_messages(reference: pd.DataFrame, other: pd.DataFrame) -> tuple[int, int] | None:
    """Return `shift_between` of ranks that only exchange messages; the deviation is the conflict of both directions."""
    far = int(reference["device"].max()) + 1 if len(reference) else 0
    kernels = pd.concat([reference, other.assign(device=other["device"] + far)], ignore_index=True)
    exchanges = messages(kernels)
    exchanges = exchanges[exchanges["is_directed"] & ((exchanges["sender"] < far) != (exchanges["receiver"] < far))]
    if not len(exchanges):
        return None
    start, end = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
    sent, got, is_ours = (
        exchanges["sent"].to_numpy(),
        exchanges["got"].to_numpy(),
        (exchanges["sender"] < far).to_numpy(),
    )
    # the other clock is behind by at least `low`, from messages to it, and by at most `high`, from messages from it
    low = int((start[sent] - end[got])[is_ours].max(initial=np.iinfo(np.int64).min))
    high = int((end[got] - start[sent])[~is_ours].min(initial=np.iinfo(np.int64).max))
    if low <= 0 <= high:
        return 0, 0
    # large messages end together on both sides
    _, shift = _spread(np.where(is_ours, end[sent] - end[got], end[got] - end[sent]))
    return (min(max(shift, low), high), 0) if low <= high else (shift, low - high)


def _unshifted(many: Ints, few: Ints) -> tuple[int, int] | None:
    """Return how far the ends of collectives deviate from a small shift, and the shift; None if clocks differ.

    On one clock, the ends of a collective are much closer to each other than to those of the next collective.
    """
    nearest = many[np.clip(np.searchsorted((many[1:] + many[:-1]) // 2, few), 0, len(many) - 1)]
    gap = float(np.median(np.diff(many))) if len(many) > 1 else np.inf
    return _spread(nearest - few) if np.median(np.abs(nearest - few)) < min(ONE_CLOCK_NS, gap / 4) else None


def _shift(many: Ints, few: Ints, most_shifted: int) -> tuple[int, int]:
    """Return how far the ends of collectives on two ranks deviate from the shift of their clocks, and the shift."""
    if len(many) == len(few) and (unshifted := _spread(many - few))[0] < ONE_CLOCK_NS:
        return unshifted
    most = min(max(len(many), len(few)) - 1, most_shifted)
    fits = []
    for offset in sorted(range(-most, most + 1), key=abs):
        one, other = _shifted(many, few, offset)
        if 2 * len(one) >= min(len(many), len(few)):
            fits.append(_spread(one - other))
    best = min(fits, key=lambda fit: fit[0])
    near = [fit for fit in fits if abs(fit[1]) < _PLAUSIBLE_NS]
    # if nothing fits, as on a GPU that ranks share, trust the clocks: steps are alike
    return best if best[0] < _FITS_NS or not near else min(near, key=lambda fit: abs(fit[1]))


def _spread(differences: Ints) -> tuple[int, int]:
    """Return the 90th percentile of the distances from the median, and the median."""
    middle = int(np.median(differences))
    return int(np.percentile(np.abs(differences - middle), 90)), middle
