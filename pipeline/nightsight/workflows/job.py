"""Opens captures as the ranks of one job; those of a large job are read in separate processes."""

from collections.abc import Callable, Iterator, Sequence
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
from nightsight.system.processes import ProcessDied, Processes, as_worker, cores
from nightsight.texts import without_host
from nightsight.workflows.analysis import analyze_profile
from nightsight.workflows.opening import Reading, is_small, profile_of, title_of

# the most to hold of a large job, in bytes of .sqlite exports; reports need 8 times as much memory
_MOST_HELD_BYTES: Final = 200_000_000
_FEWEST_HELD: Final = 2
_MOST_READERS: Final = 4
_OF_RANKS: Final = ("nsys-rep", "nsys-sqlite", "kineto")


def open_job(paths: Sequence[Path], form: Format, reading: Reading) -> Source | None:
    """Read captures as the ranks of one job, and make one report; None if they do not belong to one job.

    Captures that cannot be read or do not communicate are left out if the others form a job. The captures of a large
    job are read in separate processes, and only a few are kept.
    """
    check_window(reading.window)
    # a folder of runs also has a link to its latest one
    paths = list({path.resolve(): path for path in paths}.values())
    is_large = sum(map(export_bytes, paths)) > _MOST_HELD_BYTES
    details = form.of_events or all(map(is_small, paths))
    ranks, kept, findings, unreadable = list[RankCapture | RankSummary](), list[Path](), list[Finding](), 0
    here: Iterator[Callable[[], RankCapture | None]] = (
        partial(_read_rank, path, reading, details=details) for path in paths
    )
    with _summaries(paths, reading) if is_large else nullcontext(here) as readers:
        for done, path in enumerate(paths):
            reading.progress(f"rank {done + 1} of {len(paths)}", done=done, of=len(paths), is_series=True)
            try:
                rank = next(readers)()
            except CaptureError as error:
                findings.append(_left_out(path, f"{without_host(error.message)}.", error.hint))
                unreadable += 1
                continue
            if rank is None:
                return None
            if rank.facts.is_of_job:
                ranks.append(rank)
                kept.append(path)
                continue
            findings.append(_left_out(path, "Its program does not communicate, and its rank is unknown."))
            if not ranks and len(findings) > 1:
                return None
    facts = [rank.facts for rank in ranks]
    if not facts or not are_of_one_job(facts) or len(facts) + unreadable < 2:
        return None
    profile = replace(_merge(ranks, kept, reading, details=details), window=reading.window)
    # this frees half of the memory
    ranks.clear()
    reading.progress("looking for causes in all ranks")
    title = name_of_job([rank.name for rank in facts])
    return analyze_profile(profile, title, form, findings=tuple(findings))


def _left_out(path: Path, reason: str, hint: str = "") -> Finding:
    return Finding("unread_rank", "warning", f"{without_host(path.name)} was left out", reason, hint)


def _read_rank(path: Path, reading: Reading, *, details: bool) -> RankCapture | None:
    """Read a capture as a rank of a job; None if it is of a kind that cannot be one."""
    if recognize(path) not in _OF_RANKS:
        return None
    with profile_of(path, reading, details=details) as profile:
        return RankCapture(title_of(path), with_own_gpus(profile))


@contextmanager
def _summaries(paths: Sequence[Path], reading: Reading) -> Iterator[Iterator[Callable[[], RankSummary | None]]]:
    """Read captures in separate processes; yield functions that return the summary of each, or raise its error."""
    at_once = 2 * _MOST_HELD_BYTES // max(*map(export_bytes, paths), 1)
    count = max(min(cores(), len(paths), _MOST_READERS, at_once), 1)
    try:
        with Processes(count) as readers:
            futures = [readers.submit(_summarize_rank, path, replace(reading, progress=silent)) for path in paths]
            yield (future.result for future in futures)
    except ProcessDied:
        raise CaptureError(
            "a process that read captures died, perhaps because it ran out of memory",
            "Pass the captures of fewer ranks, or use a machine with more memory.",
        ) from None


def _summarize_rank(path: Path, reading: Reading) -> RankSummary | None:
    with as_worker():
        rank = _read_rank(path, reading, details=False)
        return None if rank is None else rank_summary(rank)


def _merge(
    ranks: Sequence[RankCapture | RankSummary], paths: Sequence[Path], reading: Reading, *, details: bool
) -> Profile:
    """Return one profile of all ranks; for a large job, with the events of only some representative ranks."""
    captures = [rank for rank in ranks if isinstance(rank, RankCapture)]
    if len(captures) == len(ranks):
        return merge_ranks(captures)
    summaries = [rank for rank in ranks if isinstance(rank, RankSummary)]
    most = int(_MOST_HELD_BYTES / max(sum(map(export_bytes, paths)) / len(paths), 1))

    def read_again(number: int) -> Profile:
        reading.progress(f"reading {paths[number].name}")
        with profile_of(paths[number], reading, details=details) as profile:
            return with_own_gpus(profile)

    return merge_some_ranks(summaries, read_again, max(most, _FEWEST_HELD))
