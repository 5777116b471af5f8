"""Reading numbers batch by batch: whatever the batches, NULLs and row numbers are, the column is that of the file."""

import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.errors import CaptureError
from nightsight.read import sqlite
from nightsight.read.sqlite import Database

VALUE = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))


def database(folder: Path, rows: Sequence[tuple[int, object]]) -> Database:
    path = folder / "numbers.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, value)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    connection.close()
    return Database(path)


@given(st.lists(VALUE, max_size=20), st.integers(-30, 30), st.integers(1, 7))
def test_numbers_are_those_of_the_file(values: list[int | None], first: int, batch: int) -> None:
    rows = [(first + row, value) for row, value in enumerate(values)]
    with tempfile.TemporaryDirectory() as folder, patch.object(sqlite, "_BATCH_ROWS", batch):
        table = database(Path(folder), rows).numbers("t", {"id": "id", "value": "value"})
    assert table["id"].tolist() == [row for row, _ in rows]
    assert [None if pd.isna(value) else value for value in table["value"]] == values
    assert str(table["value"].dtype) == ("int64[pyarrow]" if None in values else "int64")


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize("wrong", ["soon", 0.5])
def test_what_is_no_whole_number_names_file_and_table(tmp_path: Path, wrong: object, batch: int) -> None:
    with (
        patch.object(sqlite, "_BATCH_ROWS", batch),
        pytest.raises(CaptureError, match=r"numbers\.sqlite: (cannot read )?table t"),
    ):
        database(tmp_path, [(1, 1), (2, 2), (3, wrong)]).numbers("t", {"value": "value"})


@pytest.mark.parametrize(
    "columns",
    ["id INTEGER PRIMARY KEY, value INTEGER", "value INTEGER, id INTEGER GENERATED ALWAYS AS (value - 9)"],
    ids=["the id of the row", "computed from another"],
)
def test_numbers_that_a_row_does_not_hold_are_read_by_sqlite(tmp_path: Path, columns: str) -> None:
    path = tmp_path / "numbers.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE t ({columns})")
        connection.execute("INSERT INTO t (value) VALUES (10)")
    connection.close()
    table = Database(path).numbers("t", {"id": '"id"', "value": '"value"', "absent": "NULL"})
    assert table.drop(columns="absent").to_numpy().tolist() == [[1, 10]]
    assert table["absent"].isna().all()
