"""Readers: a file a profiler wrote becomes a Profile. Which profiler it was is told by the content, not the name."""

import re
from pathlib import Path
from typing import Final, Literal

from pipeline.errors import CaptureError
from pipeline.model import Profile
from pipeline.read.kineto import read_kineto
from pipeline.read.nsys import read_nsys
from pipeline.read.sqlite import MAGIC as SQLITE

Kind = Literal["nsys-rep", "nsys-sqlite", "kineto", "report"]
_HEADS: Final[tuple[tuple[bytes, Kind], ...]] = (
    (SQLITE, "nsys-sqlite"),
    (b"NVIDIA Tegra Profiler Report", "nsys-rep"),
    (b"\x1f\x8b", "kineto"),
    (b"{", "kineto"),
    (b"[", "kineto"),
)
# a report.json begins with its format; a Chrome trace never does
_REPORT: Final = re.compile(rb'\s*\{\s*"format"\s*:')
_READABLE: Final = "readable: .nsys-rep, its SQLite export, a torch.profiler trace (.json or .json.gz), report.json"

__all__ = ["Kind", "read", "recognize"]


def recognize(path: Path) -> Kind:
    """Say what kind of file this is; CaptureError if it cannot be opened or is none of ours."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise CaptureError(f"cannot open {path}: {error.strerror}", _READABLE) from error
    if not head:
        raise CaptureError(f"{path.name} is empty", "the profiler did not finish writing it; capture again")
    if _REPORT.match(head):
        return "report"
    for start, kind in _HEADS:
        if head.lstrip().startswith(start):
            return kind
    raise CaptureError(f"{path.name} is no capture that nightsight knows", _READABLE)


def read(path: Path) -> Profile:
    """Read an nsys SQLite export or a torch.profiler trace; CaptureError if it is damaged or something else."""
    kind = recognize(path)
    if kind == "nsys-sqlite":
        return read_nsys(path)
    if kind == "kineto":
        return read_kineto(path)
    raise CaptureError(f"{path.name} is a {kind} file, which holds no tables to read", _READABLE)
