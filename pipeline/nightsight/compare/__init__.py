"""Compares runs: the changes from a baseline to a candidate, their certainty, and the decision of a gate."""

from nightsight.compare.compare import compare
from nightsight.compare.measures import measures
from nightsight.compare.settings import METRICS, Limit, Settings, settings_of
from nightsight.model.compare import STEP

__all__ = ["METRICS", "STEP", "Limit", "Settings", "compare", "measures", "settings_of"]
