"""What tests share they cannot change for one another, and which captures laws are tested on."""

import lzma
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nightsight.read import read
from tests.recorded import LAWS, Recorded, of_laws


def test_what_one_test_changes_no_other_sees(recorded: Recorded) -> None:
    first, second = (recorded.profile("train").table("kernels") for _ in range(2))
    first["device"] = 7
    first.loc[:, "start_ns"] = 0
    pd.testing.assert_frame_equal(second, recorded.profile("train").table("kernels"))
    assert (second["start_ns"] > 0).all()
    table = recorded.report("train").result("gpu_time").rows
    table["device"] = 7
    assert (recorded.report("train").result("gpu_time").rows["device"] != 7).all()


def test_what_frames_share_cannot_be_written_to(recorded: Recorded) -> None:
    times = recorded.profile("train").table("kernels")["start_ns"].to_numpy()
    with pytest.raises(ValueError, match="read-only"):
        times[0] = 0
    assert np.shares_memory(times, recorded.profile("train").table("kernels")["start_ns"].to_numpy())


def contents(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield who recorded a capture, and the columns that hold anything: of its own tables and of what is read of it."""
    if path.suffix == ".sqlite":
        with closing(sqlite3.connect(path)) as connection:
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                columns = [name for _, name, *_ in connection.execute(f'PRAGMA table_info("{table}")')]
                counted = ", ".join(f'COUNT("{name}")' for name in columns)
                (counts,) = connection.execute(f'SELECT {counted} FROM "{table}"')
                yield from (("export", table, name) for name, count in zip(columns, counts, strict=True) if count)
    profile = read(path)
    yield profile.environment.collector, profile.environment.collector_version or ""
    for name, table in profile.tables.items():
        yield from ((name, str(column)) for column in table if table[column].notna().any())


@pytest.mark.nightly
def test_what_any_capture_holds_one_holds_on_which_laws_are_tested(tmp_path: Path) -> None:
    """A capture that is named here belongs into LAWS."""
    pages = ("ncu/*.details*.csv.xz", "ncu/*.raw*.csv.xz", "ncu/*.base.csv.xz", "*.ncu-rep.xz")
    columns = {}
    for (file,) in (each.values for each in of_laws("*.sqlite.xz", "*.json.gz", *pages)):
        packed = path = Path(str(file))
        if packed.suffix == ".xz":
            path = tmp_path / packed.stem
            path.write_bytes(lzma.decompress(packed.read_bytes()))
        columns[packed.name] = set(contents(path))
    assert LAWS.keys() <= columns.keys()
    covered = set().union(*(columns[name] for name in LAWS))
    assert {name: holds - covered for name, holds in columns.items() if holds - covered} == {}
