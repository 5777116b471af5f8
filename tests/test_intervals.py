"""The interval algorithms against brute force."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.intervals import busy, contained, innermost, outer, union

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=25).map(
    lambda spans: sorted(((start, start + length) for start, length in spans), key=lambda span: (span[0], -span[1]))
)


def columns(spans: list[tuple[int, int]]) -> tuple[Any, Any]:
    array = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


@given(SPANS)
def test_union_is_disjoint_ordered_and_covers_the_same_instants(spans: list[tuple[int, int]]) -> None:
    start, end = union(*columns(spans))
    assert (start[1:] > end[:-1]).all()
    covered = {time for low, high in spans for time in range(low, high)}
    merged = {time for low, high in zip(start, end, strict=True) for time in range(low, high)}
    assert merged == covered


@given(SPANS, st.integers(0, 90), st.integers(0, 40))
def test_busy_counts_each_instant_of_the_window_once(spans: list[tuple[int, int]], low: int, length: int) -> None:
    covered = {time for start, end in spans for time in range(start, end)} & set(range(low, low + length))
    assert busy(*columns(spans), (low, low + length)) == len(covered)


@given(SPANS)
def test_outer_is_the_nearest_earlier_span_that_reaches_as_far(spans: list[tuple[int, int]]) -> None:
    _, end = columns(spans)
    expected = [max((j for j in range(i) if end[j] >= end[i]), default=-1) for i in range(len(spans))]
    assert outer(end).tolist() == expected


@given(SPANS, st.lists(st.integers(-1, 95), max_size=20))
def test_innermost_is_the_latest_started_open_span(spans: list[tuple[int, int]], times: list[int]) -> None:
    start, end = columns(spans)
    found = innermost(start, end, outer(end), np.array(times, dtype=np.int64))
    expected = [max((i for i, (low, high) in enumerate(spans) if low <= t < high), default=-1) for t in times]
    assert found.tolist() == expected


@given(SPANS, SPANS)
def test_contained_finds_every_pair(spans: list[tuple[int, int]], events: list[tuple[int, int]]) -> None:
    span, event = contained(*columns(spans), *columns(events))
    expected = {
        (i, j)
        for i, (low, high) in enumerate(spans)
        for j, (start, end) in enumerate(events)
        if low <= start and end <= high
    }
    assert set(zip(span.tolist(), event.tolist(), strict=True)) == expected
    assert len(span) == len(expected)
