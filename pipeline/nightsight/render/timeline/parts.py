"""How the events of one layer of a timeline are written: per row, five streams of varints."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, Final

import numpy as np

from nightsight.intervals import Ints
from nightsight.parallel import threads
from nightsight.render.timeline.encode import varints, zigzag

# a median only makes numbers small: that of so many events serves as well as that of all
_SAMPLE: Final = 300_000


@dataclass(frozen=True)
class Spans:
    """The events of one layer in order of (row, start), one array entry each; times in quanta since its begin.

    `bounds`: where each row begins, and the end of the last. `label`: rising with how rare it is. `caller`: the row of
    the call that launched each, or -1; `call`: its position there. `count`: how many events each stands for, None
    where that is one each.
    """

    bounds: Ints
    start: Ints
    end: Ints
    label: Ints
    caller: Ints
    call: Ints
    count: Ints | None = None

    @cached_property
    def row(self) -> Ints:
        """The row of each event."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))


@dataclass(frozen=True)
class Parts:
    """The rows of a layer as bytes: how many events each has, and its streams."""

    counts: tuple[int, ...]
    rows: tuple[tuple[bytes, ...], ...]

    @property
    def pieces(self) -> Iterator[bytes]:
        """All streams, one after another."""
        return chain.from_iterable(self.rows)

    def header(self, at: int) -> list[dict[str, Any] | None]:
        """Describe the parts, the first being at `at` in the binary."""
        sizes = [[len(stream) for stream in row] for row in self.rows]
        begins = accumulate(map(sum, sizes), initial=at)
        parts = zip(self.counts, begins, sizes, strict=False)
        return [{"count": count, "at": begin, "sizes": size} if count else None for count, begin, size in parts]


def encode_spans(spans: Spans) -> Parts:
    """Write a layer of at least one event."""
    before = np.append(0, spans.end[:-1])
    before[spans.bounds[:-1][np.diff(spans.bounds) > 0]] = 0
    with threads() as pool:
        gaps = pool.submit(lambda: varints(zigzag(spans.start - before), spans.bounds))
        lengths = pool.submit(_durations, spans)
        labels = pool.submit(varints, spans.label, spans.bounds)
        others = pool.submit(lambda: _links(spans) if spans.count is None else varints(spans.count, spans.bounds))
    durations, medians = lengths.result()
    streams = (gaps.result(), durations, labels.result(), others.result(), medians)
    return Parts(tuple(np.diff(spans.bounds).tolist()), tuple(zip(*streams, strict=True)))


def _durations(spans: Spans) -> tuple[list[bytes], list[bytes]]:
    duration = spans.end - spans.start
    typical, medians = _typical(spans, duration)
    return varints(zigzag(duration - typical), spans.bounds), medians


def _typical(spans: Spans, duration: Ints) -> tuple[Ints, list[bytes]]:
    """Return for each event the median duration of its label in its row, and the stream that tells the medians.

    Of an even number the lower of the two middle ones, which is a whole number; of many events, that of a sample.
    """
    labels = int(spans.label.max()) + 1
    key = spans.row * labels + spans.label
    some = _sample(key)
    keys, durations = _sorted_pairs(key[some], duration[some])
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    count = np.diff(np.append(first, len(keys)))
    median, known = durations[first + (count - 1) // 2], keys[first]
    bounds = np.searchsorted(known, np.arange(len(spans.bounds)) * labels)
    pairs = np.stack([known % labels, median], axis=1).ravel()
    return _looked_up(known, median, key), varints(pairs, 2 * bounds)


def _sample(key: Ints) -> Ints:
    """Choose events evenly, all if there are few, and at least one of each key."""
    step = -(-len(key) // _SAMPLE)
    if step <= 1:
        return np.arange(len(key))
    last = np.full(int(key.max()) + 1, -1, dtype=np.int64)
    last[key] = np.arange(len(key))
    return np.concatenate([np.arange(0, len(key), step), last[last >= 0]])


def _sorted_pairs(key: Ints, value: Ints) -> tuple[Ints, Ints]:
    """Sort by (key, value), as one number each where both fit into it: many times as fast."""
    bits = int(value.max()).bit_length()
    if int(key.max()).bit_length() + bits > 62:
        order = np.lexsort((value, key))
        return key[order], value[order]
    together = np.sort((key << bits) | value)
    return together >> bits, together & ((1 << bits) - 1)


def _looked_up(known: Ints, value: Ints, wanted: Ints) -> Ints:
    """Return the value of each wanted key; all are known. There are at most as many as rows times labels."""
    table = np.zeros(int(known[-1]) + 1, dtype=np.int64)
    table[known] = value
    return table[wanted]


def _links(spans: Spans) -> list[bytes]:
    """Write where the launching call of each event is, for rows of which some have one."""
    linked = np.flatnonzero(spans.caller >= 0)
    rows = np.unique(spans.row[linked])
    pairs = np.zeros((len(spans.start), 2), dtype=np.int64)
    pairs[linked, 0] = spans.caller[linked] + 1
    pairs[linked, 1] = zigzag(_steps(spans, linked))
    is_written = np.ones((len(pairs), 2), dtype=bool)
    is_written[:, 1] = spans.caller >= 0
    has_links = np.zeros(len(spans.bounds) - 1, dtype=bool)
    has_links[rows] = True
    is_written &= has_links[spans.row][:, None]
    sizes = np.append(0, np.cumsum(is_written.sum(axis=1)))
    return varints(pairs[is_written], sizes[spans.bounds])


def _steps(spans: Spans, linked: Ints) -> Ints:
    """Return how far each call is from the one before that launched something of the same row, in its own row."""
    key = spans.row[linked] * len(spans.bounds) + spans.caller[linked]
    order = np.argsort(key, kind="stable")
    call = spans.call[linked][order]
    begins = np.diff(key[order], prepend=-1) != 0
    steps = np.empty(len(call), dtype=np.int64)
    steps[order] = np.where(begins, call, np.diff(call, prepend=0))
    return steps
