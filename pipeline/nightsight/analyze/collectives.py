"""Collectives as the program called them: which, of how much, among which ranks, and the time of their kernels."""

from typing import Final

import numpy as np

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.timeline import Timeline
from nightsight.results import COLLECTIVES
from nightsight.tables import NULLABLE, innermost_of

_KEYS: Final = ["name", "type", "bytes", "group_size", "ranks", "pid"]


def collectives(timeline: Timeline) -> Table:
    """Return one row per collective, size of its message, ranks and process.

    The kernels of a collective are those that calls inside it launched.
    """
    called = timeline.profile.table("collectives").assign(total_ns=0)
    operations = timeline.operations
    launched = np.flatnonzero(operations.of("kernels") & (operations.call >= 0))
    if len(launched):
        calls = timeline.profile.table("api_calls")
        thread, start = (calls[name].to_numpy()[operations.call[launched]] for name in ("thread", "start_ns"))
        row = innermost_of(called, thread, start)
        time = (operations.end - operations.start)[launched]
        called["total_ns"] = np.bincount(row[row >= 0], time[row >= 0], len(called)).astype(np.int64)
    grouped = called.groupby(_KEYS, observed=True, dropna=False)["total_ns"]
    table = grouped.agg(calls="size", total_ns="sum", avg_ns="mean").reset_index()
    is_known = table["total_ns"] > 0
    table["avg_ns"] = table["avg_ns"].where(is_known)
    table["total_ns"] = table["total_ns"].astype(NULLABLE).where(is_known)
    table = table.rename(columns={"bytes": "message_bytes"})
    order = ["total_ns", "calls", "name", "message_bytes"]
    table = table.sort_values(order, ascending=[False, False, True, True], ignore_index=True)
    return Table(table[["pid", "total_ns", "calls", "avg_ns", "message_bytes", "type", "group_size", "ranks", "name"]])


ANALYSES: Final = (Analysis(COLLECTIVES, collectives),)
