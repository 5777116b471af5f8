"""The values of a comparison: what one run measured, and what changed between two sides of runs.

`Measures` has one number per run for everything that is compared. They come from a Report alone, so that run folders,
report.json and raw captures compare alike, and history keeps the same numbers.
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
"""What the directions of copies are called in the names of gate metrics: `host_to_device_copies`, `..._bytes`."""
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
"""How often a step does something, and how many bytes it copies. If all runs of a side agree, this needs no test."""
GATE: Final = (UNPROFILED, STEP, KERNELS, EXPOSED, COPYING, *COUNTS)
"""The gate metrics, what a reader asks about first; the categories of a step are gate metrics too."""

KINDS: Final = ("gate", "kernel", "family", "range", "operator", "copy", "api", "cause")
"""gate: metrics that a gate can decide on, such as step_ns; the others are named by what a report calls them."""

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
"""Columns of `Comparison.changes`, sorted by impact: |candidate - baseline| weighted by what is known of it.

baseline, candidate: medians over runs, NaN on the side that lacks it; change_pct with its 90 % interval low_pct to
high_pct (NaN where one run a side says nothing); most_pct: by how much it can have grown, and most_by: by which other
evidence than the interval ("" for none); p: adjusted for the number of tests; is_fact: a count on which all runs of a
side agree, so that nothing was tested; needed_runs: runs a side that would settle an inconclusive verdict, else NaN.
count_part + time_part = candidate - baseline: delta count x time, and count x delta time. note: renamed from, fused
from, why it is inconclusive.
"""


@dataclass(frozen=True)
class Pace:
    """How the steps of a run lie around their median, which its table has; as shares of it.

    fastest: the fastest step; spread: from the 25th to the 75th percentile.
    """

    fastest: float
    spread: float


@dataclass(frozen=True, eq=False)
class Measures:
    """What one run measured: `table` (columns MEASURES), and what it was measured under.

    source: the name of the run folder or file, never a path. started: ISO time in UTC, "" if unknown. side and order:
    its place in an interleaved series (`ab`), "" and -1 otherwise. family, repetitions: the window. causes: columns
    rule, name (the title without its figures), gain_pct, title: the advice of the run. pace: by metric of a step's
    time. launch_call_ns: CPU time of a call that launches work, which tells how fast the host was; 0 if unknown.
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


@dataclass(frozen=True)
class Difference:
    """Something that makes runs hard to compare: another GPU, driver, option, window; throttling.

    affects: kinds of measures, or names of gate metrics, whose verdict becomes inconclusive; empty if it is only said.
    """

    what: str
    baseline: str
    candidate: str
    affects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Accepted:
    """A change that somebody accepted: which measure, why, and when (ISO date). workload: "" for all.

    up_to_pct: a larger change is not accepted; None: any is.
    """

    name: str
    reason: str
    date: str
    kind: str = "gate"
    workload: str = ""
    up_to_pct: float | None = None

    def covers(self, kind: str, name: str, workload: str, change_pct: float) -> bool:
        """Whether this covers such a change of that measure."""
        is_meant = (self.kind, self.name) == (kind, name) and self.workload in ("", workload)
        return is_meant and (self.up_to_pct is None or change_pct <= self.up_to_pct)


@dataclass(frozen=True)
class Noise:
    """What comparisons of unchanged code showed: in words, and the standard deviation between pairs, by gate metric."""

    text: str = ""
    spread_pct: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """What a gate decides: exit status 0, 1 (regression), 3 (could not measure) or 4 (inconclusive), in one line.

    broken: what regressed or is above its limit; accepted: changes that were accepted in the settings; shown: what is
    known not to have regressed; all in words. regressed: the metrics of `broken`; open: those that are not settled.
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
    appeared; removed: it went), title. is_paired: runs were interleaved. sentence: the verdict in words, cause first.
    noise: what A/A runs of this workload and machine showed, in words, "" if there are none. least_pct: the change that
    a test looks for (the minimum effect). same_pct: an interval within plus and minus this shows that nothing changed.
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
    """Return the unit of a measure, as a suffix of `nightsight.units`: gate metrics name theirs, others are times.

    A category of a step is a gate metric too, named by the category alone.
    """
    return "ns" if kind != "gate" or name in (*BUSY, *IDLE) else split(name)[1]


def machine_key(measures: Measures) -> str:
    """Return what must be equal for times to be comparable: GPU, MIG slice, driver, CUDA and clock policy."""
    environment, conditions = measures.environment, measures.conditions
    mig = ",".join(sorted({one.mig for one in conditions if one.mig}))
    policy = ",".join(sorted({one.clock_policy for one in conditions if one.clock_policy}))
    # of the driver, only the branch: patches do not change speed
    driver = environment.driver.partition(".")[0]
    parts = {"GPU": environment.gpu, "MIG": mig, "driver": driver, "CUDA": environment.cuda, "clocks": policy}
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value)
