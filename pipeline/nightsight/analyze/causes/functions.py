"""Name the code that runs in host code: a Python function, an operator, or the frame of the next CUDA call.

The best source is samples of the Python stack, then calls of Python functions, then operators, then the call stack of
the CUDA call that the host code leads to. Operating system calls show whether the code runs or waits.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.events.stacks import of_library, split
from nightsight.events.timeline import Timeline
from nightsight.intervals import Flags, Ints, Spans, covered, union, union_of
from nightsight.tables import innermost_of, positions, renamed

# a function with a smaller share of the samples, or of the time, is one of many. It is only named (stored: 0.2 to 0.7)
_LEAST_SHARE: Final = 0.4
_FEWEST_SAMPLES: Final = 3
LINE: Final = r":\d+\)$|\s\(line \d+\)$"
"""The line in the name of a sampled function."""
_WAITS: Final = (
    r"(?:__)?(?:pthread_(?:cond_(?:timed|clock)?wait|(?:mutex|rwlock)_\w*lock|join|barrier_wait)|sem_(?:timed|clock)?wait|"
    r"futex|p?poll|p?select|epoll_p?wait|(?:clock_)?nanosleep|u?sleep|wait(?:pid|id|3|4)?|recv(?:from|mmsg|msg)?|accept4?|"
    r"f?read|p?readv?|pread|flock|fsync|msgrcv)(?:64|_nocancel)?"
)


@dataclass(frozen=True, eq=False)
class Code:
    """Stretches of host code: thread, start, length, and the start of the next call; times in ns."""

    thread: Ints
    start: Ints
    length: Ints
    call: Ints

    def select(self, chosen: Flags) -> "Code":
        """Return some of the stretches."""
        return Code(self.thread[chosen], self.start[chosen], self.length[chosen], self.call[chosen])


class Function(NamedTuple):
    """A function that runs in host code, and the function of the program that called it; "" if unknown."""

    name: str
    caller: str = ""


def function_in(timeline: Timeline, code: Code) -> Function:
    """Return the function that takes most of this host code, with its most frequent line."""
    candidates = (
        _from_samples(timeline, code),
        Function(_innermost_span(timeline, code, "python_functions", "function")),
        Function(_innermost_span(timeline, code, "cpu_ops", "name")),
        Function(_calling_frame(timeline, code)),
    )
    return next((function for function in candidates if function.name), Function(""))


def waits_in(timeline: Timeline, code: Code) -> str:
    """Return the operating system call in which most of this host code waits; "" if there is none."""
    wait_ns = dict[str, int]()
    for thread, stretches in positions(code.thread).items():
        for name, spans in _waiting_spans(timeline, thread).items():
            times = covered(spans, code.start[stretches], code.start[stretches] + code.length[stretches])
            wait_ns[name] = wait_ns.get(name, 0) + int(times.sum())
    longest = max(wait_ns, key=wait_ns.__getitem__, default="")
    return longest if longest and wait_ns[longest] >= _LEAST_SHARE * code.length.sum() else ""


def waiting_spans(timeline: Timeline, thread: int) -> Spans:
    """Return when a thread waits in calls of the operating system."""
    return union_of(_waiting_spans(timeline, thread).values())


def _waiting_spans(timeline: Timeline, thread: int) -> dict[str, Spans]:
    """Return when a thread waits in each call of the operating system."""
    table = timeline.profile.recorded("os_calls")
    names = table["name"].cat
    is_wait = np.asarray(names.categories.str.fullmatch(_WAITS), dtype=bool)
    rows = np.flatnonzero(is_wait[names.codes.to_numpy()] & (table["thread"] == thread).to_numpy(dtype=bool))
    start, end = (table[name].to_numpy()[rows] for name in ("start_ns", "end_ns"))
    by_name = positions(np.asarray(names.codes, dtype=np.int64)[rows])
    return {str(names.categories[place]): union(start[calls], end[calls]) for place, calls in by_name.items()}


def _from_samples(timeline: Timeline, code: Code) -> Function:
    """Return the function of most Python stack samples in this code, with its line."""
    samples = timeline.profile.recorded("python_samples")
    thread, start, end = code.thread, code.start, code.start + code.length
    times, parts = samples["start_ns"].to_numpy(), [np.empty(0, dtype=np.int64)]
    stretches_of = positions(thread)
    for key, of_thread in positions(samples["thread"].to_numpy()).items():
        if key in stretches_of:
            by_time = of_thread[np.argsort(times[of_thread], kind="stable")]
            low, high = (np.searchsorted(times[by_time], edge[stretches_of[key]]) for edge in (start, end))
            count = high - low
            within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            parts.append(by_time[np.repeat(low, count) + within])
    rows = np.concatenate(parts)
    if len(rows) < _FEWEST_SAMPLES:
        return Function("")
    lines = samples["function"]
    functions = renamed(lines, lambda names: names.str.replace(LINE, "", regex=True))
    codes, weight = np.asarray(functions.codes, dtype=np.int64)[rows], np.ones(len(rows))
    most = _dominant_code(codes, weight)
    if most < 0:
        return Function("")
    matching = rows[codes == most]
    line = str(lines.cat.categories[int(np.bincount(lines.cat.codes.to_numpy()[matching]).argmax())])
    return Function(line, _caller(samples["stack"], matching, str(functions.categories[most])))


def _caller(stacks: "pd.Series[Any]", rows: Ints, function: str) -> str:
    """Return the most frequent caller of a function in these samples, libraries left out; "" if there is none."""
    callers = Counter[str]()
    for stack, count in zip(*np.unique(stacks.cat.codes.to_numpy()[rows], return_counts=True), strict=True):
        frames = [frame for frame in split(stacks.cat.categories[stack]) if not of_library(frame) and frame != "…"]
        # a recursive function is not its own caller
        outer = [frame for frame in frames if re.sub(LINE, "", frame) != function]
        callers["".join(outer[-1:])] += int(count)
    return callers.most_common(1)[0][0]


def _innermost_span(timeline: Timeline, code: Code, table: str, column: str) -> str:
    """Return the innermost span of a table in the middle of most of this code."""
    spans = timeline.profile.recorded(table)
    if not len(spans):
        return ""
    rows = innermost_of(spans, code.thread, code.start + code.length // 2)
    return _dominant_name(spans[column], rows, code.length)


def _calling_frame(timeline: Timeline, code: Code) -> str:
    """Return the frame of the CUDA calls that most of this code leads to."""
    frames = timeline.profile.recorded("call_frames")
    if not len(frames):
        return ""
    frames = frames.drop_duplicates(["thread", "start_ns"])
    frame_keys = pd.MultiIndex.from_frame(frames[["thread", "start_ns"]])
    code_keys = pd.MultiIndex.from_arrays([code.thread, code.call])
    return _dominant_name(frames["frame"], frame_keys.get_indexer(code_keys), code.length)


def _dominant_name(names: "pd.Series[Any]", rows: Ints, weight: Ints) -> str:
    codes = np.append(names.cat.codes.to_numpy(dtype=np.int64), -1)[rows]
    most = _dominant_code(codes, weight)
    return str(names.cat.categories[most]) if most >= 0 else ""


def _dominant_code(codes: Ints, weight: "np.ndarray[Any, Any]") -> int:
    """Return the code with the most weight; -1 if its share is too small. Codes of -1 count as other."""
    is_known = codes >= 0
    if not is_known.any():
        return -1
    sums = np.bincount(codes[is_known], weight[is_known])
    most = int(sums.argmax())
    return most if sums[most] >= _LEAST_SHARE * weight.sum() else -1
