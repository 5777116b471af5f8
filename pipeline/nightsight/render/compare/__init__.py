"""The forms of a comparison: a page, a comment on a pull request, JSON, lines for a terminal, and a brief."""

from nightsight.render.compare.brief import comparison_brief, comparison_brief_json
from nightsight.render.compare.data import comparison_json
from nightsight.render.compare.html import render_comparison
from nightsight.render.compare.lines import comparison_lines
from nightsight.render.compare.markdown import comparison_markdown, marker

__all__ = [
    "comparison_brief",
    "comparison_brief_json",
    "comparison_json",
    "comparison_lines",
    "comparison_markdown",
    "marker",
    "render_comparison",
]
