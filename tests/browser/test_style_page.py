"""The page with every element, in all looks: axe-core finds nothing, and letters in pictures stand out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nightsight.model.report import Report
from tests.browser.looks import violations
from tests.comparisons import train_comparison
from tests.recorded import Recorded
from tests.style_page import LOOKS, style_page
from tests.test_render_colors import contrast

pytestmark = pytest.mark.browser

# of each letter in a picture, its color and that of the rectangle below it, composited on the page
_LETTERS = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const ground = parse(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll("figure svg text, .whole svg text")].flatMap((text) => {
    const rect = text.parentElement.querySelector(":scope > rect");
    if (!rect || !text.checkVisibility() || !text.textContent.trim()) return [];
    const [style, ink] = [getComputedStyle(rect), parse(getComputedStyle(text).fill)];
    const opacity = Number(style.fillOpacity);
    const fill = parse(style.fill).slice(0, 3).map((part, at) => opacity * part + (1 - opacity) * ground[at]);
    return [[text.textContent, ink.slice(0, 3), fill]];
  });
}"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded) -> Path:
    root = Path(__file__).parents[2]
    sample = Report.from_json((root / "reports" / "sample" / "report.json").read_bytes())
    reports = (recorded.report("train"), sample, *map(recorded.report, ("ddp2", "python_names", "cpu", "everything")))
    file = tmp_path_factory.mktemp("style") / "style.html"
    file.write_text(style_page(reports, train_comparison(recorded.report("train"))), encoding="utf-8")
    return file


@pytest.fixture(params=list(LOOKS))
def tab(request: pytest.FixtureRequest, browser: Any, file: Path) -> Iterator[Any]:
    page = browser.new_page(**LOOKS[request.param])
    if request.param == "print":
        page.emulate_media(media="print")
    page.goto(file.as_uri())
    yield page
    page.close()


def test_axe_finds_nothing_and_no_element_is_too_wide(tab: Any) -> None:
    width = tab.viewport_size["width"]
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(tab) == {}


def test_letters_in_pictures_stand_out(tab: Any) -> None:
    letters = tab.evaluate(_LETTERS)
    assert len(letters) > 20
    assert {text: round(ratio, 2) for text, ink, fill in letters if (ratio := contrast(ink, fill)) < 4.5} == {}


def test_every_layout_of_a_picture_is_on_the_page(file: Path) -> None:
    text = file.read_text()
    for look in ("wholes", "flames", "histogram", "heat", "step-columns", "plane", "ladder", "forest", "rungs"):
        assert f"{look}" in text, look
