"""The work of a PyTorch operator, from the shapes, types and values of its arguments: operations, and bytes at least.

A multiply-add is two operations, any other operation, comparison or elementary function of an operator's formula is
one. Every input is read once and every output is written once; numbers and tensors without dimensions do not count.
What cannot be known is None, never a guess.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple, TypeVar

from nightsight.analyze.operator_work.arguments import (
    BOOLEAN,
    COMPLEX,
    HALVES,
    NOT_KNOWN,
    POINT,
    SIZES,
    WHOLE,
    WHOLE_NUMBERS,
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

    is_product: it multiplies matrices, which tensor cores can do; all else is done by CUDA cores. type: of what it
    calculates with, in PyTorch's words, "" if not known.
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
    flop = moved = None
    is_product, kind = operator in _PRODUCTS, ""
    with suppress(Unknown):
        shapes, types, inputs, strides = map(loaded, (*texts, "", "", "", "")[:4])
        given = Arguments(operator, shapes, types, inputs, strides, element)
        kind = given.first_type
        if COMPLEX in map(category, given.types):
            raise Unknown
        parts = formula(given)
        flop = next(parts)
        if flop and not is_product:
            # arithmetic on whole numbers does not count, and that of an unknown type may be such
            flop = None if not kind else 0 if category(kind) in WHOLE_NUMBERS else flop
        moved = sum(tensor.bytes for tensor in next(parts))
    return Work(_within(flop), _within(moved), is_product, kind)


def _within(amount: int | None) -> int | None:
    """Return an amount that fits into a column."""
    return amount if amount is not None and amount < 1 << 63 else None


_Formula = Callable[[Arguments], Iterator[Any]]
"""Yields the operations, None if they are not known, and then the tensors that are read and written."""


def _matrices(first: int, bias: int | None = None) -> _Formula:
    """A product of matrices, or of batches of them, with a bias."""

    def formula(given: Arguments) -> Iterator[Any]:
        left, right = given.tensor(first, 2, 3), given.tensor(first + 1, 2, 3)
        *batch, rows, inner = left.shape
        *batches, shared, columns = right.shape
        if batch != batches or inner != shared:
            raise Unknown
        yield 2 * prod(batch) * rows * inner * columns
        added = [] if bias is None else given.optional(bias)
        yield [left, right, *added, Tensor((*batch, rows, columns), _of_product(given, first, left.type))]

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
    yield [
        left,
        right,
        *given.optional(2, 3, 4),
        Tensor((rows, columns), numbered(given, 6, left.type) if left.type else NOT_KNOWN),
    ]


def _vector(first: int, bias: int | None = None) -> _Formula:
    """A product of a matrix, or a vector, and a vector."""

    def formula(given: Arguments) -> Iterator[Any]:
        left, right = given.tensor(first, 1, 2), given.tensor(first + 1, 1)
        if left.shape[-1:] != right.shape:
            raise Unknown
        yield 2 * left.elements
        added = [] if bias is None else given.optional(bias)
        yield [left, right, *added, Tensor(left.shape[:-1], left.type)]

    return formula


@dataclass(frozen=True)
class _Convolution:
    """Where the arguments of a convolution stand; None: it has no such argument."""

    stride: int
    padding: int
    dilation: int | None
    bias: int | None = None
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
        yield [data, weight, *([] if self.bias is None else given.optional(self.bias)), result]

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
    """Where the arguments of an attention stand: which say what each position attends to, and which else are read.

    is_last: heads come after positions. causal: a boolean, or the number of a kind of mask. lengths: sequences of
    different lengths are packed into one. statistics: whether the logarithms of sums are kept; None: always.
    """

    causal: int
    bias: int | None = None
    lengths: int | None = None
    is_last: bool = False
    statistics: int | None = None
    is_backward: bool = False
    also_read: tuple[int, ...] = ()

    def __call__(self, given: Arguments) -> Iterator[Any]:
        """Be the formula."""
        query, key, value = (given.tensor(place + self.is_backward, 3, 4) for place in range(3))
        if not len(query.shape) == len(key.shape) == len(value.shape):
            raise Unknown
        is_packed = len(query.shape) == 3 or (self.lengths is not None and bool(given.optional(self.lengths)))
        yield None if is_packed else self._flop(given, query.shape, key.shape, value.shape)
        masks = [] if self.bias is None else given.optional(self.bias)
        # a mask is mostly repeated along some axes, which the shape does not show
        if masks and not given.strides:
            raise Unknown
        if self.is_backward:
            read = [*given.optional(0, *self.also_read), query, key, value, *masks]
            yield [*read, query.fresh, key.fresh, value.fresh]
            return
        result = Tensor((*query.shape[:-1], value.shape[-1]), query.type)
        is_kept = self.statistics is None or given.flag(self.statistics)
        sums = Tensor(query.shape[:-1], "double" if query.type == "double" else "float")
        yield [query, key, value, *masks, result, *[sums] * is_kept]

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


def _elementwise(places: Sequence[int], flop: int) -> _Formula:
    """Arithmetic on each element; inputs are broadcast."""

    def formula(given: Arguments) -> Iterator[Any]:
        operator = given.operator.removesuffix("_")
        read = [
            # a mask is known to be boolean
            tensor._replace(type="bool") if not given.types and _MASKS.get(operator) == place else tensor
            for place in places
            for tensor in given.optional(place)
        ]
        is_in_place = given.operator != operator
        shape = _broadcast([tensor.shape for tensor in read])
        if is_in_place and shape != given.tensor(0).shape:
            raise Unknown
        yield flop * prod(shape)
        operands = [place for place in places if _MASKS.get(operator) != place]
        kind = given.type(0) if is_in_place else _promoted(given, operands)
        yield [*read, Tensor(shape, "bool" if operator in _COMPARISONS and not is_in_place else kind)]

    return formula


def _promoted(given: Arguments, places: Sequence[int]) -> str:
    """Return the type of a result by PyTorch's rules of promotion, if types were recorded."""
    if not given.types:
        return given.element
    kinds = {tensor.type for tensor in given.optional(*places)} or {given.type(place) for place in places}
    kinds &= SIZES.keys()
    if not kinds:
        return NOT_KNOWN
    highest = max(map(category, kinds))
    # of numbers, and tensors without dimensions, only a higher category counts, and then the result depends on settings
    for place in places:
        kind = given.type(place)
        number = POINT if kind == "Scalar" and not _is_whole(given, place) else WHOLE
        if (category(kind) if kind in SIZES else number if kind == "Scalar" else BOOLEAN) > highest:
            return NOT_KNOWN
    if highest in WHOLE_NUMBERS and given.operator.removesuffix("_") in _TO_POINTS:
        return NOT_KNOWN
    kinds = {kind for kind in kinds if category(kind) == highest}
    return "float" if kinds == set(HALVES) else max(kinds, key=lambda kind: SIZES[kind])


def _is_whole(given: Arguments, place: int) -> bool:
    return place < len(given.inputs) and re.fullmatch(r"-?\d+|True|False", given.value(place)) is not None


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    rank = max(map(len, shapes), default=0)
    result = []
    for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        others = set(sizes) - {1}
        if len(others) > 1:
            raise Unknown
        result.append(others.pop() if others else 1)
    return tuple(result)


def _writes(given: Arguments) -> Iterator[Any]:
    """All elements are set."""
    yield 0
    yield [given.tensor(0)]


def _draws(given: Arguments) -> Iterator[Any]:
    """All elements become random, by arithmetic that is not counted."""
    yield None
    yield [given.tensor(0)]


def _copies(given: Arguments) -> Iterator[Any]:
    yield 0
    yield [given.tensor(0), *given.optional(1)]


def _dropout(given: Arguments) -> Iterator[Any]:
    data = given.tensor(0)
    yield 2 * data.elements
    yield [data, data.fresh, data.fresh._replace(type="bool")]


@dataclass(frozen=True)
class _Reduction:
    """Where the arguments of a reduction stand, the operations for each element that it reads, and what it gives.

    arity: of the overload with axes; with fewer arguments, all elements are reduced to one. type: where the number of
    the result's type stands; gives: the types of the results, "" for that of the elements.
    """

    flop: int = 1
    axes: int = 1
    keeps: int = 2
    arity: int = 3
    type: int | None = None
    gives: tuple[str, ...] = ("",)

    def __call__(self, given: Arguments) -> Iterator[Any]:
        """Be the formula."""
        data = given.tensor(0)
        yield self.flop * data.elements
        shape: Shape = ()
        kind = data.type
        if len(given.shapes) >= self.arity:
            shape = _without(data.shape, given.wholes(self.axes), keeps=given.flag(self.keeps))
        if self.type is not None:
            place = self.type if len(given.shapes) >= self.arity else 1
            has_type = place < len(given.shapes) and given.types and given.type(place) == "Scalar"
            kind = numbered(given, place, kind) if has_type else _summed(given, kind)
        yield [data, *(Tensor(shape, result or kind) for result in self.gives)]


def _summed(given: Arguments, kind: str) -> str:
    return "long int" if kind and category(kind) in WHOLE_NUMBERS and given.operator in _COUNTING else kind


def _without(shape: Shape, axes: Sequence[int], *, keeps: bool) -> Shape:
    """Return a shape without some axes; without any if none are given."""
    if not all(-len(shape) <= axis < len(shape) for axis in axes):
        raise Unknown
    gone = {axis % len(shape) for axis in axes} or set(range(len(shape)))
    left = [1 if axis in gone else size for axis, size in enumerate(shape) if keeps or axis not in gone]
    return tuple(left)


def _cumulative(given: Arguments) -> Iterator[Any]:
    data = given.tensor(0)
    yield data.elements
    has_type = given.types and given.type(2) == "Scalar"
    kind = numbered(given, 2, data.type) if has_type else _summed(given, data.type)
    yield [data, data.fresh._replace(type=kind)]


def _softmax(given: Arguments) -> Iterator[Any]:
    data = given.tensor(0)
    yield 5 * data.elements
    # half precision can become single precision
    kind = "float" if data.type in HALVES and given.flag(2) else data.type
    yield [data, data.fresh._replace(type=kind)]


def _softmax_backward(given: Arguments) -> Iterator[Any]:
    gradient, result = given.tensor(0), given.tensor(1)
    yield 4 * gradient.elements
    kind = numbered(given, 3, gradient.type) if gradient.type else ""
    yield [gradient, result, gradient.fresh._replace(type=kind)]


@dataclass(frozen=True)
class _Norm:
    """Where the arguments of a normalization stand, and its operations for each element without weight and bias.

    statistics: how many are kept of each group. `sizes` defines groups: the last axes, or the number of groups.
    """

    flop: int
    weight: int
    bias: int | None
    statistics: int

    def __call__(self, given: Arguments) -> Iterator[Any]:
        """Be the formula."""
        data = given.tensor(0)
        weights = given.optional(self.weight, *([] if self.bias is None else [self.bias]))
        yield (self.flop + len(weights)) * data.elements
        kept = Tensor(shape_of([self.statistics, self._groups(given, data)]), _statistic(data.type))
        yield [data, data.fresh, *weights, kept]

    def _groups(self, given: Arguments, data: Tensor) -> int:
        if given.operator == "native_group_norm":
            return given.whole(3) * given.whole(6)
        sizes = given.wholes(1)
        if not sizes or tuple(sizes) != data.shape[-len(sizes) :]:
            raise Unknown
        return data.elements // max(prod(sizes), 1)


def _statistic(kind: str) -> str:
    """Return the type of means and deviations."""
    return "float" if kind in HALVES else kind or NOT_KNOWN


@dataclass(frozen=True)
class _NormBackward:
    """Where the arguments of a normalization's gradient stand, and its operations for each element without weight.

    mask: which gradients are wanted, of the data, the weight and the bias.
    """

    flop: int
    weight: int
    statistics: tuple[int, ...]
    mask: int | None
    gradient: int = 0
    data: int = 1

    def __call__(self, given: Arguments) -> Iterator[Any]:
        """Be the formula."""
        gradient, data = given.tensor(self.gradient), given.tensor(self.data)
        weights = given.optional(self.weight)
        wanted = [True, *([bool(weights)] * 2)]
        if self.mask is not None:
            wanted = given.flags(self.mask, 2 if "rms" in given.operator else 3)
        of_data, of_weight, of_bias = (*wanted, False)[:3]
        yield (of_data * (self.flop + len(weights)) + of_weight * 2 + of_bias) * data.elements
        channels = weights[0] if weights else Tensor((), data.type)
        if (of_weight or of_bias) and not weights:
            raise Unknown
        read = [gradient, data, *weights, *given.optional(*self.statistics)]
        yield [*read, *[data.fresh] * of_data, *[channels] * (of_weight + of_bias)]


def _batch_norm(given: Arguments) -> Iterator[Any]:
    data = given.tensor(0, 2, 3, 4, 5)
    weights, running = given.optional(1, 2), given.optional(3, 4)
    # with the argument that updates, there is no flag
    is_training = given.operator == "_batch_norm_with_update" or given.flag(5)
    yield ((6 if is_training else 2) + len(weights)) * data.elements
    kept = Tensor((data.shape[1],), _statistic(data.type))
    yield [data, data.fresh, *weights, *running, *([*running, kept, kept] if is_training else [])]


def _picked(given: Arguments) -> Iterator[Any]:
    """Rows that an index names are copied."""
    data, index = given.tensor(0), given.tensor(2, 1)
    axis = given.whole(1)
    yield 0
    if not -len(data.shape) <= axis < len(data.shape):
        raise Unknown
    sizes = list(data.shape)
    sizes[axis] = index.elements
    rows = Tensor(shape_of(sizes), data.type)
    yield [_index(given, index), rows, rows]


def _index(given: Arguments, index: Tensor) -> Tensor:
    """Return an index, of which the size is known only if its type was recorded."""
    return index if given.types else index._replace(type=NOT_KNOWN)


def _gathered(given: Arguments) -> Iterator[Any]:
    data, index = given.tensor(0), given.tensor(2)
    yield 0
    chosen = Tensor(index.shape, data.type)
    yield [_index(given, index), chosen, chosen]


def _scattered(given: Arguments) -> Iterator[Any]:
    """Elements, or rows, that an index names are set or added to."""
    data, index = given.tensor(0), given.tensor(2)
    source = given.optional(3)
    adds = "add" in given.operator
    # a source of scatter can be larger than the index
    count = source[0].shape if source and given.operator.startswith("index") else index.shape
    chosen = Tensor(count, data.type)
    yield adds * chosen.elements
    yield [_index(given, index), *[chosen] * (len(source) + 1 + adds)]


def _embedding_backward(given: Arguments) -> Iterator[Any]:
    gradient, index = given.tensor(0), given.tensor(1)
    yield gradient.elements
    yield [gradient, _index(given, index), Tensor(shape_of([given.whole(2), *gradient.shape[-1:]]), gradient.type)]


def _likelihood(given: Arguments) -> Iterator[Any]:
    """One element of each row is read; the result is one for each row, or one."""
    data, target = given.tensor(0, 1, 2), given.tensor(1, 1)
    yield target.elements
    chosen = Tensor(target.shape, data.type)
    yield [_index(given, target), chosen, *[chosen] * (1 + bool(given.optional(2)) if given.whole(3) == 0 else 0)]


def _likelihood_backward(given: Arguments) -> Iterator[Any]:
    data, target = given.tensor(1, 1, 2), given.tensor(2, 1)
    yield target.elements
    yield [_index(given, target), *given.optional(0), Tensor(target.shape, data.type)]


def _concatenation(given: Arguments) -> Iterator[Any]:
    parts = given.listed(0)
    yield 0
    yield _some(parts) * 2


def _some(tensors: list[Tensor]) -> list[Tensor]:
    if not tensors:
        raise Unknown
    return tensors


def _foreach(flop: int, *, reads: bool = True) -> _Formula:
    """Arithmetic on each element of each tensor of a list."""

    def formula(given: Arguments) -> Iterator[Any]:
        first = _some(given.listed(0))
        others = [given.listed(place) for place in range(1, len(given.shapes))]
        count = sum(tensor.elements for tensor in first)
        if any(len(other) not in (0, len(first)) for other in others):
            raise Unknown
        yield flop * count
        yield [*first * (1 + reads), *(tensor for other in others for tensor in other)]

    return formula


def _foreach_norm(given: Arguments) -> Iterator[Any]:
    yield 2 * sum(tensor.elements for tensor in _some(given.listed(0)))
    yield given.listed(0)


def _adam(given: Arguments) -> Iterator[Any]:
    """Weights, gradients and two moments; with AMSGrad, also the largest second moments."""
    weights, gradients, *moments = (given.listed(place) for place in range(5))
    count = sum(tensor.elements for tensor in _some(weights))
    yield (13 + 2 * _is_set(given, 9) + bool(moments[2])) * count
    kept = [*weights, *(tensor for moment in moments for tensor in moment)]
    yield [*gradients * (2 if given.type(13) else 1), *kept * 2]


def _sgd(given: Arguments) -> Iterator[Any]:
    weights, gradients, momenta = (given.listed(place) for place in range(3))
    count = sum(tensor.elements for tensor in _some(weights))
    yield (2 + 2 * _is_set(given, 3) + 3 * bool(momenta)) * count
    yield [*gradients * (2 if given.type(10) else 1), *[*weights, *momenta] * 2]


def _is_set(given: Arguments, place: int) -> bool:
    """Whether a number is not 0."""
    try:
        return float(given.value(place)) != 0
    except ValueError:
        raise Unknown from None


# -- which formula ----------------------------------------------------------------------------------------------------

_ONE: Final[tuple[int, ...]] = (0,)
_TWO: Final[tuple[int, ...]] = (0, 1)
_THREE: Final[tuple[int, ...]] = (0, 1, 2)
_Value = TypeVar("_Value")


def _words(text: str, value: _Value) -> dict[str, _Value]:
    return dict.fromkeys(text.split(), value)


# operands, and operations for each element
_ARITHMETIC: Final = {
    **_words("abs neg sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan", (_ONE, 1)),
    **_words("sinh cosh tanh erf erfc ceil floor round trunc frac sign relu leaky_relu nan_to_num", (_ONE, 1)),
    **_words("bitwise_not logical_not isnan isinf isfinite", (_ONE, 1)),
    **_words("add sub rsub mul div floor_divide remainder fmod maximum minimum fmax fmin atan2 pow", (_TWO, 1)),
    **_words("eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor", (_TWO, 1)),
    **_words("clamp_min clamp_max threshold_backward", (_TWO, 1)),
    "hardtanh": (_ONE, 2),
    **_words("softplus elu", (_ONE, 3)),
    **_words("sigmoid hardswish hardsigmoid", (_ONE, 4)),
    **_words("gelu silu mish", (_ONE, 5)),
    **_words("leaky_relu_backward hardtanh_backward hardsigmoid_backward mse_loss native_dropout_backward", (_TWO, 2)),
    **_words("sigmoid_backward tanh_backward hardswish_backward", (_TWO, 3)),
    "softplus_backward": (_TWO, 4),
    "silu_backward": (_TWO, 9),
    "gelu_backward": (_TWO, 11),
    "elu_backward": ((0, 5), 3),
    "clamp": (_THREE, 2),
    **_words("addcmul addcdiv lerp mse_loss_backward", (_THREE, 3)),
    "where": (_THREE, 0),
    "masked_fill": (_TWO, 0),
}
_COMPARISONS: Final = frozenset(
    _words("eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite", None)
)
# whole numbers become numbers with a point
_TO_POINTS: Final = frozenset(
    _words(
        "div sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh erf "
        "erfc sigmoid atan2",
        None,
    )
)
# which operand is a mask
_MASKS: Final = {"where": 0, "masked_fill": 1, "native_dropout_backward": 1}
# sums of whole numbers are of the longest type
_COUNTING: Final = ("sum", "nansum", "prod", "cumsum", "cumprod")
_FOREACH: Final = {
    **_words("add sub mul div sqrt rsqrt neg exp log abs reciprocal pow maximum minimum", 1),
    **_words("clamp_min clamp_max sign", 1),
    **_words("lerp addcmul addcdiv", 3),
}
_OF_SUM: Final = _Reduction(arity=4, type=3)
_ATTENTIONS: Final = {
    "_scaled_dot_product_flash_attention": _Attention(4),
    "_scaled_dot_product_flash_attention_for_cpu": _Attention(4, bias=5),
    "_scaled_dot_product_efficient_attention": _Attention(6, bias=3, statistics=4),
    "_scaled_dot_product_cudnn_attention": _Attention(6, bias=3, statistics=4),
    "_flash_attention_forward": _Attention(8, lengths=3, is_last=True),
    "_efficient_attention_forward": _Attention(9, bias=3, lengths=4, is_last=True, statistics=10),
    "_cudnn_attention_forward": _Attention(10, bias=3, lengths=4, statistics=8),
    "_scaled_dot_product_flash_attention_backward": _Attention(11, lengths=6, is_backward=True, also_read=(4, 5)),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _Attention(7, bias=8, is_backward=True, also_read=(4, 5)),
    "_scaled_dot_product_efficient_attention_backward": _Attention(11, bias=4, is_backward=True, also_read=(5, 6)),
    "_scaled_dot_product_cudnn_attention_backward": _Attention(
        14, bias=8, lengths=9, is_backward=True, also_read=(4, 5)
    ),
    "_flash_attention_backward": _Attention(11, lengths=6, is_last=True, is_backward=True, also_read=(4, 5)),
    "_efficient_attention_backward": _Attention(
        14, bias=4, lengths=6, is_last=True, is_backward=True, also_read=(5, 10)
    ),
    "_cudnn_attention_backward": _Attention(14, bias=8, lengths=9, is_backward=True, also_read=(4, 5)),
}
_ALL_CONVOLUTIONS: Final = _Convolution(3, 4, 5, bias=2, transposed=6, output_padding=7, groups=8)
_PRODUCTS: Final[dict[str, _Formula]] = {
    "mm": _matrices(0),
    "bmm": _matrices(0),
    "_int_mm": _matrices(0),
    "addmm": _matrices(1, bias=0),
    "addmm_": _matrices(1, bias=0),
    "baddbmm": _matrices(1, bias=0),
    "baddbmm_": _matrices(1, bias=0),
    "_addmm_activation": _matrices(1, bias=0),
    "_scaled_mm": _scaled_matrices,
    "mv": _vector(0),
    "dot": _vector(0),
    "addmv": _vector(1, bias=0),
    "addmv_": _vector(1, bias=0),
    "convolution": _ALL_CONVOLUTIONS,
    "_convolution": _ALL_CONVOLUTIONS,
    "cudnn_convolution": _Convolution(3, 2, 4),
    "cudnn_convolution_transpose": _Convolution(4, 2, 5, output_padding=3, groups=6),
    "cudnn_convolution_relu": _Convolution(3, 4, 5, bias=2),
    "_conv_depthwise2d": _Convolution(4, 5, 6, bias=3),
    "conv_depthwise3d": _Convolution(4, 5, 6, bias=3),
    "slow_conv_dilated2d": _Convolution(4, 5, 6, bias=3),
    "_slow_conv2d_forward": _Convolution(4, 5, None, bias=3),
    "convolution_backward": _convolution_backward,
    **_ATTENTIONS,
}
_FORMULAS: Final[dict[str, _Formula]] = {
    **_PRODUCTS,
    **{
        f"{name}{ending}": _elementwise(*arithmetic) for name, arithmetic in _ARITHMETIC.items() for ending in ("", "_")
    },
    **{f"_foreach_{name}{ending}": _foreach(flop) for name, flop in _FOREACH.items() for ending in ("", "_")},
    "_foreach_copy_": _foreach(0, reads=False),
    "_foreach_zero_": _foreach(0, reads=False),
    "_amp_foreach_non_finite_check_and_unscale_": _foreach(1),
    "_foreach_norm": _foreach_norm,
    "_fused_adam_": _adam,
    "_fused_adamw_": _adam,
    "_fused_sgd_": _sgd,
    **_words("fill_ zero_", _writes),
    **_words("normal_ uniform_ bernoulli_ random_ exponential_", _draws),
    "copy_": _copies,
    "native_dropout": _dropout,
    **_words("sum mean nansum prod", _OF_SUM),
    **_words("amax amin", _Reduction()),
    **_words("argmax argmin", _Reduction(gives=("long int",))),
    **_words("max min", _Reduction(gives=("", "long int"))),
    **_words("any all", _Reduction(gives=("bool",))),
    **_words("var std", _Reduction(4, keeps=3, arity=4)),
    "var_mean": _Reduction(4, keeps=3, arity=4, gives=("", "")),
    "linalg_vector_norm": _Reduction(2, axes=2, keeps=3, arity=4, type=4),
    "cumsum": _cumulative,
    "cumprod": _cumulative,
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    "_softmax_backward_data": _softmax_backward,
    "_log_softmax_backward_data": _softmax_backward,
    "native_layer_norm": _Norm(6, weight=2, bias=3, statistics=2),
    "native_group_norm": _Norm(6, weight=1, bias=2, statistics=2),
    "_fused_rms_norm": _Norm(3, weight=2, bias=None, statistics=1),
    **_words("native_batch_norm cudnn_batch_norm _native_batch_norm_legit _batch_norm_with_update", _batch_norm),
    "native_layer_norm_backward": _NormBackward(9, weight=5, statistics=(3, 4), mask=7),
    "native_group_norm_backward": _NormBackward(9, weight=4, statistics=(2, 3), mask=9),
    "_fused_rms_norm_backward": _NormBackward(6, weight=4, statistics=(3,), mask=5),
    "native_batch_norm_backward": _NormBackward(9, weight=2, statistics=(5, 6), mask=9),
    "batch_norm_backward": _NormBackward(9, weight=2, statistics=(5, 6), mask=9),
    "cudnn_batch_norm_backward": _NormBackward(9, weight=2, statistics=(5, 6), mask=None, gradient=1, data=0),
    "index_select": _picked,
    "gather": _gathered,
    **_words("scatter_ scatter_add_ index_add_ index_copy_", _scattered),
    "embedding_dense_backward": _embedding_backward,
    "nll_loss_forward": _likelihood,
    "nll_loss_backward": _likelihood_backward,
    "cat": _concatenation,
}
