"""The browser of all tests of pages: Debian's Chromium."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

# before any fixture narrows PATH
CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


# one process for all pages: to start one takes as long as to read a page
_ARGUMENTS: Final = ("--no-sandbox", "--renderer-process-limit=1")


class Browser:
    """Chromium, with one context for each set of options: to make one takes as long as to open a page in it.

    Pages of a context could share what they store, but ours store nothing.
    """

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium
        self._contexts: dict[str, Any] = {}
        # the process of pages lives as long as one of them
        self._kept = self.new_page()

    def new_page(self, **options: Any) -> Any:
        """Open a page, which the caller closes."""
        key = repr(sorted(options.items()))
        if key not in self._contexts:
            self._contexts[key] = self._chromium.new_context(**options)
        return self._contexts[key].new_page()


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser; without one, fail in CI and skip the test elsewhere."""
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI must have Chromium: install it, these tests must not be skipped there")
        pytest.skip("there is no Chromium on this machine")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (only where there is a browser)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        yield browser
        browser.close()
