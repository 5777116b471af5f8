"""Finding NVIDIA's ncu_report module, and running it where it cannot do harm."""

from pathlib import Path

import pytest

from nightsight.errors import CaptureError, ToolError
from nightsight.read import read
from nightsight.read.ncu import dump as ncu_dump
from nightsight.read.ncu import library as ncu_library
from tests import ncu


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Look for a module that is nowhere, on a machine that has no Nsight Compute; return its name."""
    name = "ncu_report_of_a_test"
    program = tmp_path / "ncu_dump.py"
    text = Path(ncu_dump.__file__).read_text()
    assert text.count('"ncu_report"') == 1
    program.write_text(text.replace('"ncu_report"', f'"{name}"'))
    monkeypatch.setattr(ncu_dump, "MODULE", name)
    monkeypatch.setattr(ncu_dump, "__file__", str(program))
    monkeypatch.setattr(ncu_library, "_ROOT", tmp_path)
    return name


def _ship(home: Path, module: str, text: str) -> None:
    """Make an Nsight Compute whose module is `text`."""
    folder = home / "extras/python"
    folder.mkdir(parents=True)
    (folder / f"{module}.py").write_text(text)


def _says(text: str) -> str:
    """Return a module that ends the process with words."""
    return f"import json, os, sys\njson.dump([dict(module={text!r})], sys.stdout)\nsys.stdout.flush()\nos._exit(0)\n"


def test_without_a_module_the_error_says_what_to_install(no_package: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=no_package) as caught:
        read(ncu.unpack("lines.ncu-rep", tmp_path))
    assert "pip install" in caught.value.hint
    assert "ncu-report. Or install Nsight Compute" in caught.value.hint


def test_the_newest_installed_nsight_compute_has_the_module(no_package: str, tmp_path: Path) -> None:
    for version in ("2025.3.1", "2025.10.0", "2024.1.0"):
        _ship(tmp_path / "opt/nvidia/nsight-compute" / version, no_package, _says(version))
    assert ncu_library.dump(tmp_path) == [{"module": "2025.10.0"}]


def test_the_ncu_on_path_comes_first(no_package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _ship(tmp_path / "opt/nvidia/nsight-compute/2026.1.0", no_package, _says("installed"))
    _ship(tmp_path / "home", no_package, _says("on PATH"))
    program = tmp_path / "home/ncu"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert ncu_library.dump(tmp_path) == [{"module": "on PATH"}]


def test_a_module_that_cannot_be_imported_is_passed_over(no_package: str, tmp_path: Path) -> None:
    for version, text in (("2026.1.0", "raise ImportError('no libgcc')\n"), ("2025.1.0", _says("older"))):
        _ship(tmp_path / "opt/nvidia/nsight-compute" / version, no_package, text)
    assert ncu_library.dump(tmp_path) == [{"module": "older"}]


def test_a_module_that_crashes_does_not_take_us_down(no_package: str, tmp_path: Path) -> None:
    _ship(tmp_path / "opt/nvidia/nsight-compute/2026.1.0", no_package, "import os\nos.abort()\n")
    with pytest.raises(CaptureError, match=r"some\.ncu-rep cannot be read"):
        ncu_library.dump(tmp_path / "some.ncu-rep")
