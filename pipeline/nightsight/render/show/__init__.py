"""Answers about one thing of a report, as lines or as JSON."""

from nightsight.render.show.answers import Choice
from nightsight.render.show.data import shown_json
from nightsight.render.show.lines import shown

__all__ = ["Choice", "shown", "shown_json"]
