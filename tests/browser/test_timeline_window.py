"""How much of the screen the timeline takes, how one moves about in it, and what it says of that."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.table_pages import wait_until
from tests.browser.timeline_page import Row, events, in_view, packed, show, timeline_page, timeline_visit
from tests.browser.timeline_samples import CURVE, GROUPS, MS, NAMES, click, place, small, text

pytestmark = pytest.mark.browser

COUNTERS = [CURVE, *({**CURVE, "label": label, "value": [0, 0], "max": 0} for label in ("Pixel warps", "Vertex warps"))]


def counters() -> str:
    """A kernel, a counter, and two that are always 0."""
    row = Row(0, "Stream 7", "kernel", (events([(0, 9 * MS, 0)]),))
    return packed([row], span_ns=10 * MS, names=NAMES, groups=GROUPS, curves=COUNTERS, window=[0, 9 * MS])


def quiet() -> str:
    """Two threads of which the window, from 5 ms on, has only the calls of the first, and that many times below."""
    names = [*NAMES, "import"]
    begin = [Row(1, f"Thread {at}, NVTX", "range", (events([(at * MS, (at + 1) * MS, 5)]),)) for at in range(2)]
    calls = [Row(1, f"Thread {at}, CUDA API", "api", (events([(6 * MS, 7 * MS, 2)]),)) for at in range(40)]
    return packed([*begin, *calls], span_ns=10 * MS, names=names, groups=GROUPS, window=[5 * MS, 9 * MS])


def long_page() -> str:
    """A timeline far below a link to it, and one that is near."""
    far = '<nav><a id="far" href="#timeline">Far</a> <a id="near" href="#above">Near</a></nav>'
    page = timeline_page(small()).replace("<h1>A page</h1>", f"<h1>A page</h1>{far}")
    return page.replace("Above.</p>", 'Above.</p><div class="tall"></div>').replace(
        "<style>", "<style>.tall { height: 9000px } #above { margin-top: 900px }", 1
    )


PAGES: dict[str, Callable[[], str]] = {
    "small": lambda: timeline_page(small()),
    "counters": lambda: timeline_page(counters()),
    "quiet": lambda: timeline_page(quiet()),
}


@pytest.fixture(scope="module")
def visit(browser: Any, tmp_path_factory: Any) -> Callable[..., Any]:
    folder: Path = tmp_path_factory.mktemp("windows")
    for name, made in PAGES.items():
        (folder / f"{name}.html").write_text(made(), encoding="utf-8")
    return lambda name="small", **options: timeline_visit(browser, folder / f"{name}.html", **options)


def focus(page: Any) -> None:
    page.locator(".timeline-box canvas").focus()


@pytest.mark.parametrize(("width", "margin"), [(390, 16), (1279, 64), (1280, 33), (1920, 33), (2560, 33)])
def test_it_is_as_wide_as_a_wide_window(width: int, margin: int, visit: Any) -> None:
    with visit(viewport={"width": width, "height": 800}) as page:
        box = page.locator(".timeline-box").bounding_box()
        assert box["width"] >= width - 2 * margin - 2
        assert box["x"] + box["width"] <= width
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator(".timeline-texts").bounding_box()["width"] <= 1152


def test_shift_f_fills_the_window_and_escape_leaves(visit: Any) -> None:
    with visit() as page:
        before = page.locator(".timeline-box").bounding_box()
        focus(page)
        page.keyboard.press("Shift+F")
        live = page.locator(".timeline-live").bounding_box()
        assert (live["x"], live["y"], live["width"], live["height"]) == (0, 0, 1280, 900)
        assert page.locator(".timeline-box").bounding_box()["height"] > 600
        assert page.locator("[data-do=full]").get_attribute("aria-pressed") == "true"
        click(page, 3.5, "CUDA API")
        assert "cudaLaunchKernel" in text(page, "event")
        page.keyboard.press("Escape")
        assert page.locator(".timeline-box").bounding_box() == before
        assert "cudaLaunchKernel" in text(page, "event")  # the first Escape only leaves
        page.keyboard.press("Escape")
        assert text(page, "event") == ""


def test_shift_f_fills_the_window_from_anywhere_but_a_field(visit: Any) -> None:
    with visit() as page:
        page.keyboard.press("Shift+F")
        assert page.locator(".is-full").count() == 1
        page.keyboard.press("Shift+F")
        assert page.locator(".is-full").count() == 0
        page.locator(".timeline-search input").press("Shift+F")
        assert page.locator(".is-full").count() == 0
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("Control+Shift+F")
        assert page.locator(".is-full").count() == 0


def test_nothing_behind_the_full_window_can_be_reached(visit: Any) -> None:
    with visit() as page:
        page.locator("[data-do=full]").click()
        for _ in range(40):
            page.keyboard.press("Tab")
            where = page.evaluate("document.activeElement.closest('.is-full, body').tagName")
            assert where in ("BODY", "DIV")
            assert page.evaluate("!document.activeElement.closest('[inert]')")
        page.locator(".timeline-search input").focus()
        page.keyboard.press("Escape")  # from a field, too
        assert not page.locator(".is-full").count()
        assert page.evaluate("document.querySelectorAll('[inert]').length") == 0


def test_letters_move_as_in_other_viewers(visit: Any) -> None:
    with visit() as page:
        focus(page)
        first, last = in_view(page)
        page.keyboard.press("w")
        nearer = in_view(page)
        assert nearer[1] - nearer[0] == pytest.approx((last - first) / 1.5, rel=1e-3)
        page.keyboard.press("d")
        assert in_view(page)[0] == pytest.approx(nearer[0] + 0.15 * (nearer[1] - nearer[0]), abs=0.002)
        page.keyboard.press("a")
        assert in_view(page) == pytest.approx(nearer, abs=0.002)
        page.keyboard.press("s")
        assert in_view(page) == pytest.approx((first, last), abs=0.002)


def test_letters_typed_into_the_search_are_text(visit: Any) -> None:
    with visit() as page:
        before = in_view(page)
        page.locator(".timeline-search input").press_sequentially("wasdfm")
        assert in_view(page) == before
        assert not page.locator(".is-full").count()


def test_a_span_chosen_by_hand_is_as_exact_as_the_screen(visit: Any) -> None:
    with visit() as page:
        y = place(page, 1, "axis")[1]
        page.mouse.move(place(page, 1.23456, "axis")[0], y)
        page.mouse.down()
        page.mouse.move(place(page, 5.4321, "axis")[0], y, steps=4)
        page.mouse.up()
        # 9 ms in about 1,000 px: 0.001 ms is the power of ten below
        title = page.locator(".timeline-span h3").inner_text()
        first, last = (float(part) for part in title.split(" from ")[1].removesuffix(" ms").split(" ms to "))
        assert (first, last) == pytest.approx((1.235, 5.432), abs=0.011)
        assert all(len(part.split(" ")[0].partition(".")[2]) <= 3 for part in title.split(" from ")[1].split(" to "))


def test_a_span_of_an_event_is_exact(visit: Any) -> None:
    with visit() as page:
        show(page, from_ns=1_234_567, to_ns=7_654_321)
        assert "from 0.234567 ms to 6.654321 ms" in text(page, "span")


def test_the_first_plain_wheel_is_told_how_to_zoom(visit: Any) -> None:
    with visit() as page:
        hint = page.locator(".timeline-hint")
        page.locator(".timeline-box canvas").hover()
        page.mouse.wheel(100, 0)  # moves, so there is nothing to say
        assert not hint.is_visible()
        page.mouse.wheel(0, 60)
        wait_until(page, hint.is_visible)
        assert hint.inner_text() in ("Ctrl + wheel zooms", "⌘ + wheel zooms")
        wait_until(page, lambda: not hint.is_visible())
        page.mouse.wheel(0, 60)  # once is enough
        page.wait_for_timeout(100)
        assert not hint.is_visible()


def test_a_finger_that_scrolls_the_page_is_told_how_to_zoom(visit: Any) -> None:
    with visit(has_touch=True) as page:
        page.evaluate(
            """() => document.querySelector(".timeline-box canvas").dispatchEvent(
            new PointerEvent("pointercancel", { pointerType: "touch", pointerId: 5 }))"""
        )
        assert page.locator(".timeline-hint").inner_text() == "Two fingers zoom; a drag sideways moves"


def test_counters_that_are_always_0_are_folded(visit: Any) -> None:
    with visit("counters") as page:
        canvas = page.locator(".timeline-box canvas")
        height = canvas.bounding_box()["height"]
        focus(page)
        for _ in range(4):
            page.keyboard.press("ArrowDown")
        assert text(page, "announcement") == "GPU 0, always 0: Pixel warps, Vertex warps"
        page.keyboard.press("Enter")
        assert canvas.bounding_box()["height"] == height + 2 * 38
        page.keyboard.press("ArrowDown")
        assert text(page, "announcement").startswith("Pixel warps")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        assert canvas.bounding_box()["height"] == height


def test_a_folded_counter_that_is_asked_for_is_shown(visit: Any) -> None:
    with visit("counters") as page:
        height = page.locator(".timeline-box canvas").bounding_box()["height"]
        show(page, curve="Vertex warps")
        assert page.locator(".timeline-box canvas").bounding_box()["height"] == height + 2 * 38
        assert text(page, "announcement").startswith("Vertex warps")


def test_rows_without_events_in_the_window_are_folded_until_they_are_asked_for(visit: Any) -> None:
    with visit("quiet") as page:
        extent = "document.querySelector('.timeline-extent').clientHeight"
        height = page.evaluate(extent)
        focus(page)
        for _ in range(43):
            page.keyboard.press("ArrowDown")
        folded = "Process 5, empty in the window: Thread 0, NVTX, Thread 1, NVTX"
        assert text(page, "announcement") == folded
        page.keyboard.press("Enter")
        assert page.evaluate(extent) == height + 2 * 20
        page.keyboard.press("Enter")
        assert page.evaluate(extent) == height
        show(page, name="import", kind="range")
        assert text(page, "event").startswith("import")
        assert page.evaluate(extent) == height + 2 * 20


def test_the_lower_edge_is_shaded_while_more_rows_follow(visit: Any) -> None:
    shade = "getComputedStyle(document.querySelector('.timeline-box'), '::after').content !== 'none'"
    with visit("quiet") as page:
        assert page.evaluate(shade)
        page.locator(".timeline-box").evaluate("box => box.scrollTop = 1e9")
        wait_until(page, lambda: not page.evaluate(shade))
    with visit("small") as page:
        assert not page.evaluate(shade)


def test_far_jumps_do_not_scroll_through_everything(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "long.html"
    file.write_text(long_page(), encoding="utf-8")
    # its style was changed, so that its policy does not fit
    page = browser.new_page(viewport={"width": 1280, "height": 800}, bypass_csp=True)
    page.goto(file.as_uri())
    page.locator(".timeline-box canvas").wait_for()
    page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")

    def places() -> list[int]:
        script = """() => new Promise((done) => {
          const seen = new Set();
          const look = (left) => {
            seen.add(Math.round(scrollY));
            if (left) requestAnimationFrame(() => look(left - 1));
            else done([...seen]);
          };
          look(40);
        })"""
        positions: list[int] = page.evaluate(script)
        return positions

    page.locator("#far").click()
    far = places()
    assert max(far) > 5000
    assert len([place for place in far if 100 < place < max(far) - 100]) == 0
    page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
    page.locator("#near").click()
    assert len([place for place in places() if place > 0]) > 2
    page.close()


def test_the_overview_folds_a_long_start_up_until_its_name_is_clicked(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "late.html"
    kernels = events([(at * MS, at * MS + MS // 2, 0) for at in (*range(0, 900, 100), *range(900, 1000))])
    row = Row(0, "Stream 7", "kernel", (kernels,))
    data = packed([row], names=["add"], window=[900 * MS, 1000 * MS], span_ns=1000 * MS)
    file.write_text(timeline_page(data), encoding="utf-8")
    with timeline_visit(browser, file) as page:
        box = page.locator(".timeline-map").bounding_box()
        middle = (box["x"] + box["width"] * 0.6, box["y"] + 10)
        page.locator(".timeline-box canvas").focus()
        for _ in range(6):
            page.keyboard.press("+")
        page.mouse.click(*middle)
        assert 0 < in_view(page)[0] < 100  # in the window
        page.mouse.click(box["x"] + 30, box["y"] + 10)
        page.mouse.click(*middle)
        assert in_view(page)[1] < 0  # in the start-up
