"""Pictures that show a whole and its parts level by level as boxes, and how much text each box has room for.

These are not plots: boxes are as high as a line of text, and lie in one another instead of on axes.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from nightsight.render.figure.plot import Picture

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
    """A part as a box: `x` and `width` in percent, `y` and `height` in em; `look`: CSS classes of its color.

    name, place: what is written in it; `name_from` and `place_from`: the width of the picture from which on there is
    room for it, a key of _PLOTS. level: 1 for the outermost, 0 if the box cannot be chosen. rows: those of the table
    that it represents (`3-5 9`). path: the ranges, if it is one.
    """

    x: float
    y: float
    width: float
    look: str
    title: str
    name: str = ""
    place: str = ""
    name_from: str = ""
    place_from: str = ""
    height: float = LINE
    is_idle: bool = False
    level: int = 0
    rows: str = ""
    path: str = ""


@dataclass(frozen=True)
class Tree:
    """The boxes of one whole; `height` in em, `summary` describes them in words."""

    heading: str
    boxes: tuple[Box, ...]
    height: float
    summary: str
    aside: str = ""


@dataclass(frozen=True, kw_only=True)
class Boxes(Picture):
    """Several wholes, each a tree of boxes; `kind`: their CSS classes."""

    layout: ClassVar = "boxes"
    kind: str
    trees: tuple[Tree, ...]


def written(box: Box, name: str, place: str) -> Box:
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
