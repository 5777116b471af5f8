"""The reader of ncu's CSV pages on hostile files, and on numbers in all locales."""

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.errors import CaptureError
from nightsight.model.report import Profile
from nightsight.read import read, recognize
from nightsight.read.ncu.csv import read_ncu_csv
from nightsight.read.ncu.numbers import numbers_and_words
from nightsight.workflows.analysis import build_report
from tests import ncu
from tests.properties import examples
from tests.test_read_ncu_csv import RULE, metrics_of

DETAILS = ncu.page(
    (*ncu.DETAILS, *ncu.RULES),
    [
        [*ncu.identity(0, kernel='void k<"a", b>(T1)'), "Occupancy", "Achieved Occupancy", "%", "50.5"] + [""] * 5,
        [*ncu.identity(1), "SpeedOfLight", *[""] * 3, *RULE],
    ],
)
RAW = ncu.raw_page({"x__y.sum": ("Kbyte", "1.5"), "launch__z": ("", "words")}, [ncu.identity(0), ncu.identity(1)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ncu")


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Profile]:
    """Write a text as a file and read it."""

    def read_text(text: str) -> Profile:
        path = tmp_path / "some.csv"
        path.write_text(text, encoding="utf-8", newline="")
        return read(path)

    return read_text


# -- numbers ----------------------------------------------------------------------------------------------------------


def _german(cell: str) -> str:
    return cell.translate(str.maketrans(",.", ".,"))


def _french(cell: str) -> str:
    return cell.replace(",", "\u202f").replace(".", ",")


@pytest.mark.parametrize(
    "locale", [_german, _french, lambda cell: cell.replace(",", "'"), lambda cell: cell.replace(",", "")]
)
def test_every_locale_gives_the_same_numbers(locale: Callable[[str], str], written: Callable[..., Profile]) -> None:
    text = ncu.content("measure.raw.csv").decode()
    number = re.compile(r'(?<=")-?\d[\d.,]*(?=")')
    header, rest = text.split("\n", 1)
    profile = written(header + "\n" + number.sub(lambda match: locale(match[0]), rest.replace('"9.0"', '"9.x"')))
    assert metrics_of(profile).equals(metrics_of(written(text)))


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1,234", "5"], [1234, 5]),
        (["1,234", "5,0"], [1.234, 5]),
        (["1.234", "5"], [1.234, 5]),
        (["1.234", "1.234.567"], [1234, 1234567]),
        (["12,34,567.50"], [1234567.5]),
        (["1'234'567.5"], [1234567.5]),
        (["-1,234.5", "1e-3", "+7", "(!) 3"], [-1234.5, 0.001, 7, 3]),
        (["0.1234567", "8388608.000000"], [0.1234567, 8388608]),
    ],
)
def test_numbers_of_a_file_are_read_in_its_locale(cells: list[str], values: list[float]) -> None:
    read_cells = numbers_and_words(pd.Series(cells, dtype=object))
    assert read_cells["value"].tolist() == values
    assert (read_cells["text"] == "").all()


def test_words_stay_words_and_what_is_absent_is_neither() -> None:
    cells = pd.Series(["CachePreferNone", "1,23,4", "", "n/a", "no data", "nan", "(!) nan", "-inf"], dtype=object)
    assert numbers_and_words(cells)["text"].tolist() == ["CachePreferNone", "1,23,4", *[""] * 6]
    assert numbers_and_words(cells)["value"].isna().all()


@given(
    st.lists(st.floats(-1e12, 1e12).filter(lambda value: round(value, 2) % 1), min_size=1),
    st.sampled_from([_german, _french]),
)
def test_any_numbers_are_read_in_any_locale(values: list[float], locale: Callable[[str], str]) -> None:
    cells = pd.Series([locale(f"{value:,.2f}") for value in values], dtype=object)
    assert numbers_and_words(cells)["value"].tolist() == [round(value, 2) for value in values]


# -- hostile files ----------------------------------------------------------------------------------------------------


def test_an_error_saved_as_csv_is_reported_without_its_paths(tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text(
        "==PROF== Connected to process 7 (/home/me/train)\n==ERROR== ERR_NVGPUCTRPERM: see '/home/me/help'\n"
    )
    assert recognize(path) == "ncu-csv"
    with pytest.raises(CaptureError, match=r"some\.csv has no kernels.*ERR_NVGPUCTRPERM") as caught:
        read(path)
    assert "/home" not in caught.value.message
    assert "root" in caught.value.hint


def test_a_filter_that_matched_nothing_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_bytes((ncu.DATA / "no_kernels_matched.log").read_bytes())
    with pytest.raises(CaptureError, match="No kernels were profiled") as caught:
        read(path)
    assert "--kernel-name" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ncu.content("measure.summary.csv").decode(), "summary"),
        ('"Kernel Name","k",\n"Address","Source"\n', "no raw or details page of ncu with kernels"),
        (RAW.replace('"words"\n"1"', '"wor\n"1"'), "has a broken row"),
        (ncu.page(ncu.DETAILS, []), "no raw or details page of ncu with kernels"),
        (ncu.raw_page({"x__y.sum": ("", "1")}, []), "no raw or details page of ncu with kernels"),
        (ncu.raw_page({"x__y.sum": ("", "1 (1; 2)")}), "instances"),
        (ncu.page((*ncu.IDENTITY, "x__y.sum"), [[*ncu.identity(), "1"]]), "row of units"),
        (
            ncu.page((*ncu.IDENTITY, "Section Name"), [[*ncu.identity(), "1"]]),
            "lacks columns .*: Metric Name, Metric Unit",
        ),
        (ncu.page(ncu.DETAILS[:-1], [[*ncu.identity(), "a", "b", "c", "d"]]), "lacks columns .*: Metric Value"),
        (ncu.page(ncu.DETAILS, [[*ncu.identity(), "a", "b", "c"]]), "lacks cells"),
        (ncu.page(ncu.DETAILS, [[*ncu.identity(), "a", "b", "c", "1", "2"]]), "lacks cells"),
    ],
)
def test_what_is_no_page_of_kernels_is_refused(text: str, reason: str, written: Callable[..., Profile]) -> None:
    with pytest.raises(CaptureError, match=reason):
        written(text)


@pytest.mark.parametrize(
    "text",
    [
        ncu.page((*ncu.IDENTITY, "Grid Size", "x__y.sum"), [[""] * 13, [*ncu.identity(), "", "1"]]),
        ncu.page((*ncu.IDENTITY, "ID", "x__y.sum"), [[""] * 13, [*ncu.identity(), "0", "1"]]),
        ncu.page((*ncu.DETAILS, "Metric Value"), [[*ncu.identity(), "a", "b", "c", "1", "2"]]),
    ],
)
def test_columns_that_are_there_twice_are_refused(text: str, written: Callable[..., Profile]) -> None:
    with pytest.raises(CaptureError, match="unlike any page of ncu"):
        written(text)


@pytest.mark.parametrize("lacking", [*ncu.DETAILS[-4:], *ncu.RULES, "Kernel Name"])
def test_a_details_page_without_a_column_that_is_read_is_refused_by_its_name(
    lacking: str, written: Callable[..., Profile]
) -> None:
    for text in (DETAILS.replace(f'"{lacking}"', '"Other"', 1), _without(DETAILS, lacking)):
        with pytest.raises(CaptureError, match=f"lacks columns .*: {lacking}"):
            written(text)


def _without(text: str, column: str) -> str:
    """Cut a column out of a page."""
    header, *rows = csv.reader(io.StringIO(text))
    place = header.index(column)
    return ncu.page(header[:place] + header[place + 1 :], [row[:place] + row[place + 1 :] for row in rows])


@examples(40)
@given(st.sampled_from([DETAILS, RAW]), st.data())
def test_a_header_with_another_cell_is_refused_or_makes_a_report(folder: Path, page: str, data: st.DataObject) -> None:
    header, *rows = csv.reader(io.StringIO(page))
    place = data.draw(st.integers(0, len(header) - 1))
    others = st.sampled_from(
        ["", "x", "ID", "Metric Name", "Rule Name", "launch__graph_contains_device_launch", "a__b.sum"]
    )
    path = folder / "header.csv"
    path.write_text(ncu.page([*header[:place], data.draw(others), *header[place + 1 :]], rows))
    _made_or_refused(path)


@pytest.mark.parametrize("cell", ["inf", "1e400", "-1e400", "nan", "x", "1e300", ""])
@pytest.mark.parametrize("page", ["measure.details.csv", "measure.raw.csv"])
def test_cells_that_are_no_numbers_are_missing_or_words(folder: Path, page: str, cell: str) -> None:
    text = ncu.content(page).decode()
    path = folder / "cells.csv"
    path.write_text(re.sub(r'"[\d,]*\.?\d+"(?=[^"]*\n)', f'"{cell}"', text))
    assert _made_or_refused(path)


def _made_or_refused(path: Path) -> bool:
    try:
        profile = read_ncu_csv(path)
    except CaptureError as error:
        assert path.name in error.message
        return False
    assert "Infinity" not in build_report(profile, "page").to_json()
    return True


@pytest.mark.parametrize("unit", ["Gbyte", "Ebyte", "%/Gbyte"])
def test_facts_of_a_gpu_that_are_out_of_range_are_missing(written: Callable[..., Profile], unit: str) -> None:
    metrics = {
        "device__attribute_display_name": ("", "H100"),
        "device__attribute_total_memory": (unit, "85021163520"),
        "device__attribute_clock_rate": ("", "1980000.5"),
        "device__attribute_memory_clock_rate": ("Ghz", "1e300"),
        "device__attribute_global_memory_bus_width": ("", "5120"),
    }
    (device,) = written(ncu.raw_page(metrics)).table("devices").to_dict("records")
    assert device["name"] == "H100"
    assert pd.isna(device["memory_bytes"])
    assert pd.isna(device["memory_bandwidth_bytes_per_s"])
    assert device["clock_hz"] == 1_980_000_500


def test_an_infinite_speedup_is_none(written: Callable[..., Profile]) -> None:
    rules = written(DETAILS.replace(f'"{RULE[-1]}"', '"1e400"')).table("kernel_rules")
    assert rules["speedup_pct"].isna().all()


def test_rows_of_one_header_and_rows_without_one_are_not_lost(written: Callable[..., Profile]) -> None:
    with pytest.raises(CaptureError, match="before the header"):
        written(RAW.partition("\n")[2] + RAW)


def test_two_runs_whose_numbers_are_the_same_are_not_one(written: Callable[..., Profile]) -> None:
    other = ncu.raw_page({"x__y.sum": ("Kbyte", "1.5")}, [ncu.identity(0, kernel="other(int)")])
    with pytest.raises(CaptureError, match="different kernels with the same ID"):
        written(RAW + other)
    assert len(written(RAW + RAW).table("profiled_launches")) == 2


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"gone\.csv cannot be read"):
        read_ncu_csv(tmp_path / "gone.csv")


@given(st.sampled_from([DETAILS, RAW]), st.data())
def test_a_cut_page_is_refused_or_ends_with_a_whole_row(folder: Path, page: str, data: st.DataObject) -> None:
    text = page[: data.draw(st.integers(1, len(page) - 2))]
    path = folder / "cut.csv"
    path.write_text(page)
    truth = metrics_of(read_ncu_csv(path))
    path.write_text(text)
    try:
        profile = read_ncu_csv(path)
    except CaptureError as error:
        assert "cut.csv" in error.message
    else:
        assert metrics_of(profile).equals(truth.loc[[0]])
        assert "kernel_rules" not in profile.tables or profile.table("kernel_rules").empty


_NOISE = st.lists(
    st.sampled_from(["x", '"', ",", "\n", "==PROF== Profiling", "0", '"3"', "\r", "é", "(", "%"]), max_size=6
)


@examples(100)
@given(_NOISE, _NOISE, st.sampled_from([DETAILS, RAW]))
def test_noise_around_the_table_is_refused_or_changes_nothing(
    folder: Path, before: list[str], after: list[str], page: str
) -> None:
    path = folder / "noise.csv"
    path.write_text(page)
    truth = read_ncu_csv(path)
    path.write_text("".join(before) + "\n" + page + "".join(after), newline="")
    try:
        profile = read_ncu_csv(path)
    except CaptureError as error:
        assert "noise.csv" in error.message
    else:
        for name in truth.tables.keys() - {"diagnostics"}:
            assert profile.tables[name].equals(truth.tables[name])


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda content: content.decode("latin-1")))
def test_any_text_is_refused(folder: Path, text: str) -> None:
    path = folder / "text.csv"
    path.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(CaptureError, match=r"text\.csv"):
        read_ncu_csv(path)


@given(st.text(max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_any_cells_are_kept_or_the_file_is_refused(folder: Path, kernel: str, unit: str, cell: str) -> None:
    path = folder / "cells.csv"
    path.write_text(ncu.raw_page({"x__y.sum": (unit, cell)}, [ncu.identity(kernel=kernel)]), "utf-8", "replace", "")
    try:
        profile = read_ncu_csv(path)
    except CaptureError:
        return
    (launch,) = profile.table("profiled_launches").to_dict("records")
    assert launch["name"] == path.read_text("utf-8").split('"')[0:1][0] + kernel or "\r" in kernel
    assert len(profile.table("kernel_metrics")) <= 1
