"""The page in a real browser, from disk: no message, no request, no sideways scrolling."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nightsight.render.page.html import render_html
from nightsight.render.page.index import IndexEntry, render_index
from tests.browser.looks import OPEN_ALL, in_turns
from tests.recorded import Recorded
from tests.replay_tables import kernels, replay_report
from tests.reports import HOSTILE, hostile_report, small_report

pytestmark = pytest.mark.browser

PAGES = ("train", "small", "hostile", "replays", "index")
FIGURES: dict[str, Any] = {
    f"{name}_pct": 10.0 for name in ("l2", "l1", "l2_hit", "l1_hit", "tensor", "theoretical", "tail", "excessive")
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded) -> dict[str, Path]:
    train = recorded.report("train")
    runs = [IndexEntry(name, name, name, "", "", "", 1e9, None, None, None, failed=False) for name in HOSTILE]
    pages = {
        "train": render_html(train),
        "small": render_html(small_report()),
        "hostile": render_html(hostile_report()),
        "replays": render_html(replay_report(ncu_kernels=kernels(gpu_pct=30.0, dram_pct=3.0, **FIGURES))),
        "index": render_index(runs),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.mark.parametrize(("name", "scheme", "width"), in_turns(PAGES))
def test_page_is_silent_self_contained_and_fits(
    name: str, scheme: str, width: int, browser: Any, files: dict[str, Path]
) -> None:
    messages: list[str] = []
    requests: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(files[name].as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("getComputedStyle(document.body).maxWidth") != "none"  # the style was let in
    page.close()
    assert messages == []
    assert requests == [files[name].as_uri()]


@pytest.mark.parametrize(("width", "has_bars"), [(390, False), (1280, True)])
def test_a_narrow_table_shows_numbers_before_bars(
    width: int, has_bars: bool, browser: Any, files: dict[str, Path]
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(files["train"].as_uri())
    row = page.locator("#cuda_gpu_kern_sum tbody tr").first
    assert row.locator(".share").is_visible() == has_bars
    total = row.locator("td").nth(1).bounding_box()
    assert total["x"] + total["width"] < width
    page.close()


def test_dark_and_light_differ(browser: Any, files: dict[str, Path]) -> None:
    def background(scheme: str) -> str:
        page = browser.new_page(color_scheme=scheme)
        page.goto(files["small"].as_uri())
        color: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.close()
        return color

    assert background("light") != background("dark")


def test_the_policy_stops_what_a_page_must_not_do(browser: Any, files: dict[str, Path]) -> None:
    messages: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: messages.append(message.text))
    page.goto(files["small"].as_uri())
    page.evaluate("document.body.appendChild(document.createElement('script')).textContent = 'document.title = \"x\"'")
    assert page.title() == "matmul · nightsight"
    page.close()
    assert any("Content Security Policy" in message for message in messages)


def test_a_full_kernel_name_opens_by_keyboard(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(files["small"].as_uri())
    name = page.locator("details.full-name").first
    name.locator("summary").focus()
    page.keyboard.press("Enter")
    assert name.locator(".full").is_visible()
    page.close()


@pytest.mark.parametrize("owner", ["gpu_time", "launch_bound", "memory_usage"])
def test_a_curve_can_be_read_on_a_phone(owner: str, browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 800})
    page.goto(files["train"].as_uri())
    page.evaluate(OPEN_ALL)
    figure = page.locator(f"#{owner} .over-time")
    texts = [label.bounding_box() for label in figure.locator(".times text, .levels span").all()]
    assert min(box["height"] for box in texts) >= 12
    times = [label.bounding_box() for label in figure.locator(".times text").all()]
    assert all(left["x"] + left["width"] < right["x"] for left, right in pairwise(times))
    assert times[-1]["x"] + times[-1]["width"] <= 360
    curve, grid = (figure.locator(part).first.bounding_box() for part in ("path.curve-1", ".grid >> nth=-1"))
    assert curve["width"] == pytest.approx(grid["width"], abs=5)  # with its stroke
    page.close()


def test_a_roofline_can_be_read_on_a_phone(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 380, "height": 800})
    page.goto(files["replays"].as_uri())
    page.evaluate(OPEN_ALL)
    plane = page.locator("#ncu_roofline .plane")
    field = plane.locator(".field").bounding_box()
    assert field["width"] > 250
    texts = [label.bounding_box() for label in plane.locator("text").all()]
    assert min(box["height"] for box in texts) >= 12
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 380 for box in texts)
    times = [label.bounding_box() for label in plane.locator(".times text").all()]
    assert all(left["x"] + left["width"] < right["x"] for left, right in pairwise(times))
    points = [point.bounding_box() for point in plane.locator("svg svg path").all()]
    assert len(points) == 4
    for point in points:
        assert field["x"] - 8 <= point["x"] <= field["x"] + field["width"]
        assert field["y"] - 8 <= point["y"] <= field["y"] + field["height"]
    page.close()


def test_a_wide_table_begins_with_what_fits_and_has_the_rest_at_hand(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(files["replays"].as_uri())
    page.evaluate(OPEN_ALL)
    section = page.locator("#ncu_kernels")
    sizes = "box => [box.scrollWidth, box.clientWidth]"
    total, room = section.locator(".scroll").evaluate(sizes)
    assert total == room
    headings = section.locator("thead th:visible").all_inner_texts()
    assert "Occupancy (%)" in headings
    assert not {"Occupancy limit", "Path"} & set(headings)
    section.get_by_role("button", name="All 21 columns").click()
    assert section.locator("thead th:visible").count() == 21
    assert section.locator("tbody tr").first.locator("th:visible, td:visible").count() == 21
    page.emulate_media(media="print")  # what was asked for is printed too
    assert section.locator("thead th").last.is_visible()
    page.close()


def test_without_scripts_a_wide_table_has_all_columns(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800}, java_script_enabled=False)
    page.goto(files["replays"].as_uri())
    page.evaluate(OPEN_ALL)
    assert page.locator("#ncu_kernels thead th:visible").count() == 21
    page.close()


def test_on_a_phone_the_names_of_kernels_stay_beside_their_figures(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto(files["replays"].as_uri())
    page.evaluate(OPEN_ALL)
    box = page.locator("#ncu_kernels .scroll")
    name = box.locator("tbody th").first
    before = name.bounding_box()
    box.evaluate("box => { box.scrollLeft = 300; }")
    assert box.evaluate("box => box.scrollLeft") == 300
    assert name.bounding_box() == before
    assert before["width"] < 390 / 2
    page.close()


@pytest.mark.parametrize(
    ("zone", "local"), [("Europe/Berlin", "20.11.2026, 10:19:43 MEZ"), ("UTC", "20.11.2026, 09:19:43 UTC")]
)
def test_the_time_of_the_run_is_utc_and_the_reader_s(
    zone: str, local: str, browser: Any, files: dict[str, Path]
) -> None:
    page = browser.new_page(timezone_id=zone, locale="de-DE")
    page.goto(files["train"].as_uri())
    fact = page.locator(".facts li", has=page.locator("time"))
    local_time = "" if zone == "UTC" else f" ({local})"
    assert fact.inner_text() == f"2026-11-20 09:19:43 UTC{local_time}"
    assert fact.locator("time").get_attribute("title") == local
    assert page.locator("#method time").text_content() == "2026-11-20 09:19:43"
    page.close()


def test_a_reader_chooses_the_window(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(files["train"].as_uri())
    assert page.locator(".windows .segments button").all_inner_texts() == ["Steady", "Whole", "Start-up"]
    text = page.locator(".start-up").inner_text().replace("\N{NO-BREAK SPACE}", " ")
    assert text.startswith("Start-up: 3.43 s until the steady part: 3.20 s host code")
    advice = {}
    for name, busy in (("Steady", "Busy 86.8 %"), ("Whole", "Busy 1.9 %"), ("Start-up", "Busy 0.4 %")):
        page.get_by_role("button", name=name, exact=True).click()
        assert page.locator('.windows .segments button[aria-pressed="true"]').all_inner_texts() == [name]
        assert page.locator(".whole .sides").filter(visible=True).first.inner_text().startswith(busy)
        shown = page.locator("#advice > [data-of-window]").filter(visible=True)
        advice[name] = shown.locator(".evidence li:last-child code").all_text_contents()
    assert "pageable_copy" in advice["Steady"]
    assert "loading" in advice["Whole"]
    assert page.locator("#advice .advice a").filter(visible=True).count() == 0  # sections are about the chosen one
    page.emulate_media(media="print")
    assert page.locator(".whole .sides").filter(visible=True).first.inner_text().startswith("Busy 86.8 %")
    assert not page.locator(".windows .segments").is_visible()
    page.close()


def test_without_scripts_the_chosen_window_is_shown(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(files["train"].as_uri())
    assert page.locator(".whole .sides").filter(visible=True).first.inner_text().startswith("Busy 86.8 %")
    assert not page.locator(".windows .segments").is_visible()
    page.close()
