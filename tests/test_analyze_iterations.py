"""Repetitions of ranges: which is first, typical and slow, and which names count as one."""

import pytest

from nightsight.analyze.ranges.iterations import iterations
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from tests.recorded import Recorded
from tests.timeline import draw, side_by_side


def named(*names: str) -> Timeline:
    """Ranges of these names, 3, 4, 5... microseconds long."""
    profile = draw("nvtx  " + " ".join("[r" + " " * number + "]" for number in range(len(names))))
    ranges = profile.table("ranges").assign(name=list(names)).astype({"name": "category"})
    return Timeline(Profile({"ranges": ranges}))


def test_first_median_and_outliers_are_named() -> None:
    (row,) = iterations(Timeline(draw("nvtx  [s        ] [s ] [s ] [s ] [s    ]"))).frame.to_dict("records")
    assert (row["instances"], row["first_ns"], row["med_ns"], row["max_ns"]) == (5, 11_000, 4000, 11_000)
    assert row["outliers"] == "#0 (2.8×), #4 (1.8×)"


def test_names_that_differ_by_a_number_are_one() -> None:
    assert iterations(named("step 1", "step 2", "step 13")).frame["path"].tolist() == ["step #"]
    assert iterations(named("step_1", "step_2", "step_13")).frame["path"].tolist() == ["step_#"]


@pytest.mark.parametrize("names", [("layer1", "layer2", "layer3"), ("h2d", "h3d", "h4d")])
def test_numbers_inside_words_tell_names_apart(names: tuple[str, ...]) -> None:
    assert iterations(named(*names)).frame.empty


def test_two_are_no_repetition() -> None:
    assert iterations(named("a", "a", "b", "b", "b")).frame["path"].tolist() == ["b"]


def test_only_the_slowest_are_named() -> None:
    quick, slow = "[s]", "[s" + " " * 20 + "]"
    (row,) = iterations(Timeline(draw("nvtx  " + " ".join([quick] * 20 + [slow] * 7)))).frame.to_dict("records")
    assert row["outliers"].endswith("and 2 more")
    assert row["outliers"].count("#") == 5


def test_the_first_iteration_of_the_training_capture_stands_out(recorded: Recorded) -> None:
    table = iterations(Timeline(recorded.profile("train"))).frame.set_index("path")
    assert table.loc["iteration #", "instances"] == 20
    assert str(table.loc["iteration # / forward", "outliers"]).startswith("#0 (")


# -- instances --------------------------------------------------------------------------------------------------------


RANKS = side_by_side(draw("nvtx  [s   ][s    ][s   ][s   ][e]"), draw("nvtx  .[s ][s ][s     ][s ][e][e][e]"))


def test_each_process_repeats_by_itself() -> None:
    columns = ["path", "pid", "instances", "first_ns", "max_ns", "outliers"]
    assert iterations(Timeline(RANKS)).frame[columns].to_numpy().tolist() == [
        ["s", 5, 4, 6000, 7000, ""],
        ["s", 6, 4, 4000, 8000, "#2 (2.0×)"],
        # once in the other: no repetition
        ["e", 6, 3, 3000, 3000, ""],
    ]
