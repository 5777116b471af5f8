"""Histograms and their axes: where bins, marks and ticks are, and that their numbers are those of the result."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.model.report import Report
from nightsight.render import render_html
from nightsight.render.figure.axes import level_ticks, log_axis, round_text
from nightsight.render.figure.charts import DURATIONS, LATENCIES
from nightsight.render.figure.histograms import PANELS, Distribution, Layer, histograms
from nightsight.render.figure.plot import Line, Panels, Plot, Rect, Text
from nightsight.render.page.page import page
from nightsight.results import RESULTS
from nightsight.results.launches import KERNEL_DURATIONS
from tests.properties import examples
from tests.recorded import Recorded
from tests.reports import HOSTILE, kernel_table, result, small_report
from tests.test_render_html import Outline

COUNT, TIME = Layer("f", "count", "Things", "thing", "api"), Layer("f", "total_ns", "Their time", "thing", "api")
KIND = Distribution(KERNEL_DURATIONS, "Title", (COUNT, TIME), "A note.")
ONE = replace(KIND, layers=(COUNT,))
COLUMNS = ("device", "figure", "from_ns", "below_ns", "count", "total_ns", "med_ns", "p95_ns")


def table(*classes: tuple[float, float, float, float], device: int = 0, **changes: Any) -> pd.DataFrame:
    rows = [(device, "f", *each, 1000.0, 5000.0) for each in classes]
    return pd.DataFrame(rows, columns=list(COLUMNS)).assign(**changes)


def drawn(kind: Distribution, frame: pd.DataFrame) -> Panels:
    (view,) = histograms(kind, frame)
    return view


def panel(*classes: tuple[float, float, float, float], **changes: Any) -> Plot:
    return drawn(ONE, table(*classes, **changes)).plots[0]


def bins(plot: Plot) -> list[Rect]:
    return [mark for mark in plot.marks if isinstance(mark, Rect)]


# -- axes -------------------------------------------------------------------------------------------------------------


@examples(200)
@given(st.lists(st.floats(1e-3, 1e18), min_size=1, max_size=10), st.booleans())
def test_places_rise_with_values_and_ticks_are_where_their_values_are(values: list[float], has_zero: bool) -> None:
    axis = log_axis(np.array(values), unit="ns", zero="0" if has_zero else "")
    places = axis.places(np.sort(np.array(values)))
    assert ((places >= 0) & (places <= 100)).all()
    assert (np.diff(places) >= 0).all()
    ticks = [tick for tick in axis.ticks() if tick.text != "0"]
    assert 1 - has_zero <= len(ticks) <= 9
    assert [tick.place for tick in ticks] == sorted(tick.place for tick in ticks)


@pytest.mark.parametrize(
    ("least", "most", "texts"),
    [
        (1e3, 1e4, ["1 µs", "2 µs", "5 µs", "10 µs"]),
        (1e3, 3e5, ["1 µs", "3 µs", "10 µs", "30 µs", "100 µs", "300 µs"]),
        (1e2, 1e9, ["100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]),
        (1e0, 1e15, ["1 ns", "1 µs", "1 ms", "1 s", "1,000 s", "1,000,000 s"]),
    ],
)
def test_ticks_are_round_and_few(least: float, most: float, texts: list[str]) -> None:
    assert [tick.text for tick in log_axis(np.array([least, most]), unit="ns").ticks()] == texts


def test_an_axis_has_a_decade_at_least_around_what_it_shows() -> None:
    axis = log_axis(np.array([1000.0]), unit="ns")
    assert (axis.low, axis.high) == (2.5, 3.5)
    assert axis.places(np.array([1000.0])).tolist() == [50]


def test_zeros_stand_before_the_axis() -> None:
    axis = log_axis(np.array([100.0, 1000.0]), unit="ns", zero="0")
    assert axis.places(np.array([0.0, 100.0])).tolist() == [0, pytest.approx(2 * axis.zero_width, abs=0.02)]
    assert axis.ticks()[0].text == "0"
    assert axis.ticks()[1].place > 10


def test_levels_are_written_at_the_unit_of_the_top() -> None:
    top, ticks = level_ticks(885_000.0, unit="ns")
    assert (top, [tick.text for tick in ticks]) == (1e6, ["1.0 ms", "0.5 ms", "0"])


def test_round_values_have_no_decimals_that_say_nothing() -> None:
    assert [round_text(value, "ns") for value in (125.0, 1250.0, 16_000.0)] == ["125 ns", "1.25 µs", "16 µs"]


# -- bins -------------------------------------------------------------------------------------------------------------


def test_bins_stand_on_their_classes_as_high_as_their_counts() -> None:
    view = panel((1000, 2000, 50, 70_000), (5000, 10_000, 100, 700_000))
    assert [(item.x, round(item.x + item.width, 1), item.height, item.y) for item in bins(view)] == [
        (0, 30.1, 50, 50),
        (69.9, 100, 100, 0),
    ]
    assert [tick.text for tick in view.up] == ["100", "50", "0"]


def test_what_is_rare_can_be_seen_and_nothing_cannot() -> None:
    view = panel((1000, 2000, 1, 0), (5000, 10_000, 1e6, 700_000))
    assert 0 < bins(view)[0].height < 3
    rows = drawn(replace(KIND, layers=(TIME,)), table((1000, 2000, 1, 0), (5000, 10_000, 5, 700_000)))
    assert bins(rows.plots[0])[0].height == 0


def test_numbers_are_in_the_titles_and_in_words() -> None:
    view = drawn(KIND, table((1000, 1250, 1, 1100), (5000, 6300, 3, 16_500)))
    assert [item.title for item in bins(view.plots[0])] == [
        "1 µs to 1.25 µs: 1 thing, 1.100 µs in total (25.0 % of all)",
        "5 µs to 6.3 µs: 3 things, 16.50 µs in total (75.0 % of all)",
    ]
    assert view.plots[0].remark == "4 things, median 1.000 µs, 95th percentile 5.000 µs"
    assert view.plots[0].summary == f"Things: {view.plots[0].remark}"
    assert view.plots[1].remark == "17.60 µs, 93.8 % of it at 5 µs or longer"


def test_what_is_shorter_than_the_axis_begins_is_one_class() -> None:
    classes = [(0.0, 1.0, 2, 0), (80.0, 100.0, 3, 270), (100.0, 125.0, 5, 500), (4000.0, 5000.0, 7, 30_000)]
    view = drawn(replace(ONE, least=100.0), table(*classes))
    first, second, _ = bins(view.plots[0])
    assert first.title.startswith("0 ns to 100 ns: 5 things, 270 ns in total")
    assert (first.x, view.plots[0].across[0].text) == (0, "<100 ns")
    assert second.x >= first.x + first.width
    assert sum(int(re.findall(r": ([\d,]+) thing", item.title)[0]) for item in bins(view.plots[0])) == 17


@pytest.mark.parametrize(
    ("median", "high", "expected"),
    [
        (3000, 4000, [("end", 0), ("start", 0)]),
        (1050, 1300, [("start", 0), ("start", 1)]),
        (1050, 9000, [("start", 0), ("end", 0)]),
        (8500, 9500, [("end", 0), ("end", 1)]),
    ],
)
def test_names_of_marks_do_not_touch(median: float, high: float, expected: list[tuple[str, int]]) -> None:
    view = panel((1000, 1250, 1, 1), (8000, 10_000, 1, 1), med_ns=median, p95_ns=high)
    names = [mark for mark in view.marks if isinstance(mark, Text)]
    assert [mark.look for mark in names] == [f"{anchor} row-{row}" for anchor, row in expected]
    lines = [mark.begin.x for mark in view.marks if isinstance(mark, Line) and mark.look.startswith("mark-of")]
    assert [mark.at.x for mark in names] == lines
    assert lines == pytest.approx([100 * math.log10(x / 1000) for x in (median, high)], abs=0.1)


def test_devices_share_the_axis_and_are_named() -> None:
    view = drawn(ONE, pd.concat([table((1000, 2000, 1, 1)), table((5000, 10_000, 1, 1), device=3)]))
    assert [plot.label for plot in view.plots] == ["GPU 0: Things", "GPU 3: Things"]
    assert bins(view.plots[0])[0].x < bins(view.plots[1])[0].x
    assert [bool(plot.across) for plot in view.plots] == [False, True]


def test_of_many_devices_the_first_are_drawn_and_the_page_says_so() -> None:
    view = drawn(KIND, pd.concat([table((1000, 2000, 1, 1), device=device) for device in range(100)]))
    assert len(view.plots) == PANELS
    assert view.notes[1].startswith(f"The first {PANELS // 2} of 100 devices")


@pytest.mark.parametrize("column", COLUMNS)
def test_a_table_that_lacks_a_column_is_not_drawn(column: str) -> None:
    assert histograms(KIND, table((1000, 2000, 1, 1)).drop(columns=column)) == ()


@pytest.mark.parametrize("column", COLUMNS[2:])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_what_is_no_number_is_not_drawn(column: str, value: float) -> None:
    assert histograms(KIND, table((1000, 2000, 1, 1)).assign(**{column: value})) == ()


@examples(100)
@given(st.lists(st.tuples(*[st.floats(allow_nan=True, allow_infinity=True)] * 6), max_size=5))
def test_any_numbers_stay_inside_the_plot(rows: list[tuple[float, ...]]) -> None:
    frame = pd.DataFrame([(0, "f", *row) for row in rows], columns=list(COLUMNS))
    for view in histograms(KIND, frame):
        for each in view.plots:
            assert all(0 <= item.x <= item.x + item.width <= 100.01 for item in bins(each))
            assert all(0 <= item.height <= 100 for item in bins(each))
            assert all(0 <= mark.at.x <= 100 for mark in each.marks if isinstance(mark, Text))


# -- in the page ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def train(recorded: Recorded) -> Report:
    return recorded.report("train")


@pytest.mark.parametrize(("name", "kind"), [("cuda_gpu_kern_sum", DURATIONS), ("launch_phases", LATENCIES)])
def test_the_bins_of_a_real_report_count_all_that_its_table_has(train: Report, name: str, kind: Distribution) -> None:
    section = next(section for section in page(train).results if section.anchor == name)
    (view,) = section.pictures.below
    rows = train.rows(kind.source)
    for layer, each in zip(kind.layers, view.plots, strict=True):
        counts = [re.findall(r": ([\d,]+) (?:kernel|launch)", item.title)[0].replace(",", "") for item in bins(each)]
        assert sum(map(int, counts)) == rows.loc[rows["figure"] == layer.figure, "count"].sum()


def test_series_are_no_tables_of_their_own(train: Report) -> None:
    view = page(train)
    points = {entry.name for entry in RESULTS if entry.place == "points"}
    assert not {section.anchor for section in (*view.results, *view.method.sections)} & points
    assert {result.name for result in train.results} >= points


def test_hostile_figures_and_devices_stay_text() -> None:
    frame = pd.concat([table((1000, 2000, 1, 1), figure="kernel duration").assign(device=name) for name in HOSTILE])
    report = small_report(
        results=(result("cuda_gpu_kern_sum", kernel_table()), result("kernel_durations", frame.reset_index(drop=True)))
    )
    html = render_html(report)
    assert "<script>alert" not in html
    assert any("script" in (svg.get("aria-label") or "") for svg in Outline(html).all("svg"))
