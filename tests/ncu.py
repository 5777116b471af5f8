"""The recorded ncu files of tests/data/ncu, and files like them made up byte by byte or row by row."""

import csv
import functools
import io
import lzma
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

DATA = Path(__file__).parent / "data" / "ncu"
IDENTITY = (
    *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name"),
    *("Context", "Stream", "Block Size", "Grid Size", "Device", "CC"),
)
DETAILS = (*IDENTITY, "Section Name", "Metric Name", "Metric Unit", "Metric Value")
RULES = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")


@functools.cache
def content(name: str) -> bytes:
    """Return what a recorded file holds."""
    return lzma.decompress((DATA / f"{name}.xz").read_bytes())


def unpack(name: str, folder: Path) -> Path:
    """Write a recorded file into `folder`."""
    target = folder / name
    target.write_bytes(content(name))
    return target


def identity(number: int = 0, *, pid: int = 7, kernel: str = "k(int)", device: int = 0) -> list[str]:
    """Return the cells of IDENTITY of a launch."""
    return [
        str(number),
        str(pid),
        "program",
        "127.0.0.1",
        kernel,
        "1",
        "7",
        "(64, 1, 1)",
        "(8, 2, 1)",
        str(device),
        "9.0",
    ]


def page(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write rows as ncu does: all cells in quotes."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def raw_page(metrics: dict[str, tuple[str, str]], launches: Sequence[Sequence[str]] = (identity(),)) -> str:
    """Write a raw page of metrics: their unit and their value, the same for all launches."""
    units = [""] * len(IDENTITY) + [unit for unit, _ in metrics.values()]
    rows = [[*launch, *(value for _, value in metrics.values())] for launch in launches]
    return page((*IDENTITY, *metrics), [units, *rows])


def comparable(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose categories are plain text, so that two tables with other categories compare."""
    texts = {name: "object" for name, kind in frame.dtypes.items() if kind == "category"}
    return frame.astype(texts)


def field(number: int, value: int | str | bytes) -> bytes:
    """Encode one field of a protobuf message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    body = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def sized(message: bytes) -> bytes:
    """Put the size of an entry before it."""
    return struct.pack("<I", len(message)) + message


def report(*blocks: bytes, version: int = 7) -> bytes:
    """Return a .ncu-rep file of these blocks."""
    return b"NVR\0" + sized(field(1, version)) + b"".join(blocks)


def block(header: bytes, *entries: bytes) -> bytes:
    """Return a block of a .ncu-rep file; the header gets the size of the entries."""
    payload = b"".join(map(sized, entries))
    return sized(header + field(5, len(payload))) + payload


def _varint(value: int) -> bytes:
    digits = []
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])
