"""Analyses: a Profile becomes the results of a Report. Adding one is a function and a line in its module's ANALYSES."""

from typing import Final

from pipeline.analyze import api, facts, kernels, launch, ranges, window
from pipeline.analyze.analysis import Analysis
from pipeline.analyze.facts import trust
from pipeline.model import Profile, Result

# in the order of the report
ANALYSES: Final[tuple[Analysis, ...]] = (
    *window.ANALYSES,
    *kernels.ANALYSES,
    *launch.ANALYSES,
    *ranges.ANALYSES,
    *api.ANALYSES,
    *facts.ANALYSES,
)

__all__ = ["ANALYSES", "analyze", "trust"]


def analyze(profile: Profile) -> tuple[Result, ...]:
    """Run every analysis; one that lacks its tables yields a result that says why."""
    return tuple(analysis.run(profile) for analysis in ANALYSES)
