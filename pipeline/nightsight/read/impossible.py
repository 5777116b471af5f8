"""Finds GPU operations with impossible times, although each alone looks possible.

A stream runs its operations one after the other, so none ends long after the next one. ROCm and CUPTI sometimes write
such ends: one kernel of 160 ms over a hundred of 200 µs makes every sum wrong. Such operations are kept as `untimed`:
they ran, but their real time is unknown.
"""

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.launches import GPU_TABLES, are_launched
from nightsight.intervals import Flags, Ints
from nightsight.model.report import Finding, Profile
from nightsight.tables import conform, empty, integers

# the clocks of engines differ by less
_OVERLAP_NS: Final = 5_000
# it takes longer than others of its name by this factor
_TIMES_AS_LONG: Final = 1.2
_LEAST_INSTANCES: Final = 4
# the factor if it is unknown how operations of these two names follow each other
_OUTLIER: Final = 10
# the largest share of the operations of a stream, of a name, of a pair of names; where more overlap, they are meant to
_MOST: Final = 0.2
# an operation ends this long after all else in the capture, and after this multiple of the recorded CPU time
_LATE_NS: Final = 10_000_000_000
_LATE_TIMES: Final = 10
_MOST_IN_TIME: Final = 0.98
_ON_HOST: Final = ("api_calls", "ranges", "marks", "cpu_ops")


def without_impossible(profile: Profile) -> Profile:
    """Move operations with impossible times to the table `untimed`, and say how many there are."""
    present = [name for name in GPU_TABLES if len(profile.tables.get(name, ()))]
    if not present:
        return profile
    frames = [profile.tables[name] for name in present]
    start, end = (np.concatenate([frame[name].to_numpy() for frame in frames]) for name in ("start_ns", "end_ns"))
    wrong = _too_long(frames, start, end) | _too_late(profile, end)
    if present[0] == "kernels":
        # a copy of nothing can take no time, a kernel cannot; in whole microseconds, short ones have none left
        length = (end - start)[: len(frames[0])]
        wrong[: len(frames[0])] |= (length == 0) & (length % 1_000 > 0).any()
    if not wrong.any():
        return profile
    tables = dict(profile.tables)
    moved = [tables.get("untimed", empty("untimed"))]
    parts = np.split(wrong, np.cumsum(list(map(len, frames)))[:-1])
    for name, frame, mine in zip(present, frames, parts, strict=True):
        moved.append(conform("untimed", frame[mine]))
        tables[name] = frame[~mine].reset_index(drop=True)
    tables["untimed"] = pd.concat(moved, ignore_index=True)
    return replace(profile, tables=tables, findings=(*profile.findings, _found(int(wrong.sum()), len(wrong))))


def _too_long(frames: list[pd.DataFrame], start: Ints, end: Ints) -> Flags:
    """Return which operations reach into the next one on their stream and are unusually long for their name.

    Programmatic dependent launch lets an operation begin before the one ahead of it ends. It ends later than that one,
    and whenever these two follow each other it is the same.
    """
    wrong = np.zeros(len(start), dtype=bool)
    stream = _streams(frames)
    order = np.lexsort((start, stream))
    if not _reach(start, end, stream, order).any():
        return wrong
    # the nodes of a graph may run side by side, and migrations are on no stream
    apart, name = np.concatenate([_are_apart(frame) for frame in frames]), _names(frames)
    order = order[~apart[order]]
    reaches = _reach(start, end, stream, order)
    if not reaches.any():
        return wrong
    this, following = order[:-1], order[1:]
    kind = pd.factorize(stream * (int(name.max()) + 1) + name)[0]
    usual, count = _usual(kind, end - start)
    often = np.bincount(kind[this], reaches, len(usual)) / np.bincount(kind, minlength=len(usual))
    pair = pd.factorize(kind[this] * (int(name.max()) + 1) + name[following])[0]
    pairs = np.bincount(pair)
    often_in_pair = (np.bincount(pair, reaches) / pairs)[pair]
    length, is_known = (end - start)[this], (count >= _LEAST_INSTANCES)[kind[this]]
    contains = end[this] > end[following] + _OVERLAP_NS
    has_pairs = pairs[pair] >= _LEAST_INSTANCES
    factor = np.where(contains | has_pairs, _TIMES_AS_LONG, _OUTLIER)
    is_long = np.where(is_known, length > factor * usual[kind[this]], contains)
    is_rare = np.where(is_known, often[kind[this]] <= _MOST, True) & np.where(has_pairs, often_in_pair <= _MOST, True)
    wrong[this[reaches & is_long & is_rare]] = True
    share = np.bincount(stream, wrong) / np.maximum(np.bincount(stream, ~apart), 1)
    return np.asarray(wrong & (share[stream] <= _MOST))


def _reach(start: Ints, end: Ints, stream: Ints, order: Ints) -> Flags:
    """Return which operations, in this order and without the last one, clearly outlast the start of the next one."""
    this, following = order[:-1], order[1:]
    return np.asarray((end[this] > start[following] + _OVERLAP_NS) & (stream[this] == stream[following]))


def _usual(kind: Ints, length: Ints) -> tuple[Ints, Ints]:
    """Return the median length in ns of each kind of operation, the lower one of two, and how many there are."""
    order, count = np.lexsort((length, kind)), np.bincount(kind)
    return length[order[np.cumsum(count) - count + (count - 1) // 2]], count


def _streams(frames: list[pd.DataFrame]) -> Ints:
    """Number the streams of all operations."""
    number = np.zeros(sum(map(len, frames)), dtype=np.int64)
    for name in ("device", "process", "context", "stream"):
        codes, known = pd.factorize(np.concatenate([integers(frame[name]) for frame in frames]))
        number = pd.factorize(number * len(known) + codes)[0]
    return number


def _names(frames: list[pd.DataFrame]) -> Ints:
    """Number the names of kernels and the kinds of copies; graphs have one."""
    numbers, first = [], 0
    for frame in frames:
        column = next((frame[column].cat for column in ("name", "operation") if column in frame), None)
        codes = np.zeros(len(frame), dtype=np.int64) if column is None else column.codes.to_numpy(dtype=np.int64)
        numbers.append(codes + first)
        first += 1 if column is None else len(column.categories)
    return np.concatenate(numbers)


def _are_apart(frame: pd.DataFrame) -> Flags:
    """Return which rows are nodes of a graph, which a capture may tell by a launch that they share, or migrations."""
    known = frame["correlation"] > 0
    apart = known & frame.duplicated(["process", "correlation"], keep=False)
    if "graph_node" in frame:
        apart |= frame["graph_node"].notna()
    return np.asarray(apart.fillna(value=False), dtype=bool) | ~are_launched(frame)


def _too_late(profile: Profile, end: Ints) -> Flags:
    """Return which operations end long after everything else in the capture."""
    host = [profile.tables[name] for name in _ON_HOST if len(profile.tables.get(name, ()))]
    if not host:
        return np.zeros(len(end), dtype=bool)
    first = min(int(table["start_ns"].min()) for table in host)
    last = max(int(table["end_ns"].max()) for table in host)
    # where many end late, it is the program that has ended early
    usual = int(np.quantile(end, _MOST_IN_TIME, method="lower"))
    late: Flags = end > max(last, usual) + max(_LATE_NS, _LATE_TIMES * (last - first))
    return late


def _found(count: int, total: int) -> Finding:
    one = count == 1
    return Finding(
        "impossible_times",
        "warning",
        f"{count:,} of {total:,} GPU operations {'has' if one else 'have'} impossible times",
        f"{'It takes no time, or ends' if one else 'They take no time, or end'} long after the next operation on the "
        f"same stream, or after the program. {'It is' if one else 'They are'} left out of all sums, and the time "
        f"{'it' if one else 'they'} may have taken counts as unknown.",
        "Capture again. If it happens again, the profiler lost or mixed up events: update it.",
    )
