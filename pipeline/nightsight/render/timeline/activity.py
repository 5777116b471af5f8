"""Packs the activity of each device at every instant: exactly if that fits, else its time by category in equal bins."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nightsight.events.categories import Activity
from nightsight.intervals import Ints, covered
from nightsight.render.timeline.columns import Columns, columns
from nightsight.render.timeline.sums import DOUBLINGS, MOST_BINS, scale
from nightsight.results.categories import BUSY, IDLE

Span = tuple[int, int]
Activities = Callable[[], Mapping[int, Activity]]
"""Returns the activity of each device at every instant, for all devices over the same span of time (ns)."""
CATEGORIES: Final = (*BUSY, *IDLE)
# a piece takes at least this many bytes, compressed: if even these do not fit, packing is not tried
_PIECE_BYTES: Final = 1.2
# at most this share of the room is for bins
_COARSE: Final = 2 / 3
# the most numbers of dense sums
_MOST_SUMS: Final = 1 << 23


@dataclass(frozen=True)
class Account:
    """The activity of devices from `begin_ns` to `end_ns`: time by category in bins of `width_ns`, 0 for exact pieces.

    counts: the number of exact pieces of each device.
    """

    begin_ns: int
    end_ns: int
    width_ns: int
    counts: tuple[int, ...]
    columns: Columns

    @property
    def size(self) -> int:
        """The size in bytes, compressed."""
        return self.columns.size

    def header(self, at: int) -> dict[str, Any]:
        """Return the JSON description, whose columns start at byte `at` of the binary."""
        scale = {"from_ns": self.begin_ns, "to_ns": self.end_ns, "width_ns": self.width_ns, "counts": self.counts}
        return {**scale, **self.columns.header(at)}


def account(devices: Sequence[Activity], *, origin_ns: int, room: float) -> Account | None:
    """Return exact pieces if they fit into `room` bytes, compressed, else bins, which leave some room.

    All devices cover the same span of time; the origin is an edge of bins. None if neither fits.
    """
    if not devices:
        return None
    span = (int(devices[0].edge[0]), int(devices[0].edge[-1]))
    coarse = (bins for bins in _in_bins(devices, origin_ns) if bins.size <= room * _COARSE)
    return by_piece(devices, span, room) or next(coarse, None)


def by_piece(devices: Sequence[Activity], span: Span, room: float) -> Account | None:
    """Return the exact pieces in a span; None if they take more than `room` bytes, compressed."""
    span = (max(span[0], int(devices[0].edge[0])), min(span[1], int(devices[0].edge[-1])))
    if span[0] >= span[1]:
        return None
    pieces = [_clipped(activity, span) for activity in devices]
    counts = tuple(len(activity.category) for activity in pieces)
    if sum(counts) * _PIECE_BYTES > room:
        return None
    lengths = np.concatenate([np.diff(activity.edge) for activity in pieces])
    packed = columns({"length": lengths, "category": np.concatenate([activity.category for activity in pieces])})
    exact = Account(*span, 0, counts, packed)
    return exact if exact.size <= room else None


def _clipped(activity: Activity, span: Span) -> Activity:
    first = int(np.searchsorted(activity.edge, span[0], side="right")) - 1
    last = int(np.searchsorted(activity.edge, span[1], side="left"))
    edge = np.clip(activity.edge[first : last + 1], *span)
    return Activity(edge, activity.category[first:last])


def _in_bins(devices: Sequence[Activity], origin_ns: int) -> Iterator[Account]:
    """Yield the time by category in bins, the narrowest first."""
    begin, end = int(devices[0].edge[0]), int(devices[0].edge[-1])
    most = min(MOST_BINS, _MOST_SUMS // (len(CATEGORIES) * len(devices)))
    if most < 2 << DOUBLINGS:
        return
    low, width = scale(end - begin, origin_ns - begin, most)
    low += begin
    bins = (end - low) // width + 1
    edges = low + np.arange(bins + 1) * width
    time = np.array(
        [[_in_category(activity, place, edges) for place in range(len(CATEGORIES))] for activity in devices]
    )
    for doublings in range(DOUBLINGS + 1):
        place = np.flatnonzero(time)
        cells = columns({"cell": np.diff(place, prepend=0), "time": time.reshape(-1)[place]})
        yield Account(low, low + time.shape[2] * (width << doublings), width << doublings, (), cells)
        # an even number of bins, so that each has a partner
        even = np.pad(time, ((0, 0), (0, 0), (0, time.shape[2] % 2)))
        time = even[:, :, ::2] + even[:, :, 1::2]


def _in_category(activity: Activity, category: int, edges: Ints) -> Ints:
    pieces = np.flatnonzero(activity.category == category)
    return covered((activity.edge[pieces], activity.edge[pieces + 1]), edges[:-1], edges[1:])
