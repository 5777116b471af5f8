"""Where the CPU waited: for the GPU, by name and without saying so, and in the operating system."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from pipeline.analyze.analysis import Analysis, Table
from pipeline.analyze.api import api_name
from pipeline.analyze.callers import call_names, call_paths, outermost
from pipeline.analyze.copies import waiting_calls
from pipeline.analyze.steps import step_columns
from pipeline.analyze.timeline import Flags, Operations, Timeline, operation_column
from pipeline.intervals import Ints, Spans, covered, union
from pipeline.tables import categorical, time_summary

EXPLICIT: Final = "explicit"
IMPLICIT: Final = "implicit"
# by name without version
_EXPLICIT: Final = r"^cu(?:da)?[A-Z]\w*Synchronize"
_FREES: Final = r"^cuda(?:Free|FreeHost|FreeArray|FreeMipmappedArray)$|^cu(?:MemFree|MemFreeHost|ArrayDestroy)(?:_v2)?$"
_ALLOCATES: Final = (
    r"^cuda(?:Malloc(?!Async|FromPool)\w*|HostAlloc|HostRegister)$"
    r"|^cuMem(?:Alloc|AllocPitch|AllocManaged|AllocHost|HostAlloc|HostRegister)(?:_v2)?$"
)


def synchronizations(timeline: Timeline) -> Table:
    """One row per function, range path and process (and innermost frame, if recorded), with the time it cost."""
    explicit, implicit = _named(timeline, _EXPLICIT), _implicit(timeline)
    call = outermost(timeline, np.union1d(explicit, implicit))
    start, end = (times[call] for times in timeline.call_times)
    frame = pd.DataFrame(
        {
            "kind": pd.Categorical(np.where(np.isin(call, explicit), EXPLICIT, IMPLICIT)),
            "name": call_names(timeline, call),
            "path": call_paths(timeline, call),
            "pid": timeline.profile.table("api_calls")["pid"].to_numpy()[call],
            "cpu": end - start,
            **_idle(timeline, call),
            **step_columns(timeline, call),
        }
    )
    keys = ["kind", "name", "path", "pid"]
    if "call_frames" in timeline.profile.tables:
        frame, keys = frame.assign(frame=_frames(timeline, call)), [*keys, "frame"]
    grouped = frame.groupby(keys, observed=True)
    table = grouped.agg(
        calls=("cpu", "size"),
        total_ns=("cpu", "sum"),
        idle_ns=("idle", "sum"),
        lost_ns=("lost", "sum"),
        max_ns=("cpu", "max"),
        steps=("step", "nunique"),
        of_steps=("of_steps", "max"),
    ).reset_index()
    table = table.sort_values(["total_ns", *keys], ascending=[False, *([True] * len(keys))], ignore_index=True)
    columns = ["calls", "total_ns", "idle_ns", "lost_ns", "max_ns", "steps", "of_steps", *keys]
    return Table(table[columns].astype({"path": "str"}))


def os_calls(timeline: Timeline) -> Table:
    """One row per function of the OS runtime."""
    return Table(time_summary(timeline.profile.table("os_calls"), ["name"]).rename(columns={"count": "calls"}))


def _named(timeline: Timeline, pattern: str) -> Ints:
    """Return the rows in api_calls of the functions whose name without version matches."""
    names = timeline.profile.table("api_calls")["name"].cat
    chosen = np.asarray(api_name(names.categories).str.contains(pattern), dtype=bool)
    return np.flatnonzero(chosen[names.codes])


def _implicit(timeline: Timeline) -> Ints:
    """Return the calls that wait for the GPU without saying so: copies, frees, and allocations that had to."""
    allocating = _named(timeline, _ALLOCATES)
    waited = allocating[_waits(timeline, allocating)]
    return np.unique(np.concatenate([waiting_calls(timeline), _named(timeline, _FREES), waited]))


def _waits(timeline: Timeline, call: Ints) -> Flags:
    """Tell which calls found work of their process unfinished, and spent most of their time until all was done."""
    operations, process = timeline.operations, operation_column(timeline, "process")
    start, end = timeline.call_times
    launched = np.where(operations.call >= 0, np.append(start, 0)[operations.call], operations.start)
    found = np.zeros(len(call), dtype=bool)
    for key, mine in _by_process(timeline, call).items():
        work = np.flatnonzero(process == key)
        work = work[np.argsort(launched[work], kind="stable")]
        last = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(operations.end[work])))
        begun, over = start[call[mine]], end[call[mine]]
        done = last[np.searchsorted(launched[work], begun, side="left")]
        found[mine] = (done > (begun + over) // 2) & (done <= over)
    return found


def _idle(timeline: Timeline, call: Ints) -> dict[str, Ints]:
    """Return for each call how long no GPU operation of its process ran in it, and what it cost at most (`lost`).

    Without the call its thread would have gone on earlier by its duration, until its next such call: that is lost, if
    a GPU of the process idled for as long from the start of the one to the start of the other.
    """
    operations, process = timeline.operations, operation_column(timeline, "process")
    start, end = (times[call] for times in timeline.call_times)
    window = (timeline.window.start_ns, timeline.window.end_ns)
    thread = timeline.profile.table("api_calls")["thread"].to_numpy()[call]
    idle, lost = np.zeros((2, len(call)), dtype=np.int64)
    for key, mine in _by_process(timeline, call).items():
        work = np.flatnonzero(process == key)
        begin, over = start[mine], end[mine]
        idle[mine] = over - begin - covered(union(operations.start[work], operations.end[work]), begin, over)
        begin, until = np.clip(begin, *window), np.clip(_following(thread[mine], begin), *window)
        for busy in _by_device(operations, work):
            missed = np.minimum(over - start[mine], until - begin - covered(busy, begin, until))
            lost[mine] = np.maximum(lost[mine], missed)
    return {"idle": idle, "lost": lost}


def _by_device(operations: Operations, work: Ints) -> Iterator[Spans]:
    """Yield when each device was busy with this work; for no work one that never was."""
    device = operations.device[work]
    for here in [work[device == one] for one in np.unique(device)] or [work]:
        yield union(operations.start[here], operations.end[here])


def _following(thread: Ints, start: Ints) -> Ints:
    """Return when the next call of the same thread starts, the latest possible time after its last one."""
    order = np.lexsort((start, thread))
    following = np.full_like(start, np.iinfo(np.int64).max)
    is_next = thread[order][1:] == thread[order][:-1]
    following[order[:-1][is_next]] = start[order[1:][is_next]]
    return following


def _by_process(timeline: Timeline, call: Ints) -> dict[int, Ints]:
    """Group positions in `call` by process."""
    process = timeline.profile.table("api_calls")["process"].to_numpy()[call]
    return {int(key): np.flatnonzero(process == key) for key in np.unique(process)}


def _frames(timeline: Timeline, call: Ints) -> "pd.Categorical[Any]":
    """Return the innermost frame that was on the stack of each call, empty where none was recorded."""
    keys = ["thread", "start_ns"]
    frames = timeline.profile.table("call_frames").drop_duplicates(keys)
    calls = timeline.profile.table("api_calls")[keys].iloc[call]
    row = pd.MultiIndex.from_frame(frames[keys]).get_indexer(pd.MultiIndex.from_frame(calls))
    names = frames["frame"].cat
    codes = np.where(row >= 0, np.append(names.codes, 0)[row], len(names.categories))
    return categorical(np.append(names.categories.to_numpy(dtype=object), ""), codes)


ANALYSES: Final = (
    Analysis(
        "cuda_api_sync",
        "Synchronization",
        "Calls in which the CPU waits for the GPU, by function and the range they were made in. Explicit: "
        "...Synchronize. Implicit: copies that return only when they are done (blocking ones, and those to pageable "
        "memory), frees, and allocations that spent most of their time until all earlier work was done. Total: CPU "
        "time inside the calls. Idle: the part of it in which no GPU work of that process ran. Lost: the most that the "
        "window could be shorter without the call, which is its own time, or what a GPU idles from its start to the "
        "start of the thread's next such call if that is less. Steps: in how many repetitions of a range (of "
        "how many) it was called. A driver call inside a runtime call is not counted again.",
        ("api_calls", "kernels", "memory_ops"),
        synchronizations,
    ),
    Analysis(
        "osrt_sum",
        "OS runtime",
        "Calls into the operating system's libraries, summed over all threads: threads that wait all the time, in "
        "poll or pthread_cond_wait, come first and cost nothing. Calls shorter than a microsecond are not recorded.",
        ("os_calls",),
        os_calls,
    ),
)
