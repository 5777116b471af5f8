"""Finds the Python stacks during the idle time of a GPU, by cause, from samples or from recorded calls.

Without GPU work, it finds the stacks of Python threads inside and outside of operators.

Samples are points in time. Each represents the mean time between two samples, which is correct on average however
short the gaps are. Recorded calls are spans, so their time is known.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.split import causing_calls, devices_at_work, window_waits
from nightsight.events.categories import Categories
from nightsight.events.stacks import framed, joined, of_library, split, without_line
from nightsight.events.timeline import Timeline
from nightsight.events.window import Window
from nightsight.intervals import NOTHING, Ints, clipped_union, gaps, innermost, outer, scaled
from nightsight.results.categories import HOST, IDLE
from nightsight.results.gpu import IDLE_STACKS
from nightsight.results.steps import OPERATORS
from nightsight.tables import NULLABLE, levels, nearest, positions
from nightsight.units import format_value

# the sampler skips samples while all processors are busy; a pause of more than this many is not due to that
_MOST_MISSED: Final = 10
# share of a device's idle time: a stack that takes less counts for its caller
_LEAST: Final = 0.001
_NOT_RECORDED: Final = "(not recorded)"
_OF_PYTHON: Final = ("python_samples", "python_functions")
_WITHOUT_GPU: Final = "Where Python was"
_NO_STACKS: Final = "only library functions of Python were recorded, or too few samples"
_GENERATED: Final = "(<"


class _PieceSet(NamedTuple):
    """Disjoint pieces of time for which Python stacks are wanted: start, end, cause and thread.

    cause: a position in `causes`. thread: -1 if none is known.
    """

    start: Ints
    end: Ints
    cause: Ints | Categories
    thread: Ints
    causes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Samples:
    """Samples of each thread in order of time: the time, and the position of the stack in `texts`.

    `distance_ns`: the mean time between two samples of a thread.
    """

    threads: Mapping[int, tuple[Ints, Ints]]
    texts: list[str]
    distance_ns: float

    def during(self, thread: int, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the span that contains each sample of a thread, the stack, and the weight."""
        time, stack = self.threads[thread]
        span = np.searchsorted(start, time, side="right") - 1
        is_inside = (span >= 0) & (time < np.append(end, 0)[span])
        return span[is_inside], stack[is_inside], np.ones(int(is_inside.sum()), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _RecordedCalls:
    """Disjoint spans of each thread in order of time: start, end, and the position of the stack in `texts`."""

    threads: Mapping[int, tuple[Ints, Ints, Ints]]
    texts: list[str]

    def during(self, thread: int, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Return every pair of a span and a stack in it, with the time of that stack."""
        starts, ends, stack = self.threads[thread]
        low = np.searchsorted(ends, start, side="right")
        count = np.maximum(np.searchsorted(starts, end, side="left") - low, 0)
        span = np.repeat(np.arange(len(start)), count)
        row = np.arange(len(span)) - np.repeat(np.cumsum(count) - count - low, count)
        return span, stack[row], np.minimum(end[span], ends[row]) - np.maximum(start[span], starts[row])


def idle_stacks(timeline: Timeline) -> Table:
    """Return one row per device, cause and stack; the rows of a device and cause add up to its idle time.

    Without GPU work, the rows are for threads instead of devices, and add up to the window.
    """
    recorded_stacks, has_work = _recorded_stacks(timeline), len(timeline.operations.start) > 0
    title = "" if has_work else _WITHOUT_GPU
    if recorded_stacks is None:
        return Table(pd.DataFrame(columns=_stack_columns(tid=False, samples=False)), (_NO_STACKS,), title)
    pieces_by_key = (
        _idle_pieces(timeline, set(recorded_stacks.threads))
        if has_work
        else _thread_pieces(timeline, set(recorded_stacks.threads))
    )
    rows = [{**key, **row} for key, pieces in pieces_by_key for row in _stack_rows(recorded_stacks, pieces)]
    frame = pd.DataFrame(rows, columns=IDLE_STACKS.column_names)
    if not has_work:
        # a thread that ran Python only outside of the window
        frame = frame[frame.groupby("tid")["stack"].transform(lambda stacks: (stacks != "").any()).astype("bool")]
    frame = frame.astype({**dict.fromkeys(("cause", "function", "calls", "stack"), "str"), "device": NULLABLE})
    frame = frame.sort_values(
        ["device", "tid", "time_ns", "cause", "stack"], ascending=[True, True, False, True, True], ignore_index=True
    )
    columns = _stack_columns(tid=not has_work, samples=isinstance(recorded_stacks, _Samples))
    return Table(frame[columns], _stack_notes(recorded_stacks, frame, "idle time" if has_work else "time"), title)


def _stack_columns(*, tid: bool, samples: bool) -> list[str]:
    optional = {"tid": tid, "samples": samples}
    return [name for name in IDLE_STACKS.column_names if optional.get(name, True)]


def _stack_notes(stacks: _Samples | _RecordedCalls, frame: pd.DataFrame, time: str) -> tuple[str, ...]:
    """Return notes on the number of samples, and on the share of the `time` without a stack."""
    notes = []
    if isinstance(stacks, _Samples):
        distance = format_value(stacks.distance_ns, "distance_ns")
        notes.append(
            f"{frame['samples'].sum():,.0f} samples, each worth {distance}, their mean distance. Expect a time from 25 "
            "samples to be off by a fifth, one from 100 by a tenth."
        )
    bare = frame["stack"] == ""
    if bare.any():
        share = 100.0 * frame.loc[bare, "time_ns"].sum() / frame["time_ns"].sum()
        notes.append(f"{format_value(share, 'share_pct')} of the {time} has no stack.")
    return tuple(notes)


# -- recorded stacks --------------------------------------------------------------------------------------------------


def _recorded_stacks(timeline: Timeline) -> _Samples | _RecordedCalls | None:
    """Return the samples of Python's stack, else the calls of its functions; None if there are neither."""
    samples, calls = (timeline.profile.recorded(name) for name in _OF_PYTHON)
    if len(samples):
        return _samples_by_thread(samples, timeline.window)
    return _calls_by_thread(calls) if len(calls) else None


def _samples_by_thread(samples: pd.DataFrame, window: Window) -> _Samples | None:
    """Return the samples in the window by thread; None if no thread has two, because their distance is then unknown."""
    time, stack = (np.asarray(values, dtype=np.int64) for values in (samples["start_ns"], samples["stack"].cat.codes))
    in_window = np.flatnonzero(window.contains(time))
    in_window = in_window[np.argsort(time[in_window], kind="stable")]
    ordered = {thread: in_window[rows] for thread, rows in positions(samples["thread"].to_numpy()[in_window]).items()}
    distances = np.concatenate([NOTHING, *(np.diff(time[rows]) for rows in ordered.values())])
    distances = distances[distances > 0]
    if not len(distances):
        return None
    typical = distances[distances <= _MOST_MISSED * np.median(distances)]
    texts = samples["stack"].cat.categories.to_list()
    # a stack without names is useless
    has_names = np.array([bool(text) for text in texts])[stack]
    named_rows = {thread: rows[has_names[rows]] for thread, rows in ordered.items()}
    threads = {thread: (time[rows], stack[rows]) for thread, rows in named_rows.items()}
    return _Samples(threads, texts, float(typical.mean()))


def _calls_by_thread(calls: pd.DataFrame) -> _RecordedCalls:
    """Return the calls by thread as disjoint spans, each with the innermost open call."""
    start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    function = np.asarray(calls["function"].cat.codes, dtype=np.int64)
    names = [framed(name, is_of_library=False) for name in calls["function"].cat.categories]
    threads, texts = {}, list[str]()
    for thread, of_thread in positions(calls["thread"].to_numpy()).items():
        by_start = of_thread[np.lexsort((-end[of_thread], start[of_thread]))]
        parent = outer(end[by_start])
        stack, stack_texts = _call_stacks(function[by_start], parent, names)
        edges = np.unique(np.concatenate([start[by_start], end[by_start]]))
        inner = innermost(start[by_start], end[by_start], parent, edges[:-1])
        is_open = inner >= 0
        threads[thread] = edges[:-1][is_open], edges[1:][is_open], stack[inner[is_open]] + len(texts)
        texts += stack_texts
    return _RecordedCalls(threads, texts)


def _call_stacks(function: Ints, parent: Ints, names: list[str]) -> tuple[Ints, list[str]]:
    """Return the stack of each call as a position in the distinct stacks; and these stacks.

    Calls more than _DEEPEST levels deep count for their ancestor on the last level.
    """
    stack, texts, level = np.full(len(function), -1, dtype=np.int64), list[str](), levels(parent)
    order = np.argsort(level, kind="stable")
    edges = np.searchsorted(level[order], np.arange(min(int(level.max(initial=-1)) + 1, _DEEPEST) + 1))
    for low, high in pairwise(edges.tolist()):
        rows = order[low:high]
        above = np.where(parent[rows] >= 0, stack[parent[rows]], -1)
        codes, distinct = pd.factorize((above + 1) * len(names) + function[rows])
        stack[rows] = codes + len(texts)
        caller, callee = (part.tolist() for part in np.divmod(distinct, len(names)))
        texts += [joined([texts[up - 1] if up else "", names[name]]) for up, name in zip(caller, callee, strict=True)]
    return stack[nearest(parent, level >= _DEEPEST)], texts


_DEEPEST: Final = 200


def _stand_ins(timeline: Timeline, recorded: set[int]) -> dict[int, int]:
    """Return, for each thread that makes CUDA calls, the thread whose stacks count: itself, else the busiest one.

    The busiest thread is that of the same process; a thread is left out if its process has no stacks.
    """
    calls = causing_calls(timeline)
    by_thread = positions(calls.thread)
    # the threads with the most calls come last, so that they overwrite the others
    ordered = sorted(by_thread, key=lambda thread: len(by_thread[thread]))
    process = {thread: int(calls.process[by_thread[thread][0]]) for thread in ordered}
    busiest = {process[thread]: thread for thread in ordered if thread in recorded}
    stand_ins = {thread: thread if thread in recorded else busiest.get(process[thread]) for thread in ordered}
    return {thread: stand_in for thread, stand_in in stand_ins.items() if stand_in is not None}


# -- pieces of time ---------------------------------------------------------------------------------------------------


def _idle_pieces(timeline: Timeline, recorded: set[int]) -> Iterator[tuple[dict[str, int], _PieceSet]]:
    """Yield the idle time of each device, with the thread that launched the next operation."""
    stand_in = _stand_ins(timeline, recorded)
    for device in devices_at_work(timeline):
        explained = window_waits(timeline, device=int(device))
        launching, place = np.unique(explained.thread[explained.piece], return_inverse=True)
        thread = np.array([stand_in.get(key, -1) for key in launching.tolist()], dtype=np.int64)[place]
        yield {"device": device}, _PieceSet(explained.start, explained.end, explained.cause, thread, IDLE)


def _thread_pieces(timeline: Timeline, recorded: set[int]) -> Iterator[tuple[dict[str, int], _PieceSet]]:
    """Yield the window for each Python thread, divided into time inside and outside of operators."""
    bounds = timeline.window.bounds
    tables = {name: timeline.profile.recorded(name) for name in ("cpu_ops", *_OF_PYTHON)}
    start, end, thread = (tables["cpu_ops"][name].to_numpy() for name in ("start_ns", "end_ns", "thread"))
    threads = pd.concat([tables[name][["thread", "tid"]] for name in _OF_PYTHON]).drop_duplicates("thread")
    for key, tid in zip(threads["thread"].tolist(), threads["tid"].tolist(), strict=True):
        if key not in recorded:
            continue
        is_of_thread = thread == key
        busy = clipped_union(start[is_of_thread], end[is_of_thread], bounds)
        spans = busy, gaps(busy, bounds)
        begin, until = (np.concatenate([of[edge] for of in spans]) for edge in (0, 1))
        cause = np.repeat(np.arange(2), [len(of[0]) for of in spans])
        yield {"tid": tid}, _PieceSet(begin, until, cause, np.full(len(begin), key), (OPERATORS, HOST))


# -- stacks -----------------------------------------------------------------------------------------------------------


def _stack_rows(stacks: _Samples | _RecordedCalls, pieces: _PieceSet) -> Iterator[dict[str, Any]]:
    """Yield the rows of a device, or of a thread."""
    times_of = np.bincount(pieces.cause, pieces.end - pieces.start, len(pieces.causes)).astype(np.int64)
    total_ns, unit = int(times_of.sum()), stacks.distance_ns if isinstance(stacks, _Samples) else 1.0
    cause, stack, weight = _weights(stacks, pieces)
    for category in np.flatnonzero(times_of).tolist():
        tree = _StackTree(keeps_lines=isinstance(stacks, _RecordedCalls))
        has_cause = cause == category
        for text, amount in zip(stack[has_cause].tolist(), weight[has_cause].tolist(), strict=True):
            tree.add(stacks.texts[text], amount)
        ways = Counter[tuple[str, ...]]()
        for frames, amount in tree.stacks(least=_LEAST * total_ns / unit):
            ways[frames] += amount
        amounts = np.array(list(ways.values()), dtype=np.int64)
        # sampling is random: the samples of a cause can add up to more than its time
        times = scaled(amounts, min(int(times_of[category]), round(unit * amounts.sum())))
        bare = int(times_of[category] - times.sum())
        for (frames, amount), time in zip([*ways.items(), ((), 0)], [*times.tolist(), bare], strict=True):
            if time:
                yield {
                    "cause": pieces.causes[category],
                    "time_ns": time,
                    "share_pct": 100.0 * time / total_ns,
                    "samples": amount,
                    **_own_function(frames),
                    "stack": joined(frames),
                }


def _weights(stacks: _Samples | _RecordedCalls, pieces: _PieceSet) -> tuple[Ints, Ints, Ints]:
    """Return the weight of each cause and stack, in samples or ns."""
    keys, weights = [NOTHING], [NOTHING]
    for thread, of_thread in positions(pieces.thread).items():
        if thread in stacks.threads:
            ordered = of_thread[np.argsort(pieces.start[of_thread], kind="stable")]
            span, stack, weight = stacks.during(thread, pieces.start[ordered], pieces.end[ordered])
            keys.append(pieces.cause[ordered[span]].astype(np.int64) * len(stacks.texts) + stack)
            weights.append(weight)
    key, row = np.unique(np.concatenate(keys), return_inverse=True)
    summed = np.zeros(len(key), dtype=np.int64)
    np.add.at(summed, row, np.concatenate(weights))
    return key // len(stacks.texts), key % len(stacks.texts), summed


def _own_function(frames: tuple[str, ...]) -> dict[str, str]:
    """Return the innermost function that is not from a library, else the innermost function, and what it calls."""
    position = next((place for place in reversed(range(len(frames))) if not of_library(frames[place])), len(frames) - 1)
    callees = [frame.strip("[]") for frame in frames[position + 1 :]]
    return {"function": (_NOT_RECORDED, *frames)[position + 1], "calls": " → ".join(callees)}


@dataclass
class _CallNode:
    """A function in a tree of callers: its weight including callees, by the text of its frame and in total."""

    lines: Counter[str] = field(default_factory=Counter)
    called: dict[tuple[str, str], "_CallNode"] = field(default_factory=dict)
    total: int = 0


class _StackTree:
    """Stacks merged by their outermost frames, as in a flame graph.

    Samples contain the current line of a function, not its first line. All lines of one function become one frame;
    otherwise a loop would have a frame for each of its lines. Different functions with the same name in one file
    (`forward`) must stay separate, so functions that are called from different lines are not merged. A frame is named
    by its most frequent line.
    """

    def __init__(self, *, keeps_lines: bool) -> None:
        """Create an empty tree; `keeps_lines`: lines are the first lines of functions, so they stay separate."""
        self._root = _CallNode()
        self._keeps_lines = keeps_lines

    def add(self, stack: str, weight: int) -> None:
        """Add a stack."""
        node, caller = self._root, ""
        node.total += weight
        for frame in _informative_frames(split(stack)):
            is_library = of_library(frame)
            text = without_line(frame) if is_library else frame
            key = (caller, text if self._keeps_lines else without_line(frame))
            node = node.called.setdefault(key, _CallNode())
            node.lines[text] += weight
            node.total += weight
            caller = "" if is_library or self._keeps_lines else frame

    def stacks(self, *, least: float) -> Iterator[tuple[tuple[str, ...], int]]:
        """Yield stacks with their weights; a function below `least` counts for its caller, if it has one."""
        todo: list[tuple[tuple[str, ...], _CallNode]] = [((), self._root)]
        while todo:
            frames, node = todo.pop()
            large = [child for child in node.called.values() if child.total >= least or not frames]
            own = node.total - sum(child.total for child in large)
            if own:
                yield frames, own
            todo += [((*frames, _most_frequent(child.lines)), child) for child in large]


def _most_frequent(lines: Counter[str]) -> str:
    return min(lines, key=lambda line: (-lines[line], line))


def _informative_frames(frames: Iterable[str]) -> Iterator[str]:
    """Yield the informative frames: of consecutive library frames, only the first, and at the end also the last.

    Generated code, the import system, and library code that starts the program are not informative.
    """
    runs = [(is_library, list(run)) for is_library, run in groupby(frames, of_library)]
    for place, (is_library, run) in enumerate(runs):
        if not is_library:
            yield from run
            continue
        is_last = place == len(runs) - 1
        informative = [frame for frame in run if _GENERATED not in frame] or run[-1:] * (len(runs) == 1)
        if place or is_last:
            yield from informative[:1]
        if is_last:
            yield from informative[1:][-1:]


ANALYSES: Final = (Analysis(IDLE_STACKS, idle_stacks),)
