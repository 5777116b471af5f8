"""Opens captures as the ranks of one job; those of a large job are read in separate processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from nightsight.captures import export_bytes
from nightsight.errors import CaptureError
from nightsight.events.sharing import with_own_gpus
from nightsight.events.window import check_window
from nightsight.job.facts import RankCapture, RankSummary, are_of_one_job, name_of_job, rank_summary
from nightsight.job.merge import merge_ranks, merge_some_ranks
from nightsight.model.report import Finding, Profile
from nightsight.progress import silent
from nightsight.read import recognize
from nightsight.render import Format, Source
from nightsight.system.processes import Died, Processes, as_worker, cores
from nightsight.texts import without_host
from nightsight.workflows.analysis import analyzed
from nightsight.workflows.opening import Reading, is_small, profile_of, title_of

# of jobs with larger captures (as .sqlite exports, in total), only this much is held: it takes 8 times the memory
_MOST_HELD_BYTES: Final = 200_000_000
_FEWEST_HELD: Final = 2
_MOST_READERS: Final = 4
_OF_RANKS: Final = ("nsys-rep", "nsys-sqlite", "kineto")


def open_job(paths: Sequence[Path], form: Format, reading: Reading) -> Source | None:
    """Read captures as the ranks of one job, and make one report of them; None if they are not of one.

    A capture that cannot be read, or does not communicate, is left out if others are of a job. Of a large job, captures
    are read in separate processes, and only a few of them are kept.
    """
    check_window(reading.window)
    # a folder of runs also has a link to its latest one
    paths = list({path.resolve(): path for path in paths}.values())
    is_large = sum(map(export_bytes, paths)) > _MOST_HELD_BYTES
    details = form.of_events or all(map(is_small, paths))
    every, kept, findings, unreadable = list[RankCapture | RankSummary](), list[Path](), list[Finding](), 0
    with _apart(paths, reading) if is_large else nullcontext(_parts(paths, reading, details=details)) as found:
        for done, path in enumerate(paths):
            reading.progress(f"rank {done + 1} of {len(paths)}", done=done, of=len(paths), is_series=True)
            try:
                one = next(found)()
            except CaptureError as error:
                title, said = f"{without_host(path.name)} was left out", f"{without_host(error.message)}."
                findings.append(Finding("unread_rank", "warning", title, said, error.hint))
                unreadable += 1
                continue
            if one is None:
                return None
            if one.facts.is_of_job:
                every.append(one)
                kept.append(path)
                continue
            said = "Its program does not communicate, and its rank is unknown."
            findings.append(Finding("unread_rank", "warning", f"{without_host(path.name)} was left out", said))
            if not every and len(findings) > 1:
                return None
    facts = [one.facts for one in every]
    if not facts or not are_of_one_job(facts) or len(facts) + unreadable < 2:
        return None
    profile = _joined(every, kept, reading, details=details)
    # half of the memory
    every.clear()
    reading.progress("looking for causes in all ranks")
    chosen = replace(profile, window=reading.window)
    title = name_of_job([one.name for one in facts])
    return analyzed(chosen, title, form, findings=tuple(findings))


def _parts(paths: Iterable[Path], reading: Reading, *, details: bool) -> Iterator[Callable[[], RankCapture | None]]:
    """Yield for each capture what reads it; that returns None if it cannot be of a rank."""
    yield from (partial(_part, path, reading, details=details) for path in paths)


def _part(path: Path, reading: Reading, *, details: bool) -> RankCapture | None:
    """Read a capture as a part of a job; None if it cannot be of a rank."""
    if recognize(path) not in _OF_RANKS:
        return None
    with profile_of(path, reading, details=details) as profile:
        return RankCapture(title_of(path), with_own_gpus(profile))


@contextmanager
def _apart(paths: Sequence[Path], reading: Reading) -> Iterator[Iterator[Callable[[], RankSummary | None]]]:
    """Read captures in separate processes; yield functions that return the facts of each, or raise its error."""
    at_once = 2 * _MOST_HELD_BYTES // max(*map(export_bytes, paths), 1)
    count = max(min(cores(), len(paths), _MOST_READERS, at_once), 1)
    try:
        with Processes(count) as readers:
            asked = [readers.submit(_read_apart, path, replace(reading, progress=silent)) for path in paths]
            yield (future.result for future in asked)
    except Died:
        raise CaptureError(
            "a process that read captures has died, maybe for want of memory",
            "Pass the captures of fewer ranks, or use a machine with more memory.",
        ) from None


def _read_apart(path: Path, reading: Reading) -> RankSummary | None:
    with as_worker():
        part = _part(path, reading, details=False)
        return None if part is None else rank_summary(part)


def _joined(
    every: Sequence[RankCapture | RankSummary], paths: Sequence[Path], reading: Reading, *, details: bool
) -> Profile:
    """Return one profile of all ranks; for a large job, with the events of representative ranks."""
    parts = [one for one in every if isinstance(one, RankCapture)]
    if len(parts) == len(every):
        return merge_ranks(parts)
    others = [one for one in every if isinstance(one, RankSummary)]
    most = int(_MOST_HELD_BYTES / max(sum(map(export_bytes, paths)) / len(paths), 1))

    def held(number: int) -> Profile:
        reading.progress(f"reading {paths[number].name}")
        with profile_of(paths[number], reading, details=details) as profile:
            return with_own_gpus(profile)

    return merge_some_ranks(others, held, max(most, _FEWEST_HELD))
