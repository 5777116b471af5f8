"""The content of the trend page: events first, then each workload on each GPU, with its epochs and numbers."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import numpy as np

from nightsight.events.kernel_labels import KernelLabels
from nightsight.model.history import Event, LevelChange, Night, Series, State, Track, Trends
from nightsight.render.table.view import Cell, Heading, Row, TableView, short_text
from nightsight.texts import printable
from nightsight.units import ABSENT, counted, format_value, signed

_LEAST_SPAN: Final = 0.06  # of the value: noise must not look like a mountain
STATES: Final[dict[State, str]] = {
    "confirmed": "off for three nights or more, and not accepted",
    "suspect": "off for one or two nights",
    "accepted": "in nightsight.toml, with a reason",
    "recovered": "a later change led back to the level before",
    "ended": "confirmed, and then its epoch ended: no night can show whether it recovers",
}
_CAUSES: Final = {"code": "code", "environment": "environment", "unknown": "code or environment"}
_KINDS: Final = {"gate": ("Metric", "Metrics"), "kernel": ("Kernel", "Kernels")}


@dataclass(frozen=True)
class Links:
    """The link targets of the page: reports at a URL (or next to the page), and commits of a repository.

    available: the reports, WORKLOAD/RUN, that can be linked.
    """

    reports: str = ""
    repository: str = ""
    available: frozenset[str] = frozenset()

    def report(self, night: Night) -> str:
        """Return the address of a night's report, "" if there is none."""
        if re.match(r"https?://\S+$", night.link):
            return night.link
        base = f"{self.reports.rstrip('/')}/" if self.reports else ""
        # fully quoted, so that it stays a relative path
        return f"{base}{quote(night.link, safe='/')}/report.html" if night.link in self.available else ""

    def commits(self, change: LevelChange) -> str:
        """Return the address of the commits between the last night before a change and its first night."""
        first, last = (night.commit.rstrip("+") for night in (change.before, change.night))
        has_commits = all(re.fullmatch("[0-9a-f]{7,64}", commit) for commit in (first, last)) and first != last
        return f"{self.repository.rstrip('/')}/compare/{first}...{last}" if self.repository and has_commits else ""


@dataclass(frozen=True, eq=False)
class TrendGroup:
    """A workload on one GPU: its epochs, oldest first.

    series: by kind, in the order of the page; each consists of the indices of the epochs that have it, and its parts.
    """

    tracks: tuple[Track, ...]
    series: tuple[tuple[str, tuple[tuple[int, Series], ...]], ...]


@dataclass(frozen=True)
class EventView:
    """A row of the table of events."""

    since: str
    state: State
    direction: str
    cause: str
    sentence: str
    commits: str
    commits_href: str
    report_href: str
    anchor: str


@dataclass(frozen=True)
class Spark:
    """The main metric, for pages without scripts: lines by epoch, and marks, in percent of the plot."""

    title: str
    lines: tuple[str, ...]
    epochs: tuple[float, ...]
    marks: tuple[float, ...]
    low: str
    high: str
    first: str
    last: str


@dataclass(frozen=True)
class TrendSection:
    """A workload on one GPU."""

    anchor: str
    title: str
    gpu: str
    facts: str
    epochs: tuple[str, ...]
    spark: Spark | None
    metrics: TableView
    kernels: TableView | None
    options: tuple[tuple[str, tuple[tuple[int, str], ...]], ...]


@dataclass(frozen=True)
class TrendPage:
    """All values that the template of the page prints."""

    verdict: str
    facts: tuple[str, ...]
    problems: tuple[str, ...]
    events: tuple[EventView, ...]
    sections: tuple[TrendSection, ...]
    rule: str
    states: tuple[tuple[str, str], ...]


def groups(trends: Trends) -> list[TrendGroup]:
    """Group the tracks by workload and GPU; groups with open events come first."""
    tracks_of_group: dict[tuple[str, str], list[Track]] = {}
    for track in trends.tracks:
        tracks_of_group.setdefault((track.workload, track.key.gpu_name), []).append(track)
    open_tracks = {id(event.main.track) for event in trends.events if event.state in ("confirmed", "suspect")}
    ordered = sorted(tracks_of_group.values(), key=lambda tracks: not any(id(track) in open_tracks for track in tracks))
    return [_group(sorted(tracks, key=lambda track: track.nights[0].time)) for tracks in ordered]


def _group(tracks: Sequence[Track]) -> TrendGroup:
    parts_of_series: dict[tuple[str, str], list[tuple[int, Series]]] = {}
    # the newest epoch decides the order
    for epoch, track in reversed(list(enumerate(tracks))):
        for series in track.series:
            parts_of_series.setdefault((series.kind, series.name), []).append((epoch, series))
    ordered = sorted(parts_of_series.items(), key=lambda item: item[0][0] != "gate")
    return TrendGroup(tuple(tracks), tuple((kind, tuple(reversed(parts))) for (kind, _), parts in ordered))


def trend_page(trends: Trends, links: Links) -> TrendPage:
    """Lay out the page."""
    ordered = groups(trends)
    anchors = {id(track): f"track-{number}" for number, group in enumerate(ordered) for track in group.tracks}
    labels = KernelLabels(series.name for track in trends.tracks for series in track.series if series.kind == "kernel")
    changes: dict[int, LevelChange] = {}
    for event in reversed(trends.events):
        changes.update({id(change.series): change for change in event.changes})
    times = sorted(night.time[:10] for track in trends.tracks for night in track.nights if night.time)
    gpus = dict.fromkeys(track.key.gpu_name for track in trends.tracks)
    facts = (
        counted(len({track.workload for track in trends.tracks}), "workload"),
        *map(printable, gpus),
        *([f"{times[0]} to {times[-1]}"] if times else []),
    )
    is_empty = not trends.tracks
    return TrendPage(
        verdict=(
            "The history is empty. Begin it with: nightsight history add RUN" if is_empty else _verdict(trends.events)
        ),
        facts=() if is_empty else facts,
        problems=tuple(map(printable, trends.problems)),
        events=tuple(_event(event, links, anchors[id(event.main.track)]) for event in trends.events),
        sections=tuple(_section(group, f"track-{number}", labels, changes) for number, group in enumerate(ordered)),
        rule=trends.rule,
        states=tuple(STATES.items()),
    )


def _verdict(events: Sequence[Event]) -> str:
    counts = Counter(
        f"{state} {'slowdown' if event.direction == 'slower' else 'improvement'}"
        for state in ("confirmed", "suspect")
        for event in events
        if event.state == state
    )
    return ", ".join(counted(count, name) for name, count in counts.items()) or "No change is open."


def _event(event: Event, links: Links, anchor: str) -> EventView:
    main = event.main
    commits = ""
    if main.before.commit and main.night.commit and main.before.commit != main.night.commit:
        commits = f"{main.before.commit[:10]}..{main.night.commit[:10]}"
    return EventView(
        since=main.night.time[:10] or ABSENT,
        state=event.state,
        direction=event.direction,
        cause=_CAUSES[event.cause],
        sentence=printable(event.sentence),
        commits=printable(commits) if commits else "",
        commits_href=links.commits(main),
        report_href=links.report(main.night),
        anchor=anchor,
    )


def _section(group: TrendGroup, anchor: str, labels: KernelLabels, changes: dict[int, LevelChange]) -> TrendSection:
    newest = group.tracks[-1]
    title, gpu = short_text(newest.workload), short_text(newest.key.gpu_name)
    rows = [(kind, _row(parts, labels, changes)) for kind, parts in group.series]
    options, tables = [], {}
    for kind, (header, word) in _KINDS.items():
        of_kind = [(number, row) for number, (row_kind, row) in enumerate(rows) if row_kind == kind]
        if of_kind:
            options.append((word, tuple((number, row.name.text) for number, row in of_kind)))
        tables[kind] = TableView(
            f"{word} of {title} on {gpu}",
            _trend_headings(header),
            tuple(row for _, row in of_kind),
            name=f"{kind}-{anchor}",
        )
    epochs = []
    for before, track in zip((None, *group.tracks[:-1]), group.tracks, strict=True):
        start = ", ".join(track.key.differences(before.key)) if before else track.key.text or "unknown machine"
        epochs.append(f"{track.nights[0].time[:10]}: {printable(start)}")
    nights = sum(len(track.nights) for track in group.tracks)
    last = f"the last {newest.nights[-1].time[:10] or 'without a date'}"
    return TrendSection(
        anchor,
        title,
        gpu,
        facts=", ".join(filter(None, (counted(nights, "night"), last, newest.nights[-1].proof))),
        epochs=tuple(epochs),
        spark=_spark(group),
        metrics=tables["gate"],
        kernels=tables["kernel"] if tables["kernel"].rows else None,
        options=tuple(options),
    )


def _trend_headings(header: str) -> tuple[Heading, ...]:
    return (
        Heading(header, is_number=False, name="name"),
        *(Heading(title, name=title.lower()) for title in ("Now", "Before", "Change")),
        *(Heading(title, is_number=False, name=title.lower()) for title in ("State", "Since")),
    )


def _row(parts: Sequence[tuple[int, Series]], labels: KernelLabels, changes: dict[int, LevelChange]) -> Row:
    _, series = parts[-1]
    if series.kind == "kernel":
        short, full = labels.short(series.name), printable(series.name)
        name = Cell(short, full if full != short else "")
    else:
        name = Cell(printable(series.label))
    now, before, percent, since = format_value(series.last, series.column), ABSENT, ABSENT, ABSENT
    state = "steady" if series.levels else "not tested"
    if change := changes.get(id(series)):
        before, since = format_value(change.baseline, series.column), change.night.time[:10]
        percent, state = f"{signed(change.change_pct)} %" if change.baseline else "from 0", change.state
    return Row(name, tuple(map(Cell, (now, before, percent, state, since))))


def _spark(group: TrendGroup) -> Spark | None:
    """Draw the first metric over all nights; None for fewer than two."""
    _, parts = group.series[0]
    main = parts[-1][1]
    values = np.concatenate([series.values for _, series in parts])
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return None
    low, high = float(values.min()), float(values.max())
    # widen a range that is narrow for its values
    missing = max(_LEAST_SPAN * high - (high - low), 0.05 * (high - low))
    low, high = max(low - missing / 2, 0.0), high + missing / 2 or 1.0
    nights = [night for epoch, _ in parts for night in group.tracks[epoch].nights]
    step, start = 100 / max(len(nights) - 1, 1), 0
    lines, epochs, marks = [], [], []
    for epoch, series in parts:
        x = step * (start + np.arange(len(series.values)))
        y = 100.0 * (high - series.values) / (high - low)
        lines.append(" ".join(f"{left:.2f},{top:.1f}" for left, top in zip(x, y, strict=True) if np.isfinite(top)))
        if start:
            epochs.append(round(step * (start - 0.5), 2))
        marks += [round(float(x[first]), 2) for first, _, _ in series.levels[1:]]
        start += len(group.tracks[epoch].nights)
    return Spark(
        printable(main.label),
        lines=tuple(filter(None, lines)),
        epochs=tuple(epochs),
        marks=tuple(marks),
        low=format_value(low, main.column),
        high=format_value(high, main.column),
        first=nights[0].time[:10],
        last=nights[-1].time[:10],
    )
