"""What repetitions are: ranges whose names differ only by numbers that stand by themselves."""

from typing import Any, Final

import pandas as pd

# `step 7`, `step_7`; not `h2d`, nor the layers `fc1` and `fc2`. The page applies it too: JavaScript reads it alike
NUMBER: Final = "(?<![A-Za-z0-9])[0-9]+(?![A-Za-z0-9])"


def without_numbers(names: "pd.Index[Any]") -> "pd.Index[Any]":
    """Give repetitions one name, or path of names: a number that stands by itself becomes `#`."""
    return names.str.replace(NUMBER, "#", regex=True)
