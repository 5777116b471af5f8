"""The interval algorithms against brute force."""

from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from nightsight.intervals import (
    clipped_union,
    contained,
    covered,
    cut,
    depth,
    explained,
    gaps,
    grouped_busy,
    innermost,
    last_started,
    length,
    open_time,
    outer,
    reaching,
    separate,
    shared,
    shares,
    touches,
    union,
    without,
)

EMPTY = tuple(np.zeros(0, dtype=np.int64) for _ in range(3))
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
def test_inside_counts_each_instant_of_the_window_once(spans: list[tuple[int, int]], low: int, size: int) -> None:
    covered = {time for start, end in spans for time in range(start, end)} & set(range(low, low + size))
    assert length(clipped_union(*columns(spans), (low, low + size))) == len(covered)


@given(SPANS)
def test_outer_is_the_nearest_earlier_span_that_reaches_as_far(spans: list[tuple[int, int]]) -> None:
    _, end = columns(spans)
    expected = [max((j for j in range(i) if end[j] >= end[i]), default=-1) for i in range(len(spans))]
    assert outer(end).tolist() == expected


@given(SPANS, st.lists(st.integers(-1, 95), max_size=20))
def test_innermost_is_the_latest_started_open_span(spans: list[tuple[int, int]], times: list[int]) -> None:
    start, end = columns(spans)
    rows = innermost(start, end, outer(end), np.array(times, dtype=np.int64))
    expected = [max((i for i, (low, high) in enumerate(spans) if low <= t < high), default=-1) for t in times]
    assert rows.tolist() == expected


# ends in rising and falling runs: a falling one is a recursion, after which a search has to climb very far
RUNS = st.lists(st.tuples(st.integers(0, 100), st.integers(-2, 2), st.integers(1, 60)), min_size=1, max_size=6)


@given(RUNS, st.integers(0, 2**32))
@example([(200, -1, 100), (1, 0, 60), (150, -1, 60)], 0)
def test_reaching_is_the_latest_span_up_to_a_place_that_ends_late_enough(
    runs: list[tuple[int, int, int]], seed: int
) -> None:
    def expected(position: Any, least: Any) -> list[int]:
        fits = (end >= least[:, None]) & (np.arange(len(end)) <= position[:, None])
        return [int(np.flatnonzero(row).max(initial=-1)) for row in fits]

    end = np.concatenate([first + step * np.arange(count) for first, step, count in runs])
    around, before = outer(end), np.arange(-1, len(end) - 1)
    assert around.tolist() == expected(before, end)
    random = np.random.default_rng(seed)
    position, least = random.integers(-1, len(end), 80), random.integers(end.min() - 1, end.max() + 2, 80)
    assert reaching(position.copy(), end, least, around).tolist() == expected(position, least)


def test_a_time_after_a_deep_recursion_finds_what_is_still_open() -> None:
    # a level a round, this takes minutes
    depth = 100_000
    start = np.arange(depth)
    end = 2 * depth - start
    time = np.arange(depth, 2 * depth + 10)
    assert (innermost(start, end, outer(end), time) == np.maximum(2 * depth - time, 0) - 1).all()


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


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60), st.integers(0, 20)), max_size=30))
def test_grouped_busy_is_the_union_of_each_group(spans: list[tuple[int, int, int]]) -> None:
    group, start, length = (np.array(column, dtype=np.int64) for column in zip(*spans, strict=True)) if spans else EMPTY
    busy_ns, extent = grouped_busy(group, start, start + length, 5)
    for number in range(5):
        of_owner = [(low, low + size) for owner, low, size in spans if owner == number]
        assert busy_ns[number] == len({time for low, high in of_owner for time in range(low, high)})
        assert extent[number] == (
            max(high for _, high in of_owner) - min(low for low, _ in of_owner) if of_owner else 0
        )


def instants(spans: Any) -> set[int]:
    return {time for low, high in zip(*spans, strict=True) for time in range(low, high)}


@given(SPANS, st.integers(0, 90), st.integers(0, 40))
def test_inside_and_gaps_divide_a_window(spans: list[tuple[int, int]], low: int, size: int) -> None:
    window, covered_times = set(range(low, low + size)), instants(columns(spans))
    within = clipped_union(*columns(spans), (low, low + size))
    assert instants(within) == covered_times & window
    assert instants(gaps(union(*columns(spans)), (low, low + size))) == window - covered_times
    for start, end in (within, gaps(within, (low, low + size))):
        assert (end > start).all()
        assert (start[1:] >= end[:-1]).all()


@given(SPANS, SPANS)
def test_shared_and_without_are_intersection_and_difference(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    left, right = (clipped_union(*columns(spans), (0, 100)) for spans in (first, second))
    for spans, expected in (
        (shared(left, right), instants(left) & instants(right)),
        (without(left, right), instants(left) - instants(right)),
    ):
        assert instants(spans) == expected
        assert length(spans) == len(expected)
        assert (spans[0][1:] >= spans[1][:-1]).all()
    both, rest, place = explained(left, right)
    # each shared piece lies in the span at its place in the second set
    assert (right[0][place] <= both[0]).all()
    assert (both[1] <= right[1][place]).all()
    assert (*map(list, both), *map(list, rest)) == (
        *map(list, shared(left, right)),
        *map(list, without(left, right)),
    )
    assert [list(times) for spans in separate(left, right) for times in spans] == [*map(list, (*both, *rest))]


@given(SPANS, SPANS)
def test_covered_is_the_part_of_each_span(spans: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    disjoint = clipped_union(*columns(spans), (0, 100))
    expected = [len(instants(disjoint) & set(range(low, high))) for low, high in asked]
    assert covered(disjoint, *columns(asked)).tolist() == expected
    assert touches(disjoint, *columns(asked)).tolist() == [time > 0 for time in expected]


@given(SPANS, st.lists(st.integers(-1, 95), max_size=20))
def test_depth_and_open_time_count_open_spans(spans: list[tuple[int, int]], times: list[int]) -> None:
    start, end = (np.sort(column) for column in columns(spans))
    asked = np.array(times, dtype=np.int64)
    assert depth(start, end, asked).tolist() == [sum(low <= time < high for low, high in spans) for time in times]
    passed = [sum(max(min(high, time) - low, 0) for low, high in spans) for time in times]
    assert open_time(start, end, asked).tolist() == passed


def test_open_time_is_right_where_its_sums_exceed_64_bits() -> None:
    start = np.full(5, 4 * 10**18, dtype=np.int64)
    assert open_time(start, start + 7, np.array([4 * 10**18 + 3, 4 * 10**18 + 9])).tolist() == [15, 35]


@given(SPANS, SPANS)
def test_spans_that_are_open_together_share_what_is_left(
    spans: list[tuple[int, int]], rest: list[tuple[int, int]]
) -> None:
    free = union(*columns([span for span in rest if span[0] < span[1]]))
    left = {time for low, high in zip(*free, strict=True) for time in range(low, high)}
    expected = [
        sum(1 / sum(low <= time < high for low, high in spans) for time in range(start, end) if time in left)
        for start, end in spans
    ]
    assert np.allclose(shares(*columns(spans), free), expected)


@given(SPANS, st.lists(st.integers(-1, 95), max_size=20))
def test_pieces_of_a_cut_span_make_it_up_and_hold_no_cut(spans: list[tuple[int, int]], times: list[int]) -> None:
    whole = union(*columns([span for span in spans if span[0] < span[1]]))
    start, end, of = cut(whole, np.array(times, dtype=np.int64))
    assert (start < end).all()
    assert not any(low < time < high for low, high in zip(start, end, strict=True) for time in times)
    assert np.bincount(of, end - start, len(whole[0])).tolist() == (whole[1] - whole[0]).tolist()
    assert (start[1:] >= end[:-1]).all()
    assert all(whole[0][one] <= low for one, low in zip(of, start, strict=True))


@given(st.lists(st.integers(0, 20), max_size=5).map(sorted), st.lists(st.integers(-2, 22), max_size=40))
def test_the_last_start_is_the_same_for_times_in_any_order(starts: list[int], times: list[int]) -> None:
    start = np.array(starts, dtype=np.int64)
    for some in (times, sorted(times)):
        last = [sum(begin <= time for begin in starts) - 1 for time in some]
        assert last_started(start, np.array(some, dtype=np.int64)).tolist() == last


@given(SPANS, st.lists(st.integers(0, 100), min_size=130, max_size=200).map(sorted), st.integers(0, 5))
def test_many_spans_in_order_touch_what_each_of_them_touches(
    spans: list[tuple[int, int]], starts: list[int], size: int
) -> None:
    disjoint, start = clipped_union(*columns(spans), (0, 100)), np.array(starts)
    one_by_one = [
        touches(disjoint, start[place : place + 1], start[place : place + 1] + size) for place in range(len(start))
    ]
    assert touches(disjoint, start, start + size).tolist() == np.concatenate(one_by_one).tolist()
