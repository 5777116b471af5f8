"""What every test in a browser may ask for."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.chromium import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser
