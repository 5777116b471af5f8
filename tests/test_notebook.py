"""Notebooks: the examples of docs/api.md run in a real kernel, and functions are compared by time and by result."""

import math
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nightsight as ns
from nightsight.api import functions
from nightsight.api.functions import Functions, _difference
from nightsight.errors import UsageError

DOCS = Path(__file__).parents[1] / "docs" / "api.md"
EXAMPLES = re.findall(r"^```ipython\n(.*?)^```$", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def outputs(cells: Sequence[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, Any]]]:
    """Run cells in a kernel, and return what each shows, other than prints."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(folder / "jupyter"))
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(made, kernel_name="python3", allow_errors=True, timeout=None, resources=resources).execute()
    return [[shown for shown in cell.outputs if shown.output_type != "stream"] for cell in made.cells]


@pytest.mark.filterwarnings("ignore")  # those of Jupyter are not ours
def test_the_examples_run_in_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    mistakes = ["%%nightsight\n1 / 0", "%%nightsight a b\n1", "%%nightsight\nweights.shape"]
    setup, cell, kept, compared, *failed, last = outputs([*EXAMPLES, *mistakes], tmp_path, monkeypatch)
    assert setup == []
    (report,) = cell
    assert report["data"]["text/plain"].startswith("cell\nverdict: No work on a GPU.")
    assert report["data"]["text/html"].startswith('<img src="data:image/svg+xml;base64,')
    assert "`aten::mm`" in kept[0]["data"]["text/plain"]
    assert re.match(r"A → B: .* a call\nverdict: ", compared[0]["data"]["text/plain"])
    assert compared[0]["data"]["text/plain"].endswith("\nresults: equal")
    assert [shown[0]["ename"] for shown in failed] == ["ZeroDivisionError", "UsageError"]
    # the value of a cell is shown as without the magic
    assert last[0]["data"]["text/plain"] == "torch.Size([64, 64])"


def test_a_slower_function_is_found_and_its_result_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "_BATCH_S", 0.002)
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    noise = iter(np.random.default_rng(1).normal(1, 0.01, 100_000))

    def takes(seconds: float, result: object) -> Any:
        def function() -> object:
            now[0] += seconds * next(noise)
            return result

        return function

    fast, slow = takes(1e-3, np.ones(3)), takes(2e-3, np.ones(3) * (1 + 1e-6))
    found = ns.ab(fast, slow)
    assert (found.verdict, found.pairs, found.is_same) == ("slower", 10, True)
    assert found.change_pct == pytest.approx(100, abs=3)
    low, high = found.interval_pct
    assert low < found.change_pct < high
    assert re.match(r"function → function: 1\.\d+ ms → [12]\.\d+ ms a call\nverdict: slower, \+", repr(found))
    assert ns.ab(fast, takes(1e-3, np.ones(3)), pairs=40).verdict == "unchanged"
    wrong = ns.ab(slow, takes(1e-3, np.zeros(3)))
    assert "verdict: faster but different, −5" in repr(wrong)
    assert "results: different, 1 of the largest value" in repr(wrong)
    assert "results: not compared" in repr(ns.ab(takes(1e-3, None), takes(1e-3, None)))
    assert "<pre" in wrong._repr_html_()
    assert isinstance(wrong, Functions)


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        (1.0, 1.0, 0),
        ([1, {"a": np.array([2.0, 4.0])}], (1, {"a": np.array([2.0, 5.0])}), 0.25),
        (np.array([math.nan, 1.0]), np.array([math.nan, 1.0]), 0),
        (np.array([math.nan, 1.0]), np.array([1.0, 1.0]), math.inf),
        (np.array([math.inf]), np.array([-math.inf]), math.inf),
        (np.ones(2), np.ones(3), math.inf),
        (np.zeros(2), np.ones(2), math.inf),
        (np.zeros(2), np.zeros(2), 0),
        (np.array([]), np.array([]), 0),
        (np.array([True, False]), np.array([True, True]), 1),
        ("text", "text", None),
        (None, None, None),
        (1, None, math.inf),
    ],
)
def test_results_differ_by(first: object, second: object, difference: float | None) -> None:
    assert _difference(first, second) == difference


def test_tensors_are_compared_with_more_digits_than_they_have() -> None:
    torch = pytest.importorskip("torch")
    ours = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    assert _difference(ours, [ours.detach()]) == 0
    assert _difference((ours,), ours.float() * 1.5) == 0.5


def test_wrong_requests_say_what_to_do() -> None:
    with pytest.raises(UsageError, match="ab compares two commits or two functions"):
        ns.ab("HEAD", ".", [])
    with pytest.raises(UsageError, match="two commits or two functions"):
        ns.ab(print, ".")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="fewer than three pairs"):
        ns.ab(print, print, pairs=2)
