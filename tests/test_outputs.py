"""What is named with -o: never the file that is read, links followed, devices and pipes written to as they stand."""

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from nightsight.errors import CaptureError, UsageError
from nightsight.runs.layout import write_file
from tests.recorded import DATA
from tests.test_cli import UNREADABLE, USAGE, CaptureFile, error_lines

TRACE = DATA / "kineto" / "cpu.json.gz"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return Path(shutil.copy(TRACE, tmp_path / "trace.json.gz"))


def hard_link(path: Path) -> Path:
    path.with_name("linked.html").hardlink_to(path)
    return path.with_name("linked.html")


def symbolic_link(path: Path) -> Path:
    path.with_name("link.html").symlink_to(path.name)
    return path.with_name("link.html")


def another_spelling(path: Path) -> Path:
    return path.parent / ".." / path.parent.name / path.name


@pytest.mark.parametrize("other_name", [lambda path: path, hard_link, symbolic_link, another_spelling])
@pytest.mark.parametrize("style", ["html", "json", "markdown", "perfetto", "speedscope"])
def test_a_report_is_never_written_over_what_it_is_made_of(run: Any, trace: Path, style: str, other_name: Any) -> None:
    output = other_name(trace)
    error, hint = error_lines(run("report", trace, "--format", style, "-o", output, expect=USAGE))
    assert error == f"{output} is also the input file: writing would destroy it"
    assert "-o" in hint
    assert trace.read_bytes() == TRACE.read_bytes()


def test_a_report_json_is_not_replaced_by_its_own_rendering(run: Any, trace: Path, tmp_path: Path) -> None:
    run("report", trace, "-o", tmp_path / "trace.report.json")
    before = (tmp_path / "trace.report.json").read_bytes()
    run("report", tmp_path / "trace.report.json", "--format", "json", expect=USAGE)
    assert (tmp_path / "trace.report.json").read_bytes() == before


def test_one_of_several_captures_is_not_replaced_by_the_report_of_another(run: Any, trace: Path) -> None:
    other = Path(shutil.copy(TRACE, trace.with_name("trace.report.html")))
    run("report", trace, other, "-o", trace.parent, expect=USAGE)
    assert other.read_bytes() == TRACE.read_bytes()


@pytest.mark.parametrize("style", ["csv", "parquet"])
def test_a_folder_of_tables_spares_the_capture_that_lies_in_it(run: Any, trace: Path, style: str) -> None:
    run("report", trace, "--format", style, "-o", trace.parent / "tables")
    table = next((trace.parent / "tables").iterdir())
    shutil.copy(trace, table)
    run("report", table, "--format", style, "-o", table.parent, expect=USAGE)
    assert table.read_bytes() == TRACE.read_bytes()


@pytest.mark.parametrize("prefix", ["run", "."])
def test_a_table_of_stats_spares_the_capture_of_its_name(
    run: Any, capture_file: CaptureFile, tmp_path: Path, prefix: str
) -> None:
    capture = Path(shutil.copy(capture_file("unified_memory"), tmp_path / "run_um_total_sum.csv"))
    if prefix == ".":
        (tmp_path / "run.sqlite").symlink_to(capture)
        capture = tmp_path / "run.sqlite"
    run("stats", capture, "-r", "um_total_sum", "--format", "csv", "-o", prefix, expect=USAGE)
    assert capture.read_bytes() == capture_file("unified_memory").read_bytes()


def test_a_link_is_followed_and_stays(run: Any, trace: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "page.html").write_text("old")
    (tmp_path / "latest.html").symlink_to("kept/page.html")
    run("report", trace, "-o", tmp_path / "latest.html")
    assert (tmp_path / "latest.html").readlink() == Path("kept/page.html")
    assert (tmp_path / "kept" / "page.html").read_text().startswith("<!doctype html>")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["page.html"]


def test_a_link_to_nothing_makes_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("new")
    write_file(tmp_path / "link", b"text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "new").read_bytes() == b"text"


def test_links_in_a_circle_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(CaptureError, match="cannot write"):
        write_file(tmp_path / "link", b"text")
    assert (tmp_path / "link").is_symlink()


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "page").touch(mode=0o600)
    write_file(tmp_path / "page", b"text")
    assert (tmp_path / "page").stat().st_mode & 0o777 == 0o600


def test_an_interrupt_while_writing_leaves_nothing_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "chmod", interrupted)
    (tmp_path / "page").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "page", b"new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_named_pipe_is_written_to_and_stays(run: Any, trace: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.html"
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    run("report", trace, "-o", pipe)
    reader.join(10)
    assert heard[0].startswith("<!doctype html>")
    assert pipe.is_fifo()


def test_dev_null_swallows_a_report_and_stays_a_device(run: Any, trace: Path) -> None:
    if os.access("/dev", os.W_OK):
        pytest.skip("on a program that replaces what it is told to write, this would harm the machine")
    run("report", trace, "-o", "/dev/null")
    assert Path("/dev/null").is_char_device()


def test_a_device_of_ones_own_is_written_to_and_stays(run: Any, trace: Path, tmp_path: Path) -> None:
    # the numbers of /dev/null and /dev/full
    for name, minor in (("null", 3), ("full", 7)):
        try:
            os.mknod(tmp_path / name, 0o20666, os.makedev(1, minor))
            (tmp_path / name).open("wb").close()
        except PermissionError:
            pytest.skip("this user may make no devices here")
    run("report", trace, "-o", tmp_path / "null")
    assert "No space left" in run("report", trace, "-o", tmp_path / "full", expect=UNREADABLE).stderr
    assert (tmp_path / "null").is_char_device()
    assert (tmp_path / "full").is_char_device()


@pytest.mark.parametrize("output", ["-", "/dev/stdout"])
@pytest.mark.parametrize("mode", ["pipe", "file"])
def test_dev_stdout_is_standard_output_and_nothing_else_is_printed_there(
    trace: Path, tmp_path: Path, output: str, mode: str, forked_nightsight: Path
) -> None:
    command = [str(forked_nightsight), "report", str(trace), "--format", "json", "-o", output]
    if mode == "pipe":
        printed = subprocess.run(command, capture_output=True, check=True).stdout
    else:
        with (tmp_path / "out").open("wb") as file:
            file.write(b"before")
            file.flush()
            subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, check=True)
        before, printed = (tmp_path / "out").read_bytes()[:6], (tmp_path / "out").read_bytes()[6:]
        assert before == b"before"
    assert printed.startswith(b"{")
    assert printed.rstrip().endswith(b"}")


def test_stats_print_to_dev_stdout_and_take_no_device_for_a_prefix(
    run: Any, capture_file: CaptureFile, tmp_path: Path
) -> None:
    command = ("stats", capture_file("unified_memory"), "-r", "um_total_sum", "-o")
    assert run(*command, "/dev/stdout").stdout == run(*command, "-").stdout
    os.mkfifo(tmp_path / "pipe")
    for special in ("/dev/null", tmp_path / "pipe"):
        assert "invalid output prefix" in run(*command, special, expect=USAGE).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_what_is_read_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"capture")
    with pytest.raises(UsageError, match="in is also the input file"):
        write_file(tmp_path / "in", b"page", inputs=[tmp_path / "other", tmp_path / "in"])


# -- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("report",), ("stats", "-r", "nvtx_sum")])
def test_a_pipe_is_refused_at_once_with_what_to_do(run: Any, tmp_path: Path, command: tuple[str, ...]) -> None:
    os.mkfifo(tmp_path / "pipe")
    error, hint = error_lines(run(*command, tmp_path / "pipe", expect=UNREADABLE))
    assert error == f"{tmp_path / 'pipe'} is not a regular file"
    assert "to a file first" in hint


def test_a_capture_on_standard_input_is_read_from_a_file_and_refused_from_a_pipe(
    trace: Path, tmp_path: Path, forked_nightsight: Path
) -> None:
    command = [str(forked_nightsight), "report", "/dev/stdin", "-o", str(tmp_path / "page.html")]
    piped = subprocess.run(command, input=TRACE.read_bytes(), capture_output=True, check=False)
    assert piped.returncode == UNREADABLE
    assert b"not a regular file" in piped.stderr
    with trace.open("rb") as file:
        subprocess.run(command, stdin=file, capture_output=True, check=True)
    assert (tmp_path / "page.html").exists()
