"""The verdicts on measures: what is too small to test, what the tests say, and what would settle the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.compare.settings import Settings
from nightsight.compare.statistics import (
    LEAST_RUNS,
    Effects,
    Flags,
    Floats,
    benjamini_hochberg,
    effects,
    holm,
    of_one_side,
)
from nightsight.comparison import STEP, unit_of

# of nsys's clock on a GPU: what it rounds times to
_CLOCK_NS: Final = 32.0
# no measure is steadier than that from process to process
_STEADIEST: Final = 1e-4
_KEYS: Final = ["kind", "name"]


@dataclass(frozen=True, eq=False)
class Table:
    """All measures of all runs: a row of `keys` per measure, and a column of the arrays per run, NaN where it has none.

    spread: the time of a single launch or call, in ns; notes: what is known of the measure before it is judged.
    """

    keys: pd.DataFrame
    baseline: Floats
    candidate: Floats
    baseline_count: Floats
    candidate_count: Floats
    spread: Floats
    notes: "np.ndarray[Any, np.dtype[np.object_]]"

    @classmethod
    def of(cls, before: Sequence[pd.DataFrame], after: Sequence[pd.DataFrame], notes: Mapping[str, str]) -> "Table":
        """Put together the measures of runs; `notes` are about kernels, by name."""
        tables = [*before, *after]
        every = pd.concat([table.assign(run=run) for run, table in enumerate(tables)], ignore_index=True)
        every = every[every["kind"] != "cause"]
        every["value"] = every["value"].where(np.isfinite(every["value"]) & (every["value"] >= 0))
        every["code"] = every.groupby(_KEYS, sort=True).ngroup()
        keys = every.drop_duplicates("code").sort_values("code")[_KEYS].reset_index(drop=True)
        at = (every["code"].to_numpy(), every["run"].to_numpy())
        value, count = (_spread_out(every[name], at, (len(keys), len(tables))) for name in ("value", "count"))
        spread = every.groupby("code")["spread"].median().to_numpy(dtype=np.float64)
        few = len(before)
        named = zip(keys["kind"], keys["name"], strict=True)
        said = np.array([notes.get(name, "") if kind == "kernel" else "" for kind, name in named], dtype=object)
        return cls(keys, value[:, :few], value[:, few:], count[:, :few], count[:, few:], spread, said)

    def step_ns(self) -> float:
        """Return how long a step of the baseline takes; NaN if unknown."""
        found = np.flatnonzero((self.keys["kind"] == "gate") & (self.keys["name"] == STEP))
        return float(_medians(self.baseline[found])[0]) if len(found) else float("nan")


def _spread_out(values: "pd.Series[float]", at: tuple[Any, Any], shape: tuple[int, int]) -> Floats:
    """Return values by measure and run, added up where a run has several; NaN where it has none."""
    known = values.notna().to_numpy()
    place = (at[0][known], at[1][known])
    sums, there = np.zeros(shape), np.zeros(shape, dtype=bool)
    there[place] = True
    np.add.at(sums, place, values.to_numpy(dtype=np.float64)[known])
    return np.where(there, sums, np.nan)


def _medians(values: Floats) -> Floats:
    """Return the median of each row, NaN where nothing is known."""
    known = np.isfinite(values).any(axis=1)
    medians = np.full(len(values), np.nan)
    medians[known] = np.nanmedian(values[known], axis=1)
    return medians


@dataclass(frozen=True)
class Court:
    """Judges the measures of a comparison; step_ns and repetitions: of the step, to tell what is too small."""

    settings: Settings
    is_paired: bool
    step_ns: float
    repetitions: float

    def judged(self, table: Table) -> pd.DataFrame:
        """Test the measures; the columns are CHANGES."""
        before, after = _medians(table.baseline), _medians(table.candidate)
        counts = _medians(table.baseline_count), _medians(table.candidate_count)
        is_small, is_short = self._too_small(table, np.fmax(before, after))
        found = self._effects(table, counts, ~(is_small | is_short))
        p = found.p_values(self._least)
        adjusted, level = self._adjusted(table, p)
        low, high = found.interval()
        is_found = adjusted < self.settings.alpha
        # a change that is sure, and of no weight
        is_tiny = is_found & _are_times(table) & self._is_tiny(before, after)
        is_change = is_found & ~is_tiny
        is_same = ((low > -self._same) & (high < self._same)) | is_tiny | ((before == 0) & (after == 0))
        # that something is there or not is a fact, which needs no test of times
        few, many = ((side > 0).sum(axis=1).astype(np.float64) for side in (table.baseline, table.candidate))
        of = (table.baseline.shape[1], table.candidate.shape[1])
        is_added, is_removed = of_one_side(few, many, of, self.settings.alpha)
        verdict = np.select(
            [is_small, is_added, is_removed, is_change & (found.mean > 0), is_change, is_same],
            ["unchanged", "added", "removed", "regressed", "improved", "unchanged"],
            "inconclusive",
        )
        needed = np.where(
            np.isfinite(found.error), found.needed_runs(self._least, self._same, level), float(LEAST_RUNS)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            estimate = np.where(np.isfinite(found.mean), np.expm1(found.mean), after / before - 1)
        estimate[~np.isfinite(estimate)] = np.nan
        is_open = verdict == "inconclusive"
        notes = self._notes(table, is_open, is_small, is_short)
        return pd.DataFrame(
            {
                **{name: table.keys[name] for name in _KEYS},
                "baseline": before,
                "candidate": after,
                "change_pct": 100 * estimate,
                "low_pct": 100 * np.expm1(low),
                "high_pct": 100 * np.expm1(high),
                "p": adjusted,
                "verdict": verdict,
                "needed_runs": np.where(is_open & ~is_short, needed, np.nan),
                **_parts(before, after, *counts),
                "note": notes,
            }
        )

    @property
    def _least(self) -> float:
        return float(np.log1p(self.settings.least_pct / 100))

    @property
    def _same(self) -> float:
        return float(np.log1p(self.settings.same_pct / 100))

    def _is_tiny(self, before: Floats, after: Floats) -> Flags:
        tiny: Flags = np.abs(after - before) < self.settings.least_ns
        return tiny

    def _too_small(self, table: Table, larger: Floats) -> tuple[Flags, Flags]:
        """Return which groups take too little of a step to matter, and which others ran too briefly to be tested."""
        is_group = (table.keys["kind"] != "gate").to_numpy()
        is_small = is_group & (100 * larger < self.settings.least_share_pct * self.step_ns)
        return is_small, is_group & ~is_small & (larger * self.repetitions < self.settings.least_total_ns)

    def _effects(self, table: Table, counts: tuple[Floats, Floats], is_tested: Flags) -> Effects:
        with np.errstate(divide="ignore", invalid="ignore"):
            before, after = (
                np.where(is_tested[:, None], np.log(side), np.nan) for side in (table.baseline, table.candidate)
            )
            clock = _CLOCK_NS / np.sqrt(12) / table.spread / np.sqrt(np.fmax(np.fmax(*counts), 1.0))
        floor = np.hypot(_STEADIEST, np.where(np.isfinite(clock), clock, 0.0))
        classes = table.keys["kind"].mask(self._decides(table), "decides")
        return effects(before, after, floor, is_paired=self.is_paired, classes=classes)

    def _decides(self, table: Table) -> "pd.Series[bool]":
        decides: pd.Series[bool] = (table.keys["kind"] == "gate") & table.keys["name"].isin(self.settings.judged)
        return decides

    def _adjusted(self, table: Table, p: Floats) -> tuple[Floats, Floats]:
        """Adjust p values for how many were tested; also return below which value of its own each would count.

        All groups are one family, of whatever kind: with one for each kind, unchanged code would be flagged at the
        error rate of a family as often as there are kinds.
        """
        alpha, adjusted, level = self.settings.alpha, np.full(len(p), np.nan), np.full(len(p), np.nan)
        decides, is_gate = self._decides(table).to_numpy(), (table.keys["kind"] == "gate").to_numpy()
        for family, adjust in ((decides, holm), (is_gate & ~decides, holm), (~is_gate, benjamini_hochberg)):
            adjusted[family] = adjust(p[family])
            tests = max(int(np.isfinite(p[family]).sum()), 1)
            # of BH: if as many are found as now
            found_now = 1 if adjust is holm else max(int((adjusted[family] < alpha).sum()), 1)
            level[family] = alpha * found_now / tests
        return adjusted, level

    def _notes(self, table: Table, is_open: Flags, is_small: Flags, is_short: Flags) -> Any:  # noqa: ANN401 (texts)
        """Say why a measure was not tested, or is not settled."""
        sides = (table.baseline, table.candidate)
        (few, many), of = (np.isfinite(side).sum(axis=1) for side in sides), [side.shape[1] for side in sides]
        some = [f"in {a} of {of[0]} and {b} of {of[1]} runs" for a, b in zip(few.tolist(), many.tolist(), strict=True)]
        reasons = (
            (is_small, f"less than {self.settings.least_share_pct:g} % of a step: not tested"),
            (is_open & is_short, f"less than {self.settings.least_total_ns / 1000:g} µs in a run: too short to test"),
            (is_open & (min(of) < LEAST_RUNS), f"fewer than {LEAST_RUNS} runs a side"),
            (is_open & ((few < of[0]) | (many < of[1])), np.array(some, dtype=object)),
        )
        notes = table.notes
        for flags, words in reasons:
            notes = np.where(flags & (notes == ""), words, notes)
        return notes


def _are_times(table: Table) -> Flags:
    keys = table.keys[_KEYS].itertuples(index=False, name=None)
    return np.array([unit_of(kind, name) == "ns" for kind, name in keys], dtype=bool)


def _parts(before: Floats, after: Floats, few: Floats, many: Floats) -> dict[str, Floats]:
    """Split candidate - baseline: delta count x time, and count x delta time; what is new or gone is all count."""
    is_old, is_new = np.isfinite(before), np.isfinite(after)
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.where(is_old, before / few, after / many)
        counted = (np.where(is_new, many, 0.0) - np.where(is_old, few, 0.0)) * each
    delta = np.nan_to_num(after) - np.nan_to_num(before)
    return {"baseline_count": few, "candidate_count": many, "count_part": counted, "time_part": delta - counted}
