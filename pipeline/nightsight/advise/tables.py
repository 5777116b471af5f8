"""Read the tables of a report for the rules of advice, and name the unit of their gains."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pandas as pd

from nightsight.events.engine import ENGINE_STEP
from nightsight.events.loops import UNNAMED
from nightsight.model.report import Result, find
from nightsight.results.causes import REPLAY
from nightsight.results.entry import Entry
from nightsight.results.gpu_time import GPU_TIME
from nightsight.tables import Frame

REPLAY_COLUMNS: Final = tuple(column.name for column in REPLAY.columns if not column.is_optional)
"""The columns of the result `replay` that all reports have."""


class Tables:
    """The tables of a report; one that the report lacks reads as a table without rows."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._results = results
        windows = self.rows(GPU_TIME, "window_ns")["window_ns"]
        self.window_ns = int(windows.max()) if len(windows) else 0

    def rows(self, entry: Entry, *columns: str) -> Frame:
        """Return a result's table; without rows if it is missing or lacks one of `columns`.

        Raise KeyError for a column that the register does not list for this result.
        """
        if unknown := set(columns) - {column.name for column in entry.columns}:
            raise KeyError(f"{entry.name} never has {', '.join(sorted(unknown))}")
        result = find(self._results, entry.name)
        table = pd.DataFrame() if result is None else result.rows
        return table if set(columns) <= set(table.columns) else pd.DataFrame(columns=list(columns))


class GainUnit(NamedTuple):
    """The unit of gains in words: a step, a repetition of an unnamed loop, or the window."""

    each: str
    one: str
    per: str
    is_of_engine: bool = False


def step_of(replay: Mapping[Any, Any]) -> GainUnit:
    """Return the unit of the gains of a simulation, from its row of the result `replay`."""
    if not replay["of_repetitions"]:
        return GainUnit("the window", "the window", "in all")
    name = "repetition" if replay["family"].startswith(UNNAMED) else "step"
    return GainUnit(f"each {name}", f"a {name}", f"per {name}", replay["family"].endswith(ENGINE_STEP))
