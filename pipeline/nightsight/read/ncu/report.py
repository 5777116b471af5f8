"""Reads .ncu-rep files into tables with NVIDIA's `ncu_report` module; nightsight.read.ncu.blocks detects damage.

The module itself reports success on files that are empty, truncated or not reports at all.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nightsight.captures import PROFILE_AGAIN
from nightsight.errors import CaptureError
from nightsight.model.report import Profile
from nightsight.read.ncu.blocks import Launch, read_blocks
from nightsight.read.ncu.library import Dump, dump
from nightsight.read.ncu.lines import instructions
from nightsight.read.ncu.model import METRIC_COLUMNS, clean, in_base_units, ncu_profile, plain_message, range_path
from nightsight.tables import SHAPE, TABLES, Frame

_KINDS: Final = {1: "info", 2: "optimization", 3: "warning", 4: "error"}
_SPEEDUPS: Final = {1: "local", 2: "global"}


def read_ncu_report(path: Path) -> Profile:
    """Read a .ncu-rep file; CaptureError if it is damaged or truncated, ToolError if there is no module to read it.

    A flipped bit in a number or a text is not detected, nor is a file cut exactly after a launch: the format has no
    checksums and no launch count.
    """
    blocks = read_blocks(path)
    dumped = dump(path)
    _refuse_unless_same(path, dumped, blocks.launches)
    try:
        pairs = enumerate(zip(dumped, blocks.launches, strict=True))
        launches = [_launch(number, read, launch) for number, (read, launch) in pairs]
        metrics = [_metric(number, *metric) for number, read in enumerate(dumped) for metric in read["metrics"]]
        rules = [_rule(number, rule) for number, read in enumerate(dumped) for rule in read["rules"]]
        tables = {
            "profiled_launches": Frame(launches),
            "kernel_metrics": in_base_units(Frame(metrics, columns=METRIC_COLUMNS)),
            "kernel_rules": Frame(rules, columns=list(TABLES["kernel_rules"])),
            "kernel_lines": instructions(dumped),
        }
        missing = {"diagnostics": "ncu does not store its warnings in the report"}
        return ncu_profile(tables, missing, blocks.environment)
    except OverflowError as error:
        raise CaptureError(f"{path.name} is damaged: a number in it is out of range", PROFILE_AGAIN) from error


def _refuse_unless_same(path: Path, dumped: Dump, launches: Sequence[Launch]) -> None:
    """Raise CaptureError unless the module read the whole file: it silently drops parts that it cannot read.

    A launch that it cannot read at all has neither a name nor metrics.
    """
    agree = len(dumped) == len(launches) and all(
        (read["name"] is not None and read["names"] > 0)
        and (launch.metrics is None or (launch.metrics, launch.function) == (read["names"], read["function"]))
        for read, launch in zip(dumped, launches, strict=True)
    )
    if not agree:
        raise CaptureError(
            f"{path.name} is damaged: NVIDIA's ncu_report module reads other launches or metrics than the file "
            "contains",
            PROFILE_AGAIN,
        )


def _launch(number: int, read: Mapping[str, Any], launch: Launch) -> dict[str, object]:
    numbers = {
        metric: value
        for metric, instance, value, _ in read["metrics"]
        if not instance and isinstance(value, int | float) and math.isfinite(value)
    }
    major, minor = (numbers.get(f"device__attribute_compute_capability_{part}") for part in ("major", "minor"))
    return {
        "launch": number,
        "kind": launch.kind,
        "process": launch.pid,
        "pid": launch.pid,
        "device": int(numbers.get("launch__device_id", numbers.get("device__attribute_device_index", 0))),
        "context": launch.context,
        "stream": launch.stream,
        "name": clean(read["name"]),
        "short_name": clean(read["function"]),
        "mangled_name": clean(read["mangled"]),
        "range_path": range_path((clean(domain), clean(name)) for domain, name in read["ranges"]),
        "compute_capability": f"{major:.0f}.{minor:.0f}" if major is not None and minor is not None else "",
        **dict(zip(SHAPE, (*launch.grid, *launch.block), strict=True)),
    }


def _metric(launch: int, name: str, instance: str, value: float | str | None, unit: str) -> tuple[object, ...]:
    """Return a row of METRIC_COLUMNS."""
    number, text = (math.nan, value) if isinstance(value, str | None) else (float(value), "")
    return launch, clean(name), clean(instance), number, clean(unit), clean(text)


def _rule(launch: int, rule: Mapping[str, Any]) -> dict[str, object]:
    return {
        "launch": launch,
        **{key: clean(rule[key]) for key in ("section", "rule", "name", "title")},
        "kind": _KINDS.get(rule["type"], "info"),
        "message": plain_message(clean(rule["message"])),
        "speedup_kind": _SPEEDUPS.get(rule["speedup_type"], ""),
        "speedup_pct": speedup if (speedup := rule["speedup_pct"]) is not None and math.isfinite(speedup) else None,
    }
