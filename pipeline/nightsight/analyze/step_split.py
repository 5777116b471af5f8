"""How long a step takes on each device, where its time goes, and how much that varies from step to step."""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.split import device_splits
from nightsight.events.timeline import Timeline
from nightsight.intervals import Ints
from nightsight.results import OUTLIER, STEP_CATEGORIES, STEP_SPLIT, STEP_TIMES, WHOLE_STEP

COLUMNS: Final = 150
"""The most rows of a device in `step_times`; more steps are put together."""


def step_split(timeline: Timeline) -> Table:
    """Return for each device a row for the whole step and one per category that has time in steps; ns.

    Without rows if the window is not known to consist of repetitions.
    """
    rows = []
    for device, (parts, (begin, end), _) in device_splits(timeline).items():
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


def step_times(timeline: Timeline) -> Table:
    """Return for each device a row per step, or, if there are many, per group of steps that follow one another."""
    tables = [pd.DataFrame(columns=[column.name for column in STEP_TIMES.columns if not column.is_optional])]
    for device, (parts, (begin, end), _) in device_splits(timeline).items():
        if not len(begin):
            continue
        time, size = end - begin, -(-len(begin) // COLUMNS)
        first = np.arange(0, len(begin), size)
        # of steps that take equally long the first one, so the sort is stable and in reverse
        order = np.lexsort((-np.arange(len(time)), time, np.arange(len(time)) // size))
        slowest = order[np.append(first[1:], len(time)) - 1]
        steps = np.diff(np.append(first, len(time)))
        spent = {STEP_CATEGORIES[part.category]: np.add.reduceat(part.by_step, first) / steps for part in parts}
        columns = {
            "device": device,
            "number": first,
            "steps": steps,
            "start_ns": begin[first] - timeline.window.start_ns,
            "time_ns": np.add.reduceat(time, first) / steps,
            "outliers": np.add.reduceat((time > OUTLIER * np.median(time)).astype(np.int64), first),
            "slowest": slowest,
            "slowest_start_ns": begin[slowest] - timeline.window.start_ns,
            "slowest_ns": time[slowest],
        }
        tables.append(pd.DataFrame({**columns, **{name: value for name, value in spent.items() if value.any()}}))
    table = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    names = [name for name in STEP_TIMES.column_names if name in table]
    of_categories = [name for name in STEP_CATEGORIES.values() if name in table]
    whole = dict.fromkeys(("device", "number", "steps", "start_ns", "outliers", "slowest"), "int64")
    whole |= dict.fromkeys(("slowest_start_ns", "slowest_ns"), "int64")
    return Table(table[names].astype({**whole, "time_ns": "float64"}).fillna(dict.fromkeys(of_categories, 0.0)))


ANALYSES: Final = (Analysis(STEP_SPLIT, step_split), Analysis(STEP_TIMES, step_times))
