"""Boxes that show a whole and its parts level by level, and how much text fits into each box.

These are not plots: boxes are as high as a line of text, and lie inside one another instead of on axes.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from nightsight.render.figure.plot import Picture

LINE: Final = 1.5
"""Height of a level in em."""
# widths of a picture in pixels from which text is shown, the widest last (templates/styles/pictures.css)
_PICTURE_WIDTHS: Final = {"": 320.0, "wide": 660.0, "widest": 1080.0}
# in pixels: a letter of the font for code, and the margins of a text
_LETTER: Final = 7.3
_MARGINS: Final = 9.0
_LEAST_LETTERS: Final = 6


@dataclass(frozen=True)
class Box:
    """A part as a box: `x` and `width` in percent, `y` and `height` in em; `look`: CSS classes of its color.

    name, detail: the text inside; `name_from` and `detail_from`: the least width of the picture at which it fits, a key
    of _PICTURE_WIDTHS. level: 1 for the outermost, 0 if the box cannot be selected. rows: the rows of the table that it
    represents (`3-5 9`). path: the ranges, if it is a range.
    """

    x: float
    y: float
    width: float
    look: str
    title: str
    name: str = ""
    detail: str = ""
    name_from: str = ""
    detail_from: str = ""
    height: float = LINE
    is_idle: bool = False
    level: int = 0
    rows: str = ""
    path: str = ""

    def with_text(self, name: str, detail: str = "") -> "Box":
        """Return this box with as much text as fits: its name, or name and detail, or neither."""
        name_from, detail_from = self._least_picture(name), self._least_picture(name + detail)
        if name_from is None:
            return self
        if detail_from is None:
            return replace(self, name=name, name_from=name_from)
        return replace(self, name=name, name_from=name_from, detail=detail, detail_from=detail_from)

    def fits(self, text: str) -> bool:
        """Whether a text fits into this box in the widest picture."""
        return self._least_picture(text) is not None

    def cut_to_fit(self, text: str) -> str:
        """Return the part of a text that fits into this box in the widest picture; "" if that is too short to read."""
        width = max(_PICTURE_WIDTHS.values()) * self.width / 100.0
        letters = int((width - _MARGINS) / _LETTER)
        if len(text) <= letters:
            return text
        return f"{text[: letters - 1].rstrip(' _,<')}…" if letters > _LEAST_LETTERS else ""

    def _least_picture(self, text: str) -> str | None:
        """Return the narrowest picture in which a text fits into this box; None if there is none."""
        needed = _LETTER * len(text) + _MARGINS
        return next((name for name, width in _PICTURE_WIDTHS.items() if width * self.width / 100.0 >= needed), None)


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
