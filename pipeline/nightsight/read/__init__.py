"""Readers: a file a profiler wrote becomes a Profile. Which profiler it was is told by the content, not the name."""

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

from nightsight.errors import CaptureError
from nightsight.model import Profile
from nightsight.read.chrome import MOST_BYTES
from nightsight.read.kineto import read_kineto
from nightsight.read.ncu.blocks import MAGIC as NCU_REPORT
from nightsight.read.ncu.csv import SIGNS as NCU_CSV
from nightsight.read.ncu.csv import read_ncu_csv, text_of
from nightsight.read.ncu.report import read_ncu_report
from nightsight.read.nsys.tables import read_nsys
from nightsight.read.sqlite import MAGIC as SQLITE

Kind = Literal["nsys-rep", "nsys-sqlite", "ncu-rep", "ncu-csv", "kineto", "report"]
_HEADS: Final[tuple[tuple[bytes, Kind], ...]] = (
    (SQLITE, "nsys-sqlite"),
    (b"NVIDIA Tegra Profiler Report", "nsys-rep"),
    (NCU_REPORT, "ncu-rep"),
    (b"\x1f\x8b", "kineto"),
    (b"{", "kineto"),
    (b"[", "kineto"),
)
# a report.json begins with its format; a Chrome trace never does
_REPORT: Final = re.compile(rb'\s*\{\s*"format"\s*:')
# a program may have written a lot before ncu's table
_SEARCHED_BYTES: Final = 1 << 20
_READABLE: Final = (
    "readable: .nsys-rep, its SQLite export, .ncu-rep, ncu's CSV pages raw and details, "
    "a torch.profiler trace (.json or .json.gz), report.json"
)

_READERS: Final[Mapping[Kind, Callable[[Path], Profile]]] = {
    "ncu-rep": read_ncu_report,
    "ncu-csv": read_ncu_csv,
}

__all__ = ["MOST_BYTES", "Kind", "read", "recognize"]


def recognize(path: Path) -> Kind:
    """Say what kind of file this is; CaptureError if it cannot be opened or is none of ours."""
    start = _beginning(path)
    if start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        start = text_of(start).encode()
    head = start[:64]
    if not head:
        raise CaptureError(f"{path.name} is empty", "the profiler did not finish writing it; capture again")
    if _REPORT.match(head):
        return "report"
    # before the heads: a program may have written what looks like JSON
    if b"\0" not in start and NCU_CSV.search(start):
        return "ncu-csv"
    for sign, kind in _HEADS:
        if head.lstrip().startswith(sign):
            return kind
    raise CaptureError(f"{path.name} is no capture that nightsight knows", _READABLE)


def _beginning(path: Path) -> bytes:
    # a pipe gives its content once, when somebody writes to it, and readers look at a file more than once
    if path.exists() and not path.is_file():
        raise CaptureError(f"{path} is not a regular file", "Save what it gives to a file first, and name that one.")
    try:
        with path.open("rb") as file:
            return file.read(_SEARCHED_BYTES)
    except OSError as error:
        raise CaptureError(f"cannot open {path}: {error.strerror}", _READABLE) from error


def read(path: Path, *, details: bool = True, most_bytes: int = MOST_BYTES) -> Profile:
    """Read an nsys SQLite export, ncu's report or CSV, or a torch.profiler trace.

    CaptureError if it is damaged or something else; ToolError if there is no library to read a .ncu-rep with.

    Without `details`, columns that no report needs (DETAILS in nightsight.tables) may be left out: half the time and
    memory of a large capture. A trace with more than `most_bytes`, unpacked, is refused.
    """
    kind = recognize(path)
    if kind == "nsys-sqlite":
        return read_nsys(path, details=details)
    if kind == "kineto":
        return read_kineto(path, most_bytes=most_bytes)
    if kind in _READERS:
        return _READERS[kind](path)
    raise CaptureError(f"{path.name} is a {kind} file, which holds no tables to read", _READABLE)
