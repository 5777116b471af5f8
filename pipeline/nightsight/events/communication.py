"""Which kernels communicate, for which call, and which of several GPUs are one collective.

Ranks call the collectives of a communicator in the same order, so that the same number in it is the same collective.
Where the capture does not tell the communicator, kernels of one name are matched by their order, or, where ranks have
different numbers of them, those that overlap. What one rank sends to another, that one receives in the same order.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.kernel_names import communicates
from nightsight.events.timeline import Timeline, by_device, of_capture, operation_column, positions
from nightsight.intervals import Flags, Floats, Ints, Spans, shared, union
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
# the recording of a rank may start at a later collective: how many later ones to try
_MOST_SHIFTED: Final = 2_000
_AROUND: Final = 3
# calls of a group launch their kernel together, at most this long after
_MOST_GROUPED_NS: Final = 1_000_000
_OF_CALLS: Final = ("bytes", "received_bytes", "group_size", "place")
# the tolerance for ends of one collective, in ns and as a multiple of the usual one; how many to compare at most
_TOGETHER_NS: Final = 20_000
_LOOSE: Final = 4
_SAMPLED: Final = 64
# of the longest stream that two captures have in common: shorter ones tell nothing of clocks
_ENOUGH: Final = 0.25
_MOST_PAIRS: Final = 16
_SURE: Final = 32
# how near the ends of collectives are if clocks are compared as they should be, and how far off clocks may be
_FITS_NS: Final = 200_000
_PLAUSIBLE_NS: Final = 1_000_000_000
# of what ends at about the same time, how many to look at on either side
_NEIGHBOURS: Final = 4
# a rank that exchanges with this many others at once exchanges with all; in a pipeline there are two
_MANY_PEERS: Final = 3
ONE_CLOCK_NS: Final = 50_000
"""Clocks that differ by less are one."""


@of_capture
def communication(timeline: Timeline) -> pd.DataFrame:
    """Return one row per kernel that communicates, by device and the order of their calls.

    Columns: operation (position in Timeline.operations), device, stream, process, start_ns and end_ns on the GPU,
    called_ns (when the CPU launched it, else its start), group (the communicator, "" if unknown), name, bytes and
    received_bytes (what the rank gives and gets, missing if unknown), group_size, place (of the rank in the group,
    missing if unknown), pairs (its sends and receives, in order, with peer and bytes: ">1:4096 <0:4096"; a peer that is
    not known is left out), is_whole (whether all calls of the communicator up to this one were recorded), collective
    (equal for what several devices take part in, -1 for what has no partner).
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
            "stream": operations.stream[row],
            "process": operation_column(timeline, "process")[row] if len(row) else row,
            "start_ns": start,
            "end_ns": end,
            "called_ns": np.where(call >= 0, np.append(_call_starts(timeline), 0)[call], start),
            "group": "",
            "name": known[np.asarray(names.codes, dtype=np.int64)[row]] if names is not None else known,
            **{name: pd.array([None] * len(row), dtype=NULLABLE) for name in _OF_CALLS},
            "pairs": "",
            "is_whole": False,
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


def kinds_of_calls(found: pd.DataFrame) -> "pd.Series[str]":
    """Return by device the names and sizes of what it calls, each once, as a text: equal for ranks of the same part."""
    texts = found["name"].astype("str") + " " + found["bytes"].fillna(-1).astype("str")
    return texts.groupby(found["device"]).agg(lambda names: " ".join(sorted(set(names))))


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
    """Whether each device that communicates has a separate rank that the capture gives."""
    return len(_ranks(timeline)) > 0


def called_by_rank(timeline: Timeline, device: int) -> str:
    """Name a device after its rank, "Rank 3"; "GPU 3" where the capture does not tell."""
    known = _ranks(timeline)
    return f"Rank {known[device]}" if device in known.index else f"GPU {device}"


@of_capture
def _ranks(timeline: Timeline) -> "pd.Series[int]":
    """Return the rank of each device that communicates; empty unless each has a different one."""
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
    """Add the program's call of each kernel: the call around its launch, else those before it on the thread.

    Calls between ncclGroupStart and ncclGroupEnd launch one kernel at the end, so what they say is put together.
    """
    called = timeline.profile.tables.get("collectives")
    if called is None or not len(called) or not (call >= 0).any():
        return found
    kernel = _kernels_of(timeline, called, found, call)
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
            "received_bytes": grouped["received_bytes"].sum(min_count=1),
            "group_size": grouped["group_size"].first(),
            "place": grouped["rank"].first(),
            "is_whole": grouped["is_whole"].first(),
        }
    )
    mine = told.index.to_numpy()
    found = found.astype({"group": object, "name": object, "pairs": object})
    is_pairs = texts["name"].isin(PAIRWISE).groupby(kernel).all().reindex(mine)
    several = is_pairs.map({True: "send and recv", False: "several"})
    name = told["name"].where(told["names"] == 1, several).where(told["name"] != "", found["name"].iloc[mine])
    pairs = _pairs(texts.assign(kernel=kernel)[kernel >= 0]).reindex(mine, fill_value="")
    # NCCL is also asked for an all-to-all by a send to and a receive from each rank
    is_all = is_pairs & (pairs == "")
    told = told.assign(name=name.mask(is_all, "all_to_all"), pairs=pairs)
    for column in ("group", "name", "pairs", "is_whole", *_OF_CALLS):
        found.loc[mine, column] = told[column].array
    return found


def _kernels_of(timeline: Timeline, called: pd.DataFrame, found: pd.DataFrame, call: Ints) -> Ints:
    """Return for each call of a collective its kernel, a position in `found`; -1 if it launched none."""
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
    return kernel


def _pairs(called: pd.DataFrame) -> "pd.Series[str]":
    """Return the sends and receives of each kernel as text (see `communication`); "" of an all-to-all made of them."""
    mine = called[called["name"].isin(PAIRWISE)]
    facts = mine[["kernel", "name"]].assign(
        **{name: mine[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in ("peer", "rank", "group_size")}
    )
    of_others = facts[facts["peer"] != facts["rank"]].groupby(["kernel", "name"])["peer"].nunique()
    peers = of_others.groupby("kernel").agg(["min", "size"])
    size = facts.groupby("kernel")["group_size"].first().reindex(peers.index)
    # of two ranks, only what they give to themselves tells
    own = facts[facts["peer"] == facts["rank"]]["kernel"].unique()
    enough = (size - 1).where((size > 2) | peers.index.isin(own)).fillna(_MANY_PEERS).clip(upper=_MANY_PEERS)
    is_all = peers.index[(peers["min"] >= enough) & (peers["size"] > 1)]
    is_send = (mine["name"] == "send").to_numpy()
    given = mine["bytes"].where(is_send, mine["received_bytes"])
    peer, size_of = (
        values.astype("Int64").astype("str").replace("<NA>", "").astype("str") for values in (mine["peer"], given)
    )
    sign = pd.Series(np.where(is_send, ">", "<"), index=mine.index, dtype="str")
    said = sign + (peer + ":" + size_of)
    texts: pd.Series[str] = said.groupby(mine["kernel"]).agg(" ".join)
    return texts.mask(texts.index.isin(is_all), "")


def matched(found: pd.DataFrame) -> Ints:
    """Number what several devices take part in: by its place in a known communicator, else by name and time.

    Takes what `communication` returns; -1 for what has no partner. Of what pairs do, two kernels are together if each
    waited for the other longer than for any third one.
    """
    collective = np.full(len(found), -1, dtype=np.int64)
    device = found["device"].to_numpy()
    if len(pd.unique(device)) < 2:
        return collective
    # where one device does not tell communicators, names must do for all
    tells = found.assign(told=found["group"] != "").groupby("device")["told"].any()
    group = found["group"] if tells.all() else pd.Series("", index=found.index)
    codes = pd.factorize((group + "\0" + found["name"].where(group == "", "")).to_numpy(dtype=object))[0]
    start, end, stream = (found[name].to_numpy() for name in ("start_ns", "end_ns", "stream"))
    pairwise, is_known = found["name"].isin(PAIRWISE).to_numpy(), (group != "").to_numpy()
    of_all = _of_all(found)
    for mine in positions(codes).values():
        together = mine[~pairwise[mine] | of_all[mine]]
        companies = [together] if is_known[mine[0]] else _companies(together, device, stream, start, end)
        for company in companies:
            ranks = sorted((company[rows] for rows in positions(device[company]).values()), key=len, reverse=True)
            if len(ranks) < 2:
                continue
            if is_known[mine[0]] or _are_together(ranks, start, end):
                _by_place(collective, ranks, end, found["is_whole"].to_numpy())
            else:
                _by_time(collective, ranks, start, end)
    _in_pairs(collective, messages(found), start, end)
    grouped = np.flatnonzero(collective >= 0)
    _, inverse, count = np.unique(collective[grouped], return_inverse=True, return_counts=True)
    collective[grouped[count[inverse] < 2]] = -1
    return collective


def _unknown_pairs(found: pd.DataFrame) -> Flags:
    """Return which kernels send and receive although no call tells what, and to whom."""
    return np.asarray((found["pairs"] == "") & (found["name"] == "send and recv"), dtype=bool)


def _of_all(found: pd.DataFrame) -> Flags:
    """Return which of such kernels are of an all-to-all: those of more than two devices always end together."""
    is_unknown = _unknown_pairs(found)
    unknown = np.flatnonzero(is_unknown)
    start, end, device = (found[name].to_numpy() for name in ("start_ns", "end_ns", "device"))
    ranks = [unknown[rows] for rows in positions(device[unknown]).values()]
    return is_unknown & (len(ranks) > 2 and _are_together(ranks, start, end))


def _in_pairs(collective: Ints, told: pd.DataFrame, start: Ints, end: Ints) -> None:
    """Number kernels that exchange messages and were there at once, each with the one it waited for the longest."""
    one, other = (
        np.concatenate([told[name].to_numpy() for name in names]) for names in (("sent", "got"), ("got", "sent"))
    )
    meets = (start[one] < end[other]) & (start[other] < end[one])
    one, other = one[meets], other[meets]
    order = np.lexsort((-other, start[other], one))
    last = np.append(one[order][1:] != one[order][:-1], True)[: len(order)]
    partner = np.full(len(collective) + 1, -1, dtype=np.int64)
    partner[one[order][last]] = other[order][last]
    mutual = np.flatnonzero((partner >= 0) & (partner[partner] == np.arange(len(partner))))
    collective[mutual] = np.minimum(mutual, partner[mutual])


def messages(found: pd.DataFrame) -> pd.DataFrame:
    """Return one row per message that one rank sends to another, as `communication` tells them.

    sender, receiver: devices. sent, got: the kernels, positions in `found`. bytes: missing if unknown. is_directed:
    where the capture tells no sends and receives, the device with the lower number counts as the sender.
    """
    told = found["pairs"].to_numpy(dtype=object)
    rows = np.flatnonzero(told != "")
    parts = [_undirected(found, np.flatnonzero(_unknown_pairs(found) & ~_of_all(found)))]
    if len(rows):
        parts.append(_directed(found, rows))
    every = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    starts = found["start_ns"].to_numpy()
    return every.iloc[np.argsort(starts[every["sent"].to_numpy()], kind="stable")].reset_index(drop=True)


def _directed(found: pd.DataFrame, rows: Ints) -> pd.DataFrame:
    """Match sends and receives of each pair of ranks in a communicator, in their order."""
    said = found["pairs"].iloc[rows].reset_index(drop=True).str.split(" ").explode()
    codes, texts = pd.factorize(said.to_numpy(dtype=object))
    parsed = pd.Series(texts, dtype="str").str.extract(r"^([<>])(\d*):(\d*)$")
    peer, size = (pd.to_numeric(parsed[column], errors="coerce").to_numpy()[codes] for column in (1, 2))
    is_send, row = (parsed[0] == ">").to_numpy()[codes], rows[said.index.to_numpy()]
    device, group = found["device"].to_numpy()[row], pd.factorize(found["group"].to_numpy(dtype=object))[0]
    other = _peers(found, group, row, peer)
    known = other >= 0
    sender, receiver = np.where(is_send, device, other), np.where(is_send, other, device)
    end, matches = found["end_ns"].to_numpy(), list[tuple[Ints, Ints]]()
    keys = pd.MultiIndex.from_arrays([group[row], sender, receiver]).factorize()[0]
    for mine in positions(np.where(known, keys, -1)).values():
        sends, gets = mine[known[mine] & is_send[mine]], mine[known[mine] & ~is_send[mine]]
        many, few = (sends, gets) if len(sends) >= len(gets) else (gets, sends)
        if len(few):
            # one of them may have been recorded later
            offset = _offset(end[row[many]], end[row[few]]) if len(many) > len(few) else 0
            place = np.arange(len(few)) + offset
            inside = (place >= 0) & (place < len(many))
            pair = (many[place[inside]], few[inside])
            matches.append(pair if many is sends else pair[::-1])
    sends, gets = (
        (np.concatenate([np.empty(0, dtype=np.int64), *side]) for side in zip(*matches, strict=True))
        if matches
        else (np.empty(0, dtype=np.int64),) * 2
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


def _peers(found: pd.DataFrame, group: Ints, row: Ints, peer: Floats) -> Ints:
    """Return the device that has the number `peer` in the group of each of these kernels; -1 if unknown."""
    members = pd.DataFrame({"group": group, "device": found["device"].to_numpy()})
    members["place"] = found["place"].to_numpy(dtype=np.float64, na_value=np.nan)
    places = members.dropna().drop_duplicates(["group", "place"]).set_index(["group", "place"])["device"]
    other = places.reindex(pd.MultiIndex.from_arrays([group[row], peer])).to_numpy(dtype=np.float64)
    # in a group of two there is only one other, unless it is known to be one that was not recorded
    is_told = np.isin(group[row], places.index.get_level_values("group")) & ~np.isnan(peer)
    ends = members.groupby("group")["device"].agg(["min", "max", "nunique"]).reindex(group[row])
    device = found["device"].to_numpy()[row]
    rest = np.where((ends["nunique"] == 2).to_numpy() & ~is_told, ends["min"] + ends["max"] - device, np.nan)
    other = np.where(np.isnan(other), rest, other)
    return np.where(np.isnan(other) | (other == device), -1, other).astype(np.int64)


def _undirected(found: pd.DataFrame, rows: Ints) -> pd.DataFrame:
    """Match kernels of different devices that end nearly together, each nearest to the other, and overlap."""
    device, start, end = (found[name].to_numpy() for name in ("device", "start_ns", "end_ns"))
    order = rows[np.lexsort((device[rows], end[rows]))]
    places = np.arange(len(order))
    nearest, apart = np.full(len(order), -1, dtype=np.int64), np.full(len(order), np.iinfo(np.int64).max)
    for step in range(1, min(_NEIGHBOURS, len(order) - 1) + 1):
        for one, other in ((places[:-step], places[step:]), (places[step:], places[:-step])):
            here, there = order[one], order[other]
            away = np.abs(end[there] - end[here])
            better = (device[here] != device[there]) & (start[here] < end[there]) & (start[there] < end[here])
            better &= away < apart[one]
            apart[one] = np.where(better, away, apart[one])
            nearest[one] = np.where(better, other, nearest[one])
    mutual = np.flatnonzero((nearest >= 0) & (np.append(nearest, -1)[nearest] == places))
    before, after = order[mutual], order[nearest[mutual]]
    first = device[before] < device[after]
    one, other = before[first], after[first]
    unknown = pd.array([None] * len(one), dtype=NULLABLE)
    facts = {"sender": device[one], "receiver": device[other], "sent": one, "got": other, "bytes": unknown}
    return pd.DataFrame({**facts, "is_directed": False})


def _companies(mine: Ints, device: Ints, stream: Ints, start: Ints, end: Ints) -> list[Ints]:
    """Return kernels of one name by the communicators that they are probably of, which the capture does not tell.

    Each communicator has a stream on each of its devices. Streams of different devices whose kernels end together, one
    by one, are of one; what is like no other is returned together.
    """
    ids = pd.MultiIndex.from_arrays([device[mine], stream[mine]]).factorize()[0]
    lines = [mine[rows] for rows in positions(ids).values()]
    of_line = np.array([device[line[0]] for line in lines])
    if len(pd.unique(of_line)) < 3:
        return [mine]
    near = np.zeros((len(lines), len(lines)), dtype=bool)
    for rows in positions(np.array([len(line) for line in lines])).values():
        near[np.ix_(rows, rows)] = _ends_with([lines[row] for row in rows.tolist()], of_line[rows], start, end)
    label = np.arange(len(lines))
    for line in range(len(lines)):
        # all that are near it, and what these are near to, become one
        joined = np.isin(label, label[near[line]])
        label[joined] = label[joined].min(initial=len(lines))
    found, rest = list[Ints](), list[Ints]()
    for rows in positions(label).values():
        is_one = len(rows) > 1 and len(pd.unique(of_line[rows])) == len(rows)
        (found if is_one else rest).append(np.concatenate([lines[row] for row in rows.tolist()]))
    return [*found, *([np.sort(np.concatenate(rest))] if rest else [])]


def _ends_with(lines: list[Ints], device: Ints, start: Ints, end: Ints) -> Flags:
    """Return which of some streams, with as many kernels each, end together with which others, and with themselves."""
    chosen = np.unique(np.linspace(0, len(lines[0]) - 1, _SAMPLED).astype(np.int64))
    ends = np.array([end[line[chosen]] for line in lines])
    length = np.median(np.array([end[line[chosen]] - start[line[chosen]] for line in lines]), axis=1)
    apart = np.array([np.median(np.abs(ends - one), axis=1) for one in ends])
    apart[device[:, None] == device] = np.inf
    # clocks of different machines are off by something, for all alike
    most = max(_TOGETHER_NS, _LOOSE * float(np.median(apart.min(axis=1, initial=np.inf))))
    near: Flags = (apart <= most) & (apart < np.minimum(length[:, None], length))
    return near | np.eye(len(lines), dtype=bool)


def _are_together(ranks: list[Ints], start: Ints, end: Ints) -> bool:
    """Whether as many kernels of each rank end nearly together, taken in their order."""
    first = ranks[0]
    length = np.median(end[first] - start[first])
    return all(len(rank) == len(first) and np.median(np.abs(end[rank] - end[first])) < length for rank in ranks[1:])


def _by_place(collective: Ints, ranks: list[Ints], end: Ints, is_whole: Flags) -> None:
    """Match what ranks call in the same order; one that was recorded later, or not to the end, counts from there."""
    reference = ranks[0]
    collective[reference] = reference
    for rank in ranks[1:]:
        are_counted = is_whole[reference].all() and is_whole[rank].all()
        place = np.arange(len(rank)) + (0 if are_counted else _offset(end[reference], end[rank]))
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

    Both as `communication` returns, by the clocks of their machines as far as known; in ns. None if they have nothing
    in common. Whatever ends on one rank ends on the other, so the ends of collectives tell; without any, that no
    message arrives before it is sent.
    """
    is_told = all((frame["group"] != "").any() for frame in (reference, other))
    # a stream is of one communicator, though not which is told
    keys = ["group", "name"] if is_told else ["name", "stream"]
    ends: list[dict[Any, Ints]] = [{}, {}]
    for frame, of_frame in zip((reference, other), ends, strict=True):
        for (*key, _), times in frame[~frame["name"].isin(PAIRWISE)].groupby([*keys, "device"])["end_ns"]:
            # of several ranks of a capture one will do
            of_frame[tuple(key)] = max(
                of_frame.get(tuple(key), times.to_numpy()[:0]), np.sort(times.to_numpy()), key=len
            )
    pairs = [
        (mine, theirs)
        for key, mine in ends[0].items()
        for same, theirs in ends[1].items()
        if (key == same if is_told else key[0] == same[0])
    ]
    if not pairs:
        return _shift_of_messages(reference, other)
    is_whole = is_told and all(frame["is_whole"].to_numpy()[frame["group"] != ""].all() for frame in (reference, other))
    pairs.sort(key=lambda pair: min(map(len, pair)), reverse=True)
    enough = _ENOUGH * min(map(len, pairs[0]))
    pairs = pairs[:1] if is_told else [pair for pair in pairs[:_MOST_PAIRS] if min(map(len, pair)) >= enough]
    # what fits as it is comes before what could be moved to fit: steps are alike
    fitting = (found for pair in pairs if (found := _as_it_is(*pair)) is not None)
    if (found := next(fitting, None)) is not None:
        return found[1], found[0]
    most_shifted = 0 if is_whole else _MOST_SHIFTED // len(pairs)
    spread, shift = min(_shift(*pair, most_shifted) for pair in pairs)
    # of few on several streams, some fit by chance: another rank may tell more
    is_sure = len(pairs) == 1 or min(map(len, pairs[0])) >= _SURE
    return shift, spread if is_sure else max(spread, ONE_CLOCK_NS)


def _shift_of_messages(reference: pd.DataFrame, other: pd.DataFrame) -> tuple[int, int] | None:
    """Return the same of ranks that only send to each other; off is a clock if messages in both ways contradict."""
    far = int(reference["device"].max()) + 1 if len(reference) else 0
    both = pd.concat([reference, other.assign(device=other["device"] + far)], ignore_index=True)
    told = messages(both)
    told = told[told["is_directed"] & ((told["sender"] < far) != (told["receiver"] < far))]
    if not len(told):
        return None
    start, end = both["start_ns"].to_numpy(), both["end_ns"].to_numpy()
    sent, got, is_ours = told["sent"].to_numpy(), told["got"].to_numpy(), (told["sender"] < far).to_numpy()
    # what is added to the other clock at least, for what comes from us, and at most, for what goes to us
    low = int((start[sent] - end[got])[is_ours].max(initial=np.iinfo(np.int64).min))
    high = int((end[got] - start[sent])[~is_ours].min(initial=np.iinfo(np.int64).max))
    if low <= 0 <= high:
        return 0, 0
    # large messages end together on both sides
    _, shift = _spread(np.where(is_ours, end[sent] - end[got], end[got] - end[sent]))
    return (min(max(shift, low), high), 0) if low <= high else (shift, low - high)


def _as_it_is(many: Ints, few: Ints) -> tuple[int, int] | None:
    """Return how far the ends of collectives are apart but for a small shift, and that; None if clocks differ.

    On one clock, ends are near each other as they are, and much nearer than one collective is to the next.
    """
    nearest = many[np.clip(np.searchsorted((many[1:] + many[:-1]) // 2, few), 0, len(many) - 1)]
    gap = float(np.median(np.diff(many))) if len(many) > 1 else np.inf
    return _spread(nearest - few) if np.median(np.abs(nearest - few)) < min(ONE_CLOCK_NS, gap / 4) else None


def _shift(many: Ints, few: Ints, most_shifted: int) -> tuple[int, int]:
    """Return how far the ends of the same collectives on two ranks are apart but for their clocks, and these in ns."""
    if len(many) == len(few) and (same := _spread(many - few))[0] < ONE_CLOCK_NS:
        return same
    most = min(max(len(many), len(few)) - 1, most_shifted)
    ways = []
    for offset in sorted(range(-most, most + 1), key=abs):
        place = np.arange(len(few)) + offset
        inside = (place >= 0) & (place < len(many))
        if 2 * inside.sum() >= min(len(many), len(few)):
            ways.append(_spread(many[place[inside]] - few[inside]))
    best = min(ways, key=lambda way: way[0])
    near = [way for way in ways if abs(way[1]) < _PLAUSIBLE_NS]
    # if nothing fits, as on a GPU that ranks share, what the clocks say is the best that is known: steps are alike
    return best if best[0] < _FITS_NS or not near else min(near, key=lambda way: abs(way[1]))


def _spread(apart: Ints) -> tuple[int, int]:
    """Return how far nine in ten differences are from their median, and that median."""
    middle = int(np.median(apart))
    return int(np.percentile(np.abs(apart - middle), 90)), middle
