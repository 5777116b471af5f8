"""Statistics of spans in a timeline that does not have every event exactly."""

import random
import re
from pathlib import Path
from typing import Any

import pytest

from nightsight.model.report import Profile
from tests.browser.table_pages import wait_until
from tests.browser.timeline_page import in_view, show, timeline_page, timeline_visit
from tests.browser.timeline_samples import MS, cells, clipped, nearly, text, union, visitor
from tests.test_render_timeline_detail import busy_profile
from tests.test_render_tracks import with_kernels
from tests.timeline_payload import Decoded, decode, timeline_payload

pytestmark = pytest.mark.browser

SECTIONS = {"kernels": "GPU work", "ranges": "ranges", "api_calls": "CUDA API"}
ROWS = ".timeline-span > .scroll tbody tr"
Thinned = tuple[Profile, Decoded, Path]


@pytest.fixture(scope="module")
def thinned(tmp_path_factory: pytest.TempPathFactory) -> Thinned:
    return thinned_page(busy_profile(30_000, streams=3, names=40), tmp_path_factory.mktemp("thinned"), 80_000)


def thinned_page(profile: Profile, folder: Path, most_bytes: int) -> Thinned:
    payload = timeline_payload(profile, most_bytes=most_bytes)
    assert payload
    file = folder / "page.html"
    file.write_text(timeline_page(payload.decode()), encoding="utf-8")
    return profile, decode(payload), file


def counted_span(page: Any, decoded: Decoded) -> tuple[int, int]:
    """Return what the statistics are of, in ns since the first event."""
    heading = page.locator(".timeline-span h3").inner_text().replace(",", "")
    first, last = re.search(r"from (\S+) ms to (\S+) ms", heading).groups()  # type: ignore[union-attr]
    origin = decoded.header["window"][0]
    return round(float(first) * MS) + origin, round(float(last) * MS) + origin


def assert_sums_of_tables(page: Any, profile: Profile, low: int, high: int) -> None:
    """Compare what is shown with the events of the profile's tables from `low` to `high`, since the first."""
    begin = min(int(frame["start_ns"].min()) for frame in profile.tables.values())
    shown = {row[0].partition(", ")[2]: row for row in cells(page, ROWS)}
    for table, title in SECTIONS.items():
        if table not in profile.tables:
            continue
        frame = profile.table(table)
        names = {name: code for code, name in enumerate(frame["name"].astype("str").unique())}
        codes = frame["name"].astype("str").map(names)
        spans = zip(frame["start_ns"] - begin, frame["end_ns"] - begin, codes, strict=True)
        inside = clipped(list(spans), low, high)
        _, busy, share, time, count = shown[title]
        assert nearly(busy, union(inside))
        assert float(share.removesuffix(" %")) == pytest.approx(100 * union(inside) / (high - low), abs=0.06)
        assert nearly(time, sum(stop - start for start, stop, _ in inside))
        assert count == f"{len(inside):,}"
        assert_names(page, title, names, inside)


def assert_names(page: Any, title: str, names: dict[str, int], inside: list[tuple[float, float, int]]) -> None:
    part = page.locator(".timeline-span details").filter(has=page.locator("summary", has_text=title))
    rows = [row.locator("th, td").all_text_contents() for row in part.locator("tbody tr").all()]
    assert sum(int(count.replace(",", "")) for *_, count in rows) == len(inside)
    for name, time, _, count in rows:
        if name != "all other names":
            own = [one for one in inside if one[2] == names[name]]
            assert count == f"{len(own):,}"
            assert nearly(time, sum(stop - start for start, stop, _ in own))


@pytest.mark.parametrize("seed", range(6))
def test_statistics_are_of_all_events_where_the_picture_is_thinned(seed: int, browser: Any, thinned: Thinned) -> None:
    profile, decoded, file = thinned
    header = decoded.header
    step = header["sums"]["width_ns"]
    noise = random.Random(seed)
    asked = sorted(noise.randrange(header["span_ns"]) for _ in range(2))
    if seed == 0:
        asked = [0, header["span_ns"]]
    with timeline_visit(browser, file) as page:
        assert "Statistics of a selection cover all events" in text(page, "notes")
        show(page, from_ns=asked[0], to_ns=asked[1])
        low, high = counted_span(page, decoded)
        assert asked[0] - step < low <= asked[0]
        assert asked[1] <= high < asked[1] + step
        assert "All events are counted, in whole steps of" in text(page, "span")
        assert_sums_of_tables(page, profile, low, high)


def test_statistics_of_the_exact_part_are_of_the_very_span(browser: Any, thinned: Thinned) -> None:
    profile, decoded, file = thinned
    exact = decoded.header["layers"][1]
    low, high = exact["from_ns"] + 777, exact["to_ns"] - 12_345
    with timeline_visit(browser, file) as page:
        show(page, from_ns=low, to_ns=high)
        assert counted_span(page, decoded) == (low, high)
        assert "steps" not in text(page, "span")
        assert_sums_of_tables(page, profile, low, high)


def test_a_dragged_span_grows_to_whole_steps_and_a_short_one_stays(browser: Any, thinned: Thinned) -> None:
    _, decoded, file = thinned
    step, origin = decoded.header["sums"]["width_ns"], decoded.header["window"][0]
    with timeline_visit(browser, file) as page:
        box = page.locator(".timeline-box canvas").bounding_box()
        first, last = in_view(page)
        page.mouse.move(box["x"] + 400, box["y"] + 10)
        page.mouse.down()
        page.mouse.move(box["x"] + 800, box["y"] + 10, steps=4)
        page.mouse.up()
        low, high = counted_span(page, decoded)
        assert ((low - origin) % step, (high - origin) % step) == (0, 0)
        page.get_by_role("button", name="Zoom to it").click()
        wait_until(page, lambda: in_view(page) != (first, last))
        assert in_view(page)[1] - in_view(page)[0] == pytest.approx((high - low) / 0.9 / MS, rel=0.01)
        show(page, from_ns=low + 100, to_ns=low + 600)
        assert counted_span(page, decoded) == (low, low + step)
        assert "Only 500 ns of this time are selected." in text(page, "span")


def test_statistics_count_what_is_on_rows_that_are_not_drawn(browser: Any, tmp_path: Path) -> None:
    spans = [(stream, 90_000 * stream, 90_000 * stream + 100_000 + stream) for stream in range(400)]
    profile, decoded, file = thinned_page(with_kernels(spans), tmp_path, 1_000_000)
    assert len(decoded.header["rows"]) == 150
    with timeline_visit(browser, file) as page:
        show(page, from_ns=5 * MS, to_ns=20 * MS)
        assert_sums_of_tables(page, profile, *counted_span(page, decoded))


def test_without_room_for_sums_there_are_statistics_of_the_exact_part_alone(browser: Any, tmp_path: Path) -> None:
    with visitor(browser, tmp_path)("coarse") as page:
        show(page, from_ns=0, to_ns=20 * MS)
        assert "No statistics for this span" in text(page, "span")
        assert cells(page, ROWS) == []
        show(page, from_ns=8 * MS, to_ns=12 * MS)
        ((_, busy, _, _, count),) = cells(page, ROWS)
        assert (busy, count) == ("2.000 ms", "200")
        assert "No statistics" not in text(page, "span")


def test_a_row_tells_how_many_events_it_has_and_the_list_what_it_lists(browser: Any, tmp_path: Path) -> None:
    with visitor(browser, tmp_path)("coarse") as page:
        page.locator(".timeline-box canvas").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        assert page.locator(".timeline-announcement").text_content() == "GPU 0, Stream 7, 1,000 events"
        page.locator("[data-do=list]").click()
        assert "10 of 10 blocks in view" in text(page, "list")


def test_a_span_of_much_is_summed_up_in_no_time(browser: Any, thinned: Thinned) -> None:
    _, decoded, file = thinned
    timed = """(detail) => {
      const start = performance.now();
      document.dispatchEvent(new CustomEvent("timeline:show", { detail }));
      return new Promise((done) => setTimeout(() => done(performance.now() - start)));
    }"""
    with timeline_visit(browser, file) as page:
        taken = [page.evaluate(timed, {"from_ns": 0, "to_ns": decoded.header["span_ns"] - at}) for at in range(3)]
        assert min(taken) < 100
