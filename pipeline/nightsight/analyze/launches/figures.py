"""Measures the cost of launches, and how far the CPU runs ahead of the GPU.

The three figures overlap and must not be added. API time is CPU time in the call. Launch latency is the time until work
starts on an idle GPU, including API time. Queue time is spent behind earlier work, and costs nothing while the GPU is
busy with it.
"""

from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.split import CauseCalls, causing_calls, clock_notes, devices_at_work, idle_causes, time_split
from nightsight.events.timeline import Operations, Timeline, busy_spans, of_capture, operation_column
from nightsight.intervals import Flags, Floats, Ints, depth, divided, gaps, in_order, last_started, open_time, union
from nightsight.results.categories import IDLE, LAUNCH, SYNC
from nightsight.results.launches import IN_FLIGHT, LAUNCH_BOUND, LAUNCH_PHASES
from nightsight.system.parallel import memoize
from nightsight.tables import positions

API: Final = "API time"
LATENCY: Final = "launch latency"
QUEUE: Final = "queue time (no overhead)"
POINTS: Final = 500

_NONE: Final = np.empty(0, dtype=np.int64)


class _SubmittedWork(NamedTuple):
    """Work submitted to the GPU: an entry per kernel, copy and memset, and per graph launch on a device; times in ns.

    `queue` numbers the streams, over all contexts; `name` numbers the kernel names and is -1 for copies and memsets;
    `is_known`: the call was recorded; if not, `call_start` and `call_end` are the start on the GPU.
    """

    start: Ints
    end: Ints
    device: Ints
    process: Ints
    queue: Ints
    name: Ints
    is_known: Flags
    call_start: Ints
    call_end: Ints
    is_first: Flags

    @property
    def submit_ns(self) -> Ints:
        """When each entry was in flight from: the end of its call, or its start if that was earlier."""
        return np.minimum(self.call_end, self.start)


class LaunchTimes(NamedTuple):
    """Launches whose work began in the window and whose call was recorded, one entry each.

    `api` is the duration of the call, and `wait` the time from its start to the start on the GPU, both in ns. A wait is
    negative if the GPU's clock is behind by more. `met_idle`: the launch had nothing to wait for. `is_first`: it is the
    first launch of the kernel in its process and on its device.
    """

    device: Ints
    api: Ints
    wait: Ints
    met_idle: Flags
    is_first: Flags


def launch_phases(timeline: Timeline) -> Table:
    """Return one row per device, figure and `first` or `steady`: count, sum, median, 95th percentile, maximum in ns."""
    times, rows = launch_times(timeline), []
    for device, launches in positions(times.device).items():
        is_only = len(launches) == len(times.device)
        of_device = times if is_only else LaunchTimes._make(column[launches] for column in times)
        figures = {
            API: (of_device.api, np.ones(len(launches), dtype=bool)),
            LATENCY: (of_device.wait, of_device.met_idle),
            QUEUE: (of_device.wait, ~of_device.met_idle),
        }
        for figure, (time, which) in figures.items():
            for launch, is_chosen in (("first", which & of_device.is_first), ("steady", which & ~of_device.is_first)):
                if is_chosen.any():
                    rows.append([device, figure, launch, *_statistics(time[is_chosen])])
    work = _submitted_work(timeline)
    is_launch = _is_launch(timeline, work)
    notes = (
        *_unmatched_notes(int((is_launch & ~work.is_known).sum()), is_launch),
        *_early_notes(int((times.wait < times.api).sum()), len(times.wait)),
        *clock_notes(timeline),
    )
    return Table(pd.DataFrame(rows, columns=LAUNCH_PHASES.column_names), notes)


def launch_bound(timeline: Timeline) -> Table:
    """Return one row per device: idle time due to launches, operations in flight, and how often the queue was empty."""
    work, window, calls = _submitted_work(timeline), timeline.window, causing_calls(timeline)
    split, curve = time_split(timeline).frame, in_flight(timeline).frame
    rows = []
    for device in devices_at_work(timeline):
        idle = int(split["time_ns"][(split["device"] == device) & (split["category"] == LAUNCH)].sum())
        of_device = _work_of_device(work, device)
        average = _mean_in_flight(*_sorted_times(of_device), np.array([window.start_ns, window.end_ns]))
        # the queue runs empty at the end of each merged stretch in flight
        drained = union(of_device.submit_ns, of_device.end)[1]
        drained = drained[window.contains(drained)]
        count, functions = _synchronizing(calls, drained, pd.unique(of_device.process))
        rows.append(
            {
                "device": device,
                "launches": int(_is_launch(timeline, of_device).sum()),
                "launch_idle_ns": idle,
                "launch_idle_pct": 100.0 * idle / window.length_ns,
                "first_launch_idle_ns": _first_idle(timeline, of_device, device=device),
                "in_flight_avg": average[0],
                "in_flight_max": curve["in_flight_max"][curve["device"] == device].max(),
                "drained": len(drained),
                "drained_in_sync": count,
                "functions": functions,
            }
        )
    return Table(pd.DataFrame(rows, columns=LAUNCH_BOUND.column_names))


@memoize
def in_flight(timeline: Timeline) -> Table:
    """Return up to POINTS equal stretches of the window per device: mean and maximum of operations in flight."""
    work, window = _submitted_work(timeline), timeline.window
    points = min(POINTS, window.length_ns)
    edges = divided(window.start_ns, window.length_ns, points)
    frames = [pd.DataFrame(columns=IN_FLIGHT.column_names)]
    for device in devices_at_work(timeline):
        average, most = _in_flight(_work_of_device(work, device), edges)
        time = edges[:-1] - window.start_ns
        frames.append(pd.DataFrame(dict(zip(IN_FLIGHT.column_names, (device, time, average, most), strict=True))))
    return Table(pd.concat(frames[1:] or frames, ignore_index=True))


def _work_of_device(work: _SubmittedWork, device: int) -> _SubmittedWork:
    """Return the work of one device."""
    rows = np.flatnonzero(work.device == device)
    return work if len(rows) == len(work.device) else _SubmittedWork._make(column[rows] for column in work)


def _first_idle(timeline: Timeline, work: _SubmittedWork, *, device: int) -> int:
    """Return the idle time in ns due to first launches that took longer than the median of later ones.

    First launches load or compile the kernel. `work` is the work of this device.
    """
    window, api = timeline.window, work.call_end - work.call_start
    is_launch = _is_launch(timeline, work) & work.is_known
    first = work.is_first
    if not (is_launch & ~first).any():
        return 0
    surplus = np.where(is_launch & first, np.maximum(api - np.median(api[is_launch & ~first]), 0), 0).astype(np.int64)
    # as in `split`: of work that starts together, the one whose call came first ends the gap
    order = in_order(work.start, work.call_start, work.call_end)
    surplus, start = surplus[order], work.start[order]
    _, end = gaps(busy_spans(timeline)[device], window.bounds)
    # first launches are few: of each, the gaps that end after the start of the work before it
    late = np.flatnonzero(surplus)
    first_gap = np.where(late > 0, np.searchsorted(end, start[late - 1], side="right"), 0)
    count = np.searchsorted(end, start[late], side="right") - first_gap
    longer = np.repeat(surplus[late], count)
    piece = np.repeat(first_gap - np.cumsum(count) + count, count) + np.arange(len(longer))
    causes = idle_causes(timeline, device=device, piece=piece)
    # at most the part of a gap that launching explains, and at most the extra time of the launch
    return int(np.minimum(causes[:, IDLE.index(LAUNCH)], longer).sum())


@memoize
def launch_times(timeline: Timeline) -> LaunchTimes:
    """Return the API time of each launch and the time until it started."""
    work = _submitted_work(timeline)
    is_launch = _is_launch(timeline, work) & work.is_known
    return LaunchTimes(
        work.device[is_launch],
        (work.call_end - work.call_start)[is_launch],
        (work.start - work.call_start)[is_launch],
        _met_idle_gpu(work)[is_launch],
        work.is_first[is_launch],
    )


@of_capture
def _submitted_work(timeline: Timeline) -> _SubmittedWork:
    operations = timeline.operations
    process, context = (operation_column(timeline, column) for column in ("process", "context"))
    queue = _combination(process, operations.device, context, operations.stream)
    end, names = operations.end, timeline.profile.table("kernels")["name"].cat
    name = np.full(len(queue), -1)
    name[operations.of("kernels")] = names.codes
    # without graphs, a slice of everything does not copy the columns
    position: slice | Ints = slice(None)
    if operations.in_graph.any():
        graph, graph_end = _graphs(operations, queue)
        # graphs have one name, after those of the kernels
        name[graph], end = len(names.categories), end.copy()
        end[graph] = graph_end
        position = np.concatenate((np.flatnonzero(~operations.in_graph), graph))
    start, call = operations.start[position], operations.call[position]
    has_call = call >= 0
    call_start, call_end = (np.where(has_call, np.append(times, 0)[call], start) for times in timeline.call_times)
    device, process, name = operations.device[position], process[position], name[position]
    is_first = _are_first(call_start, _combination(process, device, name))
    return _SubmittedWork(
        start, end[position], device, process, queue[position], name, has_call, call_start, call_end, is_first
    )


def _graphs(operations: Operations, queue: Ints) -> tuple[Ints, Ints]:
    """Return the position of the first operation of each graph launch on a device, and when its last one ends."""
    rows = np.flatnonzero(operations.in_graph)
    launch, device = operations.launch[rows], operations.device[rows]
    order = np.lexsort((queue[rows], operations.start[rows], device, launch))
    rows, launch, device = rows[order], launch[order], device[order]
    changes = np.diff(launch, prepend=-1) | np.diff(device, prepend=-1)
    first = np.flatnonzero(changes)
    return rows[first], np.maximum.reduceat(operations.end[rows], first)


def _combination(*columns: Ints) -> Ints:
    """Return a number for each combination of values, the same for equal ones."""
    combined = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        # one device, one process, one context: often there is only one value, which distinguishes nothing
        if len(column) and (column != column[0]).any():
            codes, values = pd.factorize(column, sort=True)
            combined = combined * len(values) + codes
    return combined


def _is_launch(timeline: Timeline, work: _SubmittedWork) -> Flags:
    """Return which entries are launches of kernels or graphs whose work began in the window."""
    return (work.name >= 0) & timeline.window.contains(work.start)


def _met_idle_gpu(work: _SubmittedWork) -> Flags:
    """Return whose stream was empty when the call began, if no other work on the device ended before the start.

    Work that did not end in between cannot have delayed the launch.
    """
    flags = np.zeros(len(work.start), dtype=bool)
    if not len(flags):
        return flags
    order = np.lexsort((work.start, work.queue))
    rank = np.cumsum(np.diff(work.queue[order], prepend=work.queue[order[0]]) != 0)
    # shift each queue's times into a separate range, so that one running maximum serves all queues
    origin = int(min(work.start.min(), work.call_start.min()))
    shift = rank * (int(work.end.max()) - origin + 1) - origin
    reached = np.maximum.accumulate(work.end[order] + shift)
    flags[order] = np.concatenate(([-1], reached[:-1])) <= (work.call_start[order] + shift)
    for of_device in positions(work.device).values():
        rows = of_device[flags[of_device]]
        ends = np.sort(work.end[of_device], kind="stable")
        # the latest end that is not after the start
        ended = np.append(ends, np.iinfo(np.int64).min)[np.searchsorted(ends, work.start[rows], side="right") - 1]
        flags[rows[ended > work.call_start[rows]]] = False
    return flags


def _are_first(call_start: Ints, kernel: Ints) -> Flags:
    """Return which are the first recorded launch of their kernel."""
    codes, kernels = pd.factorize(kernel)
    earliest = np.full(len(kernels), np.iinfo(np.int64).max)
    np.minimum.at(earliest, codes, call_start)
    return np.asarray(earliest[codes] == call_start)


def _statistics(time: Ints) -> tuple[int, int, float, float, int]:
    median, high = np.percentile(time, [50, 95])
    return len(time), int(time.sum()), float(median), float(high), int(time.max())


def _unmatched_notes(count: int, is_launch: Flags) -> tuple[str, ...]:
    if not count:
        return ()
    return (f"{count:,} of {is_launch.sum():,} launches have no recorded API call and are not in these figures.",)


def _early_notes(count: int, total: int) -> tuple[str, ...]:
    return (f"{count:,} of {total:,} launches began on the GPU before their call returned.",) if count else ()


def _in_flight(work: _SubmittedWork, edges: Ints) -> tuple[Floats, Ints]:
    """Return the mean and the maximum number of operations in flight between consecutive edges."""
    submit_ns, end = _sorted_times(work)
    most = depth(submit_ns, end, edges[:-1])
    # the maximum is reached at an edge or when an operation is added: after the last one that is added at a time
    last = np.flatnonzero(np.append(submit_ns[1:] > submit_ns[:-1], True)[: len(submit_ns)])
    added = submit_ns[last]
    first, after = np.searchsorted(added, (edges[0], edges[-1]))
    added, submitted = added[first:after], last[first:after] + 1
    np.maximum.at(most, last_started(edges, added), submitted - np.searchsorted(end, added, side="right"))
    return _mean_in_flight(submit_ns, end, edges), most


def _sorted_times(work: _SubmittedWork) -> tuple[Ints, Ints]:
    return np.sort(work.submit_ns, kind="stable"), np.sort(work.end, kind="stable")


def _mean_in_flight(submit_ns: Ints, end: Ints, edges: Ints) -> Floats:
    return np.diff(open_time(submit_ns, end, edges)) / np.diff(edges)


def _synchronizing(calls: CauseCalls, time: Ints, processes: Ints) -> tuple[int, str]:
    """Return how many of the times are inside a synchronizing call, and the functions, the most frequent first."""
    rows = np.concatenate([_NONE, *(calls.rows.get((int(key), IDLE.index(SYNC)), _NONE) for key in processes)])
    counts = {}
    for name in np.unique(calls.name[rows]):
        of_name = rows[calls.name[rows] == name]
        counts[calls.names[name]] = int(_inside_spans(calls.start[of_name], calls.end[of_name], time).sum())
    functions = sorted((name for name, count in counts.items() if count), key=lambda name: (-counts[name], name))
    return int(_inside_spans(calls.start[rows], calls.end[rows], time).sum()), ", ".join(functions)


def _inside_spans(start: Ints, end: Ints, time: Ints) -> Flags:
    """Return which times are inside one of the spans."""
    starts, ends = union(start, end)
    return depth(starts, ends, time) > 0


ANALYSES: Final = (
    Analysis(LAUNCH_PHASES, launch_phases),
    Analysis(LAUNCH_BOUND, launch_bound),
    Analysis(IN_FLIGHT, in_flight),
)
