import base64
import gzip
import json
import math
import random
from typing import Any

import pandas as pd
import pytest

from nightsight.events.kernel_labels import label_of
from nightsight.render.page.page import Page, page
from nightsight.render.table.layouts import layout_of
from nightsight.render.table.packed import MOST_BYTES, packed_tables
from nightsight.render.table.view import MOST_ROWS, ROWS, Layout, TableView, table_view
from nightsight.texts import printable
from tests.recorded import Recorded
from tests.reports import HOSTILE, hostile_report, kernel_table, range_table, result, small_report

KERNELS = Layout("kernels", "Kernel", bars=("time_pct",), shorten=label_of)


def unpacked(block: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(block, validate=True)))
    return document


def view_of(frame: pd.DataFrame, layout: Layout = KERNELS, name: str = "t") -> TableView:
    return table_view(frame, layout, caption="c", name=name)


def pack(*views: TableView, most_bytes: int = 10_000_000) -> dict[str, Any]:
    return unpacked(packed_tables(views, most_bytes=most_bytes))


def texts_of(document: dict[str, Any], codes: list[int]) -> list[str]:
    return [document["texts"][code] if code >= 0 else "" for code in codes]


def many_kernels(count: int, seed: int = 1) -> pd.DataFrame:
    noise = random.Random(seed)
    names = [f"void space::kernel_{noise.random()}<(int){place}>(T{place})" for place in range(count)]
    return kernel_table(tuple(names)).assign(avg_ns=[1e9 * noise.random() for _ in names])


def test_every_row_is_there_with_all_its_digits() -> None:
    frame = many_kernels(300)
    document = pack(view_of(frame))
    table = document["tables"]["t"]
    time, total, instances, stddev, average = (column["values"] for column in table["columns"])
    assert time == frame["time_pct"].tolist()
    assert total == frame["total_ns"].tolist()
    assert instances == [10] * 300
    assert stddev == [None] * 300
    assert average == frame["avg_ns"].tolist()
    assert texts_of(document, table["name"]) == [label_of(name) for name in frame["name"]]
    assert (table["noun"], table["total"], table["more"]) == ("kernels", 300, "")


def test_full_names_are_those_of_the_rows_that_are_not_printed() -> None:
    frame = many_kernels(ROWS + 3)
    document = pack(view_of(frame))
    assert texts_of(document, document["tables"]["t"]["full"]) == frame["name"].tolist()[ROWS:]
    assert not set(document["texts"]) & set(frame["name"][:ROWS])


def test_scale_and_bar_are_those_of_the_printed_cells() -> None:
    view = view_of(many_kernels(60))
    share, total, *_ = pack(view)["tables"]["t"]["columns"]
    assert (share["unit"], share["divisor"], share["decimals"], share["largest"]) == ("pct", 1, 1, 100.0)
    assert view.columns[2].scale is not None
    assert (total["divisor"], total["decimals"]) == (view.columns[2].scale.divisor, view.columns[2].scale.decimals)
    assert "largest" not in total


def test_a_unit_suits_the_rows_that_are_not_printed_too() -> None:
    frame = pd.DataFrame({"name": [str(place) for place in range(100)], "total_ns": [10**9] * 45 + [40_000] * 55})
    view = view_of(frame, Layout("rows"))
    assert view.columns[1].scale is not None
    assert view.columns[1].scale.format(40_000) == "0.040"


def test_a_text_is_there_once() -> None:
    names = tuple(f"same_{place % 7}" for place in range(70))
    document = pack(view_of(kernel_table(names)), view_of(kernel_table(names), name="other"))
    assert sorted(document["texts"]) == sorted(set(names))


def test_texts_in_other_columns_are_whole_and_missing_ones_have_no_code() -> None:
    frame = pd.DataFrame({"name": ["a", "b", "c"], "after": ["long " * 50, None, ""], "x_ns": [1, 2, 3]})
    document = pack(view_of(frame, Layout("rows")))
    column, _ = document["tables"]["t"]["columns"]
    assert texts_of(document, column["texts"]) == [("long " * 50).strip(), "", ""]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null(value: float) -> None:
    document = pack(view_of(pd.DataFrame({"name": ["a", "b"], "x_ns": [value, 1.5]}), Layout("rows")))
    assert document["tables"]["t"]["columns"][0]["values"] == [None, 1.5]


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]"])
def test_whole_numbers_stay_whole_beside_missing_ones(dtype: Any) -> None:
    column = pd.Series([2**53 + 1, None], dtype=dtype)
    block = packed_tables(
        [view_of(pd.DataFrame({"name": ["a", "b"], "x_ns": column}), Layout("rows"))], most_bytes=9999
    )
    assert b"9007199254740993,null" in gzip.decompress(base64.b64decode(block))


def test_a_tree_keeps_its_levels() -> None:
    rows = [("a", 0), ("a / b", 1), ("a / b / c", 2), ("d", 0)]
    frame = range_table(rows)
    layout = layout_of(result("nvtx_ranges", frame))
    assert pack(view_of(frame, layout))["tables"]["t"]["level"] == [0, 1, 2, 0]


def test_rows_beyond_the_most_are_left_out_and_counted() -> None:
    frame = pd.DataFrame({"name": [str(place) for place in range(MOST_ROWS + 1)], "x_ns": 1})
    table = pack(view_of(frame, Layout("rows")))["tables"]["t"]
    assert (len(table["name"]), table["total"]) == (MOST_ROWS, MOST_ROWS + 1)
    assert table["more"].startswith("The first 5,000 of 5,001 rows.")


@pytest.mark.parametrize("most_bytes", [20_000, 60_000, 150_000])
def test_the_largest_tables_give_way_to_the_budget(most_bytes: int) -> None:
    views = [view_of(many_kernels(count, count), name=str(count)) for count in (60, 900, 3_000)]
    block = packed_tables(views, most_bytes=most_bytes)
    assert 0.7 * most_bytes < len(block) <= most_bytes
    tables = unpacked(block)["tables"]
    counts = {name: len(table["name"]) for name, table in tables.items()}
    assert counts["60"] == 60
    assert counts["3000"] < 3_000
    assert tables["3000"]["more"].startswith(f"The first {counts['3000']:,} of 3,000 kernels.")
    assert all(len(column["values"]) == counts["3000"] for column in tables["3000"]["columns"])


def test_a_budget_too_small_for_the_printed_rows_leaves_no_block() -> None:
    assert packed_tables([view_of(many_kernels(500))], most_bytes=500) == ""
    assert packed_tables([], most_bytes=500) == ""


def test_the_same_tables_make_the_same_bytes() -> None:
    one, other = (packed_tables([view_of(many_kernels(200))], most_bytes=10_000) for _ in range(2))
    assert one == other
    assert gzip.decompress(base64.b64decode(one))
    assert base64.b64decode(one)[4:8] == bytes(4)  # no time of making


def test_hostile_texts_are_printable_and_cannot_end_the_block() -> None:
    block = page(hostile_report()).tables
    assert set(block) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
    texts = unpacked(block)["texts"]
    assert HOSTILE[0] in texts
    assert all(printable(text) == text for text in texts)


def test_a_real_report_is_packed_whole(recorded: Recorded) -> None:
    report = recorded.report("train")
    view = page(report)
    assert len(view.tables) < MOST_BYTES / 10
    tables = unpacked(view.tables)["tables"]
    printed = [section.table for section in (*view.results, *view.method.sections) if section.table]
    assert {table.name for table in printed} <= set(tables)
    for table in printed:
        assert len(tables[table.name]["columns"]) == len(table.columns) - 1
    gaps = next(result for result in report.results if result.name == "gpu_gaps").rows
    place = [column.name for column in table_of(view, "gpu_gaps").columns].index("gap_ns")
    assert tables["gpu_gaps"]["columns"][place - 1]["values"] == gaps["gap_ns"].tolist()


def table_of(view: Page, name: str) -> TableView:
    return next(section.table for section in view.results if section.anchor == name and section.table)


def test_a_page_keeps_its_tables_within_the_bytes_it_has_for_them() -> None:
    report = small_report(results=(result("cuda_gpu_kern_sum", many_kernels(1_000)),))
    assert 0 < len(packed_tables([table_of(page(report), "cuda_gpu_kern_sum")], most_bytes=20_000)) <= 20_000


def test_names_that_are_shown_shortened_are_there_in_full() -> None:
    name = "void at::native::kernel<float, at::native::Add<float>>(int, at::Tensor)"
    frame = pd.DataFrame({"cause": ["host", "sync"], "after": [name, ""]})
    document = pack(view_of(frame, Layout("gaps", "Cause", "cause", shorteners={"after": label_of})))
    (column,) = document["tables"]["t"]["columns"]
    assert texts_of(document, column["texts"]) == [label_of(name), ""]
    assert texts_of(document, column["full"]) == [name, ""]


def test_a_column_with_numbers_of_replays_is_pointed_at() -> None:
    frame = pd.DataFrame({"title": ["a"], "kernel": ["1. k"]})
    document = pack(view_of(frame, Layout("rules", "Rule", "title", numbered="kernel")))
    assert document["tables"]["t"]["numbered"] == 1
    assert "numbered" not in pack(view_of(frame, Layout("rules", "Rule", "title")))["tables"]["t"]
