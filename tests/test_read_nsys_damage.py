"""Damaged nsys exports: an error that names file and table, or a report that says what is wrong with its numbers."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.analyze import analyze
from pipeline.errors import CaptureError, MissingTable
from pipeline.model import Profile
from pipeline.read import read
from pipeline.render import FORMATS, Source
from pipeline.stats import REPORTS, stats_table, write_stats
from pipeline.workflow import build_report
from tests.build import GENERATIONS, build
from tests.timeline import draw

PICTURE = """
    nvtx  [step        ][next        ]
    mark  ....x..........y.
    cpu   LLL..LL..SSSSCCC..L..SSSS.C.
    s7    ....aaa..bb...HHH.ccM.....DD
"""
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
LAST = 2**63 - 1
FIRST_MARK = "rowid = (SELECT MIN(rowid) FROM NVTX_EVENTS WHERE eventType = 34)"

Damage = Callable[..., Path]


@pytest.fixture
def damage(tmp_path: Path) -> Damage:
    """Write the picture as an export and run SQL statements on it, each with its parameters."""

    def write(*statements: str, parameters: tuple[object, ...] = (), picture: str = PICTURE) -> Path:
        path = tmp_path / "damaged.sqlite"
        path.unlink(missing_ok=True)
        build(picture, path, generation="2021")
        with closing(sqlite3.connect(path)) as connection:
            for statement in statements:
                connection.execute(statement, parameters if "?" in statement else ())
                connection.commit()
        return path

    return write


def _everything(profile: Profile) -> set[str]:
    """Make all that can be made of a profile; return the rules of what the report says of it."""
    report = build_report(profile, "damaged")
    for form in FORMATS.values():
        form.render(Source(report, profile))
    for name in REPORTS:
        try:
            write_stats(stats_table(profile, name), "csv")
        except MissingTable as error:
            assert error.message
    return {finding.rule for finding in report.findings}


# -- the file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.001, 0.25, 0.5, 0.75, 0.999])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_cut_off_export_is_refused_by_name(tmp_path: Path, generation: str, share: float) -> None:
    path = build(PICTURE, tmp_path / "cut.sqlite", generation=generation)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(CaptureError, match=r"cut\.sqlite is cut off"):
        read(path)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
        _everything(profile)


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
def test_rows_with_impossible_times_are_left_out_and_said(damage: Damage, table: str, change: str) -> None:
    total = len(_of(read(damage()), table))
    profile = read(damage(f"UPDATE {table} SET {change} WHERE rowid = 1"))
    assert len(_of(profile, table)) == total - 1
    assert profile.findings[0].title == f"1 of {total} rows of {table} were left out"
    assert "damaged_events" in _everything(profile)


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
def test_a_mark_with_an_impossible_time_is_left_out_and_said(damage: Damage, start: int) -> None:
    profile = read(damage(f"UPDATE NVTX_EVENTS SET start = {start} WHERE {FIRST_MARK}"))
    assert profile.table("marks")["name"].tolist() == ["y"]
    assert profile.findings[0].title == "1 of 2 rows of NVTX_EVENTS (marks) were left out"
    assert "damaged_events" in _everything(profile)


@pytest.mark.parametrize("end", [0, 1, LAST])
def test_an_end_of_a_mark_says_nothing(damage: Damage, end: int) -> None:
    profile = read(damage(f"UPDATE NVTX_EVENTS SET end = {end} WHERE {FIRST_MARK}"))
    assert profile.table("marks")[["start_ns", "end_ns"]].to_numpy().tolist() == [[4000, 4000], [15000, 15000]]
    assert profile.findings == ()


def test_a_mark_of_no_thread_is_left_out_and_said_once(damage: Damage) -> None:
    profile = read(damage(f"UPDATE NVTX_EVENTS SET globalTid = NULL WHERE {FIRST_MARK}"))
    assert profile.table("marks")["name"].tolist() == ["y"]
    assert [finding.rule for finding in profile.findings] == ["damaged_events"]


@pytest.mark.parametrize(("category", "shown"), [(0, ""), (7, "7"), (2**32 - 1, "4294967295"), (-1, "-1")])
def test_a_category_that_nobody_named_is_its_number(damage: Damage, category: int, shown: str) -> None:
    profile = read(damage(f"UPDATE NVTX_EVENTS SET category = {category} WHERE eventType = 34"))
    assert profile.table("marks")["category"].tolist() == [shown, shown]
    _everything(profile)


@pytest.mark.parametrize(("column", "value"), [("bytes", -1), ("bytes", LAST), ("correlationId", LAST)])
def test_sizes_and_ids_that_cannot_be_are_left_out_and_said(damage: Damage, column: str, value: int) -> None:
    profile = read(damage(f"UPDATE {MEMCPY} SET {column} = {value} WHERE rowid = 1"))
    assert _everything(profile) >= {"damaged_events"}
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
    _everything(profile)
    (result,) = (result for result in analyze(profile)[0] if result.name == "nvtx_ranges")
    assert result.rows["instances"].sum() == 2
    assert stats_table(profile, "nvtx_sum")["Instances"].sum() == 2


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spans=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=12))
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
    (result,) = (result for result in analyze(profile)[0] if result.name == "nvtx_ranges")
    assert result.rows["instances"].sum() == len(spans)


# -- ids ------------------------------------------------------------------------------------------------------------


def test_calls_with_the_same_id_are_said_and_add_no_work(damage: Damage) -> None:
    profile = read(damage(f"UPDATE {RUNTIME} SET correlationId = 1000 WHERE correlationId IN (1001, 1003)"))
    assert "ambiguous_calls" in _everything(profile)
    assert profile.findings[0].title == f"2 calls in {RUNTIME} have the correlation id of another call"
    gpu_time = analyze(profile)[0][0].rows
    assert gpu_time[["kernels", "kernel_ns"]].to_numpy().tolist() == [[3, 7000]]


def test_a_driver_call_may_have_the_id_of_its_runtime_call(damage: Damage) -> None:
    drawn_twice = f"INSERT INTO {RUNTIME} SELECT * FROM {RUNTIME}"
    drivers = f"UPDATE {RUNTIME} SET eventClass = 1 WHERE rowid > (SELECT COUNT(*) / 2 FROM {RUNTIME})"
    assert read(damage(drawn_twice, drivers)).findings == ()


def test_kernels_that_are_there_twice_are_said(damage: Damage) -> None:
    profile = read(damage(f"INSERT INTO {KERNEL} SELECT * FROM {KERNEL}"))
    assert "repeated_events" in _everything(profile)
    assert profile.findings[0].title == f"3 rows of {KERNEL} are there more than once"


# -- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"a\x00b", "a\x00b"),
        ("\u202egnp.exe".encode(), "\u202egnp.exe"),
        (b"k\xff\xfe", "k\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"n" * 4096, "n" * 4096),
        (b"", ""),
        (b"<script>alert(1)</script>", "<script>alert(1)</script>"),
    ],
    ids=["NUL", "right-to-left", "no UTF-8", "surrogate", "4 kB", "empty", "markup"],
)
def test_any_name_survives_in_every_table(damage: Damage, written: bytes, shown: str) -> None:
    registered = "UPDATE StringIds SET value = CAST(? AS TEXT)"
    inline = "UPDATE NVTX_EVENTS SET text = CAST(? AS TEXT)"
    profile = read(damage(registered, inline, parameters=(written,)))
    for table in ("kernels", "api_calls", "ranges", "marks"):
        assert set(profile.table(table)["name"].astype("str")) == {shown}
    _everything(profile)
    assert stats_table(profile, "cuda_gpu_kern_sum")["Name"].tolist() == [shown]


def test_two_hundred_thousand_distinct_names(damage: Damage) -> None:
    count = 200_000
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
    kernel = f"SELECT * FROM {KERNEL} WHERE rowid = 1"
    path = damage(
        f"INSERT INTO StringIds {numbers} SELECT 1000 + i, 'kernel ' || i FROM n",
        f"CREATE TABLE one AS {kernel}",
        f"INSERT INTO {KERNEL} {numbers} SELECT one.* FROM n CROSS JOIN one",
        f"UPDATE {KERNEL} SET start = start + 1000 * rowid, end = end + 1000 * rowid, correlationId = NULL, "
        "demangledName = 1000 + rowid - 3, shortName = 1000 + rowid - 3 WHERE rowid > 3",
    )
    profile = read(path)
    assert len(stats_table(profile, "cuda_gpu_kern_sum")) == count + 3
    (result,) = (result for result in analyze(profile)[0] if result.name == "cuda_gpu_kern_sum")
    assert result.rows["instances"].sum() == count + 3


def test_marks_without_a_text_or_each_with_its_own(damage: Damage) -> None:
    count = 10_000
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
    path = damage(
        "UPDATE NVTX_EVENTS SET text = NULL WHERE eventType = 34",
        f"INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid) {numbers} "
        "SELECT 5000 + i, 34, 'loss ' || i, (SELECT MIN(globalTid) FROM NVTX_EVENTS WHERE eventType = 34) FROM n",
    )
    profile = read(path)
    assert (profile.table("marks")["name"] == "").sum() == 2
    (result,) = (result for result in analyze(profile)[0] if result.name == "nvtx_marks")
    assert len(result.rows) == count + 1
    assert result.rows["name"].iloc[0] == ""
    _everything(profile)
