"""Stacks as texts: what is joined can be split, and frames stay apart whatever their names hold."""

from hypothesis import given
from hypothesis import strategies as st

from nightsight.stacks import framed, joined, of_library, split


@given(st.lists(st.tuples(st.text(), st.booleans())))
def test_what_is_joined_is_split(named: list[tuple[str, bool]]) -> None:
    frames = [framed(*frame) for frame in named]
    assert split(joined(frames)) == [frame for frame in frames if frame]
    assert split(joined(frames, is_cut=True)) == ["…", *(frame for frame in frames if frame)]


def test_frames_of_libraries_are_in_brackets() -> None:
    own, library = framed("load (a.py:1)", False), framed("forward (linear.py:9)", True)
    assert joined([own, library]) == "load (a.py:1);[forward (linear.py:9)]"
    assert [of_library(frame) for frame in (own, library)] == [False, True]
    assert framed("a;b\nc", False) == "a,b c"
    assert framed(" ", True) == ""
