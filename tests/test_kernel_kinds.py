"""What names of kernels tell: names are of libraries, as profilers and documentation print them."""

import lzma

import pytest

from nightsight.events.kernel_kinds import arithmetic, converts, element_type, family, kind_of, listed, operation
from tests.ncu import DATA

_VECTORIZED = (
    "void at::native::vectorized_elementwise_kernel<(int)4, {}, std::array<char *, (unsigned long)2>>(int, T2)"
)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(T1::Params)", "cutlass sgemm 128x256"),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize256x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_"
            "execute_kernel__5x_cublas",
            "cuBLAS sgemm 256x64",
        ),
        ("ampere_sgemm_128x64_nn", "cuBLAS sgemm 128x64"),
        ("volta_sgemm_64x32_sliced1x4_tn", "cuBLAS sgemm 64x32"),
        ("void sgemm_largek_lds64<(bool)1, (bool)0, (int)5, (int)5>(float *, const float *)", "cuBLAS sgemm"),
        ("sgemm_32x32x32_NT_vec", "cuBLAS sgemm 32x32"),
        ("void magma_sgemmEx_kernel<float, float, float, (bool)0, (bool)0>(int, int)", "MAGMA sgemm"),
    ],
)
def test_products_on_cuda_cores(name: str, label: str) -> None:
    assert (kind_of(name), family(name)) == ("product", label)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (
            "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_stage3_warpsize1x2x1_g1_ffma",
            "cuDNN convolution 32x32",
        ),
        (
            "sm80_xmma_wgrad_implicit_gemm_indexed_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize64x64x8",
            "cuDNN convolution 64x64",
        ),
        ("void implicit_convolve_sgemm<float, float, (int)128, (int)5, (int)5>(int, int)", "cuDNN convolution"),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "cuDNN convolution 128x64"),
        ("ampere_scudnn_128x32_relu_small_nn_v1", "cuDNN convolution 128x32"),
        (
            "void cutlass__5x_cudnn::Kernel<cutlass_simt_sfprop_optimized_128x128_8x2_nchw_align1>(T1::Params)",
            "cuDNN convolution",
        ),
    ],
)
def test_convolutions_on_cuda_cores(name: str, label: str) -> None:
    assert kind_of(name) == "convolution"
    assert family(name).startswith(label)


@pytest.mark.parametrize(
    "name",
    [
        # tensor cores
        "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x256x32_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x64_32x3_nn_align4>(T1::Params)",
        "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_tn",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_nn",
        "volta_h884gemm_128x64_ldg8_nn",
        "turing_s1688gemm_fp16_128x128_ldg8_nn",
        "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
        "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NTT",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x16",
        "sm80_xmma_fprop_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x32x32_stage4",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)",
        # other types
        "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize32x64x32_stage3_warpsize2x2x1_tensor16x8x16_execute_kernel",
        "ampere_dgemm_64x64_nn",
        "ampere_hgemm_64x64_nn",
        "volta_fp16_scudnn_fp16_128x64_relu_interior_nn_v1",
        "void implicit_convolve_sgemm<__half, __half, (int)128, (int)5>(int, int)",
        "ampere_cgemm_64x64_nn",
        # no products: a vector, sums of partial products, layouts
        "void gemv2T_kernel_val<int, int, float, float, float, float, (int)128, (int)16>(T13, T6, T6)",
        "void gemmSN_NN_kernel<float, (int)256, (int)4, (int)2, (int)8>(cublasGemmSmallNParams<T9, T10, T11, T1>)",
        "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float, float>(cublasLt::cublasSplitKParams<T6>)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_"
        "execute_split_k_kernel__5x_cublas",
        "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, (bool)0, (bool)1>(T3)",
    ],
)
def test_what_is_no_product_on_cuda_cores(name: str) -> None:
    assert kind_of(name) == "other"


@pytest.mark.parametrize(
    ("name", "word"),
    [
        (_VECTORIZED.format("at::native::CUDAFunctorOnSelf_add<float>"), "add"),
        (_VECTORIZED.format("at::native::CUDAFunctor_add<float>"), "add"),
        (
            _VECTORIZED.format(
                "at::native::AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>"
            ),
            "mul",
        ),
        (
            _VECTORIZED.format(
                "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::DivFunctor<float>>"
            ),
            "div",
        ),
        (_VECTORIZED.format("at::native::tanh_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 2)]"), "tanh"),
        (_VECTORIZED.format("at::native::GeluCUDAKernelImpl(at::TensorIteratorBase &, at::native::GeluType)"), "gelu"),
        (
            _VECTORIZED.format(
                "at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase &, at::native::GeluType)"
            ),
            "gelu backward",
        ),
        (
            _VECTORIZED.format(
                "void at::native::<unnamed>::pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase &, T2)"
            ),
            "pow",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::lerp_scalar_kernel"
            "(at::TensorIteratorBase&, c10::Scalar const&)::{lambda()#2}, std::array<char*, 3ul> >(int)",
            "lerp",
        ),
        (
            _VECTORIZED.format("at::native::addcmul_cuda_kernel(at::TensorIteratorBase &, c10::Scalar const &)"),
            "addcmul",
        ),
        (
            "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)"
            "::[lambda() (instance 3)], std::array<char *, 2>>(int, T1)",
            "copy",
        ),
        (
            "void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<"
            "at::native::BUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>>"
            "(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)",
            "mul",
        ),
        ("add_kernel", "add"),
        ("add(int, float *, float *)", "add"),
        ("my_gelu_kernel", "my_gelu"),
        ("vector_add(const float *, const float *, float *, int)", "vector_add"),
        ("cupy_multiply__float32_float32_float32", "multiply"),
    ],
)
def test_elementwise_kernels(name: str, word: str) -> None:
    assert (kind_of(name), operation(name)) == ("elementwise", word)
    assert converts(name) is (word == "copy")


@pytest.mark.parametrize(
    "name",
    [
        # it only sets
        _VECTORIZED.format("at::native::FillFunctor<float>"),
        # what it reads depends on indices, or on random numbers
        "void at::native::index_elementwise_kernel<(int)128, (int)4, void at::native::gpu_index_kernel<>>(int, T3)",
        "void at::native::_scatter_gather_elementwise_kernel<(int)128, (int)8, void at::native::x>(int, T3)",
        "void at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<float, (int)4>(int)",
        "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, T2)",
        "void <unnamed>::softmax_warp_forward<float, float, float, (int)10, (bool)0, (bool)0>(T2 *, const T1 *)",
        "cupy_sum__float32",
        "triton_red_fused_add_mean_0",
        "triton_per_fused_sum_2",
        "softmax_kernel",
        "add_rmsnorm_kernel",
        "bias_gemm_kernel",
        "scaled_dot_product",
        "expand_tokens",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "addition_chain_search",
    ],
)
def test_what_is_not_elementwise(name: str) -> None:
    assert kind_of(name) == "other"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (
            "void cudnn::detail::dgrad_engine<float, (int)512, (int)6, (int)5, (int)3, (int)3, (bool)0>(int)",
            "convolution",
        ),
        ("void wgrad_alg0_engine<float, (int)128, (int)5, (int)5, (int)3, (int)3, (int)512>(int)", "convolution"),
        ("void wgrad_alg0_engine<__half, (int)128, (int)5, (int)5, (int)3, (int)3, (int)512>(int)", "other"),
        ("void convolveNd_dgrad_float_engine<float, (int)3, (int)512, (int)6, (int)5, (int)3>(int)", "convolution"),
        ("void implicit_convolveNd_sgemm<float, (int)3, (int)1024, (int)5, (int)5, (int)3>(int)", "convolution"),
        ("void fft2d_r2c_32x32<float, (bool)0, (unsigned int)0, (bool)0>(float2 *, const float *)", "convolution"),
        ("void cudnn::winograd_nonfused::winogradWgradData4x4<float, float>(T1)", "convolution"),
        ("sm80_xmma_gemm_cf32cf32_f32f32_cf32_nt_n_tilesize32x64x8_stage3_warpsize2x2x1_ffma_kernel", "product"),
        # cuFFT
        ("void vector_fft<(unsigned int)1024, EPT<(unsigned int)8>>(T1)", "other"),
        # each channel alone: tensor cores have nothing to multiply
        ("void wgrad2d_grouped_direct_kernel<float, float, float, (int)3>(T1)", "other"),
    ],
)
def test_gradients_of_convolutions_by_cudnns_own_engines(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_other_kinds() -> None:
    assert kind_of("triton_poi_fused_add_mul_tanh_0") == "compiled"
    mean = (
        "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(T3)"
    )
    assert (kind_of(mean), operation(mean)) == ("reduction", "mean")
    assert kind_of("void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::T>(T1)") == "foreach"


def test_kinds_of_one_program_of_seventy_operators() -> None:
    lines = lzma.decompress((DATA / "kernel_names.tsv.xz").read_bytes()).decode().splitlines()[1:]
    names = {line.split("\t")[1] for line in lines}
    kinds = {name: kind_of(name) for name in names}
    assert all("f32f32_f32f32_f32" in name for name, kind in kinds.items() if kind in ("product", "convolution"))
    for name, kind in kinds.items():
        is_torch = "elementwise_kernel<" in name and "index" not in name and "gather" not in name
        sets = "FillFunctor" in name
        assert (kind == "elementwise") == (is_torch and not sets) or name == "add_kernel", name


def test_words_are_listed_once_and_the_first_ones_first() -> None:
    assert listed(["mul", "add", "mul", "tanh"], 3) == "mul, add, tanh"
    assert listed(["mul", "add", "mul", "tanh"], 2) == "mul, add, ..."


@pytest.mark.parametrize(
    ("name", "multiplies", "elements"),
    [
        ("ampere_sgemm_128x64_nn", "FP32", "float"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_warpgroupsize1x1x1", "tensor TF32", "float"),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_nt_align4>(T1::Params)",
            "tensor TF32",
            "float",
        ),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "tensor BF16", "c10::BFloat16"),
        ("nvjet_hsh_128x64_64x8_1x2_h_bz_NTT", "tensor FP16", "c10::Half"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64>(P)", "tensor BF16", "c10::BFloat16"),
        (
            "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64",
            "tensor FP16",
            "c10::Half",
        ),
        ("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", "tensor FP16", "c10::Half"),
        ("sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x64", "tensor FP8", ""),
        ("void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, (int)128>", "FP32", ""),
        ("plugin0", "", ""),
    ],
)
def test_products_tell_what_they_multiply(name: str, multiplies: str, elements: str) -> None:
    assert (arithmetic(name), element_type(name)) == (multiplies, elements)


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        (_VECTORIZED.format("at::native::CUDAFunctor_add<float>"), "float"),
        (
            _VECTORIZED.format("at::native::AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, Mul<float>>"),
            "c10::BFloat16",
        ),
        (_VECTORIZED.format("at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(float)]"), ""),
        (_VECTORIZED.format("at::native::FillFunctor<unsigned char>"), ""),
        (
            "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, std::array<char *, 3>, "
            "(int)4, at::native::memory::LoadWithCast<(int)2>, at::native::memory::StoreWithCast<(int)1>>(int, T1)",
            "",
        ),
        (
            "void at::native::<unnamed>::CatArrayBatchedCopy<at::native::<unnamed>::OpaqueType<(unsigned int)2>>(T1)",
            "2 bytes",
        ),
        (
            "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)2>, "
            "at::native::<unnamed>::BinaryOpListAlphaFunctor<c10::BFloat16, (int)2, (int)2>, std::plus<float>>(T1)",
            "c10::BFloat16",
        ),
        ("void at::native::<unnamed>::vectorized_layer_norm_kernel<c10::BFloat16, float, (bool)0>(int, T2)", ""),
        ("void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, T2)", "float"),
        ("void mine<float>(float *)", ""),
    ],
)
def test_kernels_of_pytorch_tell_their_elements_if_they_have_one_type(name: str, elements: str) -> None:
    assert element_type(name) == elements
