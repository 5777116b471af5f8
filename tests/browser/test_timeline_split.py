"""What a GPU did at each instant, in the timeline: its lane and colors, the split of a selected span, the overview."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nightsight.analyze import activities
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.results.categories import BUSY, IDLE
from tests.browser.table_pages import wait_until
from tests.browser.timeline_page import in_view, pixels, show, timeline_page, timeline_visit
from tests.browser.timeline_samples import left_of_plot, text
from tests.timeline import draw
from tests.timeline_payload import timeline_payload

pytestmark = pytest.mark.browser

# 20 µs of set-up, then steps in which the GPU computes and copies while the CPU launches, waits, and does other things
PICTURE = f"""
nvtx  {"." * 20}{"[step             ]" * 4}
cpu   {"." * 20}{"L..L....SSSSSSS...." * 4}
s7    {"." * 20}{"..aaaaaa..bbbb....." * 4}
"""
CATEGORIES = (*BUSY, *IDLE)


@pytest.fixture(scope="module")
def profile() -> Profile:
    return draw(PICTURE)


@pytest.fixture(scope="module")
def visit(browser: Any, profile: Profile, tmp_path_factory: Any) -> Callable[..., Any]:
    file: Path = tmp_path_factory.mktemp("split") / "split.html"
    payload = timeline_payload(profile, activities=lambda: activities(profile))
    assert payload
    file.write_text(timeline_page(payload.decode()), encoding="utf-8")
    return lambda **options: timeline_visit(browser, file, **options)


def shares(page: Any) -> dict[str, float]:
    """Return the split of the selected span, in percent."""
    items = page.locator(".timeline-of-gpu li").all_inner_texts()
    sums = {}
    for item in items:
        name, percent = re.fullmatch(r"(?:idle: )?(.+?) <?([\d.]+) % .+", item.strip()).groups()  # type: ignore[union-attr]
        sums[name] = float(percent)
    return sums


def expected(profile: Profile, from_us: float, to_us: float) -> dict[str, float]:
    (edge, category), origin = activities(profile)[0], Timeline(profile).window.start_ns
    low, high = (origin + round(1000 * time) for time in (from_us, to_us))
    shares: dict[str, float] = {}
    for begin, end, one in zip(edge[:-1], edge[1:], category, strict=True):
        inside = min(int(end), high) - max(int(begin), low)
        if inside > 0:
            shares[CATEGORIES[one]] = shares.get(CATEGORIES[one], 0) + 100 * inside / (high - low)
    return shares


@pytest.mark.parametrize("span", [(0, 19), (3, 30.5), (7, 9), (20, 20.5)])
def test_a_selected_span_has_the_split_of_its_gpu(visit: Any, profile: Profile, span: tuple[float, float]) -> None:
    with visit() as page:
        show(page, from_ns=round(span[0] * 1000), to_ns=round(span[1] * 1000), of_window=True)
        wait_until(page, lambda: bool(shares(page)))
        assert shares(page) == pytest.approx(expected(profile, *span), abs=0.06)
        assert sum(shares(page).values()) == pytest.approx(100, abs=0.3)


def test_the_lane_has_the_colors_of_the_legend(visit: Any) -> None:
    with visit() as page:
        colors = page.locator(".timeline-legend li").all_inner_texts()
        assert {"compute", "synchronizing call"} <= {color.strip() for color in colors}
        show(page, from_ns=0, to_ns=19_000, of_window=True)
        page.keyboard.press("Escape")
        first, last = in_view(page)
        box = page.locator(".timeline-box canvas").bounding_box()
        gutter = left_of_plot(page)
        x = gutter + (0.005 - first) / (last - first) * (box["width"] - gutter)
        # axis 36, heading 26, then the lane: in a kernel it has the color of computing, and so has the row
        (lane,), (row,) = (pixels(page, round(x), y, 1, 1) for y in (36 + 26 + 10, 36 + 46 + 4))
        swatch = page.locator(".timeline-legend li", has_text="compute").locator(".timeline-swatch")
        painted = swatch.evaluate("element => getComputedStyle(element).backgroundColor")
        assert lane == row == tuple(int(part) for part in re.findall(r"\d+", painted)[:3])


def test_the_piece_under_the_pointer_is_shown(visit: Any) -> None:
    with visit() as page:
        show(page, from_ns=0, to_ns=19_000, of_window=True)
        first, last = in_view(page)
        box = page.locator(".timeline-box canvas").bounding_box()
        gutter = left_of_plot(page)
        x = box["x"] + gutter + (0.005 - first) / (last - first) * (box["width"] - gutter)
        page.mouse.move(x, box["y"] + 36 + 26 + 10)
        assert text(page, "tooltip").splitlines()[0] == "compute"
        assert "6.000 µs at 0.00" in text(page, "tooltip")


def test_events_are_colored_by_name_on_request(visit: Any) -> None:
    with visit() as page:
        button, legend = page.locator("[data-do=names]"), page.locator(".timeline-legend")
        canvas = page.locator(".timeline-box canvas")
        box = canvas.bounding_box()

        def picture() -> list[tuple[int, ...]]:
            page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            return pixels(page, 0, 0, round(box["width"]), round(box["height"]))

        page.mouse.move(0, 0)
        assert legend.is_visible()
        before = picture()
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        assert not legend.is_visible()
        assert picture() != before
        button.click()
        assert legend.is_visible()
        assert picture() == before


def test_a_span_can_be_the_window_of_a_report(visit: Any, profile: Profile) -> None:
    with visit(permissions=["clipboard-read", "clipboard-write"]) as page:
        show(page, from_ns=1_000, to_ns=20_500, of_window=True)
        page.get_by_role("button", name="Use as window").click()
        field = page.get_by_label("Command for a report about this span")
        origin = Timeline(profile).window.start_ns
        low, high = (f"{(origin + time) / 1e6:.6f}".rstrip("0").rstrip(".") for time in (1_000, 20_500))
        assert field.input_value() == f"nightsight report CAPTURE --window {low}ms/{high}ms"
        wait_until(page, lambda: "CAPTURE is the file" in text(page, "command"))
        assert "it is on the clipboard" in text(page, "command")


def test_the_command_is_shown_where_nothing_can_be_copied(visit: Any) -> None:
    refused = "navigator.clipboard.writeText = () => Promise.reject(new Error('refused'))"
    with visit() as page:
        page.evaluate(f"() => {{ {refused} }}")
        show(page, from_ns=1_000, to_ns=20_500, of_window=True)
        page.get_by_role("button", name="Use as window").click()
        wait_until(page, lambda: "CAPTURE is the file" in text(page, "command"))
        assert "clipboard" not in text(page, "command")
        field = "document.activeElement"
        assert page.evaluate(f"{field}.selectionEnd - {field}.selectionStart") == len(page.evaluate(f"{field}.value"))


# the overview


def map_place(page: Any, us: float) -> tuple[float, float]:
    """Return where a time since the window's start is in the overview, which shows what `Home` shows."""
    page.locator(".timeline-box canvas").focus()
    before = page.locator(".timeline-map").get_attribute("data-view")
    page.keyboard.press("Home")
    first, last = in_view(page)
    low, high = (int(part) for part in before.split(","))
    box, gutter = page.locator(".timeline-map").bounding_box(), left_of_plot(page)
    page.evaluate("([low, high]) => low + high", [low, high])
    return box["x"] + gutter + (us / 1000 - first) / (last - first) * (box["width"] - gutter), box["y"] + 10


def test_a_click_in_the_overview_goes_there(visit: Any) -> None:
    with visit() as page:
        x, y = map_place(page, 66)
        show(page, from_ns=0, to_ns=4_000, of_window=True)
        before = in_view(page)
        page.mouse.click(x, y)
        first, last = in_view(page)
        assert (first + last) / 2 == pytest.approx(0.066, abs=0.001)
        assert last - first == pytest.approx(before[1] - before[0], rel=0.01)


def test_the_part_in_view_can_be_dragged_and_widened(visit: Any) -> None:
    with visit() as page:
        left, y = map_place(page, 20)
        right, _ = map_place(page, 40)
        show(page, from_ns=10_000, to_ns=30_000, of_window=True)
        first, last = in_view(page)
        page.mouse.move(left, y)
        page.mouse.down()
        page.mouse.move(right, y, steps=4)
        page.mouse.up()
        assert in_view(page) == pytest.approx((first + 0.020, last + 0.020), abs=0.0015)
        end = map_end = left + (right - left) * (in_view(page)[1] * 1000 - 20) / 20
        page.mouse.move(end, y)
        page.mouse.down()
        page.mouse.move(map_end + (right - left) / 2, y, steps=4)
        page.mouse.up()
        assert in_view(page) == pytest.approx((first + 0.020, last + 0.030), abs=0.003)
