"""Opens captures as the ranks of one job; those of a large job are read in separate processes."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
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
from nightsight.read import RANK_KINDS, recognize
from nightsight.render import Format, Source
from nightsight.system.executor import Cluster, Done, OutOfMemory, map_inputs
from nightsight.system.processes import as_worker, cores, memory_of_machine
from nightsight.texts import without_host
from nightsight.workflows.analysis import analyze_profile
from nightsight.workflows.opening import Reading, is_small, profile_of, title_of

# the most to hold of a large job, in bytes of .sqlite exports; reports need 8 times as much memory
_MOST_HELD_BYTES: Final = 200_000_000
_FEWEST_HELD: Final = 2
_MOST_READERS: Final = 4


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
    ranks, rank_paths, findings, unreadable = list[RankCapture | RankSummary](), list[Path](), list[Finding](), 0
    lost: OutOfMemory | None = None
    with closing(_read_ranks(paths, reading, details=details, is_large=is_large)) as answers:
        for done, (path, answer) in enumerate(zip(paths, answers, strict=True)):
            reading.progress(f"rank {done + 1} of {len(paths)}", done=done, of=len(paths), is_series=True)
            if isinstance(answer.error, CaptureError):
                findings.append(_left_out(path, f"{without_host(answer.error.message)}.", answer.error.hint))
                unreadable += 1
                lost = answer.error if isinstance(answer.error, OutOfMemory) else lost
                continue
            if answer.error:
                raise answer.error
            rank: RankCapture | RankSummary | None = answer.value
            if rank is None:
                return None
            if rank.facts.is_of_job:
                ranks.append(rank)
                rank_paths.append(path)
                continue
            findings.append(_left_out(path, "Its program does not communicate, and its rank is unknown."))
            if not ranks and len(findings) > 1:
                return None
    if lost and not ranks:
        raise CaptureError(f"none of {len(paths)} captures could be read: {lost.message}", lost.hint)
    facts = [rank.facts for rank in ranks]
    if not facts or not are_of_one_job(facts) or len(facts) + unreadable < 2:
        return None
    profile = replace(_merge(ranks, rank_paths, reading, details=details), window=reading.window)
    # this frees half of the memory
    ranks.clear()
    reading.progress("looking for causes in all ranks")
    title = name_of_job([rank.name for rank in facts])
    return analyze_profile(profile, title, form, findings=tuple(findings))


def _read_ranks(paths: Sequence[Path], reading: Reading, *, details: bool, is_large: bool) -> Generator[Done]:
    """Yield the rank of each capture, in their order: None for a kind that cannot be one.

    Of a large job, separate processes read the captures, and only their summaries are kept.
    """
    if is_large:
        at_once = 2 * _MOST_HELD_BYTES // max(*map(export_bytes, paths), 1)
        # these are so few that each may use its share of the memory of the machine
        readers = Cluster(workers=max(min(cores(), _MOST_READERS, at_once), 1), most_bytes=memory_of_machine())
        inputs = {str(path): (path, replace(reading, progress=silent)) for path in paths}
        yield from map_inputs(_summarize_rank, inputs, readers, reading.progress, in_order=True)
        return
    for path in paths:
        try:
            yield Done(str(path), _read_rank(path, reading, details=details))
        except CaptureError as error:
            yield Done(str(path), error=error)


def _left_out(path: Path, reason: str, hint: str = "") -> Finding:
    return Finding("unread_rank", "warning", f"{without_host(path.name)} was left out", reason, hint)


def _read_rank(path: Path, reading: Reading, *, details: bool) -> RankCapture | None:
    """Read a capture as a rank of a job; None if it is of a kind that cannot be one."""
    if recognize(path) not in RANK_KINDS:
        return None
    with profile_of(path, reading, details=details) as profile:
        return RankCapture(title_of(path), with_own_gpus(profile))


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
