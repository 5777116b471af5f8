"""Choose the stretches of a window for the causal model: all of it if that is quick, otherwise whole repetitions.

A million events take seconds to follow one by one, and repetitions resemble each other.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from nightsight.events.timeline import Timeline
from nightsight.events.window import Window
from nightsight.intervals import Floats, Ints, divided
from nightsight.system.parallel import memoize

MOST_FOLLOWED: Final = 160_000
"""The critical path is followed through the whole window up to this number of events."""
MOST_REPLAYED: Final = 24_000
"""The most events in a replay, which takes microseconds per event, if the window has repetitions to choose from."""
_MOST_DIVERSE: Final = 64_000
"""The most events otherwise, as in a start-up, where no two parts are alike, or if some repetitions are outliers."""
# `stored: a to b`: with a and with b, the first findings of the stored captures are the same (docs/causes.md)

# numbers of events limit the time and memory of a replay

# the limit for the events of a step grows with the ranks, up to this number of them
_MOST_RANKS: Final = 4
# a stretch becomes no longer than this to contain the work of a GPU that is behind
_MOST_EVENTS: Final = 500_000
_STRETCHES: Final = 8
# the work of the last repetitions may end after them; of long repetitions, fewer are sufficient: three are the fewest
# with a whole step between two others (stored: from 2; with 10, the wait of `fsdp_logs`, tests/data/jobs, is joined
# with its host code)
_FEWEST: Final = 5
_FEWEST_LONG: Final = 3
# repetitions with more events than this many times the limit are cut themselves
_MOST_TIMES: Final = 2
_MOST_TIMES_REPLAYED: Final = 8
_SLICES: Final = 512
# repetitions longer than this many times the median are outliers, which count if they have this share of the time
# (stored: 1 to 4, from 0.05; with 0.2, `ctr_recsys` names other kernels of its optimizer)
_OUTLIER: Final = 2.0
_LEAST_OUTLIERS: Final = 0.1
# share of the typical length: stretches whose error exceeds the smallest one by at most this are equally good (stored:
# 0.005 to 0.02)
_CLOSE: Final = 0.01
# the mean of a stretch with outliers is at most this far from that of all parts, if there is one
_NEAR: Final = 0.15
# share of the operations of a stretch that must be both launched and run in it (stored: from 0.25; with 0.75,
# `attention` of tests/data/planted/people names its kernels in another order)
_LEAST_OF_BOTH: Final = 0.5


# not memoized: a memoized value must not hold its timeline
def path_stretches(timeline: Timeline) -> tuple[Timeline, ...]:
    """Return the stretches for the critical path: the window, or several spread evenly over it."""
    each = MOST_FOLLOWED // _STRETCHES
    edges, counts = _divide(timeline, _MOST_TIMES * each)
    if counts.sum() <= MOST_FOLLOWED:
        return (timeline,)
    share = max(int(each / max(counts.mean(), 1)), 1)
    first = np.unique(np.linspace(0, max(len(counts) - share, 0), _STRETCHES).astype(np.int64))
    # stretches must not overlap
    first = first[np.append(True, np.diff(first) >= share)]
    return tuple(_select(timeline, edges, int(low), int(low) + share) for low in first)


def replay_stretch(timeline: Timeline) -> Timeline:
    """Return the stretch to replay: the window, or repetitions of typical length near its middle.

    If some repetitions are outliers, such as those with a checkpoint, choose a stretch in which they are as frequent as
    in the window. If the CPU is so far ahead that the GPU runs other repetitions than the CPU launches, a few
    repetitions cannot represent all: replay more of the window, or a stretch of time.
    """
    # a step of several ranks is as long as one of them, and only whole steps show who waits for whom
    ranks = min(max(len(timeline.window.steps), 1), _MOST_RANKS)
    edges, counts = _divide(timeline, ranks * _MOST_TIMES_REPLAYED * MOST_REPLAYED // _FEWEST_LONG)
    if counts.sum() <= (MOST_REPLAYED if len(timeline.window.repetitions) else _MOST_DIVERSE):
        return timeline
    part = _select(timeline, edges, *_typical_parts(edges, counts, _steps_behind(timeline, edges)))
    if _share_launched_and_run(part) >= _LEAST_OF_BOTH:
        return part
    if counts.sum() <= MOST_FOLLOWED:
        return timeline
    edges, counts = _time_slices(timeline)
    count = _part_count(counts, 1, MOST_REPLAYED)
    low = (len(counts) - count) // 2
    part = _select(timeline, edges, low, low + count)
    return part.at(replace(part.window, steps={}))


def _part_count(counts: Ints, fewest: int, events: int) -> int:
    return min(max(int(events / max(counts.mean(), 1)), min(fewest, len(counts))), len(counts))


def _steps_behind(timeline: Timeline, edges: Ints) -> int:
    """Return the number of parts after its launch in which the GPU work of a part usually ends."""
    operations = timeline.operations
    is_known = operations.call >= 0
    calls = timeline.profile.recorded("api_calls")["start_ns"].to_numpy()
    part = np.searchsorted(edges, calls[operations.call[is_known]], side="right") - 1
    end_ns = np.full(len(edges), edges[0])
    is_inside = (part >= 0) & (part < len(edges) - 1)
    np.maximum.at(end_ns, part[is_inside], operations.end[is_known][is_inside])
    behind = np.searchsorted(edges, end_ns, side="right") - 1 - np.arange(len(edges))
    return int(np.median(np.maximum(behind[:-1], 0)))


def _typical_parts(edges: Ints, counts: Ints, behind: int) -> tuple[int, int]:
    """Return the first and last of parts of typical length near the middle: the median, or each kind with outliers.

    behind: how many parts later the GPU ends what is launched in one. The work of the last ones is not in the stretch,
    and ranks begin theirs at different times.
    """
    lengths = np.diff(edges)
    has_outliers = lengths[lengths > _OUTLIER * np.median(lengths)].sum() >= _LEAST_OUTLIERS * lengths.sum()
    fewest = int(max(_FEWEST_LONG, min(_FEWEST, _MOST_TIMES_REPLAYED * MOST_REPLAYED // max(counts.mean(), 1))))
    if behind:
        most = int(_MOST_EVENTS / max(counts.mean(), 1))
        fewest = max(fewest, min(_FEWEST_LONG + behind + 1, most))
    count = _part_count(counts, fewest, _MOST_DIVERSE if has_outliers else MOST_REPLAYED)
    elapsed = np.concatenate([[0], np.cumsum(lengths)])
    typical = lengths.mean() if has_outliers else np.median(lengths)
    error = np.abs((elapsed[count:] - elapsed[:-count]) / count - typical)
    if has_outliers:
        # of those of nearly the mean length, one with the same kinds of parts: many long prompts do not represent a
        # few batches that are tokenized
        error[error > max(_NEAR * typical, error.min())] = np.inf
        error = np.where(np.isfinite(error), _unlike(lengths, count), error)
    fits = np.flatnonzero(error <= error.min() + _CLOSE * typical)
    low = int(fits[np.argmin(np.abs(fits - (len(counts) - count) // 2))])
    return low, low + count


def _unlike(lengths: Ints, count: int) -> Floats:
    """Return how much the time of parts of each length, by factors of two, differs between each `count` parts and all.

    In ns per part.
    """
    kind = np.log2(np.maximum(lengths / np.median(lengths), 1.0)).astype(np.int64)
    elapsed = np.zeros((len(lengths) + 1, kind.max() + 1))
    elapsed[np.arange(len(lengths)) + 1, kind] = lengths
    elapsed = np.cumsum(elapsed, axis=0)
    difference: Floats = np.abs((elapsed[count:] - elapsed[:-count]) / count - elapsed[-1] / len(lengths)).sum(axis=1)
    return difference


def _share_launched_and_run(timeline: Timeline) -> float:
    """Return the share of operations both launched and run in the window, of those that are either."""
    window, operations = timeline.window, timeline.operations
    calls = timeline.profile.recorded("api_calls")["start_ns"].to_numpy()
    is_known = operations.call >= 0
    runs, launches = (
        (times >= window.start_ns) & (times < window.end_ns)
        for times in (operations.start[is_known], calls[operations.call[is_known]])
    )
    return float((runs & launches).sum() / max((runs | launches).sum(), 1))


def _divide(timeline: Timeline, most: int) -> tuple[Ints, Ints]:
    """Divide a window into repetitions, or into slices of time; return the edges and the events of each part.

    Slices are for windows without repetitions, or with more events per repetition than `most`.
    """
    edges, counts = _repetitions(timeline)
    return (edges, counts) if len(counts) and counts.mean() <= most else _time_slices(timeline)


def _time_slices(timeline: Timeline) -> tuple[Ints, Ints]:
    """Return the edges of short slices of time and the events of each."""
    window = timeline.window
    edges = divided(window.start_ns, window.length_ns, _SLICES)
    return edges, _count_events(timeline, edges)


@memoize
def _repetitions(timeline: Timeline) -> tuple[Ints, Ints]:
    """Return the edges of the repetitions and the events of each; both empty for fewer than two repetitions."""
    window, starts = timeline.window, timeline.window.repetitions
    if len(starts) < 2:
        return starts[:0], starts[:0]
    edges = np.concatenate([[window.start_ns], starts[1:], [window.end_ns]])
    return edges, _count_events(timeline, edges)


def _count_events(timeline: Timeline, edges: Ints) -> Ints:
    """Return the number of events between each edge and the next."""
    calls = timeline.profile.recorded("api_calls")["start_ns"].to_numpy()
    return 2 * _count_between(calls, edges) + _count_between(timeline.operations.start, edges)


def _count_between(times: Ints, edges: Ints) -> Ints:
    """Return the number of times between each edge and the next."""
    # the starts of operations are in order, table by table, which the stable sort merges
    ordered = times if bool((times[1:] >= times[:-1]).all()) else np.sort(times, kind="stable")
    return np.diff(np.searchsorted(ordered, edges))


def _select(timeline: Timeline, edges: Ints, low: int, high: int) -> Timeline:
    window = timeline.window
    start, end = int(edges[low]), int(edges[min(high, len(edges) - 1)])
    steps = {process: times[(times >= start) & (times < end)] for process, times in window.steps.items()}
    if low == 0:
        # the loop of another process may start a little earlier
        steps = {process: times[times < end] for process, times in window.steps.items()}
    part: Window = replace(window, start_ns=start, end_ns=end, steps=steps)
    return timeline.at(part)
