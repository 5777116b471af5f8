"""Which Python runs a program: the user's, and what that is where nightsight has an environment of its own."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from nightsight.collect import Choice, needs_of
from nightsight.collect.interpreter import Interpreter, interpreter
from nightsight.model.report import Report

ROOT = Path(__file__).parents[1]


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_asked_for_before_the_active_environment_before_path_before_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert interpreter() == Interpreter(sys.executable, "nightsight's own")
    on_path = program(tmp_path / "bin/python3")
    assert interpreter() == Interpreter(str(on_path), "python3 on PATH")
    conda = program(tmp_path / "conda/bin/python")
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    assert interpreter() == Interpreter(str(conda), "of the active environment, CONDA_PREFIX")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    assert interpreter().path == str(conda), "an environment that is gone is passed over"
    active = program(tmp_path / "venv/bin/python3")
    assert interpreter() == Interpreter(str(active), "of the active environment, VIRTUAL_ENV")
    monkeypatch.chdir(tmp_path)
    assert interpreter("bin/python3") == Interpreter(str(on_path), "named with --python")
    assert interpreter("/no/python").path == "/no/python"


def test_our_own_runs_what_python3_on_path_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    on_path = program(tmp_path / "bin/python3")
    on_path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    usual = Interpreter(str(on_path), "python3 on PATH")
    # pandas is what nightsight itself needs
    assert interpreter(needs=lambda: ("json", "pandas")) == Interpreter(
        sys.executable, "nightsight's own: python3 on PATH lacks pandas", is_substitute=True
    )
    assert interpreter(needs=lambda: ("json", "pandas")).remark == (
        f"Python: {sys.executable} (nightsight's own: python3 on PATH lacks pandas)"
    )
    assert interpreter(needs=lambda: ("json",)) == interpreter() == usual
    assert interpreter(needs=lambda: ("json", "no_such_module")) == usual, "our own lacks it too"
    on_path.write_text("#!/bin/sh\nexit 1\n")
    assert interpreter(needs=lambda: ("json",)).path == sys.executable, "it does not run at all"
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    active = program(tmp_path / "venv/bin/python3")
    assert interpreter(needs=lambda: ("json", "pandas")).path == str(active), "somebody chose it"


def test_our_own_does_not_run_what_it_lacks_itself(
    environment: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/only_there.py").touch()
    on_path = environment("users", f"{tmp_path / 'theirs'}\n").with_name("python3")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert interpreter(needs=lambda: ("only_there", "pandas")).path == str(on_path)


@pytest.mark.parametrize(
    ("target", "collector", "needed"),
    [
        ("mlp", "nsys", {"torch"}),
        ("unified_memory", "auto", set()),
        ("train.py", "nsys", {"json", "numpy", "os"}),
        ("train.py", "torch", {"json", "numpy", "os", "torch"}),
        ("train.py", "auto", {"json", "numpy", "os", "torch"}),
        ("mine", "nsys", {"json", "numpy", "os"}),
        ("absent.py", "nsys", set()),
        ("broken.py", "nsys", set()),
        ("./a.out", "torch", set()),
        (None, "torch", set()),
    ],
)
def test_what_a_program_needs_is_read_from_its_imports(
    *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str | None, collector: Choice, needed: set[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text("[tool.nightsight.workloads]\nmine = 'train.py'\n")
    Path("broken.py").write_text("import (")
    Path("train.py").write_text(
        "import os.path, json as j\nfrom numpy.linalg import svd\nfrom . import beside\n"
        "try:\n    import maybe\nexcept ImportError:\n    maybe = None\n"
    )
    assert needs_of(collector, target, None, None) == needed


def test_an_environment_is_not_another_for_sharing_its_base_nor_for_another_name(tmp_path: Path) -> None:
    assert Interpreter(sys.executable, "").is_own
    assert Interpreter(str(Path(sys.executable).parent / "python3"), "").is_own
    other = tmp_path / "bin/python3"
    other.parent.mkdir()
    other.symlink_to(sys.executable)
    assert not Interpreter(str(other), "").is_own
    assert not Interpreter("/no/python", "").is_own


@pytest.fixture
def environment(tmp_path: Path) -> Callable[[str, str], Path]:
    """Make a virtual environment whose only content is one .pth; return its Python."""

    def make(name: str, pth: str) -> Path:
        venv.create(tmp_path / name, symlinks=True)
        (packages,) = (tmp_path / name / "lib").glob("python*/site-packages")
        (packages / "all.pth").write_text(pth)
        return tmp_path / name / "bin/python"

    return make


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["train.py", "mlp"])
def test_nightsight_in_an_environment_without_torch_profiles_with_the_active_one_that_has_it(
    environment: Callable[[str, str], Path], tmp_path: Path, target: str
) -> None:
    pytest.importorskip("torch")
    packages = sysconfig.get_path("purelib")
    paths = "".join(f"{path}\n" for path in dict.fromkeys((packages, *sys.path)) if path.endswith("-packages"))
    # what stands in for an installation of nightsight beside which there is no torch
    own = environment("own", f"{ROOT / 'pipeline'}\n{paths}import sys; sys.modules.update(torch=None, nvtx=None)\n")
    # neither nightsight nor what it needs is to be had for the program
    blocked = "sys.modules.update(nightsight=None, pandas=None, pyarrow=None)"
    users = environment("users", f"{paths}import sys; {blocked}\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(
        f"import sys, torch\nassert sys.prefix == {str(tmp_path / 'users')!r}\ntorch.ones(64).sum()\n"
    )
    command = [str(own), "-P", "-m", "nightsight", "profile", "--collector", "torch", target]
    command += ["--", "--dim", "8", "--iterations", "2", "--device", "cpu"] if target == "mlp" else []
    base = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def profile(active: Path) -> subprocess.CompletedProcess[str]:
        variables = {**base, "VIRTUAL_ENV": str(active.parents[1])}
        return subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, check=False)

    refused = profile(own)
    assert refused.returncode == 3
    assert f"torch is not installed in {own}" in refused.stderr
    done = profile(users)
    assert done.returncode == 0, done.stderr
    assert f"Python: {users} (of the active environment, VIRTUAL_ENV), not nightsight's own" in done.stderr
    name = target.removesuffix(".py")
    report = Report.from_json((project / f"reports/{name}/latest/report.json").read_text())
    assert report.parameters["interpreter"] == "of the active environment, VIRTUAL_ENV"
    assert str(tmp_path) not in report.to_json()
    assert len(report.result("cpu_ops").rows)
