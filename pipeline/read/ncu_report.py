"""What NVIDIA's `ncu_report` library makes of a .ncu-rep file, as tables; damage is found by pipeline.read.ncu_blocks.

The library reports success on files that are empty, cut off or not reports at all.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pandas as pd

from pipeline.errors import CaptureError
from pipeline.model import Environment, Profile
from pipeline.read.ncu_blocks import Blocks, Launch, read_blocks
from pipeline.read.ncu_library import Native, library
from pipeline.read.ncu_lines import instructions
from pipeline.read.ncu_model import METRIC_COLUMNS, SHAPE, clean, in_base_units, plain_message, profile, range_path
from pipeline.tables import TABLES

Frame = pd.DataFrame

# lists of the names of other metrics
_LISTS: Final = ("group:", "breakdown:")
_KINDS: Final = {1: "info", 2: "optimization", 3: "warning", 4: "error"}
_SPEEDUPS: Final = {1: "local", 2: "global"}
_DIFFERS: Final = "the ncu_report library reads another number of launches or metrics from it than it holds"
_HINT: Final = "profile or copy it again; a newer ncu-report may read what a newer ncu wrote"


def read_ncu_report(path: Path) -> Profile:
    """Read a .ncu-rep file; CaptureError if it is damaged or cut off, ToolError if there is no library to read it with.

    What cannot be found is a bit that flips inside a number or a text, and the loss of all launches after some launch:
    the format has no checksums and no count of its launches.
    """
    blocks = read_blocks(path)
    # context and ranges own what the actions are made of: without a reference to them, memory in use is freed
    context = library().load_report(str(path))
    ranges = [context.range_by_idx(place) for place in range(context.num_ranges())]
    actions = _actions(path, ranges, blocks)
    tables = {
        "profiled_launches": _launches(actions, blocks.launches),
        "kernel_metrics": _metrics(actions),
        "kernel_rules": _rules(actions),
        "kernel_lines": instructions(actions),
    }
    session = blocks.session
    environment = Environment(
        collector="ncu",
        collector_version=session.ncu,
        captured_utc=session.captured_utc,
        cuda=session.cuda,
        cpu=session.cpu,
        os=session.os,
    )
    return profile(tables, {"diagnostics": "ncu keeps its warnings out of its report"}, environment)


def _actions(path: Path, ranges: Sequence[Native], blocks: Blocks) -> list[Native]:
    """Return what the library found; CaptureError unless it is what the file holds."""
    actions = [part.action_by_idx(place) for part in ranges for place in range(part.num_actions())]
    agree = len(actions) == len(blocks.launches) and all(
        launch.metrics is None or (launch.metrics, launch.function) == (len(action.metric_names()), action.name())
        for action, launch in zip(actions, blocks.launches, strict=True)
    )
    if not agree:
        raise CaptureError(f"{path.name} is damaged: {_DIFFERS}", _HINT)
    return actions


def _launches(actions: Sequence[Native], launches: Sequence[Launch]) -> Frame:
    rows: list[dict[str, object]] = []
    for action, launch in zip(actions, launches, strict=True):
        sizes = zip(SHAPE, (*launch.grid, *launch.block), strict=True)
        rows.append(
            {
                "launch": len(rows),
                "kind": launch.kind,
                "process": launch.pid,
                "pid": launch.pid,
                "device": int(_number(action, "launch__device_id", "device__attribute_device_index")),
                "context": launch.context,
                "stream": launch.stream,
                "name": clean(action.name(action.NameBase_DEMANGLED)),
                "short_name": clean(action.name(action.NameBase_FUNCTION)),
                "mangled_name": clean(action.name(action.NameBase_MANGLED)),
                "range_path": _path(action),
                "compute_capability": _capability(action),
                **dict(sizes),
            }
        )
    return Frame(rows)


def _number(action: Native, *names: str) -> float:
    """Return the first of the metrics `names` that was collected, 0 if none was."""
    metrics = (action.metric_by_name(name) for name in names)
    return next((metric.as_double() for metric in metrics if metric is not None), 0.0)


def _capability(action: Native) -> str:
    major, minor = (_number(action, f"device__attribute_compute_capability_{part}") for part in ("major", "minor"))
    return f"{major:.0f}.{minor:.0f}" if major else ""


def _path(action: Native) -> str:
    """The push/pop ranges around a launch: nested within a domain, and the domains in the order of their numbers."""
    state = action.nvtx_state()
    if state is None:
        return ""
    domains = [state.domain_by_id(number) for number in state.domains()]
    return range_path((clean(each.name()), clean(name)) for each in domains for name in each.push_pop_ranges())


def _metrics(actions: Sequence[Native]) -> Frame:
    rows = [row for launch, action in enumerate(actions) for row in _of_launch(launch, action)]
    return in_base_units(Frame(rows, columns=METRIC_COLUMNS))


def _of_launch(launch: int, action: Native) -> list[tuple[int, str, str, float, str, str]]:
    """The metrics of a launch as rows of METRIC_COLUMNS."""
    rows = []
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        if name.startswith(_LISTS) or not metric.has_value():
            continue
        value, unit = metric.value(), metric.unit()
        is_text = isinstance(value, str)
        rows.append((launch, name, "", math.nan if is_text else float(value), unit, clean(value) if is_text else ""))
        rows += [(launch, name, part, number, unit, "") for part, number in _instances(metric).items()]
    return rows


def _instances(metric: Native) -> Mapping[str, float]:
    """Return the parts of a metric that have names (opcodes); not those per address, or per step of a curve."""
    if not metric.num_instances() or not metric.has_correlation_ids():
        return {}
    ids = metric.correlation_ids()
    if ids.kind() != ids.ValueKind_STRING:
        return {}
    return {clean(ids.as_string(place)): metric.as_double(place) for place in range(metric.num_instances())}


def _rules(actions: Sequence[Native]) -> Frame:
    rows = [
        _rule(launch, rule)
        for launch, action in enumerate(actions)
        for rule in action.rule_results()
        if rule.has_rule_message()
    ]
    return Frame(rows, columns=list(TABLES["kernel_rules"]))


def _rule(launch: int, rule: Native) -> dict[str, object]:
    message = rule.rule_message()
    speedup = rule.speedup_estimation() if rule.has_speedup_estimation() else {"type": 0, "speedup": math.nan}
    return {
        "launch": launch,
        "section": clean(rule.section_identifier()),
        "rule": clean(rule.rule_identifier()),
        "name": clean(rule.name()),
        "title": clean(message["title"]),
        "kind": _KINDS.get(int(message["type"]), "info"),
        "message": plain_message(clean(message["message"])),
        "speedup_kind": _SPEEDUPS.get(int(speedup["type"]), ""),
        "speedup_pct": speedup["speedup"],
    }
