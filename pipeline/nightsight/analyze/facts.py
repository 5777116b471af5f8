"""Facts about the capture: its devices, the profiler's warnings and overhead, and missing events.

`trust` distinguishes lost events from harmless gaps, such as the ends of a capture range, kernels captured into a CUDA
graph and host-to-host copies.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.no_work import NOT_RECORDED, next_to_none, no_work, not_traced, unimported
from nightsight.analyze.unseen_work import unseen_work
from nightsight.events.communication import are_ranks_known, of_all_ranks, ranks_of
from nightsight.events.launches import GPU_TABLES, find_keys
from nightsight.events.sharing import sharing
from nightsight.events.timeline import Timeline, distinct, operation_column
from nightsight.intervals import NOTHING, Flags, Ints, in_order
from nightsight.model.report import Finding, Profile
from nightsight.results.capture import DEVICES, DIAGNOSTICS, NOT_SHOWN, PROFILER_OVERHEAD
from nightsight.tables import are_named, time_summary, used_devices
from nightsight.units import format_ranks


def devices(timeline: Timeline) -> Table:
    """Return one row per GPU of the machine; `used` is missing in a capture without GPU work."""
    table = timeline.profile.table("devices").drop(columns="uuid").sort_values("device", ignore_index=True)
    used = used_devices(timeline.profile.tables)
    table.insert(2, "used", np.where(table["device"].isin(used), "yes", "no") if used else None)
    return Table(table)


def not_shown(timeline: Timeline) -> Table:
    """Return one row per kind of event in the file that the report does not use."""
    table = timeline.profile.table("unread")
    return Table(table.sort_values(["events", "kind"], ascending=[False, True], ignore_index=True))


def diagnostics(timeline: Timeline) -> Table:
    """Return the profiler's warnings and errors, each text once with its count."""
    table = timeline.profile.table("diagnostics")
    table = table[table["severity"].isin(["warning", "error"])]
    counts = table.groupby(["severity", "text"], observed=True).size().rename("times").reset_index()
    return Table(counts[["severity", "times", "text"]])


def overheads(timeline: Timeline) -> Table:
    """Return the time that the profiler itself took in ns, by activity."""
    return Table(time_summary(timeline.profile.table("overheads"), ["name"])[["total_ns", "count", "max_ns", "name"]])


def trust(timeline: Timeline) -> tuple[Finding, ...]:
    """Return findings on how reliable the numbers are: no GPU work, lost events, graphs traced as a whole."""
    profile = timeline.profile
    if "kernels" not in profile.tables:
        names = profile.recorded("api_calls")["name"]
        if names.astype("str").str.contains(_LAUNCHING).any():
            return (_NOT_RECORDED,)
        return (not_traced(profile),) if profile.environment.collector == "nsys" else ()
    if (few := next_to_none(profile)) is not None:
        return (few,)
    graphs = _GRAPHS if len(profile.recorded("graph_launches")) else None
    calls = _submitting_calls(timeline)
    edges = _cut_ends(timeline, calls)
    calls_cut, operations_cut = int(edges.calls.sum()), int(edges.operations.sum())
    cut = _CUT.filled(calls=calls_cut, operations=operations_cut) if operations_cut else None
    lost = _find_lost_work(timeline, calls[~edges.calls] if calls_cut else calls)
    findings = (
        lost or unimported(profile),
        cut,
        _find_lost_calls(timeline, edges.operations),
        _find_early_work(timeline),
        graphs,
        *unseen_work(timeline),
    )
    return tuple(finding for finding in findings if finding)


def ranks_by_gpu(timeline: Timeline) -> dict[str, int]:
    """Return the rank of each GPU, by its number; empty unless each rank has its own number."""
    if not are_ranks_known(timeline):
        return {}
    devices = np.sort(of_all_ranks(timeline)["device"].unique())
    return dict(zip(map(str, devices.tolist()), ranks_of(timeline, devices).tolist(), strict=True))


def shared_numbers(timeline: Timeline) -> list[list[int]]:
    """Return the GPU numbers that mean one GPU, for each GPU shared by communicating ranks."""
    numbers = of_all_ranks(timeline)["device"].unique()
    return sharing(timeline.profile.recorded("devices"), numbers)


def shared_gpus(timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding if ranks that communicate share GPUs."""
    groups = shared_numbers(timeline)
    if not groups:
        return
    count, are_known = sum(map(len, groups)), are_ranks_known(timeline)
    labels = [format_ranks(sorted(ranks_of(timeline, np.array(group)).tolist())) for group in groups if are_known]
    who = labels[0] if len(labels) == 1 else f"{count:,} {'ranks' if are_known else 'processes'}"
    yield Finding(
        "shared_device",
        "warning",
        f"{who} share {'one GPU' if len(groups) == 1 else f'{len(groups):,} GPUs'}",
        "They take turns of a few milliseconds, unless NVIDIA MPS runs them together, so the times of one include the "
        "work of the others. Here each has its own bars and sums.",
        "Give each rank its own GPU: torch.cuda.set_device(LOCAL_RANK).",
        evidence=tuple(labels[:_MOST_NAMED]) if len(labels) > 1 else (),
    )


def _submitting_calls(timeline: Timeline) -> pd.DataFrame:
    """Return the calls that submit work to a GPU in order of time: start, time (ns), process, is_copy and has_work.

    A driver call and the runtime call around it have the same id and count as one. Calls into a graph being captured,
    and calls that clearly submitted nothing, are left out. No rows if all calls have their work: nothing is missing.
    """
    calls = timeline.profile.recorded("api_calls")
    if not len(calls):
        return _empty_calls()
    is_copy, launch = are_named(calls["name"], _COPYING), timeline.call_launch
    submits = (is_copy | are_named(calls["name"], _LAUNCHING)) & (launch >= 0)
    # the last entry is for operations without a call
    has_work: Flags = np.zeros(len(calls) + 1, dtype=bool)
    has_work[timeline.operations.call] = True
    has_work = has_work[:-1] & submits
    # few others have the id of such a call, or operations at unknown times, which were not lost
    others = np.flatnonzero(submits & ~has_work)
    if len(others):
        keys = distinct(np.append(timeline.operations.launch, _untimed_launches(timeline)))
        place = np.minimum(find_keys(keys, launch[others]), len(keys) - 1)
        has_work[others] = keys[place] == launch[others] if len(keys) else False
    if has_work[submits].all():
        return _empty_calls()
    if are_named(calls["name"], _BEGIN).any():
        submits &= ~_calls_of_captures(calls, submits, has_work)
    start, end = timeline.call_times
    # of calls with the same id the outermost is first
    order = np.flatnonzero(submits)
    order = order[in_order(start[order], start[order] - end[order])]
    if len(distinct(launch[order])) < len(order):
        order = order[~pd.Series(launch[order]).duplicated().to_numpy()]
    submitting = pd.DataFrame(
        {
            "start": start[order],
            "time": end[order] - start[order],
            "process": calls["process"].to_numpy(dtype=np.int64)[order],
            "is_copy": is_copy[order],
            "has_work": has_work[order],
        },
        copy=False,
    )
    # copies and memsets of 0 bytes return at once; calls that submit work take their time even if the work is lost
    is_brief = submitting["time"] < submitting["time"][submitting["has_work"]].min() / 2
    relevant = submitting["has_work"] | ~submitting["is_copy"] | ~is_brief
    return submitting if relevant.all() else submitting[relevant].reset_index(drop=True)


def _untimed_launches(timeline: Timeline) -> Ints:
    """Return the launch keys of the calls whose operations have impossible times."""
    calls, keys = timeline.profile.table("api_calls"), ["process", "correlation"]
    lost = timeline.profile.recorded("untimed")[keys].dropna()
    if not len(lost):
        return NOTHING
    keys_of_lost = lost.astype("float64").drop_duplicates()
    matched = calls[keys].astype("float64").merge(keys_of_lost, "left", keys, indicator=True, validate="m:1")
    return timeline.call_launch[(matched["_merge"] == "both").to_numpy()]


def _empty_calls() -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in _CALL.items()})


def _unknown_activities(profile: Profile) -> list[tuple[str, int]]:
    """Return names and row counts of unknown CUPTI activity tables, as in the export of a newer nsys."""
    table = profile.recorded("unread")
    source = table["source"].astype("str")
    is_unknown = source.str.startswith(_ACTIVITIES) & (source == table["kind"].astype("str"))
    return list(zip(source[is_unknown].tolist(), table["events"][is_unknown].tolist(), strict=True))


@dataclass(frozen=True)
class _CutEnds:
    """Which of `_submitting_calls` lack their work, and which operations their call, because the capture was cut."""

    calls: Flags
    operations: Flags


def _cut_ends(timeline: Timeline, calls: pd.DataFrame) -> _CutEnds:
    """Find processes in which only the first operations lack a call, and only the last calls lack work.

    Only both together prove a cut: if the last calls alone lack work, the program may have been killed.
    """
    operations, process = timeline.operations, operation_column(timeline, "process")
    has_call, lacks_call = operations.call >= 0, timeline.is_launched & (operations.launch >= 0) & (operations.call < 0)
    callers, start, has_work = (calls[name].to_numpy() for name in ("process", "start", "has_work"))
    lacks_work = ~has_work.astype(bool)
    in_head, in_tail = np.zeros_like(lacks_call), np.zeros_like(lacks_work)
    # few lack anything
    for key in pd.unique(process[lacks_call]):
        called = operations.start[has_call & (process == key)]
        if len(called):
            in_head |= lacks_call & (process == key) & (operations.start < called.min())
    for key in pd.unique(callers[lacks_work]):
        working = start[~lacks_work & (callers == key)]
        if len(working):
            in_tail |= lacks_work & (callers == key) & (start > working.max())
    cut_processes = np.intersect1d(process[in_head], callers[in_tail])
    # something missing in the middle is a loss, not a cut
    lossy = np.append(process[lacks_call & ~in_head], callers[lacks_work & ~in_tail])
    cut_processes = np.setdiff1d(cut_processes, lossy)
    if _has_diagnostic(timeline.profile, _LOST_WORDS) and not _has_capture_range(timeline.profile):
        cut_processes = cut_processes[:0]
    return _CutEnds(in_tail & np.isin(callers, cut_processes), in_head & np.isin(process, cut_processes))


def _find_lost_work(timeline: Timeline, calls: pd.DataFrame) -> Finding | None:
    """Return a finding if calls lack their work, or if the profiler reports a loss that no capture range explains."""
    profile, operations = timeline.profile, timeline.operations
    # operations without an id may be the missing work
    unknown, is_copy = timeline.is_launched & (operations.launch < 0), operations.of("memory_ops")
    copies = calls["is_copy"].to_numpy(dtype=bool)
    launching = _without_work(calls, ~copies, unknown & ~is_copy)
    copying = _without_work(calls, copies, unknown & is_copy)
    is_reported = _has_diagnostic(profile, _LOST_WORDS)
    lost = []
    # a few launches fail or are cut off at the end; the profiler's own report of a loss leaves no tolerance
    if launching[0] > (0 if is_reported else _TOLERATED * launching[1]):
        lost.append(("launch calls", *launching))
    if copying[0] > _TOLERATED * copying[1] and (is_reported or launching[0] or not _is_scattered(calls)):
        lost.append(("copy or memset calls", *copying))
    unread = _unknown_activities(profile)
    if not profile.with_rows(GPU_TABLES):
        if unread:
            return _unknown_tables("No kernel, copy or memset was found.", unread)
        # calls were saved, and none of them submits work: the program did nothing on the GPU
        is_idle = _has_capture_range(profile) and len(profile.recorded("api_calls")) > 0
        return no_work(profile, are_lost=bool(lost) or (is_reported and not is_idle))
    if lost:
        missing = sum(unmatched for _, unmatched, _ in lost)
        is_there = sum(rows for _, rows in unread) >= missing
        text = _lost_text(lost)
        return _unknown_tables(f"No GPU work is recorded for {text}.", unread) if is_there else _LOST.filled(calls=text)
    return _POSSIBLE_LOSS if is_reported and not _has_capture_range(profile) else None


def _without_work(calls: pd.DataFrame, which: Flags, unknown: Flags) -> tuple[int, int]:
    """Return the least number of the calls `which` without an operation, and the number of all of these.

    `unknown` operations may belong to these calls.
    """
    lacking = which & ~calls["has_work"].to_numpy(dtype=bool)
    return max(int(lacking.sum()) - int(unknown.sum()), 0), int(which.sum())


def _is_scattered(calls: pd.DataFrame) -> bool:
    """Whether copy calls without work are spread among those with work: then they copy from host to host.

    An export does not say what a call copies. But the profiler loses whole buffers of events: everything in a stretch
    of time.
    """
    copying = calls[calls["is_copy"]].sort_values(["process", "start"])
    lacks = ~copying["has_work"]
    # number the runs of consecutive copy calls without work, then look at the longest
    stretch = (copying["has_work"] | (copying["process"] != copying["process"].shift())).cumsum()[lacks]
    return bool(stretch.value_counts().max() * _STRETCHES <= len(stretch))


def _has_diagnostic(profile: Profile, words: str) -> bool:
    """Whether a diagnostic matches; nsys also reports possible loss when it merely stops before the program does."""
    return bool(profile.recorded("diagnostics")["text"].astype("str").str.contains(words, case=False).any())


def _has_capture_range(profile: Profile) -> bool:
    """Whether a capture range was used: nsys reports possible loss after each one."""
    calls = profile.recorded("api_calls")
    return _has_diagnostic(profile, _RANGE_WORDS) or bool(are_named(calls["name"], _RANGE_CALLS).any())


def _calls_of_captures(calls: pd.DataFrame, is_candidate: Flags, has_work: Flags) -> Flags:
    """Return which of the named calls went into a CUDA graph being captured: their work does not run.

    These are the calls between begin and end of a capture on their thread. Other threads can launch into the same
    capture, as PyTorch's backward pass does: assume so if all calls of a thread in that time lack work.
    """
    captured = np.zeros(len(calls), dtype=bool)
    begins, ends = are_named(calls["name"], _BEGIN), are_named(calls["name"], "StreamEndCapture")
    thread, process = (calls[name].to_numpy(dtype=np.int64) for name in ("thread", "process"))
    start, end = (calls[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    for capturing in pd.unique(thread[begins]):
        is_of_thread = thread == capturing
        during = is_candidate & _between(start, end[is_of_thread & begins], start[is_of_thread & ends])
        captured |= during & is_of_thread
        elsewhere = during & ~is_of_thread & (process == process[is_of_thread][0])
        captured |= elsewhere & ~np.isin(thread, thread[elsewhere & has_work])
    return captured


def _between(times: Ints, opened: Ints, closed: Ints) -> Flags:
    """Return which times are between an opening and the next closing, if there is one."""
    # -1 closes an opening without an end at once: no time lies in it
    opened, closed = np.sort(opened), np.append(np.sort(closed), _NEVER)
    last = np.searchsorted(opened, times, side="right") - 1
    following = closed[np.searchsorted(closed[:-1], opened[last])]
    inside: Flags = (last >= 0) & (times < following)
    return inside


def _find_lost_calls(timeline: Timeline, cut_off: Flags) -> Finding | None:
    """Return a finding if operations lack their launching calls although calls were traced; `cut_off` ones are fine."""
    if "api_calls" not in timeline.profile.tables:
        return None
    launched = timeline.is_launched & ~cut_off
    total, lacking = int(launched.sum()), int((launched & (timeline.operations.call < 0)).sum())
    return _WITHOUT_CALLS.filled(lacking=lacking, total=total) if lacking > _TOLERATED * total else None


def _find_early_work(timeline: Timeline) -> Finding | None:
    """Return a finding if operations start before the calls that launched them."""
    operations = timeline.operations
    has_call = operations.call >= 0
    if not has_call.any():
        return None
    lead = timeline.call_times[0][operations.call[has_call]] - operations.start[has_call]
    count = int((lead > _CLOCK_SKEW_NS).sum())
    return _EARLY.filled(count=count, total=int(has_call.sum())) if count else None


_LOST_WORDS: Final = "might have been|events? (?:were )?(?:lost|dropped)"
_RANGE_WORDS: Final = "profiling (?:has )?started due to"
_RANGE_CALLS: Final = "^cu(?:da)?Profiler(?:Start|Stop)"
_LAUNCHING: Final = "Launch(?:Cooperative)?Kernel|GraphLaunch"
_COPYING: Final = "^cu(?:da)?Mem(?:cpy|set)"
_BEGIN: Final = "StreamBeginCapture"
_ACTIVITIES: Final = "CUPTI_ACTIVITY_KIND_"
_NEVER: Final = -1
_MOST_NAMED: Final = 5
_CALL: Final = {"start": "int64", "time": "int64", "process": "int64", "is_copy": "bool", "has_work": "bool"}
# host-to-host copies are in every step of a loop, so they form many runs; lost buffers form few
_STRETCHES: Final = 8
# profilers synchronize the clocks of host and GPU more closely than this
_CLOCK_SKEW_NS: Final = 1_000_000
# share of all launches: a few fail, or are cut off at the end of the capture
_TOLERATED: Final = 0.02
_NOT_RECORDED: Final = Finding(
    NOT_RECORDED,
    "warning",
    "GPU work was not recorded",
    "The capture has calls that launch kernels, but neither kernels nor copies.",
    "Record the GPU as well: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
)
_GRAPHS: Final = Finding(
    "graph_level_trace",
    "info",
    "CUDA graphs were traced as a whole",
    "Their time counts as busy, but the kernels inside them are not in the kernel tables, and the ranges and operators "
    "that were captured are unknown.",
    "To see them: nightsight profile --nsys-arg=--cuda-graph-trace=node "
    "(nsys profile --cuda-graph-trace=node); slower.",
)


_POSSIBLE_LOSS: Final = Finding(
    "lost_events",
    "warning",
    "The profiler reports that events may be missing",
    "It ran for the whole program, so a capture range does not explain this. Every recorded launch has its work, but "
    "launches may have been lost together with their work, and ranges as well. Sums and counts may be too small.",
    "Check the diagnostics table. Let the program exit normally, or capture a shorter stretch.",
)


def _lost_text(lost: list[tuple[str, int, int]]) -> str:
    return " and ".join(f"{unmatched:,} of {total:,} {calls}" for calls, unmatched, total in lost)


_LOST: Final = Finding(
    "lost_events",
    "warning",
    "The profiler lost events",
    "No GPU work is recorded for {calls}. Sums and counts are too small.",
    "Capture a shorter stretch (a capture range, fewer steps) and check the diagnostics table.",
)


def _unknown_tables(sentence: str, unread: list[tuple[str, int]]) -> Finding:
    tables = ", ".join(f"{name} ({count:,} rows)" for name, count in unread)
    return Finding(
        "unknown_tables",
        "warning",
        "GPU work may be in tables that nightsight does not know",
        f"{sentence} The capture has events that are not read: {tables}. If they are the missing work, sums, counts "
        "and advice are wrong.",
        "Update nightsight. If it is up to date, report the names of these tables (docs/support.md).",
    )


_CUT: Final = Finding(
    "cut_capture",
    "info",
    "The capture was cut out of a longer one",
    "Its first {operations:,} GPU operations were launched before it begins, and its last {calls:,} calls launched "
    "work that ran after it ends. Nothing is missing in between; sums and counts cover this stretch.",
    "To see whole steps, cut between two steps, or open the whole capture.",
)
_WITHOUT_CALLS: Final = Finding(
    "lost_calls",
    "warning",
    "Calls that launched GPU work are missing",
    "No CUDA call is recorded for {lacking:,} of {total:,} GPU operations, though calls were traced. Launch overhead, "
    "sums of calls and the ranges that own this work are incomplete.",
    "Export the report again without --tables. If that does not help, capture a shorter stretch.",
)
_EARLY: Final = Finding(
    "early_work",
    "warning",
    "GPU operations start before they were launched",
    "{count:,} of {total:,} start more than 1 ms before the call that launched them. Their times or calls are wrong, "
    "so gaps, launch overhead and the ranges that own this work may be wrong too.",
    "Capture again. If it recurs, the GPU and host clocks were not synchronized.",
)


ANALYSES: Final = (
    Analysis(DEVICES, devices),
    Analysis(DIAGNOSTICS, diagnostics),
    Analysis(PROFILER_OVERHEAD, overheads),
    Analysis(NOT_SHOWN, not_shown),
)
