"""Analyses: a Profile becomes the results of a Report. Adding one is a function and a line in its module's ANALYSES."""

from typing import Final

from pipeline.analyze import (
    api,
    copies,
    distributions,
    facts,
    gaps,
    iterations,
    kernels,
    latency,
    launch,
    marks,
    memory,
    ranges,
    replay_instructions,
    replay_kernels,
    replay_rules,
    replay_source,
    replay_stalls,
    replays,
    roofline,
    setup,
    split,
    syncs,
    window,
)
from pipeline.analyze.analysis import Analysis
from pipeline.analyze.timeline import Timeline
from pipeline.model import Finding, Profile, Result
from pipeline.parallel import mapped

# in the order of the report
ANALYSES: Final[tuple[Analysis, ...]] = (
    *window.ANALYSES,
    *split.ANALYSES,
    *gaps.ANALYSES,
    *kernels.ANALYSES,
    *copies.ANALYSES,
    *launch.ANALYSES,
    *latency.ANALYSES,
    *distributions.ANALYSES,
    *replays.ANALYSES,
    *replay_kernels.ANALYSES,
    *replay_rules.ANALYSES,
    *roofline.ANALYSES,
    *replay_stalls.ANALYSES,
    *replay_instructions.ANALYSES,
    *replay_source.ANALYSES,
    *ranges.ANALYSES,
    *iterations.ANALYSES,
    *marks.ANALYSES,
    *syncs.ANALYSES,
    *setup.ANALYSES,
    *memory.ANALYSES,
    *api.ANALYSES,
    *facts.ANALYSES,
)

__all__ = ["ANALYSES", "analyze"]


def analyze(profile: Profile) -> tuple[tuple[Result, ...], tuple[Finding, ...]]:
    """Run every analysis, and say what a reader must know before believing the numbers.

    An analysis that lacks its tables yields a result that says why.
    """
    timeline = Timeline(profile)
    results = tuple(mapped(lambda analysis: analysis.run(timeline), ANALYSES))
    return results, (*facts.trust(timeline), *ranges.open_ranges(timeline))
