import math
import re

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nightsight.events.kernel_labels import KernelLabels
from nightsight.render.figure.charts import pictures_of
from nightsight.render.figure.plot import Dot, Line, Plane, Point, Text
from nightsight.render.figure.rooflines import MAX_POINTS, rooflines
from nightsight.render.table import replayed
from tests.replay_tables import H200, points, roofs
from tests.reports import result, small_report

positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
anything = st.floats() | positive
kinds = st.sampled_from(["FP64", "FP32", "tensor BF16"])


def chart(frame: pd.DataFrame, above: pd.DataFrame = H200) -> Plane:
    (drawn,) = rooflines(frame, above, KernelLabels().short)
    assert isinstance(drawn, Plane)
    return drawn


def labels(drawn: Plane) -> list[str]:
    """Return what is written on roofs."""
    return [mark.text + mark.more for mark in drawn.plot.of(Text)]


def level_labels(drawn: Plane) -> list[tuple[str, str]]:
    """Return what is written on flat roofs, and on which side of them."""
    return [(mark.text, mark.look.split()[1]) for mark in drawn.plot.of(Text) if "slope" not in mark.look]


def drawn_points(drawn: Plane) -> list[Point]:
    return drawn.plot.of(Point, "series")


def dots(drawn: Plane) -> list[Dot]:
    lines = [dot for line in drawn.plot.of(Line) for dot in (line.begin, line.end)]
    return [*lines, *(mark.at for mark in drawn.plot.of(Point)), *(mark.at for mark in drawn.plot.of(Text))]


@given(
    st.lists(st.tuples(st.integers(0, 3), kinds, anything, anything, anything), max_size=12),
    st.lists(st.tuples(st.sampled_from(["DRAM", "L2", "FP64", "FP32"]), anything, anything), max_size=6),
)
@example([(0, "FP32", 5e-324, 1.7e308, 5e-324)], [("DRAM", 1.7e308, None), ("FP32", None, 5e-324)])
def test_whatever_table_comes_in_all_is_on_the_plot(
    rows: list[tuple[int, str, float, float, float]], above: list[tuple[str, float | None, float | None]]
) -> None:
    for drawn in rooflines(points(*rows), roofs(*above), KernelLabels().short):
        places = [place for dot in dots(drawn) for place in (dot.x, dot.y)]
        places += [tick.place for tick in (*drawn.plot.up, *drawn.plot.across)]
        assert all(0 <= place <= 100 for place in places)
        assert len(drawn.plot.up) >= 2
        assert len(drawn.plot.across) >= 2


@given(st.lists(st.tuples(st.integers(0, 3), kinds, anything, anything, anything), max_size=12))
def test_what_is_zero_or_missing_leaves_no_point(rows: list[tuple[int, str, float, float, float]]) -> None:
    valid = [row for row in rows if all(0 < value < math.inf for value in row[2:4])]
    drawn = rooflines(points(*rows), H200, KernelLabels().short)
    assert bool(drawn) == bool(valid)
    largest = max((row[2] for row in valid), default=0.0)  # all rows have one name here
    assert sum(len(drawn_points(each)) for each in drawn) == sum(row[2] >= 0.01 * largest for row in valid)


@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=8))
def test_more_arithmetic_is_higher_and_more_per_byte_is_further_right(rows: list[tuple[float, float]]) -> None:
    frame = points(*((0, "FP32", rate, intensity, math.nan) for rate, intensity in rows))
    marks = drawn_points(chart(frame.assign(name=[f"{place}. k" for place in range(len(rows))])))
    by_rate = sorted(zip((rate for rate, _ in rows), (-point.at.y for point in marks), strict=True))
    by_byte = sorted(zip((byte for _, byte in rows), (point.at.x for point in marks), strict=True))
    assert [place for _, place in by_rate] == sorted(-point.at.y for point in marks)
    assert [place for _, place in by_byte] == sorted(point.at.x for point in marks)


def test_points_and_roofs_lie_on_common_decades() -> None:
    drawn = chart(points((0, "FP32", 1e13, 100.0, 10.0), (1, "FP32", 1e12, 10.0, 1.0)))
    assert [(tick.text, tick.place) for tick in drawn.plot.up] == [("1 T", 100), ("10 T", 50), ("100 T", 0)]
    assert [(tick.text, tick.place) for tick in drawn.plot.across] == [("1", 0), ("10", 50), ("100", 100)]
    assert [point.at for point in drawn_points(drawn)] == [Dot(100, 50), Dot(50, 100)]
    assert [point.at for point in drawn.plot.of(Point, "hollow")] == [Dot(50, 50), Dot(0, 100)]
    lines = [(line.begin, line.end) for line in drawn.plot.of(Line, "roof")]
    assert dict(zip(labels(drawn), lines, strict=True)) == {
        "DRAM: 1.000 TB/s": (Dot(0, 100), Dot(100, 0)),
        "L2: 10.00 TB/s": (Dot(0, 50), Dot(50, 0)),
        "FP32: 100.0 TFLOP/s": (Dot(50, 0), Dot(100, 0)),
    }


def test_only_the_kinds_that_occur_have_roofs_and_equal_ones_share_a_line() -> None:
    drawn = chart(points((0, "FP32", 1e13, 100.0, math.nan), (1, "FP64", 1e13, 100.0, math.nan)))
    assert labels(drawn)[-1:] == ["FP32, FP64: 100.0 TFLOP/s"]


def test_operations_on_integers_are_not_floating_point() -> None:
    above = roofs(("FP32", None, 6e13), ("tensor INT8", None, 2e15))
    rows = points((0, "FP32", 1e13, 10.0, math.nan), (1, "tensor INT8", 9e14, 100.0, math.nan))
    drawn = chart(rows, above)
    assert labels(drawn) == ["FP32: 60.00 TFLOP/s", "tensor INT8: 2.000 POP/s"]
    titles = [point.title for point in drawn_points(drawn)]
    assert [re.findall(r"[\d.]+ \w+/s", title) for title in titles] == [["10.00 TFLOP/s"], ["900.0 TOP/s"]]
    assert (drawn.up, drawn.across) == ("OP/s", "OP/byte")
    assert [re.findall(r"[\d.]+ \w+/byte", title) for title in titles] == [["10 FLOP/byte"], ["100 OP/byte"]]
    assert {"rate_op_per_s", "per_DRAM_byte_op_per_byte"} <= {*replayed.points(rows)}
    assert "rate_flop_per_s" in replayed.points(rows[rows["kind"] == "FP32"])
    assert "arithmetic_op_per_s" in replayed.roofs(above)


def test_columns_of_operators_are_of_operations_if_some_are_on_integers() -> None:
    columns = ["kind", "work_flop", "work_flop_per_byte", "work_flop_per_s", "flop_difference_pct", "bytes_per_s"]
    for kind, unit in (("tensor INT8", "op"), ("tensor BF16", "flop")):
        frame = pd.DataFrame([[kind, 1e9, 10.0, 1e12, 0.0, 1e12]], columns=columns)
        expected = ["kind", f"work_{unit}", f"work_{unit}_per_byte", f"work_{unit}_per_s", *columns[4:]]
        assert list(replayed.of_arithmetic(frame, "kind")) == expected
    peaks = roofs(("DRAM", 4e12, None), ("tensor INT8", None, 2e15))
    assert "op_per_s" in replayed.of_arithmetic(peaks, "roof")


def test_a_label_between_two_near_roofs_goes_below_the_lower_one() -> None:
    above = roofs(("FP32", None, 6e13), ("FP64", None, 7e13))
    drawn = chart(points((0, "FP32", 1e10, 1.0, math.nan), (0, "FP64", 1e10, 1.0, math.nan)), above)
    assert level_labels(drawn) == [("FP32", "under"), ("FP64", "over")]


def test_a_label_stands_between_two_near_roofs_where_it_would_lie_on_points_below() -> None:
    above = roofs(("FP32", None, 6e13), ("FP16", None, 12e13))
    rows = [(place, kind, 3e13, 300.0 * 1.5**place, 1e-3) for place, kind in enumerate(("FP32", "FP16", "FP32"))]
    frame = points(*rows, (3, "FP32", 1e9, 1e-3, math.nan))
    drawn = chart(frame.assign(name=[f"{place}. k" for place in range(len(frame))]), above)
    assert level_labels(drawn) == [("FP32", "between"), ("FP16", "over")]


def test_a_label_goes_to_the_other_end_of_its_roof_where_points_are() -> None:
    free, taken = (chart(points((0, "FP32", *place, math.nan))) for place in ((1e10, 1.0), (98e12, 900.0)))
    for drawn, anchor in ((free, "end"), (taken, "start")):
        text = next(mark for mark in drawn.plot.of(Text) if mark.text == "FP32")
        line = drawn.plot.of(Line, "roof")[-1]
        assert (text.at, text.look.split()[-1]) == (line.end if anchor == "end" else line.begin, anchor)


def test_points_without_known_roofs_are_drawn_alone() -> None:
    drawn = chart(points((0, "FP32", 1e13, 100.0, math.nan)), pd.DataFrame())
    assert (len(drawn_points(drawn)), drawn.plot.of(Line, "roof"), drawn.title) == (1, [], "GPU 0")


def test_each_device_has_its_own_plot_and_roofs() -> None:
    frame = points((0, "FP32", 1e13, 1.0, math.nan), (1, "FP32", 1e12, 1.0, math.nan)).assign(device=[0, 1])
    both = pd.concat([roofs(("FP32", None, 1e14)), roofs(("FP32", None, 2e14), device=1)])
    drawn = rooflines(frame, both, KernelLabels().short)
    assert [text for each in drawn for text in labels(each)] == ["FP32: 100.0 TFLOP/s", "FP32: 200.0 TFLOP/s"]


def test_a_kind_that_is_a_trifle_of_its_kernel_is_in_the_table_only() -> None:
    frame = points((0, "FP32", 1e13, 1.0, math.nan), (0, "FP16", 9e10, 1.0, math.nan), (1, "FP16", 9e10, 1.0, math.nan))
    drawn = chart(frame.assign(name=["1. a", "1. a", "2. b"]))
    assert [(point.number, point.title.split(",")[1]) for point in drawn_points(drawn)] == [
        ("1", " FP32: 10.00 TFLOP/s"),
        ("2", " FP16: 90.00 GFLOP/s"),
    ]
    assert "Not drawn: 1 kind of arithmetic" in drawn.notes[1]


def test_points_look_like_their_keys() -> None:
    drawn = chart(points(*((place, f"tensor {place}", 1e13, 1.0, math.nan) for place in range(3))))
    assert [(point.look, point.shape) for point in drawn_points(drawn)] == [(key.look, key.shape) for key in drawn.keys]


def test_a_number_stands_where_no_other_point_is() -> None:
    frame = points(
        (0, "FP32", 1e13, 100.0, math.nan), (1, "FP32", 1e13, 105.0, math.nan), (2, "FP32", 1e9, 1e-3, math.nan)
    )
    sides = [point.side[2] for point in drawn_points(chart(frame.assign(name=["1. a", "2. b", "3. c"])))]
    assert sides == ["end", "start", "start"]


def test_a_point_says_in_words_what_it_is() -> None:
    (point,) = drawn_points(chart(points((0, "FP32", 1e13, 100.0, 10.0)).assign(name="7. void gemm(int)")))
    assert point.title == (
        "7. gemm, FP32: 10.00 TFLOP/s, 50.0 % of its roof, 100 FLOP/byte of DRAM, 10 FLOP/byte of L2; "
        "limited by no roof; the nearest is FP32 at 50.0 %"
    )
    # the DRAM of H200 here does 1 TB/s
    (point,) = drawn_points(chart(points((0, "FP32", 0.9e12, 1.0, math.nan))))
    assert point.title.endswith("; limited by DRAM, 90.0 % of its roof")


def test_a_plot_has_a_limit() -> None:
    drawn = chart(points(*((place, "FP32", 1e13, 1.0 + place, math.nan) for place in range(MAX_POINTS + 1))))
    assert len(drawn_points(drawn)) == MAX_POINTS
    assert drawn.notes[-1].startswith(f"The first {MAX_POINTS} of {MAX_POINTS + 1} points.")


@pytest.mark.parametrize("column", ["kind", "flop_per_s", "flop_per_byte", "device"])
def test_a_table_that_lacks_a_column_has_no_plot(column: str) -> None:
    assert rooflines(points((0, "FP32", 1e13, 1.0, 1.0)).drop(columns=column), H200, KernelLabels().short) == ()


def test_operators_are_numbered_by_their_rows_and_drawn_if_they_calculate() -> None:
    shares = {"compute_pct": [80.0, None, 5.0], "device": 0, "shapes": "64×64", "kind": ["tensor BF16", "", ""]}
    rates = {"work_flop_per_s": [8e14, None, 1e12], "work_flop_per_byte": [1000.0, None, 0.5]}
    frame = pd.DataFrame({"name": ["aten::mm", "aten::cat", "aten::mv"], **rates, **shares})
    above = roofs(("DRAM", 4.8e12, None), ("tensor BF16", None, 989e12))
    results = (result("operator_roofline", frame), result("operator_roofs", above))
    (drawn,) = pictures_of("operator_roofline", small_report(results=results), KernelLabels()).above
    assert isinstance(drawn, Plane)
    points = drawn_points(drawn)
    assert [point.number for point in points] == ["1", "3"]
    assert points[0].title.startswith("1. aten::mm 64×64, tensor BF16: 800.0 TFLOP/s, 80.0 % of its roof, 1,000")
    assert [key.label for key in drawn.keys] == ["tensor BF16", "not known"]
    assert drawn.notes[0].startswith("Numbers are the rows of the table whose operations are counted.")
