"""What the page of a real capture says, word for word and number for number, as views: a change of any shows here.

`NIGHTSIGHT_GOLD=write pytest tests/test_render_gold.py` writes them again; read the difference before it is committed.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from nightsight.render.figure.bars import BarChart
from nightsight.render.figure.boxes import Boxes
from nightsight.render.figure.heat import Heat
from nightsight.render.figure.plot import Panels, Picture, Plane
from nightsight.render.figure.shares import Wholes
from nightsight.render.page.page import PageSection, page
from tests.recorded import Recorded

GOLD = Path(__file__).parent / "gold"
ROWS = 3


def describe(picture: Picture) -> list[Any]:
    """Return what stands beside bars, and the words of other pictures."""
    match picture:
        case BarChart():
            return [[group.label, *(bar.value or bar.summary for bar in group.bars)] for group in picture.groups[:ROWS]]
        case Panels():
            return [plot.summary for plot in picture.plots]
        case Plane():
            return [picture.plot.summary]
        case Boxes():
            return [tree.summary for tree in picture.trees]
        case Wholes():
            return [whole.summary for whole in picture.bars]
        case Heat():
            return [picture.summary]
    raise AssertionError(picture)


def summarize(section: PageSection) -> dict[str, Any]:
    """Return the title, pictures in words, and first rows of a section."""
    table = section.table
    return {
        "title": section.title,
        "message": section.message,
        "notes": section.notes,
        "pictures": [
            [picture.title, describe(picture)]
            for picture in (*section.pictures.above, *section.pictures.folded, *section.pictures.below)
        ],
        "columns": [f"{column.title} ({column.unit})" for column in table.columns] if table else [],
        "rows": [[row.name.text, *(cell.text for cell in row.cells)] for row in table.rows[:ROWS]] if table else [],
        "more": table.more if table else "",
    }


@pytest.mark.parametrize("name", ["mlp", "train"])
def test_the_texts_of_the_page_are_unchanged(name: str, recorded: Recorded) -> None:
    view = page(recorded.report(name))
    whole = {
        "facts": view.facts,
        "verdict": view.windows.windows[0].verdict.text,
        "headline": asdict(view.windows.windows[0].headline),
        "ladder": [rung.summary for rung in ladder.rungs] if (ladder := view.windows.windows[0].ladder) else [],
        "banners": [asdict(banner) for banner in (*view.doubts, *view.notes)],
        "first": [asdict(figure) for figure in view.windows.windows[0].figures],
        "figures": [asdict(figure) for figure in view.figures],
        "advice": [asdict(item) for item in view.advice],
        "sections": {section.anchor: summarize(section) for section in view.results},
        "unavailable": view.unavailable,
    }
    text = json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
    path = GOLD / f"{name}.json"
    if os.environ.get("NIGHTSIGHT_GOLD") == "write":
        path.write_text(text, encoding="utf-8")
    assert json.loads(text) == json.loads(path.read_text(encoding="utf-8"))
