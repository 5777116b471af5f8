"""How the sums of a timeline are written, and how narrow their bins can be."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from nightsight.intervals import Ints
from nightsight.render.timeline.encode import Deflated, deflated, varints, zigzag
from nightsight.render.timeline.sums import DOUBLINGS, Sums

# doublings of the width, and names in each bin of each section: the best first
_FINENESS: Final = (
    *((0, 64), (1, 64), (1, 24), (2, 24), (2, 8), (3, 8), (4, 8), (5, 8), (6, 8), (6, 3), (7, 3)),
    (DOUBLINGS, 3),
)
# what is longer than so many times the room will not fit compressed
_DENSEST: Final = 4
# what a cell, and what an event that crosses an edge, takes before that at least
_ENTRY_BYTES: Final = 3
# what the words on a section take, compressed
_SECTION_BYTES: Final = 20


@dataclass(frozen=True)
class WrittenSums:
    """Sums as streams of varints: see docs/page.md."""

    sums: Sums
    streams: tuple[bytes, ...]

    @cached_property
    def body(self) -> Deflated:
        """All streams, one after another."""
        return deflated(b"".join(self.streams))

    @property
    def size(self) -> int:
        """About how many bytes they take with their header, compressed."""
        return len(self.body.compressed) + _SECTION_BYTES * len(self.sums.sections)

    def header(self, at: int) -> dict[str, Any]:
        """Describe the sums, of which the first stream is at `at` in the binary."""
        sums, slots = self.sums, self.sums.slots
        ends = np.searchsorted(slots.section, np.arange(len(sums.sections)), side="right")
        columns = (np.diff(ends, prepend=0), slots.count[ends - 1])
        sections = [
            {"group": group, "kind": kind, "slots": count, "others": 0 if last == 1 else last}
            for (group, kind), count, last in zip(sums.sections, *(column.tolist() for column in columns), strict=True)
        ]
        sizes = [len(stream) for stream in self.streams]
        scale = {"from_ns": sums.begin_ns, "width_ns": sums.width_ns, "bins": sums.bins}
        return {**scale, "sections": sections, "at": at, "sizes": sizes}


def fitting(sums: Sums | None, room: float) -> WrittenSums | None:
    """Write sums with as narrow bins, and as many names, as `room` bytes allow, compressed; None if none do."""
    if sums is None:
        return None
    done = 0
    for doublings, names in _FINENESS:
        sums = sums.coarser(doublings - done).with_names(names)
        done = doublings
        if _ENTRY_BYTES * (len(sums.cells.bin) + len(sums.crossings.row)) > _DENSEST * room:
            continue
        written = written_sums(sums)
        if sum(map(len, written.streams)) <= _DENSEST * room and written.size <= room:
            return written
    return None


def written_sums(sums: Sums) -> WrittenSums:
    """Write sums of which the names are in order."""
    cells, crossings, overlaps = sums.cells, sums.crossings, sums.overlaps
    size = np.bincount(cells.slot)
    mean = np.rint(np.bincount(cells.slot, cells.time) / np.bincount(cells.slot, cells.count)).astype(np.int64)
    row = np.cumsum(np.diff(crossings.row, prepend=-1) != 0) - 1
    edge = (crossings.start - sums.begin_ns) // sums.width_ns + 1
    columns = (
        np.stack([sums.slots.name, size, mean], axis=1).ravel(),
        _gaps(cells.slot, cells.bin),
        cells.count,
        zigzag(cells.time - cells.count * mean[cells.slot]),
        np.bincount(row),
        _gaps(row, edge),
        crossings.slot,
        crossings.end - sums.begin_ns - edge * sums.width_ns,
        np.bincount(overlaps.section, minlength=len(sums.sections)),
        _gaps(overlaps.section, overlaps.bin),
        overlaps.time,
    )
    return WrittenSums(sums, tuple(varints(column, np.array([0, len(column)]))[0] for column in columns))


def _gaps(owner: Ints, place: Ints) -> Ints:
    """Return how many places lie between each and the one before it of the same owner, or before the first."""
    gaps = np.diff(place, prepend=-1) - 1
    first = np.diff(owner, prepend=-1) != 0
    gaps[first] = place[first]
    return gaps
