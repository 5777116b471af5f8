"""Trees of spans: what is above each of them."""

from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from nightsight.tables import levels, nearest

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
