"""Derives a verdict for each measure: whether it is too small to test, the result of the test, what would settle it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.compare.facts import fact
from nightsight.compare.settings import Settings
from nightsight.compare.statistics import (
    LEAST_RUNS,
    Effects,
    benjamini_hochberg,
    effects,
    holm,
    one_sided,
)
from nightsight.compare.steps import ESTIMATES, Estimate, Evidence, evidence
from nightsight.intervals import Flags, Floats
from nightsight.model.compare import COUNTS, LAUNCHES, STEP, UNPROFILED, Measures, unit_of
from nightsight.units import signed

# the resolution of nsys's clock on a GPU
_CLOCK_NS: Final = 32.0
# the least noise of any measure from process to process
_STEADIEST: Final = 1e-4
_KEYS: Final = ["kind", "name"]


@dataclass(frozen=True, eq=False)
class MeasureTable:
    """All measures of all runs: a row of `keys` per measure, and an array column per run, NaN for missing values.

    spread: the time of a single launch or call, in ns. notes: remarks that exist before the measure is tested.
    """

    keys: pd.DataFrame
    baseline: Floats
    candidate: Floats
    baseline_count: Floats
    candidate_count: Floats
    spread: Floats
    notes: "np.ndarray[Any, np.dtype[np.object_]]"

    @classmethod
    def of(
        cls, before: Sequence[pd.DataFrame], after: Sequence[pd.DataFrame], notes: Mapping[str, str]
    ) -> "MeasureTable":
        """Combine the measures of runs; `notes` are remarks on kernels, by name."""
        tables = [*before, *after]
        measures = pd.concat([table.assign(run=run) for run, table in enumerate(tables)], ignore_index=True)
        measures = measures[measures["kind"] != "cause"]
        measures["value"] = measures["value"].where(np.isfinite(measures["value"]) & (measures["value"] >= 0))
        measures["code"] = measures.groupby(_KEYS, sort=True).ngroup()
        keys = measures.drop_duplicates("code").sort_values("code")[_KEYS].reset_index(drop=True)
        at = (measures["code"].to_numpy(), measures["run"].to_numpy())
        value, count = (_grid(measures[name], at, (len(keys), len(tables))) for name in ("value", "count"))
        spread = measures.groupby("code")["spread"].median().to_numpy(dtype=np.float64)
        few = len(before)
        labels = zip(keys["kind"], keys["name"], strict=True)
        own_notes = np.array([notes.get(name, "") if kind == "kernel" else "" for kind, name in labels], dtype=object)
        return cls(keys, value[:, :few], value[:, few:], count[:, :few], count[:, few:], spread, own_notes)

    def step_ns(self) -> float:
        """Return the time of a step of the baseline; NaN if unknown."""
        step = np.flatnonzero((self.keys["kind"] == "gate") & (self.keys["name"] == STEP))
        return float(_medians(self.baseline[step])[0]) if len(step) else float("nan")


def _grid(values: "pd.Series[float]", at: tuple[Any, Any], shape: tuple[int, int]) -> Floats:
    """Return values by measure and run, summed if a run has several; NaN if it has none."""
    is_known = values.notna().to_numpy()
    place = (at[0][is_known], at[1][is_known])
    sums, there = np.zeros(shape), np.zeros(shape, dtype=bool)
    there[place] = True
    np.add.at(sums, place, values.to_numpy(dtype=np.float64)[is_known])
    return np.where(there, sums, np.nan)


def _medians(values: Floats) -> Floats:
    """Return the median of each row, NaN without values."""
    is_known = np.isfinite(values).any(axis=1)
    medians = np.full(len(values), np.nan)
    medians[is_known] = np.nanmedian(values[is_known], axis=1)
    return medians


@dataclass(frozen=True)
class MeasureTests:
    """Tests the measures of a comparison.

    runs: of both sides, in the order of the tables. allowed_pct: the permitted growth of each deciding metric.
    """

    settings: Settings
    is_paired: bool
    runs: Sequence[Measures]
    allowed_pct: Mapping[str, float]

    def changes(self, table: MeasureTable) -> pd.DataFrame:
        """Test the measures; the columns are CHANGES."""
        before, after = _medians(table.baseline), _medians(table.candidate)
        counts = _medians(table.baseline_count), _medians(table.candidate_count)
        is_small, is_short = self._too_small(table, np.fmax(before, after))
        facts = self._facts(table)
        steps = dict(self._steps(table, facts))
        medians = self._effects(table, counts, ~(is_small | is_short | (facts != "")), steps)
        best, by, contradicted = self._best(table, medians, steps)
        # the best estimate is chosen after the fact, so each counts as if all had been tested
        tests = np.where(by != "", ESTIMATES, 1.0)
        p = np.minimum(tests * best.p_values(self._least), 1.0)
        # counts are not tested, but belong to the family, because they could have been flagged
        p[(facts != "") & (np.fmax(before, after) > 0)] = 1.0
        adjusted, level = self._adjusted(table, p)
        low, high = medians.interval()
        is_found = adjusted < self.settings.alpha
        # a significant change of negligible size
        is_tiny = is_found & _are_times(table) & self._is_tiny(before, after)
        is_contradicted = is_found & (contradicted != "")
        is_change = is_found & ~is_tiny & ~is_contradicted
        is_same = ((low > -self._same) & (high < self._same)) | is_tiny | ((before == 0) & (after == 0))
        # presence or absence is a fact, which needs no test of times
        few, many = ((side > 0).sum(axis=1).astype(np.float64) for side in (table.baseline, table.candidate))
        of = (table.baseline.shape[1], table.candidate.shape[1])
        is_partial = ~np.isfinite(np.hstack([table.baseline, table.candidate])).all(axis=1)
        # a count that a run lacks is not 0, and a count of few runs may differ in the next run
        is_told = ~_are_counts(table).to_numpy() | (~is_partial & (min(of) >= LEAST_RUNS))
        is_added, is_removed = (flags & is_told for flags in one_sided(few, many, of, self.settings.alpha))
        is_more, is_fewer = facts == "more", facts == "fewer"
        verdict = np.select(
            [
                is_small | (facts == "equal"),
                is_added | (is_more & (before == 0)),
                is_removed | (is_fewer & (after == 0)),
                is_more | (is_change & (best.mean > 0)),
                is_fewer | is_change,
                is_same,
            ],
            ["unchanged", "added", "removed", "regressed", "improved", "unchanged"],
            "inconclusive",
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            estimate = np.where(np.isfinite(medians.mean), np.expm1(medians.mean), after / before - 1)
        estimate[~np.isfinite(estimate)] = np.nan
        ends = (np.expm1(low), np.expm1(high), np.expm1(best.interval(1 - 2 * self.settings.alpha)[1]))
        low, high, most = (100 * np.where(facts == "", end, estimate) for end in ends)
        # a value that some runs lack may be arbitrary there
        most[is_partial] = np.nan
        is_open = verdict == "inconclusive"
        is_unsettled = is_open & ~is_short & ~is_contradicted
        notes = self._notes(table, is_small, is_short, is_open)
        notes = np.where(is_contradicted, "no such change " + contradicted, notes)
        for row in np.flatnonzero(is_change & (by != "")):
            notes[row] = f"{by[row]} {signed(100 * np.expm1(best.mean[row]))} %"
        before, after = self._typical(table, before, after, np.isfinite(medians.mean))
        return pd.DataFrame(
            {
                **{name: table.keys[name] for name in _KEYS},
                "baseline": before,
                "candidate": after,
                "change_pct": 100 * estimate,
                "low_pct": low,
                "high_pct": high,
                "most_pct": most,
                "most_by": by,
                "p": np.where(facts == "", adjusted, np.nan),
                "is_fact": facts != "",
                "verdict": verdict,
                "needed_runs": np.where(is_unsettled, self._needed(table, best, level / tests), np.nan),
                **_parts(before, after, *counts),
                "note": notes,
            }
        )

    def _typical(self, table: MeasureTable, before: Floats, after: Floats, is_tested: Flags) -> tuple[Floats, Floats]:
        """Return the values of both sides: of tested measures the geometric means, whose ratio is the change."""
        sides = table.baseline[is_tested], table.candidate[is_tested]
        used = [values > 0 for values in sides]
        if self.is_paired:
            used = [used[0] & used[1]] * 2
        for typical, values, is_used in zip((before, after), sides, used, strict=True):
            logs = np.log(np.where(is_used, values, 1.0))
            typical[is_tested] = np.exp(logs.sum(axis=1) / is_used.sum(axis=1))
        return before, after

    def _facts(self, table: MeasureTable) -> "np.ndarray[Any, np.dtype[np.str_]]":
        """Return the change of each count on which the runs of a side agree; "" for all other measures."""
        fewest = float(min(run.repetitions or 1 for run in self.runs))
        rows = zip(table.keys["kind"], table.keys["name"], table.baseline, table.candidate, strict=True)
        return np.array(
            [
                fact(name, *sides, repetitions=fewest, least_pct=self.settings.least_pct) if kind == "gate" else ""
                for kind, name, *sides in rows
            ],
            dtype=np.str_,
        )

    def _steps(self, table: MeasureTable, facts: Any) -> Iterator[tuple[int, Evidence]]:  # noqa: ANN401 (texts)
        """Yield the rows of step times, with the evidence that supplements their medians."""
        names = table.keys["name"].where(table.keys["kind"] == "gate", "")
        same_launches = bool((facts[names == LAUNCHES] == "equal").any())
        for row in np.flatnonzero(names.isin([UNPROFILED, STEP])):
            with np.errstate(divide="ignore"):
                sides = np.log(table.baseline[row]), np.log(table.candidate[row])
            supplement = evidence(self.runs, names[row], *sides, same_launches=same_launches, is_paired=self.is_paired)
            if supplement:
                yield int(row), supplement

    def _best(
        self, table: MeasureTable, of_medians: Effects, steps: Mapping[int, Evidence]
    ) -> tuple[Effects, Any, Any]:
        """Return the effects with the best estimates of step times, their names, and the names of contradicting ones.

        The names are "" for the medians, and if no estimate contradicts.
        """
        best = replace(
            of_medians, **{name: getattr(of_medians, name).copy() for name in ("mean", "error", "freedom", "spread")}
        )
        by, contradicted = (np.full(len(of_medians.mean), "", dtype=object) for _ in range(2))
        few, many = table.baseline.shape[1], table.candidate.shape[1]
        scale = np.sqrt(1 / many if self.is_paired else 1 / few + 1 / many)
        for row, step in steps.items():
            same = float(np.log1p(self.allowed_pct.get(table.keys["name"][row], 0.0) / 100))
            medians = Estimate(of_medians.mean[row], of_medians.error[row], of_medians.freedom[row])
            chosen = step.best(medians, same)
            contradicted[row] = step.contradicting(medians, chosen, same, self._least)
            if chosen is not medians:
                best.mean[row], best.error[row], best.freedom[row], by[row] = chosen
                best.spread[row] = chosen.error / scale
        return best, by, contradicted

    def _needed(self, table: MeasureTable, best: Effects, level: Floats) -> Floats:
        """Return the number of runs per side that would settle each measure."""
        names = table.keys["name"].where(table.keys["kind"] == "gate", "")
        allowed = np.log1p(names.map(self.allowed_pct).to_numpy(dtype=np.float64) / 100)
        needed = best.needed_runs(self._least, np.fmax(allowed, self._same), level)
        return np.where(np.isfinite(best.error), needed, float(LEAST_RUNS))

    @property
    def _least(self) -> float:
        return float(np.log1p(self.settings.least_pct / 100))

    @property
    def _same(self) -> float:
        return float(np.log1p(self.settings.same_pct / 100))

    def _is_tiny(self, before: Floats, after: Floats) -> Flags:
        tiny: Flags = np.abs(after - before) < self.settings.least_ns
        return tiny

    def _too_small(self, table: MeasureTable, larger: Floats) -> tuple[Flags, Flags]:
        """Return the groups that take too little of a step to matter, and other groups that ran too briefly to test."""
        is_group = (table.keys["kind"] != "gate").to_numpy()
        is_small = is_group & (100 * larger < self.settings.least_share_pct * table.step_ns())
        repetitions = float(np.median([run.repetitions or 1 for run in self.runs]))
        return is_small, is_group & ~is_small & (larger * repetitions < self.settings.least_total_ns)

    def _effects(
        self, table: MeasureTable, counts: tuple[Floats, Floats], is_tested: Flags, steps: Mapping[int, Evidence]
    ) -> Effects:
        with np.errstate(divide="ignore", invalid="ignore"):
            before, after = (
                np.where(is_tested[:, None], np.log(side), np.nan) for side in (table.baseline, table.candidate)
            )
            clock = _CLOCK_NS / np.sqrt(12) / table.spread / np.sqrt(np.fmax(np.fmax(*counts), 1.0))
        floor = np.hypot(_STEADIEST, np.where(np.isfinite(clock), clock, 0.0))
        for row, step in steps.items():
            floor[row] = max(floor[row], step.floor)
        classes = table.keys["kind"].mask(self._decides(table), "decides").mask(_are_counts(table), "count")
        return effects(before, after, floor, is_paired=self.is_paired, classes=classes)

    def _decides(self, table: MeasureTable) -> "pd.Series[bool]":
        is_gate = table.keys["kind"] == "gate"
        decides: pd.Series[bool] = is_gate & table.keys["name"].isin(self.settings.judged) & ~_are_counts(table)
        return decides

    def _adjusted(self, table: MeasureTable, p: Floats) -> tuple[Floats, Floats]:
        """Adjust p values for the number of tests; also return the unadjusted level below which each would count.

        All groups are one family, of whatever kind: with a family per kind, the error rate for unchanged code would be
        multiplied by the number of kinds.
        """
        alpha, adjusted, level = self.settings.alpha, np.full(len(p), np.nan), np.full(len(p), np.nan)
        decides, is_gate = self._decides(table).to_numpy(), (table.keys["kind"] == "gate").to_numpy()
        for family, adjust in ((decides, holm), (is_gate & ~decides, holm), (~is_gate, benjamini_hochberg)):
            adjusted[family] = adjust(p[family])
            tests = max(int(np.isfinite(p[family]).sum()), 1)
            # for Benjamini-Hochberg: assuming as many discoveries as now
            rejected = 1 if adjust is holm else max(int((adjusted[family] < alpha).sum()), 1)
            level[family] = alpha * rejected / tests
        return adjusted, level

    def _notes(self, table: MeasureTable, is_small: Flags, is_short: Flags, is_open: Flags) -> Any:  # noqa: ANN401 (texts)
        """Return why each measure was not tested, or is inconclusive."""
        sides = (table.baseline, table.candidate)
        (few, many), of = (np.isfinite(side).sum(axis=1) for side in sides), [side.shape[1] for side in sides]
        counts = [
            f"in {a} of {of[0]} and {b} of {of[1]} runs" for a, b in zip(few.tolist(), many.tolist(), strict=True)
        ]
        reasons = (
            (is_small, f"less than {self.settings.least_share_pct:g} % of a step: not tested"),
            (is_open & is_short, f"less than {self.settings.least_total_ns / 1000:g} µs in a run: too short to test"),
            (is_open & (min(of) < LEAST_RUNS), f"fewer than {LEAST_RUNS} runs a side"),
            (is_open & ((few < of[0]) | (many < of[1])), np.array(counts, dtype=object)),
        )
        notes = table.notes
        for flags, words in reasons:
            notes = np.where(flags & (notes == ""), words, notes)
        return notes


def _are_counts(table: MeasureTable) -> "pd.Series[bool]":
    counts: pd.Series[bool] = (table.keys["kind"] == "gate") & table.keys["name"].isin(COUNTS)
    return counts


def _are_times(table: MeasureTable) -> Flags:
    keys = table.keys[_KEYS].itertuples(index=False, name=None)
    return np.array([unit_of(kind, name) == "ns" for kind, name in keys], dtype=bool)


def _parts(before: Floats, after: Floats, few: Floats, many: Floats) -> dict[str, Floats]:
    """Split the difference into delta count x time and count x delta time; added and removed measures are all count."""
    is_old, is_new = np.isfinite(before), np.isfinite(after)
    with np.errstate(invalid="ignore", divide="ignore"):
        unit_time = np.where(is_old, before / few, after / many)
        counted = (np.where(is_new, many, 0.0) - np.where(is_old, few, 0.0)) * unit_time
    delta = np.nan_to_num(after) - np.nan_to_num(before)
    return {"baseline_count": few, "candidate_count": many, "count_part": counted, "time_part": delta - counted}
