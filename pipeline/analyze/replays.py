"""Which kernels of the timeline each launch that ncu replayed stands for: those of its name, grid and block.

A launch is matched with one such group or none, so that joining them adds no row. Times of replays are ncu's own.
"""

import re
from typing import Final

import pandas as pd

from pipeline.analyze.analysis import Analysis, Table
from pipeline.analyze.groups import SHAPE
from pipeline.analyze.replay_metrics import collected
from pipeline.analyze.timeline import Timeline, once
from pipeline.names import normalised, unqualified
from pipeline.tables import duration, renamed

Frame = pd.DataFrame

_GROUP: Final = ["name", *SHAPE]
_FIGURES: Final = ["launches", "timeline_med_ns", "gpu_total_ns", "busiest_gpu_ns", "gpu_pct"]
_MATCH: Final = ["replayed", "matched", "match_pct", "coverage_pct"]
_MOST_NAMED: Final = 5
_NAME_LENGTH: Final = 80


def ncu_match(timeline: Timeline) -> Table:
    """One row: how many replayed launches belong to kernels of the timeline, and what share of its time these are."""
    launches = replays(timeline)
    if not len(launches):
        return Table(Frame(columns=_MATCH))
    if not has_timeline(timeline):
        return Table(
            Frame([(len(launches), None, None, None)], columns=_MATCH),
            ("There is no timeline of kernels and grids to match with.",),
        )
    matched = launches["gpu_pct"].notna()
    coverage = launches[matched].drop_duplicates(_GROUP)["gpu_pct"].sum()
    values = (len(launches), int(matched.sum()), 100.0 * matched.mean(), coverage)
    return Table(Frame([values], columns=_MATCH), _unmatched(launches["name"][~matched]))


def has_timeline(timeline: Timeline) -> bool:
    """Tell whether kernels were traced, and with their grids."""
    return set(SHAPE) <= set(timeline.profile.tables.get("kernels", Frame()).columns)


@once
def replays(timeline: Timeline) -> Frame:
    """Return one row per replayed launch, the one whose group took the most GPU time first, else the longest replay.

    Columns of `profiled_launches`, the name normalised; `replay_ns`; and of the group in the window, NaN where there is
    none: launches, timeline_med_ns, gpu_total_ns, busiest_gpu_ns (on the GPU that has most of it), and gpu_pct, its
    share of the time of all kernels.
    """
    launches = timeline.profile.table("profiled_launches")
    launches = launches.assign(name=renamed(launches["name"], lambda names: names.map(normalised)))
    launches = launches.astype({"name": "str"}).join(collected(timeline, ["replay_ns"]), on="launch", validate="m:1")
    groups = _groups(timeline, launches)
    joined = _in_full(launches, groups).merge(groups, on=_GROUP, how="left", validate="m:1")
    order = ["gpu_total_ns", "replay_ns", "launch"]
    return joined.sort_values(order, ascending=[False, False, True], ignore_index=True)


def in_order(timeline: Timeline, rows: Frame) -> Frame:
    """Add the name to rows that have a launch, and put them into the order of `replays`, those of one as they come."""
    return replays(timeline)[["launch", "name"]].merge(rows, on="launch", how="inner", validate="1:m")


def _groups(timeline: Timeline, launches: Frame) -> Frame:
    """One row per group of kernels that began in the window and whose grid and block were replayed."""
    if not has_timeline(timeline):
        return Frame(columns=[*_GROUP, *_FIGURES]).astype({**dict.fromkeys(SHAPE, "int64"), "name": "str"})
    kernels, window = timeline.profile.table("kernels"), timeline.window
    timed = kernels[_GROUP].assign(time=duration(kernels), gpu=timeline.operations.device[: len(kernels)])
    timed = timed[(kernels["start_ns"] >= window.start_ns) & (kernels["start_ns"] < window.end_ns)]
    total = int(timed["time"].sum())
    # names are long to spell out, and most belong to other grids
    timed = timed.merge(launches[SHAPE].drop_duplicates(), on=SHAPE, validate="m:1")
    names = renamed(timed["name"].cat.remove_unused_categories(), lambda names: names.map(normalised))
    timed = timed.assign(name=names)
    groups = timed.groupby(_GROUP, observed=True)["time"].agg(launches="size", timeline_med_ns="median")
    by_gpu = timed.groupby([*_GROUP, "gpu"], observed=True)["time"].sum().groupby(level=_GROUP, observed=True)
    groups = groups.assign(gpu_total_ns=by_gpu.sum(), busiest_gpu_ns=by_gpu.max()).reset_index()
    shared: Frame = groups.assign(gpu_pct=100.0 * groups["gpu_total_ns"] / max(total, 1))
    return shared.astype({"name": "str"})


def _in_full(launches: Frame, groups: Frame) -> Frame:
    """Complete names that lack namespaces, as in ncu's CSV, where only one group can be meant."""
    shorter = groups[_GROUP].assign(short=groups["name"].map(unqualified), full=groups["name"])
    shorter = shorter.drop_duplicates([*SHAPE, "short"], keep=False).drop(columns="name")
    short = launches[_GROUP].assign(short=launches["name"].map(unqualified))
    full = short.merge(shorter, on=[*SHAPE, "short"], how="left", validate="m:1")["full"]
    meant = [
        whole if isinstance(whole, str) and _words(name) <= _words(whole) else name
        for name, whole in zip(launches["name"], full, strict=True)
    ]
    return launches.assign(name=pd.Series(meant, launches.index, dtype="str"))


def _words(name: str) -> set[str]:
    return set(re.findall(r"\w+", name))


def _unmatched(names: "pd.Series[str]") -> tuple[str, ...]:
    if not len(names):
        return ()
    distinct = names.drop_duplicates()
    cut = distinct.where(distinct.str.len() <= _NAME_LENGTH, distinct.str.slice(0, _NAME_LENGTH - 1) + "…")
    more = f" and {len(cut) - _MOST_NAMED} more" if len(cut) > _MOST_NAMED else ""
    listed = "; ".join(cut.head(_MOST_NAMED))
    return (f"Not in the window with this name, grid and block: {listed}{more}.",)


ANALYSES: Final = (
    Analysis(
        "ncu_match",
        "Replays and timeline",
        "Replayed: launches that Nsight Compute (ncu) measured. Matched: those whose kernel (normalised name, grid and "
        "block) also ran in the window of the timeline. Coverage: the share of the time of all kernels in the window "
        "that the matched kernels stand for; each counts once, however often it was replayed.",
        ("profiled_launches",),
        ncu_match,
    ),
)
