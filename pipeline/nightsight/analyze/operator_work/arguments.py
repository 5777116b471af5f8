"""The arguments of a PyTorch operator, as profilers record them: shapes, types and values, if recorded.

They are numbered as in PyTorch's declarations. Types are its own words ("c10::BFloat16"), or numbers where a type is an
argument; "2 bytes" is a type of which only the size is known.
"""

import json
import re
from collections.abc import Iterable
from math import prod
from typing import Any, Final, NamedTuple

Shape = tuple[int, ...]


class Unknown(Exception):
    """What was asked for was not recorded, or makes no sense."""


class Tensor(NamedTuple):
    """The shape and type of a tensor; "" if the type is not known.

    stored: the number of elements with separate storage, if it repeats some; -1: all.
    """

    shape: Shape
    type: str
    stored: int = -1

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        if self.type not in SIZES:
            raise Unknown
        return SIZES[self.type] * (self.elements if self.stored < 0 else self.stored)

    @property
    def fresh(self) -> "Tensor":
        """A new tensor of the same shape and type."""
        return self._replace(stored=-1)


class Arguments(NamedTuple):
    """The arguments of a call; `types`, `inputs` and `strides` are empty if they were not recorded.

    element: the type of tensors whose type was not recorded, if it is known otherwise.
    """

    operator: str
    shapes: list[Any]
    types: list[Any]
    inputs: list[Any]
    strides: list[Any]
    element: str

    def tensors(self, places: Iterable[int] | None = None) -> list[Tensor]:
        """Return those of these arguments, or of all, that have dimensions, also those in lists."""
        tensors = []
        for place in range(len(self.shapes)) if places is None else places:
            if shape := self._shape(place):
                tensors.append(self._tensor(place, shape))
            elif place < len(self.shapes):
                # a list of tensors, whose types are never recorded
                parts = (shape_of(part) for part in self.shapes[place] if isinstance(part, list))
                tensors += [Tensor(part, self.element) for part in parts if part]
        return tensors

    def tensor(self, place: int, *ranks: int) -> Tensor:
        """Return a tensor, which has to have one of these numbers of dimensions, if any are given.

        Whether an argument without dimensions is a tensor or a number, only its type tells.
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
        """Return the type of an argument in PyTorch's words, "" if not recorded."""
        given = self.types[place] if place < len(self.types) else ""
        return given if isinstance(given, str) else ""

    @property
    def first_type(self) -> str:
        """The type that an operator calculates with: the first one that is a number with a point, or else the first."""
        known = [kind for kind in self.types if isinstance(kind, str) and kind in SIZES]
        points = [kind for kind in known if category(kind) not in WHOLE_NUMBERS]
        return (points or known or [self.element])[0]

    def value(self, place: int) -> str:
        """Return the value of an argument that is not a tensor, as a text; "" for None."""
        if not place < len(self.inputs):
            raise Unknown
        given = self.inputs[place]
        return given if isinstance(given, str) else ""

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
        """Return whole numbers: a list of them, a single one, or none for None."""
        text = self.value(place)
        if not _WHOLES.fullmatch(text):
            raise Unknown
        return [int(number) for number in re.findall(r"-?\d+", text)]


_WHOLES: Final = re.compile(r"-?\d{1,18}|\[(?:-?\d{1,18}(?:, ?-?\d{1,18})*)?\]|")
# more elements than any memory holds, and more dimensions than PyTorch allows
_MOST: Final = 1 << 48
_MOST_DIMENSIONS: Final = 64


def loaded(text: str) -> list[Any]:
    """Return the list that a text holds; an empty one if nothing was recorded."""
    try:
        value = json.loads(text) if text else []
    except (ValueError, RecursionError):
        raise Unknown from None
    if not isinstance(value, list):
        raise Unknown
    return value


def shape_of(given: object) -> Shape:
    """Return a shape; one without dimensions for lists of tensors, and for other arguments."""
    if not isinstance(given, list):
        raise Unknown
    if any(isinstance(size, list) for size in given):
        return ()
    are_sizes = len(given) <= _MOST_DIMENSIONS and all(type(size) is int and 0 <= size <= _MOST for size in given)
    if not are_sizes or prod(given) > _MOST:
        raise Unknown
    return tuple(given)


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
# PyTorch's numbers of types, as arguments give them
_NUMBERED: Final = {
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
NOT_KNOWN: Final = "not known"
"""A type that was recorded, or follows from what was, but is not one of these."""
BOOLEAN, WHOLE, POINT, COMPLEX = range(4)
WHOLE_NUMBERS: Final = (BOOLEAN, WHOLE)


def category(kind: object) -> int:
    """Return the category of a type: the higher one decides about the type of a result."""
    if not isinstance(kind, str):
        return POINT
    if kind.startswith("c10::complex"):
        return COMPLEX
    if kind == "bool":
        return BOOLEAN
    return WHOLE if kind in SIZES and not kind.startswith("c10::") and kind not in ("float", "double") else POINT


def numbered(given: Arguments, place: int, otherwise: str) -> str:
    """Return the type whose number an argument is; `otherwise` if it is None."""
    numbers = given.wholes(place)
    return _NUMBERED.get(numbers[0], NOT_KNOWN) if numbers else otherwise
