"""Builds rows of JSON from columns of text with Arrow: block by block, without a Python loop over events."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from nightsight.intervals import Flags, Floats, Ints

Text = Any
"""An Arrow array of text, or one text for all rows."""

_BLOCK: Final = 1 << 16


def blocks(begin: int, end: int) -> Iterator[slice]:
    """Split rows `begin` to `end` - 1 into slices that are small enough to hold in memory as text."""
    return (slice(first, min(first + _BLOCK, end)) for first in range(begin, end, _BLOCK))


def strings(texts: Iterable[str]) -> pa.Array:
    """Return an Arrow array of texts; the type is explicit so that it works for an empty array too."""
    return pa.array(texts, type=pa.string())


def digits(values: Ints | Floats) -> pa.Array:
    """Format numbers as text."""
    return pa.array(values).cast(pa.string())


def take(texts: pa.Array, positions: Ints) -> pa.Array:
    """Return the text at each position."""
    return texts.take(pa.array(positions))


def where(flags: Flags, texts: pa.Array) -> pa.Array:
    """Keep the flagged texts; the others become empty."""
    return pc.if_else(pa.array(flags), texts, "")


def join(*parts: Text) -> pa.Array:
    """Concatenate the parts of each row; at least one part is an array."""
    return pc.binary_join_element_wise(*parts, "")


def one_text(texts: pa.Array, separator: str) -> bytes:
    """Join all rows into one text, as bytes."""
    one_list = pa.ListArray.from_arrays([0, len(texts)], texts)
    return bytes(pc.binary_join(one_list, separator)[0].as_buffer())
