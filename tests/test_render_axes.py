"""Axes: where values and round ticks are, which texts a narrow plot has room for, and what of a table can be drawn."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.render.figure.axes import Tick, finite_rows, level_ticks, log_axis, round_text, spaced, time_ticks
from tests.properties import examples


@pytest.mark.parametrize(
    ("texts", "spare"),
    [
        (("0.001", "0.01", "0.1", "1", "10", "100", "1,000"), [1, 3, 5]),
        (("0", "10 ms", "20 ms"), []),
        ((), []),
    ],
)
def test_every_second_text_is_spare_where_two_would_nearly_touch(texts: tuple[str, ...], spare: list[int]) -> None:
    ticks = [Tick(100 * place / (len(texts) - 1), text) for place, text in enumerate(texts)]
    assert [place for place, tick in enumerate(spaced(ticks)) if tick.is_spare] == spare
    assert [tick.text for tick in spaced(ticks)] == list(texts)


def test_the_style_knows_what_is_last_and_what_is_spare() -> None:
    assert [tick.classes for tick in (Tick(50, "a"), Tick(98, "b"), Tick(98, "c", is_spare=True))] == [
        *("", "last"),
        "last spare",
    ]


@examples(200)
@given(st.lists(st.floats(1e-3, 1e18), min_size=1, max_size=10), st.booleans())
def test_places_rise_with_values_and_ticks_are_where_their_values_are(values: list[float], has_zero: bool) -> None:
    axis = log_axis(np.array(values), unit="ns", zero="0" if has_zero else "")
    places = axis.places(np.sort(np.array(values)))
    assert ((places >= 0) & (places <= 100)).all()
    assert (np.diff(places) >= 0).all()
    ticks = [tick for tick in axis.ticks() if tick.text != "0"]
    assert 1 - has_zero <= len(ticks) <= 9
    assert [tick.place for tick in ticks] == sorted(tick.place for tick in ticks)


@pytest.mark.parametrize(
    ("least", "most", "texts"),
    [
        (1e3, 1e4, ["1 µs", "2 µs", "5 µs", "10 µs"]),
        (1e3, 3e5, ["1 µs", "3 µs", "10 µs", "30 µs", "100 µs", "300 µs"]),
        (1e2, 1e9, ["100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]),
        (1e0, 1e15, ["1 ns", "1 µs", "1 ms", "1 s", "1,000 s", "1,000,000 s"]),
    ],
)
def test_ticks_are_round_and_few(least: float, most: float, texts: list[str]) -> None:
    assert [tick.text for tick in log_axis(np.array([least, most]), unit="ns").ticks()] == texts


def test_an_axis_has_a_decade_at_least_around_what_it_shows() -> None:
    axis = log_axis(np.array([1000.0]), unit="ns")
    assert (axis.low, axis.high) == (2.5, 3.5)
    assert axis.places(np.array([1000.0])).tolist() == [50]


def test_zeros_stand_before_the_axis() -> None:
    axis = log_axis(np.array([100.0, 1000.0]), unit="ns", zero="0")
    assert axis.places(np.array([0.0, 100.0])).tolist() == [0, pytest.approx(2 * axis.zero_width, abs=0.02)]
    assert axis.ticks()[0].text == "0"
    assert axis.ticks()[1].place > 10


def test_levels_are_written_at_the_unit_of_the_top() -> None:
    top, ticks = level_ticks(885_000.0, unit="ns")
    assert (top, [tick.text for tick in ticks]) == (1e6, ["1.0 ms", "0.5 ms", "0"])


def test_round_values_have_no_decimals_that_say_nothing() -> None:
    assert [round_text(value, "ns") for value in (125.0, 1250.0, 16_000.0)] == ["125 ns", "1.25 µs", "16 µs"]


@pytest.mark.parametrize(
    ("highest", "texts"),
    [
        (0, ["1", "0"]),
        (1, ["1", "0"]),
        (2, ["2", "1", "0"]),
        (5, ["6", "4", "2", "0"]),
        (25, ["30", "20", "10", "0"]),
        (100, ["100", "50", "0"]),
        (142, ["150", "100", "50", "0"]),
        (1024, ["1,200", "800", "400", "0"]),
    ],
)
def test_levels_are_round(highest: int, texts: list[str]) -> None:
    assert [tick.text for tick in level_ticks(highest, unit="")[1]] == texts


@pytest.mark.parametrize(
    ("highest", "texts"),
    [
        (740_568_985, ["750 MB", "500 MB", "250 MB", "0"]),
        (1_400_000_000, ["1.5 GB", "1.0 GB", "0.5 GB", "0"]),
    ],
)
def test_levels_have_a_unit_and_the_digits_they_need(highest: int, texts: list[str]) -> None:
    assert [tick.text for tick in level_ticks(highest, unit="bytes")[1]] == texts


@pytest.mark.parametrize(
    ("window_ns", "texts"),
    [
        (1, ["0", "1 ns"]),
        (23_666_469, ["0", "5", "10", "15", "20 ms"]),
        (3_490_039_828, ["0", "1", "2", "3 s"]),
        (1_000_000_000, ["0", "0.2", "0.4", "0.6", "0.8", "1.0 s"]),
    ],
)
def test_times_are_round_and_the_last_has_the_unit(window_ns: int, texts: list[str]) -> None:
    assert [tick.text for tick in time_ticks(0, window_ns)] == texts


def test_only_rows_with_all_numbers_can_be_drawn() -> None:
    frame = pd.DataFrame({"a": [1, math.nan, math.inf, 2e300], "b": [5, 6, 7, None], "c": ["x", "y", None, "z"]})
    assert finite_rows(frame, ("a", "b"), ("c",)).to_numpy().tolist() == [[1, 5, "x"]]
    assert finite_rows(frame, ("a",), ("c",)).to_numpy().tolist() == [[1, "x"], [1e18, "z"]]
    for lacking in "ab":
        assert finite_rows(frame.drop(columns=lacking), ("a", "b"), ("c",)).empty
    assert finite_rows(frame.drop(columns="c"), ("a", "b"), ("c",)).empty
