"""Temporary folders that are deleted even if their process is killed: the next process that needs one deletes them."""

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
# a younger folder may not be locked yet
_YOUNG_S: Final = 60.0


@contextmanager
def scratch() -> Iterator[Path]:
    """Create a temporary folder, and delete it at the end. First delete the folders of killed processes."""
    if fcntl:
        _delete_left()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        lock = _lock(Path(name))
        try:
            yield Path(name)
        finally:
            if lock is not None:
                os.close(lock)


def _delete_left() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # another process may delete it at the same time
        with suppress(OSError):
            status = folder.lstat()
            is_ours = status.st_uid == os.getuid() and not folder.is_symlink()
            if not is_ours or time.time() - status.st_mtime < _YOUNG_S:
                continue
            lock = _lock(folder)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _lock(folder: Path) -> int | None:
    """Lock a folder until this process ends in any way; None if another process has locked it."""
    if not fcntl:
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
