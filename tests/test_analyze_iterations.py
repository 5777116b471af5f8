"""Repetitions of ranges: which is first, typical and slow, and which names count as one."""

import numpy as np
import pytest

from nightsight.analyze.ranges.iterations import POINTS, iteration_times, iterations
from nightsight.analyze.ranges.owners import range_time
from nightsight.events.timeline import Timeline
from nightsight.model import Profile
from tests.recorded import Recorded
from tests.timeline import beside, draw


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


def repeated(lengths: list[int]) -> Timeline:
    """One range of each length, one after the other."""
    profile = draw("nvtx  [s]")
    one = profile.table("ranges")
    start = np.cumsum([0, *lengths[:-1]])
    rows = one.iloc[[0] * len(lengths)].reset_index(drop=True)
    return Timeline(Profile({"ranges": rows.assign(start_ns=start, end_ns=start + np.array(lengths))}))


def test_instances_come_in_order_with_the_time_the_gpu_worked_for_them() -> None:
    timeline = Timeline(
        draw(
            """
            nvtx  [s   ] [s   ] [s   ]
            cpu   .LL....LL......L....
            s7    ...aaa....bb......c.
            s8    ....................
            """
        )
    )
    assert iteration_times(timeline).frame.to_numpy().tolist() == [
        ["s", 5, 0, 0, 6000, 3000],
        ["s", 5, 1, 7000, 6000, 2000],
        ["s", 5, 2, 14000, 6000, 1000],
    ]


RANKS = beside(draw("nvtx  [s   ][s    ][s   ][s   ][e]"), draw("nvtx  .[s ][s ][s     ][s ][e][e][e]"))


def test_each_process_repeats_by_itself() -> None:
    columns = ["path", "pid", "instances", "first_ns", "max_ns", "outliers"]
    assert iterations(Timeline(RANKS)).frame[columns].to_numpy().tolist() == [
        ["s", 5, 4, 6000, 7000, ""],
        ["s", 6, 4, 4000, 8000, "#2 (2.0×)"],
        # once in the other: no repetition
        ["e", 6, 3, 3000, 3000, ""],
    ]


def test_instances_of_one_process_are_not_between_those_of_another() -> None:
    table = iteration_times(Timeline(RANKS)).frame
    assert table[["path", "pid", "number"]].to_numpy().tolist() == [
        *(["s", pid, number] for pid in (5, 6) for number in range(4)),
        *(["e", 6, number] for number in range(3)),
    ]
    assert table["time_ns"].tolist() == [6000, 7000, 6000, 6000, 4000, 4000, 8000, 4000, 3000, 3000, 3000]


def test_without_gpu_work_traced_the_time_of_the_cpu_remains() -> None:
    table = iteration_times(repeated([1000, 2000, 3000])).frame
    assert table["time_ns"].tolist() == [1000, 2000, 3000]
    assert table["gpu_busy_ns"].isna().all()


def test_of_many_repeated_paths_the_outermost_with_most_time_are_kept() -> None:
    inner = "[a [b ]] "
    profile = draw("nvtx  " + inner * 3 + "[c] " * 3 + "[d  ] " * 3 + "[e    ] " * 3 + "[f     ] " * 2)
    assert list(dict.fromkeys(iteration_times(Timeline(profile)).frame["path"])) == ["a", "e", "d"]


def test_nothing_repeated_has_no_instance() -> None:
    assert iteration_times(Timeline(draw("nvtx  [a] [b]"))).frame.empty


@pytest.mark.parametrize("count", [POINTS, POINTS + 1, 5 * POINTS])
def test_too_many_instances_are_picked_evenly_and_the_slowest_kept(count: int) -> None:
    lengths = np.full(count, 1000)
    slow = [7, count // 3, count - 2]
    lengths[slow] = 9000
    table = iteration_times(repeated(lengths.tolist())).frame
    assert len(table) <= POINTS
    assert len(table) >= POINTS - 5
    assert set(slow) <= set(table["number"])
    assert table["number"].is_monotonic_increasing
    assert np.diff(table["number"]).max() <= np.ceil(count / (POINTS - 6))
    assert (table["time_ns"].to_numpy() == lengths[table["number"].to_numpy(dtype=int)]).all()


def test_instances_of_a_real_capture_have_the_numbers_of_the_table(recorded: Recorded) -> None:
    timeline = Timeline(recorded.profile("train"))
    table, summary = iteration_times(timeline).frame, iterations(timeline).frame.set_index("path")
    for path in table["path"].unique():
        rows = table[table["path"] == path]
        assert len(rows) == summary.loc[path, "instances"]
        assert rows["time_ns"].median() == summary.loc[path, "med_ns"]
        assert rows["time_ns"].iloc[0] == summary.loc[path, "first_ns"]
    ranges = range_time(timeline).frame.set_index("path")["gpu_busy_ns"]
    of_iterations = ranges[ranges.index.str.fullmatch(r"iteration \d+")]
    assert table.loc[table["path"] == "iteration #", "gpu_busy_ns"].sum() == of_iterations.sum()
