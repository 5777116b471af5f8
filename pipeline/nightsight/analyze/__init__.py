"""Analyses: turn a Profile into the results and findings of a Report.

An analysis is a function, an `Analysis` in its module's ANALYSES, and its entry in `nightsight.results`.
"""

from collections.abc import Collection, Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Final

from nightsight.analyze import facts
from nightsight.analyze.analysis import Analysis
from nightsight.analyze.facts import ranks_by_gpu, shared_numbers
from nightsight.analyze.mismatches import mismatches
from nightsight.analyze.ranges.owners import open_ranges
from nightsight.analyze.split import spent
from nightsight.analyze.views import other_timelines, view_of
from nightsight.events.timeline import Timeline
from nightsight.events.window import Window
from nightsight.model import Finding, Profile, Result
from nightsight.parallel import threads
from nightsight.results import RESULTS, Entry

__all__ = [
    "ANALYSES",
    "analyze",
    "analyze_others",
    "analyze_timeline",
    "ranks_by_gpu",
    "shared_numbers",
    "spent",
    "view_of",
]


def _in_modules() -> tuple[Analysis, ...]:
    """Return the analyses of all modules in this package, in the order of the register."""
    modules = (import_module(found.name) for found in walk_packages(__path__, f"{__name__}."))
    analyses: list[Analysis] = [analysis for module in modules for analysis in getattr(module, "ANALYSES", ())]
    return tuple(sorted(analyses, key=lambda analysis: RESULTS.index(analysis.entry)))


ANALYSES: Final = _in_modules()


def analyze(profile: Profile) -> tuple[tuple[Result, ...], tuple[Finding, ...]]:
    """Run every analysis; return the results in report order, and findings about how far to trust the numbers.

    An analysis that lacks a table yields a result without a table and with the reason.
    """
    return analyze_timeline(Timeline(profile))


def analyze_timeline(timeline: Timeline) -> tuple[tuple[Result, ...], tuple[Finding, ...]]:
    """Do the same for a timeline: what it has found is then known when another of its windows is looked at."""
    with threads() as pool:
        findings = pool.submit(
            lambda: (
                *facts.trust(timeline),
                *facts.shared_gpus(timeline),
                *open_ranges(timeline),
                *mismatches(timeline),
            )
        )
        results = tuple(pool.map(lambda analysis: analysis.run(timeline), ANALYSES))
        return results, findings.result()


def analyze_others(timeline: Timeline, entries: Collection[Entry]) -> Iterator[tuple[Window, tuple[Result, ...]]]:
    """Yield the other windows that a reader may want to see, each with some of its results."""
    wanted = [analysis for analysis in ANALYSES if analysis.entry in entries]
    for other in other_timelines(timeline):
        with threads() as pool:
            yield other.window, tuple(pool.map(lambda analysis, on=other: analysis.run(on), wanted))
