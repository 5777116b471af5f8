"""Short names of kernels: what a kernel does, and never one label for two of a page."""

import lzma
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.events.kernel_labels import NAME_LENGTH, OTHER, KernelLabels, family_of, label_of
from nightsight.events.kernel_names import base_name, normalized
from nightsight.texts import NO_NAME, printable
from tests.recorded import DATA
from tests.reports import HOSTILE

NATIVE = "void at::native::"
VECTORIZED = "void at::native::vectorized_elementwise_kernel<(int)4, {}, std::array<char *, (unsigned long)2>>(int, T2)"
XMMA = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize{}_stage3_warpsize1x2x1_ffma_aligna4_alignc4"
    "_execute_kernel__5x_cublas"
)
TILES = "cute::tuple<cute::C<2>, cute::C<1>, cute::C<1>>, cute::tuple<cute::C<128>, cute::C<256>, cute::C<64>>"


@pytest.mark.parametrize(
    ("name", "label", "family"),
    [
        (XMMA.format("32x32x8"), "gemm f32 tn 32x32x8", "matrix products"),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_execute_split_k_kernel",
            "gemm f32 nn 64x64x8 split-k",
            "matrix products",
        ),
        (
            "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_kernel__5x_cublas",
            "gemm tf32 tn 128x128x32",
            "matrix products",
        ),
        (
            "sm80_xmma_gemm_i8i32_i8i32_i32_tn_n_tilesize128x64x64_stage4_tensor16x8x32_execute_kernel_trt",
            "gemm int8 tn 128x64x64",
            "matrix products",
        ),
        (
            "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_bias_TNT",
            "gemm bf16 tnt 64x8x64 split-k bias",
            "matrix products",
        ),
        ("nvjet_sm90_hsh_64x48_64x15_2x4_h_bz_NNT", "gemm f16 nnt 64x48x64", "matrix products"),
        ("ampere_sgemm_128x64_nn", "gemm f32 nn 128x64", "matrix products"),
        ("ampere_dgemm_64x64_nn", "gemm f64 nn 64x64", "matrix products"),
        ("ampere_cgemm_64x64_nn", "gemm c64 nn 64x64", "matrix products"),
        (
            "ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn",
            "gemm f16 tn 64x64x64",
            "matrix products",
        ),
        ("volta_h884gemm_128x64_ldg8_nn", "gemm f16 nn 128x64", "matrix products"),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(T1::Params)",
            "gemm f32 nt 128x256x8",
            "matrix products",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>(T1::Params)",
            "gemm bf16 nn 256x128x32 relu",
            "matrix products",
        ),
        (
            "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_2x1x1_0_tnn_align8",
            "gemm bf16 tnn 128x128x64",
            "matrix products",
        ),
        (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
            f"cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<7, {TILES}, cutlass::bfloat16_t>>>(T1::Params)",
            "gemm bf16 128x256x64",
            "matrix products",
        ),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN", "gemm f16 nn 128x128x32", "matrix products"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HAS_MT256x256x64_MI16x16x1", "gemm bf16 tn 256x256x64 bias", "matrix products"),
        (
            "void gemmSN_NN_kernel<float, 128, 2, 4, 8, 5, 4, false, cublasGemvTensorStridedBatched<float const>>(T1)",
            "gemm f32 nn",
            "matrix products",
        ),
        (
            "void gemv2T_kernel_val<int, int, float, float, float, float, (int)128>(T13)",
            "gemv f32 t",
            "matrix products",
        ),
        (
            "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float, __nv_bfloat16, float>(T1)",
            "split-k reduce<float>",
            "matrix products",
        ),
        (
            "sm80_xmma_fprop_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x32x32_stage4",
            "conv fprop bf16 128x32x32",
            "convolutions",
        ),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "conv f32 nn 128x64 relu", "convolutions"),
        ("void implicit_convolve_sgemm<float, float, 1024, 5, 5>(int)", "conv f32", "convolutions"),
        (
            "void flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)4, (bool)0, (bool)0, "
            "cutlass::bfloat16_t>, (bool)0, (bool)1>(Flash_fwd_params)",
            "flash fwd bf16 hdim128",
            "attention",
        ),
        (
            "void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 64, 128, 8, "
            "cutlass::half_t>>(Flash_bwd_params)",
            "flash bwd dot do o f16 hdim64",
            "attention",
        ),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(T1)", "attention fwd f32 64x64", "attention"),
        ("fmha_cutlassB_bf16_aligned_128x64_k64_sm80(T1)", "attention bwd bf16 128x64", "attention"),
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
            "flash fwd f16 64x128x64",
            "attention",
        ),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", "nccl all-reduce ring f32", "communication"),
        (
            "ncclKernel_AllReduce_TREE_LL128_Sum_half(ncclDevComm*, unsigned long, ncclWork*)",
            "nccl all-reduce tree ll128 f16",
            "communication",
        ),
        ("ncclDevKernel_ReduceScatter_Max_bf16_RING_LL()", "nccl reduce-scatter ring max bf16", "communication"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "nccl send-recv", "communication"),
        ("void vllm::cross_device_reduce_1stage<half, 8>(T1)", "cross_device_reduce_1stage<half, 8>", "communication"),
        ("triton_poi_fused_gelu_0", "triton_poi_fused_gelu", "elementwise"),
        ("triton_red_fused_native_layer_norm_3", "triton_red_fused_native_layer_norm", "normalization"),
        (
            f"{NATIVE}reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
            "at::native::sum_functor<float, float, float>::operator ()(at::TensorIterator &)>, unsigned int, float>>()",
            "reduce sum<float>",
            "reductions",
        ),
        (VECTORIZED.format("at::native::CUDAFunctor_add<c10::BFloat16>"), "elementwise add<bf16>", "elementwise"),
        (
            VECTORIZED.format(
                "at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase &, at::native::GeluType)::"
                "[lambda() (instance 2)]::operator ()() const::[lambda(float, float) (instance 1)]"
            ),
            "elementwise gelu backward<float>",
            "elementwise",
        ),
        (
            VECTORIZED.format(
                "at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(float) (instance 1)]"
            ),
            "elementwise copy<float to bf16>",
            "elementwise",
        ),
        (
            "void vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char *, 3>>(int, T2, T3)",
            "elementwise add<float>",
            "elementwise",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, "
            "TernaryOpScalarFunctor<float, 2, 2, 0>, at::native::LerpFunctor<float>, float>(T1)",
            "foreach lerp<float>",
            "foreach and optimizers",
        ),
        (
            "void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, "
            "FusedAdamMathFunctor<float, 4, 1, 0>, const float*>(T1)",
            "optimizer fused adam<float>",
            "foreach and optimizers",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, true, false>()",
            "log softmax<float>",
            "softmax",
        ),
        ("void at::native::cunn_SoftMaxBackward<4, c10::Half, float>()", "softmax backward<half>", "softmax"),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>()",
            "layer norm<float>",
            "normalization",
        ),
        ("void vllm::rms_norm_kernel<c10::BFloat16>(T1)", "rms_norm_kernel<BFloat16>", "normalization"),
        ("void cudnn::bn_fw_tr_1C11_singleread<float, 512, true>(T1)", "batch norm<float>", "normalization"),
        (
            f"{NATIVE}index_elementwise_kernel<128, 4, index_kernel_impl<at::native::OpaqueType<4>>>()",
            "index<4 bytes>",
            "indexing and layout",
        ),
        (
            f"{NATIVE}<unnamed>::CatArrayBatchedCopy_vectorized<at::native::OpaqueType<2>, unsigned int, 1>()",
            "cat<2 bytes>",
            "indexing and layout",
        ),
        (
            "void cub::DeviceRadixSortOnesweepKernel<cub::Policy<float>, 0, float, unsigned int>()",
            "radix sort onesweep<float>",
            "sorting and scans",
        ),
        (
            "void cub::CUB_200200_700_NS::DeviceReduceKernel<cub::Policy<float>::P, float*, unsigned int>()",
            "cub reduce<float>",
            "reductions",
        ),
        (
            "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent<"
            "thrust::cuda_cub::__transform::unary_transform_f<thrust::device_ptr<float>>, long>, long>(T1)",
            "thrust transform<float>",
            "elementwise",
        ),
        (
            "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIN3c104HalfENS0_11sum_functorIS4_fS4_EEEEEvT1_",
            "reduce sum<half>",
            "reductions",
        ),
        ("__amd_rocclr_copyBuffer", "__amd_rocclr_copyBuffer", "indexing and layout"),
        ("my_app::update(double*, int)", "update", "other"),
        ("void my_kernel<main::{lambda(int)#1}>(int, main::{lambda(int)#1})", "my_kernel", "other"),
    ],
)
def test_a_label_says_what_a_kernel_does(name: str, label: str, family: str) -> None:
    assert (label_of(name), family_of(name)) == (label, family)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("add(int, float *, float *)", "add"),
        (f"{NATIVE}my_kernel<(int)512, (bool)1>(T3)", "my_kernel<512, 1>"),
        (
            f"{NATIVE}<unnamed>::multi<at::native::<unnamed>::List<(int)2>, std::plus<float>>(T1, T2, T3...)",
            "multi<List<2>, plus<float>>",
        ),
        (
            f"{NATIVE}vectorized<(int)4, at::native::Gelu(at::Base &)::[lambda() (instance 2)]::operator ()() const::"
            "[lambda(float) (instance 1)], std::array<char *, (unsigned long)3>>(int, T2)",
            "vectorized<4, Gelu, array<char*, 3>>",
        ),
        ("(anonymous namespace)::update<float>(float*)", "update<float>"),
        ("[CUDA graph]", "[CUDA graph]"),
        ("operator<<(int", "operator<<(int"),
        ("", NO_NAME),
    ],
)
def test_a_name_that_no_rule_knows_is_its_function_with_template_arguments(name: str, short: str) -> None:
    assert label_of(name) == short


FUNCTION = "internal::own::kernel<int, int, float, (bool)0, (int)7>(Params<int, float>)"


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
    name = f"{qualifier}{returned}{FUNCTION}{behind}"
    assert label_of(name) == "kernel<int, int, float, 0, 7>"
    assert base_name(name) == "kernel"
    assert normalized(name) == normalized(f"void {FUNCTION}")


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
    assert label_of(name) == short


# -- labels that tell the kernels of a page apart ---------------------------------------------------------------------

WORDS = st.sampled_from(["a", "gemm", "tile", "32x32", "128x128", "stage3", "kernel", "nn", "tn", "x" * 30])
NAMES = (
    st.lists(WORDS, min_size=1, max_size=12).map("_".join)
    | st.lists(WORDS, min_size=1, max_size=9).map(lambda words: f"void ns::k<{', '.join(words)}>(int)")
    | st.builds("void {}::same<int>({})".format, WORDS, WORDS)
    | st.text(max_size=60)
)


def test_kernels_that_would_read_the_same_add_the_first_words_that_differ() -> None:
    wide = XMMA.format("32x32x8").replace("warpsize1x2x1", "warpsize2x1x1")
    both = [VECTORIZED.format(f"at::native::{one}UnaryFunctor<float, MulFunctor<float>>") for one in "AB"]
    labels = KernelLabels([XMMA.format("32x32x8"), wide, *both, "a(int)", "a(float)", "k::a(int)"])
    assert labels.short(XMMA.format("32x32x8")) == "gemm f32 tn 32x32x8 warpsize1x2x1"
    assert labels.short(wide) == "gemm f32 tn 32x32x8 warpsize2x1x1"
    assert [labels.short(name) for name in both] == [f"elementwise mul<float> {one}UnaryFunctor" for one in "AB"]
    assert [labels.short(name) for name in ("a(int)", "a(float)", "k::a(int)")] == ["a int", "a float", "a k"]
    assert labels.short("3. a(int)") == "3. a int"


def test_a_label_is_cut_before_what_tells_it_apart() -> None:
    names = [f"{'long_' * 20}{tile}_{'name_' * 20}kernel" for tile in ("32x32", "64x32")]
    labels = KernelLabels(names)
    assert [labels.short(name, 30) for name in names] == ["long_long_…_kernel 32x32", "long_long_…_kernel 64x32"]


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
    labels = KernelLabels([of_nsys, of_ncu])
    assert labels.short(of_nsys, 44) == labels.short(of_ncu, 44) == "reduce sum<float>"
    assert labels.short(f"4. {of_ncu}", 44) == "4. reduce sum<float>"


@given(st.lists(NAMES, min_size=1, max_size=12, unique_by=normalized), st.sampled_from([44, 48, 90]))
def test_kernels_of_a_page_that_differ_have_labels_that_differ(names: list[str], length: int) -> None:
    labels = KernelLabels(names)
    shown = [labels.short(name, length) for name in names]
    assert len(set(shown)) == len(names)
    assert all(1 <= len(text) <= length for text in shown)
    # nothing depends on the order
    again = KernelLabels(random.Random(0).sample(names, len(names)))
    assert [again.short(name, length) for name in names] == shown


REAL = lzma.decompress((DATA / "kernel_names.txt.xz").read_bytes()).decode().splitlines()


@pytest.mark.parametrize("length", [30, 44, NAME_LENGTH])
def test_all_kernels_of_the_recorded_captures_have_labels_of_their_own(length: int) -> None:
    labels = KernelLabels(REAL)
    kernels = {normalized(name): labels.short(name, length) for name in REAL}
    assert len(set(kernels.values())) == len(kernels)
    assert max(map(len, kernels.values())) <= length


def test_most_recorded_kernels_have_a_family_and_a_label_that_fits_a_line() -> None:
    families = Counter(family_of(name) for name in REAL)
    assert families[OTHER] < len(REAL) // 15
    assert sum(len(label_of(name)) <= 44 for name in REAL) > len(REAL) * 0.95


@pytest.mark.parametrize("name", [*HOSTILE, "half of a pair \ud800", "<script>alert(1)</script>", "\x00", "_Z9", "_ZN"])
def test_no_name_does_harm(name: str) -> None:
    labels = KernelLabels([name, f"{name} "])
    for text in (label_of(name), labels.short(name)):
        assert text
        assert text == printable(text)
    assert family_of(name)


def test_inner_template_arguments_go_first_and_the_middle_last() -> None:
    name = f"kernel<Outer<{'Inner<float>, ' * 9}int>, Second>"
    assert label_of(name, 40) == "kernel<Outer, Second>"
    assert label_of("k" * 50 + "end", 11) == "kkkkk…kkend"
    assert label_of("first_second_third_fourth", 20) == "first_…_fourth"


@given(st.text(max_size=300), st.integers(min_value=1, max_value=120))
def test_a_short_name_is_one_printable_line_of_at_most_the_length_asked_for(name: str, length: int) -> None:
    short = label_of(name, length)
    assert 1 <= len(short) <= max(length, 1)
    assert printable(short) in (short, short.strip(), NO_NAME)


@given(st.text(alphabet="<>(){}[]:, voidlambda\n\x00", max_size=200))
def test_unbalanced_brackets_do_no_harm(name: str) -> None:
    assert label_of(name)
