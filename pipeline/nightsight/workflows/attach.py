"""Adds figures of serving benchmarks, the requests of a server, and the log of its engine to a profile (`--attach`).

A workload's benchmark also has figures. A file that cannot be read must not cost the capture: after a run, it becomes a
finding.
"""

import datetime as dt
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Final

import pandas as pd

from nightsight.errors import CaptureError
from nightsight.model.report import Capture, Finding, Profile
from nightsight.read.engine_log import EngineLog, kv_cache_of, read_engine_log, served_model_of
from nightsight.read.requests import figures_of, read_request_events, requests_of
from nightsight.read.serving import read_serving, serving_of
from nightsight.results.serving import PROFILED_RUN, UNKNOWN_RUN, UNPROFILED_RUN
from nightsight.runs.unprofiled import on_clock_of_capture
from nightsight.tables import conform, empty

_FIGURES: Final = "serving_figures"
# the file next to a capture has to stay small; the program ends soon after the last request that was recorded
_MOST_STORED: Final = 20_000


@dataclass(frozen=True)
class _Attached:
    """What a file has: figures of a benchmark, events of requests, or lines of an engine; measured: in which run."""

    measured: str
    figures: pd.DataFrame = field(default_factory=lambda: empty(_FIGURES))
    events: pd.DataFrame = field(default_factory=pd.DataFrame)
    engine: EngineLog = field(default_factory=EngineLog)


@dataclass(frozen=True)
class _Clock:
    """The clock of a run: a time in it (since the epoch, if known), and how far its wall clock is ahead of UTC."""

    near_ns: int | None
    ahead_ns: int


@dataclass(frozen=True)
class ResultFiles:
    """Result files that a run is to write, each with its state before the run."""

    states: Mapping[Path, tuple[int, ...]]

    def read(self) -> Iterator[_Attached | Finding]:
        """Yield the content of each file; a finding for each that cannot be read or is older than the run."""
        for path, before in self.states.items():
            is_new = _state(path) != before
            try:
                yield _read(path, PROFILED_RUN if is_new else UNKNOWN_RUN)
            except CaptureError as error:
                yield _not_attached(error, "" if path.exists() else " The program did not write it.")
            else:
                if not is_new:
                    yield Finding(
                        "old_results",
                        "warning",
                        "An attached result file is older than this run",
                        f"{path.name} existed before the run, and the program did not write it. Its figures are "
                        "shown as those of an unknown run.",
                        "Pass the path that the program writes its results to.",
                    )


def watch_results(paths: Sequence[Path]) -> ResultFiles:
    """Record the state of files before a run. Makes their paths absolute: the run may delete the working folder."""
    return ResultFiles({path.absolute(): _state(path) for path in paths})


def add_attached(
    capture: Capture, results: ResultFiles, output: Path | None = None
) -> tuple[Capture, dict[str, pd.DataFrame]]:
    """Return the capture of a run that has just ended with findings about its files, and the tables of these.

    output: what the program printed; the log of an engine can be in it.
    """
    contents = list(results.read())
    if output and output.is_file():
        # few programs have an engine
        with suppress(CaptureError):
            contents.append(_Attached(PROFILED_RUN, engine=read_engine_log(output)))
    if capture.serving:
        try:
            figures = serving_of(capture.serving, capture.workload)
            contents.append(_Attached(UNPROFILED_RUN, figures))
        except CaptureError as error:
            contents.append(_not_attached(error, ""))
    findings = [item for item in contents if isinstance(item, Finding)]
    # the program ran on this machine
    ahead = dt.datetime.now().astimezone().utcoffset() or dt.timedelta()
    clock = _Clock(time.time_ns(), round(ahead.total_seconds()) * 10**9)
    tables, about = _tables([item for item in contents if isinstance(item, _Attached)], clock, _MOST_STORED)
    return replace(capture, findings=(*capture.findings, *findings, *about)), tables


def with_attached(profile: Profile, paths: Sequence[Path]) -> Profile:
    """Add files to a profile that was captured earlier; CaptureError if one cannot be read."""
    if not paths:
        return profile
    existing = [_Attached(UNKNOWN_RUN, profile.tables[_FIGURES])] if _FIGURES in profile.tables else []
    clock = _Clock(profile.epoch_ns, profile.ahead_ns or 0)
    tables, findings = _tables([*existing, *(_read(path, UNKNOWN_RUN) for path in paths)], clock)
    added = on_clock_of_capture({name: table for name, table in tables.items() if len(table)}, profile.epoch_ns)
    return replace(profile, tables={**profile.tables, **added}, findings=(*profile.findings, *findings))


def _read(path: Path, measured: str) -> _Attached:
    """Return the content of a file; CaptureError if it can be used for nothing."""
    events, engine = read_request_events(path), read_engine_log(path)
    try:
        return _Attached(measured, read_serving(path, measured), events, engine)
    except CaptureError:
        if not len(events) and not engine:
            raise
        return _Attached(measured, events=events, engine=engine)


def _tables(
    contents: Sequence[_Attached], clock: _Clock, most: int | None = None
) -> tuple[dict[str, pd.DataFrame], tuple[Finding, ...]]:
    """Return the tables of files, with times since the epoch, and findings about them.

    most: how many requests and lines of engines to keep, the last ones; figures are those of all.
    """
    requests, notes = requests_of([content.events for content in contents])
    if most is not None and len(requests) > most:
        notes = (*notes, f"This report has the last {most:,} of {len(requests):,} requests, and figures of all.")
    findings = tuple(Finding("requests_adjusted", "info", "Times of requests", note) for note in notes)
    figures = [content.figures for content in contents]
    # a client's results have its figures already
    logs = [content.measured for content in contents if len(content.events) and not len(content.figures)]
    if logs:
        # one side's log can be that of an earlier run
        figures.append(figures_of(requests, logs[0] if len(set(logs)) == 1 else UNKNOWN_RUN))
    engines = [content.engine for content in contents]
    cache = kv_cache_of(engines, near_ns=clock.near_ns, ahead_ns=clock.ahead_ns)
    kept = (table if most is None else table.tail(most).reset_index(drop=True) for table in (requests, cache))
    latest = dict(zip(("requests", "kv_cache"), kept, strict=True))
    return {_FIGURES: _concatenate(figures), **latest, "served_model": served_model_of(engines)}, findings


def _concatenate(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return one table; a second file of the same program becomes a separate source."""
    used: set[str] = set()
    plain = []
    for table in filter(len, tables):
        texts = table.astype({"metric": "str", "measured": "str", "source": "str", "statistic": "str"})
        names = {}
        for name in texts["source"].unique():
            candidates = chain([name], (f"{name} ({number})" for number in count(2)))
            names[name] = next(candidate for candidate in candidates if candidate not in used)
        used |= set(names.values())
        plain.append(texts.assign(source=texts["source"].map(names)))
    return conform(_FIGURES, pd.concat(plain)) if plain else empty(_FIGURES)


def _not_attached(error: CaptureError, note: str) -> Finding:
    detail = f"{error.message[:1].upper()}{error.message[1:]}.{note} Its figures are not in this report."
    return Finding("results_not_attached", "warning", "A result file is not in this report", detail, error.hint)


def _state(path: Path) -> tuple[int, ...]:
    """Return facts that change when a file is written; () if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
