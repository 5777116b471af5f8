"""The rows of all tables of a page as one compressed block: numbers at full precision, each text stored once."""

import base64
import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.events.ranges import NUMBER
from nightsight.render.table.view import Column, TableView, Whole, floats, known_texts, omission
from nightsight.texts import printable
from nightsight.units import split

Json = dict[str, Any]

_FORMAT: Final = 2
_TRIES: Final = 4
# a larger document cannot fit even compressed
_MOST_RATIO: Final = 10
_NONE: Final = -1  # the code of a missing text


def packed_tables(views: Iterable[TableView], *, most_bytes: int) -> str:
    """Return all rows of the tables as base64 of gzip of JSON, at most `most_bytes` long; "" if they do not fit.

    The largest tables are cut first. Rows that the page prints are never cut.
    """
    tables = [table for view in views for table in _tables(view)]
    # most pages have room for all
    whole_document = _json(_document(tables, [len(table) for table in tables]))
    if (
        tables
        and len(whole_document) <= _MOST_RATIO * most_bytes
        and len(packed := _compress(whole_document)) <= most_bytes
    ):
        return packed
    aim: float = most_bytes
    # the size of the whole is only known after compressing it
    for _ in range(_TRIES if tables else 0):
        packed = _compress(_json(_document(tables, _limits(tables, aim))))
        if len(packed) <= most_bytes:
            return packed
        # sizes of single tables are estimates: aim lower by the error of this try
        aim *= 0.95 * most_bytes / len(packed)
    return ""


class Texts:
    """Codes for texts, in order of first use."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def codes(self, texts: Iterable[str]) -> list[int]:
        """Return the code of each text, `_NONE` for an empty one."""
        return [self._codes.setdefault(text, len(self._codes)) if text else _NONE for text in texts]

    @property
    def all(self) -> list[str]:
        """The texts by their code."""
        return list(self._codes)


def _tables(view: TableView) -> Iterator["_Table"]:
    """Yield a table, and its groupings as separate tables: `NAME/BY`, which the page does not print."""
    if view.whole is not None and view.rows:
        yield _Table(view, view.whole)
        for by, whole in view.groups.items():
            yield _Table(replace(view, name=f"{view.name}/{by}", rows=()), whole)


@dataclass(frozen=True)
class _Table:
    view: TableView
    whole: Whole

    def __len__(self) -> int:
        return len(self.whole.frame)

    @cached_property
    def names(self) -> list[str]:
        layout = self.whole.layout
        return _map_distinct(self.whole.frame[layout.name].astype("str").tolist(), layout.shorten)

    @cached_property
    def full(self) -> list[str]:
        """The full texts of the first column, "" where the name is not shortened."""
        layout, frame = self.whole.layout, self.whole.frame
        texts = _map_distinct(
            frame[layout.full if layout.full in frame else layout.name].astype("str").tolist(), printable
        )
        return ["" if text == name else text for name, text in zip(self.names, texts, strict=True)]

    @cached_property
    def columns(self) -> list[tuple[Column, list[Any]]]:
        frame = self.whole.frame
        return [(column, _values(frame[column.name], column)) for column in self.view.columns[1:]]

    @cached_property
    def size(self) -> int:
        """The approximate size of the table alone, in bytes of compressed base64."""
        texts = Texts()
        rows = self.rows(len(self), texts)
        # base64 needs four characters for three bytes
        return len(zlib.compress(_json({"table": rows, "texts": texts.all}))) * 4 // 3

    def rows(self, count: int, texts: Texts) -> Json:
        """Return the first `count` rows; full names only for rows that are not printed: the page has the others."""
        printed, frame = len(self.view.rows), self.whole.frame
        levels = {"level": frame["level"].tolist()[:count]} if "level" in frame else {}
        return {
            "noun": self.whole.layout.noun,
            "total": self.whole.count,
            "more": omission(count, self.whole.count, self.whole.layout.noun),
            "name": texts.codes(self.names[:count]),
            "full": texts.codes(self.full[printed:count]),
            **levels,
            **self._numbered,
            "columns": [self._column(column, values[:count], texts) for column, values in self.columns],
        }

    @property
    def _numbered(self) -> Json:
        """The index of the column whose texts start with a replay number; the CSV download splits that column."""
        names = [column.name for column in self.view.columns]
        column = self.whole.layout.numbered
        return {"numbered": names.index(column)} if column in names else {}

    def _column(self, column: Column, values: list[Any], texts: Texts) -> Json:
        shorten = self.whole.layout.others.get(column.name)
        if shorten is None:
            return _column(column, values, texts)
        short = [shorten(text) if text else "" for text in values]
        full = ["" if text == name else text for name, text in zip(short, values, strict=True)]
        return {"texts": texts.codes(short), "full": texts.codes(full)}


def _map_distinct(texts: Sequence[str], write: Callable[[str], str]) -> list[str]:
    """Apply `write` to each text, but only once per distinct text: tables repeat names."""
    written = {text: write(text) for text in dict.fromkeys(texts)}
    return [written[text] for text in texts]


def _values(column: "pd.Series[Any]", heading: Column) -> list[Any]:
    if heading.scale is None:
        return _map_distinct(known_texts(column), lambda text: printable(text) if text else "")
    if pd.api.types.is_integer_dtype(column.dtype):
        missing = column.isna().tolist()
        return [None if is_missing else value for value, is_missing in zip(column.tolist(), missing, strict=True)]
    values = floats(column)
    return [value if is_finite else None for value, is_finite in zip(values.tolist(), np.isfinite(values), strict=True)]


def _column(column: Column, values: list[Any], texts: Texts) -> Json:
    if column.scale is None:
        return {"texts": texts.codes(values)}
    bar = {"largest": column.largest} if column.largest else {}
    scale = {"divisor": column.scale.divisor, "decimals": column.scale.decimals}
    return {"unit": split(column.name)[1], **scale, **bar, "values": values}


def _limits(tables: Sequence[_Table], most_bytes: float) -> list[int]:
    """Return how many rows of each table to keep: tables above a common size limit are cut to it."""
    room, level = most_bytes, math.inf
    # small tables keep all rows; what they leave of their share raises the limit of the others
    sizes = sorted(table.size for table in tables)
    for place, size in enumerate(sizes):
        level = room / (len(sizes) - place)
        if size > level:
            break
        room, level = room - size, math.inf
    return [
        len(table) if table.size <= level else max(len(table.view.rows), int(len(table) * level / table.size))
        for table in tables
    ]


def _document(tables: Sequence[_Table], limits: Sequence[int]) -> Json:
    texts = Texts()
    rows = {table.view.name: table.rows(count, texts) for table, count in zip(tables, limits, strict=True)}
    return {"format": _FORMAT, "number": NUMBER, "tables": rows, "texts": texts.all}


def _json(document: Json) -> bytes:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _compress(document: bytes) -> str:
    # mtime=0: the same report gives the same bytes
    return base64.b64encode(gzip.compress(document, 9, mtime=0)).decode()
