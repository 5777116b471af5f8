"""Finds the commit that changed a metric, with `git bisect run` in a separate worktree.

Each step measures the commit in pairs with the good one, as machines drift while a bisection takes its time, and asks
on which side of half the difference between the ends it lies. git starts each step as a separate process, whose exit
status is 0 for good, 1 for bad, and 125 if the commit could not be measured; any failure of ours ends the bisection.
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
from nightsight.collect.worktrees import GIT, Checkout, Side, checkout, git, worktrees
from nightsight.compare import METRICS, Settings, compare
from nightsight.errors import Interrupted, NotMeasured, UsageError
from nightsight.model.compare import COUNTS, Comparison, unit_of
from nightsight.texts import log_line
from nightsight.units import format_value
from nightsight.workflows.trials import BASELINE, CANDIDATE, Runs, Trial, ended_in_words, gate_value

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
class Found:
    """The first bad commit: its short name and subject, and what the metric is there and was before."""

    commit: str
    subject: str
    metric: str
    sentence: str


@dataclass(frozen=True)
class _State:
    """What a step needs to know: the trial, the worktrees, and what to look for. Kept in a file between the steps."""

    trial: Trial
    of: Checkout
    good: Side
    tree: Side
    metric: str
    effect: float
    pairs: int


def bisected(
    trial: Trial, refs: tuple[str, str], metric: str, pairs: int, *, settings: Callable[[str], Settings]
) -> Found:
    """Return the first bad commit between the good and the bad ref.

    Without a `metric`, it is the one that decides which changed most. NotMeasured if the ends are not known to differ,
    or if an end cannot be measured, or if commits that cannot be measured hide the one that is looked for.
    """
    if metric and metric not in METRICS:
        raise UsageError(f"unknown metric {metric!r}", f"Metrics: {', '.join(METRICS)}.")
    of = checkout()
    good, bad = (of.commit_of(ref) for ref in refs)
    if not good or not bad:
        raise UsageError("bisect needs two commits", "The checkout as it is (.) has no history. Commit it first.")
    runs = Runs(trial, of)
    named = dict(zip((BASELINE, CANDIDATE), refs, strict=True))
    with ended_in_words(runs), worktrees(of, named, python=trial.asked.python) as sides:
        for side in sides.values():
            runs.prepare(side)
        chosen, ends = ends_of(runs, sides, pairs, metric, settings=settings)
        metric = metric_of(ends, chosen, metric, refs)
        ratios = runs.log_ratios(metric)
        if len(ratios) < len(ends.baseline):
            raise NotMeasured(f"{metric} is 0 in a run of {refs[0]} or {refs[1]}", _OTHER_METRIC)
        effect = statistics.median(ratios)
        trial.request.progress(f"reproduced: {metric} {100 * expm1(effect):+.2f} % from {refs[0]} to {refs[1]}")
        state = _State(trial, of, sides[BASELINE], sides[CANDIDATE], metric, effect, pairs)
        first = _first_bad(state, good, bad)
        values = [statistics.median(gate_value(run, metric) for run in runs.measured[side]) for side in sides]
        low, high = (format_value(value, f"value_{unit_of('gate', metric)}") for value in values)
        subject = git(of.root, "show", "--no-patch", "--format=%s", first).strip()
        sentence = f"{metric}: {low} at {refs[0]}, {high} at {refs[1]} ({100 * expm1(effect):+.2f} %)"
        return Found(git(of.root, "rev-parse", "--short=12", first).strip(), subject, metric, sentence)


def ends_of(
    runs: Runs, sides: Mapping[str, Side], pairs: int, metric: str, *, settings: Callable[[str], Settings]
) -> tuple[Settings, Comparison]:
    """Measure both ends and compare them; twice as many pairs are measured where the first settle nothing."""
    for number in (pairs, 2 * pairs):
        runs.measure_pairs(sides[BASELINE], sides[CANDIDATE], number)
        chosen = settings(runs.workload)
        ends = compare(runs.measured[BASELINE], runs.measured[CANDIDATE], settings=chosen)
        verdicts = set(_rows(ends, chosen, metric)["verdict"])
        if verdicts & _CHANGED or "inconclusive" not in verdicts:
            break
    return chosen, ends


def _rows(ends: Comparison, settings: Settings, asked: str) -> pd.DataFrame:
    """Return the rows of what is looked at: the metric that was asked for, or all that decide."""
    gate = ends.changes[ends.changes["kind"] == "gate"]
    return gate[gate["name"] == asked] if asked else gate[gate["name"].isin(settings.judged)]


def metric_of(ends: Comparison, settings: Settings, asked: str, refs: tuple[str, str]) -> str:
    """Return the metric to look at, which has changed from one end to the other."""
    rows, gate = _rows(ends, settings, asked), ends.changes[ends.changes["kind"] == "gate"]
    if asked and not len(rows):
        raise NotMeasured(f"{asked} was not measured in these runs", f"Measured: {', '.join(gate['name'])}.")
    changed = (rows if asked else gate).query("verdict in ['regressed', 'improved']")
    if not len(changed):
        came = rows[rows["verdict"].isin(["added", "removed"])]
        if len(came):
            # the threshold is half of a ratio, which 0 does not have
            name, end = came["name"].iloc[0], refs[came["verdict"].iloc[0] == "removed"]
            raise NotMeasured(f"{name} is 0 at {end}, so no ratio can tell good from bad commits", _OTHER_METRIC)
        raise _not_reproduced(rows, refs)
    # a changed count matters less than a changed time
    ranked = changed.assign(
        rank=2 * ~changed["name"].isin(settings.judged) + changed["name"].isin(COUNTS),
        size=-changed["change_pct"].abs(),
    )
    return str(ranked.sort_values(["rank", "size"], kind="stable")["name"].iloc[0])


def _not_reproduced(rows: pd.DataFrame, refs: tuple[str, str]) -> NotMeasured:
    """Return the error if the ends do not differ, or if that is unknown."""
    times = rows[~rows["name"].isin(COUNTS)]
    rows = times if len(times) else rows
    texts = [_moved(*row) for row in rows[["name", "change_pct", "verdict"]].itertuples(index=False, name=None)]
    open_ = rows[rows["verdict"] == "inconclusive"]
    if not len(open_):
        said, hint = f"{refs[0]} and {refs[1]} do not differ", "Name the metric with --metric, or measure more pairs."
    else:
        needed = open_["needed_runs"].max()
        said = f"it is unknown whether {refs[0]} and {refs[1]} differ"
        hint = (
            f"--pairs {needed:.0f} would settle it." if isfinite(needed) else "Runs of the same commit differ too much."
        )
    return NotMeasured(f"not reproduced: {said}: {'; '.join(texts)}", hint)


def _moved(name: str, change_pct: float, verdict: str) -> str:
    return f"{name} {f'{change_pct:+.2f} %' if isfinite(change_pct) else 'is 0'} ({verdict})"


def _first_bad(state: _State, good: str, bad: str) -> str:
    """Run `git bisect run`, and return the first bad commit."""
    tree, file = state.tree.root, state.tree.root.parent / "bisect.state"
    # the runs of the steps are not kept: they are many
    request = replace(state.trial.request, progress=_say)
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
        here = replace(state.tree, ref=commit)
        runs = Runs(state.trial, state.of)
        with ended_in_words(runs):
            runs.prepare(here)
            status, said = judged(state, lambda number: _ratios(runs, state, here, number))
        _say(f"{commit}: {said}")
        return status
    except NotMeasured as error:
        _say(f"cannot be measured: {error.message}")
        return SKIP
    except Interrupted as error:
        _say(error.message)
        return _BROKEN
    except BaseException:  # noqa: BLE001 (git must hear of any failure)
        # Python ends with status 1 then, which git takes for bad
        sys.excepthook(*sys.exc_info())
        return _BROKEN


def judged(state: _State, measure: Callable[[int], Sequence[float]]) -> tuple[int, str]:
    """Return the exit status, and why: good and bad are apart by half the effect between the ends.

    If that is within the error of the measurement, twice as many pairs are measured. `measure` takes their number and
    returns the log ratios.
    """
    half = state.effect / 2
    for number in (state.pairs, 2 * state.pairs):
        ratios = measure(number)
        if not ratios:
            raise NotMeasured(f"{state.metric} is 0")
        middle, error = statistics.fmean(ratios), _half_width(ratios)
        if abs(middle - half) > error:
            break
    else:
        return SKIP, f"{state.metric} {100 * expm1(middle):+.2f} % is neither good nor bad"
    is_bad = (middle - half) * half > 0
    return (BAD if is_bad else GOOD), f"{state.metric} {100 * expm1(middle):+.2f} %: {'bad' if is_bad else 'good'}"


def _ratios(runs: Runs, state: _State, here: Side, pairs: int) -> list[float]:
    runs.measure_pairs(state.good, here, pairs)
    return runs.log_ratios(state.metric)


def _half_width(ratios: Sequence[float]) -> float:
    """Return half of the 90 % interval of the mean; no error is known of a single value."""
    from scipy.stats import t  # noqa: PLC0415 (takes half a second)

    if len(ratios) < 2:
        return 0.0
    return float(t.ppf(0.95, len(ratios) - 1)) * statistics.stdev(ratios) / sqrt(len(ratios))


def _say(text: str, /, *, done: float = 0, of: float = 0, is_series: bool = False) -> None:  # noqa: ARG001 (a Progress)
    sys.stderr.write(f"{log_line(text)}\n")
