"""Short, readable names of kernels: what a kernel does, and how it differs from others that do the same.

`sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_...` is `gemm f32 tn 32x32x8`, and
`at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ...sum_functor<...>...>>` is `reduce sum<float>`. Names
that no rule matches become the function with its template arguments, without namespaces and parameters. If labels
would be equal, the first words in which the names differ are added (`KernelLabels`).

Demangled names of nsys, ncu, torch.profiler and c++filt are supported; of mangled names, only the identifiers.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from nightsight.events.kernel_kinds import arithmetic, kind_of, operation
from nightsight.events.kernel_names import base_name, communicates, normalized, unqualified
from nightsight.texts import middle_cut, printable

PRODUCTS: Final = "matrix products"
CONVOLUTIONS: Final = "convolutions"
ATTENTION: Final = "attention"
SOFTMAX: Final = "softmax"
NORMS: Final = "normalization"
REDUCTIONS: Final = "reductions"
ELEMENTWISE: Final = "elementwise"
FOREACH: Final = "foreach and optimizers"
LAYOUT: Final = "indexing and layout"
SORTING: Final = "sorting and scans"
RANDOM: Final = "random numbers"
COMMUNICATION: Final = "communication"
OTHER: Final = "other"

NAME_LENGTH: Final = 90
"""The default maximum length of a label."""
_KEPT: Final = 1 << 16


def family_of(name: str) -> str:
    """Return the family of a kernel, that is, its kind of work according to its full name."""
    return _family_and_label(name)[0]


def label_of(name: str, length: int = NAME_LENGTH) -> str:
    """Return the label of one kernel; use `KernelLabels` for labels that differ from one another."""
    return cut(_family_and_label(name)[1], length)


class KernelLabels:
    """The labels of the kernels of one page: different kernels have different labels, at any length limit.

    nsys and ncu spell one kernel differently; both spellings have one label. The order of names does not matter.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._spellings: dict[str, list[str]] = {}
        for name in dict.fromkeys(names):
            self._spellings.setdefault(normalized(name), []).append(name)
        self._made: dict[int, dict[str, str]] = {}

    def short(self, name: str, length: int = NAME_LENGTH) -> str:
        """Return a kernel's label, at most `length` characters long; the number of a replay before the name is kept."""
        if length not in self._made:
            labels = _distinct_labels(sorted(self._spellings), length)
            self._made[length] = {
                name: labels[kernel] for kernel, spellings in self._spellings.items() for name in spellings
            }
        label_by_name = self._made[length]
        number, dot, rest = name.partition(". ")
        if not (dot and number.isdecimal()):
            return label_by_name.get(name) or label_of(name, length)
        return f"{number}. {label_by_name.get(rest) or label_of(rest, length)}"


# -- one name ----------------------------------------------------------------------------------------------------------


@lru_cache(_KEPT)
def _family_and_label(name: str) -> tuple[str, str]:
    """Return the family and the whole label of a kernel."""
    plain = _demangle(name) if name.startswith("_Z") else name
    spelling = normalized(plain)
    if communicates(name):
        return COMMUNICATION, _communication(spelling) or readable(plain)
    for pattern, family, write in _LIBRARIES:
        if match := pattern.search(spelling):
            return family, printable(write(spelling, match))
    base = base_name(plain)
    for pattern, family, words in _FUNCTIONS:
        if match := pattern.search(base):
            return family, printable(f"{match.expand(words).lower().strip()}{_type_arguments(spelling)}")
    family = _by_words(spelling, base)
    if name.startswith("triton_"):
        # the number only distinguishes the fused kernels of one program
        return family, printable(re.sub(r"_\d+$", "", name))
    return family, readable(plain)


def _by_words(name: str, base: str) -> str:
    """Return the family of a kernel whose function name matches no rule."""
    by_own_name = next((family for family, words in _WORDS if words.search(base)), None)
    if by_own_name is None and (kind_of(name) == "elementwise" or base.startswith("triton_poi")):
        return ELEMENTWISE
    return by_own_name or OTHER


# types of elements, by the name of the type without its namespace
_TYPES: Final = {
    "float": "float",
    "double": "double",
    "BFloat16": "bf16",
    "__nv_bfloat16": "bf16",
    "__hip_bfloat16": "bf16",
    "hip_bfloat16": "bf16",
    "bfloat16_t": "bf16",
    "Half": "half",
    "__half": "half",
    "half_t": "half",
    "half": "half",
    "Float8_e4m3fn": "fp8 e4m3",
    "Float8_e5m2": "fp8 e5m2",
    "float_e4m3_t": "fp8 e4m3",
    "float_e5m2_t": "fp8 e5m2",
    "__nv_fp8_e4m3": "fp8 e4m3",
    "__nv_fp8_e5m2": "fp8 e5m2",
}
_WHOLE: Final = {"long": "long", "int": "int", "bool": "bool", "unsigned char": "uint8", "signed char": "int8"}
_TYPE: Final = "|".join(sorted(_TYPES, key=len, reverse=True))
_INTEGER: Final = "|".join(sorted(_WHOLE, key=len, reverse=True))
# the type of the elements comes first: a functor may calculate in another type
_TYPED: Final = (
    re.compile(rf"ReduceOp<(?:\w+::)*({_TYPE}|{_INTEGER})(?=,)"),
    re.compile(rf"\blambda\([^()]*?(?:\w+::)*(complex<(?:float|double)>|{_TYPE})(?![\w<])"),
    re.compile(rf"(?<!Copy)Functor\w*<(?:\w+::)*(complex<(?:float|double)>|{_TYPE}|{_INTEGER})(?![\w<])"),
    re.compile(rf"(?<![\w.])(?:\w+::)*({_TYPE})(?!\w)"),
    re.compile(r"OpaqueType<(\d+)"),
    re.compile(rf"\blambda\(((?!int\)){_INTEGER})[,)]"),
    re.compile(rf"[<,\s]({_INTEGER})(?=[,>\s])"),
)


def _type_arguments(name: str) -> str:
    """Return the type of a kernel's elements as template arguments, "" if the name does not contain it."""
    word = next((match[1] for pattern in _TYPED if (match := pattern.search(name))), "")
    if not word:
        return ""
    return f"<{word} bytes>" if word.isdecimal() else f"<{_TYPES.get(word) or _WHOLE.get(word, word)}>"


# -- matrix products and convolutions ----------------------------------------------------------------------------------

_OTHER_TYPES: Final = (
    ("f64", re.compile(r"(?i)f64f64|dgemm|\bgemm\w*<double|Cijk_\w+?_D\w*_MT")),
    ("c64", re.compile(r"(?i)cgemm|c32c32|complex<float>")),
    ("c128", re.compile(r"(?i)zgemm|c64c64|complex<double>")),
    ("int8", re.compile(r"(?i)gemm_i8|i8i8|igemm|imma|_i8_|int8_t|Cijk_\w+?_I8\w*_")),
)
# if the name does not contain the arithmetic
_USUAL_TYPES: Final = (
    ("bf16", re.compile(r"Cijk_\w+?_BB\w*_|Cijk_\w+?_BS\w*_|__nv_bfloat16")),
    ("f16", re.compile(r"Cijk_\w+?_H\w*_|hgemm|_f16|__half")),
    ("f32", re.compile(r"Cijk_\w+?_S\w*_|sgemm|f32f32_f32|<float|<int,int,float|scudnn|winograd|_f32")),
)
_ARITHMETIC: Final = {
    "FP32": "f32",
    "tensor TF32": "tf32",
    "tensor BF16": "bf16",
    "tensor FP16": "f16",
    "tensor FP8": "fp8",
}
_TILES: Final = (
    (re.compile(r"tilesize(\d+x\d+x\d+)"), r"\1"),
    (re.compile(r"_MT(\d+x\d+x\d+)"), r"\1"),
    (re.compile(r"(?<!\d)(\d+x\d+)_(\d+)x\d+(?=_|>|$)"), r"\1x\2"),
    (re.compile(r"(?<![\dx])(\d+x\d+)_\w*?stages_(\d+)x\d+"), r"\1x\2"),
    (re.compile(r"C<(\d{2,})>,(?:cute::)?C<(\d+)>,(?:cute::)?C<(\d+)>"), r"\1x\2x\3"),
    (re.compile(r"GemmShape<(\d+),(\d+),(\d+)>"), r"\1x\2x\3"),
    (re.compile(r"(?<=_)(\d+x\d+x\d+)(?=_\dx\dx\d_|_0_|_)(?!.*tensorop_[a-z]\d)"), r"\1"),
    (
        re.compile(r"(?:gemm|cudnn|fprop|dgrad|wgrad|optimized|analytic)_(?:[a-z]+\w*?_)?(\d+x\d+(?:x\d+)?)(?=_|>|$)"),
        r"\1",
    ),
)
_LAYOUTS: Final = (
    (re.compile(r"_([NT]{3})(?=_|$)"), None),
    (re.compile(r"Cijk_A(ilk|lik)_B(ljk|jlk)"), {"ilk": "n", "lik": "t", "ljk": "n", "jlk": "t"}),
    (re.compile(r"(?i)(?<![a-z\d])([nt]{2}[nt]?)(?![a-z\d])"), None),
)
_SPLIT: Final = re.compile(r"(?i)split_?k|stream_?k")
_EPILOGUES: Final = re.compile(r"(?i)(?<![a-z])(bias|relu|gelu)(?![a-z])")


def _matrices(kind: str) -> Callable[[str, "re.Match[str]"], str]:
    """Return the words for a product: type of elements, transposition, tile, and extras."""

    def write(name: str, _: "re.Match[str]") -> str:
        split = _SPLIT.search(name)
        extras = list(dict.fromkeys(word.lower() for word in _EPILOGUES.findall(name)))
        parts = [kind, _precision(name), _layout(name), _tile(name), split and "split-k", *extras]
        return " ".join(part for part in parts if part)

    return write


def _precision(name: str) -> str:
    precision = next((short for short, words in _OTHER_TYPES if words.search(name)), "")
    precision = precision or _ARITHMETIC.get(arithmetic(name), "")
    return precision or next((short for short, words in _USUAL_TYPES if words.search(name)), "")


def _tile(name: str) -> str:
    return next((match.expand(form) for pattern, form in _TILES if (match := pattern.search(name))), "")


def _layout(name: str) -> str:
    for pattern, letters in _LAYOUTS:
        if match := pattern.search(name):
            return "".join(letters[group] if letters else group.lower() for group in match.groups())
    return ""


def _vectors(name: str, match: "re.Match[str]") -> str:
    side = re.search(r"gemv\w*?(?:\d)?([NT])(?=_|SP)", match[0])
    return " ".join(part for part in ("gemv", _brief_type(name), side[1].lower() if side else "") if part)


def _brief_type(name: str) -> str:
    """Return the type of elements as libraries abbreviate it: "f32", "bf16"."""
    return _type_arguments(name).strip("<>").replace("half", "f16").replace("float", "f32").replace("double", "f64")


# -- attention ---------------------------------------------------------------------------------------------------------

_HEAD: Final = re.compile(r"(?i)(?:traits|Tile_count)<(\d+)|hdim_?(\d+)|head_?dim_?(\d+)")
_BACKWARD: Final = re.compile(r"(?i)bwd|backward|bprop|cutlassB|dq_dk_dv|dot_do_o|convert_dq")
_PARTS: Final = re.compile(
    r"(?i)(splitkv_combine|splitkv|combine|dot_do_o|convert_dq|convert_dkv|preprocess|postprocess)"
)


def _attention(name: str, match: "re.Match[str]") -> str:
    """Return `flash fwd bf16 hdim128`: library, direction, type, size of heads, or the tile."""
    library = "flash" if "flash" in match[0].lower() else "attention"
    head = _HEAD.search(name)
    part = _PARTS.search(name)
    types = next((t for t in ("bf16", "f16", "f32") if f"_{t}_" in name), _brief_type(name))
    tile = "" if head else next((match[1] for match in [re.search(r"_(\d+x\d+(?:x\d+)?)_", name)] if match), "")
    parts = (
        library,
        "bwd" if _BACKWARD.search(name) else "fwd",
        part and part[1].lower().replace("_", " "),
        types,
        head and f"hdim{next(group for group in head.groups() if group)}",
        tile,
    )
    return " ".join(part for part in parts if part)


# -- PyTorch's own kernels ---------------------------------------------------------------------------------------------

_COPIES_TO: Final = {"bfloat16_copy": "bf16", "float16_copy": "half"}


def _elementwise(name: str, _: "re.Match[str]") -> str:
    target = next((kind for words, kind in _COPIES_TO.items() if words in name), "")
    if target:
        return f"elementwise copy<{_type_arguments(name).strip('<>')} to {target}>"
    # ncu omits namespaces that it does not need
    word = operation(name if "at::native::" in name else f"at::native::{name}")
    if word == "elementwise":
        functions = (match[1] for match in _APPLIES.finditer(name) if not _WRAPS.search(match[1]))
        word = next(functions, "")
    return f"elementwise{word and f' {word}'}{_type_arguments(name)}"


_APPLIES: Final = re.compile(r"\b(?:launch_)?([A-Za-z]\w*?)(?:_scalar|_tensor)?(?:_kernel)?(?:_cuda|_impl)?(?=[(<])")
_WRAPS: Final = re.compile(r"elementwise|^gpu(?:_|$)|Functor|lambda|operator|array|std|memory|Calculator")


def _reduction(name: str, _: "re.Match[str]") -> str:
    word = operation(name)
    match = re.search(r"(\w+?)(?:_kernel_cuda|NanFunctor)", name) if word == "reduction" else None
    return f"reduce {match[1].lower() if match else word}{_type_arguments(name)}".replace("reduce reduction", "reduce")


_APPLIED: Final = re.compile(
    r"Fused(\w+?)MathFunctor|\b(?:native::)?(\w+?)Functor<|std::(\w+)<|,(?:\w+::|<unnamed>::)*(\w+)<[^<>]*>>$"
)
_LISTS: Final = re.compile(r"(?:Unary|Binary|Ternary|Pointwise)Op\w*|\w*List\w*|\w*Metadata|\w*Norm\w*")


def _foreach(name: str, _: "re.Match[str]") -> str:
    """Return `optimizer adam<float>` for a fused optimizer, `foreach lerp<float>` for an operator on lists."""
    for match in _APPLIED.finditer(name):
        word = next(group for group in match.groups() if group)
        if match[1]:
            return f"optimizer fused {word.lower()}{_type_arguments(name)}"
        if not _LISTS.fullmatch(word):
            return f"foreach {word.lower()}{_type_arguments(name)}"
    norm = re.search(r"(\w*Norm\w*?)Functor", name)
    return f"foreach {norm[1].lower() if norm else ''}".rstrip() + _type_arguments(name)


def _softmax(name: str, _: "re.Match[str]") -> str:
    backward = re.search(r"(?i)backward|bwd|grad", name)
    is_log = re.search(r"(?i)log_?softmax|softmax_warp_forward<[^<>]*,1,[01]>", name)
    return f"{'log ' if is_log else ''}softmax{' backward' if backward else ''}{_type_arguments(name)}"


def _random(name: str, _: "re.Match[str]") -> str:
    match = re.search(r"\b(\w+?)_and_transform", name) or re.search(r"::(\w+?)_kernel", name.partition("<")[2])
    return f"random{f' {match[1]}' if match else ''}{_type_arguments(name)}"


def _thrust(name: str, match: "re.Match[str]") -> str:
    words = re.sub(r"_+(?:f|functor)?$", "", match[1]).replace("_", " ").strip()
    return f"thrust {words}{_type_arguments(name)}"


# -- communication -----------------------------------------------------------------------------------------------------

_NCCL: Final = re.compile(
    r"nccl\w*?_(?P<what>AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv|AllToAll|Generic)"
    r"(?:_(?P<rest>\w+))?"
)
_ALGORITHM: Final = re.compile(r"RING|TREE|COLLNET(?:_DIRECT|_CHAIN)?|NVLS(?:_TREE)?|PAT")
# of the protocols, LL is the usual one for kernels that carry the name
_PROTOCOL: Final = re.compile(r"LL128|SIMPLE")
_REDUCES: Final = re.compile(r"PreMulSum|SumPostDiv|Prod|MinMax|Min|Max")
_NCCL_TYPE: Final = re.compile(
    r"(?<![a-z0-9])(f64|f32|f16|bf16|f8e[45]m[23]|[iu](?:8|32|64)|u?int\d+|double|float|half|\w*bfloat16)(?![a-z0-9])"
)


def _communication(name: str) -> str:
    """Return `nccl all-reduce ring f32` for a kernel of NCCL or RCCL: operation, algorithm, type; "" for others."""
    match = _NCCL.search(name)
    if not match:
        return ""
    suffix = match["rest"] or ""
    words = [
        (matched := pattern.search(suffix)) and matched[0].lower() for pattern in (_ALGORITHM, _PROTOCOL, _REDUCES)
    ]
    kind = _NCCL_TYPE.search(suffix.replace("_", " "))
    short = {"float": "f32", "half": "f16", "double": "f64"}
    parts = (
        "nccl",
        re.sub(r"(?<=[a-z])(?=[A-Z])", "-", match["what"]).lower(),
        *(word and word.replace("_", "-") for word in words),
        kind and ("bf16" if "bfloat16" in kind[1] else short.get(kind[1], kind[1])),
        suffix if match["what"] == "Generic" else "",
    )
    return " ".join(part for part in parts if part)


# -- rules -------------------------------------------------------------------------------------------------------------

_Rule = tuple["re.Pattern[str]", str, Callable[[str, "re.Match[str]"], str]]
# kernels of libraries, whose names say more than the function; the first rule that matches counts
_LIBRARIES: Final[tuple[_Rule, ...]] = (
    (
        re.compile(
            r"(?i)flash_?(?:fwd|bwd|attn|fprop|bprop)\w*|flash::flash\w*|fmha_\w+|native_sdpa\w*|FlashAttn\w*"
            r"|compute_dot_do_o\w*|convert_dq_to\w*"
        ),
        ATTENTION,
        _attention,
    ),
    (re.compile(r"(?i)xmma_fprop|fprop_optimized|sfprop"), CONVOLUTIONS, _matrices("conv fprop")),
    (re.compile(r"(?i)xmma_dgrad|dgrad_optimized|sdgrad"), CONVOLUTIONS, _matrices("conv dgrad")),
    (re.compile(r"(?i)xmma_wgrad|wgrad_optimized|swgrad"), CONVOLUTIONS, _matrices("conv wgrad")),
    (re.compile(r"implicit_convolve_|_s?cudnn_\d|winograd"), CONVOLUTIONS, _matrices("conv")),
    (
        re.compile(r"(?i)splitKreduce|gemmk1_kernel|split_?k_?reduce"),
        PRODUCTS,
        lambda name, _: f"split-k reduce{_type_arguments(name)}",
    ),
    (
        re.compile(
            r"xmma_gemm|^nvjet_|Kernel2?<cutlass|^cutlass\w*gemm|cutlass3x_|GemmUniversal|^Cijk_"
            r"|^(?:ampere|volta|turing|maxwell|pascal|hopper|sm\d+)_\w*gemm|^(?:magma_)?[sdchz]gemm(?:Ex)?_|^gemmSN_"
            r"|cutlass::gemm::|cutlass_\w*gemm"
        ),
        PRODUCTS,
        _matrices("gemm"),
    ),
    (re.compile(r"^(?:\w+::)*\w*gemv\w*"), PRODUCTS, _vectors),
    (re.compile(r"\breduce_kernel<"), REDUCTIONS, _reduction),
    (re.compile(r"\bmulti_tensor_apply_kernel<"), FOREACH, _foreach),
    (re.compile(r"(?i)softmax_warp_|cunn_softmax|softmax(?:forward|backward)"), SOFTMAX, _softmax),
    (re.compile(r"\bdistribution_\w*kernel<|random_\w*kernel<"), RANDOM, _random),
    (re.compile(r"ParallelForAgent<.*?__(\w+)::"), ELEMENTWISE, _thrust),
    (re.compile(r"\bindex_elementwise_kernel\b"), LAYOUT, lambda name, _: f"index{_type_arguments(name)}"),
    (
        re.compile(r"\b_?scatter_gather_elementwise_kernel\b"),
        LAYOUT,
        lambda name, _: f"{'scatter add' if 'ReduceAdd' in name else 'scatter/gather'}{_type_arguments(name)}",
    ),
    (
        re.compile(
            r"\b(?:vectorized_|unrolled_|legacy_)?(?:templated_)?elementwise_kernel"
            r"(?:_with_index|_manual_unroll\w*|_for_multi_outputs)?<"
        ),
        ELEMENTWISE,
        _elementwise,
    ),
)
# the words for functions, by name
_FUNCTIONS: Final[tuple[tuple["re.Pattern[str]", str, str], ...]] = tuple(
    (re.compile(pattern), family, words)
    for pattern, family, words in (
        (r"(?i)^layer_?norm_grad_input", NORMS, "layer norm backward"),
        (r"GammaBetaBackward|GradGammaBeta", NORMS, "layer norm weights backward"),
        (r"^RowwiseMoments", NORMS, "layer norm moments"),
        (r"(?i)^(?:vectorized_)?layer_?norm(?:_kernel|forward)", NORMS, "layer norm"),
        (r"^batch_norm_collect_statistics", NORMS, "batch norm statistics"),
        (r"^batch_norm_transform_input", NORMS, "batch norm"),
        (r"^batch_norm_backward\w*", NORMS, "batch norm backward"),
        (r"^bn_fw_\w+", NORMS, "batch norm"),
        (r"^bn_bw_\w+", NORMS, "batch norm backward"),
        (r"^CatArrayBatchedCopy", LAYOUT, "cat"),
        (r"^indexSelect(?:Small|Large)Index", LAYOUT, "index select"),
        (r"^indexFunc(?:Small|Large)Index", LAYOUT, "index add"),
        (r"^nchwToNhwcKernel", LAYOUT, "nchw to nhwc"),
        (r"^nhwcToNchwKernel", LAYOUT, "nhwc to nchw"),
        (r"^gatherTopK", SORTING, "top-k"),
        (r"^Device(?:Segmented)?RadixSort(\w+?)Kernel", SORTING, r"radix sort \1"),
        (r"^DeviceScan(Init)?Kernel", SORTING, r"scan \1"),
        (r"^DeviceSelectSweepKernel", SORTING, "select"),
        (r"^DeviceCompactInitKernel", SORTING, "select init"),
        (r"^DeviceReduce\w*Kernel", REDUCTIONS, "cub reduce"),
        (r"^tensor_kernel_scan_\w+", SORTING, "scan"),
        (r"^bitonicSort\w*", SORTING, "bitonic sort"),
        (r"^fused_dropout_kernel", RANDOM, "dropout"),
        (r"^nll_loss_forward\w*", REDUCTIONS, "nll loss"),
        (r"^nll_loss_backward\w*", REDUCTIONS, "nll loss backward"),
        (r"^triu_tril_kernel", LAYOUT, "triu/tril"),
    )
)
# words in a function's own name; the first family that fits counts
_WORDS: Final[tuple[tuple[str, "re.Pattern[str]"], ...]] = tuple(
    (family, re.compile(words))
    for family, words in (
        (ATTENTION, r"(?i)attention|attn|flash|fmha|sdpa|(?:^|_)mha|paged_?kv|prefill|decode.*kv"),
        (CONVOLUTIONS, r"(?i)conv(?!ert)|winograd|wgrad|dgrad|im2col"),
        (PRODUCTS, r"(?i)gemm|mat_?mul|marlin|(?:^|_)(?:bmm|mm|addmm|dot)(?:_|$)|^triton_tem"),
        (SOFTMAX, r"(?i)soft_?max"),
        (NORMS, r"(?i)(?:layer|batch|group|instance|rms)_?norm|welford"),
        (FOREACH, r"(?i)adam|(?:^|_)sgd|lamb|optimizer|multi_tensor"),
        (SORTING, r"(?i)sort|scan|cumsum|top_?k|unique|histogram"),
        (RANDOM, r"(?i)dropout|random|philox|curand|bernoulli|uniform"),
        (
            LAYOUT,
            r"(?i)index|gather|scatter|embedding|transpose|permute|concat|(?:^|_)cat(?:_|$)|copy|reshape|upsample|nchw|nhwc|pad",
        ),
        (REDUCTIONS, r"(?i)reduce|^triton_(?:red|per)|(?:^|_)(?:sum|mean|loss|norm)(?:_|$)|cross_entropy|sums"),
        (ELEMENTWISE, r"(?i)elementwise|pointwise|^triton_poi|act_and_mul|(?:^|_)(?:fill|memset|set)(?:_|$)"),
    )
)

# -- names without a rule ----------------------------------------------------------------------------------------------

# innermost parentheses: `_until_stable` removes them repeatedly, from the inside out
_PARAMETERS: Final = re.compile(r"\([^()]*\)")
# the two ways in which compilers name lambdas
_LAMBDA: Final = re.compile(r"(?:::)?\[lambda[^\]]*\]|(?:::)?\{lambda[^}]*\}(?:#\d+)?")
# namespaces and classes in front of a name
_QUALIFIERS: Final = re.compile(r"<unnamed>::|\(anonymous namespace\)::|\b[A-Za-z_]\w*::")
_OPERATOR: Final = re.compile(r"::operator\s*(?:const)?(?=::|[>,\s]|$)")
# possible remains of the removals above: a return type, spaces, a leading `::`
_LEFTOVERS: Final = re.compile(r"\bvoid\s+(?=\w)|\s+(?=[,>])|(?<=[<\s])::")
# a piece of a word of up to 12 letters next to a cut
_HALF_AT_END: Final = re.compile(r"(?<=[_,<> ])[^_,<> ]{1,12}$")
_HALF_AT_START: Final = re.compile(r"^[^_,<> ]{1,12}(?=[_,<> ])")
_NESTING: Final = (9, 3, 2, 1)  # levels of template arguments to try to keep


def readable(name: str) -> str:
    """Return a function with its template arguments, without return type, namespaces, parameters and lambdas."""
    plain = printable(name)
    text = _without_parameters(unqualified(plain))
    # `unqualified` cannot parse names that are truncated or not C++: these still have their namespaces
    for pattern in (_OPERATOR, _LAMBDA, _QUALIFIERS, _LEFTOVERS):
        text = pattern.sub("", text)
    text = re.sub(r",(?=\S)", ", ", re.sub(r"\s+", " ", text.replace("<>", ""))).strip()
    return text if re.search(r"\w", text) else plain


def cut(text: str, length: int) -> str:
    """Shorten a label: drop inner template arguments first, then the middle, without leaving half a word."""
    form = text
    for nesting in _NESTING:
        form = _without_inner_arguments(text, nesting)
        if len(form) <= length:
            break
    return _word_cut(form, length)


def _word_cut(text: str, length: int) -> str:
    """Cut like `middle_cut`, and a little more where this avoids leaving half a word."""
    head, mark, tail = middle_cut(text, length).partition("…")
    return f"{_HALF_AT_END.sub('', head)}…{_HALF_AT_START.sub('', tail)}" if mark else head


def _without_inner_arguments(text: str, nesting: int) -> str:
    """Drop template arguments nested deeper than `nesting` levels; a name with unbalanced brackets is unchanged."""
    if text.count("<") <= nesting:
        return text
    characters: list[str] = []
    depth = 0
    for character in text:
        depth += character == "<"
        if depth <= nesting:
            characters.append(character)
        depth -= character == ">"
        if depth < 0:
            return text
    return text if depth else "".join(characters)


def _without_parameters(text: str) -> str:
    # outer ones match once the inner ones are gone
    while (shorter := _PARAMETERS.sub("", text)) != text:
        text = shorter
    return text


# pieces of a mangled name: a value, a substitution, a parameter, types of one letter, the length of an identifier
_PIECE: Final = re.compile(r"L[a-z](n?\d+)E|S[0-9A-Z]*_|S[a-z]|T\d*_|I([fdbijlmxy]+)|(\d+)|.", re.DOTALL)
_VALUE: Final = re.compile(r"n?\d+E")
_LETTERS: Final = {"f": "float", "d": "double", "b": "bool", "i": "int", "l": "long"}


def _demangle(name: str) -> str:
    """Return the readable part of a mangled name: the function, and the identifiers and values that follow."""
    scope: list[str] = []
    words: list[str] = []
    place, is_scope = 2, True
    while match := _PIECE.match(name, place):
        place = match.end()
        value, letters, length = match.groups()
        if length:
            word, place = name[place : place + int(length)], place + int(length)
            if re.fullmatch(r"[A-Za-z_]\w*", word):
                (scope if is_scope else words).append(word)
            # the type of a constant, before its value
            constant = _VALUE.match(name, place) if name[match.start() - 1] == "L" else None
            place = constant.end() if constant else place
            is_scope = is_scope and name.startswith("_ZN") and name[place : place + 1] not in "IE"
        elif value:
            words.append(value.replace("n", "-"))
        elif letters:
            words += [_LETTERS.get(letter, letter) for letter in letters]
    function = "::".join(word for word in scope if not word.startswith("_GLOBAL__N"))
    if not function:
        return name
    return f"{function}<{', '.join(words)}>" if words else function


# -- labels that differ ------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(r"[A-Za-z0-9]+")
_MOST_ADDED: Final = 4
_ADDED_LENGTH: Final = 24


def _distinct_labels(kernels: Sequence[str], length: int) -> dict[str, str]:
    """Return a label for each kernel, by its normalized name; in alphabetical order, so that numbers are stable."""
    same_label: dict[str, list[str]] = {}
    for name in kernels:
        same_label.setdefault(label_of(name, length), []).append(name)
    label_of_name: dict[str, str] = {}
    used = {label for label, names in same_label.items() if len(names) == 1}
    for label, names in same_label.items():
        if len(names) == 1:
            label_of_name[names[0]] = label
            continue
        plain = [readable(_demangle(name) if name.startswith("_Z") else name) for name in names]
        added = _differing_words([_TOKEN.findall(text.removeprefix("Kernel2<")) for text in plain])
        if len(set(added)) < len(added):
            added = _differing_words([_TOKEN.findall(printable(name)) for name in names])
        label_words = set(_TOKEN.findall(label))
        brief = [" ".join(word for word in words.split() if word not in label_words) for words in added]
        # words that the label already contains need not be repeated
        added = brief if all(brief) and len(set(brief)) == len(brief) else added
        for name, words in zip(names, added, strict=True):
            text = _with_words(label, words, length)
            tries = (_with_words(label, f"{words} #{number}".strip(), length) for number in range(2, len(kernels) + 2))
            label_of_name[name] = (
                text if words and text not in used else next(candidate for candidate in tries if candidate not in used)
            )
            used.add(label_of_name[name])
    return label_of_name


def _with_words(label: str, words: str, length: int) -> str:
    """Append words to a label within a length, of which at least a fifth remains for the label."""
    words = middle_cut(words, length - length // 5 - 1)
    return f"{cut(label, length - len(words) - 1)} {words}"


def _differing_words(tokens: Sequence[Sequence[str]], added: int = 0) -> list[str]:
    """Return the first differing words of each name, enough to distinguish it from the others."""
    first = next(
        (
            at
            for at in range(max(map(len, tokens)))
            if len({words_of_name[at] if at < len(words_of_name) else "" for words_of_name in tokens}) > 1
        ),
        None,
    )
    if first is None or added == _MOST_ADDED:
        return [""] * len(tokens)
    words = [words_of_name[first] if first < len(words_of_name) else "" for words_of_name in tokens]
    differing = [middle_cut(word, _ADDED_LENGTH) for word in words]
    for word in dict.fromkeys(words):
        places = [place for place, other in enumerate(words) if other == word]
        if len(places) > 1:
            rest = _differing_words([tokens[place][first + 1 :] for place in places], added + 1)
            for place, more in zip(places, rest, strict=True):
                differing[place] = f"{differing[place]} {more}".strip()
    return differing
