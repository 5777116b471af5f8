"""Measures API, queue and execution time of launches, per kernel.

A CUDA graph launch is one launch, regardless of its content.
"""

from typing import Final

import numpy as np

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.timeline import Timeline, begun
from nightsight.results.launches import LAUNCH_OVERHEAD
from nightsight.system.parallel import memoize
from nightsight.tables import nullable_integers

_PHASES: Final = ("api", "queue", "execution")
_KEYS: Final = ["device", "name"]


@memoize
def launch_overhead(timeline: Timeline) -> Table:
    """Return one row per device and kernel, and one for graphs: the three phases of its launches in ns."""
    launches = timeline.launches
    launches = launches[begun(timeline, launches["start_ns"])]
    call = launches["call"].to_numpy()
    has_call = call >= 0
    call_start, call_end = (times[call] if len(times) else np.zeros(len(call)) for times in timeline.call_times)
    queue = launches["start_ns"].to_numpy() - call_end
    phases = launches[_KEYS].assign(
        api=np.where(has_call, call_end - call_start, np.nan),
        # a launch that starts before its call returns did not queue
        queue=np.where(has_call & (queue >= 0), queue, np.nan),
        execution=launches["end_ns"] - launches["start_ns"],
    )
    grouped = phases.groupby(_KEYS, observed=True, sort=True)
    table = grouped.size().rename("launches").reset_index()
    table["queued"] = grouped["queue"].count().to_numpy()
    for phase in _PHASES:
        for name, statistic in (("total", "sum"), ("med", "median"), ("max", "max")):
            # floats first: a kernel without recorded calls has no median and no maximum
            values = grouped[phase].agg(statistic).to_numpy(dtype=np.float64)
            table[f"{phase}_{name}_ns"] = values if name == "med" else nullable_integers(values)
    table = table.sort_values(["api_total_ns", "name"], ascending=[False, True], ignore_index=True)
    return Table(table[LAUNCH_OVERHEAD.column_names], _unmatched(int((~has_call).sum()), len(has_call)))


def _unmatched(count: int, total: int) -> tuple[str, ...]:
    if not count:
        return ()
    share = f"{count:,} of {total:,} launches ({count / total:.0%})"
    return (f"{share} have no recorded API call; only their execution is counted.",)


ANALYSES: Final = (Analysis(LAUNCH_OVERHEAD, launch_overhead),)
