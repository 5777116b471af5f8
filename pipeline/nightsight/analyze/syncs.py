"""Finds where the CPU waited: for the GPU, explicitly or implicitly, and in the operating system.

The cost of a wait is the lead that its thread would gain without it. If a thread launches nothing between two waits (a
copy to pageable memory, then a synchronization), it would gain both at once, so they count as one wait.
"""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.copies import waiting_calls
from nightsight.analyze.ranges.callers import call_names, call_paths, outermost
from nightsight.analyze.ranges.steps import step_columns
from nightsight.events.names import api_names
from nightsight.events.timeline import Timeline, begun, busy_spans, distinct, launch_times, of_window, operation_column
from nightsight.events.unseen import unseen_by
from nightsight.intervals import NOTHING, Flags, Ints, covered, union_of
from nightsight.results.program import CUDA_API_SYNC, OSRT_SUM
from nightsight.tables import aggregate, categorical, positions, time_summary

EXPLICIT: Final = "explicit"
IMPLICIT: Final = "implicit"
# patterns of function names without the runtime's version suffix
_EXPLICIT: Final = r"^(?:cu(?:da)?|hip|ze)[A-Z]\w*Synchronize|^ur(?:QueueFinish|EventWait)"
_FREES: Final = r"^cuda(?:Free|FreeHost|FreeArray|FreeMipmappedArray)$|^cu(?:MemFree|MemFreeHost|ArrayDestroy)(?:_v2)?$"
_ALLOCATES: Final = (
    r"^cuda(?:Malloc(?!Async|FromPool)\w*|HostAlloc|HostRegister)$"
    r"|^cuMem(?:Alloc|AllocPitch|AllocManaged|AllocHost|HostAlloc|HostRegister)(?:_v2)?$"
)


def synchronizations(timeline: Timeline) -> Table:
    """Return the calls that wait for the GPU, with their cost in ns.

    One row per kind, function, range path and process, and innermost stack frame if frames were recorded.
    """
    explicit, implicit = _calls_named(timeline, _EXPLICIT), _implicit(timeline)
    waits = np.union1d(explicit, implicit)
    # a driver call inside a runtime call is the same wait
    call = outermost(timeline, waits)
    call = call[begun(timeline, timeline.call_times[0][call])]
    start, end = (times[call] for times in timeline.call_times)
    frame = pd.DataFrame(
        {
            "kind": pd.Categorical(np.where(np.isin(call, explicit), EXPLICIT, IMPLICIT)),
            "name": call_names(timeline, call),
            "path": call_paths(timeline, call),
            "pid": timeline.profile.table("api_calls")["pid"].to_numpy()[call],
            "cpu": end - start,
            "idle": _idle_time(timeline, call),
            **_cost(timeline, call, waits),
            **step_columns(timeline, call),
        }
    )
    keys = ["kind", "name", "path", "pid"]
    if "call_frames" in timeline.profile.tables:
        frame, keys = frame.assign(frame=_frames(timeline, call)), [*keys, "frame"]
    grouped = frame.groupby(keys, observed=True)
    table = aggregate(
        grouped,
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
    """Return one row per function of the OS runtime, with statistics of its duration."""
    return Table(time_summary(of_window(timeline, "os_calls"), ["name"]).rename(columns={"count": "calls"}))


def _calls_named(timeline: Timeline, pattern: str) -> Ints:
    """Return the rows of api_calls whose function name, without its version, matches `pattern`."""
    names = timeline.profile.table("api_calls")["name"].cat
    is_match = np.asarray(api_names(names.categories).str.contains(pattern), dtype=bool)
    return np.flatnonzero(is_match[names.codes])


def _implicit(timeline: Timeline) -> Ints:
    """Return the calls that wait for the GPU implicitly: blocking copies, frees, and allocations that did wait."""
    allocating = _calls_named(timeline, _ALLOCATES)
    waiting = allocating[_waits(timeline, allocating)]
    return np.unique(np.concatenate([waiting_calls(timeline), _calls_named(timeline, _FREES), waiting]))


def _waits(timeline: Timeline, call: Ints) -> Flags:
    """Return which calls spent more than half of their time waiting for earlier work of their process."""
    operations, process = timeline.operations, operation_column(timeline, "process")
    start, end = timeline.call_times
    launched = launch_times(timeline)
    has_waited = np.zeros(len(call), dtype=bool)
    for key, rows in _by_process(timeline, call).items():
        work = np.flatnonzero(process == key)
        work = work[np.argsort(launched[work], kind="stable")]
        # when all work launched so far is done, after each launch in order; -inf before the first
        last = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(operations.end[work])))
        begin, finish = start[call[rows]], end[call[rows]]
        done = last[np.searchsorted(launched[work], begin, side="left")]
        # work that outlasts the call was not waited for
        has_waited[rows] = (done > (begin + finish) // 2) & (done <= finish)
    return has_waited


def _idle_time(timeline: Timeline, call: Ints) -> Ints:
    """Return, for each call, the ns during which no GPU operation of its process is known to have run."""
    operations, process = timeline.operations, operation_column(timeline, "process")
    start, end = (times[call] for times in timeline.call_times)
    idle = np.zeros(len(call), dtype=np.int64)
    for key, rows in _by_process(timeline, call).items():
        work = process == key
        hidden = unseen_by(timeline.profile, timeline.operations.device[work])
        busy = union_of(((operations.start[work], operations.end[work]), hidden))
        idle[rows] = end[rows] - start[rows] - covered(busy, start[rows], end[rows])
    return idle


def _cost(timeline: Timeline, call: Ints, waits: Ints) -> dict[str, Ints]:
    """Return, for each call, the upper bound of its cost in ns (`lost`), and how many `others` that includes.

    The cost of waits that count as one is assigned to the longest of them; the others get 0.
    """
    group = _number_waits(timeline, call, waits)
    start, end = (times[call] for times in timeline.call_times)
    # the first of each group is its longest: `start - end` is the negative length
    by_length = np.lexsort((start, start - end, group))
    longest = by_length[np.diff(group[by_length], prepend=-1) > 0]
    lost, others = np.zeros((2, len(call)), dtype=np.int64)
    lost[longest] = _lost_time(timeline, call, group)
    others[longest] = np.bincount(group) - 1
    return {"lost": lost, "others": others}


def _number_waits(timeline: Timeline, call: Ints, waits: Ints) -> Ints:
    """Number the waits by thread and time; waits of a thread with no launch in between get the same number.

    For a thread that launches nothing at all, the launches of its whole process count. Waits that also launch (blocking
    copies) do not count as launches.
    """
    table = timeline.profile.table("api_calls")
    thread, process = (table[name].to_numpy() for name in ("thread", "process"))
    start, end = timeline.call_times
    launches = np.zeros(len(table), dtype=bool)
    launches[timeline.operations.call[timeline.operations.call >= 0]] = True
    launches[waits] = False
    launching = np.flatnonzero(launches)
    by_thread, by_process = (positions(values[launching]) for values in (thread, process))
    order = np.lexsort((start[call], thread[call]))
    begins = np.ones(len(call), dtype=bool)
    for key, places in positions(thread[call[order]]).items():
        rows = call[order[places]]
        # a wait begins a new group if a launch began between the end of the wait before it and its own start
        launches_of = by_thread.get(key, by_process.get(process[rows[0]], NOTHING))
        launched = np.sort(start[launching[launches_of]], kind="stable")
        before, until = np.searchsorted(launched, end[rows[:-1]]), np.searchsorted(launched, start[rows[1:]])
        begins[places[1:]] = until > before
    group = np.empty(len(call), dtype=np.int64)
    group[order] = np.cumsum(begins) - 1
    return group


def _lost_time(timeline: Timeline, call: Ints, group: Ints) -> Ints:
    """Return, for each group of waits, an upper bound of its cost in ns.

    Without the waits, their thread would be ahead by their duration until it waits again. This lead can only fill time
    in which a GPU of the process idles, from the start of the group to the start of the next. Idle time that several
    threads could fill counts once, and of several GPUs the one with the largest loss counts: the sum over a process
    never exceeds a GPU's idle time.
    """
    table, bounds = timeline.profile.table("api_calls"), timeline.window.bounds
    start, end = (times[call] for times in timeline.call_times)
    # the first call of each group; groups are numbered by thread and time
    first = np.lexsort((start, group))
    first = first[np.diff(group[first], prepend=-1) > 0]
    thread, process = (table[name].to_numpy()[call[first]] for name in ("thread", "process"))
    wait_ns = np.bincount(group, end - start).astype(np.int64)
    begin = np.clip(start[first], *bounds)
    # to the next group of the same thread, or to the end of the window
    until = np.where(np.diff(thread, append=-1) == 0, np.append(begin[1:], 0), bounds[1])
    lost = np.zeros(len(first), dtype=np.int64)
    launcher = operation_column(timeline, "process")
    for key in distinct(process):
        groups_of_process = np.flatnonzero(process == key)
        for device in np.sort(pd.unique(timeline.operations.device[launcher == key])):
            hidden = unseen_by(timeline.profile, np.array([device]))
            busy = union_of((busy_spans(timeline)[int(device)], hidden))
            idle_before, idle_until = (
                time - bounds[0] - covered(busy, np.full_like(time, bounds[0]), time)
                for time in (begin[groups_of_process], until[groups_of_process])
            )
            # on an axis of accumulated idle time: the lead is used up when as much idle time has passed
            missed = _uncovered_length(idle_before, np.minimum(idle_before + wait_ns[groups_of_process], idle_until))
            if missed.sum() > lost[groups_of_process].sum():
                lost[groups_of_process] = missed
    return lost


def _uncovered_length(start: Ints, end: Ints) -> Ints:
    """Return the length of each span without the parts that spans with an earlier start cover."""
    order = np.argsort(start, kind="stable")
    reached = np.maximum.accumulate(end[order])
    uncovered = np.zeros(len(start), dtype=np.int64)
    uncovered[order] = np.maximum(end[order] - np.maximum(start[order], np.append(start[order[:1]], reached[:-1])), 0)
    return uncovered


def _by_process(timeline: Timeline, call: Ints) -> dict[int, Ints]:
    """Return the positions in `call` of each process."""
    process = timeline.profile.table("api_calls")["process"].to_numpy()[call]
    return {int(key): np.flatnonzero(process == key) for key in np.unique(process)}


def _frames(timeline: Timeline, call: Ints) -> "pd.Categorical[Any]":
    """Return the innermost stack frame of each call; empty if none was recorded."""
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
