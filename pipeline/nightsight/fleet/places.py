"""Files in folders or at URLs that fsspec opens: finds those that patterns name, and makes local copies.

What users see of a place is a name below the folder that all files have in common, and an address without user names,
passwords and signatures.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from nightsight.captures import NSYS_EXPORT, NSYS_REPORT, is_named_as_capture, is_never_capture, unprofiled_file
from nightsight.errors import CaptureError, PipelineError
from nightsight.model.fleet import Failure
from nightsight.system.scratch import scratch
from nightsight.texts import without_host
from nightsight.units import counted

REPORT: Final = "report.json"
_MAGIC: Final = re.compile(r"[*?\[]")
_TIMES: Final = ("mtime", "LastModified", "last_modified", "updated", "ETag", "etag", "created")
_PIECE: Final = 1 << 20


@dataclass(frozen=True)
class InputFile:
    """A file: its path in a file system of fsspec (None: on this machine), its name on pages, and its size if known.

    stamp: changes when the file does; "" if unknown.
    """

    path: str
    system: Any = None
    name: str = ""
    size: int | None = None
    stamp: str = ""

    @property
    def address(self) -> str:
        """The address of the file, without secrets."""
        return shown(str(self.system.unstrip_protocol(self.path))) if self.system else Path(self.path).as_posix()

    @property
    def place(self) -> str:
        """A digest of the address."""
        system = self.system
        return digest(f"{system and (system.protocol, system.storage_args, system.storage_options)} {self.path}")


@dataclass(frozen=True)
class Listing:
    """The files that patterns name, without duplicates; the patterns that failed; and notes on skipped files."""

    files: tuple[InputFile, ...]
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()


def digest(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


def shown(url: str) -> str:
    """Return an address without possible secrets: user, password and signature."""
    bare = re.sub(r"(?<=://)[^/@]*@", "", url)
    return re.sub(r"(?<=^http)(s?://[^?#]*)[?#].*", r"\1", bare, flags=re.DOTALL)


def system_of(url: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it. CaptureError if there is no such system."""
    from fsspec.core import url_to_fs  # noqa: PLC0415 (other commands do without)

    try:
        system, path = url_to_fs(url)
    except ImportError as error:
        raise CaptureError(f"a package is missing: {error_text(error, url)}") from None
    except Exception as error:  # each kind of store has its own errors
        raise CaptureError(f"cannot be opened: {error_text(error, url)}") from error
    return system, str(path)


def error_text(error: BaseException, url: str) -> str:
    """Return the text of an error in one line, without the secrets in its address."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return str(text).replace(url, shown(url)).splitlines()[0]


def find_files(patterns: Sequence[str]) -> Listing:
    """List the captures that patterns name: files, folders, and expressions with `*`, `?`, `[]` and `**`.

    A folder means its files that are named like captures, and the report.json of each run in it.
    """
    files: dict[str, InputFile] = {}
    failures = []
    for pattern in patterns:
        try:
            listed = _list_pattern(pattern)
        except PipelineError as error:
            failures.append(Failure(shown(pattern), error.message))
            continue
        if not listed:
            failures.append(Failure(shown(pattern), "nothing matches"))
        for each in listed:
            files.setdefault(each.place, each)
    exported = {_stem(file) for file in files.values() if file.path.endswith(NSYS_EXPORT)}
    twice = [place for place, file in files.items() if file.path.endswith(NSYS_REPORT) and _stem(file) in exported]
    others = [place for place, file in files.items() if is_never_capture(file.path) and len(files) > 1]
    notes = (
        *([f"{counted(len(twice), f'{NSYS_REPORT} file')} skipped: the export is there too"] if twice else []),
        *([f"{counted(len(others), 'file')} skipped: not from a profiler"] if others else []),
    )
    kept = [file for place, file in files.items() if place not in {*twice, *others}]
    return Listing(_with_names(kept), tuple(failures), notes)


def _stem(file: InputFile) -> str:
    return file.address.removesuffix(NSYS_EXPORT).removesuffix(NSYS_REPORT)


def _list_pattern(pattern: str) -> list[InputFile]:
    system, path = system_of(pattern)
    try:
        if _MAGIC.search(path) and not system.exists(path):
            infos = system.glob(path, detail=True)
        elif system.isdir(path):
            infos = _captures_in(system.find(path, detail=True))
        else:
            infos = {path: system.info(path)}
        # only the run folders among those that an expression names
        folders = [name for name, info in infos.items() if info.get("type") != "file" and system.isdir(name)]
        reports = [f"{name}/{REPORT}" for name in folders]
        infos.update({name: system.info(name) for name in reports if system.exists(name)})
    except FileNotFoundError:
        raise CaptureError("there is no such file") from None
    except Exception as error:  # each kind of store has its own errors
        raise CaptureError(f"cannot be read: {error_text(error, pattern)}") from error
    return [_file(system, name, infos[name]) for name in sorted(infos) if name not in folders]


def _captures_in(infos: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the report.json of each run in a folder, and the other files that are named like captures."""
    paths = {path: PurePosixPath(path) for path in infos}
    runs = {path.parent for path in paths.values() if path.name == REPORT}

    def is_capture(path: PurePosixPath) -> bool:
        return path.name == REPORT or (is_named_as_capture(path.name) and runs.isdisjoint(path.parents))

    return {name: infos[name] for name, path in paths.items() if is_capture(path)}


def _file(system: Any, path: str, info: Mapping[str, Any]) -> InputFile:  # noqa: ANN401 (fsspec)
    if "file" in system.protocol:
        # a link means its target
        real = os.path.realpath(path)
        try:
            status = Path(real).stat()
        except OSError:
            return InputFile(real)
        stamp = digest(f"{status.st_size} {status.st_mtime_ns} {status.st_ino}")
        return InputFile(real, None, "", status.st_size, stamp)
    size, times = info.get("size"), [str(info[name]) for name in _TIMES if info.get(name)]
    return InputFile(path, system, "", size, digest(f"{size} {times}") if times and size is not None else "")


def _with_names(files: Sequence[InputFile]) -> tuple[InputFile, ...]:
    """Name files below their common folder; a run is named after its folder."""
    parts = [file.address.removesuffix(f"/{REPORT}").split("/") for file in files]
    folders = [path[:-1] for path in parts]
    shortest = min(map(len, folders), default=0)
    levels = enumerate(zip(*folders, strict=False))
    common = next((depth for depth, names in levels if len(set(names)) > 1), shortest)
    named = (replace(file, name=without_host("/".join(path[common:]))) for file, path in zip(files, parts, strict=True))
    return tuple(sorted(named, key=lambda file: (file.name, file.address)))


@contextmanager
def local_copy(file: InputFile) -> Iterator[tuple[Path, str]]:
    """Yield a file on this machine, and a digest of its content and of the files that nightsight keeps next to it.

    A file elsewhere is copied piece by piece to a temporary folder, which is deleted in the end. CaptureError if it
    cannot be read.
    """
    if not file.system:
        path = Path(file.path)
        yield path, _digest([path, *(each for each in _kept_with(path) if each.is_file())])
        return
    with scratch() as folder:
        path = folder / PurePosixPath(shown(file.path)).name
        _fetch(file, path)
        yield path, _digest(sorted(folder.iterdir()))


def _kept_with(path: Path) -> Iterator[Path]:
    yield unprofiled_file(path)
    if path.name == REPORT:
        yield path.with_name("run.json")


def _fetch(file: InputFile, path: Path) -> None:
    try:
        with file.system.open(file.path, "rb") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, _PIECE)
        folder = file.path.rpartition("/")[0]
        for extra in _kept_with(path):
            if file.system.exists(f"{folder}/{extra.name}"):
                extra.write_bytes(file.system.cat_file(f"{folder}/{extra.name}"))
    except Exception as error:  # each kind of store has its own errors
        raise CaptureError(f"cannot be read: {error_text(error, file.path)}") from error


def _digest(paths: Sequence[Path]) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for path in paths:
        try:
            with path.open("rb") as file:
                # so that different lists of files give different digests
                whole.update(f"{path.suffix} {path.stat().st_size}\n".encode())
                while piece := file.read(_PIECE):
                    whole.update(piece)
        except OSError as error:
            raise CaptureError(f"cannot be read: {error.strerror}") from error
    return whole.hexdigest()
