"""Rows of the timeline: filtered by name, pinned to the top, and both kept by the address."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.table_pages import wait_until
from tests.browser.timeline_page import in_view, pixels, show
from tests.browser.timeline_samples import COPY, GEMM, NAMES, left_of_plot, text, visitor

pytestmark = pytest.mark.browser

AXIS, HEADING, ROW = 36, 26, 20  # px
WHITE = (255, 255, 255)


@pytest.fixture(scope="module")
def visit(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    return visitor(browser, tmp_path_factory.mktemp("timelines"))


def top(page: Any) -> str:
    """Return the name of the first row."""
    page.locator(".timeline-box canvas").focus()
    for _ in range(12):
        page.keyboard.press("ArrowUp")
    return text(page, "announcement")


def choose(page: Any, count: int) -> None:
    page.locator(".timeline-box canvas").focus()
    for _ in range(count):
        page.keyboard.press("ArrowDown")


def filter_rows(page: Any, text_: str) -> str:
    page.locator(".timeline-filter input").fill(text_)
    return str(page.locator(".timeline-filter output").inner_text())


def test_a_filter_shows_the_rows_that_have_the_text_and_their_groups(visit: Any) -> None:
    with visit("small") as page:
        assert filter_rows(page, "stream 1") == "1 row"
        height = page.locator(".timeline-box canvas").bounding_box()["height"]
        assert height == AXIS + HEADING + ROW + 4
        assert page.get_by_role("button", name="Process 5").count() == 0
        assert filter_rows(page, "process 5") == "2 rows"  # the name of a group stands for all of its rows
        assert filter_rows(page, "/stream 7|memory/") == "2 rows"
        assert filter_rows(page, "nothing") == "No rows"
        assert filter_rows(page, "/(/") == "Invalid regular expression"
        page.locator(".timeline-filter input").press("Escape")
        assert page.locator(".timeline-filter input").input_value() == ""
        assert page.evaluate("document.activeElement.tagName") == "CANVAS"
        assert page.get_by_role("button", name="Process 5").count() == 1


def test_a_filter_finds_rows_of_collapsed_groups_which_are_collapsed_again_later(visit: Any) -> None:
    with visit("small") as page:
        group = page.get_by_role("button", name="GPU 0")
        group.press("Enter")
        assert filter_rows(page, "stream") == "2 rows"
        assert group.get_attribute("aria-expanded") == "true"
        group.press("Enter")
        assert group.get_attribute("aria-expanded") == "false"
        filter_rows(page, "")
        assert group.get_attribute("aria-expanded") == "false"


def test_an_event_of_another_row_ends_the_filter(visit: Any) -> None:
    with visit("small") as page:
        filter_rows(page, "nvtx")
        page.locator(".timeline-search input").fill("gemm")
        page.locator(".timeline-search input").press("Enter")
        assert page.locator(".timeline-filter input").input_value() == ""
        filter_rows(page, "nvtx")
        show(page, name=NAMES[COPY])
        assert page.locator(".timeline-filter input").input_value() == ""
        assert "memcpy" in text(page, "event")


def test_a_pinned_row_stays_at_the_top_while_others_scroll(visit: Any) -> None:
    with visit("rows", viewport={"width": 1280, "height": 600}) as page:
        button, left = page.get_by_role("button", name="Pin row"), left_of_plot(page)
        assert button.is_disabled()
        choose(page, 3)
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        assert text(page, "announcement") == "Pinned: GPU 0, Stream 1, 1 event"
        page.keyboard.press("Home")
        in_view(page)
        before = pixels(page, left, AXIS - 14, 900, ROW)  # the page has no window, and no strip for it
        page.locator(".timeline-box").evaluate("(box) => { box.scrollTop = 5000; }")
        in_view(page)
        assert pixels(page, left, AXIS - 14, 900, ROW) == before
        box = page.locator(".timeline-box canvas").bounding_box()
        page.mouse.click(box["x"] + 60, box["y"] + AXIS - 14 + 10)
        assert text(page, "announcement") == "GPU 0, Stream 1, 1 event"
        page.mouse.click(box["x"] + 60, box["y"] + AXIS - 14 + 30)  # just below it
        assert text(page, "announcement") != "GPU 0, Stream 1, 1 event"


def test_a_click_left_of_a_name_pins_and_unpins(visit: Any) -> None:
    with visit("small") as page:
        page.mouse.move(0, 0)
        box = page.locator(".timeline-box canvas").bounding_box()
        place = (box["x"] + 9, box["y"] + AXIS + HEADING + ROW + 10)  # Stream 13
        page.mouse.move(*place)
        assert text(page, "tooltip") == "Pin to the top"
        page.mouse.click(*place)
        assert top(page) == "GPU 0, Stream 13, 1 event"
        assert filter_rows(page, "stream 1") == "No other rows"
        filter_rows(page, "")
        page.mouse.click(box["x"] + 9, box["y"] + AXIS + 10)
        assert top(page) == "GPU 0, expanded"


def test_events_of_pinned_rows_are_selected_in_their_place(visit: Any) -> None:
    with visit("small") as page:
        left = left_of_plot(page)
        choose(page, 2)
        page.keyboard.press("p")
        box = page.locator(".timeline-box canvas").bounding_box()
        page.mouse.click(box["x"] + left + 250, box["y"] + AXIS + 10)
        assert page.locator(".timeline-event h3").inner_text() == NAMES[GEMM]
        page.get_by_role("button", name="GPU 0").press("Enter")  # collapsing its group leaves it where it is
        page.mouse.click(box["x"] + 60, box["y"] + AXIS + 10)
        assert text(page, "announcement") == "GPU 0, Stream 7, 2 events"


def test_pinned_rows_scroll_if_they_would_fill_the_timeline(visit: Any) -> None:
    with visit("rows", viewport={"width": 1280, "height": 400}) as page:
        choose(page, 2)
        for _ in range(8):
            page.keyboard.press("p")
            for _ in range(9):
                page.keyboard.press("ArrowDown")
        page.locator(".timeline-box").evaluate("(box) => { box.scrollTop = 5000; }")
        in_view(page)
        box = page.locator(".timeline-box canvas").bounding_box()
        page.mouse.click(box["x"] + 60, box["y"] + AXIS)
        assert "Stream 2" in text(page, "announcement")
        assert page.get_by_role("button", name="Pin row").get_attribute("aria-pressed") == "false"


def test_the_address_keeps_pins_and_the_filter(visit: Any) -> None:
    with visit("small") as page:
        choose(page, 2)
        page.keyboard.press("p")
        filter_rows(page, "/cuda api|memory/")
        page.wait_for_timeout(700)
        hash_ = page.evaluate("location.hash")
        assert hash_.endswith("&pin=r0&rows=%2Fcuda%20api%7Cmemory%2F")
        filter_rows(page, "")
        page.keyboard.press("p")
        page.evaluate("(hash) => { location.hash = hash; }", "#timeline=0,8000000&pin=c0,s7,r99,r2&rows=stream")
        wait_until(page, lambda: page.locator(".timeline-filter input").input_value() == "stream")
        assert top(page) == "Memory in use, maximum 2.000 GB"
        assert page.get_by_role("button", name="Process 5").count() == 0
