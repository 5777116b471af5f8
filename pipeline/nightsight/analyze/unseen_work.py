"""Reports the blind spots of a capture: time in which the GPU may have worked, or in which graphs were captured."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from nightsight.analyze.split import devices_at_work
from nightsight.events.compiled import needed_captures
from nightsight.events.timeline import Timeline, distinct, operation_column
from nightsight.events.unseen import (
    AFTER,
    BEFORE,
    PAUSED,
    REASONS,
    UNTIMED,
    WAITED,
    pauses,
    silences,
    unseen,
)
from nightsight.intervals import length, shared
from nightsight.model.report import Finding
from nightsight.units import format_value

MOST_UNSEEN: Final = 0.1
"""No gain is predicted if the GPU's activity is unknown for a larger share of the window."""
MOST_CAPTURING: Final = 0.2
"""Nor if graphs are captured in a larger share: such a part of a program only prepares work."""
# share of the window: less does not need a warning
_LEAST: Final = 0.01
_WORDS: Final = {
    PAUSED: (
        "The program made CUDA calls in that time that were not recorded",
        "Do not pause the recording in the part to analyze.",
    ),
    UNTIMED: (
        "Some operations ran in that time, but the profiler lost their times",
        "Capture again. If it recurs, update the profiler.",
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
        "The host waited for the GPU long after the last recorded operation had ended. Either some work was "
        "not recorded (a loop inside a CUDA graph, another process on the GPU, a host callback in a stream), or the "
        "waiting thread got no CPU time",
        "Record every process that uses the GPU, or trace graphs as a whole (nsys --cuda-graph-trace=graph).",
    ),
}


def unseen_share(timeline: Timeline) -> float:
    """Return the share of the window in which the activity of its GPUs is unknown."""
    return sum(_times(timeline).values()) / max(timeline.window.length_ns, 1)


def _times(timeline: Timeline) -> dict[str, float]:
    """Return the time (ns) in which the activity of the active GPUs is unknown, by reason; the mean over GPUs."""
    bounds, unseen_spans = timeline.window.spans, unseen(timeline.profile)
    at_work = [unseen_spans[gpu] for gpu in devices_at_work(timeline).tolist() if gpu in unseen_spans]
    times = {reason: [length(shared(bounds, durations.of(reason))) for durations in at_work] for reason in REASONS}
    return {reason: float(np.mean(durations)) for reason, durations in times.items() if any(durations)}


def capturing_share(timeline: Timeline) -> float:
    """Return the share of the window in which the active processes captured graphs; the mean over several.

    What torch.compile records again is a loss like others, and does not count.
    """
    captures = needed_captures(timeline)
    if not captures:
        return 0.0
    at_work = distinct(operation_column(timeline, "process")).tolist() or list(captures)
    times = [length(shared(timeline.window.spans, captures[each])) if each in captures else 0 for each in at_work]
    return float(np.mean(times or [0])) / max(timeline.window.length_ns, 1)


def unseen_work(timeline: Timeline) -> Iterator[Finding]:
    """Yield findings on unknown GPU activity in the window, pauses of the recording, and graph captures."""
    yield from _unknown(timeline)
    yield from _pauses(timeline)
    share = capturing_share(timeline)
    if share >= _LEAST:
        yield Finding(
            "graph_capture",
            "info",
            f"CUDA graphs are captured in {format_value(100 * share, 'share_pct')} of the window",
            "Between the begin and the end of a capture, launches only record a graph, and nothing runs. No advice "
            "covers that part.",
            "To see the graphs run, record later steps (--window, a capture range).",
        )


def _unknown(timeline: Timeline) -> Iterator[Finding]:
    share = unseen_share(timeline)
    if share < _LEAST:
        return
    times = _times(timeline)
    reasons = sorted(times, key=lambda reason: -times[reason])
    sentences = (f"{_WORDS[reason][0]} ({format_value(times[reason], 'time_ns')})." for reason in reasons)
    yield Finding(
        "unseen_work",
        "warning",
        f"What the GPU did in {format_value(100 * share, 'share_pct')} of the window is not in the capture",
        f"{' '.join(sentences)} That time counts as unknown, not as idle, and no advice is based on it.",
        " ".join(_WORDS[reason][1] for reason in reasons),
        source="time_split",
    )


def _pauses(timeline: Timeline) -> Iterator[Finding]:
    """Yield a finding on pauses, wherever they are; the window lies between two of them if possible."""
    paused, guessed = pauses(timeline.profile), silences(timeline.profile)
    for process, spans in paused.items():
        count, time = len(spans[0]), format_value(length(spans), "time_ns")
        if count == 1 and process in guessed:
            yield Finding(
                "paused",
                "warning",
                f"Nothing was recorded for {time}",
                "Either the recording was paused (toggle_collection_dynamic, --skip-range), or the program did "
                "something that is not traced. That time is not counted in any step, and no advice is based on it.",
                "If it is the program, check what it does there: --window whole shows where that is.",
            )
            continue
        often = f" in {count:,} stretches," if count > 1 else ""
        yield Finding(
            "paused",
            "info",
            f"CUDA calls were not recorded{often} for {time}",
            "Gaps in the numbers of calls show that some are missing: the recording was paused, or calls were lost. "
            "That time is not counted in any step, and no advice is based on it.",
        )
