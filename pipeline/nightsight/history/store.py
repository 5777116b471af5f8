"""Where rows are kept: a folder, or any URL that fsspec opens; and how two jobs write there at once.

In a folder, a file per workload and key is appended to under a lock, a whole line at a time. Object stores cannot
append and have no locks: there each row is a separate object, named by its digest, so that no writer ever changes
what another one wrote. Readers take both layouts, in both places.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from nightsight.errors import CaptureError
from nightsight.history.rows import HistoryRow, row_from

try:
    import fcntl
except ImportError:  # Windows: a whole line is still written at once
    fcntl = None  # type: ignore[assignment]

ATTRIBUTES: Final = "*.jsonl merge=union\n"
"""Makes git keep the lines of both sides. Readers sort them, and drop duplicates."""
_MOST_PROBLEMS: Final = 5


@dataclass(frozen=True)
class HistoryRows:
    """The rows of a history by time, each once, and a line about each line that could not be read."""

    rows: tuple[HistoryRow, ...]
    problems: tuple[str, ...] = ()


def append(place: str, row: HistoryRow) -> bool:
    """Add a row, unless it is there; return whether it was added. CaptureError if the place cannot be written to."""
    if "://" in place:
        return _upload(place, row)
    folder = Path(place)
    path = folder / row.file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        attributes = folder / ".gitattributes"
        if not attributes.exists():
            attributes.write_text(ATTRIBUTES, encoding="utf-8")
        return _append(path, row)
    except OSError as error:
        raise _unwritable(place, error.strerror or str(error)) from error


def read_rows(place: str) -> HistoryRows:
    """Read all rows; CaptureError if there is no such place."""
    texts = _objects(place) if "://" in place else _files(Path(place))
    by_id: dict[str, HistoryRow] = {}
    problems = []
    for name, content in texts:
        for number, line in enumerate(content.decode(errors="replace").split("\n"), start=1):
            if not line.strip():
                continue
            try:
                row = row_from(line)
            except ValueError as error:
                problems.append(f"{name}, line {number} was skipped: {error}")
            else:
                by_id.setdefault(row.id, row)
    rows = [row for _, row in sorted(by_id.items(), key=lambda item: (item[1].time, item[1].workload, item[0]))]
    more = len(problems) - _MOST_PROBLEMS
    shown_problems = (*problems[:_MOST_PROBLEMS], *([f"{more} more lines were skipped"] if more > 0 else []))
    return HistoryRows(tuple(rows), shown_problems)


def _append(path: Path, row: HistoryRow) -> bool:
    with _lock(path) as file:
        content = _content(file)
        candidates = (line for line in content.split(b"\n") if row.id.encode() in line)
        if any(_is(line, row.id) for line in candidates):
            return False
        # a line that was cut, by a full disk or a kill, must not swallow ours
        addition = (b"\n" if content and not content.endswith(b"\n") else b"") + row.line().encode()
        try:
            if os.write(file, addition) < len(addition):
                raise OSError(None, "no space left on device")
            os.fsync(file)
        except OSError:
            os.ftruncate(file, len(content))
            raise
    return True


@contextmanager
def _lock(path: Path) -> Iterator[int]:
    """Open a file to append to, and keep others from it until it is closed."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        if fcntl:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def _content(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0) if hasattr(os, "pread") else os.read(file, os.fstat(file).st_size)


def _is(line: bytes, row_id: str) -> bool:
    try:
        return row_from(line.decode(errors="replace")).id == row_id
    except ValueError:
        return False


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    if not folder.is_dir():
        raise CaptureError(f"there is no history in {folder}", "Start one: nightsight history add RUN")
    for path in sorted(folder.rglob("*.jsonl")):
        try:
            yield path.relative_to(folder).as_posix(), path.read_bytes()
        except OSError as error:
            raise CaptureError(f"cannot read {path}: {error.strerror}") from error


def _upload(url: str, row: HistoryRow) -> bool:
    system, root = _open_url(url)
    path = PurePosixPath(root) / row.file.removesuffix(".jsonl") / f"{row.time.replace(':', '')}-{row.id}.jsonl"
    try:
        if system.exists(str(path)):
            return False
        system.makedirs(str(path.parent), exist_ok=True)
        system.pipe_file(str(path), row.line().encode())
    except Exception as error:  # each kind of store has its own errors
        raise _unwritable(url, _reason(error)) from error
    return True


def _objects(url: str) -> Iterator[tuple[str, bytes]]:
    system, root = _open_url(url)
    try:
        paths = sorted(str(path) for path in system.find(root) if str(path).endswith(".jsonl"))
        # one request each, many at a time where the store can do that
        contents = system.cat(paths) if paths else {}
    except Exception as error:  # each kind of store has its own errors
        raise CaptureError(f"cannot read the history at {url}: {_reason(error)}") from error
    for path in paths:
        yield path.removeprefix(root).lstrip("/"), contents[path]


def _open_url(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs  # noqa: PLC0415 (most histories are in folders)

    try:
        system, root = url_to_fs(url)
    except Exception as error:  # each kind of store has its own errors
        raise CaptureError(f"cannot open the history at {url}: {_reason(error)}") from error
    return system, str(root)


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _unwritable(place: str, reason: str) -> CaptureError:
    return CaptureError(f"cannot write the history to {place}: {reason}", "Free some space, or choose another place.")
