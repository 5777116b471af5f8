"""Completion: what is offered, and that real shells complete it with the one line of the documentation."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from nightsight.cli import main
from nightsight.model.report import ids_of
from tests.recorded import Recorded

DOCS = Path(__file__).parents[1] / "docs" / "command-line.md"
PIPELINE = DOCS.parents[1] / "pipeline"


@pytest.fixture
def kept(tmp_path: Path, recorded: Recorded) -> Path:
    """Write a report.json."""
    path = tmp_path / "kept.json"
    path.write_text(recorded.report("train").to_json())
    return path


def offered(*words: str) -> list[str]:
    """Return what the last word is completed to."""
    complete = ShellComplete(main, {}, "nightsight", "_NIGHTSIGHT_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1]) if item.type == "plain"]


def test_commands_options_and_values_are_offered(kept: Path) -> None:
    assert offered("pro") == ["profile", "prove"]
    assert offered("profile", "--help") == ["--help-all", "--help"]
    assert offered("profile", "--collector", "n") == ["nsys", "ncu"]
    assert offered("profile", "ml") == ["mlp"]
    assert offered("prove", "ml") == offered("ab", "--base", "HEAD", "ml") == ["mlp"]
    assert offered("profile", "--names", "modules,py") == ["modules,python"]
    assert offered("profile", "--record", "shapes,st") == ["shapes,stack"]
    assert offered("profile", "--stats", "cuda_gpu_kern_s") == ["cuda_gpu_kern_sum"]
    assert offered("stats", "x.sqlite", "-r", "nvtx_kern") == ["nvtx_kern_sum"]
    assert offered("prove", "--cause", "tensor") == ["tensor_cores"]
    assert offered("prove", "--switch", "tf") == ["tf32"]
    assert offered("completion", "z") == ["zsh"]
    assert offered("history", "s") == ["show"]
    assert offered("show", str(kept), "tensor") == ["tensor_cores"]
    assert offered("show", str(kept), "cuda_gpu_kern") == ["cuda_gpu_kern_sum"]


def test_causes_and_tables_are_those_of_the_report(kept: Path, recorded: Recorded, tmp_path: Path) -> None:
    report = recorded.report("train")
    ids = ids_of(finding.rule for finding in report.findings if finding.severity == "advice")
    names = offered("show", str(kept), "")
    assert names[: len(ids) + 1] == [*ids, "steps"]
    assert "cpu_ops" not in names
    # of a run, and of what cannot be read
    (tmp_path / "run").mkdir()
    shutil.copy(kept, tmp_path / "run" / "report.json")
    assert offered("show", str(tmp_path / "run"), "") == names
    for text in ("", "{}", "[1]"):
        (tmp_path / "other.json").write_text(text)
        assert offered("show", str(tmp_path / "other.json"), "cpu_ops") == ["cpu_ops"]


def test_the_document_has_the_line_for_each_shell() -> None:
    lines = re.findall(r"^\| (\w+) \| `(.+?)` \|", DOCS.read_text("utf-8"), re.MULTILINE)
    assert {name: line.replace("\\|", "|") for name, line in lines} == LINES


LINES = {
    "bash": 'eval "$(nightsight completion bash)"',
    "zsh": 'eval "$(nightsight completion zsh)"',
    "fish": "nightsight completion fish | source",
}
TYPED = (
    ("pro", r"(?s)profile\b.*prove\b"),
    ("profile --help-", r"--help-all"),
    ("profile --names modules,pyt", r"modules,python"),
    ("profile ml", r"mlp"),
    ("profile scri", r"script\.py"),
    ("show kept.json tensor", r"tensor_cores"),
    ("show kept.json cuda_gpu_ker", r"cuda_gpu_kern_sum"),
)


@pytest.fixture
def shell(kept: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Put nightsight on PATH, as an installation does, and change to a folder with a report and a script."""
    folder = kept.parent / "bin"
    folder.mkdir()
    program = folder / "nightsight"
    start = f"import sys; sys.path.insert(0, {str(PIPELINE)!r})\nfrom nightsight.__main__ import main\nmain()\n"
    program.write_text(f"#!{sys.executable}\n{start}")
    program.chmod(0o755)
    (kept.parent / "script.py").touch()
    monkeypatch.chdir(kept.parent)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(kept.parent))
    monkeypatch.setenv("TERM", "dumb")

    def found(name: str) -> str:
        return shutil.which(name) or pytest.skip(f"needs {name}")

    return found


@contextmanager
def terminal(*command: str) -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """Start a shell on a terminal; yield what types into it, and what reads until a pattern is there."""
    process, descriptor = pty.fork()
    if process == 0:
        os.execv(command[0], command)

    def type_in(text: str) -> None:
        os.write(descriptor, text.encode())

    def read_until(pattern: str) -> None:
        shown = ""
        while not re.search(pattern, shown):
            assert select.select([descriptor], [], [], 120)[0], f"{pattern} is not in {shown!r}"
            shown += os.read(descriptor, 65_536).decode(errors="replace")

    try:
        yield type_in, read_until
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(descriptor)


@pytest.mark.parametrize(
    ("name", "options", "before"),
    [("bash", ("--norc", "--noprofile", "-i"), ""), ("zsh", ("-f", "-i"), "autoload -Uz compinit; compinit -u -D; ")],
)
def test_bash_and_zsh_complete(shell: Callable[[str], str], name: str, options: tuple[str, ...], before: str) -> None:
    with terminal(shell(name), *options) as (type_in, read_until):
        # what is typed is shown, too: the sum is not
        type_in(f"PS1='> '; {before}{LINES[name]}; echo ready $((40 + 2))\n")
        read_until("ready 42")
        for text, pattern in TYPED:
            # twice, as bash lists several names only then
            type_in(f"nightsight {text}\t\t")
            read_until(pattern)
            type_in(f"\x15echo again $((40 + {len(text)}))\n")
            read_until(f"again {40 + len(text)}")


def test_fish_completes(shell: Callable[[str], str]) -> None:
    fish = shell("fish")
    for text, pattern in TYPED:
        code = f'{LINES["fish"]}; complete -C "nightsight {text}"'
        done = subprocess.run([fish, "--no-config", "-c", code], capture_output=True, text=True, check=True)
        assert re.search(pattern, done.stdout), (text, done.stdout, done.stderr)


def test_a_script_of_a_shell_is_printed(run: Any) -> None:
    for name in LINES:
        assert "_NIGHTSIGHT_COMPLETE" in run("completion", name).stdout
