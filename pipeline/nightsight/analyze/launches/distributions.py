"""Histograms of kernel durations, API times and launch latencies, with bins that are evenly spaced on a log axis."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pandas as pd

from nightsight.analyze.analysis import Analysis, Table
from nightsight.analyze.launches.figures import API, LATENCY, launch_times
from nightsight.events.timeline import Timeline, begun
from nightsight.intervals import Ints
from nightsight.results.launches import KERNEL_DURATIONS, LAUNCH_LATENCIES
from nightsight.tables import positions
from nightsight.units import counted

DURATION: Final = "kernel duration"

_COLUMNS: Final = ["device", "figure", "from_ns", "below_ns", "count", "total_ns", "med_ns", "p95_ns"]
# ten round steps per decade, as even as the preferred numbers of ISO 3; rounded to whole ns, fewer below 10 ns
_STEPS: Final = (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0)
_EDGES: Final[Ints] = np.unique([0, *(round(step * 10**decade) for decade in range(18) for step in _STEPS), 10**18])


def kernel_durations(timeline: Timeline) -> Table:
    """Return the histogram of kernel durations in ns: one row per device and non-empty bin."""
    operations, kernels = timeline.operations, len(timeline.profile.table("kernels"))
    # kernels are the first operations, and a slice, unlike a mask, does not copy
    time, device = operations.end[:kernels] - operations.start[:kernels], operations.device[:kernels]
    inside = begun(timeline, operations.start[:kernels])
    return _histogram_table(
        _histograms(DURATION, *((device, time) if inside.all() else (device[inside], time[inside])))
    )


def launch_latencies(timeline: Timeline) -> Table:
    """Return the histograms of API time and launch latency in ns: one row per device, figure and non-empty bin."""
    times = launch_times(timeline)
    is_shown = times.met_idle & (times.wait >= 0)
    latency = _histograms(LATENCY, times.device[is_shown], times.wait[is_shown])
    early_count = int((times.met_idle & ~is_shown).sum())
    # clocks that are offset give negative latencies, which a log axis cannot show
    early = counted(early_count, "launch began before its call did", "launches began before their calls did")
    note = f"{early}, by the clock of the GPU; not counted in any bin."
    return _histogram_table([*_histograms(API, times.device, times.api), *latency], (note,) if early_count else ())


def _histogram_table(frames: Iterable[pd.DataFrame], notes: tuple[str, ...] = ()) -> Table:
    rows = pd.concat(list(frames) or [pd.DataFrame(columns=_COLUMNS)], ignore_index=True)
    return Table(rows.sort_values(["device", "figure", "from_ns"], ignore_index=True)[_COLUMNS], notes)


def _histograms(figure: str, device: Ints, time: Ints) -> Iterator[pd.DataFrame]:
    """Yield the histogram of `time` (ns) for each device; the last bin has no upper edge."""
    for number, rows in positions(device).items():
        times = time if len(rows) == len(time) else time[rows]
        place = np.searchsorted(_EDGES[1:-1], times, side="right")
        count = np.bincount(place, minlength=len(_EDGES) - 1)
        median, high = np.percentile(times, [50, 95])
        bins = pd.DataFrame(
            {
                "from_ns": _EDGES[:-1],
                "below_ns": _EDGES[1:],
                "count": count,
                "total_ns": np.bincount(place, times, len(count)).astype(np.int64),
            }
        )
        yield bins[count > 0].assign(device=number, figure=figure, med_ns=median, p95_ns=high)


ANALYSES: Final = (
    Analysis(KERNEL_DURATIONS, kernel_durations),
    Analysis(LAUNCH_LATENCIES, launch_latencies),
)
