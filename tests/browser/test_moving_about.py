"""What a reader relies on when moving about: the address, links in a frame, the keyboard, large text."""

from pathlib import Path
from typing import Any

import pytest

from tests.browser.table_pages import wait_until

pytestmark = pytest.mark.browser

TOP = "place => Math.abs(document.getElementById(place).getBoundingClientRect().top)"


def test_an_address_with_a_section_shows_that_section(browser: Any, train_page: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{train_page.as_uri()}#cuda_api_sync")
    ready = "['table: ready', 'timeline: ready'].every((name) => performance.getEntriesByName(name).length)"
    wait_until(page, lambda: bool(page.evaluate(ready)))
    page.wait_for_timeout(300)
    assert page.evaluate(TOP, "cuda_api_sync") < 200
    page.close()


def test_links_go_to_their_sections_in_a_sandboxed_frame(browser: Any, train_page: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.goto(train_page.with_name("framed.html").as_uri())
    frame = page.frames[1]
    frame.locator('nav a[href="#cuda_gpu_kern_sum"]').click()
    wait_until(page, lambda: frame.evaluate(TOP, "cuda_gpu_kern_sum") < 200)
    assert messages == []
    page.close()


def test_closing_a_panel_keeps_the_keyboard_in_the_timeline(browser: Any, train_page: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(train_page.as_uri())
    canvas = page.locator(".timeline-box canvas")
    canvas.wait_for()
    canvas.focus()
    page.keyboard.press("m")
    page.locator(".timeline-span").get_by_role("button", name="Close").press("Enter")
    assert page.locator(".timeline-span h3").count() == 0
    assert page.evaluate("document.activeElement.tagName") == "CANVAS"
    page.close()


def test_a_phone_with_text_twice_as_large_scrolls_in_one_direction(browser: Any, train_page: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto(train_page.as_uri())
    page.locator(".timeline-box canvas").wait_for()
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.close()


def test_the_contents_mark_the_section_that_is_read(browser: Any, train_page: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto(train_page.as_uri())
    current = page.locator(".contents [aria-current]")
    assert current.all_inner_texts() == ["Verdict"]
    page.locator("#cuda_gpu_kern_sum").evaluate("section => section.scrollIntoView({ behavior: 'instant' })")
    wait_until(page, lambda: current.all_inner_texts() == ["Kernel time"])
    box = current.bounding_box()
    assert 0 <= box["x"] < box["x"] + box["width"] <= 390
    page.evaluate("scrollTo(0, 1e9)")
    wait_until(page, lambda: current.all_inner_texts() == ["Details"])
    page.close()
