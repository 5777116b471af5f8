"""What the capture says of itself: the devices, and the profiler's own warnings and overhead."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.launches import GPU_TABLES
from nightsight.events.timeline import Timeline, distinct, operation_column
from nightsight.intervals import Flags, Ints
from nightsight.model import Finding, Profile
from nightsight.results import DEVICES, DIAGNOSTICS, NOT_SHOWN, PROFILER_OVERHEAD
from nightsight.tables import time_summary, used_devices


def devices(timeline: Timeline) -> Table:
    """One row per GPU of the machine, and whether the capture used it; without GPU work that is not known."""
    table = timeline.profile.table("devices").sort_values("device", ignore_index=True)
    used = used_devices(timeline.profile.tables)
    table.insert(2, "used", np.where(table["device"].isin(used), "yes", "no") if used else None)
    return Table(table)


def not_shown(timeline: Timeline) -> Table:
    """One row per kind of events that are in the file and that nothing here is made of."""
    table = timeline.profile.table("unread")
    return Table(table.sort_values(["events", "kind"], ascending=[False, True], ignore_index=True))


def diagnostics(timeline: Timeline) -> Table:
    """Warnings and errors of the profiler, each text once."""
    table = timeline.profile.table("diagnostics")
    table = table[table["severity"].isin(["warning", "error"])]
    counts = table.groupby(["severity", "text"], observed=True).size().rename("times").reset_index()
    return Table(counts[["severity", "times", "text"]])


def overheads(timeline: Timeline) -> Table:
    """Time the profiler itself took, by what it did."""
    return Table(time_summary(timeline.profile.table("overheads"), ["name"])[["total_ns", "count", "max_ns", "name"]])


def trust(timeline: Timeline) -> tuple[Finding, ...]:
    """Say what a reader must know before believing the numbers: no GPU work, lost events, graphs traced as a whole."""
    profile = timeline.profile
    if "kernels" not in profile.tables:
        return ()
    graphs = _GRAPHS if len(profile.tables.get("graph_launches", ())) else None
    calls = _calls(timeline)
    edges = _edges(timeline, calls)
    cut = _cut(int(edges.calls.sum()), int(edges.operations.sum())) if edges.operations.any() else None
    lost = _lost_work(timeline, calls[~edges.calls])
    found = (lost, cut, _lost_calls(timeline, edges.operations), _early_work(timeline), graphs)
    return tuple(finding for finding in found if finding)


def _calls(timeline: Timeline) -> pd.DataFrame:
    """Return the calls that give work to a GPU, in order of time: start, time, process, is_copy and has_work.

    A driver call inside a runtime call has its id, so both are one. Those into a graph that was being captured, and
    those that plainly gave no work, are left out. None at all where all have their work: there is nothing to ask then.
    """
    calls = timeline.profile.tables.get("api_calls")
    if calls is None:
        return _no_calls()
    is_copy, launch = _is_named(calls, _COPYING), timeline.call_launch
    gives = (is_copy | _is_named(calls, _LAUNCHING)) & (launch >= 0)
    # by sorting: numpy's isin hashes, ten times slower on ids
    known = np.append(distinct(timeline.operations.launch), np.iinfo(np.int64).max)
    has_work: Flags = known[np.searchsorted(known, launch)] == launch
    if has_work[gives].all():
        return _no_calls()
    if _is_named(calls, _BEGIN).any():
        gives &= ~_captured(calls, gives, has_work)
    start, end = timeline.call_times
    process = calls["process"].to_numpy(dtype=np.int64)
    columns = {"start": start, "time": end - start, "process": process, "is_copy": is_copy, "has_work": has_work}
    given = pd.DataFrame({name: values[gives] for name, values in columns.items()}).assign(launch=launch[gives])
    given = given.sort_values(["start", "time"], ascending=[True, False]).drop_duplicates("launch")
    # copies and sets of nothing return at once; a call that gives work takes as long whether or not that is recorded
    is_brief = given["time"] < given["time"][given["has_work"]].min() / 2
    kept: pd.DataFrame = given[given["has_work"] | ~given["is_copy"] | ~is_brief].drop(columns="launch")
    return kept.reset_index(drop=True)


def _no_calls() -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in _CALL.items()})


@dataclass(frozen=True)
class _Edges:
    """Which of `_calls` lack work, and which operations a call, because the capture was cut between the two."""

    calls: Flags
    operations: Flags


def _edges(timeline: Timeline, calls: pd.DataFrame) -> _Edges:
    """Find the processes whose first operations alone lack a call, and whose last calls alone lack work.

    Only both together tell a cut: calls at the end that have no work may be a program that was killed.
    """
    operations, process = timeline.operations, operation_column(timeline, "process")
    known, lacking = operations.call >= 0, timeline.is_launched & (operations.launch >= 0) & (operations.call < 0)
    first = pd.Series(operations.start[known]).groupby(process[known]).min()
    in_head = lacking & (operations.start < pd.Series(process).map(first).fillna(_NEVER).to_numpy())
    last = calls["start"][calls["has_work"]].groupby(calls["process"]).max()
    without = ~calls["has_work"].to_numpy(dtype=bool)
    in_tail = without & np.asarray(calls["start"] > calls["process"].map(last), dtype=bool)
    callers = calls["process"].to_numpy()
    cut = np.intersect1d(process[in_head], callers[in_tail])
    cut = np.setdiff1d(cut, np.append(process[lacking & ~in_head], callers[without & ~in_tail]))
    if _is_said(timeline.profile, _LOST_WORDS) and not _has_capture_range(timeline.profile):
        cut = cut[:0]
    return _Edges(in_tail & np.isin(callers, cut), in_head & np.isin(process, cut))


def _lost_work(timeline: Timeline, calls: pd.DataFrame) -> Finding | None:
    """Say that calls lack their work, or that the profiler says so and a capture range does not explain it."""
    profile, operations = timeline.profile, timeline.operations
    # operations whose call is not known may be those that are looked for
    unknown, is_copy = timeline.is_launched & (operations.launch < 0), operations.of("memory_ops")
    launching = _without_work(calls[~calls["is_copy"]], unknown & ~is_copy)
    copying = _without_work(calls[calls["is_copy"]], unknown & is_copy)
    is_said = _is_said(profile, _LOST_WORDS)
    lost = []
    if launching[0] > (0 if is_said else _TOLERATED * launching[1]):
        lost.append(("launching calls", *launching))
    if copying[0] > _TOLERATED * copying[1] and (is_said or launching[0] or not _is_scattered(calls)):
        lost.append(("copying or setting calls", *copying))
    if not any(len(profile.tables.get(name, ())) for name in GPU_TABLES):
        return _LOST_ALL if lost or is_said else _NO_GPU_WORK
    if lost:
        return _lost(lost)
    return _SAID_LOST if is_said and not _has_capture_range(profile) else None


def _without_work(calls: pd.DataFrame, unknown: Flags) -> tuple[int, int]:
    """Count the calls to which no operation belongs, and all of them."""
    return max(int((~calls["has_work"]).sum()) - int(unknown.sum()), 0), len(calls)


def _is_scattered(calls: pd.DataFrame) -> bool:
    """Whether copying calls without work lie everywhere between those with work: then they copy from host to host.

    An export does not say what a call copies. But the profiler loses whole buffers of events, whatever they are: all
    that ran in a stretch of time.
    """
    copying = calls[calls["is_copy"]].sort_values(["process", "start"])
    lacks = ~copying["has_work"]
    stretch = (copying["has_work"] | (copying["process"] != copying["process"].shift())).cumsum()[lacks]
    return bool(stretch.value_counts().max() * _STRETCHES <= len(stretch))


def _is_said(profile: Profile, words: str) -> bool:
    """Whether the profiler says something; that events may be lost it also says when it stops before the program."""
    table = profile.tables.get("diagnostics")
    return table is not None and bool(table["text"].astype("str").str.contains(words, case=False).any())


def _has_capture_range(profile: Profile) -> bool:
    """Whether only a part of the program was captured: after each, nsys says that events may be missing."""
    calls = profile.tables.get("api_calls")
    return _is_said(profile, _RANGE_WORDS) or (calls is not None and bool(_is_named(calls, _RANGE_CALLS).any()))


def _captured(calls: pd.DataFrame, named: Flags, has_work: Flags) -> Flags:
    """Return which of the named calls went into a graph that was being captured: what they launch does not run.

    These are those between begin and end of a capture on their thread. Another thread can launch into the same
    capture (PyTorch's backward does): one whose calls all lack their work meanwhile is taken to do so.
    """
    captured = np.zeros(len(calls), dtype=bool)
    begins, ends = _is_named(calls, _BEGIN), _is_named(calls, "StreamEndCapture")
    thread, process = (calls[name].to_numpy(dtype=np.int64) for name in ("thread", "process"))
    start, end = (calls[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    for capturing in pd.unique(thread[begins]):
        mine = thread == capturing
        during = named & _between(start, end[mine & begins], start[mine & ends])
        captured |= during & mine
        beside = during & ~mine & (process == process[mine][0])
        captured |= beside & ~np.isin(thread, thread[beside & has_work])
    return captured


def _between(times: Ints, opened: Ints, closed: Ints) -> Flags:
    """Return which times are after an opening and before the first closing that follows it; without one, none is."""
    opened, closed = np.sort(opened), np.append(np.sort(closed), _NEVER)
    last = np.searchsorted(opened, times, side="right") - 1
    following = closed[np.searchsorted(closed[:-1], opened[last])]
    inside: Flags = (last >= 0) & (times < following)
    return inside


def _is_named(calls: pd.DataFrame, pattern: str) -> Flags:
    matches = np.asarray(calls["name"].cat.categories.str.contains(pattern), dtype=bool)
    flags: Flags = np.append(matches, False)[calls["name"].cat.codes]
    return flags


def _lost_calls(timeline: Timeline, cut_off: Flags) -> Finding | None:
    """Say that operations lack the calls that launched them, if calls were traced; not of those cut off."""
    if "api_calls" not in timeline.profile.tables:
        return None
    launched = timeline.is_launched & ~cut_off
    total, lacking = int(launched.sum()), int((launched & (timeline.operations.call < 0)).sum())
    return _without_calls(lacking, total) if lacking > _TOLERATED * total else None


def _early_work(timeline: Timeline) -> Finding | None:
    """Say that operations start before the calls that launched them."""
    operations = timeline.operations
    known = operations.call >= 0
    if not known.any():
        return None
    lead = timeline.call_times[0][operations.call[known]] - operations.start[known]
    early = int((lead > _CLOCK_SKEW_NS).sum())
    return _early(early, int(known.sum())) if early else None


_LOST_WORDS: Final = "might have been|events? (?:were )?(?:lost|dropped)"
_RANGE_WORDS: Final = "profiling (?:has )?started due to"
_RANGE_CALLS: Final = "^cu(?:da)?Profiler(?:Start|Stop)"
_LAUNCHING: Final = "Launch(?:Cooperative)?Kernel|GraphLaunch"
_COPYING: Final = "^cu(?:da)?Mem(?:cpy|set)"
_BEGIN: Final = "StreamBeginCapture"
_NEVER: Final = -1
_CALL: Final = {"start": "int64", "time": "int64", "process": "int64", "is_copy": "bool", "has_work": "bool"}
# copies that never reach the GPU are in every step of a loop; of lost buffers there are few
_STRETCHES: Final = 8
# the clocks of host and GPU are brought together to less than that
_CLOCK_SKEW_NS: Final = 1_000_000
# of all launches: a few fail, or are cut off at the end of the capture
_TOLERATED: Final = 0.02
_NO_GPU_WORK: Final = Finding(
    "no_gpu_work",
    "warning",
    "No GPU work was captured",
    "CUDA was traced, but no kernel, copy or set ran while the capture was on.",
    "Check that the program uses the GPU, and that the capture range (cudaProfilerStart/Stop) encloses the work.",
)
_LOST_ALL: Final = Finding(
    "lost_events",
    "warning",
    "No GPU work was saved",
    "Launching calls were recorded, or the profiler reports that events may be missing, but the capture holds no "
    "kernel, copy or set. A program that is killed or aborts takes the profiler's buffers with it.",
    "Let the program end by itself, or stop it with nightsight (--timeout, Ctrl-C), which saves the buffers first.",
)
_GRAPHS: Final = Finding(
    "graph_level_trace",
    "info",
    "CUDA graphs were traced as a whole",
    "Their time counts as busy, but the kernels inside them are in no kernel table.",
    "To see them: nightsight profile --nsys-arg=--cuda-graph-trace=node "
    "(nsys profile --cuda-graph-trace=node); slower.",
)


_SAID_LOST: Final = Finding(
    "lost_events",
    "warning",
    "The profiler reports that events may be missing",
    "It was on for the whole program, so that is not about work outside a capture range. Every launching call that was "
    "recorded has its work; calls and work may have been lost together, and so may ranges. Sums and counts may be too "
    "small.",
    "See the diagnostics table. Let the program end by itself, or capture a shorter stretch.",
)


def _lost(lost: list[tuple[str, int, int]]) -> Finding:
    counts = " and ".join(f"{unmatched:,} of {total:,} {calls}" for calls, unmatched, total in lost)
    return Finding(
        "lost_events",
        "warning",
        "The profiler lost events",
        f"No GPU work is recorded for {counts}. Sums and counts are too small.",
        "Capture a shorter stretch (a capture range, fewer iterations) and see the diagnostics table.",
    )


def _cut(calls: int, operations: int) -> Finding:
    return Finding(
        "cut_capture",
        "info",
        "The capture was cut out of a longer one",
        f"Its first {operations:,} GPU operations were launched before it begins, and its last {calls:,} calls "
        "launched what ran after it ends. In between nothing is missing; sums and counts are those of this stretch.",
        "To see whole steps, cut between two of them, or open the whole capture.",
    )


def _without_calls(lacking: int, total: int) -> Finding:
    return Finding(
        "lost_calls",
        "warning",
        "Calls that launched GPU work are missing",
        f"No CUDA call is recorded for {lacking:,} of {total:,} GPU operations, though calls were traced. Launch "
        "overhead, sums of calls and the ranges that own this work are incomplete.",
        "Export the report again, without --tables; if it stays, capture a shorter stretch.",
    )


def _early(count: int, total: int) -> Finding:
    return Finding(
        "early_work",
        "warning",
        "GPU operations start before they were launched",
        f"{count:,} of {total:,} start more than 1 ms before the call that launched them. Their times or their calls "
        "are wrong, and so may be gaps, launch overhead and the ranges that own this work.",
        "Capture again; if it happens again, the clocks of GPU and host were not brought together.",
    )


ANALYSES: Final = (
    Analysis(DEVICES, devices),
    Analysis(DIAGNOSTICS, diagnostics),
    Analysis(PROFILER_OVERHEAD, overheads),
    Analysis(NOT_SHOWN, not_shown),
)
