"""The page of a job in a real browser: collectives, aligned steps, folded ranks, the heat map."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nightsight.analyze import activities
from nightsight.job.merge import merge_ranks
from nightsight.render.page.html import render_html
from nightsight.workflows.analysis import build_report
from tests.browser.looks import LOOKS, OPEN_ALL, in_turns, violations
from tests.browser.table_pages import wait_until
from tests.browser.timeline_page import durations, in_view, pixels
from tests.browser.timeline_samples import left_of_plot, text, value
from tests.recorded import Recorded, made_once
from tests.world import GAP_NS, TRANSFER_NS, begun_late, world

pytestmark = pytest.mark.browser

RANKS, STEPS, STRAGGLER, UNEVEN = 8, 12, 5, 7
# the CPU begins the first step, and with it the window, before the GPU does
AHEAD_NS = 11_000
# of the page of few ranks, by how much later the last one begins each step
LATE_NS = 300_000
# px of a heading, of what the GPU did, of a row of events
HEADING, SPLIT, ROW = 26, 20, 20


def times() -> Any:
    """Return how long each rank works in each step: all alike, but one is slow and one is fast in every other step."""
    work = 1_000_000 + np.arange(RANKS)[:, None] * 1_000 + np.zeros((1, STEPS), dtype=np.int64)
    work[STRAGGLER] += 400_000
    work[UNEVEN, ::2] -= 500_000
    return work


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded, shared: Path) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("ranks")
    pages = {**made_once(_pages_of_ranks, shared / "ranks.pages"), "ddp2": recorded.page("ddp2")}
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


def _pages_of_ranks() -> dict[str, str]:
    profile = merge_ranks(world(times().tolist()))
    first, second, third = world(times()[:3].tolist())
    few = merge_ranks([first, second, begun_late(third, LATE_NS)])
    return {
        "job": render_html(build_report(profile, "job"), profile, activities=lambda: activities(profile)),
        "few": render_html(build_report(few, "few"), few, activities=lambda: activities(few)),
    }


@pytest.fixture
def opened(browser: Any, files: dict[str, Path]) -> Iterator[Callable[..., Any]]:
    pages: list[Any] = []
    errors: list[str] = []

    def visit(name: str = "job", *, hash_: str = "", **options: Any) -> Any:
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 1000}, **options})
        pages.append(page)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(files[name].as_uri() + hash_)
        wait_until(page, lambda: bool(durations(page, "ready")))
        page.evaluate("document.querySelector('.timeline-bar').scrollIntoView(); scrollBy(0, -60)")
        return page

    yield visit
    for page in pages:
        page.close()
    assert errors == []


def canvas(page: Any) -> Any:
    return page.locator(".timeline-box canvas")


def settled(page: Any) -> None:
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def headings(page: Any) -> list[str]:
    return [button.get_attribute("aria-label") for button in page.locator(".timeline-extent button").all()]


def heading(page: Any, name: str) -> Any:
    return page.locator(f'.timeline-extent button[aria-label^="{name}"]')


def point(page: Any, group: str, ms: float, below: int = HEADING + SPLIT + ROW // 2) -> tuple[float, float]:
    """Return where a time in a row of a group is on the screen; `below`: how far below the top of its heading."""
    box = canvas(page).bounding_box()
    gutter = left_of_plot(page)
    first, last = in_view(page)
    scrolled = page.evaluate("document.querySelector('.timeline-box').scrollTop")
    top = heading(page, group).evaluate("(button) => parseFloat(button.style.top)")
    x = box["x"] + gutter + (ms - first) / (last - first) * (box["width"] - gutter)
    return x, box["y"] + top - scrolled + below


def begun(step: int) -> int:
    """Return when a step begins on all GPUs, in ns since the window began."""
    lengths = times().max(axis=0) + TRANSFER_NS + GAP_NS
    return AHEAD_NS + int(lengths[:step].sum())


def collective(rank: int, step: int) -> float:
    """Return the middle of the kernel that communicates, in ms since the window began."""
    begin = begun(step)
    return float(begin + times()[rank, step] + begin + times()[:, step].max() + TRANSFER_NS) / 2e6


def select(page: Any, rank: int, step: int) -> None:
    page.mouse.click(*point(page, f"Rank {rank}: GPU", collective(rank, step)))
    settled(page)


def orange(page: Any) -> int:
    """Return how many pixels of the rows are as orange as the dot of the last one, and the marks of a step."""
    box = canvas(page).bounding_box()
    shown = pixels(page, 0, 40, int(box["width"]), int(box["height"]) - 40)
    paint = page.evaluate("getComputedStyle(document.querySelector('.timeline')).getPropertyValue('--orange').trim()")
    wanted = tuple(int(paint[at : at + 2], 16) for at in (1, 3, 5))
    return sum(color == wanted for color in shown)


# -- connected --------------------------------------------------------------------------------------------------------


def test_a_selected_collective_says_who_came_last_and_leads_there(opened: Callable[..., Any]) -> None:
    page = opened()
    select(page, 0, 3)
    assert "nccl" in text(page, "event h3")
    assert re.match(r"8 ranks; Rank 5 came last, 405\.0 µs after the first\. Go to Rank 5", value(page, "Together"))
    others = value(page, "The others")
    assert "Rank 5 began 405.0 µs later" in others
    assert "Rank 1 began 1.000 µs later" in others
    assert "Rank 0" not in others
    page.locator(".timeline-event").get_by_role("button", name="Go to Rank 5").click()
    assert value(page, "Row").startswith("Rank 5: GPU 5")
    assert value(page, "Together").endswith(": this one.")
    assert "earlier" in value(page, "The others")


def test_one_that_waits_for_long_is_marked(opened: Callable[..., Any]) -> None:
    page = opened()
    select(page, UNEVEN, 2)
    assert value(page, "Together").startswith("8 ranks; Rank 5 came last, 898.0 µs after the first.")
    assert "Rank 5 began 898.0 µs later" in value(page, "The others")


def test_lines_connect_what_is_selected(opened: Callable[..., Any]) -> None:
    page = opened()
    before = orange(page)
    select(page, 0, 3)
    assert orange(page) > before + 20
    page.keyboard.press("Escape")
    settled(page)
    assert orange(page) == before


def test_pointing_at_a_collective_says_it_too(opened: Callable[..., Any]) -> None:
    page = opened()
    page.mouse.move(*point(page, "Rank 0: GPU", collective(0, 3)))
    settled(page)
    assert "8 ranks; Rank 5 came last, 405.0 µs after the first" in text(page, "tooltip")


def test_computing_is_connected_to_nothing(opened: Callable[..., Any]) -> None:
    page = opened()
    page.mouse.click(*point(page, "Rank 0: GPU", collective(0, 3) - 0.9))
    assert "work" in text(page, "event h3")
    assert page.locator(".timeline-event dt", has_text="Together").count() == 0


def test_the_keyboard_is_enough(opened: Callable[..., Any]) -> None:
    page = opened()
    canvas(page).focus()
    # the heading, what the GPU did, the row; its second event communicates
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "Enter", "]"):
        page.keyboard.press(key)
    assert "Rank 5 came last" in value(page, "Together")
    page.keyboard.press("l")
    assert value(page, "Row").startswith("Rank 5")
    # a rank that is folded is unfolded to be shown
    page.locator(".timeline-event").get_by_role("button", name="Rank 2", exact=True).focus()
    page.keyboard.press("Enter")
    assert value(page, "Row").startswith("Rank 2")
    assert heading(page, "Rank 2").count() == 2


def test_two_real_ranks_are_connected(opened: Callable[..., Any]) -> None:
    page = opened("ddp2")
    page.locator(".timeline-search input").fill("ncclDevKernel")
    page.keyboard.press("Enter")
    assert re.match(r"2 GPUs; GPU [01] came last, .* after the first", value(page, "Together"))


# -- folded -----------------------------------------------------------------------------------------------------------


def test_ranks_that_are_alike_are_folded_and_whoever_is_awaited_is_not(opened: Callable[..., Any]) -> None:
    page = opened()
    assert [label.split(" (")[0] for label in headings(page)] == [
        "Rank 0: GPU 0",
        "Like rank 0: ranks 1, 2, 3, 4, 6",
        "Rank 5: GPU 5",
        "Rank 7: GPU 7",
        *(label for label in headings(page)[4:]),
    ]
    assert "the others wait for it" in heading(page, "Rank 5: GPU").get_attribute("aria-label")
    expanded = {label: heading(page, label).get_attribute("aria-expanded") for label in ("Rank 0: P", "Rank 5: P")}
    assert expanded == {"Rank 0: P": "false", "Rank 5: P": "true"}
    # about a screen of rows
    assert page.locator(".timeline-extent").evaluate("(all) => all.offsetHeight") < 800


def test_folded_ranks_are_shown_and_folded_again(opened: Callable[..., Any]) -> None:
    page = opened()
    fold = heading(page, "Like rank 0")
    assert fold.get_attribute("aria-expanded") == "false"
    fold.focus()
    page.keyboard.press("Enter")
    assert heading(page, "Like rank 0").get_attribute("aria-expanded") == "true"
    assert [label.split(":")[0] for label in headings(page)][2:7] == [f"Rank {rank}" for rank in (1, 2, 3, 4, 6)]
    page.keyboard.press("Enter")
    assert heading(page, "Rank 3").count() == 0
    # by pointer
    box = canvas(page).bounding_box()
    top = heading(page, "Like rank 0").evaluate("(button) => parseFloat(button.style.top)")
    page.mouse.click(box["x"] + 60, box["y"] + top + 10)
    assert heading(page, "Rank 3").count() == 2


def test_a_search_finds_what_is_folded(opened: Callable[..., Any]) -> None:
    page = opened()
    page.locator(".timeline-search input").fill("work")
    assert text(page, "search output") == f"{RANKS * STEPS} events"
    for _ in range(2):
        page.keyboard.press("Enter")
    assert value(page, "Row").startswith("Rank 1")


def test_of_few_ranks_none_is_folded(opened: Callable[..., Any]) -> None:
    page = opened("few")
    assert [label.split(":")[0] for label in headings(page)] == ["Rank 0", "Rank 1", "Rank 2"] * 2
    assert page.locator('.timeline-extent button[aria-expanded="false"]').count() == 0


# -- aligned ----------------------------------------------------------------------------------------------------------


def test_steps_are_aligned_and_put_back(opened: Callable[..., Any]) -> None:
    page = opened()
    before, drawn = in_view(page), orange(page)
    page.get_by_role("button", name="Align steps").click()
    settled(page)
    assert "since step #" in text(page, "range")
    assert text(page, "aligned").startswith("Step #")
    assert "8 ranks" in text(page, "aligned")
    assert orange(page) > drawn
    page.locator(".timeline-aligned").get_by_role("button", name="Undo").click()
    settled(page)
    assert "since" not in text(page, "range")
    assert text(page, "aligned") == ""
    assert in_view(page) == before
    assert page.get_by_role("button", name="Align steps").get_attribute("aria-pressed") == "false"


def test_a_rank_that_begins_later_is_moved(opened: Callable[..., Any]) -> None:
    page = opened("few")
    canvas(page).focus()
    for key in ("w", "w", "w", "w"):
        page.keyboard.press(key)
    page.mouse.move(*point(page, "Rank 2: GPU", begun(6) / 1e6 + 0.1, HEADING + SPLIT // 2))
    page.keyboard.press("t")
    settled(page)
    assert "Rows are moved against Rank 0: Rank 2 by −300.0 µs." in text(page, "aligned")
    # both begin at 0: the work of the one that is later, and shorter, ends earlier
    for rank in (0, 2):
        page.mouse.move(*point(page, f"Rank {rank}: GPU", 0.1))
        settled(page)
        assert "at 0.000000 ms since step #" in text(page, "tooltip")
    ends = {}
    for rank in (0, 2):
        y = int(point(page, f"Rank {rank}: GPU", 0, HEADING // 2)[1] - canvas(page).bounding_box()["y"])
        paint = page.evaluate("getComputedStyle(document.querySelector('.timeline')).getPropertyValue('--orange')")
        wanted = tuple(int(paint.strip()[at : at + 2], 16) for at in (1, 3, 5))
        marks = [x for x, color in enumerate(pixels(page, 0, y, 1200, 1)) if color == wanted]
        ends[rank] = (marks[0], marks[-1])
    # steps are as long, since each begins so much later than the one before
    assert ends[0] == ends[2]


def test_the_selected_step_is_aligned_by_a_key(opened: Callable[..., Any]) -> None:
    page = opened()
    select(page, 0, 3)
    start = value(page, "Start")
    canvas(page).focus()
    page.keyboard.press("t")
    settled(page)
    assert text(page, "range").endswith("since step #3")
    # the begin of the step is 0
    first, last = in_view(page)
    assert first < 0 < last
    wait_until(page, lambda: bool(page.evaluate("() => location.hash.includes('&step=3,0')")))
    page.mouse.move(*point(page, "Rank 5: GPU", 0.7))
    settled(page)
    assert "0.000000 ms since step #3 began" in text(page, "tooltip")
    # of the event, the time in the window is still there
    assert value(page, "Start") == f"{start}; 1.000000 ms since step #3 began"
    page.keyboard.press("t")
    settled(page)
    assert value(page, "Start") == start
    assert "since" not in text(page, "range")


def test_a_span_is_of_one_clock(opened: Callable[..., Any]) -> None:
    page = opened()
    canvas(page).focus()
    page.keyboard.press("t")
    assert text(page, "aligned") != ""
    page.keyboard.press("m")
    assert text(page, "aligned") == ""
    assert "Selected span" in text(page, "span")
    # and the other way round
    page.keyboard.press("t")
    assert text(page, "span") == ""


def test_an_address_keeps_the_alignment(opened: Callable[..., Any]) -> None:
    page = opened(hash_="#timeline=0,9000000&step=2,0")
    assert text(page, "range").endswith("since step #2")
    assert page.get_by_role("button", name="Align steps").get_attribute("aria-pressed") == "true"
    # what is no step of this page is ignored
    for hash_ in ("#timeline=0,9000000&step=99,0", "#timeline=0,9000000&step=2,99"):
        assert "since" not in text(opened(hash_=hash_), "range")


def test_a_page_of_one_rank_cannot_align(browser: Any, train_page: Path) -> None:
    page = browser.new_page()
    page.goto(train_page.as_uri())
    wait_until(page, lambda: bool(durations(page, "ready")))
    assert not page.get_by_role("button", name="Align steps").is_visible()
    canvas(page).focus()
    page.keyboard.press("t")
    page.keyboard.press("l")
    assert text(page, "aligned") == ""
    page.keyboard.press("?")
    assert "ranks" not in page.locator(".timeline-keys").inner_text()
    page.close()


# -- ranks and their heat map -----------------------------------------------------------------------------------------


def test_the_table_of_ranks_is_led_by_the_one_that_others_wait_for(opened: Callable[..., Any]) -> None:
    page = opened()
    page.evaluate(OPEN_ALL)
    rows = page.locator("#ranks tbody:not(.printed) tr[data-row]").all_inner_texts()
    assert len(rows) == RANKS
    assert rows[0].split()[0] == str(STRAGGLER)


def test_a_cell_leads_to_that_step_of_that_rank(opened: Callable[..., Any]) -> None:
    page = opened()
    row = page.locator(f'#ranks .heat svg[data-rank="{UNEVEN}"]').first
    row.scroll_into_view_if_needed()
    box = row.bounding_box()
    place = (box["x"] + (3 + 0.5) * box["width"] / STEPS, box["y"] + box["height"] / 2)
    page.mouse.move(*place)
    reading = page.locator("#ranks .reading").first
    # two digits of the longest
    assert re.fullmatch(r"Rank 7, #3: 1\.10\d ms|Rank 7, #3: 1\.11\d ms", reading.inner_text())
    page.mouse.click(*place)
    wait_until(page, lambda: f"span={begun(3)},{begun(4)}" in page.evaluate("location.hash"))
    assert "Selected span" in text(page, "span")


def test_cells_are_reached_with_keys(opened: Callable[..., Any]) -> None:
    page = opened()
    panels = page.locator("#ranks .heat .panels").first
    panels.focus()
    reading = page.locator("#ranks .reading").first
    assert reading.inner_text().startswith("Rank 0, #0: ")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert reading.inner_text().startswith("Rank 2, #2: ")
    page.keyboard.press("End")
    assert reading.inner_text().startswith(f"Rank 2, #{STEPS - 1}: ")
    page.keyboard.press("ArrowRight")
    assert reading.inner_text().startswith(f"Rank 2, #{STEPS - 1}: ")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    wait_until(page, lambda: f"span={begun(0)}," in page.evaluate("location.hash"))
    # a rank that is folded is unfolded to be shown
    assert heading(page, "Rank 2").count() == 2
    assert page.evaluate("document.activeElement.closest('#timeline') !== null")


def test_a_cursor_is_on_the_cell(opened: Callable[..., Any]) -> None:
    page = opened()
    page.locator("#ranks .heat .panels").first.focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    cursor = page.locator("#ranks .heat-cursor").first.bounding_box()
    row = page.locator('#ranks .heat svg[data-rank="1"]').first.bounding_box()
    assert cursor["x"] == pytest.approx(row["x"] + row["width"] / STEPS, abs=1)
    assert cursor["y"] == pytest.approx(row["y"], abs=1)
    assert cursor["width"] == pytest.approx(row["width"] / STEPS, abs=1)


def test_without_scripts_the_maps_are_pictures(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(files["job"].as_uri())
    panels = page.locator("#ranks .heat .panels").first
    assert panels.get_attribute("role") == "img"
    assert "Rank 5 takes the longest" in panels.get_attribute("aria-label")
    assert page.locator("#ranks tbody tr").count() == RANKS
    page.close()


# -- how it looks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "scheme", "width"), in_turns(["job"], [*LOOKS, ("light", 1280), ("dark", 390)]))
def test_axe_finds_nothing(opened: Callable[..., Any], name: str, scheme: str, width: int) -> None:
    page = opened(name, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.locator(".timeline-search input").fill("nccl")
    page.keyboard.press("Enter")
    assert "8 ranks" in value(page, "Together")
    canvas(page).focus()
    page.keyboard.press("t")
    page.evaluate(OPEN_ALL)
    page.wait_for_timeout(300)
    assert violations(page) == {}
    assert page.evaluate("document.documentElement.scrollWidth") <= width
