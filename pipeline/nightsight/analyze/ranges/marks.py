"""Marks that the program set: instants with a name, and how regularly they come."""

from typing import Final

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.timeline import Timeline
from nightsight.results import NVTX_MARKS

_KEYS: Final = ["domain", "category", "name"]


def marks(timeline: Timeline) -> Table:
    """One row per domain, category and name, in the order of their first mark."""
    table = timeline.profile.table("marks").sort_values("start_ns", kind="stable", ignore_index=True)
    time = table["start_ns"] - timeline.window.start_ns
    # threads that mark the same at the same time are no shorter interval
    interval = time.groupby([table[key] for key in ("thread", *_KEYS)], observed=True).diff()
    grouped = table.assign(time=time, interval=interval).groupby(_KEYS, observed=True)
    found = grouped.agg(
        instances=("time", "size"),
        first_ns=("time", "min"),
        last_ns=("time", "max"),
        median_interval_ns=("interval", "median"),
    ).reset_index()
    found = found.sort_values(["first_ns", *_KEYS], ignore_index=True).astype(dict.fromkeys(_KEYS, "str"))
    return Table(found[["instances", "first_ns", "last_ns", "median_interval_ns", *_KEYS]])


ANALYSES: Final = (Analysis(NVTX_MARKS, marks),)
