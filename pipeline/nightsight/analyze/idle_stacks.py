"""Where Python was while a GPU was idle: stacks by the cause of the idle time, from samples or from recorded calls.

Without GPU work: where the threads of Python were, in operators and outside of them.

Samples are points in time: each represents the time between two of them, which is right on average, however short the
gaps are. Recorded calls are spans, so their time is known.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.split import causing_calls, devices_at_work, waits
from nightsight.events.categories import Categories
from nightsight.events.stacks import framed, joined, of_library, split, without_line
from nightsight.events.timeline import Timeline, busy_spans, positions
from nightsight.events.window import Window
from nightsight.intervals import Ints, gaps, innermost, inside, outer, scaled
from nightsight.results.categories import HOST, IDLE
from nightsight.results.gpu import IDLE_STACKS
from nightsight.results.steps import OPERATORS
from nightsight.tables import NULLABLE, empty, levels, nearest
from nightsight.units import format_value

# the sampler misses turns while all processors are busy; a longer pause than this many is none of its
_MOST_MISSED: Final = 10
# of a device's idle time: a stack that takes less counts for its caller
_LEAST: Final = 0.001
_NOT_RECORDED: Final = "(not recorded)"
_OF_PYTHON: Final = ("python_samples", "python_functions")
_WITHOUT_GPU: Final = "Where Python was"
_NO_STACKS: Final = "only library functions of Python were recorded, or too few samples"
_GENERATED: Final = "(<"


class _Pieces(NamedTuple):
    """Disjoint pieces of time, of which it is asked where a thread of Python was: start, end, cause and thread.

    cause: a position in `causes`. thread: -1 if none is known.
    """

    start: Ints
    end: Ints
    cause: Ints | Categories
    thread: Ints
    causes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Samples:
    """Samples of each thread in order of time: when, and the position of the stack in `texts`.

    `distance_ns`: the mean time between two of a thread.
    """

    threads: Mapping[int, tuple[Ints, Ints]]
    texts: list[str]
    distance_ns: float

    def during(self, thread: int, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Return which span each sample of a thread is in, its stack, and its weight."""
        time, stack = self.threads[thread]
        span = np.searchsorted(start, time, side="right") - 1
        inside = (span >= 0) & (time < np.append(end, 0)[span])
        return span[inside], stack[inside], np.ones(int(inside.sum()), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _Calls:
    """Of each thread disjoint spans in order of time: start, end, and the position of the stack in `texts`."""

    threads: Mapping[int, tuple[Ints, Ints, Ints]]
    texts: list[str]

    def during(self, thread: int, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Return every pair of a span and a stack that was there, with the time of that stack."""
        begun, over, stack = self.threads[thread]
        low = np.searchsorted(over, start, side="right")
        count = np.maximum(np.searchsorted(begun, end, side="left") - low, 0)
        span = np.repeat(np.arange(len(start)), count)
        row = np.arange(len(span)) - np.repeat(np.cumsum(count) - count - low, count)
        return span, stack[row], np.minimum(end[span], over[row]) - np.maximum(start[span], begun[row])


def idle_stacks(timeline: Timeline) -> Table:
    """Return one row per device, cause and stack; the rows of a device and cause add up to its idle time.

    Without GPU work they are of threads, and add up to the window.
    """
    found, has_work = _recorded(timeline), len(timeline.operations.start) > 0
    title = "" if has_work else _WITHOUT_GPU
    if found is None:
        return Table(pd.DataFrame(columns=_columns(tid=False, samples=False)), (_NO_STACKS,), title)
    asked = _idle(timeline, set(found.threads)) if has_work else _of_threads(timeline, set(found.threads))
    rows = [{**key, **row} for key, pieces in asked for row in _rows(found, pieces)]
    frame = pd.DataFrame(rows, columns=IDLE_STACKS.column_names)
    if not has_work:
        # a thread that ran Python only outside of the window
        frame = frame[frame.groupby("tid")["stack"].transform(lambda stacks: (stacks != "").any()).astype("bool")]
    frame = frame.astype({**dict.fromkeys(("cause", "function", "calls", "stack"), "str"), "device": NULLABLE})
    frame = frame.sort_values(
        ["device", "tid", "time_ns", "cause", "stack"], ascending=[True, True, False, True, True], ignore_index=True
    )
    kept = _columns(tid=not has_work, samples=isinstance(found, _Samples))
    return Table(frame[kept], _notes(found, frame, "idle time" if has_work else "time"), title)


def _columns(*, tid: bool, samples: bool) -> list[str]:
    optional = {"tid": tid, "samples": samples}
    return [name for name in IDLE_STACKS.column_names if optional.get(name, True)]


def _notes(found: _Samples | _Calls, frame: pd.DataFrame, time: str) -> tuple[str, ...]:
    """Say how much the times are based on, and how much of the `time` has no stack."""
    notes = []
    if isinstance(found, _Samples):
        distance = format_value(found.distance_ns, "distance_ns")
        notes.append(
            f"{frame['samples'].sum():,.0f} samples, each worth {distance}, their mean distance. Expect a time from 25 "
            "samples to be off by a fifth, one from 100 by a tenth."
        )
    bare = frame["stack"] == ""
    if bare.any():
        share = 100.0 * frame.loc[bare, "time_ns"].sum() / frame["time_ns"].sum()
        notes.append(f"{format_value(share, 'share_pct')} of the {time} has no stack.")
    return tuple(notes)


# -- what is recorded -------------------------------------------------------------------------------------------------


def _recorded(timeline: Timeline) -> _Samples | _Calls | None:
    """Return the samples of Python's stack, else the calls of its functions; None if there are neither."""
    samples, calls = (timeline.profile.tables.get(name) for name in _OF_PYTHON)
    if samples is not None and len(samples):
        return _sampled(samples, timeline.window)
    return _called(calls) if calls is not None and len(calls) else None


def _sampled(samples: pd.DataFrame, window: Window) -> _Samples | None:
    """Return the samples in the window by thread; None if no thread has two, so that it is not known how often."""
    time, stack = (np.asarray(values, dtype=np.int64) for values in (samples["start_ns"], samples["stack"].cat.codes))
    here = np.flatnonzero((time >= window.start_ns) & (time < window.end_ns))
    here = here[np.argsort(time[here], kind="stable")]
    ordered = {thread: here[mine] for thread, mine in positions(samples["thread"].to_numpy()[here]).items()}
    distances = np.concatenate([np.empty(0, dtype=np.int64), *(np.diff(time[mine]) for mine in ordered.values())])
    distances = distances[distances > 0]
    if not len(distances):
        return None
    usual = distances[distances <= _MOST_MISSED * np.median(distances)]
    texts = samples["stack"].cat.categories.to_list()
    # a stack whose names are lost says nothing
    known = np.array([bool(text) for text in texts])[stack]
    named = {thread: mine[known[mine]] for thread, mine in ordered.items()}
    return _Samples({thread: (time[mine], stack[mine]) for thread, mine in named.items()}, texts, float(usual.mean()))


def _called(calls: pd.DataFrame) -> _Calls:
    """Return the calls by thread, cut where others begin or end: there the innermost has the time."""
    start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    function = np.asarray(calls["function"].cat.codes, dtype=np.int64)
    names = [framed(name, is_of_library=False) for name in calls["function"].cat.categories]
    threads, texts = {}, list[str]()
    for thread, mine in positions(calls["thread"].to_numpy()).items():
        here = mine[np.lexsort((-end[mine], start[mine]))]
        parent = outer(end[here])
        stack, known = _paths(function[here], parent, names)
        edges = np.unique(np.concatenate([start[here], end[here]]))
        inner = innermost(start[here], end[here], parent, edges[:-1])
        is_open = inner >= 0
        threads[thread] = edges[:-1][is_open], edges[1:][is_open], stack[inner[is_open]] + len(texts)
        texts += known
    return _Calls(threads, texts)


def _paths(function: Ints, parent: Ints, names: list[str]) -> tuple[Ints, list[str]]:
    """Return the stack of each call as a position in the distinct stacks, and these.

    Calls more than _DEEPEST levels deep count for the one around them on the last of these levels.
    """
    stack, texts, level = np.full(len(function), -1, dtype=np.int64), list[str](), levels(parent)
    order = np.argsort(level, kind="stable")
    edges = np.searchsorted(level[order], np.arange(min(int(level.max(initial=-1)) + 1, _DEEPEST) + 1))
    for low, high in pairwise(edges.tolist()):
        rows = order[low:high]
        above = np.where(parent[rows] >= 0, stack[parent[rows]], -1)
        codes, distinct = pd.factorize((above + 1) * len(names) + function[rows])
        stack[rows] = codes + len(texts)
        caller, called = (part.tolist() for part in np.divmod(distinct, len(names)))
        texts += [joined([texts[up - 1] if up else "", names[name]]) for up, name in zip(caller, called, strict=True)]
    return stack[nearest(parent, level >= _DEEPEST)], texts


_DEEPEST: Final = 200


def _stand_ins(timeline: Timeline, recorded: set[int]) -> dict[int, int]:
    """Return for each thread that makes CUDA calls the one whose stacks count: itself, else the busiest of its process.

    A thread is left out if its process has no stacks.
    """
    calls = causing_calls(timeline)
    by_thread = positions(calls.thread)
    # those with the most calls last, so that they stay
    ordered = sorted(by_thread, key=lambda thread: len(by_thread[thread]))
    process = {thread: int(calls.process[by_thread[thread][0]]) for thread in ordered}
    busiest = {process[thread]: thread for thread in ordered if thread in recorded}
    found = {thread: thread if thread in recorded else busiest.get(process[thread]) for thread in ordered}
    return {thread: other for thread, other in found.items() if other is not None}


# -- what is asked ----------------------------------------------------------------------------------------------------


def _idle(timeline: Timeline, recorded: set[int]) -> Iterator[tuple[dict[str, int], _Pieces]]:
    """Yield the idle time of each device, with the thread that launched what came after."""
    stand_in = _stand_ins(timeline, recorded)
    for device in devices_at_work(timeline):
        idle = gaps(busy_spans(timeline)[int(device)], (timeline.window.start_ns, timeline.window.end_ns))
        explained = waits(timeline, device=int(device), idle=idle)
        launching, place = np.unique(explained.thread[explained.piece], return_inverse=True)
        thread = np.array([stand_in.get(key, -1) for key in launching.tolist()], dtype=np.int64)[place]
        yield {"device": device}, _Pieces(explained.start, explained.end, explained.cause, thread, IDLE)


def _of_threads(timeline: Timeline, recorded: set[int]) -> Iterator[tuple[dict[str, int], _Pieces]]:
    """Yield the window for each thread of Python: when it was in operators, and when not."""
    bounds = (timeline.window.start_ns, timeline.window.end_ns)
    tables = {name: timeline.profile.tables.get(name, empty(name)) for name in ("cpu_ops", *_OF_PYTHON)}
    start, end, thread = (tables["cpu_ops"][name].to_numpy() for name in ("start_ns", "end_ns", "thread"))
    known = pd.concat([tables[name][["thread", "tid"]] for name in _OF_PYTHON]).drop_duplicates("thread")
    for key, tid in zip(known["thread"].tolist(), known["tid"].tolist(), strict=True):
        if key not in recorded:
            continue
        mine = thread == key
        busy = inside(start[mine], end[mine], bounds)
        spans = busy, gaps(busy, bounds)
        begun, over = (np.concatenate([of[edge] for of in spans]) for edge in (0, 1))
        cause = np.repeat(np.arange(2), [len(of[0]) for of in spans])
        yield {"tid": tid}, _Pieces(begun, over, cause, np.full(len(begun), key), (OPERATORS, HOST))


# -- stacks -----------------------------------------------------------------------------------------------------------


def _rows(found: _Samples | _Calls, pieces: _Pieces) -> Iterator[dict[str, Any]]:
    """Yield the rows of a device, or of a thread."""
    times_of = np.bincount(pieces.cause, pieces.end - pieces.start, len(pieces.causes)).astype(np.int64)
    whole, unit = int(times_of.sum()), found.distance_ns if isinstance(found, _Samples) else 1.0
    cause, stack, weight = _weights(found, pieces)
    for category in np.flatnonzero(times_of).tolist():
        tree = _Tree(keeps_lines=isinstance(found, _Calls))
        mine = cause == category
        for text, amount in zip(stack[mine].tolist(), weight[mine].tolist(), strict=True):
            tree.add(found.texts[text], amount)
        ways = Counter[tuple[str, ...]]()
        for frames, amount in tree.stacks(least=_LEAST * whole / unit):
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
                    "share_pct": 100.0 * time / whole,
                    "samples": amount,
                    **_named(frames),
                    "stack": joined(frames),
                }


def _weights(found: _Samples | _Calls, pieces: _Pieces) -> tuple[Ints, Ints, Ints]:
    """Return for each cause and stack its weight: how many samples, or ns."""
    keys, weights = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for thread, mine in positions(pieces.thread).items():
        if thread in found.threads:
            ordered = mine[np.argsort(pieces.start[mine], kind="stable")]
            span, stack, weight = found.during(thread, pieces.start[ordered], pieces.end[ordered])
            keys.append(pieces.cause[ordered[span]].astype(np.int64) * len(found.texts) + stack)
            weights.append(weight)
    key, row = np.unique(np.concatenate(keys), return_inverse=True)
    summed = np.zeros(len(key), dtype=np.int64)
    np.add.at(summed, row, np.concatenate(weights))
    return key // len(found.texts), key % len(found.texts), summed


def _named(frames: tuple[str, ...]) -> dict[str, str]:
    """Return the innermost function that is not of a library, else the innermost, and what it calls."""
    own = next((place for place in reversed(range(len(frames))) if not of_library(frames[place])), len(frames) - 1)
    called = [frame.strip("[]") for frame in frames[own + 1 :]]
    return {"function": (_NOT_RECORDED, *frames)[own + 1], "calls": " → ".join(called)}


@dataclass
class _Node:
    """A function called by those above it: its weight with all that it calls, by the text of its frame and in total."""

    lines: Counter[str] = field(default_factory=Counter)
    called: dict[tuple[str, str], "_Node"] = field(default_factory=dict)
    total: int = 0


class _Tree:
    """Stacks merged by their outermost frames, as in a flame graph.

    Samples tell the line where a function was, and not where it begins. The lines of one function are one frame, or a
    loop would be a frame for each of its lines. Functions of the same name in the same file (`forward`) must not become
    one, so that those that are called from different lines stay apart. A frame is named by its most frequent line.
    """

    def __init__(self, *, keeps_lines: bool) -> None:
        """Begin without stacks; `keeps_lines`: the lines are those where functions begin, so that they stay apart."""
        self._root = _Node()
        self._keeps_lines = keeps_lines

    def add(self, stack: str, weight: int) -> None:
        """Add a stack."""
        node, caller = self._root, ""
        node.total += weight
        for frame in _folded(split(stack)):
            is_library = of_library(frame)
            text = without_line(frame) if is_library else frame
            key = (caller, text if self._keeps_lines else without_line(frame))
            node = node.called.setdefault(key, _Node())
            node.lines[text] += weight
            node.total += weight
            caller = "" if is_library or self._keeps_lines else frame

    def stacks(self, *, least: float) -> Iterator[tuple[tuple[str, ...], int]]:
        """Yield stacks with their weights; a function below `least` counts for its caller, if it has one."""
        todo: list[tuple[tuple[str, ...], _Node]] = [((), self._root)]
        while todo:
            frames, node = todo.pop()
            kept = [child for child in node.called.values() if child.total >= least or not frames]
            own = node.total - sum(child.total for child in kept)
            if own:
                yield frames, own
            todo += [((*frames, _most_frequent(child.lines)), child) for child in kept]


def _most_frequent(lines: Counter[str]) -> str:
    return min(lines, key=lambda line: (-lines[line], line))


def _folded(frames: Iterable[str]) -> Iterator[str]:
    """Yield the frames that say something: of a run of a library's, what was called, and at the end where it led to.

    Code that is made while the program runs, and what imports modules, says nothing. Nor does what starts the program.
    """
    runs = [(is_library, list(run)) for is_library, run in groupby(frames, of_library)]
    for place, (is_library, run) in enumerate(runs):
        if not is_library:
            yield from run
            continue
        is_last = place == len(runs) - 1
        known = [frame for frame in run if _GENERATED not in frame] or run[-1:] * (len(runs) == 1)
        if place or is_last:
            yield from known[:1]
        if is_last:
            yield from known[1:][-1:]


ANALYSES: Final = (Analysis(IDLE_STACKS, idle_stacks),)
