"""How an SQLite file reaches Arrow: read-only through ADBC, cut-off files found before a wrong number is."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

import adbc_driver_manager
import adbc_driver_sqlite.dbapi as sqlite
import pyarrow as pa

from pipeline.errors import CaptureError

MAGIC: Final = b"SQLite format 3\x00"
_HINT: Final = "export it again: nsys export --type sqlite --force-overwrite=true REPORT.nsys-rep"

_LOCKED: Final = "wait until that program has finished with it (nsys may still be exporting), or read a copy"


class Database:
    """A read-only SQLite file: which tables and columns it has, and their rows as Arrow tables.

    Every failure of the file is a CaptureError that names file and table.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _refuse_cut_off(path)
        self._uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro"
        self.columns: Final = self._read_columns()

    def fetch(self, table: str, columns: Mapping[str, str]) -> pa.Table:
        """Return `columns` (ours: SQL expression over theirs) of every row of `table`, in the file's order."""
        chosen = ", ".join(f'{expression} AS "{name}"' for name, expression in columns.items())
        return self._query(f'SELECT {chosen} FROM "{table}"', table)  # noqa: S608 (our own names)

    def last_row(self, table: str) -> int:
        """Return the number of the last row: nsys deletes none, so it is the count unless the file is damaged."""
        return self.fetch(table, {"last": "MAX(rowid)"})["last"][0].as_py() or 0

    def texts(self, table: str, column: str) -> list[str]:
        """Return a text column, NULL as the empty text and bytes that are no UTF-8 as U+FFFD."""
        rows = self.fetch(table, {"text": f"CAST(COALESCE(\"{column}\", '') AS BLOB)"})
        return [(value or b"").decode("utf-8", "replace") for value in rows["text"].to_pylist()]

    def _read_columns(self) -> dict[str, frozenset[str]]:
        statement = (
            "SELECT CAST(m.name AS BLOB) AS t, CAST(p.name AS BLOB) AS c "
            "FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table'"
        )
        rows = self._query(statement, "sqlite_master").to_pylist()
        tables: dict[str, set[str]] = {}
        for row in rows:
            table, column = (row[key].decode("utf-8", "replace") for key in ("t", "c"))
            tables.setdefault(table, set()).add(column)
        return {table: frozenset(columns) for table, columns in tables.items()}

    def _query(self, statement: str, table: str) -> pa.Table:
        try:
            # a connection of its own for each query: threads cannot share one
            with sqlite.connect(self._uri) as connection, connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetch_arrow_table()
        except (adbc_driver_manager.Error, OSError, UnicodeDecodeError, pa.ArrowInvalid) as error:
            reason = str(error).splitlines()[0]
            if "database is locked" in reason:
                raise CaptureError(f"{self.path.name} is locked by another program", _LOCKED) from error
            raise CaptureError(f"{self.path.name}: cannot read table {table}: {reason}", _HINT) from error


def _refuse_cut_off(path: Path) -> None:
    """Compare the file's size with the page count in its header: SQLite itself reads a cut-off file's first pages."""
    with path.open("rb") as file:
        header = file.read(100)
    page = int.from_bytes(header[16:18], "big")
    expected = int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)
    size = path.stat().st_size
    if len(header) < 100 or size < expected:
        raise CaptureError(f"{path.name} is cut off: {size:,} of {expected:,} bytes are there", _HINT)
