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
from nightsight.events.sharing import gpu_ids
from nightsight.events.steps import worked_steps
from nightsight.events.timeline import Timeline
from nightsight.intervals import NOTHING, Ints, Spans
from nightsight.model.report import Environment, Finding, Profile
from nightsight.tables import empty, used_devices

# the last number in a file name that is marked as a rank
RANK_IN_NAME: Final = (
    re.compile(r"(?i)rank[-_. ]?(\d{1,6})(?!\d)(?!.*rank[-_. ]?\d)"),
    re.compile(r"(?i)(?<![a-z0-9])r(\d{1,6})(?![0-9a-z])(?!.*(?<![a-z0-9])r\d)"),
)
IDS: Final = ("process", "thread", "end_thread", "forward_thread")
# the tables that the report of a job needs from all ranks
_OF_ALL_RANKS: Final = ("ranks", "launched_as", "devices", "collectives")


@dataclass(frozen=True, eq=False)
class RankCapture:
    """The capture of one rank or more, and the name of its file."""

    name: str
    profile: Profile

    @cached_property
    def facts(self) -> "RankFacts":
        """The facts that relate it to the other captures."""
        return rank_facts(self.name, Timeline(self.profile))


@dataclass(frozen=True, eq=False)
class RankFacts:
    """Facts that relate a capture to the others of its job; small, however large the capture is.

    tables: those that the report of a job needs from all ranks. processes: those that used GPUs, each with the GPU on
    which it communicated, else its most used GPU. ids: of all processes and threads, rising. used: numbers of GPUs.
    span: start of the first event and end of the last. epoch_ns: as in `Profile`. communication: of the capture,
    without `operation`.
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
    def gpu_ids(self) -> set[str]:
        """The identities of the GPUs on which it communicates, as far as known."""
        devices = self.table("devices")
        return set(gpu_ids(devices[devices["device"].isin(self.communication["device"])])) - {""}

    @property
    def communicators(self) -> set[str]:
        """The known communicators of the capture; those of NCCL are unique to the job."""
        return {*self.table("ranks")["group"].astype("str"), *self.communication["group"].astype("str")} - {""}

    @property
    def has_rank(self) -> bool:
        """Whether the capture or its launcher gives its rank among several."""
        return bool((self.table("ranks")["world_size"].fillna(2) > 1).any()) or len(self.table("launched_as")) > 0

    @property
    def is_of_job(self) -> bool:
        """Whether its program communicates, or something gives its rank among several."""
        return len(self.table("collectives")) > 0 or self.has_rank or len(self.communication) > 0


@dataclass(frozen=True, eq=False)
class RankSummary:
    """Facts of a capture whose events are not loaded, and the facts about its events that `Job` needs, by GPU."""

    facts: RankFacts
    overlapping_work: Mapping[int, Spans]
    steps: Mapping[int, Spans]
    pids: Mapping[int, int]


def rank_summary(capture: RankCapture) -> RankSummary:
    """Return the facts of a capture that are needed without its events."""
    timeline = Timeline(capture.profile)
    facts = rank_facts(capture.name, timeline)
    devices = facts.communication["device"].unique().tolist()
    steps = {device: worked_steps(timeline, device) for device in devices}
    return RankSummary(facts, overlapping_work(timeline), steps, pids(timeline))


def rank_facts(name: str, timeline: Timeline) -> RankFacts:
    """Return the facts that relate a capture, whose file has that name, to others."""
    profile = timeline.profile
    return RankFacts(
        name=name,
        environment=profile.environment,
        findings=profile.findings,
        tables={table: profile.tables[table] for table in _OF_ALL_RANKS if table in profile.tables},
        processes=_processes(timeline),
        ids=_ids(profile),
        used=used_devices(profile.tables),
        span=_span(profile),
        epoch_ns=profile.epoch_ns,
        communication=communication(timeline).drop(columns="operation"),
    )


def are_of_one_job(captures: Sequence[RankFacts]) -> bool:
    """Whether captures can belong to one job: they give their ranks, or their names differ only in numbers."""
    are_alike = len({re.sub(r"\d+", "#", facts.name) for facts in captures}) == 1
    return all(facts.has_rank for facts in captures) or (are_alike and len(captures) > 1)


def name_of_job(names: Sequence[str]) -> str:
    """Return the common part of the ranks' file names: `train` for `train_rank0` and `train_rank1`."""
    for pattern in (*RANK_IN_NAME, re.compile(r"\d+(?!.*\d)")):
        stems = {pattern.sub("", name) for name in names}
        if len(stems) == 1:
            return stems.pop().strip("-_. ") or "job"
    return "job"


def _processes(timeline: Timeline) -> pd.DataFrame:
    """Return the processes of a capture that used GPUs, each with the GPU on which it communicated, else used most."""
    tables, communicates = timeline.profile.tables, communicating(timeline)
    times, first = [pd.DataFrame({"process": [], "device": [], "time": []})], 0
    for name in GPU_TABLES:
        if name in tables:
            table = tables[name]
            time = (table["end_ns"] - table["start_ns"]).to_numpy(dtype=np.float64)
            time = np.where(communicates[first : first + len(table)], 1e18, time)
            times.append(table[["process", "device"]].assign(time=time))
            first += len(table)
    used = pd.concat(times).dropna().groupby(["process", "device"])["time"].sum().reset_index()
    used = used.sort_values(["time", "device"], ascending=[False, True]).drop_duplicates("process")
    processes = used.astype({"process": "int64", "device": "int64"})[["process", "device"]]
    if len(processes):
        return processes.sort_values(["device", "process"], ignore_index=True)
    # without GPUs, the processes that call collectives
    callers = tables.get("collectives", empty("collectives"))["process"].unique().tolist()
    return pd.DataFrame({"process": callers or [-1], "device": -1})


def _span(profile: Profile) -> tuple[int, int]:
    """Return when the first event begins and the last one ends."""
    # the table of operations without possible times may contain no times at all
    timed = [table for table in profile.tables.values() if "start_ns" in table and table["start_ns"].notna().any()]
    ends = (table["end_ns" if "end_ns" in table else "start_ns"].max() for table in timed)
    return min((int(table["start_ns"].min()) for table in timed), default=0), max(map(int, ends), default=0)


def _ids(profile: Profile) -> Ints:
    """Return all ids of processes and threads in a profile, in rising order."""
    ids = [NOTHING]
    for table in profile.tables.values():
        ids += [table[name].dropna().to_numpy(dtype=np.int64) for name in IDS if name in table]
    return np.unique(np.concatenate(ids))
