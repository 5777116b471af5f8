"""What limits replayed kernels, and what they could gain: on recorded replays, and on figures made up one by one."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.causes.kernels import kernel_remedies
from nightsight.analyze.replay.limits import ncu_limits
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from tests.kernel_tables import one_after_the_other
from tests.properties import examples
from tests.recorded import Recorded
from tests.replays import alone, joined, launch
from tests.reports import advised
from tests.timeline import draw

_SOL = "avg.pct_of_peak_sustained_elapsed"
SM, MEMORY, DRAM = f"sm__throughput.{_SOL}", f"gpu__compute_memory_throughput.{_SOL}", f"gpu__dram_throughput.{_SOL}"
L2, L1 = f"lts__throughput.{_SOL}", "l1tex__throughput.avg.pct_of_peak_sustained_active"
TENSOR = f"sm__pipe_tensor_cycles_active.{_SOL}"
TIME, WAVES = "gpu__time_duration.sum", "launch__waves_per_multiprocessor"
SECTORS, IDEAL = "memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal"
FITS, RUN = "sm__maximum_warps_per_active_cycle_pct", "sm__warps_active.avg.pct_of_peak_sustained_active"
FFMA, FADD, FMUL = (f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in ("ffma", "fadd", "fmul"))
CLOCK = "sm__cycles_elapsed.avg.per_second"
# 1e9 operations in 20 µs: 50 TFLOP/s of 67, and 67 against 495 with TF32
BUSY_FP32 = {TIME: 20_000.0, FFMA: 0.5e9, FADD: 0.0, FMUL: 0.0, CLOCK: 2e9, SM: 85.0}
_PEAKS = {
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 16_750.0,
    "sm__ops_path_tensor_op_hmma_src_tf32_dst_fp32_sparsity_off.sum.peak_sustained": 247_500.0,
    "sm__ops_path_tensor_op_hmma_src_tf32_dst_fp32_sparsity_off.sum": 0.0,
}


def with_ncu(recorded: Recorded, name: str) -> Profile:
    """Join a recorded timeline with the replays of the same program, whose CSV pages hold metrics and rules."""
    return recorded.profile(name).joined(only_ncu(recorded, name))


def only_ncu(recorded: Recorded, name: str) -> Profile:
    metrics, rules = recorded.profile(f"{name}.raw.csv"), recorded.profile(f"{name}.details.csv")
    return Profile({**metrics.tables, "kernel_rules": rules.table("kernel_rules")}, {}, metrics.environment)


def found(timeline: Timeline) -> dict[Any, Any]:
    """Return the only row of the limits."""
    (row,) = ncu_limits(timeline).frame.to_dict("records")
    return dict(row)


# recorded


def test_products_in_fp32_are_limited_by_their_pipe_and_belong_on_tensor_cores(recorded: Recorded) -> None:
    rows = ncu_limits(Timeline(with_ncu(recorded, "fp32"))).frame
    products = rows[rows["gpu_pct"] > 5]
    assert set(products["unit"]) == {"the FP32 pipe"}
    assert set(products["rule"]) == {"tensor_cores"}
    assert products["used_pct"].tolist() == pytest.approx([87.6, 87.4, 86.9], abs=0.1)
    # measured: 13.4 ms of products became 2.2
    assert products["gain_pct"].tolist() == pytest.approx([100 * (1 - 2.2 / 13.4)] * 3, abs=2)
    assert products["reason"].iloc[0] == "76 % of the FP32 roof, tensor pipe idle"


def test_elementwise_kernels_are_limited_by_dram(recorded: Recorded) -> None:
    rows = ncu_limits(Timeline(with_ncu(recorded, "unfused"))).frame
    assert set(rows["unit"]) == {"DRAM"}
    assert set(rows["rule"]) == {"at_roof"}
    assert rows["reason"].iloc[0] == "90 % of DRAM: only less traffic helps"
    assert rows["gain_pct"].isna().all()


def test_products_at_94_percent_of_the_tensor_pipe_have_nothing_to_gain(recorded: Recorded) -> None:
    rows = ncu_limits(Timeline(with_ncu(recorded, "healthy"))).frame
    products = rows[rows["gpu_pct"] > 5]
    assert set(products["rule"]) == {"at_roof"}
    assert products["left_pct"].max() < 7
    assert products["reason"].iloc[1] == "94 % of the tensor pipe: only less work for it helps"


@pytest.mark.parametrize("name", ["fp32", "unfused", "healthy"])
def test_no_rule_of_ncu_misleads(recorded: Recorded, name: str) -> None:
    advice = advised(Timeline(with_ncu(recorded, name)))
    assert not [finding for finding in advice if finding.rule.startswith("ncu_")]


def test_replays_alone_get_findings_too(recorded: Recorded) -> None:
    (advice,) = advised(Timeline(only_ncu(recorded, "fp32")))
    assert (advice.rule, advice.gain_ns, advice.source) == ("tensor_cores", None, "ncu_limits")
    assert advice.evidence[0].startswith("gemm f32 tn 256x64x8: 76 % of the FP32 roof, tensor pipe idle; 2.71 ms, ")
    assert len(advice.evidence) == 3
    for name, peak in (("unfused", "85 to 90 % of DRAM"), ("healthy", "94 % of the tensor pipe")):
        (note,) = advised(Timeline(only_ncu(recorded, name)))
        assert (note.rule, note.severity, note.gain_ns) == ("at_roof", "info", None)
        assert peak in note.detail


def test_a_transposed_copy_fetches_what_nobody_reads(recorded: Recorded) -> None:
    rows = ncu_limits(Timeline(recorded.profile("measure.ncu-rep"))).frame
    first = rows.iloc[0]
    assert (first["unit"], first["rule"]) == ("L2", "uncoalesced")
    assert first["reason"] == "78 % of the sectors are needless, 32 sectors per load"
    # 241 µs; 2 × 134 MB at the rate of the other kernels take 63
    assert 241.5 * (1 - first["gain_pct"] / 100) == pytest.approx(63, rel=0.2)
    assert set(rows["rule"][1:]) == {"", "at_roof"}
    assert [(finding.rule, finding.severity) for finding in advised(Timeline(recorded.profile("measure.ncu-rep")))] == [
        ("uncoalesced", "advice"),
        ("at_roof", "info"),
    ]


def test_a_memory_at_its_peak_is_not_reported_as_the_end_where_its_sectors_were_not_measured(
    recorded: Recorded,
) -> None:
    ends = "so only doing less work helps"
    for page, is_measured in (("measure.raw.csv", True), ("measure.details.csv", False)):
        (finding,) = (one for one in advised(Timeline(recorded.profile(page))) if one.rule == "at_roof")
        assert (ends in finding.detail, "was not measured" in finding.detail) == (is_measured, not is_measured)


def test_advice_on_replays_names_the_kernel_its_limit_and_what_it_could_save(recorded: Recorded) -> None:
    advice = advised(Timeline(recorded.profile("measure.ncu-rep")))[0]
    assert advice.cause == ("Neighboring threads access distant memory: `elementwise copy<float>`, limited by L2")
    assert advice.action.endswith(", up to \N{MINUS SIGN}78 % of its time")
    several = advised(Timeline(only_ncu(recorded, "fp32")))[0]
    assert re.search("`gemm [^`]*` and 2 more$", several.cause)
    assert several.action.endswith(" % of their time")


def test_replays_bound_what_the_timeline_promises(recorded: Recorded) -> None:
    names = {"fp32": ["tensor_cores", "fusion"], "unfused": ["fusion"], "healthy": ["fusion"]}
    for name, rules in names.items():
        with_replays, without = (
            kernel_remedies(Timeline(profile)) for profile in (with_ncu(recorded, name), recorded.profile(name))
        )
        assert [remedy.rule for remedy in with_replays] == [remedy.rule for remedy in without] == rules
        assert with_replays[0].new_ns.sum() >= without[0].new_ns.sum()


# made up


@pytest.mark.parametrize(
    ("used", "unit", "percent"),
    [
        ({SM: 94.0, TENSOR: 94.0, MEMORY: 70.0}, "the tensor pipe", 94),
        # L1 feeds the tensor pipe
        ({SM: 93.5, TENSOR: 93.5, MEMORY: 94.7, L1: 98.0}, "the tensor pipe", 93.5),
        ({SM: 5.0, MEMORY: 90.0, DRAM: 90.0, L2: 93.0}, "DRAM", 90),
        ({SM: 5.0, MEMORY: 90.0, DRAM: 20.0, L2: 90.0}, "L2", 90),
        ({SM: 5.0, MEMORY: 90.0, DRAM: 20.0, L2: 40.0, L1: 91.0}, "L1", 90),
        ({SM: 5.0, MEMORY: 90.0}, "memory", 90),
        ({DRAM: 50.0, L2: 70.0}, "L2", 70),
        ({SM: 60.0, MEMORY: 20.0}, "the SMs", 60),
    ],
)
def test_the_busiest_unit_limits_a_kernel(used: Mapping[str, float], unit: str, percent: float) -> None:
    row = found(alone(launch("a", used)))
    assert (row["unit"], row["used_pct"], row["left_pct"]) == (unit, percent, 100 - percent)


def test_without_metrics_nothing_is_known() -> None:
    row = found(alone(launch("a")))
    assert (row["unit"], row["rule"], row["reason"]) == ("", "", "")
    assert np.isnan([row["used_pct"], row["left_pct"], row["gain_pct"]]).all()


@pytest.mark.parametrize(
    ("name", "more", "rule"),
    [
        ("ampere_sgemm_128x64_nn", {}, "tensor_cores"),
        ("my_matmul_kernel(float *, float *)", {}, "tensor_cores"),
        # the instructions tell
        ("tiles", {"sass__inst_executed_per_opcode": {"FFMA": 800.0, "LDS": 100.0, "FADD": 10.0}}, "tensor_cores"),
        (
            "bodies",
            {"sass__inst_executed_per_opcode": {"FFMA": 400.0, "MUFU": 200.0, "FADD": 200.0, "LDS": 100.0}},
            "at_roof",
        ),
        ("bodies", {}, "at_roof"),
        # it is used
        ("my_matmul_kernel", {TENSOR: 30.0}, "at_roof"),
        # DRAM has to deliver the data all the same
        ("my_matmul_kernel", {DRAM: 98.0}, "at_roof"),
    ],
)
def test_products_in_fp32_are_identified_by_name_and_by_instructions(name: str, more: Any, rule: str) -> None:
    assert found(alone(launch(name, {**BUSY_FP32, **_PEAKS, **more})))["rule"] == rule


def test_a_product_is_bounded_by_what_dram_delivers() -> None:
    row = found(alone(launch("my_matmul", {**BUSY_FP32, **_PEAKS, DRAM: 40.0})))
    assert row["gain_pct"] == 60


def test_without_a_roof_of_tensor_cores_nothing_is_promised() -> None:
    peaks = {name: value for name, value in _PEAKS.items() if "tensor" not in name}
    assert found(alone(launch("my_matmul", {**BUSY_FP32, **peaks})))["rule"] == "at_roof"


@pytest.mark.parametrize(
    ("metrics", "rule", "gain"),
    [
        # the caches move four sectors for each that is needed; then SMs or DRAM set the pace
        ({MEMORY: 90.0, L2: 90.0, SECTORS: 400.0, IDEAL: 100.0, SM: 20.0}, "uncoalesced", 75),
        ({MEMORY: 90.0, L2: 90.0, SECTORS: 400.0, IDEAL: 100.0, SM: 50.0}, "uncoalesced", 50),
        ({MEMORY: 90.0, L2: 90.0, DRAM: 60.0, SECTORS: 400.0, IDEAL: 100.0}, "uncoalesced", 40),
        ({MEMORY: 90.0, DRAM: 90.0, L2: 80.0, SECTORS: 400.0, IDEAL: 100.0}, "at_roof", None),
        ({SM: 90.0, MEMORY: 70.0, L2: 70.0, SECTORS: 400.0, IDEAL: 100.0}, "at_roof", None),
        ({MEMORY: 30.0, L2: 30.0, SECTORS: 400.0, IDEAL: 100.0}, "", None),
        ({MEMORY: 90.0, L2: 90.0, SECTORS: 120.0, IDEAL: 100.0}, "at_roof", None),
        # a wave and a fifth take as long as two
        ({SM: 50.0, WAVES: 1.2}, "tail", 40),
        ({SM: 90.0, WAVES: 1.2}, "tail", 10),
        ({SM: 50.0, WAVES: 7.8}, "", None),
        ({SM: 50.0, WAVES: 0.3}, "", None),
        # a quarter of the warps fit, because of registers
        ({SM: 40.0, WAVES: 8.0, FITS: 25.0, RUN: 24.0, "launch__occupancy_limit_registers": 2.0}, "registers", 60),
        ({SM: 20.0, WAVES: 8.0, FITS: 25.0, RUN: 24.0, "launch__occupancy_limit_shared_mem": 2.0}, "shared_memory", 75),
        ({SM: 40.0, WAVES: 8.0, FITS: 25.0, RUN: 24.0, "launch__occupancy_limit_warps": 2.0}, "", None),
        ({SM: 70.0, WAVES: 8.0, FITS: 25.0, RUN: 24.0, "launch__occupancy_limit_registers": 2.0}, "", None),
        ({SM: 40.0, WAVES: 8.0, FITS: 25.0, RUN: 5.0, "launch__occupancy_limit_registers": 2.0}, "", None),
        ({TENSOR: 50.0, WAVES: 8.0, FITS: 25.0, RUN: 24.0, "launch__occupancy_limit_registers": 2.0}, "", None),
    ],
)
def test_what_could_be_changed(metrics: Mapping[str, float], rule: str, gain: float | None) -> None:
    row = found(alone(launch("a", {TIME: 100_000.0, **metrics})))
    assert row["rule"] == rule
    assert (None if np.isnan(row["gain_pct"]) else row["gain_pct"]) == (None if gain is None else pytest.approx(gain))


@pytest.mark.parametrize(
    ("blocks", "us", "used", "gain"), [(33, 600, 10, 75), (33, 600, 40, 60), (66, 600, 10, None), (13, 8, 10, 25)]
)
def test_few_blocks(blocks: int, us: int, used: float, gain: float | None) -> None:
    replay = alone(launch("a", {TIME: us * 1000.0, SM: float(used)}, grid=blocks))
    devices = one_after_the_other([("k", 1.0)]).profile.table("devices")
    row = found(Timeline(Profile({**replay.profile.tables, "devices": devices})))
    assert row["rule"] == ("small_grid" if gain else "")
    assert (row["gain_pct"] if gain else None) == (None if gain is None else pytest.approx(gain))
    assert not gain or row["reason"] == f"{blocks} blocks on 132 SMs"


def test_changes_of_replayed_kernels_are_remedies_of_those_they_stand_for() -> None:
    drawn = draw("s7   aaaa.bb.aaaa.aa")
    far = {TIME: 4000.0, MEMORY: 90.0, L2: 90.0, SECTORS: 400.0, IDEAL: 100.0}
    (remedy,) = kernel_remedies(joined(drawn, launch("a", far), launch("b", {SM: 90.0})))
    assert (remedy.rule, remedy.place) == ("uncoalesced", "a (75 % of the sectors are needless)")
    assert remedy.operations.tolist() == [0, 2, 3]
    assert remedy.new_ns.tolist() == [1000, 1000, 500]
    assert not remedy.removed.any()


def test_a_product_that_waits_for_memory_gains_no_more_on_tensor_cores() -> None:
    name = "ampere_sgemm_128x64_nn"
    timeline = one_after_the_other([(name, 1000.0)] * 3)
    (alone_remedy,) = kernel_remedies(timeline)
    assert alone_remedy.new_ns[0] < 200_000
    replay = joined(timeline.profile, launch(name, {MEMORY: 70.0, DRAM: 70.0, SM: 30.0}, grid=1000))
    (bounded,) = kernel_remedies(replay)
    assert bounded.new_ns.tolist() == [700_000] * 3


@examples(40)
@given(
    st.lists(
        st.fixed_dictionaries(
            {}, optional=dict.fromkeys((SM, MEMORY, DRAM, L2, L1, TENSOR, FITS, RUN), st.floats(0, 100))
        ),
        min_size=1,
        max_size=3,
    ),
    st.floats(0, 40),
    st.floats(0, 1000),
)
def test_no_gain_exceeds_what_the_units_that_stay_have_left(used: Any, waves: float, sectors: float) -> None:
    more = {TIME: 50_000.0, WAVES: waves, SECTORS: sectors, IDEAL: 100.0, "launch__occupancy_limit_registers": 2.0}
    table = ncu_limits(alone(*(launch("a", {**more, **metrics}) for metrics in used))).frame
    for row in table.to_dict("records"):
        metrics = used[row["launch"]]
        stays = [metrics.get(name, 0.0) for name in (SM, DRAM, TENSOR)]
        bound = 100 - max(stays) if row["rule"] == "uncoalesced" else row["left_pct"]
        assert np.isnan(row["gain_pct"]) or 0 < row["gain_pct"] <= bound + 1e-6
        assert (row["rule"] in ("", "at_roof")) == np.isnan(row["gain_pct"])
        assert bool(row["reason"]) == bool(row["rule"])
