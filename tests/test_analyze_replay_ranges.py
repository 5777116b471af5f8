"""Several replays of one kernel, told apart by the NVTX ranges that ncu and nsys both saw around it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.replay.join import ncu_match, replays
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from tests.properties import examples
from tests.replays import joined, launch
from tests.timeline import draw

# a: 2 us in forward, 5 in backward; b: 3 in forward, 2 in last
PICTURE = """
nvtx  [forward ][backward   ][last ]
cpu   L.L.......L............L
s7    .aabbb.....aaaaa.......bb
"""
LAUNCHES = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "forward", "backward", "last", "other"])))


def replay(picture: str, *launches: tuple[str, str]) -> Timeline:
    return joined(draw(picture), *(launch(name, range_path=path) for name, path in launches))


def times(timeline: Timeline) -> list[float]:
    """Return the time in us of the kernels that each replay stands for, in the order of launches."""
    return [time / 1000 for time in replays(timeline).sort_values("launch")["gpu_total_ns"]]


@pytest.mark.parametrize(
    ("launches", "expected"),
    [
        # in several ranges: each stands for its own
        ((("a", "backward"), ("a", "forward"), ("b", "last")), [5, 2, 5]),
        # in one: for all
        ((("a", "forward"),), [7]),
        ((("a", "forward"), ("a", "forward")), [7, 7]),
        # what ran elsewhere goes to the replay whose ranges are not known, else to the first
        ((("a", "forward"), ("a", "")), [2, 5]),
        ((("a", "forward"), ("a", "other"), ("a", "")), [2, 5, 5]),
        # ranges of which the timeline knows none tell nothing apart
        ((("a", "x"), ("a", "y")), [7, 7]),
        # all of the time is taken by replays in known ranges: the other one loses no match
        ((("b", "other"), ("b", "forward"), ("b", "last")), [3, 3, 2]),
    ],
)
def test_replays_share_the_time_of_their_kernel_by_range(launches: Any, expected: list[float]) -> None:
    assert times(replay(PICTURE, *launches)) == expected


def test_what_ran_in_no_known_range_goes_to_the_first_replay() -> None:
    picture = "nvtx  [x  ][y   ][z     ]\ncpu   .L....L.....L\ns7    ..a....aa...aaa"
    assert times(replay(picture, ("a", "y"), ("a", "x"))) == [5, 1]


def test_repetitions_are_one_range() -> None:
    picture = "nvtx  [step_1 ][step_2 ][x  ]\ncpu   L........L........L\ns7    .aa.......aaa....a"
    assert times(replay(picture, ("a", "step_7"), ("a", "x"))) == [5, 1]


def test_nested_ranges_are_distinguished_by_their_path() -> None:
    picture = "nvtx  [step       ]\nnvtx  .[x ].[x_ ]\ncpu   ..L...L...L...L\ns7    ...a...aa...aaa"
    assert times(replay(picture, ("a", "step / x"), ("a", "step"), ("a", "x"))) == [1, 5, 5]


@pytest.mark.parametrize("table", ["ranges", "api_calls"])
def test_without_ranges_or_calls_in_the_timeline_each_replay_stands_for_all(table: str) -> None:
    drawn = draw(PICTURE)
    timeline = Profile({name: frame for name, frame in drawn.tables.items() if name != table})
    launches = [launch("a", range_path=path) for path in ("forward", "backward")]
    assert times(joined(timeline, *launches)) == [7, 7]


def test_parts_of_a_kernel_count_once() -> None:
    match = ncu_match(replay(PICTURE, *(("a", path) for path in ("forward", "backward", "backward", "")))).frame
    assert (match["matched"].item(), match["coverage_pct"].item()) == (4, pytest.approx(100 * 7 / 12))


@examples(60)
@given(LAUNCHES)
def test_ranges_neither_lose_a_match_nor_time(launches: list[tuple[str, str]]) -> None:
    table = replays(replay(PICTURE, *launches))
    assert sorted(table["launch"]) == list(range(len(launches)))
    assert table["gpu_total_ns"].notna().all()
    for name, total in (("a", 7000), ("b", 5000)):
        of_name = table[table["name"] == name].drop_duplicates(["group", "part"])
        assert of_name.empty or of_name["gpu_total_ns"].sum() == total


def test_a_replay_in_no_range_has_the_path_where_its_kernel_took_most_time() -> None:
    table = replays(replay(PICTURE, ("a", ""), ("b", "last"))).set_index("name")
    assert (table.loc["a", "range_path"], table.loc["b", "range_path"]) == ("backward", "last")
    assert table.loc["a", "gpu_total_ns"] == 7000
