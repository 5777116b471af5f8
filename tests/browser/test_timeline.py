"""The timeline in a real browser: what it draws, and what mouse, keys and the rest of the page can do with it."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.browser.looks import in_turns
from tests.browser.table_pages import wait_until
from tests.browser.timeline_page import in_view, pixels, show, timeline_page
from tests.browser.timeline_samples import GEMM, LAUNCH, NAMES, place, small, text, visitor
from tests.reports import HOSTILE

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def visit(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    return visitor(browser, tmp_path_factory.mktemp("timelines"))


# as a page


@pytest.mark.parametrize(
    ("name", "scheme", "width"), in_turns(["small", "coarse", "hostile", "one", "instants", "none", "rows"])
)
def test_it_is_silent_self_contained_and_fits(name: str, scheme: str, width: int, visit: Any) -> None:
    with visit(name, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator(".timeline-box canvas").bounding_box()["height"] > 40
        assert not page.locator(".timeline-message").is_visible()
        page.locator(".timeline-box canvas").focus()
        for key in ("ArrowDown", "ArrowDown", "]", "m", "+", "ArrowLeft", "-", "Home", "Escape"):
            page.keyboard.press(key)
        page.locator("[data-do=list]").click()
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_it_says_what_is_missing_without_decompression(visit: Any) -> None:
    with visit("small", script="delete window.DecompressionStream") as page:
        assert "a browser with DecompressionStream" in text(page, "message")
        assert not page.locator(".timeline-box canvas").is_visible()
        assert page.locator("#above").is_visible()


def test_it_says_what_is_missing_without_scripts(visit: Any) -> None:
    with visit("small", java_script_enabled=False) as page:
        assert "needs JavaScript" in text(page, "message")
        assert not page.locator(".timeline-box canvas").is_visible()


def test_it_runs_in_a_sandboxed_frame(visit: Any, browser: Any, tmp_path: Path) -> None:
    inside = tmp_path / "inside.html"
    inside.write_text(timeline_page(small()), encoding="utf-8")
    outside = tmp_path / "outside.html"
    outside.write_text('<iframe sandbox="allow-scripts" src="inside.html" width="1000" height="700"></iframe>')
    messages: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: messages.append(message.text))
    page.goto(outside.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator(".timeline-box canvas").focus()
    before = frame.locator(".timeline-range").inner_text()
    page.keyboard.press("Home")
    wait_until(page, lambda: frame.locator(".timeline-range").inner_text() != before)
    page.close()
    assert messages == []


def test_names_of_any_kind_stay_text(visit: Any) -> None:
    with visit("hostile") as page:
        elements = page.evaluate("document.querySelectorAll('#timeline :is(script, img, style)').length")
        assert elements == 1  # the data
        page.locator(".timeline-box canvas").focus()
        for _ in range(2):
            page.keyboard.press("ArrowDown")
        page.keyboard.press("]")
        assert page.locator(".timeline-event h3").text_content() == HOSTILE[0]
        assert HOSTILE[0] in text(page, "event")
        page.keyboard.press("m")
        page.locator("[data-do=list]").click()
        assert "</style></title><!--" in text(page, "list")
        assert page.evaluate("document.querySelectorAll('#timeline :is(script, img, style)').length") == elements
        assert page.title() == "timeline"


def test_the_colors_follow_the_theme(visit: Any) -> None:
    def corner(page: Any) -> list[tuple[int, ...]]:
        return pixels(page, 2, 2, 1, 1)

    with visit("small", color_scheme="light") as page:
        assert corner(page) == [(255, 255, 255)]
        page.emulate_media(color_scheme="dark")
        wait_until(page, lambda: corner(page) == [(18, 21, 25)])
        page.emulate_media(color_scheme="dark", media="print")  # paper is light
        wait_until(page, lambda: corner(page) == [(255, 255, 255)])
        assert page.locator(".timeline-box canvas").is_visible()
        for hidden in (".timeline-buttons", ".timeline-search", "[data-do=list]"):
            assert not page.locator(hidden).is_visible()


TICKS = """() => new Promise((done) => {
  const { fillText } = CanvasRenderingContext2D.prototype;
  const seen = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, room) {
    if (y < 40 && / (ns|µs|ms|s)$/.test(text) && x > 100) seen.push([text, x, x + this.measureText(text).width]);
    return room === undefined ? fillText.call(this, text, x, y) : fillText.call(this, text, x, y, room);
  };
  window.dispatchEvent(new Event("resize"));
  CanvasRenderingContext2D.prototype.fillText = fillText;
  done(seen);
})"""


def test_a_narrow_axis_has_two_texts_at_least_that_do_not_touch(visit: Any) -> None:
    with visit("small", viewport={"width": 390, "height": 800}) as page:
        for _ in range(14):
            texts = page.evaluate(TICKS)
            assert len(texts) >= 2
            assert all(one[2] < other[1] for one, other in pairwise(texts))
            assert all(right <= page.locator(".timeline-box canvas").bounding_box()["width"] for _, _, right in texts)
            page.locator("[data-do=zoom-in]").click()


def test_the_range_is_written_in_the_unit_of_the_axis(visit: Any) -> None:
    with visit("small") as page:
        show(page, from_ns=1_200_000, to_ns=1_600_000)
        in_view(page)
        assert text(page, "range") == "177.78 µs to 622.22 µs (444.4 µs)"
        assert {unit for tick, *_ in page.evaluate(TICKS) for unit in [tick.split()[-1]]} == {"µs"}


# the view


def test_the_wheel_zooms_with_control_and_scrolls_the_page_without(visit: Any) -> None:
    with visit("small", viewport={"width": 1280, "height": 300}) as page:
        page.locator(".timeline-box canvas").hover()
        before = in_view(page)
        page.mouse.wheel(0, 120)
        wait_until(page, lambda: page.evaluate("scrollY") > 0)
        assert in_view(page) == before
        x, y = place(page, 3, "Stream 7")
        page.mouse.move(x, y)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -100)
        wait_until(page, lambda: in_view(page) != before)
        page.keyboard.up("Control")
        first, last = in_view(page)
        assert last - first < 0.8 * (before[1] - before[0])
        assert place(page, 3, "Stream 7")[0] == pytest.approx(x, abs=2)  # what was under the pointer still is


def test_the_wheel_pans_sideways(visit: Any) -> None:
    with visit("small") as page:
        page.locator("[data-do=zoom-in]").click()
        before = in_view(page)
        page.mouse.move(*place(page, sum(before) / 2, "Stream 7"))
        page.mouse.wheel(100, 0)
        wait_until(page, lambda: in_view(page)[0] > before[0])
        after = in_view(page)
        assert after[1] - after[0] == pytest.approx(before[1] - before[0], rel=1e-3)


def test_a_drag_pans(visit: Any) -> None:
    with visit("small") as page:
        page.locator("[data-do=zoom-in]").click()
        first, last = in_view(page)
        page.mouse.move(*place(page, (first + last) / 2, "Stream 7"))
        page.mouse.down()
        page.mouse.move(*place(page, (first + last) / 2 - 1, "Stream 7"), steps=3)
        page.mouse.up()
        assert in_view(page)[0] == pytest.approx(first + 1, abs=0.02)
        assert text(page, "event") == ""  # a drag is no click


def test_fingers_pinch(visit: Any) -> None:
    with visit("small", has_touch=True) as page:
        before = in_view(page)
        (x, y), session = place(page, 4, "Stream 7"), page.context.new_cdp_session(page)
        for kind, apart in (("touchStart", 50), ("touchMove", 100), ("touchMove", 150), ("touchEnd", 0)):
            points = [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}] if apart else []
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        first, last = in_view(page)
        assert last - first == pytest.approx((before[1] - before[0]) / 3, rel=0.1)
        assert place(page, 4, "Stream 7")[0] == pytest.approx(x, abs=5)


def test_a_double_click_zooms_in(visit: Any) -> None:
    with visit("small") as page:
        before = in_view(page)
        page.mouse.dblclick(*place(page, 4, "curve"))
        first, last = in_view(page)
        assert last - first == pytest.approx((before[1] - before[0]) / 3, rel=0.01)


def test_buttons_show_everything_and_the_window(visit: Any) -> None:
    with visit("small") as page:
        page.locator("[data-do=fit]").click()
        assert in_view(page) == pytest.approx((-1.1, 9.1), abs=0.001)
        page.get_by_role("button", name="Steady part", exact=True).click()
        assert in_view(page) == pytest.approx((-0.444, 8.444), abs=0.001)
        page.locator("[data-do=zoom-in]").click()
        assert in_view(page) == pytest.approx((1.778, 6.222), abs=0.001)
        page.locator("[data-do=zoom-out]").click()
        assert in_view(page) == pytest.approx((-0.444, 8.444), abs=0.001)


def test_no_zoom_goes_below_nanoseconds_or_past_the_ends(visit: Any) -> None:
    with visit("small") as page:
        page.locator(".timeline-box canvas").focus()
        for _ in range(40):
            page.keyboard.press("+")
        first, last = in_view(page)
        assert last - first == pytest.approx(50e-6)
        for _ in range(40):
            page.keyboard.press("-")
        for _ in range(10):
            page.keyboard.press("ArrowRight")
        assert in_view(page) == pytest.approx((-1.1, 9.1), abs=0.001)


# keys


def test_keys_move_zoom_and_step_from_event_to_event(visit: Any) -> None:
    with visit("small") as page:
        page.locator(".timeline-box canvas").focus()
        page.keyboard.press("+")
        first, last = in_view(page)
        page.keyboard.press("ArrowRight")
        assert in_view(page)[0] == pytest.approx(first + 0.2 * (last - first), abs=0.002)
        page.keyboard.press("ArrowLeft")
        assert in_view(page) == pytest.approx((first, last), abs=0.002)
        page.keyboard.press("Home")
        for _ in range(2):
            page.keyboard.press("ArrowDown")
        assert text(page, "announcement") == "GPU 0, Stream 7, 2 events"
        page.keyboard.press("]")
        assert "1.000000 ms" in text(page, "event")
        page.keyboard.press("]")
        assert "5.000000 ms" in text(page, "event")
        page.keyboard.press("]")  # there is no third
        assert "5.000000 ms" in text(page, "event")
        page.keyboard.press("[")
        assert "1.000000 ms" in text(page, "event")
        page.keyboard.press("Escape")
        assert text(page, "event") == ""


def test_the_search_takes_regular_expressions_as_tables_do(visit: Any) -> None:
    with visit("small") as page:
        box, output = page.locator(".timeline-search input"), page.locator(".timeline-search output")
        box.fill("/^cuda(Launch|Memcpy)/")
        assert output.inner_text() == "3 events"
        box.press("Enter")
        assert page.locator(".timeline-event h3").inner_text() == NAMES[LAUNCH]
        box.fill("/CUDALAUNCH|^step$/")
        assert output.inner_text() == "3 events"
        box.fill("/(/")
        assert output.inner_text() == "Invalid regular expression"
        assert box.get_attribute("aria-invalid") == "true"
        assert page.locator("[data-do=next]").is_disabled()
        box.press("Enter")
        box.fill("/(")  # a name may hold that
        assert (output.inner_text(), box.get_attribute("aria-invalid")) == ("No matches", "false")
        box.fill("gemm<")
        assert output.inner_text() == "2 events"


def test_groups_collapse_by_key_button_and_click(visit: Any) -> None:
    with visit("small") as page:
        canvas, heading = page.locator(".timeline-box canvas"), page.get_by_role("button", name="GPU 0")
        height = canvas.bounding_box()["height"]
        canvas.focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        assert heading.get_attribute("aria-expanded") == "false"
        assert canvas.bounding_box()["height"] == height - 78
        heading.focus()
        page.keyboard.press("Enter")
        assert heading.get_attribute("aria-expanded") == "true"
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "GPU 0"
        box = canvas.bounding_box()
        page.mouse.click(box["x"] + 30, box["y"] + 50)
        assert heading.get_attribute("aria-expanded") == "false"
        show(page, name=NAMES[GEMM])  # what is asked for opens its group
        assert heading.get_attribute("aria-expanded") == "true"
