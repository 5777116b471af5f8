"""What several modules of tests in a browser ask for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pytest

from tests.browser.table_pages import frames, visited, write_pages
from tests.recorded import Recorded

_FRAME: Final = (
    '<!doctype html><title>f</title><iframe width="1200" height="700" sandbox="allow-scripts" src="train.html">'
)


@pytest.fixture(scope="session")
def train_page(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded) -> Path:
    """Return the page of `train`; beside it is framed.html, with the page in a sandboxed frame."""
    folder = tmp_path_factory.mktemp("train")
    (folder / "train.html").write_text(recorded.page("train"), encoding="utf-8")
    (folder / "framed.html").write_text(_FRAME, encoding="utf-8")
    return folder / "train.html"


@pytest.fixture(scope="session")
def tables() -> dict[str, pd.DataFrame]:
    """Return the tables of the page `big` by what they are about."""
    return frames()


@pytest.fixture(scope="session")
def visit_tables(
    browser: Any,
    tables: dict[str, pd.DataFrame],
    tmp_path_factory: pytest.TempPathFactory,
    recorded: Recorded,
) -> Callable[..., Any]:
    """Open a page of tables by its name."""
    files = write_pages(tmp_path_factory.mktemp("tables"), tables, recorded.page("train"))
    return lambda name, **options: visited(browser, files[name], **options)
