"""Each collector in a folder whose modules bear the names of ours: programs get their own, and we get ours.

Once as the tests run, once from a wheel in an environment of its own.
"""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import Result

from nightsight import collect
from nightsight.collect.tools import ask_python
from nightsight.model.report import Report

ROOT = Path(__file__).parents[1]
Fake = Callable[..., Path]
Run = Callable[..., Result]

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

# whoever imports one of these and is not the user's program ends with this message
OWN = """
import sys
if not hasattr(sys.modules["__main__"], "of_the_user"):
    raise SystemExit("the user's " + __name__ + " was imported")
"""
OWN_MODULES = (
    *("pipeline/__init__.py", "pipeline/cli.py", "workloads/__init__.py", "workloads/runner.py"),
    *("runner.py", "traced.py", "launch_bound.py", "guard.py", "collect.py", "templates/__init__.py"),
)
# these hide modules from `python -m nightsight`, which looks in the working folder first, but not from the command
HIDING = ("nightsight.py", "platform.py")
PROGRAM = """
of_the_user = True
import json, os, sys
import pipeline.cli, runner, templates, workloads.runner
modules = (pipeline, pipeline.cli, runner, templates, workloads, workloads.runner)
files = sorted(os.path.relpath(module.__file__) for module in modules)
with open("seen.jsonl", "a") as seen:
    print(json.dumps([files, sys.argv[1:]]), file=seen)
"""
IMPORTED = [
    *("pipeline/__init__.py", "pipeline/cli.py", "runner.py", "templates/__init__.py"),
    *("workloads/__init__.py", "workloads/runner.py"),
]
WITH_TORCH = f"{PROGRAM}\nimport torch\ntorch.ones(64).sum()\n"

TARGETS = {
    "script": ("train.py", "--", "--lr", "1"),
    "command": ("--", sys.executable, "-m", "job", "--lr", "1"),
    "workload": (
        *("launch_bound", "--", "--kernels", "1", "--iterations", "1", "--warmup", "0", "--trials", "1"),
        *("--device", "cpu"),
    ),
}
NAMES = {"script": "train", "workload": "launch_bound", "command": "python"}
# how each collector is asked for, and how often it runs a program
COLLECTORS = {
    "nsys": (("--collector", "nsys", "--no-ncu"), 1),
    "nsys and ncu": (("--collector", "nsys"), 2),
    "ncu": (("--collector", "ncu"), 1),
    "torch": (("--collector", "torch"), 1),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder with their own modules, and with pages and a registry that are not ours."""
    folder = tmp_path / "project"
    for name in OWN_MODULES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(OWN)
    (folder / "workloads/registry.toml").write_text("not ours")
    (folder / "templates/report.html").write_text("not ours")
    (folder / "job").mkdir()
    (folder / "job/__main__.py").write_text(PROGRAM)
    (folder / "train.py").write_text(WITH_TORCH if find_spec("torch") else PROGRAM)
    return folder


@pytest.fixture
def fakes(fake_nsys: Fake, fake_ncu: Fake) -> None:
    """Put a fake nsys and a fake ncu on PATH."""
    fake_nsys()
    fake_ncu()


def check(project: Path, collector: str, target: str) -> None:
    """Check what the program imported, if it is the user's, how often it ran, and that there is a report."""
    _, runs = COLLECTORS[collector]
    seen = project / "seen.jsonl"
    lines = seen.read_text().splitlines() if seen.exists() else []
    expected = [IMPORTED, ["--lr", "1"]]
    assert [json.loads(line) for line in lines] == ([] if target == "workload" else [expected] * runs)
    folder = next(path for path in (project / "reports").glob("*/latest"))
    assert folder.parent.name.startswith(NAMES[target])
    assert "not ours" not in (folder / "report.html").read_text()
    report = Report.from_json((folder / "report.json").read_text())
    assert report.environment.collector.partition(".")[0] == collector.partition(" ")[0]


def test_every_collector_is_tried_here() -> None:
    assert {name.partition(" ")[0] for name in COLLECTORS} == set(collect.COLLECTORS)


@pytest.mark.nightly
# with torch itself a program takes seconds, and workloads are run once more to be timed
@pytest.mark.parametrize(
    ("collector", "target"),
    [
        ("nsys", "script"),
        ("nsys and ncu", "command"),
        ("ncu", "script"),
        pytest.param("nsys and ncu", "workload", marks=needs_torch),
        pytest.param("torch", "script", marks=needs_torch),
        pytest.param("torch", "workload", marks=needs_torch),
    ],
)
def test_programs_get_their_own_modules_and_we_get_ours(
    run: Run, fakes: None, project: Path, monkeypatch: pytest.MonkeyPatch, *, collector: str, target: str
) -> None:
    monkeypatch.chdir(project)
    if collector != "torch":
        (project / "train.py").write_text(PROGRAM)
    options, _ = COLLECTORS[collector]
    run("profile", *options, *TARGETS[target])
    check(project, collector, target)


def test_a_python_is_asked_without_the_modules_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "platform.py").write_text(OWN)
    (tmp_path / "torch.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    code = "import platform, importlib.util; print(importlib.util.find_spec('torch'))"
    assert str(tmp_path) not in ask_python(sys.executable, code)


# -- from a wheel -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this tree."""
    installed = {each.name for each in distributions()}  # setuptools breaks in a process that looks for the module pip
    if not {"hatchling", "pip"} <= installed:
        pytest.skip("needs hatchling and pip")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install it where there is nothing else but what it needs; return the folder of the programs there."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    programs = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-compile", "--disable-pip-version-check", str(wheel)], check=True, capture_output=True)
    # a folder named in a .pth has its own .pth files ignored: the checkout is not on the path
    needed = dict.fromkeys((sysconfig.get_path("purelib"), *sys.path))
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "needed.pth").write_text("".join(f"{path}\n" for path in needed if path.endswith("-packages")))
    return programs


def called(programs: Path, folder: Path, *command: object, expect: int = 0) -> str:
    """Call one of the installed programs in a folder, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["VIRTUAL_ENV"] = str(programs.parent)
    program, *arguments = map(str, command)
    done = subprocess.run(
        [str(programs / program), *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == expect, done.stderr
    return done.stdout


def test_a_wheel_holds_one_package_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"nightsight"}
    assert not [name for name in names if "__pycache__" in name or "node_modules" in name]
    packed = {name.removeprefix("nightsight/") for name in names if name.startswith("nightsight/")}
    for top in ("pipeline/nightsight", "templates/scripts", "templates/styles", "templates/macros", "workloads"):
        of_tree = (path for path in (ROOT / top).rglob("*") if path.is_file() and path.suffix != ".pyc")
        base = ROOT / "pipeline/nightsight" if top.startswith("pipeline") else ROOT
        assert {str(path.relative_to(base)) for path in of_tree} <= packed


def test_a_wheel_takes_one_name(installed: Path, tmp_path: Path) -> None:
    assert called(installed, tmp_path, "python", "-c", "import nightsight; print(nightsight.__file__)").startswith(
        str(installed.parent / "lib")
    )
    for name in ("pipeline", "workloads", "templates", "tests"):
        called(installed, tmp_path, "python", "-c", f"import {name}", expect=1)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("collector", "target"),
    [
        ("nsys and ncu", "script"),
        ("ncu", "command"),
        pytest.param("torch", "script", marks=needs_torch),
        pytest.param("torch", "workload", marks=needs_torch),
    ],
)
def test_an_installed_one_gives_programs_their_own_modules_too(
    installed: Path, fakes: None, project: Path, collector: str, target: str
) -> None:
    options, _ = COLLECTORS[collector]
    if collector != "torch":
        (project / "train.py").write_text(PROGRAM)
    called(installed, project, "python", "-m", "nightsight", "profile", *options, *TARGETS[target])
    check(project, collector, target)


def test_the_command_is_not_hidden_by_modules_of_the_working_folder(
    installed: Path, fakes: None, project: Path
) -> None:
    for name in HIDING:
        (project / name).write_text(OWN)
    (project / "train.py").write_text(PROGRAM)
    options, _ = COLLECTORS["nsys"]
    called(installed, project, "nightsight", "profile", *options, *TARGETS["script"])
    check(project, "nsys", "script")
