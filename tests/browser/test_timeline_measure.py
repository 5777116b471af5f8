"""Distances between events of the timeline, and the spans that end at their edges."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.timeline_page import in_view
from tests.browser.timeline_samples import cells, click, number, place, text, visitor

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def visit(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    return visitor(browser, tmp_path_factory.mktemp("timelines"))


def shift_click(page: Any, ms: float, row: str) -> None:
    page.keyboard.down("Shift")
    click(page, ms, row)
    page.keyboard.up("Shift")


def distances(page: Any) -> dict[str, float]:
    """Return the distances of the panel in ms."""
    return {
        pair.locator("dt").inner_text(): number(pair.locator("dd").inner_text())
        for pair in page.locator(".timeline-measure dl > div").all()
    }


def title(page: Any) -> str:
    return str(page.locator(".timeline-measure h3").inner_text())


def test_shift_and_a_click_measure_to_the_second_event(visit: Any) -> None:
    with visit("small") as page:
        click(page, 2, "Stream 7")  # 1 ms to 3 ms, and the next one 5 ms to 8 ms
        assert text(page, "measure") == ""
        shift_click(page, 6, "Stream 7")
        assert title(page).startswith("2.000 ms from the end of ")
        assert distances(page) == {"Start to start": 4, "End to end": 5, "Both, whole": 7}
        (row,) = cells(page, ".timeline-measure tbody tr")
        assert row[0] == "GPU 0, Stream 7"
        assert [number(row[1]), row[2], number(row[3]), row[4]] == [0, "0 %", 2, "0"]
        assert text(page, "span") == ""  # a click marks no span


def test_the_order_of_the_events_does_not_matter(visit: Any) -> None:
    with visit("small") as page:
        click(page, 6, "Stream 7")
        shift_click(page, 0.2, "CUDA API")
        assert title(page).startswith("4.500 ms from the end of cudaLaunchKernel")
        between = cells(page, ".timeline-measure tbody tr")
        # the row of the calls and that of the kernels, from 0.5 ms to 5 ms
        assert [(row[0], number(row[1]), number(row[3]), row[4]) for row in between] == [
            ("Process 5, Main thread, CUDA API", 1.7, 2.8, "2"),
            ("GPU 0, Stream 7", 2, 2.5, "1"),
        ]


def test_events_that_overlap_say_by_how_much(visit: Any) -> None:
    with visit("small") as page:
        click(page, 4.5, "Stream 13")  # 4 ms to 6 ms
        shift_click(page, 7, "Stream 7")  # 5 ms to 8 ms
        assert title(page).endswith(" overlap by 1.000 ms")
        assert distances(page) == {"Start to start": 1, "End to end": 2, "Both, whole": 4}
        assert page.locator(".timeline-measure table").count() == 0


def test_a_third_click_ends_the_measurement(visit: Any) -> None:
    with visit("small") as page:
        click(page, 2, "Stream 7")
        shift_click(page, 6, "Stream 7")
        click(page, 4.5, "Stream 13")
        assert text(page, "measure") == ""
        assert "memcpy" in text(page, "event")


def test_it_needs_no_mouse(visit: Any) -> None:
    with visit("small") as page:
        page.locator(".timeline-box canvas").focus()
        for key in ("ArrowDown", "ArrowDown", "Enter", "x"):
            page.keyboard.press(key)
        assert "Measure to another event" in text(page, "measure")
        page.keyboard.press("]")
        assert title(page).startswith("2.000 ms from the end of ")
        page.locator(".timeline-measure").get_by_role("button", name="Statistics for this time").press("Enter")
        assert "2.000 ms from 3 ms to 5 ms" in text(page, "span")
        page.locator(".timeline-measure").get_by_role("button", name="Zoom to it").press("Enter")
        first, last = in_view(page)
        assert (first + last) / 2 == pytest.approx(4.5, abs=0.01)
        assert last - first == pytest.approx(7 / 0.9, abs=0.01)
        page.keyboard.press("Tab")
        page.locator(".timeline-measure").get_by_role("button", name="Close").press("Enter")
        assert text(page, "measure") == ""
        assert page.evaluate("document.activeElement.tagName") == "CANVAS"


def test_a_button_begins_a_measurement_that_a_click_completes(visit: Any) -> None:
    with visit("small", has_touch=True) as page:
        click(page, 2, "Stream 7")
        page.get_by_role("button", name="Measure from here").click()
        click(page, 6, "Stream 7")
        assert title(page).startswith("2.000 ms from the end of ")


def test_an_address_keeps_the_measurement(visit: Any) -> None:
    with visit("small") as page:
        click(page, 2, "Stream 7")
        shift_click(page, 6, "Stream 7")
        page.wait_for_timeout(700)
        address = page.evaluate("location.hash")
        assert "&event=0,5000000&anchor=0,1000000" in address
        page.keyboard.press("Escape")
        page.evaluate("(hash) => { location.hash = hash; }", "#timeline=0,8000000&event=0,5000000&anchor=0,1000000")
        page.locator(".timeline-measure h3").wait_for()
        assert title(page).startswith("2.000 ms from the end of ")


def test_the_ends_of_a_span_snap_to_edges_of_the_row(visit: Any) -> None:
    def drag(begin: float, end: float) -> str:
        (x, y), (to, _) = place(page, begin, "Stream 7"), place(page, end, "Stream 7")
        page.keyboard.down("Shift")
        page.mouse.move(x + 3, y)
        page.mouse.down()
        page.mouse.move((x + to) / 2, y)
        page.mouse.move(to - 4, y)
        page.mouse.up()
        page.keyboard.up("Shift")
        return str(page.locator(".timeline-span h3").inner_text())

    with visit("small") as page:
        # three pixels inside of the first kernel, four before the end of the second one
        assert drag(1, 8) == "Selected span: 7.000 ms from 1 ms to 8 ms"
        assert "from 1.000 ms to 3.9" in drag(1, 4)  # there is no edge at 4 ms
