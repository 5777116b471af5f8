"""Whole numbers as columns of bytes, which the page reads into typed arrays, and parts of a page as one gzip member."""

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nightsight.intervals import Ints

# further levels make less than 0.3 % less, in twice the time
_LEVEL: Final = 7
# deflate, no flags, time 0, compressed as well as it can be, made on no system in particular
_HEAD: Final = bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 2, 255))
# the end of the data: a block of no bytes
_LAST_BLOCK: Final = b"\x03\x00"


@dataclass(frozen=True)
class Deflated:
    """Bytes, and the same compressed: pieces that can be put one after another into one gzip member."""

    data: bytes
    compressed: bytes


@dataclass(frozen=True)
class Columns:
    """Columns of whole numbers as the page has them, one after another; `shapes`: how many numbers, of how many bytes.

    Of a column the lowest bytes of all numbers come first, then their second bytes, up to the last that any of them
    needs in two's complement. Bytes of one place are alike, and those of high places are few: so they deflate well, and
    one loop reads them.
    """

    shapes: dict[str, tuple[int, int]]
    body: Deflated

    def header(self, at: int) -> dict[str, Any]:
        """Describe the columns, of which the first begins at `at` in the binary."""
        return {"at": at, "columns": self.shapes}


def columns(values: Mapping[str, Ints]) -> Columns:
    """Write numbers by the names of their columns."""
    shapes = {name: (len(column), _width(column)) for name, column in values.items()}
    return Columns(shapes, deflated(b"".join(_transposed(values[name], width) for name, (_, width) in shapes.items())))


def _width(values: Ints) -> int:
    """Return how many bytes the numbers need with their sign: none if all of them are 0."""
    if not values.any():
        return 0
    # below 0, the complement needs as many bits as the number
    bits = max(int(values.max()), ~int(values.min())).bit_length() + 1
    return -(-bits // 8)


def _transposed(values: Ints, width: int) -> bytes:
    size = 4 if width <= 4 else 8
    return values.astype(f"<i{size}").view(np.uint8).reshape(-1, size).T[:width].tobytes()


def deflated(data: bytes) -> Deflated:
    """Compress bytes to a piece that others can follow."""
    compressor = zlib.compressobj(_LEVEL, wbits=-15)
    return Deflated(data, compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH))


def gzip_base64(pieces: Sequence[Deflated]) -> bytes:
    """Return the pieces, one after another, as one gzip member in base64."""
    check = size = 0
    for piece in pieces:
        check, size = zlib.crc32(piece.data, check), size + len(piece.data)
    tail = struct.pack("<II", check, size & 0xFFFFFFFF)
    return base64.b64encode(b"".join([_HEAD, *(piece.compressed for piece in pieces), _LAST_BLOCK, tail]))
