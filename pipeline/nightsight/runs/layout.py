"""The layout of reports/: the files of each run, the link to the latest run, and the list of all runs.

reports/index.html
reports/<workload>/latest -> <run-id>
reports/<workload>/<run-id>/{report.html, report.json, run.json, capture/, log/}
"""

import datetime as dt
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from nightsight.captures import preferred
from nightsight.errors import CaptureError, UsageError

PROOF: Final = Path("proof", "proof.json")
"""What `nightsight prove` measured last, in the folder of a workload."""
RUN_NAME: Final = re.compile(r"(\d{8}-\d{6})(?:-(\d+))?")
"""The name of the folder of a run: its start in UTC, and its number among the runs of that second."""


@dataclass(frozen=True)
class Run:
    """The folder of one run."""

    folder: Path

    @property
    def captures(self) -> Path:
        """The folder for the collector's files."""
        return self.folder / "capture"

    @property
    def logs(self) -> Path:
        """The folder for the output of the program and the tools; never part of a report."""
        return self.folder / "log"


@dataclass(frozen=True)
class Turn:
    """The place of a run in a series: its side in a comparison (baseline or candidate) and its number, from 0."""

    series: str = ""
    side: str = ""
    order: int = -1


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
            raise _unwritable(root, error.strerror) from error
        return Run(folder)
    raise AssertionError("unreachable")


def publish(run: Run, files: Mapping[str, bytes]) -> None:
    """Write the files of a run and make it the latest of its workload; CaptureError if that fails."""
    for name, content in files.items():
        write_file(run.folder / name, content)
    make_latest(run, run.folder.parent)


def make_latest(run: Run | None, workload: Path) -> None:
    """Point the link `latest` of a workload's folder to this run; None deletes it. CaptureError if that fails."""
    link = workload / "latest"
    with _writing(link):
        if run is None:
            if link.is_symlink():
                link.unlink()
            return
        aside = workload / f".latest-{run.folder.name}"
        aside.unlink(missing_ok=True)
        aside.symlink_to(run.folder.name, target_is_directory=True)
        aside.replace(link)


def latest_of(workload: Path) -> str | None:
    """Return the name of the run that `latest` in the folder of a workload links to; None if there is no such link."""
    try:
        return (workload / "latest").readlink().name or None
    except OSError:
        return None


def write_file(path: Path, content: bytes, *, inputs: Iterable[Path] = ()) -> None:
    """Write a temporary file and rename it, so that the file appears whole or not at all; follows links.

    Devices and named pipes are written to directly. UsageError if `path` is one of the `inputs`, under any name;
    CaptureError if it cannot be written.
    """
    with _writing(path):
        there = _place(path, inputs)
        if there and not stat.S_ISREG(there.st_mode):
            path.write_bytes(content)
        else:
            with _replacing(path, there) as aside:
                aside.write_bytes(content)


@contextmanager
def whole_file(path: Path, *, inputs: Iterable[Path] = ()) -> Iterator[Path]:
    """Yield an empty temporary file that becomes `path` at the end, like `write_file`; it is removed on an error.

    Raises the same errors as `write_file`; UsageError also if `path` is not a regular file.
    """
    with _writing(path):
        there = _place(path, inputs)
        if there and not stat.S_ISREG(there.st_mode):
            raise UsageError(f"{path} is not a regular file", "Name a file with -o.")
        with _replacing(path, there) as aside:
            yield aside


def _place(path: Path, inputs: Iterable[Path]) -> os.stat_result | None:
    """Create the folder of a file; return the status of an existing file. UsageError if it is one of the inputs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    there = _status(path)
    if there and any(os.path.samestat(there, status) for status in map(_status, inputs) if status):
        raise UsageError(f"{path} is also the input file: writing would destroy it", "Name another file with -o.")
    return there


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


@contextmanager
def _replacing(path: Path, there: os.stat_result | None) -> Iterator[Path]:
    path = path.resolve()
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        aside = Path(file.name)
    try:
        yield aside
        aside.chmod(stat.S_IMODE(there.st_mode) if there else 0o666 & ~_umask())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def refuse_no_run(folder: Path) -> None:
    """Raise UsageError if a folder is not a run folder."""
    if (folder / "report.json").is_file() or (folder / "capture").is_dir():
        return
    if any(folder.glob("*/report.json")):
        raise UsageError(f"{folder} holds several runs", f"Name the runs: {folder}/2*")
    raise UsageError(f"{folder} is not the folder of a run", "Name a folder with a report.json, or a capture.")


def captures_of(folder: Path) -> list[Path]:
    """Return the captures from which the report of a run is made; none if they were not kept.

    There are several if torch.profiler wrote a trace for each cycle.
    """
    files = [path for path in sorted((folder / "capture").glob("*")) if path.is_file() and path.stat().st_size]
    return preferred(files)


def runs(root: Path) -> list[tuple[Path, Mapping[str, Any]]]:
    """Return the folder and run.json of every run, newest first; skips files that are not a valid run.json."""
    entries = []
    for path in root.glob("*/*/run.json"):
        if path.parent.is_symlink():
            continue
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(document, dict):
            entries.append((path.parent, document))
    return sorted(entries, key=lambda run: (run[0].name, run[0].parent.name), reverse=True)


def _umask() -> int:
    # the umask can be read only by setting it
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error.strerror) from error


def _unwritable(path: Path, reason: str | None) -> CaptureError:
    return CaptureError(
        f"cannot write {path}: {reason or 'unknown error'}", "Free some space, or choose another place."
    )
