"""Notes of the reader in the timeline: added, edited, deleted, kept by the address, and always text."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.table_pages import wait_until
from tests.browser.timeline_page import in_view, pixels
from tests.browser.timeline_samples import click, left_of_plot, text, visitor

pytestmark = pytest.mark.browser

BLACK = (26, 30, 35)
MARKUP = '<img src=x onerror=alert(1)> & "quotes"'


@pytest.fixture(scope="module")
def visit(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    return visitor(browser, tmp_path_factory.mktemp("timelines"))


def add(page: Any, note: str) -> None:
    page.locator(".timeline-box canvas").focus()
    page.keyboard.press("n")
    page.keyboard.type(note)
    page.keyboard.press("Enter")


def notes(page: Any) -> list[str]:
    return [" ".join(item.inner_text().split()) for item in page.locator(".timeline-own-notes li").all()]


def address(page: Any) -> str:
    page.wait_for_timeout(700)
    return str(page.evaluate("location.hash"))


def test_a_note_belongs_to_the_selected_event_and_is_in_the_address(visit: Any) -> None:
    with visit("small") as page:
        click(page, 2, "Stream 7")
        add(page, MARKUP)
        assert notes(page) == [f"1 ms to 3 ms {MARKUP} Edit Delete"]
        assert page.evaluate("document.activeElement.tagName") == "CANVAS"
        assert page.locator(".timeline-own-notes img").count() == 0
        hash_ = address(page)
        assert "&note=1000000,3000000,%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E%20%26%20%22quotes%22" in hash_
        page.locator(".timeline-own-notes").get_by_role("button", name="Delete").click()
        assert notes(page) == []
        assert "note" not in address(page)
        page.evaluate("(hash) => { location.hash = hash; }", hash_)
        wait_until(page, lambda: bool(notes(page)))
        assert notes(page) == [f"1 ms to 3 ms {MARKUP} Edit Delete"]
        assert page.locator(".timeline-own-notes img").count() == 0


def test_without_a_selection_a_note_is_in_the_middle_of_the_view(visit: Any) -> None:
    with visit("small") as page:
        page.get_by_role("button", name="Add a note").click()
        page.keyboard.type("here")
        page.get_by_role("button", name="Save").click()
        assert notes(page) == ["4 ms here Edit Delete"]
        page.keyboard.press("n")
        page.keyboard.press("Escape")  # leaves the field, and adds nothing
        assert len(notes(page)) == 1
        add(page, "   ")
        assert len(notes(page)) == 1


def test_a_tag_on_the_axis_edits_its_note(visit: Any) -> None:
    with visit("small") as page:
        left = left_of_plot(page)
        click(page, 2, "Stream 7")
        add(page, "first")
        first, last = in_view(page)
        box = page.locator(".timeline-box canvas").bounding_box()
        x = round(left + (1 - first) / (last - first) * (box["width"] - left))
        assert pixels(page, x + 2, 4, 1, 1) == [BLACK]
        page.mouse.move(box["x"] + x + 5, box["y"] + 8)
        assert text(page, "tooltip") == "first"
        page.mouse.click(box["x"] + x + 5, box["y"] + 8)
        field = page.locator(".timeline-ask input")
        assert field.input_value() == "first"
        field.fill("second")
        field.press("Enter")
        assert notes(page) == ["1 ms to 3 ms second Edit Delete"]
        page.locator(".timeline-own-notes").get_by_role("button", name="Edit").click()
        field.fill("")
        field.press("Enter")
        assert notes(page) == []


def test_the_time_of_a_note_leads_there(visit: Any) -> None:
    with visit("small") as page:
        click(page, 2, "Stream 7")
        add(page, "here")
        page.keyboard.press("Home")
        page.locator(".timeline-own-notes").get_by_role("button", name="1 ms to 3 ms").click()
        assert in_view(page) == pytest.approx((0, 4), abs=0.01)


def test_notes_are_few_and_short(visit: Any) -> None:
    with visit("small") as page:
        many = "&".join(f"note={at},{at},a" for at in range(30))
        page.evaluate("(hash) => { location.hash = hash; }", f"#timeline=0,8000000&{many}")
        wait_until(page, lambda: len(notes(page)) == 20)
        page.locator(".timeline-box canvas").focus()
        page.keyboard.press("n")
        assert "delete one first" in text(page, "own-notes")
        page.locator(".timeline-own-notes").get_by_role("button", name="Delete").first.click()
        add(page, "x" * 100)
        assert sorted(map(len, notes(page)))[-1] == len("4 ms  Edit Delete") + 80


def test_back_takes_no_note_away(visit: Any) -> None:
    with visit("small") as page:
        page.evaluate(
            "document.dispatchEvent(new CustomEvent('timeline:show', { detail: { from_ns: 0, to_ns: 2e6 } }))"
        )
        page.wait_for_timeout(700)
        add(page, "kept")
        page.wait_for_timeout(700)
        page.go_back()
        page.wait_for_timeout(700)
        assert len(notes(page)) == 1
        assert "kept" in address(page)


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_a_long_note_fits(width: int, scheme: str, visit: Any) -> None:
    with visit("small", viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        add(page, "W" * 80)
        page.locator(".timeline-box canvas").focus()
        page.keyboard.press("n")
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_a_state_of_an_older_page_is_restored(visit: Any) -> None:
    old = "{ timeline: { view: [2e6, 4e6], span: null, event: null, query: null } }"
    with visit("small") as page:
        add(page, "note")
        page.evaluate(f"window.dispatchEvent(new PopStateEvent('popstate', {{ state: {old} }}))")
        assert in_view(page) == pytest.approx((1, 3), abs=0.01)
        assert len(notes(page)) == 1


def test_a_printout_has_notes_without_their_tools(visit: Any) -> None:
    with visit("small") as page:
        add(page, "printed")
        page.emulate_media(media="print")
        assert notes(page) == ["4 ms printed"]
