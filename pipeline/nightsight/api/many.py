"""Many captures together, and many nights."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from nightsight.api.shown import MOST_BYTES_SHOWN, preformatted, text_of, written
from nightsight.events.window import AUTO
from nightsight.model.fleet import Fleet as FleetResult
from nightsight.model.history import Event, Trends
from nightsight.progress import silent
from nightsight.read import MOST_BYTES
from nightsight.render.fleet import fleet_brief
from nightsight.system.executor import LOCAL, Cluster
from nightsight.texts import middle_cut
from nightsight.workflows.fleet import FleetRequest, report_fleet
from nightsight.workflows.history import TrendRequest, as_text, read_trends
from nightsight.workflows.opening import Reading


@dataclass(frozen=True, repr=False)
class Fleet:
    """Many captures together (docs/fleet.md)."""

    result: FleetResult
    page: str = field(compare=False)

    @property
    def captures(self) -> pd.DataFrame:
        """A row for each capture."""
        return self.result.captures

    @property
    def causes(self) -> pd.DataFrame:
        """The causes, those that recur first."""
        return self.result.causes

    def to_html(self, path: str | Path) -> Path:
        """Write the page to a file and return its path."""
        return written(path, self.page.encode())

    def __repr__(self) -> str:
        """Return the brief: what recurs, in how many captures."""
        return text_of(fleet_brief(self.result, MOST_BYTES_SHOWN))

    def _repr_html_(self) -> str:
        """Show the brief in a notebook."""
        return preformatted(repr(self))


@dataclass(frozen=True, repr=False)
class History:
    """What changed over many nights (docs/history.md)."""

    result: Trends

    @property
    def events(self) -> tuple[Event, ...]:
        """The changes of level, the newest first."""
        return self.result.events

    def __repr__(self) -> str:
        """Return the events, then the state of each workload."""
        return middle_cut("\n".join(as_text(self.result)), MOST_BYTES_SHOWN // 2)

    def _repr_html_(self) -> str:
        """Show the same in a notebook."""
        return preformatted(repr(self))


def fleet(
    patterns: str | Sequence[str],
    *,
    page: str | Path = "fleet.html",
    workers: int = 0,
    workload: str = "",
    window: str = AUTO,
) -> Fleet:
    """Summarize many captures, which processes on this machine read: `ns.fleet("nights/**/*.sqlite")`.

    page: where the page will be written, which this does not do: summaries are kept next to it, so that each capture is
    read only once, and it links to reports below it. workers: 0 for one per core.
    """
    asked = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    request = FleetRequest(asked, Path(page), "", workload, Cluster(LOCAL, workers))
    return Fleet(*report_fleet(request, Reading(None, MOST_BYTES, silent, window)))


def history(
    place: str | Path = "reports/history", workloads: Sequence[str] = (), *, canaries: Sequence[str] = ()
) -> History:
    """Read a history, in a folder or at a URL, and find what changed in the last 90 nights.

    canaries: workloads whose code never changes.
    """
    return History(read_trends(TrendRequest(str(place), tuple(workloads), tuple(canaries))))
