"""Reads the timeline of a page back, in plain Python: what the page's own script does."""

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from nightsight.render.timeline.layers import Layer
from nightsight.render.timeline.rows import Events


class Event(NamedTuple):
    """An event as it is drawn; `launch` is the row and position of its call, `stands_for` how many there are."""

    start: int
    end: int
    name: str
    details: str = ""
    launch: tuple[int, int] | None = None
    stands_for: int = 1


@dataclass(frozen=True)
class Decoded:
    """The header, and the events of each layer and row."""

    header: dict[str, Any]
    layers: list[list[list[Event]]]
    sums: "DecodedSums | None" = None

    def row(self, label: str, layer: int = 0) -> list[Event]:
        """The events of a row by its label."""
        (place,) = [place for place, row in enumerate(self.header["rows"]) if row["label"] == label]
        return self.layers[layer][place]


def decode(payload: bytes | None) -> Decoded:
    """Read what `timeline_payload` wrote."""
    assert payload is not None
    data = gzip.decompress(base64.b64decode(payload, validate=True))
    size = int.from_bytes(data[:4], "little")
    header, binary = json.loads(data[4 : 4 + size]), data[4 + size :]
    layers = [[_row(header, row, number, binary) for row in header["rows"]] for number in range(len(header["layers"]))]
    return Decoded(header, layers, header["sums"] and decode_sums(header["sums"], header["names"], binary))


def decode_layer(events: Events, layer: Layer) -> list[list[Event]]:
    """Read one layer back, without a page around it."""
    rows = [{"layers": [part]} for part in layer.parts.header(0)]
    labels = [[label, detail] for label, detail in enumerate(events.labels.details)]
    header = {"layers": [layer.header()], "names": list(events.labels.names), "labels": labels}
    return [_row(header, row, 0, layer.body.data) for row in rows]


def numbers(data: bytes) -> list[int]:
    """Read varints."""
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value = shift = 0
    assert not shift, "the last number is cut"
    return values


def signed(value: int) -> int:
    """Undo zigzag."""
    return value >> 1 if value % 2 == 0 else -(value + 1) // 2


def _row(header: dict[str, Any], row: dict[str, Any], number: int, binary: bytes) -> list[Event]:
    part, layer = row["layers"][number], header["layers"][number]
    if part is None:
        return []
    at, streams = part["at"], []
    for size in part["sizes"]:
        streams.append(numbers(binary[at : at + size]))
        at += size
    gaps, lengths, labels, further, medians = streams
    assert len(gaps) == len(lengths) == len(labels) == part["count"]
    typical = dict(zip(medians[::2], medians[1::2], strict=True))
    assert set(typical) == set(labels)
    is_merged = layer["is_merged"]
    launches = [None] * len(gaps) if is_merged or not further else _launches(further)
    counts = further if is_merged else [1] * len(gaps)
    events, end = [], 0
    for gap, length, label, launch, count in zip(gaps, lengths, labels, launches, counts, strict=True):
        start = end + signed(gap)
        end = start + typical[label] + signed(length)
        name, details = header["labels"][label]
        begin, stop = (layer["from_ns"] + time * layer["quantum_ns"] for time in (start, end))
        events.append(Event(begin, stop, header["names"][name], details, launch, count))
    return events


def _launches(values: list[int]) -> list[tuple[int, int] | None]:
    launches: list[tuple[int, int] | None] = []
    last: dict[int, int] = {}
    left = iter(values)
    for row in left:
        if row:
            last[row] = last.get(row, 0) + signed(next(left))
        launches.append((row - 1, last[row]) if row else None)
    return launches


Section = tuple[str, str]


@dataclass
class Statistics:
    """What went on in a section: `names` has time and events of each; None stands for names without their own."""

    busy: int = 0
    time: Counter[str | None] = field(default_factory=Counter)
    events: Counter[str | None] = field(default_factory=Counter)


@dataclass(frozen=True)
class DecodedSums:
    """The sums of all events, as they are written."""

    header: dict[str, Any]
    slots: list[tuple[Section, str | None]]
    cells: list[dict[int, tuple[int, int]]]
    rows: list[dict[int, tuple[int, int]]]
    overlaps: dict[Section, dict[int, int]]

    def edge(self, number: int) -> int:
        """When a bin begins."""
        return int(self.header["from_ns"] + number * self.header["width_ns"])

    def statistics(self, first: int, end: int) -> dict[Section, Statistics]:
        """Add up bins, the first one up to the end; sections without an event are left out."""
        found = {section: Statistics() for section in self.overlaps}
        for (section, name), cells in zip(self.slots, self.cells, strict=True):
            for place, (count, time) in cells.items():
                found[section].events[name] += count * (first <= place < end)
                found[section].time[name] += time * (first <= place < end)
        for edge, sign in ((first, 1), (end, -1)):
            for slot, left in self._open(edge):
                section, name = self.slots[slot]
                found[section].events[name] += sign > 0
                found[section].time[name] += sign * left
        for section, sums in found.items():
            overlap = sum(time for place, time in self.overlaps[section].items() if first <= place < end)
            sums.busy = sums.time.total() - overlap
            sums.time = Counter({name: time for name, time in sums.time.items() if sums.events[name]})
            sums.events = +sums.events
        return {section: sums for section, sums in found.items() if sums.events}

    def _open(self, edge: int) -> Iterator[tuple[int, int]]:
        """What goes on at an edge: the slot of each event, and how long it does."""
        for row in self.rows:
            known = max((place for place in row if place <= edge), default=None)
            if known is not None:
                slot, left = row[known]
                left -= (edge - known) * self.header["width_ns"]
                if left > 0:
                    yield slot, left


def decode_sums(header: dict[str, Any], names: list[str], binary: bytes) -> DecodedSums:
    """Read the sums of all events."""
    edges = [header["at"] + sum(header["sizes"][:number]) for number in range(len(header["sizes"]) + 1)]
    streams = [numbers(binary[begin:end]) for begin, end in pairwise(edges)]
    slot_facts, cell_gaps, counts, times, of_rows, edge_gaps, crossed, left, of_sections, gaps, overlaps = map(
        iter, streams
    )
    slots, cells = [], []
    for section in header["sections"]:
        key = (section["group"], section["kind"])
        for place in range(section["slots"]):
            name, size, mean = (next(slot_facts) for _ in range(3))
            is_others = section["others"] and place == section["slots"] - 1
            slots.append((key, None if is_others else names[name]))
            own = [(place, next(counts), signed(next(times))) for place in _places(cell_gaps, size)]
            cells.append({place: (count, count * mean + time) for place, count, time in own})
    rows = [{place: (next(crossed), next(left)) for place in _places(edge_gaps, size)} for size in of_rows]
    keys = [(section["group"], section["kind"]) for section in header["sections"]]
    inside = {key: {place: next(overlaps) for place in _places(gaps, next(of_sections))} for key in keys}
    assert not any(
        list(stream) for stream in (slot_facts, cell_gaps, counts, times, edge_gaps, crossed, left, gaps, overlaps)
    )
    return DecodedSums(header, slots, cells, rows, inside)


def _places(gaps: Iterator[int], size: int) -> list[int]:
    place, places = -1, []
    for _ in range(size):
        place += next(gaps) + 1
        places.append(place)
    return places
