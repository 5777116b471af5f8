"""What a table looks like to a reader: short names, one unit per column, and which rows are shown.

Everything here is finished text and finished numbers; templates only place it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nightsight.events.kernel_names import normalised, unqualified
from nightsight.results import Jump, Names
from nightsight.units import ABSENT, Scale, format_cell, heading, scale_for, split

ROWS: Final = 50
MOST_ROWS: Final = 5_000
"""Rows of a table that a page can hold; those after the first few are in its compressed block."""
NAME_LENGTH: Final = 90
_TEXT_LENGTH: Final = 120
NO_NAME: Final = "(no name)"

Floats = npt.NDArray[np.float64]

# controls, lone surrogates, and the marks that turn the direction of the text around them
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_PARAMETERS: Final = re.compile(r"\([^()]*\)")
_LAMBDA: Final = re.compile(r"(?:::)?\[lambda[^\]]*\]|(?:::)?\{lambda[^}]*\}(?:#\d+)?")
_QUALIFIERS: Final = re.compile(r"<unnamed>::|\(anonymous namespace\)::|\b[A-Za-z_]\w*::")
_OPERATOR: Final = re.compile(r"::operator\s*(?:const)?(?=::|[>,\s]|$)")
_LEFTOVERS: Final = re.compile(r"\bvoid\s+(?=\w)|\s+(?=[,>])|(?<=[<\s])::")
_WORD: Final = re.compile(r"[^\W_]+|_|\W")
_HALF_AT_END: Final = re.compile(r"(?<=[_,<> ])[^_,<> ]{1,12}$")
_HALF_AT_START: Final = re.compile(r"^[^_,<> ]{1,12}(?=[_,<> ])")
_NESTING: Final = (9, 3, 2, 1)  # levels of template arguments to try to keep


@dataclass(frozen=True)
class Column:
    """A heading, with the unit that all its cells share.

    name: the column's name with its unit as suffix, for exports. scale: None for text. largest: what a full bar stands
    for, 0 where there are no bars. is_minor: on a screen with scripts it is shown on request.
    """

    title: str
    unit: str = ""
    is_number: bool = True
    name: str = ""
    scale: Scale | None = None
    largest: float = 0.0
    is_minor: bool = False


@dataclass(frozen=True)
class Cell:
    """One value as text; `share` (0 to 100) draws a bar under it, `full` is the name that `text` shortens."""

    text: str
    full: str = ""
    share: float | None = None
    href: str = ""


@dataclass(frozen=True)
class Row:
    """A row: what it is about, how deep it is nested, and its values."""

    name: Cell
    cells: tuple[Cell, ...]
    level: int = 0


@dataclass(frozen=True)
class TableView:
    """A table as it is printed; `more` says what was left out, a folded one opens on request.

    whole: all rows, for the page to hold beside those printed; None where these are all. name: what the table is
    called in the page and in files made from it. timeline, names: what its rows are in the timeline, and what their
    names are. has_details: the first column's full texts add to the short ones and do not repeat them.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    more: str = ""
    is_folded: bool = False
    name: str = ""
    timeline: Jump = ""
    names: Names = ""
    has_details: bool = False
    whole: "Whole | None" = field(default=None, compare=False, repr=False)


def name_cell(name: str, shorten: Callable[[str], str]) -> Cell:
    """Return a cell with the short form of `name`, and the full one where that differs."""
    short, full = shorten(name), printable(name)
    return Cell(short, full if full != short else "")


def printable(text: object) -> str:
    """Make text of any origin safe to lay out: one line, no controls, no change of direction, not empty."""
    if not isinstance(text, str):
        # a missing one
        return NO_NAME
    text = _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", re.sub(r"[\t\n\r]+", " ", text)).strip()
    return text or NO_NAME


def short_name(name: str, length: int = NAME_LENGTH) -> str:
    """Shorten a C++ kernel name: no return type, namespaces, parameter list, and fewer inner template arguments."""
    text = _readable(name)
    shorter = [_without_inner_arguments(text, nesting) for nesting in _NESTING]
    return _word_cut(next((form for form in shorter if len(form) <= length), shorter[-1]), length)


def _readable(name: str) -> str:
    """Return a kernel's name as people say it, with all of its template arguments."""
    plain = printable(name)
    text = _until_stable(_PARAMETERS, unqualified(plain))
    # names that are not C++, or are cut off, still have their namespaces
    for pattern in (_OPERATOR, _LAMBDA, _QUALIFIERS, _LEFTOVERS):
        text = pattern.sub("", text)
    text = re.sub(r",(?=\S)", ", ", re.sub(r"\s+", " ", text)).strip()
    return text if re.search(r"\w", text) else plain


class Labels:
    """Short forms of the kernels' names that are on one page: where kernels differ, so do their labels of a length.

    nsys and ncu spell one kernel in two ways, which have one label.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._kernels: dict[str, list[str]] = {}
        for name in dict.fromkeys(names):
            self._kernels.setdefault(normalised(name), []).append(name)
        self._made: dict[int, dict[str, str]] = {}

    def short(self, name: str, length: int = NAME_LENGTH) -> str:
        """Shorten a name; the number of a replay before it stays."""
        if length not in self._made:
            labels = _told_apart([spelt[0] for spelt in self._kernels.values()], length)
            of_all = ((spelt, labels[spelt[0]]) for spelt in self._kernels.values())
            self._made[length] = {each: label for spelt, label in of_all for each in spelt}
        number, dot, rest = name.partition(". ")
        if not (dot and number.isdecimal()):
            return self._made[length].get(name) or short_name(name, length)
        return f"{number}. {self._made[length].get(rest) or short_name(rest, length)}"


def _told_apart(names: Sequence[str], length: int) -> dict[str, str]:
    """Shorten names; those that would read the same have what differs in the place of what is alike."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(short_name(name, length), []).append(name)
    labels = {short: alike[0] for short, alike in groups.items() if len(alike) == 1}
    for alike in (alike for alike in groups.values() if len(alike) > 1):
        for name, words in zip(alike, _differing(alike), strict=True):
            label = _around(name, words, length)
            # what differs may itself be too long, or be nothing that is readable
            tries = (f"{label[: length - 4]} #{number}" for number in range(2, len(names) + 2))
            labels[next(text for text in (label, *tries) if text not in labels)] = name
    return {name: label for label, name in labels.items()}


def _differing(names: Sequence[str]) -> list[str]:
    """Return of each name the words that not all have, or else those between the ends that all have."""
    texts = [_readable(name) for name in names]
    if len(set(texts)) < len(texts):  # namespaces or parameters tell them apart
        texts = [printable(name) for name in names]
    words = [_WORD.findall(text) for text in texts]
    common = frozenset[str].intersection(*map(frozenset, words))
    own = ["_".join(word for word in each if word not in common) for each in words]
    if len(set(own)) == len(own) and all(own):
        return own
    most = min(map(len, words))
    first = next((at for at in range(most) if len({each[at] for each in words}) > 1), most)
    last = next((at for at in range(most - first) if len({each[-1 - at] for each in words}) > 1), most - first)
    return ["".join(each[first : len(each) - last]).strip("_, ") for each in words]


def _around(name: str, words: str, length: int) -> str:
    """Write the beginning of a short name, and the words that tell it from others."""
    words = middle_cut(words, length - length // 5 - 2)
    return f"{_HALF_AT_END.sub('', short_name(name, 10 * length)[: length - len(words) - 2])}…{words}…"


def counted(number: float, noun: str) -> str:
    """Write a number of things: `1 kernel`, `1,224 kernels`, `2 copies`, `3 launches`."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}{'es' if noun.endswith('ch') else 's'}"
    return f"{number:,.0f} {noun}"


def middle_cut(text: str, length: int) -> str:
    """Cut the middle out of a text that is longer than `length`."""
    if len(text) <= length:
        return text
    tail = (length - 1) // 2
    return f"{text[: length - 1 - tail]}…{text[len(text) - tail :]}"


def short_text(text: str) -> str:
    """Return printable text, of a length that fits a table."""
    return middle_cut(printable(text), _TEXT_LENGTH)


def texts_of(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return name and value pairs fit to print, without the empty ones."""
    return tuple((printable(name), printable(value)) for name, value in values.items() if value)


def _unchanged(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


@dataclass(frozen=True)
class Layout:
    """How one kind of table is shown.

    noun: what its rows are, in the plural. header: the heading of the first column, which shows column `name`.
    full: the column that says more about each name, "" for the name itself where that is shortened. bars: columns with
    a bar in each cell. minor: columns to show on request, of a table that is too wide. most: the number of rows
    printed. `prepare` rearranges the frame before. is_folded: a chart says the same. timeline, names: see TableView.
    others: how names in columns but the first are shortened. numbered: the column whose texts begin with the number of
    a replay. kernels: the columns that hold names of kernels, and how long those may be (`labelled`).
    """

    noun: str
    header: str = "Name"
    name: str = "name"
    full: str = ""
    bars: tuple[str, ...] = ()
    minor: tuple[str, ...] = ()
    most: int = ROWS
    prepare: Callable[[pd.DataFrame], pd.DataFrame] = _unchanged
    shorten: Callable[[str], str] = short_text
    is_folded: bool = False
    timeline: Jump = ""
    names: Names = ""
    others: Mapping[str, Callable[[str], str]] = field(default_factory=dict, hash=False)
    numbered: str = ""
    kernels: Mapping[str, int] = field(default_factory=dict, hash=False)

    def labelled(self, labels: Labels) -> "Layout":
        """Shorten names of kernels so that those of the page are told apart."""
        of_kernels = {name: partial(labels.short, length=length) for name, length in self.kernels.items()}
        return replace(self, shorten=of_kernels.pop(self.name, self.shorten), others={**self.others, **of_kernels})


@dataclass(frozen=True, eq=False)
class Whole:
    """All rows of a table: the prepared frame (first MOST_ROWS rows), how many there are, and how they are shown."""

    frame: pd.DataFrame
    count: int
    layout: Layout


def table_view(frame: pd.DataFrame, layout: Layout, *, caption: str, name: str = "") -> TableView:
    """Show the first rows of `frame`; the column `level`, if there is one, indents them."""
    frame = layout.prepare(frame)
    whole = Whole(frame.head(MOST_ROWS), len(frame), layout)
    shown = frame.head(layout.most)
    values = [name for name in frame.columns if name not in (layout.name, layout.full, "level")]
    columns = [
        replace(_column(whole.frame[name], with_bars=name in layout.bars), is_minor=name in layout.minor)
        for name in values
    ]
    levels = shown["level"].tolist() if "level" in shown else [0] * len(shown)
    texts = [_cells(shown[column.name], column, layout.others.get(column.name, short_text)) for column in columns]
    cells = list(zip(*texts, strict=True)) if columns else [()] * len(shown)
    rows = tuple(Row(*row) for row in zip(_names(shown, layout), cells, map(int, levels), strict=True))
    return TableView(
        caption,
        (Column(layout.header, is_number=False, name=layout.name), *columns),
        rows,
        left_out(layout.most, len(frame), layout.noun),
        layout.is_folded,
        name,
        layout.timeline,
        layout.names,
        bool(layout.full),
        whole,
    )


def _names(frame: pd.DataFrame, layout: Layout) -> list[Cell]:
    names = frame[layout.name].astype("str")
    if layout.full not in frame:
        return [name_cell(name, layout.shorten) for name in names]
    texts = frame[layout.full].astype("str")
    return [Cell(layout.shorten(name), printable(text)) for name, text in zip(names, texts, strict=True)]


def floats(column: "pd.Series[Any]") -> Floats:
    """Return a column as floats, NaN for what is not there."""
    return pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)


def operation_names(frame: pd.DataFrame) -> "pd.Series[str]":
    """Name memory operations by direction and kinds of memory: `Host-to-Device, Pageable → Device`."""
    operation = frame["operation"].astype("str")
    source, target = (_known(frame[name]) for name in ("source_kind", "target_kind"))
    kinds = source.where(target == "", source + " → " + target).where(source != "", target)
    return operation.where(kinds == "", operation + ", " + kinds)


def _known(kinds: "pd.Series[str]") -> "pd.Series[str]":
    texts = kinds.astype("str")
    return texts.where(texts != "Unknown", "")


def is_numeric(column: "pd.Series[Any]") -> bool:
    """Tell numbers from text; a column with a unit is numbers even if all are missing."""
    return bool(split(str(column.name))[1]) or pd.api.types.is_numeric_dtype(column.dtype)


def _until_stable(pattern: re.Pattern[str], text: str) -> str:
    """Remove what `pattern` finds, innermost first, until nothing is left to find."""
    count = 1
    while count:
        text, count = pattern.subn("", text)
    return text


def _word_cut(text: str, length: int) -> str:
    """Cut the middle out as `middle_cut` does, and a little more where that spares the reader halves of words."""
    head, cut, tail = middle_cut(text, length).partition("…")
    return f"{_HALF_AT_END.sub('', head)}…{_HALF_AT_START.sub('', tail)}" if cut else head


def _without_inner_arguments(text: str, nesting: int) -> str:
    """Drop template arguments below `nesting` levels; a name whose brackets do not match stays as it is."""
    kept: list[str] = []
    depth = 0
    for character in text:
        depth += character == "<"
        if depth <= nesting:
            kept.append(character)
        depth -= character == ">"
        if depth < 0:
            return text
    return text if depth else "".join(kept)


def _column(column: "pd.Series[Any]", *, with_bars: bool) -> Column:
    """Choose the unit and digits of a column."""
    name = str(column.name)
    title, unit = heading(name), split(name)[1]
    if not is_numeric(column):
        return Column(title, is_number=False, name=name)
    scale = scale_for(unit, floats(column))
    return Column(title, scale.symbol, name=name, scale=scale, largest=_largest(column) if with_bars else 0.0)


def _cells(values: "pd.Series[Any]", column: Column, shorten: Callable[[str], str]) -> list[Cell]:
    if column.scale is None:
        known = values.astype(object).where(values.notna(), "")
        return [Cell(shorten(str(text)) if text else ABSENT) for text in known]
    numbers = floats(values)
    texts = [format_cell(value, column.name, scale=column.scale) for value in numbers]
    if not column.largest:
        return [Cell(text) for text in texts]
    shares = (100.0 * numbers / column.largest).clip(0, 100).round(2).tolist()
    # no bar is not an empty one
    bars = (share if np.isfinite(share) else None for share in shares)
    return [Cell(text, share=bar) for text, bar in zip(texts, bars, strict=True)]


def _largest(column: "pd.Series[Any]") -> float:
    """Return what a full bar stands for: all of it for a share, else the column's largest value."""
    if str(column.name).endswith("_pct"):
        return 100.0
    values = floats(column)
    return float(np.nanmax(values)) if np.isfinite(values).any() else 0.0


def left_out(shown: int, count: int, noun: str) -> str:
    """Say which rows of a table are shown, "" if all are."""
    if count <= shown:
        return ""
    return f"The first {shown:,} of {count:,} {noun}. The JSON and CSV forms of this report have all of them."
