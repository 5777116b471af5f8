"""The page of a fleet as one HTML file, like a report."""

from nightsight.model.fleet import Fleet
from nightsight.render.fleet.page import fleet_page
from nightsight.render.page.html import fill, with_policy

_STYLES = (
    "tokens",
    "page",
    "first",
    "text",
    "tables",
    "tables_tools",
    "charts",
    "series",
    "pictures",
    "fleet",
    "media",
)


def render_fleet(fleet: Fleet) -> str:
    """Render a fleet as one self-contained HTML page."""
    return with_policy(fill("fleet.html", entry="fleet/main", styles=_STYLES, page=fleet_page(fleet)))
