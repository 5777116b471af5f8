"""Decides whether a gate passes, and derives the overall verdict.

A gate fails if a count per step is larger in all runs, or a time is shown to be longer. It passes if a regression
above the limit is ruled out. Otherwise it is inconclusive.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, isfinite, nan
from typing import Final

import pandas as pd

from nightsight.compare.facts import offset_counts
from nightsight.compare.measures import calls_counted
from nightsight.compare.metric import CAN_BE_NONE, WORDS, Metric, metrics_of
from nightsight.compare.settings import MOST_GREEN_PCT, Limit, Settings
from nightsight.events.kernel_names import base_name, communicates
from nightsight.model.compare import (
    ALLOCATIONS,
    COLLECTIVES,
    COPIES,
    COUNTS,
    DIRECTIONS,
    EXPOSED,
    KERNELS,
    LAUNCHES,
    STEP,
    SYNCS,
    UNPROFILED,
    AcceptedChange,
    Decision,
    Difference,
    Verdict,
)
from nightsight.texts import middle_cut, some_of

_PASS, _REGRESSION, _NOT_MEASURED, _INCONCLUSIVE = 0, 1, 3, 4
_STEPS: Final = (UNPROFILED, STEP)
_LONGEST: Final = 60
_OF_STEPS: Final = 0.1
_FEW: Final = 3


@dataclass(frozen=True)
class Gate:
    """Decides on the table of changes.

    allowed_pct: the growth of each metric that need not be ruled out. medians: the gate metrics of the candidate, by
    name: the median of its runs.
    """

    changes: pd.DataFrame
    settings: Settings
    allowed_pct: Mapping[str, float]
    workload: str
    size: str
    unlike: Sequence[Difference]
    medians: Mapping[str, float]

    def verdict(self) -> tuple[Verdict, Metric | None]:
        """Return the overall verdict and the metric that it is about, None if no deciding metric was measured."""
        deciding = [metric for metric in self.metrics if metric.name in self.settings.deciding]
        # communication that appeared is exposed now
        worse = [metric for metric in deciding if self._has_grown(metric)]
        better = [metric for metric in deciding if metric.verdict in ("improved", "removed")]
        open_ = [metric for metric in deciding if self._is_open(metric)]
        by_priority: tuple[tuple[Verdict, list[Metric]], ...] = (
            ("regressed", worse),
            ("inconclusive", open_ or deciding[: not any(metric.is_known for metric in deciding)]),
            ("improved", better),
            ("unchanged", deciding),
        )
        return next(((verdict, metrics[0]) for verdict, metrics in by_priority if metrics), ("inconclusive", None))

    def decision(self) -> Decision:
        """Decide: absolute limits apply to the candidate's value; all others require a proven change."""
        times = [metric for metric in self.metrics if not metric.is_count]
        measured = [metric for metric in times or self.metrics if metric.is_known]
        if not measured:
            return self._not_measured("both sides know no metric that decides")
        if lacking := next(self._lacking(), ""):
            return self._not_measured(lacking)
        excused = {metric.name: by for metric in self.metrics if (by := self._excuse(metric))}
        over, regressed = list(self._over()), list(self._regressed())
        # only changes can be accepted; to raise a budget, edit the settings
        wrong = [*over, *(each for each in regressed if each[0].name not in excused)]
        open_ = [metric for metric in self.metrics if self._is_open(metric) and metric.name not in excused]
        broken, shown = tuple(text for _, text in wrong), tuple(self._shown(measured, open_))
        accepted = tuple(
            f"{text}: {excused[metric.name].reason} ({excused[metric.name].date})"
            for metric, text in regressed
            if metric.name in excused
        )
        if broken:
            status, line = _REGRESSION, f"regression: {'; '.join(broken)}"
        elif open_:
            established = f"; shown: {', '.join(shown)}" if shown else ""
            status, line = _INCONCLUSIVE, f"inconclusive: {'; '.join(self._doubts(open_))}{established}"
        else:
            better = [metric.change_text for metric in self.metrics if metric.verdict in ("improved", "removed")]
            most = max(self.allowed_pct[metric.name] for metric in measured)
            shown_too = f": {', '.join(shown)}" if shown else ""
            results = [*better, f"no regression above {most:.3g} %{shown_too}", *self._unknown()]
            status, line = _PASS, f"passed: {'; '.join([*results, *[f'{len(accepted)} accepted'] * bool(accepted)])}"
        return Decision(
            status,
            f"{line}, on {self.size}",
            broken,
            accepted,
            shown,
            regressed=tuple(dict.fromkeys(metric.name for metric, _ in wrong)),
            open=tuple(metric.name for metric in open_),
        )

    def _not_measured(self, why: str) -> Decision:
        return Decision(_NOT_MEASURED, f"could not measure: {why}, on {self.size}")

    @cached_property
    def metrics(self) -> list[Metric]:
        """The gate metrics that the gate decides on."""
        return metrics_of(self.changes, self.settings.judged)

    def _limit(self, metric: Metric) -> Limit:
        """Return the limit of a metric; the limit of all copies also applies to each direction."""
        return self.settings.limits.get(metric.name) or self.settings.limits.get(_general(metric.name), Limit())

    def _lacking(self) -> Iterator[str]:
        """Yield the metrics that the candidate should have but lacks."""
        there = {metric.name for metric in self.metrics if isfinite(metric.candidate)}
        has_work = bool({KERNELS, LAUNCHES} & there)
        for name in self.settings.limits:
            if name not in there and not (name in CAN_BE_NONE and has_work):
                yield f"{name} has a limit but was not measured"
        for metric in self.metrics:
            if metric.name in (STEP, KERNELS) and metric.baseline > 0 and metric.name not in there:
                yield f"the candidate has no {metric.words}"

    def _over(self) -> Iterator[tuple[Metric, str]]:
        """Yield the metrics whose median is above their absolute limit, regardless of the baseline.

        The table of changes has means over pairs, which depend on the baseline's runs.
        """
        for metric in self.metrics:
            most = self.settings.limits.get(metric.name, Limit()).most
            median = self.medians.get(metric.name, nan)
            if most is not None and median > most:
                value, allowed = (metric.written(number, stem="limit") for number in (median, most))
                of_runs = "" if metric.is_fact or median == metric.candidate else " in the median run"
                yield metric, f"{metric.words} {value}{of_runs}, at most {allowed} allowed"

    def _regressed(self) -> Iterator[tuple[Metric, str]]:
        """Yield the metrics that grew beyond their limit, if any; new metrics count as grown."""
        for metric in self.metrics:
            if not self._has_grown(metric) or self._has_only_budget(metric):
                continue
            most, what = self._limit(metric).most_pct, self._increased(metric)
            if metric.verdict == "added":
                yield metric, f"{metric.words}: {metric.written(metric.candidate)}{what}, none before"
            elif most is None:
                yield metric, f"{metric.change_text}{what}"
            elif metric.change_pct > most:
                yield metric, f"{metric.change_text}{what}, at most +{most:g} % allowed"

    def _has_grown(self, metric: Metric) -> bool:
        """Whether a metric is shown to be larger, and nothing offsets it."""
        if metric.verdict == "added":
            return metric.name in CAN_BE_NONE and metric.name not in self._offset
        return metric.verdict == "regressed" and metric.name not in self._offset

    @cached_property
    def _offset(self) -> frozenset[str]:
        """The counts that grew without being a regression, or that other metrics cover."""
        growth = {each.name: each.delta for each in self.metrics if each.is_fact and each.verdict != "unchanged"}
        verdicts = {metric.verdict for metric in self.metrics if metric.name in _STEPS}
        if "improved" in verdicts and "regressed" not in verdicts:
            # the additional work makes the step faster
            return frozenset(growth)
        in_directions = {_general(name) for name, grown in growth.items() if grown > 0} & {COPIES}
        return offset_counts(growth) | in_directions

    def _increased(self, metric: Metric) -> str:
        """Return the kernels, copies or calls that increased, in parentheses; "" if unknown."""
        kinds = {LAUNCHES: "kernel", COLLECTIVES: "kernel", SYNCS: "api", ALLOCATIONS: "api"}
        kind = kinds.get(metric.name, "copy" if _general(metric.name) else "")
        rows = self.changes[self.changes["kind"] == kind]
        more = rows["candidate_count"].fillna(0) - rows["baseline_count"].fillna(0)
        # only those of steps, not those at the window's edges
        rows = rows.assign(more=more)[more > _OF_STEPS].sort_values("more", ascending=False, kind="stable")
        names = rows["name"].astype("str")
        if kind == "api":
            names = names[calls_counted(names) == metric.name]
        elif kind == "copy":
            names = names[names.map(lambda name: f"{DIRECTIONS.get(name.partition(' (')[0])}_{COPIES}" == metric.name)]
        elif metric.name == COLLECTIVES:
            names = names[names.map(communicates)]
        labels = [middle_cut(base_name(name) if kind == "kernel" else name, _LONGEST) for name in names]
        return f" ({some_of(labels, 1)})" if labels else ""

    def _has_only_budget(self, metric: Metric) -> bool:
        """Whether a metric decides only because it has an absolute limit."""
        limit = self._limit(metric)
        return limit.most is not None and limit.most_pct is None and metric.name not in self.settings.deciding

    def _excuse(self, metric: Metric) -> AcceptedChange | None:
        """Return the accepted change that covers this one."""
        names = (metric.name, _general(metric.name))
        covering = (
            each
            for each in self.settings.accepted
            for name in names
            if each.covers("gate", name, self.workload, metric.change_pct)
        )
        return next(covering, None)

    def _is_open(self, metric: Metric) -> bool:
        """Whether a metric may have grown by more than is allowed.

        Counts that vary from run to run do not block a decision: the times include their cost.
        """
        if metric.verdict != "inconclusive" or not metric.is_known or self._has_only_budget(metric):
            return False
        is_alone = metric.is_count and self._limit(metric).most_pct is None
        if is_alone and not all(each.is_count for each in self.metrics):
            return False
        return not self._bound_pct(metric) <= self.allowed_pct[metric.name]

    def _bound_pct(self, metric: Metric) -> float:
        """Return by how much a metric can have grown; exposed communication counts as a share of the step."""
        step = next((each for each in self.metrics if each.name == STEP and each.is_known), None)
        share = metric.baseline / step.baseline if step and metric.name == EXPOSED else 1.0
        return metric.most_pct * min(share, 1.0)

    def _shown(self, measured: Sequence[Metric], open_: Sequence[Metric]) -> Iterator[str]:
        """Yield the metrics that are known not to have regressed."""
        yield from self._shown_of_counts()
        step = next((metric for metric in open_ if metric.name in _STEPS), None)
        for metric in measured:
            if metric.is_count or metric in open_ or metric.verdict not in ("unchanged", "inconclusive"):
                continue
            if isfinite(metric.most_pct):
                share = ""
                if step and metric.name == KERNELS:
                    # when the host limits the step, kernels are only a part of it
                    share = f" ({100 * min(metric.candidate / step.candidate, 1):.0f} % of {step.words})"
                yield metric.bounded(self.allowed_pct[metric.name], share)

    def _shown_of_counts(self) -> Iterator[str]:
        counts = [metric for metric in self.metrics if metric.is_count]
        facts = [metric for metric in counts if metric.is_fact]
        changed = [metric for metric in facts if metric.verdict != "unchanged"]
        for metric in changed:
            if metric.delta > 0 and metric.name in self._offset and metric.name != COPIES:
                yield f"{metric.change_text}, offset by others"
        if facts:
            varying = [metric.words for metric in counts if metric.verdict == "inconclusive" and metric.is_known]
            but = f" except {', '.join(varying)}, which vary from run to run" if varying else ""
            unknown = list(dict.fromkeys(map(_in_general, self._uncounted)))
            unknowns = ", ".join(unknown) if len(unknown) <= _FEW else f"{len(unknown)} others"
            yield f"{'other ' if changed else ''}counts equal{but}{f' ({unknowns} unknown)' if unknowns else ''}"

    @property
    def _uncounted(self) -> list[str]:
        """The deciding counts that a side lacks: not every capture contains them."""
        measured = {metric.name for metric in self.metrics if isfinite(metric.baseline) and isfinite(metric.candidate)}
        return [name for name in COUNTS if name in self.settings.deciding and name not in measured]

    def _unknown(self) -> Iterator[str]:
        """Yield a doubt if GPU work was not counted: a program may copy more without being slower."""
        has_work = any(metric.name == KERNELS for metric in self.metrics)
        if has_work and self._uncounted and not any(metric.is_fact for metric in self.metrics):
            yield "counts unknown"

    def _doubts(self, open_: Sequence[Metric]) -> Iterator[str]:
        """Yield what is inconclusive; several metrics can share one reason."""
        reasons = dict.fromkeys(metric.doubt(self.unlike) for metric in open_)
        for why in reasons:
            estimates = ", ".join(metric.estimated for metric in open_ if metric.doubt(self.unlike) == why)
            yield ", ".join(filter(None, (estimates, why)))
        most = max(map(self._bound_pct, open_))
        if most <= MOST_GREEN_PCT and all(self._limit(metric).most_pct is None for metric in open_):
            yield f"it would pass with green_pct = {ceil(most)}"


def _in_general(name: str) -> str:
    """Return the common name of counts of one kind."""
    return "copied bytes" if name.endswith("_bytes") else WORDS[name].removesuffix(" per step")


def _general(name: str) -> str:
    """Return the metric of all copies for the copies in one direction; "" for other metrics."""
    return COPIES if name.endswith(f"_{COPIES}") else ""
