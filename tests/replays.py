"""Profiles as ncu's reports give them, made up launch by launch, and joined with drawn timelines."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pandas as pd

from nightsight.analyze.replay.kernels import ncu_kernels
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.tables import conform, empty

Metrics = Mapping[str, float | str | Mapping[str, float]]
_SHAPES = [f"{kind}_{axis}" for kind in ("grid", "block") for axis in "xyz"]


def launch(
    name: str = "a",
    metrics: Metrics = MappingProxyType({}),
    *,
    grid: int = 1,
    block: int = 1,
    rules: Any = (),
    lines: Any = (),
    **facts: Any,
) -> dict[str, Any]:
    """Describe a launch; a metric is a number, a text, or numbers by instance. Kernels that are drawn have size 1."""
    shape = {**dict.fromkeys(_SHAPES, 1), "grid_x": grid, "block_x": block}
    columns = {"name": name, "short_name": name, "kind": "kernel", "device": 0, "range_path": "", **shape, **facts}
    return {"columns": columns, "metrics": metrics, "rules": rules, "lines": lines}


def rule(
    name: str = "Rule", speedup_pct: float | None = 50.0, *, kind: str = "optimization", **facts: Any
) -> dict[str, Any]:
    """Describe what a rule said: an estimate for the whole kernel, if not said otherwise."""
    speedup_kind = "" if speedup_pct is None else "global"
    texts = {"section": "S", "name": name, "title": f"{name} title", "message": f"{name} says", "kind": kind}
    return {"rule": name, **texts, "speedup_kind": speedup_kind, "speedup_pct": speedup_pct, **facts}


def line(samples: int | None, stall: str = "", *, number: int | None = 1, **facts: Any) -> dict[str, Any]:
    """Describe an instruction; `stall` was the state of all of its samples."""
    place = {"file": "k.cu" if number else "", "line": number, "source": "x = y;" if number else "", "sass": "MOV"}
    return {
        **place,
        "pc_bytes": 0,
        "samples": samples,
        "stall": stall,
        "stall_samples": samples if stall else 0,
        **facts,
    }


def replayed(*launches: dict[str, Any]) -> Profile:
    """Make the profile that a report of these launches would give."""
    columns = [{**_IDENTITY, "launch": number, **each["columns"]} for number, each in enumerate(launches)]
    metrics = [row for number, each in enumerate(launches) for row in _metrics(number, each["metrics"])]
    rules, lines = (
        [{"launch": number, **row} for number, each in enumerate(launches) for row in each[kind]]
        for kind in ("rules", "lines")
    )
    return Profile(
        {
            "profiled_launches": _table("profiled_launches", columns),
            "kernel_metrics": _table("kernel_metrics", metrics),
            "kernel_rules": _table("kernel_rules", rules),
            "kernel_lines": _table("kernel_lines", lines),
        }
    )


def joined(timeline: Profile, *launches: dict[str, Any]) -> Timeline:
    """Join a timeline with a report."""
    return Timeline(Profile({**timeline.tables, **replayed(*launches).tables}))


def alone(*launches: dict[str, Any]) -> Timeline:
    """Make a report without a timeline."""
    return Timeline(replayed(*launches))


_IDENTITY = {
    **dict.fromkeys(("process", "pid"), 5),
    **dict.fromkeys(("context", "stream"), 1),
    **dict.fromkeys(("mangled_name", "compute_capability"), ""),
}


def _metrics(number: int, metrics: Metrics) -> list[dict[str, Any]]:
    rows = []
    for name, value in metrics.items():
        for instance, amount in value.items() if isinstance(value, Mapping) else [("", value)]:
            is_text = isinstance(amount, str)
            figures = {"value": float("nan") if is_text else amount, "text": amount if is_text else ""}
            rows.append({"launch": number, "metric": name, "instance": instance, "unit": "", **figures})
    return rows


def _table(name: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    return conform(name, pd.DataFrame(rows)) if rows else empty(name)


def row(timeline: Timeline) -> dict[str, Any]:
    """Return the figures of the only replayed launch."""
    table = ncu_kernels(timeline).frame
    assert len(table) == 1
    return dict(table.iloc[0])


def column(timeline: Timeline, name: str) -> list[Any]:
    """Return one figure of all replayed launches."""
    return list(ncu_kernels(timeline).frame[name])
