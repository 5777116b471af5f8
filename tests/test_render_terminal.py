"""The first screen of a report, in a terminal and in a notebook."""

import re
from dataclasses import replace
from functools import partial
from xml.etree import ElementTree

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from nightsight.model.report import Environment, Finding, Report, Result, Results, names_of
from nightsight.read import read
from nightsight.render.lines import align, clip, cut, wrap
from nightsight.render.terminal import Screen, brief_line, first_screen, screen_html, screen_lines
from nightsight.workflows.analysis import build_report
from tests.properties import examples
from tests.recorded import DATA, Recorded
from tests.timeline import draw

# pandas holds no half of a surrogate pair, so no table of a report does
NAMES = st.text(st.characters(codec="utf-8"), max_size=200)
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def advice(action: str, gain: float | None, title: str = "Something costs time") -> Finding:
    return Finding("rule", "advice", title, "", action=action, gain_pct=gain)


def texts(screen: Screen, width: int = 100) -> list[str]:
    return [line.text for line in screen_lines(screen, width=width)]


@pytest.fixture
def trained(recorded: Recorded) -> Report:
    return recorded.report("train")


def test_the_verdict_comes_first_then_causes_by_gain_then_kernels(trained: Report) -> None:
    lines = texts(first_screen(trained))
    assert lines[1] == "train: NVIDIA H200, 19 × iteration # of 3.164 ms (2.974 to 3.367 ms)"
    assert lines[2].startswith("GPU 86.8 % busy. FP32 math runs without tensor cores")
    gains = [match[1] for line in lines if (match := re.match(r" +(−[\d.]+) %  ", line))]
    assert gains == ["−20", "−12", "−10"]
    (head,) = (line for line in lines if line.endswith("  Kernel"))
    assert head.split("  ")[1:4] == ["Time %", "Total ms", "Instances"]
    first = lines[lines.index(head) + 1]
    assert first.split()[:3] == ["29.1", "13.473", "114"]
    assert lines[-2] == f"  … {len(trained.result('cuda_gpu_kern_sum').rows) - 5} more kernels"
    assert (lines[0], lines[-1]) == ("", "")


def test_only_what_leads_to_the_answer_is_emphasized(trained: Report) -> None:
    screen = first_screen(trained)
    lines = screen_lines(screen, width=200)
    assert " ".join(line.text for line in lines if line.tone == "strong") == screen.verdict.text


def test_figures_of_a_serving_benchmark_stand_below_the_verdict(trained: Report) -> None:
    times = {"avg_ns": 30e6, "med_ns": 25e6, "p99_ns": 80e6}
    rows = [
        {"metric": "requests", "count": 200, "rate_per_s": 3.5},
        {"metric": "failed requests", "count": 2},
        {"metric": "output tokens", "count": 9000, "rate_per_s": 1234.5},
        {"metric": "time to first token", **times},
        {"metric": "request latency", "avg_ns": 2e9},
    ]
    table = pd.DataFrame(rows).assign(source="vllm bench serve", measured="unknown run")
    others = [result for result in trained.results if result.name != "serving"]
    screen = first_screen(replace(trained, results=(*others, Result("serving", "", "", table))))
    assert screen.serving == (
        "vllm bench serve (unknown run): requests 3.500 /s; failed requests: 2; output tokens 1.234 k/s; "
        "time to first token: median 25.00 ms, p99 80.00 ms; request latency: mean 2.000 s.",
    )
    assert " ".join(texts(screen)).count("p99 80.00 ms") == 1
    assert "p99 80.00 ms" in screen_html(screen)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 250])
def test_the_table_is_as_wide_as_the_terminal(trained: Report, width: int) -> None:
    lines = texts(first_screen(trained), width)
    assert max(map(cell_len, lines)) <= width
    (head,) = (line for line in lines if line.endswith("  Kernel"))
    assert len(head.split("  ")) >= (3 if width == 40 else 4 if width == 80 else 0)
    names = {line[head.index("Kernel") :] for line in lines[lines.index(head) + 1 : -2]}
    # labels differ, however short
    assert len(names) == 5


def test_a_wide_terminal_shows_more_columns_and_whole_names(trained: Report) -> None:
    narrow, wide = ("\n".join(texts(first_screen(trained), width)) for width in (60, 250))
    assert ("Median µs" in narrow, "Median µs" in wide) == (False, True)
    assert "gemm f32 nt 256x128x8" in wide


def test_times_of_one_kernel_have_one_unit(trained: Report) -> None:
    rows = trained.result("cuda_gpu_kern_sum")
    times = rows.rows.head(2).assign(avg_ns=[6_837_580.0, 64_380.0], med_ns=[2_900.0, 49_800.0], max_ns=36_907_000)
    of_both = replace(trained, results=(replace(rows, table=times),))
    top = first_screen(of_both).top
    assert top is not None
    assert {title.rpartition(" ")[2] for title in top.headings[3:]} == {"ms"}
    assert top.cells[0][3:] == ("6.838", "0.003", "36.907")


def test_a_single_cause_is_in_the_verdict_and_not_repeated(trained: Report) -> None:
    one = replace(trained, findings=(advice("stop it", 12.0),))
    lines = texts(first_screen(one))
    assert lines[2].endswith("Something costs time. First: stop it, about −12 %.")
    assert sum("stop it" in line for line in lines) == 1
    four = replace(trained, findings=tuple(advice(f"stop {number}", 12.0 - number) for number in range(4)))
    assert "  … 1 more cause" in texts(first_screen(four))


def test_doubts_come_before_the_verdict(trained: Report) -> None:
    doubts = [
        Finding("partial", "error", "This is only a part", ""),
        *[Finding("odd", "warning", "Odd \x1b[31m", "")] * 4,
    ]
    report = replace(trained, findings=(*doubts, Finding("note", "info", "A note", "")))
    lines = screen_lines(first_screen(report), width=100)
    assert [(line.tone, line.text) for line in lines[2:6]] == [
        ("error", "Error: This is only a part"),
        ("warning", "Warning: Odd \N{REPLACEMENT CHARACTER}[31m"),
        ("warning", "Warning: Odd \N{REPLACEMENT CHARACTER}[31m"),
        ("faint", "  … 2 more warnings"),
    ]
    assert lines[6].text.startswith("GPU 86.8 % busy.")
    assert not any("A note" in line.text for line in lines)
    brief = brief_line(first_screen(report), width=100)
    assert (brief.tone, brief.text.startswith("train (5 warnings): GPU 86.8 % busy.")) == ("error", True)


def test_in_one_line_there_is_what_to_do(trained: Report) -> None:
    line = brief_line(first_screen(trained), width=80).text
    assert line == "train: GPU 86.8 % busy. First: multiply in TF32, BF16 or FP16, about −20 %."


def test_replayed_kernels_have_no_gains_and_their_own_columns(recorded: Recorded) -> None:
    report = recorded.report("measure.ncu-rep")
    findings = (advice("do this", None), advice("do that", None))
    lines = texts(first_screen(replace(report, findings=findings)))
    assert "  Something costs time → do this" in lines
    assert any(line.split()[:2] == ["Replay", "µs"] and line.endswith("  Kernel") for line in lines)


def test_without_a_gpu_there_are_operators(recorded: Recorded) -> None:
    lines = texts(first_screen(recorded.report("mini_torch")))
    assert any(line.endswith("  Kernel") for line in lines)
    report = recorded.report("mini_torch")
    left = tuple(result for result in report.results if result.name in ("cpu_ops",))
    without = texts(first_screen(replace(report, results=left, findings=())))
    assert without[2].startswith("No work on a GPU.")
    assert any(line.endswith("  Operator") for line in without)


def test_kernels_without_numbers_are_their_names() -> None:
    path = DATA / "cases" / "33_one_section.csv"
    screen = first_screen(build_report(read(path), "one section"))
    assert screen.top
    assert (screen.top.headings, screen.top.cells) == ((), ((),))
    lines = texts(screen)
    assert lines[lines.index("  Kernel") + 1] == "  copy_kernel"
    assert "copy_kernel" in screen_html(screen)


def test_a_report_of_nothing_is_still_reported() -> None:
    lines = texts(first_screen(Report("", Environment(), ())))
    assert lines == ["", "(no name)", "No work on a GPU.", ""]


@given(names=st.lists(NAMES, min_size=1, max_size=6), width=st.integers(40, 250), title=NAMES, action=NAMES)
@examples(40)
def test_no_text_breaks_a_line_or_reaches_the_terminal(names: list[str], width: int, title: str, action: str) -> None:
    report = _of_kernels(names, title, action)
    lines = [*texts(first_screen(report), width), brief_line(first_screen(report), width=width).text]
    assert all(cell_len(line) <= width for line in lines)
    assert not CONTROLS.search("".join(lines))


@given(name=NAMES, title=NAMES, action=NAMES)
@examples(20)
def test_no_text_becomes_markup_of_a_notebook(name: str, title: str, action: str) -> None:
    html = screen_html(first_screen(_of_kernels([name], title, action)))
    root = ElementTree.fromstring(f"<div>{html}</div>")
    tags = {"div", "h3", "small", "p", "b", "code", "table", "tr", "th", "td"}
    assert {element.tag for element in root.iter()} <= tags
    assert not CONTROLS.search(html)


def test_names_in_a_sentence_are_code_in_a_notebook() -> None:
    html = screen_html(first_screen(_of_kernels(["a"], "Waits in `load`", "do not")))
    assert "Waits in <code>load</code>" in html


def _of_kernels(names: list[str], title: str, action: str) -> Report:
    count = len(names)
    frame = pd.DataFrame(
        {
            "time_pct": [100 / count] * count,
            "total_ns": [10**6] * count,
            "instances": [3] * count,
            "avg_ns": [333333.3] * count,
            "name": names,
        }
    )
    result = Result("cuda_gpu_kern_sum", "Kernel time", "", frame)
    return Report(title, Environment(), (result,), (advice(action, 3.0, title), advice("b", 2.0, action)))


# -- lines ------------------------------------------------------------------------------------------------------------


def test_columns_count_cells_not_characters() -> None:
    lines = align([("漢字", "1", "a"), ("abc", "22", "b")], right=(1,))
    assert lines == ["漢字   1  a", "abc   22  b"]
    assert {cell_len(line) for line in lines} == {11}


@given(text=NAMES, width=st.integers(1, 60))
@examples(60)
def test_cut_texts_fit(text: str, width: int) -> None:
    assert cell_len(cut(text, width)) <= width
    assert cell_len(clip(text, width)) <= width
    assert all(cell_len(line) <= max(width, 4) for line in wrap(text, max(width, 4)))


def test_cutting_keeps_both_ends_or_the_beginning() -> None:
    assert (cut("abcdefghij", 5), clip("abcdefghij", 5), cut("abc", 5)) == ("ab…ij", "abcd…", "abc")
    assert list(wrap("one two three", 7)) == ["one two", "  three"]


def test_a_number_stays_with_its_unit() -> None:
    text = "about −20 %. Then 3.5 ms (of 12,345 µs) more"
    assert list(wrap("took (625.0 µs), <1 %", 12, indent="")) == ["took", "(625.0 µs),", "<1 %"]
    assert list(wrap(text, 11, indent="")) == ["about", "−20 %. Then", "3.5 ms (of", "12,345 µs)", "more"]


def test_the_first_screen_computes_few_results() -> None:
    report = build_report(draw("nvtx  [step ][step ]\ncpu   LL.....LL\ns7    .aa.....aa"), "drawn")
    made: list[str] = []
    results = Results({name: partial(_noted, report, name, made) for name in names_of(report.results)}, rows=0)
    first_screen(replace(report, results=results))
    assert 0 < len(made) < len(results) / 3


def _noted(report: Report, name: str, made: list[str]) -> Result:
    made.append(name)
    return report.result(name)
