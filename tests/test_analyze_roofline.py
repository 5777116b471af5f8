"""Arithmetic per second and per byte, tensor cores included, and the roofs: made-up reports, and real ones."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.replay.metrics import METRICS, OPCODES_IN_FULL, TENSOR, THREAD_OPCODES
from nightsight.analyze.replay.roofline import ncu_roofline, ncu_roofs
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.tables import conform
from tests.properties import examples
from tests.recorded import Recorded
from tests.replays import Metrics, alone, launch, line

SM_HZ, DRAM_HZ, L2_HZ = (
    "sm__cycles_elapsed.avg.per_second",
    "dram__cycles_elapsed.avg.per_second",
    "lts__cycles_elapsed.avg.per_second",
)
TIME = "gpu__time_duration.sum"
PATH = "sm__ops_path_tensor_{}.sum"
BYTES, PEAK_BYTES = "dram__bytes.sum.per_second", "dram__bytes.sum.peak_sustained"
L2_BYTES = "derived__lts__lts2xbar_bytes.sum.per_second"


def executed(kind: str, *, per_cycle: bool = True) -> list[str]:
    ending = ".per_cycle_elapsed" if per_cycle else ""
    return [f"smsp__sass_thread_inst_executed_op_{kind}{name}_pred_on.sum{ending}" for name in ("add", "mul", "fma")]


def rates(timeline: Timeline) -> dict[str, float]:
    """Operations per second by kind of arithmetic."""
    table = ncu_roofline(timeline).frame
    return dict(zip(table["kind"], table["flop_per_s"], strict=True))


def roofs(timeline: Timeline, unit: str = "flop_per_s") -> dict[str, float]:
    table = ncu_roofs(timeline).frame.dropna(subset=unit)
    return dict(zip(table["roof"], table[unit], strict=True))


def plain_notes(timeline: Timeline) -> list[str]:
    return [note for note in ncu_roofline(timeline).notes if "CUDA cores" in note]


def tensor_notes(timeline: Timeline) -> list[str]:
    return [note for note in ncu_roofline(timeline).notes if "CUDA cores" not in note]


@pytest.fixture
def measure(recorded: Recorded) -> Profile:
    return recorded.profile("measure.ncu-rep")


@pytest.mark.parametrize(("kind", "letter", "flops"), [("FP64", "d", 7), ("FP32", "f", 7), ("FP16", "h", 16)])
def test_a_fused_multiply_add_is_two_operations_and_fp16_comes_in_pairs(kind: str, letter: str, flops: int) -> None:
    metrics = dict(zip(executed(letter), (1.0, 2.0, 2.0) if letter != "h" else (2.0, 2.0, 2.0), strict=True))
    lines = [line(None, sass="HFMA2.MMA R1, R2, R3, R4", instructions=10)]
    assert rates(alone(launch("a", {**metrics, SM_HZ: 1e9}, lines=lines))) == {kind: flops * 1e9}


def test_fp16_instructions_that_load_a_constant_are_no_arithmetic() -> None:
    add, multiply, fused = executed("h")
    metrics = {add: 0.0, multiply: 0.0, fused: 2.0, SM_HZ: 1e9}
    loads = line(None, sass="@!P0 HFMA2.MMA R15, -RZ, RZ, 1.875, 0", instructions=30)
    adds = line(None, sass="HFMA2 R1, R2, R3, R4", instructions=10)
    assert rates(alone(launch("a", metrics, lines=[loads, adds]))) == {"FP16": 2e9}
    assert rates(alone(launch("a", metrics, lines=[loads]))) == {}
    assert rates(alone(launch("a", metrics))) == {}
    (note,) = plain_notes(alone(launch("a", {**metrics, executed("f")[2]: 0.0})))
    assert note.startswith("Launches whose FP16 arithmetic on CUDA cores is not known: 1.")


def test_what_threads_of_a_range_executed_is_counted_by_opcode() -> None:
    opcodes = {"FFMA": 10.0, "FADD": 5.0, "DFMA": 1.0, "HFMA2": 3.0, "MOV": 100.0}
    timeline = alone(launch("range", {THREAD_OPCODES: opcodes, TIME: 1e9}, kind="range"))
    assert rates(timeline) == {"FP64": 2.0, "FP32": 25.0}
    (note,) = plain_notes(timeline)
    assert "FP16" in note
    (note,) = plain_notes(alone(launch("a")))
    assert note.startswith("Launches whose arithmetic on CUDA cores was not counted")


def test_counts_serve_where_rates_lack() -> None:
    counts = dict(zip(executed("f", per_cycle=False), (1000.0, 0.0, 500.0), strict=True))
    assert rates(alone(launch("a", {**counts, TIME: 2000}))) == {"FP32": 1e9}


def test_kinds_of_which_a_part_was_not_collected_are_not_known() -> None:
    add, _, fused = executed("f")
    assert rates(alone(launch("a", {add: 1, fused: 1, SM_HZ: 1e9}))) == {}


def test_intensity_is_per_byte_of_each_memory_and_missing_without_traffic() -> None:
    metrics = {PATH.format("src_fp64") + ".per_second": 8e9, BYTES: 2e9, L2_BYTES: 4e9}
    first, second = ncu_roofline(alone(launch("a", metrics), launch("b", {**metrics, BYTES: 0.0}))).frame.to_dict(
        "records"
    )
    assert (first["flop_per_byte"], first["l2_flop_per_byte"]) == (4, 2)
    assert second["flop_per_byte"] != second["flop_per_byte"]
    halves = {f"dram__bytes_{way}.sum.per_second": 1e9 for way in ("read", "write")}
    (summed,) = ncu_roofline(alone(launch("a", {**metrics, **halves, BYTES: "n/a"}))).frame.to_dict("records")
    assert summed["flop_per_byte"] == 4


@pytest.mark.parametrize(
    ("counters", "kinds"),
    [
        # cc 9.0: by instruction, and whole
        ({"op_hgmma_src_bf16_dst_fp32_sparsity_off": 60, "op_hmma_src_bf16_dst_fp32_sparsity_off": 4,
          "op_hmma_src_bf16_dst_fp32_sparsity_on": 0, "src_bf16_dst_fp32": 64}, {"BF16": 64}),
        ({"src_fp8_sparsity_off": 5, "src_fp8_sparsity_on": 0, "src_fp64": 3}, {"FP8": 5, "FP64": 3}),
        # cc 8.0: by sparsity, and whole
        ({"src_fp16_dst_fp16": 2, "src_fp16_dst_fp32": 6, "src_fp16_dst_fp16_sparsity_off": 2,
          "src_fp16_dst_fp32_sparsity_off": 1, "src_fp16_dst_fp32_sparsity_on": 5}, {"FP16": 8}),
        # cc 10.0: several types in one
        ({"op_utcqmma_src_fp4_fp6_fp8_dst_fp32_sparsity_off": 9, "op_utcomma_src_fp4_dst_fp32_sparsity_off": 0},
         {"FP4/FP6/FP8": 9}),
        ({"src_fp16_bf16_tf32_dst_fp32": 10, "op_utchmma_src_bf16_dst_fp32_sparsity_off": 7,
          "op_utchmma_src_tf32_dst_fp32_sparsity_off": 3}, {"BF16": 7, "TF32": 3}),
        ({"src_fp4_fp6_fp8_dst_fp32": 9, "src_fp4_fp6_dst_fp32": 4, "src_fp4_dst_fp32": 1},
         {"FP4/FP6/FP8": 5, "FP4/FP6": 3, "FP4": 1}),
        ({"src_int8": 0}, {}),
    ],
)  # fmt: skip
def test_work_of_tensor_cores_is_counted_once(counters: dict[str, float], kinds: dict[str, float]) -> None:
    metrics = {PATH.format(name) + ".per_second": value for name, value in counters.items()}
    assert rates(alone(launch("a", metrics))) == {f"tensor {kind}": value for kind, value in kinds.items()}


@examples(25)
@given(st.floats(1, 1e12), st.floats(1e8, 3e9), st.floats(1e3, 1e9))
def test_a_count_a_rate_per_cycle_and_a_rate_per_second_say_the_same(count: float, clock: float, time: float) -> None:
    name = PATH.format("op_hmma_src_fp16_dst_fp32_sparsity_off")
    per_s = count * 1e9 / time
    ways = {"": count, ".per_cycle_elapsed": per_s / clock, ".per_second": per_s}
    facts = {SM_HZ: clock, TIME: time}
    every = {name + way: value for way, value in ways.items()}
    variants = [every, *({way: value} for way, value in every.items())]
    launches = [launch(str(number), {**metrics, **facts}) for number, metrics in enumerate(variants)]
    table = ncu_roofline(alone(*launches)).frame
    assert list(table["kind"]) == ["tensor FP16"] * len(variants)
    assert list(table["flop_per_s"]) == [pytest.approx(per_s)] * len(variants)


@pytest.mark.parametrize(
    ("opcode", "kind", "flops"),
    [
        ("HMMA.16816.F32", "FP16", 4096),
        ("HMMA.16816.F32.BF16", "BF16", 4096),
        ("HMMA.1688.F32.TF32", "TF32", 2048),
        ("HMMA.884.F32.F32.STEP0", "FP16", 512),
        ("HMMA.884.F16.F16.STEP0", "FP16", 1024),
        ("HGMMA.64x128x16.F32.BF16", "BF16", 65_536),
        ("QGMMA.64x256x32.F32.E4M3.E4M3", "FP8", 262_144),
        ("IMMA.16832.S8.S8", "INT8", 8192),
        ("IMMA.16864.S4.S4.SAT", "INT4", 16_384),
        ("DMMA.884", "FP64", 512),
        ("BMMA.168256.XOR.POPC", "INT1", 65_536),
    ],
)
def test_names_of_instructions_tell_what_a_warp_does(opcode: str, kind: str, flops: int) -> None:
    timeline = alone(launch("a", {OPCODES_IN_FULL: {opcode: 10.0, "HFMA2.MMA": 7.0, "FFMA": 5.0}, TIME: 1e9}))
    assert rates(timeline) == {f"tensor {kind}": flops * 10}
    assert tensor_notes(timeline) == []


def test_what_cannot_be_counted_is_reported() -> None:
    unknown = launch("a", {OPCODES_IN_FULL: {"UTCHMMA.2CTA": 10.0}, TIME: 1e9})
    counted = launch("b", {PATH.format("src_fp64"): 0.0})
    plain = launch("c", {OPCODES_IN_FULL: {"FFMA": 10.0}})
    (note,) = tensor_notes(alone(unknown, counted, plain, launch("d")))
    assert note.startswith("Launches whose tensor-core work is not known: 2.")
    sparse = launch("a", {PATH.format("op_hmma_src_fp16_dst_fp32_sparsity_on"): 8.0, TIME: 1e9})
    (note,) = tensor_notes(alone(sparse))
    assert note.startswith("Launches that multiply sparse matrices: 1.")


def test_roofs_are_peaks_times_the_clock_of_their_unit_in_the_longest_replay() -> None:
    metrics = {PEAK_BYTES: 1504.0, DRAM_HZ: 2e9, "lts__t_bytes.sum.peak_sustained": 100.0, L2_HZ: 1e9}
    peaks = {
        f"sm__sass_thread_inst_executed_op_{name}_pred_on.sum.peak_sustained": 10.0 for name in ("dfma", "ffma", "hfma")
    }
    short, long = ({**metrics, **peaks, SM_HZ: clock, TIME: time} for clock, time in ((3e9, 10), (2e9, 20)))
    timeline = alone(launch("a", short), launch("b", long), launch("c", {**short, TIME: 5}))
    assert roofs(timeline, "bytes_per_s") == {"DRAM": 1504 * 2e9, "L2": 100e9}
    assert roofs(timeline) == {"FP64": 40e9, "FP32": 40e9, "FP16": 80e9}
    # kHz
    capped = alone(launch("b", {**long, "device__attribute_clock_rate": 1e6}))
    assert roofs(capped) == {"FP64": 20e9, "FP32": 20e9, "FP16": 40e9}


def test_the_roof_of_tensor_cores_is_that_of_dense_matrices() -> None:
    peaks = {
        "op_hmma_src_bf16_dst_fp32_sparsity_off": 3.0,
        "op_hgmma_src_bf16_dst_fp32_sparsity_off": 4.0,
        "op_hgmma_src_bf16_dst_fp32_sparsity_on": 8.0,
        "src_bf16_dst_fp32": 8.0,
        "src_fp64": 1.0,
    }
    metrics = {PATH.format(name) + ".peak_sustained": value for name, value in peaks.items()}
    timeline = alone(launch("a", {**metrics, SM_HZ: 1e9, PATH.format("src_bf16_dst_fp32") + ".per_second": 2e9}))
    assert roofs(timeline) == {"tensor BF16": 4e9, "tensor FP64": 1e9}
    assert ncu_roofline(timeline).frame["peak_pct"].tolist() == [50]


def test_devices_have_roofs_of_their_own_and_what_differs_from_published_is_reported() -> None:
    def on(device: int, name: str, bytes_per_cycle: float) -> Any:
        metrics: Metrics = {"device__attribute_display_name": name, PEAK_BYTES: bytes_per_cycle, DRAM_HZ: 1e9}
        return launch("a", metrics, device=device)

    table = ncu_roofs(alone(on(0, "NVIDIA H200", 4812.0), on(1, "Tesla T4", 160.0), on(2, "Unknown", 1.0)))
    assert table.frame[["device", "gpu", "bytes_per_s"]].to_numpy().tolist() == [
        [0, "NVIDIA H200", 4812e9],
        [1, "Tesla T4", 160e9],
        [2, "Unknown", 1e9],
    ]
    assert table.notes == ("The DRAM roof of Tesla T4 is 160 GB/s; NVIDIA publishes 320 GB/s.",)


def test_nothing_collected_gives_no_points_and_no_roofs() -> None:
    timeline = alone(launch("a"))
    assert ncu_roofline(timeline).frame.empty
    assert ncu_roofs(timeline).frame.empty


# -- real reports -----------------------------------------------------------------------------------------------------


def test_a_point_of_a_real_report_is_what_the_figures_of_its_csv_give_by_hand(recorded: Recorded) -> None:
    report = recorded.profile("lines.raw.csv")
    table = ncu_roofline(Timeline(report)).frame
    (point,) = table[(table["launch"] == 0) & (table["kind"] == "FP32")].to_dict("records")
    (tensor,) = table[(table["launch"] == 3) & (table["kind"] == "tensor FP16")].to_dict("records")
    # 103.577011 ffma per cycle at 2.027972 GHz; 106.153846 GB/s of DRAM
    assert point["flop_per_s"] == pytest.approx(2 * 103.577011 * 2.027972e9)
    assert point["flop_per_byte"] == pytest.approx(2 * 103.577011 * 2.027972 / 106.153846)
    # 4,194,304 operations in 3.04 us; 2.189474 GB/s
    assert tensor["flop_per_s"] == pytest.approx(4_194_304 / 3.04e-6, rel=1e-5)
    assert tensor["flop_per_byte"] == pytest.approx(4_194_304 / 3.04e-6 / 2.189474e9, rel=1e-5)


def test_a_real_matrix_product_does_what_its_size_says(measure: Profile) -> None:
    table = ncu_roofline(Timeline(measure)).frame
    (product,) = table[table["launch"] == 2].to_dict("records")
    time = measure.table("kernel_metrics").query("launch == 2 and metric == 'gpu__time_duration.sum'")["value"].item()
    assert product["kind"] == "tensor BF16"
    assert product["flop_per_s"] * time / 1e9 == pytest.approx(2 * 4096**3)
    # 90.3 % of what it could do at its own clock of 1.615 GHz; the roof is drawn at 1.967 GHz
    assert product["clock_hz"] == pytest.approx(1.615e9, rel=1e-3)
    assert round(product["peak_pct"], 1) == 74.1
    # what ncu's rule on the roofline says of the other kernels
    shares = {
        launch: round(share)
        for launch, kind, share in zip(table["launch"], table["kind"], table["peak_pct"], strict=True)
        if kind == "FP32"
    }
    assert shares == {0: 3, 1: 16, 3: 2}


@pytest.mark.parametrize("name", ["measure.ncu-rep", "lines.ncu-rep", "measure.raw.csv"])
def test_the_share_of_a_point_is_of_the_roof_that_is_drawn(name: str, recorded: Recorded) -> None:
    timeline = Timeline(recorded.profile(name))
    table, drawn = ncu_roofline(timeline).frame, roofs(timeline)
    with_peak = table[table["peak_pct"].notna()]
    assert len(with_peak) == table["kind"].isin(drawn).sum() > 0
    assert with_peak["peak_pct"].tolist() == pytest.approx(
        (100 * with_peak["flop_per_s"] / with_peak["kind"].map(drawn)).tolist()
    )


@pytest.mark.parametrize(
    "bytes_",
    [
        {"dram__bytes_read.sum": 3e6, "dram__bytes_write.sum": 1e6},
        {"dram__bytes.sum": 4e6},
        {"dram__bytes.sum": 4e6, "dram__bytes_read.sum": 9e6, "dram__bytes_write.sum": 9e6},
        {"dram__bytes_read.sum.per_second": 3e9, "dram__bytes_write.sum.per_second": 1e9, "dram__bytes.sum": 9e9},
        {BYTES: 4e9, "dram__bytes.sum": 9e9},
    ],
)
def test_bytes_and_duration_serve_where_a_rate_lacks(bytes_: dict[str, float]) -> None:
    work = {PATH.format("src_fp64") + ".per_second": 8e9, TIME: 1e6}
    l2 = {"lts__t_bytes.sum": 2e6}
    (point,) = ncu_roofline(alone(launch("a", {**work, **bytes_, **l2}))).frame.to_dict("records")
    assert (point["flop_per_byte"], point["l2_flop_per_byte"]) == (2, 4)
    (without_time,) = ncu_roofline(alone(launch("a", {**work, **l2, TIME: 0.0}))).frame.to_dict("records")
    assert without_time["l2_flop_per_byte"] != without_time["l2_flop_per_byte"]


def test_one_part_of_the_bytes_is_not_all_of_them() -> None:
    work = {PATH.format("src_fp64") + ".per_second": 8e9, TIME: 1e6, "dram__bytes_read.sum": 3e6}
    (point,) = ncu_roofline(alone(launch("a", work))).frame.to_dict("records")
    assert point["flop_per_byte"] != point["flop_per_byte"]


@pytest.mark.parametrize("name", ["measure.ncu-rep", "lines.ncu-rep"])
def test_counters_and_instructions_agree_on_real_kernels(name: str, recorded: Recorded) -> None:
    report = recorded.profile(name)
    metrics = report.table("kernel_metrics")
    without = metrics[~metrics["metric"].astype("str").str.contains(TENSOR.partition("(")[0])]
    by_name = Profile({**report.tables, "kernel_metrics": conform("kernel_metrics", without)})
    counted, executed = (
        {key: rate for key, rate in points(Timeline(each)) if "tensor" in key[1]} for each in (report, by_name)
    )
    assert executed == {key: pytest.approx(rate, rel=1e-3) for key, rate in counted.items()}
    assert len(counted) == (1 if name.startswith("measure") else 2)


def points(timeline: Timeline) -> list[tuple[tuple[int, str], float]]:
    table = ncu_roofline(timeline).frame
    return [
        ((launch, kind), rate)
        for launch, kind, rate in zip(table["launch"], table["kind"], table["flop_per_s"], strict=True)
    ]


def test_the_roofs_of_a_real_report_are_those_of_an_h200(measure: Profile) -> None:
    timeline = Timeline(measure)
    assert ncu_roofs(timeline).notes == ()
    assert roofs(timeline, "bytes_per_s")["DRAM"] == pytest.approx(4.8e12, rel=0.01)
    rates = roofs(timeline)
    # published: 67 TFLOP/s of FP32 and 34 of FP64, 990 of BF16 and 67 of FP64 by tensor cores, at 1.83 GHz or more
    assert rates["FP32"] == pytest.approx(67e12, rel=0.1)
    assert rates["FP64"] == pytest.approx(34e12, rel=0.1)
    assert rates["tensor BF16"] == pytest.approx(990e12, rel=0.1)
    assert rates["tensor FP64"] == pytest.approx(67e12, rel=0.1)
    assert rates["tensor FP8"] == 2 * rates["tensor BF16"] == 4 * rates["tensor TF32"]


def test_no_point_of_a_real_report_is_above_a_roof(measure: Profile) -> None:
    timeline = Timeline(measure)
    table, compute, memory = ncu_roofline(timeline).frame, roofs(timeline), roofs(timeline, "bytes_per_s")
    assert (table["flop_per_s"] <= table["kind"].map(compute)).all()
    assert (table["flop_per_s"] <= table["flop_per_byte"] * memory["DRAM"]).all()
    assert (table["flop_per_s"] <= table["l2_flop_per_byte"] * memory["L2"]).all()


def test_points_and_roofs_of_l2_count_the_same_bytes() -> None:
    pairs = zip(METRICS["l2_bytes_per_s"], METRICS["l2_bytes_per_cycle"], strict=True)
    assert all(point.partition(".")[0] == roof.partition(".")[0] for point, roof in pairs)
