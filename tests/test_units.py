import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nightsight
from nightsight.units import (
    ABSENT,
    SUFFIXES,
    counted,
    difference,
    format_cell,
    format_value,
    heading,
    scale_for,
    signed,
    split,
)

SIZES = st.floats(min_value=1e-3, max_value=1e12)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("api_total_ns", ("api_total", "ns")),
        ("rate_bytes_per_s", ("rate", "bytes_per_s")),
        ("steps_per_s", ("steps", "per_s")),
        ("peak_flop_per_s", ("peak", "flop_per_s")),
        ("l2_flop_per_byte", ("l2", "flop_per_byte")),
        ("flop_per_s", ("flop_per_s", "flop_per_s")),
        ("bytes_per_s", ("bytes_per_s", "bytes_per_s")),
        ("columns", ("columns", "")),
        ("work_flop", ("work", "flop")),
        ("ns", ("ns", "")),
    ],
)
def test_the_suffix_is_the_unit(column: str, expected: tuple[str, str]) -> None:
    assert split(column) == expected


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("api_med_ns", "API median"),
        ("l2_bytes", "L2"),
        ("stddev_ns", "Std dev"),
        ("sm_pct", "SM"),
        ("name", "Name"),
        ("", ""),
    ],
)
def test_heading_is_words(column: str, expected: str) -> None:
    assert heading(column) == expected


@pytest.mark.parametrize(
    ("value", "column", "expected"),
    [
        (1_500, "a_ns", "1.500 µs"),
        (81, "a_ns", "81 ns"),
        (0, "a_ns", "0 ns"),
        (3_490_039_828, "a_ns", "3.490 s"),
        (268_484_768, "a_bytes", "268.5 MB"),
        (1.8687, "a_pct", "1.9 %"),
        (0.004, "a_pct", "<0.1 %"),
        (828.4, "a_per_s", "828.4 /s"),
        (1_980_000_000, "a_hz", "1.980 GHz"),
        (4.8e12, "a_bytes_per_s", "4.800 TB/s"),
        (12, "a_flop_per_s", "12 FLOP/s"),
        (2.75e11, "a_flop", "275.0 GFLOP"),
        (6.67e13, "flop_per_s", "66.70 TFLOP/s"),
        (2.135e15, "a_flop_per_s", "2.135 PFLOP/s"),
        (0.5618, "flop_per_byte", "0.562 FLOP/byte"),
        (1_224, "count", "1,224"),
        (None, "a_ns", ABSENT),
        (math.nan, "a_ns", ABSENT),
        (math.inf, "a_pct", ABSENT),
    ],
)
def test_one_value_at_its_own_scale(value: float | None, column: str, expected: str) -> None:
    assert format_value(value, column) == expected


def test_a_column_has_one_unit_and_one_number_of_decimals() -> None:
    scale = scale_for("ns", [156_499_024, 52_768_811, 1_442_000, 142_715, 81])
    assert scale.symbol == "ms"
    assert [scale.format(value) for value in (156_499_024, 142_715, 81)] == ["156.499", "0.143", "<0.001"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([16_377_961, 45_408, 39_104, 17_664], ["16.378 ms", "0.045 ms", "0.039 ms", "0.018 ms"]),
        ([184_598_528, 83_886_080, 80, 80], ["184.599 MB", "83.886 MB", "<0.001 MB", "<0.001 MB"]),
        ([0, 2_430_000], ["0 ms", "2.430 ms"]),
        ([], []),
    ],
)
def test_columns_that_span_a_lot(values: list[float], expected: list[str]) -> None:
    scale = scale_for("bytes" if 80 in values else "ns", values)
    assert [scale.with_unit(value) for value in values] == expected


def test_a_cell_too_small_for_its_column_has_a_unit_of_its_own() -> None:
    scale = scale_for("bytes", [184_598_528, 83_886_080, 80])
    assert [format_cell(value, "a_bytes", scale=scale) for value in (184_598_528, 80, 0)] == ["184.599", "80 B", "0"]
    assert format_cell(-1, "a_ns", scale=scale_for("ns", [5e6])) == "\N{MINUS SIGN}1 ns"


def test_a_cell_that_no_unit_can_show_stays_less_than_the_least() -> None:
    assert format_cell(0.004, "a_pct", scale=scale_for("pct", [50.0])) == "<0.1"
    assert format_cell(None, "a_pct", scale=scale_for("pct", [50.0])) == ABSENT


def test_rates_keep_three_digits_of_the_smallest() -> None:
    scale = scale_for("flop_per_s", [34.26e12, 68.52e12, 137.0e12, 1.096e15, 1.096e15, 2.192e15, 17.54e15])
    assert [scale.with_unit(value) for value in (68.52e12, 17.54e15)] == ["68.5 TFLOP/s", "17,540.0 TFLOP/s"]
    assert scale_for("bytes_per_s", [3e6, 44e6, 604e6, 10.6e9, 1.6e12]).symbol == "GB/s"


def test_a_column_of_very_different_sizes_has_no_seven_digit_numbers() -> None:
    sizes = [11_494_948_900, 805_567_160, 294_190, 730, 32]
    scale = scale_for("bytes", sizes)
    assert [format_cell(size, "a_bytes", scale=scale) for size in sizes] == [
        *("11,494.949", "805.567", "0.294", "0.001"),
        "32 B",
    ]


def test_a_negative_sliver_keeps_its_sign() -> None:
    assert scale_for("ns", [5e6]).format(-1) == ">\N{MINUS SIGN}0.001"


@given(st.lists(SIZES, min_size=1), st.sampled_from([*SUFFIXES, ""]))
def test_what_is_not_zero_never_reads_as_zero(values: list[float], unit: str) -> None:
    scale = scale_for(unit, values)
    assert all(any(digit in scale.format(value) for digit in "123456789") for value in values)


@given(st.lists(SIZES, min_size=1), st.sampled_from([*SUFFIXES, ""]))
def test_a_printed_number_reads_back_within_its_last_digit(values: list[float], unit: str) -> None:
    scale = scale_for(unit, values)
    for value in values:
        text = scale.format(value)
        if not text.startswith("<"):
            assert float(text.replace(",", "")) == pytest.approx(value / scale.divisor, abs=0.51 * 10**-scale.decimals)


@pytest.mark.parametrize(
    ("count", "words", "expected"),
    [
        (1, ("kernel",), "1 kernel"),
        (0, ("kernel",), "0 kernels"),
        (1224, ("kernel",), "1,224 kernels"),
        (2, ("copy",), "2 copies"),
        (3, ("launch",), "3 launches"),
        (1, ("rank is", "ranks are"), "1 rank is"),
        (2, ("rank is", "ranks are"), "2 ranks are"),
    ],
)
def test_a_count_has_its_noun(count: int, words: tuple[str, ...], expected: str) -> None:
    assert counted(count, *words) == expected


def test_signs_are_formatted_in_one_place_so_that_all_numbers_have_the_same_minus() -> None:
    package = Path(nightsight.__file__).parent
    signs = re.compile(r"\{[^{}]*:\+[,.\d]")
    found = [path.name for path in sorted(package.rglob("*.py")) if signs.search(path.read_text(encoding="utf-8"))]
    assert found == ["units.py"]


def test_changes_have_their_sign() -> None:
    assert [signed(-4.06), signed(4.06), signed(-0.6, 0)] == ["\N{MINUS SIGN}4.1", "+4.1", "\N{MINUS SIGN}1"]
    texts = [difference(value, "time_ns") for value in (-3420.0, 3420.0, 0.0)]
    assert texts == ["\N{MINUS SIGN}3.420 µs", "+3.420 µs", "0 ns"]
