"""Series of runs: repeats of a program, and pairs of runs of two commits.

Pairs are interleaved (baseline, candidate, candidate, baseline, ...), so that a machine that slows down meanwhile slows
both sides alike.
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
from nightsight.collect.prove import attempt
from nightsight.collect.workloads import Request
from nightsight.collect.worktrees import (
    WORKING_TREE,
    Checkout,
    ProgramRequest,
    Side,
    build,
    find_checkout,
    resolve_program,
    working_in,
    worktrees,
)
from nightsight.compare import Settings, compare, measures
from nightsight.compare.outcomes import compare_outcomes, with_results
from nightsight.errors import (
    CaptureError,
    Interrupted,
    NotMeasured,
    PipelineError,
    ToolError,
    UsageError,
    WorkloadError,
)
from nightsight.events.window import AUTO
from nightsight.model.compare import Comparison, Measures, machine_key, unit_of
from nightsight.model.prove import UNKNOWN, Agreement
from nightsight.model.report import Finding, Report
from nightsight.results.switches import PRECISION
from nightsight.runs.layout import Turn
from nightsight.runs.noise import METRIC_LABELS, keep_noise, noise_of
from nightsight.system.interrupts import recording_interrupts
from nightsight.units import counted, format_value
from nightsight.workflows.profile import Plan, keep_of_run, profile_program, warm_up
from nightsight.workflows.prune import Keep

BASELINE: Final = "baseline"
CANDIDATE: Final = "candidate"
# the number of pairs before each early look, and its share of the error rate; the last look gets the rest
_LOOKS: Final = ((3, 0.2), (5, 0.3))

_Value = TypeVar("_Value")


def new_series() -> str:
    """Return the id of a new series of runs."""
    return f"{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def profile_repeatedly(plan: Plan, request: Request, times: int, *, keep: Keep = "captures") -> Iterator[str]:
    """Profile a program several times, each in its own process; yield the message for each run.

    `keep`: what to keep of each run. ncu replays kernels only in the last run, whose page shows how much the runs
    differ. If a run fails, the others follow, and WorkloadError is raised at the end.
    """
    if times == 1:
        yield keep_of_run(profile_program(plan, request).path, keep)
        return
    series, done, failures = new_series(), list[Measures](), list[WorkloadError | CaptureError]()

    def remarks(report: Report) -> tuple[Finding, ...]:
        return spread_finding((*done, measures(report)))

    with recording_interrupts() as interrupts:
        for order in range(times):
            is_last = order == times - 1
            turn = replace(plan, turn=Turn(series, order=order), remarks=remarks if is_last else plan.remarks)
            request.progress(f"run {order + 1} of {times}", done=order, of=times, is_series=True)
            try:
                run = profile_program(turn, request if is_last else replace(request, replay=None))
            except (WorkloadError, CaptureError, Interrupted) as error:
                if interrupts or isinstance(error, Interrupted):
                    progress = f"; {len(done)} of {times} runs are complete" if done else ""
                    raise Interrupted(f"{error.message}{progress}", error.hint) from error
                failures.append(error)
                yield f"run {order + 1} failed: {error.message}"
                continue
            done.append(measures(run.report))
            # the command line has turned it off, and a report has cycles
            gc.collect()
            yield keep_of_run(run.path, keep)
    for finding in spread_finding(done):
        yield f"{finding.title}. {finding.detail}"
    if failures:
        message = f"{len(failures)} of {times} runs failed; the first: {failures[0].message}"
        raise WorkloadError(message, failures[0].hint)


def spread_finding(runs: Sequence[Measures]) -> tuple[Finding, ...]:
    """Return a finding about the spread between runs of one program; () for fewer than two runs."""
    values = {name: [run.metric(name) for run in runs] for name in METRIC_LABELS} if len(runs) > 1 else {}
    complete = {name: row for name, row in values.items() if all(value > 0 for value in row)}
    if not complete:
        return ()
    texts = []
    for name, row in complete.items():
        share = format_value(100 * statistics.stdev(row) / statistics.fmean(row), "share_pct")
        low, high = (format_value(end, f"value_{unit_of('gate', name)}") for end in (min(row), max(row)))
        texts.append(f"{METRIC_LABELS[name]}: {share} ({low} to {high})")
    detail = f"Standard deviation over mean, one value per run, and the range: {'; '.join(texts)}."
    return (Finding("run_spread", "info", f"Spread of {len(runs)} runs", detail),)


# -- pairs of two commits ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """A program to measure at several commits, and how to measure it, which is the same for all commits.

    `reports` is absolute, because the working directory changes. `build`: the command that builds a commit, or "".
    """

    program: ProgramRequest
    reports: Path
    request: Request
    collector: Choice = "auto"
    window: str = AUTO
    build: str = ""


@dataclass
class Runs:
    """The runs of a trial, by side: their measures and their folders, in order."""

    trial: Trial
    checkout: Checkout
    series: str = field(default_factory=new_series)
    measured: dict[str, list[Measures]] = field(default_factory=lambda: {BASELINE: [], CANDIDATE: []})
    folders: dict[str, list[Path]] = field(default_factory=lambda: {BASELINE: [], CANDIDATE: []})

    @property
    def workload(self) -> str:
        """The name of the program. Needs a run of the baseline."""
        return self.measured[BASELINE][0].workload

    def prepare(self, side: Side) -> None:
        """Build a side and run it once, so that later runs find compiled code and loaded files."""
        if self.trial.build:
            build(side, self.checkout, self.trial.build, self.trial.request)
        self.trial.request.progress(f"warming up {side.label}")
        folder = self.trial.reports / f"warm-up-{self.series}"
        is_named = False
        try:
            self._run(warm_up, side, Turn(), folder)
        except NotMeasured:
            # if the program started, the message names its output
            is_named = any(path.is_file() for path in folder.rglob("*"))
            raise
        finally:
            if not is_named:
                shutil.rmtree(folder, ignore_errors=True)

    def measure(self, side: Side) -> None:
        """Run a side once more. NotMeasured if that fails; earlier measurements are kept."""
        order = sum(map(len, self.folders.values()))
        run = self._run(profile_program, side, Turn(self.series, side.name, order), self.trial.reports)
        folder = run.path.parent
        run_measures = measures(run.report, source=folder.name, series=self.series, side=side.name, order=order)
        if not any(run_measures.metric(name) > 0 for name in METRIC_LABELS if name.endswith("_ns")):
            raise NotMeasured(
                f"nothing was measured for {side.label}: its report has no step and no GPU work",
                f"See its report: {run.path}",
            )
        self.folders[side.name].append(folder)
        self.measured[side.name].append(run_measures)

    def measure_pairs(self, baseline: Side, candidate: Side, pairs: int) -> None:
        """Measure until there are this many pairs."""
        for number in range(len(self.folders[CANDIDATE]), pairs):
            self.trial.request.progress(f"pair {number + 1} of {pairs}", done=number, of=pairs, is_series=True)
            for side in (baseline, candidate) if number % 2 == 0 else (candidate, baseline):
                self.measure(side)

    def compare_results(self, baseline: Side, candidate: Side) -> Agreement | None:
        """Return whether both sides compute the same, from runs without a profiler; None if a program has no losses.

        Two runs of the baseline show what differs anyway.
        """
        values: dict[str, list[tuple[tuple[float, ...], ...]]] = {BASELINE: [], CANDIDATE: []}
        folder = self.trial.reports / f"results-{self.series}"
        for side in (baseline, baseline, candidate):
            self.trial.request.progress(f"comparing results: {side.label}")
            with working_in(side, self.checkout):
                program = resolve_program(side, self.checkout, self.trial.program)
                if program.is_native:
                    return None
                try:
                    run = attempt(program, self.trial.request, (), folder)
                except ToolError as error:
                    # the times are measured, and remain
                    return Agreement(UNKNOWN, f"{side.label} cannot be started: {error.message}")
            if run.interrupted:
                raise Interrupted(f"interrupted while results of {side.label} were compared")
            if run.failure:
                return Agreement(UNKNOWN, f"{side.label} {run.failure} without the profiler (see {folder.name})")
            if not any(run.values) and side is baseline:
                shutil.rmtree(folder, ignore_errors=True)
                return None
            values[side.name].append(run.values)
        shutil.rmtree(folder, ignore_errors=True)
        # a commit may change the type of numbers
        return compare_outcomes(values[BASELINE], values[CANDIDATE], PRECISION)

    def log_ratios(self, metric: str) -> list[float]:
        """Return the logarithm of candidate / baseline of a gate metric for each pair that has it."""
        pairs = zip(self.measured[BASELINE], self.measured[CANDIDATE], strict=False)
        values = [tuple(run.metric(metric) for run in pair) for pair in pairs]
        return [log(candidate / baseline) for baseline, candidate in values if baseline > 0 and candidate > 0]

    def _run(self, profile: Callable[[Plan, Request], _Value], side: Side, turn: Turn, reports: Path) -> _Value:
        """Profile the program of a side; NotMeasured if that fails."""
        trial = self.trial
        try:
            with working_in(side, self.checkout):
                program = resolve_program(side, self.checkout, trial.program)
                plan = Plan(program, trial.collector, reports, window=trial.window, turn=turn)
                value = profile(plan, trial.request)
            # the command line has turned it off, and a report has cycles
            gc.collect()
        except (WorkloadError, CaptureError) as error:
            raise NotMeasured(f"{side.label} could not be measured: {error.message}", error.hint) from error
        return value


@dataclass(frozen=True)
class TrialResult:
    """A comparison of two commits, and the run folders of its sides."""

    comparison: Comparison
    baseline: tuple[Path, ...]
    candidate: tuple[Path, ...]
    series: str


def compare_commits(
    trial: Trial, base: str, head: str, pairs: int, *, settings: Callable[[str], Settings]
) -> TrialResult:
    """Measure two commits in pairs and compare them; stop early when every deciding metric is settled.

    `head` "" compares the base with itself: all pairs are measured, and their differences are stored as the noise of
    this machine. `settings` returns those of a workload. NotMeasured if a side cannot be measured.
    """
    checkout = find_checkout()
    runs = Runs(trial, checkout)
    refs = {BASELINE: base, CANDIDATE: head or base}
    notes: list[str] = []
    if checkout.is_dirty and WORKING_TREE not in refs.values():
        notes.append("The checkout has changes that are not committed: they were not measured (--head . would).")
        trial.request.progress(notes[0])
    with explain_errors(runs), worktrees(checkout, refs, python=trial.program.python) as sides:
        for side in sides.values():
            runs.prepare(side)
        for number, share in looks(pairs).items():
            runs.measure_pairs(sides[BASELINE], sides[CANDIDATE], number)
            chosen = settings(runs.workload)
            # a comparison of the base with itself never stops early, so it may spend the whole error rate
            look = replace(chosen, alpha=chosen.alpha * share) if head else chosen
            noise = noise_of(trial.reports, runs.workload, machine_key(runs.measured[BASELINE][0]))
            comparison = compare(runs.measured[BASELINE], runs.measured[CANDIDATE], settings=look, noise=noise)
            if head and number < pairs and is_settled(comparison):
                notes.append(f"Stopped after {number} of {pairs} pairs: every deciding metric is settled.")
                break
        if head and (results := runs.compare_results(sides[BASELINE], sides[CANDIDATE])):
            comparison = with_results(comparison, results)
    if not head:
        _store_noise(runs, comparison)
    comparison = replace(comparison, notes=(*comparison.notes, *notes))
    return TrialResult(comparison, tuple(runs.folders[BASELINE]), tuple(runs.folders[CANDIDATE]), runs.series)


@contextmanager
def explain_errors(runs: Runs) -> Iterator[None]:
    """Turn the errors of a trial into Interrupted or NotMeasured, with the runs that are kept; UsageErrors stay."""
    with recording_interrupts() as interrupts:
        try:
            yield
        except (PipelineError, KeyboardInterrupt) as error:
            complete = sum(map(len, runs.folders.values()))
            runs_are = counted(complete, "run is", "runs are")
            progress = f"{runs_are} complete and kept: {runs.trial.reports}" if complete else ""
            if interrupts or isinstance(error, KeyboardInterrupt | Interrupted):
                raise Interrupted(f"interrupted after {counted(complete, 'run')}", progress) from error
            kind = UsageError if isinstance(error, UsageError) else NotMeasured
            raise kind(error.message, "\n".join(filter(None, (error.hint, progress)))) from error


def looks(pairs: int) -> dict[int, float]:
    """Return the looks at the results: the number of pairs before each, and its share of the error rate."""
    early = {number: share for number, share in _LOOKS if number < pairs}
    return {**early, pairs: 1 - sum(early.values())}


def is_settled(comparison: Comparison) -> bool:
    """Whether no deciding metric of the gate is open."""
    decision = comparison.decision
    return decision.status in (0, 1) and not decision.open


def _store_noise(runs: Runs, comparison: Comparison) -> None:
    """Store how much runs of the same commit differed."""
    spreads = {name: ratios for name in METRIC_LABELS if len(ratios := runs.log_ratios(name)) > 1}
    row = {
        "machine": machine_key(runs.measured[BASELINE][0]),
        "time": f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S}",
        "commit": runs.measured[BASELINE][0].environment.commit,
        "pairs": len(runs.measured[CANDIDATE]),
        "flagged": int(comparison.changes["verdict"].isin(["regressed", "improved", "added", "removed"]).sum()),
        "spread_pct": {name: round(100 * statistics.stdev(ratios), 4) for name, ratios in spreads.items()},
    }
    keep_noise(runs.trial.reports, runs.workload, row)
