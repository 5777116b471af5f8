"""Measures how evenly a range repeats: its first, typical and slow instances.

Ranges whose names differ only by a number (`iteration 7`) are repetitions of one, counted per process.
"""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.ranges.owners import range_notes
from nightsight.events.ranges import LEAST, repetitions
from nightsight.events.timeline import Timeline, of_capture
from nightsight.results.columns import OUTLIER
from nightsight.results.ranges import RANGE_ITERATIONS
from nightsight.tables import duration

_KEYS: Final = ["path", "pid"]
_NAMED: Final = 5


def iterations(timeline: Timeline) -> Table:
    """Return one row per path and process with at least LEAST instances: their CPU time in ns, and the outliers.

    Paths are in order of their first instance.
    """
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


@of_capture
def _samples(timeline: Timeline) -> pd.DataFrame:
    """Return all ranges in order of start, with paths in which `#` replaces the numbers of repetitions.

    Columns: path, pid, instances (of the path in the process), start_ns, length (ns), level, row (in `nested_ranges`),
    and number (among the instances of the path in the process, from 0).
    """
    ranges = repetitions(timeline.profile)
    columns = [*_KEYS, "instances", "start_ns", "level"]
    samples = ranges[columns].assign(length=duration(ranges), row=np.arange(len(ranges)))
    samples = samples[~ranges["in_graph"]].sort_values("start_ns", kind="stable")
    return samples.assign(number=samples.groupby(_KEYS, observed=True).cumcount())


def _outliers(samples: pd.DataFrame) -> pd.DataFrame:
    """Return the slowest instances of each path and process as a text: `#0 (12.5×), #7 (1.8×) and 3 more`."""
    median = samples.groupby(_KEYS, observed=True)["length"].transform("median")
    ratio = samples["length"] / median.where(median > 0)
    slow = samples.assign(ratio=ratio)[ratio > OUTLIER].sort_values(["ratio", "number"], ascending=[False, True])
    total = slow.groupby(_KEYS, observed=True).size()
    listed = slow[slow.groupby(_KEYS, observed=True).cumcount() < _NAMED]
    words = "#" + listed["number"].astype("str") + " (" + np.round(listed["ratio"], 1).astype("str") + "×)"
    texts: pd.Series[Any] = words.groupby([listed[key] for key in _KEYS], observed=True).agg(", ".join)
    more = (total - _NAMED).clip(lower=0)
    texts = texts.where(more == 0, texts + " and " + more.astype("str") + " more")
    return texts.rename("outliers").reset_index()


ANALYSES: Final = (Analysis(RANGE_ITERATIONS, iterations),)
