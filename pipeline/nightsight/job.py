"""Makes one profile of those of the ranks of a job: which rank is which, on one clock, with numbers that do not clash.

What ends on one rank ends on the others, if all wait for it. So the ends of collectives tell how far apart the clocks
of captures are, and how well the ranks of different hosts can be compared.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Final, NoReturn

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from nightsight.errors import UsageError
from nightsight.events.communication import (
    ONE_CLOCK_NS,
    communicating,
    communication,
    kinds_of_calls,
    matched,
    pids,
    shift_between,
    work_beside,
)
from nightsight.events.launches import GPU_TABLES, gpus
from nightsight.events.sharing import cards
from nightsight.events.steps import worked_steps
from nightsight.events.timeline import Timeline
from nightsight.intervals import Ints, Spans
from nightsight.model import Environment, Finding, Job, Profile
from nightsight.tables import NULLABLE, TEXT, UNPROFILED, conform, empty, used_devices
from nightsight.units import format_ranks, format_value

# the last number in a name that says that it is of a rank
_NAMES: Final = (
    re.compile(r"(?i)rank[-_. ]?(\d{1,6})(?!\d)(?!.*rank[-_. ]?\d)"),
    re.compile(r"(?i)(?<![a-z0-9])r(\d{1,6})(?![0-9a-z])(?!.*(?<![a-z0-9])r\d)"),
)
_IDS: Final = ("process", "thread", "end_thread", "forward_thread")
_TIMES: Final = ("start_ns", "end_ns", "time_ns", "domain_start_ns")
# tables whose `device` is the number of a GPU on the machine; the CPU has -1
_OF_MACHINE: Final = ("devices", "memory_usage", "gpu_metrics", "gpu_page_faults")
# above that, times of ranks cannot be compared
_MOST_SPREAD_NS: Final = 1_000_000
_BITS: Final = 32
# with how many others a rank's clock is compared until one fits
_MOST_TRIED: Final = 8
_ALL_NAMED: Final = 8
# of a capture's length, and in ns: one that ends sooner than others by more did not end with them
_EARLY: Final = 0.1
_EARLY_NS: Final = 50_000_000
# what the report of a job needs of all ranks
_WHOLE: Final = ("ranks", "launched_as", "devices", "collectives")
# why collectives do not end together
_IN_TURNS: Final = ". Ranks that share a GPU take turns on it, so that one sees the end before the others."
_NOT_TOGETHER: Final = ", although all end together. The captures may be of different runs, or lack some collectives."
# only the rank in the largest communicator: there may be none of all ranks
_OF_NCCL: Final = "NCCL"


@dataclass(frozen=True, eq=False)
class Part:
    """The capture of one rank or more, and the name of its file."""

    name: str
    profile: Profile

    @cached_property
    def facts(self) -> "Facts":
        """What joins it with others."""
        return _facts(self.name, Timeline(self.profile))


@dataclass(frozen=True, eq=False)
class Facts:
    """What of a capture tells how it belongs to the others of its job; little, however large the capture is.

    tables: those that the report of a job needs whole. processes: that used GPUs, each with the one it communicated on,
    else used most. ids: of all processes and threads, rising. used: numbers of GPUs. span: when the first event begins
    and the last one ends. epoch_ns: as in `Profile`. communication: of the capture, without `operation`.
    """

    name: str
    environment: Environment
    findings: tuple[Finding, ...]
    tables: Mapping[str, pd.DataFrame]
    processes: pd.DataFrame
    ids: Ints
    used: set[int]
    span: tuple[int, int]
    epoch_ns: int | None
    communication: pd.DataFrame

    def table(self, name: str) -> pd.DataFrame:
        """Return one of the tables, without rows if it was not captured."""
        return self.tables.get(name, empty(name))

    @property
    def cards(self) -> set[str]:
        """What identifies the GPUs on which it communicates, as far as known."""
        devices = self.table("devices")
        used = devices["device"].isin(self.communication["device"])
        return set(cards(devices[used])) - {""}

    @property
    def communicators(self) -> set[str]:
        """Those that it is known to be in; of NCCL, no other job has them."""
        return {*self.table("ranks")["group"].astype("str"), *self.communication["group"].astype("str")} - {""}

    @property
    def tells(self) -> bool:
        """Whether the capture or its launcher tells which of several ranks it is of."""
        return bool((self.table("ranks")["world_size"].fillna(2) > 1).any()) or len(self.table("launched_as")) > 0

    @property
    def is_of_job(self) -> bool:
        """Whether its program communicates, or something tells which of several ranks it is of."""
        return len(self.table("collectives")) > 0 or self.tells or len(self.communication) > 0


@dataclass(frozen=True, eq=False)
class Apart:
    """Facts of a capture whose events will not be at hand, with what else of them counts; by GPU, as in `Job`."""

    facts: Facts
    beside: Mapping[int, Spans]
    steps: Mapping[int, Spans]
    pids: Mapping[int, int]


def apart(part: Part) -> Apart:
    """Return what is needed of a capture if its events are not."""
    timeline = Timeline(part.profile)
    facts = _facts(part.name, timeline)
    devices = facts.communication["device"].unique().tolist()
    steps = {device: worked_steps(timeline, device) for device in devices}
    return Apart(facts, work_beside(timeline), steps, pids(timeline))


def _facts(name: str, timeline: Timeline) -> Facts:
    profile = timeline.profile
    told = communication(timeline).drop(columns="operation")
    return Facts(
        name,
        profile.environment,
        profile.findings,
        {table: profile.tables[table] for table in _WHOLE if table in profile.tables},
        _processes(timeline),
        _known_ids(profile),
        used_devices(profile.tables),
        _span(profile),
        profile.epoch_ns,
        told,
    )


def are_of_one_job(every: Sequence[Facts]) -> bool:
    """Whether captures that are each of a job can be of one: they tell ranks, or their names differ only in numbers."""
    are_alike = len({re.sub(r"\d+", "#", facts.name) for facts in every}) == 1
    return all(facts.tells for facts in every) or (are_alike and len(every) > 1)


def name_of_job(names: Sequence[str]) -> str:
    """Return what the names of the ranks' files have in common: `train` for `train_rank0` and `train_rank1`."""
    for pattern in (*_NAMES, re.compile(r"\d+(?!.*\d)")):
        bare = {pattern.sub("", name) for name in names}
        if len(bare) == 1:
            return next(iter(bare)).strip("-_. ") or "job"
    return "job"


def joined(parts: Sequence[Part]) -> Profile:
    """Return one profile of all ranks; UsageError if they cannot be of one job.

    GPUs get the numbers of their ranks; those that are no rank's own come after them.
    """
    ranked = _ranked([part.facts for part in parts])
    return _profile(ranked, {place: parts[number].profile for place, number in enumerate(ranked.order)})


def joined_of_some(every: Sequence[Apart], read: Callable[[int], Profile], most: int) -> Profile:
    """Return one profile of a large job, with the events of a few captures that stand for all.

    read: returns the profile of a capture. most: how many to read. UsageError if they cannot be of one job.
    """
    ranked = _ranked([one.facts for one in every])
    told = _communication(ranked)
    of_rank = _alike(told, ranked, most)
    places = sorted(set(of_rank["like_part"].tolist()))
    profile = _profile(ranked, {place: read(ranked.order[place]) for place in places})
    beside, steps, numbers = dict[int, Spans](), dict[int, Spans](), dict[int, int]()
    for place, number in enumerate(ranked.order):
        one, devices, shift_ns = every[number], ranked.devices[place], ranked.clocks[place].shift_ns
        for of_all, own in ((beside, one.beside), (steps, one.steps)):
            of_all |= {devices[gpu]: (start + shift_ns, end + shift_ns) for gpu, (start, end) in own.items()}
        numbers |= {ranked.process(place, process): pid for process, pid in one.pids.items()}
    like = dict(zip(of_rank["rank"].tolist(), of_rank["like"].tolist(), strict=True))
    shown = sorted(set(like.values()))
    return replace(
        profile,
        job=Job(told, beside, steps, numbers, like),
        findings=(
            *profile.findings,
            Finding(
                "some_ranks",
                "info",
                f"{len(shown):,} of {len(like):,} ranks stand for the others",
                f"{format_ranks(shown)}: kernels, timeline, sums and causes are theirs. Each other rank "
                "is like one of them: in its collectives, and in how long it waits there. *Ranks*, their steps and "
                "*Collectives* are of all.",
            ),
        ),
    )


@dataclass(frozen=True, eq=False)
class _Ranked:
    """Captures in the order of their ranks: order[place] is the number of the one that was given.

    ranks: as `_identified` returns, `part` being the place. devices: what the number of each GPU becomes.
    """

    facts: list[Facts]
    order: list[int]
    ranks: pd.DataFrame
    clocks: list["_Clock"]
    devices: list[dict[int, int]]

    def process(self, place: int, process: int) -> int:
        """Return the number that a process of a capture gets."""
        return int(_renumbered(np.array([process]), self.facts[place].ids, place)[0])


def _ranked(every: Sequence[Facts]) -> _Ranked:
    ranks = _identified(every)
    _refuse_strangers(ranks, every)
    order = ranks.groupby("part")["rank"].min().sort_values(kind="stable").index.tolist()
    facts = [every[number] for number in order]
    ranks = ranks.assign(part=ranks["part"].map({number: place for place, number in enumerate(order)}))
    return _Ranked(facts, order, ranks, _clocks(facts), _devices(ranks, facts))


def _profile(ranked: _Ranked, held: Mapping[int, Profile]) -> Profile:
    """Return one profile of the captures that are held, by place, with what the others tell, too."""

    def moved(place: int, tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        ids, clock = ranked.facts[place].ids, ranked.clocks[place]
        return _moved(tables, (place, ids), ranked.devices[place], clock.shift_ns)

    tables = dict(_concatenated([moved(place, profile.tables) for place, profile in held.items()]))
    if len(held) < len(ranked.facts):
        tables |= _concatenated([moved(place, facts.tables) for place, facts in enumerate(ranked.facts)])
    tables.pop("launched_as", None)
    tables["ranks"] = _table(ranked)
    names = [
        format_ranks(ranked.ranks.loc[ranked.ranks["part"] == place, "rank"].tolist())
        for place in range(len(ranked.facts))
    ]
    named = list(zip(names, ranked.facts, ranked.clocks, strict=True))
    findings = [*_shared([(name, facts.findings) for name, facts, _ in named]), *_doubts(ranked.ranks, named)]
    missing = {name: why for profile in held.values() for name, why in profile.missing.items() if name not in tables}
    environment = _environment([facts.environment for facts in ranked.facts], tables)
    return Profile(tables, missing, environment, tuple(findings))


# -- which ranks stand for others -------------------------------------------------------------------------------------


def _communication(ranked: _Ranked) -> pd.DataFrame:
    """Return what all ranks communicate, by GPU and the order of their calls."""
    frames = []
    for place, facts in enumerate(ranked.facts):
        told, shift_ns = facts.communication, ranked.clocks[place].shift_ns
        frames.append(
            told.assign(
                **{name: told[name] + shift_ns for name in ("start_ns", "end_ns", "called_ns")},
                device=_numbered(told["device"].to_numpy(dtype=np.int64), ranked.devices[place]),
                process=_renumbered(told["process"].to_numpy(dtype=np.int64), facts.ids, place),
            )
        )
    found = pd.concat(frames).sort_values(["device", "called_ns", "start_ns"], kind="stable", ignore_index=True)
    return found.assign(collective=matched(found))


def _alike(told: pd.DataFrame, ranked: _Ranked, most: int) -> pd.DataFrame:
    """Return for each rank another, `like`, and the capture that has it, `like_part`; of at most so many captures.

    Ranks are alike if they call the same collectives, and spend as long in them: whoever the others wait for spends
    the least.
    """
    ranks = ranked.ranks.sort_values("rank", ignore_index=True)
    spent = (told["end_ns"] - told["start_ns"]).groupby(told["device"]).mean()
    device = [
        ranked.devices[place].get(gpu, -1) for place, gpu in zip(ranks["part"].tolist(), ranks["gpu"], strict=True)
    ]
    ranks = ranks.assign(
        spent=spent.reindex(device, fill_value=0.0).to_numpy(),
        kind=kinds_of_calls(told).reindex(device, fill_value="").to_numpy(),
    )
    by_time = ranks.sort_values(["spent", "rank"], ignore_index=True)
    sizes = ranks["kind"].value_counts().index.tolist()
    middle = [group.iloc[len(group) // 2] for kind in sizes for group in [by_time[by_time["kind"] == kind]]]
    spread = [by_time.iloc[int(place)] for place in np.linspace(0, len(by_time) - 1, 2 * most)]
    parts: list[int] = []
    for one in (by_time.iloc[0], *middle[: most - 1], by_time.iloc[-1], *spread):
        if one["part"] not in parts and len(parts) < most:
            parts.append(int(one["part"]))
    shown = ranks[ranks["part"].isin(parts)]
    # unlike ones are as far apart as can be
    far = np.abs(ranks["spent"].to_numpy()[:, None] - shown["spent"].to_numpy())
    far += (ranks["kind"].to_numpy()[:, None] != shown["kind"].to_numpy()) * (1.0 + far.max())
    # a rank that is shown is like itself, whatever others spend
    far[ranks["rank"].to_numpy()[:, None] == shown["rank"].to_numpy()] = -1.0
    nearest = shown.iloc[far.argmin(axis=1)]
    return ranks.assign(like=nearest["rank"].to_numpy(), like_part=nearest["part"].to_numpy())


# -- which rank -------------------------------------------------------------------------------------------------------


def _identified(every: Sequence[Facts]) -> pd.DataFrame:
    """Return the ranks of all captures, with columns part, process, gpu (-1 if unknown), rank, world_size and source.

    What captures tell counts, else what launchers said, else the names of files; if not all have a number then, or not
    one of their own because communicators number their ranks anew, the order of the files. UsageError if nothing but
    communicators that they do not share tells ranks.
    """
    found = [facts.processes.assign(part=number) for number, facts in enumerate(every)]
    named = next((numbers for pattern in _NAMES if (numbers := _numbered_names(pattern, every))), None)
    stranger = _stranger(every)
    for others in ((), (_OF_NCCL,)) if stranger is None else ((_OF_NCCL,),):
        ranks = pd.concat(
            [
                _told(facts, rows, None if named is None else named[number], without=others)
                for number, (facts, rows) in enumerate(zip(every, found, strict=True))
            ],
            ignore_index=True,
        )
        is_known, is_own = ranks["rank"].notna().all(), ranks["rank"].is_unique
        if is_known and (is_own or _OF_NCCL not in set(ranks["source"])):
            return ranks.astype({"rank": "int64"})
    if stranger is not None:
        raise UsageError(
            f"{every[0].name} and {stranger.name} have no communicator in common: they are of different jobs or runs",
            "Pass the captures of one job, or --apart for a report of each. If they are of one, put the number of the "
            "rank into their names: train_rank0, train_rank1.",
        )
    unnamed = pd.concat(found, ignore_index=True)
    unknown = pd.array([None] * len(unnamed), dtype=NULLABLE)
    return unnamed.assign(rank=np.arange(len(unnamed)), world_size=unknown, source="order of the files")


def _stranger(every: Sequence[Facts]) -> Facts | None:
    """Return the first capture that shares no communicator with the first one, not even through others."""
    if not all(facts.communicators for facts in every):
        return None
    known, rest = set(every[0].communicators), list(every[1:])
    while joining := [facts for facts in rest if facts.communicators & known]:
        known = known.union(*(facts.communicators for facts in joining))
        rest = [facts for facts in rest if facts not in joining]
    return rest[0] if rest else None


def _numbered_names(pattern: re.Pattern[str], every: Sequence[Facts]) -> list[int] | None:
    """Return the numbers of ranks in the names of files; None unless each has one."""
    found = [pattern.search(facts.name) for facts in every]
    return [int(match[1]) for match in found if match] if all(found) else None


def _processes(timeline: Timeline) -> pd.DataFrame:
    """Return the processes of a capture that used GPUs, each with the one it communicated on, else used most."""
    tables, communicates = timeline.profile.tables, communicating(timeline)
    used, first = [pd.DataFrame({"process": [], "gpu": [], "time": []})], 0
    for name in GPU_TABLES:
        if name in tables:
            table = tables[name]
            time = (table["end_ns"] - table["start_ns"]).to_numpy(dtype=np.float64)
            time = np.where(communicates[first : first + len(table)], 1e18, time)
            used.append(pd.DataFrame({"process": table["process"], "gpu": gpus(table), "time": time}))
            first += len(table)
    spent = pd.concat(used).dropna().groupby(["process", "gpu"])["time"].sum().reset_index()
    spent = spent.sort_values(["time", "gpu"], ascending=[False, True]).drop_duplicates("process")
    found = spent.astype({"process": "int64", "gpu": "int64"}).sort_values(["gpu", "process"], ignore_index=True)
    if not len(found):
        # on CPUs alone, those that call collectives
        called = tables.get("collectives", empty("collectives"))["process"].unique().tolist()
        found = pd.DataFrame({"process": called or [-1], "gpu": -1})
    return found[["process", "gpu"]]


def _told(facts: Facts, processes: pd.DataFrame, named: int | None, *, without: Collection[str]) -> pd.DataFrame:
    """Return the processes of a capture with the ranks that it tells, its launcher did, or its name does."""
    told = facts.table("ranks")
    told = told[~told["source"].isin(without)]
    if len(told):
        others = told[~told["process"].isin(processes["process"])].assign(part=processes["part"].iloc[0], gpu=-1)
        ranks = processes.merge(told, on="process", how="left")
        ranks = pd.concat([ranks, others])[["process", "gpu", "part", "rank", "world_size", "source"]]
        return ranks[ranks["rank"].notna() | ranks["gpu"].ge(0)].astype({"source": "str"})
    unknown = pd.array([None] * len(processes), dtype=NULLABLE)
    launched = facts.table("launched_as")
    if len(launched) == len(processes) == 1:
        # of a launcher that was started in turn, the variables say which node it is
        return processes.assign(**{name: launched[name].array for name in ("rank", "world_size", "source")})
    if named is not None and len(processes) == 1:
        return processes.assign(rank=named, world_size=unknown, source="file name")
    return processes.assign(rank=unknown, world_size=unknown, source="")


def _refuse_strangers(ranks: pd.DataFrame, every: Sequence[Facts]) -> None:
    """Raise UsageError if a rank is there twice, or ranks say that they are of jobs of different sizes."""
    sized = ranks[ranks["source"] != _OF_NCCL].dropna(subset=["world_size"])
    if sized["world_size"].nunique() > 1:
        said = ", ".join(
            f"{every[int(some['part'].iloc[0])].name} of {size}" for size, some in sized.groupby("world_size")
        )
        raise UsageError(f"these are ranks of different jobs: {said}", "Pass the captures of one job.")
    told = pd.concat([facts.table("ranks").assign(part=number) for number, facts in enumerate(every)])
    told = told[told["group"].astype("str") != ""].astype({"group": "str"})
    # a copy under another name tells the same, whatever rank that name says
    for keys, known in (["rank"], ranks), (["rank", "group"], told):
        doubled = known[known.duplicated(keys, keep=False)].sort_values(keys, kind="stable")
        if len(doubled):
            rank = int(doubled["rank"].iloc[0])
            first, second = (every[number].name for number in doubled["part"].iloc[:2])
            _refuse_doubled(f"rank {rank} is there twice", first, second)
    recorded: dict[object, Facts] = {}
    for facts in every:
        # simulated ranks may do the same to the nanosecond; they tell different ranks, and a copy does not
        one = recorded.setdefault((facts.epoch_ns, facts.span, *facts.table("ranks")["rank"]), facts)
        if facts.epoch_ns is not None and one is not facts:
            _refuse_doubled("one capture is there twice", one.name, facts.name)


def _refuse_doubled(what: str, first: str, second: str) -> NoReturn:
    raise UsageError(
        f"{what}: {f'{first} and {second}' if first != second else f'two files named {first}'}",
        "Pass one capture of each rank of one job, or --apart for a report of each.",
    )


def _devices(ranks: pd.DataFrame, every: Sequence[Facts]) -> list[dict[int, int]]:
    """Return for each capture what the number of each GPU in it becomes: that of its (first) rank, else a new one."""
    found: list[dict[int, int]] = [{} for _ in every]
    for part, gpu, rank in ranks.sort_values("rank")[["part", "gpu", "rank"]].itertuples(index=False):
        if gpu >= 0:
            found[part].setdefault(int(gpu), int(rank))
    following = int(ranks["rank"].max()) + 1
    for facts, numbers in zip(every, found, strict=True):
        for gpu in sorted(facts.used - numbers.keys()):
            numbers[int(gpu)] = following
            following += 1
    return found


def _table(ranked: _Ranked) -> pd.DataFrame:
    """Return the table `ranks` with the numbers that processes got, by rank."""
    kept = ranked.ranks[ranked.ranks["process"] >= 0].sort_values("rank", kind="stable")
    parts = kept["part"].tolist()
    process = [ranked.process(*pair) for pair in zip(parts, kept["process"].to_numpy(dtype=np.int64), strict=True)]
    of_part = [ranked.clocks[part] for part in parts]
    shifts = pd.array([clock.shift_ns or None for clock in of_part], dtype=NULLABLE)
    spreads = pd.array([clock.spread_ns for clock in of_part], dtype=NULLABLE)
    hosts = pd.array([_hosts(ranked.facts)[part] for part in parts], dtype=NULLABLE)
    return conform("ranks", kept.assign(process=process, shift_ns=shifts, spread_ns=spreads, host=hosts))


def _hosts(every: Sequence[Facts]) -> list[int | None]:
    """Return the number of the machine of each capture, counted from 0 in this order; None unless known for all."""
    nodes = [facts.table("launched_as")["node"].dropna().tolist()[:1] for facts in every]
    if not all(nodes):
        return [0 if len(every) == 1 else None] * len(every)
    numbers = {node: number for number, node in enumerate(dict.fromkeys(node for (node,) in nodes))}
    return [numbers[node] for (node,) in nodes]


# -- one clock --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Clock:
    """By how much times of a capture are moved, and how far single collectives are off; None if nothing told."""

    shift_ns: int
    spread_ns: int | None


def _clocks(every: Sequence[Facts]) -> list[_Clock]:
    """Return how the times of each capture become those of the first, or of one that has a collective in common."""
    said = [_said(every[0], facts) for facts in every]
    told = [
        facts.communication.assign(**{name: facts.communication[name] + said_ns for name in ("start_ns", "end_ns")})
        for facts, said_ns in zip(every, said, strict=True)
    ]
    clocks: list[_Clock | None] = [_Clock(0, None), *[None] * (len(every) - 1)]
    for place in range(1, len(every)):
        tried = 0
        # neighbours, and those of the first, are the likeliest to have a communicator in common
        for other in (0, *range(place - 1, 0, -1)):
            through = clocks[other]
            found = shift_between(told[other], told[place]) if through is not None else None
            if through is None or found is None:
                continue
            shift, spread = found
            # whatever differs by little is one clock, as are those of ranks that share a GPU; by how little, is said
            is_one = abs(shift) < ONE_CLOCK_NS or _share_a_clock(every[other], every[place], shift)
            clock = _Clock(through.shift_ns + (0 if is_one else shift), max(spread, abs(shift) * is_one))
            clocks[place] = min(clocks[place] or clock, clock, key=lambda one: one.spread_ns or 0)
            tried += 1
            # if the capture tells no communicators, they may have none in common
            if spread < ONE_CLOCK_NS or tried == _MOST_TRIED:
                break
    return [
        replace(clock, shift_ns=clock.shift_ns + said_ns) if clock else _guessed(every[0].span, facts.span, said_ns)
        for clock, facts, said_ns in zip(clocks, every, said, strict=True)
    ]


def _share_a_clock(one: Facts, other: Facts, shift_ns: int) -> bool:
    """Whether clocks of machines are known, and of one: then they tell more than collectives of ranks in turns.

    What would have to be moved by more than a capture is long was not recorded at one time, whatever clocks say.
    """
    is_near = abs(shift_ns) < min(facts.span[1] - facts.span[0] for facts in (one, other))
    return is_near and None not in (one.epoch_ns, other.epoch_ns) and bool(one.cards & other.cards)


def _said(first: Facts, other: Facts) -> int:
    """Return what is added to the times of a capture for those of the first, by the clocks of their machines."""
    return 0 if first.epoch_ns is None or other.epoch_ns is None else other.epoch_ns - first.epoch_ns


def _guessed(first: tuple[int, int], span: tuple[int, int], said_ns: int) -> _Clock:
    """Believe the clocks of the machines where captures overlap then; else let them begin together."""
    overlap = span[0] + said_ns < first[1] and first[0] < span[1] + said_ns
    return _Clock(said_ns if overlap else first[0] - span[0], None)


def _span(profile: Profile) -> tuple[int, int]:
    """Return when the first event begins and the last one ends."""
    timed = [table for table in profile.tables.values() if "start_ns" in table and len(table)]
    ends = (table["end_ns" if "end_ns" in table else "start_ns"].max() for table in timed)
    return min((int(table["start_ns"].min()) for table in timed), default=0), max(map(int, ends), default=0)


# -- one profile ------------------------------------------------------------------------------------------------------


def _moved(
    every: Mapping[str, pd.DataFrame], own: tuple[int, Ints], devices: Mapping[int, int], shift_ns: int
) -> dict[str, pd.DataFrame]:
    """Return the tables of a capture with ids, numbers of GPUs and times that it can share with others.

    own: its place among them, and its ids. What is of GPUs that it did not use is left out.
    """
    (place, ids), tables = own, {}
    for name, table in every.items():
        new: dict[str, Any] = {column: table[column] + shift_ns for column in _TIMES if column in table and shift_ns}
        for column in _IDS:
            if column in table:
                known = table[column].notna().to_numpy()
                values = _renumbered(table[column].to_numpy(dtype=np.int64, na_value=0), ids, place)
                new[column] = pd.Series(values, dtype=table[column].dtype).where(known).array
        if name in GPU_TABLES:
            new["gpu"] = pd.Series(_numbered(gpus(table), devices), dtype=NULLABLE).array
        elif name in _OF_MACHINE:
            new["device"] = _numbered(table["device"].to_numpy(dtype=np.int64), devices)
        moved = table.assign(**new)
        is_own = table["device"].isin([-1, *devices]) if name in _OF_MACHINE else slice(None)
        tables[name] = moved[is_own]
    return tables


def _known_ids(profile: Profile) -> Ints:
    """Return all ids of processes and threads in a profile, in rising order."""
    found = [np.empty(0, dtype=np.int64)]
    for table in profile.tables.values():
        found += [table[name].dropna().to_numpy(dtype=np.int64) for name in _IDS if name in table]
    return np.unique(np.concatenate(found))


def _renumbered(values: Ints, known: Ints, place: int) -> Ints:
    """Return ids that no other capture has."""
    return (place << _BITS) + np.searchsorted(known, values)


def _numbered(values: Ints, devices: Mapping[int, int]) -> Ints:
    """Return the new numbers of GPUs; that of the CPU stays."""
    distinct, codes = np.unique(values, return_inverse=True)
    return np.array([devices.get(number, number) for number in distinct.tolist()], dtype=np.int64)[codes]


def _concatenated(every: Sequence[Mapping[str, pd.DataFrame]]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each table of all captures that have it, with the columns that all of these have."""
    for name in dict.fromkeys(name for tables in every for name in tables):
        frames = [tables[name] for tables in every if name in tables]
        if len(frames) == 1 or name in UNPROFILED:
            yield name, frames[0]
            continue
        columns = [column for column in frames[0] if all(column in frame for frame in frames)]
        texts = [column for column in columns if frames[0][column].dtype == TEXT]
        rest = [frame.drop(columns=frame.columns.difference(columns).union(texts)) for frame in frames]
        whole = pd.concat(rest, ignore_index=True)
        united: dict[str, Any] = {
            str(column): union_categoricals([_texts(frame[column]) for frame in frames], sort_categories=True)
            for column in texts
        }
        yield name, whole.assign(**united)[columns]


def _texts(column: "pd.Series[Any]") -> "pd.Categorical[Any]":
    """Return a column of texts; one without rows may have categories of another type."""
    categories = column.cat.categories.astype("str")
    return pd.Categorical.from_codes(column.cat.codes.to_numpy(), categories=categories)


# -- what to know of it -----------------------------------------------------------------------------------------------


def _environment(every: Sequence[Environment], tables: Mapping[str, pd.DataFrame]) -> Environment:
    """Return what the captures say of the machine: all values of each, where they differ."""
    told = [asdict(environment) for environment in every]
    facts: dict[str, str] = {name: ", ".join(dict.fromkeys(one[name] for one in told if one[name])) for name in told[0]}
    facts["captured_utc"] = min((one["captured_utc"] for one in told if one["captured_utc"]), default="")
    if "devices" in tables:
        devices = tables["devices"]
        # a GPU that several ranks use has several numbers
        known = cards(devices)
        is_again = known.duplicated() & (known != "")
        counts = Counter(devices["name"][~is_again].astype("str"))
        facts["gpu"] = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counts.items())
    return Environment(**facts)


def _shared(told: Sequence[tuple[str, Sequence[Finding]]]) -> Iterator[Finding]:
    """Yield findings once, though ranks may have other numbers in them; one that not all share says whose it is."""
    alike: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for names, findings in told:
        for finding in findings:
            alike.setdefault((finding.rule, re.sub(r"[\d.,]+", "#", finding.title)), []).append((names, finding))
    for found in alike.values():
        _, first = found[0]
        whose = list(dict.fromkeys(names for names, _ in found))
        same = "" if all(finding == first for _, finding in found) else ", each with other numbers"
        more = f" and {len(whose) - _ALL_NAMED:,} more" * (len(whose) > _ALL_NAMED)
        detail = f"{', '.join(whose[:_ALL_NAMED])}{more}{same}: {first.detail}"
        yield first if len(whose) == len(told) and not same else replace(first, detail=detail)


def _doubts(ranks: pd.DataFrame, told: Sequence[tuple[str, Facts, _Clock]]) -> Iterator[Finding]:
    """Yield what the report of a job lacks: ranks, a common clock, one version of the profiler."""
    every = [facts for _, facts, _ in told]
    # which tell no communicators, though others do
    silent = [names for names, facts, _ in told if not (facts.communication["group"] != "").any()]
    silent = silent if len(silent) < len(told) else []
    known = set(ranks["rank"].tolist())
    sizes = pd.concat([ranks["world_size"], *(facts.table("ranks")["world_size"] for _, facts, _ in told)]).dropna()
    # a communicator may be of a part of the job, so that more ranks may be missing than are known to be
    size = max(int(sizes.max()) if len(sizes) else 0, max(known) + 1)
    if count := size - len(known):
        lacking = [*islice((rank for rank in range(size) if rank not in known), _ALL_NAMED)]
        yield Finding(
            "missing_ranks",
            "warning",
            f"{count:,} of {size:,} ranks {'is' if count == 1 else 'are'} missing",
            f"{format_ranks(lacking, count)} {'has' if count == 1 else 'have'} no capture here. Which rank the others "
            "wait for is told among those that are.",
            "Pass the captures of all ranks.",
        )
    elif (count := _lacking(every) - len(silent)) > 0:
        yield Finding(
            "missing_ranks",
            "warning",
            f"At least {count:,} {'rank is' if count == 1 else 'ranks are'} missing",
            "Communicators have more ranks than there are captures of. Which rank the others wait for is told among "
            "those that are here.",
            "Pass the captures of all ranks.",
        )
    if silent:
        yield Finding(
            "untold_communicators",
            "warning",
            f"{len(silent):,} {'capture tells' if len(silent) == 1 else 'captures tell'} no communicators",
            f"{', '.join(silent[:_ALL_NAMED])}: no kernel that communicates, or no payloads of NCCL. What these ranks "
            "do together with others is matched by its order and time, or not at all.",
            "Record CUDA and NVTX on all ranks, and export with --include-json=true.",
        )
    unknown = [names for names, _, clock in told[1:] if clock.spread_ns is None]
    if unknown:
        yield Finding(
            "unknown_clock",
            "warning",
            "Some ranks have no collective in common with the others",
            f"{', '.join(unknown[:_ALL_NAMED])}: their captures may be of different runs. Their times are as the "
            "clocks of their machines say, or moved so that all begin together, and do not tell who waits for whom.",
            "Pass captures of one run.",
        )
    loose = [(names, clock.spread_ns) for names, _, clock in told if (clock.spread_ns or 0) > _MOST_SPREAD_NS]
    if loose:
        whose, spread = max(loose, key=lambda one: one[1] or 0)
        cards = [card for _, facts, _ in told for card in facts.cards]
        are_shared = len(set(cards)) < len(cards)
        yield Finding(
            "loose_clock",
            "warning",
            "The times of the ranks do not fit together",
            f"{whose}: collectives end up to {format_value(spread or 0, 'spread_ns')} before or after those of the "
            f"other ranks{_IN_TURNS if are_shared else _NOT_TOGETHER}",
            "" if are_shared else "Pass captures of one run, each recorded from the same step on.",
        )
    yield from _ended_early(told)
    versions = Counter(f"{one.environment.collector} {one.environment.collector_version}".strip() for _, one, _ in told)
    if len(versions) > 1:
        yield Finding(
            "different_profilers",
            "info",
            "The ranks were captured with different profilers",
            f"{', '.join(f'{count} with {name}' for name, count in versions.items())}. Times of the CPU may differ for "
            "that reason.",
        )


def _lacking(every: Sequence[Facts]) -> int:
    """Return how many ranks of a communicator have no capture, of the one that lacks most."""
    members = pd.concat(
        [facts.communication[["group", "group_size", "device"]].assign(part=n) for n, facts in enumerate(every)]
    )
    known = members[members["group"] != ""].dropna().drop_duplicates().groupby("group")["group_size"]
    return int((known.max() - known.size()).max()) if len(known) else 0


def _ended_early(told: Sequence[tuple[str, Facts, _Clock]]) -> Iterator[Finding]:
    """Yield a finding if captures end long before most others do, on one clock."""
    known = [
        (names, facts, clock)
        for place, (names, facts, clock) in enumerate(told)
        if not place or clock.spread_ns is not None
    ]
    if len(known) < 2:
        return
    ends = np.array([facts.span[1] + clock.shift_ns for _, facts, clock in known])
    lengths = [facts.span[1] - facts.span[0] for _, facts, _ in known]
    # of two, one may be the one that is right
    usual = int(np.median(ends)) if len(known) > 2 else int(ends.max())
    least = max(_EARLY * float(np.median(lengths)), _EARLY_NS)
    early = [(usual - int(end), names) for (names, *_), end in zip(known, ends, strict=True) if usual - end > least]
    if early:
        most = format_value(max(early)[0], "length_ns")
        named = ", ".join(names for _, names in early[:_ALL_NAMED])
        yield Finding(
            "ended_early",
            "warning",
            f"{len(early):,} {'capture ends' if len(early) == 1 else 'captures end'} before the others",
            f"{named}: up to {most} earlier. The program died or was stopped there, or recording was. Later "
            "collectives are of the others alone.",
            "See how its program ended. Record all ranks for the same steps.",
        )
