"""Numbers read from the pages of a file are those that SQLite reads; what SQLite refuses is not read from pages."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.read.btree import Unusual, whole_numbers
from tests.properties import examples

VALUE = st.one_of(st.none(), st.integers(0, 1), st.integers(-(2**63), 2**63 - 1))
ROW = st.tuples(VALUE, st.text("a", max_size=50), VALUE)
TABLE = "CREATE TABLE t (a INTEGER, text TEXT, b INTEGER)"
Rows = list[tuple[int | None, ...]]


def write(path: Path, *statements: str, rows: Sequence[tuple[object, ...]] = ()) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        # small pages make deep trees
        connection.execute("PRAGMA page_size = 512")
        for statement in statements:
            connection.execute(statement)
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        connection.commit()
    return path


def from_pages(path: Path, root: int = 2) -> Rows:
    """Return columns a and b of each row, and a NULL."""
    batches = [
        [[None if part.missing is not None and part.missing[row] else value for row, value in enumerate(part.values)]
         for part in batch]
        for batch in whole_numbers(path, root, [0, 2, -1])
    ]  # fmt: skip
    return [tuple(row) for batch in batches for row in zip(*batch, strict=True)]


def from_sqlite(path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT a, b, NULL FROM t").fetchall()


@examples(100)
@given(st.lists(ROW, min_size=1, max_size=30), st.integers(1, 100))
def test_numbers_are_those_that_sqlite_reads(rows: list[tuple[object, ...]], repeated: int) -> None:
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / "numbers.sqlite", TABLE, rows=rows * repeated)
        assert from_pages(path) == from_sqlite(path)


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 511), st.integers(0, 255)), min_size=1, max_size=3))
def test_of_a_damaged_file_nothing_is_read_that_sqlite_refuses(changes: list[tuple[int, int, int]]) -> None:
    with TemporaryDirectory() as folder:
        rows = [(row << row % 50, "text" * (row % 5), row % 3 or None) for row in range(300)]
        path = write(Path(folder) / "numbers.sqlite", TABLE, rows=rows)
        content = bytearray(path.read_bytes())
        for page, place, value in changes:
            content[(page * 512 + place) % (len(content) - 512) + 512] = value
        path.write_bytes(content)
        try:
            rows_read = from_pages(path)
        except Unusual:
            return
        assert rows_read == from_sqlite(path)


@pytest.mark.parametrize(
    "statements",
    [
        (f"{TABLE.removesuffix(')')}, PRIMARY KEY (a)) WITHOUT ROWID",),
        ("CREATE TABLE t (a INTEGER, text TEXT)", "INSERT INTO t VALUES (1, '')", "ALTER TABLE t ADD b DEFAULT 2"),
        (TABLE, f"INSERT INTO t VALUES (1, '{'long' * 300}', 3)"),
        (TABLE, "INSERT INTO t VALUES (1, '', 'text')"),
        (TABLE, "INSERT INTO t VALUES (1, '', 0.5)"),
        ("PRAGMA journal_mode = WAL", TABLE),
        (TABLE, "DELETE FROM t"),
    ],
    ids=["no row ids", "a column is added", "a row is longer than its page", "a text", "a real", "a log", "no rows"],
)  # fmt: skip
def test_what_is_unusual_is_left_to_sqlite(tmp_path: Path, statements: tuple[str, ...]) -> None:
    path = write(tmp_path / "numbers.sqlite", *statements, rows=[] if "DELETE" in statements[-1] else [(1, "", 3)])
    with pytest.raises(Unusual):
        from_pages(path)


def test_a_file_that_another_program_was_writing_is_left_to_sqlite(tmp_path: Path) -> None:
    path = write(tmp_path / "numbers.sqlite", TABLE, rows=[(1, "", 3)])
    assert from_pages(path) == [(1, 3, None)]
    path.with_name("numbers.sqlite-journal").touch()
    with pytest.raises(Unusual):
        from_pages(path)
