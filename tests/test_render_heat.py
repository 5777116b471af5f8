"""The heat map of ranks: every cell is drawn once, the slowest rank is the strongest, and odd values draw nothing."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.render.figure.heat import Heat, HeatRow, heat, heats_of_parts
from nightsight.render.figure.plot import GRID
from tests.properties import examples


def steps_of(work: list[list[float]], *, together: int = 1) -> pd.DataFrame:
    rows = [
        {
            "rank": rank,
            "number": step * together,
            "steps": together,
            "time_ns": 2e6,
            "waited_ns": 2e6 - ns,
            "work_ns": ns,
        }
        for rank, of_rank in enumerate(work)
        for step, ns in enumerate(of_rank)
    ]
    return pd.DataFrame(rows, columns=["rank", "number", "steps", "time_ns", "waited_ns", "work_ns"])


def heat_of(frame: pd.DataFrame) -> tuple[Heat, ...]:
    return heat(frame, pd.DataFrame())


def level(row: HeatRow) -> list[int]:
    return [place for place, path in enumerate(row.paths) if path]


def drawn(row: HeatRow) -> int:
    return sum(int(width) for path in row.paths for width in re.findall(r"0h(\d+)v1", path))


def only(heats: tuple[Heat, ...]) -> Heat:
    (one,) = heats
    return one


def test_the_slowest_rank_is_the_strongest() -> None:
    view = only(heat_of(steps_of([[1e6] * 10, [1.5e6] * 10, [1e6] * 10])))
    assert [level(row) for row in view.rows] == [[0], [5], [0]]
    assert [row.label for row in view.rows] == ["0", "1", "2"]
    assert view.summary.startswith("3 ranks, 10 steps. Rank 1 takes the longest")
    assert view.rows[0].title == "Rank 0: 1.00 ms a step, and 1.00 ms of waiting"
    assert [tick.text for tick in view.numbers][:2] == ["#0", "#2"]


@examples(30)
@given(
    work=st.lists(st.lists(st.floats(1, 1e12), min_size=7, max_size=7), min_size=2, max_size=5),
    together=st.sampled_from([1, 4]),
)
def test_each_cell_tells_its_time(work: list[list[float]], together: int) -> None:
    view = only(heat_of(steps_of(work, together=together)))
    assert (view.steps, view.size, view.first) == (7 * together, together, 0)
    for row, times in zip(view.rows, work, strict=True):
        shares = [int(row.cells[at : at + 2], 36) / (36**2 - 1) for at in range(0, len(row.cells), 2)]
        assert [share * view.longest for share in shares] == pytest.approx(times, abs=max(map(max, work)) / 1_000 + 1)


def test_a_step_that_a_rank_does_not_have_has_no_cell() -> None:
    steps = steps_of([[1e6] * 4, [1e6] * 4])
    view = only(heat_of(steps.drop(index=[5])))
    assert view.rows[1].cells[2:4] == "--"
    assert "--" not in view.rows[0].cells


def test_numbers_of_steps_that_cannot_be_make_no_cells() -> None:
    view = only(heat_of(steps_of([[1e6] * 4, [1e6] * 4]).assign(number=[0, 1, 2, 1e15] * 2)))
    assert [row.cells for row in view.rows] == ["", ""]


def test_ranks_that_hardly_differ_look_alike() -> None:
    view = only(heat_of(steps_of([[1e6] * 10, [1.001e6] * 10])))
    assert [level(row) for row in view.rows] == [[5], [5]]


def test_steps_that_were_put_together_are_reported() -> None:
    view = only(heat_of(steps_of([[1e6] * 10, [1.2e6] * 10], together=4)))
    assert "up to 4 consecutive steps" in view.notes[1]
    assert "40 steps" in view.summary


def test_no_more_rows_than_fit() -> None:
    view = only(heat_of(steps_of([[1e6 + rank] * 3 for rank in range(100)])))
    assert len(view.rows) == 64
    assert view.notes[-1].startswith("The first 64 of 100 ranks")


@examples(50)
@given(
    work=st.integers(1, 150).flatmap(
        lambda steps: st.lists(st.lists(st.floats(0, 1e12), min_size=steps, max_size=steps), min_size=2, max_size=6)
    )
)
def test_every_cell_is_drawn_once(work: list[list[float]]) -> None:
    view = only(heat_of(steps_of(work)))
    for row in view.rows:
        assert drawn(row) == pytest.approx(GRID, abs=1)


@pytest.mark.parametrize("odd", [np.nan, -1.0, np.inf])
def test_odd_values_draw_nothing(odd: float) -> None:
    frame = steps_of([[1e6] * 3, [1.2e6] * 3, [odd] * 3])
    assert len(only(heat_of(frame)).rows) == 2


def test_one_rank_or_no_column_is_no_map() -> None:
    assert heat_of(steps_of([[1e6] * 3])) == ()
    assert heat_of(steps_of([[1e6] * 3, [1e6] * 3]).drop(columns="work_ns")) == ()
    assert heat_of(pd.DataFrame()) == ()


# -- categories -------------------------------------------------------------------------------------------------------

RANKS_OF_GPUS = pd.DataFrame({"rank": [4, 5, 6], "device": [0, 1, 2]})


def parts_of(**columns: list[float]) -> pd.DataFrame:
    """Return step_times of three GPUs, whose four steps are alike; columns: the time of a category on each GPU."""
    rows = [
        {"device": gpu, "number": step, "steps": 1, "time_ns": 1e6, **{name: ns[gpu] for name, ns in columns.items()}}
        for gpu in range(3)
        for step in range(4)
    ]
    return pd.DataFrame(rows)


def test_categories_in_which_ranks_differ_have_a_map_the_largest_difference_first() -> None:
    times = {"compute_ns": [5e5, 5e5, 6e5], "host_ns": [1e5, 3e5, 1e5], "copies_ns": [1e4, 1e4, 1e4]}
    heats = heats_of_parts(parts_of(**times), RANKS_OF_GPUS)
    assert [view.title for view in heats] == ["host code", "compute"]
    assert [level(row) for row in heats[0].rows] == [[0], [5], [0]]
    assert [row.label for row in heats[0].rows] == ["4", "5", "6"]
    assert heats[0].summary == "host code: the most on rank 5 (300 µs a step), the least on rank 4 (100 µs a step)."


def test_steps_have_the_numbers_that_the_program_gives_them() -> None:
    steps = parts_of(compute_ns=[1e5, 5e5, 1e5])
    steps["of_program"] = steps["number"] + 3
    (view,) = heats_of_parts(steps, RANKS_OF_GPUS)
    assert [tick.text for tick in view.numbers] == ["#3", "#4", "#5", "#6"]
    assert only(heat(steps_of([[1e6] * 4, [2e6] * 4]), steps)).numbers == view.numbers


def test_communication_has_none_since_who_is_waited_for_has_the_least() -> None:
    assert heats_of_parts(parts_of(communication_ns=[9e5, 1e5, 9e5]), RANKS_OF_GPUS) == ()


def test_what_hardly_differs_has_none() -> None:
    assert heats_of_parts(parts_of(compute_ns=[500e3, 515e3, 500e3]), RANKS_OF_GPUS) == ()


@pytest.mark.parametrize("odd", [np.nan, -1.0, np.inf])
def test_odd_times_of_categories_draw_nothing(odd: float) -> None:
    (view,) = heats_of_parts(parts_of(compute_ns=[1e5, 5e5, odd]), RANKS_OF_GPUS)
    assert [row.label for row in view.rows] == ["4", "5"]


def test_without_ranks_or_steps_there_are_no_maps_of_categories() -> None:
    assert heats_of_parts(parts_of(compute_ns=[1e5, 5e5, 1e5]), pd.DataFrame()) == ()
    assert heats_of_parts(pd.DataFrame(), RANKS_OF_GPUS) == ()
    assert heats_of_parts(parts_of(compute_ns=[1e5, 5e5, 1e5]), RANKS_OF_GPUS.iloc[:1]) == ()
