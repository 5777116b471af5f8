"""Builds the views of the windows that a reader can choose, including a line on the time of the start-up."""

from collections.abc import Iterator, Sequence
from typing import Final

import pandas as pd

from nightsight.events.timeline import Timeline
from nightsight.events.window import GPU_WORK, START_UP, Window, offered_windows
from nightsight.model.report import Finding, Result, View
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.units import in_text

_MOST: Final = 3
# share of the start-up: smaller parts are not named
_LEAST_PCT: Final = 1.0


def other_timelines(timeline: Timeline) -> Iterator[Timeline]:
    """Yield the offered windows other than that of `timeline`, the start-up first.

    The whole window is combined from the timeline and the parts before and after it.
    """
    current, *offered = offered_windows(timeline.profile)
    before: Timeline | None = None
    # the start-up is a piece of the whole
    for window in sorted(offered, key=lambda window: window.name != START_UP):
        if window.name == START_UP:
            before = timeline.at(window)
            yield before
        elif window.name == GPU_WORK and before is not None and _fits(before.window, current, window):
            low, high = sorted((current.end_ns, window.end_ns))
            # named so that it covers all GPUs, as the start-up does
            last = (1 if high == window.end_ns else -1, timeline.at(Window(low, high, START_UP)))
            yield timeline.at(window, ((1, before), (1, timeline), last))
        else:
            yield timeline.at(window)


def _fits(before: Window, current: Window, whole: Window) -> bool:
    """Whether the start-up and the chosen window follow one another, and begin with the whole."""
    return before.start_ns == whole.start_ns and before.end_ns == current.start_ns and current.end_ns != whole.end_ns


def view_of(window: Window, results: Sequence[Result] | None, findings: tuple[Finding, ...] = ()) -> View:
    """Return the view of a window with its results; without results, it is the window of the report."""
    split = next((result.rows for result in results or () if result.name == TIME_SPLIT.name), None)
    sentence = window.sentence
    if window.name == START_UP:
        sentence = f"{sentence.rstrip('.')}{_parts(split)}."
    return View(
        window.name,
        window.start_ns,
        window.end_ns,
        sentence,
        window.family,
        len(window.repetitions),
        results is None,
        split,
        findings,
    )


def _parts(split: pd.DataFrame | None) -> str:
    """Return the largest parts of the start-up, as the end of a sentence: `: 3.080 s host code, 157.8 ms launch`."""
    if split is None or split.empty:
        return ""
    # of several GPUs, the first one: they start together
    largest = split[split["device"] == split["device"].iloc[0]].nlargest(_MOST, "time_ns")
    worth = largest[largest["share_pct"] >= _LEAST_PCT][["time_ns", "category"]].itertuples(index=False)
    text = ", ".join(f"{in_text(time, 'time_ns')} {category}" for time, category in worth)
    return text and f": {text}"
