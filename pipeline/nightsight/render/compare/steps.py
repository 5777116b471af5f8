"""Selects one step of each side and shifts both to the same start, for one time axis.

It is the step of median length, from its first GPU operation to the first one of the next step, because the CPU can be
many steps ahead.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nightsight.events.launches import GPU_TABLES
from nightsight.events.timeline import Timeline, operation_column
from nightsight.intervals import Ints
from nightsight.model.report import Profile
from nightsight.render import Source
from nightsight.render.table.view import floats
from nightsight.render.tracks import MARKS, ON_THREADS
from nightsight.results.steps import STEP_SPLIT, WHOLE_STEP
from nightsight.units import format_value

_SPANS: Final = (*GPU_TABLES, *ON_THREADS, MARKS)
_FACTS: Final = ("devices", "threads")


@dataclass(frozen=True)
class MedianStep:
    """The events of one step, which begins at 0; `text` identifies it in words."""

    profile: Profile
    length_ns: int
    text: str


def median_steps(sources: tuple[Sequence[Source], Sequence[Source]]) -> tuple[MedianStep, MedianStep] | None:
    """Return the median step of the median run of each side; None unless both sides have events."""
    baseline, candidate = (_median_step(side) for side in sources)
    return (baseline, candidate) if baseline and candidate else None


def _median_step(side: Iterable[Source]) -> MedianStep | None:
    """Return the median step of the median run of those with events."""
    run = median_run(run for run in side if run.profile is not None)
    return _step(run.events) if run else None


def median_run(side: Iterable[Source]) -> Source | None:
    """Return the run whose step takes the median time of those runs; None without runs."""

    def step_ns(run: Source) -> float:
        steps = run.report.rows(STEP_SPLIT)
        times = floats(steps.loc[steps["category"] == WHOLE_STEP, "med_ns"]) if len(steps) else np.empty(0)
        return float(np.nan_to_num(times).max(initial=0.0))

    runs = sorted(side, key=step_ns)
    return runs[(len(runs) - 1) // 2] if runs else None


def _step(profile: Profile) -> MedianStep | None:
    timeline = Timeline.of(profile)
    begins, ends = _bounds(timeline)
    lengths = ends - begins
    number = int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])
    begin, end = int(begins[number]), int(ends[number])
    cut = _cut(profile, begin, end)
    if end <= begin or not any(len(cut.tables[name]) for name in _SPANS if name in cut.tables):
        return None
    text = f"step {number + 1} of {len(begins)}" if len(begins) > 1 else "the whole window, in which nothing repeats"
    return MedianStep(cut, end - begin, f"{text}, {format_value(float(end - begin), 'length_ns')}")


def _bounds(timeline: Timeline) -> tuple[Ints, Ints]:
    """Return the beginning and the end of each step of the window; those of the window if nothing repeats."""
    window = timeline.window
    if not window.steps:
        return window.spans
    process, starts = next(iter(window.steps.items()))
    begins, end = starts.copy(), window.ended_ns
    operations, latest = timeline.operations, np.iinfo(np.int64).max
    rows = np.flatnonzero((operations.call >= 0) & (operation_column(timeline, "process") == process))
    if len(rows):
        launched = timeline.call_times[0][operations.call[rows]]
        step = np.searchsorted(starts, launched, side="right") - 1
        is_in_step = (step >= 0) & (launched < window.end_ns)
        first = np.full(len(starts), latest)
        np.minimum.at(first, step[is_in_step], operations.start[rows[is_in_step]])
        begins = np.maximum.accumulate(np.where(first < latest, first, starts))
        of_last_step = rows[is_in_step & (step == len(starts) - 1)]
        end = max(int(operations.end[of_last_step].max(initial=end)), int(begins[-1]))
    return begins, np.append(begins[1:], end)


def _cut(profile: Profile, begin: int, end: int) -> Profile:
    """Return the events in a span of time, cut off at its ends, with times relative to its start."""
    tables = {name: profile.tables[name] for name in _FACTS if name in profile.tables}
    for name in _SPANS:
        if name not in profile.tables:
            continue
        table = profile.tables[name]
        start, stop = table["start_ns"], table["end_ns"]
        inside = table[(start < end) & ((stop > begin) | ((stop == start) & (start >= begin)))].reset_index(drop=True)
        times = {column: inside[column].clip(begin, end) - begin for column in ("start_ns", "end_ns")}
        tables[name] = inside.assign(**times)
    return replace(profile, tables=tables)
