"""Readers: turn a profiler's file into a Profile. The content decides which profiler it was, not the file name."""

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import Final, Literal

import numpy as np

from nightsight.errors import CaptureError
from nightsight.model.report import Profile
from nightsight.read.chrome import MOST_BYTES
from nightsight.read.impossible import without_impossible
from nightsight.read.kineto import read_kineto
from nightsight.read.ncu.blocks import MAGIC as NCU_REPORT
from nightsight.read.ncu.csv import SIGNS as NCU_CSV
from nightsight.read.ncu.csv import read_ncu_csv, text_of
from nightsight.read.ncu.report import read_ncu_report
from nightsight.read.nsys.tables import read_nsys
from nightsight.read.sqlite import MAGIC as SQLITE
from nightsight.tables import AS_RECORDED, Details, duration

Kind = Literal["nsys-rep", "nsys-sqlite", "ncu-rep", "ncu-csv", "kineto", "report"]
_HEADS: Final[tuple[tuple[bytes, Kind], ...]] = (
    (SQLITE, "nsys-sqlite"),
    (b"NVIDIA Tegra Profiler Report", "nsys-rep"),
    (NCU_REPORT, "ncu-rep"),
    (b"\x1f\x8b", "kineto"),
    (b"{", "kineto"),
    (b"[", "kineto"),
)
# a report.json starts with its format; a Chrome trace never does
_REPORT: Final = re.compile(rb'\s*\{\s*"format"\s*:')
# the program's output may come first, and ncu's table long after it
_SEARCHED_BYTES: Final = 1 << 20
_READABLE: Final = (
    "Supported files: .nsys-rep, its SQLite export, .ncu-rep, the raw and details CSV pages of ncu, "
    "torch.profiler traces (.json or .json.gz), report.json."
)
# archives of one capture; gzip is read as it is
_PACKED: Final = {b"\xfd7zXZ\0": "xz -d", b"BZh": "bzip2 -d", b"\x28\xb5\x2f\xfd": "zstd -d"}

# half of int64, since some analyses add up two such sums
_MOST: Final = 2.0**62

_READERS: Final[Mapping[Kind, Callable[[Path], Profile]]] = {
    "ncu-rep": read_ncu_report,
    "ncu-csv": read_ncu_csv,
}

__all__ = ["MOST_BYTES", "Kind", "read", "recognize"]


def recognize(path: Path) -> Kind:
    """Return the kind of a file; CaptureError if it cannot be opened or is not a supported file."""
    start = _beginning(path)
    if start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        start = text_of(start).encode()
    head = start[:64]
    if not head:
        raise CaptureError(f"{path.name} is empty", "The profiler did not finish writing it. Capture again.")
    if _REPORT.match(head):
        return "report"
    # checked before the heads: the program's output may look like JSON
    if b"\0" not in start and NCU_CSV.search(start):
        return "ncu-csv"
    for sign, kind in _HEADS:
        if head.lstrip().startswith(sign):
            return kind
    raise _unreadable(path, head)


def _unreadable(path: Path, head: bytes) -> CaptureError:
    unpack = next((command for sign, command in _PACKED.items() if head.startswith(sign)), "")
    if unpack:
        return CaptureError(f"{path.name} is compressed", f"Decompress it first: {unpack} {quote(path.name)}")
    return CaptureError(f"{path.name} is not a capture that nightsight can read", _READABLE)


def _beginning(path: Path) -> bytes:
    # a pipe can be read only once, and readers open a file several times
    if path.exists() and not path.is_file():
        raise CaptureError(f"{path} is not a regular file", "Save its content to a file first.")
    try:
        with path.open("rb") as file:
            return file.read(_SEARCHED_BYTES)
    except OSError as error:
        raise CaptureError(f"cannot open {path}: {error.strerror}", _READABLE) from error


def read(path: Path, *, details: Details = True, most_bytes: int = MOST_BYTES) -> Profile:
    """Read an nsys SQLite export, ncu's report or CSV, or a torch.profiler trace.

    CaptureError if it is damaged or not a capture, or a trace larger than `most_bytes` uncompressed; ToolError without
    a library to read a .ncu-rep.

    `details` says which of the columns are read that no report needs (DETAILS in nightsight.tables). They take half of
    the time and memory of a large capture.
    """
    kind = recognize(path)
    if kind == "nsys-sqlite":
        profile = read_nsys(path, details=details)
        # the tables of `nsys stats` have every row that NVIDIA's have
        as_recorded = isinstance(details, frozenset) and AS_RECORDED in details
        profile = profile if as_recorded else without_impossible(profile)
    elif kind == "kineto":
        profile = without_impossible(read_kineto(path, most_bytes=most_bytes))
    elif kind in _READERS:
        profile = _READERS[kind](path)
    else:
        raise CaptureError(f"{path.name} is a {kind} file, which has no tables to read", _READABLE)
    _refuse_endless(path, profile)
    return profile


def _refuse_endless(path: Path, profile: Profile) -> None:
    """Raise CaptureError if times or sizes add up to more than int64 holds: sums of analyses would be wrong."""
    for name, table in profile.tables.items():
        sums = {}
        if {"start_ns", "end_ns"} <= set(table):
            sums["times"] = duration(table).to_numpy().sum(dtype=np.float64)
        if "bytes" in table:
            sums["sizes"] = np.abs(table["bytes"].to_numpy(dtype=np.float64, na_value=0)).sum()
        for what, total in sums.items():
            if total >= _MOST:
                raise CaptureError(
                    f"{path.name} is damaged: the {what} of its {name} add up to more than there can be",
                    "Capture again. If that does not help, please report it as a bug.",
                )
