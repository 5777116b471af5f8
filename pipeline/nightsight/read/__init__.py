"""Readers: turn a profiler's file into a Profile. The content decides which profiler it was, not the file name.

A reader is imported when a file of its kind is read.
"""

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path
from shlex import quote
from typing import Final, Literal

import numpy as np

from nightsight.errors import CaptureError
from nightsight.model.report import Profile
from nightsight.read.chrome import GZIP, MOST_BYTES
from nightsight.read.impossible import without_impossible
from nightsight.read.sqlite import MAGIC as SQLITE
from nightsight.tables import AS_RECORDED, Details, duration

Kind = Literal["nsys-rep", "nsys-sqlite", "ncu-rep", "ncu-csv", "kineto", "report"]
NSYS_KINDS: Final = frozenset[Kind](("nsys-rep", "nsys-sqlite"))
RANK_KINDS: Final = NSYS_KINDS | {"kineto"}
"""Those that can be captures of ranks of one job: those with a timeline."""
# the first bytes of each kind; `report` and `ncu-csv` are recognized by patterns
_SIGNATURES: Final[tuple[tuple[bytes, Kind], ...]] = (
    (SQLITE, "nsys-sqlite"),
    (b"NVIDIA Tegra Profiler Report", "nsys-rep"),
    (b"NVR\0", "ncu-rep"),
    (GZIP, "kineto"),
    (b"{", "kineto"),
    (b"[", "kineto"),
)
# a report.json starts with its format; a Chrome trace never does
_REPORT: Final = re.compile(rb'\s*\{\s*"format"\s*:')
# the output of the program may precede ncu's table and be long
_SEARCHED_BYTES: Final = 1 << 20
_SUPPORTED: Final = (
    "Supported files: .nsys-rep, its SQLite export, .ncu-rep, the raw and details CSV pages of ncu, "
    "torch.profiler traces (.json or .json.gz), report.json."
)
# compressed files that are not read; gzip is
_UNPACKERS: Final = {b"\xfd7zXZ\0": "xz -d", b"BZh": "bzip2 -d", b"\x28\xb5\x2f\xfd": "zstd -d"}

# half of int64, since some analyses add two such sums
_LARGEST_SUM: Final = 2.0**62

__all__ = ["MOST_BYTES", "NSYS_KINDS", "RANK_KINDS", "Kind", "read", "recognize"]


def recognize(path: Path) -> Kind:
    """Return the kind of a file; CaptureError if it cannot be opened or is not a supported file."""
    # a pipe can be read only once, and readers open a file several times
    if path.exists() and not path.is_file():
        raise CaptureError(f"{path} is not a regular file", "Save its content to a file first.")
    try:
        with path.open("rb") as file:
            start = file.read(_SEARCHED_BYTES)
    except OSError as error:
        raise CaptureError(f"cannot open {path}: {error.strerror}", _SUPPORTED) from error
    if start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        from nightsight.read.ncu.csv import text_of

        start = text_of(start).encode()
    head = start[:64]
    if not head:
        raise CaptureError(f"{path.name} is empty", "The profiler did not finish writing it. Capture again.")
    if _REPORT.match(head):
        return "report"
    # checked before the signatures: the output of the program may look like JSON
    if b"\0" not in start and _has_table_of_ncu(start):
        return "ncu-csv"
    for signature, kind in _SIGNATURES:
        if head.lstrip().startswith(signature):
            return kind
    for signature, command in _UNPACKERS.items():
        if head.startswith(signature):
            raise CaptureError(f"{path.name} is compressed", f"Decompress it first: {command} {quote(path.name)}")
    raise CaptureError(f"{path.name} is not a capture that nightsight can read", _SUPPORTED)


def _has_table_of_ncu(start: bytes) -> bool:
    from nightsight.read.ncu.csv import CSV_PATTERN

    return CSV_PATTERN.search(start) is not None


def read(path: Path, *, details: Details = True, most_bytes: int = MOST_BYTES) -> Profile:
    """Read an nsys SQLite export, ncu's report or CSV, or a torch.profiler trace.

    CaptureError if it is damaged or not a capture, or a trace larger than `most_bytes` uncompressed; ToolError without
    a library to read a .ncu-rep.

    `details`: which of the columns that no report needs are read (DETAILS in nightsight.tables). They take half of the
    time and memory of a large capture.
    """
    kind = recognize(path)
    if kind == "nsys-sqlite":
        from nightsight.read.nsys.tables import read_nsys

        profile = read_nsys(path, details=details)
        # the tables of `nsys stats` contain all rows, like NVIDIA's
        if not (isinstance(details, frozenset) and AS_RECORDED in details):
            profile = without_impossible(profile)
    elif kind == "kineto":
        from nightsight.read.kineto import read_kineto

        profile = without_impossible(read_kineto(path, most_bytes=most_bytes))
    elif kind == "ncu-rep":
        from nightsight.read.ncu.report import read_ncu_report

        profile = read_ncu_report(path)
    elif kind == "ncu-csv":
        from nightsight.read.ncu.csv import read_ncu_csv

        profile = read_ncu_csv(path)
    else:
        raise CaptureError(f"{path.name} is a {kind} file, which has no tables to read", _SUPPORTED)
    _refuse_overflow(path, profile)
    return profile


def _refuse_overflow(path: Path, profile: Profile) -> None:
    """Raise CaptureError if the sum of times or sizes exceeds int64: the sums of analyses would be wrong."""
    for name, table in profile.tables.items():
        sums = {}
        if {"start_ns", "end_ns"} <= set(table):
            sums["times"] = duration(table).to_numpy().sum(dtype=np.float64)
        if "bytes" in table:
            sums["sizes"] = np.abs(table["bytes"].to_numpy(dtype=np.float64, na_value=0)).sum()
        for values, total in sums.items():
            if total >= _LARGEST_SUM:
                raise CaptureError(
                    f"{path.name} is damaged: the {values} of its {name} add up to more than there can be",
                    "Capture again. If that does not help, please report it as a bug.",
                )
