"""Joins the capture that recorded the making of CUDA graphs to one that only recorded their replays (`--graphs`).

A program that makes its graphs at its start and is recorded later, as servers are, has replays whose kernels belong to
nothing. Another capture of the same process, or of another run of the same program, knows the ranges and operators in
which the nodes were made: CUDA numbers graphs and nodes in the order in which a process makes them. Numbers are used
again, and two programs have the same numbers, so nodes that ran in both captures must have run the same kernel.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from nightsight.errors import CaptureError, UsageError
from nightsight.events.graph_nodes import graphs_of, joined_origins, replayed_nodes, unknown_nodes
from nightsight.model.report import Finding, Profile
from nightsight.tables import are_named, empty, integers
from nightsight.texts import middle_cut

_NODE: Final = ["process", "node"]
_HOW: Final = (
    "Record the start of the program, where it makes its graphs, with nsys profile --trace cuda,nvtx "
    "--cuda-graph-trace=node."
)
_SAME: Final = (
    "Pass a capture of the same process, or of the same program with the same arguments, that contains the making of "
    "the graphs and a replay of each."
)
_LONGEST: Final = 60


@dataclass(frozen=True)
class _Names:
    """The names of two captures, for messages."""

    run: str
    graphs: str


def with_graphs(run: Profile, graphs: Profile, *, run_name: str, graphs_name: str) -> Profile:
    """Return the profile of a run with what another capture knows about the making of its graphs.

    UsageError if the run does not need it; CaptureError if the other capture cannot have made the graphs of the run.
    """
    names = _Names(run_name, graphs_name)
    unknown = unknown_nodes(run)
    if not len(unknown):
        _refuse_run(run, names)
    nodes = graphs.recorded("graph_nodes")
    if not len(nodes):
        raise CaptureError(f"{graphs_name} does not record how CUDA graphs are made", _HOW)
    processes = _matching_processes(run, graphs, unknown, nodes, names)
    tables = _with_processes(graphs, processes)
    is_same_process = all(own == other for own, other in processes.items())
    other = _other_graphs(run, replace(graphs, tables=tables), unknown, names, is_same_process=is_same_process)
    making = {**tables, "graph_nodes": _without(tables["graph_nodes"], other)}
    making.pop("kernels")
    # without rows, if the run has no such table
    added: dict[str, pd.DataFrame] = {name: empty(name) for name in ("ranges", "cpu_ops") if name in making}
    joined = replace(
        run,
        tables={**added, **run.tables},
        missing={name: why for name, why in run.missing.items() if name not in added},
        graphs=Profile(making, environment=graphs.environment),
    )
    if not (joined_origins(joined).time >= 0).any():
        raise CaptureError(f"{graphs_name} has none of the CUDA graphs that {run_name} replays", _SAME)
    return replace(joined, findings=(*run.findings, *_findings(unknown, other, names)))


def _refuse_run(run: Profile, names: _Names) -> None:
    if len(replayed_nodes(run)):
        raise UsageError(
            f"{names.run} itself records how its CUDA graphs were made", "Make the report without --graphs."
        )
    if len(run.recorded("graph_launches")):
        raise UsageError(
            f"{names.run} has CUDA graphs as a whole, without their kernels",
            "Record it with --cuda-graph-trace=node, and pass --graphs again.",
        )
    raise UsageError(f"{names.run} has no kernels of CUDA graphs", "Make the report without --graphs.")


def _matching_processes(
    run: Profile, graphs: Profile, unknown: pd.DataFrame, nodes: pd.DataFrame, names: _Names
) -> dict[int, int]:
    """Return the process of the run for each of the other capture: the same one, the only one, or that of its rank."""
    of_run, of_graphs = sorted(set(unknown["process"].tolist())), sorted(set(nodes["process"].tolist()))
    same = {process: process for process in of_run if process in of_graphs}
    if same:
        return same
    if len(of_run) == len(of_graphs) == 1:
        return {of_graphs[0]: of_run[0]}
    ranks = [_processes_by_rank(profile) for profile in (run, graphs)]
    matching = {
        process: ranks[0][rank]
        for rank, process in ranks[1].items()
        if process in of_graphs and ranks[0].get(rank) in of_run
    }
    if not matching:
        raise CaptureError(
            f"the {len(of_graphs)} processes in {names.graphs} are not those of {names.run}, and have no ranks",
            "Pass a capture of the same processes, or record one process per file.",
        )
    return matching


def _processes_by_rank(profile: Profile) -> dict[int, int]:
    ranks = profile.recorded("ranks")
    ranks = ranks[(ranks["group"] == "") & ranks["rank"].notna()]
    return dict(zip(ranks["rank"].tolist(), ranks["process"].tolist(), strict=True))


def _with_processes(graphs: Profile, processes: dict[int, int]) -> dict[str, pd.DataFrame]:
    """Return what is needed of the other capture, with the processes of the run."""
    tables = {}
    for name in ("graph_nodes", "ranges", "api_calls", "kernels", "cpu_ops"):
        table = graphs.recorded(name)
        if name == "cpu_ops" and not len(table):
            continue
        process = pd.Series(integers(table["process"]), index=table.index)
        is_kept = process.isin(list(processes)).to_numpy()
        if name == "api_calls":
            is_kept = is_kept & are_named(table["name"], "StreamBeginCapture|StreamEndCapture")
        tables[name] = table[is_kept].assign(process=process[is_kept].map(processes))
    return tables


def _kernel_names(profile: Profile) -> pd.DataFrame:
    """Return one row per process and node: the first kernel that it ran."""
    kernels = profile.recorded("kernels")
    if "graph_node" not in kernels:
        return pd.DataFrame({"process": [], "node": [], "name": []}).astype({"process": "int64", "node": "int64"})
    of_graphs = kernels[kernels["graph_node"].notna()]
    names = pd.DataFrame({"process": integers(of_graphs["process"]), "node": integers(of_graphs["graph_node"])})
    return names.assign(name=of_graphs["name"].to_numpy()).drop_duplicates(_NODE)


def _other_graphs(
    run: Profile, graphs: Profile, unknown: pd.DataFrame, names: _Names, *, is_same_process: bool
) -> pd.DataFrame:
    """Return the graphs (process, graph) of the run whose ids belong to different graphs in the other capture.

    CaptureError if that capture is of another program, or of another process and cannot be compared.
    """
    # what the GPU itself launches is in the bodies of conditional nodes, which nsys may not record
    kernels = run.recorded("kernels")
    is_of_body = np.append(integers(kernels["correlation"]) == 0, False)
    is_of_body = is_of_body[np.minimum(unknown["operation"].to_numpy(), len(kernels))]
    replayed = unknown.loc[~is_of_body, _NODE].drop_duplicates()
    replayed = replayed.assign(graph=graphs_of(replayed["node"]))
    nodes = graphs.tables["graph_nodes"][_NODE].drop_duplicates()
    matched = replayed.merge(nodes.assign(is_made=True), on=_NODE, how="left")
    is_made = matched["is_made"].notna()
    of_graph = is_made.groupby([matched["process"], matched["graph"]])
    # of another graph, some nodes are missing
    partial = of_graph.any() & ~of_graph.all()
    both = _kernel_names(run).merge(_kernel_names(graphs), on=_NODE, suffixes=("", "_other"))
    both = both.merge(replayed, on=_NODE)
    differs = (both["name"].astype("object") != both["name_other"].astype("object")).to_numpy(dtype=bool)
    differing = both[differs]
    if len(differing) and (2 * len(differing) > len(both) or not is_same_process):
        first = differing.iloc[0]
        own, other = (middle_cut(str(first[name]), _LONGEST) for name in ("name", "name_other"))
        raise CaptureError(
            f"{names.graphs} is from another program than {names.run}: node {first['node']} of its CUDA graphs ran "
            f"`{other}`, not `{own}`",
            _SAME,
        )
    if not len(both) and is_made.any() and not is_same_process:
        raise CaptureError(
            f"{names.graphs} is from another process than {names.run} and replays none of the same CUDA graphs, so "
            "whether the graphs are the same cannot be checked",
            _SAME,
        )
    pairs = partial[partial].index.to_frame(index=False)
    others: pd.DataFrame = pd.concat([pairs, differing[["process", "graph"]]])
    return others.drop_duplicates(ignore_index=True).astype("int64")


def _without(nodes: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return the nodes that are not in the graphs of `other`."""
    keys = pd.MultiIndex.from_arrays([nodes["process"], graphs_of(nodes["node"])])
    return nodes[~keys.isin(pd.MultiIndex.from_frame(other[["process", "graph"]]))]


def _findings(unknown: pd.DataFrame, other: pd.DataFrame, names: _Names) -> list[Finding]:
    """Return a finding about the graphs that were left out."""
    replayed = unknown[["process"]].assign(graph=graphs_of(unknown["node"])).drop_duplicates()
    if not len(other):
        return []
    return [
        Finding(
            "other_graphs",
            "warning",
            f"{len(other):,} of {len(replayed):,} CUDA graphs are different ones in {names.graphs}",
            "They have the same number, but other nodes or kernels: CUDA uses a number again after the graph was "
            "destroyed. Their kernels belong to the range that launches the graph.",
            "Record both captures of one process, one after the other, and make no graphs in between.",
        )
    ]
