"""Answers about one thing in a report: a cause with its evidence, a table with its definition, a kernel, a range.

Nothing is analyzed: all of it is in the results. The lines are printable, and columns keep the names that the options
of `nightsight show` take.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.errors import UsageError
from nightsight.model.report import Report, Result, names_of
from nightsight.render.brief import brief, brief_lines, cause_lines, cause_of_brief, identified, kernel_labels
from nightsight.render.lines import align, cut
from nightsight.results import entry_of
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.ncu import NCU_KERNELS
from nightsight.results.ranges import NVTX_RANGES, RANGE_KERNELS
from nightsight.results.steps import STEP_TIMES
from nightsight.texts import did_you_mean, printable, some_of
from nightsight.units import ABSENT, counted, format_value, split

STEPS: Final = "steps"
"""Another name of STEP_TIMES."""
# a cause can have the name of a table
_TABLE: Final = "table:"
_CELL: Final = 90
_MOST_NAMES: Final = 8
_CONDITION: Final = re.compile(r"(\w+)\s*(<=|>=|!=|=|<|>|~)\s*(.*)", re.DOTALL)
_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_GAP: Final = " / "


@dataclass(frozen=True)
class Choice:
    """Which rows and columns of tables to show. top: the most rows. columns: only these, in this order.

    where: conditions that rows fulfill, such as `total_ns>1e6` or `name~gemm`. slowest: the slowest steps, 0 for all.
    """

    top: int = 10
    columns: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    slowest: int = 0


def shown(report: Report, name: str, choice: Choice) -> Iterator[str]:
    """Yield lines about what has a name: a cause, a table, a kernel or a range; without a name, about the report.

    UsageError, with similar names, if nothing has it.
    """
    causes, tables, kernels = identified(report), names_of(report.results), _Kernels(report)
    table = STEP_TIMES.name if name == STEPS else name.removeprefix(_TABLE)
    if choice.slowest and table != STEP_TIMES.name:
        raise UsageError("--slowest is for steps", "Use: nightsight show REPORT steps --slowest 3")
    if not name:
        yield from _overview(report)
    elif name in causes:
        yield from _cause(report, name, choice)
    elif table in tables:
        yield from _table(report.result(table), choice, kernels)
    elif names := kernels.named(name):
        _refuse_no_table(report, choice)
        yield from _kernel(report, names, choice, kernels)
    elif paths := _ranges_named(report, name):
        _refuse_no_table(report, choice)
        yield from _ranges(report, paths, choice, kernels)
    else:
        raise _unknown(report, name, kernels)


def _unknown(report: Report, name: str, kernels: "_Kernels") -> UsageError:
    causes, labels = identified(report), {kernels.label(full) for full in kernels.names}
    inner = {path.rsplit(_GAP, 1)[-1] for path in _paths(report)}
    similar = did_you_mean(name, [*causes, *names_of(report.results), STEPS, *sorted(labels), *sorted(inner)], most=3)
    listed = f"Causes: {some_of([*causes], _MOST_NAMES)}. " if causes else ""
    return UsageError(
        f"{printable(name)} is not a cause, a table, a kernel or a range of this report",
        f"{similar}{listed}All names: nightsight show REPORT",
    )


def _overview(report: Report) -> Iterator[str]:
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


def _cause(report: Report, name: str, choice: Choice) -> Iterator[str]:
    finding, cause = identified(report)[name], cause_of_brief(report, name)
    gain = ", ".join(filter(None, (cause.gain, cause.step)))
    yield f"{name}{gain and f': {gain}'}"
    yield from (f"  {line}" for line in cause_lines(cause))
    yield ""
    if finding.detail:
        yield f"why: {printable(finding.detail)}"
    if finding.remedy and printable(finding.remedy) != cause.fix:
        yield f"how: {printable(finding.remedy)}"
    yield from (f"evidence: {printable(text)}" for text in finding.evidence)
    yield from (f"kernel: {printable(kernel)}" for kernel in finding.kernels[: choice.top])
    if finding.source:
        yield f"more: nightsight show REPORT {printable(finding.source)}"
    if name in names_of(report.results):
        yield f"the table of this name: nightsight show REPORT {_TABLE}{name}"


def _table(result: Result, choice: Choice, kernels: "_Kernels") -> Iterator[str]:
    """Yield a result with its definition."""
    yield f"{printable(result.name)}: {printable(result.title)}"
    yield printable(result.help)
    if result.table is None:
        yield f"not available: {printable(result.unavailable)}"
        return
    rows = _chosen(result, result.table, choice, kernels)
    if entry := entry_of(result.name):
        columns = _columns(result, rows, choice)
        yield "columns:"
        yield from (f"  {each.name}: {each.meaning}" for each in entry.columns if each.name in columns)
    yield ""
    yield from _rows(result, rows, choice, kernels)
    yield from (printable(note) for note in result.notes)


def _rows(result: Result, rows: pd.DataFrame, choice: Choice, kernels: "_Kernels") -> Iterator[str]:
    """Yield the first of the rows as aligned columns."""
    if not len(rows):
        yield "0 rows"
        return
    columns, top = _columns(result, rows, choice), rows.head(choice.top)
    cells = [[_cell(value, name, kernels) for value in top[name].tolist()] for name in columns]
    numbers = [place for place, name in enumerate(columns) if not _is_text(top[name])]
    yield from align([columns, *zip(*cells, strict=True)], right=numbers)
    if len(rows) > len(top):
        yield f"… {counted(len(rows) - len(top), 'more row')}: --top {len(rows)}"


def _cell(value: Any, name: str, kernels: "_Kernels") -> str:  # noqa: ANN401 (a cell holds any type)
    if pd.isna(value) or value == "":
        return ABSENT
    if isinstance(value, str):
        return cut(kernels.label(value), _CELL)
    return format_value(float(value), name) if split(name)[1] else f"{value:,.4g}" if value % 1 else f"{int(value)}"


def _columns(result: Result, rows: pd.DataFrame, choice: Choice) -> list[str]:
    """Return the columns to show: the chosen ones, or those that say something, texts last."""
    names = [str(name) for name in rows.columns]
    if choice.columns:
        for name in choice.columns:
            _refuse_unknown(result, name, names)
        return list(dict.fromkeys(choice.columns))
    entry = entry_of(result.name)
    hidden = set(entry.minor) if entry else set()
    if entry:
        hidden |= {name for name in entry.constant if name in rows and rows[name].nunique(dropna=False) < 2}
    kept = [name for name in names if name not in hidden and rows[name].notna().any()]
    texts = [name for name in kept if _is_text(rows[name])]
    return [*(name for name in kept if name not in texts), *texts] or names


def _is_text(column: "pd.Series[Any]") -> bool:
    return any(isinstance(value, str) for value in column)


def _refuse_unknown(result: Result, name: str, names: Sequence[str]) -> None:
    if name not in names:
        hint = did_you_mean(name, names, most=2)
        raise UsageError(f"{result.name} has no column {printable(name)}", f"{hint}Columns: {', '.join(names)}")


def _chosen(result: Result, rows: pd.DataFrame, choice: Choice, kernels: "_Kernels") -> pd.DataFrame:
    """Return the rows that fulfill all conditions, of steps the slowest."""
    for condition in choice.where:
        rows = rows[_fulfills(result, rows, condition, kernels)]
    if choice.slowest and {"slowest_ns"} <= set(rows):
        rows = rows.sort_values("slowest_ns", ascending=False, kind="stable").head(choice.slowest)
    return rows


def _parts(condition: str) -> tuple[str, str, str]:
    """Return the column, the sign and the value of a condition."""
    match = _CONDITION.fullmatch(condition.strip())
    if match is None:
        raise UsageError(f"{printable(condition)} is not a condition", "Use: total_ns>1e6, device=0 or name~gemm")
    return match[1], match[2], match[3].strip()


def _fulfills(result: Result, rows: pd.DataFrame, condition: str, kernels: "_Kernels") -> "pd.Series[bool]":
    name, sign, wanted = _parts(condition)
    _refuse_unknown(result, name, [str(each) for each in rows.columns])
    column = rows[name]
    if sign == "~":
        texts, part = column.astype("str"), wanted.lower()
        return texts.map(lambda text: part in text.lower() or part in kernels.label(text).lower()).astype(bool)
    if not _NUMBER.fullmatch(wanted) or _is_text(column):
        if sign not in ("=", "!="):
            raise UsageError(f"{printable(condition)} compares text", f"Use {name}=TEXT, {name}!=TEXT or {name}~TEXT")
        return (column.astype("str") == wanted) == (sign == "=")
    values, number = pd.to_numeric(column, errors="coerce").astype("float64"), float(wanted)
    compared = {
        "=": values == number,
        "!=": values != number,
        "<": values < number,
        "<=": values <= number,
        ">": values > number,
        ">=": values >= number,
    }
    return compared[sign]


# -- kernels and ranges -----------------------------------------------------------------------------------------------


class _Kernels:
    """The kernels of a report, and their labels."""

    def __init__(self, report: Report) -> None:
        self._labels = kernel_labels(report)
        self.names = [*self._labels]

    def label(self, text: str) -> str:
        """Return the label of a kernel; any other text is returned as it is."""
        return self._labels.get(text, text)

    def named(self, word: str) -> list[str]:
        """Return the kernels that a word means."""
        return _matching(self.names, word, self._labels)


def _paths(report: Report) -> list[str]:
    tables = (report.rows(entry) for entry in (NVTX_RANGES, RANGE_KERNELS))
    return list(
        dict.fromkeys(path for rows in tables if "path" in rows for path in rows["path"].dropna().astype("str"))
    )


def _matching(names: Sequence[str], word: str, short: dict[str, str]) -> list[str]:
    """Return the names that a word means: in full or short, or else those that contain it."""
    exact = [name for name in names if word in (name, short[name])]
    lower = word.lower()
    return exact or [name for name in names if lower in name.lower() or lower in short[name].lower()]


def _ranges_named(report: Report, word: str) -> list[str]:
    paths = _paths(report)
    return _matching(paths, word, {path: path.rsplit(_GAP, 1)[-1] for path in paths})


def _kernel(report: Report, names: Sequence[str], choice: Choice, kernels: _Kernels) -> Iterator[str]:
    """Yield a kernel in all tables that have it; several kernels in the tables of kernels."""
    labels = {kernels.label(name) for name in names}
    yield f"kernel{'s' * (len(labels) > 1)}: {some_of([printable(label) for label in sorted(labels)], _MOST_NAMES)}"
    if len(labels) == 1:
        yield f"name: {printable(names[0])}"
    yield from _of_causes(name for name, each in identified(report).items() if {*each.kernels} & {*names})
    for result in report.results:
        entry = entry_of(result.name)
        columns = [name for name in (entry.kernels if entry else ()) if name in result.rows]
        if columns and (len(labels) == 1 or entry in (CUDA_GPU_KERN_SUM, NCU_KERNELS, RANGE_KERNELS)):
            named = [[kernels.label(str(name)) in labels for name in result.rows[column]] for column in columns]
            yield from _part(result, result.rows[np.any(named, axis=0)], choice, kernels)


def _ranges(report: Report, paths: Sequence[str], choice: Choice, kernels: _Kernels) -> Iterator[str]:
    yield f"range{'s' * (len(paths) > 1)}: {some_of([printable(path) for path in paths], _MOST_NAMES, '; ')}"
    yield from _of_causes(name for name, each in identified(report).items() if each.path in paths)
    for result in report.results:
        if "path" in result.rows:
            yield from _part(result, result.rows[result.rows["path"].isin(paths)], choice, kernels)


def _of_causes(names: Iterator[str]) -> Iterator[str]:
    if found := list(names):
        yield f"causes: {', '.join(found)}"


def _asked(choice: Choice) -> set[str]:
    """Return the columns that a choice names."""
    conditions = (_parts(condition) for condition in choice.where)
    return {*choice.columns, *(name for name, _, _ in conditions)}


def _refuse_no_table(report: Report, choice: Choice) -> None:
    """Raise UsageError for a column that no table has."""
    names = dict.fromkeys(str(name) for result in report.results for name in result.rows.columns)
    for name in sorted(_asked(choice) - names.keys()):
        raise UsageError(f"no table of this report has a column {printable(name)}", did_you_mean(name, names, most=2))


def _part(result: Result, rows: pd.DataFrame, choice: Choice, kernels: "_Kernels") -> Iterator[str]:
    """Yield the rows of a result about a kernel or a range; none if it lacks a column of a condition."""
    if not len(rows) or not _asked(choice) <= set(rows.columns):
        return
    rows = _chosen(result, rows, choice, kernels)
    if len(rows):
        yield ""
        yield f"{printable(result.name)}: {printable(result.title)}"
        yield from _rows(result, rows, choice, kernels)
