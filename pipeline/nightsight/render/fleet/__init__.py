"""The page of a survey."""

from nightsight.render.fleet.html import render_survey
from nightsight.render.fleet.page import SurveyVerdict, verdict_of

__all__ = ["SurveyVerdict", "render_survey", "verdict_of"]
