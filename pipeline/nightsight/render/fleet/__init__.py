"""The page of a survey."""

from nightsight.render.fleet.html import render_survey
from nightsight.render.fleet.page import Verdict, verdict_of

__all__ = ["Verdict", "render_survey", "verdict_of"]
