"""Where the CPU waited: for the GPU, by name and without saying so, and in the operating system.

What a wait costs is the lead that its thread would have without it. A thread that launches nothing between two waits
has the lead of both at once (a copy to pageable memory, then a synchronization): they are one wait.
"""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.copies import waiting_calls
from nightsight.analyze.ranges.callers import call_names, call_paths, outermost
from nightsight.analyze.ranges.steps import step_columns
from nightsight.events.names import api_names
from nightsight.events.timeline import Timeline, busy_spans, distinct, operation_column
from nightsight.intervals import Flags, Ints, covered, union
from nightsight.results import CUDA_API_SYNC, OSRT_SUM
from nightsight.tables import categorical, time_summary

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
    waits = np.union1d(explicit, implicit)
    call = outermost(timeline, waits)
    start, end = (times[call] for times in timeline.call_times)
    frame = pd.DataFrame(
        {
            "kind": pd.Categorical(np.where(np.isin(call, explicit), EXPLICIT, IMPLICIT)),
            "name": call_names(timeline, call),
            "path": call_paths(timeline, call),
            "pid": timeline.profile.table("api_calls")["pid"].to_numpy()[call],
            "cpu": end - start,
            "idle": _idle(timeline, call),
            **_cost(timeline, call, waits),
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
        other_waits=("others", "sum"),
        max_ns=("cpu", "max"),
        steps=("step", "nunique"),
        of_steps=("of_steps", "max"),
    ).reset_index()
    table = table.sort_values(["total_ns", *keys], ascending=[False, *([True] * len(keys))], ignore_index=True)
    columns = ["calls", "total_ns", "idle_ns", "lost_ns", "other_waits", "max_ns", "steps", "of_steps", *keys]
    return Table(table[columns].astype({"path": "str"}))


def os_calls(timeline: Timeline) -> Table:
    """One row per function of the OS runtime."""
    return Table(time_summary(timeline.profile.table("os_calls"), ["name"]).rename(columns={"count": "calls"}))


def _named(timeline: Timeline, pattern: str) -> Ints:
    """Return the rows in api_calls of the functions whose name without version matches."""
    names = timeline.profile.table("api_calls")["name"].cat
    chosen = np.asarray(api_names(names.categories).str.contains(pattern), dtype=bool)
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


def _idle(timeline: Timeline, call: Ints) -> Ints:
    """Return for each call how long no GPU operation of its process ran in it."""
    operations, process = timeline.operations, operation_column(timeline, "process")
    start, end = (times[call] for times in timeline.call_times)
    idle = np.zeros(len(call), dtype=np.int64)
    for key, mine in _by_process(timeline, call).items():
        work = process == key
        busy = union(operations.start[work], operations.end[work])
        idle[mine] = end[mine] - start[mine] - covered(busy, start[mine], end[mine])
    return idle


def _cost(timeline: Timeline, call: Ints, waits: Ints) -> dict[str, Ints]:
    """Return for each call what it cost at most (`lost`), and how many `others` that is the cost of too.

    Waits that are one have their cost at the longest of them, the others of them cost nothing.
    """
    group = _groups(timeline, call, waits)
    start, end = (times[call] for times in timeline.call_times)
    by_length = np.lexsort((start, start - end, group))
    longest = by_length[np.diff(group[by_length], prepend=-1) > 0]
    lost, others = np.zeros((2, len(call)), dtype=np.int64)
    lost[longest] = _lost(timeline, call, group)
    others[longest] = np.bincount(group) - 1
    return {"lost": lost, "others": others}


def _groups(timeline: Timeline, call: Ints, waits: Ints) -> Ints:
    """Number each of these waits, by thread and time: those with no launch of the thread between them are one.

    Of a thread that launches nothing at all, the launches of its process count. Waits that launch (copies that block)
    are no launches.
    """
    table = timeline.profile.table("api_calls")
    thread, process = (table[name].to_numpy() for name in ("thread", "process"))
    start, end = timeline.call_times
    launches = np.zeros(len(table), dtype=bool)
    launches[timeline.operations.call[timeline.operations.call >= 0]] = True
    launches[waits] = False
    launching = np.flatnonzero(launches)
    order = np.lexsort((start[call], thread[call]))
    begins = np.ones(len(call), dtype=bool)
    for key in distinct(thread[call]):
        mine = np.flatnonzero(thread[call[order]] == key)
        rows = call[order[mine]]
        own = launching[thread[launching] == key]
        own = own if len(own) else launching[process[launching] == process[rows[0]]]
        launched = np.sort(start[own])
        before, until = np.searchsorted(launched, end[rows[:-1]]), np.searchsorted(launched, start[rows[1:]])
        begins[mine[1:]] = until > before
    group = np.empty(len(call), dtype=np.int64)
    group[order] = np.cumsum(begins) - 1
    return group


def _lost(timeline: Timeline, call: Ints, group: Ints) -> Ints:
    """Return what each group of waits cost at most.

    Without them their thread would have gone on earlier by their duration, until it waits again: that is lost, if a
    GPU that the process uses idled for as long from the start of the one to the start of the other. Idle time that
    several threads could have filled is lost once, and of several GPUs the one that lost most counts: what is lost is
    never more than a GPU idled.
    """
    table, bounds = timeline.profile.table("api_calls"), (timeline.window.start_ns, timeline.window.end_ns)
    start, end = (times[call] for times in timeline.call_times)
    # groups are numbered by thread and time
    first = np.lexsort((start, group))
    first = first[np.diff(group[first], prepend=-1) > 0]
    thread, process = (table[name].to_numpy()[call[first]] for name in ("thread", "process"))
    spent = np.bincount(group, end - start).astype(np.int64)
    begin = np.clip(start[first], *bounds)
    until = np.where(np.diff(thread, append=-1) == 0, np.append(begin[1:], 0), bounds[1])
    lost = np.zeros(len(first), dtype=np.int64)
    launcher = operation_column(timeline, "process")
    for key in distinct(process):
        mine = np.flatnonzero(process == key)
        for device in np.sort(pd.unique(timeline.operations.device[launcher == key])):
            busy = busy_spans(timeline)[int(device)]
            idle_before, idle_until = (
                time - bounds[0] - covered(busy, np.full_like(time, bounds[0]), time)
                for time in (begin[mine], until[mine])
            )
            missed = _once(idle_before, np.minimum(idle_before + spent[mine], idle_until))
            if missed.sum() > lost[mine].sum():
                lost[mine] = missed
    return lost


def _once(start: Ints, end: Ints) -> Ints:
    """Return the length of each span but for what spans that start before it have."""
    order = np.argsort(start, kind="stable")
    reached = np.maximum.accumulate(end[order])
    counted = np.zeros(len(start), dtype=np.int64)
    counted[order] = np.maximum(end[order] - np.maximum(start[order], np.append(start[order[:1]], reached[:-1])), 0)
    return counted


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
    Analysis(CUDA_API_SYNC, synchronizations),
    Analysis(OSRT_SUM, os_calls),
)
