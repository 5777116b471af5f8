"""What notebooks and scripts use: the examples of docs/api.md, and that importing it is quick."""

import doctest
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

import nightsight as ns
from nightsight.errors import MissingTable, UsageError
from nightsight.model.prove import ProofReport
from nightsight.workflows.prove import ProofPlan
from tests.nights import nights
from tests.reports import small_report
from tests.test_render_briefs import PROOFS

DOCS = Path(__file__).parents[1] / "docs"


def test_the_examples_are_true(
    capture_file: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "graph.sqlite").write_bytes(capture_file("graph").read_bytes())
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(DOCS / "api.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
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
    with pytest.raises(MissingTable, match="Tables with rows: gpu_time, time_split, "):
        report["cpu_ops"]
    with pytest.raises(KeyError, match=r"cuda_gpu_kern is not a table of this report\. Did you mean cuda_gpu_kern_sum"):
        report["cuda_gpu_kern"]


def test_people_see_what_they_use() -> None:
    assert dir(ns) == sorted(dir(ns), key=str) == ns.__all__
    assert {"profile", "report", "compare", "ab", "prove", "fleet", "history"} < set(dir(ns))
    with pytest.raises(AttributeError, match=r"has no attribute 'reprot'\. It has: Report, "):
        ns.reprot  # noqa: B018


def test_functions_stay_functions_when_their_subpackages_are_imported() -> None:
    code = (
        "import nightsight as ns; from nightsight.compare import compare; import nightsight.fleet, nightsight.history\n"
        "print(all(callable(each) for each in (ns.compare, ns.fleet, ns.history)), compare is not ns.compare)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def shown(thing: object) -> str:
    """Return the text of an object, which is short and the same on a notebook."""
    text = repr(thing)
    assert len(text.encode()) <= 2_000
    assert str(thing) == text
    if hasattr(thing, "_repr_html_"):
        assert "<script" not in thing._repr_html_()
    return text


def test_a_report_prints_its_verdict_and_its_causes(capture_file: Callable[[str], Path]) -> None:
    report = ns.report(capture_file("train"))
    text = shown(report)
    assert f"verdict: {report.verdict}\n" in text
    (first, *_) = report.causes
    assert (first.id, first.place, round(first.gain_pct or 0)) == ("tensor_cores", "iteration # / forward", 20)
    assert f"1. {first.id}: {first.gain}, {first.step}" in text
    assert shown(first).startswith(f"{first.id}: {first.gain}, {first.step}\n  cause: ")
    assert all(shown(finding).startswith("Finding(rule=") for finding in report.findings)
    assert '<img src="data:image/svg+xml;base64,' in report._repr_html_()


def test_runs_are_compared_and_many_captures_are_summarized(
    capture_file: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    comparison = ns.compare(capture_file("train"), [capture_file("mlp")])
    assert (comparison.verdict, comparison.sentence in shown(comparison)) == ("inconclusive", True)
    assert {"gate", "kernel"} < set(comparison.changes["kind"])
    assert comparison.to_json("c.json").is_file()
    assert "<!doctype html>" in comparison.to_html("c.html").read_text().lower()
    fleet = ns.fleet([str(capture_file("train")), str(capture_file("mlp"))], workers=1)
    assert shown(fleet).startswith("2 captures: ")
    assert len(fleet.captures) == 2
    assert "tensor_cores" in set(fleet.causes["rule"])
    assert "2 captures" in fleet.to_html("fleet.html").read_text()


def test_a_script_that_starts_workers_does_not_run_again_in_them(
    capture_file: Callable[[str], Path], tmp_path: Path
) -> None:
    script = tmp_path / "many.py"
    script.write_text(f"import nightsight as ns\nprint(len(ns.fleet({str(capture_file('mlp'))!r}).captures))\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "1\n"


def test_a_history_prints_its_events(tmp_path: Path) -> None:
    for row in nights(45, lambda night: 1.2 if night > 30 else 1.0):
        path = tmp_path / row.file
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(row.line())
    history = ns.history(tmp_path)
    assert shown(history).startswith(f"{history.events[0].state} ")


def test_proofs_are_printed_and_switches_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    asked: list[ProofPlan] = []

    def measured(plan: ProofPlan, _: object) -> ProofReport:
        asked.append(plan)
        return PROOFS

    monkeypatch.setattr("nightsight.api.runs.measure", measured)
    proofs = ns.prove(["train.py"], switches=["tf32"], budget_s=5.0)
    assert shown(proofs).splitlines()[1].startswith("verdict: proven: tf32: ")
    assert proofs.best == PROOFS.proofs[0]
    assert proofs.path == tmp_path / "reports" / "train" / "proof" / "proof.json"
    (plan,) = asked
    assert ([switch.name for switch in plan.switches], plan.budget_s, plan.report) == (["tf32"], 5.0, None)
    with pytest.raises(UsageError, match="tf23 is not a switch"):
        ns.prove(["train.py"], switches=["tf23"])
    kept = Path("reports/train/latest/report.json")
    kept.parent.mkdir(parents=True)
    kept.write_text(small_report(title="train", results=()).to_json())
    ns.prove(["train.py"], causes=["wait"])
    assert asked[1].report is not None
    assert (asked[1].report.title, asked[1].causes) == ("train", ("wait",))
    kept.write_text(small_report(title="other", results=()).to_json())
    with pytest.raises(UsageError, match="the report is of other, and the program is train"):
        ns.prove(["train.py"])


def test_a_notebook_shows_the_first_screen_with_hostile_text_as_text(
    capture_file: Callable[[str], Path], tmp_path: Path
) -> None:
    hostile = tmp_path / "<script>.sqlite"
    hostile.write_bytes(capture_file("graph").read_bytes())
    shown = ns.report(hostile)._repr_html_()
    assert "<b>GPU 55.3 % busy. The GPU waits for launches" in shown
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
