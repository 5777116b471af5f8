"""Reads SQLite files through ADBC, read-only; detects truncated files before they give wrong numbers."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import adbc_driver_manager
import adbc_driver_sqlite as sqlite
import numpy as np
import pandas as pd
import pyarrow as pa

from nightsight.captures import EXPORT_AGAIN
from nightsight.errors import CaptureError
from nightsight.read.btree import ColumnValues, Unusual, whole_numbers

MAGIC: Final = b"SQLite format 3\x00"

# rows per Arrow batch; the driver's default of 1,024 is slower
_BATCH_ROWS: Final = 1 << 16
_SCHEMA: Final = "sqlite_master"
# the tables of the file, except SQLite's own
_OWN: Final = "t.schema = 'main' AND NOT t.name GLOB 'sqlite_*'"
# SQLite joins at most 500 queries
_JOINED: Final = 400
_LOCKED: Final = "Wait until that program is done (nsys may still be exporting), or read a copy."


_Taken = TypeVar("_Taken")


class _IntegerColumn:
    """A column of integers, filled batch by batch so that it is in memory only once."""

    def __init__(self, rows: int) -> None:
        self.values = np.empty(rows, dtype=np.int64)
        self.missing = np.zeros(0, dtype=bool)
        self.count = 0

    def add(self, part: ColumnValues) -> None:
        """Add the next batch."""
        begin, self.count = self.count, self.count + len(part.values)
        if self.count > len(self.values):
            self.values.resize(2 * self.count, refcheck=False)
        if part.missing is not None:
            self.missing.resize(self.count, refcheck=False)
            self.missing[begin:] = part.missing
        self.values[begin : self.count] = part.values

    def series(self) -> "pd.Series[Any]":
        """Return the column: int64 if no value is NULL, else Arrow-backed."""
        values = self.values[: self.count]
        if not len(self.missing):
            return pd.Series(values, copy=False)
        self.missing.resize(self.count, refcheck=False)
        return pd.Series(pa.array(values, mask=self.missing), dtype=pd.ArrowDtype(pa.int64()))


@dataclass(frozen=True)
class _Stored:
    """How a table is stored: its columns, its first page, and the place in a row of what can be read from the file.

    places: by SQL expression; -1: NULL everywhere. None of them if the table has columns that are not stored.
    """

    columns: frozenset[str]
    root: int
    places: Mapping[str, int]

    @classmethod
    def of(cls, columns: Sequence[Mapping[str, Any]]) -> Self:
        own = frozenset(decoded(column["name"]) for column in columns if not column["hidden"])
        places = {f'"{decoded(column["name"])}"': place for place, column in enumerate(columns) if column["is_number"]}
        is_plain = len(own) == len(columns) and columns[0]["root"]
        return cls(own, columns[0]["root"] or 0, {"NULL": -1, **places} if is_plain else {})


class Database:
    """A read-only SQLite file: its tables, their columns and rows.

    Any failure to read it is a CaptureError that names the file and the table. `asked`: the tables that were read;
    `computed`: the names of views and virtual tables. These are never read: what computes their rows comes with the
    file, can go on for ever, and can tell where the file is. A table has the rows that the file holds; columns that it
    computes (GENERATED ALWAYS AS) are none of its columns here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _refuse_cut_off(path)
        self._uri = read_only(path.absolute())
        self._stored: Final = self._storage()
        self.columns: Final = {table: stored.columns for table, stored in self._stored.items()}
        self.computed: Final = self._computed()
        self.asked: Final = set[str]()

    def fetch(self, table: str, columns: Mapping[str, str]) -> pa.Table:
        """Return `columns` (our name: SQL expression) of every row of `table`, in file order."""
        self.asked.add(table)
        return self._query(_select(table, columns), table, _all)

    def distinct(self, table: str, expression: str) -> tuple[list[Any], np.ndarray[Any, np.dtype[np.int64]]]:
        """Return the distinct values of an expression, and which of them each row has, as `fetch` does."""
        column = self.fetch(table, {"value": expression})["value"]
        encoded = column.combine_chunks().dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()

    def numbers(self, table: str, columns: Mapping[str, str]) -> pd.DataFrame:
        """Return integer columns, as `fetch` does: int64 if no value is NULL, else Arrow-backed."""
        # a damaged file can claim any number of rows, but each takes at least a byte of the file
        rows = min(max(self.last_row(table), 0), self.path.stat().st_size)

        def fill(batches: Iterable[Sequence[ColumnValues]]) -> pd.DataFrame:
            filled = {name: _IntegerColumn(rows) for name in columns}
            for batch in batches:
                for column, part in zip(filled.values(), batch, strict=True):
                    column.add(part)
            return pd.DataFrame({name: column.series() for name, column in filled.items()}, copy=False)

        def from_batches(reader: pa.RecordBatchReader) -> pd.DataFrame | None:
            if not all(pa.types.is_integer(kind) for kind in reader.schema.types):
                return None
            return fill([_values_and_nulls(part) for part in batch.columns] for batch in reader)

        self.asked.add(table)
        with suppress(Unusual, KeyError):
            stored = self._stored[table]
            return fill(whole_numbers(self.path, stored.root, [stored.places[each] for each in columns.values()]))
        frame = self._query(_select(table, columns), table, from_batches)
        if frame is None:
            wrong = "has values that are not integers in integer columns"
            raise CaptureError(f"{self.path.name}: table {table} {wrong}", EXPORT_AGAIN)
        return frame

    def last_row(self, table: str) -> int:
        """Return the rowid of the last row: the row count unless the file is damaged, since nsys deletes no rows."""
        return self._query(_select(table, {"last": "MAX(rowid)"}), table, _all)["last"][0].as_py() or 0

    def without_rows(self) -> list[str]:
        """Return the tables that have no rows."""
        tables = sorted(self.columns)
        queries = [
            f"SELECT {place} AS place WHERE NOT EXISTS ({_select(table, {'any': '0'})})"
            for place, table in enumerate(tables)
        ]
        joined = (" UNION ALL ".join(queries[begin : begin + _JOINED]) for begin in range(0, len(queries), _JOINED))
        answers = (self._query(statement, _SCHEMA, _all)["place"].to_pylist() for statement in joined)
        return [tables[place] for places in answers for place in places]

    def encoded(self, table: str, column: str) -> pa.ChunkedArray:
        """Return a text column as the bytes that it holds, with NULL as none."""
        values = self.fetch(table, {"text": f"CAST(COALESCE(\"{column}\", '') AS BLOB)"})["text"]
        # of no rows the driver takes the type to be int64
        return values if len(values) else pa.chunked_array([], pa.binary())

    def texts(self, table: str, column: str) -> list[str]:
        """Return a text column, with NULL as "" and invalid UTF-8 as U+FFFD."""
        rows = self.encoded(table, column)
        if not len(rows):
            return []
        # many rows have few texts: names of 100,000 ranges take 0.2 s one by one
        encoded = rows.combine_chunks().dictionary_encode(null_encoding="encode")
        distinct = [decoded(value or b"") for value in encoded.dictionary.to_pylist()]
        return [distinct[position] for position in encoded.indices.to_pylist()]

    def _computed(self) -> frozenset[str]:
        source = f"pragma_table_list AS t WHERE {_OWN} AND t.type <> 'table'"
        statement = f"SELECT CAST(t.name AS BLOB) AS name FROM {source}"  # noqa: S608
        return frozenset(decoded(name) for name in self._query(statement, _SCHEMA, _all)["name"].to_pylist())

    def _storage(self) -> "dict[str, _Stored]":
        """Return the facts of all tables by one query: a query for each of fifty tables takes 20 ms."""
        statement = (
            "SELECT CAST(t.name AS BLOB) AS source, CAST(c.name AS BLOB) AS name, c.hidden AS hidden, "  # noqa: S608
            "c.pk = 0 AND c.type LIKE '%INT%' AS is_number, CAST(m.rootpage AS INTEGER) AS root "
            "FROM pragma_table_list AS t JOIN pragma_table_xinfo(t.name) AS c "
            f"LEFT JOIN sqlite_master AS m ON m.type = 'table' AND m.name = t.name WHERE {_OWN} AND t.type = 'table'"
        )
        rows = self._query(statement, _SCHEMA, _all).to_pylist()
        of_table: dict[bytes, list[dict[str, Any]]] = {}
        for row in rows:
            of_table.setdefault(row["source"], []).append(row)
        return {decoded(source): _Stored.of(columns) for source, columns in of_table.items()}

    def _query(self, statement: str, table: str, take: Callable[[pa.RecordBatchReader], _Taken]) -> _Taken:
        try:
            # one connection per query: threads cannot share one. Not through the driver's DB-API, which imports
            # pyarrow.dataset (15 ms) and prepares each statement twice
            with (
                sqlite.connect(self._uri) as database,
                adbc_driver_manager.AdbcConnection(database) as connection,
                adbc_driver_manager.AdbcStatement(connection) as query,
            ):
                query.set_options(**{sqlite.StatementOptions.BATCH_ROWS.value: _BATCH_ROWS})
                query.set_sql_query(statement)
                rows, _ = query.execute_query()
                with pa.RecordBatchReader.from_stream(rows) as reader:
                    return take(reader)
        except (adbc_driver_manager.Error, OSError, UnicodeDecodeError, pa.ArrowInvalid) as error:
            reason = str(error).splitlines()[0]
            if "out of memory" in reason or "Cannot allocate memory" in reason:
                raise MemoryError(reason) from error
            if "database is locked" in reason:
                raise CaptureError(f"{self.path.name} is locked by another program", _LOCKED) from error
            raise CaptureError(f"{self.path.name}: cannot read table {table}: {reason}", EXPORT_AGAIN) from error


def read_only(path: PurePath) -> str:
    """Return the URI with which SQLite opens an absolute path read-only, on any system.

    The host name in it is empty; otherwise SQLite would take `//server` of a Windows share for a host.
    """
    return f"file://{'/' * bool(path.drive[1:] == ':')}{quote(os.fsencode(path.as_posix()), safe='/:')}?mode=ro"


def _select(table: str, columns: Mapping[str, str]) -> str:
    chosen = ", ".join(f'{expression} AS "{name}"' for name, expression in columns.items())
    quoted = table.replace('"', '""')
    return f'SELECT {chosen} FROM "{quoted}"'  # noqa: S608 (our own columns)


def decoded(text: bytes) -> str:
    """Return a text, with U+FFFD for bytes that are not UTF-8."""
    return text.decode("utf-8", "replace")


def _values_and_nulls(part: pa.Array) -> ColumnValues:
    if part.null_count:
        return ColumnValues(part.fill_null(0), part.is_null())
    return ColumnValues(part, None)


def _all(reader: pa.RecordBatchReader) -> pa.Table:
    return reader.read_all()


def _refuse_cut_off(path: Path) -> None:
    """Raise CaptureError if the file is smaller than its header says: SQLite would read the pages that are there."""
    with path.open("rb") as file:
        header = file.read(100)
    # a page size of 1 means 65536 (SQLite file format)
    page = int.from_bytes(header[16:18], "big")
    expected = int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)
    size = path.stat().st_size
    if len(header) < 100 or size < expected:
        raise CaptureError(f"{path.name} is truncated: it has {size:,} of {expected:,} bytes", EXPORT_AGAIN)
