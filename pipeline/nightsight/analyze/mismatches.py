"""Collectives that do not match over ranks: one calls another in the same place, gives another size, or stops."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.communication import PAIRWISE
from nightsight.events.timeline import Timeline, positions
from nightsight.intervals import Ints
from nightsight.model import Finding
from nightsight.tables import empty
from nightsight.units import format_value

# each rank may give another size of these
_OF_ANY_SIZE: Final = "to_?all|gatherv|scatterv|^gather$|^scatter$"
_MOST_SHIFTED: Final = 64
_MOST_CASES: Final = 5
# so many calls fewer are not the edge of what was recorded, and for the time of so many a rank must still be at work
_GOES_ON: Final = 3
_OF_CPU: Final = ("api_calls", "ranges", "cpu_ops")


def mismatches(timeline: Timeline) -> Iterator[Finding]:
    """Yield findings if ranks call different collectives in the same place of a communicator, or if one stops to."""
    tables = timeline.profile.tables
    calls = tables.get("collectives", empty("collectives"))
    calls = calls[(calls["group"] != "") & ~calls["name"].isin(PAIRWISE)]
    calls = calls.sort_values("start_ns", kind="stable", ignore_index=True)
    if not len(calls):
        return
    name = calls["name"].astype("str")
    size = calls["bytes"].where(~name.str.contains(_OF_ANY_SIZE))
    said = pd.factorize(name + " " + size.astype("str"))[0]
    group = pd.factorize(calls["group"].astype("str") + " " + calls["ranks"].astype("str"))[0]
    process, start = calls["process"].to_numpy(), calls["start_ns"].to_numpy()
    cases, unlike, stopped, last = list[str](), 0, dict[int, tuple[int, str]](), _last_events(timeline)
    for mine in positions(group).values():
        by_rank = sorted((mine[rows] for rows in positions(process[mine]).values()), key=len, reverse=True)
        # how long each goes on after its last call, with what is no collective
        alone = [last.get(int(process[rank[-1]]), 0) - int(start[rank[-1]]) for rank in by_rank]
        every = np.diff(start[by_rank[0]])
        least = max(alone[0], 0) + _GOES_ON * (float(np.median(every)) if len(every) else np.inf)
        for rank, after in zip(by_rank[1:], alone[1:], strict=True):
            place, others = _differing(said, by_rank[0], rank)
            lacking = len(by_rank[0]) - 1 - int(np.flatnonzero(by_rank[0] == others[-1])[0])
            if lacking >= _GOES_ON and after > least:
                one = _case(timeline, calls, int(rank[-1]))
                stopped[int(process[rank[-1]])] = lacking, f"{one} is its last: {lacking:,} fewer than others call"
            unlike += len(place)
            if len(place):
                one, other = (_case(timeline, calls, int(row)) for row in (rank[place[0]], others[place[0]]))
                cases.append(f"call {place[0] + 1:,}: {one}, {other}")
    if cases:
        yield Finding(
            "different_collectives",
            "warning",
            "Ranks call different collectives",
            f"{unlike:,} {'call differs' if unlike == 1 else 'calls differ'} from what other ranks call in the same "
            f"place of a communicator; {cases[0]}. Such ranks wait for each other forever, or mix up what does not "
            "belong together.",
            "Make every rank take the same branches around collectives.",
            evidence=tuple(cases[:_MOST_CASES]),
            source="collectives",
        )
    if stopped:
        worst = tuple(case for _, case in sorted(stopped.values(), reverse=True)[:_MOST_CASES])
        yield Finding(
            "stopped_calling",
            "warning",
            f"{len(stopped):,} {'rank stops' if len(stopped) == 1 else 'ranks stop'} calling collectives",
            f"{worst[0]}. The other ranks of the communicator go on to call them, and wait there, while the program of "
            "such a rank still runs.",
            "Make every rank take as many steps, and leave loops at the same time.",
            evidence=worst,
            source="collectives",
        )


def _last_events(timeline: Timeline) -> dict[int, int]:
    """Return when each process began the last thing that was recorded of its CPU."""
    found = pd.concat(
        [
            table.groupby("process")["start_ns"].max()
            for name in _OF_CPU
            if len(table := timeline.profile.tables.get(name, empty(name)))
        ]
        or [pd.Series(dtype="int64")]
    )
    return {int(process): int(time) for process, time in found.groupby(level=0).max().items()}


def _differing(said: Ints, reference: Ints, rank: Ints) -> tuple[Ints, Ints]:
    """Return which calls of a rank differ from those of another, and the latter: from where they are most alike on."""
    places = range(min(len(reference) - len(rank), _MOST_SHIFTED) + 1)
    ways = (reference[place : place + len(rank)] for place in places)
    others = min(ways, key=lambda way: int((said[way] != said[rank]).sum()))
    return np.flatnonzero(said[others] != said[rank]), others


def _case(timeline: Timeline, calls: pd.DataFrame, row: int) -> str:
    """Say what a call is, and on which rank."""
    told = timeline.profile.tables.get("ranks", empty("ranks"))
    process, pid, name = (calls[column].iloc[row] for column in ("process", "pid", "name"))
    known = told.loc[told["process"] == process, "rank"].tolist()
    (size,) = calls["bytes"].iloc[row : row + 1].dropna().tolist() or [None]
    of = "" if size is None else f" of {format_value(size, 'message_bytes')}"
    return f"{name}{of} on {f'rank {known[0]}' if known else f'process {pid}'}"
