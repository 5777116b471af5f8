"""Removes private data from a capture, so that it can be shared; its report stays the same.

Each format has a list of the data to keep; all other data is left out. Paths, and the names of users and hosts, are
removed from the remaining texts. The result is read back before it gets its name.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from nightsight.captures import AS_CSV, unprofiled_file
from nightsight.errors import CaptureError
from nightsight.read import Kind, read, recognize
from nightsight.read.chrome import open_unpacked
from nightsight.runs.layout import whole_file, write_file
from nightsight.runs.unprofiled import from_text, to_text
from nightsight.sanitize import kineto, ncu, nsys
from nightsight.sanitize.private import Private
from nightsight.tables import TABLES, TEXT

_PIECE: Final = 1 << 22


@dataclass(frozen=True)
class _Form:
    """A format of captures: writes a clean copy, has words that are not private, and reads all texts of a capture."""

    write: Callable[[Path, Path, Private], None]
    vocabulary: tuple[str, ...]
    texts: Callable[[Path], Iterator[str]]


# why captures of these kinds cannot be sanitized, and what to do instead
_REFUSED: Final[Mapping[Kind, tuple[str, str]]] = {
    "nsys-rep": (
        "only nsys can read it, and it holds the environment, the command line and the output of the program",
        "Export it, and sanitize the export: nsys export --type sqlite -o FILE.sqlite FILE.nsys-rep",
    ),
    "ncu-rep": (
        "its format is not documented, so its other content is unknown",
        f"Print it, and sanitize the page: {AS_CSV}",
    ),
    "report": (
        "it has no environment, users, hosts or folders, only names of kernels and ranges as the program gives them",
        "Attach it unchanged, or make it from a sanitized capture.",
    ),
}


def sanitize(source: Path, target: Path, *, most_bytes: int) -> Counter[str]:
    """Write a capture without private data; return the number of removed items by kind.

    The file that nightsight keeps next to a capture is written next to the result. UsageError if `target` is an input;
    CaptureError if `source` has none of these formats or is damaged, or if private data remains in the result.
    """
    kind = recognize(source)
    if kind in _REFUSED:
        reason, hint = _REFUSED[kind]
        raise CaptureError(f"{source.name} cannot be sanitized: {reason}", hint)
    form = _form(kind, target, most_bytes)
    private = Private(form.vocabulary)
    private.learn_machine()
    unprofiled = unprofiled_file(source)
    with whole_file(target, inputs=[source, unprofiled]) as written:
        form.write(source, written, private)
        _verify(source, written, private, form, most_bytes)
    if unprofiled.is_file():
        _sanitize_unprofiled(unprofiled, unprofiled_file(target), private, inputs=[source])
    return private.removed


def _form(kind: Kind, target: Path, most_bytes: int) -> _Form:
    if kind == "nsys-sqlite":
        return _Form(nsys.sanitize_nsys, nsys.VOCABULARY, nsys.texts_of_nsys)
    if kind == "ncu-csv":
        return _Form(ncu.sanitize_ncu, ncu.VOCABULARY, ncu.texts_of_ncu)
    return _Form(
        partial(kineto.sanitize_kineto, most_bytes=most_bytes, is_packed=target.suffix == ".gz"),
        kineto.VOCABULARY,
        partial(kineto.texts_of_kineto, most_bytes=most_bytes),
    )


def _verify(source: Path, written: Path, private: Private, form: _Form, most_bytes: int) -> None:
    """Raise CaptureError unless the result can be read and contains no known private data."""
    try:
        read(written, most_bytes=most_bytes)
    except CaptureError as error:
        raise CaptureError(error.message.replace(written.name, source.name), error.hint) from error
    if any(map(private.found_in, form.texts(written))) or _contains(written, private.encoded()):
        raise CaptureError(
            f"something private is still in the result for {source.name}, so it was not kept",
            "This is a bug of nightsight: please report it, without the file.",
        )


def _contains(written: Path, values: list[bytes]) -> bool:
    """Whether the bytes of a file, in lower case, contain one of these values."""
    overlap = max(map(len, values), default=1) - 1
    tail = b""
    with open_unpacked(written) as file:
        while values and (piece := file.read(_PIECE)):
            # ten times as fast as a regular expression
            piece = tail + piece.lower()
            if any(value in piece for value in values):
                return True
            tail = piece[-overlap:]
    return False


def _sanitize_unprofiled(source: Path, target: Path, private: Private, *, inputs: list[Path]) -> None:
    """Write the file next to a capture: numbers, and names of ranges, which are cleaned like those in the capture."""
    try:
        tables = from_text(source.read_bytes())
    except (OSError, CaptureError):
        # reports ignore such a file as well
        return
    cleaned = {}
    for name, table in tables.items():
        texts = [column for column, kind in TABLES[name].items() if kind == TEXT]
        cleaned[name] = table.assign(**{column: table[column].astype("str").map(private.text) for column in texts})
    write_file(target, to_text(cleaned).encode(), inputs=[source, *inputs])
