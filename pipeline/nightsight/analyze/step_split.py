"""Measures the time of steps on each device, by category, and its variation from step to step."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.split import device_splits
from nightsight.events.operators import nested_operators
from nightsight.events.ranges import NUMBER, recorded_ranges, without_numbers
from nightsight.events.timeline import Timeline
from nightsight.events.unseen import PAUSED, pauses, unseen
from nightsight.events.window import MEASURED_RANGE
from nightsight.intervals import Ints, clipped_union, covered
from nightsight.results.categories import HOST, UNSEEN
from nightsight.results.columns import OUTLIER
from nightsight.results.steps import OPERATORS, STEP_CATEGORIES, STEP_SPLIT, STEP_TIMES, WHOLE_STEP
from nightsight.tables import NULLABLE

COLUMNS: Final = 150
"""The most rows of a device in `step_times`; if there are more steps, they are grouped."""
_LARGEST: Final = 2.0**53
_NO_STEPS: Final = "The window is not known to consist of repetitions."


class _Steps(NamedTuple):
    """The steps of a device, or of the CPU (None): start, duration, and time by category of each; in ns.

    Pauses of the recording do not count.
    """

    device: int | None
    begin: Ints
    time: Ints
    by_category: Mapping[str, Ints]


def _device_steps(timeline: Timeline) -> Iterator[_Steps]:
    """Yield the steps of each device at work, else those of the CPU; none if the window has no repetitions."""
    if {"kernels", "memory_ops"} <= timeline.profile.tables.keys() and len(timeline.operations.start):
        for device, (parts, (begin, end), _) in device_splits(timeline).items():
            if len(begin):
                by_category = {part.category: part.by_step for part in parts}
                paused = covered(unseen(timeline.profile)[device].of(PAUSED), begin, end)
                if paused.any():
                    by_category[UNSEEN] = by_category[UNSEEN] - paused
                yield _Steps(device, begin, end - begin - paused, by_category)
        return
    window = timeline.window
    begin, end = window.repetitions, np.append(window.repetitions[1:], window.ended_ns)
    if not len(begin):
        return
    process = next(iter(window.steps))
    nothing = begin[:0]
    time = end - begin - covered(pauses(timeline.profile).get(process, (nothing, nothing)), begin, end)
    by_category = {HOST: time}
    if len(timeline.profile.recorded("cpu_ops")):
        nested = nested_operators(timeline)
        rows = (nested.row >= 0) & (nested.process == process)
        busy = covered(clipped_union(nested.start[rows], nested.end[rows], window.bounds), begin, end)
        by_category = {OPERATORS: busy, HOST: np.maximum(time - busy, 0)}
    yield _Steps(None, begin, time, by_category)


def step_split(timeline: Timeline) -> Table:
    """Return, for each device, else the CPU, a row for the whole step and one per category with time in steps; ns.

    Without rows if the window does not consist of repetitions.
    """
    rows = []
    for device, begin, step_ns, by_category in _device_steps(timeline):
        common = {"device": device, "step": timeline.window.family, "steps": len(begin)}
        times = {WHOLE_STEP: step_ns, **{category: time for category, time in by_category.items() if time.any()}}
        rows += [{**common, "category": category, **_statistics(time)} for category, time in times.items()]
    notes = () if rows else (_NO_STEPS,)
    return Table(pd.DataFrame(rows, columns=STEP_SPLIT.column_names).astype({"device": NULLABLE}), notes)


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
    """Return, for each device, else the CPU, a row per step; if there are many, per group of consecutive steps."""
    tables = [pd.DataFrame(columns=[column.name for column in STEP_TIMES.columns if not column.is_optional])]
    first_of_window = _first_number(timeline)
    for device, begin, time, by_category in _device_steps(timeline):
        size = -(-len(begin) // COLUMNS)
        first = np.arange(0, len(begin), size)
        # the first of equally long steps must come last, so the order of positions is reversed
        order = np.lexsort((-np.arange(len(time)), time, np.arange(len(time)) // size))
        slowest = order[np.append(first[1:], len(time)) - 1]
        steps = np.diff(np.append(first, len(time)))
        mean_ns = {STEP_CATEGORIES[name]: np.add.reduceat(time, first) / steps for name, time in by_category.items()}
        columns = {
            "device": device,
            "number": first,
            **({"of_program": first + first_of_window} if first_of_window else {}),
            "steps": steps,
            "start_ns": begin[first] - timeline.window.start_ns,
            "time_ns": np.add.reduceat(time, first) / steps,
            "outliers": np.add.reduceat((time > OUTLIER * np.median(time)).astype(np.int64), first),
            "slowest": slowest,
            "slowest_start_ns": begin[slowest] - timeline.window.start_ns,
            "slowest_ns": time[slowest],
        }
        tables.append(pd.DataFrame({**columns, **{name: value for name, value in mean_ns.items() if value.any()}}))
    table = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    names = [name for name in STEP_TIMES.column_names if name in table]
    of_categories = [name for name in STEP_CATEGORIES.values() if name in table]
    types = {"device": NULLABLE} | dict.fromkeys(("number", "steps", "start_ns", "outliers", "slowest"), "int64")
    types |= dict.fromkeys(("slowest_start_ns", "slowest_ns", *(["of_program"] if first_of_window else [])), "int64")
    table = table[names].astype({**types, "time_ns": "float64"}).fillna(dict.fromkeys(of_categories, 0.0))
    return Table(table, () if len(table) else (_NO_STEPS,))


def _first_number(timeline: Timeline) -> int:
    """Return the program's number of the first step of the window; 0 if it is unknown.

    It is in the name of the step's range if these count up; otherwise it is the position of the step in the capture.
    """
    window, ranges = timeline.window, recorded_ranges(timeline.profile)
    paths = ranges["path"].cat
    is_step = without_numbers(paths.categories).str.removeprefix(f"{MEASURED_RANGE} / ") == window.family
    steps = ranges[np.append(is_step, False)[paths.codes]]
    by_process = ((steps[steps["process"] == process], starts) for process, starts in window.steps.items())
    first_numbers = {_number_of_first(*pair) for pair in by_process}
    return first_numbers.pop() if len(first_numbers) == 1 else 0


def _number_of_first(steps: pd.DataFrame, starts: Ints) -> int:
    steps = steps.sort_values("start_ns", kind="stable").drop_duplicates("start_ns")
    of_window = steps[steps["start_ns"].isin(starts)]
    if not len(starts) or len(of_window) != len(starts):
        return 0
    numbers = of_window["name"].astype("str").str.extract(f".*({NUMBER})")[0]
    values = numbers.astype("float64").to_numpy()
    # a name can have any number of digits
    if (np.diff(values) == 1).all() and values[0] + len(values) < _LARGEST:
        return int(values[0])
    return int((steps["start_ns"] < starts[0]).sum())


ANALYSES: Final = (Analysis(STEP_SPLIT, step_split), Analysis(STEP_TIMES, step_times))
