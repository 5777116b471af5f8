"""`--local-paths`: printed texts name files by their path here, and nothing that is written or attached does."""

import json
from pathlib import Path
from typing import Any

import pytest

from nightsight.render import FORMATS
from nightsight.workflows.local import LocalFiles
from tests.recorded import DATA, unpacked
from tests.test_cli import USAGE, FakeNsys

PLACE = "`sample` in blind.py:249"
CODE = "\n" * 240 + "class Images:\n    def sample(self, number):\n" + "        pass\n" * 20


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with a source file that the capture `graph_sampling` names."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "src" / "secret" / "blind.py", CODE)
    return tmp_path


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_is_named_by_its_path_if_only_one_can_be_meant(project: Path) -> None:
    named = LocalFiles(project).named
    assert named(f"host code ({PLACE}, called)") == "host code (`sample` in src/secret/blind.py:249, called)"
    assert named("sample (blind.py:249)") == "sample (src/secret/blind.py:249)"
    assert named("in blind.py:249 and blind.py:3") == "in src/secret/blind.py:249 and src/secret/blind.py:3"
    for text in (
        "blind.py",
        "other.py:12",
        "lib/blind.py:249",
        "my_blind.py:3",
        "blind.pyc:3",
        "~blind.py:3",
    ):
        assert named(text) == text


def test_of_several_files_the_function_decides(project: Path) -> None:
    written(project / "old" / "blind.py", CODE.replace("sample", "load"))
    named = LocalFiles(project).named
    assert named(PLACE) == "`sample` in src/secret/blind.py:249"
    assert named("load (blind.py:249)") == "load (old/blind.py:249)"
    # before the function, and without a function
    for text in ("load (blind.py:3)", "blind.py:249"):
        assert named(text) == text
    written(project / "copy" / "blind.py", CODE)
    assert LocalFiles(project).named(PLACE) == PLACE
    written(project / "copy" / "blind.py", "def (")
    assert LocalFiles(project).named(PLACE) != PLACE


def test_libraries_and_hidden_folders_are_not_searched(project: Path) -> None:
    for folder in ("lib/site-packages", ".hidden", "env/lib"):
        written(project / folder / "model.py", "")
    written(project / "env" / "pyvenv.cfg", "")
    (project / "linked").symlink_to(project / "src")
    named = LocalFiles(project).named
    assert named("model.py:1") == "model.py:1"
    assert named("blind.py:1") == "src/secret/blind.py:1"


def test_the_files_of_the_repository_around_a_folder_are_known(project: Path) -> None:
    (project / ".git").mkdir()
    (project / "runs").mkdir()
    assert LocalFiles(project / "runs").named("blind.py:1") == "../src/secret/blind.py:1"


def test_names_of_files_cannot_break_lines(project: Path) -> None:
    written(project / "a\x1b[31m\nb" / "model.py", "")
    assert "\n" not in LocalFiles(project).named("model.py:1")
    assert "\x1b" not in LocalFiles(project).named("model.py:1")


def test_a_large_folder_is_searched_in_part(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nightsight.workflows.local._MOST_FILES", 0)
    assert LocalFiles(project).named("blind.py:1") == "blind.py:1"


def test_briefs_answers_and_screens_have_paths_and_files_have_none(project: Path, run: Any) -> None:
    capture = unpacked(DATA / "real" / "graph_sampling.sqlite.xz", project)
    local = "src/secret/blind.py:249"
    brief = run("report", capture, "--format", "brief", "--local-paths")
    assert local in brief.stdout
    assert len(brief.stdout.encode()) <= 3000
    assert local not in run("report", capture, "--format", "brief").stdout
    for style in FORMATS:
        is_text = "json" not in style
        done = run("report", capture, "--format", style, "-o", f"out/{style}/", *["--local-paths"] * is_text)
        # the first screen is printed
        assert (local in done.stderr) == is_text
    files = [path for path in (project / "out").rglob("*") if path.is_file()]
    assert len(files) > len(FORMATS)
    assert not [path for path in files if b"secret" in path.read_bytes()]
    kept = run("report", capture, "-o", "report.json", "--local-paths")
    assert local in kept.stderr
    assert b"secret" not in (project / "report.json").read_bytes()
    assert local in run("show", "report.json", "host_code", "--local-paths").stdout
    for words in (("report", capture, "--format", "brief.json"), ("show", "report.json", "--format", "json")):
        assert "--local-paths is for texts" in run(*words, "--local-paths", expect=USAGE).stderr


def test_a_run_keeps_no_path(project: Path, run: Any, script: Any, fake_nsys: FakeNsys) -> None:
    fake_nsys()
    run("profile", "--collector", "nsys", "--local-paths", "--format", "brief", script())
    kept = [path for path in (project / "reports").rglob("report.*") if path.is_file()]
    assert {path.name for path in kept} == {"report.html", "report.json"}
    assert not [path for path in kept if b"secret" in path.read_bytes()]
    assert json.loads(next(path for path in kept if path.suffix == ".json").read_text())["format"] == 1
