"""Pages as axe-core sees them: names for everything, contrast, structure."""

from pathlib import Path
from typing import Any

import pytest

from nightsight.render.page.html import render_html
from nightsight.render.page.index import IndexEntry, render_index
from tests.browser.looks import LOOKS, OPEN_ALL, in_turns, violations
from tests.recorded import Recorded
from tests.replay_tables import replay_report
from tests.reports import hostile_report

pytestmark = pytest.mark.browser

PAGES = ("train", "ddp2", "python_names", "replays", "hostile", "index")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded) -> dict[str, Path]:
    runs = [
        IndexEntry("mlp", str(day), "mlp/1/report.html", f"2026-11-{day}", "", "", 1e9 * day, None, None, None, False)
        for day in (20, 21)
    ]
    texts = {
        **{name: recorded.page(name) for name in ("train", "ddp2", "python_names")},
        "replays": render_html(replay_report()),
        "hostile": render_html(hostile_report()),
        "index": render_index(runs),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


# 640 px: a window of 1280 px at 200 %
@pytest.mark.parametrize(("name", "scheme", "width"), in_turns(PAGES, [*LOOKS, ("light", 1920), ("dark", 640)]))
def test_axe_finds_nothing(name: str, scheme: str, width: int, browser: Any, pages: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(pages[name].as_uri())
    page.evaluate(OPEN_ALL)
    page.wait_for_timeout(300)
    assert violations(page) == {}
    page.close()
