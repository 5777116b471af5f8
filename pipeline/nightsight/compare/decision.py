"""What a comparison says in a sentence, and what a gate decides on it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

import numpy as np
import pandas as pd

from nightsight.compare.settings import Limit, Settings
from nightsight.comparison import (
    COPIES,
    COPYING,
    EXPOSED,
    KERNELS,
    LAUNCHES,
    STEP,
    UNPROFILED,
    Accepted,
    Decision,
    Difference,
    Verdict,
    unit_of,
)
from nightsight.events.kernel_kinds import kind_of, operation
from nightsight.events.kernel_names import base_name
from nightsight.results import IDLE
from nightsight.units import format_value

_PASS, _REGRESSION, _NOT_MEASURED, _INCONCLUSIVE = 0, 1, 3, 4
_WORDS: Final = {
    UNPROFILED: "a step without the profiler",
    STEP: "a step",
    KERNELS: "GPU kernel time",
    EXPOSED: "exposed communication",
    COPYING: "copy time",
    LAUNCHES: "launches a step",
    COPIES: "copies a step",
}
# a program that has none of these has 0 of them: they are not reported then
_CAN_BE_NONE: Final = (LAUNCHES, COPIES, COPYING, EXPOSED)
_MOST: Final = 3
_LONGEST: Final = 80


@dataclass(frozen=True)
class _Metric:
    """A gate metric of the table of changes."""

    name: str
    baseline: float
    candidate: float
    change_pct: float
    low_pct: float
    high_pct: float
    verdict: Verdict
    needed_runs: float
    note: str

    @property
    def is_known(self) -> bool:
        """Whether both sides measured it: a program without steps and kernels has 0 of both, which says nothing."""
        values = (self.baseline, self.candidate)
        return all(map(isfinite, values)) and (max(values) if self.name in _CAN_BE_NONE else min(values)) > 0

    @property
    def delta(self) -> float:
        """How much more the candidate has, which may be all of it."""
        before, after = (value if isfinite(value) else 0.0 for value in (self.baseline, self.candidate))
        return after - before

    @property
    def words(self) -> str:
        return _WORDS.get(self.name, self.name)

    @property
    def moved(self) -> str:
        """The metric with its change and interval: `a step +4.1 % (+3.2 to +5.0 %)`."""
        sides = [value if isfinite(value) else 0.0 for value in (self.baseline, self.candidate)]
        if not any(sides):
            return f"{self.words} 0 on both sides"
        change = f"{self.change_pct:+.1f} %" if all(sides) else "only on one side"
        interval = f" ({self.low_pct:+.1f} to {self.high_pct:+.1f} %)" if isfinite(self.low_pct) else ""
        return f"{self.words} {change}{interval}"

    @property
    def why(self) -> str:
        """What is not settled about it, and what would settle it."""
        return self.note or (
            f"{self.needed_runs:.0f} runs a side would settle it" if isfinite(self.needed_runs) else ""
        )


def _metrics(changes: pd.DataFrame, names: Sequence[str]) -> list[_Metric]:
    gate = changes[(changes["kind"] == "gate") & changes["name"].isin(names)]
    columns = list(_Metric.__dataclass_fields__)
    return [_Metric(*row) for row in gate[columns].itertuples(index=False, name=None)]


def said(  # noqa: PLR0913 (three by name)
    verdict: Verdict,
    changes: pd.DataFrame,
    causes: pd.DataFrame,
    *,
    deciding: Sequence[str],
    size: str,
    unlike: Sequence[Difference],
) -> str:
    """Return the verdict in words: the causes that came or went, the metric that it is about, and what is not sure."""
    metrics = _metrics(changes, deciding)
    if not metrics:
        return f"No metric that decides was measured, on {size}."
    first = next((metric for metric in metrics if metric.verdict == verdict), metrics[0])
    delta = first.delta
    came = {"regressed": "added", "improved": "removed", "inconclusive": "added" if delta > 0 else "removed"}.get(
        verdict
    )
    titles = causes.loc[causes["verdict"] == came, "title"].tolist()[:_MOST] if came else []
    named = "; ".join(str(title).partition(": ")[0] for title in titles)
    cause = f"{'New' if came == 'added' else 'Gone'}: {named}. " if named else ""
    why = _doubt(first, unlike) if verdict == "inconclusive" else ""
    why = "too few to tell a change from noise" if why.startswith("fewer than") else why
    text = f"{cause}{first.moved[:1].upper()}{first.moved[1:]}, on {size}{f': {why}' if why else ''}."
    return text if named else f"{text}{_largest(changes, verdict, delta)}"


def _doubt(metric: _Metric, unlike: Sequence[Difference]) -> str:
    named = ", ".join(each.what for each in unlike if metric.name in each.affects)
    return f"not comparable ({named})" if named else metric.why


def _largest(changes: pd.DataFrame, verdict: Verdict, delta: float) -> str:
    """Return the kernel or the idle part of a step that explains most; if nothing is to be explained, what changed."""
    directions = {"regressed": ("regressed", "added"), "improved": ("improved", "removed")}
    wanted = directions.get(verdict, ("regressed", "added", "improved", "removed"))
    is_part = (changes["kind"] == "kernel") | (changes["kind"] == "gate") & changes["name"].isin(IDLE)
    found = changes[is_part & changes["verdict"].isin(wanted)]
    moves = (found["candidate"].fillna(0) - found["baseline"].fillna(0)).to_numpy(dtype=np.float64)
    if not moves.any():
        return ""
    place = int(np.abs(moves).argmax())
    move, share, name = (
        float(moves[place]),
        float(found["change_pct"].iloc[place]),
        _called(str(found["name"].iloc[place])),
    )
    signed = f"{'+' if move > 0 else '-'}{format_value(abs(move), 'delta_ns')} a step"
    if verdict in directions:
        return f" {'Most of it' if abs(move) > abs(delta) / 2 else 'The largest part'}: {name}, {signed}."
    return f" But {name} changed: {signed}{f' ({share:+.1f} %)' if isfinite(share) else ''}."


def _called(name: str) -> str:
    """Return a kernel's name as short as a sentence needs it: the function, and what it computes."""
    base, what = base_name(name), operation(name)
    short = base if len(base) <= _LONGEST else f"{base[:50]}…{base[-25:]}"
    is_told = what in base.lower() or what == "elementwise" or kind_of(name) not in ("elementwise", "reduction")
    return short if is_told else f"{short} ({what})"


def decided(
    changes: pd.DataFrame, settings: Settings, workload: str, size: str, unlike: Sequence[Difference]
) -> Decision:
    """Decide as a gate: absolute limits hold for the median of the candidate, all others need a significant change."""
    metrics = _metrics(changes, settings.judged)
    known = sum(metric.is_known for metric in metrics)
    on = f"on {size}, {known} {'metric' if known == 1 else 'metrics'}"
    if not known:
        return Decision(_NOT_MEASURED, f"could not measure: both sides know no metric that decides, {on}")
    if lacking := list(_lacking(metrics, settings)):
        return Decision(_NOT_MEASURED, f"could not measure: {lacking[0]}, {on}")
    excused = {metric.name: by for metric in metrics if (by := _excuse(metric, settings, workload))}
    over, regressed = list(_over(metrics, settings)), list(_regressed(metrics, settings))
    accepted = tuple(
        f"{text}: {by.reason} ({by.date})" for metric, text in regressed if (by := excused.get(metric.name)) is not None
    )
    # what was accepted is a change: a budget is raised in the settings
    wrong = [*over, *(each for each in regressed if each[0].name not in excused)]
    if broken := tuple(text for _, text in wrong):
        return Decision(_REGRESSION, f"regression: {'; '.join(broken)}, {on}", broken, accepted)
    if open_ := [metric for metric in _open(metrics, settings) if metric.name not in excused]:
        # several metrics are open for one reason
        reasons = dict.fromkeys(_doubt(metric, unlike) for metric in open_)
        moved = {why: ", ".join(one.moved for one in open_ if _doubt(one, unlike) == why) for why in reasons}
        doubt = "; ".join(", ".join(filter(None, (texts, why))) for why, texts in moved.items())
        return Decision(_INCONCLUSIVE, f"inconclusive: {doubt}, {on}", (), accepted)
    improved = "; ".join(metric.moved for metric in metrics if metric.verdict == "improved")
    allowed = f"; {len(accepted)} accepted" if accepted else ""
    return Decision(_PASS, f"passed: {improved or 'no regression'}{allowed}, {on}", (), accepted)


def _lacking(metrics: Sequence[_Metric], settings: Settings) -> Iterator[str]:
    """Yield what the candidate had to measure and did not."""
    there = {metric.name for metric in metrics if isfinite(metric.candidate)}
    has_work = bool({KERNELS, LAUNCHES} & there)
    for name in settings.limits:
        if name not in there and not (name in _CAN_BE_NONE and has_work):
            yield f"{name} has a limit and was not measured"
    for metric in metrics:
        if metric.name in (STEP, KERNELS) and metric.baseline > 0 and metric.name not in there:
            yield f"the candidate has no {metric.words}"


def _over(metrics: Sequence[_Metric], settings: Settings) -> Iterator[tuple[_Metric, str]]:
    """Yield the metrics that are above their absolute limits, whatever they were before."""
    for metric in metrics:
        most = settings.limits.get(metric.name, Limit()).most
        if most is not None and metric.candidate > most:
            unit = "limit_ns" if unit_of("gate", metric.name) == "ns" else "limit"
            value, allowed = (format_value(number, unit) for number in (metric.candidate, most))
            yield metric, f"{metric.words} {value}, at most {allowed} allowed"


def _regressed(metrics: Sequence[_Metric], settings: Settings) -> Iterator[tuple[_Metric, str]]:
    """Yield the metrics that regressed, by more than their limit if they have one; what came from nothing did."""
    for metric in metrics:
        is_new = metric.verdict == "added" and metric.name in _CAN_BE_NONE
        if not (is_new or metric.verdict == "regressed") or _has_only_budget(metric, settings):
            continue
        most = settings.limits.get(metric.name, Limit()).most_pct
        if is_new:
            unit = "value_ns" if unit_of("gate", metric.name) == "ns" else "value"
            yield metric, f"{metric.words} came up: {format_value(metric.candidate, unit)}, none before"
        elif most is None:
            yield metric, metric.moved
        elif metric.change_pct > most:
            yield metric, f"{metric.moved}, at most {most:+g} % allowed"


def _has_only_budget(metric: _Metric, settings: Settings) -> bool:
    """Whether a metric is judged by its amount alone: one that would not decide but for that."""
    limit = settings.limits.get(metric.name, Limit())
    return limit.most is not None and limit.most_pct is None and metric.name not in settings.deciding


def _excuse(metric: _Metric, settings: Settings, workload: str) -> Accepted | None:
    """Return the accepted change that covers this one."""
    return next(
        (each for each in settings.accepted if each.covers("gate", metric.name, workload, metric.change_pct)), None
    )


def _open(metrics: Sequence[_Metric], settings: Settings) -> Iterator[_Metric]:
    """Yield the metrics of which it is not known whether they regressed by more than is allowed."""
    for metric in metrics:
        most = settings.limits.get(metric.name, Limit()).most_pct
        is_within = most is not None and metric.high_pct <= most and not metric.note
        is_judged = metric.is_known and not _has_only_budget(metric, settings)
        if metric.verdict == "inconclusive" and is_judged and not is_within:
            yield metric
