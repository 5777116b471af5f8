"""What runs in host code, where a capture tells: a function of Python, an operator, or the frame of the call after it.

Samples of Python's stack say it best, then calls of Python functions, then operators, then the call stack of the CUDA
call that host code leads to. Calls of the operating system say whether it runs at all, or waits.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.events.stacks import of_library, split
from nightsight.events.timeline import Timeline, positions
from nightsight.intervals import Flags, Ints, covered, union
from nightsight.tables import innermost_of, renamed

# what takes less of the samples, or of the time, is one of many
_LEAST_SHARE: Final = 0.4
_FEWEST_SAMPLES: Final = 3
LINE: Final = r":\d+\)$|\s\(line \d+\)$"
"""What in the name of a sampled function is its line."""
_WAITS: Final = (
    r"(?:__)?(?:pthread_(?:cond_(?:timed|clock)?wait|(?:mutex|rwlock)_\w*lock|join|barrier_wait)|sem_(?:timed|clock)?wait|"
    r"futex|p?poll|p?select|epoll_p?wait|(?:clock_)?nanosleep|u?sleep|wait(?:pid|id|3|4)?|recv(?:from|mmsg|msg)?|accept4?|"
    r"f?read|p?readv?|pread|flock|fsync|msgrcv)(?:64|_nocancel)?"
)


@dataclass(frozen=True, eq=False)
class Code:
    """Stretches of host code: thread, start and length, and the start of the call that each leads to; times in ns."""

    thread: Ints
    start: Ints
    length: Ints
    call: Ints

    def of(self, chosen: Flags) -> "Code":
        """Return some of the stretches."""
        return Code(self.thread[chosen], self.start[chosen], self.length[chosen], self.call[chosen])


class Function(NamedTuple):
    """What runs in host code, and the function of the program that called it; each "" if that is not known."""

    name: str
    caller: str = ""


def function_in(timeline: Timeline, code: Code) -> Function:
    """Return what runs in most of this host code.

    Lines of one function count together: of these, the most frequent is named.
    """
    ways = (
        _sampled(timeline, code),
        Function(_innermost(timeline, code, "python_functions", "function")),
        Function(_innermost(timeline, code, "cpu_ops", "name")),
        Function(_frame(timeline, code)),
    )
    return next((found for found in ways if found.name), Function(""))


def waits_in(timeline: Timeline, code: Code) -> str:
    """Return the call of the operating system in which most of this host code waits; "" if none is known."""
    table = timeline.profile.tables.get("os_calls")
    if table is None or not len(table):
        return ""
    names = table["name"].cat
    is_wait = np.asarray(names.categories.str.fullmatch(_WAITS), dtype=bool)[names.codes]
    threads, spent = table["thread"].to_numpy(), dict[str, int]()
    for thread, mine in positions(code.thread).items():
        waits = table[is_wait & (threads == thread)]
        for name, some in waits.groupby("name", observed=True, sort=False):
            spans = union(some["start_ns"].to_numpy(), some["end_ns"].to_numpy())
            times = covered(spans, code.start[mine], code.start[mine] + code.length[mine])
            spent[str(name)] = spent.get(str(name), 0) + int(times.sum())
    most = max(spent, key=spent.__getitem__, default="")
    return most if most and spent[most] >= _LEAST_SHARE * code.length.sum() else ""


def _sampled(timeline: Timeline, code: Code) -> Function:
    """Return the function of most samples of Python's stack on the threads of this code, with its line."""
    samples = timeline.profile.tables.get("python_samples")
    if samples is None:
        return Function("")
    thread, start, end = code.thread, code.start, code.start + code.length
    times, rows = samples["start_ns"].to_numpy(), [np.empty(0, dtype=np.int64)]
    asking = positions(thread)
    for key, mine in positions(samples["thread"].to_numpy()).items():
        if key in asking:
            ordered = mine[np.argsort(times[mine], kind="stable")]
            low, high = (np.searchsorted(times[ordered], edge[asking[key]]) for edge in (start, end))
            count = high - low
            within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            rows.append(ordered[np.repeat(low, count) + within])
    row = np.concatenate(rows)
    if len(row) < _FEWEST_SAMPLES:
        return Function("")
    lines = samples["function"]
    functions = renamed(lines, lambda names: names.str.replace(LINE, "", regex=True))
    codes, weight = np.asarray(functions.codes, dtype=np.int64)[row], np.ones(len(row))
    most = _most(codes, weight)
    if most < 0:
        return Function("")
    of_function = row[codes == most]
    line = str(lines.cat.categories[int(np.bincount(lines.cat.codes.to_numpy()[of_function]).argmax())])
    return Function(line, _caller(samples["stack"], of_function, str(functions.categories[most])))


def _caller(stacks: "pd.Series[Any]", row: Ints, function: str) -> str:
    """Return the function of the program that called another in most of these samples; "" if there is none."""
    found = Counter[str]()
    for stack, count in zip(*np.unique(stacks.cat.codes.to_numpy()[row], return_counts=True), strict=True):
        frames = [frame for frame in split(stacks.cat.categories[stack]) if not of_library(frame) and frame != "…"]
        # what calls itself is not its own caller
        others = [frame for frame in frames if re.sub(LINE, "", frame) != function]
        found["".join(others[-1:])] += int(count)
    return found.most_common(1)[0][0]


def _innermost(timeline: Timeline, code: Code, table: str, column: str) -> str:
    """Return what is innermost in the middle of most of this code, of the spans of a table."""
    spans = timeline.profile.tables.get(table)
    if spans is None or not len(spans):
        return ""
    row = innermost_of(spans, code.thread, code.start + code.length // 2)
    return _most_named(spans[column], row, code.length)


def _frame(timeline: Timeline, code: Code) -> str:
    """Return the frame of the calls that most of this code leads to."""
    frames = timeline.profile.tables.get("call_frames")
    if frames is None or not len(frames):
        return ""
    frames = frames.drop_duplicates(["thread", "start_ns"])
    keys = pd.MultiIndex.from_frame(frames[["thread", "start_ns"]])
    asked = pd.MultiIndex.from_arrays([code.thread, code.call])
    return _most_named(frames["frame"], keys.get_indexer(asked), code.length)


def _most_named(names: "pd.Series[Any]", row: Ints, weight: Ints) -> str:
    codes = np.append(names.cat.codes.to_numpy(dtype=np.int64), -1)[row]
    most = _most(codes, weight)
    return str(names.cat.categories[most]) if most >= 0 else ""


def _most(codes: Ints, weight: "np.ndarray[Any, Any]") -> int:
    """Return the code with the most weight; -1 if that is too little, codes of -1 counting as something else."""
    known = codes >= 0
    if not known.any():
        return -1
    sums = np.bincount(codes[known], weight[known])
    most = int(sums.argmax())
    return most if sums[most] >= _LEAST_SHARE * weight.sum() else -1
