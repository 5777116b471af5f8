"""The rows of all tables of a page as one compressed block: numbers at full precision, each text stored once."""

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from nightsight.events.ranges import NUMBER
from nightsight.render.embedded import compact_json, gzip_text
from nightsight.render.table.view import AllRows, Heading, TableView, column_texts, floats, omission
from nightsight.texts import printable
from nightsight.units import split

Json = dict[str, Any]

MOST_BYTES: Final = 400_000
"""The most bytes of a page for table rows beyond those that are printed."""
_FORMAT: Final = 2
_ATTEMPTS: Final = 4
# a larger document cannot fit even compressed
_MAX_RATIO: Final = 10
_NO_TEXT: Final = -1


def packed_tables(views: Iterable[TableView], *, most_bytes: int = MOST_BYTES) -> str:
    """Return all rows of the tables as base64 of gzip of JSON, at most `most_bytes` long; "" if they do not fit.

    The largest tables are cut first. Rows that the page prints are never cut.
    """
    tables = [table for view in views for table in _tables(view)]
    if not tables:
        return ""
    # most pages have room for all rows
    everything = compact_json(_document(tables, [len(table) for table in tables]))
    if len(everything) <= _MAX_RATIO * most_bytes and len(packed := gzip_text(everything)) <= most_bytes:
        return packed
    aim: float = most_bytes
    # the size of the whole is only known after compressing it
    for _ in range(_ATTEMPTS):
        packed = gzip_text(compact_json(_document(tables, _limits(tables, aim))))
        if len(packed) <= most_bytes:
            return packed
        # sizes of single tables are estimates: aim lower by the error of this attempt
        aim *= 0.95 * most_bytes / len(packed)
    return ""


class _TextCodes:
    """Codes for texts, in order of first use."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def codes(self, texts: Iterable[str]) -> list[int]:
        """Return the code of each text, `_NO_TEXT` for an empty one."""
        return [self._codes.setdefault(text, len(self._codes)) if text else _NO_TEXT for text in texts]

    @property
    def texts(self) -> list[str]:
        """The texts by their code."""
        return list(self._codes)


def _tables(view: TableView) -> Iterator["_PackedTable"]:
    """Yield a table, and its groupings as separate tables: `NAME/BY`, which the page does not print."""
    if view.all_rows is not None and view.rows:
        yield _PackedTable(view, view.all_rows)
        for by, rows in view.groups.items():
            yield _PackedTable(replace(view, name=f"{view.name}/{by}", rows=()), rows)


@dataclass(frozen=True)
class _PackedTable:
    view: TableView
    all_rows: AllRows

    def __len__(self) -> int:
        return len(self.all_rows.frame)

    @cached_property
    def names(self) -> list[str]:
        frame, layout = self.all_rows.frame, self.all_rows.layout
        return _map_distinct(frame[layout.name].astype("str").tolist(), layout.shorten)

    @cached_property
    def full_names(self) -> list[str]:
        """The full texts of the first column, "" where the name is not shortened."""
        frame, layout = self.all_rows.frame, self.all_rows.layout
        column = layout.full if layout.full in frame else layout.name
        return _texts_unlike_names(_map_distinct(frame[column].astype("str").tolist(), printable), self.names)

    @cached_property
    def columns(self) -> list[tuple[Heading, list[Any]]]:
        return [(column, _packed_values(self.all_rows.frame[column.name], column)) for column in self.view.columns[1:]]

    @cached_property
    def size(self) -> int:
        """The approximate size of the table alone, in bytes of compressed base64."""
        codes = _TextCodes()
        rows = self.rows(len(self), codes)
        # base64 needs four characters for three bytes
        return len(zlib.compress(compact_json({"table": rows, "texts": codes.texts}))) * 4 // 3

    def rows(self, count: int, codes: _TextCodes) -> Json:
        """Return the first `count` rows; full names only for rows that are not printed: the page has the others.

        numbered: the index of the column whose texts start with a replay number, which the CSV download splits.
        """
        printed, frame, layout = len(self.view.rows), self.all_rows.frame, self.all_rows.layout
        headings = [column.name for column in self.view.columns]
        return {
            "noun": layout.noun,
            "total": self.all_rows.count,
            "more": omission(count, self.all_rows.count, layout.noun),
            "name": codes.codes(self.names[:count]),
            "full": codes.codes(self.full_names[printed:count]),
            **({"level": frame["level"].tolist()[:count]} if "level" in frame else {}),
            **({"numbered": headings.index(layout.numbered)} if layout.numbered in headings else {}),
            "columns": [self._column(column, values[:count], codes) for column, values in self.columns],
        }

    def _column(self, column: Heading, values: list[Any], codes: _TextCodes) -> Json:
        if shorten := self.all_rows.layout.shorteners.get(column.name):
            short = [shorten(text) if text else "" for text in values]
            return {"texts": codes.codes(short), "full": codes.codes(_texts_unlike_names(values, short))}
        if column.scale is None:
            return {"texts": codes.codes(values)}
        bar = {"largest": column.largest} if column.largest else {}
        scale = {"divisor": column.scale.divisor, "decimals": column.scale.decimals}
        return {"unit": split(column.name)[1], **scale, **bar, "values": values}


def _map_distinct(texts: Sequence[str], convert: Callable[[str], str]) -> list[str]:
    """Apply `convert` to each text, but only once per distinct text: tables repeat names."""
    converted = {text: convert(text) for text in dict.fromkeys(texts)}
    return [converted[text] for text in texts]


def _texts_unlike_names(texts: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the texts that differ from their names, "" instead of the others."""
    return ["" if text == name else text for text, name in zip(texts, names, strict=True)]


def _packed_values(column: "pd.Series[Any]", heading: Heading) -> list[Any]:
    if heading.scale is None:
        return _map_distinct(column_texts(column), lambda text: printable(text) if text else "")
    if pd.api.types.is_integer_dtype(column.dtype):
        # pandas' own ways to None instead of missing values take milliseconds for ten rows
        return column.tolist() if isinstance(column.dtype, np.dtype) else pa.array(column).to_pylist()
    values = floats(column)
    return [value if is_finite else None for value, is_finite in zip(values.tolist(), np.isfinite(values), strict=True)]


def _limits(tables: Sequence[_PackedTable], most_bytes: float) -> list[int]:
    """Return the number of rows to keep of each table: tables above a common size limit are cut to it."""
    room, limit = most_bytes, math.inf
    # small tables keep all rows; the remainder of their share raises the limit of the others
    sizes = sorted(table.size for table in tables)
    for number, size in enumerate(sizes):
        limit = room / (len(sizes) - number)
        if size > limit:
            break
        room, limit = room - size, math.inf
    return [
        len(table) if table.size <= limit else max(len(table.view.rows), int(len(table) * limit / table.size))
        for table in tables
    ]


def _document(tables: Sequence[_PackedTable], limits: Sequence[int]) -> Json:
    codes = _TextCodes()
    rows = {table.view.name: table.rows(count, codes) for table, count in zip(tables, limits, strict=True)}
    return {"format": _FORMAT, "number": NUMBER, "tables": rows, "texts": codes.texts}
