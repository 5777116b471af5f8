"""Extracts one number per run for each measure, such as the time per step, from a Report alone.

Instances of a kernel are not replicates, because differences between processes affect all instances of a process. A
run therefore counts once, with the median over its repetitions, which ignores occasional slow ones.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import numpy as np
import pandas as pd

from nightsight.events.kernel_kinds import family
from nightsight.events.kernel_names import communicates, normalized
from nightsight.events.names import LAUNCHES as LAUNCHING
from nightsight.events.names import WAITS, call_kinds
from nightsight.model.compare import (
    ALLOCATIONS,
    COLLECTIVES,
    COPIES,
    COPYING,
    DIRECTIONS,
    EXPOSED,
    GRAPH_LAUNCHES,
    KERNELS,
    LAUNCHES,
    MEASURES,
    MEMSETS,
    STEP,
    SYNCS,
    UNPROFILED,
    Measures,
    Pace,
)
from nightsight.model.report import Report, View
from nightsight.results.categories import COMMUNICATION
from nightsight.results.causes import REPLAY
from nightsight.results.gpu import CUDA_GPU_KERN_SUM, MEMORY_OPERATIONS
from nightsight.results.gpu_time import GPU_TIME, TIME_SPLIT
from nightsight.results.operators import CPU_OPS
from nightsight.results.program import CUDA_API_SUM
from nightsight.results.ranges import RANGE_ITERATIONS
from nightsight.results.steps import STEP_SPLIT, STEP_WORK, WHOLE_STEP

CAUSES: Final = ("rule", "name", "gain_pct", "title")
_LOST: Final = "lost_events"
_NUMBERS: Final = ("count", "value", "spread")
_FIGURES: Final = re.compile(r"(?<![A-Za-z\d])\d[\d,.]*(?![A-Za-z])")


def measures(
    report: Report, *, source: str = "", started: str = "", series: str = "", side: str = "", order: int = -1
) -> Measures:
    """Return the measures of a run; `started` defaults to the time of the capture."""
    view = report.chosen_window
    repetitions = view.repetitions if view else 0
    frames = [_gate(report, view), *_groups(report, repetitions or 1), _gains(report, repetitions or 1)]
    table = pd.concat([frame for frame in frames if len(frame)] or [pd.DataFrame(columns=MEASURES)], ignore_index=True)
    numbers = {name: pd.to_numeric(table[name], errors="coerce").astype("float64") for name in _NUMBERS}
    texts = {name: table[name].astype("object").fillna("").astype("str") for name in MEASURES if name not in _NUMBERS}
    return Measures(
        source=source,
        workload=report.title,
        table=table.assign(**numbers, **texts)[list(MEASURES)],
        environment=report.environment,
        parameters=report.parameters,
        conditions=report.conditions,
        window=view.name if view else "",
        family=view.family if view else "",
        repetitions=repetitions,
        started=started or report.environment.captured_utc,
        series=series,
        side=side,
        order=order,
        causes=_advice_measures(report),
        pace=_pace(report),
        launch_call_ns=_launch_call_ns(report),
        is_incomplete=any(finding.rule == _LOST for finding in report.findings),
    )


def _gate(report: Report, view: View | None) -> pd.DataFrame:
    """Return the gate metrics that the report has."""
    repetitions = (view.repetitions if view else 0) or 1
    metrics = {**_step(report, view), **_unprofiled(report), **_gpu(report, repetitions)}
    if COMMUNICATION in metrics:
        metrics[EXPOSED] = metrics[COMMUNICATION]
    return _measures_of_kind("gate", pd.DataFrame({"name": list(metrics), "value": list(metrics.values())}))


def _step(report: Report, view: View | None) -> dict[str, float]:
    """Return the time of a step and of its categories: the mean over devices of the medians over repetitions."""
    split, whole = report.rows(STEP_SPLIT), report.rows(TIME_SPLIT)
    # without a device, these are steps of the CPU
    is_on_cpu = len(split) > 0 and bool(split["device"].isna().all())
    if is_on_cpu:
        return {STEP: float(split.loc[split["category"] == WHOLE_STEP, "med_ns"].iloc[0])}
    if len(split):
        medians = split.groupby("category")["med_ns"].sum() / split["device"].nunique()
        return {STEP if name == WHOLE_STEP else str(name): float(time) for name, time in medians.items()}
    if view is None:
        return {}
    if len(whole):
        means = whole.groupby("category")["time_ns"].sum() / whole["device"].nunique() / (view.repetitions or 1)
        step = (view.end_ns - view.start_ns) / (view.repetitions or 1)
        return {STEP: step, **{str(name): float(time) for name, time in means.items()}}
    # without a GPU, and without repetitions
    return {STEP: (view.end_ns - view.start_ns) / (view.repetitions or 1)}


def _unprofiled(report: Report) -> dict[str, float]:
    if report.benchmark and report.benchmark.step_ns:
        return {UNPROFILED: float(pd.Series(report.benchmark.step_ns).median())}
    replay = report.rows(REPLAY)
    timed = pd.to_numeric(replay["timed_ns"], errors="coerce").dropna() if "timed_ns" in replay else pd.Series()
    return {UNPROFILED: float(timed.iloc[0])} if len(timed) else {}


def _gpu(report: Report, repetitions: int) -> dict[str, float]:
    """Return time and number of operations on all devices. A graph that was traced as a whole counts as a kernel."""
    devices, work = report.rows(GPU_TIME), report.rows(STEP_WORK)
    if not len(devices):
        return {}
    sums = {name: float(devices[name].sum()) / repetitions for name in (KERNELS, "graph_ns", COPYING, COPIES, LAUNCHES)}
    metrics = {KERNELS: sums[KERNELS] + sums["graph_ns"], **{name: sums[name] for name in (COPYING, COPIES, LAUNCHES)}}
    if len(work):
        # medians over the repetitions
        is_copy = (work["kind"] == "copy") & (work["name"] != "memset")
        metrics[KERNELS] = float(work.loc[work["kind"] == "kernel", "time_ns"].sum())
        metrics[COPYING], metrics[COPIES] = (float(work.loc[is_copy, name].sum()) for name in ("time_ns", "count"))
        metrics |= _counts(work)
    return metrics


def _counts(work: pd.DataFrame) -> dict[str, float]:
    """Return the counts of a step; counts of calls are unknown if the capture has no calls."""
    kind, name, count = work["kind"], work["name"].astype("str"), work["count"].astype("float64")
    copies, calls = kind == "copy", kind == "call"
    direction, size = name.str.partition(" (")[0], work.get("copied_bytes")
    counts = {MEMSETS: count[copies & (name == "memset")].sum()}
    counts[COLLECTIVES] = count[(kind == "kernel") & name.map(communicates)].sum()
    for text, called in DIRECTIONS.items():
        in_direction = copies & (direction == text)
        counts[f"{called}_copies"] = count[in_direction].sum()
        # not every profiler records how many bytes
        if size is not None or not in_direction.any():
            counts[f"{called}_bytes"] = 0.0 if size is None else size[in_direction].astype("float64").sum(skipna=False)
    if calls.any():
        metric = calls_counted(name).where(calls)
        for each in (LAUNCHES, SYNCS, ALLOCATIONS):
            counts[each] = count[metric == each].sum()
        counts[GRAPH_LAUNCHES] = count[(metric == LAUNCHES) & name.str.contains("GraphLaunch")].sum()
        if not counts[LAUNCHES]:
            # work without a launching call, such as that of another process, is counted on the GPU
            del counts[LAUNCHES]
    return {name: float(value) for name, value in counts.items() if pd.notna(value)}


def calls_counted(names: "pd.Series[str]") -> "pd.Series[str]":
    """Return the count of a step to which each CUDA function contributes, "" for none."""
    kinds = pd.Series(call_kinds(pd.Index(names)), index=names.index)
    is_host = names.str.contains("LaunchHostFunc")
    # a copy that is not asynchronous waits for the GPU
    waits = (kinds == WAITS) | (kinds == "copy") & names.str.contains("Memcpy") & ~names.str.contains("Async")
    chosen = [(kinds == LAUNCHING) & ~is_host, waits, kinds == "allocation"]
    return pd.Series(np.select(chosen, [LAUNCHES, SYNCS, ALLOCATIONS], ""), index=names.index, dtype="object")


def _pace(report: Report) -> dict[str, Pace]:
    """Return the spread of step times around their median, for the profiled run and the trials without a profiler."""
    paces, split = {}, report.rows(STEP_SPLIT)
    if len(split):
        whole = split.loc[split["category"] == WHOLE_STEP, ["med_ns", "min_ns", "p25_ns", "p75_ns"]].sum()
        if whole["med_ns"] > 0:
            spread = (whole["p75_ns"] - whole["p25_ns"]) / whole["med_ns"]
            paces[STEP] = Pace(float(whole["min_ns"] / whole["med_ns"]), float(spread))
    if report.benchmark and len(report.benchmark.step_ns) > 1:
        low, first, middle, third = pd.Series(report.benchmark.step_ns).quantile([0, 0.25, 0.5, 0.75])
        paces[UNPROFILED] = Pace(float(low / middle), float((third - first) / middle))
    return paces


def _launch_call_ns(report: Report) -> float:
    """Return the CPU time of a call that launches work; 0 if unknown."""
    work = report.rows(STEP_WORK)
    if not len(work):
        return 0.0
    launches = work[(work["kind"] == "call") & (calls_counted(work["name"].astype("str")) == LAUNCHES)]
    return float(launches["time_ns"].sum() / launches["count"].sum()) if len(launches) else 0.0


def _groups(report: Report, repetitions: int) -> Iterator[pd.DataFrame]:
    """Yield kernels, their families, copies, API calls, operators and ranges."""
    work = report.rows(STEP_WORK)
    if len(work):
        groups = work.rename(columns={"time_ns": "value"}).assign(spread=work["time_ns"] / work["count"])
    else:
        groups = _totals(report, repetitions)
    for kind, of_kind in groups.groupby("kind", sort=True):
        if kind == "kernel":
            yield _measures_of_kind("kernel", _sum_by_name(of_kind, of_kind["name"].map(_normalize)))
            yield _measures_of_kind("family", _sum_by_name(of_kind, of_kind["name"].map(_family)).assign(place=""))
        else:
            yield _measures_of_kind("api" if kind == "call" else str(kind), _sum_by_name(of_kind, of_kind["name"]))


_normalize = cache(normalized)
_family = cache(family)


def _totals(report: Report, repetitions: int) -> pd.DataFrame:
    """Return the groups of a report without step contents: totals of the capture per repetition."""
    copies, operators, ranges = (report.rows(entry) for entry in (MEMORY_OPERATIONS, CPU_OPS, RANGE_ITERATIONS))
    if len(copies):
        kinds = copies["source_kind"].astype("str") + " to " + copies["target_kind"].astype("str")
        names = copies["operation"].astype("str") + (" (" + kinds + ")").where(copies["operation"] != "memset", "")
        copies = copies.assign(name=names)
    if len(operators):
        operators = operators.assign(total_ns=operators["own_ns"])
    if len(ranges):
        ranges = ranges.assign(total_ns=ranges["med_ns"] * ranges["instances"])
    parts = (
        ("kernel", report.rows(CUDA_GPU_KERN_SUM), "name", "instances"),
        ("copy", copies, "name", "count"),
        ("api", report.rows(CUDA_API_SUM), "name", "calls"),
        ("operator", operators, "name", "calls"),
        ("range", ranges, "path", "instances"),
    )
    frames = [
        pd.DataFrame(
            {
                "kind": kind,
                "name": table[name].astype("str"),
                "count": table[count] / repetitions,
                "value": table["total_ns"] / repetitions,
                "spread": table["total_ns"] / table[count],
            }
        )
        for kind, table, name, count in parts
        if len(table)
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=MEASURES)


def _sum_by_name(groups: pd.DataFrame, names: "pd.Series[str]") -> pd.DataFrame:
    """Sum groups with the same name; spread and place are those of the largest."""
    ordered = groups.assign(name=names).sort_values("value", ascending=False, kind="stable")
    first = [name for name in ("spread", "place") if name in groups]
    summed = ordered.groupby("name", sort=False).agg({"count": "sum", "value": "sum", **dict.fromkeys(first, "first")})
    return summed.reset_index()


def _measures_of_kind(kind: str, table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(kind=kind).reindex(columns=list(MEASURES))


def _advice_measures(report: Report) -> pd.DataFrame:
    """Return the advice; the text before its figures distinguishes advice of the same rule."""
    rows = [
        (finding.rule, _FIGURES.sub("#", finding.title.partition(": ")[0]), finding.gain_pct, finding.title)
        for finding in report.advice
    ]
    return pd.DataFrame(rows, columns=list(CAUSES)).astype({"gain_pct": "float64"})


def _gains(report: Report, repetitions: int) -> pd.DataFrame:
    gains = [(finding.rule, finding.gain_ns) for finding in report.advice]
    table = pd.DataFrame(gains, columns=["name", "value"]).astype({"value": "float64"})
    summed = table.groupby("name", sort=False)["value"].agg(["sum", "size"]).reset_index()
    return _measures_of_kind("cause", summed.assign(value=summed["sum"] / repetitions, count=summed["size"]))
