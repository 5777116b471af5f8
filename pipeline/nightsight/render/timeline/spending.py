"""Packs what each device did at every instant: exactly where that fits, else its time by category in equal bins."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nightsight.events.categories import Spent
from nightsight.intervals import Ints, covered
from nightsight.render.timeline.columns import Columns, columns
from nightsight.render.timeline.sums import DOUBLINGS, MOST_BINS, scale
from nightsight.results.categories import BUSY, IDLE

Span = tuple[int, int]
Spending = Callable[[], Mapping[int, Spent]]
"""Returns what each device did at every instant, all of them from the same time (ns) to the same time."""
CATEGORIES: Final = (*BUSY, *IDLE)
# a piece takes at least this many bytes, compressed: more of them need not be tried
_PIECE_BYTES: Final = 1.2
# at most this share of the room is for bins
_COARSE: Final = 2 / 3
# the most numbers of dense sums
_MOST_SUMS: Final = 1 << 23


def unknown() -> Mapping[int, Spent]:
    """Say nothing of any device."""
    return {}


@dataclass(frozen=True)
class Account:
    """What devices did from `begin_ns` to `end_ns`: their time by category in bins of `width_ns`; 0 if piece by piece.

    counts: of pieces of each device, if piece by piece.
    """

    begin_ns: int
    end_ns: int
    width_ns: int
    counts: tuple[int, ...]
    columns: Columns

    @property
    def size(self) -> int:
        """The size in bytes, compressed."""
        return len(self.columns.body.compressed)

    def header(self, at: int) -> dict[str, Any]:
        """Return the JSON description, whose columns start at byte `at` of the binary."""
        scale = {"from_ns": self.begin_ns, "to_ns": self.end_ns, "width_ns": self.width_ns, "counts": self.counts}
        return {**scale, **self.columns.header(at)}


def account(devices: Sequence[Spent], *, origin_ns: int, room: float) -> Account | None:
    """Return everything piece by piece if that fits `room` bytes, compressed, else bins, which leave some.

    All devices are told of from the same time to the same time; the origin is an edge of bins. None if nothing fits.
    """
    if not devices:
        return None
    span = (int(devices[0].edge[0]), int(devices[0].edge[-1]))
    coarse = (bins for bins in _in_bins(devices, origin_ns) if bins.size <= room * _COARSE)
    return by_piece(devices, span, room) or next(coarse, None)


def by_piece(devices: Sequence[Spent], span: Span, room: float) -> Account | None:
    """Return what is told of a span, piece by piece; None if that takes more than `room` bytes, compressed."""
    span = (max(span[0], int(devices[0].edge[0])), min(span[1], int(devices[0].edge[-1])))
    if span[0] >= span[1]:
        return None
    pieces = [_within(spent, span) for spent in devices]
    counts = tuple(len(spent.category) for spent in pieces)
    if sum(counts) * _PIECE_BYTES > room:
        return None
    lengths = np.concatenate([np.diff(spent.edge) for spent in pieces])
    packed = columns({"length": lengths, "category": np.concatenate([spent.category for spent in pieces])})
    exact = Account(*span, 0, counts, packed)
    return exact if exact.size <= room else None


def _within(spent: Spent, span: Span) -> Spent:
    first = int(np.searchsorted(spent.edge, span[0], side="right")) - 1
    last = int(np.searchsorted(spent.edge, span[1], side="left"))
    edge = np.clip(spent.edge[first : last + 1], *span)
    return Spent(edge, spent.category[first:last])


def _in_bins(devices: Sequence[Spent], origin_ns: int) -> Iterator[Account]:
    """Yield the time by category in bins, the narrowest first."""
    begin, end = int(devices[0].edge[0]), int(devices[0].edge[-1])
    most = min(MOST_BINS, _MOST_SUMS // (len(CATEGORIES) * len(devices)))
    if most < 2 << DOUBLINGS:
        return
    low, width = scale(end - begin, origin_ns - begin, most)
    low += begin
    bins = (end - low) // width + 1
    edges = low + np.arange(bins + 1) * width
    time = np.array([[_in_category(spent, place, edges) for place in range(len(CATEGORIES))] for spent in devices])
    for doublings in range(DOUBLINGS + 1):
        place = np.flatnonzero(time)
        cells = columns({"cell": np.diff(place, prepend=0), "time": time.reshape(-1)[place]})
        yield Account(low, low + time.shape[2] * (width << doublings), width << doublings, (), cells)
        # an even number of bins, so that each has a partner
        even = np.pad(time, ((0, 0), (0, 0), (0, time.shape[2] % 2)))
        time = even[:, :, ::2] + even[:, :, 1::2]


def _in_category(spent: Spent, category: int, edges: Ints) -> Ints:
    has_category = spent.category == category
    return covered((spent.edge[:-1][has_category], spent.edge[1:][has_category]), edges[:-1], edges[1:])
