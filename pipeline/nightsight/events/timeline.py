"""Shared by all analyses: the GPU operations of a profile, and the time window that the report covers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary, ref

import numpy as np
import pandas as pd

from nightsight.events.launches import GPU_TABLES, launch_keys, launching_calls
from nightsight.events.names import GRAPH, api_names, operation_names
from nightsight.events.window import GPU_WORK, RECORDED, Window, chosen_window
from nightsight.intervals import NOTHING, Flags, Ints, Spans, clipped_union
from nightsight.model.report import Profile
from nightsight.system.parallel import memoize
from nightsight.tables import categorical, compact, positions, renamed


@dataclass(frozen=True)
class Operations:
    """All GPU operations, one entry per array, in the order of GPU_TABLES; `kind` is the position of their table there.

    `start` and `end` are in ns. `launch`: equal for all operations of one launch (see `launch_keys`); `call`: the row
    in api_calls of the launching call, -1 if none was recorded; `in_graph`: kernels that a CUDA graph launched, and
    graphs traced as a whole.
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
        """Return which operations are from one table."""
        flags: Flags = self.kind == GPU_TABLES.index(table)
        return flags


_Value = TypeVar("_Value")


def of_capture(compute: Callable[["Timeline"], _Value]) -> Callable[["Timeline"], _Value]:
    """Memoize a function of a timeline that does not depend on its window: `Timeline.at` shares the value."""
    shared = memoize(compute)

    @wraps(compute)
    def memoized(timeline: "Timeline") -> _Value:
        return shared(timeline.origin)

    return memoized


class Timeline:
    """A profile with values computed once for all analyses, and the window they are about (default: the chosen one).

    pieces: timelines whose windows, added where the number is 1 and subtracted where it is -1, make up this window.
    Sums over time can be computed from them.
    """

    def __init__(
        self,
        profile: Profile,
        window: Window | None = None,
        *,
        origin: "Timeline | None" = None,
        pieces: "Pieces" = (),
    ) -> None:
        self.profile = profile
        self.pieces = pieces
        self._window = window
        self._origin = origin

    @classmethod
    def of(cls, profile: Profile) -> "Timeline":
        """Return the timeline of a profile: the same object, with its computed values, while it is referenced."""
        timeline = reference() if (reference := _TIMELINES.get(profile)) else None
        if timeline is None:
            timeline = cls(profile)
            _TIMELINES[profile] = ref(timeline)
        return timeline

    def at(self, window: Window, pieces: "Pieces" = ()) -> "Timeline":
        """Return another window of the same profile. Values that do not depend on the window are shared."""
        return Timeline(self.profile, window, origin=self.origin, pieces=pieces)

    @property
    def origin(self) -> "Timeline":
        """The timeline that holds the shared values."""
        return self if self._origin is None else self._origin

    @property
    def window(self) -> Window:
        """The time span that percentages and idle time refer to."""
        return self._window or chosen_window(self.profile)

    @property
    @of_capture
    def operations(self) -> Operations:
        """All GPU operations, with the calls that launched them."""
        tables = [self.profile.recorded(name) for name in GPU_TABLES]
        sizes = [len(frame) for frame in tables]
        kind = np.repeat(np.arange(len(GPU_TABLES), dtype=np.int8), sizes)
        start, end, device, stream = (_concatenate(tables, name) for name in ("start_ns", "end_ns", "device", "stream"))
        launch = launch_keys(self.profile)[0]
        # the third table, graphs traced as a whole, has no nodes
        nodes = [_is_node(frame) for frame in tables[:2]]
        in_graph = np.concatenate([*nodes, np.ones(sizes[2], dtype=bool)])
        if not self._tells_graphs:
            in_graph[: sizes[0]] |= _shares_launch(launch[: sizes[0]])
        return Operations(kind, start, end, device, stream, launch, launching_calls(self.profile), in_graph)

    @property
    def _tells_graphs(self) -> bool:
        """Whether the capture says which kernels a graph launched.

        Old nsys exports lack the column, and not every Kineto trace fills it; then kernels that share a launching call
        count as a graph.
        """
        return self.profile.environment.collector == "nsys" and "graph_node" in self.profile.recorded("kernels")

    @property
    @of_capture
    def is_set(self) -> Flags:
        """Which operations are memsets; the other rows of memory_ops are copies."""
        flags = np.zeros(len(self.operations.kind), dtype=bool)
        if "memory_ops" in self.profile.tables:
            flags[self.operations.of("memory_ops")] = self.profile.table("memory_ops")["operation"] == "memset"
        return flags

    @property
    @of_capture
    def is_launched(self) -> Flags:
        """Which operations are launched by a call; migrations of managed memory are not."""
        flags = np.ones(len(self.operations.kind), dtype=bool)
        if "memory_ops" in self.profile.tables:
            kinds = self.profile.table("memory_ops")["operation"].cat
            by_itself = np.asarray(kinds.categories.str.startswith("Unified"), dtype=bool)
            flags[self.operations.of("memory_ops")] = ~by_itself[kinds.codes]
        return flags

    @property
    @of_capture
    def launches(self) -> pd.DataFrame:
        """One row per launch of a kernel, or of a graph with all its kernels.

        Columns: device, name (of the kernel, or GRAPH), start_ns and end_ns on the GPU, call (see Operations).
        """
        operations = self.operations
        single = np.flatnonzero(operations.of("kernels") & ~operations.in_graph)
        grouped = np.flatnonzero(~operations.of("memory_ops") & operations.in_graph)
        columns = {"device": operations.device, "start_ns": operations.start, "end_ns": operations.end}
        columns["call"] = operations.call
        # kernels are the first table, so the position of a kernel among operations is its row
        names = self.profile.table("kernels")["name"]
        if not len(grouped):
            kernel_columns = {name: column[: len(names)] for name, column in columns.items()}
            return pd.DataFrame({**kernel_columns, "name": names.array}, copy=False)
        of_graphs = pd.DataFrame({name: values[grouped] for name, values in columns.items()})
        graphs = of_graphs.groupby([operations.launch[grouped], of_graphs["device"]]).agg(
            {"device": "first", "start_ns": "min", "end_ns": "max", "call": "first"}
        )
        values = np.append(names.cat.categories.to_numpy(dtype=object), GRAPH)
        codes = np.concatenate([names.cat.codes.to_numpy()[single], np.full(len(graphs), len(values) - 1)])
        launched = {name: np.concatenate((column[single], graphs[name])) for name, column in columns.items()}
        return pd.DataFrame({**launched, "name": categorical(values, codes)}, copy=False)

    @property
    @of_capture
    def call_times(self) -> tuple[Ints, Ints]:
        """Start and end in ns of every row of api_calls."""
        calls = self.profile.table("api_calls")
        return calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()

    @property
    def call_launch(self) -> Ints:
        """The launch key of every row of api_calls, comparable to `launch` in Operations; -1 if unknown."""
        return launch_keys(self.profile)[1]


@of_capture
def launch_times(timeline: Timeline) -> Ints:
    """Return when the CPU launched each operation, or when it began on the GPU if the call is unknown."""
    starts, call = timeline.profile.recorded("api_calls")["start_ns"].to_numpy(), timeline.operations.call
    return np.where(call >= 0, np.append(starts, 0)[call], timeline.operations.start)


@of_capture
def function_names(timeline: Timeline) -> "pd.Categorical[Any]":
    """Return the function of every row of api_calls, without its version."""
    return renamed(timeline.profile.recorded("api_calls")["name"], api_names)


Pieces = tuple[tuple[int, Timeline], ...]
_TIMELINES: Final[WeakKeyDictionary[Profile, "ref[Timeline]"]] = WeakKeyDictionary()


def distinct(values: Ints) -> Ints:
    """Return the distinct values in ascending order. Sorts: numpy's `unique` hashes, ten times slower for ids."""
    ordered: Ints = np.sort(values, kind="stable")
    first: Flags = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return ordered[first]


def operation_column(timeline: Timeline, column: str) -> Ints:
    """Return a column that all GPU tables have, for all operations of the timeline; -1 for NULL."""
    tables = timeline.profile.tables
    columns = [tables[name][column].to_numpy(dtype=np.int64, na_value=-1) for name in GPU_TABLES if name in tables]
    return compact(np.concatenate([NOTHING, *columns]))


def names_of(timeline: Timeline, position: Ints) -> "pd.Categorical[Any]":
    """Return the names of operations by their position in `Timeline.operations`; the empty text for -1."""
    tables = timeline.profile.tables
    kernels, copies = tables["kernels"]["name"].cat, tables["memory_ops"]["operation"].cat
    values = np.array([*kernels.categories, *operation_names(copies.categories), GRAPH, ""], dtype=object)
    # positions run over kernels, memory operations and graphs; -1 finds the last code, the empty text
    graphs = np.full(len(timeline.operations.kind) - len(kernels.codes) - len(copies.codes), len(values) - 2)
    copied_codes = copies.codes.to_numpy(dtype=np.int64) + len(kernels.categories)
    codes = np.concatenate([kernels.codes, copied_codes, graphs, [len(values) - 1]])
    return categorical(values, codes[position])


@of_capture
def by_device(timeline: Timeline) -> dict[int, Ints]:
    """Return the operations of each device, in their order."""
    return positions(timeline.operations.device)


def begun(timeline: Timeline, start: "Ints | pd.Series[Any]") -> Flags:
    """Return which times are in the window; a window of all GPU work also contains all other recorded events."""
    window = timeline.window
    if window.name in (GPU_WORK, RECORDED):
        return np.ones(len(start), dtype=bool)
    return window.contains(start)


def of_window(timeline: Timeline, table: str, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Return the rows of a canonical table that began in the window; MissingTable if it was not captured.

    columns: other columns than the times to return; () for all.
    """
    frame = timeline.profile.table(table)
    is_inside = begun(timeline, frame["start_ns"])
    if columns:
        frame = frame[["start_ns", "end_ns", *columns]]
    return frame if is_inside.all() else frame[is_inside]


@memoize
def busy_spans(timeline: Timeline) -> dict[int, Spans]:
    """Return, for each device used in the capture, the spans of the window in which anything ran."""
    operations, bounds = timeline.operations, timeline.window.bounds
    return {
        device: clipped_union(operations.start[of_device], operations.end[of_device], bounds)
        for device, of_device in by_device(timeline).items()
    }


def _is_node(frame: pd.DataFrame) -> Flags:
    nodes = frame["graph_node"].notna() if "graph_node" in frame else np.zeros(len(frame))
    return np.asarray(nodes, dtype=bool)


def _shares_launch(launch: Ints) -> Flags:
    """Return which operations share their launch with others."""
    ordered = np.sort(launch, kind="stable")
    if (ordered[1:] == ordered[:-1]).any():
        return np.asarray(pd.Series(launch).duplicated(keep=False))
    return np.zeros(len(launch), dtype=bool)


def _concatenate(tables: list[pd.DataFrame], column: str) -> Ints:
    return compact(np.concatenate([frame[column].to_numpy(dtype=np.int64) for frame in tables]))
