"""The ladder: bars on one scale, whose parts fill them, and numbers that a reader can subtract."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest

from nightsight.model.report import Finding, Report
from nightsight.render.figure.ladder import Explained, Ladder, ladder
from nightsight.render.fixes import Fix, Fixes
from nightsight.render.page.html import render_html
from nightsight.render.page.page import page
from nightsight.results.categories import COMPUTE, COPIES, HOST, LAUNCH
from nightsight.results.causes import FIX_LADDER, REPLAY, WHAT_IF
from nightsight.results.gpu_time import TIME_SPLIT
from tests.recorded import Recorded
from tests.reports import HOSTILE, gpu_table, result, small_report

FIXES = (
    Fix("pageable_copy", "step / io:h2d", 20.0, 2, 2_090_000.0),
    Fix("tensor_cores", "", 20.0, 1, 2_514_900.0),
    Fix("wait", "(main) / a", 2.0, 0, 0.0),
)
PARTS = pd.DataFrame(
    [
        (0, COMPUTE, 2_400_000.0),
        (0, HOST, 700_000.0),
        (0, LAUNCH, 20_000.0),
        (0, COPIES, 20_000.0),
        (1, COMPUTE, 1_500_000.0),
        (1, HOST, 994_900.0),
        (1, COPIES, 20_000.0),
        (2, COMPUTE, 1_500_000.0),
        (2, HOST, 590_000.0),
    ],
    columns=["order", "category", "time_ns"],
)


def drawn(parts: pd.DataFrame = PARTS, fixes: tuple[Fix, ...] = FIXES, **changes: Any) -> Ladder:
    view = ladder(
        parts, Fixes(**{"now_ns": 3_140_000.0, "is_step": True, "fixes": fixes, **changes}), lambda _: Explained("")
    )
    assert view is not None
    return view


def test_bars_have_one_scale_and_their_parts_fill_them() -> None:
    rungs = drawn().rungs
    ends = [part.x + part.width for rung in rungs for part in rung.parts[-1:]]
    assert ends == pytest.approx([100.0, 100 * 2514.9 / 3140, 100 * 2090 / 3140], abs=0.01)
    for rung in rungs:
        for part, following in pairwise(rung.parts):
            assert part.x + part.width == pytest.approx(following.x, abs=0.002)
    # busy parts come first, in the order of the split
    assert [part.label for part in rungs[0].parts] == [COMPUTE, COPIES, LAUNCH, HOST]
    assert [part.is_idle for part in rungs[0].parts] == [False, False, True, True]


def test_the_bars_are_in_the_order_of_the_fixes_and_say_what_each_gains() -> None:
    rungs = drawn().rungs
    assert [(rung.time, rung.label, rung.change) for rung in rungs] == [
        ("3.14 ms", "now", ""),
        ("2.51 ms", "multiply in TF32, BF16 or FP16", "\N{MINUS SIGN}0.63 ms"),
        # 2.5149 − 2.09 is 0.42 as well as the difference of what is printed
        ("2.09 ms", "pin the memory in `io:h2d`", "\N{MINUS SIGN}0.42 ms"),
    ]
    assert rungs[1].summary == "multiply in TF32, BF16 or FP16: 2.51 ms. compute 1.50 ms, host code 0.99 ms"


@pytest.mark.parametrize(
    ("framework", "label"),
    [
        ("", "use CUDA graphs"),
        ("PyTorch", "use CUDA graphs"),
        ("JAX", "put the loop into the compiled program"),
        ("Numba", "do more per kernel"),
    ],
)
def test_a_bar_is_named_in_the_terms_of_the_framework(framework: str, label: str) -> None:
    fixes = (Fix("launch_bound", "", 20.0, 1, 2_500_000.0),)
    assert drawn(PARTS[PARTS["order"] < 2], fixes, framework=framework).rungs[1].label == label


def test_the_table_of_fixes_has_the_words_of_the_ladder(recorded: Recorded) -> None:
    report = recorded.report("train")
    replay = next(each for each in report.results if each.name == REPLAY.name)
    of_jax = replace(replay, table=replay.rows.assign(framework="JAX"))
    view = page(replace(report, results=tuple(of_jax if each is replay else each for each in report.results)))
    (section,) = (each for each in view.method.sections + view.results if each.anchor == WHAT_IF.name)
    assert section.table is not None
    labels = {row.name.text for row in section.table.rows}
    assert "put the loop into the compiled program" in labels
    assert "use CUDA graphs" not in labels


def test_the_changes_are_differences_of_the_printed_numbers() -> None:
    fixes = (Fix("tensor_cores", "", 1.0, 1, 2_005_000.0), Fix("wait", "", 1.0, 2, 1_004_900.0))
    parts = pd.DataFrame({"order": [0, 1, 2], "category": COMPUTE, "time_ns": [3_014_900.0, 2_005_100.0, 1_004_900.0]})
    shown = [(float(rung.time[:4]), rung.change) for rung in drawn(parts, fixes, now_ns=3_014_900.0).rungs]
    for (before, _), (after, change) in pairwise(shown):
        assert change == f"\N{MINUS SIGN}{before - after:.2f} ms"


def test_the_legend_leaves_out_what_is_small_in_all_bars() -> None:
    assert [(key.label, key.is_idle) for key in drawn().keys] == [(COMPUTE, False), (HOST, True)]


def test_without_steps_it_is_about_the_window() -> None:
    assert drawn().title.startswith("A step now, ")
    assert drawn(is_step=False).title.startswith("The window now, ")


@pytest.mark.parametrize(
    "parts", [PARTS[:0], PARTS[PARTS["order"] < 2], PARTS.drop(columns="category"), PARTS.assign(category=HOSTILE[0])]
)
def test_without_a_bar_for_each_fix_there_is_no_ladder(parts: pd.DataFrame) -> None:
    assert ladder(parts, Fixes(3e6, is_step=True, fixes=FIXES), lambda _: Explained("")) is None


def test_without_a_fix_there_is_no_ladder() -> None:
    assert ladder(PARTS, Fixes(3e6, is_step=True, fixes=FIXES[2:]), lambda _: Explained("")) is None


def report(*findings: Finding) -> Report:
    split = pd.DataFrame({"device": 0, "category": [COMPUTE, HOST], "time_ns": [8, 2], "group": ["busy", "idle"]})
    replay = pd.DataFrame({"unprofiled_ns": [3_140_000.0], "of_repetitions": [9], "calls": [9], "doubt": [""]})
    fixes = [[fix.rule, fix.path, fix.gain_pct, fix.order or None, fix.after_ns] for fix in FIXES]
    what_if = pd.DataFrame(fixes, columns=["rule", "path", "gain_pct", "order", "after_ns"])
    tables = {TIME_SPLIT: split, REPLAY: replay, WHAT_IF: what_if, FIX_LADDER: PARTS.assign(group="")}
    results = tuple(result(entry.name, table) for entry, table in tables.items())
    return small_report(results=(*results, result("gpu_time", gpu_table(80.0))), findings=findings)


def advice(rule: str, gain: float, proof: str = "") -> Finding:
    return Finding(rule, "advice", rule, "", gain_pct=gain, cause=rule, action="do it", proof=proof)


def test_a_bar_leads_to_its_fix_and_says_what_was_measured() -> None:
    view = page(report(advice("wait", 2.0), advice("tensor_cores", 20.0, "measured −18 %"))).windows.windows[0].ladder
    assert view is not None
    assert [(rung.anchor, rung.proof) for rung in view.rungs] == [
        ("", ""),
        ("advice-0-2", "measured −18 %"),
        ("what_if", ""),
    ]


def test_fixes_that_are_not_worth_it_have_no_ladder_and_other_causes_a_list() -> None:
    no_fix_of_it = report(advice("wait", 2.0), advice("tail", 9.0))
    assert page(no_fix_of_it).windows.windows[0].ladder is None
    assert 'class="causes"' in render_html(no_fix_of_it)
    with_ladder = render_html(report(advice("tensor_cores", 20.0), advice("tail", 9.0)))
    assert 'class="chart ladder"' in with_ladder
    assert 'class="causes"' not in with_ladder


def test_the_ladder_of_a_capture_survives_its_json(recorded: Recorded) -> None:
    made = recorded.report("train")
    first, again = (page(each).windows.windows[0].ladder for each in (made, Report.from_json(made.to_json())))
    assert first is not None
    assert first == again
    assert [rung.label for rung in first.rungs[:3]] == [
        "now",
        "multiply in TF32, BF16 or FP16",
        "pin the memory in `io:h2d`",
    ]
