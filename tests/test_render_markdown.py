import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.model.report import Finding
from nightsight.render.export.markdown import escape, render_markdown
from tests.reports import HOSTILE, hostile_report, kernel_table, result, small_report


def table_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def cells(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line)[1:-1]


def test_a_report_begins_with_what_it_is_about() -> None:
    first, facts, verdict, error, note = render_markdown(small_report()).split("\n\n")[:5]
    assert first == "## matmul"
    assert facts == "NVIDIA H200 · nsys · 2026-11-20 09:00:00 UTC"
    assert verdict == "GPU 25.0 % busy."
    assert error == "> **Error: First**  \n> Broken. Mend it."
    assert note == "> **Note: Later**  \n> d"


def test_kernels_are_in_sight_and_the_rest_is_folded() -> None:
    text = render_markdown(small_report())
    assert "### Kernel time\n\n| Kernel | Time (%) | Total (ms) | Instances | Std dev (ns) |" in text
    assert "| reduce | 66.7 | 2.000 | 10 | – |" in text
    assert "<details><summary>launch" in text
    assert text.count("<details>") == text.count("</details>") == 1
    assert "**NVTX ranges, Operators.** Not available: NVTX was off." in text


def test_ten_rows_are_enough() -> None:
    kernels = kernel_table(tuple(f"k{place}" for place in range(11)))
    text = render_markdown(small_report(results=(result("cuda_gpu_kern_sum", kernels),)))
    assert "| k9 |" in text
    assert "| k10 |" not in text
    assert "The first 10 rows; the report has more." in text


def test_an_empty_result_is_one_line() -> None:
    text = render_markdown(small_report(results=(result("cpu_ops", pd.DataFrame(), title="Operators"),)))
    assert "**Operators.** Not available: none found in this capture." in text


def test_a_report_without_numbers_has_no_tables() -> None:
    text = render_markdown(small_report(results=(), benchmark=None))
    assert table_lines(text) == []
    assert "\n\n\n" not in text


def test_hostile_names_stay_in_their_cells() -> None:
    text = render_markdown(hostile_report())
    assert not re.search(r"<(?!/?(?:details|summary)>)", text)
    assert not re.search(r"@(?!\u200b)|://", text)
    assert max(len(line) for line in table_lines(text) if "x…x" in line) < 300
    for block in text.split("\n\n"):
        assert len({len(cells(line)) for line in table_lines(block)}) <= 1
    assert text.encode()


def advised(code: str, *others: Finding) -> str:
    first = Finding("wait", "advice", "It waits", "", "Do not.", gain_pct=20.0, code=code)
    return render_markdown(small_report(findings=(first, *others)))


def test_the_first_cause_has_its_code_in_its_language() -> None:
    text = advised("cudaFree(a);", Finding("fp64", "advice", "It is exact", "", "Do not.", code="x = 1"))
    assert "Do not.\n\n  ```cpp\n  cudaFree(a);\n  ```\n- **It is exact**" in text
    assert "x = 1" not in text
    assert "\n  ```sh\n  A_B=1\n  ```\n" in advised("A_B=1")
    assert "\n  ```python\n  @jit\n  def f(): ...\n  ```\n" in advised("@jit\ndef f(): ...")


def test_code_stays_in_its_block() -> None:
    text = advised("```\n# <b>\x1b[0m\n````\r::error::x")
    assert "\n  `````python\n  ```\n  # <b>\N{REPLACEMENT CHARACTER}[0m\n  ```` ::error::x\n  `````\n" in text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a|b", r"a\|b"),
        ("`x` *y* _z_", r"\`x\` \*y\* \_z\_"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("[l](u)", r"\[l\](u)"),
        ("@you", "@\u200byou"),
        ("https://a www.b", "https:\u200b//a www\u200b.b"),
        ("lambda(int)#1 gh-2 C#", "lambda(int)\\#\u200b1 gh-\u200b2 C\\#"),
    ],
)
def test_escape(text: str, escaped: str) -> None:
    assert escape(text) == escaped


@given(st.text())
def test_escaped_text_ends_no_cell_and_opens_no_element(text: str) -> None:
    escaped = escape(text)
    assert not re.search(r"(?<!\\)(?:\\\\)*\|", escaped)
    assert not set(escaped) & set("<>")


def test_hostile_is_what_the_tests_say() -> None:
    assert any("|" in name and "`" in name for name in HOSTILE)
