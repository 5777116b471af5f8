"""Export to speedscope: the open and close events of each thread and stream.

Format: https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources. Every frame that opens must close,
the last opened first, and times must never decrease.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from nightsight.intervals import Ints
from nightsight.model.report import Profile
from nightsight.render.export.rows import blocks, digits, join, one_text, strings, take
from nightsight.render.tracks import (
    Places,
    Slices,
    event_names,
    layer_slices,
    process_slices,
    stream_slices,
    thread_slices,
    with_layers,
)

_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
_KINDS: Final = strings(("O", "C"))


def speedscope_profile(profile: Profile) -> bytes:
    """Return a profile per thread (ranges and the calls inside) and per stream; times are in ns from the first event.

    The ranges of CUDA graphs have a separate profile per stream.
    """
    profile = with_layers(profile)
    places = Places(profile)
    groups = [lay_out(profile, places) for lay_out in (thread_slices, process_slices, layer_slices, stream_slices)]
    groups = [slices for slices in groups if len(slices.row)]
    begin = min((int(slices.start.min()) for slices in groups), default=0)
    length = max((int(slices.end.max()) for slices in groups), default=0) - begin
    names, frames = _frames(profile, groups)
    head = {"$schema": _SCHEMA, "exporter": "nightsight", "shared": {"frames": [{"name": name} for name in names]}}
    profiles = (
        piece for slices, frame in zip(groups, frames, strict=True) for piece in _profiles(slices, frame, begin, length)
    )
    # each profile starts with a comma; remove that of the first
    return b"".join(
        [json.dumps(head).encode()[:-1], b',"profiles":[', next(profiles, b"").removeprefix(b","), *profiles, b"]}\n"]
    )


def _frames(profile: Profile, groups: list[Slices]) -> tuple[list[str], list[Ints]]:
    """Return the names of all frames, and the frame of each slice as a position in them."""
    names: list[str] = []
    frames = []
    for slices in groups:
        frame = np.zeros(len(slices.row), dtype=np.int64)
        for index, table in enumerate(slices.tables):
            is_of_table = slices.table == index
            codes, table_names = event_names(table, profile.table(table))
            frame[is_of_table] = len(names) + codes[slices.row[is_of_table]]
            names += table_names
        frames.append(frame)
    return names, frames


def _profiles(slices: Slices, frame: Ints, begin: int, length: int) -> Iterator[bytes]:
    brackets = _brackets(slices, frame)
    first = 2 * np.searchsorted(slices.track, np.arange(len(slices.tracks) + 1))
    for track, (start, end) in zip(slices.tracks, pairwise(first.tolist()), strict=True):
        name = f"{track.process}, {track.name} [{track.tid}]"
        facts = {"type": "evented", "name": name, "unit": "nanoseconds", "startValue": 0, "endValue": length}
        yield b",\n" + json.dumps(facts).encode()[:-1] + b',"events":['
        for block in blocks(start, end):
            yield (b",\n" if block.start > start else b"\n") + brackets.rows(block, begin)
        yield b"]}"


@dataclass(frozen=True)
class _Brackets:
    """Two events per slice, in order on its track: 0 opens and 1 closes the frame; times are in ns."""

    kind: Ints
    time: Ints
    frame: Ints

    def rows(self, block: slice, begin: int) -> bytes:
        kind, frame, time = take(_KINDS, self.kind[block]), self.frame[block], self.time[block] - begin
        text = join('{"type":"', kind, '","frame":', digits(frame), ',"at":', digits(time), "}")
        return one_text(text, ",\n")


def _brackets(slices: Slices, frame: Ints) -> _Brackets:
    """Order opens and closes like brackets; times alone do not give the order where several are equal."""
    level, inside = slices.nesting
    # before a slice opens, all earlier slices have opened, and all of these except its ancestors have closed
    opening = 2 * np.arange(len(level)) - level
    closing = opening + 2 * inside - 1
    kind, time, frames = np.zeros((3, 2 * len(level)), dtype=np.int64)
    kind[closing] = 1
    time[opening], time[closing] = slices.start, slices.end
    frames[opening] = frames[closing] = frame
    return _Brackets(kind, time, frames)
