"""The page of a comparison: what it says in which order, its pictures, and that no name gets out of its place."""

import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.model.compare import CHANGES, Comparison, unit_of
from nightsight.render.compare import render_comparison
from nightsight.render.compare.figures import StepBars, forest, step_bars
from nightsight.render.compare.page import comparison_page
from nightsight.render.compare.words import (
    PARTS,
    MeasureNames,
    belief,
    change_texts,
    facts,
    gates,
    interval,
    percent,
    tally,
    title_words,
)
from tests.comparisons import changed, compared, hostile_comparison, runs, train_comparison
from tests.properties import examples
from tests.recorded import Recorded
from tests.reports import HOSTILE

NAN = float("nan")


@pytest.fixture(scope="module")
def trained(recorded: Recorded) -> Comparison:
    return train_comparison(recorded.report("train"))


def small(*rows: dict[str, Any], **fields: Any) -> Comparison:
    given: dict[str, Any] = {
        **dict.fromkeys(CHANGES, NAN), "kind": "gate", "name": "step_ns", "verdict": "unchanged", "note": ""
    }  # fmt: skip
    changes = pd.DataFrame([{**given, **row} for row in rows], columns=list(CHANGES))
    return replace(hostile_comparison(["x"]), changes=changes, **fields)


def headings(page: str) -> list[str]:
    return re.findall(r"<h2[^>]*>([^<]+)</h2>", page)


def test_the_order_of_the_page(trained: Comparison) -> None:
    page = render_comparison(trained)
    assert headings(page) == [
        "Causes",
        "Gate metrics",
        "A step on both sides",
        "Kernels",
        "Without a change that is shown",
        "Added, removed, renamed and fused",
        "What is not comparable",
        "Runs",
        "How it was decided",
    ]
    assert page.index(trained.sentence.split(",")[0]) < page.index(">Causes</h2>")
    assert "<title>train: regressed · nightsight</title>" in page


def test_every_link_of_the_page_leads_to_a_section(trained: Comparison) -> None:
    page = render_comparison(trained)
    targets = re.findall(r'href="#([^"]*)"', page)
    assert len(targets) > 8
    assert [target for target in targets if f'id="{target}"' not in page] == []


def test_what_all_runs_share_is_reported_once(trained: Comparison) -> None:
    page = comparison_page(trained)
    assert page.common_facts.startswith("GPU NVIDIA H200, driver")
    assert page.runs is not None
    assert [column.title for column in page.runs.columns] == [
        "Run", "Side", "Order", "Commit", "Started", "Temperature"
    ]  # fmt: skip
    assert len(page.runs.rows) == 10


def test_what_did_not_change_is_in_closed_elements(trained: Comparison) -> None:
    page = comparison_page(trained)
    (kernels,) = page.changed
    counts = trained.changes.loc[trained.changes["kind"] == "kernel", "verdict"].value_counts()
    others = [f"{counts[verdict]} {verdict}" for verdict in ("inconclusive", "unchanged") if counts.get(verdict, 0)]
    assert others
    assert kernels.tally == ", ".join(["1 regressed, 1 improved, 1 added, 1 removed", *others])
    assert kernels.changed is not None
    assert len(kernels.changed.rows) == 4
    assert [title for title, _ in kernels.folded] == others
    assert {item.title for item in page.unchanged} == {"Kernel families", "Ranges", "Copies and sets", "CUDA API calls"}


def test_tables_keep_the_order_of_impact_and_their_parts_add_up(trained: Comparison) -> None:
    (kernels,) = comparison_page(trained).changed
    rows = trained.changes[trained.changes["kind"] == "kernel"]
    rows = rows[rows["verdict"].isin(["regressed", "improved", "added", "removed"])]
    assert kernels.changed is not None
    whole = kernels.changed.all_rows
    assert whole is not None
    assert whole.frame["name"].tolist() == rows["name"].tolist()
    added_up = whole.frame["by_count_ns"] + whole.frame["by_time_ns"]
    assert added_up.tolist() == pytest.approx(whole.frame["difference_ns"].tolist())


def test_an_interval_is_drawn_where_it_is() -> None:
    baseline = {"baseline": 1.0}
    drawn = forest(
        small(
            {**baseline, "change_pct": 5.0, "low_pct": 0.0, "high_pct": 10.0, "verdict": "regressed"},
            {**baseline, "name": "copy_ns", "change_pct": -400.0, "low_pct": -500.0, "high_pct": -300.0},
            {**baseline, "name": "launches", "change_pct": 2.5},
            {"name": "copies", "baseline": 0.0, "candidate": 0.0},
        ),
        MeasureNames(small().changes),
    )
    assert drawn is not None
    first, second, third = drawn.bars
    assert first.low == drawn.zero == 50.0
    assert first.high == pytest.approx(50 + 48 * 10 / 40)
    assert (second.low, second.is_before, second.is_after) == (2.0, True, False)
    assert (third.low, third.high) == (None, None)
    assert third.middle == pytest.approx(50 + 48 * 2.5 / 40)
    assert drawn.same == pytest.approx((50 - 48 * 3 / 40, 50 + 48 * 3 / 40))


def bars_of(*rows: dict[str, Any]) -> StepBars | None:
    return step_bars(small(*rows), MeasureNames(small().changes))


def test_the_bars_of_a_step_have_one_scale() -> None:
    drawn = bars_of(
        {"name": "compute", "baseline": 60.0, "candidate": 100.0, "verdict": "regressed"},
        {"name": "host code", "baseline": 20.0, "candidate": 0.0, "verdict": "removed"},
    )
    assert drawn is not None
    compute, host = drawn.parts
    assert (compute.before, compute.after) == ((0.0, 60.0), (0.0, 100.0))
    assert (host.before, host.after) == ((60.0, 20.0), (100.0, 0.0))
    assert (compute.is_busy, host.is_busy) == (True, False)
    assert (drawn.step, drawn.rest) == (("80 ns", "100 ns", "+20 ns"), None)
    assert compute.bar == (50.0, 50.0)
    assert host.bar == (25.0, 25.0)


def test_the_parts_of_a_step_have_one_unit_and_add_up_to_the_step() -> None:
    drawn = bars_of(
        {"name": "compute", "baseline": 1.6e6, "candidate": 1.632e6},
        {"name": "host code", "baseline": 3e3, "candidate": 500.0},
        {"name": "step_ns", "baseline": 1.684e6, "candidate": 1.699e6},
    )
    assert drawn is not None
    assert [part.change.difference for part in drawn.parts] == ["+0.032 ms", "\N{MINUS SIGN}0.002 ms"]
    assert drawn.step == ("1.684 ms", "1.699 ms", "+0.015 ms")
    assert drawn.rest == ("0.081 ms", "0.066 ms", "\N{MINUS SIGN}0.015 ms")


@pytest.mark.parametrize("is_paired", [False, True])
def test_a_reader_can_divide_the_values_and_finds_the_change(recorded: Recorded, *, is_paired: bool) -> None:
    report = recorded.report("train")
    factors = (1.03, 0.99, 1.1, 1.02, 1.04)
    sides = [
        tuple(
            replace(changed(run, {"step_ns": factor}), series="s" if is_paired else "", order=2 * at + is_second)
            for at, (run, factor) in enumerate(zip(runs(report, side), of_side, strict=True))
        )
        for is_second, (side, of_side) in enumerate((("baseline", factors[::-1]), ("candidate", factors)))
    ]
    comparison = compared(*sides)
    row = comparison.changes.set_index("name").loc["step_ns"]
    assert row["candidate"] / row["baseline"] - 1 == pytest.approx(row["change_pct"] / 100, rel=1e-9)


def test_one_line_says_why_the_verdict_is_believed(trained: Comparison) -> None:
    assert belief(trained).startswith("Believed. Step, ")
    assert "90 % interval +" in belief(trained)
    few = replace(trained, baseline=trained.baseline[:1])
    assert belief(few) == "Not believed: fewer than 3 runs a side cannot be distinguished from noise."


def test_sides_that_are_not_comparable_are_not_believed_however_many_runs_agree(recorded: Recorded) -> None:
    report = recorded.report("train")
    before, after = runs(report, "baseline"), runs(report, "candidate")
    other = tuple(
        replace(changed(run, {"step_ns": 1.5}), environment=replace(run.environment, gpu="B200")) for run in after
    )
    for count in (5, 1):
        unlike = compared(before[:count], other[:count])
        assert belief(unlike) == "Not believed. Step, profiled: the sides are not comparable (GPU)."
    # what explains only the times of the CPU explains no metric of the step without the profiler
    told = compared(before, tuple(replace(run, environment=replace(run.environment, os="other")) for run in after))
    assert belief(told).startswith("Believed. ")


def test_runs_with_names_of_their_sides_title_the_page(trained: Comparison) -> None:
    sides = [
        tuple(replace(run, source=f"ab_{side}_{at}.sqlite") for at, run in enumerate(of_side))
        for side, of_side in (("A", trained.baseline), ("C", trained.candidate))
    ]
    named = replace(trained, baseline=sides[0], candidate=sides[1])
    assert facts(named)[0].startswith("ab_A → ab_C, 5 + 5 runs")
    assert (title_words(named), title_words(replace(named, workload="ab_C_1"))) == ("train", "ab_A → ab_C")


def test_without_parts_there_are_no_bars() -> None:
    assert bars_of({"baseline": 1.0, "candidate": 2.0}) is None
    assert bars_of({"name": "compute"}) is None


def test_what_changed_stands_before_what_did_not() -> None:
    rows = small(
        {"name": "kernel_ns", "candidate": 1.0},
        {"name": "copy_ns", "candidate": 1.0, "verdict": "inconclusive"},
        {"candidate": 1.0, "verdict": "improved"},
        {"name": "compute", "candidate": 1.0},
    )
    assert gates(rows)["name"].tolist() == ["step_ns", "copy_ns", "kernel_ns"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.06, "+4.1 %"),
        (-0.04, "0.0 %"),
        (0.0, "0.0 %"),
        (-12.0, "−12.0 %"),
        (12345.6, "+12,346 %"),
        (NAN, "–"),
    ],
)
def test_a_percentage_has_its_sign(value: float, text: str) -> None:
    assert percent(value) == text


def test_an_interval_in_words() -> None:
    assert interval(3.21, 5.0) == "[+3.2, +5.0]"
    assert interval(NAN, 5.0) == ""


def test_units_of_measures() -> None:
    assert [unit_of("gate", name) for name in ("step_ns", "launches", PARTS[-1])] == ["ns", "", "ns"]
    assert unit_of("kernel", "launches") == "ns"
    (written_,) = change_texts(
        small({"name": "launches", "baseline": 40.0, "candidate": 41.0}).changes, MeasureNames(small().changes)
    )
    assert (written_.baseline, written_.candidate, written_.difference) == ("40", "41", "+1")


def test_a_tally_counts_what_happened_first() -> None:
    rows = pd.DataFrame({"verdict": ["unchanged", "improved", "unchanged", "regressed"]})
    assert tally(rows) == "1 regressed, 1 improved, 2 unchanged"


def test_one_run_a_side_says_why_nothing_is_shown(recorded: Recorded) -> None:
    report = recorded.report("train")
    page = render_comparison(compared(runs(report, "baseline", count=1), runs(report, "candidate", count=1)))
    assert "One run on a side" in page
    assert re.search(r'<p class="tally">\d+ inconclusive', page)
    assert "Kernels" in headings(page)


def test_hostile_names_stay_text() -> None:
    page = render_comparison(hostile_comparison())
    assert not re.search(r"<script>alert|</title><!--|<[^>]*onmouseover=\"alert", page.split("<body>")[1])
    assert page.count("content-security-policy") >= 1
    assert page.count("<script>") == 1
    assert "\u202e" not in page
    assert "{{" in page  # shown as text


@given(st.lists(st.text(max_size=80) | st.sampled_from(HOSTILE), min_size=1, max_size=2))
@examples(15)
def test_any_names_can_be_rendered(names: list[str]) -> None:
    page = render_comparison(hostile_comparison(names))
    assert page.encode()
    assert page.count("<script>") == 1


def test_nothing_at_all_can_be_rendered(recorded: Recorded) -> None:
    report = recorded.report("train")
    whole = compared(runs(report, "baseline"), runs(report, "candidate"))
    empty = replace(
        whole,
        baseline=(),
        candidate=(),
        changes=pd.DataFrame(columns=list(CHANGES)),
        causes=pd.DataFrame(),
        sentence="",
    )
    assert headings(render_comparison(empty)) == ["Runs", "How it was decided"]


def test_the_same_comparison_gives_the_same_bytes(trained: Comparison) -> None:
    assert render_comparison(trained) == render_comparison(trained)
