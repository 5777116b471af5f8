"""Compares counts per step. A count on which all runs of a side agree is a fact, which needs no test."""

from collections.abc import Mapping
from typing import Final, Literal

import numpy as np

from nightsight.compare.statistics import LEAST_RUNS
from nightsight.intervals import Floats
from nightsight.model.compare import COUNTS, GRAPH_LAUNCHES, LAUNCHES, MEMSETS, WITHIN_GPU, unit_of

Fact = Literal["", "equal", "more", "fewer"]

# events at the ends of the window, such as a last synchronization, are in some runs and not in others
_AT_THE_ENDS: Final = 2.0
_LEAST_BYTES: Final = 4096.0
_EXCHANGEABLE: Final = (LAUNCHES, GRAPH_LAUNCHES, MEMSETS, WITHIN_GPU)
"""Each costs the host about the same, and the GPU little, so fewer of one offset more of another."""


def fact(name: str, before: Floats, after: Floats, *, repetitions: float, least_pct: float) -> Fact:
    """Return how a count per step changed, "" if it is not a fact: a run lacks it, or the runs of a side differ.

    `repetitions`: the fewest steps of a run. Bytes may differ by `least_pct` or a few bytes; launches may not differ.
    """
    if name not in COUNTS or min(len(before), len(after)) < LEAST_RUNS:
        return ""
    counts = np.concatenate([before, after])
    if not np.isfinite(counts).all():
        return ""
    is_size = unit_of("gate", name) == "bytes"
    slack = _AT_THE_ENDS / repetitions * (float(counts.max()) if is_size else 1.0)
    if max(np.ptp(before), np.ptp(after)) > slack:
        return ""
    least = max(slack, _LEAST_BYTES, least_pct / 100 * float(counts.max())) if is_size else slack
    if after.min() - before.max() > least:
        return "more"
    return "fewer" if before.min() - after.max() > least else "equal"


def offset_counts(grown: Mapping[str, float]) -> frozenset[str]:
    """Return the counts whose growth is offset by others of their kind; `grown`: by how much each fact grew."""
    kind = {name: growth for name, growth in grown.items() if name in _EXCHANGEABLE}
    more = {name for name, growth in kind.items() if growth > 0}
    return frozenset(more if sum(kind.values()) <= 0 else ())
