"""CPU time in CUDA calls."""

from typing import Final

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.timeline import Timeline, function_names, of_window
from nightsight.results.program import CUDA_API_SUM
from nightsight.tables import time_summary


def cuda_api(timeline: Timeline) -> Table:
    """Return one row per CUDA function and layer, with statistics of its duration."""
    calls = of_window(timeline, "api_calls", ["name", "layer"])
    names = function_names(timeline)
    if len(calls) < len(names):
        names = names[timeline.profile.recorded("api_calls").index.get_indexer(calls.index)]
    calls = calls.assign(name=names)
    return Table(time_summary(calls, ["name", "layer"]).rename(columns={"count": "calls"}))


ANALYSES: Final = (Analysis(CUDA_API_SUM, cuda_api),)
