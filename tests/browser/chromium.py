"""The browser of all tests of pages: Debian's Chromium."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

# before any fixture narrows PATH
CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser; without one, fail in CI and skip the test elsewhere."""
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI must have Chromium: install it, these tests must not be skipped there")
        pytest.skip("there is no Chromium on this machine")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (only where there is a browser)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()
