"""How fast a page is and may be: what the browser itself recorded while it was opened, zoomed, sorted and filtered."""

from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.browser.looks import OPEN_ALL

_STEPS: Final = 80
_TURN: Final = 50
_ENTRIES: Final = "name => performance.getEntriesByName(name).map(entry => entry.startTime + entry.duration)"
_DURATIONS: Final = "name => performance.getEntriesByName(name).map(entry => entry.duration)"
_DEADLINE_MS: Final = 20_000


@dataclass(frozen=True)
class Speed:
    """Milliseconds after the navigation began, and of one frame while the timeline is zoomed; NaN if there is none."""

    first_paint: float
    ready: float
    frame_median: float
    frame_p95: float


ALLOWED: Final = Speed(first_paint=400, ready=1500, frame_median=8, frame_p95=16)
ALLOWED_TABLE_MS: Final = 100


def page_speed(browser: Any, file: Path) -> Speed:
    """Open a page and zoom its timeline in and out."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(file.as_uri())
    page.wait_for_timeout(50)
    if not page.locator("#timeline").count():
        (first_paint,) = page.evaluate(_ENTRIES, "first-contentful-paint")
        page.close()
        return Speed(first_paint, nan, nan, nan)
    for _ in range(_DEADLINE_MS // 50):
        page.wait_for_timeout(50)
        if ready := page.evaluate(_ENTRIES, "timeline: ready"):
            break
    (first_paint,) = page.evaluate(_ENTRIES, "first-contentful-paint")
    frames = sorted(_zoomed(page))
    page.close()
    return Speed(first_paint, ready[0], median(frames), frames[len(frames) * 95 // 100])


def table_speed(browser: Any, file: Path, table: str) -> float:
    """Sort and filter a table of a page; return the most milliseconds that any of it took."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(file.as_uri())
    page.evaluate(OPEN_ALL)
    section = page.locator(f"#{table}")
    for title in ("Total", "Kernel", "Std dev"):
        section.locator("thead").get_by_role("button", name=title).click()
    for text in ("kernel_1", "kernel_12", "/9.9/"):
        section.get_by_role("searchbox").fill(text)
    times: list[float] = [each for name in ("sort", "filter") for each in page.evaluate(_DURATIONS, f"table: {name}")]
    page.close()
    return max(times)


def _zoomed(page: Any) -> list[float]:
    canvas = page.locator(".timeline-box canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.evaluate("() => performance.clearMeasures('timeline: frame')")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.keyboard.down("Control")
    for step in range(_STEPS):
        page.mouse.wheel(0, -60 if step < _TURN else 60)
        page.wait_for_timeout(16)
    page.keyboard.up("Control")
    frames: list[float] = page.evaluate(_DURATIONS, "timeline: frame")
    return frames
