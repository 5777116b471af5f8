"""What notebooks and scripts use: the examples of docs/api.md, and that importing it is quick."""

import doctest
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

import nightsight as ns
from nightsight.errors import MissingTable

DOCS = Path(__file__).parents[1] / "docs"


def test_the_examples_are_true(
    capture_file: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "graph.sqlite").write_bytes(capture_file("graph").read_bytes())
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(DOCS / "api.md"), module_relative=False)
    assert tried >= 6
    assert failed == 0


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, nightsight; print(sorted({'pandas', 'numpy', 'pyarrow', 'jinja2', 'click'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_report_says_why_a_table_is_not_there(capture_file: Callable[[str], Path]) -> None:
    report = ns.report(capture_file("graph"))
    with pytest.raises(MissingTable, match="cpu_ops is not available: PyTorch's operators were not named"):
        report["cpu_ops"]
    with pytest.raises(KeyError, match="no_such"):
        report["no_such"]


def test_a_notebook_shows_the_first_screen_with_hostile_text_as_text(
    capture_file: Callable[[str], Path], tmp_path: Path
) -> None:
    hostile = tmp_path / "<script>.sqlite"
    hostile.write_bytes(capture_file("graph").read_bytes())
    shown = ns.report(hostile)._repr_html_()
    assert "<b>GPU 55.3 % busy. The GPU is launch-bound" in shown
    assert shown.count("<tr>") == 1 + 2
    assert "<script>" not in shown


def test_results_that_a_program_writes_join_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch_python: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("serve.py").write_text(
        "import json, torch; torch.ones(8) + 1; json.dump({'output_throughput': 123.0}, open('out.json', 'w'))"
    )
    report = ns.profile(["serve.py"], collector="torch", python=torch_python, attach=["out.json"])
    assert 123.0 in report["serving"].select_dtypes("number").to_numpy()


def test_a_script_is_profiled_with_the_python_that_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    # as in a notebook, whose kernel may run from an environment that is not the active one
    venv.create(tmp_path / "active", symlinks=True)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
    Path("train.py").write_text("import torch; torch.ones(64, 64) @ torch.ones(64, 64)")
    report = ns.profile(["train.py"], collector="torch")
    assert "aten::mm" in set(report["cpu_ops"]["name"].astype("str"))
    assert report.to_json("kept.json").is_file()
    assert list(Path("reports/train").iterdir())
