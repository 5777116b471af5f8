"""A comparison in a terminal: one screen, from the verdict to the decision."""

from collections.abc import Iterator, Sequence
from typing import Final

from nightsight.model.compare import Comparison
from nightsight.render.compare.words import (
    LEAVES,
    NOUNS,
    MeasureNames,
    belief,
    causes,
    change_texts,
    differences_of,
    facts,
    gates,
    notable,
    rows_of,
    sentence_of,
    tally,
    unmentioned_limits,
)
from nightsight.render.lines import align, cut, wrap

_MAX_METRICS: Final = 8
_MAX_ROWS: Final = 6
_MAX_ITEMS: Final = 3


def comparison_lines(comparison: Comparison, *, width: int = 100) -> list[str]:
    """Return the lines of one screen, each of at most `width` characters."""
    lines = []
    for line in _lines(comparison, width):
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        lines.append(f"{' ' * indent}{cut(text, width - indent)}" if text else "")
    return lines


def _lines(comparison: Comparison, width: int) -> Iterator[str]:
    names = MeasureNames(notable(comparison, comparison.changes))
    yield from wrap(f"{cut(comparison.workload, 40)}: {comparison.verdict}. {sentence_of(comparison)}", width)
    yield from wrap(belief(comparison), width) if comparison.baseline else ()
    yield ", ".join(facts(comparison))
    yield from _cause_texts(comparison)
    yield from _gates(comparison, names)
    yield from _changes(comparison, names, width)
    yield from _differences(comparison, width)
    yield ""
    notes = (*comparison.notes[:_MAX_ITEMS], comparison.noise)
    for text in (*unmentioned_limits(comparison), *notes, comparison.decision.line):
        yield from wrap(cut(text, 4 * width), width) if text.strip() else ()


def _cause_texts(comparison: Comparison) -> Iterator[str]:
    signs = {"added": "+", "regressed": "+", "removed": "-", "improved": "-"}
    rows = causes(comparison)
    for row in rows.head(_MAX_ITEMS).to_dict("records"):
        yield f"  {signs[str(row['verdict'])]} cause {row['verdict']}: {row['title'] or row['rule']}"
    yield from _more(len(rows) - _MAX_ITEMS, "causes")


def _more(count: int, noun: str) -> Iterator[str]:
    if count > 0:
        yield f"  … {count:,} more {noun}"


def _gates(comparison: Comparison, names: MeasureNames) -> Iterator[str]:
    rows = gates(comparison)
    texts = change_texts(rows.head(_MAX_METRICS), names, length=40)
    if not texts:
        return
    yield ""
    heading = ("metric", "baseline", "candidate", "change", "90 % interval", "verdict")
    cells = [(text.name, text.baseline, text.candidate, text.change, text.interval, text.verdict) for text in texts]
    yield from _indent([heading, *cells], right=(1, 2, 3))
    yield from _more(len(rows) - len(texts), "metrics")


def _changes(comparison: Comparison, names: MeasureNames, width: int) -> Iterator[str]:
    rows = rows_of(comparison, *LEAVES)
    if rows.empty:
        return
    yield ""
    yield from wrap(f"kernels, copies and API calls: {tally(rows)}", width)
    changed = notable(comparison, rows)
    largest = changed.head(_MAX_ROWS)
    texts = change_texts(largest, names, length=max(width - 50, 20))
    cells = [
        (text.difference, text.change, text.verdict, NOUNS[kind], text.name)
        for text, kind in zip(texts, largest["kind"], strict=True)
    ]
    yield from _indent(cells, right=(0, 1))
    yield from _more(len(changed) - len(largest), "rows")


def _indent(rows: Sequence[Sequence[str]], *, right: Sequence[int]) -> Iterator[str]:
    yield from (f"  {line}" for line in align(rows, right=right))


def _differences(comparison: Comparison, width: int) -> Iterator[str]:
    differences = differences_of(comparison)
    if differences:
        yield ""
        yield "not comparable:"
    for fact, baseline, candidate, consequence in differences[:_MAX_ITEMS]:
        yield from (f"  {line}" for line in wrap(f"{fact}: {baseline} → {candidate} ({consequence})", width - 2))
    yield from _more(len(differences) - _MAX_ITEMS, "differences")
