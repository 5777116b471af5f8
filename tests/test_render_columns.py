"""Columns of steps: how high each part is, what is marked, and what many steps look like."""

import re
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.render.figure.columns import step_columns
from nightsight.render.figure.plot import GRID, Panels, Part, Path, Plot, Point

NO_MEDIANS = pd.DataFrame()


def table(*times: tuple[float, float], device: int = 0, median: float | None = None, **changes: Any) -> pd.DataFrame:
    """Return steps: their compute and host code in µs."""
    lengths = [1000.0 * (busy + idle) for busy, idle in times]
    middle = median or sorted(lengths)[len(lengths) // 2]
    starts = [sum(lengths[:place]) for place in range(len(lengths))]
    frame = pd.DataFrame(
        {
            "device": device,
            "number": range(len(times)),
            "steps": 1,
            "start_ns": starts,
            "time_ns": lengths,
            "outliers": [int(length > 1.5 * middle) for length in lengths],
            "slowest": range(len(times)),
            "slowest_start_ns": starts,
            "slowest_ns": lengths,
            "compute_ns": [1000.0 * busy for busy, _ in times],
            "host_ns": [1000.0 * idle for _, idle in times],
        }
    )
    return frame.assign(**changes)


def drawn(frame: pd.DataFrame, medians: pd.DataFrame = NO_MEDIANS) -> Panels:
    (view,) = step_columns(frame, medians)
    return view


def panel(frame: pd.DataFrame, medians: pd.DataFrame = NO_MEDIANS) -> Plot:
    (plot,) = drawn(frame, medians).plots
    return plot


def heights(path: str) -> list[tuple[float, float]]:
    """Return top and height of each bar of a path, in percent."""
    return [(100 * int(y) / GRID, 100 * int(height) / GRID) for y, height in re.findall(r"M\d+ (\d+)h\d+v(\d+)", path)]


def test_parts_are_stacked_the_busy_ones_at_the_bottom() -> None:
    view = drawn(table((4, 4), (2, 6), (8, 0)))
    (plot,) = view.plots
    assert [tick.text for tick in plot.up] == ["8 µs", "4 µs", "0"]
    busy, idle = plot.of(Path)
    assert [(key.label, key.look, key.is_idle) for key in view.keys] == [
        ("compute", "series-kernel", False),
        ("host code", "series-others", True),
    ]
    assert (busy.look, idle.look) == ("series-kernel", "series-others idle")
    assert heights(busy.path) == [(50, 50), (75, 25), (0, 100)]
    assert heights(idle.path) == [(0, 50), (0, 75)]


def test_each_column_says_its_numbers_and_where_it_is() -> None:
    plot = panel(table((4, 4), (2, 6)))
    assert [part.title for part in plot.of(Part)] == [
        "#0: 8.00 µs (compute 4.00 µs, host code 4.00 µs)",
        "#1: 8.00 µs (host code 6.00 µs, compute 2.00 µs)",
    ]
    assert [part.span for part in plot.of(Part)] == ["0 8000", "8000 16000"]
    assert plot.of(Part)[0].x < 10 < plot.of(Part)[1].x < 60


@pytest.mark.parametrize(("devices", "named"), [(4, 4), (5, 3)])
def test_columns_of_many_devices_say_only_what_takes_the_most(devices: int, named: int) -> None:
    more = {"copies_ns": 1000.0, "communication_ns": 1000.0}
    rows = [table((4, 2), device=number, time_ns=8000.0, slowest_ns=8000.0, **more) for number in range(devices)]
    titles = [part.title for plot in drawn(pd.concat(rows)).plots for part in plot.of(Part)]
    assert {title.count("µs") for title in titles} == {1 + named}
    assert all("(compute 4.00 µs, host code 2.00 µs, " in title for title in titles)


def test_steps_are_called_what_the_program_calls_them() -> None:
    plot = panel(table((4, 4), (4, 4), (4, 12), (4, 4), of_program=range(17, 21)))
    assert [part.title.split(":")[0] for part in plot.of(Part)] == ["#17", "#18", "#19", "#20"]
    assert plot.remark == "4 steps, median 8.00 µs; 1 outlier: #19 (2.0×)"
    assert (plot.across[0].text, plot.across[0].place) == ("#17", 12.5)
    assert plot.of(Part)[0].x < 10


def test_only_what_can_be_seen_has_a_key() -> None:
    frame = table((4, 4), (4, 3.99), copies_ns=[0.0, 10.0])
    assert [key.label for key in drawn(frame).keys] == ["compute", "host code"]
    assert "copies and sets 10" in panel(frame).of(Part)[1].title
    assert "copies and sets" in [key.label for key in drawn(frame.assign(copies_ns=[0.0, 1000.0])).keys]


def test_outliers_are_marked_and_named() -> None:
    plot = panel(table((4, 4), (4, 4), (4, 12), (4, 4)))
    (slow,) = plot.of(Point)
    assert slow.at.x == pytest.approx(62.5)
    assert plot.of(Part)[2].title.endswith("; 2.0 times the median")
    assert plot.remark == "4 steps, median 8.00 µs; 1 outlier: #2 (2.0×)"
    assert plot.summary.endswith("outliers: #2 (2.0×)")


def test_what_would_press_the_others_to_the_ground_is_cut_and_marked() -> None:
    panels = drawn(table((4, 4), (4, 4), (4, 400), (4, 4)))
    (one,) = panels.plots
    (slow,) = one.of(Point)
    assert slow.at.x == pytest.approx(62.5)
    assert slow.at.y == 0
    assert slow.shape != panel(table((4, 4), (4, 4), (4, 12), (4, 4))).of(Point)[0].shape
    assert heights(one.of(Path)[1].path)[0][1] > 30
    # 4 of 404: cut off at the top, all of the column would be its first part
    top, height = heights(one.of(Path)[1].path)[2]
    assert top == 0
    assert height == pytest.approx(100 * 400 / 404, abs=0.1)
    assert "beyond the scale" in panels.notes[-1]


def test_of_columns_that_stand_for_several_steps_the_slowest_is_where_a_mark_leads() -> None:
    frame = table(
        (4, 4), (4, 6), median=8000.0, steps=100, number=[0, 100], slowest=[7, 150], slowest_ns=[9000, 30_000]
    )
    frame = frame.assign(slowest_start_ns=[56_000, 1_000_000], outliers=[0, 3])
    medians = pd.DataFrame({"device": [0], "med_ns": [8000.0]})
    plot = panel(frame, medians)
    assert plot.of(Part)[0].span == "0 800000"
    assert plot.of(Part)[1].span == "1000000 1030000"
    assert plot.of(Part)[1].title.startswith("#100 to #199, mean: 10.0 µs (")
    assert plot.of(Part)[1].title.endswith("; slowest #150: 30.0 µs, 3.8 times the median")
    assert plot.remark == "200 steps, median 8.00 µs; 3 outliers: #150 (3.8×), 2 more"
    assert drawn(frame, medians).notes[1].startswith("Each column is the mean of up to 100 consecutive steps")


def test_devices_have_panels_on_one_scale() -> None:
    panels = drawn(pd.concat([table((4, 4), device=number) for number in range(10)]))
    assert [one.label for one in panels.plots] == [f"GPU {number}" for number in range(8)]
    assert panels.notes[-1].startswith("The first 8 of 10 devices.")


@pytest.mark.parametrize("column", ["device", "number", "time_ns", "slowest_ns"])
def test_without_a_column_there_is_no_picture(column: str) -> None:
    assert step_columns(table((4, 4)).drop(columns=column), NO_MEDIANS) == ()


def test_what_a_damaged_report_can_hold_is_drawn_or_left_out() -> None:
    assert step_columns(table((4, 4)).assign(time_ns=None), NO_MEDIANS) == ()
    assert step_columns(table((4, 4)).assign(steps=0), NO_MEDIANS) == ()
    assert step_columns(table((4, 4)).iloc[:0], NO_MEDIANS) == ()
    assert panel(table((4, 4), (4, 4), compute_ns=[float("nan"), 1e300])).marks
    assert panel(table((4, 4)), pd.DataFrame({"device": [0], "med_ns": [float("nan")]})).remark == (
        "1 step, median 8.00 µs"
    )


@given(st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(0, 1e4)), min_size=1, max_size=150))
def test_columns_lie_side_by_side_and_inside_the_plot(times: list[tuple[float, float]]) -> None:
    plot = panel(table(*times))
    edges = [(part.x, part.x + part.width) for part in plot.of(Part)]
    assert all(one[1] <= other[0] + 0.02 for one, other in pairwise(edges))
    assert edges[0][0] >= 0
    assert edges[-1][1] <= 100.02
    for mark in plot.of(Path):
        assert all(top >= 0 and top + height <= 100 for top, height in heights(mark.path))
