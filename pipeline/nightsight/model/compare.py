"""The values of a comparison: the measures of one run, and the changes between two sides of runs.

`Measures` has one number per run for each measure. These come from a Report alone, so that run folders, report.json
files and raw captures can be compared in the same way, and the history keeps the same numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import pandas as pd

from nightsight.model.report import Conditions, Environment
from nightsight.results.categories import BUSY, IDLE
from nightsight.units import split

Verdict = Literal["regressed", "improved", "unchanged", "inconclusive", "added", "removed"]
"""unchanged: equivalence was shown. inconclusive: neither a change nor equivalence."""

STEP: Final = "step_ns"
UNPROFILED: Final = "unprofiled_step_ns"
KERNELS: Final = "kernel_ns"
COPYING: Final = "copy_ns"
COPIES: Final = "copies"
LAUNCHES: Final = "launches"
GRAPH_LAUNCHES: Final = "graph_launches"
MEMSETS: Final = "memsets"
SYNCS: Final = "synchronizing_calls"
ALLOCATIONS: Final = "allocations"
COLLECTIVES: Final = "collectives"
EXPOSED: Final = "exposed_communication_ns"
DIRECTIONS: Final[Mapping[str, str]] = {
    name: name.lower().replace("-", "_")
    for name in ("Host-to-Device", "Device-to-Host", "Device-to-Device", "Peer-to-Peer", "Host-to-Host")
}
"""The directions of copies in the names of gate metrics: `host_to_device_copies`, `..._bytes`."""
WITHIN_GPU: Final = f"{DIRECTIONS['Device-to-Device']}_copies"
COUNTS: Final = (
    LAUNCHES,
    GRAPH_LAUNCHES,
    MEMSETS,
    *(f"{name}_copies" for name in DIRECTIONS.values()),
    COPIES,
    SYNCS,
    ALLOCATIONS,
    COLLECTIVES,
    *(f"{name}_bytes" for name in DIRECTIONS.values()),
)
"""Counts of operations and copied bytes per step. If all runs of a side agree, they need no test."""
GATE: Final = (UNPROFILED, STEP, KERNELS, EXPOSED, COPYING, *COUNTS)
"""The gate metrics, the most important first; the categories of a step are gate metrics too."""

KINDS: Final = ("gate", "kernel", "family", "range", "operator", "copy", "api", "cause")
"""gate: metrics that a gate can decide on, such as step_ns; the others have the names of a report."""

MEASURES: Final = ("kind", "name", "count", "value", "spread", "place")
"""Columns of `Measures.table`, for one repetition of the step (or the whole window, if nothing repeats).

kind TEXT, name TEXT; count NUMBER: how often in a repetition; value NUMBER: in the unit of `unit_of(kind, name)`, for
all but gate metrics nanoseconds a repetition; spread NUMBER: the time of a single launch or call, in nanoseconds, or
NaN; place TEXT: of kernels, the ranges and the operator in which most of its time is launched, or "".
"""

CHANGES: Final = (
    "kind", "name", "baseline", "candidate", "change_pct", "low_pct", "high_pct", "most_pct", "most_by", "p",
    "is_fact", "verdict", "needed_runs", "baseline_count", "candidate_count", "count_part", "time_part", "note",
)  # fmt: skip
"""Columns of `Comparison.changes`, sorted by impact: |candidate - baseline|, weighted by its certainty.

baseline, candidate: NaN if a side lacks the measure; of a tested measure the geometric mean over the runs (of complete
pairs, if runs are paired), so that their ratio is the change; else the median. change_pct with its 90 % interval
low_pct to high_pct (NaN with one run per side); most_pct: the upper bound of the growth, and most_by: the evidence for
it other than the interval ("" for none); p: adjusted for the number of tests; is_fact: a count on which all runs of
a side agree, so that it needs no test; needed_runs: runs per side that would settle an inconclusive verdict, else NaN.
count_part + time_part = candidate - baseline: delta count x time, and count x delta time. note: renamed from, fused
from, or why the verdict is inconclusive.
"""


@dataclass(frozen=True)
class Pace:
    """The distribution of the step times of a run, as shares of their median.

    fastest: the fastest step; spread: from the 25th to the 75th percentile.
    """

    fastest: float
    spread: float


@dataclass(frozen=True, eq=False)
class Measures:
    """The measures of one run, `table` (columns MEASURES), and the conditions of the measurement.

    source: the name of the run folder or file, never a path. started: ISO time in UTC, "" if unknown. side and order:
    its place in an interleaved series (`ab`), "" and -1 otherwise. family, repetitions: the window. causes: columns
    rule, name (the title without its figures), gain_pct, title: the advice of the run. pace: by metric of step time.
    launch_call_ns: CPU time of a call that launches work, which shows the speed of the host; 0 if unknown.
    is_incomplete: whether its capture lost events.
    """

    source: str
    workload: str
    table: pd.DataFrame
    environment: Environment
    parameters: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[Conditions, ...] = ()
    window: str = ""
    family: str = ""
    repetitions: int = 0
    started: str = ""
    series: str = ""
    side: str = ""
    order: int = -1
    causes: pd.DataFrame = field(default_factory=pd.DataFrame)
    pace: Mapping[str, Pace] = field(default_factory=dict)
    launch_call_ns: float = 0.0
    is_incomplete: bool = False

    @property
    def is_throttled(self) -> bool:
        """Whether a GPU was throttled, by heat or by the hardware, during the run."""
        return any(condition.slowdowns for condition in self.conditions)

    @property
    def is_shared(self) -> bool:
        """Whether other processes used a GPU during the run."""
        return any(condition.is_shared for condition in self.conditions)

    def metric(self, name: str) -> float:
        """Return a gate metric; NaN if the run has none of this name."""
        values = self.table.loc[(self.table["kind"] == "gate") & (self.table["name"] == name), "value"]
        return float(values.iloc[0]) if len(values) else float("nan")


@dataclass(frozen=True)
class Difference:
    """Something that makes runs hard to compare: another GPU, driver, option or window, or throttling.

    affects: kinds of measures, or names of gate metrics, whose verdicts become inconclusive; empty if none do.
    """

    what: str
    baseline: str
    candidate: str
    affects: tuple[str, ...] = ()


@dataclass(frozen=True)
class AcceptedChange:
    """An accepted change: the measure, the reason, and the date (ISO). workload: "" for all.

    up_to_pct: the largest accepted change; None for any.
    """

    name: str
    reason: str
    date: str
    kind: str = "gate"
    workload: str = ""
    up_to_pct: float | None = None

    def covers(self, kind: str, name: str, workload: str, change_pct: float) -> bool:
        """Whether this covers such a change of a measure."""
        is_meant = (self.kind, self.name) == (kind, name) and self.workload in ("", workload)
        return is_meant and (self.up_to_pct is None or change_pct <= self.up_to_pct)


@dataclass(frozen=True)
class Noise:
    """The noise in comparisons of unchanged code: in words, and as standard deviation between pairs by gate metric."""

    text: str = ""
    spread_pct: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """The decision of a gate: exit status 0, 1 (regression), 3 (could not measure) or 4 (inconclusive), and one line.

    broken: regressions and exceeded limits; accepted: changes that the settings accept; shown: metrics that are shown
    not to have regressed; all in words. regressed: the metrics of `broken`; open: the inconclusive metrics.
    """

    status: int
    line: str
    broken: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    regressed: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two sides of runs of one workload, and what changed.

    changes: columns CHANGES. causes: columns rule, name, baseline_gain_pct, candidate_gain_pct, verdict (added: it
    appeared; removed: it disappeared), title. is_paired: runs were interleaved. sentence: the verdict in words, cause
    first. noise: the noise in A/A runs of this workload and machine, in words, "" without such runs. least_pct: the
    minimum effect of tests. same_pct: an interval within plus and minus this shows that nothing changed.
    """

    workload: str
    baseline: tuple[Measures, ...]
    candidate: tuple[Measures, ...]
    changes: pd.DataFrame
    causes: pd.DataFrame
    differences: tuple[Difference, ...]
    verdict: Verdict
    sentence: str
    decision: Decision
    is_paired: bool = False
    noise: str = ""
    notes: tuple[str, ...] = ()
    least_pct: float = 1.0
    same_pct: float = 3.0


def unit_of(kind: str, name: str) -> str:
    """Return the unit of a measure, as a suffix of `nightsight.units`: gate metrics end with theirs, others are times.

    A category of a step is a gate metric too, and its name has no suffix.
    """
    return "ns" if kind != "gate" or name in (*BUSY, *IDLE) else split(name)[1]


def machine_key(measures: Measures) -> str:
    """Return the facts that must be equal for times to be comparable: GPU, MIG slice, driver, CUDA and clock policy."""
    environment, conditions = measures.environment, measures.conditions
    mig = ",".join(sorted({gpu.mig for gpu in conditions if gpu.mig}))
    policy = ",".join(sorted({gpu.clock_policy for gpu in conditions if gpu.clock_policy}))
    # only the branch of the driver counts, because patches do not change speed
    driver = environment.driver.partition(".")[0]
    parts = {"GPU": environment.gpu, "MIG": mig, "driver": driver, "CUDA": environment.cuda, "clocks": policy}
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value)
