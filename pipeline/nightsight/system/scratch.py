"""Temporary folders that go away even if their process is killed: the next one that needs a folder deletes them."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

_PREFIX: Final = "nightsight-scratch-"
# one that is younger may not be locked yet
_YOUNG_S: Final = 60.0


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a temporary folder, and delete it in the end. Those that killed processes left are deleted first."""
    if fcntl:
        _delete_left()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        held = _locked(Path(name))
        try:
            yield Path(name)
        finally:
            if held is not None:
                os.close(held)


def _delete_left() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # another process may delete it at the same time
        with suppress(OSError):
            status = folder.lstat()
            is_ours = status.st_uid == os.getuid() and not folder.is_symlink()
            if not is_ours or time.time() - status.st_mtime < _YOUNG_S:
                continue
            held = _locked(folder)
            if held is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(held)


def _locked(folder: Path) -> int | None:
    """Lock a folder for as long as this process lives, whatever becomes of it; None if another one has it."""
    if not fcntl:
        return None
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held
