"""Recognizes repetitions: ranges whose names differ only in standalone numbers."""

from typing import Any, Final

import pandas as pd

# matches `step 7` and `step_7`, but not `h2d` or the layers `fc1` and `fc2`; also used by the page, in JavaScript
NUMBER: Final = "(?<![A-Za-z0-9])[0-9]+(?![A-Za-z0-9])"


def without_numbers(names: "pd.Index[Any]") -> "pd.Index[Any]":
    """Replace standalone numbers by `#`, so that repetitions get the same name (or path of names)."""
    return names.str.replace(NUMBER, "#", regex=True)
