"""Strips of repetitions: where instances, median and outliers are, and which of them are named."""

import math
import re
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.render import render_html
from nightsight.render.figure.charts import pictures_of
from nightsight.render.figure.curves import GRID
from nightsight.render.figure.strips import Strip, strips
from nightsight.render.table.view import Labels
from tests.properties import examples
from tests.recorded import Recorded
from tests.reports import HOSTILE, result, small_report
from tests.test_render_html import Outline

NO_MEDIANS = pd.DataFrame()


def table(time: Sequence[float], *, path: str = "step", busy: Any = None, **changes: Any) -> pd.DataFrame:
    busy = pd.Series(busy, range(len(time)), dtype="float64")
    frame = pd.DataFrame(
        {"path": path, "number": range(len(time)), "start_ns": 0, "time_ns": time, "gpu_busy_ns": busy}
    )
    return frame.assign(**changes)


def drawn(frame: pd.DataFrame, medians: pd.DataFrame = NO_MEDIANS) -> Strip:
    (view,) = strips(frame, medians)
    return view.strips[0]


def dots(path: str) -> list[tuple[float, float]]:
    return [(int(x) * 100 / GRID, int(y) * 100 / GRID) for x, y in re.findall(r"M(\d+) (\d+)h0", path)]


def test_instances_are_in_order_at_the_height_of_their_time() -> None:
    strip = drawn(table([1000, 2000, 1500, 1000], busy=[500, 500, 0, None]))
    assert dots(strip.time) == [(12.5, 50), (37.5, 0), (62.5, 25), (87.5, 50)]
    assert dots(strip.busy) == [(12.5, 75), (37.5, 75), (62.5, 100)]
    assert [tick.text for tick in strip.levels] == ["2 µs", "1 µs", "0"]
    assert [(tick.place, tick.text) for tick in strip.numbers][:2] == [(12.5, "#0"), (37.5, "#1")]
    assert strip.median == 37.5


def test_each_instance_says_its_numbers() -> None:
    strip = drawn(table([1000, 2000], busy=[500, None]))
    assert [(item.x, item.width, item.title) for item in strip.instances] == [
        (0, 50, "#0: 1.000 µs, GPU busy 500 ns"),
        (50, 50, "#1: 2.000 µs"),
    ]


def test_median_and_number_are_of_all_instances_if_those_are_known() -> None:
    medians = pd.DataFrame({"path": ["other", "step"], "instances": [7, 5000], "med_ns": [1.0, 1500.0]})
    strip = drawn(table([1000, 2000]), medians)
    assert strip.remark == "5,000 instances, median 1.500 µs"
    assert strip.numbers[-1].text == "#4,000"
    assert dots(strip.time)[0][0] < 0.1


def test_outliers_are_ringed_and_named() -> None:
    strip = drawn(table([1600, 1000, 1000, 1400, 1000, 1000, 1000, 1700]))
    assert [(ring.text, ring.anchor, ring.is_beyond) for ring in strip.rings] == [
        ("#7: 1.700 µs (1.7×)", "end", False),
        ("#0: 1.600 µs (1.6×)", "start", False),
    ]
    assert (strip.rings[1].at.x, strip.rings[1].at.y) == pytest.approx(dots(strip.time)[0], abs=0.1)


def test_what_would_press_the_others_to_the_ground_is_named_at_the_edge() -> None:
    (view,) = strips(table([250_000, 1000, 1100, 900, 1000]), NO_MEDIANS)
    (strip,) = view.strips
    (ring,) = strip.rings
    assert (ring.text, ring.at.y, ring.is_beyond) == ("#0: 250.0 µs (250.0×)", 0, True)
    assert len(dots(strip.time)) == 4
    assert all(10 < y < 70 for _, y in dots(strip.time))
    assert "off the scale" in view.notes[-1]


def test_names_of_many_outliers_do_not_touch() -> None:
    time = np.full(2000, 1000)
    time[::9] = 2000 + np.arange(len(time[::9]))
    strip = drawn(table(time.tolist()))
    named = [ring for ring in strip.rings if ring.text]
    assert strip.is_dense
    assert 2 <= len(named) == len(strip.rings) <= 5
    assert named[0].text.startswith(f"#{int(time.argmax())}: ")
    assert all(abs(a.at.x - b.at.x) > 20 or abs(a.at.y - b.at.y) > 10 for a, b in combinations(named, 2))


def test_a_name_stands_above_or_below_where_other_points_are_beside_its_ring() -> None:
    beside = drawn(table([2000, 1000, 1000, 1000, 1990] + [1000] * 15))
    assert [(ring.anchor, ring.down, ring.is_further) for ring in beside.rings if ring.text] == [("start", 18, False)]
    crowd = drawn(table([1900] + [1800, 1000, 1000] * 20))
    assert crowd.rings[0].text
    assert crowd.rings[0].is_further  # at the left of a narrow plot, among others


def test_few_outliers_keep_their_rings_where_there_is_no_room_for_names() -> None:
    strip = drawn(table([1000] * 30 + [2000, 2001, 2002] + [1000] * 30))
    assert len(strip.rings) == 3
    assert [bool(ring.text) for ring in strip.rings] == [True, False, False]
    assert all(ring.title for ring in strip.rings)


def test_without_a_median_above_zero_there_is_no_outlier() -> None:
    strip = drawn(table([0, 0, 0, 5000]))
    assert strip.rings == ()
    assert len(dots(strip.time)) == 4


def test_many_instances_have_no_title_each() -> None:
    assert len(drawn(table([1000] * 100)).instances) == 100
    assert drawn(table([1000] * 101)).instances == ()


def test_the_first_three_paths_are_drawn() -> None:
    frame = pd.concat([table([1000], path=name) for name in "dcba"], ignore_index=True)
    (view,) = strips(frame, NO_MEDIANS)
    assert [strip.label for strip in view.strips] == ["d", "c", "b"]


def test_each_process_has_a_strip_with_the_median_of_its_own() -> None:
    frame = pd.concat([table([1000, 3000], pid=643), table([2000, 2000, 2000], pid=644)], ignore_index=True)
    medians = pd.DataFrame({"path": "step", "pid": [644, 643], "instances": [3, 2], "med_ns": [2000.0, 1500.0]})
    (view,) = strips(frame, medians)
    assert [(strip.label, strip.remark) for strip in view.strips] == [
        ("step, process 643", "2 instances, median 1.500 µs"),
        ("step, process 644", "3 instances, median 2.000 µs"),
    ]
    assert [len(dots(strip.time)) for strip in view.strips] == [2, 3]


def test_of_many_processes_the_first_are_drawn_and_the_others_counted() -> None:
    frame = pd.concat([table([1000, 2000], pid=pid) for pid in range(10)], ignore_index=True)
    (view,) = strips(frame, NO_MEDIANS)
    assert [strip.label for strip in view.strips] == [f"step, process {pid}" for pid in range(8)]
    assert view.notes[-1].startswith("2 more strips, of other processes or ranges,")


@pytest.mark.parametrize("column", ["path", "number", "time_ns", "gpu_busy_ns"])
def test_a_table_that_lacks_a_column_is_not_drawn(column: str) -> None:
    assert strips(table([1000]).drop(columns=column), NO_MEDIANS) == ()


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_an_instance_without_a_time_is_not_drawn(value: float) -> None:
    assert len(dots(drawn(table([1000, value, 1000])).time)) == 2
    assert strips(table([value]), NO_MEDIANS) == ()


@examples(100)
@given(
    st.lists(st.floats(0, 1e18) | st.floats(), min_size=1, max_size=20),
    st.floats(),
    st.floats() | st.integers(0, 10**12),
)
def test_any_numbers_stay_inside_the_plot(time: list[float], busy: float, median: float) -> None:
    medians = pd.DataFrame({"path": ["step"], "instances": [len(time)], "med_ns": [median]})
    for view in strips(table(time, busy=[busy] * len(time)), medians):
        for strip in view.strips:
            places = [*dots(strip.time), *dots(strip.busy), *((ring.at.x, ring.at.y) for ring in strip.rings)]
            assert all(0 <= x <= 100 and 0 <= y <= 100 for x, y in places)
            assert 0 <= strip.median <= 100


def test_the_instances_of_a_real_report_are_drawn_with_its_outliers(recorded: Recorded) -> None:
    report = recorded.report("train")
    (view,) = pictures_of("range_iterations", report, Labels()).strips
    rows, summary = report.result("iteration_times").rows, report.result("range_iterations").rows.set_index("path")
    assert [strip.label for strip in view.strips] == list(dict.fromkeys(rows["path"]))
    for strip in view.strips:
        outliers = re.findall(r"#(\d+) \(([\d.]+×)\)", str(summary.loc[strip.label, "outliers"]))
        assert [re.findall(r"#(\d+):.*\(([\d.,]+×)\)", ring.title)[0] for ring in strip.rings] == outliers
        off_scale = sum(ring.is_beyond for ring in strip.rings)
        assert len(dots(strip.time)) + off_scale == summary.loc[strip.label, "instances"]
    assert view.has_busy


def test_hostile_paths_stay_text() -> None:
    for name in HOSTILE:
        html = render_html(
            small_report(
                results=(
                    result("range_iterations", pd.DataFrame({"path": [name], "instances": [2], "med_ns": [1.0]})),
                    result("iteration_times", table([1000, 9000], path=name)),
                )
            )
        )
        assert "<script>alert" not in html
        assert any("2 instances, median" in (svg.get("aria-label") or "") for svg in Outline(html).all("svg"))
