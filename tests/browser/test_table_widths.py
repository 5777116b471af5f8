"""No table of a real page is cut off at its side: not on the screens that people have, and not on paper."""

import io
import lzma
import re
from pathlib import Path
from typing import Any, Final

import pytest
from PIL import Image

from nightsight.progress import silent
from nightsight.render import FORMATS
from nightsight.render.page.html import render_html
from nightsight.workflows.job import open_job
from nightsight.workflows.opening import Reading
from tests.browser.looks import OPEN_ALL
from tests.browser.sample_pages import READY
from tests.browser.table_pages import wait_until
from tests.pictures import page as page_of
from tests.pictures import sampled
from tests.recorded import Recorded

pytestmark = pytest.mark.browser

WIDTHS: Final = (1280, 1440, 1920)
PAPER: Final = 718
"""Pixels across a page of A4, between the margins."""
PAGES: Final = ("train", "straggler_host", "sample", "ncu")
CUT: Final = """() => [...document.querySelectorAll(".scroll")]
  .filter((scroll) => scroll.checkVisibility() && scroll.scrollWidth > scroll.clientWidth)
  .map((scroll) => `${scroll.querySelector("table").dataset.table} ${scroll.scrollWidth - scroll.clientWidth}`)"""
SHOWN: Final = "[...document.querySelectorAll('.scroll')].filter((scroll) => scroll.checkVisibility()).length"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded) -> dict[str, Path]:
    """Write a page of one process, one of two ranks, the sample with its replays, and one of replays alone."""
    folder = tmp_path_factory.mktemp("widths")
    ranks = Path(__file__).parents[1] / "data" / "planted" / "ranks"
    job = []
    for packed in sorted(ranks.glob("straggler_host.*.sqlite.xz")):
        job.append(folder / packed.stem)
        job[-1].write_bytes(lzma.decompress(packed.read_bytes()))
    source = open_job(job, FORMATS["html"], Reading(None, 1 << 30, silent))
    assert source is not None
    pages = {
        "train": recorded.page("train").encode(),
        "straggler_host": page_of(source),
        "sample": page_of(sampled(folder)),
        "ncu": render_html(recorded.report("measure.ncu-rep")).encode(),
    }
    for name, content in pages.items():
        (folder / f"{name}.html").write_bytes(content)
    return {name: folder / f"{name}.html" for name in pages}


@pytest.mark.parametrize("name", PAGES)
def test_every_table_fits_its_screen_and_its_paper(name: str, browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": WIDTHS[0], "height": 800})
    page.goto(files[name].as_uri())
    wait_until(page, lambda: page.evaluate(READY))
    page.evaluate(OPEN_ALL)
    assert page.evaluate(SHOWN) > 3
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(CUT) == [], width
    page.set_viewport_size({"width": PAPER, "height": 1046})
    page.emulate_media(media="print")
    assert page.evaluate(CUT) == []
    assert page.evaluate("document.documentElement.scrollWidth") == PAPER
    page.close()


def test_a_table_with_all_its_columns_takes_the_room_beside_the_text(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(files["sample"].as_uri())
    wait_until(page, lambda: page.evaluate(READY))
    section = page.locator("#nvtx_ranges")
    table = section.locator(".scroll")
    text = [table.bounding_box()["width"]]
    section.get_by_role("button", name=re.compile(r"All \d+ columns")).click()
    assert table.evaluate("scroll => scroll.scrollWidth > scroll.clientWidth")
    page.set_viewport_size({"width": 1440, "height": 800})
    text.append(section.locator(".heading").bounding_box()["width"])
    assert text[1] >= text[0]  # the contents beside the text take nothing from it
    page.set_viewport_size({"width": 1920, "height": 800})
    box, heading, timeline = (
        page.locator(part).bounding_box()
        for part in ("#nvtx_ranges .scroll", "#nvtx_ranges .heading", ".timeline-live")
    )
    assert not table.evaluate("scroll => scroll.scrollWidth > scroll.clientWidth")
    assert heading["width"] <= box["width"] <= timeline["x"] + timeline["width"] - box["x"]
    page.close()


def test_lines_between_rows_cross_the_names_that_stay_in_view(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.goto(files["sample"].as_uri())
    wait_until(page, lambda: page.evaluate(READY))
    section = page.locator("#cuda_gpu_kern_sum")
    section.get_by_role("button", name=re.compile(r"All \d+ columns")).click()
    section.locator(".scroll").evaluate("scroll => { scroll.scrollIntoView(); scroll.scrollLeft = 100; }")
    rows = section.locator("tbody tr[data-row]")
    line = rows.nth(1).evaluate("row => getComputedStyle(row.cells[1]).borderTopColor")
    color = tuple(int(part) for part in re.findall(r"\d+", line))
    borders = []
    for row in rows.all()[1:10]:
        box = row.bounding_box()
        clip = {"x": box["x"] + 104, "y": round(box["y"]) - 2, "width": 1, "height": 4}
        with Image.open(io.BytesIO(page.screenshot(clip=clip))) as image:
            borders.append(color in [image.convert("RGB").getpixel((0, y)) for y in range(4)])
    assert borders == [True] * 9
    page.close()
