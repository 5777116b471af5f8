"""What ranks do together: their collectives, who keeps the others waiting, and how that goes step by step."""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.communication import PAIRWISE, are_ranks_known, of_all_ranks, pids, ranks_of, work_beside
from nightsight.events.peaks import published
from nightsight.events.steps import first_numbers, steps_in_window
from nightsight.events.timeline import Timeline, positions
from nightsight.events.window import whole_window
from nightsight.intervals import Flags, Floats, covered, inside, without
from nightsight.results.ranks import COLLECTIVES, RANK_STEPS, RANKS
from nightsight.system.parallel import once
from nightsight.tables import NULLABLE, empty
from nightsight.units import format_value

_KEYS: Final = ["name", "message_bytes", "group", "group_size"]
# what is transferred of n times the message on each link, as nccl-tests counts it: factors of (n - 1) / n
_LINKS: Final = {"allreduce": 2.0, "allgather": 1.0, "reducescatter": 1.0, "alltoall": 1.0}
_MOST_STEPS: Final = 150
_MOST_NAMED: Final = 8


@once
def _met(timeline: Timeline) -> pd.DataFrame:
    """Return what communicates and ends in the window, with what it waited for and what hides it; times in ns.

    Columns added to those of `communication`: rank, late (after the first of its collective), waits (for the last),
    exposed and exposed_wait (while nothing else ran on the device), is_last, awaited (how long all others only waited
    for the last, after the one before it had come), is_decided (whether one of its collective was the last), is_lone
    (not all of its communicator are known, so that the rest of it may be waiting, too).
    """
    window, found = timeline.window, of_all_ranks(timeline)
    found = found[(found["end_ns"] > window.start_ns) & (found["end_ns"] <= window.end_ns)].reset_index(drop=True)
    start, end = found["start_ns"].to_numpy(), found["end_ns"].to_numpy()
    collective = found["collective"].to_numpy()
    own = np.where(collective >= 0, collective, -1 - np.arange(len(found)))
    by_start = found.assign(own=own).groupby("own")["start_ns"]
    first, last = by_start.transform("min").to_numpy(), by_start.transform("max").to_numpy()
    # pairwise communication is not a reason to wait for all
    together = (collective >= 0) & ~found["name"].isin(PAIRWISE).to_numpy()
    # a kernel that ended before the last one began did not wait for it: small messages are sent ahead
    waits = np.where(together, np.minimum(last, end) - start, 0)
    # since the one before it of the same collective came, none for the first
    since = np.full(len(found), -1, dtype=np.int64)
    order = np.lexsort((start, own))
    follows = np.flatnonzero(own[order][1:] == own[order][:-1]) + 1
    since[order[follows]] = start[order[follows]] - start[order[follows - 1]]
    is_last = together & (start == last) & (since > 0)
    hidden, hidden_wait = np.zeros((2, len(found)), dtype=np.int64)
    for device, mine in positions(found["device"].to_numpy()).items():
        spans = work_beside(timeline)[device]
        hidden[mine] = covered(spans, start[mine], end[mine])
        hidden_wait[mine] = covered(spans, start[mine], start[mine] + waits[mine])
    only = np.where(is_last, np.iinfo(np.int64).max, waits - hidden_wait)
    least = pd.Series(only).groupby(own).transform("min").to_numpy()
    members = found.assign(own=own).groupby("own")["device"].transform("nunique")
    lacks = (members < found["group_size"]).fillna(value=False).to_numpy(dtype=bool)
    return found.assign(
        is_lone=lacks & ~found["name"].isin(PAIRWISE).to_numpy(),
        rank=ranks_of(timeline, found["device"].to_numpy()),
        late=np.where(together, start - first, 0),
        waits=waits,
        exposed=end - start - hidden,
        exposed_wait=waits - hidden_wait,
        is_last=is_last,
        awaited=np.where(is_last, np.minimum(since, least), 0),
        is_decided=pd.Series(is_last).groupby(own).transform("any").to_numpy(),
    )


def collectives(timeline: Timeline) -> Table:
    """Return one row per collective, size of its message and communicator, the one with the most time first."""
    found, called = _met(timeline), _called(timeline)
    if not len(found):
        return Table(called)
    found, called = _with_mean_sizes(found, called)
    table = _of_kernels(timeline, found)
    notes = [] if table["skew_ns"].notna().any() else ["Only one rank is known, so its waits for others are unknown."]
    if not notes and (table["members"] < table["group_size"].astype("float64")).any():
        notes.append("Collectives with unknown ranks have neither transfer time nor bandwidth.")
    if "link_pct" in table and _hosts(timeline) is None:
        notes.append("The share of the link assumes that all ranks are on one machine, as their clocks suggest.")
    # collectives without a recorded kernel, such as those of the CPU next to those of GPUs
    pairs = ["name", "message_bytes"]
    others = called.merge(table[pairs].drop_duplicates(), on=pairs, how="left", indicator="of")
    others = others[others["of"] == "left_only"].drop(columns="of")
    table = pd.concat([table, others]) if len(others) else table
    order = ["total_ns", "name", "message_bytes", "group"]
    table = table.sort_values(order, ascending=[False, True, True, True], ignore_index=True)
    table["name"] = table["name"].replace("", "(unknown)")
    return Table(table[[name for name in COLLECTIVES.column_names if name in table]], tuple(notes))


def _with_mean_sizes(found: pd.DataFrame, called: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Give collectives of which each rank gives another size the mean size of their kind, as all-to-alls of experts do.

    `called`: what is called in the capture, without these: each has kernels.
    """
    # who sends gives something, and who receives nothing
    together = (found["collective"] >= 0) & ~found["name"].isin(PAIRWISE)
    by_collective = found[together].groupby("collective")["bytes"]
    differs = (by_collective.transform("min") != by_collective.transform("max")).fillna(value=False)
    kinds = found.loc[differs[differs].index, ["name", "group"]].drop_duplicates()
    if not len(kinds):
        return found, called
    key = pd.MultiIndex.from_frame(found[["name", "group"]].astype("str"))
    is_kind = key.isin(pd.MultiIndex.from_frame(kinds.astype("str")))
    means = found["bytes"].astype("float64").groupby(key.codes[0] * len(key.levels[1]) + key.codes[1]).transform("mean")
    sizes = found["bytes"].mask(is_kind, means.round().astype("Int64").astype(NULLABLE))
    return found.assign(bytes=sizes), called[~called["name"].isin(kinds["name"])]


def _of_kernels(timeline: Timeline, found: pd.DataFrame) -> pd.DataFrame:
    """Return one row per collective, size and communicator of what met; members: of how many devices it is known."""
    found = found.rename(columns={"bytes": "message_bytes"})
    found["ns"] = found["end_ns"] - found["start_ns"]
    # of all-to-alls each rank can give another size: they are one collective nonetheless
    met = found[found["collective"] >= 0]
    of_collective = met.groupby("collective").agg(
        late=("late", "max"), shortest=("ns", "min"), members=("device", "nunique")
    )
    each = met[[*_KEYS, "collective"]].drop_duplicates().join(of_collective, on="collective")
    each = each.groupby(_KEYS, dropna=False, observed=True).agg(
        skew_ns=("late", "mean"), transfer_ns=("shortest", "median"), members=("members", "max")
    )
    steps = max(len(timeline.window.repetitions), 1)
    table = found.groupby(_KEYS, dropna=False, observed=True).agg(
        total_ns=("ns", "sum"),
        devices=("device", "nunique"),
        size=("ns", "size"),
        avg_ns=("ns", "mean"),
        exposed=("exposed", "sum"),
    )
    table = table.join(each).reset_index()
    table["calls"] = table["size"] / table["devices"] / steps
    table["exposed_ns"] = table["exposed"] / table["devices"] / steps
    # some ranks cannot tell the transfer from their wait for the others
    members = table["group_size"].astype("float64").fillna(table["members"])
    table["transfer_ns"] = table["transfer_ns"].where(table["members"] >= members)
    moved, factor = _moved(table, members)
    table["algorithm_bytes_per_s"] = moved / table["transfer_ns"] * 1e9
    table["bus_bytes_per_s"] = table["algorithm_bytes_per_s"] * factor
    is_near = _is_on_one_host(timeline, found, table)
    if is_near.any() and (link := _link_bytes_per_s(timeline)) is not None:
        table["link_pct"] = (100.0 * table["bus_bytes_per_s"] / link).where(is_near)
    table["last_rank"], table["last_pct"] = _usually_last(found, table)
    table["group_size"] = members.astype("Int64").astype(NULLABLE)
    return table


def _called(timeline: Timeline) -> pd.DataFrame:
    """Return one row per collective and size that was called in the capture, with what is known without kernels."""
    called = timeline.profile.tables.get("collectives", empty("collectives")).rename(columns={"bytes": "message_bytes"})
    grouped = called.groupby(["name", "message_bytes", "group_size"], dropna=False, observed=True)
    steps = max(len(timeline.window.repetitions), 1)
    table = grouped.size().rename("size").reset_index()
    table["calls"] = table["size"] / max(called["process"].nunique(), 1) / steps
    table = table.sort_values(["size", "name", "message_bytes"], ascending=[False, True, True], ignore_index=True)
    types = dict.fromkeys(("total_ns", "group_size", "last_rank"), NULLABLE)
    names = [column.name for column in COLLECTIVES.columns if not column.is_optional]
    rest = dict.fromkeys(set(names) - {*table.columns, *types, "group"}, "float64")
    return table.assign(group="").reindex(columns=names).astype({**rest, **types, "name": "str"})


def _link_bytes_per_s(timeline: Timeline) -> float | None:
    """Return the published rate of NVLink in one direction, if all ranks that it may be given for have it."""
    tables = timeline.profile.tables
    rates = {published(name).nvlink_gb_per_s for name in tables.get("devices", empty("devices"))["name"].astype("str")}
    rate = rates.pop() if len(rates) == 1 else None
    return None if rate is None else rate / 2 * 1e9


def _hosts(timeline: Timeline) -> "pd.Series[int] | None":
    """Return the number of each process's machine; None if not known. One capture that tells no ranks is of one."""
    told = timeline.profile.tables.get("ranks", empty("ranks"))
    processes = of_all_ranks(timeline)["process"].unique()
    if not len(told) or len(processes) < 2:
        return pd.Series(0, index=processes)
    hosts = told.set_index("process")["host"].reindex(processes)
    return None if hosts.isna().any() else hosts.astype("int64")


def _is_on_one_host(timeline: Timeline, found: pd.DataFrame, table: pd.DataFrame) -> Flags:
    """Return for each row of `table` whether its ranks are on one machine; where that is unknown, if clocks say so."""
    hosts = _hosts(timeline)
    if hosts is None:
        is_one = not timeline.profile.table("ranks")["shift_ns"].notna().any()
        return np.full(len(table), is_one)
    counts = (
        found.assign(host=found["process"].map(hosts)).groupby(_KEYS, dropna=False, observed=True)["host"].nunique()
    )
    return np.asarray(table[_KEYS].merge(counts.reset_index(), on=_KEYS, how="left")["host"] == 1, dtype=bool)


def _moved(table: pd.DataFrame, members: "pd.Series[float]") -> tuple["pd.Series[float]", "pd.Series[float]"]:
    """Return the bytes of the whole message, as nccl-tests counts it, and how much of it each link carries."""
    compact = table["name"].astype("str").str.replace("_", "").str.lower()
    factor = pd.Series(1.0, index=table.index)
    for name, share in _LINKS.items():
        factor = factor.mask(compact.str.contains(name), share * (members - 1) / members)
    given = table["message_bytes"].astype("float64")
    return given.where(~compact.str.contains("allgather"), given * members), factor


def _usually_last(found: pd.DataFrame, table: pd.DataFrame) -> tuple["pd.Series[int]", Floats]:
    """Return for each row the rank that came last most often, and how often, in percent."""
    last = found[found["is_last"]]
    counts = last.groupby([*_KEYS, "rank"], dropna=False, observed=True).size().rename("times").reset_index()
    counts["of"] = counts.groupby(_KEYS, dropna=False, observed=True)["times"].transform("sum")
    first = counts.sort_values(["times", "rank"], ascending=[False, True]).drop_duplicates(_KEYS)
    both = table[_KEYS].merge(first, on=_KEYS, how="left")
    return both["rank"].astype(NULLABLE), (100.0 * both["times"] / both["of"]).to_numpy(dtype=np.float64)


# -- ranks ------------------------------------------------------------------------------------------------------------


@once
def _steps(timeline: Timeline) -> pd.DataFrame:
    """Return one row per rank and step: when it begins, how long it takes, and what of that was waiting for others.

    Columns: rank, device, number, start_ns, time_ns, waited_ns (while nothing else ran), awaited_ns (while all others
    only waited for it), work_ns (the rest, but for what may be waiting for ranks that have no capture). Without steps
    the window counts as one. The last one ends with the last work of the rank.
    """
    met, rows = _met(timeline), []
    begun = {device: steps_in_window(timeline, device) for device in met["device"].unique().tolist()}
    first = first_numbers(timeline, begun)
    for device, (begin, end) in begun.items():
        mine = met[met["device"] == device]
        start, waits = mine["start_ns"].to_numpy(), mine["waits"].to_numpy()
        bounds = (int(begin[0]), int(end[-1]))
        # what waits on several streams waits once
        waiting, idle = (
            without(inside(start, start + lengths, bounds), work_beside(timeline)[device])
            for lengths in (waits, np.where(mine["is_lone"], mine["end_ns"] - start, waits))
        )
        awaited = inside(start - mine["awaited"].to_numpy(), start, bounds)
        facts = {"rank": int(mine["rank"].iloc[0]), "device": device, "start_ns": begin, "time_ns": end - begin}
        number = first[device] + np.arange(len(begin))
        spent = {"waited_ns": covered(waiting, begin, end), "awaited_ns": covered(awaited, begin, end)}
        work = end - begin - covered(idle, begin, end)
        rows.append(pd.DataFrame({**facts, "number": number, **spent, "work_ns": work}))
    columns = ["rank", "device", "start_ns", "time_ns", "number", "waited_ns", "awaited_ns", "work_ns"]
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=columns)


def ranks(timeline: Timeline) -> Table:
    """Return one row per rank, the one that the others wait for the longest first; no rows if none meet."""
    met = _met(timeline)
    if not (met["collective"] >= 0).any():
        return Table(pd.DataFrame(columns=RANKS.column_names), (_ALONE,))
    steps = _steps(timeline)
    told = timeline.profile.tables.get("ranks")
    by_step = steps.groupby("rank")
    each = by_step.agg(device=("device", "first"), steps=("time_ns", "size"), step_ns=("time_ns", "median"))
    each["waited_ns"] = by_step["waited_ns"].mean()
    each["work_ns"] = by_step["work_ns"].mean()
    by_rank = met.groupby("rank")
    each["awaited_ns"] = by_step["awaited_ns"].mean()
    # of those that it takes part in
    each["last_pct"] = 100.0 * by_rank["is_last"].sum() / by_rank["is_decided"].sum().clip(lower=1)
    whole = whole_window(timeline.profile)
    of_all = _met(timeline.at(whole)).sort_values(["awaited", "start_ns"], ascending=[False, True], kind="stable")
    latest = of_all.drop_duplicates("rank").set_index("rank")
    each["late_ns"] = latest["awaited"]
    each["late_at_ns"] = latest["start_ns"] - whole.start_ns
    process = by_rank["process"].first()
    if (hosts := _hosts(timeline)) is not None and told is not None and len(told):
        each["host"] = process.map(hosts)
    each["pid"] = process.map(pids(timeline)).astype(NULLABLE)
    if (job := timeline.profile.job) is not None:
        each["like_rank"] = each.index.map(job.like)
    clock = told.set_index("process")[["shift_ns", "spread_ns"]] if told is not None else pd.DataFrame()
    for name in ("shift_ns", "spread_ns"):
        each[name] = process.map(clock[name]) if name in clock else None
        each[name] = each[name].astype(NULLABLE)
    table = each.reset_index().sort_values(["awaited_ns", "rank"], ascending=[False, True], ignore_index=True)
    lone = (_LONE,) if met["is_lone"].any() else ()
    return Table(table[[name for name in RANKS.column_names if name in table]], (*_who_is_who(timeline), *lone))


_LONE: Final = "Collectives with uncaptured ranks do not count as work: they may be waiting for those ranks."
_ALONE: Final = (
    "No two GPUs of this capture meet in a collective (nightsight report rank*.sqlite joins the ranks of a job)."
)


def _who_is_who(timeline: Timeline) -> tuple[str, ...]:
    """Return what the numbers of the ranks are, and how their clocks were brought together."""
    told = timeline.profile.tables.get("ranks")
    if told is None or not len(told):
        return ("The capture has no ranks; they are numbered by GPU.",)
    notes = []
    if (source := ", ".join(sorted(set(told["source"].astype("str"))))) not in ("NCCL", "torch.profiler"):
        notes.append(f"Source of the rank numbers: {source}.")
    if not are_ranks_known(timeline):
        notes.append("Ranks do not have one GPU each, so they are numbered by GPU.")
    moved = told[told["shift_ns"].notna() & told["spread_ns"].notna()]
    if len(moved):
        spread = format_value(int(moved["spread_ns"].max()), "spread_ns")
        notes.append(
            f"The times of {len(moved):,} {'rank' if len(moved) == 1 else 'ranks'} were shifted to the clock of rank "
            f"{told['rank'].iloc[0]} so that collectives end together; nine in ten do so within {spread}."
        )
    counts = _steps(timeline).groupby("rank").size()
    if (short := counts[counts < counts.max()]).size:
        named = ", ".join(f"{rank} ({steps:,})" for rank, steps in list(short.items())[:_MOST_NAMED])
        notes.append(f"Not all ranks have {counts.max():,} steps: {named}.")
    return tuple(notes)


def rank_steps(timeline: Timeline) -> Table:
    """Return one row per rank and step, or, of many steps, per group of steps that follow one another."""
    if not (_met(timeline)["collective"] >= 0).any():
        return Table(pd.DataFrame(columns=RANK_STEPS.column_names), (_ALONE,))
    steps = _steps(timeline)
    size = -(-int(steps["number"].max() + 1) // _MOST_STEPS)
    grouped = steps.assign(first=steps["number"] // size * size).groupby(["rank", "first"])
    table = grouped.agg(steps=("time_ns", "size"), start_ns=("start_ns", "min"), time_ns=("time_ns", "mean"))
    table = table.assign(**{name: grouped[name].mean() for name in ("waited_ns", "work_ns")}).reset_index()
    table["start_ns"] -= timeline.window.start_ns
    return Table(table.rename(columns={"first": "number"})[RANK_STEPS.column_names])


ANALYSES: Final = (Analysis(RANKS, ranks), Analysis(RANK_STEPS, rank_steps), Analysis(COLLECTIVES, collectives))
