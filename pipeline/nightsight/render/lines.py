"""Cuts, wraps and aligns text for terminals by its width in cells.

A Chinese character is two cells wide and an accent zero, so `len` would misalign columns.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from nightsight.texts import printable

_ELLIPSIS: Final = "…"
# a number stays with its unit
_WORDS: Final = re.compile(
    r"[(<+~]*[\N{MINUS SIGN}\d][\d,.]* (?:%|[nµm]?s|[kMGT]?(?:B(?:/s)?|Hz|(?:FL)?OP(?:/s)?))(?!\w)\S*|\S+"
)


def cut(text: object, width: int) -> str:
    """Return printable text of at most `width` cells; longer text loses its middle."""
    plain = printable(text)
    if cell_len(plain) <= width:
        return plain
    if width < 2:
        return _ELLIPSIS[:width]
    half = (width - 1) // 2
    # set_cell_size cuts off the end, so the beginning is cut off the reversed text
    end = set_cell_size(plain[::-1], half)[::-1].lstrip(" ")
    return f"{set_cell_size(plain, width - 1 - half).rstrip(' ')}{_ELLIPSIS}{end}"


def clip(text: object, width: int) -> str:
    """Return printable text of at most `width` cells; longer text loses its end."""
    plain = printable(text)
    return plain if cell_len(plain) <= width else f"{set_cell_size(plain, width - 1).rstrip(' ')}{_ELLIPSIS}"


def wrap(text: str, width: int, *, indent: str = "  ") -> Iterator[str]:
    """Yield printable text in lines of at most `width` cells; all but the first begin with `indent`."""
    line, start = "", ""
    for word in _WORDS.findall(printable(text)):
        if line and cell_len(start) + cell_len(line) + 1 + cell_len(word) > width:
            yield f"{start}{line}"
            line, start = "", indent
        line = f"{line} {word}" if line else cut(word, width - cell_len(start))
    yield f"{start}{line}"


def align(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """Return rows of cells as lines with columns, two spaces apart; `right`: the columns that are aligned right."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        padded = (
            f"{' ' * (width - cell_len(text))}{text}" if index in right else f"{text}{' ' * (width - cell_len(text))}"
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(padded).rstrip())
    return lines
