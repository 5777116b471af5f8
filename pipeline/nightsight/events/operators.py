"""Nests PyTorch operators like torch's `key_averages`, and assigns GPU work and memory to them.

The definitions are those of `torch.autograd.profiler_util.EventList`. On each thread, operators, ranges and CUDA calls
nest by time. GPU work belongs to the innermost operator around the call that launched it, and to all operators around
that one. An allocation belongs to all operators that run at that time, on any thread.

Operators that were captured into CUDA graphs before the recording can be known from another capture (`Profile.graphs`).
They are rows of `all_operators`, and never calls of this capture.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.graph_nodes import joined_origins, node_origins
from nightsight.events.timeline import Timeline, of_capture
from nightsight.intervals import Ints, in_order, outer
from nightsight.model.report import Profile
from nightsight.system.parallel import memoize
from nightsight.tables import categorical, conform, innermost_of, integers, levels, nearest

# operators that torch leaves out of its tables
_LEFT_OUT: Final = (
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
)


@dataclass(frozen=True, eq=False)
class Operators:
    """The operators of a capture, with rows as in cpu_ops, and the ranges and CUDA calls between them.

    `row`: of each span in cpu_ops, -1 for ranges and calls. `parent`: the span around each, -1 for none; parents stand
    first. `call`: the span itself, or, for operators that only repeat the one around them with other arguments, the
    outermost of these: torch counts them once.
    """

    row: Ints
    parent: Ints
    call: Ints
    process: Ints
    start: Ints
    end: Ints

    def with_children(self, own: Ints) -> Ints:
        """Return the sums of `own` over each span and all that it contains."""
        sums = own.copy()
        level = levels(self.parent)
        order = np.argsort(level, kind="stable")
        edges = np.searchsorted(level[order], np.arange(level.max(initial=0) + 2))
        for low, high in zip(edges[-2:0:-1], edges[:1:-1], strict=True):
            spans = order[low:high]
            np.add.at(sums, self.parent[spans], sums[spans])
        return sums

    def without_children(self, total: Ints) -> Ints:
        """Return `total` of each span without those of the spans directly inside."""
        own = total.copy()
        inner = self.parent >= 0
        np.subtract.at(own, self.parent[inner], total[inner])
        return own


@of_capture
def nested_operators(timeline: Timeline) -> Operators:
    """Return the operators of the capture, nested with its ranges and CUDA calls."""
    tables = timeline.profile.tables
    operators = timeline.profile.table("cpu_ops")
    names = operators["name"].cat
    rows_in_tables = np.flatnonzero(~np.isin(names.codes, np.flatnonzero(names.categories.isin(_LEFT_OUT))))
    other_tables = [tables[name] for name in ("ranges", "api_calls") if name in tables]
    frames = [operators.iloc[rows_in_tables], *other_tables]
    process, thread, start, end = (
        np.concatenate([frame[name].to_numpy(dtype=np.int64) for frame in frames])
        for name in ("process", "thread", "start_ns", "end_ns")
    )
    row = np.concatenate([rows_in_tables, np.full(len(start) - len(rows_in_tables), -1, dtype=np.int64)])
    order = in_order(start, -end)
    order = order[np.argsort(thread[order], kind="stable")]
    row, process, thread, start, end = (column[order] for column in (row, process, thread, start, end))
    parent = np.full(len(row), -1, dtype=np.int64)
    edges = np.append(np.flatnonzero(np.diff(thread, prepend=thread[:1] - 1)), len(thread))
    for low, high in pairwise(edges):
        local = outer(end[low:high], start[low:high])
        parent[low:high] = np.where(local >= 0, local + low, -1)
    # the only child of an operator of the same name is the same call
    is_only_child = np.bincount(parent[parent >= 0], minlength=len(row))[parent] == 1
    code = np.append(names.codes.to_numpy(dtype=np.int64), -1)[row]
    repeats = (parent >= 0) & (row >= 0) & is_only_child & (code == code[parent])
    return Operators(row, parent, nearest(parent, repeats), process, start, end)


def operator_timelines(timeline: Timeline) -> tuple[Timeline, ...]:
    """Return a timeline, and that of the capture of the making of its CUDA graphs, if that has operators."""
    graphs = timeline.profile.graphs
    return (timeline, Timeline.of(graphs)) if graphs and len(graphs.recorded("cpu_ops")) else (timeline,)


@memoize
def all_operators(profile: Profile) -> pd.DataFrame:
    """Return the operators of a capture: the rows of cpu_ops, then those of the making of its CUDA graphs."""
    own, graphs = profile.table("cpu_ops"), profile.graphs
    made = graphs.recorded("cpu_ops") if graphs else own[:0]
    return conform("cpu_ops", pd.concat([own, made])) if len(made) else own


@of_capture
def launching_operators(timeline: Timeline) -> Ints:
    """Return, for each GPU operation, the row in all_operators of the operator that launched it, -1 for none.

    An operation of a CUDA graph belongs to the operator that was captured.
    """
    call = timeline.operations.call
    if "cpu_ops" not in timeline.profile.tables or not (call >= 0).any():
        return np.full(len(call), -1, dtype=np.int64)
    calls, operators = timeline.profile.table("api_calls"), timeline.profile.table("cpu_ops")
    launching = np.unique(call[call >= 0])
    operator_of_call = innermost_of(operators, *(calls[name].to_numpy()[launching] for name in ("thread", "start_ns")))
    launched = np.where(call >= 0, np.append(operator_of_call, -1)[np.searchsorted(launching, call)], -1)
    origins = node_origins(timeline.profile)
    captured = np.flatnonzero(origins.time >= 0)
    launched[captured] = innermost_of(operators, origins.thread[captured], origins.time[captured])
    for other in operator_timelines(timeline)[1:]:
        origins = joined_origins(timeline.profile)
        captured = np.flatnonzero(origins.time >= 0)
        row = innermost_of(other.profile.table("cpu_ops"), origins.thread[captured], origins.time[captured])
        launched[captured] = np.where(row >= 0, len(operators) + row, -1)
    return launched


@of_capture
def operator_modules(timeline: Timeline) -> "tuple[pd.Categorical[Any], Ints]":
    """Return the module of each row of all_operators, and the row of its forward operator, -1 for none."""
    (modules, forward), *others = map(_modules, operator_timelines(timeline))
    for made, of_made in others:
        names = [np.asarray(column, dtype=object) for column in (modules, made)]
        modules = pd.Categorical(np.concatenate(names))
        forward = np.concatenate([forward, np.where(of_made >= 0, len(forward) + of_made, -1)])
    return modules, forward


def _modules(timeline: Timeline) -> "tuple[pd.Categorical[Any], Ints]":
    """Return the module of each row of cpu_ops, and the row of its forward operator.

    Operators of the backward pass, and all operators inside them, belong to the forward operator with the same sequence
    number, and to its module. Of several with that number, the last to begin counts, because the others are around it.
    """
    operators = timeline.profile.table("cpu_ops")
    sequence, forward_thread = integers(operators["sequence"]), integers(operators["forward_thread"])
    forward = np.full(len(operators), -1, dtype=np.int64)
    of_forward = np.flatnonzero((sequence >= 0) & (forward_thread < 0))
    backward = np.flatnonzero((sequence >= 0) & (forward_thread >= 0))
    if len(backward) and len(of_forward):
        forward_operators = operators.iloc[of_forward][["process", "thread", "start_ns"]].assign(
            row=of_forward, sequence=sequence[of_forward]
        )
        keys = ["process", "thread", "sequence"]
        forward_operators = forward_operators.sort_values("start_ns", kind="stable").drop_duplicates(keys, keep="last")
        backward_operators = pd.DataFrame(
            {
                "process": operators["process"].to_numpy()[backward],
                "thread": forward_thread[backward],
                "sequence": sequence[backward],
            }
        )
        forward[backward] = (
            backward_operators.merge(forward_operators, on=keys, how="left", validate="m:1")["row"]
            .fillna(-1)
            .astype("int64")
        )
        nested = nested_operators(timeline)
        # the nearest span around each that has a forward operator, or the outermost one
        span_forward = np.where(nested.row >= 0, np.append(forward, -1)[nested.row], -1)
        above = nearest(nested.parent, (span_forward < 0) & (nested.parent >= 0))
        inside = nested.row >= 0
        forward[nested.row[inside]] = span_forward[above[inside]]
    names = operators["module"].cat
    codes = names.codes.to_numpy(dtype=np.int64)
    is_silent = (names.categories == "")[codes] & (forward >= 0)
    return categorical(names.categories.to_numpy(dtype=object), np.where(is_silent, codes[forward], codes)), forward
