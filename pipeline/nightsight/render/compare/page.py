"""The content of the page of a comparison: the verdict, the changes and their causes, and the evidence."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.model.compare import Comparison, Measures, Verdict
from nightsight.render.compare.figures import Forest, StepBars, forest, step_bars
from nightsight.render.compare.words import (
    NOUNS,
    MeasureNames,
    belief,
    causes,
    change_texts,
    decision_of,
    differences_of,
    facts,
    gates,
    method_of,
    notable,
    number,
    parts,
    rows_of,
    sentence_of,
    tally,
    title_words,
    unmentioned_limits,
)
from nightsight.render.page.page import Definition
from nightsight.render.table.packed import packed_tables
from nightsight.render.table.view import Layout, TableView, floats, short_text, table_view, with_values
from nightsight.results.entry import Names
from nightsight.texts import excerpt, prose
from nightsight.units import ABSENT

_TIMES: Final = ("difference_ns", "baseline_ns", "candidate_ns", "by_count_ns", "by_time_ns")
_SENTENCE: Final = 1_000
_WORDS: Final[dict[Verdict, str]] = {
    "regressed": "Regressed",
    "improved": "Improved",
    "unchanged": "Unchanged",
    "inconclusive": "Inconclusive",
    "added": "Added",
    "removed": "Removed",
}
_HEADINGS: Final = {
    "kernel": "Kernels",
    "family": "Kernel families",
    "range": "Ranges",
    "operator": "Operators",
    "copy": "Copies and sets",
    "api": "CUDA API calls",
}
_STYLES: Final[dict[str, Names]] = {"kernel": "kernel", "family": "code", "operator": "code", "api": "code"}
_HELP: Final = (
    "Times of one repetition of the step (of the window, if nothing repeats): the geometric mean over the runs of a "
    "side, so that the candidate divided by the baseline is the change; the median if it was not tested. Rows "
    "are sorted by impact, the largest difference first. A difference has two parts that add up to it: by count, the "
    "difference of the counts times the time of one; by time, the count times the difference of the time of one."
)
_COLUMNS: Final = (
    Definition(
        "Verdict",
        "what is shown about the change",
        (
            ("regressed, improved", "it changed by more than the minimum effect, after correction for many tests"),
            ("added, removed", "only one side has it"),
            ("unchanged", "the interval lies within the band in which nothing changed"),
            ("inconclusive", "neither is shown: the note says why, and how many runs would settle it"),
        ),
    ),
    Definition("Change (%)", "the candidate divided by the baseline, with its 90 % interval from low to high"),
    Definition("By count, by time", "the two parts of the difference"),
    Definition("P", "probability of such a change by chance, adjusted for the number of tests"),
)


@dataclass(frozen=True)
class CauseChange:
    """A cause of slowness that appeared, disappeared, or changed."""

    word: str
    verdict: str
    title: str
    gain: str


@dataclass(frozen=True)
class ChangeTables:
    """All rows of one kind: the notable ones (or None), and folded tables with titles for the other verdicts."""

    anchor: str
    title: str
    tally: str
    changed: TableView | None
    folded: tuple[tuple[str, TableView], ...]


@dataclass(frozen=True)
class ComparisonPage:
    """All values that the template of a comparison prints."""

    title: str
    facts: tuple[str, ...]
    verdict: str
    word: str
    sentence: str
    belief: str
    decision: str
    broken: tuple[str, ...]
    accepted: tuple[str, ...]
    causes: tuple[CauseChange, ...]
    forest: Forest | None
    gates: TableView | None
    step: StepBars | None
    changed: tuple[ChangeTables, ...]
    unchanged: tuple[ChangeTables, ...]
    groups: TableView | None
    differences: tuple[tuple[str, str, str, str], ...]
    runs: TableView | None
    common_facts: str
    method: str
    noise: str
    notes: tuple[str, ...]
    help: str
    definitions: tuple[Definition, ...]
    packed: str


def comparison_page(comparison: Comparison) -> ComparisonPage:
    """Build the page of a comparison."""
    names = MeasureNames(comparison.changes)
    tables = [_tables(comparison, kind, names) for kind in NOUNS if len(rows_of(comparison, kind))]
    groups, gate = _groups(comparison, names), _gates(comparison, names)
    runs, common_facts = _runs(comparison)
    views = [gate, groups, runs]
    for table in tables:
        views += [table.changed, *(view for _, view in table.folded)]
    return ComparisonPage(
        title=title_words(comparison),
        facts=facts(comparison),
        verdict=comparison.verdict,
        word=_WORDS.get(comparison.verdict, comparison.verdict),
        sentence=prose(sentence_of(comparison), _SENTENCE),
        belief=prose(belief(comparison), _SENTENCE),
        decision=prose(decision_of(comparison), _SENTENCE),
        broken=tuple(prose(text, _SENTENCE) for text in unmentioned_limits(comparison)),
        accepted=tuple(prose(text, _SENTENCE) for text in comparison.decision.accepted),
        causes=tuple(_cause_changes(comparison)),
        forest=forest(comparison, names),
        gates=gate,
        step=step_bars(comparison, names),
        changed=tuple(table for table in tables if table.changed),
        unchanged=tuple(table for table in tables if not table.changed),
        groups=groups,
        differences=tuple(differences_of(comparison)),
        runs=runs,
        common_facts=common_facts,
        method=method_of(comparison),
        noise=prose(comparison.noise, _SENTENCE),
        notes=tuple(prose(text, _SENTENCE) for text in comparison.notes),
        help=_HELP,
        definitions=_COLUMNS,
        packed=packed_tables(view for view in views if view is not None),
    )


def _cause_changes(comparison: Comparison) -> Iterator[CauseChange]:
    words = {"added": "Appeared", "removed": "Went", "regressed": "Grew", "improved": "Shrank"}
    for row in causes(comparison).to_dict("records"):
        gains = [number(row[f"{side}_gain_pct"]) for side in ("baseline", "candidate")]
        verdict = str(row["verdict"])
        yield CauseChange(
            word=words.get(verdict, verdict),
            verdict=verdict,
            title=short_text(str(row["title"] or row["rule"])),
            gain=" → ".join(f"{gain:.1f} %" if math.isfinite(gain) else ABSENT for gain in gains),
        )


def _tables(comparison: Comparison, kind: str, names: MeasureNames) -> ChangeTables:
    rows, title = rows_of(comparison, kind), _HEADINGS[kind]
    changed = notable(comparison, rows)
    unchanged = rows.drop(changed.index)
    folded = tuple(
        (
            f"{len(matching):,} {verdict}",
            _change_view(matching, kind, names, f"{title}, {verdict}", f"{kind}_{verdict}"),
        )
        for verdict in ("inconclusive", "unchanged")
        if len(matching := unchanged[unchanged["verdict"] == verdict])
    )
    view = _change_view(changed, kind, names, title, kind) if len(changed) else None
    return ChangeTables(f"changes-{kind}", title, tally(rows), view, folded)


def _change_view(rows: pd.DataFrame, kind: str, names: MeasureNames, caption: str, name: str) -> TableView:
    """Return a table of changes, the most important columns first."""
    layout = Layout(
        f"{NOUNS[kind]} rows",
        f"{NOUNS[kind][:1].upper()}{NOUNS[kind][1:]}",
        shorten=lambda text: names.short(kind, text),
        minor=("low_pct", "high_pct", "p", "baseline_count", "candidate_count", "needed_runs"),
        names=_STYLES.get(kind, ""),
        same_unit=_TIMES,
    )
    before, after = (floats(rows[side]) for side in ("baseline", "candidate"))
    frame = pd.DataFrame(
        {
            "name": rows["name"].astype("str"),
            "verdict": rows["verdict"],
            "difference_ns": np.nan_to_num(after) - np.nan_to_num(before),
            "change_pct": floats(rows["change_pct"]),
            "baseline_ns": before,
            "candidate_ns": after,
            "by_count_ns": floats(rows["count_part"]),
            "by_time_ns": floats(rows["time_part"]),
            "baseline_count": floats(rows["baseline_count"]),
            "candidate_count": floats(rows["candidate_count"]),
            "low_pct": floats(rows["low_pct"]),
            "high_pct": floats(rows["high_pct"]),
            "p": floats(rows["p"]),
            "needed_runs": floats(rows["needed_runs"]),
            "note": rows["note"].astype("str"),
        }
    )
    return table_view(with_values(frame, keep=("name",)), layout, caption=caption, name=name)


def _gates(comparison: Comparison, names: MeasureNames) -> TableView | None:
    """Return all gate metrics and parts of a step, each row in its own unit."""
    rows = pd.concat([gates(comparison), parts(comparison)])
    if rows.empty:
        return None
    texts = change_texts(rows, names)
    frame = pd.DataFrame(
        {
            "name": [text.name for text in texts],
            "verdict": [text.verdict for text in texts],
            "baseline": [text.baseline for text in texts],
            "candidate": [text.candidate for text in texts],
            "difference": [text.difference for text in texts],
            "change_pct": floats(rows["change_pct"]),
            "low_pct": floats(rows["low_pct"]),
            "high_pct": floats(rows["high_pct"]),
            "p": floats(rows["p"]),
            "needed_runs": floats(rows["needed_runs"]),
            "note": [text.note for text in texts],
        }
    )
    caption, layout = "Gate metrics and parts of a step", Layout("metrics", "Metric")
    return table_view(with_values(frame, keep=("name",)), layout, caption=caption, name="gate")


def _groups(comparison: Comparison, names: MeasureNames) -> TableView | None:
    """Return the rows without a counterpart of the same name: added, removed, renamed and fused."""
    rows = rows_of(comparison, *NOUNS)
    notes = rows["note"].astype("str")
    rows = rows[rows["verdict"].isin(["added", "removed"]) | notes.str.startswith(("renamed", "fused", "split"))]
    if rows.empty:
        return None
    measures = zip(rows["kind"], rows["name"].astype("str"), strict=True)
    frame = pd.DataFrame(
        {
            "name": [names.short(kind, name) for kind, name in measures],
            "kind": rows["kind"].map(NOUNS),
            "verdict": rows["verdict"],
            "baseline_ns": floats(rows["baseline"]),
            "candidate_ns": floats(rows["candidate"]),
            "baseline_count": floats(rows["baseline_count"]),
            "candidate_count": floats(rows["candidate_count"]),
            "note": rows["note"].astype("str"),
        }
    )
    layout = Layout("groups", "Name", names="code", same_unit=("baseline_ns", "candidate_ns"))
    frame = with_values(frame, keep=("name",))
    return table_view(frame, layout, caption="Added, removed, renamed and fused", name="groups")


def _runs(comparison: Comparison) -> tuple[TableView | None, str]:
    """Return the runs as a table, and the facts that all of them share in words."""
    sides = {"baseline": comparison.baseline, "candidate": comparison.candidate}
    rows = [
        row
        for side, runs in sides.items()
        for run in sorted(runs, key=lambda run: (run.order, run.started))
        for row in _run_rows(side, run)
    ]
    if not rows:
        return None, ""
    frame = pd.DataFrame(rows).fillna("")
    is_common = (frame.nunique() == 1) & ~frame.columns.isin(["run", "side", "started"])
    common = frame.loc[:, is_common].iloc[0]
    words = ", ".join(f"{str(name).replace('_', ' ')} {excerpt(value, 60)}" for name, value in common.items() if value)
    frame = frame.loc[:, ~is_common].replace("", None)
    return table_view(frame, Layout("runs", "Run", "run"), caption="Runs of both sides", name="runs"), words


def _run_rows(side: str, run: Measures) -> Iterator[dict[str, str]]:
    """Yield a row per GPU of a run; one row without GPU columns if its GPUs are unknown."""
    environment = run.environment
    row = {
        "run": run.source,
        "side": side,
        "order": str(run.order + 1) if run.order >= 0 else "",
        "commit": environment.commit,
        "started": run.started or environment.captured_utc,
        "GPU": environment.gpu,
        "driver": environment.driver,
        "CUDA": environment.cuda,
        "window": f"{run.repetitions:,} × {run.family}" if run.repetitions else run.window,
    }
    if not run.conditions:
        yield row
    for condition in run.conditions:
        yield {
            **row,
            "device": str(condition.device) if len(run.conditions) > 1 else "",
            "SM_clock": _amount(condition.sm_mhz, "MHz"),
            "lowest": _amount(condition.lowest_sm_mhz, "MHz"),
            "memory_clock": _amount(condition.memory_mhz, "MHz"),
            "temperature": _amount(condition.temperature_c, "°C"),
            "power": _amount(condition.power_w, "W"),
            "throttled": ", ".join(condition.throttled) or ("none" if condition.samples else ""),
            "clocks": condition.clock_policy,
            "MIG": condition.mig,
            "shared": "yes" if condition.is_shared else "",
        }


def _amount(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.0f} {unit}"
