"""The forms of a comparison: a page, a comment on a pull request, JSON, and lines for a terminal."""

from nightsight.render.compare.data import comparison_json
from nightsight.render.compare.html import render_comparison
from nightsight.render.compare.lines import comparison_lines
from nightsight.render.compare.markdown import comparison_markdown, marker

__all__ = ["comparison_json", "comparison_lines", "comparison_markdown", "marker", "render_comparison"]
