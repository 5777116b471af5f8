"""Says what a capture cannot tell: stretches in which the GPU may have worked, and those that only record graphs."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from nightsight.events.timeline import Timeline
from nightsight.events.unseen import (
    AFTER,
    BEFORE,
    PAUSED,
    REASONS,
    UNTIMED,
    WAITED,
    graph_captures,
    pauses,
    silences,
    unseen,
)
from nightsight.intervals import Spans, length, shared, union
from nightsight.model import Finding
from nightsight.units import format_value

MOST_UNSEEN: Final = 0.1
"""No gain is promised if it is not known what the GPU did in a larger share of the window."""
MOST_CAPTURING: Final = 0.2
"""Nor if graphs are captured in a larger share: such a part of a program prepares what others run."""
# of the window: less than that is not worth a warning
_LEAST: Final = 0.01
_NONE: Final = np.empty(0, dtype=np.int64)
_WORDS: Final = {
    PAUSED: (
        "Calls were made there that are not in the capture",
        "Do not pause the recording in the part that matters.",
    ),
    UNTIMED: (
        "Operations ran there whose times the profiler lost",
        "Capture again; if it happens again, update the profiler.",
    ),
    BEFORE: (
        "The GPU still had work from before the recording",
        "Start the recording earlier, or synchronize before it starts.",
    ),
    AFTER: (
        "The host launched work that ran after the recording",
        "Synchronize before the recording stops.",
    ),
    WAITED: (
        "The host waited for the GPU long after the last recorded operation had ended, so something ran that is not in "
        "the capture: a loop inside a CUDA graph, another process on the GPU, a host callback in a stream",
        "Record every process that uses the GPU, or trace graphs as a whole (nsys --cuda-graph-trace=graph).",
    ),
}


def unseen_share(timeline: Timeline) -> float:
    """Return the share of the window in which it is not known what the GPU did, the largest of all GPUs."""
    bounds, known = _bounds(timeline), unseen(timeline.profile).values()
    return max((length(shared(bounds, each.spans)) for each in known), default=0) / max(timeline.window.length_ns, 1)


def capturing_share(timeline: Timeline) -> float:
    """Return the share of the window in which graphs were captured."""
    known = graph_captures(timeline.profile).values()
    spans = union(*(np.concatenate([_NONE, *(each[place] for each in known)]) for place in (0, 1)))
    return length(shared(_bounds(timeline), spans)) / max(timeline.window.length_ns, 1)


def _bounds(timeline: Timeline) -> Spans:
    return np.array([timeline.window.start_ns]), np.array([timeline.window.end_ns])


def unseen_work(timeline: Timeline) -> Iterator[Finding]:
    """Yield findings on what is not known of the window, on pauses of the recording, and on graph captures."""
    yield from _unknown(timeline)
    yield from _paused(timeline)
    share = capturing_share(timeline)
    if share >= _LEAST:
        yield Finding(
            "graph_capture",
            "info",
            f"CUDA graphs are captured in {format_value(100 * share, 'share_pct')} of the window",
            "Between the begin and the end of a capture, launches only record a graph, and nothing runs. No advice is "
            "given on that part.",
            "To see the graphs run, record later steps (--window, a capture range).",
        )


def _unknown(timeline: Timeline) -> Iterator[Finding]:
    share, bounds = unseen_share(timeline), _bounds(timeline)
    if share < _LEAST:
        return
    known = unseen(timeline.profile).values()
    times = {reason: max(length(shared(bounds, each.of(reason))) for each in known) for reason in REASONS}
    found = sorted((reason for reason in REASONS if times[reason]), key=lambda reason: -times[reason])
    said = (f"{_WORDS[reason][0]} ({format_value(times[reason], 'time_ns')})." for reason in found)
    yield Finding(
        "unseen_work",
        "warning",
        f"What the GPU did in {format_value(100 * share, 'share_pct')} of the window is not in the capture",
        f"{' '.join(said)} That time counts as unknown, not as idle, and no advice rests on it.",
        " ".join(_WORDS[reason][1] for reason in found),
        source="time_split",
    )


def _paused(timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding on pauses, wherever they are: the window is between two of them if it can be."""
    known, guessed = pauses(timeline.profile), silences(timeline.profile)
    for process, spans in known.items():
        count, time = len(spans[0]), format_value(length(spans), "time_ns")
        if count == 1 and process in guessed:
            yield Finding(
                "paused",
                "warning",
                f"Nothing was recorded for {time}",
                "Either the recording was paused (toggle_collection_dynamic, --skip-range), or the program once did "
                "something without a CUDA call. That time is in no step, and no advice rests on it.",
                "If it is the program, look at what it does there: --window whole shows where that is.",
            )
            continue
        often = f" in {count:,} stretches," if count > 1 else ""
        yield Finding(
            "paused",
            "info",
            f"CUDA calls were not recorded{often} for {time}",
            "Their ids show that calls were made that are not in the capture: the recording was paused, or they were "
            "lost. That time is in no step, and no advice rests on it.",
        )
