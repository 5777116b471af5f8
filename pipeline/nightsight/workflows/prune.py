"""Deletes old runs in reports/: knows what is a run, how old it is, which is the latest, and which files are ours."""

import datetime as dt
import json
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from nightsight.errors import CaptureError
from nightsight.runs.layout import RUN_NAME, Run, latest_of, make_latest

Keep = Literal["captures", "reports", "nothing"]

# as `new_run` names them
_CAPTURED: Final = ("capture", "log")
# run.json last: while it exists, another `prune` finds the folder
_OURS: Final = (*_CAPTURED, "report.html", "report.json", "run.json")


@dataclass(frozen=True)
class PruneRules:
    """Which runs to prune: those that are not among the newest `runs` of a workload, and older than `age`.

    None means no limit. captures: delete only captures and logs. latest: also delete the latest run of a workload.
    """

    runs: int | None = None
    age: dt.timedelta | None = None
    captures: bool = False
    latest: bool = False


@dataclass(frozen=True)
class PrunedRun:
    """The files of a run that were deleted, or would be, and their size. left: the names of files that are not ours."""

    folder: Path
    names: tuple[str, ...]
    freed_bytes: int
    left: tuple[str, ...] = ()


@dataclass
class SkipCounts:
    """The number of folders that were not touched, by reason."""

    reasons: Counter[str] = field(default_factory=Counter)


def prune(
    reports: Path, rules: PruneRules, *, now: dt.datetime, skipped: SkipCounts, is_dry: bool = False
) -> Iterator[PrunedRun]:
    """Delete runs below `reports`, oldest first; yield what was deleted, or would be with `is_dry`.

    A run is a folder with the name of a run and a run.json, so a run that is still being written is kept,
    and so are links. CaptureError if something cannot be deleted.
    """
    for workload in _folders(reports):
        latest = latest_of(workload)
        runs = [run for run in _folders(workload) if _is_run(run, skipped)]
        newest_first = sorted(runs, key=_started, reverse=True)
        if latest is None and newest_first:
            latest = newest_first[0].name
        has_deleted = False
        for place, run in reversed(list(enumerate(newest_first))):
            is_kept = rules.runs is not None and place < rules.runs
            is_young = rules.age is not None and now - _started(run)[0] <= rules.age
            if is_kept or is_young:
                continue
            if run.name == latest and not rules.latest:
                skipped.reasons["runs that are the latest of their workload (--latest deletes them too)"] += 1
                continue
            pruned = _prune(run, captures=rules.captures, is_dry=is_dry)
            if pruned.names:
                has_deleted = True
                yield pruned
        # an empty folder that we did not empty may be anybody's
        if has_deleted and not is_dry and not rules.captures:
            _tidy(workload, latest)


def discard(run: Path, keep: Keep) -> None:
    """Delete the files of a new run that `keep` excludes: its captures and logs, or all of it."""
    _prune(run, captures=keep == "reports", is_dry=False)
    if keep == "nothing":
        _tidy(run.parent, run.name)


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if not path.is_symlink() and path.is_dir())
    except OSError as error:
        raise CaptureError(f"cannot list {parent}: {error.strerror}", "Check path and permissions.") from error


def _is_run(folder: Path, skipped: SkipCounts) -> bool:
    if not RUN_NAME.fullmatch(folder.name):
        # reports/ may contain notes and copies
        skipped.reasons["folders that are not runs"] += 1
        return False
    path = folder / "run.json"
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ValueError("not a regular file")
        document = json.loads(path.read_text(encoding="utf-8"))
        # as `publish` writes it, whatever its version
        is_run = isinstance(document, dict) and isinstance(document.get("workload"), str)
    except FileNotFoundError:
        skipped.reasons["runs that are being written, or were interrupted before their report"] += 1
        return False
    except (OSError, ValueError):
        is_run = False
    if not is_run:
        skipped.reasons["runs without a valid run.json"] += 1
    return is_run


def _started(run: Path) -> tuple[dt.datetime, int]:
    """Return the start of a run, and its number among the runs of that second."""
    match = RUN_NAME.fullmatch(run.name)
    try:
        started = dt.datetime.strptime(match[1] if match else "", "%Y%m%d-%H%M%S").replace(tzinfo=dt.UTC)
    except ValueError:
        # an invalid date: treat the run as new, so that it is kept
        started = dt.datetime.max.replace(tzinfo=dt.UTC)
    return started, int(match[2] or 1) if match else 1


def _prune(run: Path, *, captures: bool, is_dry: bool) -> PrunedRun:
    ours = _CAPTURED if captures else _OURS
    names, freed = [], 0
    try:
        paths = {path.name: path for path in run.iterdir()}
        for name in ours:
            path = paths.get(name)
            if path is None or path.is_symlink() or path.is_dir() != (name in _CAPTURED):
                continue
            del paths[name]
            names.append(name)
            freed += _size(path)
            if not is_dry:
                _delete(path)
        left = () if captures else tuple(sorted(paths))
        if not (captures or left or is_dry):
            run.rmdir()
    except FileNotFoundError:
        # another `prune` deletes it at the same time
        left = ()
    except OSError as error:
        raise CaptureError(f"cannot delete {run}: {error.strerror}", "Check who owns it.") from error
    return PrunedRun(run, tuple(names), freed, left)


def _delete(path: Path) -> None:
    # links inside are deleted, not followed
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _size(path: Path) -> int:
    """Return the disk space that deleting a file or folder frees; links and hard-linked files free none."""
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        return sum(map(_size, path.iterdir()))
    return status.st_size if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 else 0


def _tidy(workload: Path, latest: str | None) -> None:
    """Point `latest` to the newest remaining run, and delete the folder of a workload without runs."""
    if latest is not None and not (workload / latest).exists():
        left = sorted((run for run in _folders(workload) if _is_run(run, SkipCounts())), key=_started)
        make_latest(Run(left[-1]) if left else None, workload)
    try:
        workload.rmdir()
    except OSError:
        # it is not empty
        return
