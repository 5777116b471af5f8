"""What all analyses share: which call launched each GPU operation, and which stretch of time the report is about.

An operation and its call are matched by process and correlation id; an operation has at most one call, and matching
adds no row and loses none.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.intervals import Ints, Spans, inside
from nightsight.model import Profile
from nightsight.parallel import once
from nightsight.tables import categorical

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

    `device` is the GPU of the machine (see `gpu` in nightsight.tables); `launch` is the same for all that one launch
    started; `call` is the row in api_calls of the launching call, -1 where none was recorded; `in_graph` marks
    kernels that a CUDA graph launched, and graphs traced as a whole.
    """

    kind: np.ndarray[Any, np.dtype[np.int8]]
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

    @property
    @once
    def window(self) -> Window:
        """Our runner's `measure` range if there is one, else first to last GPU operation, else all recorded."""
        ranges = self.profile.tables.get("ranges")
        if ranges is not None:
            measured = ranges[(ranges["name"] == MEASURED_RANGE) & (ranges["domain"] == "")]
            if len(measured):
                return Window(int(measured["start_ns"].min()), int(measured["end_ns"].max()), MEASURED_RANGE)
        if bounds := self._bounds(GPU_TABLES):
            return Window(*bounds, "first to last GPU operation")
        return Window(*self._bounds(("ranges", "marks", "cpu_ops", "api_calls")) or (0, 0), "everything recorded")

    @property
    @once
    def operations(self) -> Operations:
        """All GPU operations, with the calls that launched them."""
        tables = [self.profile.tables.get(name, _NOTHING) for name in GPU_TABLES]
        sizes = [len(frame) for frame in tables]
        kind = np.repeat(np.arange(len(GPU_TABLES), dtype=np.int8), sizes)
        start, end, stream = (_joined(tables, name) for name in ("start_ns", "end_ns", "stream"))
        device = np.concatenate([_gpu(frame) for frame in tables])
        launch = self._keys[0]
        # of graphs traced as a whole there are no nodes
        nodes = [_is_node(frame) for frame in tables[:2]]
        in_graph = np.concatenate([*nodes, np.ones(sizes[2], dtype=bool)])
        if not self._tells_graphs:
            in_graph[: sizes[0]] |= _shared(launch[: sizes[0]])
        return Operations(kind, start, end, device, stream, launch, self._calls(launch), in_graph)

    @property
    def _tells_graphs(self) -> bool:
        """Whether the capture says which kernels a graph launched; else that many share one call does.

        Not every Kineto trace does, and exports that do not lack the column.
        """
        kernels = self.profile.tables.get("kernels", _NOTHING)
        return self.profile.environment.collector == "nsys" and "graph_node" in kernels

    @property
    @once
    def is_set(self) -> Flags:
        """Which of the operations are memsets; the others of memory_ops are copies."""
        flags = np.zeros(len(self.operations.kind), dtype=bool)
        if "memory_ops" in self.profile.tables:
            flags[self.operations.of("memory_ops")] = self.profile.table("memory_ops")["operation"] == "memset"
        return flags

    @property
    @once
    def is_launched(self) -> Flags:
        """Which of the operations a call launches; pages of managed memory move by themselves."""
        flags = np.ones(len(self.operations.kind), dtype=bool)
        if "memory_ops" in self.profile.tables:
            kinds = self.profile.table("memory_ops")["operation"].cat
            by_itself = np.asarray(kinds.categories.str.startswith("Unified"), dtype=bool)
            flags[self.operations.of("memory_ops")] = ~by_itself[kinds.codes]
        return flags

    @property
    @once
    def launches(self) -> pd.DataFrame:
        """One row per launch of a kernel or of a graph, however many kernels that contains.

        Columns: device, name (the kernel's, or GRAPH), start_ns and end_ns on the GPU, call (see Operations).
        """
        operations = self.operations
        single = np.flatnonzero(operations.of("kernels") & ~operations.in_graph)
        grouped = np.flatnonzero(~operations.of("memory_ops") & operations.in_graph)
        columns = {"device": operations.device, "start_ns": operations.start, "end_ns": operations.end}
        columns["call"] = operations.call
        # kernels are the first table, so the position of an operation is its row there
        names = self.profile.table("kernels")["name"]
        if not len(grouped):
            alone = {name: column[: len(names)] for name, column in columns.items()}
            return pd.DataFrame({**alone, "name": names.array}, copy=False)
        of_graphs = pd.DataFrame({name: values[grouped] for name, values in columns.items()})
        graphs = of_graphs.groupby([operations.launch[grouped], of_graphs["device"]]).agg(
            {"device": "first", "start_ns": "min", "end_ns": "max", "call": "first"}
        )
        values = np.append(names.cat.categories.to_numpy(dtype=object), GRAPH)
        codes = np.concatenate([names.cat.codes.to_numpy()[single], np.full(len(graphs), len(values) - 1)])
        launched = {name: np.concatenate((column[single], graphs[name])) for name, column in columns.items()}
        return pd.DataFrame({**launched, "name": categorical(values, codes)}, copy=False)

    @property
    @once
    def call_times(self) -> tuple[Ints, Ints]:
        """Start and end in ns of every row of api_calls."""
        calls = self.profile.table("api_calls")
        return calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()

    @property
    @once
    def call_launch(self) -> Ints:
        """The launch (as in Operations) that every row of api_calls belongs to, if any of its id was recorded."""
        return self._keys[1]

    def _bounds(self, names: tuple[str, ...]) -> tuple[int, int] | None:
        frames = [self.profile.tables[name] for name in names if len(self.profile.tables.get(name, ()))]
        if not frames:
            return None
        return int(min(frame["start_ns"].min() for frame in frames)), int(
            max(frame["end_ns"].max() for frame in frames)
        )

    @property
    @once
    def _keys(self) -> tuple[Ints, Ints]:
        """One number per (process, correlation) of all operations, and of all calls.

        Where either is unknown it is negative, another for each operation and -1 for calls.
        """
        frames = [self.profile.tables.get(name, _NOTHING) for name in (*GPU_TABLES, "api_calls")]
        processes = [_numbers(frame["process"]) for frame in frames]
        known = np.unique(np.concatenate([pd.unique(some) for some in processes]))
        keys = np.concatenate([_numbers(frame["correlation"]) for frame in frames])
        *operations, calls = np.split(keys, np.cumsum([len(frame) for frame in frames])[:-1])
        for part, process in zip((*operations, calls), processes, strict=True):
            unknown = (process < 0) | (part < 0)
            np.add(part, np.searchsorted(known, process) * _IDS, out=part)
            part[unknown] = -1
        launches = keys[: len(keys) - len(calls)]
        launches[launches < 0] = -1 - np.arange(np.count_nonzero(launches < 0))
        return launches, calls

    def _calls(self, launch: Ints) -> Ints:
        """The row of the outermost call with each launch's key: a driver call can share its runtime call's id."""
        calls = self.profile.tables.get("api_calls")
        if calls is None or not len(calls):
            return np.full(len(launch), -1, dtype=np.int64)
        keys, (start, end) = self.call_launch, self.call_times
        in_order = bool((start[1:] >= start[:-1]).all())
        order = np.argsort(keys, kind="stable") if in_order else np.lexsort((-end, start, keys))
        known = keys[order]
        # the first of those with the same key is the outermost
        position = np.minimum(np.searchsorted(known, launch), len(known) - 1)
        return np.where((known[position] == launch) & (launch >= 0), order[position], -1)


def distinct(values: Ints) -> Ints:
    """Return the distinct values in rising order, by sorting: numpy's `unique` hashes, ten times slower on ids."""
    ordered: Ints = np.sort(values, kind="stable")
    first: Flags = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return ordered[first]


def operation_column(timeline: Timeline, column: str) -> Ints:
    """Return a column that all GPU tables have, for the timeline's operations; -1 where it is NULL."""
    tables = timeline.profile.tables
    frames = [tables[name] for name in GPU_TABLES if name in tables]
    return np.concatenate([frame[column].to_numpy(dtype=np.int64, na_value=-1) for frame in frames])


@once
def busy_spans(timeline: Timeline) -> dict[int, Spans]:
    """Return when in the window anything ran on each device that did anything at any time."""
    operations, window = timeline.operations, timeline.window
    of_device = {int(device): operations.device == device for device in np.sort(pd.unique(operations.device))}
    bounds = (window.start_ns, window.end_ns)
    return {device: inside(operations.start[here], operations.end[here], bounds) for device, here in of_device.items()}


_NOTHING: Final = pd.DataFrame(
    {name: [] for name in ("start_ns", "end_ns", "device", "gpu", "stream", "process", "correlation")}
)


def _is_node(frame: pd.DataFrame) -> Flags:
    nodes = frame["graph_node"].notna() if "graph_node" in frame else np.zeros(len(frame))
    return np.asarray(nodes, dtype=bool)


def _shared(launch: Ints) -> Flags:
    """Return which operations are of a launch that has others."""
    ordered = np.sort(launch, kind="stable")
    if (ordered[1:] == ordered[:-1]).any():
        return np.asarray(pd.Series(launch).duplicated(keep=False))
    return np.zeros(len(launch), dtype=bool)


def _joined(tables: list[pd.DataFrame], column: str) -> Ints:
    return np.concatenate([frame[column].to_numpy(dtype=np.int64) for frame in tables])


def _gpu(frame: pd.DataFrame) -> Ints:
    """The GPU of the machine that each operation ran on; two processes can both call theirs device 0."""
    gpu, device = _numbers(frame["gpu"]), _numbers(frame["device"])
    return np.where(gpu < 0, device, gpu)


def _numbers(column: "pd.Series[Any]") -> Ints:
    """A nullable column as plain int64, -1 where it is NULL."""
    return column.to_numpy(dtype=np.int64, na_value=-1) if column.dtype != np.int64 else column.to_numpy()
