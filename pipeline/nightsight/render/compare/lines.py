"""A comparison in a terminal: one screen, the verdict first and the decision last."""

from collections.abc import Iterator, Sequence
from typing import Final

from nightsight.model.compare import Comparison
from nightsight.render.compare.words import (
    LEAVES,
    NOUNS,
    Names,
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
    yield from wrap(f"{cut(comparison.workload, 40)}: {comparison.verdict}. {sentence_of(comparison)}", width)
    yield ", ".join(facts(comparison))
    yield from _causes(comparison)
    yield from _gates(comparison, names)
    yield from _change_lines(comparison, names, width)
    yield from _incomparable(comparison, width)
    yield ""
    for text in (
        *unmentioned_limits(comparison),
        *comparison.notes[:_SAID],
        comparison.noise,
        comparison.decision.line,
    ):
        yield from wrap(cut(text, 4 * width), width) if text.strip() else ()


def _causes(comparison: Comparison) -> Iterator[str]:
    signs = {"added": "+", "regressed": "+", "removed": "-", "improved": "-"}
    changed = causes(comparison)
    for row in changed.head(_SAID).to_dict("records"):
        yield f"  {signs[str(row['verdict'])]} cause {row['verdict']}: {row['title'] or row['rule']}"
    yield from _more(len(changed) - _SAID, "causes")


def _more(count: int, noun: str) -> Iterator[str]:
    if count > 0:
        yield f"  … {count:,} more {noun}"


def _gates(comparison: Comparison, names: Names) -> Iterator[str]:
    rows = gates(comparison)
    texts = change_texts(rows.head(_METRICS), names, length=40)
    if not texts:
        return
    yield ""
    cells = [(one.name, one.baseline, one.candidate, one.change, one.interval, one.verdict) for one in texts]
    yield from _indent(
        [("metric", "baseline", "candidate", "change", "90 % interval", "verdict"), *cells], right=(1, 2, 3)
    )
    yield from _more(len(rows) - len(texts), "metrics")


def _change_lines(comparison: Comparison, names: Names, width: int) -> Iterator[str]:
    rows = rows_of(comparison, *LEAVES)
    changed = notable(comparison, rows)
    if rows.empty:
        return
    yield ""
    yield from wrap(f"kernels, copies and API calls: {tally(rows)}", width)
    largest = changed.head(_ROWS)
    kinds = [NOUNS[kind] for kind in largest["kind"]]
    cells = [
        (one.difference, one.change, one.verdict, kind, one.name)
        for one, kind in zip(change_texts(largest, names, length=max(width - 50, 20)), kinds, strict=True)
    ]
    yield from _indent(cells, right=(0, 1))
    yield from _more(len(changed) - len(largest), "rows")


def _indent(rows: Sequence[Sequence[str]], *, right: Sequence[int]) -> Iterator[str]:
    yield from (f"  {line}" for line in align(rows, right=right))


def _incomparable(comparison: Comparison, width: int) -> Iterator[str]:
    differences = differences_of(comparison)
    if differences:
        yield ""
        yield "not comparable:"
    for what, before, after, follows in differences[:_SAID]:
        yield from (f"  {line}" for line in wrap(f"{what}: {before} → {after} ({follows})", width - 2))
    yield from _more(len(differences) - _SAID, "differences")
