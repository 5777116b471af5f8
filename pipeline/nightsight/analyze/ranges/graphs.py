"""Kernels of CUDA graphs whose own ranges are unknown, why, and the option that would have helped."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.events.graph_nodes import graphs_of, joined_origins, node_origins
from nightsight.events.ranges import owners_in_graphs, recorded_ranges
from nightsight.events.timeline import Timeline, begun
from nightsight.intervals import Flags
from nightsight.model.report import TORCH_PROFILER, Finding
from nightsight.tables import are_named, integers

# share of the kernels of graphs in the window: fewer need no finding
_LEAST: Final = 0.01
_MAKING: Final = "GraphInstantiate"
_EARLIER: Final = (
    "Record the start of the program, too, or add a capture of it: nightsight report RUN --graphs CAPTURE "
    "(nsys --cuda-graph-trace=node)."
)
_NAMES: Final = "Name the parts of the captured code: nightsight profile --names modules, or NVTX ranges."
_MARKS: Final = (
    "Record with nsys (--nsys-arg=--cuda-graph-trace=node), which needs no change, or mark the kernels: "
    "torch.cuda.graph_annotations.mark_kernels (docs/torch-profiler.md)."
)
_BODIES: Final = "run in bodies of conditional nodes, and nsys did not record how these were made"


class _Reason(NamedTuple):
    """Why kernels have no range of their capture: what they did, and what helps."""

    kernels: Flags
    words: str
    remedy: str


def kernels_without_ranges(timeline: Timeline) -> int:
    """Count the kernels of CUDA graphs in the window that belong to the range that launches the graph."""
    return int(_without_ranges(timeline).sum())


def graphs_without_ranges(timeline: Timeline) -> tuple[Finding, ...]:
    """Return a finding about kernels of CUDA graphs in the window whose own ranges are unknown."""
    is_without = _without_ranges(timeline)
    count, of_graphs = int(is_without.sum()), int(_of_graphs(timeline).sum())
    if not count or count < _LEAST * of_graphs:
        return ()
    reasons = [reason for reason in _reasons(timeline, is_without) if reason.kernels.any()]
    if not reasons:
        return ()
    (first, *others), counts = reasons, [int(reason.kernels.sum()) for reason in reasons]
    parts = [f"{counts[0]:,} {first.words}" if others or counts[0] < count else f"They {first.words}"]
    parts += [f"{number:,} {reason.words}" for number, reason in zip(counts[1:], others, strict=True)]
    remedies = dict.fromkeys(reason.remedy for reason in reasons if reason.remedy)
    return (
        Finding(
            "graphs_without_ranges",
            "info",
            f"{count:,} of {of_graphs:,} kernels of CUDA graphs belong to no range of their capture",
            f"{'; '.join(parts)}. They count for the range that launches the graph.",
            " ".join(remedies),
        ),
    )


def _of_graphs(timeline: Timeline) -> Flags:
    """Return which kernels are of graphs and in the window."""
    kernels = timeline.profile.recorded("kernels")
    of_graphs = timeline.operations.in_graph[timeline.operations.of("kernels")]
    in_window: Flags = of_graphs & np.asarray(begun(timeline, kernels["start_ns"]), dtype=bool)
    return in_window


def _without_ranges(timeline: Timeline) -> Flags:
    of_graphs = _of_graphs(timeline)
    return of_graphs & (owners_in_graphs(timeline.profile)[: len(of_graphs)] < 0)


def _reasons(timeline: Timeline, is_without: Flags) -> Iterator[_Reason]:
    profile = timeline.profile
    if profile.environment.collector == TORCH_PROFILER:
        words = "have no mark" if profile.graphs else "were captured in ranges that torch.profiler does not record"
        yield _Reason(is_without, words, _MARKS)
        return
    if "graph_node" not in profile.table("kernels"):
        yield _Reason(is_without, "have no node in this export", "Update nsys: exports before 2022 lack nodes.")
        return
    count = len(is_without)
    is_known = (node_origins(profile).time[:count] >= 0) | (joined_origins(profile).time[:count] >= 0)
    is_of_body = is_without & ~is_known & _of_bodies(profile.table("kernels"), is_known)
    is_unknown = is_without & ~is_known & ~is_of_body
    if profile.graphs is not None:
        yield _Reason(
            is_unknown, "are in no graph that the other capture made", "Record the making of all graphs there."
        )
    elif not len(profile.tables.get("graph_nodes", ())) and _makes_graphs(timeline):
        yield _Reason(is_unknown, "are nodes whose making nsys did not record", "Update nsys (2025.3 records it).")
    else:
        yield _Reason(is_unknown, "were captured before the recording", _EARLIER)
    yield _Reason(is_of_body, _BODIES, "")
    # without any range, there is nothing to belong to
    if len(recorded_ranges(profile)) or profile.graphs is not None:
        yield _Reason(is_without & is_known, "were captured outside of all ranges", _NAMES)


def _of_bodies(kernels: pd.DataFrame, is_known: Flags) -> Flags:
    """Return which kernels the GPU itself launched in a graph of which other nodes are known."""
    graph = graphs_of(pd.Series(integers(kernels["graph_node"])))
    keys = pd.MultiIndex.from_arrays([integers(kernels["process"]), graph])
    is_launched_by_gpu = integers(kernels["correlation"]) == 0
    is_of_known: Flags = np.asarray(keys.isin(keys[is_known]), dtype=bool) & is_launched_by_gpu
    return is_of_known


def _makes_graphs(timeline: Timeline) -> bool:
    return bool(are_named(timeline.profile.recorded("api_calls")["name"], _MAKING).any())
