"""Reports a crash: one line with the error and the file, and a log with the traceback."""

import os
import platform
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nightsight.texts import middle_cut, printable
from nightsight.version import VERSION

_FILE: Final = "file: "
_STAGE: Final = "stage: "
_LONGEST: Final = 200
_FOLDERS: Final = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:)?[\\/](?:[^\s\\/:\"']+[\\/])+")


@contextmanager
def naming_file(path: Path, stage: str = "") -> Iterator[None]:
    """Add the file to exceptions from the block, and the stage if progress does not show it."""
    try:
        yield
    except Exception as error:
        note(error, path, stage)
        raise


def note(error: Exception, path: Path, stage: str = "") -> None:
    """Add the file and the stage of an error to it as a note."""
    error.add_note(f"{_FILE}{path}")
    if stage:
        error.add_note(f"{_STAGE}{stage}")


def place_of(error: BaseException, doing: str) -> str:
    """Return the file and stage of an error; `doing` is the stage if the error has no such note."""
    notes: list[str] = getattr(error, "__notes__", [])
    # the last of several notes has the name of the file that the user gave
    files = [f"on {note.removeprefix(_FILE)} " for note in notes if note.startswith(_FILE)][-1:]
    stages = [note.removeprefix(_STAGE) for note in notes if note.startswith(_STAGE)]
    return printable(f"{''.join(files)}(stage: {(*stages, doing)[0]})")


def crash_line(error: Exception, doing: str) -> str:
    """Write the traceback to a log; return a line with the error, the path of the log, and what to do."""
    what = middle_cut(printable("".join(traceback.format_exception_only(error)[:1])), _LONGEST)
    lines = [
        f"nightsight {VERSION}, Python {platform.python_version()}, {platform.platform()}\nstage: {doing}\n\n",
        *traceback.format_exception(error),
    ]
    try:
        number, log = tempfile.mkstemp(prefix="nightsight-crash-", suffix=".log")
        with open(number, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 (an open descriptor)
            file.write(_without_folders("".join(lines)))
    except OSError as reason:
        log = f"not written: {reason.strerror}"
    return (
        f"nightsight crashed {place_of(error, doing)}: {what}. This is a bug: please report it on nightsight's issue "
        f"tracker, with the log ({log})"
    )


def _without_folders(text: str) -> str:
    """Shorten paths of modules to their part below Python's folders, and other paths to file names: logs are shared."""
    for folder in sorted(set(sys.path), key=len, reverse=True):
        if len(folder) > 1:
            text = text.replace(f"{folder}{os.sep}", "")
    return _FOLDERS.sub("", text)
