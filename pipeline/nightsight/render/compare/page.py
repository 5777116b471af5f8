"""Content and order of the page of a comparison: the verdict, the changes and their causes, and the evidence."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nightsight.model.compare import Comparison, Measures, Verdict
from nightsight.render.compare.figures import Forest, StepColumns, columns, forest
from nightsight.render.compare.words import (
    NOUNS,
    Names,
    causes,
    change_texts,
    cut,
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
    unmentioned_limits,
)
from nightsight.render.page.page import Definition
from nightsight.render.table.packed import packed_tables
from nightsight.render.table.view import Layout, TableView, floats, short_text, table_view
from nightsight.results.entry import Names as Style
from nightsight.texts import printable
from nightsight.units import ABSENT

_TIMES: Final = ("difference_ns", "baseline_ns", "candidate_ns", "by_count_ns", "by_time_ns")
TABLE_BYTES: Final = 400_000
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
_STYLES: Final[dict[str, Style]] = {"kernel": "kernel", "family": "code", "operator": "code", "api": "code"}
_HELP: Final = (
    "Times of one repetition of the step (of the window, if nothing repeats): the median over the runs of a side. Rows "
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
    Definition("Change (%)", "the median ratio of candidate and baseline, with its 90 % interval from low to high"),
    Definition("By count, by time", "the two parts of the difference"),
    Definition("P", "probability of such a change by chance, adjusted for the number of tests"),
)


@dataclass(frozen=True)
class Cause:
    """A cause of slowness that appeared or disappeared."""

    word: str
    verdict: str
    title: str
    rule: str
    gain: str


@dataclass(frozen=True)
class ChangeTables:
    """All rows of one kind: the notable ones, None if there are none, and the others in closed elements."""

    anchor: str
    title: str
    tally: str
    changed: TableView | None
    others: tuple[tuple[str, TableView], ...]


@dataclass(frozen=True)
class ComparisonPage:
    """All values that the template of a comparison prints."""

    title: str
    facts: tuple[str, ...]
    verdict: str
    word: str
    sentence: str
    decision: str
    broken: tuple[str, ...]
    accepted: tuple[str, ...]
    causes: tuple[Cause, ...]
    forest: Forest | None
    gates: TableView | None
    columns: StepColumns | None
    changed: tuple[ChangeTables, ...]
    others: tuple[ChangeTables, ...]
    groups: TableView | None
    differences: tuple[tuple[str, str, str, str], ...]
    runs: TableView | None
    of_all_runs: str
    method: str
    noise: str
    notes: tuple[str, ...]
    help: str
    definitions: tuple[Definition, ...]
    packed: str


def comparison_page(comparison: Comparison) -> ComparisonPage:
    """Build the page of a comparison."""
    names = Names(comparison.changes)
    tables = tuple(_tables(comparison, kind, names) for kind in NOUNS if len(rows_of(comparison, kind)))
    groups, gate = _groups(comparison, names), _gates(comparison, names)
    runs, of_all_runs = _runs(comparison)
    views = (
        gate,
        groups,
        runs,
        *(view for item in tables for view in (item.changed, *(each for _, each in item.others))),
    )
    decision = comparison.decision
    return ComparisonPage(
        printable(comparison.workload),
        facts(comparison),
        comparison.verdict,
        _WORDS.get(comparison.verdict, comparison.verdict),
        _prose(sentence_of(comparison)),
        _prose(decision_of(comparison)),
        tuple(map(_prose, unmentioned_limits(comparison))),
        tuple(map(_prose, decision.accepted)),
        tuple(_causes(comparison)),
        forest(comparison, names),
        gate,
        columns(comparison, names),
        tuple(item for item in tables if item.changed),
        tuple(item for item in tables if not item.changed),
        groups,
        tuple(differences_of(comparison)),
        runs,
        of_all_runs,
        method_of(comparison),
        _prose(comparison.noise),
        tuple(map(_prose, comparison.notes)),
        _HELP,
        _COLUMNS,
        packed_tables([view for view in views if view is not None], most_bytes=TABLE_BYTES),
    )


def _prose(text: str) -> str:
    return cut(text, 1_000) if text.strip() else ""


def _causes(comparison: Comparison) -> Iterator[Cause]:
    words = {"added": "Appeared", "removed": "Went", "regressed": "Grew", "improved": "Shrank"}
    for row in causes(comparison).to_dict("records"):
        gains = [_percent(row[f"{side}_gain_pct"]) for side in ("baseline", "candidate")]
        verdict = str(row["verdict"])
        title = short_text(str(row["title"] or row["rule"]))
        yield Cause(words.get(verdict, verdict), verdict, title, short_text(str(row["rule"])), " → ".join(gains))


def _percent(value: object) -> str:
    return f"{number(value):.1f} %" if math.isfinite(number(value)) else ABSENT


def _tables(comparison: Comparison, kind: str, names: Names) -> ChangeTables:
    rows, title = rows_of(comparison, kind), _HEADINGS[kind]
    first = notable(comparison, rows)
    unchanged = rows.drop(first.index)
    others = tuple(
        (f"{len(chosen):,} {verdict}", _change_view(chosen, kind, names, f"{title}, {verdict}", f"{kind}_{verdict}"))
        for verdict in ("inconclusive", "unchanged")
        if len(chosen := unchanged[unchanged["verdict"] == verdict])
    )
    view = _change_view(first, kind, names, title, kind) if len(first) else None
    return ChangeTables(f"changes-{kind}", title, tally(rows), view, others)


def _change_view(rows: pd.DataFrame, kind: str, names: Names, caption: str, name: str) -> TableView:
    layout = Layout(
        f"{NOUNS[kind]} rows",
        f"{NOUNS[kind][:1].upper()}{NOUNS[kind][1:]}",
        shorten=lambda text: names.short(kind, text),
        minor=("low_pct", "high_pct", "p", "baseline_count", "candidate_count", "needed_runs"),
        names=_STYLES.get(kind, ""),
        same_unit=_TIMES,
    )
    return table_view(_frame(rows), layout, caption=caption, name=name)


def _frame(rows: pd.DataFrame) -> pd.DataFrame:
    """Return changes as a table, the most important columns first; columns without any value are left out."""
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
    return _known_columns(frame)


def _gates(comparison: Comparison, names: Names) -> TableView | None:
    """Return all gate metrics and parts of a step, each row in its own unit."""
    rows = pd.concat([gates(comparison), parts(comparison)])
    if rows.empty:
        return None
    changes = change_texts(rows, names)
    frame = pd.DataFrame(
        {
            "name": [one.name for one in changes],
            "verdict": [one.verdict for one in changes],
            "baseline": [one.baseline for one in changes],
            "candidate": [one.candidate for one in changes],
            "difference": [one.difference for one in changes],
            "change_pct": floats(rows["change_pct"]),
            "low_pct": floats(rows["low_pct"]),
            "high_pct": floats(rows["high_pct"]),
            "p": floats(rows["p"]),
            "needed_runs": floats(rows["needed_runs"]),
            "note": [one.note for one in changes],
        }
    )
    return table_view(
        _known_columns(frame), Layout("metrics", "Metric"), caption="Gate metrics and parts of a step", name="gate"
    )


def _groups(comparison: Comparison, names: Names) -> TableView | None:
    """Return the rows without a counterpart of the same name: added, removed, renamed and fused."""
    rows = rows_of(comparison, *NOUNS)
    notes = rows["note"].astype("str")
    rows = rows[rows["verdict"].isin(["added", "removed"]) | notes.str.startswith(("renamed", "fused", "split"))]
    if rows.empty:
        return None
    kinds_and_names = zip(rows["kind"], rows["name"].astype("str"), strict=True)
    frame = pd.DataFrame(
        {
            "name": [names.short(kind, name) for kind, name in kinds_and_names],
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
    return table_view(_known_columns(frame), layout, caption="Added, removed, renamed and fused", name="groups")


def _known_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out columns without any value; a name can be empty."""
    unknown = (frame.isna() | (frame == "")).all()
    return frame.loc[:, ~unknown | (frame.columns == "name")]


def _runs(comparison: Comparison) -> tuple[TableView | None, str]:
    """Return the runs as a table, and the facts that all of them share in words."""
    sides = (("baseline", comparison.baseline), ("candidate", comparison.candidate))
    rows = [row for side, runs in sides for run in _in_order(runs) for row in _run(side, run)]
    if not rows:
        return None, ""
    frame = pd.DataFrame(rows)
    columns = list(map(str, frame))
    same = [name for name in columns if name not in ("run", "side", "started") and frame[name].nunique() == 1]
    words = (f"{name.replace('_', ' ')} {cut(frame[name].iloc[0], 60)}" for name in same if frame[name].iloc[0])
    view = table_view(
        frame.drop(columns=same).replace("", None),
        Layout("runs", "Run", "run"),
        caption="Runs of both sides",
        name="runs",
    )
    return view, ", ".join(words)


def _in_order(runs: Sequence[Measures]) -> list[Measures]:
    return sorted(runs, key=lambda run: (run.order, run.started))


def _run(side: str, run: Measures) -> Iterator[dict[str, str]]:
    """Yield a row per GPU of a run; one row without GPU columns if its GPUs are unknown."""
    environment = run.environment
    facts_of_run = {
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
        yield {**facts_of_run, **dict.fromkeys(_CONDITIONS, "")}
    for each in run.conditions:
        values = (
            str(each.device) if len(run.conditions) > 1 else "",
            _amount(each.sm_mhz, "MHz"),
            _amount(each.lowest_sm_mhz, "MHz"),
            _amount(each.memory_mhz, "MHz"),
            _amount(each.temperature_c, "°C"),
            _amount(each.power_w, "W"),
            ", ".join(each.throttled) or ("none" if each.samples else ""),
            each.clock_policy,
            each.mig,
            "yes" if each.is_shared else "",
        )
        yield {**facts_of_run, **dict(zip(_CONDITIONS, values, strict=True))}


_CONDITIONS: Final = (
    "device", "SM_clock", "lowest", "memory_clock", "temperature", "power", "throttled", "clocks", "MIG", "shared",
)  # fmt: skip


def _amount(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.0f} {unit}"
