"""The recorded captures as tests see them: read, analysed and rendered once in a session, by one process."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from nightsight.events.window import WHOLE
from nightsight.model import Profile, Report
from nightsight.read import read
from nightsight.render import render_html
from nightsight.workflow import build_report

DATA: Final = Path(__file__).parent / "data"


class Recorded:
    """What is made of a capture: of nsys (`train`), of ncu (`lines.ncu-rep`), of torch (`mini_torch`).

    Each caller gets frames of their own, which share their memory until one is changed (pandas' copy-on-write): what a
    test changes, no other sees.
    """

    def __init__(self, capture_file: Callable[[str], Path]) -> None:
        self._profile = cache(lambda name: read(next((DATA.rglob(f"{name}.json.gz")), None) or capture_file(name)))
        self._report = cache(lambda name: build_report(self._profile(name), name))
        self._page = cache(lambda name: render_html(self._report(name), self._profile(name)))

    def profile(self, name: str) -> Profile:
        """Return what is read of a capture."""
        profile = self._profile(name)
        return replace(profile, tables={name: table.copy(deep=False) for name, table in profile.tables.items()})

    def report(self, name: str) -> Report:
        """Return the report of a capture, with its name as title."""
        report = self._report(name)
        own = (
            result if result.table is None else replace(result, table=result.table.copy(deep=False))
            for result in report.results
        )
        return replace(report, results=tuple(own))

    def page(self, name: str) -> str:
        """Return the page of a capture, with its timeline."""
        return self._page(name)


def whole(profile: Profile) -> Profile:
    """Return a profile whose report is about all of it, as NVIDIA's tables are."""
    return replace(profile, window=WHOLE)
