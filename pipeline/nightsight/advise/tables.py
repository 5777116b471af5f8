"""Read the tables of a report for the rules of advice."""

from collections.abc import Sequence

import pandas as pd

from nightsight.model.report import Result, find
from nightsight.results.entry import Entry
from nightsight.results.gpu_time import GPU_TIME

Frame = pd.DataFrame


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
