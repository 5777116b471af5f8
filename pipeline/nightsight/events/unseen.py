"""Finds the time in which a capture has no operation of a GPU although the GPU may have been busy.

The causes are work from before or after the recording, work that no profiler records (another process, a loop on the
device), operations with impossible times, and pauses of the recording. In the capture, each looks like idle time. The
CPU shows the difference: an operation begins long after its launch although nothing ran, a wait returns long after the
last operation, or correlation ids continue to count while no call is recorded.

The opposite is recording a CUDA graph (from begin to end of a stream capture): those calls launch nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.categories import call_causes
from nightsight.events.launches import GPU_TABLES, are_launched, find_keys, launch_keys, launching_calls
from nightsight.events.loops import loops_of
from nightsight.intervals import Flags, Ints, Spans, clipped_union, gaps, separate, touches, union, union_of, without
from nightsight.model.report import Profile
from nightsight.results.categories import IDLE, SYNC
from nightsight.system.parallel import memoize
from nightsight.tables import are_named, compact, integers, unique

PAUSED: Final = "the recording was paused"
UNTIMED: Final = "operations whose times are not known"
BEFORE: Final = "work from before the recording"
AFTER: Final = "work that ended after the recording"
WAITED: Final = "work that is not in the capture, although a call waited for it"
REASONS: Final = (PAUSED, UNTIMED, BEFORE, AFTER, WAITED)
"""Why the activity of a GPU is unknown; if several reasons apply, the first one counts."""

# in 125 captures of H100, H200 and older GPUs, waits return within 0.2 ms of the last operation (0.7 ms where two
# processes share the GPU), and the first operation begins within 0.4 ms of its launch
_LATE_NS: Final = 1_000_000
# CUPTI numbers all calls, recorded or not: profilers leave out some (350 in a row at most in these captures, while
# cuBLAS is set up), but in a pause there are thousands
_MOST_UNRECORDED: Final = 1_000
# share of the operations of a GPU: single launches can fail, or their work can be lost
_FEW_LOST: Final = 0.002
# the most pauses of a program without other recorded events
_FEW_PAUSES: Final = 2
# without ids: the only stretch without any event that is most of the loop and this many times as long as a step
_MOST_OF_LOOP: Final = 0.5
_STEPS_LONG: Final = 20
_LONGEST_FACTOR: Final = 10
_LEAST_SILENCE_NS: Final = 10_000_000
# share of the operations: a single wrong time says nothing about a clock
_FEW_EARLY: Final = 0.01
_LAUNCHES: Final = r"Launch(?:Cooperative)?Kernel|GraphLaunch"
_ON_HOST: Final = ("api_calls", "ranges", "marks", "cpu_ops")
# events that end a silence when they begin or end; ranges can be open during a silence
_BUSY_TABLES: Final = (*GPU_TABLES, "api_calls", "cpu_ops", "python_functions", "os_calls")
_POINT_TABLES: Final = ("ranges", "marks", "python_samples", "memory_usage")
# tables that are recorded continuously, if at all
_CONTINUOUS: Final = ("cpu_ops", "os_calls", "python_functions")
_NONE: Final = np.empty(0, dtype=np.int64)
_NO_SPANS: Final[Spans] = (_NONE, _NONE)
_SPAN: Final = ("start_ns", "end_ns")
_LATEST: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Unseen:
    """Disjoint spans (ns) in which the activity of a GPU is unknown, in order, each with its position in REASONS."""

    start: Ints
    end: Ints
    reason: Ints

    @property
    def spans(self) -> Spans:
        """All spans; touching spans are merged."""
        return union(self.start, self.end)

    def of(self, reason: str) -> Spans:
        """Return the spans with one reason."""
        has_reason = self.reason == REASONS.index(reason)
        return self.start[has_reason], self.end[has_reason]


@dataclass(frozen=True, eq=False)
class _GpuOperations:
    """The operations of a GPU in order of start; call_start, call_end: of the call of each in ns, -1 if unknown.

    is_launched: migrations of managed memory are launched by no call.
    """

    start: Ints
    end: Ints
    process: Ints
    stream: Ints
    call_start: Ints
    call_end: Ints
    is_launched: Flags


@memoize
def unseen(profile: Profile) -> dict[int, Unseen]:
    """Return, for each GPU with work, the spans in which its activity is unknown."""
    bounds = profile.bounds((*GPU_TABLES, *_ON_HOST))
    if bounds is None:
        return {}
    operations = dict(_by_gpu(profile))
    untimed, by_gpu = _untimed_spans(profile, operations), {}
    late_waits = {process: _late_wait_spans(profile, process, operations) for process in _process_numbers(operations)}
    for gpu, of_gpu in operations.items():
        idle = gaps(union(of_gpu.start, of_gpu.end), bounds)
        processes = np.sort(pd.unique(of_gpu.process))
        paused = [spans for process, spans in pauses(profile).items() if process in processes]
        layers = (
            union_of(paused),
            untimed.get(gpu, _NO_SPANS),
            _time_before(profile, gpu, operations, bounds[0]),
            _time_after(profile, of_gpu, bounds[1]),
            union_of(late_waits[process] for process in processes.tolist()),
        )
        parts = []
        for reason, spans in enumerate(layers):
            hidden, idle = separate(idle, spans)
            parts.append((*hidden, np.full(len(hidden[0]), reason)))
        start, end, reason_of = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(start, kind="stable")
        by_gpu[gpu] = Unseen(start[order], end[order], reason_of[order])
    return by_gpu


def unseen_by(profile: Profile, gpus_of: Ints) -> Spans:
    """Return when the activity of any of these GPUs is unknown."""
    return union_of(
        spans_of_gpu.spans
        for gpu, spans_of_gpu in unseen(profile).items()
        if len(spans_of_gpu.start) and (gpus_of == gpu).any()
    )


@memoize
def pauses(profile: Profile) -> dict[int, Spans]:
    """Return, for each process, the spans in which the recording was paused, or may have been (`silences`)."""
    by_process = {process: [spans] for process, spans in _uncounted_spans(profile).items()}
    for process, span in silences(profile).items():
        by_process.setdefault(process, []).append(span)
    return {
        process: spans
        for process, spans_of_process in by_process.items()
        if len((spans := union_of(spans_of_process))[0])
    }


@memoize
def _uncounted_spans(profile: Profile) -> dict[int, Spans]:
    """Return, for each process, the spans in which calls were made but not recorded."""
    calls = profile.recorded("api_calls")
    owner, number = calls["process"].to_numpy(dtype=np.int64), integers(calls["correlation"])
    by_process = {}
    for process in pd.unique(owner).tolist():
        is_numbered = (owner == process) & (number > 0)
        numbers, start, end = number, *(calls[name].to_numpy() for name in _SPAN)
        if not is_numbered.all():
            numbers, start, end = (values[is_numbered] for values in (numbers, start, end))
        if not (start[1:] >= start[:-1]).all():
            order = np.argsort(start, kind="stable")
            numbers, start, end = (values[order] for values in (numbers, start, end))
        begin, until = np.maximum.accumulate(end)[:-1], start[1:]
        missing = np.diff(np.maximum.accumulate(numbers))
        is_pause = (missing > _MOST_UNRECORDED) & (until - begin > _LATE_NS)
        if is_pause.any():
            stretches = begin[is_pause], until[is_pause]
            is_pause = _launches_elsewhere(profile, process, stretches) | _are_silent(profile, process, stretches)
            by_process[process] = stretches[0][is_pause], stretches[1][is_pause]
    return by_process


def _launches_elsewhere(profile: Profile, process: int, spans: Spans) -> Flags:
    """Return which spans contain operators or ranges that launch work everywhere else."""
    calls = profile.table("api_calls")
    calls = calls[are_named(calls["name"], _LAUNCHES) & (calls["process"] == process).to_numpy()]
    is_launching = np.zeros(len(spans[0]), dtype=bool)
    for table in (profile.recorded(name) for name in ("cpu_ops", "ranges")):
        of_process = table[(table["process"] == process).to_numpy()]
        if not len(of_process) or not len(calls):
            continue
        start, end = (of_process[name].to_numpy(dtype=np.int64) for name in _SPAN)
        launches = np.zeros(len(of_process), dtype=np.int64)
        threads = of_process["thread"].to_numpy()
        for thread in pd.unique(threads):
            launch_times = np.sort(calls["start_ns"].to_numpy()[(calls["thread"] == thread).to_numpy()])
            rows = threads == thread
            launches[rows] = np.searchsorted(launch_times, end[rows]) - np.searchsorted(launch_times, start[rows])
        place, inside_one = _place_in_spans(spans, of_process)
        name = of_process["name"].cat.codes.to_numpy(dtype=np.int64)
        elsewhere, most = name[~inside_one], int(name.max()) + 1
        count, launching = (np.bincount(elsewhere, weight, most) for weight in (None, launches[~inside_one] > 0))
        is_launching[place[inside_one & (launching > count / 2)[name]]] = True
    return is_launching


def _place_in_spans(spans: Spans, table: pd.DataFrame) -> tuple[Ints, Flags]:
    """Return the last span that begins before each row, -1 for none, and whether the row lies fully inside it."""
    start = table["start_ns"].to_numpy(dtype=np.int64)
    end = table["end_ns"].to_numpy(dtype=np.int64) if "end_ns" in table else start
    place = np.searchsorted(spans[0], start, side="right") - 1
    return place, (place >= 0) & (end <= spans[1][place])


def _are_silent(profile: Profile, process: int, spans: Spans) -> Flags:
    """Return the spans in which no other event was recorded either, although some should have been.

    Profilers also omit calls that only query or set something, of which host code can make many. Such a span recurs in
    each step and is hardly longer than one. It may still be a pause if operators or calls of the operating system are
    recorded elsewhere.
    """
    silent, is_certain = np.ones(len(spans[0]), dtype=bool), len(spans[0]) <= _FEW_PAUSES
    for name in (*_CONTINUOUS, "ranges", "marks"):
        table = profile.recorded(name)
        table = table[(table["process"] == process).to_numpy()]
        place, is_inside = _place_in_spans(spans, table)
        silent[place[is_inside]] = False
        is_certain |= name in _CONTINUOUS and len(table) > 0
    if is_certain:
        return silent
    steps = [np.diff(loop.starts) for loop in loops_of(profile) if loop.process == process and len(loop.starts) > 1]
    return silent & (spans[1] - spans[0] > max((2 * float(np.median(step)) for step in steps), default=0.0))


@memoize
def silences(profile: Profile) -> dict[int, Spans]:
    """Return the span without events that is most of the loop (or the capture) of a process, if there is one.

    It may be a pause of the recording, or something that the program did once; in both cases it is not part of a step.
    """
    loops, recorded = loops_of(profile), profile.bounds((*GPU_TABLES, *_ON_HOST))
    if len(loops) > 1 or recorded is None:
        return {}
    if loops:
        (loop,) = loops
        process, bounds = loop.process, (int(loop.starts[0]), max(loop.end_ns, int(loop.starts[-1])))
        step_ns = float(np.median(np.diff(loop.starts))) if len(loop.starts) > 1 else np.inf
    elif profile.environment.collector != "nsys" and not profile.with_rows((*GPU_TABLES, "api_calls")):
        # torch.profiler does not record how the program starts up, in which nothing happens for long; nsys does
        on_host = profile.with_rows(_ON_HOST)
        process, bounds, step_ns = int(on_host[0]["process"].iloc[0]) if on_host else -1, recorded, 0.0
    else:
        return {}
    tables = profile.with_rows(_BUSY_TABLES)
    least = max(_MOST_OF_LOOP * (bounds[1] - bounds[0]), _STEPS_LONG * step_ns, _LEAST_SILENCE_NS)
    # events of other tables make silences only shorter; the union of millions of events takes long
    for table in tables:
        of_table = gaps(clipped_union(table["start_ns"].to_numpy(), table["end_ns"].to_numpy(), bounds), bounds)
        if (of_table[1] - of_table[0]).max(initial=0) <= least:
            return {}
    points = profile.with_rows(_POINT_TABLES)
    edges = np.concatenate([_NONE, *(table[name] for table in points for name in _SPAN if name in table)])
    spans = [(edges, edges + 1), *((table["start_ns"], table["end_ns"]) for table in tables)]
    start, end = (np.concatenate([np.asarray(span[place], dtype=np.int64) for span in spans]) for place in (0, 1))
    silent = gaps(clipped_union(start, end, bounds), bounds)
    silent_ns = silent[1] - silent[0]
    longest = np.sort(silent_ns)[-2:].tolist()
    if len(longest) < 2 or longest[1] <= max(least, _LONGEST_FACTOR * longest[0]):
        return {}
    place = int(silent_ns.argmax())
    if touches(_uncounted_spans(profile).get(process, _NO_SPANS), *(edge[place : place + 1] for edge in silent)).any():
        return {}
    return {process: (silent[0][place : place + 1], silent[1][place : place + 1])}


@memoize
def graph_captures(profile: Profile) -> dict[int, Spans]:
    """Return when each process recorded CUDA graphs: from the begin to the end of each stream capture."""
    calls = profile.recorded("api_calls")
    begins, ends = (calls[are_named(calls["name"], kind)] for kind in ("StreamBeginCapture", "StreamEndCapture"))
    by_process: dict[int, list[Spans]] = {}
    # a capture ends on the thread that began it
    for thread in begins["thread"].unique().tolist():
        begins_of_thread = begins[begins["thread"] == thread]
        opened = np.sort(begins_of_thread["start_ns"].to_numpy(dtype=np.int64))
        closed = np.sort(ends.loc[ends["thread"] == thread, "end_ns"].to_numpy(dtype=np.int64))
        place = np.searchsorted(closed, opened)
        opened, place = opened[place < len(closed)], place[place < len(closed)]
        by_process.setdefault(int(begins_of_thread["process"].iloc[0]), []).append((opened, closed[place]))
    return {process: union_of(spans) for process, spans in by_process.items()}


def _by_gpu(profile: Profile) -> Iterator[tuple[int, _GpuOperations]]:
    frames = [profile.tables[name] for name in GPU_TABLES if name in profile.tables]
    if not sum(map(len, frames)):
        return
    call, calls = launching_calls(profile), profile.recorded("api_calls")
    # the extra last entry maps -1 (no call) to -1
    call_start, call_end = (np.append(calls[name].to_numpy(), -1) for name in _SPAN)
    gpu, start, end, process, stream = (
        compact(np.concatenate([integers(frame[name]) for frame in frames]))
        for name in ("device", "start_ns", "end_ns", "process", "stream")
    )
    is_launched = np.concatenate([are_launched(frame) for frame in frames])
    order = np.argsort(start, kind="stable")
    for number in sorted(unique(pd.Series(gpu, copy=False))):
        rows = order if gpu.strides == (0,) else order[gpu[order] == number]
        of_call = call[rows]
        yield (
            number,
            _GpuOperations(
                start[rows],
                end[rows],
                _chosen(process, rows),
                _chosen(stream, rows),
                call_start[of_call],
                call_end[of_call],
                is_launched[rows],
            ),
        )


def _chosen(values: Ints, rows: Ints) -> Ints:
    """Return some values; all equal ones stay in memory once."""
    return values[: len(rows)] if values.strides == (0,) else values[rows]


def _process_numbers(operations: dict[int, _GpuOperations]) -> list[int]:
    processes = np.concatenate([_NONE, *(of_gpu.process for of_gpu in operations.values())])
    return [int(process) for process in np.sort(pd.unique(processes))]


def _time_before(profile: Profile, gpu: int, operations: dict[int, _GpuOperations], first: int) -> Spans:
    """Return the time before the first operation of a GPU if that operation begins long after its launch, or has none.

    Empty if a wait returned before the launch, because the GPU had then finished all work, or if an operation on
    another GPU of the process had just ended, because the first operation then waited for that.
    """
    of_gpu = operations[gpu]
    first_start, call_end, process = int(of_gpu.start[0]), int(of_gpu.call_end[0]), int(of_gpu.process[0])
    if not of_gpu.is_launched[0] or first_start - max(call_end, first) <= _LATE_NS:
        return _NO_SPANS
    calls = profile.recorded("api_calls")
    # without recorded calls, the work before is unknown
    is_traced = bool((calls["process"] == process).any())
    has_waited = call_end >= 0 and bool((_waits_of(profile, process)[1] <= call_end).any())
    follows = any(
        bool(((first_start - _LATE_NS < other.end) & (other.end <= first_start) & (other.process == process)).any())
        for number, other in operations.items()
        if number != gpu
    )
    return _NO_SPANS if has_waited or follows or not is_traced else (np.array([first]), np.array([first_start]))


def _time_after(profile: Profile, of_gpu: _GpuOperations, last: int) -> Spans:
    """Return the time after the last operation of a GPU if its process launched more work, missing in the capture."""
    last_end, process = int(of_gpu.end.max()), int(of_gpu.process[-1])
    calls = profile.recorded("api_calls")
    if last - last_end <= _LATE_NS or not len(calls) or of_gpu.call_end.max() < 0:
        return _NO_SPANS
    start = calls["start_ns"].to_numpy()
    is_launch = are_named(calls["name"], _LAUNCHES) & (calls["process"] == process).to_numpy()
    is_launch &= start > of_gpu.call_end.max()
    launches, keys = launch_keys(profile)
    known_keys = np.append(np.sort(launches), np.iinfo(np.int64).max)
    unseen_launches = np.flatnonzero(is_launch)
    unseen_launches = start[
        unseen_launches[known_keys[find_keys(known_keys, keys[unseen_launches])] != keys[unseen_launches]]
    ]
    low, high = graph_captures(profile).get(process, _NO_SPANS)
    place = np.searchsorted(low, unseen_launches, side="right") - 1
    unseen_launches = unseen_launches[(place < 0) | (unseen_launches >= np.append(high, 0)[place])]
    if len(unseen_launches) <= _FEW_LOST * len(of_gpu.start):
        return _NO_SPANS
    return np.array([max(last_end, int(unseen_launches.min()))]), np.array([last])


@memoize
def _all_waits(profile: Profile) -> tuple[Ints, Ints, Ints]:
    """Return process, start and end (ns) of all calls that wait for the GPU, in order of their ends."""
    calls, is_wait = profile.recorded("api_calls"), call_causes(profile) == IDLE.index(SYNC)
    process, start, end = (calls[name].to_numpy(dtype=np.int64)[is_wait] for name in ("process", *_SPAN))
    order = np.argsort(end, kind="stable")
    return process[order], start[order], end[order]


def _waits_of(profile: Profile, process: int) -> Spans:
    """Return when a process waited for the GPU, in order of the ends."""
    owner, start, end = _all_waits(profile)
    return start[owner == process], end[owner == process]


def _late_wait_spans(profile: Profile, process: int, operations: dict[int, _GpuOperations]) -> Spans:
    """Return the last part of each wait that returned long after the last operation of its process.

    If nsys recorded the program from its start, the first call does not count, because it sets up CUDA.
    """
    start, end = _waits_of(profile, process)
    calls = profile.recorded("api_calls")
    if profile.environment.collector == "nsys" and len(start):
        is_later = start > calls["start_ns"].to_numpy()[(calls["process"] == process).to_numpy()].min()
        start, end = start[is_later], end[is_later]
    names = ("start", "end", "call_start")
    is_of_process = [of_gpu.process == process for of_gpu in operations.values()]
    starts, ends, call_starts = (
        np.concatenate(
            [getattr(of_gpu, name)[flags] for of_gpu, flags in zip(operations.values(), is_of_process, strict=True)]
        )
        for name in names
    )
    if not len(start):
        return _NO_SPANS
    order = np.argsort(starts, kind="stable")
    reach = np.maximum.accumulate(ends[order])
    place = np.searchsorted(starts[order], end) - 1
    work_end = np.maximum(np.where(place >= 0, reach[np.maximum(place, 0)], start), start)
    if (end - work_end).max() <= _LATE_NS:
        return _NO_SPANS
    # operations that begin before they are launched: the clock of the GPU is behind
    ahead = (starts - call_starts)[call_starts >= 0]
    clock_lag = max(0, -int(np.quantile(ahead, _FEW_EARLY, method="lower"))) if len(ahead) else 0
    is_late = end - work_end > _LATE_NS + clock_lag
    # another GPU of the process may still be at work
    return without(union(work_end[is_late], end[is_late]), union(starts, ends)) if is_late.any() else _NO_SPANS


def _untimed_spans(profile: Profile, operations: dict[int, _GpuOperations]) -> dict[int, Spans]:
    """Return, for each GPU, when operations without known times may have run.

    Such an operation comes after its launch (or at its recorded start), before the next operation on its stream, and
    before the end of the next wait.
    """
    untimed = profile.recorded("untimed")
    if not len(untimed):
        return {}
    calls, keys = profile.recorded("api_calls"), ["process", "correlation"]
    call_starts = calls[[*keys, "start_ns"]].dropna().drop_duplicates(keys).astype("float64")
    launch = untimed[keys].astype("float64").merge(call_starts, on=keys, how="left", validate="m:1")["start_ns"]
    earliest = untimed["start_ns"].astype("float64").reset_index(drop=True).fillna(launch)
    by_gpu: dict[int, list[Spans]] = {}
    place = ["device", "stream", "process"]
    operations_without_times = pd.DataFrame(
        {**{name: integers(untimed[name]) for name in place}, "begun": earliest.to_numpy()}
    ).dropna()
    for gpu, stream, process in set(zip(*(operations_without_times[name].tolist() for name in place), strict=True)):
        if (of_gpu := operations.get(gpu)) is None:
            continue
        is_same_stream = (operations_without_times[place] == [gpu, stream, process]).all(axis=1)
        low = operations_without_times.loc[is_same_stream, "begun"].to_numpy(dtype=np.int64)
        ends = (np.sort(of_gpu.start[of_gpu.stream == stream]), _waits_of(profile, process)[1])
        high = np.full(len(low), int(of_gpu.end.max()))
        for times in ends:
            high = np.minimum(high, np.append(times, _LATEST)[np.searchsorted(times, low, side="right")])
        by_gpu.setdefault(gpu, []).append(union(low[high > low], high[high > low]))
    return {gpu: union_of(spans) for gpu, spans in by_gpu.items()}
