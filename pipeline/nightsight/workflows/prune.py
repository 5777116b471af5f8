"""Which runs in reports/ may go: what is a run, how old it is, which is the latest, and which files in it are ours."""

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
# run.json at the end: as long as it is there, another `prune` finds the folder again
_OURS: Final = (*_CAPTURED, "report.html", "report.json", "run.json")


@dataclass(frozen=True)
class Choice:
    """Which runs to prune: those beyond the newest `runs` of a workload, older than `age`; None asks for neither.

    captures: of the runs, only captures and logs. latest: also the latest run of a workload.
    """

    runs: int | None = None
    age: dt.timedelta | None = None
    captures: bool = False
    latest: bool = False


@dataclass(frozen=True)
class Pruned:
    """What was deleted of a run, or would be: names in its folder, and their size. left: names that are not ours."""

    folder: Path
    names: tuple[str, ...]
    freed_bytes: int
    left: tuple[str, ...] = ()


@dataclass
class Skipped:
    """What was not touched, counted by reason."""

    reasons: Counter[str] = field(default_factory=Counter)


def prune(
    reports: Path, choice: Choice, *, now: dt.datetime, skipped: Skipped, is_dry: bool = False
) -> Iterator[Pruned]:
    """Delete the chosen runs below `reports`, oldest first; yield what was deleted, or with `is_dry` would be.

    Only folders of runs: named like one, with run.json, below a folder that is not a link. Links are left, and so is a
    run that is still being written, which has no run.json yet. CaptureError if something cannot be
    deleted.
    """
    for workload in _folders(reports):
        latest = latest_of(workload)
        found = [run for run in _folders(workload) if _is_run(run, skipped)]
        newest_first = sorted(found, key=_started, reverse=True)
        if latest is None and newest_first:
            latest = newest_first[0].name
        has_gone = False
        for place, run in reversed(list(enumerate(newest_first))):
            is_kept = choice.runs is not None and place < choice.runs
            is_young = choice.age is not None and now - _started(run)[0] <= choice.age
            if is_kept or is_young:
                continue
            if run.name == latest and not choice.latest:
                skipped.reasons["runs that are the latest of their workload (--latest deletes them too)"] += 1
                continue
            done = _prune(run, captures=choice.captures, is_dry=is_dry)
            if done.names:
                has_gone = True
                yield done
        # an empty folder may be anybody's
        if has_gone and not is_dry and not choice.captures:
            _tidy(workload, latest)


def discard(run: Path, keep: Keep) -> None:
    """Delete what is not to be kept of a run that has just been written: its captures and logs, or all of it."""
    _prune(run, captures=keep == "reports", is_dry=False)
    if keep == "nothing":
        _tidy(run.parent, run.name)


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if not path.is_symlink() and path.is_dir())
    except OSError as error:
        raise CaptureError(f"cannot list {parent}: {error.strerror}", "Check path and permissions.") from error


def _is_run(folder: Path, skipped: Skipped) -> bool:
    if not RUN_NAME.fullmatch(folder.name):
        # notes, copies: anything may be in reports/
        skipped.reasons["folders that are not runs"] += 1
        return False
    path = folder / "run.json"
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ValueError("a link, or a folder")
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
    """Return when a run started, and which of that second it is."""
    match = RUN_NAME.fullmatch(run.name)
    try:
        started = dt.datetime.strptime(match[1] if match else "", "%Y%m%d-%H%M%S").replace(tzinfo=dt.UTC)
    except ValueError:
        # no such day: it may be as new as can be
        started = dt.datetime.max.replace(tzinfo=dt.UTC)
    return started, int(match[2] or 1) if match else 1


def _prune(run: Path, *, captures: bool, is_dry: bool) -> Pruned:
    wanted = _CAPTURED if captures else _OURS
    names, freed = [], 0
    try:
        there = {path.name: path for path in run.iterdir()}
        for name in wanted:
            path = there.pop(name, None)
            if path is None or path.is_symlink() or path.is_dir() != (name in _CAPTURED):
                if path is not None:
                    there[name] = path
                continue
            names.append(name)
            freed += _size(path)
            if not is_dry:
                _delete(path)
        left = () if captures else tuple(sorted(there))
        if not (captures or left or is_dry):
            run.rmdir()
    except FileNotFoundError:
        # another `prune` is at it
        left = ()
    except OSError as error:
        raise CaptureError(f"cannot delete {run}: {error.strerror}", "Check who owns it.") from error
    return Pruned(run, tuple(names), freed, left)


def _delete(path: Path) -> None:
    # links inside are deleted, not followed
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _size(path: Path) -> int:
    """Return how much room a file or folder takes that would be free without it; links and shared files have none."""
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        return sum(map(_size, path.iterdir()))
    return status.st_size if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 else 0


def _tidy(workload: Path, latest: str | None) -> None:
    """Let `latest` name the newest run that is left, and delete the folder of a workload without runs."""
    if latest is not None and not (workload / latest).exists():
        left = sorted((run for run in _folders(workload) if _is_run(run, Skipped())), key=_started)
        make_latest(Run(left[-1]) if left else None, workload)
    try:
        workload.rmdir()
    except OSError:
        # it holds something
        return
