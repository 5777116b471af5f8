"""Marks in a real browser: lines of their own width with a name beside, found, selected and listed like events."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.browser.table_pages import wait_until
from tests.browser.timeline_page import Row, events, in_view, packed, pixels, show, timeline_page, timeline_visit
from tests.browser.timeline_samples import MS, cells, left_of_plot, text, value
from tests.timeline import draw
from tests.timeline_payload import timeline_payload

pytestmark = pytest.mark.browser

DENSE = (135, 147, 161)
AXIS, HEADING, ROW = 36, 26, 20  # px
PICTURE = """
    nvtx  [step                                  ]
    mark  .....x....y.........................x...
"""

Open = Callable[[str], AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Open:
    """Open a page of a timeline's data."""
    folder = tmp_path_factory.mktemp("marks")

    @contextmanager
    def visit(data: str) -> Iterator[Any]:
        file = folder / "page.html"
        file.write_text(timeline_page(data), encoding="utf-8")
        with timeline_visit(browser, file) as page:
            yield page

    return visit


def drawn(picture: str = PICTURE) -> str:
    """Draw in ms, not µs, some of the marks with a domain."""
    profile = draw(picture)
    tables = {
        name: conform(name, table.assign(start_ns=table["start_ns"] * 1000, end_ns=table["end_ns"] * 1000))
        for name, table in profile.tables.items()
        if name in ("ranges", "marks")
    }
    marks = tables["marks"].assign(domain=["", "io", ""])
    payload = timeline_payload(Profile({**tables, "marks": conform("marks", marks)}))
    assert payload
    return payload.decode()


def column(page: Any, ms: float) -> int:
    """Return where a time is on the canvas."""
    gutter = left_of_plot(page)
    first, last = in_view(page)
    width = float(page.locator(".timeline-box canvas").bounding_box()["width"])
    return round(gutter + (ms - first) / (last - first) * (width - gutter))


def point(page: Any, ms: float, row: int) -> tuple[float, float]:
    """Return where a time of a row is on the screen."""
    box = page.locator(".timeline-box canvas").bounding_box()
    return box["x"] + column(page, ms), box["y"] + AXIS + HEADING + row * ROW + ROW / 2


def test_a_mark_is_a_line_as_high_as_its_row_with_its_name_beside_it(opened: Open) -> None:
    with opened(drawn()) as page:
        x = column(page, 5)
        top = AXIS + HEADING + ROW + 2
        lines = [[at for at in range(x - 4, x + 5) if is_painted(page, at, y)] for y in (top, top + 8, top + 15)]
        assert lines[0] == lines[1] == lines[2]
        assert len(lines[0]) == 2
        around = pixels(page, lines[0][-1] + 3, top, 12, 16)
        assert any(max(color) < 130 for color in around)  # its name
        assert not any(is_painted(page, at, top) for at in range(x - 40, x - 4))


def is_painted(page: Any, x: int, y: int) -> bool:
    """Tell events, whose colors are dark, from what is behind them."""
    (color,) = pixels(page, x, y, 1, 1)
    return max(color) < 150


def test_a_mark_near_the_pointer_is_shown(opened: Open) -> None:
    with opened(drawn()) as page:
        x, y = point(page, 10, 1)
        for off in (0, -3, 3):
            page.mouse.move(x + off, y)
            assert text(page, "tooltip").splitlines() == ["io:y", "at 10.000000 ms", "domain io"]
        page.mouse.move(x - 8, y)
        assert not page.locator(".timeline-tooltip").is_visible()


def test_a_selected_mark_has_a_time_and_no_duration(opened: Open) -> None:
    with opened(drawn()) as page:
        page.mouse.click(*point(page, 10, 1))
        assert page.locator(".timeline-event h3").inner_text() == "io:y"
        terms = page.locator(".timeline-event dt").all_inner_texts()
        assert terms == ["Start", "Row", "Details", "In the range"]
        assert (value(page, "Start"), value(page, "Row")) == ("10.000000 ms", "Process 5, Thread 7, NVTX marks")
        assert page.locator(".timeline-event button").all_inner_texts() == [
            "step",
            "Zoom to it",
            "Measure from here",
            "Close",
        ]
        starts = []
        for key in "][[":
            page.locator(".timeline-box canvas").press(key)
            starts.append(value(page, "Start"))
        assert starts == ["36.000000 ms", "10.000000 ms", "5.000000 ms"]


def test_marks_are_searched_without_zooming_on_to_nothing(opened: Open) -> None:
    with opened(drawn()) as page:
        box = page.locator(".timeline-search input")
        before = in_view(page)
        box.fill("x")
        assert page.locator(".timeline-search output").inner_text() == "2 events"
        for expected in ("5.000000 ms", "36.000000 ms", "5.000000 ms"):
            box.press("Enter")
            assert value(page, "Start") == expected
        assert in_view(page) == before


def test_zooming_to_a_mark_shows_what_is_around_it(opened: Open) -> None:
    with opened(drawn()) as page:
        show(page, name="x", kind="mark")
        assert value(page, "Start") == "5.000000 ms"
        assert page.locator(".timeline-search output").inner_text() == "1 of 2 events"
        show(page, name="io:y", kind="mark")
        page.get_by_role("button", name="Zoom to it").click()
        first, last = in_view(page)
        assert (first + last) / 2 == pytest.approx(10, abs=0.01)
        assert 5 < last - first < 15


def test_zooming_to_one_of_many_marks_tells_it_from_its_neighbors(opened: Open) -> None:
    times = [0, 50 * MS, 50 * MS + 3_000, 50 * MS + 7_000, 100 * MS]
    row = Row(0, "Main thread, NVTX marks", "mark", (events([(at, at, 0) for at in times]),))
    with opened(packed([row], names=["mark"], window=[0, 100 * MS])) as page:
        page.locator(".timeline-box canvas").press("]")
        for _ in range(2):
            page.locator(".timeline-box canvas").press("]")
        assert value(page, "Start") == "50.003000 ms"
        page.get_by_role("button", name="Zoom to it").click()
        first, last = in_view(page)
        assert (first + last) / 2 == pytest.approx(50.003, abs=1e-4)
        assert last - first == pytest.approx(0.006 / 0.6, rel=0.01)


def test_marks_are_listed_without_a_duration(opened: Open) -> None:
    with opened(drawn()) as page:
        page.locator("[data-do=list]").click()
        wait_until(page, lambda: page.locator(".timeline-list tbody tr").count() == 4)
        rows = [[*row[:1], *row[3:]] for row in cells(page, ".timeline-list tbody tr")]
        assert rows == [
            ["step", "0.000000 ms", "40.00 ms"],
            ["x", "5.000000 ms", "–"],
            ["io:y", "10.000000 ms", "–"],
            ["x", "36.000000 ms", "–"],
        ]


def test_marks_beside_very_many_keep_their_color_and_name(opened: Open) -> None:
    spans = [(at, at, 0) for at in range(0, 50 * MS, 5_000)] + [(80 * MS, 80 * MS, 1)]
    row = Row(0, "Main thread, NVTX marks", "mark", (events(spans),))
    with opened(packed([row], names=["mark", "checkpoint"], window=[0, 100 * MS], span_ns=100 * MS)) as page:
        x, top = column(page, 80), AXIS + HEADING + 2
        assert sum(is_painted(page, at, top) for at in range(x - 4, x + 5)) == 2
        assert any(max(color) < 130 for color in pixels(page, x + 4, top, 40, 16))
        assert all(is_painted(page, column(page, ms), top) for ms in (1, 25, 49))


def test_where_there_are_more_marks_than_pixels_a_line_is_drawn_where_any_is(opened: Open) -> None:
    times = [*range(0, 50 * MS, 1_000), *range(90 * MS, 100 * MS, 1_000)]
    row = Row(0, "Main thread, NVTX marks", "mark", (events([(at, at, 0) for at in times]),))
    with opened(packed([row], names=["mark"], span_ns=100 * MS, window=[0, 100 * MS])) as page:
        top = AXIS + HEADING + 2
        for ms, is_there in ((10, True), (49, True), (60, False), (80, False), (95, True)):
            colors = pixels(page, column(page, ms), top, 1, 16)
            assert set(colors) == ({DENSE} if is_there else set(colors) - {DENSE}), ms


def test_a_block_of_marks_says_how_many_there_are(opened: Open) -> None:
    blocks = events([(at * 2 * MS, at * 2 * MS, 0) for at in range(10)], count=[100] * 10)
    merged = {"quantum_ns": 62_500, "from_ns": 0, "to_ns": 20 * MS, "is_merged": True, "merge_ns": 2 * MS}
    row = Row(0, "Main thread, NVTX marks", "mark", (blocks,))
    with opened(packed([row], names=["mark"], span_ns=20 * MS, window=[0, 20 * MS], layers=[merged])) as page:
        page.mouse.move(*point(page, 8, 0))
        assert text(page, "tooltip").splitlines() == ["mark", "at 8.000000 ms, 100 events"]
        page.mouse.click(*point(page, 8, 0))
        assert value(page, "Events") == "100 events in one block"


def test_hostile_names_of_marks_are_text(opened: Open, tmp_path: Path) -> None:
    name = "</script><script>alert(1)</script>\u202e\x00"
    marks = draw("mark  x.y").table("marks").assign(name=name, domain=name, category=name)
    payload = timeline_payload(Profile({"marks": conform("marks", marks)}))
    assert payload
    with opened(payload.decode()) as page:
        page.locator(".timeline-box canvas").press("]")
        shown = name.replace("\u202e", "\ufffd").replace("\x00", "\ufffd")
        assert page.locator(".timeline-event h3").inner_text() == f"{shown}:{shown}"
