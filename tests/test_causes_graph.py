"""The rules by which calls and operations are said to have waited for each other, each on a drawn timeline."""

import pytest

from nightsight.analyze.causes.graph import graph
from nightsight.events.timeline import Timeline
from tests.timeline import draw

TURNS = ("L...", "..L.")
AT_ONCE = ("LL..", ".LL.")


@pytest.mark.parametrize(
    ("turns", "at_once", "lines"),
    [
        (20, 0, 1),
        # a call that returns a little late is not work side by side
        (20, 1, 1),
        # of 40 changes from one to the other, 4 overlap
        (16, 4, 2),
        (0, 20, 2),
    ],
)
def test_threads_whose_calls_hardly_overlap_are_one_line_of_execution(turns: int, at_once: int, lines: int) -> None:
    """As PyTorch's main thread and that of its backward pass."""
    first, second = (alone * turns + beside * at_once for alone, beside in zip(TURNS, AT_ONCE, strict=True))
    found = graph(Timeline(draw(f"cpu    {first}\ncpu:8  {second}\ns7     {'ab' * (turns + at_once)}")))
    assert len(set(found.calls.line.tolist())) == lines
