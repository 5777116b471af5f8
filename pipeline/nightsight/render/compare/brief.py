"""Renders a comparison for someone in a hurry: slower or faster, believed or not, what changed most, and what to do.

All texts are printable. See `nightsight.render.brief` for that of a report.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite
from shlex import quote
from typing import Any, Final

import pandas as pd

from nightsight.events.kernel_names import base_name
from nightsight.model.compare import GATE, Comparison, Measures, unit_of
from nightsight.model.report import ids_of
from nightsight.render.compare.words import (
    LEAVES,
    NOUNS,
    PARTS,
    MeasureNames,
    belief,
    causes,
    change_texts,
    deciding_metric,
    differences_of,
    facts,
    gates,
    has_few_runs,
    is_believed,
    is_changed,
    notable,
    number,
    rows_of,
    sentence_of,
    title_words,
)
from nightsight.render.fit import MOST_BYTES, brief_json, brief_text
from nightsight.texts import excerpt, printable, prose

_MOST_METRICS: Final = 4
_MOST_CHANGES: Final = 6
_MOST_CAUSES: Final = 3
_MOST_TEXTS: Final = 2
_USUAL_PAIRS: Final = 5
# in characters
_NAME: Final = 60
_PLACE: Final = 120
_SENTENCE: Final = 400
_SHORT: Final = 160
_COMMIT: Final = re.compile(r"[0-9a-f]{4,40}")
# a range that has this share of the largest change of a range may be the place of it
_MOSTLY: Final = 0.5


@dataclass(frozen=True)
class BriefChange:
    """A measure of both sides. kind: "metric", "category" (of the time of a step), or what it measures.

    unit: of baseline and candidate. text: the same for people, without the name. place: the ranges in which a kernel is
    launched.
    """

    kind: str
    name: str
    text: str
    unit: str
    baseline: float | None
    candidate: float | None
    change_pct: float | None
    low_pct: float | None
    high_pct: float | None
    verdict: str
    place: str
    note: str


@dataclass(frozen=True)
class BriefCause:
    """A cause that appeared or disappeared. id: its name in the report of a candidate that has it, "" for none."""

    verdict: str
    rule: str
    id: str
    cause: str


@dataclass(frozen=True)
class ComparisonBrief:
    """The brief of a comparison. commands: what to do next, where CANDIDATE is the run `candidate`."""

    title: str
    facts: tuple[str, ...]
    verdict: str
    sentence: str
    is_believed: bool
    belief: str
    gate: str
    metrics: tuple[BriefChange, ...]
    changes: tuple[BriefChange, ...]
    causes: tuple[BriefCause, ...]
    not_comparable: tuple[str, ...]
    notes: tuple[str, ...]
    commands: tuple[str, ...]
    candidate: str
    is_cut: bool = False


def brief(comparison: Comparison) -> ComparisonBrief:
    """Return the brief of a comparison, with everything that may be left out."""
    changed = [*_changes(comparison)]
    told = causes(comparison)
    named = tuple(_cause(comparison, row) for row in told.head(_MOST_CAUSES).to_dict("records"))
    shown = next((each for each in named if each.id), None)
    run = _run_with(comparison, shown)
    commands = tuple(_commands(comparison, changed, shown))
    differences = [f"{what}: {one} → {other} ({result})" for what, one, other, result in differences_of(comparison)]
    title = title_words(comparison)
    return ComparisonBrief(
        excerpt(title, _NAME),
        # the names of the sides may be the title
        tuple(excerpt(fact.removeprefix(f"{title}, "), _PLACE) for fact in facts(comparison)),
        comparison.verdict,
        prose(sentence_of(comparison), _SENTENCE),
        is_believed(comparison),
        prose(belief(comparison), _SHORT),
        prose(comparison.decision.line, _SHORT),
        tuple(_metrics(comparison)),
        tuple(changed),
        named,
        tuple(prose(text, _SHORT) for text in differences[:_MOST_TEXTS]),
        tuple(prose(text, _SHORT) for text in (*comparison.notes[:_MOST_TEXTS], comparison.noise) if text),
        commands,
        excerpt(run.source, _NAME) if run and any("CANDIDATE" in each for each in commands) else "",
    )


def _metrics(comparison: Comparison) -> Iterator[BriefChange]:
    """Yield the deciding metric, then those that changed."""
    rows = gates(comparison)
    rank = rows["name"].map({name: place for place, name in enumerate(GATE[:2])}).fillna(len(GATE))
    rows = rows.loc[rank.sort_values(kind="stable").index]
    first = rows["name"] == deciding_metric(comparison).get("name")
    yield from _texts(comparison, rows[first | is_changed(rows)].head(_MOST_METRICS))


def _changes(comparison: Comparison) -> Iterator[BriefChange]:
    """Yield what changed most: kernels, copies, calls and parts of a step, and the innermost range of most of it."""
    rows = notable(comparison, comparison.changes)
    kept = rows["kind"].isin(LEAVES) | (rows["kind"] == "gate") & rows["name"].isin(PARTS)
    inner = _innermost(notable(comparison, rows_of(comparison, "range")))
    yield from _texts(comparison, pd.concat([rows[kept].head(_MOST_CHANGES - len(inner)), inner]))


def _innermost(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the innermost range that has most of the largest change of a range; none without a change."""
    moved = (ranges["candidate"].fillna(0) - ranges["baseline"].fillna(0)).abs()
    near = ranges[moved >= _MOSTLY * moved.max()] if len(ranges) else ranges
    depth = near["name"].str.count(" / ")
    return near.loc[depth.sort_values(ascending=False, kind="stable").index].head(1)


def _texts(comparison: Comparison, rows: pd.DataFrame) -> Iterator[BriefChange]:
    names = MeasureNames(rows)
    for text, row in zip(change_texts(rows, names, length=_NAME), rows.to_dict("records"), strict=True):
        kind, name = str(row["kind"]), str(row["name"])
        is_metric = kind == "gate" and name not in PARTS
        noun = "metric" if is_metric else NOUNS.get(kind, "category")
        moved = f"{text.baseline} → {text.candidate}" if is_metric else text.difference
        yield BriefChange(
            kind=noun,
            name=printable(text.name),
            text=", ".join(filter(None, (moved, text.whole, text.verdict))),
            unit=unit_of(kind, name),
            baseline=_finite(row["baseline"]),
            candidate=_finite(row["candidate"]),
            change_pct=_finite(row["change_pct"]),
            low_pct=_finite(row["low_pct"]),
            high_pct=_finite(row["high_pct"]),
            verdict=text.verdict,
            place=_place(comparison, name) if kind == "kernel" else "",
            note=prose(text.note or text.needed, _PLACE),
        )


def _finite(value: object) -> float | None:
    return value if isfinite(value := number(value)) else None


def _place(comparison: Comparison, kernel: str) -> str:
    """Return the ranges in which a kernel is launched, in the first run that knows them."""
    for run in (*comparison.candidate, *comparison.baseline):
        table = run.table
        if "place" in table:
            places = table.loc[(table["kind"] == "kernel") & (table["name"] == kernel), "place"]
            if (known_places := [each for each in places if isinstance(each, str) and each]) != []:
                return excerpt(known_places[0], _PLACE)
    return ""


def _cause(comparison: Comparison, row: Mapping[Any, object]) -> BriefCause:
    rule, title = str(row["rule"]), str(row["title"] or row["rule"])
    found = _in_report(comparison.candidate, rule, str(row["name"]))
    # an id is not cut: a part of it names nothing
    name = found[0] if found and len(found[0]) <= _NAME else ""
    return BriefCause(str(row["verdict"]), excerpt(rule, _NAME), name, excerpt(title, _SHORT))


def _in_report(runs: Sequence[Measures], rule: str, name: str) -> tuple[str, Measures] | None:
    """Return the id of a cause in the report of a run that has it, and the run."""
    for run in runs:
        if len(run.causes):
            told = zip(run.causes["rule"], run.causes["name"], ids_of(run.causes["rule"]), strict=True)
            if cause := next((cause for *key, cause in told if key == [rule, name]), ""):
                return cause, run
    return None


def _run_with(comparison: Comparison, cause: BriefCause | None) -> Measures | None:
    """Return a candidate whose report has a cause, or else the last one."""
    runs = comparison.candidate
    having = (run for run in runs if cause and len(run.causes) and cause.id in ids_of(run.causes["rule"]))
    return next(having, runs[-1] if runs else None)


def _commands(comparison: Comparison, changed: Sequence[BriefChange], cause: BriefCause | None) -> Iterator[str]:
    """Yield the commands to go on with: more runs, the new cause or kernel, the commit."""
    before, after = (_commit_of(side) for side in (comparison.baseline, comparison.candidate))
    if not is_believed(comparison):
        needed = number(deciding_metric(comparison).get("needed_runs"))
        # more than there are: the same number did not settle it
        more = max(len(comparison.baseline), len(comparison.candidate)) + 1
        count = max(ceil(needed), more) if needed > 0 and not has_few_runs(comparison) else _USUAL_PAIRS
        is_same = before == after != ""
        of_commits = f"nightsight ab --base {before or 'BASE'} --head {after or '.'} --pairs {count} PROGRAM"
        yield f"nightsight profile --repeat {count} PROGRAM" if is_same else of_commits
    if comparison.verdict in ("improved", "unchanged"):
        yield "nightsight report CANDIDATE --format brief"
        return
    kernel = next((each for each in rows_of(comparison, "kernel").to_dict("records") if _is_longer(each)), None)
    if cause and cause.verdict in ("added", "regressed"):
        yield f"nightsight show CANDIDATE {quote(cause.id)}"
    elif kernel and any(each.kind == "kernel" for each in changed):
        # the beginning of its name: labels depend on the other kernels of a report
        yield f"nightsight show CANDIDATE {quote(printable(base_name(str(kernel['name'])))[:_NAME])}"
    if comparison.verdict == "regressed" and before and after and before != after:
        yield f"nightsight bisect --good {before} --bad {after} PROGRAM"


def _is_longer(row: Mapping[Any, object]) -> bool:
    return row["verdict"] in ("regressed", "added")


def _commit_of(side: Sequence[Measures]) -> str:
    """Return the commit of all runs of a side; "" if there are several, or files differed from it."""
    commits = {run.environment.commit for run in side}
    (commit, *others) = commits or {""}
    return commit if not others and _COMMIT.fullmatch(commit) else ""


# -- text and JSON ----------------------------------------------------------------------------------------------------


def comparison_brief(comparison: Comparison, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the brief as text."""
    return brief_text(_shorter(brief(comparison)), brief_lines, most_bytes)


def comparison_brief_json(comparison: Comparison) -> bytes:
    """Return the brief as JSON on one line."""
    return brief_json(_shorter(brief(comparison)))


def _shorter(each: ComparisonBrief) -> Iterator[ComparisonBrief]:
    """Yield a brief, then shorter and shorter ones; the verdict and the next command stay."""
    yield each
    each = replace(each, is_cut=True)
    while len(each.changes) > 2:
        each = replace(each, changes=each.changes[:-1])
        yield each
    yield (each := replace(each, notes=each.notes[:1], not_comparable=each.not_comparable[:1]))
    yield (each := replace(each, metrics=each.metrics[:1], causes=each.causes[:1], notes=()))
    yield (each := replace(each, changes=each.changes[:1], not_comparable=(), gate=""))
    yield replace(each, sentence=prose(each.sentence, _SHORT), changes=(), metrics=(), commands=each.commands[:1])


def brief_lines(each: ComparisonBrief) -> Iterator[str]:
    """Yield the lines of a brief."""
    yield f"{each.title}: {', '.join(each.facts)}"
    yield f"verdict: {each.verdict}. {each.sentence}"
    if each.belief:
        yield each.belief
    if each.gate:
        yield f"gate: {each.gate}"
    yield from (f"{metric.name}: {metric.text}" for metric in each.metrics)
    yield from (f"not comparable: {text}" for text in each.not_comparable)
    yield from (f"note: {text}" for text in each.notes)
    if each.causes:
        yield ""
        for cause in each.causes:
            yield f"cause {cause.verdict}: {cause.id or cause.rule}: {cause.cause}"
    if each.changes:
        yield ""
        yield "changed most, per step:"
        for place, change in enumerate(each.changes, start=1):
            yield f"{place}. {change.kind} {change.name}: {change.text}"
            yield from (f"   {word}: {text}" for word, text in _about(change) if text)
    if each.commands:
        yield ""
        yield from (f"next: {command}" for command in each.commands)
        if each.candidate:
            yield f"CANDIDATE is the run {each.candidate}"


def _about(change: BriefChange) -> Iterator[tuple[str, str]]:
    yield "place", change.place
    yield "note", change.note
