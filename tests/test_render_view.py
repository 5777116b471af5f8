from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.events.kernel_names import base_name, normalised
from nightsight.model import Finding, Report
from nightsight.render import render_html
from nightsight.render.figure.bars import ranking, trials
from nightsight.render.page.page import Section, page
from nightsight.render.table.view import (
    MOST_ROWS,
    NO_NAME,
    ROWS,
    Labels,
    Layout,
    middle_cut,
    printable,
    short_name,
    table_view,
)
from nightsight.results import RESULTS, Jump
from tests.reports import HOSTILE, kernel_table, launch_table, range_table, result, small_report, with_gpu_time

NATIVE = "void at::native::"


def section_of(report: Report, name: str) -> Section:
    return next(section for section in page(report).sections if section.anchor == name)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("add(int, float *, float *)", "add"),
        ("triton_poi_fused_add_mul_tanh_0", "triton_poi_fused_add_mul_tanh_0"),
        ("void cutlass::Kernel2<cutlass_80_nt_align1>(T1::Params)", "Kernel2<cutlass_80_nt_align1>"),
        (f"{NATIVE}reduce_kernel<(int)512, (bool)1>(T3)", "reduce_kernel<512, 1>"),
        (
            f"{NATIVE}<unnamed>::multi<at::native::<unnamed>::List<(int)2>, std::plus<float>>(T1, T2, T3...)",
            "multi<List<2>, plus<float>>",
        ),
        (
            f"{NATIVE}vectorized<(int)4, at::native::Gelu(at::Base &)::[lambda() (instance 2)]::operator ()() const::"
            "[lambda(float) (instance 1)], std::array<char *, (unsigned long)3>>(int, T2)",
            "vectorized<4, Gelu, array<char*, 3>>",
        ),
        ("(anonymous namespace)::softmax<float>(float*)", "softmax<float>"),
        ("[CUDA graph]", "[CUDA graph]"),
        ("operator<<(int", "operator<<(int"),
        ("", NO_NAME),
    ],
)
def test_short_name(name: str, short: str) -> None:
    assert short_name(name) == short


GEMV = "internal::gemvx::kernel<int, int, float, (bool)0, (int)7>(cublasGemvParamsEx<int, float>)"


@pytest.mark.parametrize("qualifier", ["", "__global__ ", "static inline "])
@pytest.mark.parametrize(
    "returned",
    [
        *(
            "",
            "void ",
            "float *",
            "const ns::T<int> &",
            "unsigned int ",
            "decltype(auto) ",
            "std::pair<int, int>::first_type ",
        ),
        *("std::enable_if<!(false), void>::type ", "typename std::enable_if<(bool)1, void>::type "),
        *("std::conditional<true, std::enable_if<true>::type, void>::type ", "decltype(ns::f<int>(0)) "),
    ],
)
@pytest.mark.parametrize("behind", ["", " [clone .constprop.0]", " const", " noexcept"])
def test_a_return_type_is_no_part_of_a_name(qualifier: str, returned: str, behind: str) -> None:
    name = f"{qualifier}{returned}{GEMV}{behind}"
    assert short_name(name) == "kernel<int, int, float, 0, 7>"
    assert base_name(name) == "kernel"
    assert normalised(name) == normalised(f"void {GEMV}")


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("auto ns::k<int>(int) -> decltype(g(int))", "k<int>"),
        ("void ns::outer()::[lambda(int) (instance 1)]::operator ()(int) const::inner<float>(int)", "inner<float>"),
        ("triton_red_fused_sum_0d1d2de", "triton_red_fused_sum_0d1d2de"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD"),
    ],
)
def test_what_stands_around_a_name_is_left_out(name: str, short: str) -> None:
    assert short_name(name) == short


# -- labels that tell the kernels of a page apart ---------------------------------------------------------------------

XMMA = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize{}_stage3_warpsize1x2x1_ffma_aligna4_alignc4"
    "_execute_kernel__5x_cublas"
)
WORDS = st.sampled_from(["a", "gemm", "tile", "32x32", "128x128", "stage3", "kernel", "nn", "tn", "x" * 30])
NAMES = (
    st.lists(WORDS, min_size=1, max_size=12).map("_".join)
    | st.lists(WORDS, min_size=1, max_size=9).map(lambda words: f"void ns::k<{', '.join(words)}>(int)")
    | st.builds("void {}::same<int>({})".format, WORDS, WORDS)
    | st.text(max_size=60)
)


def test_labels_keep_what_tells_kernels_apart() -> None:
    labels = Labels([XMMA.format(tile) for tile in ("32x32x8", "64x32x8", "128x128x8")] + ["add"])
    shown = [labels.short(XMMA.format(tile), 44) for tile in ("32x32x8", "64x32x8", "128x128x8")]
    assert ["32x32x8" in shown[0], "64x32x8" in shown[1], "128x128x8" in shown[2]] == [True] * 3
    assert all(text.startswith("sm80_xmma_gemm") and len(text) <= 44 for text in shown)
    assert labels.short("3. add") == "3. add"
    assert labels.short(f"12. {XMMA.format('32x32x8')}", 44) == f"12. {shown[0]}"


def test_two_spellings_of_one_kernel_have_one_label() -> None:
    of_nsys = (
        "void at::native::reduce_kernel<(int)128, (int)4, at::native::ReduceOp<float, at::native::func_wrapper_t<"
        "float, at::native::sum_functor<float>::operator ()(at::TensorIterator &)::"
        "[lambda(float, float) (instance 1)]>>>(T3)"
    )
    of_ncu = (
        "at::native::reduce_kernel<128,4,at::native::ReduceOp<float,at::native::func_wrapper_t<float,"
        "at::native::sum_functor<float>::operator()(at::TensorIterator&)::{lambda(float,float)#1}>>>"
    )
    labels = Labels([of_nsys, of_ncu])
    assert labels.short(of_nsys, 44) == labels.short(f"4. {of_ncu}", 44).removeprefix("4. ") == short_name(of_nsys, 44)


@given(st.lists(NAMES, min_size=1, max_size=12, unique_by=normalised), st.sampled_from([44, 48, 90]))
def test_kernels_of_a_page_that_differ_have_labels_that_differ(names: list[str], length: int) -> None:
    labels = Labels(names)
    shown = [labels.short(name, length) for name in names]
    assert len(set(shown)) == len(names)
    assert all(1 <= len(text) <= length for text in shown)


def test_inner_template_arguments_go_first_and_the_middle_last() -> None:
    name = f"kernel<Outer<{'Inner<float>, ' * 9}int>, Second>"
    assert short_name(name, 40) == "kernel<Outer, Second>"
    assert short_name("k" * 50 + "end", 11) == "kkkkk…kkend"
    assert short_name("first_second_third_fourth", 20) == "first_…_fourth"


@given(st.text(max_size=300), st.integers(min_value=1, max_value=120))
def test_a_short_name_is_one_printable_line_of_at_most_the_length_asked_for(name: str, length: int) -> None:
    short = short_name(name, length)
    assert 1 <= len(short) <= max(length, 1)
    assert printable(short) in (short, short.strip(), NO_NAME)


@given(st.text(alphabet="<>(){}[]:, voidlambda\n\x00", max_size=200))
def test_unbalanced_brackets_do_no_harm(name: str) -> None:
    assert short_name(name)


@pytest.mark.parametrize("name", [*HOSTILE, "half of a pair \ud800"])
def test_printable_text_has_no_controls_and_no_direction(name: str) -> None:
    text = printable(name)
    assert text
    assert not set(text) & set("\x00\x07\x1b\n\r\t\u200f\u202e\u2066\ud800")
    assert text.encode()


def test_middle_cut_keeps_both_ends() -> None:
    assert middle_cut("abcdefghij", 5) == "ab…ij"
    assert middle_cut("abcde", 5) == "abcde"


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
    assert "nvtx_marks" not in {section.anchor for section in view.sections}
    assert ("NVTX marks", "none found in this capture") in view.unavailable


def test_what_is_unavailable_is_grouped_by_its_reason() -> None:
    view = page(small_report())
    assert view.unavailable == (("NVTX ranges, Operators", "NVTX was off"), ("CUDA API", "no calls"))
    assert [section.anchor for section in view.sections] == ["gpu_time", "cuda_gpu_kern_sum", "launch_overhead"]


def test_an_empty_table_says_that_none_were_recorded() -> None:
    section = section_of(small_report(results=(result("cuda_gpu_kern_sum", kernel_table(())),)), "cuda_gpu_kern_sum")
    assert section.message == "Kernels: none were recorded in this capture."
    assert section.table is None
    assert section.pictures.charts == ()


def test_a_result_without_a_layout_of_its_own_is_shown_too() -> None:
    frame = pd.DataFrame({"phase": ["load"], "length_ns": [1_500]})
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
    assert [[group.label for group in chart.groups] for chart in section.pictures.charts] == [names, names]


def test_errors_come_before_notes() -> None:
    assert [(banner.word, banner.title) for banner in page(small_report()).banners] == [
        ("Error", "First"),
        ("Note", "Later"),
    ]


def test_a_finding_cannot_fill_the_page() -> None:
    (banner,) = page(small_report(findings=(Finding("r", "info", "t" * 4096, "d" * 4096),))).banners
    assert (len(banner.title), len(banner.detail), banner.remedy) == (200, 1_000, "")


def test_a_sum_larger_than_the_window_sets_the_scale() -> None:
    report = with_gpu_time(25.0, graph_launches=2, graph_ns=3_000_000_000)
    (chart,) = section_of(report, "gpu_time").pictures.charts
    assert [bar.width for bar in chart.groups[0].bars] == [8.33, 8.33, 0.1, 100.0]
    assert "3.000 s, the largest sum" in chart.note


def test_one_device_needs_no_table_and_several_have_one_without_what_none_did() -> None:
    assert section_of(with_gpu_time(25.0), "gpu_time").table is None
    table = section_of(with_gpu_time(25.0, 30.0), "gpu_time").table
    assert table is not None
    titles = [column.title for column in table.columns]
    assert titles[:4] == ["Device", "Busy", "Idle", "Busy"]
    assert titles[4:] == ["Kernels", "Kernel", "Copies", "Copy", "Copied", "Launches", "Launch API median"]


def test_a_ranking_scales_to_its_largest_bar_and_sums_the_others() -> None:
    groups = ranking(["a", "b"], np.array([4e6, 2e6, 1e6, 1e6]), column="total_ns", series="kernel")
    bars = [(group.label, group.bars[0].width, group.bars[0].value, group.bars[0].note) for group in groups]
    assert bars == [
        ("a", 100.0, "4.000 ms", "50.0 %"),
        ("b", 50.0, "2.000 ms", "25.0 %"),
        ("2 others", 50.0, "2.000 ms", "25.0 %"),
    ]


def test_what_took_no_time_has_no_bar_and_what_took_little_has_one() -> None:
    groups = ranking(["a", "b", "c"], np.array([1e9, 1.0, 0.0]), column="total_ns", series="kernel")
    assert [group.bars[0].width for group in groups] == [100.0, 0.1, 0.0]


def test_a_bar_far_from_the_common_scale_has_its_own_unit() -> None:
    values = np.array([136_185_096.0, 863_123.0, 98_777.0, 46_354.0, 259.0])
    groups = ranking(list("abcde"), values, column="total_ns", series="api")
    assert [group.bars[0].value for group in groups] == [
        "136.2 ms",
        "863.12 µs",
        "98.78 µs",
        "46.35 µs",
        "0.26 µs",
    ]


def test_launches_are_ranked_by_their_api_time() -> None:
    table = launch_table(("a", "b"))
    table = table.assign(api_total_ns=[50_000, 10_000], launches=[1, 10], api_med_ns=[50_000.0, 1_000.0])
    (chart,) = section_of(small_report(results=(result("launch_overhead", table),)), "launch_overhead").pictures.charts
    assert [(group.label, *vars(group.bars[0]).values()) for group in chart.groups] == [
        ("a", "api", "a", "50.00 µs", 100.0, "1 launch, median 50.00 µs"),
        ("b", "api", "b", "10.00 µs", 20.0, "10 launches, median 1.000 µs"),
    ]


def test_launches_of_further_kernels_are_counted_together() -> None:
    table = launch_table(tuple(f"k{place}" for place in range(12)))
    (chart,) = section_of(small_report(results=(result("launch_overhead", table),)), "launch_overhead").pictures.charts
    assert (chart.groups[-1].label, chart.groups[-1].bars[0].note) == ("2 others", "20 launches")


def test_launches_without_recorded_calls_have_no_chart() -> None:
    table = launch_table().assign(api_total_ns=float("nan"))
    assert (
        section_of(small_report(results=(result("launch_overhead", table),)), "launch_overhead").pictures.charts == ()
    )


def test_a_launch_chart_tells_devices_apart() -> None:
    section = section_of(
        small_report(results=(result("launch_overhead", launch_table(("k",), devices=(0, 1))),)), "launch_overhead"
    )
    assert [group.label for group in section.pictures.charts[0].groups] == ["k (device 0)", "k (device 1)"]


def test_busy_time_is_drawn_against_the_window() -> None:
    (chart,) = section_of(small_report(), "gpu_time").pictures.charts
    assert [(bar.label, bar.width, bar.note) for bar in chart.groups[0].bars] == [
        ("Busy", 25.0, "25.0 %"),
        ("Kernels, sum", 25.0, "25.0 %"),
        ("Copies, sum", 0.1, "<0.1 %"),
    ]


@pytest.mark.parametrize(("values", "heights"), [((1.0, 3.0, 2.0), [90.0, 10.0, 50.0]), ((5.0,), [50.0])])
def test_trials_run_from_lowest_to_highest(values: tuple[float, ...], heights: list[float]) -> None:
    assert [dot.y for dot in trials("t", values).dots] == heights


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
    # a whole GPU, a statistic over everything, and what the timeline does not draw
    without = {entry.name for entry in RESULTS if entry.place in ("section", "lead") and not entry.jump}
    names = {"gpu_time", "step_split", "launch_phases", "launch_bound", "osrt_sum", "collectives", "serving"}
    assert without == names


@pytest.mark.parametrize("way", [way for way in get_args(Jump) if way])
def test_the_page_knows_each_way_to_the_timeline(way: str) -> None:
    assert f"\n  {way}(row) {{\n" in render_html(small_report())


def test_all_rows_of_a_long_table_are_at_hand() -> None:
    frame = kernel_table(tuple(f"k{place}" for place in range(MOST_ROWS + 7)))
    whole = table_view(frame, Layout("kernels"), caption="c").whole
    assert whole is not None
    assert (len(whole.frame), whole.count) == (MOST_ROWS, MOST_ROWS + 7)
