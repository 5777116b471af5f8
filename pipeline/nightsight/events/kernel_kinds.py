"""Derives from a kernel's name what it does: matrix products in FP32, elementwise arithmetic, reductions.

Names are the only source that all profilers have in common. The patterns cover cuBLAS, CUTLASS, cuDNN, MAGMA, PyTorch,
CuPy, Thrust and Eigen; a custom kernel counts as elementwise if its name says nothing else.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal

from nightsight.events.kernel_names import base_name

Kind = Literal["product", "convolution", "elementwise", "compiled", "reduction", "foreach", "other"]
"""`product` and `convolution`: in FP32 on CUDA cores; `compiled`: elementwise, by a compiler that fuses; `foreach`:
elementwise on a list of tensors."""

# in the names of cuBLAS and cuDNN the types of the inputs come first; with tensor cores these are tf32, f16 or bf16.
# Split-K kernels that only sum (execute_split_k_kernel, splitKreduce) do not multiply
_PRODUCT: Final = re.compile(
    r"(?<![a-z\d])simt_sgemm"
    r"|(?:^|[ :_])(?:ampere|volta|turing|maxwell|pascal|magma|cublas|hopper)?_?sgemm(?:Ex)?_"
    r"|xmma_gemm_(?:\w+_)?(?:f32f32_f32f32_f32|cf32cf32_f32f32_cf32)_(?!\w*split_k_kernel)"
)
_CONVOLUTION: Final = re.compile(
    r"implicit_convolve_sgemm(?!<__half)"
    r"|(?:ampere|volta|turing|maxwell|pascal)_scudnn_"
    r"|simt_s(?:fprop|dgrad|wgrad)"
    r"|\b(?:dgrad|wgrad)_(?:\w+_)?engine<float\b"
    r"|\bconvolveNd_\w*_float_engine|implicit_convolveNd_sgemm<float\b"
    # by transforms: cuFFT has other names
    r"|\bfft[12]d_(?:r2c|c2r)_\d+x\d+<float\b|\bcudnn::winograd\w*::\w+<float\b"
    r"|xmma_(?:fprop|dgrad|wgrad)_implicit_gemm_(?:\w+_)?f32f32_f32f32_f32_"
)
# some of these also use CUDA cores, but for data of half the size
_OTHER_TYPES: Final = re.compile(r"(?i)tensorop|tf32|bf16|fp16|f16f16|s\d{3,}gemm|h884|wgmma|tensor\d+x\d+x\d+")
_NAMED_PRODUCT: Final = re.compile(r"(?i)gemm|^nvjet|mat_?mul|conv(?!ert)|(?:^|_)(?:bmm|mm|addmm|sgemv)(?:_|$)")
_CUTLASS: Final = re.compile(r"Kernel2?|device_kernel")
_SOFTMAX: Final = re.compile(r"(?i)soft_?max")
# softmax_warp_forward<input, output, accumulator, size, is_log, is_masked>
_NO_SOFTMAX: Final = re.compile(
    r"(?i)log_?soft_?max|nll|cross_?entropy|attention|sdpa|flash|fmha"
    r"|softmax_warp_(?:for|back)ward<[^<>]*, (?:\(bool\)1, \(bool\)[01]|true, \w+)>"
)
_TORCH: Final = re.compile(
    r"\bat::native::(?:<unnamed>::|\(anonymous namespace\)::|\w+::)*"
    r"(?:vectorized_|unrolled_|legacy_)?(?:templated_)?elementwise_kernel(?:_with_index|_manual_unroll\w*)?(?:<|$)"
)
_LIBRARIES: Final = re.compile(
    r"^cupy_(?!.*(?:sum|prod|mean|amax|amin|max_|min_|arg|all_|any_|scan|copy_strided))\w+?__"
    r"|__transform::(?:unary|binary)_transform_f|transform::transform_kernel"
    r"|EigenMetaKernel<.*TensorCwise(?:Unary|Binary)Op"
)
_WORDS: Final = (
    "add|sub|mul|div|multiply|divide|scale|shift|axpy|saxpy|daxpy|triad|bias|gelu|relu|silu|swish|sigmoid|tanh|exp|log|"
    "sqrt|rsqrt|square|pow|sin|cos|abs|neg|clamp|clip|lerp|cast|convert|elementwise|pointwise|activation|vectoradd|"
    "vecadd|residual"
)
_FILLERS: Final = (
    "vec|vector|vectors|fused|naive|simple|fwd|forward|kernel|inplace|scalar|f32|fp32|float|and|my|cuda|v2"
)
_OWN: Final = re.compile(rf"(?:(?:{_FILLERS})_)*(?:{_WORDS})(?:_(?:{_WORDS}|{_FILLERS}))*")
_COMPILED: Final = re.compile(r"triton_poi_")
_REDUCTION: Final = re.compile(r"\bat::native::reduce_kernel<")
_FOREACH: Final = re.compile(r"\bmulti_tensor_apply_kernel<")
# these only write; a program that fills a tensor does not compute it from the previous kernel
_FILL: Final = re.compile(r"\bFillFunctor<")

# the computation of a PyTorch kernel: the functor, or the function around the lambda
_FUNCTION: Final = re.compile(
    r"CUDAFunctor(?:OnSelf|OnOther)?_(\w+?)<"
    r"|binary_internal::(\w+?)Functor"
    r"|\b(\w+?)_(?:tensor_scalar_|tensor_tensor_|scalar_)?kernel_impl\b"
    r"|\b(\w+?Backward)(?:CUDA)?Kernel"
    r"|\b(\w+?)CUDAKernel"
    r"|(?:compare|Compare)_?(\w*?)(?:_scalar_kernel|Functor)"
    r"|\b(?:launch_)?(\w+?)_(?:scalar_|tensor_)?(?:cuda_)?kernel(?:_cuda)?(?=[(<])"
    r"|\b(\w+?)Functor(?=[<,>])"
)
_WRAPPERS: Final = re.compile(r"(?:opmath_|opmath_symmetric_)?gpu|(?:\w+_)?elementwise|[AB]Unary|Binary")
_REDUCES: Final = re.compile(r"(sum|Mean|Max|Min|Norm|Welford|prod|ArgMax|ArgMin)\w*?(?:_functor|Ops|Functor)")
_SAME: Final = {"direct_copy": "copy", "bfloat16_copy": "copy", "float16_copy": "copy", "welford": "var"}
_TILE: Final = re.compile(r"(?:tilesize|gemm_|scudnn_(?:[a-z]+_)*|fprop_\w*?|dgrad_\w*?|wgrad_\w*?)(\d+x\d+)(?=[x_])")


def kind_of(name: str) -> Kind:
    """Return what a kernel does, from its full name as profilers print it."""
    if not _OTHER_TYPES.search(name):
        if _CONVOLUTION.search(name):
            return "convolution"
        if _PRODUCT.search(name):
            return "product"
    if _FOREACH.search(name):
        return "foreach"
    if _REDUCTION.search(name):
        return "reduction"
    if _COMPILED.match(name):
        return "compiled"
    return "elementwise" if _is_elementwise(name) else "other"


def _is_elementwise(name: str) -> bool:
    if _TORCH.search(name) or _LIBRARIES.search(name):
        return not _FILL.search(name)
    return bool(_OWN.fullmatch(base_name(name).lower()))


def is_named_product(name: str) -> bool:
    """Whether a kernel's name says that it multiplies matrices or convolves, in any type and on any unit."""
    base = base_name(name)
    # CUTLASS has one kernel for everything: its parameter names the operation
    operation_name = name if _CUTLASS.fullmatch(base) and "cutlass" in name else base
    return kind_of(name) in ("product", "convolution") or bool(_NAMED_PRODUCT.search(operation_name))


def is_softmax(name: str) -> bool:
    """Whether a kernel's name says that it computes the softmax of rows or its gradient, without a logarithm."""
    return bool(_SOFTMAX.search(name)) and not _NO_SOFTMAX.search(name)


def operation(name: str) -> str:
    """Return what an elementwise kernel or a reduction computes: "add", "tanh", "gelu backward", "mean"."""
    if _REDUCTION.search(name):
        reduction = _REDUCES.search(name)
        word = reduction[1] if reduction else "reduction"
        return _SAME.get(word.lower(), word.lower())
    if _TORCH.search(name):
        for match in _FUNCTION.finditer(name):
            word = next(group for group in match.groups() if group is not None)
            if word and not _WRAPPERS.fullmatch(word):
                return _plain(word)
        return "elementwise"
    return _plain(re.sub(r"^cupy_(\w+?)__.*", r"\1", re.sub(r"_?kernel$", "", base_name(name))))


def _plain(word: str) -> str:
    spaced = re.sub(r"(?<=[a-z])Backward", " backward", word)
    return _SAME.get(spaced, spaced).lower()


def converts(name: str) -> bool:
    """Whether an elementwise kernel copies, and so may change the type or the layout of its input."""
    return operation(name) == "copy"


def family(name: str) -> str:
    """Return a short name of an FP32 product or convolution: "cutlass sgemm 128x256", "cuDNN convolution 64x64".

    Other kernels keep the name of their function.
    """
    match = _TILE.search(name)
    tile = f" {match[1]}" if match else ""
    if kind_of(name) == "convolution":
        return f"cuDNN convolution{tile}"
    if kind_of(name) != "product":
        return base_name(name)
    library = "cutlass" if "cutlass" in name else "MAGMA" if "magma" in name else "cuBLAS"
    return f"{library} sgemm{tile}"


def listed(words: Iterable[str], most: int) -> str:
    """Join the distinct words, the first ones first: "add, mul, tanh, ..."."""
    distinct = list(dict.fromkeys(words))
    return ", ".join([*distinct[:most], *(["..."] if len(distinct) > most else [])])


# the type that a product multiplies; nvjet names have one letter each for inputs, accumulator and outputs
_ARITHMETIC: Final = (
    ("FP32", re.compile(r"(?i)gemv|dot_kernel")),
    ("tensor TF32", re.compile(r"(?i)tf32|tensorop_s1688(?:gemm|fprop|dgrad|wgrad)")),
    ("tensor FP8", re.compile(r"(?i)e4m3|e5m2|nvjet_(?:sm\d+_)?qq")),
    ("tensor BF16", re.compile(r"(?i)bf16|bfloat16|nvjet_(?:sm\d+_)?tst_")),
    ("tensor FP16", re.compile(r"(?i)fp16|f16_s\d+|f16f16|half_t|[hs]884gemm|h1688|h16816|nvjet_(?:sm\d+_)?hsh_")),
)
_OF_PRODUCT: Final = {"tensor TF32": "float", "tensor BF16": "c10::BFloat16", "tensor FP16": "c10::Half"}
_POINTS: Final = r"(c10::BFloat16|c10::Half|float|double)\b"
_ELEMENT: Final = re.compile(rf"\b{_POINTS}|OpaqueType<\D*(\d+)")
# the type of a functor's arguments comes first; it may calculate in another type
_FUNCTOR: Final = re.compile(rf"(?<!Copy)Functor\w*<{_POINTS}")
# these read and write elements of different types
_CONVERTS: Final = re.compile(r"WithCast|float8|float16_copy|gpu_kernel_impl<|::Copy<")


def arithmetic(name: str) -> str:
    """Return the arithmetic of a matrix product, convolution or attention kernel; "" if its name does not contain it.

    "FP32" means CUDA cores; "tensor BF16" and similar values mean tensor cores.
    """
    if kind_of(name) in ("product", "convolution"):
        return "FP32"
    return next((kind for kind, words in _ARITHMETIC if words.search(name)), "")


def element_type(name: str) -> str:
    """Return PyTorch's name for the type of the elements that a kernel reads and writes; "" if there can be several.

    If the name contains only their size, the result is "2 bytes" or similar.
    """
    if "at::native" not in name:
        return "float" if kind_of(name) in ("product", "convolution") else _OF_PRODUCT.get(arithmetic(name), "")
    if _CONVERTS.search(name):
        return ""
    if applied := _FUNCTOR.search(name):
        return applied[1]
    types = {kind or f"{size} bytes" for kind, size in _ELEMENT.findall(name)}
    return types.pop() if len(types) == 1 else ""
