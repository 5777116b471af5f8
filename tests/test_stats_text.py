"""How tables of `nightsight stats` are written: digits, units, faults and the three forms."""

import csv
import io
import json
import re
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.errors import MissingTable, UsageError
from nightsight.model.report import Profile
from nightsight.read import read
from nightsight.stats import REPORTS, stats_table, write_stats
from nightsight.stats.text import time_unit
from nightsight.tables import conform
from tests.recorded import of_laws, unpacked
from tests.timeline import draw

CAPTURES = of_laws("*.sqlite.xz", "*.json.gz", "*.ncu-rep.xz", "*.details.csv.xz", "*.raw.csv.xz")


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=9))
def test_averages_round_half_away_from_zero_as_sqlite_does(durations: list[int]) -> None:
    frame = draw("s7  a").table("kernels")
    kernels = pd.concat([frame.assign(end_ns=frame["start_ns"] + duration) for duration in durations])
    text = write_stats(stats_table(Profile({"kernels": conform("kernels", kernels)}), "cuda_gpu_kern_sum"), "csv")
    shown = Decimal(text.splitlines()[1].split(",")[3])
    assert abs(shown - Decimal(sum(durations)) / len(durations)) <= Decimal("0.0502")


def test_table_and_json_hold_what_csv_holds() -> None:
    table = stats_table(draw("s7  aaa.bb"), "cuda_gpu_kern_sum")
    (header, rule, first, second) = write_stats(table, "table").splitlines()
    assert header.split()[:2] == ["Time", "(%)"]
    assert set(rule) == {"-", " "}
    assert first.split()[:3] == ["60.0", "3000", "1"]
    assert second.split()[-1] == "b"
    (_, row) = json.loads(write_stats(table, "json"))
    assert (row["Name"], row["Total Time (ns)"], row["Time (%)"]) == ("b", 2000, 40.0)


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_table_of_every_capture_says_the_same_in_every_form(capture: Path, tmp_path: Path) -> None:
    profile = read(unpacked(capture, tmp_path))
    for report in REPORTS:
        try:
            table = stats_table(profile, report)
        except MissingTable:
            continue
        header, *rows = csv.reader(io.StringIO(write_stats(table, "csv")))
        records = json.loads(write_stats(table, "json"), parse_int=str, parse_float=str)
        assert records == [dict(zip(header, row, strict=True)) for row in rows], report
        titles, rule, *lines = write_stats(table, "table").splitlines()
        places = [match.span() for match in re.finditer("-+", rule)]
        shown = [[line[slice(*place)].strip() for place in places] for line in (titles, *lines)]
        assert shown == [[cell.strip() for cell in row] for row in (header, *rows)], report


def test_the_process_of_a_range_is_a_number_in_every_form() -> None:
    profile = draw("cpu   LLLL.\nnvtx  [aa]\ns7    ..aaa")
    (header, _, row) = write_stats(stats_table(profile, "nvtx_kern_sum"), "table").splitlines()
    # numbers end where their column does
    assert row[: header.index("PID") + 3].endswith("  5")


def test_what_is_missing_is_empty_text_as_in_nsys() -> None:
    table = stats_table(draw("cpu  LLLL.\ns7   ..aaa"), "cuda_kern_exec_trace")
    assert write_stats(table, "csv").splitlines()[1].startswith("0,4000,,,2000,3000,5000,5,7,0,")
    assert json.loads(write_stats(table, "json"))[0]["Queue Dur (ns)"] == ""


def test_json_has_the_decimals_of_csv_and_quotes_what_must_be() -> None:
    text = write_stats(stats_table(draw("s7  aaa"), "cuda_gpu_kern_sum"), "json", unit="ms")
    assert '\n    "Avg (ms)": 0.0030,\n' in text
    named = pd.DataFrame({"Name": ['a "b"\n\\ é', ""], "Duration_ns": [1, 2]})
    assert json.loads(write_stats(named, "json")) == [
        {"Name": 'a "b"\n\\ é', "Duration (ns)": 1},
        {"Name": "", "Duration (ns)": 2},
    ]
    assert json.loads(write_stats(named[:0], "json")) == []


@pytest.mark.parametrize(
    ("unit", "cells"),
    [("ns", ["1234567", "1234567.0"]), ("us", ["1234.567"] * 2), ("ms", ["1.2346"] * 2), ("s", ["0.0012"] * 2)],
)
def test_times_in_other_units(unit: str, cells: list[str]) -> None:
    frame = draw("s7  a").table("kernels")
    profile = Profile({"kernels": conform("kernels", frame.assign(end_ns=frame["start_ns"] + 1_234_567))})
    header, row = write_stats(stats_table(profile, "cuda_gpu_kern_sum"), "csv", unit=unit).splitlines()
    assert header.split(",")[1] == f"Total Time ({'sec' if unit == 's' else unit})"
    assert [row.split(",")[1], row.split(",")[3]] == cells
    assert row.split(",")[2] == "1"


@pytest.mark.parametrize(
    ("value", "unit", "cell"),
    [
        (7271.5, "us", "7.272"),
        (287.5, "us", "0.288"),
        (1938.5, "us", "1.939"),
        (1750, "ms", "0.0017"),
        (3_013_880_950, "ms", "3013.8809"),
        (2_946_570_050, "ms", "2946.5700"),
    ],
)
def test_halves_fall_as_they_did_in_nsys(value: float, unit: str, cell: str) -> None:
    assert write_stats(pd.DataFrame({"Duration_ns": [value]}), "csv", unit=unit).splitlines()[1] == cell


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("ns", "ns"),
        ("nsec", "ns"),
        ("nano", "ns"),
        ("us", "us"),
        ("usec", "us"),
        ("msec", "ms"),
        ("milli", "ms"),
        ("s", "s"),
        ("sec", "s"),
        ("seconds", "s"),
    ],
)
def test_units_go_by_the_beginnings_of_nvidias_names(name: str, unit: str) -> None:
    assert time_unit(name) == unit


@pytest.mark.parametrize("name", ["", "m", "min", "secs", "S"])
def test_other_units_are_errors(name: str) -> None:
    with pytest.raises(UsageError, match="unknown unit of time"):
        time_unit(name)
