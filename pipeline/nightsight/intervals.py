"""Vectorized algorithms on half-open time spans [start, end): unions, enclosing spans, contained events.

With ten million spans, allocating memory takes most of the time, so the functions used most work in place.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
Codes = Ints | np.ndarray[Any, np.dtype[np.int32]]
"""Positions in something, of millions of events: often four bytes are enough."""
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Spans = tuple[Ints, Ints]
"""Starts and ends of disjoint, non-empty spans in order of time."""

NOTHING: Final[Ints] = np.empty(0, dtype=np.int64)
NO_SPANS: Final[Spans] = (NOTHING, NOTHING)


def in_order(start: Ints, *others: Ints) -> Ints:
    """Return the order of spans by start, and of spans with equal starts by `others`, the first key first.

    Few spans start together, and numpy sorts nearly sorted arrays fast: ten times as fast as by all keys at once.
    """
    order = np.argsort(start, kind="stable")
    ordered = start[order]
    return np.lexsort((*reversed(others), start)) if (ordered[1:] == ordered[:-1]).any() else order


def divided(begin: int, length: int, count: int) -> Ints:
    """Return the edges of `count` equal parts of a span, rounded down; only its beginning if `count` is 0."""
    # length * place may exceed int64; remainder * place does not
    each, remainder = divmod(length, max(count, 1))
    place = np.arange(count + 1, dtype=np.int64)
    return begin + each * place + remainder * place // max(count, 1)


def union_of(spans: Iterable[Spans]) -> Spans:
    """Return the union of several sets of spans."""
    # a single set is not copied: it can hold the operations of a large capture
    each = [times for times in spans if len(times[0])] or [NO_SPANS]
    return union(*(each[0] if len(each) == 1 else map(np.concatenate, zip(*each, strict=True))))


def union(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Merge overlapping or touching spans; return disjoint spans in order of time.

    If they already are, these are the given arrays, not copies.
    """
    if not len(start):
        return start, end
    if not (start[1:] >= start[:-1]).all():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    # the operations of a stream do not overlap
    if (start[1:] > end[:-1]).all():
        return start, end
    reach = np.maximum.accumulate(end)
    first = np.append(True, start[1:] > reach[:-1])
    return (start, reach) if first.all() else (start[first], reach[np.append(first[1:], True)])


def outer(end: Ints, start: Ints | None = None) -> Ints:
    """Return for each span the position of the latest earlier span that ends no earlier, or -1.

    Spans must be sorted by (start, longest first). If they are nested, the result is the parent. With `start`, the
    earlier span must be open when the later one starts: an empty span at the end of another is outside.
    """
    least = end if start is None else np.maximum(end, start + 1)
    return reaching(np.arange(-1, len(end) - 1, dtype=np.int64), end, least)


def innermost(start: Ints, end: Ints, parent: Ints, time: Ints) -> Ints:
    """Return for each time the position of the last-started span that is open then, or -1.

    Spans must be sorted by (start, longest first); `parent` is the result of `outer`.
    """
    return reaching(last_started(start, time), end, time + 1, parent)


def last_started(start: Ints, time: Ints) -> Ints:
    """Return for each time the position of the last start, in order, that is not later, or -1."""
    return _count_begun(start, time) - 1


def _count_begun(edges: Ints, time: Ints) -> Ints:
    """Return how many edges, in order, are not after each time."""
    # of many times in order, it is quicker to search for the first one that is after each edge
    if 4 * len(edges) < len(time) and (time[1:] >= time[:-1]).all():
        first = np.searchsorted(time, edges, side="left")
        return np.repeat(np.arange(len(edges) + 1), np.diff(first, prepend=0, append=len(time)))
    return np.searchsorted(edges, time, side="right")


def _first_from(edges: Ints, place: Ints, least: Ints) -> Ints:
    """Return the place of the first edge, in order, that is not before `least`, from a place that is not after it.

    It is mostly that place or the next one, which takes a tenth of the time of a search.
    """
    edges = np.append(edges, np.iinfo(np.int64).max)
    place = place + (edges[place] < least)
    rows = np.flatnonzero(edges[place] < least)
    if len(rows):
        place[rows] = np.searchsorted(edges, least[rows], side="left")
    return place


def reaching(position: Ints, end: Ints, least: Ints, parent: Ints | None = None) -> Ints:
    """Move each position back to the latest span that ends no earlier than `least`, or to -1; return the positions.

    parent: the result of `outer`; None if the positions are to become that result. They change in place.
    A span that ends too early is left for its parent, because all spans between them end earlier still. Most searches
    end after a few rounds. The rest, such as a loop after a deep recursion, use a tree: time hardly grows with depth.
    """
    parent = position if parent is None else parent
    # -1 leads to one more span, which ends late enough
    rows = np.flatnonzero(np.append(end, np.iinfo(np.int64).max)[position] < least)
    for _ in range(_ROUNDS):
        if not len(rows):
            return position
        position[rows] = parent[position[rows]]
        rows = rows[position[rows] >= 0]
        rows = rows[end[position[rows]] < least[rows]]
    position[rows] = _search(position[rows], end, least[rows])
    return position


_ROUNDS: Final = 24


def _search(position: Ints, end: Ints, least: Ints) -> Ints:
    """Return the latest positions, at most the given ones, with an end of at least `least`, or -1."""
    # the latest ends of blocks of 1, 2, 4, ... spans
    latest = [end]
    while len(latest[-1]) > 1:
        halves = latest[-1][: len(latest[-1]) // 2 * 2]
        latest.append(np.maximum(halves[::2], halves[1::2]))
    result, height = np.full((2, len(position)), -1, dtype=np.int64)
    # up: look at the last block before `bound`, in blocks of twice the size each time
    bound, rows = position + 1, np.arange(len(position))
    for level, ends in enumerate(latest):
        last = bound[rows] - 1
        has = ends[last] >= least[rows]
        result[rows[has]], height[rows[has]] = last[has], level
        bound[rows] >>= 1
        rows = rows[~has & (bound[rows] > 0)]
    # down: into the later half if it ends late enough
    for level in range(len(latest) - 1, 0, -1):
        rows = np.flatnonzero(height == level)
        later = 2 * result[rows] + 1
        result[rows] = later - (latest[level - 1][later] < least[rows])
        height[rows] -= 1
    return result


def contained(start: Ints, end: Ints, inner_start: Ints, inner_end: Ints) -> tuple[Ints, Ints]:
    """Return every pair (span, event) where the event lies fully inside the span; events must be sorted by start."""
    low = np.searchsorted(inner_start, start, side="left")
    high = np.searchsorted(inner_start, end, side="right")
    count = np.maximum(high - low, 0)
    span = np.repeat(np.arange(len(start)), count)
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    event = low[span] + offset
    is_inside = inner_end[event] <= end[span]
    return span[is_inside], event[is_inside]


def clipped_union(start: Ints, end: Ints, window: tuple[int, int]) -> Spans:
    """Return the parts of `window` that are covered by at least one span."""
    start, end = union(start, end)
    chosen = slice(np.searchsorted(end, window[0], side="right"), np.searchsorted(start, window[1], side="left"))
    low, high = np.maximum(start[chosen], window[0]), np.minimum(end[chosen], window[1])
    kept = high > low
    return (low, high) if kept.all() else (low[kept], high[kept])


def gaps(spans: Spans, window: tuple[int, int]) -> Spans:
    """Return the parts of `window` that `spans` do not cover."""
    low = np.concatenate(([window[0]], np.clip(spans[1], *window)))
    high = np.concatenate((np.clip(spans[0], *window), [window[1]]))
    kept = high > low
    return low[kept], high[kept]


def shared(first: Spans, second: Spans) -> Spans:
    """Return the intersection; touching pieces are not merged."""
    return _overlaps(first, second)[0]


def _overlaps(first: Spans, second: Spans) -> tuple[Spans, Ints]:
    """Return the pieces of the intersection, and the position in `second` of the span that each piece lies in."""
    few, many = (first, second) if len(first[0]) <= len(second[0]) else (second, first)
    # each of the few spans overlaps `count` of the many, from position `low`: expand these to pairs
    low = np.searchsorted(many[1], few[0], side="right")
    count = _first_from(many[0], low, few[1])
    count -= low
    low += count
    low -= np.cumsum(count)
    of_many = np.repeat(low, count)
    of_many += np.arange(len(of_many))
    of_few = np.repeat(np.arange(len(count)), count)
    start, end = (times[of_few] for times in few)
    np.maximum(start, many[0][of_many], out=start)
    np.minimum(end, many[1][of_many], out=end)
    return (start, end), of_many if many is second else of_few


def separate(first: Spans, second: Spans) -> tuple[Spans, Spans]:
    """Return the time in both, as `shared` does, and the time in `first` but not in `second`."""
    both, rest, _ = explained(first, second)
    return both, rest


def explained(first: Spans, second: Spans) -> tuple[Spans, Spans, Ints]:
    """Return what `separate` does, and the position in `second` of the span that each piece of the first lies in."""
    both, of_second = _overlaps(first, second)
    if not len(of_second):
        return both, first, of_second
    # the rest begins where a span of `first` begins or a shared piece ends, and vice versa
    start = np.sort(np.concatenate((first[0], both[1])), kind="stable")
    end = np.sort(np.concatenate((first[1], both[0])), kind="stable")
    nonempty = np.flatnonzero(start < end)
    return both, (start[nonempty], end[nonempty]), of_second


def without(first: Spans, second: Spans) -> Spans:
    """Return the time in `first` but not in `second`."""
    return separate(first, second)[1]


def length(spans: Spans) -> int:
    """Return the total length."""
    return int((spans[1] - spans[0]).sum())


def scaled(times: Ints, total: int) -> Ints:
    """Return whole ns in proportion to `times` that add up to `total`."""
    before = int(times.sum())
    if before in (0, total):
        return times
    exact = times * (total / before)
    whole: Ints = np.floor(exact).astype(np.int64)
    # the rest after rounding down goes to the largest remainders
    left = int(total - whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:left]] += 1
    return whole


def touches(spans: Spans, start: Ints, end: Ints) -> Flags:
    """Return which [start, end) overlap `spans`."""
    following = _count_begun(spans[1], start)
    flags: Flags = np.append(spans[0], np.iinfo(np.int64).max)[following] < end
    return flags & (start < end)


def covered(spans: Spans, start: Ints, end: Ints) -> Ints:
    """Return how much time of each [start, end) lies in `spans`."""
    before = np.concatenate(([0], np.cumsum(spans[1] - spans[0])))
    edge = np.concatenate(([np.iinfo(np.int64).min], spans[1]))

    def elapsed(time: Ints) -> Ints:
        begun = np.searchsorted(spans[0], time, side="right")
        passed, last = before[begun], edge[begun]
        passed -= np.maximum(last, time, out=last)
        passed += time
        return passed

    within: Ints = elapsed(end)
    within -= elapsed(start)
    return within


def shares(start: Ints, end: Ints, rest: Spans) -> Floats:
    """Return how much of `rest` each [start, end) gets if all spans that are open at an instant share it equally.

    The shares add up to the part of `rest` in which any span is open.
    """
    order = np.argsort(start, kind="stable")
    if (start[order][1:] >= np.maximum.accumulate(end[order])[:-1]).all():
        return covered(rest, start, end).astype(np.float64)
    edges = np.sort(np.concatenate((start, end)), kind="stable")
    open_now = depth(np.sort(start), np.sort(end), edges[:-1])
    each = covered(rest, edges[:-1], edges[1:]) / np.maximum(open_now, 1)
    before = np.concatenate(([0.0], np.cumsum(each)))
    share: Floats = before[np.searchsorted(edges, end)] - before[np.searchsorted(edges, start)]
    return share


def cut(spans: Spans, times: Ints) -> tuple[Ints, Ints, Ints]:
    """Cut spans at all `times` inside them; return the pieces, in order of time, and the span of each piece."""
    times = np.sort(times, kind="stable")
    times = times[np.append(True, times[1:] != times[:-1])[: len(times)]]
    of = np.searchsorted(spans[0], times, side="right") - 1
    inner = (of >= 0) & (times < np.append(spans[1], 0)[of]) & (times > np.append(spans[0], 0)[of])
    start = np.concatenate((spans[0], times[inner]))
    piece = np.concatenate((np.arange(len(spans[0])), of[inner]))
    order = np.argsort(start, kind="stable")
    start, piece = start[order], piece[order]
    last = np.append(piece[1:] != piece[:-1], True)[: len(piece)]
    end = np.where(last, spans[1][piece], np.append(start[1:], 0)[: len(start)])
    return start, end, piece


def grouped_busy(group: Ints, start: Ints, end: Ints, count: int) -> tuple[Ints, Ints]:
    """Return for groups 0 to count - 1 the length of the union of their spans, and the time from first to last."""
    busy_ns, extent = np.zeros((2, count), dtype=np.int64)
    if not len(group):
        return busy_ns, extent
    later = (group[1:] > group[:-1]) | ((group[1:] == group[:-1]) & (start[1:] >= start[:-1]))
    if not later.all():
        order = np.lexsort((start, group))
        group, start, end = group[order], start[order], end[order]
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    own = group[first]
    extent[own] = np.maximum.reduceat(end, first) - start[first]
    # shifted to lie one after the other, groups do not overlap, so that one running maximum serves all of them
    base = np.cumsum(extent[own]) - extent[own]
    shift = np.repeat(base - start[first], np.diff(np.append(first, len(group))))
    start = start + shift
    reach = np.maximum.accumulate(np.add(end, shift, out=shift), out=shift)
    # the part of each span that no earlier one covers
    start[1:] = np.maximum(start[1:], reach[:-1])
    busy_ns[own] = np.add.reduceat(reach - start, first)
    return busy_ns, extent


def depth(start: Ints, end: Ints, time: Ints) -> Ints:
    """Return how many spans are open at each time; `start` and `end` must each be sorted."""
    return np.searchsorted(start, time, side="right") - np.searchsorted(end, time, side="right")


def open_time(start: Ints, end: Ints, time: Ints) -> Ints:
    """Return the total time that all spans have been open before each time; sorted as for `depth`."""

    def passed(edges: Ints) -> Ints:
        sums = np.concatenate(([0], np.cumsum(edges)))
        begun = np.searchsorted(edges, time, side="right")
        return begun * time - sums[begun]

    # the sums may overflow and wrap around, but their difference is still right
    return passed(start) - passed(end)
