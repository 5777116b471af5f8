"""Pages as a person sees them, in both themes and at two widths: what their screenshots and the boxes in them tell.

No picture is compared with an older one, which would tell of every new Chromium. Failures name the file of the picture.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from tests.browser.looks import LOOKS, OPEN_ALL, in_turns
from tests.browser.sample_pages import READY, sample_pages
from tests.browser.table_pages import wait_until
from tests.properties import at_night
from tests.recorded import Recorded

pytestmark = pytest.mark.browser

SHOTS: Final = [
    # the page with most in it in both
    *(("mlp", *look) for look in LOOKS),
    *(pytest.param(shot.values, marks=shot.marks) for shot in in_turns(("cpu", "index"))),
    *at_night(("mlp", "light", 1280), ("mlp", "dark", 390)),
]
# each line of text that can be seen: its words, its box, that of the figure it is drawn in, and whether it is in use
TEXTS: Final = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const edges = (box) => box && [box.left, box.top, box.right, box.bottom];
  const range = document.createRange();
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    const isSeen = element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    const isApart = element.closest(".skip, .unseen, .contents, caption");
    if (!isSeen || !/[\\p{L}\\p{N}]/u.test(node.data) || isApart) continue;
    const scroll = element.closest(".scroll")?.getBoundingClientRect();
    const figure = element.closest("svg") && element.closest("figure")?.getBoundingClientRect();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      const isCut = scroll && (box.left < scroll.left || box.right > scroll.right - 16 || box.bottom > scroll.bottom);
      const isBlank = element.closest("pre") && box.width < 9; // at the end of a line of code that is wrapped
      if (isCut || isBlank || !box.width) continue;
      found.push([node.data.trim(), edges(box), edges(figure), !element.closest(":disabled")]);
    }
  }
  return found;
}"""
# the splits of other windows are hidden until one is chosen
BOXES: Final = """(selector) => [...document.querySelectorAll(selector)].flatMap((element) => {
  if (element.closest("[hidden]")) return [];
  const box = element.getBoundingClientRect();
  return [[element.id || element.className || element.tagName, [box.left, box.top, box.right, box.bottom]]];
})"""
PALETTE: Final = """() => {
  const style = getComputedStyle(document.querySelector(".timeline-box canvas"));
  return Array.from({ length: 20 }, (_, at) => style.getPropertyValue(`--event-${at + 1}`).trim()).filter(Boolean);
}"""
# sections of rows that are much higher than what can be seen of them needs
HOLLOW: Final = """() => [...document.querySelectorAll("tr:has(> th[scope=row]):not(.ruler)")].flatMap((row) => {
  if (!row.checkVisibility()) return [];
  const edge = row.closest(".scroll").getBoundingClientRect().right - 24;
  const range = document.createRange();
  const heights = [...row.cells].filter((cell) => cell.getBoundingClientRect().left < edge).map((cell) => {
    range.selectNodeContents(cell.querySelector("summary") ?? cell);
    return range.getBoundingClientRect().height;
  });
  return row.getBoundingClientRect().height > Math.max(...heights) + 48 ? [row.closest("section").id] : [];
})"""
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Shot:
    """A page that is open, and its picture from top to bottom."""

    page: Any
    file: Path
    pixels: npt.NDArray[np.uint8]
    luminance: npt.NDArray[np.float32]

    def part(self, box: Box) -> tuple[slice, slice]:
        left, top, right, bottom = (max(round(edge), 0) for edge in box)
        return slice(top, bottom), slice(left, right)

    def contrast(self, box: Box) -> float:
        """Return that of what stands out most in a box from what most of it is filled with."""
        part = self.luminance[self.part(box)] + 0.05
        ground = float(np.median(part))
        return max(float(part.max()) / ground, ground / float(part.min()))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded) -> dict[str, Path]:
    return sample_pages(tmp_path_factory.mktemp("screenshots"), recorded)


@pytest.fixture(scope="module", params=SHOTS, ids=lambda shot: "-".join(map(str, shot)))
def shot(request: pytest.FixtureRequest, browser: Any, files: dict[str, Path]) -> Iterator[Shot]:
    name, scheme, width = request.param
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(files[name].as_uri())
    wait_until(page, lambda: page.evaluate(READY))
    page.evaluate(OPEN_ALL)
    page.evaluate("document.querySelector('[data-do=names]')?.click()")
    page.evaluate("for (const each of document.querySelectorAll('.scroll')) each.style.maxHeight = 'none'")
    file = files[name].with_name(f"{name}-{scheme}-{width}.png")
    page.screenshot(path=file, full_page=True)
    with Image.open(file) as image:
        pixels = np.asarray(image.convert("RGB"))
    shares = np.arange(256, dtype="float32") / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    luminance = linear[pixels] @ np.array([0.2126, 0.7152, 0.0722], dtype="float32")
    yield Shot(page, file, pixels, luminance)
    page.close()


def test_nothing_reaches_beyond_the_page(shot: Shot) -> None:
    width = shot.page.viewport_size["width"]
    assert [text for text, box, *_ in shot.page.evaluate(TEXTS) if box[0] < 0 or box[2] > width] == [], shot.file
    assert (shot.page.evaluate("document.documentElement.scrollWidth"), shot.pixels.shape[1]) == (width, width)


def test_every_section_has_something_in_it(shot: Shot) -> None:
    boxes = shot.page.evaluate(BOXES, "header, nav, main > *, section section, figure")
    assert boxes
    assert [name for name, box in boxes if not np.std(shot.luminance[shot.part(box)]) > 0.03] == [], shot.file


def test_the_page_is_dark_or_light_and_its_text_stands_out(shot: Shot) -> None:
    margin = shot.luminance[:, 0]
    assert margin.max() < 0.02 if "dark" in shot.file.name else margin.min() > 0.9, shot.file
    texts = [(text, box) for text, box, _, is_in_use in shot.page.evaluate(TEXTS) if is_in_use]
    assert len(texts) > 20
    assert {text: ratio for text, box in texts if (ratio := shot.contrast(box)) < 3} == {}, shot.file


def test_the_timeline_has_the_colors_of_events(shot: Shot) -> None:
    for _, box in shot.page.evaluate(BOXES, ".timeline-box canvas"):
        canvas = shot.pixels[shot.part(box)]
        colors = {tuple(bytes.fromhex(color.removeprefix("#"))) for color in shot.page.evaluate(PALETTE)}
        drawn = [color for color in colors if (canvas == color).all(axis=2).sum() > 50]
        assert len(drawn) >= 4, shot.file
    assert shot.file.name.startswith("index") or drawn


def test_no_text_or_figure_lies_on_another(shot: Shot) -> None:
    texts = shot.page.evaluate(TEXTS)
    assert [(one[0], other[0]) for one, other in neighbors(texts) if touch(one[1], other[1])] == [], shot.file
    figures = [box for _, box in shot.page.evaluate(BOXES, ".figure")]
    assert not any(touch(one, other) for one, other in combinations(figures, 2)), shot.file


def test_what_is_written_in_a_picture_is_inside_of_it(shot: Shot) -> None:
    texts = [(text, box, figure) for text, box, figure, _ in shot.page.evaluate(TEXTS) if figure]
    assert texts or not shot.file.name.startswith("mlp")
    assert [text for text, box, figure in texts if not is_inside(box, figure)] == [], shot.file


def test_rows_are_no_higher_than_what_one_sees_of_them(shot: Shot) -> None:
    assert set(shot.page.evaluate(HOLLOW)) == set(), shot.file


def neighbors(texts: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Return pairs of texts that begin in the same stripe of the page or in adjacent ones."""
    stripes: dict[int, list[Any]] = {}
    for text in texts:
        stripes.setdefault(int(text[1][1] // 50), []).append(text)
    for at, here in stripes.items():
        yield from combinations(here, 2)
        yield from ((one, other) for one in here for other in stripes.get(at + 1, ()))


def touch(one: Box, other: Box) -> bool:
    """Say whether boxes share a pixel of width and a third of a line, which is the room above and below letters."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width > 1 and height > min(one[3] - one[1], other[3] - other[1]) / 3


def is_inside(box: Box, frame: Box) -> bool:
    return all(box[at] > frame[at] - 4 and box[at + 2] < frame[at + 2] + 4 for at in (0, 1))
