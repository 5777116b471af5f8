"""Analyses: a Profile becomes the results of a Report. Adding one is a function and a line in its module's ANALYSES."""

from typing import Final

from nightsight.analyze import api, copies, facts, gaps, kernels, memory, split, syncs
from nightsight.analyze import gpu_time as window
from nightsight.analyze.analysis import Analysis
from nightsight.analyze.launches import distributions
from nightsight.analyze.launches import figures as latency
from nightsight.analyze.launches import overhead as launch
from nightsight.analyze.ranges import iterations, marks, setup
from nightsight.analyze.ranges import owners as ranges
from nightsight.analyze.replay import (
    instructions as replay_instructions,
)
from nightsight.analyze.replay import (
    join as replays,
)
from nightsight.analyze.replay import (
    kernels as replay_kernels,
)
from nightsight.analyze.replay import (
    roofline,
)
from nightsight.analyze.replay import (
    rules as replay_rules,
)
from nightsight.analyze.replay import (
    source as replay_source,
)
from nightsight.analyze.replay import (
    stalls as replay_stalls,
)
from nightsight.events.timeline import Timeline
from nightsight.model import Finding, Profile, Result
from nightsight.parallel import mapped

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
