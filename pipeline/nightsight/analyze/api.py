"""CPU time in CUDA calls."""

from typing import Final

from nightsight.analyze.analysis import Analysis, Table
from nightsight.events.names import api_names
from nightsight.events.timeline import Timeline, of_window
from nightsight.results.program import CUDA_API_SUM
from nightsight.tables import renamed, time_summary


def cuda_api(timeline: Timeline) -> Table:
    """Return one row per CUDA function and layer, with statistics of its duration."""
    calls = of_window(timeline, "api_calls", ["name", "layer"])
    calls = calls.assign(name=renamed(calls["name"], api_names))
    return Table(time_summary(calls, ["name", "layer"]).rename(columns={"count": "calls"}))


ANALYSES: Final = (Analysis(CUDA_API_SUM, cuda_api),)
