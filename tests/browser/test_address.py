"""The view of the timeline in the address: shared, reloaded, and brought back after a row of a table led away."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser.looks import OPEN_ALL
from tests.browser.table_pages import rows_of, wait_until
from tests.browser.timeline_page import durations, in_view
from tests.browser.timeline_samples import text, value

pytestmark = pytest.mark.browser

STEP = "cudaStreamSynchronize"


@contextmanager
def visited(browser: Any, address: str) -> Iterator[Any]:
    """Open a page once its timeline is drawn; in the end there must have been no message."""
    messages: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(address)
    wait_until(page, lambda: bool(durations(page.frames[-1], "ready")))
    yield page
    page.close()
    assert messages == []


def at_rest(page: Any) -> str:
    page.wait_for_timeout(700)
    return str(page.evaluate("location.hash"))


def jump(page: Any, table: str, row: int) -> float:
    """Press the button of a row; return where the page was."""
    target = rows_of(page.locator(f"#{table}")).nth(row)
    page.evaluate(OPEN_ALL)
    target.scroll_into_view_if_needed()
    page.wait_for_timeout(100)
    top: float = page.evaluate("scrollY")
    target.hover()
    target.get_by_role("button", name="in the timeline").click()
    return top


@pytest.mark.nightly
def test_back_undoes_what_the_row_of_a_table_did(browser: Any, train_page: Path) -> None:
    with visited(browser, train_page.as_uri()) as page:
        everything = in_view(page)
        top = jump(page, "cuda_api_sync", 1)
        first = (at_rest(page), in_view(page), value(page, "Start"))
        assert page.evaluate("scrollY") < top - 1_000
        second_top = jump(page, "cuda_gpu_kern_sum", 2)
        assert at_rest(page) != first[0]
        page.go_back()
        wait_until(page, lambda: page.evaluate("scrollY") == pytest.approx(second_top, abs=2))
        assert (at_rest(page), in_view(page), value(page, "Start")) == first
        assert page.locator(".timeline-search input").input_value() == STEP
        page.go_back()
        wait_until(page, lambda: page.evaluate("scrollY") == pytest.approx(top, abs=2))
        assert (at_rest(page), in_view(page), text(page, "event")) == ("", everything, "")
        assert page.locator(".timeline-search input").input_value() == ""
        assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Show cudaStream")
        page.go_forward()
        wait_until(page, lambda: in_view(page) == first[1])


def test_moving_in_the_timeline_takes_no_step_in_the_history(browser: Any, train_page: Path) -> None:
    with visited(browser, train_page.as_uri()) as page:
        before = page.evaluate("history.length")
        page.locator(".timeline-box canvas").focus()
        for key in ("+", "+", "ArrowRight", "Home", "+"):
            page.keyboard.press(key)
        assert page.evaluate("location.hash") == ""  # while it moves
        assert at_rest(page).startswith("#timeline=")
        assert page.evaluate("history.length") == before


@pytest.mark.nightly
def test_an_address_keeps_view_event_and_span(browser: Any, train_page: Path) -> None:
    def seen(page: Any) -> tuple[Any, ...]:
        return in_view(page), value(page, "Start"), text(page, "event"), text(page, "span")

    with visited(browser, train_page.as_uri()) as page:
        jump(page, "gpu_gaps", 1)
        page.keyboard.press("]")
        address, shown = at_rest(page), seen(page)
        assert "&span=" in address
        assert "&event=" in address
        page.reload()
        wait_until(page, lambda: bool(durations(page, "ready")))
        assert (at_rest(page), seen(page)) == (address, shown)
    with visited(browser, train_page.as_uri() + address) as page:
        assert seen(page) == (pytest.approx(shown[0], abs=1e-4), *shown[1:])
        assert at_rest(page) == address
        assert page.locator("#timeline").bounding_box()["y"] < 200
        page.evaluate("location.hash = '#timeline=0,1000000'")  # as a link in another page does
        wait_until(page, lambda: in_view(page) == (0, 1))
        assert text(page, "event") == ""


@pytest.mark.parametrize("hash_", ["#timeline=", "#timeline=1,2,3", "#timeline=9e99,1", "#timeline=1,2&event=99,5"])
def test_an_address_that_is_none_does_no_harm(hash_: str, browser: Any, train_page: Path) -> None:
    with visited(browser, train_page.as_uri() + hash_) as page:
        assert text(page, "event") == ""
        for step in ("fit", "zoom-in"):
            page.locator(f"[data-do={step}]").click()
        assert re.fullmatch(r"#timeline=-?\d+,-?\d+", at_rest(page))


def test_sections_keep_their_addresses(browser: Any, train_page: Path) -> None:
    with visited(browser, train_page.as_uri()) as page:
        page.locator("[data-do=zoom-in]").click()
        view, address = in_view(page), at_rest(page)
        page.locator('nav a[href="#cuda_gpu_kern_sum"]').click()
        assert at_rest(page) == "#cuda_gpu_kern_sum"
        assert in_view(page) == view
        page.go_back()
        assert at_rest(page) == address
        assert in_view(page) == view


def test_back_works_in_a_sandboxed_frame(browser: Any, train_page: Path) -> None:
    with visited(browser, train_page.with_name("framed.html").as_uri()) as page:
        frame = page.frames[1]
        before = in_view(frame)
        rows_of(frame.locator("#cuda_api_sync")).nth(1).locator("[data-does=show]").dispatch_event("click")
        wait_until(page, lambda: in_view(frame) != before)
        at_rest(frame)
        page.evaluate("history.back()")
        wait_until(page, lambda: in_view(frame) == before)


def test_without_a_history_the_timeline_still_works(browser: Any, train_page: Path) -> None:
    broken = "for (const name of ['pushState', 'replaceState']) history[name] = () => { throw new Error('no'); }"
    messages: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.add_init_script(broken)
    page.goto(train_page.as_uri())
    wait_until(page, lambda: bool(durations(page, "ready")))
    jump(page, "cuda_api_sync", 1)
    assert at_rest(page) == ""
    assert STEP in text(page, "event")
    page.close()
    assert messages == []
