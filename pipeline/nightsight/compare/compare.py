"""Compares the measures of two sides: pairs runs, matches kernels, and derives changes and verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.compare.comparability import differences
from nightsight.compare.decision import Gate
from nightsight.compare.matching import matches
from nightsight.compare.measures import CAUSES
from nightsight.compare.sentence import comparison_sentence
from nightsight.compare.settings import Settings
from nightsight.compare.statistics import one_sided
from nightsight.compare.verdicts import MeasureTable, MeasureTests
from nightsight.errors import UsageError
from nightsight.model.compare import CHANGES, GATE, STEP, Comparison, Difference, Measures, Noise
from nightsight.tables import aggregate
from nightsight.units import counted


def compare(
    baseline: Sequence[Measures], candidate: Sequence[Measures], *, settings: Settings, noise: Noise | None = None
) -> Comparison:
    """Compare two sides of runs of one workload; UsageError if a side is empty or the workloads differ.

    `noise`: the differences between runs of unchanged code.
    """
    _refuse(baseline, candidate)
    runs, noise = _usable_runs(baseline, candidate), noise or Noise()
    unlike_facts = differences(runs.baseline, runs.candidate)
    tables = _match_kernels(runs)
    allowed_pct = settings.allowed_pct(noise, min(len(runs.baseline), len(runs.candidate)))
    changes = _changes(runs, tables, settings, unlike_facts, allowed_pct)
    causes = _compared_causes(
        runs, settings.alpha, is_doubted=any(STEP in difference.affects for difference in unlike_facts)
    )
    medians = _medians_of_gate(tables.candidate)
    judge = Gate(changes, settings, allowed_pct, candidate[0].workload, runs.size, unlike_facts, medians)
    verdict, about = judge.verdict()
    return Comparison(
        workload=candidate[0].workload,
        baseline=tuple(runs.baseline),
        candidate=tuple(runs.candidate),
        changes=changes,
        causes=causes,
        differences=unlike_facts,
        verdict=verdict,
        sentence=comparison_sentence(verdict, about, changes, causes, size=runs.size, unlike=unlike_facts),
        decision=judge.decision(),
        is_paired=runs.is_paired,
        noise=noise.text,
        notes=tuple(filter(None, (*runs.notes, tables.note, *settings.doubts))),
        least_pct=settings.least_pct,
        same_pct=settings.same_pct,
    )


def _refuse(baseline: Sequence[Measures], candidate: Sequence[Measures]) -> None:
    for side, runs in (("baseline", baseline), ("candidate", candidate)):
        if not runs:
            raise UsageError(f"the {side} has no runs", "Name run folders, report.json files or captures of both.")
    if len(names := sorted({run.workload for run in (*baseline, *candidate)})) > 1:
        raise UsageError(f"these are runs of different workloads: {', '.join(names)}", "Compare runs of one workload.")


@dataclass(frozen=True)
class _ComparedRuns:
    """The runs that count. If `is_paired`, runs at the same position of the two sides ran one after the other."""

    baseline: Sequence[Measures]
    candidate: Sequence[Measures]
    is_paired: bool
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> str:
        """The number of runs, in words."""
        few, many = len(self.baseline), len(self.candidate)
        if self.is_paired:
            return f"{counted(few, 'pair')} of runs"
        return f"{few} + {many} runs" if (few, many) != (1, 1) else "one run a side"


def _usable_runs(baseline: Sequence[Measures], candidate: Sequence[Measures]) -> _ComparedRuns:
    """Pair interleaved runs, and leave out throttled runs, together with their partners."""
    sides = [[*baseline], [*candidate]]
    order = _order([*baseline, *candidate])
    if order is not None:
        ranks = np.argsort(np.argsort(order))
        of_side = np.split(ranks, [len(baseline)])
        sides = [[side[place] for place in np.argsort(rank)] for side, rank in zip(sides, of_side, strict=True)]
        # in pairs with one run of each side: ABBA, ABAB
        blocks = [np.array_equal(np.sort(rank) // 2, np.arange(len(baseline))) for rank in of_side]
        return _without_throttled(*sides, is_paired=all(blocks) and len(baseline) > 1)
    return _without_throttled(*sides, is_paired=False)


def _order(runs: Sequence[Measures]) -> "np.ndarray[Any, np.dtype[Any]] | None":
    """Return the order in which the runs were made; None if unknown."""
    if len({run.series for run in runs}) == 1 and runs[0].series and len({run.order for run in runs}) == len(runs):
        return np.array([run.order for run in runs])
    started = pd.to_datetime(pd.Series([run.started for run in runs]), errors="coerce", utc=True, format="ISO8601")
    return started.to_numpy() if started.notna().all() and started.is_unique else None


def _without_throttled(before: list[Measures], after: list[Measures], *, is_paired: bool) -> _ComparedRuns:
    slow = [[run.is_throttled for run in side] for side in (before, after)]
    if is_paired:
        slow = [[any(pair) for pair in zip(*slow, strict=True)]] * 2
    kept_runs = [
        [run for run, out in zip(side, of_side, strict=True) if not out]
        for side, of_side in zip((before, after), slow, strict=True)
    ]
    left_out = len(before) + len(after) - len(kept_runs[0]) - len(kept_runs[1])
    if not left_out or not kept_runs[0] or not kept_runs[1]:
        return _ComparedRuns(before, after, is_paired)
    runs_were = (
        counted(left_out // 2, "pair of runs was", "pairs of runs were")
        if is_paired
        else counted(left_out, "run was", "runs were")
    )
    return _ComparedRuns(kept_runs[0], kept_runs[1], is_paired, (f"{runs_were} left out: a GPU was throttled.",))


def _changes(
    runs: _ComparedRuns,
    matched: "_MatchedTables",
    settings: Settings,
    unlike: Sequence[Difference],
    allowed_pct: Mapping[str, float],
) -> pd.DataFrame:
    """Return the change of each measure, with columns CHANGES."""
    table = MeasureTable.of(matched.baseline, matched.candidate, matched.of_kernels)
    changes = MeasureTests(settings, runs.is_paired, (*runs.baseline, *runs.candidate), allowed_pct).changes(table)
    return _sort_by_impact(_withhold_verdicts(changes, unlike))[list(CHANGES)]


@dataclass(frozen=True, eq=False)
class _MatchedTables:
    """The tables of all runs, in which matched kernels have one name.

    of_kernels: the reason for each match, by that name. note: which pairs were not checked.
    """

    baseline: list[pd.DataFrame]
    candidate: list[pd.DataFrame]
    of_kernels: Mapping[str, str]
    note: str


def _match_kernels(runs: _ComparedRuns) -> _MatchedTables:
    """Match the kernels of the two sides."""
    sides = [[run.table for run in side] for side in (runs.baseline, runs.candidate)]
    kernels = [_usual([table[table["kind"] == "kernel"] for table in side]) for side in sides]
    matched = matches(*kernels)
    renaming = [
        {name: match.name for match in matched.kernels for name in (match.baseline, match.candidate)[place]}
        for place in (0, 1)
    ]
    renamed = [[_rename_kernels(table, names) for table in side] for side, names in zip(sides, renaming, strict=True)]
    return _MatchedTables(renamed[0], renamed[1], {match.name: match.note for match in matched.kernels}, matched.note)


def _usual(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the median of each kernel over the runs, if more than half of them have it."""
    kernels = pd.concat(tables, ignore_index=True)
    grouped = kernels.groupby("name", sort=False)
    usual = grouped[["count", "value"]].median().assign(place=grouped["place"].first(), runs=grouped.size())
    return usual[usual["runs"] > len(tables) / 2].reset_index()


def _medians_of_gate(tables: Sequence[pd.DataFrame]) -> dict[str, float]:
    """Return the median of each gate metric over the runs that have it."""
    rows = pd.concat(tables, ignore_index=True)
    medians = rows[rows["kind"] == "gate"].groupby("name", observed=True)["value"].median()
    return {str(name): float(median) for name, median in medians.items()}


def _rename_kernels(table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    if not names:
        return table
    is_kernel = table["kind"] == "kernel"
    return table.assign(name=table["name"].where(~is_kernel, table["name"].replace(names)))


def _withhold_verdicts(changes: pd.DataFrame, unlike: Sequence[Difference]) -> pd.DataFrame:
    """Withhold verdicts that a difference between the runs could explain."""
    for difference in unlike:
        of_gate = (changes["kind"] == "gate") & changes["name"].isin(difference.affects)
        affected = of_gate | (changes["kind"] != "gate") & changes["kind"].isin(difference.affects)
        notes = changes["note"].where(~affected, f"not comparable: {difference.what}")
        verdicts = changes["verdict"].where(~affected, "inconclusive")
        changes = changes.assign(verdict=verdicts, note=notes, is_fact=changes["is_fact"] & ~affected)
        changes[["needed_runs", "most_pct"]] = changes[["needed_runs", "most_pct"]].where(~affected)
    return changes


_WEIGHT: Final[Mapping[str, float]] = {"inconclusive": 0.3, "unchanged": 0.05}


def _sort_by_impact(changes: pd.DataFrame) -> pd.DataFrame:
    """Put gate metrics first, in their order, then all by impact."""
    order = {name: place for place, name in enumerate(GATE)}
    gate = changes["name"].map(order).where(changes["kind"] == "gate").fillna(len(GATE) + (changes["kind"] != "gate"))
    size = (changes["candidate"].fillna(0) - changes["baseline"].fillna(0)).abs()
    impact = size * changes["verdict"].map(_WEIGHT).fillna(1.0).astype("float64")
    keyed = changes.assign(gate=gate.astype("float64"), impact=impact)
    return keyed.sort_values(["gate", "impact", "kind", "name"], ascending=[True, False, True, True], ignore_index=True)


def _compared_causes(runs: _ComparedRuns, alpha: float, *, is_doubted: bool) -> pd.DataFrame:
    """Return the advice of the two sides, each with its gain."""
    of_sides = []
    for side, of_side in (("baseline", runs.baseline), ("candidate", runs.candidate)):
        frames = [run.causes.drop_duplicates(["rule", "name"]) for run in of_side if len(run.causes)]
        causes = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(CAUSES))
        grouped = causes.groupby(["rule", "name"], sort=False)
        usual = aggregate(grouped, gain_pct=("gain_pct", "median"), title=("title", "last"), runs=("title", "size"))
        of_sides.append(usual.add_prefix(f"{side}_"))
    joined = of_sides[0].join(of_sides[1], how="outer").reset_index()
    before, after = (joined[f"{side}_runs"].fillna(0).to_numpy(dtype=np.float64) for side in ("baseline", "candidate"))
    few, many = len(runs.baseline), len(runs.candidate)
    came, went = (flags & (not is_doubted) for flags in one_sided(before, after, (few, many), alpha))
    stayed = (2 * before > few) & (2 * after > many)
    verdict = np.select([came, went, stayed], ["added", "removed", "unchanged"], "inconclusive")
    gains = joined[["baseline_gain_pct", "candidate_gain_pct"]].astype("float64")
    title = joined["candidate_title"].fillna(joined["baseline_title"])
    joined = joined.assign(**gains, verdict=verdict, title=title, is_old=~(came | went))
    joined["impact"] = gains.fillna(0).diff(axis=1).iloc[:, 1].abs()
    order = ["is_old", "impact", "rule", "name"]
    joined = joined.sort_values(order, ascending=[True, False, True, True], ignore_index=True)
    return joined[["rule", "name", *gains, "verdict", "title"]]
