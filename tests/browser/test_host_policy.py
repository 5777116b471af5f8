"""The page under policies that hosts of strangers' files send with them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from nightsight.render.page.html import with_assets

pytestmark = pytest.mark.browser

HOST: Final = "http://host.example/"
INLINE: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
FILES: Final = "default-src 'none'; style-src 'self'; script-src 'self'"
JENKINS: Final = "sandbox allow-same-origin; default-src 'none'; img-src 'self'; style-src 'self'"
# as docs/page.md tells administrators of Jenkins
OPENED: Final = (
    "sandbox allow-scripts; default-src 'none'; img-src data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline'"
)
READY: Final = "performance.getEntriesByName('timeline: ready').length > 0"
Open = Callable[[dict[str, bytes], str], Any]


@pytest.fixture
def opened(browser: Any) -> Any:
    """Return a function that opens the page `report.html` among files that a host sends with a policy."""
    pages = []

    def open_page(files: dict[str, bytes], policy: str) -> Any:
        kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript"}

        def answer(route: Any) -> None:
            name = route.request.url.removeprefix(HOST)
            headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
            kind = kinds.get(name.rpartition(".")[2], "")
            if name in files:
                route.fulfill(body=files[name], headers={**headers, "Content-Type": f"{kind}; charset=utf-8"})
            else:
                route.fulfill(status=404)

        page = browser.new_page(viewport={"width": 1280, "height": 900})
        pages.append(page)
        page.route(f"{HOST}**", answer)
        page.goto(f"{HOST}report.html")
        return page

    yield open_page
    for page in pages:
        page.close()


@pytest.fixture
def whole(train_page: Path) -> dict[str, bytes]:
    """The page in one file."""
    return {"report.html": train_page.read_bytes()}


@pytest.fixture
def parts(train_page: Path) -> dict[str, bytes]:
    """The page with style and script in files of their own."""
    page, files = with_assets(train_page.read_text(encoding="utf-8"), "assets")
    return {"report.html": page.encode(), **{f"assets/{name}": content for name, content in files.items()}}


def is_styled(page: Any) -> bool:
    return str(page.locator("body").evaluate("body => getComputedStyle(body).fontFamily")).startswith("system-ui")


@pytest.mark.parametrize("policy", [INLINE, OPENED])
def test_where_inline_is_allowed_the_page_is_complete(policy: str, opened: Open, whole: dict[str, bytes]) -> None:
    page = opened(whole, policy)
    page.wait_for_function(READY)
    assert is_styled(page)
    assert page.locator(".table-tools").count()


def test_where_only_files_are_allowed_the_page_with_assets_is_complete(opened: Open, parts: dict[str, bytes]) -> None:
    page = opened(parts, FILES)
    page.wait_for_function(READY)
    assert is_styled(page)


@pytest.mark.parametrize("policy", [JENKINS, OPENED])
def test_on_jenkins_the_page_with_assets_has_its_style(policy: str, opened: Open, parts: dict[str, bytes]) -> None:
    page = opened(parts, policy)
    assert page.locator("#verdict").is_visible()
    assert is_styled(page)
    assert bool(page.locator(".table-tools").count()) == (policy == OPENED)


def test_where_nothing_is_allowed_the_page_can_be_read(opened: Open, whole: dict[str, bytes]) -> None:
    page = opened(whole, "default-src 'none'")
    assert not is_styled(page)
    assert "FP32 math runs without tensor cores" in page.locator("#verdict").inner_text()
    assert page.locator("#cuda_gpu_kern_sum tbody tr").count() > 5
