"""Reads numbers as ncu prints them: in the user's locale, marked with (!) if doubtful, or words instead."""

import re
from typing import Any, Final

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
# ncu puts "(!)" before a value that it considers unreliable
_DOUBT: Final = re.compile(r"^\(!\)\s*")
_ABSENT: Final = re.compile(r"(?:[+-]?(?:nan|inf(?:inity)?)|n/?a|no data|-)?", re.IGNORECASE)


def numbers_and_words(cells: "pd.Series[str]") -> pd.DataFrame:
    """Return `value` and `text` of each cell: a number, or NaN and words; NaN and "" if it has neither.

    Numbers too large for a float become NaN. The decimal mark is the one that more cells require (a cell requires it if
    it is a number only with this mark); a dot if undecided.
    """
    codes, distinct = pd.factorize(cells.to_numpy(dtype=object))
    texts = [_bare(cell) for cell in distinct]
    point, comma = (np.array([bool(form.fullmatch(text)) for text in texts], dtype=bool) for form in _FORMS.values())
    mark = "," if (comma & ~point).sum() > (point & ~comma).sum() else "."
    is_number = comma if mark == "," else point
    values = np.array([_number(text, mark) if yes else np.nan for text, yes in zip(texts, is_number, strict=True)])
    values[np.isinf(values)] = np.nan
    words = np.where(is_number, "", np.array(texts, dtype=object))
    return pd.DataFrame({"value": _spread(values, codes), "text": _spread(words, codes)}, index=cells.index)


def _bare(cell: str) -> str:
    """Return a cell without its (!) mark; "" if it means that there is no value."""
    cell = _DOUBT.sub("", cell.strip())
    return "" if _ABSENT.fullmatch(cell) else cell


def _spread(values: np.ndarray[Any, Any], codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return values[codes] if len(codes) else values[:0]


def _number(text: str, mark: str) -> float:
    plain = re.sub(rf"[^\deE+{mark}-]", "", text)
    return float(plain.replace(mark, "."))
