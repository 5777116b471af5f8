"""The commands of `history`: add runs as rows, and write trends as text, as JSON, as a page, or for other tools."""

import datetime as dt
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from nightsight.compare import settings_of
from nightsight.errors import CaptureError, UsageError
from nightsight.history import (
    LEAST_NIGHTS,
    NIGHTS,
    HistoryRows,
    append,
    key_of,
    read_rows,
    row_of,
    time_of,
    trends,
)
from nightsight.history.export import openmetrics, otava_files
from nightsight.model.history import TOGETHER, Event, Track, Trends
from nightsight.render.history import Links, render_trends
from nightsight.runs.layout import RUN_NAME, write_file
from nightsight.units import counted, format_value
from nightsight.workflows.compare import LoadedRun, load
from nightsight.workflows.opening import Reading

FORMAT: Final = 1


@dataclass(frozen=True)
class TrendRequest:
    """Which trends to compute: of a history in a folder or at a URL, for these workloads (all if none is named).

    canaries: workloads whose code never changes. folder: where to look for the settings.
    """

    place: str
    workloads: tuple[str, ...] = ()
    canaries: tuple[str, ...] = ()
    folder: Path = Path()


@dataclass(frozen=True)
class SeriesNames:
    """The name of the series (default: the workload), the workload of captures that do not name one, and a link."""

    name: str = ""
    workload: str = ""
    link: str = ""


def add_runs(paths: Sequence[Path], place: str, reading: Reading, names: SeriesNames) -> Iterator[str]:
    """Add runs to a history, one row per workload, machine, commit and night; yield a line about each row.

    UsageError if one name is given for several workloads.
    """
    now = dt.datetime.now(dt.UTC)
    loaded = load(paths, reading, workload=names.workload)
    # a capture that `profile` did not make is named after its file, unless its workload is given
    workloads = [run.measures.workload or run.source.report.title for run in loaded]
    if names.name and len(several := list(dict.fromkeys(workloads))) > 1:
        raise UsageError(
            f"--name is for one workload, but the runs have {len(several)}",
            f"They are {', '.join(several)}. Captures that nightsight profile did not make are named after their "
            "files: name their workload with --workload.",
        )
    runs_of_series = [
        replace(run, measures=replace(run.measures, workload=names.name or workload))
        for run, workload in zip(loaded, workloads, strict=True)
    ]
    for runs in _group_by_night(runs_of_series):
        proofs = [finding.proof for run in reversed(runs) for finding in run.source.report.findings if finding.proof]
        link, proof = names.link or _run_link(runs), proofs[0] if proofs else ""
        row = row_of([run.measures for run in runs], link=link, proof=proof, now=now)
        is_new = append(place, row)
        note = f"; {' and '.join(row.flags)}, so it is not tested" if row.flags else ""
        verb = "added" if is_new else "already there"
        yield f"{verb}: {row.workload} on {row.key.gpu_name}, {row.time}, {counted(len(runs), 'run')}{note}"


def _group_by_night(loaded: Sequence[LoadedRun]) -> list[list[LoadedRun]]:
    groups: list[list[LoadedRun]] = []
    for run in sorted(loaded, key=lambda run: (_series_key(run), time_of(run.measures))):
        if not (groups and _is_same_night(groups[-1][0], run)):
            groups.append([])
        groups[-1].append(run)
    return groups


def _series_key(run: LoadedRun) -> tuple[Any, ...]:
    measures = run.measures
    return (measures.workload, key_of(measures), measures.environment.commit, measures.series)


def _is_same_night(first: LoadedRun, run: LoadedRun) -> bool:
    """Whether two runs measured the same program in one night: a clean commit, or one series of repeats."""
    commit = run.measures.environment.commit
    is_one = bool(run.measures.series or (commit and not commit.endswith("+")))
    began, time = (time_of(each.measures) for each in (first, run))
    is_near = bool(began and time) and dt.datetime.fromisoformat(time) - dt.datetime.fromisoformat(began) <= TOGETHER
    return is_one and is_near and _series_key(first) == _series_key(run)


def _run_link(runs: Sequence[LoadedRun]) -> str:
    """Return WORKLOAD/RUN of the last run that has a page, and nothing else of its path."""
    # latest is a link to a run
    folders = [(run.path if run.path.is_dir() else run.path.parent).resolve() for run in runs]
    pages = [folder for folder in folders if (folder / "run.json").is_file() and (folder / "report.html").is_file()]
    # other folders may be named after anybody
    links = [page for page in pages if RUN_NAME.fullmatch(page.name) and page.parent.name == runs[-1].measures.workload]
    return "/".join(links[-1].parts[-2:]) if links else ""


def read_trends(request: TrendRequest) -> Trends:
    """Read a history and find what changed; CaptureError if it holds none of the workloads."""
    rows = read_rows(request.place)
    names = sorted({row.workload for row in rows.rows})
    if unknown := [name for name in request.workloads if name not in names]:
        raise CaptureError(f"the history has no workload {unknown[0]!r}", f"It has: {', '.join(names) or 'none'}.")
    missing = [f"no canary: the history has no workload {name!r}" for name in request.canaries if name not in names]
    chosen = (*request.workloads, *request.canaries) if request.workloads else names
    selected = tuple(row for row in rows.rows if row.workload in chosen)
    rows = HistoryRows(selected, (*rows.problems, *missing))
    return trends(rows, canaries=request.canaries, accepted=settings_of(request.folder)("").accepted)


def as_text(trends: Trends) -> Iterator[str]:
    """Yield the lines of `history show`: the events, then the state of each workload."""
    for event in trends.events:
        yield f"{event.state:10} {event.main.night.time[:10] or 'no date':11} {event.sentence}"
    if not trends.events:
        yield "Nothing changed." if trends.tracks else "The history is empty."
    for track in trends.tracks:
        main = next((series for series in track.series if series.levels), None)
        now = f", {main.label} {format_value(main.last, main.column)}" if main else ""
        nights = counted(len(track.nights), "night")
        last = track.nights[-1].time[:10]
        proof = f", {track.nights[-1].proof}" if track.nights[-1].proof else ""
        yield f"{track.workload} on {track.key.gpu_name} ({track.key.text}): {nights}, last {last}{now}{proof}"
    yield f"Rule: {trends.rule}."


def as_json(trends: Trends, *, is_complete: bool = True) -> str:
    """Return the trends as JSON (docs/history.md). `is_complete`: they cover all workloads of the history."""
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
        "tested_since": track.nights[LEAST_NIGHTS - NIGHTS :][0].time,
        "first": track.nights[0].time,
        "last": track.nights[-1].time,
        "proof": track.nights[-1].proof,
        "metrics": {series.name: series.last for series in track.series if series.kind == "gate" and series.is_known},
    }


def write_page(trends: Trends, path: Path, *, reports: str = "", repository: str = "") -> None:
    """Write the trend page. `reports`: the URL of the reports (default: those next to the page)."""
    names = {night.link for track in trends.tracks for night in track.nights if night.link}
    available = {name for name in names if reports or (path.parent / name / "report.html").is_file()}
    write_file(path, render_trends(trends, Links(reports, repository, frozenset(available))).encode())


def write_export(trends: Trends, style: str, path: Path | None) -> str:
    """Write the export for another tool; return its path, "" for standard output. `style`: openmetrics or otava-csv."""
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
