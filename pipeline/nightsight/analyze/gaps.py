"""Finds when each device was idle: the longest gaps with their causes, and the utilization over the window."""

from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.ranges.callers import call_paths
from nightsight.analyze.split import devices_at_work, idle_causes
from nightsight.events.timeline import Timeline, busy_spans, by_device, names_of
from nightsight.intervals import Ints, Spans, covered, divided, gaps
from nightsight.results.categories import IDLE
from nightsight.results.gpu import GPU_GAPS, GPU_UTILIZATION

STRETCHES: Final = 30
# a window has room for at most 100 gaps of 1 %, so advice sees all gaps that it counts as long
LONGEST: Final = 100
_LEAST: Final = 1e-5  # of the window


def gpu_gaps(timeline: Timeline) -> Table:
    """Return the longest idle gaps of each device, longest first: between operations, or at an end of the window."""
    window, gaps_of_devices = timeline.window, []
    for device in devices_at_work(timeline):
        idle = gaps(busy_spans(timeline)[int(device)], window.bounds)
        piece = _longest(idle, least=_LEAST * window.length_ns)
        start, end = idle[0][piece], idle[1][piece]
        causes = idle_causes(timeline, device=int(device), piece=piece)
        before, after = _neighbors(timeline, by_device(timeline)[int(device)], start, end)
        which, share = causes.argmax(axis=1), causes.max(axis=1)
        gaps_of_devices.append((np.full(len(start), device), start, end, which, share, before, after))
    if not gaps_of_devices:
        return Table(pd.DataFrame(columns=GPU_GAPS.column_names).astype(dict.fromkeys(_TEXTS, "str")))
    device, start, end, which, share, before, after = map(np.concatenate, zip(*gaps_of_devices, strict=True))
    length = end - start
    columns = {
        "device": device,
        "time_ns": start - window.start_ns,
        "gap_ns": length,
        "share_pct": 100.0 * length / window.length_ns,
        "cause": np.array(IDLE, dtype=object)[which],
        "cause_pct": 100.0 * share / length,
        "before": names_of(timeline, before),
        "after": names_of(timeline, after),
        "path": call_paths(timeline, np.append(timeline.operations.call, -1)[after]),
    }
    rows = pd.DataFrame(columns)[GPU_GAPS.column_names].sort_values(
        ["device", "gap_ns", "time_ns"], ascending=[True, False, True], ignore_index=True
    )
    return Table(rows.astype(dict.fromkeys(_TEXTS, "str")))


_TEXTS: Final = ("cause", "before", "after", "path")


def gpu_utilization(timeline: Timeline) -> Table:
    """Return up to STRETCHES equal stretches of the window per device, with the busy share of each in percent."""
    window, tables = timeline.window, [pd.DataFrame(columns=GPU_UTILIZATION.column_names)]
    # no stretch is shorter than 1 ns
    count = min(STRETCHES, window.length_ns)
    edges = divided(window.start_ns, window.length_ns, count)
    for device in devices_at_work(timeline):
        busy = covered(busy_spans(timeline)[int(device)], edges[:-1], edges[1:])
        since = edges - window.start_ns
        columns = (device, since[:-1], since[1:], 100.0 * busy / np.diff(edges))
        tables.append(pd.DataFrame(dict(zip(GPU_UTILIZATION.column_names, columns, strict=True))))
    return Table(pd.concat(tables[1:] or tables, ignore_index=True))


def _longest(idle: Spans, *, least: float) -> Ints:
    """Return the positions of the longest pieces; of pieces shorter than `least` ns only if no piece is longer."""
    length = idle[1] - idle[0]
    order = np.arange(len(length))
    if len(length) > LONGEST:
        # a million pieces are not sorted for a few
        order = np.flatnonzero(length >= np.partition(length, -LONGEST)[-LONGEST])
    order = order[np.argsort(-length[order], kind="stable")][:LONGEST]
    return np.sort(order[length[order] >= min(least, length.max(initial=0))])


def _neighbors(timeline: Timeline, of_device: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the last operation to end before each gap and the first to begin after it; -1 for none."""
    operations = timeline.operations
    by_end = of_device[np.argsort(operations.end[of_device], kind="stable")]
    by_start = of_device[np.argsort(operations.start[of_device], kind="stable")]
    before = np.searchsorted(operations.end[by_end], start, side="right") - 1
    after = np.searchsorted(operations.start[by_start], end, side="left")
    # without an operation before, the index is -1; without one after, the length: both find the appended -1
    return np.append(by_end, -1)[before], np.append(by_start, -1)[after]


ANALYSES: Final = (
    Analysis(GPU_GAPS, gpu_gaps),
    Analysis(GPU_UTILIZATION, gpu_utilization),
)
