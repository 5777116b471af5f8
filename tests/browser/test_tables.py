"""Tables in a real browser: sort, filter, names, virtual rows, trees, keyboard."""

import json
from typing import Any

import pandas as pd
import pytest

from nightsight.events.kernel_labels import label_of
from tests.browser.table_pages import COUNT, rows_of, scroll, shown, sort_by

pytestmark = pytest.mark.browser


# sort and filter


def test_a_heading_sorts_by_value_with_what_is_missing_last(visit_tables: Any, tables: dict[str, pd.DataFrame]) -> None:
    frame = tables["big"]
    with visit_tables("big") as page:
        section = page.locator("#cuda_gpu_kern_sum")
        for order, ascending in (("descending", False), ("ascending", True)):
            assert sort_by(section, "Std dev") == order
            expected = frame.sort_values("stddev_ns", ascending=ascending, kind="stable")["name"]
            assert shown(section)[:8] == [label_of(name) for name in expected[:8]]
            scroll(section, 1e9)
            assert set(shown(section, 4)[-5:]) == {"–"}
        assert sort_by(section, "Std dev") == "none"
        assert shown(section)[0] == label_of(frame["name"][0])


def test_names_sort_with_their_numbers_by_value(visit_tables: Any) -> None:
    with visit_tables("big") as page:
        section = page.locator("#cuda_gpu_kern_sum")
        assert sort_by(section, "Kernel") == "ascending"
        assert [name.split("<")[0] for name in shown(section)[:11]] == [f"kernel_{place}" for place in range(11)]


def test_a_filter_looks_into_full_names_and_texts(visit_tables: Any, tables: dict[str, pd.DataFrame]) -> None:
    frame = tables["big"]
    cases = {
        "AT::native::KERNEL_12<": 1,
        "driver": COUNT // 2,
        "/kernel_\\d{2}</": 90,
        "kernel_77": int(frame["name"].str.contains("kernel_77").sum()),
        "no such kernel": 0,
    }
    with visit_tables("big") as page:
        section = page.locator("#cuda_gpu_kern_sum")
        for text, count in cases.items():
            section.get_by_role("searchbox").fill(text)
            assert section.locator("output").text_content() == f"{count:,} of 5,000"
            assert section.locator("table").get_attribute("aria-rowcount") == str(count + 1)
        section.get_by_role("searchbox").fill("/(/")
        assert section.locator("output").text_content() == "Invalid regular expression"
        assert section.get_by_role("searchbox").get_attribute("aria-invalid") == "true"


# many rows


def test_only_rows_in_sight_are_in_the_page(visit_tables: Any, tables: dict[str, pd.DataFrame]) -> None:
    names = [label_of(name) for name in tables["big"]["name"]]
    with visit_tables("big") as page:
        section = page.locator("#cuda_gpu_kern_sum")
        assert section.locator(".scroll").bounding_box()["height"] <= 0.6 * 800 + 2
        height = section.locator(".scroll").evaluate("box => box.scrollHeight")
        for top in (0, 0.3 * height, 0.7 * height, height):
            scroll(section, top)
            first = int(rows_of(section).first.get_attribute("aria-rowindex")) - 2
            visible = shown(section)
            assert 10 < len(visible) < 60
            assert visible == names[first : first + len(visible)]
        assert visible[-1] == names[-1]


def test_virtual_rows_are_written_as_printed_ones_are(visit_tables: Any) -> None:
    with visit_tables("train") as page:
        table = page.locator("#gpu_gaps")
        cells = "rows => rows.map(row => Array.from(row.cells, cell => cell.textContent.trim()))"
        printed = table.locator("tbody.printed tr").evaluate_all(cells)
        virtual = rows_of(table).evaluate_all(cells)
    with visit_tables("big") as page:
        bars = [
            page.locator(f"#nvtx_ranges {body} rect").first.get_attribute("width")
            for body in (".printed", ":not(.printed)")
        ]
    assert len(printed) == 50
    shown = min(len(virtual), len(printed))
    assert shown >= 10
    assert virtual[:shown] == printed[:shown]
    assert float(bars[0].strip("%")) == float(bars[1].strip("%"))


def test_columns_keep_their_widths_while_rows_pass(visit_tables: Any) -> None:
    with visit_tables("big") as page:
        section = page.locator("#cuda_gpu_kern_sum")
        widths = "cells => cells.map(cell => Math.round(cell.getBoundingClientRect().width))"
        seen = set()
        for top in (0, 20_000, 90_000, 1e9):
            scroll(section, top)
            seen.add(json.dumps(section.locator("thead th").evaluate_all(widths)))
    assert len(seen) == 1


def test_full_names_replace_short_ones_and_come_back(visit_tables: Any, tables: dict[str, pd.DataFrame]) -> None:
    full = tables["big"]["name"][0]
    with visit_tables("big") as page:
        section = page.locator("#cuda_gpu_kern_sum")
        button = section.get_by_role("button", name="Full names")
        row = rows_of(section).first
        assert not row.locator(".full").is_visible()
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        assert (row.locator(".full").text_content(), row.locator("summary").is_visible()) == (full, False)
        scroll(section, 1e9)
        assert rows_of(section).last.locator(".full").is_visible()
        button.click()
        assert not rows_of(section).last.locator(".full").is_visible()
        assert not shown(section)[0].startswith("void")


def test_a_name_that_was_opened_stays_open_when_its_row_comes_back(visit_tables: Any) -> None:
    with visit_tables("big") as page:
        section = page.locator("#cuda_gpu_kern_sum")
        rows_of(section).nth(2).locator("summary").click()
        for top in (50_000, 0):
            scroll(section, top)
        assert rows_of(section).nth(2).locator(".full").is_visible()
        assert not rows_of(section).nth(3).locator(".full").is_visible()


def test_a_table_says_how_many_rows_it_has_and_shades_its_lower_edge_while_more_follow(visit_tables: Any) -> None:
    with visit_tables("train") as page:
        kernels = page.locator("#cuda_gpu_kern_sum")
        assert kernels.locator("tbody tr").count() == 20
        assert kernels.locator("output").text_content() == "20 kernels"
        shade = "box => getComputedStyle(box, '::after').content"
        seen = []
        for top in (0, 1e9, 0):
            scroll(kernels, top)
            seen.append(kernels.locator(".scroll").evaluate(shade) != "none")
        assert seen == [True, False, True]


def test_a_tree_says_how_many_of_its_rows_are_folded(visit_tables: Any) -> None:
    with visit_tables("big") as page:
        section = page.locator("#nvtx_ranges")
        table, output = section.locator("table"), section.locator("output")
        shown = int(table.get_attribute("aria-rowcount")) - 1
        assert output.text_content() == f"150 ranges, {150 - shown} of them folded"
        rows_of(section).first.locator(".toggle").click()
        opened = int(table.get_attribute("aria-rowcount")) - 1
        assert opened > shown
        assert output.text_content() == f"150 ranges, {150 - opened} of them folded"
        section.get_by_role("button", name="Expand all").click()
        assert output.text_content() == "150 ranges"


# trees


def test_a_tree_opens_closes_and_sorts_among_siblings(visit_tables: Any, tables: dict[str, pd.DataFrame]) -> None:
    frame = tables["ranges"]
    steps = frame[frame["level"] == 0].sort_values("cpu_total_ns", ascending=False)["path"].tolist()
    with visit_tables("big") as page:
        section = page.locator("#nvtx_ranges")
        assert shown(section)[:3] == ["step 0", "step 1", "step 2"]  # two levels would be too many rows
        sort_by(section, "CPU total")
        assert shown(section)[:10] == steps[:10]
        toggle = rows_of(section).first.locator(".toggle")
        assert toggle.get_attribute("aria-expanded") == "false"
        toggle.click()
        inside = frame[frame["path"].str.match(rf"{steps[0]} / \w+$")].sort_values("cpu_total_ns", ascending=False)
        names = [path.split(" / ")[1] for path in inside["path"]]
        assert shown(section)[:4] == [steps[0], *names, steps[1]]
        assert rows_of(section).first.locator(".toggle").get_attribute("aria-expanded") == "true"
        section.get_by_role("button", name="Expand all").click()
        assert section.locator("table").get_attribute("aria-rowcount") == str(len(frame) + 1)
        section.get_by_role("button", name="Collapse all").click()
        assert section.locator("table").get_attribute("aria-rowcount") == str(len(steps) + 1)


def test_a_filter_shows_what_a_match_is_inside_of(visit_tables: Any) -> None:
    with visit_tables("big") as page:
        section = page.locator("#nvtx_ranges")
        section.get_by_role("searchbox").fill("backward")
        assert section.locator("output").text_content() == "30 of 150"
        assert shown(section)[:4] == ["step 0", "backward", "step 1", "backward"]


def test_a_tree_and_its_rows_can_be_walked_by_keyboard(visit_tables: Any) -> None:
    with visit_tables("big") as page:
        section = page.locator("#nvtx_ranges")

        def at() -> tuple[str, str]:
            position = page.evaluate(
                "(at => [at.closest('tr').querySelector('bdi').textContent, at.ariaExpanded])(document.activeElement)"
            )
            return position[0], position[1]

        section.locator(".scroll").focus()
        page.keyboard.press("Tab")
        while page.evaluate("!document.activeElement.closest('tbody')"):
            page.keyboard.press("Tab")
        assert at() == ("step 0", "false")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        assert at() == ("step 1", "true")
        page.keyboard.press("ArrowDown")
        assert at() == ("forward", "false")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        assert at() == ("step 1", "false")
        page.keyboard.press("End")
        assert at() == ("step 29", "false")


def test_one_row_at_a_time_is_reached_by_the_tab_key(visit_tables: Any) -> None:
    with visit_tables("big") as page:
        section = page.locator("#cuda_gpu_kern_sum")
        reachable = section.locator('tbody:not(.printed) :is(button, summary):not([tabindex="-1"])')
        assert reachable.count() == 2
        rows_of(section).first.locator("summary").focus()
        for _ in range(40):
            page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.closest('tr').ariaRowIndex") == "42"
        assert reachable.count() == 2
        box, row = (section.locator(part).bounding_box() for part in (".scroll", "tr:focus-within"))
        assert box["y"] < row["y"] < box["y"] + box["height"]


def test_without_a_pointer_that_hovers_a_row_s_tools_stand_below_its_name(visit_tables: Any) -> None:
    with visit_tables("train", has_touch=True, is_mobile=True) as page:
        for section in ("#gpu_gaps", "#nvtx_ranges", "#cuda_gpu_kern_sum"):
            cell = page.locator(f"{section} tbody:not(.printed) .name-cell:has(.row-tools)").first
            cell.scroll_into_view_if_needed()
            name, tools = (cell.locator(part).first.bounding_box() for part in ("bdi", ".row-tools"))
            assert tools["y"] >= name["y"] + name["height"]
            assert tools["x"] <= name["x"] + 1
