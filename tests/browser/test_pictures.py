"""Pictures in a real browser: what is written in them can be read at any width."""

from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from nightsight.render.page.html import render_html
from tests.browser.looks import OPEN_ALL
from tests.recorded import Recorded

pytestmark = pytest.mark.browser

NAMES = ("train", "ddp2", "everything")
WIDTHS = (390, 768, 1280)
# left, right, top and bottom of each text that is shown
BOXES = """selector => [...document.querySelectorAll(selector)]
  .filter(element => getComputedStyle(element).display !== "none")
  .map(element => [element.getBoundingClientRect(), element.textContent])
  .map(([box, text]) => [box.left, box.right, box.top, box.bottom, text])"""
PARTS = """() => [...document.querySelectorAll(".parts-of-whole > svg")].flatMap(part => {
  const [text] = [...part.querySelectorAll("text")].filter(text => getComputedStyle(text).display !== "none");
  return text ? [[part.querySelector("rect").getBoundingClientRect().width, text.getComputedTextLength()]] : [];
})"""
Box = tuple[float, float, float, float, str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pictures")
    for name in NAMES:
        html = render_html(recorded.report(name))
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in NAMES}


@pytest.fixture(scope="module", params=[(name, width) for name in NAMES for width in WIDTHS], ids=str)
def shown(request: pytest.FixtureRequest, browser: Any, files: dict[str, Path]) -> Iterator[Any]:
    name, width = request.param
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(files[name].as_uri())
    page.evaluate(OPEN_ALL)
    yield page
    page.close()


def touch(first: Box, second: Box) -> bool:
    return first[0] < second[1] and second[0] < first[1] and first[2] < second[3] and second[2] < first[3]


@pytest.mark.parametrize(
    "selector",
    [".histogram svg > text", ".of-rates .field > text", ".of-rates .rates > text"],
)
def test_no_text_of_a_picture_lies_on_another_or_beside_the_page(shown: Any, selector: str) -> None:
    boxes = [tuple(box) for box in shown.evaluate(BOXES, selector)]
    assert boxes
    assert [(a[4], b[4]) for a, b in combinations(boxes, 2) if touch(a, b)] == []
    assert all(left >= 0 and right <= shown.viewport_size["width"] for left, right, *_ in boxes)


def test_what_is_written_on_a_part_fits_into_it(shown: Any) -> None:
    widths = shown.evaluate(PARTS)
    assert widths
    assert all(text <= part for part, text in widths)


def test_the_parts_of_a_bar_fill_it(shown: Any) -> None:
    for bar in shown.locator(".parts-of-whole").all():
        edges = bar.evaluate("""bar => [bar, ...bar.querySelectorAll(":scope > svg > rect")].map(element => {
          const box = element.getBoundingClientRect();
          return [box.left, box.right];
        })""")
        (left, right), *parts = edges
        assert parts[0][0] == pytest.approx(left, abs=0.5)
        assert parts[-1][1] == pytest.approx(right, abs=0.5)
        assert all(one[1] == pytest.approx(other[0], abs=0.5) for one, other in pairwise(parts))


def test_the_numbers_of_a_class_are_where_the_pointer_is(shown: Any) -> None:
    panel = shown.locator(".histogram .panels > svg").first
    panel.scroll_into_view_if_needed()
    titles = panel.locator("g > title").all_text_contents()
    places = panel.locator("g > .hit").evaluate_all("""hits => hits.map(hit => {
      const box = hit.getBoundingClientRect();
      const found = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 4);
      return found.closest("g")?.querySelector("title")?.textContent ?? found.tagName;
    })""")
    assert titles
    # the line of a mark may be in the middle of a class
    assert sum(title != place for title, place in zip(titles, places, strict=True)) <= 2


# of each function in a flame graph: its box, what one sees written in it, and whether the pointer finds its title there
FLAME = """() => [...document.querySelectorAll(".flame:not(.icicle) > svg")].map(part => {
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
    found: found?.closest("svg")?.querySelector("title")?.textContent,
  };
})"""


@pytest.fixture(scope="module")
def flame_file(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded) -> Path:
    file = tmp_path_factory.mktemp("flame") / "python_names.html"
    file.write_text(recorded.page("python_names"), encoding="utf-8")
    return file


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_what_is_written_in_a_flame_graph_fits_and_each_function_can_be_pointed_at(
    browser: Any, flame_file: Path, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(flame_file.as_uri())
    page.evaluate(OPEN_ALL)
    page.locator(".flame:not(.icicle)").scroll_into_view_if_needed()
    boxes = page.evaluate(FLAME)
    assert max(box["written"] for box in boxes) > 50
    assert [box for box in boxes if box["written"] > box["width"]] == []
    assert [box for box in boxes if box["left"] < 0 or box["right"] > width] == []
    assert [box["title"] for box in boxes if box["found"] != box["title"]] == []
    page.close()
