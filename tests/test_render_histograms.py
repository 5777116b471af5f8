"""Histograms: where bins and marks are, and that their numbers are those of the result."""

import math
import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.model.report import Report
from nightsight.render.figure.charts import DURATIONS, LATENCIES
from nightsight.render.figure.histograms import MAX_PANELS, Distribution, Layer, histograms
from nightsight.render.figure.plot import Line, Panels, Plot, Rect, Text
from nightsight.render.page.page import page
from nightsight.results import RESULTS
from nightsight.results.launches import KERNEL_DURATIONS
from tests.properties import examples
from tests.recorded import Recorded

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


# -- bins -------------------------------------------------------------------------------------------------------------


def test_bins_stand_on_their_classes_as_high_as_their_counts() -> None:
    view = panel((1000, 2000, 50, 70_000), (5000, 10_000, 100, 700_000))
    assert [(item.x, round(item.x + item.width, 1), item.height, item.y) for item in view.of(Rect)] == [
        (0, 30.1, 50, 50),
        (69.9, 100, 100, 0),
    ]
    assert [tick.text for tick in view.up] == ["100", "50", "0"]


def test_what_is_rare_can_be_seen_and_nothing_cannot() -> None:
    view = panel((1000, 2000, 1, 0), (5000, 10_000, 1e6, 700_000))
    assert 0 < view.of(Rect)[0].height < 3
    rows = drawn(replace(KIND, layers=(TIME,)), table((1000, 2000, 1, 0), (5000, 10_000, 5, 700_000)))
    assert rows.plots[0].of(Rect)[0].height == 0


def test_numbers_are_in_the_titles_and_in_words() -> None:
    view = drawn(KIND, table((1000, 1250, 1, 1100), (5000, 6300, 3, 16_500)))
    assert [item.title for item in view.plots[0].of(Rect)] == [
        "1 µs to 1.25 µs: 1 thing, 1.10 µs in total (25.0 % of all)",
        "5 µs to 6.3 µs: 3 things, 16.5 µs in total (75.0 % of all)",
    ]
    assert view.plots[0].remark == "4 things, median 1.00 µs, 95th percentile 5.00 µs"
    assert view.plots[0].summary == f"Things: {view.plots[0].remark}"
    assert view.plots[1].remark == "17.6 µs, 93.8 % of it at 5 µs or longer"


def test_what_is_shorter_than_the_axis_begins_is_one_class() -> None:
    classes = [(0.0, 1.0, 2, 0), (80.0, 100.0, 3, 270), (100.0, 125.0, 5, 500), (4000.0, 5000.0, 7, 30_000)]
    view = drawn(replace(ONE, least=100.0), table(*classes))
    first, second, _ = view.plots[0].of(Rect)
    assert first.title.startswith("0 ns to 100 ns: 5 things, 270 ns in total")
    assert (first.x, view.plots[0].across[0].text) == (0, "<100 ns")
    assert second.x >= first.x + first.width
    assert sum(int(re.findall(r": ([\d,]+) thing", item.title)[0]) for item in view.plots[0].of(Rect)) == 17


@pytest.mark.parametrize(
    ("median", "high", "expected"),
    [
        (3000, 4000, [("median", "end", 0), ("p95", "start", 1)]),
        (1050, 1300, [("median, p95", "start", 1)]),
        (1050, 9000, [("median", "start", 0), ("p95", "end", 1)]),
        (8500, 9500, [("median, p95", "end", 0)]),
    ],
)
def test_names_of_marks_do_not_touch(median: float, high: float, expected: list[tuple[str, str, int]]) -> None:
    view = panel((1000, 1250, 1, 1), (8000, 10_000, 1, 1), med_ns=median, p95_ns=high)
    names = view.of(Text)
    lines = [mark.begin.x for mark in view.of(Line, "mark-of")]
    assert [(mark.text, mark.look.removesuffix(" above-plot"), lines.index(mark.at.x)) for mark in names] == expected
    assert lines == pytest.approx([100 * math.log10(x / 1000) for x in (median, high)], abs=0.1)


def test_devices_share_the_axis_and_are_named() -> None:
    view = drawn(ONE, pd.concat([table((1000, 2000, 1, 1)), table((5000, 10_000, 1, 1), device=3)]))
    assert [plot.label for plot in view.plots] == ["GPU 0: Things", "GPU 3: Things"]
    assert view.plots[0].of(Rect)[0].x < view.plots[1].of(Rect)[0].x
    assert [bool(plot.across) for plot in view.plots] == [False, True]


def test_of_many_devices_the_first_are_drawn_and_the_page_says_so() -> None:
    view = drawn(KIND, pd.concat([table((1000, 2000, 1, 1), device=device) for device in range(100)]))
    assert len(view.plots) == MAX_PANELS
    assert view.notes[1].startswith(f"The first {MAX_PANELS // 2} of 100 devices")


@examples(100)
@given(st.lists(st.tuples(*[st.floats(allow_nan=True, allow_infinity=True)] * 6), max_size=5))
def test_any_numbers_stay_inside_the_plot(rows: list[tuple[float, ...]]) -> None:
    frame = pd.DataFrame([(0, "f", *row) for row in rows], columns=list(COLUMNS))
    for view in histograms(KIND, frame):
        for each in view.plots:
            assert all(0 <= item.x <= item.x + item.width <= 100.01 for item in each.of(Rect))
            assert all(0 <= item.height <= 100 for item in each.of(Rect))
            assert all(0 <= mark.at.x <= 100 for mark in each.of(Text))


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
        counts = [re.findall(r": ([\d,]+) (?:kernel|launch)", item.title)[0].replace(",", "") for item in each.of(Rect)]
        assert sum(map(int, counts)) == rows.loc[rows["figure"] == layer.figure, "count"].sum()


def test_series_are_no_tables_of_their_own(train: Report) -> None:
    view = page(train)
    points = {entry.name for entry in RESULTS if entry.place == "points"}
    assert not {section.anchor for section in (*view.results, *view.method.sections)} & points
    assert {result.name for result in train.results} >= points
