"""Whole numbers as bytes: LEB128 varints, signed ones zigzag, and one gzip member made by several threads."""

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from nightsight.intervals import Ints
from nightsight.parallel import mapped

_BLOCK: Final = 1 << 20
# how far back deflate refers
_REACH: Final = 1 << 15
# of large data the last levels make little less, in four times the time
_LARGE: Final = 1 << 22
_QUICK: Final = 7
_BEST: Final = 9
# deflate, no flags, time 0, compressed as well as it can be, made on no system in particular
_HEAD: Final = bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 2, 255))
# the end of the data: a block of no bytes
_LAST_BLOCK: Final = b"\x03\x00"
# the least that a sample can tell more of than its own size
_REFERRING: Final = 64

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Naturals = np.ndarray[Any, np.dtype[np.uint64]]


def zigzag(values: Ints) -> Ints:
    """Map 0, -1, 1, -2... to 0, 1, 2, 3..., so that small numbers of either sign are small; of less than 2^62."""
    return (values << 1) ^ (values >> 63)


def varints(values: Ints, bounds: Ints) -> list[bytes]:
    """Write numbers, none below 0, seven bits a byte, the lowest first, bit 7 set in all bytes but a number's last.

    One piece for each two neighbours in `bounds`, which are rising positions in `values`.
    """
    if not len(values) or int(values.max()) < 0x80:
        small = values.astype(np.uint8)
        return [small[begin:end].tobytes() for begin, end in pairwise(bounds.tolist())]
    written, after = _written(values)
    edges = np.append(0, after)[bounds]
    return [written[begin:end].tobytes() for begin, end in pairwise(edges.tolist())]


def _written(values: Ints) -> tuple[Bytes, Ints]:
    """Return the bytes of all numbers, and how many bytes there are up to the end of each."""
    size = np.ones(len(values), dtype=np.uint8)
    longer = np.flatnonzero(values >> 7)
    stages = [longer]
    shift = 7
    while len(longer):
        size[longer] += 1
        shift += 7
        longer = longer[(values[longer] >> shift) > 0]
        stages.append(longer)
    after = np.cumsum(size, dtype=np.int64)
    written = np.empty(int(after[-1]), dtype=np.uint8)
    begin = after - size
    written[begin] = values & 0x7F
    for place, some in enumerate(stages[:-1], start=1):
        at = begin[some] + place
        written[at - 1] |= 0x80
        written[at] = (values[some] >> 7 * place) & 0x7F
    return written, after


@dataclass(frozen=True)
class Deflated:
    """Bytes, and the same compressed: pieces that can be put one after another into one gzip member."""

    data: bytes
    compressed: bytes


def deflated(data: bytes) -> Deflated:
    """Compress blocks at the same time, each knowing the one before: the same bytes however many threads there are."""
    level = _BEST if len(data) <= _LARGE else _QUICK
    starts = range(0, len(data), _BLOCK)
    return Deflated(data, b"".join(mapped(lambda at: _block(data, at, level), starts)))


def _block(data: bytes, begin: int, level: int) -> bytes:
    compressor = zlib.compressobj(level, wbits=-15, memLevel=9, zdict=data[max(begin - _REACH, 0) : begin])
    return compressor.compress(data[begin : begin + _BLOCK]) + compressor.flush(zlib.Z_SYNC_FLUSH)


def gzip_base64(pieces: Sequence[Deflated]) -> bytes:
    """Return the pieces, one after another, as one gzip member in base64."""
    check = size = 0
    for piece in pieces:
        check, size = zlib.crc32(piece.data, check), size + len(piece.data)
    tail = struct.pack("<II", check, size & 0xFFFFFFFF)
    return base64.b64encode(b"".join([_HEAD, *(piece.compressed for piece in pieces), _LAST_BLOCK, tail]))


def foretold(sample: bytes, factor: float) -> float:
    """Return about how many bytes data takes compressed that is `factor` times as much as its sample.

    What counts is the second half of it: the first has little to refer back to, which most of the data has.
    """
    if factor <= 1 or len(sample) < _REFERRING:
        return factor * _quickly(sample)
    half = len(sample) // 2
    return factor * (_quickly(sample) - _quickly(sample[:half])) * len(sample) / (len(sample) - half)


def _quickly(data: bytes) -> int:
    compressor = zlib.compressobj(_QUICK, wbits=-15, memLevel=9)
    return len(compressor.compress(data)) + len(compressor.flush())
