"""Find small collectives that could be one: a program sends tensors one by one, such as gradients.

A small collective takes as long as a message needs to all ranks and back, whatever its size. One for all tensors needs
that time once. Collectives can only be joined if nothing between them needs the result of one: on a stream that waits
for one of them, only elementwise kernels and copies may run before the last, such as a division by the number of ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.causes.graph import TO_HOST
from nightsight.analyze.causes.model import LAUNCH
from nightsight.analyze.causes.scene import Scene
from nightsight.events.communication import communication
from nightsight.events.kernel_kinds import kind_of
from nightsight.events.timeline import operation_column
from nightsight.intervals import Flags, Floats, Ints
from nightsight.tables import are_named, positions
from nightsight.units import format_value

_JOINABLE: Final = ("allreduce", "allgather", "_allgather_base", "reduce_scatter", "_reduce_scatter_base", "broadcast")
# `stored: a to b`: with a and with b, the first findings of the stored captures are the same (docs/causes.md)

# stored: 0.5 to 2 MiB
_SMALL_BYTES: Final = 1 << 20
# collectives of unknown size are small if they are at most this long (stored: 15 to 60 µs)
_SHORT_NS: Final = 30_000
# the least time of an all-reduce over NVLink: 16 kB took 8.7 to 10.8 µs between two H100, 4 bytes 5.5 µs
_LATENCY_NS: Final = 8_000
# fewer in a row may be steps of an algorithm (stored: 4 to 16)
_FEWEST: Final = 8
# between two collectives, on a stream that waits for them: at most this many kernels, each at most this long (stored: 1
# to 6, 10 to 40 µs)
_MOST_BETWEEN: Final = 3
_BRIEF_NS: Final = 20_000
_ELEMENTWISE: Final = ("elementwise", "compiled", "foreach")


@dataclass(frozen=True, eq=False)
class Coalescing:
    """Small collectives, as positions in OperationNodes: those that one of their run could replace, and that one.

    longer_ns: the time that each of `kept` takes in addition. name: of the most frequent kind, with its bytes.
    """

    removed: Ints
    kept: Ints
    longer_ns: Floats
    name: str


def coalescing(scene: Scene) -> Coalescing | None:
    """Return the small collectives that could be joined; None if there are none."""
    if not len(communication(scene.timeline)) or not (collectives := _collectives(scene))["is_small"].any():
        return None
    runs = list(_runs(scene, collectives))
    removed = np.concatenate([np.empty(0, dtype=np.int64), *(run[:-1] for run in runs)])
    kept = np.array([run[-1] for run in runs], dtype=np.int64)
    # all ranks must be able to join the same ones
    work, group = scene.graph.work, scene.graph.work.group
    is_grouped = group >= 0
    not_removed = np.setdiff1d(np.flatnonzero(is_grouped), removed)
    is_shared = ~is_grouped[removed] | ~np.isin(group[removed], group[not_removed])
    if not is_shared.any():
        return None
    rest_ns = collectives["rest_ns"].reindex(np.arange(len(work)), fill_value=0.0).to_numpy()
    joined_ns = [rest_ns[np.intersect1d(run[:-1], removed[is_shared])].sum() for run in runs]
    small = collectives.loc[np.append(removed[is_shared], kept)]
    kind = str(small["name"].value_counts().idxmax())
    return Coalescing(removed[is_shared], kept, np.array(joined_ns), _describe(kind, small[small["name"] == kind]))


def _describe(kind: str, rows: pd.DataFrame) -> str:
    mean = float(rows["bytes"].mean())
    name = kind.strip("_").removesuffix("_base")
    return f"{name}, {format_value(mean, 'mean_bytes')} on average" if mean > 0 else name


def _collectives(scene: Scene) -> pd.DataFrame:
    """Return the collectives in the stretch that can be joined, by their position in OperationNodes.

    is_small, key (of kind and communicator), bytes, and rest_ns: the time that a larger collective takes for its bytes.
    """
    work = scene.graph.work
    calls = communication(scene.timeline)
    calls = calls.assign(row=scene.place[calls["operation"]])
    calls = calls[(calls["row"] >= 0) & calls["name"].isin(_JOINABLE)].set_index("row")
    calls = calls[scene.model.has(LAUNCH)[calls.index]]
    rows = calls.index.to_numpy()
    # the bytes of an all-gather are those that are received
    size = calls[["bytes", "received_bytes"]].astype("float64").max(axis=1)
    group = work.group[rows]
    transfer_ns = pd.Series(scene.length[rows], index=rows, dtype="float64")
    shortest = transfer_ns.groupby(np.where(group >= 0, group, -2 - rows)).transform("min")
    transfer_ns = shortest.where(group >= 0, transfer_ns)
    key = pd.Series(pd.factorize(calls["name"].astype("str") + "\0" + calls["group"].astype("str"))[0], index=rows)
    is_small = (size <= _SMALL_BYTES) | (size.isna() & (transfer_ns <= _SHORT_NS))
    latency_ns = pd.Series(float(_LATENCY_NS), index=rows)
    # where a transfer is known to be without waits, the shortest one tells how long a message takes
    of_groups = pd.DataFrame({"size": size, "time": transfer_ns, "key": key})[group >= 0]
    for number, same in of_groups.dropna().groupby("key"):
        smallest = same[same["size"] == same["size"].min()]
        rate = float((same["size"] / same["time"].clip(lower=1)).max())
        message_ns = float(smallest["time"].median() - smallest["size"].iloc[0] / max(rate, 1e-9))
        latency_ns[(key == number) & (group >= 0)] = max(message_ns, _LATENCY_NS)
    rest_ns = (transfer_ns - latency_ns).clip(lower=0)
    # an unmatched collective may wait for other ranks, and so does a joined one
    columns = {"is_small": is_small, "key": key, "bytes": size, "rest_ns": rest_ns, "name": calls["name"].astype("str")}
    return pd.DataFrame(columns)


def _runs(scene: Scene, collectives: pd.DataFrame) -> Iterator[Ints]:
    """Yield the small collectives of each run that is long enough, in the order of their launches."""
    graph, work, window = scene.graph, scene.graph.work, scene.timeline.window
    process = operation_column(scene.timeline, "process")[work.operation]
    key, is_small = np.full(len(work), -1, dtype=np.int64), np.zeros(len(work), dtype=bool)
    key[collectives.index] = collectives["key"]
    is_small[collectives.index[collectives["is_small"]]] = True
    # after a wait, the CPU may decide by a result
    is_waiting = (graph.calls.waits_for >= 0) & ~scene.launching
    is_waiting |= scene.direction == TO_HOST
    for of_device in positions(work.device).values():
        rows = of_device[work.call[of_device] >= 0]
        if is_small[rows].sum() < _FEWEST:
            continue
        rows = rows[np.argsort(work.launch_ns[rows], kind="stable")]
        waits = graph.calls.start[is_waiting & np.isin(graph.calls.process, process[rows])]
        starts = [window.steps.get(number, window.repetitions) for number in np.unique(process[rows]).tolist()]
        edges = np.sort(np.concatenate([waits, *starts]))
        part = np.searchsorted(edges, work.launch_ns[rows], side="right")
        for run in _independent_runs(scene, rows, part, key):
            small = np.array(run)[is_small[run]]
            if len(small) >= _FEWEST:
                yield small


def _independent_runs(scene: Scene, rows: Ints, part: Ints, key: Ints) -> Iterator[list[int]]:
    """Yield runs of collectives with the same key in the same part of these rows, which are in order of their launches.

    A run ends before an operation that may need the result of one of them.
    """
    work, is_light = scene.graph.work, _is_light(scene)
    stream = scene.timeline.operations.stream[work.operation]
    has_records = len(scene.timeline.profile.recorded("event_records")) > 0
    run: list[int] = []
    # the run, and the work that waits for it
    members: set[int] = set()
    waiting_streams: set[int] = set()
    between, part_of_run = 0, -1
    for row, number in zip(rows.tolist(), part.tolist(), strict=True):
        is_collective = key[row] >= 0
        if is_collective:
            is_needed = bool(run) and key[row] != key[run[-1]]
        else:
            waits = int(stream[row]) in waiting_streams or int(work.dependency[row]) in members
            if waits:
                waiting_streams.add(int(stream[row]))
                members.add(row)
                between += 1
            is_brief = bool(is_light[row]) and between <= _MOST_BETWEEN
            # without records of events, only an overlap shows that it does not wait
            is_needed = bool(run) and not (is_brief if waits else has_records or work.start[row] < work.end[run[-1]])
        if is_needed or number != part_of_run:
            if run:
                yield run
            run, members, waiting_streams, between, part_of_run = [], set(), set(), 0, number
        if is_collective:
            run.append(row)
            members.add(row)
            waiting_streams.add(int(stream[row]))
            between = 0
    if run:
        yield run


def _is_light(scene: Scene) -> Flags:
    """Return which operations only apply something to each element, or copy or set memory, in a short time."""
    work, kernels = scene.graph.work, scene.timeline.profile.recorded("kernels")
    is_elementwise = are_named(kernels["name"], lambda name: kind_of(name) in _ELEMENTWISE)
    is_kernel = work.operation < len(kernels)
    of_kernel = np.append(is_elementwise, False)[np.where(is_kernel, work.operation, -1)]
    is_copy = ~is_kernel & (work.direction < 0) & ~work.is_peer_copy
    is_light: Flags = (of_kernel | is_copy) & (scene.length <= _BRIEF_NS)
    return is_light
