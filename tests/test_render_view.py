from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

from nightsight.model.report import Finding, Report
from nightsight.render.figure.bars import BarChart, trials
from nightsight.render.figure.plot import Circle
from nightsight.render.page.html import render_html
from nightsight.render.page.page import PageSection, page
from nightsight.render.table.view import MOST_ROWS, ROWS, Layout, table_view
from nightsight.results import RESULTS
from nightsight.results.entry import Jump
from nightsight.texts import middle_cut, printable, some_of
from tests.reports import HOSTILE, kernel_table, range_table, result, small_report, with_gpu_time


def section_of(report: Report, name: str) -> PageSection:
    return next(section for section in page(report).results if section.anchor == name)


@pytest.mark.parametrize("name", [*HOSTILE, "half of a pair \ud800"])
def test_printable_text_has_no_controls_and_no_direction(name: str) -> None:
    text = printable(name)
    assert text
    assert not set(text) & set("\x00\x07\x1b\n\r\t\u200f\u202e\u2066\ud800")
    assert text.encode()


def test_middle_cut_keeps_both_ends() -> None:
    assert middle_cut("abcdefghij", 5) == "ab…ij"
    assert middle_cut("abcde", 5) == "abcde"


def test_of_many_texts_some_are_named_and_the_others_counted() -> None:
    assert some_of(["a", "b"], 2) == "a, b"
    assert some_of(list("abcde"), 2) == "a, b and 3 more"
    assert some_of(["a"] * 1202, 2, "; ") == "a; a and 1,200 more"


def test_a_table_has_one_unit_per_column_and_its_names_first() -> None:
    view = table_view(kernel_table(), Layout("kernels", "Kernel", bars=("time_pct",)), caption="c")
    assert [(column.title, column.unit) for column in view.columns] == [
        ("Kernel", ""),
        ("Time", "%"),
        ("Total", "ms"),
        ("Instances", ""),
        ("Std dev", "ns"),
    ]
    assert [cell.text for cell in view.rows[0].cells] == ["66.7", "2.000", "10", "–"]
    assert [row.cells[0].share for row in view.rows] == [66.67, 33.33]
    assert view.more == ""


def test_columns_that_are_compared_have_one_unit() -> None:
    frame = pd.DataFrame({"name": ["a", "b"], "baseline_ns": [900.0, 1e6], "candidate_ns": [2e6, 3e6], "p": [0.5, 1]})
    view = table_view(frame, Layout("rows", same_unit=("baseline_ns", "candidate_ns")), caption="c")
    assert [column.unit for column in view.columns] == ["", "ms", "ms", ""]
    assert [cell.text for cell in view.rows[0].cells] == ["0.001", "2.000", "0.50"]


def test_a_long_table_says_what_it_leaves_out() -> None:
    view = table_view(kernel_table(tuple(f"k{place}" for place in range(ROWS + 1))), Layout("kernels"), caption="c")
    assert len(view.rows) == ROWS
    assert "first 50 of 51 kernels" in view.more


@pytest.mark.parametrize("missing", [None, pd.NA, np.nan])
def test_what_is_missing_is_a_dash(missing: Any) -> None:
    frame = pd.DataFrame({"name": ["a", "b"], "x_ns": [missing, 2_000], "text": [missing, "t"]})
    view = table_view(frame, Layout("rows"), caption="c")
    assert [[cell.text for cell in row.cells] for row in view.rows] == [["–", "–"], ["2.000", "t"]]


def test_ranges_become_a_tree_in_order_of_their_first_start() -> None:
    rows = [("b", 0), ("b / one", 1), ("x", 0), ("b / one / deep", 2), ("a / b", 0), ("b / two", 1)]
    section = section_of(small_report(results=(result("nvtx_ranges", range_table(rows)),)), "nvtx_ranges")
    assert section.table is not None
    shown = [(row.name.text, row.level) for row in section.table.rows]
    assert shown == [("b", 0), ("one", 1), ("deep", 2), ("two", 1), ("x", 0), ("a / b", 0)]


def shown_ranges(table: pd.DataFrame) -> list[tuple[str, int, str]]:
    """Return name, level and instances of each row of the table of ranges."""
    view = section_of(small_report(results=(result("nvtx_ranges", table),)), "nvtx_ranges").table
    assert view is not None
    return [(row.name.text, row.level, row.cells[0].text) for row in view.rows]


def test_repetitions_of_a_range_are_one_row_with_the_ranges_inside_them() -> None:
    steps = [
        row for at in range(3) for row in ((f"step {at}", 0), (f"step {at} / layer 0", 1), (f"step {at} / layer 1", 1))
    ]
    # of ranges inside, the numbers tell layers apart
    assert shown_ranges(range_table(steps)) == [("step #", 0, "3"), ("layer 0", 1, "3"), ("layer 1", 1, "3")]
    inside = [("epoch 0", 0), *((f"epoch 0 / {path}", level + 1) for path, level in steps)]
    assert shown_ranges(range_table(inside))[:3] == [("epoch 0", 0, "1"), ("step #", 1, "3"), ("layer 0", 2, "3")]


def test_layers_that_run_in_each_step_are_not_repetitions() -> None:
    layers = [(f"layer {at}", 0) for at in range(3)]
    names = ["layer 0", "layer 1", "layer 2"]
    assert [name for name, *_ in shown_ranges(range_table(layers, instances=9))] == names
    assert [name for name, *_ in shown_ranges(range_table(layers).assign(style="Module"))] == names
    assert [name for name, *_ in shown_ranges(range_table(layers[:2]))] == names[:2]


def test_the_row_of_repetitions_has_their_sums_and_extremes() -> None:
    table = range_table([(f"step {at}", 0) for at in range(3)]).assign(
        cpu_total_ns=[10, 30, 50], cpu_med_ns=[10, 30, 50], cpu_min_ns=[10, 30, 50], cpu_max_ns=[10, 30, 50]
    )
    view = section_of(small_report(results=(result("nvtx_ranges", table),)), "nvtx_ranges").table
    assert view is not None
    cells = dict(zip((column.title for column in view.columns[1:]), view.rows[0].cells, strict=True))
    assert {title: cells[title].text for title in ("CPU total", "CPU median", "CPU min", "CPU max")} == {
        "CPU total": "90",
        "CPU median": "30",
        "CPU min": "10",
        "CPU max": "50",
    }


def test_a_closed_section_of_one_row_has_its_values_instead_of_a_table() -> None:
    devices = pd.DataFrame({"device": [0, 1], "name": "NVIDIA H100", "memory_bytes": [8e10, 8e10]})
    (one,), (two,) = (
        page(small_report(results=(result("devices", rows),))).method.sections for rows in (devices[:1], devices)
    )
    assert (one.table, one.row[:2]) == (None, (("Device", "0"), ("Name", "NVIDIA H100")))
    assert one.row[2] == ("Memory", "80.00 GB")
    assert two.table is not None
    assert not two.row


def test_modules_are_children_of_the_range_around_the_model() -> None:
    rows = [("f", 0), ("f / layers", 1), ("f / layers.0", 2), ("f / layers.0.mlp", 3), ("f / layers.0.mlp / mine", 4)]
    section = section_of(small_report(results=(result("nvtx_ranges", range_table(rows)),)), "nvtx_ranges")
    assert section.table is not None
    shown = [(row.name.text, row.level) for row in section.table.rows]
    assert shown == [("f", 0), ("layers", 1), ("layers.0", 1), ("layers.0.mlp", 1), ("mine", 2)]


def test_columns_that_say_nothing_of_ranges_are_left_out() -> None:
    def titles(instances: int) -> list[str]:
        table = range_table([("a", 0), ("b", 0)], instances=instances)
        view = section_of(small_report(results=(result("nvtx_ranges", table),)), "nvtx_ranges").table
        assert view is not None
        return [column.title for column in view.columns]

    assert titles(1) == ["Range", "Instances", "CPU total", "Kernel"]
    assert titles(2) == ["Range", "Instances", "CPU total", "CPU median", "CPU min", "CPU max", "Kernel"]


def test_marks_are_named_with_their_domain_and_their_category_only_where_there_is_one() -> None:
    def shown(categories: list[str]) -> list[list[str]]:
        frame = pd.DataFrame({"instances": [3, 1], "domain": ["io", ""], "category": categories, "name": ["x", "y"]})
        view = section_of(small_report(results=(result("nvtx_marks", frame),)), "nvtx_marks").table
        assert view is not None
        rows = [[row.name.text, *(cell.text for cell in row.cells)] for row in view.rows]
        return [[column.title for column in view.columns], *rows]

    assert shown(["", ""]) == [["Mark", "Instances"], ["io:x", "3"], ["y", "1"]]
    assert shown(["reads", ""]) == [["Mark", "Instances", "Category"], ["io:x", "3", "reads"], ["y", "1", "–"]]


def test_a_report_without_marks_has_no_section_of_them() -> None:
    frame = pd.DataFrame({"instances": [], "domain": [], "category": [], "name": []})
    view = page(small_report(results=(result("nvtx_marks", frame, title="NVTX marks"),)))
    assert "nvtx_marks" not in {section.anchor for section in view.results}
    assert ("NVTX marks", "none found in this capture") in view.unavailable


def test_what_is_unavailable_is_grouped_by_its_reason() -> None:
    view = page(small_report())
    assert view.unavailable == (("NVTX ranges, Operators", "NVTX was off"), ("CUDA API", "no calls"))
    assert [section.anchor for section in view.sections] == ["cuda_gpu_kern_sum", "launch_overhead"]
    assert [(group.group, [item.anchor for item in group.sections]) for group in view.details] == [
        ("GPU", ["gpu_time"])
    ]


def test_an_empty_table_says_that_none_were_recorded() -> None:
    section = section_of(small_report(results=(result("cuda_gpu_kern_sum", kernel_table(())),)), "cuda_gpu_kern_sum")
    assert section.message == "Kernels: none recorded in this capture."
    assert section.table is None
    assert section.pictures.above == ()


def test_a_result_without_a_layout_of_its_own_is_shown_too() -> None:
    frame = pd.DataFrame({"phase": ["load", "run"], "length_ns": [1_500, 2_500]})
    section = section_of(small_report(results=(result("phases", frame),)), "phases")
    assert section.table is not None
    assert [column.title for column in section.table.columns] == ["Phase", "Length"]
    assert section.table.rows[0].name.text == "load"


def test_memory_kinds_are_part_of_the_operation() -> None:
    frame = pd.DataFrame(
        {
            "operation": ["Host-to-Device", "memset", "Unified"],
            "source_kind": ["Pageable", "", "Unknown"],
            "target_kind": ["Device", "Device", "Unknown"],
            "time_pct": 1.0,
            "total_ns": 5,
            "total_bytes": 7,
        }
    )
    section = section_of(small_report(results=(result("memory_operations", frame),)), "memory_operations")
    names = ["Host-to-Device, Pageable → Device", "memset, Device", "Unified"]
    assert section.table is not None
    assert [row.name.text for row in section.table.rows] == names


def test_errors_come_before_notes() -> None:
    assert [(banner.word, banner.title) for banner in (*page(small_report()).doubts, *page(small_report()).notes)] == [
        ("Error", "First"),
        ("Note", "Later"),
    ]


def test_a_finding_cannot_fill_the_page() -> None:
    (banner,) = page(small_report(findings=(Finding("r", "info", "t" * 4096, "d" * 4096),))).notes
    assert (len(banner.title), len(banner.detail), banner.remedy) == (200, 1_000, "")


def test_a_sum_larger_than_the_window_sets_the_scale() -> None:
    report = with_gpu_time(25.0, graph_launches=2, graph_ns=3_000_000_000)
    (chart,) = section_of(report, "gpu_time").pictures.above
    assert isinstance(chart, BarChart)
    assert [bar.marks[-1].width for bar in chart.groups[0].bars] == [8.33, 8.33, 0.1, 100.0]
    assert "3.00 s, the largest sum" in chart.notes[0]


def test_one_device_needs_no_table_and_several_have_one_without_what_none_did() -> None:
    assert section_of(with_gpu_time(25.0), "gpu_time").table is None
    table = section_of(with_gpu_time(25.0, 30.0), "gpu_time").table
    assert table is not None
    titles = [column.title for column in table.columns]
    assert titles[:4] == ["Device", "Busy", "Idle", "Busy"]
    assert titles[4:] == ["Kernels", "Kernel", "Copies", "Copy", "Copied", "Launches", "Launch API median"]


def test_busy_time_is_drawn_against_the_window() -> None:
    (chart,) = section_of(small_report(), "gpu_time").pictures.above
    assert isinstance(chart, BarChart)
    assert [(bar.label, bar.marks[-1].width, bar.note) for bar in chart.groups[0].bars] == [
        ("Busy", 25.0, "25.0 %"),
        ("Kernels, sum", 25.0, "25.0 %"),
        ("Copies, sum", 0.1, "<0.1 %"),
    ]


@pytest.mark.parametrize(("values", "heights"), [((1.0, 3.0, 2.0), [90.0, 10.0, 50.0]), ((5.0,), [50.0])])
def test_trials_run_from_lowest_to_highest(values: tuple[float, ...], heights: list[float]) -> None:
    assert [mark.at.y for mark in trials("t", values).plot.of(Circle)] == heights


def test_nothing_private_but_what_the_report_names_is_shown() -> None:
    method = page(small_report()).method
    assert method.environment == (
        ("GPU", "NVIDIA H200"),
        ("Collector", "nsys"),
        ("Captured (UTC)", "2026-11-20 09:00:00"),
    )
    assert method.parameters == (("size", "4096"),)
    assert method.stages == (("profile", "1.500 s"),)


def test_a_column_knows_its_name_scale_and_full_bar() -> None:
    view = table_view(kernel_table(), Layout("kernels", "Kernel", bars=("total_ns",)), caption="c", name="kernels")
    name, share, total, *_ = view.columns
    assert (name.name, share.name, total.name) == ("name", "time_pct", "total_ns")
    assert (name.scale, share.largest, total.largest) == (None, 0.0, 2_000_000.0)
    assert total.scale is not None
    assert [total.scale.format(value) for value in (2_000_000, 1_000_000)] == ["2.000", "1.000"]
    assert view.name == "kernels"


def test_every_table_leads_to_the_timeline_but_for_those_whose_rows_are_not_in_it() -> None:
    # a whole GPU, a statistic over everything, many moments, and what the timeline does not draw
    without = {entry.name for entry in RESULTS if entry.place in ("section", "lead") and not entry.jump}
    names = {
        "decode_roofline",
        "engine_steps",
        "request_times",
        "gpu_time",
        "step_split",
        "idle_stacks",
        "launch_phases",
        "launch_bound",
        "osrt_sum",
        "compilations",
    }
    assert without == names | {
        *("collectives", "ranks", "serving", "range_counters", "sends", "pipeline_stages", "all_to_all", "streams"),
    }


@pytest.mark.parametrize("way", [way for way in get_args(Jump) if way])
def test_the_page_knows_each_way_to_the_timeline(way: str) -> None:
    assert f"\n  {way}(row) {{\n" in render_html(small_report())


def test_all_rows_of_a_long_table_are_at_hand() -> None:
    frame = kernel_table(tuple(f"k{place}" for place in range(MOST_ROWS + 7)))
    whole = table_view(frame, Layout("kernels"), caption="c").all_rows
    assert whole is not None
    assert (len(whole.frame), whole.count) == (MOST_ROWS, MOST_ROWS + 7)


def test_families_of_the_critical_path_are_no_kernels_to_tell_apart() -> None:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
    path = pd.DataFrame({"cause": ["communication"], "name": [name.partition("(")[0]], "path": "", "tid": 1})
    results = (result("critical_path", path), result("cuda_gpu_kern_sum", kernel_table((name,))))
    (section,) = (
        section for section in page(small_report(results=results)).results if section.anchor == "cuda_gpu_kern_sum"
    )
    assert section.table is not None
    assert section.table.rows[0].name.text == "nccl all-reduce ring f32"


def test_causes_that_were_not_checked_are_named_in_words() -> None:
    reason = "no kernel was replayed with ncu"
    rules = ["at_roof", "registers", "shared_memory", "tail", "uncoalesced", "host_code"]
    ((named, cause),) = page(small_report(unchecked=dict.fromkeys(rules, reason))).unchecked
    assert cause == reason
    assert (named[0], named[-1]) == ("kernels at the hardware limit", "host code")
    assert not any("_" in name or name in rules for name in named)


def test_a_page_without_causes_says_why_where_it_says_what_is_not_available() -> None:
    reason = "it was recorded on the CPU only."
    view = page(small_report(results=(), findings=(), unchecked={"wait": reason, "host_code": reason}))
    assert not view.has_causes
    assert view.unavailable[0] == ("Causes and fixes", reason.rstrip("."))
