"""Content of the trend page: events first, then each workload on each GPU, with its epochs and numbers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import numpy as np

from nightsight.events.kernel_labels import Labels
from nightsight.model.history import Event, LevelChange, Night, Series, State, Track, Trends
from nightsight.render.table.view import Cell, Column, Row, TableView, counted, short_text
from nightsight.texts import printable
from nightsight.units import ABSENT, format_value

_HEIGHT: Final = 100.0
_LEAST_SPAN: Final = 0.06  # of the value: noise must not look like a mountain
STATES: Final[dict[State, str]] = {
    "confirmed": "off for three nights or more, and not accepted",
    "suspect": "off for one or two nights",
    "accepted": "in nightsight.toml, with a reason",
    "recovered": "a later change led back to the level before",
    "ended": "confirmed, and then its epoch was over: no night can show whether it recovers",
}
_CAUSES: Final = {"code": "code", "environment": "environment", "unknown": "code or environment"}


@dataclass(frozen=True)
class Links:
    """The link targets of the page: reports at a URL (or next to the page), and commits of a repository.

    at_hand: the reports, WORKLOAD/RUN, that can be linked.
    """

    reports: str = ""
    repository: str = ""
    at_hand: frozenset[str] = frozenset()

    def report(self, night: Night) -> str:
        """Return the address of a night's report, "" if there is none."""
        if re.match(r"https?://\S+$", night.link):
            return night.link
        base = f"{self.reports.rstrip('/')}/" if self.reports else ""
        # fully quoted, so that it stays a relative path whatever it contains
        return f"{base}{quote(night.link, safe='/')}/report.html" if night.link in self.at_hand else ""

    def commits(self, change: LevelChange) -> str:
        """Return the address of the commits between the last night before a change and its first night."""
        first, last = (night.commit.rstrip("+") for night in (change.before, change.night))
        is_known = all(re.fullmatch("[0-9a-f]{7,64}", commit) for commit in (first, last)) and first != last
        return f"{self.repository.rstrip('/')}/compare/{first}...{last}" if self.repository and is_known else ""


@dataclass(frozen=True, eq=False)
class TrendGroup:
    """A workload on one GPU: its epochs, oldest first, and each series with the epochs (by place) that have it."""

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
    """The main metric without scripts: lines by epoch, and marks, in percent of the plot."""

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
    """All of the page."""

    verdict: str
    facts: tuple[str, ...]
    problems: tuple[str, ...]
    events: tuple[EventView, ...]
    sections: tuple[TrendSection, ...]
    rule: str
    states: tuple[tuple[str, str], ...]


def groups(trends: Trends) -> list[TrendGroup]:
    """TrendGroup the tracks by workload and GPU."""
    tracks_of_group: dict[tuple[str, str], list[Track]] = {}
    for track in trends.tracks:
        tracks_of_group.setdefault((track.workload, track.key.gpu_name), []).append(track)
    # groups with events come first
    open_ones = {id(event.main.track) for event in trends.events if event.state in ("confirmed", "suspect")}
    ordered = sorted(tracks_of_group.values(), key=lambda tracks: not any(id(track) in open_ones for track in tracks))
    return [_group(sorted(tracks, key=lambda track: track.nights[0].time)) for tracks in ordered]


def trend_page(trends: Trends, links: Links) -> TrendPage:
    """Lay out the page."""
    grouped = groups(trends)
    anchors = {id(track): f"track-{number}" for number, group in enumerate(grouped) for track in group.tracks}
    names = [series.name for track in trends.tracks for series in track.series if series.kind == "kernel"]
    labels = Labels(names)
    changed: dict[int, LevelChange] = {}
    for event in reversed(trends.events):
        changed.update({id(change.series): change for change in event.changes})
    times = sorted(night.time[:10] for track in trends.tracks for night in track.nights if night.time)
    gpus = dict.fromkeys(track.key.gpu_name for track in trends.tracks)
    facts = (
        counted(len({track.workload for track in trends.tracks}), "workload"),
        *map(printable, gpus),
        *([f"{times[0]} to {times[-1]}"] if times else []),
    )
    return TrendPage(
        _verdict(trends.events) if trends.tracks else "The history is empty. Begin it with: nightsight history add RUN",
        facts if trends.tracks else (),
        tuple(map(printable, trends.problems)),
        tuple(_event(event, links, anchors[id(event.main.track)]) for event in trends.events),
        tuple(_section(group, f"track-{number}", labels, changed) for number, group in enumerate(grouped)),
        trends.rule,
        tuple(STATES.items()),
    )


def _verdict(events: Sequence[Event]) -> str:
    states = ("confirmed", "suspect")
    open_events = sorted((e for e in events if e.state in states), key=lambda event: states.index(event.state))
    counts = {
        f"{event.state} {_word(event)}": sum(
            other.state == event.state and _word(other) == _word(event) for other in open_events
        )
        for event in open_events
    }
    return ", ".join(counted(count, name) for name, count in counts.items()) or "No change is open."


def _word(event: Event) -> str:
    return "slowdown" if event.direction == "slower" else "improvement"


def _group(tracks: Sequence[Track]) -> TrendGroup:
    series: dict[tuple[str, str], list[tuple[int, Series]]] = {}
    # the newest epoch decides the order
    for place, track in reversed(list(enumerate(tracks))):
        for each in track.series:
            series.setdefault((each.kind, each.name), []).append((place, each))
    ordered = sorted(series.items(), key=lambda item: item[0][0] != "gate")
    return TrendGroup(tuple(tracks), tuple((kind, tuple(reversed(parts))) for (kind, _), parts in ordered))


def _event(event: Event, links: Links, anchor: str) -> EventView:
    main = event.main
    commits = ""
    if main.before.commit and main.night.commit and main.before.commit != main.night.commit:
        commits = f"{main.before.commit[:8]}…{main.night.commit[:8]}"
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


def _section(group: TrendGroup, anchor: str, labels: Labels, changed: dict[int, LevelChange]) -> TrendSection:
    newest = group.tracks[-1]
    rows = [(kind, _row(parts, labels, changed)) for kind, parts in group.series]
    title = short_text(newest.workload)
    gpu = short_text(newest.key.gpu_name)
    names = [(place, kind, row.name.text) for place, (kind, row) in enumerate(rows)]
    options = tuple(
        (word, tuple((place, name) for place, of, name in names if of == kind))
        for kind, word in (("gate", "Metrics"), ("kernel", "Kernels"))
        if any(of == kind for _, of, _ in names)
    )
    tables = [
        TableView(
            f"{word} of {title} on {gpu}",
            _COLUMNS[kind],
            tuple(row for of, row in rows if of == kind),
            name=f"{kind}-{anchor}",
        )
        for kind, word in (("gate", "Metrics"), ("kernel", "Kernels"))
    ]
    epochs = tuple(
        f"{track.nights[0].time[:10]}: {printable(_epoch_start(before, track))}"
        for before, track in zip((None, *group.tracks[:-1]), group.tracks, strict=True)
    )
    nights = sum(len(track.nights) for track in group.tracks)
    return TrendSection(
        anchor,
        title,
        gpu,
        f"{counted(nights, 'night')}, the last {newest.nights[-1].time[:10] or 'without a date'}",
        epochs,
        _spark(group),
        tables[0],
        tables[1] if tables[1].rows else None,
        options,
    )


def _epoch_start(before: Track | None, track: Track) -> str:
    return ", ".join(track.key.differences(before.key)) if before else track.key.text or "unknown machine"


def _columns(header: str) -> tuple[Column, ...]:
    return (
        Column(header, is_number=False, name="name"),
        *(Column(title, name=title.lower()) for title in ("Now", "Before", "Change")),
        *(Column(title, is_number=False, name=title.lower()) for title in ("State", "Since")),
    )


_COLUMNS: Final = {"gate": _columns("Metric"), "kernel": _columns("Kernel")}


def _row(parts: Sequence[tuple[int, Series]], labels: Labels, changed: dict[int, LevelChange]) -> Row:
    _, series = parts[-1]
    change = changed.get(id(series))
    if series.kind == "kernel":
        short, full = labels.short(series.name), printable(series.name)
        name = Cell(short, full if full != short else "")
    else:
        name = Cell(printable(series.label))
    texts = [
        format_value(series.last, series.column),
        ABSENT,
        ABSENT,
        "steady" if series.levels else "not tested",
        ABSENT,
    ]
    if change:
        percent = f"{change.change_pct:+.1f} %" if change.baseline else "from 0"
        before = format_value(change.baseline, series.column)
        texts[1:] = [before, percent, change.state, change.night.time[:10]]
    return Row(name, tuple(map(Cell, texts)))


def _spark(group: TrendGroup) -> Spark | None:
    """Draw the first metric over all nights; None for fewer than two."""
    _, parts = group.series[0]
    name = parts[-1][1].label
    values = np.concatenate([series.values for _, series in parts])
    finite = values[np.isfinite(values)]
    if len(finite) < 2:
        return None
    low, high = _range(float(finite.min()), float(finite.max()))
    count = sum(len(group.tracks[place].nights) for place, _ in parts)
    lines, epochs, marks, start = [], [], [], 0
    for place, series in parts:
        across = [100 * (start + at) / max(count - 1, 1) for at in range(len(series.values))]
        points = zip(across, 100 - _HEIGHT * (series.values - low) / (high - low), series.values, strict=True)
        lines.append(" ".join(f"{x:.2f},{y:.1f}" for x, y, value in points if np.isfinite(value)))
        if start:
            epochs.append(round(100 * (start - 0.5) / max(count - 1, 1), 2))
        marks += [round(across[first], 2) for first, _, _ in series.levels[1:]]
        start += len(group.tracks[place].nights)
    nights = [night for place, _ in parts for night in group.tracks[place].nights]
    column = parts[-1][1].column
    return Spark(
        printable(name),
        tuple(filter(None, lines)),
        tuple(epochs),
        tuple(marks),
        format_value(low, column),
        format_value(high, column),
        nights[0].time[:10],
        nights[-1].time[:10],
    )


def _range(low: float, high: float) -> tuple[float, float]:
    """Widen a range that is narrow for its values."""
    missing = max(_LEAST_SPAN * high - (high - low), 0.05 * (high - low))
    return max(low - missing / 2, 0.0), high + missing / 2 or 1.0
