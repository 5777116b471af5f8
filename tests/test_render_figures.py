import math
from dataclasses import replace

import pandas as pd
import pytest

from nightsight.events.kernel_labels import KernelLabels
from nightsight.model.report import Benchmark, Capture, Report, View
from nightsight.render.page.figures import first_figures, key_figures
from nightsight.render.page.windows import choices
from nightsight.render.summary import Numbers, benchmark_doubts, numbers
from nightsight.render.verdict import mean_shares
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.workflows.analysis import build_report
from tests.reports import gpu_table, range_table, result, small_report, step_table, with_gpu_time
from tests.timeline import draw


def figures_of(report: Report) -> dict[str, tuple[str, str]]:
    return {
        figure.label: (figure.value, figure.note)
        for figure in key_figures(numbers(report), mean_shares(report.rows(TIME_SPLIT)))
    }


def test_key_figures_of_one_gpu() -> None:
    assert figures_of(small_report()) == {
        "Window": ("1.000 s", "the range “measure”"),
        "GPU busy": ("25.0 %", "idle 750.0 ms"),
        "Kernel time": ("250.0 ms", "7 kernels; 66.7 % in reduce"),
        "Copy time": ("1.500 µs", "2.000 MB in 1 copy"),
        "Launches": ("20", "API median 4.000 µs"),
        "Steps per second, unprofiled": ("909.1", "median of 2 trials of 20 steps"),
        "Step, unprofiled": (
            "1.100 ms",
            "mean 1.100 ms, std dev 0.141 ms; unreliable: the standard deviation of the trials is 12.9 % of their mean",
        ),
    }


def test_key_figures_of_two_gpus_say_what_is_mean_and_what_is_sum() -> None:
    figures = figures_of(with_gpu_time(20.0, 40.0))
    assert figures["GPU busy"] == ("30.0 %", "mean of 2 GPUs, 20.0 % to 40.0 %; idle 700.0 ms on average")
    assert figures["Kernel time"] == ("600.0 ms", "14 kernels, sum over 2 GPUs")
    assert figures["Copy time"] == ("3.000 µs", "4.000 MB in 2 copies, sum over 2 GPUs")
    assert figures["Launches"] == ("40", "API median 4.000 µs to 4.001 µs, by device")


@pytest.mark.parametrize(
    ("copies", "sets", "expected"),
    [
        (1, 0, {"Copy time": ("1.500 µs", "2.000 MB in 1 copy")}),
        (1, 3, {"Copy time": ("1.500 µs", "2.000 MB in 1 copy; 3 sets took 900 ns")}),
        (0, 3, {"Set time": ("900 ns", "3 sets")}),
        (0, 0, {}),
    ],
)
def test_sets_are_distinguished_from_copies(copies: int, sets: int, expected: dict[str, tuple[str, str]]) -> None:
    figures = figures_of(with_gpu_time(25.0, copies=copies, sets=sets, set_ns=900))
    assert {label: figure for label, figure in figures.items() if label in ("Copy time", "Set time")} == expected


@pytest.mark.parametrize(
    ("window", "note"),
    [
        ("first to last GPU operation", "first to last GPU operation, including setup"),
        ("everything recorded", "everything recorded"),
    ],
)
def test_the_window_is_named(window: str, note: str) -> None:
    assert figures_of(with_gpu_time(25.0, window=window))["Window"] == ("1.000 s", note)


def test_graphs_traced_as_a_whole_have_a_figure() -> None:
    report = with_gpu_time(25.0, graph_launches=2, graph_ns=3_000_000_000)
    assert figures_of(report)["CUDA graph time"] == ("3.000 s", "2 graph runs")


def test_the_gpu_s_waits_for_launches_are_a_mean_over_devices() -> None:
    bound = pd.DataFrame({"device": [0, 1], "launches": 20, "launch_idle_pct": [10.0, 20.0]})
    report = with_gpu_time(25.0)
    figures = figures_of(replace(report, results=(*report.results, result("launch_bound", bound))))
    assert "Launches" not in figures
    note = "mean of 2 GPUs, 10.0 % to 20.0 %; 20 launches, API median 4.000 µs"
    assert figures["GPU waits for launches"] == ("15.0 %", f"of the window, {note}")


@pytest.mark.parametrize(
    ("first_ns", "words"),
    [(3_300_000, ", 10.5 % without slow first launches"), (0, ""), (100_000, ""), (None, "")],
)
def test_waits_for_launches_name_the_share_without_slow_first_launches(first_ns: int | None, words: str) -> None:
    waits = {"device": [0], "launches": 20, "launch_idle_ns": 108_500_000, "launch_idle_pct": 10.85}
    bound = pd.DataFrame(waits).assign(first_launch_idle_ns=first_ns, drained=2)
    report = with_gpu_time(25.0)
    report = replace(report, results=(*report.results, result("launch_bound", bound)))
    value, note = figures_of(report)["GPU waits for launches"]
    assert (value, note.partition(";")[0]) == ("10.8 %", f"of the window{words}")


def test_launches_without_recorded_calls_have_no_typical_time() -> None:
    note = "their API time was not recorded"
    assert figures_of(with_gpu_time(25.0, launch_api_med_ns=None))["Launches"] == ("20", note)
    assert "Launches" not in figures_of(with_gpu_time(25.0, launches=0))


@pytest.mark.parametrize(("step_ns", "median"), [((1.0, 9.0, 2.0), 2.0), ((1.0, 2.0, 4.0, 9.0), 3.0), ((5.0,), 5.0)])
def test_the_step_is_the_true_median(step_ns: tuple[float, ...], median: float) -> None:
    run = numbers(small_report(benchmark=Benchmark(step_ns, 20)))
    assert (run.step_ns, run.step_mean_ns) == (median, sum(step_ns) / len(step_ns))
    assert (run.step_stddev_ns is None) == (len(step_ns) == 1)


def test_a_profiled_step_is_compared_with_an_unprofiled_one() -> None:
    report = small_report(results=(result("nvtx_ranges", step_table(steps=20, total_ns=36_000_000)),))
    assert figures_of(report)["Step, profiled"] == ("1.800 ms", "1.6× unprofiled, median of 20 steps")
    assert figures_of(replace(report, benchmark=None))["Step, profiled"] == ("1.800 ms", "median of 20 steps")


@pytest.mark.parametrize(
    ("step_ns", "profiled_ns", "doubts"),
    [
        ((1e6, 1e6, 1e6), 0.9e6, ()),
        ((1e6, 1e6, 1e6), 0.89e6, ("a step took 0.89 times as long with the profiler as without it",)),
        ((9e5, 1e6, 1.1e6), 1e6, ()),
        ((8.9e5, 1e6, 1.11e6), 1e6, ("the standard deviation of the trials is 11.0 % of their mean",)),
    ],
)
def test_a_benchmark_that_contradicts_the_profile_or_itself_is_doubtful(
    step_ns: tuple[float, ...], profiled_ns: float, doubts: tuple[str, ...]
) -> None:
    ranges = result("nvtx_ranges", step_table(steps=10, total_ns=round(10 * profiled_ns)))
    report = small_report(results=(ranges,), benchmark=Benchmark(step_ns, 10))
    assert benchmark_doubts(numbers(report)) == doubts
    note = figures_of(report)["Step, unprofiled"][1]
    assert note.partition("; unreliable: ")[2] == " and ".join(doubts)


def test_a_doubtful_benchmark_is_a_finding_of_the_report() -> None:
    capture = Capture("x", "nsys", (), benchmark=Benchmark((1e6, 2e6, 3e6), 10))
    report = build_report(draw("cpu  L\ns7   aaaa"), "x", capture=capture)
    (finding,) = (finding for finding in report.findings if finding.rule == "doubtful_benchmark")
    assert finding.severity == "warning"
    assert finding.detail.startswith("The standard deviation of the trials is 50.0 % of their mean.")
    steady = replace(capture, benchmark=Benchmark((1e6, 1e6, 1e6), 10))
    report = build_report(draw("cpu  L\ns7   aaaa"), "x", capture=steady)
    assert "doubtful_benchmark" not in [finding.rule for finding in report.findings]


@pytest.mark.parametrize("step_ns", [(), (0.0,)])
def test_a_benchmark_without_times_has_no_figures(step_ns: tuple[float, ...]) -> None:
    assert figures_of(small_report(results=(), benchmark=Benchmark(step_ns, 20))) == {}


@pytest.mark.parametrize(("end_ns", "is_start_up"), [(1_900, True), (2_100, False)])
def test_of_a_window_that_is_mostly_the_start_up_this_is_reported(end_ns: int, *, is_start_up: bool) -> None:
    frame = pd.DataFrame({"device": 0, "category": ["host code"], "time_ns": [40], "group": ["idle"]})
    chosen = View("steady part", 1_000, end_ns, "", is_chosen=True)
    others = (View(name, 0, end, "", split=frame) for name, end in (("whole", end_ns), ("start-up", 1_000)))
    report = replace(small_report(), windows=(chosen, *others))
    _, whole, start_up = choices(report, numbers(report), (), KernelLabels()).windows
    assert ("is the start-up, a one-time cost." in whole.headline.more) == is_start_up
    assert start_up.headline.more == "One-time cost."


@pytest.mark.parametrize(
    ("gain", "excessive", "label", "value", "note"),
    [
        (77.8, 78.0, "It could be shorter by", "77.8 %", "78 % of the sectors are needless"),
        (math.nan, 0.0, "It could be shorter by", "at most 7.2 %", "distance of that unit from its peak"),
        (math.nan, math.nan, "Below the peak by", "7.2 %", "of L2; whether its traffic is needed was not measured"),
    ],
)
def test_single_kernels_have_four_figures(gain: float, excessive: float, label: str, value: str, note: str) -> None:
    columns = {"name": "copy", "replay_ns": 9.0, "unit": "L2", "used_pct": 92.8, "left_pct": 7.2, "gain_pct": gain}
    reason = {"launch": 3, "reason": "78 % of the sectors are needless, 32 sectors per load"}
    limits = result("ncu_limits", pd.DataFrame([columns | reason]))
    kernels = result("ncu_kernels", pd.DataFrame({"launch": [3], "excessive_pct": [excessive]}))
    shown = first_figures(Numbers(), small_report(results=(kernels, limits)))
    assert [figure.label for figure in shown] == ["Replayed kernels", "Largest kernel", "It is limited by", label]
    assert (shown[-1].value, shown[-1].note) == (value, note)


def test_a_report_without_results_has_no_numbers() -> None:
    assert numbers(small_report(results=(), benchmark=None)) == Numbers()


def test_a_report_that_lacks_a_column_lacks_its_figure() -> None:
    table = gpu_table(25.0).drop(columns=["window", "sets", "set_ns", "launches", "launch_api_med_ns"])
    figures = figures_of(small_report(results=(result("gpu_time", table),), benchmark=None))
    assert figures["Window"] == ("1.000 s", "")
    assert list(figures) == ["Window", "GPU busy", "Kernel time", "Copy time"]


def test_a_cpu_capture_without_operators_still_has_its_window() -> None:
    report = small_report(results=(result("nvtx_ranges", range_table([("measure", 0)])),), benchmark=None)
    assert figures_of(report) == {"Window": ("1.000 µs", "the range “measure”")}


@pytest.mark.parametrize("has_steps", [True, False])
def test_the_first_screen_of_a_cpu_has_its_step_its_operators_and_its_memory(*, has_steps: bool) -> None:
    operators = pd.DataFrame({"own_pct": [100.0], "own_ns": [3_000], "calls": [1], "name": ["mm"]})
    times = {"avg_ns": [100.0, 40.0], "med_ns": [100.0, 40.0]}
    steps = pd.DataFrame({"category": ["whole step", "operators"], **times, "steps": 3, "device": None})
    memory = pd.DataFrame({"peak_bytes": [2048], "allocations": [7], "kind": ["CPU"]})
    results = (
        result("step_split", steps if has_steps else steps[:0]),
        result("cpu_ops", operators),
        result("memory_usage", memory),
    )
    window = (View("steady part", 0, 300, "The steady part.", "step", 3, is_chosen=True),)
    report = replace(small_report(results=results, benchmark=None), windows=window)
    labels = [figure.label for figure in first_figures(numbers(report), report)]
    if has_steps:
        assert labels == ["Step, profiled", "In operators", "Top operator", "Most memory"]
    else:
        assert labels == ["Recorded", "Operator time", "Top operator", "Most memory"]


def test_key_figures_without_a_gpu_are_of_the_cpu() -> None:
    operators = pd.DataFrame(
        {"own_pct": [75.0, 25.0], "own_ns": [3_000, 1_000], "calls": [1, 2], "name": ["mm", "add"]}
    )
    results = (
        result("gpu_time", None, unavailable="no GPU"),
        result("nvtx_ranges", step_table(steps=2, total_ns=5_000)),
        result("cpu_ops", operators),
    )
    assert figures_of(small_report(results=results, benchmark=None)) == {
        "Window": ("5.000 µs", "the range “measure”"),
        "Operator time": ("4.000 µs", "3 calls of 2 operators"),
        "Top operator": ("75.0 %", "of operator time: mm"),
        "Step, profiled": ("2.500 µs", "median of 2 steps"),
    }
