"""Finds the step of the program's loop in which a call was made: the instance of the outermost repeated range.

Ranges whose names differ only by a number (`iteration 7`) are repetitions of one, counted per process.
"""

import numpy as np
import pandas as pd

from nightsight.analyze.ranges.callers import owner_rows
from nightsight.events.ranges import LEAST, repetitions
from nightsight.events.timeline import Timeline, of_capture
from nightsight.intervals import Ints
from nightsight.tables import ancestors


def step_columns(timeline: Timeline, call: Ints) -> dict[str, "pd.Series[int]"]:
    """Return the number of the `step` of each call (a row in api_calls, or -1), and the number of steps `of_steps`.

    A step is identified by the row of its range in `nested_ranges`. Missing and 0 for calls outside repeated ranges.
    """
    steps, instances = _outermost_repeated(timeline)
    row = owner_rows(timeline, call)
    step = np.append(steps, -1)[row]
    of_steps = np.append(instances, 0)[step]
    return {"step": pd.Series(step).where(step >= 0), "of_steps": pd.Series(of_steps)}


@of_capture
def _outermost_repeated(timeline: Timeline) -> tuple[Ints, Ints]:
    """Return the outermost repeated range of each row of `nested_ranges`, as a row or -1, and the count of its path."""
    ranges = repetitions(timeline.profile)
    instances = ranges["instances"].to_numpy()
    repeated = instances >= LEAST
    steps = np.where(repeated, np.arange(len(ranges)), -1)
    # from the inside out, so the outermost repeated range is written last
    for rows, above in ancestors(ranges["parent"].to_numpy()):
        steps[rows] = np.where(repeated[above], above, steps[rows])
    return steps, instances
