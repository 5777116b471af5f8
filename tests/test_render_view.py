from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import Benchmark, Finding, Report
from pipeline.render.figures import key_figures
from pipeline.render.page import Section, page
from pipeline.render.svg import compare_phases, ranking, trials
from pipeline.render.view import NO_NAME, ROWS, Layout, middle_cut, printable, short_name, table_view
from tests.reports import HOSTILE, gpu_table, kernel_table, launch_table, range_table, result, small_report

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
            "vectorized<4, Gelu, array<char *, 3>>",
        ),
        ("(anonymous namespace)::softmax<float>(float*)", "softmax<float>"),
        ("[CUDA graph]", "[CUDA graph]"),
        ("operator<<(int", "operator<<(int"),
        ("", NO_NAME),
    ],
)
def test_short_name(name: str, short: str) -> None:
    assert short_name(name) == short


def test_inner_template_arguments_go_first_and_the_middle_last() -> None:
    name = f"kernel<Outer<{'Inner<float>, ' * 9}int>, Second>"
    assert short_name(name, 40) == "kernel<Outer, Second>"
    assert short_name("k" * 50 + "end", 11) == "kkkkk…kkend"


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


def test_neighbours_that_are_unavailable_share_one_place() -> None:
    *_, last = page(small_report()).sections
    assert last.absent == (("NVTX ranges", "NVTX was off"), ("CUDA API", "no calls"))


def test_an_empty_table_says_that_none_were_recorded() -> None:
    section = section_of(small_report(results=(result("cuda_gpu_kern_sum", kernel_table(())),)), "cuda_gpu_kern_sum")
    assert section.message == "Kernels: none were recorded in this capture."
    assert section.table is None
    assert section.charts == ()


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
    assert [[group.label for group in chart.groups] for chart in section.charts] == [names, names]


def test_errors_come_before_notes() -> None:
    assert [(banner.word, banner.title) for banner in page(small_report()).banners] == [
        ("Error", "First"),
        ("Note", "Later"),
    ]


def test_a_finding_cannot_fill_the_page() -> None:
    (banner,) = page(small_report(findings=(Finding("r", "info", "t" * 4096, "d" * 4096),))).banners
    assert (len(banner.title), len(banner.detail), banner.remedy) == (200, 1_000, "")


def test_key_figures_of_one_gpu() -> None:
    figures = {figure.label: figure.value for figure in key_figures(small_report())}
    assert figures == {
        "Window": "1.000 s",
        "GPU busy": "25.0 %",
        "GPU idle": "750.0 ms",
        "Kernel time": "250.0 ms",
        "Copy time": "1.500 µs",
        "Launches": "20",
        "Step, unprofiled": "1.100 ms",
        "Iterations": "909.1 /s",
    }


def test_key_figures_of_two_gpus_say_what_is_mean_and_what_is_sum() -> None:
    figures = {
        figure.label: figure
        for figure in key_figures(small_report(results=(result("gpu_time", gpu_table(20.0, 40.0)),)))
    }
    assert (figures["GPU busy"].value, figures["GPU busy"].note) == ("30.0 %", "mean of 2 devices: 20.0 %, 40.0 %")
    assert (figures["Kernel time"].value, figures["Kernel time"].note) == ("600.0 ms", "14 kernels, sum over 2 devices")


def test_graphs_traced_as_a_whole_have_a_figure_and_a_bar() -> None:
    table = gpu_table(25.0).assign(graph_launches=2, graph_ns=3_000_000_000)
    report = small_report(results=(result("gpu_time", table),))
    (graphs,) = (figure for figure in key_figures(report) if figure.label == "CUDA graph time")
    assert (graphs.value, graphs.note) == ("3.000 s", "2 graph runs")
    (chart,) = section_of(report, "gpu_time").charts
    assert [bar.width for bar in chart.groups[0].bars] == [8.33, 8.33, 0.1, 100.0]
    assert "3.000 s, the largest sum" in chart.note


def test_launches_without_recorded_calls_have_no_typical_time() -> None:
    table = launch_table().assign(api_med_ns=float("nan"))
    (figure,) = key_figures(small_report(results=(result("launch_overhead", table),), benchmark=None))
    assert (figure.value, figure.note) == ("20", "typical API time – (kernels' medians)")


def test_a_benchmark_without_trials_has_no_figures() -> None:
    assert key_figures(small_report(results=(), benchmark=Benchmark((), 20))) == ()


def test_a_cpu_capture_without_operators_still_has_its_window() -> None:
    report = small_report(results=(result("nvtx_ranges", range_table([("measure", 0)])),), benchmark=None)
    assert [figure.label for figure in key_figures(report)] == ["Window"]


def test_key_figures_without_a_gpu_are_of_the_cpu() -> None:
    operators = pd.DataFrame(
        {"own_pct": [75.0, 25.0], "own_ns": [3_000, 1_000], "calls": [1, 2], "name": ["mm", "add"]}
    )
    results = (
        result("gpu_time", None, unavailable="no GPU"),
        result("nvtx_ranges", range_table([("measure", 0), ("measure / step", 1)])),
        result("cpu_ops", operators),
    )
    figures = {
        figure.label: (figure.value, figure.note)
        for figure in key_figures(small_report(results=results, benchmark=None))
    }
    assert figures == {
        "Window": ("1.000 µs", "the range “measure”"),
        "Operator time": ("4.000 µs", "3 calls of 2 operators"),
        "Top operator": ("75.0 %", "mm"),
    }


def test_a_ranking_scales_to_its_largest_bar_and_sums_the_others() -> None:
    chart = ranking("t", ["a", "b"], np.array([4e6, 2e6, 1e6, 1e6]), column="total_ns", series="kernel")
    bars = [(group.label, group.bars[0].width, group.bars[0].value, group.bars[0].note) for group in chart.groups]
    assert bars == [
        ("a", 100.0, "4.000 ms", "50.0 %"),
        ("b", 50.0, "2.000 ms", "25.0 %"),
        ("2 others", 50.0, "2.000 ms", "25.0 %"),
    ]


def test_a_bar_far_from_the_common_scale_has_its_own_unit() -> None:
    values = np.array([136_185_096.0, 863_123.0, 98_777.0, 46_354.0, 259.0])
    chart = ranking("t", list("abcde"), values, column="total_ns", series="api")
    assert [group.bars[0].value for group in chart.groups] == [
        "136.2 ms",
        "863.12 µs",
        "98.78 µs",
        "46.35 µs",
        "0.26 µs",
    ]


def test_phases_that_span_a_lot_are_logarithmic_and_say_so() -> None:
    phases = [("api", "API", np.array([1_000.0])), ("queue", "Queue", np.array([100_000.0]))]
    chart = compare_phases("t", ["k"], phases)
    assert chart.note.startswith("Logarithmic")
    assert [(tick.position, tick.text) for tick in chart.ticks] == [
        (0.0, "100 ns"),
        (33.33, "1 µs"),
        (66.67, "10 µs"),
        (100.0, "100 µs"),
    ]
    assert [bar.width for bar in chart.groups[0].bars] == [33.33, 100.0]


def test_phases_of_one_size_are_linear_and_missing_ones_have_no_bar() -> None:
    phases = [("api", "API", np.array([1_000.0, np.nan])), ("queue", "Queue", np.array([2_000.0, 500.0]))]
    chart = compare_phases("t", ["k", "l"], phases)
    assert (chart.note, chart.ticks) == ("", ())
    assert [[bar.width for bar in group.bars] for group in chart.groups] == [[50.0, 100.0], [0.0, 25.0]]
    assert chart.groups[1].bars[0].value == "–"


def test_phases_without_any_time_have_no_chart_to_draw() -> None:
    assert compare_phases("t", ["k"], [("api", "API", np.array([np.nan]))]).groups == ()


def test_a_launch_chart_tells_devices_apart() -> None:
    section = section_of(
        small_report(results=(result("launch_overhead", launch_table(("k",), devices=(0, 1))),)), "launch_overhead"
    )
    assert [group.label for group in section.charts[0].groups] == ["k (device 0)", "k (device 1)"]


def test_busy_time_is_drawn_against_the_window() -> None:
    (chart,) = section_of(small_report(), "gpu_time").charts
    assert [(bar.label, bar.width, bar.note) for bar in chart.groups[0].bars] == [
        ("Busy", 25.0, "25.0 %"),
        ("Kernels, sum", 25.0, "25.0 %"),
        ("Copies and sets, sum", 0.1, "<0.1 %"),
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
