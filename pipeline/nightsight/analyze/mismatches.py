"""Collectives that do not match over ranks: in the same place, one calls another collective or gives another size."""

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


def mismatches(timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding if ranks call different collectives in the same place of a communicator."""
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
    process, cases, unlike = calls["process"].to_numpy(), [], 0
    for mine in positions(group).values():
        by_rank = sorted((mine[rows] for rows in positions(process[mine]).values()), key=len, reverse=True)
        for rank in by_rank[1:]:
            place, others = _differing(said, by_rank[0], rank)
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
            "place of a communicator. Such ranks wait for each other forever, or mix up what does not belong together.",
            "Make every rank take the same branches around collectives.",
            evidence=tuple(cases[:_MOST_CASES]),
            source="collectives",
        )


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
