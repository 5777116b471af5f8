"""Finds what has a name in a report: a cause with its evidence, a table with its definition, a kernel, a range.

Nothing is analyzed: all of it is in the results. Columns keep the names that the options of `nightsight show` take.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.errors import UsageError
from nightsight.model.report import Finding, Report, Result, names_of
from nightsight.render.brief import BriefCause, cause_of_brief, identified, kernel_labels
from nightsight.render.page.places import Places
from nightsight.results import entry_of
from nightsight.results.gpu import CUDA_GPU_KERN_SUM
from nightsight.results.ncu import NCU_KERNELS
from nightsight.results.ranges import NVTX_RANGES, RANGE_KERNELS
from nightsight.results.steps import STEP_TIMES
from nightsight.texts import did_you_mean, printable, some_of

STEPS: Final = "steps"
"""Another name of STEP_TIMES."""
TABLE: Final = "table:"
"""What precedes the name of a table that a cause has, too."""
MOST_NAMES: Final = 8
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


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a result: those that fulfill all conditions. columns: the names to show; top: the most rows to show."""

    result: Result
    columns: tuple[str, ...]
    rows: pd.DataFrame
    top: int

    @property
    def shown(self) -> pd.DataFrame:
        """The rows and columns to show."""
        return self.rows.head(self.top)[list(self.columns)]

    @property
    def more(self) -> int:
        """The number of rows that are not shown."""
        return max(len(self.rows) - self.top, 0)


@dataclass(frozen=True)
class Whole:
    """The answer without a name: the report."""

    report: Report


@dataclass(frozen=True)
class Cause:
    """A cause. is_table: a table has the same name."""

    name: str
    finding: Finding
    brief: BriefCause
    kernels: tuple[str, ...]
    is_table: bool


@dataclass(frozen=True, eq=False)
class Table:
    """A result with its definition. rows: None if it is not available."""

    result: Result
    rows: Rows | None


@dataclass(frozen=True, eq=False)
class Matches:
    """The kernels or ranges that a word means. kind: `kernel` or `range`; labels: as tables name them.

    causes: the ids of the causes that are about them. tables: their rows in all tables that have them.
    """

    kind: str
    names: tuple[str, ...]
    labels: tuple[str, ...]
    causes: tuple[str, ...]
    tables: tuple[Rows, ...]


Answer = Whole | Cause | Table | Matches


def answer(report: Report, name: str, choice: Choice) -> Answer:
    """Return what has a name: a cause, a table, a kernel or a range; without a name, the report.

    UsageError, with similar names, if nothing has it.
    """
    causes, tables, kernels = identified(report), names_of(report.results), Kernels(report)
    table = STEP_TIMES.name if name == STEPS else name.removeprefix(TABLE)
    if choice.slowest and table != STEP_TIMES.name:
        raise UsageError("--slowest is for steps", "Use: nightsight show REPORT steps --slowest 3")
    if not name:
        return Whole(report)
    if name in causes:
        finding = causes[name]
        return Cause(name, finding, cause_of_brief(report, name), finding.kernels[: choice.top], name in tables)
    if table in tables:
        result = report.result(table)
        return Table(result, None if result.table is None else _rows(result, result.table, choice, kernels))
    if names := kernels.named(name):
        _refuse_no_table(report, choice)
        return _kernels(report, names, choice, kernels)
    if paths := _ranges_named(report, name):
        _refuse_no_table(report, choice)
        return _ranges(report, paths, choice, kernels)
    raise _unknown(report, name, kernels)


def _unknown(report: Report, name: str, kernels: "Kernels") -> UsageError:
    causes, labels = identified(report), {kernels.label(full) for full in kernels.names}
    inner = {path.rsplit(_GAP, 1)[-1] for path in _paths(report)}
    similar = did_you_mean(name, [*causes, *names_of(report.results), STEPS, *sorted(labels), *sorted(inner)], most=3)
    listed = f"Causes: {some_of([*causes], MOST_NAMES)}. " if causes else ""
    return UsageError(
        f"{printable(name)} is not a cause, a table, a kernel or a range of this report",
        f"{similar}{listed}All names: nightsight show REPORT",
    )


def _rows(result: Result, rows: pd.DataFrame, choice: Choice, kernels: "Kernels") -> Rows:
    """Return rows of a result that fulfill all conditions."""
    chosen = _chosen(result, rows, choice, kernels)
    return Rows(result, tuple(_columns(result, chosen, choice)), chosen, choice.top)


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
    texts = [name for name in kept if is_text(rows[name])]
    return [*(name for name in kept if name not in texts), *texts] or names


def is_text(column: "pd.Series[Any]") -> bool:
    """Whether a column has texts."""
    return any(isinstance(value, str) for value in column)


def _refuse_unknown(result: Result, name: str, names: Sequence[str]) -> None:
    if name not in names:
        hint = did_you_mean(name, names, most=2)
        raise UsageError(f"{result.name} has no column {printable(name)}", f"{hint}Columns: {', '.join(names)}")


def _chosen(result: Result, rows: pd.DataFrame, choice: Choice, kernels: "Kernels") -> pd.DataFrame:
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


def _fulfills(result: Result, rows: pd.DataFrame, condition: str, kernels: "Kernels") -> "pd.Series[bool]":
    name, sign, wanted = _parts(condition)
    _refuse_unknown(result, name, [str(each) for each in rows.columns])
    column = rows[name]
    if sign == "~":
        texts, part = column.astype("str"), wanted.lower()
        return texts.map(lambda text: part in text.lower() or part in kernels.label(text).lower()).astype(bool)
    if not _NUMBER.fullmatch(wanted) or is_text(column):
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


class Kernels:
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


def _kernels(report: Report, names: Sequence[str], choice: Choice, kernels: Kernels) -> Matches:
    """Return a kernel in all tables that have it; several kernels in the tables of kernels."""
    labels = {kernels.label(name) for name in names}
    parts: list[Rows] = []
    for result in report.results:
        entry = entry_of(result.name)
        columns = [name for name in (entry.kernels if entry else ()) if name in result.rows]
        if columns and (len(labels) == 1 or entry in (CUDA_GPU_KERN_SUM, NCU_KERNELS, RANGE_KERNELS)):
            named = [[kernels.label(str(name)) in labels for name in result.rows[column]] for column in columns]
            parts += _part(result, result.rows[np.any(named, axis=0)], choice, kernels)
    causes = (name for name, each in identified(report).items() if {*each.kernels} & {*names})
    return Matches("kernel", tuple(names), tuple(sorted(labels)), tuple(causes), tuple(parts))


def _ranges(report: Report, paths: Sequence[str], choice: Choice, kernels: Kernels) -> Matches:
    places = Places(report)
    causes = (name for name, each in identified(report).items() if places.path(each) in paths)
    parts = [
        part
        for result in report.results
        if "path" in result.rows
        for part in _part(result, result.rows[result.rows["path"].isin(paths)], choice, kernels)
    ]
    return Matches("range", tuple(paths), tuple(paths), tuple(causes), tuple(parts))


def _asked(choice: Choice) -> set[str]:
    """Return the columns that a choice names."""
    conditions = (_parts(condition) for condition in choice.where)
    return {*choice.columns, *(name for name, _, _ in conditions)}


def _refuse_no_table(report: Report, choice: Choice) -> None:
    """Raise UsageError for a column that no table has."""
    names = dict.fromkeys(str(name) for result in report.results for name in result.rows.columns)
    for name in sorted(_asked(choice) - names.keys()):
        raise UsageError(f"no table of this report has a column {printable(name)}", did_you_mean(name, names, most=2))


def _part(result: Result, rows: pd.DataFrame, choice: Choice, kernels: Kernels) -> Iterator[Rows]:
    """Yield the rows of a result about a kernel or a range; none if it lacks a column of a condition."""
    if len(rows) and _asked(choice) <= set(rows.columns):
        part = _rows(result, rows, choice, kernels)
        if len(part.rows):
            yield part
