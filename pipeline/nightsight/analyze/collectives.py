"""Analyzes the collectives of ranks: which rank the others wait for, in total and step by step."""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.needed_collectives import needed_at_once
from nightsight.events.communication import PAIRWISE, are_ranks_known, of_all_ranks, overlapping_work, pids, ranks_of
from nightsight.events.peaks import published
from nightsight.events.steps import first_numbers, steps_in_window
from nightsight.events.timeline import Timeline
from nightsight.events.window import whole_window
from nightsight.intervals import Flags, Floats, clipped_union, covered, without
from nightsight.results.ranks import COLLECTIVES, RANK_STEPS, RANKS
from nightsight.system.parallel import memoize
from nightsight.tables import NULLABLE, aggregate, positions
from nightsight.units import counted, format_value

_KEYS: Final = ["name", "message_bytes", "group", "group_size"]
# bytes on each link per byte of the message, as nccl-tests counts them: factors of (n - 1) / n
_LINKS: Final = {"allreduce": 2.0, "allgather": 1.0, "reducescatter": 1.0, "alltoall": 1.0}
# the columns of `_window_communication` that are not those of `communication`
_ADDED: Final = ("rank", "late", "waits", "exposed", "exposed_wait", "awaited")
_ADDED_FLAGS: Final = ("is_lone", "is_last", "is_decided")
_MOST_STEPS: Final = 150
_MOST_NAMED: Final = 8


@memoize
def _window_communication(timeline: Timeline) -> pd.DataFrame:
    """Return the communication that ends in the window, with its waits and the work that hides it; times in ns.

    Columns added to those of `communication`: rank, late (after the first of its collective), waits (for the last),
    exposed and exposed_wait (while nothing else ran on the device), is_last, awaited (how long all others only waited
    for the last, after the second to last had arrived), is_decided (whether its collective has a last rank), is_lone
    (some ranks of its communicator are unknown, so the rest of its time may be waiting, too).
    """
    kernels = of_all_ranks(timeline)
    kernels = kernels[timeline.window.contains_end(kernels["end_ns"])].reset_index(drop=True)
    start, end = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
    if not len(kernels):
        # most captures are of one process
        return kernels.assign(**dict.fromkeys(_ADDED, start), **dict.fromkeys(_ADDED_FLAGS, start > end))
    collective = kernels["collective"].to_numpy()
    key = np.where(collective >= 0, collective, -1 - np.arange(len(kernels)))
    by_start = kernels.assign(own=key).groupby("own")["start_ns"]
    first, last = by_start.transform("min").to_numpy(), by_start.transform("max").to_numpy()
    # pairwise communication does not wait for all ranks
    is_joint = (collective >= 0) & ~kernels["name"].isin(PAIRWISE).to_numpy()
    # a kernel that ended before the last one began did not wait for it: small messages are sent ahead
    waits = np.where(is_joint, np.minimum(last, end) - start, 0)
    # the time since the previous rank of the same collective arrived, -1 for the first
    since = np.full(len(kernels), -1, dtype=np.int64)
    order = np.lexsort((start, key))
    follows = np.flatnonzero(key[order][1:] == key[order][:-1]) + 1
    since[order[follows]] = start[order[follows]] - start[order[follows - 1]]
    is_last = is_joint & (start == last) & (since > 0)
    hidden, hidden_wait = np.zeros((2, len(kernels)), dtype=np.int64)
    for device, rows in positions(kernels["device"].to_numpy()).items():
        spans = overlapping_work(timeline)[device]
        hidden[rows] = covered(spans, start[rows], end[rows])
        hidden_wait[rows] = covered(spans, start[rows], start[rows] + waits[rows])
    only = np.where(is_last, np.iinfo(np.int64).max, waits - hidden_wait)
    least_wait = pd.Series(only).groupby(key).transform("min").to_numpy()
    members = kernels.assign(own=key).groupby("own")["device"].transform("nunique")
    lacks = (members < kernels["group_size"]).fillna(value=False).to_numpy(dtype=bool)
    return kernels.assign(
        is_lone=lacks & ~kernels["name"].isin(PAIRWISE).to_numpy(),
        rank=ranks_of(timeline, kernels["device"].to_numpy()),
        late=np.where(is_joint, start - first, 0),
        waits=waits,
        exposed=end - start - hidden,
        exposed_wait=waits - hidden_wait,
        is_last=is_last,
        awaited=np.where(is_last, np.minimum(since, least_wait), 0),
        is_decided=pd.Series(is_last).groupby(key).transform("any").to_numpy(),
    )


def collectives(timeline: Timeline) -> Table:
    """Return one row per collective, size of its message and communicator, the one with the most time first."""
    kernels = _window_communication(timeline)
    if not len(kernels) and not len(timeline.profile.recorded("collectives")):
        return Table(COLLECTIVES.empty())
    without_kernels = _calls_without_kernels(timeline)
    if not len(kernels):
        return Table(without_kernels)
    kernels, without_kernels = _use_mean_sizes(kernels, without_kernels)
    table = _sum_kernels(timeline, kernels)
    notes = [] if table["skew_ns"].notna().any() else ["Only one rank is known, so its waits for others are unknown."]
    if not notes and (table["members"] < table["group_size"].astype("float64")).any():
        notes.append("Collectives with unknown ranks have neither transfer time nor bandwidth.")
    if "link_pct" in table and _hosts(timeline) is None:
        notes.append("The share of the link assumes that all ranks are on one machine, as their clocks suggest.")
    # collectives without a recorded kernel, such as those of the CPU next to those of GPUs
    pairs = ["name", "message_bytes"]
    added = without_kernels.merge(table[pairs].drop_duplicates(), on=pairs, how="left", indicator="of")
    added = added[added["of"] == "left_only"].drop(columns="of")
    table = pd.concat([table, added]) if len(added) else table
    order = ["total_ns", "name", "message_bytes", "group"]
    table = table.sort_values(order, ascending=[False, True, True, True], ignore_index=True)
    table["name"] = table["name"].replace("", "(unknown)")
    return Table(table[[name for name in COLLECTIVES.column_names if name in table]], tuple(notes))


def _use_mean_sizes(rows: pd.DataFrame, calls: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Replace sizes that differ between ranks, as in all-to-alls of experts, by the mean size of their kind.

    `calls`: the calls in the capture, from which such collectives are removed because each of them has kernels.
    """
    # a sender has a size, and a receiver has none
    is_joint = (rows["collective"] >= 0) & ~rows["name"].isin(PAIRWISE)
    by_collective = rows[is_joint].groupby("collective")["bytes"]
    differs = (by_collective.transform("min") != by_collective.transform("max")).fillna(value=False)
    kinds = rows.loc[differs[differs].index, ["name", "group"]].drop_duplicates()
    if not len(kinds):
        return rows, calls
    key = pd.MultiIndex.from_frame(rows[["name", "group"]].astype("str"))
    is_kind = key.isin(pd.MultiIndex.from_frame(kinds.astype("str")))
    means = rows["bytes"].astype("float64").groupby(key.codes[0] * len(key.levels[1]) + key.codes[1]).transform("mean")
    sizes = rows["bytes"].mask(is_kind, means.round().astype("Int64").astype(NULLABLE))
    return rows.assign(bytes=sizes), calls[~calls["name"].isin(kinds["name"])]


def _sum_kernels(timeline: Timeline, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return one row per collective, size and communicator; members: the number of devices on which it is known."""
    kernels = kernels.rename(columns={"bytes": "message_bytes"})
    kernels["ns"] = kernels["end_ns"] - kernels["start_ns"]
    needed = (
        kernels["operation"].isin(needed_at_once(timeline))
        if "operation" in kernels
        else np.zeros(len(kernels), dtype=bool)
    )
    kernels["needed"] = kernels["exposed"].where(needed, 0)
    # the sizes of an all-to-all may differ between ranks, but it is still one collective
    matched = kernels[kernels["collective"] >= 0]
    of_collective = aggregate(
        matched.groupby("collective"), late=("late", "max"), shortest=("ns", "min"), members=("device", "nunique")
    )
    per_kind = matched[[*_KEYS, "collective"]].drop_duplicates().join(of_collective, on="collective")
    per_kind = aggregate(
        per_kind.groupby(_KEYS, dropna=False, observed=True),
        skew_ns=("late", "mean"),
        transfer_ns=("shortest", "median"),
        members=("members", "max"),
    )
    steps = max(len(timeline.window.repetitions), 1)
    table = aggregate(
        kernels.groupby(_KEYS, dropna=False, observed=True),
        total_ns=("ns", "sum"),
        devices=("device", "nunique"),
        size=("ns", "size"),
        avg_ns=("ns", "mean"),
        exposed=("exposed", "sum"),
        needed=("needed", "sum"),
    )
    table = table.join(per_kind).reset_index()
    table["calls"] = table["size"] / table["devices"] / steps
    table["exposed_ns"] = table["exposed"] / table["devices"] / steps
    if table["needed"].any():
        table["needed_ns"] = table["needed"] / table["devices"] / steps
    # if ranks are missing, the transfer cannot be separated from the wait for them
    members = table["group_size"].astype("float64").fillna(table["members"])
    table["transfer_ns"] = table["transfer_ns"].where(table["members"] >= members)
    size, factor = _message_bytes(table, members)
    table["algorithm_bytes_per_s"] = size / table["transfer_ns"] * 1e9
    table["bus_bytes_per_s"] = table["algorithm_bytes_per_s"] * factor
    is_near = _is_on_one_host(timeline, kernels, table)
    if is_near.any() and (link := _link_bytes_per_s(timeline)) is not None:
        table["link_pct"] = (100.0 * table["bus_bytes_per_s"] / link).where(is_near)
    table["last_rank"], table["last_pct"] = _most_frequent_last(kernels, table)
    table["group_size"] = members.astype("Int64").astype(NULLABLE)
    return table


def _calls_without_kernels(timeline: Timeline) -> pd.DataFrame:
    """Return one row per collective and size that was called in the capture, without the columns that need kernels."""
    calls = timeline.profile.recorded("collectives").rename(columns={"bytes": "message_bytes"})
    grouped = calls.groupby(["name", "message_bytes", "group_size"], dropna=False, observed=True)
    steps = max(len(timeline.window.repetitions), 1)
    table = grouped.size().rename("size").reset_index()
    table["calls"] = table["size"] / max(calls["process"].nunique(), 1) / steps
    table = table.sort_values(["size", "name", "message_bytes"], ascending=[False, True, True], ignore_index=True)
    types = dict.fromkeys(("total_ns", "group_size", "last_rank"), NULLABLE)
    names = [column.name for column in COLLECTIVES.columns if not column.is_optional]
    float_types = dict.fromkeys(set(names) - {*table.columns, *types, "group"}, "float64")
    return table.assign(group="").reindex(columns=names).astype({**float_types, **types, "name": "str"})


def _link_bytes_per_s(timeline: Timeline) -> float | None:
    """Return the published rate of NVLink in one direction; None unless all GPUs have the same."""
    rates = {published(name).nvlink_gb_per_s for name in timeline.profile.recorded("devices")["name"].astype("str")}
    rate = rates.pop() if len(rates) == 1 else None
    return None if rate is None else rate / 2 * 1e9


def _hosts(timeline: Timeline) -> "pd.Series[int] | None":
    """Return the number of each process's machine; None if unknown. A capture without ranks is from one machine."""
    table = timeline.profile.recorded("ranks")
    processes = of_all_ranks(timeline)["process"].unique()
    if not len(table) or len(processes) < 2:
        return pd.Series(0, index=processes)
    hosts = table.set_index("process")["host"].reindex(processes)
    return None if hosts.isna().any() else hosts.astype("int64")


def _is_on_one_host(timeline: Timeline, kernels: pd.DataFrame, table: pd.DataFrame) -> Flags:
    """Return, for each row of `table`, whether its ranks are on one machine; if unknown, clocks decide."""
    hosts = _hosts(timeline)
    if hosts is None:
        is_one = not timeline.profile.table("ranks")["shift_ns"].notna().any()
        return np.full(len(table), is_one)
    counts = (
        kernels.assign(host=kernels["process"].map(hosts)).groupby(_KEYS, dropna=False, observed=True)["host"].nunique()
    )
    return np.asarray(table[_KEYS].merge(counts.reset_index(), on=_KEYS, how="left")["host"] == 1, dtype=bool)


def _message_bytes(table: pd.DataFrame, members: "pd.Series[float]") -> tuple["pd.Series[float]", "pd.Series[float]"]:
    """Return the bytes of the whole message, as nccl-tests counts them, and the share of it that each link carries."""
    compact = table["name"].astype("str").str.replace("_", "").str.lower()
    factor = pd.Series(1.0, index=table.index)
    for name, share in _LINKS.items():
        factor = factor.mask(compact.str.contains(name), share * (members - 1) / members)
    sent = table["message_bytes"].astype("float64")
    return sent.where(~compact.str.contains("allgather"), sent * members), factor


def _most_frequent_last(kernels: pd.DataFrame, table: pd.DataFrame) -> tuple["pd.Series[int]", Floats]:
    """Return, for each row, the rank that arrived last most often, and how often, in percent."""
    last = kernels[kernels["is_last"]]
    counts = last.groupby([*_KEYS, "rank"], dropna=False, observed=True).size().rename("times").reset_index()
    counts["of"] = counts.groupby(_KEYS, dropna=False, observed=True)["times"].transform("sum")
    first = counts.sort_values(["times", "rank"], ascending=[False, True]).drop_duplicates(_KEYS)
    joined = table[_KEYS].merge(first, on=_KEYS, how="left")
    return joined["rank"].astype(NULLABLE), (100.0 * joined["times"] / joined["of"]).to_numpy(dtype=np.float64)


# -- ranks ------------------------------------------------------------------------------------------------------------


@memoize
def _rank_steps(timeline: Timeline) -> pd.DataFrame:
    """Return one row per rank and step: when it begins, how long it takes, and how long it waits for others.

    Columns: rank, device, number, start_ns, time_ns, waited_ns (while nothing else ran), awaited_ns (while all others
    only waited for it), work_ns (the rest, except time that may be waiting for ranks without a capture). A window
    without steps counts as one step. The last step ends with the last work of the rank.
    """
    kernels, rows = _window_communication(timeline), []
    steps = {device: steps_in_window(timeline, device) for device in kernels["device"].unique().tolist()}
    first = first_numbers(timeline, steps)
    for device, (begin, end) in steps.items():
        of_device = kernels[kernels["device"] == device]
        start, waits = of_device["start_ns"].to_numpy(), of_device["waits"].to_numpy()
        bounds = (int(begin[0]), int(end[-1]))
        # simultaneous waits on several streams count once
        waiting, idle = (
            without(clipped_union(start, start + lengths, bounds), overlapping_work(timeline)[device])
            for lengths in (waits, np.where(of_device["is_lone"], of_device["end_ns"] - start, waits))
        )
        awaited = clipped_union(start - of_device["awaited"].to_numpy(), start, bounds)
        facts = {"rank": int(of_device["rank"].iloc[0]), "device": device, "start_ns": begin, "time_ns": end - begin}
        number = first[device] + np.arange(len(begin))
        waits_by_step = {"waited_ns": covered(waiting, begin, end), "awaited_ns": covered(awaited, begin, end)}
        work = end - begin - covered(idle, begin, end)
        rows.append(pd.DataFrame({**facts, "number": number, **waits_by_step, "work_ns": work}))
    columns = ["rank", "device", "start_ns", "time_ns", "number", "waited_ns", "awaited_ns", "work_ns"]
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=columns)


def ranks(timeline: Timeline) -> Table:
    """Return one row per rank, the one that the others wait for the longest first; no rows without collectives."""
    kernels = _window_communication(timeline)
    if not (kernels["collective"] >= 0).any():
        return Table(pd.DataFrame(columns=RANKS.column_names), (_ALONE,))
    steps = _rank_steps(timeline)
    mapping = timeline.profile.recorded("ranks")
    by_step = steps.groupby("rank")
    facts = aggregate(by_step, device=("device", "first"), steps=("time_ns", "size"), step_ns=("time_ns", "median"))
    facts["waited_ns"] = by_step["waited_ns"].mean()
    facts["work_ns"] = by_step["work_ns"].mean()
    by_rank = kernels.groupby("rank")
    facts["awaited_ns"] = by_step["awaited_ns"].mean()
    # share of the collectives in which the rank takes part
    facts["last_pct"] = 100.0 * by_rank["is_last"].sum() / by_rank["is_decided"].sum().clip(lower=1)
    whole_capture = whole_window(timeline.profile)
    all_kernels = _window_communication(timeline.at(whole_capture))
    all_kernels = all_kernels.sort_values(["awaited", "start_ns"], ascending=[False, True], kind="stable")
    latest = all_kernels.drop_duplicates("rank").set_index("rank")
    facts["late_ns"] = latest["awaited"]
    facts["late_at_ns"] = latest["start_ns"] - whole_capture.start_ns
    process = by_rank["process"].first()
    if (hosts := _hosts(timeline)) is not None and len(mapping):
        facts["host"] = process.map(hosts)
    facts["pid"] = process.map(pids(timeline)).astype(NULLABLE)
    if (job := timeline.profile.job) is not None:
        facts["like_rank"] = facts.index.map(job.like)
    clock = mapping.set_index("process")
    for name in ("shift_ns", "spread_ns"):
        facts[name] = process.map(clock[name]).astype(NULLABLE)
    table = facts.reset_index().sort_values(["awaited_ns", "rank"], ascending=[False, True], ignore_index=True)
    lone = (_LONE,) if kernels["is_lone"].any() else ()
    return Table(table[[name for name in RANKS.column_names if name in table]], (*_rank_notes(timeline), *lone))


_LONE: Final = "Collectives with uncaptured ranks do not count as work: they may be waiting for those ranks."
_ALONE: Final = (
    "No two GPUs of this capture meet in a collective (nightsight report rank*.sqlite joins the ranks of a job)."
)


def _rank_notes(timeline: Timeline) -> tuple[str, ...]:
    """Return notes on the source of the rank numbers, and on how the clocks were aligned."""
    table = timeline.profile.recorded("ranks")
    if not len(table):
        return ("The capture has no ranks; they are numbered by GPU.",)
    notes = []
    if (source := ", ".join(sorted(set(table["source"].astype("str"))))) not in ("NCCL", "torch.profiler"):
        notes.append(f"Source of the rank numbers: {source}.")
    if not are_ranks_known(timeline):
        notes.append("Ranks do not have one GPU each, so they are numbered by GPU.")
    shifted = table[table["shift_ns"].notna() & table["spread_ns"].notna()]
    if len(shifted):
        spread = format_value(int(shifted["spread_ns"].max()), "spread_ns")
        notes.append(
            f"The times of {counted(len(shifted), 'rank')} were shifted to the clock of "
            f"rank {table['rank'].iloc[0]} so that collectives end together; nine in ten do so within {spread}."
        )
    counts = _rank_steps(timeline).groupby("rank").size()
    if (short := counts[counts < counts.max()]).size:
        step_counts = ", ".join(f"{rank} ({steps:,})" for rank, steps in list(short.items())[:_MOST_NAMED])
        notes.append(f"Not all ranks have {counts.max():,} steps: {step_counts}.")
    return tuple(notes)


def rank_steps(timeline: Timeline) -> Table:
    """Return one row per rank and step; if there are many steps, per group of consecutive steps."""
    if not (_window_communication(timeline)["collective"] >= 0).any():
        return Table(pd.DataFrame(columns=RANK_STEPS.column_names), (_ALONE,))
    steps = _rank_steps(timeline)
    size = -(-int(steps["number"].max() + 1) // _MOST_STEPS)
    grouped = steps.assign(first=steps["number"] // size * size).groupby(["rank", "first"])
    table = aggregate(grouped, steps=("time_ns", "size"), start_ns=("start_ns", "min"), time_ns=("time_ns", "mean"))
    table = table.assign(**{name: grouped[name].mean() for name in ("waited_ns", "work_ns")}).reset_index()
    table["start_ns"] -= timeline.window.start_ns
    return Table(table.rename(columns={"first": "number"})[RANK_STEPS.column_names])


ANALYSES: Final = (Analysis(RANKS, ranks), Analysis(RANK_STEPS, rank_steps), Analysis(COLLECTIVES, collectives))
