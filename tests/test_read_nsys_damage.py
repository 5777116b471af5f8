"""Damaged nsys exports: an error that names file and table, or a report that says what is wrong with its numbers."""

import lzma
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from nightsight.analyze import analyze
from nightsight.errors import CaptureError
from nightsight.events.ranges import nested_ranges
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.read import read
from nightsight.read.nsys import nvtx as nsys_nvtx
from nightsight.read.nsys.export import repeats
from nightsight.sanitize import sanitize
from nightsight.stats import stats_table
from nightsight.workflows.analysis import build_report
from tests.build import GENERATIONS, build
from tests.damage import PICTURE, Damage, everything
from tests.properties import examples
from tests.reports import analyzed
from tests.timeline import draw

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
LAST = 2**63 - 1
FIRST_MARK = "rowid = (SELECT MIN(rowid) FROM NVTX_EVENTS WHERE eventType = 34)"


# -- the file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.001, 0.25, 0.5, 0.75, 0.999])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_cut_off_export_is_refused_by_name(tmp_path: Path, generation: str, share: float) -> None:
    path = build(PICTURE, tmp_path / "cut.sqlite", generation=generation)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(CaptureError, match=r"cut\.sqlite is truncated"):
        read(path)


@examples(30, suppress=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bits_give_an_error_or_a_report(damage: Damage, data: st.DataObject) -> None:
    # small pages, so that most bits mean something
    path = damage("PRAGMA page_size = 512", "VACUUM")
    content = bytearray(path.read_bytes())
    for bit in data.draw(st.lists(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=30)):
        content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    try:
        profile = read(path)
    except CaptureError as error:
        assert path.name in error.message
    else:
        everything(profile)


CASES = Path(__file__).parent / "data" / "cases"
ENDLESS = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c) SELECT i FROM c"


@pytest.mark.parametrize("table", [KERNEL, RUNTIME, "NVTX_EVENTS", "StringIds"])
def test_a_view_in_the_place_of_a_table_is_refused_without_a_look_at_its_rows(damage: Damage, table: str) -> None:
    path = damage(f"ALTER TABLE {table} RENAME TO hidden", f"CREATE VIEW {table} AS {ENDLESS}")
    with pytest.raises(CaptureError, match=f"{table} is a view or a virtual table, which nsys does not write"):
        read(path)
    with pytest.raises(CaptureError, match=f"{table} is a view"):
        sanitize(path, path.with_suffix(".clean.sqlite"), most_bytes=10**9)


@pytest.mark.parametrize(("case", "table"), [("view_endless", KERNEL), ("view_path", "StringIds")])
def test_views_that_came_with_an_export_are_refused(case: str, table: str, tmp_path: Path) -> None:
    path = tmp_path / f"{case}.sqlite"
    path.write_bytes(lzma.decompress((CASES / f"{case}.sqlite.xz").read_bytes()))
    with pytest.raises(CaptureError, match=f"^{case}.sqlite: {table} is a view"):
        read(path)


def test_a_virtual_table_is_refused_too(damage: Damage) -> None:
    path = damage("ALTER TABLE CUPTI_ACTIVITY_KIND_MEMSET RENAME TO hidden")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_MEMSET USING fts5(start, end)")
        connection.commit()
    with pytest.raises(CaptureError, match="CUPTI_ACTIVITY_KIND_MEMSET is a view or a virtual table"):
        read(path)


def test_other_views_and_computed_columns_are_not_looked_at(damage: Damage) -> None:
    """They are the user's own, or somebody's trick: a view can go on for ever, and name the file that holds it."""
    whole = read(damage())
    profile = read(
        damage(
            "CREATE VIEW mine AS SELECT file AS name FROM pragma_database_list",
            f"CREATE VIEW CUDA_ENDLESS AS {ENDLESS}",
            "CREATE VIEW broken AS SELECT * FROM nowhere",
            f"ALTER TABLE {KERNEL} ADD COLUMN greenContextId AS (length(zeroblob(1000000000)))",
        )
    )
    assert {name: len(rows) for name, rows in profile.tables.items()} == {
        name: len(rows) for name, rows in whole.tables.items()
    }
    assert profile.table("kernels")["green_context"].isna().all()


def test_sizes_that_add_up_to_more_than_there_can_be_are_damage(damage: Damage) -> None:
    # each is possible alone
    huge = f"UPDATE {MEMCPY} SET bytes = {2**53 - 1}"
    more = f"INSERT INTO {MEMCPY} SELECT m.* FROM {MEMCPY} AS m, (WITH RECURSIVE c(i) AS "
    more += "(SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 300) SELECT i FROM c)"
    # what is there twice counts once
    statement = f"UPDATE {MEMCPY} SET start = start + rowid, end = end + rowid"
    assert read(damage(huge)).table("memory_ops")["bytes"].max() == 2**53 - 1
    with pytest.raises(CaptureError, match="the sizes of its memory_ops add up to more than there can be"):
        read(damage(huge, more, statement))


# -- tables without rows ----------------------------------------------------------------------------------------------


def emptied(path: Path, *tables: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for table in tables:
            connection.execute(f'DELETE FROM "{table}"')
        connection.commit()
    return path


def tables_of(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())


@pytest.fixture
def eager(tmp_path: Path, capture_file: Callable[[str], Path]) -> Path:
    """The drawn capture with all tables that we know, as `nsys export --lazy=false` writes it."""
    path = build(PICTURE, tmp_path / "eager.sqlite", generation="2025")
    lacking = {table: sql for name in ("everything", "ddp2") for table, sql in tables_of(capture_file(name)).items()}
    with closing(sqlite3.connect(path)) as connection:
        for table in lacking.keys() - tables_of(path).keys():
            connection.execute(lacking[table])
        connection.commit()
    return path


def test_tables_without_rows_are_as_if_they_were_not_there(eager: Path, tmp_path: Path) -> None:
    profile, lazy = read(eager), read(build(PICTURE, tmp_path / "lazy.sqlite", generation="2025"))
    assert {name: len(table) for name, table in profile.tables.items()} == {
        name: len(table) for name, table in lazy.tables.items()
    }
    # nobody may say that there were none where nothing was recorded
    assert profile.missing == lazy.missing
    assert {"cpu_page_faults", "gpu_metrics", "memory_usage"} <= profile.missing.keys()
    everything(read(emptied(eager, *tables_of(eager))))


@pytest.mark.parametrize("table", [KERNEL, MEMCPY, RUNTIME, "NVTX_EVENTS", "PROCESSES", "META_DATA_CAPTURE"])
def test_any_table_of_an_export_may_have_no_rows(eager: Path, table: str) -> None:
    assert build_report(read(emptied(eager, table)), "eager").results


@pytest.mark.nightly
def test_any_table_of_a_real_capture_may_have_no_rows(capture_file: Callable[[str], Path], tmp_path: Path) -> None:
    path = capture_file("everything")
    for table in tables_of(path):
        if table != "StringIds":
            read(emptied(Path(shutil.copy(path, tmp_path / "emptied.sqlite")), table))
    with pytest.raises(CaptureError, match="nothing in this export has a name"):
        read(emptied(Path(shutil.copy(path, tmp_path / "emptied.sqlite")), "StringIds"))


def test_a_page_that_lost_rows_is_noticed(damage: Damage) -> None:
    """SQLite itself reads such a page without complaint."""
    path = damage()
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute(f"SELECT rootpage FROM sqlite_master WHERE name = '{RUNTIME}'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    # the first cell pointer leaves: count and pointer array of a leaf page begin at bytes 3 and 8
    start = (page - 1) * size
    count = int.from_bytes(content[start + 3 : start + 5], "big")
    content[start + 3 : start + 5] = (count - 1).to_bytes(2, "big")
    content[start + 8 : start + 8 + 2 * (count - 1)] = content[start + 10 : start + 10 + 2 * (count - 1)]
    path.write_bytes(content)
    profile = read(path)
    assert len(profile.table("api_calls")) == count - 1
    assert [(finding.rule, finding.severity) for finding in profile.findings] == [("incomplete_table", "error")]
    assert profile.findings[0].title == f"{RUNTIME} has 1 rows too few or too many"


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_locked_file_is_an_error_that_says_so(damage: Damage, mode: str) -> None:
    path = damage()
    program = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('PRAGMA locking_mode = exclusive')\n"
        "connection.execute(f'PRAGMA journal_mode = {sys.argv[2]}')\n"
        "connection.execute('BEGIN EXCLUSIVE')\n"
        "connection.execute('CREATE TABLE more (x)')\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(path), mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(CaptureError, match=r"damaged\.sqlite is locked by another program") as caught:
            read(path)
        assert "read a copy" in caught.value.hint
        other.communicate()


# -- times ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [KERNEL, MEMCPY, RUNTIME, "NVTX_EVENTS"])
@pytest.mark.parametrize(
    "change",
    [
        "end = start - 1",
        "start = -5",
        "end = -1",
        f"end = {LAST}",
        f"start = {LAST}, end = {LAST}",
        f"start = {-LAST - 1}",
    ],
)
def test_rows_with_impossible_times_are_left_out_and_reported(damage: Damage, table: str, change: str) -> None:
    total = len(_of(read(damage()), table))
    profile = read(damage(f"UPDATE {table} SET {change} WHERE rowid = 1"))
    assert len(_of(profile, table)) == total - 1
    assert profile.findings[0].title == f"1 of {total} rows of {table} were left out"
    assert "damaged_events" in everything(profile)


def _of(profile: Profile, table: str) -> list[int]:
    ours = {KERNEL: "kernels", MEMCPY: "memory_ops", RUNTIME: "api_calls", "NVTX_EVENTS": "ranges"}[table]
    frame = profile.table(ours)
    return frame[frame["operation"] != "memset"].index.tolist() if ours == "memory_ops" else frame.index.tolist()


def test_a_mark_with_an_impossible_time_does_not_stretch_open_ranges(damage: Damage) -> None:
    late = f"UPDATE NVTX_EVENTS SET start = {LAST} WHERE eventType = 34"
    ranges = read(damage(late, "UPDATE NVTX_EVENTS SET end = NULL WHERE rowid = 1")).table("ranges")
    assert ranges["is_open"].tolist() == [True, False]
    assert ranges["end_ns"].tolist() == [28_000, 28_000]


@pytest.mark.parametrize("start", [LAST, -5, 2**53, -LAST - 1])
def test_a_mark_with_an_impossible_time_is_left_out_and_reported(damage: Damage, start: int) -> None:
    profile = read(damage(f"UPDATE NVTX_EVENTS SET start = {start} WHERE {FIRST_MARK}"))
    assert profile.table("marks")["name"].tolist() == ["y"]
    assert profile.findings[0].title == "1 of 2 rows of NVTX_EVENTS (marks) were left out"
    assert "damaged_events" in everything(profile)


@pytest.mark.parametrize("end", [0, 1, LAST])
def test_an_end_of_a_mark_says_nothing(damage: Damage, end: int) -> None:
    profile = read(damage(f"UPDATE NVTX_EVENTS SET end = {end} WHERE {FIRST_MARK}"))
    assert profile.table("marks")[["start_ns", "end_ns"]].to_numpy().tolist() == [[4000, 4000], [15000, 15000]]
    assert profile.findings == ()


def test_a_mark_of_no_thread_is_left_out_and_reported_once(damage: Damage) -> None:
    profile = read(damage(f"UPDATE NVTX_EVENTS SET globalTid = NULL WHERE {FIRST_MARK}"))
    assert profile.table("marks")["name"].tolist() == ["y"]
    assert [finding.rule for finding in profile.findings] == ["damaged_events"]


@pytest.mark.parametrize(("category", "shown"), [(0, ""), (7, "7"), (2**32 - 1, "4294967295"), (-1, "-1")])
def test_a_category_that_nobody_named_is_its_number(damage: Damage, category: int, shown: str) -> None:
    profile = read(damage(f"UPDATE NVTX_EVENTS SET category = {category} WHERE eventType = 34"))
    assert profile.table("marks")["category"].tolist() == [shown, shown]
    everything(profile)


@pytest.mark.parametrize(("column", "value"), [("bytes", -1), ("bytes", LAST), ("correlationId", LAST)])
def test_sizes_and_ids_that_cannot_be_are_left_out_and_reported(damage: Damage, column: str, value: int) -> None:
    profile = read(damage(f"UPDATE {MEMCPY} SET {column} = {value} WHERE rowid = 1"))
    assert everything(profile) >= {"damaged_events"}
    assert profile.table("memory_ops")["bytes"].sum() == 2048


# -- nesting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spans",
    [
        [(0, 9), (5, 15)],
        [(0, 10), (0, 10)],
        [(0, 10), (10, 20)],
        [(5, 5), (5, 5)],
        [(0, 10), (5, 15)],
    ],
)
def test_ranges_that_overlap_or_coincide_lose_no_row(damage: Damage, spans: list[tuple[int, int]]) -> None:
    """Push and pop cannot give some of these; a capture that lost events can."""
    moves = [
        f"UPDATE NVTX_EVENTS SET start = {1000 * start}, end = {1000 * end} WHERE rowid = {row}"
        for row, (start, end) in enumerate(spans, start=1)
    ]
    profile = read(damage(*moves))
    everything(profile)
    result = analyzed(profile, "nvtx_ranges")
    assert result.rows["instances"].sum() == 2
    assert stats_table(profile, "nvtx_sum")["Instances"].sum() == 2


def _moved(spans: list[tuple[int, int]]) -> list[str]:
    return [
        f"UPDATE NVTX_EVENTS SET start = {1000 * start}, end = {1000 * end} WHERE rowid = {row}"
        for row, (start, end) in enumerate(spans, start=1)
    ]


@pytest.mark.parametrize(
    ("spans", "crossing"),
    [
        ([(0, 9), (5, 15)], 1),
        ([(0, 9), (9, 15)], 0),
        ([(0, 9), (0, 15)], 0),
        ([(0, 9), (5, 9)], 0),
        ([(5, 5), (0, 9)], 0),
        ([(0, 9), (9, 9)], 0),
    ],
)
def test_ranges_that_no_stack_can_hold_are_reported(
    damage: Damage, spans: list[tuple[int, int]], crossing: int
) -> None:
    profile = read(damage(*_moved(spans)))
    assert [finding.rule for finding in profile.findings] == ["crossing_ranges"] * crossing
    assert all(finding.title.startswith("1 of 2 ranges of NVTX_EVENTS cross") for finding in profile.findings)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE NVTX_EVENTS SET globalTid = globalTid + 1 WHERE rowid = 2",
        "UPDATE NVTX_EVENTS SET domainId = 7 WHERE rowid = 2",
        "UPDATE NVTX_EVENTS SET eventType = 60 WHERE rowid = 2",
        "UPDATE NVTX_EVENTS SET end = NULL WHERE rowid = 1",
        "UPDATE NVTX_EVENTS SET end = NULL WHERE rowid = 2",
    ],
    ids=["thread", "domain", "start/end", "outer open", "inner open"],
)
def test_only_ranges_of_one_stack_cross(damage: Damage, statement: str) -> None:
    assert read(damage(*_moved([(0, 9), (5, 15)]), statement)).findings == ()


def test_ranges_that_are_there_twice_are_reported(damage: Damage) -> None:
    twice = "INSERT INTO NVTX_EVENTS SELECT * FROM NVTX_EVENTS WHERE eventType = 59"
    (finding,) = read(damage(twice)).findings
    assert (finding.rule, finding.title) == ("repeated_events", "2 rows of NVTX_EVENTS are duplicates")
    assert read(damage(twice, "UPDATE NVTX_EVENTS SET text = rowid")).findings == ()


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(1, 9)), max_size=9))
def test_crossing_is_found_as_by_brute_force(spans: list[tuple[int, int]]) -> None:
    pairs = sorted(((start, start + length) for start, length in spans), key=lambda span: (span[0], -span[1]))
    start, end = np.array([*pairs, (99, 100)], dtype=np.int64).T
    is_crossing = any(one[0] < other[0] < one[1] < other[1] for one in pairs for other in pairs)
    assert (nsys_nvtx._crossing(start, end) > 0) == is_crossing


@examples(20, suppress=[HealthCheck.function_scoped_fixture])
@given(spans=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=12))
@example(spans=[(0, 0), (0, 1)])
@example(spans=[(0, 1), (8, 8), (14, 9)])
@example(spans=[(0, 2), (1, 1), (2, 0), (1, 1)])
def test_any_ranges_nest_without_losing_one(tmp_path: Path, spans: list[tuple[int, int]]) -> None:
    drawn = draw("\n".join(["cpu  L", "s7   .a", *("nvtx  [a]" for _ in spans)]))
    path = tmp_path / "nested.sqlite"
    path.unlink(missing_ok=True)
    build(drawn, path, generation="2025")
    with closing(sqlite3.connect(path)) as connection:
        for row, (first, second) in enumerate(spans, start=1):
            times = sorted((first, second))
            connection.execute("UPDATE NVTX_EVENTS SET start = ?, end = ? WHERE rowid = ?", (*times, row))
        connection.commit()
    profile = read(path)
    assert tuple(analyze(Timeline(profile)))
    # all have one name, so those with the same times are one range that is there twice; empty ones are kept
    lasting = [(min(span), max(span)) for span in spans if span[0] != span[1]]
    assert len(nested_ranges(profile)) == len(spans) - len(lasting) + len(set(lasting))


# -- ids ------------------------------------------------------------------------------------------------------------


def test_calls_with_the_same_id_are_reported_and_add_no_work(damage: Damage) -> None:
    profile = read(damage(f"UPDATE {RUNTIME} SET correlationId = 1000 WHERE correlationId IN (1001, 1003)"))
    assert "ambiguous_calls" in everything(profile)
    assert profile.findings[0].title == f"2 calls in {RUNTIME} have the correlation id of another call"
    gpu_time = analyzed(profile, "gpu_time").rows
    assert gpu_time[["kernels", "kernel_ns"]].to_numpy().tolist() == [[3, 7000]]


def test_nsys_waits_under_the_id_of_the_call_that_has_it_save(damage: Damage) -> None:
    stop = f"(SELECT nameId FROM {RUNTIME} WHERE correlationId = 1003)"
    renamed = f"UPDATE StringIds SET value = 'cuProfilerStop' WHERE id = {stop}"
    profile = read(damage(renamed, f"UPDATE {RUNTIME} SET correlationId = 1000 WHERE correlationId IN (1001, 1003)"))
    assert "ambiguous_calls" not in everything(profile)


def test_a_driver_call_may_have_the_id_of_its_runtime_call(damage: Damage) -> None:
    drawn_twice = f"INSERT INTO {RUNTIME} SELECT * FROM {RUNTIME}"
    drivers = f"UPDATE {RUNTIME} SET eventClass = 1 WHERE rowid > (SELECT COUNT(*) / 2 FROM {RUNTIME})"
    assert read(damage(drawn_twice, drivers)).findings == ()


def test_kernels_that_are_there_twice_are_reported(damage: Damage) -> None:
    profile = read(damage(f"INSERT INTO {KERNEL} SELECT * FROM {KERNEL}"))
    assert "repeated_events" in everything(profile)
    assert profile.findings[0].title == f"3 rows of {KERNEL} are duplicates"


_ONE_ID = f"UPDATE {KERNEL} SET correlationId = 1000 WHERE rowid <= 2"


def _launched(profile: Profile) -> dict[str, int]:
    """Count launches by name, as the report does."""
    result = analyzed(profile, "launch_overhead")
    return dict(zip(result.rows["name"].astype("str"), result.rows["launches"], strict=True))


def test_kernels_with_one_id_are_no_graph_where_the_export_tells_graphs(damage: Damage) -> None:
    profile = read(damage(_ONE_ID, f"ALTER TABLE {KERNEL} ADD COLUMN graphNodeId INTEGER"))
    assert _launched(profile) == {"a": 1, "b": 1, "c": 1}
    title = f"1 kernel in {KERNEL} has the correlation id of another kernel"
    assert [(finding.rule, finding.title) for finding in profile.findings] == [("ambiguous_kernels", title)]
    assert "ambiguous_kernels" in everything(profile)


@pytest.mark.parametrize("details", [True, False])
def test_kernels_with_one_id_are_a_graph_in_exports_that_do_not_tell(damage: Damage, *, details: bool) -> None:
    profile = read(damage(_ONE_ID), details=details)
    assert "graph_node" not in profile.table("kernels")
    assert profile.findings == ()
    assert _launched(profile) == {"[CUDA graph]": 1, "c": 1}
    if details:
        everything(profile)


def test_kernels_of_a_graph_and_of_two_devices_may_share_an_id(damage: Damage) -> None:
    nodes = f"ALTER TABLE {KERNEL} ADD COLUMN graphNodeId INTEGER"
    assert read(damage(_ONE_ID, nodes, f"UPDATE {KERNEL} SET graphNodeId = rowid WHERE rowid <= 2")).findings == ()
    assert read(damage(_ONE_ID, nodes, f"UPDATE {KERNEL} SET deviceId = 1 WHERE rowid = 2")).findings == ()


@pytest.mark.parametrize("factor", [1, 1000])
def test_values_that_occur_again_are_found_in_any_order(factor: int) -> None:
    """Of ids that follow one another, which are counted, and of those that lie far apart."""
    for seed in range(20):
        values = pd.Series(np.random.default_rng(seed).integers(0, 30, seed) * factor)
        assert repeats(values).tolist() == values.duplicated(keep=False).tolist()
