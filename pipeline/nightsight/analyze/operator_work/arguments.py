"""The recorded arguments of a PyTorch operator: shapes, types and values.

Arguments are numbered as in PyTorch's declarations. Types have PyTorch's names ("c10::BFloat16"), or numbers if a type
is an argument; "2 bytes" is a type of which only the size is known.
"""

import json
import re
from collections.abc import Iterable
from math import prod
from typing import Any, Final, NamedTuple

Shape = tuple[int, ...]


class Unknown(Exception):
    """An argument was not recorded, or is not valid."""


class Tensor(NamedTuple):
    """The shape and type of a tensor; "" if the type is unknown.

    stored: the number of elements with separate storage, if it repeats some; -1: all.
    """

    shape: Shape
    type: str
    stored: int = -1

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """The size in memory."""
        if self.type not in SIZES:
            raise Unknown
        return SIZES[self.type] * (self.elements if self.stored < 0 else self.stored)

    @property
    def result(self) -> "Tensor":
        """A new tensor of the same shape and type."""
        return self._replace(stored=-1)


class Arguments(NamedTuple):
    """The arguments of a call; `types`, `inputs` and `strides` are empty if they were not recorded.

    element: the type of tensors without a recorded type, if it is known.
    """

    operator: str
    shapes: list[Any]
    types: list[Any]
    inputs: list[Any]
    strides: list[Any]
    element: str

    def tensors(self, places: Iterable[int] | None = None) -> list[Tensor]:
        """Return the tensors with dimensions among these arguments, or among all; also those in lists."""
        tensors = []
        for place in range(len(self.shapes)) if places is None else places:
            if shape := self._shape(place):
                tensors.append(self._tensor(place, shape))
            elif place < len(self.shapes):
                # the types of tensors in lists are never recorded
                parts = (shape_of(part) for part in self.shapes[place] if isinstance(part, list))
                tensors += [Tensor(part, self.element) for part in parts if part]
        return tensors

    def tensor(self, place: int, *ranks: int) -> Tensor:
        """Return a tensor; raise Unknown if it has none of these numbers of dimensions.

        Only the type shows whether an argument without dimensions is a tensor or a number.
        """
        shape = self._shape(place)
        if not (shape or self.type(place) in SIZES) or (ranks and len(shape) not in ranks):
            raise Unknown
        return self._tensor(place, shape)

    def _shape(self, place: int) -> Shape:
        return shape_of(self.shapes[place]) if place < len(self.shapes) else ()

    def _tensor(self, place: int, shape: Shape) -> Tensor:
        return Tensor(shape, self.type(place) if self.types else self.element, self._stored(place, shape))

    def _stored(self, place: int, shape: Shape) -> int:
        strides = self.strides[place] if place < len(self.strides) else None
        if not isinstance(strides, list) or len(strides) != len(shape) or 0 not in strides or 0 in shape:
            return -1
        return prod(size for size, stride in zip(shape, strides, strict=True) if stride != 0)

    def type(self, place: int) -> str:
        """Return PyTorch's name of the type of an argument; "" if not recorded."""
        type_ = self.types[place] if place < len(self.types) else ""
        return type_ if isinstance(type_, str) else ""

    @property
    def first_type(self) -> str:
        """The type that an operator computes with: the first floating-point type, else the first type."""
        recorded = [kind for kind in self.types if isinstance(kind, str) and kind in SIZES]
        points = [kind for kind in recorded if category(kind) not in WHOLE_NUMBERS]
        return (points or recorded or [self.element])[0]

    def value(self, place: int) -> str:
        """Return the value of an argument that is not a tensor as text; "" for None."""
        if not place < len(self.inputs):
            raise Unknown
        text = self.inputs[place]
        return text if isinstance(text, str) else ""

    def flag(self, place: int) -> bool:
        """Return a boolean."""
        return self.flags(place, 1)[0]

    def flags(self, place: int, count: int) -> list[bool]:
        """Return a fixed number of booleans."""
        words = re.findall(r"\w+", self.value(place))
        if len(words) != count or not {"True", "False"}.issuperset(words):
            raise Unknown
        return [word == "True" for word in words]

    def whole(self, place: int) -> int:
        """Return a whole number."""
        numbers = self.wholes(place)
        if len(numbers) != 1:
            raise Unknown
        return numbers[0]

    def wholes(self, place: int) -> list[int]:
        """Return whole numbers: those of a list, a single one, or none for None."""
        text = self.value(place)
        if not _WHOLES.fullmatch(text):
            raise Unknown
        return [int(number) for number in re.findall(r"-?\d+", text)]


_WHOLES: Final = re.compile(r"-?\d{1,18}|\[(?:-?\d{1,18}(?:, ?-?\d{1,18})*)?\]|")
# more elements than any memory holds, and more dimensions than PyTorch allows
_MOST: Final = 1 << 48
_MOST_DIMENSIONS: Final = 64


def parse_list(text: str) -> list[Any]:
    """Return the list in a text; an empty list if nothing was recorded."""
    try:
        value = json.loads(text) if text else []
    except (ValueError, RecursionError):
        raise Unknown from None
    if not isinstance(value, list):
        raise Unknown
    return value


def shape_of(argument: object) -> Shape:
    """Return a shape; without dimensions for lists of tensors, and for arguments that are not tensors."""
    if not isinstance(argument, list):
        raise Unknown
    if any(isinstance(size, list) for size in argument):
        return ()
    are_sizes = len(argument) <= _MOST_DIMENSIONS and all(type(size) is int and 0 <= size <= _MOST for size in argument)
    if not are_sizes or prod(argument) > _MOST:
        raise Unknown
    return tuple(argument)


SIZES: Final = {
    **{f"{size} bytes": size for size in (1, 2, 4, 8, 16)},
    "bool": 1,
    "unsigned char": 1,
    "signed char": 1,
    "short int": 2,
    "short": 2,
    "int": 4,
    "long int": 8,
    "long": 8,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2fnuz": 1,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "float": 4,
    "double": 8,
    "c10::complex<c10::Half>": 4,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}
# PyTorch's numbers of types in arguments
_TYPE_NUMBERS: Final = {
    0: "unsigned char",
    1: "signed char",
    2: "short int",
    3: "int",
    4: "long int",
    5: "c10::Half",
    6: "float",
    7: "double",
    8: "c10::complex<c10::Half>",
    9: "c10::complex<float>",
    10: "c10::complex<double>",
    11: "bool",
    15: "c10::BFloat16",
    23: "c10::Float8_e5m2",
    24: "c10::Float8_e4m3fn",
    25: "c10::Float8_e5m2fnuz",
    26: "c10::Float8_e4m3fnuz",
}
UNKNOWN_TYPE: Final = "not known"
"""A type that is recorded, or follows from a recorded one, but is not one of these."""
BOOLEAN, WHOLE, POINT, COMPLEX = range(4)
WHOLE_NUMBERS: Final = (BOOLEAN, WHOLE)


def category(kind: object) -> int:
    """Return the category of a type; the highest category of the arguments determines the type of the result."""
    if not isinstance(kind, str):
        return POINT
    if kind.startswith("c10::complex"):
        return COMPLEX
    if kind == "bool":
        return BOOLEAN
    return WHOLE if kind in SIZES and not kind.startswith("c10::") and kind not in ("float", "double") else POINT


def type_of_number(arguments: Arguments, place: int, default: str) -> str:
    """Return the type whose number is in an argument; `default` for None."""
    numbers = arguments.wholes(place)
    return _TYPE_NUMBERS.get(numbers[0], UNKNOWN_TYPE) if numbers else default
