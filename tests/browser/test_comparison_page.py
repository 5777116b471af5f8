"""The page of a comparison in a browser: silent, alone, readable at all widths, in both themes, without scripts."""

from pathlib import Path
from typing import Any

import pytest

from nightsight.render import Source
from nightsight.render.compare import render_comparison
from tests.browser.looks import LOOKS, in_turns, violations
from tests.comparisons import compared, hostile_comparison, runs, train_comparison
from tests.recorded import Recorded

pytestmark = pytest.mark.browser

PAGES = ("steps", "single", "hostile")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded) -> dict[str, Path]:
    report, other = recorded.report("train"), recorded.report("mlp")
    sources = (Source(report, recorded.profile("train")),), (Source(other, recorded.profile("mlp")),)
    single = compared(runs(report, "baseline", count=1), runs(report, "candidate", count=1))
    pages = {
        "steps": render_comparison(train_comparison(report), sources=sources),
        "single": render_comparison(single),
        "hostile": render_comparison(hostile_comparison()),
    }
    folder = tmp_path_factory.mktemp("comparisons")
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.mark.parametrize(("name", "scheme", "width"), in_turns(PAGES, [*LOOKS, ("light", 1280), ("dark", 390)]))
def test_axe_finds_nothing(name: str, scheme: str, width: int, browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(files[name].as_uri())
    page.wait_for_timeout(300)
    assert violations(page) == {}
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_silent_and_fits(name: str, browser: Any, files: dict[str, Path]) -> None:
    messages: list[str] = []
    requests: list[str] = []
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(files[name].as_uri())
    for width in (390, 768, 1280, 1920):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()
    assert messages == []
    assert requests == [files[name].as_uri()]


def test_without_scripts_all_is_there(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(files["steps"].as_uri())
    for part in (
        ".of-verdict",
        ".causes",
        ".forest",
        ".of-step",
        ".lanes",
        "#changes-kernel table",
        "#runs table",
    ):
        assert page.locator(part).first.is_visible()
    assert page.locator("#changes-kernel details table").first.is_hidden()
    page.locator("#changes-kernel details.folded > summary").first.click()
    assert page.locator("#changes-kernel details table").first.is_visible()
    page.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_an_interval_stands_beside_or_above_its_words(width: int, browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(files["steps"].as_uri())
    figure = page.locator(".forest").bounding_box()
    for row in page.locator(".forest [role=listitem]").all():
        plot, words = row.locator(".interval").bounding_box(), row.locator(".value").bounding_box()
        assert plot["x"] + plot["width"] <= words["x"] + 1 or plot["y"] + plot["height"] <= words["y"] + 1
        assert words["x"] + words["width"] <= figure["x"] + figure["width"] + 1
        assert plot["width"] > 150
    page.close()


def test_the_bars_of_a_step_have_one_scale(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(files["steps"].as_uri())
    widths = [
        max(box["x"] + box["width"] for box in boxes) - min(box["x"] for box in boxes)
        for side in page.locator(".step-bar").all()
        if (boxes := [each.bounding_box() for each in side.locator("rect").all()])
    ]
    assert len(widths) == 2
    assert widths[1] > widths[0] > 200
    page.close()


def test_both_timelines_stand_on_one_axis(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(files["steps"].as_uri())
    page.wait_for_selector(".timeline-live:not([hidden])")
    page.locator("#timeline [data-do=list]").click()
    listed = page.locator("#timeline-list").inner_text()
    assert "Baseline: GPU 0" in listed
    assert "Candidate: GPU 0" in listed
    page.close()


def test_rows_can_be_sorted_and_all_columns_shown(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(files["steps"].as_uri())
    table = page.locator("#changes-kernel table").first
    page.wait_for_selector("#changes-kernel thead button")
    before = table.locator("tbody th").all_inner_texts()
    table.locator("thead th", has_text="Candidate").first.locator("button").click()
    assert sorted(table.locator("tbody th").all_inner_texts()) == sorted(before)
    assert table.locator("tbody th").all_inner_texts() != before
    page.close()
