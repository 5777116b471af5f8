"""Measures of made-up runs, for tests of comparisons."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from nightsight.model.compare import MEASURES, Measures
from nightsight.model.report import Conditions, Environment


def run(
    gate: Mapping[str, float] | None = None,
    kernels: Mapping[str, tuple[float, float]] | None = None,
    *,
    places: Mapping[str, str] | None = None,
    **facts: Any,
) -> Measures:
    """Return a run with gate metrics, and kernels as (count, ns of a step)."""
    rows: list[tuple[Any, ...]] = [("gate", name, None, value, None, "") for name, value in (gate or {}).items()]
    rows += [
        ("kernel", name, count, value, value / count if count else None, (places or {}).get(name, ""))
        for name, (count, value) in (kernels or {}).items()
    ]
    table = pd.DataFrame(rows, columns=list(MEASURES))
    table = table.astype({"count": "float64", "value": "float64", "spread": "float64"})
    usual: dict[str, Any] = {
        "source": "a run",
        "workload": "mlp",
        "environment": Environment(collector="nsys", gpu="H200"),
        "window": "measure",
        "family": "step #",
        "repetitions": 100,
    }
    return Measures(table=table, **{**usual, **facts})


def side(values: Sequence[float], name: str = "step_ns", **facts: Any) -> list[Measures]:
    """Return a run for each value of a gate metric."""
    return [run({name: value}, **facts) for value in values]


def hot(reason: str = "HwThermalSlowdown", **others: Any) -> tuple[Conditions, ...]:
    """Return the conditions of a run that was throttled."""
    return (Conditions(device=0, throttled=(reason,), **others),)
