"""What all analyses share: which call launched each GPU operation, and which stretch of time the report is about.

An operation and its call are matched by process and correlation id; an operation has at most one call, and matching
adds no row and loses none.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd

from pipeline.intervals import Ints
from pipeline.model import Profile
from pipeline.tables import categorical

Flags = np.ndarray[Any, np.dtype[np.bool_]]

GPU_TABLES: Final = ("kernels", "memory_ops", "graph_launches")
MEASURED_RANGE: Final = "measure"
GRAPH: Final = "[CUDA graph]"
# more correlation ids than one process ever uses: CUPTI counts them in 32 bits
_IDS: Final = 1 << 40


@dataclass(frozen=True)
class Window:
    """The stretch of time that shares and idle time refer to, and in words where it comes from."""

    start_ns: int
    end_ns: int
    name: str

    @property
    def length_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Operations:
    """GPU operations of all kinds, one array entry each, in the order of GPU_TABLES; `kind` is the position there.

    `device` is the GPU of the machine (see `gpu` in pipeline.tables); `launch` is the same for all that one launch
    started; `call` is the row in api_calls of the launching call, -1 where none was recorded; `in_graph` marks
    kernels that a CUDA graph launched, and graphs traced as a whole.
    """

    kind: Ints
    start: Ints
    end: Ints
    device: Ints
    stream: Ints
    launch: Ints
    call: Ints
    in_graph: Flags

    def of(self, table: str) -> Flags:
        """Return where the operations of one table are."""
        flags: Flags = self.kind == GPU_TABLES.index(table)
        return flags


class Timeline:
    """A profile, with what is computed once for all analyses."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    @cached_property
    def window(self) -> Window:
        """Our runner's `measure` range if there is one, else first to last GPU operation, else all recorded."""
        ranges = self.profile.tables.get("ranges")
        if ranges is not None:
            measured = ranges[(ranges["name"] == MEASURED_RANGE) & (ranges["domain"] == "")]
            if len(measured):
                return Window(int(measured["start_ns"].min()), int(measured["end_ns"].max()), MEASURED_RANGE)
        if bounds := self._bounds(GPU_TABLES):
            return Window(*bounds, "first to last GPU operation")
        return Window(*self._bounds(("ranges", "cpu_ops", "api_calls")) or (0, 0), "everything recorded")

    @cached_property
    def operations(self) -> Operations:
        """All GPU operations, with the calls that launched them."""
        tables = [self.profile.tables.get(name, _NOTHING) for name in GPU_TABLES]
        sizes = [len(frame) for frame in tables]
        kind = np.repeat(np.arange(len(GPU_TABLES)), sizes)
        start, end, stream = (_joined(tables, name) for name in ("start_ns", "end_ns", "stream"))
        device = np.concatenate([_gpu(frame) for frame in tables])
        launch = np.concatenate([self._keys(frame) for frame in tables])
        unknown = launch < 0
        launch[unknown] = -1 - np.arange(unknown.sum())
        nodes = [frame["graph_node"].notna() if "graph_node" in frame else np.ones(len(frame)) for frame in tables]
        in_graph = np.concatenate([np.asarray(node, dtype=bool) for node in nodes])
        # Kineto does not say which kernels a graph launched; that many share one call does
        kernels = kind == GPU_TABLES.index("kernels")
        in_graph[kernels] |= pd.Series(launch[kernels]).duplicated(keep=False).to_numpy()
        return Operations(kind, start, end, device, stream, launch, self._calls(launch), in_graph)

    @cached_property
    def is_set(self) -> Flags:
        """Which of the operations are memsets; the others of memory_ops are copies."""
        flags = np.zeros(len(self.operations.kind), dtype=bool)
        if "memory_ops" in self.profile.tables:
            flags[self.operations.of("memory_ops")] = self.profile.table("memory_ops")["operation"] == "memset"
        return flags

    @cached_property
    def launches(self) -> pd.DataFrame:
        """One row per launch of a kernel or of a graph, however many kernels that contains.

        Columns: device, stream, name (the kernel's, or GRAPH), start_ns and end_ns on the GPU, call (see Operations).
        """
        operations = self.operations
        single = np.flatnonzero(operations.of("kernels") & ~operations.in_graph)
        grouped = np.flatnonzero(~operations.of("memory_ops") & operations.in_graph)
        by = ["launch", "device"]
        graphs = (
            self._rows(grouped)
            .groupby(by, as_index=False)
            .agg(
                stream=("stream", "first"),
                start_ns=("start_ns", "min"),
                end_ns=("end_ns", "max"),
                call=("call", "first"),
            )
        )
        launched = pd.concat([self._rows(single), graphs], ignore_index=True)
        # kernels are the first table, so the position of an operation is its row there
        names = self.profile.table("kernels")["name"].cat
        codes = np.concatenate([names.codes.to_numpy()[single], np.full(len(graphs), len(names.categories))])
        values = np.append(names.categories.to_numpy(dtype=object), GRAPH)
        return launched.assign(name=categorical(values, codes))

    @cached_property
    def call_times(self) -> tuple[Ints, Ints]:
        """Start and end in ns of every row of api_calls."""
        calls = self.profile.table("api_calls")
        return calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()

    @cached_property
    def call_launch(self) -> Ints:
        """The launch (as in Operations) that every row of api_calls belongs to, if any of its id was recorded."""
        return self._keys(self.profile.table("api_calls"))

    def _rows(self, positions: Ints) -> pd.DataFrame:
        operations = self.operations
        columns = {"start_ns": "start", "end_ns": "end"} | {
            name: name for name in ("device", "stream", "launch", "call")
        }
        return pd.DataFrame({ours: getattr(operations, theirs)[positions] for ours, theirs in columns.items()})

    def _bounds(self, names: tuple[str, ...]) -> tuple[int, int] | None:
        frames = [self.profile.tables[name] for name in names if len(self.profile.tables.get(name, ()))]
        if not frames:
            return None
        return int(min(frame["start_ns"].min() for frame in frames)), int(
            max(frame["end_ns"].max() for frame in frames)
        )

    @cached_property
    def _processes(self) -> "pd.Index[Any]":
        frames = [self.profile.tables[name] for name in (*GPU_TABLES, "api_calls") if name in self.profile.tables]
        columns = [_numbers(frame["process"]) for frame in frames]
        distinct = np.unique(np.concatenate([np.unique(some[some >= 0]) for some in columns]))
        processes: pd.Index[Any] = pd.Index(distinct, dtype="int64")
        return processes

    def _keys(self, frame: pd.DataFrame) -> Ints:
        """One number per (process, correlation); negative where either is unknown."""
        process = self._processes.get_indexer(pd.Index(_numbers(frame["process"])))
        correlation = _numbers(frame["correlation"])
        return np.where((process < 0) | (correlation < 0), -1, process * _IDS + correlation)

    def _calls(self, launch: Ints) -> Ints:
        """The row of the outermost call with each launch's key: a driver call can share its runtime call's id."""
        calls = self.profile.tables.get("api_calls")
        if calls is None or not len(calls):
            return np.full(len(launch), -1, dtype=np.int64)
        keys, (start, end) = self.call_launch, self.call_times
        in_order = bool((start[1:] >= start[:-1]).all())
        order = np.argsort(keys, kind="stable") if in_order else np.lexsort((-end, start, keys))
        known, first = np.unique(keys[order], return_index=True)
        position = np.minimum(np.searchsorted(known, launch), len(known) - 1)
        return np.where((known[position] == launch) & (launch >= 0), order[first[position]], -1)


_NOTHING: Final = pd.DataFrame(
    {name: [] for name in ("start_ns", "end_ns", "device", "gpu", "stream", "process", "correlation")}
)


def _joined(tables: list[pd.DataFrame], column: str) -> Ints:
    return np.concatenate([frame[column].to_numpy(dtype=np.int64) for frame in tables])


def _gpu(frame: pd.DataFrame) -> Ints:
    """The GPU of the machine that each operation ran on; two processes can both call theirs device 0."""
    gpu, device = _numbers(frame["gpu"]), _numbers(frame["device"])
    return np.where(gpu < 0, device, gpu)


def _numbers(column: "pd.Series[Any]") -> Ints:
    """A nullable column as plain int64, -1 where it is NULL."""
    return column.to_numpy(dtype=np.int64, na_value=-1) if column.dtype != np.int64 else column.to_numpy()
