"""The keys of the timeline: each one in the help does what the help says, and those of Perfetto are among them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.timeline_page import in_view
from tests.browser.timeline_samples import text, visitor

pytestmark = pytest.mark.browser

DOCS = Path(__file__).parents[2] / "docs" / "page.md"


@pytest.fixture(scope="module")
def visit(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    return visitor(browser, tmp_path_factory.mktemp("timelines"))


def width(page: Any) -> float:
    first, last = in_view(page)
    return last - first


def start(page: Any) -> float:
    return in_view(page)[0]


def event(page: Any) -> str:
    """Return where the selected event starts."""
    panel = text(page, "event")
    return panel.split("Start\n")[1].split(" ms")[0] if panel else ""


def row(page: Any) -> str:
    return text(page, "announcement")


def measure(page: Any) -> str:
    return text(page, "measure")


def span(page: Any) -> str:
    panel = text(page, "span")
    return panel.split("\n")[0]


def is_full(page: Any) -> bool:
    return bool(page.locator(".timeline-live.is-full").count())


def has_help(page: Any) -> bool:
    return bool(page.locator(".timeline-keys").is_visible())


def focus(page: Any) -> str:
    return str(page.evaluate("document.activeElement.tagName"))


# of each key: what is pressed before it, what it changes, and whether the change is right
SECOND_ROW = ["ArrowDown", "ArrowDown"]
SELECTED = [*SECOND_ROW, "Enter"]  # the first kernel, which starts at 1 ms
EFFECTS: dict[str, tuple[list[str], Callable[[Any], Any], Callable[[Any, Any], bool]]] = {
    "W": ([], width, lambda before, after: after < before),
    "+": ([], width, lambda before, after: after < before),
    "S": (["+"], width, lambda before, after: after > before),
    "−": (["+"], width, lambda before, after: after > before),
    "A": (["+"], start, lambda before, after: after < before),
    "D": (["+"], start, lambda before, after: after > before),
    "←": (["+"], start, lambda before, after: after < before),
    "→": (["+"], start, lambda before, after: after > before),
    "F": (SELECTED, in_view, lambda _, after: after == pytest.approx((1 / 3, 11 / 3), abs=0.01)),
    "Home": (["+"], in_view, lambda _, after: after == pytest.approx((-1.1, 9.1), abs=0.001)),
    "Shift+F": ([], is_full, lambda before, after: after and not before),
    "Enter": (SECOND_ROW, event, lambda before, after: (before, after) == ("", "1.000000")),
    "]": (SELECTED, event, lambda before, after: (before, after) == ("1.000000", "5.000000")),
    "[": ([*SELECTED, "]"], event, lambda before, after: (before, after) == ("5.000000", "1.000000")),
    "X": (SELECTED, measure, lambda before, after: not before and "Measure to another event" in after),
    "M": (SELECTED, span, lambda before, after: not before and after == "Selected span: 2.000 ms from 1 ms to 3 ms"),
    "/": ([], focus, lambda before, after: (before, after) == ("CANVAS", "INPUT")),
    "Esc": (SELECTED, event, lambda before, after: before and not after),
    "↑": (SECOND_ROW, row, lambda before, after: (before, after) == ("GPU 0, Stream 7, 2 events", "GPU 0, expanded")),
    "↓": (["ArrowDown"], row, lambda _, after: after == "GPU 0, Stream 7, 2 events"),
    "N": (SELECTED, focus, lambda before, after: (before, after) == ("CANVAS", "INPUT")),
    "Shift+M": (SELECTED, focus, lambda before, after: (before, after) == ("CANVAS", "INPUT")),
    "R": ([], focus, lambda before, after: (before, after) == ("CANVAS", "INPUT")),
    "P": (SECOND_ROW, row, lambda _, after: after == "Pinned: GPU 0, Stream 7, 2 events"),
    "?": ([], has_help, lambda before, after: after and not before),
}
NAMES = {"←": "ArrowLeft", "→": "ArrowRight", "↑": "ArrowUp", "↓": "ArrowDown", "−": "-", "Esc": "Escape"}


@pytest.mark.parametrize("key", EFFECTS)
def test_each_key_does_what_the_help_says(key: str, visit: Any) -> None:
    prepared, state, is_right = EFFECTS[key]
    with visit("small") as page:
        page.locator(".timeline-box canvas").focus()
        for earlier in prepared:
            page.keyboard.press(earlier)
        before = state(page)
        page.keyboard.press(NAMES.get(key, key if len(key) > 1 else key.lower()))
        assert is_right(before, state(page))


def test_the_help_and_the_documents_have_exactly_these_keys(visit: Any) -> None:
    with visit("small") as page:
        page.locator("[data-do=help]").click()
        terms = page.locator(".timeline-keys dt").all()
        shown = [
            key.replace(" ", "")
            for term in terms
            for key in term.evaluate(
                """(term) => [...term.childNodes].filter((node) => !node.className)
                     .map((node) => node.textContent).join("").replaceAll(" + ", "~").split(" ")"""
            )
            if key
        ]
        assert sorted(key.replace("~", "+") for key in shown) == sorted(EFFECTS)
    section = DOCS.read_text(encoding="utf-8").split("\n## Timeline\n")[1].split("\n## ")[0]
    table = " ".join(line for line in section.splitlines() if line.startswith("|"))
    documented = {word.strip(",.;") for word in table.split()}
    assert set(EFFECTS) <= documented


def test_the_help_closes_alone(visit: Any) -> None:
    with visit("small") as page:
        page.locator(".timeline-box canvas").focus()
        page.keyboard.press("Shift+F")
        page.keyboard.press("?")
        page.keyboard.press("Escape")
        assert not has_help(page)
        assert is_full(page)
        page.keyboard.press("?")
        page.get_by_role("button", name="Close").click()
        assert not has_help(page)
        assert focus(page) == "CANVAS"


@pytest.mark.parametrize("width", [390, 1280])
def test_the_help_fits(width: int, visit: Any) -> None:
    with visit("small", viewport={"width": width, "height": 800}) as page:
        page.locator("[data-do=help]").click()
        box = page.locator(".timeline-keys").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["height"] <= 800


def test_without_a_selection_m_marks_the_view_and_f_does_nothing(visit: Any) -> None:
    with visit("small") as page:
        page.locator(".timeline-box canvas").focus()
        before = in_view(page)
        page.keyboard.press("f")
        assert in_view(page) == before
        page.keyboard.press("m")
        assert span(page).startswith("Selected span: ")
        for _ in range(2):
            page.keyboard.press("+")
        page.keyboard.press("f")  # back to the span
        assert width(page) > before[1] - before[0]
