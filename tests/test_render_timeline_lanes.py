from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.intervals import Ints
from nightsight.render.timeline.lanes import nested_lanes, separate_lanes

Lanes = Callable[[Ints, Ints, Ints], Ints]
Span = tuple[int, int, int]
SPANS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)).map(lambda s: (s[0], s[1], s[1] + s[2])),
    max_size=40,
)
LONG = 1 << 56
"""Times this much longer do not fit one after the other into 64 bits."""


def in_order(spans: list[Span], lanes: Lanes) -> list[Span]:
    longest_first = -1 if lanes is nested_lanes else 1
    return sorted(spans, key=lambda span: (span[0], span[1], longest_first * span[2]))


def lanes_of(spans: list[Span], lanes: Lanes, factor: int = 1) -> list[int]:
    group, start, end = np.array(in_order(spans, lanes), dtype=np.int64).reshape(-1, 3).T
    return list(lanes(group, start * factor, end * factor))


@pytest.mark.parametrize("lanes", [nested_lanes, separate_lanes])
@given(spans=SPANS)
def test_no_two_events_of_a_lane_overlap(lanes: Lanes, spans: list[Span]) -> None:
    rows: dict[tuple[int, int], list[Span]] = {}
    for span, lane in zip(in_order(spans, lanes), lanes_of(spans, lanes), strict=True):
        rows.setdefault((span[0], lane), []).append(span)
    for row in rows.values():
        assert all(before[2] <= after[1] for before, after in pairwise(row))


@pytest.mark.parametrize("lanes", [nested_lanes, separate_lanes])
@given(spans=SPANS)
def test_longer_times_change_no_lane(lanes: Lanes, spans: list[Span]) -> None:
    assert lanes_of(spans, lanes, factor=LONG) == lanes_of(spans, lanes)


@given(SPANS)
def test_separate_lanes_are_as_many_as_run_at_a_time(spans: list[Span]) -> None:
    spans = [(group, start, max(end, start + 1)) for group, start, end in spans]
    lane = lanes_of(spans, separate_lanes)
    for group in {span[0] for span in spans}:
        used = {own for span, own in zip(in_order(spans, separate_lanes), lane, strict=True) if span[0] == group}
        most = max(sum(s[0] == group and s[1] <= time < s[2] for s in spans) for time in range(50))
        assert used == set(range(most))


@st.composite
def nested(draw: st.DrawFn, begin: int = 0, end: int = 400, depth: int = 0) -> list[tuple[int, int, int]]:
    """Spans that nest, each as (depth, start, end)."""
    if depth > 4 or end - begin < 2:
        return []
    cuts = sorted(draw(st.lists(st.integers(begin, end), max_size=6)))
    spans = []
    for start, stop in zip(cuts[::2], cuts[1::2], strict=False):
        if stop > start:
            spans.append((depth, start, stop))
            # strictly inside, so that the order of equal spans does not matter
            spans += draw(nested(start + 1, stop - 1, depth + 1))
    return spans


@given(nested())
def test_what_nests_is_on_the_lane_of_its_depth(spans: list[tuple[int, int, int]]) -> None:
    ordered = in_order([(0, start, end) for _, start, end in spans], nested_lanes)
    depth = {(start, end): depth for depth, start, end in spans}
    assert lanes_of(ordered, nested_lanes) == [depth[start, end] for _, start, end in ordered]


def test_what_crosses_goes_below_all_that_nests() -> None:
    spans = [(0, 0, 100), (0, 10, 30), (0, 20, 50), (0, 40, 60), (0, 70, 80), (0, 72, 75), (1, 0, 10), (1, 2, 5)]
    assert lanes_of(spans, nested_lanes) == [0, 1, 3, 1, 1, 2, 0, 1]


def test_a_recursion_without_end_is_as_deep_as_it_is() -> None:
    spans = [(0, depth, 20_000 - depth) for depth in range(10_000)]
    assert lanes_of(spans, nested_lanes) == list(range(10_000))
