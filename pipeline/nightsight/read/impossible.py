"""Finds GPU operations with impossible times, although each alone looks possible.

A stream runs its operations one after the other, so none ends long after the start of the next one. ROCm and CUPTI
sometimes write such ends: one kernel of 160 ms over a hundred of 200 µs makes every sum wrong. Such operations are
moved to the table `untimed`: they ran, but their real time is unknown.
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
# a long operation exceeds the median of its name by this factor
_LONG: Final = 1.2
_LEAST_INSTANCES: Final = 4
# the factor if it is unknown how operations of these two names follow each other
_LONG_OUTLIER: Final = 10
# the largest share of wrong operations on a stream, of a name, and of a pair of names; more are overlaps by design
_MOST_WRONG: Final = 0.2
# an operation is late if it ends this long after all else in the capture, and by this multiple of the recorded CPU time
_LATE_NS: Final = 10_000_000_000
_LATE_TIMES: Final = 10
_MOST_IN_TIME: Final = 0.98
_ON_HOST: Final = ("api_calls", "ranges", "marks", "cpu_ops")


def without_impossible(profile: Profile) -> Profile:
    """Move operations with impossible times to the table `untimed`, with a finding."""
    present = [name for name in GPU_TABLES if len(profile.recorded(name))]
    if not present:
        return profile
    frames = [profile.tables[name] for name in present]
    start, end = (np.concatenate([frame[name].to_numpy() for frame in frames]) for name in ("start_ns", "end_ns"))
    is_wrong = _are_too_long(frames, start, end) | _are_too_late(profile, end)
    if present[0] == "kernels":
        # a copy of no bytes can take no time, but a kernel cannot; in whole microseconds, short kernels have length 0
        length = (end - start)[: len(frames[0])]
        is_wrong[: len(frames[0])] |= (length == 0) & (length % 1_000 > 0).any()
    count = int(is_wrong.sum())
    if not count:
        return profile
    tables = dict(profile.tables)
    untimed = [tables.get("untimed", empty("untimed"))]
    masks = np.split(is_wrong, np.cumsum(list(map(len, frames)))[:-1])
    for name, frame, mask in zip(present, frames, masks, strict=True):
        untimed.append(conform("untimed", frame[mask]))
        tables[name] = frame[~mask].reset_index(drop=True)
    tables["untimed"] = pd.concat(untimed, ignore_index=True)
    is_one = count == 1
    finding = Finding(
        "impossible_times",
        "warning",
        f"{count:,} of {len(is_wrong):,} GPU operations {'has' if is_one else 'have'} impossible times",
        f"{'It takes no time, or ends' if is_one else 'They take no time, or end'} long after the next operation on "
        f"the same stream, or after the program. {'It is' if is_one else 'They are'} left out of all sums, and the "
        f"time {'it' if is_one else 'they'} may have taken counts as unknown.",
        "Capture again. If it happens again, the profiler lost or mixed up events: update it.",
    )
    return replace(profile, tables=tables, findings=(*profile.findings, finding))


def _are_too_long(frames: list[pd.DataFrame], start: Ints, end: Ints) -> Flags:
    """Return which operations end after the start of the next one on their stream and are long for their name.

    With programmatic dependent launch, an operation may begin before the previous one ends. It ends later than that
    one, and the same happens whenever these two kernels follow each other.
    """
    is_wrong = np.zeros(len(start), dtype=bool)
    stream = _stream_numbers(frames)
    order = np.lexsort((start, stream))
    if not _overlap_next(start, end, stream, order).any():
        return is_wrong
    # the nodes of a graph may run side by side, and migrations are on no stream
    may_overlap, name = np.concatenate([_may_overlap(frame) for frame in frames]), _name_numbers(frames)
    order = order[~may_overlap[order]]
    overlaps = _overlap_next(start, end, stream, order)
    if not overlaps.any():
        return is_wrong
    this, following = order[:-1], order[1:]
    kind = pd.factorize(stream * (int(name.max()) + 1) + name)[0]
    median, count = _median_lengths(kind, end - start)
    share_of_kind = np.bincount(kind[this], overlaps, len(median)) / np.bincount(kind, minlength=len(median))
    pair = pd.factorize(kind[this] * (int(name.max()) + 1) + name[following])[0]
    pairs = np.bincount(pair)
    share_of_pair = (np.bincount(pair, overlaps) / pairs)[pair]
    length, has_median = (end - start)[this], (count >= _LEAST_INSTANCES)[kind[this]]
    contains = end[this] > end[following] + _OVERLAP_NS
    has_pairs = pairs[pair] >= _LEAST_INSTANCES
    factor = np.where(contains | has_pairs, _LONG, _LONG_OUTLIER)
    is_long = np.where(has_median, length > factor * median[kind[this]], contains)
    is_rare = np.where(has_median, share_of_kind[kind[this]] <= _MOST_WRONG, True)
    is_rare &= np.where(has_pairs, share_of_pair <= _MOST_WRONG, True)
    is_wrong[this[overlaps & is_long & is_rare]] = True
    share = np.bincount(stream, is_wrong) / np.maximum(np.bincount(stream, ~may_overlap), 1)
    return np.asarray(is_wrong & (share[stream] <= _MOST_WRONG))


def _overlap_next(start: Ints, end: Ints, stream: Ints, order: Ints) -> Flags:
    """Return which operations, in this order and without the last one, end well after the start of the next one."""
    this, following = order[:-1], order[1:]
    return np.asarray((end[this] > start[following] + _OVERLAP_NS) & (stream[this] == stream[following]))


def _median_lengths(kind: Ints, length: Ints) -> tuple[Ints, Ints]:
    """Return the median length of each kind of operation, the lower one of two, and the number of its operations."""
    order, count = np.lexsort((length, kind)), np.bincount(kind)
    return length[order[np.cumsum(count) - count + (count - 1) // 2]], count


def _stream_numbers(frames: list[pd.DataFrame]) -> Ints:
    """Number the streams of all operations."""
    number = np.zeros(sum(map(len, frames)), dtype=np.int64)
    for name in ("device", "process", "context", "stream"):
        values = np.concatenate([integers(frame[name]) for frame in frames])
        # most captures have one device, one process and one context
        if (values != values[0]).any():
            codes, distinct = pd.factorize(values)
            number = pd.factorize(number * len(distinct) + codes)[0]
    return number


def _name_numbers(frames: list[pd.DataFrame]) -> Ints:
    """Number the names of kernels and the kinds of copies; all graphs have the same number."""
    numbers, first = [], 0
    for frame in frames:
        column = next((frame[column].cat for column in ("name", "operation") if column in frame), None)
        codes = np.zeros(len(frame), dtype=np.int64) if column is None else column.codes.to_numpy(dtype=np.int64)
        numbers.append(codes + first)
        first += 1 if column is None else len(column.categories)
    return np.concatenate(numbers)


def _may_overlap(frame: pd.DataFrame) -> Flags:
    """Return which rows are nodes of a graph (captures may show it only by a shared launch), or migrations."""
    is_node = (frame["correlation"] > 0) & frame.duplicated(["process", "correlation"], keep=False)
    if "graph_node" in frame:
        is_node |= frame["graph_node"].notna()
    return np.asarray(is_node.fillna(value=False), dtype=bool) | ~are_launched(frame)


def _are_too_late(profile: Profile, end: Ints) -> Flags:
    """Return which operations end long after everything else in the capture."""
    on_host = profile.with_rows(_ON_HOST)
    if not on_host:
        return np.zeros(len(end), dtype=bool)
    first = min(int(table["start_ns"].min()) for table in on_host)
    last = max(int(table["end_ns"].max()) for table in on_host)
    # if many operations end late, the program ended early
    usual_end = int(np.quantile(end, _MOST_IN_TIME, method="lower"))
    is_late: Flags = end > max(last, usual_end) + max(_LATE_NS, _LATE_TIMES * (last - first))
    return is_late
