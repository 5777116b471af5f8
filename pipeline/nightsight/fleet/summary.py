"""The summary of one capture: numbers that can be added up, and the facts by which captures differ."""

from typing import Any

import pandas as pd

from nightsight.errors import CaptureError
from nightsight.events.kernel_labels import family_of
from nightsight.events.kernel_names import normalized
from nightsight.model.compare import STEP, UNPROFILED, Measures
from nightsight.model.fleet import SPLIT, TABLES, Summary, conform
from nightsight.model.history import Key
from nightsight.model.report import Report
from nightsight.results.entry import WHOLE
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.gpu_time import GPU_TIME, TIME_SPLIT
from nightsight.results.rules import LONE_RANK

_ENVIRONMENT = ("captured_utc", "commit", "gpu", "driver", "cuda", "cpu", "os", "python", "torch", "collector",
                "collector_version")  # fmt: skip
_SUMS = ("busy_ns", "kernels", "kernel_ns", "copies", "copy_ns", "copied_bytes")


def summary_of(report: Report, measured: Measures, capture: str, *, asked: str) -> Summary:
    """Summarize a report; `capture` is its digest, `asked` the window as on the command line.

    CaptureError if its numbers add up to more than int64 holds, as only those of a damaged file do.
    """
    gpu_ns = _sum(report.rows(GPU_TIME), "window_ns")
    tables = {
        "captures": pd.DataFrame([_facts(report, measured, asked, gpu_ns)]),
        "split": _split(report, measured),
        "causes": _advice_losses(report, gpu_ns),
        "kernels": _kernel_times(report),
    }
    for name, table in tables.items():
        for column in TABLES[name]:
            # conform converts them to integers again
            if column.type == WHOLE and not (table[column.name].astype("float64") < 2.0**63).all():
                raise CaptureError(f"its {column.name} is larger than any real one")
    # the first column is that of all tables
    return Summary({name: conform(table.assign(capture=capture), TABLES[name]) for name, table in tables.items()})


def _facts(report: Report, measured: Measures, asked: str, gpu_ns: int) -> dict[str, Any]:
    key, devices = Key.of(report.environment, report.conditions, report.parameters), report.rows(GPU_TIME)
    slowed = any(each.slowdowns for each in report.conditions)
    shared = any(each.is_shared for each in report.conditions)
    step, repetitions = measured.metric(STEP), measured.repetitions
    return {
        **{name: getattr(report.environment, name) for name in _ENVIRONMENT},
        "workload": measured.workload,
        "arguments": key.arguments,
        "mig": key.mig,
        "clocks": key.clocks,
        "disturbed": " and ".join([*["throttled"] * slowed, *["shared"] * shared]),
        "asked": asked,
        "lone": int(any(each.rule == LONE_RANK.name for each in report.findings)),
        "repeated": measured.family if repetitions else "",
        "repetitions": repetitions,
        "gpus": len(devices),
        "gpu_ns": gpu_ns,
        **{name: _sum(devices, name) for name in _SUMS},
        # the length of a window without repetitions is not a step
        "step_ns": step if repetitions else float("nan"),
        "unprofiled_step_ns": measured.metric(UNPROFILED),
    }


def _split(report: Report, measured: Measures) -> pd.DataFrame:
    split = report.rows(TIME_SPLIT)
    times = _floats(split, "category", ["time_ns"])["time_ns"] if len(split) else pd.Series(dtype="float64")
    rows = [
        (group, category, times[category], measured.metric(category) if measured.repetitions else float("nan"))
        for group, category in SPLIT
        if times.get(category, 0) > 0
    ]
    return pd.DataFrame(rows, columns=["group", "category", "time_ns", "step_ns"])


def _advice_losses(report: Report, gpu_ns: int) -> pd.DataFrame:
    rows = [
        (each.rule, each.cause or each.title, each.action, each.gain_pct, each.gain_pct / 100 * gpu_ns)
        for each in report.advice
        if each.gain_pct is not None
    ]
    return pd.DataFrame(rows, columns=["rule", "cause", "action", "gain_pct", "lost_ns"])


def _kernel_times(report: Report) -> pd.DataFrame:
    kernels = report.rows(CUDA_GPU_KERN_SUM)
    if not len(kernels):
        return pd.DataFrame(columns=["name", "family", "instances", "total_ns"])
    named = kernels.assign(name=kernels["name"].astype("str").map(normalized))
    summed = _floats(named, "name", ["instances", "total_ns"]).reset_index()
    ordered = summed.sort_values(["total_ns", "name"], ascending=[False, True])
    return ordered.assign(family=ordered["name"].map(family_of))


def _floats(table: pd.DataFrame, by: str, columns: list[str]) -> pd.DataFrame:
    """Return sums by group as floats: whole ones are exact up to 2^53, and the sum of larger ones may exceed int64."""
    return table.astype(dict.fromkeys(columns, "float64")).groupby(by)[columns].sum()


def _sum(table: pd.DataFrame, column: str) -> int:
    values = pd.to_numeric(table[column], errors="coerce").dropna().tolist() if column in table else []
    # Python's integers are of any size
    return sum(int(value) for value in values)
