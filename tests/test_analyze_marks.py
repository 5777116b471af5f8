"""Marks: counted by domain, category and name, with the time from one to the next of a thread."""

from typing import Any

import pandas as pd

from nightsight.analyze.ranges.marks import marks
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile, Result
from nightsight.tables import conform, empty
from tests.reports import analyzed
from tests.timeline import draw


def table(profile: Profile) -> pd.DataFrame:
    return marks(Timeline(profile)).frame


def rows(profile: Profile, *columns: str) -> list[list[Any]]:
    return list(table(profile)[list(columns)].astype(object).to_numpy().tolist())


def changed(profile: Profile, **columns: Any) -> Profile:
    """Replace columns of the marks."""
    frame = conform("marks", profile.table("marks").assign(**columns))
    return Profile({**profile.tables, "marks": frame})


def result(profile: Profile) -> Result:
    return analyzed(profile, "nvtx_marks")


def test_marks_of_a_name_are_counted_and_their_median_interval_taken() -> None:
    picture = """
        mark  x.yx...x.......x
        s7    aaa
        """
    columns = ("name", "instances", "first_ns", "last_ns", "median_interval_ns")
    first, second = rows(draw(picture), *columns)
    assert first == ["x", 4, 0, 15_000, 4000]
    assert second[:4] == ["y", 1, 2000, 2000]
    assert pd.isna(second[4])


def test_times_count_from_the_window_and_marks_outside_of_it_count_too() -> None:
    picture = """
        nvtx  ...[measure ]
        mark  .x....x......x
        s7    ....aaa
        """
    assert rows(draw(picture), "first_ns", "last_ns", "instances") == [[-2000, 10_000, 3]]


def test_threads_that_mark_side_by_side_do_not_shorten_the_interval() -> None:
    picture = """
        mark    x.....x.....x
        mark:8  .x.....x.....x
        s7      aaa
        """
    assert rows(draw(picture), "instances", "median_interval_ns") == [[6, 6000]]


def test_domains_and_categories_are_apart() -> None:
    drawn = draw("mark  xxxx\ns7   aaa")
    profile = changed(drawn, domain=["", "io", "io", ""], category=["", "", "reads", ""])
    assert rows(profile, "domain", "category", "name", "instances", "first_ns") == [
        ["", "", "x", 2, 0],
        ["io", "", "x", 1, 1000],
        ["io", "reads", "x", 1, 2000],
    ]


def test_rows_in_any_order_give_the_same_table() -> None:
    drawn = draw("mark  x.yx...x\nmark:8  ..y.x\ns7   aaa")
    backwards = drawn.table("marks").iloc[::-1].reset_index(drop=True)
    pd.testing.assert_frame_equal(table(Profile({**drawn.tables, "marks": backwards})), table(drawn))


def test_marks_alone_are_a_capture() -> None:
    profile = Profile({"marks": draw("mark  ..x..y").table("marks")})
    window = Timeline(profile).window
    assert (window.start_ns, window.end_ns, window.name) == (2000, 5000, "everything recorded")
    assert rows(profile, "name", "first_ns") == [["x", 0], ["y", 3000]]


def test_no_mark_and_no_tracing_are_distinguished() -> None:
    none = result(Profile({"marks": empty("marks")}))
    assert none.table is not None
    assert none.rows.empty
    assert list(none.rows) == list(table(draw("mark  x")))
    off = result(Profile({}, {"marks": "NVTX tracing was off"}))
    assert (off.table, off.unavailable) == (None, "NVTX tracing was off")
