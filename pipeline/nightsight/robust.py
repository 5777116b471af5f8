"""Statistics that a few outliers do not change."""

from typing import Any

import numpy as np

from nightsight.intervals import Floats


def standard_deviation(values: Any, axis: int | None = None) -> Floats:  # noqa: ANN401 (whatever numpy takes)
    """Estimate the standard deviation of normal noise from the median absolute deviation, along an axis or of all."""
    from scipy.stats import median_abs_deviation  # noqa: PLC0415 (takes half a second, and few commands need it)

    return np.asarray(median_abs_deviation(values, axis=axis, scale="normal"), dtype=np.float64)
