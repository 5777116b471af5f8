"""Finds collectives that do not match across ranks: a different one, a different size, or a missing call."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.communication import PAIRWISE, communication
from nightsight.events.timeline import Timeline
from nightsight.intervals import Ints
from nightsight.model.report import Finding
from nightsight.tables import positions
from nightsight.units import counted, format_value

# collectives whose sizes may differ between ranks
_OF_ANY_SIZE: Final = "to_?all|gatherv|scatterv|^gather$|^scatter$"
_MOST_SHIFTED: Final = 64
_MOST_CASES: Final = 5
# a rank with this many missing calls was not merely cut off if it still runs for the time of this many calls
_GOES_ON: Final = 3
# a wait of at least this length, and this many times the time between two calls, is not part of a step
_HANGS_NS: Final = 1_000_000_000
_HANGS: Final = 10
_OF_CPU: Final = ("api_calls", "ranges", "cpu_ops")


@dataclass(frozen=True)
class _Mismatches:
    """Calls of ranks that do not match: a sentence on each case, and the numbers of calls that differ from other ranks.

    stopped: by process, the number of missing calls. hanging: by process, how long others wait for a missing call.
    """

    cases: list[str] = field(default_factory=list)
    unlike: list[int] = field(default_factory=list)
    stopped: dict[int, tuple[int, str]] = field(default_factory=dict)
    hanging: dict[int, tuple[int, str]] = field(default_factory=dict)


def mismatches(timeline: Timeline) -> Iterator[Finding]:
    """Yield findings if ranks call different collectives at the same position of a communicator, or if a rank stops.

    If ranks wait long for a rank that stopped, the finding is a hang instead.
    """
    unequal = _compare_calls(timeline)
    if unequal.cases:
        unlike = sum(unequal.unlike)
        yield Finding(
            "different_collectives",
            "warning",
            "Ranks call different collectives",
            f"{counted(unlike, 'call differs', 'calls differ')} from what other ranks call in the same "
            f"place of a communicator; {unequal.cases[0]}. Such ranks wait for each other forever, or mix up unrelated "
            "data.",
            "Make every rank take the same branches around collectives.",
            evidence=tuple(unequal.cases[:_MOST_CASES]),
            source="collectives",
        )
    if unequal.hanging:
        worst, cause = _worst(unequal.hanging), "Ranks wait in a collective that another rank never calls"
        yield Finding(
            "hanging",
            "warning",
            cause,
            f"{worst[0]}.",
            "Find out where that rank is at that time: it may have failed, left the loop, or taken another branch. "
            "Make every rank take the same number of steps, and the same branches around collectives.",
            evidence=worst,
            source="collectives",
            cause=cause,
            action="check what that rank does at that time",
        )
    elif unequal.stopped:
        worst, count = _worst(unequal.stopped), len(unequal.stopped)
        yield Finding(
            "stopped_calling",
            "warning",
            f"{counted(count, 'rank stops', 'ranks stop')} calling collectives",
            f"{worst[0]}. The other ranks of the communicator keep calling them and wait there, while the program of "
            "such a rank still runs.",
            "Make every rank take the same number of steps, and leave loops at the same time.",
            evidence=worst,
            source="collectives",
        )


def _worst(cases: dict[int, tuple[int, str]]) -> tuple[str, ...]:
    return tuple(case for _, case in sorted(cases.values(), reverse=True)[:_MOST_CASES])


def _compare_calls(timeline: Timeline) -> _Mismatches:
    """Compare the calls of the ranks of each communicator with those of the rank with the most calls."""
    result, calls = _Mismatches(), timeline.profile.recorded("collectives")
    calls = calls[(calls["group"] != "") & ~calls["name"].isin(PAIRWISE)].sort_values("start_ns", ignore_index=True)
    if not len(calls):
        return result
    name = calls["name"].astype("str")
    size = calls["bytes"].where(~name.str.contains(_OF_ANY_SIZE))
    call_codes = pd.factorize(name + " " + size.astype("str"))[0]
    group = pd.factorize(calls["group"].astype("str") + " " + calls["ranks"].astype("str"))[0]
    process, start, last = calls["process"].to_numpy(), calls["start_ns"].to_numpy(), _last_events(timeline)
    for members in positions(group).values():
        first, *others = sorted((members[rows] for rows in positions(process[members]).values()), key=len, reverse=True)
        every_ns = float(np.median(np.diff(start[first]))) if len(first) > 1 else np.inf
        # how long each continues after its last call, without collectives
        alone_ns = last.get(int(process[first[-1]]), 0) - int(start[first[-1]])
        for rank in others:
            place, matches = _differing_calls(call_codes, first, rank)
            if len(place):
                result.unlike.append(len(place))
                one, other = (_case(timeline, calls, int(row)) for row in (rank[place[0]], matches[place[0]]))
                result.cases.append(f"call {place[0] + 1:,}: {one}, {other}")
            lacking = len(first) - 1 - int(np.flatnonzero(first == matches[-1])[0])
            if not lacking:
                continue
            number, owner = int(process[rank[-1]]), _rank_of(timeline, calls, int(rank[-1]))
            waiting_call = int(first[-lacking])
            wait_ns = _longest_since(timeline, int(process[waiting_call]), int(start[waiting_call]))
            if wait_ns > max(_HANGS_NS, _HANGS * every_ns):
                waits = f"{_case(timeline, calls, waiting_call)} waits for {format_value(wait_ns, 'length_ns')}"
                result.hanging[number] = wait_ns, f"{waits}; {owner} never calls it"
            after_ns = last.get(number, 0) - int(start[rank[-1]])
            if lacking >= _GOES_ON and after_ns > max(alone_ns, 0) + _GOES_ON * every_ns:
                one = _case(timeline, calls, int(rank[-1]))
                result.stopped[number] = lacking, f"{one} is its last: {lacking:,} fewer than others call"
    return result


def _longest_since(timeline: Timeline, process: int, since_ns: int) -> int:
    """Return the length of the longest CUDA call or collective that a process began at or after a time."""
    tables = (timeline.profile.recorded("api_calls"), communication(timeline))
    later = (table[(table["process"] == process) & (table["start_ns"] >= since_ns)] for table in tables)
    return max(int((table["end_ns"] - table["start_ns"]).max()) if len(table) else 0 for table in later)


def _last_events(timeline: Timeline) -> dict[int, int]:
    """Return when the last recorded CPU event of each process began."""
    last_starts = pd.concat(
        [
            table.groupby("process")["start_ns"].max()
            for name in _OF_CPU
            if len(table := timeline.profile.recorded(name))
        ]
        or [pd.Series(dtype="int64")]
    )
    return {int(process): int(time) for process, time in last_starts.groupby(level=0).max().items()}


def _differing_calls(codes: Ints, reference: Ints, rank: Ints) -> tuple[Ints, Ints]:
    """Return the calls of a rank that differ from those of another, and the calls of the other, best aligned."""
    places = range(min(len(reference) - len(rank), _MOST_SHIFTED) + 1)
    ways = (reference[place : place + len(rank)] for place in places)
    best_match = min(ways, key=lambda way: int((codes[way] != codes[rank]).sum()))
    return np.flatnonzero(codes[best_match] != codes[rank]), best_match


def _case(timeline: Timeline, calls: pd.DataFrame, row: int) -> str:
    """Describe a call and its rank."""
    (size,) = calls["bytes"].iloc[row : row + 1].dropna().tolist() or [None]
    of = "" if size is None else f" of {format_value(size, 'message_bytes')}"
    return f"{calls['name'].iloc[row]}{of} on {_rank_of(timeline, calls, row)}"


def _rank_of(timeline: Timeline, calls: pd.DataFrame, row: int) -> str:
    ranks = timeline.profile.recorded("ranks")
    process, pid = (calls[column].iloc[row] for column in ("process", "pid"))
    of_process = ranks.loc[ranks["process"] == process, "rank"].tolist()
    return f"rank {of_process[0]}" if of_process else f"process {pid}"
