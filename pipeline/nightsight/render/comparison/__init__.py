"""The forms of a comparison: a page, a comment on a pull request, JSON, and lines for a terminal."""

from nightsight.render.comparison.data import comparison_json
from nightsight.render.comparison.html import render_comparison
from nightsight.render.comparison.lines import comparison_lines
from nightsight.render.comparison.markdown import comparison_markdown, marker

__all__ = ["comparison_json", "comparison_lines", "comparison_markdown", "marker", "render_comparison"]
