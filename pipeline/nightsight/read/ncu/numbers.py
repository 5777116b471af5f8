"""Reads numbers as ncu prints them: in the user's locale, after (!) if unreliable, or words in their place."""

import re
from typing import Final

import numpy as np
import pandas as pd

# thousands separators: English and Indian commas, German and Spanish dots, Swiss apostrophes, French (narrow)
# no-break spaces
_GROUPING: Final = "'\u2019\u00a0\u202f "
_WRITTEN: Final = r"[+-]?(?:\d+|\d{{1,3}}(?:(?P<mark>[{group}])\d{{2,3}})*(?(mark)(?P=mark)|[{group}])\d{{3}}){point}"
_FORMS: Final = {
    mark: re.compile(_WRITTEN.format(group=other + _GROUPING, point=rf"(?:\{mark}\d+)?(?:[eE][+-]?\d+)?"))
    for mark, other in ((".", ","), (",", "."))
}
# ncu prints "(!)" before unreliable values
_UNRELIABLE: Final = re.compile(r"^\(!\)\s*")
_ABSENT: Final = re.compile(r"(?:[+-]?(?:nan|inf(?:inity)?)|n/?a|no data|-)?", re.IGNORECASE)


def numbers_and_words(cells: "pd.Series[str]") -> pd.DataFrame:
    """Return `value` and `text` of each cell: a number and "", or NaN and words; NaN and "" if it has neither.

    Numbers too large for a float become NaN. The decimal mark is the one that more cells require (a cell requires it if
    it is a number only with this mark); a dot if undecided.
    """
    codes, distinct = pd.factorize(cells.to_numpy(dtype=object))
    texts = [_bare(cell) for cell in distinct]
    point, comma = (np.array([bool(form.fullmatch(text)) for text in texts], dtype=bool) for form in _FORMS.values())
    mark = "," if (comma & ~point).sum() > (point & ~comma).sum() else "."
    is_number = comma if mark == "," else point
    values = np.full(len(texts), np.nan)
    for row in np.flatnonzero(is_number):
        values[row] = float(re.sub(rf"[^\deE+{mark}-]", "", texts[row]).replace(mark, "."))
    values[np.isinf(values)] = np.nan
    words = np.where(is_number, "", np.array(texts, dtype=object))
    return pd.DataFrame({"value": values[codes], "text": words[codes]}, index=cells.index)


def _bare(cell: str) -> str:
    """Return a cell without its (!) mark; "" if it means that there is no value."""
    cell = _UNRELIABLE.sub("", cell.strip())
    return "" if _ABSENT.fullmatch(cell) else cell
