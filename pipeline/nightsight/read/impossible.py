"""Which GPU operations have times that cannot be, although each alone looks possible.

A stream runs its operations one after the other, so none ends long after the next one. ROCm and CUPTI do write such
ends now and then: one kernel of 160 ms over a hundred of 200 µs makes every sum wrong. Such operations are kept as
`untimed`: they ran, and what stands in for them in time is unknown.
"""

from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.launches import GPU_TABLES, gpus
from nightsight.intervals import Flags, Ints
from nightsight.model import Finding, Profile
from nightsight.tables import conform, empty, integers

# the clocks of engines differ by less. One that begins early (programmatic dependent launch) ends after the one before
_OVERLAP_NS: Final = 5_000
# an operation that reaches into the next one is wrong if it is so many times as long as others of its name, and these
# do not reach into the next one
_TIMES_AS_LONG: Final = 1.2
_LEAST_INSTANCES: Final = 4
# of the operations of a stream: if more overlap, it is not one after the other that they ran
_MOST: Final = 0.2
# an operation ends so long after all else in the capture, and after so many times as long as the CPU was recorded
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
    # a copy of nothing can take no time, a kernel cannot
    if present[0] == "kernels":
        wrong[: len(frames[0])] |= (end == start)[: len(frames[0])]
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
    """Return which operations outlast the next one on their stream, or reach into it and are unusually long."""
    stream = _streams(frames)
    order = np.argsort(start, kind="stable")
    order = order[np.argsort(stream[order], kind="stable")]
    this, following = order[:-1], order[1:]
    reaches = (end[this] > start[following] + _OVERLAP_NS) & (stream[this] == stream[following])
    wrong = np.zeros(len(start), dtype=bool)
    if not reaches.any():
        return wrong
    # the nodes of a graph may run side by side, and migrations are on no stream
    apart = np.concatenate([_are_apart(frame) for frame in frames])
    order = order[~apart[order]]
    this, following = order[:-1], order[1:]
    reaches = (end[this] > start[following] + _OVERLAP_NS) & (stream[this] == stream[following])
    contains = reaches & (end[this] > end[following] + _OVERLAP_NS)
    name = np.concatenate([_names(frame).astype("str") for frame in frames])
    keys, length, reaching = [name, stream], pd.Series(end - start), np.zeros(len(start), dtype=bool)
    reaching[this[reaches]] = True
    usual = length.groupby(keys).transform("median").where(length.groupby(keys).transform("size") >= _LEAST_INSTANCES)
    is_rare = pd.Series(reaching).groupby(keys).transform("mean") <= _MOST
    is_long = (length > _TIMES_AS_LONG * usual) & is_rare
    wrong[this[contains | (reaches & is_long.to_numpy()[this])]] = True
    share = np.bincount(stream, wrong) / np.maximum(np.bincount(stream, ~apart), 1)
    return np.asarray(wrong & (share[stream] <= _MOST))


def _streams(frames: list[pd.DataFrame]) -> Ints:
    """Number the streams of all operations."""
    number = np.zeros(sum(map(len, frames)), dtype=np.int64)
    for values in (
        np.concatenate([gpus(frame) for frame in frames]),
        *(np.concatenate([integers(frame[name]) for frame in frames]) for name in ("process", "context", "stream")),
    ):
        codes, known = pd.factorize(values)
        number = pd.factorize(number * len(known) + codes)[0]
    return number


def _are_apart(frame: pd.DataFrame) -> Flags:
    """Return which rows are nodes of a graph, which a capture may tell by a launch that they share, or migrations."""
    known = frame["correlation"] > 0
    apart = known & frame.duplicated(["process", "correlation"], keep=False)
    if "graph_node" in frame:
        apart |= frame["graph_node"].notna()
    return np.asarray(apart.fillna(value=False) | _names(frame).astype("str").str.startswith("Unified"), dtype=bool)


def _names(frame: pd.DataFrame) -> "pd.Series[str]":
    """Return the name of each kernel, the kind of each copy; "" for graphs."""
    column = next((column for column in ("name", "operation") if column in frame), None)
    return pd.Series("", index=frame.index) if column is None else frame[column]


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
        f"same stream, or after the program. {'It is' if one else 'They are'} in no sum, and what ran in "
        f"{'its' if one else 'their'} place is unknown.",
        "Capture again. If it happens again, the profiler lost or mixed up events: update it.",
    )
