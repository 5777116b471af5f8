"""What a table looks like to a reader: short names, one unit per column, and which rows are shown.

Everything here is finished text and finished numbers; templates only place it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from pipeline.units import heading, scale_for, split

ROWS: Final = 50
NAME_LENGTH: Final = 90
_TEXT_LENGTH: Final = 120
NO_NAME: Final = "(no name)"

Floats = npt.NDArray[np.float64]

# controls, lone surrogates, and the marks that turn the direction of the text around them
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_CAST: Final = re.compile(r"\((?:bool|char|short|int|long|unsigned(?: \w+)*|long long)\)(?=-?\d)")
_PARAMETERS: Final = re.compile(r"\([^()]*\)")
_LAMBDA: Final = re.compile(r"(?:::)?\[lambda[^\]]*\]|(?:::)?\{lambda[^}]*\}(?:#\d+|::)*")
_QUALIFIERS: Final = re.compile(r"<unnamed>::|\(anonymous namespace\)::|\b[A-Za-z_]\w*::")
_OPERATOR: Final = re.compile(r"::operator\b\s*(?:const\b)?")
_LEFTOVERS: Final = re.compile(r"\bvoid\s+(?=\w)|\s+(?=[,>])|(?<=[<\s])::")
_NESTING: Final = (9, 3, 2, 1)  # levels of template arguments to try to keep


@dataclass(frozen=True)
class Column:
    """A heading, with the unit that all its cells share."""

    title: str
    unit: str = ""
    is_number: bool = True


@dataclass(frozen=True)
class Cell:
    """One value as text; `share` (0 to 100) draws a bar under it, `full` is the name that `text` shortens."""

    text: str
    full: str = ""
    share: float | None = None
    href: str = ""


@dataclass(frozen=True)
class Row:
    """A row: what it is about, how deep it is nested, and its values."""

    name: Cell
    cells: tuple[Cell, ...]
    level: int = 0


@dataclass(frozen=True)
class TableView:
    """A table as it is printed; `more` says what was left out."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    more: str = ""


def name_cell(name: str, shorten: Callable[[str], str]) -> Cell:
    """Return a cell with the short form of `name`, and the full one where that differs."""
    short, full = shorten(name), printable(name)
    return Cell(short, full if full != short else "")


def printable(text: str) -> str:
    """Make text of any origin safe to lay out: one line, no controls, no change of direction, not empty."""
    text = _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", re.sub(r"[\t\n\r]+", " ", text)).strip()
    return text or NO_NAME


def short_name(name: str, length: int = NAME_LENGTH) -> str:
    """Shorten a C++ kernel name: no return type, namespaces, parameter list, and fewer inner template arguments."""
    plain = printable(name)
    text = _CAST.sub("", plain).removeprefix("void ")
    text = _until_stable(_PARAMETERS, text.replace("(anonymous namespace)::", ""))
    for pattern in (_LAMBDA, _OPERATOR, _QUALIFIERS, _LEFTOVERS):
        text = pattern.sub("", text)
    text = re.sub(r"\s+", " ", text).strip()
    if not re.search(r"\w", text):
        text = plain
    shorter = [_without_inner_arguments(text, nesting) for nesting in _NESTING]
    return middle_cut(next((form for form in shorter if len(form) <= length), shorter[-1]), length)


def counted(number: float, noun: str) -> str:
    """Write a number of things: `1 kernel`, `1,224 kernels`."""
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


def middle_cut(text: str, length: int) -> str:
    """Cut the middle out of a text that is longer than `length`."""
    if len(text) <= length:
        return text
    tail = (length - 1) // 2
    return f"{text[: length - 1 - tail]}…{text[len(text) - tail :]}"


def short_text(text: str) -> str:
    """Return printable text, of a length that fits a table."""
    return middle_cut(printable(text), _TEXT_LENGTH)


def texts_of(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return name and value pairs fit to print, without the empty ones."""
    return tuple((printable(name), printable(value)) for name, value in values.items() if value)


def _unchanged(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


@dataclass(frozen=True)
class Layout:
    """How one kind of table is shown.

    noun: what its rows are, in the plural. header: the heading of the first column, which shows column `name`.
    bars: columns with a bar in each cell. most: the number of rows shown. `prepare` rearranges the frame before.
    """

    noun: str
    header: str = "Name"
    name: str = "name"
    bars: tuple[str, ...] = ()
    most: int = ROWS
    prepare: Callable[[pd.DataFrame], pd.DataFrame] = _unchanged
    shorten: Callable[[str], str] = short_text


def table_view(frame: pd.DataFrame, layout: Layout, *, caption: str) -> TableView:
    """Show the first rows of `frame`; the column `level`, if there is one, indents them."""
    frame = layout.prepare(frame)
    shown = frame.head(layout.most)
    values = [name for name in frame.columns if name not in (layout.name, "level")]
    columns = [_column(shown[name], largest=_largest(frame[name]) if name in layout.bars else 0.0) for name in values]
    names = [name_cell(name, layout.shorten) for name in shown[layout.name].astype("str")]
    levels = shown["level"].tolist() if "level" in shown else [0] * len(shown)
    cells = list(zip(*(cells for _, cells in columns), strict=True)) if columns else [()] * len(shown)
    rows = tuple(Row(name, row, int(level)) for name, row, level in zip(names, cells, levels, strict=True))
    headers = (Column(layout.header, is_number=False), *(column for column, _ in columns))
    return TableView(caption, headers, rows, _left_out(len(frame), layout))


def numbers(column: "pd.Series[Any]") -> Floats:
    """Return a column as floats, NaN for what is not there."""
    return pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)


def is_numeric(column: "pd.Series[Any]") -> bool:
    """Tell numbers from text; a column with a unit is numbers even if all are missing."""
    return bool(split(str(column.name))[1]) or pd.api.types.is_numeric_dtype(column.dtype)


def _until_stable(pattern: re.Pattern[str], text: str) -> str:
    """Remove what `pattern` finds, innermost first, until nothing is left to find."""
    count = 1
    while count:
        text, count = pattern.subn("", text)
    return text


def _without_inner_arguments(text: str, nesting: int) -> str:
    """Drop template arguments below `nesting` levels; a name whose brackets do not match stays as it is."""
    kept: list[str] = []
    depth = 0
    for character in text:
        depth += character == "<"
        if depth <= nesting:
            kept.append(character)
        depth -= character == ">"
        if depth < 0:
            return text
    return text if depth else "".join(kept)


def _column(column: "pd.Series[Any]", *, largest: float) -> tuple[Column, list[Cell]]:
    """Format a column; bars are drawn against `largest` unless it is 0."""
    title, unit = heading(str(column.name)), split(str(column.name))[1]
    if not is_numeric(column):
        texts = column.astype(object).where(column.notna(), "")
        return Column(title, is_number=False), [Cell(short_text(str(text)) if text else "–") for text in texts]
    values = numbers(column)
    scale = scale_for(unit, values)
    shares = np.nan_to_num(100.0 * values / largest).clip(0, 100) if largest else None
    cells = [
        Cell(scale.format(value), share=None if shares is None else round(float(shares[row]), 2))
        for row, value in enumerate(values)
    ]
    return Column(title, scale.symbol), cells


def _largest(column: "pd.Series[Any]") -> float:
    """Return what a full bar stands for: all of it for a share, else the column's largest value."""
    if str(column.name).endswith("_pct"):
        return 100.0
    values = numbers(column)
    return float(np.nanmax(values)) if np.isfinite(values).any() else 0.0


def _left_out(count: int, layout: Layout) -> str:
    if count <= layout.most:
        return ""
    return (
        f"The first {layout.most} of {count:,} {layout.noun}. The JSON and CSV forms of this report have all of them."
    )
