"""The tables of a report, as the rules of advice read them."""

from collections.abc import Iterable

import pandas as pd

from nightsight.model import Result
from nightsight.results import GPU_TIME, Entry

Frame = pd.DataFrame


class Tables:
    """The tables of a report; one that the report lacks reads as a table without rows."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._tables = {result.name: result.rows for result in results}
        pids = [table["pid"].dropna() for table in self._tables.values() if "pid" in table]
        self._has_processes = len({int(pid) for some in pids for pid in some.unique()}) > 1
        windows = self.rows(GPU_TIME, "window_ns")["window_ns"]
        self.window_ns = int(windows.max()) if len(windows) else 0

    def rows(self, entry: Entry, *columns: str) -> Frame:
        """Return a result's table; without rows if it is missing or lacks one of `columns`.

        A table with a column `pid` gets a text column `of_process` (" of process 123"), empty if the report has only
        one process. KeyError for a column that the register does not list for this result.
        """
        if unknown := set(columns) - {column.name for column in entry.columns}:
            raise KeyError(f"{entry.name} never has {', '.join(sorted(unknown))}")
        table = self._tables.get(entry.name, pd.DataFrame())
        table = table if set(columns) <= set(table.columns) else pd.DataFrame(columns=list(columns))
        if "pid" not in table:
            return table
        known = table["pid"].notna() & self._has_processes
        return table.assign(of_process=(" of process " + table["pid"].astype("str")).where(known, ""))
