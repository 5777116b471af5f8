"""How a command can end, and the exit status of each: a gate must not take a bug or Ctrl-C for a regression."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nightsight import analyze, errors
from nightsight.analyze.analysis import Analysis
from nightsight.cli import main
from nightsight.errors import CRASHED, PipelineError
from nightsight.results import RESULTS
from nightsight.runs import layout
from nightsight.workflows import analysis, opening, profile, report, stats
from tests.build import build
from tests.damage import PICTURE

# under nohup SIGHUP is ignored, and stays so
SIGNALS = [
    number
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    if signal.getsignal(number) is not signal.SIG_IGN
]


@pytest.fixture
def capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "secret").mkdir()
    return build(PICTURE, tmp_path / "secret" / "drawn.sqlite", generation="2025")


def crashing(*_: object, **__: object) -> None:
    raise ZeroDivisionError("division\nby zero")


def ended(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def commands(capture: Path) -> list[tuple[object, ...]]:
    return [
        ("report", capture, "-o", "page.html"),
        ("stats", capture, "-r", "cuda_gpu_kern_sum"),
        ("compare", "--gate", "--baseline", capture, "--candidate", capture),
        ("history", "add", capture),
    ]


# -- a bug ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("report",), ("report", "--format", "perfetto"), ("compare", "--candidate")])
def test_a_bug_in_a_result_names_the_file_though_it_is_computed_when_it_is_asked_for(
    command: tuple[str, ...], capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = (entry for entry in RESULTS if entry.name in ("cuda_gpu_kern_sum", "step_split"))
    broken = tuple(Analysis(entry, crashing) for entry in named)  # type: ignore[arg-type]
    kept = (analysis for analysis in analyze.ANALYSES if analysis.entry not in [each.entry for each in broken])
    monkeypatch.setattr(analyze, "ANALYSES", (*kept, *broken))
    files = (capture,) if command[0] == "report" else (capture, "--baseline", capture)
    result = ended(*command, *files)
    assert result.exit_code == CRASHED
    assert f"crashed on {capture} (stage: " in result.stderr


def test_a_bug_is_one_line_with_file_stage_and_log_and_no_gate_takes_it_for_a_regression(
    capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashing_on(*_: object, **__: object) -> None:
        raise ZeroDivisionError(f"in\n{capture}")

    monkeypatch.setattr(opening, "with_own_gpus", crashing_on)
    monkeypatch.setattr(stats, "print_stats", crashing_on)
    for command in commands(capture):
        result = ended(*command)
        assert result.exit_code == CRASHED
        line = result.stderr.splitlines()[-1]
        match = re.fullmatch(
            rf"Error: nightsight crashed on {capture} \(stage: (.*)\): ZeroDivisionError: in .*drawn\.sqlite\. "
            r"This is a bug: please report it on nightsight's issue tracker, with the log \((.*)\)",
            line,
        )
        assert match, line
        assert match[1]
        assert "Traceback" not in result.output
        log = Path(match[2]).read_text()
        assert "Traceback" in log
        assert re.search(r'File "nightsight/\S+\.py", line \d+, in \w+', log)
        assert "secret" not in log
        assert str(Path(__file__).parents[1]) not in log


def test_the_stage_of_a_bug_is_the_last_message_of_progress(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "build_report", crashing)
    assert f"on {capture} (stage: looking for causes in drawn.sqlite)" in ended("report", "-q", capture).stderr
    monkeypatch.setattr(opening, "read", crashing)
    assert f"on {capture} (stage: reading)" in ended("report", capture).stderr


def test_debug_shows_the_traceback(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "build_report", crashing)
    result = ended("--debug", "report", capture)
    assert result.exit_code == CRASHED
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError" in result.stderr.splitlines()[-1]


def test_a_module_that_cannot_be_imported_is_a_line_too(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nightsight.workflows.report", None)
    result = ended("report", capture)
    assert result.exit_code == CRASHED
    assert result.stderr.startswith("Error: nightsight crashed (stage: nightsight report): ModuleNotFoundError")


def test_a_bug_while_a_run_is_reported_names_the_capture_that_is_kept(
    script: Any, fake_nsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nsys()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profile, "build_report", crashing)
    result = ended("profile", "--collector", "nsys", "--no-ncu", script())
    (kept,) = tmp_path.glob("reports/train/*/capture/*.sqlite")
    assert result.exit_code == CRASHED
    assert f"crashed on {kept} (stage: looking for causes)" in result.stderr


def test_too_little_memory_is_a_line_that_says_what_would_help(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(opening, "read", greedy)
    result = ended("report", capture)
    assert result.exit_code == PipelineError.exit_code
    error, hint = result.stderr.splitlines()
    assert error == f"Error: not enough memory on {capture} (stage: reading)"
    assert "Use a machine with more memory" in hint


# -- signals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_the_exit_status_even_if_something_made_another_error_of_it(
    capture: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def struck(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt as error:
            raise ImportError("a library was not loaded") from error

    monkeypatch.setattr(opening, "with_own_gpus", struck)
    monkeypatch.setattr(stats, "print_stats", struck)
    before = signal.getsignal(number)
    for command in commands(capture):
        result = ended(*command)
        assert (result.exit_code, result.stderr.splitlines()[-1]) == (128 + number, "Error: interrupted")
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_the_exit_status_also_where_a_report_was_written(
    capture: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    real = analysis.build_report

    def caught(*given: Any, **named: Any) -> Any:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        return real(*given, **named)

    monkeypatch.setattr(analysis, "build_report", caught)
    assert ended("report", capture, "-o", "page.html").exit_code == 128 + number
    assert Path("page.html").is_file()


def test_a_signal_while_modules_are_imported_is_one_line(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(ModuleType):
        def __getattr__(self, name: str) -> object:
            if name == "Output":
                os.kill(os.getpid(), signal.SIGTERM)
            raise AttributeError(name)

    monkeypatch.setitem(sys.modules, "nightsight.workflows.report", Slow("nightsight.workflows.report"))
    result = ended("report", capture)
    assert (result.exit_code, result.stderr) == (143, "Error: interrupted\n")


def test_ctrl_c_while_the_command_line_itself_is_imported_is_one_line() -> None:
    code = (
        "import sys\n"
        "class Struck:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'nightsight.cli': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Struck())\n"
        "from nightsight.__main__ import main\n"
        "main()"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "pipeline")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (130, "Error: interrupted\n")


def test_a_signal_that_is_ignored_stays_ignored(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    real = layout.write_file

    def written(*given: Any, **named: Any) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        real(*given, **named)

    monkeypatch.setattr(report, "write_file", written)
    try:
        assert ended("report", capture).exit_code == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_reader_that_goes_away_ends_the_command_without_a_word() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "pipeline")}
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "nightsight", "workloads"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")
    # an error that nobody reads keeps its status
    command = [sys.executable, "-m", "nightsight", "profile", "mlpp"]
    assert subprocess.run(command, stdout=writer, stderr=writer, env=environment, check=False).returncode == 2
    os.close(writer)


# -- what documents say -----------------------------------------------------------------------------------------------


def test_each_exit_status_is_in_the_one_table() -> None:
    text = (Path(__file__).parents[1] / "docs" / "command-line.md").read_text(encoding="utf-8")
    table = re.split(r"^## ", text, flags=re.MULTILINE)[1]
    assert table.startswith("Exit status")
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PipelineError)]
    of_signals = {128 + number for number in (*SIGNALS, signal.SIGPIPE)}
    assert listed == {0, 4, CRASHED, *of_signals, *(kind.exit_code for kind in kinds)}
