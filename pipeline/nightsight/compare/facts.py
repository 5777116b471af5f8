"""How often a step does something. A count on which all runs of a side agree is a fact, which needs no test."""

from collections.abc import Mapping
from typing import Final, Literal

import numpy as np

from nightsight.compare.statistics import LEAST_RUNS, Floats
from nightsight.model.compare import COUNTS, GRAPH_LAUNCHES, LAUNCHES, MEMSETS, WITHIN_GPU, unit_of

Fact = Literal["", "equal", "more", "fewer"]

# what begins or ends with the window is in some runs and not in others, such as a last synchronization
_AT_THE_ENDS: Final = 2.0
_LEAST_BYTES: Final = 4096.0
_EXCHANGEABLE: Final = (LAUNCHES, GRAPH_LAUNCHES, MEMSETS, WITHIN_GPU)
"""Each costs the host about as much, and the GPU little: fewer of one make up for more of another."""


def fact(name: str, before: Floats, after: Floats, *, repetitions: float, least_pct: float) -> Fact:
    """Return what became of a count a step, "" if it is not a fact: not all runs know it, or those of a side differ.

    `repetitions`: the fewest steps of a run. Bytes may differ by `least_pct` or a few; one launch more is one more.
    """
    if name not in COUNTS or min(len(before), len(after)) < LEAST_RUNS:
        return ""
    every = np.concatenate([before, after])
    if not np.isfinite(every).all():
        return ""
    is_size = unit_of("gate", name) == "bytes"
    slack = _AT_THE_ENDS / repetitions * (float(every.max()) if is_size else 1.0)
    if max(np.ptp(before), np.ptp(after)) > slack:
        return ""
    least = max(slack, _LEAST_BYTES, least_pct / 100 * float(every.max())) if is_size else slack
    if after.min() - before.max() > least:
        return "more"
    return "fewer" if before.min() - after.max() > least else "equal"


def made_up_for(grown: Mapping[str, float]) -> frozenset[str]:
    """Return the counts that grew while others of their kind fell by as much; `grown`: by how much each fact grew."""
    kind = {name: moved for name, moved in grown.items() if name in _EXCHANGEABLE}
    more = {name for name, moved in kind.items() if moved > 0}
    return frozenset(more if sum(kind.values()) <= 0 else ())
