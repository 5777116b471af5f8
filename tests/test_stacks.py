"""Stacks as texts: what is joined can be split, and frames stay apart whatever their names hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.events.stacks import framed, joined, of_library, split, without_line


@given(st.lists(st.tuples(st.text(), st.booleans())))
def test_what_is_joined_is_split(named: list[tuple[str, bool]]) -> None:
    frames = [framed(name, is_of_library=its) for name, its in named]
    assert split(joined(frames)) == [frame for frame in frames if frame]
    assert split(joined(frames, is_cut=True)) == ["…", *(frame for frame in frames if frame)]


def test_frames_of_libraries_are_in_brackets() -> None:
    own, library = framed("load (a.py:1)", is_of_library=False), framed("forward (linear.py:9)", is_of_library=True)
    assert joined([own, library]) == "load (a.py:1);[forward (linear.py:9)]"
    assert [of_library(frame) for frame in (own, library)] == [False, True]
    assert framed("a;b\nc", is_of_library=False) == "a,b c"
    assert framed(" ", is_of_library=True) == ""


@pytest.mark.parametrize(
    ("frame", "without"),
    [
        ("load (a.py:12)", "load (a.py)"),
        ("[forward (linear.py:9)]", "[forward (linear.py)]"),
        ("load (line 4)", "load"),
        ("[load (line 4)]", "[load]"),
        ("load (a.py)", "load (a.py)"),
        ("…", "…"),
    ],
)
def test_a_frame_without_its_line(frame: str, without: str) -> None:
    assert without_line(frame) == without
