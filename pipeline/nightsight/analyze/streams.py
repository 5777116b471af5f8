"""The work on each stream of a GPU, and the part of it that overlaps work on other streams."""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.ranges.callers import call_pids
from nightsight.events.timeline import Timeline, names_of, operation_column
from nightsight.intervals import Floats, Ints, Spans, clipped_union, covered, depth, length
from nightsight.results.gpu import STREAMS
from nightsight.tables import positions

# each context of each process numbers its streams
_KEYS: Final = ["device", "process", "context", "stream"]


def streams(timeline: Timeline) -> Table:
    """Return one row per stream with work in the window: by device, the longest busy time first; clipped to it."""
    operations, window = timeline.operations, timeline.window
    is_inside = (operations.start < window.end_ns) & (operations.end > window.start_ns) & timeline.is_launched
    rows = np.flatnonzero(is_inside)
    if not len(rows):
        return Table(STREAMS.empty())
    stream = np.zeros(len(rows), dtype=np.int64)
    for name in _KEYS:
        # often one GPU, one process and one context
        if len(distinct_values := np.sort(pd.unique(column := operation_column(timeline, name)[rows]))) > 1:
            stream = stream * len(distinct_values) + np.searchsorted(distinct_values, column)
    stream = pd.factorize(stream, sort=True)[0]
    by_stream = {number: rows[of_stream] for number, of_stream in positions(stream).items()}
    spans = [clipped_union(operations.start[work], operations.end[work], window.bounds) for work in by_stream.values()]
    first = np.array([work[0] for work in by_stream.values()])
    device = operations.device[first]
    last_call = np.array([operations.call[work].max() for work in by_stream.values()])
    busy_ns = np.array([length(busy) for busy in spans])
    counts = np.bincount(3 * stream + operations.kind[rows], minlength=3 * len(spans)).reshape(-1, 3)
    overlap_ns = _overlaps(spans, device)
    main = _main_operations(timeline, rows, stream)
    table = pd.DataFrame(
        {
            "device": device,
            "pid": call_pids(timeline, last_call),
            "stream": operations.stream[first],
            "kernels": counts[:, 0],
            "copies": counts[:, 1],
            "graph_launches": counts[:, 2],
            "busy_ns": busy_ns,
            "busy_pct": _percent(busy_ns, window.length_ns),
            "overlap_ns": overlap_ns,
            "overlap_pct": _percent(overlap_ns, busy_ns),
            "main_operation": main["name"],
            "main_operation_pct": main["pct"],
        }
    )
    if not counts[:, 2].any():
        table = table.drop(columns="graph_launches")
    order = ["device", "busy_ns", "pid", "stream"]
    return Table(table.sort_values(order, ascending=[True, False, True, True], ignore_index=True))


def _percent(part: Ints, whole: Ints | int) -> Floats:
    """Return each part in percent; NaN for the part of nothing: some captures have operations without a duration."""
    return np.where(whole == 0, np.nan, 100.0 * part / np.maximum(whole, 1))


def _overlaps(spans: list[Spans], device: Ints) -> Ints:
    """Return for each stream how long another stream of its device had work, too, in ns. `spans`: its busy time."""
    overlap_ns = np.zeros(len(spans), dtype=np.int64)
    for of_device in positions(device).values():
        if len(of_device) < 2:
            continue
        start, end = (np.sort(np.concatenate([spans[place][side] for place in of_device])) for side in (0, 1))
        # numpy.unique takes seconds for a million distinct numbers
        edges = np.sort(np.concatenate((start, end)))
        is_shared = (depth(start, end, edges[:-1]) > 1) & (np.diff(edges) > 0)
        shared = edges[:-1][is_shared], edges[1:][is_shared]
        overlap_ns[of_device] = [covered(shared, *spans[place]).sum() for place in of_device]
    return overlap_ns


def _main_operations(timeline: Timeline, rows: Ints, stream: Ints) -> pd.DataFrame:
    """Return the operation with the most time on each stream (`name`), and its share of the stream's time (`pct`).

    rows: the operations. stream: the number of the stream of each.
    """
    window, operations = timeline.window, timeline.operations
    start, end = (np.clip(times[rows], window.start_ns, window.end_ns) for times in (operations.start, operations.end))
    names = names_of(timeline, rows)
    count = len(names.categories)
    key = stream * count + names.codes
    # one number for both: pandas groups a million rows by two columns in ten times the time
    total_ns = np.bincount(key, weights=end - start).astype(np.int64)
    used = np.flatnonzero(np.bincount(key))
    sums = pd.DataFrame({"stream": used // count, "name": names.categories[used % count], "ns": total_ns[used]})
    of_stream = sums.groupby("stream")["ns"].transform("sum").to_numpy()
    sums = sums.assign(pct=_percent(sums["ns"].to_numpy(), of_stream))
    # of names with equal times, the first in the alphabet
    ordered = sums.sort_values(["stream", "ns", "name"], ascending=[True, False, True])
    main = ordered.drop_duplicates("stream", ignore_index=True)
    return main.astype({"name": "str"})


ANALYSES: Final = (Analysis(STREAMS, streams),)
