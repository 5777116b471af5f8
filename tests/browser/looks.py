"""In which looks pages are tested, and that axe-core finds nothing in them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

# (theme, width): colors follow from the theme, the arrangement from the width, and each is seen once
LOOKS: Final = [("light", 390), ("dark", 1280)]

OPEN_ALL: Final = "for (const each of document.querySelectorAll('details.closed, details.folded')) each.open = true"
"""A script that opens the details of a page."""
# rows of a table and parts of a picture are written alike; axe-core takes milliseconds for each
_SOME_OF_EACH: Final = """() => {
  for (const parent of document.querySelectorAll("tbody, svg, svg g")) {
    const seen = {};
    for (const child of [...parent.children]) {
      const kind = `${child.tagName} ${child.getAttribute("class")}`;
      seen[kind] = (seen[kind] ?? 0) + 1;
      if (seen[kind] > 20) child.remove();
    }
  }
}"""


def in_turns(pages: Iterable[str], looks: Sequence[tuple[str, int]] = LOOKS) -> "list[ParameterSet]":
    """Return pages with the looks to see them in: each in one, by turns, and at night in all."""
    return [
        pytest.param(page, *look, marks=[pytest.mark.nightly] * (place != number % len(looks)))
        for number, page in enumerate(pages)
        for place, look in enumerate(looks)
    ]


def violations(page: Any) -> dict[str, list[str]]:
    """Return what axe-core finds in a page, whose tables and pictures lose most of their rows and parts by this."""
    page.evaluate(_SOME_OF_EACH)
    response = Axe().run(page).response
    assert len(response["passes"]) > 10
    return {each["id"]: [node["html"][:200] for node in each["nodes"][:3]] for each in response["violations"]}
