"""What an analysis is: a function from canonical tables to one result, and what it needs to be possible."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from nightsight.events.timeline import Timeline
from nightsight.model import Result


@dataclass(frozen=True)
class Table:
    """What an analysis computes: the rows, and sentences that belong under them."""

    frame: pd.DataFrame
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Analysis:
    """One result of a report: its name, heading, definition, the tables it needs, and how it is computed."""

    name: str
    title: str
    help: str
    needs: tuple[str, ...]
    compute: Callable[[Timeline], Table]

    def run(self, timeline: Timeline) -> Result:
        """Compute the result; where a needed table is missing, say why in its place."""
        profile = timeline.profile
        reasons = {profile.why_missing(need) for need in self.needs if need not in profile.tables}
        if reasons:
            return Result(self.name, self.title, self.help, None, unavailable="; ".join(sorted(reasons)))
        table = self.compute(timeline)
        return Result(self.name, self.title, self.help, table.frame, notes=table.notes)
