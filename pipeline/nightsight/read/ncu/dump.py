"""Writes the launches that NVIDIA's `ncu_report` module reads from a .ncu-rep file as JSON. Runs in a separate process.

The module of 2025.3 and pyarrow crash in one process (their C++ libraries share symbols), and a damaged file must not
crash nightsight. So this program imports only the standard library; nightsight.read.ncu.library runs it.
"""

import importlib
import json
import sys
from typing import Any, Final

ABSENT: Final = 3
"""The exit status if the module cannot be imported."""
MODULE: Final = "ncu_report"
EXECUTED: Final = "inst_executed"
SAMPLES: Final = "smsp__pcsamp_sample_count"
STALLED: Final = "smsp__pcsamp_warps_issue_stalled_"
# prefixes of metrics whose values are lists of other metrics
_LISTS: Final = ("group:", "breakdown:")

Native = Any
"""An object of the module, which has no type annotations."""


def launches(module: Native, report: str) -> list[dict[str, Any]]:
    """Return the data of each launch in the report."""
    # keep references to context and ranges: they own the actions, whose memory would otherwise be freed
    context = module.load_report(report)
    ranges = [context.range_by_idx(index) for index in range(context.num_ranges())]
    return [_launch(actions.action_by_idx(index)) for actions in ranges for index in range(actions.num_actions())]


def _launch(action: Native) -> dict[str, Any]:
    names = list(action.metric_names())
    return {
        "name": action.name(action.NameBase_DEMANGLED),
        "function": action.name(action.NameBase_FUNCTION),
        "mangled": action.name(action.NameBase_MANGLED),
        "ranges": _ranges(action.nvtx_state()),
        "names": len(names),
        "metrics": [row for name in names if not name.startswith(_LISTS) for row in _metric(action, name)],
        "rules": [_rule(rule) for rule in action.rule_results() if rule.has_rule_message()],
        **_instructions(action, names),
    }


def _ranges(state: Native) -> list[tuple[str, str]]:
    """Return (domain, name) of each push/pop range: by domain in the order of their ids, outermost range first."""
    domains = [state.domain_by_id(number) for number in state.domains()] if state else []
    return [(domain.name(), name) for domain in domains for name in domain.push_pop_ranges()]


def _metric(action: Native, name: str) -> list[tuple[str, str, float | str, str]]:
    """Return (name, instance, value, unit) of a metric, and of its instances if they have names (opcodes)."""
    metric = action.metric_by_name(name)
    if not metric.has_value():
        return []
    unit = metric.unit()
    rows = [(name, "", metric.value(), unit)]
    if metric.num_instances() and metric.has_correlation_ids():
        ids = metric.correlation_ids()
        if ids.kind() == ids.ValueKind_STRING:
            indices = range(metric.num_instances())
            rows += [(name, ids.as_string(index), metric.as_double(index), unit) for index in indices]
    return rows


def _rule(rule: Native) -> dict[str, Any]:
    message = rule.rule_message()
    speedup: dict[str, Any] = {"type": 0, "speedup": None}
    if rule.has_speedup_estimation():
        speedup = rule.speedup_estimation()
    return {
        "section": rule.section_identifier(),
        "rule": rule.rule_identifier(),
        "name": rule.name(),
        "title": message["title"],
        "message": message["message"],
        "type": int(message["type"]),
        "speedup_type": int(speedup["type"]),
        "speedup_pct": speedup["speedup"],
    }


def _instructions(action: Native, names: list[str]) -> dict[str, Any]:
    """Return counters per address, and the code at each address: instruction, file, line and source text.

    Only for kernels: the module crashes on the code of a range or graph with kernels of several modules.
    """
    if hasattr(action, "workload_type") and action.workload_type() != action.WorkloadType_KERNEL:
        return {"counters": {}, "code": []}
    names = [name for name in names if name in (EXECUTED, SAMPLES) or name.startswith(STALLED)]
    counters = {name: _per_address(action.metric_by_name(name)) for name in names}
    contents = {file: text.splitlines() for file, text in dict(action.source_files()).items()}
    addresses = sorted({address for counter in counters.values() for address, _ in counter})
    return {"counters": counters, "code": [_code(action, address, contents) for address in addresses]}


def _per_address(metric: Native) -> list[tuple[int, int]]:
    if not metric.has_correlation_ids():
        return []
    ids = metric.correlation_ids()
    return [(ids.as_uint64(index), metric.as_uint64(index)) for index in range(metric.num_instances())]


def _code(action: Native, address: int, contents: dict[str, list[str]]) -> tuple[int, str, str, int, str]:
    source = action.source_info(address)
    file, line = (source.file_name(), source.line()) if source else ("", 0)
    lines = contents.get(file, [])
    return address, action.sass_by_pc(address), file, line, lines[line - 1] if 0 < line <= len(lines) else ""


def main(report: str, folder: str = "") -> int:
    """Write the launches of `report` to standard output, using the module in `folder` if given."""
    if folder:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(MODULE)
    except (ImportError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return ABSENT
    json.dump(launches(module, report), sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
