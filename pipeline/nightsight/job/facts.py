"""Facts that relate a capture to the others of its job."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.communication import communicating, communication, overlapping_work, pids
from nightsight.events.launches import GPU_TABLES
from nightsight.events.sharing import cards
from nightsight.events.steps import worked_steps
from nightsight.events.timeline import Timeline
from nightsight.intervals import Ints, Spans
from nightsight.model.report import Environment, Finding, Profile
from nightsight.tables import empty, used_devices

# the last number in a file name that is marked as a rank
RANK_IN_NAME: Final = (
    re.compile(r"(?i)rank[-_. ]?(\d{1,6})(?!\d)(?!.*rank[-_. ]?\d)"),
    re.compile(r"(?i)(?<![a-z0-9])r(\d{1,6})(?![0-9a-z])(?!.*(?<![a-z0-9])r\d)"),
)
IDS: Final = ("process", "thread", "end_thread", "forward_thread")
# tables of all ranks that the report of a job needs
_WHOLE: Final = ("ranks", "launched_as", "devices", "collectives")


@dataclass(frozen=True, eq=False)
class Part:
    """The capture of one rank or more, and the name of its file."""

    name: str
    profile: Profile

    @cached_property
    def facts(self) -> "Facts":
        """The facts that relate it to others."""
        return facts_of(self.name, Timeline(self.profile))


@dataclass(frozen=True, eq=False)
class Facts:
    """Facts that relate a capture to the others of its job; small, however large the capture is.

    tables: those that the report of a job needs whole. processes: those that used GPUs, each with the GPU on which it
    communicated, else its most used GPU. ids: of all processes and threads, rising. used: numbers of GPUs. span: start
    of the first event and end of the last. epoch_ns: as in `Profile`. communication: of the capture, without
    `operation`.
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
        """The identities of the GPUs on which it communicates, as far as known."""
        devices = self.table("devices")
        used = devices["device"].isin(self.communication["device"])
        return set(cards(devices[used])) - {""}

    @property
    def communicators(self) -> set[str]:
        """The known communicators of the capture; those of NCCL are unique to the job."""
        return {*self.table("ranks")["group"].astype("str"), *self.communication["group"].astype("str")} - {""}

    @property
    def tells(self) -> bool:
        """Whether the capture or its launcher gives its rank among several."""
        return bool((self.table("ranks")["world_size"].fillna(2) > 1).any()) or len(self.table("launched_as")) > 0

    @property
    def is_of_job(self) -> bool:
        """Whether its program communicates, or something gives its rank among several."""
        return len(self.table("collectives")) > 0 or self.tells or len(self.communication) > 0


@dataclass(frozen=True, eq=False)
class Apart:
    """Facts of a capture whose events are not loaded, with the parts of them that matter; by GPU, as in `Job`."""

    facts: Facts
    overlapping_work: Mapping[int, Spans]
    steps: Mapping[int, Spans]
    pids: Mapping[int, int]


def apart(part: Part) -> Apart:
    """Return the facts of a capture that are needed without its events."""
    timeline = Timeline(part.profile)
    facts = facts_of(part.name, timeline)
    devices = facts.communication["device"].unique().tolist()
    steps = {device: worked_steps(timeline, device) for device in devices}
    return Apart(facts, overlapping_work(timeline), steps, pids(timeline))


def facts_of(name: str, timeline: Timeline) -> Facts:
    """Return the facts that relate a capture, whose file has that name, to others."""
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
    """Whether captures can belong to one job: they give their ranks, or their names differ only in numbers."""
    are_alike = len({re.sub(r"\d+", "#", facts.name) for facts in every}) == 1
    return all(facts.tells for facts in every) or (are_alike and len(every) > 1)


def name_of_job(names: Sequence[str]) -> str:
    """Return the common part of the ranks' file names: `train` for `train_rank0` and `train_rank1`."""
    for pattern in (*RANK_IN_NAME, re.compile(r"\d+(?!.*\d)")):
        bare = {pattern.sub("", name) for name in names}
        if len(bare) == 1:
            return next(iter(bare)).strip("-_. ") or "job"
    return "job"


def _processes(timeline: Timeline) -> pd.DataFrame:
    """Return the processes of a capture that used GPUs, each with the GPU it communicated on, else used most."""
    tables, communicates = timeline.profile.tables, communicating(timeline)
    used, first = [pd.DataFrame({"process": [], "device": [], "time": []})], 0
    for name in GPU_TABLES:
        if name in tables:
            table = tables[name]
            time = (table["end_ns"] - table["start_ns"]).to_numpy(dtype=np.float64)
            time = np.where(communicates[first : first + len(table)], 1e18, time)
            used.append(table[["process", "device"]].assign(time=time))
            first += len(table)
    spent = pd.concat(used).dropna().groupby(["process", "device"])["time"].sum().reset_index()
    spent = spent.sort_values(["time", "device"], ascending=[False, True]).drop_duplicates("process")
    found = spent.astype({"process": "int64", "device": "int64"}).sort_values(["device", "process"], ignore_index=True)
    if not len(found):
        # without GPUs, the processes that call collectives
        called = tables.get("collectives", empty("collectives"))["process"].unique().tolist()
        found = pd.DataFrame({"process": called or [-1], "device": -1})
    return found[["process", "device"]]


def _span(profile: Profile) -> tuple[int, int]:
    """Return when the first event begins and the last one ends."""
    # of operations without possible times, none may be known
    timed = [table for table in profile.tables.values() if "start_ns" in table and table["start_ns"].notna().any()]
    ends = (table["end_ns" if "end_ns" in table else "start_ns"].max() for table in timed)
    return min((int(table["start_ns"].min()) for table in timed), default=0), max(map(int, ends), default=0)


def _known_ids(profile: Profile) -> Ints:
    """Return all ids of processes and threads in a profile, in rising order."""
    found = [np.empty(0, dtype=np.int64)]
    for table in profile.tables.values():
        found += [table[name].dropna().to_numpy(dtype=np.int64) for name in IDS if name in table]
    return np.unique(np.concatenate(found))
