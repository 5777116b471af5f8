"""What the capture says of itself: the devices, and the profiler's own warnings and overhead."""

from typing import Final

import pandas as pd

from pipeline.analyze.analysis import Analysis, Table
from pipeline.analyze.window import GPU_TABLES
from pipeline.model import Finding, Profile
from pipeline.tables import time_summary


def devices(profile: Profile) -> Table:
    """One row per GPU of the machine."""
    return Table(profile.table("devices").sort_values("device", ignore_index=True))


def diagnostics(profile: Profile) -> Table:
    """Warnings and errors of the profiler, each text once."""
    table = profile.table("diagnostics")
    table = table[table["severity"].isin(["warning", "error"])]
    counts = table.groupby(["severity", "text"], observed=True).size().rename("times").reset_index()
    return Table(counts[["severity", "times", "text"]])


def overheads(profile: Profile) -> Table:
    """Time the profiler itself took, by what it did."""
    return Table(time_summary(profile.table("overheads"), ["name"])[["total_ns", "count", "max_ns", "name"]])


def trust(profile: Profile) -> tuple[Finding, ...]:
    """Say what a reader must know before believing the numbers: no GPU work, lost events, graphs traced as a whole."""
    if GPU_TABLES[0] not in profile.tables:
        return ()
    findings = []
    says_lost = _says_lost(profile)
    if not any(len(profile.tables.get(name, ())) for name in GPU_TABLES):
        findings.append(_LOST_ALL if says_lost else _NO_GPU_WORK)
    elif says_lost and (unmatched := _launches_without_work(profile)):
        findings.append(_lost(unmatched))
    if len(profile.tables.get("graph_launches", ())):
        findings.append(_GRAPHS)
    return tuple(findings)


def _says_lost(profile: Profile) -> bool:
    """Whether the profiler says that events may be lost; nsys does so too when it stops before the program ends."""
    table = profile.tables.get("diagnostics")
    return table is not None and bool(table["text"].astype("str").str.contains(_LOST_WORDS, case=False).any())


def _launches_without_work(profile: Profile) -> int:
    """Count the launching calls to which no GPU operation belongs."""
    calls = profile.tables["api_calls"]
    keys = ["process", "correlation"]
    launching = calls[calls["name"].astype("str").str.contains(_LAUNCHING)][keys].drop_duplicates()
    work = pd.concat([profile.tables[name][keys] for name in GPU_TABLES if name in profile.tables]).drop_duplicates()
    return len(launching) - len(launching.merge(work, on=keys, validate="1:1"))


_LOST_WORDS: Final = "might have been|events? (?:were )?(?:lost|dropped)"
_LAUNCHING: Final = "LaunchKernel|GraphLaunch"
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
    "The profiler reports that events may be missing, and the capture holds no kernel, copy or set. A program that "
    "is killed or aborts takes the profiler's buffers with it.",
    "Let the program end by itself, or stop it with nightsight (--timeout, Ctrl-C), which saves the buffers first.",
)
_GRAPHS: Final = Finding(
    "graph_level_trace",
    "info",
    "CUDA graphs were traced as a whole",
    "Their time counts as busy, but the kernels inside them are in no kernel table.",
    "To see them: nsys profile --cuda-graph-trace=node (slower).",
)


def _lost(unmatched: int) -> Finding:
    return Finding(
        "lost_events",
        "warning",
        "The profiler lost events",
        f"It reports that events may be missing, and {unmatched:,} launches have no GPU work recorded for them. "
        "Sums and counts are too small.",
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
