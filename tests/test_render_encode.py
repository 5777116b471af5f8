import base64
import gzip
import zlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.render.timeline.encode import deflated, foretold, gzip_base64, varints, zigzag
from tests.timeline_payload import numbers, signed

NATURALS = st.lists(st.integers(0, 300) | st.integers(0, (1 << 63) - 1), max_size=50)


@given(NATURALS, st.lists(st.integers(0, 50), max_size=4))
def test_numbers_come_back_piece_by_piece(values: list[int], cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    pieces = varints(np.array(values, dtype=np.int64), np.array(bounds))
    assert [numbers(piece) for piece in pieces] == [values[begin:end] for begin, end in pairwise(bounds)]


@pytest.mark.parametrize(("value", "size"), [(0, 1), (127, 1), (128, 2), (16383, 2), (16384, 3), ((1 << 63) - 1, 9)])
def test_a_number_takes_a_byte_for_each_seven_bits(value: int, size: int) -> None:
    (piece,) = varints(np.array([value]), np.array([0, 1]))
    assert len(piece) == size


@given(st.lists(st.integers(-(1 << 61), 1 << 61)))
def test_zigzag_keeps_small_numbers_of_either_sign_small(values: list[int]) -> None:
    coded = zigzag(np.array(values, dtype=np.int64)).tolist()
    assert [signed(value) for value in coded] == values
    assert all(code in (2 * abs(value), 2 * abs(value) - 1) for code, value in zip(coded, values, strict=True))


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 5 << 20])
def test_compressed_pieces_are_one_gzip_member(size: int) -> None:
    data = np.random.default_rng(0).integers(0, 9, size, dtype=np.uint8).tobytes()
    packed = base64.b64decode(gzip_base64([deflated(b"head"), deflated(data), deflated(b"")]))
    # the browser refuses bytes after the first member, and so does this
    member = zlib.decompressobj(wbits=31)
    assert member.decompress(packed) == b"head" + data
    assert member.eof
    assert not member.unused_data
    assert gzip_base64([deflated(b"head"), deflated(data), deflated(b"")]) == base64.b64encode(packed)
    assert len(packed) < 1.01 * len(gzip.compress(data, 6)) + 100


def test_blocks_refer_to_those_before_them() -> None:
    block = np.random.default_rng(0).integers(0, 256, 1 << 14, dtype=np.uint8).tobytes()
    assert len(deflated(block * 200).compressed) < 3 * len(block)


def test_a_sample_foretells_the_size_of_the_whole() -> None:
    data = np.random.default_rng(1).normal(60, 4, 1_000_000).astype(np.uint8).tobytes()
    sample = data[:50_000]
    size = len(deflated(data).compressed)
    assert foretold(sample, 20.0) == pytest.approx(size, rel=0.05)
    assert foretold(b"", 1.0) < 10
