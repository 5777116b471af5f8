"""The store of summaries: Parquet files by table and capture, in a folder or at a URL that fsspec opens.

`captures/ID.parquet` is written last and each file as a whole, so incomplete summaries do not exist. Summaries that are
damaged, or were written by another version, are recomputed.
"""

import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from nightsight.errors import CaptureError
from nightsight.fleet.places import error_text, shown, system_of
from nightsight.model.fleet import FILES, SUMMARY, TABLES, Summary, conform, empty
from nightsight.results.entry import Column

_KEY: Final = b"nightsight.summary"
_FILES: Final = "files.parquet"
_WITHIN: Final = ("split", "causes", "kernels", "captures")
_BROKEN: Final = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)

Packed = Mapping[str, bytes]
"""A summary in its stored form: the content of each Parquet file by table."""


def pack(summary: Summary) -> Packed:
    """Return a summary as Parquet files; the same summary gives the same bytes."""
    return {name: _parquet(summary[name]) for name in _WITHIN}


def unpack(files: Packed) -> Summary | None:
    """Return the summary in Parquet files, None if they are damaged, incomplete or of another version."""
    try:
        return Summary({name: _frame(files[name], columns) for name, columns in TABLES.items()})
    except _BROKEN:
        return None


class Store:
    """The summaries at a place. CaptureError if it cannot be read or written."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._is_local = "://" not in place
        try:
            self._system, root = system_of(place)
        except CaptureError as error:
            raise CaptureError(f"the summaries in {shown(place)}: {error.message}") from None
        self._root = root.rstrip("/")

    def read(self, captures: Iterable[str]) -> dict[str, Summary]:
        """Return the usable summaries of these captures."""
        ids = dict.fromkeys(captures)
        paths = {self._path(name, capture): (capture, name) for capture in ids for name in _WITHIN}
        files: dict[str, dict[str, bytes]] = {}
        for path, content in self._contents(list(paths)).items():
            capture, name = paths[path]
            files.setdefault(capture, {})[name] = content
        read = ((capture, unpack(files[capture])) for capture in ids if capture in files)
        return {capture: summary for capture, summary in read if summary is not None}

    def write(self, capture: str, files: Packed) -> None:
        """Store a summary."""
        for name in _WITHIN:
            self._write(self._path(name, capture), files[name])

    def files(self) -> pd.DataFrame:
        """Return the table FILES, which only saves time; an empty one if it is missing or unusable."""
        path = f"{self._root}/{_FILES}"
        try:
            return _frame(self._contents([path])[path], FILES)
        except _BROKEN:
            return empty(FILES)

    def write_files(self, files: pd.DataFrame) -> None:
        """Store the table FILES; rows of other places stay."""
        stored = self.files()
        rows = pd.concat([files, stored[~stored["place"].isin(files["place"])]], ignore_index=True)
        self._write(f"{self._root}/{_FILES}", _parquet(conform(rows.sort_values(["file", "place"]), FILES)))

    def _path(self, table: str, capture: str) -> str:
        return f"{self._root}/{table}/{capture}.parquet"

    def _contents(self, paths: list[str]) -> dict[str, bytes]:
        if self._is_local:
            return {path: content for path in paths if (content := _bytes(Path(path))) is not None}
        try:
            # many requests at a time, if the store supports that; missing files are skipped
            read = self._system.cat(paths, on_error="return") if len(paths) > 1 else self._one(paths)
        except Exception as error:  # each kind of store has its own errors
            raise self._broken("read", error) from error
        return {path: read[path] for path in paths if isinstance(read.get(path), bytes)}

    def _one(self, paths: list[str]) -> dict[str, Any]:
        try:
            return {path: self._system.cat_file(path) for path in paths}
        except FileNotFoundError:
            return {}

    def _write(self, path: str, content: bytes) -> None:
        try:
            if self._is_local:
                _replace(Path(path), content)
            else:
                self._system.makedirs(str(PurePosixPath(path).parent), exist_ok=True)
                self._system.pipe_file(path, content)
        except Exception as error:  # each kind of store has its own errors
            raise self._broken("written", error) from error

    def _broken(self, what: str, error: Exception) -> CaptureError:
        place = shown(self._place)
        hint = "Free some space, or choose another place: --summaries"
        return CaptureError(f"the summaries in {place} cannot be {what}: {error_text(error, self._place)}", hint)


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _parquet(frame: pd.DataFrame) -> bytes:
    import pyarrow.parquet  # noqa: PLC0415 (takes 25 ms)

    # without the version of pandas, so that the same summary gives the same bytes
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata({_KEY: SUMMARY.encode()})
    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file)
    return file.getvalue()


def _frame(content: bytes, columns: tuple[Column, ...]) -> pd.DataFrame:
    """Read a table; one of _BROKEN if it is damaged or of another version."""
    import pyarrow.parquet  # noqa: PLC0415 (takes 25 ms)

    # half the time of read_table, which looks for a folder of files first
    table = pyarrow.parquet.ParquetFile(io.BytesIO(content)).read()
    if (table.schema.metadata or {}).get(_KEY) != SUMMARY.encode():
        raise ValueError("another version")
    return conform(table.to_pandas(types_mapper={pa.int64(): pd.ArrowDtype(pa.int64())}.get), columns)
