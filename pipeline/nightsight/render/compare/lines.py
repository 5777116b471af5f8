"""A comparison in a terminal: one screen, the verdict first and the decision last."""

from collections.abc import Iterator, Sequence
from typing import Final

from nightsight.model.compare import Comparison
from nightsight.render.compare.words import (
    LEAVES,
    NOUNS,
    Names,
    causes,
    differences_of,
    facts,
    gates,
    left_to_say,
    notable,
    rows_of,
    sentence_of,
    tally,
    written,
)
from nightsight.render.lines import aligned, cut, wrapped

_METRICS: Final = 8
_ROWS: Final = 6
_SAID: Final = 3


def comparison_lines(comparison: Comparison, *, width: int = 100) -> list[str]:
    """Return the lines of one screen, each of at most `width` characters."""
    return [_fitting(line, width) for line in _lines(comparison, width)]


def _fitting(line: str, width: int) -> str:
    text = line.lstrip(" ")
    return f"{' ' * (len(line) - len(text))}{cut(text, width - len(line) + len(text))}" if text else ""


def _lines(comparison: Comparison, width: int) -> Iterator[str]:
    names = Names(notable(comparison, comparison.changes))
    yield from wrapped(f"{cut(comparison.workload, 40)}: {comparison.verdict}. {sentence_of(comparison)}", width)
    yield ", ".join(facts(comparison))
    yield from _causes(comparison)
    yield from _gates(comparison, names)
    yield from _changed(comparison, names, width)
    yield from _incomparable(comparison, width)
    yield ""
    for text in (*left_to_say(comparison), *comparison.notes[:_SAID], comparison.noise, comparison.decision.line):
        yield from wrapped(cut(text, 4 * width), width) if text.strip() else ()


def _causes(comparison: Comparison) -> Iterator[str]:
    signs = {"added": "+", "regressed": "+", "removed": "-", "improved": "-"}
    found = causes(comparison)
    for row in found.head(_SAID).to_dict("records"):
        yield f"  {signs[str(row['verdict'])]} cause {row['verdict']}: {row['title'] or row['rule']}"
    yield from _more(len(found) - _SAID, "causes")


def _more(count: int, noun: str) -> Iterator[str]:
    if count > 0:
        yield f"  … {count:,} more {noun}"


def _gates(comparison: Comparison, names: Names) -> Iterator[str]:
    rows = gates(comparison)
    shown = written(rows.head(_METRICS), names, length=40)
    if not shown:
        return
    yield ""
    cells = [(one.name, one.baseline, one.candidate, one.change, one.interval, one.verdict) for one in shown]
    yield from _indented(
        [("metric", "baseline", "candidate", "change", "90 % interval", "verdict"), *cells], right=(1, 2, 3)
    )
    yield from _more(len(rows) - len(shown), "metrics")


def _changed(comparison: Comparison, names: Names, width: int) -> Iterator[str]:
    rows = rows_of(comparison, *LEAVES)
    changed = notable(comparison, rows)
    if rows.empty:
        return
    yield ""
    yield from wrapped(f"kernels, copies and API calls: {tally(rows)}", width)
    shown = changed.head(_ROWS)
    kinds = [NOUNS[kind] for kind in shown["kind"]]
    cells = [
        (one.difference, one.change, one.verdict, kind, one.name)
        for one, kind in zip(written(shown, names, length=max(width - 50, 20)), kinds, strict=True)
    ]
    yield from _indented(cells, right=(0, 1))
    yield from _more(len(changed) - len(shown), "rows")


def _indented(rows: Sequence[Sequence[str]], *, right: Sequence[int]) -> Iterator[str]:
    yield from (f"  {line}" for line in aligned(rows, right=right))


def _incomparable(comparison: Comparison, width: int) -> Iterator[str]:
    found = differences_of(comparison)
    if found:
        yield ""
        yield "not comparable:"
    for what, before, after, follows in found[:_SAID]:
        yield from (f"  {line}" for line in wrapped(f"{what}: {before} → {after} ({follows})", width - 2))
    yield from _more(len(found) - _SAID, "differences")
