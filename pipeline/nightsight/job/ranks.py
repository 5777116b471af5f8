"""The rank of each capture, and the numbers of GPUs and processes in a job."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np
import pandas as pd

from nightsight.errors import UsageError
from nightsight.intervals import Ints
from nightsight.job.clocks import Clock, clocks_of
from nightsight.job.facts import RANK_IN_NAME, Facts
from nightsight.tables import NULLABLE

_BITS: Final = 32
# only the rank in the largest communicator: there may be no communicator of all ranks
_OF_NCCL: Final = "NCCL"


@dataclass(frozen=True, eq=False)
class Ranked:
    """Captures in the order of their ranks: order[place] is the number of the given capture.

    ranks: as `_identified` returns, where `part` is the place. devices: the new number of each GPU.
    """

    facts: list[Facts]
    order: list[int]
    ranks: pd.DataFrame
    clocks: list[Clock]
    devices: list[dict[int, int]]

    def process(self, place: int, process: int) -> int:
        """Return the new number of a process of a capture."""
        return int(renumbered(np.array([process]), self.facts[place].ids, place)[0])


def by_rank(every: Sequence[Facts]) -> Ranked:
    """Return captures in the order of their ranks, on one clock; UsageError if they cannot be of one job."""
    ranks = _identified(every)
    _refuse_strangers(ranks, every)
    order = ranks.groupby("part")["rank"].min().sort_values(kind="stable").index.tolist()
    facts = [every[number] for number in order]
    ranks = ranks.assign(part=ranks["part"].map({number: place for place, number in enumerate(order)}))
    return Ranked(facts, order, ranks, clocks_of(facts), _devices_of(ranks, facts))


def numbered(values: Ints, devices: Mapping[int, int]) -> Ints:
    """Return the new numbers of GPUs; the CPU keeps its number."""
    distinct, codes = np.unique(values, return_inverse=True)
    return np.array([devices.get(number, number) for number in distinct.tolist()], dtype=np.int64)[codes]


def _identified(every: Sequence[Facts]) -> pd.DataFrame:
    """Return the ranks of all captures: part, process, device (-1 if unknown), rank, world_size and source.

    The captures decide, else the launchers, else the file names. If some ranks then have no number, or share one
    because each communicator numbers its ranks from 0, the order of the files decides. UsageError if the only source is
    communicators that the captures do not share.
    """
    found = [facts.processes.assign(part=number) for number, facts in enumerate(every)]
    named = next((numbers for pattern in RANK_IN_NAME if (numbers := _numbered_names(pattern, every))), None)
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
            f"{every[0].name} and {stranger.name} share no communicator: they come from different jobs or runs",
            "Pass the captures of one job, or --apart for a report of each. If they belong to one, put the rank number "
            "into their names: train_rank0, train_rank1.",
        )
    unnamed = pd.concat(found, ignore_index=True)
    unknown = pd.array([None] * len(unnamed), dtype=NULLABLE)
    return unnamed.assign(rank=np.arange(len(unnamed)), world_size=unknown, source="order of the files")


def _stranger(every: Sequence[Facts]) -> Facts | None:
    """Return the first capture that shares no communicator with the first one, even indirectly."""
    if not all(facts.communicators for facts in every):
        return None
    known, rest = set(every[0].communicators), list(every[1:])
    while joining := [facts for facts in rest if facts.communicators & known]:
        known = known.union(*(facts.communicators for facts in joining))
        rest = [facts for facts in rest if facts not in joining]
    return rest[0] if rest else None


def _numbered_names(pattern: re.Pattern[str], every: Sequence[Facts]) -> list[int] | None:
    """Return the rank numbers in the file names; None unless each has one."""
    found = [pattern.search(facts.name) for facts in every]
    return [int(match[1]) for match in found if match] if all(found) else None


def _told(facts: Facts, processes: pd.DataFrame, named: int | None, *, without: Collection[str]) -> pd.DataFrame:
    """Return the processes of a capture with their ranks, from the capture, its launcher or its name."""
    told = facts.table("ranks")
    told = told[~told["source"].isin(without)]
    if len(told):
        others = told[~told["process"].isin(processes["process"])].assign(part=processes["part"].iloc[0], device=-1)
        ranks = processes.merge(told, on="process", how="left")
        ranks = pd.concat([ranks, others])[["process", "device", "part", "rank", "world_size", "source"]]
        return ranks[ranks["rank"].notna() | ranks["device"].ge(0)].astype({"source": "str"})
    unknown = pd.array([None] * len(processes), dtype=NULLABLE)
    launched = facts.table("launched_as")
    if len(launched) == len(processes) == 1:
        # if the launcher itself was launched, the variables give the node
        return processes.assign(**{name: launched[name].array for name in ("rank", "world_size", "source")})
    if named is not None and len(processes) == 1:
        return processes.assign(rank=named, world_size=unknown, source="file name")
    return processes.assign(rank=unknown, world_size=unknown, source="")


def _refuse_strangers(ranks: pd.DataFrame, every: Sequence[Facts]) -> None:
    """Raise UsageError if a rank occurs twice, or if ranks report different job sizes."""
    sized = ranks[ranks["source"] != _OF_NCCL].dropna(subset=["world_size"])
    if sized["world_size"].nunique() > 1:
        said = ", ".join(
            f"{every[int(some['part'].iloc[0])].name} of {size}" for size, some in sized.groupby("world_size")
        )
        raise UsageError(f"the ranks belong to different jobs: {said}", "Pass the captures of one job.")
    told = pd.concat([facts.table("ranks").assign(part=number) for number, facts in enumerate(every)])
    told = told[told["group"].astype("str") != ""].astype({"group": "str"})
    # a copy under another name has the same content, whatever rank its name gives
    for keys, known in (["rank"], ranks), (["rank", "group"], told):
        doubled = known[known.duplicated(keys, keep=False)].sort_values(keys, kind="stable")
        if len(doubled):
            rank = int(doubled["rank"].iloc[0])
            first, second = (every[number].name for number in doubled["part"].iloc[:2])
            _refuse_doubled(f"rank {rank} occurs twice", first, second)
    recorded: dict[object, Facts] = {}
    for facts in every:
        # simulated ranks may be identical to the nanosecond but have different ranks; a copy does not
        one = recorded.setdefault((facts.epoch_ns, facts.span, *facts.table("ranks")["rank"]), facts)
        if facts.epoch_ns is not None and one is not facts:
            _refuse_doubled("one capture occurs twice", one.name, facts.name)


def _refuse_doubled(what: str, first: str, second: str) -> NoReturn:
    raise UsageError(
        f"{what}: {f'{first} and {second}' if first != second else f'two files named {first}'}",
        "Pass one capture of each rank of one job, or --apart for a report of each.",
    )


def _devices_of(ranks: pd.DataFrame, every: Sequence[Facts]) -> list[dict[int, int]]:
    """Return for each capture the new number of each of its GPUs: the number of its (first) rank, else a new one."""
    found: list[dict[int, int]] = [{} for _ in every]
    for part, device, rank in ranks.sort_values("rank")[["part", "device", "rank"]].itertuples(index=False):
        if device >= 0:
            found[part].setdefault(int(device), int(rank))
    following = int(ranks["rank"].max()) + 1
    for facts, numbers in zip(every, found, strict=True):
        for device in sorted(facts.used - numbers.keys()):
            numbers[device] = following
            following += 1
    return found


def hosts_of(every: Sequence[Facts]) -> list[int | None]:
    """Return the machine number of each capture, counted from 0 in this order; None unless known for all."""
    nodes = [facts.table("launched_as")["node"].dropna().tolist()[:1] for facts in every]
    if not all(nodes):
        return [0 if len(every) == 1 else None] * len(every)
    numbers = {node: number for number, node in enumerate(dict.fromkeys(node for (node,) in nodes))}
    return [numbers[node] for (node,) in nodes]


def renumbered(values: Ints, known: Ints, place: int) -> Ints:
    """Return ids that are unique among captures."""
    return (place << _BITS) + np.searchsorted(known, values)
