"""The work of operators beside what PyTorch says: its FLOP counter, its tensors, its declarations, its traces."""

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nightsight.analyze.operator_work import formulas
from nightsight.analyze.operator_work.formulas import OperatorWork, operator_work
from nightsight.read import read
from tests.gpu.roofline import trace
from tests.properties import examples
from tests.torch_arguments import described, size, written

torch = pytest.importorskip("torch")
# parts of torch import Triton, which decides then whether its own functions are interpreted: other tests need that
with pytest.MonkeyPatch.context() as patch, suppress(ImportError):
    patch.setenv("TRITON_INTERPRET", "1")
    import_module("triton")
aten = torch.ops.aten
few = st.integers(1, 9)
bits = st.booleans()


def work(name: str, *arguments: Any) -> OperatorWork:
    counted = operator_work(f"aten::{name}", *described(*arguments))
    assert counted is not None
    return counted


def counted(name: str, *arguments: Any) -> tuple[int, Any]:
    """Return the operations that PyTorch counts, and the results."""
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415 - torch may be missing

    with FlopCounterMode(display=False) as counter:
        results = getattr(aten, name)(*arguments)
    return counter.get_total_flops(), results


def agrees(name: str, *arguments: Any) -> None:
    """Compare with PyTorch's operations, and with the bytes of its tensors."""
    flop, results = counted(name, *arguments)
    assert work(name, *arguments)[:2] == (flop, size(arguments, results))


def meta(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.empty(shape, device="meta", dtype=dtype)


@examples(25)
@given(few, few, few, few, st.sampled_from([torch.float32, torch.bfloat16, torch.float64]))
def test_products_of_matrices(batch: int, rows: int, inner: int, columns: int, dtype: Any) -> None:
    left, right = meta(rows, inner, dtype=dtype), meta(inner, columns, dtype=dtype)
    agrees("mm", left, right)
    agrees("addmm", meta(columns, dtype=dtype), left, right)
    agrees("bmm", meta(batch, rows, inner, dtype=dtype), meta(batch, inner, columns, dtype=dtype))
    added = meta(rows, columns, dtype=dtype)
    agrees("baddbmm", added, meta(batch, rows, inner, dtype=dtype), meta(batch, inner, columns, dtype=dtype))


@examples(25)
@given(few, few, few, st.sampled_from([torch.bfloat16, torch.float32]))
def test_products_in_eight_bits_give_the_type_that_is_asked_for(rows: int, inner: int, columns: int, kind: Any) -> None:
    left, right = (meta(*shape, dtype=torch.float8_e4m3fn) for shape in ((rows, inner), (inner, columns)))
    number = {torch.bfloat16: 15, torch.float32: 6}[kind]
    operator_work = work("_scaled_mm", left, right, meta(), meta(), None, None, number, False)
    assert operator_work == OperatorWork(
        2 * rows * inner * columns, size(left, right, meta(rows, columns, dtype=kind)), True, "c10::Float8_e4m3fn"
    )


@st.composite
def convolutions(draw: Any) -> tuple[Any, ...]:
    axes, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    taps = [draw(st.integers(1, 3)) for _ in range(axes)]
    data = meta(draw(st.integers(1, 3)), groups * draw(st.integers(1, 3)), *(draw(st.integers(6, 9)) for _ in taps))
    is_transposed = draw(bits)
    others = groups * draw(st.integers(1, 3))
    first, second = (data.shape[1], others // groups) if is_transposed else (others, data.shape[1] // groups)
    stride = [draw(st.integers(1, 3)) for _ in taps]
    padding, dilation = ([draw(st.integers(0, 1)) for _ in taps], [draw(st.integers(1, 2)) for _ in taps])
    beyond = [draw(st.integers(0, step - 1)) if is_transposed else 0 for step in stride]
    bias = meta(others) if draw(bits) else None
    return data, meta(first, second, *taps), bias, stride, padding, dilation, is_transposed, beyond, groups


@examples(50)
@given(convolutions())
def test_convolutions(arguments: tuple[Any, ...]) -> None:
    agrees("convolution", *arguments)


@examples(50)
@given(convolutions(), bits, bits)
def test_gradients_of_convolutions(arguments: tuple[Any, ...], of_data: bool, of_weight: bool) -> None:
    data, weight, bias, *others, groups = arguments
    gradient = aten.convolution(*arguments)
    mask = [of_data, of_weight, bias is not None]
    sizes = None if bias is None else list(bias.shape)
    given = (gradient, data, weight, sizes, *others, groups, mask)
    flop, results = counted("convolution_backward", *given)
    operator_work = work("convolution_backward", *given)
    # PyTorch's counter says that it leaves out groups: there the gradient of the weight counts for each
    assert operator_work.flop == flop or groups > 1
    points = (data if others[3] else gradient).shape[2:].numel()
    assert operator_work.flop == (of_data + of_weight) * 2 * weight.numel() * data.shape[0] * points
    read = [gradient, *[weight] * of_data, *[data] * of_weight]
    assert operator_work.data_bytes == size(read, [result for result in results if result is not None])


@st.composite
def heads(draw: Any) -> tuple[Any, Any, Any]:
    batch, number, queries, keys, depth, other = (draw(few) for _ in range(6))
    of_query, of_key, of_value = (queries, depth), (keys, depth), (keys, other)
    return tuple(meta(batch, number, *sizes, dtype=torch.bfloat16) for sizes in (of_query, of_key, of_value))


@examples(25)
@given(heads())
def test_attention(tensors: tuple[Any, Any, Any]) -> None:
    query, key, _ = tensors
    flop, (result, *_) = counted("_scaled_dot_product_efficient_attention", *tensors, None, False)
    sums = torch.empty(query.shape[:3], device="meta")
    expected = (flop, size(tensors, result))
    assert work("_scaled_dot_product_efficient_attention", *tensors, None, False, 0.0, False, None)[:2] == expected
    with_sums = (flop, size(tensors, result, sums))
    assert work("_scaled_dot_product_flash_attention", *tensors, 0.0, False, False, None)[:2] == with_sums
    assert work("_scaled_dot_product_cudnn_attention", *tensors, None, True, 0.0, False, False, None)[:2] == with_sums
    turned = [tensor.transpose(1, 2) for tensor in tensors]
    of_lengths = (None, None, query.shape[2], key.shape[2])
    assert work("_flash_attention_forward", *turned, *of_lengths, 0.0, False, False, None)[:2] == with_sums
    assert work("_efficient_attention_forward", *turned, None, *of_lengths, 0.0, 0, False, None)[:2] == expected


@examples(25)
@given(heads())
def test_gradients_of_attention(tensors: tuple[Any, Any, Any]) -> None:
    from torch.utils.flop_counter import sdpa_backward_flop_count  # noqa: PLC0415 - torch may be missing

    query, key, value = tensors
    result = meta(*query.shape[:3], value.shape[3], dtype=torch.bfloat16)
    sums, empty = torch.empty(query.shape[:3], device="meta"), meta(0)
    flop = sdpa_backward_flop_count(result.shape, query.shape, key.shape, value.shape)
    expected = (flop, size(result, result, sums, tensors, tensors))
    last = (query.shape[2], key.shape[2], 0.0, False)
    name = "_scaled_dot_product_flash_attention_backward"
    assert work(name, result, *tensors, result, sums, None, None, *last, empty, empty, None)[:2] == expected
    name = "_scaled_dot_product_cudnn_attention_backward"
    assert work(name, result, *tensors, result, sums, empty, empty, None, None, None, *last, None)[:2] == expected
    name = "_scaled_dot_product_efficient_attention_backward"
    mask = [True, True, True, False]
    assert work(name, result, *tensors, None, result, sums, empty, empty, 0.0, mask, False, None)[:2] == expected


@examples(25)
@given(few, few)
def test_a_causal_attention_does_no_more_than_its_mask_lets_through(queries: int, keys: int) -> None:
    query, key = meta(2, 3, queries, 8), meta(2, 3, keys, 8)
    pairs = int(torch.ones(queries, keys).tril().sum())
    name = "_scaled_dot_product_efficient_attention"
    assert work(name, query, key, key, None, False, 0.0, True, None).flop == 2 * 3 * pairs * (8 + 8) * 2
    assert work(name, query, key, key, None, False, 0.0, False, None).flop == 2 * 3 * queries * keys * (8 + 8) * 2


def test_sequences_of_different_lengths_in_one_tensor_are_known_by_their_bytes_only() -> None:
    packed, ends = meta(40, 2, 8), meta(5, dtype=torch.int32)
    operator_work = work("_flash_attention_forward", packed, packed, packed, ends, ends, 16, 16, 0.0, True, False, None)
    assert operator_work[:2] == (None, size([packed] * 4, [ends] * 2) + 40 * 2 * 4)


def test_what_strides_say_is_repeated_counts_once() -> None:
    texts = described(value(4, 6), value(4, 6), 1)
    for strides, elements in (([6, 1], 24), ([0, 1], 6), ([1, 0], 4), ([0, 0], 1), ([0], 24), (None, 24)):
        work = operator_work("aten::add", *texts, written([strides, [6, 1], []]))
        assert work == OperatorWork(None, 4 * (elements + 24 + 24), False, "float")
    work = operator_work("aten::_softmax", *described(value(4, 6), -1, False), "[[0,1],[],[]]")
    assert work is not None
    assert work.data_bytes == 4 * (6 + 24)


def test_a_mask_can_be_smaller_than_its_shape_so_bytes_are_not_known() -> None:
    query = meta(2, 3, 8, 4)
    bias = meta(1, 1, 8, 8).expand(2, 3, 8, 8)
    counted = work("_scaled_dot_product_efficient_attention", query, query, query, bias, False, 0.0, False, None)
    assert counted.flop == 2 * 2 * 3 * 64 * 8
    assert counted.data_bytes is None
    texts = described(query, query, query, bias, False, 0.0, False, None)
    strides = written([[96, 32, 4, 1]] * 3 + [[0, 0, 8, 1]] + [[]] * 4)
    known = operator_work("aten::_scaled_dot_product_efficient_attention", *texts, strides)
    assert known is not None
    assert known.data_bytes == size([query] * 4) + 64 * 4


# -- bytes: those of the tensors that go in and come out ---------------------------------------------------------------

KINDS = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


def value(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.ones(shape, dtype=dtype)


@examples(50)
@given(
    st.sampled_from(["add", "mul", "div", "eq", "maximum", "pow"]),
    st.sampled_from(KINDS),
    st.sampled_from(KINDS),
    bits,
)
def test_elementwise_arithmetic_gives_what_types_and_shapes_promise(
    name: str, first: Any, second: Any, is_broadcast: bool
) -> None:
    left = value(4, 6, dtype=first)
    right = value(1 if is_broadcast else 4, 6, dtype=second)
    if name in ("pow", "maximum") and torch.bool in (first, second):
        return
    extra = (1,) if name == "add" else ()
    operator_work = work(name, left, right, *extra)
    result = getattr(aten, name)(left, right)
    # a quotient of whole numbers is one with a point, and two kinds of halves become single precision
    assume(result.dtype in (first, second, torch.bool))
    assert operator_work[:2] == (None, size(left, right, result))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("add_", (value(4, 6), value(6), 1)),
        ("mul", (value(4, 6), 2.0)),
        ("add", (value(4, 6, dtype=torch.int64), 1, 1)),
        ("add", (value(4, 1), value(1, 6), 1)),
        ("gelu", (value(4, 6), "none")),
        ("gelu_backward", (value(4, 6), value(4, 6), "none")),
        ("threshold_backward", (value(4, 6), value(4, 6), 0)),
        ("lerp", (value(4, 6), value(4, 6), 0.5)),
        ("addcmul", (value(4, 6), value(4, 6), value(6))),
        ("where", (value(4, 6, dtype=torch.bool), value(4, 6), value(1, 6))),
        ("masked_fill", (value(4, 6), value(4, 6, dtype=torch.bool), 0.0)),
        ("clamp", (value(4, 6), 0.0, 1.0)),
        ("isnan", (value(4, 6),)),
        ("native_dropout_backward", (value(4, 6), value(4, 6, dtype=torch.bool), 2.0)),
        ("sum", (value(4, 6), None, False, None)),
        ("mean", (value(4, 6), None, False, None)),
        ("cumsum", (value(4, 6), 0, None)),
        ("_softmax", (value(4, 6), -1, False)),
        ("_softmax_backward_data", (value(4, 6), value(4, 6), -1, torch.float32)),
        ("mv", (value(4, 6), value(6))),
        ("mse_loss", (value(4, 6), value(4, 6), 0)),
    ],
)
def test_every_input_is_read_once_and_every_output_written_once(name: str, arguments: tuple[Any, ...]) -> None:
    numbers = {torch.float32: 6}
    words = [numbers.get(given, given) if isinstance(given, torch.dtype) else given for given in arguments]
    results = called(name, *(given.clone() if hasattr(given, "clone") else given for given in arguments))
    assert work(name, *words)[:2] == (48 if name == "mv" else None, size(arguments, results))


def called(name: str, *arguments: Any) -> Any:
    """Call the overload that takes these arguments, also those that can only be named."""
    for overload in getattr(aten, name).overloads():
        declared = getattr(getattr(aten, name), overload)._schema.arguments
        if len(declared) < len(arguments):
            continue
        named = {each.name: value for each, value in zip(declared, arguments, strict=False) if each.kwarg_only}
        plain = arguments[: len(arguments) - len(named)]
        try:
            return getattr(getattr(aten, name), overload)(*plain, **named)
        except (RuntimeError, TypeError):
            continue
    raise AssertionError(f"no overload of {name}")


def moved(name: str, *arguments: Any, element: str = "") -> int | None:
    work = operator_work(f"aten::{name}", *described(*arguments), element=element)
    assert work is not None
    assert work.flop is None
    return work.data_bytes


def test_what_only_writes_or_picks_does_not_read_all() -> None:
    data, index = value(10, 6), torch.zeros(7, dtype=torch.int64)
    assert moved("copy_", data, value(6, dtype=torch.float16), False) == 240 + 12
    assert moved("fill_", data, 1.0) == 240
    assert moved("normal_", data, 0.0, 1.0, None) == 240
    assert moved("index_select", data, 0, index) == 56 + 2 * 7 * 6 * 4
    assert moved("gather", data, 1, torch.zeros(10, 2, dtype=torch.int64), False) == 160 + 2 * 80
    chosen = torch.zeros(10, 2, dtype=torch.int64)
    assert moved("scatter_add_", data, 1, chosen, value(10, 2)) == 160 + 3 * 80
    assert moved("scatter_", data, 1, chosen, 1.0) == 160 + 80
    assert moved("index_add_", data, 0, index, value(7, 6), 1) == 56 + 3 * 168
    assert moved("embedding_dense_backward", value(7, 6), index, 10, -1, False) == 56 + 168 + 240


def test_results_that_are_much_smaller_do_not_count() -> None:
    data, weight, kept = value(4, 6), value(6), value(4, 1)
    assert moved("sum", data, [1], False, None) == size(data)
    assert moved("native_layer_norm", data, [6], weight, weight, 1e-5) == size(data, data, weight, weight)
    moved_bytes = moved("native_layer_norm_backward", data, data, [6], kept, kept, weight, weight, [True, True, True])
    assert moved_bytes == size([data] * 3, [kept] * 2, [weight] * 2)
    image, channels = value(2, 4, 3, 3), value(4)
    assert moved("native_group_norm", image, channels, channels, 2, 4, 9, 2, 1e-5) == size([image] * 2, [channels] * 2)
    moved_bytes = moved("native_batch_norm", image, *[channels] * 4, True, 0.1, 1e-5)
    assert moved_bytes == size([image] * 2, [channels] * 4)


def test_lists_of_tensors_are_summed_if_the_type_of_their_elements_is_known() -> None:
    parts = [value(3, 4), value(5)]
    assert moved("_foreach_add_", parts, parts, 1.0) is None
    assert moved("_foreach_add_", parts, parts, 1.0, element="float") == 3 * 17 * 4
    assert moved("_foreach_mul", parts, 2.0, element="float") == 2 * 17 * 4
    assert moved("_foreach_copy_", parts, parts, False, element="float") == 2 * 17 * 4
    assert moved("cat", parts, 0, element="2 bytes") == 2 * 17 * 2
    steps, settings = [value()] * 2, (0.001, 0.9, 0.999, 0.01, 1e-8, False, False, None, None)
    assert moved("_fused_adamw_", *[parts] * 4, [], steps, *settings, element="float") == 7 * 17 * 4
    sgd: tuple[Any, ...] = (parts, parts, [], 0.0, 0.0, 0.1, 0.0, False, False, True, None, None)
    assert moved("_fused_sgd_", *sgd, element="float") == 3 * 17 * 4


def test_where_arguments_have_different_elements_types_have_to_be_recorded() -> None:
    def bytes_of(name: str, *arguments: Any) -> int | None:
        shapes, _, inputs = described(*arguments)
        work = operator_work(f"aten::{name}", shapes, "", inputs, element="float")
        assert work is not None
        return work.data_bytes

    data, mask, index = value(4, 6), value(4, 6, dtype=torch.bool), torch.zeros(4, dtype=torch.int64)
    assert bytes_of("add", data, data, 1) == size([data] * 3)
    assert bytes_of("masked_fill", data, mask, 0.0) is None
    assert bytes_of("masked_fill_", data, mask, 0.0) is None
    assert bytes_of("index_select", data, 0, index) is None
    assert bytes_of("embedding_dense_backward", data, index, 10, -1, False) is None


# -- PyTorch's declarations --------------------------------------------------------------------------------------------

PLACES = {
    "causal": {"is_causal", "custom_mask_type"},
    "bias": {"attn_bias", "bias", "attn_mask"},
    "lengths": {"cum_seq_q", "cu_seqlens_q"},
    "statistics": {"compute_log_sumexp"},
    "stride": {"stride"},
    "padding": {"padding"},
    "dilation": {"dilation"},
    "transposed": {"transposed"},
    "output_padding": {"output_padding"},
    "groups": {"groups"},
}


def test_arguments_stand_where_pytorch_declares_them() -> None:
    checked = 0
    for name, formula in formulas._FORMULAS.items():
        fields = getattr(formula, "__dataclass_fields__", {})
        declared = [arguments_of(overload) for overload in overloads(name)]
        for field in set(fields) & set(PLACES):
            place = getattr(formula, field)
            if place is not None:
                fits = [names[place] in PLACES[field] for names in declared if len(names) > place]
                assert any(fits), (name, field, place)
                checked += 1
    assert checked >= 70


def overloads(name: str) -> list[Any]:
    packet = getattr(aten, name) if hasattr(aten, name) else getattr(aten, name.removesuffix("_"))
    return [getattr(packet, overload) for overload in packet.overloads()]


def arguments_of(overload: Any) -> list[str]:
    return [argument.name for argument in overload._schema.arguments]


def test_every_operator_that_is_known_exists() -> None:
    # not all have a variant in place
    names = {name if hasattr(aten, name) else name.removesuffix("_") for name in formulas._FORMULAS}
    assert [name for name in names if not hasattr(aten, name)] == []


# -- traces ------------------------------------------------------------------------------------------------------------


def test_a_trace_gives_the_work_of_what_ran(tmp_path: Path) -> None:
    data, weight, bias = torch.randn(8, 16), torch.randn(32, 16), torch.randn(32)
    image, taps = torch.randn(2, 4, 9, 9), torch.randn(6, 2, 3, 3)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        product = torch.nn.functional.linear(data, weight, bias)
        image_out = torch.nn.functional.conv2d(image, taps, stride=2, padding=1, groups=2)
        product.sum(dim=1, keepdim=True)
        half = data.to(torch.bfloat16)
        more = half * half
        torch.nn.functional.layer_norm(data, (16,), weight[0], weight[1])
        torch.softmax(data, -1)
        torch.neg(bias[:16].expand(8, 16))
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    columns = ["name", "shapes", "types", "inputs", "strides"]
    calls: Any = read(tmp_path / "trace.json").table("cpu_ops")[columns].astype("str").to_numpy().tolist()
    works = {name: work for name, *texts in calls if (work := operator_work(name, *texts))}
    assert works["aten::addmm"] == OperatorWork(2 * 8 * 16 * 32, size(data, weight, bias, product), True, "float")
    flop = 2 * taps.numel() * 2 * image_out.shape[2:].numel()
    assert works["aten::convolution"] == OperatorWork(flop, size(image, taps, image_out), True, "float")
    assert works["aten::sum"] == OperatorWork(None, size(product), False, "float")
    assert works["aten::copy_"] == OperatorWork(None, size(data, half), False, "c10::BFloat16")
    assert works["aten::mul"] == OperatorWork(None, size(half, half, more), False, "c10::BFloat16")
    assert works["aten::native_layer_norm"] == OperatorWork(None, size(data, data, weight[:2]), False, "float")
    # what is repeated is read once
    assert works["aten::neg"] == OperatorWork(None, size(bias[:16], data), False, "float")
    assert works["aten::_softmax"] == OperatorWork(None, size(data, data), False, "float")


@pytest.mark.nightly
def test_the_program_for_a_gpu_host_runs_what_is_known(tmp_path: Path) -> None:
    trace(tmp_path / "trace.json", "cpu", scale=64)
    columns = ["name", "shapes", "types", "inputs", "strides"]
    calls: Any = read(tmp_path / "trace.json").table("cpu_ops")[columns].astype("str").drop_duplicates().to_numpy()
    works = {name: work for name, *texts in calls.tolist() if (work := operator_work(name, *texts, element="float"))}
    assert {"aten::mm", "aten::bmm", "aten::addmm", "aten::convolution_backward", "aten::cat"} <= works.keys()
    assert {"aten::native_layer_norm_backward", "aten::_softmax", "aten::gelu", "aten::_foreach_add_"} <= works.keys()
    assert all(work.is_product == (work.flop is not None) and work.data_bytes is not None for work in works.values())
