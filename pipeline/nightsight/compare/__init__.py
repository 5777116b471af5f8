"""Compares runs: what changed from a baseline to a candidate, how sure that is, and what a gate decides."""

from nightsight.compare.compare import compare
from nightsight.compare.measures import measures
from nightsight.compare.settings import METRICS, Limit, Settings, settings, settings_of
from nightsight.model.compare import STEP

__all__ = ["METRICS", "STEP", "Limit", "Settings", "compare", "measures", "settings", "settings_of"]
