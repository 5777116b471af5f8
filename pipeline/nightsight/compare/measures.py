"""One number per run for everything that is compared: what a repetition of the step takes, from a Report alone.

Instances of a kernel are no replicates: what differs from process to process is the same for all instances of one. So a
run counts once, with the median over its repetitions, which forgets the odd slow one.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import pandas as pd

from nightsight.comparison import COPIES, COPYING, EXPOSED, KERNELS, LAUNCHES, MEASURES, STEP, UNPROFILED, Measures
from nightsight.events.kernel_kinds import family
from nightsight.events.kernel_names import normalised
from nightsight.model import Report, View
from nightsight.results import (
    COMMUNICATION,
    CPU_OPS,
    CUDA_API_SUM,
    CUDA_GPU_KERN_SUM,
    GPU_TIME,
    MEMORY_OPERATIONS,
    RANGE_ITERATIONS,
    REPLAY,
    STEP_SPLIT,
    STEP_WORK,
    TIME_SPLIT,
    WHOLE_STEP,
)

CAUSES: Final = ("rule", "name", "gain_pct", "title")
_NUMBERS: Final = ("count", "value", "spread")
_FIGURES: Final = re.compile(r"(?<![A-Za-z\d])\d[\d,.]*(?![A-Za-z])")


def measures(  # noqa: PLR0913 (all by name)
    report: Report, *, source: str = "", started: str = "", series: str = "", side: str = "", order: int = -1
) -> Measures:
    """Return what a run measured; `started` is the time of the capture if not given."""
    view = next((view for view in report.windows if view.is_chosen), None)
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
        causes=_causes(report),
    )


def _gate(report: Report, view: View | None) -> pd.DataFrame:
    """Return the gate metrics that the report has."""
    repetitions = (view.repetitions if view else 0) or 1
    metrics = {**_step(report, view), **_unprofiled(report), **_gpu(report, repetitions)}
    if COMMUNICATION in metrics:
        metrics[EXPOSED] = metrics[COMMUNICATION]
    return _rows("gate", pd.DataFrame({"name": list(metrics), "value": list(metrics.values())}))


def _step(report: Report, view: View | None) -> dict[str, float]:
    """Return the time of a step and of its categories: means over the devices, of medians over the repetitions."""
    split, whole = report.rows(STEP_SPLIT), report.rows(TIME_SPLIT)
    # without a device it is the CPU whose steps these are
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
    """Return time and number of operations, of all devices. A graph that was traced as a whole counts as kernels."""
    devices, work = report.rows(GPU_TIME), report.rows(STEP_WORK)
    if not len(devices):
        return {}
    sums = {name: float(devices[name].sum()) / repetitions for name in (KERNELS, "graph_ns", COPYING, COPIES, LAUNCHES)}
    found = {KERNELS: sums[KERNELS] + sums["graph_ns"], **{name: sums[name] for name in (COPYING, COPIES, LAUNCHES)}}
    if len(work):
        # medians over the repetitions
        is_copy = (work["kind"] == "copy") & (work["name"] != "memset")
        found[KERNELS] = float(work.loc[work["kind"] == "kernel", "time_ns"].sum())
        found[COPYING], found[COPIES] = (float(work.loc[is_copy, name].sum()) for name in ("time_ns", "count"))
    return found


def _groups(report: Report, repetitions: int) -> Iterator[pd.DataFrame]:
    """Yield kernels, their families, copies, API calls, operators and ranges."""
    work = report.rows(STEP_WORK)
    if len(work):
        groups = work.rename(columns={"time_ns": "value"}).assign(spread=work["time_ns"] / work["count"])
    else:
        groups = _totals(report, repetitions)
    for kind, mine in groups.groupby("kind", sort=True):
        if kind == "kernel":
            yield _rows("kernel", _added_up(mine, mine["name"].map(_normalised)))
            yield _rows("family", _added_up(mine, mine["name"].map(_family)).assign(place=""))
        else:
            yield _rows("api" if kind == "call" else str(kind), _added_up(mine, mine["name"]))


_normalised = cache(normalised)
_family = cache(family)


def _totals(report: Report, repetitions: int) -> pd.DataFrame:
    """Return the groups of a report that does not say what is in a step: those of the capture, by repetition."""
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
    found = [
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
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=MEASURES)


def _added_up(groups: pd.DataFrame, names: "pd.Series[str]") -> pd.DataFrame:
    """Add up groups of one name; spread and place are those of the largest."""
    ordered = groups.assign(name=names).sort_values("value", ascending=False, kind="stable")
    first = [name for name in ("spread", "place") if name in groups]
    summed = ordered.groupby("name", sort=False).agg({"count": "sum", "value": "sum", **dict.fromkeys(first, "first")})
    return summed.reset_index()


def _rows(kind: str, table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(kind=kind).reindex(columns=list(MEASURES))


def _causes(report: Report) -> pd.DataFrame:
    """Return the advice; what it says before its figures tells it from other advice of the same rule."""
    advice = [finding for finding in report.findings if finding.severity == "advice"]
    rows = [
        (finding.rule, _FIGURES.sub("#", finding.title.partition(": ")[0]), finding.gain_pct, finding.title)
        for finding in advice
    ]
    return pd.DataFrame(rows, columns=list(CAUSES)).astype({"gain_pct": "float64"})


def _gains(report: Report, repetitions: int) -> pd.DataFrame:
    gains = [(finding.rule, finding.gain_ns) for finding in report.findings if finding.severity == "advice"]
    table = pd.DataFrame(gains, columns=["name", "value"]).astype({"value": "float64"})
    summed = table.groupby("name", sort=False)["value"].agg(["sum", "size"]).reset_index()
    return _rows("cause", summed.assign(value=summed["sum"] / repetitions, count=summed["size"]))
