"""Runs that belong together: repeats of a program, and pairs of two commits, whose difference they show.

Pairs are interleaved (baseline, candidate, candidate, baseline, ...), so that a machine that gets slower in the
meantime slows both sides alike.
"""

import datetime as dt
import gc
import secrets
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import log
from pathlib import Path
from typing import Final, TypeVar

from nightsight.collect import Choice
from nightsight.collect.workloads import Request
from nightsight.collect.worktrees import (
    WORKING_TREE,
    Asked,
    Checkout,
    Side,
    built,
    checkout,
    entered,
    program_of,
    worktrees,
)
from nightsight.compare import Settings, compare, measures
from nightsight.errors import CaptureError, Interrupted, NotMeasured, PipelineError, UsageError, WorkloadError
from nightsight.events.window import AUTO
from nightsight.model.compare import Comparison, Measures, machine_key, unit_of
from nightsight.model.report import Finding, Report
from nightsight.runs.layout import Turn
from nightsight.runs.noise import SAID, keep_noise, noise_of
from nightsight.system.interrupts import noting_interrupts
from nightsight.units import format_value
from nightsight.workflows.profile import Plan, keep_of_run, profile_program, warm_up
from nightsight.workflows.prune import Keep

BASELINE: Final = "baseline"
CANDIDATE: Final = "candidate"
# after how many pairs to look, and how much of the error rate each look may spend; the last one spends the rest
_LOOKS: Final = ((3, 0.2), (5, 0.3))


_Made = TypeVar("_Made")


def new_series() -> str:
    """Return the id of a new series of runs."""
    return f"{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def repeated(plan: Plan, request: Request, times: int, *, keep: Keep = "captures") -> Iterator[str]:
    """Profile a program several times, each in its own process; yield the message for each run.

    `keep`: what stays of each. ncu replays kernels of the last run only, whose page says how much the runs differ. A
    run that fails does not keep the others from being made: WorkloadError at the end.
    """
    if times == 1:
        yield keep_of_run(profile_program(plan, request).path, keep)
        return
    series, done, failures = new_series(), list[Measures](), list[WorkloadError | CaptureError]()

    def remarks(report: Report) -> tuple[Finding, ...]:
        return spread_of((*done, measures(report)))

    with noting_interrupts() as interrupts:
        for order in range(times):
            is_last = order == times - 1
            turn = replace(plan, turn=Turn(series, order=order), remarks=remarks if is_last else plan.remarks)
            request.progress(f"run {order + 1} of {times}", done=order, of=times, is_series=True)
            try:
                made = profile_program(turn, request if is_last else replace(request, replay=None))
            except (WorkloadError, CaptureError, Interrupted) as error:
                if interrupts or isinstance(error, Interrupted):
                    kept = f"; {len(done)} of {times} runs are complete" if done else ""
                    raise Interrupted(f"{error.message}{kept}", error.hint) from error
                failures.append(error)
                yield f"run {order + 1} failed: {error.message}"
                continue
            done.append(measures(made.report))
            # the command line has turned it off, and a report has cycles
            gc.collect()
            yield keep_of_run(made.path, keep)
    for finding in spread_of(done):
        yield f"{finding.title}. {finding.detail}"
    if failures:
        message = f"{len(failures)} of {times} runs failed; the first: {failures[0].message}"
        raise WorkloadError(message, failures[0].hint)


def spread_of(runs: Sequence[Measures]) -> tuple[Finding, ...]:
    """Return a finding that says how much the runs of one program differ; none for fewer than two."""
    values = {name: [gate_value(run, name) for run in runs] for name in SAID} if len(runs) > 1 else {}
    known = {name: [value for value in row if value] for name, row in values.items() if all(row)}
    if not known:
        return ()
    texts = []
    for name, row in known.items():
        share = format_value(100 * statistics.stdev(row) / statistics.fmean(row), "share_pct")
        low, high = (format_value(end, f"value_{unit_of('gate', name)}") for end in (min(row), max(row)))
        texts.append(f"{SAID[name]}: {share} ({low} to {high})")
    detail = f"Standard deviation over mean, one value per run, and the range: {'; '.join(texts)}."
    return (Finding("run_spread", "info", f"Spread of {len(runs)} runs", detail),)


# -- pairs of two commits ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """A program that is measured at several commits, and how: the same for all of them.

    `reports` is absolute, as the working directory changes. `build`: the command that builds a commit, "" for none.
    """

    asked: Asked
    reports: Path
    request: Request
    collector: Choice = "auto"
    window: str = AUTO
    build: str = ""


@dataclass
class Runs:
    """The runs of a trial: each side's measures in order, and the folders of the runs."""

    trial: Trial
    of: Checkout
    series: str = field(default_factory=new_series)
    measured: dict[str, list[Measures]] = field(default_factory=lambda: {BASELINE: [], CANDIDATE: []})
    folders: dict[str, list[Path]] = field(default_factory=lambda: {BASELINE: [], CANDIDATE: []})

    @property
    def workload(self) -> str:
        """The name of the program, once a run was made."""
        return self.measured[BASELINE][0].workload

    def prepare(self, side: Side) -> None:
        """Build a side and run it once: what it compiles and loads for the first time does not count."""
        if self.trial.build:
            built(side, self.of, self.trial.build, self.trial.request)
        self.trial.request.progress(f"warming up {side.said}")
        folder = self.trial.reports / f"warm-up-{self.series}"
        is_named = False
        try:
            self._run(warm_up, side, Turn(), folder)
        except NotMeasured:
            # the message names the output, if the program began
            is_named = any(path.is_file() for path in folder.rglob("*"))
            raise
        finally:
            if not is_named:
                shutil.rmtree(folder, ignore_errors=True)

    def measure(self, side: Side) -> None:
        """Run a side once more. NotMeasured if it fails; what was measured until then is kept."""
        order = sum(map(len, self.folders.values()))
        made = self._run(profile_program, side, Turn(self.series, side.name, order), self.trial.reports)
        found = measures(made.report, source=made.path.parent.name, series=self.series, side=side.name, order=order)
        if not any(gate_value(found, name) > 0 for name in SAID if name.endswith("_ns")):
            raise NotMeasured(
                f"nothing was measured for {side.said}: its report has no step and no GPU work",
                f"See its report: {made.path}",
            )
        self.folders[side.name].append(made.path.parent)
        self.measured[side.name].append(found)

    def measure_pairs(self, baseline: Side, candidate: Side, pairs: int) -> None:
        """Measure until there are this many pairs."""
        for number in range(len(self.folders[CANDIDATE]), pairs):
            self.trial.request.progress(f"pair {number + 1} of {pairs}", done=number, of=pairs, is_series=True)
            for side in (baseline, candidate) if number % 2 == 0 else (candidate, baseline):
                self.measure(side)

    def log_ratios(self, metric: str) -> list[float]:
        """Return the logarithm of candidate / baseline of a gate metric for each pair that has it."""
        pairs = zip(self.measured[BASELINE], self.measured[CANDIDATE], strict=False)
        values = [(gate_value(one, metric), gate_value(other, metric)) for one, other in pairs]
        return [log(other / one) for one, other in values if one > 0 and other > 0]

    def _run(self, profile: Callable[[Plan, Request], _Made], side: Side, turn: Turn, reports: Path) -> _Made:
        """Profile the program as it is on a side; NotMeasured if it fails."""
        trial = self.trial
        try:
            with entered(side, self.of):
                program = program_of(side, self.of, trial.asked)
                plan = Plan(program, trial.collector, reports, window=trial.window, turn=turn)
                made = profile(plan, trial.request)
            # the command line has turned it off, and a report has cycles
            gc.collect()
        except (WorkloadError, CaptureError) as error:
            raise NotMeasured(f"{side.said} could not be measured: {error.message}", error.hint) from error
        return made


@dataclass(frozen=True)
class Compared:
    """A comparison of two commits, and the run folders of its sides."""

    comparison: Comparison
    baseline: tuple[Path, ...]
    candidate: tuple[Path, ...]
    series: str


def compared(trial: Trial, base: str, head: str, pairs: int, *, settings: Callable[[str], Settings]) -> Compared:
    """Measure two commits in pairs and compare them; stop early when every metric that decides is settled.

    `head` "" compares the base with itself: all pairs are measured, and what they differ by is kept as the noise of
    this machine. `settings` gives those of a workload. NotMeasured if a side cannot be measured.
    """
    of = checkout()
    runs = Runs(trial, of)
    refs = {BASELINE: base, CANDIDATE: head or base}
    notes: list[str] = []
    if of.is_dirty and WORKING_TREE not in refs.values():
        notes.append("The checkout has changes that are not committed: they were not measured (--head . would).")
        trial.request.progress(notes[0])
    with ended_in_words(runs), worktrees(of, refs, python=trial.asked.python) as sides:
        for side in sides.values():
            runs.prepare(side)
        for number, share in looks(pairs).items():
            runs.measure_pairs(sides[BASELINE], sides[CANDIDATE], number)
            chosen = settings(runs.workload)
            # the base with itself is never stopped early: it is judged as a comparison is
            look = replace(chosen, alpha=chosen.alpha * share) if head else chosen
            noise = noise_of(trial.reports, runs.workload, machine_key(runs.measured[BASELINE][0]))
            comparison = compare(runs.measured[BASELINE], runs.measured[CANDIDATE], settings=look, noise=noise)
            if head and number < pairs and is_settled(comparison):
                notes.append(f"Stopped after {number} of {pairs} pairs: every metric that decides is settled.")
                break
    if not head:
        _keep_noise(runs, comparison)
    comparison = replace(comparison, notes=(*comparison.notes, *notes))
    return Compared(comparison, tuple(runs.folders[BASELINE]), tuple(runs.folders[CANDIDATE]), runs.series)


@contextmanager
def ended_in_words(runs: Runs) -> Iterator[None]:
    """Turn what ends a trial into an Interrupted or a NotMeasured that says what is left of it; UsageErrors stay."""
    with noting_interrupts() as interrupts:
        try:
            yield
        except (PipelineError, KeyboardInterrupt) as error:
            made = sum(map(len, runs.folders.values()))
            count = f"{made} run{'s' * (made != 1)}"
            kept = f"{count} {'is' if made == 1 else 'are'} complete and kept: {runs.trial.reports}" if made else ""
            if interrupts or isinstance(error, KeyboardInterrupt | Interrupted):
                raise Interrupted(f"interrupted after {count}", kept) from error
            ended = UsageError if isinstance(error, UsageError) else NotMeasured
            raise ended(error.message, "\n".join(filter(None, (error.hint, kept)))) from error


def looks(pairs: int) -> dict[int, float]:
    """Return after how many pairs to look, and the share of the error rate that each look may spend: in all 1."""
    early = {number: share for number, share in _LOOKS if number < pairs}
    return {**early, pairs: 1 - sum(early.values())}


def is_settled(comparison: Comparison) -> bool:
    """Whether no metric that a gate decides by is open."""
    decision = comparison.decision
    return decision.status in (0, 1) and not decision.open


def gate_value(run: Measures, name: str) -> float:
    """Return a gate metric of a run; 0.0 if it has none."""
    gate = run.table[(run.table["kind"] == "gate") & (run.table["name"] == name)]
    return float(gate["value"].iloc[0]) if len(gate) else 0.0


def _keep_noise(runs: Runs, comparison: Comparison) -> None:
    """Keep how much a workload differs from itself."""
    spreads = {name: ratios for name in SAID if len(ratios := runs.log_ratios(name)) > 1}
    row = {
        "machine": machine_key(runs.measured[BASELINE][0]),
        "time": f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S}",
        "commit": runs.measured[BASELINE][0].environment.commit,
        "pairs": len(runs.measured[CANDIDATE]),
        "flagged": int(comparison.changes["verdict"].isin(["regressed", "improved", "added", "removed"]).sum()),
        "spread_pct": {name: round(100 * statistics.stdev(ratios), 4) for name, ratios in spreads.items()},
    }
    keep_noise(runs.trial.reports, runs.workload, row)
