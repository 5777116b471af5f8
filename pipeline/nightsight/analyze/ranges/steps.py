"""Which repetition of the program's loop a call was made in: the outermost range around it that occurs again and again.

Ranges that differ only by a number in their name (`iteration 7`) are repetitions of one, in each process by itself.
"""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.ranges.callers import owner_rows
from nightsight.analyze.ranges.owners import repetitions
from nightsight.events.timeline import Timeline
from nightsight.intervals import Ints
from nightsight.parallel import once
from nightsight.tables import ancestors

LEAST: Final = 3
"""How often a path occurs in a process at least to be called repeated."""


def step_columns(timeline: Timeline, call: Ints) -> dict[str, "pd.Series[int]"]:
    """Return for each call (a row in api_calls, or -1) its repetition, as `step` and how many `of_steps` there are.

    Missing and 0 for a call in no repeated range.
    """
    steps, instances = _steps(timeline)
    row = owner_rows(timeline, call)
    step = np.append(steps, -1)[row]
    of_steps = np.append(instances, 0)[step]
    return {"step": pd.Series(step).where(step >= 0), "of_steps": pd.Series(of_steps)}


@once
def _steps(timeline: Timeline) -> tuple[Ints, Ints]:
    """For each row of the nested ranges: the row of its outermost repeated range or -1, and how often its path is."""
    ranges = repetitions(timeline)
    instances = ranges["instances"].to_numpy()
    repeated = instances >= LEAST
    steps = np.where(repeated, np.arange(len(ranges)), -1)
    # from the inside out, so the outermost comes last
    for rows, above in ancestors(ranges["parent"].to_numpy()):
        steps[rows] = np.where(repeated[above], above, steps[rows])
    return steps, instances
