"""The output formats: each renders a report, or the events behind it.

To add a format, write a function and add a line to FORMATS. A format imports only what it needs itself: the modules of
a page take as long to import as a JSON file takes to write.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nightsight.errors import UsageError
from nightsight.events.categories import Activity
from nightsight.model.report import Profile, Report
from nightsight.render.page import MOST_BYTES

if TYPE_CHECKING:
    from nightsight.render.timeline.rows import TimelineEvents


@dataclass(frozen=True)
class Source:
    """The input of a renderer: a report, its profile (None for a report.json), and the page size limit in bytes.

    local: names source files in printed texts by their path on this machine; files that are written never have it.
    activities: returns the activity of each device at every instant; empty if it is unknown. prepared: returns what
    `Format.prepare` does; None if that was not called.
    """

    report: Report
    profile: Profile | None = None
    most_bytes: int = MOST_BYTES
    activities: Callable[[], Mapping[int, Activity]] = dict
    prepared: Callable[[], Any] | None = None
    local: Callable[[str], str] = str

    @property
    def events(self) -> Profile:
        """The profile; UsageError if there is none."""
        if self.profile is None:
            raise UsageError("a report.json contains no events", "pass the capture that it was made from")
        return self.profile


Renderer = Callable[[Source], dict[str, bytes]]


@dataclass(frozen=True)
class Format:
    """An output format: its file name suffix, and a function that imports what it needs and returns the renderer.

    A renderer returns files by name; a single file has the name "". A format with `of_events` needs a profile read with
    all details of its events. One that `has_windows` shows the other windows of a report, too. One that `is_printed`
    goes to standard output by default. prepare: computes what `render` needs of the events, for `Source.prepared`,
    while the report is made.
    """

    suffix: str
    load: Callable[[], Renderer]
    is_folder: bool = False
    of_events: bool = False
    has_windows: bool = False
    is_printed: bool = False
    prepare: Callable[[Profile], Any] | None = None

    def render(self, source: Source) -> dict[str, bytes]:
        """Return the files of a report by name."""
        return self.load()(source)


def format_of(name: str) -> str:
    """Return the format that a file name implies by its suffix, `html` if it matches none."""
    # the longest suffix wins: ".speedscope.json" also ends in ".json"
    files = (style for style, form in FORMATS.items() if not form.is_folder and name.endswith(form.suffix))
    return max(files, key=lambda style: len(FORMATS[style].suffix), default="html")


def _html() -> Renderer:
    from nightsight.render.page.html import preload, render_html

    preload()
    return lambda source: {
        "": render_html(
            source.report,
            source.profile,
            most_bytes=source.most_bytes,
            activities=source.activities,
            events=source.prepared,
        ).encode()
    }


def _events_of_page(profile: Profile) -> "TimelineEvents":
    from nightsight.render.timeline.payload import all_events

    return all_events(profile)


def _json() -> Renderer:
    from nightsight.render.export.data import render_json

    return lambda source: render_json(source.report)


def _csv() -> Renderer:
    from nightsight.render.export.data import render_csv

    return lambda source: render_csv(source.report)


def _parquet() -> Renderer:
    from nightsight.render.export.data import render_parquet

    return lambda source: render_parquet(source.report)


def _markdown() -> Renderer:
    from nightsight.render.export.markdown import render_markdown

    return lambda source: {"": render_markdown(source.report).encode()}


def _brief() -> Renderer:
    from nightsight.render.brief import render_brief

    return lambda source: {"": render_brief(source.report, source.local)}


def _brief_json() -> Renderer:
    from nightsight.render.brief import render_brief_json

    return lambda source: {"": render_brief_json(source.report)}


def _svg() -> Renderer:
    from nightsight.render.page.picture import render_svg

    return lambda source: {"": render_svg(source.report).encode()}


def _perfetto() -> Renderer:
    from nightsight.render.export.perfetto import perfetto_trace

    return lambda source: {"": perfetto_trace(source.events)}


def _speedscope() -> Renderer:
    from nightsight.render.export.speedscope import speedscope_profile

    return lambda source: {"": speedscope_profile(source.events)}


FORMATS: Final[Mapping[str, Format]] = {
    "html": Format(".html", _html, has_windows=True, prepare=_events_of_page),
    "json": Format(".json", _json, has_windows=True),
    "csv": Format(".csv", _csv, is_folder=True),
    "parquet": Format(".parquet", _parquet, is_folder=True),
    "markdown": Format(".md", _markdown, has_windows=True),
    "brief": Format(".brief.txt", _brief, is_printed=True),
    "brief.json": Format(".brief.json", _brief_json, is_printed=True),
    "svg": Format(".svg", _svg),
    "perfetto": Format(".perfetto.json.gz", _perfetto, of_events=True),
    "speedscope": Format(".speedscope.json", _speedscope, of_events=True),
}
