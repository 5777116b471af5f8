import base64
import gzip
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.render.timeline.columns import columns, deflate, gzip_base64
from tests.timeline_payload import read_columns

LONG = 1 << 63
NUMBERS = st.lists(st.integers(-300, 300) | st.integers(-LONG, LONG - 1), max_size=50)


@given(st.lists(NUMBERS, max_size=4))
def test_numbers_come_back_column_by_column(values: list[list[int]]) -> None:
    named = {f"column {place}": column for place, column in enumerate(values)}
    written = columns({name: np.array(column, dtype=np.int64) for name, column in named.items()})
    before = b"what comes before"
    assert read_columns(written.header(len(before)), before + written.body.data) == named


@pytest.mark.parametrize(
    ("value", "width"),
    [
        *((0, 0), (1, 1), (127, 1), (128, 2), (32_767, 2), (32_768, 3), (-1, 1), (-128, 1), (-129, 2)),
        *(((1 << 31) - 1, 4), (1 << 31, 5), (-(1 << 31), 4), (-(1 << 31) - 1, 5), (LONG - 1, 8), (-LONG, 8)),
    ],
)
def test_a_column_has_the_bytes_that_its_largest_number_needs(value: int, width: int) -> None:
    written = columns({"one": np.array([0, value, 0])})
    assert written.shapes == {"one": (3, width)}
    assert len(written.body.data) == 3 * width
    assert read_columns(written.header(0), written.body.data) == {"one": [0, value, 0]}


def test_bytes_of_one_place_lie_side_by_side() -> None:
    assert columns({"a": np.array([0x0102, 0x0304]), "b": np.array([-1, 5])}).body.data == bytes([2, 4, 1, 3, 255, 5])


@pytest.mark.parametrize("size", [0, 1, 5 << 20])
def test_compressed_pieces_are_one_gzip_member(size: int) -> None:
    data = np.random.default_rng(0).integers(0, 9, size, dtype=np.uint8).tobytes()
    packed = base64.b64decode(gzip_base64([deflate(b"head"), deflate(data), deflate(b"")]))
    # the browser refuses bytes after the first member, and so does this
    member = zlib.decompressobj(wbits=31)
    assert member.decompress(packed) == b"head" + data
    assert member.eof
    assert not member.unused_data
    assert len(packed) < 1.01 * len(gzip.compress(data, 6)) + 100
