"""What the page of a fleet says, without a browser."""

from dataclasses import replace

import pytest

from nightsight.model.fleet import Failure
from nightsight.render.fleet import render_fleet
from nightsight.render.fleet.page import _prose, fleet_page, verdict_of
from tests.fleets import STEP, made_fleet, summary

HOUR = 3.6e12


def test_the_verdict_names_what_costs_most_and_what_to_do_first() -> None:
    fleet = made_fleet([summary("a", causes={"wait": 40.0}), summary("b", causes={"fusion": 10.0})])
    verdict = verdict_of(fleet)
    assert verdict.state == "2 captures, 2.000 s of GPU time: GPUs 75.0 % busy."
    assert verdict.cause == "The GPU waits for host code in `step`: wait: 20.0 % of all GPU time, in 1 of 2 captures."
    assert verdict.first == "First: do it ahead of time."
    assert "in all captures." in verdict_of(made_fleet([summary("a", causes={"wait": 40.0})])).cause
    assert verdict_of(made_fleet([summary("a")])).cause == "No cause of lost time costs enough to act on."
    waits = verdict_of(made_fleet([summary("a", lone=1), summary("b")]))
    assert waits.cause == "1 of 2 captures waits for ranks not in them."
    assert waits.first == "First: report the captures of each job together (`nightsight report rank*`)."
    assert verdict_of(made_fleet([summary("a", lone=1, causes={"wait": 40.0})])).state.endswith(
        "for ranks not in them."
    )
    nothing = summary("a", step_ns=0.0, gpu_ns=0, gpus=0, busy_ns=0)
    assert verdict_of(made_fleet([nothing])).state == "1 capture without work on a GPU."


def test_what_recurs_comes_first_and_leads_to_its_captures() -> None:
    causes = [{"wait": 40.0}, {"fusion": 10.0}, {"fusion": 5.0}]
    summaries = [summary(name, causes=gains) for name, gains in zip("abc", causes, strict=True)]
    fleet = made_fleet(summaries, file=["a.sqlite", "b.sqlite", "c.sqlite"], report=["", "b/report.html", ""])
    assert "fusion: 5.0 % of all GPU time, in 2 of 3 captures." in verdict_of(fleet).cause
    fusion, wait = fleet_page(fleet).causes
    assert (fusion.share, fusion.captures, wait.captures) == ("5.0 %", "2 of 3 captures", "1 of 3 captures")
    assert fusion.gains == "a step becomes 7.5 % shorter, up to 10.0 %"
    assert fusion.within == (("b.sqlite", "b/report.html"), ("c.sqlite", ""))
    # a smaller share before a larger one has a title that says why
    text = render_fleet(fleet)
    several, one = text.index("<h3>In several captures"), text.index("<h3>In one capture")
    assert several < text.index(f"In {fusion.captures}") < one < text.index(f"In {wait.captures}")
    alone = render_fleet(made_fleet(summaries[:1]))
    assert "<h3>In" not in alone


def test_a_list_that_goes_on_keeps_its_dots() -> None:
    assert _prose("It is not fused: a, b, ...") == "It is not fused: a, b, ..."
    assert _prose("It is not fused.") == "It is not fused"


def test_a_cause_of_many_captures_leads_to_the_first_and_counts_the_others() -> None:
    (cause,) = fleet_page(made_fleet([summary(f"c{number:02}", causes={"wait": 9.0}) for number in range(20)])).causes
    assert (len(cause.within), cause.more) == (12, 8)


def test_much_gpu_time_is_in_hours() -> None:
    page = fleet_page(made_fleet([summary("a", gpu_ns=int(2.5 * HOUR)), summary("b", gpu_ns=int(10 * HOUR))]))
    assert [figure.value for figure in page.figures if figure.label == "GPU time"] == ["12.5 h"]


def test_rare_values_of_a_fact_are_one_row() -> None:
    page = fleet_page(made_fleet([summary(f"c{number}", commit=f"{number:07}") for number in range(10)]))
    assert page.differing is not None
    rows = [(row.name.text, row.cells[0].text, row.cells[1].text) for row in page.differing.rows]
    assert rows[:2] == [("Commit", "0000000", "1"), ("Commit", "0000001", "1")]
    assert rows[-1] == ("Commit", "4 other values", "4")
    assert ("GPU", "NVIDIA H200") in page.common
    assert fleet_page(made_fleet([summary("a")])).differing is None


def test_an_absent_value_is_a_value_too() -> None:
    page = fleet_page(made_fleet([summary("a", torch=""), summary("b", torch="2.13")]))
    assert page.differing is not None
    assert [row.cells[0].text for row in page.differing.rows] == ["(not said)", "2.13"]


def test_several_causes_of_a_rule_are_one_row_that_says_so() -> None:
    other = summary("b", causes={"wait": 5.0})
    other = replace(other, tables={**other.tables, "causes": other["causes"].assign(cause="Elsewhere in `eval`")})
    page = fleet_page(made_fleet([summary("a", causes={"wait": 40.0}), other]))
    assert [cause.title for cause in page.causes] == [
        "The GPU waits for host code in `step`: wait (and 1 more of this kind)"
    ]


def test_kernels_are_grouped_by_family_and_the_groups_have_their_sums() -> None:
    kernels = {"ncclDevKernel_AllReduce_Sum_f32": (2, 100), "a": (1, 60), "b": (1, 50)}
    page = fleet_page(made_fleet([summary("a", kernels=kernels)]))
    assert page.kernels is not None
    assert [(row.name.text, row.cells[1].text) for row in page.kernels.rows][1:] == [("a", "60"), ("b", "50")]
    tree = page.kernels.groups["family"].frame[["name", "level", "total_ns"]].to_numpy().tolist()
    assert tree == [
        ["other", 0, 110],
        ["a", 1, 60],
        ["b", 1, 50],
        ["communication", 0, 100],
        ["ncclDevKernel_AllReduce_Sum_f32", 1, 100],
    ]


def test_very_many_failures_and_captures_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = tuple(Failure(f"f{number}", "no capture") for number in range(205))
    page = fleet_page(replace(made_fleet([summary("a")]), failures=failures))
    assert (len(page.failures), page.failed, page.more_failures) == (200, "205 files", "And 5 more.")
    assert page.figures[0].note == "205 files could not be read"
    monkeypatch.setattr("nightsight.render.fleet.page._MAX_CAPTURES", 3)
    page = fleet_page(made_fleet([summary(f"c{number}") for number in range(5)]))
    assert (len(page.captures.rows), page.captures.more) == (3, "2 more are in the summaries.")


def test_a_capture_links_to_its_report_and_the_unlike_say_what_differs() -> None:
    usual = [summary(f"n{night}") for night in range(9)]
    odd = summary("odd", step_ns=1.5 * STEP, split={"compute": 0.5, "host code": 0.5})
    reports = [f"n{night}/report.html" for night in range(9)]
    page = fleet_page(made_fleet([*usual, odd], report=[*reports, ""]))
    assert [row.name.href for row in page.captures.rows] == [*reports, ""]
    assert page.outliers is not None
    (row,) = page.outliers.rows
    texts = [cell.text for cell in row.cells]
    assert texts[:3] == ["15.00", "10.00", "50.0"]
    assert texts[4:] == ["mlp on NVIDIA H200", "host code, +5.000 ms", "–"]
    assert page.judged == "10 captures"


@pytest.mark.parametrize("count", [1, 3])
def test_facts_of_the_head_are_few(count: int) -> None:
    page = fleet_page(made_fleet([summary(f"c{number}", gpu=f"GPU {number}") for number in range(count)]))
    assert page.facts == (("GPU 0",) if count == 1 else ("3 kinds of GPU",)) + ("mlp", "2026-11-20")
