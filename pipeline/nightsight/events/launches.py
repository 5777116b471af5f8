"""Finds the API call that launched each GPU operation.

An operation and its call have the same process and correlation id. Each operation has at most one call, so matching
neither adds nor loses rows.
"""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.intervals import Flags, Ints
from nightsight.model.report import Profile
from nightsight.system.parallel import memoize
from nightsight.tables import are_dense, are_named, integers

GPU_TABLES: Final = ("kernels", "memory_ops", "graph_launches")
"""The tables of work on streams. Their rows, concatenated in this order, are the operations of a profile."""

# more than the correlation ids of any process: CUPTI counts them in 32 bits
_IDS: Final = 1 << 40
_MOST_INT16: Final = 1 << 15


def are_launched(operations: pd.DataFrame) -> Flags:
    """Return which operations of a GPU table are launched by a call: all but migrations of managed memory."""
    if "operation" not in operations:
        return np.ones(len(operations), dtype=bool)
    return ~are_named(operations["operation"], "^Unified")


@memoize
def launch_keys(profile: Profile) -> tuple[Ints, Ints]:
    """Return one number per (process, correlation id): an array for all operations, and one for all rows of api_calls.

    Negative if either is unknown: a different number for each operation, -1 for calls. Kernels that a GPU launches
    itself, in the body of a graph's loop or condition, have the id 0: they belong to the graph that runs.
    """
    frames = [profile.recorded(name) for name in (*GPU_TABLES, "api_calls")]
    processes = [integers(frame["process"]) for frame in frames]
    distinct_processes = np.unique(np.concatenate([pd.unique(values) for values in processes]))
    keys = np.concatenate([integers(frame["correlation"]) for frame in frames])
    of_graphs = keys[: len(frames[0])] == 0
    *operations, calls = np.split(keys, np.cumsum([len(frame) for frame in frames])[:-1])
    for part, process in zip((*operations, calls), processes, strict=True):
        unknown = (process < 0) | (part < 0)
        if len(distinct_processes) > 1:
            np.add(part, np.searchsorted(distinct_processes, process) * _IDS, out=part)
        part[unknown] = -1
    launches = keys[: len(keys) - len(calls)]
    if of_graphs.any():
        _join_graphs(launches, np.flatnonzero(of_graphs), frames, processes)
    launches[launches < 0] = -1 - np.arange(np.count_nonzero(launches < 0))
    return launches, calls


def _join_graphs(launches: Ints, without_id: Ints, frames: list[pd.DataFrame], processes: list[Ints]) -> None:
    """Give kernels without an id the key of the graph that runs.

    That is the graph of the last operation of a graph before them, else the one that their process launched last.
    """
    calls, kernels = frames[-1], frames[0]
    if not len(calls):
        return
    is_graph = are_named(calls["name"], "GraphLaunch")
    call_start, numbers = calls["start_ns"].to_numpy(), integers(calls["correlation"])
    start, ids = kernels["start_ns"].to_numpy(), integers(kernels["correlation"])
    for process in np.unique(processes[0][without_id]).tolist():
        launching = np.flatnonzero(is_graph & (processes[-1] == process) & (numbers > 0))
        launching = launching[np.argsort(call_start[launching], kind="stable")]
        of_process = without_id[processes[0][without_id] == process]
        place = np.searchsorted(call_start[launching], start[of_process], side="right") - 1
        # the key of a call differs from its number by the part for the process
        offset, graph = launches[of_process], np.append(numbers[launching], -1)[place]
        heads = np.flatnonzero((processes[0] == process) & np.isin(ids, numbers[launching]))
        heads = heads[np.argsort(start[heads], kind="stable")]
        before = np.searchsorted(start[heads], start[of_process], side="right") - 1
        graph = np.where(before >= 0, np.append(ids[heads], -1)[before], graph)
        has_graph = graph > 0
        launches[of_process[has_graph]] = offset[has_graph] + graph[has_graph]


@memoize
def launching_calls(profile: Profile) -> Ints:
    """Return for each operation the row in api_calls of the call that launched it, -1 if none was recorded.

    If several calls share the id, it is the outermost: a driver call can have the id of the runtime call around it.
    """
    launches, keys = launch_keys(profile)
    if not len(keys):
        return np.full(len(launches), -1, dtype=np.int64)
    calls = profile.table("api_calls")
    start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    longer_first = (start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (end[1:] <= end[:-1]))
    in_order = bool(longer_first.all())
    if in_order and are_dense(keys):
        lowest, highest = int(keys.min()), int(keys.max())
        # of rows with the same id, the first is written last
        row = np.full(highest - lowest + 2, -1, dtype=np.int64)
        row[keys[::-1] - lowest] = np.arange(len(keys) - 1, -1, -1)
        return row[np.where((launches >= max(lowest, 0)) & (launches <= highest), launches - lowest, -1)]
    order = np.argsort(keys, kind="stable") if in_order else np.lexsort((-end, start, keys))
    sorted_keys = keys[order]
    # the first call with a key is the outermost
    position = np.minimum(find_keys(sorted_keys, launches), len(sorted_keys) - 1)
    return np.where((sorted_keys[position] == launches) & (launches >= 0), order[position], -1)


def find_keys(sorted_keys: Ints, keys: Ints) -> Ints:
    """Return the position of each launch key in `sorted_keys`, or where it would be inserted.

    Keys are looked up process by process. In order of time the processes alternate, so that consecutive searches would
    begin far apart in memory. For a million kernels of 16 processes, this takes 50 ms instead of 190.
    """
    if not len(keys) or keys.max() < _IDS:
        return np.searchsorted(sorted_keys, keys)
    process = keys // _IDS
    # small numbers are sorted by counting
    order = np.argsort(process.astype(np.int16) if process.max() < _MOST_INT16 else process, kind="stable")
    places = np.empty(len(keys), dtype=np.int64)
    places[order] = np.searchsorted(sorted_keys, keys[order])
    return places
