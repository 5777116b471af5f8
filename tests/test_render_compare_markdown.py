"""A comparison as a comment on a pull request, and as lines of a terminal: bounded, plain, the verdict first."""

import re
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from nightsight.model.compare import CHANGES, Comparison, Decision, Difference
from nightsight.model.report import Environment
from nightsight.render.compare import comparison_lines, comparison_markdown, marker
from nightsight.render.compare.markdown import MOST_BYTES
from tests.comparisons import compared, hostile_comparison, runs, train_comparison
from tests.properties import examples
from tests.recorded import Recorded
from tests.reports import HOSTILE

NAMES = st.lists(st.text(max_size=300) | st.sampled_from(HOSTILE), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def trained(recorded: Recorded) -> Comparison:
    return train_comparison(recorded.report("train"))


@pytest.fixture(scope="module")
def same(recorded: Recorded) -> Comparison:
    report = recorded.report("train")
    return compared(runs(report, "baseline"), runs(report, "candidate"))


def cells(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line)[1:-1]


def table_rows(text: str) -> list[list[str]]:
    return [cells(line) for line in text.splitlines() if line.startswith("|")]


def test_the_marker_and_the_verdict_come_first_then_what_changed(trained: Comparison) -> None:
    first, heading, _, sentence, _, why, *more = comparison_markdown(trained).splitlines()
    assert first == "<!-- nightsight:train -->"
    assert heading == "### train: 🔴 regressed since f6e5d4c"
    assert sentence.startswith("**A wait for the GPU in every step appeared")
    assert why.startswith("Believed. Step, profiled: longer in 5 of 5 pairs; 90 % interval +")
    picture, facts = more[4:6], more[8]
    assert [line.split()[0] for line in picture] == ["baseline", "candidate"]
    assert 0 < picture[0].count("█") < picture[1].count("█")
    assert facts == "5 + 5 runs, interleaved · NVIDIA H200 · commit a1b2c3d → f6e5d4c"


def test_a_comment_is_about_fifty_lines(trained: Comparison) -> None:
    assert len(comparison_markdown(trained).splitlines()) <= 55


def test_causes_come_before_numbers(trained: Comparison) -> None:
    text = comparison_markdown(trained)
    assert text.index("**Appeared:** The CPU waits") < text.index("| Metric |") < text.index("<details>")
    assert "- **Went:** Many small copies from the host" in text


def test_what_changed_most_stands_first_with_its_parts(trained: Comparison) -> None:
    rows = table_rows(comparison_markdown(trained).split("<details>")[1])
    assert [row[1].strip() for row in rows[:1]] == ["Kind"]
    table = trained.changes[trained.changes["kind"].isin(["kernel", "copy", "api"])]
    table = table[table["verdict"].isin(["regressed", "improved", "added", "removed"])]
    assert [row[-1].split()[-1] for row in rows[2:]] == table["verdict"].tolist()
    assert rows[2][2].strip().startswith("\N{MINUS SIGN}")


def test_nothing_changed_is_one_line(same: Comparison) -> None:
    text = comparison_markdown(same)
    assert text.count("\n") == 2
    assert re.fullmatch(
        r"\*\*train: unchanged\.\*\* Step time \S+ % \(\S+ to \S+ %\), on 5 pairs of runs\. "
        r"NVIDIA H200, commit a1b2c3d\. "
        r"No regression above 5 %: counts equal, step time within ±\S+ %, GPU kernel time within ±\S+ %\.",
        text.splitlines()[1],
    )


def test_a_difference_between_the_sides_is_not_lost_in_one_line(same: Comparison) -> None:
    text = comparison_markdown(replace(same, differences=(Difference("driver", "1", "2"),)))
    assert "1 difference between the sides: see the report." in text


def test_what_is_not_known_of_the_machine_is_left_out(same: Comparison) -> None:
    sides = [tuple(replace(run, environment=Environment()) for run in side) for side in (same.baseline, same.candidate)]
    unknown = replace(same, baseline=sides[0], candidate=sides[1])
    assert "(no name)" not in comparison_markdown(unknown) + "".join(comparison_lines(unknown))


def test_the_gate_repeats_nothing_that_the_sentence_says(same: Comparison) -> None:
    sentence = "Step time +5.0 % (+4.0 to +6.0 %), on 5 pairs of runs."
    regression = "regression: step time +5.0 % (+4.0 to +6.0 %), on 5 pairs of runs"
    more = "regression: step time +5.0 % (+4.0 to +6.0 %); launches 64, at most 40 allowed, on 5 pairs of runs"
    passed = "passed: no regression above 5 %: counts equal, on 5 pairs"
    for line, shown in ((regression, "Gate: regression."), (more, more), (passed, passed)):
        text = comparison_markdown(replace(same, verdict="regressed", sentence=sentence, decision=Decision(1, line)))
        assert text.splitlines()[-1].startswith(shown)


def test_unchanged_with_a_broken_limit_is_not_quiet(same: Comparison) -> None:
    broken = replace(same, decision=Decision(1, "gate: a limit is broken", broken=("launches: 64 > 40",)))
    text = comparison_markdown(broken)
    assert "Limits broken: launches: 64 &gt; 40" in text
    assert text.count("\n") > 10


def test_rows_left_out_are_counted(trained: Comparison) -> None:
    slower = trained.changes[trained.changes["kind"] == "kernel"].head(1)
    many = [slower.assign(name=f"kernel_{place}", verdict="regressed") for place in range(212)]
    others = trained.changes[trained.changes["kind"] == "gate"]
    text = comparison_markdown(replace(trained, changes=pd.concat([others, *many], ignore_index=True)))
    assert "… 202 more rows in the report." in text
    assert "kernel\\_9" in text
    assert "kernel\\_10" not in text


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ("mlp", "mlp"),
        ("my_mlp.2", "my_mlp.2"),
        ("a b/c", "a-b-c-HEX"),
        ("x --> <b>", "x-b-HEX"),
        ("--", "HEX"),
        ("é", "HEX"),
    ],
)
def test_a_marker_cannot_end_before_its_end(workload: str, expected: str) -> None:
    assert re.fullmatch(f"<!-- nightsight:{expected.replace('HEX', '[0-9a-f]{6}')} -->", marker(workload))


@given(st.lists(st.text(max_size=200) | st.sampled_from(HOSTILE), unique=True))
def test_each_workload_has_a_marker_of_its_own(workloads: list[str]) -> None:
    markers = [marker(workload) for workload in workloads]
    assert len(set(markers)) == len(workloads)
    assert all(re.fullmatch(r"<!-- nightsight:[\w.-]+ -->", each) for each in markers)


@given(names=NAMES, count=st.integers(0, 4))
@examples(40)
def test_any_names_stay_within_bounds_and_in_their_cells(names: list[str], count: int) -> None:
    text = comparison_markdown(hostile_comparison(names, count=count))
    assert max(len(text), len(text.encode())) < MOST_BYTES
    head, body = text.split("\n", 1)
    assert re.fullmatch(r"<!-- nightsight:[\w.-]+ -->", head)
    assert not re.search(r"<(?!/?(?:details|summary)>)", body)
    assert body.count("<details>") == body.count("</details>")
    assert not re.search(r"@(?!\u200b)", body)
    assert not re.search(r"(?<!\\)(?:\\\\)*`", body)
    for block in text.split("\n\n"):
        assert len({len(row) for row in table_rows(block)}) <= 1


@given(length=st.integers(1, 5000), letter=st.sampled_from("x|\U0001f600<`@&#"), rows=st.integers(1, 400))
@examples(15)
def test_a_comment_is_cut_by_bytes(length: int, letter: str, rows: int) -> None:
    comparison = hostile_comparison([letter * length] * 3)
    changes = pd.concat([comparison.changes] * (rows // 60 + 1), ignore_index=True)
    text = comparison_markdown(replace(comparison, changes=changes))
    assert len(text.encode()) < MOST_BYTES


def test_a_comparison_without_anything_is_still_reported(same: Comparison) -> None:
    empty = replace(
        same,
        baseline=(),
        candidate=(),
        changes=pd.DataFrame(columns=list(CHANGES)),
        verdict="inconclusive",
        sentence="",
    )
    assert "### train: 🟡 inconclusive" in comparison_markdown(empty)
    assert comparison_lines(empty)[0] == "train: inconclusive."


def test_a_terminal_gets_one_screen(trained: Comparison) -> None:
    lines = comparison_lines(trained, width=100)
    assert lines[0].startswith("train: regressed. A wait for the GPU in every step appeared")
    assert " ".join(" ".join(lines).split()).endswith(" %), on 5 pairs of runs")
    assert len(lines) <= 40
    assert any(line.startswith("  Step, profiled") and line.endswith("regressed") for line in lines)


@given(names=NAMES, width=st.integers(40, 200))
@examples(40)
def test_no_name_breaks_a_line(names: list[str], width: int) -> None:
    lines = comparison_lines(hostile_comparison(names), width=width)
    assert all(cell_len(line) <= width for line in lines)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", "".join(lines))
