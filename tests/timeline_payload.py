"""Reads the timeline of a page back, in plain Python: what the page's own script does."""

import base64
import gzip
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline.render.timeline_events import Events
from pipeline.render.timeline_layers import Layer


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
    return Decoded(header, layers)


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
