"""The rank of each capture, and the numbers of GPUs and processes in a job."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NoReturn

import numpy as np
import pandas as pd

from nightsight.errors import UsageError
from nightsight.intervals import Ints
from nightsight.job.clocks import CaptureClock, clocks_of
from nightsight.job.facts import RANK_IN_NAME, RankFacts
from nightsight.tables import NULLABLE
from nightsight.units import format_ranks

_BITS: Final = 32
# the source of ranks in the largest communicator, which need not contain all ranks of the job
_NCCL: Final = "NCCL"


@dataclass(frozen=True, eq=False)
class RankedCaptures:
    """Captures in the order of their ranks: order[place] is the number of the given capture.

    ranks: as `_identified` returns, where `capture` is the place. devices: the new number of each GPU.
    """

    facts: list[RankFacts]
    order: list[int]
    ranks: pd.DataFrame
    clocks: list[CaptureClock]
    devices: list[dict[int, int]]

    def process(self, place: int, process: int) -> int:
        """Return the new number of a process of a capture."""
        return int(self.renumbered_ids(place, np.array([process]))[0])

    def renumbered_ids(self, place: int, ids: Ints) -> Ints:
        """Return ids of processes or threads of a capture as numbers that are unique among captures."""
        return (place << _BITS) + np.searchsorted(self.facts[place].ids, ids)

    def renumbered_devices(self, place: int, devices: Ints) -> Ints:
        """Return the new numbers of GPUs of a capture; the CPU keeps its number."""
        distinct, codes = np.unique(devices, return_inverse=True)
        numbers = [self.devices[place].get(device, device) for device in distinct.tolist()]
        return np.array(numbers, dtype=np.int64)[codes]

    @cached_property
    def names(self) -> list[str]:
        """The ranks of each capture in words."""
        by_capture = [self.ranks.loc[self.ranks["capture"] == place, "rank"] for place in range(len(self.facts))]
        return [format_ranks(ranks.tolist()) for ranks in by_capture]


def by_rank(captures: Sequence[RankFacts]) -> RankedCaptures:
    """Return captures in the order of their ranks, on one clock; UsageError if they cannot be of one job."""
    ranks = _identified(captures)
    _refuse_strangers(ranks, captures)
    order = ranks.groupby("capture")["rank"].min().sort_values(kind="stable").index.tolist()
    facts = [captures[number] for number in order]
    ranks = ranks.assign(capture=ranks["capture"].map({number: place for place, number in enumerate(order)}))
    return RankedCaptures(facts, order, ranks, clocks_of(facts), _device_numbers(ranks, facts))


def _identified(captures: Sequence[RankFacts]) -> pd.DataFrame:
    """Return the ranks of all captures: capture, process, device (-1 if unknown), rank, world_size and source.

    The captures decide, else the launchers, else the file names. If some ranks then have no number, or share one
    because each communicator numbers its ranks from 0, the order of the files decides. UsageError if the only source is
    communicators that the captures do not share.
    """
    processes = [facts.processes.assign(capture=number) for number, facts in enumerate(captures)]
    in_names = next((numbers for pattern in RANK_IN_NAME if (numbers := _numbers_in_names(pattern, captures))), None)
    stranger = _stranger(captures)
    for unused_sources in ((), (_NCCL,)) if stranger is None else ((_NCCL,),):
        ranks = pd.concat(
            [
                _ranks_of(facts, rows, None if in_names is None else in_names[number], unused_sources)
                for number, (facts, rows) in enumerate(zip(captures, processes, strict=True))
            ],
            ignore_index=True,
        )
        if ranks["rank"].notna().all() and (ranks["rank"].is_unique or _NCCL not in set(ranks["source"])):
            return ranks.astype({"rank": "int64"})
    if stranger is not None:
        raise UsageError(
            f"{captures[0].name} and {stranger.name} share no communicator: they come from different jobs or runs",
            "Pass the captures of one job, or --apart for a report of each. If they belong to one, put the rank number "
            "into their names: train_rank0, train_rank1.",
        )
    unnumbered = pd.concat(processes, ignore_index=True)
    unknown = pd.array([None] * len(unnumbered), dtype=NULLABLE)
    return unnumbered.assign(rank=np.arange(len(unnumbered)), world_size=unknown, source="order of the files")


def _stranger(captures: Sequence[RankFacts]) -> RankFacts | None:
    """Return the first capture that shares no communicator with the first one, even indirectly."""
    if not all(facts.communicators for facts in captures):
        return None
    communicators, others = set(captures[0].communicators), list(captures[1:])
    while joining := [facts for facts in others if facts.communicators & communicators]:
        communicators = communicators.union(*(facts.communicators for facts in joining))
        others = [facts for facts in others if facts not in joining]
    return others[0] if others else None


def _numbers_in_names(pattern: re.Pattern[str], captures: Sequence[RankFacts]) -> list[int] | None:
    """Return the rank numbers in the file names; None unless each has one."""
    matches = [pattern.search(facts.name) for facts in captures]
    return [int(match[1]) for match in matches if match] if all(matches) else None


def _ranks_of(
    facts: RankFacts, processes: pd.DataFrame, in_name: int | None, unused_sources: Collection[str]
) -> pd.DataFrame:
    """Return the processes of a capture with their ranks, from the capture, its launcher or its name."""
    recorded = facts.table("ranks")
    recorded = recorded[~recorded["source"].isin(unused_sources)]
    if len(recorded):
        others = recorded[~recorded["process"].isin(processes["process"])]
        others = others.assign(capture=processes["capture"].iloc[0], device=-1)
        ranks = pd.concat([processes.merge(recorded, on="process", how="left"), others])
        ranks = ranks[["process", "device", "capture", "rank", "world_size", "source"]]
        return ranks[ranks["rank"].notna() | ranks["device"].ge(0)].astype({"source": "str"})
    unknown = pd.array([None] * len(processes), dtype=NULLABLE)
    launched = facts.table("launched_as")
    if len(launched) == len(processes) == 1:
        # if the launcher itself was launched, the variables give the node
        return processes.assign(**{name: launched[name].array for name in ("rank", "world_size", "source")})
    if in_name is not None and len(processes) == 1:
        return processes.assign(rank=in_name, world_size=unknown, source="file name")
    return processes.assign(rank=unknown, world_size=unknown, source="")


def _refuse_strangers(ranks: pd.DataFrame, captures: Sequence[RankFacts]) -> None:
    """Raise UsageError if a rank occurs twice, or if ranks report different job sizes."""
    sized = ranks[ranks["source"] != _NCCL].dropna(subset=["world_size"])
    if sized["world_size"].nunique() > 1:
        sizes = ", ".join(
            f"{captures[int(rows['capture'].iloc[0])].name} of {size}" for size, rows in sized.groupby("world_size")
        )
        raise UsageError(f"the ranks belong to different jobs: {sizes}", "Pass the captures of one job.")
    recorded = pd.concat([facts.table("ranks").assign(capture=number) for number, facts in enumerate(captures)])
    recorded = recorded[recorded["group"].astype("str") != ""].astype({"group": "str"})
    # a copy under another name has the same content, whatever rank its name gives
    for keys, rows in (["rank"], ranks), (["rank", "group"], recorded):
        repeated = rows[rows.duplicated(keys, keep=False)].sort_values(keys, kind="stable")
        if len(repeated):
            first, second = (captures[number].name for number in repeated["capture"].iloc[:2])
            _refuse_pair(f"rank {int(repeated['rank'].iloc[0])} occurs twice", first, second)
    originals: dict[object, RankFacts] = {}
    for facts in captures:
        # simulated ranks may be identical to the nanosecond but have different ranks; a copy does not
        original = originals.setdefault((facts.epoch_ns, facts.span, *facts.table("ranks")["rank"]), facts)
        if facts.epoch_ns is not None and original is not facts:
            _refuse_pair("one capture occurs twice", original.name, facts.name)


def _refuse_pair(problem: str, first: str, second: str) -> NoReturn:
    raise UsageError(
        f"{problem}: {f'{first} and {second}' if first != second else f'two files named {first}'}",
        "Pass one capture of each rank of one job, or --apart for a report of each.",
    )


def _device_numbers(ranks: pd.DataFrame, captures: Sequence[RankFacts]) -> list[dict[int, int]]:
    """Return for each capture the new number of each of its GPUs: the number of its (first) rank, else a new one."""
    numbers: list[dict[int, int]] = [{} for _ in captures]
    for capture, device, rank in ranks.sort_values("rank")[["capture", "device", "rank"]].itertuples(index=False):
        if device >= 0:
            numbers[capture].setdefault(int(device), int(rank))
    following = int(ranks["rank"].max()) + 1
    for facts, of_capture in zip(captures, numbers, strict=True):
        for device in sorted(facts.used - of_capture.keys()):
            of_capture[device] = following
            following += 1
    return numbers


def hosts_of(captures: Sequence[RankFacts]) -> list[int | None]:
    """Return the machine number of each capture, counted from 0 in this order; None unless known for all."""
    nodes = [facts.table("launched_as")["node"].dropna().tolist()[:1] for facts in captures]
    if not all(nodes):
        return [0 if len(captures) == 1 else None] * len(captures)
    numbers = {node: number for number, node in enumerate(dict.fromkeys(node for (node,) in nodes))}
    return [numbers[node] for (node,) in nodes]
