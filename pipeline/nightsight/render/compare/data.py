"""A comparison as JSON (docs/statistics.md), with the gate metrics of all runs."""

import json
from dataclasses import asdict
from math import inf
from typing import Any, Final

import pandas as pd

from nightsight.model.compare import Comparison, Measures
from nightsight.version import VERSION

COMPARISON_FORMAT: Final = 1


def comparison_json(comparison: Comparison) -> str:
    """Return the comparison as JSON; the same input gives the same bytes."""
    document = {
        "format": COMPARISON_FORMAT,
        "generator": f"nightsight {VERSION}",
        "workload": comparison.workload,
        "verdict": comparison.verdict,
        "sentence": comparison.sentence,
        "decision": asdict(comparison.decision),
        "is_paired": comparison.is_paired,
        "least_pct": comparison.least_pct,
        "same_pct": comparison.same_pct,
        "noise": comparison.noise,
        "notes": comparison.notes,
        "differences": [asdict(difference) for difference in comparison.differences],
        "changes": _table_json(comparison.changes),
        "causes": _table_json(comparison.causes),
        "baseline": [_run(run) for run in comparison.baseline],
        "candidate": [_run(run) for run in comparison.candidate],
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False, default=dict) + "\n"


def _run(run: Measures) -> dict[str, Any]:
    gate = run.table[run.table["kind"] == "gate"]
    values = {str(name): value for name, value in _plain(gate[["name", "value"]])}
    facts = {name: value for name, value in vars(run).items() if name not in ("table", "causes", "environment")}
    records = [asdict(condition) for condition in run.conditions]
    conditions = [dict(zip(record, _plain(pd.DataFrame([record]))[0], strict=True)) for record in records]
    pace = {name: asdict(pace) for name, pace in run.pace.items()}
    return {**facts, "environment": asdict(run.environment), "conditions": conditions, "gate": values, "pace": pace}


def _table_json(table: pd.DataFrame) -> dict[str, Any]:
    return {"columns": list(table.columns), "rows": _plain(table)}


def _plain(table: pd.DataFrame) -> list[list[Any]]:
    """Return the rows with None for NaN and infinity, which JSON does not have."""
    cells = table.astype(object)
    rows: list[list[Any]] = cells.where(cells.notna() & ~cells.isin([inf, -inf]), None).to_numpy().tolist()
    return rows
