"""CPU time in CUDA calls and in PyTorch operators."""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.names import api_names
from nightsight.events.timeline import Timeline
from nightsight.intervals import Flags
from nightsight.results import CPU_OPS, CUDA_API_SUM
from nightsight.tables import duration, nest, renamed, time_summary


def cuda_api(timeline: Timeline) -> Table:
    """Return one row per CUDA function and layer, with statistics of its duration."""
    calls = timeline.profile.table("api_calls")
    calls = calls.assign(name=renamed(calls["name"], api_names))
    return Table(time_summary(calls, ["name", "layer"]).rename(columns={"count": "calls"}))


def operators(timeline: Timeline) -> Table:
    """Return one row per PyTorch operator: CPU time with and without the operators inside it.

    An operator that only calls itself again, with other arguments, counts as one call, as in torch's `key_averages`.
    """
    table = nest(timeline.profile.table("cpu_ops"))
    total, parent = duration(table).to_numpy(), table["parent"].to_numpy()
    inner = parent >= 0
    # own time: total time minus that of the direct children
    own = total - np.bincount(parent[inner], total[inner], len(total)).astype(np.int64)
    table = table.assign(total=total, own=own)
    calls = table[~_repeats(timeline, table)].groupby("name", observed=True)
    summed = calls.agg(calls=("total", "size"), total_ns=("total", "sum"), max_ns=("total", "max"))
    summed.insert(1, "own_ns", table.groupby("name", observed=True)["own"].sum())
    summed = summed.reset_index().sort_values(["own_ns", "name"], ascending=[False, True], ignore_index=True)
    summed.insert(0, "own_pct", 100.0 * summed["own_ns"] / max(summed["own_ns"].sum(), 1))
    return Table(summed[["own_pct", "own_ns", "total_ns", "calls", "max_ns", "name"]])


def _repeats(timeline: Timeline, operators: pd.DataFrame) -> Flags:
    """Tell which of the nested operators are the only child of an operator with the same name.

    Operators, ranges and CUDA calls count as children. This is torch's rule (`EventList._remove_dup_nodes`).
    """
    tables = timeline.profile.tables
    others = [tables[name][_SPAN] for name in ("ranges", "api_calls") if name in tables]
    spans = pd.concat([operators[_SPAN].assign(row=np.arange(len(operators))), *others], ignore_index=True)
    spans = nest(spans.assign(row=spans["row"].fillna(-1).astype("int64")))
    row, parent = spans["row"].to_numpy(), spans["parent"].to_numpy()
    # row: position in `operators`, -1 for ranges and calls
    children = np.bincount(parent[parent >= 0], minlength=len(spans))
    names = np.append(operators["name"].cat.codes.to_numpy(), -1)
    flags = np.zeros(len(operators), dtype=bool)
    alone = (row >= 0) & (parent >= 0) & (children[parent] == 1)
    above = row[parent[alone]]
    flags[row[alone]] = (above >= 0) & (names[above] == names[row[alone]])
    return flags


_SPAN: Final = ["thread", "start_ns", "end_ns"]
ANALYSES: Final = (
    Analysis(CUDA_API_SUM, cuda_api),
    Analysis(CPU_OPS, operators),
)
