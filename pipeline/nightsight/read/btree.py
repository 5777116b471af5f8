"""Reads whole numbers of an SQLite table from the pages of its file, five times as fast as SQLite.

Only files like those of nsys are read here: ordinary tables whose rows fit in their pages, without a concurrent writer.
Anything else is `Unusual`: SQLite must read it or refuse it. Words are those of
https://www.sqlite.org/fileformat2.html.
"""

from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

# few enough to stay in the processor's cache, together with the values computed from them
_BATCH_BYTES: Final = 1 << 19
# SQLite refuses deeper trees
_MOST_LEVELS: Final = 20
_INTERIOR, _LEAF = 5, 13
# the smallest cell, with its pointer
_CELL_BYTES: Final = 6
_NULL, _REAL, _ONE = 0, 7, 9
# the bytes of a value by its serial type: NULL, integers, a real, 0 and 1, two that are reserved, blobs and texts
_SIZE: Final = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((kind - 12) // 2 for kind in range(12, 128))])
# how far eight bytes are shifted that begin with a value, to leave only the value
_SHIFT: Final = 64 - 8 * np.clip(_SIZE, 1, 8)

_Array = np.ndarray[Any, Any]


class Unusual(Exception):
    """SQLite must read this table."""


class ColumnValues(NamedTuple):
    """Values of a column in some rows; missing: which are NULL, None if no row is."""

    values: _Array
    missing: _Array | None


class _Pages:
    """The pages of a file: `usable` bytes of `size` hold cells."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        header = file.read(100)
        # 1 means 65536
        self.size = int.from_bytes(header[16:18], "big")
        self.usable = self.size - header[20]
        # with a version of 2, rows may be in a file next to it
        if self.size < 512 or header[18:20] != b"\1\1":
            raise Unusual

    def read(self, numbers: _Array) -> _Array:
        """Return the bytes of pages, and eight more."""
        data = np.zeros(len(numbers) * self.size + 8, dtype=np.uint8)
        begin = 0
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
            end = begin + len(run) * self.size
            self._file.seek((int(run[0]) - 1) * self.size)
            if self._file.readinto(data[begin:end].data) != end - begin:
                raise Unusual
            begin = end
        return data

    def kind(self, number: int) -> int:
        self._file.seek((number - 1) * self.size)
        return self._file.read(1)[0]


def whole_numbers(path: Path, root: int, places: Sequence[int]) -> Iterator[list[ColumnValues]]:
    """Yield the columns at `places` of a row, batch by batch in the order of the file; Unusual at any time.

    root: the first page of the table. places: -1 is a column of NULL.
    """
    if any(path.with_name(path.name + suffix).exists() for suffix in ("-journal", "-wal")):
        raise Unusual
    try:
        with path.open("rb") as file:
            pages = _Pages(file)
            leaves = _leaves(pages, root, path.stat().st_size // pages.size)
            count = max(_BATCH_BYTES // pages.size, 1)
            for begin in range(0, len(leaves), count):
                yield _leaf_columns(pages, leaves[begin : begin + count], places)
    except (IndexError, ValueError, OSError) as error:
        # a damaged file
        raise Unusual from error


def _leaves(pages: _Pages, root: int, most: int) -> _Array:
    """Return the numbers of the leaf pages of a table, in order."""
    level = np.array([root])
    for _ in range(_MOST_LEVELS):
        if pages.kind(int(level[0])) == _LEAF:
            return level
        data = pages.read(level)
        _, cells, counts = _cells(data, pages, len(level), _INTERIOR)
        first = np.arange(len(level)) * pages.size
        # each cell begins with the page of smaller rows; the page of the largest rows is in the header
        level = np.insert(_big_endian(data, cells, 4), np.cumsum(counts), _big_endian(data, first + 8, 4))
        if len(level) > most:
            break
    raise Unusual


def _cells(data: _Array, pages: _Pages, count: int, kind: int) -> tuple[_Array, _Array, _Array]:
    """Return where the page of each cell begins, where the cell begins, and the number of cells of each page."""
    first = np.arange(count) * pages.size
    header = 12 if kind == _INTERIOR else 8
    counts = _big_endian(data, first + 3, 2)
    # only a table without rows has a page without any
    is_possible = (counts > 0) & (header + _CELL_BYTES * counts <= pages.usable)
    if (data[first] != kind).any() or not is_possible.all():
        raise Unusual
    page = np.repeat(first, counts)
    # after its header, a page has a pointer to each of its cells
    most = int(counts.max())
    pointers = np.ndarray((count, most), dtype=">u2", buffer=data, offset=header, strides=(pages.size, 2))
    return page, page + pointers[np.arange(most) < counts[:, None]], counts


def _leaf_columns(pages: _Pages, leaves: _Array, places: Sequence[int]) -> list[ColumnValues]:
    """Return columns of all rows in some leaf pages."""
    data = pages.read(leaves)
    page, at, _ = _cells(data, pages, len(leaves), _LEAF)
    nothing = ColumnValues(np.zeros(len(at), dtype=np.int64), np.ones(len(at), dtype=bool))
    size = data[at].astype(np.int64)
    is_long = size >= 128
    if is_long.any():
        second = data[at[is_long] + 1]
        if (second >= 128).any():
            raise Unusual
        size[is_long] = (size[is_long] & 127) << 7 | second
    at = _after_varint(data, at + 1 + is_long)
    end, header = at + size, data[at]
    if (
        (size > pages.usable - 35).any()
        or (end > page + pages.usable).any()
        or header.max() >= 128
        or header.min() < max(places, default=0) + 2
    ):
        raise Unusual
    # the eight bytes that begin with each byte
    words = np.ndarray(len(data) - 7, dtype=">i8", buffer=data, strides=(1,))
    columns = {-1: nothing}
    body = at + header
    for place in range(max(places, default=-1) + 1):
        kinds = data[place + 1 :].take(at)
        if (kinds == kinds[0]).all():
            kinds = kinds[:1]
        if kinds.max() >= 128:
            raise Unusual
        if place in places:
            columns[place] = _values_at(words, body, kinds)
        body += _SIZE.take(kinds)
    # of the last column the row ends
    if np.where(header == max(columns) + 2, body != end, body > end).any():
        raise Unusual
    return [columns[place] for place in places]


def _values_at(words: _Array, at: _Array, kinds: _Array) -> ColumnValues:
    """Return the values that begin at some bytes; kinds: the serial type of each, or that of all."""
    if kinds.max() > _ONE or (kinds == _REAL).any():
        raise Unusual
    missing = kinds == _NULL
    is_short = _SIZE.take(kinds) == 0
    if is_short.all():
        values = np.empty(len(at), dtype=np.int64)
        values[:] = kinds == _ONE
    else:
        values = words[at].astype(np.int64)
        values >>= _SHIFT.take(kinds)
        np.copyto(values, kinds == _ONE, where=is_short)
    return ColumnValues(values, np.broadcast_to(missing, values.shape) if missing.any() else None)


def _after_varint(data: _Array, at: _Array) -> _Array:
    """Return where the integers of one to nine bytes end that begin at some bytes."""
    goes_on = data[at] >= 128
    after = at + 1
    for _ in range(8):
        if not goes_on.any():
            break
        after += goes_on
        goes_on &= data[after - 1] >= 128
    return after


def _big_endian(data: _Array, at: _Array, count: int) -> _Array:
    """Return the unsigned integers of `count` bytes that begin at some bytes."""
    value = data[at].astype(np.int64)
    for place in range(1, count):
        value = value << 8 | data[at + place]
    return value
