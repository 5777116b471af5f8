"""Finds the commit that changed a metric, with `git bisect run` in a separate worktree.

Each step measures its commit in pairs with the good one, because a machine may drift during a bisection. A commit is
bad if it shows more than half of the difference between the two ends. git starts each step as a separate process, whose
exit status is 0 for a good commit, 1 for a bad one, and 125 if the commit could not be measured; a crash ends the
bisection.
"""

import os
import pickle
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import expm1, inf, isfinite, sqrt
from pathlib import Path
from typing import Final

import pandas as pd

import nightsight
from nightsight.collect.process import Child, last_lines, run_logged
from nightsight.collect.worktrees import GIT, Checkout, Side, find_checkout, git, worktrees
from nightsight.compare import METRICS, Settings, compare
from nightsight.errors import Interrupted, NotMeasured, UsageError
from nightsight.model.compare import COUNTS, Comparison, unit_of
from nightsight.texts import log_line
from nightsight.units import format_value, signed
from nightsight.workflows.trials import BASELINE, CANDIDATE, Runs, Trial, explain_errors

GOOD: Final = 0
BAD: Final = 1
SKIP: Final = 125
_CHANGED: Final = frozenset({"regressed", "improved", "added", "removed"})
# above 127, git ends the bisection
_BROKEN: Final = 255
_OTHER_METRIC: Final = "Choose another with --metric."
_STEP: Final = (
    "import sys; sys.path[:0] = [sys.argv.pop(1)]; from nightsight.workflows.bisect import step; sys.exit(step())"
)


@dataclass(frozen=True)
class FirstBad:
    """The first bad commit: its short name and subject, the metric, and a sentence with its values at both ends."""

    commit: str
    subject: str
    metric: str
    sentence: str


@dataclass(frozen=True)
class _StepInput:
    """The input of a step: the trial, the worktrees, and the change to look for. A file passes it to each step."""

    trial: Trial
    checkout: Checkout
    good: Side
    tree: Side
    metric: str
    effect: float
    pairs: int


def find_first_bad(
    trial: Trial, refs: tuple[str, str], metric: str, pairs: int, *, settings: Callable[[str], Settings]
) -> FirstBad:
    """Return the first bad commit between the good and the bad ref.

    Without a `metric`, the deciding metric that changed most is used. NotMeasured if the ends do not clearly differ, if
    one of them cannot be measured, or if commits that cannot be measured hide the first bad one.
    """
    if metric and metric not in METRICS:
        raise UsageError(f"unknown metric {metric!r}", f"Metrics: {', '.join(METRICS)}.")
    checkout = find_checkout()
    good, bad = (checkout.commit_of(ref) for ref in refs)
    if not good or not bad:
        raise UsageError("bisect needs two commits", "The checkout as it is (.) has no history. Commit it first.")
    runs = Runs(trial, checkout)
    ref_of = dict(zip((BASELINE, CANDIDATE), refs, strict=True))
    with explain_errors(runs), worktrees(checkout, ref_of, python=trial.program.python) as sides:
        for side in sides.values():
            runs.prepare(side)
        chosen, ends = measure_ends(runs, sides, pairs, metric, settings=settings)
        metric = choose_metric(ends, chosen, metric, refs)
        ratios = runs.log_ratios(metric)
        if len(ratios) < len(ends.baseline):
            raise NotMeasured(f"{metric} is 0 in a run of {refs[0]} or {refs[1]}", _OTHER_METRIC)
        effect = statistics.median(ratios)
        trial.request.progress(f"reproduced: {metric} {signed(100 * expm1(effect), 2)} % from {refs[0]} to {refs[1]}")
        state = _StepInput(trial, checkout, sides[BASELINE], sides[CANDIDATE], metric, effect, pairs)
        first = _first_bad(state, good, bad)
        values = [statistics.median(run.metric(metric) for run in runs.measured[side]) for side in sides]
        low, high = (format_value(value, f"value_{unit_of('gate', metric)}") for value in values)
        subject = git(checkout.root, "show", "--no-patch", "--format=%s", first).strip()
        sentence = f"{metric}: {low} at {refs[0]}, {high} at {refs[1]} ({signed(100 * expm1(effect), 2)} %)"
        return FirstBad(git(checkout.root, "rev-parse", "--short=12", first).strip(), subject, metric, sentence)


def measure_ends(
    runs: Runs, sides: Mapping[str, Side], pairs: int, metric: str, *, settings: Callable[[str], Settings]
) -> tuple[Settings, Comparison]:
    """Measure both ends and compare them; measure twice as many pairs if the first ones settle nothing."""
    for number in (pairs, 2 * pairs):
        runs.measure_pairs(sides[BASELINE], sides[CANDIDATE], number)
        chosen = settings(runs.workload)
        ends = compare(runs.measured[BASELINE], runs.measured[CANDIDATE], settings=chosen)
        verdicts = set(_gate_changes(ends, chosen, metric)["verdict"])
        if verdicts & _CHANGED or "inconclusive" not in verdicts:
            break
    return chosen, ends


def _gate_changes(ends: Comparison, settings: Settings, metric: str) -> pd.DataFrame:
    """Return the changes to look at: that of the requested metric, or those of all deciding metrics."""
    gate = ends.changes[ends.changes["kind"] == "gate"]
    return gate[gate["name"] == metric] if metric else gate[gate["name"].isin(settings.judged)]


def choose_metric(ends: Comparison, settings: Settings, requested: str, refs: tuple[str, str]) -> str:
    """Return the metric to bisect: one that changed between the ends. NotMeasured if none did."""
    rows, gate = _gate_changes(ends, settings, requested), ends.changes[ends.changes["kind"] == "gate"]
    if requested and not len(rows):
        raise NotMeasured(f"{requested} was not measured in these runs", f"Measured: {', '.join(gate['name'])}.")
    changed = (rows if requested else gate).query("verdict in ['regressed', 'improved']")
    if not len(changed):
        zero = rows[rows["verdict"].isin(["added", "removed"])]
        if len(zero):
            # the threshold is half of a ratio, and a ratio to 0 is undefined
            name, end = zero["name"].iloc[0], refs[zero["verdict"].iloc[0] == "removed"]
            raise NotMeasured(f"{name} is 0 at {end}, so no ratio can tell good from bad commits", _OTHER_METRIC)
        raise _not_reproduced(rows, refs)
    # a changed count matters less than a changed time
    ranked = changed.assign(
        rank=2 * ~changed["name"].isin(settings.judged) + changed["name"].isin(COUNTS),
        size=-changed["change_pct"].abs(),
    )
    return str(ranked.sort_values(["rank", "size"], kind="stable")["name"].iloc[0])


def _not_reproduced(rows: pd.DataFrame, refs: tuple[str, str]) -> NotMeasured:
    """Return the error for ends that do not differ, or may not."""
    times = rows[~rows["name"].isin(COUNTS)]
    rows = times if len(times) else rows
    texts = [
        f"{name} {f'{signed(change_pct, 2)} %' if isfinite(change_pct) else 'is 0'} ({verdict})"
        for name, change_pct, verdict in rows[["name", "change_pct", "verdict"]].itertuples(index=False, name=None)
    ]
    undecided = rows[rows["verdict"] == "inconclusive"]
    if not len(undecided):
        problem = f"{refs[0]} and {refs[1]} do not differ"
        hint = "Name the metric with --metric, or measure more pairs."
    else:
        needed = undecided["needed_runs"].max()
        problem = f"it is unknown whether {refs[0]} and {refs[1]} differ"
        hint = (
            f"--pairs {needed:.0f} would settle it." if isfinite(needed) else "Runs of the same commit differ too much."
        )
    return NotMeasured(f"not reproduced: {problem}: {'; '.join(texts)}", hint)


def _first_bad(state: _StepInput, good: str, bad: str) -> str:
    """Run `git bisect run`, and return the first bad commit."""
    tree, file = state.tree.root, state.tree.root.parent / "bisect.state"
    # do not keep the runs of the steps: there are too many
    request = replace(state.trial.request, progress=_print_progress)
    trial = replace(state.trial, request=request, reports=file.with_name("reports"))
    file.write_bytes(pickle.dumps(replace(state, trial=trial)))
    log = file.with_suffix(".log")
    git(tree, "bisect", "start", bad, good)
    package = str(Path(nightsight.__file__).parents[1])
    command = (*GIT, "bisect", "run", sys.executable, "-P", "-c", _STEP, package, str(file))
    child = Child(command, dict(os.environ), folder=tree)
    outcome = run_logged(child, log=log, timeout_s=inf, verbose=True)
    if outcome.interrupted:
        raise KeyboardInterrupt
    skipped = git(tree, "bisect", "log").count("# possible first bad commit")
    if outcome.status == 2 or skipped:
        raise NotMeasured(
            "commits that could not be measured hide the first bad one",
            f"git says:\n{last_lines(log)}",
        )
    if not outcome.ok:
        raise NotMeasured("the bisection ended early", f"git says:\n{last_lines(log)}")
    return git(tree, "rev-parse", "refs/bisect/bad").strip()


# -- a step -----------------------------------------------------------------------------------------------------------


def step() -> int:
    """Measure the commit that git has checked out, and return the exit status for `git bisect run`."""
    try:
        state = pickle.loads(Path(sys.argv[1]).read_bytes())  # noqa: S301 (what `_first_bad` wrote, in our own folder)
        commit = git(state.tree.root, "rev-parse", "--short=12", "HEAD").strip()
        side = replace(state.tree, ref=commit)
        runs = Runs(state.trial, state.checkout)
        with explain_errors(runs):
            runs.prepare(side)

            def measure(pairs: int) -> list[float]:
                runs.measure_pairs(state.good, side, pairs)
                return runs.log_ratios(state.metric)

            status, reason = judge(state, measure)
        _print_progress(f"{commit}: {reason}")
        return status
    except NotMeasured as error:
        _print_progress(f"cannot be measured: {error.message}")
        return SKIP
    except Interrupted as error:
        _print_progress(error.message)
        return _BROKEN
    except BaseException:  # noqa: BLE001 (git must hear of any failure)
        # Python would exit with 1, which means "bad" to git
        sys.excepthook(*sys.exc_info())
        return _BROKEN


def judge(state: _StepInput, measure: Callable[[int], Sequence[float]]) -> tuple[int, str]:
    """Return the exit status of a step and the reason: a bad commit shows more than half of the effect.

    If half of the effect is within the measurement error, twice as many pairs are measured. `measure` takes the number
    of pairs and returns their log ratios.
    """
    half = state.effect / 2
    for number in (state.pairs, 2 * state.pairs):
        ratios = measure(number)
        if not ratios:
            raise NotMeasured(f"{state.metric} is 0")
        mean = statistics.fmean(ratios)
        if abs(mean - half) > _half_width(ratios):
            break
    else:
        return SKIP, f"{state.metric} {signed(100 * expm1(mean), 2)} % is neither good nor bad"
    is_bad = (mean - half) * half > 0
    return (BAD if is_bad else GOOD), f"{state.metric} {signed(100 * expm1(mean), 2)} %: {'bad' if is_bad else 'good'}"


def _half_width(ratios: Sequence[float]) -> float:
    """Return half the width of the 90 % interval of the mean; 0.0 for a single value, whose error is unknown."""
    from scipy.stats import t  # noqa: PLC0415 (takes half a second)

    if len(ratios) < 2:
        return 0.0
    return float(t.ppf(0.95, len(ratios) - 1)) * statistics.stdev(ratios) / sqrt(len(ratios))


def _print_progress(text: str, /, *, done: float = 0, of: float = 0, is_series: bool = False) -> None:  # noqa: ARG001 (a Progress)
    sys.stderr.write(f"{log_line(text)}\n")
