"""What kernels could gain, as far as the timeline tells: on recorded captures, and on kernels made up one by one."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.analyze.causes.kernels import KernelRemedy, kernel_remedies
from nightsight.events.kernel_labels import label_of
from nightsight.events.timeline import Timeline
from nightsight.model.report import Profile
from nightsight.read import read
from nightsight.tables import DETAILS, conform, empty
from tests.kernel_tables import GEMM, PROCESS, SGEMM, one_after_the_other, torch_kernel, whole
from tests.properties import examples
from tests.recorded import Recorded
from tests.timeline import draw

_STEPS = 30


def before_after(timeline: Timeline, remedy: KernelRemedy) -> tuple[float, float]:
    """Return the time of the kernels of a remedy as it was and as it would be, in µs."""
    operations = timeline.operations
    time = (operations.end - operations.start)[remedy.operations]
    return float(time.sum()) / 1000, float(remedy.new_ns.sum()) / 1000


def by_rule(timeline: Timeline, rule: str) -> list[tuple[float, float]]:
    return [before_after(timeline, remedy) for remedy in kernel_remedies(timeline) if remedy.rule == rule]


def chain(*words: str, us: float | Sequence[float] = 100.0) -> list[tuple[str, float]]:
    times = [us] * len(words) if isinstance(us, float) else us
    return list(zip(map(torch_kernel, words), times, strict=True))


# recorded captures, whose true gains were measured


def test_matrix_products_get_as_fast_as_they_were_measured_with_tf32(recorded: Recorded) -> None:
    timeline = whole(recorded.profile("fp32"))
    first, *others = kernel_remedies(timeline)
    before, after = before_after(timeline, first)
    assert first.rule == "tensor_cores"
    assert first.place.startswith("matrix products (gemm f32 tn 256x64x8, gemm f32 nt 128x256x8")
    assert [label_of(name) for name in first.kernels][:2] == ["gemm f32 tn 256x64x8", "gemm f32 nt 128x256x8"]
    assert len(first.operations) == 5 * _STEPS
    assert not first.removed.any()
    # 14.0 ms a step in FP32 and 2.69 ms with TF32; the other kernels take 0.5 ms of either
    step = timeline.window.length_ns / 1000 / _STEPS
    assert step == pytest.approx(13_970, rel=0.01)
    assert step - (before - after) / _STEPS == pytest.approx(2_690, rel=0.05)
    assert {other.rule for other in others} <= {"fusion"}


def test_a_chain_becomes_as_fast_as_its_fused_form_was_measured(recorded: Recorded) -> None:
    timeline = whole(recorded.profile("unfused"))
    (remedy,) = kernel_remedies(timeline)
    before, after = before_after(timeline, remedy)
    assert (remedy.rule, remedy.place) == ("fusion", "mul, add, tanh")
    assert before / _STEPS == pytest.approx(1_380, rel=0.01)
    assert after / _STEPS == pytest.approx(132, rel=0.06)
    assert remedy.removed.sum() == 8 * _STEPS


def test_what_a_compiler_would_gain_of_a_healthy_training_step_is_not_more_than_it_did(recorded: Recorded) -> None:
    timeline = whole(recorded.profile("healthy"))
    remedies = kernel_remedies(timeline)
    (fusion,) = remedies
    assert (fusion.rule, fusion.place) == ("fusion", "mul, copy, gelu backward, and 1 other chain")
    # the gradient of the loss, and the loss; torch.compile of the same step took 644 and 294 µs off them
    assert np.subtract(*before_after(timeline, fusion)) / _STEPS == pytest.approx(644 + 294, rel=0.1)


def test_a_normalization_by_hand(recorded: Recorded) -> None:
    timeline = whole(recorded.profile("normalization"))
    (remedy,) = kernel_remedies(timeline)
    ((before, after),) = by_rule(timeline, "fusion")
    assert remedy.place == "add, pow, mean, sqrt, ..."
    # 10 kernels, 3 whole times; the fused one was measured at 124 µs
    assert before / 3 == pytest.approx(1_140, rel=0.01)
    assert after / 3 == pytest.approx(124, rel=0.05)


def test_adam_one_tensor_and_one_operation_at_a_time(recorded: Recorded) -> None:
    timeline = whole(recorded.profile("adam_loop"))
    remedy = next(remedy for remedy in kernel_remedies(timeline) if remedy.rule == "fused_optimizer")
    assert remedy.place == "Adam (lerp, mul, addcmul, sqrt, ...)"
    # 8 tensors in each of 4 steps
    assert len(remedy.operations) == 7 * 8 * 4


def test_training_in_fp32(recorded: Recorded) -> None:
    timeline = whole(recorded.profile("train"))
    ((before, after),) = by_rule(timeline, "tensor_cores")
    # measured with the same sizes on the same GPU: 1,111 µs in FP32, 257 with TF32, for 11 products
    assert after / before == pytest.approx(257 / 1_111, rel=0.15)


@pytest.mark.parametrize("name", ["gelu", "graph", "recursive", "cpu", "everything"])
def test_other_captures_get_no_doubtful_remedies(recorded: Recorded, name: str) -> None:
    timeline = whole(recorded.profile(name))
    assert {remedy.rule for remedy in kernel_remedies(timeline)} <= {"tensor_cores", "small_grid"}


def test_one_thread_of_one_block_is_a_small_grid(recorded: Recorded) -> None:
    timeline = whole(recorded.profile("unified_memory"))
    (remedy,) = kernel_remedies(timeline)
    assert (remedy.rule, remedy.place) == ("small_grid", "add (1 block on 132 SMs)")


def test_columns_of_details_are_not_needed(capture_file: Callable[[str], Path]) -> None:
    for name in ("fp32", "unfused", "healthy"):
        path = capture_file(name)
        with_details, without = (kernel_remedies(Timeline(read(path, details=some))) for some in (True, False))
        assert [(each.rule, each.place) for each in with_details] == [(each.rule, each.place) for each in without]


# tensor cores


@pytest.mark.parametrize(
    ("gpu", "capability", "ratio"),
    [
        ("NVIDIA H200", "9.0", 0.85 * 494.5 / 67),
        ("NVIDIA A100-SXM4-80GB", "8.0", 0.85 * 8),
        ("NVIDIA L4", "8.9", 0.85 * 60.5 / 30.3),
        # no TF32: FP16
        ("Tesla V100-SXM2-16GB", "7.0", 0.85 * 125 / 15.7),
        # a slice, and a model whose peaks are not in the list: by compute capability
        ("NVIDIA H200 MIG 1g.18gb", "9.0", 0.85 * 8),
        ("NVIDIA B200", "10.0", 0.85 * 16),
    ],
)
def test_products_gain_what_the_peaks_of_the_gpu_differ_by(gpu: str, capability: str, ratio: float) -> None:
    timeline = one_after_the_other([(SGEMM, 1006.0)] * 4, gpu=gpu, capability=capability)
    ((before, after),) = by_rule(timeline, "tensor_cores")
    assert before == pytest.approx(4 * 1006)
    assert after == pytest.approx(4 * (6 + 1000 / ratio), rel=0.001)


@pytest.mark.parametrize(
    ("gpu", "capability"), [("NVIDIA GeForce RTX 4090", "8.9"), ("", ""), ("AMD Instinct MI300X", "")]
)
def test_nothing_is_promised_for_gpus_whose_rates_are_not_known(gpu: str, capability: str) -> None:
    assert not kernel_remedies(one_after_the_other([(SGEMM, 1000.0)] * 4, gpu=gpu, capability=capability))


def test_products_and_convolutions_have_switches_of_their_own() -> None:
    timeline = one_after_the_other([(SGEMM, 1000.0), ("volta_scudnn_128x64_relu_interior_nn_v1", 500.0)] * 3)
    places = [remedy.place for remedy in kernel_remedies(timeline)]
    assert places == [f"matrix products ({label_of(SGEMM)})", "convolutions (conv f32 nn 128x64 relu)"]


def test_tiny_products_gain_nothing() -> None:
    assert not kernel_remedies(one_after_the_other([(SGEMM, 5.0)] * 10))


def test_a_share_too_small_to_matter_is_left_out() -> None:
    assert not kernel_remedies(one_after_the_other([(SGEMM, 20.0), (GEMM, 5000.0)] * 4))


# chains, with what PyTorch 2.11 on an H200 took for each kernel, and for all of them compiled into one


@pytest.mark.parametrize(
    ("words", "us", "fused"),
    [
        ("scale scale mul mul add scale tanh add mul", (126, 127, 187, 185, 186, 125, 127, 129, 187), 126),
        ("scale scale mul mul add scale tanh add mul", (9.1, 7.4, 10, 10, 10.1, 6.4, 6.2, 6.7, 10.5), 6.3),
        ("add exp sum div", (201, 125, 73.4, 210), 165),
        ("add pow mean add add sqrt div mul add", (201, 126, 72, 201, 1.4, 1.2, 213, 125, 127), 124),
        ("copy copy pow mean add rsqrt mul copy mul", (192, 192, 127, 75, 1.2, 1.0, 201, 93, 165), 75),
        ("sigmoid mul mul", (109, 119, 117), 93),
        ("gelu copy pow", (95, 203, 127), 130),
        ("mul D2D mul mul copy gelu_backward", (159, 128, 127, 187, 94, 129), 180),
        ("mul D2D mul mul gelu_backward", (41, 33, 32, 50, 47.5), 36),
        # CuPy: options priced in FP64; powers compute for longer than they read and write
        ("mul pow mul add tanh pow mul add exp", (96, 185, 112, 113, 114, 185, 112, 113, 97), 430),
    ],
)
def test_chains_take_about_what_their_fused_forms_take(words: str, us: Sequence[float], fused: float) -> None:
    named = [
        word.replace("_", " ") if word == "D2D" else torch_kernel(word.replace("_", " ")) for word in words.split()
    ]
    step = [*zip(named, us, strict=True), (GEMM, 1000.0)]
    timeline = one_after_the_other(step * 5)
    ((before, after),) = by_rule(timeline, "fusion")
    assert before == pytest.approx(5 * sum(us))
    # of what fusing saves, the prediction and the measurement differ by no more than a tenth
    assert before - after == pytest.approx(5 * (sum(us) - fused), rel=0.1)


def test_a_chain_ends_where_anything_else_runs_between() -> None:
    for between in (GEMM, "memset", torch_kernel("fill")):
        step = [*chain("mul", "add"), (between, 3.0), *chain("tanh", "exp"), (between, 3.0)]
        assert not by_rule(one_after_the_other(step * 4), "fusion"), between
    assert by_rule(one_after_the_other([*chain("mul", "add", "tanh", "exp"), (GEMM, 3.0)] * 4), "fusion")


def test_a_chain_ends_where_another_thread_launches() -> None:
    step = [*chain("mul", "add", "tanh", "exp"), (GEMM, 3.0)]
    assert not by_rule(one_after_the_other(step * 4, threads=[7, 7, 8, 8, 7] * 4), "fusion")


def test_a_chain_ends_where_another_stream_goes_on() -> None:
    step = [*chain("mul", "add", "tanh", "exp"), (GEMM, 3.0)]
    assert not by_rule(one_after_the_other(step * 4, stream=[7, 8, 7, 9, 7] * 4), "fusion")


def test_a_chain_ends_with_the_step() -> None:
    timeline = one_after_the_other(chain("mul", "add", "tanh", "exp", "sin") * 4)
    # the CPU runs ahead: it has launched all before the first kernel ends
    starts = timeline.profile.table("api_calls")["start_ns"].to_numpy()
    assert [remedy.removed.sum() for remedy in kernel_remedies(timeline)] == [16]
    in_three = np.sort(np.concatenate((starts[::5], starts[2::5])))
    (remedy,) = kernel_remedies(timeline, in_three)
    assert remedy.place == "tanh, exp, sin"


def test_chains_that_do_not_repeat_are_none() -> None:
    chained = [*chain("mul", "add", "tanh", "exp"), (GEMM, 3.0)]
    assert not by_rule(one_after_the_other(chained), "fusion")
    # three times, but only at the beginning
    assert not by_rule(one_after_the_other([*chained * 3, (GEMM, 5000.0)]), "fusion")


def test_reductions_belong_to_a_chain_only_between_elementwise_kernels() -> None:
    step = [*chain("mean", "add", "exp", "sum", "div", "sum"), (GEMM, 3.0)]
    ((before, after),) = by_rule(one_after_the_other(step * 4), "fusion")
    assert (before, after) == (4 * 400, 4 * 100)


def test_kernels_of_one_name_work_on_one_tensor_after_the_other() -> None:
    assert not by_rule(one_after_the_other([*chain(*["add"] * 20), (GEMM, 3.0)] * 4), "fusion")


def test_a_sequence_that_follows_itself_is_fused_once_per_turn() -> None:
    timeline = one_after_the_other(chain("sin", "add") * 50)
    (remedy,) = kernel_remedies(timeline)
    assert (len(remedy.operations), remedy.removed.sum()) == (100, 50)


def test_a_loop_over_tensors_keeps_what_each_update_reads_and_writes() -> None:
    updates = [kernel for us in (80.0, 5.0) * 6 for kernel in chain("mul", "add", "div", us=us)]
    timeline = one_after_the_other([*updates, (GEMM, 100.0)] * 4)
    (remedy,) = kernel_remedies(timeline)
    assert remedy.place == "mul, add, div on one tensor after the other"
    before, after = before_after(timeline, remedy)
    # what 36 kernels take in each step to begin and end, one takes
    assert after == pytest.approx(0.62 * (before - 4 * 36 * 1.5) + 4 * 1.5, rel=0.001)
    assert remedy.removed.sum() == 4 * 35


def test_many_turns_in_a_step_are_a_loop_over_tensors_of_one_size() -> None:
    timeline = one_after_the_other([*chain("mul", "add", "div") * 12, (GEMM, 100.0)] * 4)
    (remedy,) = kernel_remedies(timeline)
    assert before_after(timeline, remedy) == (4 * 3600, 4 * 1200)
    (in_steps,) = kernel_remedies(timeline, timeline.profile.table("api_calls")["start_ns"].to_numpy()[::37])
    assert before_after(timeline, in_steps)[1] == pytest.approx(4 * (0.62 * (3600 - 36 * 1.5) + 1.5), rel=0.001)


def test_two_kernels_alone_are_no_chain() -> None:
    assert not by_rule(one_after_the_other([*chain("mul", "add"), (GEMM, 3.0)] * 4), "fusion")


def test_a_compiler_has_fused_what_it_could() -> None:
    assert not by_rule(
        one_after_the_other([("triton_poi_fused_add_0", 90.0), ("triton_poi_fused_mul_1", 90.0)] * 20), "fusion"
    )


def test_tiny_kernels_wait_for_their_launches_and_not_for_memory() -> None:
    assert not kernel_remedies(one_after_the_other([*chain("mul", "add", "tanh", "exp", us=1.0), (GEMM, 30.0)] * 4))


# attention


FLASH_2 = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)8>>(Params)"
FLASH_2_BACK = FLASH_2.replace("flash_fwd_kernel", "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel")


def attending(name: str = FLASH_2, us: float = 200.0, blocks: int = 512, capability: str = "9.0") -> Timeline:
    return one_after_the_other([(name, us), (GEMM, 200.0)] * 4, grid_x=[blocks, 1000] * 4, capability=capability)


@pytest.mark.parametrize("name", [FLASH_2, FLASH_2.replace("pytorch_flash::", "flash::"), FLASH_2_BACK])
def test_flash_attention_2_takes_half_of_its_time_in_kernels_for_hopper(name: str) -> None:
    (remedy,) = kernel_remedies(attending(name))
    assert remedy.rule == "flash_attention_2"
    assert remedy.place.startswith("flash ")
    assert before_after(attending(name), remedy) == pytest.approx((4 * 200, 4 * 110))
    # a short one hardly gets shorter
    assert by_rule(attending(name, us=24.0), "flash_attention_2") == [(4 * 24, 4 * 20)]


@pytest.mark.parametrize(
    ("traits", "after"), [("(int)64, (int)128", 124), ("64, 128", 124), ("(int)192, (int)64", 144), ("T", 144)]
)
def test_smaller_heads_gain_less_from_kernels_for_hopper(traits: str, after: float) -> None:
    name = FLASH_2.replace("(int)128, (int)128, (int)64, (int)8", traits)
    assert by_rule(attending(name), "flash_attention_2") == [(4 * 200, 4 * after)]


@pytest.mark.parametrize(
    "timeline",
    [
        attending(capability="8.0"),
        attending(capability=""),
        # a block of queries over a cache, and decoding
        attending(blocks=1),
        attending(FLASH_2.replace("flash_fwd_kernel", "flash_fwd_splitkv_kernel")),
        attending(us=15.0),
        attending("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1"),
        attending("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<T>>>(Params)"),
        attending("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)"),
    ],
)
def test_attention_that_other_kernels_do_not_make_faster_is_left_alone(timeline: Timeline) -> None:
    assert by_rule(timeline, "flash_attention_2") == []


def test_without_grids_attention_may_be_decoding() -> None:
    profile = attending().profile
    kernels = profile.table("kernels").drop(columns=["grid_x", "grid_y", "grid_z"])
    assert by_rule(whole(Profile({**profile.tables, "kernels": kernels})), "flash_attention_2") == []


# small grids


def test_a_kernel_that_leaves_most_of_the_gpu_idle() -> None:
    timeline = one_after_the_other([("scan(int *)", 660.0), (GEMM, 1000.0)] * 3, grid_x=[10, 1000] * 3)
    (remedy,) = kernel_remedies(timeline)
    assert (remedy.rule, remedy.place) == ("small_grid", "scan (10 blocks on 132 SMs)")
    assert before_after(timeline, remedy) == (3 * 660, 3 * 50)


def test_grids_that_are_small_for_a_reason_are_left_alone() -> None:
    ((name, *_),) = [("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)",)]
    for kernel, time, blocks in ((name, 600.0, 10), ("k", 600.0, 70), ("k", 15.0, 10), ("RNN_persist_fp", 600.0, 10)):
        assert not kernel_remedies(one_after_the_other([(kernel, time), (GEMM, 20.0)] * 3, grid_x=[blocks, 1000] * 3))


def test_a_small_grid_beside_another_kernel_fills_what_that_one_leaves() -> None:
    timeline = one_after_the_other([("k", 600.0)] * 4, grid_x=10)
    assert [remedy.rule for remedy in kernel_remedies(timeline)] == ["small_grid"]
    overlapping = timeline.profile.table("kernels").assign(stream=[7, 8, 7, 8])
    overlapping["start_ns"] = [0, 0, 700_000, 900_000]
    overlapping["end_ns"] = [600_000, 500_000, 1_000_000, 1_400_000]
    profile = timeline.profile.__class__({**timeline.profile.tables, "kernels": overlapping})
    assert not kernel_remedies(Timeline(profile))


def test_without_grids_nothing_is_reported_about_them() -> None:
    profile = one_after_the_other([("k", 600.0)] * 4, grid_x=10).profile
    few = profile.table("kernels").drop(columns=list(DETAILS["kernels"]))
    assert not kernel_remedies(Timeline(profile.__class__({**profile.tables, "kernels": few})))


# types, layouts, concatenations, and optimizers that go from tensor to tensor

DOUBLE = torch_kernel("mul").replace("float", "double")
TO_NHWC = "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, (bool)0, (bool)1>(T1)"
CAT = "void at::native::<unnamed>::CatArrayBatchedCopy<at::native::<unnamed>::OpaqueType<(unsigned int)2>, int>(T1 *)"


def foreach(functor: str) -> str:
    metadata = "at::native::<unnamed>::TensorListMetadata<(int)3>"
    return (
        f"void at::native::<unnamed>::multi_tensor_apply_kernel<{metadata}, "
        f"at::native::<unnamed>::{functor}<float, (int)3>, std::plus<float>>(T1, T2)"
    )


def test_kernels_in_fp64_take_half_of_what_they_take_beyond_some_microseconds() -> None:
    timeline = one_after_the_other([(DOUBLE, 103.0), (GEMM, 50.0), *chain("add")] * 4)
    assert by_rule(timeline, "fp64") == [(4 * 103.0, 4 * 53.0)]
    assert not by_rule(one_after_the_other(chain("mul") * 4), "fp64")


@pytest.mark.parametrize(("name", "rule"), [(TO_NHWC, "layout"), (CAT, "concatenation")])
def test_what_only_moves_tensors_is_gone(name: str, rule: str) -> None:
    timeline = one_after_the_other([(name, 80.0), (GEMM, 50.0)] * 4)
    (remedy,) = (one for one in kernel_remedies(timeline) if one.rule == rule)
    assert before_after(timeline, remedy) == (4 * 80.0, 0)
    assert remedy.removed.all()


def test_different_foreach_kernels_in_a_row_are_an_optimizer() -> None:
    names = [foreach(name) for name in ("UnaryOpFunctor", "BinaryOpScalarFunctor", "PointwiseOpScalarFunctor")]
    step = [(GEMM, 50.0), *((name, 100.0) for name in names)]
    # three of them as with momentum: 8 tensors are read and written, and 5 in one kernel
    ((before, after),) = by_rule(one_after_the_other(step * 4), "fused_optimizer")
    assert (before, after) == pytest.approx((4 * 300.0, 4 * 186.0))
    # one alone clips gradients, and once is no step
    assert not by_rule(one_after_the_other([(GEMM, 50.0), (names[0], 100.0)] * 4), "fused_optimizer")
    assert not by_rule(one_after_the_other([*step, (GEMM, 900.0)]), "fused_optimizer")


# all of them


def test_timelines_without_kernels_have_no_remedies() -> None:
    assert not kernel_remedies(Timeline(draw("cpu  LLL")))
    assert not kernel_remedies(Timeline(draw("cpu  C\ns7   HH")))


def test_only_kernels_in_the_window_count() -> None:
    drawn = draw("nvtx  ..[measure ]....\ns7    aa..aaaaaa..aa")
    names = drawn.table("kernels").assign(name="ampere_sgemm_128x64_nn").astype({"name": "category"})
    devices = one_after_the_other([(SGEMM, 1.0)]).profile.table("devices")
    longer = names.assign(end_ns=names["start_ns"] + 100_000)
    (remedy,) = kernel_remedies(Timeline(draw("").__class__({**drawn.tables, "kernels": longer, "devices": devices})))
    assert remedy.operations.tolist() == [1]


_KINDS = ["mul", "add", "tanh", "copy", "mean", "gelu backward"]
_KERNELS = [*map(torch_kernel, _KINDS), GEMM, SGEMM, DOUBLE, TO_NHWC, CAT, foreach("UnaryOpFunctor"), "D2D", "memset"]


@examples(100)
@given(
    st.lists(st.tuples(st.sampled_from(_KERNELS), st.integers(0, 300)), min_size=1, max_size=12),
    st.integers(1, 8),
    st.lists(st.integers(1, 132), min_size=1, max_size=3),
)
def test_no_kernel_gets_longer_and_each_is_reported_once(
    step: list[tuple[str, int]], steps: int, grids: list[int]
) -> None:
    repeated = [(name, float(us)) for name, us in step] * steps
    count = sum(name not in ("D2D", "memset") for name, _ in repeated)
    timeline = one_after_the_other(repeated, grid_x=[grids[number % len(grids)] for number in range(count)])
    operations = timeline.operations
    time = operations.end - operations.start
    for remedy in kernel_remedies(timeline):
        assert (remedy.new_ns <= time[remedy.operations]).all()
        assert (remedy.new_ns >= 0).all()
        assert (remedy.new_ns[remedy.removed] == 0).all()
        assert (np.diff(remedy.operations) > 0).all()
        assert len(remedy.operations) == len(remedy.new_ns) == len(remedy.removed)
        assert remedy.place
    rules = [remedy.rule for remedy in kernel_remedies(timeline) for _ in remedy.operations]
    assert rules.count("fusion") <= len(time)


# attention written out

SOFTMAX = "void <unnamed>::softmax_warp_forward<float, float, float, (int)11, (bool)0, (bool)0>(T2 *, const T1 *, int)"
LOG_SOFTMAX = SOFTMAX.replace("(bool)0, (bool)0", "(bool)1, (bool)0")
SCORES = [(GEMM, 150.0), *chain("mul", "masked_fill", us=[250, 700]), (SOFTMAX, 730.0), (GEMM, 150.0)]
STEP = [*SCORES, ("layer_norm", 50.0)]


def test_what_is_between_the_products_of_attention_takes_no_time_in_one_kernel() -> None:
    timeline = one_after_the_other(STEP * 4)
    (remedy,) = kernel_remedies(timeline)
    assert (remedy.rule, remedy.place) == ("attention", "mul, masked_fill, softmax")
    assert before_after(timeline, remedy) == (4 * 1680, 0)
    assert remedy.removed.all()


@pytest.mark.parametrize(
    "step",
    [
        [(GEMM, 150.0), (SOFTMAX, 700.0), ("layer_norm", 50.0)],
        [(GEMM, 150.0), (LOG_SOFTMAX, 700.0), (GEMM, 150.0), ("layer_norm", 50.0)],  # of a loss
        [(GEMM, 150.0), *chain("mul"), (GEMM, 150.0), ("layer_norm", 50.0)],
        [(GEMM, 150.0), ("layer_norm", 50.0), (SOFTMAX, 700.0), (GEMM, 150.0), ("layer_norm", 50.0)],
    ],
)
def test_other_softmaxes_and_products_are_no_attention(step: list[tuple[str, float]]) -> None:
    assert not by_rule(one_after_the_other(step * 4), "attention")


def test_attention_is_on_one_stream_and_from_one_thread() -> None:
    columns = [7, 7, 7, 7, 8, 7] * 4
    assert not by_rule(one_after_the_other(STEP * 4, threads=columns), "attention")
    assert not by_rule(one_after_the_other(STEP * 4, stream=columns), "attention")
    assert by_rule(one_after_the_other(STEP * 4, threads=[7, 7, 7, 7, 7, 8] * 4), "attention")


def test_dropout_and_casts_belong_to_attention() -> None:
    dropout = "void at::native::<unnamed>::fused_dropout_kernel_vec<float, float, unsigned int>(T1)"
    step = [(GEMM, 9.0), *chain("add"), (SOFTMAX, 90.0), *chain("copy"), (dropout, 70.0), (GEMM, 9.0)]
    assert by_rule(one_after_the_other([*step, ("layer_norm", 5.0)] * 4), "attention") == [(4 * 360.0, 0.0)]


def test_a_mask_that_is_made_on_the_way_belongs_to_attention() -> None:
    masks = [*chain("fill", us=2.0), ("void at::native::triu_tril_kernel<bool, int, (bool)1>(T1)", 12.0)]
    step = [
        (GEMM, 9.0),
        *chain("mul"),
        *masks,
        *chain("masked_fill"),
        (SOFTMAX, 90.0),
        (GEMM, 9.0),
        ("layer_norm", 5.0),
    ]
    assert by_rule(one_after_the_other(step * 4), "attention") == [(4 * 304.0, 0.0)]


CUTLASS = "void cutlass::Kernel2<cutlass_75_tensorop_s1688gemm_f16_128x128_nn_align8>(T1::Params)"


@pytest.mark.parametrize(
    "scores",
    [
        # cuBLAS sets some bytes before a product; a layout is copied
        [(GEMM, 150.0), *chain("mul"), (SOFTMAX, 700.0), ("D2D", 50.0), ("memset", 1.0), (GEMM, 150.0)],
        [(CUTLASS, 150.0), *chain("mul"), (SOFTMAX, 700.0), (CUTLASS, 150.0)],
        # of the backward pass
        [(GEMM, 150.0), (SOFTMAX.replace("forward", "backward"), 700.0), *chain("mul"), (GEMM, 150.0)],
    ],
    ids=["memset", "cutlass", "backward"],
)
def test_attention_of_all_libraries_and_passes(scores: list[tuple[str, float]]) -> None:
    timeline = one_after_the_other([*scores, ("layer_norm", 50.0)] * 4)
    ((before, after),) = by_rule(timeline, "attention")
    assert before == pytest.approx(4 * sum(time for _, time in scores[1:-1]))
    assert after == 0


def test_misaligned_products_of_attention_are_part_of_it() -> None:
    narrow = CUTLASS.replace("align8", "align1")
    scores = [(narrow, 100.0), (SOFTMAX, 700.0), (narrow, 100.0), ("layer_norm", 50.0), (narrow, 100.0)]
    timeline = one_after_the_other([*scores, ("layer_norm", 50.0)] * 4)
    assert by_rule(timeline, "attention") == [(4 * 900.0, 4 * 70.0)]
    # a product elsewhere is a cause by itself
    assert by_rule(timeline, "misaligned") == [(4 * 100.0, 4 * 35.0)]


REORDERS = (
    "void at::native::elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(c10::BFloat16) (instance 1)]>(T1)>(int)"
)


def test_copies_within_the_gpu_are_a_cause_if_they_take_a_tenth_of_the_time() -> None:
    timeline = one_after_the_other([(GEMM, 500.0), (REORDERS, 300.0), ("D2D", 100.0)] * 4)
    (remedy,) = kernel_remedies(timeline)
    assert (remedy.rule, remedy.place) == ("device_copy", "elementwise copy<bf16>, Device-to-Device")
    assert before_after(timeline, remedy) == (4 * 400, 0)
    few = one_after_the_other([(GEMM, 500.0), (REORDERS, 30.0), ("D2D", 10.0)] * 4)
    assert not by_rule(few, "device_copy")
    # a cast reads and writes other bytes: it is more than a copy
    casts = one_after_the_other([(GEMM, 500.0), (REORDERS.replace("nocast", "withcast"), 300.0)] * 4)
    assert not by_rule(casts, "device_copy")


@pytest.mark.parametrize(
    ("names", "length"), [(("one", "one"), 6), (("one", "two"), 3), (("one", "one / two"), 3), ((), 6)]
)
def test_no_chain_goes_on_in_another_range(names: tuple[str, ...], length: int) -> None:
    """The call of a kernel is as many ns after the first as there are kernels before it."""
    plain = one_after_the_other([*chain("mul", "add", "tanh", "sigmoid", "exp", "log"), (GEMM, 5.0)] * 4)
    thread = {"process": PROCESS, "thread": 7, "pid": 5, "tid": 7, "domain": "", "is_open": False}
    rows = [
        {**thread, "start_ns": 7 * step + 3 * half, "end_ns": 7 * step + 3 * half + 3, "name": name, "style": "PushPop"}
        for step in range(4)
        for half, name in enumerate(names)
    ]
    tables = {**plain.profile.tables, "ranges": conform("ranges", pd.DataFrame(rows)) if rows else empty("ranges")}
    (remedy,) = (remedy for remedy in kernel_remedies(whole(Profile(tables))) if remedy.rule == "fusion")
    assert len(remedy.operations) == 4 * 6
    assert (~remedy.removed).sum() == 4 * 6 // length


# the forward pass once more in the backward pass

FORWARD = [(GEMM, 40.0), *chain("mul", "add", "tanh", "exp", "neg", us=10.0), (GEMM.replace("NTN", "TNN"), 60.0)]
BACKWARD = [
    *chain("gelu backward", us=30.0),
    ("nvjet_sm90_tst_128x192_NNT", 70.0),
    *chain("fill", us=5.0),
    ("nvjet_sm90_tst_128x192_NTT", 70.0),
]


Kernels = list[tuple[str, float]]


def training(
    *, forward: int, again: int, backward: int = 8, kernels: Kernels = FORWARD, last: Kernels = BACKWARD
) -> Timeline:
    """Return eight steps of two blocks, launched by these threads: forward, once more, and backward."""
    block = [*[(kernel, again) for kernel in kernels], *[(kernel, backward) for kernel in last]]
    step = [*[(kernel, forward) for kernel in kernels * 2], *(block * 2)]
    return one_after_the_other([kernel for kernel, _ in step] * 8, threads=[thread for _, thread in step] * 8)


def test_what_the_backward_pass_computes_again_need_not_be_computed() -> None:
    timeline = training(forward=7, again=8)
    (remedy,) = (remedy for remedy in kernel_remedies(timeline) if remedy.rule == "recomputation")
    # two blocks in each of eight steps
    assert before_after(timeline, remedy) == (8 * 2 * 150.0, 0.0)
    assert remedy.removed.all()
    assert len(remedy.operations) == 8 * 2 * len(FORWARD)


def test_what_runs_again_between_products_counts_and_equal_kernels_without_a_product_do_not() -> None:
    pointwise = chain(*("mul", "add", "tanh", "exp", "neg", "log", "pow", "abs", "sin"), us=10.0)
    timeline = training(forward=7, again=8, kernels=[*FORWARD, *pointwise], last=[*BACKWARD, *pointwise, *BACKWARD])
    (remedy,) = (remedy for remedy in kernel_remedies(timeline) if remedy.rule == "recomputation")
    assert len(remedy.operations) == 8 * 2 * (len(FORWARD) + len(pointwise))


@pytest.mark.parametrize(
    "timeline",
    [
        # the optimizer, or another model, on the thread of the forward pass
        training(forward=7, again=7),
        # another thread that has no backward pass
        training(forward=7, again=9),
        # one thread for both, as of other frameworks: which is which is not known
        training(forward=8, again=8),
    ],
    ids=["same thread", "no backward pass", "one thread"],
)
def test_equal_kernels_elsewhere_are_not_computed_again(timeline: Timeline) -> None:
    assert not by_rule(timeline, "recomputation")


def test_kernels_of_other_grids_are_others() -> None:
    timeline = training(forward=7, again=8)
    kernels = timeline.profile.table("kernels")
    threads = timeline.profile.table("api_calls")["thread"].to_numpy()
    other = kernels.assign(grid_x=np.where(threads == 8, 500, 1000))
    tables = {**timeline.profile.tables, "kernels": other}
    assert not by_rule(whole(Profile(tables)), "recomputation")


# matrices that tensor cores do not like


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x64_32x4_nn_align1>(T1)", 0.35),
        ("cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align2", 0.6),
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x4_nn_align8", None),
        # in FP64 and on CUDA cores, one element at a time is usual
        ("void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>(T1::Params)", None),
        ("cutlass_80_simt_sgemm_128x128_8x4_nn_align1", None),
    ],
)
def test_misaligned_products(name: str, share: float | None) -> None:
    times = by_rule(one_after_the_other([(name, 400.0), (GEMM, 100.0)] * 5), "misaligned")
    assert [before for before, _ in times] == ([] if share is None else [2000.0])
    assert [after for _, after in times] == pytest.approx([] if share is None else [2000 * share])
