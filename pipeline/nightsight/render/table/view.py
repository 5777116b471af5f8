"""Tables ready to print: shortened names, one unit per column, and the rows to print.

All texts and numbers are final; templates only arrange them.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.kernel_labels import KernelLabels
from nightsight.intervals import Floats
from nightsight.results.entry import Jump, Names
from nightsight.texts import excerpt, printable
from nightsight.units import ABSENT, Scale, format_cell, format_value, heading, scale_for, split

ROWS: Final = 50
MOST_ROWS: Final = 5_000
"""The maximum number of rows of a table in a page: the first few are printed, the others are in a compressed block."""
_TEXT_LENGTH: Final = 120


@dataclass(frozen=True)
class Heading:
    """A column heading, with the unit of all its cells.

    name: the column's name with its unit as suffix, for exports. scale: None for text. largest: the value of a full
    bar, 0 for no bars. is_minor: scripts hide the column until the reader asks for it.
    """

    title: str
    unit: str = ""
    is_number: bool = True
    name: str = ""
    scale: Scale | None = None
    largest: float = 0.0
    is_minor: bool = False


@dataclass(frozen=True)
class Cell:
    """One value as text; `share` (0 to 100) draws a bar under it; `full` is the full name if `text` is shortened."""

    text: str
    full: str = ""
    share: float | None = None
    href: str = ""


@dataclass(frozen=True)
class Row:
    """A row: its name, its values, and its nesting level."""

    name: Cell
    cells: tuple[Cell, ...]
    level: int = 0


@dataclass(frozen=True)
class TableView:
    """A table as it is printed; `more` is a note on omitted rows; a folded table opens on request.

    name: identifies the table in the page and in downloaded files. timeline: the counterpart of its rows in the
    timeline. names: the kind of its names. has_details: the full texts of the first column add to the short ones
    instead of repeating them. all_rows: also those that are not printed, or None. groups: groupings of these rows.
    """

    caption: str
    columns: tuple[Heading, ...]
    rows: tuple[Row, ...]
    more: str = ""
    is_folded: bool = False
    name: str = ""
    timeline: Jump = ""
    names: Names = ""
    has_details: bool = False
    all_rows: "AllRows | None" = field(default=None, compare=False, repr=False)
    groups: Mapping[str, "AllRows"] = field(default_factory=dict, compare=False, repr=False, hash=False)

    def grouped(self, frames: Mapping[str, pd.DataFrame]) -> "TableView":
        """Return this table with further groupings of its rows; names that are not in the table are names of groups."""
        if self.all_rows is None:
            return self
        layout = self.all_rows.layout
        kernels = set(self.all_rows.frame[layout.name].astype("str"))
        in_groups = replace(
            layout,
            noun="rows",
            shorten=lambda name: (layout.shorten if name in kernels else short_text)(name),
        )
        groups = {by: AllRows(frame.head(MOST_ROWS), len(frame), in_groups) for by, frame in frames.items()}
        return replace(self, groups=groups)


def share_of(time: float, whole: float) -> str:
    """Format a time in percent of another."""
    return format_value(100.0 * time / whole, "share_pct")


def short_text(text: str) -> str:
    """Return printable text, cut to a length that fits a table."""
    return excerpt(text, _TEXT_LENGTH)


def texts_of(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return printable (name, value) pairs, without empty values."""
    return tuple((printable(name), printable(value)) for name, value in values.items() if value)


@dataclass(frozen=True)
class Layout:
    """How to print one kind of table.

    noun: its rows, in the plural. header: the heading of the first column, which shows column `name`. full: the column
    with more about each name; "" for the full name itself. bars: columns with a bar in each cell. minor: columns that
    are shown on request, for tables that are too wide. max_rows: the number of printed rows. prepare: rearranges the
    frame first. is_folded: the table opens on request, because a chart shows the same. timeline, names: see TableView.
    shorteners: of names in other columns. numbered: the column whose texts start with a replay number. kernels: the
    columns with kernel names, and the length limit of each (`labeled`). same_unit: columns in one unit, for
    comparison. titles: headings of columns that differ from their names.
    """

    noun: str
    header: str = "Name"
    name: str = "name"
    full: str = ""
    bars: tuple[str, ...] = ()
    minor: tuple[str, ...] = ()
    max_rows: int = ROWS
    prepare: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame
    shorten: Callable[[str], str] = short_text
    is_folded: bool = False
    timeline: Jump = ""
    names: Names = ""
    shorteners: Mapping[str, Callable[[str], str]] = field(default_factory=dict, hash=False)
    numbered: str = ""
    kernels: Mapping[str, int] = field(default_factory=dict, hash=False)
    same_unit: tuple[str, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict, hash=False)

    def labeled(self, labels: KernelLabels) -> "Layout":
        """Return this layout with kernel names shortened to the page's unique labels."""
        of_kernels = {name: partial(labels.short, length=length) for name, length in self.kernels.items()}
        shorten = of_kernels.pop(self.name, self.shorten)
        return replace(self, shorten=shorten, shorteners={**self.shorteners, **of_kernels})


@dataclass(frozen=True, eq=False)
class AllRows:
    """All rows of a table: the prepared frame (at most MOST_ROWS rows), the total count, and the layout."""

    frame: pd.DataFrame
    count: int
    layout: Layout


def table_view(frame: pd.DataFrame, layout: Layout, *, caption: str, name: str = "") -> TableView:
    """Lay out the first rows of `frame`; a column `level`, if there is one, indents them."""
    frame = layout.prepare(frame)
    all_rows = AllRows(frame.head(MOST_ROWS), len(frame), layout)
    printed = frame.head(layout.max_rows)
    columns = _value_headings(all_rows.frame, layout)
    levels = printed["level"].astype(int).tolist() if "level" in printed else [0] * len(printed)
    cells = [_cells(printed[column.name], column, layout.shorteners.get(column.name, short_text)) for column in columns]
    of_rows = zip(*cells, strict=True) if columns else [()] * len(printed)
    return TableView(
        caption,
        (Heading(layout.header, is_number=False, name=layout.name), *columns),
        tuple(Row(*row) for row in zip(_name_cells(printed, layout), of_rows, levels, strict=True)),
        more=omission(layout.max_rows, len(frame), layout.noun),
        is_folded=layout.is_folded,
        name=name,
        timeline=layout.timeline,
        names=layout.names,
        has_details=bool(layout.full),
        all_rows=all_rows,
    )


def _value_headings(frame: pd.DataFrame, layout: Layout) -> list[Heading]:
    """Return the columns after the first; their units suit all rows, so that they do not change when more appear."""
    # these three belong to the first column: its text, its details and its indentation
    names = [name for name in frame.columns if name not in (layout.name, layout.full, "level")]
    columns = [
        replace(
            column := _column(frame[name], with_bars=name in layout.bars),
            title=layout.titles.get(name, column.title),
            is_minor=name in layout.minor,
        )
        for name in names
    ]
    same = [floats(frame[name]) for name in names if name in layout.same_unit]
    if not same:
        return columns
    scale = scale_for(split(layout.same_unit[0])[1], np.concatenate(same))
    return [
        replace(column, unit=scale.symbol, scale=scale) if column.name in layout.same_unit else column
        for column in columns
    ]


def _name_cells(frame: pd.DataFrame, layout: Layout) -> list[Cell]:
    names = frame[layout.name].astype("str")
    if layout.full in frame:
        texts = frame[layout.full].astype("str")
        return [Cell(layout.shorten(name), printable(text)) for name, text in zip(names, texts, strict=True)]
    pairs = ((layout.shorten(name), printable(name)) for name in names)
    return [Cell(short, full if full != short else "") for short, full in pairs]


def floats(column: "pd.Series[Any]") -> Floats:
    """Return a column as floats, NaN for missing values."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf":
        return column.to_numpy(dtype=np.float64)
    if isinstance(column.dtype, pd.ArrowDtype) and column.dtype.kind in "iuf":
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)


def column_texts(column: "pd.Series[Any]") -> list[str]:
    """Return a column as texts, "" for missing values."""
    missing = column.isna().tolist()
    return ["" if is_missing else str(text) for text, is_missing in zip(column.tolist(), missing, strict=True)]


def operation_names(frame: pd.DataFrame) -> "pd.Series[str]":
    """Name memory operations by direction and kinds of memory: `Host-to-Device, Pageable → Device`."""
    operation, *kinds_of_memory = (frame[name].astype("str") for name in ("operation", "source_kind", "target_kind"))
    source, target = (kinds.where(kinds != "Unknown", "") for kinds in kinds_of_memory)
    kinds = source.where(target == "", source + " → " + target).where(source != "", target)
    return operation.where(kinds == "", operation + ", " + kinds)


def is_numeric(column: "pd.Series[Any]") -> bool:
    """Whether a column holds numbers; one with a unit does, even if all values are missing."""
    return bool(split(str(column.name))[1]) or pd.api.types.is_numeric_dtype(column.dtype)


def with_values(frame: pd.DataFrame, *, keep: Collection[str] = ()) -> pd.DataFrame:
    """Drop columns without any value, except those to keep."""

    def has_value(column: "pd.Series[Any]") -> bool:
        values = column.notna()
        return bool((values if is_numeric(column) else values & (column.astype("str") != "")).any())

    return frame[[name for name in frame.columns if name in keep or has_value(frame[name])]]


def _column(column: "pd.Series[Any]", *, with_bars: bool) -> Heading:
    """Choose the unit, the number of decimals and the full bar of a column."""
    name = str(column.name)
    title, unit = heading(name), split(name)[1]
    if not is_numeric(column):
        return Heading(title, is_number=False, name=name)
    values = floats(column)
    scale, largest = scale_for(unit, values), 0.0
    if with_bars:
        largest = 100.0 if unit == "pct" else float(np.nanmax(values)) if np.isfinite(values).any() else 0.0
    return Heading(title, scale.symbol, name=name, scale=scale, largest=largest)


def _cells(values: "pd.Series[Any]", column: Heading, shorten: Callable[[str], str]) -> list[Cell]:
    if column.scale is None:
        return [Cell(shorten(text) if text else ABSENT) for text in column_texts(values)]
    numbers = floats(values)
    texts = [format_cell(value, column.name, scale=column.scale) for value in numbers]
    if not column.largest:
        return [Cell(text) for text in texts]
    shares = (100.0 * numbers / column.largest).clip(0, 100).round(2).tolist()
    # a missing value has no bar, which differs from a bar of length 0
    bars = (share if np.isfinite(share) else None for share in shares)
    return [Cell(text, share=bar) for text, bar in zip(texts, bars, strict=True)]


def omission(shown: int, count: int, noun: str) -> str:
    """Return a note on rows that are not shown, "" if all are."""
    if count <= shown:
        return ""
    return f"The first {shown:,} of {count:,} {noun}. The JSON and CSV forms of this report contain all of them."
