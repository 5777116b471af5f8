"""Fuse attention that a program writes out by hand: its operations become one scaled_dot_product_attention.

A product of two batches of matrices may be the scores of attention. Its computation is deferred: the product returns a
tensor without values, which records the operations on it. If these are the operations of attention (a scale, masks,
softmax, dropout, the product with the values), one fused call computes them all. Otherwise, the program's own
operations run in their order, with the same gradients and autocast. If this would give wrong results, because an
operand was overwritten or C++ code reads the tensor, the run is marked as failed.

Loaded by path when a program has imported torch; its Python may be older than ours.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from functools import wraps
from importlib import import_module
from typing import Any, Callable  # noqa: UP035 (Python 3.8)

torch: Any = sys.modules["torch"]
# matrices, with one or two batch dimensions around them
_LEAST_DIMS, _MOST_DIMS = 3, 4
# fused kernels exist up to this head size
_LARGEST_HEAD = 256
# scores up to this value are masked
_MASKED = -1000.0
_OPERANDS = 2
_WITH_VALUES = (torch.Tensor, torch.nn.Parameter)


def count(note: Callable[[], object]) -> None:
    """Call `note` for each softmax that may belong to attention, and change nothing."""

    def watched(function: Any) -> Any:  # noqa: ANN401
        @wraps(function)
        def softmax(scores: Any, dim: Any = None, *given: Any, **named: Any) -> Any:  # noqa: ANN401
            with suppress(Exception):
                if _LEAST_DIMS <= scores.dim() <= _MOST_DIMS and dim in (-1, scores.dim() - 1):
                    note()
            return function(scores, dim, *given, **named)

        _script_as(softmax, function)
        return softmax

    for owner in (torch, torch.nn.functional, torch.Tensor):
        owner.softmax = watched(owner.softmax)


def fuse(applies: Callable[[], bool], fails: Callable[[str], object]) -> None:
    """Replace PyTorch's products. applies: whether to fuse the attention that was found.

    fails: called with a reason if the run can no longer give the program's results.
    """
    Scores.applies, Scores.fails = staticmethod(applies), staticmethod(fails)
    # these pass their arguments to code that cannot handle scores
    checkpointing = import_module("torch.utils.checkpoint")
    for owner, name in ((torch.autograd.Function, "apply"), (checkpointing, "checkpoint")):
        setattr(owner, name, _with_values(owner, name))
    for owner, name in (
        *((torch, name) for name in ("matmul", "bmm", "einsum")),
        *((torch.Tensor, name) for name in ("__matmul__", "matmul", "bmm")),
    ):
        setattr(owner, name, _product(getattr(owner, name), is_einsum=name == "einsum"))


def _with_values(owner: Any, name: str) -> Any:  # noqa: ANN401
    """Return a function that receives the values of scores."""
    function = getattr(owner, name)
    if not isinstance(owner, type):

        @wraps(function)
        def plain(*given: Any, **named: Any) -> Any:  # noqa: ANN401
            return function(*_computed(given), **_computed(named))

        return plain
    of_class = function.__func__

    @wraps(of_class)
    def called(cls: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        return of_class(cls, *_computed(given), **_computed(named))

    return classmethod(called)


def _script_as(wrapper: Any, function: Any) -> None:  # noqa: ANN401
    """Let TorchScript treat a function as the one that it wraps."""
    with suppress(Exception):
        builtins = import_module("torch.jit._builtins")
        if operation := builtins._find_builtin(function):
            builtins._register_builtin(wrapper, operation)


def _product(function: Any, *, is_einsum: bool) -> Any:  # noqa: ANN401
    """Return a product that defers its computation if the result may be scores of attention."""

    @wraps(function)
    def product(*given: Any, **named: Any) -> Any:  # noqa: ANN401
        operands = given[1:] if is_einsum else given
        if not named and len(operands) == _OPERANDS and all(type(each) in _WITH_VALUES for each in operands):
            with suppress(Exception):
                query, key = _operands_of_scores(given[0], *operands) if is_einsum else operands
                if _may_be_scores(query, key):
                    return Scores.of(_State(query, key), lambda: function(*given))
        return function(*given, **named)

    _script_as(product, function)
    return product


def _may_be_scores(query: Any, key: Any) -> bool:  # noqa: ANN401
    """Return whether the product of two tensors can be the scores of attention; `key` is transposed."""
    return bool(
        query.dim() == key.dim()
        and _LEAST_DIMS <= query.dim() <= _MOST_DIMS
        and query.shape[:-2] == key.shape[:-2]
        and query.shape[-1] == key.shape[-2] <= _LARGEST_HEAD
        and query.dtype == key.dtype
        and query.is_floating_point()
        and not getattr(getattr(torch, "compiler", None), "is_compiling", bool)()
        and not torch.jit.is_tracing()
        and not _is_transformed()
    )


def _is_transformed() -> bool:
    """Whether torch.func computes with objects other than tensors."""
    with suppress(Exception):
        return torch._C._functorch.maybe_current_level() is not None
    return False


def _operands_of_scores(equation: str, first: Any, second: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Return what einsum multiplies as query and transposed key; ValueError if its result is not scores."""
    ours, theirs, result = _letters(equation)
    *batch, rows, columns = list(result)
    (inner,) = (set(ours) & set(theirs)) - set(result)
    return (
        first.permute(*(ours.index(letter) for letter in (*batch, rows, inner))),
        second.permute(*(theirs.index(letter) for letter in (*batch, inner, columns))),
    )


def _letters(equation: str) -> tuple[str, str, str]:
    """Return the letters of the operands and of the result of einsum."""
    operands, _, result = equation.replace(" ", "").partition("->")
    first, second = operands.split(",")
    return first, second, result


class _State:
    """The operations on scores. mask: added after the scale, None without one; dropout: that of the weights."""

    def __init__(self, query: Any, key: Any) -> None:  # noqa: ANN401
        self.query, self.key = query, key
        self.scale: Any = 1.0
        self.mask: Any = None
        self.is_softmax, self.dropout = False, 0.0
        self.dtype = _type_of_products(query)
        self.modes = _modes()
        self.versions = {"query": _version(query), "key": _version(key)}

    def changed(self, **changes: Any) -> _State:  # noqa: ANN401
        """Return a copy of the state with changes."""
        state = object.__new__(_State)
        state.__dict__.update({**self.__dict__, **changes})
        state.versions = {**self.versions, **{name: _version(value) for name, value in changes.items()}}
        return state

    def is_unchanged(self) -> bool:
        """Whether the tensors behind these scores are unchanged."""
        return all(_version(getattr(self, name)) == version for name, version in self.versions.items())


def _version(value: Any) -> int:  # noqa: ANN401
    """Return the number of writes to a tensor; tensors of inference mode do not count them."""
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else 0


def _modes() -> tuple[Any, ...]:
    """Return the settings of gradients and autocast."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        (torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()),
        (torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()),
    )


def _in_modes(modes: tuple[Any, ...], compute: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Compute with the settings of another place in the program."""
    if modes == _modes():
        return compute()
    has_grad, is_inference, cuda, cpu = modes
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(is_inference))
        stack.enter_context(torch.set_grad_enabled(has_grad))
        for kind, (is_on, dtype) in (("cuda", cuda), ("cpu", cpu)):
            if kind == "cpu" or torch.cuda.is_available():
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=is_on))
        return compute()


def _type_of_products(operand: Any) -> Any:  # noqa: ANN401
    """Return the number type of a product at this place, under autocast or not."""
    if operand.is_cuda:
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else operand.dtype
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else operand.dtype


class Scores(torch.Tensor):
    """Scores of attention, or their softmax, without values until an operation needs them."""

    applies: Any = None
    fails: Any = None

    @classmethod
    def of(cls, state: _State, compute: Callable[[], Any], *before: Any) -> Any:  # noqa: ANN401
        """Return scores; compute: the program's own operations, applied to the scores `before`."""
        for each in before:
            each.is_followed = True
        shape = (*state.query.shape[:-1], state.key.shape[-1])
        scores: Any = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=state.dtype, device=state.query.device)
        scores.state, scores.compute, scores.value = state, compute, None
        scores.modes, scores.is_followed = _modes(), False
        return scores

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:  # noqa: ANN401
        named = named or {}
        if function in _DESCRIPTIONS:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*given, **named)
        name = getattr(function, "__name__", "")
        follow = _STEPS.get(name)
        if follow:
            with suppress(Exception):
                result = follow(function, *given, **named)
                if result is not None:
                    return result
        is_write = name.startswith("__i") or (name.endswith("_") and not name.endswith("__")) or "out" in named
        if is_write and given and type(given[0]) is Scores and given[0].is_followed:
            Scores.fails("scores of attention are overwritten after their use")
        return function(*_computed(given), **_computed(named))

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:  # noqa: ANN401
        # below autograd, where scores would lose their gradients
        if any(type(each) is Scores and each.state.query.requires_grad for each in given):
            Scores.fails("scores of attention are passed to code that cannot handle them")
        return function(*_computed(given), **_computed(named or {}))


_DESCRIPTIONS = {
    *(getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "is_cuda", "layout")),
    *(torch.Tensor.dim, torch.Tensor.size, torch.Tensor.numel, torch.Tensor.is_floating_point),
}


def _computed(value: Any) -> Any:  # noqa: ANN401
    """Return a value in which the program's own results replace scores."""
    if type(value) is Scores:
        if value.value is None:
            if not value.state.is_unchanged():
                Scores.fails("a tensor is overwritten between its use and that of the result")
            value.value = _in_modes(value.modes, value.compute)
        return value.value
    if isinstance(value, dict):
        return {key: _computed(each) for key, each in value.items()}
    return type(value)(map(_computed, value)) if type(value) in (tuple, list) else value


def _is_open(value: Any, *, is_softmax: bool = False) -> bool:  # noqa: ANN401
    """Whether these are scores without values, or, after softmax, weights."""
    return type(value) is Scores and value.value is None and value.state.is_softmax == is_softmax


def _scaled(function: Any, first: Any, second: Any, *, is_divided: bool = False) -> Any:  # noqa: ANN401
    scores, by = (first, second) if is_divided or _is_open(first) else (second, first)
    is_number = isinstance(by, (int, float)) or (type(by) in _WITH_VALUES and by.dim() == 0)
    if not (_is_open(scores) and is_number) or scores.state.mask is not None:
        return None
    scale = scores.state.scale / by if is_divided else scores.state.scale * by
    state = scores.state.changed(scale=scale)
    return Scores.of(state, lambda: function(_computed(first), _computed(second)), scores)


def _divided(function: Any, first: Any, second: Any) -> Any:  # noqa: ANN401
    return _scaled(function, first, second, is_divided=True)


def _added(function: Any, first: Any, second: Any) -> Any:  # noqa: ANN401
    scores, other = (first, second) if _is_open(first) else (second, first)
    # some fused kernels have no gradient of a bias
    if not _is_open(scores) or type(other) not in _WITH_VALUES or other.requires_grad:
        return None
    mask = other if scores.state.mask is None else scores.state.mask + other
    return _masked(scores, mask, lambda: function(_computed(first), _computed(second)))


def _filled(function: Any, scores: Any, mask: Any, value: Any) -> Any:  # noqa: ANN401
    is_mask = _is_open(scores) and isinstance(value, (int, float)) and value <= _MASKED
    if not is_mask:
        return None
    # a row that is masked as a whole has equal weights only if all scores are negligible
    marked = torch.where(mask, torch.finfo(scores.state.dtype).min, _mask_so_far(scores))
    return _masked(scores, marked, lambda: function(_computed(scores), mask, value))


def _chosen(function: Any, mask: Any, scores: Any, other: Any) -> Any:  # noqa: ANN401
    # reading a number from the GPU would make the program wait
    is_number = isinstance(other, (int, float)) or (other.dim() == 0 and other.device.type == "cpu")
    if not (_is_open(scores) and is_number and other <= _MASKED):
        return None
    marked = torch.where(mask, _mask_so_far(scores), torch.finfo(scores.state.dtype).min)
    return _masked(scores, marked, lambda: function(mask, _computed(scores), other))


def _mask_so_far(scores: Any) -> Any:  # noqa: ANN401
    mask = scores.state.mask
    return torch.zeros((), dtype=scores.state.dtype, device=scores.state.query.device) if mask is None else mask


def _masked(scores: Any, mask: Any, compute: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Return scores with a mask; None if that changes their shape."""
    shape = tuple(scores.shape)
    is_alike = tuple(torch.broadcast_shapes(mask.shape, shape)) == shape
    return Scores.of(scores.state.changed(mask=mask), compute, scores) if is_alike else None


def _softmaxed(function: Any, scores: Any, dim: int, *given: Any, **named: Any) -> Any:  # noqa: ANN401
    if not _is_open(scores) or dim not in (-1, scores.dim() - 1):
        return None
    dtype = named.get("dtype") or next((each for each in given if isinstance(each, torch.dtype)), None)
    # autocast lets softmax return FP32
    is_cast = scores.state.dtype != scores.state.query.dtype or torch.is_autocast_enabled()
    dtype = dtype or (torch.float32 if is_cast and scores.is_cuda else scores.state.dtype)
    state = scores.state.changed(is_softmax=True, dtype=dtype)
    return Scores.of(state, lambda: function(_computed(scores), dim, *given, **named), scores)


def _dropped(function: Any, weights: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: ANN401
    if not _is_open(weights, is_softmax=True) or weights.state.dropout or inplace:
        return None
    state = weights.state.changed(dropout=float(p) if training else 0.0)
    return Scores.of(state, lambda: function(_computed(weights), p, training), weights)


_TYPES = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16}


def _cast(function: Any, scores: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
    """Follow a change of the number type only: the fused call chooses its own type."""
    (dtype,) = (*given, *named.values(), *filter(None, [_TYPES.get(function.__name__)]))
    dtype = dtype.dtype if isinstance(dtype, torch.Tensor) else dtype
    is_either = type(scores) is Scores and _is_open(scores, is_softmax=scores.state.is_softmax)
    if not is_either or not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        return None
    return Scores.of(scores.state.changed(dtype=dtype), lambda: function(_computed(scores), *given, **named), scores)


def _applied(_: Any, *given: Any) -> Any:  # noqa: ANN401
    """Return the product of weights and values: attention is complete."""
    *equation, weights, values = given
    if not _is_open(weights, is_softmax=True) or type(values) not in _WITH_VALUES:
        return None
    state, order = weights.state, []
    query, key = state.query, state.key.transpose(-2, -1)
    if equation:
        first, second, result = _letters(equation[0])
        (inner,) = set(second) - set(first)
        values = values.permute(*(second.index(letter) for letter in (*first[:-2], first[-1], inner)))
        order = [(*first[:-1], inner).index(letter) for letter in result]
    is_same = values.dtype == query.dtype or _type_of_products(values) == _type_of_products(query)
    is_same = is_same and state.modes == _modes() and state.is_unchanged()
    if not is_same or values.shape[:-1] != key.shape[:-1] or not Scores.applies():
        return None
    dtype = _type_of_products(query)
    mask = None if state.mask is None else state.mask.clamp(min=torch.finfo(dtype).min).to(dtype)
    if not isinstance(state.scale, (int, float)):
        query = query * state.scale
    scale = state.scale if isinstance(state.scale, (int, float)) else 1.0
    is_flat = query.dim() < _MOST_DIMS
    if is_flat:
        query, key, values = (each.unsqueeze(0) for each in (query, key, values))
    attend = torch.nn.functional.scaled_dot_product_attention
    # `scale` exists since PyTorch 2.1
    result = attend(query, key, values, mask, state.dropout, scale=float(scale))
    result = result.squeeze(0) if is_flat else result
    return result.permute(*order) if equation else result


def _in_place(follow: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same step for an in-place operation."""

    def changed(function: Any, scores: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        if type(scores) is not Scores or scores.value is not None or scores.is_followed:
            return None
        result = follow(function, Scores.of(scores.state, scores.compute), *given, **named)
        if result is None:
            return None
        scores.state, scores.compute = result.state, result.compute
        return scores

    return changed


_STEPS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), _scaled),
    **dict.fromkeys(("mul_", "__imul__"), _in_place(_scaled)),
    **dict.fromkeys(("div", "divide", "true_divide", "__truediv__"), _divided),
    **dict.fromkeys(("div_", "__itruediv__", "__idiv__"), _in_place(_divided)),
    **dict.fromkeys(("add", "__add__", "__radd__"), _added),
    **dict.fromkeys(("add_", "__iadd__"), _in_place(_added)),
    "masked_fill": _filled,
    "masked_fill_": _in_place(_filled),
    "where": _chosen,
    "softmax": _softmaxed,
    "dropout": _dropped,
    **dict.fromkeys(("to", "type", "type_as", *_TYPES), _cast),
    **dict.fromkeys(("matmul", "bmm", "einsum", "__matmul__"), _applied),
}
"""The operations of attention, by the names of PyTorch's functions."""
