"""Rows of JSON, put together by Arrow from columns of text: no loop over events, a block of them at a time."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from nightsight.intervals import Flags, Ints
from nightsight.render.table.view import Floats

Text = Any
"""An Arrow array of text, or one text for all rows."""

_BLOCK: Final = 1 << 16


def blocks(begin: int, end: int) -> Iterator[slice]:
    """Cut rows `begin` to `end` - 1 into slices that fit into memory as text."""
    return (slice(first, min(first + _BLOCK, end)) for first in range(begin, end, _BLOCK))


def strings(texts: Iterable[str]) -> pa.Array:
    """Make an array of texts, none as well."""
    return pa.array(texts, type=pa.string())


def digits(values: Ints | Floats) -> pa.Array:
    """Write numbers."""
    return pa.array(values).cast(pa.string())


def take(texts: pa.Array, positions: Ints) -> pa.Array:
    """Return the text at each position."""
    return texts.take(pa.array(positions))


def where(flags: Flags, texts: pa.Array) -> pa.Array:
    """Keep the texts that are flagged, and leave the others empty."""
    return pc.if_else(pa.array(flags), texts, "")


def join(*parts: Text) -> pa.Array:
    """Put the parts of each row together; one of them at least is an array."""
    return pc.binary_join_element_wise(*parts, "")


def one_text(texts: pa.Array, separator: str) -> bytes:
    """Put all rows into one text."""
    listed = pa.ListArray.from_arrays([0, len(texts)], texts)
    return bytes(pc.binary_join(listed, separator)[0].as_buffer())
