"""What the capture says of itself: the devices, and the profiler's own warnings and overhead."""

from typing import Final

import numpy as np

from pipeline.analyze.analysis import Analysis, Table
from pipeline.analyze.timeline import GPU_TABLES, Timeline, distinct
from pipeline.model import Finding, Profile
from pipeline.tables import time_summary


def devices(timeline: Timeline) -> Table:
    """One row per GPU of the machine."""
    return Table(timeline.profile.table("devices").sort_values("device", ignore_index=True))


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
    findings = []
    launching, unmatched = _launching_calls(timeline)
    is_lost = unmatched and (_says_lost(profile) or unmatched > _TOLERATED * launching)
    if not any(len(profile.tables.get(name, ())) for name in GPU_TABLES):
        findings.append(_LOST_ALL if is_lost or _says_lost(profile) else _NO_GPU_WORK)
    elif is_lost:
        findings.append(_lost(unmatched, launching))
    if len(profile.tables.get("graph_launches", ())):
        findings.append(_GRAPHS)
    return tuple(findings)


def _says_lost(profile: Profile) -> bool:
    """Whether the profiler says that events may be lost; nsys does so too when it stops before the program ends."""
    table = profile.tables.get("diagnostics")
    return table is not None and bool(table["text"].astype("str").str.contains(_LOST_WORDS, case=False).any())


def _launching_calls(timeline: Timeline) -> tuple[int, int]:
    """Count the calls that launch kernels or graphs, and those of them to which no GPU operation belongs.

    What is launched into a graph that is being captured does not run, so such programs count as having none of these.
    """
    calls = timeline.profile.tables.get("api_calls")
    if calls is None or calls["name"].cat.categories.str.contains("StreamBeginCapture").any():
        return 0, 0
    is_launching = np.asarray(calls["name"].cat.categories.str.contains(_LAUNCHING), dtype=bool)
    launching = distinct(timeline.call_launch[is_launching[calls["name"].cat.codes]])
    return len(launching), len(np.setdiff1d(launching, distinct(timeline.operations.launch), assume_unique=True))


_LOST_WORDS: Final = "might have been|events? (?:were )?(?:lost|dropped)"
_LAUNCHING: Final = "LaunchKernel|GraphLaunch"
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
    "To see them: nsys profile --cuda-graph-trace=node (slower).",
)


def _lost(unmatched: int, launching: int) -> Finding:
    return Finding(
        "lost_events",
        "warning",
        "The profiler lost events",
        f"No GPU work is recorded for {unmatched:,} of {launching:,} launching calls. Sums and counts are too small.",
        "Capture a shorter stretch (a capture range, fewer iterations) and see the diagnostics table.",
    )


ANALYSES: Final = (
    Analysis("devices", "Devices", "The GPUs of the machine, as the driver describes them.", ("devices",), devices),
    Analysis(
        "diagnostics",
        "Diagnostics",
        "Warnings and errors that the profiler recorded about its own work. File paths are left out.",
        ("diagnostics",),
        diagnostics,
    ),
    Analysis(
        "profiler_overhead",
        "Profiler overhead",
        "Time the profiler took inside the program, by what it did. It is part of the times above.",
        ("overheads",),
        overheads,
    ),
)
