"""The trend page in a real browser: silent, self-contained, readable by keys, and without scripts."""

from pathlib import Path
from typing import Any

import pytest

from nightsight.history import HistoryRows, trends
from nightsight.model.report import Conditions
from nightsight.render.history import Links, render_trends
from tests.browser.looks import in_turns, violations
from tests.browser.table_pages import wait_until
from tests.nights import STEP, measures, nights, of, row, step_at
from tests.reports import HOSTILE

pytestmark = pytest.mark.browser

READY = "performance.getEntriesByName('trend: ready').length"


def written() -> dict[str, str]:
    """Return pages: with events of all states, with hostile names, of one night, and empty."""
    hot = (Conditions(0, throttled=("HwThermalSlowdown",)),)
    factors = dict.fromkeys(range(12, 18), 1.06)
    rows = of(
        nights(40, step_at(33, 1.05), conditions=lambda night: hot if night == 25 else ()),
        nights(40, workload="matmul", seed=4, driver=lambda night: "590.1" if night >= 20 else "580.1"),
        nights(40, lambda night: factors.get(night, 1.0), workload="gelu", seed=5),
        nights(40, step_at(39, 0.9), workload="softmax", seed=6),
    )
    hostile = [
        row(
            measures({"step_ns": STEP}, night=night, workload=name or "w", kernels={name or "k": STEP / 2}, commit=name)
        )
        for night in range(3)
        for name in filter(None, HOSTILE)
    ]
    linked = [row(measures({"step_ns": STEP}, night=night), link=f"mlp/{night}") for night in range(40)]
    links = Links("https://example.com/nights", "https://example.com/team/project", frozenset(r.link for r in linked))
    return {
        "events": render_trends(
            trends(HistoryRows(rows.rows, ("mlp/x.jsonl, line 3 was skipped",)), canaries=("matmul",))
        ),
        "hostile": render_trends(trends(of(hostile))),
        "linked": render_trends(trends(of(linked)), links),
        "one": render_trends(trends(of(linked[:1]))),
        "empty": render_trends(trends(of())),
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("trends")
    pages = written()
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.mark.parametrize(("name", "scheme", "width"), in_turns(["events", "hostile", "one", "empty"]))
def test_the_page_is_silent_self_contained_fits_and_axe_finds_nothing(
    name: str, scheme: str, width: int, browser: Any, files: dict[str, Path]
) -> None:
    messages: list[str] = []
    requests: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(files[name].as_uri())
    if name != "empty":
        wait_until(page, lambda: page.evaluate(READY))
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.screenshot(path=files[name].with_name(f"{name}-{scheme}-{width}.png"), full_page=True)
    assert messages == []
    assert requests == [files[name].as_uri()]
    assert violations(page) == {}
    page.close()


def visited(browser: Any, file: Path, **options: Any) -> Any:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, **options)
    page.goto(file.as_uri())
    return page


def test_events_come_first_with_state_cause_and_date(browser: Any, files: dict[str, Path]) -> None:
    page = visited(browser, files["events"])
    rows = page.locator(".events tbody tr")
    texts = [row.locator("td").all_inner_texts()[:3] for row in rows.all()]
    assert texts == [
        # the canary has another driver by then, and says nothing about this machine
        ["suspect", "2026-10-10", "code or environment"],
        ["confirmed", "2026-10-04", "code or environment"],
        ["recovered", "2026-09-13", "code"],
    ]
    assert page.locator("h2").first.inner_text() == "What changed"
    assert page.locator("h2").nth(1).inner_text() in ("mlp", "softmax")
    page.close()


def test_a_chart_is_read_with_keys_and_shows_the_chosen_series(browser: Any, files: dict[str, Path]) -> None:
    page = visited(browser, files["linked"])
    wait_until(page, lambda: page.evaluate(READY))
    reading = page.locator(".reading")
    assert reading.inner_text().startswith("2026-10-10 · 10.00 ms · 1 run · commit ")
    page.locator(".u-over").focus()
    page.keyboard.press("ArrowLeft")
    assert reading.inner_text().startswith("2026-10-09")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert reading.inner_text().startswith("2026-10-10")
    link = reading.locator("a")
    assert link.get_attribute("href") == "https://example.com/nights/mlp/39/report.html"
    page.close()
    page = visited(browser, files["events"])
    wait_until(page, lambda: page.evaluate(READY))
    figure = page.locator("figure.trend").first
    before = figure.locator("canvas").evaluate("(canvas) => canvas.toDataURL()")
    figure.locator("select").select_option(label="launches")
    assert " · 120 · " in figure.locator(".reading").inner_text()
    assert figure.locator("canvas").evaluate("(canvas) => canvas.toDataURL()") != before
    page.close()


def test_the_pointer_reads_a_night_and_says_that_it_was_disturbed(browser: Any, files: dict[str, Path]) -> None:
    page = visited(browser, files["events"])
    wait_until(page, lambda: page.evaluate(READY))
    page.locator("h2", has_text="mlp").scroll_into_view_if_needed()
    figure = page.locator("section", has=page.locator("h2", has_text="mlp")).locator("figure")
    box = figure.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 25 / 39, box["y"] + 50)
    assert figure.locator(".reading").inner_text().endswith("throttled, not tested")
    page.close()


def test_without_scripts_there_are_lines_tables_and_events(browser: Any, files: dict[str, Path]) -> None:
    page = visited(browser, files["events"], java_script_enabled=False)
    assert page.locator("figure svg polyline").count() == 5
    assert page.locator("figure svg .epoch").count() == 1
    assert page.locator("figure svg .mark").count() >= 3
    assert page.locator(".events tbody tr").count() == 3
    assert page.locator("figure select").first.is_hidden()
    page.close()


def test_a_chart_follows_the_theme_and_the_width(browser: Any, files: dict[str, Path]) -> None:
    page = visited(browser, files["linked"], color_scheme="light")
    wait_until(page, lambda: page.evaluate(READY))
    canvas = page.locator("canvas")
    light = canvas.evaluate("(canvas) => canvas.toDataURL()")
    page.emulate_media(color_scheme="dark")
    wait_until(page, lambda: canvas.evaluate("(canvas) => canvas.toDataURL()") != light)
    page.set_viewport_size({"width": 500, "height": 900})
    wait_until(page, lambda: canvas.bounding_box()["width"] < 500)
    page.close()
