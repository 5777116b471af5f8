"""What leaves a table (CSV, copies, jumps), and what is left of it without scripts, streams or a screen."""

from typing import Any

import pandas as pd
import pytest

from nightsight.events.kernel_labels import label_of
from nightsight.render.table.view import ROWS
from tests.browser.table_pages import (
    downloaded,
    rows_of,
    shown,
    sort_by,
    wait_until,
)
from tests.reports import HOSTILE

pytestmark = pytest.mark.browser

WITHOUT_STREAMS = "delete window.DecompressionStream"


def test_the_csv_has_what_is_shown_with_all_digits(visit_tables: Any, tables: dict[str, pd.DataFrame]) -> None:
    frame = tables["big"]
    expected = frame[frame["layer"] == "driver"].sort_values("stddev_ns", ascending=False, kind="stable")
    with visit_tables("big") as page:
        section = page.locator("#cuda_gpu_kern_sum")
        section.get_by_role("searchbox").fill("driver")
        sort_by(section, "Std dev")
        name, (header, *rows) = downloaded(page, section)
    assert name == "cuda_gpu_kern_sum.csv"
    assert header == ["name", "time_pct", "total_ns", "instances", "stddev_ns", "layer"]
    assert [row[0] for row in rows] == expected["name"].tolist()
    assert [float(row[1]) for row in rows] == expected["time_pct"].tolist()
    assert [int(row[2]) for row in rows] == expected["total_ns"].tolist()
    assert [row[4] for row in rows][-1] == ""


def test_the_csv_of_a_tree_has_levels_and_what_is_closed(visit_tables: Any, tables: dict[str, pd.DataFrame]) -> None:
    with visit_tables("big") as page:
        _, (header, *rows) = downloaded(page, page.locator("#nvtx_ranges"))
    assert header[-1] == "level"
    assert [row[-1] for row in rows] == tables["ranges"]["level"].astype("str").tolist()


def test_no_text_of_a_csv_is_a_formula(visit_tables: Any) -> None:
    with visit_tables("big") as page:
        _, (_, *rows) = downloaded(page, page.locator("#launch_overhead"))
    assert [row[0] for row in rows] == ["'=1+1", "'+cmd", "'-2", "'@SUM(A1)", 'quote " and, comma']


def test_names_in_a_csv_are_full_ones(visit_tables: Any, tables: dict[str, pd.DataFrame]) -> None:
    with visit_tables("big") as page:
        _, (header, *rows) = downloaded(page, page.locator("#gpu_gaps"))
    assert [row[header.index("after")] for row in rows] == tables["gaps"]["after"].tolist()


def test_the_number_of_a_replay_has_a_column_of_its_own(visit_tables: Any) -> None:
    with visit_tables("replays") as page:
        _, (header, first, *_) = downloaded(page, page.locator("#ncu_source"))
        _, (kernels, *launches) = downloaded(page, page.locator("#ncu_kernels"))
    assert header[-2:] == ["replay", "kernel"]
    assert kernels[:2] == ["replay", "name"]
    assert next(row[:2] for row in launches if row[1] == first[-1]) == first[-2:]


def test_the_full_name_is_copied(visit_tables: Any, tables: dict[str, pd.DataFrame]) -> None:
    with visit_tables("big", permissions=["clipboard-read", "clipboard-write"]) as page:
        row = rows_of(page.locator("#cuda_gpu_kern_sum")).nth(1)
        row.hover()
        row.get_by_role("button", name="Copy").click()
        wait_until(page, lambda: page.get_by_role("status").filter(has_text="Copied").count() == 1)
        assert page.evaluate("navigator.clipboard.readText()") == tables["big"]["name"][1]


RECORD = "window.asked = []; document.addEventListener('timeline:show', event => window.asked.push(event.detail))"


def test_rows_ask_the_timeline_by_name_or_by_time(visit_tables: Any) -> None:
    with visit_tables("train", script=RECORD) as page:
        for anchor in ("cuda_gpu_kern_sum", "nvtx_ranges", "range_iterations", "gpu_gaps"):
            row = rows_of(page.locator(f"#{anchor}")).nth(1)
            row.hover()
            row.get_by_role("button", name="in the timeline").click()
        kernel, *ranges, gap = page.evaluate("window.asked")
        full = rows_of(page.locator("#cuda_gpu_kern_sum")).nth(1).locator(".full").text_content()
        _, (header, _, row, *_) = downloaded(page, page.locator("#gpu_gaps"))
    begin, length = (int(row[header.index(name)]) for name in ("time_ns", "gap_ns"))
    assert kernel == {"name": full, "kind": "kernel"}
    assert ranges == [{"name": "io:h2d", "kind": "range", "within": ["iteration #"]}] * 2
    assert gap == {"from_ns": begin, "to_ns": begin + length, "of_window": True}


def test_without_a_timeline_no_row_offers_one(visit_tables: Any) -> None:
    with visit_tables("big") as page:
        assert page.locator("[data-does=show]").count() == 0
        assert page.locator("[data-does=copy]").count() > 30


# what is left


def test_without_scripts_there_are_the_printed_rows(visit_tables: Any) -> None:
    with visit_tables("big", java_script_enabled=False) as page:
        section = page.locator("#cuda_gpu_kern_sum")
        assert section.locator("tbody tr").count() == ROWS
        assert section.locator(".note.more").text_content().startswith("The first 50 of 5,000 kernels.")
        assert page.locator("thead button, .table-tools").count() == 0


def test_a_browser_without_streams_has_the_printed_rows_and_says_so(visit_tables: Any) -> None:
    with visit_tables("big", script=WITHOUT_STREAMS) as page:
        section = page.locator("#cuda_gpu_kern_sum")
        assert rows_of(section).count() == ROWS
        assert "browser with DecompressionStream" in section.locator(".note.on-screen").text_content()
        sort_by(section, "Total")
        assert sort_by(section, "Total") == "ascending"
        assert shown(section)[0].startswith("kernel_49<")
        section.get_by_role("searchbox").fill("kernel_3")
        assert section.locator("output").text_content() == "11 of 50"
        assert page.locator("#nvtx_ranges .toggle").count() > 0


def test_a_sandboxed_frame_has_all_rows(visit_tables: Any) -> None:
    with visit_tables("framed") as page:
        section = page.frame_locator("iframe").locator("#cuda_gpu_kern_sum")
        section.locator("table.virtual").wait_for()
        sort_by(section, "Kernel")
        section.get_by_role("searchbox").fill("kernel_4999<")
        assert section.locator("output").text_content() == "1 of 5,000"


def test_copying_in_a_sandboxed_frame_says_nothing_in_the_console(visit_tables: Any) -> None:
    with visit_tables("framed") as page:  # which fails on any message
        section = page.frame_locator("iframe").locator("#cuda_gpu_kern_sum")
        section.locator("table.virtual").wait_for()
        copy = section.locator('table.virtual button[aria-label*="Copy"]').first
        copy.focus()
        page.keyboard.press("Enter")
        page.wait_for_timeout(300)


def test_a_frame_that_may_not_download_shows_the_file_as_text(
    visit_tables: Any, tables: dict[str, pd.DataFrame]
) -> None:
    with visit_tables("framed") as page:  # which fails on any message
        frame = page.frame_locator("iframe")
        section = frame.locator("#launch_overhead")
        button = section.get_by_role("button", name="as CSV")
        button.focus()
        page.keyboard.press("Enter")
        dialog = frame.get_by_role("dialog", name="Launches as CSV")
        header, *rows = dialog.locator("textarea").input_value().splitlines()
        assert header.startswith("name,launches,")
        assert [row.partition(",")[0] for row in rows] == ["'=1+1", "'+cmd", "'-2", "'@SUM(A1)", '"quote "" and']
        assert "does not allow downloads" in dialog.locator(".note").inner_text()
        selected = "area => area.selectionEnd - area.selectionStart"
        assert dialog.locator("textarea").evaluate(selected) > 100
        dialog.get_by_role("button", name="Copy").click()
        assert dialog.locator("output").inner_text() == "Copied"
        page.keyboard.press("Escape")
        assert frame.get_by_role("dialog").count() == 0
        assert button.evaluate("button => button === document.activeElement")


def test_the_index_sorts_by_value_whatever_the_unit(visit_tables: Any) -> None:
    with visit_tables("index") as page:
        section = page.locator("main section")
        sort_by(section, "Window")
        assert shown(section) == [f"run {place}" for place in (4, 1, 2, 5, 0, 3)]
        section.get_by_role("searchbox").fill("run 2")
        assert shown(section) == ["run 2"]


def test_paper_has_the_printed_rows(visit_tables: Any) -> None:
    with visit_tables("big") as page:
        section = page.locator("#cuda_gpu_kern_sum")
        assert not section.locator(".printed").is_visible()
        page.emulate_media(media="print")
        assert section.locator(".printed tr").last.is_visible()
        assert not rows_of(section).first.is_visible()
        assert not section.locator(".table-tools").is_visible()
        assert section.locator(".note.more").is_visible()


def test_hostile_names_are_filtered_copied_and_shown_as_text(visit_tables: Any) -> None:
    with visit_tables("hostile") as page:
        section = page.locator("#cuda_gpu_kern_sum")
        section.get_by_role("searchbox").fill("<script>")
        assert shown(section) == [label_of(HOSTILE[0])]
        section.get_by_role("button", name="Full names").click()
        section.get_by_role("searchbox").fill("x" * 500)
        assert rows_of(section).locator(".full").text_content() == "x" * 4096
        assert page.evaluate("document.documentElement.scrollWidth") == 1280


def test_every_control_has_a_name(visit_tables: Any) -> None:
    with visit_tables("train") as page:
        controls = page.locator("button, input").evaluate_all(
            "all => all.map(each => each.getAttribute('aria-label') || each.textContent.trim())"
        )
        assert len(controls) > 100
        assert all(controls)
        assert page.locator("[aria-sort]").count() == page.locator("thead th button").count()
