"""Makes the timeline of a profile, and reads it back in plain Python: what the page's own script does."""

import base64
import gzip
import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Any, NamedTuple

from nightsight.model.report import Profile, Result
from nightsight.render.timeline.activity import Activities
from nightsight.render.timeline.layers import TimelineLayer
from nightsight.render.timeline.payload import MOST_BYTES, timeline_of
from nightsight.render.timeline.rows import TimelineEvents


def timeline_payload(
    profile: Profile,
    *,
    results: Sequence[Result] = (),
    activities: Activities = dict,
    most_bytes: int = MOST_BYTES,
) -> bytes | None:
    """The timeline, at most `most_bytes` long; None if there are no events or none fit."""
    return timeline_of(profile, results=results, activities=activities)(most_bytes)


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
    """The header, the events of each layer and row, and what each device did (group: accounts, coarse first)."""

    header: dict[str, Any]
    layers: list[list[list[Event]]]
    sums: "DecodedSums | None" = None
    activities: dict[int, list["DecodedAccount"]] = field(default_factory=dict)

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
    layers = [_rows(header, layer, binary) for layer in header["layers"]]
    sums = header["sums"] and decode_sums(header["sums"], header["names"], binary)
    accounts = [_accounts(account, header, binary) for account in header["activity"]]
    activities = {group: [account[at] for account in accounts] for at, group in enumerate(header["activity_groups"])}
    return Decoded(header, layers, sums, activities)


def decode_layer(events: TimelineEvents, layer: TimelineLayer) -> list[list[Event]]:
    """Read one layer back, without a page around it."""
    labels = [[label, detail, -1] for label, detail in enumerate(events.labels.details)]
    header = {"names": list(events.labels.names), "labels": labels}
    return _rows(header, layer.header(0), layer.columns.body.data)


def read_columns(header: dict[str, Any], binary: bytes) -> dict[str, list[int]]:
    """Read the columns of a layer, or of sums."""
    at, columns = header["at"], {}
    for name, (count, width) in header["columns"].items():
        places = [binary[at + place * count : at + (place + 1) * count] for place in range(width)]
        at += count * width
        numbers = zip(*places, strict=True) if width else [()] * count
        columns[name] = [int.from_bytes(number, "little", signed=True) for number in numbers]
        assert len(columns[name]) == count
    return columns


def _rows(header: dict[str, Any], layer: dict[str, Any], binary: bytes) -> list[list[Event]]:
    columns = read_columns(layer, binary)
    gaps, lengths, labels = (iter(columns[name]) for name in ("gap", "duration", "label"))
    counts = iter(columns["events"] if layer["is_merged"] else [1] * len(columns["gap"]))
    begins = [0, *accumulate(layer["counts"])]
    launches = iter([None] * begins[-1] if layer["is_merged"] else _launches(columns, begins))
    rows, columns_of_events = [], zip(gaps, lengths, labels, counts, launches, strict=True)
    for size in layer["counts"]:
        end, row = 0, []
        for gap, length, label, count, launch in islice(columns_of_events, size):
            start = end + gap
            end = start + length
            name, details, _ = header["labels"][label]
            begin, stop = (layer["from_ns"] + time * layer["quantum_ns"] for time in (start, end))
            row.append(Event(begin, stop, header["names"][name], details, launch, count))
        rows.append(row)
    assert not list(columns_of_events)
    return rows


def _launches(columns: dict[str, list[int]], begins: list[int]) -> Iterator[tuple[int, int] | None]:
    calls = accumulate(columns["call"])
    for is_launched in columns["is_launched"]:
        call = next(calls) if is_launched else -1
        row = bisect_right(begins, call) - 1
        yield (row, call - begins[row]) if is_launched else None
    assert not list(calls)


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
        by_section = {section: Statistics() for section in self.overlaps}
        for (section, name), cells in zip(self.slots, self.cells, strict=True):
            for place, (count, time) in cells.items():
                by_section[section].events[name] += count * (first <= place < end)
                by_section[section].time[name] += time * (first <= place < end)
        for edge, sign in ((first, 1), (end, -1)):
            for slot, left in self._open(edge):
                section, name = self.slots[slot]
                by_section[section].events[name] += sign > 0
                by_section[section].time[name] += sign * left
        for section, sums in by_section.items():
            overlap = sum(time for place, time in self.overlaps[section].items() if first <= place < end)
            sums.busy = sums.time.total() - overlap
            sums.time = Counter({name: time for name, time in sums.time.items() if sums.events[name]})
            sums.events = +sums.events
        return {section: sums for section, sums in by_section.items() if sums.events}

    def _open(self, edge: int) -> Iterator[tuple[int, int]]:
        """What goes on at an edge: the slot of each event, and how long it does."""
        for row in self.rows:
            nearest = max((place for place in row if place <= edge), default=None)
            if nearest is not None:
                slot, left = row[nearest]
                left -= (edge - nearest) * self.header["width_ns"]
                if left > 0:
                    yield slot, left


def decode_sums(header: dict[str, Any], names: list[str], binary: bytes) -> DecodedSums:
    """Read the sums of all events."""
    columns = {name: iter(values) for name, values in read_columns(header, binary).items()}
    keys = [(section["group"], section["kind"]) for section in header["sections"]]
    slots: list[tuple[Section, str | None]] = []
    for key, section in zip(keys, header["sections"], strict=True):
        slot_names: list[str | None] = [names[next(columns["name"])] for _ in range(section["slots"])]
        slots += [(key, name) for name in ([*slot_names[:-1], None] if section["others"] else slot_names)]
    cells: list[dict[int, tuple[int, int]]] = [{} for _ in slots]
    for slot, place in _places(columns["cell"], header["bins"]):
        cells[slot][place] = (next(columns["events"]), next(columns["time"]))
    rows: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for row, edge in _places(columns["crossing"], header["bins"]):
        rows[row][edge] = (next(columns["slot"]), next(columns["remainder"]))
    inside: dict[Section, dict[int, int]] = {key: {} for key in keys}
    for place, number in _places(columns["overlap"], header["bins"]):
        inside[keys[place]][number] = next(columns["surplus"])
    assert not any(list(column) for column in columns.values())
    return DecodedSums(header, slots, cells, list(rows.values()), inside)


class DecodedAccount(NamedTuple):
    """What a device did: (from, to, category) one after the other, or by bin, if `width`, the time of each category."""

    begin: int
    width: int
    pieces: list[tuple[int, int, str]]
    bins: dict[int, Counter[str]]

    def during(self, begin: int, end: int) -> Counter[str]:
        """The time by category of a span, which begins and ends at edges of bins if there are bins."""
        sums: Counter[str] = Counter()
        for start, stop, category in self.pieces:
            sums[category] += max(min(stop, end) - max(start, begin), 0)
        for number, times in self.bins.items():
            if begin <= self.begin + number * self.width < end:
                sums += times
        return +sums


def _accounts(account: dict[str, Any], header: dict[str, Any], binary: bytes) -> list[DecodedAccount]:
    columns = read_columns(account, binary)
    categories = [category for category, *_ in header["categories"]]
    accounts = []
    if not account["width_ns"]:
        lengths, names = iter(columns["length"]), iter(columns["category"])
        for count in account["counts"]:
            edges = [account["from_ns"], *accumulate(islice(lengths, count), initial=account["from_ns"])][1:]
            labels = [categories[name] for name in islice(names, count)]
            pieces = list(zip(edges, edges[1:], labels, strict=False))
            accounts.append(DecodedAccount(account["from_ns"], 0, pieces, {}))
        return accounts
    bins = (account["to_ns"] - account["from_ns"]) // account["width_ns"]
    all_bins: dict[int, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for place, time in zip(accumulate(columns["cell"]), columns["time"], strict=True):
        owner, number = divmod(place, bins)
        device, category = divmod(owner, len(categories))
        all_bins[device][number][categories[category]] += time
    return [
        DecodedAccount(account["from_ns"], account["width_ns"], [], dict(all_bins[device]))
        for device in range(len(header["activity_groups"]))
    ]


def _places(steps: Iterator[int], bins: int) -> Iterator[tuple[int, int]]:
    """What each place belongs to, and which bin it is."""
    return (divmod(place, bins) for place in accumulate(steps))
