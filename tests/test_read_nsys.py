"""The nsys reader: what it makes of a real export, of each generation's differences, and of damaged files."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from nightsight.analyze import doubts
from nightsight.errors import CaptureError
from nightsight.events.timeline import Timeline
from nightsight.read import read, recognize
from nightsight.read.nsys.export import Export
from nightsight.read.nsys.tables import read_nsys
from nightsight.read.sqlite import Database
from nightsight.read.vocabulary import cuda_version
from nightsight.tables import TABLES
from nightsight.texts import without_private
from tests.properties import examples
from tests.recorded import Recorded
from tests.tile import tile

CaptureFile = Callable[[str], Path]


@pytest.fixture
def editable(capture_file: CaptureFile, tmp_path: Path) -> Callable[..., Path]:
    """Copy a real export and run SQL statements on it."""

    def edit(*statements: str, name: str = "train") -> Path:
        target = tmp_path / "edited.sqlite"
        shutil.copy(capture_file(name), target)
        connection = sqlite3.connect(target)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
        return target

    return edit


def test_tables_have_the_canonical_columns_and_types(recorded: Recorded) -> None:
    profile = recorded.profile("train")
    for name, frame in profile.tables.items():
        assert dict(frame.dtypes.astype(str)) == dict(TABLES[name])
    assert len(profile.table("kernels")) == 1224
    assert profile.findings == ()


def test_environment_holds_facts_of_the_machine_and_nothing_private(recorded: Recorded) -> None:
    environment = recorded.profile("train").environment
    assert (environment.gpu, environment.driver, environment.cuda) == ("NVIDIA H200", "580.159.04", "13.0")
    assert environment.captured_utc == "2026-11-20 09:19:43"
    assert "/" not in "".join(vars(environment).values())


def test_two_gpus_of_a_kind_are_counted(recorded: Recorded) -> None:
    assert recorded.profile("ddp2").environment.gpu == "2 × NVIDIA H200"


def test_a_gpu_that_nothing_ran_on_is_present_and_not_used(editable: Callable[..., Path]) -> None:
    second = ("CREATE TABLE second AS SELECT * FROM TARGET_INFO_GPU", "UPDATE second SET id = 1")
    added = editable(*second, "INSERT INTO TARGET_INFO_GPU SELECT * FROM second")
    assert read_nsys(added).environment.gpu == "1 of 2 × NVIDIA H200 used"


def test_every_table_has_the_gpu_of_the_machine(editable: Callable[..., Path]) -> None:
    moved = (
        "UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 3",
        "UPDATE TARGET_INFO_GPU SET id = 3",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 0 WHERE rowid = 1",
    )
    tables = read_nsys(editable(*moved, name="everything")).tables
    devices = {name: table["device"].unique().tolist() for name, table in tables.items() if "device" in table}
    of_work = {"kernels", "memory_ops", "graph_launches", "syncs", "untimed"}
    assert devices == {name: [3] for name in of_work | {"memory_usage", "gpu_page_faults", "devices"}}
    # NVIDIA's tables print CUDA's number
    assert {*tables["kernels"]["ordinal"], *tables["memory_ops"]["ordinal"]} == {0}


def test_diagnostics_lose_their_paths(recorded: Recorded) -> None:
    texts = recorded.profile("train").table("diagnostics")["text"].astype(str)
    assert not texts.str.contains("/tmp|/opt", regex=True).any()
    assert texts.str.contains("Loaded CUPTI library: <…>", regex=False).any()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see /tmp/x/Project/run.py now", "see <…> now"),
        ("started with --token=hunter2 by me", "started with <…> by me"),
        (r"C:\Users\alice\x, ../rel/path, /root, file:///home/a and ~/b", "<…> <…> <…> <…> and <…>"),
        ("user 'alice' on \"host\"", "user <…> on <…>"),
        ("Number of CUDA events collected: 12.", "Number of CUDA events collected: 12."),
    ],
)
def test_without_private(text: str, expected: str) -> None:
    assert without_private(text) == expected


@pytest.mark.parametrize(("number", "version"), [("13000", "13.0"), ("12080", "12.8"), ("", ""), ("x", "")])
def test_cuda_version(number: str, version: str) -> None:
    assert cuda_version(number) == version


def test_ranges_know_their_domain(recorded: Recorded) -> None:
    ranges = recorded.profile("train").table("ranges")
    assert set(ranges["domain"].astype(str)) == {"", "io", "cuBLAS"}
    assert set(ranges[ranges["domain"] == "io"]["name"].astype(str)) == {"h2d"}


def test_marks_are_read_with_their_domain(recorded: Recorded) -> None:
    marks = recorded.profile("everything").table("marks")
    assert set(zip(*(marks[name].astype(str) for name in ("domain", "category", "name")), strict=True)) == {
        ("io", "", "loss")
    }
    assert marks["start_ns"].tolist() == marks["end_ns"].tolist() == sorted(marks["start_ns"])
    assert (len(marks), set(marks["tid"])) == (5, {22})
    assert recorded.profile("train").table("marks").empty


def test_a_mark_has_the_category_that_its_domain_named(editable: Callable[..., Path]) -> None:
    path = editable("UPDATE NVTX_EVENTS SET category = 2 WHERE eventType = 34", name="everything")
    assert set(read_nsys(path).table("marks")["category"].astype(str)) == {"step"}
    # the default domain has a category 1 of another name, and no 2
    path = editable("UPDATE NVTX_EVENTS SET category = 2, domainId = 0 WHERE eventType = 34", name="everything")
    assert set(read_nsys(path).table("marks")["category"].astype(str)) == {"2"}


def test_inline_range_text_is_read_as_well_as_registered_text(editable: Callable[..., Path]) -> None:
    path = editable(
        "UPDATE NVTX_EVENTS SET text = (SELECT value FROM StringIds WHERE id = textId), textId = NULL WHERE rowid % 2"
    )
    assert "" not in set(read_nsys(path).table("ranges")["name"].astype(str))


def test_a_range_that_never_ended_is_cut_at_the_last_event_and_marked(editable: Callable[..., Path]) -> None:
    path = editable("UPDATE NVTX_EVENTS SET end = NULL WHERE rowid = 1")
    ranges = read_nsys(path).table("ranges")
    assert ranges["is_open"].sum() == 1
    assert ranges[ranges["is_open"]]["end_ns"].item() == ranges["end_ns"].max()


def test_a_table_nobody_wrote_is_empty_when_its_tracing_was_on(editable: Callable[..., Path]) -> None:
    profile = read_nsys(editable("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", "DROP TABLE NVTX_EVENTS"))
    assert profile.table("kernels").empty
    assert profile.table("ranges").empty


def test_a_table_is_missing_with_its_reason_when_its_tracing_was_off(editable: Callable[..., Path]) -> None:
    off = "DELETE FROM META_DATA_CAPTURE WHERE value IN ('Cuda', 'NvtxEvents')"
    profile = read_nsys(editable("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", "DROP TABLE NVTX_EVENTS", off))
    assert "nsys profile --trace=cuda" in profile.missing["kernels"]
    assert "nsys profile --trace=nvtx" in profile.missing["ranges"]


def test_exports_without_metadata_and_enumerations_are_read(
    editable: Callable[..., Path], capture_file: CaptureFile
) -> None:
    with sqlite3.connect(capture_file("train")) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    connection.close()
    old = [f"DROP TABLE {name}" for name in tables if name.startswith(("ENUM_", "META_DATA_", "TARGET_INFO_", "DIAG"))]
    profile = read_nsys(editable(*old, "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN graphNodeId"))
    assert len(profile.table("kernels")) == 1224
    assert set(profile.table("memory_ops")["operation"].astype(str)) >= {"Host-to-Device", "memset"}
    assert profile.missing["devices"] == "this export names no GPU"


def test_what_an_old_export_does_not_say_is_not_made_up(editable: Callable[..., Path]) -> None:
    profile = read_nsys(editable("DROP TABLE META_DATA_CAPTURE", "DROP TABLE NVTX_EVENTS"))
    assert profile.missing["ranges"].startswith("this export does not have them, and does not say")


def test_names_that_are_missing_are_reported(editable: Callable[..., Path]) -> None:
    kernel = "(SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1)"
    profile = read_nsys(editable(f"DELETE FROM StringIds WHERE id = {kernel}"))
    assert [finding.rule for finding in profile.findings] == ["damaged_names"]
    with pytest.raises(CaptureError, match="table StringIds is missing"):
        read_nsys(editable("DROP TABLE StringIds"))


NO_PROCESS = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL"


@pytest.mark.parametrize("which", ["", " WHERE rowid <= 10"])
def test_null_process_ids_are_those_of_the_only_process(
    editable: Callable[..., Path], recorded: Recorded, which: str
) -> None:
    profile = read_nsys(editable(NO_PROCESS + which))
    whole = recorded.profile("train")
    pd.testing.assert_frame_equal(profile.table("kernels"), whole.table("kernels"))
    assert doubts(Timeline(profile)) == profile.findings == ()


def test_null_process_ids_are_kept_where_several_processes_use_cuda(editable: Callable[..., Path]) -> None:
    profile = read_nsys(editable(NO_PROCESS, name="ddp2"))
    assert profile.table("kernels")["process"].isna().all()
    # that their calls have no work is not known
    assert [finding.rule for finding in doubts(Timeline(profile))] == ["lost_calls"]


@pytest.mark.parametrize("change", ["end = end + (1 << 44)", "start = start + (1 << 44), end = end + (1 << 44)"])
@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "NVTX_EVENTS"])
def test_events_long_after_the_session_are_left_out_and_reported(
    editable: Callable[..., Path], table: str, change: str
) -> None:
    row = f"SELECT MAX(rowid) FROM {table} WHERE end IS NOT NULL"
    path = editable(f"UPDATE {table} SET {change} WHERE rowid = ({row})")
    (finding,) = read_nsys(path).findings
    assert (finding.rule, finding.title.split()[0]) == ("impossible_times", "1")
    assert finding.title.endswith(f"rows of {table} were left out")


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE ANALYSIS_DETAILS",
        "DELETE FROM ANALYSIS_DETAILS",
        "UPDATE ANALYSIS_DETAILS SET duration = 0, stopTime = -1",
        "ALTER TABLE ANALYSIS_DETAILS DROP COLUMN stopTime",
        # those of another file
        "UPDATE ANALYSIS_DETAILS SET duration = 1000, stopTime = 2000",
        # and of one that was recorded until a third of the calls had been made: that most came after it is not damage
        pytest.param(
            "UPDATE ANALYSIS_DETAILS SET duration = 1, stopTime = (SELECT end - 1000000000 FROM "
            "CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY end LIMIT 1 OFFSET (SELECT COUNT(*) / 3 FROM "
            "CUPTI_ACTIVITY_KIND_RUNTIME))",
            marks=pytest.mark.essential,
        ),
    ],
)
def test_without_bounds_of_the_session_nothing_is_left_out(editable: Callable[..., Path], change: str) -> None:
    profile = read_nsys(editable(change))
    assert len(profile.table("kernels")) == 1224
    assert profile.findings == ()


def test_tiled_captures_fit_their_session(capture_file: Callable[[str], Path], tmp_path: Path) -> None:
    tile(capture_file("mlp"), tmp_path / "tiled.sqlite", 200)
    export = Export(Database(tmp_path / "tiled.sqlite"))
    assert max(read_nsys(tmp_path / "tiled.sqlite").table("kernels")["end_ns"]) < export.session_end


@pytest.mark.parametrize(
    "change", ["end = start - 1", "end = NULL", "start = -5", "start = NULL", "end = 9223372036854775807"]
)
def test_impossible_times_are_left_out_and_reported(editable: Callable[..., Path], change: str) -> None:
    unconstrained = [
        "CREATE TABLE copy AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL",
        "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL",
        "ALTER TABLE copy RENAME TO CUPTI_ACTIVITY_KIND_KERNEL",
    ]
    profile = read_nsys(editable(*unconstrained, f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {change} WHERE rowid = 3"))
    assert len(profile.table("kernels")) == 1223
    assert profile.findings[0].title == "1 of 1,224 rows of CUPTI_ACTIVITY_KIND_KERNEL were left out"


def test_a_missing_column_is_named(editable: Callable[..., Path]) -> None:
    path = editable("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN gridX TO other")
    with pytest.raises(CaptureError, match="table CUPTI_ACTIVITY_KIND_KERNEL has no column gridX"):
        read_nsys(path)


def test_text_where_a_number_belongs_names_file_and_table(editable: Callable[..., Path]) -> None:
    path = editable("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon' WHERE rowid = 1200")
    with pytest.raises(CaptureError, match=r"edited\.sqlite: table CUPTI_ACTIVITY_KIND_KERNEL has values that are not"):
        read_nsys(path)


def test_names_that_are_no_utf8_are_shown_with_replacement_characters(editable: Callable[..., Path]) -> None:
    kernel = "(SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1)"
    path = editable(f"UPDATE StringIds SET value = CAST(x'6bff00' AS TEXT) WHERE id = {kernel}")
    assert "k\ufffd\x00" in set(read_nsys(path).table("kernels")["name"].astype(str))


def test_another_sqlite_file_is_not_an_export(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE visits (url TEXT)")
    connection.close()
    with pytest.raises(CaptureError, match="not an nsys export"):
        read(path)


@pytest.mark.parametrize("share", [0.0001, 0.3, 0.6, 0.95, 0.9999])
def test_a_cut_off_export_is_refused(capture_file: CaptureFile, tmp_path: Path, share: float) -> None:
    whole = capture_file("train").read_bytes()
    path = tmp_path / "cut.sqlite"
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(CaptureError, match="truncated"):
        read(path)


@examples(60, suppress=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_give_an_error_or_a_profile_never_a_traceback(
    capture_file: CaptureFile, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(capture_file("crash").read_bytes())
    for _ in range(data.draw(st.integers(1, 20))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "flipped.sqlite"
    path.write_bytes(content)
    try:
        profile = read(path)
    except CaptureError as error:
        assert error.message
    else:
        assert set(profile.tables) | set(profile.missing)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"\x7fELF\x00\x01", "not a capture that nightsight"), (b"id,name\n1,a\n", "not a capture")],
)
def test_foreign_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(CaptureError, match=message):
        read(path)


def test_files_are_recognized_by_content_not_by_name(capture_file: CaptureFile, tmp_path: Path) -> None:
    odd = tmp_path / "what's this? #1 'é' .txt"
    shutil.copy(capture_file("graph"), odd)
    assert recognize(odd) == "nsys-sqlite"
    assert len(read(odd).table("graph_launches")) == 50
    assert recognize(Path(__file__).parent / "data" / "nsys" / "mlp" / "mlp.nsys-rep") == "nsys-rep"


def test_a_folder_or_a_missing_file_is_an_error(tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "is not a regular file"), (tmp_path / "none.sqlite", "cannot open")):
        with pytest.raises(CaptureError, match=reason):
            read(path)
