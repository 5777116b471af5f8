"""Where the nodes of CUDA graphs come from: the thread and the time at which each was made.

Graphs that were made before the recording can be known from another capture (`Profile.graphs`).

nsys records when a node is made, by a capture or by a call that adds it, and when it is copied: graphs are copied when
they are instantiated, and child graphs when they are added. A replayed kernel has the id of the copy. Ids can be used
again after a graph was destroyed, so the last node with an id before the launch counts. The nodes of child graphs are
copied twice when the graph around them is instantiated; the second copies, which are replayed, are not recorded. They
have the free ids of that graph, in the order of the first copies (H200, nsys 2025.3).
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.events.launches import GPU_TABLES, launching_calls
from nightsight.intervals import Ints
from nightsight.model.report import Profile
from nightsight.system.parallel import memoize
from nightsight.tables import are_named, integers

# a copy is recorded twice, 1 to 2 µs apart: as a node, and as the copy of another (H100, nsys 2025.3)
_SAME_NODE_NS: Final = 100_000
# graphs in graphs in graphs
_MOST_COPIES: Final = 64
# the upper half of the id of a node is the id of its graph
_GRAPH_BITS: Final = 32
_NODE_BITS: Final = (1 << _GRAPH_BITS) - 1
_INSTANTIATE: Final = "GraphInstantiate"
# the last adds to a graph, such as the body of a conditional node
_BEGIN, _END, _INSIDE = "StreamBeginCapture", "StreamEndCapture", "BeginCaptureToGraph"


class NodeOrigins(NamedTuple):
    """Of each GPU operation, in the order of GPU_TABLES: the thread and process that made its node, and when (ns).

    since: when the capture of its graph began, or its first node was made. `time` is -1 for operations that are not
    nodes, and for nodes that were made before the recording.
    """

    thread: Ints
    process: Ints
    time: Ints
    since: Ints


@memoize
def node_origins(profile: Profile) -> NodeOrigins:
    """Return where each operation of a CUDA graph comes from, if the capture has recorded that."""
    return _origins(profile, replayed_nodes(profile), _count(profile))


@memoize
def joined_origins(profile: Profile) -> NodeOrigins:
    """Return the origins of the other operations, in `profile.graphs` and by its clock."""
    if profile.graphs is None:
        return _none(_count(profile))
    unknown = unknown_nodes(profile)
    # what it records is over before this capture begins
    return _origins(profile.graphs, unknown.assign(start_ns=np.iinfo(np.int64).max), _count(profile))


def unknown_nodes(profile: Profile) -> pd.DataFrame:
    """Return the rows of `replayed_nodes` whose nodes were made before the recording."""
    replayed = replayed_nodes(profile)
    if not len(replayed):
        return replayed
    unknown: pd.DataFrame = replayed[node_origins(profile).time[replayed["operation"].to_numpy()] < 0]
    return unknown


def graphs_of(nodes: "pd.Series[int]") -> Ints:
    """Return the id of the graph of each node."""
    return nodes.to_numpy(dtype=np.int64) >> _GRAPH_BITS


def _count(profile: Profile) -> int:
    return sum(len(profile.recorded(name)) for name in GPU_TABLES)


def _none(count: int) -> NodeOrigins:
    """Return that no operation is a node: arrays that cannot be changed, and take no memory."""
    return NodeOrigins(*(np.broadcast_to(np.int64(-1), count) for _ in NodeOrigins._fields))


def _origins(recording: Profile, replayed: pd.DataFrame, count: int) -> NodeOrigins:
    """Return where replayed nodes were made in a recording, for `count` operations."""
    nodes = _made(recording)
    if not len(nodes) or not len(replayed):
        return _none(count)
    origins = NodeOrigins(*(np.full(count, -1, dtype=np.int64) for _ in NodeOrigins._fields))
    row = _last_made(nodes, replayed)
    replayed, row = replayed[row >= 0], row[row >= 0]
    first = _first_originals(nodes)[row]
    since = _capture_starts(recording, nodes)[first]
    operation = replayed["operation"].to_numpy()
    for column, values in zip(
        origins, (*(nodes[name].to_numpy()[first] for name in ("thread", "process", "start_ns")), since), strict=True
    ):
        column[operation] = values
    return origins


@memoize
def replayed_nodes(profile: Profile) -> pd.DataFrame:
    """Return the operations of CUDA graphs by launch: process, node, position (`operation`), launch (`start_ns`).

    Without columns if there are none.
    """
    parts, offset = [], 0
    for frame in (profile.recorded(name) for name in GPU_TABLES):
        if "graph_node" in frame:
            rows = np.flatnonzero(frame["graph_node"].notna().to_numpy())
            columns = {"process": frame["process"], "node": frame["graph_node"], "start_ns": frame["start_ns"]}
            part = pd.DataFrame({name: integers(column.iloc[rows]) for name, column in columns.items()})
            parts.append(part.assign(operation=offset + rows))
        offset += len(frame)
    replayed = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if not len(replayed):
        return replayed
    # kernels run after their launch, when another graph may have their ids
    call = launching_calls(profile)[replayed["operation"].to_numpy()]
    starts = np.append(profile.tables["api_calls"]["start_ns"].to_numpy(), 0) if (call >= 0).any() else np.zeros(1)
    return replayed.assign(start_ns=np.where(call >= 0, starts[call], replayed["start_ns"])).sort_values(
        "start_ns", kind="stable"
    )


def _made(recording: Profile) -> pd.DataFrame:
    """Return the nodes that were made, one row each, in order of time."""
    nodes = recording.recorded("graph_nodes")
    nodes = nodes.sort_values(["process", "node", "start_ns"], kind="stable", ignore_index=True)
    process, node, time = (nodes[name].to_numpy() for name in ("process", "node", "start_ns"))
    is_copy = nodes["original"].notna().to_numpy()
    is_same = (process[1:] == process[:-1]) & (node[1:] == node[:-1]) & (time[1:] - time[:-1] <= _SAME_NODE_NS)
    is_repeated = np.zeros(len(nodes), dtype=bool)
    is_repeated[:-1] |= is_same & is_copy[1:]
    is_repeated[1:] |= is_same & is_copy[:-1]
    nodes = nodes[~is_repeated | is_copy].sort_values("start_ns", kind="stable", ignore_index=True)
    return pd.concat([nodes, *_copies_of_children(recording, nodes)]).sort_values(
        "start_ns", kind="stable", ignore_index=True
    )


def _copies_of_children(recording: Profile, nodes: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the second copies of the nodes of child graphs, for each instantiation of a graph with such graphs."""
    calls = recording.recorded("api_calls")
    calls = calls[are_named(calls["name"], _INSTANTIATE)].sort_values("start_ns", kind="stable")
    calls = calls[["thread", "start_ns", "end_ns"]].astype("int64").assign(call=np.arange(len(calls)))
    in_calls = nodes.assign(graph=graphs_of(nodes["node"]), is_copy=nodes["original"].notna())
    in_calls = pd.merge_asof(
        in_calls.astype({"thread": "int64"}), calls.rename(columns={"end_ns": "until"}), on="start_ns", by="thread"
    )
    in_calls = in_calls[in_calls["start_ns"] <= in_calls["until"]]
    of_call = in_calls.groupby("call")["graph"]
    for _, together in in_calls[of_call.transform("min") < of_call.transform("max")].groupby("call"):
        graph = together["graph"].min()
        is_child = (together["graph"] > graph) & together.groupby("graph")["is_copy"].transform("all")
        children = together[is_child].sort_values("node")
        recorded = together["node"][together["graph"] == graph].to_numpy() & _NODE_BITS
        if recorded.max() >= len(recorded) + len(children):
            continue
        free = np.setdiff1d(np.arange(recorded.max() + 1 + len(children)), recorded)
        # otherwise it is unknown which is which, as if more ids were free
        if (free < recorded.max()).sum() in (0, len(children)):
            copies = (graph << _GRAPH_BITS) + free[: len(children)]
            yield (
                children[nodes.columns]
                .assign(node=copies, original=children["node"], start_ns=together["start_ns"].max())
                .astype(nodes.dtypes)
            )


def _last_made(nodes: pd.DataFrame, queries: pd.DataFrame) -> Ints:
    """Return the row of the last node made with each process and id until `start_ns`, -1 for none."""
    keys = ["process", "node"]
    nodes_by_key = nodes[[*keys, "start_ns"]].assign(row=np.arange(len(nodes))).astype("int64")
    return _last(queries[[*keys, "start_ns"]].astype("int64"), nodes_by_key, keys, "row")


def _last(queries: pd.DataFrame, events: pd.DataFrame, keys: list[str], column: str) -> Ints:
    """Return `column` of the last event with the same keys until each `start_ns`, -1 for none; both are in order."""
    joined: Any = pd.merge_asof(queries, events, on="start_ns", by=keys)
    values: Ints = joined[column].fillna(-1).to_numpy(dtype=np.int64)
    return values


def _first_originals(nodes: pd.DataFrame) -> Ints:
    """Return for each row the node that it is a copy of, over all copies; itself if that was not recorded."""
    above = np.arange(len(nodes))
    copies = np.flatnonzero(nodes["original"].notna().to_numpy())
    queries = nodes.iloc[copies].drop(columns="node").rename(columns={"original": "node"})
    original = _last_made(nodes, queries)
    above[copies] = np.where(original >= 0, original, copies)
    for _ in range(_MOST_COPIES):
        if (above[above] == above).all():
            break
        above = above[above]
    return above


def _capture_starts(profile: Profile, nodes: pd.DataFrame) -> Ints:
    """Return for each node when the capture that made it began; without one, when its graph's first node was made.

    The body of a conditional node can be captured inside the capture of its graph: the outer one counts.
    """
    keys = nodes.assign(graph=graphs_of(nodes["node"]))
    first: Ints = keys.groupby(["process", "graph"])["start_ns"].transform("min").to_numpy()
    begin = _last(keys[["process", "start_ns"]].astype("int64"), _captures(profile), ["process"], "begin")
    return np.where(begin >= 0, begin, first)


def _captures(profile: Profile) -> pd.DataFrame:
    """Return the begins and ends of captures: process, time, and when the outermost open one began, else -1."""
    calls = profile.recorded("api_calls")
    is_begin = are_named(calls["name"], _BEGIN)
    is_plain = is_begin & ~are_named(calls["name"], _INSIDE)
    rows = is_begin | are_named(calls["name"], _END)
    boundaries = calls.loc[rows, ["process", "start_ns"]].astype("int64")
    boundaries = boundaries.assign(step=np.where(is_begin[rows], 1, -1), is_plain=is_plain[rows])
    boundaries = boundaries.sort_values(["process", "start_ns"], kind="stable", ignore_index=True)
    # a capture that is not of a body is not inside another one, whose end was not recorded
    boundaries["part"] = boundaries["is_plain"].cumsum()
    of_part = boundaries.groupby(["process", "part"])
    depth = of_part["step"].cumsum()
    # ends without a begin
    lowest = depth.groupby([boundaries["process"], boundaries["part"]]).cummin().clip(upper=0)
    depth -= lowest
    is_outer = (boundaries["step"] > 0) & (depth == 1)
    begin = boundaries["start_ns"].where(is_outer).groupby([boundaries["process"], boundaries["part"]]).ffill()
    return boundaries.assign(begin=begin.where(depth > 0).fillna(-1).astype("int64")).sort_values(
        "start_ns", kind="stable"
    )[["process", "start_ns", "begin"]]
