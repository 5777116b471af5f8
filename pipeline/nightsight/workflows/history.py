"""The commands of `history`: runs become rows, and rows trends: in words, as JSON, as a page or for other tools."""

import datetime as dt
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from nightsight import history
from nightsight.compare import settings
from nightsight.errors import CaptureError, UsageError
from nightsight.history.export import openmetrics, otava_files
from nightsight.model.history import TOGETHER, Event, Track, Trends
from nightsight.render.history import Links, render_trends
from nightsight.runs.layout import RUN_NAME, write_file
from nightsight.units import format_value
from nightsight.workflows.compare import Loaded, load
from nightsight.workflows.opening import Reading

FORMAT: Final = 1


@dataclass(frozen=True)
class Asked:
    """Which trends: of a history in a folder or at a URL, of these workloads (all if none is named).

    canaries: workloads whose code never changes. folder: where the settings are looked for.
    """

    place: str
    workloads: tuple[str, ...] = ()
    canaries: tuple[str, ...] = ()
    folder: Path = Path()


@dataclass(frozen=True)
class Called:
    """What the series of runs is called, if not by the workload; what captures are of that do not say so; a link."""

    name: str = ""
    workload: str = ""
    link: str = ""


def add_runs(paths: Sequence[Path], place: str, reading: Reading, called: Called) -> Iterator[str]:
    """Add runs to a history; yield a line about each row. Runs of one workload, machine, commit and night are one.

    UsageError if a name is given to several workloads.
    """
    now = dt.datetime.now(dt.UTC)
    loaded = load(paths, reading, workload=called.workload)
    # a capture that `profile` did not make is named after its file, unless its workload is given
    workloads = [run.measures.workload or run.source.report.title for run in loaded]
    if called.name and len(several := list(dict.fromkeys(workloads))) > 1:
        raise UsageError(
            f"--name is for one workload, but the runs have {len(several)}",
            f"They are {', '.join(several)}. Captures that nightsight profile did not make are named after their "
            "files: name their workload with --workload.",
        )
    named = [
        replace(run, measures=replace(run.measures, workload=called.name or workload))
        for run, workload in zip(loaded, workloads, strict=True)
    ]
    for runs in _nights(named):
        row = history.row_of([run.measures for run in runs], link=called.link or _own_link(runs), now=now)
        is_new = history.append(place, row)
        count = f"{len(runs)} run{'s' * (len(runs) > 1)}"
        disturbed = f"; {' and '.join(row.flags)}, so it is not tested" if row.flags else ""
        what = f"{row.workload} on {row.key.gpu_name}, {row.time}, {count}{disturbed}"
        yield f"{'added' if is_new else 'already there'}: {what}"


def _nights(loaded: Sequence[Loaded]) -> list[list[Loaded]]:
    groups: list[list[Loaded]] = []
    for run in sorted(loaded, key=lambda run: (_group(run), history.time_of(run.measures))):
        if not (groups and _are_together(groups[-1][0], run)):
            groups.append([])
        groups[-1].append(run)
    return groups


def _group(run: Loaded) -> tuple[Any, ...]:
    measures = run.measures
    return (measures.workload, history.key_of(measures), measures.environment.commit, measures.series)


def _are_together(first: Loaded, run: Loaded) -> bool:
    """Whether two runs measured the same program in one night: that of a clean commit, or one series of repeats."""
    commit = run.measures.environment.commit
    is_one = bool(run.measures.series or (commit and not commit.endswith("+")))
    began, time = (history.time_of(each.measures) for each in (first, run))
    is_near = bool(began and time) and dt.datetime.fromisoformat(time) - dt.datetime.fromisoformat(began) <= TOGETHER
    return is_one and is_near and _group(first) == _group(run)


def _own_link(runs: Sequence[Loaded]) -> str:
    """Return WORKLOAD/RUN of the last run that has a page: no more of its path."""
    # latest is a link to a run
    folders = [(run.path if run.path.is_dir() else run.path.parent).resolve() for run in runs]
    pages = [folder for folder in folders if (folder / "run.json").is_file() and (folder / "report.html").is_file()]
    # a folder of another name may be called after anybody
    own = [page for page in pages if RUN_NAME.fullmatch(page.name) and page.parent.name == runs[-1].measures.workload]
    return "/".join(own[-1].parts[-2:]) if own else ""


def read_trends(asked: Asked) -> Trends:
    """Read a history and find what changed; CaptureError if it holds none of the workloads."""
    rows = history.read_rows(asked.place)
    known = sorted({row.workload for row in rows.rows})
    if unknown := [name for name in asked.workloads if name not in known]:
        raise CaptureError(f"the history has no workload {unknown[0]!r}", f"It has: {', '.join(known) or 'none'}.")
    strangers = [f"no canary: the history has no workload {name!r}" for name in asked.canaries if name not in known]
    rows = history.HistoryRows(rows.rows, (*rows.problems, *strangers))
    if asked.workloads:
        wanted = (*asked.workloads, *asked.canaries)
        rows = history.HistoryRows(tuple(row for row in rows.rows if row.workload in wanted), rows.problems)
    return history.trends(rows, canaries=asked.canaries, accepted=settings(asked.folder, "").accepted)


def as_text(trends: Trends) -> Iterator[str]:
    """Yield the lines of `history show`: events first, then where each workload stands."""
    for event in trends.events:
        yield f"{event.state:10} {event.main.night.time[:10] or 'no date':11} {event.sentence}"
    if not trends.events:
        yield "Nothing changed." if trends.tracks else "The history is empty."
    for track in trends.tracks:
        main = next((series for series in track.series if series.levels), None)
        now = f", {main.label} {format_value(main.last, main.column)}" if main else ""
        nights = f"{len(track.nights)} night{'s' * (len(track.nights) > 1)}"
        last = track.nights[-1].time[:10]
        yield f"{track.workload} on {track.key.gpu_name} ({track.key.text}): {nights}, last {last}{now}"
    yield f"Rule: {trends.rule}."


def as_json(trends: Trends, *, is_complete: bool = True) -> str:
    """Return the trends as JSON (docs/history.md). `is_complete`: they are of all workloads of the history."""
    document = {
        "format": FORMAT,
        "complete": is_complete,
        "rule": trends.rule,
        "events": [_event(event) for event in trends.events],
        "tracks": [_track(track) for track in trends.tracks],
        "problems": list(trends.problems),
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _event(event: Event) -> dict[str, Any]:
    main = event.main
    return {
        "id": event.id,
        "ids": list(event.ids),
        "state": event.state,
        "direction": event.direction,
        "cause": event.cause,
        "time": main.night.time,
        "before": main.before.time,
        "first_commit": main.before.commit,
        "last_commit": main.night.commit,
        "machine": main.track.key.gpu_name,
        "workloads": list(dict.fromkeys(change.track.workload for change in event.changes)),
        "sentence": event.sentence,
        "link": main.night.link,
        "changes": [
            {
                "workload": change.track.workload,
                "kind": change.series.kind,
                "name": change.series.name,
                "unit": change.series.unit,
                "baseline": change.baseline,
                "candidate": change.candidate,
                "change_pct": change.change_pct if change.baseline else None,
                "state": change.state,
                "reason": change.reason,
            }
            for change in event.changes
        ],
    }


def _track(track: Track) -> dict[str, Any]:
    return {
        "workload": track.workload,
        "machine": track.key.gpu_name,
        "key": vars(track.key),
        "nights": len(track.nights),
        # a level needs nights before it
        "tested_since": track.nights[history.LEAST_NIGHTS - history.NIGHTS :][0].time,
        "first": track.nights[0].time,
        "last": track.nights[-1].time,
        "metrics": {series.name: series.last for series in track.series if series.kind == "gate" and series.is_known},
    }


def write_page(trends: Trends, path: Path, *, reports: str = "", repository: str = "") -> None:
    """Write the trend page. `reports`: the URL of the reports; by default those next to the page."""
    names = {night.link for track in trends.tracks for night in track.nights if night.link}
    at_hand = {name for name in names if reports or (path.parent / name / "report.html").is_file()}
    write_file(path, render_trends(trends, Links(reports, repository, frozenset(at_hand))).encode())


def write_export(trends: Trends, style: str, path: Path | None) -> str:
    """Write what another tool reads; return where, "" for standard output. `style`: openmetrics or otava-csv."""
    if style == "otava-csv":
        folder = path or Path("otava")
        for name, text in otava_files(trends).items():
            write_file(folder / name, text.encode())
        return str(folder)
    text = openmetrics(trends)
    if path is None or str(path) == "-":
        sys.stdout.write(text)
        return ""
    write_file(path, text.encode())
    return str(path)
