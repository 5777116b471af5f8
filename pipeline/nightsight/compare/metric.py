"""A gate metric of a comparison: its values and their wording."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

import pandas as pd

from nightsight.model.compare import (
    ALLOCATIONS,
    COLLECTIVES,
    COPIES,
    COPYING,
    COUNTS,
    DIRECTIONS,
    EXPOSED,
    GRAPH_LAUNCHES,
    KERNELS,
    LAUNCHES,
    MEMSETS,
    STEP,
    SYNCS,
    UNPROFILED,
    Difference,
    Verdict,
    unit_of,
)
from nightsight.units import format_value, signed

CAN_BE_NONE: Final = (COPYING, EXPOSED, *COUNTS)
"""A program without any of these has 0 of them; they are then not reported."""
WORDS: Final = {
    UNPROFILED: "step time without the profiler",
    STEP: "step time",
    KERNELS: "GPU kernel time",
    EXPOSED: "exposed communication",
    COPYING: "copy time",
    LAUNCHES: "launches per step",
    GRAPH_LAUNCHES: "graph launches per step",
    MEMSETS: "memsets per step",
    COPIES: "copies per step",
    SYNCS: "synchronizing calls per step",
    ALLOCATIONS: "allocations and frees per step",
    COLLECTIVES: "collectives per step",
    **{f"{name}_copies": f"{direction} copies per step" for direction, name in DIRECTIONS.items()},
    **{f"{name}_bytes": f"{direction} bytes per step" for direction, name in DIRECTIONS.items()},
}


@dataclass(frozen=True)
class Metric:
    """A gate metric of the table of changes."""

    name: str
    baseline: float
    candidate: float
    change_pct: float
    low_pct: float
    high_pct: float
    most_pct: float
    most_by: str
    is_fact: bool
    verdict: Verdict
    needed_runs: float
    note: str

    @property
    def is_count(self) -> bool:
        """Whether it counts operations or bytes per step."""
        return self.name in COUNTS

    @property
    def is_known(self) -> bool:
        """Whether both sides measured it; 0 steps or kernels on both sides means nothing."""
        values = (self.baseline, self.candidate)
        return all(map(isfinite, values)) and (max(values) if self.name in CAN_BE_NONE else min(values)) > 0

    @property
    def delta(self) -> float:
        """The candidate's value minus the baseline's; a side without the metric counts as 0."""
        before, after = (value if isfinite(value) else 0.0 for value in (self.baseline, self.candidate))
        return after - before

    @property
    def words(self) -> str:
        """The name of the metric in a sentence."""
        return WORDS.get(self.name, self.name)

    def written(self, value: float, *, stem: str = "value") -> str:
        """Return a value of the metric with its unit."""
        unit = unit_of("gate", self.name)
        return format_value(value, f"{stem}_{unit}" if unit else stem)

    @property
    def change_text(self) -> str:
        """The metric with its change and interval: `step time +4.1 % (+3.2 to +5.0 %)`, `launches per step 40 → 60`."""
        sides = [value if isfinite(value) else 0.0 for value in (self.baseline, self.candidate)]
        if not any(sides):
            return f"{self.words} 0 on both sides"
        if self.is_fact:
            return f"{self.words} {' → '.join(dict.fromkeys(map(self.written, sides)))}"
        change = f"{signed(self.change_pct)} %" if all(sides) else "only on one side"
        interval = f" ({signed(self.low_pct)} to {signed(self.high_pct)} %)" if isfinite(self.low_pct) else ""
        by = f", {self.note}" if self.most_by and self.verdict in ("regressed", "improved") else ""
        return f"{self.words} {change}{interval}{by}"

    @property
    def estimated(self) -> str:
        """The metric with its change, by the most reliable estimate."""
        return self.bounded(0.0) if self.most_by and isfinite(self.most_pct) else self.change_text

    def bounded(self, allowed_pct: float, share: str = "") -> str:
        """Return its possible change: `step time within ±0.4 %`, `step time at most +3.1 % by its fastest steps`."""
        either, words = max(abs(self.low_pct), abs(self.high_pct)), self.words + share
        if not self.most_by and either <= allowed_pct:
            return f"{words} within ±{either:.1f} %"
        return " ".join(filter(None, (words, f"at most {signed(self.most_pct)} %", self.most_by)))

    def doubt(self, unlike: Sequence[Difference]) -> str:
        """Return why the metric is inconclusive, and what would settle it."""
        if incomparable := ", ".join(each.what for each in unlike if self.name in each.affects):
            return f"not comparable ({incomparable})"
        needed = f"{self.needed_runs:.0f} runs a side would settle it" if isfinite(self.needed_runs) else ""
        return self.note or needed


def metrics_of(changes: pd.DataFrame, names: Sequence[str]) -> list[Metric]:
    """Return the gate metrics of these names, in the order of the table."""
    gate = changes[(changes["kind"] == "gate") & changes["name"].isin(names)]
    columns = list(Metric.__dataclass_fields__)
    return [Metric(*row) for row in gate[columns].itertuples(index=False, name=None)]
