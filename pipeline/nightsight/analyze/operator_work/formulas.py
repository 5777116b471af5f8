"""The work of a PyTorch operator, from the shapes, types and values of its arguments: FLOP and the least bytes.

FLOP are counted for operators that multiply matrices: products, convolutions and attention. A multiply-add is two. All
other operators are limited by memory, so their bytes are enough. Each input is read once and each output is written
once; numbers and tensors without dimensions do not count. Unknown work is None, never a guess.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple, TypeVar

from nightsight.analyze.operator_work.arguments import (
    COMPLEX,
    SIZES,
    UNKNOWN_TYPE,
    Arguments,
    Shape,
    Tensor,
    Unknown,
    category,
    parse_list,
    shape_of,
    type_of_number,
)


class OperatorWork(NamedTuple):
    """The work of one call of an operator; None if unknown.

    is_product: it multiplies matrices, as tensor cores can; other operators have no FLOP. type: the type that it
    computes with, in PyTorch's words, "" if unknown.
    """

    flop: int | None
    data_bytes: int | None
    is_product: bool
    type: str


def operator_work(name: str, *texts: str, element: str = "") -> OperatorWork | None:
    """Return the work of an operator; None if there is no formula for it.

    texts: shapes, types, inputs and strides as in the table `cpu_ops`, or the first of these. element: the type of
    elements without a recorded type, if it is known.
    """
    operator = name.removeprefix("aten::")
    formula = _FORMULAS.get(operator)
    if formula is None or operator == name:
        return None
    flop, data_bytes, kind = None, None, ""
    with suppress(Unknown):
        shapes, types, inputs, strides = map(parse_list, (*texts, "", "", "", "")[:4])
        arguments = Arguments(operator, shapes, types, inputs, strides, element)
        kind = arguments.first_type
        if COMPLEX in map(category, arguments.types):
            raise Unknown
        parts = formula(arguments)
        flop = next(parts)
        data_bytes = sum(tensor.bytes for tensor in next(parts))
    return OperatorWork(_fit_column(flop), _fit_column(data_bytes), operator in _PRODUCTS, kind)


def _fit_column(amount: int | None) -> int | None:
    """Return an amount, or None if it does not fit into a column."""
    return amount if amount is not None and amount < 1 << 63 else None


_Formula = Callable[[Arguments], Iterator[Any]]
"""Yields the FLOP, None if unknown or not counted, and then the tensors that are read and written."""


def _matrix_product(position: int) -> _Formula:
    """Return the formula of a product of matrices, or of batches of them; earlier arguments are added."""

    def formula(arguments: Arguments) -> Iterator[Any]:
        left, right = arguments.tensor(position, 2, 3), arguments.tensor(position + 1, 2, 3)
        *batch, rows, inner = left.shape
        *batches, inner_rows, columns = right.shape
        if batch != batches or inner != inner_rows:
            raise Unknown
        yield 2 * prod(batch) * rows * inner * columns
        result = Tensor((*batch, rows, columns), _product_type(arguments, position, left.type))
        yield [*arguments.tensors(), result]

    return formula


def _product_type(arguments: Arguments, position: int, kind: str) -> str:
    """Return the type of a product: that of the matrices, unless an argument gives another."""
    if arguments.operator == "_int_mm":
        return "int"
    # the overload with a type: mm(self, mat2, out_dtype), addmm(self, mat1, mat2, out_dtype, beta, alpha)
    has_type = len(arguments.types) == 3 * (position + 1) and arguments.type(len(arguments.types) - 1) == "Scalar"
    return type_of_number(arguments, position + 2, kind) if has_type else kind


def _scaled_matrix_product(arguments: Arguments) -> Iterator[Any]:
    left, right = arguments.tensor(0, 2), arguments.tensor(1, 2)
    (rows, inner), (inner_rows, columns) = left.shape, right.shape
    if inner != inner_rows:
        raise Unknown
    yield 2 * rows * inner * columns
    kind = type_of_number(arguments, 6, left.type) if left.type else UNKNOWN_TYPE
    yield [*arguments.tensors(), Tensor((rows, columns), kind)]


def _vector_product(position: int) -> _Formula:
    """Return the formula of a product of a matrix, or a vector, and a vector."""

    def formula(arguments: Arguments) -> Iterator[Any]:
        matrix, vector = arguments.tensor(position, 1, 2), arguments.tensor(position + 1, 1)
        if matrix.shape[-1:] != vector.shape:
            raise Unknown
        yield 2 * matrix.elements
        yield [*arguments.tensors(), Tensor(matrix.shape[:-1], matrix.type)]

    return formula


@dataclass(frozen=True)
class _Convolution:
    """The positions of the arguments of a convolution; None: it has no such argument."""

    stride: int
    padding: int
    dilation: int | None
    transposed: int | None = None
    output_padding: int | None = None
    groups: int | None = None

    def __call__(self, arguments: Arguments) -> Iterator[Any]:
        """Yield the FLOP and the tensors."""
        data, weight = arguments.tensor(0, 3, 4, 5), arguments.tensor(1, 3, 4, 5)
        if len(data.shape) != len(weight.shape):
            raise Unknown
        stride, padding = self._sizes(arguments, self.stride, 1), self._sizes(arguments, self.padding, 0)
        dilation = self._sizes(arguments, self.dilation, 1)
        is_transposed = self.output_padding is not None and (self.transposed is None or arguments.flag(self.transposed))
        axes = zip(data.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
        if is_transposed:
            output_padding = self._sizes(arguments, self.output_padding, 0)
            spatial = [
                (size - 1) * step - 2 * pad + spread * (taps - 1) + 1 + more
                for (size, taps, step, pad, spread), more in zip(axes, output_padding, strict=True)
            ]
            channels = weight.shape[1] * (1 if self.groups is None else arguments.whole(self.groups))
        else:
            if min(stride) < 1:
                raise Unknown
            spatial = [(size + 2 * pad - spread * (taps - 1) - 1) // step + 1 for size, taps, step, pad, spread in axes]
            channels = weight.shape[0]
        result = Tensor(shape_of([data.shape[0], channels, *spatial]), data.type)
        yield 2 * weight.elements * data.shape[0] * prod((data if is_transposed else result).shape[2:])
        yield [*arguments.tensors(), result]

    @staticmethod
    def _sizes(arguments: Arguments, place: int | None, default: int) -> list[int]:
        """Return a number for each axis; a single number applies to all."""
        axes = len(arguments.shapes[0]) - 2
        numbers = [default] if place is None else arguments.wholes(place)
        if len(numbers) not in (1, axes):
            raise Unknown
        return numbers * axes if len(numbers) == 1 else numbers


def _convolution_backward(arguments: Arguments) -> Iterator[Any]:
    gradient, data, weight = (arguments.tensor(place, 3, 4, 5) for place in range(3))
    of_data, of_weight, of_bias = arguments.flags(10, 3)
    spatial = (data if arguments.flag(7) else gradient).shape[2:]
    yield (of_data + of_weight) * 2 * weight.elements * data.shape[0] * prod(spatial)
    bias = Tensor((gradient.shape[1],), gradient.type)
    results = [*[data.result] * of_data, *[weight.result] * of_weight, *[bias] * of_bias]
    yield [gradient, *[weight] * of_data, *[data] * of_weight, *results]


@dataclass(frozen=True)
class _Attention:
    """The positions of the arguments of an attention that say what each position attends to.

    is_last: heads come after positions. causal: a boolean, or the number of a kind of mask. lengths: sequences of
    different lengths are packed into one. statistics: whether the logarithms of sums are stored; None: always.
    """

    causal: int
    bias: int | None = None
    lengths: int | None = None
    is_last: bool = False
    statistics: int | None = None
    is_backward: bool = False

    def __call__(self, arguments: Arguments) -> Iterator[Any]:
        """Yield the FLOP and the tensors."""
        query, key, value = (arguments.tensor(place + self.is_backward, 3, 4) for place in range(3))
        if not len(query.shape) == len(key.shape) == len(value.shape):
            raise Unknown
        is_packed = len(query.shape) == 3 or (self.lengths is not None and bool(arguments.tensors([self.lengths])))
        yield None if is_packed else self._flop(arguments, query.shape, key.shape, value.shape)
        # a mask usually repeats along some axes, which its shape does not show
        if self.bias is not None and arguments.tensors([self.bias]) and not arguments.strides:
            raise Unknown
        if self.is_backward:
            yield [*arguments.tensors(), query.result, key.result, value.result]
            return
        result = Tensor((*query.shape[:-1], value.shape[-1]), query.type)
        is_kept = self.statistics is None or arguments.flag(self.statistics)
        sums = Tensor(query.shape[:-1], "double" if query.type == "double" else "float")
        yield [*arguments.tensors(), result, *[sums] * is_kept]

    def _flop(self, arguments: Arguments, query: Shape, key: Shape, value: Shape) -> int | None:
        heads, length = (2, 1) if self.is_last else (1, 2)
        if query[0] != key[0] or query[-1] != key[-1] or key[:-1] != value[:-1]:
            raise Unknown
        try:
            text = arguments.value(self.causal)
        except Unknown:
            return None
        pairs = _attended_pairs(query[length], key[length], text)
        depth = 3 * query[-1] + 2 * value[-1] if self.is_backward else query[-1] + value[-1]
        return None if pairs is None else 2 * query[0] * query[heads] * pairs * depth


def _attended_pairs(queries: int, keys: int, mask: str) -> int | None:
    """Return the number of pairs of positions that attend to each other; None if the mask is unknown.

    Masks: False or 0 for none; True or 1: a position attends to those before it, counted from the first; 2: from the
    last.
    """
    if mask in ("False", "0"):
        return queries * keys
    if mask in ("True", "1") or (mask == "2" and queries == keys):
        side = min(queries, keys)
        return side * (side + 1) // 2 + (queries - side) * keys
    return None


# -- bytes only --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Traffic:
    """The arguments that an operator reads, None for all, and those whose shapes its results have.

    writes: None for one result with the shape to which all arguments are broadcast. Much smaller results do not count.
    """

    reads: tuple[int, ...] | None = None
    writes: tuple[int, ...] | None = (0,)

    def __call__(self, arguments: Arguments) -> Iterator[Any]:
        """Yield the FLOP and the tensors."""
        yield None
        if not arguments.types and arguments.operator.removesuffix("_") in _MASKED:
            raise Unknown
        if not arguments.tensors():
            # an argument without dimensions must be a tensor
            arguments.tensor(0)
        results = [_broadcast(arguments)] if self.writes is None else arguments.tensors(self.writes)
        yield [*arguments.tensors(self.reads), *(tensor.result for tensor in results)]


def _broadcast(arguments: Arguments) -> Tensor:
    tensors = arguments.tensors() or [arguments.tensor(0)]
    rank = max(len(tensor.shape) for tensor in tensors)
    shape = []
    for sizes in zip(*((1,) * (rank - len(tensor.shape)) + tensor.shape for tensor in tensors), strict=True):
        lengths = set(sizes) - {1}
        if len(lengths) > 1:
            raise Unknown
        shape.append(lengths.pop() if lengths else 1)
    # the widest type of the highest category
    kind = max((tensor.type for tensor in tensors), key=lambda kind: (category(kind), SIZES.get(kind, 0)))
    return Tensor(tuple(shape), "bool" if arguments.operator in _COMPARISONS else kind)


def _indexed(arguments: Arguments) -> Iterator[Any]:
    """Read the elements or rows that an index names, and write them elsewhere or add them there."""
    yield None
    data, index = arguments.tensor(0), arguments.tensor(2)
    axis, rank = arguments.whole(1), len(data.shape)
    if not arguments.types or not -rank <= axis < rank:
        raise Unknown
    are_rows = arguments.operator.startswith("index")
    row = prod(size for place, size in enumerate(data.shape) if place != axis % rank) if are_rows else 1
    elements = Tensor(shape_of([index.elements, row]), data.type)
    # elements set to a number are only written
    is_read = not arguments.operator.startswith("scatter") or bool(arguments.tensors([3]))
    yield [index, *[elements] * (1 + is_read + ("add" in arguments.operator))]


def _embedding_backward(arguments: Arguments) -> Iterator[Any]:
    yield None
    if not arguments.types:
        raise Unknown
    gradient = arguments.tensor(0)
    yield [*arguments.tensors(), Tensor(shape_of([arguments.whole(2), *gradient.shape[-1:]]), gradient.type)]


# -- which formula ----------------------------------------------------------------------------------------------------

_Value = TypeVar("_Value")


def _each(text: str, value: _Value) -> dict[str, _Value]:
    return dict.fromkeys(text.split(), value)


_COMPARISON_NAMES: Final = "eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite"
_COMPARISONS: Final = frozenset(_COMPARISON_NAMES.split())
# one argument has another type than the rest, which only recorded types show
_MASKED: Final = ("where", "masked_fill", "native_dropout_backward")
_ELEMENTWISE: Final = (
    f"{_COMPARISON_NAMES} "
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
    "mm": _matrix_product(0),
    "bmm": _matrix_product(0),
    "_int_mm": _matrix_product(0),
    "addmm": _matrix_product(1),
    "addmm_": _matrix_product(1),
    "baddbmm": _matrix_product(1),
    "baddbmm_": _matrix_product(1),
    "_addmm_activation": _matrix_product(1),
    "_scaled_mm": _scaled_matrix_product,
    "mv": _vector_product(0),
    "dot": _vector_product(0),
    "addmv": _vector_product(1),
    "addmv_": _vector_product(1),
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
    **_each(_ELEMENTWISE, _Traffic(writes=None)),
    **{f"{name}_": _Traffic() for name in _ELEMENTWISE.split()},
    **{f"_foreach_{name}{ending}": _Traffic() for name in _FOREACH.split() for ending in ("", "_")},
    **_each("_foreach_copy_ copy_", _Traffic(reads=(1,))),
    **_each("_foreach_zero_ fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_", _Traffic(reads=())),
    "_amp_foreach_non_finite_check_and_unscale_": _Traffic(),
    **_each("_fused_adam_ _fused_adamw_", _Traffic(writes=(0, 2, 3, 4))),
    "_fused_sgd_": _Traffic(writes=(0, 2)),
    **_each("sum mean nansum prod amax amin argmax argmin max min any all var std var_mean", _Traffic(writes=())),
    **_each("linalg_vector_norm _foreach_norm", _Traffic(writes=())),
    **_each("cat cumsum cumprod native_dropout _softmax _log_softmax", _Traffic()),
    **_each("_softmax_backward_data _log_softmax_backward_data", _Traffic()),
    **_each("native_layer_norm native_group_norm _fused_rms_norm native_batch_norm cudnn_batch_norm", _Traffic()),
    **_each("_native_batch_norm_legit _batch_norm_with_update native_layer_norm_backward", _Traffic()),
    **_each("native_group_norm_backward _fused_rms_norm_backward native_batch_norm_backward", _Traffic()),
    **_each("batch_norm_backward cudnn_batch_norm_backward", _Traffic()),
    **_each("index_select gather scatter_ scatter_add_ index_add_ index_copy_", _indexed),
    "embedding_dense_backward": _embedding_backward,
}
