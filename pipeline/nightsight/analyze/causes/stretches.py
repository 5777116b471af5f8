"""Which stretches of a window the causal model looks at: all of it if that is quick, otherwise whole repetitions of it.

A million events take seconds to follow one by one, and repetitions resemble each other.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from nightsight.events.timeline import Timeline
from nightsight.events.window import Window
from nightsight.intervals import Ints, divided
from nightsight.system.parallel import memoize
from nightsight.tables import empty

MOST_FOLLOWED: Final = 160_000
"""A window with no more events (two for each call, one for each operation) is followed as a whole."""
MOST_REPLAYED: Final = 24_000
"""Limit of events in a replay, which takes microseconds per event, if the window has repetitions to choose from."""
_MOST_DIVERSE: Final = 64_000
"""The limit otherwise, as in a start-up, where no two parts are alike; or if some repetitions differ from the rest."""
_STRETCHES: Final = 8
# the work of the last ones may end after them
_FEWEST: Final = 5
# repetitions with more events than this many times what is wanted are cut themselves
_MOST_TIMES: Final = 2
_MOST_TIMES_REPLAYED: Final = 8
_SLICES: Final = 512
# repetitions that take this many times the usual time differ from the rest, and count if they have this share of time
_UNLIKE: Final = 2.0
_LEAST_UNLIKE: Final = 0.1
# of the usual length: stretches that are off by no more than the best one and this are equally good
_AS_USUAL: Final = 0.01
# of the operations of a stretch
_LEAST_OF_BOTH: Final = 0.5


# neither is remembered: what is remembered of a timeline must not hold it
def followed(timeline: Timeline) -> tuple[Timeline, ...]:
    """Return the stretches whose critical path is followed: the window, or some evenly spread over it."""
    each = MOST_FOLLOWED // _STRETCHES
    edges, counts = _parts(timeline, _MOST_TIMES * each)
    if counts.sum() <= MOST_FOLLOWED:
        return (timeline,)
    share = max(int(each / max(counts.mean(), 1)), 1)
    first = np.unique(np.linspace(0, max(len(counts) - share, 0), _STRETCHES).astype(np.int64))
    # stretches must not overlap
    first = first[np.append(True, np.diff(first) >= share)]
    return tuple(_part(timeline, edges, int(low), int(low) + share) for low in first)


def replayed(timeline: Timeline) -> Timeline:
    """Return the stretch that is replayed: the window, or repetitions near its middle that take as long as usual.

    If some repetitions take much longer than the others, as with a checkpoint now and then, it is where these are as
    frequent as in the window. If the CPU is so far ahead that the GPU runs other repetitions there than the CPU
    launches, a few repetitions cannot represent all: then more of the window is replayed, or a stretch of time.
    """
    edges, counts = _parts(timeline, _MOST_TIMES_REPLAYED * MOST_REPLAYED // _FEWEST)
    if counts.sum() <= (MOST_REPLAYED if len(timeline.window.repetitions) else _MOST_DIVERSE):
        return timeline
    part = _part(timeline, edges, *_alike(edges, counts))
    if _launched_and_run(part) >= _LEAST_OF_BOTH:
        return part
    if counts.sum() <= MOST_FOLLOWED:
        return timeline
    edges, counts = _slices(timeline)
    most = _most(counts, 1, MOST_REPLAYED)
    low = (len(counts) - most) // 2
    part = _part(timeline, edges, low, low + most)
    return part.at(replace(part.window, steps={}))


def _most(counts: Ints, fewest: int, events: int) -> int:
    return min(max(int(events / max(counts.mean(), 1)), min(fewest, len(counts))), len(counts))


def _alike(edges: Ints, counts: Ints) -> tuple[int, int]:
    """Return such parts: near the middle, and as long as usual; if some differ much, as long as all are on average."""
    lengths = np.diff(edges)
    unlike = lengths[lengths > _UNLIKE * np.median(lengths)].sum() >= _LEAST_UNLIKE * lengths.sum()
    most = _most(counts, _FEWEST, _MOST_DIVERSE if unlike else MOST_REPLAYED)
    usual = lengths.mean() if unlike else np.median(lengths)
    until = np.concatenate([[0], np.cumsum(lengths)])
    off = np.abs((until[most:] - until[:-most]) / most - usual)
    fits = np.flatnonzero(off <= off.min() + _AS_USUAL * usual)
    low = int(fits[np.argmin(np.abs(fits - (len(counts) - most) // 2))])
    return low, low + most


def _launched_and_run(timeline: Timeline) -> float:
    """Return the share of the operations launched or begun in the window that are both."""
    window, operations = timeline.window, timeline.operations
    calls = timeline.profile.tables.get("api_calls", empty("api_calls"))["start_ns"].to_numpy()
    known = operations.call >= 0
    begun, launched = (
        (times >= window.start_ns) & (times < window.end_ns)
        for times in (operations.start[known], calls[operations.call[known]])
    )
    return float((begun & launched).sum() / max((begun | launched).sum(), 1))


def _parts(timeline: Timeline, most: int) -> tuple[Ints, Ints]:
    """Return the edges of the parts that a window can be cut into, and the events of each.

    Parts are repetitions, or slices if there are none or if they have too many events.
    """
    edges, counts = _repetitions(timeline)
    return (edges, counts) if len(counts) and counts.mean() <= most else _slices(timeline)


def _slices(timeline: Timeline) -> tuple[Ints, Ints]:
    """Return a fine grid of time and the events of each slice: they are put together as their number allows."""
    window = timeline.window
    edges = divided(window.start_ns, window.length_ns, _SLICES)
    return edges, _events(timeline, edges)


@memoize
def _repetitions(timeline: Timeline) -> tuple[Ints, Ints]:
    """Return the edges of the repetitions and the events of each; without any if there is one repetition or none."""
    window, starts = timeline.window, timeline.window.repetitions
    if len(starts) < 2:
        return starts[:0], starts[:0]
    edges = np.concatenate([[window.start_ns], starts[1:], [window.end_ns]])
    return edges, _events(timeline, edges)


def _events(timeline: Timeline, edges: Ints) -> Ints:
    """Return the number of events between each edge and the next."""
    calls = timeline.profile.tables.get("api_calls", empty("api_calls"))["start_ns"].to_numpy()
    return 2 * _counted(calls, edges) + _counted(timeline.operations.start, edges)


def _counted(times: Ints, edges: Ints) -> Ints:
    """Return how many times lie between each edge and the next."""
    ordered = times if bool((times[1:] >= times[:-1]).all()) else np.sort(times)
    return np.diff(np.searchsorted(ordered, edges))


def _part(timeline: Timeline, edges: Ints, low: int, high: int) -> Timeline:
    window = timeline.window
    start, end = int(edges[low]), int(edges[min(high, len(edges) - 1)])
    steps = {process: times[(times >= start) & (times < end)] for process, times in window.steps.items()}
    if low == 0:
        # the loop of another process may have begun a little earlier
        steps = {process: times[times < end] for process, times in window.steps.items()}
    part: Window = replace(window, start_ns=start, end_ns=end, steps=steps)
    return timeline.at(part)
