"""The output formats: each renders a report, or the events behind it.

To add a format, write a function and add a line to FORMATS.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from nightsight.errors import UsageError
from nightsight.model.report import Profile, Report
from nightsight.render.export.data import render_csv, render_json, render_parquet
from nightsight.render.export.markdown import render_markdown
from nightsight.render.export.perfetto import perfetto_trace
from nightsight.render.export.speedscope import speedscope_profile
from nightsight.render.page.html import MOST_BYTES, render_html, render_index, with_assets
from nightsight.render.page.index import IndexEntry, index_entry
from nightsight.render.page.summary import Numbers, numbers
from nightsight.render.table.layouts import refuse_incomplete
from nightsight.render.timeline.activity import Activities, unknown

__all__ = [
    "FORMATS",
    "MOST_BYTES",
    "Format",
    "IndexEntry",
    "Numbers",
    "Source",
    "format_of",
    "index_entry",
    "numbers",
    "refuse_incomplete",
    "render_html",
    "render_index",
    "render_markdown",
    "with_assets",
]


@dataclass(frozen=True)
class Source:
    """The input of a renderer: a report, its profile (None for a report.json), and the page size limit in bytes.

    activities: returns the activity of each device at every instant.
    """

    report: Report
    profile: Profile | None = None
    most_bytes: int = MOST_BYTES
    activities: Activities = unknown

    @property
    def events(self) -> Profile:
        """The profile; UsageError if there is none."""
        if self.profile is None:
            raise UsageError("a report.json contains no events", "pass the capture that it was made from")
        return self.profile


@dataclass(frozen=True)
class Format:
    """An output format: its file name suffix, and a function that returns its files by name.

    A single file has the name "". A format with `of_events` needs a profile read with all details of its events.
    """

    suffix: str
    render: Callable[[Source], dict[str, bytes]]
    is_folder: bool = False
    of_events: bool = False


def format_of(name: str) -> str:
    """Return the format that a file name implies by its suffix, `html` if it matches none."""
    # the longest suffix wins: ".speedscope.json" also ends in ".json"
    files = (style for style, form in FORMATS.items() if not form.is_folder and name.endswith(form.suffix))
    return max(files, key=lambda style: len(FORMATS[style].suffix), default="html")


def _page(source: Source) -> bytes:
    return render_html(
        source.report, source.profile, most_bytes=source.most_bytes, activities=source.activities
    ).encode()


FORMATS: Final[Mapping[str, Format]] = {
    "html": Format(".html", lambda source: {"": _page(source)}),
    "json": Format(".json", lambda source: render_json(source.report)),
    "csv": Format(".csv", lambda source: render_csv(source.report), is_folder=True),
    "parquet": Format(".parquet", lambda source: render_parquet(source.report), is_folder=True),
    "markdown": Format(".md", lambda source: {"": render_markdown(source.report).encode()}),
    "perfetto": Format(".perfetto.json.gz", lambda source: {"": perfetto_trace(source.events)}, of_events=True),
    "speedscope": Format(".speedscope.json", lambda source: {"": speedscope_profile(source.events)}, of_events=True),
}
