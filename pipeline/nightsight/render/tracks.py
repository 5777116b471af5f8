"""Assigns events to tracks of trace viewers: one per thread and GPU stream, and further ones where events overlap.

Viewers draw a track as nested boxes, so events on one track must nest or be disjoint, and never cross.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.graph_layers import ON_STREAM, graph_layers
from nightsight.events.launches import GPU_TABLES
from nightsight.events.names import GRAPH, api_names, operation_names
from nightsight.events.ranges import range_labels
from nightsight.intervals import NOTHING, Ints, outer
from nightsight.model.report import Profile
from nightsight.render.lanes import crossing_lanes, free_lanes, separate_groups
from nightsight.tables import START_END, combinations, integers, levels
from nightsight.texts import excerpt, printable

PYTHON: Final = "python_functions"
ON_THREADS: Final = ("ranges", PYTHON, "cpu_ops", "api_calls")
MARKS: Final = "marks"
"""Instant events of threads; formats that have only spans omit them."""
OS_CALLS: Final = "os_calls"
"""Operating system calls of threads, most of them waits; exported only to viewers that can hide them."""
LAYERS: Final = "graph_layers"
"""The ranges of CUDA graphs, by replay: as in `nightsight.events.graph_layers`."""
NAME_LENGTH: Final = 4096
"""The length limit of a name in exports: enough for PyTorch's kernels, but names can be of any length."""
# Linux process and thread ids stay below 2**22, so numbers of at least 2**23 are free for our tracks
_TID: Final = (1 << 24) - 1
_FREE: Final = 1 << 23
_GPUS: Final = 1 << 24
_NAME_COLUMNS: Final = {"memory_ops": "operation", PYTHON: "function"}


@dataclass(frozen=True)
class TraceTrack:
    """A track: ids and names of its process and thread; a GPU counts as a process, its streams as threads."""

    pid: int
    tid: int
    process: str
    name: str


@dataclass(frozen=True)
class Slices:
    """Events on `tracks`, one array entry each, sorted by (track, start, longest first); on a track they nest.

    `table` is an index into `tables`, `row` the row of that table, `track` an index into `tracks`. Times are the
    profile's, in ns.
    """

    tables: tuple[str, ...]
    table: Ints
    row: Ints
    start: Ints
    end: Ints
    track: Ints
    tracks: tuple[TraceTrack, ...]

    @cached_property
    def nesting(self) -> tuple[Ints, Ints]:
        """Per slice: the number of slices that enclose it, and of those inside it, counting itself."""
        # `outer` returns the enclosing slice of each slice, -1 for none
        level = levels(outer(separate_groups(self.track, self.start, self.end)[1]))
        # inside are all following slices that are deeper; `outer` on the reversed levels finds their end
        end = outer(-level[::-1])[::-1]
        return level, len(level) - 1 - end - np.arange(len(level))


class Places:
    """Ids and names of a profile's processes, threads and GPUs in viewers."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._free = count(_FREE)

    @cached_property
    def pids(self) -> Mapping[int, int]:
        """The id of each process by key: its pid, or a free number if another process has the same pid."""
        keys, pids = self._processes["process"], self._processes["pid"]
        rows = zip(keys, pids, pids.duplicated(), strict=True)
        return {int(process): next(self._free) if is_duplicate else int(pid) for process, pid, is_duplicate in rows}

    def thread(self, keys: Sequence[int], lane: int) -> TraceTrack:
        """Return the track of a thread (process, thread, tid); with a `lane`, a further track for crossing events."""
        process, thread, tid = keys
        pid, name = self.pids[process], "main thread"
        if tid != pid:
            own_name = self._names.get(thread, "")
            # the program's name is private
            name = "thread" if own_name in ("", self._programs[process]) else printable(own_name)
        return TraceTrack(pid, next(self._free) if lane else tid, f"process {pid}", _numbered(name, lane))

    def process(self, keys: Sequence[int], lane: int) -> TraceTrack:
        """Return a track for events that belong to a process (process) but not to a thread."""
        pid = self.pids[keys[0]]
        return TraceTrack(pid, next(self._free), f"process {pid}", _numbered("start/end ranges", lane))

    def stream(self, keys: Sequence[int], lane: int) -> TraceTrack:
        """Return the track of a stream (gpu, process, context, stream); processes can share a GPU."""
        gpu, process, context, stream = keys
        pid, name = self.gpu(gpu)
        owner = f"process {self.pids[process]}, " if process in self.pids and len(self.pids) > 1 else ""
        return TraceTrack(pid, next(self._free), name, _numbered(f"{owner}context {context}, stream {stream}", lane))

    def layers(self, keys: Sequence[int], lane: int) -> TraceTrack:
        """Return the track of the ranges of CUDA graphs on a stream."""
        stream = self.stream(keys, 0)
        return replace(stream, name=_numbered(f"{stream.name}, NVTX", lane))

    def gpu(self, device: int) -> tuple[int, str]:
        """Return id and name of the process that represents a GPU, or, for -1, the CPU's memory."""
        name = f"GPU {device}" if device >= 0 else "CPU"
        return _GPUS + device, f"{name} ({printable(self._gpus[device])})" if self._gpus.get(device) else name

    @cached_property
    def _gpus(self) -> dict[int, str]:
        devices = self._profile.recorded("devices")
        return dict(zip(devices["device"], devices["name"].astype("str"), strict=True))

    @cached_property
    def _processes(self) -> pd.DataFrame:
        frames = [self._profile.tables[name] for name in (*ON_THREADS, MARKS, OS_CALLS) if name in self._profile.tables]
        # each table has few processes, many only one: reduce it before concatenating
        parts = [(frame[:1] if _is_of_one(frame) else frame)[["process", "pid"]].drop_duplicates() for frame in frames]
        empty = pd.DataFrame({"process": [], "pid": []})
        return pd.concat([*parts, empty][: max(len(parts), 1)]).drop_duplicates("process").sort_values("process")

    @cached_property
    def _names(self) -> dict[int, str]:
        threads = self._profile.recorded("threads")
        return dict(zip(threads["thread"], threads["name"].astype("str"), strict=True))

    @cached_property
    def _programs(self) -> dict[int, str]:
        """The name of each process's main thread, whose nsys key ends in the pid."""
        rows = zip(self._processes["process"], self._processes["pid"], strict=True)
        return {int(process): self._names.get(int(process) | int(pid), "") for process, pid in rows}


def _is_of_one(events: pd.DataFrame) -> bool:
    """Whether all events have the same process and pid, and are stored so (`once`)."""
    return len(events) > 0 and all(events[name].to_numpy().strides == (0,) for name in ("process", "pid"))


def thread_slices(profile: Profile, places: Places, *, tables: Sequence[str] = ON_THREADS) -> Slices:
    """Lay out the events of `tables` on tracks of their threads; StartEnd ranges belong to no thread."""
    return _slices(profile, tables, ("process", "thread", "tid"), crossing_lanes, places.thread)


def mark_slices(profile: Profile, places: Places) -> Slices:
    """Lay out the marks on the tracks of their threads; instants never cross anything."""
    return thread_slices(profile, places, tables=(MARKS,))


def process_slices(profile: Profile, places: Places) -> Slices:
    """Lay out the StartEnd ranges of each process: they can cross, and end on another thread."""
    return _slices(profile, ("ranges",), ("process",), crossing_lanes, places.process, style=START_END)


def stream_slices(profile: Profile, places: Places) -> Slices:
    """Lay out the operations of each stream; concurrent ones get separate tracks, because they do not nest."""
    return _slices(profile, GPU_TABLES, ON_STREAM, free_lanes, places.stream)


def with_layers(profile: Profile) -> Profile:
    """Return a profile with the table LAYERS, if it has CUDA graphs with ranges."""
    layers = graph_layers(profile)
    return replace(profile, tables={**profile.tables, LAYERS: layers}) if len(layers) else profile


def layer_slices(profile: Profile, places: Places) -> Slices:
    """Lay out the ranges of CUDA graphs on separate tracks, by stream; `with_layers` makes them."""
    return _slices(profile, (LAYERS,), ON_STREAM, crossing_lanes, places.layers)


def event_names(table: str, frame: pd.DataFrame) -> tuple[Ints, list[str]]:
    """Return the index of each event's name, and the printable names; CUDA's own as NVIDIA spells them."""
    if table == "graph_launches":
        return np.zeros(len(frame), dtype=np.int64), [GRAPH]
    if table in ("ranges", LAYERS, MARKS):
        codes, labels = range_labels(frame)
        return codes.astype(np.int64), [excerpt(text, NAME_LENGTH) for text in labels.tolist()]
    texts = frame[_NAME_COLUMNS.get(table, "name")].cat
    names: list[str] = list(texts.categories)
    if table == "memory_ops":
        names = operation_names(names)
    if table == "api_calls":
        names = list(api_names(texts.categories))
    return np.asarray(texts.codes, dtype=np.int64), [excerpt(name, NAME_LENGTH) for name in names]


def _slices(
    profile: Profile,
    names: Iterable[str],
    keys: Sequence[str],
    lanes: Callable[[Ints, Ints], Ints],
    track: Callable[[Sequence[int], int], TraceTrack],
    *,
    style: str = "",
) -> Slices:
    """Assign the events of several tables to tracks, one per owner (the distinct keys) and lane, sorted by track.

    `style` selects ranges: START_END, or "" for all those that belong to a thread.
    """
    tables = tuple(name for name in names if name in profile.tables)
    frames = [profile.tables[name] for name in tables]
    rows = [_rows_of_style(frame, style) for frame in frames]

    def joined(columns: Iterable[Ints]) -> Ints:
        selected = [column[row] for column, row in zip(columns, rows, strict=True)]
        return np.concatenate([*selected, NOTHING])

    start, end = (joined(frame[name].to_numpy() for frame in frames) for name in ("start_ns", "end_ns"))
    # an event that ends before its start counts as zero-length
    end = np.maximum(start, end)
    owner, owners = combinations([joined(_key(frame, key) for frame in frames) for key in keys])
    # longest first, so that an enclosing event comes before the events inside it
    order = np.lexsort((-end, start, owner))
    owner, start, end = owner[order], start[order], end[order]
    track_number, tracks = combinations((owner, lanes(*separate_groups(owner, start, end))))
    # stable, so that the events of a track keep their order
    by_track = np.argsort(track_number, kind="stable")
    order = order[by_track]
    table = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    return Slices(
        tables,
        table[order],
        np.concatenate([*rows, table[:0]])[order],
        start[by_track],
        end[by_track],
        track_number[by_track],
        tuple(track(owners[number], lane) for number, lane in tracks),
    )


def _rows_of_style(frame: pd.DataFrame, style: str) -> Ints:
    if "style" not in frame:
        return np.arange(len(frame))
    is_start_end = np.asarray(frame["style"] == START_END, dtype=bool)
    return np.flatnonzero(is_start_end if style == START_END else ~is_start_end)


def _key(frame: pd.DataFrame, column: str) -> Ints:
    """Return a key column; `tid` may be missing, and is then the low bits of the thread key."""
    return integers(frame[column]) if column in frame else integers(frame["thread"]) & _TID


def _numbered(name: str, lane: int) -> str:
    return f"{name} ({lane + 1})" if lane else name
