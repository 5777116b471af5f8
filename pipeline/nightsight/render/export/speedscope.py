"""Export to speedscope: the open and close events of each thread and stream.

Format: https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources. Every frame that opens must close,
the last opened first, and times must never decrease.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from nightsight.intervals import Ints
from nightsight.model.report import Profile
from nightsight.render.export.rows import blocks, digits, join, one_text, strings, take
from nightsight.render.export.tracks import Places, Slices, event_names, process_slices, stream_slices, thread_slices

_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
_KINDS: Final = strings(("O", "C"))


def speedscope_profile(profile: Profile) -> bytes:
    """Return a profile per thread (ranges and the calls inside) and per stream; times are ns from the first event."""
    places = Places(profile)
    laid = [lay(profile, places) for lay in (thread_slices, process_slices, stream_slices)]
    used = [slices for slices in laid if len(slices.row)]
    begin = min((int(slices.start.min()) for slices in used), default=0)
    length = max((int(slices.end.max()) for slices in used), default=0) - begin
    names, frames = _frames(profile, used)
    head = {"$schema": _SCHEMA, "exporter": "nightsight", "shared": {"frames": [{"name": name} for name in names]}}
    profiles = (
        piece for slices, frame in zip(used, frames, strict=True) for piece in _profiles(slices, frame, begin, length)
    )
    # each profile starts with a comma; remove that of the first
    return b"".join(
        [json.dumps(head).encode()[:-1], b',"profiles":[', next(profiles, b"").removeprefix(b","), *profiles, b"]}\n"]
    )


def _frames(profile: Profile, laid: list[Slices]) -> tuple[list[str], list[Ints]]:
    """Return the names of all frames, and the frame of each slice as a position in them."""
    names: list[str] = []
    frames = []
    for slices in laid:
        frame = np.zeros(len(slices.row), dtype=np.int64)
        for place, table in enumerate(slices.tables):
            here = slices.table == place
            codes, names_of_table = event_names(table, profile.table(table))
            frame[here] = len(names) + codes[slices.row[here]]
            names += names_of_table
        frames.append(frame)
    return names, frames


def _profiles(slices: Slices, frame: Ints, begin: int, length: int) -> Iterator[bytes]:
    events = _events(slices, frame)
    first = np.searchsorted(slices.track, np.arange(len(slices.tracks) + 1)).tolist()
    for place, track in enumerate(slices.tracks):
        name = f"{track.process}, {track.name} [{track.tid}]"
        facts = {"type": "evented", "name": name, "unit": "nanoseconds", "startValue": 0, "endValue": length}
        yield b",\n" + json.dumps(facts).encode()[:-1] + b',"events":['
        for block in blocks(2 * first[place], 2 * first[place + 1]):
            yield (b",\n" if block.start > 2 * first[place] else b"\n") + events.rows(block, begin)
        yield b"]}"


@dataclass(frozen=True)
class _Events:
    """Two events per slice, in order on its track: closes (1) or opens (0), the time (ns), and the frame."""

    closes: Ints
    time: Ints
    frame: Ints

    def rows(self, block: slice, begin: int) -> bytes:
        kind, frame, time = take(_KINDS, self.closes[block]), self.frame[block], self.time[block] - begin
        text = join('{"type":"', kind, '","frame":', digits(frame), ',"at":', digits(time), "}")
        return one_text(text, ",\n")


def _events(slices: Slices, frame: Ints) -> _Events:
    """Order opens and closes like brackets; times alone do not give the order where several are equal."""
    level, inside = slices.nesting
    # before a slice opens, all earlier slices have opened, and all of these except its ancestors have closed
    opening = 2 * np.arange(len(level)) - level
    closing = opening + 2 * inside - 1
    closes, time, frames = np.zeros((3, 2 * len(level)), dtype=np.int64)
    closes[closing] = 1
    time[opening], time[closing] = slices.start, slices.end
    frames[opening] = frames[closing] = frame
    return _Events(closes, time, frames)
