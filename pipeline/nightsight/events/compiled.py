"""What torch.compile did in the processes of a capture: when it worked, and the graph breaks of what it compiled."""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.communication import pids
from nightsight.events.timeline import Timeline, of_capture
from nightsight.events.unseen import graph_captures
from nightsight.intervals import Spans, union, without
from nightsight.results.program import (
    GRAPH_RECORDED,
    GRAPH_RECORDED_AGAIN,
    GRAPHS_SKIPPED,
    KERNELS_TUNED,
    WAITING_BREAK,
)
from nightsight.tables import are_named, positions

# around the recording of a CUDA graph, the CUDA calls of PyTorch are less than this apart (stored, as in
# analyze/causes: 0.5 to 2 ms)
_NEARBY_NS: Final = 1_000_000
_PLACE: Final = re.compile(r" \(([^()]+:\d+)\)")
_FUNCTION: Final = re.compile(r"([^,]+)(?:, after a graph break)? \((.+):\d+\)")
INDUCTOR: Final = r"^triton_(?:poi|red|per|tem|for|mm|spl)_"
"""The names that Inductor gives its kernels."""


@dataclass(frozen=True)
class Obstacle:
    """Why a compiled function is not one graph: a graph break, or CUDA graphs that were skipped.

    process: where. function, file: the compiled function. text, fix: what the obstacle is, and the code that avoids it.
    place: its file and line, "" if unknown. waits: the CPU waits there for a value from the GPU.
    """

    process: int
    function: str
    file: str
    text: str
    fix: str
    place: str
    waits: bool
    skips_graphs: bool


@of_capture
def _by_process(timeline: Timeline) -> pd.DataFrame:
    """Return the compilations of the capture with the process of each; those of other processes are left out."""
    table, of_pid = timeline.profile.recorded("compilations"), pids(timeline)
    # in a job, ranks on several machines can have the same pid
    if table["process"].notna().any():
        with_process: pd.DataFrame = table[table["process"].notna()].astype({"process": "int64"})
        return with_process
    table = table.drop(columns="process")
    processes = pd.DataFrame({"process": list(of_pid), "pid": list(of_pid.values())}, dtype="int64")
    # a profiler outside of the program's PID namespace knows it by another number
    if len(of_pid) == 1 and table["pid"].nunique() == 1:
        processes["pid"] = table["pid"].iloc[0]
    return table.merge(processes, on="pid") if len(table) else table.assign(process=table["pid"])


def compiling(timeline: Timeline) -> dict[int, Spans]:
    """Return when torch.compile compiled, tuned or recorded in each process, with what it does around a recording."""
    return _spans(worked(timeline))


def compiling_again(timeline: Timeline) -> dict[int, Spans]:
    """Return when it repeated earlier work of this kind: all else happens once for each function and shape."""
    table = worked(timeline)
    return _spans(table[~table["reason"].isin(["", GRAPH_RECORDED, KERNELS_TUNED])])


@of_capture
def worked(timeline: Timeline) -> pd.DataFrame:
    """Return the compilations of the capture with all that belongs to them.

    The log has the recording of a CUDA graph alone. Before it, PyTorch waits for the GPU, saves the state of its memory
    and copies inputs; afterwards, it launches the graph.
    """
    table = _by_process(timeline)
    is_again = (table["reason"] == GRAPH_RECORDED_AGAIN).to_numpy()
    start, end = (table[name].to_numpy(dtype=np.int64).copy() for name in ("start_ns", "end_ns"))
    if is_again.any():
        calls, operations = timeline.profile.recorded("api_calls"), timeline.operations
        is_launch = np.zeros(len(calls), dtype=bool)
        is_launch[operations.call[operations.call >= 0]] = True
        is_wait = are_named(calls["name"], "^cudaDeviceSynchronize")
        begins, ends = timeline.call_times
        for process, of_process in positions(calls["process"].to_numpy()).items():
            ordered = of_process[np.argsort(begins[of_process], kind="stable")]
            launches, waits = (ordered[chosen[ordered]] for chosen in (is_launch, is_wait))
            rows = np.flatnonzero(is_again & (table["process"] == process).to_numpy())
            after = np.searchsorted(begins[launches], end[rows])
            launched = np.append(begins[launches], np.iinfo(np.int64).max)[after]
            end[rows] = np.where(launched - end[rows] < _NEARBY_NS, launched, end[rows])
            last = np.searchsorted(begins[waits], start[rows]) - 1
            # several waits, one soon after the other, are one
            is_next = np.diff(np.searchsorted(begins[launches], begins[waits])) > 0
            is_next |= begins[waits[1:]] - ends[waits[:-1]] >= _NEARBY_NS
            group = np.append(0, np.cumsum(is_next))
            is_own = (last >= 0) & (start[rows] - np.append(ends[waits], 0)[last] < _NEARBY_NS)
            start[rows[is_own]] = begins[waits[np.searchsorted(group, group[last[is_own]])]]
    return table.assign(start_ns=start, end_ns=end)


def is_sole_function(timeline: Timeline, obstacle: Obstacle) -> bool:
    """Whether a process compiled no other function than that of an obstacle."""
    table = _by_process(timeline)
    functions = table["function"][table["process"] == obstacle.process].astype("str").unique()
    return {match.groups() if (match := _FUNCTION.fullmatch(name)) else (name, "") for name in functions} == {
        (obstacle.function, obstacle.file)
    }


def needed_captures(timeline: Timeline) -> dict[int, Spans]:
    """Return when each process captured CUDA graphs, but for those that torch.compile records again."""
    table, captures = _by_process(timeline), graph_captures(timeline.profile)
    again = _spans(table[table["reason"] == GRAPH_RECORDED_AGAIN])
    return {
        process: without(spans, again[process]) if process in again else spans for process, spans in captures.items()
    }


def uses_graphs(timeline: Timeline) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return the processes in which torch.compile recorded CUDA graphs."""
    table = _by_process(timeline)
    return np.asarray(table["process"][table["reason"].isin([GRAPH_RECORDED, GRAPH_RECORDED_AGAIN])].unique())


@of_capture
def obstacles(timeline: Timeline) -> tuple[Obstacle, ...]:
    """Return what kept compiled functions from being one graph until the window ends, the first ones first."""
    table = _by_process(timeline)
    is_skip = table["reason"].astype("str").str.startswith(GRAPHS_SKIPPED)
    table = table[(table["graph_break"] != "") | is_skip]
    columns = ["process", "function", "reason", "fix", "graph_break"]
    rows = table.sort_values("start_ns")[columns].drop_duplicates(["process", "graph_break", "reason"])
    occurrences = [_obstacle(row) for row in rows.to_dict("records")]
    # what is compiled again breaks again
    return tuple({(each.process, each.text): each for each in reversed(occurrences)}.values())[::-1]


def _obstacle(row: dict[Any, Any]) -> Obstacle:
    text = row["graph_break"] or row["reason"]
    place, function = _PLACE.search(text), _FUNCTION.fullmatch(row["function"])
    # a compilation that was needed again has the fix of its reason
    fix = "" if row["graph_break"] and row["reason"] else row["fix"]
    name, file = function.groups() if function else (row["function"], "")
    waits = re.search(WAITING_BREAK, text) is not None
    return Obstacle(row["process"], name, file, text, fix, place[1] if place else "", waits, not row["graph_break"])


def _spans(table: pd.DataFrame) -> dict[int, Spans]:
    done = table[table["end_ns"] > table["start_ns"]]
    start, end = (done[name].to_numpy() for name in ("start_ns", "end_ns"))
    return {process: union(start[rows], end[rows]) for process, rows in positions(done["process"].to_numpy()).items()}
