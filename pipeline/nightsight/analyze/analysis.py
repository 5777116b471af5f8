"""What an analysis is: a function from the facts of a capture to the table of one entry of the register."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from nightsight.events.timeline import Timeline
from nightsight.model import Result
from nightsight.results import Entry


@dataclass(frozen=True)
class Table:
    """What an analysis computes: the rows, and sentences that belong under them."""

    frame: pd.DataFrame
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Analysis:
    """How one entry of the register is computed."""

    entry: Entry
    compute: Callable[[Timeline], Table]

    def run(self, timeline: Timeline) -> Result:
        """Compute the result; where a needed table is missing, say why in its place.

        ValueError if the table has other columns than its entry says: that is a bug.
        """
        entry, profile = self.entry, timeline.profile
        reasons = {profile.why_missing(need) for need in entry.needs if need not in profile.tables}
        if reasons:
            return Result(entry.name, entry.title, entry.help, None, unavailable="; ".join(sorted(reasons)))
        table = self.compute(timeline)
        entry.check(table.frame)
        return Result(entry.name, entry.title, entry.help, table.frame, notes=table.notes)
