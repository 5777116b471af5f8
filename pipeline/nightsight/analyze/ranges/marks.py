"""NVTX marks: named instants in the program, and the intervals between them."""

from typing import Final

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.timeline import Timeline
from nightsight.results.ranges import NVTX_MARKS
from nightsight.tables import aggregate

_KEYS: Final = ["domain", "category", "name"]


def marks(timeline: Timeline) -> Table:
    """Return one row per domain, category and name in order of their first mark; times since the window's start."""
    table = timeline.profile.table("marks").sort_values("start_ns", kind="stable", ignore_index=True)
    time = table["start_ns"] - timeline.window.start_ns
    # per thread: several threads that set the same mark do not shorten the interval
    interval = time.groupby([table[key] for key in ("thread", *_KEYS)], observed=True).diff()
    grouped = table.assign(time=time, interval=interval).groupby(_KEYS, observed=True)
    summary = aggregate(
        grouped,
        instances=("time", "size"),
        first_ns=("time", "min"),
        last_ns=("time", "max"),
        median_interval_ns=("interval", "median"),
    ).reset_index()
    summary = summary.sort_values(["first_ns", *_KEYS], ignore_index=True).astype(dict.fromkeys(_KEYS, "str"))
    return Table(summary[["instances", "first_ns", "last_ns", "median_interval_ns", *_KEYS]])


ANALYSES: Final = (Analysis(NVTX_MARKS, marks, "marks"),)
