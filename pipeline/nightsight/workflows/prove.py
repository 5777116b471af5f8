"""Measure the gains of fixes: apply them from outside, run the program in turns without a profiler, compare results.

A first run of the unchanged program determines its step, and which switches can have an effect. Each round runs the
unchanged program and each switch once, in alternating order, so that a machine that slows down affects all alike; after
the first round, only the effective switches run. Switches that compile run their rounds last. Runs end after as many
steps as the budget allows. Then the effective switches are combined, one after the other.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf, log, sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Final

import numpy as np
import pandas as pd

from nightsight.collect.conditions import findings_of, logging_gpus
from nightsight.collect.prove import Attempt, attempt
from nightsight.collect.timing import RunLimit
from nightsight.collect.workloads import Program, Request
from nightsight.compare.outcomes import compare_outcomes
from nightsight.errors import Interrupted, NotMeasured, UsageError
from nightsight.events.frameworks import reported_framework
from nightsight.events.loops import LOOP, timed_loop, timed_step
from nightsight.model.prove import (
    DIFFERENT,
    EQUAL,
    FAILED,
    FASTER,
    NO_EFFECT,
    NO_GAIN,
    NOT_MEASURED,
    PROVEN,
    SLOWER,
    UNKNOWN,
    WITHIN,
    Agreement,
    Proof,
    ProofReport,
    Todo,
    calibration_lines,
)
from nightsight.model.report import Finding, Report
from nightsight.results.causes import REPLAY
from nightsight.results.switches import JIT, NO_DROPOUT, NUMERICS, PERTURBED, SWITCHES, Switch
from nightsight.runs.layout import PROOF, write_file

# a switch is effective if the step becomes this much shorter, whatever the interval is
_LEAST_GAIN: Final = 0.02
# a step that is this much shorter in every round is not an accident, even if the rounds vary
_CLEAR_GAIN: Final = 0.1
_MOST_IN_SET: Final = 4
# the probability that any switch is called faster or slower by chance, and the least standard error of a mean
_ALPHA: Final = 0.05
_LEAST_ERROR: Final = 1e-9
# a run has at least this many steps and takes at least this many seconds; the first run takes longer, unless the budget
# is small
_LEAST_STEPS: Final = 20
_LEAST_S: Final = 3.0
_FIRST_S: Final = 15.0
_FIRST_OF_BUDGET: Final = 0.1
# what was compiled once is on the disk: torch.compile then takes about this share of the time
_CACHED: Final = 0.5
# runs are planned for this share of the remaining budget, because some take longer than expected
_OF_BUDGET: Final = 0.8
# a switch may make a run this much longer, since compiling takes time; but it gets at most this share of the budget
_PATIENCE: Final = 5
_PATIENCE_S: Final = 120.0
_OF_THE_REST: Final = 0.6
# a switch runs again if it makes the step this much shorter in a round
_PAYS: Final = 0.01
_WHOLE_RUN: Final = "the whole run"
_PROMISES_FILE: Final = "proofs.jsonl"
# a switch without a predicted gain fixes a cause if it reaches this share of the cause's gain
_MOSTLY: Final = 0.75
# a predicted step within this factor of the measured step is close
_NEAR: Final = 1.5


@dataclass(frozen=True)
class ProofPlan:
    """What to prove. report: the source of the causes; None: only the named switches, or all.

    causes: only findings of these rules. switches: these, whatever the causes are. is_all: all switches. rounds: runs
    with each effective switch, twice as many if they vary too much. budget_s: the time limit for all runs. steps: the
    steps of a run, 0: as many as the budget allows. check: a command that exits with status 0 if the results of a run
    are correct. folder: for logs and the result.
    """

    program: Program
    folder: Path
    report: Report | None = None
    causes: tuple[str, ...] = ()
    switches: tuple[Switch, ...] = ()
    is_all: bool = False
    rounds: int = 3
    budget_s: float = 600.0
    steps: int = 0
    check: str = ""


@dataclass
class _ProofRuns:
    """The runs of the unchanged program and of each set of switches: by the names of the switches, and by round."""

    plan: ProofPlan
    request: Request
    switch: dict[str, Switch]
    family: str = ""
    limit: RunLimit | None = None
    ends: float = 0.0
    attempts: dict[tuple[str, ...], dict[int, Attempt]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    # whether the program drops anything
    has_dropout: bool = False
    # whether a round lacked time
    is_short: bool = False

    def run(self, names: tuple[str, ...], number: int, *, is_search: bool = False) -> Attempt:
        """Run the program once more; Interrupted if a signal stopped it."""
        label = " + ".join(names) or "unchanged"
        self.request.progress(f"round {number + 1}: {label}" if number >= 0 else "running once to warm up")
        run = attempt(
            self.plan.program,
            replace(self.request, timeout_s=min(self.request.timeout_s, self._patience_s(names))),
            [self.switch[name] for name in names],
            self.plan.folder / "log" / f"{number + 1}-{'search' if is_search else '+'.join(names) or 'unchanged'}",
            limit=self.limit,
            check=self.plan.check,
            functions=[switch.function for switch in self.plan.switches if switch.function],
            is_search=is_search,
            are_loops_timed=number < 0 or self.family.startswith(LOOP),
        )
        if run.interrupted:
            where = f"in round {number + 1}" if number >= 0 else "in the first run"
            raise Interrupted(f"interrupted {where}", f"Logs are kept: {self.plan.folder}")
        self.attempts.setdefault(names, {})[number] = run
        return run

    def of(self, names: tuple[str, ...]) -> list[Attempt]:
        """Return the runs of a set of switches, in order."""
        return [*self.attempts.get(names, {}).values()]

    def steps_ns(self, names: tuple[str, ...]) -> list[tuple[float, float]]:
        """Return the step without and with a set of switches, in ns, for each round that has both."""
        base, changed = self.attempts.get((), {}), self.attempts.get(names, {})
        steps = [(self.step_ns(base[number]), self.step_ns(changed[number])) for number in changed if number in base]
        return [(one, other) for one, other in steps if one > 0 and other > 0]

    def log_ratios(self, names: tuple[str, ...]) -> list[float]:
        """Return log(step with a set of switches / step without) for each round."""
        return [log(other / one) for one, other in self.steps_ns(names)]

    def _patience_s(self, names: tuple[str, ...]) -> float:
        """Return how long a run may take: a switch that hangs must not use up the budget."""
        left = max(self.ends - time.monotonic(), 1.0)
        unchanged = [run.seconds for run in self.of(())]
        if not (names and unchanged):
            return left
        return min(left, _PATIENCE_S + _PATIENCE * max(unchanged), max(_OF_THE_REST * left, 2 * max(unchanged)))

    def step_ns(self, run: Attempt) -> float:
        """Return the step of a run; the whole run if it has no steps."""
        if self.family == _WHOLE_RUN:
            return run.seconds * 1e9
        return timed_step(run.times, self.family)[1]

    @property
    def next_round(self) -> int:
        """The number of a round that has not begun."""
        return 1 + max((number for runs in self.attempts.values() for number in runs), default=-1)

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() >= self.ends

    def has_time_for(self, *sets: tuple[str, ...]) -> bool:
        """Whether the budget allows a run of each of these sets of switches."""
        return time.monotonic() + sum(map(self._expected_s, sets)) < self.ends

    def _expected_s(self, names: tuple[str, ...]) -> float:
        """Return how long a run of a set takes: as its longest so far, else that of its switches, else of all."""

        def longest(sets: Iterable[tuple[str, ...]]) -> float:
            return max((run.seconds + run.check_s for each in sets for run in self.of(each)), default=0.0)

        unchanged = longest([()])
        if any(self.switch[name].is_slow for name in names) and (before := longest([names])) > unchanged:
            return unchanged + _CACHED * (before - unchanged)
        return longest([names]) or longest((name,) for name in names) or longest(self.attempts)


def refuse_other(report: Report, program: Program) -> None:
    """Raise UsageError if a report is not of the program."""
    if report.title != program.name:
        raise UsageError(
            f"the report is of {report.title}, and the program is {program.name}",
            "Name the report of this program (--report), or leave it out to profile the program first.",
        )


def prove(plan: ProofPlan, request: Request) -> ProofReport:
    """Measure all chosen switches, then the best set of them, and write `proof.json`.

    NotMeasured if the unchanged program fails, or has no step within the budget; Interrupted on a signal.
    """
    chosen = _chosen(plan)
    switches = {switch.name: switch for switch in (*SWITCHES, NO_DROPOUT, *PERTURBED.values(), *plan.switches)}
    series = _ProofRuns(plan, request, switches, ends=time.monotonic() + plan.budget_s)
    with logging_gpus() as log:
        notes = series.notes
        _warm_up(series, [switch for switch, _ in chosen])
        singles = [(switch.name,) for switch, _ in chosen]
        rounds: list[int] = []
        # compiling may use up the budget, so switches that compile run last
        quick = [(switch.name,) for switch, _ in chosen if not switch.is_slow]
        slow = [names for names in singles if names not in quick]
        groups = [group for group in (quick, slow) if any(_goes_on(series, names) for names in group)]
        for group in groups or [singles] * bool(singles):
            if not rounds or series.has_time_for((), group[0]):
                rounds.append(_measure(series, group, series.next_round))
        budget = f"the budget of {plan.budget_s / 60:.3g} min allows no more. Give more with --budget."
        if missing := sum(not series.of(names) for names in singles):
            notes.append(f"{missing} of {len(singles)} switches were not measured: {budget}")
        elif series.is_short:
            notes.append(f"{min(rounds)} of {plan.rounds} rounds ran: {budget}")
        proofs = _single_proofs(series, chosen)
        # a switch that is faster with the same results, but in noisy rounds, runs that many rounds again
        unsure = [proof.switches for proof in proofs if _is_unsure(proof)]
        if unsure and series.has_time_for((), *unsure):
            _measure(series, unsure, series.next_round)
            proofs = _single_proofs(series, chosen)
        best = _best_set(series, proofs, series.next_round)
    notes += [f"{each.title}. {each.detail}" for each in findings_of(log.conditions)]
    environment = plan.report.environment if plan.report else None
    torch = {run.torch for names in series.attempts for run in series.of(names) if run.torch}
    report = ProofReport(
        plan.program.name,
        series.family,
        environment.gpu if environment else "",
        {"torch": next(iter(torch), ""), "cuda": environment.cuda if environment else ""},
        proofs,
        best,
        tuple(_todo(plan.report, proofs, switches)),
        tuple(notes),
    )
    write_file(plan.folder / PROOF.name, report.to_json().encode())
    if lines := calibration_lines(report):
        path = plan.folder.parent / _PROMISES_FILE
        earlier = path.read_text(encoding="utf-8") if path.is_file() else ""
        write_file(path, "".join([earlier, *(f"{line}\n" for line in lines)]).encode())
    return report


def _warm_up(series: _ProofRuns, switches: Sequence[Switch]) -> None:
    """Run the unchanged program once; determine its step, and after how many steps the other runs end.

    This run also counts as the run of each switch that finds nothing to change in it.
    """
    plan = series.plan
    first_s = max(min(_FIRST_S, _FIRST_OF_BUDGET * plan.budget_s), _LEAST_S)
    seconds = max(plan.budget_s / (1 + plan.rounds * (1 + len(switches))), first_s)
    series.limit = RunLimit(seconds=seconds)
    sought = (*(switch.name for switch in switches), *([] if plan.check else [NO_DROPOUT.name]))
    warm_up = series.run(sought, -1, is_search=True)
    if warm_up.failure and not warm_up.timed_out:
        # the search may have made it fail
        warm_up = replace(series.run((), -1), effects=dict.fromkeys((switch.name for switch in switches), 1))
    series.attempts.clear()
    series.has_dropout = bool(warm_up.effects.get(NO_DROPOUT.name))
    idle = [
        switch.name
        for switch in switches
        if not (switch.file or switch.environment or warm_up.effects.get(switch.name))
    ]
    series.attempts |= {(name,): {-1: replace(warm_up, effects={})} for name in idle}
    active = [switch.is_slow for switch in switches if switch.name not in idle]
    # switches that compile have separate rounds, with separate runs of the unchanged program
    runs = plan.rounds * (max(len({*active}), 1) + len(active))
    if warm_up.timed_out and plan.budget_s < series.request.timeout_s:
        raise NotMeasured(
            f"no step of {plan.program.name} ended within the budget of {plan.budget_s / 60:.3g} min",
            "Give more with --budget.",
        )
    if warm_up.failure:
        raise NotMeasured(
            f"{plan.program.name} {warm_up.failure} without any change", f"See its output: {plan.folder / 'log'}"
        )
    family, step_ns = timed_step(warm_up.times, _family(plan.report))
    if not family:
        family, step_ns = timed_step(warm_up.times, "")
    if not family and plan.report:
        family, step_ns = _timed_loop(warm_up.times, plan.report)
    series.family, series.limit = family or _WHOLE_RUN, None
    if not family:
        series.notes.append(
            "No range, optimizer step, call of a model or loop with the launches of the report repeats in this "
            "program: whole runs were timed."
        )
        return
    is_whole = not warm_up.is_cut and (1 + runs) * (warm_up.seconds + warm_up.check_s) < plan.budget_s
    if not (is_whole or plan.steps):
        count = float(warm_up.times.set_index("path")["instances"][family])
        # the part of a run that is not steps
        started_s = warm_up.seconds + warm_up.check_s - 1e-9 * step_ns * count
        left_s = _OF_BUDGET * (series.ends - time.monotonic())
        affordable_s = max(left_s / max(runs, 1) - max(started_s, 0.0), _LEAST_S)
        steps = max(int(affordable_s / (1e-9 * step_ns)), _LEAST_STEPS)
        if not warm_up.is_cut and steps >= count:
            # the program ends before that
            return
        series.limit = RunLimit(steps=steps, family=family)
        series.notes.append(
            f"Each run ended after {steps:,} steps, because of the budget of {plan.budget_s / 60:.3g} min."
        )
    elif plan.steps:
        series.limit = RunLimit(steps=plan.steps, family=family)


def calibration(reports: Path) -> list[tuple[str, int, float, int]]:
    """Return for each rule: its number of proofs, the median of predicted / measured steps, and how many are close.

    Reads the lines that proofs of all programs wrote into `reports`; damaged lines are omitted.
    """
    quotients: dict[str, list[float]] = {}
    for file in sorted(reports.glob(f"*/{_PROMISES_FILE}")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError, ZeroDivisionError):
                row = json.loads(line)
                quotients.setdefault(str(row["rule"]), []).append(float(row["promised_ns"]) / float(row["measured_ns"]))
    return [
        (rule, len(values), median(values), sum(1 / _NEAR <= value <= _NEAR for value in values))
        for rule, values in sorted(quotients.items())
    ]


def _family(report: Report | None) -> str:
    rows = report.rows(REPLAY) if report else pd.DataFrame()
    return str(rows["family"].iloc[0]) if len(rows) and "family" in rows else ""


def _timed_loop(times: pd.DataFrame, report: Report) -> tuple[str, float]:
    """Return the loop whose iterations are the repetitions of a report, and its time in ns."""
    rows = report.rows(REPLAY)
    if not len(rows) or not rows["of_repetitions"].iloc[0]:
        return "", float("nan")
    return timed_loop(times, int(rows["of_repetitions"].iloc[0]), float(rows["measured_ns"].iloc[0]))


def _advice(report: Report | None) -> list[Finding]:
    return report.advice if report else []


def _chosen(plan: ProofPlan) -> list[tuple[Switch, Finding | None]]:
    """Return the switches to measure, each with its finding, which has no gain if that is the gain of another fix.

    Switches for the largest causes come first, because the budget may not allow all.
    """
    advice = [finding for finding in _advice(plan.report) if not plan.causes or finding.rule in plan.causes]
    framework = reported_framework(plan.report) if plan.report else ""
    chosen: list[tuple[float, bool, Switch, Finding | None]] = []
    for switch in (*SWITCHES, *(each for each in plan.switches if each not in SWITCHES)):
        fixed = next((each for each in advice if switch.fixes(each.rule, each.title)), None)
        tried = (each for each in advice if each.rule not in switch.also and switch.may_help(each.rule, each.title))
        cause = fixed or next(tried, None)
        finding = cause and replace(cause, gain_pct=_promised_gain(switch, fixed, advice))
        if switch in plan.switches or (switch.is_for(framework) and (plan.is_all or (finding and not plan.switches))):
            chosen.append((-((cause and cause.gain_pct) or 0.0), not fixed, switch, finding))
    return [(switch, finding) for *_, switch, finding in sorted(chosen, key=lambda each: each[:2])]


def _promised_gain(switch: Switch, fixed: Finding | None, advice: Sequence[Finding]) -> float | None:
    """Return the largest predicted gain, in percent, of the findings that a switch fixes; None if it fixes none."""
    fixes = [fixed, *(each for each in advice if each.rule in switch.also)] if fixed else []
    return max((each.gain_pct for each in fixes if each.gain_pct is not None), default=None)


def _todo(report: Report | None, proofs: Sequence[Proof], switches: Mapping[str, Switch]) -> Iterator[Todo]:
    """Yield the findings that no switch fixes, according to the measurements."""
    useless = (NO_EFFECT, FAILED, NO_GAIN, SLOWER)
    useful = [
        (switches[name], proof.gain_pct) for proof in proofs if proof.verdict not in useless for name in proof.switches
    ]
    is_named = any(switches[name].function for proof in proofs for name in proof.switches)
    for finding in _advice(report):
        if not any(_mends(switch, gain_pct, finding) for switch, gain_pct in useful):
            can_name = JIT.fixes(finding.rule, finding.title) and not is_named
            hint = f" To measure that: --switch {JIT.name}." if can_name else ""
            yield Todo(
                finding.rule, finding.cause or finding.title, f"{finding.remedy}{hint}", finding.gain_pct, finding.code
            )


def _mends(switch: Switch, gain_pct: float | None, finding: Finding) -> bool:
    """Whether a switch fixes a finding; a switch that may help must reach most of the predicted gain."""
    if not switch.may_help(finding.rule, finding.title):
        return False
    is_promised = switch.fixes(finding.rule, finding.title) or finding.gain_pct is None
    return is_promised or gain_pct is None or gain_pct >= _MOSTLY * (finding.gain_pct or 0.0)


def _measure(series: _ProofRuns, sets: Sequence[tuple[str, ...]], first: int) -> int:
    """Run the unchanged program and each set of switches in rounds; return the number of complete rounds.

    A set that failed, changed nothing, or did not shorten the step is not run again.
    """
    done = 0
    for number in range(series.plan.rounds):
        waiting = [chosen for chosen in sets if _goes_on(series, chosen)]
        if number:
            # the sets with the largest gains, as many as there is time for
            waiting.sort(key=lambda chosen: sum(series.log_ratios(chosen)))
            while waiting and not series.has_time_for((), *waiting):
                waiting.pop()
                series.is_short |= not waiting
            if not waiting:
                break
        order: list[tuple[str, ...]] = [(), *waiting]
        for chosen in order if number % 2 == 0 else order[::-1]:
            # the set with the largest gain needs another round
            gained, best = min((min(series.log_ratios(each), default=0.0), each) for each in order)
            another_round: list[tuple[str, ...]] = [(), best] if gained < log(1 - _LEAST_GAIN) else []
            if chosen and not number and not series.has_time_for(chosen, *another_round):
                continue
            run = series.run(chosen, first + number)
            if run.failure and not (chosen or first + number):
                raise NotMeasured(f"the unchanged program {run.failure}", f"See: {series.plan.folder / 'log'}")
            is_late = run.timed_out and series.is_over
            if is_late or (run.failure and not chosen):
                # the runs before count
                del series.attempts[chosen][first + number]
                series.is_short |= is_late
                if not is_late:
                    series.notes.append(f"The unchanged program {run.failure} in round {first + number + 1}.")
                return done
        done += 1
    return done


def _goes_on(series: _ProofRuns, chosen: tuple[str, ...]) -> bool:
    """Whether a set of switches is worth another run."""
    if not all(not run.failure and _has_effect(run, chosen) for run in series.of(chosen)):
        return False
    ratios = series.log_ratios(chosen)
    return not ratios or min(ratios) < log(1 - _PAYS)


def _has_effect(run: Attempt, chosen: tuple[str, ...]) -> bool:
    return all(run.effects.get(name, 0) > 0 for name in chosen)


def _proof(series: _ProofRuns, switches: Sequence[Switch], finding: Finding | None) -> Proof:
    """Judge the runs of a set of switches against those of the unchanged program, without the interval.

    The verdict is final unless it is NO_GAIN.
    """
    chosen = tuple(switch.name for switch in switches)
    base, changed, steps_ns = series.of(()), series.of(chosen), series.steps_ns(chosen)
    # of the rounds in which both ran
    base_ns = _median([one for one, _ in steps_ns] or [series.step_ns(run) for run in base])
    gain_pct = finding.gain_pct if finding else None
    why = next((run.why[name] for run in changed for name in chosen if name in run.why), "")
    proof = Proof(
        chosen,
        finding.rule if finding else "",
        (finding.cause or finding.title) if finding else "",
        base_ns * (1 - gain_pct / 100) if base_ns and gain_pct is not None else None,
        base_ns,
        step_ns=None,
        log_ratio=None,
        error=None,
        rounds=0,
        results=Agreement(UNKNOWN),
        verdict=FAILED,
        why=why,
        code="\n".join(switch.code for switch in switches),
    )
    if not changed:
        return replace(proof, verdict=NOT_MEASURED, why="the budget was used up")
    if failed := next((run.failure for run in changed if run.failure), ""):
        return replace(proof, why=f"the program {failed}")
    if not all(_has_effect(run, chosen) for run in changed):
        return replace(proof, verdict=NO_EFFECT, why=why or "nothing to change was found")
    if not series.attempts.get((), {}).keys() & series.attempts[chosen].keys():
        return replace(proof, verdict=NOT_MEASURED, why="the budget was used up")
    if not steps_ns:
        return replace(proof, why="no step was timed")
    return replace(
        proof,
        step_ns=_median([other for _, other in steps_ns]),
        log_ratio=fmean(series.log_ratios(chosen)),
        rounds=len(steps_ns),
        results=_results(base, changed, _numerics(switches)),
        verdict=NO_GAIN,
        places={name: changed[0].places.get(name, ()) for name in chosen},
    )


def _median(steps_ns: Sequence[float]) -> float | None:
    """Return the median of the timed steps; None without one."""
    return median(timed) if (timed := [step for step in steps_ns if step > 0]) else None


def _numerics(switches: Sequence[Switch]) -> str:
    """Return the largest change of numerics."""
    return max((switch.numerics for switch in switches), key=NUMERICS.index)


def _compared_again(proof: Proof, series: _ProofRuns) -> Proof:
    """Return a faster proof whose results differ with the verdict of runs that are easier to compare, if these agree.

    A changed program draws different random numbers: without dropout, its results may be equal. And training amplifies
    differences: the results may differ as much as those of an unchanged program with perturbed weights.
    """
    numerics = _numerics([series.switch[name] for name in proof.switches])
    if proof.verdict != FASTER or proof.results.verdict != DIFFERENT or series.plan.check:
        return proof

    def ran(*names: str) -> list[Attempt]:
        if names not in series.attempts and series.has_time_for(names):
            series.run(names, proof.rounds)
        return series.of(names)

    base, changed = series.of(()), series.of(proof.switches)
    without = (NO_DROPOUT.name,) if series.has_dropout else ()
    if without:
        base, changed = ran(*without), ran(*proof.switches, *without)
    # a run in which the switch, or dropout, had no effect compares something else
    has_effect = all(_has_effect(run, (*proof.switches, *without)) for run in changed)
    if not has_effect or any(run.failure for run in (*base, *changed)):
        return proof
    results = _results(base, changed, numerics)
    if results.verdict == DIFFERENT and numerics in PERTURBED:
        perturbed = ran(*without, PERTURBED[numerics].name)
        results = _results([*base, *perturbed], changed, numerics)
    if results.verdict not in (EQUAL, WITHIN):
        return proof
    detail = f"without dropout: {results.detail}" if without else results.detail
    proof = replace(proof, results=replace(results, detail=detail))
    return replace(proof, verdict=_verdict(proof, series.log_ratios(proof.switches)))


def _single_proofs(series: _ProofRuns, chosen: Sequence[tuple[Switch, Finding | None]]) -> tuple[Proof, ...]:
    """Return the proof of each chosen switch."""
    return _judged([_proof(series, (switch,), finding) for switch, finding in chosen], series)


def _is_unsure(proof: Proof) -> bool:
    """Whether only the interval keeps a fix from being proven."""
    return proof.verdict == FASTER and proof.error is not None and proof.results.verdict in (EQUAL, WITHIN)


def _judged(proofs: Sequence[Proof], series: _ProofRuns, *, others: int = 0) -> tuple[Proof, ...]:
    """Return the proofs with their intervals, p values and verdicts. others: the number of sets that may follow.

    All sets of switches run on the same machine, so their spread is estimated together: a few rounds of one set show
    little. The p values of all are adjusted together, including sets that were not faster in the first round: of many
    switches that change nothing, one looks faster by chance. Leaving out slower switches only makes false proofs rarer.
    """
    from scipy.stats import t  # noqa: PLC0415 (takes half a second, and few commands need it)

    from nightsight.compare.statistics import holm  # noqa: PLC0415 (needs SciPy, too)

    rows = {proof.switches: series.log_ratios(proof.switches) for proof in proofs if proof.log_ratio is not None}
    several = [len(ratios) - 1 for ratios in rows.values() if len(ratios) > 1]
    # all share the runs of the unchanged program, which cause half of the spread
    degrees = sum(several) * (1 + 1 / len(several)) / 2 if several else 0
    squares = sum((ratio - fmean(ratios)) ** 2 for ratios in rows.values() for ratio in ratios)
    # one round proves nothing, but was a chance to look faster
    errors = {
        names: sqrt(squares / sum(several) / len(ratios)) if len(ratios) > 1 else inf for names, ratios in rows.items()
    }
    scores = [abs(fmean(ratios)) / max(errors[names], _LEAST_ERROR) for names, ratios in rows.items()]
    chances = np.asarray(2 * t.sf([*scores, *[0.0] * others], max(degrees, 1)))
    adjusted = dict(zip(rows, holm(chances), strict=False))
    judged = []
    for proof in proofs:
        ratios = rows.get(proof.switches, [])
        if len(ratios) > 1:
            width = float(t.ppf(1 - _ALPHA / 2, degrees)) * errors[proof.switches]
            proof = replace(proof, error=width, p=float(adjusted[proof.switches]))  # noqa: PLW2901 (with its interval)
        is_open = proof.verdict == NO_GAIN
        judged.append(replace(proof, verdict=_verdict(proof, ratios)) if is_open else proof)
    return tuple(_compared_again(proof, series) for proof in judged)


def _results(base: Sequence[Attempt], changed: Sequence[Attempt], numerics: str) -> Agreement:
    """Return whether results agree: by the user's check if there is one, otherwise by losses and outputs."""
    checks = [run.checked for run in changed if run.checked is not None]
    if checks:
        if not all(run.checked for run in base):
            return Agreement(UNKNOWN, "the check rejects the unchanged program")
        return (
            Agreement(EQUAL, "accepted by the check") if all(checks) else Agreement(DIFFERENT, "rejected by the check")
        )
    return compare_outcomes([run.values for run in base], [run.values for run in changed], numerics)


def _verdict(proof: Proof, log_ratios: Sequence[float]) -> str:
    """Return the verdict: proven only if the adjusted p value is small; faster also if each round gains a lot."""
    mean, error = proof.log_ratio or 0.0, proof.error
    width = error if error is not None else _LEAST_GAIN
    if mean + width < 0 and mean < log(1 - _LEAST_GAIN):
        is_sure = proof.p is not None and proof.p < _ALPHA
        return PROVEN if proof.results.verdict in (EQUAL, WITHIN) and is_sure else FASTER
    if max(log_ratios, default=0.0) < log(1 - _CLEAR_GAIN):
        return FASTER
    return SLOWER if mean - width > 0 and mean > _LEAST_GAIN else NO_GAIN


def _best_set(series: _ProofRuns, proofs: Sequence[Proof], first: int) -> Proof | None:
    """Combine the effective switches, the largest gain first; each must shorten the step further.

    None if there is only one, or no time.
    """
    paying = [proof for proof in proofs if proof.verdict in (PROVEN, FASTER) and proof.results.verdict != DIFFERENT]
    paying.sort(key=lambda proof: proof.log_ratio or 0.0)
    best: Proof | None = None
    names: tuple[str, ...] = ()
    for proof in paying[:_MOST_IN_SET]:
        (name,) = proof.switches
        if not names:
            best, names = proof, (name,)
            continue
        if any(name in series.switch[other].excludes or other in series.switch[name].excludes for other in names):
            continue
        together = (*names, name)
        if not series.has_time_for(*[(), together] * series.plan.rounds):
            series.notes.append(f"There was no time for {' + '.join(together)} together. Give more with --budget.")
            break
        # its rounds have separate runs of the unchanged program
        own = replace(series, attempts={})
        first += _measure(own, [together], first)
        joined = _proof(own, [series.switch[each] for each in together], None)
        (judged,) = _judged([joined], own, others=min(len(paying), _MOST_IN_SET) - 2)
        pays = judged.verdict in (PROVEN, FASTER) and judged.results.verdict != DIFFERENT
        if pays and best and (judged.log_ratio or 0.0) < (best.log_ratio or 0.0) + log(1 - _LEAST_GAIN):
            best, names = judged, together
    return best if len(names) > 1 else None
