"""Kernel time in groups: each group holds the sums of what is inside, and every kernel is in it once per place."""

import base64
import gzip
import json
from typing import Any

import pandas as pd

from nightsight.model.report import Report
from nightsight.render.page.page import page
from nightsight.render.table.grouped import kernel_groups
from nightsight.render.table.replayed import with_figures
from tests import replay_tables
from tests.recorded import Recorded
from tests.reports import kernel_table, result, small_report

KERNELS = ("ampere_sgemm_128x64_nn", "volta_sgemm_64x32_sliced1x4_tn", "void vllm::rms_norm_kernel<float>(T1)")


def times(names: tuple[str, ...], **columns: Any) -> pd.DataFrame:
    """Make kernels of 4, 2 and 1 ms."""
    figures = {
        "time_pct": [60.0, 30.0, 10.0],
        "total_ns": [4e6, 2e6, 1e6],
        "instances": [4, 2, 1],
        "avg_ns": 1e6,
        "name": names,
    }
    return pd.DataFrame({**figures, "min_ns": [5, 3, 4], "max_ns": [7, 9, 8], **columns})


def shown(frame: pd.DataFrame) -> list[list[Any]]:
    return frame[["level", "name", "total_ns"]].to_numpy().tolist()


def test_families_hold_their_kernels_the_most_time_first() -> None:
    report = small_report(results=(result("cuda_gpu_kern_sum", times(KERNELS)),))
    tree = kernel_groups(report)["family"]
    assert shown(tree) == [
        [0, "matrix products", 6e6],
        [1, KERNELS[0], 4e6],
        [1, KERNELS[1], 2e6],
        [0, "normalization", 1e6],
        [1, KERNELS[2], 1e6],
    ]
    assert tree.iloc[0][["instances", "avg_ns", "min_ns", "max_ns"]].tolist() == [6, 1e6, 3, 9]


def test_ranges_hold_the_ranges_inside_and_then_count_them_too() -> None:
    of_ranges = times(("a", "b", "a"), path=["step / fwd", "step / bwd", "step"])
    results = (result("cuda_gpu_kern_sum", times(("a", "b", "c"))), result("range_kernels", of_ranges))
    tree = kernel_groups(small_report(results=results))["range"]
    assert shown(tree) == [
        [0, "step", 7e6],
        [1, "fwd", 4e6],
        [2, "a", 4e6],
        [1, "bwd", 2e6],
        [2, "b", 2e6],
        [1, "a", 1e6],
    ]


def test_operators_hold_what_they_launched_in_all_modules_together() -> None:
    rows = times(("a", "a", "b"), operator=["mm", "mm", ""], module=["x", "y", ""]).drop(columns=["min_ns", "max_ns"])
    results = (result("cuda_gpu_kern_sum", times(("a", "b", "c"))), result("kernel_operators", rows))
    tree = kernel_groups(small_report(results=results))["operator"]
    assert shown(tree) == [[0, "mm", 6e6], [1, "a", 6e6], [0, "(no operator)", 1e6], [1, "b", 1e6]]


def test_the_figures_of_a_kernels_replay_are_beside_it_in_all_groups() -> None:
    of_ranges = times(("a", "b", "c"), path="step")
    operators = times(("a", "b", "c"), operator=["mm", "add", "add"], module="")
    kernels = times(("a", "b", "c")).assign(sm_pct=pd.Series([80.0]), limiter=pd.Series(["DRAM"]))
    tables = {"cuda_gpu_kern_sum": kernels, "range_kernels": of_ranges, "kernel_operators": operators}
    groups = kernel_groups(small_report(results=tuple(result(*item) for item in tables.items())))
    for by in ("range", "operator"):
        tree = groups[by]
        assert tree.loc[tree["sm_pct"].notna(), ["name", "sm_pct", "limiter"]].values.tolist() == [["a", 80.0, "DRAM"]]


def test_one_family_and_no_ranges_need_no_groups() -> None:
    assert kernel_groups(small_report(results=(result("cuda_gpu_kern_sum", kernel_table(("a", "b"))),))) == {}
    assert kernel_groups(small_report(results=())) == {}


def test_real_groups_add_up_and_the_page_holds_them(recorded: Recorded) -> None:
    report = recorded.report("train")
    groups = kernel_groups(report)
    kernels = next(each.rows for each in report.results if each.name == "cuda_gpu_kern_sum")
    assert set(groups) == {"family", "range"}
    for tree in groups.values():
        assert tree.loc[tree["level"] == 0, "total_ns"].sum() == kernels["total_ns"].sum()
    tables = json.loads(gzip.decompress(base64.b64decode(page(report).tables)))["tables"]
    for by, tree in groups.items():
        packed = tables[f"cuda_gpu_kern_sum/{by}"]
        assert packed["total"] == len(packed["name"]) == len(packed["full"]) == len(tree)
        assert packed["level"] == tree["level"].tolist()


def replayed(names: tuple[str, ...], **changes: Any) -> Report:
    kernels = times(("add(int)", "void k<(int)64>(float *)", "c"))
    replays = replay_tables.kernels(names, **changes)
    limits = replays[["launch", "name"]].assign(unit=[f"unit {row}" for row in range(len(names))], used_pct=90.0)
    tables = {"cuda_gpu_kern_sum": kernels, "ncu_kernels": replays, "ncu_limits": limits}
    return small_report(results=tuple(result(*item) for item in tables.items()))


def test_kernel_time_has_the_figures_of_the_replay_that_stands_for_the_most_time() -> None:
    names = ("k<64>", "add(int)", "k<64>")
    report = replayed(names, gpu_pct=[10.0, 30.0, 20.0], sm_pct=[1.0, 2.0, 3.0])
    kernels, *_ = with_figures(report.results)
    assert kernels.rows["sm_pct"].tolist()[:2] == [2.0, 3.0]
    assert kernels.rows["limiter"].tolist()[:2] == ["unit 1", "unit 2"]
    assert kernels.rows[["sm_pct", "limiter"]].isna().iloc[2].all()
    # never collected
    assert "dram_pct" not in kernels.rows
    assert "Nsight Compute" in kernels.notes[-1]


def test_kernel_time_is_as_it_was_if_no_kernel_was_replayed() -> None:
    report = replayed(("other", "others"))
    assert with_figures(report.results)[0] == report.results[0]
    assert with_figures(report.results[:1]) == report.results[:1]
