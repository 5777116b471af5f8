"""Analyses: turn a Profile into the results and findings of a Report.

An analysis is a function, an `Analysis` in its module's ANALYSES, and its entry in `nightsight.results`.
"""

from collections.abc import Collection, Iterator
from functools import partial
from importlib import import_module
from pkgutil import walk_packages
from typing import Final

from nightsight.analyze import facts
from nightsight.analyze.analysis import Analysis
from nightsight.analyze.batch_sizes import batch_sizes
from nightsight.analyze.causes.irregular import irregular_host_code
from nightsight.analyze.drift import drift
from nightsight.analyze.facts import ranks_by_gpu, shared_numbers
from nightsight.analyze.mismatches import mismatches
from nightsight.analyze.part_of_step import part_of_step
from nightsight.analyze.ranges.graphs import graphs_without_ranges
from nightsight.analyze.ranges.owners import open_ranges
from nightsight.analyze.split import activities
from nightsight.analyze.views import other_timelines, view_of
from nightsight.events.timeline import Timeline
from nightsight.events.window import Window
from nightsight.model.report import Finding, Results
from nightsight.results import RESULTS
from nightsight.results.entry import Entry

__all__ = [
    "ANALYSES",
    "activities",
    "analyze",
    "analyze_others",
    "doubts",
    "ranks_by_gpu",
    "shared_numbers",
    "view_of",
]


def _in_modules() -> tuple[Analysis, ...]:
    """Return the analyses of all modules in this package, in the order of the register."""
    modules = (import_module(info.name) for info in walk_packages(__path__, f"{__name__}."))
    analyses: list[Analysis] = [analysis for module in modules for analysis in getattr(module, "ANALYSES", ())]
    place = {entry.name: place for place, entry in enumerate(RESULTS)}
    return tuple(sorted(analyses, key=lambda analysis: place[analysis.entry.name]))


ANALYSES: Final = _in_modules()


def analyze(timeline: Timeline, entries: Collection[Entry] | None = None) -> Results:
    """Return the results of analyses (default: all) in report order; each is computed on first use.

    An analysis that lacks a table yields a result without a table and with the reason.
    """
    chosen = (analysis for analysis in ANALYSES if entries is None or analysis.entry in entries)
    makers = {analysis.entry.name: partial(analysis.run, timeline) for analysis in chosen}
    return Results(makers, timeline.profile.rows)


def doubts(timeline: Timeline) -> tuple[Finding, ...]:
    """Return findings about the reliability of the numbers."""
    return (
        *facts.trust(timeline),
        *facts.shared_gpus(timeline),
        *open_ranges(timeline),
        *graphs_without_ranges(timeline),
        *mismatches(timeline),
        *drift(timeline),
        *batch_sizes(timeline),
        *irregular_host_code(timeline),
        *part_of_step(timeline),
    )


def analyze_others(timeline: Timeline, entries: Collection[Entry]) -> Iterator[tuple[Window, Results]]:
    """Yield the other windows that a reader can choose, each with some of its results."""
    for other_timeline in other_timelines(timeline):
        results = analyze(other_timeline, entries)
        results.make(entry.name for entry in entries)
        yield other_timeline.window, results
