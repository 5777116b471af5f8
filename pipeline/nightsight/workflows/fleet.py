"""The command `fleet`: captures anywhere are summarized where workers are, and the summaries make one page."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pandas as pd

from nightsight import fleet
from nightsight.errors import CaptureError, Interrupted, PipelineError, ToolError, UsageError
from nightsight.events.window import check_window
from nightsight.fleet import Cluster, Found, Packed, Store
from nightsight.model.fleet import FILES, SUMMARY, Failure, Survey, conform
from nightsight.progress import silent
from nightsight.render.fleet import render_survey, verdict_of
from nightsight.system.processes import as_worker
from nightsight.texts import without_host
from nightsight.workflows.compare import load
from nightsight.workflows.opening import Reading, title_of

__all__ = ["Asked", "Reduced", "summarized", "survey", "verdict_of"]

_TOLD: Final = 40
"""How often progress is told, and the list of files kept, at most."""
_MOST_TOLD: Final = 5


@dataclass(frozen=True)
class Asked:
    """Which captures: patterns of files; where their summaries are kept; and where they are read.

    workload: what captures are of that do not say so; "" for their file names. page: the page that is to be written.
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
class Reduced:
    """What a worker returns of a file: the digest of its content, and its summary, {} if that was known."""

    capture: str
    summary: Packed
    version: str = SUMMARY


def summarized(file: Found, known: frozenset[str], reading: Reading) -> Reduced:
    """Read a file on a worker, and reduce it; not if what it holds is `known`. PipelineError if it cannot be read."""
    with as_worker(), fleet.at_hand(file) as (path, content):
        capture = fleet.digest(f"{content} {reading.window}")
        if capture in known:
            return Reduced(capture, {})
        try:
            (loaded,) = load([path], reading)
        except PipelineError as error:
            raise type(error)(error.message.removeprefix(f"{path}: "), error.hint) from None
        measured = loaded.measures
        if path.name == fleet.REPORT and not measured.workload:
            measured = replace(measured, workload=loaded.source.report.title)
        summary = fleet.summary_of(loaded.source.report, measured, capture, asked=reading.window)
        return Reduced(capture, fleet.packed(summary))


def survey(asked: Asked, reading: Reading) -> tuple[Survey, str]:
    """Summarize what has no summary yet; return what all summaries say together, and the page on it.

    CaptureError if nothing can be read; Interrupted on a signal, after which the same command goes on.
    """
    check_window(reading.window)
    listing = fleet.found(asked.patterns)
    page = str(asked.page.resolve())
    if any(file.path == page for file in listing.files if not file.system):
        raise UsageError(f"{asked.page} is one of the captures: writing would destroy it", "Name another file with -o.")
    kept = _Kept(asked.store, {fleet.digest(f"{file.place} {reading.window}"): file for file in listing.files})
    try:
        failures = (*listing.failures, *_summarize(kept, asked.cluster, reading))
    except KeyboardInterrupt:
        many = f"{len(kept.captures)} of {len(kept.files)} captures"
        hint = "Their summaries are kept: run the same command again."
        raise Interrupted(f"interrupted after {many}", hint) from None
    finally:
        kept.note()
    if not kept.captures:
        raise _nothing(failures, listing.notes)
    rows, notes = _rows(kept, asked)
    reading.progress(f"writing {asked.page.name}")

    def made(chosen: pd.DataFrame, unfit: Sequence[Failure] = ()) -> tuple[Survey, str]:
        found = fleet.survey_of(chosen, [kept.summaries[capture] for capture in chosen["capture"]])
        found = replace(found, failures=(*failures, *unfit), notes=(*listing.notes, *notes, *found.notes))
        return found, render_survey(found)

    try:
        return made(rows)
    except Exception:
        # a bug, but the page of a thousand captures must not be lost over one of them
        unfit = dict(_unfit(rows, made))
        rest = rows[~rows["capture"].isin(unfit)]
        if not unfit or not len(rest):
            raise
        return made(rest, tuple(unfit.values()))


def _unfit(rows: pd.DataFrame, made: Callable[[pd.DataFrame], object]) -> Iterator[tuple[str, Failure]]:
    """Yield the captures of which no page can be made even alone, and why: a half that has a page has none of them."""
    try:
        made(rows)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is told)
        half = len(rows) // 2
        if half:
            yield from _unfit(rows[:half], made)
            yield from _unfit(rows[half:], made)
        else:
            reason = f"no page can be made of it: {fleet.reason(error)}"
            yield rows["capture"].iloc[0], Failure(rows["file"].iloc[0], reason)


class _Kept:
    """What is known of the files of a run: the capture that each is, and the summary of each capture.

    files: by the digest of where they are and of the window that was asked for.
    """

    def __init__(self, store: Store, files: Mapping[str, Found]) -> None:
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
    def waiting(self) -> dict[str, Found]:
        """The files of which nothing is known, the largest first, so that no large one is left at the end."""
        places = sorted(self.files.keys() - self.captures, key=lambda place: (-(self.files[place].size or 0), place))
        return {place: self.files[place] for place in places}

    def like(self, file: Found) -> frozenset[str]:
        """Return the captures with a summary that this file may be."""
        return frozenset(self.summaries.keys() & self._of_size.get(file.size, frozenset()))

    def add(self, place: str, reduced: Reduced) -> None:
        """Keep what a worker returned. ToolError if that is another version of nightsight."""
        if reduced.version != SUMMARY:
            raise ToolError(
                f"the workers have {reduced.version}, and this is {SUMMARY}", "Install one version on both."
            )
        if reduced.summary:
            summary = fleet.unpacked(reduced.summary)
            assert summary is not None  # as it is of this version
            self.summaries[reduced.capture] = summary
            self._store.write(reduced.capture, reduced.summary)
        self.captures[place] = reduced.capture

    def note(self) -> None:
        """Keep which file is which capture: one that did not change need not be read to know that."""
        rows = [
            (place, self.files[place].stamp, self.files[place].name, self.files[place].size, capture)
            for place, capture in self.captures.items()
        ]
        if rows:
            self._store.write_files(conform(pd.DataFrame(rows, columns=[column.name for column in FILES]), FILES))


def _summarize(kept: _Kept, cluster: Cluster, reading: Reading) -> Iterator[Failure]:
    """Summarize the files that wait for it; yield those that cannot be read, and why, without where they are."""
    waiting, known = kept.waiting, len(kept.captures)
    if not waiting:
        return
    elsewhere = replace(reading, progress=silent)
    inputs = {place: (file, kept.like(file), elsewhere) for place, file in waiting.items()}
    every = -(-len(waiting) // _TOLD)
    # whatever happens, the workers end
    with closing(fleet.done(summarized, inputs, cluster, reading.progress)) as found:
        for count, each in enumerate(found, start=1):
            file = waiting[each.key]
            if each.reason:
                yield Failure(file.name, without_host(each.reason.replace(f"{Path(file.path).parent}{os.sep}", "")))
            else:
                kept.add(each.key, each.value)
            if count % every == 0 or count == len(waiting):
                kept.note()
                what = f"{known + count} of {len(kept.files)} captures"
                reading.progress(what, done=count, of=len(waiting), is_series=True)


def _nothing(failures: Sequence[Failure], notes: Sequence[str]) -> CaptureError:
    told = [f"{each.name}: {each.reason}" for each in failures[:_MOST_TOLD]]
    more = len(failures) - len(told)
    rest = [f"and {more} more"] if more > 0 else []
    hint = "" if failures else "Put patterns in quotes: 'nights/**/*.sqlite'"
    return CaptureError(f"no capture could be read: {'; '.join([*told, *rest, *notes])}", hint)


def _rows(kept: _Kept, asked: Asked) -> tuple[pd.DataFrame, list[str]]:
    """Return the first file of each capture, by name, with the address of its report; and a note on the others."""
    ordered = sorted(kept.captures, key=lambda place: (kept.files[place].name, place))
    first: dict[str, str] = {}
    twice = []
    for place in ordered:
        capture = kept.captures[place]
        if first.setdefault(capture, place) != place:
            twice.append(
                f"{kept.files[place].name} holds the same as {kept.files[first[capture]].name}, and counts once"
            )
    rows = [
        (capture, kept.files[place].name, _report(kept.files[place], asked.page), asked.workload)
        for capture, place in first.items()
    ]
    return pd.DataFrame(rows, columns=["capture", "file", "report", "workload"]), twice


def _report(file: Found, page: Path) -> str:
    """Return the address of the report of a capture, relative to the page; "" if there is none in a folder below it.

    An address that leads out of that folder would tell where it is.
    """
    if file.system:
        return ""
    path, folder = Path(file.path), page.absolute().parent.resolve()
    near = [path.with_name(f"{title_of(path)}.report.html")]
    if path.name == fleet.REPORT or path.parent.name == "capture":
        near.insert(0, (path.parent.parent if path.parent.name == "capture" else path.parent) / "report.html")
    there = (each for each in near if each.is_file() and each.is_relative_to(folder))
    return next((quote(each.relative_to(folder).as_posix(), safe="/") for each in there), "")
