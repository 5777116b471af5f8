"""The trend page as one HTML file: like a report, with uPlot (MIT, vendored) for its charts."""

from functools import cache

from markupsafe import Markup

from nightsight.model.history import Trends
from nightsight.render.history.page import Links, trend_page
from nightsight.render.history.payload import trend_payload
from nightsight.render.page.html import TEMPLATES, fill, with_policy

_STYLES = ("tokens", "page", "text", "tables", "tables_tools", "trend", "media")


def render_trends(trends: Trends, links: Links | None = None) -> str:
    """Render a history as one self-contained HTML page."""
    links = links or Links()
    page, payload = trend_page(trends, links), trend_payload(trends, links)
    return with_policy(
        fill("trend.html", entry="trend/main", styles=_STYLES, vendored=_uplot(), page=page, payload=payload)
    )


@cache
def _uplot() -> tuple[Markup, Markup]:
    """Return the style and the script of uPlot, as it was published."""
    folder = TEMPLATES / "vendor" / "uplot"
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("uPlot.min.css", "uPlot.iife.min.js"))
    return Markup(style), Markup(script)  # noqa: S704 (vendored)
