"""The layout of reports/: the files of each run, the link to the latest run, and the list of all runs.

reports/index.html
reports/<workload>/latest -> <run-id>
reports/<workload>/<run-id>/{report.html, report.json, run.json, capture/, log/}
"""

import datetime as dt
import json
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from nightsight.errors import CaptureError, UsageError


@dataclass(frozen=True)
class Run:
    """The folder of one run."""

    folder: Path

    @property
    def captures(self) -> Path:
        """Where the collector leaves its files."""
        return self.folder / "capture"

    @property
    def logs(self) -> Path:
        """Where the output of the program and the tools is kept; never part of a report."""
        return self.folder / "log"


def new_run(root: Path, workload: str, *, started: dt.datetime) -> Run:
    """Create the folder of a new run, named by its start time in UTC; CaptureError if that fails."""
    stamp = f"{started.astimezone(dt.UTC):%Y%m%d-%H%M%S}"
    # several runs can start within one second
    for number in count(1):
        folder = root / workload / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if folder.is_dir():
                continue
            raise _unwritable(root, "there is a file with the name of the folder") from None
        except OSError as error:
            raise _unwritable(root, error.strerror or "unknown error") from error
        return Run(folder)
    raise AssertionError("unreachable")


def publish(run: Run, files: Mapping[str, bytes]) -> None:
    """Write the files of a run and make it the latest of its workload; CaptureError if that fails."""
    for name, content in files.items():
        write_file(run.folder / name, content)
    link = run.folder.parent / "latest"
    aside = run.folder.parent / f".latest-{run.folder.name}"
    try:
        aside.unlink(missing_ok=True)
        aside.symlink_to(run.folder.name, target_is_directory=True)
        aside.replace(link)
    except OSError as error:
        raise _unwritable(link, error.strerror or "unknown error") from error


def write_file(path: Path, content: bytes, *, inputs: Iterable[Path] = ()) -> None:
    """Write a temporary file and rename it, so that the file appears whole or not at all; follows links.

    Devices and named pipes are written to directly. UsageError if `path` is one of the `inputs`, under any name;
    CaptureError if it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        there = _status(path)
        if there and any(os.path.samestat(there, known) for known in map(_status, inputs) if known):
            raise UsageError(f"{path} is also the input file: writing would destroy it", "Name another file with -o.")
        if there and not stat.S_ISREG(there.st_mode):
            path.write_bytes(content)
        else:
            _replace(path.resolve(), content, mode=stat.S_IMODE(there.st_mode) if there else 0o666 & ~_umask())
    except OSError as error:
        raise _unwritable(path, error.strerror or "unknown error") from error


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _replace(path: Path, content: bytes, *, mode: int) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        aside = Path(file.name)
    try:
        aside.write_bytes(content)
        aside.chmod(mode)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def runs(root: Path) -> list[tuple[Path, Mapping[str, Any]]]:
    """Return the folder and run.json of every run, newest first; skips files that are not a valid run.json."""
    found = []
    for path in root.glob("*/*/run.json"):
        if path.parent.is_symlink():
            continue
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(document, dict):
            found.append((path.parent, document))
    return sorted(found, key=lambda run: (run[0].name, run[0].parent.name), reverse=True)


def _umask() -> int:
    # the umask can be read only by setting it
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _unwritable(path: Path, reason: str) -> CaptureError:
    return CaptureError(f"cannot write {path}: {reason}", "Free some space, or choose another place.")
