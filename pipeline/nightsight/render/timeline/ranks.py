"""Describes the ranks of a job for the timeline: their rows, similar ranks, their steps and collectives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.communication import (
    are_ranks_known,
    called_by_rank,
    collective_of_operations,
    kinds_of_calls,
    of_all_ranks,
    ranks_of,
)
from nightsight.events.kernel_names import communicates
from nightsight.events.steps import first_numbers, steps_in_window
from nightsight.events.timeline import Timeline
from nightsight.intervals import Floats, Ints
from nightsight.model.report import Profile, Result
from nightsight.render.timeline.columns import Columns, columns
from nightsight.render.tracks import Places
from nightsight.results.ranks import RANKS
from nightsight.results.steps import STEP_TIMES
from nightsight.system.parallel import memoize
from nightsight.tables import aggregate

_LEAST_FOLDED: Final = 4
# in addition to the rank that the others wait for
_MOST_SHOWN: Final = 3
# share of the window: ranks whose communication times differ by less are alike
_LEAST_APART: Final = 0.02
# share of a step: a rank that the others wait for longer than this is named
_LEAST_AWAITED: Final = 0.02


@dataclass(frozen=True)
class Rank:
    """A rank: the names of the groups of its rows, the place of the rank that represents it, and the first step.

    edges: the number of its step edges.
    """

    number: int
    groups: tuple[str, ...]
    like: int
    step: int
    edges: int


@dataclass(frozen=True)
class Ranks:
    """The ranks of a job, in the order of their numbers; `word` says what the numbers count.

    together: for each collective, the number of ranks, the place of the last rank to arrive, and its delay after the
    first. steps: the starts of steps, and the end of the last step of each rank, as differences from the start of the
    window. None: left out. of_program: the number of steps of the program before step 0. awaited: the place of the rank
    that the others wait for, -1 for none.
    """

    word: str
    each: tuple[Rank, ...]
    together: Columns | None
    steps: Columns | None
    of_program: int
    awaited: int

    def fitting(self, room: float) -> "Ranks":
        """Return the ranks with only those columns that fit into this number of bytes, compressed."""
        steps = self.steps if _size(self.steps) <= room else None
        together = self.together if _size(self.together) <= room - _size(steps) else None
        return replace(self, steps=steps, together=together)

    @property
    def bodies(self) -> list[Columns]:
        """The columns that are present, in the order in which they are written."""
        return [part for part in (self.together, self.steps) if part]

    def header(self, groups: Mapping[str, int], begins: Sequence[int]) -> dict[str, Any]:
        """Return the JSON description; groups: their numbers by name, begins: the offset of each of the bodies."""
        places = iter(begins)
        parts = [part and part.header(next(places)) for part in (self.together, self.steps)]
        each = [
            {
                "number": rank.number,
                "groups": [groups[label] for label in rank.groups if label in groups],
                "like": rank.like,
                "step": rank.step,
                "edges": rank.edges if self.steps else 0,
            }
            for rank in self.each
        ]
        together, steps = parts
        words = {"word": self.word, "each": each, "of_program": self.of_program, "awaited": self.awaited}
        return {**words, "together": together, "steps": steps}


def _size(part: Columns | None) -> int:
    return part.size if part else 0


def ranks_of_job(profile: Profile, results: Sequence[Result] = ()) -> Ranks | None:
    """Return the ranks of a job, from the results of its report; None if no two of them share a collective."""
    if not has_collectives(profile):
        return None
    timeline = Timeline.of(profile)
    all_ranks = of_all_ranks(timeline)
    devices = all_ranks["device"].unique()
    numbers = ranks_of(timeline, devices)
    order = np.argsort(numbers, kind="stable")
    devices, numbers = devices[order], numbers[order].tolist()
    word = "Rank" if are_ranks_known(timeline) else called_by_rank(timeline, int(devices[0])).split()[0]
    groups, drawn = _groups(timeline, all_ranks), set(timeline.operations.device.tolist())
    steps = {device: steps_in_window(timeline, device) for device in devices.tolist()}
    first = first_numbers(timeline, steps)
    edges = {
        device: np.append(begin, end[-1]) - timeline.window.start_ns
        for device, (begin, end) in steps.items()
        if len(begin) > 1 and device in drawn
    }
    awaited = _awaited_place(results, numbers)
    like = _stand_ins(timeline, all_ranks, devices, awaited)
    each = tuple(
        Rank(number, groups[device] if device in drawn else (), stand_in, first[device], len(edges.get(device, ())))
        for number, device, stand_in in zip(numbers, devices.tolist(), like, strict=True)
    )
    differences = [np.diff(of_device, prepend=0) for of_device in edges.values()]
    packed = columns({"edge": np.concatenate(differences)}) if len(edges) > 1 else None
    if packed is None:
        each = tuple(replace(rank, edges=0) for rank in each)
    return Ranks(word, each, _collective_columns(all_ranks, devices), packed, _of_program(results), awaited)


def has_collectives(profile: Profile) -> bool:
    """Whether any two ranks share a collective."""
    kernels = profile.recorded("kernels")
    # most captures have one rank: detect that quickly
    if profile.job is None and not any(map(communicates, kernels["name"].cat.categories)):
        return False
    return bool((of_all_ranks(Timeline.of(profile))["collective"] >= 0).any())


@memoize
def numbered_collectives(profile: Profile) -> Ints:
    """Return the number of the collective of each GPU operation, in order of their starts; -1 for none."""
    timeline = Timeline.of(profile)
    old = _by_begin(of_all_ranks(timeline)).index.to_numpy()
    number = np.full(int(old.max(initial=-1)) + 2, -1, dtype=np.int64)
    number[old] = np.arange(len(old))
    # the last entry is for -1
    return number[collective_of_operations(timeline)]


def _by_begin(kernels: pd.DataFrame) -> "pd.Series[int]":
    """Return the start of each collective on its first rank, in ascending order."""
    return kernels[kernels["collective"] >= 0].groupby("collective")["start_ns"].min().sort_values(kind="stable")


def _collective_columns(kernels: pd.DataFrame, devices: Ints) -> Columns:
    collectives = kernels[kernels["collective"] >= 0].sort_values("start_ns", kind="stable")
    by_collective = collectives.groupby("collective")
    order = _by_begin(kernels).index
    times = aggregate(
        by_collective, members=("device", "nunique"), first=("start_ns", "first"), late=("start_ns", "last")
    )
    last = by_collective["device"].last()
    place = pd.Series(np.arange(len(devices)), index=devices)
    return columns(
        {
            "members": times["members"].loc[order].to_numpy(dtype=np.int64),
            "last": place.loc[last.loc[order]].to_numpy(dtype=np.int64),
            "late": (times["late"] - times["first"]).loc[order].to_numpy(dtype=np.int64),
        }
    )


def _groups(timeline: Timeline, kernels: pd.DataFrame) -> dict[int, tuple[str, ...]]:
    """Return the names of the groups of each device's rows: its own, and its process's if that uses no other device."""
    places = Places(timeline.profile)
    pairs = kernels[["device", "process"]].drop_duplicates()
    is_own = ~pairs["process"].duplicated(keep=False) & ~pairs["device"].duplicated(keep=False)
    process = dict(zip(pairs["device"][is_own].tolist(), pairs["process"][is_own].tolist(), strict=True))
    return {
        device: (
            places.gpu(device)[1],
            *([f"Process {places.pids.get(process[device], process[device])}"] if device in process else []),
        )
        for device in pairs["device"].unique().tolist()
    }


def _awaited_place(results: Sequence[Result], numbers: list[int]) -> int:
    """Return the place of the rank that the others wait for the longest, from the table; -1 for none."""
    rows = next((result.rows for result in results if result.name == RANKS.name), pd.DataFrame())
    if not len(rows) or not {"rank", "awaited_ns", "step_ns"} <= set(rows):
        return -1
    if not rows["awaited_ns"].iloc[0] >= _LEAST_AWAITED * rows["step_ns"].iloc[0]:
        return -1
    rank = int(rows["rank"].iloc[0])
    return numbers.index(rank) if rank in numbers else -1


def _stand_ins(timeline: Timeline, kernels: pd.DataFrame, devices: Ints, awaited: int) -> list[int]:
    """Return the place of the rank that represents each rank: itself, or another rank that is like it."""
    window, job = timeline.window, timeline.profile.job
    inside = kernels[window.contains_end(kernels["end_ns"])]
    busy_ns = (inside["end_ns"] - inside["start_ns"]).groupby(inside["device"]).sum()
    share = busy_ns.reindex(devices, fill_value=0).to_numpy(dtype=np.float64) / max(window.end_ns - window.start_ns, 1)
    numbers = ranks_of(timeline, devices).tolist()
    own = list(range(len(devices)))
    if job is not None:
        # ranks that are not drawn are represented by one that is
        own = [numbers.index(job.like[number]) if number in job.like else place for place, number in enumerate(numbers)]
    representatives = sorted(set(own))
    if len(representatives) < _LEAST_FOLDED:
        return own
    folded = _alike(
        representatives,
        kinds_of_calls(kernels).reindex(devices).tolist(),
        share,
        awaited if awaited in representatives else -1,
    )
    return [folded[place] for place in own]


def _alike(places: list[int], kinds: list[str], share: Floats, awaited: int) -> dict[int, int]:
    """Return, for each of some ranks, the first rank with the same collectives and a similar time in them.

    The rank that the others wait for is not like any other. If there are many ranks, more of them count as alike.
    """
    ordered = sorted((place for place in places if place != awaited), key=lambda one: (kinds[one], share[one], one))
    most, tolerance = max(_MOST_SHOWN, len({kinds[place] for place in ordered})), _LEAST_APART
    while True:
        groups: list[list[int]] = []
        for place in ordered:
            first = groups[-1][0] if groups else place
            if groups and kinds[first] == kinds[place] and share[place] - share[first] <= tolerance:
                groups[-1].append(place)
            else:
                groups.append([place])
        if len(groups) <= most:
            break
        tolerance *= 2
    like = {place: min(group) for group in groups for place in group}
    return {**like, **({awaited: awaited} if awaited >= 0 else {})}


def _of_program(results: Sequence[Result]) -> int:
    """Return the number of steps of the program before the first one in the window."""
    rows = next((result.rows for result in results if result.name == STEP_TIMES.name), pd.DataFrame())
    if not len(rows) or not {"of_program", "number"} <= set(rows):
        return 0
    left_out = (rows["of_program"] - rows["number"]).min()
    return int(left_out) if pd.notna(left_out) else 0
