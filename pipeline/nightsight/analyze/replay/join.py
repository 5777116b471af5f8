"""Joins launches replayed by ncu with the kernels of the timeline that have the same name, grid and block.

If a kernel was replayed in several NVTX ranges, each replay represents the launches in its range. A replay matches at
most one group of kernels, so the join adds no rows. Times of replays are ncu's own.
"""

import re
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.replay.metrics import KERNEL, figures_of
from nightsight.analyze.replay.ranges import PART, split_by_range, with_paths
from nightsight.events.kernel_names import normalized, unqualified
from nightsight.events.timeline import Timeline
from nightsight.intervals import Ints
from nightsight.results.ncu import NCU_MATCH
from nightsight.system.parallel import memoize
from nightsight.tables import SHAPE, Frame, duration, renamed
from nightsight.texts import middle_cut, some_of

_GROUP: Final = ["name", *SHAPE]
_TIMED: Final = ["group", "row", "time", "device"]
_MATCH: Final = ["replayed", "matched", "match_pct", "coverage_pct"]
_NO_TIMELINE: Final = "There is no timeline of kernels and grids to match with."
_AS_ONE: Final = "Ranges and graphs were replayed as a whole: they do not match single kernels of the timeline."
_MOST_NAMED: Final = 5
_NAME_LENGTH: Final = 80


def ncu_match(timeline: Timeline) -> Table:
    """Return one row: the number of replayed launches that match kernels of the timeline, and their share of the time.

    Without rows if no kernel was replayed.
    """
    launches = replays(timeline)
    if not len(launches):
        return Table(Frame(columns=_MATCH))
    replayed, kernels = len(launches), launches[launches["kind"] == KERNEL]
    notes = (_AS_ONE,) if len(kernels) < replayed else ()
    if not len(kernels) or not has_timeline(timeline):
        return Table(Frame([(replayed, None, None, None)], columns=_MATCH), notes or (_NO_TIMELINE,))
    matched = kernels["gpu_pct"].notna()
    # several replays can represent the same kernels: count each part once
    coverage = kernels[matched].drop_duplicates(PART)["gpu_pct"].sum()
    values = (replayed, int(matched.sum()), 100.0 * matched.mean(), coverage)
    return Table(
        Frame([values], columns=_MATCH), (*notes, *_unmatched(kernels["name"][~matched]), *_in_graphs(timeline))
    )


def has_timeline(timeline: Timeline) -> bool:
    """Return whether kernels were traced with their grids and blocks."""
    return "kernels" in timeline.profile.tables and set(SHAPE) <= set(timeline.profile.table("kernels").columns)


def replays(timeline: Timeline) -> Frame:
    """Return one row per replayed launch: those whose kernels took the most GPU time first, then the longest replays.

    Columns: those of `profiled_launches`, with normalized names; `replay_ns`; group and part (see PART), equal for
    replays that represent the same kernels; and for these kernels in the window, NaN if there are none: launches,
    timeline_med_ns, gpu_total_ns, busiest_gpu_ns (on the GPU where they took the most time), and gpu_pct, their share
    of the time of all kernels.
    """
    return _join(timeline)[1]


def replay_of_kernels(timeline: Timeline) -> Ints:
    """Return the replayed launch that represents each row of `kernels`, -1 if none does."""
    replay_of_kernel = np.full(len(timeline.profile.recorded("kernels")), -1, dtype=np.int64)
    if "profiled_launches" in timeline.profile.tables:
        kernels, launches = _join(timeline)
        first = launches.drop_duplicates(PART)[[*PART, "launch"]]
        matched = kernels.merge(first, on=PART, how="inner", validate="m:1")
        replay_of_kernel[matched["row"].to_numpy(dtype=np.int64)] = matched["launch"].to_numpy(dtype=np.int64)
    return replay_of_kernel


@memoize
def _join(timeline: Timeline) -> tuple[Frame, Frame]:
    """Return the kernels in the window whose shape was replayed, with `row` and PART, and the rows of `replays`."""
    launches = timeline.profile.table("profiled_launches")
    launches = launches.assign(name=renamed(launches["name"], lambda names: names.map(normalized)))
    launches = launches.astype({"name": "str"}).join(figures_of(timeline, ["replay_ns"]), on="launch", validate="m:1")
    kernels, total_ns = _timed_kernels(timeline, launches)
    groups = kernels.drop_duplicates("group")[[*_GROUP, "group"]].astype({"name": "str"})
    launches = _complete_names(launches, groups).merge(groups, on=_GROUP, how="left", validate="m:1")
    launches = launches.fillna({"group": -1}).astype({"group": "int64"})
    kernels, launches = split_by_range(timeline, kernels[_TIMED], launches)
    launches = with_paths(timeline, kernels, launches)
    joined: Frame = launches.merge(_figures(kernels, total_ns), on=PART, how="left", validate="m:1")
    order = ["gpu_total_ns", "replay_ns", "launch"]
    return kernels, joined.sort_values(order, ascending=[False, False, True], ignore_index=True)


def in_order(timeline: Timeline, rows: Frame) -> Frame:
    """Return rows (with a column `launch`) with the kernel's name, in the order of `replays`; stable per launch."""
    return replays(timeline)[["launch", "name"]].merge(rows, on="launch", how="inner", validate="1:m")


def _timed_kernels(timeline: Timeline, launches: Frame) -> tuple[Frame, int]:
    """Return the kernels that began in the window with a grid and block that was replayed, and the time of all in ns.

    The time includes all kernels, and graphs traced as a whole. Columns: name (normalized) and SHAPE; group, a number
    for these; row (in the table of kernels), time (ns), device.
    """
    if not has_timeline(timeline):
        return Frame(columns=[*_GROUP, *_TIMED]).astype({**dict.fromkeys([*SHAPE, *_TIMED], "int64"), "name": "str"}), 0
    kernels = timeline.profile.table("kernels")
    timed = kernels[[*_GROUP, "device"]].assign(row=np.arange(len(kernels)), time=duration(kernels))
    timed = timed[timeline.window.contains(kernels["start_ns"])]
    total = int(timed["time"].sum()) + _graph_time(timeline)
    # normalizing names is slow: drop kernels of other grids first
    timed = timed.merge(launches[SHAPE].drop_duplicates(), on=SHAPE, validate="m:1")
    names = renamed(timed["name"].cat.remove_unused_categories(), lambda names: names.map(normalized))
    timed = timed.assign(name=names)
    return timed.assign(group=timed.groupby(_GROUP, observed=True).ngroup()), total


def _graph_time(timeline: Timeline) -> int:
    graphs = timeline.profile.recorded("graph_launches")
    return int(duration(graphs)[timeline.window.contains(graphs["start_ns"])].sum())


def _figures(kernels: Frame, total_ns: int) -> Frame:
    """Return the timeline's figures of the kernels of each group and part; times in ns."""
    parts = kernels.groupby(PART)["time"].agg(launches="size", timeline_med_ns="median")
    by_gpu = kernels.groupby([*PART, "device"])["time"].sum().groupby(level=PART)
    parts = parts.assign(gpu_total_ns=by_gpu.sum(), busiest_gpu_ns=by_gpu.max())
    figures: Frame = parts.assign(gpu_pct=100.0 * parts["gpu_total_ns"] / max(total_ns, 1)).reset_index()
    return figures


def _complete_names(launches: Frame, groups: Frame) -> Frame:
    """Return launches with full names: those without namespaces (ncu's CSV) are completed if only one group fits."""
    shorter = groups[_GROUP].assign(short=groups["name"].map(unqualified), full=groups["name"])
    shorter = shorter.drop_duplicates([*SHAPE, "short"], keep=False).drop(columns="name")
    short = launches[_GROUP].assign(short=launches["name"].map(unqualified))
    full = short.merge(shorter, on=[*SHAPE, "short"], how="left", validate="m:1")["full"]
    # every word of the printed name must occur in the full one: namespaces may be cut, but not changed
    full_names = [
        full_name if isinstance(full_name, str) and _words(name) <= _words(full_name) else name
        for name, full_name in zip(launches["name"], full, strict=True)
    ]
    return launches.assign(name=pd.Series(full_names, launches.index, dtype="str"))


def _words(name: str) -> set[str]:
    return set(re.findall(r"\w+", name))


def _unmatched(names: "pd.Series[str]") -> tuple[str, ...]:
    if not len(names):
        return ()
    shortened = [middle_cut(str(name), _NAME_LENGTH) for name in names.drop_duplicates()]
    return (f"Not in the window with this name, grid and block: {some_of(shortened, _MOST_NAMED, '; ')}.",)


def _in_graphs(timeline: Timeline) -> tuple[str, ...]:
    if not _graph_time(timeline):
        return ()
    return ("CUDA graphs were traced as a whole; to trace their kernels: --nsys-arg=--cuda-graph-trace=node.",)


ANALYSES: Final = (Analysis(NCU_MATCH, ncu_match),)
