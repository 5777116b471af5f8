"""The work of a PyTorch operator, from the shapes, types and values of its arguments: operations, and bytes at least.

Operations are counted of what multiplies matrices: products, convolutions and attention. A multiply-add is two. All
else is limited by memory, so that its bytes say enough. Every input is read once and every output is written once;
numbers and tensors without dimensions do not count. What cannot be known is None, never a guess.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple, TypeVar

from nightsight.analyze.operator_work.arguments import (
    COMPLEX,
    NOT_KNOWN,
    SIZES,
    Arguments,
    Shape,
    Tensor,
    Unknown,
    category,
    loaded,
    numbered,
    shape_of,
)


class Work(NamedTuple):
    """What one call of an operator does; None if not known.

    is_product: it multiplies matrices, which tensor cores can do; of all else, no operations are counted. type: of what
    it calculates with, in PyTorch's words, "" if not known.
    """

    flop: int | None
    data_bytes: int | None
    is_product: bool
    type: str


def work_of(name: str, *texts: str, element: str = "") -> Work | None:
    """Return the work of an operator; None if it is not one of those that are known here.

    texts: shapes, types, inputs and strides, as the table `cpu_ops` has them, or the first of these. element: the type
    of elements of which it was not recorded, if it is known otherwise.
    """
    operator = name.removeprefix("aten::")
    formula = _FORMULAS.get(operator)
    if formula is None or operator == name:
        return None
    flop, moved, kind = None, None, ""
    with suppress(Unknown):
        shapes, types, inputs, strides = map(loaded, (*texts, "", "", "", "")[:4])
        given = Arguments(operator, shapes, types, inputs, strides, element)
        kind = given.first_type
        if COMPLEX in map(category, given.types):
            raise Unknown
        parts = formula(given)
        flop = next(parts)
        moved = sum(tensor.bytes for tensor in next(parts))
    return Work(_within(flop), _within(moved), operator in _PRODUCTS, kind)


def _within(amount: int | None) -> int | None:
    """Return an amount that fits into a column."""
    return amount if amount is not None and amount < 1 << 63 else None


_Formula = Callable[[Arguments], Iterator[Any]]
"""Yields the operations, None if they are not known or not counted, and then the tensors that are read and written."""


def _matrices(first: int) -> _Formula:
    """A product of matrices, or of batches of them; what stands before them is added."""

    def formula(given: Arguments) -> Iterator[Any]:
        left, right = given.tensor(first, 2, 3), given.tensor(first + 1, 2, 3)
        *batch, rows, inner = left.shape
        *batches, shared, columns = right.shape
        if batch != batches or inner != shared:
            raise Unknown
        yield 2 * prod(batch) * rows * inner * columns
        yield [*given.tensors(), Tensor((*batch, rows, columns), _of_product(given, first, left.type))]

    return formula


def _of_product(given: Arguments, first: int, kind: str) -> str:
    """Return the type of a product: that of the matrices, if no other was asked for."""
    if given.operator == "_int_mm":
        return "int"
    # the overload with a type: mm(self, mat2, out_dtype), addmm(self, mat1, mat2, out_dtype, beta, alpha)
    is_asked = len(given.types) == 3 * (first + 1) and given.type(len(given.types) - 1) == "Scalar"
    return numbered(given, first + 2, kind) if is_asked else kind


def _scaled_matrices(given: Arguments) -> Iterator[Any]:
    left, right = given.tensor(0, 2), given.tensor(1, 2)
    (rows, inner), (shared, columns) = left.shape, right.shape
    if inner != shared:
        raise Unknown
    yield 2 * rows * inner * columns
    kind = numbered(given, 6, left.type) if left.type else NOT_KNOWN
    yield [*given.tensors(), Tensor((rows, columns), kind)]


def _vector(first: int) -> _Formula:
    """A product of a matrix, or a vector, and a vector."""

    def formula(given: Arguments) -> Iterator[Any]:
        left, right = given.tensor(first, 1, 2), given.tensor(first + 1, 1)
        if left.shape[-1:] != right.shape:
            raise Unknown
        yield 2 * left.elements
        yield [*given.tensors(), Tensor(left.shape[:-1], left.type)]

    return formula


@dataclass(frozen=True)
class _Convolution:
    """Where the arguments of a convolution stand; None: it has no such argument."""

    stride: int
    padding: int
    dilation: int | None
    transposed: int | None = None
    output_padding: int | None = None
    groups: int | None = None

    def __call__(self, given: Arguments) -> Iterator[Any]:
        """Be the formula."""
        data, weight = given.tensor(0, 3, 4, 5), given.tensor(1, 3, 4, 5)
        if len(data.shape) != len(weight.shape):
            raise Unknown
        stride, padding = self._sizes(given, self.stride, 1), self._sizes(given, self.padding, 0)
        dilation = self._sizes(given, self.dilation, 1)
        is_transposed = self.output_padding is not None and (self.transposed is None or given.flag(self.transposed))
        axes = zip(data.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
        if is_transposed:
            beyond = self._sizes(given, self.output_padding, 0)
            spatial = [
                (size - 1) * step - 2 * pad + spread * (taps - 1) + 1 + more
                for (size, taps, step, pad, spread), more in zip(axes, beyond, strict=True)
            ]
            channels = weight.shape[1] * (1 if self.groups is None else given.whole(self.groups))
        else:
            if min(stride) < 1:
                raise Unknown
            spatial = [(size + 2 * pad - spread * (taps - 1) - 1) // step + 1 for size, taps, step, pad, spread in axes]
            channels = weight.shape[0]
        result = Tensor(shape_of([data.shape[0], channels, *spatial]), data.type)
        yield 2 * weight.elements * data.shape[0] * prod((data if is_transposed else result).shape[2:])
        yield [*given.tensors(), result]

    @staticmethod
    def _sizes(given: Arguments, place: int | None, otherwise: int) -> list[int]:
        """Return a number for each axis; a single one applies to all."""
        axes = len(given.shapes[0]) - 2
        numbers = [otherwise] if place is None else given.wholes(place)
        if len(numbers) not in (1, axes):
            raise Unknown
        return numbers * axes if len(numbers) == 1 else numbers


def _convolution_backward(given: Arguments) -> Iterator[Any]:
    gradient, data, weight = (given.tensor(place, 3, 4, 5) for place in range(3))
    of_data, of_weight, of_bias = given.flags(10, 3)
    spatial = (data if given.flag(7) else gradient).shape[2:]
    yield (of_data + of_weight) * 2 * weight.elements * data.shape[0] * prod(spatial)
    bias = Tensor((gradient.shape[1],), gradient.type)
    results = [*[data.fresh] * of_data, *[weight.fresh] * of_weight, *[bias] * of_bias]
    yield [gradient, *[weight] * of_data, *[data] * of_weight, *results]


@dataclass(frozen=True)
class _Attention:
    """Where the arguments of an attention stand: which say what each position attends to.

    is_last: heads come after positions. causal: a boolean, or the number of a kind of mask. lengths: sequences of
    different lengths are packed into one. statistics: whether the logarithms of sums are kept; None: always.
    """

    causal: int
    bias: int | None = None
    lengths: int | None = None
    is_last: bool = False
    statistics: int | None = None
    is_backward: bool = False

    def __call__(self, given: Arguments) -> Iterator[Any]:
        """Be the formula."""
        query, key, value = (given.tensor(place + self.is_backward, 3, 4) for place in range(3))
        if not len(query.shape) == len(key.shape) == len(value.shape):
            raise Unknown
        is_packed = len(query.shape) == 3 or (self.lengths is not None and bool(given.tensors([self.lengths])))
        yield None if is_packed else self._flop(given, query.shape, key.shape, value.shape)
        # a mask is mostly repeated along some axes, which the shape does not show
        if self.bias is not None and given.tensors([self.bias]) and not given.strides:
            raise Unknown
        if self.is_backward:
            yield [*given.tensors(), query.fresh, key.fresh, value.fresh]
            return
        result = Tensor((*query.shape[:-1], value.shape[-1]), query.type)
        is_kept = self.statistics is None or given.flag(self.statistics)
        sums = Tensor(query.shape[:-1], "double" if query.type == "double" else "float")
        yield [*given.tensors(), result, *[sums] * is_kept]

    def _flop(self, given: Arguments, query: Shape, key: Shape, value: Shape) -> int | None:
        heads, length = (2, 1) if self.is_last else (1, 2)
        if query[0] != key[0] or query[-1] != key[-1] or key[:-1] != value[:-1]:
            raise Unknown
        try:
            text = given.value(self.causal)
        except Unknown:
            return None
        pairs = _pairs(query[length], key[length], text)
        depth = 3 * query[-1] + 2 * value[-1] if self.is_backward else query[-1] + value[-1]
        return None if pairs is None else 2 * query[0] * query[heads] * pairs * depth


def _pairs(queries: int, keys: int, mask: str) -> int | None:
    """Return how many pairs of positions an attention looks at; None if the mask is not known.

    Masks: False or 0 for none; True or 1: a position sees those before it, counted from the first; 2: from the last.
    """
    if mask in ("False", "0"):
        return queries * keys
    if mask in ("True", "1") or (mask == "2" and queries == keys):
        seen = min(queries, keys)
        return seen * (seen + 1) // 2 + (queries - seen) * keys
    return None


# -- bytes only --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Moves:
    """Which arguments an operator reads, None for all, and which ones its results are like.

    writes: None for one result with the shape to which all are broadcast. Results that are much smaller do not count.
    """

    reads: tuple[int, ...] | None = None
    writes: tuple[int, ...] | None = (0,)

    def __call__(self, given: Arguments) -> Iterator[Any]:
        """Be the formula."""
        yield None
        if not given.types and given.operator.removesuffix("_") in _MASKED:
            raise Unknown
        if not given.tensors():
            # without dimensions, it has to be a tensor at least
            given.tensor(0)
        results = [_broadcast(given)] if self.writes is None else given.tensors(self.writes)
        yield [*given.tensors(self.reads), *(tensor.fresh for tensor in results)]


def _broadcast(given: Arguments) -> Tensor:
    tensors = given.tensors() or [given.tensor(0)]
    rank = max(len(tensor.shape) for tensor in tensors)
    shape = []
    for sizes in zip(*((1,) * (rank - len(tensor.shape)) + tensor.shape for tensor in tensors), strict=True):
        others = set(sizes) - {1}
        if len(others) > 1:
            raise Unknown
        shape.append(others.pop() if others else 1)
    # the widest of the highest category
    kind = max((tensor.type for tensor in tensors), key=lambda kind: (category(kind), SIZES.get(kind, 0)))
    return Tensor(tuple(shape), "bool" if given.operator in _COMPARISONS else kind)


def _picked(given: Arguments) -> Iterator[Any]:
    """Elements, or rows, that an index names are read and written elsewhere, or added to what is there."""
    yield None
    data, index = given.tensor(0), given.tensor(2)
    axis, rank = given.whole(1), len(data.shape)
    if not given.types or not -rank <= axis < rank:
        raise Unknown
    are_rows = given.operator.startswith("index")
    row = prod(size for place, size in enumerate(data.shape) if place != axis % rank) if are_rows else 1
    chosen = Tensor(shape_of([index.elements, row]), data.type)
    # what is set to a number is only written
    is_read = not given.operator.startswith("scatter") or bool(given.tensors([3]))
    yield [index, *[chosen] * (1 + is_read + ("add" in given.operator))]


def _embedding_backward(given: Arguments) -> Iterator[Any]:
    yield None
    if not given.types:
        raise Unknown
    gradient = given.tensor(0)
    yield [*given.tensors(), Tensor(shape_of([given.whole(2), *gradient.shape[-1:]]), gradient.type)]


# -- which formula ----------------------------------------------------------------------------------------------------

_Value = TypeVar("_Value")


def _words(text: str, value: _Value) -> dict[str, _Value]:
    return dict.fromkeys(text.split(), value)


_COMPARED: Final = "eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite"
_COMPARISONS: Final = frozenset(_COMPARED.split())
# one argument is of other elements than the rest, which only recorded types tell
_MASKED: Final = ("where", "masked_fill", "native_dropout_backward")
_ELEMENTWISE: Final = (
    f"{_COMPARED} "
    "abs neg sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh erf "
    "erfc ceil floor round trunc frac sign relu leaky_relu nan_to_num bitwise_not add sub rsub mul div floor_divide "
    "remainder fmod maximum minimum fmax fmin atan2 pow bitwise_and bitwise_or bitwise_xor clamp clamp_min clamp_max "
    "hardtanh softplus elu sigmoid hardswish hardsigmoid gelu silu mish mse_loss addcmul addcdiv lerp where "
    "masked_fill threshold_backward leaky_relu_backward hardtanh_backward hardsigmoid_backward "
    "native_dropout_backward sigmoid_backward tanh_backward hardswish_backward softplus_backward silu_backward "
    "gelu_backward elu_backward mse_loss_backward"
)
_FOREACH: Final = (
    "add sub mul div sqrt rsqrt neg exp log abs reciprocal pow maximum minimum clamp_min clamp_max sign lerp addcmul "
    "addcdiv"
)
_ATTENTIONS: Final = {
    "_scaled_dot_product_flash_attention": _Attention(4),
    "_scaled_dot_product_flash_attention_for_cpu": _Attention(4, bias=5),
    "_scaled_dot_product_efficient_attention": _Attention(6, bias=3, statistics=4),
    "_scaled_dot_product_cudnn_attention": _Attention(6, bias=3, statistics=4),
    "_flash_attention_forward": _Attention(8, lengths=3, is_last=True),
    "_efficient_attention_forward": _Attention(9, bias=3, lengths=4, is_last=True, statistics=10),
    "_cudnn_attention_forward": _Attention(10, bias=3, lengths=4, statistics=8),
    "_scaled_dot_product_flash_attention_backward": _Attention(11, lengths=6, is_backward=True),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _Attention(7, bias=8, is_backward=True),
    "_scaled_dot_product_efficient_attention_backward": _Attention(11, bias=4, is_backward=True),
    "_scaled_dot_product_cudnn_attention_backward": _Attention(14, bias=8, lengths=9, is_backward=True),
    "_flash_attention_backward": _Attention(11, lengths=6, is_last=True, is_backward=True),
    "_efficient_attention_backward": _Attention(14, bias=4, lengths=6, is_last=True, is_backward=True),
    "_cudnn_attention_backward": _Attention(14, bias=8, lengths=9, is_backward=True),
}
_ALL_CONVOLUTIONS: Final = _Convolution(3, 4, 5, transposed=6, output_padding=7, groups=8)
_PRODUCTS: Final[dict[str, _Formula]] = {
    "mm": _matrices(0),
    "bmm": _matrices(0),
    "_int_mm": _matrices(0),
    "addmm": _matrices(1),
    "addmm_": _matrices(1),
    "baddbmm": _matrices(1),
    "baddbmm_": _matrices(1),
    "_addmm_activation": _matrices(1),
    "_scaled_mm": _scaled_matrices,
    "mv": _vector(0),
    "dot": _vector(0),
    "addmv": _vector(1),
    "addmv_": _vector(1),
    "convolution": _ALL_CONVOLUTIONS,
    "_convolution": _ALL_CONVOLUTIONS,
    "cudnn_convolution": _Convolution(3, 2, 4),
    "cudnn_convolution_transpose": _Convolution(4, 2, 5, output_padding=3, groups=6),
    "cudnn_convolution_relu": _Convolution(3, 4, 5),
    "_conv_depthwise2d": _Convolution(4, 5, 6),
    "conv_depthwise3d": _Convolution(4, 5, 6),
    "slow_conv_dilated2d": _Convolution(4, 5, 6),
    "_slow_conv2d_forward": _Convolution(4, 5, None),
    "convolution_backward": _convolution_backward,
    **_ATTENTIONS,
}
_FORMULAS: Final[dict[str, _Formula]] = {
    **_PRODUCTS,
    **_words(_ELEMENTWISE, _Moves(writes=None)),
    **{f"{name}_": _Moves() for name in _ELEMENTWISE.split()},
    **{f"_foreach_{name}{ending}": _Moves() for name in _FOREACH.split() for ending in ("", "_")},
    **_words("_foreach_copy_ copy_", _Moves(reads=(1,))),
    **_words("_foreach_zero_ fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_", _Moves(reads=())),
    "_amp_foreach_non_finite_check_and_unscale_": _Moves(),
    **_words("_fused_adam_ _fused_adamw_", _Moves(writes=(0, 2, 3, 4))),
    "_fused_sgd_": _Moves(writes=(0, 2)),
    **_words("sum mean nansum prod amax amin argmax argmin max min any all var std var_mean", _Moves(writes=())),
    **_words("linalg_vector_norm _foreach_norm", _Moves(writes=())),
    **_words("cat cumsum cumprod native_dropout _softmax _log_softmax", _Moves()),
    **_words("_softmax_backward_data _log_softmax_backward_data", _Moves()),
    **_words("native_layer_norm native_group_norm _fused_rms_norm native_batch_norm cudnn_batch_norm", _Moves()),
    **_words("_native_batch_norm_legit _batch_norm_with_update native_layer_norm_backward", _Moves()),
    **_words("native_group_norm_backward _fused_rms_norm_backward native_batch_norm_backward", _Moves()),
    **_words("batch_norm_backward cudnn_batch_norm_backward", _Moves()),
    **_words("index_select gather scatter_ scatter_add_ index_add_ index_copy_", _picked),
    "embedding_dense_backward": _embedding_backward,
}
