"""The command `fleet`: workers summarize captures, and the summaries make one page."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pandas as pd

from nightsight.errors import CaptureError, Interrupted, PipelineError, ToolError, UsageError
from nightsight.events.window import check_window
from nightsight.fleet import (
    REPORT,
    InputFile,
    Packed,
    Store,
    digest,
    find_files,
    fleet_of,
    local_copy,
    pack,
    summary_of,
    unpack,
)
from nightsight.model.fleet import FILES, SUMMARY, Failure, Fleet, conform
from nightsight.progress import silent
from nightsight.render.fleet import fleet_brief, fleet_brief_json, render_fleet, verdict_of
from nightsight.system.executor import Cluster, map_inputs, reason
from nightsight.system.processes import as_worker
from nightsight.texts import without_host
from nightsight.workflows.compare import load
from nightsight.workflows.opening import Reading, title_of

__all__ = ["BRIEFS", "FileSummary", "FleetRequest", "report_fleet", "summarize_file", "verdict_of"]

BRIEFS: Final[Mapping[str, Callable[[Fleet], bytes]]] = {"brief": fleet_brief, "brief.json": fleet_brief_json}
_UPDATES: Final = 40
"""The maximum number of times that progress is reported and the list of files is stored."""
_MOST_LISTED: Final = 5


@dataclass(frozen=True)
class FleetRequest:
    """Which captures to summarize (patterns of files), where to store their summaries, and where to read them.

    workload: the workload of captures that do not name one; "" for their file names. page: the page to write.
    """

    patterns: tuple[str, ...]
    page: Path
    summaries: str = ""
    workload: str = ""
    cluster: Cluster = field(default_factory=Cluster)

    @property
    def store(self) -> Store:
        """The store of the summaries: by default a folder next to the page."""
        return Store(self.summaries or str(self.page.with_suffix(".summaries").absolute()))


@dataclass(frozen=True)
class FileSummary:
    """The answer of a worker for a file: the digest of its content, and its summary, {} if that was in the store."""

    capture: str
    summary: Packed
    version: str = SUMMARY


def summarize_file(file: InputFile, summarized: frozenset[str], reading: Reading) -> FileSummary:
    """Read a file on a worker and summarize it, unless its content was summarized. PipelineError if unreadable."""
    with as_worker(), local_copy(file) as (path, content):
        capture = digest(f"{content} {reading.window}")
        if capture in summarized:
            return FileSummary(capture, {})
        try:
            (loaded,) = load([path], reading)
        except PipelineError as error:
            raise type(error)(error.message.removeprefix(f"{path}: "), error.hint) from None
        measures = loaded.measures
        if path.name == REPORT and not measures.workload:
            measures = replace(measures, workload=loaded.source.report.title)
        summary = summary_of(loaded.source.report, measures, capture, asked=reading.window)
        return FileSummary(capture, pack(summary))


def report_fleet(request: FleetRequest, reading: Reading) -> tuple[Fleet, str]:
    """Summarize the captures without a summary; return the fleet of all summaries, and its page.

    CaptureError if no capture can be read; Interrupted on a signal, after which the same command continues.
    """
    check_window(reading.window)
    listing = find_files(request.patterns)
    page = str(request.page.resolve())
    if any(file.path == page for file in listing.files if not file.system):
        raise UsageError(
            f"{request.page} is one of the captures: writing would destroy it", "Name another file with -o."
        )
    files = {digest(f"{file.place} {reading.window}"): file for file in listing.files}
    cache = _SummaryCache(request.store, files)
    try:
        failures = (*listing.failures, *_summarize(cache, request.cluster, reading))
    except KeyboardInterrupt:
        count = f"{len(cache.captures)} of {len(cache.files)} captures"
        hint = "Their summaries are kept: run the same command again."
        raise Interrupted(f"interrupted after {count}", hint) from None
    finally:
        cache.note()
    if not cache.captures:
        raise _nothing_read(failures, listing.notes)
    rows, notes = _first_files(cache, request)
    reading.progress(f"writing {request.page.name}")

    def make_page(rows: pd.DataFrame, broken: Sequence[Failure] = ()) -> tuple[Fleet, str]:
        result = fleet_of(rows, [cache.summaries[capture] for capture in rows["capture"]])
        result = replace(result, failures=(*failures, *broken), notes=(*listing.notes, *notes, *result.notes))
        return result, render_fleet(result)

    try:
        return make_page(rows)
    except Exception:
        # a bug, but one capture must not cost the page of a thousand
        broken = dict(_broken_captures(rows, make_page))
        rest = rows[~rows["capture"].isin(broken)]
        if not broken or not len(rest):
            raise
        return make_page(rest, tuple(broken.values()))


def _broken_captures(rows: pd.DataFrame, make_page: Callable[[pd.DataFrame], object]) -> Iterator[tuple[str, Failure]]:
    """Yield the captures for which no page can be made, with the reason. Halves that make a page contain none."""
    try:
        make_page(rows)
    except Exception as error:  # noqa: BLE001 (any error is reported)
        half = len(rows) // 2
        if half:
            yield from _broken_captures(rows[:half], make_page)
            yield from _broken_captures(rows[half:], make_page)
        else:
            why = f"no page can be made of it: {reason(error)}"
            yield rows["capture"].iloc[0], Failure(rows["file"].iloc[0], why)


class _SummaryCache:
    """The files of a fleet, the capture in each file, and the summary of each capture, as far as known.

    files: by the digest of their place and of the requested window.
    """

    def __init__(self, store: Store, files: Mapping[str, InputFile]) -> None:
        self.files = files
        self._store = store
        noted = store.files()
        self._of_size = noted.groupby("bytes")["capture"].agg(frozenset).to_dict()
        is_same = [
            place in files and files[place].stamp == stamp != ""
            for place, stamp in zip(noted["place"], noted["stamp"], strict=True)
        ]
        unchanged: dict[str, str] = dict(noted.loc[is_same, ["place", "capture"]].itertuples(index=False))
        sizes = {file.size for file in files.values()}
        candidates = [capture for size in sizes for capture in self._of_size.get(size, ())]
        self.summaries = store.read([*unchanged.values(), *candidates])
        self.captures = {place: capture for place, capture in unchanged.items() if capture in self.summaries}

    @property
    def waiting(self) -> dict[str, InputFile]:
        """The files without a summary, the largest first, so that no large one is left for the end."""
        places = sorted(self.files.keys() - self.captures, key=lambda place: (-(self.files[place].size or 0), place))
        return {place: self.files[place] for place in places}

    def like(self, file: InputFile) -> frozenset[str]:
        """Return the captures with a summary that this file may contain, by its size."""
        return frozenset(self.summaries.keys() & self._of_size.get(file.size, frozenset()))

    def add(self, place: str, result: FileSummary) -> None:
        """Store the result of a worker. ToolError if the worker has another version of nightsight."""
        if result.version != SUMMARY:
            raise ToolError(f"the workers have {result.version}, and this is {SUMMARY}", "Install one version on both.")
        if result.summary:
            summary = unpack(result.summary)
            assert summary is not None  # because it is of this version
            self.summaries[result.capture] = summary
            self._store.write(result.capture, result.summary)
        self.captures[place] = result.capture

    def note(self) -> None:
        """Store which capture each file contains, so that unchanged files need not be read again."""
        rows = [
            (place, self.files[place].stamp, self.files[place].name, self.files[place].size, capture)
            for place, capture in self.captures.items()
        ]
        if rows:
            self._store.write_files(conform(pd.DataFrame(rows, columns=[column.name for column in FILES]), FILES))


def _summarize(cache: _SummaryCache, cluster: Cluster, reading: Reading) -> Iterator[Failure]:
    """Summarize the waiting files; yield the ones that cannot be read, with the reason but without their folders."""
    waiting, summarized = cache.waiting, len(cache.captures)
    if not waiting:
        return
    worker_reading = replace(reading, progress=silent)
    inputs = {place: (file, cache.like(file), worker_reading) for place, file in waiting.items()}
    interval = -(-len(waiting) // _UPDATES)
    # end the workers in any case
    with closing(map_inputs(summarize_file, inputs, cluster, reading.progress)) as answers:
        for count, answer in enumerate(answers, start=1):
            file = waiting[answer.key]
            if answer.error:
                message = answer.error.message.replace(f"{Path(file.path).parent}{os.sep}", "")
                yield Failure(file.name, without_host(message))
            else:
                cache.add(answer.key, answer.value)
            if count % interval == 0 or count == len(waiting):
                cache.note()
                what = f"{summarized + count} of {len(cache.files)} captures"
                reading.progress(what, done=count, of=len(waiting), is_series=True)


def _nothing_read(failures: Sequence[Failure], notes: Sequence[str]) -> CaptureError:
    reasons = [f"{failure.name}: {failure.reason}" for failure in failures[:_MOST_LISTED]]
    if len(failures) > _MOST_LISTED:
        reasons.append(f"and {len(failures) - _MOST_LISTED} more")
    hint = "" if failures else "Put patterns in quotes: 'nights/**/*.sqlite'"
    return CaptureError(f"no capture could be read: {'; '.join([*reasons, *notes])}", hint)


def _first_files(cache: _SummaryCache, request: FleetRequest) -> tuple[pd.DataFrame, list[str]]:
    """Return the first file of each capture, by name, with the address of its report; and a note on each duplicate."""
    ordered = sorted(cache.captures, key=lambda place: (cache.files[place].name, place))
    first: dict[str, str] = {}
    duplicates = []
    for place in ordered:
        capture = cache.captures[place]
        if first.setdefault(capture, place) != place:
            duplicates.append(
                f"{cache.files[place].name} holds the same as {cache.files[first[capture]].name}, and counts once"
            )
    rows = [
        (capture, cache.files[place].name, _report_address(cache.files[place], request.page), request.workload)
        for capture, place in first.items()
    ]
    return pd.DataFrame(rows, columns=["capture", "file", "report", "workload"]), duplicates


def _report_address(file: InputFile, page: Path) -> str:
    """Return the address of the report of a capture, relative to the page; "" if there is none in a folder below it.

    An address outside that folder would reveal where the folder is.
    """
    if file.system:
        return ""
    path, folder = Path(file.path), page.absolute().parent.resolve()
    candidates = [path.with_name(f"{title_of(path)}.report.html")]
    if path.name == REPORT or path.parent.name == "capture":
        candidates.insert(0, (path.parent.parent if path.parent.name == "capture" else path.parent) / "report.html")
    reports = (report for report in candidates if report.is_file() and report.is_relative_to(folder))
    return next((quote(report.relative_to(folder).as_posix(), safe="/") for report in reports), "")
