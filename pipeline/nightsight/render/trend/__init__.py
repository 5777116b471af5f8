"""The page of a history."""

from nightsight.render.trend.html import render_trends
from nightsight.render.trend.page import Links

__all__ = ["Links", "render_trends"]
