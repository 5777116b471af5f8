"""Boxes of pictures that show a whole and its parts level by level, and how much text each has room for."""

from dataclasses import dataclass, replace
from typing import Final, TypeVar

LINE: Final = 1.5
"""Height of a level in em."""
# widths of a plot in pixels, the widest last: from which one on a text is shown (templates/styles/pictures.css)
_PLOTS: Final = {"": 320.0, "wide": 660.0, "widest": 1080.0}
# in pixels: a letter of the font for code, and the room around a text
_LETTER: Final = 7.3
_AROUND: Final = 9.0
_LEAST_LETTERS: Final = 6


@dataclass(frozen=True)
class Box:
    """A part as a box: `x` and `width` in percent, `y` in em.

    kind: the name of its color; `is_series`: the color of a series of charts. name, place: what is written in it;
    `name_from` and `place_from`: the width of the picture from which on there is room for it, a key of _PLOTS.
    """

    x: float
    y: float
    width: float
    kind: str
    is_series: bool
    title: str
    name: str = ""
    place: str = ""
    name_from: str = ""
    place_from: str = ""


_Box = TypeVar("_Box", bound=Box)


def written(box: _Box, name: str, place: str) -> _Box:
    """Return a box with what there is room for: its name, and `place` after it if that fits too."""
    name_from, place_from = _room(box.width, len(name)), _room(box.width, len(name + place))
    if name_from is None:
        return box
    named = replace(box, name=name, name_from=name_from)
    return named if place_from is None else replace(named, place=place, place_from=place_from)


def cut_to_fit(box: Box, name: str) -> str:
    """Return what a box of the widest picture can hold of a name; "" if that says nothing."""
    room = int((max(_PLOTS.values()) * box.width / 100.0 - _AROUND) / _LETTER)
    return name if len(name) <= room else f"{name[: room - 1].rstrip(' _,<')}…" if room > _LEAST_LETTERS else ""


def fits(box: Box, text: str) -> bool:
    """Whether the widest picture has room for a text in a box."""
    return _room(box.width, len(text)) is not None


def _room(width: float, letters: int) -> str | None:
    """Return the narrowest plot in which a box fits this number of letters; None if there is none."""
    needed = _LETTER * letters + _AROUND
    return next((name for name, plot in _PLOTS.items() if plot * width / 100.0 >= needed), None)
