"""The page of a history."""

from nightsight.render.history.html import render_trends
from nightsight.render.history.page import Links

__all__ = ["Links", "render_trends"]
