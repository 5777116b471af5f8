"""Tables ready to print: shortened names, one unit per column, and the rows to show.

All texts and numbers are final here; templates only place them.
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
"""How many rows of a table a page can hold; the first few are printed, the others are in its compressed block."""
NAME_LENGTH: Final = 90
_TEXT_LENGTH: Final = 120
NO_NAME: Final = "(no name)"

Floats = npt.NDArray[np.float64]

# control characters, lone surrogates, and marks that change the direction of surrounding text
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
# innermost parentheses: `_until_stable` removes them repeatedly, from the inside out
_PARAMETERS: Final = re.compile(r"\([^()]*\)")
# the two ways in which compilers name lambdas
_LAMBDA: Final = re.compile(r"(?:::)?\[lambda[^\]]*\]|(?:::)?\{lambda[^}]*\}(?:#\d+)?")
# namespaces and classes in front of a name
_QUALIFIERS: Final = re.compile(r"<unnamed>::|\(anonymous namespace\)::|\b[A-Za-z_]\w*::")
_OPERATOR: Final = re.compile(r"::operator\s*(?:const)?(?=::|[>,\s]|$)")
# what can remain after the removals above: a return type, spaces, a leading `::`
_LEFTOVERS: Final = re.compile(r"\bvoid\s+(?=\w)|\s+(?=[,>])|(?<=[<\s])::")
_WORD: Final = re.compile(r"[^\W_]+|_|\W")
# a piece of a word of up to 12 letters next to a cut
_HALF_AT_END: Final = re.compile(r"(?<=[_,<> ])[^_,<> ]{1,12}$")
_HALF_AT_START: Final = re.compile(r"^[^_,<> ]{1,12}(?=[_,<> ])")
_NESTING: Final = (9, 3, 2, 1)  # levels of template arguments to try to keep


@dataclass(frozen=True)
class Column:
    """A column heading, with the unit of all its cells.

    name: the column's name with its unit as suffix, for exports. scale: None for text. largest: the value of a full
    bar, 0 for no bars. is_minor: on a screen with scripts the column is shown on request.
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
    """One value as text; `share` (0 to 100) draws a bar under it; `full` is the full name if `text` is shortened."""

    text: str
    full: str = ""
    share: float | None = None
    href: str = ""


@dataclass(frozen=True)
class Row:
    """A row: its name, its values, and its nesting level."""

    name: Cell
    cells: tuple[Cell, ...]
    level: int = 0


@dataclass(frozen=True)
class TableView:
    """A table as it is printed; `more` says what was left out; a folded table opens on request.

    whole: all rows, which the page holds in addition to the printed ones, or None. name: identifies the table in the
    page and in downloaded files. timeline: what its rows correspond to in the timeline. names: what kind of names it
    has. has_details: the first column's full texts add to the short ones instead of repeating them.
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
    """Return a cell with the short form of `name`, and the full form if that differs."""
    short, full = shorten(name), printable(name)
    return Cell(short, full if full != short else "")


def printable(text: object) -> str:
    """Make any text safe to print: one line, no control characters, no change of direction, not empty."""
    if not isinstance(text, str):
        # a missing value
        return NO_NAME
    text = _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", re.sub(r"[\t\n\r]+", " ", text)).strip()
    return text or NO_NAME


def short_name(name: str, length: int = NAME_LENGTH) -> str:
    """Shorten a C++ kernel name: drop return type, namespaces and parameters, then inner template arguments."""
    text = _readable(name)
    shorter = [_without_inner_arguments(text, nesting) for nesting in _NESTING]
    return _word_cut(next((form for form in shorter if len(form) <= length), shorter[-1]), length)


def _readable(name: str) -> str:
    """Return a kernel's name as people read it, with all of its template arguments."""
    plain = printable(name)
    text = _until_stable(_PARAMETERS, unqualified(plain))
    # `unqualified` cannot parse names that are truncated or not C++: these still have their namespaces
    for pattern in (_OPERATOR, _LAMBDA, _QUALIFIERS, _LEFTOVERS):
        text = pattern.sub("", text)
    text = re.sub(r",(?=\S)", ", ", re.sub(r"\s+", " ", text)).strip()
    return text if re.search(r"\w", text) else plain


class Labels:
    """Short kernel names of one page: different kernels have different labels, at any length limit.

    nsys and ncu spell the same kernel differently; both spellings have the same label.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._kernels: dict[str, list[str]] = {}
        for name in dict.fromkeys(names):
            # a kernel can have two spellings, from nsys and from ncu
            self._kernels.setdefault(normalised(name), []).append(name)
        self._made: dict[int, dict[str, str]] = {}

    def short(self, name: str, length: int = NAME_LENGTH) -> str:
        """Shorten a name to at most `length` characters; a replay number in front of it is kept."""
        if length not in self._made:
            # labels depend on the length limit, and are computed once for each
            labels = _told_apart([spelt[0] for spelt in self._kernels.values()], length)
            of_all = ((spelt, labels[spelt[0]]) for spelt in self._kernels.values())
            self._made[length] = {each: label for spelt, label in of_all for each in spelt}
        number, dot, rest = name.partition(". ")
        if not (dot and number.isdecimal()):
            return self._made[length].get(name) or short_name(name, length)
        return f"{number}. {self._made[length].get(rest) or short_name(rest, length)}"


def _told_apart(names: Sequence[str], length: int) -> dict[str, str]:
    """Shorten names; names that would read the same show the words that differ instead of those they share."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(short_name(name, length), []).append(name)
    labels = {short: alike[0] for short, alike in groups.items() if len(alike) == 1}
    for alike in (alike for alike in groups.values() if len(alike) > 1):
        for name, words in zip(alike, _differing(alike), strict=True):
            label = _around(name, words, length)
            # the differing words can themselves be too long, or empty: then a number tells the labels apart
            tries = (f"{label[: length - 4]} #{number}" for number in range(2, len(names) + 2))
            labels[next(text for text in (label, *tries) if text not in labels)] = name
    return {name: label for label, name in labels.items()}


def _differing(names: Sequence[str]) -> list[str]:
    """Return for each name the words that not all names contain, else those between the common start and end."""
    texts = [_readable(name) for name in names]
    if len(set(texts)) < len(texts):  # they differ only in namespaces or parameters
        texts = [printable(name) for name in names]
    words = [_WORD.findall(text) for text in texts]
    common = frozenset[str].intersection(*map(frozenset, words))
    # these words suffice if every name has some, and no two names have the same ones
    own = ["_".join(word for word in each if word not in common) for each in words]
    if len(set(own)) == len(own) and all(own):
        return own
    most = min(map(len, words))
    first = next((at for at in range(most) if len({each[at] for each in words}) > 1), most)
    last = next((at for at in range(most - first) if len({each[-1 - at] for each in words}) > 1), most - first)
    return ["".join(each[first : len(each) - last]).strip("_, ") for each in words]


def _around(name: str, words: str, length: int) -> str:
    """Return the start of a short name, followed by the words that distinguish it from others."""
    # at least a fifth of the label is left for the start of the name
    words = middle_cut(words, length - length // 5 - 2)
    return f"{_HALF_AT_END.sub('', short_name(name, 10 * length)[: length - len(words) - 2])}…{words}…"


def counted(number: float, noun: str) -> str:
    """Format a count with its noun: `1 kernel`, `1,224 kernels`, `2 copies`, `3 launches`."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}{'es' if noun.endswith('ch') else 's'}"
    return f"{number:,.0f} {noun}"


def middle_cut(text: str, length: int) -> str:
    """Cut the middle out of a text that is longer than `length` characters."""
    if len(text) <= length:
        return text
    tail = (length - 1) // 2
    return f"{text[: length - 1 - tail]}…{text[len(text) - tail :]}"


def short_text(text: str) -> str:
    """Return printable text, cut to a length that fits a table."""
    return middle_cut(printable(text), _TEXT_LENGTH)


def texts_of(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return printable (name, value) pairs; those with an empty value are dropped."""
    return tuple((printable(name), printable(value)) for name, value in values.items() if value)


def _unchanged(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


@dataclass(frozen=True)
class Layout:
    """How one kind of table is shown.

    noun: its rows, in the plural. header: the heading of the first column, which shows column `name`. full: the column
    with more about each name; "" for the full name itself. bars: columns with a bar in each cell. minor: columns shown
    on request, for tables that are too wide. most: the number of printed rows. prepare: rearranges the frame first.
    is_folded: the table opens on request, because a chart shows the same. timeline, names: see TableView. others: how
    to shorten names in other columns. numbered: the column whose texts start with a replay number. kernels: the columns
    with kernel names, and the length limit of each (`labelled`).
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
        """Return this layout with kernel names shortened to the page's unique labels."""
        of_kernels = {name: partial(labels.short, length=length) for name, length in self.kernels.items()}
        return replace(self, shorten=of_kernels.pop(self.name, self.shorten), others={**self.others, **of_kernels})


@dataclass(frozen=True, eq=False)
class Whole:
    """All rows of a table: the prepared frame (at most MOST_ROWS rows), the total count, and the layout."""

    frame: pd.DataFrame
    count: int
    layout: Layout


def table_view(frame: pd.DataFrame, layout: Layout, *, caption: str, name: str = "") -> TableView:
    """Lay out the first rows of `frame`; a column `level`, if there is one, indents them."""
    frame = layout.prepare(frame)
    whole = Whole(frame.head(MOST_ROWS), len(frame), layout)
    shown = frame.head(layout.most)
    # these three belong to the first column: its text, its details and its indentation
    values = [name for name in frame.columns if name not in (layout.name, layout.full, "level")]
    # units come from all rows that a script can show, so that they do not change when more rows appear
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
    """Return a column as floats, NaN for missing values."""
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
    """Whether a column holds numbers; one with a unit does, even if all values are missing."""
    return bool(split(str(column.name))[1]) or pd.api.types.is_numeric_dtype(column.dtype)


def _until_stable(pattern: re.Pattern[str], text: str) -> str:
    """Remove all matches of `pattern` until none is left: nested ones appear after the inner ones are gone."""
    count = 1
    while count:
        text, count = pattern.subn("", text)
    return text


def _word_cut(text: str, length: int) -> str:
    """Cut like `middle_cut`, and a little more where this avoids leaving half a word."""
    head, cut, tail = middle_cut(text, length).partition("…")
    return f"{_HALF_AT_END.sub('', head)}…{_HALF_AT_START.sub('', tail)}" if cut else head


def _without_inner_arguments(text: str, nesting: int) -> str:
    """Drop template arguments nested deeper than `nesting` levels; a name with unbalanced brackets stays as it is."""
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
    """Choose the unit and number of decimals of a column."""
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
    # a missing value has no bar, which differs from a bar of length 0
    bars = (share if np.isfinite(share) else None for share in shares)
    return [Cell(text, share=bar) for text, bar in zip(texts, bars, strict=True)]


def _largest(column: "pd.Series[Any]") -> float:
    """Return the value of a full bar: 100 for percentages, else the column's largest value."""
    if str(column.name).endswith("_pct"):
        return 100.0
    values = floats(column)
    return float(np.nanmax(values)) if np.isfinite(values).any() else 0.0


def left_out(shown: int, count: int, noun: str) -> str:
    """Return a note on how many rows are shown, "" if all are."""
    if count <= shown:
        return ""
    return f"The first {shown:,} of {count:,} {noun}. The JSON and CSV forms of this report contain all of them."
