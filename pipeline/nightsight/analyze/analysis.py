"""An analysis: a function that computes the table of one entry of the register from a timeline."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from nightsight.events.timeline import Timeline
from nightsight.model.report import Result
from nightsight.results.entry import Entry


@dataclass(frozen=True)
class Table:
    """The output of an analysis: the rows, sentences to show below them, and a title if the entry's does not fit."""

    frame: pd.DataFrame
    notes: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Analysis:
    """One entry of the register and the function that computes its table.

    rows_from: the canonical table whose rows the result needs to have any; "" if there is no such table.
    """

    entry: Entry
    compute: Callable[[Timeline], Table]
    rows_from: str = ""

    def run(self, timeline: Timeline) -> Result:
        """Return the result, or the reason if a required table, or each of several alternative tables, is missing.

        ValueError if the columns differ from the entry's, which is a bug.
        """
        entry, profile = self.entry, timeline.profile
        present = profile.tables.keys()
        lacking = {*entry.needs} - present | ({*entry.one_of} if present.isdisjoint(entry.one_of) else set())
        reasons = {profile.why_missing(name) for name in lacking}
        if reasons:
            return Result(entry.name, entry.title, entry.help, None, unavailable="; ".join(sorted(reasons)))
        if self.rows_from and not len(profile.recorded(self.rows_from)):
            return Result(entry.name, entry.title, entry.help, entry.empty())
        table = self.compute(timeline)
        entry.check(table.frame)
        return Result(entry.name, table.title or entry.title, entry.help, table.frame, notes=table.notes)
