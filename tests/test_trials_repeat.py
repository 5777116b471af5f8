"""`profile --repeat`: runs of one program, each in a process of its own, that know of one another."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.model.compare import Measures
from nightsight.model.report import Environment
from nightsight.workflows.trials import spread_finding
from tests.repositories import SMALL
from tests.test_cli import FAILED, FakeNsys, error_lines

Interrupt = Callable[..., None]


def of_step(*values: float) -> list[Measures]:
    rows = [{"kind": "gate", "name": "step_ns", "count": 1.0, "value": value, "spread": 0.0} for value in values]
    return [Measures("run", "train", pd.DataFrame([row]), Environment()) for row in rows]


def runs_in(folder: Path) -> list[dict[str, Any]]:
    runs = [json.loads(path.read_text()) for path in sorted((folder / "reports/train").glob("2*/run.json"))]
    return sorted(runs, key=lambda run: run["order"])


@pytest.mark.nightly
def test_each_run_has_a_folder_and_the_last_page_says_how_they_differ(
    run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path
) -> None:
    fake_nsys(export=SMALL)
    seen = tmp_path / "seen"
    code = f"import time; print(time.time_ns(), file=open({str(seen)!r}, 'a'))"
    result = run("profile", "--collector", "nsys", "--repeat", "3", script(code))
    rows = runs_in(tmp_path)
    assert [(one["order"], one["side"]) for one in rows] == [(0, ""), (1, ""), (2, "")]
    assert len({one["series"] for one in rows}) == 1
    assert rows[0]["series"]
    assert len(set(seen.read_text().split())) == 3
    pages = [Path(line.removeprefix("report: ")) for line in result.stdout.splitlines() if line.startswith("report: ")]
    assert [page.is_file() for page in pages] == [True] * 3
    assert len(set(pages)) == 3
    assert ["Spread of 3 runs" in page.read_text() for page in pages] == [False, False, True]
    assert "Spread of 3 runs. Standard deviation over mean, one value per run" in result.stdout
    assert (tmp_path / "reports/train/latest").resolve() == pages[-1].parent.resolve()


@pytest.mark.nightly
def test_a_run_that_fails_does_not_lose_the_others(run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path) -> None:
    fake_nsys(export=SMALL)
    code = f"import pathlib, sys; p = pathlib.Path({str(tmp_path / 'seen')!r}); p.open('a').write('x')\n"
    result = run(
        "profile", "--collector", "nsys", "--repeat", "4", script(f"{code}sys.exit(7 * (len(p.read_text()) == 2))"),
        expect=FAILED,
    )  # fmt: skip
    assert [one["failed"] for one in runs_in(tmp_path)] == [False, True, False, False]
    assert error_lines(result)[0].startswith("1 of 4 runs failed; the first: train ended with exit status 7")
    assert "run 2 failed: train ended with exit status 7" in result.stdout
    # those that are complete
    assert "Spread of 3 runs" in result.stdout


@pytest.mark.nightly
def test_an_interrupt_ends_the_series_too(
    *, run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path, interrupt: Interrupt
) -> None:
    fake_nsys(export=SMALL)
    seen = tmp_path / "seen"
    code = f"""
import pathlib, time
path = pathlib.Path({str(seen)!r})
if path.exists():
    path.with_name("second").touch()
    time.sleep(60)
path.touch()
"""
    interrupt(tmp_path / "second")
    result = run("profile", "--collector", "nsys", "--repeat", "9", script(code), expect=130)
    assert len(runs_in(tmp_path)) == 2
    assert "; 1 of 9 runs are complete" in error_lines(result)[0]


def test_one_run_is_in_no_series(run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path) -> None:
    fake_nsys(export=SMALL)
    run("profile", "--collector", "nsys", script())
    assert [(one["series"], one["order"]) for one in runs_in(tmp_path)] == [("", -1)]


def test_zero_runs_are_refused(run: Any, script: Any) -> None:
    assert "0 is not in the range x>=1" in run("profile", "--repeat", "0", script(), expect=2).output


# -- how much runs differ ---------------------------------------------------------------------------------------------


def test_the_spread_is_the_standard_deviation_over_the_mean() -> None:
    (finding,) = spread_finding(of_step(1e6, 2e6, 3e6))
    assert finding.detail.endswith("step: 50.0 % (1.000 ms to 3.000 ms).")


@given(st.lists(st.floats(1e3, 1e9), max_size=5))
def test_there_is_a_spread_of_two_runs_or_more(values: list[float]) -> None:
    assert len(spread_finding(of_step(*values))) == (len(values) > 1)


def test_a_metric_that_a_run_lacks_is_left_out() -> None:
    complete, lacking = of_step(1e6, 1e6)
    lacking = Measures("run", "train", lacking.table.iloc[:0], Environment())
    assert spread_finding([complete, lacking]) == ()
