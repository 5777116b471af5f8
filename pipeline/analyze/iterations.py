"""How even the repetitions of a range are: first, typical and slow instances, each path's numbers side by side.

Ranges that differ only by a number in their name (`iteration 7`) are repetitions of one.
"""

from typing import Final

import numpy as np
import pandas as pd

from pipeline.analyze.analysis import Analysis, Table
from pipeline.analyze.ranges import nested_ranges, without_numbers
from pipeline.analyze.timeline import Timeline
from pipeline.tables import categorical, duration

_LEAST: Final = 3
_NAMED: Final = 5
# an instance counts as an outlier when it takes this many times the median
_FACTOR: Final = 1.5


def iterations(timeline: Timeline) -> Table:
    """One row per path that occurs at least three times, in order of time."""
    ranges = nested_ranges(timeline)
    paths = ranges["path"].cat
    pattern = without_numbers(paths.categories)
    samples = pd.DataFrame(
        {
            "path": categorical(pattern.to_numpy(dtype=object), paths.codes.to_numpy()),
            "start_ns": ranges["start_ns"],
            "length": duration(ranges),
        }
    ).sort_values("start_ns", kind="stable")
    grouped = samples.groupby("path", observed=True)["length"]
    samples["number"] = grouped.cumcount()
    table = grouped.agg(instances="size", first_ns="first", med_ns="median", max_ns="max").reset_index()
    table["p95_ns"] = grouped.quantile(0.95).to_numpy()
    table["first_seen"] = samples.groupby("path", observed=True)["start_ns"].min().to_numpy()
    table = table[table["instances"] >= _LEAST].merge(_outliers(samples), on="path", how="left", validate="1:1")
    table = table.sort_values(["first_seen", "path"], ignore_index=True)
    columns = ["path", "instances", "first_ns", "med_ns", "p95_ns", "max_ns", "outliers"]
    return Table(table[columns].astype({"path": "str"}).fillna({"outliers": ""}))


def _outliers(samples: pd.DataFrame) -> pd.DataFrame:
    """Name each path's slowest outliers, `#0 (12.5×), #7 (1.8×)`: the number counts instances from 0."""
    median = samples.groupby("path", observed=True)["length"].transform("median")
    ratio = samples["length"] / median.where(median > 0)
    slow = samples.assign(ratio=ratio)[ratio > _FACTOR].sort_values(["ratio", "number"], ascending=[False, True])
    total = slow.groupby("path", observed=True).size()
    named = slow[slow.groupby("path", observed=True).cumcount() < _NAMED]
    words = "#" + named["number"].astype("str") + " (" + np.round(named["ratio"], 1).astype("str") + "×)"
    texts = words.groupby(named["path"], observed=True).agg(", ".join)
    more = (total - _NAMED).clip(lower=0)
    texts = texts.where(more == 0, texts + " and " + more.astype("str") + " more")
    return pd.DataFrame({"path": texts.index, "outliers": texts.to_numpy()})


ANALYSES: Final = (
    Analysis(
        "range_iterations",
        "Repetitions of ranges",
        "CPU time of ranges that occur at least three times; names that differ by a number count as one. First: the "
        "one that began first, which often pays for loading and allocation. P95: 19 of 20 take no longer. Outliers: "
        "those that took more than 1.5 times the median, counted from 0.",
        ("ranges",),
        iterations,
    ),
)
