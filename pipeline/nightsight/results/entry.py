"""Declare a result of a report: its definition, its columns, and how the page shows it."""

from dataclasses import dataclass
from typing import Final, Literal

import pandas as pd

Type = Literal["text", "whole", "number"]
TEXT: Final = "text"
WHOLE: Final = "whole"
NUMBER: Final = "number"

Place = Literal["section", "lead", "method", "points"]
"""Where the page shows a result: in a separate section, in the one before the advice, under *How it was measured*, or
only as the points of another result's picture."""

Jump = Literal[
    "",
    "kernel",
    "copy",
    "call",
    "functions",
    "operator",
    "range",
    "repetition",
    "mark",
    "replay",
    "span",
    "memory",
    "counter",
    "place",
    "part",
]
"""What a row is in the page's timeline, and so how the page finds it there (templates/scripts/tables/jumps.js)."""

Names = Literal["", "code", "kernel", "replay", "prose"]
"""How style sheets set the first column: `code` for names in a program, `kernel` for (long) kernel names, `replay` for
replayed kernels, which stay in view while the table scrolls sideways, `prose` for names with sentences below them."""


@dataclass(frozen=True)
class Column:
    """A column of a result; the suffix of its name is the unit (`nightsight.units`).

    values: the texts it can hold, each with its meaning. is_optional: left out of the table if the capture has nothing
    of the kind. is_plain: the heading is clear enough, so the page does not explain the column.
    """

    name: str
    type: Type
    meaning: str
    values: tuple[tuple[str, str], ...] = ()
    is_optional: bool = False
    is_plain: bool = False


@dataclass(frozen=True)
class Entry:
    """One result: its definition, the tables it needs, its columns, and how the page shows it.

    needs: canonical tables without which it cannot be computed; one_of: those of which one is enough. help: what a row
    is and what the table leaves out; the columns say the rest. rows: what the rows are, in the plural. header: heading
    of the page's first column, which shows column `named_by`. full: column with more text about each name. bars:
    columns that draw a bar in each cell. minor: columns that a wide table shows on request. constant: columns left out
    if all rows agree. is_folded: a picture shows the same, so the table starts closed. kernels: columns of kernel
    names, which the page shortens so that they still differ. numbered: column whose texts begin with the number of a
    replay. group: its group among the details. is_core: if it is missing, the page says so where it
    would stand.
    """

    name: str
    title: str
    help: str
    needs: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: str
    header: str = "Name"
    named_by: str = "name"
    place: Place = "section"
    group: str = ""
    is_core: bool = False
    full: str = ""
    bars: tuple[str, ...] = ()
    minor: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()
    is_folded: bool = False
    numbered: str = ""
    jump: Jump = ""
    names: Names = ""
    kernels: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()

    @property
    def column_names(self) -> list[str]:
        """The names of all columns, in order."""
        return [column.name for column in self.columns]

    def empty(self) -> pd.DataFrame:
        """Return the table without rows."""
        types = {TEXT: "str", WHOLE: "int64", NUMBER: "float64"}
        needed = (column for column in self.columns if not column.is_optional)
        return pd.DataFrame({column.name: pd.Series(dtype=types[column.type]) for column in needed})

    def check(self, table: pd.DataFrame) -> None:
        """Raise ValueError if the columns of `table`, or their order, differ from this entry."""
        expected = [column.name for column in self.columns if not column.is_optional or column.name in table]
        if list(table.columns) != expected:
            raise ValueError(f"{self.name} has the columns {list(table.columns)}, not {expected}")
