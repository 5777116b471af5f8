"""Arguments of operators as torch.profiler writes them, and what tensors hold."""

import json
from collections.abc import Iterable
from typing import Any

TYPES = {
    "bool": "bool",
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short int",
    "int32": "int",
    "int64": "long int",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "c10::Float8_e4m3fn",
    "complex64": "c10::complex<float>",
}


def described(*arguments: Any) -> tuple[str, str, str]:
    """Return the texts of shapes, types and inputs."""
    shapes, types, inputs = zip(*map(_described, arguments), strict=True)
    return written(shapes), written(types), written(inputs)


def written(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _described(given: Any) -> tuple[Any, str, str]:
    if given is None or isinstance(given, str):
        return [], "", ""
    if hasattr(given, "dtype"):
        return list(given.shape), TYPES[str(given.dtype).removeprefix("torch.")], ""
    if isinstance(given, list) and any(hasattr(item, "dtype") for item in given):
        return [list(item.shape) for item in given], "TensorList", ""
    if isinstance(given, list | tuple):
        return [], "ScalarList", f"[{', '.join(map(str, given))}]"
    return [], "Scalar", str(given)


def size(*values: Any) -> int:
    """Return the bytes of all tensors that have dimensions, also of those in lists."""
    return sum(each.numel() * each.element_size() for each in tensors(values) if each.dim())


def tensors(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from tensors(value)
        elif hasattr(value, "element_size"):
            yield value
