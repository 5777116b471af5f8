"""What a run measured, read off its report: one number per run, for one repetition."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from nightsight.compare import measures
from nightsight.compare.measures import calls_counted
from nightsight.model.compare import MEASURES, machine_key, unit_of
from nightsight.model.report import Benchmark, Conditions, Environment, Finding, Report
from nightsight.results.gpu_time import GPU_TIME
from nightsight.results.steps import STEP_SPLIT, STEP_WORK
from tests.recorded import Recorded
from tests.reports import small_report


def gate(report: Report) -> "pd.Series[float]":
    table = measures(report).table
    return table[table["kind"] == "gate"].set_index("name")["value"]


def without(report: Report, name: str) -> Report:
    return replace(report, results=tuple(result for result in report.results if result.name != name))


def test_a_step_of_train(recorded: Recorded) -> None:
    report = recorded.report("train")
    column = gate(report)
    split = report.rows(STEP_SPLIT).set_index("category")
    assert column["step_ns"] == split.loc["whole step", "med_ns"]
    assert column["host code"] == split.loc["host code", "med_ns"]
    assert (column["launches"], column["copies"]) == (60, 3)
    # a mean over the window, and medians over its steps
    assert column["kernel_ns"] == pytest.approx(report.rows(GPU_TIME)["kernel_ns"].sum() / 19, rel=0.01)


def test_groups_are_those_of_a_step_not_of_the_capture(recorded: Recorded) -> None:
    run = measures(recorded.report("train"), source="run", side="baseline", order=3)
    assert list(run.table) == list(MEASURES)
    assert (run.repetitions, run.family, run.side, run.order) == (19, "iteration #", "baseline", 3)
    groups = run.table.set_index(["kind", "name"])
    copies = groups.loc["copy"]
    assert copies["count"].tolist() == [1, 1, 1, 1]
    kernels = groups.loc["kernel"]
    assert kernels["count"].sum() == 60
    assert kernels["place"].str.startswith("iteration # / ").all()
    assert kernels["value"].sum() == pytest.approx(groups.loc["family"]["value"].sum())
    assert groups.loc[("range", "iteration #"), "count"] == 1
    assert groups.loc[("api", "cudaLaunchKernel"), "count"] == 38
    assert "cause" in groups.index


def test_an_older_report_gives_totals_by_repetition(recorded: Recorded) -> None:
    table = measures(without(recorded.report("train"), STEP_WORK.name)).table.set_index(["kind", "name"])
    assert table.loc[("copy", "memset"), "count"] == 1
    assert {"kernel", "family", "copy", "api", "range", "gate", "cause"} == set(table.index.get_level_values(0))


def test_causes_are_distinguished_by_what_they_say_before_their_figures(recorded: Recorded) -> None:
    causes = measures(recorded.report("train")).causes
    assert causes["name"].tolist() == [
        "FP32 math runs without tensor cores",
        "Copies use pageable memory in `io:h2d` (Host-to-Device)",
        "The optimizer is not fused",
        "The CPU waits for the GPU in `iteration #` (cudaStreamSynchronize)",
    ]
    assert causes["gain_pct"].gt(0).all()


def test_two_findings_that_differ_in_figures_are_one_cause() -> None:
    titles = [f"The GPU waits for launches in `eager` ({count} in all): 1.7 ms" for count in ("800", "1,200")]
    names = [
        measures(replace(small_report(), findings=(Finding("launch_bound", "advice", title, ""),))).causes["name"][0]
        for title in titles
    ]
    assert names[0] == names[1]


def test_the_median_of_the_trials_is_the_unprofiled_step() -> None:
    report = replace(small_report(), benchmark=Benchmark((3e6, 1e6, 2e6), 20))
    assert gate(report)["unprofiled_step_ns"] == 2e6


def test_a_report_of_nothing_has_no_measures() -> None:
    run = measures(Report("empty", Environment(), ()))
    assert run.table.empty
    assert list(run.table) == list(MEASURES)
    assert run.causes.empty


@pytest.mark.parametrize("name", ["gelu", "ddp2", "unified_memory", "mini_torch", "python_names", "graph"])
def test_every_capture_can_be_compared(recorded: Recorded, name: str) -> None:
    run = measures(Report.from_json(recorded.report(name).to_json()))
    assert np.isfinite(run.table.loc[run.table["kind"] != "cause", "value"]).all()
    assert not run.table.duplicated(["kind", "name"]).any()
    assert run.table.equals(measures(recorded.report(name)).table)


def test_what_makes_machines_different() -> None:
    report = replace(
        small_report(),
        environment=Environment(gpu="H200", driver="580.95.05", cuda="13.0"),
        conditions=(Conditions(0, clock_policy="locked"),),
    )
    assert machine_key(measures(report)) == "GPU H200, driver 580, CUDA 13.0, clocks locked"


def test_units() -> None:
    assert [unit_of("gate", name) for name in ("step_ns", "launches", "host code")] == ["ns", "", "ns"]
    assert unit_of("kernel", "gemm_pct") == "ns"


def test_a_step_is_counted(recorded: Recorded) -> None:
    column = gate(recorded.report("train"))
    assert column[["host_to_device_copies", "device_to_host_copies", "memsets", "launches"]].tolist() == [1, 1, 1, 60]
    # one of its 19 steps allocates
    assert column[["synchronizing_calls", "collectives", "graph_launches"]].tolist() == [2, 0, 0]
    assert column["allocations"] == pytest.approx(1 / 19)
    assert column["host_to_device_bytes"] > 1e5
    assert column["device_to_host_bytes"] == 4
    graphs = gate(recorded.report("graph"))
    assert graphs["graph_launches"] > 0
    assert gate(recorded.report("ddp2"))["collectives"] > 0


def test_what_an_earlier_report_does_not_say_is_unknown(recorded: Recorded) -> None:
    report = recorded.report("train")
    work = report.rows(STEP_WORK).drop(columns="copied_bytes")
    results = (each for each in report.results if each.name != STEP_WORK.name)
    earlier = replace(report.result(STEP_WORK.name), table=work)
    column = gate(replace(report, results=(*results, earlier)))
    assert "host_to_device_bytes" not in column
    # without copies there are no bytes
    assert column["peer_to_peer_bytes"] == 0
    assert "synchronizing_calls" not in gate(without(report, STEP_WORK.name))


def test_a_call_counts_as_what_it_makes_the_host_do() -> None:
    names = [
        "cudaLaunchKernelExC",
        "cudaLaunchHostFunc",
        "cudaMemcpy",
        "cudaMemcpyAsync",
        "cudaMalloc",
        "cudaEventRecord",
    ]
    column = calls_counted(pd.Series([*names, "cudaEventSynchronize", "cuMemcpyHtoD_v2", "cudaFree", "cuGraphLaunch"]))
    allocation, sync, launch = "allocations", "synchronizing_calls", "launches"
    assert column.tolist() == [launch, "", sync, "", allocation, "", sync, sync, allocation, launch]


def test_how_steps_lie_around_their_median(recorded: Recorded) -> None:
    report = replace(recorded.report("train"), benchmark=Benchmark((3e6, 1e6, 2e6), 20))
    run = measures(report)
    whole = report.rows(STEP_SPLIT).set_index("category").loc["whole step"]
    assert run.pace["step_ns"].fastest == whole["min_ns"] / whole["med_ns"]
    assert run.pace["step_ns"].spread == (whole["p75_ns"] - whole["p25_ns"]) / whole["med_ns"]
    assert (run.pace["unprofiled_step_ns"].fastest, run.pace["unprofiled_step_ns"].spread) == (0.5, 0.5)
    assert 1e3 < run.launch_call_ns < 1e5
    nothing = measures(Report("empty", Environment(), ()))
    assert (nothing.pace, nothing.launch_call_ns) == ({}, 0)


def test_a_capture_that_lost_events_is_incomplete() -> None:
    lost = Finding("lost_events", "warning", "The profiler lost events", "Sums and counts are too small.")
    assert [measures(replace(small_report(), findings=findings)).is_incomplete for findings in ((), (lost,))] == [
        False,
        True,
    ]
