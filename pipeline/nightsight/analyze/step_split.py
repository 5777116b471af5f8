"""How long a step takes on each device, where its time goes, and how much that varies from step to step."""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.split import device_splits
from nightsight.events.timeline import Timeline
from nightsight.intervals import Ints
from nightsight.results import STEP_SPLIT, WHOLE_STEP


def step_split(timeline: Timeline) -> Table:
    """Return for each device a row for the whole step and one per category that has time in steps; ns.

    Without rows if the window is not known to consist of repetitions.
    """
    rows = []
    for device, (parts, (begin, end)) in device_splits(timeline).items():
        if not len(begin):
            continue
        common = {"device": device, "step": timeline.window.family, "steps": len(begin)}
        times = {WHOLE_STEP: end - begin, **{part.category: part.by_step for part in parts if part.by_step.any()}}
        rows += [{**common, "category": category, **_statistics(time)} for category, time in times.items()]
    notes = () if rows else ("The window is not known to consist of repetitions.",)
    return Table(pd.DataFrame(rows, columns=STEP_SPLIT.column_names), notes)


def _statistics(time: Ints) -> dict[str, float | int]:
    low, middle, high = np.percentile(time, [25, 50, 75]).tolist()
    return {
        "avg_ns": float(time.mean()),
        "med_ns": middle,
        "p25_ns": low,
        "p75_ns": high,
        "min_ns": int(time.min()),
        "max_ns": int(time.max()),
    }


ANALYSES: Final = (Analysis(STEP_SPLIT, step_split),)
