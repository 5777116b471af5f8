"""Trees of spans: what is above each of them; and statistics, which large tables get in another way."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nightsight import tables
from nightsight.model.report import Profile
from nightsight.tables import (
    TEXT,
    aggregate,
    are_named,
    conform,
    empty,
    grouped,
    levels,
    names_and_grids,
    nearest,
    positions,
    summarize,
)
from tests.properties import examples

# for each row its parent, or -1, and whether it is passed over
TREES = st.lists(st.tuples(st.integers(-1, 40), st.booleans()), max_size=40).map(
    lambda rows: [(min(parent, row - 1), passed) for row, (parent, passed) in enumerate(rows)]
)
CHAIN = [(row - 1, row % 50 > 0) for row in range(120)]


def climbed(tree: list[tuple[int, bool]], row: int) -> list[int]:
    """Return a row and all that is above it."""
    return [row, *climbed(tree, tree[row][0])] if row >= 0 else []


@given(TREES)
@example(CHAIN)
def test_nearest_passes_over_all_that_it_should(tree: list[tuple[int, bool]]) -> None:
    parent: Any = np.array([parent for parent, _ in tree], dtype=np.int64)
    passed = np.array([passed for _, passed in tree], dtype=bool)
    paths = [climbed(tree, row) for row in range(len(tree))]
    assert nearest(parent, passed).tolist() == [next((at for at in path if not tree[at][1]), -1) for path in paths]
    assert levels(parent).tolist() == [len(path) - 1 for path in paths]


@examples(100)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.integers(0, 99)), min_size=1))
def test_statistics_of_many_rows_are_those_of_few(rows: list[tuple[str, str, int]]) -> None:
    frame = pd.DataFrame(rows, columns=["name", "layer", "value"]).astype({"name": TEXT, "layer": TEXT})
    for by in (["name"], ["name", "layer"]):
        few = summarize(frame, by, "value")
        with patch.object(tables, "_MANY", 1):
            pd.testing.assert_frame_equal(summarize(frame, by, "value"), few)


@pytest.mark.parametrize("priorities", [[1, 1, 1], [1, 2, 1]])
def test_a_column_of_one_value_has_it_in_memory_once(priorities: list[int]) -> None:
    frame = pd.DataFrame({"thread": priorities, "name": pd.Categorical(["a", "b", "a"])})
    with patch.object(tables, "_MANY", 1):
        table = conform("threads", frame)
    assert table["thread"].tolist() == priorities
    assert tables.unique(table["thread"]) == sorted({*priorities})
    assert (table["thread"].to_numpy().strides == (0,)) == (len({*priorities}) == 1)
    assert conform("threads", empty("threads")).empty


@pytest.mark.parametrize("keys", [["place"], ["place", "name"]])
@pytest.mark.parametrize("rows", [5, 0])
def test_groups_are_aggregated_as_pandas_does(keys: list[str], rows: int) -> None:
    frame = pd.DataFrame(
        {
            "place": [2, 1, 2, 2, 1],
            "name": pd.Categorical(["b", "a", "b", "a", "a"], categories=["a", "b", "c"]),
            "time": [5, 4, 3, 2, 1],
            "bytes": pd.array([1, None, 3, 4, None], dtype="int64[pyarrow]"),
            "word": ["x", "y", "x", "z", "y"],
        }
    )[:rows]
    columns = {
        "count": ("time", "size"),
        "longest": ("time", "max"),
        "mean": ("time", "mean"),
        "bytes": ("bytes", "sum"),
        "word": ("word", "first"),
        "words": ("word", "nunique"),
        "name_of_key": ("place", "min"),
    }
    expected = frame.groupby(keys, observed=True).agg(**columns)
    pd.testing.assert_frame_equal(aggregate(frame.groupby(keys, observed=True), **columns), expected)


@pytest.mark.parametrize("chosen", ["^a", lambda text: text.startswith("a")])
def test_rows_are_chosen_by_their_texts_and_never_without_one(chosen: Any) -> None:
    texts = pd.Series(["ab", "ba", None, "a", "ab"], dtype=TEXT)
    assert are_named(texts, chosen).tolist() == [True, False, False, True, True]
    assert are_named(texts[:0], chosen).tolist() == are_named(empty("kernels")["name"], chosen).tolist() == []


def test_kernels_are_alike_if_their_names_and_grids_are() -> None:
    kernels = pd.DataFrame(
        {"name": pd.Categorical(list("aabaa")), "grid_x": [2, 1, 2, 2, 2], "grid_y": [1, 2, 1, 1, 2]}
    )
    assert pd.factorize(names_and_grids(kernels))[0].tolist() == [0, 1, 2, 0, 3]
    assert pd.factorize(names_and_grids(kernels[["name"]]))[0].tolist() == [0, 0, 1, 0, 0]


def test_a_table_that_was_not_recorded_has_its_columns_but_no_rows() -> None:
    kernels = pd.DataFrame({"name": ["a"]})
    profile = Profile({"kernels": kernels, "marks": empty("marks")})
    assert profile.recorded("kernels") is kernels
    assert profile.with_rows(("marks", "kernels", "ranges")) == [kernels]
    pd.testing.assert_frame_equal(profile.recorded("ranges"), empty("ranges"))


@examples(100)
@given(st.lists(st.tuples(st.integers(-3, 5), st.integers(-9, 9)), max_size=40), st.sampled_from([1, 10**17]))
def test_groups_of_numbers_have_the_statistics_of_pandas(rows: list[tuple[int, int]], factor: int) -> None:
    """Also if a group and a value do not fit into one number."""
    key, value = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    groups, expected = grouped(key, value * factor), pd.Series(value * factor).groupby(key)
    assert groups.key.tolist() == list(expected.groups)
    for statistic, name in (("count", "count"), ("total", "sum"), ("least", "min"), ("most", "max")):
        assert getattr(groups, statistic).tolist() == getattr(expected, name)().tolist()
    assert groups.median.tolist() == pytest.approx(expected.median().tolist())


@pytest.mark.parametrize("most", [0, 3, 100])
def test_positions_are_those_of_each_value_however_many_there_are(most: int) -> None:
    values = np.random.default_rng(most).integers(-1, most + 1, 500)
    places = positions(values)
    assert list(places) == sorted(set(values.tolist()))
    assert all(rows.tolist() == np.flatnonzero(values == value).tolist() for value, rows in places.items())
