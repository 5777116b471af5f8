"""Measures API, queue and execution time of launches, per kernel.

A CUDA graph launch is one launch, regardless of its content.
"""

from typing import Any, Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.timeline import Timeline, begun
from nightsight.intervals import Ints
from nightsight.results.launches import LAUNCH_OVERHEAD
from nightsight.system.parallel import memoize
from nightsight.tables import Grouped, grouped, integers, nullable_integers


@memoize
def launch_overhead(timeline: Timeline) -> Table:
    """Return one row per device and kernel, and one for graphs: the three phases of its launches in ns."""
    launches = timeline.launches
    launches = launches[begun(timeline, launches["start_ns"])]
    names, call = launches["name"].cat, launches["call"].to_numpy()
    has_call = call >= 0
    call_start, call_end = (times[call] if len(times) else np.zeros_like(call) for times in timeline.call_times)
    start, end = (launches[side].to_numpy() for side in ("start_ns", "end_ns"))
    key = integers(launches["device"]) * len(names.categories) + integers(names.codes)
    execution = grouped(key, end - start)
    # a launch that starts before its call returns did not queue
    queued = has_call & (start >= call_end)
    api = _part_of(execution.key, grouped(key[has_call], (call_end - call_start)[has_call]))
    queue = _part_of(execution.key, grouped(key[queued], (start - call_end)[queued]))
    device, name = np.divmod(execution.key, max(len(names.categories), 1))
    table = pd.DataFrame(
        {
            "launches": execution.count,
            "api_total_ns": api["total"],
            "api_med_ns": api["median"],
            "api_max_ns": api["most"],
            "queued": queue["count"],
            "queue_med_ns": queue["median"],
            "queue_max_ns": queue["most"],
            "execution_total_ns": nullable_integers(execution.total.astype(np.float64)),
            "execution_med_ns": execution.median,
            "device": device,
            "name": pd.Categorical.from_codes(name, categories=names.categories),
        }
    )
    table = table.sort_values(["api_total_ns", "name"], ascending=[False, True], ignore_index=True)
    return Table(table[LAUNCH_OVERHEAD.column_names], _unmatched(int((~has_call).sum()), len(has_call)))


def _part_of(key: Ints, groups: Grouped) -> dict[str, Any]:
    """Return statistics for all keys; those without values have a count and a total of 0, and nothing else."""
    place = np.searchsorted(key, groups.key)
    count, total = np.zeros((2, len(key)), dtype=np.int64)
    count[place], total[place] = groups.count, groups.total
    median, most = np.full((2, len(key)), np.nan)
    median[place], most[place] = groups.median, groups.most
    return {
        "count": count,
        "total": nullable_integers(total.astype(np.float64)),
        "median": median,
        "most": nullable_integers(most),
    }


def _unmatched(count: int, total: int) -> tuple[str, ...]:
    if not count:
        return ()
    share = f"{count:,} of {total:,} launches ({count / total:.0%})"
    return (f"{share} have no recorded API call; only their execution is counted.",)


ANALYSES: Final = (Analysis(LAUNCH_OVERHEAD, launch_overhead),)
