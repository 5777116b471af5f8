"""Operators against the peaks: drawn timelines, in which an operator's shapes and the time of its kernels are known."""

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.operator_work.formulas import _FORMULAS, OperatorWork, operator_work
from nightsight.analyze.operator_work.roofline import operator_roofline, operator_roofs
from nightsight.events.timeline import Timeline
from nightsight.events.window import Window
from nightsight.model.report import Profile
from nightsight.results.operator_roofline import OPERATOR_ROOFLINE
from nightsight.tables import conform
from tests.gpu.roofline import compared, judged, lines
from tests.properties import examples
from tests.replays import launch, replayed
from tests.timeline import PROCESS, draw

Rows = list[dict[str, Any]]

NAMES = {
    "m": "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "f": "ampere_sgemm_128x64_tn",
    "t": "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32",
    "v": "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128, 16>",
    "e": "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, Array<char*, 3>>",
    "n": "ncclDevKernel_AllReduce_Sum_f32",
}
SQUARE = [4096, 4096]
FLOP = 2 * 4096**3
BF16 = 3 * 4096**2 * 2


def operator(name: str, start: int, end: int, *arguments: Any) -> dict[str, Any]:
    """Describe an operator on the drawn thread, with shapes, types and inputs; times in microseconds."""
    shapes, types, inputs = (*arguments, "", "", "")[:3]
    given = {"shapes": shapes, "types": types, "inputs": inputs}
    texts = {key: text if isinstance(text, str) else json.dumps(text) for key, text in given.items()}
    place = {"process": PROCESS, "thread": PROCESS | 7, "pid": 5, "tid": 7}
    return {"name": name, "start_ns": start * 1000, "end_ns": end * 1000, **place, **texts}


def product(start: int, end: int, name: str = "aten::mm", kind: str = "c10::BFloat16") -> dict[str, Any]:
    return operator(name, start, end, [SQUARE, SQUARE], [kind, kind], ["", ""])


def recorded(
    picture: str,
    *operators: dict[str, Any],
    gpu: str = "H200",
    tables: Mapping[str, pd.DataFrame] = MappingProxyType({}),
) -> Timeline:
    """Draw a timeline whose kernels have the names of NAMES, and these operators."""
    drawn = draw(picture)
    kernels = drawn.table("kernels")
    named = kernels.assign(name=[NAMES.get(name, name) for name in kernels["name"].astype("str")])
    facts = {"device": 0, "name": gpu, "compute_capability": "9.0"}
    return Timeline(
        Profile(
            {
                **drawn.tables,
                "kernels": conform("kernels", named),
                "cpu_ops": conform("cpu_ops", pd.DataFrame(list(operators))),
                "devices": conform("devices", pd.DataFrame([facts])),
                **tables,
            }
        )
    )


def rows(timeline: Timeline) -> Rows:
    frame: Any = operator_roofline(timeline).frame
    return list(frame.to_dict("records"))


def alone(timeline: Timeline) -> dict[str, Any]:
    (row,) = rows(timeline)
    return row


def test_the_rates_of_a_product_are_its_operations_and_bytes_over_the_time_of_its_kernels() -> None:
    row = alone(recorded("cpu  L..\ns7   .mmmmmmmmmm", product(0, 2)))
    assert (row["name"], row["shapes"], row["types"], row["kind"]) == (
        "aten::mm",
        "4096×4096, 4096×4096",
        "BFloat16",
        "tensor BF16",
    )
    assert (row["calls"], row["total_ns"], row["avg_ns"]) == (1, 10_000, 10_000)
    assert (row["work_flop"], row["data_bytes"]) == (FLOP, BF16)
    assert row["work_flop_per_s"] == pytest.approx(FLOP / 1e-5)
    assert row["data_bytes_per_s"] == pytest.approx(BF16 / 1e-5)
    assert row["work_flop_per_byte"] == pytest.approx(FLOP / BF16)
    assert row["compute_pct"] == pytest.approx(100 * FLOP / 1e-5 / 989e12)
    assert row["memory_pct"] == pytest.approx(100 * BF16 / 1e-5 / 4.8e12)
    assert row["shortest_ns"] == pytest.approx(1e9 * FLOP / 989e12)
    assert row["time_pct"] == 100


def test_only_the_operator_that_launched_counts_and_every_call_of_it() -> None:
    timeline = recorded(
        "cpu  L...L......\ns7   .mmm.mm....e",
        operator("aten::linear", 0, 3, [SQUARE, SQUARE], ["c10::BFloat16"] * 2),
        product(0, 2),
        product(4, 6),
    )
    row = alone(timeline)
    assert (row["name"], row["calls"], row["total_ns"], row["avg_ns"]) == ("aten::mm", 2, 5_000, 2_500)
    assert row["time_pct"] == pytest.approx(100 * 5 / 6)
    assert "16.7 % of the time is of work that no operator launched." in operator_roofline(timeline).notes


def test_several_kernels_and_a_memset_are_one_call() -> None:
    row = alone(recorded("cpu  C.L.L\ns7   .Mmmm.ee", product(0, 5)))
    assert (row["calls"], row["total_ns"], row["kind"]) == (1, 6_000, "tensor BF16")


def test_calls_with_other_shapes_types_or_work_are_rows_of_their_own() -> None:
    other = operator("aten::mm", 3, 5, [[64, 64], [64, 64]], ["c10::BFloat16"] * 2, ["", ""])
    half = product(6, 8, kind="c10::Half")
    timeline = recorded("cpu  L..L..L..\ns7   .mmmm.m.mm", product(0, 2), other, half)
    assert [(row["shapes"], row["types"], row["total_ns"]) for row in rows(timeline)] == [
        ("4096×4096, 4096×4096", "BFloat16", 4_000),
        ("4096×4096, 4096×4096", "Half", 2_000),
        ("64×64, 64×64", "BFloat16", 1_000),
    ]
    attention = [
        operator("aten::_scaled_dot_product_flash_attention", start, start + 2, [[1, 2, 64, 8]] * 3 + [[]] * 2,
                 ["c10::Half"] * 3 + ["Scalar"] * 2, ["", "", "", "0.", causal])
        for start, causal in ((0, "False"), (3, "True"), (6, "False"))
    ]  # fmt: skip
    records = rows(recorded("cpu  L..L..L..\ns7   .mm.m..mm", *attention))
    assert [(row["work_flop"], row["calls"]) for row in records] == [(4 * 2 * 64 * 64 * 8, 2), (4 * 2 * 32 * 65 * 8, 1)]


@pytest.mark.parametrize(
    ("kernel", "kind", "expected"),
    [
        ("f", "float", "FP32"),
        ("t", "float", "tensor TF32"),
        ("e", "float", ""),
        ("m", "c10::BFloat16", "tensor BF16"),
        ("e", "c10::Half", "tensor FP16"),
        ("e", "c10::Float8_e4m3fn", "tensor FP8"),
        ("v", "c10::BFloat16", "FP32"),
        ("f", "double", "FP64"),
    ],
)
def test_the_type_and_the_kernel_tell_the_peak(kernel: str, kind: str, expected: str) -> None:
    row = alone(recorded(f"cpu  L..\ns7   .{kernel * 5}", product(0, 2, kind=kind)))
    peaks = {"FP32": 67, "tensor TF32": 494.5, "tensor BF16": 989, "tensor FP16": 989, "tensor FP8": 1978}
    assert row["kind"] == expected
    if expected in peaks:
        assert row["compute_pct"] == pytest.approx(100 * FLOP / 5e-6 / (peaks[expected] * 1e12))
    else:
        assert math.isnan(row["compute_pct"])


@pytest.mark.parametrize(
    ("shapes", "microseconds", "bound"),
    [
        # 0.5 ms of 989 TFLOP/s
        ([[4096, 7296], [7296, 8192]], 700, "compute"),
        ([[4096, 7296], [7296, 8192]], 900, "latency"),
        # 12 µs of 4.8 TB/s
        ([[4096, 3600], [3600, 1]], 10, "memory"),
        ([[4096, 3600], [3600, 1]], 20, "latency"),
    ],
)
def test_what_reaches_sixty_percent_of_a_peak_is_bound_by_it(shapes: Any, microseconds: int, bound: str) -> None:
    timeline = recorded(
        f"cpu  L..\ns7   .{'m' * microseconds}", operator("aten::mm", 0, 2, shapes, ["c10::BFloat16"] * 2, ["", ""])
    )
    assert alone(timeline)["bound"] == bound


def test_without_the_peaks_of_a_gpu_there_are_rates_and_no_percentages() -> None:
    timeline = recorded("cpu  L..\ns7   .mmmmm", product(0, 2), gpu="Quadro Nothing")
    row = alone(timeline)
    assert row["work_flop_per_s"] == pytest.approx(FLOP / 5e-6)
    assert row["bound"] == ""
    assert math.isnan(row["compute_pct"])
    assert math.isnan(row["memory_pct"])
    assert math.isnan(row["shortest_ns"])
    assert any("peaks of this GPU are not known" in note for note in operator_roofline(timeline).notes)
    assert not len(operator_roofs(timeline).frame)


def test_operators_of_unknown_work_are_listed_with_their_share_of_the_time() -> None:
    timeline = recorded(
        "cpu  L..L.....\ns7   .mmm.m", operator("mine::fused", 0, 2, [SQUARE], ["float"], [""]), product(3, 5)
    )
    unknown, known = rows(timeline)
    assert (unknown["name"], unknown["time_pct"], unknown["bound"]) == ("mine::fused", 75.0, "")
    assert math.isnan(unknown["work_flop"])
    assert math.isnan(unknown["data_bytes"])
    assert known["work_flop"] == FLOP
    note, *_ = operator_roofline(timeline).notes
    assert note.startswith("The work of these operators is not known: mine::fused 75.0 %.")


def test_copies_of_the_host_and_communication_have_other_peaks_and_are_left_out() -> None:
    copied = operator("aten::copy_", 0, 2, [SQUARE, SQUARE], ["float", "float"], ["", ""])
    reduced = operator("c10d::allreduce_", 3, 5, [SQUARE], ["float"], [""])
    timeline = recorded("cpu  C..L..L..\ns7   .HHH.nnn.mm", copied, reduced, product(6, 8))
    assert [row["name"] for row in rows(timeline)] == ["aten::mm"]
    # nor are they work that no operator launched
    assert not any("no operator" in note for note in operator_roofline(timeline).notes)


def test_copies_within_a_device_are_work_of_their_operator() -> None:
    timeline = recorded(
        "cpu  C..\ns7   .HHH", operator("aten::copy_", 0, 2, [SQUARE, SQUARE], ["float", "float"], ["", ""])
    )
    moved = timeline.profile.table("memory_ops").assign(operation="Device-to-Device")
    inside = Timeline(Profile({**timeline.profile.tables, "memory_ops": conform("memory_ops", moved)}))
    row = alone(inside)
    assert (row["data_bytes"], row["total_ns"]) == (2 * 4 * 4096**2, 3_000)
    assert row["bound"] == "memory"
    assert any("More than 100 %" in note for note in operator_roofline(inside).notes)


def test_only_what_began_in_the_window_counts() -> None:
    timeline = recorded("cpu  L...L......\ns7   .mmm.mm....", product(0, 2), product(4, 6))
    assert alone(timeline.at(Window(4_000, 12_000, "later")))["calls"] == 1


def test_without_shapes_there_are_no_rows_and_a_reason() -> None:
    table = operator_roofline(recorded("cpu  L..\ns7   .mmm", operator("aten::mm", 0, 2)))
    assert not len(table.frame)
    assert "record_shapes=True" in table.notes[0]
    OPERATOR_ROOFLINE.check(table.frame)
    nothing = operator_roofline(recorded("cpu  S", product(0, 2)))
    assert (len(nothing.frame), nothing.notes) == (0, ())


def test_where_types_were_not_recorded_the_kernel_tells_them_if_it_can() -> None:
    def of_nsys(kernel: str, name: str, *shapes: list[int]) -> dict[str, Any]:
        return alone(recorded(f"cpu  L..\ns7   .{kernel * 3}", operator(name, 0, 2, list(shapes))))

    row = of_nsys("m", "aten::mm", SQUARE, SQUARE)
    assert (row["work_flop"], row["data_bytes"], row["kind"], row["types"]) == (FLOP, BF16, "tensor BF16", "")
    row = of_nsys("e", "aten::add", SQUARE, SQUARE, [])
    assert (row["data_bytes"], row["kind"]) == (3 * 4 * 4096**2, "")
    row = of_nsys("a", "aten::mm", SQUARE, SQUARE)
    assert (row["work_flop"], row["kind"], row["bound"]) == (FLOP, "", "")
    assert math.isnan(row["data_bytes"])
    assert row["work_flop_per_s"] == pytest.approx(FLOP / 3e-6)
    row = of_nsys("a", "aten::add", SQUARE, SQUARE, [])
    assert math.isnan(row["data_bytes"])


@pytest.mark.parametrize(("microseconds", "bound"), [(60, "memory"), (80, "latency")])
def test_what_multiplies_no_matrices_is_bound_by_memory_or_by_nothing(microseconds: int, bound: str) -> None:
    # 201 MB: 42 µs of 4.8 TB/s
    add = operator("aten::add", 0, 2, [SQUARE, SQUARE], ["float", "float"], ["", ""])
    row = alone(recorded(f"cpu  L..\ns7   .{'e' * microseconds}", add))
    assert row["bound"] == bound
    assert row["memory_pct"] == pytest.approx(100 * 3 * 4 * 4096**2 / (microseconds * 1e-6 * 4.8e12))
    assert row["shortest_ns"] == pytest.approx(1e9 * 3 * 4 * 4096**2 / 4.8e12)
    assert math.isnan(row["work_flop"])
    assert math.isnan(row["compute_pct"])


def test_a_product_of_unknown_operations_may_be_bound_by_arithmetic() -> None:
    unknown = ["c10::Half"] * 3 + ["Scalar"] * 2
    attention = operator(
        "aten::_scaled_dot_product_flash_attention", 0, 2, [[1, 2, 64, 8]] * 3 + [[]] * 2, unknown, ["", "", "", "", ""]
    )
    row = alone(recorded("cpu  L..\ns7   .mm", attention))
    assert row["memory_pct"] > 0
    assert (math.isnan(row["work_flop"]), row["bound"]) == (True, "")


def test_long_lists_of_tensors_are_identified_by_their_sums() -> None:
    given = operator("aten::cat", 0, 2, [[[16, 16]] * 40, []], ["TensorList", "Scalar"], ["", "0"])
    assert alone(recorded("cpu  L..\ns7   .e", given))["shapes"] == "[40 tensors of 10,240]"
    few = operator("aten::cat", 0, 2, [[[16, 16], []], []], ["TensorList", "Scalar"], ["", "0"])
    assert alone(recorded("cpu  L..\ns7   .e", few))["shapes"] == "[16×16, scalar]"


# -- beside ncu --------------------------------------------------------------------------------------------------------

COUNTED = {
    "gpu__time_duration.sum": 2_000.0,
    "smsp__cycles_elapsed.avg.per_second": 1e9,
    "dram__bytes.sum": float(BF16) / 2,
    "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum": float(FLOP) * 1.5,
    **{f"smsp__sass_thread_inst_executed_op_f{op}_pred_on.sum": 0.0 for op in ("add", "mul", "fma")},
}


def beside(picture: str, *operators: dict[str, Any], metrics: Any = None, name: str = NAMES["m"]) -> Timeline:
    tables = replayed(launch(name, COUNTED if metrics is None else metrics)).tables
    return recorded(picture, *operators, tables=tables)


def test_what_ncu_measured_stands_beside_what_was_computed() -> None:
    timeline = beside("cpu  L...L......\ns7   .mmm.mm....", product(0, 2), product(4, 6))
    row = alone(timeline)
    assert row["measured_flop"] == pytest.approx(1.5 * FLOP)
    assert row["flop_difference_pct"] == pytest.approx(50)
    assert row["measured_bytes"] == pytest.approx(BF16 / 2)
    assert row["bytes_difference_pct"] == pytest.approx(-50)
    assert row["measured_ns"] == 2_000
    assert row["measured_flop_per_s"] == pytest.approx(1.5 * FLOP / 2e-6)
    assert row["measured_bytes_per_s"] == pytest.approx(BF16 / 2 / 2e-6)
    assert any(note.startswith("Measured by ncu") for note in operator_roofline(timeline).notes)
    OPERATOR_ROOFLINE.check(operator_roofline(timeline).frame)


def test_a_call_of_which_one_kernel_was_not_replayed_has_no_measured_figures() -> None:
    row = alone(beside("cpu  L.L.\ns7   .mmmee", product(0, 3)))
    assert math.isnan(row["measured_flop"])
    assert math.isnan(row["measured_bytes"])
    with_memset = alone(beside("cpu  C.L.\ns7   .Mmmm", product(0, 3)))
    assert with_memset["measured_flop"] == pytest.approx(1.5 * FLOP)


@pytest.mark.parametrize(("second", "is_known"), [("mmm", True), ("mmmmmm", False)])
def test_a_replay_is_not_of_calls_of_other_sizes_whose_kernel_has_the_same_grid(second: str, is_known: bool) -> None:
    half = operator("aten::mm", 4, 6, [[2048, 4096], SQUARE], ["c10::BFloat16"] * 2)
    frame = operator_roofline(beside(f"cpu  L...L........\ns7   .mmm.{second}", product(0, 2), half)).frame
    assert frame["measured_flop"].notna().tolist() == [is_known] * 2


def test_what_ncu_did_not_collect_is_missing() -> None:
    only_time = {name: value for name, value in COUNTED.items() if "duration" in name}
    row = alone(beside("cpu  L..\ns7   .mmm", product(0, 2), metrics=only_time))
    assert row["measured_ns"] == 2_000
    assert math.isnan(row["measured_flop"])
    assert math.isnan(row["bytes_difference_pct"])


def test_replays_of_other_kernels_add_no_columns() -> None:
    timeline = beside("cpu  L..\ns7   .mmm", product(0, 2), name="another")
    assert "measured_flop" not in operator_roofline(timeline).frame


# -- peaks -------------------------------------------------------------------------------------------------------------


def test_roofs_are_those_that_operators_are_compared_with() -> None:
    frame = operator_roofs(recorded("cpu  L..L..\ns7   .mm.f", product(0, 2), product(3, 5, kind="float"))).frame
    assert frame[["gpu", "roof"]].to_numpy().tolist() == [
        ["H200", "DRAM"],
        ["H200", "FP32"],
        ["H200", "tensor BF16"],
    ]
    assert frame["bytes_per_s"].tolist()[0] == 4.8e12
    assert frame["flop_per_s"].tolist()[1:] == [67e12, 989e12]


# -- broken texts ------------------------------------------------------------------------------------------------------

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
nested = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4), max_leaves=12)
sizes = st.lists(st.integers(-2, 5) | st.just(1 << 62), max_size=5)
texts = (
    st.lists(nested | sizes | st.lists(sizes, max_size=3), max_size=12).map(json.dumps)
    | nested.map(json.dumps)
    | st.text(max_size=20)
    | st.just("[" * 100_000)
)
values = st.lists(
    st.sampled_from(["", "True", "False", "[0]", "[1, 1]", "-1", "2", "0.5", "[True, True, False]", "9" * 30, "[x"]),
    max_size=14,
).map(json.dumps)
kinds = st.lists(st.sampled_from(["float", "c10::Half", "long int", "Scalar", "", "TensorList", "odd"]), max_size=14)


@examples(300)
@given(st.sampled_from(sorted(_FORMULAS)), texts, kinds.map(json.dumps) | texts, values | texts)
def test_arguments_that_make_no_sense_are_unknown(name: str, shapes: str, types: str, inputs: str) -> None:
    work = operator_work(f"aten::{name}", shapes, types, inputs, element="float")
    assert isinstance(work, OperatorWork)
    for amount in (work.flop, work.data_bytes):
        assert amount is None or 0 <= amount < 1 << 63


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("aten::mm", "[[4,5],[6,7]]"),
        ("aten::mm", "[[4],[4]]"),
        ("aten::mm", "[[4,5]]"),
        ("aten::mm", "not json"),
        ("aten::mm", '{"a":1}'),
        ("aten::mm", "[[4,-5],[-5,7]]"),
        ("aten::mm", "[[4,5.0],[5,7]]"),
        ("aten::mm", "[[4,true],[1,7]]"),
        ("aten::mm", f"[[{1 << 60},5],[5,7]]"),
        ("aten::mm", "[[[4,5]],[[5,7]]]"),
        ("aten::add", "[[4,5],[4,6]]"),
        ("aten::bmm", "[[2,4,5],[3,5,6]]"),
        ("aten::convolution", "[[1,2,8,8],[2,2,3]]"),
    ],
)
def test_shapes_that_do_not_fit_are_unknown(name: str, shapes: str) -> None:
    work = operator_work(name, shapes, '["float","float"]', '["",""]')
    assert work is not None
    assert work[:2] == (None, None)


def test_what_is_no_operator_of_pytorch_is_not_known() -> None:
    assert operator_work("mm", "[[4,5],[5,6]]", "", "") is None
    assert operator_work("mine::mm", "[[4,5],[5,6]]", "", "") is None
    assert operator_work("aten::nonzero", "[[4,5]]", "", "") is None


def test_more_operations_than_a_column_holds_are_unknown() -> None:
    most = 1 << 24
    work = operator_work("aten::mm", json.dumps([[most, most], [most, most]]), '["float","float"]', '["",""]')
    assert work is not None
    assert work.flop is None


def test_the_program_for_a_gpu_host_compares_and_judges() -> None:
    traced = recorded("cpu  L..\ns7   .mmm", product(0, 2)).profile
    table = compared(traced, replayed(launch(NAMES["m"], COUNTED)))
    (line,) = lines(table)
    assert line.startswith("aten::mm [4096×4096, 4096×4096] BFloat16: tensor BF16, compute: avg_ns 3.000 µs")
    assert "flop_difference_pct 50.0 %" in line
    assert judged(table) == 1
    right = {name: value / 1.5 if "tensor" in name else value for name, value in COUNTED.items()}
    assert judged(compared(traced, replayed(launch(NAMES["m"], right)))) == 0
    assert judged(compared(traced, replayed(launch("another", right)))) == 1
