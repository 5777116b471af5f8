"""A page with every element of all pages: `make pictures` writes it in five looks, and tests measure its contrast."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from nightsight.model.compare import Comparison
from nightsight.model.report import Report
from nightsight.render.compare.page import comparison_page
from nightsight.render.figure.plot import Picture
from nightsight.render.page.html import TEMPLATES, filled, with_policy
from nightsight.render.page.page import page

LOOKS: Final[dict[str, dict[str, Any]]] = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 900}, "color_scheme": "light"},
    "contrast": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark", "forced_colors": "active"},
    "print": {"viewport": {"width": 794, "height": 1123}, "color_scheme": "dark"},
}
"""What a tab is opened with, by the name of the look; `print` is also for the medium."""
_SOURCE: Final = Path(__file__).with_name("style.html")
_TABLES: Final = ("cuda_gpu_kern_sum", "nvtx_ranges")


def style_page(reports: Iterable[Report], comparison: Comparison) -> str:
    """Return the page: of each kind of picture in the reports, the first."""
    views = [page(report) for report in reports]
    sections = [section for view in views for section in (*view.results, *view.method.sections)]
    pictures: dict[tuple[str, str], Picture] = {}
    for section in sections:
        shown = section.pictures
        for picture in (*shown.above, *shown.folded, *shown.below):
            pictures.setdefault((picture.layout, picture.look), picture)
    tables = [section.table for section in sections if section.anchor in _TABLES and section.table]
    windows = [window for view in views for window in view.windows.windows]
    names = re.findall(r"\.series-([\w-]+) \{", (TEMPLATES / "styles" / "series.css").read_text())
    text = filled(
        _SOURCE.read_text(),
        series=[name for name in names if not name.startswith("mix")],
        rungs=next(window.ladder for window in windows if window.ladder),
        whole=next(window.wholes for window in windows if window.wholes),
        pictures=list(pictures.values()),
        tables=tables[:2],
        comparison=comparison_page(comparison),
    )
    return with_policy(text)
