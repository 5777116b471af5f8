"""Events of the timeline in a real browser: found, selected, summed up, drawn to scale."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nightsight.events.window import WHOLE
from tests.browser.table_pages import wait_until
from tests.browser.timeline_page import Row, events, in_view, packed, pixels, show, timeline_page, timeline_visit
from tests.browser.timeline_samples import (
    COPY,
    GEMM,
    MS,
    NAMES,
    Span,
    cells,
    click,
    clipped,
    dense_rows,
    nearly,
    number,
    place,
    text,
    union,
    value,
    visitor,
)
from tests.recorded import Recorded
from tests.timeline_payload import timeline_payload

pytestmark = pytest.mark.browser

DENSE = (135, 147, 161)


@pytest.fixture(scope="module")
def visit(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    return visitor(browser, tmp_path_factory.mktemp("timelines"))


@pytest.fixture(scope="module")
def dense() -> list[list[Span]]:
    return dense_rows()[1]


# search


def test_search_counts_highlights_and_goes_from_hit_to_hit(visit: Any) -> None:
    with visit("small") as page:
        box = page.locator(".timeline-search input")
        before = pixels(page, *at(page, 2.5, "CUDA API"), 1, 1)
        box.fill("GEMM")
        assert page.locator(".timeline-search output").inner_text() == "2 events"
        wait_until(page, lambda: pixels(page, *at(page, 2.5, "CUDA API"), 1, 1) != before)  # faded
        starts = []
        for key in ("Enter", "Enter", "Enter", "Shift+Enter"):
            box.press(key)
            starts.append((page.locator(".timeline-search output").inner_text(), value(page, "Start")))
        first, second = ("1 of 2 events", "1.000000 ms"), ("2 of 2 events", "5.000000 ms")
        assert starts == [first, second, first, second]
        box.fill("no such name")
        assert page.locator(".timeline-search output").inner_text() == "No matches"
        assert page.locator("[data-do=next]").is_disabled()
        box.press("Escape")
        assert box.input_value() == ""


def test_hits_of_several_rows_come_in_the_order_of_their_start(visit: Any) -> None:
    with visit("small") as page:
        box = page.locator(".timeline-search input")
        box.fill("e")  # in all names
        starts = []
        for key in ["Enter"] * 7 + ["Shift+Enter"] * 6:
            box.press(key)
            starts.append(value(page, "Start").partition(".")[0])
        assert "".join(starts) == "0012345432100"


def test_a_slash_leads_to_the_search(visit: Any) -> None:
    with visit("small") as page:
        page.locator(".timeline-box canvas").focus()
        page.keyboard.press("/")
        page.keyboard.type("cudaMemcpy")
        page.keyboard.press("Enter")
        assert page.locator(".timeline-event h3").inner_text() == "cudaMemcpyAsync"


def at(page: Any, ms: float, row: str) -> tuple[int, int]:
    """Return a place on the canvas itself."""
    (x, y), box = place(page, ms, row), page.locator(".timeline-box canvas").bounding_box()
    return round(x - box["x"]), round(y - box["y"])


# select


def test_a_click_tells_of_an_event_and_leads_to_its_launch_and_back(visit: Any) -> None:
    with visit("small") as page:
        click(page, 6, "Stream 7")
        assert page.locator(".timeline-event h3").inner_text() == NAMES[GEMM]
        assert [value(page, term) for term in ("Start", "Duration", "Row", "Details")] == [
            "5.000000 ms",
            "3.000 ms",
            "GPU 0, Stream 7",
            "grid 8×1×1",
        ]
        launch = value(page, "Launched by")
        assert launch == "cudaLaunchKernel in Process 5, Main thread, CUDA API, 2.000 ms earlier"
        page.get_by_role("button", name="cudaLaunchKernel").click()
        assert (value(page, "Start"), value(page, "Duration")) == ("3.000000 ms", "1.000 ms")
        assert value(page, "Launched") == f"{NAMES[GEMM]} in GPU 0, Stream 7, 2.000 ms later"
        page.get_by_role("button", name="Zoom to it").click()
        first, last = in_view(page)
        assert (last - first, first + last) == pytest.approx((1 / 0.6, 7), abs=0.01)
        page.get_by_role("button", name="Close").click()
        assert text(page, "event") == ""


def test_an_arrow_joins_a_call_and_what_it_launched(visit: Any) -> None:
    with visit("small") as page:
        left, right = at(page, 2.9, "axis")[0], at(page, 5.1, "axis")[0]
        heading = (left, 142, right - left, 20)  # between the call's row and its kernel's, where nothing else is drawn
        assert min(red for red, _, _ in pixels(page, *heading)) > 200
        click(page, 3.5, "CUDA API")
        in_view(page)
        drawn = pixels(page, *heading)
        lines = [drawn[at : at + heading[2]] for at in range(0, len(drawn), heading[2])]
        assert all(min(red for red, _, _ in line) < 150 for line in lines)


def test_a_click_beside_an_event_selects_nothing(visit: Any) -> None:
    with visit("small") as page:
        click(page, 6, "Stream 7")
        click(page, 0.3, "Stream 7")
        assert text(page, "event") == ""


def test_events_and_curves_under_the_pointer_are_shown(visit: Any) -> None:
    with visit("small") as page:
        page.mouse.move(*place(page, 5, "Stream 13"))
        assert text(page, "tooltip").splitlines() == [NAMES[COPY], "2.000 ms at 4.000000 ms"]
        page.mouse.move(*place(page, 5, "curve"))
        assert text(page, "tooltip").splitlines() == ["Memory in use", "2.000 GB"]
        page.mouse.move(*place(page, 0.2, "curve"))
        assert text(page, "tooltip").splitlines() == ["Memory in use", "10 B"]
        page.mouse.move(*place(page, 0.3, "Stream 7"))
        assert not page.locator(".timeline-tooltip").is_visible()


def test_kernels_have_the_labels_of_the_tables_and_their_names_on_demand(visit: Any) -> None:
    with visit("labeled") as page:
        page.mouse.move(*place(page, 8, "Stream 7"))
        assert text(page, "tooltip").splitlines()[0] == "gemm f32"
        show(page, from_ns=2 * MS, to_ns=9 * MS)
        name = page.locator(".timeline-span details th button").first
        assert (name.inner_text(), name.get_attribute("title")) == ("gemm f32", NAMES[GEMM])
        name.click()
        assert page.locator(".timeline-search input").input_value() == NAMES[GEMM]
        assert page.locator(".timeline-search output").inner_text() == "2 events"


def test_what_is_in_sight_can_be_listed_and_selected_from_there(visit: Any) -> None:
    with visit("small") as page:
        page.locator("[data-do=list]").click()
        names = page.locator(".timeline-list tbody th")
        assert names.all_inner_texts() == [NAMES[at] for at in (2, 4, 0, 3, 2, 1, 0)]
        assert "7 of 7 events in view" in text(page, "list")
        show(page, from_ns=4 * MS, to_ns=5 * MS, of_window=True)
        wait_until(page, lambda: names.count() == 4)
        assert names.all_inner_texts() == [NAMES[at] for at in (4, 2, 1, 0)]
        names.get_by_role("button", name="memcpy").click()
        assert value(page, "Start") == "4.000000 ms"


def test_the_list_is_cut(visit: Any) -> None:
    with visit("dense") as page:
        page.locator("[data-do=list]").click()
        assert page.locator(".timeline-list tbody tr").count() == 100
        assert "100 of 65,000 events in view" in text(page, "list")


# other parts of the page


def test_a_name_is_highlighted_and_its_longest_event_zoomed_to(visit: Any) -> None:
    with visit("small", viewport={"width": 1280, "height": 300}) as page:
        page.evaluate("scrollTo(0, 0)")
        show(page, name=NAMES[GEMM])
        assert value(page, "Duration") == "3.000 ms"
        assert page.locator(".timeline-search output").inner_text() == "2 of 2 events"
        first, last = in_view(page)
        assert first < 5
        assert last > 8
        show(page, name="cudaLaunch")  # a shortened one
        assert value(page, "Duration") == "1.000 ms"
        wait_until(page, lambda: page.evaluate("document.getElementById('timeline').getBoundingClientRect().top") < 120)
        show(page, from_ns=0, to_ns=MS)
        assert (text(page, "event"), page.locator(".timeline-search input").input_value()) == ("", "")


def test_a_wish_from_before_the_timeline_is_ready_is_kept(browser: Any, tmp_path: Path) -> None:
    wish = 'document.dispatchEvent(new CustomEvent("timeline:show", { detail: { name: "add" } }))'
    file = tmp_path / "page.html"
    data = dense_rows()[0]
    file.write_text(timeline_page(data), encoding="utf-8")
    early = f"document.addEventListener('DOMContentLoaded', () => {{ {wish} }})"
    page = browser.new_page()
    page.add_init_script(early)
    page.goto(file.as_uri())
    wait_until(page, lambda: "add" in text(page, "event"))
    page.close()


# sums


@pytest.mark.parametrize("seed", range(6))
def test_statistics_of_a_span_are_the_sums_of_its_events(seed: int, visit: Any, dense: list[list[Span]]) -> None:
    noise = random.Random(seed)
    end = max(row[-1][1] for row in dense)
    low, high = sorted(noise.randrange(end) for _ in range(2))
    if seed == 0:
        low, high = dense[0][0][1], dense[0][5][0]  # the edges of events themselves
    with visit("dense") as page:
        show(page, from_ns=low, to_ns=high)
        inside = [clipped(row, low, high) for row in dense]
        both = [one for row in inside for one in row]
        (sums,) = cells(page, ".timeline-span > .scroll tbody tr")
        assert sums[0] == "GPU 0, GPU work"
        assert nearly(sums[1], union(both))
        assert nearly(sums[3], sum(stop - start for start, stop, _ in both))
        assert sums[4] == f"{len(both):,}"
        assert float(sums[2].removesuffix(" %")) == pytest.approx(100 * union(both) / (high - low), abs=0.06)
        for name, time, _, count in cells(page, ".timeline-span details tbody tr"):
            own = [one for one in both if ["add", "multiply", "long"][one[2]] == name]
            assert nearly(time, sum(stop - start for start, stop, _ in own))
            assert count == f"{len(own):,}"


def test_a_drag_with_shift_or_on_the_axis_selects_a_span(visit: Any) -> None:
    with visit("small") as page:
        for row, key in (("Stream 7", "Shift"), ("axis", None)):
            view = in_view(page)
            if key:
                page.keyboard.down(key)  # as the axis needs none
            page.mouse.move(*place(page, 4.5, row))
            page.mouse.down()
            page.mouse.move(*place(page, 7.5, row), steps=4)
            page.mouse.up()
            if key:
                page.keyboard.up(key)
            assert in_view(page) == view
            work, ranges = cells(page, ".timeline-span > .scroll tbody tr")
            assert work[0] == "GPU 0, GPU work"
            assert number(work[1]) == pytest.approx(3, abs=0.03)  # the union of two that overlap
            assert number(work[3]) == pytest.approx(4, abs=0.06)
            assert (ranges[0], ranges[4]) == ("Process 5, ranges", "1")
            page.locator(".timeline-box canvas").focus()
            page.keyboard.press("Escape")
            assert text(page, "span") == ""


def test_the_exact_part_is_drawn_where_there_is_one(visit: Any) -> None:
    with visit("coarse") as page:
        show(page, from_ns=0, to_ns=2 * MS)
        canvas = page.locator(".timeline-box canvas")
        canvas.focus()
        page.keyboard.press("]")
        assert value(page, "Events") == "100 events in one block"
        show(page, from_ns=9 * MS, to_ns=10 * MS)
        page.keyboard.press("Escape")
        page.keyboard.press("]")
        assert value(page, "Duration") == "10.00 µs"
        assert "Events" not in text(page, "event")


def test_a_real_capture_reads_as_its_tables(browser: Any, recorded: Recorded, tmp_path: Path) -> None:
    profile = replace(recorded.profile("train"), window=WHOLE)
    payload = timeline_payload(profile)
    assert payload is not None
    file = tmp_path / "train.html"
    file.write_text(timeline_page(payload.decode()), encoding="utf-8")
    work = pd.concat([profile.tables["kernels"], profile.tables["memory_ops"]])[["start_ns", "end_ns"]]
    window = work["start_ns"].min(), work["end_ns"].max()
    low, high = 0, int(window[1] - window[0]) * 9 // 10
    spans = [(start - window[0], end - window[0], 0) for start, end in work.itertuples(index=False)]
    with timeline_visit(browser, file) as page:
        show(page, from_ns=low, to_ns=high, of_window=True)
        (sums,) = [row for row in cells(page, ".timeline-span > .scroll tbody tr") if row[0].endswith("GPU work")]
        inside = clipped(spans, low, high)
        assert nearly(sums[1], union(inside))
        assert sums[4] == f"{len(inside):,}"


# drawn to scale


# of the whole, and of a part in which most events reach over the edge of a column
@pytest.mark.parametrize("part", [None, (2 * MS, 3_600_000)])
def test_columns_are_as_high_as_the_share_of_their_time_that_is_busy(
    part: tuple[int, int] | None, visit: Any, dense: list[list[Span]]
) -> None:
    end = max(row[-1][1] for row in dense)
    low, high = (-0.01 * end, 1.01 * end) if part is None else shown_around(*part)
    with visit("dense") as page:
        if part:
            show(page, from_ns=part[0], to_ns=part[1])
            page.keyboard.press("Escape")
            in_view(page)
        gutter = left_of_rows(page)
        columns = round(page.locator(".timeline-box canvas").bounding_box()["width"]) - gutter
        step = (high - low) / columns
        drawn = pixels(page, gutter, 50, columns, 16)
        heights = [sum(color == DENSE for color in drawn[at::columns]) for at in range(columns)]
        long = dense[0][20_000]
        for column in range(0, columns, 7):
            left = low + column * step
            inside = clipped(dense[0], left, left + step)
            if all(label != 2 for _, _, label in inside):  # the long one has its own color
                busy = sum(stop - start for start, stop, _ in inside) / step
                assert heights[column] == pytest.approx(16 * busy, abs=1.1), column
        if part is None:  # a long event has its own color from top to bottom
            middle = round(((long[0] + long[1]) / 2 - low) / step)
            assert len(set(drawn[middle::columns])) == 1
            assert heights[middle] == 0


def shown_around(low: int, high: int) -> tuple[float, float]:
    """Return what is shown for a span: it takes nine tenths of the width."""
    room = (high - low) / 18
    return low - room, high + room


def left_of_rows(page: Any) -> int:
    reds = [red for red, _, _ in pixels(page, 0, 49, 300, 1)]
    return next(at for at in range(80, 300) if reds[at] == 223 and reds[at - 1] == 255) + 1


# much, and nothing


def test_ten_thousand_rows_scroll(visit: Any) -> None:
    with visit("rows") as page:
        assert page.locator(".timeline-box").bounding_box()["height"] == 542  # 60 % of the window, and borders
        box = page.locator(".timeline-box canvas").bounding_box()
        page.evaluate("document.querySelector('.timeline-box').scrollTop = 100000")
        in_view(page)
        page.mouse.move(box["x"] + 40, box["y"] + 200)
        wait_until(page, lambda: page.locator(".timeline-tooltip").is_visible())
        assert text(page, "tooltip") == f"GPU 0, Stream {(100_000 + 200 - 22 - 26) // 20}"


def test_data_that_cannot_be_read_leave_the_page_alone(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(timeline_page("AAAA"), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    wait_until(page, lambda: "could not be drawn" in text(page, "message"))
    assert page.locator("#above").is_visible()
    page.close()


TEXTS = """() => {
  const { fillText } = CanvasRenderingContext2D.prototype;
  const seen = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    seen.push(text);
    return fillText.call(this, text, ...place);
  };
  window.dispatchEvent(new Event("resize"));
  CanvasRenderingContext2D.prototype.fillText = fillText;
  return seen;
}"""


def test_copies_have_their_size_on_the_bar_and_their_rate_in_the_panel(browser: Any, tmp_path: Path) -> None:
    names = ["[CUDA memcpy Host-to-Device]", "[CUDA memset]", "add"]
    labels = [[0, "Pinned → Device, 50.0 MB"], [1, "2.0 kB"], [2, "grid 8×1×1"]]
    copies = events([(0, 2 * MS, 0), (2 * MS, 4 * MS, 1), (4 * MS, 6 * MS, 2)])
    file = tmp_path / "copies.html"
    data = packed([Row(0, "Stream 7", "kernel", (copies,))], names=names, labels=labels)
    file.write_text(timeline_page(data), encoding="utf-8")
    with timeline_visit(browser, file) as page:
        texts = page.evaluate(TEXTS)
        assert [text_ for text_ in texts if "Device" in text_ or "memset" in text_ or text_ == "add"] == [
            "Host-to-Device 50.0 MB",
            "memset 2.0 kB",
            "add",
        ]
        page.locator(".timeline-box canvas").focus()
        for key in ("ArrowDown", "ArrowDown", "Enter"):
            page.keyboard.press(key)
        assert value(page, "Rate") == "25.00 GB/s"
        page.keyboard.press("]")
        page.keyboard.press("]")
        assert "Rate" not in text(page, "event")
