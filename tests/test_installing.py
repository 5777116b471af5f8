"""Hints about missing packages: each can be followed where it is given."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from nightsight.system.installing import EXTRAS, Place, for_nightsight, for_programs

ROOT = Path(__file__).parents[1]


def test_extras_are_the_packages_that_pyproject_names() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        assert [re.split(r"[<>=;~ ]", needed)[0] for needed in declared[extra]] == list(packages)


def test_the_command_is_of_the_environment_that_lacks_the_package(tmp_path: Path) -> None:
    for name, base in (("env", "/usr"), ("conda", "conda")):
        (tmp_path / "conda/conda-meta").mkdir(parents=True, exist_ok=True)
        prefix = str(tmp_path / name)
        place = Place(f"{prefix}/bin/python", prefix, base if base == "/usr" else prefix, has_pip=True)
        assert for_programs(place, "torch").startswith(
            f"Install it: {prefix}/bin/python -m pip install torch. Or choose a Python that has it: --python"
        )


def test_an_environment_without_pip_is_that_of_uv() -> None:
    place = Place("/my env/bin/python", "/my env", "/usr", has_pip=False)
    assert place.command("dask", "fsspec") == "uv pip install -p '/my env/bin/python' dask fsspec"


def test_nobody_is_told_to_install_into_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    hint = for_programs(Place("/usr/bin/python3", "/usr", "/usr", has_pip=True), "torch")
    assert "--python PATH" in hint
    assert "ENV/bin/python -m pip install torch" in hint
    assert "/usr" not in hint
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    hint = for_nightsight(*EXTRAS["fleet"])
    assert "/usr" not in hint
    assert "dask distributed" in hint


def test_nothing_tells_people_to_get_nightsight_from_an_index_that_does_not_have_it() -> None:
    """An extra can be had from a checkout ('.[fleet]') or an address ('nightsight[trend] @ URL'), not by name alone."""
    texts = [
        *ROOT.glob("pipeline/**/*.py"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("templates/ci/**/*"),
        ROOT / "README.md",
    ]
    by_name = re.compile(r"pip install[^\n`]*[ '\"]nightsight(\[\w+\])?['\"]?(?! @|\[|/|\w)")
    paths = [str(path.relative_to(ROOT)) for path in texts if path.is_file() and by_name.search(path.read_text())]
    assert paths == []
