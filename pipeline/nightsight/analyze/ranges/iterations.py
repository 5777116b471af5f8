"""How even the repetitions of a range are: first, typical and slow instances, each path's numbers side by side.

Ranges that differ only by a number in their name (`iteration 7`) are repetitions of one, in each process by itself.
"""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.ranges.owners import range_notes, range_work, repetitions
from nightsight.analyze.ranges.steps import LEAST
from nightsight.events.timeline import Timeline
from nightsight.parallel import once
from nightsight.results import ITERATION_TIMES, RANGE_ITERATIONS
from nightsight.tables import NULLABLE, duration

POINTS: Final = 2000
"""How many instances of a path in a process `iteration_times` has at most."""

_PATHS: Final = 3
_GPU: Final = {"kernels", "memory_ops", "api_calls"}
_KEYS: Final = ["path", "pid"]
_NAMED: Final = 5
# an instance counts as an outlier when it takes this many times the median
_FACTOR: Final = 1.5


def iterations(timeline: Timeline) -> Table:
    """One row per path and process that it occurs in at least three times, paths in order of time."""
    samples = _samples(timeline)
    grouped = samples.groupby(_KEYS, observed=True)["length"]
    table = grouped.agg(instances="size", first_ns="first", med_ns="median", max_ns="max").reset_index()
    table["p95_ns"] = grouped.quantile(0.95).to_numpy()
    first_seen = samples.groupby("path", observed=True)["start_ns"].min()
    table = table[table["instances"] >= LEAST].merge(_outliers(samples), on=_KEYS, how="left", validate="1:1")
    table = table.assign(first_seen=table["path"].map(first_seen).astype("int64"))
    table = table.sort_values(["first_seen", *_KEYS], ignore_index=True)
    columns = [*_KEYS, "instances", "first_ns", "med_ns", "p95_ns", "max_ns", "outliers"]
    return Table(table[columns].astype({"path": "str"}).fillna({"outliers": ""}), range_notes(timeline))


def iteration_times(timeline: Timeline) -> Table:
    """One row per instance of the outermost repeated paths, most time first; those of a process in order of start."""
    samples = _samples(timeline)
    repeated = samples[samples["instances"] >= LEAST]
    sizes = repeated.groupby("path", observed=True).agg(level=("level", "min"), total=("length", "sum")).reset_index()
    chosen = sizes.sort_values(["level", "total", "path"], ascending=[True, False, True]).head(_PATHS)
    tables = [
        _thinned(repeated[(repeated["path"] == path) & (repeated["pid"] == pid)])
        for path in chosen["path"].astype("str")
        for pid in np.unique(repeated["pid"])
    ]
    rows = pd.concat([samples.head(0), *tables], ignore_index=True)
    busy = pd.Series(pd.NA, range(len(rows)), dtype=NULLABLE)
    if timeline.profile.tables.keys() >= _GPU:
        busy = range_work(timeline)["gpu_busy_ns"].iloc[rows["row"]].reset_index(drop=True).astype(NULLABLE)
    table = rows.assign(start_ns=rows["start_ns"] - timeline.window.start_ns, time_ns=rows["length"], gpu_busy_ns=busy)
    return Table(table[[*_KEYS, "number", "start_ns", "time_ns", "gpu_busy_ns"]].astype({"path": "str"}))


def _thinned(instances: pd.DataFrame) -> pd.DataFrame:
    """Keep POINTS instances: the slowest, which are looked for, and of the others one in so many."""
    if len(instances) <= POINTS:
        return instances
    slowest = instances["length"].nlargest(_NAMED).index
    evenly = np.linspace(0, len(instances) - 1, POINTS - _NAMED).round().astype(np.int64)
    return instances[instances.index.isin(instances.index[evenly].union(slowest))]


@once
def _samples(timeline: Timeline) -> pd.DataFrame:
    """Return all ranges in order of start, named by their repetition and with their `number` among these.

    Columns: path, pid, instances (of the path in the process), start_ns, length (ns), level, number, and row, that in
    `nested_ranges`.
    """
    ranges = repetitions(timeline)
    columns = [*_KEYS, "instances", "start_ns", "level"]
    samples = ranges[columns].assign(length=duration(ranges), row=np.arange(len(ranges)))
    samples = samples.sort_values("start_ns", kind="stable")
    return samples.assign(number=samples.groupby(_KEYS, observed=True).cumcount())


def _outliers(samples: pd.DataFrame) -> pd.DataFrame:
    """Name the slowest of each path in a process, `#0 (12.5×), #7 (1.8×)`: the number counts instances from 0."""
    median = samples.groupby(_KEYS, observed=True)["length"].transform("median")
    ratio = samples["length"] / median.where(median > 0)
    slow = samples.assign(ratio=ratio)[ratio > _FACTOR].sort_values(["ratio", "number"], ascending=[False, True])
    total = slow.groupby(_KEYS, observed=True).size()
    named = slow[slow.groupby(_KEYS, observed=True).cumcount() < _NAMED]
    words = "#" + named["number"].astype("str") + " (" + np.round(named["ratio"], 1).astype("str") + "×)"
    texts: pd.Series[Any] = words.groupby([named[key] for key in _KEYS], observed=True).agg(", ".join)
    more = (total - _NAMED).clip(lower=0)
    texts = texts.where(more == 0, texts + " and " + more.astype("str") + " more")
    return texts.rename("outliers").reset_index()


ANALYSES: Final = (
    Analysis(RANGE_ITERATIONS, iterations),
    Analysis(ITERATION_TIMES, iteration_times),
)
