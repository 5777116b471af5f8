"""Checks the framing of .ncu-rep files (version 7, as documented by NVIDIA) to detect damaged files.

Layout: `NVR\\0`, the size of the header, the header; then blocks: the size of a block header, that header, and the
payload, each entry preceded by its size. All messages are protobuf. The format has neither checksums nor a block
count. So a flipped bit in a number or a text goes unnoticed, as does a file cut exactly after a launch, which looks
like that of a shorter run. All other cuts, and flipped bits in the framing, are detected.
"""

import datetime as dt
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nightsight.errors import CaptureError
from nightsight.model.report import Environment

MAGIC: Final = b"NVR\x00"
Fields = dict[int, list["int | memoryview"]]
_HINT: Final = "ncu did not finish writing it, or it was damaged in a copy. Profile or copy it again."
_VERSION: Final = 7
_SIZE: Final = struct.Struct("<I")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# fields of BlockHeader (ProfilerReport.proto, in ncu's extras/FileFormat)
_SOURCES, _SESSION, _STRINGS, _PAYLOAD, _PROCESS = 1, 3, 4, 5, 6
_RESULTS: Final = {2: "kernel", 7: "range", 8: "command list", 9: "graph"}


@dataclass(frozen=True)
class Launch:
    """One result as the framing describes it; `metrics`: its number of metric names, None if it is not a kernel."""

    kind: str
    pid: int
    function: str = ""
    grid: tuple[int, ...] = (0, 0, 0)
    block: tuple[int, ...] = (0, 0, 0)
    context: int = 0
    stream: int = 0
    metrics: int | None = None


@dataclass(frozen=True)
class Blocks:
    """The launches of a report in file order, and the facts about the machine and the tool."""

    launches: tuple[Launch, ...]
    environment: Environment


def read_blocks(path: Path) -> Blocks:
    """Walk through a .ncu-rep file; CaptureError if it is damaged, truncated or without launches."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CaptureError(f"{path.name} cannot be read: {error.strerror}", "Check path and permissions.") from error
    try:
        return _Walk(memoryview(content)).blocks()
    except _Damaged as error:
        raise CaptureError(f"{path.name} is damaged or truncated: {error}", _HINT) from error


class _Damaged(ValueError):
    """The bytes do not follow the format; the message says what is wrong."""


@dataclass
class _Walk:
    """The state of a walk through all blocks; `last_entry`: the kind of the last entry of a payload."""

    content: memoryview
    place: int = 0
    strings: list[str] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    session: Fields = field(default_factory=dict)
    last_entry: str = ""

    def blocks(self) -> Blocks:
        if bytes(self._take(len(MAGIC), "its beginning")) != MAGIC:
            raise _Damaged("it does not begin like a report")
        version = _integer(_fields(self._sized("its header")), 1)
        if version != _VERSION:
            raise _Damaged(f"its format version is {version}, only {_VERSION} is supported")
        while self.place < len(self.content):
            self._block()
        environment = _environment(self.session)
        if not self.launches:
            raise _Damaged("it has no launches")
        if not environment.collector_version or self.last_entry == "source":
            raise _Damaged("a part that ncu writes with each launch is missing")
        return Blocks(tuple(self.launches), environment)

    def _block(self) -> None:
        header = _fields(self._sized("a block's header"))
        self.strings += [_text(value) for value in _messages(header, _STRINGS).get(1, [])]
        for number, values in _messages(header, _SESSION).items():
            self.session.setdefault(number, []).extend(values)
        process = _integer(_messages(header, _PROCESS), 1) or _integer(self.session, 1)
        end = self.place + _integer(header, _PAYLOAD)
        for _ in range(_integer(header, _SOURCES)):
            _fields(self._sized("the code of a kernel"))
            self.last_entry = "source"
        for number, kind in _RESULTS.items():
            for _ in range(_integer(header, number)):
                self.launches.append(self._launch(kind, process, _fields(self._sized("a launch"))))
                self.last_entry = kind
        if self.place != end:
            raise _Damaged("the size of a block differs from its header")

    def _launch(self, kind: str, pid: int, result: Fields) -> Launch:
        if kind != "kernel":
            return Launch(kind, pid)
        grid, block = (tuple(_integer(_messages(result, number), axis) for axis in (1, 2, 3)) for number in (10, 11))
        return Launch(
            kind,
            pid,
            function=_first_text(result, 6),
            grid=grid,
            block=block,
            context=_integer(result, 22),
            stream=_integer(result, 23),
            metrics=len({self._metric_name(value) for value in result.get(13, [])}),
        )

    def _metric_name(self, metric: "int | memoryview") -> str:
        # the id of the name is the first field of each metric; the others are skipped, since they can be thousands
        if isinstance(metric, int) or len(metric) < 2 or metric[0] != 1 << 3:
            raise _Damaged("a metric has no name")
        number, _ = _varint(metric, 1)
        if number >= len(self.strings):
            raise _Damaged("the name of a metric is missing")
        return self.strings[number]

    def _sized(self, what: str) -> memoryview:
        (size,) = _SIZE.unpack(self._take(_SIZE.size, what))
        return self._take(size, what)

    def _take(self, size: int, what: str) -> memoryview:
        part = self.content[self.place : self.place + size]
        if len(part) < size:
            raise _Damaged(f"it ends inside {what}")
        self.place += size
        return part


def _environment(session: Fields) -> Environment:
    versions = {}
    for value in session.get(8, []):
        provider = _fields(value)
        versions[_first_text(provider, 1)] = _first_text(provider, 2)
    system = _messages(session, 4) or _messages(session, 3)
    ncu = next((version for name, version in versions.items() if name.startswith("Nsight Compute")), "")
    created = _integer(session, 2)
    # up to the year 2100
    start = dt.datetime.fromtimestamp(created, dt.UTC) if 0 < created < 4_102_444_800 else None
    return Environment(
        collector="ncu",
        collector_version=ncu.partition(" ")[0],
        captured_utc=f"{start:%Y-%m-%d %H:%M:%S}" if start else "",
        cuda=versions.get("CUDA Version", ""),
        cpu=_first_text(system, 3),
        os=_first_text(system, 1),
    )


def _fields(message: "int | memoryview") -> Fields:
    """Split a protobuf message into its fields, by number; _Damaged if it is not a message."""
    if isinstance(message, int):
        raise _Damaged("a number stands where a message should")
    fields: Fields = {}
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        read = _READERS.get(tag & 7)
        if read is None or tag < 8:
            raise _Damaged("a message has a field of unknown type")
        value, place = read(message, place)
        if place > len(message):
            raise _Damaged("a field extends beyond the end of its message")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = 0
    # a 64-bit number takes at most ten bytes
    for shift, byte in enumerate(message[place : place + 10]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, place + shift + 1
    raise _Damaged("a number does not end")


def _sized_bytes(message: memoryview, place: int) -> tuple[memoryview, int]:
    size, place = _varint(message, place)
    return message[place : place + size], place + size


_READERS: Final[dict[int, Callable[[memoryview, int], "tuple[int | memoryview, int]"]]] = {
    _VARINT: _varint,
    _FIXED64: lambda message, place: (message[place : place + 8], place + 8),
    _BYTES: _sized_bytes,
    _FIXED32: lambda message, place: (message[place : place + 4], place + 4),
}


def _messages(fields: Fields, number: int) -> Fields:
    """Return the fields of the message in field `number`; {} if it is absent."""
    merged: Fields = {}
    for value in fields.get(number, []):
        for inner, values in _fields(value).items():
            merged.setdefault(inner, []).extend(values)
    return merged


def _integer(fields: Fields, number: int) -> int:
    """Return the first number in a field; 0 if it is absent."""
    value = fields.get(number, [0])[0]
    if not isinstance(value, int):
        raise _Damaged("a message stands where a number should")
    if value >= 1 << 63:
        raise _Damaged("a number is out of range")
    return value


def _first_text(fields: Fields, number: int) -> str:
    return _text(fields[number][0]) if number in fields else ""


def _text(value: "int | memoryview") -> str:
    try:
        if isinstance(value, int):
            raise _Damaged("a number stands where a text should")
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        raise _Damaged("a text is not UTF-8") from error
