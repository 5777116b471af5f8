"""What goes to a terminal and what to scripts: streams, widths, encodings, styles, progress."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from nightsight.cli import main
from nightsight.commands.console import encodable, put, say, show_progress, width_of
from nightsight.progress import Clock, clock_text
from tests.properties import examples

CaptureFile = Callable[[str], Path]
MODULE = (sys.executable, "-m", "nightsight")
PIPELINE = str(Path(__file__).parents[1] / "pipeline")


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal, and has none."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode(self.encoding)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for no width and no colors."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


@contextmanager
def as_terminal() -> Iterator[Terminal]:
    """Make standard output and standard error a terminal."""
    stream = Terminal()
    with redirect_stdout(stream), redirect_stderr(stream):
        yield stream


def on_terminal(
    *arguments: object, folder: Path, columns: int = 80, variables: Mapping[str, str] | None = None
) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a command whose standard error is a terminal, and return it with what the terminal got."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    names = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environment = {**names, "PYTHONPATH": PIPELINE, "TERM": "xterm", **(variables or {})}
    command = [*MODULE, *map(str, arguments)]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as process:
        os.close(theirs)
        got = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            got += piece
        output, _ = process.communicate(timeout=60)
    os.close(ours)
    done = subprocess.CompletedProcess(command, process.returncode, output, "")
    return done, got.decode()


def test_the_path_goes_to_scripts_and_the_screen_to_the_terminal(capture_file: CaptureFile, tmp_path: Path) -> None:
    done, shown = on_terminal("report", capture_file("graph"), folder=tmp_path, columns=70)
    assert (done.returncode, done.stdout) == (0, "report: graph.report.html\n")
    assert "looking for causes" in shown
    assert "\x1b[1mGPU 55.3 % busy. The GPU waits for launches" in shown
    # after the last bar there is nothing but plain lines
    screen = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown[shown.index("\x1b[1mGPU") :])
    assert max(map(len, screen.splitlines())) <= 70


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_some_terminals_want_no_colors(capture_file: CaptureFile, tmp_path: Path, variables: dict[str, str]) -> None:
    done, shown = on_terminal("report", capture_file("graph"), folder=tmp_path, variables=variables)
    assert done.stdout == "report: graph.report.html\n"
    screen = shown[shown.index("\r\ngraph: ") :]
    assert not re.search(r"\x1b\[[\d;]*m", screen)
    assert ("\x1b" in shown) == ("NO_COLOR" in variables)


def test_piped_it_is_plain_and_quiet_is_quiet(run: Any, capture_file: CaptureFile) -> None:
    loud = run("report", capture_file("graph"))
    assert loud.stdout == "report: graph.report.html\n"
    assert "\nGPU 55.3 % busy. " in loud.stderr
    assert "\x1b" not in loud.stderr
    assert max(map(len, loud.stderr.splitlines())) <= 100
    quiet = run("report", "--quiet", capture_file("graph"))
    assert (quiet.stdout, quiet.stderr) == ("report: graph.report.html\n", "")


def test_a_report_on_standard_output_is_alone_there(run: Any, capture_file: CaptureFile) -> None:
    done = run("report", capture_file("graph"), "-o", "-", "--format", "markdown")
    assert done.stdout.startswith("#")
    assert "report: " not in done.stdout
    assert "GPU 55.3 % busy" not in done.stderr


def test_several_files_are_a_line_each(run: Any, capture_file: CaptureFile) -> None:
    done = run("report", capture_file("graph"), capture_file("train"), "-o", "both")
    assert done.stdout == "report: both/graph.report.html\nreport: both/train.report.html\n"
    lines = [line for line in done.stderr.splitlines() if "% busy" in line]
    assert [line.split(":")[0] for line in lines] == ["graph", "train"]
    assert "Kernel" not in done.stderr


# -- lines ------------------------------------------------------------------------------------------------------------


def test_no_output_controls_a_terminal() -> None:
    with as_terminal() as terminal:
        say("Error: no \x1b]0;title\x07\x9b31m file\r\nof this name\t", "Hint: none")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", terminal.text)
    assert terminal.text.count("\n") == 2


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("utf-8", "−3 µs · a…b → 漢"), ("latin-1", "-3 µs · a~b > ?"), ("ascii", "-3 us * a~b > ?")],
)
def test_signs_that_an_encoding_lacks_are_typed_and_columns_stay(encoding: str, text: str) -> None:
    assert encodable("−3 µs · a…b → 漢", encoding) == text


@given(st.text(max_size=50), st.sampled_from(["ascii", "latin-1", "cp437", "cp1252", "utf-8"]))
@examples(50)
def test_any_text_can_be_printed(text: str, encoding: str) -> None:
    plain = text.encode("utf-8", "replace").decode()
    assert len(encodable(plain, encoding).encode(encoding)) >= len(plain) * (encoding != "utf-8")


@pytest.mark.parametrize(("given_", "width"), [("120", 120), ("7", 40), ("9999", 300), ("0", 80), ("wide", 80)])
def test_a_width_can_be_asked_for(monkeypatch: pytest.MonkeyPatch, given_: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", given_)
    with as_terminal():
        assert width_of(err=True) == width


def test_what_is_piped_has_a_fixed_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    with redirect_stdout(io.StringIO()):
        assert width_of() == 100


# -- messages ---------------------------------------------------------------------------------------------------------

EVIL = "a\n::error title=x::pwned ##[error]y\x1b[31m\u202e"


def test_a_message_is_one_line_whatever_names_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"report: {EVIL}", "  ::stop-commands::x", "::::", "##vso[task]#teamcity[ ## [", err=True)
    say(f"report: {EVIL}")
    out, err = capsys.readouterr()
    one = "report: a ::error title=x::pwned # #[error]y\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}\n"
    assert out == one
    assert err == f"{one}  : :stop-commands::x\n: :::\n# #vso[task]#teamcity[ ## [\n"


def test_what_was_asked_for_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    put("a\tb\x1b\n::b ##[c]\n")
    assert capsys.readouterr().out == "a\tb\x1b\n::b ##[c]\n"
    with as_terminal() as terminal:
        put(EVIL)
    assert "\x1b" not in terminal.text


@pytest.mark.parametrize(
    "command",
    [
        ("report", f"{EVIL}.sqlite"),
        ("report", f"{EVIL}.csv"),
        ("report", f"{EVIL}.missing"),
        ("stats", f"{EVIL}.csv", "-r", "cuda_api_sum"),
        ("compare", "--baseline", f"{EVIL}.sqlite", "--candidate", f"{EVIL}.csv"),
        ("history", "add", "--name", EVIL, "graph.sqlite"),
        ("history", "add", f"{EVIL}.sqlite"),
        ("sanitize", f"{EVIL}.sqlite", "-o", f"{EVIL}.clean.sqlite"),
        ("profile", f"{EVIL}.py"),
        ("init-workload", EVIL),
        (EVIL,),
    ],
    ids=lambda command: " ".join(command)[:24].encode("ascii", "replace").decode(),
)
def test_no_name_of_a_file_breaks_a_line(
    command: tuple[str, ...], capture_file: CaptureFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    copyfile(capture_file("graph"), f"{EVIL}.sqlite")
    copyfile(capture_file("graph"), "graph.sqlite")
    Path(f"{EVIL}.csv").write_text("1,2")
    result = CliRunner().invoke(main, command)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "::pwned" in result.output
    assert not re.search(r"^\s*::|##\[|[\x00-\x09\x0b-\x1f\u202e]", result.output, re.MULTILINE)


def test_everything_is_printed_in_one_place() -> None:
    package = Path(PIPELINE) / "nightsight"
    printing = re.compile(r"^(?!.*print\(json).*(?:\bclick\.s?echo|(?<![\w.\"])print)\(", re.MULTILINE)
    printed = (path for path in package.rglob("*.py") if printing.search(path.read_text()))
    names = {path.relative_to(package).as_posix() for path in printed}
    # in those: code that another Python runs, and code to paste
    others = {"collect/worktrees.py", "collect/doctor.py", "results/code.py", "results/switches.py"}
    assert names - others == {"commands/console.py"}


# -- progress ---------------------------------------------------------------------------------------------------------


def test_without_a_terminal_each_stage_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress() as progress:
        progress("run 1 of 2", done=0, of=2, is_series=True)
        progress("profiling")
        progress("run 2 of 2", done=1, of=2, is_series=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["run 1 of 2 ...", "profiling ..."]
    assert re.fullmatch(r"run 2 of 2, about \d+:\d\d left \.\.\.", lines[2])


@pytest.mark.usefixtures("environment")
def test_bars_show_a_series_and_its_stage_and_go_away() -> None:
    with as_terminal() as terminal, show_progress() as progress:
        progress("run 1 of 3", done=0, of=3, is_series=True)
        progress("reading [/bold]\x1b[31m")
        progress("run 2 of 3", done=1, of=3, is_series=True)
        progress("replaying: 1 of 4 done", done=1, of=4)
        progress("replaying: 2 of 4 done", done=2, of=4)
        with progress.paused():
            say("report: there")
        progress("another")
    text = terminal.text
    assert "[/bold]" in text
    assert "\x1b[31m" not in text
    assert "report: there\n" in text
    assert re.search(r"run 2 of 3.*0:0\d, about 0:0\d left", text)


@pytest.mark.parametrize(
    ("done", "updated_s", "now_s", "left_s"),
    [
        (0, 100.0, 130.0, None),
        (1, 120.0, 120.0, 60.0),
        (1, 120.0, 130.0, 50.0),
        (2, 140.0, 300.0, 0.0),
        (4, 180.0, 180.0, 0.0),
    ],
)
def test_what_is_left_follows_from_the_parts_that_are_done(
    done: float, updated_s: float, now_s: float, left_s: float | None
) -> None:
    assert Clock(100.0, of=4, done=done, updated_s=updated_s).left_s(now_s) == left_s


def test_what_was_done_before_says_nothing_about_the_speed() -> None:
    assert Clock(100.0, of=4, first=1, done=1, updated_s=100.0).left_s(110.0) is None
    assert Clock(100.0, of=4, first=1, done=2, updated_s=110.0).left_s(110.0) == 20.0
    assert Clock(100.0).left_s(110.0) is None


def test_times_read_as_on_a_clock() -> None:
    assert [clock_text(seconds) for seconds in (0.4, 59.6, 3599, 3723)] == ["0:00", "1:00", "59:59", "1:02:03"]
