"""What `nightsight show` prints about one thing of a report. All lines are printable."""

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from nightsight.model.report import Report
from nightsight.render.brief import brief, brief_lines, cause_lines, identified
from nightsight.render.lines import align, cut
from nightsight.render.show.answers import (
    MOST_NAMES,
    TABLE,
    Cause,
    Choice,
    Kernels,
    Matches,
    Rows,
    Table,
    Whole,
    answer,
    is_text,
)
from nightsight.results import entry_of
from nightsight.texts import printable, some_of
from nightsight.units import ABSENT, counted, format_value, split

_CELL: Final = 90


def shown(report: Report, name: str, choice: Choice) -> Iterator[str]:
    """Yield lines about what has a name, or about the report; see `answer`."""
    found, kernels = answer(report, name, choice), Kernels(report)
    match found:
        case Whole():
            yield from _whole(report)
        case Cause():
            yield from _cause(found)
        case Table():
            yield from _table(found, kernels)
        case Matches():
            yield from _matches(found, kernels)


def _whole(report: Report) -> Iterator[str]:
    yield from brief_lines(brief(report))
    yield ""
    if causes := identified(report):
        yield f"causes: {', '.join(causes)}"
    yield "tables:"
    rows = [
        (f"  {printable(result.name)}", f"{len(result.rows):,} rows", printable(result.title))
        for result in report.results
        if len(result.rows)
    ]
    yield from align(rows, right=(1,)) if rows else ()
    missing = [printable(result.name) for result in report.results if result.table is None]
    if missing:
        yield f"not available: {', '.join(missing)}"


def _cause(found: Cause) -> Iterator[str]:
    name, finding, cause = found.name, found.finding, found.brief
    gain = ", ".join(filter(None, (cause.gain, cause.step)))
    yield f"{name}{gain and f': {gain}'}"
    yield from (f"  {line}" for line in cause_lines(cause))
    yield ""
    if finding.detail:
        yield f"why: {printable(finding.detail)}"
    if finding.remedy and printable(finding.remedy) != cause.fix:
        yield f"how: {printable(finding.remedy)}"
    yield from (f"evidence: {printable(text)}" for text in finding.evidence)
    yield from (f"kernel: {printable(kernel)}" for kernel in found.kernels)
    if finding.source:
        yield f"more: nightsight show REPORT {printable(finding.source)}"
    if found.is_table:
        yield f"the table of this name: nightsight show REPORT {TABLE}{name}"


def _table(found: Table, kernels: Kernels) -> Iterator[str]:
    """Yield a result with its definition."""
    result, rows = found.result, found.rows
    yield f"{printable(result.name)}: {printable(result.title)}"
    yield printable(result.help)
    if rows is None:
        yield f"not available: {printable(result.unavailable)}"
        return
    if entry := entry_of(result.name):
        yield "columns:"
        yield from (f"  {each.name}: {each.meaning}" for each in entry.columns if each.name in rows.columns)
    yield ""
    yield from _rows(rows, kernels)
    yield from (printable(note) for note in result.notes)


def _rows(rows: Rows, kernels: Kernels) -> Iterator[str]:
    """Yield the first of the rows as aligned columns."""
    if not len(rows.rows):
        yield "0 rows"
        return
    top = rows.shown
    cells = [[_cell(value, name, kernels) for value in top[name].tolist()] for name in rows.columns]
    numbers = [place for place, name in enumerate(rows.columns) if not is_text(top[name])]
    yield from align([rows.columns, *zip(*cells, strict=True)], right=numbers)
    if rows.more:
        yield f"… {counted(rows.more, 'more row')}: --top {len(rows.rows)}"


def _cell(value: Any, name: str, kernels: Kernels) -> str:  # noqa: ANN401 (a cell holds any type)
    if pd.isna(value) or value == "":
        return ABSENT
    if isinstance(value, str):
        return cut(kernels.label(value), _CELL)
    return format_value(float(value), name) if split(name)[1] else f"{value:,.4g}" if value % 1 else f"{int(value)}"


def _matches(found: Matches, kernels: Kernels) -> Iterator[str]:
    """Yield a kernel or a range, or several, in all tables that have it."""
    labels = [printable(label) for label in found.labels]
    separator = ", " if found.kind == "kernel" else "; "
    yield f"{found.kind}{'s' * (len(labels) > 1)}: {some_of(labels, MOST_NAMES, separator)}"
    if found.kind == "kernel" and len(labels) == 1:
        yield f"name: {printable(found.names[0])}"
    if found.causes:
        yield f"causes: {', '.join(found.causes)}"
    for part in found.tables:
        yield ""
        yield f"{printable(part.result.name)}: {printable(part.result.title)}"
        yield from _rows(part, kernels)
