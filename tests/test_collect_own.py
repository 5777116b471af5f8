"""The user's own workloads: what a folder or a pyproject.toml gives names, and the script to begin with."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from nightsight.collect.own import OwnWorkload, own_workloads, write_workload
from nightsight.collect.workloads import Program, registered_workloads, resolve
from nightsight.errors import UsageError
from nightsight.model.report import Report
from nightsight.results.ranges import NVTX_RANGES

Run = Callable[..., Result]
Project = Callable[..., Path]
NAMES = [workload.name for workload in registered_workloads()]
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Write a project with some scripts and the table given, and go to a folder inside it."""

    def write(table: str = "", *scripts: str) -> Path:
        folder = tmp_path / "project"
        (folder / "deep" / "er").mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").write_text(table)
        for script in scripts:
            path = folder / script
            path.parent.mkdir(exist_ok=True)
            path.write_text('"""Trains a model.\n\nFor long."""\n')
        monkeypatch.chdir(folder / "deep" / "er")
        return folder

    return write


# -- what has a name --------------------------------------------------------------------------------------------------


def test_the_scripts_of_a_folder_have_their_names(project: Project) -> None:
    scripts = ("bench/train.py", "bench/eval.py", "bench/_helpers.py", "bench/notes.txt", "other.py")
    folder = project('[tool.nightsight]\nworkloads = "bench/"', *scripts)
    expected = tuple(OwnWorkload(name, folder / "bench" / f"{name}.py") for name in ("eval", "train"))
    assert own_workloads() == expected
    assert own_workloads(folder / "bench") == expected
    assert [workload.name for workload in own_workloads(folder)] == ["other"]
    assert expected[0].summary == "Trains a model."


def test_a_table_names_scripts_and_arguments(project: Project) -> None:
    table = """
    [tool.nightsight.workloads]
    train = "train.py"
    train-short = { script = "./train.py", arguments = ["--epochs", "1"] }
    """
    folder = project(table, "train.py")
    script = folder / "train.py"
    assert own_workloads() == (
        OwnWorkload("train", script),
        OwnWorkload("train-short", script, ("--epochs", "1")),
    )
    program = resolve("train-short", ["--lr", "2"], python="python3")
    command = ("python3", str(script), "--epochs", "1", "--lr", "2")
    assert program == Program("train-short", "script", command)


def test_the_nearest_project_that_has_a_table_counts(project: Project, tmp_path: Path) -> None:
    folder = project('[tool.nightsight]\nworkloads = "bench"', "bench/train.py")
    (folder / "deep" / "pyproject.toml").write_text('[project]\nname = "nightsight-plugin"')
    assert [workload.name for workload in own_workloads()] == ["train"]
    (folder / "deep" / "pyproject.toml").write_text("[tool.nightsight]")
    assert own_workloads() == ()


def test_what_does_not_name_us_may_be_damaged(project: Project) -> None:
    project("[[[")
    assert own_workloads() == ()


@pytest.mark.parametrize("source", [b"", b"brackets = (", b"\xff", b"'''x'''\0", b"1\n'''late'''", b"(" * 5000])
def test_a_script_that_says_nothing_has_no_summary(tmp_path: Path, source: bytes) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(source)
    assert OwnWorkload("train", path).summary == ""
    assert OwnWorkload("train", tmp_path / "absent.py").summary == ""


def test_a_script_with_the_name_of_a_workload_of_ours_is_meant_by_it_and_keeps_its_runs_apart(project: Project) -> None:
    folder = project('[tool.nightsight]\nworkloads = "bench"', "bench/mlp.py")
    program = Program("mlp_file", "script", ("python3", str(folder / "bench" / "mlp.py")))
    assert resolve("mlp", [], python="python3") == program


def test_what_is_no_name_needs_no_table(project: Project) -> None:
    folder = project("[tool.nightsight]\nworkloads = 3", "train.py")
    assert resolve(str(folder / "train.py"), []).name == "train"
    assert resolve(None, [sys.executable]).kind == "command"
    with pytest.raises(UsageError, match="workloads is neither a folder nor a table"):
        resolve("mlp", [])


def test_the_error_of_an_unknown_name_lists_the_names_there_are(project: Project) -> None:
    project('[tool.nightsight]\nworkloads = "bench"', "bench/train.py")
    with pytest.raises(UsageError, match="unknown workload 'trian'") as raised:
        resolve("trian", [])
    assert raised.value.hint.startswith("Did you mean train? Workloads: train, mlp, ")


@pytest.mark.parametrize(
    ("table", "message", "hint"),
    [
        ('[tool]\nnightsight = "bench"', "it is not a table", "docs/workloads.md"),
        ("[tool.nightsight]\nworkload = 'bench'", "unknown key 'workload'", "Did you mean workloads?"),
        ("[tool.nightsight]\nworkloads = ['a.py']", "workloads is neither a folder nor a table", "docs"),
        ("[tool.nightsight]\nworkloads = 'absent'", "workloads = 'absent' is not a folder", "Create it"),
        ("[tool.nightsight]\nworkloads = 'train.py'", "workloads = 'train.py' is not a folder", "Create it"),
        (
            "[tool.nightsight]\nworkloads = '..'",
            "workloads = '..' is outside the folder of pyproject.toml",
            "--workloads DIR",
        ),
        ("[tool.nightsight]\nworkloads = '/tmp'", "workloads = '/tmp' is outside", "--workloads DIR"),
        ("[tool.nightsight.workloads]\n'-a b' = 'train.py'", "'-a b' is not a valid workload name", "letters"),
        ("[tool.nightsight.workloads]\ntrain = 3", "workloads.train is neither a script nor a table", "docs"),
        ("[tool.nightsight.workloads.train]", "workloads.train has no script", 'train = "train.py"'),
        ("[tool.nightsight.workloads.train]\nscript = 3", "workloads.train has no script", 'train = "train.py"'),
        ("[tool.nightsight.workloads]\na.scirpt = 'a.py'", "unknown key 'workloads.a.scirpt'", "Did you mean script?"),
        ("[tool.nightsight.workloads]\na = 'a.py'", "the script 'a.py' of workloads.a does not exist", "path"),
        ('[tool.nightsight.workloads]\na = "a\\u0000.py"', "of workloads.a does not exist", "path"),
        ("[tool.nightsight.workloads]\na = 'pyproject.toml'", "is not a Python script", "path"),
        ("[tool.nightsight.workloads]\na = '../a.py'", "workloads.a = '../a.py' is outside", "--workloads DIR"),
        (f"[tool.nightsight.workloads]\na = '{'a' * 5000}.py'", "cannot access a path", "docs"),
        (
            "[tool.nightsight.workloads.a]\nscript = 'train.py'\narguments = '--epochs 1'",
            "workloads.a.arguments is not a list of strings",
            '["--epochs", "1"]',
        ),
        ("[tool.nightsight.workloads.a]\nscript = 'train.py'\narguments = [1]", "not a list of strings", "epochs"),
        ("[tool.nightsight", "is not valid TOML: ", "Correct it"),
        ("nightsight = " + "[" * 20000, "is not valid TOML: ", "Correct it"),
    ],
)
def test_a_table_that_is_wrong_is_one_line(project: Project, table: str, message: str, hint: str) -> None:
    folder = project(table, "train.py")
    with pytest.raises(UsageError) as raised:
        own_workloads()
    assert message in raised.value.message
    assert str(folder / "pyproject.toml") in raised.value.message
    assert len(raised.value.message.splitlines()) == 1
    assert hint in raised.value.hint


def test_a_table_that_is_not_text_is_one_line(project: Project) -> None:
    folder = project()
    (folder / "pyproject.toml").write_bytes(b"[tool.nightsight]\nworkloads = '\xff'")
    with pytest.raises(UsageError, match="is not in UTF-8"):
        own_workloads()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["workloads", "script", "arguments"]) | st.text(), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(table=VALUES)
def test_any_table_is_workloads_or_one_reason(table: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # as the parser of TOML would return it
        patch.setattr("tomllib.loads", lambda _: {"tool": {"nightsight": table}})
        patch.setattr(Path, "read_bytes", lambda _: b"nightsight")
        try:
            workloads = own_workloads()
        except UsageError as error:
            assert error.message
            return
    assert all(workload.script.is_absolute() for workload in workloads)


def test_a_folder_that_is_not_there(run: Run) -> None:
    for command in (("profile", "--workloads", "absent", "train"), ("workloads", "--workloads", "absent")):
        assert "there is no folder absent" in run(*command, expect=2).stderr


@pytest.mark.parametrize("target", [("train.py",), ("./program",), ("--", "python", "train.py")])
def test_a_folder_of_workloads_does_nothing_for_what_is_not_named_in_it(
    run: Run, tmp_path: Path, target: tuple[str, ...]
) -> None:
    assert "--workloads has no effect on" in run("profile", "--workloads", str(tmp_path), *target, expect=2).stderr


def test_own_workloads_are_listed_first(run: Run, project: Project) -> None:
    folder = project('[tool.nightsight.workloads]\nmlp = {script = "a b.py", arguments = ["1 2"]}', "a b.py")
    (folder / "deep" / "er" / "own.py").touch()
    os.chdir(folder / "deep" / "er")
    names = [line.split()[0] for line in run("workloads").stdout.splitlines() if not line.startswith(" ")]
    assert sorted(names) == sorted(NAMES)
    first, second = run("workloads").stdout.splitlines()[:2]
    assert first.split(maxsplit=1) == ["mlp", "Trains a model."]
    assert second.strip() == f"'{folder / 'a b.py'}' '1 2'"


# -- the script to begin with -----------------------------------------------------------------------------------------


def test_it_is_written_where_workloads_are(project: Project, tmp_path: Path) -> None:
    folder = project('[tool.nightsight]\nworkloads = "bench"')
    assert write_workload("train", None, NAMES) == folder / "bench" / "train.py"
    assert write_workload("train", tmp_path / "new" / "er", NAMES) == tmp_path / "new" / "er" / "train.py"
    project()
    assert write_workload("train", None, NAMES) == Path("train.py")
    text = Path("train.py").read_text()
    assert "nightsight profile train.py" in text
    assert "my_workload" not in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "'' is not a valid workload name"),
        ("..", "'..' is not a valid workload name"),
        ("a/b", "'a/b' is not a valid workload name"),
        ("-rf", "'-rf' is not a valid workload name"),
        ("train.py", "'train.py' is not a valid workload name"),
        ("a\nb", r"'a\nb' is not a valid workload name"),
        ("模型", "'模型' is not a valid workload name"),
        ("a" * 49, "is not a valid workload name"),
        ("mlp", "a workload 'mlp' already exists"),
        ("torch", "would hide the Python module torch"),
        ("argparse", "would hide the Python module argparse"),
        ("random", "would hide the Python module random"),
    ],
)
def test_names_that_a_script_cannot_have(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        write_workload(name, tmp_path, NAMES)
    assert message in raised.value.message
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("mine")
    with pytest.raises(UsageError, match=r"train.py exists"):
        write_workload("train", tmp_path, NAMES)
    assert path.read_text() == "mine"
    with pytest.raises(UsageError, match="cannot write"):
        write_workload("eval", path, NAMES)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "nightsight profile train.py"),
        (("--workloads", "my bench"), "nightsight profile --workloads 'my bench' train"),
    ],
)
def test_the_command_says_how_to_go_on(run: Run, options: tuple[str, ...], expected: str) -> None:
    stdout = run("init-workload", *options, "train").stdout
    assert stdout.splitlines()[1] == f"run it: {expected}"
    assert "exists" in run("init-workload", *options, "train", expect=2).stderr


def test_the_command_refuses_the_name_of_the_sample(run: Run) -> None:
    assert "a workload 'sample' already exists" in run("init-workload", "sample", expect=2).stderr


@needs_torch
def test_what_is_written_runs_alone(tmp_path: Path) -> None:
    path = write_workload("train", tmp_path, NAMES)
    # -I and -S would hide torch; an empty folder shows that nothing of ours is imported
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ""}
    command = [sys.executable, str(path), "--steps", "3", "--dim", "8"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("3 steps of ")


@needs_torch
def test_what_is_written_makes_a_report_with_its_steps(
    run: Run, project: Project, monkeypatch: pytest.MonkeyPatch, torch_python: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    folder = project('[tool.nightsight]\nworkloads = "bench"')
    monkeypatch.chdir(folder)
    run("init-workload", "tiny")
    reports = folder / "reports"
    of_torch = ("--collector", "torch", "--python", torch_python)
    run("profile", *of_torch, "--reports", reports, "tiny", "--", "--steps", "12", "--dim", "32")
    (path,) = reports.glob("tiny/2*/report.json")
    report = Report.from_json(path.read_text())
    (chosen,) = (window for window in report.windows if window.is_chosen)
    assert (chosen.family, chosen.repetitions) == ("step", 12)
    ranges = report.rows(NVTX_RANGES).set_index("path")["instances"]
    assert ranges["measure / step / matmul"] == 12
    (trace,) = path.parent.glob("capture/*.json.gz")
    names = [event.get("name") for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]]
    assert names.count("matmul") == 17
