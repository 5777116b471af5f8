"""What a step is made of, and its columns, in a real browser: chosen by pointer and keys, and shown without scripts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nightsight.render.page.html import render_html
from tests.browser.table_pages import wait_until
from tests.recorded import Recorded

pytestmark = pytest.mark.browser

LIVE = "() => Boolean(document.querySelector('.icicle.is-live'))"
READY = (
    "() => performance.getEntriesByName('timeline: ready').length && Boolean(document.querySelector('.icicle.is-live'))"
)
# of each box: its width, that of what one sees written in it, and whether the pointer finds it
BOXES = """() => [...document.querySelectorAll(".icicle > svg")].map(part => {
  const box = part.querySelector("rect").getBoundingClientRect();
  const text = part.querySelector("text");
  const isSeen = text && getComputedStyle(text).display !== "none";
  const found = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
  return {
    width: box.width,
    written: isSeen ? text.getBoundingClientRect().width : 0,
    left: box.left,
    right: box.right,
    title: part.querySelector("title").textContent,
    found: found?.closest("svg[data-part]")?.querySelector("title")?.textContent,
  };
})"""


@pytest.fixture
def shown(browser: Any, train_page: Path) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    errors: list[Any] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(train_page.as_uri())
    wait_until(page, lambda: bool(page.evaluate(READY)))
    yield page
    page.close()
    assert errors == []


def part(page: Any, name: str) -> Any:
    return page.locator(f'.icicle > [role="treeitem"][aria-label^="{name}: "]').first


def count(page: Any, table: str) -> str:
    """Return what the tools of a table say about its rows."""
    return str(page.locator(f"#{table} .table-tools output").text_content())


def search(page: Any) -> str:
    return str(page.locator(".timeline-search input").input_value())


def test_a_chosen_range_keeps_its_rows_and_is_selected_in_the_timeline(shown: Any) -> None:
    box = part(shown, "backward")
    box.scroll_into_view_if_needed()
    top = box.bounding_box()["y"]
    box.click(position={"x": 30, "y": 8})
    assert box.get_attribute("aria-selected") == "true"
    paths = shown.locator("#step_parts tbody tr td:has(bdi)").all_inner_texts()
    assert any("backward" in path for path in paths)
    assert not any("forward" in path or "optim" in path for path in paths)
    assert count(shown, "step_parts").endswith(": backward")
    assert ": backward" in count(shown, "cuda_gpu_kern_sum")
    assert search(shown) == "backward"
    # the page stays where it is
    assert box.bounding_box()["y"] == pytest.approx(top, abs=2)
    assert "backward: " in shown.locator(".chosen-part").inner_text()


def test_a_chosen_range_is_shown_in_a_typical_step_of_the_window(shown: Any) -> None:
    """The longest repetition is that of start-up, which is no part of the picture."""
    box = part(shown, "backward")
    (mean,) = re.findall(r": ([\d.]+) ms", box.get_attribute("aria-label"))
    box.click(position={"x": 30, "y": 8})
    text = shown.locator("#timeline .timeline-event").inner_text()
    (start,), (duration,) = re.findall(r"Start\s+(.*)", text), re.findall(r"Duration\s+([\d.]+) ms", text)
    assert "the window" not in start
    assert float(duration) == pytest.approx(float(mean), rel=0.5)


def test_a_chosen_kernel_is_alone_in_the_table_of_kernels(shown: Any) -> None:
    box = shown.locator('.icicle > [role="treeitem"][data-level="3"]').first
    name = box.get_attribute("aria-label").split(": ")[0]
    box.focus()
    shown.keyboard.press("Enter")
    assert count(shown, "step_parts").startswith("1 of ")
    assert name in count(shown, "step_parts")


def test_the_chosen_part_can_be_shown_in_the_timeline_and_let_go(shown: Any) -> None:
    part(shown, "backward").click(position={"x": 30, "y": 8})
    shown.locator(".chosen-part").get_by_text("Show in the timeline").click()
    assert shown.evaluate("document.activeElement.closest('#timeline') !== null")
    shown.locator(".chosen-part").get_by_text("Show all rows").click()
    assert ":" not in count(shown, "step_parts")
    assert shown.locator('.icicle [aria-selected="true"]').count() == 0
    assert shown.locator(".chosen-part").inner_text() == ""


def test_what_is_chosen_is_shown_once_while_the_pointer_stays(shown: Any) -> None:
    box = part(shown, "backward")
    box.hover(position={"x": 30, "y": 8})
    reading, chosen = shown.locator(".icicle ~ .reading").first, shown.locator(".chosen-part").first
    text = reading.inner_text()
    assert text
    box.click(position={"x": 30, "y": 8})
    assert (reading.inner_text(), chosen.locator("span").inner_text()) == ("", text)
    links = [button.bounding_box() for button in chosen.locator("button").all()]
    assert links[1]["x"] - links[0]["x"] - links[0]["width"] > 12  # they do not read as one
    box.click(position={"x": 30, "y": 8})
    assert (reading.inner_text(), chosen.inner_text()) == (text, "")


def test_idle_time_leads_to_its_longest_stretch(shown: Any) -> None:
    before = shown.evaluate("location.hash")
    box = part(shown, "host code")
    box.focus()
    shown.keyboard.press(" ")
    assert count(shown, "gpu_gaps").endswith(": host code")
    wait_until(
        shown, lambda: bool(shown.evaluate(f"() => location.hash !== {before!r} && location.hash.includes('span=')"))
    )


def test_arrow_keys_go_from_part_to_part_and_each_says_what_it_is(shown: Any) -> None:
    first = shown.locator('.icicle > [tabindex="0"]')
    assert first.count() == 1
    first.focus()
    labels = []
    for key in ("ArrowRight", "ArrowDown", "ArrowUp", "End", "Home"):
        shown.keyboard.press(key)
        focused = shown.evaluate(
            "[document.activeElement.getAttribute('aria-label'), document.activeElement.getAttribute('aria-level')]"
        )
        labels.append((focused[0].split(":")[0], focused[1]))
        assert shown.locator("#step_parts .reading").inner_text() == focused[0]
    assert labels[0][1] == labels[2][1] == "1"
    assert labels[1][1] == "2"
    assert labels[0] == labels[2]
    assert labels[3] != labels[4]
    shown.keyboard.press("Enter")
    assert shown.locator('.icicle [aria-selected="true"]').count() == 1
    shown.keyboard.press("Escape")
    assert shown.locator('.icicle [aria-selected="true"]').count() == 0


def test_typing_in_a_filter_takes_the_place_of_the_chosen_part(shown: Any) -> None:
    part(shown, "backward").click(position={"x": 30, "y": 8})
    shown.locator("#step_parts .table-tools input").fill("forward")
    assert ": backward" not in count(shown, "step_parts")
    assert all("forward" in row for row in shown.locator("#step_parts tbody tr").all_inner_texts())


def test_a_column_leads_to_that_step_in_the_timeline(shown: Any) -> None:
    column = shown.locator('.step-columns [role="button"]').nth(3)
    begin, end = map(float, column.get_attribute("data-span").split(" "))
    column.scroll_into_view_if_needed()
    column.hover()
    # iteration 0 is left out of the window
    assert shown.locator("#step_split .reading").inner_text().startswith("#4: ")
    column.click()
    wait_until(shown, lambda: bool(shown.evaluate("() => location.hash.includes('span=')")))
    span = shown.evaluate("location.hash.match(/span=(-?\\d+),(-?\\d+)/).slice(1).map(Number)")
    assert span == pytest.approx([begin, end], abs=(end - begin) * 0.01)


def test_columns_can_be_reached_and_chosen_with_keys(shown: Any) -> None:
    shown.locator('.step-columns [tabindex="0"]').focus()
    shown.keyboard.press("ArrowRight")
    assert shown.evaluate("document.activeElement.getAttribute('aria-label')").startswith("#2: ")
    shown.keyboard.press("Enter")
    wait_until(shown, lambda: bool(shown.evaluate("() => location.hash.includes('span=')")))


@pytest.mark.parametrize("width", [360, 768, 1280, 1920])
def test_what_is_written_fits_and_each_part_can_be_pointed_at(browser: Any, train_page: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, java_script_enabled=True)
    page.goto(train_page.as_uri())
    page.locator(".icicle").scroll_into_view_if_needed()
    boxes = page.evaluate(BOXES)
    assert max(box["written"] for box in boxes) > 30
    assert [box for box in boxes if box["written"] > box["width"]] == []
    assert [box for box in boxes if box["left"] < 0 or box["right"] > width] == []
    assert [box["title"] for box in boxes if box["width"] > 3 and box["found"] != box["title"]] == []
    page.close()


def test_without_scripts_the_pictures_are_there_and_say_what_they_show(browser: Any, train_page: Path) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(train_page.as_uri())
    for picture in (".icicle", ".step-columns"):
        assert page.locator(picture).get_attribute("role") == "img"
        assert page.locator(picture).bounding_box()["height"] > 50
        assert page.locator(f"{picture} > [role]").count() == 0
    page.close()


def test_on_a_page_without_a_timeline_parts_still_keep_their_rows(
    browser: Any, recorded: Recorded, tmp_path: Path
) -> None:
    file = tmp_path / "plain.html"
    file.write_text(render_html(recorded.report("train")), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(file.as_uri())
    wait_until(page, lambda: bool(page.evaluate(LIVE)))
    part(page, "backward").click(position={"x": 30, "y": 8})
    assert count(page, "step_parts").endswith(": backward")
    assert "Show in the timeline" not in page.locator(".chosen-part").inner_text()
    assert page.locator(".step-columns [role=button]").count() == 0
    page.close()
